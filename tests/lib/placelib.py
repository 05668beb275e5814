# SPDX-License-Identifier: Apache-2.0
"""Sessions on backends, for tests: what a test of every place needs to know of one."""
import enginelib


class Session:
    def __init__(self, server, backend, **fields):
        self.server = server
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **fields})
        assert reply.status == 201, reply
        self.json = reply.json()
        self.path = "/v1/sessions/" + self.json["id"]

    def exec(self, code, **fields):
        reply = self.server("POST", self.path + "/exec", {"code": code, **fields})
        assert reply.status == 200, reply
        return reply.json()

    def out(self, code, **fields):
        return self.exec(code, **fields)["stdout"]

    def look(self):
        return self.server("GET", self.path).json()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server("DELETE", self.path)


class Place:
    """One row of the conformance suite."""

    def __init__(self, server, name, kind, isolation, enforces=()):
        self.server, self.name, self.kind, self.isolation, self.enforces = server, name, kind, isolation, set(enforces)

    def open(self, **fields):
        return Session(self.server, self.name, **fields)


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
