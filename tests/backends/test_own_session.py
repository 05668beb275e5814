# SPDX-License-Identifier: Apache-2.0
"""`hermes session repl` without a server: the caller's ~/.hermes/config.yaml, state between lines, fresh shells where the caller wants
them, questions at the same terminal, and nothing left behind."""
import datetime
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

import enginelib
from apilib import SLOW, UnixConnection, descendants, name_of, wait_until
from test_own_server import AS_ROOT, HERMES, caller, is_busy, is_gone  # noqa: F401 (caller is a fixture)
from placelib import WHOLE

PROMPTS = {"bash": "$ ", "python": ">>> ", "javascript": "> "}


class Prompt:
    """A person at `hermes session repl`."""

    def __init__(self, caller, *words, env=None, language="bash"):
        self.caller, self.prompt, self.text, self.status = caller, PROMPTS[language], "", None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(caller.work)
            os.execve(HERMES, [HERMES, "session", "repl", "--own-server", "-l", language, *words], {**caller.env, **(env or {})})
        self.until("leaves and ends the session")
        self.until(self.prompt)
        self.below = descendants(self.pid)

    def until(self, wanted):
        """Reads until it is there; returns what came up to it, and forgets that."""
        deadline = time.monotonic() + 60 * SLOW
        while wanted not in self.text:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], (wanted, self.text)
            try:
                piece = os.read(self.fd, 4096)
            except OSError:
                piece = b""
            assert piece, (wanted, self.text)
            self.text += piece.decode(errors="replace")
        at = self.text.index(wanted) + len(wanted)
        seen, self.text = self.text[:at], self.text[at:]
        return seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def reads_keys(self):
        """Whether the prompt has the keys, one by one; otherwise the terminal waits for a line."""
        return not termios.tcgetattr(self.fd)[3] & termios.ICANON

    def line(self, text):
        """Types it at the prompt."""
        assert wait_until(self.reads_keys)
        self.type(text + "\r")

    def run(self, line):
        """What a line prints, without its echo."""
        self.line(line)
        self.until("\n")
        return self.until(self.prompt)[:-len(self.prompt)].replace("\r", "").strip()

    def answer(self, keys):
        """Reads the question, and answers when the terminal waits for a line again."""
        seen = self.until("[n] no: ")
        assert wait_until(lambda: not self.reads_keys())
        time.sleep(0.1)  # keys that were typed before the question are dropped
        self.type(keys)
        return seen

    def wait(self):
        """Reads to the end; the exit status."""
        deadline = time.monotonic() + 60 * SLOW
        while self.status is None:
            assert time.monotonic() < deadline, self.text
            if self.fd >= 0 and select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    self.hang_up()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def hang_up(self):
        os.close(self.fd)
        self.fd = -1

    def leave(self):
        assert wait_until(self.reads_keys)
        self.type("\x04")
        assert self.wait() == 0, self.text
        assert is_gone(self.caller, self.below), "something is left behind"

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)


@pytest.fixture
def prompt(caller):  # noqa: F811
    made = []

    def make(*words, **options):
        made.append(Prompt(caller, *words, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


def piped(caller, code, *words, **options):  # noqa: F811
    """Code on standard input."""
    done = subprocess.run([HERMES, "session", "repl", "--own-server", *words], input=code, env={**caller.env, **options.pop("env", {})},
                          cwd=caller.work, capture_output=True, text=True, timeout=160 * SLOW, start_new_session=True, **options)
    assert caller.left() == [], "something is left behind"
    return done


# --- state, and where it runs


@pytest.mark.parametrize("language,first,second,printed", [
    ("bash", "x=$((40+2)); cd /tmp", "echo $x in $PWD as $(id -un)", "42 in /tmp as box"),
    ("python", "x = 40 + 2", "print(x, 'in', __import__('getpass').getuser())", "42 in box"),
    ("javascript", "let x = 40 + 2", "console.log(x)", "42"),
])
def test_a_box_keeps_state_between_lines_and_ends_with_the_prompt(caller, prompt, language, first, second, printed):  # noqa: F811
    person = prompt(language=language)
    person.run(first)
    assert printed in person.run(second)
    assert caller.left() != [] and not is_gone(caller, person.below)  # the control
    person.leave()


def test_the_callers_file_names_the_place(caller, prompt):  # noqa: F811
    caller.config(backend="local")
    person = prompt("--yes")
    assert person.run("pwd; id -u").split() == [str(caller.work), "65534" if AS_ROOT else str(os.geteuid())]
    person.leave()
    person = prompt("--yes", env={"TERMINAL_ENV": "local", "TERMINAL_CWD": "/usr"})
    assert person.run("pwd") == "/usr"
    person.leave()


def test_the_session_lasts_as_long_as_the_prompt(caller, prompt):  # noqa: F811
    person = prompt()
    connection = UnixConnection(caller.socket(), 10)
    connection.request("GET", "/v1/sessions")
    one = json.loads(connection.getresponse().read())["sessions"][0]
    made, ends = (datetime.datetime.fromisoformat(one[name]) for name in ("created_at", "expires_at"))
    assert ends - made > datetime.timedelta(days=300)
    person.leave()


def test_code_on_standard_input_is_one_piece(caller):  # noqa: F811
    done = piped(caller, "x=4\necho $((x+1))\nexit 3\n", "-l", "bash")
    assert (done.stdout, done.returncode) == ("5\n", 3), done
    assert piped(caller, "print(6 * 7)").stdout == "42\n"  # python by default, as with a server


# --- persistent_shell


KEPT = [
    ({}, {}, True),
    ({"persistent_shell": False}, {}, False),
    ({"persistent_shell": True}, {}, True),
    ({"persistent_shell": True}, {"TERMINAL_LOCAL_PERSISTENT": "false"}, False),
    ({"persistent_shell": False}, {"TERMINAL_LOCAL_PERSISTENT": "true"}, True),
    ({"persistent_shell": False}, {"TERMINAL_LOCAL_PERSISTENT": "1"}, True),
    ({"persistent_shell": True}, {"TERMINAL_PERSISTENT_SHELL": "false"}, False),
    ({}, {"TERMINAL_PERSISTENT_SHELL": "true", "TERMINAL_LOCAL_PERSISTENT": "no"}, False),
    ({"persistent_shell": True}, {"TERMINAL_SSH_PERSISTENT": "false"}, True),
]


def is_kept(person):
    """Whether the second line sees a variable of the first. The directory is kept in any case."""
    person.run("mine=yes; cd /usr")
    found = person.run("echo [$mine] $PWD")
    assert found in ("[yes] /usr", "[] /usr"), found
    person.leave()
    return found == "[yes] /usr"


@pytest.mark.parametrize("keys,env,kept", KEPT, ids=lambda value: str(value))
def test_a_local_shell_is_kept_or_fresh_as_the_caller_says(caller, prompt, keys, env, kept):  # noqa: F811
    caller.config(backend="local", **keys)
    assert is_kept(prompt("--yes", env=env)) == kept


def test_a_box_keeps_its_shell_and_says_so(caller):  # noqa: F811
    caller.config(persistent_shell=False)
    assert "persistent_shell is for backends: a box keeps its shell" in piped(caller, "true", "-l", "bash").stderr
    assert piped(caller, "print()", "-l", "python").stderr == ""
    caller.config(persistent_shell=True)
    assert piped(caller, "true", "-l", "bash").stderr == ""


@pytest.mark.parametrize("env,kept", [({}, True), ({"TERMINAL_SSH_PERSISTENT": "false"}, False), ({"TERMINAL_LOCAL_PERSISTENT": "false"}, True)],
                         ids=str)
def test_a_shell_behind_ssh_too(caller, prompt, sshd, env, kept):  # noqa: F811
    for path in (sshd.dir, sshd.dir / "user"):
        path.chmod(0o755 if path.is_dir() else 0o644 if AS_ROOT else 0o600)
    caller.config(backend="ssh", ssh_host="127.0.0.1", ssh_port=sshd.port, ssh_user=sshd.user, ssh_key=str(sshd.dir / "user"),
                  ssh_known_hosts=str(sshd.dir / "known_hosts"))
    assert is_kept(prompt("--yes", env=env)) == kept
    assert wait_until(lambda: not sshd.children()), "a connection is left"


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request, engine_of):
    if not WHOLE:
        pytest.skip("make test-backends runs this")
    return engine_of(request.param)


def containers(engine):
    return [one["Id"] for one in engine.containers()]


@pytest.mark.parametrize("keys,kept", [({}, True), ({"persistent_shell": False}, False)], ids=str)
def test_a_container_ends_with_the_prompt(caller, prompt, engine, keys, kept):  # noqa: F811
    before = containers(engine)
    caller.config(backend="docker", docker_image=enginelib.IMAGE, container_persistent=True, container_memory=256, **keys)
    env = {"DOCKER_SOCKET": str(engine.socket)}
    person = prompt(env=env)
    assert len(containers(engine)) == len(before) + 1
    assert is_kept(person) == kept
    assert containers(engine) == before
    person = prompt(env=env)
    assert len(containers(engine)) == len(before) + 1  # the control
    os.kill(person.pid, signal.SIGKILL)
    person.wait()
    assert wait_until(lambda: is_gone(caller, person.below) and containers(engine) == before, 30), containers(engine)


# --- who is asked


@pytest.mark.parametrize("keys", ["n\n", "\n", "\x04"], ids=["no", "empty", "end of file"])
def test_a_person_at_the_same_terminal_decides(caller, prompt, keys):  # noqa: F811
    person = prompt("--backend", "local")
    person.line("touch first")
    assert "hermes session repl: this runs outside of a box: " in person.answer(keys)
    person.until(person.prompt)
    assert not (caller.work / "first").exists()
    person.line("touch second")  # the conversation goes on
    person.answer("y\n")
    person.until(person.prompt)
    assert (caller.work / "second").exists()
    person.leave()


def test_ctrl_c_at_a_question_gives_the_terminal_back(caller, prompt):  # noqa: F811
    """Otherwise the question takes the next line as its answer."""
    person = prompt("--backend", "local")
    person.line("touch first")
    person.answer("\x03")
    person.until("interrupted before it began")
    person.until(person.prompt)
    person.line("touch second")
    assert "second" in person.answer("y\n")
    person.until(person.prompt)
    assert (caller.work / "second").exists() and not (caller.work / "first").exists()
    person.leave()


def test_ctrl_c_interrupts_the_line_and_not_the_prompt(caller, prompt):  # noqa: F811
    person = prompt()
    person.run("x=still")
    person.line("sleep 31536000")
    assert wait_until(lambda: is_busy(caller))
    assert wait_until(lambda: any(name_of(pid) == "sleep" for pid in descendants(person.pid)))
    person.type("\x03")
    person.until(person.prompt)
    assert person.run("echo $x here") == "still here"
    person.leave()


def test_without_a_terminal_a_line_outside_of_a_box_is_refused(caller):  # noqa: F811
    done = piped(caller, "touch made", "-l", "bash", "--backend", "local")
    assert done.returncode == 2 and "--yes" in done.stderr and "--rules FILE" in done.stderr
    assert not (caller.work / "made").exists()
    assert piped(caller, "touch made", "-l", "bash", "--backend", "local", "--yes").returncode == 0  # the control
    assert (caller.work / "made").exists()


# --- how it ends


@pytest.mark.parametrize("backend", ["native", "local"])
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL", "SIGHUP", "closed terminal"])
def test_nothing_is_left_however_the_prompt_ends(caller, prompt, backend, end):  # noqa: F811
    person = prompt("--backend", backend, "--yes")
    person.line("sleep 31536000")

    def sleepers():
        return [pid for pid in descendants(person.pid) if name_of(pid) == "sleep"]
    assert wait_until(sleepers)
    below = descendants(person.pid)
    if end == "closed terminal":
        person.hang_up()
    else:
        os.kill(person.pid, getattr(signal, end))
    assert person.wait() != 0
    assert wait_until(lambda: is_gone(caller, below), 30), (caller.left(), [name_of(pid) for pid in below])


def test_it_ends_when_its_server_has_ended(caller, prompt):  # noqa: F811
    person = prompt()
    keeper = min(pid for pid in person.below if name_of(pid) == "hermes-session")
    os.kill(keeper, signal.SIGKILL)
    assert wait_until(lambda: not any(name_of(pid) == "hermes-server" for pid in descendants(1) if pid in person.below), 30)
    person.line("echo x")
    assert person.wait() == 125
    assert wait_until(lambda: is_gone(caller, person.below), 30)


# --- which server, and what is refused


@pytest.mark.skipif(not AS_ROOT, reason="needs a network namespace in which nobody serves")
def test_a_prompt_starts_a_server_and_other_commands_say_what_to_do(caller):  # noqa: F811
    def alone(*words, code=""):
        done = subprocess.run(["unshare", "--net", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh", HERMES, "session", *words],
                              input=code, env=caller.env, cwd=caller.work, capture_output=True, text=True, timeout=160 * SLOW)
        assert caller.left() == []
        return done
    assert alone("repl", "-l", "bash", code="id -un").stdout == "box\n"
    for words in (["new"], ["ls"], ["exec", "ses_x", "-e", "true"], ["terminal", "ses_x"], ["repl", "ses_x"], ["rm", "ses_x"]):
        done = alone(*words)
        if words[0] != "terminal":  # which wants a terminal first
            assert done.returncode == 125 and "`hermes serve --backends ~/.hermes/config.yaml`" in done.stderr, done
            assert "`hermes session repl`" in done.stderr
    for words in (["--url", "http://127.0.0.1:8000"], ["--unix", "/nonexistent"]):
        done = alone("repl", *words)
        assert done.returncode == 125 and "is `hermes serve` running there?" in done.stderr
    done = alone("repl", "--keep")
    assert done.returncode == 2 and "--keep needs a server that stays" in done.stderr


@pytest.mark.parametrize("words,env,problem", [
    (["--backend", "telnet"], {}, "you have no backend `telnet`"),
    ([], {"TERMINAL_ENV": "telnet"}, "backend is local, ssh, docker"),
    (["--backend", "local"], {"TERMINAL_LOCAL_PERSISTENT": "perhaps"}, "local_persistent is true or false"),
    (["--backend", "ssh"], {"TERMINAL_SSH_PERSISTENT": "2", "TERMINAL_SSH_HOST": "x"}, "ssh_persistent is true or false"),
    (["--backend", "local"], {"TERMINAL_PERSISTENT_SHELL": "perhaps"}, "persistent_shell is true or false"),
    (["--backend", "local", "-l", "python"], {}, "only bash sessions run there; say -l bash, or --backend native"),
    (["-l", "c"], {}, "there are no sessions of c"),
    (["-l", "../../etc"], {}, "unknown language"),
    (["--image", "x"], {}, "there is no image `x`"),
    (["ses_x"], {}, "leave out the ID"),
], ids=lambda value: str(value) if isinstance(value, list) else "")
def test_what_is_wrong_is_named(caller, words, env, problem):  # noqa: F811
    done = piped(caller, "true", *([] if "-l" in words else ["-l", "bash"]), "--yes", *words, env=env)
    assert done.returncode == 2 and problem in done.stderr and done.stdout == "", done


@pytest.mark.parametrize("text,problem", [({"persistent_shell": "perhaps"}, "persistent_shell is true or false"),
                                          ({"backend": "telnet"}, "backend is local, ssh, docker")], ids=str)
def test_wrong_values_of_the_file_are_named(caller, text, problem):  # noqa: F811
    caller.config(**text)
    done = piped(caller, "true", "-l", "bash", "--yes")
    assert done.returncode == 2 and problem in done.stderr, done


@pytest.mark.skipif(not AS_ROOT, reason="needs a file of another user")
def test_a_file_of_others_is_refused(caller):  # noqa: F811
    file = caller.config(backend="local")
    assert piped(caller, "true", "-l", "bash", "--yes").returncode == 0  # the control
    os.chown(file, 65534, 65534)
    done = piped(caller, "true", "-l", "bash", "--yes")
    assert done.returncode == 2 and "belongs to user 65534 and is not believed" in done.stderr


def test_yes_is_for_a_server_of_its_own(caller):  # noqa: F811
    done = subprocess.run([HERMES, "session", "repl", "--url", "http://127.0.0.1:1", "--yes"], env=caller.env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2 and "--own-server" in done.stderr
    assert re.search(r"--own-server\b", subprocess.run([HERMES, "session", "repl", "--help"], env=caller.env, capture_output=True,
                                                       text=True, timeout=60).stdout)
