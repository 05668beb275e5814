# SPDX-License-Identifier: Apache-2.0
"""hermes-network (src/kit): namespaces and kits, in every deployment, and what happens when a part of a
kit fails. kit_driver.py stands in for the spawner and for hermes-egress."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from runlib import BUILD

LIB = pathlib.Path(__file__).resolve().parents[1] / "lib"
PARTS = ["namespace", "loopback", "routes", "IPv6", "nf_tables", "nft_limit", "nft_log", "nft_tproxy",
         "nfnetlink_log", "listeners", "raw"]
PYTHON = "/usr/bin/python3"  # any user may execute it
CAPS = "-net_admin,-net_raw,-net_bind_service"
PREFIX = {
    "root": [],
    "root without network capabilities": ["setpriv", "--inh-caps=" + CAPS, "--bounding-set=" + CAPS],
    "user": ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "unshare", "-U", "-r"],
}
NETWORKED = ["::1", "fd00:6865::2", "192.0.0.2", "everywhere"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")


@pytest.fixture(scope="module")
def place():
    """The programs where another user can read them: not below pytest's own directory, which each pytest that
    starts closes to others again."""
    with tempfile.TemporaryDirectory(prefix="hermes-kit-") as name:
        place = pathlib.Path(name)
        place.chmod(0o755)
        shutil.copy(BUILD / "hermes-network", place)
        shutil.copy(BUILD / "tests/hermes-network-faulty", place)
        shutil.copy(LIB / "kit_driver.py", place)
        yield place


def drive(place, deployment, *cases, program="hermes-network"):
    done = subprocess.run([*PREFIX[deployment], PYTHON, place / "kit_driver.py", place / program, *cases],
                          stdout=subprocess.PIPE, check=True, timeout=240)
    seen = json.loads(done.stdout)
    assert seen["exit"] == 0
    return seen


def check_kit(seen):
    """A whole kit, from an attempt without one to a connection that passes."""
    assert seen["install"]["error"] == "" and seen["install"]["has_v6"]
    assert seen["before"] == "ENETUNREACH"  # the control
    for name, address, own in (("tcp4", "203.0.113.10", "192.0.0.2"), ("tcp6", "2001:db8::10", "fd00:6865::2")):
        assert seen[name] == {"to": [address, 80], "from": own, "got": "hello", "gated": True,
                              "client": ["answer", own]}
    for name, address, own in (("udp4", "203.0.113.10", "192.0.0.2"), ("udp6", "2001:db8::10", "fd00:6865::2")):
        assert seen[name] == {"to": [address], "from": own, "got": "datagram", "client": len("datagram")}
    # both were sent; the one with the made-up source never arrives
    assert seen["spoofed"] == {"sent": [8, 8], "arrived": "203.0.113.12", "more": False}
    assert seen["mark"] == 0x48
    assert seen["closed"] == NETWORKED  # the sockets are gone, the rest stays: never use it again


@pytest.mark.parametrize("deployment", PREFIX)
@pytest.mark.parametrize("case", ["kit", "kit by pidfd", "kit below a zygote"])
def test_kit_of_a_box(place, deployment, case):
    check_kit(drive(place, deployment, case)[case])


def test_who_owns_the_namespace_decides(place):
    """The same namespace, owned by the host's user namespace: only its network capabilities help."""
    case = "kit of the host's"
    check_kit(drive(place, "root", case)[case])  # the control
    refused = drive(place, "root without network capabilities", case)[case]["install"]
    assert (refused["error"], refused["part"]) == ("EPERM", "loopback")


@pytest.mark.parametrize("deployment", PREFIX)
def test_namespaces_made_ahead(place, deployment):
    seen = drive(place, deployment, "made")["made"]
    assert seen["plain"] == ["::1"] and seen["ready"] == NETWORKED
    assert seen["served"]["to"] == ["203.0.113.10", 80] and seen["served"]["client"] == ["answer", "192.0.0.2"]
    assert seen["no route"] == "ENETUNREACH" and seen["loopback"] == 8
    assert seen["fresh"] and not seen["used"]  # the datagram to loopback came between
    assert not seen["forgotten"]["is_fresh"]


@pytest.mark.parametrize("deployment", PREFIX)
def test_probe_finds_everything(place, deployment):
    seen = drive(place, deployment, "probe")["probe"]
    assert (seen["error"], seen["missing"], seen["has_v6"]) == ("", [], True)


def test_a_used_kit_cannot_be_told_from_a_new_namespace(place):
    """Why the spawner throws such a namespace away (tests/spawner/test_egress.py shows that it does): the
    inspection would give it to a box without a network, which would have a route."""
    seen = drive(place, "root", "trap")["trap"]
    assert seen == {"fresh": True, "routes": NETWORKED}


def test_without_ipv6(place):
    seen = drive(place, "root", "no v6")["no v6"]
    assert seen["install"]["error"] == "" and not seen["install"]["has_v6"]
    assert seen["served"]["client"] == ["answer", "192.0.0.2"]
    assert seen["v6"] == "EADDRNOTAVAIL"


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_fail(place, part):
    """Whatever part fails, there is no kit, and its name is told. The faulty program without a fault is
    the control."""
    fault = place / "kit-fault"
    fault.write_text(str(PARTS.index(part)))
    try:
        seen = drive(place, "root", "kit", "made", "probe", program="hermes-network-faulty")
    finally:
        fault.unlink()
    made = seen["made"].get("ready", seen["made"]["plain"] if part == "namespace" else None)
    for failed in (seen["kit"]["install"], made, seen["probe"]):
        assert (failed["error"], failed["part"]) == ("EIO", part)
    assert seen["probe"]["missing"] == [part]
    check_kit(drive(place, "root", "kit", program="hermes-network-faulty")["kit"])
