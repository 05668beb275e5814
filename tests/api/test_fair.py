# SPDX-License-Identifier: Apache-2.0
"""Admission between keys: whatever one key does, the others get their share. docs/load.md has the rules."""
import json
import threading
import time

import pytest

from apilib import wait_until

from sessionlib import Later, Session, ask_copy, fork

A, B = "alices-secret", "bobs-secret"
KEYS = {"HERMES_API_KEYS": A + ", " + B, "HERMES_SESSION_PARKED": "0"}
HELD = ("hermes_boxes_running", "hermes_queue_waiting", "hermes_memory_promised_bytes", "hermes_sessions",
        "hermes_processes_promised")


def held(server):
    return {name: server.metric(name) for name in HELD}


@pytest.fixture
def make(make_server):
    """Makes servers; at the end of the test their sessions are deleted and nothing is promised any more."""
    made = []

    def maker(keys=(A, B), **env):
        server = make_server(env=dict(KEYS if keys else {"HERMES_SESSION_PARKED": "0"}, **env))
        made.append((server, keys or (None,)))
        return server
    yield maker
    for server, keys in made:
        if server.process.poll() is not None:
            continue
        for key in keys:
            for run in waiting_runs.pop(key, ()):
                server("DELETE", "/v1/runs/" + run, key=key)
            for session in server("GET", "/v1/sessions", key=key).json()["sessions"]:
                server("DELETE", "/v1/sessions/" + session["id"], key=key)
        assert wait_until(lambda: not any(held(server).values()), 5), held(server)


waiting_runs = {}


def run_later(server, key, memory_mb, code="print(1)", **limits):
    """An asynchronous run; its reply."""
    reply = server("POST", "/v1/runs", {"language": "bash", "code": code, "async": True,
                                        "limits": dict(limits, memory_mb=memory_mb)}, key=key)
    if reply.status == 202:
        waiting_runs.setdefault(key, []).append(reply.json()["id"])
    return reply


def make_session(server, key, memory_mb=64, **limits):
    return server("POST", "/v1/sessions", {"language": "bash", "limits": dict(limits, memory_mb=memory_mb)}, key=key)


def session(server, key, memory_mb=64, **limits):
    return Session(server, "bash", key=key, limits=dict(limits, memory_mb=memory_mb))


def echo(server, key, memory_mb=64):
    reply = server.run("bash", "echo fine", key=key, limits={"memory_mb": memory_mb})
    assert reply.status == 200 and reply.json()["stdout"] == "fine\n", reply
    return reply.json()


# F2


@pytest.mark.parametrize("memory_mb", [6000, 5200])
def test_a_run_that_does_not_fit_blocks_no_other_key(make, memory_mb):
    """The exploit of the audit: one idle session and one large asynchronous run."""
    server = make(HERMES_MEMORY_MB="6000", HERMES_QUEUE_WAIT_S="4")
    session(server, A, 1024)
    reply = run_later(server, A, memory_mb)
    for _ in range(3):
        echo(server, B, 256)
    if memory_mb == 6000:  # more than one of several keys can ever have
        assert reply.status == 400 and reply.json()["error"]["field"] == "limits.memory_mb", reply
    else:
        assert reply.status == 202 and server.metric("hermes_queue_waiting") == 1
    # Its own smaller runs go on, too: the large one cannot fit beside the session.
    echo(server, A, 256)


def test_many_large_runs_in_the_queue(make):
    """Dozens of them, and none that can be served; other keys notice nothing, and the queue has room."""
    server = make(HERMES_MEMORY_MB="6000", HERMES_QUEUE="16", HERMES_QUEUE_WAIT_S="4")
    session(server, A, 1024)
    statuses = [run_later(server, A, 5200).status for _ in range(20)]
    assert statuses == [202] * 16 + [429] * 4
    for _ in range(3):
        echo(server, B, 256)
    assert server.metric("hermes_queue_waiting") == 16  # bob needed no place in it


def test_without_keys_a_large_run_is_served_and_small_ones_go_on(make):
    """One caller for all: as before, a large run is waited for, and one that does not fit beside the sessions is not."""
    server = make(keys=(), HERMES_MEMORY_MB="2000")
    first = run_later(server, None, 2000, "sleep 1").json()["id"]
    second = run_later(server, None, 2000, "echo second").json()["id"]

    def status(run):
        return server("GET", "/v1/runs/" + run).json()["status"]
    assert wait_until(lambda: status(second) == "ok", 10) and status(first) == "ok"
    session(server, None, 64)
    assert run_later(server, None, 2000).status == 202
    echo(server, None)


# F7


def test_one_session_cannot_have_all_session_memory(make):
    server = make(HERMES_MEMORY_MB="6000", HERMES_SESSION_MEMORY_MB="4500", HERMES_QUEUE_WAIT_S="4")
    reply = make_session(server, A, 4500)
    assert reply.status == 400 and "3375" in reply.json()["error"]["message"], reply
    session(server, A, 3375)
    reply = make_session(server, A, 100)
    assert reply.status == 429 and "memory" in reply.json()["error"]["message"], reply
    session(server, B, 1000)
    echo(server, B, 1600)


def test_the_longest_idle_session_of_the_largest_key_makes_room(make):
    server = make(HERMES_MEMORY_MB="6000", HERMES_SESSION_MEMORY_MB="4500")
    oldest, second, third = (session(server, A, 1100) for _ in range(3))
    oldest.exec("x=1")
    work = Later(lambda: second.post("sleep 4; echo done"))  # the longest idle one is busy now
    assert wait_until(lambda: second.state()["state"] == "busy", 5)
    mine = [session(server, B, 1100)]  # the last quarter
    assert {s.state()["state"] for s in (oldest, third)} == {"idle"}
    mine.append(session(server, B, 1100))
    gone = third.state()
    assert (gone["state"], gone["reason"]) == ("expired", "evicted") and "share" in gone["message"], gone
    reply = third.post("echo 1")
    assert reply.status == 409 and reply.json()["state_lost"] and "share" in reply.json()["error"]["message"], reply
    # Both have their share now: nothing more is taken from alice.
    reply = make_session(server, B, 1100)
    assert reply.status == 429, reply
    assert oldest.exec("echo $x")["stdout"] == "1\n"
    assert work.result().json()["stdout"] == "done\n"
    assert server.metric("hermes_sessions_evicted_total") == 1
    assert third.delete().status == 204
    for s in mine:
        assert s.exec("echo mine")["stdout"] == "mine\n"


def test_a_session_that_runs_code_is_never_taken(make):
    server = make(HERMES_MAX_SESSIONS="4")
    mine = [session(server, A) for _ in range(3)]
    work = [Later(lambda s=s: s.post("sleep 3; echo done")) for s in mine]
    assert wait_until(lambda: {s.state()["state"] for s in mine} == {"busy"}, 5)
    session(server, B)
    reply = make_session(server, B)
    assert reply.status == 429 and "at most 4 sessions" in reply.json()["error"]["message"], reply
    assert [w.result().json()["stdout"] for w in work] == ["done\n"] * 3
    session(server, B)
    assert sorted(s.state()["state"] for s in mine) == ["expired", "idle", "idle"]


def test_the_number_of_sessions_is_shared(make):
    server = make(HERMES_MAX_SESSIONS="4")
    mine = [session(server, A) for _ in range(3)]
    assert make_session(server, A).status == 429  # the last quarter is for others
    session(server, B)
    session(server, B)
    assert [s.state()["state"] for s in mine] == ["expired", "idle", "idle"]
    assert make_session(server, B).status == 429
    assert make_session(server, A).status == 429
    assert [s.state()["state"] for s in mine] == ["expired", "idle", "idle"]


def test_a_run_within_its_share_takes_the_room_of_idle_sessions(make):
    server = make(HERMES_MEMORY_MB="6000", HERMES_SESSION_MEMORY_MB="4500", HERMES_QUEUE_WAIT_S="6")
    mine = [session(server, A, 1100) for _ in range(3)]
    echo(server, B, 2600)  # fits beside them
    assert [s.state()["state"] for s in mine] == ["idle"] * 3
    echo(server, B, 2900)
    assert [s.state()["state"] for s in mine] == ["expired", "idle", "idle"]
    # More than its share is not worth a session.
    reply = server.run("bash", "echo 1", key=B, limits={"memory_mb": 4000})
    assert reply.status == 429, reply
    assert [s.state()["state"] for s in mine] == ["expired", "idle", "idle"]


def test_a_checkpoint_goes_before_its_session(make):
    server = make(HERMES_MAX_SESSIONS="4")
    one = Session(server, key=A)
    for name in ("a", "b"):
        assert ask_copy(one, "/checkpoints", {"name": name}).status == 201
    session(server, B)
    session(server, B)
    assert one.state()["state"] == "idle" and one.out("print(1)") == "1\n"
    assert [c["name"] for c in one.call("GET", "/checkpoints").json()["checkpoints"]] == ["b"]
    reply = one.call("POST", "/rollback", {"checkpoint": "a"})
    assert reply.status in (404, 409), reply
    assert server.metric("hermes_sessions") == 4


def test_promises_of_copies(make):
    """Memory of an original lasts as long as its copies, its processes and its place among sessions do not."""
    server = make(keys=())
    one = Session(server, limits={"memory_mb": 200, "processes": 50})
    copy = fork(one)
    assert held(server) == dict(zip(HELD, (0, 0, 400 << 20, 2, 100)))
    one.delete()
    assert held(server) == dict(zip(HELD, (0, 0, 400 << 20, 1, 50)))
    copy.delete()
    assert held(server) == dict.fromkeys(HELD, 0)


# F4


def test_processes_are_shared(make):
    server = make(HERMES_PROCESSES_TOTAL="400", HERMES_QUEUE_WAIT_S="4")
    reply = server.run("bash", "echo 1", key=A, limits={"processes": 301})
    assert reply.status == 400 and reply.json()["error"]["field"] == "limits.processes", reply
    assert server.run("bash", "echo 1", key=A, limits={"processes": 300}).status == 200
    for _ in range(2):
        session(server, A, processes=100)
    reply = make_session(server, A, processes=100)
    assert reply.status == 429 and "processes" in reply.json()["error"]["message"], reply
    assert server.run("bash", "echo 1", key=A, limits={"processes": 200}).status == 429
    assert server.run("bash", "echo 1", key=B, limits={"processes": 200}).status == 200
    for _ in range(2):
        session(server, B, processes=100)


# F6


def narrow(make_server, tmp_path):
    path = tmp_path / "keys"
    path.write_text("[narrow]\nkey = %s\nconcurrency = 1\n[wide]\nkey = %s\n" % (A, B))
    path.chmod(0o600)
    return make_server(env={"HERMES_KEYS_FILE": str(path), "HERMES_SESSION_PARKED": "0"})


def test_execs_take_places(make_server, tmp_path):
    server = narrow(make_server, tmp_path)
    one, two, three = (session(server, A) for _ in range(3))
    first = one.later("sleep 3; echo one")
    assert wait_until(lambda: server.metric("hermes_boxes_running") == 1, 5)
    second = two.later("echo two")
    assert wait_until(lambda: server.metric("hermes_queue_waiting") == 1, 5)
    reply = three.post("echo three")
    assert reply.status == 429 and reply.headers["Retry-After"] and "its limit" in reply.json()["error"]["message"], reply
    assert server.run("bash", "echo 1", key=A).status == 429
    other = session(server, B)
    assert other.exec("echo other")["stdout"] == "other\n" and first.reply is None
    assert first.result().json()["stdout"] == "one\n" and second.result().json()["stdout"] == "two\n"
    assert second.result().json()["usage"]["queue_ms"] > 0
    assert wait_until(lambda: held(server)["hermes_boxes_running"] == 0, 5)


def test_who_waits_for_a_place_can_be_sent_away(make_server, tmp_path):
    server = narrow(make_server, tmp_path)
    one, two = (session(server, A) for _ in range(2))
    first = one.later("sleep 30")
    assert wait_until(lambda: server.metric("hermes_boxes_running") == 1, 5)

    def wait_in(s):
        later = s.later("echo late")
        assert wait_until(lambda: server.metric("hermes_queue_waiting") == 1, 5) and s.state()["state"] == "busy"
        return later
    later = wait_in(two)
    assert two.call("POST", "/interrupt").status == 202
    reply = later.result()
    assert reply.status == 409 and "interrupted" in reply.json()["error"]["message"], reply
    assert two.state()["state"] == "idle"
    conn = server.connect()  # a client that leaves
    conn.request("POST", "/v1/sessions/%s/exec" % two.id, json.dumps({"code": "echo late"}),
                 {"Content-Type": "application/json", "Authorization": "Bearer " + A})
    assert wait_until(lambda: server.metric("hermes_queue_waiting") == 1, 5)
    conn.close()
    assert wait_until(lambda: server.metric("hermes_queue_waiting") == 0, 5)
    assert wait_until(lambda: two.state()["state"] == "idle", 5)
    later = wait_in(two)
    assert two.delete().status == 204
    assert later.result().status in (404, 409) and first.reply is None
    assert server.metric("hermes_queue_waiting") == 0
    assert one.delete().status == 204
    assert wait_until(lambda: held(server) == dict.fromkeys(HELD, 0), 5), held(server)


TOOLS = [{"name": "ask", "description": "asks", "input_schema": {"type": "object"}}]


@pytest.mark.parametrize("pause", [0, 2])
def test_a_tool_may_need_a_place_itself(make, pause):
    """The exec has the only place, its tool needs one: it gives the place back while it waits."""
    server = make(keys=(), HERMES_CONCURRENCY="1")
    s = Session(server)

    def on_event(name, data):
        if name == "tool_call":
            time.sleep(pause)
            assert server.run("bash", "echo 1").json()["stdout"] == "1\n"
            assert s.call("POST", "/tool_results", {"id": data["id"], "output": 7}).status == 204
    end = s.stream("from hermes_tools import ask\nfor _ in range(2): print(ask())", on_event, tools=TOOLS)[-1][1]
    assert end["status"] == "ok" and end["stdout"] == "7\n7\n", end


def test_an_answered_tool_waits_for_a_place(make):
    """What comes back after a tool is behind those who have the places, and loses nothing by it."""
    server = make(keys=(), HERMES_CONCURRENCY="1")
    s = Session(server)
    ran = []

    def on_event(name, data):
        if name == "tool_call":
            assert wait_until(lambda: server.metric("hermes_boxes_running") == 0, 5)
            ran.append(Later(lambda: server.run("bash", "sleep 3; echo 1")))
            assert wait_until(lambda: server.metric("hermes_boxes_running") == 1, 5)
            assert s.call("POST", "/tool_results", {"id": data["id"], "output": 7}).status == 204
            assert wait_until(lambda: server.metric("hermes_queue_waiting") == 1, 5)
    code = "from hermes_tools import ask\nprint(ask())"
    end = s.stream(code, on_event, tools=TOOLS, timeout_ms=2500)[-1][1]
    assert end["status"] == "ok" and end["stdout"] == "7\n", end
    assert ran[0].result().json()["stdout"] == "1\n"


def test_a_session_that_is_deleted_while_its_exec_comes_back(make):
    server = make(keys=(), HERMES_CONCURRENCY="1")
    s = Session(server)
    ran = []

    def on_event(name, data):
        if name == "tool_call":
            assert wait_until(lambda: server.metric("hermes_boxes_running") == 0, 5)
            ran.append(Later(lambda: server.run("bash", "sleep 2; echo 1")))
            assert wait_until(lambda: server.metric("hermes_boxes_running") == 1, 5)
            assert s.call("POST", "/tool_results", {"id": data["id"], "output": 7}).status == 204
            assert wait_until(lambda: server.metric("hermes_queue_waiting") == 1, 5)
            assert s.delete().status == 204
    end = s.stream("from hermes_tools import ask\nprint(ask())", on_event, tools=TOOLS)[-1][1]
    assert end["status"] == "cancelled" and ran[0].result().status == 200, end


def test_places_are_lent(make):
    """Runs of one key that last do not keep another key from its share of the places."""
    server = make(HERMES_CONCURRENCY="2", HERMES_QUEUE_WAIT_S="30")
    mine = [Later(lambda: server.run("bash", "sleep 4; echo slow", key=A, limits={"wall_ms": 60000})) for _ in range(3)]
    assert wait_until(lambda: server.metric("hermes_queue_waiting") == 1, 5)
    for _ in range(3):
        echo(server, B)
    assert [m.reply for m in mine] == [None] * 3
    assert server.metric("hermes_boxes_running") == 2
    assert [m.result().json()["stdout"] for m in mine] == ["slow\n"] * 3


def test_judgements_go_on_beside_what_waits(make):
    """A run that cannot be served takes no worker from the judgements of another key."""
    server = make(HERMES_MEMORY_MB="6000", HERMES_CONCURRENCY="8")
    session(server, A, 1024)
    assert run_later(server, A, 5200).status == 202
    tests = [{"stdin": "", "expected": "1"}] * 4
    seen = []
    stop = threading.Event()

    def look():
        while not stop.is_set():
            seen.append(server.metric("hermes_boxes_running"))
            time.sleep(0.05)
    watcher = threading.Thread(target=look)
    watcher.start()
    answer = server("POST", "/v1/judge", {"language": "bash", "code": "sleep 1; echo 1", "tests": tests, "parallel": 4}, key=B)
    stop.set()
    watcher.join()
    assert answer.status == 200 and answer.json()["verdict"] == "accepted", answer
    assert max(seen) == 4, seen


# Nothing leaks.


def test_failures_give_everything_back(make):
    server = make(HERMES_MEMORY_MB="2000", HERMES_QUEUE_WAIT_S="1")
    refused = server("POST", "/v1/sessions", {"language": "python", "limits": {"memory_mb": 4}}, key=A)
    assert refused.status == 400, refused  # its interpreter does not fit
    assert held(server) == dict.fromkeys(HELD, 0)
    mine = session(server, A, 1000)
    assert make_session(server, A, 1000).status == 429
    assert mine.call("POST", "/fork", {"count": 2}).status in (201, 429)
    waits = run_later(server, A, 1700).json()["id"]
    assert server("DELETE", "/v1/runs/" + waits, key=A).status in (200, 202, 204)
    assert server.run("bash", "echo 1", key=B, limits={"memory_mb": 1400}).status == 429
    assert server.run("nosuch", "1", key=B).status in (400, 404, 422)
    spawner = server.child("hermes-spawn")
    mine.exec("kill -9 $$")
    for s in server("GET", "/v1/sessions", key=A).json()["sessions"]:
        assert server("DELETE", "/v1/sessions/" + s["id"], key=A).status == 204
    assert server.child("hermes-spawn") == spawner
    assert wait_until(lambda: held(server) == dict.fromkeys(HELD, 0), 5), held(server)


def test_flipping_between_many_small_runs_and_one_large(make):
    """One key sends everything at once, again and again; the other one is served all the time."""
    server = make(HERMES_MEMORY_MB="4000", HERMES_QUEUE="32", HERMES_QUEUE_WAIT_S="20")
    stop = threading.Event()

    def flood(memory_mb):
        while not stop.is_set():
            server.run("bash", ":", key=A, limits={"memory_mb": memory_mb})
    threads = [threading.Thread(target=flood, args=(m,)) for m in (3400, 3400, 64, 64, 64, 64, 800, 1900)]
    for t in threads:
        t.start()
    try:
        for _ in range(30):
            echo(server, B, 500)
        session(server, B, 500)
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_sessions_end_while_they_are_used(make):
    """One key has as many as it can get, the other one deletes its own again and again, both use, copy and keep them:
    every answer is one that a caller can be given, and in the end nothing is held."""
    server = make(HERMES_MAX_SESSIONS="6", HERMES_QUEUE_WAIT_S="20")
    wrong = []
    enough = threading.Event()

    def live(key):
        while not enough.is_set():
            reply = server("POST", "/v1/sessions", {"language": "python", "limits": {"memory_mb": 256}}, key=key)
            if reply.status != 201:
                if reply.status not in (429, 409):
                    wrong.append(reply)
                continue
            path = "/v1/sessions/" + reply.json()["id"]
            for method, what, body in (("POST", "/exec", {"code": "x = 1"}), ("POST", "/checkpoints", {"name": "a"}),
                                       ("POST", "/rollback", {"checkpoint": "a"}), ("POST", "/fork", {}),
                                       ("POST", "/exec", {"code": "print(x)"}), ("POST", "/reset", None)):
                reply = server(method, path + what, body, key=key)
                if reply.status not in (200, 201, 404, 409, 429, 501):
                    wrong.append((what, reply))
            for one in server("GET", "/v1/sessions", key=key).json()["sessions"] if key == B else ():
                server("DELETE", "/v1/sessions/" + one["id"], key=key)
    threads = [threading.Thread(target=live, args=(key,)) for key in (A, A, A, B, B)]
    for t in threads:
        t.start()
    time.sleep(6)
    was_evicted = wait_until(lambda: server.metric("hermes_sessions_evicted_total") > 0, 60)
    enough.set()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]
    assert was_evicted
    echo(server, A)
    echo(server, B)
