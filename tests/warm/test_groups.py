# SPDX-License-Identifier: Apache-2.0
"""The group that holds all v2 control groups of a spawner with zygotes (src/cgroup/cgroup.h): who may clone
into what is in it, and that it goes with its spawner. Runs on machines with v2 alone, too."""
import contextlib
import ctypes
import os
import pathlib
import signal
import sys

import pytest

from apilib import (Server, borrow_dir, children, descendants, is_zygote, return_dir,
                    wait_until)
from runlib import Groups

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="zygotes need root")


@pytest.fixture
def server():
    path = borrow_dir()
    made = Server(path)
    assert wait_until(lambda: made.run("python", "print(1)").json()["isolation"]["start"] == "warm", 20)
    yield made
    assert made.stop() == 0
    return_dir(path)


def own_group(spawner):
    """The v2 directory that holds all groups of a spawner's, by what its zygote is in."""
    zygote = next(filter(is_zygote, children(spawner)))
    path = pathlib.Path("/proc/%d/cgroup" % zygote).read_text().split("0::")[1].split("\n")[0]
    top = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
    return pathlib.Path(top + path).parent


def ids(pid):
    """Uid, gid, and the group ids of the host that its user namespace knows, as (first, end)."""
    status = pathlib.Path("/proc/%d/status" % pid).read_text()
    maps = [list(map(int, line.split())) for line in pathlib.Path("/proc/%d/gid_map" % pid).read_text().splitlines()]
    return (int(status.split("Uid:")[1].split()[1]), int(status.split("Gid:")[1].split()[1]),
            [(first, first + count) for _, first, count in maps])


def uid_of(pid):
    try:
        return ids(pid)[0]
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return -1


def test_only_zygotes_may_clone_into_groups(server):
    """By a group id that they alone have, and that no box knows."""
    spawner = server.child("hermes-spawn")
    group = own_group(spawner)
    assert group.name.startswith("hermes-")
    files = [group / "cgroup.procs", *group.glob("hermes-*/cgroup.procs")]
    stats = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # the group of a box that has just ended
            found = os.stat(file)
            stats.append((found.st_uid, found.st_gid, found.st_mode & 0o777))
    assert len(stats) > 2 and len(set(stats)) == 1, stats
    owner, gid, mode = stats.pop()
    assert (owner, mode) == (0, 0o664) and gid > 65535
    asleep = server("POST", "/v1/runs", {"language": "python", "async": True, "code": "import time; time.sleep(9)"})
    assert asleep.status == 202 and wait_until(
        lambda: any(uid_of(pid) > 65535 and not is_zygote(pid) for pid in descendants(spawner)), 20)
    zygotes = [ids(pid) for pid in children(spawner) if is_zygote(pid) and uid_of(pid) >= 0]
    assert zygotes and all(own == gid for _, own, _ in zygotes)
    others = {}

    def has_group(pid):
        others.pop(pid, None)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            uid, own, known = others[pid] = ids(pid)
            return own == gid or uid != 0 and any(first <= gid < end for first, end in known)
    for pid in descendants(spawner):
        if not is_zygote(pid):  # one that is being born, still by the zygote's code, loses it
            assert wait_until(lambda: not has_group(pid), 5), others[pid]
    assert any(uid > 65535 for uid, _, _ in others.values()), others
    assert server("DELETE", "/v1/runs/" + asleep.json()["id"]).status < 300

    def can_write(uid, gid):
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os._exit(not os.access(files[0], os.W_OK, effective_ids=True))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert can_write(zygotes[0][0], gid)  # control
    assert not any(can_write(uid, own) for uid, own, _ in others.values() if uid)
    assert not can_write(gid, 65534)
    assert {os.stat(group / name).st_gid for name in (".", "cgroup.subtree_control", "cgroup.kill")} == {0}


def test_root_without_power_over_files():
    """As in a container with the capabilities of docs/deploy.md: files of its own are all that it may write to."""
    groups = Groups("caps")  # one that is ours, as a container has: at the top nobody else may make any
    if groups.shared:
        pytest.skip("the tests share the top of the tree here")

    def drop():
        groups.join()
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
    path = borrow_dir()
    made = Server(path, before=drop)
    try:
        assert "0000000000000000" == "%016x" % (6 & int(pathlib.Path(
            "/proc/%d/status" % made.child("hermes-spawn")).read_text().split("CapEff:")[1].split()[0], 16))
        assert wait_until(lambda: made.run("python", "print(1)").json()["isolation"]["start"] == "warm", 20)
        own_group(made.child("hermes-spawn"))
        assert made.run("bash", "echo 1").json()["stdout"] == "1\n"
        assert made.run("python", "print(1)", env={"LC_COLD": "1"}).json()["isolation"]["start"] == "cold"
    finally:
        assert made.stop() == 0
        groups.remove()
        return_dir(path)


def test_the_group_of_a_spawner_goes_with_it(server):
    """Also when that was killed: the next one finds it."""
    first = own_group(server.child("hermes-spawn"))
    assert len(list(first.glob("hermes-*"))) > 1
    os.kill(server.child("hermes-spawn"), signal.SIGKILL)
    assert wait_until(lambda: not first.exists(), 20)
    assert wait_until(lambda: server.run("python", "print(1)").json()["isolation"]["start"] == "warm", 20)
    second = own_group(server.child("hermes-spawn"))
    assert second != first
    assert server.stop() == 0
    assert not second.exists()
