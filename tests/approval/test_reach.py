# SPDX-License-Identifier: Apache-2.0
"""hermes-reach with a server that was taken over: wrong calls are refused, and the next right one is made."""
import array
import fcntl
import os
import shutil
import socket
import struct
import subprocess

import pytest

from apilib import BUILD, borrow_dir, return_dir

REVIEWER, TARGETS = 0, 2
UNREACHABLE, REFUSED = 2, 4


def row(url):
    return struct.pack("1024s1024sII", url, b"a-key", 2000, 0)


def memfd(data, seal=True):
    fd = os.memfd_create("call", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    if seal:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def send(sock, data, *fds):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


@pytest.fixture
def calls():
    path = borrow_dir()
    program = shutil.copy(BUILD / "hermes-reach", path)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    table = memfd(row(b"http://127.0.0.1:1/") + row(b""))
    who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    no_leaks = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")  # nothing may look into its memory, for leaks either
    process = subprocess.Popen([program], pass_fds=[3], preexec_fn=lambda: os.dup2(theirs.fileno(), 3), env=no_leaks, **who)
    send(control, b"r", table, end.fileno())
    yield ours
    control.close()
    assert process.wait(10) == 0
    for sock in (theirs, ours, end):
        sock.close()
    os.close(table)
    return_dir(path)


def call(sock, body, target=REVIEWER, length=2):
    ours, theirs = socket.socketpair()
    send(sock, struct.pack("II", target, length), body, theirs.fileno())
    theirs.close()
    os.close(body)
    ours.settimeout(10)
    answer = ours.recv(16)
    ours.close()
    return struct.unpack("IIII", answer)[0] if answer else None


def test_wrong_calls_are_refused_and_nobody_waits(calls):
    reading, writing = os.pipe()  # nothing ever comes
    assert call(calls, reading) == REFUSED
    os.close(writing)
    assert call(calls, os.open("/dev/zero", os.O_RDONLY)) == REFUSED
    assert call(calls, memfd(b"{}", seal=False)) == REFUSED
    assert call(calls, memfd(b"{}"), length=3) == REFUSED
    for target in (TARGETS - 1, TARGETS, 1 << 31):  # without an address, and beyond the table
        assert call(calls, memfd(b"{}"), target) == REFUSED
    assert call(calls, memfd(b"{}")) == UNREACHABLE  # the control: this one was made


def test_packets_that_are_no_calls_end_nothing(calls):
    for data in (b"", b"x", b"x" * 100):
        for count in (0, 1, 2, 6):
            fds = [memfd(b"{}") for _ in range(count)]
            send(calls, data, *fds) if fds else calls.send(data)
            for fd in fds:
                os.close(fd)
    assert call(calls, memfd(b"{}")) == UNREACHABLE


def test_a_socket_whose_end_takes_long_holds_up_nothing(calls):
    """close() of a TCP socket with SO_LINGER waits for the other machine: as the answer, as the body, and as one descriptor too many."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        for place in (0, 1, 2, 60):
            sent = socket.create_connection(listener.getsockname())
            deaf = listener.accept()[0]
            sent.setblocking(False)
            try:
                while True:
                    sent.send(b"x" * 65536)
            except BlockingIOError:
                pass
            sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10000))
            fds = [memfd(b"{}") for _ in range(max(place, 1))]
            send(calls, struct.pack("II", REVIEWER, 2), *fds[:place], sent.fileno(), *fds[place:])
            for fd in fds:
                os.close(fd)
            sent.close()  # what is on its way keeps it open
            assert call(calls, memfd(b"{}")) == UNREACHABLE
            deaf.close()
