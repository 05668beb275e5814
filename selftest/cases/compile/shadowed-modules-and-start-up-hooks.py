# id: O-58
# name: Shadowed modules and start-up hooks
# group: compile
# priority: 2
# expect: ok
# control: none
# control-why: about what the engine's helpers import, not about a barrier
# collect: out.txt
# What this program writes here must not be loaded by anything that works for the engine later
# (the collector), and a Python started here obeys only to its own user.
import os
import subprocess
import sys

TRAP = "import os\nopen('/box/out.txt', 'w').write('BREACH: trap sprung')\nos._exit(0)\n"
os.makedirs("encodings", exist_ok=True)
for name in ("json.py", "site.py", "sitecustomize.py", "usercustomize.py", "os.py", "io.py",
             "struct.py", "encodings/__init__.py", "pyvenv.cfg", "python311._pth"):
    with open(name, "w") as f:
        f.write(TRAP)
with open("out.txt", "w") as f:
    f.write("untouched\n")
# The child springs its own trap: that is its own affair, and must not change our verdict.
child = subprocess.run([sys.executable, "-c", "import json"], capture_output=True, cwd="/box")
print("child:", child.returncode)
with open("out.txt", "w") as f:
    f.write("untouched\n")
print("done")
