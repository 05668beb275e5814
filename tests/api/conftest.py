# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the API tests: one server for all that do not harm it, and a maker of others. After
every test no process of a box and no control group of ours may be left."""
import os
import shutil
import subprocess

import pytest

from apilib import Server, borrow_dir, make_dir, return_dir
from leaks import Groups, gone
from serving import assert_idle, programs, serve, serve_many  # noqa: F401


FEW = {"javascript": "node", "java": "javac"}


@pytest.fixture(scope="session")
def shared():
    yield from serve(args=["--queue-wait-s", "120"])


@pytest.fixture
def server(shared):
    yield shared
    assert_idle(shared)


@pytest.fixture(autouse=True)
def has_language(request):
    """The test machine of tools/vm has no Node and no Java. Any other machine has them, or the test fails."""
    if os.environ.get("HERMES_IN_VM"):
        params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
        for value in params.values():
            if isinstance(value, str) and value in FEW and not shutil.which(FEW[value]):
                pytest.skip("%s is not installed" % value)


@pytest.fixture
def make_server():
    yield from serve_many()


@pytest.fixture
def contained():
    """Makes servers in control groups of their own, in which nothing may be left at the end."""
    groups = Groups("-load")
    known = groups.pids()
    made = []

    def make(pre=None, prepare=None, **kwargs):
        path = make_dir() if prepare else borrow_dir()
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
        return_dir(path)
    assert not left, left
