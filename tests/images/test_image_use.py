# SPDX-License-Identifier: Apache-2.0
"""Images in runs, sessions and judgements: what they may decide, who sees them, when they can go."""
import os
import signal
import threading
import time

import pytest

from apilib import Server, borrow_dir, return_dir, wait_until
from indexlib import image_settings

MODULE = "echo 'x = %d' > $(echo /opt/venv/lib/python3*/site-packages)/img_%s.py"


def build(server, name, script, key=None, **fields):
    reply = server("POST", "/v1/images", dict({"language": "python", "name": name, "setup_script": script}, **fields),
                   key=key)
    assert reply.status == 201, reply.body
    return reply.json()


def said(server, code, key=None, **fields):
    reply = server.run("python", code, key=key, **fields)
    assert reply.status == 200 and reply.json()["status"] == "ok", reply.body
    return reply.json()["stdout"]


def execute(server, session, code):
    return server("POST", "/v1/sessions/%s/exec" % session, {"code": code}).json()["stdout"]


# A layer that tries to be more than packages, and what it tried, seen from a box.
HOSTILE = """
cd /box/layer
mkdir -p etc usr/lib/hermes proc dev usr/bin
echo 'evil:x:0:0::/:/bin/sh' > etc/passwd
echo /opt/evil.so > etc/ld.so.preload
echo evil > usr/lib/hermes/hermes-init
echo evil > usr/lib/hermes/kernel.py
echo evil > usr/bin/python3
ln -s /opt box
ln -s /opt tmp
echo 'seen = 1' > $(echo opt/venv/lib/python3*/site-packages)/img_seen.py
ln -s /etc opt/etc-link
cp /usr/bin/id opt/id; chmod 6755 opt/id || true # the filter refuses it
"""
LOOK = """
import os
print(open('/etc/passwd').readline().startswith('root:'), os.path.exists('/etc/ld.so.preload'),
      os.path.islink('/box'), os.path.islink('/tmp'), 'evil' in open('/usr/lib/hermes/kernel.py').read(),
      os.path.realpath('/usr/bin/python3').startswith('/usr/bin'), os.stat('/opt/id').st_mode & 0o6000)
import img_seen
print(img_seen.seen)
"""


def test_a_layer_decides_about_opt_and_nothing_else(server):
    build(server, "hostile", HOSTILE)
    # its module is the control: the layer is there
    assert said(server, LOOK, image="hostile") == "True False False False False True 0\n1\n"
    session = server("POST", "/v1/sessions", {"language": "python", "image": "hostile"}).json()["id"]
    assert execute(server, session, LOOK) == "True False False False False True 0\n1\n"


def test_opt_as_a_link_is_no_layer(server):
    """The tree of a layer belongs to the server's user; the spawner follows no link in it."""
    reply = server("POST", "/v1/images", {"language": "python", "setup_script":
                                          "cd /box/layer; cp -r opt real; rm -r opt; ln -s /etc opt"})
    assert reply.status == 422, reply.body
    assert server("GET", "/v1/images").json()["images"] == []


def test_a_package_that_writes_its_own_archive(server):
    """stdout of the build is the layer, so a package can write to it: that is a bad archive, and no harm."""
    reply = server("POST", "/v1/images", {"language": "python", "setup_script":
                                          "head -c 4096 /dev/urandom >&3 || true"})
    assert reply.status == 422, reply.body
    assert server("GET", "/v1/images").json()["images"] == []


# Writes a packed archive with a file of 64 MiB in front of the real one, which becomes a part that readers skip.
PACKED = """
rm -rf /opt/venv
/usr/bin/python3 - "$(/usr/lib/hermes/hermes-layer pack /box/layer | wc -c)" <<'END' >&3
import struct, sys, tarfile
member = tarfile.TarInfo("opt/zeros")
member.size = 64 << 20
def block(kind, size, data, last=0):
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3] + data
zstd = bytes.fromhex("28b52ffd0050") + block(0, 512, member.tobuf(tarfile.USTAR_FORMAT))
zstd += block(1, 1 << 17, b"\\0") * 512 + block(1, 1024, b"\\0", 1)
sys.stdout.buffer.write(zstd + struct.pack("<II", 0x184d2a50, int(sys.argv[1])))
END
"""


def test_a_packed_layer_is_refused(server):
    """It would lie on disk with more bytes than were counted, so the store would have no bound."""
    reply = server("POST", "/v1/images", {"language": "python", "setup_script": PACKED})
    assert reply.status == 422 and "plain" in reply.json()["error"]["message"], reply.body
    assert server("GET", "/v1/images").json()["images"] == []


def test_an_image_is_read_only_and_shows_no_path_of_the_host(server):
    build(server, "ro", MODULE % (1, "ro"))
    code = "import errno\ntry:\n    open('/opt/venv/x', 'w')\nexcept OSError as e:\n    print(errno.errorcode[e.errno])\n" \
           "print(open('/proc/self/mountinfo').read())"
    out = said(server, code, image="ro")
    assert out.startswith("EROFS\n") and " /opt ro,nosuid,nodev" in out
    assert str(server.state) not in out and str(server.work) not in out and "layers" not in out


def test_layers_of_others_cannot_be_reached(server):
    """The directory of all layers is in the namespace from which boxes are made, and not in the boxes."""
    build(server, "one", MODULE % (1, "one"))
    code = "import os\nfound = []\nfor top, dirs, files in os.walk('/'):\n    dirs[:] = [d for d in dirs if d != 'proc']\n" \
           "    found += [top for f in files if f == 'img_one.py']\nprint(len(found))"
    assert said(server, code) == "0\n"
    assert int(said(server, code, image="one")) >= 1  # control


def test_sessions_and_their_copies_have_it(server):
    build(server, "s", MODULE % (5, "s"))
    session = server("POST", "/v1/sessions", {"language": "python", "image": "s"}).json()
    assert session["image"].startswith("img_")
    assert execute(server, session["id"], "import img_s; y = img_s.x; print(y)") == "5\n"
    copy = server("POST", "/v1/sessions/%s/fork" % session["id"], {}).json()["sessions"][0]
    assert copy["image"] == session["image"]
    assert server("DELETE", "/v1/sessions/" + session["id"]).status == 204
    assert execute(server, copy["id"], "import importlib; print(importlib.reload(img_s).x, y)") == "5 5\n"
    assert server("POST", "/v1/sessions/%s/reset" % copy["id"]).status in (200, 409)


def test_judgements_have_it(server):
    build(server, "j", MODULE % (6, "j"))
    answer = server("POST", "/v1/judge", {"language": "python", "image": "j", "code": "import img_j; print(img_j.x)",
                                          "tests": [{"stdin": "", "expected": "6\n"}], "compare": "exact"}).json()
    assert answer["verdict"] == "accepted", answer
    body = {"language": "python", "image": "none", "code": "1", "compare": "exact",
            "tests": [{"stdin": "", "expected": ""}]}
    assert server("POST", "/v1/judge", body).status == 404


def test_images_that_do_not_fit(server):
    build(server, "py", MODULE % (1, "py"))
    for path in "/v1/runs", "/v1/sessions":
        for body, status in [({"language": "python", "image": "nothing"}, 404),
                             ({"language": "python", "image": "img_" + "0" * 32}, 404),
                             ({"language": "python", "image": "../py"}, 404),
                             ({"language": "javascript", "image": "py"}, 400),
                             ({"language": "bash", "image": "py"}, 400), ({"language": "python", "image": 7}, 400)]:
            if path == "/v1/runs":
                body = dict(body, code="1")
            reply = server("POST", path, body)
            assert reply.status == status, (body, reply.body)


def test_an_image_in_use_stays(server):
    build(server, "busy", MODULE % (1, "busy"))
    session = server("POST", "/v1/sessions", {"language": "python", "image": "busy"}).json()["id"]
    assert execute(server, session, "import img_busy") == ""
    reply = server("DELETE", "/v1/images/busy")
    assert reply.status == 409 and reply.json()["error"]["code"] == "conflict"
    assert execute(server, session, "import importlib; print(importlib.reload(img_busy).x)") == "1\n"
    assert server("DELETE", "/v1/sessions/" + session).status == 204
    assert wait_until(lambda: server("DELETE", "/v1/images/busy").status == 204)
    assert server("GET", "/v1/images/busy").status == 404
    assert server("DELETE", "/v1/images/busy").status == 404


def test_whoever_removes_an_image_in_use_stops_nobody(server):
    build(server, "busy", MODULE % (1, "busy"))
    session = server("POST", "/v1/sessions", {"language": "python", "image": "busy"}).json()["id"]
    done = []

    def remove():
        assert server("DELETE", "/v1/images/busy").status == 409
        done.append("removed")
    thread = threading.Thread(target=remove)
    thread.start()
    time.sleep(0.1)
    for _ in range(3):
        assert server("GET", "/v1/images/busy").status == 200
        done.append("seen")
    thread.join()
    assert done == ["seen", "seen", "seen", "removed"]
    assert server("DELETE", "/v1/sessions/" + session).status == 204


ANN, BOB, ROOT_KEY = "key-of-ann-1234567890", "key-of-bob-1234567890", "key-of-root-123456789"
POOR = "key-of-poor-123456789"


@pytest.fixture
def make_keyed(world):
    made = []

    def make(**env):
        path = borrow_dir()
        keys = path / "keys"
        keys.write_text("[ann]\nkey = %s\n\n[bob]\nkey = %s\n\n[root]\nkey = %s\nrole = operator\n\n"
                        "[poor]\nkey = %s\ncpu_s_per_hour = 1\n" % (ANN, BOB, ROOT_KEY, POOR))
        keys.chmod(0o600)
        made.append((path, Server(path, env=dict(image_settings(), HERMES_KEYS_FILE=str(keys), **env))))
        return made[-1][1]
    yield make
    for path, server in made:
        assert server.stop() == 0
        return_dir(path)


@pytest.fixture
def keyed(make_keyed):
    return make_keyed()


def test_an_image_belongs_to_its_key(keyed):
    ann, bob, root = ANN, BOB, ROOT_KEY
    image = build(keyed, "mine", MODULE % (1, "mine"), key=ann)
    assert image["owner"] == "ann"
    assert said(keyed, "import img_mine; print(img_mine.x)", key=ann, image="mine") == "1\n"
    missing = keyed("GET", "/v1/images/nothing", key=bob).json()["error"]["message"]
    for name in "mine", image["id"]:
        reply = keyed("GET", "/v1/images/" + name, key=bob)
        assert reply.status == 404 and reply.json()["error"]["message"] == missing.replace("nothing", name)
        assert keyed("DELETE", "/v1/images/" + name, key=bob).status == 404
        assert keyed.run("python", "1", key=bob, image=name).status == 404
        assert keyed("POST", "/v1/sessions", {"language": "python", "image": name}, key=bob).status == 404
    assert keyed("GET", "/v1/images", key=bob).json()["images"] == []
    # the same recipe of another key is built again: nobody gets what another one's build made
    other = build(keyed, "mine", MODULE % (1, "mine"), key=bob)
    assert other["owner"] == "bob" and other["id"] != image["id"]
    shared = build(keyed, "for-all", MODULE % (3, "all"), key=root)
    assert shared["owner"] is None
    assert said(keyed, "import img_all; print(img_all.x)", key=bob, image="for-all") == "3\n"
    assert keyed("DELETE", "/v1/images/for-all", key=bob).status == 404
    assert {i["name"] for i in keyed("GET", "/v1/images", key=root).json()["images"]} == {"mine", "for-all"}
    # the operator looks at images of others, and removes them, by id
    assert keyed("GET", "/v1/images/" + image["id"], key=root).json()["owner"] == "ann"
    assert keyed("GET", "/v1/images/mine", key=root).status == 404
    # layers of equal content are kept once, and go with the last image
    layers = keyed.state / "server/images/layers"
    assert len(list(layers.iterdir())) == 2
    assert keyed("DELETE", "/v1/images/" + image["id"], key=root).status == 204
    assert keyed("GET", "/v1/images/mine", key=ann).status == 404
    assert said(keyed, "import img_mine; print(img_mine.x)", key=bob, image="mine") == "1\n"
    assert keyed("DELETE", "/v1/images/mine", key=bob).status == 204
    assert len(list(layers.iterdir())) == 1


def test_images_survive_a_restart_and_the_death_of_the_spawner(make_server):
    server = make_server()
    build(server, "kept", MODULE % (8, "kept"))
    code = "import img_kept; print(img_kept.x)"
    assert said(server, code, image="kept") == "8\n"
    os.kill(server.child("hermes-spawn"), signal.SIGKILL)
    assert wait_until(lambda: server.run("python", code, image="kept").json().get("stdout") == "8\n", 60)
    assert server.stop() == 0
    server.start()
    assert said(server, code, image="kept") == "8\n"


@pytest.mark.parametrize("victim", ["hermes-spawn", "hermes-server"])
def test_a_kill_during_a_build_leaves_nothing(make_server, victim):
    """At moments that the log of the build names; then one more build succeeds."""
    server = make_server()
    images = server.state / "server/images"
    script = "echo begun; sleep 0.3; head -c 30000000 /dev/zero > /opt/data; " + MODULE % (1, "k")
    for moment in 0.05, 0.4, 0.7, 1.0:
        def ask():
            try:
                server("POST", "/v1/images", {"language": "python", "name": "k", "setup_script": script})
            except OSError:
                pass
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(moment)  # any moment will do
        os.kill(server.child(victim), signal.SIGKILL)
        thread.join()
        assert wait_until(lambda: server.child(victim) and works(server), 60)
        found = server("GET", "/v1/images").json()["images"]
        if found:  # the build was faster
            assert server("DELETE", "/v1/images/k").status == 204
    reply = server("POST", "/v1/images", {"language": "python", "name": "k", "setup_script": script})
    assert reply.status == 201, reply.body
    assert said(server, "import img_k; print(img_k.x)", image="k") == "1\n"
    assert list((images / "incoming").iterdir()) == []
    assert len([p for p in (images / "layers").iterdir() if p.name[0] != "."]) == 1


def works(server):
    try:
        return server.works()
    except OSError:
        return False


def test_the_store_has_a_bound(make_server):
    server = make_server(env={"HERMES_IMAGE_STORE_MB": "3"})
    for n in 1, 2, 3:
        build(server, "n%d" % n, "head -c 1500000 /dev/urandom > /opt/data; " + MODULE % (n, "n"))
    names = [i["name"] for i in server("GET", "/v1/images").json()["images"]]
    assert len(names) == 1 or len(names) == 2
    assert len(list((server.state / "server/images/layers").iterdir())) == len(names)


def test_a_key_pushes_out_its_own_images(make_keyed):
    server = make_keyed(HERMES_IMAGE_STORE_MB="4")
    fill = "head -c 1500000 /dev/urandom > /opt/data; " + MODULE
    build(server, "small", fill % (1, "a"), key=ANN)
    for n in 1, 2, 3:
        build(server, "n%d" % n, fill % (n, "b"), key=BOB)
    assert [i["name"] for i in server("GET", "/v1/images", key=ANN).json()["images"]] == ["small"]
    assert len(server("GET", "/v1/images", key=BOB).json()["images"]) == 1


def test_a_key_has_so_many_names_at_most(make_server):
    """A name costs no build when the recipe is known; a list of all is made in memory."""
    server = make_server()
    body = {"language": "python", "setup_script": MODULE % (1, "n")}
    for n in range(256):
        reply = server("POST", "/v1/images", dict(body, name="n%d" % n))
        assert reply.status == (200 if n else 201), reply.body
    reply = server("POST", "/v1/images", dict(body, name="more"))
    assert reply.status == 507 and "256 names" in reply.json()["error"]["message"], reply.body
    reply = server("POST", "/v1/images", dict(body, name="new", setup_script=MODULE % (2, "n")))
    assert reply.status == 507, reply.body
    images = server.state / "server/images"
    assert [len(list((images / part).iterdir())) for part in ("layers", "images", "recipes")] == [1, 1, 1]
    assert server("POST", "/v1/images", dict(body, name="n7")).status == 200
    assert server("DELETE", "/v1/images/n7").status == 204
    assert server("POST", "/v1/images", dict(body, name="more")).status == 200


def test_a_key_leaves_images_for_others(make_keyed):
    """32 can be in use at one time; one key has at most 24 of them."""
    server = make_keyed()
    build(server, "bobs", MODULE % (1, "b"), key=BOB)
    statuses = []
    for n in range(25):
        build(server, "n%d" % n, "echo %d > /opt/n" % n, key=ANN)
        body = {"language": "python", "image": "n%d" % n, "limits": {"memory_mb": 64}}
        statuses.append(server("POST", "/v1/sessions", body, key=ANN).status)
    assert statuses == [201] * 24 + [429]
    assert server("POST", "/v1/sessions", dict(body, image="n3"), key=ANN).status == 201  # in use already
    assert said(server, "import img_b; print(img_b.x)", key=BOB, image="bobs") == "1\n"


@pytest.mark.parametrize("end", ["true", "false"])
def test_the_processor_time_of_a_build_is_charged(keyed, end):
    """Also that of one that fails."""
    burn = "python3 -c 'import time\nwhile time.process_time() < 2: pass'; " + end
    reply = keyed("POST", "/v1/images", {"language": "python", "setup_script": burn}, key=POOR)
    assert reply.status == (201 if end == "true" else 422), reply.body
    reply = keyed.run("python", "1", key=POOR)
    assert reply.status == 429 and "CPU time" in reply.json()["error"]["message"], reply.body


def test_an_image_larger_than_the_store(make_server):
    server = make_server(env={"HERMES_IMAGE_STORE_MB": "1"})
    for script in "head -c 2000000 /dev/zero > /opt/data", "cd /opt; for i in $(seq 1000); do mkdir dir$i; done":
        reply = server("POST", "/v1/images", {"language": "python", "setup_script": script})
        assert reply.status == 507 and "image_store_mb" in reply.json()["error"]["message"], reply.body
    assert list((server.state / "server/images/layers").iterdir()) == []


def test_builds_wait_for_their_turn_and_there_are_so_many_at_most(make_server):
    server = make_server()
    statuses = []

    def ask(n):
        reply = server("POST", "/v1/images", {"language": "python", "name": "w%d" % n, "setup_script":
                                              "sleep 1; echo %d > /opt/n" % n})
        statuses.append(reply.status)
    threads = [threading.Thread(target=ask, args=(n,)) for n in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201] * 4 + [429] * 3
    assert len(server("GET", "/v1/images").json()["images"]) == 4


def test_the_same_recipe_at_the_same_time_is_built_once(make_server):
    server = make_server()
    answers = []

    def ask():
        reply = server("POST", "/v1/images", {"language": "python", "name": "one", "setup_script":
                                              "sleep 0.5; head -c 1000 /dev/urandom > /opt/n"})
        answers.append((reply.status, reply.json()["id"]))
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in answers) == [200, 200, 201] and len({i for _, i in answers}) == 1


def test_a_client_that_leaves_ends_its_build(make_server):
    server = make_server()
    connection = server.connect()
    connection.request("POST", "/v1/images", body='{"language": "python", "setup_script": "sleep 100"}',
                       headers={"Content-Type": "application/json"})
    assert wait_until(lambda: server.running() > 0)
    connection.close()
    assert wait_until(lambda: server.running() == 0, 30)
    assert server("GET", "/v1/images").json()["images"] == []
