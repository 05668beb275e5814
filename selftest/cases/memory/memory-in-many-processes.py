# id: X-35
# name: Memory in many processes
# group: memory
# priority: 1
# expect: memory_limit
# expect-hit: memory
# control: memory
# needs-cgroup: yes
# 24 children of 8 MiB each are 192 MiB in a box of 128, while no single one is large.
import os
import signal
import time

children = []
for _ in range(24):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        x = bytearray(os.urandom(1 << 16) * 128)
        os.write(w, b"x")
        time.sleep(20)
        os._exit(0)
    os.close(w)
    os.read(r, 1)
    os.close(r)
    children.append(pid)
    if os.waitpid(-1, os.WNOHANG) != (0, 0):
        print("a child died", flush=True)
        time.sleep(20)  # the box's end is the engine's to decide
print("BREACH: 192 MiB in a box of 128", flush=True)
for pid in children:
    os.kill(pid, signal.SIGKILL)
