# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of judging: one server that signs, `hermes` with a state directory of its
own, and a look at what is left after every test."""
import os
import shutil
import subprocess

import pytest

from apilib import HERMES, ROOT, make_dir
from serving import assert_idle, programs, serve, serve_many  # noqa: F401

from judge_table import KEY


@pytest.fixture(scope="session")
def judge_server():
    yield from serve(args=["--queue-wait-s", "300"], env={"HERMES_SIGNING_KEY": KEY})


@pytest.fixture
def server(judge_server):
    yield judge_server
    assert_idle(judge_server)


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
    yield from serve_many()
