# SPDX-License-Identifier: Apache-2.0
"""The wall clock jumps by a day in the middle of a command. A library shifts it for every program of the test: the server, hermes-places,
ssh, sshd and the far shell, which is linked again so that it loads libraries. Their mount namespace has an /etc of its own that names it."""
import json
import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import uuid

import pytest

import apilib
import farlib
import placelib
from farlib import BUILD, ROOT, below, processes_with, wait_until
from netlib import Namespace
from placelib import Session, WHOLE, engine_row, need

DAY = 86400

SETTINGS = """
[backend here]
kind = local
keys = *
[backend far]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
reconnect_s = 60
"""


class Clock:
    """A mount namespace whose programs have a wall clock of their own."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hermes-clock-"))
        self.dir.chmod(0o755)
        self.namespace = Namespace()
        try:
            self.make()
        except BaseException:
            self.end()
            raise

    def make(self):
        library, shell, shift = self.dir / "shift.so", self.dir / "hermes-shell", self.dir / "shift"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, ROOT / "tests/lib/clock_shift.c", "-ldl"], check=True)
        commands = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "hermes-shell"], check=True, capture_output=True, text=True).stdout
        words = [word for word in commands.splitlines()[-1].split() if word != "-static-pie"]
        assert words[1:3] == ["-o", "hermes-shell"], words
        subprocess.run([words[0], "-o", shell, *words[3:]], check=True, cwd=BUILD)
        shift.write_bytes(struct.pack("<q", 0))
        shift.chmod(0o644)
        script = """set -e
            mount -t tmpfs tmpfs {dir}/etc
            mkdir {dir}/etc/upper {dir}/etc/work
            mount -t overlay overlay -o lowerdir=/etc,upperdir={dir}/etc/upper,workdir={dir}/etc/work /etc
            touch /etc/clock-shift /etc/clock-shift.so
            mount --bind {dir}/shift /etc/clock-shift
            mount --bind {dir}/shift.so /etc/clock-shift.so
            mount --bind {dir}/hermes-shell {build}/hermes-shell
            ip link set lo up
            echo /etc/clock-shift.so >/etc/ld.so.preload""".format(dir=self.dir, build=BUILD.resolve())
        (self.dir / "etc").mkdir()
        (self.dir / "marks").mkdir()
        (self.dir / "marks").chmod(0o777)
        self.namespace.run("sh", "-c", script)
        with open(shift, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 8)

    def with_true_shell(self):
        """Puts back the far shell as it was built: one for containers, which have no libraries. They have the machine's clock."""
        self.namespace.run("umount", BUILD.resolve() / "hermes-shell")
        return self

    def jump(self, seconds):
        struct.pack_into("<q", self.memory, 0, seconds)

    def end(self):
        self.namespace.end()
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def engine_clock():
    if os.geteuid() != 0:
        pytest.skip("needs root: the test mounts")
    clock = Clock().with_true_shell()
    yield clock
    clock.end()


@pytest.fixture(scope="module")
def clock():
    if os.geteuid() != 0:
        pytest.skip("needs root: the test mounts")
    need(farlib.sshd_problem())
    clock = Clock()
    yield clock
    clock.end()


@pytest.fixture(scope="module")
def places(clock):
    sshd = farlib.Sshd(enter=clock.namespace.enter())
    work = apilib.borrow_dir()
    try:
        sshd.dir.chmod(0o755)
        (sshd.dir / "user").chmod(0o644)
        settings = work / "backends.conf"
        settings.write_text(SETTINGS.format(port=sshd.port, user=sshd.user, dir=sshd.dir))
        server = apilib.Server(work, args=["--backends", str(settings), "--backends-user", "nobody"], tcp=False,
                               command=[*clock.namespace.enter(), apilib.MONITOR])
        server.sshd = sshd
        placelib.allow_commands(server, "here", "far")
        yield server
        server.stop()
    finally:
        sshd.close()
        apilib.return_dir(work)


def begin(server, session, code, **fields):
    stream = server.connect(timeout=300)
    stream.request("POST", session.path + "/exec", json.dumps({"code": code, **fields}), {"Content-Type": "application/json"})
    return stream


def end(stream):
    found = json.loads(stream.getresponse().read())
    stream.close()
    return found


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
@pytest.mark.parametrize("backend", ["here", "far"])
def test_a_jump_of_the_wall_clock_ends_nothing_and_repeats_nothing(places, clock, backend, jump):
    mark = clock.dir / "marks" / uuid.uuid4().hex
    clock.jump(0)
    spaces = {os.readlink("/proc/%d/ns/mnt" % pid) for pid in (clock.namespace.keeper.pid, places.sshd.process.pid)}  # sshd has one more
    try:
        with Session(places, backend) as s, Session(places, backend) as waits:
            code = ("echo ran >>%s.ran; before=$(date +%%s); touch %s.half; until [ -e %s.poke ]; do sleep 0.05; done; echo poked; touch %s.poked; until [ -e %s.go ]; do sleep 0.05; done; "
                    "echo $(($(date +%%s) - before)); kept=yes; (exit 9)" % ((mark,) * 5))
            running = begin(places, s, code, timeout_ms=250000)
            wait_until(lambda: os.path.exists("%s.half" % mark), "it runs")
            if backend == "far":  # both ends wait for each other, each for a time
                places.sshd.stop()
                wait_until(lambda: s.look()["backend"]["state"] == waits.look()["backend"]["state"] == "degraded", "it is cut")
            clock.jump(jump)
            open("%s.poke" % mark, "w").close()  # the far shell takes output, and looks at its clock
            wait_until(lambda: os.path.exists("%s.poked" % mark), "there is output")
            if backend == "far":
                places.sshd.start()
                wait_until(lambda: s.look()["backend"]["state"] == waits.look()["backend"]["state"] == "ready", "joined again")
            open("%s.go" % mark, "w").close()
            found = end(running)
            assert found["exit_code"] == 9 and not found["state_lost"], found
            # The control: the clock of that shell's programs did jump, and all those that decide have the library.
            poked, moved = found["stdout"].split()
            assert poked == "poked" and abs(int(moved) - jump) < 1000
            shells = [pid for pid in processes_with("--stay" if backend == "far" else "--stdio")
                      if os.readlink("/proc/%d/ns/mnt" % pid) in spaces]
            for pid in [places.child("hermes-server"), places.child("hermes-places"), *shells]:
                assert "shift.so" in pathlib.Path("/proc/%d/maps" % pid).read_text(), pid
            assert shells
            slow = begin(places, waits, "touch %s.slow; sleep 1000" % mark, timeout_ms=3000)
            wait_until(lambda: os.path.exists("%s.slow" % mark), "it runs")
            queued = begin(places, waits, "echo its turn", wait=True)
            clock.jump(0)  # a jump to the other side
            assert end(slow)["status"] == "time_limit" and end(queued)["stdout"] == "its turn\n"
            assert s.exec("echo $kept")["stdout"] == "yes\n" and s.look()["backend"]["state"] == "ready"
            assert waits.exec("echo fine")["stdout"] == "fine\n"
            assert pathlib.Path("%s.ran" % mark).read_text() == "ran\n"
    finally:
        clock.jump(0)


@pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")
@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_an_orphan_is_removed_and_a_container_in_use_stays_when_the_clock_has_jumped(engine_clock, engine_of, serve_engine, jump):
    """The process of a session is killed, so nothing closes its container. What is removed is counted by no wall clock: that of the server and
    hermes-places jumps, that of the engine does not."""
    clock, engine = engine_clock, engine_of("docker")
    server = serve_engine(engine_row("once", engine, container_persistent="no", container_idle_s=8, reconnect_s=1), tcp=False,
                          command=[*clock.namespace.enter(), apilib.MONITOR])

    def containers():
        return {one["Id"] for one in engine.containers() if one["Labels"]["hermes-backend"] == "once"}
    places = server.child("hermes-places")
    before = set(below(places))
    with Session(server, "once") as orphan:
        [mine], process = containers(), set(below(places)) - before
        with Session(server, "once") as used:
            used.exec("kept=yes")
            [other] = containers() - {mine}
            for pid in [places, *below(places)]:
                assert "shift.so" in pathlib.Path("/proc/%d/maps" % pid).read_text(), pid  # the control
            [pid] = process
            os.kill(pid, signal.SIGKILL)
            clock.jump(jump)
            wait_until(lambda: orphan.look()["state"] == "dead", "the session is lost")
            assert containers() == {mine, other}  # nothing has closed it
            wait_until(lambda: containers() == {other}, "the orphan is removed", 180)
            assert used.out("echo $kept") == "yes\n" and used.look()["backend"]["state"] == "ready"
    wait_until(lambda: not containers(), "nothing is left")
