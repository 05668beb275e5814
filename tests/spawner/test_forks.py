# SPDX-License-Identifier: Apache-2.0
"""Forks asked for by a holder of the spawner's socket that was taken over: it gets copies of its own boxes, whose
processes do their part, and nothing more. (Real forks are in tests/sessions.)"""
import array
import errno
import os
import signal
import socket
import struct
import time

import pytest

from test_messages import (BOX_CHANNEL, ENDED, EVENT, EVENT_FAILED, EVENT_USAGE, EXITED, KILL, RESTART, STARTED, USAGE,
                           Live, box, shell, tree)  # noqa: F401
from machine import lacks_for_copies  # that module has put its directory on the path

BOX_FORKS = 16
FORK, PAUSE, RESUME = 7, 8, 9
FORKING = 7


class Forkable(Live):
    def __init__(self, spawner, flags=BOX_CHANNEL | BOX_FORKS):
        in_memory = 1 if flags & BOX_FORKS else 0  # the roots of the fixture
        self.script = Live.SCRIPT
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        ends = self.ends()
        spawner.send(box(root=in_memory, flags=flags), [theirs.fileno(), *ends])
        theirs.close()
        self.close_ends(ends)
        assert self.event()[0] == STARTED
        assert self.channel.recv(100)

    def is_alive(self):
        self.channel.sendall(b"echo yes >&3\n")
        return self.channel.recv(100) == b"yes\n"


def test_only_boxes_that_can_be_copied_use_a_root_in_memory(shell):
    """The kernel denies a user namespace, which a copy needs, to a box whose root is below the top of its mount."""
    for number, flags in ((0, BOX_CHANNEL | BOX_FORKS), (1, BOX_CHANNEL)):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        live = Live.__new__(Live)
        live.script = Live.SCRIPT
        ends = live.ends()
        shell.send(box(root=number, flags=flags), [theirs.fileno(), *ends])
        theirs.close()
        live.close_ends(ends)
        ours.settimeout(20)
        assert EVENT.unpack(ours.recv(4096))[0] == EVENT_FAILED
        ours.close()


class Fork:
    """The holder's side of a fork."""
    def __init__(self, original, swap=None):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(30)
        out, err = os.pipe(), os.pipe()
        channel, ours = socket.socketpair()
        fds = [theirs.fileno(), out[1], err[1], channel.fileno()]
        if swap:
            fds[swap[0]] = fds[swap[1]]
        original.command(FORK, fds)
        theirs.close()
        for fd in (*out, *err):
            os.close(fd)
        channel.close()
        ours.close()

    def event(self):
        """The next one, and the descriptor that came along."""
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4))
        fds = array.array("i", ancillary[0][2]) if ancillary else [None]
        return (EVENT.unpack(data) if data else None), fds[0]

    def hello(self):
        event, fd = self.event()
        if event[0] == EVENT_FAILED and event[3] == -errno.EOPNOTSUPP and lacks_for_copies():
            pytest.skip("this host cannot keep copies apart; it lacks " + ", ".join(lacks_for_copies()))
        assert event[0] == FORKING and fd is not None, event
        return socket.socket(fileno=fd)

    def failure(self):
        event, _ = self.event()
        assert event[0] == EVENT_FAILED, event
        return event[4], -event[3]


def test_a_box_that_was_not_made_for_it(shell):  # noqa: F811
    live = Forkable(shell, BOX_CHANNEL)
    assert Fork(live).failure()[1] == errno.EOPNOTSUPP
    assert live.is_alive()


@pytest.mark.parametrize("swap", [(0, 1), (1, 3), (2, 3), (3, 1), (3, 0)])
def test_other_descriptors(shell, swap):  # noqa: F811
    before = shell.held()
    live = Forkable(shell)
    Fork(live, swap)
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


def test_commands_for_forks_only(shell):  # noqa: F811
    for kind in (PAUSE, RESUME):
        live = Forkable(shell)
        live.command(kind)
        assert live.kinds() == [ENDED]


def say(hello, how):
    """A process that is no part of the box says hello; it must not be touched."""
    pid = os.fork()
    if pid == 0:
        try:
            how(hello)
        except OSError:  # the spawner had heard enough
            pass
        time.sleep(30)
        os._exit(0)
    return pid


HELLOS = {
    "plain": lambda s: s.send(b"h"),
    "with descriptors": lambda s: s.sendmsg([b"h"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]),
    "long": lambda s: s.send(b"h" * 1000),
    "empty": lambda s: s.send(b""),
    "twice": lambda s: (s.send(b"h"), s.send(b"r")),
    "pid of another": lambda s: s.sendmsg([b"h"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("3i", 1, 0, 0))]),
}


@pytest.mark.parametrize("how", HELLOS)
def test_hello_of_a_stranger(shell, how):  # noqa: F811
    before = shell.held()
    live = Forkable(shell)
    fork = Fork(live)
    hello = fork.hello()
    pid = say(hello, HELLOS[how])
    hello.close()
    try:
        assert fork.failure()[1] in (errno.EPERM, errno.EPROTO, errno.ESRCH)
        time.sleep(0.1)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        with open("/proc/%d/status" % pid) as file:
            assert "TracerPid:\t0\n" in file.read()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert live.is_alive()  # and not frozen
    live.command(KILL)
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


def test_nobody_says_hello(shell):  # noqa: F811
    before = shell.held()
    live = Forkable(shell)
    fork = Fork(live)
    fork.hello().close()
    assert fork.failure()[1] == errno.EPROTO
    fork = Fork(live)
    hello = fork.hello()
    fork.socket.close()  # the holder has lost interest
    assert live.is_alive()
    live.command(KILL)
    assert live.kinds() == [ENDED]
    hello.close()
    assert shell.settles_holding(before)


def test_the_original_ends_meanwhile(shell):  # noqa: F811
    before = shell.held()
    live = Forkable(shell)
    fork = Fork(live)
    hello = fork.hello()
    live.command(KILL)
    hello.close()
    assert fork.failure()[1]
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


def test_another_program_while_a_copy_of_the_old_one_is_made(shell):  # noqa: F811
    """The copy ends, and the box can be copied again: it has not lost count of its copies."""
    before = shell.held()
    live = Forkable(shell)
    fork = Fork(live)
    hello = fork.hello()
    live.channel.sendall(b"exit\n")
    assert live.event()[0] == EXITED
    ends = live.ends()
    live.command(RESTART, ends)
    live.close_ends(ends)
    assert live.event()[0] == STARTED
    assert live.channel.recv(100)
    hello.close()
    assert fork.failure()[1]
    assert live.is_alive()
    again = Fork(live)
    again.hello().close()
    assert again.failure()[1] == errno.EPROTO
    live.command(KILL)
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


def test_one_at_a_time(shell):  # noqa: F811
    before = shell.held()
    live, other = Forkable(shell), Forkable(shell)
    first = Fork(live)
    hello = first.hello()
    for fork in [Fork(live) for _ in range(40)]:
        assert fork.failure()[1] == errno.EBUSY
    other.command(USAGE)
    assert other.event()[0] == EVENT_USAGE
    assert other.is_alive() and live.is_alive()
    hello.close()
    assert first.failure()[1] == errno.EPROTO
    again = Fork(live)
    again.hello().close()
    assert again.failure()[1] == errno.EPROTO
    for one in (live, other):
        one.command(KILL)
        assert one.kinds() == [ENDED]
    assert shell.settles_holding(before)


def test_a_socket_that_is_full(shell):  # noqa: F811
    """The spawner does not wait for whoever asked."""
    live = Forkable(shell)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    try:
        while True:
            theirs.send(bytes(4096))
    except BlockingIOError:
        pass
    theirs.setblocking(True)
    out, (channel, end) = os.pipe(), socket.socketpair()
    live.command(FORK, [theirs.fileno(), out[1], out[1], channel.fileno()])
    assert live.is_alive()
    live.command(USAGE)
    assert live.event()[0] == EVENT_USAGE
    for fd in out:
        os.close(fd)
