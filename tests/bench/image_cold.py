# SPDX-License-Identifier: Apache-2.0
"""What an image costs a run when nothing of it is started ahead: cold runs with one against cold runs without."""
import json
import os

from over_http import Kept, Serving, timed
from rootlib import whole_root

# An interpreter reads these early, so no box that was started ahead serves the run: both sides are cold.
PYTHON = {"language": "python", "code": "print('hello')\n", "env": {"PYTHONHASHSEED": "0"}}
BASH = {"language": "bash", "code": "echo hello\n"}
PACKAGE = "echo 'x = 1' > $(echo /opt/venv/lib/python3*/site-packages)/one.py"


def imported(server, name, data):
    reply = server("POST", "/v1/images/import?name=" + name, data)
    if reply.status != 201:
        raise RuntimeError(repr(reply.body))


def image_cold(bench):
    """Cold runs on images, of packages and of a whole root, against cold runs without an image."""
    from run import interleave, row
    if os.geteuid() != 0:
        print("image_cold needs root: images do")
        return
    with Serving() as server:
        reply = server("POST", "/v1/images", {"language": "python", "name": "packages", "setup_script": PACKAGE})
        if reply.status != 201:
            raise RuntimeError(repr(reply.body))
        imported(server, "root", whole_root())
        imported(server, "small", whole_root(has_python=False))
        conn = Kept(server)
        for name, body, image in (("python, packages", PYTHON, "packages"), ("python, whole root", PYTHON, "root"),
                                  ("sh, whole root", BASH, "small")):
            without, with_it = (json.dumps(one).encode() for one in (body, dict(body, image=image)))
            ours, theirs = interleave(3 * bench.rounds, lambda: timed(conn, with_it), lambda: timed(conn, without))
            yield row(name, ours, theirs, 1.1, note="cold, than cold without image")
        conn.close()
