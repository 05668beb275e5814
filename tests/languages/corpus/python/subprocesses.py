import os
import signal
import subprocess
import sys
print(subprocess.run(["sort", "-r"], input="a\nb\nc\n", text=True, capture_output=True).stdout)
print(subprocess.run("echo $((6*7)) | tr 4 5; exit 3", shell=True, capture_output=True))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
child.send_signal(signal.SIGTERM)
print(child.wait())
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, b"from the child")
    os._exit(7)
print(os.read(read, 100), os.WEXITSTATUS(os.wait()[1]))
try:
    subprocess.run(["sleep", "10"], timeout=0.05)
except subprocess.TimeoutExpired:
    print("timeout")
