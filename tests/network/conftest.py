# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the network tests: a world (netlib.py), a server of Hermes in its `host`, and the
oracle: after every test no connection and no packet has reached a closed address or the host's own listeners."""
import os

import pytest

from apilib import MONITOR
from egresslib import Egress, Kits
from netlib import LESS, Boxes, World
from runlib import BUILD
from serving import assert_idle, programs, serve, serve_as, serve_many  # noqa: F401


FULL = os.environ.get("HERMES_FULL") == "1"
DEPLOYMENTS = ["root", "root without network capabilities", "user"]
USER = 20016  # which nobody else has

# Boxes kept ready look like boxes that are left.
QUIET = {"HERMES_SESSION_PARKED": "0"}


@pytest.fixture(scope="session")
def one_world():
    if os.geteuid() != 0:
        pytest.skip("needs root: the tests make network namespaces")
    world = World()
    yield world
    world.end()


@pytest.fixture
def world(one_world):
    """The control of a test marks its own visits as seen."""
    one_world.forget()
    yield one_world
    assert one_world.intruders() == []


def pytest_generate_tests(metafunc):
    """Modules that say EVERYWHERE run in every deployment, the others where it matters least."""
    if "shared" in metafunc.fixturenames:
        everywhere = FULL or getattr(metafunc.module, "EVERYWHERE", False)
        metafunc.parametrize("shared", DEPLOYMENTS if everywhere else DEPLOYMENTS[:1], indirect=True,
                             scope="session")


@pytest.fixture(scope="session")
def shared(one_world, request):
    """One server for many tests, in a deployment."""
    options = {"tcp": False, "args": ["--queue-wait-s", "120"], "env": QUIET}
    if request.param == "user":
        with serve_as(USER, enter=one_world.host.enter(), **options) as server:
            yield server
    else:
        less = LESS if request.param == "root without network capabilities" else []
        yield from serve(command=[*one_world.host.enter(), *less, MONITOR], **options)


@pytest.fixture
def server(shared):
    yield shared
    for session in shared("GET", "/v1/sessions").json()["sessions"]:
        shared("DELETE", "/v1/sessions/" + session["id"])
    assert_idle(shared)


@pytest.fixture
def box(server, world):
    return Boxes(server, world)


@pytest.fixture(scope="module")
def kits():
    kits = Kits(BUILD)
    yield kits
    kits.end()


@pytest.fixture
def egress(world, kits):
    egress = Egress(BUILD, world, kits)
    yield egress
    egress.end()


@pytest.fixture
def make_boxes(world):
    """Makes boxes of a server with settings of its own."""
    makers = serve_many()
    make = next(makers)

    def make_one(**settings):
        env = {"HERMES_" + name.upper(): str(value) for name, value in settings.items()}
        return Boxes(make(command=[*world.host.enter(), MONITOR], tcp=False, env=env), world)
    yield make_one
    for _ in makers:
        pass
