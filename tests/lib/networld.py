#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The servers of the fake outside, a program (netlib.py starts it inside a network namespace).

    networld.py world DIR     everything outside: DNS, HTTP, TLS, UDP echo, an HTTP proxy
    networld.py canary DIR    the host's own listeners, which no box may reach

Each arrival is a line of JSON in DIR/MODE.log. In `world` every IP packet that comes in is
noted too (kind "packet"), with or without a listener. Prints "up" when all listen."""
import base64
import ctypes
import http.server
import itertools
import json
import mimetypes
import pathlib
import select
import socket
import socketserver
import ssl
import struct
import sys
import threading

import vault

DNS_ADDRESS = "45.33.32.53"
A, NS, CNAME, MX, TXT, AAAA, HTTPS = 1, 2, 5, 15, 16, 28, 65
OK4, OK6, OTHER4, OTHER6 = "45.33.32.10", "2a01:4f8:1::10", "45.33.32.20", "2a01:4f8:1::20"

ZONE = {
    ("ok.example.com", A): [OK4], ("ok.example.com", AAAA): [OK6],
    ("ok.example.com", TXT): ["some text"], ("ok.example.com", MX): ["ok.example.com"],
    ("ok.example.com", HTTPS): ["hints"],
    ("v4.example.com", A): [OK4], ("v6.example.com", AAAA): [OK6],
    ("a.wild.example.com", A): [OK4], ("wild.example.com", A): [OK4],
    ("shared.example.org", A): [OK4], ("other.example.org", A): [OTHER4],
    ("alias.example.com", A): ["@ok.example.com", OK4],
    ("private.example.com", A): ["10.9.0.5"], ("meta.example.com", A): ["169.254.169.254"],
    ("lo.example.com", A): ["127.0.0.1"], ("zero.example.com", A): ["0.0.0.0"],
    ("shared-space.example.com", A): ["100.64.0.9"],
    ("mapped.example.com", AAAA): ["::ffff:10.9.0.5"], ("nat64.example.com", AAAA): ["64:ff9b::a09:5"],
    ("ula.example.com", AAAA): ["fd00:9::5"], ("own.example.com", A): ["45.33.32.1"],
    ("alias-private.example.com", A): ["@private.example.com", "10.9.0.5"],
    ("chain.example.com", A): ["@one.example.net", "@two.example.org", "@private.example.com", "10.9.0.5"],
    ("loop.example.com", A): ["@loop.example.com"],
    ("compatible.example.com", AAAA): ["::10.9.0.5"], ("translated.example.com", AAAA): ["::ffff:0:10.9.0.5"],
    ("sixtofour.example.com", AAAA): ["2002:a09:5::1"], ("teredo.example.com", AAAA): ["2001::5"],
    ("site.example.com", AAAA): ["fec0::5"], ("link.example.com", AAAA): ["fe80::5"],
    ("mapped-public.example.com", AAAA): ["::ffff:" + OK4],
    ("mixed.example.com", A): ["10.9.0.5", OK4],
    ("many.example.com", A): ["45.33.32.%d" % n for n in range(100, 140)],
    ("private.example.com", TXT): ["text of a private name"],
    ("metadata.google.internal", A): ["169.254.169.254"], ("intranet", A): ["10.9.0.5"],
    ("printer.local", A): ["10.9.0.5"],
    ("5.0.9.10.in-addr.arpa", 12): ["intranet.example.com"],
}
REBIND = "rebind.example.com"  # public, private, loopback in turn, with TTL 0
MANY = ".many.example.org"  # every name below it exists
SILENT = "silent.example.com"  # its questions get no answer
rebound = itertools.count()

lock = threading.Lock()


def note(**fields):
    with lock:
        log.write(json.dumps(fields) + "\n")
        log.flush()


def plain(address):
    return address[7:] if address.startswith("::ffff:") else address


# --- packets

# What is noted, as a filter of the kernel: UDP, and TCP with SYN and without ACK, in IPv4 and IPv6. The data packets of
# a flood would keep us busy for minutes.
FILTER = [
    (0x30, 0, 0, 0), (0x54, 0, 0, 0xf0), (0x15, 1, 0, 0x40), (0x15, 7, 11, 0x60),  # version
    (0x30, 0, 0, 9), (0x15, 10, 0, 17), (0x15, 0, 8, 6),                           # IPv4: protocol
    (0xb1, 0, 0, 0), (0x50, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 5, 4, 2),        # flags behind the options
    (0x30, 0, 0, 6), (0x15, 3, 0, 17), (0x15, 0, 1, 6), (0x05, 0, 0, 2),           # IPv6: next header
    (0x06, 0, 0, 0), (0x06, 0, 0, 0x40000),                                        # drop, take
    (0x30, 0, 0, 53), (0x54, 0, 0, 0x12), (0x15, 0, 1, 2), (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0),
]


def attach_filter(s):
    code = b"".join(struct.pack("=HBBI", *line) for line in FILTER)
    memory = ctypes.create_string_buffer(code)
    s.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", len(FILTER), ctypes.addressof(memory)))  # SO_ATTACH_FILTER


def watch_packets():
    """Every IP packet of the other side."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(3))
    s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE: floods are part of the tests
    attach_filter(s)
    while True:
        data, (_, protocol, kind, *_) = s.recvfrom(128)
        if kind == 4 or not data:  # PACKET_OUTGOING
            continue
        if protocol == 0x0800 and len(data) >= 20:
            to, inner, at = socket.inet_ntop(socket.AF_INET, data[16:20]), data[9], (data[0] & 15) * 4
        elif protocol == 0x86dd and len(data) >= 40:
            to, inner, at = socket.inet_ntop(socket.AF_INET6, data[24:40]), data[6], 40
        else:
            continue
        if inner not in (6, 17):
            continue  # neighbours looking for each other
        if protocol == 0x0800 and struct.unpack(">H", data[6:8])[0] & 0x1fff:
            continue  # a later fragment has no port, and may be shorter than one
        port = struct.unpack(">H", data[at + 2:at + 4])[0]
        if inner == 17 or data[at + 13] & 0x12 == 2:
            note(kind="packet", to=to, port=port, protocol={6: "tcp", 17: "udp"}[inner])


# --- HTTP and TLS

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        local = plain(self.connection.getsockname()[0])
        note(kind="http", to=local, port=self.server.server_port, path=self.path,
             host=self.headers.get("Host", ""))
        if self.path.startswith("/vault/"):
            vault.answer(self, note)
        elif self.path == "/redirect-private":
            self.answer(b"", 302, Location="http://10.9.0.5/")
        elif self.path == "/redirect-other":
            self.answer(b"", 302, Location="http://other.example.org/")
        elif self.path.startswith("/big-"):
            self.answer(b"x" * int(self.path[5:]))
        elif self.path.startswith("/files/"):
            self.send_file(self.path[7:].split("?")[0])
        else:
            self.answer(("hello from %s\n" % local).encode())
    do_HEAD = do_GET

    def do_POST(self):
        if self.path.startswith("/vault/"):
            vault.answer(self, note)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(b"%d\n" % len(body))

    def send_file(self, name):
        path = (top / "files" / name).resolve()
        path = path / "index.html" if path.is_dir() else path
        if top / "files" in path.parents and path.is_file():
            self.answer(path.read_bytes(), Content_Type=mimetypes.guess_type(path.name)[0] or "application/json")
        else:
            self.answer(b"", 404)

    def do_CONNECT(self):
        """The operator's proxy, on port 3128: resolves by the zone, connects to anything."""
        host, _, port = self.path.rpartition(":")
        secret = self.headers.get("Proxy-Authorization", "").replace("Basic ", "")
        note(kind="connect", to=host, port=int(port), user=base64.b64decode(secret).decode())
        host = host.strip("[]")
        found = ZONE.get((host, A), [host])[-1]
        if host in ("refused.example.com",):
            self.answer(b"", 403)
            return
        try:
            outside = socket.create_connection((found, int(port)), 5)
        except OSError:
            self.answer(b"", 502)
            return
        self.send_response(200, "Connection established")
        self.end_headers()
        pump(self.connection, outside)
        self.close_connection = True

    def log_message(self, *_):
        pass


def pump(a, b):
    while True:
        for s in select.select([a, b], [], [], 60)[0] or [None]:
            data = s.recv(65536) if s else b""
            if not data:
                b.close()
                return
            (b if s is a else a).sendall(data)


class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 512
    tls = None

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "world", self.server_address[1]

    def get_request(self):
        s, peer = super().get_request()
        note(kind="tcp", to=plain(s.getsockname()[0]), port=self.server_port, peer=plain(peer[0]))
        return s, peer

    def finish_request(self, request, client_address):
        if self.tls:
            request.settimeout(20)
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, *_):
        pass  # clients may go whenever they want


def serve_http(port, tls=False):
    server = Threads(("::", port), Handler)
    if tls:
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(top / "server.pem", top / "server.key")
        server.tls.sni_callback = lambda s, name, _: note(kind="sni", name=name)
    spawn(server.serve_forever)


# --- UDP, with answers from the address that was asked

def udp_socket(port):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    s.bind(("::", port))
    return s


def serve_echo(port):
    s = udp_socket(port)

    def loop():
        while True:
            data, ancillary, _, peer = s.recvmsg(65536, 256)
            local = [value for _, kind, value in ancillary if kind == socket.IPV6_PKTINFO][0]
            note(kind="udp", to=plain(socket.inet_ntop(socket.AF_INET6, local[:16])), port=port,
                 size=len(data))
            try:
                s.sendmsg([b"echo:" + data], [x for x in ancillary if x[1] == socket.IPV6_PKTINFO],
                          0, peer)
            except OSError:
                pass
    spawn(loop)


# --- DNS

def encode_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def encode_record(question_type, value, owner=b"\xc0\x0c"):
    kind = question_type
    if value.startswith("@"):
        kind, data = CNAME, encode_name(value[1:])
    elif kind == A:
        data = socket.inet_pton(socket.AF_INET, value)
    elif kind == AAAA:
        data = socket.inet_pton(socket.AF_INET6, value)
    elif kind == TXT:
        data = bytes([len(value)]) + value.encode()
    elif kind == MX:
        data = b"\0\x0a" + encode_name(value)
    elif kind == 12:
        data = encode_name(value)
    else:  # HTTPS: priority, target, an address hint
        data = b"\0\x01\0" + struct.pack(">HH", 4, 4) + socket.inet_pton(socket.AF_INET, OTHER4)
    return owner + struct.pack(">HHIH", kind, 1, 0, len(data)) + data


def resolve(data, over):
    at, labels = 12, []
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode(errors="replace"))
        at += data[at] + 1
    name = ".".join(labels).lower()
    kind = struct.unpack(">H", data[at + 1:at + 3])[0]
    note(kind="dns", name=name, type=kind, over=over)
    if name == SILENT:
        return None
    found = ZONE.get((name, kind), [])
    if name == REBIND and kind == A:
        found = [[OK4], ["10.9.0.5"], ["127.0.0.1"]][next(rebound) % 3]
    if name.endswith(MANY) and kind == A:
        found = [OTHER4]
    is_known = name == REBIND or name.endswith(MANY) or any(key[0] == name for key in ZONE)
    extra = b""
    if kind == MX and found:  # an address beside the answer
        extra = encode_name(found[0]) + struct.pack(">HHIH", A, 1, 0, 4) + socket.inet_aton("10.9.0.5")
    flags = 0x8180 if is_known else 0x8183
    answer, owner = b"", b"\xc0\x0c"
    for value in found:
        answer += encode_record(kind, value, owner)
        owner = encode_name(value[1:]) if value.startswith("@") else owner
    answer += extra
    if over == "udp" and len(answer) > 400:
        flags, found, answer, extra = flags | 0x200, [], b"", b""
    head = data[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, bool(extra))
    return head + data[12:at + 5] + answer


def serve_dns():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((DNS_ADDRESS, 53))
    stream = socket.create_server((DNS_ADDRESS, 53), backlog=64)

    def datagrams():
        while True:
            data, peer = s.recvfrom(4096)
            answer = resolve(data, "udp")
            if answer:
                s.sendto(answer, peer)

    def one(connection):
        file = connection.makefile("rwb")
        while True:
            head = file.read(2)
            if len(head) < 2:
                return
            answer = resolve(file.read(struct.unpack(">H", head)[0]), "tcp")
            file.write(struct.pack(">H", len(answer)) + answer)
            file.flush()

    def streams():
        while True:
            spawn(one, stream.accept()[0])
    spawn(datagrams)
    spawn(streams)


def spawn(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


def main():
    if mode == "canary":
        serve_http(8000)
        serve_echo(8001)
    else:
        spawn(watch_packets)
        for port in (80, 8080, 3128):
            serve_http(port)
        serve_http(443, tls=True)
        serve_http(8443, tls=True)
        vault.serve_raw(8444, top)
        serve_echo(9999)
        serve_dns()
    print("up", flush=True)
    sys.stdin.read()  # ends when the parent ends


if __name__ == "__main__":
    mode, top = sys.argv[1], pathlib.Path(sys.argv[2])
    log = open(top / (mode + ".log"), "a", encoding="utf-8")
    main()
