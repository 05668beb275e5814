# SPDX-License-Identifier: Apache-2.0
"""Containers of a real dockerd and a real Podman: what they are made of, how long they live, what is refused."""
import json
import os
import time
import uuid

import pytest

import enginelib
from farlib import processes_with, wait_until
from faultlib import begin, end, is_lost, run_in
from placelib import Session, WHOLE, allow_commands, engine_row

FORWARDED = "value-of-the-operator"


def rows(engine):
    return "".join([
        engine_row("kept", engine),
        engine_row("once", engine, container_persistent="no"),
        engine_row("brief", engine, container_persistent="no", container_idle_s=1, reconnect_s=1),
        engine_row("idle", engine, container_idle_s=2, reconnect_s=1),
        engine_row("frozen", engine, container_persistent="no", reconnect_s=30),
        engine_row("roomy", engine, container_persistent="no", container_memory=1024, container_pids=256),
        engine_row("disk", engine, container_persistent="no", container_disk=32),
        engine_row("kept-disk", engine, container_disk=32),
        engine_row("absent", engine, docker_image="no-such-image:1"),
        engine_row("bound", engine, docker_volumes="/etc:/host:ro", container_persistent="no"),
        engine_row("forward", engine, docker_forward_env="FORWARDED, NOT_SET", container_persistent="no"),
        engine_row("person", engine, user="user", container_persistent="no"),
        engine_row("no-runtime", engine, docker_runtime="no-such-runtime", container_persistent="no"),
        engine_row("down", engine, docker_socket="/nonexistent/docker.sock"),
        engine_row("others", engine, keys="nobody-has-this-name"),
    ])


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request, engine_of):
    if not WHOLE:
        pytest.skip("make test-backends runs this")
    return engine_of(request.param)


@pytest.fixture(scope="module")
def server(engine, serve_engine):
    return serve_engine(rows(engine), env={"FORWARDED": FORWARDED, "OTHER": "not for containers"})


def container_of(engine, backend):
    found = [one for one in engine.containers() if one["Labels"].get("hermes-backend") == backend]
    assert len(found) == 1, found
    return found[0]


def failure(server, backend, **fields):
    reply = server("POST", "/v1/sessions", {"language": "bash", "backend": backend, **fields})
    assert reply.status in (400, 422, 502), reply
    return reply.json()["error"]


def test_what_a_container_is_made_of(server, engine):
    with Session(server, "once") as s:
        made = engine.inspect(container_of(engine, "once")["Id"])
        host = made["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] == 256 << 20 and host["PidsLimit"] == 64
        assert host["NetworkMode"] == "none" and not host["Privileged"] and host["LogConfig"]["Type"] in ("none", "")
        assert made["Name"].lstrip("/").startswith("hermes-")
        labels = made["Config"]["Labels"]
        assert labels["hermes"] == "1" and len(labels["hermes-config"]) == 64 and len(labels["hermes-owner"]) == 32
        assert abs(int(labels["hermes-lease"]) - time.time()) < 600
        found = s.out("cat /proc/self/status")
        assert "CapBnd:\t00000000000000cb\n" in found and "NoNewPrivs:\t1\n" in found and "Seccomp:\t2\n" in found
        assert s.out("ls /sys/class/net").split() == ["lo"]
        assert s.json["network"] == "none" and s.json["backend"]["isolation"] == "container"
        assert s.json["backend"]["limits"]["memory_mb"] == 256 and s.json["backend"]["limits"]["disk_mb"] == "not_enforced"


@pytest.mark.parametrize("backend,limits,fits", [("once", {}, False), ("roomy", {"memory_mb": 256}, False), ("roomy", {}, True)],
                         ids=["row", "request", "control"])
def test_memory_is_limited(server, backend, limits, fits):
    """400 MiB where 256 are allowed. The shell goes on. The controls: 100 MiB do fit, and so do 400 where 1024 are allowed."""
    fill = "busybox dd if=/dev/zero of=/dev/null bs=%dM count=1 2>/dev/null"
    with Session(server, backend, limits=limits) as s:
        assert s.exec("kept=yes; " + fill % 100)["exit_code"] == 0
        assert s.exec(fill % 400)["exit_code"] == (0 if fits else 137)
        assert s.out("echo $kept") == "yes\n"


@pytest.mark.parametrize("backend,limits,most", [("once", {}, 64), ("roomy", {"processes": 24}, 24), ("roomy", {}, 256)],
                         ids=["row", "request", "control"])
def test_processes_are_limited(server, backend, limits, most):
    """150 processes where fewer are allowed. The shell goes on. The controls: 8 may start, and so may 150 where 256 are allowed."""
    start = "busybox ash -c 'i=0; while [ $((i+=1)) -le %d ]; do sleep 1000 & done'; code=$?; set -- /proc/[0-9]*; echo $code $#"
    with Session(server, backend, limits=limits) as s:
        assert s.json["backend"]["limits"]["processes"] == most
        code, count = s.out(start % 8).split()
        assert code == "0" and 8 < int(count) < most
        found = s.exec(start % 150)
        code, count = found["stdout"].split()
        if most > 150:
            assert code == "0" and 150 < int(count) <= most
        else:
            assert code != "0" and "can't fork" in found["stderr"] and most // 2 < int(count) <= most, found


def test_more_than_the_row_has_is_refused(server):
    error = failure(server, "once", limits={"memory_mb": 257})
    assert error["field"] == "limits.memory_mb" and error["message"] == "memory_mb is at most 256 on backend once"
    assert failure(server, "once", limits={"open_files": 64})["code"] == "unsupported_limit"


def test_the_disk_is_limited_or_refused(server, engine):
    with Session(server, "disk") as s:  # this engine has no quota: files in memory
        assert s.json["backend"]["limits"]["disk_mb"] == 32
        for path in ("/workspace/x", "/root/x", "/tmp/x", "/x"):
            found = s.exec("head -c 100000000 /dev/zero >%s" % path)
            assert found["exit_code"] != 0, path
            assert int(s.out("stat -c %%s %s 2>/dev/null || echo 0" % path)) <= 32 << 20
            s.exec("rm -f " + path)
        assert s.out("echo works >/workspace/y; cat /workspace/y") == "works\n"
    error = failure(server, "kept-disk")
    assert error["code"] == "unsupported_limit" and error["field"] == "limits.disk_mb" and "quota" in error["message"]
    assert not [one for one in engine.containers() if one["Labels"]["hermes-backend"] == "kept-disk"]


def test_a_container_of_a_session_ends_with_it(server, engine):
    with Session(server, "once") as s:
        name = container_of(engine, "once")["Id"]
        s.exec("echo lost >/workspace/file")
    wait_until(lambda: engine("GET", "/v1.41/containers/%s/json" % name)[0] == 404, "it is removed")
    with Session(server, "once") as s:
        assert s.exec("cat /workspace/file")["exit_code"] == 1


def test_a_container_that_is_kept_is_shared_and_resumed(server, engine):
    with Session(server, "kept") as s, Session(server, "kept") as other:
        first = container_of(engine, "kept")["Id"]
        s.exec("echo kept >/workspace/file; x=1")
        assert other.out("cat /workspace/file; echo [$x]") == "kept\n[]\n"
    assert engine("POST", "/v1.41/containers/%s/stop?t=1" % first)[0] == 204
    with Session(server, "kept") as s:
        assert s.out("cat /workspace/file") == "kept\n" and container_of(engine, "kept")["Id"] == first


def test_idle_containers_are_stopped_and_orphans_removed(server, engine):
    with Session(server, "idle") as s:
        s.exec("echo work >/workspace/file")
        mine = container_of(engine, "idle")["Id"]
        time.sleep(0.1)
        assert engine.inspect(mine)["State"]["Running"]
    wait_until(lambda: not engine.inspect(mine)["State"]["Running"], "the idle one is stopped", 120)
    with Session(server, "idle") as s:
        assert s.out("cat /workspace/file") == "work\n"
    # An orphan has the labels of this server; others lack one of them each.
    label = dict(engine.inspect(mine)["Config"]["Labels"], **{"hermes-backend": "brief", "hermes-keep": "no", "hermes-lease": "1"})
    lacks = {"none": {}, "hermes": {"hermes": "0"}, "owner": {"hermes-owner": "0" * 32}, "hash": {"hermes-config": ""},
             "backend": {"hermes-backend": "another"}, "lease": {"hermes-lease": ""}, "keep": {"hermes-keep": "yes"}}
    made = {}
    for what, change in lacks.items():
        status, answer = engine("POST", "/v1.41/containers/create?name=mark-%s" % what,
                                {"Image": enginelib.IMAGE, "Cmd": ["sleep", "1000"], "Labels": {**label, **change},
                                 "HostConfig": {"NetworkMode": "none"}})
        assert status == 201, answer
        made[what] = answer["Id"]
    try:
        wait_until(lambda: engine("GET", "/v1.41/containers/%s/json" % made["none"])[0] == 404, "the orphan is removed", 120)
        for what in set(lacks) - {"none"}:
            assert engine("GET", "/v1.41/containers/%s/json" % made[what])[0] == 200, what
    finally:
        for one in made.values():
            engine("DELETE", "/v1.41/containers/%s?force=1" % one)


def test_other_settings_are_refused_with_both_hashes(server, engine):
    with Session(server, "kept"):
        old = container_of(engine, "kept")["Labels"]["hermes-config"]
        error = failure(server, "kept", limits={"memory_mb": 128})
        assert error["detail"] == {"kind": "refused"} and old[:12] in error["message"] and "docker rm -f hermes-" in error["message"]


def test_a_container_of_others_is_not_touched(server, engine):
    with Session(server, "kept"):
        name = container_of(engine, "kept")["Names"][0].strip("/")
    engine("DELETE", "/v1.41/containers/%s?force=1" % name)
    status, answer = engine("POST", "/v1.41/containers/create?name=" + name,
                            {"Image": enginelib.IMAGE, "Cmd": ["sleep", "1000"], "HostConfig": {"NetworkMode": "none"}})
    assert status == 201, answer
    try:
        error = failure(server, "kept")
        assert error["detail"] == {"kind": "refused"} and "not made by this server" in error["message"]
        assert engine.inspect(answer["Id"])["State"]["Status"] in ("created", "configured")
    finally:
        engine("DELETE", "/v1.41/containers/%s?force=1" % name)


@pytest.mark.parametrize("backend,kind,word", [("absent", "not_found", "docker pull no-such-image:1"), ("down", "unreachable", "does not answer"),
                                               ("no-runtime", "refused", "runtime")])
def test_a_place_that_cannot_be_opened(server, engine, backend, kind, word):
    error = failure(server, backend)
    assert error["code"] == "backend_failed" and error["detail"] == {"kind": kind} and word in error["message"], error
    assert not [one for one in engine.containers() if one["Labels"]["hermes-backend"] == backend]


def test_variables_of_the_operator_only(server):
    with Session(server, "forward") as s:
        assert s.out('echo "$FORWARDED [$OTHER] [$NOT_SET]"') == FORWARDED + " [] []\n"
        assert not [pid for pid in processes_with(FORWARDED) if "pytest" not in open("/proc/%d/cmdline" % pid).read()]
    with Session(server, "once") as s:
        assert s.out('echo "[$FORWARDED]"') == "[]\n"


def test_forwarded_values_are_not_in_what_the_engine_tells(server, engine):
    with Session(server, "forward"):
        assert FORWARDED not in json.dumps(engine.inspect(container_of(engine, "forward")["Id"]))


def test_a_bind_is_no_box(server):
    with Session(server, "bound") as s:
        assert s.json["backend"]["isolation"] == "partial"
        reply = server("POST", s.path + "/exec", {"code": "echo x >/host/x"})
        assert reply.status == 403 and reply.json()["error"]["code"] == "approval_unavailable", reply
        allow_commands(server, "bound")
        assert s.exec("echo x >/host/x")["exit_code"] != 0 and s.out("test -d /host && echo there") == "there\n"


def test_another_user(server):
    with Session(server, "person") as s:
        assert s.out("id -u; echo x >/workspace/x && cat /workspace/x") == "1000\nx\n"


def test_the_list_of_backends(server):
    with Session(server, "kept"):
        pass
    def rows_of():
        return {row["name"]: row for row in server("GET", "/v1/backends").json()["backends"]}
    wait_until(lambda: rows_of()["kept"]["state"] == "ready", "the engine answers in time")
    listed = rows_of()
    assert "others" not in listed and listed["kept"]["latency_ms"] is not None
    assert listed["down"]["state"] == "unreachable" and "/nonexistent" in listed["down"]["detail"]
    assert {"cpus", "memory_mb", "processes"} <= set(listed["kept"]["enforces"])
    assert failure_status(server, "others") == 404


def failure_status(server, backend):
    return server("POST", "/v1/sessions", {"language": "bash", "backend": backend}).status


def test_paused_is_degraded_and_not_lost(server, engine):
    """It shows after a time of silence; a command that runs goes on when the container does, and runs once."""
    with Session(server, "frozen") as s:
        name = container_of(engine, "frozen")["Id"]
        running = begin(server, s, "x=1; echo begun >>/tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; cat /tmp/begun")
        wait_until(lambda: "begun" in run_in(engine, name, "cat /tmp/begun"), "it runs")
        assert s.look()["backend"]["state"] == "ready"
        assert engine("POST", "/v1.41/containers/%s/pause" % name)[0] == 204
        wait_until(lambda: s.look()["backend"]["state"] == "degraded", "it shows")
        assert s.look()["state"] == "busy"
        assert engine("POST", "/v1.41/containers/%s/unpause" % name)[0] == 204
        wait_until(lambda: s.look()["backend"]["state"] == "ready", "joined again")
        run_in(engine, name, "touch /tmp/go")
        found = end(running)
        assert (found["stdout"], found["exit_code"], found["state_lost"]) == ("begun\n", 0, False), found
        assert s.out("echo $x") == "1\n"
    with Session(server, "kept") as s:
        name = container_of(engine, "kept")["Id"]
        assert engine("POST", "/v1.41/containers/%s/pause" % name)[0] == 204
        try:
            error = failure(server, "kept")
            assert error["detail"] == {"kind": "unreachable"} and "paused" in error["message"]
        finally:
            engine("POST", "/v1.41/containers/%s/unpause" % name)


def test_a_removed_container_is_lost_and_said_so(server, engine):
    with Session(server, "once") as s:
        s.exec("x=1")
        engine("DELETE", "/v1.41/containers/%s?force=1" % container_of(engine, "once")["Id"])
        wait_until(lambda: s.look()["state"] == "dead", "the session is lost")
        assert s.look()["backend"]["state"] == "lost" and s.look()["reason"] == "lost"
        assert server("POST", s.path + "/exec", {"code": "echo"}).status == 409
        assert not [one for one in engine.containers() if one["Labels"]["hermes-backend"] == "once"]  # no other was made


def test_a_container_that_is_removed_while_a_command_runs(server, engine):
    """The answer has what was printed, no exit code, and why. No other container is made until one is asked for."""
    with Session(server, "once") as s:
        mine = container_of(engine, "once")["Id"]
        running = begin(server, s, "echo before; touch /tmp/begun; sleep 1000")
        wait_until(lambda: "begun" in run_in(engine, mine, "ls /tmp"), "it runs")
        assert engine("DELETE", "/v1.41/containers/%s?force=1" % mine)[0] in (200, 204)
        found = end(running)
        assert found["stdout"] == "before\n" and is_lost(found), found
        assert s.look()["state"] == "dead" and s.look()["backend"]["state"] == "lost"
        assert not [one for one in engine.containers() if one["Labels"]["hermes-backend"] == "once"]
        assert server("POST", s.path + "/reset").status == 200
        assert s.out("ls /tmp") == "" and container_of(engine, "once")["Id"] != mine


def test_a_far_shell_that_is_killed_while_a_command_runs(server, engine):
    """Its session is lost and says so, nothing of it goes on in the container, which stays."""
    word = "7%d" % (uuid.uuid4().int % 10**8)
    with Session(server, "kept") as s, Session(server, "kept") as other:
        running = begin(server, s, "rm -f die; echo before; setsid sleep %s & until [ -e die ]; do sleep 0.05; done; "
                        "read -r line </proc/$PPID/stat; set -- $line; kill -9 $4; sleep %s" % (word, word))
        wait_until(lambda: processes_with("sleep\0" + word), "it runs")
        other.exec("touch die")
        found = end(running)
        assert found["stdout"] == "before\n" and is_lost(found), found
        assert s.look()["state"] == "dead" and s.look()["reason"] == "lost"
        wait_until(lambda: not processes_with("sleep\0" + word), "nothing of it runs")
        assert server("POST", s.path + "/reset").status == 200 and s.out("echo again") == "again\n"


def test_everything_in_a_container_is_killed(server, engine):
    """The container ends with it: the command is lost, and no other container is made."""
    with Session(server, "once") as s:
        found = end(begin(server, s, "kill -9 -1; sleep 1000"))
        assert is_lost(found), found
        assert s.look()["state"] == "dead" and s.look()["backend"]["state"] == "lost"
        wait_until(lambda: not [one for one in engine.containers() if one["Labels"]["hermes-backend"] == "once"], "it is removed")


def test_hermes_places_killed_leaves_no_container(server, engine):
    with Session(server, "once") as s:
        mine = container_of(engine, "once")["Id"]
        os.kill(server.child("hermes-places"), 9)
        wait_until(lambda: s.look()["state"] == "dead", "the session is lost")
        wait_until(lambda: engine("GET", "/v1.41/containers/%s/json" % mine)[0] == 404, "its container is removed")
    wait_until(lambda: failure_status(server, "once") == 201, "hermes-places is back")


def test_two_servers_on_one_engine_do_not_meet(server, engine, serve_engine):
    other = serve_engine(rows(engine))
    with Session(server, "kept") as one, Session(other, "kept") as two:
        one.exec("echo mine >/workspace/whose")
        assert two.exec("cat /workspace/whose")["exit_code"] == 1
        found = [each for each in engine.containers() if each["Labels"]["hermes-backend"] == "kept"]
        assert len(found) == 2 and len({each["Labels"]["hermes-owner"] for each in found}) == 2
    other.stop()
    with Session(server, "kept") as one:
        assert one.out("cat /workspace/whose") == "mine\n"
    for each in found:
        engine("DELETE", "/v1.41/containers/%s?force=1" % each["Id"])


def test_only_the_group_of_the_socket_is_needed(engine, serve_engine):
    os.chown(engine.socket, 0, 23457)
    engine.socket.chmod(0o660)
    try:
        server = serve_engine(engine_row("grouped", engine, container_persistent="no"))
        with Session(server, "grouped") as s:
            assert s.out("echo in") == "in\n"
        status = open("/proc/%d/status" % server.child("hermes-places")).read()
        assert "Gid:\t23457" in status and "Uid:\t0" not in status and "Groups:\t \n" in status
        server.stop()
        engine.socket.chmod(0o600)
        server = serve_engine(engine_row("closed", engine))
        error = failure(server, "closed")
        assert error["detail"] == {"kind": "auth"} and "no access" in error["message"]
    finally:
        os.chown(engine.socket, 0, 0)
        engine.socket.chmod(0o666)
