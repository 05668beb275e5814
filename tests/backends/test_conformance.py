# SPDX-License-Identifier: Apache-2.0
"""One suite for all places: the same results, the same error texts. To add a place, add a row to PLACES: a function of
pytest's request that returns a placelib.Place, or skips with a reason."""
import base64
import hashlib
import io
import json
import os
import tarfile
import uuid
import zipfile

import pytest

from check_vendors import Vendors
from farlib import processes_with, wait_until
from placelib import Place, Session, WHOLE, engine_row
from test_apptainer import Instances
from test_backend_terminals import PROMPT, Terminal
from test_plugins import Plugins

LIMITS = ("cpus", "memory_mb", "processes")


def native(request):
    return Place(request.getfixturevalue("near"), "native", "native", "box", LIMITS + ("disk_mb",))


def local(request):
    return Place(request.getfixturevalue("near"), "here", "local", "none")


def ssh(request):
    return Place(request.getfixturevalue("places"), "far", "ssh", "none")


def engine(kind, **lines):
    """Sessions of `box` share a container, those of `once` do not. What gVisor itself needs counts for its limit of processes."""
    def get(request):
        need_whole(kind)
        made = request.getfixturevalue("engine_of")(kind)
        rows = engine_row("box", made, **lines) + engine_row("once", made, container_persistent="no", **lines)
        def sandboxes():
            return [one["Id"] for one in made.containers() if one["Labels"]["hermes-backend"] == "once"]
        own = {"least": {"processes": 300}, "sandboxes": sandboxes} if kind == "runsc" else {}
        return Place(request.getfixturevalue("serve_engine")(rows), "box", "docker", "container", LIMITS, once="once", **own)
    return get


def need_whole(kind):
    if not WHOLE:
        pytest.skip("make test-backends runs this with %s" % kind)


def plugin(request):
    need_whole("a scripted plug-in")
    made = Plugins()
    request.addfinalizer(made.close)

    def told(limit):
        asked = [json.loads(line[5:]) for line in made.log() if line.startswith("open ")][-1]
        return asked[{"cpus": "cpu", "memory_mb": "memory_mb"}[limit]]
    return Place(made.server, "plug", "plugin", "none", ("cpus", "memory_mb"), told=told)


def apptainer(request):
    need_whole("a recording stand-in for apptainer")
    made = Instances()
    request.addfinalizer(made.close)
    (made.calls / "mode").write_text("")

    def told(limit):
        argv = made.argvs("start")[-1]
        value = argv[argv.index({"cpus": "--cpus", "memory_mb": "--memory", "processes": "--pids-limit"}[limit]) + 1]
        return float(value.rstrip("M"))
    return Place(made.server, "sif", "apptainer", "container", LIMITS, told=told)


def vendor(name, enforces, units, least=None):
    """The vendor's real package, and a stand-in for what it talks to. `units`: of a limit, which word of the stand-in's
    log has it, and how much one of it is there."""
    def get(request):
        need_whole("the package of " + name)
        made = Vendors()
        request.addfinalizer(made.close)

        def told(limit):
            word, unit = units[limit]
            return int([line for line in made.calls(name) if line.startswith("create ")][-1].split()[word]) * unit
        return Place(made.server, name + "-brief", "plugin", "declared", enforces, told=told, least=least)
    return get


PLACES = {"native": native, "plugin": plugin, "apptainer (stand-in)": apptainer, "local": local, "ssh": ssh, "docker": engine("docker"),
          "docker with runsc": engine("runsc", docker_runtime="runsc", container_pids=1000), "podman": engine("podman"),
          "modal (stand-in)": vendor("modal", ("cpus", "memory_mb"), {"cpus": (4, 0.001), "memory_mb": (5, 1)}),
          "daytona (stand-in)": vendor("daytona", ("cpus", "memory_mb", "disk_mb"), {"cpus": (2, 1), "memory_mb": (3, 1024)}, {"memory_mb": 1024})}


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


@pytest.mark.parametrize("code,status", [("true", 0), ("(exit 7)", 7), ("(exit 124)", 124), ("sh -c 'kill -2 $$'", 130), ("/etc/passwd", 126),
                                         ("no-such-program-x", 127), ("sh -c 'kill -9 $$'", 137), ("exec 5</no-such-file", 1)])
def test_exit_codes(s, code, status):
    assert s.exec(code)["exit_code"] == status
    assert s.out("echo goes on") == "goes on\n"


def test_streams_are_apart_and_binary(s):
    """Every byte in both directions: as text as far as it is text, and its digest at the far end."""
    text = "".join(map(chr, range(0x800))).encode()
    for data in (text, bytes(range(256)), os.urandom(50000)):
        found = s.exec("cat >raw; sha256sum <raw; cat raw >&2; rm raw", stdin=base64.b64encode(data).decode(), stdin_encoding="base64")
        assert found["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
        assert found["stderr_bytes"] == len(data)
        assert data is not text or found["stderr"].encode() == data
    found = s.exec("echo err >&2; cat", stdin=base64.b64encode(bytes(range(256))).decode(), stdin_encoding="base64")
    assert (found["stdout"], found["stderr"]) == (bytes(range(256)).decode(errors="replace"), "err\n")


def test_stdin(s):
    assert s.out("cat", stdin="given\nlines") == "given\nlines"
    assert s.out("read a; echo [$a]; cat", stdin="one\ntwo\n") == "[one]\ntwo\n"
    assert s.out("cat; echo end") == "end\n"


def test_fifty_megabytes(s):
    found = s.exec("head -c 50000000 /dev/zero | tr '\\0' x")
    assert found["stdout_bytes"] == 50000000 and found["exit_code"] == 0
    assert s.out("echo after") == "after\n"


def test_exit_and_exec_end_the_shell_and_say_so(s):
    """After `exit` the next shell has everything, after `exec` what the command before has left (docs/internals/kernels.md)."""
    first = s.out("echo $$")
    found = s.exec("x=1; cd /; exit 3")
    assert (found["exit_code"], found["state_lost"], found["cwd"]) == (3, False, "/")
    second = s.out("echo $$")
    assert s.out("echo $x $PWD") == "1 /\n" and second != first
    found = s.exec("y=2; exec sh -c 'echo replaced; exit 4'; echo never")
    assert (found["stdout"], found["exit_code"], found["state_lost"]) == ("replaced\n", 4, False)
    assert s.out("echo $x [$y]") == "1 []\n" and s.out("echo $$") != second


def interrupt(place, s):
    wait_until(lambda: s.look()["state"] == "busy", "it runs")
    wait_until(lambda: place.server("POST", s.path + "/interrupt").status in (200, 202, 204), "the interrupt is taken")


def test_a_timeout_and_an_interrupt_keep_the_state(place, s):
    s.exec("x=1")
    found = s.exec("sleep 1000", timeout_ms=500)
    assert found["status"] == "time_limit" and not found["state_lost"]
    with s.begin("echo begun; sleep 1000") as answer:
        interrupt(place, s)
        found = answer()
    assert found["exit_code"] == 130 and found["status"] == "runtime_error" and not found["state_lost"], found
    assert s.out("echo $x") == "1\n"


def test_background_jobs(place, s):
    s.exec("sleep 1000 & while [ $(cat /proc/$!/comm) != sleep ]; do sleep 0.01; done")
    jobs = place.server("GET", s.path + "/jobs").json()["jobs"]
    assert [job["command"] for job in jobs] == ["sleep 1000"]
    assert place.server("DELETE", s.path + "/jobs/%d" % jobs[0]["id"]).json()["jobs"] == []


def test_variables_come_by_name_and_are_in_no_command_line(place):
    """While a command runs. The control is a word that is in one."""
    word, control = "s3cret" + uuid.uuid4().hex, "6%d" % (uuid.uuid4().int % 10**8)
    with place.open(env={"TOKEN": word}) as s, place.open() as witness:
        with s.begin("echo $TOKEN; sleep %s; echo no" % control) as answer:
            wait_until(lambda: place.has_process(control, witness), "it runs")
            assert not place.has_process(word, witness)
            interrupt(place, s)
            assert answer()["stdout"] == word + "\n"
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


def test_a_directory_comes_as_an_archive(place, s):
    name, data = uuid.uuid4().hex, os.urandom(100000)
    wanted = {"a.bin": data, "below/b.txt": b"text\n"}
    for path, content in wanted.items():
        assert place.server("PUT", "%s/files/%s/%s" % (s.path, name, path), content).status == 201
    s.exec("ln -s /etc/passwd %s/link" % name)
    reply = place.server("GET", "%s/archive?path=%s" % (s.path, name))
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as tar:
        assert {one.name: tar.extractfile(one).read() for one in tar if one.isfile()} == wanted
    reply = place.server("GET", "%s/archive?format=zip&path=%s" % (s.path, name))
    with zipfile.ZipFile(io.BytesIO(reply.body)) as packed:
        assert {one: packed.read(one) for one in packed.namelist() if not one.endswith("/")} == wanted
    assert place.server("GET", "%s/archive?path=%s/nix" % (s.path, name)).status == 404
    s.exec("rm -r %s" % name)


def test_a_terminal_is_a_shell_in_the_same_place(place):
    with place.open(env={"COLOUR": "blue"}) as s:
        s.exec("x=5; echo in the place >terminal.txt")
        with Terminal(s, "?rows=33&cols=99") as t:
            assert t.run("stty size; echo $COLOUR [$x]; cat terminal.txt", 60) == "33 99\nblue []\nin the place\n"
            t.send("exit 7\n")
            assert t.end(60) == (7, 1000)
        assert s.out("echo $x; rm terminal.txt") == "5\n"


def test_ctrl_c_in_a_terminal_interrupts_its_program(place):
    word = "6%d" % (uuid.uuid4().int % 10**8)
    with place.open() as s, Terminal(s, "?rows=33&cols=99") as t:
        t.run("true", 60)
        t.send("sleep %s\n" % word)
        wait_until(lambda: place.has_process(word, s), "it runs")
        t.send("\x03")
        if place.sandboxes:  # Debian's gVisor passes it on as a byte (docs/internals/far-shell.md)
            assert place.has_process(word, s)
            s.exec("for d in /proc/[0-9]*; do mapfile -d '' words <$d/cmdline; [ \"${words[*]}\" != 'sleep %s' ] || kill ${d#/proc/}; done" % word)
        t.until(PROMPT, 60)
        t.send("exit 7\n")
        assert t.end(60) == (7, 1000)


def test_reset_begins_again_in_the_same_place(place, s):
    s.exec("x=1")
    reply = place.server("POST", s.path + "/reset")
    assert reply.status == 200 and reply.json()["backend"]["name"] == place.name
    assert s.out("echo [$x]") == "[]\n"


# A limit; a program that needs more of it the larger {n} is, and says {n} at its end; {n} below the limit and above it.
BITES = {"memory_mb": (128, "head -c {n} /dev/zero | tail -c {n} | wc -c", 16000000, 400000000),
         "processes": (48, "sh -c 'i=0; while [ $i -lt {n} ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done; echo $i'", 8, 100),
         "cpus": (1, None, 0, 0)}


@pytest.mark.parametrize("limit", BITES)
def test_a_limit_is_in_force_or_refused_by_name(place, limit):
    value, code, below, above = BITES[limit]
    value = max(value, place.least.get(limit, 0))
    above = max(above, 2 * value)
    if limit not in place.enforces:
        reply = place.server("POST", "/v1/sessions", {"language": "bash", "backend": place.name, "limits": {limit: value}})
        error = reply.json()["error"]
        assert reply.status == 422 and (error["code"], error["field"]) == ("unsupported_limit", "limits." + limit)
        assert error["message"].startswith("backend %s cannot enforce %s; leave it out, or set limits_mode to best_effort" % (place.name, limit))
        return
    with Session(place.server, place.once, limits={limit: value}) as s:
        if place.kind != "native":
            assert s.json["backend"]["limits"][limit] == value
        if place.told:
            assert place.told(limit) == value
        elif code:
            assert s.out(code.format(n=below)) == "%d\n" % below
            reply = place.server("POST", s.path + "/exec", {"code": code.format(n=above)})
            assert str(above) not in reply.json().get("stdout", ""), reply


def test_what_only_boxes_have_is_refused(place, s):
    if place.kind == "native":
        pytest.skip("a box has them")
    for path in ("fork", "checkpoints"):
        reply = place.server("POST", s.path + "/" + path, {})
        assert reply.status == 501 and "use a session in a box" in reply.json()["error"]["message"], reply


def test_the_end_of_a_session_leaves_nothing(place):
    word = "6%d" % (uuid.uuid4().int % 10**8)
    # A shared place with gVisor keeps what has left its parent (docs/internals/far-shell.md).
    with Session(place.server, place.once if place.sandboxes else place.name) as s:
        s.exec("(setsid sleep %s &)" % word)
        wait_until(lambda: place.has_process(word, s), "it runs")
        traces = place.sandboxes() if place.sandboxes else [word]
        assert traces and all(map(processes_with, traces))
    wait_until(lambda: not any(map(processes_with, traces)), "nothing is left")
