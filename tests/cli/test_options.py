# SPDX-License-Identifier: Apache-2.0
"""Wrong values of options: one line that names the option, and the same words from every command."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERMES = ROOT / os.environ.get("HERMES_BUILD_DIR", "build") / "hermes"


def said(*args):
    done = subprocess.run([str(HERMES), *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
                          env={"PATH": "/usr/bin:/bin", **{n: os.environ[n] for n in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if n in os.environ}})
    assert done.returncode == 2 and done.stdout == "", done
    return done.stderr


@pytest.mark.parametrize("command, option, most", [("judge", "parallel", 64), ("selftest", "jobs", 64), ("bench", "rounds", 10000)])
def test_numbers(command, option, most):
    for value in ("0", "-1", "x", "", "1.5", str(most + 1), "4294967297", "18446744073709551617"):
        assert said(command, "--%s=%s" % (option, value)) == \
            "hermes %s: --%s %s: not a number from 1 to %d\n" % (command, option, value, most)


@pytest.mark.parametrize("command", ["run", "judge", "selftest"])
def test_levels(command):
    for value in ("none", "", "FULL", "fullest"):
        assert said(command, "--min-level", value) == "hermes %s: --min-level %s: one of full, strong, process\n" % (command, value)


def test_nothing_is_sent_to_the_terminal():
    assert said("run", "--time", "\x1b[2J\n2s", "x.py") == \
        "hermes run: --time ?[2J 2s: not a duration above zero such as 2s or 500ms\n"
