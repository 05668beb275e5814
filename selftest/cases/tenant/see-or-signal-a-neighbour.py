# id: O-78
# name: See or signal a neighbour
# group: tenant
# priority: 1
# expect: ok
# limits: wall_ms=20000 cpu_ms=20000
# control: pidns_proc
# victim: yes
import os

me = os.getpid()
token = os.environ.get("VICTIM_TOKEN", "no-victim")

listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]
print("/proc:", listed)
for pid in listed:
    if pid != me:
        print("BREACH: /proc lists", pid)
        try:
            text = open(f"/proc/{pid}/cmdline", "rb").read() + open(f"/proc/{pid}/environ", "rb").read()
            if token.encode() in text:
                print("BREACH: that is the victim", text[:100])
        except OSError:
            pass

found = []
kill = os.kill
# Every pid that a host of the usual size gives out, and samples of the rest.
candidates = list(range(1, 32768))
if "CONTROL" not in os.environ:
    candidates += range(32768, 4194304, 37)
for pid in candidates:
    try:
        kill(pid, 0)
        found.append(pid)
    except ProcessLookupError:
        pass
    except PermissionError:
        found.append(pid)
if set(found) - {1, me}:
    print("BREACH: kill(pid, 0) finds", found)
for pid in range(1, 32768):
    try:
        os.close(os.pidfd_open(pid))
    except ProcessLookupError:
        continue
    except OSError as e:
        print("blocked: pidfd_open", e)
        break
    if pid not in (1, me):
        print("BREACH: pidfd_open finds", pid)
print("blocked: nobody but", found)
print("done")
