# id: O-36
# name: Unix sockets
# group: network
# priority: 1
# expect: ok
# control: netns,landlock
import errno
import os
import socket

names = ["\0" + os.environ.get("CANARY_ABSTRACT", "none"), "\0hermes-canary", "\0hermes",
         "\0/tmp/.X11-unix/X0", "\0/org/kernel/linux/storage/multipathd"]
names += ["/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock",
          "/var/run/dbus/system_bus_socket", "/run/dbus/system_bus_socket",
          "/run/systemd/journal/socket", "/run/systemd/private", "/run/hermes.sock",
          "/run/hermes/hermes.sock", "/var/lib/hermes/control", "/dev/log"]
for name in names:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            s = socket.socket(socket.AF_UNIX, kind)
            s.settimeout(0.3)
            s.connect(name)
            print("BREACH: connected to", repr(name))
        except OSError as e:
            # EPROTOTYPE: a socket of another type listens there.
            word = "BREACH:" if e.errno == errno.EPROTOTYPE else "blocked:"
            print(word, repr(name), errno.errorcode.get(e.errno, e))
        finally:
            s.close()
print("done")
