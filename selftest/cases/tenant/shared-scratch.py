# id: O-79
# name: Shared scratch
# group: tenant
# priority: 2
# expect: ok
# control: none
# control-why: every box has file systems of its own; there is no barrier to leave out
# victim: yes
# The victim writes a file named VICTIM_TOKEN to each place every 100 ms.
import os
import time

token = os.environ.get("VICTIM_TOKEN", "no-victim")
PLACES = ["/box", "/tmp", "/dev/shm", "/var/tmp", "/run", "/run/lock", "/home", "/mnt", "/dev",
          os.environ.get("CANARY_DIR", "/var/tmp/none")]
end = time.monotonic() + 3
seen = set()
while time.monotonic() < end:
    for place in PLACES:
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            if token in name and (place, name) not in seen:
                seen.add((place, name))
                print("BREACH: saw", place, name)
    time.sleep(0.05)
print("done")
