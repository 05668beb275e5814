# SPDX-License-Identifier: Apache-2.0
"""docs/internals/kernels.md says what the three kernels do: numbers, files and names in it are the code's."""
import re

import pytest

from kernellib import FRAME_MAX, ROOT

PAGE = (ROOT / "docs/internals/kernels.md").read_text()
SOURCES = {path.name: path.read_text() for pattern in ("runtimes/python/kernel*.py", "runtimes/javascript/kernel*.js", "src/bash/*.[ch]")
           for path in ROOT.glob(pattern)}


def constant(name, file):
    found = re.search(r"\b%s\s*=\s*([0-9a-fx<() ]+)" % name, SOURCES[file])
    assert found, name
    return eval(found[1])


@pytest.mark.parametrize("name,file", [("FRAME_MAX", "kernel_channel.py"), ("FRAME_MAX", "kernel.js"), ("FRAME_MAX", "frame.h")])
def test_size_of_frames(name, file):
    assert constant(name, file) == FRAME_MAX == 16777216
    assert "16,777,216 (16 MiB)" in PAGE


@pytest.mark.parametrize("file", ["kernel_channel.py", "kernel.js"])
def test_depth(file):
    assert "nested at most %d deep" % constant("DEPTH_MAX", file) in PAGE


def test_exit_statuses():
    both = re.search(r"BROKEN_PROTOCOL, LOST_CHANNEL = (\d+), (\d+)", SOURCES["kernel.py"])
    statuses = {int(both[1]), constant("PROTOCOL_BROKEN", "kernel.js"), constant("EXIT_PROTOCOL", "kernel.c")}
    assert statuses == {70} and "ends with status 70" in PAGE
    assert {int(both[2]), constant("CHANNEL_LOST", "kernel.js")} == {71} and "exits with 71" in PAGE
    assert constant("EXIT_BROKEN", "kernel.c") == 72 and "exits with 72" in PAGE


def test_times_of_the_shell():
    kill, replace = constant("KILL_AFTER_MS", "kernel.c"), constant("REPLACE_AFTER_MS", "kernel.c")
    assert "after {:,} ms is killed".format(kill) in PAGE and "%d ms later is killed and replaced" % replace in PAGE
    assert "SIGKILL after %d ms" % constant("KILL_JOB_GRACE_MS", "kernel.c") in PAGE
    assert "more than %d MiB" % (constant("BASH_STATE_MAX", "bash.h") >> 20) in PAGE


def test_files():
    named = set(re.findall(r"`(kernel\w*\.(?:py|js))`", PAGE.partition("## What a tree needs")[2]))
    assert named == {name for name in SOURCES if re.fullmatch(r"kernel\w*\.(py|js)", name)}


def test_frames():
    """Each kind that is sent or understood by a kernel is in a table, and the other way round."""
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.M))
    sent = set(re.findall(r'send\(["\'](\w+)["\']', SOURCES["kernel.py"] + SOURCES["kernel_display.py"] + SOURCES["kernel_fork.py"]
                          + SOURCES["kernel_packages.py"] + SOURCES["kernel_tools.py"] + SOURCES["kernel.js"]))
    sent |= set(re.findall(r'send_frame\("(\w+)"', SOURCES["kernel.c"]))
    understood = set(re.findall(r'f->kind, "(\w+)"', SOURCES["kernel.c"])) | set(re.findall(r"case '(\w+)'", SOURCES["kernel.js"]))
    understood |= set(re.findall(r'frame\[0\] == "(\w+)"', SOURCES["kernel_packages.py"]))
    assert listed == sent | understood


def test_the_twelve():
    tests = (ROOT / "tests/kernels/test_kernel_bash.py").read_text()
    assert {int(n) for n in re.findall(r"def test_bug_(\d+)_", tests)} == set(range(1, 13))
    assert {int(n) for n in re.findall(r"^\| (\d+) ", PAGE.partition("### The twelve")[2], re.M)} == set(range(1, 13))
