# SPDX-License-Identifier: Apache-2.0
"""Control groups for a test, and delegated ones: what `Delegate=yes` gives a user."""

import os
import pathlib
import time


def trees():
    """Mount point and own path of every control group tree that has limits, and of v2."""
    mounts = [line.split() for line in open("/proc/self/mounts")]
    for line in open("/proc/self/cgroup"):
        number, names, path = line.rstrip("\n").split(":", 2)
        controllers = set(names.split(",")) & {"memory", "pids", "cpu", "cpuacct"}
        for _, where, kind, options, *_ in mounts:
            if number == "0" and kind == "cgroup2":
                # With controllers a group that has processes cannot have children with limits.
                limits = "memory" in pathlib.Path(where, "cgroup.controllers").read_text()
                yield pathlib.Path(where), "" if limits else path
                break
            if kind == "cgroup" and controllers and controllers <= set(options.split(",")):
                yield pathlib.Path(where), path
                break


class Groups:
    """A group of our own in every tree, given to uid when it is not None."""

    def __init__(self, uid=None):
        self.dirs = []
        for where, path in trees():
            directory = pathlib.Path(f"{where}/{path}/attacks-test-{os.getpid()}-{uid}")
            directory.mkdir()
            self.dirs.append(directory)
            if uid is not None:
                for item in [directory, *directory.iterdir()]:
                    if item.name in (directory.name, "tasks") or item.name.startswith("cgroup."):
                        os.chown(item, uid, uid)

    def enter(self):
        for directory in self.dirs:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """Returns what Hermes left in them."""
        left = []
        for directory in self.dirs:
            inner = [p for p in directory.rglob("*") if p.is_dir()]
            left += map(str, inner)
            for path in sorted(inner, reverse=True) + [directory]:
                for _ in range(50):
                    try:
                        path.rmdir()
                        break
                    except OSError:
                        time.sleep(0.1)
                else:
                    left.append(f"{path} cannot be removed")
        return left
