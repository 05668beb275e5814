# SPDX-License-Identifier: Apache-2.0
"""Drives hermes-egress as the monitor, the spawner and the server do together (src/proto/egress.h,
src/proto/network.h): starts it in the host of a test world, gives it boxes with kits that
hermes-network makes, and speaks on their channels."""
import ctypes
import errno
import fcntl
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time

from netlib import PROBE, PYTHON

WAIT_S = 30
NONE, ALLOW, ASK, FULL = range(4)
TCP, UDP, DNS = range(3)
RANGE, NAME, BELOW = range(3)
POLICY, SNAPSHOT, HELLO, TRIED, ROWS, RECORD = range(1, 7)
CEILING, ADOPT, DROP, READY = range(1, 5)
MAKE_READY = 1
NO_V6 = 1
UID = 64123
MAX32, MAX64 = 2**32 - 1, 2**64 - 1
CLASSES = ["public", "this_network", "private", "shared", "loopback", "link_local", "metadata", "reserved",
           "6to4", "benchmarking", "documentation", "multicast", "reserved", "not_global"]
REASONS = ["not_listed", "closed_by_operator", "host_address", "no_route", "server_name", "unreadable_hello",
           "byte_limit", "connection_limit", "lookup_limit", "name_closed", "no_network",
           "secret_unavailable"]


class Limits(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint32) for n in ("connections", "connections_all", "connections_s", "lookups")] \
        + [(n, ctypes.c_uint64) for n in ("sent_bytes", "received_bytes", "bytes_s")]


class Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_uint8 * 16), ("bits", ctypes.c_uint8)]


class Entry(ctypes.Structure):
    _fields_ = [("target", ctypes.c_uint8), ("protocol", ctypes.c_uint8), ("first_port", ctypes.c_uint16),
                ("last_port", ctypes.c_uint16), ("is_web", ctypes.c_uint16), ("range", Range),
                ("name", ctypes.c_char * 254)]


class Policy(ctypes.Structure):
    _fields_ = [("mode", ctypes.c_uint32), ("entry_count", ctypes.c_uint32), ("secrets", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("limits", Limits),
                ("entries", Entry * 64)]


class Secret(ctypes.Structure):
    _fields_ = [("port", ctypes.c_uint16), ("host", ctypes.c_char * 254)]


class Ceiling(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint32) for n in ("max_mode", "open_count", "closed_count", "closed_name_count",
                                               "allowed_count", "resolver_count", "secret_count", "reserved")] \
        + [("box_max", Limits), ("key_max", Limits), ("open", Range * 64), ("closed", Range * 64),
           ("closed_names", ctypes.c_char * 254 * 64), ("allowed", Entry * 64),
           ("resolvers", ctypes.c_uint8 * 16 * 3), ("secrets", Secret * 32), ("upstream", ctypes.c_uint8 * 16),
           ("upstream_port", ctypes.c_uint16), ("upstream_filters", ctypes.c_uint8),
           ("upstream_resolves", ctypes.c_uint8), ("upstream_credentials", ctypes.c_char * 256)]


class Row(ctypes.Structure):
    _fields_ = [("is_allowed", ctypes.c_uint8), ("protocol", ctypes.c_uint8), ("port", ctypes.c_uint16),
                ("reason", ctypes.c_uint32), ("count", ctypes.c_uint64), ("sent", ctypes.c_uint64),
                ("received", ctypes.c_uint64), ("address", ctypes.c_uint8 * 16), ("host", ctypes.c_char * 254)]

    def read(self):
        reason = None if self.is_allowed else \
            CLASSES[self.reason] if self.reason < 64 else REASONS[self.reason - 64]
        return {"allowed": bool(self.is_allowed), "host": self.host.decode(), "port": self.port,
                "protocol": ["tcp", "udp", "dns"][self.protocol], "reason": reason, "count": self.count,
                "sent": self.sent, "received": self.received}


def address(text):
    a = ipaddress.ip_address(text)
    return b"\0" * 10 + b"\xff\xff" + a.packed if a.version == 4 else a.packed


def address_range(text):
    net = ipaddress.ip_network(text)
    r = Range(bits=net.prefixlen + (96 if net.version == 4 else 0))
    r.base[:] = address(str(net.network_address))
    return r


def limits(**given):
    values = {"connections": 64, "connections_all": 100000, "connections_s": 1000, "lookups": 64,
              "sent_bytes": MAX64, "received_bytes": MAX64, "bytes_s": MAX64}
    return Limits(**{**values, **given})


def entry(target, first=None, last=None, udp=False):
    e = Entry(protocol=UDP if udp else TCP, first_port=first or 0, last_port=last or first or 0,
              is_web=first is None)
    if target.startswith("*."):
        e.target, e.name = BELOW, target[2:].encode()
    elif target[-1].isalpha():
        e.target, e.name = NAME, target.encode()
    else:
        e.target, e.range = RANGE, address_range(target)
    return e


def policy(mode, *entries, **given):
    p = Policy(mode=mode, entry_count=len(entries), limits=limits(**given))
    p.entries[:len(entries)] = entries
    return p


def ceiling(mode=FULL, opened=(), closed=(), closed_names=(), allowed=(), box=None, key=None, resolvers=(),
            upstream=None):
    most = {"connections": MAX32, "connections_all": MAX32, "connections_s": MAX32, "lookups": MAX32}
    c = Ceiling(max_mode=mode, open_count=len(opened), closed_count=len(closed),
                closed_name_count=len(closed_names), allowed_count=len(allowed), resolver_count=len(resolvers),
                box_max=limits(**{**most, **(box or {})}), key_max=limits(**{**most, **(key or {})}))
    for i, text in enumerate(opened):
        c.open[i] = address_range(text)
    for i, text in enumerate(closed):
        c.closed[i] = address_range(text)
    for i, name in enumerate(closed_names):
        c.closed_names[i].value = name.encode()
    c.allowed[:len(allowed)] = allowed
    for i, text in enumerate(resolvers):
        c.resolvers[i][:] = address(text)
    for name, value in (upstream or {}).items():
        if name == "address":
            c.upstream[:] = address(value)
        else:
            setattr(c, "upstream_" + name, value)
    return c


def until(condition, what):
    """Waits for a state."""
    deadline = time.monotonic() + WAIT_S
    while not (got := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return got


class Kits:
    """A running hermes-network."""

    def __init__(self, build):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        self.process = start_with_socket([build / "hermes-network"], theirs)

    def make(self):
        """(descriptor of a namespace, descriptors of its kit, has IPv6)"""
        self.socket.send(struct.pack("=II", MAKE_READY, 0))
        data, fds, _, _ = socket.recv_fds(self.socket, 64, 16)
        _, error, part, has_v6, _, _ = struct.unpack("=IiIIII", data)
        assert error == 0, (errno.errorcode.get(-error), part)
        return fds[0], fds[1:], bool(has_v6)

    def end(self):
        self.socket.close()
        self.process.wait(WAIT_S)


def start_with_socket(words, theirs, **kwargs):
    """Starts a program that finds the socket as its descriptor 3."""
    number = theirs.fileno()
    with theirs:
        return subprocess.Popen(["bash", "-c", 'exec "$@" 3<&%d' % number, "bash"] + [str(w) for w in words],
                                pass_fds=[number], **kwargs)


class Egress:
    """A running hermes-egress in the host of a world."""

    def __init__(self, build, world, kits, rule=None, words=()):
        self.world, self.kits, self.numbers, self.boxes = world, kits, iter(range(1, 1 << 30)), []
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        enter = world.host.enter() + ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
        self.process = start_with_socket(enter + list(words) + [build / "hermes-egress"], theirs)
        memfd = os.memfd_create("ceiling", os.MFD_ALLOW_SEALING)
        os.write(memfd, bytes(rule or ceiling()))
        fcntl.fcntl(memfd, 1033, 0x2 | 0x4 | 0x8)  # F_ADD_SEALS: shrink, grow, write
        self.tell(CEILING, 0, 0, [memfd])
        os.close(memfd)
        assert self.socket.recv(64)[:4] == struct.pack("=I", READY)
        self.quiet = self.descriptors()

    def tell(self, kind, number, owner, fds=(), flags=0):
        socket.send_fds(self.socket, [struct.pack("=IIQII", kind, flags, number, owner, 0)], list(fds))

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def box(self, rule, owner=0):
        return Box(self, rule, owner)

    def end(self):
        for box in self.boxes:
            box.close()
        self.socket.close()
        assert self.process.wait(WAIT_S) in (0, -signal.SIGKILL)


class Box:
    """A network namespace with a kit, and its channel. Programs that run in it are ordinary ones."""

    def __init__(self, egress, rule, owner):
        self.namespace, self.kit, self.has_v6 = egress.kits.make()
        self.channel, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(WAIT_S)
        self.owner, self.tried = owner, []
        if rule:
            self.set(rule)
        self.give(egress)

    def give(self, egress):
        """Has an egress adopt it, as the spawner does. We keep our descriptors."""
        self.egress, self.number = egress, next(egress.numbers)
        egress.boxes.append(self)
        egress.tell(ADOPT, self.number, self.owner, self.kit + [self.theirs.fileno()],
                    0 if self.has_v6 else NO_V6)

    def set(self, rule):
        self.channel.send(struct.pack("=II", POLICY, 0) + bytes(rule))

    def start(self, code, *words, **kwargs):
        """Starts a Python program in the box."""
        enter = ["nsenter", "--net=/proc/self/fd/%d" % self.namespace,
                 "--mount=/proc/%d/ns/mnt" % self.egress.world.host.keeper.pid]
        return subprocess.Popen([*enter, PYTHON, "-c", code, *map(str, words)],
                                pass_fds=[self.namespace], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, **kwargs)

    def run(self, code, *words):
        """What a Python program in the box prints, as JSON."""
        with self.start(code, *words) as process:
            out, _ = process.communicate(timeout=WAIT_S * 2)
        assert process.returncode == 0, out
        return json.loads(out)

    def probe(self, *attempts):
        """What the attempts of netlib's probe get in the box."""
        code = PROBE.replace("/box/ca.pem", str(self.egress.world.dir / "ca.pem"))
        with self.start(code) as process:
            out, _ = process.communicate(json.dumps(attempts), timeout=WAIT_S * 2)
        return json.loads(out)

    def receive(self):
        """The next message of egress about the box: (kind, rest), or None at the end."""
        data = self.channel.recv(1 << 16)
        if not data:
            return None
        kind, = struct.unpack_from("=I", data)
        if kind in (TRIED, ROWS):
            count, = struct.unpack_from("=I", data, 4)
            assert len(data) == 8 + count * ctypes.sizeof(Row)
            return kind, [Row.from_buffer_copy(data, 8 + i * ctypes.sizeof(Row)).read() for i in range(count)]
        return kind, data

    def record(self, token=7):
        """Asks for the record, or waits for the last one with token 0."""
        if token:
            self.channel.send(struct.pack("=II", SNAPSHOT, token))
        rows = []
        while True:
            message = self.receive()
            assert message, "the channel ended without a record"
            kind, rest = message
            if kind == ROWS:
                rows += rest
            elif kind == TRIED:
                self.tried += rest
            elif kind == RECORD:
                _, got, hit, _, sent, received, more = struct.unpack("=IIIIQQQ", rest)
                assert got == token
                return {"rows": rows, "limit_hit": bool(hit), "sent": sent, "received": received, "more": more}

    def drop(self):
        self.egress.tell(DROP, self.number, 0)
        last = self.record(0)
        self.theirs.close()
        assert self.channel.recv(64) == b""
        self.close()
        return last

    def is_quiet(self):
        return not select.select([self.channel], [], [], 0)[0]

    def close(self):
        for fd in self.kit + ([self.namespace] if self.namespace is not None else []):
            os.close(fd)
        self.kit, self.namespace = [], None
        self.channel.close()
        self.theirs.close()
