# SPDX-License-Identifier: Apache-2.0
"""A spawner that is killed leaves nobody: not at any system call between the clone of a child and its go-ahead
(tests/run/inject.c stops whoever is there while the spawner dies), and not at any other moment. This process
inherits the children of a killed spawner, so whoever is left is below it. HERMES_FULL=1 kills thousands."""
import ctypes
import fcntl
import http.client
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import pytest

from test_messages import (BUILD, GOOD, LIMITS, MOUNT, SEAL, ZYGOTE, Spawner, box, host_root, job, setup_message,
                           tree)  # noqa: F401
from apilib import (SLOW, Server, borrow_dir, children, descendants, name_of, return_dir,
                    wait_until)
from runlib import ROOT, call_names

FULL = os.environ.get("HERMES_FULL") == "1"
PR_SET_CHILD_SUBREAPER = 36
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: zygotes, control groups")


OTHERS = set()


def own():
    """Our children, without those of other tests."""
    return set(children(os.getpid())) - OTHERS


def descendants_of_ours():
    return [pid for child in own() for pid in [child, *descendants(child)]]


@pytest.fixture(scope="module", autouse=True)
def heir():
    """Orphans become ours. Servers of other tests, which live in the same process, are left alone."""
    OTHERS.update(children(os.getpid()))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


@pytest.fixture(scope="module")
def inject():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        os.chmod(path, 0o755)
        os.mkdir(path + "/shared")
        subprocess.run(["gcc", "-O1", "-o", path + "/inject", ROOT / "tests/run" / "inject.c"], check=True)
        yield pathlib.Path(path)


def reap():
    """Whether nobody is left below us; the dead are taken notice of."""
    for pid in own():
        try:
            os.waitpid(pid, os.WNOHANG | 0x40000000)  # __WALL
        except ChildProcessError:
            pass
    return not own()


def end_all():
    """Who should not be there any more would stay for good."""
    left = [(pid, name_of(pid)) for pid in descendants_of_ours()]
    for pid, _ in left:
        os.kill(pid, signal.SIGKILL)
    return left


class Scene:
    """A spawner that makes one child: a zygote, a box, or what maps the owners of a directory. The program of
    each sleeps for long."""

    def __init__(self, kind, command, shared="/"):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(60 * SLOW)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.dup2(theirs.fileno(), 3)
                os.execve(command[0], command, {})
            finally:
                os._exit(127)
        theirs.close()
        self.open = [os.pipe(), os.pipe()]
        self.job = job(["sleep", "1000"])
        try:
            self.direct(kind, str(shared))
        except (BrokenPipeError, ConnectionError):
            pass  # killed meanwhile

    def send(self, data, fds=()):
        socket.send_fds(self.control, [data], list(fds))

    def direct(self, kind, shared):
        self.send(setup_message(networks=0))
        if kind == "mount":
            self.send(struct.pack("=2I256s", MOUNT, 1, shared.encode()))
        self.send(host_root("/usr/bin/sleep"))
        if kind == "zygote":
            self.send(struct.pack("=6I" + LIMITS, ZYGOTE, 0, 0, 0, 0, 0, *GOOD), [self.job])
        self.send(struct.pack("=I", SEAL))
        if kind != "zygote":
            self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            mounts = [(0, 1, b"/mnt/shared")] if kind == "mount" else []
            self.send(box(mounts=mounts), [theirs.fileno(), self.job, self.open[0][1], self.open[1][1]])
            theirs.close()

    def close(self):
        self.control.close()
        if hasattr(self, "socket"):
            self.socket.close()
        os.close(self.job)
        for fd in sum(self.open, ()):
            os.close(fd)

    def names_of_groups(self):
        """Those that it has locked: it also looks at groups of others."""
        found = set()
        try:
            for entry in os.scandir("/proc/%d/fd" % self.pid):
                if "FLOCK" in pathlib.Path("/proc/%d/fdinfo/%s" % (self.pid, entry.name)).read_text():
                    found.add(os.readlink(entry.path).rsplit("/", 1)[-1])
        except OSError:
            pass
        return {name for name in found if name.startswith("hermes-")}


def sleeps():
    return any(name_of(pid) == "sleep" for pid in descendants_of_ours())


def sites_of(inject, kind):
    """The calls of the spawner from the clone of the child to the go-ahead and a little more, and those of the
    child until it is a program or has another one do its work."""
    log = inject / "log"
    log.write_text("")
    names = call_names()
    scene = Scene(kind, [str(inject / "inject"), str(log), "record", "-", "-", "-", str(BUILD / "hermes-spawn")],
                  inject / "shared")

    assert wait_until(sleeps, 60)
    scene.close()
    assert wait_until(reap, 60), descendants_of_ours()
    sites, cloned, ended, after = [], False, False, 0
    for line in log.read_text().splitlines():
        role, number, n = line.split()
        name = names.get(int(number), number)
        if role == "spawner":
            after += cloned and (name in ("sendto", "sendmsg") or after > 0)
            if cloned and after < 8 and name not in ("exit_group",):
                sites.append((role, int(number), n, name))
            cloned = cloned or name == "clone3"
        elif role == "init" and not ended:
            sites.append((role, int(number), n, name))
            ended = name in ("execve", "clone", "pause")
    return sites


@pytest.mark.parametrize("kind, least", [("zygote", 20), ("box", 60), ("mount", 3)])
def test_killed_at_every_call_between_clone_and_go_ahead(inject, kind, least):
    sites = sites_of(inject, kind)
    assert sum(site[0] == "init" for site in sites) >= least and any(site[0] == "spawner" for site in sites)
    log = inject / "log"
    fired = 0
    for _ in range(20 if FULL else 1):
        for role, number, n, name in sites:
            log.write_text("")
            scene = Scene(kind, [str(inject / "inject"), str(log), role, str(number), n, "kill", str(BUILD / "hermes-spawn")],
                          inject / "shared")
            assert wait_until(lambda: "fired" in log.read_text() or sleeps(), 60), (role, name, n)
            fired += "fired" in log.read_text()
            if "fired" not in log.read_text():  # how often it looks at something is chance
                scene.control.close()
            gone = wait_until(reap, 20)
            left = [] if gone else end_all()
            scene.close()
            assert gone, (role, name, n, left)
    assert fired > 0.9 * len(sites), (fired, len(sites))


def groups_held(names):
    """Those of them that somebody is in or has locked."""
    held = []
    for top in ["/sys/fs/cgroup", *(entry.path for entry in os.scandir("/sys/fs/cgroup") if entry.is_dir())]:
        for path in (os.path.join(top, name) for name in names):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held += [path] if pathlib.Path(path, "cgroup.procs").read_text() else []
            except BlockingIOError:
                held.append(path)
            except OSError:
                pass  # removed meanwhile
            finally:
                os.close(fd)
    return held


def test_killed_at_any_moment(inject):
    """Under load: two processes that take all processor time they get."""
    rng = random.Random(20261116)
    kinds = ["zygote", "box", "mount"]
    command = [str(BUILD / "hermes-spawn")]
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    names = set()
    try:
        for i in range(3000 if FULL else 60):
            scene = Scene(kinds[i % 3], command, inject / "shared")
            time.sleep(rng.random() * 0.03 * SLOW)
            names |= scene.names_of_groups()
            os.kill(scene.pid, signal.SIGKILL)

            def is_over():
                reap()
                return own() <= {p.pid for p in busy}
            assert wait_until(is_over, 20), [(pid, name_of(pid)) for pid in descendants_of_ours()]
            scene.close()
    finally:
        end_all()
        assert wait_until(reap, 10)
    assert names and wait_until(lambda: not groups_held(names), 20), groups_held(names)
    assert Spawner().close() == 0  # and removes them


def ask_for_much(server):
    """What is under way when the spawner dies: boxes of zygotes, parked ones, sessions, a copy of one."""
    def quietly(*request):
        try:
            return server(*request)
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def copy_session():
        made = quietly("POST", "/v1/sessions", {"language": "python"})
        if made is not None and made.status == 201:
            quietly("POST", "/v1/sessions/%s/fork" % made.json()["id"], {})
    runs = [threading.Thread(target=quietly, args=("POST", "/v1/runs", {"language": language, "code": code}))
            for language, code in [("python", "import time; time.sleep(1)"), ("bash", "sleep 1"), ("python", "1")] * 2]
    runs += [threading.Thread(target=copy_session) for _ in range(2)]
    for thread in runs:
        thread.start()
    return runs


def test_killed_with_zygotes_and_sessions():
    rng = random.Random(20261117)
    path = borrow_dir()
    server = Server(path, env={"HERMES_PARKED": "2"})
    try:
        assert server.run("python", "print(1)").json()["stdout"] == "1\n"
        for i in range(150 if FULL else 3):
            spawner = server.child("hermes-spawn")
            threads = ask_for_much(server)
            time.sleep(rng.random() * (0.1 if i % 2 else 1.5))
            os.kill(spawner, signal.SIGKILL)

            def is_over():
                for pid in own() - {server.process.pid}:
                    os.waitpid(pid, os.WNOHANG)
                return own() == {server.process.pid}
            assert wait_until(is_over, 20), [(pid, name_of(pid)) for pid in descendants_of_ours()]
            assert wait_until(lambda: server.child("hermes-spawn") not in (None, spawner), 20)
            for thread in threads:
                thread.join()
            assert wait_until(lambda: server.run("python", "print(1)").json().get("stdout") == "1\n", 20)
    finally:
        server.stop()
        end_all()
    return_dir(path)
