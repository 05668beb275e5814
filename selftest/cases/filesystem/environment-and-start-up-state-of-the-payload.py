# id: X-11
# name: Environment and start-up state of the payload
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: about what the engine hands over, not about a barrier
import os
import resource
import signal
import sys

ALLOWED = ("CANARY_", "VICTIM_", "PATH", "HOME", "LANG", "LC_", "PWD", "OLDPWD", "SHLVL", "_", "USER",
           "LOGNAME", "TMPDIR", "TERM", "TZ", "CONTROL", "PYTHON", "HOSTNAME", "SHELL", "COLUMNS",
           "OMP_", "OPENBLAS_", "MKL_", "MALLOC_", "GO", "UV_", "JAVA", "NODE_", "RUST", "CARGO_")
for key, value in os.environ.items():
    if key.startswith("HERMES_") or "TOKEN" in key and not key.startswith("VICTIM_") or "KEY" in key:
        print("BREACH: variable of the engine", key)
    elif not key.startswith(ALLOWED):
        print("BREACH: unexpected variable", key, value)

if os.getcwd() != "/box":
    print("BREACH: working directory", os.getcwd())
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
if blocked:
    print("BREACH: blocked signals inherited", blocked)
for line in open("/proc/self/status"):
    if line.startswith("SigIgn:"):
        ignored = int(line.split()[1], 16)
        for own in (signal.SIGPIPE, signal.SIGXFSZ, 32, 33):  # Python's, and libc's own two
            ignored &= ~(1 << own - 1)
        if ignored:
            print("BREACH: ignored signals inherited", hex(ignored))
mask = os.umask(0)
print("umask:", oct(mask), "session:", os.getsid(0), "group:", os.getpgrp(), "argv:", sys.argv[1:])
if resource.getrlimit(resource.RLIMIT_CORE)[1] > 1:
    print("BREACH: core dumps", resource.getrlimit(resource.RLIMIT_CORE))
print("done")
