# SPDX-License-Identifier: Apache-2.0
"""Backends behind a program: every error, every lie, and a life like that of other places."""
import json
import os
import pathlib
import shutil
import tempfile
import time
import uuid

import pytest

import apilib
from apilib import ROOT
from farlib import processes_with, wait_until
from placelib import allow_commands

SECTION = """
[backend {name}]
kind = plugin
keys = *
command = /usr/bin/python3 {dir}/scripted.py {dir}
env_file = {dir}/env
cwd = {dir}
"""
SECTIONS = {"plug": "container_persistent = no\nopen_s = 20", "kept": "image = an/image:1\ncontainer_memory = 100",
            "boxed": "isolated = yes\ncontainer_persistent = no", "strict": "container_disk = 5", "airless": "network = none",
            "hasty": "open_s = 2\nreconnect_s = 0\ncontainer_persistent = no"}


class Plugins:
    """A server whose backends are all one scripted plug-in."""

    def __init__(self):
        self.work, self.dir = apilib.borrow_dir(), pathlib.Path(tempfile.mkdtemp(prefix="hermes-plugin-"))
        self.dir.chmod(0o777)
        for source in (ROOT / "tests/backends/scripted.py", ROOT / "clients/adapters/hermes_plugin.py"):
            shutil.copy(source, self.dir)
        (self.dir / "env").write_text("# the operator's\nVENDOR_TOKEN=t0ken\n")
        self.be("")
        settings = self.work / "backends.conf"
        settings.write_text("".join(SECTION.format(name=name, dir=self.dir) + lines + "\n" for name, lines in SECTIONS.items()) +
                            SECTION.format(name="missing", dir=self.dir).replace("/usr/bin/python3", "/no/such/program"))
        self.server = apilib.Server(self.work, args=["--backends", str(settings)] +
                                    (["--backends-user", "nobody"] if os.geteuid() == 0 else []), env={"SERVER_SECRET": "hidden"})
        allow_commands(self.server, *SECTIONS)

    def be(self, mode):
        (self.dir / "mode").write_text(mode)

    def log(self):
        try:
            return (self.dir / "log").read_text().splitlines()
        except FileNotFoundError:
            return []

    def new(self, backend="plug", **fields):
        return self.server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **fields})

    def session(self, backend="plug", **fields):
        reply = self.new(backend, **fields)
        assert reply.status == 201, reply
        return reply.json()

    def exec(self, session, code, **fields):
        reply = self.server("POST", "/v1/sessions/%s/exec" % session["id"], {"code": code, **fields})
        assert reply.status == 200, reply
        return reply.json()

    def end(self, session):
        assert self.server("DELETE", "/v1/sessions/" + session["id"]).status == 204

    def programs(self):
        return processes_with(str(self.dir) + "/scripted.py")

    def rows(self):
        return {row["name"]: row for row in self.server("GET", "/v1/backends").json()["backends"]}

    def close(self):
        self.server.stop()
        apilib.return_dir(self.work)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture(scope="module")
def all_plugins():
    made = Plugins()
    yield made
    made.close()


@pytest.fixture
def plugins(all_plugins):
    all_plugins.be("")
    (all_plugins.dir / "log").unlink(missing_ok=True)
    yield all_plugins
    all_plugins.be("")
    for session in all_plugins.server("GET", "/v1/sessions").json()["sessions"]:  # of a test that failed
        all_plugins.server("DELETE", "/v1/sessions/" + session["id"])
    wait_until(lambda: not all_plugins.programs(), "no plug-in is left")


def test_a_session_is_one_as_everywhere(plugins):
    s = plugins.session(env={"TOKEN": "t1"})
    assert s["backend"]["kind"] == "plugin" and s["backend"]["isolation"] == "none" and s["backend"]["state"] == "ready"
    found = plugins.exec(s, "x=5; cd /; echo $TOKEN; echo err >&2; (exit 7)")
    assert (found["stdout"], found["stderr"], found["exit_code"]) == ("t1\n", "err\n", 7)
    assert plugins.exec(s, "echo $x $PWD; cat", stdin="given")["stdout"] == "5 /\ngiven"
    found = plugins.exec(s, "head -c 300000 /dev/zero | tr '\\0' x | wc -c; head -c 50000 /dev/zero | tr '\\0' y")
    assert found["stdout"] == "300000\n" + "y" * 50000
    found = plugins.exec(s, "sleep 1000", timeout_ms=500)
    assert found["status"] == "time_limit" and not found["state_lost"]
    name, data = uuid.uuid4().hex, os.urandom(300000)
    assert plugins.server("PUT", "/v1/sessions/%s/files/%s" % (s["id"], name), data).status == 201
    assert plugins.server("GET", "/v1/sessions/%s/files/%s" % (s["id"], name)).body == data
    assert plugins.exec(s, "echo $x")["stdout"] == "5\n"
    plugins.end(s)
    wait_until(lambda: any(line.startswith("close ") for line in plugins.log()), "the place is closed")


def test_the_request_says_what_is_wanted_and_nothing_of_the_server(plugins):
    plugins.end(plugins.session("kept", limits={"memory_mb": 64}))
    request = json.loads(next(line for line in plugins.log() if line.startswith("open "))[5:])
    assert request["name"].startswith("hermes-kept-") and len(request["config_hash"]) == 64
    assert (request["image"], request["memory_mb"], request["cpu"], request["network"]) == ("an/image:1", 64, 1.0, True)
    assert request["asked"] == ["memory_mb"] and request["keep"] is True and request["again"] is False
    variables = json.loads(next(line for line in plugins.log() if line.startswith("env "))[4:])
    assert "VENDOR_TOKEN" in variables and "SERVER_SECRET" not in variables and not any(v.startswith("HERMES") for v in variables)


def test_a_place_that_is_not_kept_is_destroyed_with_its_session(plugins):
    s = plugins.session("plug")
    place = next(path for path in plugins.dir.iterdir() if path.name.startswith("hermes-plug-"))
    plugins.end(s)
    wait_until(lambda: not place.exists(), "the place is destroyed")


def test_a_place_that_reads_nothing_is_destroyed_with_its_session(plugins):
    s = plugins.session("plug")
    place = next(path for path in plugins.dir.iterdir() if path.name.startswith("hermes-plug-"))
    plugins.be("deaf")
    plugins.end(s)
    wait_until(lambda: not place.exists(), "the place is destroyed")


def test_a_place_that_is_kept_is_closed_by_its_last_session_and_found_again(plugins):
    first, second = plugins.session("kept"), plugins.session("kept")
    opened = {json.loads(line[5:])["name"] for line in plugins.log() if line.startswith("open ")}
    assert len(opened) == 1
    plugins.end(first)
    wait_until(lambda: len(plugins.programs()) == 1, "its plug-in has ended")
    assert not [line for line in plugins.log() if line.startswith("close ")]
    assert plugins.exec(second, "echo fine")["stdout"] == "fine\n"
    plugins.end(second)
    wait_until(lambda: "close %s False" % next(iter(opened)) in plugins.log(), "closed once, and not destroyed")
    assert (plugins.dir / next(iter(opened))).is_dir()


@pytest.mark.parametrize("kind", ["auth", "not_found", "refused", "unreachable", "lost"])
def test_every_error_has_its_kind(plugins, kind):
    plugins.be("error " + kind)
    reply = plugins.new()
    assert reply.status == 502 and reply.json()["error"]["detail"] == {"kind": kind}, reply
    assert 'backend plug: %s: "the vendor said: error %s"' % (kind, kind) in reply.json()["error"]["message"]
    assert plugins.rows()["plug"]["state"] == kind


def test_limits_that_it_does_not_declare_are_refused_by_name(plugins):
    reply = plugins.new(limits={"disk_mb": 5})
    assert reply.status == 422 and reply.json()["error"]["field"] == "limits.disk_mb", reply
    assert "the plug-in scripted cannot enforce disk_mb" in reply.json()["error"]["message"]
    assert plugins.new("strict").status == 422  # the operator's own line
    assert not [line for line in plugins.log() if line.startswith("open ")]
    s = plugins.session(limits={"disk_mb": 5, "memory_mb": 70}, limits_mode="best_effort")
    assert s["backend"]["limits"]["memory_mb"] == 70 and s["backend"]["limits"]["disk_mb"] == "not_enforced"
    assert s["backend"]["limits"]["processes"] == "not_enforced"  # a text is no promise
    plugins.end(s)


@pytest.mark.parametrize("named,field", [("memory_mb", "limits.memory_mb"), ("disk_mb", "limits.disk_mb"), ("", "limits"), ("wishes", "limits")])
def test_a_limit_that_the_plugin_refuses_is_named(plugins, named, field):
    """A plug-in that names none, or one that there is not, does not make another limit the culprit."""
    plugins.be("limit " + named)
    reply = plugins.new(limits={"memory_mb": 70})
    error = reply.json()["error"]
    assert (reply.status, error["code"], error["field"]) == (422, "unsupported_limit", field), reply
    what = named if field != "limits" else "a limit, and does not say which"
    assert error["message"].startswith("backend plug cannot enforce %s; " % what) and error["message"].endswith(': "the vendor has less"')


def test_isolation_must_be_declared_by_both(plugins):
    s = plugins.session("boxed")
    assert s["backend"]["isolation"] == "declared"
    plugins.end(s)
    plugins.be("bare")
    reply = plugins.new("boxed")
    assert reply.status == 502 and "declares no isolation" in reply.json()["error"]["message"], reply
    plugins.end(plugins.session("plug"))  # the control: where nobody asks for it


def test_a_network_that_cannot_be_cut_is_refused(plugins):
    reply = plugins.new("airless")
    assert reply.status == 502 and "cannot keep a place without a network" in reply.json()["error"]["message"], reply


@pytest.mark.parametrize("mode,words", [("crash", 'the plug-in ended: "the last words"'), ("no stream", "no program runs there")])
def test_what_ends_before_the_far_shell(plugins, mode, words):
    plugins.be(mode)
    reply = plugins.new()
    assert reply.status == 502 and words in reply.json()["error"]["message"], reply


def test_a_program_that_is_not_there(plugins):
    reply = plugins.new("missing")
    assert reply.status == 502 and "/no/such/program cannot be executed" in reply.json()["error"]["message"], reply


LIES = ["flood of noise", "late", "no ready", "garbage", "opened without id", "twice", "data before stream", "long answer",
        "longer than said", "no json", "unknown error", "length of data"]


@pytest.mark.parametrize("lie", LIES)
def test_a_plugin_that_breaks_the_order_is_killed(plugins, lie):
    plugins.be("lie " + lie)
    reply = plugins.new()
    assert reply.status == 502 and reply.json()["error"]["detail"] == {"kind": "lost"}, reply
    wait_until(lambda: not plugins.programs(), "it is killed")


@pytest.mark.parametrize("lie", ["ends in a frame", "ended", "flood"])
def test_a_stream_that_comes_to_nothing(plugins, lie):
    plugins.be("lie " + lie)
    reply = plugins.new()
    assert reply.status == 502 and reply.json()["error"]["detail"]["kind"] in ("unreachable", "refused"), reply
    plugins.be("")


def test_silence_is_given_up(plugins):
    plugins.be("lie silence")
    reply = plugins.new("hasty")
    assert reply.status == 502 and "did not answer in time" in reply.json()["error"]["message"], reply


def test_a_place_that_opens_too_late_is_closed_when_it_is_there(plugins):
    plugins.be("slow")
    reply = plugins.new("hasty")
    assert reply.status == 502 and "in time" in reply.json()["error"]["message"], reply


def test_a_killed_plugin_loses_nothing(plugins):
    s = plugins.session("kept")
    plugins.exec(s, "kept=yes")
    for pid in plugins.programs():
        os.kill(pid, 9)
    wait_until(lambda: len([line for line in plugins.log() if line.startswith("open ")]) == 2, "it is started again")
    assert plugins.exec(s, "echo $kept")["stdout"] == "yes\n"
    assert json.loads(plugins.log()[-1][5:])["again"] is True
    plugins.end(s)


def test_a_place_is_not_closed_while_a_session_of_it_is_cut(plugins):
    first = plugins.session("kept")
    others = plugins.programs()
    second = plugins.session("kept")
    plugins.exec(second, "kept=yes")
    plugins.be("error unreachable")
    for pid in set(plugins.programs()) - set(others):
        os.kill(pid, 9)
    wait_until(lambda: plugins.server("GET", "/v1/sessions/" + second["id"]).json()["backend"]["state"] == "degraded", "it is cut")
    wait_until(lambda: len([line for line in plugins.log() if line.startswith("open ")]) >= 6, "it waits longer after each attempt")
    time.sleep(0.3)
    plugins.end(first)
    wait_until(lambda: not set(plugins.programs()) & set(others), "the plug-in of the first has ended")
    assert not [line for line in plugins.log() if line.startswith("close ")]
    plugins.be("")
    assert plugins.exec(second, "echo $kept")["stdout"] == "yes\n"
    plugins.end(second)
    wait_until(lambda: [line for line in plugins.log() if line.startswith("close ")], "now it is closed")


def test_a_place_that_is_gone_is_never_made_anew(plugins):
    s = plugins.session("plug")
    for path in plugins.dir.iterdir():
        if path.name.startswith("hermes-plug-"):
            path.rename(str(path) + ".away")
    for pid in plugins.programs():
        os.kill(pid, 9)
    wait_until(lambda: plugins.server("GET", "/v1/sessions/" + s["id"]).json()["state"] == "dead", "the session is lost")
    assert plugins.server("GET", "/v1/sessions/" + s["id"]).json()["reason"] == "lost"
    assert len([line for line in plugins.log() if line.startswith("open ")]) == 2
    plugins.end(s)


def test_the_end_of_hermes_places_closes_the_place(plugins):
    s = plugins.session("plug")
    os.kill(plugins.server.child("hermes-places"), 9)
    wait_until(lambda: any(line.startswith("close ") for line in plugins.log()), "the place is closed")
    wait_until(lambda: plugins.server("GET", "/v1/sessions/" + s["id"]).json()["state"] == "dead", "the session is lost")
    wait_until(lambda: plugins.new().status == 201, "hermes-places is back")
