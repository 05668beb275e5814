# SPDX-License-Identifier: Apache-2.0
"""The programs of these tests are kept in a state directory of their own."""
import os
import shutil
import tempfile

import pytest

from langlib import HERMES


@pytest.fixture(scope="session", autouse=True)
def state():
    if not HERMES.exists():
        pytest.skip("%s is not built" % HERMES)
    before = os.environ.get("HERMES_STATE_DIR")
    path = tempfile.mkdtemp(prefix="hermes-lang-state-", dir="/var/tmp")
    os.environ["HERMES_STATE_DIR"] = path
    yield path
    if before is None:
        del os.environ["HERMES_STATE_DIR"]
    else:
        os.environ["HERMES_STATE_DIR"] = before
    shutil.rmtree(path)
