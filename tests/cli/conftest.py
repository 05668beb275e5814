# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the command line: `hermes` with a state directory of its own, a server, and a
person at a terminal."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from apilib import HERMES, ROOT, SLOW, make_dir
from serving import assert_idle, programs, serve, serve_many  # noqa: F401


@pytest.fixture(scope="session")
def cli_server():
    yield from serve(env={"HERMES_SESSION_PARKED": "0"})


@pytest.fixture
def server(cli_server):
    yield cli_server
    for session in cli_server("GET", "/v1/sessions").json()["sessions"]:
        cli_server("DELETE", "/v1/sessions/" + session["id"])
    assert_idle(cli_server)


@pytest.fixture
def make_server():
    yield from serve_many({"HERMES_SESSION_PARKED": "0"})


@pytest.fixture(scope="session")
def shared_state():
    return make_dir()


@pytest.fixture
def work(tmp_path):
    return tmp_path


class Terminal:
    """`hermes` on a terminal of its own."""

    def __init__(self, args, env, cwd, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.chdir(cwd)
            os.execve(str(args[0]), [str(a) for a in args], env)
        self.seen = ""
        self.status = None

    def until(self, wanted, seconds=60):
        deadline = time.monotonic() + seconds * SLOW
        while wanted not in self.seen:
            assert self.read(deadline), "no %r in %r" % (wanted, self.seen)
        return self.seen

    def read(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.fd], [], [], left)[0]:
            return False
        try:
            data = os.read(self.fd, 4096)
        except OSError:
            data = b""
        self.seen += data.decode(errors="replace")
        return bool(data)

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self, seconds=60):
        """Reads to the end; the exit status."""
        deadline = time.monotonic() + seconds * SLOW
        while self.read(deadline):
            pass
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def remove(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)


@pytest.fixture
def hermes(work, shared_state):
    """Runs `hermes`: without a terminal, or with .terminal()."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(work), "HERMES_STATE_DIR": str(shared_state), "TERM": "xterm",
           "LC_ALL": "C.UTF-8", "HERMES_RUNTIMES": str(ROOT / "runtimes"),
           **{n: os.environ[n] for n in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if n in os.environ}}
    made = []

    def run(*args, stdin="", **extra):
        return subprocess.run([str(HERMES), *map(str, args)], input=stdin, env=dict(env, **extra), cwd=work, text=True,
                              capture_output=True, timeout=120 * SLOW)

    def terminal(*args, program=HERMES, **extra):
        made.append(Terminal([program, *args], dict(env, **extra), work))
        return made[-1]
    run.env = env
    run.terminal = terminal
    yield run
    for one in made:
        one.remove()
