# SPDX-License-Identifier: Apache-2.0
"""Helpers of the fixtures of tests with servers (tests/api, judge, sessions)."""
import contextlib
import os
import shutil
import subprocess

import pytest

from apilib import BUILD, HERMES, MONITOR, Server, borrow_dir, boxes_below, make_dir, return_dir, wait_until
from groups import Groups


@pytest.fixture(scope="session", autouse=True)
def programs():
    if not MONITOR.exists():
        pytest.skip("hermes-monitor is not built in %s" % BUILD)
    if subprocess.run([str(HERMES), "doctor"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this host cannot make boxes: hermes doctor")


def serve(**kwargs):
    """For a fixture: one server, which has to stop well."""
    path = borrow_dir()
    server = Server(path, **kwargs)
    yield server
    status = server.stop()
    return_dir(path)
    assert status == 0


def serve_many(env=None):
    """For a fixture: a maker of servers."""
    made = []

    def make(**kwargs):
        path = borrow_dir()
        made.append((path, None))
        if env:
            kwargs["env"] = dict(env, **kwargs.get("env", {}))
        server = Server(path, **kwargs)
        made[-1] = (path, server)
        return server
    yield make
    failures = []
    for path, server in made:  # all of them, also when one does not stop
        try:
            if server and server.process.poll() is None:
                server.stop()
            return_dir(path)
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


@contextlib.contextmanager
def serve_as(user, enter=(), **kwargs):
    """A server of that uid, which no other process has, with control groups of its own. It has to stop well. The words
    `enter` come before its command, as root."""
    work, server = make_dir(), None
    groups = Groups(user)
    os.chown(work, user, user)
    become = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
    try:
        server = Server(work, before=groups.enter, command=[*enter, *become, HERMES, "serve"], **kwargs)
        yield server
    finally:
        status = server.stop() if server else 0
        left = groups.remove()
        shutil.rmtree(work, ignore_errors=True)
    assert status == 0 and not left


def boxes(server):
    """Processes of boxes below the spawner."""
    spawner = server.child("hermes-spawn")
    return boxes_below(spawner) if spawner else []


def assert_idle(server):
    """After a test: the server lives, and no box is left."""
    assert server.process.poll() is None, server.logs()[-3000:]
    assert wait_until(lambda: not boxes(server), 5), "boxes are left"
