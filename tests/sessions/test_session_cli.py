# SPDX-License-Identifier: Apache-2.0
"""`hermes session` against a server: commands, exit statuses, the REPL on a terminal."""
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import termios
import time

import pytest

from apilib import HERMES, SLOW, wait_until


@pytest.fixture
def hermes(server, tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HERMES_UNIX": str(server.unix), "TERM": "dumb",
           "LC_ALL": "C.UTF-8"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]

    def run(*args, stdin="", **extra):
        return subprocess.run([str(HERMES), "session", *args], input=stdin, env=dict(env, **extra), text=True,
                              capture_output=True, timeout=60 * SLOW)
    run.env = env
    return run


def test_commands(hermes, tmp_path):
    made = hermes("new", "-l", "python", "--name", "mine", "--memory", "128m", "--idle", "5m", "-E", "A=b c")
    one = made.stdout.strip()
    assert made.returncode == 0 and one.startswith("ses_")
    assert "mine" in hermes("ls").stdout and "idle" in hermes("ls").stdout
    listed = json.loads(hermes("ls", "--json").stdout)["sessions"][0]
    assert listed["limits"]["memory_mb"] == 128 and listed["id"] == one
    assert hermes("exec", one, "-e", "import os; x = os.environ['A']").returncode == 0
    got = hermes("exec", one, stdin="print(x)\nx + '!'")
    assert (got.stdout, got.stderr) == ("b c\n'b c!'\n", "")
    (tmp_path / "code.py").write_text("print(input())")
    (tmp_path / "input").write_text("from a file\n")
    got = hermes("exec", one, str(tmp_path / "code.py"), "--stdin", str(tmp_path / "input"))
    assert got.stdout == "from a file\n"
    assert json.loads(hermes("exec", one, "--json", "-e", "6*7").stdout)["result"]["text/plain"] == "42"
    assert hermes("reset", one).returncode == 0
    assert hermes("exec", one, "-e", "x").returncode == 1
    assert hermes("interrupt", one).returncode == 2
    assert hermes("rm", one).returncode == 0
    assert hermes("rm", one).returncode == 2


def test_exit_statuses(hermes):
    one = hermes("new").stdout.strip()
    assert hermes("exec", one, "-e", "1/0").returncode == 1
    assert "ZeroDivisionError" in hermes("exec", one, "-e", "1/0").stderr
    assert hermes("exec", one, "-e", "import sys; sys.exit(3)").returncode == 3
    assert hermes("exec", one, "-t", "300ms", "-e", "while True: pass").returncode == 124
    got = hermes("exec", one, "-e", "import os; os._exit(4)")
    assert got.returncode == 4 and "lost" in got.stderr
    got = hermes("exec", one, "-e", "1")
    assert got.returncode == 2 and "reset" in got.stderr


def test_ctrl_c_interrupts_an_exec(hermes, server):
    one = hermes("new").stdout.strip()
    hermes("exec", one, "-e", "x = 5")
    running = subprocess.Popen([str(HERMES), "session", "exec", one, "-e", "import time; time.sleep(60)"], env=hermes.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: server("GET", "/v1/sessions/" + one).json()["state"] == "busy", 10)
    time.sleep(.3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30 * SLOW)
    assert running.returncode == 1 and "KeyboardInterrupt" in err
    assert hermes("exec", one, "-e", "print(x)").stdout == "5\n"


def test_mistakes(hermes, server):
    for args in ((), ("fly",), ("exec",), ("exec", "../x", "-e", "1"), ("rm", "ses_0%2f"), ("new", "-l", "cobol"),
                 ("new", "--idle", "soon"), ("new", "--memory", "0"), ("exec", "a", "b", "c"), ("jobs", "a", "--kill", "x")):
        got = hermes(*args)
        assert got.returncode == 2 and got.stderr, args
    got = hermes("ls", HERMES_UNIX="/nonexistent")
    assert got.returncode == 125 and "hermes serve" in got.stderr
    assert "COMMAND" in hermes("--help").stdout


def test_keys(make_server, hermes):
    server = make_server(env={"HERMES_API_KEYS": "alice"})
    got = hermes("ls", HERMES_UNIX=str(server.unix))
    assert got.returncode == 2 and "HERMES_API_KEY" in got.stderr
    assert hermes("ls", HERMES_UNIX=str(server.unix), HERMES_API_KEY="alice").returncode == 0
    assert hermes("ls", "--url", "http://127.0.0.1:%d" % server.port, HERMES_API_KEY="alice").returncode == 0


class Terminal:
    """A REPL on a terminal of its own."""

    def __init__(self, hermes, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(str(HERMES), ["hermes", "session", "repl", *args], hermes.env)
        self.text = ""

    def read_until(self, wanted, seconds=20):
        deadline = time.monotonic() + seconds * SLOW
        while wanted not in self.text:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], (wanted, self.text)
            try:
                data = os.read(self.fd, 4096)
            except OSError:
                data = b""
            assert data, (wanted, self.text)
            self.text += data.decode(errors="replace")
        at = self.text.index(wanted) + len(wanted)
        seen, self.text = self.text[:at], self.text[at:]
        return seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        """Reads to the end."""
        deadline = time.monotonic() + 30 * SLOW
        while time.monotonic() < deadline:
            try:
                if select.select([self.fd], [], [], 0.5)[0]:
                    data = os.read(self.fd, 4096)
                    self.text += data.decode(errors="replace")
                    if not data:
                        break
            except OSError:
                break
        else:
            doing = pathlib.Path("/proc/%d/wchan" % self.pid).read_text()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise AssertionError("it does not end (%s): %r" % (doing, self.text[-500:]))
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_repl(hermes, server, tmp_path):
    t = Terminal(hermes)
    t.read_until(">>> ")
    t.type("x = 5\r")
    t.read_until(">>> ")
    t.type("for i in range(2):\r")
    t.read_until("... ")
    t.type("    print('line', i + x)\r")
    t.read_until("... ")
    t.type("\r")
    t.read_until("line 5\r\nline 6\r\n")
    t.read_until(">>> ")
    t.type("import time; time.sleep(60)\r")
    assert wait_until(lambda: server("GET", "/v1/sessions").json()["sessions"][0]["state"] == "busy", 10)
    time.sleep(.3)
    t.type("\x03")  # the terminal makes a SIGINT of it
    t.read_until("KeyboardInterrupt")
    t.read_until(">>> ")
    t.type("x + 1\r")
    t.read_until("6\r\n")
    t.read_until(">>> ")
    t.type("\x04")
    assert t.wait() == 0
    assert not server("GET", "/v1/sessions").json()["sessions"]  # what it made it ends
    history = (tmp_path / ".local/state/hermes/python.history").read_text()
    assert "x = 5" in history.replace("\\040", " ")
    assert (tmp_path / ".local/state/hermes").stat().st_mode & 0o77 == 0


def test_repl_ended_while_code_runs(hermes, server):
    """What is typed ahead waits for the prompt, the end of file too; the terminal is given back as it was."""
    t = Terminal(hermes)
    t.read_until(">>> ")
    t.type("import time; time.sleep(1); 6 * 7\r")
    assert wait_until(lambda: server("GET", "/v1/sessions").json()["sessions"][0]["state"] == "busy", 10)
    t.type("5 * 5\r\x04")
    assert t.wait() == 0
    assert "42" in t.text and "25" in t.text
    assert termios.tcgetattr(t.fd)[6][termios.VEOF] == b"\x04"
    assert not server("GET", "/v1/sessions").json()["sessions"]


def test_repl_without_a_terminal(hermes):
    got = hermes("repl", stdin="x = 2\nfor i in range(x):\n    print(i)\n")
    assert (got.returncode, got.stdout) == (0, "0\n1\n")
    assert hermes("repl", stdin="1/0").returncode == 1


def test_repl_of_a_session_that_dies(hermes):
    one = hermes("new").stdout.strip()
    t = Terminal(hermes, one)
    t.read_until(">>> ")
    t.type("import os; os._exit(3)\r")
    t.read_until("state is lost")
    t.read_until(">>> ")
    t.type("1\r")
    t.read_until("reset")
    t.read_until(">>> ")
    os.kill(t.pid, signal.SIGTERM)
    t.wait()
    assert "dead" in hermes("ls").stdout  # it was not ours


def test_files(hermes, tmp_path):
    one = hermes("new").stdout.strip()
    local = tmp_path / "in put.bin"
    local.write_bytes(os.urandom(3 << 20))
    local.chmod(0o755)
    assert hermes("put", one, str(local)).returncode == 0
    assert hermes("put", one, str(local), "d/").returncode == 0
    got = hermes("put", one, "-", "d/\u00e4 +%.txt", stdin="from stdin\n")
    assert got.returncode == 0, got.stderr
    assert hermes("exec", one, "-e", "print(open('d/\u00e4 +%.txt').read())").stdout == "from stdin\n\n"
    assert hermes("get", one, "d/\u00e4 +%.txt", "-").stdout == "from stdin\n"
    assert hermes("get", one, "d/in put.bin", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == local.read_bytes() and (tmp_path / "back").stat().st_mode & 0o111
    listed = hermes("ls-files", one, "-r").stdout
    assert "d/in put.bin" in listed and "directory" in listed and "d/\u00e4 +%.txt" in listed
    assert [e["name"] for e in json.loads(hermes("ls-files", one, "--json").stdout)["entries"]] == ["d", "in put.bin"]
    for name, kind in (("all.tar", b"ustar"), ("all.zip", b"PK")):
        assert hermes("get", one, ".", str(tmp_path / name)).returncode == 0
        assert kind in (tmp_path / name).read_bytes()[:600]
    assert hermes("get", one, "d/", str(tmp_path / "d.tar")).returncode == 0
    assert hermes("rm-file", one, "d").returncode == 2
    assert hermes("rm-file", one, "d", "-r").returncode == 0
    for args in (("get", one, "nix"), ("get", one, "../x"), ("put", one, "/nonexistent"), ("put", one, str(tmp_path)), ("put", one, "-"),
                 ("rm-file", one, ""), ("ls-files", one, "nix"), ("get", "../../x", "y")):
        got = hermes(*args)
        assert got.returncode == 2 and got.stderr, args
    assert not (tmp_path / "nix").exists() and not list(tmp_path.glob("*.part"))
    assert hermes("rm", one).returncode == 0
