# SPDX-License-Identifier: Apache-2.0
"""`hermes mcp` on stdin and stdout: with an engine of its own, and as a client of a server."""
import json
import os
import subprocess

import pytest

from apilib import BUILD, wait_until
from mcplib import META, NEWEST

MODERN = {META + "protocolVersion": NEWEST, META + "clientCapabilities": {}}


class Stdio:
    def __init__(self, *args, env=None):
        self.process = subprocess.Popen([BUILD / "hermes", "mcp", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})))
        self.count = 0

    def write(self, message):
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, params=None):
        self.count += 1
        self.write({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params or {}})
        answer = self.read()
        while "id" not in answer and "method" in answer:  # notifications of changes may come first
            answer = self.read()
        assert answer["id"] == self.count, answer
        return answer

    def modern(self, method, params=None):
        return self.ask(method, dict(params or {}, _meta=MODERN))

    def greet(self, version="2025-11-25"):
        answer = self.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(60)
        rest = self.process.stdout.read()
        said = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return status, rest, said


@pytest.fixture
def stdio():
    made = []

    def make(*args, **kwargs):
        made.append(Stdio(*args, **kwargs))
        return made[-1]
    yield make
    for client in made:
        if client.process.poll() is None:
            client.process.kill()
            client.process.wait()
        for pipe in (client.process.stdin, client.process.stdout, client.process.stderr):
            pipe.close()


def children(pid):
    return subprocess.run(["ps", "--ppid", str(pid), "-o", "comm="], capture_output=True, text=True).stdout.split()


def test_it_answers_before_it_has_an_engine(stdio):
    client = stdio()
    assert client.modern("server/discover")["result"]["supportedVersions"][0] == NEWEST
    assert [t["name"] for t in client.modern("tools/list")["result"]["tools"]] == ["execute", "resume"]
    assert children(client.process.pid) == []
    assert client.modern("tools/call", {"name": "execute", "arguments": {"code": "return 6 * 7"}})["result"]["content"][0]["text"] == "42"
    assert "hermes-spawn" in children(client.process.pid)  # the control
    assert client.close() == (0, b"", "")


def test_both_eras_in_one_process(stdio):
    client = stdio("--full")
    assert client.greet("2025-06-18")["protocolVersion"] == "2025-06-18"
    assert client.ask("ping")["result"] == {}
    assert client.modern("ping")["error"]["code"] == -32601
    result = client.ask("tools/call", {"name": "run_code", "arguments": {"language": "python", "code": "print(5)"}})["result"]
    assert result["content"][0]["text"] == "stdout:\n5\n" and "resultType" not in result
    assert client.modern("tools/call", {"name": "shell", "arguments": {"command": "echo 6"}})["result"]["resultType"] == "complete"
    assert client.close()[0] == 0


@pytest.mark.parametrize("line", [b"{", b"[]", b"5", b'{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}', b"\xff", b"[" * 1000])
def test_hostile_lines_are_answered_and_the_next_works(stdio, line):
    client = stdio()
    client.greet()
    client.write(line)
    assert client.read()["error"]["code"] in (-32700, -32600)
    client.write(b"")
    assert client.ask("ping")["result"] == {}


def test_the_end_of_input_ends_boxes_and_all(stdio):
    client = stdio()
    client.greet()
    client.write({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": {
        "name": "execute", "arguments": {"code": "await new Promise((r) => setTimeout(r, 600000))"}}})
    assert wait_until(lambda: "hermes-spawn" in children(client.process.pid), 30)
    status, rest, _ = client.close()
    assert status == 0
    assert b'"slow"' not in rest  # a cancelled request has no answer


def test_a_request_can_be_cancelled(stdio):
    client = stdio()
    client.greet()
    client.write({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": {
        "name": "execute", "arguments": {"code": "await new Promise((r) => setTimeout(r, 600000))"}}})
    assert client.ask("ping")["result"] == {}  # it is answered meanwhile
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})
    answer = client.ask("tools/call", {"name": "execute", "arguments": {"code": "return 'next'"}})
    assert answer["result"]["content"][0]["text"] == "next"


def test_two_of_them_share_nothing(stdio):
    one, two = stdio("--full"), stdio("--full")
    session = one.modern("tools/call", {"name": "session_create", "arguments": {"language": "bash"}})["result"]["structuredContent"]["session_id"]
    asked = {"name": "shell", "arguments": {"session_id": session, "command": "echo here"}}
    assert "not found" in two.modern("tools/call", asked)["result"]["content"][0]["text"]
    assert "here" in one.modern("tools/call", asked)["result"]["content"][0]["text"]
    assert one.close()[0] == two.close()[0] == 0


@pytest.mark.parametrize("how", ["url", "environment", "unix"])
def test_as_a_client_of_a_server(server, stdio, how):
    url = "http://127.0.0.1:%d" % server.port
    args = {"url": ["--url", url], "unix": ["--unix", str(server.unix)], "environment": []}[how]
    client = stdio("--full", *args, env={"HERMES_URL": url} if how == "environment" else None)
    assert client.greet()["protocolVersion"] == "2025-11-25"
    made = client.ask("tools/call", {"name": "session_create", "arguments": {"language": "bash"}})["result"]["structuredContent"]
    assert made["session_id"] in [s["id"] for s in server("GET", "/v1/sessions").json()["sessions"]]
    assert "hermes-spawn" not in children(client.process.pid)
    assert client.modern("tools/call", {"name": "shell", "arguments": {"command": "echo 6"}})["result"]["resultType"] == "complete"
    assert client.ask("nope")["error"]["code"] == -32601
    client.write(b"{")
    assert "error" in client.read()
    status, _, said = client.close()
    assert status == 0 and said == ""


def test_a_server_that_is_not_there_is_an_error_of_each_request(stdio):
    client = stdio("--url", "http://127.0.0.1:1")
    answer = client.modern("server/discover")
    assert "is `hermes serve` running there?" in answer["error"]["message"]
    assert client.close()[0] == 0


def test_keys_of_a_server(make_server, stdio, tmp_path):
    (tmp_path / "keys").write_text("[alice]\nkey = alice-secret-key\n")
    (tmp_path / "keys").chmod(0o600)
    server = make_server(args=["--keys-file", str(tmp_path / "keys")])
    url = "http://127.0.0.1:%d" % server.port
    wrong = stdio(env={"HERMES_URL": url, "HERMES_API_KEY": "wrong"})
    assert "the key is wrong" in wrong.modern("server/discover")["error"]["message"]
    right = stdio(env={"HERMES_URL": url, "HERMES_API_KEY": "alice-secret-key"})
    assert "result" in right.modern("server/discover")
    wrong.close()
    right.close()


def test_help_and_wrong_usage():
    shown = subprocess.run([BUILD / "hermes", "mcp", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0 and "--full" in shown.stdout
    assert subprocess.run([BUILD / "hermes", "mcp", "x"], capture_output=True).returncode == 2
