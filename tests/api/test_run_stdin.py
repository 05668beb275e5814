# SPDX-License-Identifier: Apache-2.0
"""Live standard input: POST /v1/runs/{id}/stdin."""
import hashlib
import threading

import pytest

from apilib import Server, borrow_dir, open_descriptors, return_dir, sse, wait_until
from test_run_list import ALICE, BOB, KEYS

ECHO = "while read -r line; do echo got $line; done; echo end"


def begin(server, code=ECHO, key=None, wall_ms=60000, **fields):
    reply = server.run("bash", code, key=key, stdin_open=True, limits={"wall_ms": wall_ms},
                       **dict({"async": True}, **fields))
    assert reply.status == 202, reply
    return reply.json()["id"]


def send(server, run, data=b"", query="", key=None):
    return server("POST", "/v1/runs/%s/stdin%s" % (run, query), data,
                  {"Content-Type": "application/octet-stream"}, key=key)


def answer_of(server, run, key=None):
    def ended():
        return "exit_code" in server("GET", "/v1/runs/" + run, key=key).json()
    assert wait_until(ended, 60)
    return server("GET", "/v1/runs/" + run, key=key).json()


def cancel(server, run):
    assert server("DELETE", "/v1/runs/" + run).status == 202
    assert answer_of(server, run)["status"] == "cancelled"


def events_until(server, run, text):
    """The stream of a run, read until the text has come."""
    connection = server.connect()
    connection.request("GET", "/v1/runs/%s/events" % run)
    stream = connection.getresponse()
    got = b""
    while text not in got:
        piece = stream.read1(65536)
        assert piece, got
        got += piece
    connection.close()
    return got


def test_input_arrives_while_the_run_goes_on(server):
    run = begin(server)
    assert send(server, run, b"one\n").json() == {"written": 4, "eof": False}
    events_until(server, run, b"got one")  # the program has answered, and waits for more
    assert send(server, run, b"two\n", "?eof=false").json()["eof"] is False
    assert send(server, run, b"three\n", "?eof=true").json() == {"written": 6, "eof": True}
    answer = answer_of(server, run)
    assert answer["status"] == "ok" and answer["stdout"] == "got one\ngot two\ngot three\nend\n"


def test_a_streamed_run_takes_input_too(server):
    connection = server.connect()
    connection.request("POST", "/v1/runs", '{"language": "python", "code": "print(input())", "stdin_open": true}',
                       {"Content-Type": "application/json", "Accept": "text/event-stream"})
    stream = connection.getresponse()
    run = stream.headers["X-Run-Id"]
    assert send(server, run, "grüße\n".encode()).status == 200
    events = sse(stream.read().decode())
    assert events[-1][2]["status"] == "ok" and events[-1][2]["stdout"] == "grüße\n"
    connection.close()


def test_all_bytes_arrive_in_order(server):
    run = begin(server, "sha256sum; head -c1 /dev/zero | tr '\\0' x")
    data = bytes(range(256)) * 4096  # more than two pipes hold
    assert send(server, run, data).json() == {"written": len(data), "eof": False}
    assert send(server, run, query="?eof=true").json() == {"written": 0, "eof": True}
    assert answer_of(server, run)["stdout"] == hashlib.sha256(data).hexdigest() + "  -\nx"


def test_a_program_that_reads_nothing_holds_no_request_for_long(server):
    run = begin(server, "read -r line < <(sleep 100)", wall_ms=100000)
    data = b"x" * (1 << 20)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(send(server, run, data, "?eof=true")))
    thread.start()
    # Meanwhile a second writer is refused: their bytes would be mixed.
    assert wait_until(lambda: send(server, run).status == 409, 5)
    thread.join()
    reply = replies[0].json()
    assert 0 < reply["written"] < len(data) and reply["eof"] is False
    assert send(server, run).status == 200  # open as before
    cancel(server, run)


def test_the_end_of_the_run_ends_a_waiting_request(server):
    run = begin(server, "read -r line < <(sleep 100)", wall_ms=100000)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(send(server, run, b"x" * (1 << 20))))
    thread.start()
    assert wait_until(lambda: send(server, run).status == 409, 5)
    cancel(server, run)
    thread.join()
    assert replies[0].status == 409


def test_without_an_end_the_wall_limit_ends_the_run(server):
    run = begin(server, wall_ms=500)
    answer = answer_of(server, run)
    assert answer["status"] == "time_limit" and answer["limits_hit"] == ["wall"]


def test_conflicts(server):
    run = begin(server)
    assert send(server, run, query="?eof=true").status == 200
    answer_of(server, run)
    late = send(server, run, b"x")
    assert late.status == 409 and "over" in late.json()["error"]["message"]
    closed = server.run("bash", "read -r line < <(sleep 100)", limits={"wall_ms": 60000}, **{"async": True}).json()["id"]
    reply = send(server, closed, b"x")
    assert reply.status == 409 and "stdin_open" in reply.json()["error"]["message"]
    cancel(server, closed)
    twice = begin(server, "cat; read -r line < <(sleep 100)")
    assert send(server, twice, query="?eof=true").status == 200
    assert send(server, twice, b"x").status == 409  # closed is closed
    cancel(server, twice)


@pytest.mark.parametrize("query", ["?eof=yes", "?eof=", "?eof=1", "?eof=true%00"])
def test_bad_queries(server, query):
    run = begin(server)
    reply = send(server, run, b"x", query)
    assert reply.status == 400 and reply.json()["error"]["field"] == "eof"
    assert send(server, run, query="?eof=true").status == 200
    assert answer_of(server, run)["stdout"] == "end\n"  # nothing was written


def test_requests_that_make_no_sense(server):
    plain = server.run("bash", ECHO, stdin_open=True)
    assert plain.status == 400 and plain.json()["error"]["field"] == "stdin_open"
    both = server.run("bash", ECHO, stdin_open=True, stdin="x", **{"async": True})
    assert both.status == 400 and both.json()["error"]["field"] == "stdin_open"
    assert server.run("bash", "cat", stdin_open=False, stdin="x").json()["stdout"] == "x"
    assert server.run("bash", ECHO, stdin_open="yes").status == 400
    assert send(server, "run_0").status == 404
    assert send(server, "jdg_0").status == 404


def test_a_body_beyond_the_bound_is_refused(server):
    run = begin(server)
    got = server.raw(b"POST /v1/runs/%s/stdin HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Length: 99999999999\r\n\r\n" % run.encode(), 5)
    assert got.startswith(b"HTTP/1.1 413")
    assert send(server, run, query="?eof=true").status == 200
    answer_of(server, run)


def test_nothing_stays_open(server):
    pid = server.child("hermes-server")
    cancel(server, begin(server))
    before = open_descriptors(pid)
    for _ in range(5):
        cancel(server, begin(server))
    assert wait_until(lambda: open_descriptors(pid) <= before)


def test_runs_of_others_are_not_found():
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys")})
    try:
        run = begin(server, key=ALICE)
        assert send(server, run, b"x\n", "?eof=true", key=BOB).status == 404
        assert send(server, run, b"x\n").status == 401
        assert send(server, run, b"mine\n", "?eof=true", key=ALICE).status == 200
        assert answer_of(server, run, ALICE)["stdout"] == "got mine\nend\n"
    finally:
        server.stop()
        return_dir(path)
