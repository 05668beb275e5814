# id: O-35
# name: Host loopback and the engine's own port
# group: network
# priority: 1
# expect: ok
# control: netns
import errno
import os
import socket

ports = [int(os.environ.get("CANARY_PORT", "9")), 8000, 22, 53, 80]
for port in ports:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.1.2.3"),
                            (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"),
                            (socket.AF_INET6, "::"), (socket.AF_INET6, "::ffff:127.0.0.1")):
        try:
            s = socket.socket(family, socket.SOCK_STREAM)
            s.settimeout(0.3)
            s.connect((address, port))
            print("BREACH: connected to", address, port)
        except OSError as e:
            if port == ports[0]:
                print("blocked:", address, errno.errorcode.get(e.errno, e))
        finally:
            s.close()
print("done")
