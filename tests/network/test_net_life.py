# SPDX-License-Identifier: Apache-2.0
"""Egress dies, sessions change their network, and nothing is left."""
import os
import signal
import threading

import pytest

from apilib import descriptors_beside_groups, wait_until, wait_until_still
from netlib import HOST4, OK4, OTHER4

# Tries until the file /files/end answers; prints the outcomes that differ from the one before.
TRY = """
import socket, time, urllib.request
last = None
for _ in range(3000):
    try:
        s = socket.create_connection(("%s", 80), 2); s.close(); now = "connected"
    except TimeoutError: now = "silence"
    except OSError as e: now = type(e).__name__
    if now != last:
        print(now, flush=True)
        last = now
    try:
        if now == "connected" and urllib.request.urlopen("http://%s/files/end", timeout=2).status == 200:
            break
    except OSError: pass
    time.sleep(0.01)
""" % (OTHER4, OK4)


def egress_of(server):
    return server.child("hermes-egress")


def test_egress_killed_is_closed_and_comes_back(make_boxes, world):
    boxes = make_boxes()
    server = boxes.server
    assert wait_until(lambda: egress_of(server))
    first = egress_of(server)
    spawner = server.child("hermes-spawn")
    run = boxes.start("full", "python", TRY)
    assert wait_until(lambda: world.arrived(world.seen["world"], kind="tcp", to=OTHER4))
    os.kill(first, signal.SIGSTOP)  # it lives, and says nothing
    os.kill(first, signal.SIGKILL)
    assert boxes.run("none", "python", "print(1)")["stdout"] == "1\n"  # other runs go on
    assert wait_until(lambda: egress_of(server) not in (None, first))
    mark = world.mark()
    assert wait_until(lambda: world.arrived(mark, kind="tcp", to=OTHER4))  # the same box goes on
    world.put("end", b"")
    answer = boxes.finish(run)
    assert answer["status"] == "ok" and answer["stdout"].endswith("connected\n"), answer
    assert server.child("hermes-spawn") == spawner
    assert boxes.one("full", "tcp", OK4, 80) == "hello from " + OK4


def test_a_dead_egress_passes_nothing(make_boxes, world):
    """While it is stopped, no attempt of a box leaves; the control is the same box before."""
    boxes = make_boxes()
    assert boxes.one("full", "tcp", OTHER4, 80) == "hello from " + OTHER4
    pid = egress_of(boxes.server)
    os.kill(pid, signal.SIGSTOP)
    try:
        mark = world.mark()
        assert boxes.one("full", "connect", OTHER4, 80, 2) == "timeout"
        assert boxes.one("full", "udp", OTHER4, 9999, 1) == "timeout"
        assert world.arrived(mark) == []
    finally:
        os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: boxes.one("full", "tcp", OTHER4, 80) == "hello from " + OTHER4)


def test_nothing_is_left(box, world):
    """Descriptors of egress and spawner do not grow with boxes, once the pools are full."""
    server = box.server
    pids = [egress_of(server), server.child("hermes-spawn")]

    def used(count):
        for _ in range(count):
            assert box.one("full", "tcp", OK4, 80) == "hello from " + OK4
        assert wait_until_still(server.process.pid)
        return [descriptors_beside_groups(pid) for pid in pids]
    used(5)
    before = used(10)
    after = used(20)
    assert all(now <= then + 2 for now, then in zip(after, before)), (before, after)


def test_a_session_changes_its_network(make_boxes, world):
    server = make_boxes().server  # which keeps boxes for sessions ready afterwards
    made = server("POST", "/v1/sessions", {"language": "python", "network": {"allow": [OK4]}})
    assert made.status == 201, made
    at = "/v1/sessions/" + made.json()["id"]
    code = """
import socket
def end(a):
    try: socket.create_connection((a, 80), 5).close(); return "connected"
    except OSError as e: return type(e).__name__
print(end("%s"), end("%s"))
""" % (OK4, OTHER4)

    def outcome():
        reply = server("POST", at + "/exec", {"code": code})
        assert reply.status == 200, reply
        return reply.json()["stdout"]
    try:
        assert outcome() == "connected ConnectionRefusedError\n"
        assert server("PATCH", at, {"network": {"allow": [OTHER4]}}).status == 200
        assert outcome() == "ConnectionRefusedError connected\n"
        assert server("PATCH", at, {"network": "full"}).status == 200
        assert outcome() == "connected connected\n"
        assert server("PATCH", at, {"network": "none"}).status == 200
        assert "connected" not in outcome()
        assert server("PATCH", at, {"network": {"allow": ["10.9.0.5"]}}).status == 403
    finally:
        assert server("DELETE", at).status in (200, 204)


def unread(world, pid):
    """Bytes that wait in the unix sockets of a process."""
    lines = world.host.run("ss", "-xnpH").splitlines()
    return sum(int(line.split()[2]) for line in lines if "pid=%d," % pid in line)


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
def test_a_change_is_in_force_when_it_is_answered(make_boxes, world, then):
    """While egress does nothing, the old policy is still in force, and nobody says otherwise. Then it goes on, or
    another one takes its place."""
    server = make_boxes().server
    made = server("POST", "/v1/sessions", {"language": "python", "network": "full"})
    assert made.status == 201, made
    at = "/v1/sessions/" + made.json()["id"]
    code = {"code": "import socket\ntry: socket.create_connection((%r, 80), 20); print('connected')\n"
                    "except OSError: print('refused')" % OK4}
    assert server("POST", at + "/exec", code).json()["stdout"] == "connected\n"  # the control
    egress, replies = egress_of(server), []
    change = threading.Thread(target=lambda: replies.append(server("PATCH", at, {"network": "none"})))
    os.kill(egress, signal.SIGSTOP)
    try:
        change.start()
        assert wait_until(lambda: unread(world, egress) > 0)  # the new policy is there
        for _ in range(50):  # time for an answer that comes too early
            assert server("GET", "/health").status == 200
        assert replies == []
    finally:
        os.kill(egress, then)
        change.join()
    assert replies[0].status == 200 and replies[0].json()["network"] == "none", replies
    assert server("POST", at + "/exec", code).json()["stdout"] == "refused\n"
    assert server("DELETE", at).status == 204


def test_host_addresses_that_come_later(box, world):
    """The host's own addresses are those at the time of the attempt."""
    new = "45.33.32.77"
    world.host.run("ip", "addr", "add", new + "/32", "dev", "v0")
    try:
        assert world.probe(["tcp", new, 8000]) == ["hello from " + new]
        assert box.one("full", "connect", new, 8000) == "ECONNREFUSED"
        assert box.one("full", "connect", HOST4, 8000) == "ECONNREFUSED"
    finally:
        world.host.run("ip", "addr", "del", new + "/32", "dev", "v0")
