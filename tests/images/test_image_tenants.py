# SPDX-License-Identifier: Apache-2.0
"""One key beside another, on the parts of images that all keys share: the roots of the spawner, the store, its lock, the
turn of builds, the memory of the server."""
import json
import threading

import pytest

from layerlib import member, tar
from ocilib import Layout

ANN, BOB = "key-of-ann-1234567890", "key-of-bob-1234567890"
IMAGE_ROOTS = 32  # SPAWN_MAX_IMAGES


@pytest.fixture
def keyed(make_server, tmp_path):
    """Makes a server with two keys."""
    keys = tmp_path / "keys"
    keys.write_text("[ann]\nkey = %s\n\n[bob]\nkey = %s\n" % (ANN, BOB))
    keys.chmod(0o600)
    return lambda **env: make_server(env=dict(env, HERMES_KEYS_FILE=str(keys)))


def bring(server, data, name, key=ANN):
    return server("POST", "/v1/images/import?name=" + name, data, headers={"Content-Type": "application/x-tar"}, key=key)


def told(number, *layers, **label):
    """An image with packages, unlike others, with what its configuration says, and more layers."""
    layout = Layout(tar(member("opt/venv/n%d" % number, data=b"x")), *layers)
    layout.config["config"] = {"Labels": {"hermes.image": json.dumps(label)}}
    return layout.tar()


def test_more_images_than_there_are_roots(keyed):
    """The root that was used least recently makes room, also while the spawner has much to do for others."""
    server = keyed()
    for n in range(IMAGE_ROOTS + 2):
        assert bring(server, told(n), "n%d" % n).status == 201
    is_over = threading.Event()

    def load():
        while not is_over.is_set():
            server.run("python", "print(1)", key=BOB)
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for n in list(range(IMAGE_ROOTS + 2)) * 3:  # each is gone when its turn comes
            reply = server.run("python", "print(%d)" % n, image="n%d" % n, key=ANN)
            assert reply.status == 200 and reply.json()["stdout"] == "%d\n" % n, reply.body
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
