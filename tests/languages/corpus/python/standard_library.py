import ctypes
import datetime
import decimal
import hashlib
import json
import locale
import mmap
import os
import platform
import shutil
import socket
import sqlite3
import stat
import sys
import tempfile
import time
import uuid
import zipfile
import zoneinfo

db = sqlite3.connect("file.db")
db.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
db.executemany("INSERT INTO t(b) VALUES (?)", [("ř",), ("ž",)])
db.commit()
print(db.execute("SELECT group_concat(b) FROM t").fetchone(), os.path.getsize("file.db") > 0)
print(locale.setlocale(locale.LC_ALL, ""), sys.getfilesystemencoding(), sys.stdout.encoding)
print(time.tzname, datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("America/New_York")).isoformat())
with tempfile.TemporaryDirectory() as d, zipfile.ZipFile(d + "/a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("x/ü.txt", "data" * 1000)
    print(z.namelist(), z.infolist()[0].compress_size < 100)
with tempfile.NamedTemporaryFile() as f:
    f.write(b"abc" * 2000)
    f.flush()
    with mmap.mmap(f.fileno(), 0) as m:
        print(m[:6], len(m))
print(ctypes.CDLL(None).strlen(b"four"), ctypes.CDLL("libm.so.6").abs(-3))
print(hashlib.sha256(b"x").hexdigest(), uuid.UUID(int=7), decimal.Decimal(1) / 7)
print(platform.system(), socket.gethostbyname("localhost"))
a, b = socket.socketpair()
a.send(b"pair")
print(b.recv(10))
os.mkfifo("fifo")
os.symlink("fifo", "link")
print(stat.S_ISFIFO(os.stat("link").st_mode), shutil.which("ls"))
os.makedirs("deep/er")
shutil.copytree("deep", "copy")
print(sorted(os.listdir(".")) [:3], json.dumps({"ß": [1, None, 2.5]}))
print(os.path.exists("/proc/self/status"), os.cpu_count() is not None, os.getpid() > 0)
