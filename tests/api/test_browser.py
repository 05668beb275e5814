# SPDX-License-Identifier: Apache-2.0
"""Web pages that are turned against a server without keys: requests as browsers send them, byte by
byte. Each refusal has a control: the same request as a page of ours, or a program, sends it."""
import json
import re

import pytest

EVIL = "https://evil.example"
ALLOWED = "http://localhost:3000"
RUN = json.dumps({"language": "bash", "code": "echo ran"}).encode()
JSON = "application/json"


def ask(server, method="POST", path="/v1/runs", body=RUN, tcp=True, seconds=5.0, until=None, **fields):
    """One raw request; a field that is a list is sent once for each of its items. Host is right
    unless it is named, a body has its length."""
    lines = ["%s %s HTTP/1.1" % (method, path)]
    fields.setdefault("Connection", "close")
    fields.setdefault("Host", "127.0.0.1:%d" % server.port if tcp else "localhost")
    if body:
        fields.setdefault("Content-Length", str(len(body)))
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                lines.append("%s: %s" % (name.replace("_", "-"), item))
    return server.raw("\r\n".join(lines + ["", ""]).encode() + (body or b""), seconds, tcp, until=until)


def status(*args, **kwargs):
    got = ask(*args, until=b"\r\n", **kwargs)
    return int(got[9:12]) if got else None


def code(got):
    return json.loads(got.split(b"\r\n\r\n", 1)[1])["error"]["code"]


def runs(server):
    """Boxes that were ever asked for."""
    text = server("GET", "/metrics").body.decode()
    return sum(float(n) for n in re.findall(r"^hermes_runs_total\{.*\} (\S+)$", text, re.M))


# ---- pages of other origins


@pytest.mark.parametrize("origin", [
    EVIL, "null", "", "http://localhost", "http://localhost:3000/", "http://localhost:3000.evil.example",
    "HTTP://LOCALHOST:3000", "http://localhost:03000", "https://localhost:3000", "http://localhost:3001",
    "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost:3000 https://evil.example",
    "http://evil.example@127.0.0.1", "file://", "chrome-extension://abc", "http://", "*"])
def test_a_foreign_origin_runs_nothing(server, origin):
    before = runs(server)
    got = ask(server, Content_Type=JSON, Origin=origin)
    assert got.startswith(b"HTTP/1.1 403 ") and code(got) == "forbidden", got
    assert b"Access-Control-Allow-Origin" not in got
    assert runs(server) == before
    assert b"ran" in ask(server, Content_Type=JSON)  # the control: no page at all


def test_the_body_of_an_untyped_blob(server):
    """What fetch() sends without asking first: no content type, or that of a form."""
    before = runs(server)
    assert status(server, Origin=EVIL) == 403
    for kind in (None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert status(server, Content_Type=kind, Origin=EVIL) == 403, kind
        got = ask(server, Content_Type=kind)  # without Origin, as a very old browser: no JSON, no run
        assert got.startswith(b"HTTP/1.1 415 ") and code(got) == "unsupported_media_type", (kind, got)
    assert runs(server) == before
    for kind in (JSON, "application/json; charset=utf-8", "Application/Vnd.Api+JSON"):
        assert status(server, Content_Type=kind) == 200, kind
    got = ask(server, Content_Type=[JSON, "text/plain"])
    assert got.startswith(b"HTTP/1.1 400 ")


def test_bodies_that_may_be_missing_want_a_type_too(server):
    session = server("POST", "/v1/sessions", {"language": "bash"}).json()["id"]
    try:
        for path in ("fork", "checkpoints", "rollback", "exec", "tool_results"):
            path = "/v1/sessions/%s/%s" % (session, path)
            for kind in (None, "text/plain"):
                assert status(server, path=path, body=b"{}", Content_Type=kind) == 415, path
                assert status(server, path=path, body=None, Transfer_Encoding="chunked", Content_Type=kind) == 415
        assert status(server, path="/v1/sessions/%s/checkpoints" % session, body=None) != 415
        # Files are bytes of any type, or none.
        assert status(server, "PUT", "/v1/sessions/%s/files/a" % session, b"bytes") == 201
        assert status(server, "PUT", "/v1/sessions/%s/files/a" % session, b"bytes", Content_Type="text/plain") == 204
        assert status(server, "PUT", "/v1/sessions/%s/files/a" % session, b"bytes", Origin=EVIL) == 403
    finally:
        server("DELETE", "/v1/sessions/" + session)


def test_compatible_routes_take_no_foreign_page(server):
    """POST /run takes a body without a type, as the original does: the origin is what protects it."""
    body = json.dumps({"code": "print('ran')"}).encode()
    before = runs(server)
    for fields in ({"Origin": EVIL}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        for path, text in (("/run", body), ("/execute", RUN), ("/v2/execute/", RUN), ("/prebuild", b"{}")):
            assert status(server, path=path, body=text, **fields) == 403, (path, fields)
            assert status(server, path=path, body=text, Content_Type=JSON, **fields) == 403, (path, fields)
    assert runs(server) == before
    assert b"ran" in ask(server, path="/run", body=body)


EFFECTS = [("DELETE", "/v1/runs/x"), ("POST", "/v1/sessions/x/interrupt"), ("POST", "/v1/sessions/x/reset"),
           ("DELETE", "/v1/sessions/x"), ("DELETE", "/v1/sessions/x/files/a"), ("POST", "/prebuilds/cleanup"),
           ("GET", "/v1/sessions"), ("GET", "/metrics"), ("GET", "/health"), ("HEAD", "/health"),
           ("OPTIONS", "/v1/runs"), ("PATCH", "/v1/runs"), ("GET", "/nowhere")]


@pytest.mark.parametrize("method,path", EFFECTS)
def test_every_route_and_method(server, method, path):
    for fields in ({"Origin": EVIL}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                   {"Sec_Fetch_Site": "same-site"}, {"Sec_Fetch_Site": "odd"}, {"Sec_Fetch_Site": ""}):
        assert status(server, method, path, None, **fields) == 403, fields
    assert status(server, method, path, None) not in (403, 421)


def test_a_method_in_a_header_is_no_method(server):
    run = server.run("bash", "sleep 100", **{"async": True, "limits": {"wall_ms": 100000}}).json()["id"]
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        ask(server, "GET", "/v1/runs/%s?_method=DELETE" % run, None, **{name: "DELETE"})
        ask(server, "POST", "/v1/runs/%s?_method=DELETE" % run, b"_method=DELETE", **{name: "DELETE"})
    assert server("GET", "/v1/runs/" + run).json()["status"] in ("queued", "running")
    assert server("DELETE", "/v1/runs/" + run).status == 202  # the control


def test_what_fetch_says_of_itself(server):
    """Sec-Fetch-Site is the browser's own word; programs do not send it."""
    def fetch(site, **fields):
        return status(server, Content_Type=JSON, Sec_Fetch_Site=site, **fields)
    ours = "http://127.0.0.1:%d" % server.port
    assert fetch("same-origin", Origin=ours) == 200
    assert fetch("same-origin") == 200 and fetch("none") == 200
    assert fetch("cross-site") == 403 and fetch("same-site") == 403
    assert fetch("cross-site", Origin=ours) == 403  # both have to be right
    assert fetch("same-origin", Origin=EVIL) == 403
    assert fetch("cross-site", Origin=ALLOWED) == 200  # allowed_origin has it
    assert fetch(["same-origin", "cross-site"]) == 400 and fetch(None, Origin=[ours, EVIL]) == 400
    assert status(server, Content_Type=JSON, Referer=EVIL) == 200  # says nothing: a program sent it


def test_links_lead_here_and_do_nothing(server):
    """A person may follow a link from another site. A form, a frame or an image of that site is refused."""
    def visit(method="GET", path="/health", body=None, mode="navigate", dest="document", **fields):
        return status(server, method, path, body, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode=mode,
                      Sec_Fetch_Dest=dest, **fields)
    assert visit() == 200
    assert visit(dest="iframe") == 403 and visit(mode="no-cors", dest="image") == 403
    assert visit(mode="cors", dest="empty") == 403 and visit(Origin="null") == 403
    assert visit("POST", "/v1/runs", RUN, Content_Type=JSON) == 403
    assert visit(Upgrade="websocket", Connection="Upgrade") == 403


def test_preflights(server):
    def preflight(origin, **fields):
        return ask(server, "OPTIONS", body=None, Origin=origin, Access_Control_Request_Method="POST", **fields)
    good = preflight(ALLOWED)
    assert good.startswith(b"HTTP/1.1 200 ") and b"Access-Control-Allow-Origin: http://localhost:3000\r\n" in good
    for origin in (EVIL, "null", ALLOWED + "/"):
        got = preflight(origin)
        assert got.startswith(b"HTTP/1.1 403 ") and b"Access-Control-Allow-Origin" not in got
    assert preflight(ALLOWED, Host="evil.example").startswith(b"HTTP/1.1 421 ")


def test_every_origin_is_allowed_but_none(make_server):
    """`*` is what an operator may want; frames without an origin hold what programs print."""
    server = make_server(env={"ALLOWED_ORIGIN": "*, null"})
    assert status(server, Content_Type=JSON, Origin=EVIL) == 200
    assert status(server, Content_Type=JSON, Origin="null") == 403
    assert status(server, "OPTIONS", body=None, Origin="null") == 403


def test_a_terminal_for_our_own_pages_only(server):
    session = server("POST", "/v1/sessions", {"language": "bash"}).json()["id"]
    opening = dict(method="GET", path="/v1/sessions/%s/pty" % session, body=None, Upgrade="websocket",
                   Sec_WebSocket_Version="13", Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==")
    try:
        for fields in ({"Origin": EVIL}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"},
                       {"Origin": "http://127.0.0.1:1"}, {"Origin": EVIL, "Host": "evil.example"},
                       {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}):
            assert status(server, Connection="Upgrade", **opening, **fields) in (403, 421), fields
        for origin in ("http://127.0.0.1:%d" % server.port, ALLOWED):
            assert status(server, Connection="Upgrade", Origin=origin, seconds=0.3, **opening) == 101
    finally:
        server("DELETE", "/v1/sessions/" + session)


# ---- names that resolve to us


WRONG = ["evil.example", "evil.example:%d", "localhost.evil.example", "127.0.0.1.evil.example:%d", "localhost@evil.example",
         "evil.example#localhost", "evil.example:%d@localhost", "localhost:%d@evil.example", "user@localhost", "", ":%d", ".", "..",
         "localhost..", "[::1", "::1", "[::1]evil", "[::1].evil.example", "[localhost]", "[127.0.0.1]", "[::1%%25lo]",
         "localhost:x", "localhost:0", "localhost:99999", "localhost:-1", "localhost:80:80", "127.1", "2130706433", "0x7f.0.0.1",
         "0177.0.0.1", "127.0.0.1,evil.example", "localhost evil.example", "http://localhost", "localhost/", "xlocalhost",
         "evil-localhost", ".localhost", "%%6cocalhost"]
RIGHT = ["localhost", "localhost:%d", "LOCALHOST", "LocalHost.:%d", "localhost:", "a.b.localhost", "127.0.0.1", "127.0.0.1:%d",
         "127.8.9.1:1", "[::1]", "[::1]:%d", "[0:0:0:0:0:0:0:1]:80", "127.0.0.1."]


@pytest.mark.parametrize("host", WRONG)
def test_a_name_that_may_be_a_stranger_s(server, host):
    """A stranger's name that resolves to our address makes the stranger's page one of our own."""
    host = host % server.port if "%d" in host else host.replace("%%", "%")
    refusal = (400, "invalid_request") if set(host) & set("@#, /") else (421, "misdirected")
    for origin in (None, "http://" + host):
        got = ask(server, "GET", "/v1/sessions", None, Host=host, Origin=origin, Sec_Fetch_Site="same-origin")
        assert (int(got[9:12]), code(got)) == refusal, got
        assert b'"sessions"' not in got
    assert status(server, Host=host, Content_Type=JSON) == refusal[0]
    assert status(server, "GET", "/metrics", None, Host=host) == refusal[0]


@pytest.mark.parametrize("host", RIGHT)
def test_names_and_addresses_of_ours(server, host):
    host = host % server.port if "%d" in host else host
    assert b"ran" in ask(server, Host=host, Content_Type=JSON)
    assert status(server, Host=host, Content_Type=JSON, Origin="http://" + host, Sec_Fetch_Site="same-origin") == 200


def test_requests_without_a_name(server):
    assert server.raw(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421 ")
    assert server.raw(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert status(server, "GET", "/health", None, Host=["localhost", "evil.example"]) == 400
    for target in ("http://localhost/health", "http://evil.example/health", "//evil.example/health", "evil.example"):
        assert status(server, "GET", target, None) in (400, 404), target


def test_a_unix_socket_has_no_name(server):
    """Nothing resolves to it. Pages behind a proxy on it are told by their origin."""
    assert status(server, "GET", "/health", None, tcp=False, Host="anything") == 200
    assert status(server, "GET", "/health", None, tcp=False, Host="x.example", Origin="https://x.example") == 200
    assert status(server, "GET", "/health", None, tcp=False, Host="x.example", Origin=EVIL) == 403


def test_hosts(make_server):
    server = make_server(env={"HERMES_HOSTS": "code.example, other.example:8443"})
    for host in ("code.example", "CODE.example.:80", "other.example:8443", "localhost", "127.0.0.1"):
        assert status(server, "GET", "/health", None, Host=host) == 200, host
    for host in ("evil.example", "x.code.example", "code.example.evil", "other.example", "other.example:80"):
        assert status(server, "GET", "/health", None, Host=host) == 421, host
    assert status(server, "GET", "/health", None, tcp=False, Host="evil.example") == 421
    assert status(server, "GET", "/health", None, Host="code.example", Origin="https://code.example") == 200
    assert status(server, "GET", "/health", None, Host="code.example", Origin="https://code.example:8443") == 403


def test_with_keys(make_server):
    """A key is what a foreign page does not have; the counters need none from local callers."""
    server = make_server(env={"API_TOKEN": "tok"})
    right = {"Authorization": "Bearer tok", "Content_Type": JSON}
    for fields in ({"Origin": EVIL}, {"Host": "a.name"}, {"Sec_Fetch_Site": "cross-site"}):
        assert status(server, **right, **fields) == 200, fields
        assert status(server, Content_Type=JSON, **fields) == 401, fields
        assert status(server, "GET", "/health", None, **fields) == 200
        assert status(server, "GET", "/metrics", None, **fields) in (403, 421)
        assert status(server, "GET", "/metrics", None, Authorization="Bearer tok", **fields) == 200
    assert status(server, "GET", "/metrics", None) == 200
    named = make_server(env={"API_TOKEN": "tok", "HERMES_HOSTS": "code.example"})
    assert status(named, Host="a.name", **right) == 421
    assert status(named, Host="code.example", **right) == 200
