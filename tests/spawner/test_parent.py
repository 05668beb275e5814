# SPDX-License-Identifier: Apache-2.0
"""The spawner and its boxes end with the process that started it, wherever copies of the control socket and of the
sockets of boxes are: a server that was taken over can send them into the channel of a session, where nobody takes
them and they stay open."""
import array
import os
import signal
import socket
import threading

import pytest

from test_messages import STARTED, Live, Spawner, host_root, setup_message, tree  # noqa: F401
from apilib import Server, borrow_dir, descendants, is_box, return_dir, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups")
IDLE = "echo ready >&3; while :; do sleep 1000; done"


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def hide(spawner):
    """Starts a session and leaves every socket of the spawner's in flight, in the session's own channel."""
    live = Live(spawner, script=IDLE)
    assert live.event()[0] == STARTED
    assert live.channel.recv(100)
    fds = array.array("i", [spawner.control.fileno(), live.socket.fileno()])
    live.channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    for one in (live.socket, live.channel, spawner.control):
        one.close()


def start():
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(host_root("/usr/bin/bash"))
    assert s.seal() == 0
    return s


def parent(report, go, by_thread):
    """Starts a spawner, perhaps by a thread that ends at once, and lives on."""
    made = []
    if by_thread:
        thread = threading.Thread(target=lambda: made.append(start()))
        thread.start()
        thread.join()
    else:
        made.append(start())
    hide(made[0])
    os.write(report, b"%d\n" % made[0].pid)
    os.read(go, 1)


@pytest.mark.parametrize("by_thread", [False, True], ids=["started by the process", "started by a thread that ended"])
def test_the_end_of_the_parent_is_the_end_of_every_box(by_thread):
    said, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go[1])
            parent(said[1], go[0], by_thread)
        finally:
            os._exit(1)
    os.close(said[1])
    spawner = int(os.read(said[0], 100))
    boxes = [one for one in descendants(spawner) if is_box(one)]
    try:
        assert boxes
        # Control: nothing but the parent ends them. All sockets are closed, but for those in flight.
        assert not wait_until(lambda: not is_alive(spawner), 1)
        assert all(map(is_alive, boxes))
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(is_alive, [spawner, *boxes])))
    finally:
        os.waitpid(pid, 0)
        for one in (said[0], *go):
            os.close(one)
        if is_alive(spawner):
            os.kill(spawner, signal.SIGKILL)


@pytest.fixture
def served():
    path = borrow_dir()
    made = Server(path, env={"HERMES_SESSION_PARKED": "0"})
    yield made
    made.stop()
    return_dir(path)


def test_no_box_of_a_server_that_died_goes_on(served):
    """The next server has another spawner. The boxes of the old one end though the spawner is told by nobody: its
    control socket has one more holder, the monitor."""
    assert served("POST", "/v1/sessions", {"language": "bash"}).status == 201
    spawner = served.child("hermes-spawn")
    boxes = [pid for pid in descendants(spawner) if is_box(pid)]
    assert boxes
    os.kill(served.child("hermes-server"), signal.SIGKILL)
    assert wait_until(lambda: not any(map(is_alive, [spawner, *boxes])))
    assert wait_until(lambda: served.is_ready(), 30)
    assert wait_until(lambda: served.works(), 30)
    assert served.child("hermes-spawn") != spawner


def test_a_spawner_that_does_not_end_is_killed(served):
    """The monitor waits for it, but not for ever. What it leaves goes with the next start."""
    assert served("POST", "/v1/sessions", {"language": "bash"}).status == 201
    spawner = served.child("hermes-spawn")
    boxes = [pid for pid in descendants(spawner) if is_box(pid)]
    os.kill(spawner, signal.SIGSTOP)
    served.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: served.process.poll() is not None, 60)
    assert wait_until(lambda: not any(map(is_alive, [spawner, *boxes])))
    assert start().close() == 0
