# SPDX-License-Identifier: Apache-2.0
"""A network namespace that served one key does not serve another key, unless share_networks says so
(src/spawn/network/network.h)."""
import json
import os

import pytest

from test_warm import COLD, return_dir, start, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made ahead for root only")

KEYS = ("key-a", "key-b")
# The cookie of a namespace is never given to another one, unlike its inode number (SO_NETNS_COOKIE, Linux 5.14).
LOOK = """
import json, socket, struct
with socket.socket(socket.AF_UNIX) as s:
    cookie = struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, 71, 8))[0]
print(json.dumps({"cookie": cookie, "dev": open("/proc/self/net/dev").read(), "tcp": open("/proc/self/net/tcp").read()}))
"""
# Leaves counters of the interface and a socket in TIME_WAIT.
TRACE = """
import socket
s = socket.create_server(("127.0.0.1", 4000)); c = socket.create_connection(("127.0.0.1", 4000)); a, _ = s.accept()
c.sendall(b"x"); a.recv(1); a.close(); c.close()
"""


@pytest.fixture(params=["warm", "parked", "cold"])
def serve(request):
    """Makes a server and a function that looks from a box of a key."""
    made = []

    def make(**settings):
        path, server = start(parked=2 if request.param == "parked" else 0, api_keys=",".join(KEYS), **settings)
        made.append((path, server))
        env = COLD if request.param == "cold" else {}

        def look(key, before=""):
            answer = server.run("python", before + LOOK, key=key, env=env).json()
            assert answer["status"] == "ok", answer
            return json.loads(answer["stdout"])
        if request.param != "cold":
            assert wait_until(lambda: server.run("python", "pass", key=KEYS[0]).json()["isolation"]["start"] == "warm", 20)
        return look
    yield make
    for path, server in made:
        assert server.stop() == 0
        return_dir(path)


def seen_by(look, rounds=12):
    """The namespaces of each key's boxes, whose runs alternate."""
    found = [[look(key)["cookie"] for key in KEYS] for _ in range(rounds)]
    return [[pair[i] for pair in found] for i in range(2)]


def test_a_namespace_serves_one_key(serve):
    first, second = seen_by(serve())
    assert len(set(first)) < len(first) and len(set(second)) < len(second)  # each serves its key again
    assert not set(first) & set(second)


def test_a_namespace_may_be_shared(serve):
    """The control of the test above: with the setting on, the same look finds one namespace in boxes of both keys."""
    first, second = seen_by(serve(share_networks="true"))
    assert set(first) & set(second)


def test_a_trace_of_one_key_is_not_seen_by_another(serve):
    look = serve()
    new = look(KEYS[0])
    used = look(KEYS[0], TRACE)
    assert used["dev"] != new["dev"] and used["tcp"] != new["tcp"]  # the control: there is something to see
    for _ in range(8):
        later = look(KEYS[1])
        assert (later["dev"], later["tcp"]) == (new["dev"], new["tcp"]) and later["cookie"] != used["cookie"]
