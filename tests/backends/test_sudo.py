# SPDX-License-Identifier: Apache-2.0
"""`sudo` in the shell of a session, on this machine and behind ssh. The user that needs a password for it exists only in the /etc of a mount
namespace. The cases `stand-in` use a small program that asks as sudo does; they say nothing about setuid programs, the cases `real` do."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import apilib
import farlib
import placelib
import ptylib
from netlib import Namespace
from placelib import Session, need

USER, UID = "hermes-sudo", 20031
PASSWORD = "right word"

SETTINGS = """
[backend here]
kind = local
keys = *
[backend plain]
kind = local
keys = *
sudo = no
[backend far]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
"""

STAND_IN = """#!/usr/bin/python3
import os, sys
words, options = sys.argv[1:], set()
while words and words[0].startswith("-"):
    options.add(words[0])
    del words[:2 if words[0] == "-p" else 1]
fd = 0
if "-n" in options:
    sys.exit("sudo: a password is required")
if "-S" not in options:
    try:
        fd = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        sys.exit("sudo: a terminal is required to read the password")
    os.write(fd, b"[sudo] password for {user}: ")
given = b""
while not given.endswith(b"\\n"):
    byte = os.read(fd, 1)
    if not byte:
        break
    given += byte
if given != b"{password}\\n":
    sys.exit("sudo: 1 incorrect password attempt")
os.environ["SUDO_USER"] = "{user}"
os.execvp(words[0], words)
"""

# In the namespace: a user with a password, and what sudo reads.
SCRIPT = """set -e
mount -t tmpfs tmpfs {dir}/etc
mkdir {dir}/etc/upper {dir}/etc/work {dir}/etc/ts
mount -t overlay overlay -o lowerdir=/etc,upperdir={dir}/etc/upper,workdir={dir}/etc/work /etc
echo '{user}:x:{uid}:{uid}::{dir}/home:/bin/bash' >>/etc/passwd
echo '{user}:x:{uid}:' >>/etc/group
echo '{user}:{hash}:19000:0:99999:7:::' >>/etc/shadow
rm -f /etc/sudoers
printf '%s\\n' 'Defaults timestampdir={dir}/etc/ts, lecture=never, timestamp_timeout=0, !fqdn' '{user} ALL=(ALL) ALL' >/etc/sudoers
chmod 440 /etc/sudoers
mkdir -p /etc/pam.d
printf '%s\\n' 'auth required pam_unix.so nodelay' 'account required pam_permit.so' 'session required pam_permit.so' >/etc/pam.d/sudo
ip link set lo up"""


def sudo_problem():
    return None if os.access("/usr/bin/sudo", os.X_OK) else "the package sudo is not installed: make install-deps"


@pytest.fixture(scope="module")
def places():
    if os.geteuid() != 0:
        pytest.skip("needs root: the test mounts, and has a user of its own")
    need(farlib.sshd_problem())
    top = pathlib.Path(tempfile.mkdtemp(prefix="hermes-sudo-"))
    top.chmod(0o755)
    for name in ("etc", "home", "bin"):
        (top / name).mkdir()
    os.chown(top / "home", UID, UID)
    stand_in = top / "bin/sudo"
    stand_in.write_text(STAND_IN.format(user=USER, password=PASSWORD))
    stand_in.chmod(0o755)
    hashed = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True).stdout.strip()
    namespace, sshd, work, server = Namespace(), None, apilib.borrow_dir(), None
    try:
        namespace.run("sh", "-c", SCRIPT.format(dir=top, user=USER, uid=UID, hash=hashed))
        sshd = farlib.Sshd(enter=namespace.enter())
        sshd.dir.chmod(0o755)
        (sshd.dir / "user").chmod(0o644)
        settings = work / "backends.conf"
        settings.write_text(SETTINGS.format(port=sshd.port, user=USER, dir=sshd.dir))
        server = apilib.Server(work, args=["--backends", str(settings), "--backends-user", USER], tcp=False,
                               command=[*namespace.enter(), apilib.MONITOR])
        server.stand_in = stand_in.parent
        placelib.allow_commands(server, "here", "plain", "far")
        yield server
    finally:
        if server:
            server.stop()
        if sshd:
            sshd.close()
        namespace.end()
        apilib.return_dir(work)
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(params=["real", "stand-in"])
def kind(request):
    if request.param == "real":
        need(sudo_problem())
    return request.param


@pytest.fixture(params=["here", "far"])
def session(places, kind, request):
    path = "/usr/bin:/bin" if kind == "real" else "%s:/usr/bin:/bin" % places.stand_in
    with Session(places, request.param, env={"PATH": path, "HISTFILE": "/dev/null"}) as s:
        s.id = s.json["id"]
        yield s


def test_sudo_takes_a_password_from_stdin(session, kind):
    session.exec("kept=yes; cd /usr")
    found = session.exec("sudo -S -p '' sh -c 'echo $SUDO_USER; id -u'", stdin=PASSWORD + "\n")
    assert found["exit_code"] == 0, found
    user, uid = found["stdout"].split()
    assert user == USER and (uid == "0") == (kind == "real")
    assert session.exec("echo $kept $PWD; id -u")["stdout"] == "yes /usr\n%d\n" % UID  # the shell itself is what it was
    # What follows the password is for the program.
    assert session.exec("sudo -S -p '' cat", stdin=PASSWORD + "\nthe rest\n")["stdout"] == "the rest\n"


@pytest.mark.parametrize("code, stdin, words", [("sudo -S -p '' id", "wrong\n", "incorrect password attempt"),
                                                ("sudo -n id", None, "a password is required"),
                                                ("sudo id", None, "a terminal is required to read the password")],
                         ids=["wrong", "never", "no terminal"])
def test_without_the_password_sudo_says_no_and_the_session_goes_on(session, code, stdin, words):
    session.exec("kept=yes")
    found = session.exec(code, **({"stdin": stdin} if stdin else {}))
    assert found["exit_code"] == 1 and found["stdout"] == "" and words in found["stderr"], found
    assert session.exec("echo $kept")["stdout"] == "yes\n"


class Terminal(ptylib.Terminal):
    prompt = r"(?:[\w-]+@[\w-]+:[^ ]*|bash-[\d.]+)[$#] "


def test_sudo_asks_at_a_terminal(session):
    with Terminal(session) as t:
        t.send("sudo sh -c 'echo by $SUDO_USER'\n")
        t.until(r"\[sudo\] password for %s: " % USER)
        t.send(PASSWORD + "\n")
        t.until("by %s\r\n" % USER)
        t.until(t.prompt)


def test_sudo_can_be_switched_off(places):
    """The control is the same user in the backend beside it, where sudo comes as far as its question for the password."""
    need(sudo_problem())
    with Session(places, "plain") as s, Session(places, "here") as control:
        assert '"no new privileges" flag is set' in s.exec("sudo -n id")["stderr"]
        assert "a password is required" in control.exec("sudo -n id")["stderr"]
        for session, value in (s, "1"), (control, "0"):
            assert session.exec("grep NoNewPrivs /proc/self/status")["stdout"].split()[1] == value
            # Either way the command has no right of its own that the user has not.
            assert session.exec("grep Cap[PEIA] /proc/self/status | cut -f2 | sort -u")["stdout"] == "0000000000000000\n"


def test_only_the_starter_can_execute_setuid_programs(places):
    """All other processes of hermes-places, which talk to the server and to far machines, have no_new_privs."""
    with Session(places, "here"), Session(places, "far"):
        seen = {}
        for pid in apilib.descendants(places.process.pid):
            fields = dict(line.split(":\t", 1) for line in apilib.status_of(pid).splitlines() if ":\t" in line)
            if fields.get("Name") == "hermes-places":
                seen.setdefault(fields["NoNewPrivs"], []).append((pid, fields["Seccomp"]))
        assert len(seen["0"]) == 1 and len(seen["1"]) >= 3, seen
        assert all(filtered == "2" for _, filtered in seen["1"]), seen


def test_the_starter_is_replaced_when_it_dies(places):
    def starter():
        for pid in apilib.descendants(places.process.pid):
            status = apilib.status_of(pid)
            if "Name:\thermes-places\n" in status and "NoNewPrivs:\t0\n" in status:
                return pid
        return None
    first = starter()
    os.kill(first, 9)
    apilib.wait_until(lambda: starter() not in (None, first))

    def works():
        reply = places("POST", "/v1/sessions", {"language": "bash", "backend": "here"})
        if reply.status != 201:
            return False
        places("DELETE", "/v1/sessions/" + reply.json()["id"])
        return True
    apilib.wait_until(works)
