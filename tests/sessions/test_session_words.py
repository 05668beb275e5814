# SPDX-License-Identifier: Apache-2.0
"""`hermes session`: arguments that no server could be told, and output that nobody gets."""
import os
import subprocess

import pytest

from apilib import HERMES, SLOW
from sessionlib import Session

BAD = b"caf\xe9"


@pytest.fixture
def hermes(server, tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HERMES_UNIX": str(server.unix), "LC_ALL": "C.UTF-8"}
    env.update({name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ})

    def run(*args, stdin=b"", stdout=subprocess.PIPE):
        return subprocess.run([str(HERMES), "session", *args], input=stdin, env=env, stdout=stdout, stderr=subprocess.PIPE,
                              timeout=60 * SLOW)
    return run


def test_words_that_are_no_text(hermes, server):
    """They are refused; the server is not asked for something else instead."""
    one = Session(server, "python")
    for what, args in (("NAME", ["checkpoint", one.id, BAD]), ("NAME", ["rollback", one.id, BAD]),
                       ("--name", ["new", "--name", BAD]), ("--language", ["new", "-l", BAD]),
                       ("--env", ["new", "-E", b"A=" + BAD]), ("--env", ["new", "-E", BAD + b"=b"]),
                       ("--code", ["exec", one.id, "-e", b"print('" + BAD + b"')"])):
        done = hermes(*args)
        assert done.returncode == 2 and done.stdout == b"", done
        assert done.stderr.decode().startswith("hermes session: %s is not valid UTF-8\n" % what), done
    done = hermes("exec", one.id, stdin=BAD)
    assert done.returncode == 2 and done.stderr == b"hermes session: code is not valid UTF-8\n"
    assert one.call("GET", "/checkpoints").json()["checkpoints"] == []
    assert len(server("GET", "/v1/sessions").json()["sessions"]) == 1
    assert one.state()["execution_count"] == 0


def test_memory_is_rounded_as_run_does(hermes, server):
    """Up: nobody gets less than was asked for."""
    for size, memory_mb in (("67108865", 65), ("64m", 64), ("65537k", 65)):
        one = hermes("new", "-l", "bash", "--memory", size).stdout.decode().strip()
        assert server("GET", "/v1/sessions/" + one).json()["limits"]["memory_mb"] == memory_mb, size


def test_code_that_is_too_large(hermes, server, tmp_path):
    one = Session(server, "bash")
    large = tmp_path / "large"
    with open(large, "wb") as f:
        f.truncate((16 << 20) + 1)
    for args, name in (([str(large)], str(large)), (["-e", "true", "--stdin", str(large)], str(large))):
        done = hermes("exec", one.id, *args)
        assert (done.returncode, done.stderr.decode()) == (2, "hermes session: %s is larger than 16 MiB\n" % name)
    done = hermes("exec", one.id, stdin=b" " * ((16 << 20) + 1))
    assert (done.returncode, done.stderr) == (2, b"hermes session: stdin is larger than 16 MiB\n")


def test_output_that_nobody_gets(hermes, server):
    one = Session(server, "bash")
    for args in (["ls"], ["ls", "--json"], ["new"], ["jobs", one.id, "--json"], ["exec", one.id, "-e", "echo x"],
                 ["exec", one.id, "--json", "-e", "echo x"], ["ls-files", "--json", one.id]):
        assert hermes(*args).returncode == 0, args
        with open("/dev/full", "wb") as full:
            done = hermes(*args, stdout=full)
        assert done.returncode == 125, (args, done)
        assert done.stderr == b"hermes session: cannot write the output: No space left on device\n"
