# SPDX-License-Identifier: Apache-2.0
"""An install of five wheels from the index of the tests: a build box, the way out, the layer and its unpacking, against
bare pip with a virtual environment of its own."""
import os
import shutil
import subprocess
import tempfile
import time

from apilib import MONITOR, Server
from indexlib import image_settings
from indexworld import index_world
from networld import OK4

FIVE = ["hermes-five-%d" % n for n in range(5)]


def bare_ms(world):
    folder = tempfile.mkdtemp(prefix="hermes-bench-", dir="/var/tmp")
    start = time.perf_counter()
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder + "/venv"], check=True)
    subprocess.run([*world.host.enter(), "/usr/bin/python3", "-m", "pip", "--python", folder + "/venv/bin/python", "install",
                    "-q", "--no-cache-dir", "--disable-pip-version-check", "--index-url", "http://%s:8085/simple/" % OK4,
                    "--trusted-host", OK4, *FIVE], check=True,
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"})
    taken = (time.perf_counter() - start) * 1000
    shutil.rmtree(folder)
    return taken


def built_ms(server):
    start = time.perf_counter()
    reply = server("POST", "/v1/images", {"language": "python", "name": "five", "packages": {"pip": FIVE}})
    taken = (time.perf_counter() - start) * 1000
    if reply.status != 201 or server("DELETE", "/v1/images/five").status != 204:
        raise RuntimeError(repr(reply.body))
    return taken


def install(bench):
    """Five wheels as an image against bare pip, with uv (if it is there) and with pip in the build box."""
    from run import interleave, row
    if os.geteuid() != 0:
        print("install needs root: images do")
        return
    worlds = index_world()
    world = next(worlds)
    try:
        for uv, target in (("true", 0.8), ("false", 1.0)):
            if uv == "true" and not os.path.exists("/usr/local/lib/hermes/uv/uv"):
                continue
            with tempfile.TemporaryDirectory(prefix="hermes-bench-", dir="/var/tmp") as folder:
                os.chmod(folder, 0o755)
                server = Server(folder, command=[*world.host.enter(), MONITOR], tcp=False,
                                env=dict(image_settings(), HERMES_UV=uv))
                ours, theirs = interleave(max(bench.rounds // 3, 2), lambda: built_ms(server), lambda: bare_ms(world))
                server.stop()
            yield row("five wheels, %s" % ("uv" if uv == "true" else "pip"), ours, theirs, target, note="than bare pip")
    finally:
        next(worlds, None)
