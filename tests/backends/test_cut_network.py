# SPDX-License-Identifier: Apache-2.0
"""A link that goes down between Hermes and the machine behind ssh. No side hears of it: packets are lost, nothing is closed."""
import json
import os
import pathlib
import shutil
import tempfile
import uuid

import pytest

import apilib
import farlib
import placelib
from farlib import processes_with, wait_until
from netlib import Namespace
from placelib import Session, need

NEAR, FAR = "192.0.2.1", "192.0.2.2"

# A connection counts as cut after this time without a word, at least 10 s; then the far shell waits for this time again.
SETTINGS = """
[backend patient]
kind = ssh
keys = *
host = {host}
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
reconnect_s = 30
[backend hasty]
kind = ssh
keys = *
host = {host}
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
reconnect_s = 3
"""


class Wire:
    """Two network namespaces that one link joins, and nothing else: Hermes is in one, sshd in the other."""

    def __init__(self):
        self.near, self.far = Namespace(), Namespace()
        self.near.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", self.far.keeper.pid)
        for namespace, link, address in ((self.near, "v0", NEAR), (self.far, "v1", FAR)):
            namespace.run("ip", "link", "set", "lo", "up")
            namespace.run("ip", "addr", "add", address + "/24", "dev", link)
            namespace.run("ip", "link", "set", link, "up")

    def set(self, state):
        self.far.run("ip", "link", "set", "v1", state)

    def end(self):
        self.near.end()
        self.far.end()


@pytest.fixture(scope="module")
def wire():
    if os.geteuid() != 0:
        pytest.skip("needs root: the test makes network namespaces")
    need(farlib.sshd_problem())
    wire = Wire()
    yield wire
    wire.end()


@pytest.fixture(scope="module")
def server(wire):
    sshd = farlib.Sshd(FAR, wire.far.enter())
    work = apilib.borrow_dir()
    cwd = pathlib.Path(tempfile.mkdtemp(prefix="hermes-cut-"))
    try:
        sshd.dir.chmod(0o755)
        (sshd.dir / "user").chmod(0o644)
        settings = work / "backends.conf"
        settings.write_text(SETTINGS.format(host=FAR, port=sshd.port, user=sshd.user, dir=sshd.dir))
        server = apilib.Server(work, args=["--backends", str(settings), "--backends-user", "nobody"], tcp=False,
                               command=[*wire.near.enter(), apilib.MONITOR])
        server.place_dir = cwd
        placelib.allow_commands(server, "patient", "hasty")
        yield server
        server.stop()
    finally:
        sshd.close()
        apilib.return_dir(work)
        shutil.rmtree(cwd, ignore_errors=True)


class Command:
    """Prints three lines, waits for a file, prints three more. `word` is in the command line of its processes."""

    def __init__(self, server, session):
        self.server, self.word = server, "6%d" % (uuid.uuid4().int % 10**8)
        self.mark = str(server.place_dir / uuid.uuid4().hex)
        code = ("sleep {word} & echo ran >>{mark}.ran; for i in 1 2 3 4 5 6; do echo line $i; [ $i = 3 ] && touch {mark}.half && "
                "until [ -e {mark}.go ]; do sleep 0.05; done; done; kill %1; kept=yes; (exit 9)").format(word=self.word, mark=self.mark)
        self.stream = server.connect(timeout=300)
        self.stream.request("POST", session.path + "/exec", json.dumps({"code": code, "timeout_ms": 250000}),
                            {"Content-Type": "application/json"})
        wait_until(lambda: os.path.exists(self.mark + ".half"), "half of the output")
        assert processes_with(self.word)

    def go(self):
        open(self.mark + ".go", "w").close()

    def answer(self):
        with self.stream.getresponse() as reply:
            found = json.loads(reply.read())
        self.stream.close()
        return found

    def times_run(self):
        return pathlib.Path(self.mark + ".ran").read_text().count("ran")


def far_shells(namespace):
    """The far shells of a network namespace, each with the socket that it waits at."""
    found = {}
    for pid in processes_with("--stay"):
        try:
            words = pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().decode().split("\0")
            if os.readlink("/proc/%d/ns/net" % pid) == namespace:
                found[pid] = words[2]
        except OSError:
            continue  # it has ended
    return found


def state_of(session):
    return session.look()["backend"]["state"]


def test_a_link_that_comes_back_in_time_loses_nothing(server, wire):
    with Session(server, "patient") as s:
        command = Command(server, s)
        assert state_of(s) == "ready"
        wire.set("down")
        try:
            wait_until(lambda: state_of(s) == "degraded", "it shows", 120)
            assert processes_with(command.word)
        finally:
            wire.set("up")
        wait_until(lambda: state_of(s) == "ready", "joined again")
        command.go()
        found = command.answer()
        assert found["stdout"] == "".join("line %d\n" % i for i in range(1, 7)), found
        assert found["exit_code"] == 9 and not found["state_lost"]
        assert s.exec("echo $kept")["stdout"] == "yes\n"
        assert command.times_run() == 1


def test_a_link_that_stays_down_is_a_loss_and_leaves_nothing(server, wire):
    namespace = os.readlink("/proc/%d/ns/net" % wire.far.keeper.pid)
    wait_until(lambda: not far_shells(namespace), "those before have ended")
    with Session(server, "hasty") as s:
        command = Command(server, s)
        shells = far_shells(namespace)
        sockets = set(shells.values())
        assert len(sockets) == 1 and all(os.path.exists(path) for path in sockets)
        wire.set("down")
        try:
            wait_until(lambda: s.look()["state"] == "dead", "it is lost", 120)
            found = s.look()
            assert found["reason"] == "lost" and found["backend"]["state"] == "lost", found
            answer = command.answer()  # what is known: the output so far, no exit code, and why
            assert (answer["stdout"], answer["exit_code"], answer["state_lost"]) == ("line 1\nline 2\nline 3\n", None, True), answer
            assert answer["error"]["code"] == "backend_failed" and answer["error"]["detail"] == {"kind": "lost"}
            wait_until(lambda: not processes_with(command.word) and not far_shells(namespace), "nothing is left", 120)
            assert not any(os.path.exists(path) for path in sockets)
            assert command.times_run() == 1
        finally:
            wire.set("up")
        wait_until(lambda: server("POST", s.path + "/reset").status == 200, "a new shell")
        assert s.exec("echo [$kept]")["stdout"] == "[]\n"
        assert command.times_run() == 1
