# SPDX-License-Identifier: Apache-2.0
"""`persistent_shell: false`: each command of a session has a shell of its own. The backend of the control keeps its shell."""
import os
import uuid

import pytest

import apilib
import placelib
from farlib import processes_with, wait_until
from placelib import Session


@pytest.fixture(scope="module")
def places():
    work = apilib.borrow_dir()
    (work / "config.yaml").write_text('terminal: {backend: local, persistent_shell: false, hermes_keys: ["*"]}\n')
    settings = work / "hermes.conf"
    settings.write_text("[backend kept]\nkind = local\nkeys = *\npersistent_shell = yes\n")
    server = apilib.Server(work, args=["--config", str(settings), "--backends", str(work / "config.yaml")]
                           + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    placelib.allow_commands(server, "local", "kept")
    yield server
    server.stop()
    apilib.return_dir(work)


def test_only_the_directory_goes_on(places):
    look = "echo [$x$Y] $COLOUR $PWD; type -t f; shopt -po errexit nounset; trap -p; umask; echo $?"
    change = "x=5; export Y=6; f() { :; }; umask 0; trap 'echo bye' EXIT; cd /usr; set -u; (exit 7)"
    with Session(places, "local", env={"COLOUR": "blue"}) as s, Session(places, "kept", env={"COLOUR": "blue"}) as control:
        fresh = s.exec(look)["stdout"]
        found = s.exec(change)
        assert (found["stdout"], found["exit_code"], found["state_lost"], found["cwd"]) == ("bye\n", 7, False, "/usr"), found
        lines = s.exec(look)["stdout"].splitlines()
        assert lines[0] == "[] blue /usr" and lines[1:] == fresh.splitlines()[1:]
        assert control.exec(change)["stdout"] == ""
        assert control.exec("echo [$x$Y] $COLOUR $PWD; type -t f; umask")["stdout"] == "[56] blue /usr\nfunction\n0000\n"


def test_a_shell_that_ends_in_any_way_is_followed_by_another(places):
    with Session(places, "local") as s:
        s.exec("cd /usr")
        for code, status in (("exit 3", 3), ("exec false", 1), ("kill -9 $$", 137), ("set -e; false; echo no", 1), ("if", 2),
                             ("trap 'while :; do :; done' EXIT", 0)):
            found = s.exec(code)
            assert (found["stdout"], found["exit_code"], found["state_lost"]) == ("", status, False), (code, found)
            assert s.exec("echo $PWD; cat", stdin="given")["stdout"] == "/usr\ngiven"
        s.exec('builtin() { [ "$1" = exit ] || command builtin "$@"; }')  # a shell that does not end
        assert s.exec("type -t builtin")["stdout"] == "builtin\n"
        found = s.exec("x=1; sleep 1000", timeout_ms=500)
        assert found["status"] == "time_limit" and not found["state_lost"]
        assert s.exec("echo [$x]")["stdout"] == "[]\n"


def test_a_directory_that_is_gone_does_not_hold_up_the_next(places):
    with Session(places, "local") as s:
        assert s.exec("d=$(mktemp -d); cd $d; rmdir $d")["exit_code"] == 0
        assert s.exec("cd /usr && pwd")["stdout"] == "/usr\n"


def test_what_runs_in_the_background_ends_with_the_session(places):
    word = "6%d" % (uuid.uuid4().int % 10**8)
    with Session(places, "local") as s:
        s.exec("sleep %s >/dev/null 2>&1 &" % word)
        wait_until(lambda: processes_with(word), "it runs")
        assert s.exec("echo next")["stdout"] == "next\n" and processes_with(word)
    wait_until(lambda: not processes_with(word), "nothing is left")
