# SPDX-License-Identifier: Apache-2.0
"""Sessions on backends, for tests: what a test of every place needs to know of one."""
import contextlib
import json
import os

import pytest

import enginelib
from farlib import processes_with

# Daemons are heavy: `make test-backends` runs everything with them, `make test` one short case.
WHOLE = bool(os.environ.get("HERMES_BACKENDS") or os.environ.get("HERMES_FULL"))


def need(problem):
    """For a program or an engine that is not there: `make test` skips, `make test-backends` has installed it and fails."""
    if problem and os.environ.get("HERMES_BACKENDS"):
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)


class Session:
    def __init__(self, server, backend, **fields):
        self.server = server
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **fields})
        assert reply.status == 201, reply
        self.json = reply.json()
        self.id = self.json["id"]
        self.path = "/v1/sessions/" + self.id

    def exec(self, code, **fields):
        reply = self.server("POST", self.path + "/exec", {"code": code, **fields})
        assert reply.status == 200, reply
        return reply.json()

    def out(self, code, **fields):
        return self.exec(code, **fields)["stdout"]

    def look(self):
        return self.server("GET", self.path).json()

    @contextlib.contextmanager
    def begin(self, code, **fields):
        """An exec that runs meanwhile; calls the value for its answer."""
        connection = self.server.connect()
        connection.request("POST", self.path + "/exec", json.dumps({"code": code, **fields}), {"Content-Type": "application/json"})
        yield lambda: json.loads(connection.getresponse().read())
        connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server("DELETE", self.path)


class Place:
    """One row of the conformance suite. `once`: the backend where a session has a place of its own. `told`: of a stand-in
    that enforces nothing, a function that says which value of a limit it got last. `least`: the lowest limits that a place
    can have. `sandboxes`: of a place with a kernel of its own, a function that lists those of `once` by a word in the
    command lines of this machine, which does not see what runs in them."""

    def __init__(self, server, name, kind, isolation, enforces=(), once=None, told=None, least=None, sandboxes=None):
        self.server, self.name, self.kind, self.isolation, self.enforces = server, name, kind, isolation, set(enforces)
        self.once, self.told, self.least, self.sandboxes = once or name, told, least or {}, sandboxes

    def open(self, **fields):
        return Session(self.server, self.name, **fields)

    def has_process(self, word, witness):
        """Whether a command line has the word: on the whole machine and, if it does not see them, those of the place, which
        an idle session there looks at. Nothing is started for it."""
        return bool(processes_with(word)) or bool(self.sandboxes) and word in witness.out(
            "for f in /proc/[0-9]*/cmdline; do mapfile -d '' words <$f; echo ${words[*]}; done 2>/dev/null")


def allow_commands(server, *backends):
    """The rules of an operator who wants no questions about commands on these backends (docs/backends.md)."""
    rules = [{"effect": "host_exec", "match": {"backend": name}, "decision": "allow", "examples": {"match": [{"backend": name, "argv": ["make"]}]}}
             for name in backends]
    assert server("PUT", "/v1/approvals/rules", {"rules": rules}).status == 200


def engine_row(name, engine, **lines):
    """The section of a backend on this engine."""
    lines = {"kind": "docker", "keys": "*", "docker_socket": engine.socket, "docker_image": enginelib.IMAGE,
             "container_memory": 256, "container_pids": 64, **lines}
    return "[backend %s]\n" % name + "".join("%s = %s\n" % line for line in lines.items())
