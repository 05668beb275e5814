# id: O-26
# name: tmpfs as memory
# group: memory
# priority: 1
# expect: ok, memory_limit
# limits: disk_mb=128
# control: memory,disk
# needs-cgroup: yes
import errno
import os

block = b"x" * (1 << 20)
total = 0
for directory in ("/dev/shm", "/tmp", "/box"):
    written = 0
    while written < 512:
        try:
            fd = os.open(f"{directory}/m{written}", os.O_WRONLY | os.O_CREAT, 0o600)
            for _ in range(8):
                os.write(fd, block)
                written += 1
                total += 1
            os.close(fd)
        except OSError as e:
            print("blocked:", directory, written, "MiB", errno.errorcode[e.errno], flush=True)
            break
        if total > 160:
            print("BREACH:", total, "MiB in files of a box of 128 MiB", flush=True)
            os._exit(0)
print("done")
