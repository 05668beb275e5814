# id: O-03
# name: Write everywhere
# group: filesystem
# priority: 1
# expect: ok
# control: pidns_proc,landlock
import errno
import os
import sys

DIRS = """/ /bin /usr /usr/bin /usr/lib /usr/local /lib /lib64 /sbin /etc /etc/ssl /proc /proc/self
/proc/sys /sys /dev /dev/fd /var /var/tmp /run /opt /root /home /mnt /srv""".split()
DIRS.append(os.environ.get("CANARY_DIR", "/var/tmp/none"))
FILES = ["/usr/bin/python3", "/bin/sh", "/etc/passwd", "/etc/ld.so.cache", "/proc/self/comm",
         "/proc/self/oom_score_adj", "/proc/self/coredump_filter"]
REFUSALS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)


def attempt(path, flags):
    try:
        os.close(os.open(path, flags, 0o644))
    except OSError as e:
        word = "blocked:" if e.errno in REFUSALS else "BREACH:"
        print(word, path, errno.errorcode[e.errno])
        return
    print("BREACH: opened for writing", path)
    if flags & os.O_CREAT:
        os.unlink(path)


for directory in DIRS:
    if os.path.realpath(directory) in ("/box", "/tmp", "/dev/shm"):
        continue  # a link to a place that is meant to be written
    attempt(os.path.join(directory, "hermes-probe"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
for file in FILES:
    attempt(file, os.O_WRONLY | os.O_APPEND)

for directory in ("/box", "/tmp", "/dev/shm"):
    try:
        with open(directory + "/allowed", "w") as f:
            f.write("x")
    except OSError as e:
        if "CONTROL" not in os.environ:
            sys.exit(f"{directory} must be writable: {e}")
print("done")
