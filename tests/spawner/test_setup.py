# SPDX-License-Identifier: Apache-2.0
"""hermes-setup, the program that does for the spawner what precedes the seal."""
import errno
import pathlib
import shutil
import struct
import time

import pytest

import test_messages
from test_messages import SEAL, Spawner, host_root, setup_message, tree  # noqa: F401

EPOLL_WAITS = ("232", "281")  # epoll_wait and epoll_pwait, x86-64


def setups_of(pid):
    """Pids of the children of the spawner that are hermes-setup, dead ones that it has not reaped too."""
    found = []
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            stat = pathlib.Path(f"/proc/{child}/stat").read_text()
        except FileNotFoundError:  # it has ended since
            continue
        if "(hermes-setup)" in stat:
            found.append(int(child))
    return found


def waits_for(condition):
    deadline = time.time() + 20
    while not condition() and time.time() < deadline:
        time.sleep(0.01)
    return condition()


def test_it_ends_with_the_seal():
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(host_root("/usr/bin/id"))
    assert waits_for(lambda: setups_of(s.pid))  # the control: it was there
    assert s.seal() == 0
    assert waits_for(lambda: not setups_of(s.pid))
    assert s.close() == 0


def test_the_spawner_sleeps_while_its_table_is_filled():
    """hermes-prepare may need seconds for the root trees of all languages."""
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(host_root("/usr/bin/id"))

    def waits_without_end():
        words = pathlib.Path(f"/proc/{s.pid}/syscall").read_text().split()
        return words[0] in EPOLL_WAITS and int(words[4], 16) & 0xffffffff == 0xffffffff
    assert waits_for(waits_without_end)
    assert s.seal() == 0
    assert s.close() == 0


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """hermes-spawn in a directory without hermes-setup."""
    shutil.copy(test_messages.BUILD / "hermes-spawn", tmp_path)
    monkeypatch.setattr(test_messages, "BUILD", tmp_path)
    return tmp_path


@pytest.mark.parametrize("program", [None, "/bin/true"])
def test_without_it_nothing_is_sealed(alone, program):
    """A program that is missing, or that ends without an answer, is a failed start."""
    if program:
        shutil.copy(program, alone / "hermes-setup")
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(host_root("/usr/bin/id"))
    assert -s.seal() in ((errno.EIO, errno.EPIPE, errno.ECONNRESET) if program else (errno.ENOENT,))
    s.close()


def test_messages_before_the_set_up_start_nothing():
    for message in (host_root("/usr/bin/id"), struct.pack("=2I256s", test_messages.MOUNT, 0, b"/usr")):
        s = Spawner(seal=False)
        s.send(message)
        assert -s.seal() == errno.EINVAL
        assert not setups_of(s.pid)
        s.close()
