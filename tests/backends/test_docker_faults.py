# SPDX-License-Identifier: Apache-2.0
"""Engines that die, images that lie, streams that flood: nothing is lost that was promised, nothing runs twice, nothing
runs elsewhere, and nothing stays behind."""
import json
import os
import pathlib
import shutil
import socket
import tempfile
import threading
import uuid

import pytest

import enginelib
from farlib import processes_with, wait_until
from placelib import Session, WHOLE, engine_row, need

pytestmark = pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")


@pytest.fixture(params=[True, False], ids=["live-restore", "plain"])
def mortal(request):
    """A dockerd that may be killed."""
    need(enginelib.problem("docker"))
    engine = enginelib.Docker(live_restore=request.param)
    try:
        engine.start()
        engine.load()
        yield engine
    finally:
        engine.close()


def test_a_killed_daemon(mortal, serve_engine):
    """With live-restore the container goes on and so does the command; without it the next daemon ends the container."""
    server = serve_engine(engine_row("box", mortal, reconnect_s=120) + engine_row("once", mortal, container_persistent="no"))
    code = ("for i in 1 2 3 4 5 6; do echo line $i >>/workspace/lines; echo line $i; [ $i = 3 ] && "
            "until [ -e /workspace/go ]; do sleep 0.02; done; done; kept=yes; (exit 9)")
    with Session(server, "box") as s:
        stream = server.connect()
        stream.request("POST", s.path + "/exec", json.dumps({"code": code, "timeout_ms": 300000}), {"Content-Type": "application/json"})
        wait_until(lambda: s.look()["state"] == "busy", "it runs")
        with Session(server, "box") as other:
            wait_until(lambda: other.out("cat /workspace/lines 2>/dev/null").count("\n") == 3, "half of it has run")
        mortal.kill()
        wait_until(lambda: s.look()["backend"]["state"] == "degraded", "degraded")
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "box"})
        assert reply.status == 502 and reply.json()["error"]["detail"] == {"kind": "unreachable"}
        listed = {row["name"]: row for row in server("GET", "/v1/backends").json()["backends"]}
        assert listed["box"]["state"] == "unreachable"
        mortal.start()
        if not mortal.live_restore:
            found = json.loads(stream.getresponse().read())
            assert s.look()["state"] == "dead" and s.look()["backend"]["state"] == "lost", found
            assert server("POST", s.path + "/reset").status == 200  # asked for: the files are still there
            assert s.out("cat /workspace/lines") == "line 1\nline 2\nline 3\n"
            return
        wait_until(lambda: s.look()["backend"]["state"] == "ready", "joined again")
        with Session(server, "box") as other:
            other.exec("touch /workspace/go")
        found = json.loads(stream.getresponse().read())
        stream.close()
        assert found["stdout"] == "".join("line %d\n" % i for i in range(1, 7))
        assert found["exit_code"] == 9 and not found["state_lost"]
        assert s.out("echo $kept; cat /workspace/lines | wc -l").split() == ["yes", "6"]  # nothing ran twice


def test_a_session_that_ends_while_the_daemon_is_dead(mortal, serve_engine):
    """The clean-up removes its container later."""
    server = serve_engine(engine_row("once", mortal, container_persistent="no", container_idle_s=2, reconnect_s=1))
    with Session(server, "once") as s:
        assert s.out("echo here") == "here\n"
        mortal.kill()
    mortal.start()
    wait_until(lambda: not mortal.containers(), "nothing is left", 120)


def test_nothing_is_left_behind(serve_engine):
    """Containers, mounts, processes, control groups of an engine of this test's own."""
    need(enginelib.problem("docker"))
    engine = enginelib.Docker()
    word = "7%d" % (uuid.uuid4().int % 10**8)
    try:
        engine.start()
        engine.load()
        server = serve_engine(engine_row("once", engine, container_persistent="no") + engine_row("kept", engine))
        sessions = [Session(server, name) for name in ("once", "once", "kept")]
        for s in sessions:
            s.exec("(setsid sleep %s &); dd if=/dev/zero of=/workspace/x bs=1M count=2 2>/dev/null" % word)
        assert len(processes_with(word)) == 3 and engine.mounts()
        for s in sessions:
            server("DELETE", s.path)
        wait_until(lambda: not processes_with(word), "no process is left")
        wait_until(lambda: len(engine.containers()) == 1, "only the kept one is left")
        again = Session(server, "once")
        server.stop()  # with a session that is open
        wait_until(lambda: len(engine.containers()) == 1, "the end of the server removes it")
        assert again
    finally:
        directory = str(engine.dir)
        engine.close()
    assert directory not in pathlib.Path("/proc/mounts").read_text() and not os.path.exists(directory)
    assert not processes_with(directory)


# --- hostile images

HOSTILE_SH = b"""#!/bin/busybox sh
# Says of itself what a far shell says, and more.
nonce=$(echo "$2" | /bin/busybox grep -oE '[0-9a-f]{32}' | /bin/busybox head -n 1)
mode=$(/bin/busybox cat /mode)
case $mode in
numbers) printf '\\001%s\\00218446744073709551615\\n' "$nonce" ;;
need) while :; do printf '\\001%s\\002need x86_64\\n' "$nonce"; done ;;
noshell) printf '\\001%s\\002noshell\\n' "$nonce" ;;
flood) /bin/busybox yes ;;
frames) printf '\\001%s\\0020\\n' "$nonce"; printf 'out 99999999999\\n' ;;
garbage) printf '\\001%s\\0020\\n' "$nonce"; exec /bin/busybox cat /dev/urandom ;;
done) printf '\\001%s\\0020\\n' "$nonce"; while :; do printf 'done 2\\n{}'; done ;;
stderr) while :; do echo 'you: are: root' >&2; done ;;
esac
exec /bin/busybox sleep 1000
"""
MODES = ["numbers", "need", "noshell", "flood", "frames", "garbage", "done", "stderr"]


@pytest.mark.parametrize("mode", MODES)
def test_an_image_whose_shell_lies(engine_of, serve_engine, mode):
    engine = engine_of("docker")
    name = "hostile-%s:latest" % mode
    engine.load(name, enginelib.image_tar({"bin/sh": HOSTILE_SH, "mode": mode.encode(), "bin/env": b"#!/bin/busybox sh\nexit 1\n"}))
    server = serve_engine(engine_row("hostile", engine, docker_image=name, container_persistent="no", reconnect_s=1)
                          + engine_row("fine", engine, container_persistent="no"))
    done = threading.Event()

    def try_it():
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "hostile"})
        assert reply.status in (201, 500, 502), reply
        if reply.status == 201:
            server("DELETE", "/v1/sessions/" + reply.json()["id"])
        done.set()
    thread = threading.Thread(target=try_it)
    thread.start()
    with Session(server, "fine") as s:  # it holds nobody up
        assert s.out("echo fine") == "fine\n"
    thread.join(120)
    assert done.is_set()
    wait_until(lambda: not [one for one in engine.containers() if one["Labels"]["hermes-backend"] == "hostile"], "it is removed")
    assert server("GET", "/health").json()["status"] == "ok"
    server.stop()


def test_an_image_without_a_shell_or_bash(engine_of, serve_engine):
    engine = engine_of("docker")
    engine.load("nobash:latest", enginelib.image_tar(bash=False))
    engine.load("nosh:latest", enginelib.image_tar({"bin/sh": b"not a program"}))
    server = serve_engine(engine_row("nobash", engine, docker_image="nobash:latest") + engine_row("nosh", engine, docker_image="nosh:latest"))
    for backend, word in (("nobash", "no bash"), ("nosh", "/bin/sh")):
        error = server("POST", "/v1/sessions", {"language": "bash", "backend": backend}).json()["error"]
        assert error["detail"] == {"kind": "refused"} and word in error["message"], error
    wait_until(lambda: not [one for one in engine.containers() if one["Labels"]["hermes-backend"].startswith("no")], "both are removed")


def test_floods_on_the_stream_are_bounded(engine_of, serve_engine):
    engine = engine_of("docker")
    server = serve_engine(engine_row("box", engine, container_persistent="no"))
    with Session(server, "box") as s, Session(server, "box") as other:
        found = s.exec("yes | head -c 100000000; yes >&2 | head -c 1; cat /dev/urandom | head -c 5000000", timeout_ms=4000)
        assert found["stdout_bytes"] + found["stderr_bytes"] > 50000000 or found["status"] == "time_limit"
        assert other.out("echo fine") == "fine\n" and s.out("echo fine") == "fine\n"
        s.exec("cat /dev/zero >/proc/1/fd/1 2>/dev/null", timeout_ms=1000)  # the engine keeps no log
        made = engine.inspect([one for one in engine.containers()][0]["Id"])
        assert not made["LogPath"]


# --- an engine that is none

@pytest.fixture
def open_dir():
    path = pathlib.Path(tempfile.mkdtemp(prefix="hermes-fake-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 100000, b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
                                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", b"HTTP/1.1 101 UPGRADED\r\n\r\n",
                                    b"HTTP/1.1 200 OK\r\nApi-Version: 1.12\r\nContent-Length: 2\r\n\r\nOK",
                                    b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\n[]"])
def test_a_socket_that_is_no_engine(open_dir, serve_engine, answer):
    path = open_dir / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    path.chmod(0o666)
    stopping = threading.Event()

    def serve():
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                connection.recv(65536)
                connection.sendall(answer)
            except OSError:
                pass
            connection.close()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        server = serve_engine("[backend fake]\nkind = docker\nkeys = *\ndocker_socket = %s\n" % path)
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "fake"})
        assert reply.status == 502 and reply.json()["error"]["detail"]["kind"] in ("unreachable", "refused"), reply
        assert server("GET", "/v1/backends").json()["backends"][1]["state"] in ("unreachable", "refused")
        server.stop()
    finally:
        stopping.set()
        listener.close()


# --- settings

@pytest.mark.parametrize("line,word", [
    ("docker_forward_env = API_TOKEN", "setting of Hermes"), ("docker_forward_env = HERMES_STATE_DIR", "setting of Hermes"),
    ("docker_forward_env = A=B", "names of variables"), ("docker_forward_env = A;B", "names of variables"),
    ("docker_volumes = etc:/host", "docker_volumes has"), ("docker_volumes = /etc", "docker_volumes has"),
    ("docker_volumes = /a/../etc:/host", "docker_volumes has"), ("docker_network = host", "docker_network is"),
    ("docker_network = container:other", "docker_network is"), ("container_memory = 0", "never without a limit"),
    ("container_pids = 0", "never without a limit"), ("container_cpu = -1", "container_cpu"), ("container_cpu = nan", "container_cpu"),
    ("docker_image = a b", "not the name of an image"), ("docker_image = -v", "not the name of an image"), ("host = example.org", "host is not for docker"),
    ("docker_privileged = yes", "no such line")])
def test_settings_that_are_refused(tmp_path, line, word):
    import subprocess

    import apilib
    path = tmp_path / "backends.conf"
    path.write_text("[backend box]\nkind = docker\nkeys = *\n%s\n" % line)
    found = subprocess.run([apilib.MONITOR, "--backends", str(path), "--unix", str(tmp_path / "s")], capture_output=True, text=True,
                           env={"PATH": "/usr/bin:/bin", "HERMES_STATE_DIR": str(tmp_path / "state")}, timeout=60)
    assert found.returncode == 2 and word in found.stderr, found
