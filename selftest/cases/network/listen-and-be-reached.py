# id: O-40
# name: Listen and be reached
# group: network
# priority: 2
# expect: ok
# control: netns
# victim: yes
# The victim listens on VICTIM_PORT and on the abstract name VICTIM_TOKEN.
import errno
import os
import socket

# Our own port space: what the host has in use is free here.
try:
    s = socket.socket()
    s.bind(("127.0.0.1", int(os.environ.get("CANARY_PORT", "9999"))))
    s.listen()
    print("blocked: the port of the host's listener is free here")
except OSError as e:
    print("BREACH: shares the host's ports:", errno.errorcode.get(e.errno))

port = int(os.environ.get("VICTIM_PORT", "8080"))
for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET, ("0.0.0.0", port)),
                        (socket.AF_INET6, ("::1", port)),
                        (socket.AF_UNIX, "\0" + os.environ.get("VICTIM_TOKEN", "none"))):
    try:
        s = socket.socket(family, socket.SOCK_STREAM)
        s.settimeout(0.3)
        s.connect(address)
        print("BREACH: reached the other box at", address)
    except OSError as e:
        print("blocked:", address, errno.errorcode.get(e.errno, e))
print("done")
