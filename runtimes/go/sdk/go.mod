module main

go 1.22

require sdk v0.0.0

replace sdk => ./sdk
