# SPDX-License-Identifier: Apache-2.0
"""One key beside another, on the parts of images that all keys share: the roots of the spawner, the store, its lock, the
turn of builds, the memory of the server."""
import json
import threading

import pytest

from apilib import wait_until
from deblib import apt_root
from layerlib import member, tar
from ocilib import Layout
from serving import boxes

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


def test_what_is_built_upon_is_in_use_until_the_image_is_there(keyed):
    """Its layers are those of the new image, too."""
    server = keyed()
    root = apt_root("http://index.example/apt")
    for attempt in range(3):
        assert bring(server, root, "root").status == 201
        name = "upon%d" % attempt
        replies, statuses = [], set()

        def build():
            script = "python3 -c 'import os; open(\"/etc/data\", \"wb\").write(os.urandom(60000000))'"
            replies.append(server("POST", "/v1/images", {
                "language": "python", "base": "root", "name": name, "setup_script": script}, key=ANN))

        def remove():
            while thread.is_alive() and not statuses & {204, 404}:
                statuses.add(server("DELETE", "/v1/images/root", key=ANN).status)
        thread = threading.Thread(target=build)
        thread.start()
        assert wait_until(lambda: boxes(server), 60)
        removers = [threading.Thread(target=remove) for _ in range(8)]
        for one in removers:
            one.start()
        for one in [thread, *removers]:
            one.join()
        assert replies[0].status == 201, replies[0].body
        assert 409 in statuses  # control: they did try while it was built
        code = "import os; print(os.stat('/etc/data').st_size)"
        assert server.run("python", code, image=name, key=ANN).json()["stdout"] == "60000000\n"
        assert server("DELETE", "/v1/images/" + name, key=ANN).status == 204
        assert server("DELETE", "/v1/images/root", key=ANN).status in (204, 404)
