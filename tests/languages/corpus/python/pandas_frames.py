import io
import pandas as pd
df = pd.read_csv(io.StringIO("name,n\na,1\nb,2\na,3\n"))
print(df.groupby("name").sum().to_csv())
print(df.describe().loc["mean", "n"], df.dtypes.to_dict())
df["when"] = pd.date_range("2024-02-28", periods=3, tz="UTC")
print(df.to_json(orient="records", date_format="iso"))
print(df["when"].dt.tz_convert("Europe/Prague").dt.strftime("%F %H:%M").tolist())
