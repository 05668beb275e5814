# SPDX-License-Identifier: Apache-2.0
"""A world (netlib.py) with a package index in it (indexlib.py), for fixtures."""
import os
import subprocess

import pytest

from apilib import ROOT
from netlib import World
from networld import OK4


def index_world():
    if os.geteuid() != 0:
        pytest.skip("needs root: images do, and the tests make network namespaces")
    world = World()
    process = subprocess.Popen(
        [*world.world.enter(), "/usr/bin/python3", str(ROOT / "tests/lib/indexlib.py"), OK4, "8085", "ok.example.com"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    world.started.append(process)
    assert process.stdout.readline() == "up\n"
    yield world
    world.end()
