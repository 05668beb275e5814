# SPDX-License-Identifier: Apache-2.0

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
    if problem := farlib.sshd_problem():
        pytest.skip(problem)
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


SETTINGS = """
[backend here]
kind = local
keys = *
cwd = {cwd}
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
[backend hostile]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/hostile
known_hosts = {dir}/known_hosts
[backend secret]
kind = local
keys = nobody-has-this-name
"""


@pytest.fixture(scope="module")
def places(sshd):
    """A server with backends, and the directory in which their commands start."""
    work = apilib.borrow_dir()
    cwd = pathlib.Path(tempfile.mkdtemp(prefix="hermes-place-"))
    for path in (cwd, sshd.dir):
        path.chmod(0o755)
    cwd.chmod(0o777)
    for name in ("user", "wrong", "hostile"):
        (sshd.dir / name).chmod(0o644 if os.geteuid() == 0 else 0o600)  # ssh refuses open ones of its own user
    settings = work / "backends.conf"
    settings.write_text(SETTINGS.format(cwd=cwd, port=sshd.port, user=sshd.user, dir=sshd.dir))
    args = ["--backends", str(settings)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else [])
    server = apilib.Server(work, args=args)
    server.place_dir = cwd
    placelib.allow_commands(server, "here", "far", "brief", "hostile")
    yield server
    server.stop()
    apilib.return_dir(work)
    shutil.rmtree(cwd, ignore_errors=True)


# Daemons are heavy: `make test-backends` runs everything with them, `make test` one short case.
WHOLE = bool(os.environ.get("HERMES_BACKENDS") or os.environ.get("HERMES_FULL"))


@pytest.fixture(scope="session")
def engine_of():
    """Starts an engine of containers when it is first asked for: engine_of("docker"), engine_of("podman")."""
    running = {}

    def get(kind):
        if problem := enginelib.problem(kind):
            pytest.skip(problem)
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
