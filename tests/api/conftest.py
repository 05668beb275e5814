# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the API tests: one server for all that do not harm it, and a maker of others. After
every test no process of a box and no control group of ours may be left."""
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from apilib import (BUILD, HERMES, MONITOR, Server, boxes_below, make_dir,  # noqa: E402
                    wait_until)


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


@pytest.fixture(scope="session", autouse=True)
def programs():
    if not MONITOR.exists():
        pytest.skip("hermes-monitor is not built in %s" % BUILD)
    if subprocess.run([str(HERMES), "doctor"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this host cannot make boxes: hermes doctor")


def boxes(server):
    """Processes of boxes below the spawner."""
    spawner = server.child("hermes-spawn")
    return boxes_below(spawner) if spawner else []


@pytest.fixture(scope="session")
def shared():
    path = make_dir()
    server = Server(path, args=["--queue-wait-s", "120"])
    yield server
    status = server.stop()
    shutil.rmtree(path, ignore_errors=True)
    assert status == 0


@pytest.fixture
def server(shared):
    yield shared
    assert shared.process.poll() is None, shared.logs()[-3000:]
    assert wait_until(lambda: not boxes(shared), 5), "boxes are left"


@pytest.fixture
def make_server():
    made = []

    def make(**kwargs):
        path = make_dir()
        made.append((path, None))
        server = Server(path, **kwargs)
        made[-1] = (path, server)
        return server
    yield make
    for path, server in made:
        if server and server.process.poll() is None:
            server.stop()
        shutil.rmtree(path, ignore_errors=True)
