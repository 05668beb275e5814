# SPDX-License-Identifier: Apache-2.0
"""One key beside another, on the parts of images that all keys share: the roots of the spawner, the store, its lock, the
turn of builds, the memory of the server."""
import hashlib
import json
import re
import tarfile
import threading
import zlib

import pytest

from apilib import wait_until
from deblib import apt_root
from layerlib import END, member, raw, tar
from leaks import ASAN
from ocilib import LAYER, Layout
from serving import boxes
from templatelib import has_template
from test_image_transfer import store
from test_template_hostile import FIND, evil

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
            script = "sleep 1; python3 -c 'import os; open(\"/etc/data\", \"wb\").write(os.urandom(60000000))'"
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


def slow_layer(megabytes):
    """A layer without a file: headers that speak of all entries, which are read and left out. Also its diff id."""
    piece = raw(b"g", tarfile.XGLTYPE, size=b"%011o\0" % (1 << 19)) + bytes(1 << 19)
    packer, plain = zlib.compressobj(1, zlib.DEFLATED, 31), hashlib.sha256()
    out = b""
    for data in [piece] * (2 * megabytes) + [END]:
        plain.update(data)
        out += packer.compress(data)
    return out + packer.flush(), "sha256:" + plain.hexdigest()


def test_all_layers_of_an_archive_have_the_time_of_one_build(keyed):
    """A small archive names the same layer again and again. Others wait for their turn meanwhile."""
    server = keyed(HERMES_BUILD_WALL_MS="6000")
    blob, diff_id = slow_layer(96)
    for count in 1, 150:
        layout = Layout(tar(member("opt/venv/x", data=b"x")))
        layout.layers += [layout.add(blob, LAYER + "+gzip")] * count
        layout.config["rootfs"]["diff_ids"] += [diff_id] * count
        reply = bring(server, layout.tar(), "slow")
        if count == 1:  # control: one of them is fine
            assert reply.status == 201, reply.body
            assert server("DELETE", "/v1/images/slow", key=ANN).status == 204
    assert reply.status == 400 and "the archive" in reply.json()["error"]["message"], reply.body
    assert store(server) == []
    assert bring(server, told(1), "next", key=BOB).status == 201


def test_files_without_bytes_count_in_all_layers(keyed):
    """A directory takes 4 KiB on disk: 16 MiB are 4,096 of them, and not in each of many layers."""
    server = keyed(HERMES_BUILD_DISK_MB="16")
    layers = [tar(*[member("opt/venv/%d/%d/" % (n, i), tarfile.DIRTYPE) for i in range(900)]) for n in range(8)]
    assert bring(server, told(1, *layers[:3]), "few").status == 201  # control
    assert server("DELETE", "/v1/images/few", key=ANN).status == 204
    reply = bring(server, told(2, *layers), "many")
    assert reply.status == 413 and "more entries than allowed" in reply.json()["error"]["message"], reply.body
    assert store(server) == []


@pytest.mark.skipif(ASAN, reason="its heap keeps what was freed")
def test_a_list_takes_little_more_memory_than_its_text(keyed):
    """Each image of a key may tell of 2,000 packages. As parsed JSON these are twenty times as large."""
    server = keyed()
    packages = [{"name": "p%d" % i, "version": "1"} for i in range(2000)]
    for n in range(20):
        assert bring(server, told(n, packages=packages), "n%d" % n).status == 201
    assert server.stop() == 0  # a heap without holes that a list could use
    server.start()
    assert server("GET", "/v1/images/none", key=ANN).status == 404
    pid = server.child("hermes-server")

    def peak():
        with open("/proc/%d/status" % pid) as status:
            return int(re.search(r"VmHWM:\s*(\d+)", status.read())[1]) << 10
    with open("/proc/%d/clear_refs" % pid, "w") as refs:
        refs.write("5")  # the peak is counted from here
    before = peak()
    reply = server("GET", "/v1/images", key=ANN)
    assert len(reply.json()["images"]) == 20 and len(reply.json()["images"][7]["packages"]) == 2000
    assert peak() - before < 10 * len(reply.body)


# Waits behind the check of the interpreter, in a process of its own, and burns CPU time.
BURNS = FIND + """
def burn(self):
    if os.fork() == 0:
        while True:
            pass
type(found).problem = burn
"""


def test_what_a_template_uses_is_charged_to_its_key(make_server, tmp_path):
    """Also when no run is a copy of it."""
    keys = tmp_path / "keys"
    keys.write_text("[ann]\nkey = %s\ncpu_s_per_hour = 100\n\n[bob]\nkey = %s\nrole = operator\n" % (ANN, BOB))
    keys.chmod(0o600)
    server = make_server(env={"HERMES_KEYS_FILE": str(keys)})

    def left():
        [ann] = [key for key in server("GET", "/v1/keys", key=BOB).json()["keys"] if key["name"] == "ann"]
        return ann["use"]["cpu_s_left"]
    evil(server, BURNS, key=ANN)
    assert server.run("python", "print(1)", image="mine", key=ANN).json()["stdout"] == "1\n"
    assert wait_until(lambda: has_template(server), 60)
    assert wait_until(lambda: server("GET", "/v1/images/mine", key=ANN).json()["warm"], 60)
    before = left()
    assert wait_until(lambda: left() < before - 1, 120), (before, left())
