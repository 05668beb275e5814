# SPDX-License-Identifier: Apache-2.0
"""The operator's ceiling: what settings open and close, and the upstream proxy."""
import pytest

from netlib import OK4, OTHER4, denied

HELLO = "hello from "


def test_network_max_none_starts_no_egress(make_boxes):
    boxes = make_boxes(network_max="none")
    assert boxes.ask("full", "python", "print(1)").status == 403
    assert boxes.ask({"allow": [OK4]}, "python", "print(1)").status == 403
    assert boxes.run("none", "python", "print(1)")["stdout"] == "1\n"
    assert boxes.server.child("hermes-egress") is None


def test_network_max_allow(make_boxes):
    boxes = make_boxes(network_max="allow", network_allowed="*.example.com:80," + OTHER4)
    assert boxes.ask("full", "python", "print(1)").status == 403
    assert boxes.ask({"allow": ["ok.example.com:443"]}, "python", "print(1)").status == 403
    assert boxes.ask({"allow": [OK4]}, "python", "print(1)").status == 403
    assert boxes.one({"allow": ["v4.example.com:80"]}, "tcp", "v4.example.com", 80) == HELLO + OK4
    assert boxes.one({"allow": [OTHER4 + ":80"]}, "tcp", OTHER4, 80) == HELLO + OTHER4


def test_allow_network_of_the_compatible_runner_is_full(make_boxes):
    code = "import socket\ntry: print(socket.create_connection((%r, 80), 8).getpeername()[0])\n" \
           "except OSError as e: print(e.strerror)"

    def said(boxes, address, **fields):
        reply = boxes.server("POST", "/run", dict(code=code % address, **fields))
        return reply.json()["stdout"].strip() if reply.status == 200 else reply.status
    boxes = make_boxes()
    assert said(boxes, OK4, allow_network=True) == OK4
    assert said(boxes, "10.9.0.5", allow_network=True) == "Connection refused"
    assert said(boxes, OK4) == said(boxes, OK4, allow_network=False) == "Network is unreachable"
    boxes = make_boxes(network_max="allow", default_allow_network="true")
    assert said(boxes, OK4, allow_network=True) == said(boxes, OK4) == 403
    assert said(boxes, OK4, allow_network=False) == "Network is unreachable"


def test_an_opened_range_must_be_listed(make_boxes, world):
    boxes = make_boxes(network_open="10.9.0.0/24")
    listed = {"allow": ["10.9.0.0/25:80", "private.example.com:8080"]}
    outcomes, record = boxes.probe(listed, ["tcp", "10.9.0.5", 80], ["tcp", "private.example.com", 8080],
                                   ["connect", "192.168.7.7", 80])
    assert outcomes == [HELLO + "10.9.0.5", HELLO + "10.9.0.5", "ECONNREFUSED"]
    world.forget()  # these came by the operator's leave
    assert boxes.one("full", "connect", "10.9.0.5", 80) == "ECONNREFUSED"
    assert boxes.ask({"allow": ["10.9.0.0/16:80"]}, "python", "print(1)").status == 403
    assert ("192.168.7.7", 80, "tcp", "private") in denied(record)


def test_ranges_and_names_closed_in_addition(make_boxes, world):
    boxes = make_boxes(network_closed=OTHER4 + "/32", network_closed_names="wild.example.com")
    outcomes, record = boxes.probe(
        "full", ["connect", OTHER4, 80], ["connect", "other.example.org", 80],
        ["connect", "a.wild.example.com", 80], ["connect", "wild.example.com", 80], ["tcp", OK4, 80])
    assert outcomes == ["ECONNREFUSED", "no such name", "no such name", "no such name", HELLO + OK4]
    assert (OTHER4, 80, "tcp", "closed_by_operator") in denied(record)
    assert boxes.ask({"allow": [OTHER4]}, "python", "print(1)").status == 403
    assert not world.arrived(world.seen["world"], kind="dns", name="a.wild.example.com")


@pytest.fixture
def credentials(world):
    path = world.dir / "credentials"
    path.write_text("user:word\n")
    path.chmod(0o600)
    return path


def test_upstream_proxy_with_local_names(make_boxes, world, credentials):
    """Addresses are classed here; the proxy is asked for the address."""
    boxes = make_boxes(network_upstream="http://%s:3128" % OK4, network_upstream_filters="true",
                       network_upstream_credentials=credentials)
    outcomes, _ = boxes.probe("full", ["tcp", "other.example.org", 80], ["connect", "10.9.0.5", 80],
                              ["connect", "private.example.com", 80], ["udp", OK4, 9999])
    assert outcomes[0] == HELLO + OTHER4
    assert outcomes[1:3] == ["ECONNREFUSED", "no such name"] and outcomes[3] != "echo:ping"
    asked = world.arrived(world.seen["world"], kind="connect")
    assert [(n["to"], n["port"], n["user"]) for n in asked] == [(OTHER4, 80, "user:word")]


def test_upstream_proxy_that_resolves(make_boxes, world):
    """Names get stand-in addresses, and the proxy is asked for the name."""
    boxes = make_boxes(network_upstream="http://%s:3128" % OK4, network_upstream_resolves="true",
                       network_max="allow",
                       network_allowed="*.example.org:80,*.example.com:80")
    listed = {"allow": ["other.example.org:80", "refused.example.com:80"]}
    outcomes, record = boxes.probe(
        listed, ["resolve", "other.example.org"], ["tcp", "other.example.org", 80],
        ["connect", "refused.example.com", 80], ["connect", "198.18.77.77", 80])
    assert outcomes[0][0].startswith("198.1") and outcomes[1] == HELLO + OTHER4
    assert outcomes[2] in ("EHOSTUNREACH", "ECONNREFUSED") and outcomes[3] == "ECONNREFUSED"
    asked = {n["to"] for n in world.arrived(world.seen["world"], kind="connect")}
    assert asked == {"other.example.org", "refused.example.com"}
    assert "other.example.org" in {row["host"] for row in record["allowed"]}
    assert not world.arrived(world.seen["world"], kind="dns")


def test_upstream_proxy_that_does_not_filter_and_full(make_boxes):
    """`full` would be as open as the proxy."""
    with pytest.raises(AssertionError, match="network_upstream_filters"):
        make_boxes(network_upstream="http://%s:3128" % OK4)
