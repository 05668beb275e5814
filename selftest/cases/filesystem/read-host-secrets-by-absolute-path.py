# id: O-01
# name: Read host secrets by absolute path
# group: filesystem
# priority: 1
# expect: ok
# control: mount
import errno
import os

FILES = [
    os.environ.get("CANARY_FILE", "/var/tmp/none"),
    "/etc/hermes-canary",
    "/etc/shadow",
    "/etc/sudoers",
    "/etc/machine-id",
    "/root/.ssh/id_rsa",
    "/root/.bashrc",
    "/etc/hermes/hermes.conf",
    "/etc/hermes/keys",
    "/var/lib/hermes/canary-w",
    "/var/lib/dpkg/status",
]
DIRS = [
    os.environ.get("CANARY_DIR", "/var/tmp/none"),
    "/etc/hermes",
    "/var/lib/hermes",
    "/usr/libexec/hermes",
    "/root",
    "/home",
    "/var/log",
    "/boot",
    "/work",
    "/srv",
    "/mnt",
]

for path in FILES:
    try:
        with open(path, "rb") as f:
            print("BREACH: read", path, f.read(200))
    except OSError as e:
        fine = e.errno in (errno.ENOENT, errno.EACCES)
        print("blocked:" if fine else "BREACH:", path, errno.errorcode[e.errno])

for path in DIRS:
    try:
        names = os.listdir(path)
        print("BREACH: list" if names else "blocked: empty", path, names[:5])
    except OSError as e:
        fine = e.errno in (errno.ENOENT, errno.EACCES)
        print("blocked:" if fine else "BREACH:", path, errno.errorcode[e.errno])
print("done")
