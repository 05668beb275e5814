module sdk

go 1.22
