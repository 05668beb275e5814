# SPDX-License-Identifier: Apache-2.0
"""The uids of boxes are nobody's subordinate ones: whoever has those, containers say, would have the rights of a
box. /etc/subuid and /etc/subgid are this test's own, in a mount namespace of its own."""
import os
import subprocess
import sys

import pytest

from test_messages import BUILD, tree  # noqa: F401

USUAL, COUNT = 2000000, 65536
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a range of uids")

INSIDE = """\
import os, pathlib, struct, sys
sys.path[:0] = [%r, %r]
import test_messages
from test_messages import BOX_CHANNEL, Live, Spawner, STARTED, host_root, setup_message
test_messages.TREE = sys.argv[1]
s = Spawner(seal=False)
s.send(setup_message())
s.send(host_root("/usr/bin/bash"))
assert s.seal() == 0
live = Live(s)
assert live.event()[0] == STARTED
from apilib import descendants
uids = set()
for pid in descendants(s.pid):
    text = pathlib.Path("/proc/%%d/status" %% pid).read_text()
    uids.add(int(text.split("\\nUid:")[1].split()[0]))
print(max(uids))
live.command(1)
s.close()
"""


def uid_of_a_box(subuid, subgid=""):
    here = os.path.dirname(os.path.abspath(__file__))
    code = INSIDE % (here, os.path.join(os.path.dirname(here), "lib"))
    script = ("mount --make-rprivate / && mount -t tmpfs none /mnt && printf %s \"$1\" > /mnt/u && printf %s \"$2\" > /mnt/g && "
              "for f in subuid subgid; do [ -e /etc/$f ] || : > /etc/$f; done && mount --bind /mnt/u /etc/subuid && mount --bind /mnt/g /etc/subgid && "
              "umount -l /mnt && exec \"$3\" -c \"$4\" \"$5\"")
    import test_messages
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", subuid, subgid, sys.executable, code, test_messages.TREE],
                          capture_output=True, text=True, timeout=120, env={**os.environ, "HERMES_BUILD_DIR": str(BUILD)})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def is_at(uid, base):
    return base <= uid < base + COUNT


@pytest.mark.parametrize("subuid, subgid, base", [
    ("", "", USUAL),
    ("a:100000:65536\nb:165536:65536\n", "a:100000:65536\n", USUAL),
    ("z:2001888:65536\n", "", USUAL + 2 * COUNT),
    ("", "z:2065535:1\n", USUAL + COUNT),
    ("x:1999999:1\ny:2065536:65536\n", "", USUAL),
    ("root:1000000:10000000\n", "root:1000000:10000000\n", USUAL + 138 * COUNT),
    ("broken\n:::\nq:2000000\nw:x:y\nn:2000000:0\n", "\n\n", USUAL),
], ids=["none", "below", "30th user", "one group", "beside", "lxd", "broken lines"])
def test_subordinate_ranges_are_left_alone(subuid, subgid, base):
    had = [os.path.exists(p) for p in ("/etc/subuid", "/etc/subgid")]
    try:
        assert is_at(uid_of_a_box(subuid, subgid), base)
    finally:
        for path, was in zip(("/etc/subuid", "/etc/subgid"), had):
            if not was and os.path.exists(path) and not os.path.getsize(path):
                os.remove(path)
