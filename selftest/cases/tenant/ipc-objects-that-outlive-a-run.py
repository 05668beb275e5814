# id: X-48
# name: IPC objects that outlive a run
# group: tenant
# priority: 1
# expect: ok
# control: ipcns
# runs: 2
# CANARY_SHM is a number K: the host has a SysV segment with key K (mode 0666) and a POSIX object
# /hermes-canary-K. The run before has made objects with key 0x6865726d.
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.mq_open.restype = ctypes.c_int
OURS = 0x6865726D
canary = int(os.environ.get("CANARY_SHM", "0"))
IPC_CREAT = 0o1000
CONTROL = "CONTROL" in os.environ


def name():
    return errno.errorcode.get(ctypes.get_errno(), "?")


def find(what, call):
    """The object of another tenant; EACCES would mean that it exists."""
    if call() >= 0 or ctypes.get_errno() in (errno.EACCES, errno.EPERM, errno.EINVAL):
        print("BREACH: found", what, name())
    else:
        print("blocked:", what, name())


if canary:
    find("the host's segment", lambda: libc.shmget(canary, 0, 0))
    if os.path.exists(f"/dev/shm/hermes-canary-{canary}"):
        print("BREACH: found the host's POSIX object")
for path in ("/dev/mqueue", "/proc/sysvipc/shm"):
    print("BREACH: there is" if os.path.exists(path) else "blocked:", path)
if CONTROL:  # leave nothing on the host
    print("done")
    raise SystemExit

find("a segment", lambda: libc.shmget(OURS, 0, 0))
find("a semaphore", lambda: libc.semget(OURS, 0, 0))
find("a queue", lambda: libc.msgget(OURS, 0))
find("a POSIX queue", lambda: libc.mq_open(b"/hermes-probe", os.O_RDONLY))
if os.path.exists("/dev/shm/hermes-probe"):
    print("BREACH: found a POSIX object")
made = [libc.shmget(OURS, 4096, IPC_CREAT | 0o666), libc.semget(OURS, 1, IPC_CREAT | 0o666),
        libc.msgget(OURS, IPC_CREAT | 0o666),
        libc.mq_open(b"/hermes-probe", os.O_RDWR | os.O_CREAT, 0o666, None)]
print("made:", made)
open("/dev/shm/hermes-probe", "w").close()
print("done")
