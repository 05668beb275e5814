# SPDX-License-Identifier: Apache-2.0
"""Whose template boxes are, how many there are, and how they end."""
import contextlib
import os
import signal

import pytest

from apilib import Server, borrow_dir, boxes_below, return_dir, wait_until, wait_until_still
from indexlib import image_settings
from pressure import choose_percent, short_of_memory
from templatelib import build, command_line, has_template, is_warm, run_warm, templates

ANN, BOB, ROOT_KEY = "key-of-ann-1234567890", "key-of-bob-1234567890", "key-of-root-123456789"


@pytest.fixture
def make(world):
    """Servers that build nothing but setup scripts, so that they need no index."""
    made = []

    def make(**env):
        path = borrow_dir()
        keys = path / "keys"
        keys.write_text("[ann]\nkey = %s\n\n[bob]\nkey = %s\n\n[root]\nkey = %s\nrole = operator\n" % (ANN, BOB, ROOT_KEY))
        keys.chmod(0o600)
        made.append((path, Server(path, env=dict(image_settings(), HERMES_KEYS_FILE=str(keys), **env))))
        return made[-1][1]
    yield make
    for path, server in made:
        assert server.stop() == 0
        return_dir(path)


SCRIPT = "cat > $(echo /opt/venv/lib/python3*/site-packages)/%s.py <<'END'\nimport os, time\nend = time.process_time() + 0.03\n" \
         "while time.process_time() < end: pass\nmark = os.urandom(8).hex()\nEND\n"


def module(server, name, key):
    return build(server, name, SCRIPT % name, packages=(), preload=[name], key=key)


def marks(server, name, key):
    """Drawn when the module was imported: runs of one template have the same."""
    return run_warm(server, "import %s; print(%s.mark)" % (name, name), image=name, key=key)["stdout"]


def works(server):
    try:
        return server.run("python", "print(1)", key=ANN).status == 200
    except OSError:
        return False


def test_a_template_belongs_to_one_key(make):
    """Also that of an image for all: runs of two keys are never copies of one box. Another key's image does not exist."""
    server = make()
    module(server, "shared", ROOT_KEY)
    module(server, "own", ANN)
    ann = marks(server, "shared", ANN)
    assert marks(server, "shared", ANN) == ann  # control: the same key has the same template
    assert marks(server, "shared", BOB) != ann
    assert len(templates(server)) == 2
    assert marks(server, "own", ANN)
    assert server.run("python", "1", key=BOB, image="own").status == 404
    assert server("GET", "/v1/images/shared", key=ROOT_KEY).json()["warm"] is False  # it has used it never
    assert server("GET", "/v1/images/shared", key=BOB).json()["warm"] is True
    for key, name in (ROOT_KEY, "shared"), (ANN, "own"):
        assert server("DELETE", "/v1/images/" + name, key=key).status == 204
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 30)


def test_a_key_has_a_bounded_number(make):
    """The one that was used least recently makes room, after a while; the others stay warm."""
    server = make()
    names = ["m%d" % n for n in range(5)]
    for name in names:
        module(server, name, ANN)
    for name in names[:4]:
        marks(server, name, ANN)
    assert len(templates(server)) == 4
    marks(server, names[4], ANN)
    assert len(templates(server)) == 4


def test_without_memory_for_them_there_are_none(make):
    server = make(HERMES_IMAGE_WARM_MB="0")
    module(server, "own", ANN)
    for _ in range(3):
        answer = server.run("python", "import own", key=ANN, image="own").json()
        assert answer["isolation"]["start_reason"] == "image"
    assert not has_template(server)


def test_it_ends_when_nobody_needs_it(make):
    server = make(HERMES_IMAGE_WARM_IDLE_S="1")
    module(server, "own", ANN)
    marks(server, "own", ANN)
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 30)
    assert marks(server, "own", ANN)  # the next request starts it again


def test_it_makes_room_for_a_run_of_its_key(make):
    """The run needs all the memory that a key may have."""
    server = make(HERMES_MEMORY_MB="1024")
    module(server, "own", ANN)
    marks(server, "own", ANN)
    answer = server.run("python", "print(1)", key=ANN, limits={"memory_mb": 896}).json()
    assert answer["stdout"] == "1\n", answer
    assert not has_template(server)


def test_they_end_while_memory_is_short(make):
    """Of a server that wants more memory to be free than there is. Control: one beside it that does not keeps its own."""
    percent = choose_percent()
    server, other = make(HERMES_PARKED_FREE_PERCENT=str(percent)), make(HERMES_PARKED_FREE_PERCENT="0")
    for one, names in (server, "ab"), (other, "c"):
        for name in names:
            module(one, name, ANN)
            assert marks(one, name, ANN) == marks(one, name, ANN)  # control: without pressure it stays
    old, kept = templates(server), templates(other)
    assert len(old) == 2 and len(kept) == 1
    with short_of_memory(percent):
        assert wait_until(lambda: not has_template(server), 60), server.logs()
        assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 60)
        for _ in range(5):  # and none is started
            answer = server.run("python", "import a", key=ANN, image="a").json()
            assert answer["isolation"]["start_reason"] == "not_ready", answer
            assert is_warm(other.run("python", "import c", key=ANN, image="c").json())
        assert not has_template(server) and templates(other) == kept
    assert marks(server, "a", ANN) and not set(templates(server)) & set(old)  # comes back


def test_a_run_goes_on_while_memory_is_short(make):
    """Its template ends after it."""
    percent = choose_percent()
    server = make(HERMES_PARKED_FREE_PERCENT=str(percent))
    for name in "ab":
        module(server, name, ANN)
        marks(server, name, ANN)
    running = server.run("python", "import time; time.sleep(600)", key=ANN, image="a", limits={"wall_ms": 600000},
                         **{"async": True}).json()
    path = "/v1/runs/" + running["id"]
    assert wait_until(lambda: server("GET", path, key=ANN).json()["status"] == "running", 30)
    assert len(templates(server)) == 2
    with short_of_memory(percent):
        assert wait_until(lambda: len(templates(server)) == 1, 60)
        assert server("GET", path, key=ANN).json()["status"] == "running"
        assert server("GET", "/v1/images/a", key=ANN).json()["warm"] and not server("GET", "/v1/images/b", key=ANN).json()["warm"]
        assert server("DELETE", path, key=ANN).status < 300
        assert wait_until(lambda: not has_template(server), 60)


def test_nothing_is_left_when_programs_die(make):
    """The spawner, then the server: each takes its templates and their copies along, and the next one has its own."""
    server = make()
    module(server, "own", ANN)
    first = marks(server, "own", ANN)
    for program in "hermes-spawn", "hermes-server":
        running = server.run("python", "import time; time.sleep(600)", key=ANN, image="own", limits={"wall_ms": 600000},
                             **{"async": True}).json()
        assert wait_until(lambda: server("GET", "/v1/runs/" + running["id"], key=ANN).json()["status"] == "running", 30)
        old = templates(server)
        spawner = server.child("hermes-spawn")
        boxes = boxes_below(spawner)
        assert old and boxes
        os.kill(server.child(program), signal.SIGKILL)
        assert wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in [*old, *boxes]), 30)
        assert wait_until(lambda: works(server), 60)
        second = marks(server, "own", ANN)
        assert second != first
        first = second


def test_copies_outlive_their_template(make):
    """A run goes on when its template ends; its image is in use until then."""
    server = make()
    module(server, "own", ANN)
    marks(server, "own", ANN)
    running = server.run("python", "import time\nwhile not __import__('sys').stdin.readline(): time.sleep(0.1)\nprint('end')",
                         key=ANN, image="own", limits={"wall_ms": 600000}, stdin="", **{"async": True}).json()
    path = "/v1/runs/" + running["id"]
    assert wait_until(lambda: server("GET", path, key=ANN).json()["status"] == "running", 30)
    [template] = templates(server)
    os.kill(template, signal.SIGKILL)
    assert wait_until(lambda: not command_line(template), 10)
    assert server("GET", path, key=ANN).json()["status"] == "running"
    assert server("DELETE", "/v1/images/own", key=ANN).status == 409
    assert server("DELETE", path, key=ANN).status < 300
    assert wait_until(lambda: server("DELETE", "/v1/images/own", key=ANN).status == 204, 20)
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 30)


def test_copies_count_as_running(make):
    """Making a ready box takes processor time from the runs of that moment, so it waits for runs that are copies, too."""
    server = make(HERMES_PARKED="4")
    spawner = server.child("hermes-spawn")
    module(server, "own", ANN)
    marks(server, "own", ANN)

    def ready():
        """Boxes of the zygote; each is a pid namespace."""
        found = set()
        for pid in boxes_below(spawner):
            if command_line(pid).endswith(b"zygote.py\0"):
                with contextlib.suppress(FileNotFoundError):
                    found.add(os.readlink("/proc/%d/ns/pid" % pid))
        return len(found)
    assert wait_until(lambda: ready() == 4, 30)
    running = ["/v1/runs/" + server.run("python", "import time\ntime.sleep(600)", key=ANN, image="own",
                                        limits={"wall_ms": 600000}, **{"async": True}).json()["id"] for _ in range(2)]
    assert wait_until(lambda: all(server("GET", path, key=ANN).json()["status"] == "running" for path in running), 30)
    for _ in range(4):
        assert is_warm(server.run("python", "pass", key=ANN).json())
    wait_until_still(spawner)
    assert ready() == 0
    for path in running:  # control: nothing else kept it from making them
        assert server("DELETE", path, key=ANN).status < 300
    assert wait_until(lambda: ready() == 4, 30)
