#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run-pytest.py BUILD_DIR REPORT_DIR [PYTEST_ARGUMENT...]: runs all tests of tests/**/test_*.py.

Most tests wait more than they compute, so two processes share them; each line of output begins with the
name of its process. Tests that measure the machine, need all of its cores or check the whole machine for
leftovers run afterwards, alone. Each process writes REPORT_DIR/pytest-NAME.xml. The names of failed tests
go to REPORT_DIR/failed, one per line. Signals are forwarded, and everything that the tests started has
ended when this program ends."""
import os
import pathlib
import signal
import subprocess
import sys
import threading

# Two lists of about the same duration; tests in no list are in "rest".
SIDE_BY_SIDE = {"sessions": ["tests/sessions", "tests/judge", "tests/languages", "tests/spawner",
                             "tests/cli", "tests/files", "tests/api/test_compat_runner.py"],
                "rest": []}
ALONE = ["tests/run", "tests/attacks", "tests/api/test_killed.py", "tests/api/test_load.py",
         "tests/api/test_scarce.py", "tests/api/test_memory.py"]
NOTHING_COLLECTED = 5

started = []


def start(name, what):
    """One pytest, in a group of its own: a terminal's Ctrl-C must reach it once, from here."""
    command = [sys.executable, "-m", "pytest", *what, "-q", "-ra", "-o", "junit_family=xunit2",
               "-o", "cache_dir=%s" % (build / ("pytest-cache-" + name)),
               "--junitxml=%s" % (reports / ("pytest-%s.xml" % name)), *more]
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
        process.reader.join(10)  # what a test left may have the pipe for ever
        if status not in (0, NOTHING_COLLECTED):
            with open(reports / "failed", "a") as f:
                f.write("pytest-%s\n" % process.name)


def stop(number, _):
    """pytest ends what its tests have started, then itself; a second signal is for the impatient."""
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in started:
        process.wait()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


build, reports = map(pathlib.Path, sys.argv[1:3])
more = sys.argv[3:]
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
listed = ALONE + sum(SIDE_BY_SIDE.values(), [])
parts = {name: what or ["tests"] + ["--ignore=" + path for path in listed]
         for name, what in SIDE_BY_SIDE.items()}
if os.cpu_count() > 1:
    finish([start(name, what) for name, what in parts.items()])
else:
    for name, what in parts.items():
        finish([start(name, what)])
finish([start("alone", ALONE)])
