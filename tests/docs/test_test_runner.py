# SPDX-License-Identifier: Apache-2.0
"""tools/run-pytest.py and tools/sum-reports.py on a small tree of tests of their own."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from apilib import wait_until

TOP = pathlib.Path(__file__).resolve().parents[2]

STEADY = "def test_steady(): pass\n"
BROKEN = "def test_broken(): assert False\n"
UNSTEADY = """
import pathlib
def test_unsteady():
    mark = pathlib.Path(__file__).with_suffix(".mark")
    there = mark.exists()
    mark.touch()
    assert there
"""


def make_tree(tmp_path, **files):
    """Each name of `files` is a part of run-pytest.py. Returns the directory for reports."""
    paths = {"sessions": "tests/sessions", "alone": "tests/run", "rest": "tests/other"}
    for folder in ("sessions", "judge", "cli", "files", "kernels", "approval", "mcp", "network", "warm", "images",
                   "languages", "backends", "spawner", "run", "attacks", "api", "other"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    for name in ("killed", "load", "scarce", "memory"):
        (tmp_path / ("tests/api/test_%s.py" % name)).write_text("def test_it(): pass\n")
    for part, text in files.items():
        (tmp_path / paths[part] / ("test_in_%s.py" % part)).write_text(text)
    (tmp_path / "reports").mkdir()
    return tmp_path / "reports"


def run(tmp_path, repeat, **files):
    """What the last lines of a run say, and its exit status."""
    reports = make_tree(tmp_path, **files)
    environment = {**os.environ, "HERMES_REPEAT": str(repeat), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, TOP / "tools/run-pytest.py", tmp_path / "build", reports, "--rootdir", tmp_path],
                   cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, check=False)
    failed = reports / "failed"
    runners = failed.read_text().split() if failed.exists() else []
    done = subprocess.run([sys.executable, TOP / "tools/sum-reports.py", reports, *runners],
                          stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines(), done.returncode


def test_a_test_that_passes_when_repeated_is_named(tmp_path):
    lines, status = run(tmp_path, 5, sessions=STEADY, rest=UNSTEADY)
    assert lines[-1] == "6 passed, 0 failed" and status == 0
    assert len(lines) == 2 and lines[0].startswith("UNSTEADY pytest-rest: ") and "test_unsteady" in lines[0]


SLOW = """
import os, pathlib, time
def test_slow():
    pathlib.Path("%s").write_text(str(os.getpid()))
    time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_tests(tmp_path, number):
    mark = tmp_path / "mark"
    reports = make_tree(tmp_path, sessions=SLOW % mark)
    runner = subprocess.Popen([sys.executable, TOP / "tools/run-pytest.py", tmp_path / "build", reports, "--rootdir", tmp_path],
                              cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert wait_until(lambda: mark.exists() and mark.read_text())
    runner.send_signal(number)
    try:
        assert runner.wait(60) == -number
        assert not pathlib.Path("/proc", mark.read_text()).exists()
    finally:
        runner.kill()


@pytest.mark.parametrize("repeat", [0, 1])
def test_without_leave_to_repeat_it_fails(tmp_path, repeat):
    lines, status = run(tmp_path, repeat, rest=UNSTEADY, alone=UNSTEADY)  # two: one more than may be repeated
    assert lines[-1] == "4 passed, 2 failed" and status == 1
    assert all(line.startswith("FAILED ") for line in lines[:-1])


def test_a_test_that_fails_twice_has_failed(tmp_path):
    lines, status = run(tmp_path, 5, sessions=BROKEN, alone=UNSTEADY)
    assert lines[-1] == "5 passed, 1 failed" and status == 1
    assert any(line.startswith("FAILED pytest-sessions: ") for line in lines)
    assert any(line.startswith("UNSTEADY pytest-alone: ") for line in lines)


def test_a_runner_that_fails_without_a_test_has_failed(tmp_path):
    lines, status = run(tmp_path, 5, rest="import nothing_of_that_name\n")
    assert lines[-1].endswith(" 1 failed") and status == 1
