# SPDX-License-Identifier: Apache-2.0
"""reaper.py: runs the command in the line of JSON that it reads, prints its pid, and reaps what it leaves behind until stdin
ends. dockerd takes the pid of a zombie for a running containerd. A test process cannot do this itself: it would take in
the orphans of all other programs, too, and reap none."""
import ctypes
import json
import os
import select
import sys

PR_SET_CHILD_SUBREAPER = 36

ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
order = json.loads(sys.stdin.readline())
quiet = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
print(os.posix_spawn(order["argv"][0], order["argv"], order["env"], file_actions=quiet), flush=True)
while not select.select([0], [], [], 0.02)[0]:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
