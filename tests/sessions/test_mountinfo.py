# SPDX-License-Identifier: Apache-2.0
"""A box sees in /proc where its mounts come from. No box may learn where the state directory is.
The control is a directory of the operator inside the state directory: that path is shown."""
import os
import shutil
import subprocess

import pytest

from apilib import HERMES, ROOT, Server, make_dir
from serving import serve_as
from sessionlib import Session, fork

FILES = ("mountinfo", "mounts", "mountstats")
PYTHON = "".join("print(open('/proc/self/%s').read())\n" % name for name in FILES)
NODE = "const fs = require('fs');" + "".join("console.log(fs.readFileSync('/proc/self/%s', 'utf8'));" % n for n in FILES)
SHELL = "cat " + " ".join("/proc/self/" + name for name in FILES)
C = r"""#include <stdio.h>
int main(void) { int c; FILE *f = fopen("/proc/self/mountinfo", "r"); while ((c = getc(f)) != EOF) putchar(c); return 0; }
"""
PROBES = {"python": PYTHON, "javascript": NODE, "bash": SHELL, "c": C}
# The compiler, too, is in a box: it shows its own table when it fails.
COMPILE = '#include "/proc/self/mountinfo"\n'


def place(server):
    """The last component of the server's directory, which no other path has."""
    return server.work.name


def check(server, text):
    """The probe read a table, and the state directory is not in it."""
    assert "/usr/lib" in text and " /box " in text and " /proc " in text, text
    assert place(server) not in text and "/roots/" not in text, text


@pytest.fixture(scope="module")
def operated():
    """A server with a directory of the operator inside its state directory."""
    work = make_dir()
    shown = work / "state" / "shown"
    shown.mkdir(parents=True)
    os.chmod(work / "state", 0o700)
    conf = work / "conf"
    conf.write_text("[mount shown]\npath = %s\nmode = ro\n" % shown)
    conf.chmod(0o600)
    server = Server(work, args=["--config", str(conf)], env={"HERMES_SESSION_PARKED": "0"})
    yield server
    status = server.stop()
    shutil.rmtree(work)
    assert status == 0


@pytest.mark.parametrize("language", PROBES)
def test_a_run(operated, language):
    answer = operated.run(language, PROBES[language]).json()
    assert answer["status"] == "ok", answer
    check(operated, answer["stdout"])


def test_a_warm_and_a_cold_run(operated):
    starts = set()
    for fields in ({}, {"env": {"LC_COLD": "1"}}):
        answer = operated.run("python", PYTHON, **fields).json()
        starts.add(answer["isolation"]["start"])
        check(operated, answer["stdout"])
    assert starts == {"warm", "cold"}


def test_the_paths_of_a_warm_program(operated):
    """What a warm interpreter has mapped comes from another namespace."""
    code = "import os\nprint(os.readlink('/proc/self/exe'))\nprint(open('/proc/self/maps').read())"
    answer = operated.run("python", code).json()
    assert answer["status"] == "ok" and "python3" in answer["stdout"]
    assert place(operated) not in answer["stdout"] and "/roots/" not in answer["stdout"]


def test_a_compiler(operated):
    answer = operated.run("c", COMPILE).json()
    assert answer["status"] == "compile_error" and "/usr/lib" in answer["compile"]["stderr"], answer
    assert place(operated) not in answer["compile"]["stderr"]


@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
def test_a_session_and_its_copy(operated, language):
    session = Session(operated, language)
    check(operated, session.out(PROBES[language]))
    if language == "python":
        copy = fork(session)
        check(operated, copy.out(PYTHON))
        again = fork(copy)
        check(operated, again.out(PYTHON))
        for made in (again, copy):
            assert made.delete().status == 204
    assert session.delete().status == 204


def test_control_a_mount_of_the_state_directory_is_shown(operated):
    answer = operated.run("bash", SHELL, mounts=[{"name": "shown", "path": "/mnt/shown", "mode": "ro"}]).json()
    assert answer["status"] == "ok" and place(operated) + "/state/shown" in answer["stdout"], answer
    answer = operated.run("bash", "cat /proc/self/mountinfo", mounts=[{"name": "shown", "path": "/mnt/shown", "mode": "ro"}])
    lines = [line for line in answer.json()["stdout"].splitlines() if place(operated) in line]
    assert len(lines) == 1 and " /mnt/shown " in lines[0]


@pytest.mark.skipif(os.geteuid() != 0 or os.environ.get("HERMES_IN_VM"), reason="needs root to become somebody else")
def test_rootless():
    with serve_as(64126, env={"HERMES_SESSION_PARKED": "0"}) as server:
        check(server, server.run("python", PYTHON).json()["stdout"])
        check(server, server.run("bash", SHELL).json()["stdout"])
        session = Session(server)
        check(server, session.out(PYTHON))
        assert session.delete().status == 204


def test_the_command_line():
    work = make_dir()
    try:
        env = dict(os.environ, HERMES_STATE_DIR=str(work / "state"), HERMES_RUNTIMES=str(ROOT / "runtimes"))
        for language in ("python", "bash"):
            done = subprocess.run([HERMES, "run", "-l", language, "-"], input=PROBES[language], env=env,
                                  capture_output=True, text=True, check=True)
            assert " /box " in done.stdout and work.name not in done.stdout, done.stdout
    finally:
        shutil.rmtree(work)


# As `docker run` in docs/deploy.md: namespaces of its own, a root that is read-only, few capabilities, the state directory
# in a volume, which is a directory of the host. (DAC_OVERRIDE is for the top control group, which a real container does not
# use.) The control is the container's own table, where the volume's place is shown.
CONTAINER = r"""
set -eu
mount --make-rprivate /
mount --rbind / "$WORK/root"
mount -o remount,bind,ro "$WORK/root"
mount --bind "$WORK/volume" "$WORK/root/srv"
for dir in run tmp var/tmp; do mount -t tmpfs -o mode=1777 none "$WORK/root/$dir"; done
mount -t proc none "$WORK/root/proc"
cd "$WORK/root"
pivot_root . tmp
cd /
umount -l /tmp
mount -t tmpfs -o mode=1777 none /tmp
export HERMES_STATE_DIR=/srv/state
exec setpriv --bounding-set=-all,+sys_admin,+sys_chroot,+setuid,+setgid,+setpcap,+kill,+chown,+dac_override$TRACE -- sh -c "$INSIDE"
"""
INSIDE = r"""
set -eu
cat /proc/self/mountinfo
echo =run
for language in python bash; do eval "printf '%s' \"\$PROBE_$language\"" | "$HERMES" run -l $language -; echo =run; done
"$HERMES" serve --unix /tmp/socket --listen 127.0.0.1:0 2>/tmp/log &
server=$!
trap 'kill $server; wait $server' EXIT
tries=0
until [ -S /tmp/socket ] || [ $tries -ge 600 ]; do sleep 0.1; tries=$((tries + 1)); done
export HERMES_UNIX=/tmp/socket
id=$("$HERMES" session new -l python) || { cat /tmp/log; exit 1; }
"$HERMES" session exec -e "$PROBE_python" "$id"
echo =run
if [ -n "$TRACE" ]; then
    "$HERMES" session fork "$id" >/tmp/copies
    "$HERMES" session exec -e "$PROBE_python" "$(head -n 1 /tmp/copies)"
else
    ! "$HERMES" session fork "$id" 2>&1
fi
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a container")
@pytest.mark.parametrize("trace", ["", ",+sys_ptrace"], ids=["as documented", "sessions can be copied"])
def test_in_a_container(trace):
    work = make_dir()
    for name in ("root", "volume"):
        (work / name).mkdir()
    (work / "volume").chmod(0o755)
    env = dict(os.environ, TRACE=trace, WORK=str(work), INSIDE=INSIDE, HERMES=str(HERMES), HERMES_RUNTIMES=str(ROOT / "runtimes"),
               HERMES_SESSION_PARKED="0", **{"PROBE_" + language: code for language, code in PROBES.items()})
    try:
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts", "sh", "-c", CONTAINER],
                              env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (done.stdout[-2000:], done.stderr)
        control, *tables = done.stdout.split("=run\n")
        assert work.name + "/volume" in control
        assert len(tables) == 4
        if not trace:
            assert "CAP_SYS_PTRACE" in tables.pop()
        for table in tables:
            assert " /box " in table and work.name not in table and "/roots/" not in table and "/srv" not in table, table
    finally:
        shutil.rmtree(work)
