# SPDX-License-Identifier: Apache-2.0
"""hermes and the programs that lie beside it: found wherever it is started from, and what is said where one is not."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HERMES_BUILD_DIR", "build")


def hermes(program, *args, env=(), **kwargs):
    env = {"PATH": "/usr/bin:/bin", **dict(env)}
    env.update({name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ})
    return subprocess.run([str(program), *args], env=env, capture_output=True, text=True, timeout=60, **kwargs)


@pytest.mark.parametrize("kind, mode, why", [
    ("missing", 0, "No such file or directory"), ("text", 0o755, "Exec format error"), ("text", 0o644, "Permission denied"),
    ("directory", 0o755, "Permission denied"), ("below a file", 0, "Not a directory")])
def test_why_the_spawner_did_not_start(tmp_path, kind, mode, why):
    """By the word of who tried, whoever asks."""
    path = tmp_path / "hermes-spawn"
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_text("no program\n")
        path.chmod(mode or 0o755)
    path = path / "x" if kind == "below a file" else path
    (tmp_path / "hello.sh").write_text("echo hello\n")
    for command in (["doctor"], ["run", str(tmp_path / "hello.sh")]):
        done = hermes(BUILD / "hermes", *command, env={"HERMES_SPAWN": str(path), "HERMES_STATE_DIR": str(tmp_path / "state")})
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr == "hermes %s: cannot start %s: %s; it belongs beside the hermes program\n" % (command[0], path, why)


def test_a_program_alone(tmp_path):
    """hermes without the others: each is missed by its name, beside it."""
    program = tmp_path / "hermes"
    shutil.copy(BUILD / "hermes", program)
    done = hermes(program, "doctor", cwd="/")
    assert done.returncode == 125 and "cannot start %s/hermes-spawn: No such file or directory" % tmp_path in done.stderr
    for command, other in (("serve", "hermes-prepare"), ("session", "hermes-session")):
        done = hermes(program, command, cwd="/")
        assert (done.returncode, done.stderr) == (
            125, "hermes %s: cannot start %s/%s: No such file or directory; is it installed?\n" % (command, tmp_path, other))


def test_through_a_link(tmp_path):
    """What counts is where the program lies, not the name that it was called by."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hermes").symlink_to(BUILD / "hermes")
    assert hermes(tmp_path / "bin" / "hermes", "doctor", cwd="/").returncode in (0, 1)
    assert "python" in hermes(tmp_path / "bin" / "hermes", "runtimes", cwd="/").stdout
    assert "usage: hermes session" in hermes(tmp_path / "bin" / "hermes", "session", "--help", cwd="/").stdout
