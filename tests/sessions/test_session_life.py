# SPDX-License-Identifier: Apache-2.0
"""How sessions begin, live and end."""
import os
import re
import signal
import time

import pytest

from apilib import SLOW, boxes_below, wait_until
from sessionlib import Session

LANGUAGES = ["python", "javascript", "bash"]
PRINT = {"python": "print(6*7)", "javascript": "console.log(6*7)", "bash": "echo $((6*7))"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_create_get_list_delete(server, session, language):
    s = session(language, name="mine")
    assert re.fullmatch(r"ses_[0-9a-z]{26}", s.id)
    assert s.made["state"] == "idle" and s.made["language"] == language and s.made["name"] == "mine"
    assert s.made["cwd"] == "/box"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", s.made["created_at"])
    assert s.made["expires_at"] > s.made["created_at"]
    assert s.out(PRINT[language]) == "42\n"
    assert s.state()["state"] == "idle" and s.state()["execution_count"] == 1
    assert s.id in [x["id"] for x in server("GET", "/v1/sessions").json()["sessions"]]
    assert s.delete().status == 204
    assert s.call("GET").status == 404
    assert s.post(PRINT[language]).status == 404
    assert s.delete().status == 404


STATE = {
    "python": [("x = 41\nimport math\ndef f(): return x + 1", ""), ("print(f(), math.floor(1.5))", "42 1\n"),
               ("import os; os.makedirs('d'); os.chdir('d')", ""), ("import os; print(os.getcwd())", "/box/d\n")],
    "javascript": [("let x = 41; const f = () => x + 1; class A {}", ""),
                   ("console.log(f(), typeof A)", "42 function\n"),
                   ("require('fs').mkdirSync('d'); process.chdir('d')", ""),
                   ("console.log(process.cwd())", "/box/d\n")],
    "bash": [("x=41; export y=1; f() { echo $((x + y)); }; alias hi='echo hello'; shopt -s expand_aliases", ""),
             ("f; bash -c 'echo $x$y'", "42\n1\n"), ("hi", "hello\n"), ("mkdir d; cd d", ""), ("pwd", "/box/d\n")],
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_state_stays(session, language):
    s = session(language)
    for code, out in STATE[language]:
        answer = s.exec(code)
        assert answer["status"] == "ok" and answer["stdout"] == out, (code, answer)
    assert answer["cwd"] == "/box/d" == s.state()["cwd"]
    assert answer["execution_count"] == len(STATE[language])


ERRORS = {"python": ("1/0", "ZeroDivisionError"), "javascript": ("null.x", "TypeError")}


@pytest.mark.parametrize("language", sorted(ERRORS))
def test_an_exception_is_an_answer(session, language):
    s = session(language)
    code, name = ERRORS[language]
    answer = s.exec(code)
    assert answer["status"] == "runtime_error" and answer["error"]["name"] == name
    assert name in "\n".join(answer["error"]["traceback"])
    assert answer["result"] is None and answer["exit_code"] is None
    assert s.out(PRINT[language]) == "42\n"


def test_exit_code_of_a_shell(session):
    s = session("bash")
    answer = s.exec("echo out; echo err >&2; (exit 7)")
    assert answer["status"] == "runtime_error" and answer["exit_code"] == 7
    assert (answer["stdout"], answer["stderr"]) == ("out\n", "err\n")
    assert s.exec("true")["exit_code"] == 0


def test_result_and_stdin(session):
    s = session()
    assert s.exec("6*7")["result"]["text/plain"] == "42"
    assert s.exec("x = 1")["result"] is None
    assert s.out("print(input(), input())", stdin="a\nb\n") == "a b\n"
    assert s.exec("input()")["error"]["name"] == "EOFError"
    assert s.out("import sys; print(sys.stdin.buffer.read())", stdin="/wA=", stdin_encoding="base64") == "b'\\xff\\x00'\n"


def test_usage(session):
    s = session()
    usage = s.exec("import time\nend = time.process_time() + .3\nwhile time.process_time() < end: pass")["usage"]
    assert 250 <= usage["cpu_ms"] <= 1500 * SLOW and usage["wall_ms"] >= 290
    quiet = s.exec("1")["usage"]
    assert quiet["cpu_ms"] < 250  # what went before is not counted again
    # What runs between two execs is none of them.
    s.exec("import subprocess\np = subprocess.Popen(['python3', '-c', 'while True: pass'])")
    time.sleep(1)
    assert s.exec("p.kill()")["usage"]["cpu_ms"] < 700


def test_memory_limit_ends_the_session(session):
    s = session(limits={"memory_mb": 128})
    answer = s.exec("x = bytearray(300 << 20)")
    assert answer["status"] == "memory_limit" and answer["limits_hit"] == ["memory"] and answer["state_lost"]
    assert s.state()["state"] == "dead" and s.state()["reason"] == "memory_limit"
    reply = s.post("1")
    assert reply.status == 409 and reply.json()["state_lost"], reply
    answer = s.call("POST", "/reset").json()
    assert answer["state"] == "idle" and not answer["files_kept"]
    assert s.out("print('x' in globals())") == "False\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_reset_clears_state_and_keeps_files(session, language):
    s = session(language)
    write = {"python": "x = 1; open('f', 'w').write('kept')",
             "javascript": "var x = 1; require('fs').writeFileSync('f', 'kept')", "bash": "x=1; printf kept >f"}
    read = {"python": "print('x' in globals(), open('f').read())",
            "javascript": "console.log(typeof x, require('fs').readFileSync('f', 'utf8'))", "bash": "echo ${x-none} $(cat f)"}
    s.exec(write[language])
    answer = s.call("POST", "/reset")
    assert answer.status == 200 and answer.json()["files_kept"] and answer.json()["state"] == "idle"
    assert s.out(read[language]) == {"python": "False kept\n", "javascript": "undefined kept\n", "bash": "none kept\n"}[language]


ENDS = {"exit": ("import os; os._exit(3)", "exited"), "kill": ("import os, signal; os.kill(os.getpid(), 9)", "signaled"),
        "crash": ("import ctypes; ctypes.string_at(0)", "signaled")}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_an_interpreter_that_ends_is_reported(session, how):
    code, reason = ENDS[how]
    s = session()
    s.exec("open('f', 'w').write('kept')")
    answer = s.exec(code)
    assert answer["state_lost"] and answer["status"] in ("runtime_error", "signaled")
    state = s.state()
    assert state["state"] == "dead" and state["reason"] == reason, state
    for _ in range(2):
        reply = s.post("1")
        assert reply.status == 409 and reply.json()["state_lost"] and "reset" in reply.json()["error"]["message"]
    assert s.call("POST", "/interrupt").status == 409
    assert s.call("POST", "/reset").json()["files_kept"]
    assert s.out("print(open('f').read())") == "kept\n"


def test_death_while_idle_is_noticed(session):
    s = session()
    s.exec("import threading, os\nthreading.Timer(.3, os._exit, [5]).start()")
    assert wait_until(lambda: s.state()["state"] == "dead", 5)
    assert s.state()["reason"] == "exited" and "5" in s.state()["message"]
    assert s.post("1").status == 409


def test_killed_from_outside(server, session):
    victim, other = session(), session()
    other.exec("x = 1")
    spawner = server.child("hermes-spawn")
    before = set(boxes_below(spawner))
    third = session()
    init, kernel = sorted(set(boxes_below(spawner)) - before)[:2]
    os.kill(kernel, signal.SIGKILL)
    assert wait_until(lambda: third.state()["state"] == "dead", 5)
    assert third.state()["reason"] == "signaled"
    third.delete()
    before = set(boxes_below(spawner))
    fourth = session()
    init = min(set(boxes_below(spawner)) - before)
    late = fourth.later("import time; time.sleep(60)")
    assert wait_until(lambda: fourth.state()["state"] == "busy", 5)
    os.kill(init, signal.SIGKILL)
    reply = late.result()
    assert reply.status == 500 and reply.json()["state_lost"], reply
    assert fourth.state()["state"] == "dead" and fourth.state()["reason"] == "box_lost"
    assert other.out("print(x)") == "1\n" and victim.out("print(2)") == "2\n"


def test_a_failure_of_hermes_has_one_form(server, session):
    """A plain answer and a streamed one carry the same `error`; an exception of the code has another form."""
    spawner = server.child("hermes-spawn")
    errors = []
    for is_streamed in (False, True):
        before = set(boxes_below(spawner))
        s = session()
        init = min(set(boxes_below(spawner)) - before)
        caught = s.exec("1 / 0")["error"]
        assert set(caught) == {"name", "value", "traceback"} and caught["name"] == "ZeroDivisionError"
        if is_streamed:
            late = s.begin("print('on', flush=True)\nimport time; time.sleep(60)")
        else:
            late = s.later("import time; time.sleep(60)")
            assert wait_until(lambda: s.state()["state"] == "busy", 5)
        os.kill(init, signal.SIGKILL)
        answer = late.result() if is_streamed else late.result().json()
        assert answer["status"] == "internal_error" and answer["state_lost"], answer
        errors.append(answer["error"])
    assert errors[0] == errors[1]
    assert set(errors[0]) == {"code", "message"} and errors[0]["code"] == "internal_error"


def test_spawner_killed(make_server):
    server = make_server()
    s = Session(server)
    os.kill(server.child("hermes-spawn"), signal.SIGKILL)
    assert wait_until(lambda: s.state()["state"] == "dead", 10)
    assert s.state()["reason"] == "box_lost"

    def works():
        made = server("POST", "/v1/sessions", {"language": "python"})
        assert made.status in (201, 503), made
        return made.status == 201
    assert wait_until(works, 10)


def test_server_killed(make_server):
    server = make_server()
    s, ended = Session(server), Session(server)
    ended.delete()
    time.sleep(1.5)  # what is known of it is written a moment later
    spawner = server.child("hermes-spawn")
    assert boxes_below(spawner)
    os.kill(server.child("hermes-server"), signal.SIGKILL)
    assert wait_until(lambda: not boxes_below(spawner), 10), "boxes outlive the server"
    assert wait_until(lambda: server.child("hermes-server") is not None, 10)

    def answers():
        try:
            return s.call("GET").status == 200
        except OSError:
            return False
    assert wait_until(answers, 10)
    assert s.state()["state"] == "dead" and s.state()["reason"] == "server_restarted"
    for path, body in (("/exec", {"code": "1"}), ("/reset", None)):
        reply = s.call("POST", path, body)
        assert reply.status == 409 and reply.json()["state_lost"], reply
    assert s.delete().status == 204 and s.call("GET").status == 404
    assert ended.call("GET").status == 404


def test_expiry(make_server):
    server = make_server()
    busy = Session(server, max_lifetime_s=2 * SLOW)
    late = busy.begin("import time; print('begun', flush=True); time.sleep(60)")
    short = Session(server, max_lifetime_s=1)
    idle = Session(server, idle_timeout_s=SLOW)
    used = Session(server, idle_timeout_s=SLOW)

    def is_expired_while_the_other_is_used():
        assert used.out("print(1)") == "1\n"
        return idle.state()["state"] == "expired"
    assert wait_until(is_expired_while_the_other_is_used, 20)
    assert used.out("print(1)") == "1\n"
    for s, reason in ((idle, "idle"), (short, "lifetime"), (busy, "lifetime")):
        assert wait_until(lambda s=s: s.state()["state"] == "expired", 5), s.state()
        assert s.state()["reason"] == reason
        reply = s.post("1")
        assert reply.status == 409 and "expired" in reply.json()["error"]["message"], reply
        assert s.call("POST", "/reset").status == 409
    assert late.result()["status"] == "cancelled"


def test_an_expired_session_is_forgotten(make_server):
    """After result_ttl_s; test_expiry shows that it is known before."""
    server = make_server(env={"HERMES_RESULT_TTL_S": "1"})
    s = Session(server, idle_timeout_s=1)
    kept = Session(server)
    assert wait_until(lambda: s.call("GET").status == 404, 10)
    assert kept.state()["state"] == "idle" and server.metric("hermes_sessions") == 1


def test_delete_while_busy(session):
    s = session()
    late = s.later("import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass")
    assert wait_until(lambda: s.state()["state"] == "busy", 5)
    assert s.delete().status == 204
    assert late.result().json()["status"] == "cancelled"


def test_stop_of_a_busy_server(make_server):
    server = make_server(env={"HERMES_GRACE_S": "0"})
    s = Session(server)
    late = s.later("import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass")
    assert wait_until(lambda: s.state()["state"] == "busy", 5)
    spawner = server.child("hermes-spawn")
    assert server.stop() == 0
    assert not boxes_below(spawner)
    assert late.reply is None or late.reply.json()["status"] == "cancelled"


def test_warm_and_cold(session):
    """A variable that an interpreter reads at its start makes a session cold; both do the same."""
    assert wait_until(lambda: session().made["isolation"]["start"] == "warm", 20)
    for env in ({}, {"LC_COLD": "1"}):
        s = session(env=dict(env, MINE="5"))
        assert s.made["isolation"]["start"] == ("cold" if env else "warm")
        assert s.out("import os; print(os.environ['MINE'], sorted(os.listdir('/proc/self/fd')))")[:2] == "5 "
        assert s.call("POST", "/reset").json()["files_kept"]
        assert s.out("import os; print(os.environ['MINE'], __name__)") == "5 __main__\n"
