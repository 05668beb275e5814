# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import pathlib
import shutil
import tempfile

import pytest

import apilib
import enginelib
import farlib
import placelib


@pytest.fixture(scope="module")
def sshd():
    placelib.need(farlib.sshd_problem())
    server = farlib.Sshd()
    yield server
    server.close()


@pytest.fixture
def far(tmp_path):
    """Far shells of all kinds; ends them."""
    made = []

    def make(argv=None, start=True, **options):
        client = farlib.Far("n-%d" % len(made))
        made.append(client)
        client.connect(argv(client.nonce) if argv else [farlib.SHELL, "--stdio", client.nonce], **options)
        if start:
            client.start(str(tmp_path))
        return client
    yield make
    for client in made:
        client.close()


HERE = """
[backend here]
kind = local
keys = *
cwd = {cwd}
[backend secret]
kind = local
keys = nobody-has-this-name
[backend nowhere]
kind = local
keys = *
cwd = /no/such/dir
"""
FAR = """
[backend far]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
cwd = {cwd}
reconnect_s = 30
[backend brief]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
reconnect_s = 0
[backend wrong]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/wrong
known_hosts = {dir}/known_hosts
[backend strange]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = /dev/null
[backend down]
kind = ssh
keys = *
host = 127.0.0.1
port = 1
known_hosts = {dir}/known_hosts
[backend far-nowhere]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/user
known_hosts = {dir}/known_hosts
cwd = /no/such/dir
[backend no-key]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/no-such-key
known_hosts = {dir}/known_hosts
[backend hostile]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/hostile
known_hosts = {dir}/known_hosts
"""


@contextlib.contextmanager
def served(settings, *allowed, **words):
    """A server with backends, and the directory in which their commands start."""
    work = apilib.borrow_dir()
    cwd = pathlib.Path(tempfile.mkdtemp(prefix="hermes-place-"))
    cwd.chmod(0o777)
    path = work / "backends.conf"
    path.write_text(settings.format(cwd=cwd, **words))
    server = apilib.Server(work, args=["--backends", str(path)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    server.place_dir = cwd
    placelib.allow_commands(server, *allowed)
    yield server
    server.stop()
    apilib.return_dir(work)
    shutil.rmtree(cwd, ignore_errors=True)


@pytest.fixture(scope="module")
def near():
    """Places that need no other program."""
    with served(HERE, "here") as server:
        yield server


@pytest.fixture(scope="module")
def places(sshd):
    """Places here and behind ssh."""
    sshd.dir.chmod(0o755)
    for name in ("user", "wrong", "hostile"):
        (sshd.dir / name).chmod(0o644 if os.geteuid() == 0 else 0o600)  # ssh refuses open ones of its own user
    with served(HERE + FAR, "here", "far", "brief", "hostile", port=sshd.port, user=sshd.user, dir=sshd.dir) as server:
        yield server


@pytest.fixture(scope="session")
def engine_of():
    """Starts an engine of containers when it is first asked for: engine_of("docker"), or another of enginelib.KINDS."""
    running = {}

    def get(kind):
        placelib.need(enginelib.problem(kind))
        if kind not in running:
            engine = enginelib.KINDS[kind]()
            running[kind] = engine
            engine.start()
            engine.load()
        return running[kind]
    yield get
    for engine in running.values():
        engine.close()


@pytest.fixture(scope="module")
def serve_engine():
    """A server with backends on engines: serve_engine(text of the settings). Ends them."""
    made = []

    def make(settings, **options):
        work = apilib.borrow_dir()
        path = work / "backends.conf"
        path.write_text(settings)
        server = apilib.Server(work, args=["--backends", str(path)], **options)
        made.append((server, work))
        return server
    yield make
    for server, work in made:
        server.stop()
        apilib.return_dir(work)
