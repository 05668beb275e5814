# SPDX-License-Identifier: Apache-2.0
"""The group of all boxes (processes) and the weights of owners (processors), asked for by a holder of the spawner's
socket that may have been taken over. Speaks the wire protocol by hand, as test_messages.py."""
import os
import random
import signal
import socket
import subprocess

import pytest

from test_messages import (BOX_CHANNEL, ENDED, EVENT_FAILED, EVENT_USAGE, EXITED, GOOD, KILL, STARTED, STOP, USAGE,
                           Live, Spawner, box, host_root, job, setup_message, tree)  # noqa: F401
from apilib import children, is_box, wait_until  # that module has put its directory on the path
from grouplib import group_of, read, weight

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="groups of boxes are looked at as root")


class Owned(Live):
    """A shell in a box of this owner."""
    def __init__(self, spawner, owner, processes=64):
        self.script = Live.SCRIPT
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        ends = self.ends()
        before = set(children(spawner.pid))
        spawner.send(box(flags=BOX_CHANNEL, owner=owner, limits=GOOD[:5] + (processes,) + GOOD[6:]),
                     [theirs.fileno(), *ends])
        theirs.close()
        self.close_ends(ends)
        assert self.event()[0] == STARTED
        assert self.channel.recv(100)
        self.pid = next(pid for pid in children(spawner.pid) if pid not in before and is_box(pid))  # its init

    def rest(self):
        self.command(USAGE, is_idle=1)
        assert self.event()[0] == EVENT_USAGE

    def work(self):
        self.command(USAGE)
        assert self.event()[0] == EVENT_USAGE

    def end(self):
        self.command(KILL)
        assert self.kinds()[-1] == ENDED


def start(processes_total):
    s = Spawner(seal=False)
    s.send(setup_message(processes_total=processes_total))
    s.send(host_root("/usr/bin/bash"))
    assert s.seal() == 0
    return s


@pytest.fixture
def many():
    s = start(2000)
    yield s
    assert s.close() == 0


def bomb(spawner, processes_total, boxes=3):
    """How many processes so many boxes of 64 have at most when each wants fifty."""
    lives = [Owned(spawner, i) for i in range(boxes)]
    top = group_of(lives[0].pid, "pids").parent
    for live in lives:
        live.channel.sendall(b"for i in {1..50}; do sleep 1000 & done 2>/dev/null\n")
    most = lambda: read(top, "pids.current")  # noqa: E731
    wait_until(lambda: most() >= min(processes_total, boxes * 51), 5)
    found = most(), read(top, "pids.max"), sum(read(leaf, "pids.current") for leaf in top.glob("hermes-*"))
    assert subprocess.run(["/bin/true"]).returncode == 0  # the host has pids
    for live in lives:
        live.command(KILL)
    assert all(live.kinds()[-1] == ENDED for live in lives)
    return found


def test_all_boxes_together_have_so_many_processes():
    s = start(80)
    now, limit, leaves = bomb(s, 80)
    assert now <= 80 and limit == 80 and leaves <= 80, (now, limit, leaves)
    assert s.close() == 0


def test_control_a_larger_total_lets_them(many):
    now, limit, leaves = bomb(many, 2000)
    assert now >= 150 and limit == 2000, (now, leaves)


def test_a_total_that_cannot_be_set_is_told():
    """No seal, and so no box."""
    s = Spawner(seal=False)
    s.send(setup_message(processes_total=0xFFFFFFFF))  # more than the kernel takes
    s.send(host_root("/usr/bin/bash"))
    s.send(b"\4\0\0\0")
    answer = s.control.recv(4096)
    assert int.from_bytes(answer[4:8], "little", signed=True) < 0
    assert b"processes_total" in answer
    assert s.close() == 0


def test_the_group_goes_with_its_spawner_in_every_tree():
    """Also what a killed one left, with what is alive in it."""
    def places(pid):
        return {group_of(pid, name).parent for name in ("pids", "cpu", "memory", "unified")}
    s = start(100)
    live = Owned(s, 1)
    first = places(live.pid)
    assert all(place.name.startswith("hermes-") and place.exists() for place in first)
    live.end()
    assert s.close() == 0
    assert not any(place.exists() for place in first)
    s = start(100)
    live = Owned(s, 1)
    second = places(live.pid)
    os.kill(s.pid, signal.SIGKILL)
    s.close()
    assert all(place.exists() for place in second)
    assert start(100).close() == 0
    assert wait_until(lambda: not any(place.exists() for place in second), 10)


def test_one_box_of_a_command_line_has_no_group_around_it():
    s = start(0)
    live = Owned(s, 0)
    assert not group_of(live.pid, "pids").parent.name.startswith("hermes-")
    live.end()
    assert s.close() == 0


def test_owners_share_and_not_boxes(many):
    """The first has four boxes, the second one: half and half."""
    alone = [Owned(many, 7) for _ in range(4)]
    assert [weight(live.pid) for live in alone] == [1] * 4  # nobody else is there
    other = Owned(many, 8)
    assert weight(other.pid) == 1
    assert wait_until(lambda: abs(sum(weight(live.pid) for live in alone) - 1) < 0.3)
    assert len({weight(live.pid) for live in alone}) == 1
    other.end()
    assert wait_until(lambda: all(weight(live.pid) == 1 for live in alone))
    for live in alone:
        live.end()


def test_idle_boxes_share_a_little(many):
    lives = [Owned(many, 7) for _ in range(5)]
    for live in lives[:4]:
        live.rest()
    assert wait_until(lambda: sum(weight(live.pid) for live in lives[:4]) < 1 / 50)
    assert weight(lives[4].pid) == 1
    lives[0].work()  # at once
    assert weight(lives[0].pid) == 1
    lives[1].command(STOP)  # whatever is asked of a box it does at full weight
    assert lives[1].event()[0] == EXITED
    assert weight(lives[1].pid) == 1
    assert wait_until(lambda: weight(lives[1].pid) < 1 / 50)  # it has no program any more
    lives[0].rest()
    lives[0].work()  # execs that follow each other
    assert not wait_until(lambda: weight(lives[0].pid) < 1, 0.5)
    for live in lives:
        live.end()


def test_hostile_owners_do_no_harm(many):
    """Every number is one like another: they are compared, never looked up by."""
    rng = random.Random(20261116)
    before = many.held()
    numbers = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 4096, 4097, *(rng.getrandbits(32) for _ in range(9))]
    lives = [Owned(many, number) for number in numbers]
    for _ in range(400):
        live = rng.choice(lives)
        live.command(USAGE, is_idle=rng.choice([0, 1, 0xFFFFFFFF]))
        assert live.event()[0] == EVENT_USAGE
    assert wait_until(lambda: all(0 < weight(live.pid) <= 1 for live in lives))
    rng.shuffle(lives)
    for live in lives:
        live.end()
    assert many.settles_holding(before)
    last = Owned(many, 5)
    assert weight(last.pid) == 1
    last.end()


def test_a_box_that_cannot_fork_for_want_of_processes_fails_as_unavailable():
    """Others have them all: its own init gets no process for the program."""
    s = start(12)
    taker = Owned(s, 1)
    taker.channel.sendall(b"for i in {1..12}; do sleep 1000 & done 2>/dev/null\n")
    top = group_of(taker.pid, "pids").parent
    assert wait_until(lambda: read(top, "pids.current") >= 12)
    out, err = os.pipe(), os.pipe()
    fd = job(["/usr/bin/bash", "-c", "true"])
    events = s.ask(box(owner=2), [fd, out[1], err[1]])
    assert [e[0] for e in events] == [EVENT_FAILED], events
    assert events[0][3] == -11  # EAGAIN: 503
    for end in (*out, *err, fd):
        os.close(end)
    taker.end()
    assert s.close() == 0


def test_a_box_that_nobody_waits_for_weighs_little(many):
    """SPAWN_OWNER_IDLE, from its start on; the control has any other owner."""
    idle, other = Owned(many, 0xFFFFFFFF), Owned(many, 7)
    assert wait_until(lambda: weight(idle.pid) < 0.05)
    assert weight(other.pid) == 1
    idle.end()
    other.end()
