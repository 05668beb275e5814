# id: X-61
# name: Host name
# group: tenant
# priority: 2
# expect: ok
# control: utsns
import os
import socket

# Every box has the same host name, so the name reveals nothing about the host.
if socket.gethostname() != "box" or os.uname().nodename != "box":
    print("BREACH: host name", socket.gethostname())
try:
    socket.sethostname(socket.gethostname())
    print("BREACH: set the host name")
except OSError as e:
    print("blocked: sethostname", e.strerror)
print("done")
