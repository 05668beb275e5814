# SPDX-License-Identifier: Apache-2.0
"""Packages on the fly: for a live session, for its copies, and for one run."""
import json
import os
import re
import signal
import subprocess
import threading

import pytest

from apilib import HERMES, MONITOR, Server, borrow_dir, return_dir, wait_until
from indexlib import image_settings
from serving import boxes, serve


def start(server, language="python", key=None, **fields):
    reply = server("POST", "/v1/sessions", dict({"language": language}, **fields), key=key)
    assert reply.status == 201, reply.body
    return reply.json()["id"]


def install(server, session, *packages, manager="pip", key=None):
    return server("POST", "/v1/sessions/%s/packages" % session, {"manager": manager, "packages": list(packages)},
                  key=key)


def installed(server, session, *packages, **fields):
    reply = install(server, session, *packages, **fields)
    assert reply.status == 200, reply.body
    return {p["name"]: p["version"] for p in reply.json()["installed"]}


def execute(server, session, code, key=None, **fields):
    return server("POST", "/v1/sessions/%s/exec" % session, dict({"code": code}, **fields), key=key).json()


def said(server, session, code, key=None):
    answer = execute(server, session, code, key)
    assert answer["status"] == "ok", answer
    return answer["stdout"]


VERSION = "import hermes_probe; print(hermes_probe.VERSION)"


def test_a_live_session_gets_packages_and_keeps_its_state(server):
    session = start(server)
    said(server, session, "x = 41; import os; pid = os.getpid()")
    missing = execute(server, session, VERSION)
    assert missing["status"] == "runtime_error" and "hermes_probe" in missing["error"]["value"]
    reply = install(server, session, "hermes-probe==1.0")
    assert reply.status == 200, reply.body
    assert reply.json()["installed"] == [{"name": "hermes-probe", "version": "1.0"}]
    assert "hermes" in reply.json()["log"]
    assert said(server, session, VERSION + "\nprint(x + 1, pid == os.getpid())") == "1.0\n42 True\n"
    # programs of packages, and interpreters that the code starts
    assert said(server, session, "import subprocess, sys\n"
                "print(subprocess.run('hermes-probe', capture_output=True, text=True).stdout, end='')\n"
                "print(subprocess.run([sys.executable, '-c', %r], capture_output=True, text=True).stdout)"
                % VERSION) == "probe 1.0\n1.0\n\n"
    image = server("GET", "/v1/sessions/" + session).json()["image"]
    assert server("DELETE", "/v1/images/" + image).status == 409  # in use is protected
    # the mount is as that of an image
    assert said(server, session, "print([l.split()[5] for l in open('/proc/self/mountinfo') if ' /opt ' in l])\n"
                "try:\n    open('/opt/x', 'w')\nexcept OSError as e:\n    print(e.errno == 30)") \
        .endswith("nodev,relatime']\nTrue\n")


def test_a_second_set_adds_to_the_first_and_replaces(server):
    session = start(server)
    assert installed(server, session, "hermes-probe==1.0") == {"hermes-probe": "1.0"}
    said(server, session, VERSION)
    said(server, session, "kept = open(hermes_probe.__file__)")
    # needs hermes-probe >= 2: the 1.0 below is replaced
    assert installed(server, session, "hermes-needs-probe") == {"hermes-probe": "2.0", "hermes-needs-probe": "1.0"}
    code = "import importlib.metadata as m, subprocess, sys\n" \
           "print(sorted((d.name, d.version) for d in m.distributions(path=[p for p in sys.path if '/opt/' in p])))\n" \
           "print(subprocess.run([sys.executable, '-c', %r], capture_output=True, text=True).stdout)\n" \
           "print(hermes_probe.VERSION, len(kept.read()) > 0)" % VERSION
    assert said(server, session, code) == \
        "[('hermes-needs-probe', '1.0'), ('hermes-probe', '2.0')]\n2.0\n\n1.0 True\n"
    # what is there already is not installed again
    assert installed(server, session, "hermes-probe") == {}


def test_copies_have_the_packages(server):
    session = start(server)
    before = server("POST", "/v1/sessions/%s/fork" % session, {}).json()["sessions"][0]["id"]
    server("POST", "/v1/sessions/%s/checkpoints" % session, {"name": "bare"})
    installed(server, session, "hermes-probe==1.0")
    copy = server("POST", "/v1/sessions/%s/fork" % session, {}).json()["sessions"][0]["id"]
    assert said(server, copy, VERSION) == "1.0\n"
    assert execute(server, before, VERSION)["status"] == "runtime_error"  # the control: made before
    # a copy installs for itself
    assert installed(server, copy, "hermes-probe==2.0") == {"hermes-probe": "2.0"}
    assert said(server, copy, "import subprocess, sys; print(subprocess.run([sys.executable, '-c', %r], "
                "capture_output=True, text=True).stdout)" % VERSION) == "2.0\n\n"
    assert said(server, session, VERSION) == "1.0\n"
    server("POST", "/v1/sessions/%s/checkpoints" % session, {"name": "full"})
    assert server("POST", "/v1/sessions/%s/rollback" % session, {"checkpoint": "bare"}).status == 200
    assert execute(server, session, VERSION)["status"] == "runtime_error"
    assert server("GET", "/v1/sessions/" + session).json()["image"] is None
    assert server("POST", "/v1/sessions/%s/rollback" % session, {"checkpoint": "full"}).status == 200
    assert said(server, session, VERSION) == "1.0\n"


def test_a_new_interpreter_has_the_packages(server):
    session = start(server)
    installed(server, session, "hermes-probe==1.0")
    assert server("POST", "/v1/sessions/%s/reset" % session).status == 200
    assert said(server, session, VERSION) == "1.0\n"


def test_npm_packages_by_require_and_import(server):
    session = start(server, "javascript")
    said(server, session, "var x = 41")
    assert execute(server, session, "require('hermes-probe')")["status"] == "runtime_error"
    assert installed(server, session, "hermes-probe", manager="npm") == {"hermes-probe": "1.0.0"}
    assert said(server, session, "console.log(require('hermes-probe'), x + 1)") == "probe 1.0.0 42\n"
    assert installed(server, session, "hermes-postinstall", manager="npm") == {"hermes-postinstall": "1.0.0"}
    assert said(server, session, "console.log(require('hermes-postinstall'), (await import('hermes-probe')).default,\n"
                "require('child_process').execSync('hermes-probe').toString().trim())") == "true probe 1.0.0 probe 1.0.0\n"


def test_packages_build_on_an_image_and_become_one(server):
    reply = server("POST", "/v1/images", {"language": "python", "name": "base",
                                          "packages": {"pip": ["hermes-probe==1.0"]}, "env": {"A": "b"}})
    assert reply.status == 201, reply.body
    session = start(server, image="base")
    assert installed(server, session, "hermes-needs-probe") == {"hermes-probe": "2.0", "hermes-needs-probe": "1.0"}
    reply = server("POST", "/v1/sessions/%s/commit" % session, {"name": "more"})
    assert reply.status == 201, reply.body
    image = reply.json()
    assert image["name"] == "more" and len(image["layers"]) == 2 and image["env"] == {"A": "b"}
    assert [line.split(" ")[0] for line in image["lock"].splitlines()] == ["hermes-needs-probe==1.0", "hermes-probe==2.0"]
    reply = server.run("python", "import hermes_needs_probe, os\n" + VERSION + "\nprint(os.environ['A'])", image="more")
    assert reply.json()["stdout"] == "2.0\nb\n", reply.body
    assert server.run("python", VERSION, image="base").json()["stdout"] == "1.0\n"


@pytest.mark.parametrize("body, field", [
    ({}, "manager"), ({"manager": "gem", "packages": ["x"]}, "manager"), ({"manager": "npm", "packages": ["x"]}, "manager"),
    ({"manager": "pip"}, "packages"), ({"manager": "pip", "packages": []}, "packages"),
    ({"manager": "pip", "packages": ["-r x"]}, "packages[0]"), ({"manager": "pip", "packages": ["a", "b\nc"]}, "packages[1]"),
    ({"manager": "pip", "packages": ["x"], "more": 1}, "more")])
def test_bad_requests(server, body, field):
    session = start(server)
    reply = server("POST", "/v1/sessions/%s/packages" % session, body)
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply.body


# --- runs


def files(**texts):
    return [{"name": name.replace("_", "."), "content": text} for name, text in texts.items()]


def test_a_run_installs_its_requirements_once(server):
    body = {"language": "python", "install": True,
            "files": files(main_py=VERSION, requirements_txt="hermes-probe==1.0\n")}
    reply = server("POST", "/v1/runs", body)
    assert reply.json()["stdout"] == "1.0\n", reply.body
    images = server("GET", "/v1/images").json()["images"]
    assert len(images) == 1 and images[0]["name"] is None
    assert server("POST", "/v1/runs", body).json()["stdout"] == "1.0\n"
    assert server("GET", "/v1/images").json()["images"] == images
    assert server("POST", "/v1/runs", dict(body, install=False)).json()["status"] == "runtime_error"  # control
    # on top of an image
    body["files"][1]["content"] = "hermes-needs-probe\n"
    body["image"] = images[0]["id"]
    assert server("POST", "/v1/runs", body).json()["stdout"] == "2.0\n"


def test_a_run_installs_its_package_json(server):
    reply = server("POST", "/v1/runs", {"language": "javascript", "install": True, "files": files(
        main_js="console.log(require('hermes-probe'))", package_json='{"dependencies": {"hermes-probe": "1"}}')})
    assert reply.json()["stdout"] == "probe 1.0.0\n", reply.body


def test_install_needs_something_to_install(server):
    reply = server.run("python", "1", install=True)
    assert reply.status == 400 and reply.json()["error"]["field"] == "install", reply.body
    reply = server.run("bash", "true", install=True)
    assert reply.status == 400 and reply.json()["error"]["field"] == "install", reply.body
    reply = server("POST", "/v1/runs", {"language": "python", "install": True, "files": files(
        main_py="1", requirements_txt="hermes-missing\n")})
    assert reply.status == 422 and "hermes-missing" in reply.json()["error"]["message"], reply.body


# --- the command line


def cli(server, *args):
    done = subprocess.run([HERMES, args[0], "--unix", server.unix, *map(str, args[1:])], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_installs(server, tmp_path):
    session = start(server)
    assert cli(server, "session", "pip", "install", session, "hermes-probe==1.0")[:2] == (0, "hermes-probe 1.0\n")
    status, out, err = cli(server, "session", "pip", "install", session, "hermes-missing")
    assert status == 2 and out == "" and "hermes-missing" in err
    assert cli(server, "session", "commit", session, "mine")[0] == 0
    program = tmp_path / "p.py"
    program.write_text(VERSION)
    assert cli(server, "run", "--image", "mine", program)[1] == "1.0\n"
    status, _, err = cli(server, "run", "--install", program)
    assert status == 2 and "requirements.txt" in err
    (tmp_path / "requirements.txt").write_text("hermes-probe==2.0")
    assert cli(server, "run", "--install", program)[1] == "2.0\n"
    session = start(server, "javascript")
    assert cli(server, "session", "npm", "install", session, "hermes-probe")[:2] == (0, "hermes-probe 1.0.0\n")


def test_a_run_without_a_server_installs(world, tmp_path):
    (tmp_path / "p.py").write_text(VERSION)
    (tmp_path / "requirements.txt").write_text("hermes-probe==2.0")
    env = dict(os.environ, HERMES_STATE_DIR=str(tmp_path / "state"), **image_settings())
    for logs in True, False:  # the second time it is there
        done = subprocess.run([*world.host.enter(), HERMES, "run", "--install", tmp_path / "p.py"], env=env,
                              capture_output=True, text=True, timeout=120)
        assert done.stdout == "2.0\n", done.stderr
        assert ("hermes: installing" in done.stderr) == logs


# --- what goes wrong


def stream(server, session, *packages):
    reply = server("POST", "/v1/sessions/%s/packages" % session, {"manager": "pip", "packages": list(packages)},
                   headers={"Accept": "text/event-stream"})
    assert reply.status == 200, reply.body
    blocks = [dict(re.findall(r"^(event|data): (.*)$", block, re.M)) for block in reply.body.decode().split("\n\n")]
    return [(b["event"], json.loads(b["data"])) for b in blocks if "event" in b]


def test_events_and_errors(server):
    session = start(server)
    events = stream(server, session, "hermes-probe==1.0")
    assert events[-1] == ("end", {"installed": [{"name": "hermes-probe", "version": "1.0"}]})
    assert {"step": "installing requirements"} in [data for name, data in events if name == "progress"]
    assert re.search("hermes.probe(-|==)1.0", "".join(data["text"] for name, data in events if name == "log"))
    for package, word in ("hermes-missing", "hermes-missing"), ("hermes-probe==9", "hermes-probe==9"), \
            ("hermes-far", "the host far.example.com is not among registry_hosts"):
        error = stream(server, session, package)[-1][1]["error"]
        assert error["code"] == "build_failed" and word in error["message"], error
    assert said(server, session, VERSION) == "1.0\n"  # as before
    assert install(server, "ses_" + "0" * 26, "x").status == 404
    bash = start(server, "bash")
    assert install(server, bash, "x").status == 501
    reply = server("POST", "/v1/sessions/%s/commit" % bash, {"name": "x"})
    assert reply.status == 409, reply.body
    assert server("POST", "/v1/sessions/%s/commit" % session, {"name": "/x"}).status == 400
    assert server("POST", "/v1/sessions/%s/commit" % session, {}).status == 400


def test_a_hostile_package_harms_its_own_session_alone(server):
    session, other = start(server), start(server)
    said(server, session, "x = 1")
    assert installed(server, session, "hermes-hostile") == {"hermes_hostile": "1.0"}
    report = execute(server, session, "import hermes_hostile\nhermes_hostile.REPORT")["result"]["text/plain"]
    report = eval(report)
    assert report.pop("own") == "done"  # the control
    assert set(report) == {"base", "etc", "usr", "kill", "root", "far", "local"} and "done" not in report.values(), report
    # its .pth file runs in the session that asked for it, and its sitecustomize in programs of that session
    code = "import builtins, subprocess, sys\nprint(getattr(builtins, 'pth', False), subprocess.run([sys.executable, " \
           "'-c', 'print(getattr(__builtins__, \"customized\", False))'], capture_output=True, text=True).stdout)"
    assert said(server, session, code) == "True True\n\n"
    assert said(server, other, code) == "False False\n\n"
    assert server.run("python", code).json()["stdout"] == "False False\n\n"
    # nor does it reach the next build: upon it, or beside it; what it did to files of its own build stays there
    assert installed(server, session, "hermes-probe==1.0") == {"hermes-probe": "1.0"}
    assert said(server, session, VERSION) == "1.0\n"
    third = start(server)
    installed(server, third, "hermes-probe==1.0", "hermes-hostile")
    assert said(server, third, VERSION) in ("1.0\n", "evil\n")
    assert installed(server, other, "hermes-probe==1.0") == {"hermes-probe": "1.0"}
    assert said(server, other, VERSION) == "1.0\n"
    assert said(server, other, code) == "False False\n\n"


def is_building(server):
    """The package that builds for a minute is at it, in a box of this server."""
    for pid in boxes(server):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                if b"build_wheel" in file.read():
                    return True
        except OSError:
            pass
    return False


def test_the_session_ends_during_an_install(server):
    session = start(server)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(install(server, session, "hermes-slow")))
    thread.start()
    assert wait_until(lambda: is_building(server), 60)
    assert server("DELETE", "/v1/sessions/" + session).status == 204
    thread.join(60)
    assert not thread.is_alive() and replies[0].status in (404, 409), replies[0].body


# --- keys, and programs that die


ANN, BOB = "key-of-ann-1234567890", "key-of-bob-1234567890"


@pytest.fixture
def make(world):
    """Makes servers of their own that reach the index."""
    made = []

    def make(**env):
        path = borrow_dir()
        made.append((path, Server(path, command=[*world.host.enter(), MONITOR], tcp=False,
                                  env=dict(image_settings(), **env))))
        return made[-1][1]
    yield make
    for path, server in made:
        assert server.stop() == 0
        return_dir(path)


def test_keys_share_no_layers(make, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("[ann]\nkey = %s\n\n[bob]\nkey = %s\n" % (ANN, BOB))
    keys.chmod(0o600)
    server = make(HERMES_KEYS_FILE=str(keys))
    made = {}
    for key in ANN, BOB, ANN:
        session = start(server, key=key)
        reply = install(server, session, "hermes-probe==1.0", key=key)
        assert reply.status == 200, reply.body
        assert bool(reply.json()["log"]) == (key not in made)  # built for each key, and once
        made[key] = server("GET", "/v1/sessions/" + session, key=key).json()["image"]
        assert said(server, session, VERSION, key=key) == "1.0\n"
    assert made[ANN] != made[BOB]
    assert server("GET", "/v1/images/" + made[ANN], key=BOB).status == 404
    assert server.run("python", VERSION, key=BOB, image=made[ANN]).status == 404
    assert server.run("python", VERSION, key=ANN, image=made[ANN]).json()["stdout"] == "1.0\n"  # control
    # a session of another key cannot be told to install, and does not exist
    assert install(server, session, "hermes-probe", key=BOB).status == 404
    assert server("POST", "/v1/sessions/%s/commit" % session, {"name": "x"}, key=BOB).status == 404


@pytest.mark.parametrize("victim", ["hermes-spawn", "hermes-server"])
def test_a_kill_during_an_install(make, victim):
    server = make()
    session = start(server)

    def ask():
        try:
            install(server, session, "hermes-slow")
        except OSError:
            pass
    thread = threading.Thread(target=ask)
    thread.start()
    assert wait_until(lambda: is_building(server), 60)
    os.kill(server.child(victim), signal.SIGKILL)
    thread.join(60)
    assert not thread.is_alive()
    assert wait_until(lambda: server.child(victim) and works(server), 60)
    session = start(server)
    assert installed(server, session, "hermes-probe==1.0") == {"hermes-probe": "1.0"}
    assert said(server, session, VERSION) == "1.0\n"
    images = server.state / "server/images"
    assert list((images / "incoming").iterdir()) == []
    assert len([p for p in (images / "layers").iterdir() if p.name[0] != "."]) == 1


def works(server):
    try:
        return server.run("python", "print(1)").json().get("stdout") == "1\n"
    except OSError:
        return False
