# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of approvals: one server that asks, and a maker of others."""
import pytest

from apilib import borrow_dir, return_dir

from approvallib import make_approving


@pytest.fixture
def make_asking():
    made = []

    def make(path=None, **env):
        path = path or borrow_dir()
        server = make_approving(path, **env)
        made.append((path, server))
        return server
    yield make
    for path, server in made:
        if server.process.poll() is None:
            assert server.stop() == 0
    for path in {path for path, _ in made}:
        return_dir(path)


@pytest.fixture(scope="module")
def asking():
    path = borrow_dir()
    server = make_approving(path)
    yield server
    assert server.stop() == 0
    return_dir(path)
