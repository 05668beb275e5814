# id: X-49
# name: Place in the control groups and the pid tree
# group: tenant
# priority: 2
# expect: ok
# control: cgroupns
# victim: yes
import os

for line in open("/proc/self/cgroup"):
    if line.rstrip("\n").rsplit(":", 1)[1] != "/":
        print("BREACH: cgroup", line.strip())
if os.getpid() > 100:
    print("BREACH: own pid", os.getpid())
if os.getppid() != 1:
    print("BREACH: parent", os.getppid())
if os.path.exists("/sys/fs/cgroup") or os.path.exists("/proc/1/cgroup"):
    print("BREACH: a cgroup file system, or init's entry")
print("done")
