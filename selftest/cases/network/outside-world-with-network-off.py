# id: O-34
# name: Outside world with network off
# group: network
# priority: 1
# expect: ok
# control: netns
import errno
import fcntl
import os
import socket
import struct
import time

CONTROL = "CONTROL" in os.environ


def interfaces():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for index in range(1, 256):
        try:
            answer = fcntl.ioctl(s, 0x8910, struct.pack("16si20x", b"", index))  # SIOCGIFNAME
            yield answer[:16].rstrip(b"\0").decode()
        except OSError:
            pass


names = list(interfaces())
print("interfaces:", names)
if set(names) - {"lo"}:
    print("BREACH: interfaces", names)

# connect() of a datagram socket looks for a route and sends nothing.
for family, address in ((socket.AF_INET, "1.1.1.1"), (socket.AF_INET, "192.0.2.1"),
                        (socket.AF_INET, "169.254.169.254"), (socket.AF_INET, "10.0.0.1"),
                        (socket.AF_INET6, "2001:db8::1"), (socket.AF_INET6, "fd00::1")):
    try:
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.connect((address, 53))
        print("BREACH: route to", address)
    except OSError as e:
        print("blocked:", address, errno.errorcode.get(e.errno))

if not CONTROL:
    start = time.monotonic()
    for what, call in (("TCP", lambda: socket.create_connection(("1.1.1.1", 53), 2)),
                       ("name", lambda: socket.getaddrinfo("example.com", 80))):
        try:
            print("BREACH:", what, call())
        except OSError as e:
            print("blocked:", what, e)
    if time.monotonic() - start > 1:
        print("BREACH: took", time.monotonic() - start, "s, so somebody was asked")
print("done")
