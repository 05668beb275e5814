# SPDX-License-Identifier: Apache-2.0
"""Fault injection at every system call of the set-up of a box (R5 of the security tests).

One clean run tells the sites: every system call of the spawner, of box init, of the payload until
it executes the program, and of the collector. Then each is made to fail once with each of six
errors (inject.c). Whatever fails, only two things may happen: Hermes says that it failed, and the
program never started; or the program ran exactly as confined as in a clean run, seen from inside
(probe.c) and from outside (its control groups and their limits). And nothing may be left.

By default every site fails with one error, chosen by rotation; HERMES_FULL=1 runs all of them. Other
settings: HERMES_FAULT_ROLE for one role only, HERMES_FAULT_SEED for the rotation (it is the day),
HERMES_FAULT_REPORT=FILE.
"""
import collections
import concurrent.futures
import errno
import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time

import pytest

from runlib import (ASAN, ROOT, SPAWN, Groups, Hermes, call_names, cgroup_mounts, orphaned_boxes,
                    wait_until)

ERRORS = ["EPERM", "ENOMEM", "ENOSPC", "EAGAIN", "EINTR", "EMFILE"]
ROLES = ["spawner", "setup", "init", "payload", "collector"]
FULL = os.environ.get("HERMES_FULL") == "1"
WORKERS = 3

# Calls that are not sites, and why.
NOT_SITES = {
    "exit_group": "a process that cannot end has nowhere to go",
    "exit": "the same",
    "rt_sigreturn": "has no result",
    "restart_syscall": "the kernel's own",
    "brk": "answers an address, never an error; the C library takes an error for one",
    "rt_sigprocmask": "fails for a wrong argument only, and guards nothing",
    "rt_sigaction": "fails for a wrong argument only, and guards nothing",
    "getpid": "cannot fail",
    "geteuid": "cannot fail",
    "getegid": "cannot fail",
    "umask": "cannot fail",
    "arch_prctl": "before main()",
    "set_tid_address": "before main()",
    "set_robust_list": "before main()",
    "rseq": "before main()",
}

if ASAN:  # these are calls of its runtime, which gives up when one fails, or waits for its own lock and spins
    NOT_SITES.update(dict.fromkeys(["mmap", "munmap", "mprotect", "madvise", "sigaltstack", "prlimit64", "futex"],
                                   "the sanitizer's own; the plain build has the program's"))

# Sites whose failure costs more than the run, and why that is in order.
HARMLESS_LEAK = {
    # The kernel refuses to remove a control group: it is empty, and the next start removes it.
    ("spawner", "unlinkat"): "an empty group stays until the next start",
    ("spawner", "rmdir"): "an empty group stays until the next start",
    # What cannot be opened, locked or read cannot be cleaned up either.
    ("spawner", "openat"): "an empty group stays until the next start",
    ("spawner", "mkdirat"): "an empty group stays until the next start",
    ("spawner", "mkdir"): "an empty group stays until the next start",
    ("spawner", "flock"): "an empty group stays until the next start",
    # Without random numbers there are no names; the spawner aborts where it stands.
    ("spawner", "getrandom"): "an empty group stays until the next start",
    # A spawner whose loop fails cannot wait for the kernel to let go of the dead.
    ("spawner", "epoll_wait"): "an empty group stays until the next start",
}


class Lab:
    """Runs the probe with one injected fault."""

    def __init__(self, state, work, inject, probe, number):
        self.work = work / ("lab-%d" % number)
        (self.work / "shared").mkdir(parents=True)
        self.groups = Groups("-%d" % number)
        self.hermes = Hermes(self.groups, state, self.work)
        self.inject, self.probe = inject, probe
        self.script = self.work / "spawn"
        self.log = self.work / "log"
        self.pid = self.work / "pid"

    def run(self, role, call, n, error, json=False):
        """(status, stdout, stderr, what the outside shows of the payload, site was reached)."""
        self.log.write_text("")
        self.script.write_text("#!/bin/sh\necho $$ >%s\nASAN_OPTIONS=detect_leaks=0 exec %s %s %s %s %s %s %s\n"
                               % (self.pid, self.inject, self.log, role, call, n, error, SPAWN))
        self.script.chmod(0o755)
        p = self.hermes.start(
            ["run", "-l", "native", "--ro", self.work / "shared", "--collect", "*.out", "--out",
             self.work / "out", "--memory", "64m", "--time", "60s", *(["--json"] if json else []),
             self.probe, "x y"], env={"HERMES_SPAWN": str(self.script)})
        out, outside = b"", None
        if not json:
            deadline = time.monotonic() + 100
            while b"END\n" not in out and time.monotonic() < deadline:
                if select.select([p.stdout], [], [], 1)[0]:
                    chunk = os.read(p.stdout.fileno(), 65536)
                    if not chunk:
                        break
                    out += chunk
            for _ in range(20):
                outside = self.look() if b"END\n" in out else None
                if outside or b"END\n" not in out or p.poll() is not None:
                    break
                time.sleep(0.02)
        try:
            more, err = p.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            p.kill()
            os.kill(int(self.pid.read_text()), signal.SIGKILL)  # what it traces dies with it
            more, err = p.communicate()
            err += b"HANGS"
        return (p.returncode, (out + more).decode(errors="replace"), err.decode(errors="replace"),
                outside, "fired" in self.log.read_text())

    def look(self):
        """The payload's control groups and limits, as the host sees them."""
        for pid in self.groups.pids():
            try:
                if open("/proc/%d/comm" % pid).read() != "main\n":
                    continue
                text = open("/proc/%d/cgroup" % pid).read()
                if "State:\tR" not in open("/proc/%d/status" % pid).read() and \
                        "State:\tS" not in open("/proc/%d/status" % pid).read():
                    continue  # dying: the kernel has moved it to the top
            except OSError:
                continue
            seen = []
            for line in text.splitlines():
                names, path = line.split(":", 2)[1:]
                if not set(names.split(",")) & {"memory", "pids", "cpu", ""}:
                    continue
                seen.append("%s %s" % (names or "v2", re.sub(
                    r"[0-9a-f]{16,}|test-hermes-[\d-]+", "X", path)))
                for point, _ in cgroup_mounts():
                    leaf = point + path
                    for name in ("memory.limit_in_bytes", "memory.max", "pids.max", "cpu.max",
                                 "cpu.cfs_quota_us"):
                        try:
                            value = open(leaf + "/" + name).read().strip()
                        except OSError:
                            continue
                        seen.append("%s=%s" % (name, value))
            return sorted(set(seen))
        return None

    def left(self):
        return ["process %d" % p for p in self.groups.pids()] + self.groups.children()

    def settle(self):
        wait_until(lambda: not self.left(), 3)
        return self.left()


def normal(report):
    """The report without what differs from run to run."""
    report = re.sub(r"\b20[0-6]\d{4}\b", "UID", report)
    report = re.sub(r"(?m)^mount: \d+ \d+ \d+:\d+ ", "mount: ", report)
    report = re.sub(r"/lab-\d+/", "/lab/", report)
    report = re.sub(r"(user|mnt|pid|net|ipc|uts|cgroup):\[\d+\]", r"\1", report)
    return report


class Sites:
    """The system calls of a clean run."""

    def __init__(self, lab):
        names = call_names()
        counts = []
        for _ in range(3):
            status, out, err, outside, _ = lab.run("record", "-", "-", "-")
            assert status == 0 and "END" in out, (status, out, err)
            self.clean, self.outside = normal(out), outside
            seen, order = collections.Counter(), []
            for line in lab.log.read_text().split("\n"):
                fields = line.split()
                if len(fields) == 3 and fields[0] in ROLES:
                    site = (fields[0], names.get(int(fields[1]), fields[1]), int(fields[1]))
                    seen[site] += 1
                    order.append(site + (int(fields[2]),))
            counts.append(seen)
        _, text, _, _, _ = lab.run("none", 0, 0, 0, json=True)
        self.level, self.cgroup = re.search(
            r'"level": "(\w+)",\s*"cgroup": "(\w+)"', text).groups()
        self.recorded = [collections.Counter(site[0] for site in seen.elements()) for seen in counts]
        # How often the spawner polls is chance, and while it is traced it polls more: what every
        # clean run has is a site.
        least = {k: min(c[k] for c in counts) for k in counts[0]}
        for key in least:
            if key[0] == "spawner" and key[1] in ("epoll_wait", "recvfrom", "waitid"):
                least[key] = min(least[key], 12)
        self.all = [s for s in order if s[1] not in NOT_SITES and s[3] <= least.get(s[:3], 0)]


def judge(sites, lab, site, error):
    """One injection; returns (class, text). Classes starting with "bad" are failures."""
    role, name, number, n = site
    label = "%s %s #%d %s" % (role, name, n, error)
    status, out, err, outside, fired = lab.run(role, number, n, getattr(errno, error))
    started = "BEGIN" in out
    left = lab.settle()
    if left:
        again = lab.run("none", 0, 0, 0)
        still = lab.settle()
        if (role, name) not in HARMLESS_LEAK or any("process" in x for x in left) or still:
            lab.groups.remove()
            lab.groups = lab.hermes.groups = Groups("-%s" % threading.get_ident())
            return "bad leak", "%s: exit %s %r left %s, after the next start %s (%s)" % (
                label, status, err, left[:3], still[:3], again[0])
    if not fired:
        return "not reached", label
    if "HANGS" in err:
        return "bad hang", "%s: %r" % (label, err)
    if "Sanitizer" in err or "runtime error:" in err:
        return "bad sanitizer", "%s: %s" % (label, err)
    if not started:
        before_main = "error while loading shared libraries" in err
        if status == 125 and (len(err.splitlines()) == 1 or before_main):
            return "refused", label
        if name == "close" and role == "payload" and status == 126:
            return "refused", label  # the injected close leaves the program open: ETXTBSY
        if name == "execve" and status == 126 and error in ("EPERM", "ENOMEM"):
            return "refused", label  # a program of the user's can be the reason for these
        return "bad refusal", "%s: exit %s, stdout %r, stderr %r" % (label, status, out, err)
    same = normal(out) == sites.clean
    if outside is None and "END" in out and status == 125:
        outside = sites.outside  # already gone when we looked
    if same and outside == sites.outside:
        if status == 0:
            return "ran confined", label
        if status == 125:
            return "ran confined, then failed", "%s: %r" % (label, err)
        return "bad verdict", "%s: ran confined, exit %s, stderr %r" % (label, status, err)
    if not same and "END" not in out and status == 125 and sites.clean.startswith(normal(out)):
        return "ran confined, then failed", "%s: %r" % (label, err)
    # Less than a clean run has: only if the answer says so.
    status, text, _, _, _ = lab.run(role, number, n, getattr(errno, error), json=True)
    lab.settle()
    told = re.search(r'"level": "(\w+)",\s*"cgroup": "(\w+)"', text)
    lines = set(normal(out).split("\n")) ^ set(sites.clean.split("\n"))
    what = "%s: told %s, differs %s, outside %s" % (
        label, told and told.groups(), sorted(lines)[:6],
        sorted(set(outside or []) ^ set(sites.outside or []))[:6])
    if told and told.group(1) != sites.level:
        return "lower level, told", what
    if told and same and told.group(2) != sites.cgroup and outside:
        return "other cgroup version, told", what
    return "bad confinement", what


@pytest.mark.slow
def test_every_system_call_of_the_set_up(state_dir, session_dir, cc, request):
    inject = cc(ROOT / "tests/run/inject.c")
    probe = cc(ROOT / "tests/run/probe.c")
    work = session_dir / "faults"
    labs = [Lab(state_dir, work, inject, probe, 0)]
    workers = 1 if labs[0].groups.shared else WORKERS
    labs += [Lab(state_dir, work, inject, probe, i) for i in range(1, workers)]
    request.addfinalizer(lambda: [lab.groups.remove() for lab in labs])
    assert labs[0].hermes.native(probe).status == 0  # prepares the state directory
    sites = Sites(labs[0])
    assert sites.outside and any("pids.max=" in x or "pids" in x for x in sites.outside)
    per_role = collections.Counter(s[0] for s in sites.all)
    assert per_role["setup"] > 40 and per_role["init"] > 40 and per_role["payload"] > 30 and per_role["collector"] > 10, sites.recorded
    start = int(os.environ.get("HERMES_FAULT_SEED", time.time() // 86400))
    every = 11 if os.environ.get("HERMES_IN_VM") else 1  # an emulated CPU needs seconds for each
    cases = [(s, e) for i, s in enumerate(sites.all) for k, e in enumerate(ERRORS)
             if FULL or (k == (i + start) % len(ERRORS) and (i + start) % every == 0)]
    only = os.environ.get("HERMES_FAULT_ROLE")
    cases = [c for c in cases if not only or c[0][0] == only]
    free = list(labs)
    lock = threading.Lock()

    def one(case):
        with lock:
            lab = free.pop()
        try:
            return judge(sites, lab, *case) + case[0][:1]
        finally:
            with lock:
                free.append(lab)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(one, cases))
    table = collections.Counter((role, kind) for kind, _, role in results)
    lines = ["%d sites, %d injections" % (len(sites.all), len(cases))]
    lines += ["%-10s %-28s %d" % (role, kind, count)
              for (role, kind), count in sorted(table.items())]
    lines += ["%s: %s" % (kind, text) for kind, text, _ in results
              if kind.startswith(("bad", "lower", "other", "ran confined, then"))]
    print("\n".join(lines))
    report = os.environ.get("HERMES_FAULT_REPORT")
    if report:
        pathlib.Path(report).write_text("\n".join(lines) + "\n")
    assert not orphaned_boxes()
    bad = [text for kind, text, _ in results if kind.startswith("bad")]
    assert not bad, "%d of %d: %s" % (len(bad), len(cases), "\n".join(bad[:40]))
    reached = sum(1 for kind, _, _ in results if kind != "not reached")
    assert reached >= 0.97 * len(results), table
