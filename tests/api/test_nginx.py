# SPDX-License-Identifier: Apache-2.0
"""packaging/nginx.conf in a real nginx, with TLS, in front of a real server on a unix socket. Only
ports and paths are replaced."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

from apilib import ROOT, SLOW, Reply, make_dir, sse, wait_until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:%s/build-tools/usr/sbin" % ROOT)
KEY = "behind-a-proxy"
SLEEPER = {"language": "python", "limits": {"wall_ms": 600000},
           "code": "import time; print('first', flush=True); time.sleep(600)"}

pytestmark = [pytest.mark.skipif(not NGINX, reason="no nginx: tools/install-deps.sh test"),
              pytest.mark.skipif(os.geteuid() != 0, reason="the site's workers change their user")]

MAIN = """user %(user)s;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log;
worker_processes 1;
daemon off;
events {}
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    include %(dir)s/site.conf;
}
"""


class Proxy:
    def __init__(self, server):
        self.server = server
        self.dir = make_dir()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.certificate = self.dir / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=hermes.example", "-addext", "subjectAltName=DNS:hermes.example",
                        "-keyout", self.dir / "key.pem", "-out", self.certificate],
                       check=True, capture_output=True)
        site = (ROOT / "packaging/nginx.conf").read_text()
        for old, new in (("server unix:/run/hermes.sock;", "server unix:%s;" % server.unix),
                         ("listen 443 ssl;", "listen 127.0.0.1:%d ssl;" % self.port),
                         ("/etc/ssl/hermes.pem", str(self.certificate)),
                         ("/etc/ssl/hermes.key", str(self.dir / "key.pem"))):
            assert site.count(old) == 1, old
            site = site.replace(old, new)
        (self.dir / "site.conf").write_text(site)
        # The group of the socket is what lets the workers in, as the site's comment says.
        group = subprocess.run(["stat", "-c", "%G", str(server.unix)], capture_output=True,
                               text=True, check=True).stdout.strip()
        (self.dir / "nginx.conf").write_text(MAIN % {"dir": self.dir, "user": "nobody " + group})
        command = [NGINX, "-c", str(self.dir / "nginx.conf"), "-p", str(self.dir),
                   "-e", str(self.dir / "error.log")]
        test = subprocess.run(command + ["-t"], capture_output=True, text=True)
        assert test.returncode == 0 and "warn" not in test.stderr, test.stderr
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        if not wait_until(self.answers):
            errors = (self.dir / "error.log").read_text()
            self.close()
            raise AssertionError(errors)

    def answers(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def connect(self, timeout=60):
        context = ssl.create_default_context(cafile=str(self.certificate))
        raw = socket.create_connection(("127.0.0.1", self.port), timeout * SLOW)
        connection = http.client.HTTPConnection("hermes.example")
        connection.sock = context.wrap_socket(raw, server_hostname="hermes.example")
        return connection

    def send(self, method, path, body=None, key=KEY, connection=None, **headers):
        connection = connection or self.connect()
        if key:
            headers["Authorization"] = "Bearer " + key
        if isinstance(body, dict):
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body, headers)
        return connection

    def __call__(self, *args, **kwargs):
        connection = self.send(*args, **kwargs)
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.headers, answer.read())
        if not kwargs.get("connection"):
            connection.close()
        return reply

    def close(self):
        self.process.send_signal(signal.SIGQUIT)  # nothing, if it has ended
        try:
            self.process.wait(10 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.dir)


@pytest.fixture
def proxy(make_server):
    server = make_server(env={"API_TOKEN": KEY, "HERMES_RESUME_GRACE_S": "1", "HERMES_USER": "www-data"}, tcp=False)
    proxy = Proxy(server)
    try:
        yield proxy
        assert wait_until(lambda: not server.running()), "boxes are left"
    finally:
        proxy.close()


def test_runs_and_keys(proxy):
    run = proxy("POST", "/v1/runs", {"language": "python", "code": "print(6*7)"}).json()
    assert (run["status"], run["stdout"]) == ("ok", "42\n")
    assert proxy("GET", "/v1/runs/" + run["id"]).json() == run
    assert proxy("GET", "/v1/runtimes", key=None).status == 401
    assert proxy("GET", "/v1/runtimes", key="wrong").status == 401
    assert proxy("GET", "/health", key=None).status == 200
    # Local callers need no key for the counters; the proxy makes everybody local and keeps them.
    assert proxy.server("GET", "/metrics").status == 200
    assert proxy("GET", "/metrics").status == 403
    assert proxy("GET", "/metrics?a=b").status == 403


def test_many_requests_on_one_connection(proxy):
    connection = proxy.connect()
    for i in range(10):
        reply = proxy("POST", "/v1/runs", {"language": "python", "code": "print(%d)" % i},
                      connection=connection)
        assert reply.json()["stdout"] == "%d\n" % i
    assert proxy("GET", "/nothing", connection=connection).status == 404
    assert proxy("GET", "/health", connection=connection).status == 200
    connection.close()


def test_events_are_passed_on_while_the_program_runs(proxy):
    connection = proxy.send("POST", "/v1/runs", SLEEPER, Accept="text/event-stream")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    run = "/v1/runs/" + answer.headers["X-Run-Id"]
    text = b""
    while b"first" not in text:  # a proxy that buffers would keep it until the socket times out
        piece = answer.read1(65536)
        assert piece
        text += piece
    assert proxy("GET", run).json()["status"] == "running"
    assert proxy("DELETE", run).status in (200, 202)
    text += answer.read()
    events = sse(text.decode())
    assert [e[1] for e in events][0] == "start" and events[-1][1] == "end"
    assert events[-1][2]["status"] == "cancelled"
    connection.close()


def test_a_client_that_leaves_cancels_its_run(proxy):
    connection = proxy.send("POST", "/v1/runs", SLEEPER)
    assert wait_until(proxy.server.running)
    connection.sock.close()
    connection.close()
    assert wait_until(lambda: not proxy.server.running(), 20)


def test_a_reader_that_leaves_cancels_after_the_grace(proxy):
    connection = proxy.send("POST", "/v1/runs", SLEEPER, Accept="text/event-stream")
    answer = connection.getresponse()
    run = "/v1/runs/" + answer.headers["X-Run-Id"]
    assert b"start" in answer.read1(65536)
    answer.close()
    connection.sock.close()
    connection.close()
    assert wait_until(lambda: proxy("GET", run).json()["status"] == "cancelled", 20)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused_in_json(proxy, chunked):
    body = json.dumps({"language": "python", "code": "#" * (17 << 20)}).encode()
    pieces = [body[i:i + 65536] for i in range(0, len(body), 65536)]
    connection = proxy.connect()
    headers = {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"}
    try:
        if chunked:
            connection.request("POST", "/v1/runs", iter(pieces),
                               dict(headers, **{"Transfer-Encoding": "chunked"}), encode_chunked=True)
        else:
            connection.request("POST", "/v1/runs", body, headers)
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        pass  # it was told before it had sent everything
    answer = connection.getresponse()
    assert answer.status == 413 and answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.read())["error"]["code"] == "too_large"
    connection.close()
    assert proxy("GET", "/health").status == 200


def test_a_body_below_the_limit_arrives_whole(proxy):
    size = 12 << 20
    run = proxy("POST", "/v1/runs", {
        "language": "python", "code": "print(len(open('a').read()))",
        "files": [{"name": "a", "content": "b" * size}]}).json()
    assert run["stdout"] == "%d\n" % size, run


def test_a_restart_of_the_server_is_survived(proxy):
    assert proxy("GET", "/health").status == 200
    assert proxy.server.stop() == 0
    reply = proxy("GET", "/health")
    assert reply.status == 502
    proxy.server.start()
    assert wait_until(lambda: proxy("GET", "/health").status == 200, 15)


def test_terminals_of_sessions(proxy):
    """A WebSocket is passed on, both ways, with TLS."""
    session = proxy("POST", "/v1/sessions", {"language": "bash"}).json()["id"]
    path = "/v1/sessions/%s/pty" % session
    assert proxy("GET", path).status == 426
    connection = proxy.send("GET", path, Upgrade="websocket", Connection="Upgrade",
                            **{"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += connection.sock.recv(4096)
    assert seen.startswith(b"HTTP/1.1 101 ") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in seen
    typed = b"echo $((6*7))is\n"
    connection.sock.sendall(bytes([0x82, 0x80 | len(typed), 0, 0, 0, 0]) + typed)  # a mask of zeros
    while b"42is" not in seen:
        got = connection.sock.recv(4096)
        assert got, seen
        seen += got
    connection.sock.close()
    assert wait_until(lambda: proxy.server.metric("hermes_terminals") == 0)
    assert proxy("DELETE", "/v1/sessions/" + session).status == 204
