# SPDX-License-Identifier: Apache-2.0
"""Sessions against the bare interpreter in the same rounds: creation, `1+1`, copies, and what idle ones hold."""
import json
import statistics
import time

from over_http import Serving
from warm import bare_ms

IDLE_SESSIONS = 200
FORKS = 20
FORK_HEAP_MB = 100


def post(server, conn, path, body, status):
    start = time.perf_counter()
    reply = server("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}, conn=conn)
    taken = (time.perf_counter() - start) * 1000
    if reply.status != status:
        raise RuntimeError(repr(reply))
    return taken, reply.json()


def create(server, conn, **fields):
    return post(server, conn, "/v1/sessions", dict(language="python", **fields), 201)


def execute(server, conn, session, code):
    taken, answer = post(server, conn, "/v1/sessions/%s/exec" % session, {"code": code}, 200)
    if answer["status"] != "ok":
        raise RuntimeError(repr(answer))
    return taken


def wait_until_warm(server, conn):
    deadline = time.monotonic() + 30
    while True:
        made = create(server, conn)[1]
        server("DELETE", "/v1/sessions/" + made["id"], conn=conn)
        if made["isolation"]["start"] == "warm":
            break
        if time.monotonic() > deadline:
            raise RuntimeError("no zygote came up")
        time.sleep(0.1)
    time.sleep(1)


def create_and_end(server, conn):
    taken, made = create(server, conn)
    server("DELETE", "/v1/sessions/" + made["id"], conn=conn)
    return taken


def pss_kb(pids):
    total = 0
    for pid in pids:
        try:
            for line in open("/proc/%d/smaps_rollup" % pid):
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total


def idle_sessions(server, conn):
    """Memory and time of many sessions that do nothing."""
    from apilib import boxes_below
    spawner, own = server.child("hermes-spawn"), server.child("hermes-server")
    before = pss_kb([own])
    begin = time.perf_counter()
    ids = [create(server, conn, limits={"memory_mb": 64})[1]["id"] for _ in range(IDLE_SESSIONS)]
    made_s = time.perf_counter() - begin
    boxes = pss_kb(boxes_below(spawner))
    each = statistics.median(execute(server, conn, one, "1+1") for one in ids)
    after = pss_kb(boxes_below(spawner))
    print("  %d idle sessions: %.1f ms each to make in a row, PSS %.2f MiB each (%.2f after an exec), server %.0f KiB each; "
          "first exec %.2f ms" % (IDLE_SESSIONS, made_s * 1000 / IDLE_SESSIONS, boxes / 1024 / IDLE_SESSIONS,
                                  after / 1024 / IDLE_SESSIONS, (pss_kb([own]) - before) / IDLE_SESSIONS, each))
    for one in ids:
        server("DELETE", "/v1/sessions/" + one, conn=conn)


def fork_and_end(server, conn, session):
    taken, answer = post(server, conn, "/v1/sessions/%s/fork" % session, {}, 201)
    server("DELETE", "/v1/sessions/" + answer["sessions"][0]["id"], conn=conn)
    return taken


def forks_share_memory(server, conn, session):
    """PSS of a session with some data and its copies: right after, and after each has run something."""
    from apilib import boxes_below
    spawner = server.child("hermes-spawn")
    begin = time.perf_counter()
    ids = [s["id"] for s in post(server, conn, "/v1/sessions/%s/fork" % session, {"count": FORKS}, 201)[1]["sessions"]]
    made_ms = (time.perf_counter() - begin) * 1000
    before = pss_kb(boxes_below(spawner))
    for one in ids:
        execute(server, conn, one, "sum(data[::4096])")
    after = pss_kb(boxes_below(spawner))
    print("  %d copies of a session with %d MiB: %.1f ms each in a row; PSS of all %.0f MiB, %.0f after each has read the data"
          % (FORKS, FORK_HEAP_MB, made_ms / FORKS, before / 1024, after / 1024))
    for one in ids:
        server("DELETE", "/v1/sessions/" + one, conn=conn)


def copies(bench, server, conn):
    from run import interleave, row
    session = create(server, conn, limits={"memory_mb": 160})[1]["id"]
    execute(server, conn, session, "data = b'x' * (%d << 20)" % FORK_HEAP_MB)
    fork_and_end(server, conn, session)
    times, bare = interleave(bench.rounds * 3, lambda: fork_and_end(server, conn, session), bare_ms)
    yield row("session, copy of one with %d MiB" % FORK_HEAP_MB, times, bare, 1.0)
    forks_share_memory(server, conn, session)
    server("DELETE", "/v1/sessions/" + session, conn=conn)


def sessions(bench):
    """Creation, `1+1` and copies interleaved with bare `python3 -c`; memory of 20 copies and of 200 idle sessions."""
    from run import interleave, row
    with Serving(HERMES_SESSION_WARM="1", HERMES_SESSION_PARKED="2", HERMES_MAX_SESSIONS_PER_KEY="256") as server:
        conn = server.connect(tcp=True)
        wait_until_warm(server, conn)
        made, bare = interleave(bench.rounds * 3, lambda: create_and_end(server, conn), bare_ms)
        yield row("session, created", made, bare, 0.3)
        session = create(server, conn)[1]["id"]
        execute(server, conn, session, "1+1")
        times, bare = interleave(bench.rounds * 5, lambda: execute(server, conn, session, "1+1"), bare_ms)
        yield row("session, exec of 1+1", times, bare, 0.1)
        server("DELETE", "/v1/sessions/" + session, conn=conn)
        yield from copies(bench, server, conn)
        idle_sessions(server, conn)
        conn.close()
