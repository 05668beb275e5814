# SPDX-License-Identifier: Apache-2.0
"""Builds that are killed at every step, that find the disk full at every step, and two builders of one store at once:
nothing half, nothing lost. Many runs over many images: nothing left. HERMES_FULL=1 makes it 50 kills and 1,000 runs."""
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from apilib import HERMES, ROOT, Server, borrow_dir, return_dir, wait_until
from deblib import apt_root
from indexlib import image_settings
from layerlib import member, tar
from leaks import ASAN, Holdings, gone
from ocilib import Layout
from runlib import Groups
from serving import boxes
from test_image_base import APT, imported
from test_image_build import said
from test_image_use import works
from test_packages import make  # noqa: F401

FULL = os.environ.get("HERMES_FULL") == "1"


def store_of(server):
    return server.state / "server/images"


def check_store(store):
    """Every name leads to an image, every image to its layers. Returns what else there is. (A recipe that leads to
    nothing goes with the next build.)"""
    images = {p.name.split(".")[0]: json.loads(p.read_text()) for p in (store / "images").iterdir()}
    layers = {p.name for p in (store / "layers").iterdir()}
    used = {layer for image in images.values() for layer in image["layers"]}
    assert used <= layers, (used, layers)
    for path in (store / "names").rglob("*"):
        assert path.is_dir() or path.read_text().strip() in images, path
    return layers - used, list((store / "incoming").iterdir())


# --- kill -9


# What is built, the steps that it tells, and a program that says which image it has.
KINDS = {
    "packages": ({"language": "python", "name": "k", "packages": {"pip": ["hermes-probe==1.0"]},
                  "setup_script": "head -c 20000000 /dev/zero >/opt/data"},
                 ["installing requirements", "running the setup script", "compiling to byte code", "packing the layer", "measuring imports"],
                 "import hermes_probe; print(hermes_probe.VERSION)"),
    "base": ({"language": "python", "name": "k", "base": "root", "setup_script": "python3 -c 'open(\"/etc/data\", \"wb\").write(bytes(20000000))'; echo 1.0 >/etc/word"},
             ["running the setup script", "packing the layer"], "print(open('/etc/word').read(), end='')"),
}
VICTIMS = [("packages", victim) for victim in ("hermes-server", "hermes-spawn", "hermes-egress", "hermes-monitor", "a box")]
VICTIMS += [("base", victim) for victim in ("hermes-server", "hermes-spawn", "a box")]


def build_until(server, recipe, step, then):
    """Reads the events of a build; calls then() when it says that it is at this step. Returns whether it has."""
    connection = server.connect()
    seen = False
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v1/images", json.dumps(recipe),
                           {"Content-Type": "application/json", "Accept": "text/event-stream"})
        reply = connection.getresponse()
        for line in reply:
            if b'"step"' in line and step.encode() in line:
                seen = True
                then()
                break
        reply.read()
    connection.close()
    return seen


def kill(server, victim):
    if victim == "a box":
        pids = boxes(server)[-1:]
    elif victim == "hermes-monitor":
        pids = [server.process.pid]
    else:
        pids = [server.child(victim)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def revive(server, victim):
    if victim == "hermes-monitor":
        server.process.wait()
        server.start()
    assert wait_until(lambda: works(server), 60)


@pytest.mark.parametrize("kind, victim", VICTIMS)
def test_a_kill_at_every_step(make, kind, victim):
    recipe, steps, code = KINDS[kind]
    server = make()
    kept = []
    if kind == "base":
        kept = [imported(server, apt_root(APT, member("etc/marker", data=b"mine")))["id"]]
    is_short = not FULL and victim in ("hermes-egress", "hermes-monitor")  # one step, at which a build needs both
    moments = [(step, 0) for step in (steps[:1] if is_short else steps)]
    if FULL:
        moments += [(random.choice(steps), random.random()) for _ in range(50)]
    for step, delay in moments:
        def then():
            time.sleep(delay)
            kill(server, victim)
        assert build_until(server, recipe, step, then), step
        revive(server, victim)
        check_store(store_of(server))
        for image in server("GET", "/v1/images").json()["images"]:  # the build was faster, or the victim was not needed
            if image["id"] not in kept:
                assert said(server, code, image=image["id"]) == "1.0\n"
                assert server("DELETE", "/v1/images/" + (image["name"] or image["id"])).status == 204
        for image in kept:
            assert said(server, "print(open('/etc/marker').read())", image=image) == "mine\n"
    reply = server("POST", "/v1/images", recipe)
    assert reply.status == 201, reply.body
    assert said(server, code, image="k") == "1.0\n"
    assert wait_until(lambda: not boxes(server), 30)
    spare, incoming = check_store(store_of(server))
    assert incoming == [] and not [name for name in spare if name[0] != "."], (spare, incoming)


# --- a full disk


@pytest.fixture(params=["bytes", "files"])
def small_store(make_server, request):
    """A server whose state is on a little file system, but for the root trees; and a function that leaves so many pages,
    or so many files, free there; None: all."""
    server = make_server(env={"HERMES_HISTORY": "memory"})
    disk = server.work / "disk"
    assert server.stop() == 0
    server.state.rename(disk)
    server.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "hermes-test", server.state], check=True)
    (server.state / "roots").symlink_to(disk / "roots")
    filler = server.state / "filler"

    def leave_bytes(pages):
        filler.unlink(missing_ok=True)
        if pages is not None:
            free = os.statvfs(server.state).f_bavail * os.statvfs(server.state).f_frsize
            with open(filler, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(free - pages * 4096, 1))

    def leave_files(count):
        now = os.statvfs(server.state)
        most = 10000 if count is None else now.f_files - now.f_ffree + count
        subprocess.run(["mount", "-o", "remount,size=4m,nr_inodes=%d" % most, server.state], check=True)
    try:
        server.start()
        yield server, leave_bytes if request.param == "bytes" else leave_files
    finally:
        if server.process.poll() is None:
            server.stop()
        subprocess.run(["umount", "-l", server.state], check=True)
        server.state.rmdir()
        disk.rename(server.state)


def test_a_full_disk_at_every_step(small_store):
    """One page or file more each time, so that everything that a build writes is once the first that does not fit."""
    server, leave = small_store
    script = "for i in 1 2 3 4; do head -c 4000 /dev/zero >/opt/f$i; done"
    recipe = {"language": "javascript", "name": "full", "setup_script": script}
    code = "console.log(require('fs').readdirSync('/opt').filter(n => n[0] === 'f').length)"
    leave(None)
    kept = server("POST", "/v1/images", dict(recipe, name="kept", setup_script=script + "; :"))
    assert kept.status == 201, kept.body  # the control
    seen = []
    for left in range(60):
        leave(left)
        reply = server("POST", "/v1/images", recipe)
        seen.append(reply.status if reply.status == 201 else (reply.status, reply.json()["error"]["message"][:150]))
        spare, incoming = check_store(store_of(server))
        assert incoming == [], (left, incoming)
        if reply.status == 201:
            break
        assert reply.status in (422, 503, 507) and "space" in reply.json()["error"]["message"].lower(), (left, reply.body)
        assert server.run("javascript", code, image="full").status == 404
        assert said(server, code, "javascript", image="kept") == "4\n"  # what was there is not lost
    assert seen[-1] == 201 and len(seen) > 4, seen
    leave(None)
    assert said(server, code, "javascript", image="full") == "4\n"


def small_image(text):
    """An archive of two layers with packages of JavaScript: every kind of file that an import writes, in a few pages."""
    return Layout(*[tar(*[member("opt/node_modules/%s%d.js" % (layer, n), data=text.ljust(4000)) for n in range(2)])
                    for layer in "ab"]).tar()


PROBE = "console.log(require('a0.js'), require('b1.js'))"


def import_here(server, archive):
    """`hermes image import` beside the server, in the same state directory. The archive comes through a pipe, so it is
    written to the store, too. Returns the exit status and what it said."""
    env = dict(os.environ, HERMES_STATE_DIR=str(server.state), HERMES_RUNTIMES=str(ROOT / "runtimes"))
    done = subprocess.run([HERMES, "image", "import", "--name", "full", "/dev/stdin"], env=env, input=archive,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stderr.decode()


def import_over_http(server, archive):
    reply = server("POST", "/v1/images/import?name=full", archive, headers={"Content-Type": "application/x-tar"})
    return (0, "") if reply.status == 201 else (reply.status, reply.json()["error"]["message"])


def parts_of(store):
    return {str(p.relative_to(store)) for d in ("layers", "images", "names", "incoming", "spool") for p in (store / d).rglob("*")
            if p.is_file()}


@pytest.mark.parametrize("way", [import_over_http, import_here])
def test_an_import_finds_the_disk_full_at_every_step(small_store, way):
    """One page or file more each time, so that everything that an import writes is once the first that does not fit."""
    server, leave = small_store
    is_http = way is import_over_http
    leave(None)
    kept = server("POST", "/v1/images/import?name=kept", small_image(b"module.exports = 1;"))
    assert kept.status == 201, kept.body  # the control
    if not is_http:  # makes the directories of the command line
        assert way(server, small_image(b"module.exports = 2;"))[0] == 0
    store = store_of(server) if is_http else server.state / "images"
    before = parts_of(store)
    archive = small_image(b"module.exports = 3;")
    seen = []
    for left in range(120):
        leave(left)
        seen.append(way(server, archive))
        spare, incoming = check_store(store)
        assert incoming == [] and spare == set() and not list((store / "spool").iterdir()), (left, seen[-1], spare, incoming)
        if seen[-1][0] == 0:
            break
        assert parts_of(store) == before, (left, seen[-1])
        assert seen[-1][0] == (507 if is_http else 125) and "space" in seen[-1][1].lower(), (left, seen[-1])
        if is_http:
            assert server.run("javascript", PROBE, image="full").status == 404
        assert said(server, PROBE, "javascript", image="kept") == "1 1\n"  # what was there is not lost
    assert seen[-1][0] == 0 and len(seen) > 4, seen
    assert len({words for _, words in seen}) > 3, seen  # it failed at several steps
    leave(None)
    if is_http:
        assert said(server, PROBE, "javascript", image="full") == "3 3\n"


# --- two builders


def test_two_programs_build_in_one_store(world, tmp_path):
    """`hermes image build` twice at once: of one recipe, and of two."""
    env = dict(os.environ, HERMES_STATE_DIR=str(tmp_path / "state"), **image_settings())
    command = [*world.host.enter(), HERMES, "image", "build"]
    (tmp_path / "a.txt").write_text("hermes-probe==1.0\n")
    (tmp_path / "b.txt").write_text("hermes-probe==2.0\n")
    started = [subprocess.Popen([*command, "--name", name, tmp_path / file], env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
               for name, file in (("one", "a.txt"), ("two", "a.txt"), ("three", "b.txt"), ("four", "a.txt"))]
    for process in started:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    listed = {name: json.loads(subprocess.run([HERMES, "image", "inspect", name], env=env, capture_output=True,
                                              text=True).stdout) for name in ("one", "two", "three", "four")}
    assert len({listed[name]["id"] for name in ("one", "two", "four")}) == 1 and listed["three"]["id"] != listed["one"]["id"]
    spare, incoming = check_store(tmp_path / "state/images")
    assert not spare and not incoming


# --- many


@pytest.fixture
def contained():
    """A server in control groups of its own."""
    groups = Groups("-images")
    known = groups.pids()
    path = borrow_dir()
    server = Server(path, before=groups.join, tcp=False, env=image_settings())
    yield server, groups
    assert server.stop() == 0
    left = gone(groups, known)
    if not groups.shared:
        groups.remove()
    return_dir(path)
    assert not left


def test_many_runs_over_many_images(contained):
    """No mount, descriptor, directory, process or memory is left behind."""
    server, groups = contained
    images, runs = (20, 1000) if FULL else (4, 40)
    names = ["many%d" % n for n in range(images)]

    def build_one(n, name):
        reply = server("POST", "/v1/images", {"language": "javascript", "name": name, "setup_script": "echo %d >/opt/n" % n})
        assert reply.status == 201, reply.body
    build_one(-1, "first")
    assert server.run("javascript", "1", image="first").json()["status"] == "ok"
    assert server("DELETE", "/v1/images/first").status == 204
    bare = Holdings(server, groups)
    for n, name in enumerate(names):
        build_one(n, name)
    code = "console.log(require('fs').readFileSync('/opt/n').toString().trim())"

    def run_all(count):
        def one(worker):
            for n in range(worker, count, 3):
                answer = server.run("javascript", code, image=names[n % images]).json()
                if answer.get("stdout") != "%d\n" % (n % images):
                    wrong.append(answer)
        wrong = []
        threads = [threading.Thread(target=one, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[0]
    run_all(3 * images)  # roots of images are made once and kept
    assert wait_until(lambda: not boxes(server), 30)
    before = Holdings(server, groups)
    mounts = len(open("/proc/%d/mountinfo" % server.child("hermes-spawn")).readlines())
    run_all(runs)
    now = nothing_left(server, groups, before)
    assert len(open("/proc/%d/mountinfo" % server.child("hermes-spawn")).readlines()) == mounts
    grown = {name: now.pss_kb[name] - before.pss_kb[name] for name in now.pss_kb}
    assert ASAN or max(grown.values()) < 4096 + 8 * runs, grown
    # and the images leave nothing, either
    for name in names:
        assert server("DELETE", "/v1/images/" + name).status == 204
    nothing_left(server, groups, bare)
    assert check_store(store_of(server)) == (set(), [])


def nothing_left(server, groups, before):
    def left():
        return ours(Holdings(server, groups).left_over(before))
    assert wait_until(lambda: not left(), 20), left()
    return Holdings(server, groups)


def ours(left):
    """Files in /tmp may be of tests that run beside this one; the history grows; recipes go with the next build."""
    return [line for line in left if not line.startswith(("file ", "state server/images/recipes/")) and "history" not in line]
