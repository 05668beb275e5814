# SPDX-License-Identifier: Apache-2.0
"""The control groups of boxes as the host sees them, whichever hierarchies it has."""
import pathlib

WHOLE = {"cpu.shares": 1 << 16, "cpu.weight": 10000}  # of one owner's busy boxes together (src/spawn/shares.c)


def groups_of(pid):
    """Controller -> path of the group that a process is in; "" for that of v2."""
    found = {}
    for line in pathlib.Path("/proc/%d/cgroup" % pid).read_text().splitlines():
        _, names, path = line.split(":", 2)
        found.update({name: path for name in names.split(",")})
    return found


def group_of(pid, controller):
    """Directory of its group: that of v1 where the controller is there, else (or for "") of v2."""
    top = pathlib.Path("/sys/fs/cgroup")
    found = groups_of(pid)
    if controller and controller in found:
        return top / controller / found[controller].lstrip("/")
    return (top / "unified" if (top / "unified").is_dir() else top) / found.get("", "").lstrip("/")


def read(group, name):
    return int((group / name).read_text().split()[0])


def weight(pid):
    """Of the box that a process is in, as a part of what an owner has."""
    group = group_of(pid, "cpu")
    name = "cpu.shares" if (group / "cpu.shares").exists() else "cpu.weight"
    return read(group, name) / WHOLE[name]


def cpu_seconds(pid):
    """What the box that a process is in has used. Where there is a v2 tree, that counts."""
    group = group_of(pid, "")
    if "hermes-" in group.name:
        return int((group / "cpu.stat").read_text().split("usage_usec ")[1].split()[0]) / 1e6
    return read(group_of(pid, "cpuacct"), "cpuacct.usage") / 1e9
