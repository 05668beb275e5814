# SPDX-License-Identifier: Apache-2.0
"""Boxes that are ready before a request comes: some have a kit, once a network was asked for, and no box without a
network ever gets one of these."""
import contextlib
import os
import signal

import pytest

from apilib import children, name_of, wait_until, wait_until_still
from netlib import OK4, OTHER4

LOOK = "print('0.0.0.0/0' in open('/proc/self/net/fib_trie').read())"


@contextlib.contextmanager
def stopped_helpers(server):
    """Nobody makes or installs a kit meanwhile."""
    pids = [pid for pid in children(server.child("hermes-spawn")) if name_of(pid) == "hermes-network"]
    assert len(pids) == 2, pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the spawner replaces a helper that hangs
                os.kill(pid, signal.SIGCONT)


def has_route(boxes, network):
    answer = boxes.run(network, "python", LOOK)
    return answer["stdout"] == "True\n", answer["isolation"]["start"]


@pytest.fixture
def boxes(make_boxes):
    boxes = make_boxes(parked=4)
    for network in ("full", {"allow": [OK4]}, "full"):
        assert has_route(boxes, network)[0]
    assert wait_until_still(boxes.server.process.pid)
    return boxes


def test_a_ready_box_has_its_kit_before_the_request(boxes, world):
    """With the helpers stopped only a kit that was there before can work. A zygote may be replaced just then, with its
    ready boxes; such a try does not count."""
    def works_without_helpers():
        assert has_route(boxes, "full")[0]  # control; and both helpers are there
        assert wait_until_still(boxes.server.process.pid)
        with stopped_helpers(boxes.server):
            if boxes.ask("full", "python", LOOK).status != 200:
                return False
            assert boxes.one({"allow": [OK4]}, "connect", OTHER4, 80) == "ECONNREFUSED"
            # the others are ready as before, and have nothing
            assert [has_route(boxes, "none") for _ in range(2)] == [(False, "warm")] * 2
            return True
    assert wait_until(works_without_helpers, 60)
    assert boxes.one("full", "tcp", OK4, 80) == "hello from " + OK4


def test_no_box_without_a_network_gets_a_kit(boxes):
    """Runs with and without one take turns, one after the other and at once; the control is the run with one."""
    for _ in range(12):
        assert has_route(boxes, "full")[0]
        assert not has_route(boxes, "none")[0]
        assert not has_route(boxes, "none")[0]
    plain = [boxes.start("none", "python", LOOK) for _ in range(12)]
    networked = [boxes.start("full", "python", LOOK) for _ in range(12)]
    plain += [boxes.start("none", "python", LOOK) for _ in range(12)]
    assert {boxes.finish(run)["stdout"] for run in plain} == {"False\n"}
    assert {boxes.finish(run)["stdout"] for run in networked} == {"True\n"}


def test_a_session_without_a_network_gets_no_kit(make_boxes):
    server = make_boxes(session_parked=2).server

    def session(network):
        made = server("POST", "/v1/sessions", {"language": "python", "network": network})
        assert made.status == 201, made
        at = "/v1/sessions/" + made.json()["id"]
        seen = server("POST", at + "/exec", {"code": LOOK}).json()["stdout"]
        assert server("DELETE", at).status in (200, 204)
        return seen
    for _ in range(4):
        assert session("full") == "True\n"
        assert wait_until_still(server.process.pid)
        assert session("none") == "False\n"
        assert session("none") == "False\n"
