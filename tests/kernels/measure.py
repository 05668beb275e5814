# SPDX-License-Identifier: Apache-2.0
"""Where the time of a kernel goes, without a box: /usr/bin/python3 tests/kernels/measure.py. The numbers of
docs/internals/kernels.md come from here; a bare `python3 -c pass` is measured in the same rounds."""
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from kernellib import CACHE, HAS_IPYTHON, PYTHON_DIR, Kernel  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20

# Prepares once, forks for each byte on stdin, and tells how long it took from the fork to `ready`.
FORKS = """
import sys, time, os, socket
sys.path.insert(0, %r)
import kernel, gc
kernel.prepare(%r)
gc.collect(); gc.freeze()
times = []
for _ in range(%d):
    ours, theirs = socket.socketpair()
    begin = time.perf_counter()
    if os.fork() == 0:
        os.dup2(theirs.fileno(), 3)
        ours.close()
        kernel.serve(3)
    theirs.close()
    ours.recv(100)
    times.append(time.perf_counter() - begin)
    ours.send(b"exec 3\\n1+1")
    got = b""
    while b"done" not in got:
        got += ours.recv(4096)
    if _ == 0:
        private = [l for l in open("/proc/%%d/smaps_rollup" %% (os.getpid())) if l.startswith("Pss:")][0]
    ours.close()
    os.wait()
times.sort()
print(times[len(times) // 2] * 1000)
"""


def ms(seconds):
    return "%.2f" % (statistics.median(seconds) * 1000)


def start_times(kind):
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        kernel = Kernel(kind)
        times.append(time.perf_counter() - begin)
        kernel.close()
    return times


def exec_times(kind, code, rounds=300):
    kernel = Kernel(kind)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        kernel(code)
        times.append(time.perf_counter() - begin)
    memory = [line for line in open("/proc/%d/smaps_rollup" % kernel.pid) if line.startswith("Pss:")]
    kernel.close()
    return times, int(memory[0].split()[1]) // 1024


def bare():
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        subprocess.run(["/usr/bin/python3", "-c", "pass"])
        times.append(time.perf_counter() - begin)
    return times


def main():
    print("bare python3 -c pass: %s ms" % ms(bare()))
    kinds = ["plain"] + (["program"] if HAS_IPYTHON else []) + ["javascript", "bash"]
    for kind in kinds:
        code = {"bash": "echo $((1+1))"}.get(kind, "1+1")
        times, memory = exec_times(kind, code)
        print("%-11s start %s ms, exec of %s p50 %s ms, PSS %d MiB" % (kind, ms(start_times(kind)), code, ms(times), memory))
    times, _ = exec_times("bash", "exit 3", 50)
    print("bash        exec of exit 3 (a new shell) p50 %s ms" % ms(times))
    for libraries in ((), ("numpy", "pandas", "matplotlib.pyplot")):
        out = subprocess.run(["/usr/bin/python3", "-c", FORKS % (str(PYTHON_DIR), libraries, ROUNDS)], capture_output=True, text=True,
                             env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": CACHE})
        print("python      fork of a prepared one to ready, with %s: %s ms %s" % (libraries or "nothing more", out.stdout.strip(), out.stderr[-300:]))
    print("bare python3 -c pass: %s ms" % ms(bare()))


if __name__ == "__main__":
    assert socket  # the forks use it
    main()
