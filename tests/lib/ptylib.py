# SPDX-License-Identifier: Apache-2.0
"""Clients of a session's terminal: one that keeps the rules (python3-websockets) and one that can break them."""
import asyncio
import base64
import json
import os
import re
import socket
import struct
import time

import websockets
from websockets.legacy.client import unix_connect

from apilib import SLOW, boxes_below, wait_until

PROMPT = r"box@box:[^ ]*\$ "
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def inside(server):
    """Processes in boxes, seen from outside: pid, command line, and group, session, terminal and its foreground group."""
    for pid in boxes_below(server.child("hermes-spawn")):
        try:
            words = open("/proc/%d/cmdline" % pid).read().split("\0")[:-1]
            fields = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
        except OSError:
            continue
        yield pid, words, list(map(int, fields[2:6]))


def shells(server):
    """Those that sit at a terminal."""
    return [pid for pid, _, (_, _, terminal, _) in inside(server) if terminal]


def sleepers(server):
    """Arguments of each `sleep`."""
    return [words[1] for _, words, _ in inside(server) if words[:1] == ["sleep"]]


def has_keyboard(server, command):
    """Whether it runs in the foreground of a terminal: keys are for it and not for the shell any more."""
    return any(words == command.split() and group == foreground for _, words, (group, _, _, foreground) in inside(server))


class Refused(Exception):
    def __init__(self, status, headers, body):
        super().__init__("HTTP %d %r" % (status, body))
        self.status, self.headers, self.body = status, headers, body


class Terminal:
    """A client that acts like a browser, one step at a time."""
    prompt = PROMPT

    def __init__(self, session, query="", headers=()):
        self.loop = asyncio.new_event_loop()
        self.server = session.server
        self.seen = ""
        self.texts = []
        self.code = self.reason = None
        headers = list(headers) + ([("X-API-Key", session.key)] if getattr(session, "key", None) else [])
        path = "ws://localhost/v1/sessions/%s/pty%s" % (session.id, query)

        async def connect():
            return await unix_connect(str(session.server.unix), path, extra_headers=headers, max_size=None,
                                      compression=None, ping_interval=None, open_timeout=30 * SLOW, close_timeout=10)
        self.ws = self.loop.run_until_complete(connect())
        self.until(self.prompt)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.loop.run_until_complete(self.ws.send(data.encode() if isinstance(data, str) else data))

    def control(self, text):
        self.loop.run_until_complete(self.ws.send(text if isinstance(text, str) else json.dumps(text)))

    def resize(self, rows, cols):
        self.control({"type": "resize", "rows": rows, "cols": cols})

    def receive(self, seconds=10.0):
        """The next message, or None when it is closed."""
        try:
            message = self.loop.run_until_complete(asyncio.wait_for(self.ws.recv(), seconds * SLOW))
        except websockets.ConnectionClosed as closed:
            self.code, self.reason = closed.code, closed.reason
            return None
        if isinstance(message, bytes):
            self.seen += message.decode(errors="replace")
        else:
            self.texts.append(json.loads(message))
        return message

    def until(self, pattern, seconds=10.0):
        """Reads until the output has it; returns the match and forgets what came before."""
        deadline = time.monotonic() + seconds * SLOW
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            assert time.monotonic() < deadline, "no %r in %r" % (pattern, self.seen[-2000:])
            assert self.receive(seconds) is not None, "closed (%s %s) before %r: %r" % (
                self.code, self.reason, pattern, self.seen[-2000:])

    def run(self, command, seconds=10.0):
        """What a command prints, its lines' ends as in files. The mark is not in what is echoed."""
        self.send("%s; echo 'ma''rk'$?\n" % command)
        self.until(r"\r\n", seconds)  # where the echo is wrapped there is no \n
        found = self.until(r"(?s)\A(?:\x1b\[\?2004l\r)?(.*?)mark(\d+)\r\n", seconds)
        self.until(self.prompt, seconds)
        self.status = int(found[2])
        return found[1].replace("\r\n", "\n")

    def start(self, command):
        """Types a command and waits until it has the keyboard."""
        self.send(command + "\n")
        assert wait_until(lambda: has_keyboard(self.server, command)), list(inside(self.server))

    def end(self, seconds=10.0):
        """Reads to the end: (exit code told or None, close code)."""
        while self.receive(seconds) is not None:
            pass
        return (self.texts[-1]["exit_code"] if self.texts else None), self.code

    def close(self):
        self.loop.run_until_complete(self.ws.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def vanish(self):
        """Goes away without a word."""
        self.ws.transport.abort()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(self.ws.wait_closed())
        self.loop.close()


def handshake(session, query="", drop=(), method="GET", **headers):
    """Lines of an opening handshake; named headers (with _ for -) replace or add."""
    fields = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
              "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode()}
    fields.update({name.replace("_", "-"): value for name, value in headers.items()})
    for name in drop:
        del fields[name]
    lines = ["%s /v1/sessions/%s/pty%s HTTP/1.1" % (method, session.id, query)]
    return "\r\n".join(lines + ["%s: %s" % field for field in fields.items()]) + "\r\n\r\n"


def frame(opcode, payload=b"", fin=True, masked=True, rsv=0, length=None):
    """A frame; `length` lies about that of the payload."""
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    size = len(payload) if length is None else length
    bit = 0x80 if masked else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def connect(server, tcp=False):
    if tcp:
        return socket.create_connection(("127.0.0.1", server.port), 20 * SLOW)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20 * SLOW)
    sock.connect(str(server.unix))
    return sock


class Raw:
    """A client that sends any bytes."""
    def __init__(self, session, query="", tcp=False, **kwargs):
        self.sock = connect(session.server, tcp)
        self.buffer = b""
        self.sock.sendall(handshake(session, query, **kwargs).encode())
        while b"\r\n\r\n" not in self.buffer:
            got = self.sock.recv(65536)
            if not got:
                raise Refused(0, "", self.buffer)
            self.buffer += got
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            size = int(re.search(rb"(?i)content-length: (\d+)", head)[1]) if method_has_body(kwargs) else 0
            while len(self.buffer) < size:
                self.buffer += self.sock.recv(65536)
            self.sock.close()
            raise Refused(status, head.decode(), self.buffer)
        self.head = head.decode()

    def send(self, *frames):
        self.sock.sendall(b"".join(frames))

    def take(self, size):
        while len(self.buffer) < size:
            got = self.sock.recv(65536)
            if not got:
                raise EOFError
            self.buffer += got
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def receive(self):
        """The next frame of the server's: (opcode, payload). It is never masked, and never in parts."""
        first, second = self.take(2)
        assert first & 0xf0 == 0x80 and not second & 0x80
        size = second
        if size == 126:
            size = struct.unpack(">H", self.take(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self.take(8))[0]
        return first & 15, self.take(size)

    def closed(self):
        """Reads until the server closes: (code, reason), or None when it just goes."""
        while True:
            try:
                opcode, payload = self.receive()
            except (EOFError, ConnectionResetError):
                return None
            if opcode == CLOSE and not payload:
                return 1005, ""
            if opcode == CLOSE:
                return struct.unpack(">H", payload[:2])[0], payload[2:].decode()

    def close(self):
        self.sock.close()


def method_has_body(kwargs):
    return kwargs.get("method") != "HEAD"


def refusal(session, query="", **kwargs):
    try:
        Raw(session, query, **kwargs).close()
    except Refused as refused:
        return refused
    raise AssertionError("it was not refused")
