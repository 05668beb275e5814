# id: O-11
# name: Look through /proc at other roots
# group: filesystem
# priority: 1
# expect: ok
# control: pidns_proc
import errno
import os

CANARY = os.environ.get("CANARY_FILE", "/var/tmp/none")
REFUSALS = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ESRCH)


def refused(what, call):
    try:
        result = call()
    except OSError as e:
        word = "blocked:" if e.errno in REFUSALS else "BREACH:"
        print(word, what, errno.errorcode[e.errno])
        return
    print("BREACH:", what, repr(result)[:200])


def read(path, size=200):
    with open(path, "rb", buffering=0) as f:
        return f.read(size)


others = {1, os.getppid(), 2, os.getpid() - 1} - {0, os.getpid()}
for pid in sorted(others):
    base = f"/proc/{pid}"
    for link in ("root", "cwd", "exe", "fd/0", "fd/3", "ns/mnt", "ns/user"):
        refused(f"{base}/{link}", lambda: os.readlink(f"{base}/{link}"))
    for file in ("environ", "maps", "mem", "cmdline", "status", "stat", "mountinfo", "auxv",
                 "stack", "syscall", "cgroup", "root/etc/hermes-canary", "root" + CANARY):
        refused(f"{base}/{file}", lambda: read(f"{base}/{file}"))
    refused(f"{base}/fd", lambda: os.listdir(f"{base}/fd"))

# The payload's own entries lead nowhere but into its own tree.
for me in ("self", "thread-self", str(os.getpid())):
    root = os.readlink(f"/proc/{me}/root")
    cwd = os.readlink(f"/proc/{me}/cwd")
    if root != "/" or not cwd.startswith("/") or cwd.startswith("(unreachable)"):
        print("BREACH: root or cwd", root, cwd)
    for climb in ("root", "cwd/../..", "root/../../.."):
        refused(f"{me}/{climb}/etc/hermes-canary",
                lambda: read(f"/proc/{me}/{climb}/etc/hermes-canary"))
        refused(f"{me}/{climb} canary", lambda: read(f"/proc/{me}/{climb}{CANARY}"))

environ = read("/proc/self/environ", 1 << 20)
if b"HERMES_" in environ:
    print("BREACH: environment of the engine", environ[:300])
print("done")
