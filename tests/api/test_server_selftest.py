# SPDX-License-Identifier: Apache-2.0
"""POST /v1/selftest: an operator attacks the boxes of a running server."""
import json
import re
import threading

import pytest

from apilib import ROOT as TREE, SLOW, Server, borrow_dir, return_dir, sse, wait_until

KEYS = "[alice]\nkey = alices-secret\n[root]\nkey = roots-secret\nrole = operator\n"
A, ROOT = "alices-secret", "roots-secret"
CASES = {re.search(r"id: (\S+)", path.read_text())[1]: path.read_text()
         for path in (TREE / "selftest/cases").glob("*/*") if re.search(r"^\W*id: ", path.read_text(), re.M)}


@pytest.fixture(scope="module")
def keyed():
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys")})
    yield server
    server.stop()
    return_dir(path)


def attack(server, ids=None, key=ROOT):
    """Results by id, and the summary."""
    reply = server("POST", "/v1/selftest", {"ids": ids} if ids else {}, key=key)
    assert reply.status == 200, reply
    events = sse(reply.body.decode())
    names = [name for _, name, _ in events]
    assert names == ["start"] + ["case"] * events[0][2]["cases"] + ["end"]
    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    return {data["id"]: data for _, name, data in events if name == "case"}, events[-1][2]


def test_cases_pass(keyed):
    """Some of each kind: no canary, a victim, two boxes that must differ."""
    plain = [id for id, text in sorted(CASES.items()) if "canary" not in text.lower()]
    ids = [id for id in plain if "language: c" not in CASES[id]][:6]
    ids += [id for id in plain if re.search(r"^\W*victim: yes", CASES[id], re.M)][:2]
    found, summary = attack(keyed, sorted(set(ids)))
    assert set(found) == set(ids) and len(ids) == 8
    assert [data for data in found.values() if data["result"] != "passed"] == []
    assert summary == {"passed": len(found), "failed": 0, "skipped": 0}
    assert all(data["status"] and data["wall_ms"] >= 0 and not data["control"] for data in found.values())


def test_what_a_server_cannot_do_is_skipped_with_the_reason(keyed):
    ids = [id for id, text in sorted(CASES.items()) if "CANARY_FILE" in text][:3]
    found, summary = attack(keyed, ids)
    assert len(ids) == 3 == summary["skipped"]
    assert {(data["result"], "hermes selftest" in data["why"]) for data in found.values()} == {("skipped", True)}


def test_globs(keyed):
    want = {id for id, text in CASES.items() if id.startswith("O-0")}
    assert len(want) > 1
    conn = keyed.connect()
    conn.request("POST", "/v1/selftest", json.dumps({"ids": ["O-0*"]}),
                 {"Content-Type": "application/json", "Authorization": "Bearer " + ROOT})
    answer = conn.getresponse()
    text = answer.read1(65536)
    conn.close()
    assert b'"cases":%d' % len(want) in text, text
    assert wait_until(lambda: not keyed("GET", "/v1/status", key=ROOT).json()["boxes"])


def test_others_are_refused(keyed):
    assert keyed("POST", "/v1/selftest", {}).status == 401
    reply = keyed("POST", "/v1/selftest", {"ids": ["O-07"]}, key=A)
    assert reply.status == 403 and "role = operator" in reply.json()["error"]["message"]


@pytest.mark.parametrize("body, field", [
    ({"ids": "O-07"}, "ids"), ({"ids": []}, "ids"), ({"ids": [7]}, "ids"), ({"ids": [""]}, "ids"),
    ({"ids": ["x" * 65]}, "ids"), ({"ids": ["O-07"] * 257}, "ids"), ({"ids": ["O-07\0"]}, "ids"),
    ({"ids": ["no-such-case"]}, "ids"), ({"id": "O-07"}, "id"), ({"ids": ["O-07"], "controls": True}, "controls")])
def test_bad_requests(keyed, body, field):
    """They also leave nothing behind: the next selftest is not refused."""
    reply = keyed("POST", "/v1/selftest", body, key=ROOT)
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply


def test_one_at_a_time_and_a_client_that_leaves(keyed):
    conn = keyed.connect()
    conn.request("POST", "/v1/selftest", "{}", {"Content-Type": "application/json", "Authorization": "Bearer " + ROOT})
    answer = conn.getresponse()
    assert answer.status == 200 and answer.read1(65536)
    reply = keyed("POST", "/v1/selftest", {}, key=ROOT)
    assert reply.status == 409 and "a selftest is running" in reply.json()["error"]["message"]
    conn.close()
    assert wait_until(lambda: keyed("POST", "/v1/selftest", {"ids": ["no-such-case"]}, key=ROOT).status == 400)
    assert wait_until(lambda: not keyed("GET", "/v1/status", key=ROOT).json()["boxes"])


def test_a_full_server_says_nothing_about_its_boxes(make_server):
    """What the server has no room for is skipped, not failed."""
    server = make_server(env={"HERMES_CONCURRENCY": "1", "HERMES_QUEUE": "0"})
    run = threading.Thread(target=server.run, args=("bash", "sleep 5"))
    run.start()
    assert wait_until(lambda: server("GET", "/v1/status").json()["queue"]["running"] == 1)
    id = [id for id, text in sorted(CASES.items()) if "canary" not in text.lower()][0]
    found, summary = attack(server, [id], key=None)
    run.join(60 * SLOW)
    assert summary["skipped"] == 1 and "busy" in found[id]["why"], found
    assert attack(server, [id], key=None)[1]["passed"] == 1  # the control: with room it passes
