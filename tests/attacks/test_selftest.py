# SPDX-License-Identifier: Apache-2.0
"""The attack cases by `hermes selftest`: as root, rootless in a delegated control group, and
rootless without one. One test per case and per control, so that a failure names it.

In the VM (tools/vm) the guest's own script chooses identity and control group; there the cases run
once, as whoever runs pytest."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import check_cases
from groups import Groups

REPO = pathlib.Path(__file__).resolve().parents[2]
HERMES = REPO / os.environ.get("HERMES_BUILD_DIR", "build") / "hermes"
ROOT = os.geteuid() == 0
IN_VM = os.environ.get("HERMES_IN_VM") == "1"
UID = 64123  # nobody has it, nor a range in /etc/subuid
HEADERS = {header["id"]: header for header in map(check_cases.header, check_cases.cases())}
SECONDS = 2700 if IN_VM else 900
SKIPS = ["no two cores of the host were free",
         "boxes have one uid here: there is no such barrier to leave out"]

KNOBS = ["/proc/sys/" + name for name in """kernel/core_pattern kernel/modprobe kernel/hostname
kernel/sysrq kernel/domainname vm/overcommit_memory vm/nr_hugepages vm/drop_caches
net/ipv4/ip_forward kernel/randomize_va_space fs/suid_dumpable""".split()]


# ----- running hermes -----

class Runner:
    """Runs hermes with an identity, in groups or without, with a state directory of its own."""

    def __init__(self, uid=None, groups=None):
        self.uid = uid
        self.groups = groups
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hermes-test-", dir="/var/tmp"))
        if uid is not None:
            os.chown(self.dir, uid, uid)

    def _become(self):
        if self.groups:
            self.groups.enter()
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)

    def start(self, *args, **more):
        env = {"PATH": os.environ["PATH"], "HERMES_STATE_DIR": str(self.dir / "state")}
        return subprocess.Popen([str(HERMES), *args], env=env, cwd="/", preexec_fn=self._become,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", **more)

    def run(self, *args):
        process = self.start(*args)
        out, err = process.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def remove(self):
        shutil.rmtree(self.dir)


def host():
    """What must be as before; text by name."""
    state = {knob: pathlib.Path(knob).read_text() for knob in KNOBS if os.access(knob, os.R_OK)}
    state["mounts"] = sorted(line.split()[4] for line in open("/proc/self/mountinfo"))
    state["clock"] = round(time.time() - time.monotonic(), 0)
    return state


OTHERS = set()  # processes that other tests of this session keep: their servers


@pytest.fixture(scope="module", autouse=True)
def _others():
    OTHERS.update(pid for pid, _ in children())


def children():
    """Living processes of hermes that were left to us: we are their reaper."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if not name.startswith("hermes") or int(parent) != os.getpid():
            continue
        if state == "Z":
            os.waitpid(int(path.parent.name), os.WNOHANG)
        elif path.parent.name not in OTHERS:
            found.append((path.parent.name, name))
    return found


class Suite:
    """One selftest: its results by id and kind, and what was left behind."""

    def __init__(self, runner, *args):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        before = host()
        process = runner.start("selftest", "--json", *args)
        try:
            out, self.stderr = process.communicate(timeout=SECONDS)
        finally:
            process.kill()  # nothing, unless it was too slow: its boxes go with it
            process.wait()
        self.status = process.returncode
        after = host()
        self.left = [f"{key}: {before[key]!r} became {after.get(key)!r}" for key in before
                     if before[key] != after.get(key) and key != "clock"]
        if abs(after["clock"] - before["clock"]) > 2:
            self.left.append("the clock was set")
        self.left += [f"process {child}" for child in children()]
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # orphans of later tests are not ours to reap
        self.left += map(str, pathlib.Path("/var/tmp").glob(f"hermes-selftest-{process.pid}-*"))
        self.results = {(item["id"], item["control"]): item for item in json.loads(out or "[]")}

    def check(self, case, control, may_skip):
        assert self.results, f"no results, exit status {self.status}: {self.stderr}"
        item = self.results[case, control]
        is_missing = IN_VM and " is not installed; install " in item["why"]  # it has few languages
        if item["result"] == "skipped" and (may_skip or is_missing or control and item["why"] in SKIPS):
            pytest.skip(item["why"])
        assert item["result"] == "passed", item["why"] + f" {item}"


def one_suite(uid, groups, *args):
    suite, left = None, []
    try:
        runner = Runner(uid, groups)
        try:
            suite = Suite(runner, *args)
        finally:
            runner.remove()
    finally:
        left = groups.remove() if groups else []
    suite.left += left
    return suite


@pytest.fixture(scope="module")
def suites():
    made = {}

    def suite(mode):
        if mode not in made:
            if mode == "own":
                made[mode] = one_suite(None, Groups() if ROOT and not IN_VM else None, "--controls")
            elif mode == "rootless":
                made[mode] = one_suite(UID, Groups(UID), "--controls")
            else:
                if b"__asan_init" in HERMES.read_bytes():
                    pytest.skip("RLIMIT_AS, which stands in for a memory group, leaves no room for "
                                "AddressSanitizer")
                made[mode] = one_suite(UID, None, "--min-level", "process")
        return made[mode]
    return suite


needs_root = pytest.mark.skipif(not ROOT, reason="gives up root to be rootless")
not_in_vm = pytest.mark.skipif(IN_VM, reason="tools/vm/guest-tests.sh chooses the identity")
MODES = ["own", pytest.param("rootless", marks=[needs_root, not_in_vm])]
CONTROLS = [case for case, header in HEADERS.items() if header["control"] != "none"]


def rootless(mode):
    return mode != "own" or not ROOT


def may_skip(mode, case):
    header = HEADERS[case]
    return rootless(mode) and ("root-only" in header or "rootless" in header) or \
        mode == "process" and "needs-cgroup" in header


# ----- the cases -----

@pytest.mark.parametrize("case", HEADERS)
@pytest.mark.parametrize("mode", MODES)
def test_attack(suites, mode, case):
    suites(mode).check(case, False, may_skip(mode, case))


@pytest.mark.parametrize("case", CONTROLS)
@pytest.mark.parametrize("mode", MODES)
def test_control(suites, mode, case):
    suites(mode).check(case, True, may_skip(mode, case))


@needs_root
@not_in_vm
@pytest.mark.parametrize("case", HEADERS)
def test_attack_without_control_group(suites, case):
    suites("process").check(case, False, may_skip("process", case))


@pytest.mark.parametrize("mode", MODES + [pytest.param("process", marks=[needs_root, not_in_vm])])
def test_nothing_is_left(suites, mode):
    assert not suites(mode).left


@needs_root
@not_in_vm
def test_rootless_without_delegation_refuses():
    runner = Runner(UID)
    try:
        program = runner.dir / "hello.py"
        program.write_text("print('hello')")
        program.chmod(0o644)
        answer = runner.run("run", str(program))
        assert answer.returncode == 125 and answer.stdout == ""
        for word in ("memory_limit", "process_limit", "cpu_limit", "Delegate=yes", "--min-level"):
            assert word in answer.stderr
        if b"__asan_init" in HERMES.read_bytes():
            return  # RLIMIT_AS leaves no room for AddressSanitizer
        answer = runner.run("run", "--min-level", "process", str(program))
        assert (answer.returncode, answer.stdout) == (0, "hello\n")
    finally:
        runner.remove()


# ----- the harness itself: what it must not let pass -----

BASE = {"name": "A case", "group": "process", "priority": "1", "expect": "ok", "control": "none",
        "control-why": "a test of the harness"}


@pytest.fixture
def try_case():
    """Writes one case, runs it, returns the exit status and all that was printed."""
    runner = Runner()
    cases = runner.dir / "cases"
    cases.mkdir()
    shutil.copy(check_cases.CASES.parent / "victim.py", runner.dir)

    def attempt(body, *args, start=False, **fields):
        header = {"id": "X-99", **BASE, **{k.replace("_", "-"): v for k, v in fields.items()}}
        lines = [f"# {key}: {value}" for key, value in header.items() if value is not None]
        folder = cases / BASE["group"]
        folder.mkdir(exist_ok=True)
        (folder / "a-case.sh").write_text("\n".join(lines + [body]) + "\n")
        command = ("selftest", "--cases", str(cases), *args)
        if start:
            return runner.start(*command)
        answer = runner.run(*command)
        return answer.returncode, answer.stdout + answer.stderr
    yield attempt
    runner.remove()


@pytest.mark.parametrize("body, fields, why", [
    ("echo BREACH: all; echo done", {}, "BREACH: all"),
    ("echo BREACH: all >&2; echo done", {}, "BREACH: all"),
    ("echo dones", {}, "without the line `done`"),
    ("exit 3", {}, "runtime_error, not ok"),
    ("exit 3", {"expect": "runtime_error", "expect_exit": "4"}, "exit code 3, not 4"),
    ("kill -9 $$", {"expect": "signaled", "expect_signal": "SIGTERM"}, "killed by SIGKILL"),
    ("echo done", {"expect_hit": "cpu"}, "cpu limit is not in limits_hit"),
    ("sleep 99", {"expect": "time_limit", "limits": "wall_ms=1000", "expect_not_hit": "wall"}, "wall limit is in limits_hit"),
    ("echo done", {"collect": "a", "expect_file": "a not_regular"}, "does not tell of the file a"),
    ("echo > a; echo done", {"collect": "a", "expect_file": "a not_regular"}, "a is there"),
    ("echo key: 1; echo done", {"runs": "2", "differ": "key"}, "both boxes say `key: 1`"),
    ("echo done", {"runs": "2", "differ": "key"}, "no line `key:`"),
])
def test_harness_finds(try_case, body, fields, why):
    status, text = try_case(body, **fields)
    assert status == 1 and why in text and text.endswith("0 passed, 1 failed\n")


def test_harness_passes_what_holds(try_case):
    status, text = try_case("echo done", victim="yes", runs="2")
    assert (status, text) == (0, "ok   X-99 A case\n1 passed, 0 failed\n")


def test_control_without_breach_fails(try_case):
    status, text = try_case("echo done", "--controls", control="netns", control_why=None)
    assert status == 1 and "X-99 control: A case: no breach without netns" in text


@pytest.mark.parametrize("fields, why", [
    ({"expects": "ok"}, "unknown key `expects`"),
    ({"expect": "okay"}, "expect: bad value"),
    ({"limits": "wall=1"}, "limits: bad value"),
    ({"control": "nothing"}, "control: bad value"),
    ({"group": None}, "no `group`"),
    ({"group": "network"}, "its group is network"),
])
def test_bad_header(try_case, fields, why):
    status, text = try_case("echo done", **fields)
    assert status == 2 and why in text


def wait_for(what):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def canary_of(pid):
    return list(pathlib.Path("/var/tmp").glob(f"hermes-selftest-{pid}-*/f-*"))


def pid_of(command):
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == command:
                return int(path.parent.name)
        except OSError:
            pass  # gone meanwhile
    return None


def test_touched_canary_is_noticed(try_case):
    seconds = "100.%d" % os.getpid()  # no other test has this one
    process = try_case("sleep %s; echo done" % seconds, start=True)
    sleeper = wait_for(lambda: pid_of(b"sleep\0%s\0" % seconds.encode()))  # what the canary was like has been noted by then
    canary = canary_of(process.pid)[0]
    canary.write_bytes(canary.read_bytes())
    os.kill(sleeper, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "the canary file was changed" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_cleans_up(try_case, number):
    process = try_case("sleep 20; echo done", start=True, limits="wall_ms=30000", victim="yes")
    wait_for(lambda: canary_of(process.pid))
    time.sleep(0.5)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert not list(pathlib.Path("/var/tmp").glob(f"hermes-selftest-{process.pid}-*"))
    assert not children()


@pytest.mark.parametrize("args, status", [
    (["--only", "Z-*"], 2), (["--group", "none"], 2), (["--jobs", "0"], 2), (["--frobnicate"], 2),
    (["--cases", "/proc/none"], 125), (["--min-level", "none"], 2)])
def test_bad_usage(args, status):
    runner = Runner()
    try:
        answer = runner.run("selftest", *args)
        assert answer.returncode == status and answer.stdout == "" and answer.stderr
    finally:
        runner.remove()
