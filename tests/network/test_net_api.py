# SPDX-License-Identifier: Apache-2.0
"""Networks of sessions, judgements, streams and asynchronous runs, as their answers tell them."""
import json

import pytest
from apilib import sse
from netlib import denied
from networld import OK4

TRY = """
import socket
def reach(host, port=80):
    try:
        socket.create_connection((host, port), 8).close()
        return "connected"
    except OSError as e:
        return e.strerror
"""
OPEN = {"allow": [OK4 + ":80"]}


@pytest.fixture
def session(server):
    made = []

    def make(**fields):
        reply = server("POST", "/v1/sessions", {"language": "python", **fields})
        assert reply.status == 201, reply
        made.append(reply.json()["id"])
        assert execute(server, made[-1], TRY)["status"] == "ok"
        return made[-1]
    yield make
    for one in made:
        server("DELETE", "/v1/sessions/" + one)


def execute(server, session, code):
    reply = server("POST", f"/v1/sessions/{session}/exec", {"code": code})
    assert reply.status == 200, reply
    return reply.json()


def reach(server, session, host=OK4):
    answer = execute(server, session, f"reach({host!r})")
    assert answer["status"] == "ok", answer
    return answer["result"]["text/plain"].strip("'"), answer["network"]


def change(server, session, network):
    return server("PATCH", "/v1/sessions/" + session, {"network": network})


def test_a_session_reaches_what_it_asked_for(server, world, session):
    one = session(network=OPEN)
    assert server("GET", "/v1/sessions/" + one).json()["network"] == OPEN
    said, record = reach(server, one)
    assert said == "connected" and record["mode"] == "allow" and record["complete"]
    assert [row["host"] for row in record["allowed"]] == [OK4]
    said, record = reach(server, one, "10.9.0.5")
    assert said == "Connection refused"
    assert denied(record) == {("10.9.0.5", 80, "tcp", "private")}
    assert record["allowed"] == []      # only what this exec tried


def test_a_session_without_a_network_gets_one_and_loses_it(server, world, session):
    one = session()
    assert server("GET", "/v1/sessions/" + one).json()["network"] == "none"
    said, record = reach(server, one)
    assert said == "Network is unreachable" and record is None
    reply = change(server, one, OPEN)
    assert reply.status == 200 and reply.json()["network"] == OPEN
    said, record = reach(server, one)
    assert said == "connected" and record["mode"] == "allow"
    assert change(server, one, "none").json()["network"] == "none"
    said, record = reach(server, one)
    assert said == "Connection refused"
    assert denied(record) == {(OK4, 80, "tcp", "no_network")}
    assert change(server, one, "full").status == 200
    assert reach(server, one)[0] == "connected"


def test_a_reset_keeps_the_network(server, world, session):
    one = session(network=OPEN)
    assert server("POST", f"/v1/sessions/{one}/reset").status == 200
    execute(server, one, TRY)
    assert reach(server, one)[0] == "connected"


def test_copies_share_the_network(server, world, session):
    one = session(network=OPEN)
    made = server("POST", f"/v1/sessions/{one}/fork", {})
    if made.status == 501:
        pytest.skip(made.json()["error"]["message"])
    copy = made.json()["sessions"][0]["id"]
    assert reach(server, copy)[0] == "connected"
    assert change(server, copy, "none").status == 200
    assert server("GET", "/v1/sessions/" + one).json()["network"] == "none"
    assert reach(server, one)[0] == "Connection refused"
    assert change(server, one, OPEN).status == 200
    assert server("DELETE", "/v1/sessions/" + one).status == 204
    assert reach(server, copy)[0] == "connected"    # it outlives the original
    assert server("DELETE", "/v1/sessions/" + copy).status == 204


def test_a_rollback_keeps_the_network_of_now(server, world, session):
    one = session(network="full")
    made = server("POST", f"/v1/sessions/{one}/checkpoints", {"name": "a"})
    if made.status == 501:
        pytest.skip(made.json()["error"]["message"])
    assert reach(server, one)[0] == "connected"
    assert server("POST", f"/v1/sessions/{one}/rollback", {"checkpoint": "a"}).status == 200
    assert reach(server, one)[0] == "connected"
    assert change(server, one, "none").status == 200
    assert server("POST", f"/v1/sessions/{one}/rollback", {"checkpoint": "a"}).status == 200
    assert server("GET", "/v1/sessions/" + one).json()["network"] == "none"
    assert reach(server, one)[0] == "Connection refused"


@pytest.mark.parametrize("body,status,field", [
    ({}, 400, "network"), ({"network": "some"}, 400, "network"), ({"name": "x"}, 400, "name"),
    ({"network": {"allow": ["a b"]}}, 400, "network.allow[0]"),
    ({"network": {"allow": ["10.0.0.0/8"]}}, 403, "network"), ({"network": {"ask": ["a b"]}}, 400, "network.ask[0]")])
def test_changes_that_are_refused(server, world, session, body, status, field):
    one = session()
    reply = server("PATCH", "/v1/sessions/" + one, body)
    assert reply.status == status and reply.json()["error"]["field"] == field, reply
    assert server("PATCH", "/v1/sessions/ses_" + 26 * "0", {"network": "none"}).status == 404


def test_a_judgement_records_each_test(server, world):
    code = TRY + "print(reach(input()))"
    reply = server("POST", "/v1/judge", {
        "language": "python", "code": code, "network": OPEN,
        "tests": [{"stdin": OK4, "expected": "connected"},
                  {"stdin": "10.9.0.5", "expected": "Connection refused"}]})
    assert reply.status == 200 and reply.json()["verdict"] == "accepted", reply
    one, two = (t["network"] for t in reply.json()["tests"])
    assert [row["host"] for row in one["allowed"]] == [OK4] and one["denied"] == []
    assert denied(two) == {("10.9.0.5", 80, "tcp", "private")} and two["allowed"] == []


def test_streams_have_an_event_for_each_new_attempt(server, world):
    code = TRY + f"for host in 2 * [{OK4!r}, '10.9.0.5']: reach(host)"
    body = {"language": "python", "code": code, "network": OPEN}
    reply = server("POST", "/v1/runs", body, headers={"Accept": "text/event-stream"})
    events = [data for _, name, data in sse(reply.body.decode()) if name == "network"]
    assert {(e["host"], e["allowed"]) for e in events} == {(OK4, True), ("10.9.0.5", False)}
    assert len(events) == 2 and all("t" in e for e in events)
    assert [e["reason"] for e in events if not e["allowed"]] == ["private"]


def test_history_and_metrics_keep_what_was_tried(server, world, box):
    def total(name):
        text = server("GET", "/metrics").body.decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
    connections, refused = total("hermes_network_connections_total"), total('hermes_network_denied_total{reason="private"}')
    run = box.start(OPEN, "python", TRY + f"reach({OK4!r}); reach('10.9.0.5')")
    answer = box.finish(run)
    assert [row["count"] for row in answer["network"]["allowed"]] == [1]
    assert denied(answer["network"]) == {("10.9.0.5", 80, "tcp", "private")}
    assert total("hermes_network_connections_total") == connections + 1
    assert total('hermes_network_denied_total{reason="private"}') >= refused + 1


def test_a_reached_limit_is_named(server, world, box):
    code = ("import socket\nall = []\nfor i in range(4):\n"
            f"    try: all.append(socket.create_connection(({OK4!r}, 80), 8))\n"
            "    except OSError as e: print(e.strerror)")
    answer = box.run(OPEN, "python", code, limits={"network_connections": 2})
    assert answer["limits_hit"] == ["network"], json.dumps(answer)
    assert "connection_limit" in {row["reason"] for row in answer["network"]["denied"]}
    assert box.run(OPEN, "python", code)["limits_hit"] == []


def test_without_a_network_there_is_no_record(server, world):
    assert server.run("python", "1").json()["network"] is None
    assert server.run("c", "int main() { return x; }", network="full").json()["network"]["allowed"] == []
