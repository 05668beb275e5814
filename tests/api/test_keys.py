# SPDX-License-Identifier: Apache-2.0
"""Authentication, ownership, quotas."""
import json
import re
import subprocess
import threading
import time

import pytest

from apilib import MONITOR, SLOW, Server, borrow_dir, return_dir

KEYS = ("[alice]\nkey = alices-secret\n[bob]\nkey = bobs-secret\n"
        "[narrow]\nkey = narrow-secret\nconcurrency = 1\n[slow]\nkey = slow-secret\n"
        "rate_per_m = 2\n[poor]\nkey = poor-secret\ncpu_s_per_hour = 1\n")


@pytest.fixture(scope="module")
def keyed():
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys"), "API_TOKEN": "tok",
                               "CODE_RUNNER_API_KEYS": "k1, k2", "HERMES_CONCURRENCY": "2"})
    yield server
    server.stop()
    return_dir(path)


PRIVATE = [("POST", "/v1/runs"), ("GET", "/v1/runs"), ("GET", "/v1/runs/x"), ("DELETE", "/v1/runs/x"),
           ("GET", "/v1/runs/x/events"), ("POST", "/v1/runs/x/stdin"), ("GET", "/v1/runs/x/request"),
           ("GET", "/v1/runtimes"), ("GET", "/v1/report")]
PUBLIC = ["/", "/health", "/version", "/openapi.json", "/metrics"]


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"},
    {"Authorization": "Basic dG9rOg=="}, {"Authorization": "tok"}, {"X-API-Key": "wrong"},
    {"X-API-Key": ""}, {"Authorization": "Bearer alices-secre"}])
def test_o66_no_or_wrong_credentials(keyed, headers):
    for method, path in PRIVATE:
        reply = keyed(method, path + "?token=tok", headers=headers)
        assert reply.status == 401, (method, path, headers)
        assert reply.json()["error"]["code"] == "unauthorized"
        assert "Bearer" in reply.headers["WWW-Authenticate"]


def test_o66_two_authorization_headers(keyed):
    got = keyed.raw(b"GET /v1/report HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer tok\r\n"
                    b"Authorization: Bearer alices-secret\r\nConnection: close\r\n\r\n", 2)
    assert got.startswith(b"HTTP/1.1 401")


def test_o66_the_key_is_asked_before_the_body_is_read(keyed):
    began = time.monotonic()
    got = keyed.raw(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: 1000000\r\n\r\n{", 10)
    assert got.startswith(b"HTTP/1.1 401") and time.monotonic() - began < 5 * SLOW


@pytest.mark.parametrize("value", [b"tok\0", b"tok\0x", b"\0tok", b"to\0k"])
def test_a_key_with_a_nul_is_refused(keyed, value):
    """The control: the same key without it is accepted."""
    request = b"GET /v1/report HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\nConnection: close\r\n\r\n"
    for name, before in ((b"Authorization", b"Bearer "), (b"X-API-Key", b"")):
        assert keyed.raw(request % (name, before + value), 2).startswith(b"HTTP/1.1 400")
        assert keyed.raw(request % (name, before + b"tok"), 2).startswith(b"HTTP/1.1 200")


def test_what_is_not_there_is_named(keyed):
    for path, said in (("/v1/runs/run_1", "run run_1 not found"), ("/v1/runs/ses_1", "run ses_1 not found"),
                       ("/v1/sessions/ses_1", "session ses_1 not found")):
        reply = keyed("GET", path, headers={"X-API-Key": "tok"})
        assert reply.status == 404
        assert reply.json()["error"]["message"] == said + "; it may have expired or been deleted"


def test_every_kind_of_key_is_accepted(keyed):
    for secret in ("tok", "k1", "k2", "alices-secret"):
        assert keyed("GET", "/v1/report", key=secret).status == 200
        assert keyed("GET", "/v1/report", headers={"X-API-Key": secret}).status == 200
    for path in PUBLIC:
        assert keyed("GET", path).status == 200
    assert keyed("GET", "/health").json()["auth_enabled"] is True


def test_o75_runs_belong_to_their_key(keyed):
    run = keyed.run("python", "print(1)", key="alices-secret").json()
    path = "/v1/runs/" + run["id"]
    assert keyed("GET", path, key="alices-secret").status == 200
    other = keyed("GET", path, key="bobs-secret")
    wrong = path[:-1] + ("0" if path[-1] != "0" else "1")
    missing = keyed("GET", wrong, key="bobs-secret")
    assert other.status == missing.status == 404
    assert other.body == missing.body.replace(wrong[9:].encode(), run["id"].encode())
    assert keyed("DELETE", path, key="bobs-secret").status == 404
    assert keyed("GET", path + "/events", key="bobs-secret").status == 404


def test_o82_quotas_of_one_key_do_not_touch_another(keyed):
    for _ in range(2):
        assert keyed.run("python", "1", key="slow-secret").status == 200
    reply = keyed.run("python", "1", key="slow-secret")
    assert reply.status == 429 and 1 <= int(reply.headers["Retry-After"]) <= 60
    assert reply.json()["error"]["code"] == "busy"
    assert keyed.run("python", "1", key="bobs-secret").status == 200


def test_a_cpu_budget_runs_out(keyed):
    code = "import time\nwhile time.process_time() < 1.2: pass"
    assert keyed.run("python", code, key="poor-secret").status == 200
    assert keyed.run("python", "1", key="poor-secret").status == 429


def test_concurrency_of_a_key(keyed):
    replies = []

    def one():
        replies.append(keyed.run("python", "import time; time.sleep(1)", key="narrow-secret"))
    threads = [threading.Thread(target=one) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(r.status for r in replies) == [200, 200, 429, 429]


def serve(env, *args):
    return subprocess.run([str(MONITOR)] + list(args), env=dict({"PATH": "/usr/bin"}, **env),
                          capture_output=True, text=True, timeout=60 * SLOW, cwd="/var/tmp")


def test_without_a_key_only_loopback_is_served():
    got = serve({}, "--listen", "0.0.0.0:0")
    assert got.returncode == 2 and "not loopback" in got.stderr


def test_every_problem_of_the_settings_is_listed(tmp_path):
    bad = tmp_path / "keys"
    bad.write_text("[a]\nhat = red\n")
    bad.chmod(0o644)
    got = serve({"PORT": "x", "HERMES_QUEUE": "-1", "HERMES_KEYS_FILE": str(bad),
                 "HERMES_MIN_LEVEL": "none", "MAX_TIMEOUT": "0"}, "--hat=red", "--user=nosuch")
    assert got.returncode == 2
    for word in ("PORT", "HERMES_QUEUE", "hat", "chmod 600", "HERMES_MIN_LEVEL", "MAX_TIMEOUT",
                 "--hat"):
        assert word in got.stderr, (word, got.stderr)


def test_no_secret_is_printed_or_handed_on(keyed):
    server = keyed.child("hermes-server")
    environ = open("/proc/%d/environ" % server, "rb").read()
    assert b"tok" not in environ.replace(b"API_TOKEN_", b"") or b"API_TOKEN" not in environ
    assert "secret" not in keyed.logs()
    assert not re.search(r"\bk1\b", json.dumps(keyed.events("request")))  # ids may contain it
