# SPDX-License-Identifier: Apache-2.0
"""One short case with a real dockerd, for `make test`. `make test-backends` has the rest."""
import os
import subprocess

import pytest

from farlib import BUILD, wait_until
from placelib import Session, WHOLE, engine_row


@pytest.fixture(scope="module")
def engine(engine_of):
    try:
        return engine_of("docker")
    except AssertionError as error:
        if WHOLE:
            raise
        pytest.skip("dockerd does not start here: %s" % str(error)[-300:])


def test_a_container_from_its_beginning_to_its_end(engine, serve_engine):
    kept = {one["Id"] for one in engine.containers()}  # of other tests

    def containers():
        return [one for one in engine.containers() if one["Id"] not in kept]
    server = serve_engine(engine_row("docker", engine, container_persistent="no"))
    with Session(server, "docker", env={"NAME": "value"}) as s:
        assert s.json["backend"]["isolation"] == "container" and s.json["backend"]["limits"]["memory_mb"] == 256
        assert s.out("x=5; cd /tmp; echo $NAME; id -u") == "value\n0\n" and s.out("echo $x $PWD") == "5 /tmp\n"
        assert server("GET", "/health").json()["docker_connected"] is True
        assert len(containers()) == 1
    wait_until(lambda: not containers(), "the container is removed")
    done = subprocess.run([str(BUILD / "hermes"), "exec", "--unix", str(server.unix), "--backend", "docker", "--", "sh", "-c",
                           "echo $((6*7)); exit 3"], capture_output=True, text=True, timeout=120,
                          env={"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/root")})
    assert (done.stdout, done.returncode) == ("42\n", 3), done
    wait_until(lambda: not containers(), "the container is removed")
