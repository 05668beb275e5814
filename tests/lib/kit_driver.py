# SPDX-License-Identifier: Apache-2.0
"""Drives hermes-network (src/proto/kit.h) as the spawner does, and stands in for hermes-egress.

    kit_driver.py PROGRAM CASE...    prints one JSON object: the result of each case

test_kit.py runs it as root, as root without network capabilities, and as an ordinary user in a user
namespace. It sends nothing outside: everything happens in network namespaces that have loopback only."""
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time

MAKE, MAKE_READY, LOOK, FORGET, INSTALL, PROBE = range(6)
PARTS = ["namespace", "loopback", "routes", "IPv6", "nf_tables", "nft_limit", "nft_log", "nft_tproxy",
         "nfnetlink_log", "listeners", "raw"]
FDS = ["reports", "tcp4", "tcp6", "udp4", "udp6", "raw4", "raw6"]
V4_FDS = ["reports", "tcp4", "udp4", "raw4"]
MARK, PORT = 0x48, 1
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
WAIT_S = 20
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)


class Network:
    """A running hermes-network."""

    def __init__(self, program):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            high = os.dup(theirs.fileno())
            os.dup2(high, 3)
            os.closerange(4, 256)
            os.execv(program, ["hermes-network"])
        theirs.close()
        self.socket.settimeout(WAIT_S)

    def order(self, kind, *fds):
        """(answer, descriptors)"""
        socket.send_fds(self.socket, [struct.pack("=II", kind, 0)], list(fds))
        data, got, _, _ = socket.recv_fds(self.socket, 64, 16)
        kind_, error, part, has_v6, is_fresh, missing = struct.unpack("=IiIIII", data)
        assert kind_ == kind
        return {"error": errno.errorcode.get(-error, ""), "part": PARTS[part], "has_v6": bool(has_v6),
                "is_fresh": bool(is_fresh), "missing": [p for i, p in enumerate(PARTS) if missing >> i & 1]}, got

    def close(self):
        self.socket.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Kit:
    def __init__(self, answer, fds):
        self.named = dict(zip(FDS if answer["has_v6"] else V4_FDS, fds))
        assert len(self.named) == len(fds), (answer, fds)
        self.sockets = {}
        for name, fd in self.named.items():
            self.sockets[name] = socket.socket(fileno=fd)

    def __getitem__(self, name):
        return self.sockets[name]

    def wait(self, name):
        if not select.select([self.sockets[name]], [], [], WAIT_S)[0]:
            raise TimeoutError(name)

    def report(self):
        """The next packet that the rules reported, from its IP header on."""
        self.wait("reports")
        data = self["reports"].recv(65536)
        at = 16 + 4  # struct nlmsghdr, struct nfgenmsg
        while at + 4 <= len(data):
            size, kind = struct.unpack_from("=HH", data, at)
            if kind & 0x3fff == 9:  # NFULA_PAYLOAD
                return data[at + 4:at + size]
            at += (size + 3) & ~3
        raise ValueError(data)

    def is_quiet(self, *names):
        return not select.select([self.sockets[n] for n in names], [], [], 0)[0]

    def let_pass(self, packet):
        """Sends a SYN again with the mark."""
        six = packet[0] >> 4 == 6
        head = 40 if six else 20
        target = packet[24:40] if six else packet[16:20]
        source = packet[8:24] if six else packet[12:16]
        tcp = bytearray(packet[head:])
        tcp[16:18] = b"\0\0"
        pseudo = source + target + (struct.pack("!IHBB", len(tcp), 0, 0, 6) if six
                                    else struct.pack("!BBH", 0, 6, len(tcp)))
        total = sum(struct.unpack("!%dH" % ((len(pseudo) + len(tcp)) // 2), pseudo + bytes(tcp)))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        tcp[16:18] = struct.pack("!H", ~total & 0xffff)
        to = (socket.inet_ntop(socket.AF_INET6, target), 0) if six else (socket.inet_ntop(socket.AF_INET, target), 0)
        self["raw6" if six else "raw4"].sendto(packet[:head] + bytes(tcp), to)

    def close(self):
        for s in self.sockets.values():
            s.close()


def map_self():
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open("/proc/self/" + name, "w") as f:
            f.write(text)


class Namespace:
    """A process in network and, if `owned`, user namespaces of its own, as a box has them."""

    def __init__(self, owned, below=0):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            for _ in range(below):  # a zygote's
                call("unshare", CLONE_NEWUSER)
                map_self()
            call("unshare", CLONE_NEWNET | (CLONE_NEWUSER if owned else 0))
            theirs.send(b"r")
            theirs.recv(1)
            os._exit(0)
        theirs.close()
        assert ours.recv(1) == b"r"
        self.socket = ours
        self.pidfd = os.pidfd_open(self.pid)

    def open(self):
        return os.open("/proc/%d/ns/net" % self.pid, os.O_RDONLY)

    def close(self):
        self.socket.close()
        os.waitpid(self.pid, 0)
        os.close(self.pidfd)


def inside(fd, program, *args):
    """Runs a function in a namespace, without any right: a stranger's process. Returns a pipe to read
    its result from (result())."""
    out, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            call("setns", fd, CLONE_NEWNET)
            signal.alarm(WAIT_S)
            answer = program(*args)
        except OSError as e:
            answer = errno.errorcode.get(e.errno, str(e))
        except Exception as e:  # the test shows it
            answer = repr(e)
        os.write(end, json.dumps(answer).encode())
        os._exit(0)
    os.close(end)
    return pid, out


def result(started):
    pid, out = started
    with os.fdopen(out, "rb") as f:
        data = f.read()
    os.waitpid(pid, 0)
    return json.loads(data) if data else "silent"


def dial(address, port, source=None):
    six = ":" in address
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM) as s:
        if source:
            s.bind((source, 0))
        s.connect((address, port))
        s.sendall(b"hello")
        return [s.recv(16).decode(), s.getsockname()[0]]


def throw(address, port, source=None):
    six = ":" in address
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as s:
        if source:
            s.bind((source, 0))
        return s.sendto(b"datagram", (address, port))


def routes():
    """Whether a box has a way to everywhere, and its addresses beside 127.0.0.1."""
    with open("/proc/self/net/fib_trie") as f:
        text = f.read()
    with open("/proc/self/net/if_inet6") as f:
        addresses = [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])) for line in f]
    return sorted(addresses) + (["192.0.0.2"] if "192.0.0.2" in text else []) + (
        ["everywhere"] if "0.0.0.0/0" in text else [])


def serve_one(kit, six):
    """Lets one connection pass; returns its destination and its source."""
    packet = kit.report()
    early = kit.is_quiet("tcp6" if six else "tcp4")
    kit.let_pass(packet)
    listener = kit["tcp6" if six else "tcp4"]
    kit.wait("tcp6" if six else "tcp4")
    conn, peer = listener.accept()
    with conn:
        conn.setblocking(True)
        data = conn.recv(16).decode()
        conn.sendall(b"answer")
        return {"to": list(conn.getsockname()[:2]), "from": peer[0], "got": data, "gated": early}


def case_kit(network, owned, below=0, by_pidfd=False):
    """The whole kit in a namespace of another process."""
    space = Namespace(owned, below)
    ns = space.open()
    before = result(inside(ns, dial, "203.0.113.10", 80))  # the control: no network without a kit
    answer, fds = network.order(INSTALL, space.pidfd if by_pidfd else ns)
    if answer["error"]:
        space.close()
        return {"install": answer}
    kit = Kit(answer, fds)
    seen = {"install": answer, "before": before}
    families = [("203.0.113.10", False)] + ([("2001:db8::10", True)] if answer["has_v6"] else [])
    for address, six in families:
        started = inside(ns, dial, address, 80)
        served = serve_one(kit, six)
        served["client"] = result(started)
        seen["tcp6" if six else "tcp4"] = served
        started = inside(ns, throw, address, 9999)
        name = "udp6" if six else "udp4"
        kit.wait(name)
        data, control, _, peer = kit[name].recvmsg(64, 256)
        to = [socket.inet_ntop(socket.AF_INET6, c[8:24]) if six else socket.inet_ntop(socket.AF_INET, c[4:8])
              for _, _, c in control]
        seen[name] = {"to": to, "from": peer[0], "got": data.decode(), "client": result(started)}
    # a source of its own choice: dropped; the datagram after it shows that nothing is on its way
    first = result(inside(ns, throw, "203.0.113.11", 9, "198.51.100.77"))
    second = result(inside(ns, throw, "203.0.113.12", 9))
    kit.wait("udp4")
    _, control, _, peer = kit["udp4"].recvmsg(64, 256)
    seen["spoofed"] = {"sent": [first, second], "arrived": socket.inet_ntop(socket.AF_INET, control[0][2][4:8]),
                       "more": not kit.is_quiet("udp4")}
    seen["mark"] = kit["raw4"].getsockopt(socket.SOL_SOCKET, 36)
    kit.close()
    seen["closed"] = result(inside(ns, routes))
    space.close()
    os.close(ns)
    return seen


def case_made(network):
    """Namespaces that hermes-network makes, plain and with a kit."""
    answer, fds = network.order(MAKE)
    if answer["error"]:
        return {"plain": answer}
    plain = fds[0]
    ready, fds = network.order(MAKE_READY)
    if ready["error"]:
        return {"ready": ready}
    kit = Kit(ready, fds[1:])
    started = inside(fds[0], dial, "203.0.113.10", 80)
    served = serve_one(kit, False)
    served["client"] = result(started)
    fresh, _ = network.order(LOOK, plain)
    seen = {"plain": result(inside(plain, routes)), "ready": result(inside(fds[0], routes)), "served": served,
            "loopback": result(inside(plain, throw, "127.0.0.1", 9)), "no route": result(inside(plain, dial, "203.0.113.10", 80)),
            "fresh": fresh["is_fresh"], "used": network.order(LOOK, plain)[0]["is_fresh"],
            "forgotten": network.order(FORGET, plain)[0]}
    kit.close()
    os.close(fds[0])
    os.close(plain)
    return seen


def case_trap(network):
    """A namespace whose kit is closed looks new although its routes are there: no box may use it again."""
    _, fds = network.order(MAKE_READY)
    for fd in fds[1:]:
        os.close(fd)
    end = time.time() + WAIT_S  # the kernel counts closed sockets for a moment
    while not (is_fresh := network.order(LOOK, fds[0])[0]["is_fresh"]) and time.time() < end:
        time.sleep(0.01)
    seen = {"fresh": is_fresh, "routes": result(inside(fds[0], routes))}
    os.close(fds[0])
    return seen


def case_probe(network):
    return network.order(PROBE)[0]


def case_no_v6(network):
    """A namespace in which IPv6 is switched off."""
    space = Namespace(False)
    ns = space.open()

    def switch_off():
        with open("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "w") as f:
            f.write("1")
    off = result(inside(ns, switch_off))
    answer, fds = network.order(INSTALL, ns)
    kit = Kit(answer, fds)
    started = inside(ns, dial, "203.0.113.10", 80)
    served = serve_one(kit, False)
    served["client"] = result(started)
    seen = {"off": off, "install": answer, "served": served, "v6": result(inside(ns, dial, "2001:db8::10", 80))}
    kit.close()
    space.close()
    os.close(ns)
    return seen


CASES = {
    "kit": lambda n: case_kit(n, True),
    "kit by pidfd": lambda n: case_kit(n, True, by_pidfd=True),
    "kit below a zygote": lambda n: case_kit(n, True, below=1),
    "kit of the host's": lambda n: case_kit(n, False),
    "made": case_made,
    "probe": case_probe,
    "trap": case_trap,
    "no v6": case_no_v6,
}


def main():
    network = Network(sys.argv[1])
    seen = {name: CASES[name](network) for name in sys.argv[2:]}
    seen["exit"] = network.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
