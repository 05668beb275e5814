# SPDX-License-Identifier: Apache-2.0
"""Commands in a place that is no box: every one is asked, denied, or was granted before."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

from apilib import ROOT, Server, borrow_dir, return_dir, wait_until
from approvallib import ALICE, BOB, BOSS, KEYS, Later, Listener, check_log, decide, pending, read_log

BUILD = pathlib.Path(os.environ["HERMES_BUILD_DIR"])
BACKENDS = "[backend here]\nkind = local\nkeys = alice, bob\ncwd = {cwd}\n[backend there]\nkind = local\nkeys = alice\ncwd = {cwd}\n"
ALLOW_ALL = {"effect": "host_exec", "match": {}, "decision": "allow", "examples": {"match": [{"backend": "here", "argv": ["ls"]}]}}


class Place:
    """A server with a local backend, and the directory of its commands."""

    def __init__(self, path, **env):
        self.path = path
        self.cwd = pathlib.Path(tempfile.mkdtemp(prefix="hermes-host-"))
        self.cwd.chmod(0o777)
        for name, text in (("keys", KEYS), ("places", BACKENDS.format(cwd=self.cwd))):
            (path / name).write_text(text)
            (path / name).chmod(0o600)
        args = ["--backends", str(path / "places")] + (["--backends-user", "nobody"] if os.geteuid() == 0 else [])
        self.server = Server(path, args=args, env={"HERMES_KEYS_FILE": str(path / "keys"), **env})

    def close(self):
        if self.server.process.poll() is None:
            assert self.server.stop() == 0
        shutil.rmtree(self.cwd, ignore_errors=True)

    def open(self, key=ALICE, backend="here", **more):
        reply = self.server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **more}, key=key)
        assert reply.status == 201, reply
        return Shell(self.server, key, reply.json()["id"])


class Shell:
    def __init__(self, server, key, id):
        self.server, self.key, self.id = server, key, id
        self.path = "/v1/sessions/" + id

    def __call__(self, code, **more):
        return self.server("POST", self.path + "/exec", {"code": code, **more}, key=self.key)

    def later(self, code, **more):
        return Later(lambda: self(code, **more))

    def asked(self, code, decision="approve", scope="once", **more):
        """Runs it while somebody decides about every question; returns reply and questions."""
        run, seen = self.later(code, **more), {}
        while run.is_alive():
            for one in self.server("GET", "/v1/approvals?state=pending", key=self.key).json()["approvals"]:
                if one["id"] not in seen:
                    seen[one["id"]] = one
                    wanted = {"decision": decision, "scope": scope} if decision == "approve" else {"decision": decision}
                    reply = self.server("POST", "/v1/approvals/" + one["id"], wanted, key=self.key)
                    if reply.status == 400:  # it can be approved once only
                        reply = self.server("POST", "/v1/approvals/" + one["id"], {"decision": decision}, key=self.key)
                    assert reply.status in (200, 409), reply
            run.join(0.02)
        return run.result(), list(seen.values())


@pytest.fixture(scope="module")
def place():
    path = borrow_dir()
    made = Place(path)
    yield made
    made.close()
    return_dir(path)


def code_of(reply):
    return reply.json()["error"]["code"]


def words(question):
    return question["effect"]["argv"]


def test_nobody_there_is_an_answer_at_once_and_nothing_runs(place):
    shell = place.open()
    for code in ("touch marker", "ls", "bash -c 'touch marker'", "if"):
        reply = shell(code)
        assert reply.status == 403 and code_of(reply) == "approval_unavailable", reply
        assert "hermes approvals" in reply.json()["error"]["message"]
    assert not (place.cwd / "marker").exists()
    assert shell("x=5; echo $x; cd /; pwd").json()["stdout"] == "5\n/\n"  # the shell's own state asks nobody
    native = place.server("POST", "/v1/sessions", {"language": "bash"}, key=ALICE).json()["id"]
    assert place.server("POST", "/v1/sessions/%s/exec" % native, {"code": "touch marker; ls"}, key=ALICE).json()["stdout"] == "marker\n"


def test_a_question_shows_the_command_and_decides(place):
    shell = place.open()
    with Listener(place.server, ALICE):
        reply, asked = shell.asked("echo hi >out.txt; cat out.txt | wc -c")
        assert reply.json()["stdout"] == "3\n", reply
        asked.sort(key=words)
        assert [(words(q), q["effect"]["redirections"], q["effect"]["files"]) for q in asked] == [
            (["cat", "out.txt"], [], []), (["echo", "hi"], [">out.txt"], ["out.txt"]), (["wc", "-c"], [], [])]
        first = asked[1]
        assert first["effect"]["backend"] == "here" and first["effect"]["cwd"] == str(place.cwd)
        assert first["session"] == shell.id and first["summary"].startswith("run a command on here: echo hi")
        assert [a["state"] for a in reply.json()["approvals"]] == ["approved"] * 3
        reply, asked = shell.asked("touch no-marker", decision="deny")
        assert reply.status == 403 and code_of(reply) == "approval_denied" and len(asked) == 1
        assert not (place.cwd / "no-marker").exists()


def test_never_is_denied_in_every_mode_and_by_every_spelling(place):
    shell = place.open()
    with Listener(place.server, ALICE):
        for code in ("rm -rf /", "r\\m -r\"f\" ''/", "$'\\x72m' -rf ~/", "bash -c 'sudo rm -fr /etc/../'", "eval 'mkfs.ext4 /dev/sda'",
                     "true && (reboot)", "echo $(dd if=/dev/zero of=/dev/sda)", ":(){ :|:& };:", "echo x >/dev/sda", "kill -9 -1",
                     "trap 'rm -rf ~' EXIT", "timeout 5 nice -n 3 rm -rf --no-preserve-root /", "sh <<'E'\nrm -rf /usr\nE"):
            reply = shell(code)
            assert reply.status == 403 and code_of(reply) == "approval_denied", (code, reply)
            assert "never permitted" in reply.json()["error"]["message"]
        assert place.server("PUT", "/v1/approvals/rules", {"rules": [ALLOW_ALL]}, key=BOSS).status == 200
        try:
            assert shell("rm -rf /").status == 403 and shell("ls").status == 200  # the control is the same rule
        finally:
            assert place.server("PUT", "/v1/approvals/rules", {"rules": []}, key=BOSS).status == 200


def test_rules_are_about_commands(place):
    def rule(decision, argv, example=None):
        return {"effect": "host_exec", "match": {"argv": argv}, "decision": decision,
                "examples": {"match": [{"backend": "here", "argv": example or [w for w in argv if w != "**"]}]}}
    shell = place.open()
    rules = [rule("allow", ["cat", "**"]), rule("deny", ["cat", "/etc/**"], ["cat", "/etc/x"]), rule("allow", ["touch", "a*"], ["touch", "ab"])]
    assert place.server("PUT", "/v1/approvals/rules", {"rules": rules}, key=BOSS).status == 200
    try:
        assert code_of(place.server("PUT", shell.path + "/files/cat", b"x", key=ALICE)) == "approval_unavailable"  # a file, no command
        (place.cwd / "f").write_text("text")
        assert shell("cat f").json()["stdout"] == "text"
        assert code_of(shell("cat /etc/passwd")) == "approval_denied"
        assert code_of(shell("cat \"$x\"")) == "approval_denied"  # it may be /etc/passwd
        assert shell("touch abc").status == 200
        for code in ("touch $x", "touch abc; id", "touch ../abc", "sudo touch abc", "PATH=. touch abc", "touch abc >f", "touch a\\*b $(id)", "if", "touch"):
            assert code_of(shell(code)) == "approval_unavailable", code
    finally:
        assert place.server("PUT", "/v1/approvals/rules", {"rules": []}, key=BOSS).status == 200


def test_a_grant_is_for_these_words_here_only(place):
    shell, other, elsewhere = place.open(), place.open(), place.open(backend="there")
    with Listener(place.server, ALICE):
        for code in ("touch one", "rm -r one", "git --version", "cat one two"):
            (place.cwd / "one").touch()
            reply, asked = shell.asked(code, scope="session")
            assert len(asked) == 1 and reply.status == 200, (code, reply)
    (place.cwd / "one").touch()
    for code in ("touch one", "'touch' o\"ne\"", "rm -r one"):
        assert shell(code).status == 200, code  # nobody listens: it was not asked
    assert shell("cat other files").status == 200  # an ordinary command: its files vary, as the question showed
    bad = ["touch two", "touch one two", "touch", "touch one >f", "touch $x", "cd /tmp; touch one", "rm -rf one", "rm -r one /tmp/x",
           "X=1 touch one", "sudo touch one", "rm -r \"$one\"", "cat -A one", "cat one >f", "cat ~/.ssh/id_rsa", "cat .env", "cat $x", "nice cat one"]
    for code in bad:
        assert shell(code).status == 403, code
    assert other("touch one").status == 403 and elsewhere("touch one").status == 403
    bobs = place.open(key=BOB)
    assert bobs("touch one").status == 403
    shell("cd /tmp")
    assert shell("touch one").status == 403  # another directory
    shell("cd %s" % place.cwd)
    assert shell("touch one").status == 200


def test_the_same_command_twice_is_asked_when_one_of_them_is(place):
    """Both have the same words; only the second one reads what the text says."""
    shell = place.open()
    with Listener(place.server, ALICE):
        reply, asked = shell.asked("tee kept", scope="session")
        assert reply.status == 200 and len(asked) == 1
    assert shell("tee kept; tee kept").status == 200  # the control
    assert shell("tee kept; echo evil | tee kept").status == 403
    assert shell("echo evil | tee kept; tee kept").status == 403
    assert (place.cwd / "kept").read_text() == ""


def test_the_name_of_a_directory_is_no_command(place):
    shell = place.open()
    for name in ("a; cd b", "a", "a/b"):
        (place.cwd / name).mkdir()
        (place.cwd / name).chmod(0o777)
    with Listener(place.server, ALICE):
        shell("cd a")
        assert shell.asked("cd b; touch one", scope="session")[0].status == 200
    shell("cd %s/a" % place.cwd)
    assert shell("cd b; touch one").status == 200  # the control
    shell("cd '%s/a; cd b'" % place.cwd)
    assert shell("touch one").status == 403


def revoke_all(place):
    for grant in place.server("GET", "/v1/approvals/grants", key=ALICE).json()["grants"]:
        place.server("DELETE", "/v1/approvals/grants/%s" % grant["id"], key=ALICE)


def test_a_grant_for_ever_binds_the_variables_of_the_session(place):
    with Listener(place.server, ALICE):
        for env in ({}, {"FLAVOUR": "x"}):
            reply, asked = place.open(env=env).asked("ls -1", scope="always")
            assert reply.status == 200 and len(asked) == 1
    for env, status in (({}, 200), ({"FLAVOUR": "x"}, 200), ({"FLAVOUR": "y"}, 403), ({"OTHER": "x"}, 403)):
        assert place.open(env=env)("ls -1").status == status, env
    revoke_all(place)


def test_a_line_end_in_a_variable_begins_no_other_variable(place):
    """These sessions have as many variables and the same text of them, if it is made of lines; a program sees different ones."""
    with Listener(place.server, ALICE):
        for env in ({"A": "1\nTOOL_PLUGIN=x", "B": "2"}, {"A": "1", "TOOL_PLUGIN": "x\nB=2"}):
            reply, asked = place.open(env=env).asked("ls -1", scope="always")
            assert reply.status == 200 and len(asked) == 1, (env, asked)
    revoke_all(place)


def test_an_integer_of_an_approved_text_makes_later_assignments_asked(place):
    """`declare -i n` looks harmless, and n='a[$(command)]' then runs a command."""
    shell, other = place.open(), place.open()
    free = "n=5; for n in 1 2; do :; done; b=$(echo 1); n=$b"
    with Listener(place.server, ALICE):
        assert shell.asked(free)[1] == []  # the control
        reply, asked = shell.asked("declare -i n")
        assert reply.status == 200 and len(asked) == 1
        reply, asked = shell.asked("n=$b")
        assert reply.status == 200 and [q["effect"]["danger"] for q in asked] == ["shell.evaluate"]
        assert len(shell.asked("n=$b", scope="session")[1]) == 1  # again: no approval of it lasts
        assert shell.asked("n=b", decision="deny")[0].status == 403
        assert other.asked(free)[1] == []  # another shell


def test_an_assignment_that_reaches_programs_is_asked(place):
    """`export` is asked, and so is what changes its value later."""
    shell, other, made = place.open(), place.open(), place.open(env={"flavour": "a"})
    with Listener(place.server, ALICE):
        assert shell.asked("flavour=a")[1] == []  # the control
        assert len(shell.asked("export flavour=a", scope="session")[1]) == 1
        assert len(shell.asked("env", scope="session")[1]) == 1
        assert len(shell.asked("flavour=b", scope="session")[1]) == 1
    for code in ("flavour=evil; env", "flavour+=evil; env", "for flavour in evil; do env; done", "declare flavour=evil; env", "set -a; flavour=evil"):
        assert shell(code).status == 403, code
    assert made("flavour=evil").status == 403 and made("y=evil").status == 200 and shell("y=evil").status == 200
    assert other("flavour=evil").status == 200  # another shell
    assert "flavour=b\n" in shell("env").json()["stdout"]
    with Listener(place.server, ALICE):
        assert len(other.asked("export x=a; x=b")[1]) == 2
        assert len(other.asked("set -a")[1]) == 1
        assert len(other.asked("z=1")[1]) == 1


def test_what_is_known_only_at_run_time_is_approved_once_only(place):
    shell = place.open()
    with Listener(place.server, ALICE):
        for code in ("$(echo ls)", "eval \"$x\"", "echo ls | sh", "if", "f() { ls; }", "echo $((x))", "source ./x", "rm -r $x"):
            run = shell.later(code)
            found = pending(place.server, ALICE, 2 if code == "f() { ls; }" else 1)
            for one in found:
                if words(one) == ["ls"] and code.startswith("f()"):
                    decide(place.server, ALICE, one["id"])
                    continue
                for scope in ("session", "always"):
                    reply = decide(place.server, ALICE, one["id"], scope=scope)
                    assert reply.status == 400 and "once only" in reply.json()["error"]["message"], (code, reply)
                decide(place.server, ALICE, one["id"])
            assert run.result().status == 200, code
            assert pending(place.server, ALICE, 0) == []


def test_files_and_stdin_are_asked_once_for_a_session(place):
    shell = place.open()
    put = lambda name: place.server("PUT", shell.path + "/files/" + name, b"data", key=ALICE)
    assert code_of(put("f1")) == "approval_unavailable" and not (place.cwd / "f1").exists()
    assert code_of(place.server("DELETE", shell.path + "/files/f", key=ALICE)) == "approval_unavailable"
    with Listener(place.server, ALICE):
        run = Later(lambda: put("f1"))
        one = pending(place.server, ALICE)[0]
        assert one["effect"]["action"] == "file" and one["effect"]["files"] == ["f1"] and "write or delete files on here" in one["summary"]
        decide(place.server, ALICE, one["id"])
        assert run.result().status == 201
        reply, asked = shell.asked("bash", stdin="echo hello")
        assert reply.json()["stdout"] == "hello\n" and sorted(q["effect"]["action"] for q in asked) == ["command", "stdin"]
        reply, asked = shell.asked("bash", stdin="echo again")
        assert reply.json()["stdout"] == "again\n" and [q["effect"]["action"] for q in asked] == ["command"]
    assert put("f2").status == 201 and place.server("DELETE", shell.path + "/files/f2", key=ALICE).status == 204
    assert place.server("PUT", place.open().path + "/files/f3", b"", key=ALICE).status == 403  # another session


def test_a_terminal_is_asked(place):
    shell = place.open()
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    reply = place.server("GET", shell.path + "/pty", headers=upgrade, key=ALICE)
    assert code_of(reply) == "approval_unavailable" and "open a terminal on here" in reply.json()["error"]["message"]
    with Listener(place.server, ALICE):
        Later(lambda: place.server("GET", shell.path + "/pty", headers=upgrade, key=ALICE))
        one = pending(place.server, ALICE)[0]
        assert one["effect"]["action"] == "terminal" and decide(place.server, ALICE, one["id"], "deny").status == 200


def test_variables_that_change_programs_are_asked(place):
    make = lambda env: place.server("POST", "/v1/sessions", {"language": "bash", "backend": "here", "env": env}, key=ALICE)
    assert make({"WORD": "x"}).status == 201
    for name in ("PATH", "LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "PROMPT_COMMAND"):
        assert code_of(make({name: "/tmp/x"})) == "approval_unavailable", name
    with Listener(place.server, ALICE):
        run = Later(lambda: make({"GIT_PAGER": "cat"}))
        one = pending(place.server, ALICE)[0]
        assert one["effect"]["action"] == "environment" and one["effect"]["text"] == "GIT_PAGER=cat"
        decide(place.server, ALICE, one["id"])
        assert run.result().status == 201


def test_many_commands_are_one_question(place):
    shell = place.open()
    with Listener(place.server, ALICE):
        reply, asked = shell.asked("".join("touch many%d\n" % i for i in range(12)))
        assert reply.status == 200 and len(asked) == 1 and asked[0]["effect"]["action"] == "text"
        assert "touch many11" in asked[0]["effect"]["text"]
        reply = shell("".join("touch many%d\n" % i for i in range(12)) + "rm -rf /\n")
        assert code_of(reply) == "approval_denied" and pending(place.server, ALICE, 0) == []


@pytest.mark.parametrize("code", ["echo '" + "x" * (64 << 10) + "'", "(" * 3000 + ")" * 3000, "$(" * 500 + "ls" + ")" * 500, "a=\x01; ls",
                                  "ls\r\nls", "ls #" + "\u2028", "cat <<E\nx", "if", "ls; )",
                                  ";".join("$(a)" for _ in range(3000)), "bash -c 'bash -c \"bash -c \\\"bash -c ls\\\"\"'"])
def test_strange_texts_are_asked(place, code):
    shell = place.open()
    assert shell(code).status == 403
    with Listener(place.server, ALICE):
        reply, asked = shell.asked(code, decision="deny")
        assert reply.status == 403 and code_of(reply) == "approval_denied" and asked


def test_a_zero_byte_is_no_text(place):
    assert place.open()("echo a\0touch marker").status in (400, 403) and not (place.cwd / "marker").exists()


def test_the_wait_ends_with_its_asker(place):
    with Listener(place.server, ALICE):
        shell = place.open()
        run = shell.later("touch gone")
        question = pending(place.server, ALICE)[0]["id"]
        assert place.server("POST", shell.path + "/interrupt", key=ALICE).status in (200, 202, 204)
        assert run.result().status == 409 and decide(place.server, ALICE, question).status == 409
        run = shell.later("touch gone")
        question = pending(place.server, ALICE)[0]["id"]
        assert place.server("DELETE", shell.path, key=ALICE).status == 204
        assert run.result().status == 409 and decide(place.server, ALICE, question).status == 409
        shell = place.open()
        link = place.server.connect()
        link.request("POST", shell.path + "/exec", json.dumps({"code": "touch gone"}),
                     {"Authorization": "Bearer " + ALICE, "Content-Type": "application/json"})
        question = pending(place.server, ALICE)[0]["id"]
        link.close()
        assert wait_until(lambda: place.server("GET", "/v1/approvals/" + question, key=ALICE).json()["state"] == "lost")
        assert decide(place.server, ALICE, question).status == 409
        assert shell("echo free", wait=True).json()["stdout"] == "free\n" and not (place.cwd / "gone").exists()


def test_two_clients_first_decision_counts_and_nothing_runs_twice(place):
    shell = place.open()
    with Listener(place.server, ALICE), Listener(place.server, BOSS):
        run = shell.later("echo x >>count")
        question = pending(place.server, ALICE)[0]["id"]
        assert code_of(decide(place.server, BOB, question)) == "not_found"
        first = decide(place.server, BOSS, question)
        assert first.status == 200 and decide(place.server, ALICE, question, "deny").status == 409
        assert decide(place.server, ALICE, question).status == 200  # the same again
        assert run.result().status == 200 and (place.cwd / "count").read_text() == "x\n"
        one, two = shell.later("echo y >>count", wait=True), shell.later("echo y >>count", wait=True)
        decide(place.server, ALICE, pending(place.server, ALICE)[0]["id"])
        assert wait_until(lambda: one.reply or two.reply)
        decide(place.server, ALICE, pending(place.server, ALICE)[0]["id"], "deny")  # `once` was for the other
        assert sorted([one.result().status, two.result().status]) == [200, 403]
        assert (place.cwd / "count").read_text() == "x\ny\n"


def test_a_server_that_is_killed_forgets_the_question():
    path = borrow_dir()
    place = Place(path)
    try:
        shell = place.open()
        with Listener(place.server, ALICE) as listener:
            run = shell.later("touch after")
            question = pending(place.server, ALICE)[0]["id"]
            place.server.process.send_signal(signal.SIGKILL)
            place.server.process.wait()
            run.join(60)
            listener.thread.join(10)
            listener.close = lambda: None
        again = Place(path)
        try:
            assert wait_until(lambda: again.server("GET", "/v1/approvals/" + question, key=ALICE).json()["state"] == "lost")
            assert decide(again.server, ALICE, question).status == 409
            assert not (place.cwd / "after").exists()
            check_log(read_log(again.server))
        finally:
            again.close()
    finally:
        place.close()
        return_dir(path)


DENY_ECHO = {"effect": "host_exec", "match": {"argv": ["/bin/echo", "**"]}, "decision": "deny",
             "examples": {"match": [{"backend": "here", "argv": ["/bin/echo", "x"]}]}}


@pytest.fixture
def allowed(place):
    """Returns what sets the rules of the operator."""
    def rules(*rows):
        assert place.server("PUT", "/v1/approvals/rules", {"rules": list(rows)}, key=BOSS).status == 200
    rules(ALLOW_ALL)
    yield rules
    rules()


def boxes_for(shell, code, status=200):
    """Boxes that parsed texts for this exec."""
    before = shell.server.metric("hermes_shell_parses_total")
    reply = shell(code)
    assert reply.status == status, reply
    return shell.server.metric("hermes_shell_parses_total") - before


def test_a_text_is_parsed_once_for_each_key(place, allowed):
    alice, again, bob = place.open(), place.open(backend="there"), place.open(key=BOB)
    code = "/bin/echo parsed once"
    hits = place.server.metric("hermes_shell_parse_cache_hits_total")
    assert boxes_for(alice, code) == 1
    for shell in (alice, alice, again):
        assert boxes_for(shell, code) == 0
    assert alice(code).json()["stdout"] == "parsed once\n"
    assert place.server.metric("hermes_shell_parse_cache_hits_total") == hits + 4
    for other in ("/bin/echo parsed twice", "/bin/echo  parsed once", " " + code, code + "\n"):
        assert boxes_for(alice, other) == 1, other
    assert boxes_for(bob, code) == 1  # its time tells nothing about alice
    assert boxes_for(alice, "bash -c '%s'" % code) == 1  # the text in it was read before


def test_a_text_that_was_read_is_decided_again(place, allowed):
    shell, code = place.open(), "/bin/echo decided again"
    assert boxes_for(shell, code) == 1
    allowed(ALLOW_ALL, DENY_ECHO)
    assert boxes_for(shell, code, status=403) == 0 and code_of(shell(code)) == "approval_denied"
    allowed()
    assert code_of(shell(code)) == "approval_unavailable"
    with Listener(place.server, ALICE):
        for _ in range(2):  # `once` is for one exec
            reply, asked = shell.asked(code)
            assert reply.status == 200 and [words(q) for q in asked] == [["/bin/echo", "decided", "again"]]


def test_a_text_without_a_tree_is_parsed_again(place, allowed):
    shell = place.open()
    for _ in range(2):  # the reason may be gone
        assert boxes_for(shell, "if no tree") == 1


def test_many_texts_do_not_grow_the_server(place, allowed):
    def memory():
        with open("/proc/%d/status" % place.server.child("hermes-server")) as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) >> 10
    shell, filler = place.open(), " ".join("word%d" % i for i in range(100))  # 30 KiB of a tree

    def run(first, end):
        for i in range(first, end):
            assert shell(": text-%d %s" % (i, filler)).status == 200
    run(0, 200)  # more than the cache holds
    before = memory()
    run(200, 1500 if os.environ.get("HERMES_FULL") else 400)
    assert memory() - before < 8


def copy_runtimes(path):
    """The runtimes of this test: bash, and what parses texts."""
    for name in ("base.json", "bash/runtime.json", "shell-parse/runtime.json"):
        (path / "runtimes" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "runtimes" / name, path / "runtimes" / name)
    path.chmod(0o755)
    return path / "runtimes"


# What a parser could do, by a word of the text that it is given.
FAKES = {
    "other": "echo '{\"Type\":\"File\",\"End\":{\"Offset\":5},\"Stmts\":[{\"Cmd\":{\"Type\":\"Nothing\"}}]}'",
    "nothing": "echo '{\"Type\":\"File\"}'",
    "outside": "echo '{\"Type\":\"File\",\"End\":{\"Offset\":1},\"Stmts\":[{\"Cmd\":{\"Type\":\"CallExpr\",\"Args\":[{\"Parts\":[],"
               "\"Pos\":{\"Offset\":0},\"End\":{\"Offset\":999999}}]}}]}'",
    "number": "echo '{\"Type\":7}'",
    "list": "echo '[]'",
    "zeros": "head -c 100000000 /dev/zero",
    "brackets": "head -c 4000000 /dev/zero | tr '\\0' '['",
    "nested": "head -c 300000 /dev/zero | sed 's/\\x00/{\"Stmts\":[/g'",
    "sleeps": "sleep 1000",
    "spins": "while :; do :; done",
    "fails": "exit 1",
    "silent": "exit 0",
    "killed": "kill -9 $$",
    "twice": "echo '{\"Type\":\"File\",\"Type\":\"File\"}'",
}


def test_a_parser_that_lies_floods_or_hangs_makes_a_question(tmp_path):
    tool = copy_runtimes(tmp_path) / "shell-parse"
    script = "#!/usr/bin/bash\nread -r text\ncase $text in\n%s\nesac\n" % "\n".join("*%s) %s ;;" % row for row in FAKES.items())
    (tool / "shfmt").write_text(script)
    row = json.loads((tool / "runtime.json").read_text())
    row["toolchain"] = []
    row["run"] = {"argv": ["/usr/bin/bash", "/usr/lib/hermes/shfmt"], "tools": ["sleep", "head", "tr", "sed"],
                  "paths": [{"host": "{dir}/shfmt", "box": "/usr/lib/hermes/shfmt", "copy": True}]}
    (tool / "runtime.json").write_text(json.dumps(row))
    path = borrow_dir()
    place = Place(path, HERMES_RUNTIMES=str(tool.parent))
    try:
        assert "install shfmt" not in place.server.log_path.read_text()  # there is a parser
        shell = place.open()
        with Listener(place.server, ALICE):
            for word in FAKES:
                for code in ("rm -rf /%s" % word, "touch %s" % word)[:1 if word in ("sleeps", "zeros") else 2]:  # never hardline, never allowed
                    reply, asked = shell.asked(code, decision="deny")
                    assert reply.status == 403 and [q["effect"]["action"] for q in asked] == ["text"], (word, reply, asked)
                    assert asked[0]["effect"]["text"] == code
        assert list(place.cwd.iterdir()) == []
    finally:
        place.close()
        return_dir(path)


def test_without_shfmt_all_is_asked_and_a_question_expires(tmp_path):
    runtimes = copy_runtimes(tmp_path)
    shutil.rmtree(runtimes / "shell-parse")
    path = borrow_dir()
    place = Place(path, HERMES_RUNTIMES=str(runtimes), HERMES_APPROVAL_TIMEOUT_S="4")
    try:
        assert "cannot be read, so each text needs an approval of its own; install shfmt" in place.server.log_path.read_text()
        shell = place.open()
        with Listener(place.server, ALICE):
            for code in ("ls", "ls", "echo hi", "rm -rf /nothing"):
                _, asked = shell.asked(code, scope="session")
                assert [q["effect"]["action"] for q in asked] == ["text"]
            reply = shell("touch late", timeout_ms=300)  # waiting counts against no limit of the exec
            assert reply.status == 403 and "expired" in reply.json()["error"]["message"]
            run = shell.later("echo x", timeout_ms=2000)
            decide(place.server, ALICE, pending(place.server, ALICE)[0]["id"])
            assert run.result().json()["stdout"] == "x\n" and not (place.cwd / "late").exists()
    finally:
        place.close()
        return_dir(path)


def test_the_command_line_says_what_to_do(place):
    found = subprocess.run([str(BUILD / "hermes"), "exec", "--unix", str(place.server.unix), "--backend", "here", "--", "touch", "marker"],
                           capture_output=True, text=True, timeout=60, env={**os.environ, "HERMES_API_KEY": ALICE})
    assert found.returncode == 2 and "hermes approvals" in found.stderr and found.stdout == "", found
