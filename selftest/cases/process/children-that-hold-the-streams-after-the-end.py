# id: X-23
# name: Children that hold the streams after the end
# group: process
# priority: 1
# expect: ok
# expect-not-hit: wall, cpu, output
# control: none
# control-why: the end of init takes the pid namespace along; there is no barrier to leave out
# limits: output_kb=1024
import os
import signal
import time

for i in range(20):
    if os.fork() == 0:
        os.setsid()
        for s in range(1, 32):
            try:
                signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        while True:
            if i % 2:
                time.sleep(0.01)
                os.write(1, b"still here\n")
print("done", flush=True)
os._exit(0)
