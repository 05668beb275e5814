# SPDX-License-Identifier: Apache-2.0
"""`"network": {"ask": [...]}`: what no entry lists waits for somebody's word; closed stays closed."""
import json
import os
import pathlib
import signal
import sys
import time

import pytest

from apilib import wait_until
from mcplib import Modern
from netlib import CLOSED, OK4, OTHER4, PROBE, allowed, denied
from secretlib import KEY as SECRET_KEY
from secretlib import URL, arrived, secret_server

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "approval"))
from approvallib import Later, Listener, check_log, decide, read_log  # noqa: E402

ASK = {"ask": ["ok.example.com:80"]}
KEYS = "[alice]\nkey = alices-secret\n[bob]\nkey = bobs-secret\n[boss]\nkey = boss-secret\nrole = operator\n"
ALICE, BOB, BOSS = "alices-secret", "bobs-secret", "boss-secret"


class Asked:
    """A server that asks, with somebody who listens."""

    def __init__(self, boxes, key=""):
        self.boxes, self.server, self.key = boxes, boxes.server, key
        self.listener = Listener(self.server, key)

    def begin(self, *attempts, network=ASK, **fields):
        """A run that makes these attempts, on a thread of its own."""
        return Later(lambda: self.boxes.ask(network, "python", PROBE, stdin=json.dumps(attempts),
                                            key=self.key or None, **fields))

    def pending(self, count=1):
        def look():
            return self.server("GET", "/v1/approvals?state=pending", key=self.key).json()["approvals"]
        assert wait_until(lambda: len(look()) == count, 60), look()
        return look()

    def decide(self, approval, decision="approve", **more):
        reply = decide(self.server, self.key, approval["id"], decision, **more)
        assert reply.status == 200, reply

    def state(self, approval):
        return self.server("GET", "/v1/approvals/" + approval["id"], key=self.key).json()["state"]


def came(world, mark, kind="packet", **what):
    """What has reached the world since the mark."""
    world.forget()
    return world.arrived(mark, kind=kind, **what)


def outcomes(reply):
    assert reply.status == 200, reply
    answer = reply.json()
    assert answer["status"] == "ok", answer
    return json.loads(answer["stdout"]), answer


@pytest.fixture
def asked(make_boxes):
    one = Asked(make_boxes(approval_mode="manual", approval_timeout_s=120))
    yield one
    one.listener.close()


def test_listed_passes_and_the_rest_waits(asked, world):
    mark = world.mark()
    run = asked.begin(["tcp", "ok.example.com", 80], ["tcp", OTHER4, 8080])
    approval = asked.pending()[0]
    assert approval["effect"] == {"kind": "net_connect", "host": OTHER4, "address": OTHER4,
                                  "port": 8080, "protocol": "tcp"}
    assert approval["run"].startswith("run_")
    assert not came(world, mark, to=OTHER4, port=8080)
    asked.decide(approval)
    got, answer = outcomes(run.result())
    assert got[1] == "hello from " + OTHER4 and got[0].startswith("hello from ")
    assert (OTHER4, OTHER4, 8080, "tcp") in allowed(answer["network"])
    assert answer["network"]["mode"] == "ask" and answer["network"]["denied"] == []
    assert [(a["id"], a["state"]) for a in answer["approvals"]] == [(approval["id"], "approved")]
    assert check_log(read_log(asked.server, asked.key)) == ["asked", "approved"]


def test_a_denial_is_a_refusal_in_the_box(asked, world):
    mark = world.mark()
    run = asked.begin(["connect", OTHER4, 80], ["connect", OTHER4, 80], ["udp", OTHER4, 9999])
    asked.decide(asked.pending()[0], "deny")
    asked.decide(asked.pending()[0], "deny")  # the datagram; the same address again is not asked
    got, answer = outcomes(run.result())
    assert got[:2] == ["ECONNREFUSED"] * 2 and got[2] in ("EHOSTUNREACH", "ECONNREFUSED", "EACCES"), got
    assert denied(answer["network"]) == {(OTHER4, 80, "tcp", "not_approved"),
                                         (OTHER4, 9999, "udp", "not_approved")}
    assert not came(world, mark, to=OTHER4)


def test_a_name_is_not_even_looked_up_before_it_is_approved(asked, world):
    """Names carry data out, too."""
    mark = world.mark()
    run = asked.begin(["tcp", "other.example.org", 80], ["dns", "9.9.9.9", "tunnel.example.org", 16])
    approval = asked.pending()[0]
    assert approval["effect"]["host"] == "other.example.org" and approval["effect"]["address"] is None
    assert not came(world, mark, kind="dns")
    asked.decide(approval)
    got, answer = outcomes(run.result())
    assert got[0] == "hello from " + OTHER4 and got[1]["count"] == 0
    assert ("other.example.org", OTHER4, 80, "tcp") in allowed(answer["network"])
    assert {n["name"] for n in world.arrived(mark, kind="dns")} == {"other.example.org"}


def test_datagrams_wait_with_their_first_word(asked):
    run = asked.begin(["udp", "other.example.org", 9999, 60])
    approval = asked.pending()[0]
    assert approval["effect"]["protocol"] == "udp"
    asked.decide(approval)
    got, answer = outcomes(run.result())
    assert got == ["echo:ping"]
    assert ("other.example.org", OTHER4, 9999, "udp") in allowed(answer["network"])


def test_closed_ranges_are_refused_without_a_question_and_whatever_is_approved(asked, world):
    """An approved name that leads to a closed address is denied; so are names of the host itself."""
    some = ["10.9.0.5", "169.254.169.254", "fd00:ec2::254", "198.18.0.9"]
    run = asked.begin(*[["connect", a, 80] for a in some], ["connect", "private.example.com", 80],
                      ["connect", "own.example.com", 8000], ["connect", "meta.example.com", 80],
                      ["connect", "metadata.google.internal", 80])
    for host in ("private.example.com", "own.example.com", "meta.example.com"):
        approval = asked.pending()[0]
        assert approval["effect"]["host"] == host
        asked.decide(approval, scope="always")
    got, answer = outcomes(run.result())
    assert "connected" not in got, got
    rows = {(host, reason) for host, _, _, reason in denied(answer["network"])}
    assert {("10.9.0.5", "private"), ("169.254.169.254", "metadata"), ("private.example.com", "private"),
            ("own.example.com", "host_address"), ("meta.example.com", "metadata"),
            ("metadata.google.internal", "name_closed")} <= rows
    assert CLOSED["198.18.0.9"] == "benchmarking" and "not_listed" in {r for h, r in rows if h == "198.18.0.9"}
    assert world.probe(["connect", "10.9.0.5", 80], ["connect", "own.example.com", 8000]) == ["connected"] * 2


def test_a_name_that_rebinds_after_the_question_reaches_nothing_private(asked, world):
    """It answers public, private, loopback in turn. The person approves once; what comes is checked."""
    for _ in range(3):
        run = asked.begin(["connect", "rebind.example.com", 80])
        asked.decide(asked.pending()[0])
        got, answer = outcomes(run.result())
        rows = allowed(answer["network"])
        assert (got == ["connected"]) == (rows == {("rebind.example.com", OK4, 80, "tcp")}), answer["network"]
        assert rows or {r for _, _, _, r in denied(answer["network"])} <= {"private", "loopback"}


def test_a_listed_name_at_another_port_is_asked_with_its_address(asked):
    run = asked.begin(["tcp", "v4.example.com", 8080], network={"ask": ["v4.example.com:80"]})
    approval = asked.pending()[0]
    assert approval["effect"]["address"] == OK4 and approval["effect"]["host"] == "v4.example.com"
    asked.decide(approval)
    assert outcomes(run.result())[0] == ["hello from " + OK4]


def test_an_approved_name_does_not_open_another_of_the_same_address(asked):
    run = asked.begin(["tls", "shared.example.org", 443, "ok.example.com"],
                      ["tls", "shared.example.org", 443, "shared.example.org"])
    for _ in range(2):
        asked.decide(asked.pending()[0])
    got, answer = outcomes(run.result())
    assert got[0] != got[1] and got[1].startswith("HTTP/1.1 200"), got
    assert ("ok.example.com", 443, "tcp", "server_name") in denied(answer["network"])


def test_once_session_and_always(asked):
    server = asked.server
    session = server("POST", "/v1/sessions", {"language": "python", "network": ASK}).json()["id"]
    code = "import urllib.request\nprint(urllib.request.urlopen('http://%s:%d/').read().decode().strip())"

    def exec_(port, ask=True, **decision):
        run = Later(lambda: server("POST", "/v1/sessions/%s/exec" % session, {"code": code % (OTHER4, port)}))
        if ask:
            approval = asked.pending()[0]
            assert approval["session"] == session
            asked.decide(approval, **decision)
        answer = run.result().json()
        assert answer["stdout"] == "hello from %s\n" % OTHER4, answer
        return answer
    assert len(exec_(80)["approvals"]) == 1
    exec_(80, scope="session")
    assert "approvals" not in exec_(80, ask=False)
    exec_(8080, scope="always")
    server("DELETE", "/v1/sessions/" + session)
    run = asked.begin(["tcp", OTHER4, 8080])
    assert outcomes(run.result())[0] == ["hello from " + OTHER4]


def test_waiting_is_nobodys_time_limit(asked):
    """The run has less wall time than its question waits."""
    run = asked.begin(["tcp", OTHER4, 80], limits={"wall_ms": 1500, "cpu_ms": 1000})
    approval = asked.pending()[0]
    time.sleep(2.5)  # longer than the limit: nothing else makes wall time pass
    asked.decide(approval)
    got, answer = outcomes(run.result())
    assert got == ["hello from " + OTHER4] and answer["limits_hit"] == []
    assert answer["usage"]["wall_ms"] < 1500


def test_nobody_there_is_a_refusal_at_once(make_boxes):
    boxes = make_boxes()  # approval_mode is off: who asks for `ask` is asked nevertheless
    got, record = boxes.probe(ASK, ["connect", OTHER4, 80])
    assert got == ["ECONNREFUSED"]
    assert denied(record) == {(OTHER4, 80, "tcp", "approval_unavailable")}


def test_a_flood_of_destinations_is_bounded(asked):
    """16 questions wait at a time; the rest is refused."""
    code = """
import socket
socks = []
for n in range(40):
    s = socket.socket(); s.setblocking(False); s.connect_ex(("45.33.33.%d" % n, 80)); socks.append(s)
import select
p = select.poll()
for s in socks: p.register(s, select.POLLOUT)
refused = set()
while len(refused) < 24:
    refused |= {fd for fd, e in p.poll() if e & select.POLLERR}
    for fd in refused:
        try: p.unregister(fd)
        except KeyError: pass
print(len(refused))
"""
    reply = asked.boxes.ask(ASK, "python", code)
    answer = reply.json()
    assert answer["stdout"] == "24\n", answer
    assert {r for _, _, _, r in denied(answer["network"])} == {"approval_limit"}
    assert "network" in answer["limits_hit"]
    assert asked.pending(0) == []  # the box is gone: what waited is lost


def test_ceilings_and_bad_words(make_boxes):
    boxes = make_boxes(network_max="allow")
    reply = boxes.ask(ASK, "python", "pass")
    assert reply.status == 403 and "network_max" in reply.json()["error"]["message"]
    assert boxes.ask({"ask": ["no good"]}, "python", "pass").status == 400
    boxes = make_boxes(network_closed="45.33.32.20/32", network_closed_names="other.example.org")
    got, record = boxes.probe(ASK, ["connect", OTHER4, 80], ["connect", "other.example.org", 80])
    assert got == ["ECONNREFUSED", "no such name"]
    assert {r for _, _, _, r in denied(record)} == {"closed_by_operator"}


def test_egress_killed_while_a_question_waits(asked, world):
    mark = world.mark()
    run = asked.begin(["tcp", OTHER4, 80], limits={"wall_ms": 60000})
    first = asked.pending()[0]
    os.kill(asked.server.child("hermes-egress"), signal.SIGKILL)
    assert wait_until(lambda: asked.state(first) == "lost", 60)
    assert decide(asked.server, asked.key, first["id"]).status == 409  # too late
    second = asked.pending()[0]  # the box's SYN reaches the next egress
    assert second["id"] != first["id"]
    assert not came(world, mark, to=OTHER4)
    asked.decide(second)
    assert outcomes(run.result())[0] == ["hello from " + OTHER4]


def test_another_key_neither_sees_nor_decides(make_boxes, world, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    boxes = make_boxes(approval_mode="manual", keys_file=keys)
    alice = Asked(boxes, ALICE)
    run = alice.begin(["connect", OTHER4, 80])
    approval = alice.pending()[0]
    for answer in ("approve", "deny"):
        assert decide(boxes.server, BOB, approval["id"], answer).status == 404
    assert boxes.server("GET", "/v1/approvals", key=BOB).json()["approvals"] == []
    alice.decide(approval, scope="always")
    assert outcomes(run.result())[0] == ["connected"]
    assert decide(boxes.server, ALICE, approval["id"], "deny").status == 409  # no replay
    with Listener(boxes.server, BOB):  # her grant is not his
        bobs = Asked(boxes, BOB)
        run = bobs.begin(["connect", OTHER4, 80])
        bobs.decide(bobs.pending()[0], "deny")
        assert outcomes(run.result())[0] == ["ECONNREFUSED"]
        bobs.listener.close()
    alice.listener.close()


def test_judgements_ask_for_their_solution(asked):
    code = "import urllib.request\nprint(urllib.request.urlopen('http://%s/').read().decode().strip())" % OTHER4
    body = {"language": "python", "code": code, "network": ASK,
            "tests": [{"name": "one", "stdin": "", "expected": "hello from " + OTHER4}]}
    run = Later(lambda: asked.server("POST", "/v1/judge", body))
    asked.decide(asked.pending()[0])
    answer = run.result().json()
    assert answer["verdict"] == "accepted" and len(answer["approvals"]) == 1, answer


def test_a_policy_that_changes_decides_anew(asked):
    server = asked.server
    session = server("POST", "/v1/sessions", {"language": "python", "network": ASK}).json()["id"]
    code = "import urllib.request\nprint(urllib.request.urlopen('http://%s/').read().decode().strip())" % OTHER4
    run = Later(lambda: server("POST", "/v1/sessions/%s/exec" % session, {"code": code}))
    approval = asked.pending()[0]
    reply = server("PATCH", "/v1/sessions/" + session, {"network": {"allow": [OTHER4]}})
    assert reply.status == 200, reply
    assert run.result().json()["stdout"] == "hello from %s\n" % OTHER4
    assert wait_until(lambda: asked.state(approval) == "lost")
    server("DELETE", "/v1/sessions/" + session)


def test_a_client_of_mcp_is_asked_by_its_form(make_boxes):
    """Nobody listens: the client that can show a form is who is there. Without forms it is refused at once."""
    server = make_boxes(approval_mode="manual").server
    session = server("POST", "/v1/sessions", {"language": "python", "network": ASK}).json()["id"]
    code = "import urllib.request\nprint(urllib.request.urlopen('http://%s/').read().decode().strip())" % OTHER4
    arguments = {"session_id": session, "code": code}
    assert "refused" in json.dumps(Modern(server, path="/mcp/full").call("session_exec", **arguments))
    client = Modern(server, path="/mcp/full", capabilities={"elicitation": {"form": {}}})
    arguments["code"] = code.replace(OTHER4, OTHER4 + ":8080")
    result = client.call("session_exec", **arguments)
    assert result["resultType"] == "input_required", result
    assert OTHER4 in result["inputRequests"]["decision"]["params"]["message"]
    params = {"name": "session_exec", "arguments": arguments, "requestState": result["requestState"],
              "inputResponses": {"decision": {"action": "accept"}}}
    result = client.send("tools/call", params)[1][-1]["result"]
    assert "hello from " + OTHER4 in json.dumps(result), result
    server("DELETE", "/v1/sessions/" + session)


def test_using_a_secret_is_asked_before_anything_runs(world):
    with secret_server(world, approval_mode="manual") as boxes:
        server = boxes.server
        one = Asked(boxes, SECRET_KEY)
        code = "import urllib.request\nprint(urllib.request.urlopen('%s').read().decode().strip())" % URL

        def begin():
            return Later(lambda: boxes.ask("none", "python", code, secrets=["api"]))
        run = begin()
        approval = one.pending()[0]
        effect = approval["effect"]
        assert effect == {"kind": "secret_use", "secret": "api", "host": "ok.example.com",
                          "header": "Authorization", "box": approval["run"]}
        one.decide(approval, "deny")
        reply = run.result()
        assert reply.status == 403 and reply.json()["error"]["code"] == "approval_denied", reply
        assert not arrived(world)
        run = begin()
        one.decide(one.pending()[0], scope="always")
        assert run.result().json()["stdout"] == "open\n"
        assert boxes.ask("none", "python", code, secrets=["api"]).json()["stdout"] == "open\n"
        session = Later(lambda: server("POST", "/v1/sessions", {"language": "python", "secrets": ["port"]}, key=SECRET_KEY))
        approval = one.pending()[0]
        assert approval["effect"]["secret"] == "port" and approval["session"].startswith("ses_")
        one.decide(approval)
        assert server("DELETE", "/v1/sessions/" + session.result().json()["id"], key=SECRET_KEY).status == 204
        one.listener.close()
