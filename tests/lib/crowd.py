# SPDX-License-Identifier: Apache-2.0
"""A light client for many connections at a time: asyncio, keep-alive, no more of HTTP than
Hermes answers with. A connection that the server ends without an answer is an error."""
import asyncio
import json


class Lost(Exception):
    """A request that got no answer."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "HTTP %d %r" % (self.status, self.body[:1000])


def encode(method, path, body=None, headers=(), key=None):
    """The bytes of a request; body is bytes, or what becomes JSON."""
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost"]
    if body is not None:
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines += ["Content-Type: application/json", "Content-Length: %d" % len(body)]
    if key:
        lines.append("Authorization: Bearer " + key)
    lines += ["%s: %s" % pair for pair in headers]
    return "\r\n".join(lines + ["", ""]).encode() + (body or b"")


class Connection:
    """One keep-alive connection to a TCP port of this machine."""

    def __init__(self, port, timeout=600.0):
        self.port, self.timeout = port, timeout
        self.reader = self.writer = None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port,
                                                                 limit=1 << 20)

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None

    async def __call__(self, method, path, body=None, headers=(), key=None):
        try:
            if not self.writer:
                await self.open()
            self.writer.write(encode(method, path, body, headers, key))
            return await asyncio.wait_for(self.read(), self.timeout)
        except (OSError, EOFError, asyncio.TimeoutError) as e:
            self.close()
            raise Lost("%s %s: %s" % (method, path, e or type(e).__name__))

    async def read(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        status = int(head[0].split(" ", 2)[1])
        headers = {}
        for line in head[1:-2]:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join([piece async for piece in self.chunks()])
        elif status in (204, 304):
            body = b""
        else:
            body = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, body)

    async def chunks(self):
        while True:
            size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
            piece = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield piece[:-2]
