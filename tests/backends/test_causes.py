# SPDX-License-Identifier: Apache-2.0
"""Why a place is degraded, lost or refused: answers tell the true cause, and a stranger's words are quoted."""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import unicodedata

import pytest

import apilib
import farlib
import placelib
from farlib import wait_until
from placelib import Session, WHOLE, allow_commands, engine_row
from test_apptainer import all_instances, instances  # noqa: F401
from test_plugins import all_plugins, plugins  # noqa: F401

FAR = """
[backend {name}]
kind = ssh
keys = *
host = 127.0.0.1
port = {port}
user = {user}
key_file = {dir}/{key}
known_hosts = {dir}/known_hosts
reconnect_s = {reconnect_s}
"""
# A far end that is ready, then sends what DIR/forged and DIR/said hold, and ends.
FAR_END = """#!/usr/bin/python3
import os, re, time
nonce = re.search("([0-9a-f]{{32}})", os.environ["SSH_ORIGINAL_COMMAND"]).group(1)
os.write(1, b"\\001" + nonce.encode() + b"\\0020\\n")
ready = b'{{"cwd":"/","kernel":"bash"}}'
os.write(1, b"ready %d\\n%s" % (len(ready), ready))
while not os.path.exists("{dir}/go"):
    time.sleep(0.02)
os.write(2, open("{dir}/said", "rb").read())
os.write(1, open("{dir}/forged", "rb").read())
"""
WAIT = "new commands, files and terminals wait"


@contextlib.contextmanager
def serving(settings, names):
    work = apilib.borrow_dir()
    path = work / "backends.conf"
    path.write_text(settings)
    server = apilib.Server(work, args=["--backends", str(path)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    try:
        allow_commands(server, *names)
        yield server
    finally:
        server.stop()
        apilib.return_dir(work)


def sections(sshd, **rows):
    """NAME=(key, reconnect_s)"""
    sshd.dir.chmod(0o755)
    for name in ("user", "hostile"):
        (sshd.dir / name).chmod(0o644 if os.geteuid() == 0 else 0o600)
    return "".join(FAR.format(name=name, key=key, reconnect_s=seconds, port=sshd.port, user=sshd.user, dir=sshd.dir)
                   for name, (key, seconds) in rows.items())


@pytest.fixture(scope="module")
def all_servers(sshd):
    rows = {"far": ("user", 60), "hasty": ("user", 1), "brief": ("user", 0), "hostile": ("hostile", 0)}
    with serving(sections(sshd, **rows) + "[backend here]\nkind = local\nkeys = *\n", [*rows, "here"]) as server:
        yield server


@pytest.fixture
def server(all_servers, sshd):
    yield all_servers
    for name in ("go", "said", "forged"):
        (sshd.dir / name).unlink(missing_ok=True)


def fit_for_people(text):
    return all(unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") for c in text)


def lost(session):
    """The session when it is lost; its message and the detail of its backend say the same."""
    found = wait_until(lambda: (s := session.look())["state"] == "dead" and s, "it is lost")
    place = found["backend"]
    assert (found["reason"], place["state"]) == ("lost", "lost")
    assert found["message"] == "backend %s: lost: %s" % (place["name"], place["detail"]), found
    assert fit_for_people(found["message"])
    return place["detail"]


def degraded(session, words):
    def check():
        place = session.look()["backend"]
        return place["state"] == "degraded" and words in place["detail"] and place
    return wait_until(check, "degraded: " + words)["detail"]


def test_a_place_that_is_ready_has_no_detail_and_says_whose_it_is(server):
    for backend, scope in (("here", "host"), ("far", "host"), ("native", "session")):
        with Session(server, backend) as s:
            for place in (s.json["backend"], s.exec("true")["backend"]):
                assert (place["state"], place["detail"], place["scope"]) == ("ready", None, scope) and "lifetime_s" not in place


def test_a_place_of_a_plugin_says_its_scope_and_lifetime(plugins):
    for backend, scope in (("kept", "key"), ("plug", "session")):
        s = plugins.session(backend)
        assert (s["backend"]["scope"], s["backend"]["lifetime_s"]) == (scope, 86400)
        plugins.end(s)


def test_a_cut_connection(server, sshd):
    """Degraded with the cause, the last attempt's reason and what works; then ready again without any."""
    with Session(server, "far") as s:
        sshd.stop()
        try:
            words = degraded(s, "Connection refused")  # an attempt to join it again
            assert "tries for 60 s" in words and WAIT in words and fit_for_people(words)
        finally:
            sshd.start()
        place = wait_until(lambda: (p := s.look()["backend"])["state"] == "ready" and p, "joined again")
        assert place["detail"] is None


def test_a_connection_that_stays_cut(server, sshd):
    with Session(server, "hasty") as s:
        sshd.stop()
        try:
            words = lost(s)
        finally:
            sshd.start()
        assert words.startswith("the shell could not be joined again within 1 s: ") and "Connection refused" in words


def test_the_cause_is_in_the_answer_and_not_in_the_output(server, sshd):
    mark = pathlib.Path(tempfile.mkdtemp(prefix="hermes-cause-"))
    mark.chmod(0o777)
    try:
        with Session(server, "brief") as s:
            stream = server.connect(timeout=300)
            stream.request("POST", s.path + "/exec", json.dumps({"code": "echo out; echo err >&2; touch %s/half; sleep 1000" % mark}),
                           {"Content-Type": "application/json"})
            wait_until((mark / "half").exists, "it runs")
            sshd.cut()
            with stream.getresponse() as reply:
                found = json.loads(reply.read())
            stream.close()
            assert (found["stdout"], found["stderr"], found["state_lost"]) == ("out\n", "err\n", True), found
            assert found["backend"]["state"] == "lost" and found["backend"]["detail"].startswith("the connection was cut")
            assert found["error"]["detail"] == {"kind": "lost"} and found["backend"]["detail"] in found["error"]["message"]
            assert lost(s) == found["backend"]["detail"]
    finally:
        shutil.rmtree(mark)


def test_a_killed_far_shell(server):
    with Session(server, "far") as s:
        reply = server("POST", s.path + "/exec", {"code": "read -r _ _ _ keeper _ </proc/$PPID/stat; kill -9 $keeper"})
        assert reply.status == 502 and reply.json()["state_lost"], reply
        assert lost(s) == "the far shell has ended, and the session's state with it"


def test_a_killed_hermes_places(server):
    with Session(server, "here") as s:
        os.kill(server.child("hermes-places"), 9)
        assert lost(s) == "the process of hermes-places that served this session has ended"
        wait_until(lambda: server("POST", s.path + "/reset").status == 200, "hermes-places is back")
        assert s.look()["backend"]["detail"] is None


def end_with(sshd, said=b"", forged=b""):
    (sshd.dir / "said").write_bytes(said)
    (sshd.dir / "forged").write_bytes(forged)
    (sshd.dir / "go").touch()


@pytest.fixture
def far_end(sshd):
    (sshd.dir / "far-end").write_text(FAR_END.format(dir=sshd.dir))
    (sshd.dir / "far-end").chmod(0o755)


def test_forged_frames(server, sshd, far_end):
    for forged in (b"out 99999999999\n", b"nonsense 1\nx"):
        with Session(server, "hostile") as s:
            end_with(sshd, forged=forged)
            assert lost(s) == "the place sent something that the far shell does not send"
        (sshd.dir / "go").unlink()


def test_words_of_a_stranger_are_quoted_and_bounded(server, sshd, far_end):
    said = b"first\n\x1b[31ma\" \xff\xe2\x80\xaeb\xc2\x9b\x07" + b"\xc3\xa9" * 3000
    with Session(server, "hostile") as s:
        end_with(sshd, said=said)
        words = lost(s)
    assert words.startswith("the connection was cut; the last words of its client: \"") and words.endswith('"')
    assert words.count('"') == 2 and len(words.encode()) < 400 and "é" in words


def test_a_killed_plugin(plugins):
    s = plugins.session("kept")
    look = lambda: plugins.server("GET", "/v1/sessions/" + s["id"]).json()  # noqa: E731
    plugins.be("error unreachable")
    for pid in plugins.programs():
        os.kill(pid, 9)
    place = wait_until(lambda: (p := look()["backend"])["state"] == "degraded" and '"the vendor said' in p["detail"] and p, "degraded")
    assert WAIT in place["detail"] and "tries for 60 s" in place["detail"]
    plugins.be("")
    wait_until(lambda: look()["backend"]["state"] == "ready", "joined again")
    assert look()["backend"]["detail"] is None
    plugins.end(s)


def test_a_killed_plugin_whose_place_is_gone(plugins):
    s = plugins.session("plug")
    for path in plugins.dir.iterdir():
        if path.name.startswith("hermes-plug-"):
            path.rename(str(path) + ".away")
    for pid in plugins.programs():
        os.kill(pid, 9)
    found = wait_until(lambda: (f := plugins.server("GET", "/v1/sessions/" + s["id"]).json())["state"] == "dead" and f, "lost")
    assert found["message"] == 'backend plug: lost: "the directory is gone"' and found["backend"]["detail"] == '"the directory is gone"'
    plugins.end(s)


@pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_removed_container(engine_of, serve_engine, kind):
    engine = engine_of(kind)
    server = serve_engine(engine_row("once", engine, container_persistent="no"))
    with Session(server, "once") as s:
        name = engine.containers()[0]["Names"][0].lstrip("/")
        assert engine("DELETE", "/v1.41/containers/%s?force=1" % name)[0] == 204
        # An engine stops a container before it removes it; Hermes may look in between.
        assert lost(s) in ("container %s was removed" % name, "container %s has stopped, and the shell with it" % name)
        assert s.json["backend"]["scope"] == "session"


def test_a_session_of_an_earlier_server_tells_where_it_ran():
    """The settings name another place now. The session is where it was, and is not made anew. The control is a box."""
    with serving("[backend here]\nkind = local\nkeys = *\n", ["here"]) as server:
        s, box = Session(server, "here"), Session(server, "native")
        was, box_was = s.look(), box.look()
        server.stop()
        (server.work / "backends.conf").write_text("[backend there]\nkind = ssh\nkeys = *\nhost = there.invalid\n")
        server.start()
        for session, before, words in ((s, was, "its state on backend here is gone"), (box, box_was, "its state and its files are gone")):
            now = session.look()
            assert (now["state"], now["reason"], now["backend"]["state"]) == ("dead", "server_restarted", "lost")
            assert now["backend"] == {**before["backend"], "state": "lost", "detail": now["message"]}
            for field in ("network", "isolation", "limits", "mounts", "image"):
                assert now[field] == before[field], field
            for path, body in (("/exec", {"code": "true"}), ("/reset", None)):
                reply = server("POST", session.path + path, body)
                assert reply.status == 409 and reply.json()["state_lost"] and words in reply.json()["error"]["message"], reply


# --- disks of the far machine

def test_a_disk_that_cannot_take_the_far_shell():
    """The control is the same file system with room."""
    if os.geteuid() != 0 or farlib.sshd_problem():
        pytest.skip("needs root and sshd: the test mounts in a namespace of its own")
    for options, words in (("size=64k", 'the far shell cannot be written there: "No space left on device"'),
                           ("size=16m,noexec", 'its directory may be mounted noexec: "Permission denied"'), ("size=16m", None)):
        script = 'mkdir -p ~/.cache/hermes && mount -t tmpfs -o %s tmpfs ~/.cache/hermes && exec "$@"' % options
        sshd = farlib.Sshd(enter=["unshare", "--mount", "sh", "-c", script, "sh"])
        try:
            with serving(sections(sshd, disk=("user", 60)), ["disk"]) as server:
                reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "disk"})
                if words:
                    error = reply.json()["error"]
                    assert (reply.status, error["detail"]) == (502, {"kind": "refused"}) and words in error["message"], reply
                else:
                    assert reply.status == 201, reply
                    assert server("DELETE", "/v1/sessions/" + reply.json()["id"]).status == 204
        finally:
            sshd.close()


def test_the_far_shell_is_written_once_and_named_by_its_content():
    """The control: it is written again when it is gone."""
    placelib.need(farlib.sshd_problem())
    sshd = farlib.Sshd(bare_home=True)
    folder = sshd.dir / "home/.cache/hermes"
    try:
        with serving(sections(sshd, far=("user", 60)), ["far"]) as server:
            def shell():
                with Session(server, "far") as s:
                    assert s.out("echo fine") == "fine\n"
                [file] = folder.glob("shell-*")
                return file, file.stat()
            assert not folder.exists()
            file, first = shell()
            digest = hashlib.sha256((farlib.BUILD / "hermes-shell").read_bytes()).hexdigest()
            assert hashlib.sha256(file.read_bytes()).hexdigest() == digest and file.name == "shell-" + digest
            assert first.st_mode & 0o777 == 0o700 and folder.stat().st_mode & 0o777 == 0o700
            _, again = shell()
            assert (again.st_ino, again.st_ctime_ns) == (first.st_ino, first.st_ctime_ns)
            file.unlink()
            _, anew = shell()
            assert anew.st_ctime_ns != first.st_ctime_ns and hashlib.sha256(file.read_bytes()).hexdigest() == digest
    finally:
        sshd.close()


# --- apptainer: what is in force in a kept place (a recording stand-in)

@pytest.fixture
def kept(instances):
    yield instances
    for session in instances.server("GET", "/v1/sessions").json()["sessions"]:
        instances.server("DELETE", "/v1/sessions/" + session["id"])
    wait_until(lambda: not [path for path in instances.calls.iterdir() if path.is_dir()], "no instance is left")
    shutil.rmtree(instances.dir / "scratch", ignore_errors=True)


def limits_of(reply):
    assert reply.status == 201, reply
    return reply.json()["backend"]["limits"]


def test_recording_standin_a_kept_place_with_other_limits_is_refused(kept):
    assert limits_of(kept.new("kept"))["memory_mb"] == 5120
    reply = kept.new("kept", limits={"memory_mb": 64})
    error = reply.json()["error"]
    assert (reply.status, error["detail"]) == (502, {"kind": "refused"}), reply
    assert "was made with other settings (" in error["message"] and ".config" in error["message"]
    made, now = error["message"].partition("settings (")[2].partition(")")[0].split(", now ")
    assert len(made) == len(now) == 12 and made != now
    assert limits_of(kept.new("kept"))["memory_mb"] == 5120  # control: the same settings


def test_recording_standin_a_refused_start_leaves_no_record(kept):
    (kept.calls / "mode").write_text("no image")
    assert kept.new("kept").json()["error"]["detail"] == {"kind": "not_found"}
    (kept.calls / "mode").write_text("")
    assert limits_of(kept.new("kept", limits={"memory_mb": 64}))["memory_mb"] == 64


def test_recording_standin_limits_are_those_of_the_instance(kept):
    """One that was started without control groups has none, also for the next session, with or without them."""
    (kept.calls / "mode").write_text("no cgroups")
    assert limits_of(kept.new("kept"))["memory_mb"] == "not_enforced"
    assert limits_of(kept.new("kept"))["memory_mb"] == "not_enforced"
    (kept.calls / "mode").write_text("")
    assert limits_of(kept.new("kept"))["memory_mb"] == "not_enforced"


def test_recording_standin_an_instance_without_a_record_is_not_joined(kept):
    reply = kept.new("kept")
    name = kept.argvs("start")[0][-1]
    assert kept.server("DELETE", "/v1/sessions/" + reply.json()["id"]).status == 204
    wait_until(lambda: not (kept.calls / name).exists(), "it is stopped")
    (kept.dir / "scratch" / (name + ".config")).unlink()
    (kept.calls / name).mkdir()
    reply = kept.new("kept")
    assert reply.status == 502 and "no record" in reply.json()["error"]["message"], reply
    (kept.calls / name).rmdir()
