# SPDX-License-Identifier: Apache-2.0
"""GET /v1/runs: pages, filters, owners, bounds."""
import json

import pytest

from apilib import Server, borrow_dir, return_dir, wait_until

KEYS = ("[alice]\nkey = alices-secret\n[bob]\nkey = bobs-secret\n"
        "[root]\nkey = roots-secret\nrole = operator\n")
ALICE, BOB, ROOT = "alices-secret", "bobs-secret", "roots-secret"


@pytest.fixture(scope="module")
def keyed():
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys")})
    yield server
    server.stop()
    return_dir(path)


def listed(server, query="", key=None):
    reply = server("GET", "/v1/runs" + query, key=key)
    assert reply.status == 200, reply
    return reply.json()


def ids(server, query="", key=None):
    return [run["id"] for run in listed(server, query, key)["runs"]]


def test_a_summary_says_how_a_run_went(server):
    made = server.run("bash", "exit 7").json()["id"]
    run = listed(server)["runs"][0]
    assert run["id"] == made and run["kind"] == "run" and run["status"] == "runtime_error"
    assert run["language"] == "bash" and run["exit_code"] == 7 and run["key"] is None
    assert run["created_at"] <= run["ended_at"] and run["wall_ms"] >= 0


def test_judgements_and_streamed_execs_are_listed_too(server):
    judged = server("POST", "/v1/judge", {"language": "bash", "code": "cat", "tests": [{"stdin": "1", "expected": "1"}]})
    session = server("POST", "/v1/sessions", {"language": "bash"}).json()["id"]
    server("POST", "/v1/sessions/%s/exec" % session, {"code": "echo 1"}, {"Accept": "text/event-stream"})
    assert server("DELETE", "/v1/sessions/" + session).status == 204
    first, second = listed(server, "?limit=2")["runs"]
    assert first["kind"] == "exec" and first["language"] == "bash" and first["status"] == "ok"
    assert second["kind"] == "judge" and second["id"] == judged.json()["id"]


def test_a_run_that_waits_or_runs_is_listed(server):
    made = server.run("bash", "read -t 60 < <(sleep 60)", limits={"wall_ms": 60000}, **{"async": True}).json()["id"]
    assert wait_until(lambda: made in ids(server, "?status=running"))
    run = listed(server)["runs"][0]
    assert run["id"] == made and run["ended_at"] is None and run["wall_ms"] is None
    assert server("DELETE", "/v1/runs/" + made).status == 202
    assert wait_until(lambda: made in ids(server, "?status=cancelled"))
    assert made not in ids(server, "?status=running")


def test_pages_and_filters(server):
    made = [server.run("python" if i % 2 else "bash", "").json()["id"] for i in range(7)]
    got, query = [], "?limit=3"
    while len(got) < 7:
        page = listed(server, query)
        assert len(page["runs"]) == 3
        got += [run["id"] for run in page["runs"]]
        query = "?limit=3&before=" + page["next"]
    assert got[:7] == made[::-1]
    assert ids(server, "?language=py&limit=3") == [made[5], made[3], made[1]]
    assert ids(server, "?language=bash&status=ok&limit=2") == [made[6], made[4]]
    assert ids(server, "?language=klingon") == []
    assert len(ids(server)) <= 20


@pytest.mark.parametrize("query", [
    "limit=0", "limit=101", "limit=-1", "limit=1e1", "limit=", "limit=99999999999999999999", "limit=5%00",
    "before=", "before=1", "before=-run_1", "before=x-run_1", "before=1-", "before=1-%27", "before=1-" + "a" * 40,
    "before=99999999999999999999-run_1", "before=1-run_1%00", "status=fine", "status=", "status=ok%00", "language=%00"])
def test_bad_queries_are_refused(server, query):
    reply = server("GET", "/v1/runs?" + query)
    assert reply.status == 400, reply
    assert reply.json()["error"]["field"] == query.partition("=")[0]


def test_a_cursor_outlives_its_run(server):
    assert ids(server, "?before=9000000000000-run_zzz&limit=1") == ids(server, "?limit=1")
    assert listed(server, "?before=1-run_zzz") == {"runs": [], "next": None}


def test_everybody_sees_his_own_and_the_operator_all(keyed):
    made = {key: keyed.run("bash", "echo", key=key).json()["id"] for key in (ALICE, BOB, ROOT)}
    assert keyed("GET", "/v1/runs").status == 401
    assert ids(keyed, key=ALICE) == [made[ALICE]]
    assert ids(keyed, key=BOB) == [made[BOB]]
    everything = listed(keyed, key=ROOT)["runs"]
    assert [run["id"] for run in everything] == [made[ROOT], made[BOB], made[ALICE]]
    assert [run["key"] for run in everything] == ["root", "bob", "alice"]
    keyed.stop()
    keyed.start()
    assert ids(keyed, key=ALICE) == [made[ALICE]]
    assert ids(keyed, key=ROOT) == [made[ROOT], made[BOB], made[ALICE]]
    assert "bob" not in json.dumps(listed(keyed, key=ALICE))


def test_without_a_store_the_list_is_what_memory_has(make_server):
    server = make_server(env={"HERMES_HISTORY": "memory"})
    made = server.run("bash", "echo").json()["id"]
    assert ids(server) == [made]
    server.stop()
    server.start()
    assert ids(server) == []
