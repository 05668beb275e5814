# SPDX-License-Identifier: Apache-2.0
"""Small MCP clients for tests: both eras over HTTP. They check nothing; tests do."""
import json

NEWEST = "2026-07-28"
LEGACY = ("2025-03-26", "2025-06-18", "2025-11-25")
META = "io.modelcontextprotocol/"
ACCEPT = "application/json, text/event-stream"


def events(text):
    """The messages of a stream, each with its id: [(id, message)]. An event without data has None."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) if ": " in line else (line.rstrip(":"), "")
                      for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("id"), json.loads(fields["data"]) if fields["data"] else None))
    return found


class Modern:
    """The stateless wire."""

    def __init__(self, server, key=None, path="/mcp", capabilities=None):
        self.server, self.key, self.path = server, key, path
        self.capabilities = capabilities or {}
        self.count = 0

    def message(self, method, params=None, meta=None):
        self.count += 1
        params = dict(params or {})
        params["_meta"] = {META + "protocolVersion": NEWEST, META + "clientCapabilities": self.capabilities, **(meta or {})}
        return {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}

    def headers(self, message):
        params = message.get("params") or {}
        headers = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": message["method"], "Accept": ACCEPT}
        if message["method"] in ("tools/call", "prompts/get"):
            headers["Mcp-Name"] = params["name"]
        if message["method"] == "resources/read":
            headers["Mcp-Name"] = params["uri"]
        return headers

    def post(self, message, headers=None):
        return self.server("POST", self.path, message, headers or self.headers(message), key=self.key)

    def send(self, method, params=None, meta=None):
        """The reply, and the messages in it; the last is the response."""
        reply = self.post(self.message(method, params, meta))
        if reply.headers.get("Content-Type", "").startswith("text/event-stream"):
            return reply, [m for _, m in events(reply.body.decode()) if m]
        return reply, [reply.json()]

    def ask(self, method, params=None, meta=None):
        reply, messages = self.send(method, params, meta)
        assert reply.status == 200, reply
        assert "result" in messages[-1], messages[-1]
        return messages[-1]["result"]

    def call(self, tool, /, meta=None, **arguments):
        return self.ask("tools/call", {"name": tool, "arguments": arguments}, meta)


class Legacy:
    """The handshake wire."""

    def __init__(self, server, key=None, path="/mcp", capabilities=None, version="2025-11-25"):
        self.server, self.key, self.path, self.version = server, key, path, version
        self.session = None
        self.count = 0
        reply, messages = self.send("initialize", {"protocolVersion": version, "capabilities": capabilities or {},
                                                   "clientInfo": {"name": "test", "version": "1"}})
        assert reply.status == 200, reply
        self.hello = messages[-1]["result"]
        self.session = reply.headers["Mcp-Session-Id"]
        assert self.note("notifications/initialized").status == 202

    def headers(self):
        headers = {"Accept": ACCEPT}
        if self.session:
            headers.update({"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version})
        return headers

    def post(self, message, headers=None):
        return self.server("POST", self.path, message, headers or self.headers(), key=self.key)

    def note(self, method, params=None):
        return self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def send(self, method, params=None, meta=None):
        self.count += 1
        params = dict(params or {}, **({"_meta": meta} if meta else {}))
        reply = self.post({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})
        if reply.headers.get("Content-Type", "").startswith("text/event-stream"):
            return reply, [m for _, m in events(reply.body.decode()) if m]
        return reply, [reply.json()]

    ask = Modern.ask
    call = Modern.call

    def delete(self):
        return self.server("DELETE", self.path, headers=self.headers(), key=self.key)


def both(server, **kwargs):
    return [Modern(server, **kwargs)] + [Legacy(server, version=version, **kwargs) for version in LEGACY]
