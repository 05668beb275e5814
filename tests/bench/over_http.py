# SPDX-License-Identifier: Apache-2.0
"""What HTTP costs: a run over a kept connection against `hermes run` of the same program, and how
many requests a second the server answers that need no box. (Not named http.py: that would hide
Python's own module from everybody in this directory.)"""
import base64
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from apilib import Server  # noqa: E402

WRK_AIM = 45000
WRK_SECONDS = 5
LISTED = 100
LIST = "/v1/runs?limit=%d" % LISTED


class Serving:
    """A server for one measurement."""

    def __init__(self, **env):
        self.env = env

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="hermes-bench-", dir="/var/tmp")
        pathlib.Path(self.folder.name).chmod(0o755)
        self.server = Server(self.folder.name, env=self.env)
        return self.server

    def __exit__(self, *error):
        self.server.stop()
        self.folder.cleanup()


class Kept:
    """A connection that is kept, with as little of a client as there can be: http.client takes 0.3 ms of
    a run when the caches are cold, and with eight of them 6 % of both processors."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=180)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, body, path="/v1/runs"):
        """Milliseconds until the whole answer was there, and the answer."""
        taken, answer = self.ask(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                 b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        return taken, json.loads(answer)

    def get(self, path):
        """Milliseconds until the whole answer was there, and its bytes."""
        return self.ask(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())

    def ask(self, request):
        start = time.perf_counter()
        self.socket.sendall(request)
        head, end, answer = b"", b"", b""
        while not end:
            head += self.receive()
            head, end, answer = head.partition(b"\r\n\r\n")
        size = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        while len(answer) < size:
            answer += self.receive()
        taken = (time.perf_counter() - start) * 1000
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(repr(head + answer))
        return taken, answer

    def receive(self):
        some = self.socket.recv(65536)
        if not some:
            raise RuntimeError("the server has closed the connection")
        return some

    def close(self):
        self.socket.close()


def timed(conn, body):
    """Milliseconds of one run over HTTP; it must succeed and say hello."""
    taken, run = conn.post(body)
    if run["stdout"].strip() != "hello":
        raise RuntimeError(repr(run))
    return taken


def over_http(bench):
    """A run over a kept connection, against `hermes run` of the same (which starts a spawner) and bwrap."""
    from run import LANGUAGES, bwrap, clock, interleave, row
    folder = bench.place("over-http", {"hello.c": LANGUAGES["c"]["hello"], "main.py": "print('hello')\n"})
    # With musl it has 20 kB; with glibc it has 800, and JSON costs more than the run: jansson reads
    # 75 MB a second here.
    compiler = "musl-gcc" if shutil.which("musl-gcc") else "gcc"
    subprocess.run([compiler, "-Os", "-s", "-static", "-o", "hello", "hello.c"], cwd=folder, check=True)
    (folder / "hello").chmod(0o755)
    native = {"language": "native", "entry": "hello", "files": [
        {"name": "hello", "content": base64.b64encode((folder / "hello").read_bytes()).decode(),
         "encoding": "base64", "executable": True}]}
    python = {"language": "python", "code": "print('hello')\n"}
    with Serving() as server:
        conn = Kept(server)
        for name, body, path in (("static program", native, folder / "hello"),
                                 ("python", python, folder / "main.py")):
            text = json.dumps(body).encode()
            http, cold = interleave(bench.rounds * 3, lambda: timed(conn, text),
                                    lambda: bench.hermes(folder, path))
            yield row("%s over HTTP" % name, http, cold, 1.0, note="than hermes run")
        if shutil.which("bwrap"):
            text = json.dumps(native).encode()
            http, theirs = interleave(bench.rounds * 3, lambda: timed(conn, text),
                                      lambda: clock(bwrap(folder, "hello"), folder, bench.env))
            yield row("static over HTTP vs bwrap", http, theirs, 0.5)
        conn.close()


def health_per_second(bench):
    """GET /health by wrk on the same machine, in milliseconds per request on all cores."""
    if not shutil.which("wrk"):
        print("wrk is missing: tools/install-deps.sh test")
        return
    with Serving() as server:
        best = 0.0
        for _ in range(3):
            done = subprocess.run(["wrk", "-t", "1", "-c", "32", "-d", "%ds" % WRK_SECONDS,
                                   "http://127.0.0.1:%d/health" % server.port],
                                  stdout=subprocess.PIPE, check=True, text=True)
            if re.search(r"Non-2xx|Socket errors", done.stdout):
                raise RuntimeError(done.stdout)
            best = max(best, float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout).group(1)))
    yield {"name": "GET /health", "ms": round(1000 / best, 4), "than_ms": round(1000 / WRK_AIM, 4),
           "ratio": round(WRK_AIM / best, 3), "target": 1.0, "extra_ms": 0.0, "met": best >= WRK_AIM,
           "rounds": 3, "note": "%.0f requests/s, aim %d" % (best, WRK_AIM)}


def reads(bench):
    """What only reads: the status, a list of a hundred runs, the description of the API, against GET /health."""
    from run import interleave, row
    with Serving() as server:
        conn = Kept(server)
        body = json.dumps({"language": "bash", "code": "echo hello"}).encode()
        for _ in range(LISTED):
            timed(conn, body)
        if len(json.loads(conn.get(LIST)[1])["runs"]) != LISTED:
            raise RuntimeError("the list is not whole")
        for path, target in (("/v1/status", 3), (LIST, 25), ("/openapi.json", 5)):
            size = len(conn.get(path)[1])
            ours, health = interleave(bench.rounds * 20, lambda: conn.get(path)[0], lambda: conn.get("/health")[0])
            yield row("GET " + path, ours, health, target, note="than GET /health; %d bytes" % size)
        conn.close()
