# SPDX-License-Identifier: Apache-2.0
"""Secrets against boxes and servers that do not play by the rules, and against the death of
hermes-inject and hermes-egress."""
import json
import os
import re
import signal

import pytest

from apilib import wait_until
from groups import Groups
from netlib import OK4, OK6, denied
from runlib import ASAN
from secretlib import URL, arrived, secret_server
from vault import BEARER, VALUE

USER = 64127  # nobody has it


@pytest.fixture(scope="module")
def shared_vault(one_world):
    with secret_server(one_world) as boxes:
        yield boxes


@pytest.fixture
def vault(shared_vault, world):
    yield shared_vault
    assert VALUE not in shared_vault.server.logs()


# Runs in the box. Standard input: a list of conversations; each is a list of texts that are sent, over one
# connection. Prints for each what came back, until the other side closed.
TALK = r'''
import json, socket, ssl, sys
given = json.load(sys.stdin)
def talk(texts):
    context = ssl.create_default_context(cafile=given.get("ca", "/box/.hermes-trust.pem"))
    context.check_hostname = given.get("sni", given["host"]) == given["host"]
    if "alpn" in given:
        context.set_alpn_protocols(given["alpn"])
    s = socket.create_connection((given["host"], given["port"]), 30)
    with context.wrap_socket(s, server_hostname=given.get("sni", given["host"])) as t:
        for text in texts:
            t.sendall(text.encode("latin-1"))
        got = t.selected_alpn_protocol() or ""
        got += "|"
        while True:
            piece = t.recv(65536)
            if not piece:
                return got
            got += piece.decode("latin-1")
out = []
for texts in given["talks"]:
    try:
        out.append(talk(texts))
    except OSError as e:
        out.append("%s: %s" % (type(e).__name__, e))
print(json.dumps(out))
'''


def talk(vault, *talks, secret="api", network="none", port=443, **given):
    given = {"host": "ok.example.com", "port": port, "talks": talks, **given}
    answer = vault.run(network, "python", TALK, stdin=json.dumps(given), secrets=[secret] if secret else [])
    got = json.loads(answer["stdout"])
    assert not any(VALUE in text for text in got)
    return got, answer["network"]


def status(text):
    return int(text.split("|", 1)[1].split(" ")[1]) if "|HTTP/1.1 " in text else text


HOST = "Host: ok.example.com\r\n"
LAST = "Connection: close\r\n"
GET = "GET /vault/open HTTP/1.1\r\n" + HOST
POST = "POST /vault/upload HTTP/1.1\r\n" + HOST

REFUSED = {
    "both lengths": (POST + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (POST + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "a list of lengths": (POST + "Content-Length: 4, 4\r\n\r\nabcd", 400),
    "a sign": (POST + "Content-Length: +4\r\n\r\nabcd", 400),
    "a disguised length": (POST + "Content-Length: 0\r\nContent_Length: 30\r\n\r\n", 400),
    "a disguised coding": (POST + "Content-Length: 3\r\nTransfer_Encoding: chunked\r\n\r\nabc", 400),
    "another coding": (POST + "Transfer-Encoding: gzip\r\n\r\n", 501),
    "two codings": (POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "a folded line": (GET + "X: a\r\n b\r\n\r\n", 400),
    "a space before the colon": (POST + "Content-Length : 4\r\n\r\nabcd", 400),
    "a bare LF": (GET + "X: a\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "a bare CR": (GET + "X: a\rb\r\n\r\n", 400),
    "a NUL": (GET + "X: a\0b\r\n\r\n", 400),
    "an empty name": (GET + ": a\r\n\r\n", 400),
    "no first line": ("\r\n" + GET + "\r\n", 400),
    "a whole address": ("GET https://ok.example.com/vault/open HTTP/1.1\r\n" + HOST + "\r\n", 400),
    "another address": ("GET https://other.example.org/ HTTP/1.1\r\n" + HOST + "\r\n", 400),
    "two spaces": ("GET  /vault/open HTTP/1.1\r\n" + HOST + "\r\n", 400),
    "another host": (GET.replace("ok.example", "shared.example") + "\r\n", 421),
    "a host below": (GET.replace("ok.example", "a.ok.example") + "\r\n", 421),
    "another port": (GET.replace(".com", ".com:8443") + "\r\n", 421),
    "two hosts": (GET + "Host: other.example.org\r\n\r\n", 421),
    "no host": ("GET /vault/open HTTP/1.1\r\n\r\n", 421),
    "TRACE": (GET.replace("GET", "TRACE") + "\r\n", 405),
    "CONNECT": ("CONNECT /x HTTP/1.1\r\n" + HOST + "\r\n", 405),
    "HTTP/1.0": (GET.replace("HTTP/1.1", "HTTP/1.0") + "\r\n", 505),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "a large head": (GET + "X: " + "a" * 40000 + "\r\n\r\n", 431),
    "many headers": (GET + "X: a\r\n" * 200 + "\r\n", 400),
}


def test_requests_that_can_be_read_in_two_ways_are_refused(vault, world):
    got, _ = talk(vault, *[[text] for text, _ in REFUSED.values()])
    outcome = {name: status(text) for name, text in zip(REFUSED, got)}
    assert outcome == {name: expected for name, (_, expected) in REFUSED.items()}
    assert arrived(world) == []
    # control: the same client with a proper request
    assert status(talk(vault, [GET + LAST + "\r\n"])[0][0]) == 200


def test_malformed_chunks_end_the_request(vault, world):
    head = POST + "Transfer-Encoding: chunked\r\n\r\n"
    bad = ["x\r\n", "4\r\nabcdX", "4\nabcd\r\n", "-1\r\n", "4;" + "x" * 300 + "\r\nabcd\r\n0\r\n\r\n",
           "1000000000000000\r\n", "0\r\nbad\rline\r\n\r\n", "\r\n"]
    got, _ = talk(vault, *[[head + piece] for piece in bad])
    assert [status(text) for text in got] == [400] * len(bad)
    # the server got the beginning of a request and never its end
    assert arrived(world) == []


def test_the_header_of_the_box_is_dropped(vault, world):
    mine = "Authorization: Basic bWluZQ==\r\nAUTHORIZATION: x\r\nauthorization:\r\n"
    hop = "Connection: close, Authorization\r\nTE: trailers\r\nUpgrade: h2c\r\nRange: bytes=0-3\r\nAccept-Encoding: gzip\r\n"
    got, _ = talk(vault, [GET + mine + hop + "X-Mine: 1\r\n\r\n"])
    assert status(got[0]) == 200 and "alt-svc" not in got[0].lower()
    came, = arrived(world)
    headers = [(name.lower(), value) for name, value in came["headers"]]
    assert came["authorization"] == [BEARER]
    assert ("x-mine", "1") in headers and ("accept-encoding", "identity") in headers
    assert not {"te", "upgrade", "range", "connection"} & {name for name, _ in headers}


def test_keep_alive_and_pipelining(vault, world):
    got, record = talk(vault, [(GET + "\r\n") * 9 + GET + LAST + "\r\n"],
                       [GET + "\r\n", GET + LAST + "\r\n"], [(GET + LAST + "\r\n") * 3])
    assert [text.count("HTTP/1.1 200") for text in got] == [10, 2, 1]
    came = arrived(world)
    assert [c["authorization"] for c in came] == [[BEARER]] * 13
    assert [row["count"] for row in record["allowed"]] == [3]


def test_large_bodies_in_both_directions(vault):
    code = """
import hashlib, http.client, json, os
data = os.urandom(1 << 20) * 6
def parts():
    for i in range(0, len(data), 70001):
        yield data[i:i + 70001]
c = http.client.HTTPSConnection("ok.example.com", timeout=60)
want = [len(data), hashlib.sha256(data).hexdigest(), True]
for body, headers in ((data, {}), (parts(), {"Transfer-Encoding": "chunked"}), (data, {"Expect": "100-continue"})):
    c.request("POST", "/vault/upload", body, headers, encode_chunked="Transfer-Encoding" in headers)
    print(json.load(c.getresponse()) == want)
c.request("GET", "/vault/big-7000000")
print(len(c.getresponse().read()))
c.request("HEAD", "/vault/big-7000000")
print(c.getresponse().headers["Content-Length"])
"""
    answer = vault.run("none", "python", code, secrets=["api"])
    assert answer["stdout"].split() == ["True"] * 3 + ["7000000"] * 2, answer
    assert answer["network"]["sent"] > 18 << 20 and answer["network"]["received"] > 7000000


# --- TLS

def test_alpn_is_http_1_1(vault):
    hello = [GET + LAST + "\r\n"]
    assert talk(vault, hello, alpn=["h2", "http/1.1"])[0][0].startswith("http/1.1|HTTP/1.1 200")
    assert "Error" in talk(vault, hello, alpn=["h2"])[0][0]


def test_another_server_name_gets_no_secret(vault, world):
    hello = [GET + LAST + "\r\n"]
    got, _ = talk(vault, hello, network={"allow": ["shared.example.org"]}, sni="shared.example.org", ca="/box/ca.pem")
    assert status(got[0]) == 401  # the server itself, by its own certificate
    assert arrived(world)[-1]["authorization"] == []
    got, record = talk(vault, hello, sni="other.example.org")
    assert "Error" in got[0] and "server_name" in {reason for *_, reason in denied(record)}


def test_plain_http_to_the_port_gets_no_secret(vault, world):
    answer = vault.run("none", "python", """
import socket
s = socket.create_connection(("ok.example.com", 443), 20)
s.sendall(b"GET /vault/open HTTP/1.1\\r\\nHost: ok.example.com\\r\\n\\r\\n")
try:
    print(s.recv(1000))
except ConnectionResetError:
    print("reset")
""", secrets=["api"])
    assert VALUE not in answer["stdout"] and "open" not in answer["stdout"]
    assert arrived(world) == []


def test_the_authority_is_good_for_the_hosts_of_secrets_only(vault):
    """And the server's own certificate is not what the box sees."""
    answer = vault.run("none", "python", """
import socket, ssl
context = ssl.create_default_context()
with context.wrap_socket(socket.create_connection(("ok.example.com", 443), 20), server_hostname="ok.example.com") as t:
    found = t.getpeercert()
    print(found["subjectAltName"], dict(x[0] for x in found["issuer"])["commonName"])
pem = open("/box/.hermes-trust.pem").read()
print(pem.count("BEGIN CERTIFICATE") > 1)
print("-----BEGIN" + pem.split("-----BEGIN")[-1])
""", secrets=["api"])
    text, several, pem = answer["stdout"].split("\n", 2)
    assert "ok.example.com" in text and "Hermes" in text and several == "True"
    (vault.world.dir / "ours.pem").write_text(pem)
    shown = vault.world.host.run("openssl", "x509", "-noout", "-text", "-in", vault.world.dir / "ours.pem")
    assert "X509v3 Name Constraints: critical" in shown and "DNS:ok.example.com" in shown
    assert "pathlen:0" in shown and "IP:0.0.0.0/0.0.0.0" in shown


def test_a_server_with_an_untrusted_certificate_gets_nothing(vault, world):
    got, _ = talk(vault, ["GET /vault/open HTTP/1.1\r\nHost: v4.example.com\r\n\r\n"], secret="strange",
                  host="v4.example.com")
    assert status(got[0]) == 502
    assert arrived(world) == []


# --- servers

ANSWERS = {
    "both lengths": ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "502"),
    "two lengths": ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "502"),
    "folded": ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n", "502"),
    "switch": ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + VALUE, "502"),
    "no-http": ("SSH-2.0 " + VALUE + "\r\n\r\n", "502"),
    "coded": ("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nab", "502"),
    "silent": ("", "502"),
    "status": ("HTTP/1.1 2x0 OK\r\n\r\n", "502"),
    "reason": ("HTTP/1.1 299 %s\r\nContent-Length: 0\r\n\r\n" % VALUE, "299 " + "*" * len(VALUE)),
    "name": ("HTTP/1.1 200 OK\r\n%s: 1\r\nContent-Length: 0\r\n\r\n" % VALUE, "200 OK"),
    "hint": ("HTTP/1.1 103 %s\r\nLink: %s\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab" % (VALUE, VALUE), "103"),
    "old": ("HTTP/1.0 200 OK\r\n\r\nabc" + VALUE, "200 OK"),
}


def test_answers_of_hostile_servers(vault, world):
    for name, (text, _) in ANSWERS.items():
        (world.dir / ("raw." + name.replace(" ", "-"))).write_bytes(text.encode())
    talks = [["GET /%s HTTP/1.1\r\nHost: ok.example.com:8444\r\n%s\r\n" % (name.replace(" ", "-"), LAST)]
             for name in ANSWERS]
    got, _ = talk(vault, *talks, secret="raw", port=8444)
    outcome = {name: text.split("|HTTP/1.1 ", 1)[-1].split("\r\n")[0] for name, text in zip(ANSWERS, got)}
    assert all(outcome[name].startswith(expected) for name, (_, expected) in ANSWERS.items()), outcome
    pieces = got[-1].split("\r\n\r\n", 1)[1].split("\r\n")
    assert "".join(pieces[1::2]) == "abc" + "*" * len(VALUE), got[-1]


def test_the_pieces_of_an_answer_tell_nothing(vault, world):
    """A box that can choose what a server repeats must not see how much of the value it has guessed."""
    shapes = set()
    for name, guess in (("wrong", "?" * 9), ("first", VALUE[0] + "?" * 8), ("nine", VALUE[:9])):
        (world.dir / ("raw.guess-" + name)).write_bytes(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
            b"64\r\n" + b"x" * 91 + guess.encode() + b"\r\n3\r\nyyy\r\n0\r\n\r\n")
        got, _ = talk(vault, ["GET /guess-%s HTTP/1.1\r\nHost: ok.example.com:8444\r\n%s\r\n" % (name, LAST)],
                      secret="raw", port=8444)
        shapes.add(tuple(got[0].split("\r\n\r\n", 1)[1].split("\r\n")[0::2]))
    assert len(shapes) == 1, shapes


def test_a_cut_answer_is_seen_as_cut(vault, world):
    (world.dir / "raw.cut").write_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    answer = vault.run("none", "python", """
import http.client
c = http.client.HTTPSConnection("ok.example.com", 8444, timeout=30)
c.request("GET", "/cut")
try:
    print(len(c.getresponse().read()))
except (http.client.IncompleteRead, OSError) as e:
    print("cut")
""", secrets=["raw"])
    assert answer["stdout"] == "cut\n", answer


# --- life

USE = "import urllib.request; print(urllib.request.urlopen(%r, timeout=20).read().decode().strip())" % URL


def works(vault):
    answer = vault.ask("none", "python", USE, secrets=["api"]).json()
    return answer.get("stdout") == "open\n"


def test_without_inject_connections_are_refused(vault, world):
    """The monitor is stopped, so that nobody starts another. A box without the secret goes on."""
    inject = vault.server.child("hermes-inject")
    monitor = vault.server.process.pid
    assert works(vault)
    world.forget()
    os.kill(monitor, signal.SIGSTOP)
    try:
        os.kill(inject, signal.SIGKILL)
        answer = vault.ask("none", "python", USE, secrets=["api"]).json()
        assert answer["status"] == "runtime_error"
        assert ("ok.example.com", 443, "tcp", "secret_unavailable") in denied(answer["network"])
        assert vault.one({"allow": ["ok.example.com"]}, "url", URL) == "HTTP 401"
    finally:
        os.kill(monitor, signal.SIGCONT)
    assert [c["authorization"] for c in arrived(world)] == [[]]
    assert wait_until(lambda: works(vault), 60)
    assert vault.server.child("hermes-inject") != inject
    assert vault.server.events("hermes-inject died")


def test_a_new_egress_gets_a_new_inject(vault):
    before = [vault.server.child(name) for name in ("hermes-egress", "hermes-inject")]
    os.kill(before[0], signal.SIGKILL)
    assert wait_until(lambda: works(vault), 60)
    after = [vault.server.child(name) for name in ("hermes-egress", "hermes-inject")]
    assert not set(before) & set(after)


def status_of(pid):
    return dict(re.findall(r"^(\w+):\t(.*)$", open("/proc/%d/status" % pid).read(), re.M))


def test_inject_runs_with_no_rights(vault):
    """The control: the spawner has what it lacks."""
    own, server, egress, spawner = (status_of(vault.server.child("hermes-" + name))
                                    for name in ("inject", "server", "egress", "spawn"))
    uids = set(own["Uid"].split())
    assert len(uids) == 1 and not uids & {"0", server["Uid"].split()[0], egress["Uid"].split()[0]}
    assert {own[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert own["NoNewPrivs"] == "1" and own["Seccomp"] == ("0" if ASAN else "2")
    assert spawner["Uid"].split()[0] == "0" and spawner["CapEff"] != "0" * 16 and spawner["Seccomp"] != "2"
    pid = vault.server.child("hermes-inject")
    assert os.stat("/proc/%d/mem" % pid).st_uid == 0  # it is not dumpable
    assert open("/proc/%d/environ" % pid).read() == ""


LESS = ["setpriv", "--bounding-set=-net_admin,-net_raw,-net_bind_service",
        "--inh-caps=-net_admin,-net_raw,-net_bind_service"]


def test_root_without_network_capabilities(world):
    with secret_server(world, prefix=LESS) as boxes:
        assert works(boxes)


@pytest.mark.parametrize("resolves", ["true", "false"])
def test_through_an_upstream_proxy(world, resolves):
    with secret_server(world, network_upstream="http://%s:3128" % OK4, network_upstream_resolves=resolves,
                       network_upstream_filters="true") as boxes:
        assert works(boxes)
    assert [c["authorization"] for c in arrived(world)] == [[BEARER]]
    to = {c["to"] for c in world.arrived(world.seen["world"], kind="connect")}
    assert to == {"ok.example.com"} if resolves == "true" else to <= {OK4, OK6}


def test_rootless(world):
    groups = Groups(USER)
    try:
        prefix = ["setpriv", "--reuid=%d" % USER, "--regid=%d" % USER, "--clear-groups"]
        with secret_server(world, prefix, USER, groups.enter) as boxes:
            assert works(boxes)
            assert status_of(boxes.server.child("hermes-inject"))["Uid"].split()[0] == str(USER)
    finally:
        left = groups.remove()
    assert not left


def test_connections_leave_nothing_behind(vault):
    inject = vault.server.child("hermes-inject")

    def count():
        return len(os.listdir("/proc/%d/fd" % inject))
    assert works(vault)
    assert wait_until(lambda: count() <= 6, 20)
    vault.run("none", "python", """
import socket, ssl
c = ssl.create_default_context()
kept = [c.wrap_socket(socket.create_connection(("ok.example.com", 443)), server_hostname="ok.example.com") for _ in range(40)]
kept += [socket.create_connection(("ok.example.com", 443)) for _ in range(10)]
kept[0].sendall(b"GET /vault/big-3000000 HTTP/1.1\\r\\nHost: ok.example.com\\r\\n\\r\\n")
kept[1].sendall(b"POST /vault/upload HTTP/1.1\\r\\nHost: ok.example.com\\r\\nContent-Length: 100\\r\\n\\r\\nabc")
""", secrets=["api"])
    assert wait_until(lambda: count() <= 6, 30), count()


def test_a_key_has_a_bounded_number_of_connections(vault):
    """256 of all its boxes; the next ones are refused, and later ones work again."""
    answer = vault.run("none", "python", """
import socket, ssl
c = ssl.create_default_context()
kept, refused = [], 0
for _ in range(270):
    s = socket.create_connection(("ok.example.com", 443))
    try:
        kept.append(c.wrap_socket(s, server_hostname="ok.example.com"))
    except OSError:
        refused += 1
print(len(kept), refused)
""", secrets=["api"], limits={"network_connections": 400, "open_files": 512})
    assert answer["stdout"] == "256 14\n", answer
    assert "connection_limit" in {reason for *_, reason in denied(answer["network"])}
    assert wait_until(lambda: works(vault), 30)


def test_a_server_that_hangs_up_costs_no_processor_time(vault, world):
    """The server goes while the box still sends and does not read: hermes-inject waits, and does not try again and again."""
    (world.dir / "raw.hang-up").write_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 20000000)
    inject = vault.server.child("hermes-inject")

    def used_s():
        with open("/proc/%d/stat" % inject) as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    before = used_s()
    answer = vault.run("none", "python", """
import socket, ssl, time
c = ssl.create_default_context()
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.connect(("ok.example.com", 8444))
t = c.wrap_socket(s, server_hostname="ok.example.com")
t.sendall(b"POST /hang-up HTTP/1.1\\r\\nHost: ok.example.com:8444\\r\\nContent-Length: 900000000\\r\\n\\r\\n")
t.settimeout(1)
try:
    while True:
        t.send(b"x" * 16384)
except TimeoutError:
    time.sleep(6)
print("done")
""", secrets=["raw"])
    assert answer["stdout"] == "done\n", answer
    assert used_s() - before < 2


def test_an_answer_that_nobody_waits_for_holds_nothing(vault, world):
    """A box that resets its connections does not count for them any more, so hermes-inject must not keep them either."""
    inject = vault.server.child("hermes-inject")
    fifo = world.dir / "raw.wait"  # the server answers when somebody writes to it
    os.mkfifo(fifo)
    try:
        vault.run("none", "python", """
import socket, ssl, struct, time
c = ssl.create_default_context()
kept = []
for _ in range(20):
    t = c.wrap_socket(socket.create_connection(("ok.example.com", 8444)), server_hostname="ok.example.com")
    t.sendall(b"GET /wait HTTP/1.1\\r\\nHost: ok.example.com:8444\\r\\n\\r\\n")
    kept.append(t)
time.sleep(1)
for t in kept:
    t.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    t.close()
""", secrets=["raw"])
        assert wait_until(lambda: len(os.listdir("/proc/%d/fd" % inject)) <= 6, 20)
    finally:
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
        fifo.unlink()


def test_a_request_just_before_the_end_of_the_program_arrives(vault, world):
    vault.run("none", "python", """
import os, socket, ssl
c = ssl.create_default_context()
t = c.wrap_socket(socket.create_connection(("ok.example.com", 443)), server_hostname="ok.example.com")
t.sendall(b"POST /vault/upload?last HTTP/1.1\\r\\nHost: ok.example.com\\r\\nContent-Length: 3\\r\\n\\r\\nabc")
os._exit(0)
""", secrets=["api"])
    assert wait_until(lambda: [c for c in arrived(world) if c["path"].endswith("last")], 20)
    assert arrived(world)[-1]["authorization"] == [BEARER]


