# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of mounts and files: a directory that is removed afterwards."""
import os
import pathlib
import shutil
import tempfile

import pytest

from fileslib import HERMES


@pytest.fixture(autouse=True)
def needs_hermes():
    if not HERMES.exists():
        pytest.skip("%s is not built" % HERMES)


@pytest.fixture
def area():
    """Not below /tmp, which some systems keep in memory."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="hermes-files-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files away and look at their owners")
