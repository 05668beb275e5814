# SPDX-License-Identifier: Apache-2.0
"""Terminals of sessions on backends: through the far shell, on this machine and over a real sshd."""
import hashlib
import os
import uuid

import pytest

import ptylib
from farlib import processes_with, wait_until
from placelib import Session

# That of the place's own /etc/bash.bashrc, or of a bash without one.
PROMPT = r"(?:[\w-]+@[\w-]+:[^ ]*|bash-[\d.]+)[$#] "


class Terminal(ptylib.Terminal):
    prompt = PROMPT


@pytest.fixture(params=["here", "far"])
def server(request):
    return request.getfixturevalue({"here": "near", "far": "places"}[request.param])


@pytest.fixture
def session(server, request):
    with Session(server, request.node.callspec.params["server"], env={"COLOUR": "blue", "HISTFILE": "/dev/null"}) as s:
        yield s


def test_a_shell_beside_the_interpreter(session, server):
    session.exec("x=5")
    with Terminal(session, "?rows=33&cols=99") as t:
        assert t.run("stty size") == "33 99\n"
        assert t.run("echo $COLOUR $TERM [$x]; pwd") == "blue xterm-256color []\n%s\n" % server.place_dir
        t.resize(50, 132)
        t.send("until [ \"$(stty size)\" = '50 132' ]; do :; done; echo si''zed\n")
        t.until("sized\r\n")
        t.until(PROMPT)
        assert session.exec("echo $x")["stdout"] == "5\n"  # execs go on beside it
        t.send("exit 7\n")
        assert t.end() == (7, 1000)
    assert session.exec("echo $x")["stdout"] == "5\n"


def test_keys_reach_what_runs(session):
    word = "7%d" % (uuid.uuid4().int % 10**8)
    with Terminal(session) as t:
        t.send("sleep %s\n" % word)
        wait_until(lambda: processes_with(word), "it runs")
        t.send("\x03")
        t.until(r"\^C")
        t.until(PROMPT)
        assert t.run("echo $?") == "130\n"
        t.send("kill -9 $$\n")
        assert t.end() == (137, 1000)


def test_bytes_are_passed_as_they_are(session):
    with Terminal(session) as t:
        t.send("stty raw -echo; echo re''ady; head -c 300000 | sha256sum; stty sane\n")
        t.until("ready")
        data = bytes(range(256)) * 1172
        data = data[:300000]
        for at in range(0, len(data), 4096):
            t.send(data[at:at + 4096])
        t.until(hashlib.sha256(data).hexdigest(), 60)


def test_much_output_is_whole_and_its_end_comes_last(session):
    with Terminal(session) as t:
        t.send("stty -onlcr -echo; exec seq 1 200000\n")
        exit_code, _ = t.end(60)
        assert exit_code == 0
        assert "".join("%d\n" % i for i in range(1, 200001)) in t.seen


def test_a_terminal_that_nobody_reads_holds_up_nothing_else(session):
    """Control: what flows is more than all buffers on the way take."""
    with Terminal(session) as t:
        t.send("yes $(printf %01000d 0) | head -c 4000000; echo fini''shed\n")
        for i in range(3):
            assert session.exec("echo %d" % i, timeout_ms=60000)["stdout"] == "%d\n" % i
        t.until("finished", 120)


def test_a_client_that_leaves_hangs_up(session):
    words = ["8%d" % (uuid.uuid4().int % 10**8) for _ in range(2)]
    t = Terminal(session)
    t.send("sleep %s &\nsleep %s\n" % tuple(words))
    wait_until(lambda: all(map(processes_with, words)), "both run")
    t.vanish()
    wait_until(lambda: not any(map(processes_with, words)), "the hangup has ended them")
    assert session.exec("echo still")["stdout"] == "still\n"


def test_the_end_of_the_session_is_its_end(session, server):
    word = "9%d" % (uuid.uuid4().int % 10**8)
    with Terminal(session) as t:
        t.send("nohup setsid sleep %s >/dev/null &\nsleep %s\n" % (word, word))
        wait_until(lambda: len(processes_with(word)) >= 2, "both run")
        server("DELETE", session.path)
        t.end()
    wait_until(lambda: not processes_with(word), "nothing is left")


def test_as_many_as_the_server_allows(session):
    with Terminal(session) as first, Terminal(session) as second:
        assert first.run("echo 1") == "1\n" and second.run("echo 2") == "2\n"
    for _ in range(12):  # more than a session has at a time: places are given back
        with Terminal(session) as t:
            t.send("exit\n")
            assert t.end()[0] == 0


def test_a_cut_connection_loses_no_byte(places, sshd):
    mark = places.place_dir / uuid.uuid4().hex
    with Session(places, "far") as s:
        with Terminal(s) as t:
            t.send("stty -onlcr; seq 1 5000; touch %s.half; until [ -e %s.go ]; do sleep 0.02; done; seq 5001 9999\n" % (mark, mark))
            wait_until(lambda: os.path.exists("%s.half" % mark), "half of the output")
            sshd.cut()
            wait_until(lambda: s.server("GET", s.path).json()["backend"]["state"] == "ready" and sshd.children(), "joined again")
            open("%s.go" % mark, "w").close()
            t.until("".join("%d\n" % i for i in range(1, 10000)), 60)


def test_a_place_that_ends_ends_its_terminals(near):
    with Session(near, "here") as s:
        with Terminal(s) as t:
            os.kill(near.child("hermes-places"), 9)
            assert t.end()[0] == 137
