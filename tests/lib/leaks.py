# SPDX-License-Identifier: Apache-2.0
"""What a server holds of its machine, so that before and after can be compared (oracle L). The
server lives in control groups of its own (tests/lib/runlib.py), so that other instances of Hermes
on the machine do not count."""
import fcntl
import os
import pathlib
import re
import subprocess
import time

from apilib import SLOW, children, is_box, open_descriptors

from runlib import ASAN, Groups, mounts, processes, temporary_files  # noqa: F401

PROGRAMS = ("hermes-server", "hermes-spawn", "hermes-egress")
# Network namespaces for the next boxes (src/spawn/network/network.h), and a second zygote with its group.
KEPT = {"hermes-spawn": 32 + 8}
KEPT_LEAVES, LEAF_FDS = 36, 13  # control groups for them (src/spawn/box.h), and what each has open


def pss_kb(pid):
    for line in open("/proc/%d/smaps_rollup" % pid):
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def kernel_groups():
    """Memory groups that the kernel knows, those it has not let go of yet included."""
    for line in open("/proc/cgroups"):
        fields = line.split()
        if fields[0] == "memory":
            return int(fields[2])
    return 0


def kernel_complaints():
    """Lines of the kernel's log that report a fault of its own."""
    done = subprocess.run(["dmesg"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wanted = re.compile(r"BUG:|WARNING:|hung_task|blocked for more than|soft lockup|refcount_t")
    return {line for line in done.stdout.decode(errors="replace").splitlines()
            if wanted.search(line)}


def helpers_of(server):
    """Children of the spawner other than boxes: the helper for networks, and zygotes."""
    return {p for p in children(server.child("hermes-spawn") or 0) if not is_box(p)}


def leaves_of(pids):
    """Names of the control groups they are in: a zygote has one of its own."""
    names = set()
    for pid in pids:
        try:
            text = pathlib.Path("/proc/%d/cgroup" % pid).read_text()
        except OSError:
            continue
        names |= set(re.findall(r"/(hermes-[0-9a-f]{32})$", text, re.M))
    return names


def is_ownerless(group):
    """Whether this control group belongs to no living spawner. A spawner locks all of its groups, also those
    that it keeps for later boxes."""
    try:
        fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def is_kept(group):
    """Whether a living spawner keeps this empty control group for the next box."""
    try:
        return not is_ownerless(group) and pathlib.Path(group, "cgroup.procs").read_text() == ""
    except FileNotFoundError:
        return False


class Holdings:
    """Numbers and names of one moment."""

    def __init__(self, server, groups):
        pids = {name: server.child(name) for name in PROGRAMS}
        pids["hermes-monitor"] = server.process.pid
        self.fds = {name: open_descriptors(pid) for name, pid in pids.items() if pid}
        self.pss_kb = {name: pss_kb(pid) for name, pid in pids.items() if pid}
        helpers = helpers_of(server)
        self.processes = groups.pids() - set(pids.values()) - helpers
        found = {g for g in groups.children() if os.path.basename(g) not in leaves_of(helpers)}
        kept = {g for g in found if is_kept(g)}
        self.groups = found - kept
        self.kept = len({os.path.basename(g) for g in kept})
        self.mounts = [line for line in mounts() if str(server.work) in line]
        self.files = temporary_files()
        self.state = {str(p.relative_to(server.state)) for p in server.state.glob("**/*")
                      if not {"roots", "cache"} & set(p.parts)}
        ours = set(pids.values())
        self.zombies = {pid for pid, parent, state, _, _ in processes()
                        if state == "Z" and parent in ours}

    def left_over(self, before):
        """What is there now and was not before, as lines. Memory is the caller's to judge."""
        found = ["process %d" % p for p in self.processes - before.processes]
        found += ["zombie %d" % p for p in self.zombies - before.zombies]
        found += ["group " + p for p in self.groups - before.groups]
        if self.kept > KEPT_LEAVES:
            found.append("%d groups kept" % self.kept)
        found += ["file " + p for p in self.files - before.files]
        found += ["state " + p for p in self.state - before.state
                  if not p.endswith(("-wal", "-shm"))]
        extra = list(self.mounts)
        for line in before.mounts:
            if line in extra:
                extra.remove(line)
        found += ["mount " + line.strip() for line in extra]
        leaves = {"hermes-spawn": LEAF_FDS * max(0, self.kept - before.kept)}
        found += ["%d descriptors of %s, %d before" % (count, name, before.fds.get(name, 0))
                  for name, count in self.fds.items()
                  if count > before.fds.get(name, count) + KEPT.get(name, 0) + leaves.get(name, 0)]
        return found


def settle(server, groups, before, seconds=2.0):
    """What is left after the machine had time to remove dying processes."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        now = Holdings(server, groups)
        found = now.left_over(before)
        if not found or time.monotonic() > deadline:
            return found, now
        time.sleep(0.05)


def gone(groups, known=frozenset(), seconds=5.0):
    """After the end of a server: what still lives in its groups. `known` are processes of others,
    where the groups are shared (on a machine with cgroup v2 alone)."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        found = ["process %d" % p for p in groups.pids() - known]
        found += ["group " + p for p in groups.children()
                  if os.path.basename(p) != "hermes.svc"]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.02)
