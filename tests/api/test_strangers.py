# SPDX-License-Identifier: Apache-2.0
"""Connections of callers that have shown no key: they cannot keep out those that have one. Each kind
of stranger has a control, the same bytes with a key where that makes a difference."""
import json
import socket
import time

import pytest

from apilib import SLOW, wait_until
from serving import serve

PLACES = 64
KEY = "the-key"
HEAD = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
AUTH = b"Authorization: Bearer the-key\r\n"
BODY = json.dumps({"language": "bash", "code": "echo x"}).encode()


@pytest.fixture(scope="module")
def keyed():
    yield from serve(env={"API_TOKEN": KEY, "HERMES_MAX_CONNECTIONS": str(PLACES)})


@pytest.fixture(scope="module")
def open_to_all():
    yield from serve(env={"HERMES_MAX_CONNECTIONS": str(PLACES)})


@pytest.fixture(scope="module")
def shared():
    yield from serve(env={"API_TOKEN": KEY, "AUTH_TOKEN": "other-key",
                          "HERMES_MAX_CONNECTIONS": str(PLACES)})


class Herd:
    """Connections that are held, and what became of them."""

    def __init__(self, server, count, data=b"", source=None):
        self.socks = []
        self.server, self.data, self.source = server, data, source
        for _ in range(count):
            self.add()

    def add(self):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(10 * SLOW)
        if self.source:
            s.bind((self.source, 0))
        s.connect(("127.0.0.1", self.server.port))
        try:
            s.sendall(self.data)
        except OSError:
            pass
        s.setblocking(False)
        self.socks.append(s)

    def trickle(self, data=b"x"):
        for s in self.socks:
            try:
                s.send(data)
            except OSError:
                pass

    def alive(self):
        """Those that the server has not closed."""
        found = 0
        for s in self.socks:
            try:
                while s.recv(65536):
                    pass
            except BlockingIOError:
                found += 1
            except OSError:
                pass
        return found

    def close(self):
        for s in self.socks:
            s.close()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.close()


def served(server, key=KEY, times=5):
    """A caller on new connections, each of which needs a place."""
    for _ in range(times):
        reply = server("POST", "/v1/runs", {"language": "bash", "code": "echo x"}, key=key, tcp=True)
        if reply.status != 200:
            return reply
    return True


KINDS = {
    "silent": b"",
    "half a line": b"POST /v1/ru",
    "half the headers": HEAD + b"X-Slow: ",
    "one byte of a small body": HEAD + b"Content-Length: 9\r\n\r\n{",
    "one byte of a large body": HEAD + b"Content-Length: 900000\r\n\r\n{",
    "a chunked body": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "a wrong key": HEAD + b"Authorization: Bearer wrong\r\nContent-Length: 9\r\n\r\n{",
    "no such path": b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    "no such method": b"PUT /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    "a body where none belongs": b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n{",
    "chunks where none belong": b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "one that asks for its turn": HEAD + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
    "health, again and again": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("kind", KINDS)
def test_f8_strangers_do_not_keep_out_a_key(keyed, kind):
    """More of them than there are connections; the caller with the key is served every time, at
    once and when they have been there for a while."""
    with Herd(keyed, PLACES + 8, KINDS[kind]) as herd:
        for _ in range(3):
            assert served(keyed) is True
            herd.trickle(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" if kind.startswith("health") else b"x")
            time.sleep(0.3)
        assert served(keyed) is True
        # Nobody holds more than the share for strangers, however long.
        assert wait_until(lambda: herd.trickle() or keyed.metric("hermes_http_connections") <= PLACES // 4 + 1)
        for _ in range(PLACES + 8):  # more come: they push out each other
            herd.add()
        assert served(keyed) is True
    assert keyed.process.poll() is None


def test_strangers_that_take_no_reply(keyed):
    """They ask for more than the kernel's buffers hold and read nothing: a few seconds, not a minute."""
    def answered():
        return sum(e["path"] == "/openapi.json" for e in keyed.events("request"))
    count, before = 400, answered()
    with Herd(keyed, 4, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * count):
        assert wait_until(lambda: answered() > before)
        assert wait_until(lambda: keyed.metric("hermes_http_connections") <= 1)  # the one that asks
        assert answered() - before < 4 * count  # they were deaf


def test_a_connection_with_a_key_stays(keyed):
    """Its client may be idle, or send slowly: strangers are what goes."""
    idle = keyed.connect(tcp=True)
    assert keyed("GET", "/v1/report", key=KEY, conn=idle).status == 200
    slow = socket.create_connection(("127.0.0.1", keyed.port), timeout=30 * SLOW)
    slow.sendall(HEAD + AUTH + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:1])
    with Herd(keyed, PLACES + 8) as herd:
        time.sleep(2.5)
        for _ in range(2 * PLACES):
            herd.add()
        assert wait_until(lambda: herd.alive() <= PLACES // 4)
    slow.sendall(BODY[1:])
    assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
    slow.close()
    sock = idle.sock
    assert keyed("GET", "/v1/report", key=KEY, conn=idle).status == 200
    assert idle.sock is sock  # the same connection
    idle.close()


def test_answers_come_before_the_body(keyed):
    """One order for every size: route, key, type, size; then the connection ends."""
    def status(head, auth=AUTH):
        return keyed.raw(head + auth + b"Connection: close\r\n\r\n{")[9:12]
    for length in (b"9", b"60000", b"900000"):
        size = b"Content-Length: " + length + b"\r\n"
        assert status(HEAD + size, b"") == b"401"
        assert status(HEAD + size, b"X-API-Key: no\r\n") == b"401"
        assert status(HEAD.replace(b"/v1/runs", b"/run") + size, b"X-API-Key: no\r\n") == b"403"
        assert status(HEAD.replace(b"/v1/runs", b"/nowhere") + size) == b"404"
        assert status(HEAD.replace(b"POST", b"PUT") + size) == b"405"
        assert status(HEAD.replace(b"application/json", b"text/plain") + size) == b"415"
    assert status(HEAD + b"Content-Length: 90000000\r\n") == b"413"
    assert status(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n", b"") == b"413"
    got = keyed.raw(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    assert got.startswith(b"HTTP/1.1 401 ") and b"Connection: close\r\n" in got
    got = keyed.raw(HEAD + AUTH + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
    assert got.startswith(b"HTTP/1.1 200 ")  # the control


def test_what_follows_a_refusal_is_not_taken_for_a_request(keyed):
    """The body of a refused request, and what is sent after it, is thrown away."""
    inner = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\n" + AUTH + \
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    for length in (b"%d" % len(inner), b"5", b"1000000"):
        got = keyed.raw(HEAD + b"Content-Length: " + length + b"\r\n\r\n" + inner)
        assert got.startswith(b"HTTP/1.1 401 ") and got.count(b"HTTP/1.1 ") == 1, got
    for rubbish in (b"\xff" * 4096, b"\r\n" * 4096, b"GET", inner):
        got = keyed.raw(b"GET /v1/report HTTP/1.1\r\nHost: localhost\r\n\r\n" + rubbish, 0.2)
        assert got.startswith(b"HTTP/1.1 401 ")
    assert served(keyed, times=1) is True


def test_public_routes_prove_nothing(keyed):
    """A connection that asked for /health, or had a wrong key, is still a stranger's."""
    asked = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" \
            b"GET /v1/report HTTP/1.1\r\nHost: localhost\r\nX-API-Key: no\r\n\r\n"
    with Herd(keyed, 2 * PLACES, asked) as herd:
        assert wait_until(lambda: herd.alive() <= PLACES // 4)
        assert served(keyed) is True


def test_few_addresses_do_not_push_out_another(open_to_all):
    """Of strangers, those go whose address has the most connections, not those that came first."""
    slow = KINDS["one byte of a small body"]
    with Herd(open_to_all, 4, slow, "127.0.0.2") as few, Herd(open_to_all, PLACES, slow, "127.0.0.3") as many:
        time.sleep(2.5)
        for _ in range(PLACES // 2):
            many.add()
        assert wait_until(lambda: many.alive() <= PLACES)
        assert few.alive() == 4


def test_guessing_keys(keyed):
    """Thousands of guesses on many connections do not keep the key's owner out."""
    guess = b"".join(b"GET /v1/report HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %d\r\n\r\n" % i for i in range(50))
    for _ in range(10):
        with Herd(keyed, 8, guess):
            assert served(keyed, times=1) is True
    assert b"200 OK" not in keyed.raw(guess, 1)


def test_places_of_callers_with_a_key_run_out_with_503(keyed):
    """The control of the others: connections that prove themselves and are busy are not closed."""
    slow = HEAD + AUTH + b"Content-Length: %d\r\n\r\n{" % len(BODY)
    with Herd(keyed, PLACES, slow):
        assert wait_until(lambda: keyed("GET", "/v1/report", key=KEY, tcp=True).status == 503)
        assert served(keyed).json()["error"]["code"] == "unavailable"
        assert keyed("GET", "/health", tcp=True).status == 200  # a stranger's place is left
    assert wait_until(lambda: served(keyed) is True)


@pytest.mark.parametrize("kind", ["silent", "half a line", "half the headers", "one byte of a small body", "TLS",
                                  "one byte of a large body", "a chunked body", "no such path"])
def test_without_keys_the_first_request_is_the_proof(open_to_all, kind):
    with Herd(open_to_all, PLACES + 8, KINDS[kind]) as herd:
        for _ in range(3):
            assert served(open_to_all, None) is True
            herd.trickle()
            time.sleep(0.3)
        for _ in range(PLACES):
            herd.add()
        assert served(open_to_all, None) is True


@pytest.mark.parametrize("then", [HEAD + b"Content-Length: 9\r\n\r\n{", b"GET /hea",
                                  b"GET /v1/runtimes HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1500],
                         ids=["a body", "headers", "replies"])
def test_without_keys_a_second_request_that_is_slow_gives_way(open_to_all, then):
    first = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Herd(open_to_all, PLACES, first + then):
        assert wait_until(lambda: served(open_to_all, None) is True)


def test_a_slow_upload_without_keys_has_its_time(open_to_all):
    """Nobody presses: its request may take as long as request_timeout_s says."""
    s = socket.create_connection(("127.0.0.1", open_to_all.port), timeout=30 * SLOW)
    s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:1])
    time.sleep(6.5)  # longer than strangers have for their headers
    s.sendall(BODY[1:])
    assert s.recv(65536).startswith(b"HTTP/1.1 200 ")
    s.close()


def test_one_key_does_not_keep_out_another(shared, keyed):
    """Its connections with slow bodies are three quarters of the places at most. With one key alone they
    may be all: that is the control."""
    slow = HEAD + AUTH + b"Content-Length: 9\r\n\r\n{"
    herd = Herd(shared, PLACES + 8, slow)
    alone = Herd(keyed, PLACES + 8, slow)
    try:
        places = PLACES - PLACES // 4
        assert wait_until(lambda: herd.alive() <= places * 3 // 4, 10 * SLOW), herd.alive()
        assert wait_until(lambda: alone.alive() <= places, 10 * SLOW), alone.alive()
        assert alone.alive() > places * 3 // 4
        for _ in range(5):
            reply = shared.run("bash", "echo x", key="other-key")
            assert reply.status == 200, reply
    finally:
        herd.close()
        alone.close()
