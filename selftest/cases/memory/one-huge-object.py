# id: O-25
# name: One huge object
# group: memory
# priority: 2
# expect: runtime_error, memory_limit
# control: memory
# needs-cgroup: yes
import os

if "CONTROL" in os.environ:
    x = "a" * (160 << 20)
    print("BREACH: one object of 160 MiB in a box of 128", flush=True)
else:
    x = "a" * 10**11
