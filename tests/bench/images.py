# SPDX-License-Identifier: Apache-2.0
"""The data image: `import pandas` in boxes that have imported it ahead against bare Python with the same files, and
sessions with it against sessions without; `import pandas` through an image of a user, whose runs are copies of a template. Needs a package registry (HERMES_REGISTRY_HOSTS and the settings beside
it); without one there are no rows."""
import json
import os
import pathlib
import subprocess
import time

from over_http import Kept, Serving, timed
from sessions import create

CODE = "import pandas\nprint('hello')\n"
PACKAGES = "images/layers/*/tree/opt/venv/lib/python3*/site-packages"
OF_USER = {"name": "mine", "language": "python", "packages": {"pip": ["pandas"]}}


def settings():
    names = ("HERMES_REGISTRY_HOSTS", "HERMES_REGISTRY_CA", "HERMES_PIP_INDEX", "HERMES_NETWORK_OPEN")
    return {name: os.environ[name] for name in names if name in os.environ}


def bare_ms(packages, code):
    start = time.perf_counter()
    subprocess.run(["/usr/bin/python3", "-c", code], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                   env={"PATH": "/usr/bin:/bin", "PYTHONPATH": packages}, check=True)
    return (time.perf_counter() - start) * 1000


def wait_until(warm):
    deadline = time.monotonic() + 120
    while not warm():
        if time.monotonic() > deadline:
            raise RuntimeError("no zygote of the image came up")
        time.sleep(0.2)
    time.sleep(2)


def made_and_ended(server, conn, **fields):
    taken, made = create(server, conn, **fields)
    server("DELETE", "/v1/sessions/" + made["id"], conn=conn)
    return taken, made["isolation"]["start"] == "warm"


def import_pandas(bench, server, image, packages, whose, target):
    from run import interleave, row
    kept = Kept(server)
    body = json.dumps({"language": "python", "image": image, "code": CODE}).encode()
    wait_until(lambda: kept.post(body)[1]["isolation"]["start"] == "warm")
    ours, theirs = interleave(bench.rounds, lambda: timed(kept, body), lambda: bare_ms(packages, CODE))
    kept.close()
    return row("import pandas, " + whose, ours, theirs, target, 0.0, "over HTTP; bare: the same files")


def import_of_user(bench, server):
    """Each run is a copy of the template of this caller's image."""
    reply = server("POST", "/v1/images", OF_USER)
    if reply.status not in (200, 201):
        raise RuntimeError("the image of a user cannot be built: %r" % reply.body)
    packages = str(next(pathlib.Path(server.state).glob("server/" + PACKAGES)))
    return import_pandas(bench, server, "mine", packages, "user", 0.1)


def sessions_with(bench, server):
    from run import interleave, row
    conn = server.connect()
    wait_until(lambda: made_and_ended(server, conn)[1] and made_and_ended(server, conn, image="python")[1])

    def one(**fields):
        time.sleep(0.3)  # the next ready box is being made
        return made_and_ended(server, conn, **fields)[0]
    ours, theirs = interleave(bench.rounds, one, lambda: one(image="python"))
    conn.close()
    return row("session with data image", ours, theirs, 3, 0.0, "to a session without")


def images(bench):
    """The data image: import pandas to bare, and sessions with it to sessions without."""
    from run import HERMES
    env = settings()
    if "HERMES_REGISTRY_HOSTS" not in env or os.geteuid() != 0:
        print("  no package registry: HERMES_REGISTRY_HOSTS is not set")
        return
    with Serving(HERMES_SESSION_PARKED="1", HERMES_PARKED="2", **env) as server:
        subprocess.run([HERMES, "image", "build", "--operator", "data"], check=True, stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, env=dict(server.env, **env))
        wait_until(lambda: has_image(server))
        packages = str(next(pathlib.Path(server.state).glob(PACKAGES)))
        yield import_pandas(bench, server, "data", packages, "operator", 0.02)
        yield import_of_user(bench, server)
        yield sessions_with(bench, server)


def has_image(server):
    try:
        return server("GET", "/v1/images/data").status == 200
    except OSError:  # it starts again
        return False
