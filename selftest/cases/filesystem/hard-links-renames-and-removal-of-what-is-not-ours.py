# id: X-02
# name: Hard links, renames and removal of what is not ours
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: the owner of the files and the mounts refuse it as well; no single barrier to leave out
import errno
import os

TARGETS = ["/usr/bin/python3", "/bin/sh", "/etc/passwd", "/etc/hosts", "/dev/null", "/dev/zero",
           os.environ.get("CANARY_FILE", "/var/tmp/none"), "/proc/self/status"]


def refused(what, call):
    try:
        call()
    except OSError as e:
        print("blocked:", what, errno.errorcode[e.errno])
        return
    print("BREACH:", what)


open("mine", "w").close()
for target in TARGETS:
    if not os.path.lexists(target):
        continue
    refused("link " + target, lambda: os.link(target, "stolen"))
    refused("rename away " + target, lambda: os.rename(target, "stolen"))
    refused("rename over " + target, lambda: os.replace("mine", target))
    refused("link over " + target, lambda: os.link("mine", target + ".x"))
    refused("symlink beside " + target, lambda: os.symlink("/box/mine", target + ".x"))
    refused("chown " + target, lambda: os.chown(target, os.getuid(), -1))
    refused("utime " + target, lambda: os.utime(target, (0, 0)))
    if not target.startswith(("/dev/", "/proc/")) and os.getuid() != 0:
        refused("unlink " + target, lambda: os.unlink(target))
        refused("chmod " + target, lambda: os.chmod(target, 0o777))
        refused("setxattr " + target, lambda: os.setxattr(target, "user.x", b"x"))
for directory in ("/usr", "/etc", "/proc", "/dev", "/box", "/tmp"):
    refused("rename directory " + directory, lambda: os.rename(directory, directory + ".old"))
    refused("rmdir " + directory, lambda: os.rmdir(directory))
print("done")
