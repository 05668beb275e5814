# SPDX-License-Identifier: Apache-2.0

"""A place that does not speak as a far shell does: it holds up nobody but its own session, and nothing of it stays."""

import json
import os
import pathlib
import signal
import time
import uuid

import pytest

import apilib
import ptylib
from farlib import below, wait_until
from placelib import Session

FAR_END = """#!/usr/bin/python3
# The other end of the backend `hostile`. DIR/mode says what it does, for as long as it says so.
import os, re, sys, time
mode_file = "{dir}/mode"
def mode():
    return open(mode_file).read()
nonce = re.search("([0-9a-f]{{32}})", os.environ["SSH_ORIGINAL_COMMAND"]).group(1)
def say(word):
    os.write(1, b"\\001" + nonce.encode() + b"\\002" + word.encode() + b"\\n")
need = "need " + os.uname().machine
did = mode()
if did == "deaf":
    for i in range(4): # more than ssh keeps for a program that does not read
        say(need)
    while mode() == did:
        time.sleep(0.05)
elif did == "greedy":
    while mode() == did:
        say(need)
        os.read(0, 1 << 20)
elif did == "loud":
    if os.fork() == 0:
        os.write(1, b"x" * (2 << 20))
        os._exit(0)
    while mode() == did:
        os.write(2, b"no words \\377\\n" * 100)
        time.sleep(0.01)
elif did.startswith("terminal "):
    say("0")
    ready = b'{{"cwd":"/","kernel":"bash"}}'
    os.write(1, b"ready %d\\n%s" % (len(ready), ready))
    got = b""
    while b"terminal_open 1\\n1" not in got:
        got += os.read(0, 1 << 16)
    for piece in did[9:].split("|"):
        data = b"1 " + piece.encode("latin-1")
        os.write(1, b"file %d\\n%s" % (len(data), data))
    while mode() == did:
        time.sleep(0.05)
else:
    say("0")
    os.read(0, 2)
    os.write(1, did.encode("latin-1"))
    while mode() == did:
        time.sleep(0.05)
"""


@pytest.fixture
def hostile(places, sshd):
    """Sets what the far end does; ends it."""
    mode = sshd.dir / "mode"

    def be(what):
        mode.write_text(what)
    program = sshd.dir / "far-end"
    program.write_text(FAR_END.format(dir=sshd.dir))
    program.chmod(0o755)
    be("")
    yield be
    be("end")


def relays(places):
    """Pids of the processes that serve sessions on backends: children of hermes-places, without the starter of `local`."""
    def is_relay(pid):
        status = apilib.status_of(pid)
        return "Name:\thermes-places\n" in status and "NoNewPrivs:\t1\n" in status
    return [pid for pid in apilib.children(places.child("hermes-places")) if is_relay(pid)]


def test_a_session_has_a_process(places):
    """The control of nothing_stays()."""
    with Session(places, "here"):
        assert len(relays(places)) == 1
    nothing_stays(places)


def test_an_interrupt_waits_for_its_command(places):
    """The command and its interrupt come to the process of the session at once, from two sockets."""
    with Session(places, "here") as s:
        [relay] = relays(places)
        for _ in range(10):
            os.kill(relay, signal.SIGSTOP)
            with s.begin("sleep 1000") as answer:
                wait_until(lambda: s.look()["state"] == "busy", "it is sent")
                wait_until(lambda: places("POST", s.path + "/interrupt").status in (200, 202, 204), "the interrupt is taken")
                os.kill(relay, signal.SIGCONT)
                found = answer()
            assert (found["exit_code"], found["status"]) == (130, "runtime_error"), found


def nothing_stays(places):
    def is_empty():
        try:
            return not relays(places)
        except OSError:
            return False  # one ended while we looked
    wait_until(is_empty, "no process of a session is left")


def opened(places):
    return places("POST", "/v1/sessions", {"language": "bash", "backend": "hostile"})


@pytest.mark.parametrize("mode", ["deaf", "greedy"])
def test_a_place_that_wants_the_far_shell_again_is_refused(places, hostile, mode):
    hostile(mode)
    reply = opened(places)
    word = "sent an answer that no far shell sends"
    assert reply.status == 502 and word in reply.json()["error"]["message"], reply
    nothing_stays(places)
    rows = places("GET", "/v1/backends").json()["backends"]
    assert word in next(row["detail"] for row in rows if row["name"] == "hostile")


def test_a_place_that_never_stops_talking_is_given_up(places, hostile):
    hostile("loud")
    reply = opened(places)
    assert reply.status in (502, 503), reply  # 503: a busy machine did not read it all in 30 s
    nothing_stays(places)


@pytest.mark.parametrize("frames", ["ack 8\n99999999", "out 99999999999\n", "file 12\n00000000000 ", "exit 1\n0exit 1\n0exit 3\n127"])
def test_forged_frames_lose_their_own_session_only(places, hostile, frames):
    hostile(frames)
    reply = opened(places)
    assert reply.status in (500, 502), reply
    nothing_stays(places)
    other = places("POST", "/v1/sessions", {"language": "bash", "backend": "here"})
    assert other.status == 201, other
    assert places("DELETE", "/v1/sessions/" + other.json()["id"]).status == 204


class Sitter(ptylib.Terminal):
    prompt = ""  # nothing is expected from such a place


BYTES = "d\0\x40\0" + "x" * 16384


@pytest.mark.parametrize("words, status", [
    ("a\0\0\x04\0\0\0\x01", 137),  # bytes taken that were never sent
    ("d\x7f\xff\xff", 137),
    ("e\0\0\x05\0\0\0\0\0", 137),
    ("|".join([BYTES] * 4 + ["e\0\0\x04\0\0\x07\0"]), 7),  # control: what keeps to the rules arrives
], ids=["taken", "length", "number", "control"])
def test_a_far_end_of_a_terminal_that_breaks_the_rules_ends_its_terminal(places, hostile, words, status):
    hostile("terminal " + words)
    reply = opened(places)
    assert reply.status == 201, reply

    class session:  # noqa: N801, what ptylib asks for
        server, id = places, reply.json()["id"]
    with Sitter(session) as t:
        assert t.end() == (status, 1000)
        assert status == 137 or t.seen == "x" * 65536
    assert places("GET", "/v1/sessions/" + session.id).json()["state"] == "idle"
    assert places("DELETE", "/v1/sessions/" + session.id).status == 204
    nothing_stays(places)


def stuck_download(places, session, relay, path):
    """Asks for a file and does not read it, until nothing of it moves any more."""
    download = places.connect()
    download.request("GET", "%s/files/%s" % (session.path, path.name))

    def moved():
        return int(pathlib.Path("/proc/%d/io" % relay).read_text().split()[1])

    def is_stuck():
        before = moved()
        time.sleep(0.2)
        return before > 1 << 16 and moved() == before
    wait_until(is_stuck, "nothing of the file moves any more")
    return download


@pytest.fixture
def large(places):
    path = places.place_dir / uuid.uuid4().hex
    path.write_bytes(b"x" * (60 << 20))
    path.chmod(0o644)
    yield path
    path.unlink()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_death_of_a_place_shows_while_a_download_waits(places, large, when):
    """A client does not read a file, and the place dies before or after a command was sent. The command is answered, and nothing of the session
    stays. The control: while the place lives, the session does too."""
    with Session(places, "here") as s:
        [relay] = relays(places)
        download, other = stuck_download(places, s, relay, large), places.connect()

        def die():
            started = [pid for pid in below(places.child("hermes-places")) if apilib.name_of(pid) != "hermes-places"]
            assert started, "the far shell and what it has started"
            for pid in reversed(started):
                os.kill(pid, 9)

        def send():
            other.request("POST", s.path + "/exec", json.dumps({"code": "echo"}), {"Content-Type": "application/json"})
        assert s.look()["state"] == "idle" and s.look()["backend"]["state"] == "ready"
        if when == "before":
            die()
            wait_until(lambda: s.look()["state"] == "dead", "the death shows")
            send()
            assert other.getresponse().status == 409
        else:
            send()
            wait_until(lambda: s.look()["state"] == "busy", "a command waits for the place")
            die()
            found = json.loads(other.getresponse().read())
            assert found["state_lost"] and found["error"]["detail"] == {"kind": "lost"}, found
        assert s.look()["reason"] == "lost"
        nothing_stays(places)
        download.close()
        other.close()


def test_a_cut_while_a_download_waits_loses_no_byte(places, sshd, large):
    with Session(places, "far") as s:
        [relay] = relays(places)
        download = stuck_download(places, s, relay, large)
        before = set(sshd.children())
        sshd.cut()
        wait_until(lambda: set(sshd.children()) - before, "another connection")
        assert download.getresponse().read() == large.read_bytes()
        download.close()
        assert s.exec("echo fine")["stdout"] == "fine\n"
