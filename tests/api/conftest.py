# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the API tests: one server for all that do not harm it, and a maker of others. After
every test no process of a box and no control group of ours may be left."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from apilib import (BUILD, HERMES, MONITOR, Server, boxes_below, make_dir,  # noqa: E402
                    wait_until)
from leaks import Groups, gone  # noqa: E402


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


@pytest.fixture
def contained():
    """Makes servers in control groups of their own, in which nothing may be left at the end."""
    groups = Groups("-load")
    known = groups.pids()
    made = []

    def make(pre=None, prepare=None, **kwargs):
        path = make_dir()
        if prepare:
            kwargs["env"] = prepare(path)

        def before():
            groups.join()
            if pre:
                pre()
        made.append((path, None))
        server = Server(path, before=before, **kwargs)
        made[-1] = (path, server)
        return server
    make.groups, make.known = groups, known
    yield make
    for _, server in made:
        if server and server.process.poll() is None:
            server.stop()
    left = gone(groups, known)
    if not groups.shared:
        groups.remove()
    for path, _ in made:
        if os.path.ismount(path / "state"):
            subprocess.run(["umount", path / "state"], check=True)
        shutil.rmtree(path, ignore_errors=True)
    assert not left, left
