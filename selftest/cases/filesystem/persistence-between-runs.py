# id: O-10
# name: Persistence between runs
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: every box has file systems of its own; there is no barrier to leave out
# runs: 2
import errno
import os

PLACES = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", "/run/user", "/home", "/var/lock",
          "/var/cache", "/var/spool", "/mnt", "/srv", "/box", os.getcwd(), os.path.expanduser("~"),
          os.environ.get("CANARY_DIR", "/var/tmp/none")]
markers = [os.path.join(place, "hermes-marker") for place in dict.fromkeys(PLACES)]
for marker in markers:
    if os.path.lexists(marker):
        print("BREACH:", marker, "is from another run")
for marker in markers:
    try:
        with open(marker, "w") as f:
            f.write("here")
        print("wrote:", marker)
    except OSError as e:
        print("blocked:", marker, errno.errorcode[e.errno])
print("done")
