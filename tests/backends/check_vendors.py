# SPDX-License-Identifier: Apache-2.0
"""The adapters for Modal and Daytona: the vendors' real packages against local stand-ins (`make test-backends`)."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

import apilib
from apilib import ROOT
from farlib import processes_with, wait_until
from placelib import need

PYTHON = pathlib.Path(os.environ.get("HERMES_BACKENDS_VENV", ROOT / "build-tools/backends")) / "bin/python"
# reconnect_s: longer than tests wait, so that nothing ends because it was left alone.
SECTION = """
[backend {name}]
kind = plugin
keys = *
command = {python} {dir}/{vendor}.py
env_file = {dir}/{vendor}.env
isolated = yes
reconnect_s = 600
{lines}
"""
SECTIONS = [("modal", "modal", "cwd = /"), ("daytona", "daytona", "cwd = /"),
            ("modal-brief", "modal", "container_persistent = no\nnetwork = none"),
            ("daytona-brief", "daytona", "container_persistent = no\ncontainer_disk = 2048"),
            ("daytona-large", "daytona", "container_disk = 20480"), ("modal-disk", "modal", "container_disk = 100"),
            ("daytona-wrong", "daytona-wrong", "")]


class Vendors:
    def __init__(self):
        need(None if PYTHON.exists() else "the vendors' packages are not installed: tools/backends/install.sh build-tools/backends")
        self.work, self.dir = apilib.borrow_dir(), pathlib.Path(tempfile.mkdtemp(prefix="hermes-vendors-"))
        self.dir.chmod(0o777)
        self.standins, env = [], {}
        for vendor in ("modal", "daytona"):
            (self.dir / vendor).mkdir()
            (self.dir / vendor).chmod(0o777)
            self.standins.append(subprocess.Popen([str(PYTHON), str(ROOT / ("tests/backends/standin_%s.py" % vendor)), str(self.dir / vendor)]))
        for vendor in ("modal", "daytona"):
            port = self.dir / vendor / "port"
            wait_until(port.exists, "the stand-in listens")
            env[vendor] = port.read_text()
        for name in ("hermes_plugin", "modal", "daytona"):
            shutil.copy(ROOT / ("clients/adapters/%s.py" % name), self.dir)
        shutil.copy(ROOT / "clients/adapters/daytona.py", self.dir / "daytona-wrong.py")
        (self.dir / "modal.env").write_text("MODAL_SERVER_URL=http://127.0.0.1:%s\nMODAL_TOKEN_ID=ak-x\nMODAL_TOKEN_SECRET=as-s3cret\n"
                                            "HERMES_MODAL_SNAPSHOTS=%s/modal_snapshots.json\n" % (env["modal"], self.dir))
        daytona = "DAYTONA_API_URL=http://127.0.0.1:%s/api\nDAYTONA_API_KEY=" % env["daytona"]
        (self.dir / "daytona.env").write_text(daytona + "right\n")
        (self.dir / "daytona-wrong.env").write_text(daytona + "wrong\n")
        settings = self.work / "backends.conf"
        settings.write_text("".join(SECTION.format(name=name, vendor=vendor, lines=lines, dir=self.dir, python=PYTHON) for name, vendor, lines in SECTIONS))
        self.server = apilib.Server(self.work, args=["--backends", str(settings)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))

    def calls(self, vendor):
        try:
            return (self.dir / vendor / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []

    def new(self, backend, **fields):
        return self.server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **fields})

    def exec(self, session, code, **fields):
        reply = self.server("POST", "/v1/sessions/%s/exec" % session["id"], {"code": code, **fields})
        assert reply.status == 200, reply
        return reply.json()

    def end(self, session, vendor, word):
        before = len([line for line in self.calls(vendor) if line.startswith(word)])
        assert self.server("DELETE", "/v1/sessions/" + session["id"]).status == 204
        wait_until(lambda: len([line for line in self.calls(vendor) if line.startswith(word)]) > before, word)
        wait_until(lambda: not processes_with("%s/%s.py" % (self.dir, vendor)), "the adapter has ended")

    def close(self):
        self.server.stop()
        for process in self.standins:
            process.terminate()
            process.wait()
        apilib.return_dir(self.work)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture(scope="module")
def vendors():
    made = Vendors()
    yield made
    made.close()


def opened(vendors, backend, **fields):
    reply = vendors.new(backend, **fields)
    assert reply.status == 201, reply
    return reply.json()


@pytest.mark.parametrize("vendor,brief", [("modal", "terminate"), ("daytona", "delete")])
def test_the_adapter_uses_what_the_vendor_declares(vendors, vendor, brief):
    """What a session is has test_conformance.py."""
    s = opened(vendors, vendor + "-brief")
    assert s["backend"]["limits"]["memory_mb"] == 5120 and s["backend"]["limits"]["processes"] == "not_enforced"
    assert not processes_with("as-s3cret")
    vendors.end(s, vendor, brief)
    assert not [line for line in vendors.calls(vendor) if line.startswith("UN")], vendors.calls(vendor)


def test_limits_and_network_reach_the_vendor(vendors):
    vendors.end(opened(vendors, "modal-brief", limits={"memory_mb": 600}), "modal", "terminate")
    created = [line for line in vendors.calls("modal") if line.startswith("create ")][-1].split()
    assert created[3:] == ["86400", "1000", "600", "blocked"]
    vendors.end(opened(vendors, "daytona-brief"), "daytona", "delete")
    created = [line for line in vendors.calls("daytona") if line.startswith("create ")][-1].split()
    assert created[2:6] == ["1", "5", "2", "False"] and created[6] != "0"


def test_limits_that_a_vendor_cannot_enforce_are_refused(vendors):
    for backend, words in (("modal-disk", "the plug-in modal cannot enforce disk_mb"), ("daytona-large", "disks of at most 10 GiB")):
        reply = vendors.new(backend)
        assert reply.status == 422 and reply.json()["error"]["field"] == "limits.disk_mb" and words in reply.json()["error"]["message"], reply


def test_daytona_rounds_no_limit_that_was_asked_for(vendors):
    """The control is a size that Daytona has."""
    for limit, value, words in ("memory_mb", 600, "whole GiB of memory"), ("cpus", 0.5, "whole CPUs"):
        reply = vendors.new("daytona-brief", limits={limit: value})
        assert reply.status == 422 and reply.json()["error"]["field"] == "limits." + limit and words in reply.json()["error"]["message"], reply
    vendors.end(opened(vendors, "daytona-brief", limits={"memory_mb": 2048, "cpus": 1}), "daytona", "delete")


def test_a_kept_sandbox_of_modal_is_a_snapshot_between_sessions(vendors):
    s = opened(vendors, "modal")
    vendors.exec(s, "echo precious > $HOME/work; x=1")
    vendors.end(s, "modal", "terminate")
    records = json.loads((vendors.dir / "modal_snapshots.json").read_text())
    snapshot = next(value for key, value in records.items() if key.startswith("direct:hermes-modal-"))
    assert snapshot.startswith("im-snap") and (vendors.dir / "modal_snapshots.json").stat().st_mode & 0o777 == 0o600
    s = opened(vendors, "modal")
    assert vendors.exec(s, "cat $HOME/work; echo [$x]")["stdout"] == "precious\n[]\n"
    vendors.end(s, "modal", "terminate")
    records = json.loads((vendors.dir / "modal_snapshots.json").read_text())
    latest = next(value for key, value in records.items() if key.startswith("direct:hermes-modal-"))
    shutil.rmtree(vendors.dir / "modal/images" / latest)
    reply = vendors.new("modal")
    assert reply.status == 502 and reply.json()["error"]["detail"]["kind"] == "lost", reply
    assert latest in reply.json()["error"]["message"] and latest in (vendors.dir / "modal_snapshots.json").read_text()
    (vendors.dir / "modal_snapshots.json").unlink()  # what the message advises
    vendors.end(opened(vendors, "modal"), "modal", "terminate")


def test_a_kept_workspace_of_daytona_is_stopped_and_resumed(vendors):
    s = opened(vendors, "daytona")
    vendors.exec(s, "echo precious > $HOME/work")
    vendors.end(s, "daytona", "stop")
    created = len([line for line in vendors.calls("daytona") if line.startswith("create ")])
    s = opened(vendors, "daytona")
    assert vendors.exec(s, "cat $HOME/work")["stdout"] == "precious\n"
    vendors.end(s, "daytona", "stop")
    calls = vendors.calls("daytona")
    assert len([line for line in calls if line.startswith("create ")]) == created and calls[-2].startswith("start hermes-daytona-")
    created = next(line for line in calls if re.match("create hermes-daytona-[0-9a-f]{16} ", line)).split()
    assert created[4] == "10" and created[6] == "0"  # 10 GiB; never stopped by the vendor


@pytest.mark.parametrize("vendor", ["modal", "daytona"])
def test_a_killed_adapter_loses_nothing(vendors, vendor):
    s = opened(vendors, vendor)
    vendors.exec(s, "kept=yes")
    for pid in processes_with("%s/%s.py" % (vendors.dir, vendor)):
        os.kill(pid, 9)
    assert vendors.exec(s, "echo $kept")["stdout"] == "yes\n"
    vendors.end(s, vendor, "terminate" if vendor == "modal" else "stop")


def test_a_wrong_key_is_auth_and_names_its_source(vendors):
    reply = vendors.new("daytona-wrong")
    assert reply.status == 502 and reply.json()["error"]["detail"]["kind"] == "auth", reply
    assert "DAYTONA_API_KEY" in reply.json()["error"]["message"]
    (vendors.dir / "modal/refuse").touch()
    try:
        reply = vendors.new("modal-brief")
        assert reply.status == 502 and reply.json()["error"]["detail"]["kind"] == "auth", reply
        assert "MODAL_TOKEN_ID" in reply.json()["error"]["message"]
    finally:
        (vendors.dir / "modal/refuse").unlink()
