# SPDX-License-Identifier: Apache-2.0
"""GET /v1/status, GET /v1/events, GET /v1/keys: what the server does now, and who may see it."""
import json
import re
import time

import pytest

from apilib import SLOW, Server, borrow_dir, return_dir, sse, wait_until
from sessionlib import Session

KEYS = ("[alice]\nkey = alices-secret\nconcurrency = 3\nrate_per_s = 100\nrate_per_m = 1000\ncpu_s_per_hour = 500\n"
        "[bob]\nkey = bobs-secret\n[root]\nkey = roots-secret\nrole = operator\n")
A, B, ROOT = "alices-secret", "bobs-secret", "roots-secret"
SLEEP = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def keyed():
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys"), "HERMES_CONCURRENCY": "2"})
    yield server
    server.stop()
    return_dir(path)


def status(server, key=None):
    reply = server("GET", "/v1/status", key=key)
    assert reply.status == 200, reply
    return reply.json()


def boxes(server, key=None):
    return {box["id"]: box for box in status(server, key)["boxes"]}


class Later:
    """An asynchronous run that is cancelled at the end."""
    def __init__(self, server, key=None, path="/v1/runs", **fields):
        self.server, self.key, self.path = server, key, path
        body = dict({"language": "python", "code": SLEEP, "async": True, "limits": {"wall_ms": 60000}}, **fields)
        reply = server("POST", path, body, key=key)
        assert reply.status == 202, reply
        self.id = reply.json()["id"]

    def __enter__(self):
        return self.id

    def __exit__(self, *failure):
        self.server("DELETE", "%s/%s" % (self.path, self.id), key=self.key)
        assert wait_until(lambda: self.id not in boxes(self.server, self.key))


class Listener:
    """A client of GET /v1/events."""
    def __init__(self, server, key=None):
        self.conn = server.connect()
        self.conn.request("GET", "/v1/events", headers={"Authorization": "Bearer " + key} if key else {})
        self.answer = self.conn.getresponse()
        self.text = b""
        self.seen = 0  # events that were looked at

    def until(self, check, seconds=20):
        """Reads until an event for which this holds. The socket's own timeout ends the wait for bytes."""
        self.conn.sock.settimeout(seconds * SLOW)
        while True:
            for event in sse(self.text.decode())[self.seen:]:
                self.seen += 1
                if check(event[2]):
                    return
            piece = self.answer.read1(65536)
            assert piece, "the stream ended"
            self.text += piece
            while not self.text.endswith(b"\n\n"):
                self.text += self.answer.read1(65536)

    def close(self):
        self.conn.close()


def test_an_idle_server(server):
    got = status(server)
    assert got["boxes"] == [] and got["more"] == 0
    assert got["queue"]["running"] == got["queue"]["waiting"] == 0 < got["queue"]["concurrency"]
    assert got["memory"]["promised_mb"] == 0 < got["memory"]["limit_mb"]
    health = server("GET", "/health").json()
    assert (got["isolation"], got["version"]) == (health["isolation"], health["version"])
    assert wait_until(lambda: status(server)["uptime_s"] > got["uptime_s"])


def test_runs_and_judgements(server):
    with Later(server) as run, Later(server, path="/v1/judge", tests=[{"stdin": "", "expected": ""}]) as judge:
        assert wait_until(lambda: {box["state"] for box in boxes(server).values()} == {"running"})
        seen = boxes(server)
        assert {id: box["kind"] for id, box in seen.items()} == {run: "run", judge: "judge"}
        assert seen[run]["language"] == "python" and seen[run]["key"] is None
        assert abs(time.mktime(time.strptime(seen[run]["since"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone -
                   time.time()) < 60 * SLOW
        assert status(server)["queue"]["running"] == 2


def test_every_way_to_run_is_seen(server):
    """The compatible routes give no id before the end: another connection sees the box."""
    for path, body in (("/execute", {"language": "python", "code": SLEEP}),
                       ("/v1/runs", {"language": "python", "code": SLEEP})):
        conn = server.connect()
        conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        assert wait_until(lambda: [box["state"] for box in boxes(server).values()] == ["running"])
        conn.close()
        assert wait_until(lambda: not boxes(server))


def test_a_session(keyed):
    session = Session(keyed, key=A)
    assert session.exec("data = bytearray(64 << 20)")["status"] == "ok"
    seen = boxes(keyed, A)[session.id]
    assert seen["kind"] == "session" and seen["state"] == "idle" and seen["language"] == "python"
    assert seen["cpu_ms"] > 0 and 64 << 10 < seen["memory_kb"] < 512 << 10
    session.delete()
    assert session.id not in boxes(keyed, A)


def test_a_queue(keyed):
    with Later(keyed, B) as one, Later(keyed, B) as two, Later(keyed, B) as three, \
            Later(keyed, B) as four, Later(keyed, B) as five:
        ids = (one, two, three, four, five)
        seen = {}

        def all_are_there():  # one document, so that boxes and queue are of the same moment
            seen.update(status(keyed, B))
            boxes_now = {box["id"]: box["state"] for box in seen["boxes"]}
            return set(ids) <= set(boxes_now) and seen["queue"]["waiting"] > 0 and \
                seen["queue"]["running"] == list(boxes_now.values()).count("running")

        assert wait_until(all_are_there), seen
        states = sorted(box["state"] for box in seen["boxes"] if box["id"] in ids)
        assert states == ["queued"] * seen["queue"]["waiting"] + ["running"] * seen["queue"]["running"]


def test_keys_see_their_own_boxes(keyed):
    with Later(keyed, A) as run, Later(keyed, B) as other:
        mine = Session(keyed, key=A)
        assert set(boxes(keyed, A)) == {run, mine.id}
        assert set(boxes(keyed, B)) == {other}
        everything = boxes(keyed, ROOT)
        assert {id: box["key"] for id, box in everything.items()} == {run: "alice", other: "bob", mine.id: "alice"}
        text = keyed("GET", "/v1/status", key=B).body
        assert b"alice" not in text and run.encode() not in text and mine.id.encode() not in text
        assert status(keyed, B)["queue"] == status(keyed, ROOT)["queue"]  # totals are for all
        mine.delete()


@pytest.mark.parametrize("path", ["/v1/status", "/v1/events", "/v1/keys"])
def test_a_key_is_needed(keyed, path):
    assert keyed("GET", path).status == 401
    assert keyed("GET", path, key="wrong").status == 401


def test_keys_are_for_operators(keyed):
    for key in (A, B):
        reply = keyed("GET", "/v1/keys", key=key)
        assert reply.status == 403 and "role = operator" in reply.json()["error"]["message"]
        assert b"bob" not in reply.body and b"root" not in reply.body
    with Later(keyed, A):
        mine = Session(keyed, key=A, limits={"memory_mb": 300})
        reply = keyed("GET", "/v1/keys", key=ROOT)
        alice, bob, root = reply.json()["keys"]
        assert (alice["name"], alice["role"], root["role"]) == ("alice", "user", "operator")
        assert alice["quotas"] == {"concurrency": 3, "rate_per_s": 100, "rate_per_m": 1000, "cpu_s_per_hour": 500}
        assert set(bob["quotas"].values()) == {None}
        assert alice["use"]["running"] == alice["use"]["sessions"] == 1 and alice["use"]["memory_mb"] > 300
        assert 0 < alice["use"]["cpu_s_left"] <= 500 and bob["use"]["cpu_s_left"] is None
        assert bob["use"]["sessions"] == bob["use"]["running"] == 0
        mine.delete()
    assert not re.search(rb"secret|[0-9a-f]{32}", reply.body)


def test_without_keys_everybody_is_the_operator(server):
    assert server("GET", "/v1/keys").json() == {"keys": []}


def test_events_follow_changes(keyed):
    mine, all_, others = (Listener(keyed, key) for key in (A, ROOT, B))
    for listener in (mine, all_, others):
        assert listener.answer.headers["Content-Type"] == "text/event-stream"
        listener.until(lambda status: True)  # one at once
    with Later(keyed, A) as run:
        for listener in (mine, all_):
            listener.until(lambda status: [box["id"] for box in status["boxes"]] == [run])
        others.until(lambda status: status["queue"]["running"] == 1)
    for listener in (mine, all_, others):
        listener.until(lambda status: status["queue"]["running"] == 0 and not status["boxes"])
        listener.close()
    assert run.encode() not in others.text and run.encode() in mine.text


def test_events_are_rare(server):
    """Nothing happens: no event after the first. Much happens: one a second at most."""
    quiet = Listener(server)
    began = time.monotonic()
    quiet.until(lambda status: True)
    ran = 0
    while time.monotonic() - began < 3:
        assert server.run("bash", "echo 1").status == 200
        ran += 1
    with Later(server) as run:
        quiet.until(lambda status: run in [box["id"] for box in status["boxes"]])
        took = time.monotonic() - began
    assert ran > 2 and len(sse(quiet.text.decode())) <= took + 2
    quiet.until(lambda status: not status["boxes"])
    count = len(sse(quiet.text.decode()))
    quiet.conn.sock.settimeout(3)
    with pytest.raises(TimeoutError):
        quiet.answer.read1(65536)
    assert len(sse(quiet.text.decode())) == count
    quiet.close()


def test_listeners_are_bounded(keyed):
    """Eight of a key; another key is not in their way; places come back."""
    many = [Listener(keyed, B) for _ in range(9)]
    assert [listener.answer.status for listener in many] == [200] * 8 + [429]
    assert many[8].answer.headers["Retry-After"]
    other = Listener(keyed, A)
    assert other.answer.status == 200
    for listener in many + [other]:
        listener.close()

    def listens():
        again = Listener(keyed, B)
        again.close()
        return again.answer.status == 200
    assert wait_until(listens)


def test_a_stopping_server_ends_the_stream(make_server):
    server = make_server()
    listener = Listener(server)
    listener.until(lambda status: True)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 20 * SLOW
    listener.close()
