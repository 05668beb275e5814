# SPDX-License-Identifier: Apache-2.0
"""`docker_mount_cwd_to_workspace` with a real engine and `hermes exec` without a server: the caller's directory is /workspace, and the
container then is no box."""
import pytest

import enginelib
from apilib import wait_until
from test_own_server import caller  # noqa: F401 (a fixture)
from placelib import WHOLE

pytestmark = pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")


@pytest.fixture(params=["docker", "podman"])
def engine(request, engine_of):
    return engine_of(request.param)


def configure(caller, engine, **keys):  # noqa: F811
    caller.config(backend="docker", docker_image=enginelib.IMAGE, container_memory=256, **keys)
    caller.env["DOCKER_SOCKET"] = str(engine.socket)


def mounts(engine, container):
    made = engine.inspect(container)
    return made["HostConfig"]["Binds"] or [], [each["Source"] for each in made["Mounts"] if each["Type"] == "bind"]


def test_the_directory_of_the_caller_is_the_workspace(caller, engine):  # noqa: F811
    configure(caller, engine, docker_mount_cwd_to_workspace=True)
    (caller.work / "theirs").write_text("from outside\n")
    code = "cat theirs; pwd; echo from inside >made; until [ -e go ]; do sleep 0.05; done; exit 3"
    refused = caller("exec", "--", "sh", "-c", code)
    assert refused.returncode == 2 and "--yes" in refused.stderr and not (caller.work / "made").exists(), refused
    before = {one["Id"] for one in engine.containers()}
    process = caller.start("exec", "--own-server", "--yes", "--", "sh", "-c", code, stdout=-1, stderr=-1)
    try:
        assert wait_until(lambda: (caller.work / "made").exists() or process.poll() is not None) and process.poll() is None
        [mine] = {one["Id"] for one in engine.containers()} - before
        binds, sources = mounts(engine, mine)
        assert len(binds) == 1 and binds[0].split(":")[:2] == [str(caller.work), "/workspace"] and sources == [str(caller.work)]
        (caller.work / "go").touch()
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (out, process.returncode) == ("from outside\n/workspace\n", 3), err
    assert (caller.work / "made").read_text() == "from inside\n"
    assert {one["Id"] for one in engine.containers()} == before


def test_without_it_nothing_of_the_machine_is_in_the_container(caller, engine):  # noqa: F811
    """And the container is a box: nothing is asked."""
    configure(caller, engine)
    (caller.work / "theirs").touch()
    before = {one["Id"] for one in engine.containers()}
    process = caller.start("exec", "--own-server", "--", "sh", "-c", "pwd; ls; echo ready; exec sleep 1000", stdout=-1)
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["/workspace\n", "ready\n"]
        [mine] = {one["Id"] for one in engine.containers()} - before
        assert mounts(engine, mine) == ([], [])
    finally:
        process.terminate()
        process.wait()
    assert wait_until(lambda: {one["Id"] for one in engine.containers()} == before)
