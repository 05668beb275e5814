# SPDX-License-Identifier: Apache-2.0
"""The server's own memory: whatever strangers make it hold is counted first and bounded, with room left for others; what
does not fit fails requests, not the server. Each test first makes sure that the pressure is real."""
import base64
import json
import os
import pathlib
import re
import signal
import socket
import threading
import time

import pytest

from apilib import SLOW, Server, borrow_dir, return_dir, wait_until
from leaks import ASAN

KEYS = "[alice]\nkey = alices-secret\n[bob]\nkey = bobs-secret\n"
ALICE, BOB = "alices-secret", "bobs-secret"

# 128 MiB may be held, half of it by one key; results and the program are beside it.
SMALL = {"HERMES_MEMORY_MB": "1024", "HERMES_HISTORY_MAX": "64m", "HERMES_SESSION_PARKED": "0"}
BOUND_MB = 800 if ASAN else 400  # sanitizers keep what was freed
OUTPUT_KB = 4096  # of each stream: 8 MiB, 48 MiB as JSON; a server that counts nothing takes four times that for each
FLOOD = ("import os\nfor fd in (1, 2):\n    left = %d\n"
         "    while left: left -= os.write(fd, b'\\x01' * min(left, 1 << 20))\n" % (OUTPUT_KB << 10))
MANY = 6


@pytest.fixture
def keyed():
    made = []

    def make(**env):
        path = borrow_dir()
        (path / "keys").write_text(KEYS)
        (path / "keys").chmod(0o600)
        made.append((path, None))
        made[-1] = (path, Server(path, env=dict(SMALL, HERMES_KEYS_FILE=str(path / "keys"), **env)))
        return made[-1][1]
    yield make
    for path, server in made:
        if server and server.process.poll() is None:
            server.stop()
        return_dir(path)


def resident_mb(server):
    text = pathlib.Path("/proc/%d/status" % server.child("hermes-server")).read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) >> 10


class Peak:
    """The most memory that the server has at one time, while this is open."""

    def __init__(self, server):
        self.server, self.mb, self.is_over = server, 0, False

    def look(self):
        while not self.is_over:
            self.mb = max(self.mb, resident_mb(self.server))
            time.sleep(0.02)

    def __enter__(self):
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()


class Unread:
    """A request whose reply is not taken, but for the first line."""

    def __init__(self, server, path, body=None, key=ALICE, accept="application/json"):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60 * SLOW)
        self.sock.connect(str(server.unix))
        text = json.dumps(body).encode() if body else b""
        self.sock.sendall(b"%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n"
                          b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                          % (b"POST" if body else b"GET", path.encode(), key.encode(), accept.encode(), len(text)) + text)

    def status(self):
        got = b""
        while len(got) < 12:
            piece = self.sock.recv(12 - len(got))
            if not piece:
                return 0
            got += piece
        return int(got.split()[1])

    def close(self):
        self.sock.close()


def flood(**fields):
    return dict(language="python", code=FLOOD, limits={"output_kb": OUTPUT_KB, "wall_ms": 60000}, **fields)


def runs_fine(server, key=BOB):
    reply = server.run("python", "print('fine')", key=key)
    return reply.status == 200 and reply.json()["stdout"] == "fine\n"


def test_replies_that_nobody_reads(keyed):
    """One key's clients take no byte of the largest replies: those that fit are held, the others are refused, and another
    key's runs go on. Afterwards the memory is free again."""
    server = keyed()
    assert runs_fine(server)
    before = resident_mb(server)
    with Peak(server) as peak:
        clients = [Unread(server, "/v1/runs", flood()) for _ in range(MANY)]
        statuses = [client.status() for client in clients]
        assert set(statuses) <= {200, 503}, statuses
        assert 200 in statuses  # the pressure is real: one holds fifty megabytes
        held = server.metric("hermes_held_bytes") if peak.mb < BOUND_MB else 0
        assert runs_fine(server)
        assert server.run("python", "print('x' * 500000)", key=BOB).status == 200
    assert peak.mb < BOUND_MB, (peak.mb, statuses)
    assert 45 << 20 < held < 128 << 20
    assert 503 in statuses
    for client in clients:
        client.close()
    assert wait_until(lambda: server.metric("hermes_held_bytes") < 1 << 20, 20)
    assert ASAN or wait_until(lambda: resident_mb(server) < before + 70, 20), (before, resident_mb(server))
    reply = server("POST", "/v1/runs", flood(), key=ALICE)  # and the key that had too much is served again
    assert reply.status == 200 and reply.body.count(b"\\u0001") == 2 * OUTPUT_KB << 10


def test_refusals_say_when_to_come_again(keyed):
    server = keyed()
    client = Unread(server, "/v1/runs", flood())
    assert client.status() == 200
    reply = server("POST", "/v1/runs", flood(), key=ALICE)
    assert reply.status == 503 and reply.json()["error"]["code"] == "unavailable", reply
    assert int(reply.headers["Retry-After"]) >= 1
    client.close()


def over(server, runs, key=ALICE):
    """The answers of asynchronous runs, once all are over; large ones are not read."""
    def is_over(run):
        conn = server.connect()
        conn.request("GET", "/v1/runs/" + run, headers={"Authorization": "Bearer " + key})
        head = conn.getresponse()
        text = head.read(200)
        conn.close()
        return head.status != 200 or not re.search(rb'"status": ?"(queued|running)"', text)
    assert wait_until(lambda: all(is_over(run) for run in runs), 60)


@pytest.mark.parametrize("history", ["memory", "sqlite"])
def test_results_that_nobody_fetches(keyed, history):
    server = keyed(HERMES_HISTORY=history)
    small = server("POST", "/v1/runs", {"language": "python", "code": "print('mine')", "async": True}, key=BOB).json()["id"]
    with Peak(server) as peak:
        runs = []
        for _ in range(MANY):
            reply = server("POST", "/v1/runs", flood(**{"async": True}), key=ALICE)
            assert reply.status in (202, 503), reply
            runs += [reply.json()["id"]] if reply.status == 202 else []
        over(server, runs)
        assert runs_fine(server)
    assert runs
    made = server("GET", "/metrics").body.decode()
    assert re.search(r'hermes_runs_total\{language="python",status="ok"\} [2-9]', made), made  # some did print all
    assert peak.mb < BOUND_MB, peak.mb
    assert server("GET", "/v1/runs/" + small, key=BOB).json()["stdout"] == "mine\n"


def test_one_result_that_many_ask_for(keyed):
    """All of them get it, and share one copy of its bytes."""
    server = keyed(HERMES_HISTORY="memory")
    loud = {"language": "python", "code": "print('x' * (16 << 20))", "limits": {"output_kb": 20480}, "async": True}
    run = server("POST", "/v1/runs", loud, key=ALICE).json()["id"]
    over(server, [run])
    before = resident_mb(server)
    with Peak(server) as peak:
        clients = [Unread(server, "/v1/runs/" + run) for _ in range(16)]
        assert [client.status() for client in clients] == [200] * 16
        held = server.metric("hermes_held_bytes")
    assert 16 << 20 < held < 18 << 20
    assert peak.mb < before + 48, (before, peak.mb)
    for client in clients:
        client.close()
    assert server("GET", "/v1/runs/" + run, key=BOB).status == 404


def test_streams_that_nobody_reads(keyed):
    server = keyed()
    with Peak(server) as peak:
        clients = [Unread(server, "/v1/runs", flood(), accept="text/event-stream") for _ in range(MANY)]
        statuses = [client.status() for client in clients]
        assert 200 in statuses and set(statuses) <= {200, 503}
        assert wait_until(lambda: server.metric("hermes_background_runs") == 0, 60)
        assert runs_fine(server)
    assert peak.mb < BOUND_MB, peak.mb
    for client in clients:
        client.close()
    assert wait_until(lambda: server.metric("hermes_held_bytes") < 1 << 20, 20)


def test_a_stream_has_the_whole_of_a_large_answer(keyed):
    """The control to the above: a client that reads gets all of it, in one event."""
    server = keyed()
    conn = server.connect()
    body = dict(flood(), code=FLOOD.replace("\\x01", "x"))
    conn.request("POST", "/v1/runs", json.dumps(body), {"Accept": "text/event-stream", "Content-Type": "application/json",
                                                        "Authorization": "Bearer " + ALICE})
    text = conn.getresponse().read()
    conn.close()
    end = json.loads(re.search(rb"event: end\ndata: (.*)\n\n", text)[1])
    assert end["status"] == "ok" and end["stdout"] == end["stderr"] == "x" * (OUTPUT_KB << 10)


def make_session(server, key, **limits):
    reply = server("POST", "/v1/sessions", {"language": "python", "limits": dict(limits, memory_mb=96)}, key=key)
    assert reply.status == 201, reply
    return "/v1/sessions/" + reply.json()["id"]


def test_execs_that_nobody_reads(keyed):
    server = keyed()
    sessions = [make_session(server, ALICE, output_kb=OUTPUT_KB) for _ in range(4)]
    other = make_session(server, BOB)
    code = "import os\n" + FLOOD.split("\n", 1)[1]
    with Peak(server) as peak:
        clients = [Unread(server, s + "/exec", {"code": code, "timeout_ms": 60000}) for s in sessions]
        statuses = [client.status() for client in clients]
        assert set(statuses) <= {200, 503} and 200 in statuses, statuses
        reply = server("POST", other + "/exec", {"code": "print('fine')"}, key=BOB)
        assert reply.status == 200 and reply.json()["stdout"] == "fine\n", reply
        assert runs_fine(server)
    assert peak.mb < BOUND_MB, peak.mb
    for client in clients:
        client.close()
    for s in sessions:  # what an exec was refused did no harm to its session
        assert wait_until(lambda: server("GET", s, key=ALICE).json()["state"] == "idle", 20)
        assert server("POST", s + "/exec", {"code": "print(6 * 7)"}, key=ALICE).json()["stdout"] == "42\n"
    assert wait_until(lambda: server.metric("hermes_held_bytes") < 1 << 20, 20)


def test_judgements_that_nobody_reads(keyed):
    """Many tests, each with all the output that is kept of one."""
    server = keyed()
    code = "import sys\nsys.stdout.write('\\x01' * 8000)\nsys.stderr.write('\\x01' * 8000)"
    body = {"language": "python", "code": code, "tests": [{"stdin": "", "expected": "no"}] * 30}
    with Peak(server) as peak:
        clients = [Unread(server, "/v1/judge", body) for _ in range(3)]
        statuses = [client.status() for client in clients]
        assert set(statuses) <= {200, 503} and 200 in statuses, statuses
        assert server.metric("hermes_held_bytes") > 1 << 20  # each has more than one
        assert runs_fine(server)
    assert peak.mb < BOUND_MB
    for client in clients:
        client.close()
    assert wait_until(lambda: server.metric("hermes_held_bytes") < 1 << 20, 20)


def test_terminals_that_nobody_reads(keyed):
    server = keyed()
    session = make_session(server, ALICE)
    before = resident_mb(server)
    terminals = []
    for _ in range(4):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30 * SLOW)
        sock.connect(str(server.unix))
        sock.sendall(b"GET %s/pty HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\n"
                     b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n"
                     % (session.encode(), ALICE.encode(), base64.b64encode(os.urandom(16))))
        assert sock.recv(12) == b"HTTP/1.1 101"
        typed = b"yes\n"
        sock.sendall(bytes([0x82, 0x80 | len(typed)]) + b"\0\0\0\0" + typed)
        terminals.append(sock)
    with Peak(server) as peak:
        for sock in terminals:  # the pressure is real: each has more to say than it was let
            got = b""
            while got.count(b"y\r\n") < 20000:
                got += sock.recv(65536)
        time.sleep(1)
        assert runs_fine(server)
    assert peak.mb < before + 64, (before, peak.mb)
    for sock in terminals:
        sock.close()


@pytest.mark.parametrize("history", ["memory", "sqlite"])
def test_f10_results_of_others_outlive_a_flood(keyed, history):
    """One key fills the history many times over; another's result is there for its time."""
    server = keyed(HERMES_HISTORY=history, HERMES_HISTORY_MAX="8m", HERMES_RESULT_TTL_S="900")
    reply = server("POST", "/v1/runs", {"language": "python", "code": "print('mine')", "async": True}, key=BOB)
    mine = reply.json()["id"]
    over(server, [mine], BOB)
    loud = {"language": "python", "code": "print('x' * 3500000)", "limits": {"output_kb": 8192}, "async": True}
    first = None
    for _ in range(8):
        reply = server("POST", "/v1/runs", loud, key=ALICE)
        assert reply.status == 202, reply
        over(server, [reply.json()["id"]])
        first = first or reply.json()["id"]
    # The pressure is real: the flood has washed away its own beginning. The store looks every ten seconds.
    assert wait_until(lambda: server("GET", "/v1/runs/" + first, key=ALICE).status == 404, 15)
    reply = server("GET", "/v1/runs/" + mine, key=BOB)
    assert reply.status == 200 and reply.json()["stdout"] == "mine\n", reply


def test_files_for_long_outputs_are_bounded(keyed):
    """What does not fit into an answer goes to the disk first: four times history_max for all, half of it for one key."""
    server = keyed(HERMES_HISTORY_MAX="4m")
    one, other = make_session(server, ALICE, output_kb=4, disk_mb=48), make_session(server, BOB, output_kb=4, disk_mb=48)
    prints = {"code": "print('x' * %d)", "timeout_ms": 60000}

    def file_of(session, key, size):
        reply = server("POST", session + "/exec", dict(prints, code=prints["code"] % size), key=key)
        assert reply.status == 200 and reply.json()["stdout_truncated"], reply
        return reply.json()["stdout_file"]
    assert file_of(one, ALICE, 3 << 20)  # the control: it works at all
    assert not file_of(one, ALICE, 12 << 20)
    assert file_of(other, BOB, 3 << 20) and file_of(one, ALICE, 3 << 20)
    # Nameless from the beginning: nothing is left of them, however the server ends.
    assert not [p for p in server.state.glob("**/spill-*")]


def test_a_body_of_many_values_is_counted(keyed):
    """A hundred thousand empty lists take a hundred times the memory of their text: counted, and refused where it does
    not fit, before they are read."""
    server = keyed(HERMES_MAX_BODY="1m", HERMES_MEMORY_MB="128")  # 16 MiB may be held, 8 by one key
    few = json.dumps({"language": "python", "code": "", "nonsense": [[]] * 1000})
    bomb = json.dumps({"language": "python", "code": "", "nonsense": [[]] * 90000})
    plain = json.dumps({"language": "python", "code": "print(1)\n#" + "x" * len(bomb)})
    kind = {"Content-Type": "application/json"}
    assert server("POST", "/v1/runs", few, kind, key=ALICE).status == 400
    assert server("POST", "/v1/runs", plain, kind, key=ALICE).status == 200  # the control: not its length
    reply = server("POST", "/v1/runs", bomb, kind, key=ALICE)
    assert reply.status == 503 and reply.json()["error"]["code"] == "unavailable", reply
    assert server.metric("hermes_held_bytes") < 65536


def test_bodies_that_trickle_in_leave_room_for_others(keyed):
    """Chunked bodies that never end: one key's hold its own half, and another key's large body is taken."""
    server = keyed(HERMES_MAX_BODY="1m", HERMES_MEMORY_MB="128")
    clients = []
    for _ in range(40):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30 * SLOW)
        sock.connect(str(server.unix))
        sock.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                     b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" % ALICE.encode())
        clients.append(sock)
    for sock in clients:
        try:
            for _ in range(15):
                sock.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        except OSError:  # refused, and told so
            pass
    assert wait_until(lambda: server.metric("hermes_held_bytes") > 6 << 20)
    assert server.metric("hermes_held_bytes") < 16 << 20
    body = json.dumps({"language": "python", "code": "print('fine')\n#" + "x" * 500000})
    reply = server("POST", "/v1/runs", body, {"Content-Type": "application/json"}, key=BOB)
    assert reply.status == 200 and reply.json()["stdout"] == "fine\n", reply
    for sock in clients:
        sock.close()
    assert wait_until(lambda: server.metric("hermes_held_bytes") < 65536)


def test_compiled_programs_are_counted(keyed):
    """What a compiler makes passes through the server: a program of 64 MiB does not fit where 32 may be held."""
    server = keyed(HERMES_MAX_BODY="1m", HERMES_MEMORY_MB="1024", HERMES_HISTORY_MAX="8m")  # 128 MiB, 64 for one key
    small = 'int main(void) { return 0; }\n'
    large = 'char ballast[64 << 20] = {1};\nint main(void) { return ballast[5]; }\n'
    limits = {"memory_mb": 512, "disk_mb": 256, "file_size_mb": 256}
    assert server.run("c", small, key=ALICE, compile_limits=limits).json()["status"] == "ok"
    with Peak(server) as peak:
        reply = server.run("c", large, key=ALICE, limits=limits, compile_limits=limits)
    assert reply.status == 503 and reply.json()["error"]["code"] == "unavailable", reply
    assert peak.mb < 250, peak.mb
    assert runs_fine(server) and runs_fine(server, ALICE)


def memory_group(server):
    """The directory of the control group that the server is in, and the file with its limit."""
    text = pathlib.Path("/proc/%d/cgroup" % server.child("hermes-server")).read_text()
    v1 = re.search(r"^\d+:memory:(.*)$", text, re.M)
    if v1:
        return pathlib.Path("/sys/fs/cgroup/memory" + v1[1]), "memory.limit_in_bytes"
    return pathlib.Path("/sys/fs/cgroup" + re.search(r"^0::(.*)$", text, re.M)[1]), "memory.max"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups")
def test_the_server_has_a_group_of_its_own(keyed):
    server = keyed(HERMES_SERVER_MEMORY_MB="3000")
    group, file = memory_group(server)
    assert re.fullmatch("hermes-[0-9a-f]{32}", group.name)
    assert int((group / file).read_text()) == 3000 << 20
    procs = set(map(int, (group / "cgroup.procs").read_text().split()))
    assert procs == {server.child("hermes-server")}  # neither boxes nor the spawner
    os.kill(server.child("hermes-server"), signal.SIGKILL)  # the next one is in it again
    assert wait_until(lambda: server.child("hermes-server") and server.child("hermes-server") not in procs)
    assert wait_until(lambda: runs_fine(server))
    assert memory_group(server)[0] == group
    server.stop()
    assert not group.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups")
def test_what_a_killed_monitor_leaves_goes_with_the_next_start(keyed):
    server = keyed()
    group, _ = memory_group(server)
    pids = list(server.programs().values())
    server.process.kill()
    server.process.wait()
    assert wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in pids), 20)
    assert group.exists()  # the control: it was left
    server.log.close()
    server.start()
    assert not group.exists() and memory_group(server)[0].exists()


def test_too_small_a_limit_is_refused_in_words(keyed):
    with pytest.raises(AssertionError) as failure:
        keyed(HERMES_SERVER_MEMORY_MB="64")
    assert "HERMES_SERVER_MEMORY_MB: it must be 0 or at least" in str(failure.value)
