# SPDX-License-Identifier: Apache-2.0
"""`"network": {"allow": [...]}`: names, addresses, ranges and ports, and the ways around them."""
import json

import pytest

from apilib import wait_until
from netlib import CLOSED, OK4, OK6, OTHER4, allowed, denied

A, TXT, MX, AAAA, HTTPS, ANY = 1, 16, 15, 28, 65, 255
NO_NAME = 3
ALLOW = {"allow": ["ok.example.com", "v4.example.com:9999/udp", "*.wild.example.com:80",
                   OTHER4 + ":8080", "mixed.example.com", "rebind.example.com:80",
                   "private.example.com:80", "many.example.com:80"]}

EVERYWHERE = True  # conftest.py


def hello(address):
    return "hello from " + address


# --- what an entry permits

def test_entries_permit_what_they_say(box):
    outcomes, record = box.probe(
        ALLOW, ["tcp", "ok.example.com", 80], ["url", "https://ok.example.com/"],
        ["udp", "v4.example.com", 9999], ["tcp", "a.wild.example.com", 80], ["tcp", OTHER4, 8080])
    assert outcomes == [outcomes[0], outcomes[1], "echo:ping", hello(OK4), hello(OTHER4)]
    assert {outcomes[0], outcomes[1]} <= {hello(OK4), hello(OK6)}
    assert record["mode"] == "allow" and record["denied"] == []
    assert (OTHER4, OTHER4, 8080, "tcp") in allowed(record)


def test_another_port_name_or_protocol_is_not_listed(box, world):
    outcomes, record = box.probe(
        ALLOW, ["tcp", "ok.example.com", 8080], ["tcp", "other.example.org", 80],
        ["tcp", OTHER4, 80], ["udp", OTHER4, 9999], ["tcp", "wild.example.com", 80],
        ["udp", "ok.example.com", 9999])
    assert set(outcomes) <= {"ECONNREFUSED", "EHOSTUNREACH", "no such name"}, outcomes
    assert {("ok.example.com", 8080, "tcp", "not_listed"), (OTHER4, 80, "tcp", "not_listed"),
            (OTHER4, 9999, "udp", "not_listed")} <= denied(record)
    assert ("other.example.org", "dns", "not_listed") in {(h, p, r) for h, _, p, r in denied(record)}
    # a name for one protocol; in a box of its own, since names share an address here
    assert box.one(ALLOW, "tcp", "v4.example.com", 80) == "ECONNREFUSED"
    arrived = world.arrived(world.seen["world"])
    assert not [n for n in arrived if n["kind"] == "packet" and n["port"] != 53]
    assert "other.example.org" not in {n.get("name") for n in arrived}
    # the control: the host reaches all of them
    assert "no such name" not in world.probe(["tcp", "ok.example.com", 8080],
                                             ["tcp", "other.example.org", 80], ["tcp", OTHER4, 80])


def test_an_address_counts_only_after_its_name_was_asked(box):
    outcomes, record = box.probe(ALLOW, ["connect", OK4, 80], ["resolve", "ok.example.com"],
                                 ["tcp", OK4, 80])
    assert outcomes[0] == "ECONNREFUSED" and outcomes[2] == hello(OK4)
    assert (OK4, 80, "tcp", "not_listed") in denied(record)
    assert ("ok.example.com", OK4, 80, "tcp") in allowed(record)


def test_ranges_and_ports(box):
    entries = {"allow": ["45.33.32.0/28:80-90", "[2a01:4f8:1::/64]:8080", OK4 + ":9999/udp"]}
    outcomes, _ = box.probe(entries, ["tcp", OK4, 80], ["connect", OTHER4, 80], ["connect", OK4, 91],
                            ["connect", OK4, 90], ["tcp", OK6, 8080], ["connect", OK6, 80],
                            ["udp", OK4, 9999], ["udp", OK6, 9999])
    assert outcomes[:3] == [hello(OK4), "ECONNREFUSED", "ECONNREFUSED"]
    assert outcomes[4:7] == [hello(OK6), "ECONNREFUSED", "echo:ping"]
    assert outcomes[7] != "echo:ping"
    assert box.probe({"allow": [OK4 + ":*"]}, ["tcp", OK4, 8080])[0] == [hello(OK4)]


# --- closed ranges stay closed

def test_names_of_closed_addresses_do_not_resolve(box, world):
    names = {"private": "private", "meta": "metadata", "lo": "loopback", "zero": "this_network",
             "mapped": "private", "nat64": "not_global", "ula": "private", "shared-space": "shared",
             "alias-private": "private", "chain": "private", "compatible": "not_global",
             "translated": "not_global", "sixtofour": "6to4", "teredo": "reserved", "site": "private",
             "link": "link_local"}
    for network in ("full", {"allow": ["*.example.com:*"]}):
        outcomes, record = box.probe(
            network, *(["connect", name + ".example.com", 80] for name in names))
        assert set(outcomes) == {"no such name"}, list(zip(names, outcomes))
        found = {(host, reason) for host, _, protocol, reason in denied(record) if protocol == "dns"}
        assert found == {(n + ".example.com", reason) for n, reason in names.items()}
    # the control: the host resolves and reaches them
    assert "no such name" not in world.probe(*(["connect", n + ".example.com", 80] for n in names))


def test_answers_without_a_usable_address(box, world):
    """An alias of itself, and an IPv4 address in an answer for IPv6."""
    names = ["loop.example.com", "mapped-public.example.com"]
    outcomes, record = box.probe("full", *(["connect", name, 80] for name in names))
    assert outcomes == ["no such name"] * 2 and record["allowed"] == []
    assert {n["name"] for n in world.arrived(world.seen["world"], kind="dns")} == set(names)


def test_a_name_of_the_host_itself(box):
    outcomes, record = box.probe("full", ["connect", "own.example.com", 8000])
    assert outcomes[0] in ("ECONNREFUSED", "no such name")
    assert "host_address" in {reason for *_, reason in denied(record)}


def test_names_that_are_never_asked_outside(box, world):
    names = ["intranet", "printer.local", "metadata.google.internal", "x.home.arpa", "x.onion",
             "x.invalid", "x.test", "x.lan", "x.corp", "x.home"]
    outcomes, record = box.probe("full", *(["resolve", name] for name in names))
    assert set(outcomes) == {"no such name"}
    assert {host for host, *_ in denied(record)} >= set(names)
    assert not [n for n in world.arrived(world.seen["world"], kind="dns") if n["name"] in names]
    assert world.probe(["connect", "intranet", 80], ["connect", "printer.local", 80]) == ["connected"] * 2


def test_names_of_private_addresses_are_not_told(box, world):
    """The name server of the host knows which names stand for private addresses."""
    PTR = 12
    name = "5.0.9.10.in-addr.arpa"
    outcome = box.one("full", "dns", "9.9.9.9", name, PTR)
    assert outcome["count"] == 0
    assert not world.arrived(world.seen["world"], kind="dns", name=name)
    assert world.probe(["dns", "45.33.32.53", name, PTR])[0]["count"] == 1


def test_mixed_answers_keep_the_public_addresses(box):
    outcomes, _ = box.probe(ALLOW, ["resolve", "mixed.example.com"], ["tcp", "mixed.example.com", 80])
    assert outcomes == [[OK4], hello(OK4)]


def test_rebinding(box, world):
    """Public, private and loopback in turn, with TTL 0: only the public one is ever connected."""
    code = """
import socket
outcomes = {"connected": 0, "refused": 0}
for _ in range(30):
    try:
        socket.create_connection(("rebind.example.com", 80), 5).close(); outcomes["connected"] += 1
    except OSError: outcomes["refused"] += 1
print(outcomes["connected"], outcomes["refused"])
"""
    answer = box.run(ALLOW, "python", code)
    connected, refused = map(int, answer["stdout"].split())
    assert connected > 0 and refused > 0 and connected + refused == 30
    # The world's server notes a connection when it accepts it, which may be after the client has closed it.
    assert wait_until(lambda: len(world.arrived(world.seen["world"], kind="tcp", port=80)) >= connected)
    assert {n["to"] for n in world.arrived(world.seen["world"], kind="tcp", port=80)} == {OK4}
    assert {row["address"] for row in answer["network"]["allowed"]} == {OK4}


def test_a_redirect_is_a_new_connection(box, world):
    outcomes, record = box.probe(ALLOW, ["url", "http://ok.example.com/redirect-private"],
                                 ["url", "http://ok.example.com/redirect-other"])
    assert outcomes == ["ECONNREFUSED", "no such name"]
    assert ("10.9.0.5", 80, "tcp", "private") in denied(record)
    assert world.probe(["url", "http://ok.example.com/redirect-private"]) == [hello("10.9.0.5")]


# --- other resolvers

@pytest.mark.parametrize("over", ["udp", "tcp"])
@pytest.mark.parametrize("resolver", ["8.8.8.8", "192.0.0.1", "10.9.0.5", "2001:4860:4860::8888"])
def test_whatever_resolver_is_asked_ours_answers(box, world, resolver, over):
    outcomes, _ = box.probe(ALLOW, ["dns", resolver, "ok.example.com", A, over],
                            ["dns", resolver, "other.example.org", A, over],
                            ["dns", resolver, "data-in-a-name.example.net", A, over])
    assert (outcomes[0]["code"], outcomes[0]["count"]) == (0, 1)
    assert [o["code"] for o in outcomes[1:]] == [NO_NAME] * 2
    # nothing that is not listed is asked outside: no tunnel
    assert {n["name"] for n in world.arrived(world.seen["world"], kind="dns")} <= {"ok.example.com"}
    assert not [n for n in world.arrived(world.seen["world"], kind="packet") if n["to"] == resolver]


def test_types(box):
    """Records that carry addresses past the pins are empty; others are passed on."""
    outcomes, _ = box.probe(ALLOW, *(["dns", "192.0.0.1", "ok.example.com", kind] for kind in (
        TXT, MX, HTTPS, ANY, AAAA)))
    text, mail, hints, everything, v6 = outcomes
    assert text["count"] == 1 and b"some text".hex() in text["rest"]
    assert mail["count"] == 1 and mail["extra"] == 0 and "0a090005" not in mail["rest"]
    assert (hints["code"], hints["count"]) == (everything["code"], everything["count"]) == (0, 0)
    assert v6["count"] == 1


def test_long_answers_come_over_tcp(box):
    outcomes, _ = box.probe(ALLOW, ["dns", "192.0.0.1", "many.example.com", A],
                            ["dns", "192.0.0.1", "many.example.com", A, "tcp"],
                            ["resolve", "many.example.com"])
    assert outcomes[0]["cut"] and outcomes[0]["count"] == 0
    assert outcomes[1]["count"] == 32
    assert len(outcomes[2]) == 32


def test_dns_over_https_is_a_connection_like_any_other(box):
    outcomes, record = box.probe(ALLOW, ["connect", "8.8.8.8", 443], ["connect", "1.1.1.1", 853])
    assert outcomes == ["ECONNREFUSED"] * 2
    assert {("8.8.8.8", 443, "tcp", "not_listed"), ("1.1.1.1", 853, "tcp", "not_listed")} <= denied(record)


# --- names of TLS servers

def test_server_names(box, world):
    """A neighbour on the same address is seen by its name in the hello."""
    resolve = ["resolve", "ok.example.com"]
    outcomes, record = box.probe(
        {"allow": ["ok.example.com"]}, resolve, ["tls", OK4, 443, "ok.example.com"],
        ["tls", OK4, 443, "shared.example.org"], ["tls", OK4, 443, "ok.example.com", True])
    assert outcomes[1] == "HTTP/1.1 200 OK"
    assert outcomes[2] in ("ECONNRESET", "SSLEOFError", "SSLZeroReturnError") or "EOF" in outcomes[2]
    assert outcomes[3] in ("ECONNRESET", "closed")
    reasons = {(host, reason) for host, _, _, reason in denied(record)}
    assert ("shared.example.org", "server_name") in reasons
    assert "unreadable_hello" in {reason for _, reason in reasons}
    assert {n["name"] for n in world.arrived(world.seen["world"], kind="sni")} == {"ok.example.com"}
    # the control: with both names listed, and from the host
    both = {"allow": ["ok.example.com", "shared.example.org"]}
    assert box.probe(both, resolve, ["tls", OK4, 443, "shared.example.org"])[0][1] == "HTTP/1.1 200 OK"
    assert world.probe(["tls", OK4, 443, "shared.example.org"],
                       ["tls", OK4, 443, "ok.example.com", True]) == ["HTTP/1.1 200 OK", "answered"]


def test_servers_that_speak_first(box, world):
    """Nothing waits for a hello that never comes: only 443 is TLS, and a client may say nothing."""
    code = """
import socket
s = socket.create_connection(("ok.example.com", 80), 5)
s.sendall(b"G"); s.sendall(b"ET / HTTP/1.0\\r\\n\\r\\n")
print(s.makefile("rb").read().split(b"\\r\\n")[0].decode())
"""
    assert box.run({"allow": ["ok.example.com"]}, "python", code)["stdout"] == "HTTP/1.1 200 OK\n"


# --- requests

@pytest.mark.parametrize("entry", ["", "a b", "ok.example.com:0", "ok.example.com:99999", "*.", "*",
                                   "ok.example.com:80-70", "1.2.3.4/33", "[::1", "x/sctp", "1.2.3.256",
                                   "a..b", "http://ok.example.com"])
def test_bad_entries_are_quoted(box, entry):
    reply = box.ask({"allow": [entry]}, "python", "print(1)")
    assert reply.status == 400, reply
    assert entry in json.loads(reply.body)["error"]["message"]


@pytest.mark.parametrize("entry", ["10.9.0.5:80", "10.0.0.0/8", "0.0.0.0/0", "127.0.0.1:*",
                                   "169.254.169.254:80", "[fd00::/8]", "[::/0]"])
def test_closed_entries_are_refused_before_anything_runs(box, entry):
    reply = box.ask({"allow": [entry]}, "python", "print(1)")
    assert reply.status == 403, reply
    assert entry in json.loads(reply.body)["error"]["message"]


def test_a_mapped_entry_is_the_address_in_it(box):
    reply = box.ask({"allow": ["[::ffff:10.0.0.1]:80"]}, "python", "print(1)")
    assert reply.status == 403 and "10.0.0.1" in json.loads(reply.body)["error"]["message"]


def test_ask_without_anybody_to_ask(box):
    outcomes, record = box.probe({"ask": ["v4.example.com:80"]}, ["tcp", "v4.example.com", 80], ["connect", OTHER4, 80])
    assert outcomes == [hello(OK4), "ECONNREFUSED"]
    assert denied(record) == {(OTHER4, 80, "tcp", "approval_unavailable")}


def test_closed_ranges_of_full_are_those_of_allow(box):
    """An allow list that names everything by name is not wider than full."""
    outcomes, _ = box.probe({"allow": ["*.example.com:*"]},
                            *(["connect", address, 80] for address in CLOSED))
    assert set(outcomes) <= {"ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"}
