# SPDX-License-Identifier: Apache-2.0
"""Sessions on backends: the same answers on this machine and over a real sshd."""
import json
import os
import pathlib
import subprocess
import time
import uuid

import pytest

from farlib import below, processes_with, wait_until
from mcplib import Modern
from placelib import Session


@pytest.fixture(params=["here", "far", "brief"])
def backend(request):
    return request.param


def test_state_output_and_exit_codes(places, backend):
    with Session(places, backend) as s:
        place = s.json["backend"]
        assert place["name"] == backend and place["state"] == "ready" and place["isolation"] == "none"
        assert place["kind"] == ("local" if backend == "here" else "ssh")
        assert place["limits"]["memory_mb"] == "not_enforced"
        assert s.json["isolation"]["level"] is None and s.json["network"] == "full"
        found = s.exec("x=5; cd /; echo out; echo err >&2; (exit 7)")
        assert (found["stdout"], found["stderr"], found["exit_code"]) == ("out\n", "err\n", 7)
        assert found["backend"]["name"] == backend and found["cwd"] == "/"
        assert s.exec("echo $x $PWD")["stdout"] == "5 /\n"
        for code, status in (("/etc/passwd", 126), ("no-such-program-x", 127), ("timeout 0.1 sleep 9", 124)):
            assert s.exec(code)["exit_code"] == status
        assert s.exec("cat", stdin="given")["stdout"] == "given"


def test_much_output_is_whole(places, backend):
    with Session(places, backend, limits={"output_kb": 4096}) as s:
        found = s.exec("head -c 3000000 /dev/zero | tr '\\0' x")
        assert found["stdout_bytes"] == 3000000 and found["stdout"] == "x" * 3000000


def test_variables_are_in_no_command_line(places, backend):
    word = "s3cret" + uuid.uuid4().hex
    with Session(places, backend, env={"TOKEN": word}) as s:
        assert s.exec("echo $TOKEN; sleep 0")["stdout"] == word + "\n"
        assert not processes_with(word)


def test_a_timeout_and_an_interrupt_keep_the_state(places, backend):
    with Session(places, backend) as s:
        s.exec("x=1")
        found = s.exec("sleep 1000", timeout_ms=500)
        assert found["status"] == "time_limit" and not found["state_lost"]
        assert s.exec("echo $x")["stdout"] == "1\n"


def test_jobs(places, backend):
    with Session(places, backend) as s:
        s.exec("sleep 1000 & while [ $(cat /proc/$!/comm) != sleep ]; do sleep 0.01; done")
        jobs = places("GET", s.path + "/jobs").json()["jobs"]
        assert [job["command"] for job in jobs] == ["sleep 1000"]
        assert places("DELETE", s.path + "/jobs/%d" % jobs[0]["id"]).json()["jobs"] == []


@pytest.mark.parametrize("backend", ["here", "far"])
def test_files_go_both_ways(places, backend):
    name = uuid.uuid4().hex
    with Session(places, backend) as s:
        data = os.urandom(200000)
        assert places("PUT", "%s/files/%s/a.bin" % (s.path, name), data).status == 201
        assert s.exec("wc -c <%s/a.bin" % name)["stdout"].strip() == "200000"
        assert places("GET", "%s/files/%s/a.bin" % (s.path, name)).body == data
        listed = places("GET", "%s/files?path=%s" % (s.path, name)).json()
        assert [entry["name"] for entry in listed["entries"]] == ["a.bin"]
        os.symlink("/etc", places.place_dir / (name + "-link"))
        assert places("GET", "%s/files/%s-link/passwd" % (s.path, name)).status == 409
        assert places("DELETE", "%s/files/%s?recursive=true" % (s.path, name)).status in (200, 204)


def test_reset_begins_again_in_the_same_place(places, backend):
    with Session(places, backend) as s:
        s.exec("x=1")
        reply = places("POST", s.path + "/reset")
        assert reply.status == 200 and reply.json()["backend"]["name"] == backend
        assert s.exec("echo [$x]")["stdout"] == "[]\n"


def test_the_end_of_a_session_leaves_nothing(places, backend):
    word = "6%d" % (uuid.uuid4().int % 10**8)
    with Session(places, backend) as s:
        s.exec("(setsid sleep %s &)" % word)
        wait_until(lambda: processes_with(word), "it runs")
    wait_until(lambda: not processes_with(word), "nothing is left")


def test_what_only_boxes_have_is_refused(places, backend):
    with Session(places, backend) as s:
        for path in ("fork", "checkpoints"):
            reply = places("POST", s.path + "/" + path, {})
            assert reply.status == 501 and backend in reply.json()["error"]["message"], reply
    for field, value in (("network", "full"), ("language", "python")):
        reply = places("POST", "/v1/sessions", {"language": "bash", "backend": backend, field: value})
        assert reply.status == 400 and reply.json()["error"]["field"] == field, reply


def test_a_limit_that_cannot_be_enforced_is_refused_by_name(places, backend):
    ask = {"language": "bash", "backend": backend, "limits": {"memory_mb": 64}}
    reply = places("POST", "/v1/sessions", ask)
    assert reply.status == 422, reply
    error = reply.json()["error"]
    assert (error["code"], error["field"], error["detail"]) == ("unsupported_limit", "limits.memory_mb", {"kind": "limit"})
    with Session(places, backend, limits={"memory_mb": 64}, limits_mode="best_effort") as s:
        assert s.json["backend"]["limits"]["memory_mb"] == "not_enforced"


@pytest.mark.parametrize("name,kind,word", [("wrong", "auth", "Permission denied"), ("wrong", "auth", "; the key is that of key_file"),
                                            ("no-key", "auth", "cannot read key_file: No such file"),
                                            ("strange", "auth", "Host key verification failed"), ("strange", "auth", "; add the key of the host"),
                                            ("nowhere", "refused", "cannot enter the directory /no/such/dir"),
                                            ("far-nowhere", "refused", "cannot enter the directory /no/such/dir"),
                                            ("down", "unreachable", "refused")])
def test_a_place_that_cannot_be_opened_is_an_error_of_its_kind(places, name, kind, word):
    reply = places("POST", "/v1/sessions", {"language": "bash", "backend": name})
    assert reply.status == 502, reply
    error = reply.json()["error"]
    assert error["code"] == "backend_failed" and error["detail"] == {"kind": kind}
    assert "backend %s: %s: " % (name, kind) in error["message"] and word in error["message"]


@pytest.mark.parametrize("name", ["secret", "unknown"])
def test_a_backend_of_others_is_like_one_that_does_not_exist(places, name):
    reply = places("POST", "/v1/sessions", {"language": "bash", "backend": name})
    assert reply.status == 404
    assert reply.json()["error"]["message"].replace(name, "X") == \
        "you have no backend `X`; GET /v1/backends lists your backends"


def test_a_key_that_is_not_there_is_named_at_the_start(places):
    """Nobody can use that backend. The control: no word about the others."""
    said = [json.loads(line) for line in places.log_path.read_text().splitlines() if "a key that this server does not have" in line]
    assert [(line["level"], line["backend"], line["key"]) for line in said] == [("warn", "secret", "nobody-has-this-name")]


@pytest.mark.parametrize("name", ["a/b", "a b", "", "x" * 33, 5, "a\u0000b"])
def test_a_name_with_separators_is_refused(places, name):
    reply = places("POST", "/v1/sessions", {"language": "bash", "backend": name})
    assert reply.status == 400 and reply.json()["error"]["field"] == "backend"


def test_native_is_a_box(places):
    with Session(places, "native") as s:
        assert s.json["backend"] == {"name": "native", "kind": "native", "id": s.json["id"], "state": "ready", "detail": None,
                                     "isolation": "box", "scope": "session", "limits": {}}
        assert s.exec("id -u")["exit_code"] == 0


def words_of(pid):
    return pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().rstrip(b"\0").decode().split("\0")


def ssh_clients(places):
    """Pids of the ssh clients of this server's sessions."""
    found = []
    for pid in below(places.child("hermes-places")):
        try:
            found += [pid] if words_of(pid)[0] == "ssh" else []
        except OSError:
            continue  # it has ended
    return found


def ssh_masters(places):
    """Pids of the connections that these share. They are in the background, so they are found by their socket."""
    option = next(word for word in words_of(ssh_clients(places)[0]) if word.startswith("ControlPath="))
    directory = os.path.dirname(option.split("=")[1])
    return processes_with("ssh: %s/" % directory)


def test_the_client_of_ssh_asks_nobody_and_forwards_nothing(places):
    with Session(places, "far"):
        words = words_of(ssh_clients(places)[0])
        for option in ("BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "PermitLocalCommand=no", "StrictHostKeyChecking=yes",
                       "ControlMaster=auto", "ControlPersist=300"):
            assert words[words.index(option) - 1] == "-o", option


@pytest.mark.parametrize("killed", ["server", "master", "client"])
def test_a_cut_connection_loses_nothing(places, sshd, killed):
    def cut():
        if killed == "server":
            sshd.cut()
            return
        pids = ssh_masters(places) if killed == "master" else ssh_clients(places)
        assert pids
        for pid in pids:
            os.kill(pid, 9)
    mark = places.place_dir / uuid.uuid4().hex
    code = ("for i in 1 2 3 4 5 6; do echo line $i; [ $i = 3 ] && touch %s.half && until [ -e %s.go ]; do sleep 0.02; done; done; "
            "kept=yes; (exit 9)" % (mark, mark))
    with Session(places, "far") as s:
        stream = places.connect()
        stream.request("POST", s.path + "/exec", json.dumps({"code": code}), {"Content-Type": "application/json"})
        wait_until(lambda: os.path.exists("%s.half" % mark), "half of the output")
        before = ssh_clients(places)
        cut()
        wait_until(lambda: ssh_clients(places) and not set(before) & set(ssh_clients(places)), "another client")
        wait_until(lambda: places("GET", s.path).json()["backend"]["state"] == "ready" and sshd.children(), "joined again")
        open("%s.go" % mark, "w").close()
        found = json.loads(stream.getresponse().read())
        stream.close()
        assert found["stdout"] == "".join("line %d\n" % i for i in range(1, 7))
        assert found["exit_code"] == 9 and not found["state_lost"]
        assert s.exec("echo $kept")["stdout"] == "yes\n"


def test_attempts_that_fail_leave_the_connection_of_others_alone(places):
    with Session(places, "far") as s:
        s.exec("kept=yes")
        before = ssh_clients(places), ssh_masters(places)
        assert all(before)
        for name in ("wrong", "no-key", "strange", "far-nowhere", "down"):
            assert places("POST", "/v1/sessions", {"language": "bash", "backend": name}).status == 502
        reply = places("POST", "/v1/sessions", {"language": "bash", "backend": "far", "limits": {"memory_mb": 64}})
        assert reply.status == 422
        assert set(before[0]) <= set(ssh_clients(places)) and set(before[1]) <= set(ssh_masters(places))
        assert s.out("echo $kept") == "yes\n" and s.look()["backend"]["state"] == "ready"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk_is_an_error_of_the_command(places, sshd, backend):
    """What is full is said, and the session goes on. The control: there is room after a file is removed."""
    full = places.place_dir / uuid.uuid4().hex
    full.mkdir()
    inside = [] if backend == "here" else ["nsenter", "--mount=/proc/%d/ns/mnt" % sshd.process.pid]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=256k,mode=777", "tmpfs", full], check=True)
    try:
        with Session(places, backend) as s:
            found = s.exec("kept=yes; head -c 1000000 /dev/zero >%s/big; echo $?" % full)
            assert found["stdout"] == "1\n" and "No space left" in found["stderr"], found
            assert s.exec("echo $kept; rm %s/big" % full)["stdout"] == "yes\n"
            assert s.exec("head -c 100000 /dev/zero >%s/small" % full)["exit_code"] == 0
            assert s.look()["backend"]["state"] == "ready"
    finally:
        subprocess.run([*inside, "umount", "-l", full], check=True)


def test_a_connection_without_reconnect_is_lost_and_says_so(places, sshd):
    with Session(places, "brief") as s:
        sshd.cut()
        wait_until(lambda: places("GET", s.path).json()["state"] == "dead", "the session is dead")
        found = places("GET", s.path).json()
        assert found["reason"] == "lost" and found["backend"]["state"] == "lost" and "backend brief: lost" in found["message"]
        reply = places("POST", s.path + "/exec", {"code": "echo"})
        assert reply.status == 409
        assert places("POST", s.path + "/reset").status == 200  # a new shell in the same place, because it was asked for
        assert s.exec("echo fine")["backend"]["name"] == "brief"


def test_an_older_server_of_reach_ends_its_sessions(places):
    """Kills hermes-places: its sessions are lost, and new ones work when the next one runs."""
    with Session(places, "here") as s:
        os.kill(places.child("hermes-places"), 9)
        wait_until(lambda: places("GET", s.path).json()["state"] == "dead", "the session is lost")

    def works():
        reply = places("POST", "/v1/sessions", {"language": "bash", "backend": "here"})
        if reply.status == 201:
            places("DELETE", "/v1/sessions/" + reply.json()["id"])
        return reply.status == 201
    wait_until(works, "hermes-places is back")


def test_the_shell_of_mcp_uses_a_place(places):
    mcp = Modern(places, path="/mcp/full")
    session = mcp.call("session_create", language="bash", backend="here")["structuredContent"]["session_id"]
    found = mcp.call("shell", session_id=session, command="echo $((6*7)); pwd")
    assert "42\n%s\n" % places.place_dir in found["content"][0]["text"] and found["structuredContent"]["backend"]["name"] == "here"
    both = mcp.call("shell", session_id=session, backend="here", command="echo x")
    assert both["isError"] and "stays on its backend" in both["content"][0]["text"]
    assert mcp.call("session_close", session_id=session)
    assert mcp.call("session_create", language="bash", backend="nowhere")["isError"]


def test_the_shell_of_mcp_runs_one_command_on_a_backend(places):
    mcp = Modern(places, path="/mcp/full")

    def sessions():
        return [one["id"] for one in places("GET", "/v1/sessions").json()["sessions"] if one["state"] in ("starting", "idle", "busy")]
    before = sessions()
    found = mcp.call("shell", backend="here", command="cat; pwd; (exit 3)", stdin="given\n")
    assert "given\n%s\n" % places.place_dir in found["content"][0]["text"], found
    assert found["structuredContent"]["exit_code"] == 3 and found["structuredContent"]["backend"]["name"] == "here"
    assert sessions() == before
    unknown = mcp.call("shell", backend="nowhere", command="echo x")
    assert unknown["isError"] and "nowhere" in unknown["content"][0]["text"], unknown
