# SPDX-License-Identifier: Apache-2.0
"""Bounds on terminals, and what a refused client is told."""
import json
import resource
import threading

from apilib import wait_until
from ptylib import Raw, Refused, refusal
from sessionlib import Session


def open_together(sessions, count):
    """So many openings at one moment, spread over the sessions: (terminals, refusals)."""
    opened, refused = [], []
    gate = threading.Barrier(count)

    def one(session):
        gate.wait()
        try:
            opened.append(Raw(session))
        except Refused as e:
            refused.append(e)
    threads = [threading.Thread(target=one, args=(sessions[i % len(sessions)],)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return opened, refused


def assert_full(opened, refused, places):
    assert len(opened) == places, (len(opened), refused)
    for e in refused:
        assert e.status == 429 and b"as many terminals as it may" in e.body and "Retry-After" in e.headers, e


def test_the_last_place_is_given_once(make_server):
    """A quarter of max_connections in all, however many sessions ask at the same moment."""
    server = make_server(env={"HERMES_MAX_CONNECTIONS": "16"})
    sessions = [Session(server, "bash") for _ in range(5)]
    for _ in range(5):
        opened, refused = open_together(sessions, 10)
        assert_full(opened, refused, 4)
        assert server.metric("hermes_terminals") == 4
        for raw in opened:
            raw.close()
        assert wait_until(lambda: server.metric("hermes_terminals") == 0)


def test_few_descriptors_are_few_terminals(make_server):
    """They have a quarter of the connections that there can be, not of those that were asked for."""
    server = make_server(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    [cut] = server.events("too few descriptors for max_connections; raise the limit (ulimit -n)")
    places = int(cut["connections"]) // 4
    assert 8 <= places <= 16
    sessions = [Session(server, "bash") for _ in range(places // 4 + 1)]
    opened, refused = open_together(sessions, 4 * len(sessions))
    assert_full(opened, refused, places)
    for raw in opened:
        raw.close()
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)
    assert sessions[0].out("echo fine") == "fine\n"


def test_advice_that_helps(make_server):
    """Who asks a session that is over is told what can be done, and what cannot."""
    server = make_server()
    one = Session(server, "bash", idle_timeout_s=1)
    assert wait_until(lambda: one.state()["state"] == "expired")
    for reply in (refusal(one).body, one.call("GET", "/files/x").body):
        message = json.loads(reply)["error"]["message"]
        assert "make a new one" in message and "reset" not in message, message
    dead = Session(server, "python")
    dead.exec("import os; os._exit(3)")
    message = json.loads(refusal(dead).body)["error"]["message"]
    assert "/v1/sessions/%s/reset" % dead.id in message
    assert dead.call("POST", "/reset").status == 200
    Raw(dead).close()


def test_no_terminals_at_all(make_server):
    """Another try does not help: 501, without Retry-After."""
    refused = refusal(Session(make_server(env={"HERMES_SESSION_TERMINALS": "0"}), "bash"))
    assert refused.status == 501 and "Retry-After" not in refused.headers
    assert json.loads(refused.body)["error"]["code"] == "unsupported"
