# id: X-05
# name: Deep directories, long names, link loops
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: about the collector and the removal of the box, not about a barrier
# collect: *, **/*.txt, out.txt
import os

with open("out.txt", "w") as f:
    f.write("fine\n")
os.symlink("loop-b", "loop-a.txt")
os.symlink("loop-a.txt", "loop-b")
os.symlink(".", "self")
os.symlink("..", "up")
os.symlink("/", "root")
os.symlink("/proc/self/fd", "fds")
for name in ("n" * 255, "tab\tname", "line\nbreak.txt", "-rf", "*", "[a", "quote'\"`$(id)",
             "back\\slash"):
    with open(name, "w") as f:
        f.write("x")
with open(b"\xff\xfe.txt", "w") as f:
    f.write("x")

# Far deeper than a path may be long; only relative steps reach it.
depth = 0
try:
    for depth in range(3000):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    open("deep.txt", "w").close()
except OSError as e:
    print("blocked: depth", depth, e.strerror)
print("depth:", depth)
print("done")
