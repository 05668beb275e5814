# SPDX-License-Identifier: Apache-2.0
"""GET /v1/runs/{id}/request: what was run, if it was kept."""
import json

import pytest

from apilib import Server, borrow_dir, return_dir, wait_until
from test_run_list import ALICE, BOB, KEYS, ROOT

BODY = '  {"keep_request":true, "language": "bash","code":"echo h\\u00e9", "env": {"A": "b"}}\n'
MAX = 1 << 20


def post(server, body, key=None, **headers):
    return server("POST", "/v1/runs", body, dict({"Content-Type": "application/json"}, **headers), key=key)


def kept(server, run, key=None):
    return server("GET", "/v1/runs/%s/request" % run, key=key)


def test_a_request_comes_back_byte_for_byte(server):
    run = post(server, BODY).json()["id"]
    reply = kept(server, run)
    assert reply.status == 200 and reply.body == BODY.encode()
    assert reply.headers["Content-Type"] == "application/json"


def test_asynchronous_and_streamed_runs_keep_it_too(server):
    body = dict(json.loads(BODY), code="sleep 60", limits={"wall_ms": 60000}, **{"async": True})
    run = server("POST", "/v1/runs", body).json()["id"]
    assert kept(server, run).json() == body  # while it waits or runs
    assert server("DELETE", "/v1/runs/" + run).status == 202
    assert wait_until(lambda: server("GET", "/v1/runs/" + run).json()["status"] == "cancelled")
    assert kept(server, run).json() == body
    streamed = post(server, BODY, Accept="text/event-stream")
    assert kept(server, streamed.headers["X-Run-Id"]).body == BODY.encode()


def test_without_the_wish_nothing_is_kept(server):
    run = server.run("bash", "echo").json()["id"]
    reply = kept(server, run)
    assert reply.status == 404 and "keep_request" in reply.json()["error"]["message"]
    run = server.run("bash", "echo", keep_request=False).json()["id"]
    assert kept(server, run).status == 404
    for unknown in ("run_0", "jdg_0", "ses_0"):
        assert kept(server, unknown).status == 404


def test_bounds(server):
    frame = len(json.dumps({"language": "bash", "code": "echo #", "keep_request": True}))
    fits = server.run("bash", "echo #" + "x" * (MAX - frame), keep_request=True)
    assert fits.status == 200 and len(kept(server, fits.json()["id"]).body) == MAX
    large = server.run("bash", "echo #" + "x" * (MAX - frame + 1), keep_request=True)
    assert large.status == 413 and "keep_request" in large.json()["error"]["message"]
    assert server.run("bash", "echo #" + "x" * MAX).status == 200
    bad = server.run("bash", "echo", keep_request="yes")
    assert bad.status == 400 and bad.json()["error"]["field"] == "keep_request"


def test_a_refused_request_is_not_kept(server):
    before = server("GET", "/v1/runs?limit=1").json()["runs"]
    assert server.run("klingon", "x", keep_request=True).status == 400
    assert server("GET", "/v1/runs?limit=1").json()["runs"] == before


@pytest.mark.parametrize("history", ["sqlite", "memory"])
def test_owners_and_restarts(history):
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys"), "HERMES_HISTORY": history})
    try:
        run = post(server, BODY, key=ALICE).json()["id"]
        for _ in range(2):
            assert kept(server, run, ALICE).body == BODY.encode()
            assert kept(server, run, BOB).status == 404
            assert kept(server, run, ROOT).status == 404  # the operator sees summaries only
            assert kept(server, run).status == 401
            if history == "memory":
                break
            server.stop()
            server.start()
    finally:
        server.stop()
        return_dir(path)


def test_the_setting_keeps_what_is_small_enough(make_server):
    server = make_server(env={"HERMES_HISTORY_REQUESTS": "true"})
    run = server.run("bash", "echo").json()["id"]
    assert kept(server, run).json() == {"language": "bash", "code": "echo"}
    run = server.run("bash", "echo #" + "x" * MAX).json()["id"]
    assert kept(server, run).status == 404
