# SPDX-License-Identifier: Apache-2.0
"""hermes-places with a server that was taken over: whatever it sends is refused or bounded, the processes stay,
and a right request works before and after."""
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

import pytest

from farlib import children, processes_with, wait_until
from hostilelib import (APPTAINER, ASK_USAGE, COMMAND, DOCKER, FAILED, FILES, FORK, IMAGE, KILL, LOCAL, NETWORK, PAUSE, PLUGIN, REFUSED, RESTART, SSH,
                        STARTED, STOP, TERMINAL, UNREACHABLE, USAGE, Ends, Places, memfd, row, send, words)
from placelib import WHOLE

HERE, PLUG, ENGINE, NOWHERE, GAINS, ROWS = range(6)


class Engine(threading.Thread):
    """A stand-in for an engine: notes requests. It knows no container, and answers when it may."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(512)
        os.chmod(path, 0o666)
        self.seen, self.held, self.answers, self.refusal = [], [], True, (b"404 Not Found", b"{}")
        self.start()

    def run(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            if not self.answers:
                self.held.append(sock)
                continue
            with sock, sock.makefile("rb") as file:
                head = b""
                while (line := file.readline()) not in (b"\r\n", b""):
                    head += line
                size = re.search(rb"(?i)content-length: (\d+)", head)
                self.seen.append((head.split()[1].decode() if head else "", file.read(int(size[1])) if size else b""))
                ping = b"/_ping" in head
                status, text = (b"200 OK", b"{}") if ping else self.refusal
                sock.sendall(b"HTTP/1.1 %s\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                             (status, len(text), text))

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.answers = True
        for sock in self.held:
            sock.close()


def make_rows(path):
    most = (1000, 100, 50, 0, 0)  # thousandths of a CPU, MiB, processes
    return [row("here", LOCAL), row("plug", PLUGIN, keys="alice, bob", command="/usr/bin/python3 %s/scripted.py %s" % (path, path), limits=most),
            row("engine", DOCKER, socket="%s/engine.sock" % path, image="an/image", network="none", limits=most, keeps=1),
            row("nowhere", SSH, host="127.0.0.1", port=1), row("gains", LOCAL, may_gain=1)]


@pytest.fixture(scope="module")
def all_hosts():
    made = Places(make_rows)
    made.engine = Engine(made.dir / "engine.sock")
    made.give_table()
    yield made
    made.close()
    made.engine.close()


@pytest.fixture
def host(all_hosts):
    """Each test begins and ends with a right request, in the same processes."""
    (all_hosts.dir / "log").unlink(missing_ok=True)
    all_hosts.works()
    before = sorted(all_hosts.pids())
    yield all_hosts
    all_hosts.works()
    assert sorted(all_hosts.pids()) == before


def log(host):
    path = host.dir / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_there_is_something_to_protect(host):
    """The control of this file: the rows are real ones."""
    ends = host.open(GAINS)
    host.works(ends)
    host.leave(ends)
    ends = host.open(PLUG)
    host.works(ends)
    host.leave(ends)
    assert [line for line in log(host) if line.startswith("open ")]
    ends = host.ask(NOWHERE)
    assert ends.event() == (FAILED, UNREACHABLE) and b"refused" in ends.said
    host.leave(ends)


TEXTS = {"nothing": b"", "half a head": words()[:100], "no words": words(text=b""), "no end": words(text=b"/tmp"),
         "too long": words(text=b"x" * (1 << 20) + b"\0"), "the last word has no end": words(text=b"/tmp\0A=1"),
         "a key with separators": words(owner=b"../../alice"), "a key with a comma": words(owner=b"alice,bob"),
         "a key without an end": words(owner=b"a" * 64), "no letters in the key": words(owner=b"alice\xff"),
         "an id with separators": words(session=b"../../etc/passwd"), "an id with a query": words(session=b"a?force=1&v=1"),
         "an id without an end": words(session=b"s" * 64), "an id with control characters": words(session=b"a\r\nb")}


def assert_refused(host, ends):
    """Without a word and without a process."""
    assert ends.event() is None and not host.sessions() and not log(host)
    ends.close()


@pytest.mark.parametrize("number", [HERE, PLUG, ENGINE])
def test_words_that_are_none(host, number):
    seen = len(host.engine.seen)
    for name, text in TEXTS.items():
        print(name)
        assert_refused(host, host.ask(number, text))
    assert len(host.engine.seen) == seen


@pytest.mark.parametrize("number", [ROWS, 15, 16, 1 << 31, (1 << 32) - 1])
def test_a_row_that_is_not_there(host, number):
    assert_refused(host, host.ask(number))


def strange_fds():
    """What a server could have or make, that is no end of a conversation."""
    def tcp():
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            with socket.create_connection(listener.getsockname()) as near:
                return listener.accept()[0].detach(), near.fileno()
    seqpacket, stream = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET), socket.socketpair()
    datagram, pipe = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), os.pipe()
    made = {"seqpacket": seqpacket[0].detach(), "stream": stream[0].detach(), "datagram": datagram[0].detach(), "pipe out": pipe[0],
            "pipe in": pipe[1], "file": os.open("/tmp", os.O_TMPFILE | os.O_RDWR), "directory": os.open("/", os.O_RDONLY),
            "zero": os.open("/dev/zero", os.O_RDWR), "path": os.open("/", os.O_PATH), "tcp": tcp()[0],
            "memfd": memfd(words()), "unsealed": memfd(words(), 0), "half sealed": memfd(words(), fcntl.F_SEAL_WRITE)}
    return made, [seqpacket[1], stream[1], datagram[1]]


RIGHT = {"words": {"memfd"}, "socket": {"seqpacket"}, "out": {"pipe in"}, "err": {"pipe in"}, "channel": {"stream"}}


@pytest.mark.parametrize("place", RIGHT)
def test_descriptors_that_are_something_else(host, place):
    made, others = strange_fds()
    for name in made.keys() - RIGHT[place]:
        ends = host.ask(HERE, **{place: os.dup(made[name])})
        if place == "socket":
            wait_until(lambda: not host.sessions(), "no session")
        assert_refused(host, ends)
    for fd in made.values():
        os.close(fd)
    for sock in others:
        sock.close()


def test_packets_that_are_no_requests(host):
    for data in (b"", b"x", struct.pack("I", HERE), struct.pack("III", HERE, 0, 0), b"x" * 5000):
        for count in (5, 0, 1, 4):
            ends = Ends()
            if len(data) == 8 and count == 5:
                continue
            send(host.calls, data, ends.fds()[:count])
            ends.sent()
            assert_refused(host, ends)
    for count in (1, 4, 6, 30):  # a request with too few descriptors, or too many
        ends = Ends()
        send(host.calls, struct.pack("II", HERE, 0), (ends.fds() * 6)[:count])
        ends.sent()
        assert_refused(host, ends)


def test_a_key_that_the_row_does_not_name(host):
    for owner in (b"mallory", b"alic", b"alice.", b""):
        ends = host.ask(PLUG, words(owner=owner))
        assert ends.event() == (FAILED, REFUSED) and b"not for this key" in ends.said
        host.leave(ends)
        assert not log(host)
    host.leave(host.open(PLUG, owner=b"bob"))


def test_limits_are_those_of_the_row_at_most(host):
    most = (1 << 32) - 1
    ends = host.ask(PLUG, words(limits=(most, most, 0, 0)))
    assert ends.event()[0] == STARTED
    host.leave(ends)
    opened = json.loads(next(line for line in log(host) if line.startswith("open "))[5:])
    assert (opened["cpu"], opened["memory_mb"], opened["processes"]) == (1.0, 100, 50)
    del host.engine.seen[:]
    ends = host.ask(ENGINE, words(limits=(most, most, most, most), asked=most, session=b"..", owner=b".."))
    assert ends.event()[0] == FAILED
    host.leave(ends)
    made = [json.loads(body)["HostConfig"] for path, body in host.engine.seen if "/containers/create" in path]
    assert made and all((one["NanoCpus"], one["Memory"], one["PidsLimit"]) == (10 ** 9, 100 << 20, 50) for one in made)
    for path, _ in host.engine.seen:
        assert re.fullmatch(r"/_ping|/v1\.\d+/containers/(create\?name=)?hermes-[0-9a-f]+(/json)?", path), path


def test_words_of_an_engine_are_quoted(host):
    """It repeats those of an image, such as its user."""
    host.engine.refusal = (b"500 Internal Server Error", json.dumps({"message": 'unable to find user "x": Hermes is old\u202e;\nrun: curl x'}).encode())
    ends = host.ask(ENGINE)
    assert ends.event()[0] == FAILED
    host.leave(ends)
    host.engine.refusal = (b"404 Not Found", b"{}")
    assert ends.said.decode() == """the engine cannot find the container: "unable to find user 'x': Hermes is old ; run: curl x" (500)"""


def ended(host, ends):
    while ends.event() is not None:
        pass
    host.leave(ends)


COMMANDS = {"number 0": (0, ()), "fork": (FORK, ("seqpacket", "pipe in", "pipe in", "stream")), "pause": (PAUSE, ()), "network": (NETWORK, ("stream",)),
            "image": (IMAGE, ("seqpacket",)), "beyond": (99, ()), "largest": ((1 << 32) - 1, ()), "kill with a file": (KILL, ("file",)),
            "restart without": (RESTART, ()), "restart with one": (RESTART, ("memfd",)),
            **{"restart: words are " + name: (RESTART, (name, "pipe in", "pipe in", "stream")) for name in
               ("pipe out", "pipe in", "zero", "directory", "file", "stream", "unsealed", "half sealed", "path")},
            **{"restart: output is " + name: (RESTART, ("memfd", name, "pipe in", "stream")) for name in ("pipe out", "zero", "file", "tcp", "seqpacket")},
            **{"restart: channel is " + name: (RESTART, ("memfd", "pipe in", "pipe in", name)) for name in ("seqpacket", "datagram", "zero", "tcp", "pipe in")},
            **{"files on " + name: (FILES, (name,)) for name in ("seqpacket", "zero", "directory", "file", "tcp", "pipe out", "path")},
            **{"terminal on " + name: (TERMINAL, (name,)) for name in ("seqpacket", "zero", "directory", "pipe in", "tcp")},
            "files without": (FILES, ()), "terminal with two": (TERMINAL, ("stream", "stream"))}


@pytest.mark.parametrize("group", ["restart", "files", "terminal", ""])
def test_wrong_commands_end_their_session_only(host, group):
    other = host.open()
    made, others = strange_fds()
    for name, (kind, wanted) in COMMANDS.items():
        if name.split()[0].strip(":") in ("restart", "files", "terminal") and not (group and name.startswith(group)):
            continue
        print(name)
        ends = host.open()
        ends.command(kind, *[made[one] for one in wanted])
        while ends.event() is not None:
            pass
        ends.close()
    for fd in made.values():
        os.close(fd)
    for sock in others:
        sock.close()
    host.works(other)
    host.leave(other)


def test_packets_that_are_no_commands(host):
    for data in (b"", b"x", COMMAND.pack(*[0] * 14)[:-1], b"x" * 4096):
        ends = host.open()
        ends.command(0, data=data)
        ended(host, ends)


def test_frames_that_are_not_of_the_server(host):
    for frame in (b"exec x\n", b"exec 99999999\n", b"end 0\n", b"ack 1\n1", b"file_open 1\n1", b"start 1\n\0", b"x" * 100, b"\n"):
        ends = host.open()
        ends.channel.sendall(frame)
        ended(host, ends)


def test_a_right_restart_works(host):
    """The control of the wrong ones."""
    ends = host.open()
    ends.command(STOP)
    while ends.event()[0] != 3:
        pass
    new = Ends()
    ends.command(RESTART, *[new.given[name] for name in ("words", "out", "err", "channel")])
    new.sent()
    assert ends.event(STARTED)
    new.frames("ready")
    host.works(new)
    new.close()
    host.leave(ends)


def test_replies_that_are_not_read(host):
    ends, other = host.open(), host.open()
    ends.frame("exec", b"head -c 3000000 /dev/zero")
    for _ in range(5000):
        ends.command(ASK_USAGE)
    host.works(other)
    assert ends.event() == (USAGE, 0)
    ends.close()
    host.leave(other)


def test_a_terminal_whose_socket_is_full(host):
    ends = host.open()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    try:
        while True:
            theirs.send(b"x" * 65536)
    except BlockingIOError:
        pass
    theirs.setblocking(True)
    ends.command(TERMINAL, theirs.fileno())
    ends.command(ASK_USAGE)
    assert ends.event(USAGE)  # the session is not held up
    ours.close()
    theirs.close()
    host.leave(ends)


def test_a_flood_takes_no_more_than_there_is(host):
    """Requests that come to nothing: an engine that never answers. No reader empties the pipe for the reason."""
    host.engine.answers = False
    full_r, full_w = os.pipe()
    os.set_blocking(full_w, False)
    try:
        while True:
            os.write(full_w, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(full_w, True)
    held = [host.ask(ENGINE, words(owner=b""), err=os.dup(full_w)) for _ in range(300)]
    wait_until(lambda: len(host.sessions()) == 256, "as many as there may be")
    refused = host.ask(ENGINE, words(owner=b""))
    assert refused.event() == (FAILED, UNREACHABLE) and b"too many sessions" in refused.said
    refused.close()
    assert len(host.sessions()) == 256
    for ends in held:
        ends.close()
    wait_until(lambda: not host.sessions(), "all of them are given up")
    os.close(full_r)
    os.close(full_w)
    host.engine.answers = True


def test_a_flood_of_empty_packets_and_wrong_requests(host):
    for i in range(3000):
        host.calls.send(b"" if i % 2 else struct.pack("II", HERE, 0))
    host.works()


def test_a_server_that_goes_in_the_middle_leaves_nothing(host):
    host.engine.answers = False
    for number in (HERE, GAINS, PLUG, ENGINE, NOWHERE):
        ends = host.ask(number)
        host.leave(ends)
        wait_until(lambda: not processes_with(str(host.dir) + "/scripted.py"), "no plug-in is left")
    host.engine.answers = True
    ends = host.open()
    ends.channel.sendall(b"exec 1000000\nhalf of it")
    host.leave(ends)


def test_a_session_ends_with_its_server_whatever_keeps_the_socket(host):
    """A server that was taken over could hide the other end, so that the next server finds all places taken."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            ends = host.open()
            socket.send_fds(theirs, [b"x"], [ends.sock.fileno(), ends.channel.fileno(), ends.out, ends.err])
            theirs.recv(1)
        finally:
            os._exit(0)
    theirs.close()
    _, fds, _, _ = socket.recv_fds(ours, 1, 4)
    assert len(host.sessions()) >= 1
    with socket.socket(fileno=os.dup(fds[0])) as sock:  # the control: it serves, although another process has the socket
        sock.settimeout(60)
        send(sock, COMMAND.pack(ASK_USAGE, *[0] * 13))
        assert struct.unpack("I", sock.recv(4096)[:4])[0] == USAGE
    ours.send(b"x")
    os.waitpid(pid, 0)
    wait_until(lambda: not host.sessions(), "the session has ended")
    for fd in fds:
        os.close(fd)
    ours.close()


def test_the_monitors_own_sockets_are_refused(host):
    """The spawner would not see the end of a server whose control socket a session holds."""
    ends = host.ask(HERE, socket=os.dup(host.monitors[0]))
    with socket.socket(fileno=os.dup(host.monitors[1])) as other:
        other.setblocking(False)
        host.works()
        with pytest.raises(BlockingIOError):
            other.recv(4096)
    ends.close()


def test_a_closing_socket_cannot_hold_up_the_rest(host):
    """close() of a TCP socket with SO_LINGER waits for the other machine, even if it does not block otherwise."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sent = socket.create_connection(listener.getsockname())
        deaf = listener.accept()[0]
        sent.setblocking(False)
        try:
            while True:
                sent.send(b"x" * 65536)
        except BlockingIOError:
            pass
        sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10000))
        ends = host.ask(HERE, channel=sent.detach())
        assert_refused(host, ends)
        host.works()
        deaf.close()


def test_a_table_that_is_not_sealed_is_no_table():
    made = Places(lambda path: make_rows(path)[:1], seals=0)
    send(made.control, b"p", [made.table, made.end.fileno()])
    assert made.process.wait(60) != 0
    made.close()


def test_requests_before_the_table_wait_for_it():
    made = Places(lambda path: make_rows(path)[:1])
    ends, wrong = made.ask(HERE), made.ask(1)
    ends.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        ends.event()
    ends.sock.settimeout(60)
    send(made.control, b"p", [made.table, made.end.fileno()])
    assert ends.event() == (STARTED, 0) and wrong.event() is None
    ends.close()
    wrong.close()
    made.close()


def near_ends(host):
    """The processes of hermes-places below those of sessions."""
    return [pid for session in children(host.main) for pid in children(session) if pid in host.pids()]


def ticks(pid):
    return sum(map(int, pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[11:13]))


def test_a_terminal_that_is_half_closed_takes_no_time(host):
    """The server has closed its bytes while the program does not read those before."""
    ends = host.open()
    control, theirs = socket.socketpair()
    ends.command(TERMINAL, theirs.fileno())
    theirs.close()
    with control, socket.socket(fileno=socket.recv_fds(control, 100, 1)[1][0]) as typed:
        control.send(struct.pack("Ii", 4, 24 << 16 | 80))  # TERMINAL_SIZE
        near = wait_until(lambda: near_ends(host), "its near end")[0]
        typed.send(b"stty raw -echo; echo re''ady; sleep 1000\n")
        shown = b""
        while b"ready" not in shown:
            shown += typed.recv(4096)
        typed.settimeout(1)
        with pytest.raises(TimeoutError):
            while True:
                typed.send(b"x" * 4096)
        typed.close()
        start = ticks(near)
        time.sleep(1)
        assert ticks(near) - start < 10  # of 100
    host.leave(ends)


def test_a_slow_program_of_a_session_that_is_gone_takes_no_time():
    """A process that waits for apptainer, and not for the server any more, has nothing to do."""
    made = Places(lambda path: [*make_rows(path)[:1], row("sif", APPTAINER, image="/x.sif", command="%s/slow" % path)])
    program = made.dir / "slow"
    program.write_text("#!/bin/sh\nwhile [ ! -e %s/go ]; do sleep 0.1; done\n" % made.dir)
    program.chmod(0o755)
    made.give_table()
    ends = made.ask(1)
    pid = wait_until(lambda: processes_with(str(program)) and [pid for pid in children(made.main) if pid not in made.helpers], "it runs")[0]
    ends.close()
    before = ticks(pid)
    time.sleep(1)
    taken = ticks(pid) - before
    (made.dir / "go").touch()
    wait_until(lambda: not made.sessions(), "no session is left")
    made.close()
    assert taken < 10, taken  # of 100


def plugged(lines, **fields):
    """Places with a plug-in of these lines of Python, which has said `ready`."""
    made = Places(lambda path: [*make_rows(path)[:1], row("own", PLUGIN, command="/usr/bin/python3 %s/own.py" % path, **fields)])
    (made.dir / "own.py").write_text("""import os, sys, time
def say(kind, text=b"{}"):
    os.write(1, b"%s %d\\n%s" % (kind, len(text), text))
say(b"ready", b'{"name": "own", "protocol": 1, "isolation": "x", "limits": {}}')
""" + lines)
    return made.give_table()


def test_words_of_a_plugin_without_an_end():
    made = plugged("""if os.fork():
    sys.exit(3)
os.close(1)
while True:
    os.write(2, b"still here\\n")
    time.sleep(0.05)
""")
    start = time.monotonic()
    ends = made.ask(1)
    assert ends.event() == (FAILED, UNREACHABLE) and b"the plug-in ended" in ends.said, ends.said
    assert time.monotonic() - start < 20
    made.leave(ends)
    wait_until(lambda: not processes_with(str(made.dir / "own.py")), "its process is ended")
    made.close()


@pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")
def test_a_place_that_opens_slowly_is_closed_although_its_session_has_ended():
    made = plugged("""sys.stdin.buffer.readline()
time.sleep(90)
say(b"opened", b'{"id": "x", "resumed": false}')
while (line := sys.stdin.buffer.readline()):
    if b"close" in line:
        open(os.path.dirname(sys.argv[0]) + "/closed", "w").close()
        say(b"ok")
""", open_s=120)
    ends = made.ask(1)
    wait_until(lambda: processes_with(str(made.dir / "own.py")), "it opens")
    ends.close()
    wait_until(lambda: (made.dir / "closed").exists(), "it is closed", 120)
    wait_until(lambda: not made.sessions(), "no session is left")
    made.close()


# Each prints a name and what the call says: 1 is EPERM.
CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def say(name, number, *args):
    ctypes.set_errno(0)
    libc.syscall(number, *args)
    print(name, ctypes.get_errno())
say("ptrace", 101, 17, 0, 0, 0)
say("process_vm_readv", 310, 1 << 22, 0, 0, 0, 0, 0)
say("process_vm_writev", 311, 1 << 22, 0, 0, 0, 0, 0)
say("add_key", 248, 0, 0, 0, 0, 0)
say("request_key", 249, 0, 0, 0, 0)
say("keyctl", 250, 999, 0, 0, 0, 0)
say("io_uring_setup", 425, 0, 0)
say("perf_event_open", 298, 0, 0, -1, -1, 1 << 20)
say("userfaultfd", 323, 1 << 20)
say("open_tree", 428, -1, 0, 1 << 20)
say("unshare", 272, 1 << 30 | 1)
say("setns", 308, -1, 0)
say("pidfd_getfd", 438, -1, 0, 0)
say("clone", 56, 1 << 28 | 1 << 16, 0, 0, 0, 0)
"""


def run(ends, code):
    ends.frame("exec", code)
    ends.frames("done")
    return os.read(ends.out, 65536).decode()


def refused_calls(host, number):
    (host.dir / "calls.py").write_text(CALLS)
    ends = host.open(number)
    found = dict(line.split() for line in run(ends, b"python3 %s/calls.py" % bytes(host.dir)).splitlines())
    host.leave(ends)
    return {name for name, error in found.items() if error == "1"}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are those of x86-64")
def test_what_the_filter_of_clients_refuses(host):
    """The control is a shell of the same user that the starter has started: it has no filter. (The kernel itself refuses some of the list to
    every user without rights, and those are not counted.)"""
    free = refused_calls(host, GAINS)
    assert len(free) <= 2
    for number in (PLUG, HERE):
        assert refused_calls(host, number) == {line.split('"')[1] for line in CALLS.splitlines() if line.startswith("say(")}


# A namespace of users has all capabilities in itself, and so reaches parts of the kernel that a user does not.
CLONES = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
spaces, SIGCHLD = 1 << 28 | 1 << 30, 17
args = ctypes.create_string_buffer(struct.pack("8Q", spaces, 0, 0, 0, SIGCHLD, 0, 0, 0))
for name, call in ("clone", (56, spaces | SIGCHLD, 0, 0, 0, 0)), ("clone3", (435, args, 64)):
    ctypes.set_errno(0)
    pid = libc.syscall(*call)
    if pid == 0:
        os._exit(0)
    print(name, ctypes.get_errno())
    if pid > 0:
        os.waitpid(pid, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of calls are those of x86-64")
def test_clone_makes_no_namespaces_either(host):
    (host.dir / "clones.py").write_text(CLONES)
    said = {}
    for number in (GAINS, HERE, PLUG):
        ends = host.open(number)
        said[number] = run(ends, b"python3 %s/clones.py" % bytes(host.dir))
        assert run(ends, b"python3 -c 'import os, threading; t = threading.Thread(target=os.system, args=[\"echo fine\"]); t.start(); t.join()'") == "fine\n"
        host.leave(ends)
    if said[GAINS] != "clone 0\nclone3 0\n":
        pytest.skip("users of this machine make no namespaces: %s" % said[GAINS])
    assert said[HERE] == said[PLUG] == "clone %d\nclone3 %d\n" % (errno.EPERM, errno.ENOSYS)


@pytest.fixture
def outside():
    """A directory that every user can write to, outside of /tmp and homes."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a directory elsewhere")
    path = pathlib.Path(tempfile.mkdtemp(prefix="hermes-outside-", dir="/var/lib"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def landlock_abi():
    return ctypes.CDLL(None).syscall(444, None, 0, 1)


def test_a_client_writes_where_clients_may(host, outside):
    if landlock_abi() < 1:
        pytest.skip("this Linux has no Landlock")
    write = b"(echo x >%s/made && mkdir %s/d && rm -r %s/made %s/d) 2>/dev/null && echo written || echo refused" % ((bytes(outside),) * 4)
    below = b"d=$(mktemp -d) && echo x >$d/file && rm -r $d && echo x >/dev/null && head -c 5 /etc/passwd >/dev/null && echo fine"
    for number, expected in (HERE, "written\n"), (GAINS, "written\n"), (PLUG, "refused\n"):
        ends = host.open(number)
        assert run(ends, write) == expected and run(ends, below) == "fine\n"
        host.leave(ends)
    assert not list(outside.iterdir())


def test_scratch_dir_can_be_written_to(outside):
    made = Places(lambda path: [*make_rows(path)[:1], row("plug", PLUGIN, command="/usr/bin/python3 %s/scripted.py %s" % (path, path),
                                                          scratch_dir=str(outside))]).give_table()
    ends = made.open(1)
    assert run(ends, b"echo x >%s/made && echo written" % bytes(outside)) == "written\n"
    ends.close()
    made.close()


def test_a_client_signals_what_it_has_started(host):
    if landlock_abi() < 6:
        pytest.skip("Landlock of this Linux has no scope for signals")
    code = b"kill -0 %d 2>/dev/null && echo may || echo may not; sleep 100 & kill $! && echo own" % host.main
    for number, expected in (HERE, "may\nown\n"), (PLUG, "may not\nown\n"):
        ends = host.open(number)
        assert run(ends, code) == expected
        host.leave(ends)


def test_the_starter_has_one_socket_and_no_table(host):
    """Its memory has nothing of the rows; the control is the program that has forked it."""
    def memory(pid):
        with open("/proc/%d/mem" % pid, "rb", 0) as mem:
            for line in pathlib.Path("/proc/%d/maps" % pid).read_text().splitlines():
                start, end = (int(x, 16) for x in line.split()[0].split("-"))
                if end - start > 1 << 30:  # the shadow memory of a sanitizer
                    continue
                try:
                    mem.seek(start)
                    yield mem.read(end - start)
                except (OSError, ValueError, OverflowError):
                    pass
    if os.geteuid() != 0:
        pytest.skip("needs root: its memory cannot be read by others")
    text = b"%s/scripted.py" % bytes(host.dir)
    assert any(text in part for part in memory(host.main))
    assert not any(text in part for part in memory(host.starter))
    fds = {int(path.name): os.readlink(path) for path in pathlib.Path("/proc/%d/fd" % host.starter).iterdir()}
    assert fds.keys() <= {0, 1, 2, 3} and fds[3].startswith("socket:")
    variables = pathlib.Path("/proc/%d/environ" % host.starter).read_bytes().split(b"\0")
    assert [one for one in variables if one and not one.startswith(b"LC_CTYPE=")] == []  # which Python adds


def test_a_local_shell_has_the_descriptors_of_its_streams(host):
    for number in (GAINS, HERE):
        ends = host.open(number)
        found = run(ends, b"for f in /proc/$$/fd/*; do readlink $f; done; for f in /proc/$PPID/fd/*; do readlink $f; done").splitlines()
        sockets = {os.readlink(path) for pid in (host.main, host.starter) for path in pathlib.Path("/proc/%d/fd" % pid).iterdir()}
        assert found and not {one for one in found if one.startswith(("socket:", "/memfd:places", "anon_inode:[pidfd]"))} & sockets
        assert not [one for one in found if "memfd:places" in one or "memfd:words" in one]
        host.leave(ends)


def test_a_local_command_cannot_look_into_the_starter(host):
    """The control: a process of the same user that does not hide."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the test has another user than the commands")
    ends = host.open(GAINS)
    code = b"look() { head -c 0 /proc/$1/mem 2>/dev/null && echo may || echo may not; }; sleep 100 & look $!; kill $!; look %d; look %d" % (
        host.starter, host.main)
    assert run(ends, code) == "may\nmay not\nmay not\n"
    host.leave(ends)


def test_a_local_command_cannot_look_into_a_program_that_starts():
    """One that has ended hermes-places would have the memory of the next one, and its table, if it opened it soon enough."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the test has another user than the commands")
    made = Places(lambda path: make_rows(path)[:1])  # it waits for its table
    main = wait_until(lambda: children(made.process.pid), "it runs")[0]
    wait_until(lambda: pathlib.Path("/proc/%d/syscall" % main).read_text().startswith(("47 ", "212 ")), "it waits in recvmsg()")
    code = "head -c 0 /proc/%d/mem 2>/dev/null && echo may || echo may not"
    look = [subprocess.run(["sh", "-c", code % pid], user=65534, group=65534, extra_groups=[], capture_output=True, text=True).stdout
            for pid in (made.process.pid, main)]
    made.give_table().works()
    made.close()
    assert look == ["may\n", "may not\n"]  # the control: a process of the same user that does not hide


def test_requests_that_are_never_answered_do_not_hold_up_the_starter(host):
    """Servers that ask for shells and go away, or do not read."""
    held = [host.ask(GAINS) for _ in range(20)]
    for ends in held[:10]:
        ends.close()
    ends = host.open(GAINS)
    host.works(ends)
    for one in [ends, *held[10:]]:
        one.close()
    wait_until(lambda: not host.sessions() and children(host.starter) == [], "nothing is left")
