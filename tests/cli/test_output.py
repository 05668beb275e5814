# SPDX-License-Identifier: Apache-2.0
"""What commands print has to arrive: a full device is an error, a reader that left ends them quietly."""
import hashlib
import hmac
import json
import os
import pathlib
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERMES = ROOT / os.environ.get("HERMES_BUILD_DIR", "build") / "hermes"
KEY = "a key"


def signed():
    """An answer as docs/judging.md says that the server signs it."""
    answer = {"verdict": "accepted", "signature": {"algorithm": "hmac-sha256", "request_sha256": "0" * 64}}
    text = json.dumps(answer, sort_keys=True, separators=(",", ":"))
    answer["signature"]["value"] = hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()
    return json.dumps(answer)


@pytest.fixture
def work(tmp_path):
    (tmp_path / "hello.sh").write_text("echo hello\n")
    (tmp_path / "1.in").write_text("\n")
    (tmp_path / "1.out").write_text("hello\n")
    (tmp_path / "answer").write_text(signed())
    return tmp_path


COMMANDS = [
    ["version"], ["help"], ["doctor"], ["doctor", "--json"], ["runtimes"], ["runtimes", "--json"],
    ["run", "--help"], ["run", "hello.sh"], ["run", "--json", "hello.sh"], ["judge", ".", "hello.sh"],
    ["judge", "--json", ".", "hello.sh"], ["verify", "answer"], ["selftest", "O-01"], ["selftest", "--json", "O-01"],
    ["bench", "-l", "bash", "-n", "1", "--no-load"], ["bench", "-l", "bash", "-n", "1", "--no-load", "--json"],
    ["session", "--help"],
]


def hermes(args, work, **kwargs):
    env = {"PATH": "/usr/bin:/bin", "HERMES_STATE_DIR": str(work / "state"), "HERMES_SIGNING_KEY": KEY}
    env.update({name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ})
    return subprocess.run([str(HERMES), *args], cwd=work, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          timeout=120, **kwargs)


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_nobody_gets_it(work, args):
    done = hermes(args, work, stdout=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout, done
    with open("/dev/full", "wb") as full:
        done = hermes(args, work, stdout=full)
    assert done.returncode == 125, done
    assert done.stderr == "hermes %s: cannot write the output: No space left on device\n" % args[0]
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = hermes(args, work, stdout=theirs)
    finally:
        os.close(theirs)
    assert done.returncode == 128 + signal.SIGPIPE and done.stderr == "", done


@pytest.mark.parametrize("options, message", [
    (["--key-file", "key", "answer"], "key is larger than 4096 bytes"),
    (["--key-file", ".", "answer"], "cannot read .: Is a directory"),
    (["--key-file", "none", "answer"], "cannot read none: No such file or directory"),
    (["none"], "cannot read none: No such file or directory"),
])
def test_files_that_verify_cannot_read(work, options, message):
    (work / "key").write_text("k" * 4097)
    done = hermes(["verify", *options], work, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "hermes verify: %s\n" % message)
    (work / "key").write_text("k" * 4096)
    assert hermes(["verify", "--key-file", "key", "answer"], work).returncode == 1  # read, and another key


def test_a_program_that_is_too_large(work):
    with open(work / "large.py", "wb") as f:
        f.truncate((512 << 20) + 1)
    done = hermes(["run", "large.py"], work)
    assert (done.returncode, done.stderr) == (2, "hermes run: large.py is larger than 512 MiB\n")
    done = hermes(["run", "."], work)
    assert (done.returncode, done.stderr) == (2, "hermes run: . is a directory; name the file to run\n")
