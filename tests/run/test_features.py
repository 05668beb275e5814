# SPDX-License-Identifier: Apache-2.0
"""Hosts that lack something (R12): Hermes refuses and names it, or says how much less it enforces.

Each row removes one thing, by an outer filter, by limits of an outer user namespace or by covering a
control group tree (deny.c). Never may a box be less confined in silence.
"""
import json
import errno
import os
import re

import pytest

from runlib import ASAN, HERMES, ROOT, cgroup_mounts
from test_faults import call_names, normal

NO_ADDRESS_LIMIT = pytest.mark.skipif(
    ASAN, reason="RLIMIT_AS, which stands in for a memory group, leaves no room for AddressSanitizer")
NAMES = {name: number for number, name in call_names().items()}
LEVELS = ["none", "process", "strong", "full"]


def call(name, error="EPERM", arg=None):
    spec = "%d=%d" % (NAMES[name], getattr(errno, error))
    return spec + ("@%d:%d" % arg if arg else "")


CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWCGROUP = 0x10000000, 0x20000, 0x2000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECUREBITS, PR_CAPBSET_DROP = 38, 28, 24

# What is taken away; the features that doctor must show as not enforced ("" for things that no
# feature stands for: there `hermes run` has to name the step); what `hermes run` does.
#   refuses   exit 125 and a line that names the feature or the step
#   lower     runs, with a lower level in the answer
#   same      runs at the same level: the feature is no part of it, doctor tells
ROWS = {
    "user namespaces": (["userns", "max_user_namespaces=0"], "user_namespace", "refuses"),
    "network namespaces": (["userns", "max_net_namespaces=0"], "namespaces", "refuses"),
    "pid namespaces": (["userns", "max_pid_namespaces=0"], "namespaces", "refuses"),
    "mount namespaces": (["userns", "max_mnt_namespaces=0"], "namespaces", "refuses"),
    "ipc namespaces": (["userns", "max_ipc_namespaces=0"], "namespaces", "refuses"),
    "uts namespaces": (["userns", "max_uts_namespaces=0"], "namespaces", "refuses"),
    "cgroup namespaces": (["userns", "max_cgroup_namespaces=0"], "", "refuses"),
    "clone3": ([call("clone3", "ENOSYS")], "user_namespace", "refuses"),
    "clone3 (EPERM)": ([call("clone3", "EPERM")], "user_namespace", "refuses"),
    "unshare": ([call("unshare")], "", "refuses"),
    "unshare of cgroups": ([call("unshare", "EPERM", (0, CLONE_NEWCGROUP))], "", "refuses"),
    "setns": ([call("setns")], "", "either"),
    "fsopen": ([call("fsopen", "ENOSYS")], "mount_api", "refuses"),
    "fsconfig": ([call("fsconfig")], "mount_api", "refuses"),
    "fsmount": ([call("fsmount")], "mount_api", "refuses"),
    "open_tree": ([call("open_tree", "ENOSYS")], "mount_api", "refuses"),
    "move_mount": ([call("move_mount", "ENOSYS")], "mount_api", "refuses"),
    "mount_setattr": ([call("mount_setattr", "ENOSYS")], "mount_api", "refuses"),
    "mount": ([call("mount")], "", "refuses"),
    "umount2": ([call("umount2")], "", "refuses"),
    "pivot_root": ([call("pivot_root")], "pivot_root", "refuses"),
    "openat2": ([call("openat2", "ENOSYS")], "openat2", "either"),
    "openat2 (EPERM)": ([call("openat2", "EPERM")], "openat2", "either"),
    "seccomp": ([call("seccomp", "ENOSYS")], "seccomp", "refuses"),
    "seccomp (EPERM)": ([call("seccomp", "EPERM")], "seccomp", "refuses"),
    "no_new_privs": ([call("prctl", "EINVAL", (0, PR_SET_NO_NEW_PRIVS))], "no_new_privs",
                     "refuses"),
    "landlock": ([call("landlock_create_ruleset", "ENOSYS")], "landlock", "lower"),
    "landlock (switched off)": ([call("landlock_create_ruleset", "EOPNOTSUPP")], "landlock",
                                "lower"),
    "landlock_add_rule": ([call("landlock_add_rule")], "", "refuses"),
    "landlock_restrict_self": ([call("landlock_restrict_self")], "landlock", "refuses"),
    "close_range": ([call("close_range", "ENOSYS")], "close_range", "refuses"),
    "pidfd_send_signal": ([call("pidfd_send_signal", "ENOSYS")], "pidfd", "either"),
    "pidfd_open": ([call("pidfd_open", "ENOSYS")], "pidfd", "either"),
    "capset": ([call("capset")], "", "refuses"),
    "capability bounding set": ([call("prctl", "EPERM", (0, PR_CAPBSET_DROP))], "", "either"),
    "setresuid": ([call("setresuid")], "", "refuses"),
    "setresgid": ([call("setresgid")], "", "refuses"),
    "setrlimit": ([call("prlimit64"), call("setrlimit")], "", "refuses"),
    "sethostname": ([call("sethostname")], "", "refuses"),
    "fchown": ([call("fchown"), call("fchownat")], "", "either"),
    "keyctl": ([call("keyctl", "ENOSYS")], "", "same"),
    "keyctl (EPERM)": ([call("keyctl", "EPERM")], "", "either"),
    "socket": ([call("socket")], "", "either"),
}


def cgroup_rows():
    points = cgroup_mounts()
    for point, v2 in points:
        name = os.path.basename(point)
        if len(points) == 1:
            yield "cgroups", (["cover=" + point], "memory_limit process_limit cpu_limit", "refuses")
        elif v2:
            yield "cgroup v2 tree (cgroup.kill)", (["cover=" + point],
                                                   "cgroup_kill clone_into_cgroup", "same")
        elif name in ("memory", "pids", "cpu"):
            feature = {"memory": "memory_limit", "pids": "process_limit", "cpu": "cpu_limit"}[name]
            yield "cgroup " + name, (["cover=" + point], feature, "refuses")
    if len(points) > 1:
        yield "all cgroups", (["cover=" + p for p, _ in points],
                              "memory_limit process_limit cpu_limit", "refuses")


ROWS.update(cgroup_rows())
table = []


@pytest.fixture(scope="module", autouse=True)
def print_table():
    yield
    lines = ["| removed | hermes doctor: not enforced | hermes run |", "|---|---|---|"]
    lines += ["| %s | %s | %s |" % row for row in table]
    print("\n" + "\n".join(lines))
    path = os.environ.get("HERMES_FEATURE_TABLE")
    if path:
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")


@pytest.fixture
def deny(cc):
    return cc(ROOT / "tests/run/deny.c")


@pytest.fixture
def probe(cc):
    return cc(ROOT / "tests/run/probe.c")


base = {}


@pytest.fixture
def clean(hermes, deny, probe):
    """The same in the same kind of outer world, with nothing removed."""
    def measure(outer):
        if outer not in base:
            world = ["userns"] if outer else []
            r = hermes(*world, "--", HERMES, "doctor", "--json", program=deny)
            doctor = r.json()
            r = hermes(*world, "--", HERMES, "run", "--json", "-l", "native", probe, program=deny)
            answer = r.json()
            assert answer["status"] == "ok", r
            base[outer] = doctor, answer["isolation"]["level"], normal(answer["stdout"])
        return base[outer]
    return measure


def missing(doctor):
    return {f["name"] for f in doctor["features"] if not f["enforced"]}


@pytest.mark.parametrize("row", ROWS)
def test_host_without(hermes, deny, probe, clean, row):
    if ASAN and row == "setrlimit":
        pytest.skip("AddressSanitizer itself asks for limits before main()")
    removed, features, expected = ROWS[row]
    doctor_clean, level_clean, report_clean = clean("userns" in removed)
    r = hermes(*removed, "--", HERMES, "doctor", "--json", program=deny)
    assert r.status in (0, 1, 125), r
    if r.status == 125:
        doctor, gone = None, set()
        assert len(r.err.splitlines()) == 1, r
    else:
        doctor = r.json()
        gone = missing(doctor) - missing(doctor_clean)
        for feature in doctor["features"]:
            if not feature["enforced"]:
                assert feature["reason"] and feature["fix"], feature
    want = set(features.split()) - missing(doctor_clean)
    plain = hermes(*removed, "--", HERMES, "doctor", program=deny)
    for feature in want if doctor else ():
        assert feature.encode() in plain.out, plain

    run = hermes(*removed, "--", HERMES, "run", "--json", "-l", "native", probe, program=deny)
    began = b"BEGIN" in run.out
    if run.status == 125:
        assert not began, run
        lines = run.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("hermes run: "), run
        said = lines[0][len("hermes run: "):]
        outcome = "refuses: " + said
    else:
        answer = run.json()
        assert answer["status"] == "ok", answer
        level = answer["isolation"]["level"]
        outcome = "runs, level %s, cgroup %s" % (level, answer["isolation"]["cgroup"])
        report = normal(answer["stdout"])
    table.append((row, ", ".join(sorted(gone)) or ("fails: " + r.err.strip() if not doctor else "–"),
                  re.sub(r"/\S*/(run-tests|tmp)\S*", "…", outcome).replace("|", "/")))

    assert want <= gone or not doctor, (want, gone)
    if run.status == 125:
        named = any(f in said for f in features.split()) or re.search(r"cannot [a-z]", said) or \
            any(f in said for f in gone)
        assert named, said
        assert expected in ("refuses", "either"), outcome
        if doctor and want and want & {"memory_limit", "process_limit", "cpu_limit"}:
            assert doctor["level"] in ("none", "process") and r.status == 1
        return
    if "landlock" in row and "landlock" in missing(doctor_clean):
        expected = "same"  # this host has none to lose
    if expected == "lower" and level_clean == "full":
        assert LEVELS.index(level) < LEVELS.index(level_clean), outcome
        lines = set(report.split("\n")) ^ set(report_clean.split("\n"))
        # The outer filter counts as one more.
        assert all(line.startswith(("landlock:", "status: Seccomp_filters:")) for line in lines), lines
        return
    assert expected in ("same", "either", "lower"), outcome
    assert level == level_clean, outcome
    # Same level: the same barriers, seen from inside. The outer filter counts as one more.
    lines = {re.sub(r"Seccomp_filters:.*", "", x) for x in report.split("\n")} ^ \
        {re.sub(r"Seccomp_filters:.*", "", x) for x in report_clean.split("\n")}
    # What was taken from the host is gone in the box too.
    lines = {x for x in lines if x.split(":")[0] not in ("landlock", "keyring")}
    assert not lines, lines


def test_doctor_on_this_host(hermes):
    r = hermes("doctor", "--json")
    doctor = r.json()
    assert r.status == (0 if doctor["level"] in ("strong", "full") else 1)
    assert len(doctor["features"]) >= 15
    text = hermes("doctor").out.decode()
    assert "isolation level: " + doctor["level"] in text
    for feature in doctor["features"]:
        assert feature["name"] in text
        assert feature["enforced"] or (feature["reason"] and feature["fix"])


@NO_ADDRESS_LIMIT
def test_minimum_level_is_kept(hermes, deny):
    """`--min-level full` on a host that has no Landlock refuses; so does the default without
    limits; `process` runs and says so."""
    path = hermes.file("print('ran')", "main.py")
    if hermes("doctor", "--json").json()["level"] == "full":
        r = hermes(call("landlock_create_ruleset", "ENOSYS"), "--", HERMES, "run", "--min-level",
                   "full", path, program=deny)
        assert r.status == 125 and r.out == b"" and "landlock" in r.err, r
    covers = ["cover=" + p for p, _ in cgroup_mounts()]
    r = hermes(*covers, "--", HERMES, "run", path, program=deny)
    assert r.status == 125 and "memory_limit" in r.err and r.out == b"", r
    r = hermes(*covers, "--", HERMES, "run", "--json", "--min-level", "process", path, program=deny)
    if r.status == 0:
        answer = json.loads(r.out)
        assert answer["isolation"] == {"level": "process", "cgroup": "none", "start": "cold",
                                       "start_reason": "not_ready"}
    else:
        assert r.status == 125 and "landlock" in r.err, r


@NO_ADDRESS_LIMIT
def test_process_level_still_limits(hermes, deny):
    """Without control groups: wall time, and memory by RLIMIT_AS."""
    if "landlock" in missing(hermes("doctor", "--json").json()):
        pytest.skip("this host has no level `process`: no Landlock")
    covers = ["cover=" + p for p, _ in cgroup_mounts()]
    flags = ["run", "--json", "--min-level", "process", "--time", "700ms", "--memory", "64m"]
    r = hermes(*covers, "--", HERMES, *flags, hermes.file("while True: pass", "a.py"), program=deny)
    assert r.json()["status"] == "time_limit", r
    r = hermes(*covers, "--", HERMES, *flags, hermes.file("x = b'1' * (200 << 20)\nprint('no')",
                                                          "b.py"), program=deny)
    answer = r.json()
    assert answer["status"] != "ok" and answer["stdout"] == "", answer
