# SPDX-License-Identifier: Apache-2.0
"""Secrets stay outside: a header is put into the requests of a box by hermes-inject. Clients as users
write them, who may use a secret, and where the value never appears."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from apilib import HERMES, ROOT, children, name_of, wait_until
from netlib import denied
from secretlib import FOREIGN, KEY, URL, arrived, secret_server
from sessionlib import Session, fork
from vault import BEARER, VALUE


@pytest.fixture(scope="module")
def shared_vault(one_world):
    with secret_server(one_world) as boxes:
        yield boxes


@pytest.fixture
def vault(shared_vault, world):
    yield shared_vault
    assert VALUE not in shared_vault.server.logs()


def needs(program):
    return pytest.mark.skipif(not shutil.which(program, path="/usr/bin:/usr/local/go/bin"),
                              reason="%s is not installed" % program)


PYTHON = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode().strip())
    except urllib.error.HTTPError as e:
        print(e.code)
    except Exception as e:
        print(type(e).__name__, e)
"""


def get(vault, *urls, secrets=("api",), network="none", **fields):
    """What Python gets from these addresses."""
    return vault.run(network, "python", PYTHON, args=list(urls), secrets=list(secrets), **fields)


def lines(answer):
    return answer["stdout"].split("\n")[:-1]


def test_python_urllib_and_the_control(vault, world):
    answer = get(vault, URL)
    assert lines(answer) == ["open"], answer
    assert answer["network"]["mode"] == "allow"
    assert [row["host"] for row in answer["network"]["allowed"]] == ["ok.example.com"]
    came = arrived(world)[-1]
    assert came["authorization"] == [BEARER] and came["host"] == "ok.example.com"
    # control: the same request without the secret, with the authority of the test
    control = vault.one("full", "url", URL)
    assert control == "HTTP 401"


@needs("curl")
def test_curl(vault):
    answer = vault.run("none", "bash", "curl -sS %s; curl -sS --http2 -v %s 2>&1 | grep -i -c 'server accepted.*http/1.1'"
                       % (URL, URL), secrets=["api"])
    assert lines(answer) == ["open", "1"], answer


def test_python_requests(vault):
    answer = vault.run("none", "python", "import requests; print(requests.get(%r).text.strip())" % URL,
                       secrets=["api"])
    assert lines(answer) == ["open"], answer


@needs("node")
def test_node_fetch(vault):
    answer = vault.run("none", "javascript", "fetch(%r).then(async r => console.log((await r.text()).trim()))" % URL,
                       secrets=["api"])
    assert lines(answer) == ["open"], answer


@needs("go")
@pytest.mark.slow
def test_go(vault):
    answer = vault.run("none", "go", """
package main
import ("fmt"; "io"; "net/http")
func main() {
    r, err := http.Get("%s")
    if err != nil { fmt.Println(err); return }
    b, _ := io.ReadAll(r.Body)
    fmt.Print(string(b))
}
""" % URL, secrets=["api"])
    assert lines(answer) == ["open"], answer


@needs("java")
@pytest.mark.slow
def test_java(vault):
    answer = vault.run("none", "java", """
import java.net.*; import java.net.http.*;
public class Main { public static void main(String[] a) throws Exception {
    System.out.print(HttpClient.newHttpClient().send(
        HttpRequest.newBuilder(URI.create("%s")).build(), HttpResponse.BodyHandlers.ofString()).body());
} }
""" % URL, secrets=["api"])
    assert lines(answer) == ["open"], answer


# --- who may use a secret

def test_unknown_and_foreign_secrets_look_alike(vault):
    replies = [vault.server("POST", "/v1/runs", {"language": "python", "code": "1", "secrets": [name]}, key=key)
               for name, key in (("api", FOREIGN), ("nowhere", KEY))]
    assert [r.status for r in replies] == [403, 403]
    texts = [r.json()["error"]["message"].replace("api", "X").replace("nowhere", "X") for r in replies]
    assert texts[0] == texts[1]
    assert replies[0].json()["error"]["field"] == "secrets"


def test_wrong_lists_are_refused(vault):
    for value, status in ((["api", "api"], 400), (["api", "twin"], 400), ("api", 400), ([1], 400), (["x"] * 33, 400)):
        assert vault.ask("none", "python", "1", secrets=value).status == status, value


def test_a_box_without_the_secret_does_not_get_it(vault, world):
    """It reaches the host, but directly: the certificate is the server's own."""
    outcome = vault.one({"allow": ["ok.example.com"]}, "url", URL)
    assert outcome == "HTTP 401"
    assert arrived(world)[-1]["authorization"] == []


def test_a_secret_adds_its_host_and_nothing_more(vault):
    answer = get(vault, URL, "https://shared.example.org/vault/echo")
    assert lines(answer)[0] == "open" and "URLError" in lines(answer)[1]
    assert ("shared.example.org", 53, "dns", "not_listed") in denied(answer["network"])


# --- where the value goes

def test_another_host_and_a_redirect_do_not_get_it(vault, world):
    """shared.example.org has the same address as the host of the secret."""
    code = """
import json, ssl, urllib.request
context = ssl.create_default_context(cafile="/box/.hermes-trust.pem")
context.load_verify_locations("/box/ca.pem")
for url in ("https://ok.example.com/vault/redirect", "https://shared.example.org/vault/echo"):
    print(dict(json.load(urllib.request.urlopen(url, context=context))).get("Authorization"))
"""
    answer = vault.run("full", "python", code, secrets=["api"])
    assert lines(answer) == ["None", "None"], answer
    came = arrived(world)
    assert [c["authorization"] for c in came if c["host"] == "shared.example.org"] == [[], []]
    assert [c["authorization"] for c in came if c["path"].endswith("/redirect")] == [[BEARER]]


def test_an_echo_is_taken_out(vault):
    code = """
import urllib.request
for path in ("echo", "echo-chunked", "echo-close"):
    r = urllib.request.urlopen("https://ok.example.com/vault/" + path)
    body = r.read().decode()
    print(len(body) == int(r.headers.get("X-Length") or len(body)), "Bearer ****" in body, r.headers.get("X-Echo"),
          r.headers.get("X-Trailer"))
    print(body)
"""
    answer = vault.run("none", "python", code, secrets=["api"])
    assert VALUE not in json.dumps(answer)
    stars = "Bearer " + "*" * len(VALUE)
    assert lines(answer)[0] == "True True %s None" % stars
    assert lines(answer)[2] == lines(answer)[4] == "True True None None"


def test_a_compressed_echo_is_refused(vault):
    assert lines(get(vault, "https://ok.example.com/vault/gzip")) == ["502"]


def descendants(pid):
    found = [pid]
    for child in children(pid):
        found += descendants(child)
    return found


def holders(pids, needle):
    """The names of the processes that have these bytes in memory, arguments or environment."""
    return {name_of(pid) for pid in pids if any(needle in data for data in process_bytes(pid))}


def process_bytes(pid):
    for name in ("cmdline", "environ"):
        try:
            yield pathlib.Path("/proc/%d/%s" % (pid, name)).read_bytes()
        except OSError:
            pass
    try:
        maps = pathlib.Path("/proc/%d/maps" % pid).read_text().splitlines()
        mem = open("/proc/%d/mem" % pid, "rb", buffering=0)
    except OSError:
        return
    with mem:
        for line in maps:
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            try:
                mem.seek(first)
                yield mem.read(last - first)
            except (OSError, ValueError, OverflowError):
                pass


def test_only_hermes_inject_has_the_value_in_memory(vault):
    """After a request whose answer echoed it. The box has the stars of the echo: the search works."""
    s = Session(vault.server, key=KEY, secrets=["api"])
    try:
        stars = "Bearer " + "*" * len(VALUE)
        assert stars in s.out("""
import urllib.request
body = urllib.request.urlopen("https://ok.example.com/vault/echo").read()
print(body.decode())
""")
        everyone = descendants(vault.server.process.pid)
        in_box = descendants(vault.server.child("hermes-spawn"))
        assert holders(in_box, stars.encode())
        assert holders(everyone, VALUE.encode()) == {"hermes-inject"}
    finally:
        s.delete()


def test_metrics_report_and_status_do_not_show_it(vault):
    get(vault, URL)
    for path in ("/metrics", "/v1/status", "/v1/report", "/v1/runs"):
        assert VALUE.encode() not in vault.server("GET", path, key=KEY).body, path


# --- sessions, judge

def test_sessions_forks_and_changes_keep_secrets(vault):
    use = "import urllib.request; print(urllib.request.urlopen(%r).read().decode().strip())" % URL
    s = Session(vault.server, key=KEY, secrets=["api"])
    try:
        assert s.state()["secrets"] == ["api"] and s.state()["network"] == {"allow": ["ok.example.com:443"]}
        assert s.out(use) == "open\n"
        copy, = fork(s, 1)
        assert copy.out(use) == "open\n" and copy.state()["secrets"] == ["api"]
        copy.delete()
        assert s.call("PATCH", body={"network": {"allow": ["v4.example.com:80"]}}).status == 200
        assert s.state()["network"] == {"allow": ["v4.example.com:80", "ok.example.com:443"]}
        assert s.out(use) == "open\n"
        assert s.call("PATCH", body={"network": "none"}).status == 200
        assert s.out(use) == "open\n"
    finally:
        s.delete()


def test_a_judged_program_uses_a_secret(vault):
    body = {"language": "python", "code": PYTHON.replace("sys.argv[1:]", "[input()]"), "secrets": ["api"],
            "limits": {"wall_ms": 60000}, "tests": [{"stdin": URL + "\n", "expected": "open\n"}]}
    reply = vault.server("POST", "/v1/judge", body, key=KEY)
    assert reply.status == 200 and reply.json()["verdict"] == "accepted", reply.json()
    foreign = vault.server("POST", "/v1/judge", body, key=FOREIGN)
    assert foreign.status == 403 and foreign.json()["error"]["field"] == "secrets"



def test_the_files_of_the_authorities_are_no_result(vault):
    """They are neither collected by `*` nor new files of an exec."""
    answer = vault.run("none", "python", "open('a.txt', 'w')", secrets=["api"], collect=["*", "**"])
    assert {f["name"] for f in answer["files"]} == {"a.txt", "ca.pem", "main.py"}
    s = Session(vault.server, key=KEY, secrets=["api"])
    try:
        assert s.exec("open('a.txt', 'w')")["files_changed"] == ["a.txt"]
    finally:
        s.delete()


def test_a_new_server_has_the_same_authorities(vault):
    s = Session(vault.server, "bash", key=KEY, secrets=["api"])
    old = vault.server.child("hermes-server")
    assert s.out("curl -sS " + URL) == "open\n"
    os.kill(old, signal.SIGKILL)
    assert wait_until(lambda: vault.server.child("hermes-server") not in (None, old) and
                      vault.ask("none", "python", "1").status == 200, 60)
    assert lines(get(vault, URL)) == ["open"]


def test_the_command_line(vault, tmp_path):
    """--secret with a server; without one there are no secrets."""
    (tmp_path / "use.py").write_text(PYTHON)
    env = {"PATH": "/usr/bin:/bin", "HERMES_API_KEY": KEY, "HERMES_STATE_DIR": str(tmp_path / "state"),
           "HERMES_RUNTIMES": str(ROOT / "runtimes")}

    def hermes(*words):
        return subprocess.run([HERMES, *map(str, words)], env=env, capture_output=True, text=True, timeout=120)
    unix = ["--unix", vault.server.unix]
    done = hermes("run", *unix, "--secret", "api", tmp_path / "use.py", URL)
    assert (done.stdout, done.returncode) == ("open\n", 0), done
    done = hermes("run", *unix, "--secret", "nowhere", tmp_path / "use.py", URL)
    assert done.returncode == 2 and "no secret `nowhere`" in done.stderr, done
    done = hermes("run", "--secret", "api", tmp_path / "use.py", URL)
    assert done.returncode == 125 and "add --url" in done.stderr, done
    made = hermes("session", "new", *unix, "--json", "--secret", "api")
    assert json.loads(made.stdout)["secrets"] == ["api"], made
    vault.server("DELETE", "/v1/sessions/" + json.loads(made.stdout)["id"], key=KEY)


def test_a_judgement_without_a_server_has_none(tmp_path):
    problem = tmp_path / "problem"
    problem.mkdir()
    (problem / "1.in").write_text("")
    (problem / "1.out").write_text("1\n")
    (tmp_path / "a.py").write_text("print(1)")
    env = {"PATH": "/usr/bin:/bin", "HERMES_STATE_DIR": str(tmp_path / "state"), "HERMES_RUNTIMES": str(ROOT / "runtimes")}

    def judge(settings):
        (problem / "problem.json").write_text(json.dumps(settings))
        return subprocess.run([HERMES, "judge", problem, tmp_path / "a.py"], env=env, capture_output=True, text=True,
                              timeout=120)
    assert judge({}).returncode == 0  # the control
    done = judge({"secrets": ["api"]})
    assert done.returncode == 125 and "secrets belong to a server" in done.stderr, done
