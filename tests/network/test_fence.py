# SPDX-License-Identifier: Apache-2.0
"""packaging/egress-fence.nft, loaded in a network namespace of the test's own: the user of hermes-egress reaches no closed
address; another user does, and both reach a public one."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EGRESS, OTHER = 65521, 65530
CLOSED = ["10.9.0.5", "169.254.169.254", "192.168.7.7", "100.100.100.200", "fd00:9::5", "2002:a09:5::1"]
PUBLIC = ["93.184.216.34", "2606:2800:220::1"]

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a network namespace and its rules"),
              pytest.mark.skipif(not shutil.which("nft"), reason="nftables is not installed")]

# Runs in the namespace; every address is one of its loopback. Prints "USER ADDRESS yes|ERRNO" for each connection.
INSIDE = r"""
import errno, os, socket, subprocess, sys
fence, addresses, users = sys.argv[1], sys.argv[2].split(","), list(map(int, sys.argv[3].split(",")))
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listeners = []
for address in addresses:
    is_v6 = ":" in address
    subprocess.run(["ip", "addr", "add", address + ("/128" if is_v6 else "/32"), "dev", "lo"] + ["nodad"] * is_v6, check=True)
    s = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
    s.bind((address, 80))
    s.listen(8)
    listeners.append(s)
subprocess.run(["nft", "-f", fence], check=True)
for user in users:
    pid = os.fork()
    if pid == 0:
        os.setresuid(user, user, user)
        for address in addresses:
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            s.settimeout(30)
            code = s.connect_ex((address, 80))  # refused: the kernel's own answer passes the fence
            print(user, address, "yes" if code == 0 else errno.errorcode[code], flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_the_fence(tmp_path):
    fence = tmp_path / "fence.nft"
    text = (ROOT / "packaging/egress-fence.nft").read_text()
    assert 'define user = "hermes-egress"' in text
    fence.write_text(text.replace('"hermes-egress"', str(EGRESS)))  # there may be no such user here
    done = subprocess.run(["unshare", "--net", sys.executable, "-c", INSIDE, str(fence), ",".join(CLOSED + PUBLIC),
                           "%d,%d" % (EGRESS, OTHER)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seen = {(int(user), address): answer for user, address, answer in map(str.split, done.stdout.splitlines())}
    assert len(seen) == 2 * len(CLOSED + PUBLIC)
    for address in CLOSED:
        assert seen[EGRESS, address] == "ECONNREFUSED" and seen[OTHER, address] == "yes", address
    for address in PUBLIC:
        assert seen[EGRESS, address] == seen[OTHER, address] == "yes", address
