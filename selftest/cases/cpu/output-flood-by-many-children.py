# id: X-41
# name: Output flood by many children
# group: cpu
# priority: 1
# expect: output_limit
# expect-hit: output
# expect-not-hit: wall
# control: none
# control-why: the cap is in the reader, not a barrier of the box
import os
import time

for i in range(16):
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                os.write(1 + i % 2, b"\xff\x00flood\x1b[2J" * 100)
            except OSError:
                pass
time.sleep(60)
