# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of MCP: one server for all that do not harm it, and a maker of others. After every test no
session and no process of a box may be left."""
import http.client
import json
import subprocess

import pytest

from apilib import BUILD, Reply, wait_until
from serving import assert_idle, programs, serve, serve_many  # noqa: F401

# Boxes kept ready look like boxes that are left.
QUIET = {"HERMES_SESSION_PARKED": "0"}


@pytest.fixture(scope="session")
def shared_mcp():
    yield from serve(env=QUIET)


def is_settled(server):
    """No execution is under way. The sessions that stand ready for the next one are ended here."""
    sessions = server("GET", "/v1/sessions").json()["sessions"]
    for session in sessions:
        server("DELETE", "/v1/sessions/" + session["id"])
    return not sessions


@pytest.fixture
def server(shared_mcp):
    yield shared_mcp
    assert shared_mcp.process.poll() is None, shared_mcp.logs()[-3000:]
    assert wait_until(lambda: is_settled(shared_mcp), 30)
    assert_idle(shared_mcp)
    assert shared_mcp.metric("hermes_sessions") == 0


@pytest.fixture
def make_server():
    yield from serve_many(QUIET)


class Fixture:
    """The program of the conformance suite (fixture.c). Called as a server under test is."""

    def __init__(self):
        self.process = subprocess.Popen([BUILD / "tests/mcp-fixture", "0"], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.url = "http://127.0.0.1:%d/mcp" % self.port

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def __call__(self, method, path, body=None, headers=None, key=None, conn=None):
        conn = conn or self.connect()
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        headers = dict({"Content-Type": "application/json"} if data is not None else {}, **(headers or {}))
        conn.request(method, path, data, headers)
        answer = conn.getresponse()
        return Reply(answer.status, answer.headers, answer.read())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="session")
def fixture():
    fixture = Fixture()
    yield fixture
    fixture.stop()
