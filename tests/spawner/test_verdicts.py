# SPDX-License-Identifier: Apache-2.0
"""A box is told that its memory limit killed if that did, and never for another reason: not for the limit of a
group above, not for a group that was removed, not for the box that had its group before. HERMES_FULL=1 sends
100,000 boxes through groups that are used again."""
import collections
import os
import pathlib
import select
import signal
import socket
import time

import pytest

from test_messages import (ENDED, ENTRY_BIND, ENTRY_DEVICE, ENTRY_EXEC, ENTRY_TREE, EVENT, GOOD, MB, STARTED, Spawner,
                           box, entry, job, root, setup_message, tree)  # noqa: F401
import test_messages
from apilib import SLOW, descendants, name_of, wait_until

FULL = os.environ.get("HERMES_FULL") == "1"
EXITED, OOM, PIDS, SHORT = 1, 2, 4, 128
TOP = pathlib.Path("/sys/fs/cgroup/memory")
TRUE, BASH, PYTHON = range(3)
PROGRAMS = ["/usr/bin/true", "/usr/bin/bash", "/usr/bin/python3"]
SLEEP = ["bash", "-c", "sleep ${0}; echo slept"]
HOG = ["python3", "-Sc", "import sys; x = bytearray(int(sys.argv[1]) << 20); print('has it')"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups")
v1_only = pytest.mark.skipif(not TOP.is_dir(), reason="of the memory controller of cgroup v1")


class Host(Spawner):
    """A spawner of a server, whose boxes are made in the group that this process is in, where one is given."""

    def __init__(self, group=None, processes_total=0):
        before = "/sys/fs/cgroup/memory" + group_of("self") if group else None
        if group:
            (group / "tasks").write_text("0")
        try:
            super().__init__(seal=False)
        finally:
            if group:
                pathlib.Path(before, "tasks").write_text("0")
        self.send(setup_message(networks=8, processes_total=processes_total))
        self.send(root(entry(ENTRY_TREE, "", test_messages.TREE), entry(ENTRY_BIND, "/usr", "/usr"),
                       entry(ENTRY_DEVICE, "/dev/null", "/dev/null"), *[entry(ENTRY_EXEC, p) for p in PROGRAMS]))
        assert self.seal() == 0
        self.jobs, self.pipes = {}, (os.pipe(), os.pipe())

    def start(self, program, argv, memory_mb, processes=GOOD[5]):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(60 * SLOW)
        key = tuple(argv)
        if key not in self.jobs:
            self.jobs[key] = job(argv)
        limits = (memory_mb * MB, *GOOD[1:5], processes, *GOOD[6:])
        self.send(box(exec=program, limits=limits), [theirs.fileno(), self.jobs[key], self.pipes[0][1], self.pipes[1][1]])
        theirs.close()
        return ours

    def close(self):
        for fd in (*self.jobs.values(), *self.pipes[0], *self.pipes[1]):
            os.close(fd)
        return super().close()


def group_of(pid):
    lines = pathlib.Path("/proc/%s/cgroup" % pid).read_text().splitlines()
    return next(line.split(":", 2)[2] for line in lines if ":memory:" in line)


def end_of(ours):
    """Flags and status of the end of a box."""
    while True:
        data = ours.recv(4096)
        assert data, "no end was told"
        event = EVENT.unpack(data)
        if event[0] != STARTED:
            ours.close()
            return event[0], event[1] & (EXITED | OOM | SHORT), event[2]


@pytest.fixture
def host():
    made = Host()
    yield made
    assert made.close() == 0


@pytest.fixture
def above():
    """A group whose limit of 128 MiB holds for all boxes together."""
    path = TOP / ("test-hermes-%d-above" % os.getpid())
    path.mkdir()
    os.setxattr(path, "trusted.delegate", b"1")
    (path / "memory.limit_in_bytes").write_text(str(128 * MB))
    made = Host(path)
    yield made
    assert made.close() == 0
    assert wait_until(lambda: not (path / "tasks").read_text())
    path.rmdir()


def sleeps(host):
    return "sleep" in map(name_of, descendants(host.pid))


def test_its_own_limit(host):
    """The control of what follows."""
    assert end_of(host.start(PYTHON, HOG + ["200"], 64)) [:2] in ((ENDED, OOM), (ENDED, OOM | EXITED))
    assert end_of(host.start(PYTHON, HOG + ["30"], 64)) == (ENDED, EXITED, 0)


@v1_only
def test_the_limit_of_a_group_above_is_nobodys_verdict(above):
    """When a group reaches its limit, the kernel reports that to every group below it, too."""
    idle = above.start(BASH, SLEEP + ["1.5"], 64)
    assert wait_until(lambda: sleeps(above))
    kind, flags, _ = end_of(above.start(PYTHON, HOG + ["400"], 1024))
    assert (kind, flags & (OOM | SHORT)) == (ENDED, SHORT)
    assert end_of(idle) == (ENDED, EXITED, 0)
    kind, flags, _ = end_of(above.start(PYTHON, HOG + ["90"], 64))
    assert (kind, flags & (OOM | SHORT)) == (ENDED, OOM)


@v1_only
def test_a_group_that_was_removed_is_no_limit_reached(host):
    """Whoever is in it is moved away first, as no program in a box could. Nothing limits the box then: it ends."""
    ours = host.start(BASH, SLEEP + ["1000"], 64)
    assert wait_until(lambda: sleeps(host))
    sleeper = next(p for p in descendants(host.pid) if name_of(p) == "sleep")
    leaf = TOP / group_of(sleeper).lstrip("/")
    for pid in (leaf / "cgroup.procs").read_text().split():
        (TOP / "cgroup.procs").write_text(pid)
    leaf.rmdir()
    kind, flags, status = end_of(ours)
    assert (kind, flags & (OOM | SHORT)) == (ENDED, 0)
    assert wait_until(lambda: not sleeps(host))


def test_no_box_has_the_verdict_of_another():
    """As many boxes as possible through few groups, beside boxes that hit their limit."""
    count = 100000 if FULL else 600
    hosts = [Host(), Host()]
    waiting, sent, verdicts = {}, 0, collections.Counter()
    poll = select.poll()
    try:
        while sent < count or waiting:
            while sent < count and len(waiting) < 12:
                kind = "hog" if sent % 60 == 7 else "small" if sent % 3 else "shell"
                host = hosts[sent % 2]
                ours = host.start(PYTHON, HOG + ["60"], 16) if kind == "hog" else \
                    host.start(TRUE, ["true"], 16 + sent % 3) if kind == "small" else \
                    host.start(BASH, ["bash", "-c", ":"], 32)
                waiting[ours.fileno()] = ours, kind
                poll.register(ours, select.POLLIN)
                sent += 1
            for fd, _ in poll.poll(60000 * SLOW):
                ours, kind = waiting[fd]
                event = EVENT.unpack(ours.recv(4096))
                if event[0] == STARTED:
                    continue
                poll.unregister(fd)
                del waiting[fd]
                ours.close()
                verdicts[kind, event[0], event[1] & (OOM | SHORT), event[2] if kind != "hog" else 0] += 1
    finally:
        assert [host.close() for host in hosts] == [0, 0]
    hogs = len([i for i in range(count) if i % 60 == 7])
    small = len([i for i in range(count) if i % 60 != 7 and i % 3])
    assert verdicts == {("hog", ENDED, OOM, 0): hogs, ("small", ENDED, 0, 0): small,
                        ("shell", ENDED, 0, 0): count - hogs - small}


CROWDED = 256
# Has so many threads in all for a moment, and exits with 7 when one was refused.
THREADS = ["python3", "-Sc", """
import _thread, sys, time
done = _thread.allocate_lock()
done.acquire()
def wait():
    done.acquire()
    done.release()
n = 0
try:
    for n in range(int(sys.argv[1]) - 1):
        _thread.start_new_thread(wait, ())
except RuntimeError:
    sys.exit(7)
finally:
    done.release()
    time.sleep(0.1)
"""]


def refusal(host, count, processes):
    """Starts `count` threads in a box and returns the limit that refused one of them."""
    ours = host.start(PYTHON, THREADS + [str(count)], 64, processes)
    while (event := EVENT.unpack(ours.recv(4096)))[0] == STARTED:
        pass
    ours.close()
    return event[1] & (PIDS | CROWDED)


@pytest.mark.parametrize("earlier", [0, 58], ids=["a new group", "a group that had as many"])
def test_the_crowd_of_one_box_is_not_the_limit_of_another(earlier):
    """All boxes may have 100 processes, and a session holds 50 of them: there is no room for 58 more, far below the
    64 that the box itself may have. Whether an earlier box had 58 in the same group says nothing about that."""
    host = Host(processes_total=100)
    try:
        crowd = host.start(PYTHON, ["python3", "-Sc", HOLD], 64, 64)  # has a group before the others do
        assert wait_until(lambda: waits_for_signal(host))
        if earlier:
            assert refusal(host, earlier, 64) == 0
        os.kill(waits_for_signal(host), signal.SIGUSR1)
        assert wait_until(lambda: threads_below(host) >= 50)
        assert refusal(host, 58, 64) == CROWDED
        crowd.close()
        # Control: the group of all was full once, but now the limit is the box's own; that of a box whose group
        # has seen more processes too.
        assert wait_until(lambda: threads_below(host) == 0)
        assert refusal(host, 40, 64) == 0
        assert refusal(host, 40, 16) == PIDS
        assert refusal(host, 12, 16) == 0
    finally:
        assert host.close() == 0


HOLD = "import _thread, signal, time\ngo = []\nsignal.signal(10, lambda *a: go.append(1))\n" \
       "while not go: time.sleep(0.01)\nfor i in range(49): _thread.start_new_thread(time.sleep, (1000,))\ntime.sleep(1000)"


def status_of(host):
    """What the kernel tells of each program in a box."""
    for pid in descendants(host.pid):
        try:
            words = dict(line.split(":\t", 1) for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines())
        except OSError:
            continue
        if words["Name"] == "python3":
            yield words


def threads_below(host):
    return sum(int(words["Threads"]) for words in status_of(host))


def waits_for_signal(host):
    return next((int(words["Pid"]) for words in status_of(host)
                 if int(words["SigCgt"], 16) & 1 << signal.SIGUSR1 - 1), None)
