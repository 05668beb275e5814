# SPDX-License-Identifier: Apache-2.0
"""The group that holds all v2 control groups of a spawner with zygotes (src/spawn/cgroup.h): who may clone
into what is in it, and that it goes with its spawner. Runs on machines with v2 alone, too."""
import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

from apilib import Server, borrow_dir, children, descendants, is_zygote, return_dir, wait_until  # noqa: E402

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


def test_only_zygotes_may_clone_into_groups(server):
    """Their files belong to an id that no process has and no box knows."""
    spawner = server.child("hermes-spawn")
    group = own_group(spawner)
    assert group.name.startswith("hermes-")
    files = [group / "cgroup.procs", *group.glob("hermes-*/cgroup.procs")]
    owners = {(os.stat(file).st_uid, os.stat(file).st_gid) for file in files}
    assert len(files) > 2 and len(owners) == 1, owners
    owner = owners.pop()[0]
    known, uids = set(), set()
    for pid in descendants(spawner):
        try:
            uids |= set(pathlib.Path("/proc/%d/status" % pid).read_text().split("Uid:")[1].split("\n")[0].split())
            maps = [list(map(int, line.split())) for line in
                    pathlib.Path("/proc/%d/uid_map" % pid).read_text().splitlines()]
        except OSError:
            continue
        if any(first <= owner < first + count for _, first, count in maps if first):
            known.add(pid)
    assert known and all(map(is_zygote, known))
    assert str(owner) not in uids

    def can_write(uid):
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os._exit(not os.access(files[0], os.W_OK, effective_ids=True))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert can_write(owner)  # control
    assert not any(can_write(int(uid)) for uid in uids - {"0"})
    assert (os.stat(group).st_uid, os.stat(group / "cgroup.subtree_control").st_uid) == (0, 0)


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
