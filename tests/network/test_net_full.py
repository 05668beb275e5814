# SPDX-License-Identifier: Apache-2.0
"""`"network": "none"` and `"full"`: public addresses only, and a box that is reached by nobody.

The network group of the attack cases (O-34 to O-40) is here, each against a listener that answers
without the barrier."""
import json

import pytest

from apilib import wait_until
from netlib import CLOSED, HOST4, HOST6, OK4, OK6, OTHER6, allowed, denied

HTTP = 80
ECHO = 9999
NOT_PUBLIC = {"ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EACCES", "EINVAL", "EPERM", "EADDRNOTAVAIL"}

EVERYWHERE = True  # conftest.py


# --- the control: from the host, without a box, everything answers

def test_every_closed_address_answers_the_host(world):
    addresses = list(CLOSED)
    assert world.probe(*(["tcp", a, HTTP] for a in addresses)) == ["hello from " + a for a in addresses]
    assert set(world.probe(*(["udp", a, ECHO] for a in addresses))) == {"echo:ping"}
    assert world.probe(["tcp", "127.0.0.1", 8000], ["tcp", "::1", 8000], ["tcp", HOST4, 8000],
                       ["tcp", HOST6, 8000], ["udp", "127.0.0.1", 8001]) == [
        "hello from 127.0.0.1", "hello from ::1", "hello from " + HOST4, "hello from " + HOST6,
        "echo:ping"]


# --- none

LOOK = """
import json, socket
def route():
    return open("/proc/self/net/route").read().count("\\n"), open("/proc/self/net/ipv6_route").read().count("\\n")
print(json.dumps([sorted(name for _, name in socket.if_nameindex()), route()]))
"""


def test_none_is_a_dead_end(box):
    """O-34"""
    outcomes, record = box.probe("none", ["connect", OK4, 80], ["connect", OK6, 80],
                                 ["resolve", "ok.example.com"], ["udp", OK4, ECHO])
    assert outcomes == ["ENETUNREACH", "ENETUNREACH", "no such name", "ENETUNREACH"]
    assert record is None
    assert json.loads(box.run("none", "python", LOOK)["stdout"])[0] == ["lo"]


def test_none_is_the_default(box):
    assert json.loads(box.server.run("python", LOOK).json()["stdout"])[0] == ["lo"]


def test_none_after_full_has_no_route(box):
    """Whatever pool a namespace came from: one that had a network never serves again."""
    first = box.run("none", "python", LOOK)["stdout"]
    for _ in range(8):
        assert box.one("full", "tcp", OK4, HTTP) == "hello from " + OK4
        for _ in range(3):
            assert box.run("none", "python", LOOK)["stdout"] == first
            assert box.one("none", "connect", OK4, 80) == "ENETUNREACH"


# --- full: what works

def test_full_reaches_public_addresses_and_names(box, world):
    outcomes, record = box.probe(
        "full", ["tcp", OK4, HTTP], ["tcp", OK6, HTTP], ["tcp", "v4.example.com", 8080],
        ["tcp", "v6.example.com", HTTP], ["udp", OK4, ECHO], ["udp", OTHER6, ECHO],
        ["url", "https://ok.example.com/"], ["tcp", "alias.example.com", HTTP])
    assert outcomes == ["hello from " + a for a in (OK4, OK6, OK4, OK6)] + ["echo:ping"] * 2 + [
        outcomes[6], "hello from " + OK4]
    assert outcomes[6] in ("hello from " + OK4, "hello from " + OK6)
    assert record["mode"] == "full" and not record["denied"] and record["more"] == 0
    rows = allowed(record)
    assert {("v4.example.com", OK4, 8080, "tcp"), ("v6.example.com", OK6, 80, "tcp"),
            (OTHER6, OTHER6, ECHO, "udp")} <= rows
    assert len(world.arrived(world.seen["world"], kind="udp")) == 2


def test_only_lo_exists_in_a_box_with_a_network(box):
    assert json.loads(box.run("full", "python", LOOK)["stdout"])[0] == ["lo"]


def test_bytes_are_counted_exactly(box):
    """A request of known length, an answer of known length."""
    code = """
import socket
s = socket.create_connection(("%s", 80))
s.sendall(b"GET /big-100000 HTTP/1.0\\r\\n\\r\\n")
n = 0
while piece := s.recv(65536):
    n += len(piece)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(("%s", 9999)); u.send(b"x" * 1000); assert len(u.recv(2000)) == 1005
print(n)
""" % (OK4, OK4)
    answer = box.run("full", "python", code)
    received = int(answer["stdout"])
    rows = {row["protocol"]: row for row in answer["network"]["allowed"]}
    assert (rows["tcp"]["sent"], rows["tcp"]["received"]) == (28, received)
    assert (rows["udp"]["sent"], rows["udp"]["received"]) == (1000, 1005)
    assert answer["network"]["sent"] == 1028 and answer["network"]["received"] == received + 1005


def test_nobody_listens_there(box):
    """The box is told what happened outside."""
    assert box.one("full", "connect", OK4, 81) == "ECONNREFUSED"


# --- full: what is closed (O-38, O-39)

@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_full_closes_every_range(box, protocol):
    addresses = list(CLOSED)
    port = HTTP if protocol == "tcp" else ECHO
    outcomes, record = box.probe("full", *([protocol, a, port] for a in addresses))
    assert set(outcomes) <= NOT_PUBLIC, list(zip(addresses, outcomes))
    assert denied(record) == {(a, port, protocol, CLOSED[a]) for a in addresses}
    assert not record["allowed"]


def test_other_spellings_of_closed_addresses(box):
    """IPv4 in IPv6 is IPv4; what cannot be routed at all is refused as well."""
    outcomes, record = box.probe(
        "full", ["connect", "::ffff:10.9.0.5", 80], ["connect", "::ffff:169.254.169.254", 80],
        ["connect", "::10.9.0.5", 80], ["connect", "::ffff:0:10.9.0.5", 80], ["connect", "224.0.0.1", 80],
        ["connect", "255.255.255.255", 80], ["connect", "ff02::1", 80], ["connect", "0.1.2.3", 80])
    assert set(outcomes) <= NOT_PUBLIC, outcomes
    assert ("10.9.0.5", 80, "tcp", "private") in denied(record)
    assert ("169.254.169.254", 80, "tcp", "metadata") in denied(record)
    assert box.one("full", "tcp", "::ffff:" + OK4, 80) == "hello from " + OK4


def test_zones_of_addresses_lead_nowhere(box, world):
    """An address with a zone names an interface. In a box that is lo; the host's neighbour answers the host."""
    attempts = [[kind, address, port] for address in ("fe80::5%1", "fe80::1%lo", "ff02::1%1", "fd00:9::5%1")
                for kind, port in (("connect", HTTP), ("udp", ECHO))]
    outcomes, record = box.probe("full", *attempts)
    assert set(outcomes) <= NOT_PUBLIC | {"timeout"}, list(zip(attempts, outcomes))
    assert record["allowed"] == []
    links = json.loads(world.world.run("ip", "-json", "-6", "addr", "show", "dev", "v1"))
    neighbour = [a["local"] for link in links for a in link.get("addr_info", ()) if a.get("scope") == "link"][0]
    assert world.probe(["connect", neighbour + "%v0", HTTP]) == ["connected"]


def test_the_host_is_closed(box):
    """O-35: its loopback is the box's own; its own addresses are closed."""
    outcomes, record = box.probe("full", *(["connect", a, 8000] for a in (
        "127.0.0.1", "::1", "0.0.0.0", "localhost", "127.9.9.9", "::ffff:127.0.0.1", HOST4, HOST6)),
        ["udp", HOST4, 8001], ["udp", "127.0.0.1", 8001])
    assert set(outcomes) <= NOT_PUBLIC, outcomes
    assert {(HOST4, 8000, "tcp", "host_address"), (HOST6, 8000, "tcp", "host_address"),
            (HOST4, 8001, "udp", "host_address")} <= denied(record)


def test_the_kit_itself_is_closed(box):
    """The addresses of the listeners are attempts like any other."""
    outcomes, _ = box.probe("full", ["connect", "192.0.0.1", 1], ["connect", "fd00:6865::1", 1],
                            ["connect", "192.0.0.1", 22], ["connect", "192.0.0.2", 8000],
                            ["connect", "fd00:6865::2", 8000])
    assert set(outcomes) <= NOT_PUBLIC, outcomes


# --- sockets that go past TCP and UDP (O-36, O-37)

RAW = r"""
import errno, json, socket
found = {}
for name, kind in {"ping": (2, 2, 1), "raw icmp": (2, 3, 1), "raw": (2, 3, 255), "packet": (17, 3, 0),
                   "packet dgram": (17, 2, 768), "sctp": (2, 1, 132), "udplite": (2, 2, 136),
                   "netlink netfilter": (16, 3, 12)}.items():
    try:
        socket.socket(*kind)
        found[name] = "open"
    except OSError as e:
        found[name] = errno.errorcode[e.errno]
for name, option in {"mark": (1, 36, 0x48), "transparent": (0, 19, 1), "device": (1, 25, b"lo\0")}.items():
    try:
        socket.socket().setsockopt(*option)
        found[name] = "set"
    except OSError as e:
        found[name] = errno.errorcode[e.errno]
try:
    open("/dev/net/tun")
    found["tun"] = "open"
except OSError as e:
    found["tun"] = errno.errorcode[e.errno]
print(json.dumps(found))
"""


def test_no_raw_sockets_with_a_network(box, world):
    found = json.loads(box.run("full", "python", RAW)["stdout"])
    assert not {name for name, end in found.items() if end in ("open", "set")} - {"device"}, found
    # the control: the host's root may
    control = json.loads(world.host.run("/usr/bin/python3", "-c", RAW))
    assert {"raw icmp", "raw", "packet"} <= {name for name, end in control.items() if end == "open"}
    assert control["mark"] == control["transparent"] == "set"


def test_abstract_unix_sockets_of_the_host(box, world):
    code = r"""
import socket
try:
    socket.socket(socket.AF_UNIX).connect("\0hermes-network-canary")
    print("connected")
except OSError as e:
    print(e.strerror)
"""
    listener = world.listen_abstract("hermes-network-canary")
    try:
        assert world.host.run("/usr/bin/python3", "-c", code) == "connected\n"
        assert box.run("full", "python", code)["stdout"] != "connected\n"
    finally:
        listener.kill()
        listener.wait()


def test_a_made_up_source_address_goes_nowhere(box, world):
    code = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(2)
    try:
        s.bind(("%s", 0)); s.connect(("%s", 9999)); s.send(b"x"); s.recv(1); print("answered")
    except OSError as e:
        print(type(e).__name__)
"""
    assert "answered" not in box.run("full", "python", code % ("8.8.8.8", OK4))["stdout"]
    assert not world.arrived(world.seen["world"], kind="packet", port=9999)
    # the control: the box's own address as source
    assert box.run("full", "python", code % ("192.0.0.2", OK4))["stdout"].endswith("answered\n")


# --- servers inside

def test_servers_of_a_box_work_for_itself(box):
    code = """
import socket
for family, own in ((socket.AF_INET, ("127.0.0.1", "192.0.0.2")), (socket.AF_INET6, ("::1", "fd00:6865::2"))):
    with socket.create_server(("", 8080), family=family) as s:
        for a in own:
            with socket.create_connection((a, 8080), 5) as c:
                s.accept()[0].sendall(b"mine"); print(c.recv(9).decode())
# one on a foreign address does not catch what is meant for outside
s = socket.create_server(("%s", 8080))
c = socket.create_connection(("%s", 8080), 5)
c.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(b"hello from" in c.makefile("rb").read())
""" % (OK4, OK4)
    assert box.run("full", "python", code)["stdout"] == "mine\n" * 4 + "True\n"


def test_nobody_reaches_a_server_in_a_box(box, world):
    """O-40: neither another box nor the host, while a server listens on all addresses."""
    code = """
import select, socket, urllib.error, urllib.request
servers = [socket.create_server(("", 7777), family=f) for f in (socket.AF_INET, socket.AF_INET6)]
urllib.request.urlopen("http://%s/listening")
while True:
    if select.select(servers, [], [], 0.02)[0]:
        print("reached"); break
    try:
        urllib.request.urlopen("http://%s/files/stop"); print("left alone"); break
    except urllib.error.HTTPError: pass
""" % (OK4, OK4)
    run = box.start("full", "python", code)
    assert wait_until(lambda: world.arrived(world.seen["world"], path="/listening"))
    others = ["192.0.0.2", "192.0.0.1", "fd00:6865::2", HOST4, "127.0.0.1", "::1"]
    attempts = [["connect", a, 7777, 3] for a in others]
    assert set(box.probe("full", *attempts)[0]) <= NOT_PUBLIC
    assert "connected" not in world.probe(*attempts)
    world.put("stop", b"")
    assert box.finish(run)["stdout"] == "left alone\n"


# --- limits

def test_connections_at_a_time(box):
    code = """
import socket
kept, refused = [], 0
for _ in range(9):
    try: kept.append(socket.create_connection(("%s", 80), 5))
    except ConnectionRefusedError: refused += 1
print(len(kept), refused)
kept.pop().close()
import time
for _ in range(500):
    try: socket.create_connection(("%s", 80), 5); print("again"); break
    except ConnectionRefusedError: time.sleep(0.01)
""" % (OK4, OK4)
    answer = box.run("full", "python", code, limits={"network_connections": 3})
    assert answer["stdout"] == "3 6\nagain\n"
    assert "network" in answer["limits_hit"]
    assert (OK4, 80, "tcp", "connection_limit") in denied(answer["network"])


def test_bytes_over_the_life_of_a_box(box):
    code = """
import socket
n = 0
try:
    s = socket.create_connection(("%s", 80), 5)
    s.sendall(b"GET /big-9000000 HTTP/1.0\\r\\n\\r\\n")
    while piece := s.recv(65536):
        n += len(piece)
    print("all")
except OSError as e:
    print(type(e).__name__)
print(n < 1500000)
try: socket.create_connection(("%s", 80), 5); print("again")
except OSError as e: print(type(e).__name__)
""" % (OK4, OK4)
    answer = box.run("full", "python", code, limits={"network_mb": 1})
    assert answer["stdout"].split("\n")[1:3] == ["True", "ConnectionRefusedError"], answer
    assert "network" in answer["limits_hit"]
    assert (OK4, 80, "tcp", "byte_limit") in denied(answer["network"])
    # the control: with more it all arrives
    answer = box.run("full", "python", code, limits={"network_mb": 50})
    assert answer["stdout"] == "all\nFalse\nagain\n" and answer["limits_hit"] == []


def test_rows_of_a_record_are_bounded(box):
    code = """
import socket
for port in range(1000, 1400):
    s = socket.socket(); s.settimeout(5)
    try: s.connect(("10.9.0.5", port))
    except OSError: pass
print("done")
"""
    record = box.run("full", "python", code)["network"]
    assert len(record["denied"]) == 256 and record["more"] == 144
