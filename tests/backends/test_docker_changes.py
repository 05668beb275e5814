# SPDX-License-Identifier: Apache-2.0
"""Images that are removed and settings that change behind sessions on containers: a session stays where it is, or ends; it never goes on
in another place."""
import pytest

import enginelib
from farlib import wait_until
from placelib import Session, WHOLE, engine_row

pytestmark = pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")


@pytest.fixture(params=["docker", "podman"])
def engine(request, engine_of):
    return engine_of(request.param)


TAR = enginelib.image_tar({"mark": b"an image of its own"})


@pytest.fixture
def leaves(engine):
    """An image of this test's own."""
    name = "leaves:latest"
    engine.load(name, TAR)
    yield name
    remove(engine, name)


def remove(engine, name):
    """Takes the name from the image, as `docker rmi -f` does for one in use. Podman's API would remove its containers, too."""
    how = ("DELETE", "/v1.41/images/%s?force=1" % name) if engine.kind == "docker" else ("POST", "/v4.0.0/libpod/images/%s/untag" % name)
    return engine(*how)


def containers(engine, *backends):
    return {one["Id"] for one in engine.containers() if one["Labels"]["hermes-backend"] in backends}


def failure(server, backend, key=None):
    reply = server("POST", "/v1/sessions", {"language": "bash", "backend": backend}, key=key)
    assert reply.status == 502, reply
    return reply.json()["error"]


def discard(engine, *backends):
    for one in containers(engine, *backends):
        engine("DELETE", "/v1.41/containers/%s?force=1" % one)


KEYS = ["a" * 20, "b" * 20]


def test_an_image_that_is_removed_behind_a_session(engine, leaves, serve_engine):
    server = serve_engine(engine_row("leaves", engine, docker_image=leaves) + engine_row("own", engine, docker_image=leaves, container_persistent="no"),
                          env={"HERMES_API_KEYS": ",".join(KEYS)})

    def mine(method, path, body=None):
        return server(method, path, body, key=KEYS[0])
    try:
        with Session(mine, "leaves") as s:
            s.exec("kept=yes; echo work >/workspace/file")
            before = containers(engine, "leaves", "own")
            status, answer = remove(engine, leaves)
            assert status in (200, 201), answer
            assert s.out("echo $kept; cat /workspace/file") == "yes\nwork\n"
            with Session(mine, "leaves") as other:  # in the same container
                assert other.out("cat /workspace/file") == "work\n"
            for backend, key in (("leaves", KEYS[1]), ("own", KEYS[0])):
                error = failure(server, backend, key)
                assert error["detail"] == {"kind": "not_found"} and "docker pull " + leaves in error["message"], error
            assert s.out("echo $kept") == "yes\n" and s.look()["backend"]["state"] == "ready"
            assert containers(engine, "leaves", "own") == before  # none was made, from no other image
            engine.load(leaves, TAR)  # the control
            with Session(mine, "own") as other:
                assert other.out("echo fine") == "fine\n"
    finally:
        server.stop()
        discard(engine, "leaves", "own")


def test_a_session_does_not_go_on_under_other_settings(engine, serve_engine):
    """A kept container is stopped when it is idle; the server begins again with another row. The container and its files stay as they are."""
    def row(**lines):
        return engine_row("changes", engine, container_idle_s=2, reconnect_s=1, **lines)
    server = serve_engine(row())
    file = server.work / "backends.conf"
    try:
        s = Session(server, "changes")
        s.exec("echo work >/workspace/file")
        [kept] = containers(engine, "changes")
        server.stop()

        def begin_again(text):
            file.write_text(text)
            server.start()
            found = server("POST", s.path + "/exec", {"code": "echo ran >>/workspace/file"})
            assert found.status in (404, 409), found
            return found
        begin_again(row())
        wait_until(lambda: not engine.inspect(kept)["State"]["Running"], "the idle one is stopped", 180)
        server.stop()
        begin_again(row(container_memory=128) + engine_row("elsewhere", engine))
        error = failure(server, "changes")
        old = engine.inspect(kept)["Config"]["Labels"]["hermes-config"]
        assert error["detail"] == {"kind": "refused"} and "made with other settings (%s, now " % old[:12] in error["message"], error
        new = error["message"].split(", now ")[1][:12]
        assert set(new) <= set("0123456789abcdef") and new != old[:12]
        assert containers(engine, "changes", "elsewhere") == {kept} and not engine.inspect(kept)["State"]["Running"]
        server.stop()
        begin_again(engine_row("elsewhere", engine))  # the row is gone
        assert server("POST", "/v1/sessions", {"language": "bash", "backend": "changes"}).status == 404
        assert containers(engine, "changes", "elsewhere") == {kept}
        server.stop()
        begin_again(row())  # the control: nothing of it has run, and the container works
        with Session(server, "changes") as again:
            assert again.out("cat /workspace/file") == "work\n" and containers(engine, "changes") == {kept}
    finally:
        server.stop()
        discard(engine, "changes", "elsewhere")
