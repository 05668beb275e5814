# SPDX-License-Identifier: Apache-2.0
"""A far shell in a container that was replaced by a program that knows how one begins: it loses its own session, and no other."""
import pytest

from farlib import wait_until
from placelib import Session, WHOLE, engine_row

pytestmark = pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")

FAKE = r"""#!/bin/sh
[ "$1" = --version ] && exit 0
case $1 in --stay) nonce=$4 ;; --stdio) nonce=$2 ;; *) nonce=$3 ;; esac
mode=$(cat /workspace/mode)
echo "$mode $1" >>/workspace/asked
begin() { printf '\001%s\0020\n' "$1"; read -r count; }
frame() { printf '%s %d\n%s' "$1" ${#2} "$2"; }
done='{"ok":true,"exit_code":0,"cwd":"/","execution_count":1,"interrupted":false,"state":"kept"}'
[ $mode = nonce ] && { printf '\001%s\0020\n' 0123456789abcdef0123456789abcdef; frame ready '{"cwd":"/","kernel":"bash"}'; exit; }
begin "$nonce"
case $mode in
out) printf 'out 99999999999\n' ;;
done) printf 'done 99999999\n'; yes ;;
number) printf 'out 0x10\n0123456789abcdef' ;;
ack) frame ack 99999999 ;;
endless) yes ;;
esac
frame ready '{"cwd":"/","kernel":"bash"}'
case $mode in
late) printf 'out 99999999999\n' ;;
flood) while frame out "$(head -c 65536 /dev/zero | tr '\0' x)"; do :; done ;;
early) frame done "$done" ;;
once | twice) while read -r line; do case $line in *exec\ *) break ;; esac; done; frame done "$done"; [ $mode = twice ] && frame done "$done" ;;
esac
exec sleep 1000
"""


def replace(session):
    """Puts the program where the far shell of this container is."""
    found = session.exec("cat >/tmp/x && chmod 755 /tmp/x && for f in /.hermes/shell-*; do cp /tmp/x $f.new && mv $f.new $f; done", stdin=FAKE)
    assert found["exit_code"] == 0, found


@pytest.fixture(scope="module")
def place(engine_of, serve_engine):
    """A server, and a session that began before the far shell of its container was replaced."""
    engine = engine_of("docker")
    server = serve_engine(engine_row("box", engine))
    with Session(server, "box") as first:
        first.exec("kept=yes")
        replace(first)
        yield server, first
        assert first.out("rm /.hermes/shell-*; echo $kept") == "yes\n"
        with Session(server, "box") as other:  # put there again
            assert other.out("echo fine") == "fine\n"
    for one in engine.containers():
        engine("DELETE", "/v1.41/containers/%s?force=1" % one["Id"])


def is_fine(first, mode):
    return first.out("tail -n 1 /workspace/asked; echo $kept").split() == [mode, "--stay", "yes"]


CODE = "echo ran >>/workspace/ran"


def has_run(first):
    return first.exec("test -e /workspace/ran")["exit_code"] == 0


WORDS = "the place sent something that the far shell does not send"


@pytest.mark.parametrize("mode,kind,words", [("nonce", "refused", "before the far shell answered"), ("out", "refused", WORDS), ("done", "refused", WORDS),
                                             ("number", "refused", WORDS), ("ack", "refused", WORDS), ("endless", "refused", WORDS)])
def test_one_that_lies_at_its_beginning_opens_no_session(place, mode, kind, words):
    server, first = place
    first.exec("echo %s >/workspace/mode" % mode)
    reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "box"})
    assert reply.status == 502, reply
    error = reply.json()["error"]
    assert error["detail"] == {"kind": kind} and words in error["message"], error
    assert is_fine(first, mode)


CODE = "echo ran >>/workspace/ran"


@pytest.mark.parametrize("mode", ["late", "early"])
def test_what_comes_before_a_command_is_not_its_answer(place, mode):
    """A forged length after `ready`, and `done` for a command that was not sent."""
    server, first = place
    first.exec("echo %s >/workspace/mode" % mode)
    reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "box"})
    assert reply.status in (201, 500, 502), reply  # not 201: it came together with `ready`
    if reply.status == 201:
        path = "/v1/sessions/" + reply.json()["id"]
        wait_until(lambda: server("GET", path).json()["state"] == "dead", "it shows without a command")
        assert server("POST", path + "/exec", {"code": CODE}).status == 409
        server("DELETE", path)
    assert is_fine(first, mode) and not has_run(first)


def test_endless_output_is_bounded_and_answers_no_command(place):
    server, first = place
    first.exec("echo flood >/workspace/mode")
    with Session(server, "box") as s:
        found = s.exec(CODE, timeout_ms=1000)
        assert found["status"] == "time_limit" and found["exit_code"] is None and found["state_lost"], found["message"]
        assert found["stdout_truncated"] and found["stdout_bytes"] > 1 << 20 and len(found["stdout"]) < 2 << 20
        assert s.look()["state"] == "dead" and server("POST", s.path + "/exec", {"code": CODE}).status == 409
    assert is_fine(first, "flood") and not has_run(first)


@pytest.mark.parametrize("mode", ["once", "twice"])
def test_a_second_answer_to_one_command_ends_the_session(place, mode):
    """The control: one answer is believed, because Hermes cannot know more."""
    server, first = place
    first.exec("echo %s >/workspace/mode" % mode)
    with Session(server, "box") as s:
        found = s.exec(CODE)
        if mode == "once":
            assert (found["status"], s.look()["state"]) == ("ok", "idle"), found
        else:  # the second may come after the command
            wait_until(lambda: s.look()["state"] == "dead", "it shows")
            assert s.look()["reason"] == "protocol" and server("POST", s.path + "/exec", {"code": CODE}).status == 409
    assert is_fine(first, mode) and not has_run(first)
