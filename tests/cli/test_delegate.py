# SPDX-License-Identifier: Apache-2.0
"""hermes asks a systemd user session for a delegated control group by itself. There is no systemd on
the build machines: a stand-in for systemd-run shows what it would be asked; that the delegated group
is then used is shown by tests/attacks (rootless) and in the virtual machine."""

import os
import pathlib
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HERMES_BUILD_DIR", "build")
USER = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def folder():
    """Others can read it; each pytest that starts closes pytest's own directory to them."""
    with tempfile.TemporaryDirectory(prefix="hermes-delegate-") as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


@pytest.fixture
def session(folder):
    (folder / "systemd").mkdir()
    (folder / "systemd/private").touch()
    fake = folder / "systemd-run"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 42\n')
    fake.chmod(0o755)
    return folder


# A mount namespace in which the host has control groups of version 2 only.
PURE_V2 = """[ "$(stat -f -c %%T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup || exit
exec setpriv --reuid %d --regid %d --clear-groups "$@\"""" % (USER, USER)


def run(session, *first, **env):
    env = {"PATH": f"{session}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(session), "HERMES_STATE_DIR": str(session / "state"), **env}
    return subprocess.run(["unshare", "--mount", "sh", "-c", PURE_V2, "sh", "env", "-i", *["%s=%s" % row for row in env.items()],
                           BUILD / "hermes", *first, "run", "--time", "2s", "x y.py", "a"], capture_output=True, text=True, cwd="/")


def test_the_command_is_executed_again_in_a_scope(session):
    done = run(session)
    assert done.returncode == 42
    assert done.stdout.splitlines() == [
        "--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--",
        str(BUILD / "hermes"), "__in-scope", "run", "--time", "2s", "x y.py", "a"]


def test_only_once(session):
    done = run(session, "__in-scope")
    assert done.returncode == 2 and "cannot read x y.py" in done.stderr


def test_not_where_there_is_no_user_session(session):
    done = run(session, XDG_RUNTIME_DIR="/nonexistent")
    assert done.returncode == 2 and "cannot read x y.py" in done.stderr


def test_without_systemd_run_it_goes_on(session):
    (session / "systemd-run").unlink()
    done = run(session, PATH="/nonexistent")
    assert done.returncode == 2 and "cannot read x y.py" in done.stderr
