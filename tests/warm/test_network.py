# SPDX-License-Identifier: Apache-2.0
"""Network namespaces serve again (src/spawn/network/network.h), but only as new ones: whoever used the network
leaves nothing that the next can see."""
import json
import os
import subprocess

import pytest

from test_warm import COLD, return_dir, start, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made ahead for root only")

LOOK = """
import json, os
def read(name):
    try:
        return open("/proc/self/net/" + name).read()
    except OSError:
        return ""
print(json.dumps({"ns": os.readlink("/proc/self/ns/net"), "seen": {name: read(name) for name in (
    "snmp", "snmp6", "netstat", "dev", "tcp", "tcp6", "udp", "unix", "ip6_flowlabel", "igmp", "route", "fib_trie")}}))
"""
TRACES = {
    "tcp": """
import socket
s = socket.create_server(("127.0.0.1", 4000)); c = socket.create_connection(("127.0.0.1", 4000)); a, _ = s.accept()
c.sendall(b"x"); a.recv(1); a.close(); c.close()
""",
    "refused": """
import socket
try: socket.create_connection(("127.0.0.1", 1))
except OSError as e: print(e)
""",
    "udp": """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", 9))
""",
    "no route": """
import socket
for kind, to in ((socket.AF_INET, "10.1.2.3"), (socket.AF_INET6, "2001:db8::1")):
    try: socket.socket(kind, socket.SOCK_DGRAM).sendto(b"x", (to, 9))
    except OSError as e: print(e)
""",
    "tcp6 time wait": """
import socket
s = socket.create_server(("::1", 4000), family=socket.AF_INET6); c = socket.create_connection(("::1", 4000)); a, _ = s.accept()
c.close(); a.close()
""",
    "flow label": """
import socket, struct
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
# struct in6_flowlabel_req: destination, label, get, share with anybody, create, expires, linger
s.setsockopt(socket.IPPROTO_IPV6, 32, socket.inet_pton(socket.AF_INET6, "::1")
             + struct.pack("!I", 0x12345) + struct.pack("=BBHHHII", 0, 255, 1, 60, 60, 0, 0))
""",
    "sockets in flight": """
import array, socket
a, b = socket.socketpair()
for _ in range(8):
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno(), b.fileno()]))])
""",
}


@pytest.fixture(scope="module", params=["warm", "cold"])
def look(request):
    """A server with a box at a time, and how to look from one."""
    path, server = start(parked=0)
    env = COLD if request.param == "cold" else {}
    if request.param == "warm":
        assert wait_until(lambda: server.run("python", "pass").json()["isolation"]["start"] == "warm", 20)

    def run(code=LOOK):
        answer = server.run("python", code, env=env).json()
        assert answer["isolation"]["start"] == request.param
        assert answer["status"] == "ok", answer
        return json.loads(answer["stdout"]) if code == LOOK else answer
    yield run
    assert server.stop() == 0
    return_dir(path)


def test_a_namespace_serves_again(look):
    """Otherwise the tests below show nothing."""
    seen = [look()["ns"] for _ in range(20)]
    assert len(set(seen)) < len(seen)


@pytest.mark.parametrize("name", TRACES)
def test_what_one_did_another_does_not_see(look, name):
    new = look()["seen"]
    used = look(TRACES[name] + LOOK.replace("print(json", "print('\\n' + json"))
    used = json.loads(used["stdout"].splitlines()[-1])
    assert name == "sockets in flight" or used["seen"] != new, "the probe leaves no trace to look for"
    later = [look() for _ in range(12)]
    # Not by the number of the namespace: the kernel gives that of a dead one to the next.
    assert all(each["seen"] == new for each in later)


# In a namespace of its own: prints what of netstat changed while nothing of snmp and snmp6 did, and how often both did.
ALONE = """
import ctypes, fcntl, socket, struct, time
assert ctypes.CDLL(None).unshare(0x40000000) == 0
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x49))  # SIOCSIFFLAGS: up
V4, V6, NUMBER = socket.AF_INET, socket.AF_INET6, struct.Struct("i")

def read(*names):
    return [open("/proc/self/net/" + name).read() for name in names]

def attempt(call, *args):
    try:
        call(*args)
    except OSError:
        pass

def listen(s, lo):
    s.bind((lo, 0)), attempt(s.listen, 1), s.setblocking(False), attempt(s.accept)

def options(s, lo):
    for level in (0, 1, 6, 17, 41, 58, 255, 282, 284):
        for option in range(90):
            for value in (NUMBER.pack(0), NUMBER.pack(1), NUMBER.pack(1000), bytes(200)):
                attempt(s.setsockopt, level, option, value)

def shut(s, lo):
    for how in range(3):
        attempt(s.shutdown, how)
    attempt(s.send, b"x"), attempt(s.recv, 1)

def join(s, lo):
    if s.family == V4:
        attempt(s.setsockopt, 0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("224.0.0.251") + socket.inet_aton(lo))
    else:
        attempt(s.setsockopt, 41, socket.IPV6_JOIN_GROUP, socket.inet_pton(V6, "ff02::fb") + NUMBER.pack(1))

def connect(s, lo):
    s.setblocking(False)
    for to in lo, "192.0.2.1" if s.family == V4 else "2001:db8::1":
        attempt(s.connect, (to, 80)), attempt(s.sendto, b"x", (to, 80))

def send(s, lo):
    for to, data, flags in (lo, bytes(70000), 0), (lo, b"x", 0x20000000), ("224.0.0.1" if s.family == V4 else "ff02::1%lo", b"x", 0):
        attempt(s.sendto, data, flags, (to, 9))

both = 0
for act in (lambda s, lo: None, listen, options, shut, join, connect, send):
    for family, lo in (V4, "127.0.0.1"), (V6, "::1"):
        for kind, protocol in (socket.SOCK_STREAM, 0), (socket.SOCK_DGRAM, 0), (socket.SOCK_RAW, 1 if family == V4 else 58):
            known, other = read("snmp", "snmp6"), read("netstat")
            with socket.socket(family, kind, protocol) as s:
                act(s, lo)
            time.sleep(0.02)
            if other != read("netstat"):
                both += known != read("snmp", "snmp6")
                known != read("snmp", "snmp6") or print("alone:", act, family, kind)
print(both)
"""


def test_nothing_counts_in_netstat_alone():
    """So that need not be read."""
    got = subprocess.run(["/usr/bin/python3", "-c", ALONE], capture_output=True, text=True, timeout=60)
    assert got.returncode == 0, got.stderr
    assert "alone" not in got.stdout and int(got.stdout) > 0, got.stdout
