# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of layers and images: a directory that is removed afterwards, and servers that reach a
package index."""
import os
import pathlib
import shutil
import tempfile

import pytest

from apilib import MONITOR
from indexlib import image_settings
from indexworld import index_world
from layerlib import PROGRAM, give
from serving import assert_idle, serve, serve_many


@pytest.fixture(autouse=True)
def needs_hermes_layer():
    if not PROGRAM.exists():
        pytest.skip("%s is not built" % PROGRAM)


@pytest.fixture
def area():
    """Not below /tmp, which some systems keep in memory."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="hermes-images-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def layer(area):
    """The directory of a layer, three levels below the area, which shows what appears beside it."""
    return give(area / "in" / "deep" / "layer")


@pytest.fixture
def as_root():
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount an overlay or to make devices")


# --- servers with a package index


@pytest.fixture(scope="session")
def world():
    yield from index_world()


@pytest.fixture(scope="session")
def shared(world):
    yield from serve(command=[*world.host.enter(), MONITOR], tcp=False, env=image_settings())


@pytest.fixture
def server(shared):
    """After a test no box is left, and the test's images go."""
    yield shared
    for session in shared("GET", "/v1/sessions").json()["sessions"]:
        shared("DELETE", "/v1/sessions/" + session["id"])
    for image in shared("GET", "/v1/images").json()["images"]:
        assert shared("DELETE", "/v1/images/" + (image["name"] or image["id"])).status == 204
    assert_idle(shared)
    images = shared.state / "server/images"
    assert [p for d in ("layers", "images", "incoming") for p in (images / d).iterdir()] == []


@pytest.fixture
def make_server(world):
    yield from serve_many(env=image_settings())
