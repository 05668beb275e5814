# SPDX-License-Identifier: Apache-2.0
"""Whose files the monitor obeys, and who may read what the server keeps."""
import os
import pwd
import re
import subprocess

import pytest

from apilib import MONITOR, SLOW, make_dir, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of other users")
OTHER = 1234


def start(cwd, *args, **env):
    """A start that ends by itself: a setting is wrong on purpose."""
    return subprocess.run([str(MONITOR), "--port", "wrong", *args], cwd=cwd, capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", **env}, timeout=60 * SLOW)


@pytest.fixture
def place():
    return make_dir()


def write(path, text, uid=0, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


@pytest.mark.parametrize("uid,mode,remedy", [(OTHER, 0o600, "chown 0 .env"), (0, 0o666, "chmod go-w .env"),
                                             (0, 0o660, "chmod go-w .env")])
def test_an_env_file_of_somebody_else(place, uid, mode, remedy):
    write(place / ".env", "HERMES_QUEUE=many\n", uid, mode)
    got = start(place)
    assert got.returncode == 2 and remedy in got.stderr and "HERMES_QUEUE" not in got.stderr, got.stderr
    write(place / ".env", "HERMES_QUEUE=many\n")  # the control: it is read
    assert "HERMES_QUEUE" in start(place).stderr


def test_the_user_who_became_root_is_obeyed(place):
    write(place / ".env", "HERMES_QUEUE=many\n", OTHER)
    assert "HERMES_QUEUE" in start(place, SUDO_UID=str(OTHER)).stderr
    assert "chown 0 .env" in start(place, SUDO_UID=str(OTHER + 1)).stderr


def test_a_link_of_somebody_else(place):
    write(place / "real", "HERMES_QUEUE=many\n")
    (place / ".env").symlink_to("real")
    assert "HERMES_QUEUE" in start(place).stderr
    os.chown(place / ".env", OTHER, OTHER, follow_symlinks=False)
    got = start(place)
    assert "is not believed" in got.stderr and "HERMES_QUEUE" not in got.stderr


def test_files_that_settings_name(place):
    """The settings file and the keys file, whoever names them."""
    conf = write(place / "conf", "queue = many\n[mount home]\npath = /root\nmode = rw\n", OTHER)
    keys = write(place / "keys", "[a]\nhat = red\n", OTHER)
    write(place / ".env", "HERMES_CONFIG=%s\nHERMES_KEYS_FILE=%s\n" % (conf, keys))
    got = start(place)
    assert "chown 0 %s" % conf in got.stderr and "chown 0 %s" % keys in got.stderr
    assert "queue" not in got.stderr and "hat" not in got.stderr
    os.chown(conf, 0, 0)
    os.chown(keys, 0, 0)
    got = start(place)  # the control
    assert "queue" in got.stderr and "hat" in got.stderr


def can_read(path, uid):
    def become():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    return subprocess.run(["/usr/bin/head", "-c", "1", str(path)], preexec_fn=become,
                          capture_output=True).returncode == 0


def uid_of(pid):
    with open("/proc/%d/status" % pid) as status:
        return int(re.search(r"^Uid:\s+(\d+)", status.read(), re.M)[1])


def test_the_server_has_an_id_of_its_own(make_server):
    """Other services run as nobody, and must not read the results of all keys."""
    try:
        pwd.getpwnam("hermes")
        pytest.skip("there is a user hermes")
    except KeyError:
        pass
    nobody = pwd.getpwnam("nobody").pw_uid
    server = make_server()
    history = server.state / "server" / "history.db"
    assert server.works() and wait_until(history.exists)
    own = uid_of(server.child("hermes-server"))
    assert 65520 <= own <= 65533 and own != nobody
    assert history.stat().st_uid == own and (server.state / "server").stat().st_mode & 0o777 == 0o700
    assert not can_read(history, nobody)
    server.stop()
    # The control: where the server is nobody, every nobody reads. The tree changes its owner whole.
    server.args += ["--user", "nobody"]
    server.start()
    assert server.works() and uid_of(server.child("hermes-server")) == nobody
    owners = {p.lstat().st_uid for p in [server.state / "server", *(server.state / "server").rglob("*")]}
    assert owners == {nobody} and can_read(history, nobody)
    server.stop()
    server.args = server.args[:-2]
    server.start()
    assert server.works() and not can_read(history, nobody)
