# SPDX-License-Identifier: Apache-2.0
"""Requests that two readers could read differently, on raw sockets. Each gets exactly one answer in JSON and a
closed connection; nothing of it is executed, and nothing after it is read as a request. The same bytes through
nginx: whatever nginx makes of them, no other client gets a wrong answer."""
import json
import os
import socket
import ssl
import time

import pytest

from apilib import SLOW
from serving import serve
from test_nginx import KEY, NGINX, Proxy

RUN = json.dumps({"language": "bash", "code": "echo executed"}).encode()
HOST = b"Host: localhost"
TYPE = b"Content-Type: application/json"
LENGTH = b"Content-Length: %d" % len(RUN)
CHUNKED = b"Transfer-Encoding: chunked"
LINE = b"POST /v1/runs HTTP/1.1"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(RUN), RUN)
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(*headers, body=RUN, line=LINE, end=b"\r\n"):
    """A request with these headers beside Host and Content-Type."""
    return end.join([line, HOST, TYPE, *headers, b"", b""]) + body


def get(*headers, line=b"GET /v1/report HTTP/1.1"):
    return b"\r\n".join([line, HOST, *headers, b"", b""])


def chunks(body):
    return post(CHUNKED, body=body)


FINE = post(LENGTH)
FINE_CHUNKED = chunks(CHUNKS)
SIZE = b"%x" % len(RUN)

CASES = {
    # lengths
    "two lengths": (400, post(LENGTH, b"Content-Length: 0")),
    "two equal lengths": (400, post(LENGTH, LENGTH)),
    "lengths in a list": (400, post(LENGTH + b", %d" % len(RUN))),
    "length with a plus": (400, post(b"Content-Length: +%d" % len(RUN))),
    "length below zero": (400, post(b"Content-Length: -1")),
    "length in hexadecimal": (400, post(b"Content-Length: 0x2d")),
    "length with a letter": (400, post(LENGTH + b"x")),
    "length with a space inside": (400, post(b"Content-Length: 4 5")),
    "length without digits": (400, post(b"Content-Length:")),
    "length with a point": (400, post(LENGTH + b".0")),
    "length of 19 digits": (400, post(b"Content-Length: 1000000000000000000")),
    "length beyond 64 bits": (400, post(b"Content-Length: 18446744073709551661")),
    "length in quotes": (400, post(b'Content-Length: "%d"' % len(RUN))),
    "length in other digits": (400, post("Content-Length: \u0664\u0665".encode())),
    "length with an exponent": (400, post(b"Content-Length: 4e1")),
    "length behind a form feed": (400, post(b"Content-Length:\x0c%d" % len(RUN))),
    "length behind a non-breaking space": (400, post(b"Content-Length: \xa0%d" % len(RUN))),
    "an empty length and a length": (400, post(b"Content-Length:", LENGTH)),
    "length above the maximum": (413, post(b"Content-Length: 999999999999")),
    # codings
    "length and chunked": (400, post(LENGTH, CHUNKED, body=CHUNKS)),
    "chunked and length": (400, post(CHUNKED, b"Content-Length: 5", body=CHUNKS)),
    "length zero and chunked": (400, post(b"Content-Length: 0", CHUNKED, body=CHUNKS)),
    "chunked twice": (400, post(CHUNKED, CHUNKED, body=CHUNKS)),
    "chunked and identity": (400, post(CHUNKED, b"Transfer-Encoding: identity", body=CHUNKS)),
    "xchunked": (501, post(b"Transfer-Encoding: xchunked", body=CHUNKS)),
    "gzip": (501, post(b"Transfer-Encoding: gzip", body=CHUNKS)),
    "gzip, chunked": (501, post(b"Transfer-Encoding: gzip, chunked", body=CHUNKS)),
    "chunked, identity": (501, post(b"Transfer-Encoding: chunked, identity", body=CHUNKS)),
    "chunked, chunked": (501, post(b"Transfer-Encoding: chunked, chunked", body=CHUNKS)),
    "chunked in quotes": (501, post(b'Transfer-Encoding: "chunked"', body=CHUNKS)),
    "chunked with a parameter": (501, post(b"Transfer-Encoding: chunked;q=1", body=CHUNKS)),
    "chunked with a vertical tab": (400, post(b"Transfer-Encoding: \x0bchunked", body=CHUNKS)),
    "chunked with a space before the colon": (400, post(b"Transfer-Encoding : chunked", body=CHUNKS)),
    "chunked with a tab before the colon": (400, post(b"Transfer-Encoding\t: chunked", body=CHUNKS)),
    "an empty coding": (501, post(b"Transfer-Encoding:", body=CHUNKS)),
    "chunked and a comma": (501, post(b"Transfer-Encoding: chunked,", body=CHUNKS)),
    "a comma and chunked": (501, post(b"Transfer-Encoding: ,chunked", body=CHUNKS)),
    "chunked behind a non-breaking space": (501, post(b"Transfer-Encoding: \xa0chunked", body=CHUNKS)),
    "a coding's name with a non-breaking space": (400, post(b"Transfer-Encoding\xa0: chunked", body=CHUNKS)),
    "chunked in HTTP/1.0": (400, post(CHUNKED, body=CHUNKS, line=b"POST /v1/runs HTTP/1.0")),
    # ends of lines
    "bare LF everywhere": (400, post(LENGTH, end=b"\n")),
    "bare LF after the request line": (400, FINE.replace(b"\r\n", b"\n", 1)),
    "bare LF after a header": (400, FINE.replace(b"localhost\r\n", b"localhost\n")),
    "bare LF as the empty line": (400, FINE.replace(b"\r\n\r\n", b"\r\n\n")),
    "bare CR in a value": (400, post(LENGTH, b"X: a\rb")),
    "bare CR as the end of a line": (400, post(LENGTH + b"\rX: y")),
    "CR CR LF": (400, post(LENGTH + b"\r")),
    "LF CR": (400, FINE.replace(b"\r\n", b"\n\r")),
    "an empty line first": (400, b"\r\n" + FINE),
    "an empty LF line first": (400, b"\n" + FINE),
    # headers
    "a folded header": (400, post(b"X: a\r\n b", LENGTH)),
    "a folded length": (400, post(b"Content-Length:\r\n %d" % len(RUN))),
    "folded with a tab": (400, post(b"X: a\r\n\tb", LENGTH)),
    "a fold first": (400, LINE + b"\r\n X: y\r\n" + post(LENGTH, line=b"A: b")),
    "NUL in a value": (400, post(LENGTH, b"X: a\0b")),
    "NUL in a key": (400, post(LENGTH, b"X-API-Key: a\0b")),
    "NUL in a name": (400, post(LENGTH, b"X\0Y: a")),
    "NUL after a length": (400, post(LENGTH + b"\0")),
    "DEL in a value": (400, post(LENGTH, b"X: a\x7fb")),
    "a control character in a value": (400, post(LENGTH, b"X: a\x01b")),
    "a space in a name": (400, post(LENGTH, b"X Y: z")),
    "a space before the colon": (400, post(b"Content-Length : %d" % len(RUN))),
    "no name": (400, post(LENGTH, b": z")),
    "no colon": (400, post(LENGTH, b"XYZ")),
    "a name in another alphabet": (400, post(LENGTH, "H\u00f6st: z".encode())),
    "no Host": (400, FINE.replace(HOST + b"\r\n", b"")),
    "two Hosts": (400, post(LENGTH, b"Host: other")),
    "a Host with a space": (400, FINE.replace(HOST, b"Host: local host")),
    "a list of Hosts": (400, FINE.replace(HOST, b"Host: localhost, other")),
    "a Host with a user": (400, FINE.replace(HOST, b"Host: localhost@other")),
    "a Host with a path": (400, FINE.replace(HOST, b"Host: localhost/v1")),
    "a Host with a backslash": (400, FINE.replace(HOST, b"Host: localhost\\other")),
    "a Host with a quote": (400, FINE.replace(HOST, b'Host: "localhost"')),
    "a Host in another alphabet": (400, FINE.replace(HOST, "Host: l\u00f6calhost".encode())),
    "a Host in HTTP/1.0 with a space": (400, post(LENGTH, line=b"POST /v1/runs HTTP/1.0").replace(HOST, b"Host: a b")),
    "two types": (400, post(LENGTH, b"Content-Type: text/plain")),
    "101 headers": (431, post(LENGTH, *[b"X: y"] * 99)),
    "20 KB of headers": (431, post(LENGTH, b"X: " + b"y" * 20000)),
    "1 MB of headers": (431, post(LENGTH, b"X: " + b"y" * 1000000)),
    # request line
    "two spaces before the path": (400, post(LENGTH, line=b"POST  /v1/runs HTTP/1.1")),
    "two spaces after the path": (400, post(LENGTH, line=b"POST /v1/runs  HTTP/1.1")),
    "a space after the version": (400, post(LENGTH, line=b"POST /v1/runs HTTP/1.1 ")),
    "a space before the method": (400, post(LENGTH, line=b" POST /v1/runs HTTP/1.1")),
    "a tab for a space": (400, post(LENGTH, line=b"POST\t/v1/runs HTTP/1.1")),
    "NUL in the path": (400, post(LENGTH, line=b"POST /v1/runs\0 HTTP/1.1")),
    "a space in the path": (400, post(LENGTH, line=b"POST /v1/runs x HTTP/1.1")),
    "a byte above 127 in the path": (400, post(LENGTH, line=b"POST /v1/runs\xff HTTP/1.1")),
    "a fragment": (400, post(LENGTH, line=b"POST /v1/runs#x HTTP/1.1")),
    "a whole address": (400, post(LENGTH, line=b"POST http://localhost/v1/runs HTTP/1.1")),
    "a star": (400, post(LENGTH, line=b"POST * HTTP/1.1")),
    "no version": (400, post(LENGTH, line=b"POST /v1/runs")),
    "no method": (400, post(LENGTH, line=b"/v1/runs HTTP/1.1")),
    "a method with a colon": (400, post(LENGTH, line=b"PO:ST /v1/runs HTTP/1.1")),
    "a method of 20 letters": (400, post(LENGTH, line=b"P" * 20 + b" /v1/runs HTTP/1.1")),
    "http in small letters": (400, post(LENGTH, line=b"POST /v1/runs http/1.1")),
    "HTTP/1.10": (400, post(LENGTH, line=b"POST /v1/runs HTTP/1.10")),
    "HTTP/2.0": (505, post(LENGTH, line=b"POST /v1/runs HTTP/2.0")),
    "HTTP/1.2": (505, post(LENGTH, line=b"POST /v1/runs HTTP/1.2")),
    "the start of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a path of 9 KB": (414, post(LENGTH, line=b"POST /" + b"x" * 9000 + b" HTTP/1.1")),
    "a path of 1 MB": (414, post(LENGTH, line=b"POST /" + b"x" * 1000000 + b" HTTP/1.1")),
    "a query with a bare %": (400, post(LENGTH, line=b"POST /v1/runs?x=%zz HTTP/1.1")),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 32),
    # chunks
    "a chunk size in decimal with a sign": (400, chunks(b"+" + CHUNKS)),
    "a chunk size below zero": (400, chunks(b"-" + CHUNKS)),
    "a chunk size with 0x": (400, chunks(b"0x" + CHUNKS)),
    "a chunk size with a space before": (400, chunks(b" " + CHUNKS)),
    "a chunk size with a space after": (400, chunks(CHUNKS.replace(b"\r\n", b" \r\n", 1))),
    "a chunk size with a tab after": (400, chunks(CHUNKS.replace(b"\r\n", b"\t\r\n", 1))),
    "a chunk size without digits": (400, chunks(b"\r\n" + CHUNKS)),
    "a chunk size beyond 64 bits": (400, chunks(b"10000000000000000" + CHUNKS)),
    "a chunk size with many zeros": (400, chunks(b"0" * 40 + CHUNKS)),
    "a chunk that is longer than its size": (400, chunks(b"1\r\n" + RUN + b"\r\n0\r\n\r\n")),
    "bare LF after a chunk size": (400, chunks(CHUNKS.replace(b"\r\n", b"\n", 1))),
    "bare LF after a chunk": (400, chunks(CHUNKS.replace(RUN + b"\r\n", RUN + b"\n"))),
    "bare LF after the last chunk": (400, chunks(CHUNKS.replace(b"0\r\n\r\n", b"0\n\r\n"))),
    "bare LF at the end of the body": (400, chunks(CHUNKS[:-2] + b"\n")),
    "bare CR after a chunk size": (400, chunks(CHUNKS.replace(b"\r\n", b"\r", 1))),
    "bare LF in a chunk extension": (400, chunks(SIZE + b";a\nb" + CHUNKS[len(SIZE):])),
    "NUL in a chunk extension": (400, chunks(SIZE + b";a\0b" + CHUNKS[len(SIZE):])),
    "a chunk extension of 1 MiB": (400, chunks(SIZE + b";" + b"x" * (1 << 20) + CHUNKS[len(SIZE):])),
    "many chunk extensions": (400, chunks((b"1;" + b"x" * 200 + b"\r\n \r\n") * 100 + CHUNKS)),
    "a line end in quotes in a chunk extension": (400, chunks(SIZE + b';a="x\r\ny"' + CHUNKS[len(SIZE):])),
    "a chunk size with a comma": (400, chunks(SIZE + b",0" + CHUNKS[len(SIZE):])),
    "a chunk size with an underscore": (400, chunks(SIZE[:1] + b"_" + SIZE[1:] + CHUNKS[len(SIZE):])),
    "a last chunk without the empty line": (400, chunks(CHUNKS[:-2])),
    "a folded trailer": (400, chunks(CHUNKS[:-2] + b"X: a\r\n b\r\n\r\n")),
    "a trailer with a space before the colon": (400, chunks(CHUNKS[:-2] + b"X : a\r\n\r\n")),
    "NUL in a trailer": (400, chunks(CHUNKS[:-2] + b"X: \0\r\n\r\n")),
    "1 MB of trailers": (431, chunks(CHUNKS[:-2] + b"X: y\r\n" * 200000 + b"\r\n")),
}

# The control: these requests are well-formed and are executed. So the cases above are refused for what they change.
CONTROLS = {
    "length": FINE,
    "chunked": FINE_CHUNKED,
    "a Host with a port": FINE.replace(HOST, b"Host: localhost:8000"),
    "a Host in brackets": FINE.replace(HOST, b"Host: [::1]:8000"),
    "chunked in other letters": post(b"transfer-encoding:CHUNKED", body=CHUNKS),
    "spaces and tabs around a value": post(b"Content-Length: \t %d \t" % len(RUN)),
    "a length with zeros before it": post(b"Content-Length: 000%d" % len(RUN)),
    "an obsolete byte in a value": post(LENGTH, b"X: \xff"),
    "a short chunk extension": chunks(SIZE + b";a=b" + CHUNKS[len(SIZE):]),
    "zeros before a chunk size": chunks(b"000" + CHUNKS),
    "many chunks": chunks(b"".join(b"1\r\n%c\r\n" % c for c in RUN) + b"0\r\n\r\n"),
    "trailers": chunks(CHUNKS[:-2] + b"X: y\r\nContent-Length: 3\r\n\r\n"),
    "100 headers": post(LENGTH, *[b"X: y"] * 97),
    "15 KB of headers": post(LENGTH, b"X: " + b"y" * 15000),
    "a path of 8 KB": post(LENGTH, line=b"POST /v1/runs?x=" + b"y" * 8000 + b" HTTP/1.1"),
}


@pytest.fixture(scope="module")
def plain():
    yield from serve()


def executed(server):
    return server.metric("hermes_history_runs")


def seen(server, path):
    return sum(event["path"] == path for event in server.events("request"))


def answers(data):
    """Status and body of each answer in the bytes, which must be nothing but answers."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 "), data[:300]
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        found.append((int(head[9:12]), fields, rest[:length]))
        assert len(rest) >= length
        data = rest[length:]
    return found


def talk(server, *pieces):
    """Sends the pieces and returns all that comes until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20 * SLOW) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = b""
        try:
            for i, piece in enumerate(pieces):
                if i:
                    time.sleep(0.002)
                s.sendall(piece)
        except OSError:
            pass  # it was refused before the last byte
        while True:
            try:
                piece = s.recv(65536)
            except ConnectionError:
                return got
            if not piece:
                return got
            got += piece


def refused(server, status, *pieces):
    """Exactly one answer, in JSON, that announces the end, which came."""
    found = answers(talk(server, *pieces))
    assert [a[0] for a in found] == [status], found
    _, fields, body = found[0]
    assert fields[b"connection"] == b"close" and fields[b"content-type"] == b"application/json"
    error = json.loads(body)["error"]
    assert error["code"] and error["message"]


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_once_and_nothing_is_executed(plain, name):
    status, data = CASES[name]
    before = executed(plain)
    refused(plain, status, data + FINE + SMUGGLED)
    assert executed(plain) == before and seen(plain, "/smuggled") == 0


@pytest.mark.parametrize("name", CONTROLS)
def test_a_well_formed_request_is_executed(plain, name):
    """The control, twice on one connection, with a third request that ends it."""
    before = executed(plain)
    found = answers(talk(plain, CONTROLS[name] * 2 + get(b"Connection: close", line=b"GET /control HTTP/1.1")))
    assert [a[0] for a in found] == [200, 200, 404]
    assert all(json.loads(a[2])["stdout"] == "executed\n" for a in found[:2])
    assert executed(plain) == before + 2 and seen(plain, "/control") > 0


@pytest.mark.parametrize("name", ["two lengths", "length and chunked", "bare LF after a header", "NUL in a value",
                                  "a folded length", "xchunked", "bare LF after a chunk size",
                                  "a chunk that is longer than its size", "HTTP/2.0", "no version"])
def test_after_a_good_request_a_bad_one_ends_the_connection(plain, name):
    status, data = CASES[name]
    before = executed(plain)
    found = answers(talk(plain, get() + get() + data + FINE + SMUGGLED))
    assert [a[0] for a in found] == [200, 200, status]
    assert executed(plain) == before


SHORT = {
    "bare LF": (400, b"GET /v1/report HTTP/1.1\nHost: localhost\r\n\r\n"),
    "a folded header": (400, get(b"X: a\r\n b")),
    "two spaces": (400, get(line=b"GET  /v1/report HTTP/1.1")),
    "a bad chunk": (400, b"POST /v1/runs HTTP/1.1\r\nHost: a\r\n\r\n".replace(
        b"a\r\n\r", b"localhost\r\nContent-Type: application/json\r\n" + CHUNKED + b"\r\n\r") + b"1\r\n{}\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", SHORT)
def test_split_at_every_byte(plain, name):
    status, data = SHORT[name]
    for i in range(1, len(data)):
        refused(plain, status, data[:i], data[i:] + FINE)


def test_a_well_formed_request_split_at_every_byte(plain):
    data = chunks(b"3\r\n{\"l\r\n1;x=y\r\n}\r\n0\r\nX: y\r\n\r\n").replace(TYPE, TYPE + b"\r\nConnection: close")
    for i in range(1, len(data)):
        found = answers(talk(plain, data[:i], data[i:]))
        assert [a[0] for a in found] == [400] and b"not valid JSON" in found[0][2], (i, found)


@pytest.mark.parametrize("data", [LINE, LINE + b"\r\n", LINE + b"\r\nHost: loc", FINE[:-1], FINE_CHUNKED[:-1],
                                  FINE_CHUNKED[:-7], post(CHUNKED, body=b"ffff\r\n{")])
def test_a_request_that_ends_early_is_answered(plain, data):
    before = executed(plain)
    found = answers(plain.raw(data, 20, shut=True))
    assert [a[0] for a in found] == [400] and b"ended in the middle" in found[0][2]
    assert executed(plain) == before


def test_a_request_that_ends_early_control(plain):
    assert [a[0] for a in answers(plain.raw(get(), 20, shut=True))] == [200]
    assert plain.raw(b"", 20, shut=True) == b""  # nothing was asked


def test_plain_manners(plain):
    """HEAD, Allow, Expect, HTTP/1.0, answers without a body."""
    def first(data):
        got = plain.raw(data, 20)
        return got, dict(l.lower().split(b": ", 1) for l in got.split(b"\r\n\r\n")[0].split(b"\r\n")[1:])
    got, fields = first(get(b"Connection: close", line=b"HEAD /version HTTP/1.1"))
    assert got.startswith(b"HTTP/1.1 200 OK\r\n") and got.endswith(b"\r\n\r\n") and int(fields[b"content-length"]) > 0
    assert b"date" in fields and fields[b"content-type"] == b"application/json"
    got, fields = first(get(b"Connection: close", line=b"PATCH /v1/runs/x HTTP/1.1"))
    assert got.startswith(b"HTTP/1.1 405 ") and set(fields[b"allow"].split(b", ")) == {b"get", b"head", b"delete"}
    got, fields = first(get(b"Connection: close", line=b"OPTIONS /v1/runs HTTP/1.1"))
    assert got.startswith(b"HTTP/1.1 200 ") and fields[b"content-length"] == b"0"
    got, fields = first(b"GET /version HTTP/1.0\r\n" + HOST + b"\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 ") and fields[b"connection"] == b"close"
    head, body = post(LENGTH, b"Expect: 100-continue", b"Connection: close", body=b""), RUN
    with socket.create_connection(("127.0.0.1", plain.port), timeout=20 * SLOW) as s:
        s.sendall(head)
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(body)
        assert s.recv(65536).startswith(b"HTTP/1.1 200 ")
    got, _ = first(head.replace(b"/v1/runs", b"/nowhere"))
    assert got.startswith(b"HTTP/1.1 404 ")  # it is not asked for its body


def test_a_stream_for_http_1_0_ends_with_the_connection(plain):
    got = plain.raw(post(LENGTH, b"Accept: text/event-stream", line=b"POST /v1/runs HTTP/1.0"), 20)
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head and body.startswith(b"id: ") and b"event: end" in body


# --- the same behind nginx

@pytest.fixture(scope="module")
def behind():
    if not NGINX or os.geteuid() != 0:
        pytest.skip("no nginx, or its workers cannot change their user")
    for server in serve(env={"API_TOKEN": KEY, "HERMES_USER": "www-data"}, tcp=False):
        proxy = Proxy(server)
        try:
            yield proxy
        finally:
            proxy.close()


def through(proxy, data, wait=20 * SLOW):
    context = ssl.create_default_context(cafile=str(proxy.certificate))
    got = b""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20 * SLOW) as raw, \
            context.wrap_socket(raw, server_hostname="hermes.example") as s:
        try:
            s.sendall(data)
            s.settimeout(wait)
            while piece := s.recv(65536):
                got += piece
        except OSError:
            pass
    return got


@pytest.mark.parametrize("name", CASES)
def test_behind_nginx_no_other_client_is_served_wrongly(behind, name):
    """The connections of nginx to the server serve all clients. What is left of a bad request on one of them
    would be read before the next client's, who would get an answer that is not his."""
    _, data = CASES[name]
    # Requests that nginx understands end the connection; the others end it anyway.
    data = data.replace(HOST, b"Host: hermes.example\r\nConnection: close\r\nAuthorization: Bearer " + KEY.encode(), 1)
    assert len(SMUGGLED) <= len(RUN)
    before = executed(behind.server)
    # The body is a request. Where nginx waits for more of it, this client leaves after a second.
    got = through(behind, data.replace(RUN, SMUGGLED.ljust(len(RUN))), 1)
    assert got.count(b"HTTP/1.1 ") <= 1
    assert executed(behind.server) == before
    for i in range(3):
        path = "/victim-%d" % i
        reply = behind("GET", path)
        assert reply.status == 404 and reply.json()["error"]["code"] == "not_found"
        assert behind("GET", "/version").json()["name"] == "hermes"
    assert seen(behind.server, "/smuggled") == 0


def test_behind_nginx_a_well_formed_request_is_executed(behind):
    before = executed(behind.server)
    for data in (FINE, FINE_CHUNKED):
        data = data.replace(HOST, b"Host: hermes.example\r\nConnection: close\r\nAuthorization: Bearer " + KEY.encode())
        assert b'"executed\\n"' in through(behind, data)
    assert executed(behind.server) == before + 2
