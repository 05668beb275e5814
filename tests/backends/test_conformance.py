# SPDX-License-Identifier: Apache-2.0
"""One suite for all places: the same results, the same error texts. To add a place, add a row to PLACES: a function of
pytest's request that returns a placelib.Place, or skips with a reason."""
import json
import os
import uuid

import pytest

import enginelib
from conftest import WHOLE
from farlib import processes_with, wait_until
from placelib import Place, engine_row
from test_apptainer import Instances
from test_plugins import Plugins

LIMITS = ("cpus", "memory_mb", "processes")


def native(request):
    return Place(request.getfixturevalue("places"), "native", "native", "box", LIMITS + ("disk_mb",))


def local(request):
    return Place(request.getfixturevalue("places"), "here", "local", "none")


def ssh(request):
    return Place(request.getfixturevalue("places"), "far", "ssh", "none")


def engine(kind):
    def get(request):
        need_whole(kind)
        made = request.getfixturevalue("engine_of")(kind)
        server = request.getfixturevalue("serve_engine")(engine_row("box", made))
        return Place(server, "box", "docker", "container", LIMITS)
    return get


def need_whole(kind):
    if not WHOLE:
        pytest.skip("make test-backends runs this with %s" % kind)


def plugin(request):
    need_whole("a scripted plug-in")
    made = Plugins()
    request.addfinalizer(made.close)
    return Place(made.server, "plug", "plugin", "none", ("cpus", "memory_mb"))


def apptainer(request):
    need_whole("a recording stand-in for apptainer")
    made = Instances()
    request.addfinalizer(made.close)
    (made.calls / "mode").write_text("")
    return Place(made.server, "sif", "apptainer", "container", LIMITS)


PLACES = {"native": native, "plugin": plugin, "apptainer (stand-in)": apptainer, "local": local, "ssh": ssh, "docker": engine("docker"), "podman": engine("podman")}


@pytest.fixture(scope="module", params=PLACES)
def place(request):
    return PLACES[request.param](request)


@pytest.fixture
def s(place):
    with place.open() as session:
        yield session


def test_the_answer_names_the_place(place, s):
    found = s.exec("true")["backend"]
    assert found == s.json["backend"] and found["name"] == place.name and found["kind"] == place.kind
    assert found["state"] == "ready" and found["isolation"] == place.isolation
    if place.kind != "native":
        in_force = {name for name, value in found["limits"].items() if value != "not_enforced"}
        assert in_force == place.enforces
        row = next(row for row in place.server("GET", "/v1/backends").json()["backends"] if row["name"] == place.name)
        assert set(row["enforces"]) == place.enforces | {"wall_ms", "output_kb"} and row["state"] == "ready"


def test_only_boxes_are_searched_for_changes(place, s):
    """The directory of another place may be a whole home."""
    name = "changed-" + uuid.uuid4().hex
    assert s.exec(": >%s" % name)["files_changed"] == ([name] if place.kind == "native" else None)
    assert s.exec("rm %s" % name)["exit_code"] == 0


def test_state_is_kept(s):
    s.exec("x=5; y=(a b); export Z=3; f() { echo in f; }; alias q='echo aliased'; cd /; umask 027")
    assert s.out('echo $x ${y[1]} $PWD; f; q; sh -c \'echo $Z\'; umask') == "5 b /\nin f\naliased\n3\n0027\n"
    assert s.exec("true")["cwd"] == "/"


@pytest.mark.parametrize("code,status", [("true", 0), ("(exit 7)", 7), ("(exit 124)", 124), ("(exit 130)", 130), ("/etc/passwd", 126),
                                         ("no-such-program-x", 127), ("sh -c 'kill -9 $$'", 137), ("exec 5</no-such-file", 1)])
def test_exit_codes(s, code, status):
    assert s.exec(code)["exit_code"] == status
    assert s.out("echo goes on") == "goes on\n"


def test_streams_are_apart_and_binary(s):
    found = s.exec("echo out; echo err >&2; printf '\\303\\244'")
    assert (found["stdout"], found["stderr"]) == ("out\n\u00e4", "err\n")


def test_stdin(s):
    assert s.out("cat", stdin="given\nlines") == "given\nlines"
    assert s.out("read a; echo [$a]; cat", stdin="one\ntwo\n") == "[one]\ntwo\n"
    assert s.out("cat; echo end") == "end\n"


def test_fifty_megabytes(s):
    found = s.exec("head -c 50000000 /dev/zero | tr '\\0' x")
    assert found["stdout_bytes"] == 50000000 and found["exit_code"] == 0
    assert s.out("echo after") == "after\n"


def test_exit_and_exec_end_the_shell_and_say_so(place, s):
    found = s.exec("x=1; exit 3")
    assert found["exit_code"] == 3
    assert s.out("echo fresh") == "fresh\n"


def test_a_timeout_and_an_interrupt_keep_the_state(place, s):
    s.exec("x=1")
    found = s.exec("sleep 1000", timeout_ms=500)
    assert found["status"] == "time_limit" and not found["state_lost"]
    stream = place.server.connect()
    stream.request("POST", s.path + "/exec", json.dumps({"code": "echo begun; sleep 1000"}), {"Content-Type": "application/json"})
    wait_until(lambda: s.look()["state"] == "busy", "it runs")
    wait_until(lambda: place.server("POST", s.path + "/interrupt").status in (200, 202, 204), "the interrupt is taken")
    found = json.loads(stream.getresponse().read())
    stream.close()
    assert found["exit_code"] == 130 and not found["state_lost"], found
    assert s.out("echo $x") == "1\n"


def test_background_jobs(place, s):
    s.exec("sleep 1000 & while [ $(cat /proc/$!/comm) != sleep ]; do sleep 0.01; done")
    jobs = place.server("GET", s.path + "/jobs").json()["jobs"]
    assert [job["command"] for job in jobs] == ["sleep 1000"]
    assert place.server("DELETE", s.path + "/jobs/%d" % jobs[0]["id"]).json()["jobs"] == []


def test_variables_come_by_name_and_are_in_no_command_line(place):
    word = "s3cret" + uuid.uuid4().hex
    with place.open(env={"TOKEN": word}) as s:
        assert s.out("echo $TOKEN; sleep 0") == word + "\n"
        assert not processes_with(word)
        for name in ("HERMES_STATE_DIR", "API_TOKEN", "DOCKER_SOCKET"):
            assert s.out("echo [$%s]" % name) == "[]\n"


def test_files_go_both_ways(place, s):
    name, data = uuid.uuid4().hex, os.urandom(200000)
    assert place.server("PUT", "%s/files/%s/a.bin" % (s.path, name), data).status == 201
    assert s.out("wc -c <%s/a.bin" % name).strip() == "200000"
    assert place.server("GET", "%s/files/%s/a.bin" % (s.path, name)).body == data
    listed = place.server("GET", "%s/files?path=%s" % (s.path, name)).json()
    assert [entry["name"] for entry in listed["entries"]] == ["a.bin"]
    s.exec("ln -s /etc %s/link" % name)
    assert place.server("GET", "%s/files/%s/link/passwd" % (s.path, name)).status == 409
    assert place.server("DELETE", "%s/files/%s?recursive=true" % (s.path, name)).status in (200, 204)


def test_reset_begins_again_in_the_same_place(place, s):
    s.exec("x=1")
    reply = place.server("POST", s.path + "/reset")
    assert reply.status == 200 and reply.json()["backend"]["name"] == place.name
    assert s.out("echo [$x]") == "[]\n"


@pytest.mark.parametrize("limit,value", [("memory_mb", 128), ("processes", 32), ("cpus", 0.5)])
def test_a_limit_is_in_force_or_refused_by_name(place, limit, value):
    ask = {"language": "bash", "backend": place.name, "limits": {limit: value}}
    reply = place.server("POST", "/v1/sessions", ask)
    if limit in place.enforces:
        # A container that is kept has the limits it was made with.
        assert reply.status == 201 or "other settings" in reply.json()["error"]["message"], reply
        if reply.status == 201:
            place.server("DELETE", "/v1/sessions/" + reply.json()["id"])
        return
    error = reply.json()["error"]
    assert reply.status == 422 and (error["code"], error["field"]) == ("unsupported_limit", "limits." + limit)
    assert error["message"].startswith("backend %s cannot enforce %s; leave it out, or set limits_mode to best_effort" % (place.name, limit))


def test_what_only_boxes_have_is_refused(place, s):
    if place.kind == "native":
        pytest.skip("a box has them")
    for path in ("fork", "checkpoints"):
        reply = place.server("POST", s.path + "/" + path, {})
        assert reply.status == 501 and "use a session in a box" in reply.json()["error"]["message"], reply


def test_the_end_of_a_session_leaves_nothing(place):
    word = "6%d" % (uuid.uuid4().int % 10**8)
    with place.open() as s:
        s.exec("(setsid sleep %s &)" % word)
        wait_until(lambda: processes_with(word), "it runs")
    wait_until(lambda: not processes_with(word), "nothing is left")
