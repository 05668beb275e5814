# id: X-63
# name: Watch what others do with the shared libraries
# group: tenant
# priority: 1
# expect: ok
# control: seccomp
import ctypes
import errno
import fcntl
import os

libc = ctypes.CDLL(None, use_errno=True)
for name, call in (("inotify_init", lambda: libc.inotify_init()),
                   ("inotify_init1", lambda: libc.inotify_init1(0))):
    fd = call()
    if fd < 0:
        print("blocked:", name, errno.errorcode[ctypes.get_errno()])
        continue
    for path in (b"/usr/lib/x86_64-linux-gnu", b"/usr/lib", b"/usr/bin", b"/etc", b"/"):
        if libc.inotify_add_watch(fd, path, 0x3B) >= 0:
            print("BREACH: watches", path.decode())
    os.close(fd)
directory = os.open("/usr/lib", os.O_RDONLY)
try:
    fcntl.fcntl(directory, fcntl.F_NOTIFY, fcntl.DN_ACCESS)
    print("BREACH: F_NOTIFY")
except OSError as e:
    print("blocked: F_NOTIFY", errno.errorcode[e.errno])
print("done")
