# SPDX-License-Identifier: Apache-2.0
"""Zygotes that answer late, or whose answer is heard late: every box that they have made is used or ended, and none
stays as a dead process that counts against the processes of the machine."""
import contextlib
import ctypes
import os
import pathlib
import signal
import threading
import time

import pytest

from apilib import Server, borrow_dir, children, is_box, is_zygote, name_of, return_dir, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="zygotes need root")
ANSWER_S = 1.0  # src/spawn/zygote.c


@pytest.fixture(scope="module")
def server():
    path = borrow_dir()
    made = Server(path, env={"HERMES_PARKED": "0", "HERMES_SESSION_PARKED": "0"})
    yield made
    assert made.stop() == 0
    return_dir(path)


def state_of(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def zygotes(spawner):
    return [pid for pid in children(spawner) if is_zygote(pid)]


def hold(pids, sign):
    for pid in pids:
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            pass
    if sign == signal.SIGSTOP:
        assert wait_until(lambda: all(state_of(pid) in ("T", "Z", None) for pid in pids))




class Run(threading.Thread):
    def __init__(self, server):
        super().__init__()
        self.server, self.answer = server, None
        self.start()

    def run(self):
        self.answer = self.server.run("python", "print(1)").json()

    def result(self):
        self.join()
        assert self.answer["stdout"] == "1\n", self.answer
        return self.answer["isolation"]["start"]


def nothing_is_left(spawner):
    """Waits until the spawner has no box and no zombie left. Returns whether that came true."""
    return wait_until(lambda: not any(state_of(pid) == "Z" or is_box(pid) for pid in children(spawner)), 20)


def warm(server, spawner):
    assert wait_until(lambda: server.run("python", "1").json()["isolation"]["start"] == "warm", 30)
    assert nothing_is_left(spawner)


def test_a_spawner_that_was_held_up_hears_the_answer_first(server):
    """It does not give up a zygote whose answer is there. Control: the same with a zygote that has not answered."""
    spawner = server.child("hermes-spawn")
    starts = {}
    for answers in (True, False):
        warm(server, spawner)
        held = zygotes(spawner)
        hold(held, signal.SIGSTOP)
        run = Run(server)
        assert wait_until(lambda: server.running() > 0)
        time.sleep(0.2)  # the spawner has asked
        hold([spawner], signal.SIGSTOP)
        if answers:
            hold(held, signal.SIGCONT)
        time.sleep(ANSWER_S * 1.3)
        hold([spawner], signal.SIGCONT)
        starts[answers] = run.result()
        hold(held, signal.SIGCONT)
        assert nothing_is_left(spawner), [(p, state_of(p)) for p in children(spawner)]
    assert starts == {True: "warm", False: "cold"}


def test_what_a_zygote_makes_after_it_was_given_up_is_ended(server):
    """The zygote makes the box while the spawner, which starts it cold, is on its way."""
    spawner = server.child("hermes-spawn")
    for pause in (0.0, 0.001, 0.003, 0.01, 0.03):
        warm(server, spawner)
        held = zygotes(spawner)
        hold(held, signal.SIGSTOP)
        run = Run(server)
        time.sleep(ANSWER_S + pause)
        hold(held, signal.SIGCONT)
        run.result()
        assert nothing_is_left(spawner), [(p, state_of(p)) for p in children(spawner)]


def test_a_zygote_that_dies_with_boxes_in_the_making_leaves_none(server):
    """Nobody tells the spawner of a box whose zygote dies before it answers."""
    spawner = server.child("hermes-spawn")
    for pause in (0.0, 0.0005, 0.001, 0.002):
        warm(server, spawner)
        held = zygotes(spawner)
        hold(held, signal.SIGSTOP)
        runs = [Run(server) for _ in range(2)]
        assert wait_until(lambda: server.running() > 0)
        time.sleep(0.2)  # the spawner has asked
        hold(held, signal.SIGCONT)
        time.sleep(pause)
        hold(held, signal.SIGKILL)
        for run in runs:
            run.result()
        assert nothing_is_left(spawner), [(p, state_of(p)) for p in children(spawner)]


PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT, TRACE_EXIT, EVENT_EXIT = 7, 0x4206, 0x4207, 1 << 6, 6


def trace(request, pid, data=0):
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return call(request, pid, None, data) >= 0


@contextlib.contextmanager
def undead(pids):
    """Holds processes by ptrace. One that is killed goes to the first step of its end and stays there: a stand-in for a
    process that the kernel takes long to remove. Yields a function that lists those that were killed."""
    killed = []

    def look():
        for pid in set(pids) - set(killed):
            if os.waitpid(pid, os.WNOHANG | 0x40000000)[1] >> 8 == signal.SIGTRAP | EVENT_EXIT << 8:  # __WALL
                killed.append(pid)
        return killed
    try:
        for pid in pids:
            assert trace(PTRACE_SEIZE, pid, TRACE_EXIT) and trace(PTRACE_INTERRUPT, pid)
        assert wait_until(lambda: all(state_of(pid) == "t" for pid in pids))
        yield look
    finally:
        look()
        for pid in pids:
            trace(PTRACE_CONT, pid)
            if pid in killed:
                os.waitpid(pid, 0x40000000)


def networks(spawner):
    return [pid for pid in children(spawner) if name_of(pid) == "hermes-network"]


@pytest.mark.parametrize("find, language, code", [(zygotes, "python", "print(1)"), (networks, "bash", "echo 1")])
def test_no_run_waits_for_the_end_of_a_child_that_was_given_up(server, find, language, code):
    spawner = server.child("hermes-spawn")
    warm(server, spawner)
    with undead(find(spawner)) as killed:
        while not killed():
            assert server.run(language, code).json()["stdout"] == "1\n"
        for _ in range(3):
            assert server.run(language, code).json()["stdout"] == "1\n"
        assert all(state_of(pid) == "t" for pid in killed())
    assert nothing_is_left(spawner), [(p, state_of(p)) for p in children(spawner)]
