# SPDX-License-Identifier: Apache-2.0
"""A machine that runs out of something: room, descriptors, processes, memory (R6, R7). The server
refuses what it cannot do, in words, and is well again when there is enough."""
import asyncio
import collections
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

from apilib import ROOT, SLOW, children, wait_until, wait_until_still
from crowd import Connection, Lost, encode
from leaks import ASAN, Holdings, pss_kb, settle

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups, mounts")


def small_state(path):
    """A state directory of 64 MiB, and two languages only: on another file system than theirs the
    tools are copied."""
    (path / "state").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=4000,mode=0700", "tmpfs",
                    path / "state"], check=True)
    for name in ("bash", "c"):
        shutil.copytree(ROOT / "runtimes" / name, path / "runtimes" / name)
    shutil.copy(ROOT / "runtimes" / "base.json", path / "runtimes")
    return {"HERMES_HISTORY": "sqlite", "HERMES_RUNTIMES": str(path / "runtimes")}


def fill_blocks(state):
    with open(state / "ballast", "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 65536)
        except OSError:
            pass
        try:
            while True:
                f.write(b"x" * 512)
        except OSError:
            pass


def fill_inodes(state):
    (state / "ballast").mkdir()
    try:
        for i in range(1000000):
            (state / "ballast" / str(i)).touch()
    except OSError:
        pass


def make_room(state):
    path = state / "ballast"
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def ask_later(server, text):
    return server("POST", "/v1/runs", {"language": "bash", "code": "echo " + text, "async": True})


def ends_well(server, run, text):
    def is_over():
        found = server("GET", "/v1/runs/" + run).json()
        return found["status"] not in ("queued", "running")
    assert wait_until(is_over, 20)
    found = server("GET", "/v1/runs/" + run).json()
    assert found["status"] == "ok" and found["stdout"] == text + "\n", found


@pytest.mark.parametrize("fill", [fill_blocks, fill_inodes])
def test_r6_a_full_state_directory(contained, fill):
    """Runs that need no room go on, what cannot be promised is refused in plain words, and all is
    well again once there is room, results that could not be written meanwhile included."""
    server = contained(prepare=small_state)
    assert server.works()
    pids = server.programs()
    fill(server.state)
    unwritten = []
    for i in range(5):
        reply = server.run("bash", "echo %d" % i)
        assert reply.status == 200 and reply.json()["stdout"] == "%d\n" % i, reply
        unwritten.append(reply.json())
    fresh = "#include <stdio.h>\nint main(void) { puts(\"%s\"); }\n" % time.time()
    reply = server.run("c", fresh)
    assert reply.status == 200 and reply.json()["status"] == "ok", reply
    refused = 0
    for i in range(400 if fill is fill_blocks else 20):
        reply = ask_later(server, "later")
        assert reply.status in (202, 507, 503), reply
        if reply.status == 202:
            ends_well(server, reply.json()["id"], "later")
        else:
            assert reply.json()["error"]["code"] in ("no_space", "unavailable")
            assert "history" in reply.json()["error"]["message"]
            refused += 1
            break
    assert refused or fill is fill_inodes  # no file is made for a run
    make_room(server.state)
    assert wait_until(lambda: ask_later(server, "again").status == 202)
    reply = ask_later(server, "room")
    ends_well(server, reply.json()["id"], "room")
    server.run("c", fresh)
    assert server.run("c", fresh).json()["compile"]["cached"] is True
    assert server.programs() == pids
    assert server.stop() == 0
    server.start()
    for run in unwritten:
        assert server("GET", "/v1/runs/" + run["id"]).json() == run
    server.stop()


def test_r6_a_start_without_room_says_so(contained):
    def full_state(path):
        env = small_state(path)
        fill_blocks(path / "state")
        return env
    server = contained(prepare=full_state, wait=False)
    assert server.process.wait(60 * SLOW) == 125
    assert "No space" in server.logs() or "full" in server.logs(), server.logs()


def hold_connections(server, count, speak):
    herd = []
    for _ in range(count):
        try:
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=5 * SLOW)
        except OSError:
            break
        if speak:
            sock.sendall(encode("GET", "/health"))
        herd.append(sock)
    return herd


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def test_r7_at_the_limit_of_descriptors(contained):
    server = contained(pre=few_descriptors, env={"HERMES_QUEUE": "20"})
    assert server.events("too few descriptors for max_connections; raise the limit (ulimit -n)")
    assert server.works()
    pids = server.programs()
    before = Holdings(server, contained.groups)

    # Those who only wait for their next request make room for others.
    herd = hold_connections(server, 300, True)
    for _ in range(10):
        assert server("GET", "/health", tcp=True).status == 200
        assert server.works()
    for sock in herd:
        sock.close()

    # Those who do not speak have two seconds; until then new clients are told to come again.
    herd = hold_connections(server, 110, False)
    replies = []
    for _ in range(10):
        replies.append(server("GET", "/health", tcp=True))
        replies.append(server("POST", "/v1/runs", {"language": "bash", "code": "echo x"}, tcp=True))
    assert {r.status for r in replies} <= {200, 503}
    for reply in replies:
        if reply.status == 503:
            assert reply.json()["error"]["code"] == "unavailable"
            assert int(reply.headers["Retry-After"]) >= 1
    time.sleep(2.5)
    for i in range(10):
        assert server("GET", "/health", tcp=True).status == 200
        reply = server("POST", "/v1/runs", {"language": "bash", "code": "echo x"}, tcp=True)
        assert reply.status == 200
    for sock in herd:
        sock.close()
    assert wait_until(lambda: server.works())
    left, _ = settle(server, contained.groups, before, 5)
    assert not left, left
    assert server.programs() == pids


SLEEPERS = {"bash": "sleep 0.3; echo %d", "python": "import time; time.sleep(0.3); print(%d)"}


async def crowd_of_runs(server, count, language="bash", insists=False):
    """So many runs at once; how many got which status. No parked box has these limits. Clients that insist ask again."""
    statuses = collections.Counter()
    limits = {"memory_mb": 16} if language == "bash" else {"processes": 9}

    async def client(i):
        conn = Connection(server.port)
        try:
            answer = await conn("POST", "/v1/runs", {"language": language, "code": SLEEPERS[language] % i,
                                                     "limits": limits})
        except Lost as e:
            statuses[str(e)] += 1
            return
        statuses[answer.status] += 1
        if answer.status == 200:
            assert answer.json()["status"] == "ok" and answer.json()["stdout"] == "%d\n" % i, answer
        else:
            assert answer.json()["error"]["code"] in ("unavailable", "busy"), answer
        conn.close()
        if insists and answer.status != 200:
            await asyncio.sleep(0.2)
            await client(i)
    await asyncio.gather(*[client(i) for i in range(count)])
    return statuses


def test_r7_runs_without_descriptors_are_503(contained):
    """The descriptors run out below the connections: waiting runs hold them."""
    server = contained(pre=few_descriptors, env={"HERMES_CONCURRENCY": "60",
                                                 "HERMES_QUEUE": "1000"})
    before = Holdings(server, contained.groups)
    pids = server.programs()
    statuses = asyncio.run(crowd_of_runs(server, 130, insists=True))
    print(statuses)
    assert set(statuses) <= {200, 429, 503} and statuses[200] == 130 and statuses[503], statuses
    left, _ = settle(server, contained.groups, before, 5)
    assert not left, left
    assert server.programs() == pids and server.works()


def is_zombie(pid):
    try:
        return ") Z " in pathlib.Path("/proc/%d/stat" % pid).read_text()
    except OSError:  # it has gone
        return False


@pytest.mark.parametrize("language, limit", [("bash", n) for n in range(160, 176)] + [("python", n) for n in range(240, 256)])
def test_r7_a_spawner_whose_descriptors_end_anywhere(contained, language, limit):
    """A box takes more descriptors than a request brings, or a zygote's answer: between two boxes
    any number may be left, none at all included. Who asks is told, and what lives goes on."""
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    server = contained(pre=few, env={"HERMES_CONCURRENCY": "60", "HERMES_QUEUE": "1000"})
    if language == "python":
        assert wait_until(lambda: server.run("python", "1").json()["isolation"]["start"] == "warm")
    pids = server.programs()
    tries = []

    def makes_session():
        tries.append(server("POST", "/v1/sessions", {"language": "bash"}))
        return tries[-1].status == 201
    assert wait_until(makes_session) and {reply.status for reply in tries[:-1]} <= {503}, tries
    session = "/v1/sessions/" + tries[-1].json()["id"]
    assert server("POST", session + "/exec", {"code": "x=kept"}).json()["status"] == "ok"
    told = collections.Counter()

    async def asks_for_files():
        for _ in range(12):
            conn = Connection(server.port)  # one that waits for its next request may be closed
            try:
                told[(await conn("GET", session + "/files")).status] += 1
            except Lost as e:
                told[str(e)] += 1
            conn.close()
            await asyncio.sleep(0.05)

    async def everybody():
        return (await asyncio.gather(crowd_of_runs(server, 60, language), asks_for_files()))[0]
    statuses = asyncio.run(everybody())
    print(statuses, told)
    assert set(statuses) <= {200, 429, 503} and statuses[200] and statuses[503], statuses
    assert set(told) <= {200, 409, 503}, told
    assert wait_until(lambda: server("GET", session + "/files").status == 200)
    assert server("POST", session + "/exec", {"code": "echo $x"}).json()["stdout"] == "kept\n"
    assert wait_until(server.works) and server.programs() == pids
    assert wait_until(lambda: not any(map(is_zombie, children(pids["hermes-spawn"]))))


def group_file(groups, name):
    for path, _ in groups.dirs:
        if os.path.exists(os.path.join(path, name)):
            return pathlib.Path(path, name)
    return None


def test_r7_at_the_limit_of_processes(contained):
    limit = group_file(contained.groups, "pids.max")
    if not limit or contained.groups.shared:
        pytest.skip("the group of the tests has no pids.max of its own")
    server = contained()
    assert server.works()
    pids = server.programs()
    conn = server.connect(tcp=True)
    assert server("GET", "/health", conn=conn).status == 200
    assert wait_until_still(server.process.pid)  # the thread of the first connection is gone
    limit.write_text((limit.parent / "pids.current").read_text())
    try:
        for body in ({"language": "bash", "code": "1"},
                     {"language": "bash", "code": "1", "async": True}):
            reply = server("POST", "/v1/runs", body, conn=conn)
            assert reply.status == 503 and reply.json()["error"]["code"] == "unavailable", reply
        for _ in range(5):  # no thread for a new connection
            got = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 2)
            assert got.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1\r\n" in got, got
            head, body = got.split(b"\r\n\r\n", 1)
            assert json.loads(body)["error"]["code"] == "unavailable"
            assert b"Content-Length: %d\r\n" % len(body) in head
        os.kill(pids["hermes-spawn"], signal.SIGKILL)
        assert wait_until(lambda: server.child("hermes-spawn") is None)
        time.sleep(0.5)
    finally:
        limit.write_text("max")
    assert wait_until(lambda: server.works(), 20)
    assert server.child("hermes-server") == pids["hermes-server"]


def test_r7_at_the_limit_of_memory(contained):
    """The server sizes itself by its control group, and large bodies that hang on it are refused
    before the kernel has to kill anything."""
    limit = group_file(contained.groups, "memory.limit_in_bytes")
    if not limit or ASAN:
        pytest.skip("no memory limit of the tests' own, or sanitizers that need more")
    limit.write_text(str(400 << 20))
    server = contained()
    assert server("GET", "/v1/report").json()["capacity"]["memory_mb"] == 320
    assert server.works()
    pids = server.programs()
    before = Holdings(server, contained.groups)
    body = json.dumps({"language": "bash", "code": "wc -c < big",
                       "files": [{"name": "big", "content": "y" * (6 << 20)}]}).encode()
    request = encode("POST", "/v1/runs", body)
    herd = []
    for _ in range(80):
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=30 * SLOW)
        try:
            sock.sendall(request[:-1])  # the end is missing
        except OSError:
            pass
        herd.append(sock)
    assert server.works()
    peak_kb = pss_kb(pids["hermes-server"])
    answers, texts = collections.Counter(), collections.Counter()
    for sock in herd:
        try:
            sock.sendall(request[-1:])
        except OSError:
            pass
    for sock in herd:
        got = b""
        try:
            while b"\r\n\r\n" not in got:
                piece = sock.recv(65536)
                if not piece:
                    break
                got += piece
        except OSError:
            pass
        answers[got[9:12]] += 1
        texts[got.partition(b"\r\n\r\n")[2][:200]] += 1
        sock.close()
    print(answers, "server %d kB" % peak_kb, texts)
    assert set(answers) <= {b"200", b"503", b"429", b""}, answers
    assert answers[b"200"] >= 1 and answers[b"503"] >= 10, answers
    assert peak_kb < 160 << 10
    # Boxes at their limits, as many as the server lets in.
    loud = [server.run("bash", "x=$(head -c 200000000 /dev/zero | tr '\\0' x)", limits={"memory_mb": 64})
            for _ in range(4)]
    assert {r.json()["status"] for r in loud} == {"memory_limit"}, loud
    left, _ = settle(server, contained.groups, before, 5)
    assert not left, left
    assert server.programs() == pids and server.works()
