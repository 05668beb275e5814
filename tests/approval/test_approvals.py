# SPDX-License-Identifier: Apache-2.0
"""Approvals over HTTP, with the effect `mount_rw`: nothing is written before somebody approves it.
The control of each denial is the same request after an approval."""
import json
import os
import signal
import threading

import pytest

from apilib import wait_until
from approvallib import (ALICE, BOB, BOSS, CAROL, MOUNT, WRITES, Later, Listener, check_log, decide, pending,
                         read_log)

RULE = {"effect": "mount_rw", "match": {"mount": "out"}, "decision": "allow",
        "examples": {"match": [{"mount": "out", "path": "/mnt/out"}]}}


def written(server):
    return (server.work / "out" / "x").exists()


@pytest.fixture(autouse=True)
def nothing_written(request):
    yield
    for name in ("asking",):
        if name in request.fixturenames:
            path = request.getfixturevalue(name).work / "out" / "x"
            if path.exists():
                path.unlink()


def write(server, key, **fields):
    return server.run("python", WRITES, key=key, mounts=MOUNT, **fields)


def test_nobody_there_is_a_refusal_at_once(asking):
    reply = write(asking, ALICE)
    assert reply.status == 403 and reply.json()["error"]["code"] == "approval_unavailable", reply
    with Listener(asking, BOB):  # who may not decide for alice
        assert write(asking, ALICE).status == 403
    assert not written(asking)
    read_only = asking.run("python", "print(1)", key=ALICE, mounts=[dict(MOUNT[0], mode="ro")])
    assert read_only.json()["status"] == "ok"  # nothing leaves the box: nothing is asked


def test_approve_once(asking):
    with Listener(asking, ALICE) as listener:
        run = Later(lambda: write(asking, ALICE))
        approval, = pending(asking, ALICE)
        assert approval["effect"] == {"kind": "mount_rw", "mount": "out", "path": "/mnt/out"}
        assert approval["run"].startswith("run_") and not written(asking)
        assert decide(asking, BOB, approval["id"]).status == 404
        assert asking("GET", "/v1/approvals/" + approval["id"], key=BOB).status == 404
        assert asking("GET", "/v1/approvals", key=BOB).json()["approvals"] == []
        reply = decide(asking, ALICE, approval["id"], comment="fine")
        assert reply.status == 200 and reply.json()["via"] == "owner", reply
        answer = run.result().json()
        assert answer["stdout"] == "done\n" and written(asking)
        assert answer["approvals"] == [{"id": approval["id"], "state": "approved", "effect": approval["effect"]}]
        assert decide(asking, ALICE, approval["id"]).status == 200
        assert decide(asking, ALICE, approval["id"], scope="always").status == 409
        assert decide(asking, ALICE, approval["id"], "deny").status == 409
        assert wait_until(lambda: [e[2]["state"] for e in listener.events()][-1:] == ["approved"])
        last = listener.events()[-1][0]
    with Listener(asking, ALICE, after=last - 1) as again:  # misses nothing
        assert wait_until(lambda: [e[0] for e in again.events()] == [last])


def test_deny(asking):
    with Listener(asking, ALICE):
        run = Later(lambda: write(asking, ALICE))
        approval, = pending(asking, ALICE)
        assert decide(asking, ALICE, approval["id"], "deny", comment="not today").status == 200
        reply = run.result()
        assert reply.status == 403 and reply.json()["error"]["code"] == "approval_denied"
        assert "not today" in reply.json()["error"]["message"] and not written(asking)
        run = Later(lambda: write(asking, ALICE, **{"async": True}))
        approval, = pending(asking, ALICE)
        ident = run.result().json()["id"]
        assert approval["run"] == ident
        decide(asking, ALICE, approval["id"], "deny")
        assert wait_until(lambda: asking("GET", "/v1/runs/" + ident, key=ALICE).json()["status"] == "cancelled")
        assert asking("GET", "/v1/runs/" + ident, key=ALICE).json()["approvals"][0]["state"] == "denied"
    assert not written(asking)


def test_judgements_and_sessions_ask_too(asking):
    judge = dict(language="python", code=WRITES, mounts=MOUNT, tests=[{"stdin": "", "expected": "done\n"}],
                 compare="trim")
    with Listener(asking, ALICE):
        call = Later(lambda: asking("POST", "/v1/judge", judge, key=ALICE))
        approval, = pending(asking, ALICE)
        assert not written(asking)
        decide(asking, ALICE, approval["id"])
        answer = call.result().json()
        assert answer["verdict"] == "accepted" and answer["approvals"][0]["id"] == approval["id"], answer
        call = Later(lambda: asking("POST", "/v1/sessions", dict(language="python", mounts=MOUNT), key=ALICE))
        approval, = pending(asking, ALICE)
        assert asking("GET", "/v1/sessions", key=ALICE).json()["sessions"] == []
        decide(asking, ALICE, approval["id"], scope="session")
        session = call.result()
        assert session.status == 201 and session.json()["id"] == approval["session"]
        assert asking("DELETE", "/v1/sessions/" + approval["session"], key=ALICE).status == 204
        call = Later(lambda: asking("POST", "/v1/sessions", dict(language="python", mounts=MOUNT), key=ALICE))
        approval, = pending(asking, ALICE)  # the grant was for the other session
        decide(asking, ALICE, approval["id"], "deny")
        assert call.result().status == 403


def test_always_until_it_is_revoked(asking):
    with Listener(asking, ALICE):
        run = Later(lambda: write(asking, ALICE))
        approval, = pending(asking, ALICE)
        decide(asking, ALICE, approval["id"], scope="always")
        assert run.result().json()["status"] == "ok"
    assert write(asking, ALICE).json()["status"] == "ok"  # nobody listens, nobody is asked
    assert write(asking, BOB).status == 403
    grants = asking("GET", "/v1/approvals/grants", key=ALICE).json()["grants"]
    grant, = [grant for grant in grants if grant["session"] is None]
    assert grant["effect"] == approval["effect"]
    path = "/v1/approvals/grants/%d" % grant["id"]
    assert asking("DELETE", path, key=BOB).status == 404
    assert asking("DELETE", path, key=ALICE).status == 204
    assert asking("DELETE", path, key=ALICE).status == 404
    assert write(asking, ALICE).status == 403


def test_rules(asking):
    for method in ("GET", "PUT"):
        assert asking(method, "/v1/approvals/rules", {"rules": []} if method == "PUT" else None,
                      key=ALICE).status == 403
    assert asking("PUT", "/v1/approvals/rules", {"rules": [RULE]}, key=BOSS).status == 200
    assert write(asking, ALICE).json()["status"] == "ok"
    deny = dict(RULE, decision="deny", reason="not here")
    assert asking("PUT", "/v1/approvals/rules", {"rules": [RULE, deny]}, key=BOSS).json()["rules"] == [RULE, deny]
    with Listener(asking, ALICE):
        reply = write(asking, ALICE)  # the strictest wins, nobody is asked
        assert reply.status == 403 and "not here" in reply.json()["error"]["message"]
    wrong = dict(RULE, examples={"match": [{"mount": "other", "path": "/mnt/out"}]})
    reply = asking("PUT", "/v1/approvals/rules", {"rules": [wrong]}, key=BOSS)
    assert reply.status == 400 and reply.json()["error"]["field"] == "rules[0].examples.match[0]", reply
    assert len(asking("GET", "/v1/approvals/rules", key=BOSS).json()["rules"]) == 2
    assert asking("PUT", "/v1/approvals/rules", {"rules": []}, key=BOSS).status == 200


@pytest.mark.parametrize("body, field", [
    ({}, "decision"), ({"decision": "maybe"}, "decision"), ({"decision": 1}, "decision"),
    ({"decision": "approve", "scope": "for ever"}, "scope"), ({"decision": "approve", "more": "x"}, "more"),
    ({"decision": "approve", "comment": "x" * 2001}, "comment"), ({"decision": "approve", "scope": "session"}, "scope")])
def test_a_wrong_decision_decides_nothing(asking, body, field):
    with Listener(asking, ALICE):
        run = Later(lambda: write(asking, ALICE))
        approval, = pending(asking, ALICE)
        reply = asking("POST", "/v1/approvals/" + approval["id"], body, key=ALICE)
        assert reply.status == 400 and reply.json()["error"]["field"] == field, reply
        assert not written(asking)
        decide(asking, ALICE, approval["id"], "deny")
        assert run.result().status == 403


def test_two_deciders_at_once(asking):
    """Exactly one decision counts, whoever it is, and the run does what it says."""
    with Listener(asking, ALICE):
        for _ in range(5):
            run = Later(lambda: write(asking, ALICE))
            approval, = pending(asking, ALICE)
            start = threading.Barrier(6)

            def one(decision, key):
                start.wait()
                return decide(asking, key, approval["id"], decision).status
            calls = [Later(lambda d=d, k=k: one(d, k)) for d in ("approve", "deny") for k in (ALICE, BOSS, ALICE)]
            statuses = [call.result() for call in calls]
            assert sorted(statuses) == [200] * 3 + [409] * 3, statuses
            state = asking("GET", "/v1/approvals/" + approval["id"], key=ALICE).json()["state"]
            assert (statuses[0] == 200) == (state == "approved")
            assert (run.result().status == 200) == (state == "approved")
            assert written(asking) == (state == "approved")
            if written(asking):
                (asking.work / "out" / "x").unlink()
    rows = read_log(asking)
    ends = [row["approval"] for row in rows if row["event"] in ("approved", "denied") and row["approval"]]
    assert len(ends) == len(set(ends))
    check_log(rows)


def test_the_asker_leaves(asking):
    with Listener(asking, ALICE):
        connection = asking.connect()
        connection.request("POST", "/v1/runs", headers={"Authorization": "Bearer " + ALICE,
                                                        "Content-Type": "application/json"},
                           body='{"language":"python","code":"print(1)","mounts":'
                                '[{"name":"out","path":"/mnt/out","mode":"rw"}]}')
        approval, = pending(asking, ALICE)
        connection.close()
        pending(asking, ALICE, 0)
        assert asking("GET", "/v1/approvals/" + approval["id"], key=ALICE).json()["state"] == "lost"
        assert decide(asking, ALICE, approval["id"]).status == 409
    assert not written(asking)


def test_keys_see_their_own_log(asking):
    own = read_log(asking, ALICE)
    assert {row["owner"] for row in own} == {"alice"}
    assert {row["owner"] for row in read_log(asking)} > {"alice"}


def test_approvers_decide_for_all(make_asking):
    server = make_asking(HERMES_APPROVERS="carol")
    with Listener(server, ALICE):
        assert write(server, ALICE).status == 403  # its own key may not decide any more
    with Listener(server, CAROL) as listener:
        run = Later(lambda: write(server, ALICE))
        approval, = pending(server, CAROL)
        assert decide(server, ALICE, approval["id"]).status == 403
        assert decide(server, BOSS, approval["id"]).status == 403
        assert decide(server, BOB, approval["id"]).status == 404
        reply = decide(server, CAROL, approval["id"])
        assert reply.json()["via"] == "approver" and reply.json()["decided_by"] == "carol"
        assert run.result().json()["status"] == "ok"
        assert wait_until(lambda: [e[2]["state"] for e in listener.events()][-1:] == ["approved"])


def test_nobody_answers_in_time(make_asking):
    server = make_asking(HERMES_APPROVAL_TIMEOUT_S="1")
    with Listener(server, ALICE):
        reply = write(server, ALICE, limits={"wall_ms": 100})
        assert reply.status == 403 and "timeout" in reply.json()["error"]["message"], reply
    state = server("GET", "/v1/approvals", key=ALICE).json()["approvals"][0]
    assert state["state"] == "expired" and not written(server)


def test_waiting_counts_against_no_limit(make_asking):
    server = make_asking(HERMES_CONCURRENCY="1")
    with Listener(server, ALICE):
        run = Later(lambda: write(server, ALICE, limits={"wall_ms": 2000}))
        approval, = pending(server, ALICE)
        # The only place is free for others meanwhile.
        assert server.run("python", "print(1)", key=BOB).json()["stdout"] == "1\n"
        decide(server, ALICE, approval["id"])
        answer = run.result().json()
        assert answer["status"] == "ok" and answer["limits_hit"] == []


def test_off_asks_nobody(make_asking):
    server = make_asking(HERMES_APPROVAL_MODE="off")
    assert write(server, ALICE).json()["stdout"] == "done\n"
    assert "approvals" not in write(server, ALICE).json() and read_log(server) == []
    ask = dict(RULE, decision="ask", require_human=True)
    assert server("PUT", "/v1/approvals/rules", {"rules": [ask]}, key=BOSS).status == 200
    assert write(server, ALICE).status == 403  # a rule asks in every mode


@pytest.mark.parametrize("victim", ["server", "all"])
def test_killed_during_a_pause(make_asking, victim):
    server = make_asking()
    listener = Listener(server, ALICE)
    run = Later(lambda: write(server, ALICE))
    approval, = pending(server, ALICE)
    pid = server.child("hermes-server") if victim == "server" else server.process.pid
    os.kill(pid, signal.SIGKILL)
    run.join(60)
    # The server may still answer before it ends: then the run never began.
    assert run.error or run.reply.status >= 500 or run.reply.json()["approvals"][0]["state"] == "lost"
    listener.thread.join(10)
    listener.connection.close()
    if victim == "all":
        server.process.wait()
        server.log.close()
        server.start()
    else:
        assert wait_until(lambda: server.child("hermes-server") not in (None, pid), 30)
        assert wait_until(lambda: server("GET", "/health").status == 200, 30)
    state = server("GET", "/v1/approvals/" + approval["id"], key=ALICE).json()
    assert state["state"] == "lost", state
    assert decide(server, ALICE, approval["id"]).status == 409
    assert not written(server)
    assert check_log(read_log(server)) == ["asked", "lost"]


def test_a_long_reason_is_cut_between_characters(make_asking):
    """Otherwise the question cannot be shown, and its row of the log has lost the effect."""
    server = make_asking()
    rule = {"effect": "mount_rw", "match": {}, "decision": "ask", "examples": {"match": [{"mount": "out", "path": "/mnt/out"}]}}
    for spaces in range(4):  # each place inside of a character, and one between two
        text = " " * spaces + "\U0001f600" * 100
        assert server("PUT", "/v1/approvals/rules", {"rules": [dict(rule, reason=text)]}, key=BOSS).status == 200
        with Listener(server, ALICE) as listener:
            run = Later(lambda: server.run("python", WRITES, key=ALICE, mounts=MOUNT))
            approval, = pending(server, ALICE)
            assert "\U0001f600" in approval["reason"] and approval["effect"]["mount"] == "out"
            assert wait_until(lambda: listener.events())
            decide(server, ALICE, approval["id"], "deny", comment="\u00e9" * (400 + spaces % 2) + "x" * (spaces // 2))
            assert run.result().json()["error"]["code"] == "approval_denied"
    rows = read_log(server)
    check_log(rows)
    assert all("effect" in json.loads(row["data"]) for row in rows if row["event"] in ("asked", "denied"))
