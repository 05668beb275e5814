# SPDX-License-Identifier: Apache-2.0
"""What networks cost: a run that may connect and does not, a run beside a hermes-egress that it does not
use, and connections through hermes-egress against direct ones."""
import json
import os
import subprocess

from apilib import BUILD
from egresslib import FULL, Egress, Kits, policy
from netlib import OK4, PYTHON, World
from over_http import Kept, Serving, timed
from warm import HELLO, bare_ms, wait_until_warm

BASH = {"language": "bash", "code": "echo hello\n"}
LISTED = {"allow": ["ok.example.com"]}
PORT = 7000
CONNECTS, TURNS, MIB = 20, 50, 64

# A host of the world. The first byte of a connection says what it is for.
PEER = r'''
import socket, sys, threading
buffer = bytes(1 << 20)

def serve(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    into = bytearray(1 << 20)
    kind = s.recv(1)
    if kind == b"t":    # turns: every byte comes back
        while s.recv_into(into, 1):
            s.sendall(into[:1])
    elif kind == b"u":  # up: all that comes, then one byte
        while s.recv_into(into):
            pass
        s.sendall(b"x")
    elif kind == b"d":  # down: as many MiB as the next byte says
        for _ in range(s.recv(1)[0]):
            s.sendall(buffer)
    s.close()

def listen():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

listener = socket.create_server(("", int(sys.argv[1])), backlog=512)
threading.Thread(target=listen, daemon=True).start()
print("up", flush=True)
sys.stdin.read()  # ends when whoever started it ends
'''

# Reads words from standard input, answers each with the milliseconds that it took.
CLIENT = r'''
import socket, sys, time
host, port, connects, turns, mib = sys.argv[1], *map(int, sys.argv[2:])
buffer, into = bytes(1 << 20), bytearray(1 << 20)

def connected(kind):
    s = socket.create_connection((host, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(kind)
    return s

def connect():
    """One connection; the mean of some. Each ends on both sides before the next."""
    taken = 0
    for _ in range(connects):
        start = time.perf_counter()
        s = socket.create_connection((host, port))
        taken += time.perf_counter() - start
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""
        s.close()
    return taken / connects

def turn():
    """A byte there and back on an open connection; the mean of some."""
    with connected(b"t") as s:
        start = time.perf_counter()
        for _ in range(turns):
            s.sendall(b"x")
            assert s.recv(1) == b"x"
        return (time.perf_counter() - start) / turns

def up():
    with connected(b"u") as s:
        start = time.perf_counter()
        for _ in range(mib):
            s.sendall(buffer)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b"x"
        return time.perf_counter() - start

def down():
    with connected(b"d") as s:
        start, size = time.perf_counter(), 0
        s.sendall(bytes([mib]))
        while got := s.recv_into(into):
            size += got
        assert size == mib << 20
        return time.perf_counter() - start

for line in sys.stdin:
    print(globals()[line.strip()]() * 1000, flush=True)
'''


def in_turns(bench, ours, theirs):
    """The times of both. The bare interpreter runs before each: parked boxes are there again, and both
    find the same caches."""
    from run import interleave
    times = interleave(bench.rounds * 3, bare_ms, ours, bare_ms, theirs)
    return times[1], times[3]


def network_unused(bench):
    """Runs with a network that they do not use, against the same runs without one."""
    from run import row
    with Serving(HERMES_PARKED="16") as server:
        wait_until_warm(server)
        conn = Kept(server)
        for name, body, network in (("python warm", HELLO, "full"), ("python warm", HELLO, LISTED),
                                    ("bash", BASH, "full")):
            without, with_it = (json.dumps(one).encode() for one in (body, dict(body, network=network)))
            ours, theirs = in_turns(bench, lambda: timed(conn, with_it), lambda: timed(conn, without))
            mode = network if network == "full" else "allow"
            yield row("%s, unused %s" % (name, mode), ours, theirs, 1.5, note="than without network")
        conn.close()


def network_beside(bench):
    """Runs without network on a server that can give one (network_max=full), against one that cannot (none)."""
    from run import row
    with Serving(HERMES_PARKED="16", HERMES_NETWORK_MAX="full") as able, \
            Serving(HERMES_PARKED="16", HERMES_NETWORK_MAX="none") as unable:
        if not able.child("hermes-egress") or unable.child("hermes-egress"):
            raise RuntimeError("hermes-egress")
        for server in (able, unable):
            wait_until_warm(server)
        kept = Kept(able), Kept(unable)
        for name, body in (("python warm", HELLO), ("bash", BASH)):
            text = json.dumps(body).encode()
            ours, theirs = in_turns(bench, lambda: timed(kept[0], text), lambda: timed(kept[1], text))
            yield row("%s beside egress" % name, ours, theirs, 1.1, note="network_max full than none")
        for conn in kept:
            conn.close()


class Outside(World):
    """The world of the tests of networks with one host that answers quickly. The test's own servers watch
    every packet, which would be half of the measurement."""

    def make_certificates(self):
        pass

    def serve(self, mode, namespace):
        if mode == "world":
            self.started.append(start(namespace.enter() + [PYTHON, "-c", PEER, str(PORT)]))
            assert self.started[-1].stdout.readline() == "up\n"


def start(words):
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(client, word):
    client.stdin.write(word + "\n")
    client.stdin.flush()
    answer = client.stdout.readline()
    if not answer:
        raise RuntimeError("%s failed in the client" % word)
    return float(answer)


def through(bench, world, box):
    from run import interleave, row
    words = [OK4, PORT, CONNECTS, TURNS, MIB]
    direct = start(world.host.enter() + [PYTHON, "-c", CLIENT, *map(str, words)])
    inside = box.start(CLIENT, *words)
    with direct, inside:
        for word, name, target in (("connect", "connect", 8), ("turn", "round trip", 5),
                                   ("up", "%d MiB up" % MIB, 3), ("down", "%d MiB down" % MIB, 3)):
            ours, theirs = interleave(bench.rounds, lambda: ask(inside, word), lambda: ask(direct, word))
            yield row("egress, " + name, ours, theirs, target, note="than direct")


def network_through(bench):
    """Connections of a box through hermes-egress, against direct ones of the host, to a host in a namespace."""
    if os.geteuid() != 0:
        print("network_through needs root: it makes network namespaces")
        return
    world = Outside()
    try:
        kits = Kits(BUILD)
        egress = Egress(BUILD, world, kits)
        try:
            yield from through(bench, world, egress.box(policy(FULL, connections_s=100000)))
        finally:
            egress.end()
            kits.end()
    finally:
        world.end()
