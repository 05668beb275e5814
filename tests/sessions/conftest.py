# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of sessions: one server for all that do not harm it, and a maker of others.
After every test no session and no process of a box may be left."""
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "api"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from apilib import BUILD, HERMES, MONITOR, Server, boxes_below, make_dir, wait_until  # noqa: E402

from sessionlib import Session  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def programs():
    if not MONITOR.exists():
        pytest.skip("hermes-monitor is not built in %s" % BUILD)
    if subprocess.run([str(HERMES), "doctor"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this host cannot make boxes: hermes doctor")


# Boxes kept ready look like boxes that are left.
QUIET = {"HERMES_SESSION_PARKED": "0"}


def boxes(server):
    spawner = server.child("hermes-spawn")
    return boxes_below(spawner) if spawner else []


@pytest.fixture(scope="session")
def shared_sessions():
    path = make_dir()
    server = Server(path, env=QUIET)
    yield server
    status = server.stop()
    shutil.rmtree(path, ignore_errors=True)
    assert status == 0


@pytest.fixture
def server(shared_sessions):
    yield shared_sessions
    assert shared_sessions.process.poll() is None, shared_sessions.logs()[-3000:]
    for session in shared_sessions("GET", "/v1/sessions").json()["sessions"]:
        shared_sessions("DELETE", "/v1/sessions/" + session["id"])
    assert wait_until(lambda: not boxes(shared_sessions), 5), "boxes are left"
    assert shared_sessions.metric("hermes_sessions") == 0
    assert shared_sessions.metric("hermes_memory_promised_bytes") == 0


@pytest.fixture
def session(server):
    """Makes sessions; the fixture above ends them."""
    def make(language="python", **fields):
        return Session(server, language, **fields)
    return make


@pytest.fixture
def make_server():
    made = []

    def make(**kwargs):
        path = make_dir()
        made.append((path, None))
        kwargs["env"] = dict(QUIET, **kwargs.get("env", {}))
        server = Server(path, **kwargs)
        made[-1] = (path, server)
        return server
    yield make
    for path, server in made:
        if server and server.process.poll() is None:
            server.stop()
        shutil.rmtree(path, ignore_errors=True)
