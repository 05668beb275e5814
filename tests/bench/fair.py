# SPDX-License-Identifier: Apache-2.0
"""One key at its worst: what another key notices of it. Both sides are measured in one run, the quiet one
first."""
import json
import multiprocessing
import re
import socket
import statistics
import threading
import time

from over_http import Serving  # makes tests/lib importable

from apilib import wait_until

WORST, OTHER = "worst-secret", "other-secret"
RUN = {"language": "python", "code": "print(1)"}
P50_FACTOR, P99_FACTOR, EXTRA_MS = 3, 10, 0.0
QUIET_S, LOUD_S = 3.0, 8.0
SPIN = "import os\nfor _ in range(2):\n  if os.fork() == 0:\n    os.setsid()\n    while True: pass\n"
THREADS = ("import threading, time\nfor _ in range(40): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\n"
           "while True: pass")
LOUD = "import sys\nwhile True: sys.stdout.write(chr(1) * 65536)"


class Worst:
    """Everything at once, by one key, until it is closed."""

    def __init__(self, server):
        self.server = server
        self.stop = threading.Event()
        self.sockets, self.runs = [], []
        self.sessions = [self.create() for _ in range(12)]
        for one in self.sessions:
            self.ask("POST", "/v1/sessions/%s/exec" % one, {"code": SPIN})
        work = [lambda: self.ask("POST", "/v1/runs", {"language": "python", "code": THREADS, "limits": {
                    "wall_ms": 3000, "processes": 60}})] * 6
        work += [lambda: self.ask("POST", "/v1/runs", {"language": "python", "code": LOUD, "limits": {"wall_ms": 2000}})] * 4
        work += [lambda one=one: self.ask("POST", "/v1/sessions/%s/exec" % one, {"code": "while True: pass", "timeout_ms": 3000})
                 for one in self.sessions[:8]]
        work += [self.queue_large, self.open_slow]
        self.threads = [threading.Thread(target=self.repeat, args=(w,)) for w in work]
        for thread in self.threads:
            thread.start()

    def ask(self, method, path, body=None):
        return self.server(method, path, body, key=WORST, tcp=True)

    def create(self):
        reply = self.ask("POST", "/v1/sessions", {"language": "python", "limits": {"memory_mb": 128}})
        if reply.status != 201:
            raise RuntimeError(repr(reply))
        return reply.json()["id"]

    def repeat(self, work):
        while not self.stop.is_set():
            work()

    def queue_large(self):
        """Asynchronous runs of all memory that one key may have."""
        if len(self.runs) < 64:
            most = self.ask("GET", "/v1/runtimes").json()["maxima"]["memory_mb"]
            reply = self.ask("POST", "/v1/runs", {"language": "python", "code": "1", "async": True,
                                                  "limits": {"memory_mb": most}})
            if reply.status == 202:
                self.runs.append(reply.json()["id"])
        self.stop.wait(0.1)

    def open_slow(self):
        """Requests that never end."""
        if len(self.sockets) < 100:
            s = socket.create_connection(("127.0.0.1", self.server.port))
            s.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                      b"Content-Length: 1000\r\n\r\n{" % WORST.encode())
            self.sockets.append(s)
        self.stop.wait(0.02)

    def close(self):
        self.stop.set()
        for s in self.sockets:
            s.close()
        for run in self.runs:
            self.ask("DELETE", "/v1/runs/" + run)
        for one in self.sessions:
            self.ask("DELETE", "/v1/sessions/" + one)
        for thread in self.threads:
            thread.join()


def attack(server, ready, stop):
    """In a process of its own: the threads of one interpreter are in each other's way."""
    worst = Worst(server)
    ready.set()
    stop.wait()
    worst.close()


def measure(server, seconds):
    """Milliseconds of runs of the other key, one after the other; none may be refused or wrong."""
    conn = server.connect(tcp=True)
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 20:
        begin = time.perf_counter()
        reply = server("POST", "/v1/runs", RUN, key=OTHER, conn=conn)
        times.append((time.perf_counter() - begin) * 1000)
        if reply.status != 200 or reply.json()["stdout"] != "1\n":
            raise RuntimeError("the other key was answered " + repr(reply))
    conn.close()
    return times


def p99(times):
    return sorted(times)[int(len(times) * 0.99)]


def one_key_at_its_worst(bench):
    """`print(1)` of one key while another one does everything at once, against the same in quiet."""
    from run import row
    with Serving(HERMES_API_KEYS=WORST + ", " + OTHER) as server:
        measure(server, 1)
        quiet = measure(server, QUIET_S)
        fork = multiprocessing.get_context("fork")
        ready, stop = fork.Event(), fork.Event()
        worst = fork.Process(target=attack, args=(server, ready, stop))
        worst.start()
        try:
            if not ready.wait(60):
                raise RuntimeError("the attack did not begin")
            wait_until(lambda: server.metric("hermes_queue_waiting") >= 8 and server.metric("hermes_boxes_running") >= 4, 5)
            loud = measure(server, LOUD_S)
            seen = re.findall(r"^(hermes_(?:queue_waiting|boxes_running|sessions|sessions_evicted_total)) (\S+)$",
                              server("GET", "/metrics").body.decode(), re.M)
        finally:
            stop.set()
            worst.join()
        print("  meanwhile: %s" % json.dumps(dict(seen)))
        yield row("one key at its worst, p50", [statistics.median(loud)], [statistics.median(quiet)], P50_FACTOR, EXTRA_MS)
        yield row("one key at its worst, p99", [p99(loud)], [p99(quiet)], P99_FACTOR, EXTRA_MS,
                  "%d runs, none refused" % len(loud))
