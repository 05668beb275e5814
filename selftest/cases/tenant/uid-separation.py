# id: O-81
# name: Uid separation
# group: tenant
# priority: 2
# expect: ok
# control: none
# control-why: the id maps cannot be left out without running as a real user of the host
# victim: yes
# differ: host-uid
# root-only: yes
# Victim and probe both print `host-uid: N`; the harness compares the two lines.
import os

uid = os.getuid()
maps = [tuple(map(int, line.split())) for line in open("/proc/self/uid_map")]
gid_maps = [tuple(map(int, line.split())) for line in open("/proc/self/gid_map")]
for inside, outside, count in maps + gid_maps:
    if outside == 0 or (inside, outside) == (0, 0) or count > 2:
        print("BREACH: map", inside, outside, count)
host = [outside + uid - inside for inside, outside, count in maps if inside <= uid < inside + count]
print("host-uid:", *host)
if not host or host[0] < 65536:
    print("BREACH: a host uid that somebody may have", host)
for place in ("/box", "/tmp", "/dev/shm"):
    st = os.stat(place)
    print("place:", place, st.st_uid, oct(st.st_mode))
if os.stat("/box").st_uid != uid:
    print("BREACH: /box belongs to", os.stat("/box").st_uid)
print("done")
