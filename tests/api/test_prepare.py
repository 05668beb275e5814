# SPDX-License-Identifier: Apache-2.0
"""hermes-prepare: what runs as root, as whom the others start, and languages that are only partly there."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from apilib import BUILD, HERMES, MONITOR, ROOT, SLOW, children, make_dir, name_of, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: users are changed")
NO_CAPABILITIES = "0" * 16


def status_of(pid):
    with open("/proc/%s/status" % pid) as f:
        return dict(re.findall(r"^(\w+):\t(.*)$", f.read(), re.M))


def write(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def describe(place, name, toolchain, **fields):
    """A language of the operator's, in a directory for RUNTIME_DIR."""
    write(place / name / "runtime.json", json.dumps(dict(
        name=name, main_file="main." + name, package="the-%s-package" % name, toolchain=[toolchain],
        run=dict(argv=["/usr/bin/sh", "{entry}"], **fields.pop("run", {})), **fields)))


def runtimes(place, **env):
    out = subprocess.run([str(HERMES), "runtimes", "--json"], capture_output=True, check=True, timeout=60 * SLOW,
                         env={"PATH": "/usr/bin:/bin", "RUNTIME_DIR": str(place), "HERMES_RUNTIMES": str(ROOT / "runtimes"),
                              "HERMES_STATE_DIR": str(place / "state"), **env})
    return {r["name"]: r for r in json.loads(out.stdout)["runtimes"]}


# --- toolchains

# The answer is the version: uid, gid, number of groups, bits of capabilities, no_new_privs, open descriptors, core limit.
SPY = """#!/bin/sh
caps=0; groups=0
while read -r name value rest; do
    case $name in
    Uid:) uid=$value ;;
    Gid:) gid=$value ;;
    Groups:) set -- $value $rest; groups=$# ;;
    CapEff:|CapPrm:|CapBnd:|CapAmb:) [ "$value" = 0000000000000000 ] || caps=1 ;;
    NoNewPrivs:) nnp=$value ;;
    esac
done < /proc/self/status
fds=0
for n in 3 4 5 6 7 8 9 11 12; do [ ! -e /proc/$$/fd/$n ] || fds=1; done
echo "spy $uid.$gid.$groups.$caps.$nnp.$fds.$(ulimit -c)"
"""


@needs_root
def test_a_toolchain_never_runs_as_root(make_server):
    """Below a directory that only root may enter, as ~/.rustup is."""
    place = make_dir()
    place.chmod(0o755)
    spy = write(place / "closed" / "bin" / "spy", SPY)
    (place / "closed").chmod(0o755)
    hidden = place / "private"
    hidden.mkdir(mode=0o700)
    shutil.move(str(place / "closed"), hidden / "home")
    spy = hidden / "home" / "bin" / "spy"
    describe(place, "spy", {"home": str(hidden / "home"), "program": "bin/spy"}, version=["{home}/bin/spy"])
    as_root = subprocess.run([str(spy)], capture_output=True, text=True).stdout
    assert as_root.startswith("spy 0.0.") and ".1.0." in as_root, as_root  # the control: root, with capabilities
    wanted = "65533.65533.0.0.1.0.0"
    assert runtimes(place)["spy"]["version"] == wanted
    server = make_server(env={"RUNTIME_DIR": str(place)})
    listed = {r["name"]: r for r in server("GET", "/v1/runtimes").json()["runtimes"]}
    assert listed["spy"]["version"] == wanted


@pytest.mark.parametrize("since,version", [("4.5.6", "7.8"), ("4.5.10", None), ("4.5", "7.8"), ("5.0", None)])
def test_a_compiler_with_versions_of_its_own(since, version):
    """The list has the version of the language, and names the compiler beside it. esbuild and TypeScript are such a pair."""
    place = make_dir()
    tool = write(place / "home" / "bin" / "tool", "#!/bin/sh\necho 4.5.6\n")
    describe(place, "xs", {"home": str(tool.parent.parent), "program": "bin/tool"}, version=["{home}/bin/tool"],
             version_of={"program": "tool", "since": since, "language": "7.8"})
    place.chmod(0o755)
    for _ in range(2):  # the second answer comes from the cache
        found = runtimes(place)["xs"]
        assert (found["version"], found["compiler"]) == (version, "tool 4.5.6")


# --- languages that are only partly there

def test_half_a_language_is_listed_and_the_server_starts(make_server):
    place = make_dir()
    there = place / "lib"
    describe(place, "half", {"home": "/usr", "program": "bin/sh"}, run={"paths": [{"host": str(there), "box": "/opt/half"}]})
    describe(place, "odd", {"home": "/usr", "program": "bin/sh"}, run={"paths": [{"host": "/usr", "box": "/bin/x"}]})
    describe(place, "third", {"home": "/usr", "program": "bin/sh"}, parts=["/usr/lib/nonexistent*/json"])
    describe(place, "fifth", {"home": "/usr", "program": "bin/sh", "requires": ["/usr/bin/nonexistent"]})
    for listed in (runtimes(place), None):
        if listed is None:
            server = make_server(env={"RUNTIME_DIR": str(place)})
            listed = {r["name"]: r for r in server("GET", "/v1/runtimes").json()["runtimes"]}
        for name, part in (("half", str(there)), ("third", "/usr/lib/nonexistent*/json"), ("fifth", "/usr/bin/nonexistent")):
            assert listed[name]["available"] is False
            assert listed[name]["missing"] == "%s is only partly installed: %s is missing; install the-%s-package" % (name, part, name)
    assert listed["odd"]["available"] is False and listed["odd"]["missing"].startswith("odd cannot be set up: root tree odd-run")
    assert server.works()
    refused = server.run("half", "echo")
    assert refused.status in (400, 422, 501, 503) and "install the-half-package" in refused.json()["error"]["message"]
    assert [e["language"] for e in server.events("a language is not available") if e["language"] == "half"]
    there.mkdir()  # the control
    assert runtimes(place)["half"]["available"] is True
    server.stop()
    server.start()
    assert server.run("half", "echo whole").json()["stdout"] == "whole\n"


# --- users, secrets, the seal

@needs_root
def test_the_monitor_keeps_no_secret_and_the_server_no_right(make_server):
    server = make_server(env={"API_TOKEN": "tok-of-this-test"}, args=["--auth-token", "flag-of-this-test"])
    assert server("GET", "/v1/report", key="tok-of-this-test").status == 200  # the control: both are keys
    assert server("GET", "/v1/report", key="flag-of-this-test").status == 200
    pid = server.process.pid
    assert name_of(pid) == "hermes-monitor"
    for path in ("environ", "cmdline"):
        assert b"of-this-test" not in pathlib.Path("/proc/%d/%s" % (pid, path)).read_bytes()
    own = status_of(server.child("hermes-server"))
    assert own["Uid"].split() == [own["Uid"].split()[0]] * 4 and own["Uid"].split()[0] not in ("0", "65533")
    assert own["Groups"].strip() == "" and own["NoNewPrivs"] == "1"
    assert {own[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITIES}


def copy_programs(place, **replaced):
    """The programs in a directory of their own, some replaced by scripts."""
    folder = place / "bin"
    folder.mkdir()
    for name in ("hermes-prepare", "hermes-monitor", "hermes-spawn", "hermes-setup", "hermes-network", "hermes-egress",
                 "hermes-reach", "hermes-places", "hermes-server"):
        if name not in replaced:
            shutil.copy(BUILD / name, folder / name)
    for name, text in replaced.items():
        write(folder / name, text)
    return folder


RECORD = """#!/bin/sh
while read -r line; do echo "$line"; done < /proc/self/status > %s
exit 7
"""


@needs_root
def test_no_instruction_of_the_server_runs_as_root(make_server):
    """A stand-in writes down whom it was started as. Its directory is one that only root may enter."""
    place = make_dir()
    place.chmod(0o755)
    records = place / "records"
    records.mkdir()
    records.chmod(0o777)
    folder = copy_programs(place, **{"hermes-server": RECORD % (records / "server")})
    server = make_server(command=[folder / "hermes-prepare"], wait=False)
    assert server.process.wait(60 * SLOW) == 7
    started = dict(re.findall(r"^(\w+):[ \t]*(.*)$", (records / "server").read_text(), re.M))
    assert started["Uid"].split()[0] not in ("0", "65533") and started["CapEff"] == NO_CAPABILITIES
    assert started["NoNewPrivs"] == "1" and started["Groups"].strip() == ""
    # The control: a stand-in for the spawner is root.
    folder = copy_programs(make_dir(), **{"hermes-spawn": RECORD % (records / "spawn")})
    server = make_server(command=[folder / "hermes-prepare"], wait=False)
    assert server.process.wait(60 * SLOW) == 125
    assert re.search(r"^Uid:\s+0\s", (records / "spawn").read_text(), re.M)


def test_without_a_seal_there_is_no_server(make_server):
    """A spawner that never answers: the server is not started, and the monitor still stops."""
    place = make_dir()
    place.chmod(0o755)
    marker = place / "server-was-started"
    folder = copy_programs(place, **{"hermes-spawn": "#!/bin/sh\nexec /usr/bin/sleep 1000\n",
                                     "hermes-server": "#!/bin/sh\n: > %s\n" % marker})
    server = make_server(command=[folder / "hermes-prepare"], wait=False)

    def is_preparing():
        names = [name_of(pid) for pid in children(server.process.pid)]
        return "hermes-prepare" in names and "sleep" in names
    assert wait_until(is_preparing, 30)
    preparing = [pid for pid in children(server.process.pid) if name_of(pid) == "hermes-prepare"][0]

    def has_asked_for_the_seal():  # it waits for the answer
        return "recv" in pathlib.Path("/proc/%d/wchan" % preparing).read_text() or status_of(preparing)["State"][0] == "S"
    assert wait_until(has_asked_for_the_seal, 30)
    assert not marker.exists() and server.child("hermes-server") is None
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60 * SLOW) == 0
    assert not marker.exists()


def test_a_failure_of_hermes_prepare_is_explained(make_server):
    folder = copy_programs(make_dir(), **{"hermes-spawn": "#!/bin/sh\nexit 1\n"})
    server = make_server(command=[folder / "hermes-prepare"], wait=False)
    assert server.process.wait(60 * SLOW) == 125
    assert "hermes-spawn does not answer: it ended" in server.logs()
    assert any("hermes-prepare could not set up the languages" in line and "hermes doctor" in line
               for line in server.logs().splitlines())


@needs_root
def test_a_killed_hermes_prepare_is_replaced(make_server):
    """The spawner dies, and so does the hermes-prepare of the next one: the one after that serves."""
    server = make_server()

    def has_killed_both():  # hermes-prepare lives for a moment, so that several attempts may be needed
        spawner = server.child("hermes-spawn")
        os.kill(spawner, signal.SIGKILL)
        looks = 0
        while looks < 100:  # after the new spawner is there
            looks += server.child("hermes-spawn") not in (None, spawner)
            preparing = server.child("hermes-prepare")
            if preparing:
                try:
                    os.kill(preparing, signal.SIGKILL)
                    return True
                except ProcessLookupError:
                    pass  # it was faster
        return False

    first = server.child("hermes-spawn")
    assert wait_until(has_killed_both, 60)
    assert wait_until(server.works, 60)
    assert server.child("hermes-spawn") != first and server.child("hermes-prepare") is None


def test_hermes_monitor_alone_says_what_to_run():
    done = subprocess.run([str(MONITOR.parent / "hermes-monitor")], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 125 and "hermes serve" in done.stderr


def test_a_conflict_of_settings_names_what_the_user_set():
    done = subprocess.run([str(MONITOR)], env={"PATH": "/usr/bin", "MAX_TIMEOUT": "5"}, capture_output=True, text=True,
                          timeout=60 * SLOW, cwd="/var/tmp")
    assert done.returncode == 2
    assert "settings: MAX_TIMEOUT: 5s is less than default_timeout_s (30s)" in done.stderr
