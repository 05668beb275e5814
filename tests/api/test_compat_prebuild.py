# SPDX-License-Identifier: Apache-2.0
"""Prebuilt images of the quartermaster code runner: docs/compat-runner.md. Facts of the original are asserted as they
are; what departs on purpose says so. The form of wrong requests is in test_compat_runner.py.

Behaviours of compat-systems.md 2 that concern prebuilds, and where they are asserted (R: test_compat_runner.py):

  POST /prebuild 200, its members; GET list and one; DELETE and its texts; {tag} with and without prefix   test_a_whole_life
  400 Build failed: LOG                                   test_a_script_that_fails
  500 Prebuild failed: ...                                test_a_build_that_the_server_has_no_room_for
  422 of tag, base_image, setup_script, with its list     R test_prebuild_values, R test_prebuild_shapes
  base_image=python by default, six names, Docker's names test_bases, test_node, test_bun_and_deno, test_go_and_rust
  tag is stripped, its prefix removed                     test_the_script_runs_with_plain_sh, test_node
  an unknown image is prebuilt-NAME and 404               test_a_whole_life, R test_images_that_are_not_there
  the script runs with sh; a rebuild replaces             test_the_script_runs_with_plain_sh, test_a_rebuild_replaces_when_it_has_succeeded
  prebuild_spec: both members, nothing else is checked    R test_missing
  ... builds what is missing, 503 when that fails         test_a_spec_builds_what_is_missing, test_a_spec_that_fails
  ... after all other checks of the request               test_nothing_is_built_for_a_request_that_is_wrong
  execution_time has the build                            test_a_spec_builds_what_is_missing
  cleanup: 7 days by default, >= 0, its members           test_cleanup, R test_cleanup_values
  age from creation; the loop of CLEANUP_*                test_cleanup, test_clean_up_by_itself
  no key is needed there; here it is                      test_images_belong_to_a_key, R test_wrong_keys"""
import concurrent.futures
import json
import os
import pathlib
import re
import time

import pytest

from apilib import MONITOR, descendants, wait_until
from indexlib import CARGO_CONFIG, GOPROXY, image_settings
from indexworld import index_world
from serving import assert_idle, serve

pytestmark = pytest.mark.skipif(bool(os.environ.get("HERMES_IN_VM")), reason="the guest has no pip and no Node")
PROBE = "import hermes_probe; print(hermes_probe.VERSION)"
READ = "print(open('/opt/made').read())"
DAY = 86400


@pytest.fixture(scope="module")
def building():
    """A server whose builds reach a package index."""
    for world in index_world():
        yield from serve(command=[*world.host.enter(), MONITOR], tcp=False, env=image_settings())


@pytest.fixture
def server(building):
    yield building
    for session in building("GET", "/v1/sessions").json()["sessions"]:
        building("DELETE", "/v1/sessions/" + session["id"])
    for image in building("GET", "/v1/images").json()["images"]:
        assert building("DELETE", "/v1/images/" + (image["name"] or image["id"])).status == 204
    assert_idle(building)
    assert wait_until(lambda: left(building) == [], 30)


def left(server):
    """What the store still has, after another clean-up: a root that nobody uses is let go a moment later."""
    assert cleanup(server, 0) == []
    store = server.state / "server/images"
    return [p for d in ("layers", "images", "incoming") for p in (store / d).iterdir()]


def prebuild(server, tag, script, base="python", headers=None):
    return server("POST", "/prebuild", {"tag": tag, "base_image": base, "setup_script": script}, headers=headers)


def ready(server, tag, script, base="python", headers=None):
    reply = prebuild(server, tag, script, base, headers)
    assert reply.status == 200, reply
    return reply.json()


def run(server, image, code="print(1)", headers=None, **fields):
    return server("POST", "/run", dict(code=code, image=image, **fields), headers=headers)


def said(server, image, code, headers=None, **fields):
    reply = run(server, image, code, headers, **fields)
    assert reply.status == 200, reply
    assert reply.json()["exit_code"] == 0, reply
    return reply.json()["stdout"].strip()


def detail(reply, status):
    assert reply.status == status, reply
    assert list(reply.json()) == ["detail"] and isinstance(reply.json()["detail"], str)
    return reply.json()["detail"]


def tags(server, headers=None):
    reply = server("GET", "/prebuilds", headers=headers)
    assert reply.status == 200 and list(reply.json()) == ["prebuilds"]
    return [p["tag"] for p in reply.json()["prebuilds"]]


def cleanup(server, days=None, headers=None):
    reply = server("POST", "/prebuilds/cleanup" + ("" if days is None else "?max_age_days=%d" % days), headers=headers)
    assert reply.status == 200 and list(reply.json()) == ["removed", "count"]
    assert reply.json()["count"] == len(reply.json()["removed"])
    return sorted(reply.json()["removed"])


def make_older(server, tag, days):
    """By that many days and a moment."""
    path = next((server.state / "server/images/names").glob("*/prebuilt-" + tag))
    at = time.time() - days * DAY - 5
    os.utime(path, (at, at))


# The life of an image


def test_a_whole_life(server):
    answer = ready(server, "probe", "pip install hermes-probe==1.0")
    assert list(answer) == ["tag", "base_image", "size_bytes", "layer_size_bytes", "status"]
    assert answer["tag"] == "prebuilt-probe" and answer["base_image"] == "code-runner-python"
    assert answer["status"] == "ready" and answer["size_bytes"] >= answer["layer_size_bytes"] > 0

    listed = server("GET", "/prebuilds").json()["prebuilds"]
    assert [p["tag"] for p in listed] == ["prebuilt-probe"]
    assert list(listed[0]) == ["tag", "size_bytes", "created", "labels"]
    assert listed[0]["size_bytes"] == answer["size_bytes"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*Z", listed[0]["created"])
    assert listed[0]["labels"]["base_image"] == "code-runner-python"
    for tag in "probe", "prebuilt-probe":
        assert server("GET", "/prebuilds/" + tag).json() == listed[0]
        assert said(server, tag, PROBE) == "1.0"
    assert said(server, "probe", "", entrypoint="hermes-probe && python -c '%s'" % PROBE) == "probe 1.0\n1.0"
    assert said(server, "probe", "import helper; print(helper.x)", files={"helper.py": "x = 7"}) == "7"
    assert run(server, "python", PROBE).json()["exit_code"] == 1  # control: it is nowhere else

    reply = server("DELETE", "/prebuilds/probe")
    assert reply.status == 200 and reply.json() == {"status": "deleted", "tag": "prebuilt-probe"}
    assert tags(server) == []
    for method in "GET", "DELETE":
        for tag in "probe", "prebuilt-probe":
            text = detail(server(method, "/prebuilds/" + tag), 404)
            assert text == "Prebuilt image 'prebuilt-probe' not found."
    assert "'prebuilt-probe'" in detail(run(server, "probe"), 404)


def test_node(server):
    answer = ready(server, "prebuilt-js", "npm install hermes-probe\nnpm install -g hermes-postinstall", "code-runner-node")
    assert answer["tag"] == "prebuilt-js" and answer["base_image"] == "code-runner-node"
    assert said(server, "js", "console.log(require('hermes-probe'), require('hermes-postinstall'))") == "probe 1.0.0 true"
    assert server("GET", "/prebuilds/js").json()["labels"]["main_file"] == "main.js"


def missing(server, language):
    found = [r for r in server("GET", "/v1/runtimes").json()["runtimes"] if r["name"] == language]
    return not found or not found[0]["available"]


SCRIPTS = {"bun": "bun add hermes-probe && npm install hermes-postinstall",
           "deno": "npm install hermes-probe; echo \"import p from 'npm:hermes-probe@1.0.0'; p\" >/tmp/x.js; deno cache /tmp/x.js"}
PROGRAMS = {"bun": "import p from 'hermes-probe'; import q from 'hermes-postinstall'; console.log(p, q)",
            "deno": "import p from 'npm:hermes-probe@1.0.0'; console.log(p)"}
PRINTS = {"bun": "probe 1.0.0 true", "deno": "probe 1.0.0"}


@pytest.mark.parametrize("name, docker", [("bun", "oven/bun:1-slim"), ("deno", "denoland/deno")])
def test_bun_and_deno(server, name, docker):
    if missing(server, name):
        text = detail(prebuild(server, "o", ":", name), 400)
        assert text.startswith("Build failed: ") and "code-runner-" + name in text and "make runtimes" in text
        pytest.skip("this host has no " + name)
    assert ready(server, "o", SCRIPTS[name], docker)["base_image"] == "code-runner-" + name
    assert said(server, "o", PROGRAMS[name]) == PRINTS[name]
    assert server("GET", "/prebuilds/o").json()["labels"]["main_file"] == "main.ts"
    assert run(server, name, PROGRAMS[name]).json()["exit_code"] != 0  # control: it is nowhere else


COMPILED = {
    "go": ("GOSUMDB=off GOPROXY=%s go mod download probe.example/probe@v1.0.0" % GOPROXY, "golang:1.22-alpine", "main.go",
           'package main\n\nimport "probe.example/probe"\n\nfunc main() { println(probe.Version) }\n', None),
    "rust": (CARGO_CONFIG + "mkdir -p /tmp/p/src; cd /tmp/p; echo >src/lib.rs; printf '%s' >Cargo.toml; cargo fetch", "rust:1.87-slim", "src/main.rs",
             'fn main() { eprintln!("{}", hermes_probe::VERSION); }',
             '[package]\nname = "main"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nhermes-probe = "1"\nsdk = { path = "sdk" }\n'),
}


@pytest.mark.parametrize("name", ["go", "rust"])
def test_go_and_rust(server, name):
    """Modules and crates of the image are there without a network: Go finds them by itself, cargo by the request's Cargo.toml."""
    script, docker, main_file, code, manifest = COMPILED[name]
    if missing(server, name):
        assert "code-runner-" + name in detail(prebuild(server, "o", ":", name), 400)
        pytest.skip("this host has no " + name)
    if manifest:
        script = script % manifest.replace("sdk = { path = \"sdk\" }\n", "")
    fields = {"files": {"Cargo.toml": manifest}} if manifest else {}
    assert ready(server, "o", script, docker)["base_image"] == "code-runner-" + name
    reply = run(server, "o", code, **fields)
    assert reply.status == 200 and reply.json()["stderr"] == "probe 1.0.0\n", reply
    assert server("GET", "/prebuilds/o").json()["labels"]["main_file"] == main_file
    assert run(server, name, code, **fields).json()["exit_code"] != 0  # control: it is nowhere else


def test_a_script_that_fails(server):
    text = detail(prebuild(server, "no", "echo the reason >&2; exit 3"), 400)
    assert text.startswith("Build failed: ") and "the reason" in text and "status 3" in text
    assert detail(prebuild(server, "no", "pip install hermes-does-not-exist"), 400).startswith("Build failed: ")
    for manager in "apt-get install -y vim", "apk add vim":
        text = detail(prebuild(server, "no", manager), 400)
        assert "no system packages" in text and "pip or npm" in text  # what to do instead
    assert tags(server) == [] and run(server, "no").status == 404


def test_a_build_that_the_server_has_no_room_for(make_server):
    server = make_server(env={"HERMES_IMAGE_STORE_MB": "1"})
    text = detail(prebuild(server, "big", "head -c 2000000 /dev/zero > /opt/data"), 500)
    assert text.startswith("Prebuild failed: ") and "image_store_mb" in text
    assert tags(server) == []


def test_a_rebuild_replaces_when_it_has_succeeded(server):
    """The original removes the old image first."""
    ready(server, "x", "echo one > /opt/made")
    assert prebuild(server, "x", "echo two > /opt/made; exit 1").status == 400
    assert said(server, "x", READ) == "one"
    ready(server, "x", "echo two > /opt/made")
    assert said(server, "x", READ) == "two" and tags(server) == ["prebuilt-x"]


def test_the_script_runs_with_plain_sh(server):
    """As there: the last command counts, and a variable may be unset."""
    ready(server, "sh", "false; echo \"a${UNSET}b\" > /opt/made; cd /nowhere; true")
    assert said(server, "sh", READ) == "ab"
    ready(server, " a_b.C-1 ", "#!/bin/sh\necho $PATH > /opt/made")
    assert said(server, "a_b.C-1", READ).startswith("/opt/venv/bin:")
    longest = "x" * 55
    assert ready(server, longest, "")["tag"] == "prebuilt-" + longest
    assert said(server, longest, "print(1)") == "1"


def test_bases(server):
    """Also what Docker calls them; the version is the server's."""
    for base in ("python", "code-runner-python", "python:3.11-slim", "python:3.12-slim", "docker.io/library/python:3",
                 "python@sha256:0"):
        assert ready(server, "b", ":", base)["base_image"] == "code-runner-python", base
    for base in "node:22-slim", "library/node":
        assert ready(server, "n", ":", base)["base_image"] == "code-runner-node", base
    reply = server("POST", "/prebuild", {"tag": "d", "setup_script": ":"})
    assert reply.json()["base_image"] == "code-runner-python"


# prebuild_spec


def test_a_spec_builds_what_is_missing(server):
    spec = {"base_image": "python:3.12-slim", "setup_script": "sleep 1; pip install hermes-probe; date +%N > /opt/made"}
    assert run(server, "fly").status == 404  # control
    reply = run(server, "fly", PROBE, prebuild_spec=spec)
    assert reply.status == 200 and reply.json()["stdout"] == "2.0\n"
    assert reply.json()["execution_time"] >= 1  # with the build
    made = said(server, "prebuilt-fly", READ, prebuild_spec=spec)
    assert tags(server) == ["prebuilt-fly"]
    # it is there now, so no other spec counts
    assert said(server, "fly", READ, prebuild_spec=dict(spec, setup_script="exit 1")) == made
    assert said(server, "python", "print(2)", prebuild_spec=dict(spec, setup_script="exit 1")) == "2"


def test_many_at_once_build_once(server):
    """More than may wait for a turn: they join the build of the first."""
    spec = {"base_image": "python", "setup_script": "sleep 1; date +%s%N > /opt/made"}
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        made = set(pool.map(lambda _: said(server, "once", READ, prebuild_spec=spec), range(9)))
    assert len(made) == 1 and made != {""}


def sleeps(server):
    """Whether the script of the next test runs in a box."""
    for pid in descendants(server.process.pid):
        try:
            if b"sleep\x00600" in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes():
                return True
        except OSError:
            pass
    return False


def test_a_client_that_leaves_ends_the_build(server):
    spec = {"base_image": "python", "setup_script": "sleep 600"}
    connection = server.connect()
    connection.request("POST", "/run", json.dumps({"code": "1", "image": "left", "prebuild_spec": spec}))
    assert wait_until(lambda: sleeps(server), 60)
    connection.close()
    assert wait_until(lambda: not sleeps(server), 60)
    ready(server, "next", ":")  # has its turn
    assert tags(server) == ["prebuilt-next"]


def test_a_spec_that_fails(server):
    spec = {"base_image": "python", "setup_script": "echo the reason; exit 4"}
    reply = run(server, "bad", prebuild_spec=spec)
    text = detail(reply, 503)
    assert "'prebuilt-bad'" in text and "the reason" in text and int(reply.headers["Retry-After"]) >= 10
    assert "Unsupported base image 'ruby'" in detail(run(server, "bad", prebuild_spec=dict(spec, base_image="ruby")), 503)
    assert detail(run(server, "a/b", prebuild_spec=spec), 503)
    assert tags(server) == []


def test_nothing_is_built_for_a_request_that_is_wrong(server):
    spec = {"base_image": "python", "setup_script": ":"}
    assert run(server, "w", prebuild_spec=spec, files={"../a": "x"}).status == 400
    assert run(server, "w", "", prebuild_spec=spec).status == 400
    assert run(server, "w", "#" * ((1 << 20) + 1), prebuild_spec=spec).status == 413
    assert run(server, "w", prebuild_spec=spec, environment={"ENCODED_CODE": "1"}).status == 422
    problem = run(server, "w", prebuild_spec=dict(spec, setup_script="a\0")).json()["detail"][0]
    assert problem["loc"] == ["body", "prebuild_spec"] and "NUL" in problem["msg"]
    assert tags(server) == []


def test_images_of_the_native_routes(server):
    image = server("POST", "/v1/images", {"language": "python", "name": "plain", "setup_script": "echo p > /opt/made"})
    assert image.status == 201
    assert said(server, "plain", READ) == "p" and said(server, image.json()["id"], READ) == "p"
    assert tags(server) == [] and server("GET", "/prebuilds/plain").status == 404
    ready(server, "plain", "echo q > /opt/made")  # a prebuilt one of the same name comes first
    assert said(server, "plain", READ) == "q"
    assert server.run("python", READ, image="prebuilt-plain").json()["stdout"].strip() == "q"


# Clean-up


def test_cleanup(server):
    for tag, days in (("old", 8), ("middle", 5), ("new", 0)):
        ready(server, tag, ":")
        make_older(server, tag, days)
    assert server("POST", "/v1/images", {"language": "python", "name": "plain", "setup_script": ":"}).status == 201
    assert cleanup(server, 9) == [] and cleanup(server, 2 ** 63 - 1) == []
    assert cleanup(server, 2 ** 57) == []  # whose seconds wrap to 0
    assert cleanup(server) == ["prebuilt-old"]  # 7 days
    assert cleanup(server, 6) == [] and cleanup(server, 5) == ["prebuilt-middle"]
    assert tags(server) == ["prebuilt-new"]
    assert cleanup(server, 0) == ["prebuilt-new"] and cleanup(server, 0) == []
    assert [i["name"] for i in server("GET", "/v1/images").json()["images"]] == ["plain"]


def test_what_is_in_use_stays(server):
    ready(server, "used", "echo u > /opt/made")
    session = server("POST", "/v1/sessions", {"language": "python", "image": "prebuilt-used"})
    assert session.status == 201
    assert "in use" in detail(server("DELETE", "/prebuilds/used"), 409)
    assert cleanup(server, 0) == [] and tags(server) == ["prebuilt-used"]
    assert server("DELETE", "/v1/sessions/" + session.json()["id"]).status == 204
    assert wait_until(lambda: cleanup(server, 0) == ["prebuilt-used"], 30)


def test_clean_up_by_itself(make_server):
    server = make_server(env={"CLEANUP_INTERVAL_HOURS": "0.0005", "CLEANUP_MAX_AGE_DAYS": "3"})
    for tag in "old", "new":
        ready(server, tag, ":")
    make_older(server, "old", 3)
    assert wait_until(lambda: tags(server) == ["prebuilt-new"], 60)


# Keys


KEY1, KEY2 = {"X-API-Key": "key-1"}, {"Authorization": "Bearer key-2"}


def test_images_belong_to_a_key(make_server):
    """In the original they are everybody's, and need no key."""
    server = make_server(env={"CODE_RUNNER_API_KEYS": "key-1,key-2"})
    detail(prebuild(server, "mine", ":"), 401)
    detail(prebuild(server, "mine", ":", headers={"X-API-Key": "wrong"}), 403)
    ready(server, "mine", "echo 1 > /opt/made", headers=KEY1)
    assert tags(server, KEY1) == ["prebuilt-mine"] and tags(server, KEY2) == []
    for method in "GET", "DELETE":
        detail(server(method, "/prebuilds/mine", headers=KEY2), 404)
    assert "'prebuilt-mine'" in detail(run(server, "mine", headers=KEY2), 404)
    assert cleanup(server, 0, KEY2) == []
    ready(server, "mine", "echo 2 > /opt/made", headers=KEY2)
    assert [said(server, "mine", READ, key) for key in (KEY1, KEY2)] == ["1", "2"]
    assert cleanup(server, 0, KEY2) == ["prebuilt-mine"]
    assert said(server, "mine", READ, KEY1) == "1"
    # this server has no registry: the text says what is missing
    script = "python -c \"import urllib.request as u; u.urlopen('http://index.example.com/')\""
    assert "registry_hosts" in detail(prebuild(server, "net", script, headers=KEY1), 400)
