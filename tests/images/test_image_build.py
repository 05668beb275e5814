# SPDX-License-Identifier: Apache-2.0
"""POST /v1/images: pip and npm from an index of the test, locks, logs, failures."""
import json
import re

SITE = "$(echo /opt/venv/lib/python3*/site-packages)"


def build(server, **fields):
    reply = server("POST", "/v1/images", dict({"language": "python"}, **fields))
    assert reply.status == 201, reply.body
    return reply.json()


def said(server, code, language="python", **fields):
    reply = server.run(language, code, **fields)
    assert reply.status == 200 and reply.json()["status"] == "ok", reply.body
    return reply.json()["stdout"]


def refused(server, **fields):
    reply = server("POST", "/v1/images", dict({"language": "python"}, **fields))
    return reply.status, reply.json()["error"]


def test_pip_installs_what_a_program_then_imports(server):
    image = build(server, name="probe", packages={"pip": ["hermes-needs-probe"]})
    assert image["name"] == "probe" and image["owner"] is None and image["size_bytes"] > 0
    assert {"name": "hermes-probe", "version": "2.0"} in image["packages"]
    code = "import hermes_needs_probe, hermes_probe, subprocess\nprint(hermes_probe.VERSION, flush=True)\n" \
           "subprocess.run(['hermes-probe'])"
    assert said(server, code, image="probe") == "2.0\nprobe 2.0\n"
    assert said(server, code, image=image["id"]) == "2.0\nprobe 2.0\n"
    without = server.run("python", code).json()  # control: nothing of it is on the host
    assert "ModuleNotFoundError" in without["stderr"]


def test_a_box_with_an_image_is_cold_and_says_so(server):
    build(server, name="probe", packages={"pip": ["hermes-probe"]})
    answer = server.run("python", "print(1)", image="probe").json()
    assert answer["isolation"]["start"] == "cold" and answer["isolation"]["start_reason"] == "image"


def test_byte_code_does_not_depend_on_times(server):
    """All files of a layer have one time. Byte code by time would be stale, or would stay after its source has changed."""
    layers = build(server, packages={"pip": ["hermes-probe==1.0"]})["layers"]
    tree = server.state / "server/images/layers" / layers[0] / "tree"
    compiled = list(tree.rglob("*.pyc"))
    assert any(path.name.startswith("hermes_probe.") for path in compiled), compiled
    unchecked_hash = 1  # PEP 552: bit 0 by hash, bit 1 checked at import
    assert {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled} == {unchecked_hash}


def test_the_same_recipe_is_built_once(server):
    first = build(server, packages={"pip": ["hermes-probe==1.0"]})
    again = server("POST", "/v1/images", {"language": "python", "packages": {"pip": ["hermes-probe==1.0"]}, "name": "x"})
    assert again.status == 200 and again.json()["id"] == first["id"] and again.json()["name"] == "x"


def test_a_lock_gives_the_same_layer_again(server):
    first = build(server, name="a", packages={"pip": ["hermes-needs-probe"]})
    assert re.fullmatch(r"(hermes-(needs-)?probe==[0-9.]+ --hash=sha256:[0-9a-f]{64}\n){2}", first["lock"])
    assert server("DELETE", "/v1/images/a").status == 204
    second = build(server, name="b", lock=first["lock"])
    assert second["layers"] == first["layers"] and second["lock"] == first["lock"]


def test_a_lock_with_a_wrong_hash_is_refused(server):
    status, error = refused(server, lock="hermes-probe==1.0 --hash=sha256:" + "0" * 64)
    assert status == 422 and error["code"] == "build_failed" and "hash" in error["message"].lower()


def test_npm_packages_are_found_by_require_and_import(server):
    image = build(server, name="js", language="javascript", packages={"npm": ["hermes-postinstall@1.0.0"]})
    assert {"name": "hermes-probe", "version": "1.0.0"} in image["packages"]
    assert json.loads(image["lock"])["lockfileVersion"] >= 2
    assert said(server, "console.log(require('hermes-probe'), require('hermes-postinstall'))", "javascript",
                image="js") == "probe 1.0.0 true\n"
    reply = server("POST", "/v1/runs", {"language": "javascript", "image": "js", "entry": "main.mjs", "files": [
        {"name": "main.mjs", "content": "import p from 'hermes-probe'; console.log(p)"}]})
    assert reply.json()["stdout"] == "probe 1.0.0\n", reply.body


def test_requirements_env_and_setup_script(server):
    image = build(server, name="all", requirements="# a comment\nhermes-probe==1.0\n", env={"GREETING": "hello"},
                  setup_script="mkdir -p /opt/bin; printf '#!/bin/sh\\necho tool $GREETING\\n' > /opt/bin/tool; "
                               "chmod +x /opt/bin/tool; echo 'made = 7' > %s/made_by_script.py" % SITE)
    assert image["env"] == {"GREETING": "hello"}
    code = "import made_by_script, hermes_probe, subprocess, sys\nprint(made_by_script.made, hermes_probe.VERSION, " \
           "sys.prefix, flush=True)\nsubprocess.run(['tool'])"
    assert said(server, code, image="all") == "7 1.0 /opt/venv\ntool hello\n"
    assert said(server, code, image="all", env={"GREETING": "own"}).endswith("tool own\n")


def test_a_failed_build_says_why_and_leaves_nothing(server):
    status, error = refused(server, name="no", packages={"pip": ["hermes-does-not-exist"]})
    assert status == 422 and "hermes-does-not-exist" in error["message"]
    status, error = refused(server, packages={"pip": ["hermes-probe>=3"]})
    assert status == 422 and "hermes-probe" in error["message"]
    status, error = refused(server, setup_script="echo the reason >&2; exit 3")
    assert status == 422 and "the reason" in error["message"] and "status 3" in error["message"]
    status, error = refused(server, setup_script="apt-get install -y vim")
    assert status == 422 and "no system packages" in error["message"]
    assert server("GET", "/v1/images").json()["images"] == []
    assert server.run("python", "1", image="no").status == 404


def test_a_build_reaches_the_registries_only(server, world):
    probe = "import urllib.request; print(urllib.request.urlopen('http://%s/', timeout=8).status)"
    script = "python3 -c \"%s\"" % probe
    build(server, setup_script=script % "ok.example.com:8085/simple/hermes-probe")
    status, error = refused(server, setup_script=script % "other.example.org")
    assert status == 422 and "other.example.org" in error["message"]
    # control: the other host is there
    assert "hello from" in world.probe(["url", "http://other.example.org/"])[0]


def test_the_log_is_live(server):
    reply = server("POST", "/v1/images", {"language": "python", "name": "log", "setup_script": "echo from the script"},
                   headers={"Accept": "text/event-stream"})
    assert reply.status == 200
    text = reply.body.decode()
    names = re.findall(r"^event: (\w+)$", text, re.M)
    assert names[-1] == "end" and set(names[:-1]) == {"log", "progress"}
    assert "from the script" in text and '"name":"log"' in text
    reply = server("POST", "/v1/images", {"language": "python", "setup_script": "exit 9"},
                   headers={"Accept": "text/event-stream"})
    assert json.loads(re.findall(r"^data: (.*)$", reply.body.decode(), re.M)[-1])["error"]["code"] == "build_failed"


def test_requests_that_are_wrong(server):
    for fields, field in [({}, "packages"), ({"bases": "x", "setup_script": ":"}, "bases"),
                          ({"packages": {"npm": ["a"]}}, "packages.npm"), ({"packages": {"gem": ["a"]}}, "packages.gem"),
                          ({"packages": {"pip": ["--index-url=x"]}}, "packages.pip[0]"),
                          ({"packages": {"pip": ["a\nb"]}}, "packages.pip[0]"),
                          ({"packages": {"pip": ["a"]}, "requirements": "b"}, "requirements"),
                          ({"packages": {"pip": ["a"]}, "lock": "b"}, "lock"),
                          ({"name": "img_x", "setup_script": ":"}, "name"), ({"name": "a/b", "setup_script": ":"}, "name"),
                          ({"name": "..", "setup_script": ":"}, "name"),
                          ({"env": {"HERMES_X": "1"}, "setup_script": ":"}, "env.HERMES_X"),
                          ({"language": "c", "setup_script": ":"}, "language"),
                          ({"language": "image-build", "setup_script": ":"}, "language"),
                          ({"setup_script": 7}, "setup_script")]:
        status, error = refused(server, **fields)
        assert status == 400 and error["field"] == field, (fields, error)


def test_the_tool_that_builds_is_no_language(server):
    assert server.run("image-build", "x").status == 400
    assert "image-build" not in [r["name"] for r in server("GET", "/v1/runtimes").json()["runtimes"]]




def test_installers_of_a_setup_script(server):
    image = build(server, name="py", setup_script="pip install hermes-probe==1.0\npython -m pip install hermes-needs-probe\n"
                                                  "python3 -m pip --version; pwd")
    assert {"name": "hermes-probe", "version": "2.0"} in image["packages"]
    assert said(server, "import hermes_needs_probe, hermes_probe; print(hermes_probe.VERSION)", image="py") == "2.0\n"
    seen = said(server, "import importlib.util; print(importlib.util.find_spec('pip'))", image="py")
    assert seen == "None\n"  # what was lent to the script is gone
    build(server, name="js", language="javascript", setup_script="npm install hermes-probe\nnpm install -g hermes-postinstall")
    assert said(server, "console.log(require('hermes-probe'), require('hermes-postinstall'))", "javascript",
                image="js") == "probe 1.0.0 true\n"
