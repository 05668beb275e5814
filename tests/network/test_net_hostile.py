# SPDX-License-Identifier: Apache-2.0
"""Attackers: a program in a box that has its network namespace for itself (as root there, which is
more than a box has), and a server that was taken over and says anything on its channels. The oracle
of the world watches: nobody comes to a closed address or to the host."""
import os
import random
import re
import signal
import struct

import pytest

from egresslib import ALLOW, DROP, FULL, NONE, POLICY, Egress, ceiling, entry, policy, until
from netlib import HOST4, PYTHON, run
from networld import OK4, OTHER4
from runlib import BUILD

# A connection for each word: a record of TLS before a hello that asks for another name.
HIDDEN_HELLO = r'''
import errno, json, socket, ssl, sys
def attempt(first):
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    t = ssl._create_unverified_context().wrap_bio(into, out, server_hostname="shared.example.org")
    try:
        t.do_handshake()
    except ssl.SSLWantReadError:
        pass
    s = socket.create_connection(("ok.example.com", 443), 20)
    try:
        s.sendall(bytes.fromhex(first) + out.read())
        return "answered" if s.recv(100) else "closed"
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
print(json.dumps([attempt(a) for a in sys.argv[1:]]))
'''
# Says of each connection from one source port whether its own server answered.
SAME_PORT = r'''
import json, random, socket, struct, sys
wrong = right = lost = 0
for i in range(300):
    host = sys.argv[1 + i % 2]
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.bind(("192.0.0.2", 40000))
    try:
        s.settimeout(10)
        if random.random() < 0.3:
            s.settimeout(0)
        s.connect((host, 80))
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        got = b""
        while piece := s.recv(65536):
            got += piece
        if got.endswith(b"hello from %s\n" % host.encode()):
            right += 1
        else:
            wrong += 1
    except OSError:
        lost += 1
    s.close()
print(json.dumps([wrong, right, lost]))
'''
# All at once, until it is killed: connections, datagrams, questions of which some get no answer.
STORM = r'''
import random, socket, struct, sys
def question(name):
    return b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + b"".join(
        bytes([len(x)]) + x.encode() for x in name.split(".")) + b"\0\0\1\0\1"
print("up", flush=True)
kept = []
while True:
    kind = random.randrange(6)
    host = random.choice(sys.argv[1:])
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind < 4 else socket.SOCK_DGRAM)
    s.settimeout(random.choice((0, 0, 0.02)))
    if kind == 2:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        if kind == 3 or kind == 5:
            name = random.choice(("silent.example.com", "ok.example.com", "gone.example.com"))
            s.settimeout(0.02)
            s.connect((host, 53))
            m = question(name)
            s.sendall(struct.pack(">H", len(m)) + m if kind == 3 else m)
            if kind == 3 and random.random() < 0.5:
                s.sendall(random.randbytes(random.randrange(40)))
        elif kind == 4:
            s.sendto(random.randbytes(random.randrange(2000)), (host, 9999))
        else:
            s.connect((host, 80))
            s.sendall(b"GET /big-%d HTTP/1.0\r\n\r\n" % random.randrange(1 << 20))
            s.recv(random.randrange(1, 65536))
    except OSError:
        pass
    kept.append(s)
    while len(kept) > random.randrange(40):
        kept.pop(random.randrange(len(kept))).close()
'''


def reasons(box):
    return {(row["host"], row["reason"]) for row in box.record()["rows"] if not row["allowed"]}


def test_a_record_before_the_hello_hides_no_name(world, egress):
    """A server in Go passes over a warning and reads the hello behind it."""
    warning, cipher = "1503010002015a", "140303000101"
    box = egress.box(policy(ALLOW, entry("ok.example.com", 443)))
    assert box.run(HIDDEN_HELLO, warning, cipher) == ["ECONNRESET"] * 2
    assert ("ok.example.com", "unreadable_hello") in reasons(box)
    # the control: where nobody looks at the name, the server gets both records
    control = egress.box(policy(ALLOW, entry(OK4, 443), entry("ok.example.com", 9)))
    assert control.run(HIDDEN_HELLO, "", warning) == ["answered"] * 2


def test_an_upstream_proxy_does_not_lead_back_to_the_host(world, kits):
    egress = Egress(BUILD, world, kits, ceiling(upstream={"address": OK4, "port": 3128, "filters": 1}))
    box = egress.box(policy(FULL))
    mark = world.mark()
    assert box.probe(["connect", HOST4, 8000], ["tcp", OTHER4, 80]) == [
        "ECONNREFUSED", "hello from " + OTHER4]
    assert (HOST4, "host_address") in reasons(box)
    assert {note["to"] for note in world.arrived(mark, kind="connect")} == {OTHER4}
    egress.end()


def test_a_number_is_no_name_for_a_proxy_that_resolves(world, kits):
    """A server that was taken over lists the last label of the metadata service."""
    rule = ceiling(ALLOW, upstream={"address": OK4, "port": 3128, "resolves": 1})
    egress = Egress(BUILD, world, kits, rule)
    numbers = entry("*.x", 80)
    numbers.name = b"254"
    box = egress.box(policy(ALLOW, numbers, entry("*.example.com", 80)))
    number, name = box.probe(["dns", "9.9.9.9", "169.254.169.254", 1], ["dns", "9.9.9.9", "ok.example.com", 1])
    assert (number["code"], number["count"]) == (3, 0)
    assert (name["code"], name["count"]) == (0, 1)
    assert ("169.254.169.254", "name_closed") in reasons(box)
    egress.end()


def test_one_source_port_for_two_servers(egress):
    """Connections with the same source port that end and begin as fast as they can."""
    box = egress.box(policy(FULL))
    wrong, right, _ = box.run(SAME_PORT, OK4, OTHER4)
    assert wrong == 0 and right > 0


def test_whatever_policy_a_server_sends_the_ceiling_holds(world, kits):
    """Policies with bits that are wrong: each is within the ceiling or permits nothing."""
    rule = ceiling(ALLOW, allowed=[entry(OK4, 80), entry("ok.example.com", 80)])
    egress = Egress(BUILD, world, kits, rule)
    box = egress.box(policy(ALLOW, entry(OK4, 80)))
    assert box.probe(["tcp", OK4, 80]) == ["hello from " + OK4]
    attempts = [["connect", "10.9.0.5", 80], ["connect", "169.254.169.254", 80], ["connect", OTHER4, 80],
                ["connect", OK4, 8080], ["connect", HOST4, 8000], ["connect", "other.example.org", 80]]
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    for _ in range(20):
        for _ in range(20):
            wrong = bytearray(bytes(policy(dice.choice((NONE, ALLOW, FULL)), entry("0.0.0.0/0", 1, 65535),
                                           entry(OTHER4, 80), entry("*.example.org", 80))))
            for _ in range(dice.randrange(6)):
                wrong[dice.choice((dice.randrange(900), dice.randrange(len(wrong))))] = dice.randrange(256)
            box.channel.send(struct.pack("=II", POLICY, 0) + wrong)
        assert set(box.probe(*attempts)) <= {"ECONNREFUSED", "EHOSTUNREACH", "no such name"}, seed
    assert egress.process.poll() is None
    box.set(policy(ALLOW, entry(OK4, 80)))
    assert box.probe(["tcp", OK4, 80]) == ["hello from " + OK4]
    egress.end()


@pytest.mark.parametrize("garbage", [b"x", bytes(8), struct.pack("=II", POLICY, 0), b"\xff" * 30000],
                         ids=["short", "zeros", "half a policy", "long"])
def test_an_unreadable_message_ends_the_network_of_that_box_only(egress, garbage):
    hurt, other = egress.box(policy(FULL)), egress.box(policy(FULL))
    assert hurt.probe(["tcp", OK4, 80]) == ["hello from " + OK4]
    hurt.theirs.close()  # so that only egress has that end
    hurt.channel.send(garbage)
    while hurt.receive():  # until the channel ends
        pass
    assert other.probe(["tcp", OK4, 80]) == ["hello from " + OK4]


def test_a_narrowed_policy_holds_from_then_on(world, egress):
    """A storm of attempts while the policy goes to and fro. After its last change and an answer to
    it, no packet goes to what it does not list."""
    box = egress.box(policy(FULL))
    with box.start(STORM, OK4, OTHER4) as storm:
        assert storm.stdout.readline() == "up\n"
        for i in range(60):
            box.set(policy((FULL, NONE)[i % 2]))
            box.record()
        mark = world.mark()
        box.set(policy(FULL))
        until(lambda: world.arrived(mark, kind="packet", to=OK4, port=80), "the control: it goes out")
        box.set(policy(ALLOW, entry(OTHER4, 80)))
        box.record()
        until(lambda: quiet(world), "what was under way has arrived")
        mark = world.mark()
        until(lambda: len(world.arrived(mark, kind="packet", to=OTHER4, port=80)) > 20, "it goes on")
        assert not [n for n in world.arrived(mark, kind="packet") if n["to"] != OTHER4]
        storm.kill()


def quiet(world):
    """Whether nothing was sent to the address any more while a whole look was taken."""
    mark = world.mark()
    until(lambda: world.arrived(mark, kind="packet", to=OTHER4, port=80), "something arrives")
    return not world.arrived(mark, kind="packet", to=OK4)


def test_the_world_survives_short_fragments(world):
    """A control of the tests themselves: the last fragment of a datagram may be shorter than a port."""
    send = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); " \
           "[s.sendto(bytes(size), (%r, 9999)) for size in range(1470, 1480)]" % OK4
    world.host.run(PYTHON, "-c", send)
    world.forget()


def test_boxes_come_and_go_in_a_storm(world, egress):
    """Whatever is under way when a box, its channel or its policy ends: egress lives on, another box
    works, and nothing is left."""
    other = egress.box(policy(FULL), 2)
    dice = random.Random(7)
    for turn in range(12):
        boxes = [egress.box(policy(FULL, connections=dice.choice((4, 64))), 1) for _ in range(3)]
        storms = [box.start(STORM, OK4, OTHER4, "10.9.0.5") for box in boxes]
        for storm in storms:
            assert storm.stdout.readline() == "up\n"
        for box in boxes:
            until(lambda: box.record()["rows"], "attempts")
        boxes[0].set(policy(ALLOW, entry("ok.example.com", 80)))
        boxes[1].channel.close()
        egress.tell(DROP, boxes[dice.randrange(3)].number, 0)
        assert other.probe(["tcp", OK4, 80]) == ["hello from " + OK4]
        for box, storm in zip(boxes, storms):
            egress.tell(DROP, box.number, 0)
            storm.kill()
            storm.wait()
            storm.stdin.close()
            storm.stdout.close()
            egress.boxes.remove(box)
            box.close()
    assert egress.process.poll() is None
    until(lambda: egress.descriptors() <= egress.quiet + 12, "nothing is left but one box")


# Reads from many connections, then no more.
DEAF = r'''
import select, socket, sys
held = [socket.create_connection((sys.argv[1], 80), 20) for _ in range(int(sys.argv[2]))]
for s in held:
    s.sendall(b"GET /big-8000000 HTTP/1.0\r\n\r\n")
left = int(sys.argv[3]) << 20
while left > 0:
    for s in select.select(held, [], [])[0]:
        left -= len(s.recv(1 << 20))
print("stopped", flush=True)
sys.stdin.read()
'''


def test_a_box_that_does_not_read_fills_little_memory(world, egress):
    """Buffers that grew while it read would be the memory of egress, which all boxes share."""
    box = egress.box(policy(FULL))
    with box.start(DEAF, OTHER4, 48, 100) as process:
        assert process.stdout.readline() == "stopped\n"
        inside = buffers(["nsenter", "--net=/proc/self/fd/%d" % box.namespace], "src", [box.namespace])
        outside = buffers(world.host.enter(), "dst")
        process.kill()
    assert len(inside) == len(outside) == 48
    assert max(send for _, send in inside) <= 1 << 20
    narrow = [pair for pair in outside if max(pair) <= 512 << 10]
    assert len(narrow) >= 32, outside


def test_many_boxes_of_a_key_fill_little_memory(world, egress):
    """Each box has few connections; those of all its boxes together are what counts. Another key has its own."""
    started = [egress.box(policy(FULL), 1).start(DEAF, OTHER4, 16, 8) for _ in range(6)]
    try:
        assert [process.stdout.readline() for process in started] == ["stopped\n"] * 6
        outside = buffers(world.host.enter(), "dst")
        started.append(egress.box(policy(FULL), 2).start(DEAF, OTHER4, 8, 8))
        assert started[-1].stdout.readline() == "stopped\n"
        after = buffers(world.host.enter(), "dst")
    finally:
        for process in started:
            process.kill()
            process.communicate()
    narrow = [pair for pair in outside if max(pair) <= 512 << 10]
    assert len(outside) == 96 and len(narrow) >= 32, outside
    assert len([pair for pair in after if max(pair) > 512 << 10]) > len(outside) - len(narrow)


def buffers(enter, side, fds=()):
    """The most that each connection with the world's web server may hold: (received, sent)."""
    out = run(*enter, "ss", "-tmnH", side, "%s:80" % OTHER4, pass_fds=fds)
    return [(int(r), int(s)) for r, s in re.findall(r"skmem:\(r\d+,rb(\d+),t\d+,tb(\d+)", out)]


def test_a_key_that_asks_for_silent_names_does_not_stop_others(egress):
    """Boxes that ask and end leave their questions behind: they take no place of another key."""
    code = r'''
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(64):
    head, kind = b"\0\0\1\0\0\1\0\0\0\0\0\0", struct.pack(">HH", int(sys.argv[1]) + i, 1)
    s.sendto(head + b"\6silent\7example\3com\0" + kind, ("9.9.9.9", 53))
print("[]")
'''
    other = egress.box(policy(FULL), 2)
    for turn in range(20):  # 64 types each that nobody has asked for
        box = egress.box(policy(FULL), 1)
        assert box.run(code, 1000 + 64 * turn) == []
        egress.boxes.remove(box)
        box.drop()
    assert other.probe(["tcp", "ok.example.com", 80])[0].startswith("hello from ")


def test_questions_per_second_are_limited(egress):
    """One box asks as fast as it can, one after the other; its answers come at the rate of its policy."""
    code = r'''
import json, os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
codes = []
for i in range(60):
    name = b"\x08" + os.urandom(4).hex().encode() + b"\7example\3com\0"
    s.sendto(b"\0\0\1\0\0\1\0\0\0\0\0\0" + name + struct.pack(">HH", 1, 1), ("9.9.9.9", 53))
    codes.append(s.recv(512)[3] & 15)
print(json.dumps(codes))
'''
    box, other = egress.box(policy(FULL, connections_s=10)), egress.box(policy(FULL, connections_s=10))
    codes = box.run(code)
    assert codes[:20] == [3] * 20 and 2 in codes  # no such name; then refused without asking
    record = box.record()
    assert record["limit_hit"] and "lookup_limit" in {row["reason"] for row in record["rows"]}
    assert other.probe(["tcp", "ok.example.com", 80])[0].startswith("hello from ")
    assert not other.record()["limit_hit"]  # the control


def test_a_network_that_comes_too_late_is_none(make_boxes, world):
    """The spawner is stopped while a session is given a network. The request fails; what the spawner
    does afterwards must not give the session more than it has been told."""
    server = make_boxes().server
    made = server("POST", "/v1/sessions", {"language": "python"})
    assert made.status == 201, made
    at = "/v1/sessions/" + made.json()["id"]
    code = "import socket\ntry: socket.create_connection(('%s', 80), 5); print('connected')\n" \
           "except OSError as e: print('no', e)" % OK4

    def execute(what):
        reply = server("POST", at + "/exec", {"code": what})
        assert reply.status == 200, reply
        return reply.json()["stdout"]
    assert "unreachable" in execute(code)
    spawner = server.child("hermes-spawn")
    os.kill(spawner, signal.SIGSTOP)
    try:
        assert server("PATCH", at, {"network": "full"}).status == 503
    finally:
        os.kill(spawner, signal.SIGCONT)
    until(lambda: "unreachable" not in execute(code), "the kit is there all the same")
    assert execute(code).startswith("no ")
    assert server("GET", at).json()["network"] == "none"
    # the control: a session that was told in time has it
    other = "/v1/sessions/" + server("POST", "/v1/sessions", {"language": "python"}).json()["id"]
    assert server("PATCH", other, {"network": "full"}).status == 200
    assert server("POST", other + "/exec", {"code": code}).json()["stdout"] == "connected\n"
    for path in (at, other):
        assert server("DELETE", path).status in (200, 204)
