# SPDX-License-Identifier: Apache-2.0
"""Apptainer, by a recording stand-in: the command lines and the failures are real, the isolation is not tested here."""
import json
import os
import pathlib
import shutil
import tempfile

import pytest

import apilib
from apilib import ROOT
from farlib import wait_until
from placelib import allow_commands

SECTION = """
[backend {name}]
kind = apptainer
keys = *
image = /images/x.sif
command = {dir}/apptainer
{lines}
"""
SECTIONS = {"sif": "container_persistent = no\ncwd = {dir}", "kept": "container_persistent = yes\nscratch_dir = {dir}/scratch", "airless": "container_persistent = no\nnetwork = none",
            "strict": "container_persistent = no\ncontainer_memory = 100", "hasty": "container_persistent = no\nopen_s = 1"}


class Instances:
    def __init__(self):
        self.work, self.dir = apilib.borrow_dir(), pathlib.Path(tempfile.mkdtemp(prefix="hermes-sif-"))
        self.calls = self.dir / "calls"
        self.calls.mkdir()
        for path in (self.dir, self.calls):
            path.chmod(0o777)
        shutil.copy(ROOT / "tests/backends/standin_apptainer.py", self.dir / "apptainer")
        (self.dir / "apptainer").chmod(0o755)
        settings = self.work / "backends.conf"
        settings.write_text("".join(SECTION.format(name=name, dir=self.dir, lines=lines.format(dir=self.dir)) for name, lines in SECTIONS.items()) +
                            "[backend here]\nkind = local\nkeys = *\nsudo = no\n[backend gains]\nkind = local\nkeys = *\n")
        self.server = apilib.Server(self.work, args=["--backends", str(settings)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
        allow_commands(self.server, "here", "gains")

    def log(self):
        return [json.loads(line) for line in (self.calls / "log").read_text().splitlines()]

    def argvs(self, word):
        return [call["argv"] for call in self.log() if word in call["argv"][:2]]

    def new(self, backend, **fields):
        return self.server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **fields})

    def exec(self, session, code):
        reply = self.server("POST", "/v1/sessions/%s/exec" % session["id"], {"code": code})
        assert reply.status == 200, reply
        return reply.json()

    def end(self, session):
        assert self.server("DELETE", "/v1/sessions/" + session["id"]).status == 204

    def close(self):
        self.server.stop()
        apilib.return_dir(self.work)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture(scope="module")
def all_instances():
    made = Instances()
    yield made
    made.close()


@pytest.fixture
def instances(all_instances):
    (all_instances.calls / "mode").write_text("")
    (all_instances.calls / "log").unlink(missing_ok=True)
    yield all_instances
    wait_until(lambda: not [path for path in all_instances.calls.iterdir() if path.is_dir()], "no instance is left")


def test_recording_standin_a_session_in_an_instance(instances):
    reply = instances.new("sif", env={"TOKEN": "s3cret"}, limits={"memory_mb": 64})
    assert reply.status == 201, reply
    s = reply.json()
    assert s["backend"]["kind"] == "apptainer" and s["backend"]["isolation"] == "container"
    assert s["backend"]["limits"]["memory_mb"] == 64 and s["backend"]["limits"]["disk_mb"] == "not_enforced"
    found = instances.exec(s, "x=5; echo $TOKEN; (exit 7)")
    assert (found["stdout"], found["exit_code"]) == ("s3cret\n", 7)
    assert instances.exec(s, "echo $x")["stdout"] == "5\n"
    instances.end(s)
    wait_until(lambda: instances.argvs("stop"), "the instance is stopped")
    start, run = instances.argvs("start")[0], instances.argvs("exec")[0]
    assert start[:2] == ["instance", "start"] and start[-2] == "/images/x.sif" and start[-1].startswith("hermes-sif-")
    for flag in ("--containall", "--no-home", "--cleanenv", "--writable-tmpfs", "--memory", "--cpus", "--pids-limit"):
        assert flag in start
    assert start[start.index("--memory") + 1] == "64M" and run[:4] == ["exec", "--cleanenv", "--pwd", "/"]
    assert run[4] == "instance://" + start[-1] and instances.argvs("stop")[0][2] == start[-1]
    assert "s3cret" not in json.dumps(instances.log()) and "TOKEN" not in json.dumps([call["env"] for call in instances.log()])


def test_recording_standin_without_control_groups(instances):
    """Limits that nobody named are left out, and the answer says so; a named one is refused."""
    (instances.calls / "mode").write_text("no cgroups")
    reply = instances.new("sif")
    assert reply.status == 201 and reply.json()["backend"]["limits"]["memory_mb"] == "not_enforced", reply
    instances.end(reply.json())
    for backend, fields in (("sif", {"limits": {"memory_mb": 64}}), ("strict", {})):
        reply = instances.new(backend, **fields)
        assert reply.status == 422 and reply.json()["error"]["field"] == "limits.memory_mb", reply
        assert "systemd not running as init" in reply.json()["error"]["message"]


def test_recording_standin_a_kept_place_has_a_directory(instances):
    first, second = instances.new("kept"), instances.new("kept")
    assert first.status == second.status == 201, (first, second)
    starts = instances.argvs("start")
    overlay = pathlib.Path(starts[0][starts[0].index("--overlay") + 1])
    assert overlay.parent == instances.dir / "scratch" and overlay.name.startswith("hermes-kept-") and starts[0][-1] == starts[1][-1]
    instances.end(first.json())
    assert instances.exec(second.json(), "echo fine")["stdout"] == "fine\n"
    assert not instances.argvs("stop")
    instances.end(second.json())
    wait_until(lambda: len(instances.argvs("stop")) == 1, "the last one stops it")
    assert overlay.is_dir() and overlay.stat().st_mode & 0o777 == 0o700


def test_recording_standin_no_network(instances):
    reply = instances.new("airless")
    assert reply.status == 201 and reply.json()["network"] == "none", reply
    instances.end(reply.json())
    start = instances.argvs("start")[0]
    assert start[start.index("--net"):][:3] == ["--net", "--network", "none"]


@pytest.mark.parametrize("mode,kind,words", [("no image", "not_found", "could not open image /images/x.sif"),
                                             ("no shell", "refused", "executable file not found")])
def test_recording_standin_failures_have_their_kind(instances, mode, kind, words):
    (instances.calls / "mode").write_text(mode)
    reply = instances.new("sif")
    assert reply.status == 502 and reply.json()["error"]["detail"] == {"kind": kind}, reply
    assert words in reply.json()["error"]["message"] and "\x1b" not in reply.json()["error"]["message"]


def test_recording_standin_an_instance_that_starts_too_slowly_is_stopped(instances):
    (instances.calls / "mode").write_text("slow")
    error = instances.new("hasty").json()["error"]
    assert error["detail"] == {"kind": "unreachable"} and "in time" in error["message"]
    wait_until(lambda: instances.argvs("stop"), "it is stopped")


def test_namespaces_are_for_apptainer_only(instances):
    """Its rows may make namespaces; the processes of other rows gave these calls up. The control: a row of `local` that permits sudo has no filter."""
    probe = "/usr/bin/python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); l.setns(-1, 0); print(ctypes.get_errno())'"
    for backend, errno in (("here", 1), ("sif", 9), ("gains", 9)):  # EPERM: refused; EBADF: the kernel has looked at it
        reply = instances.new(backend)
        assert reply.status == 201, reply
        assert instances.exec(reply.json(), probe)["stdout"] == "%d\n" % errno
        instances.end(reply.json())
