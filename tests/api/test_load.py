# SPDX-License-Identifier: Apache-2.0
"""Crowds, slow and broken clients, starting and stopping: R3, R10 and R11. A few seconds each;
HERMES_FULL=1 runs them at full length."""
import asyncio
import collections
import os
import signal
import socket
import struct
import time

import pytest

from apilib import SLOW, name_of, wait_until
from crowd import Connection, Lost, encode
from leaks import ASAN, Holdings, pss_kb, settle

FULL = bool(os.environ.get("HERMES_FULL"))
IN_VM = bool(os.environ.get("HERMES_IN_VM"))
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups, mounts")


class Crowd:
    """Clients that ask without pause, and what became of their requests."""

    def __init__(self, server, seconds):
        self.server, self.port = server, server.port
        self.until = time.monotonic() + seconds
        self.done = collections.Counter()
        self.refused = 0
        self.lost = []
        self.queue = self.peak_kb = 0

    async def client(self, i, key):
        conn = Connection(self.port)
        n = 0
        while time.monotonic() < self.until:
            n += 1
            text = "%d-%d" % (i, n)
            try:
                answer = await conn("POST", "/v1/runs", {"language": "bash", "code": "echo " + text},
                                    key=key)
            except Lost as e:
                self.lost.append(str(e))
                continue
            if answer.status == 200 and answer.json()["stdout"] == text + "\n":
                self.done[key] += 1
            elif answer.status == 429 and int(answer.headers["retry-after"]) >= 1:
                self.refused += 1
                await asyncio.sleep(0.5)
            else:
                self.lost.append(repr(answer))
        conn.close()

    async def sample(self):
        conn = Connection(self.port)
        pid = self.server.child("hermes-server")
        while time.monotonic() < self.until:
            text = (await conn("GET", "/metrics")).body.decode()
            waiting = [line for line in text.splitlines() if line.startswith("hermes_queue_waiting")]
            self.queue = max(self.queue, int(waiting[0].split()[1]))
            self.peak_kb = max(self.peak_kb, pss_kb(pid))
            await asyncio.sleep(0.3)
        conn.close()

    async def all(self, keys):
        await asyncio.gather(self.sample(), *[self.client(i, key) for i, key in enumerate(keys)])


@pytest.mark.slow
def test_r11_a_crowd_loses_nothing_and_shares_fairly(contained):
    """Five hundred clients, eight of one key for each of the other's, and a queue that is shorter
    than the crowd."""
    count, most = (200, 80) if IN_VM else (500, 200)
    server = contained(env={"CODE_RUNNER_API_KEYS": "key-one,key-two", "HERMES_QUEUE": str(most),
                            "HERMES_QUEUE_WAIT_S": "900"})
    assert server.run("bash", "echo", key="key-one").status == 200
    before = Holdings(server, contained.groups)
    pids = server.programs()
    crowd = Crowd(server, 60 if FULL else 6)
    asyncio.run(crowd.all(["key-two" if i % 9 == 0 else "key-one" for i in range(count)]))
    assert not crowd.lost, crowd.lost[:5]
    assert crowd.queue <= most and crowd.refused > 0
    a, b = crowd.done["key-one"], crowd.done["key-two"]
    fairness = (a + b) ** 2 / (2 * (a * a + b * b))
    growth_kb = crowd.peak_kb - before.pss_kb["hermes-server"]
    print("%d and %d runs, %d refused, fairness %.3f, at most %d waiting, +%d kB" % (
        a, b, crowd.refused, fairness, crowd.queue, growth_kb))
    assert fairness >= 0.8, crowd.done
    assert growth_kb < count * 256 or ASAN
    left, _ = settle(server, contained.groups, before, 5)
    assert not left, left
    assert server.programs() == pids


HEAD = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SLEEP = {"language": "bash", "code": "sleep 60", "limits": {"wall_ms": 60000}}
LOUD = {"language": "bash", "code": "head -c 3000000 /dev/zero | tr '\\0' x",
        "limits": {"output_kb": 8192}}


def silent(sock):
    pass


def slow_headers(sock):
    sock.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")


def slow_body(sock):
    sock.sendall(HEAD + b"Content-Length: 60000\r\n\r\n{\"language\": \"")


def half_closed(sock):
    sock.sendall(encode("POST", "/v1/runs", SLEEP))
    sock.shutdown(socket.SHUT_WR)


def reset_in_body(sock):
    sock.sendall(HEAD + b"Content-Length: 9000000\r\n\r\n" + b" " * 100000)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def deaf_to_a_stream(sock):
    sock.sendall(encode("POST", "/v1/runs", LOUD, [("Accept", "text/event-stream")]))


def deaf_to_a_reply(sock):
    sock.sendall(encode("POST", "/v1/runs", LOUD))


BAD_CLIENTS = [silent, slow_headers, slow_body, half_closed, reset_in_body, deaf_to_a_stream,
               deaf_to_a_reply]


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD_CLIENTS, ids=[k.__name__ for k in BAD_CLIENTS])
def test_bad_clients_stop_nobody(contained, kind):
    """Many of a kind hang on the server while another client goes about its work; when they leave,
    all they held is free again."""
    server = contained(env={"HERMES_QUEUE_WAIT_S": "600"})
    assert server.works()
    before = Holdings(server, contained.groups)
    pids = server.programs()
    count = 150 if kind not in (deaf_to_a_stream, deaf_to_a_reply) else 100 if FULL else 16
    herd = []
    for _ in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(30 * SLOW)
        sock.connect(("127.0.0.1", server.port))
        kind(sock)
        herd.append(sock)
    for i in range(20):
        reply = server.run("bash", "echo %d" % i)
        assert reply.status == 200 and reply.json()["stdout"] == "%d\n" % i
        for sock in herd if kind in (slow_headers, slow_body) else []:
            try:
                sock.send(b"x")
            except OSError:
                pass
    if kind is half_closed:  # a client that has closed its side has left
        assert wait_until(lambda: server.metric("hermes_boxes_running") == 0)
    # The history may keep 64 MiB; beside it a deaf client costs its reply.
    grown_kb = pss_kb(pids["hermes-server"]) - before.pss_kb["hermes-server"]
    assert grown_kb < (128 << 10) + count * 4096 or ASAN, grown_kb
    for sock in herd:
        sock.close()
    left, now = settle(server, contained.groups, before, 10)
    assert not left, left
    assert server.programs() == pids
    assert server.metric("hermes_held_bytes") < 65536
    assert server.works()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.slow
def test_r10_starting_and_stopping_again_and_again(contained):
    """On one port, with a client that is still connected: it can be had again at once."""
    port = free_port()
    server = contained(args=["--listen", "127.0.0.1:%d" % port], tcp=False)
    groups = contained.groups
    state = None
    starts = []
    for cycle in range(1000 if FULL else 20):
        client = socket.create_connection(("127.0.0.1", port), timeout=10 * SLOW)
        client.sendall(encode("GET", "/health"))
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        if cycle % 5 == 0:
            assert server.works()
        assert server.stop() == 0
        client.close()
        assert not server.unix.exists()
        # A process whose parent was the last to know of it dies a moment after the parent.
        assert wait_until(lambda: not groups.pids() - contained.known), [name_of(pid) for pid in groups.pids()]
        found = sorted(p.name for p in (server.state / "server").iterdir())
        state = state or found
        assert found == state
        began = time.monotonic()
        server.start()
        starts.append(time.monotonic() - began)
    starts.sort()
    print("%d starts, p50 %.0f ms, longest %.0f ms" % (
        len(starts), starts[len(starts) // 2] * 1000, starts[-1] * 1000))


def test_r3_sigterm_under_load(contained):
    """Every request that was sent gets its answer, new clients none, and nothing is left."""
    server = contained(env={"HERMES_GRACE_S": str(2 * SLOW), "HERMES_QUEUE_WAIT_S": "600"})
    port = server.port
    outcomes = collections.Counter()
    stopping = False

    async def client(i):
        conn = Connection(port, timeout=120 * SLOW)
        while not stopping:
            seconds = 300 if i < 2 else 0.05
            try:
                answer = await conn("POST", "/v1/runs", {
                    "language": "bash", "code": "sleep %s; echo %d" % (seconds, i),
                    "limits": {"wall_ms": 400000}})
            except Lost as e:
                outcomes["lost: %s" % e] += 1
                return
            found = answer.json()
            if answer.status == 200 and found["status"] == "ok":
                assert found["stdout"] == "%d\n" % i
            outcomes[answer.status, found.get("status") or found["error"]["code"]] += 1
        conn.close()

    async def everybody():
        nonlocal stopping
        tasks = [asyncio.ensure_future(client(i)) for i in range(40)]
        await asyncio.sleep(1.5)
        stopping = True
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)
    asyncio.run(everybody())
    began = time.monotonic()
    assert server.stop() == 0
    print(dict(outcomes))
    assert outcomes[200, "ok"] > 5 and outcomes[200, "cancelled"] >= 2, outcomes
    assert set(outcomes) <= {(200, "ok"), (200, "cancelled"), (503, "unavailable")}, outcomes
    assert time.monotonic() - began < 20 * SLOW
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
