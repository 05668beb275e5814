#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run-pytest.py BUILD_DIR REPORT_DIR [PYTEST_ARGUMENT...]: runs all tests of tests/**/test_*.py.

Most tests wait more than they compute, so four processes share them; each line of output begins with the
name of its process. Tests that measure the machine, need all of its cores or check the whole machine for
leftovers run afterwards, alone. Each process writes REPORT_DIR/pytest-NAME.xml. The names of failed tests
go to REPORT_DIR/failed, one per line. Signals are forwarded, and everything that the tests started has
ended when this program ends.

With HERMES_REPEAT=N in the environment (CI has it), up to N failed tests run once more at the end, alone;
their reports are REPORT_DIR/repeat-NAME.xml. tools/test.sh names each test that passed only then."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

# Four lists of about the same duration; tests in no list are in "rest".
SIDE_BY_SIDE = {"sessions": ["tests/sessions", "tests/judge", "tests/cli", "tests/files", "tests/kernels", "tests/approval", "tests/mcp"],
                "places": ["tests/backends", "tests/spawner"],
                "boxes": ["tests/network", "tests/warm", "tests/images", "tests/languages"],
                "rest": []}
ALONE = ["tests/run", "tests/attacks", "tests/api/test_killed.py", "tests/api/test_load.py",
         "tests/api/test_scarce.py", "tests/api/test_memory.py"]
NOTHING_COLLECTED = 5

started = []
failed = []


def cache_dir(name):
    return build / ("pytest-cache-" + name)


def start(name, what, report="pytest"):
    """One pytest, in a group of its own: a terminal's Ctrl-C must reach it once, from here."""
    if report == "pytest":
        shutil.rmtree(cache_dir(name), ignore_errors=True)  # it has the failures of former runs
    command = [sys.executable, "-m", "pytest", *what, "-q", "-ra", "-o", "junit_family=xunit2",
               "-o", "cache_dir=%s" % cache_dir(name),
               "--junitxml=%s" % (reports / ("%s-%s.xml" % (report, name))), *more]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    started.append(process)
    process.name = name
    process.reader = threading.Thread(target=show, args=(process,), daemon=True)
    process.reader.start()
    return process


def show(process):
    for line in process.stdout:
        sys.stdout.buffer.write(b"%-8s| %s" % (process.name.encode(), line))
        sys.stdout.buffer.flush()


def finish(processes):
    for process in processes:
        status = process.wait()
        process.reader.join(10)  # a process that a test left behind may keep the pipe open
        if status not in (0, NOTHING_COLLECTED):
            failed.append(process.name)


def last_failed(name):
    try:
        return list(json.loads((cache_dir(name) / "v/cache/lastfailed").read_text()))
    except (OSError, ValueError):
        return []


def repeat():
    """A runner that ended without the names of failed tests did not fail because of a test: it stays failed."""
    names = {name: last_failed(name) for name in failed}
    if 0 < sum(map(len, names.values())) <= int(os.environ.get("HERMES_REPEAT", 0)):
        for name, tests in names.items():
            if tests:
                failed.remove(name)
                finish([start(name, tests, "repeat")])


class Stopped(BaseException):
    """A signal. It leaves the wait for a process first, whose lock a second wait would never get."""


def on_signal(number, _):
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def stop(number):
    """Interrupts pytest, which ends the processes of its tests and then itself. Then ends this script by the signal."""
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in started:
        process.wait()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def run():
    listed = ALONE + sum(SIDE_BY_SIDE.values(), [])
    parts = {name: what or ["tests"] + ["--ignore=" + path for path in listed]
             for name, what in SIDE_BY_SIDE.items()}
    if os.cpu_count() > 1:
        finish([start(name, what) for name, what in parts.items()])
    else:
        for name, what in parts.items():
            finish([start(name, what)])
    finish([start("alone", ALONE)])
    repeat()
    if failed:
        (reports / "failed").write_text("".join("pytest-%s\n" % name for name in failed))


build, reports = map(pathlib.Path, sys.argv[1:3])
more = sys.argv[3:]
signal.signal(signal.SIGINT, on_signal)
signal.signal(signal.SIGTERM, on_signal)
try:
    run()
except Stopped as signalled:
    stop(signalled.args[0])
