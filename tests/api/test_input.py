# SPDX-License-Identifier: Apache-2.0
"""Bad input, O-59 to O-71 of the attack list, and the gate on raw sockets."""
import json
import re
import os
import socket
import time

import pytest

from apilib import SLOW


def error(reply, status=400):
    assert reply.status == status, reply
    body = reply.json()["error"]
    assert body["code"] and body["message"]
    return body


@pytest.mark.parametrize("name", [
    "../../x", "/etc/cron.d/x", "a/../../x", "..\\x", "./../x", "", ".", "..", "a\u0000b",
    "a//b/", "x" * 5000, "a/" * 40 + "b", "a\nb"])
def test_o59_names_of_files(server, name):
    reply = server("POST", "/v1/runs", {"language": "python", "code": "1",
                                        "files": [{"name": name, "content": ""}]})
    assert error(reply)["field"] == "files[0].name"


def test_o59_a_file_that_is_also_a_directory(server):
    reply = server("POST", "/v1/runs", {"language": "python", "code": "1", "files": [
        {"name": "a", "content": ""}, {"name": "a/b", "content": ""}]})
    assert error(reply)["field"] == "files"


def rss(pid):
    return int(open("/proc/%d/statm" % pid).read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_o60_a_declared_length_over_the_cap_is_refused_at_once(server):
    began = time.monotonic()
    got = server.raw(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 10737418240\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413") and b'"too_large"' in got
    assert time.monotonic() - began < 3 * SLOW


def test_o60_an_endless_chunked_body_is_cut_off(server):
    before = rss(server.child("hermes-server"))
    s = socket.create_connection(("127.0.0.1", server.port), timeout=30 * SLOW)
    s.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    try:
        for _ in range(100):
            s.sendall(chunk)
    except OSError:
        pass
    got = b""
    try:
        got = s.recv(4096)
    except OSError:
        pass
    s.close()
    assert not got or got.startswith(b"HTTP/1.1 413")
    assert rss(server.child("hermes-server")) - before < 80 << 20
    assert server("GET", "/health").status == 200


@pytest.mark.parametrize("body", [
    b"[" * 1000000, b'{"a":' * 100000, b"{" + b",".join(b'"%d":1' % i for i in range(300000)) +
    b"}"])
def test_o61_json_bombs(server, body):
    began = time.monotonic()
    error(server("POST", "/v1/runs", body, {"Content-Type": "application/json"}))
    assert time.monotonic() - began < 2 * SLOW


@pytest.mark.parametrize("body", [
    b'{"language":"python","code":"\xff"}', b'{"language":"\\ud800"}', b'{"a":NaN}',
    b'{"a":1e999}', b'{"language":"python","language":"c"}', b'{} trailing', b'\xef\xbb\xbf{}',
    b'{/* comment */}', b'{"a":"\x01"}', b'{"a":"\x00"}', b"", b"null", b"[]", b'"x"', b"{"])
def test_o62_malformed_json(server, body):
    error(server("POST", "/v1/runs", body, {"Content-Type": "application/json"}))


@pytest.mark.parametrize("value", [-1, 0, 10 ** 18, 2 ** 63, 2 ** 64, "10", None, [], 0.00001])
@pytest.mark.parametrize("limit", ["wall_ms", "memory_mb", "processes", "output_kb"])
def test_o63_absurd_limits(server, limit, value):
    error(server.run("python", "1", limits={limit: value}))


@pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "1e999"])
def test_numbers_out_of_range_are_not_malformed_json(server, number):
    body = '{"language": "python", "code": "1", "limits": {"wall_ms": %s}}' % number
    message = error(server("POST", "/v1/runs", body.encode(), headers={"Content-Type": "application/json"}))["message"]
    assert "out of range" in message and "not valid JSON" not in message


@pytest.mark.parametrize("method,path,body", [
    ("POST", "/v1/runs", {"language": "python", "code": "1", "limits": {"processes": 9.0}}),
    ("POST", "/v1/judge", {"language": "python", "code": "1", "tests": [{"expected": ""}], "parallel": 1.0}),
    ("POST", "/v1/sessions", {"language": "bash", "max_lifetime_s": 60.0}),
    ("POST", "/execute", {"language": "python", "code": "1", "limits": {"time_limit": 2.0}})])
def test_whole_numbers_may_have_a_point(server, method, path, body):
    """5.0 is a whole number in every request, 5.5 in none."""
    reply = server(method, path, body)
    assert reply.status in (200, 201), reply
    if path == "/v1/sessions":
        assert server("DELETE", "/v1/sessions/" + reply.json()["id"]).status == 204
    text = json.dumps(body).replace(".0", ".5").encode()
    reply = server(method, path, text, headers={"Content-Type": "application/json"})
    assert reply.status in (400, 422) and b"whole number" in reply.body, reply


@pytest.mark.parametrize("network,status", [
    ({}, 400), ({"allow": "x"}, 400), ({"allow": [], "deny": []}, 400), ("some", 400), (None, 400), ([], 400),
    ({"allow": ["-a.example"]}, 400), ({"allow": [7]}, 400), ({"ask": "x"}, 400), ({"ask": ["a"], "allow": []}, 400),
    ({"allow": ["a"] * 65}, 400), ({"allow": ["10.0.0.1"]}, 403), ({"allow": ["b.example", "[::1]:80"]}, 403),
    ({"ask": []}, 200), ({"allow": []}, 200), ("none", 200)])
def test_network_policies(server, network, status):
    for path in ("/v1/runs", "/v1/sessions"):
        body = {"language": "bash", "network": network}
        if path == "/v1/runs":
            body["code"] = "true"
        reply = server("POST", path, body)
        assert reply.status == (201 if path == "/v1/sessions" and status == 200 else status), reply
        if reply.status == 201:
            assert server("DELETE", "/v1/sessions/" + reply.json()["id"]).status == 204
        elif status != 200:
            assert reply.json()["error"]["field"].startswith("network")


@pytest.mark.parametrize("field,most", [("collect", 64), ("args", 4096), ("env", 1024)])
def test_lists_have_one_bound(server, field, most):
    """More than a box takes is refused with the name of the field, before anything runs."""
    def body(count):
        items = {"V%d" % i: "" for i in range(count)} if field == "env" else ["x"] * count
        return {"language": "python", "code": "1", field: items}
    assert error(server("POST", "/v1/runs", body(most + 1)))["field"] == field
    assert server("POST", "/v1/runs", body(most - 64)).status == 200 if most > 64 else True


def test_o65_huge_headers_and_targets(server):
    many = b"".join(b"X-%d: y\r\n" % i for i in range(20000))
    for data, status in (
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * (1 << 20) + b"\r\n\r\n",
             (b"431", b"")),
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n", (b"431", b"")),
            (b"GET /" + b"x" * 131072 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (b"414", b"431", b"")),
            (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (b"414",))):
        got = server.raw(data, 3)
        # Bytes that were not read make the kernel reset the connection; the answer may be lost.
        assert got[9:12] in status, got[:100]
    assert server("GET", "/health").status == 200


@pytest.mark.parametrize("key", ["A=B", "", "A\u0000", "A\n", "1A", "HERMES_X", "é"])
def test_o68_bad_variables(server, key):
    error(server.run("python", "1", env={key: "x"}))


def test_o68_loader_variables_reach_the_program_only(server):
    env = {"LD_PRELOAD": "/nonexistent.so", "LD_AUDIT": "/x", "BASH_ENV": "/x",
           "PYTHONSTARTUP": "/x"}
    run = server.run("python", "import os; print(os.environ['LD_PRELOAD'], "
                     "[k for k in os.environ if 'HERMES' in k])", env=env).json()
    assert run["stdout"] == "/nonexistent.so []\n", run
    many = {"K%d" % i: "x" for i in range(10000)}
    assert server.run("python", "1", env=many).status in (400, 413)


@pytest.mark.parametrize("body", [
    {"language": "brainfuck!", "code": ""}, {"language": "../c", "code": ""},
    {"language": {}, "code": ""}, {"language": "x" * 10000, "code": ""},
    {"language": "python", "files": "x"}, {"language": "python", "code": 5},
    {"language": "python"}, {"code": "1"}, {}])
def test_o69_languages_and_types(server, body):
    error(server("POST", "/v1/runs", body))


@pytest.mark.parametrize("line,statuses", [
    (b"GET http://169.254.169.254/ HTTP/1.1", (400,)), (b"CONNECT x:1 HTTP/1.1", (400, 405)),
    (b"TRACE / HTTP/1.1", (405, 501)), (b"OPTIONS * HTTP/1.1", (400,)),
    (b"GET //v1//runs HTTP/1.1", (404,)), (b"GET /v1/%2e%2e/metrics HTTP/1.1", (404,)),
    (b"GET /v1/runs/../../health HTTP/1.1", (404,)), (b"GET /health%00 HTTP/1.1", (404, 400)),
    (b"GET /HEALTH HTTP/1.1", (404,)), (b"BREW /health HTTP/1.1", (405,)),
    (b"GET /health HTTP/9.9", (400, 505))])
def test_o71_routes_and_methods(server, line, statuses):
    got = server.raw(line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n", 2)
    assert int(got[9:12]) in statuses, got[:200]


def test_o71_upgrade_is_not_taken(server):
    got = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n"
                     b"Connection: Upgrade, close\r\n\r\n", 2)
    assert got.startswith(b"HTTP/1.1 200")


POST = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("data", [
    POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Content-Length: +2\r\n\r\n{}", POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Host: y\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /health HTTP/1.1\r\n\r\n", b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nA b: c\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: b\rc\r\n\r\n", b"GET /health\r\n\r\n"])
def test_the_gate_refuses_and_closes(server, data):
    got = server.raw(data + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 2)
    is_coding = b"xchunked" in data or b"gzip" in data
    assert got[9:12] == (b"501" if is_coding else b"400"), got[:300]
    assert len(re.findall(rb"^HTTP/1\.1 \d", got, re.M)) == 1  # the second request was not served


def test_pipelined_requests_are_answered_in_order(server):
    got = server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
                     b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 3)
    assert got.index(b"UP!") < got.index(b'"version"')


def test_content_type(server):
    for kind, status in (("text/plain", 415), ("application/x-www-form-urlencoded", 415),
                         ("application/json; charset=utf-8", 400),
                         ("application/jsonp", 415)):
        assert server("POST", "/v1/runs", b"{}", {"Content-Type": kind}).status == status


def test_nothing_that_is_refused_leaves_anything(server):
    def count():
        text = server("GET", "/metrics").body.decode()
        return [l for l in text.splitlines() if l.startswith(("hermes_boxes_running",
                                                              "hermes_history_runs"))]
    before = count()
    for _ in range(20):
        error(server.run("python", "1", limits={"wall_ms": -1}))
        error(server("POST", "/v1/runs", {"language": "python", "code": "1", "entry": "gone.py",
                                          "files": [], "compile_args": ["-x"]}))
    assert count() == before


def test_flood_of_output_stays_within_the_cap(server):
    run = server.run("python", "import os\nb = b'x' * 65536\nwhile 1: os.write(1, b)",
                     limits={"output_kb": 64}).json()
    assert run["status"] == "output_limit" and len(run["stdout"]) == 65536
    assert run["stdout_truncated"] is True


@pytest.mark.slow
def test_o64_slow_clients_are_closed_and_stop_nobody(make_server):
    server = make_server(env={"HERMES_REQUEST_TIMEOUT_S": "3"})
    slow = []
    for i in range(200):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        s.sendall(b"GET /health HTTP/1.1\r\nHo" if i % 2 else POST + b"Content-Length: 9\r\n\r\n{")
        slow.append(s)
    began = time.monotonic()
    closed = 0
    while time.monotonic() - began < 6 * SLOW and closed < len(slow):
        assert server("GET", "/health").status == 200
        for s in slow:
            try:
                s.send(b"x")  # a byte now and then does not help
            except OSError:
                pass
        time.sleep(0.5)
        closed = 0
        for s in slow:
            try:
                s.setblocking(False)
                if s.recv(1) == b"":
                    closed += 1
            except BlockingIOError:
                pass
            except OSError:
                closed += 1
    assert closed == len(slow)
    for s in slow:
        s.close()
