# id: X-06
# name: Output files of every wrong kind
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: the collector opens nothing but plain files; that is code, not a barrier of the box
# collect: a.txt, b.txt, c.txt, d.txt, e.txt, f/g.txt, h.txt
# expect-file: a.txt not_regular, b.txt not_regular
import os
import socket

os.symlink("/proc/1/environ", "a.txt")
socket.socket(socket.AF_UNIX).bind("b.txt")
os.mkdir("c.txt")
with open("d.txt", "w") as f:
    f.write("no access")
os.chmod("d.txt", 0)
os.symlink("/dev/zero", "e.txt")
os.symlink("/etc", "f")
os.symlink("/proc/self/mem", "h.txt")
print("done")
