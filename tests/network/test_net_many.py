# SPDX-License-Identifier: Apache-2.0
"""Many boxes, and boxes that flood (a thousand with HERMES_FULL=1, `make test-network`): nothing is left, nobody else suffers."""
import concurrent.futures
import os
import re

import pytest

from apilib import descendants, descriptors_beside_groups, wait_until, wait_until_still
from netlib import OK4, OTHER4

FULL = os.environ.get("HERMES_FULL") == "1"
BOXES = 1000 if FULL else 40


def own_processes(server):
    """The server's processes, and whatever is in the control groups of its boxes, whoever its parent is now."""
    pids = set(descendants(server.process.pid))
    places = {pid: groups_text(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    tops = {top for pid in pids for top in re.findall(r"/(hermes-\w{32})/hermes-\w{32}", places.get(pid, ""))}
    assert len(tops) == 1, tops  # of this server; those of its boxes lie below
    return pids | {pid for pid, text in places.items() if tops & set(re.findall(r"hermes-\w{32}", text))}


def groups_text(pid):
    try:
        with open("/proc/%d/cgroup" % pid) as f:
            return f.read()
    except OSError:
        return ""


def namespaces(pids):
    """Network namespaces that these processes are in, and those that they hold open."""
    inside, held = set(), set()
    for pid in pids:
        try:
            inside.add(os.readlink("/proc/%d/ns/net" % pid))
            held |= {os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)}
        except OSError:
            pass  # it has ended
    return inside, {name for name in held if name.startswith("net:")}


def footprint(server, world):
    """What a server holds while it does nothing."""
    assert wait_until_still(server.process.pid)
    pids = [server.child(name) for name in ("hermes-egress", "hermes-spawn", "hermes-server")]
    own = own_processes(server)
    inside, held = namespaces(own)
    return {"descriptors": [descriptors_beside_groups(pid) for pid in pids],
            "processes": len(own), "namespaces": len(inside), "held": len(held),
            "links": world.links(world.host),
            "rules": world.host.run("cat", "/proc/net/nf_conntrack") if os.path.exists(
                "/proc/net/nf_conntrack") else ""}


def test_a_thousand_boxes_leave_nothing(box, world):
    def one(number):
        network = "full" if number % 2 else {"allow": ["v4.example.com:80"]}
        return box.one(network, "tcp", "v4.example.com", 80)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(40)))  # the pools are as large as they get
        before = footprint(box.server, world)
        outcomes = list(pool.map(one, range(BOXES)))
    assert set(outcomes) == {"hello from " + OK4}
    after = footprint(box.server, world)
    slack = 24  # namespaces and boxes that are kept ready
    assert after["links"] == before["links"] and after["rules"] == before["rules"]
    for name in ("processes", "namespaces", "held"):
        assert after[name] <= before[name] + slack, (before, after)
    for now, then in zip(after["descriptors"], before["descriptors"]):
        assert now <= then + slack, (before, after)
    look = "print(open('/proc/self/net/route').read().count('\\n'))"
    assert {box.run("none", "python", look)["stdout"] for _ in range(16)} == {"1\n"}


FLOODS = {
    "syn": """
import socket
while True:
    s = socket.socket(); s.setblocking(False)
    try: s.connect(("%s", 81))
    except OSError: pass
    s.close()
""" % OTHER4,
    "closed": """
import socket
while True:
    s = socket.socket(); s.setblocking(False)
    try: s.connect(("10.9.0.5", 80))
    except OSError: pass
    s.close()
""",
    "udp": """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try: s.sendto(b"x" * 1000, ("%s", 9999)); s.sendto(b"x", ("10.9.0.5", 9999))
    except OSError: pass
""" % OTHER4,
    "dns": """
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    name = os.urandom(8).hex().encode()
    try: s.sendto(b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\x10" + name + b"\\7example\\3com\\0\\0\\1\\0\\1", ("192.0.0.1", 53))
    except OSError: pass
""",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_does_not_stop_others(box, world, flood):
    """Two boxes flood until they are stopped; all that others want still works."""
    runs = [box.start("full", "python", FLOODS[flood]) for _ in range(2)]
    try:
        assert wait_until(lambda: box.server.running() >= 2)
        for _ in range(10):
            outcomes, _ = box.probe("full", ["tcp", "v4.example.com", 80], ["udp", OK4, 9999],
                                    ["connect", "10.9.0.5", 80])
            assert outcomes == ["hello from " + OK4, "echo:ping", "ECONNREFUSED"]
    finally:
        for run in runs:
            box.server("DELETE", "/v1/runs/" + run)
    for run in runs:
        answer = box.finish(run)
        assert answer["status"] == "cancelled" and answer["network"]["mode"] == "full"
    assert box.server.events("egress ended") == []
