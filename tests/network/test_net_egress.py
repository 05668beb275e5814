# SPDX-License-Identifier: Apache-2.0
"""hermes-egress by itself: a box is a network namespace with a kit, the test stands in for the
monitor, the spawner and the server. All traffic stays in namespaces that netlib makes."""
import hashlib
import json
import os
import signal
import struct
import subprocess
import time

import pytest

from egresslib import (ALLOW, DROP, FULL, HELLO, NONE, PYTHON, SNAPSHOT, Egress, ceiling, entry, policy, until)
from netlib import HOST4
from networld import OK4, OK6, OTHER4
from runlib import ASAN, BUILD

ECHO, COUNT, DATAGRAMS, DEAF, SLOW, LAST = 7001, 7002, 7003, 7004, 7005, 7006
MEGABYTES = 3 << 20

# Servers in the world. ECHO sends back what comes, and "end" after the other side's end. COUNT sends
# three megabytes while it takes what comes, then the hash of that. DEAF takes and says nothing. SLOW
# sends without end after the first byte that comes: so connect() has returned before a limit resets
# the connection. LAST says on standard output how much it got, over TCP and UDP.
SERVERS = r'''
import hashlib, os, socket, sys, threading
def echo(s):
    while data := s.recv(65536):
        s.sendall(data)
    s.sendall(b"end")
def count(s):
    got = hashlib.sha256()
    def take():
        while data := s.recv(65536):
            got.update(data)
    t = threading.Thread(target=take)
    t.start()
    s.sendall(bytes(range(256)) * (3 << 12))
    t.join()
    s.sendall(got.hexdigest().encode())
def deaf(s):
    while s.recv(65536):
        pass
def last(s):
    total = 0
    while data := s.recv(65536):
        total += len(data)
    print("tcp", total, flush=True)
def slow(s):
    s.recv(1)
    while True:
        s.sendall(bytes(65536))
def run(serve, s):
    try:
        serve(s)
    except OSError:
        pass
    s.close()
def listen(port, serve):
    l = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
    def loop():
        while True:
            threading.Thread(target=run, args=(serve, l.accept()[0]), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
def datagrams(address, port):
    u = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((address, port))
    def loop():
        while True:
            data, peer = u.recvfrom(65536)
            if port == 7006:
                print("udp", len(data), flush=True)
            else:
                u.sendto(data, peer)
    threading.Thread(target=loop, daemon=True).start()
for port, serve in ((7001, echo), (7002, count), (7004, deaf), (7005, slow), (7006, last)):
    listen(port, serve)
for address in sys.argv[1:]:
    datagrams(address, 7003)
    datagrams(address, 7006)
print("up", flush=True)
sys.stdin.read()
'''

# What programs in a box do; each prints JSON.
CONNECT = r'''
import errno, json, socket, sys
def attempt(host, port):
    try:
        socket.create_connection((host, int(port)), 20).close()
        return "connected"
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
print(json.dumps([attempt(*a.rsplit(",", 1)) for a in sys.argv[1:]]))
'''
HALF_CLOSE = r'''
import json, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
s.sendall(b"some words ")
s.shutdown(socket.SHUT_WR)
got = b""
while piece := s.recv(65536):
    got += piece
print(json.dumps(got.decode()))
'''
BOTH_WAYS = r'''
import hashlib, json, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
data = bytes(reversed(range(256))) * (3 << 12)
def give():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
t = threading.Thread(target=give)
t.start()
got = b""
while piece := s.recv(65536):
    got += piece
t.join()
print(json.dumps({"len": len(got), "down": hashlib.sha256(got[:-64]).hexdigest(),
                  "up": got[-64:].decode() == hashlib.sha256(data).hexdigest()}))
'''
DATAGRAM = r'''
import errno, json, socket, sys
def attempt(host, port, size):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    try:
        s.connect((host, int(port)))
        s.send(bytes(int(size)))
        return len(s.recv(65536))
    except OSError as e:
        return errno.errorcode.get(e.errno, type(e).__name__)
print(json.dumps([attempt(*a.rsplit(",", 2)) for a in sys.argv[1:]]))
'''
# Holds connections open: a line for each, then until its input ends.
HOLD = r'''
import errno, socket, sys
held = []
for a in sys.argv[1:]:
    try:
        held.append(socket.create_connection(tuple(a.rsplit(",", 1)), 20))
        print("connected", flush=True)
    except OSError as e:
        print(errno.errorcode.get(e.errno, type(e).__name__), flush=True)
for line in sys.stdin:  # what is told to it goes to the first one, which sends it back
    held[0].sendall(line.encode())
    print(held[0].recv(100).decode(), end="", flush=True)
'''
# Says something and is gone.
LAST_WORDS = r'''
import os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(bytes(1000), (sys.argv[1], int(sys.argv[2])))
s.sendall(bytes(1 << 20))
os._exit(0)
'''
# Reads one connection until it ends; says how.
DRAIN = r'''
import errno, json, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
s.sendall(b".")
print("connected", flush=True)
total = 0
try:
    while piece := s.recv(65536):
        total += len(piece)
    end = "closed"
except OSError as e:
    end = errno.errorcode.get(e.errno, type(e).__name__)
print(json.dumps({"total": total, "end": end}))
'''


def serve(world):
    process = subprocess.Popen(world.world.enter() + [PYTHON, "-c", SERVERS, OK4, OK6], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "up\n"
    return process


@pytest.fixture(scope="module", autouse=True)
def servers(one_world):
    process = serve(one_world)
    yield process
    process.stdin.close()
    process.wait()
    process.stdout.close()


def rows(record, **fields):
    return [row for row in record["rows"] if all(row[name] == value for name, value in fields.items())]


def test_listed_addresses_connect_and_others_are_refused(world, egress):
    box = egress.box(policy(ALLOW, entry(OK4, ECHO), entry(OK6, ECHO)))
    wanted = ["%s,%d" % (OK4, ECHO), "%s,%d" % (OK6, ECHO), "%s,%d" % (OK4, COUNT), "10.9.0.5,80",
              "%s,22" % HOST4]
    assert box.run(CONNECT, *wanted) == ["connected", "connected", "ECONNREFUSED", "ECONNREFUSED",
                                         "ECONNREFUSED"]
    record = box.record()
    assert {(row["host"], row["reason"]) for row in record["rows"]} == {
        (OK4, None), (OK6, None), (OK4, "not_listed"), ("10.9.0.5", "private"), (HOST4, "not_listed")}
    assert {(row["host"], row["reason"]) for row in box.tried} >= {(OK4, None), ("10.9.0.5", "private")}
    assert not record["limit_hit"] and record["more"] == 0
    # the control: without a box the port that was denied answers
    assert world.probe(["connect", OK4, COUNT], ["connect", "10.9.0.5", 80]) == ["connected"] * 2


def test_full_reaches_public_addresses_and_not_the_host(world, egress):
    box = egress.box(policy(FULL))
    wanted = ["%s,%d" % (OK4, ECHO), "%s,%d" % (OK6, ECHO), "%s,8000" % HOST4, "169.254.169.254,80",
              "fd00:ec2::254,80"]
    assert box.run(CONNECT, *wanted) == ["connected", "connected"] + ["ECONNREFUSED"] * 3
    assert {(row["host"], row["reason"]) for row in rows(box.record(), allowed=False)} == {
        (HOST4, "host_address"), ("169.254.169.254", "metadata"), ("fd00:ec2::254", "metadata")}


def test_a_server_that_is_not_there_is_refused_or_unreachable(egress):
    box = egress.box(policy(FULL))
    # nothing listens; nothing has the address (the neighbour does not answer)
    assert box.run(CONNECT, "%s,9" % OK4, "45.33.32.99,80") == ["ECONNREFUSED", "EHOSTUNREACH"]


def test_the_end_of_one_side_leaves_the_other_open(egress):
    box = egress.box(policy(ALLOW, entry(OK4, ECHO)))
    assert box.run(HALF_CLOSE, OK4, ECHO) == "some words end"
    record = box.record()
    assert rows(record, allowed=True)[0]["sent"] == 11 and record["received"] == 14


def test_three_megabytes_both_ways(egress):
    box = egress.box(policy(ALLOW, entry(OK4, COUNT), entry(OK6, COUNT)))
    for address in (OK4, OK6):
        got = box.run(BOTH_WAYS, address, COUNT)
        assert got == {"len": MEGABYTES + 64, "up": True,
                       "down": hashlib.sha256(bytes(range(256)) * (3 << 12)).hexdigest()}
    record = box.record()
    assert (record["sent"], record["received"]) == (2 * MEGABYTES, 2 * (MEGABYTES + 64))


def test_datagrams_go_and_come_back(egress):
    box = egress.box(policy(ALLOW, entry(OK4, DATAGRAMS, udp=True), entry(OK6, DATAGRAMS, udp=True)))
    assert box.run(DATAGRAM, "%s,%d,5" % (OK4, DATAGRAMS), "%s,%d,1200" % (OK6, DATAGRAMS),
                   "%s,%d,60000" % (OK4, DATAGRAMS), "%s,9999,5" % OK4, "10.9.0.5,%d,5" % DATAGRAMS) == [
        5, 1200, 60000, "EHOSTUNREACH", "EHOSTUNREACH"]
    record = box.record()
    assert {(r["host"], r["port"], r["reason"]) for r in rows(record, protocol="udp")} == {
        (OK4, DATAGRAMS, None), (OK6, DATAGRAMS, None), (OK4, 9999, "not_listed"),
        ("10.9.0.5", DATAGRAMS, "private")}
    assert record["sent"] == record["received"] == 61205


def test_the_byte_limit_ends_all_connections(egress):
    box = egress.box(policy(FULL, received_bytes=1 << 20))
    other = box.start(HOLD, "%s,%d" % (OK4, DEAF))
    assert other.stdout.readline() == "connected\n"
    with box.start(DRAIN, OK4, SLOW) as process:
        assert process.stdout.readline() == "connected\n"
        assert '"end": "ECONNRESET"' in process.stdout.read()
    assert box.run(CONNECT, "%s,%d" % (OK4, ECHO)) == ["ECONNREFUSED"]
    other.stdin.close()
    other.wait()
    other.stdout.close()
    record = box.record()
    assert record["limit_hit"] and record["received"] == 1 << 20
    assert rows(record, reason="byte_limit")[0]["port"] == ECHO


def test_the_connection_limit_counts_what_is_open(egress):
    box = egress.box(policy(FULL, connections=2))
    target = "%s,%d" % (OK4, DEAF)
    with box.start(HOLD, target, target, target) as process:
        assert [process.stdout.readline() for _ in range(3)] == [
            "connected\n", "connected\n", "ECONNREFUSED\n"]
        process.stdin.close()
    until(lambda: box.run(CONNECT, target) == ["connected"], "a place is free again")
    record = box.record()
    assert record["limit_hit"] and rows(record, reason="connection_limit")


def test_the_connections_in_all_are_counted(egress):
    box = egress.box(policy(FULL, connections_all=2))
    target = "%s,%d" % (OK4, ECHO)
    assert box.run(CONNECT, target, target, target) == ["connected", "connected", "ECONNREFUSED"]


def test_the_boxes_of_a_key_share_its_limit(world, kits):
    egress = Egress(BUILD, world, kits, ceiling(key={"connections": 2}))
    first, second, other = (egress.box(policy(FULL), owner) for owner in (5, 5, 6))
    target = "%s,%d" % (OK4, DEAF)
    with first.start(HOLD, target, target) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["connected\n"] * 2
        assert second.run(CONNECT, target) == ["ECONNREFUSED"]
        assert other.run(CONNECT, target) == ["connected"]
        process.stdin.close()
    egress.end()


def test_a_dropped_box_leaves_no_descriptor(egress):
    box = egress.box(policy(FULL))
    target = "%s,%d" % (OK4, DEAF)
    process = box.start(HOLD, target, target)
    assert [process.stdout.readline() for _ in range(2)] == ["connected\n"] * 2
    until(lambda: egress.descriptors() == egress.quiet + 8 + 4, "both sides are connected")
    last = box.drop()
    assert rows(last, allowed=True)[0]["count"] == 2
    assert egress.descriptors() == egress.quiet
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_the_last_words_of_a_box_go_out(egress, servers):
    box = egress.box(policy(FULL))
    with box.start(LAST_WORDS, OK4, LAST) as process:
        process.wait()
    last = box.drop()
    assert last["sent"] == (1 << 20) + 1000
    assert sorted(servers.stdout.readline() for _ in range(2)) == ["tcp %d\n" % (1 << 20), "udp 1000\n"]


@pytest.mark.parametrize("who", ["program", "server"])
def test_a_killed_peer_ends_its_connections(world, egress, who):
    box = egress.box(policy(FULL))
    servers = None
    if who == "server":
        # servers of their own, in the same world, which may die
        code = SERVERS.replace("70", "71")
        servers = subprocess.Popen(world.world.enter() + [PYTHON, "-c", code], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert servers.stdout.readline() == "up\n"
    port = DEAF + 100 if servers else DEAF
    process = box.start(DRAIN, OK4, port)
    assert process.stdout.readline() == "connected\n"
    until(lambda: egress.descriptors() == egress.quiet + 8 + 2, "both sides are connected")
    victim = servers or process
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    if servers:
        assert '"total": 0' in process.stdout.read()
        servers.stdin.close()
        servers.stdout.close()
    process.stdin.close()
    process.wait()
    process.stdout.close()
    until(lambda: egress.descriptors() == egress.quiet + 8, "both sides are closed")


def test_a_policy_can_be_narrowed_while_a_connection_is_open(egress):
    box = egress.box(policy(FULL))
    with box.start(DRAIN, OK4, DEAF) as one, box.start(DRAIN, OTHER4, DEAF) as two:
        assert one.stdout.readline() == two.stdout.readline() == "connected\n"
        box.set(policy(ALLOW, entry(OTHER4, DEAF)))
        assert '"end": "ECONNRESET"' in one.stdout.read()
        assert box.run(CONNECT, "%s,%d" % (OK4, DEAF), "%s,%d" % (OTHER4, DEAF)) == [
            "ECONNREFUSED", "connected"]
        assert two.poll() is None
        box.set(policy(NONE))
        assert '"end": "ECONNRESET"' in two.stdout.read()
    assert box.run(CONNECT, "%s,%d" % (OTHER4, DEAF)) == ["ECONNREFUSED"]
    assert rows(box.record(), reason="no_network")


# Asks for so many names, one after the other, and counts the answers that have an address.
ASK_MANY = r'''
import json, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
found = 0
for i in range(int(sys.argv[1])):
    name = b"\x06n%05d\4many\7example\3org\0" % i
    s.sendto(struct.pack(">H", i) + b"\1\0\0\1\0\0\0\0\0\0" + name + struct.pack(">HH", 1, 1), ("9.9.9.9", 53))
    found += s.recv(512)[7]
print(json.dumps(found))
'''


def test_a_new_policy_keeps_what_it_permits_by_name(egress):
    """A box forgets which name an address had when it has asked for 512 others. A connection does not."""
    by_name = [entry("ok.example.com", ECHO), entry("*.many.example.org", 80)]
    box = egress.box(policy(ALLOW, *by_name))
    with box.start(HOLD, "ok.example.com,%d" % ECHO) as process:
        assert process.stdout.readline() == "connected\n"
        assert box.run(ASK_MANY, 520) == 520
        for entries in (by_name, [*by_name, entry(OTHER4, 81)], by_name[:1]):
            box.set(policy(ALLOW, *entries))
            box.record()
            process.stdin.write("still here\n")
            process.stdin.flush()
            assert process.stdout.readline() == "still here\n"
        box.set(policy(ALLOW, by_name[1]))  # the control: the name is not listed any more
        box.record()
        process.stdin.write("gone\n")
        process.stdin.flush()
        assert "gone" not in process.stdout.read()
        process.stdin.close()
    assert box.run(CONNECT, "%s,%d" % (OK4, ECHO)) == ["ECONNREFUSED"]


def test_nothing_passes_without_a_policy_and_with_one_it_does(egress):
    box = egress.box(None)
    kind, _ = box.receive()
    assert kind == HELLO
    process = box.start(HOLD, "%s,%d" % (OK4, DEAF))
    until(lambda: attempts(process), "the box waits for its connection")
    box.set(policy(FULL))
    assert process.stdout.readline() == "connected\n"
    process.stdin.close()
    process.wait()
    process.stdout.close()


def attempts(process):
    """Sockets of a program's namespace that wait for an answer to their SYN."""
    with open("/proc/%d/net/tcp" % process.pid) as f:
        return [line for line in f.read().splitlines()[1:] if line.split()[3] == "02"]


def test_a_policy_above_the_ceiling_is_none(world, kits):
    rule = ceiling(ALLOW, opened=["10.9.0.0/16"], allowed=[entry(OK4, 7000, 7010), entry("10.9.0.0/16", 80)])
    egress = Egress(BUILD, world, kits, rule)
    cases = [(policy(FULL), "ECONNREFUSED"), (policy(ALLOW, entry(OK4, ECHO)), "connected"),
             (policy(ALLOW, entry(OK4, ECHO), entry(OTHER4, ECHO)), "ECONNREFUSED"),
             (policy(ALLOW, entry(OK4, ECHO), entry("192.168.7.7", 80)), "ECONNREFUSED")]
    for rule, outcome in cases:
        box = egress.box(rule)
        assert box.run(CONNECT, "%s,%d" % (OK4, ECHO)) == [outcome]
    opened = egress.box(policy(ALLOW, entry("10.9.0.5", 80)))
    assert opened.run(CONNECT, "10.9.0.5,80") == ["connected"]
    world.forget()  # this visit was meant
    egress.end()


def test_a_new_egress_takes_over(world, kits, egress):
    box = egress.box(policy(FULL))
    target = "%s,%d" % (OK4, ECHO)
    assert box.run(CONNECT, target) == ["connected"]
    egress.process.kill()
    egress.process.wait()
    egress.boxes.remove(box)
    process = box.start(HOLD, target)
    until(lambda: attempts(process), "nobody answers")
    second = Egress(BUILD, world, kits)
    box.give(second)
    while box.receive()[0] != HELLO:
        pass
    assert process.poll() is None and attempts(process)
    box.set(policy(FULL))
    assert process.stdout.readline() == "connected\n"
    process.stdin.close()
    process.wait()
    process.stdout.close()
    second.end()


def test_a_killed_egress_ends_no_connection_cleanly(world, egress):
    """A clean end would make half an answer a whole one, and half a request. The control is a
    client that ends."""
    box = egress.box(policy(FULL))
    server = "import socket; l = socket.create_server((%r, 7010)); print('up', flush=True); s = l.accept()[0]\n" \
             "print(s.recv(9).decode(), flush=True)\n" \
             "try: print('closed' if not s.recv(1) else 'more')\n" \
             "except OSError as e: print('reset')" % OK4
    for end, heard in (("client", "closed"), ("egress", "reset")):
        with subprocess.Popen(world.world.enter() + [PYTHON, "-c", server], text=True, stdout=subprocess.PIPE) as outside:
            assert outside.stdout.readline() == "up\n"
            with box.start(DRAIN, OK4, 7010) as process:
                assert process.stdout.readline() == "connected\n" and outside.stdout.readline() == ".\n"
                (process if end == "client" else egress.process).kill()
                if end == "egress":
                    assert json.loads(process.stdout.read())["end"] == "ECONNRESET"
            assert outside.stdout.read() == heard + "\n"
    egress.process.wait()
    egress.boxes.remove(box)
    box.close()


def test_egress_is_confined(egress):
    status = dict(line.split(":", 1) for line in open("/proc/%d/status" % egress.process.pid))
    assert status["Seccomp"].strip() == ("0" if ASAN else "2")  # sanitizers need more calls
    assert status["NoNewPrivs"].strip() == "1"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert os.stat("/proc/%d/fd" % egress.process.pid).st_uid == 0  # not dumpable


def test_no_descriptor_left_is_a_connection_limit(world, kits):
    egress = Egress(BUILD, world, kits, words=["prlimit", "--nofile=64:64"])
    greedy, other = egress.box(policy(FULL), 1), egress.box(policy(FULL), 2)
    target = "%s,%d" % (OK4, DEAF)
    with greedy.start(HOLD, *[target] * 20) as process:
        outcomes = [process.stdout.readline() for _ in range(20)]
        assert outcomes[0] == "connected\n" and outcomes[-1] == "ECONNREFUSED\n"
        assert other.run(CONNECT, target) == ["connected"]
        process.stdin.close()
    assert rows(greedy.record(), reason="connection_limit")
    egress.end()


def test_names_are_resolved_pinned_and_refused(world, egress):
    box = egress.box(policy(ALLOW, entry("ok.example.com"), entry("*.wild.example.com", 80),
                            entry("private.example.com"), entry("mixed.example.com")))
    assert box.probe(["connect", OK4, 80], ["resolve", "ok.example.com"], ["connect", OK4, 80],
                     ["url", "https://ok.example.com/"], ["tcp", "a.wild.example.com", 80],
                     ["resolve", "other.example.org"], ["resolve", "private.example.com"],
                     ["resolve", "mixed.example.com"], ["connect", OK4, 8080]) == [
        "ECONNREFUSED", [OK6, OK4] if OK6 < OK4 else [OK4, OK6], "connected", "hello from %s" % OK4,
        "hello from %s" % OK4, "no such name", "no such name", [OK4], "ECONNREFUSED"]
    record = box.record()
    assert {(r["host"], r["reason"]) for r in rows(record, protocol="dns")} == {
        ("other.example.org", "not_listed"), ("private.example.com", "private")}
    assert rows(record, host="ok.example.com", port=443)[0]["allowed"]
    assert not world.arrived(world.seen["world"], kind="dns", name="other.example.org")


@pytest.mark.parametrize("over", ["udp", "tcp"])
def test_every_name_server_is_egress(world, egress, over):
    box = egress.box(policy(ALLOW, entry("ok.example.com")))
    got = box.probe(["dns", "8.8.8.8", "ok.example.com", 1, over], ["dns", "192.0.0.1", "ok.example.com", 16, over],
                    ["dns", OK6, "ok.example.com", 65, over], ["dns", "10.9.0.5", "evil.example.net", 1, over])
    assert [(a["code"], a["count"]) for a in got] == [(0, 1), (0, 1), (0, 0), (3, 0)]


def test_the_server_name_must_be_listed(egress):
    box = egress.box(policy(ALLOW, entry("ok.example.com", 443)))
    got = box.probe(["resolve", "ok.example.com"], ["tls", OK4, 443, "ok.example.com"],
                    ["tls", OK4, 443, "shared.example.org"], ["tls", OK4, 443, "ok.example.com", True])
    assert got[1] == "HTTP/1.0 200 OK" or got[1].startswith("HTTP/1."), got
    assert got[2:] == ["ECONNRESET", "ECONNRESET"]
    assert {(r["host"], r["reason"]) for r in rows(box.record(), allowed=False)} == {
        ("shared.example.org", "server_name"), ("ok.example.com", "unreadable_hello")}
    # the control: with the address listed nobody looks at the name
    control = egress.box(policy(ALLOW, entry(OK4, 443)))
    assert control.probe(["tls", OK4, 443, "shared.example.org"])[0].startswith("HTTP/1.")


def test_a_server_may_speak_first_where_a_name_is_listed(egress):
    box = egress.box(policy(ALLOW, entry("ok.example.com", SLOW)))
    with box.start(DRAIN, "ok.example.com", SLOW) as process:
        assert process.stdout.readline() == "connected\n"
        until(lambda: box.record()["received"] > 1 << 20, "bytes of the server")
        process.kill()


def test_the_rate_limits_bytes_per_second(egress):
    box = egress.box(policy(FULL, bytes_s=1 << 20))
    start = time.monotonic()
    assert box.run(BOTH_WAYS, OK4, COUNT)["up"]
    # three megabytes less a burst of a fifth of a second
    assert time.monotonic() - start > 2.5
    assert box.record()["received"] == MEGABYTES + 64


def test_a_box_with_many_connections_does_not_starve_another(egress):
    greedy, other = egress.box(policy(FULL), 1), egress.box(policy(FULL), 1)
    drains = [greedy.start(DRAIN, OK4, SLOW) for _ in range(6)]
    for process in drains:
        assert process.stdout.readline() == "connected\n"
    assert other.run(BOTH_WAYS, OK4, COUNT)["up"]
    for process in drains:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("resolves", [False, True])
def test_connections_go_through_the_upstream_proxy(world, kits, resolves):
    upstream = {"address": OK4, "port": 3128, "filters": 1, "resolves": int(resolves), "credentials": b"me:secret"}
    egress = Egress(BUILD, world, kits, ceiling(upstream=upstream))
    box = egress.box(policy(ALLOW, entry("ok.example.com"), entry("refused.example.com"), entry(OTHER4, 80),
                            entry(OK4, 9999, udp=True)))
    mark = world.mark()
    got = box.probe(["url", "http://ok.example.com/"], ["url", "https://ok.example.com/"], ["tcp", OTHER4, 80],
                    ["udp", OK4, 9999])
    assert got[1] == "hello from %s" % OK4 and got[2] == "hello from %s" % OTHER4
    assert got[0] == got[1] and got[3] == "EHOSTUNREACH"
    came = world.arrived(mark, kind="connect")
    assert {note["to"] for note in came} >= {"ok.example.com" if resolves else OK4, OTHER4}
    assert {note["user"] for note in came} == {"me:secret"}
    if resolves:
        assert box.probe(["connect", "refused.example.com", 443], ["connect", "198.18.9.9", 443]) == [
            "EHOSTUNREACH", "ECONNREFUSED"]
    egress.end()


def test_a_snapshot_begins_a_new_record(egress):
    box = egress.box(policy(FULL))
    with box.start(HOLD, "%s,%d" % (OK4, ECHO)) as process:
        assert process.stdout.readline() == "connected\n"
        assert box.record(1)["rows"][0]["count"] == 1
        assert box.record(2)["rows"] == []
        process.stdin.write("more\n")
        process.stdin.flush()
        assert process.stdout.readline() == "more\n"
        process.stdin.close()
    row = box.drop()["rows"][0]
    assert row["count"] == 0 and row["sent"] == 5 <= row["received"], row


def test_nobody_makes_egress_hold_a_record_for_ever(egress):
    """A server that reads nothing: the record waits, and the box is closed all the same."""
    box = egress.box(policy(FULL))
    for _ in range(300):
        box.channel.send(struct.pack("=II", SNAPSHOT, 1))
    egress.tell(DROP, box.number, 0)
    until(lambda: egress.descriptors() <= egress.quiet + 1, "the kit is closed")
