# SPDX-License-Identifier: Apache-2.0
"""What the tests of `hermes run` share: a runner, calibration, and an oracle that finds what a test
left.

Every hermes of these tests is started in control groups of their own (one per hierarchy), so that
what is left can be told exactly, also while other instances of Hermes work on the same machine.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build")).resolve()
HERMES = BUILD / "hermes"
SPAWN = BUILD / "hermes-spawn"
UID_FIRST, UID_LAST = 2000000, 2065535
CONTROLLERS = {"memory", "pids", "cpu", "cpuacct"}
LEFT_WAIT_S = 2.0


def is_asan():
    with open(SPAWN, "rb") as f:
        return b"__asan_init" in f.read()


ASAN = HERMES.exists() and is_asan()


def cgroup_mounts():
    """(mount point, is v2) of every hierarchy Hermes may use."""
    found = []
    for line in open("/proc/self/mountinfo"):
        left, right = line.rstrip("\n").split(" - ")
        kind, _, options = right.split(" ")[:3]
        point = left.split(" ")[4]
        if kind == "cgroup2":
            found.append((point, True))
        elif kind == "cgroup" and CONTROLLERS & set(options.split(",")):
            found.append((point, False))
    return found


class Groups:
    """A group per hierarchy that all hermes processes of one session of tests live in.

    On a machine with cgroup v2 alone a group that limits its children takes no processes: there
    the tests share the top with others that run Hermes (`shared`), which is for test machines."""

    def __init__(self, suffix=""):
        name = "test-hermes-%d%s" % (os.getpid(), suffix)
        self.dirs = []
        self.remove_stale()
        points = cgroup_mounts()
        self.shared = all(v2 for _, v2 in points)
        if self.shared:
            self.dirs = points
            return
        for point, v2 in points:
            path = os.path.join(point, name)
            try:
                os.mkdir(path)
            except OSError:
                continue
            os.setxattr(path, "trusted.delegate", b"1")  # as systemd marks what it delegates
            self.dirs.append((path, v2))

    @staticmethod
    def remove_stale():
        """What killed sessions left behind."""
        for point, _ in cgroup_mounts():
            for name in os.listdir(point):
                found = re.fullmatch(r"test-hermes-(\d+)\S*", name)
                if not found or os.path.exists("/proc/" + found.group(1)):
                    continue
                for path, _, _ in os.walk(os.path.join(point, name), topdown=False):
                    try:
                        os.rmdir(path)
                    except OSError:
                        pass

    def join(self):
        """Called between fork and exec."""
        for path, v2 in () if self.shared else self.dirs:
            fd = os.open(path + ("/cgroup.procs" if v2 else "/tasks"), os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)

    def walk(self):
        """Every directory that is ours, children first."""
        for top in self.leaves() if self.shared else [path for path, _ in self.dirs]:
            yield from (p for p, _, _ in os.walk(top, topdown=False))

    def children(self):
        """Directories that Hermes has made."""
        tops = {path for path, _ in self.dirs}
        return [p for p in self.walk() if p not in tops]

    def leaves(self):
        """Directories of boxes, in all hierarchies."""
        return sorted(os.path.join(path, n) for path, _ in self.dirs for n in os.listdir(path)
                      if n.startswith("hermes-"))

    def pids(self):
        found = set()
        for path in self.walk():
            try:
                found |= {int(p) for p in open(path + "/cgroup.procs").read().split()}
            except OSError:
                pass
        if self.shared:
            found |= {pid for pid, _, state, comm, _ in processes()
                      if comm in ("hermes", "hermes-spawn") and state != "Z"}
        return found

    def remove(self):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            for path in self.walk():
                try:
                    os.rmdir(path)
                except OSError:
                    pass
            if self.shared and not self.pids() and not self.leaves():
                return
            if not any(os.path.isdir(p) for p, _ in self.dirs):
                return
            time.sleep(0.02)


class Result:
    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            raise AssertionError("no JSON: %r" % self)

    def __repr__(self):
        return "exit %s, stdout %r, stderr %r" % (self.status, self.out[-2000:], self.err[-2000:])


class Hermes:
    def __init__(self, groups, state, work):
        self.groups, self.state, self.work = groups, state, work
        self.started = []

    def env(self, extra=None):
        env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "HERMES_STATE_DIR": str(self.state),
               "LC_ALL": "C.UTF-8"}
        if ASAN:
            env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "")
            env["UBSAN_OPTIONS"] = os.environ.get(
                "UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
        env.update(extra or {})
        return {k: v for k, v in env.items() if v is not None}

    def file(self, code, name):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(code if isinstance(code, bytes) else code.encode())
        return str(path)

    def start(self, args, env=None, program=None, pre=None, **kwargs):
        """Starts hermes with these arguments; the caller ends it."""
        def before():
            self.groups.join()
            if pre:
                pre()
        for stream in ("stdin", "stdout", "stderr"):
            kwargs.setdefault(stream, subprocess.PIPE)
        process = subprocess.Popen([str(program or HERMES)] + [str(a) for a in args],
                                   env=self.env(env), preexec_fn=before, **kwargs)
        self.started.append(process)
        return process

    def end_all(self):
        """Ends what a failed test did not."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def __call__(self, *args, stdin=b"", timeout=120, **kwargs):
        """Runs hermes to its end."""
        began = time.monotonic()
        process = self.start(args, **kwargs)
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return Result(process.returncode, out, err.decode(errors="replace"),
                      time.monotonic() - began)

    def program(self, code, *args, name="main.py", flags=(), **kwargs):
        return self("run", *flags, self.file(code, name), *args, **kwargs)

    def py(self, code, *args, flags=(), **kwargs):
        return self.program(code, *args, name="main.py", flags=flags, **kwargs)

    def sh(self, code, *args, flags=(), **kwargs):
        return self.program(code, *args, name="main.sh", flags=flags, **kwargs)

    def native(self, path, *args, flags=(), **kwargs):
        return self("run", "-l", "native", *flags, str(path), *args, **kwargs)


def wait_until(check, seconds=5.0):
    """True as soon as check() is; False after that many seconds. Polls."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def lateness(samples=20):
    """How late this machine is now: the worst overshoot of a short sleep, in seconds. Bounds on
    time are multiplied with a factor made of it, so that a loaded machine fails no test."""
    worst = 0.0
    for _ in range(samples):
        began = time.monotonic()
        time.sleep(0.005)
        worst = max(worst, time.monotonic() - began - 0.005)
    return worst


def slack():
    """Factor for bounds on time: 1 on an idle machine, more under load and under sanitizers."""
    load = os.getloadavg()[0] / os.cpu_count()
    factor = 1 + lateness() / 0.002 + max(0.0, load - 0.5)
    return factor * (4 if ASAN else 1)


def processes():
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = open("/proc/%s/stat" % name).read()
            uid = os.stat("/proc/" + name).st_uid
        except OSError:
            continue
        comm = fields[fields.index("(") + 1:fields.rindex(")")]
        rest = fields[fields.rindex(")") + 2:].split()
        yield int(name), int(rest[1]), rest[0], comm, uid


def orphaned_boxes():
    """Processes with a box's uid whose spawner is gone. The host /proc shows uid 0 for processes
    that are not dumpable, so status is asked."""
    known = {pid: (parent, comm) for pid, parent, _, comm, _ in processes()}
    left = []
    for pid, (parent, comm) in known.items():
        try:
            status = open("/proc/%d/status" % pid).read()
        except OSError:
            continue
        uid = int(status.split("\nUid:")[1].split()[0])
        if not UID_FIRST <= uid <= UID_LAST or "\nState:\tZ" in status:
            continue  # the dead of a killed spawner wait for the host's init to take notice
        at = parent
        while at in known and known[at][1] not in ("hermes-spawn", "inject"):
            at = known[at][0]
        if at not in known:
            left.append("%d (%s), uid %d" % (pid, comm, uid))
    return left


def call_names():
    """Numbers and names of this machine's system calls, from the C library's header."""
    text = subprocess.run(["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-xc", "/dev/null"],
                          check=True, capture_output=True, text=True).stdout
    return {int(n): name for name, n in re.findall(r"#define __NR_(\w+) (\d+)", text)}


def state_listing(state):
    if not state.exists():
        return set()
    found = {p.name for p in state.iterdir()} - {"roots", "cache", "cache.key"}
    for kept in ("roots", "cache"):
        if (state / kept).exists():
            found |= {kept + "/" + p.name for p in (state / kept).iterdir()
                      if p.name.startswith(".")}
    return found


def temporary_files():
    """New things in the shared directories that carry our name or belong to a box."""
    found = set()
    for top in ("/tmp", "/var/tmp", "/dev/shm"):
        for entry in os.scandir(top):
            try:
                st = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if re.fullmatch(r"hermes-\d+", entry.name) or UID_FIRST <= st.st_uid <= UID_LAST:
                found.add(entry.path)
    return found


def mounts():
    return sorted(line.split(" ", 2)[2] for line in open("/proc/self/mountinfo"))


class Oracle:
    def __init__(self, groups, state):
        self.groups, self.state = groups, state
        self.mounts = mounts()
        self.files = temporary_files()
        self.fds = len(os.listdir("/proc/self/fd"))

    def leaks(self):
        found = []
        for pid in self.groups.pids():
            try:
                found.append("process %d %s" % (pid, open("/proc/%d/comm" % pid).read().strip()))
            except OSError:
                pass
        found += ["cgroup " + p for p in self.groups.children()]
        found += ["box without a spawner: " + p for p in orphaned_boxes()]
        extra = list(mounts())
        for line in self.mounts:
            if line in extra:
                extra.remove(line)
        found += ["mount " + line.strip() for line in extra]
        found += ["file " + p for p in temporary_files() - self.files]
        found += ["state " + p for p in state_listing(self.state)]
        me = os.getpid()
        found += ["zombie %d (%s)" % (pid, comm) for pid, parent, state, comm, _ in processes()
                  if parent == me and state == "Z"]
        return found

    def settle(self):
        """What is left after the machine had time to remove dying processes."""
        found = self.leaks()
        deadline = time.monotonic() + LEFT_WAIT_S * (3 if ASAN else 1)
        while found and time.monotonic() < deadline:
            time.sleep(0.03)
            found = self.leaks()
        return found


def one_line(err, prefix="hermes run: "):
    """Errors are one line that begins with the command; returns what it says."""
    lines = err.splitlines()
    assert len(lines) == 1, "not one line: %r" % err
    assert lines[0].startswith(prefix), lines[0]
    return lines[0][len(prefix):]
