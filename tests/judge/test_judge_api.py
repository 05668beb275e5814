# SPDX-License-Identifier: Apache-2.0
"""POST /v1/judge as an HTTP route: what is refused, async, streams, cancelling, owners, a spawner
that dies, signatures."""
import json
import os
import signal
import threading
import time

import pytest

from apilib import boxes_below, sse, wait_until
from judge_table import KEY

GOOD = {"language": "python", "code": "print(input())", "tests": [{"stdin": "1", "expected": "1"}]}


@pytest.mark.parametrize("change,field", [
    ({"language": None}, "language"),
    ({"language": "klingon"}, "language"),
    ({"code": 5}, "code"),
    ({"code": None, "files": []}, "code"),
    ({"tests": None}, "tests"),
    ({"tests": []}, "tests"),
    ({"tests": {}}, "tests"),
    ({"tests": ["x"]}, "tests[0]"),
    ({"tests": [{"stdin": 1, "expected": "1"}]}, "tests[0].stdin"),
    ({"tests": [{"stdin": "1"}]}, "tests[0].expected"),
    ({"tests": [{"expected": "1", "points": -1}]}, "tests[0].points"),
    ({"tests": [{"expected": "1", "points": "1"}]}, "tests[0].points"),
    ({"tests": [{"expected": "1", "name": ""}]}, "tests[0].name"),
    ({"tests": [{"expected": "1", "name": "a\nb"}]}, "tests[0].name"),
    ({"tests": [{"expected": "1", "args": "x"}]}, "tests[0].args"),
    ({"tests": [{"expected": "1", "args": ["a\0b"]}]}, "tests[0].args"),
    ({"tests": [{"expected": "?", "expected_encoding": "base64"}]}, "tests[0].expected"),
    ({"tests": [{"expected": "1", "expected_encoding": "rot13"}]}, "tests[0].expected_encoding"),
    ({"tests": [{"expected": "1", "output": "1"}]}, "tests[0].output"),
    ({"tests": [{"expected": "1"}] * 4097}, "tests"),
    ({"compare": "fuzzy"}, "compare"),
    ({"compare": "float"}, "compare"),
    ({"compare": {"float": "1e-6"}}, "compare.float"),
    ({"compare": {"float": -1}}, "compare.float"),
    ({"compare": {"float": {"percent": 1}}}, "compare.float.percent"),
    ({"compare": {"float": 1, "checker": {}}}, "compare"),
    ({"compare": {"checker": {"language": "python"}}}, "compare.checker.code"),
    ({"compare": {"checker": {"code": "x"}}}, "compare.checker.language"),
    ({"compare": {"checker": {"language": "python", "code": "", "stdin": ""}}}, "compare.checker.stdin"),
    ({"compare": {"checker": {"language": "python", "code": "", "limits": {"wall_ms": 0}}}},
     "compare.checker.limits.wall_ms"),
    ({"compare": {"checker": {"language": "python", "code": "", "limits": {"memory_mb": 1 << 30}}}},
     "compare.checker.limits.memory_mb"),
    ({"interactor": {"language": "nope", "code": ""}}, "interactor.language"),
    ({"interactor": "x"}, "interactor"),
    ({"transcript": True}, "transcript"),
    ({"transcript": 1}, "transcript"),
    ({"stop_on_first_failure": 1}, "stop_on_first_failure"),
    ({"stop_on_first_failure": "test"}, "stop_on_first_failure"),
    ({"parallel": 0}, "parallel"),
    ({"parallel": 65}, "parallel"),
    ({"parallel": 1.5}, "parallel"),
    ({"limits": {"wall_ms": "1"}}, "limits.wall_ms"),
    ({"limits": {"time": 1}}, "limits.time"),
    ({"async": "yes"}, "async"),
    ({"output_encoding": "hex"}, "output_encoding"),
    ({"stdin": "x"}, "stdin"),
    ({"mounts": [{"name": "nothing", "path": "/box/x"}]}, "mounts[0]"),
    ({"network": "everything"}, "network"),
    ({"colour": "red"}, "colour"),
])
def test_refused(server, change, field):
    body = {k: v for k, v in dict(GOOD, **change).items() if v is not None}
    reply = server("POST", "/v1/judge", body)
    assert reply.status == 400, reply
    error = reply.json()["error"]
    assert error["code"] == "invalid_request" and error["field"] == field and error["message"], error


def test_not_json(server):
    assert server("POST", "/v1/judge", "{", headers={"Content-Type": "application/json"}).status == 400
    assert server("POST", "/v1/judge", "[]", headers={"Content-Type": "application/json"}).status == 400
    assert server("POST", "/v1/judge", "x", headers={"Content-Type": "text/plain"}).status == 415
    assert server("GET", "/v1/judge/jdg_nope").status == 404
    assert server("GET", "/v1/judge").status == 405


@pytest.mark.parametrize("language,code", [("python", "print(input())"), ("c", "int main(void) { return }")])
def test_isolation_is_that_of_a_box(server, language, code):
    """Also when there is no compile stage, and when there is nothing else."""
    answer = server("POST", "/v1/judge", dict(GOOD, language=language, code=code)).json()
    assert answer["verdict"] == ("accepted" if language == "python" else "compile_error")
    assert answer["isolation"]["level"] in ("full", "strong"), answer["isolation"]


def test_async(server):
    reply = server("POST", "/v1/judge", dict(GOOD, **{"async": True}))
    assert reply.status == 202 and reply.json()["status"] == "queued"
    run = reply.json()["id"]
    assert reply.headers["Location"] == "/v1/judge/" + run and run.startswith("jdg_")
    assert wait_until(lambda: server("GET", "/v1/judge/" + run).json()["status"] == "ok", 60)
    assert server("GET", "/v1/judge/" + run).json()["verdict"] == "accepted"
    assert server("DELETE", "/v1/judge/" + run).status == 409


def without_time(data):
    return {name: value for name, value in data.items() if name != "t"}


def test_streamed_per_test(server):
    tests = [{"name": str(n), "stdin": str(n), "expected": str(n)} for n in range(6)]
    reply = server("POST", "/v1/judge", dict(GOOD, tests=tests), headers={"Accept": "text/event-stream"})
    events = sse(reply.body.decode())
    assert [e[1] for e in events] == ["start"] + ["test"] * 6 + ["end"]
    assert [e[2]["name"] for e in events[1:-1]] == [str(n) for n in range(6)]
    end = events[-1][2]
    assert end["verdict"] == "accepted" and [t for t in end["tests"]] == [without_time(e[2]) for e in events[1:-1]]
    times = [e[2]["t"] for e in events]
    assert times[0] == 0 and times == sorted(times)
    again = server("GET", "/v1/judge/%s/events" % end["id"], headers={"Last-Event-ID": str(events[3][0])})
    assert [e[0] for e in sse(again.body.decode())] == [e[0] for e in events[4:]]


def test_cancelled_by_leaving(server):
    """A client that leaves takes its judgement along."""
    connection = server.connect()
    connection.request("POST", "/v1/judge", json.dumps(
        dict(GOOD, code="import time; time.sleep(600)", limits={"wall_ms": 600000})),
        {"Content-Type": "application/json"})
    time.sleep(0.5)
    connection.close()
    # The fixture sees that no box is left.


def test_belongs_to_its_key(make_server):
    server = make_server(env={"HERMES_API_KEYS": "one-key,another-key"})
    answer = server("POST", "/v1/judge", GOOD, key="one-key").json()
    assert server("GET", "/v1/judge/" + answer["id"], key="one-key").status == 200
    assert server("GET", "/v1/judge/" + answer["id"], key="another-key").status == 404
    assert server("POST", "/v1/judge", GOOD).status == 401
    assert "signature" not in answer


def test_a_spawner_that_dies_is_nobodys_fault(make_server):
    """Tests that were under way are run again: the verdicts are those of the solution."""
    server = make_server()
    tests = [{"stdin": "1", "expected": "1"}] * 8
    got = {}

    def post():
        got["answer"] = server("POST", "/v1/judge", dict(
            GOOD, code="import time; time.sleep(0.4); print(input())", tests=tests, parallel=2)).json()
    thread = threading.Thread(target=post)
    thread.start()
    assert wait_until(lambda: len([p for p in os.listdir("/proc") if p.isdigit()]) > 0)
    time.sleep(0.8)
    os.kill(server.child("hermes-spawn"), signal.SIGKILL)
    thread.join()
    answer = got["answer"]
    assert [t["verdict"] for t in answer["tests"]] == ["accepted"] * 8, answer
    assert max(t["attempts"] for t in answer["tests"]) > 1, "nothing was under way"


def test_what_cannot_be_judged_is_told(make_server):
    """Each time a test starts, its spawner is killed: internal_error, for that test, in the total."""
    server = make_server()
    got = {}
    stop = threading.Event()

    def post():
        try:
            got["reply"] = server("POST", "/v1/judge", dict(
                GOOD, code="import time; time.sleep(600)", limits={"wall_ms": 600000}))
        finally:
            stop.set()

    thread = threading.Thread(target=post)
    thread.start()
    killed = set()
    deadline = time.monotonic() + 60
    while not stop.is_set() and time.monotonic() < deadline:
        spawner = server.child("hermes-spawn")
        if spawner and spawner not in killed and boxes_below(spawner):
            killed.add(spawner)
            os.kill(spawner, signal.SIGKILL)
        time.sleep(0.02)
    thread.join()
    answer = got["reply"].json()
    assert answer["verdict"] == "internal_error", answer
    if "tests" in answer:  # else the monitor gave up on its spawner first
        assert answer["tests"][0]["verdict"] == "internal_error" and answer["tests"][0]["attempts"] == 3
        assert "1 of 1 tests could not be judged" in answer["message"] and answer["points"] == 0


def test_parallel_judgements_share_the_machine(make_server):
    """Ten at a time, each wishing for more than there is: all are answered, none starves."""
    server = make_server(args=["--concurrency", "3"])
    answers = []

    def post(n):
        answers.append(server("POST", "/v1/judge", dict(
            GOOD, tests=[{"stdin": str(k), "expected": str(k)} for k in range(6)], parallel=8)).json())
    threads = [threading.Thread(target=post, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a["verdict"] for a in answers] == ["accepted"] * 10, answers


def test_signature(server, hermes, work):
    body = json.dumps(GOOD)
    answer = server("POST", "/v1/judge", body, headers={"Content-Type": "application/json"}).json()
    assert answer["signature"]["algorithm"] == "hmac-sha256"
    path, request = work / "answer.json", work / "request.json"
    request.write_text(body)
    env = {"HERMES_SIGNING_KEY": KEY}

    def verify(value, *args, env=env):
        path.write_text(value if isinstance(value, str) else json.dumps(value, indent=3))
        return hermes("verify", *args, path, env=env)

    assert verify(answer).returncode == 0
    streamed = sse(server("POST", "/v1/judge", dict(GOOD), headers={"Accept": "text/event-stream"}).body.decode())
    assert "t" in streamed[-1][2] and verify(streamed[-1][2]).returncode == 0
    done = verify(dict(reversed(list(answer.items()))), "--request", request)
    assert done.returncode == 0 and b"signature matches" in done.stdout
    request.write_text(body + " ")
    assert verify(answer, "--request", request).returncode == 1
    for change in ({"verdict": "accepted!"}, {"points": 2}, {"max_points": 1.5}, {"tests": []}, {"more": 1}):
        assert verify(dict(answer, **change)).returncode == 1, change
    changed = json.loads(json.dumps(answer))
    changed["tests"][0]["usage"]["cpu_ms"] += 1
    assert verify(changed).returncode == 1
    changed = json.loads(json.dumps(answer))
    changed["signature"]["request_sha256"] = "0" * 64
    assert verify(changed).returncode == 1
    assert verify(answer, env={"HERMES_SIGNING_KEY": "another"}).returncode == 1
    del changed["signature"]
    assert b"not signed" in verify(changed).stderr
    assert verify("[]").returncode == 1 and verify("{").returncode == 1
    assert verify(answer, env={}).returncode == 2
    key_file = work / "key"
    key_file.write_text(KEY + "\n")
    assert verify(answer, "--key-file", key_file, env={}).returncode == 0
