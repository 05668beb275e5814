# SPDX-License-Identifier: Apache-2.0
"""uv and pip install the same, each with its own layers: locks, hashes, errors, packages upon packages. With
HERMES_REGISTRY_HOSTS, and the settings beside it, also from that registry."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from apilib import HERMES
from indexlib import image_settings, lock_of
from test_image_build import build, refused, said
from test_packages import VERSION, installed, make, start  # noqa: F401

UV = pathlib.Path("/usr/local/lib/hermes/uv/uv")


@pytest.fixture(params=["uv", "pip"])
def server(request, make):
    if request.param == "uv" and not UV.exists():
        pytest.skip("uv is not installed: make runtimes")
    server = make(HERMES_UV=str(request.param == "uv").lower())
    server.installer = request.param
    return server


def test_an_installer_does_it_all(server):
    """One server for all facts: each has its own start otherwise."""
    first = build(server, name="a", packages={"pip": ["hermes-needs-probe"]})
    assert {p["name"]: p["version"] for p in first["packages"]} == {"hermes-needs-probe": "1.0", "hermes-probe": "2.0"}
    assert re.fullmatch(r"(hermes-(needs-)?probe==[0-9.]+ --hash=sha256:[0-9a-f]{64}\n){2}", first["lock"])
    code = "import hermes_needs_probe, pathlib\n" + VERSION + \
        "\nprint({p.read_text().strip() for p in pathlib.Path('/opt').rglob('INSTALLER')})"
    assert said(server, code, image="a") == "2.0\n{'%s'}\n" % server.installer
    # a lock repeats bit for bit, and its hashes are enforced
    assert server("DELETE", "/v1/images/a").status == 204
    second = build(server, name="b", lock=first["lock"])
    assert second["layers"] == first["layers"] and second["lock"] == first["lock"]
    status, error = refused(server, lock="hermes-probe==1.0 --hash=sha256:" + "0" * 64)
    assert status == 422 and "hash" in error["message"].lower(), error
    status, error = refused(server, lock="hermes-probe==1.0\n")
    assert status == 422 and "hash" in error["message"].lower(), error
    # the same errors
    for package, word in (("hermes-missing", "hermes-missing"), ("hermes-probe==9", "hermes-probe==9"),
                          ("hermes-far", "the host far.example.com is not among registry_hosts")):
        status, error = refused(server, packages={"pip": [package]})
        assert status == 422 and error["code"] == "build_failed" and word in error["message"], error
    # packages upon packages: one that is there stays if it can, and is replaced if it must be
    session = start(server)
    assert installed(server, session, "hermes-probe==1.0") == {"hermes-probe": "1.0"}
    assert installed(server, session, "hermes-probe") == {}
    assert installed(server, session, "hermes-five-0", "hermes-probe") == {"hermes-five-0": "1.0"}
    assert installed(server, session, "hermes-needs-probe") == {"hermes-probe": "2.0", "hermes-needs-probe": "1.0"}
    # a source package is built in the box, and harms nobody
    report = server("POST", "/v1/sessions/%s/packages" % session, {"manager": "pip", "packages": ["hermes-hostile"]}).json()
    assert report["installed"] == [{"name": "hermes_hostile", "version": "1.0"}]


def test_the_two_do_not_share_a_digest(make):
    """The same recipe under the other installer is another image; the same again is the same."""
    if not UV.exists():
        pytest.skip("uv is not installed: make runtimes")
    server = make(HERMES_UV="true")
    recipe = {"language": "python", "name": "x", "lock": lock_of("hermes-probe")}
    first = server("POST", "/v1/images", recipe)
    assert first.status == 201 and server("POST", "/v1/images", recipe).status == 200
    other = make(HERMES_UV="false")
    reply = other("POST", "/v1/images", recipe)
    assert reply.status == 201 and reply.json()["layers"] != first.json()["layers"]


def test_the_installer_is_seen_by_build_boxes_only(server):
    assert said(server, "import shutil; print(shutil.which('uv'))") == "None\n"
    seen = build(server, setup_script="command -v uv >/opt/where || echo none >/opt/where")["id"]
    assert said(server, "print(open('/opt/where').read())", image=seen) == \
        ("/usr/bin/uv\n\n" if UV.exists() else "none\n\n")


def test_the_real_registry(tmp_path):
    """Five wheels with both, if a registry is named: HERMES_REGISTRY_HOSTS and the settings beside it."""
    if "HERMES_REGISTRY_HOSTS" not in os.environ:
        pytest.skip("HERMES_REGISTRY_HOSTS is not set")
    locks = {}
    for uv in ["true", "false"] if UV.exists() else ["false"]:
        env = dict(os.environ, HERMES_STATE_DIR=str(tmp_path / uv), HERMES_UV=uv)
        (tmp_path / "requirements.txt").write_text("six==1.16.0\nidna==3.7\ncertifi==2024.7.4\npytz==2024.1\ntomli==2.0.1\n")
        done = subprocess.run([HERMES, "image", "build", "--name", "five", tmp_path / "requirements.txt"], env=env,
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        shown = json.loads(subprocess.run([HERMES, "image", "inspect", "five"], env=env, capture_output=True, text=True).stdout)
        locks[uv] = sorted(line.split(" ")[0] for line in shown["lock"].splitlines())
    assert all(lock == ["certifi==2024.7.4", "idna==3.7", "pytz==2024.1", "six==1.16.0", "tomli==2.0.1"]
               for lock in locks.values()), locks
