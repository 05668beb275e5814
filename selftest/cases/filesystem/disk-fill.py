# id: O-07
# name: Disk fill
# group: filesystem
# priority: 1
# expect: ok
# expect-hit: disk
# limits: memory_mb=256
# control: disk
# victim: yes
import errno
import os

QUOTA = 32 << 20
block = b"x" * (1 << 20)


def fill(directory):
    """Bytes written before the end, in files of 8 MiB so that the file size limit is not met."""
    written = 0
    while written < 2 * QUOTA:
        fd = os.open(f"{directory}/fill{written}", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for _ in range(8):
                n = os.write(fd, block)
                written += n
                if n < len(block):
                    os.write(fd, block)
        except OSError as e:
            return written, errno.errorcode[e.errno]
        finally:
            os.close(fd)
        if "CONTROL" in os.environ and written > QUOTA * 3 // 2:
            break
    return written, "no error"


for directory in ("/box", "/tmp", "/dev/shm"):
    written, why = fill(directory)
    if written > QUOTA * 1.1:
        print("BREACH:", directory, written >> 20, "MiB", why)
        break
    print("blocked:", directory, written >> 20, "MiB", why)
print("done")
