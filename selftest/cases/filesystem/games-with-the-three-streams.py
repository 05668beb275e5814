# id: X-12
# name: Games with the three streams
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: about the engine's side of the pipes, not about a barrier
# What the payload does to the open file descriptions it was given must not stall the engine.
import fcntl
import os

print("first", flush=True)
for fd in (0, 1, 2):
    try:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_APPEND | os.O_ASYNC)
        fcntl.fcntl(fd, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError as e:
        print("blocked: descriptor", fd, e.strerror)
    for way in (os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY | os.O_NONBLOCK):
        try:
            again = os.open(f"/proc/self/fd/{fd}", way)
            os.set_blocking(again, False)
            if way != os.O_WRONLY | os.O_TRUNC:
                os.read(again, 10)  # steal from the engine
            os.ftruncate(again, 1 << 40)
            print("BREACH: stream", fd, "was made 1 TiB long")
        except OSError:
            pass
os.set_blocking(1, True)
try:
    fcntl.lockf(1, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(1, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as e:
    print("blocked: lock", e.strerror)
os.close(2)
os.close(0)
print("done", flush=True)
