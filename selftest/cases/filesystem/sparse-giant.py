# id: O-09
# name: Sparse giant
# group: filesystem
# priority: 1
# expect: ok
# control: rlimits
# collect: big
import errno
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
f = open("big", "wb")
for size in (2**50, 2**40, 2**62):
    try:
        f.truncate(size)
        print("BREACH: truncate to", size)
        break
    except OSError as e:
        word = "blocked:" if e.errno in (errno.EFBIG, errno.ENOSPC) else "BREACH:"
        print(word, "truncate to", size, errno.errorcode[e.errno])
print("done")
