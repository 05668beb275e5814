# SPDX-License-Identifier: Apache-2.0
"""A machine behind ssh whose programs are killed or stopped, and many sessions on one connection: nothing runs twice, nothing is
left there, no session disturbs another."""
import os
import pathlib
import shutil
import signal
import tempfile
import threading
import uuid

import pytest

import apilib
import placelib
from farlib import below, processes_with, wait_until
from faultlib import begin, end, is_lost
from placelib import Session

ROW = """
[backend {name}]
kind = ssh
keys = *
host = 127.0.0.1
port = {sshd.port}
user = {sshd.user}
key_file = {sshd.dir}/user
known_hosts = {sshd.dir}/known_hosts
reconnect_s = {reconnect_s}
"""


@pytest.fixture(scope="module")
def marks():
    path = pathlib.Path(tempfile.mkdtemp(prefix="hermes-marks-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def server(sshd):
    work = apilib.borrow_dir()
    sshd.dir.chmod(0o755)
    (sshd.dir / "user").chmod(0o644 if os.geteuid() == 0 else 0o600)
    settings = work / "backends.conf"
    settings.write_text(ROW.format(name="patient", sshd=sshd, reconnect_s=60) + ROW.format(name="hasty", sshd=sshd, reconnect_s=3))
    server = apilib.Server(work, args=["--backends", str(settings)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    placelib.allow_commands(server, "patient", "hasty")
    yield server
    server.stop()
    apilib.return_dir(work)


class Command:
    """Says that it runs, waits for a file, and ends with 9. `word` is in the command line of a process that it leaves its session with.
    `then` comes after the file."""

    def __init__(self, server, session, marks, then=":"):
        self.word, self.mark = "6%d" % (uuid.uuid4().int % 10**8), marks / uuid.uuid4().hex
        self.stream = begin(server, session, "setsid sleep {word} & echo ran >>{mark}.ran; echo before; touch {mark}.half; "
                            "until [ -e {mark}.go ]; do sleep 0.05; done; {then}; kill $!; kept=yes; (exit 9)".format(
                                word=self.word, mark=self.mark, then=then))
        wait_until(lambda: self.path("half").exists() and self.runs(), "it runs")

    def path(self, what):
        return pathlib.Path("%s.%s" % (self.mark, what))

    def runs(self):
        return processes_with("sleep\0" + self.word)

    def times(self):
        return self.path("ran").read_text().count("ran")

    def far_shell(self):
        """The pid of the far shell that this command runs below. Its interpreter has the same words, but no session of its own."""
        pid = self.runs()[0]
        while b"--stay" not in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes() or os.getsid(pid) != pid:
            pid = int(pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[1])
        return pid


def socket_of(pid):
    return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().decode().split("\0")[2]


def test_a_far_shell_that_is_killed_while_a_command_runs(server, marks):
    with Session(server, "patient") as s, Session(server, "patient") as other:
        other.exec("kept=other")
        command = Command(server, s, marks)
        os.kill(command.far_shell(), signal.SIGKILL)
        found = end(command.stream)
        assert found["stdout"] == "before\n" and is_lost(found), found
        assert s.look()["state"] == "dead" and s.look()["reason"] == "lost"
        wait_until(lambda: not command.runs(), "nothing of it runs")
        assert command.times() == 1 and other.out("echo $kept") == "other\n"
        assert server("POST", s.path + "/reset").status == 200 and s.out("echo [$kept]") == "[]\n"
        assert command.times() == 1


@pytest.mark.parametrize("killed", ["reach", "all of it"])
def test_hermes_reach_is_killed_while_a_command_runs(server, marks, killed):
    """After the time in which a session may be joined again, nothing of it is left on the far machine."""
    s = Session(server, "hasty")
    command = Command(server, s, marks)
    shell = command.far_shell()
    socket = socket_of(shell)
    assert os.path.exists(socket)
    reach = server.child("hermes-places")
    for pid in [reach, *(below(reach) if killed == "all of it" else [])]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended with the one before
    found = end(command.stream)
    assert found["stdout"] in ("before\n", "") and is_lost(found), found
    assert s.look()["state"] == "dead" and s.look()["reason"] == "lost"
    wait_until(lambda: not command.runs() and not os.path.exists("/proc/%d" % shell) and not os.path.exists(socket), "nothing is left")
    assert command.times() == 1
    server("DELETE", s.path)

    def works():
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "hasty"})
        return reply.status == 201 and server("DELETE", "/v1/sessions/" + reply.json()["id"]).status == 204
    wait_until(works, "hermes-places is back")
    assert command.times() == 1


def test_a_killed_hermes_reach_leaves_no_connection(sshd):
    """Its connections would stay for five minutes, and their directory for ever. The control: they are there while it lives."""
    def open_fds(pid, word):
        try:
            return {link for link in map(os.readlink, pathlib.Path("/proc/%d/fd" % pid).iterdir()) if word in link}
        except OSError:
            return set()  # it is ending
    work = apilib.borrow_dir()
    sshd.dir.chmod(0o755)
    (sshd.dir / "user").chmod(0o644 if os.geteuid() == 0 else 0o600)
    settings = work / "backends.conf"
    settings.write_text(ROW.format(name="patient", sshd=sshd, reconnect_s=1))
    server = apilib.Server(work, args=["--backends", str(settings)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    try:
        killed = server.child("hermes-places")
        with Session(server, "patient"):
            [first] = open_fds(killed, "/tmp/hermes-con-")
            assert processes_with("ssh: %s/" % first)
            os.kill(killed, signal.SIGKILL)

        def second_dir():
            """That of the next one; a process of the first one may live for a moment."""
            pid = server.child("hermes-places")
            return pid and open_fds(pid, "/tmp/hermes-con-") - {first}
        [second] = wait_until(second_dir, "the next one has a directory")
        assert os.path.isdir(second)
    finally:
        server.stop()
        apilib.return_dir(work)
    wait_until(lambda: not os.path.exists(first) and not os.path.exists(second), "no directory is left")
    wait_until(lambda: not processes_with("ssh: %s/" % first), "no connection is left")


@pytest.mark.parametrize("continued", ["at once", "after it shows", "never"])
def test_a_server_of_ssh_that_is_stopped(server, sshd, marks, continued):
    """What serves the connection neither answers nor ends. It shows; the session goes on over that connection or over another one, and what
    was printed meanwhile comes whole and once."""
    with Session(server, "patient") as s:
        command = Command(server, s, marks, then="seq 30000")
        stopped = sshd.children()
        assert stopped
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            if continued != "at once":
                command.path("go").touch()
                wait_until(lambda: not command.runs(), "it has printed all")
                wait_until(lambda: s.look()["backend"]["state"] == "degraded", "it shows", 180)
            if continued != "never":
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
            command.path("go").touch()
            found = end(command.stream)
            assert found["stdout"] == "before\n" + "".join("%d\n" % i for i in range(1, 30001))
            assert (found["exit_code"], found["state_lost"]) == (9, False), found
            wait_until(lambda: s.look()["backend"]["state"] == "ready", "joined again", 180)
            if continued == "never":
                assert set(sshd.children()) - set(stopped)
            assert s.out("echo $kept") == "yes\n" and command.times() == 1
        finally:
            for pid in stopped if continued == "never" else ():
                os.kill(pid, signal.SIGKILL)


def test_the_end_of_one_session_does_not_disturb_another(server, marks):
    with Session(server, "patient") as s:
        command = Command(server, s, marks)
        with Session(server, "patient") as other:
            assert other.out("echo fine") == "fine\n"
            theirs = Command(server, other, marks)
            shells = command.far_shell(), theirs.far_shell()
            assert shells[0] != shells[1]
        wait_until(lambda: not theirs.runs() and not os.path.exists("/proc/%d" % shells[1]), "nothing of the other is left")
        theirs.stream.close()
        assert s.look()["state"] == "busy" and s.look()["backend"]["state"] == "ready"
        command.path("go").touch()
        found = end(command.stream)
        assert (found["stdout"], found["exit_code"]) == ("before\n", 9), found
        assert s.out("echo $kept") == "yes\n"


def test_more_sessions_than_sshd_permits_on_one_connection(server):
    """MaxSessions of sshd is 10."""
    made = [None] * 11

    def make(i):
        made[i] = Session(server, "patient")
    try:
        for i in range(len(made)):
            make(i)
        for i, s in enumerate(made):
            s.exec("x=%d" % i)
        threads = [threading.Thread(target=s.exec, args=("sleep 0.5",)) for s in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [s.out("echo $x") for s in made] == ["%d\n" % i for i in range(len(made))]
        assert len({s.out("echo $PPID") for s in made}) == len(made)
    finally:
        for s in made:
            if s:
                server("DELETE", s.path)
