# The neighbour of the cases with `victim: yes`: a plain Python program in a box of its own. It counts
# until it is stopped. A box that shares anything with it can easily see, hear and reach it.
# A line that begins with BREACH, a missing count or any end before the harness stops it fails the
# case. Environment: VICTIM_TOKEN (random, also given to the probe), VICTIM_PORT (a number).
import os
import selectors
import signal
import socket
import time

token = os.environ.get("VICTIM_TOKEN", "no-token")
port = int(os.environ.get("VICTIM_PORT", "8080"))


def signalled(number, frame):
    print("BREACH: the victim got signal", number, flush=True)


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT):
    signal.signal(number, signalled)

uid = os.getuid()
for line in open("/proc/self/uid_map"):
    inside, outside, count = map(int, line.split())
    if inside <= uid < inside + count:
        print("host-uid:", outside + uid - inside, flush=True)

selector = selectors.DefaultSelector()
for family, address in ((socket.AF_INET, ("0.0.0.0", port)), (socket.AF_INET6, ("::", port)),
                        (socket.AF_UNIX, "\0" + token)):
    s = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        s.bind(address)
        s.listen()
        selector.register(s, selectors.EVENT_READ)
    except OSError as e:
        print("cannot listen:", address, e.strerror, flush=True)

n = 0
while True:
    for key, _ in selector.select(0.1):
        print("BREACH: somebody connected to the victim", flush=True)
        key.fileobj.accept()[0].close()
    for place in ("/box", "/tmp", "/dev/shm"):
        with open(f"{place}/{token}-{n % 10}", "w") as f:
            f.write(token)
    n += 1
    print("count:", n, flush=True)
