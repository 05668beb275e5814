# SPDX-License-Identifier: Apache-2.0
"""hermes-egress as a program of `hermes serve`: as whom it runs, that it is replaced, that it ends, and the settings of
its ceiling. What it lets through is tested in tests/network."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import pytest

from apilib import BUILD, MONITOR, SLOW, Server, make_dir, wait_until
from groups import Groups
from runlib import ASAN

IN_VM = bool(os.environ.get("HERMES_IN_VM"))
USER = 64126  # nobody has it, nor a range in /etc/subuid
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: users and control groups")
NO_CAPABILITIES = "0" * 16
FILTER = "0" if ASAN else "2"  # the sanitizer needs more calls than the filter allows: builds with it have none
BOXES_FROM = 2000000  # the first id of boxes


def status_of(pid):
    return dict(re.findall(r"^(\w+):\t(.*)$", pathlib.Path("/proc/%d/status" % pid).read_text(), re.M))


def uid_of(pid):
    return int(status_of(pid)["Uid"].split()[0])


def egress_of(server, *known):
    """A hermes-egress that has confined itself and is none of `known`, or None."""
    pid = server.child("hermes-egress")
    try:
        status = status_of(pid) if pid and pid not in known else {}
        is_confined = status.get("NoNewPrivs") == "1" and status["Seccomp"] == FILTER
        return pid if is_confined and status["CapPrm"] == NO_CAPABILITIES else None
    except OSError:
        return None


def started(server, *known):
    assert wait_until(lambda: egress_of(server, *known), 30), server.logs()
    return egress_of(server, *known)


def group_of(pid, controller):
    """The directory of its control group, and whether that is v2."""
    text = pathlib.Path("/proc/%d/cgroup" % pid).read_text()
    v1 = re.search(r"^\d+:(?:\w+,)*%s(?:,\w+)*:(.*)$" % controller, text, re.M)
    if v1:
        return pathlib.Path("/sys/fs/cgroup/%s%s" % (controller, v1[1])), False
    return pathlib.Path("/sys/fs/cgroup" + re.search(r"^0::(.*)$", text, re.M)[1]), True


def is_gone(pid):
    return not os.path.exists("/proc/%d" % pid)


# --- as whom it runs

@needs_root
def test_it_has_a_user_and_no_rights(make_server):
    server = make_server(env={"API_TOKEN": "tok-of-this-test"})
    egress = started(server)
    own, others = status_of(egress), status_of(server.child("hermes-server"))
    uid = uid_of(egress)
    assert own["Uid"].split() == [str(uid)] * 4 and own["Gid"].split() == [own["Gid"].split()[0]] * 4
    assert uid not in (0, 65533, uid_of(server.child("hermes-server"))) and uid < BOXES_FROM
    assert own["Gid"].split()[0] not in ("0", others["Gid"].split()[0]) and own["Groups"].strip() == ""
    assert {own[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NO_CAPABILITIES}
    assert own["NoNewPrivs"] == "1" and own["Seccomp"] == FILTER
    assert pathlib.Path("/proc/%d/environ" % egress).read_bytes() == b""
    assert os.getsid(egress) == egress  # Ctrl-C in a terminal is for the monitor
    assert os.readlink("/proc/%d/ns/net" % egress) == os.readlink("/proc/self/ns/net")
    # The control: the spawner has all that.
    spawner = status_of(server.child("hermes-spawn"))
    assert spawner["Uid"].split()[0] == "0" and spawner["CapEff"] != NO_CAPABILITIES and spawner["Seccomp"] != "2"


@needs_root
def test_a_user_that_the_operator_names(make_server):
    server = make_server(args=["--network-user", "64127"])
    assert uid_of(started(server)) == 64127


@needs_root
def test_it_has_a_control_group(make_server):
    server = make_server(args=["--network-memory-mb", "300", "--network-cpus", "0.5"])
    egress = started(server)
    memory, is_v2 = group_of(egress, "memory")
    cpu, _ = group_of(egress, "cpu")
    assert re.fullmatch("hermes-[0-9a-f]{32}", memory.name)
    assert int((memory / ("memory.max" if is_v2 else "memory.limit_in_bytes")).read_text()) == 300 << 20
    quota = (cpu / ("cpu.max" if is_v2 else "cpu.cfs_quota_us")).read_text().split()[0]
    assert int(quota) == 50000
    for group in (memory, cpu):
        assert (group / "cgroup.procs").read_text().split() == [str(egress)]
    os.kill(egress, signal.SIGKILL)  # the next one is in it again
    again = started(server, egress)
    assert group_of(again, "memory")[0] == memory and group_of(again, "cpu")[0] == cpu
    assert server.stop() == 0
    assert not memory.exists() and not cpu.exists()


@needs_root
def test_the_server_does_not_have_the_credentials(make_server):
    """They are in the ceiling, which the monitor passes on to hermes-egress alone."""
    place = make_dir()
    secret = place / "proxy"
    secret.write_text("me:word-of-this-test\n")
    secret.chmod(0o600)
    server = make_server(args=["--network-upstream", "http://127.0.0.1:9", "--network-upstream-filters",
                               "--network-upstream-credentials", str(secret)])
    started(server)

    def memfds(pid):
        """Name and content of each; descriptors may close while we look."""
        for link in pathlib.Path("/proc/%d/fd" % pid).iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(link)
                if "memfd" in name:
                    yield name, link.read_bytes()

    def has_ceiling(pid):
        return any("ceiling" in name for name, _ in memfds(pid))
    assert has_ceiling(server.process.pid)  # the control
    assert not has_ceiling(server.child("hermes-server")) and not has_ceiling(server.child("hermes-spawn"))
    for name, content in memfds(server.process.pid):
        assert (b"word-of-this-test" in content) == ("ceiling" in name), name


@needs_root
@pytest.mark.skipif(IN_VM, reason="the guest's control groups are laid out by its own script")
def test_rootless():
    work = make_dir()
    groups = Groups(USER)
    os.chown(work, USER, USER)

    def become():
        groups.enter()
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    try:
        server = Server(work, before=become)
        try:
            egress = started(server)
            own = status_of(egress)
            assert uid_of(egress) == USER and own["CapEff"] == NO_CAPABILITIES and own["NoNewPrivs"] == "1"
            os.kill(egress, signal.SIGKILL)
            assert started(server, egress)
        finally:
            assert server.stop() == 0
        assert is_gone(egress)
    finally:
        left = groups.remove()
        shutil.rmtree(work)
    assert not left


# --- that it is replaced

def test_a_killed_one_is_replaced_and_others_go_on(make_server):
    server = make_server()
    first = started(server)
    spawner, hermes = server.child("hermes-spawn"), server.child("hermes-server")
    answers = []
    slow = threading.Thread(target=lambda: answers.append(server.run("bash", "sleep 2; echo slow")))
    slow.start()
    assert wait_until(lambda: server.running() == 1)
    os.kill(first, signal.SIGKILL)
    second = started(server, first)
    os.kill(second, signal.SIGKILL)
    third = started(server, first, second)
    assert server.works()
    slow.join()
    assert answers[0].json()["stdout"] == "slow\n"
    assert server.child("hermes-spawn") == spawner and server.child("hermes-server") == hermes
    assert is_gone(first) and is_gone(second) and egress_of(server) == third
    assert [e["how"] for e in server.events("hermes-egress died")] == ["signal 9"] * 2


def test_a_new_spawner_gets_a_new_one(make_server):
    server = make_server()
    first, spawner = started(server), server.child("hermes-spawn")
    os.kill(spawner, signal.SIGKILL)
    second = started(server, first)
    assert wait_until(server.works, 30)
    assert is_gone(first) and server.child("hermes-spawn") != spawner and egress_of(server) == second


def copy_programs(folder, egress):
    """The programs in a directory of their own; hermes-egress is replaced by a script, or missing."""
    folder.chmod(0o755)
    for program in BUILD.glob("hermes*"):
        if program.is_file() and os.access(program, os.X_OK) and program.name != "hermes-egress":
            shutil.copy(program, folder)
    if egress:
        (folder / "hermes-egress").write_text(egress)
        (folder / "hermes-egress").chmod(0o755)
    return folder / "hermes-prepare"


@pytest.mark.parametrize("egress", [None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\nexec sleep 1000\n"],
                         ids=["missing", "ends", "hangs"])
def test_one_that_cannot_start(make_server, egress):
    """Runs without a network do not notice. The monitor tries again, with pauses that grow."""
    folder = make_dir()
    server = make_server(command=[copy_programs(folder, egress)])
    assert server.works()
    if egress is None or "exit" in egress:
        assert wait_until(lambda: len(server.events("hermes-egress died")) >= 3)
        died = [e for e in server.events("hermes-egress died")]
        assert {e["how"] for e in died} == {"exit 3" if egress else "exit 125"}
        # 50 ms, 100 ms, 200 ms and so on: hardly more than ten in as long as a test may take
        assert len(died) < 20
    if egress is None:
        assert any(e["program"] == "hermes-egress" for e in server.events(
            "cannot start a program; it belongs beside the hermes program"))
    assert server.works()
    assert server.stop() == 0
    shutil.rmtree(folder)


# --- that it ends

@needs_root
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(make_server, how):
    server = make_server()
    egress = started(server)
    groups = {group_of(egress, name)[0] for name in ("memory", "cpu")}
    assert all(group.exists() for group in groups)
    server.process.send_signal(how)
    server.process.wait(60 * SLOW)
    server.log.close()
    assert wait_until(lambda: is_gone(egress))
    if how == signal.SIGKILL:  # the next start removes them
        server.start()
        started(server)
    assert not any(group.exists() for group in groups)


def has_group(server):
    return any(e["program"] == "hermes-egress" for e in server.events("memory limit of a program"))


def test_without_networks_there_is_none(make_server):
    server = make_server(args=["--network-max", "none"])
    assert server.works() and server.child("hermes-egress") is None
    report = server("GET", "/v1/report").json()["network"]
    assert report == {"modes": ["none"], "reason": "network_max is none", "max": "none"}
    assert not has_group(server)
    control = make_server()
    assert started(control) and has_group(control)
    assert control("GET", "/v1/report").json()["network"] == {"modes": ["none", "allow", "ask", "full"], "reason": None, "max": "full"}


# --- settings

WRONG = [
    (["--network-max", "some"], "--network-max: `some` is not none, allow or full"),
    (["--network-open", "10.0.0.1/8"], "network_open: `10.0.0.1/8` is not an address or a range"),
    (["--network-open", "8.8.8.8"], "network_open: `8.8.8.8` is public"),
    (["--network-closed", "10.0.0.0/8", "--network-open", "10.1.0.0/16"],
     "network_closed: `10.0.0.0/8` closes all of 10.1.0.0/16, which network_open opens"),
    (["--network-closed-names", "a..b"], "network_closed_names: `a..b`"),
    (["--network-allowed", "example.com"], "network_allowed: it needs network_max = allow"),
    (["--network-max", "allow", "--network-allowed", "10.0.0.1:80"], "network_allowed: `10.0.0.1:80` is closed (private)"),
    (["--network-resolvers", "resolver"], "network_resolvers: `resolver` is not an address"),
    (["--network-upstream", "proxy:1"], "network_upstream: `proxy:1` is not http://ADDRESS:PORT"),
    (["--network-upstream", "http://127.0.0.1:9"], "network_upstream: with network_max = full the proxy must refuse"),
    (["--network-upstream", "http://127.0.0.1:9", "--network-max", "allow", "--network-upstream-resolves"],
     "network_upstream_resolves: the proxy alone knows"),
    (["--network-upstream-filters"], "network_upstream_filters: it needs network_upstream"),
    (["--network-upstream-credentials", "/nonexistent"], "network_upstream_credentials: /nonexistent"),
]
if os.geteuid() == 0:
    WRONG += [
        (["--network-user", "root"], "network_user: there is no user `root`, or it is root"),
        (["--user", "64125", "--network-user", "64125"], "network_user: `64125` is the server's user"),
    ]


@pytest.mark.parametrize("args,words", WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_a_wrong_setting_is_named(args, words):
    done = subprocess.run([str(MONITOR), *args], env={"PATH": "/usr/bin"}, capture_output=True, text=True,
                          timeout=60 * SLOW, cwd="/var/tmp")
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_proxy_may_have_a_name(make_server):
    server = make_server(args=["--network-upstream", "http://localhost:9", "--network-upstream-filters"])
    assert started(server)
    unknown = subprocess.run([str(MONITOR), "--network-upstream", "http://nobody.invalid:9", "--network-upstream-filters"],
                             env={"PATH": "/usr/bin"}, capture_output=True, text=True, timeout=60 * SLOW, cwd="/var/tmp")
    assert unknown.returncode == 2 and "network_upstream: `nobody.invalid` has no address" in unknown.stderr


def test_doctor_tells_the_modes():
    done = subprocess.run([str(BUILD / "hermes"), "doctor", "--json"], capture_output=True, text=True, timeout=60 * SLOW)
    network = json.loads(done.stdout)["network"]
    assert network == {"modes": ["none", "allow", "ask", "full"], "reason": None} or network["modes"] == ["none"] and network["reason"]
    text = subprocess.run([str(BUILD / "hermes"), "doctor"], capture_output=True, text=True, timeout=60 * SLOW).stdout
    assert "networks of boxes: " + " ".join(network["modes"]) in text
