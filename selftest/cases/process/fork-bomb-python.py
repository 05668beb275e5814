# id: O-16
# name: Fork bomb, Python
# group: process
# priority: 1
# expect: time_limit
# expect-hit: processes
# limits: cpu_ms=2000 memory_mb=512
# control: pids
# needs-cgroup: yes
# victim: yes
import os
import signal
import time

if "CONTROL" in os.environ:  # 90 sleepers instead of a bomb: more than the limit of 64
    children = []
    try:
        for _ in range(90):
            pid = os.fork()
            if pid == 0:
                time.sleep(5)
                os._exit(0)
            children.append(pid)
        print("BREACH:", len(children), "processes", flush=True)
    except OSError as e:
        print("blocked: after", len(children), e, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)

while True:
    try:
        os.fork()
    except OSError:
        pass
