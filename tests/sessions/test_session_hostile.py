# SPDX-License-Identifier: Apache-2.0
"""Code that attacks its own kernel, other sessions or the server; callers that ask for what is not
theirs. Whatever it does, it harms its own session only."""
import json
import threading
import time

import pytest

from apilib import boxes_below, open_descriptors, wait_until
from sessionlib import Session

# What code writes to the channel when it finds it.
RUBBISH = {
    "text": b"hello there\n", "no end": b"x" * 100, "unknown": b"reset 0\n", "negative": b"display -1\n",
    "huge": b"display 99999999999999999999\n", "too large": b"display 16777217\n", "no length": b"display\n",
    "space": b"display  2\n{}", "not json": b"display 3\nabc", "wrong type": b"display 2\n[]",
    "deep": b"display 400\n" + b"[" * 400, "binary": bytes(range(256)), "ready again": b'ready 12\n{"cwd": "/"}',
    "jobs": b"jobs 2\n[]", "settled": b"settled 4\nnull", "done of a wrong kind": b"done 2\n{}",
    "error of a wrong kind": b'error 14\n{"name": "x"} ', "two results": b'result 18\n{"text/plain": "1"}' * 2,
    "a tool call of a wrong kind": b'tool_call 9\n{"id": 1}', "half a frame and the end": b"display 100\n{",
    "a forged done and more": b'done 105\n' + json.dumps({"ok": True, "exit_code": None, "cwd": "/", "execution_count": 1,
                                                         "interrupted": False, "state": "kept"}).ljust(105).encode() + b"x",
}


@pytest.mark.parametrize("what", sorted(RUBBISH))
def test_rubbish_on_the_channel(session, what):
    s, other = session(), session()
    other.exec("x = 1")
    answer = s.exec("import os, time\nos.write(3, %r)\ntime.sleep(%d)" % (
        RUBBISH[what], 0 if what.startswith("half") else 30), timeout_ms=20000)
    assert answer["state_lost"] and answer["status"] in ("runtime_error", "time_limit"), answer
    state = s.state()
    assert state["state"] == "dead" and state["reason"] in ("protocol", "exited"), state
    reply = s.post("1")
    assert reply.status == 409 and reply.json()["state_lost"]
    assert other.out("print(x)") == "1\n"


def test_rubbish_while_idle(session):
    s = session()
    s.exec("import threading, os\nthreading.Timer(.3, os.write, [3, b'display 2\\n{}']).start()")
    assert wait_until(lambda: s.state()["state"] == "dead", 5)
    assert s.state()["reason"] == "protocol"
    assert s.call("POST", "/reset").json()["state"] == "idle"


def test_a_forged_answer_harms_its_session_only(session):
    """Whole frames that a kernel could send: believed, since they are the code's own answer."""
    s = session()
    done = json.dumps({"ok": True, "exit_code": 0, "cwd": "/x" * 50, "execution_count": 77, "interrupted": False,
                       "state": "kept"}).encode()
    answer = s.exec("import os, time\nos.write(3, b'done %d\\n' + %r)\ntime.sleep(1)" % (len(done), done))
    assert answer["execution_count"] == 77
    # The kernel itself says `done` a second later, out of turn.
    assert wait_until(lambda: s.state()["state"] == "dead", 5)


def test_channel_closed_or_replaced(session):
    for code in ("import os; os.close(3)", "import os; r, w = os.pipe(); os.dup2(w, 3)",
                 "import os; os.close(3); os.close(1); os.close(2)"):
        s = session()
        answer = s.exec(code, timeout_ms=5000)
        assert answer["state_lost"] and s.state()["state"] == "dead", (code, answer)


def test_a_flood_of_frames(session):
    s = session()
    code = ("import os\nframe = b'display 24\\n{\"text/plain\": \"abcdefg\"}'[:35]\n"
            "while True: os.write(3, frame * 100)")
    answer = s.exec(code.replace("display 24", "display 25"), timeout_ms=2000)
    assert answer["status"] in ("time_limit", "runtime_error")
    assert len(json.dumps(answer)) < 1 << 20


def test_large_displays_are_bounded(server, session):
    s = session(limits={"memory_mb": 512})
    answer = s.exec("for i in range(20): display({'text/plain': 'x' * (4 << 20)}, raw=True)", timeout_ms=60000)
    assert answer["status"] == "ok" and answer["displays_truncated"] and "output" in answer["limits_hit"], answer["status"]
    assert len(json.dumps(answer["displays"])) <= 40 << 20
    del answer
    assert wait_until(lambda: server.metric("hermes_held_bytes") < 1 << 20, 5)


def test_children_do_not_have_the_channel(session):
    for language, code in (("python", "import subprocess; print(subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True).stdout)"),
                           ("javascript", "console.log(require('child_process').execSync('ls /proc/self/fd').toString())"),
                           ("bash", "ls /proc/self/fd")):
        s = session(language)
        assert set(s.out(code).split()) <= {"0", "1", "2", "3"}  # 3 is ls's own
        assert "socket" not in s.exec("ls -l /proc/self/fd")["stdout"] if language == "bash" else True


def test_kernels_do_not_starve(session):
    """Code that burns CPU, memory and processes is still interrupted in time."""
    s = session(limits={"processes": 32, "memory_mb": 256})
    code = ("import os, time\nfor i in range(100):\n    try:\n        if os.fork() == 0:\n            while True: pass\n"
            "    except OSError: break\nwhile True: pass")
    begin = time.monotonic()
    answer = s.exec(code, timeout_ms=1000)
    assert answer["status"] == "time_limit"
    assert time.monotonic() - begin < 30
    s.delete()


def test_fork_bomb(session):
    s, other = session("bash"), session("bash")
    other.exec("x=5")
    s.exec("f() { f | f & }; f; sleep 1; wait", timeout_ms=3000)
    assert other.out("echo $x") == "5\n"
    assert s.delete().status == 204


def test_other_keys(make_server):
    server = make_server(env={"HERMES_API_KEYS": "alice, bob"})
    mine = Session(server, key="alice")
    mine.exec("x = 1")
    theirs = Session(server, key="bob")
    unknown = "ses_" + "0" * 26
    wanted = server("GET", "/v1/sessions/" + unknown, key="bob")
    assert wanted.status == 404
    text = wanted.body.replace(unknown.encode(), mine.id.encode())
    for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/exec", {"code": "1"}),
                               ("POST", "/interrupt", None), ("POST", "/reset", None), ("GET", "/jobs", None), ("GET", "/variables", None),
                               ("DELETE", "/jobs/1", None), ("POST", "/tool_results", {"id": "x", "output": 1}),
                               ("POST", "/fork", {})):
        reply = server(method, "/v1/sessions/%s%s" % (mine.id, path), body, key="bob")
        assert (reply.status, reply.body) == (404, text), (method, path, reply)
        assert server(method, "/v1/sessions/%s%s" % (mine.id, path), body).status == 401
    assert [s["id"] for s in server("GET", "/v1/sessions", key="bob").json()["sessions"]] == [theirs.id]
    assert mine.out("print(x)") == "1\n"


def test_quotas(make_server):
    server = make_server(env={"HERMES_API_KEYS": "alice, bob", "HERMES_MAX_SESSIONS_PER_KEY": "2", "HERMES_MAX_SESSIONS": "3"})
    mine = [Session(server, "bash", key="alice") for _ in range(2)]
    reply = server("POST", "/v1/sessions", {"language": "bash"}, key="alice")
    assert reply.status == 429 and "2 sessions" in reply.json()["error"]["message"] and reply.headers["Retry-After"]
    Session(server, "bash", key="bob")
    reply = server("POST", "/v1/sessions", {"language": "bash"}, key="bob")
    assert reply.status == 429 and "3 sessions" in reply.json()["error"]["message"]
    mine[0].delete()
    Session(server, "bash", key="bob")


def test_memory_is_promised(make_server):
    server = make_server(env={"HERMES_MEMORY_MB": "400", "HERMES_SESSION_MEMORY_MB": "300"})
    first = Session(server, "bash", limits={"memory_mb": 200})
    assert server.metric("hermes_memory_promised_bytes") == 200 << 20
    reply = server("POST", "/v1/sessions", {"language": "bash", "limits": {"memory_mb": 200}})
    assert reply.status == 429 and "memory" in reply.json()["error"]["message"], reply
    second = Session(server, "bash", limits={"memory_mb": 100})
    # What is left is for runs.
    assert server.run("bash", "echo 1", limits={"memory_mb": 100}).json()["stdout"] == "1\n"
    second.exec("kill -9 $PPID; kill -9 $$")
    first.delete()
    second.delete()
    assert server.metric("hermes_memory_promised_bytes") == 0


def test_dying_sessions_do_not_pile_up(make_server):
    server = make_server()
    for _ in range(70):
        Session(server, "bash", limits={"memory_mb": 16}).call("DELETE")
    for _ in range(70):
        s = Session(server, "python", limits={"memory_mb": 64})
        assert s.exec("x = bytearray(100 << 20)")["state_lost"]
    listed = server("GET", "/v1/sessions").json()["sessions"]
    assert 60 <= len(listed) <= 66 and {x["state"] for x in listed} == {"dead"}
    assert server.metric("hermes_sessions") == 0


BAD = [({}, "language"), ({"language": "brainfuck"}, "language"), ({"language": 3}, "language"), ({"language": "c"}, "language"),
       ({"language": "python", "code": "1"}, "code"), ({"language": "python", "idle_timeout_s": 0}, "idle_timeout_s"),
       ({"language": "python", "idle_timeout_s": "5"}, "idle_timeout_s"), ({"language": "python", "max_lifetime_s": 1 << 40}, "max_lifetime_s"),
       ({"language": "python", "max_lifetime_s": 86401}, "max_lifetime_s"), ({"language": "python", "name": "x" * 65}, "name"),
       ({"language": "python", "name": "a\nb"}, "name"), ({"language": "python", "limits": {"memory_mb": 1 << 30}}, "limits.memory_mb"),
       ({"language": "python", "limits": {"wings": 2}}, "limits.wings"), ({"language": "python", "env": {"A=B": "x"}}, "env.A=B"),
       ({"language": "python", "env": {"HERMES_X": "x"}}, "env.HERMES_X"), ({"language": "python", "limits": {"memory_mb": 3}}, "limits.memory_mb")]


@pytest.mark.parametrize("body, field", BAD, ids=range(len(BAD)))
def test_bad_sessions(server, body, field):
    reply = server("POST", "/v1/sessions", body)
    assert reply.status == 400 and reply.json()["error"]["field"].startswith(field), reply
    assert not server("GET", "/v1/sessions").json()["sessions"]


def test_limits_too_small_for_the_interpreter(server):
    for limits in ({"processes": 1}, {"open_files": 8}, {"memory_mb": 8}, {"stack_mb": 1}):
        for language in ("python", "javascript", "bash"):
            reply = server("POST", "/v1/sessions", {"language": language, "limits": limits})
            assert reply.status in (201, 400), (language, limits, reply)
            if reply.status == 201:
                server("DELETE", "/v1/sessions/" + reply.json()["id"])


def test_not_enforceable(server):
    for field, status in (({"network": {"ask": ["10.0.0.1"]}}, 403), ({"image": "mine"}, 404)):
        assert server("POST", "/v1/sessions", dict(field, language="python")).status == status


BAD_EXEC = [({}, "code"), ({"code": 3}, "code"), ({"code": "1", "timeout_ms": 0}, "timeout_ms"), ({"code": "1", "timeout_ms": 1 << 40}, "timeout_ms"),
            ({"code": "1", "timeout_ms": 1.5}, "timeout_ms"), ({"code": "1", "stdin": 3}, "stdin"), ({"code": "1", "wait": "yes"}, "wait"),
            ({"code": "1", "stdin": "a", "stdin_encoding": "base64"}, "stdin"), ({"code": "1", "stdin_encoding": 3}, "stdin_encoding"),
            ({"code": "1", "max_tool_calls": 0}, "max_tool_calls"), ({"code": "1", "file": "x"}, "file")]


@pytest.mark.parametrize("body, field", BAD_EXEC, ids=range(len(BAD_EXEC)))
def test_bad_execs(session, body, field):
    s = session("bash")
    reply = s.call("POST", "/exec", body)
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply
    assert s.state()["execution_count"] == 0


def test_large_code_and_stdin(session):
    s = session()
    assert s.out("print(len('%s'))" % ("x" * (4 << 20))) == "%d\n" % (4 << 20)
    assert s.out("import sys; print(len(sys.stdin.read()))", stdin="x" * (8 << 20)) == "%d\n" % (8 << 20)


def test_twenty_sessions_at_once(session):
    """Mixed work in many sessions: nothing of one shows in another."""
    kinds = ["python", "bash", "javascript", "python"]
    sessions = [(i, kinds[i % 4], session(kinds[i % 4], limits={"memory_mb": 128})) for i in range(20)]
    wrong = []

    def work(i, language, s):
        try:
            for n in range(8):
                mark = "mark-%d-%d" % (i, n)
                if language == "python":
                    s.exec("v = %r; open('f', 'w').write(v)" % mark)
                    got = s.out("print(v, open('f').read())")
                elif language == "bash":
                    s.exec("v=%s; echo $v >f; sleep 0.0%d" % (mark, i % 7))
                    got = s.out("echo $v $(cat f)")
                else:
                    s.exec("var v = %r; require('fs').writeFileSync('f', v)" % mark)
                    got = s.out("console.log(v, require('fs').readFileSync('f', 'utf8'))")
                if got != "%s %s\n" % (mark, mark):
                    wrong.append((i, n, got))
        except Exception as e:
            wrong.append((i, language, repr(e)))
    threads = [threading.Thread(target=work, args=one) for one in sessions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]


def test_sessions_are_strangers(server, session):
    """Neither sees, signals nor reads the other: files, processes, shared memory, sockets."""
    a, b = session(), session()
    a.exec("import subprocess, socket\np = subprocess.Popen(['sleep', '100'])\nopen('/tmp/secret', 'w').write('s')\n"
           "open('/dev/shm/secret', 'w').write('s')\nsock = socket.socket(socket.AF_UNIX); sock.bind('\\0hermes-test'); sock.listen()")
    got = b.out("import os, socket\nprint(os.path.exists('/tmp/secret'), os.path.exists('/dev/shm/secret'), "
                "b'sleep' in b''.join(open('/proc/%s/cmdline' % p, 'rb').read() for p in os.listdir('/proc') if p.isdigit()))\n"
                "s = socket.socket(socket.AF_UNIX)\ntry: s.connect('\\0hermes-test'); print('connected')\nexcept OSError as e: print('refused')")
    assert got == "False False False\nrefused\n"
    spawner = server.child("hermes-spawn")
    uids = {open("/proc/%d/status" % p).read().split("Uid:")[1].split()[0] for p in boxes_below(spawner)}
    assert len(uids) >= 4  # an init and a payload each


def test_session_boxes_are_confined_like_others(session):
    for env in ({}, {"LC_COLD": "1"}):
        s = session(env=env)
        got = s.out("import re\nt = open('/proc/self/status').read()\n"
                    "print(re.findall(r'(?:CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):\\s+(\\S+)', t))")
        assert got == "['0000000000000000', '0000000000000000', '0000000000000000', '1', '2']\n"
        s.call("POST", "/reset")
        assert s.out("import re\nt = open('/proc/self/status').read()\n"
                     "print(re.findall(r'(?:CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):\\s+(\\S+)', t))") == got
        assert s.exec("open('/etc/x', 'w')")["error"]["name"] in ("OSError", "PermissionError")
        assert s.exec("import os; os.kill(1, 9); os.kill(1, 15); os.kill(1, 2)")["error"]["name"] == "PermissionError"
        assert s.out("print(1)") == "1\n"


def test_background_work_is_charged(make_server, tmp_path):
    """What runs between two execs is paid for by the key as well."""
    keys = tmp_path / "keys"
    keys.write_text("[alice]\nkey = alice\ncpu_s_per_hour = 2\n")
    keys.chmod(0o600)
    server = make_server(env={"HERMES_KEYS_FILE": str(keys)})
    s = Session(server, "python", key="alice")
    s.exec("import subprocess\np = [subprocess.Popen(['python3', '-c', 'while True: pass']) for _ in range(2)]")

    def refused():
        reply = s.post("1")
        assert reply.status in (200, 429), reply
        return reply.status == 429
    assert wait_until(refused, 60)  # what these execs use themselves is next to nothing
    reply = s.post("1")
    assert "CPU" in reply.json()["error"]["message"] and int(reply.headers["Retry-After"]) >= 1


def test_descriptors_sent_over_the_channel_are_dropped(server, session):
    """Code can attach its own descriptors to what it writes there. The server must not collect them."""
    own = server.child("hermes-server")
    s = session()
    s.exec("1")
    before = open_descriptors(own)
    frame = b'display 24\n{"text/plain": "a thing"}'
    assert len(frame.split(b"\n")[1]) == 25
    frame = frame.replace(b"24", b"25")
    answer = s.exec("import os, socket, array\nc = socket.socket(fileno=os.dup(3))\nsent = 0\nfor i in range(50):\n    try:\n"
                    "        c.sendmsg([%r], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 2] * 60))]); sent += 1\n"
                    "    except OSError as e: c.send(%r)\nprint(sent)" % (frame, frame))
    assert answer["status"] == "ok" and len(answer["displays"]) == 50, answer
    assert open_descriptors(own) <= before + 2
    s.delete()
    assert wait_until(lambda: open_descriptors(own) <= before, 5)
