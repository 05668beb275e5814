# SPDX-License-Identifier: Apache-2.0
"""What this host can do. Some promises of the documentation hold only on hosts with certain features. Their tests ask this
module, never the server under test: a server that wrongly reports a feature as missing has to fail. The module uses only the
standard library, because the tests also run in the guest of the virtual machine."""
import functools
import json
import os
import platform
import stat
import subprocess
import tempfile

from apilib import HERMES

SCOPES_ABI = 6  # of Landlock: signals and abstract sockets stay inside


@functools.cache
def doctor():
    done = subprocess.run([str(HERMES), "doctor", "--json"], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def has_scopes():
    return doctor()["landlock_abi"] >= SCOPES_ABI


def lacks_for_copies():
    """The missing features without which live sessions cannot be copied (docs/sessions.md)."""
    enforced = {feature["name"] for feature in doctor()["features"] if feature["enforced"]}
    needed = {"root": os.geteuid() == 0, "Landlock ABI %d" % SCOPES_ABI: has_scopes(),
              "control groups v2": doctor()["cgroup"] in ("v2", "hybrid") and "cgroup_kill" in enforced,
              "x86-64": platform.machine() == "x86_64"}
    return [name for name, is_there in needed.items() if not is_there]


@functools.cache
def has_mknod():
    """Whether a node like /dev/tty can be made, which the trees of boxes then have."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        try:
            os.mknod(path + "/tty", stat.S_IFCHR | 0o666, os.makedev(5, 0))
        except PermissionError:
            return False
    return True
