# SPDX-License-Identifier: Apache-2.0
"""Time limits, interrupts, output, streams and turns."""
import json
import threading
import time

import pytest

from apilib import SLOW, UnixConnection, sse, wait_until

SLEEP = {"python": "import time; time.sleep(60)", "javascript": "await new Promise(r => setTimeout(r, 60000))",
         "bash": "sleep 60"}
BEGUN = {"python": "print('begun', flush=True)\n", "javascript": "console.log('begun');\n", "bash": "echo begun\n"}
SPIN = {"python": "while True: pass", "javascript": "while (true) ;", "bash": "while :; do :; done"}
SET = {"python": "x = 5", "javascript": "var x = 5", "bash": "x=5"}
GET = {"python": "print(x)", "javascript": "console.log(x)", "bash": "echo $x"}
LANGUAGES = sorted(SLEEP)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", [SLEEP, SPIN], ids=["sleep", "spin"])
def test_timeout_keeps_state(session, language, code):
    s = session(language)
    s.exec(SET[language])
    answer = s.exec(code[language], timeout_ms=400)
    assert answer["status"] == "time_limit" and answer["limits_hit"] == ["wall"], answer
    assert not answer["state_lost"] and answer["usage"]["wall_ms"] >= 400
    assert s.out(GET[language]) == "5\n"


def test_timeout_of_code_that_does_not_stop(session):
    s = session()
    s.exec("open('f', 'w').write('kept')")
    code = "import time\nprint('begun', flush=True)\nwhile True:\n    try: time.sleep(5)\n    except BaseException: pass"
    answer = s.exec(code, timeout_ms=300)
    assert answer["status"] == "time_limit" and answer["state_lost"] and answer["stdout"] == "begun\n", answer
    assert s.state()["state"] == "dead" and s.state()["reason"] == "time_limit"
    assert s.post("1").json()["state_lost"]
    assert s.call("POST", "/reset").json()["files_kept"]
    assert s.out("print(open('f').read())") == "kept\n"


def test_default_timeout_and_cpu_limit(session):
    s = session(limits={"wall_ms": 500})
    assert s.exec("import time; time.sleep(60)")["limits_hit"] == ["wall"]
    s = session(limits={"cpu_ms": 300})
    for _ in range(2):  # of each exec, not of all together
        answer = s.exec("while True: pass", timeout_ms=30000)
        assert answer["status"] == "time_limit" and answer["limits_hit"] == ["cpu"], answer
        assert 250 < answer["usage"]["cpu_ms"] < 2000 * SLOW


@pytest.mark.parametrize("language", LANGUAGES)
def test_interrupt(session, language):
    s = session(language)
    s.exec(SET[language])
    late = s.begin(BEGUN[language] + SLEEP[language], timeout_ms=60000)
    assert s.call("POST", "/interrupt").status == 202
    answer = late.result()
    assert answer["status"] == "runtime_error" and not answer["state_lost"], answer
    if language == "python":
        assert answer["error"]["name"] == "KeyboardInterrupt"
    if language == "bash":
        assert answer["exit_code"] == 130
    assert s.out(GET[language]) == "5\n"
    reply = s.call("POST", "/interrupt")
    assert reply.status == 409 and reply.json()["error"]["code"] == "conflict"


SHORT = {"python": "for i in range(%d * 300): pass", "javascript": "for (let i = 0; i < %d * 3000; i++);",
         "bash": "for ((i = 0; i < %d * 40; i++)); do :; done"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_interrupt_hits_one_exec_or_none(session, language):
    """Before, in and after the code; never what runs next, and state is kept."""
    s = session(language)
    s.exec(SET[language])
    hits = 0
    for round_ in range(60):
        late = s.later(SHORT[language] % (round_ % 20))
        time.sleep(round_ % 20 * .0005)
        hits += s.call("POST", "/interrupt").status == 202
        assert not late.result().json()["state_lost"]
        assert s.out(GET[language]) == "5\n"
    assert hits


def test_a_late_interrupt_does_not_hit_the_next_exec(session):
    """Interrupts race with the end of the code; none may reach what runs after it."""
    s = session()
    stop = threading.Event()

    def nag():
        while not stop.is_set():
            s.call("POST", "/interrupt")
    thread = threading.Thread(target=nag)
    thread.start()
    ran = 0
    while ran < 30:
        reply = s.post("import time; time.sleep(.01)")
        # On a busy machine code waits for its turn on the processors. An interrupt that comes then ends the request instead.
        if reply.status == 409:
            assert reply.json()["error"]["message"] == "the code was interrupted before it began", reply
        else:
            assert reply.status == 200 and not reply.json()["state_lost"], reply
            ran += 1
    stop.set()
    thread.join()
    for i in range(20):
        assert s.out("print(%d)" % i) == "%d\n" % i


def test_one_at_a_time(session):
    s = session()
    late = s.later("import time; time.sleep(1); print('first')")
    assert wait_until(lambda: s.state()["state"] == "busy", 5)
    reply = s.post("print(1)")
    assert reply.status == 409 and "wait" in reply.json()["error"]["message"]
    assert "state_lost" not in reply.json()
    turns = []
    waiting = []
    for i in range(3):
        waiting.append(s.later("n = %d; print(n)" % i, wait=True))
        time.sleep(.2)
    assert late.result().json()["stdout"] == "first\n"
    for i, one in enumerate(waiting):
        assert one.result().json()["stdout"] == "%d\n" % i
        turns.append(one.result().json()["execution_count"])
    assert turns == sorted(turns)  # who came first was served first


def test_a_client_that_leaves_interrupts(server, session):
    s = session()
    s.exec("x = 5")
    conn = UnixConnection(server.unix, 10)
    conn.request("POST", "/v1/sessions/%s/exec" % s.id, json.dumps({"code": "import time; time.sleep(60)"}),
                 {"Content-Type": "application/json"})
    assert wait_until(lambda: s.state()["state"] == "busy", 5)
    conn.close()
    assert wait_until(lambda: s.state()["state"] == "idle", 10)
    assert s.out("print(x)") == "5\n"


def test_output_keeps_both_ends(session):
    s = session(limits={"output_kb": 10})
    answer = s.exec("for i in range(100000): print('line', i)")
    out = answer["stdout"]
    assert answer["status"] == "ok" and answer["limits_hit"] == ["output"] and answer["stdout_truncated"]
    assert out.startswith("line 0\nline 1\n") and out.endswith("line 99999\n") and "bytes left out" in out
    assert len(out) < 11000 and answer["stdout_bytes"] == sum(len("line %d\n" % i) for i in range(100000))
    assert not answer["stderr_truncated"]
    answer = s.exec("import sys; sys.stdout.write('\\u00e4' * 20000); sys.stdout.write('\\u20ac' * 20000)")
    assert "\ufffd" not in answer["stdout"] and answer["stdout"].endswith("\u20ac")


def test_endless_output_is_stopped(session):
    s = session(limits={"output_kb": 16})
    s.exec("x = 5")
    answer = s.exec("while True: print('x' * 1000)", timeout_ms=60000)
    assert answer["status"] == "output_limit" and not answer["state_lost"], answer
    assert s.out("print(x)") == "5\n"


def test_invalid_utf8(session):
    s = session()
    assert s.exec("import os; os.write(1, b'a\\xffb'); None")["stdout"] == "a\ufffdb"


def test_stream(session):
    s = session()
    seen = []
    code = "import sys, time\nprint('one', flush=True)\ntime.sleep(1)\nprint('two', file=sys.stderr)\ndisplay({'a': 1})\n6*7"
    events = s.stream(code, lambda name, data: seen.append((name, time.monotonic())))
    names = [name for name, _ in events]
    assert names[0] == "start" and names[-1] == "end"
    assert [n for n in names if n not in ("start", "end")] == ["stdout", "stderr", "display", "result"]
    times = dict(seen)
    assert times["stderr"] - times["stdout"] > .5  # as they happen
    end = events[-1][1]
    assert end["status"] == "ok" and end["stdout"] == "one\n" and end["stderr"] == "two\n"
    told = [data["t"] for _, data in events]
    assert told[0] == 0 and told == sorted(told) and 1000 <= told[-1] < 60000 * SLOW
    shown = {name: {kind: value for kind, value in data.items() if kind != "t"} for name, data in events}
    assert end["result"] == shown["result"] and end["displays"] == [shown["display"]]
    events = s.stream("1/0")
    assert dict(events)["error"]["name"] == "ZeroDivisionError" and events[-1][1]["status"] == "runtime_error"


def test_stream_of_a_slow_reader_keeps_its_deadline(server, session):
    s = session(limits={"output_kb": 16384})
    conn = server.connect()
    conn.request("POST", "/v1/sessions/%s/exec" % s.id,
                 json.dumps({"code": "while True: print('x' * 100)", "timeout_ms": 1000}),
                 {"Content-Type": "application/json", "Accept": "text/event-stream"})
    answer = conn.getresponse()
    assert answer.status == 200
    assert wait_until(lambda: s.state()["state"] == "idle", 10)  # nothing of the answer was read
    conn.close()


def test_a_stream_that_nobody_reads_is_interrupted(make_server):
    from sessionlib import Session
    server = make_server(env={"HERMES_RESUME_GRACE_S": "1"})
    s = Session(server)
    conn = server.connect()
    conn.request("POST", "/v1/sessions/%s/exec" % s.id, json.dumps({"code": "import time; time.sleep(60)"}),
                 {"Content-Type": "application/json", "Accept": "text/event-stream"})
    assert conn.getresponse().status == 200
    conn.close()
    assert wait_until(lambda: s.state()["state"] == "idle", 20)


def test_jobs_of_a_shell(session):
    s = session("bash")
    s.exec("sleep 100 & sleep 200 &")
    commands = lambda: sorted(j["command"] for j in s.call("GET", "/jobs").json()["jobs"])  # noqa: E731
    assert wait_until(lambda: commands() == ["sleep 100", "sleep 200"]), commands()  # not bash any more
    jobs = s.call("GET", "/jobs").json()["jobs"]
    one = jobs[0]
    left = s.call("DELETE", "/jobs/%d" % one["id"])
    assert left.status == 200 and [j["id"] for j in left.json()["jobs"]] == [jobs[1]["id"]]
    for bad in ("999", "x", "-1", "%2e"):
        assert s.call("DELETE", "/jobs/" + bad).status == 404
    assert s.out("echo fine") == "fine\n"


def test_what_background_processes_print(session):
    """It belongs to the exec that runs then or to nobody, and never stops the writer for good."""
    s = session("bash")
    s.exec("(sleep 0.3; echo late) & (for i in $(seq 300); do head -c 1000 /dev/zero; done; echo >done) &")
    assert wait_until(lambda: s.exec("test -e done")["exit_code"] == 0, 20)
    time.sleep(.5)
    assert "late" not in s.out("sleep 0.2; echo mine")


def test_a_stream_is_resumed(server, session):
    """Whoever comes back within the grace gets the events he has not seen."""
    s = session()
    conn = server.connect()
    conn.request("POST", "/v1/sessions/%s/exec" % s.id,
                 json.dumps({"code": "import time\nfor i in range(20): print(i, flush=True); time.sleep(.1)"}),
                 {"Content-Type": "application/json", "Accept": "text/event-stream"})
    answer = conn.getresponse()
    run, text = answer.headers["X-Run-Id"], ""
    while text.count("event: stdout") < 3:
        text += answer.readline().decode()
    seen = sse(text.rsplit("\n\n", 1)[0] + "\n\n")
    conn.close()
    rest = sse(server("GET", "/v1/runs/%s/events" % run, headers={"Last-Event-ID": str(seen[-1][0])}).body.decode())
    assert [e[0] for e in rest] == list(range(seen[-1][0] + 1, rest[-1][0] + 1))
    out = "".join(e[2]["data"] for e in seen + rest if e[1] == "stdout")
    assert out == "".join("%d\n" % i for i in range(20)) == rest[-1][2]["stdout"]


def test_execs_are_counted(server, session):
    s = session("bash")
    before = server("GET", "/metrics").body.count(b"hermes_execs_total{status")
    s.exec("true")
    assert b'hermes_execs_total{status="ok"}' in server("GET", "/metrics").body and before >= 0
    assert [r["sessions"] for r in server("GET", "/v1/runtimes").json()["runtimes"] if r["name"] in ("bash", "c")] == [True, False]
    assert any(e["run"] == s.id for e in server.events("request"))


def test_no_sessions_at_all(make_server):
    server = make_server(env={"HERMES_MAX_SESSIONS": "0"})
    assert server("POST", "/v1/sessions", {"language": "bash"}).status == 501
