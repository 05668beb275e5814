# SPDX-License-Identifier: Apache-2.0
"""A real engine that drops a limit without an error, as one without control groups does. A program between Hermes and the engine makes it so."""
import contextlib
import json
import pathlib
import shutil
import socket
import tempfile
import threading

import pytest

from farlib import wait_until
from placelib import Session, WHOLE, engine_row

pytestmark = pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")


def read_request(connection):
    text = b""
    while b"\r\n\r\n" not in text:
        piece = connection.recv(65536)
        if not piece:
            return text
        text += piece
    return text


def pump(source, target):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


class Forgetful:
    """Says that `drops`, a field of HostConfig, has no value. All else goes to the engine and back."""

    def __init__(self, engine):
        self.engine, self.drops = engine, None
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hermes-forgetful-", dir="/var/tmp"))
        self.dir.chmod(0o755)
        self.socket = self.dir / "s"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.socket))
        self.socket.chmod(0o666)
        self.listener.listen(64)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.answer, args=(self.listener.accept()[0],), daemon=True).start()

    def answer(self, connection):
        request = read_request(connection)
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].decode()
        if self.drops and method == b"GET" and "/containers/" in path and path.endswith("/json") and "/containers/json" not in path:
            status, found = self.engine("GET", path)
            if status == 200:
                found["HostConfig"][self.drops] = 0
            text = json.dumps(found).encode()
            connection.sendall(b"HTTP/1.1 %d X\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
            connection.close()
            return
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(str(self.engine.socket))
        upstream.sendall(request)
        back = threading.Thread(target=pump, args=(upstream, connection), daemon=True)
        back.start()
        pump(connection, upstream)
        back.join()
        connection.close()
        upstream.close()

    def close(self):
        self.listener.close()
        shutil.rmtree(self.dir)


@pytest.fixture(scope="module")
def forgetful(engine_of):
    made = Forgetful(engine_of("docker"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(forgetful, serve_engine):
    return serve_engine(engine_row("box", forgetful.engine, docker_socket=forgetful.socket, container_persistent="no"))


@pytest.mark.parametrize("mode", ["strict", "best_effort"])
@pytest.mark.parametrize("drops,limit", [("Memory", "memory_mb"), ("PidsLimit", "processes")])
def test_memory_and_processes_are_never_optional(forgetful, server, drops, limit, mode):
    """Nothing runs in such a container, and it does not stay. The control: CPUs that nobody named are not enforced, and the session opens."""
    def containers():
        return {one["Id"] for one in forgetful.engine.containers()}
    others = containers()  # the engine serves other tests, too
    try:
        forgetful.drops = drops
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "box", "limits_mode": mode})
        error = reply.json()["error"]
        assert reply.status == 422 and (error["code"], error["field"]) == ("unsupported_limit", "limits." + limit), reply
        wait_until(lambda: containers() <= others, "it is removed")
        forgetful.drops = "NanoCpus"
        with Session(server, "box") as s:
            assert s.json["backend"]["limits"]["cpus"] == "not_enforced" and s.json["backend"]["limits"][limit] > 0
            assert s.out("echo fine") == "fine\n"
    finally:
        forgetful.drops = None
