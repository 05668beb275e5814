# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of sessions: one server for all that do not harm it, and a maker of others.
After every test no session and no process of a box may be left."""

import pytest

from serving import assert_idle, programs, serve, serve_many  # noqa: F401

from sessionlib import Session


# Boxes kept ready look like boxes that are left.
QUIET = {"HERMES_SESSION_PARKED": "0"}


@pytest.fixture(scope="session")
def shared_sessions():
    yield from serve(env=QUIET)


@pytest.fixture
def server(shared_sessions):
    yield shared_sessions
    assert shared_sessions.process.poll() is None, shared_sessions.logs()[-3000:]
    for session in shared_sessions("GET", "/v1/sessions").json()["sessions"]:
        shared_sessions("DELETE", "/v1/sessions/" + session["id"])
    assert_idle(shared_sessions)
    assert shared_sessions.metric("hermes_sessions") == 0
    assert shared_sessions.metric("hermes_memory_promised_bytes") == 0


@pytest.fixture
def session(server):
    """Makes sessions; the fixture above ends them."""
    def make(language="python", **fields):
        return Session(server, language, **fields)
    return make


@pytest.fixture
def make_server():
    yield from serve_many(QUIET)
