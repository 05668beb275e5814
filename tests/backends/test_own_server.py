# SPDX-License-Identifier: Apache-2.0
"""`hermes exec` and `hermes backends` without a server: the caller's ~/.hermes/config.yaml, questions at the terminal, and
nothing left behind."""
import contextlib
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from apilib import ROOT, SLOW, UnixConnection, descendants, name_of, wait_until
from farlib import BUILD

HERMES = str(BUILD / "hermes")
AS_ROOT = os.geteuid() == 0
RULES = {"rules": [{"effect": "host_exec", "match": {"argv": ["id", "**"]}, "decision": "allow",
                    "examples": {"match": [{"backend": "local", "argv": ["id", "-u"]}]}}]}


class Caller:
    """A person with a home, a directory to work in, and a place for temporary files that must end up empty."""

    def __init__(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="own-", dir="/tmp"))
        self.home, self.work, self.tmp = self.top / "home", self.top / "home/work", self.top / "t"
        for path in (self.top, self.home, self.work, self.tmp):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        self.work.chmod(0o777)
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "TMPDIR": str(self.tmp), "HERMES_RUNTIMES": str(ROOT / "runtimes")}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "HERMES_MIN_LEVEL"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        if AS_ROOT:
            self.env["HERMES_BACKENDS_USER"] = "nobody"

    def config(self, **keys):
        (self.home / ".hermes").mkdir(exist_ok=True)
        file = self.home / ".hermes/config.yaml"
        file.write_text(json.dumps({"model": "x", "terminal": keys}))  # which is YAML, too
        return file

    def start(self, *words, env=None, cwd=None, **options):
        return subprocess.Popen([HERMES, *words], env={**self.env, **(env or {})}, cwd=cwd or self.work, start_new_session=True,
                                stdin=subprocess.DEVNULL, text=True, **options)

    def __call__(self, *words, own=True, **options):
        words = [words[0], "--own-server", *words[1:]] if own else words
        process = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        out, err = process.communicate(timeout=120 * SLOW)
        assert self.left() == [], "something is left behind"
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def left(self):
        return sorted(path.name for path in self.tmp.iterdir())

    def socket(self):
        found = list(self.tmp.glob("*/socket"))
        return found[0] if found else None


@pytest.fixture
def caller():
    person = Caller()
    yield person
    assert wait_until(lambda: person.left() == []), person.left()
    shutil.rmtree(person.top)


def test_without_a_file_a_command_runs_in_a_box(caller):
    done = caller("exec", "--env", "A=b c", "--", "sh", "-c", "echo \"$A\"; id -un; exit 3")
    assert (done.stdout, done.returncode) == ("b c\nbox\n", 3), done


def test_the_callers_file_names_the_place_and_the_directory(caller):
    caller.config(backend="local", persistent_shell=False, container_memory=64)
    done = caller("exec", "--yes", "--", "sh", "-c", "pwd; id -u", env={"TERMINAL_LOCAL_PERSISTENT": "true"})
    assert done.stdout.splitlines() == [str(caller.work), "65534" if AS_ROOT else str(os.geteuid())], done
    assert caller("exec", "--backend", "native", "--", "id", "-un").stdout == "box\n"


def test_variables_come_before_the_file(caller):
    caller.config(backend="ssh", ssh_host="127.0.0.1", ssh_port=1, cwd="/")
    done = caller("exec", "--yes", "--", "pwd", env={"TERMINAL_ENV": "local", "TERMINAL_CWD": "/usr"})
    assert (done.stdout, done.returncode) == ("/usr\n", 0), done
    assert "backend ssh: unreachable" in caller("exec", "--yes", "--", "pwd").stderr


def test_ssh_with_a_real_sshd(caller, sshd):
    for path in (sshd.dir, sshd.dir / "user"):
        path.chmod(0o755 if path.is_dir() else 0o644 if AS_ROOT else 0o600)
    caller.config(backend="ssh", ssh_host="127.0.0.1", ssh_port=sshd.port, ssh_user=sshd.user, ssh_key=str(sshd.dir / "user"),
                  ssh_known_hosts=str(sshd.dir / "known_hosts"), cwd="/usr")
    done = caller("exec", "--yes", "--", "sh", "-c", "echo \"$PWD ${SSH_CONNECTION%% *}\"; exit 5")
    assert (done.stdout, done.returncode) == ("/usr 127.0.0.1\n", 5), done
    assert wait_until(lambda: not sshd.children()), "a connection is left"


def test_backends_lists_the_file_and_what_is_not_used(caller):
    caller.config(backend="local", ssh_host="127.0.0.1", persistent_shell=False, not_a_key=1, container_persistent=True, docker_image="a/b:c")
    done = caller("backends", "--json", env={"HERMES_BACKENDS_USER": "nobody"} if AS_ROOT else None)
    if AS_ROOT:  # local and docker on one server of root's are refused, as for every server
        assert done.returncode == 125 and "kinds local and docker on one server" in done.stderr or done.returncode == 0
        caller.config(backend="local", ssh_host="127.0.0.1", persistent_shell=False, not_a_key=1)
    done = caller("backends", "--json", env={"TERMINAL_TIMEOUT": "5", "TERMINAL_SSH_HOSTNAME": "x", "TERMINAL_SSH_PORT": "22"})
    rows = {row["name"] for row in json.loads(done.stdout)["backends"]}
    assert {"native", "local", "ssh"} <= rows
    assert "terminal.not_a_key is not known" in done.stderr and "persistent_shell" not in done.stderr
    assert "the variable TERMINAL_TIMEOUT has no meaning" in done.stderr and "the variable TERMINAL_SSH_HOSTNAME is not known" in done.stderr
    assert "TERMINAL_SSH_PORT" not in done.stderr


# --- who is asked


def test_without_a_terminal_a_command_outside_of_a_box_is_refused(caller):
    done = caller("exec", "--backend", "local", "--", "touch", "made")
    assert done.returncode == 2 and "--yes" in done.stderr and "--rules FILE" in done.stderr
    assert not (caller.work / "made").exists()
    assert caller("exec", "--backend", "local", "--yes", "--", "touch", "made").returncode == 0  # the control
    assert (caller.work / "made").exists()


def test_rules_allow_what_they_name_and_nothing_else(caller):
    rules = caller.home / "rules.json"
    rules.write_text(json.dumps(RULES))
    assert caller("exec", "--backend", "local", "--rules", str(rules), "--", "id", "-u").returncode == 0
    done = caller("exec", "--backend", "local", "--rules", str(rules), "--", "touch", "made")
    assert done.returncode == 2 and not (caller.work / "made").exists()


def test_yes_does_not_permit_what_is_never_permitted(caller):
    done = caller("exec", "--backend", "local", "--yes", "--", "rm", "-rf", "/")
    assert done.returncode == 2 and "never permitted" in done.stderr


def at_terminal(caller, keys, *words):
    """Runs the command at a terminal of its own and types `keys` when it asks. Returns its status and what was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(caller.work)
        os.execve(HERMES, [HERMES, "exec", "--own-server", *words], caller.env)
    shown, keys, deadline = "", list(keys), time.monotonic() + 120 * SLOW
    asked = 0
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                piece = os.read(terminal, 4096).decode()
            except OSError:
                break
            if not piece:
                break
            shown += piece
        if shown.count("no: ") > asked and keys:
            asked += 1
            time.sleep(0.1)  # a person does not answer before the question; earlier keys are dropped
            os.write(terminal, keys.pop(0).encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


@pytest.mark.parametrize("keys,status,is_made", [(["y\n"], 0, True), (["s\n"], 0, True), (["n\n"], 2, False), (["\n"], 2, False),
                                                 (["yy\n"], 2, False), (["\x04"], 2, False)],
                         ids=["once", "session", "no", "empty", "unknown", "end of file"])
def test_a_person_at_the_terminal_decides(caller, keys, status, is_made):
    code, shown = at_terminal(caller, keys, "--backend", "local", "--", "touch", "made")
    assert code == status and "touch made" in shown and "[y] once  [s] for this session  [n] no" in shown, shown
    assert (caller.work / "made").exists() == is_made
    assert wait_until(lambda: caller.left() == [])


def test_a_question_shows_no_control_characters(caller):
    code, shown = at_terminal(caller, ["n\n"], "--backend", "local", "--", "touch", "a\x1b[2Jb\nsecond line")
    assert code == 2 and "\x1b[2J" not in shown and "'touch' 'a?[2Jb" in shown and "second line" in shown, shown


def test_ctrl_c_at_the_question_ends_it(caller):
    code, shown = at_terminal(caller, ["\x03"], "--backend", "local", "--", "touch", "made")
    assert code != 0 and not (caller.work / "made").exists(), shown
    assert wait_until(lambda: caller.left() == [])


# --- what may not have a say


@pytest.mark.skipif(not AS_ROOT, reason="needs a file of another user")
def test_a_file_of_others_is_refused(caller):
    file = caller.config(backend="local")
    assert caller("exec", "--yes", "--", "true").returncode == 0  # the control
    file.chmod(0o666)
    assert "can be written by other users" in caller("exec", "--yes", "--", "true").stderr
    file.chmod(0o644)
    os.chown(file, 65534, 65534)
    done = caller("exec", "--yes", "--", "true")
    assert done.returncode == 2 and "belongs to user 65534 and is not believed" in done.stderr


@pytest.mark.parametrize("env,problem", [
    ({"TERMINAL_ENV": "telnet"}, "backend is local, ssh, docker"),
    ({"TERMINAL_ENV": "ssh", "TERMINAL_SSH_HOST": "-oProxyCommand=id"}, "ssh_host: this is not a valid name"),
    ({"TERMINAL_ENV": "local", "TERMINAL_CWD": "/a\nkind = docker"}, "one line"),
    ({"TERMINAL_ENV": "local", "TERMINAL_LOCAL_PERSISTENT": "perhaps"}, "local_persistent is true or false"),
    ({"TERMINAL_ENV": "docker", "TERMINAL_DOCKER_VOLUMES": "[\"a\"]"}, "docker_volumes has /SOURCE:/TARGET"),
    ({"TERMINAL_ENV": "docker", "TERMINAL_DOCKER_RUN_AS_HOST_USER": "true"}, "docker_run_as_host_user: Hermes does not have this"),
    ({"TERMINAL_ENV": "docker", "TERMINAL_DOCKER_FORWARD_ENV": "HERMES_API_KEY"}, "a setting of Hermes"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_variables_are_named(caller, env, problem):
    done = caller("exec", "--yes", "--", "true", env=env)
    assert done.returncode == 2 and problem in done.stderr, done


@pytest.mark.skipif(not AS_ROOT, reason="only root has no user for commands")
def test_roots_commands_need_a_user(caller):
    done = caller("exec", "--yes", "--backend", "local", "--", "true", env={"HERMES_BACKENDS_USER": ""})
    assert done.returncode == 2 and "HERMES_BACKENDS_USER" in done.stderr


def test_settings_of_other_servers_do_not_reach_it(caller):
    (caller.work / ".env").write_text("HERMES_PORT=no-number\n")
    control = subprocess.run([HERMES, "serve", "--state-dir", str(caller.top / "state")], cwd=caller.work, env=caller.env,
                             capture_output=True, text=True, timeout=60)
    assert control.returncode == 2 and "no-number" in control.stderr
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = caller.start("exec", "--own-server", "--", "sleep", "1000",
                           env={"HERMES_LISTEN": "127.0.0.1:%d" % port, "API_TOKEN": "x", "HERMES_CONFIG": "/nonexistent"})
    try:
        assert wait_until(lambda: is_busy(caller) or process.poll() is not None) and process.poll() is None
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    finally:
        process.terminate()
        process.wait()


def is_busy(caller):
    """Whether the command of the server runs."""
    path = caller.socket()
    if not path:
        return False
    with contextlib.suppress(OSError):
        connection = UnixConnection(path, 10)
        connection.request("GET", "/v1/sessions")
        return any(one["state"] == "busy" for one in json.loads(connection.getresponse().read())["sessions"])
    return False


@pytest.mark.parametrize("place", ["/", "home", "above"])
def test_homes_are_not_mounted(caller, place):
    cwd = {"/": "/", "home": caller.home, "above": caller.top}[place]
    caller.config(backend="docker", docker_mount_cwd_to_workspace=True)
    done = caller("exec", "--yes", "--", "true", cwd=cwd, env={"DOCKER_SOCKET": str(caller.top / "no-engine")})
    assert done.returncode == 2 and "cannot be /workspace" in done.stderr, done
    done = caller("exec", "--yes", "--", "true", env={"DOCKER_SOCKET": str(caller.top / "no-engine")})
    assert "backend docker: " in done.stderr and "/workspace" not in done.stderr, done  # the control: only the engine is missing


# --- how it ends


@pytest.fixture
def busy(caller):
    """A command that runs, with all processes below it. Ends them."""
    caller.config(backend="local")
    process = caller.start("exec", "--own-server", "--yes", "--timeout", "5m", "--", "sleep", "31536000")

    def runs():
        return any(name_of(pid) == "sleep" for pid in descendants(process.pid))
    try:
        assert wait_until(lambda: runs() or process.poll() is not None, 30) and runs()
        below = descendants(process.pid)
        assert any(name_of(pid) == "hermes-server" for pid in below)
        yield process, below
    finally:
        process.kill()
        process.wait()


def runs(pid):
    """A zombie does not: reaping it is the business of the machine's own init."""
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def is_gone(caller, below):
    return caller.left() == [] and not any(map(runs, below))


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda sig: sig.name)
def test_nothing_is_left_when_the_command_is_ended(caller, busy, sig):
    process, below = busy
    assert caller.left() and not is_gone(caller, below)  # the control
    process.send_signal(sig)
    assert process.wait(60) != 0
    assert wait_until(lambda: is_gone(caller, below), 30), (caller.left(), [name_of(pid) for pid in below])


def test_the_server_ends_when_its_keeper_is_killed(caller, busy):
    process, below = busy
    keeper = min(pid for pid in below if name_of(pid) == "hermes-session")
    os.kill(keeper, signal.SIGKILL)
    assert process.wait(60) != 0
    assert wait_until(lambda: is_gone(caller, below), 30), (caller.left(), [name_of(pid) for pid in below])


@pytest.mark.skipif(not AS_ROOT, reason="needs another user")
def test_no_other_user_reaches_the_server(caller, busy):
    path = str(caller.socket())
    probe = "import socket; socket.socket(socket.AF_UNIX).connect(%r)" % path
    assert subprocess.run(["/usr/bin/python3", "-c", probe]).returncode == 0  # the control
    for user in ("65534", "64999"):
        done = subprocess.run(["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "/usr/bin/python3", "-c", probe],
                              capture_output=True, text=True)
        assert "PermissionError" in done.stderr


# --- which server


@pytest.mark.skipif(not AS_ROOT, reason="needs a network namespace in which nobody serves")
def test_a_server_is_started_only_when_none_is_named_or_there(caller):
    def alone(*words, before=""):
        script = "ip link set lo up; %s exec \"$@\"" % before
        done = subprocess.run(["unshare", "--net", "sh", "-c", script, "sh", HERMES, *words], env=caller.env, cwd=caller.work,
                              capture_output=True, text=True, timeout=120 * SLOW, stdin=subprocess.DEVNULL)
        assert caller.left() == []
        return done
    assert alone("exec", "--", "id", "-un").stdout == "box\n"
    for words in (["exec", "--url", "http://127.0.0.1:8000", "true"], ["exec", "--unix", "/nonexistent", "true"]):
        done = alone(*words)
        assert done.returncode == 125 and "is `hermes serve` running there?" in done.stderr
    done = alone("session", "ls")
    assert done.returncode == 125 and "`hermes serve --backends ~/.hermes/config.yaml`" in done.stderr
    listener = "/usr/bin/python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 8000)); print(flush=True); c = s.accept()[0]; " \
        "c.close(); c = s.accept()[0]; c.close()' | { read x;"
    done = subprocess.run(["unshare", "--net", "sh", "-c", "ip link set lo up; %s exec \"$@\"; }" % listener, "sh", HERMES, "exec", "true"],
                          env=caller.env, cwd=caller.work, capture_output=True, text=True, timeout=60 * SLOW, stdin=subprocess.DEVNULL)
    assert done.returncode == 125, done  # what answers there is used, right or wrong


def test_yes_is_for_a_server_of_its_own(caller):
    done = caller("exec", "--url", "http://127.0.0.1:1", "--yes", "true", own=False)
    assert done.returncode == 2 and "--own-server" in done.stderr


def test_a_session_answer_to_what_can_be_approved_once_only_is_for_once(caller):
    """The server refuses such an answer. The command does not wait for another one."""
    code, shown = at_terminal(caller, ["s\n"], "--backend", "local", "--", "bash", "-c", "x=made; touch \"$x\"")
    assert code == 0 and (caller.work / "made").exists() and "allowed once" in shown, shown


def test_a_question_shows_words_apart_and_what_a_session_covers(caller):
    code, shown = at_terminal(caller, ["n\n"], "--backend", "local", "--", "touch", "a; rm b", "$x", "")
    assert code == 2 and "command: touch 'a; rm b' '$x' ''" in shown and "run a command on local: touch 'a; rm b' '$x' ''" in shown, shown
    assert "for this session:" not in shown
    code, shown = at_terminal(caller, ["n\n"], "--backend", "local", "--", "cat", "made")
    assert code == 2 and "command: cat made" in shown and "for this session: cat *" in shown, shown


def test_a_question_shows_all_words_redirections_and_the_directory(caller):
    text = "cd sub && printf %s a\u202eb\u200bc\u2028 " + "x" * 300 + "TAIL >run.sh"
    code, shown = at_terminal(caller, ["n\n"], "--backend", "local", "--", "bash", "-c", text)
    flat = shown.replace("\r\n", "\n")
    assert code == 2 and "x" * 300 + "TAIL" in flat and "opens: >run.sh" in flat and "cd sub" in flat, shown
    assert "a<U+202E>b<U+200B>c<U+2028>" in flat and not set("\u202e\u200b\u2028") & set(shown), shown
    code, shown = at_terminal(caller, ["n\n"], "--backend", "local", "--", "touch", "y" * 6000)
    assert code == 2 and "more bytes: hermes approvals show" in shown, shown
