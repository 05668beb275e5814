# SPDX-License-Identifier: Apache-2.0
"""An engine whose own storage is full, in the middle of a command: the answer says what is known, and the session goes on."""
import pytest

import enginelib
from farlib import wait_until
from faultlib import begin, end, run_in
from placelib import Session, WHOLE, engine_row, need

pytestmark = pytest.mark.skipif(not WHOLE, reason="make test-backends runs this")


@pytest.fixture
def small():
    """A dockerd with 64 MiB for images and containers."""
    need(enginelib.problem("docker"))
    engine = enginelib.Docker(storage_mb=64)
    try:
        engine.start()
        engine.load()
        yield engine
    finally:
        engine.close()


def fill(path):
    """Leaves no room; whether there was some."""
    written = 0
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                written += file.write(b"x" * 65536)
        except OSError:
            return written > 0


def test_the_storage_of_the_engine_is_full_in_the_middle_of_a_command(small, serve_engine):
    server = serve_engine(engine_row("box", small) + engine_row("once", small, container_persistent="no"))
    code = ("kept=yes; echo ran >>/workspace/ran; echo before; touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; "
            "printf %1000000s x >/workspace/x; echo $?; (exit 9)")
    with Session(server, "box") as s:
        mine = small.containers()[0]["Id"]
        running = begin(server, s, code)
        wait_until(lambda: "begun" in run_in(small, mine, "ls /tmp"), "it runs")
        assert fill(small.data / "filler")
        run_in(small, mine, "touch /tmp/go")
        found = end(running)
        assert (found["stdout"], found["exit_code"], found["state_lost"]) == ("before\n1\n", 9, False), found
        assert "No space left on device" in found["stderr"], found
        assert s.out("echo $kept; cat /workspace/ran") == "yes\nran\n" and s.look()["backend"]["state"] == "ready"
        assert s.exec("echo more >/workspace/y")["exit_code"] == 1
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "once"})
        error = reply.json()["error"]
        assert reply.status == 502 and error["detail"] == {"kind": "refused"} and "no space left" in error["message"].lower(), error
        assert [one["Id"] for one in small.containers()] == [mine]
        (small.data / "filler").unlink()  # the control: there is room again
        assert s.exec("echo more >/workspace/y")["exit_code"] == 0 and s.out("echo $kept; cat /workspace/ran") == "yes\nran\n"
        with Session(server, "once") as other:
            assert other.out("echo fine") == "fine\n"
