# id: O-18
# name: Double-fork daemon
# group: process
# priority: 1
# expect: ok
# expect-not-hit: wall
# control: none
# control-why: the end of init takes the pid namespace along; there is no barrier to leave out
import os
import time

pid = os.fork()
if pid == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    # Not the streams: a pipe held open by a daemon must not delay the answer either.
    if os.fork() == 0:
        os.closerange(0, 64)
    for i in range(3000):
        with open("/tmp/alive", "w") as f:
            f.write(str(i))
        time.sleep(0.1)
    os._exit(0)
os.waitpid(pid, 0)
print("done", flush=True)
os._exit(0)
