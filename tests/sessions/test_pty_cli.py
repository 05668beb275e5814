# SPDX-License-Identifier: Apache-2.0
"""`hermes session terminal` on a real terminal, and the commands for copies."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from apilib import HERMES, SLOW, wait_until
from machine import lacks_for_copies
from ptylib import has_keyboard
from test_session_cli import hermes  # noqa: F401


class Sitting:
    """Somebody in front of a terminal on which `hermes session terminal` runs."""
    def __init__(self, hermes, *args, rows=40, cols=100, **env):
        self.master, self.slave = pty.openpty()
        self.size(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([str(HERMES), "session", "terminal", *args], env=dict(hermes.env, **env),
                                        stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        preexec_fn=self.own)
        self.seen = ""

    def own(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def size(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, pattern, seconds=10):
        deadline = time.monotonic() + seconds * SLOW
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.master], [], [], 0.1)
            if ready:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            assert time.monotonic() < deadline, "no %r in %r" % (pattern, self.seen[-2000:])
        found = re.search(pattern, self.seen)
        self.seen = self.seen[found.end():]
        return found

    def end(self):
        """Its exit status; the terminal is as it was."""
        deadline = time.monotonic() + 20 * SLOW
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        assert self.process.poll() is not None, "it goes on: %r" % self.seen[-2000:]
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was left in disorder"
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        return self.process.returncode

    def remove(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def sit(hermes):  # noqa: F811
    made = []

    def make(*args, **kwargs):
        made.append(Sitting(hermes, *args, **kwargs))
        return made[-1]
    yield make
    for one in made:
        one.remove()


def test_a_shell_on_a_terminal(hermes, sit, server):
    one = hermes("new", "-l", "python").stdout.strip()
    t = sit(one)
    t.until(r"Ctrl-\]")
    t.until(r"\$ ")
    assert termios.tcgetattr(t.slave) != t.before  # raw
    t.type("stty size; echo ma''rk\r")
    t.until("40 100\r\nmark")
    t.size(20, 70)  # the kernel tells with SIGWINCH
    assert wait_until(lambda: resized(t), 5)
    t.type("sleep 600\r")
    assert wait_until(lambda: has_keyboard(server, "sleep 600"))
    t.type("\x03")
    t.until(r"\^C")
    t.until(r"\$ ")
    t.type("exit 9\r")
    assert t.end() == 9
    assert hermes("rm", one).returncode == 0


def resized(t):
    t.type("[ \"$(stty size)\" = '20 70' ] && echo n''ew || echo o''ld\r")
    return t.until(r"(new|old)\r\n")[1] == "new"


def test_ways_out(hermes, sit, server):
    one = hermes("new", "-l", "bash").stdout.strip()
    t = sit(one)
    t.until(r"\$ ")
    t.type("\x1d")  # Ctrl-]
    assert t.end() == 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        t = sit(one)
        t.until(r"\$ ")
        t.process.send_signal(number)
        assert t.end() == 128 + number
    t = sit(one)
    t.until(r"\$ ")
    hermes("rm", one)
    assert t.end() == 137
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)
    t = sit(one)
    assert t.end() == 2 and "not found; it may have expired or been deleted" in t.seen
    got = hermes("terminal", "ses_x")
    assert got.returncode == 2 and "must be a terminal" in got.stderr
    t = sit(one, HERMES_UNIX="/nonexistent")
    assert t.end() == 125 and "hermes serve" in t.seen


def test_the_server_goes_away(hermes, sit, make_server):
    server = make_server()
    env = {"HERMES_UNIX": str(server.unix)}
    one = hermes("new", "-l", "bash", **env).stdout.strip()
    t = sit(one, **env)
    t.until(r"\$ ")
    server.stop()
    assert t.end() == 125 and "the server stops" in t.seen


def test_over_tcp_with_a_key(hermes, sit, make_server):
    server = make_server(env={"HERMES_API_KEYS": "secret"})
    env = {"HERMES_URL": "http://127.0.0.1:%d" % server.port, "HERMES_API_KEY": "secret"}
    one = hermes("new", "-l", "bash", **env).stdout.strip()
    t = sit(one, **env)
    t.until(r"\$ ")
    t.type("exit 3\r")
    assert t.end() == 3
    t = sit(one, HERMES_URL=env["HERMES_URL"])
    assert t.end() == 2 and "HERMES_API_KEY" in t.seen


def test_copies(hermes):
    one = hermes("new").stdout.strip()
    hermes("exec", one, "-e", "x = 1")
    got = hermes("fork", one, "--count", "2")
    if lacks_for_copies() and got.returncode == 125 and re.search("cannot copy live sessions|x86-64 only", got.stderr):
        pytest.skip(got.stderr)
    copies = got.stdout.split()
    assert got.returncode == 0 and len(copies) == 2 and got.stderr == ""
    assert hermes("exec", copies[1], "-e", "print(x)").stdout == "1\n"
    assert hermes("rm", *copies).returncode == 0
    assert hermes("checkpoint", one, "before").stdout == "before\n"
    assert hermes("checkpoint", one).stdout.strip()
    hermes("exec", one, "-e", "x = 2")
    listed = hermes("checkpoints", one).stdout.splitlines()
    assert len(listed) == 3 and listed[0].startswith("NAME") and any(line.startswith("before ") for line in listed)
    assert len(json.loads(hermes("checkpoints", one, "--json").stdout)["checkpoints"]) == 2
    assert hermes("rollback", one, "before").returncode == 0
    assert hermes("exec", one, "-e", "print(x)").stdout == "1\n"
    assert hermes("rm-checkpoint", one, "before").returncode == 0
    assert hermes("rollback", one, "before").returncode == 2
    assert hermes("fork", one, "--count", "0").returncode == 2
    assert hermes("fork", one, "--count", "31").returncode == 2
    assert json.loads(hermes("fork", one, "--json").stdout)["memory"] == "copied"
    hermes("rm", one)
    shell = hermes("new", "-l", "bash").stdout.strip()
    got = hermes("fork", shell)
    assert got.returncode == 0 and got.stdout.startswith("ses_") and "fresh" in got.stderr
    assert hermes("checkpoint", shell).returncode == 125
    assert "terminal" in hermes("--help").stdout and "rollback" in hermes("--help").stdout
