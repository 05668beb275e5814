# SPDX-License-Identifier: Apache-2.0
"""`hermes exec`, `hermes backends`, `hermes session new --backend`, and the examples of docs/backends.md."""
import json
import re
import subprocess

import pytest

from apilib import ROOT
from farlib import BUILD


def hermes(places, *words, **options):
    return subprocess.run([str(BUILD / "hermes"), words[0], "--unix", str(places.unix), *words[1:]],
                          capture_output=True, text=True, timeout=120, **options)


@pytest.mark.parametrize("backend", ["here", "far", "native"])
def test_exec_runs_a_command_and_exits_with_its_status(places, backend):
    found = hermes(places, "exec", "--backend", backend, "--env", "A=b c", "--", "sh", "-c", "echo \"$A\" 'it'\\''s'; echo e >&2; exit 3")
    assert (found.stdout, found.stderr, found.returncode) == ("b c it's\n", "e\n", 3)
    assert places("GET", "/v1/sessions").json()["sessions"] == [] or \
        all(s["state"] != "idle" for s in places("GET", "/v1/sessions").json()["sessions"])


def test_exec_passes_stdin_on(places):
    assert hermes(places, "exec", "--backend", "here", "--stdin", "-", "tr", "a-z", "A-Z", input="hello").stdout == "HELLO"


@pytest.mark.parametrize("words,status,text", [
    (["exec"], 2, "missing argument COMMAND"),
    (["exec", "--backend", "unknown", "true"], 2, "you have no backend `unknown`"),
    (["exec", "--backend", "down", "true"], 125, "backend down: unreachable"),
    (["backends", "extra"], 2, "unexpected argument `extra`")])
def test_errors_name_the_thing_and_the_cause(places, words, status, text):
    found = hermes(places, *words)
    assert found.returncode == status and text in found.stderr and found.stdout == ""


def test_backends_are_listed_with_what_they_enforce(places):
    hermes(places, "exec", "--backend", "here", "true")
    hermes(places, "exec", "--backend", "down", "true")
    text = hermes(places, "backends").stdout
    assert re.search(r"^here +local +ready +\d+ ms +wall_ms output_kb$", text, re.M), text
    assert re.search(r"^down +ssh +unreachable +\d+ ms .*\n    backend down: unreachable: ", text, re.M), text
    assert re.search(r"^native +native +ready .*memory_mb", text, re.M) and "secret" not in text
    rows = {row["name"]: row for row in json.loads(hermes(places, "backends", "--json").stdout)["backends"]}
    assert rows["here"]["isolation"] == "none" and rows["native"]["isolation"] == "box"


def test_a_session_is_made_on_a_backend(places):
    made = subprocess.run([str(BUILD / "hermes"), "session", "new", "--unix", str(places.unix), "-l", "bash", "--backend", "here"],
                          capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    assert places("GET", "/v1/sessions/" + made.stdout.strip()).json()["backend"]["name"] == "here"
    places("DELETE", "/v1/sessions/" + made.stdout.strip())


def test_limits_that_a_backend_lacks_can_be_done_without(places):
    def new(*words):
        return subprocess.run([str(BUILD / "hermes"), "session", "new", "--unix", str(places.unix), "-l", "bash", "--backend", "here", "--memory", "64m", *words],
                              capture_output=True, text=True, timeout=60)
    refused = new()
    assert refused.returncode == 2 and "cannot enforce memory_mb; leave it out, or set limits_mode to best_effort" in refused.stderr
    made = new("--limits-mode", "best_effort")
    assert made.returncode == 0, made.stderr
    places("DELETE", "/v1/sessions/" + made.stdout.strip())


def test_every_example_works(places, tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/backends.md").read_text(), re.S)
    assert len(blocks) == 2
    shown = []
    for block in blocks:
        script = block.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % places.port)
        script = script.replace("jq -r .id", "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"id\"])'")
        got = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path,
                             env={"PATH": "%s:/usr/bin:/bin" % BUILD, "HERMES_URL": "http://127.0.0.1:%d" % places.port})
        assert got.returncode == 0 and '"error":{"code"' not in got.stdout, (block, got.stdout, got.stderr)
        shown.append(got.stdout)
    assert "\n42\n" in shown[0] and '"stdout":"42\\n"' in shown[1]


@pytest.mark.parametrize("text,problem", [
    ("[backend x]\nkeys = *\n", "[backend x]: kind is missing"),
    ("[backend x]\nkind = ssh\n", "[backend x]: keys is missing"),
    ("[backend x]\nkind = telnet\nkeys = *\n", "kind is local, ssh, docker, apptainer or plugin"),
    ("[backend native]\nkind = local\nkeys = *\n", "native is the name of the boxes of Hermes"),
    ("[backend a/b]\nkind = local\nkeys = *\n", "the name of a backend has at most 32"),
    ("[backend x]\nkind = ssh\nkeys = *\nhost = -oProxyCommand=id\n", "this is not a valid name"),
    ("[backend x]\nkind = ssh\nkeys = *\nimagine = y\n", "backend x: imagine: there is no such line"),
    ("[backend x]\nkind = local\nkeys = *\nhost = y\n", "host is not for local"),
])
def test_wrong_settings_are_named(tmp_path, text, problem):
    file = tmp_path / "b.conf"
    file.write_text(text)
    found = subprocess.run([str(BUILD / "hermes"), "serve", "--backends", str(file), "--backends-user", "nobody",
                            "--unix", str(tmp_path / "s"), "--state-dir", str(tmp_path / "state")],
                           capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert found.returncode == 2 and problem in found.stderr, found.stderr
