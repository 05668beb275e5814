# SPDX-License-Identifier: Apache-2.0
"""Control groups that serve one box after another (src/cgroup/cgroup.h): what the next run may use, is
charged for and is told knows nothing of the one before, and a group in which a limit was reached is
never seen again."""
import os
import pathlib
import signal

import pytest

from apilib import (Server, borrow_dir, children, descendants, is_zygote, name_of, return_dir,
                    wait_until, wait_until_still)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="groups of a server are looked at as root")
MIB = 1 << 20


@pytest.fixture(scope="module")
def server():
    path = borrow_dir()
    made = Server(path)
    yield made
    assert made.stop() == 0
    return_dir(path)


def group_of(server, code, **spec):
    """The answer to a run, and the name of its group, as the host sees it while it runs."""
    spawner = server.child("hermes-spawn")
    run = server("POST", "/v1/runs", {
        "language": "bash", "async": True, "code": "sleep 0.5\n" + code, **spec}).json()
    found = set()

    def look():
        for pid in descendants(spawner):
            try:
                lines = pathlib.Path("/proc/%d/cgroup" % pid).read_text().split()
                words = pathlib.Path("/proc/%d/cmdline" % pid).read_text()
            except OSError:
                continue
            if "main.sh" in words:
                found.update(line.rsplit("/", 1)[1] for line in lines if "/hermes-" in line)
        return found
    assert wait_until(look, 10)
    assert wait_until(lambda: server("GET", "/v1/runs/" + run["id"]).json()["status"]
                      not in ("queued", "running"), 20)
    assert len(found) == 1
    return server("GET", "/v1/runs/" + run["id"]).json(), found.pop()


def can_serve_again():
    """The peak of a group can be set back."""
    return pathlib.Path("/sys/fs/cgroup/memory").is_dir() or tuple(
        int(n) for n in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 12)


@pytest.mark.skipif(not can_serve_again(), reason="cgroup v2 before Linux 6.12 cannot set a peak back")
def test_groups_serve_again(server):
    """Sixty runs take no sixty groups. (One after the other: the one that waited longest serves next.)"""
    spawner = server.child("hermes-spawn")

    def names():
        found = set()
        for entry in os.listdir("/proc/%d/fd" % spawner):
            try:
                found.add(os.readlink("/proc/%d/fd/%s" % (spawner, entry)).rsplit("/", 1)[-1])
            except OSError:
                pass
        return {name for name in found if name.startswith("hermes-")}
    assert wait_until_still(spawner)  # the versions of languages are asked for in boxes, too
    before, seen = names(), set()
    assert before
    for i in range(60):
        assert python(server, "print(%d)" % i, memory_mb=64 + i % 3)["stdout"] == "%d\n" % i
        seen |= names()
    assert len(seen - before) < 40, len(seen - before)  # on a busy machine some are not empty in time


LIMITS = {"memory_mb": 64, "processes": 8}
HOG = "x = bytearray(%d << 20)\n"


def python(server, code, **limits):
    return server.run("python", code, limits=dict(LIMITS, **limits)).json()


def test_every_run_has_its_own_limits(server):
    """Up and down: memory, processors, processes."""
    for size in (40, 300, 100, 700, 64, 512):
        assert python(server, HOG % (size - 20), memory_mb=size)["status"] == "ok", size
        assert python(server, HOG % (size + 20), memory_mb=size)["status"] == "memory_limit", size
    count = "import os, time\nn = 0\ntry:\n    while True:\n        if not os.fork(): time.sleep(9)\n" \
            "        n += 1\nexcept OSError: print(n)\n"
    for processes in (3, 12, 5):
        assert int(python(server, count, processes=processes)["stdout"]) == processes - 1


def test_what_one_has_used_the_next_is_not_charged_for(server):
    heavy = "import time\nx = bytearray(30 << 20)\nopen('/dev/shm/left', 'wb').write(x[:9 << 20])\n" \
            "while time.process_time() < 0.4: pass\n"
    for _ in range(3):
        before = python(server, heavy)
        assert before["status"] == "ok" and before["usage"]["cpu_ms"] >= 390
        assert before["usage"]["memory_peak_kb"] > 39 << 10
        after = python(server, "print(1)")
        assert after["stdout"] == "1\n" and after["limits_hit"] == []
        assert after["usage"]["cpu_ms"] < 200 and after["usage"]["memory_peak_kb"] < 20 << 10, after


def test_what_one_has_left_the_next_has_room_for(server):
    """Files, page cache and kernel memory go with the box, or the group does not serve again."""
    leave = "import os\nopen('/dev/shm/left', 'wb').write(bytes(24 << 20))\n" \
            "for i in range(500): os.mkdir('/tmp/%d' % i)\n" \
            "for root, _, names in os.walk('/usr/lib/python3'):\n" \
            "    for name in names: os.lstat(root + '/' + name)\n"
    for _ in range(4):
        assert python(server, leave)["status"] == "ok"
        assert python(server, HOG % 48)["status"] == "ok"
        assert python(server, HOG % 90)["status"] == "memory_limit"  # control


def test_limits_that_were_reached_are_not_told_to_the_next(server):
    bomb = "import os, time\nfor i in range(20):\n    try:\n        if not os.fork(): time.sleep(9)\n" \
           "    except OSError: print('full'); break\n"
    for _ in range(3):
        run = python(server, bomb)
        assert "processes" in run["limits_hit"] and "full" in run["stdout"], run
        assert python(server, "print(2)")["limits_hit"] == []
        run = python(server, HOG % 200)
        assert run["status"] == "memory_limit" and run["limits_hit"] == ["memory"], run
        run = python(server, "print(3)")
        assert (run["status"], run["limits_hit"], run["stdout"]) == ("ok", [], "3\n")


def test_a_group_in_which_a_limit_was_reached_does_not_serve_again(server):
    fork = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done 2>/dev/null; kill $(jobs -p)\n"
    used = set()
    for _ in range(3):
        run, name = group_of(server, fork, limits={"processes": 5})
        assert "processes" in run["limits_hit"], run
        assert name not in used
        used.add(name)


SPIN = "import time\nb = time.monotonic()\nwhile time.process_time() < 0.3: pass\nprint(time.monotonic() - b)\n"
AT_A_FIFTH = 0.3 / 0.2 - 0.2  # s; the quota is one of 0.1 s, and the first and the last may be quick


def test_cpu_quota_of_another_run_does_not_stay(server):
    """A fifth of a processor for one, a whole one for the next, which must not be slowed down."""
    slow = float(python(server, SPIN, cpus=0.2)["stdout"])
    quick = [float(python(server, SPIN, cpus=1)["stdout"]) for _ in range(3)]
    assert slow >= AT_A_FIFTH > min(quick), (slow, quick)


@pytest.fixture
def still(request):
    """A server with parked boxes whose zygotes are stopped: what is warm now was parked."""
    path = borrow_dir()
    made = Server(path, env={"HERMES_PARKED": "6"})
    spawner = made.child("hermes-spawn")
    stopped = []

    def stop():
        """When all are parked."""
        assert wait_until_still(spawner)
        assert sum(name_of(pid) == "hermes-init" for pid in descendants(spawner)) >= 6
        for pid in filter(is_zygote, children(spawner)):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
    made.hold = stop
    assert made.run("python", "1").status == 200
    yield made
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
    assert made.stop() == 0
    return_dir(path)


@pytest.mark.parametrize("limits, code, expected", [
    ({"memory_mb": 64}, "x = bytearray(40 << 20); print(1)", ("ok", "1\n", [])),
    ({"memory_mb": 64}, "x = bytearray(90 << 20); print(1)", ("memory_limit", "", ["memory"])),
    ({"memory_mb": 1000}, "x = bytearray(800 << 20); print(1)", ("ok", "1\n", [])),
    ({"cpu_ms": 300}, "while True: pass", ("time_limit", "", ["cpu"])),
    ({"file_size_mb": 1}, "try: open('f', 'wb', 0).write(bytes(2 << 20)); os\nexcept Exception as e: print(type(e))",
     None),
    ({"cpu_ms": 77000}, "import resource; print(resource.getrlimit(0)[1] == 78)", ("ok", "True\n", [])),
    ({"cpu_ms": 1500}, "import resource; print(resource.getrlimit(0)[1] == 3)", ("ok", "True\n", [])),
    ({"stack_mb": 3}, "import resource; print(resource.getrlimit(resource.RLIMIT_STACK)[1] >> 20)", ("ok", "3\n", [])),
    ({}, "import resource; print(resource.getrlimit(0)[1] != -1)", ("ok", "True\n", [])),
], ids=lambda v: str(v)[:30] if isinstance(v, dict) else "")
def test_a_parked_box_takes_the_limits_of_its_job(still, limits, code, expected):
    cold = still.run("python", code, limits=limits, env={"LC_COLD": "1"}).json()
    still.hold()
    run = still.run("python", code, limits=limits).json()
    assert (cold["isolation"]["start"], run["isolation"]["start"]) == ("cold", "warm")
    seen = [(r["status"], r["stdout"], r["limits_hit"]) for r in (run, cold)]
    assert seen[0] == seen[1]
    assert expected is None or seen[0] == expected


def test_a_parked_box_takes_a_share_of_a_processor(still):
    still.hold()
    slow, *quick = [still.run("python", SPIN, limits={"cpus": cpus}).json() for cpus in (0.2, 2, 2, 2)]
    assert {run["isolation"]["start"] for run in [slow, *quick]} == {"warm"}
    assert float(slow["stdout"]) >= AT_A_FIFTH > min(float(run["stdout"]) for run in quick)


@pytest.mark.parametrize("limits", [{"processes": 9}, {"open_files": 99}, {"stack_mb": 99}, {"disk_mb": 9}, {"memory_mb": 9}],
                         ids=str)
def test_what_a_parked_box_cannot_take_is_made_for_it(still, limits):
    still.hold()
    run = still.run("python", "print(1)", limits=limits).json()
    assert (run["stdout"], run["isolation"]["start"]) == ("1\n", "cold")


def test_nothing_is_left_of_a_server_that_ends(server):
    path = borrow_dir()
    made = Server(path)
    name = None
    try:
        name = group_of(made, "echo 1")[1]
        for _ in range(3):
            assert python(made, "print(1)")["status"] == "ok"
    finally:
        assert made.stop() == 0
        return_dir(path)
    left = [str(p) for p in pathlib.Path("/sys/fs/cgroup").rglob(name)]
    assert not left
