# SPDX-License-Identifier: Apache-2.0
"""Finds out, in the build box, what a warm interpreter of the image may import ahead (docs/images.md). Runs as the
image's own Python; writes {"preload": [module...], "mb": MiB} to stdout and its reasons to stderr.

    preload.py [requirements.txt | -] [module...]    modules that the recipe names; none: pick by measurement

A zygote is forked by a raw clone, without the C library's fork handlers. That is safe with one thread and with
no descriptor, child or handler that a module has made. So each module is imported alone, in a process of its own,
and what the process had before is compared with what it has afterwards."""
import importlib.metadata as metadata
import json
import os
import re
import signal
import subprocess
import sys
import time

LEAST_MS = 15  # an import that takes less is not worth the memory
MOST_MB = 400  # of all together
MOST_MODULES = 64
PATIENCE_S = 60  # for one import
TRIAL_S = 30  # for the copy of a process that has imported all
WHOLE_S = 240  # for all modules; a module that was not measured by then is not loaded ahead

# The module that programs import from a distribution whose top module is cheap or empty.
MEANT = {"matplotlib": ["matplotlib.pyplot"], "PIL": ["PIL.Image"], "lxml": ["lxml.etree"], "scipy": ["scipy.stats"],
         "sklearn": ["sklearn.linear_model", "sklearn.ensemble", "sklearn.model_selection"]}

# Libraries with thread pools read these when they are loaded.
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                     "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")}
ONE_THREAD.update(JE_ARROW_MALLOC_CONF="background_thread:false", MPLBACKEND="agg")


def say(*words):
    print("hermes: preload:", *words, file=sys.stderr, flush=True)


def memory_kb():
    with open("/proc/self/status") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("RssAnon:", "RssShmem:")))


def has_child():
    try:
        os.waitpid(-1, os.WNOHANG)
        return True
    except ChildProcessError:
        return False


def files():
    """Descriptors, without the one that reads the list."""
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + fd)]


def state():
    umask = os.umask(0)
    os.umask(umask)
    return {"starts a thread": len(os.listdir("/proc/self/task")),
            "leaves a descriptor open": files(),
            "starts a child": has_child(),
            "sets a signal handler": [repr(signal.getsignal(n)) for n in signal.valid_signals()],
            "changes the working directory": os.getcwd(),
            "changes the umask": umask,
            "changes sys.excepthook": sys.excepthook is sys.__excepthook__}


def load(names, report):
    """In a child: imports the modules one after the other and reports after each."""
    before = state()
    for name in names:
        start, kb = time.process_time(), memory_kb()
        try:
            __import__(name)
        except BaseException as problem:
            report(name, "cannot be imported: %s: %s" % (type(problem).__name__, str(problem)[:200]), 0, 0)
            return
        spent = (time.process_time() - start) * 1000
        after = state()
        why = next((what for what in before if after[what] != before[what]), None)
        report(name, why, spent, max(memory_kb() - kb, 0) / 1024)
        if why:
            return


def trial():
    """In the same child: a copy made as a zygote makes one must come to its end."""
    import ctypes
    import gc
    clone = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
    if clone is None:
        return True
    pid = ctypes.CDLL(None).syscall(clone, signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        gc.collect()
        os._exit(0)
    deadline = time.monotonic() + TRIAL_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def be_child(names):
    # Modules may print to descriptor 1, so rows go to a copy of it. Only the last row, of the trial, shows that the
    # modules did not end the process.
    out = os.dup(1)
    os.dup2(2, 1)

    def report(*row):
        os.write(out, json.dumps(row).encode() + b"\n")
    load(names, report)
    os.write(out, json.dumps(["", None if trial() else "hangs in a copy of the process", 0, 0]).encode() + b"\n")
    os._exit(0)


def measure(names):
    """[[name, why not or None, ms, MiB]...] of imports in one process; the last row is that of the trial, with the
    name "". A process that ends early has fewer."""
    try:
        run = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", *names], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, timeout=PATIENCE_S + TRIAL_S, env={**os.environ, **ONE_THREAD})
        text = run.stdout
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
    rows = []
    for line in text.splitlines():
        try:
            name, why, ms, mb = json.loads(line)
            rows.append([str(name), why and str(why), float(ms), float(mb)])
        except (ValueError, TypeError):
            break
    return rows


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def asked_for(path):
    """Distributions that were asked for by name; with a lock, distributions that no other one needs."""
    if path != "-":
        with open(path, encoding="utf-8") as file:
            names = [re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in file]
        return {normal(found.group()) for found in names if found}
    needed = set()
    have = set()
    for dist in metadata.distributions():
        have.add(normal(dist.metadata["Name"]))
        for line in dist.requires or []:
            if "extra ==" not in line:
                needed.add(normal(re.match(r"[A-Za-z0-9._-]+", line).group()))
    return have - needed


def import_names(dists):
    names = []
    for module, of in sorted(metadata.packages_distributions().items()):
        if not module.startswith("_") and module.isidentifier() and any(normal(d) in dists for d in of):
            names += MEANT.get(module, [module])
    return names[:MOST_MODULES]


def alone(names):
    """The modules that may be loaded ahead, each with milliseconds and MiB."""
    good = []
    deadline = time.monotonic() + WHOLE_S
    for name in names:
        rows = measure([name]) if time.monotonic() < deadline else []
        if len(rows) != 2:
            say("leaves out %s: it ends the process" % name)
        elif rows[0][1] or rows[1][1]:
            say("leaves out %s: it %s" % (name, rows[0][1] or rows[1][1]))
        else:
            good.append((name, rows[0][2], rows[0][3]))
    return good


def together(names):
    """As many of the modules as one process can have, and their MiB."""
    while names:
        rows = measure(names)
        total, fit = 0, 0
        while fit < len(rows) and rows[fit][0] and not rows[fit][1] and total + rows[fit][3] <= MOST_MB:
            total += rows[fit][3]
            fit += 1
        if fit == len(names) and len(rows) == fit + 1 and not rows[fit][1]:
            return names, total
        bad = names[min(fit, len(names) - 1)]
        say("leaves out %s: it does not fit with the others" % bad)
        names = [name for name in names if name != bad]
    return [], 0


def main():
    named = sys.argv[2:]
    good = alone(named or import_names(asked_for(sys.argv[1])))
    if not named:
        good = [row for row in good if row[1] >= LEAST_MS]
        good.sort(key=lambda row: -row[1] / max(row[2], 0.1))
    names, mb = together([row[0] for row in good])
    for name, ms, size in good:
        if name in names:
            say("%s: %.0f ms, %.0f MiB" % (name, ms, size))
    print(json.dumps({"preload": names, "mb": round(mb)}))


if sys.argv[1:2] == ["--child"]:
    be_child(sys.argv[2:])
else:
    main()
