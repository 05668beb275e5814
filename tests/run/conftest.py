# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of `hermes run`; see runlib.py."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from runlib import Groups, Hermes, Oracle


@pytest.fixture(scope="session")
def groups():
    if os.geteuid() != 0:
        pytest.skip("needs root: the tests make control groups and namespaces")
    groups = Groups()
    yield groups
    groups.remove()


@pytest.fixture(scope="session")
def session_dir():
    path = pathlib.Path(tempfile.mkdtemp(prefix="run-tests-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tmp_path(session_dir):
    """Replaces pytest's, which keeps the last three sessions under /tmp."""
    path = pathlib.Path(tempfile.mkdtemp(dir=session_dir))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def state_dir(session_dir):
    path = session_dir / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def hermes(groups, state_dir, tmp_path):
    hermes = Hermes(groups, state_dir, tmp_path)
    yield hermes
    hermes.end_all()


@pytest.fixture(scope="session")
def cc(session_dir):
    """Compiles a C source, statically, and returns the program's path."""
    made = {}

    def compile_one(source, *flags):
        key = (source,) + flags
        if key not in made:
            to = session_dir / ("program-%d" % len(made))
            if os.path.exists(str(source)):
                path = str(source)
            else:
                path = str(to) + ".c"
                pathlib.Path(path).write_text(source)
            subprocess.run(["gcc", "-O1", "-Wall", "-o", str(to), path, "-static", *flags],
                           check=True)
            made[key] = to
        return made[key]
    return compile_one


@pytest.fixture(autouse=True)
def oracle(request, groups, state_dir):
    oracle = Oracle(groups, state_dir)
    yield oracle
    left = oracle.settle()
    if left:
        groups.remove()
        groups.__init__()
    assert not left, "left behind: " + "; ".join(left[:20])
