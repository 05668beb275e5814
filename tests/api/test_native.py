# SPDX-License-Identifier: Apache-2.0
"""Facts about the native API: runs, what belongs to them, and the routes about the service."""
import base64
import json
import os
import time

import pytest

from apilib import SLOW, sse, wait_until


def test_a_run_answers_with_everything(server):
    reply = server.run("python", "import sys; print(1+1); print('e', file=sys.stderr)")
    assert reply.status == 200, reply
    run = reply.json()
    assert run["id"].startswith("run_") and len(run["id"]) >= 26
    assert (run["status"], run["exit_code"], run["signal"]) == ("ok", 0, None)
    assert (run["stdout"], run["stderr"]) == ("2\n", "e\n")
    assert run["limits_hit"] == [] and run["compile"] is None and run["files"] == []
    assert run["stdout_truncated"] is False and run["stderr_truncated"] is False
    assert set(run["usage"]) == {"wall_ms", "cpu_ms", "memory_peak_kb", "queue_ms", "setup_ms"}
    assert run["isolation"]["level"] in ("full", "strong")


def test_ids_have_kinds(server):
    """An id answers on the routes of its own kind only."""
    ids = {"/v1/runs/": server.run("python", "1").json()["id"],
           "/v1/judge/": server("POST", "/v1/judge", {"language": "python", "code": "1",
                                                      "tests": [{"expected": ""}]}).json()["id"],
           "/v1/sessions/": server("POST", "/v1/sessions", {"language": "bash"}).json()["id"]}
    for path in ids:
        for kind, name in ids.items():
            expected = 200 if kind == path else 404
            assert server("GET", path + name).status == expected, (path, name)
            if kind != path:
                assert server("DELETE", path + name).status == 404, (path, name)
                assert server("GET", path + name + "/events").status == 404, (path, name)
    assert server("GET", "/v1/runs/" + ids["/v1/runs/"] + "/events").status == 200
    assert server("DELETE", "/v1/sessions/" + ids["/v1/sessions/"]).status == 204


def test_a_run_that_never_started_has_no_isolation(make_server):
    server = make_server(env={"HERMES_CONCURRENCY": "1"})
    first = server("POST", "/v1/runs", {"language": "python", "code": "import time; time.sleep(60)", "async": True,
                                        "limits": {"wall_ms": 60000}}).json()["id"]
    assert wait_until(lambda: server("GET", "/v1/runs/" + first).json()["status"] == "running")
    second = server("POST", "/v1/runs", {"language": "python", "code": "1", "async": True}).json()["id"]
    for run in (second, first):
        assert server("DELETE", "/v1/runs/" + run).status == 202
        assert wait_until(lambda: server("GET", "/v1/runs/" + run).json()["status"] == "cancelled")
    isolation = server("GET", "/v1/runs/" + second).json()["isolation"]
    assert isolation == {"level": None, "cgroup": None, "start": None, "start_reason": None}
    isolation = server("GET", "/v1/runs/" + first).json()["isolation"]  # the control: it had a box
    assert isolation["level"] in ("full", "strong") and isolation["start"] in ("warm", "cold")


def test_a_failing_program_is_http_200(server):
    assert server.run("python", "import sys; sys.exit(3)").json()["exit_code"] == 3
    run = server.run("python", "while True: pass",
                     limits={"wall_ms": 500 * SLOW, "cpu_ms": 200 * SLOW}).json()
    assert run["status"] == "time_limit" and run["exit_code"] is None
    run = server.run("python", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").json()
    assert (run["status"], run["signal"]) == ("signaled", "SIGSEGV")


def test_a_compiled_language_tells_about_its_compile_stage(server):
    run = server.run("c", "int main(void) { return 7; }").json()
    assert run["compile"]["status"] == "ok" and run["exit_code"] == 7
    run = server.run("c", "int main(void) { return }").json()
    assert run["status"] == "compile_error" and "error" in run["compile"]["stderr"]


@pytest.mark.parametrize("language", ["c", "python", "bash"])
def test_limits_of_the_compile_stage_have_bounds_in_every_language(server, language):
    code = {"c": "int main(void) { return 0; }"}.get(language, "")
    assert server.run(language, code or "exit(0)", compile_limits={"wall_ms": 2000}).status == 200
    for limits in ({"memory_mb": 10 ** 9}, {"memory_mb": 1}, {"wall_ms": 10 ** 12}, {"memory_mb": 64, "disk_mb": 65}):
        replies = [server.run(language, code or "exit(0)", **{name: limits}) for name in ("limits", "compile_limits")]
        assert [r.status for r in replies] == [400, 400], (limits, replies)
        fields = [r.json()["error"]["field"] for r in replies]
        assert fields[1] == "compile_" + fields[0], fields
    judged = {"language": language, "code": code or "exit(0)", "compile_limits": {"memory_mb": 1},
              "tests": [{"stdin": "", "expected": ""}], "compare": "exact"}
    assert server("POST", "/v1/judge", judged).json()["error"]["field"] == "compile_limits.memory_mb"


def test_a_compile_that_a_limit_stopped_is_tried_again(server):
    """With more room the same source is compiled, not answered from the cache; then it is."""
    code = "int main(void) { return 5; } /* %d */" % time.monotonic_ns()
    run = server.run("c", code, compile_limits={"memory_mb": 4}).json()
    assert run["status"] == "compile_error" and run["compile"]["cached"] is False, run
    assert run["compile"]["status"] != "ok", run
    for cached in (False, True):
        run = server.run("c", code).json()
        assert (run["exit_code"], run["compile"]["cached"]) == (5, cached), run


def test_files_args_env_stdin_collect(server):
    code = ("import os, sys\nfrom lib import f\nprint(f(), sys.argv[1:], os.environ['A'], "
            "sys.stdin.read())\nopen('out.bin', 'wb').write(b'\\x00\\xff')\n")
    run = server("POST", "/v1/runs", {
        "language": "python", "code": code, "args": ["x y", "-z"], "env": {"A": "é"},
        "files": [{"name": "lib.py", "content": base64.b64encode(b"f = lambda: 'lib'").decode(),
                   "encoding": "base64"}],
        "stdin": base64.b64encode(b"in").decode(), "stdin_encoding": "base64",
        "collect": ["*.bin", "nothing"]}).json()
    assert run["stdout"] == "lib ['x y', '-z'] é in\n", run
    assert [f["name"] for f in run["files"]] == ["out.bin"]
    assert base64.b64decode(run["files"][0]["content"]) == b"\x00\xff"


def test_output_that_is_not_utf8(server):
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\x00b')"
    assert server.run("python", code).json()["stdout"] == "a\ufffd\x00b"
    run = server.run("python", code, output_encoding="base64").json()
    assert base64.b64decode(run["stdout"]) == b"a\xff\x00b"


def test_the_entry_may_be_in_a_directory(server):
    reply = server("POST", "/v1/runs", {
        "language": "python", "entry": "d/e.py",
        "files": [{"name": "d/e.py", "content": "import g; print(g.x)"},
                  {"name": "d/g.py", "content": "x = 5"}]})
    assert reply.json()["stdout"] == "5\n", reply


def test_limits_above_the_maximum_are_refused(server):
    reply = server.run("python", "1", limits={"wall_ms": 10 ** 9})
    assert reply.status == 400
    assert reply.json()["error"]["field"] == "limits.wall_ms"


def test_the_operator_s_maxima_are_no_reason_to_refuse_defaults(make_server):
    server = make_server(env={"HERMES_MAX_WALL_MS": "5000", "MAX_MEMORY_MB": "128"})
    assert server.run("python", "print(1)").json()["stdout"] == "1\n"
    assert server.run("c", "int main(void) { return 3; }").json()["exit_code"] == 3
    for runtime in server("GET", "/v1/runtimes").json()["runtimes"]:
        assert runtime["limits"]["wall_ms"] <= 5000 and runtime["limits"]["memory_mb"] <= 128
    assert server.run("python", "1", limits={"memory_mb": 129}).status == 400


def test_async_then_get(server):
    reply = server("POST", "/v1/runs", {"language": "python", "code": "print(5)", "async": True})
    assert reply.status == 202
    started = reply.json()
    assert started["status"] == "queued"
    path = "/v1/runs/" + started["id"]
    assert reply.headers["Location"] == path
    assert wait_until(lambda: "stdout" in server("GET", path).json())
    run = server("GET", path).json()
    assert (run["id"], run["status"], run["stdout"]) == (started["id"], "ok", "5\n")
    assert server("DELETE", path).status == 409


def test_a_sync_run_can_be_looked_up(server):
    run = server.run("python", "print(6)").json()
    assert server("GET", "/v1/runs/" + run["id"]).json() == run


def test_delete_cancels(server):
    run = server("POST", "/v1/runs", {"language": "python", "async": True,
                                      "code": "import time\nprint(1, flush=True)\ntime.sleep(60)",
                                      "limits": {"wall_ms": 60000}}).json()
    path = "/v1/runs/" + run["id"]
    assert wait_until(lambda: server("GET", path).json()["status"] == "running")
    began = time.monotonic()
    assert server("DELETE", path).status == 202
    assert wait_until(lambda: server("GET", path).json()["status"] == "cancelled")
    assert time.monotonic() - began < 5 * SLOW


def test_unknown_runs_are_404(server):
    for path in ("/v1/runs/run_0", "/v1/runs/run_0/events", "/v1/runs/" + "x" * 127):
        assert server("GET", path).status == 404
        assert server("GET", path).json()["error"]["code"] == "not_found"


def test_a_stream_tells_start_output_end(server):
    code = ("import sys, time\nprint('a', flush=True)\ntime.sleep(0.3)\n"
            "print('b', file=sys.stderr, flush=True)\ntime.sleep(0.3)\nprint('c')\n")
    reply = server("POST", "/v1/runs", {"language": "python", "code": code},
                   headers={"Accept": "text/event-stream"})
    assert reply.headers["Content-Type"] == "text/event-stream"
    events = sse(reply.body.decode())
    assert [name for _, name, _ in events] == ["start", "stdout", "stderr", "stdout", "end"]
    assert [i for i, _, _ in events] == [1, 2, 3, 4, 5]
    assert [d["data"] for _, n, d in events if n == "stdout"] == ["a\n", "c\n"]
    assert events[-1][2]["stdout"] == "a\nc\n" and events[-1][2]["status"] == "ok"
    times = [data["t"] for _, _, data in events]
    assert times[0] == 0 and times == sorted(times)
    assert times[2] - times[1] >= 250 and times[3] - times[2] >= 250

    path = "/v1/runs/%s/events" % events[0][2]["id"]
    again = server("GET", path, headers={"Last-Event-ID": "2"})
    assert sse(again.body.decode()) == events[2:]
    assert server("GET", path, headers={"Last-Event-ID": "5"}).status == 204
    assert server("GET", path, headers={"Last-Event-ID": "x"}).status == 400


def test_several_readers_follow_one_run(server):
    run = server("POST", "/v1/runs", {"language": "python", "async": True, "code":
                                      "import time\nfor i in range(5):\n"
                                      " print(i, flush=True)\n time.sleep(0.1)\n"}).json()
    connections = []
    for _ in range(3):
        c = server.connect()
        c.request("GET", "/v1/runs/%s/events" % run["id"])
        connections.append(c)
    texts = [c.getresponse().read().decode() for c in connections]
    for text in texts:
        out = "".join(d["data"] for _, n, d in sse(text) if n == "stdout")
        assert out == "0\n1\n2\n3\n4\n"


def test_an_unknown_image_is_404(server):
    reply = server.run("python", "1", image="mine")
    if os.geteuid() == 0:
        assert reply.status == 404 and reply.json()["error"]["code"] == "not_found"
    else:  # without root there are no images
        assert reply.status == 501 and reply.json()["error"]["code"] == "unsupported"
    assert server.run("python", "print(1)", image="python").json()["stdout"] == "1\n"


def test_routes_about_the_service(server):
    assert server("GET", "/").body == b"UP!"
    health = server("GET", "/health").json()
    assert health["status"] == "ok" and health["isolation"]["level"] in ("full", "strong")
    assert health["auth_enabled"] is False
    assert server("GET", "/version").json()["name"] == "hermes"
    runtimes = {r["name"]: r for r in server("GET", "/v1/runtimes").json()["runtimes"]}
    assert runtimes["python"]["available"] and runtimes["python"]["version"].startswith("3.")
    assert runtimes["python"]["limits"]["wall_ms"] > 0
    report = server("GET", "/v1/report").json()
    assert any(f["name"] == "seccomp" and f["enforced"] for f in report["features"])


def test_openapi_has_every_route(server):
    paths = server("GET", "/openapi.json").json()["paths"]
    assert "post" in paths["/v1/runs"] and "delete" in paths["/v1/runs/{id}"]
    assert {"/health", "/metrics", "/version", "/v1/runtimes", "/v1/report"} <= set(paths)
    # streams without an end or of a minute: test_status.py, tests/approval, test_server_selftest.py
    for path in ("/v1/events", "/v1/approvals/events", "/v1/selftest"):
        assert paths.pop(path)
    for path, methods in paths.items():
        for method in methods:
            reply = server(method.upper(), path.replace("{id}", "x"), body={}
                           if method == "post" else None)
            assert reply.status not in (405, 500), (method, path, reply)


def test_metrics_count_runs(server):
    server.run("python", "1")
    text = server("GET", "/metrics").body.decode()
    assert 'hermes_runs_total{language="python",status="ok"}' in text
    assert "hermes_run_seconds_bucket" in text and "hermes_queue_waiting 0" in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.split(" ")) == 2, line


def test_head_and_method(server):
    reply = server("HEAD", "/health")
    assert reply.status == 200 and reply.body == b""
    reply = server("PUT", "/health")
    assert reply.status == 405 and reply.headers["Allow"] == "GET, HEAD"
    reply = server("PUT", "/v1/runs")
    assert reply.status == 405 and reply.headers["Allow"] == "POST, GET, HEAD"


def test_keep_alive_serves_many_requests_on_one_connection(server):
    conn = server.connect()
    for i in range(20):
        assert server("GET", "/health", conn=conn).status == 200
        assert server("GET", "/nope", conn=conn).status == 404
    assert server("POST", "/v1/runs", {"language": "python", "code": "1"},
                  conn=conn).status == 200
    assert server("POST", "/v1/runs", {"language": "?"}, conn=conn).status == 400
    conn.close()


def test_cors(server):
    good = {"Origin": "http://localhost:3000"}
    reply = server("OPTIONS", "/v1/runs", headers=dict(good, **{
        "Access-Control-Request-Method": "POST"}))
    assert reply.status == 200 and reply.body == b""
    assert reply.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    for name in ("Authorization", "X-API-Key", "Content-Type"):
        assert name in reply.headers["Access-Control-Allow-Headers"]
    assert server("GET", "/health", headers=good).headers["Access-Control-Allow-Origin"]
    reply = server("GET", "/health", headers={"Origin": "http://evil.example"})
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_tcp_and_unix_are_the_same(server):
    assert server("GET", "/health", tcp=True).json() == server("GET", "/health").json()


def test_a_plain_run_is_cancelled_when_its_client_leaves(server):
    conn = server.connect()
    conn.request("POST", "/v1/runs", json.dumps({
        "language": "python", "code": "import time; time.sleep(60)",
        "limits": {"wall_ms": 60000}}), {"Content-Type": "application/json"})
    assert wait_until(lambda: b"hermes_boxes_running 1" in server("GET", "/metrics").body)
    conn.sock.close()
    assert wait_until(lambda: b"hermes_boxes_running 0" in server("GET", "/metrics").body, 3)


@pytest.mark.slow
def test_a_streamed_run_waits_for_a_resume_then_ends(make_server):
    server = make_server(env={"HERMES_RESUME_GRACE_S": "2"})
    code = "import time\nfor i in range(600):\n print(i, flush=True)\n time.sleep(0.1)\n"

    def start():
        conn = server.connect()
        conn.request("POST", "/v1/runs", json.dumps({
            "language": "python", "code": code, "limits": {"wall_ms": 60000}}),
            {"Content-Type": "application/json", "Accept": "text/event-stream"})
        answer = conn.getresponse()
        first = answer.read1(65536)
        return conn, answer.headers["X-Run-Id"], first
    conn, run, first = start()
    conn.sock.close()
    conn.close()
    time.sleep(0.5)
    assert server("GET", "/v1/runs/" + run).json()["status"] == "running"
    again = server.connect()
    again.request("GET", "/v1/runs/%s/events" % run, headers={"Last-Event-ID": "1"})
    answer = again.getresponse()
    assert b"id: 2\n" in answer.read1(65536)
    again.sock.close()
    again.close()
    assert wait_until(lambda: server("GET", "/v1/runs/" + run).json()["status"] == "cancelled")
