# SPDX-License-Identifier: Apache-2.0
"""Sessions that open one kept container at the same time, and the clean-up, against a stand-in for the engine whose execs never
answer."""
import http.server
import json
import os
import signal
import socketserver
import threading

import pytest

from farlib import children, wait_until
from hostilelib import DOCKER, Places, row, words

MOST = (1000, 100, 50, 0, 0)  # thousandths of a CPU, MiB, processes


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path):
        self.made, self.runs, self.removed, self.execs, self.over = None, False, 0, 0, threading.Event()
        self.others = {}  # what stands there from earlier: id and labels
        super().__init__(str(path), Handler)
        os.chmod(path, 0o666)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "engine"

    def log_message(self, *args):
        pass

    def answer(self, status, body=None):
        text = json.dumps({} if body is None else body).encode()
        self.send_response(status)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Length", "0" if status == 204 else str(len(text)))
        self.end_headers()
        self.wfile.write(b"" if status == 204 else text)
        self.close_connection = True

    def do_GET(self):
        engine = self.server
        if "/_ping" in self.path:
            self.answer(200)
        elif "/containers/json" in self.path:
            self.answer(200, [{"Id": one, "Labels": labels} for one, labels in engine.others.items()])
        elif (one := self.path.split("/")[-2]) in engine.others:
            self.answer(200, {"Config": {"Labels": engine.others[one]}, "State": {"Running": False}})
        elif engine.made:
            self.answer(200, {"Config": {"Labels": engine.made["Labels"]}, "HostConfig": engine.made["HostConfig"],
                              "State": {"Running": engine.runs, "Paused": False}})
        else:
            self.answer(404)

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def do_POST(self):
        engine, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        if "/create" in self.path:
            engine.made = json.loads(body)
            self.answer(201, {"Id": "c" * 64})
        elif self.path.endswith("/exec"):
            self.answer(201, {"Id": "e" * 64})
        elif "/containers/" in self.path:
            engine.runs = True
            self.answer(204)
        else:
            engine.execs += 1
            engine.over.wait(60)

    def do_DELETE(self):
        self.server.removed += 1
        self.server.others.pop(self.path.split("/")[-1].split("?")[0], None)
        self.server.made, self.server.runs = None, False
        self.answer(204)


@pytest.fixture
def host():
    made = Places(lambda path: [row("kept", DOCKER, socket="%s/engine.sock" % path, image="an/image", network="none", limits=MOST, keeps=1, idle_s=1)])
    made.engine = Engine(made.dir / "engine.sock")
    made.give_table()
    yield made
    made.engine.over.set()
    made.close()
    made.engine.shutdown()
    made.engine.server_close()


def opening(host, session):
    """A session whose program has been started, and does not answer."""
    execs = host.engine.execs
    ends = host.ask(0, words(session=session))
    wait_until(lambda: host.engine.execs > execs, "the exec is started")
    return ends


def leave(host, ends, left):
    ends.close()
    wait_until(lambda: len(host.sessions()) == left, "it has ended")


def test_the_control_a_container_without_use_is_removed(host):
    leave(host, opening(host, b"ses_1"), 0)
    assert host.engine.removed == 1


def test_a_session_that_is_given_up_leaves_the_container_of_another(host):
    maker, other = opening(host, b"ses_1"), opening(host, b"ses_2")
    leave(host, maker, 1)
    assert host.engine.removed == 0
    leave(host, other, 0)
    assert host.engine.removed == 0


def test_it_leaves_the_files_of_one_that_has_ended(host):
    maker, other = opening(host, b"ses_1"), opening(host, b"ses_2")
    leave(host, other, 1)
    leave(host, maker, 0)
    assert host.engine.removed == 0


def test_an_orphan_is_found_behind_many_containers_that_are_kept(host):
    def labels(keep):
        return {"hermes": "1", "hermes-owner": "f" * 32, "hermes-backend": "kept", "hermes-config": "0" * 64, "hermes-lease": "1", "hermes-keep": keep}
    orphan = "b" * 64
    host.engine.others = {**{"%064x" % i: labels("yes") for i in range(600)}, orphan: labels("no")}
    wait_until(lambda: host.engine.removed, "it is removed")
    assert host.engine.removed == 1 and orphan not in host.engine.others and len(host.engine.others) == 600


def test_a_clean_up_that_was_ended_is_started_again(host):
    old = host.helpers
    assert len(old) == 1
    os.kill(old[0], signal.SIGKILL)
    wait_until(lambda: len(children(host.main)) == 1 and children(host.main) != old, "another one runs")
