# SPDX-License-Identifier: Apache-2.0
"""A world for the tests of networks: two network namespaces joined by one veth and to nothing else.

`host` is where Hermes runs. It has a public address, a default route to `world`, listeners of its
own (canaries) and a resolv.conf that names the world's name server. `world` is everything outside:
public hosts, private hosts and metadata services on their real addresses, a name server. See
networld.py for its servers. Nothing that a test sends can leave the machine."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from apilib import wait_until
from networld import DNS_ADDRESS, OK4, OK6, OTHER4, OTHER6

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"
HOST4, HOST6 = "45.33.32.1", "2a01:4f8:1::1"

# Words that take the capabilities of networks away, as a container does.
LESS = ["setpriv", "--bounding-set=-net_admin,-net_raw,-net_bind_service",
        "--inh-caps=-net_admin,-net_raw,-net_bind_service"]

# Hosts of the world that no box may reach, and the reason that records give.
CLOSED = {
    "10.9.0.5": "private", "172.20.1.1": "private", "192.168.7.7": "private",
    "169.254.169.254": "metadata", "169.254.170.2": "metadata", "169.254.9.9": "link_local",
    "100.100.100.200": "metadata", "100.64.0.9": "shared", "168.63.129.16": "metadata",
    "192.0.0.192": "metadata", "192.88.99.1": "6to4", "198.18.0.9": "benchmarking",
    "192.0.2.9": "documentation", "198.51.100.9": "documentation", "203.0.113.9": "documentation",
    "240.0.0.9": "reserved",
    "fd00:9::5": "private", "fd00:ec2::254": "metadata", "fd20:ce::254": "metadata",
    "fec0::5": "private", "64:ff9b::a09:5": "not_global", "64:ff9b:1::a09:5": "not_global",
    "100::5": "not_global", "4000::5": "not_global", "2001:db8::5": "documentation",
    "3fff::5": "documentation", "2001::5": "reserved", "2002:a09:5::1": "6to4",
}

# Runs in a box, and beside it on the host as the control. Reads a list of attempts from standard
# input and prints the list of outcomes: what came back, or the name of the error.
PROBE = r'''
import errno, json, socket, ssl, struct, sys, urllib.request

def named(e):
    if isinstance(e, socket.gaierror):
        return "no such name"
    if isinstance(e, TimeoutError):
        return "timeout"
    return errno.errorcode.get(e.errno, type(e).__name__)

def tcp(host, port, timeout=8):
    """Connects, asks for /, returns the answer's last line."""
    with socket.create_connection((host, port), timeout) as s:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        got = b""
        while piece := s.recv(65536):
            got += piece
        return got.decode().strip().split("\n")[-1] or "connected"

def connect(host, port, timeout=8):
    socket.create_connection((host, port), timeout).close()
    return "connected"

def udp(host, port, timeout=4):
    info = socket.getaddrinfo(host, port, 0, socket.SOCK_DGRAM)[0]
    with socket.socket(info[0], socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        s.connect(info[4])
        s.send(b"ping")
        return s.recv(100).decode()

def url(address, timeout=8):
    context = ssl.create_default_context(cafile="/box/ca.pem") if address[:5] == "https" else None
    try:
        return urllib.request.urlopen(address, timeout=timeout, context=context).read().decode().strip()
    except urllib.error.HTTPError as e:
        return "HTTP %d" % e.code
    except urllib.error.URLError as e:
        raise e.reason if isinstance(e.reason, OSError) else e

def resolve(host, kind=0):
    found = socket.getaddrinfo(host, 80, kind, socket.SOCK_STREAM)
    return sorted({a[4][0] for a in found})

def question(name, kind):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    return b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + labels + b"\0" + struct.pack(">HH", kind, 1)

def dns(server, name, kind, over="udp", timeout=6):
    """Returns the code, the number of answers and the bytes behind the question."""
    m = question(name, kind)
    info = socket.getaddrinfo(server, 53, 0, socket.SOCK_DGRAM)[0]
    with socket.socket(info[0], socket.SOCK_DGRAM if over == "udp" else socket.SOCK_STREAM) as s:
        s.settimeout(timeout)
        s.connect(info[4])
        s.sendall(m if over == "udp" else struct.pack(">H", len(m)) + m)
        got = s.recv(4096)
        while over == "tcp" and len(got) < 2 + struct.unpack(">H", got[:2])[0]:
            got += s.recv(4096)
    got = got if over == "udp" else got[2:]
    assert got[:2] == m[:2], "another id"
    flags, _, count, _, extra = struct.unpack(">HHHHH", got[2:12])
    return {"code": flags & 15, "cut": bool(flags & 0x200), "count": count, "extra": extra,
            "rest": got[len(m):].hex()}

def tls(address, port, name, split=False, timeout=8):
    """TLS to an address with another server name; with `split` the hello comes in two records."""
    context = ssl.create_default_context(cafile="/box/ca.pem")
    context.check_hostname = False
    s = socket.create_connection((address, port), timeout)
    if not split:
        with context.wrap_socket(s, server_hostname=name) as t:
            t.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return t.recv(100).decode().split("\r\n")[0]
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    t = context.wrap_bio(into, out, server_hostname=name)
    try:
        t.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = out.read()
    body, half = hello[5:], 40
    for part in (body[:half], body[half:]):
        s.sendall(hello[:3] + struct.pack(">H", len(part)) + part)
    got = s.recv(100)
    return "answered" if got else "closed"

def attempt(what, *arguments):
    try:
        return globals()[what](*arguments)
    except OSError as e:
        return named(e)
    except Exception as e:
        return type(e).__name__ + ": " + str(e)

if __name__ == "__main__":
    print(json.dumps([attempt(*a) for a in json.load(sys.stdin)]))
'''


def run(*words, **kwargs):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def is_v4(address):
    return ":" not in address


def in_url(address):
    return address if is_v4(address) else "[%s]" % address


class Namespace:
    """A network namespace and a mount namespace that live as long as a process that waits."""

    def __init__(self):
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "cat"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self.is_made():
            assert self.keeper.poll() is None and time.monotonic() < deadline, "no namespace"
            time.sleep(0.005)

    def is_made(self):
        try:
            return pathlib.Path("/proc/%d/comm" % self.keeper.pid).read_text() == "cat\n"
        except OSError:
            return False

    def enter(self):
        """The words that start a program inside."""
        pid = self.keeper.pid
        return ["nsenter", "--net=/proc/%d/ns/net" % pid, "--mount=/proc/%d/ns/mnt" % pid]

    def run(self, *words, **kwargs):
        return run(*self.enter(), *words, **kwargs)

    def end(self):
        self.keeper.stdin.close()
        self.keeper.wait()


class World:
    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="network-tests-", dir="/var/tmp"))
        self.dir.chmod(0o755)
        (self.dir / "files").mkdir()
        self.started = []
        self.calls, self.seen = 0, {"world": 0, "canary": 0}
        self.host, self.world = Namespace(), Namespace()
        try:
            self.join()
            self.make_certificates()
            self.serve("world", self.world)
            self.serve("canary", self.host)
        except BaseException:
            self.end()
            raise

    def join(self):
        """One veth between both. Every address of the world stands on its end."""
        self.host.run("ip", "link", "set", "lo", "up")
        self.world.run("ip", "link", "set", "lo", "up")
        self.host.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns",
                      self.world.keeper.pid)
        self.add_addresses(self.host, "v0", [HOST4, HOST6], wide=True)
        self.add_addresses(self.world, "v1", [OK4, OK6, OTHER4, OTHER6, DNS_ADDRESS], wide=True)
        self.add_addresses(self.world, "v1", CLOSED)
        self.host.run("ip", "route", "add", "default", "via", OK4)
        self.host.run("ip", "-6", "route", "add", "default", "via", OK6)
        for namespace, own in ((self.host, "v0"), (self.world, "v1")):
            assert self.links(namespace) == {"lo", own}, self.links(namespace)
        (self.dir / "resolv.conf").write_text("nameserver %s\n" % DNS_ADDRESS)
        self.host.run("mount", "--bind", self.dir / "resolv.conf",
                      os.path.realpath("/etc/resolv.conf"))

    @staticmethod
    def add_addresses(namespace, link, addresses, wide=False):
        lines = ["addr add %s/%d dev %s" % (a, 24 if wide else 32, link) if is_v4(a) else
                 "addr add %s/%d dev %s nodad" % (a, 64 if wide else 128, link) for a in addresses]
        lines.append("link set %s up" % link)
        done = subprocess.run(namespace.enter() + ["ip", "-batch", "-"], text=True,
                              input="\n".join(lines) + "\n", capture_output=True)
        assert done.returncode == 0, done.stderr

    @staticmethod
    def links(namespace):
        """Links that are up: some kernels have further links in every namespace, which are down."""
        return {link["ifname"] for link in json.loads(namespace.run("ip", "-json", "link"))
                if "UP" in link["flags"]}

    def make_certificates(self):
        """An authority of the test, and one certificate for the names on port 443."""
        names = ["ok.example.com", "v4.example.com", "v6.example.com", "shared.example.org",
                 "*.wild.example.com"]
        at = str(self.dir) + "/"
        new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        run(*new, "-x509", "-days", "30", "-subj", "/CN=test authority", "-keyout", at + "ca.key",
            "-out", at + "ca.pem", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        run(*new, "-subj", "/CN=ok.example.com", "-keyout", at + "server.key", "-out",
            at + "server.csr")
        (self.dir / "names").write_text("subjectAltName=" + ",".join("DNS:" + n for n in names))
        run("openssl", "x509", "-req", "-days", "30", "-in", at + "server.csr", "-CA", at + "ca.pem",
            "-CAkey", at + "ca.key", "-CAcreateserial", "-extfile", at + "names", "-out",
            at + "server.pem")

    def serve(self, mode, namespace):
        process = subprocess.Popen(
            namespace.enter() + [PYTHON, str(HERE / "networld.py"), mode, str(self.dir)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        assert process.stdout.readline() == "up\n", mode

    def end(self):
        for process in self.started:
            process.stdin.close()  # which ends it
            process.wait()
            process.stdout.close()
        for namespace in (self.host, self.world):
            namespace.end()
        shutil.rmtree(self.dir, ignore_errors=True)

    def authority(self):
        return (self.dir / "ca.pem").read_text()

    def put(self, name, data):
        """A file that /files/NAME answers with."""
        (self.dir / "files" / name).write_bytes(data)

    def listen_abstract(self, name):
        """A program of the host that listens on an abstract unix socket."""
        code = ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0%s'); s.listen();"
                "print('up', flush=True)\nwhile True: s.accept()" % name)
        process = subprocess.Popen(self.host.enter() + [PYTHON, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"up\n"
        return process

    # --- arrivals

    def mark(self, mode="world"):
        """A place in the log: what comes later is arrived() after it."""
        path = self.dir / (mode + ".log")
        return path.stat().st_size if path.exists() else 0

    def arrived(self, mark=0, mode="world", **fields):
        """The notes behind the mark whose fields are these."""
        path = self.dir / (mode + ".log")
        if not path.exists():
            return []
        with open(path, "rb") as f:
            f.seek(mark)
            found = [json.loads(line) for line in f.read().split(b"\n")[:-1]]
        return [note for note in found
                if all(note.get(name) == value for name, value in fields.items())]

    def catch_up(self):
        """Waits until the logs hold everything that the host has sent so far. Notes are in the order of arrival:
        packets in the world, connections at the host's own port 8000."""
        self.calls += 1
        port = 20000 + self.calls
        send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', (%r, %d))" % (OK4, port)
        call = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/call-%d').read()" % port
        mark = self.mark()
        for _ in range(10):  # a packet may be lost after another test has flooded
            self.host.run(PYTHON, "-c", send)
            if wait_until(lambda: self.arrived(mark, kind="packet", port=port)):
                break
        assert self.arrived(mark, kind="packet", port=port)
        self.host.run(PYTHON, "-c", call)
        assert wait_until(lambda: self.arrived(self.seen["canary"], "canary", path="/call-%d" % port))

    def forget(self):
        """Forgets the arrivals so far: a control sent them, not an intruder."""
        self.catch_up()
        self.seen = {mode: self.mark(mode) for mode in ("world", "canary")}

    def intruders(self):
        """Packets to closed addresses, and connections to the host's own listeners."""
        self.catch_up()
        called = "/call-%d" % (20000 + self.calls)
        host = [note for note in self.arrived(self.seen["canary"], "canary") if note.get("path") != called]
        host.remove({"kind": "tcp", "to": "127.0.0.1", "port": 8000, "peer": "127.0.0.1"})  # our own call
        return host + [note for note in self.arrived(self.seen["world"], kind="packet") if note["to"] in CLOSED]

    # --- attempts without a box: the control

    def probe(self, *attempts):
        """What a program of the host gets that makes these attempts."""
        (self.dir / "probe.py").write_text(PROBE.replace("/box/ca.pem", str(self.dir / "ca.pem")))
        done = subprocess.run(self.host.enter() + [PYTHON, str(self.dir / "probe.py")], text=True,
                              input=json.dumps(attempts), capture_output=True)
        assert done.returncode == 0, done.stderr
        self.forget()
        return json.loads(done.stdout)


class Boxes:
    """Boxes of one server, by POST /v1/runs."""

    def __init__(self, server, world):
        self.server, self.world = server, world

    def ask(self, network, language, code, **fields):
        """The reply to a request for a run."""
        limits = {"wall_ms": 60000, "cpu_ms": 30000, **fields.pop("limits", {})}
        files = [{"name": "ca.pem", "content": self.world.authority()}, *fields.pop("files", [])]
        return self.server.run(language, code, network=network, limits=limits, files=files, **fields)

    def run(self, *what, **fields):
        """The answer to a run that ended well."""
        reply = self.ask(*what, **fields)
        assert reply.status == 200, reply
        assert reply.json()["status"] == "ok", reply.json()
        return reply.json()

    def start(self, *what, **fields):
        """The id of a run that goes on."""
        reply = self.ask(*what, **{"async": True}, **fields)
        assert reply.status == 202, reply
        return reply.json()["id"]

    def finish(self, run):
        def state():
            return self.server("GET", "/v1/runs/" + run).json()
        assert wait_until(lambda: state()["status"] not in ("queued", "running"), 60)
        return state()

    def probe(self, network, *attempts, **fields):
        """Outcomes of attempts in a box, and the record of its network."""
        answer = self.run(network, "python", PROBE, stdin=json.dumps(attempts), **fields)
        return json.loads(answer["stdout"]), answer["network"]

    def one(self, network, *attempt):
        return self.probe(network, attempt)[0][0]


def denied(record):
    """Rows of a record as (host, port, protocol, reason)."""
    return {(row["host"], row["port"], row["protocol"], row["reason"]) for row in record["denied"]}


def allowed(record):
    return {(row["host"], row["address"], row["port"], row["protocol"]) for row in record["allowed"]}
