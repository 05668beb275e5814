# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of judging: one server that signs, `hermes` with a state directory of its
own, and a look at what is left after every test."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "api"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from apilib import BUILD, HERMES, MONITOR, ROOT, Server, boxes_below, make_dir, wait_until  # noqa: E402

from judge_table import KEY  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def programs():
    if not MONITOR.exists():
        pytest.skip("hermes-monitor is not built in %s" % BUILD)
    if subprocess.run([str(HERMES), "doctor"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this host cannot make boxes: hermes doctor")


@pytest.fixture(scope="session")
def judge_server():
    path = make_dir()
    server = Server(path, args=["--queue-wait-s", "300"], env={"HERMES_SIGNING_KEY": KEY})
    yield server
    status = server.stop()
    shutil.rmtree(path, ignore_errors=True)
    assert status == 0


def boxes(server):
    spawner = server.child("hermes-spawn")
    return boxes_below(spawner) if spawner else []


@pytest.fixture
def server(judge_server):
    yield judge_server
    assert judge_server.process.poll() is None, judge_server.logs()[-3000:]
    assert wait_until(lambda: not boxes(judge_server), 5), "boxes are left"


@pytest.fixture
def judge(server):
    """Posts a judgement and returns the answer."""
    def post(language, code, tests, **fields):
        reply = server("POST", "/v1/judge", dict(language=language, code=code, tests=tests, **fields))
        assert reply.status == 200, reply
        return reply.json()
    return post


@pytest.fixture
def work():
    path = make_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def state_dir():
    path = make_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def hermes(state_dir):
    """Runs the command line to its end."""
    def run(*args, stdin=b"", env=None, timeout=600, **kwargs):
        known = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                 "HERMES_STATE_DIR": str(state_dir), "HERMES_RUNTIMES": str(ROOT / "runtimes")}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                known[name] = os.environ[name]
        known.update(env or {})
        return subprocess.run([str(HERMES)] + [str(a) for a in args], input=stdin, env=known,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **kwargs)
    return run


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
