# SPDX-License-Identifier: Apache-2.0
"""Bounds on terminals, and what a refused client is told."""
import json
import os
import resource
import select
import socket
import threading

import pytest

from apilib import wait_until
from ptylib import BINARY, TEXT, Raw, Refused, Terminal, frame, handshake, refusal
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
        assert e.status == 429 and b"all terminals of the server are in use" in e.body and "Retry-After" in e.headers, e


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


def test_a_wrong_size_is_named(session):
    for text, reason in ((b'{"type":"resize","rows":0,"cols":5}', "rows: must be a number from 1 to 1000"),
                         (b'{"type":"resize","rows":5,"cols":"x"}', "cols: must be a number from 1 to 1000")):
        raw = Raw(session("bash"))
        raw.send(frame(TEXT, text))
        assert raw.closed() == (1008, reason)
        raw.close()


@pytest.mark.parametrize("header, body", [("Content-Length: 5", b"hello"), ("Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n")],
                         ids=["length", "chunked"])
def test_no_opening_has_a_body(session, server, header, body):
    opening = handshake(session("bash"), Connection="Upgrade, close")[:-2] + header + "\r\n\r\n"
    answer = server.raw(opening.encode() + body)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"must have no body" in answer and answer.count(b"HTTP/1.1 ") == 1
    assert server.metric("hermes_terminals") == 0


@pytest.mark.parametrize("early", [frame(BINARY, b"echo ear''ly\n"), b"\xff" * 100, b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"],
                         ids=["frame", "rubbish", "request"])
def test_who_does_not_wait_for_the_answer(session, server, early):
    """What is sent with the opening is lost, which harms its sender alone; nobody takes it for another request."""
    one = session("bash")
    with Terminal(one) as other:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(10)
        sock.connect(str(server.unix))
        sock.sendall(handshake(one).encode() + early)
        seen = b""
        while b"box@box" not in seen:
            got = sock.recv(65536)
            if not got:
                break
            seen += got
        assert seen.startswith(b"HTTP/1.1 101 ") and seen.count(b"HTTP/1.1 ") == 1
        assert other.run("echo fine") == "fine\n"
        sock.close()
        assert wait_until(lambda: server.metric("hermes_terminals") == 1)
        assert other.run("echo fine") == "fine\n"


def push(sock, data):
    """As much of it as goes, until nothing has moved for a second; more than the other side takes."""
    sock.setblocking(False)
    while data and select.select([], [sock], [], 1)[1]:
        data = data[sock.send(data):]
    assert data


TCP_REPAIR = 19  # a socket that is closed in this state says nothing to the other side


def test_a_client_that_vanishes_while_nobody_reads_its_input(session, server):
    """It is pinged all the same, and what comes back, or does not, ends the terminal."""
    one = session("bash")
    raw = Raw.__new__(Raw)
    raw.sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    raw.buffer = b""
    raw.sock.sendall(handshake(one).encode())
    while b"box@box" not in raw.buffer:
        raw.buffer += raw.sock.recv(65536)
    raw.send(frame(BINARY, b"stty -icanon -echo; echo rea''dy; sleep 600\n"))
    while b"ready\r\n" not in raw.buffer:
        raw.buffer += raw.sock.recv(65536)
    push(raw.sock, frame(BINARY, b"x" * 60000) * 500)
    try:
        raw.sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError as e:
        pytest.skip("a socket cannot vanish here: %s" % os.strerror(e.errno))
    finally:
        raw.close()
    assert server.metric("hermes_terminals") == 1
    assert wait_until(lambda: server.metric("hermes_terminals") == 0, 40)
