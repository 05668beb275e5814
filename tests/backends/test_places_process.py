# SPDX-License-Identifier: Apache-2.0
"""hermes-places beside hermes-reach: what it has, and what happens when one of its processes is killed or stopped."""
import os
import pathlib
import pwd
import re
import signal

import pytest

import apilib
import placelib
from farlib import wait_until
from placelib import Session

KEY = "reviewer-key-of-this-test-0123456789"
SETTINGS = """
[backend here]
kind = local
keys = *
[backend plain]
kind = local
keys = *
sudo = no
"""


@pytest.fixture
def server():
    if os.geteuid() != 0:
        pytest.skip("needs root: programs have users of their own")
    work = apilib.borrow_dir()
    (work / "backends.conf").write_text(SETTINGS)
    key = work / "reviewer.key"
    key.write_text(KEY + "\n")
    key.chmod(0o600)
    made = apilib.Server(work, args=["--backends", str(work / "backends.conf"), "--backends-user", "nobody"],
                         env={"HERMES_REVIEWER_URL": "http://127.0.0.1:1/", "HERMES_REVIEWER_KEY_FILE": str(key)})
    placelib.allow_commands(made, "here", "plain")
    yield made
    made.stop()
    apilib.return_dir(work)


def status(pid, name):
    return re.search("^%s:\t(.*)" % name, pathlib.Path("/proc/%d/status" % pid).read_text(), re.MULTILINE)[1]


def below(pid):
    """The process and those that it has started, by pid."""
    found = [pid]
    for parent in found:
        for task in pathlib.Path("/proc/%d/task" % parent).iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def named(pids, name="hermes-places"):
    return [pid for pid in pids if status(pid, "Name") == name and not status(pid, "State").startswith("Z")]


def starter(server):
    """The process without no_new_privs."""
    return next(pid for pid in named(below(server.child("hermes-places"))) if status(pid, "NoNewPrivs") == "0")


def memory(pid):
    with open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in pathlib.Path("/proc/%d/maps" % pid).read_text().splitlines():
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            try:
                mem.seek(start)
                yield mem.read(end - start)
            except (OSError, ValueError, OverflowError):
                pass  # [vvar], [vsyscall]


def has_key(pid):
    return any(KEY.encode() in part for part in memory(pid))


def works(server, name):
    reply = server("POST", "/v1/sessions", {"language": "bash", "backend": name})
    if reply.status == 201:
        server("DELETE", "/v1/sessions/" + reply.json()["id"])
    return reply.status == 201


def test_the_reviewers_key_is_in_hermes_reach_alone(server):
    reach = server.child("hermes-reach")
    assert has_key(reach)  # the control
    with Session(server, "here"), Session(server, "plain"):
        pids = below(server.child("hermes-places"))
        assert len(named(pids)) >= 4
        assert not [pid for pid in pids if has_key(pid)]
        users = {status(pid, "Uid").split()[0] for pid in pids}
        assert users == {str(pwd.getpwnam("nobody").pw_uid)} and status(reach, "Uid").split()[0] not in users


def test_processes_have_the_descriptors_that_they_need(server):
    """The process of a session has no way to requests; only one whose row permits sudo has one to the starter."""
    with Session(server, "here"), Session(server, "plain"):
        main = server.child("hermes-places")
        sockets = {}
        for pid in named(below(main)):
            if pid not in (main, starter(server)):
                links = [os.readlink(entry) for entry in pathlib.Path("/proc/%d/fd" % pid).iterdir()]
                assert not [link for link in links if "memfd:places" in link]
                sockets[pid] = {link for link in links if link.startswith("socket:")}
        theirs = {os.readlink(entry) for entry in pathlib.Path("/proc/%d/fd" % main).iterdir()}
        assert sorted(len(own & theirs) for own in sockets.values()) == [0, 1]


@pytest.mark.parametrize("which", ["main", "starter"])
def test_a_process_that_was_killed_is_replaced(server, which):
    """Also if the one killed is not the one that the monitor has started."""
    main = server.child("hermes-places")
    with Session(server, "here") as here, Session(server, "plain") as plain:
        old = below(main)
        os.kill(main if which == "main" else starter(server), signal.SIGKILL)
        wait_until(lambda: not [pid for pid in old if os.path.exists("/proc/%d" % pid)], "the old processes end")
        for session in (here, plain):
            wait_until(lambda: session.look()["state"] == "dead", "the session is dead")
    wait_until(lambda: works(server, "here") and works(server, "plain"), "sessions can be opened again")
    assert server.child("hermes-places") not in (None, main)


def test_a_starter_that_was_stopped_holds_up_nothing(server):
    """A `local` command can stop it: it has the same user."""
    main, stopped = server.child("hermes-places"), starter(server)
    os.kill(stopped, signal.SIGSTOP)
    reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "here"})
    assert reply.status == 502 and reply.json()["error"]["detail"]["kind"] == "unreachable", reply
    assert works(server, "plain")  # which does not use it
    os.kill(main, signal.SIGKILL)
    wait_until(lambda: not os.path.exists("/proc/%d" % stopped), "the stopped process ends")
    wait_until(lambda: works(server, "here"), "sessions can be opened again")
