# SPDX-License-Identifier: Apache-2.0
"""Terminals in the hands of strangers: code at one end, clients at the other."""
import errno
import os
import pty
import re
import socket
import struct
import time

import pytest

from apilib import SLOW, boxes_below, name_of, wait_until, wait_until_still
from machine import has_mknod, has_scopes
from ptylib import (BINARY, CLOSE, PING, PONG, TEXT, Raw, Refused, Terminal, connect, frame, handshake, refusal, shells,
                    sleepers)
from sessionlib import ask_copy, fork

needs_tty = pytest.mark.skipif(not has_mknod(), reason="there is no /dev/tty in boxes where no node can be made")

# Each ioctl with what comes of it. The kernel looks at the lower 32 bits of a request: one with more is the same one.
# 0x541c is TIOCLINUX;
PROBE = r"""
import ctypes, errno, platform, termios
libc = ctypes.CDLL(None, use_errno=True)
IOCTL = 16 if platform.machine() == "x86_64" else 29
def attempt(name, request, argument):
    result = libc.syscall(IOCTL, 0, ctypes.c_ulong(request), argument)
    print(name, "done" if result == 0 else errno.errorcode[ctypes.get_errno()])
attempt("TIOCSTI", termios.TIOCSTI, b"x")
attempt("TIOCSTI+", termios.TIOCSTI | 1 << 32, b"y")
attempt("TIOCLINUX", 0x541c, b"\3")
attempt("TIOCSETD", termios.TIOCSETD, bytes(4))
attempt("TIOCSCTTY", termios.TIOCSCTTY, ctypes.c_ulong(0))
attempt("TIOCGWINSZ", termios.TIOCGWINSZ, ctypes.create_string_buffer(8))
"""


def outcomes(text):
    return dict(re.findall(r"(TIOC\S+) (\w+)", text))


def test_nothing_can_be_typed_by_code(session):
    """The control is the same code at a terminal outside. On both it leads the terminal's session, as who may do most."""
    one = session("python")
    one.call("PUT", "/files/probe.py", PROBE)
    refused = dict.fromkeys(("TIOCSTI", "TIOCSTI+", "TIOCLINUX", "TIOCSETD", "TIOCSCTTY"), "EPERM")
    with Terminal(one) as t:
        assert outcomes(t.run("python3 probe.py")) == {**refused, "TIOCGWINSZ": "done"}
        assert t.run("echo nothing was typed") == "nothing was typed\n"
        t.send("exec python3 probe.py\n")
        assert t.end() == (0, 1000)
        assert outcomes(t.seen) == {**refused, "TIOCGWINSZ": "done"}
    if os.geteuid() == 0:
        pid, master = pty.fork()
        if pid == 0:
            os.execv("/usr/bin/python3", ["python3", "-c", PROBE])
        seen = b""
        try:
            while True:
                seen += os.read(master, 4096)
        except OSError:
            pass
        os.waitpid(pid, 0)
        os.close(master)
        assert outcomes(seen.decode()) == {**dict.fromkeys(refused, "done"), "TIOCLINUX": "ENOTTY", "TIOCGWINSZ": "done"}


COUNT = "import os\nheld = []\nproblem = None\nfor i in range(64):\n    try: held.append(os.openpty())\n    except OSError as e: problem = e.errno; break\nprint(len(held), problem)"


def test_terminals_run_out_in_one_box_alone(session):
    one, other = session("python"), session("python")
    count, problem = one.out(COUNT).split()
    assert int(count) == 8 and int(problem) == errno.ENOSPC
    refused = refusal(one)
    assert refused.status == 409 and b"holds all terminals" in refused.body
    with Terminal(other) as t:  # neither another box
        assert t.run("tty") == "/dev/pts/0\n"
    held = [pty.openpty() for _ in range(20)]  # nor the host; the control: it has more than that
    for pair in held:
        os.close(pair[0])
        os.close(pair[1])
    one.exec("for pair in held:\n    os.close(pair[0]); os.close(pair[1])")
    with Terminal(one) as t:
        t.run("true")


def test_terminals_of_others_are_not_in_reach(session):
    """A terminal of the host, and of another box, have names and numbers that lead nowhere here."""
    one, other = session("bash"), session("bash")
    master, slave = pty.openpty()
    number = int(os.ttyname(slave).rpartition("/")[2])
    with Terminal(one) as t, Terminal(other) as theirs, Terminal(other) as more:
        assert more.run("tty") == "/dev/pts/1\n"
        assert t.run("ls /dev/pts") == "0  ptmx\n"
        assert t.run("echo leak > /dev/pts/1") and t.status == 1
        if number:
            assert t.run("echo leak > /dev/pts/%d" % number) and t.status == 1
        for command in ("ls /dev/console", "ls /dev/tty1", "touch /dev/pts/x", "mv /dev/pts/0 /dev/pts/7"):
            assert t.run(command) and t.status, command
        os.set_blocking(master, False)
        with pytest.raises(BlockingIOError):
            os.read(master, 100)
        theirs.run("true")
    os.close(master)
    os.close(slave)


def test_runs_have_none(server):
    reply = server.run("python", "import os\nfor p in ('/dev/ptmx', '/dev/pts/ptmx', '/dev/tty'):\n"
                                 "    try: os.open(p, os.O_RDWR); print('open', p)\n    except OSError as e: print(e.errno)").json()
    assert list(map(int, reply["stdout"].split())) == [errno.ENOENT] * 2 + [errno.ENXIO if has_mknod() else errno.ENOENT], reply


@needs_tty
def test_a_copy_does_not_share_a_terminal(session):
    one = session("python")
    one.exec("import os, pty\nmaster, slave = pty.openpty()")
    reply = ask_copy(one)
    assert reply.status == 409 and "terminal" in reply.json()["error"]["message"], reply
    # Not as the one that controls it either: the interpreter leads a session of its own, so a terminal that it opens is that.
    one.exec("fd = os.open(os.ttyname(slave), os.O_RDWR)\nos.close(fd)\nos.close(slave)\nkeep = os.dup(master)\nos.close(master)")
    assert one.out("os.close(os.open('/dev/tty', os.O_RDWR)); print('has one')") == "has one\n"
    refused = ask_copy(one)
    assert refused.status == 409, refused
    # Its other end belongs to somebody else now, so that it can be copied.
    one.exec("import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
             "if os.fork() == 0:\n    os.setsid(); os.set_inheritable(keep, True); os.execvp('sleep', ['sleep', '600'])\n"
             "os.close(keep)")
    assert one.out("os.close(os.open('/dev/tty', os.O_RDWR)); print('has one')") == "has one\n"
    copy = fork(one)
    assert copy.out("try: os.open('/dev/tty', os.O_RDWR); print('reached')\nexcept OSError as e: print(e.errno)\nprint(sorted(os.listdir('/dev/pts')))") == \
        "%d\n['ptmx']\n" % errno.ENXIO


WHERE = "for f in /proc/self/ns/*; do readlink $f; done; cat /proc/self/limits; grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNew|Seccomp:|Uid|Gid|Groups' /proc/self/status"
# Arguments that do nothing, should a call be let through.
ANSWERS = """import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
for number in list(range(153, 180)) + list(range(246, 252)) + [272, 302, 308, 317] + list(range(425, 444)):
    if number != 436:  # close_range would succeed
        print(number, call(number, *[ctypes.c_long(-1)] * 6) and ctypes.get_errno())
"""
ABSTRACT = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0here'); print('reached')"


@pytest.mark.parametrize("is_copy", [False, True], ids=["original", "copy"])
def test_a_shell_is_confined_as_the_interpreter_is(session, is_copy):
    one = session("python")
    if is_copy:
        one = fork(one)
    one.exec("import subprocess\ndef sh(text): return subprocess.run(['bash', '-c', text], capture_output=True, text=True).stdout")
    with Terminal(one) as t:
        one.call("PUT", "/files/where", WHERE)
        assert t.run("bash where") == one.out("print(sh('bash where'), end='')")
        one.call("PUT", "/files/answers.py", ANSWERS)
        answers = t.run("python3 answers.py")
        assert answers == one.out("print(sh('python3 answers.py'), end='')") and len(answers.split()) > 100
        assert t.run("touch /etc/x /usr/x /x 2>/dev/null") == "" and t.status == 1
        # Landlock: a domain of its own, out of which no abstract socket is reached. The control is the code itself.
        one.call("PUT", "/files/abstract.py", ABSTRACT)
        one.exec("import socket\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind('\\0here')\nlistener.listen()")
        assert one.out("print(sh('python3 abstract.py'), end='')") == "reached\n"
        if not has_scopes():
            pytest.skip("Landlock scopes neither signals nor abstract sockets here; the rest was tested")
        assert "Operation not permitted" in t.run("python3 abstract.py")
        pid = one.out("import os; os.kill(os.getpid(), 0); print(os.getpid(), end='')")
        assert "not permitted" in t.run("kill -0 " + pid)


def cpu_s(pid):
    fields = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kb(pid):
    return int(open("/proc/%d/statm" % pid).read().split()[1]) * 4


def test_a_shell_that_closes_its_terminal(session, server):
    """The other end says that nobody is there, all the time: that keeps nobody busy."""
    one = session("bash")
    with Terminal(one) as t:
        t.send("exec sleep 600 <&- >&- 2>&-\n")
        assert wait_until(lambda: sleepers(server) == ["600"])
        before = cpu_s(server.child("hermes-server"))
        t.send(b"typed to nobody\n" * 100)
        time.sleep(1)
        assert cpu_s(server.child("hermes-server")) - before < 0.3
        one.call("POST", "/reset")
        assert t.end() == (137, 1000)


@needs_tty
def test_it_opens_it_again(session):
    with Terminal(session("bash")) as t:
        t.send("(exec 3</dev/tty; exec <&- >&- 2>&- 3<&-; sleep 0.7; echo ba''ck >/dev/tty); exec bash -c 'exec <&- >&- 2>&-; sleep 0.5; echo ag''ain >/dev/tty'\n")
        t.until("back")
        t.until("again")
        assert t.end() == (0, 1000)


def test_a_flood_waits_for_its_reader(session, server):
    one = session("bash")
    raw = Raw(one, "?cols=200")
    before = rss_kb(server.child("hermes-server"))
    raw.send(frame(BINARY, b"yes 0123456789012345678901234567890123456789\n"))
    time.sleep(1)  # nobody reads
    assert rss_kb(server.child("hermes-server")) - before < 8 << 10
    assert server.works() and one.out("echo fine") == "fine\n"
    taken = 0
    while taken < 4 << 20:  # now somebody does
        taken += len(raw.receive()[1])
    raw.send(frame(BINARY, b"\x03exit 9\n"))
    while True:
        opcode, payload = raw.receive()
        if opcode == TEXT:
            break
    assert payload == b'{"type":"exit","exit_code":9}'
    assert raw.closed()[0] == 1000
    raw.close()


def test_the_end_does_not_wait_for_who_goes_on_printing(session):
    with Terminal(session("bash")) as t:
        t.send("(trap '' HUP; exec yes) & sleep 0.2; exit 4\n")
        assert t.end() == (4, 1000)


VIOLATIONS = {
    "not masked": (frame(BINARY, b"x", masked=False), 1002),
    "reserved bits": (frame(BINARY, b"x", rsv=4), 1002),
    "unknown opcode": (frame(3, b"x"), 1002),
    "ping in parts": (frame(PING, b"x", fin=False), 1002),
    "long ping": (frame(PING, b"x" * 126), 1002),
    "a part of nothing": (frame(0, b"x"), 1002),
    "two messages at once": (frame(BINARY, b"x", fin=False) + frame(BINARY, b"x"), 1002),
    "bad close": (frame(CLOSE, b"\0"), 1002),
    "bad code": (frame(CLOSE, b"\0\1"), 1002),
    "too much": (frame(BINARY, b"x" * 4096, length=2 << 20), 1009),
    "far too much": (frame(BINARY, b"x", length=1 << 62), 1009),
    "too much in parts": (frame(BINARY, b"x" * 4096, fin=False) + frame(0, b"x", length=1 << 20), 1009),
    "no UTF-8": (frame(TEXT, b"\xff\xfe"), 1007),
    "no JSON": (frame(TEXT, b"resize"), 1008),
    "empty text": (frame(TEXT, b""), 1008),
    "another type": (frame(TEXT, b'{"type":"exit"}'), 1008),
    "no object": (frame(TEXT, b'["resize",1,2]'), 1008),
    "no rows": (frame(TEXT, b'{"type":"resize","cols":80}'), 1008),
    "too many rows": (frame(TEXT, b'{"type":"resize","rows":65536,"cols":80}'), 1008),
    "rows of text": (frame(TEXT, b'{"type":"resize","rows":"20","cols":80}'), 1008),
    "something else": (frame(TEXT, b'{"type":"resize","rows":20,"cols":80,"x":1}'), 1008),
    "rows twice": (frame(TEXT, b'{"type":"resize","rows":20,"rows":21,"cols":80}'), 1008),
    "long text": (frame(TEXT, b'{"type":"resize","rows":20,"cols":80' + b" " * 5000 + b"}"), 1008),
}


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_rules_of_the_protocol(session, server, tcp):
    one = session("bash")
    for what, (data, code) in VIOLATIONS.items():
        raw = Raw(one, tcp=tcp)
        raw.send(data)
        closed = raw.closed()
        # libwslay closes some of what is no frame at all without a code, which clients see as 1005.
        assert closed and closed[0] in ((1002, 1005) if code == 1002 else (code,)), (what, closed)
        raw.close()
        assert wait_until(lambda: server.metric("hermes_terminals") == 0 and not shells(server)), what


def test_pings_without_end(session, server):
    """Every one is answered, if somebody takes the answer; there is no heap of them, nobody reads on until then."""
    one = session("bash")
    raw = Raw(one)
    before = rss_kb(server.child("hermes-server"))
    raw.sock.settimeout(1)
    ping = frame(PING, b"x" * 125)
    pings, sent = ping * 2000, 0
    with pytest.raises(socket.timeout):
        while sent < 400 * len(pings):
            sent += raw.sock.send(pings[sent % len(ping):])
    assert rss_kb(server.child("hermes-server")) - before < 8 << 10
    assert server.works()
    raw.sock.settimeout(20 * SLOW)
    answered = 0
    while answered < sent // len(ping):
        opcode, payload = raw.receive()
        assert opcode == BINARY or (opcode, payload) == (PONG, b"x" * 125)
        answered += opcode == PONG
    raw.close()
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)


def test_nobody_reads_what_is_typed(session, server):
    """What the terminal does not take is not read from the client; who then leaves is noticed."""
    one = session("bash")
    raw = Raw(one)
    raw.send(frame(BINARY, b"stty raw; sleep 600\n"))
    assert wait_until(lambda: sleepers(server) == ["600"])
    before = rss_kb(server.child("hermes-server"))
    raw.sock.settimeout(1)
    sent = 0
    try:
        for _ in range(300):
            sent += raw.sock.send(frame(BINARY, b"y" * 60000))
    except OSError:
        pass
    assert sent < 16 << 20 and rss_kb(server.child("hermes-server")) - before < 8 << 10
    raw.close()
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)


def descriptors(pid):
    """Where they lead, apart from networks, which the spawner makes ahead. Of what is not dumpable only root can tell."""
    found = []
    for fd in os.listdir("/proc/%d/fd" % pid) if os.geteuid() == 0 else ():
        try:
            found.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except FileNotFoundError:
            pass
    return sorted(link for link in found if not link.startswith("net:"))


def holdings(server):
    """Threads and descriptors of each program."""
    return [held for pid in server.programs().values() for held in (os.listdir("/proc/%d/task" % pid), descriptors(pid))]


# A job that bash has just forked, and that does not run its program yet, loses the hangup that bash passes on.
JOB = b"sleep 600 & until [ $(</proc/$!/comm) = sleep ]; do :; done; echo rea''dy\n"


def enter(one):
    """Waits for a place: the ones before may not quite have gone, and a busy machine starts a shell late (503)."""
    deadline = time.monotonic() + 20 * SLOW
    while True:
        try:
            return Raw(one)
        except Refused as refused:
            assert refused.status in (409, 429, 503) and time.monotonic() < deadline, refused
        time.sleep(0.02)


def come_and_go(one, times):
    """Half of them leave without a word, some before the answer has come."""
    for i in range(times):
        if i % 3 == 0:
            sock = connect(one.server)
            sock.sendall(handshake(one).encode())
            sock.close()
            continue
        raw = enter(one)
        if i % 2:
            raw.send(frame(BINARY, JOB))
            seen = b""
            while b"ready" not in seen:
                seen += raw.receive()[1]
            raw.send(frame(CLOSE, struct.pack(">H", 1000)))
            raw.closed()
        raw.close()


@pytest.mark.parametrize("language", ["bash", "python"])
def test_many_come_and_go(session, server, language):
    one = session(language)
    if language == "python":  # a copy's terminals come another way
        one = fork(one)
    come_and_go(one, 12)
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)
    assert wait_until(lambda: server.metric("hermes_http_connections") <= 2)
    wait_until_still(server.process.pid)
    boxes = len(boxes_below(server.child("hermes-spawn")))
    before = holdings(server)
    come_and_go(one, int(os.environ.get("HERMES_PTY_TIMES", "150")))
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)
    spawner = server.child("hermes-spawn")
    assert wait_until(lambda: len(boxes_below(spawner)) <= boxes), [name_of(pid) for pid in boxes_below(spawner)]
    assert wait_until(lambda: all(len(now) <= len(then) + 1 for now, then in zip(holdings(server), before))), (holdings(server), before)
    with Terminal(one) as t:
        assert t.run("echo still") == "still\n"


BOMB = """
import os, signal, sys, time
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError as problem:
    print(made, problem.errno)
sys.stdout.flush()
sys.stdin.readline()
os.kill(0, 9)
"""


def test_the_limits_of_the_box_hold(session):
    one = session("python", limits={"memory_mb": 128, "processes": 24})
    one.call("PUT", "/files/bomb.py", BOMB)
    with Terminal(one) as t:
        t.send("python3 bomb.py\n")
        found = t.until(r"(\d+) 11\r\n")
        assert 10 < int(found[1]) < 24
        refused = refusal(one)
        assert refused.status == 409 and b"processes" in refused.body, refused
        t.send("\n")
        assert t.run("echo over") .endswith("over\n")
        assert one.exec("1")["status"] == "ok"
        assert "Max file size" in t.run("grep 'Max file size' /proc/self/limits")
        assert one.out("print(open('/proc/self/limits').read())").strip() == t.run("cat /proc/self/limits").strip()
        t.send("python3 -c 'x = bytearray(300 << 20)'\n")
        assert t.end(30) == (137, 1000)  # all of the box ends, as with any other code in it
    assert wait_until(lambda: one.state()["reason"] == "memory_limit")
