import requests
import urllib.request
print(requests.Request("GET", "http://localhost/", params={"q": "ß"}).prepare().url)
try:
    requests.get("http://127.0.0.1:9/", timeout=2)
except requests.ConnectionError:
    print("connection error")
