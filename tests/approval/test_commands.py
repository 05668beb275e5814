# SPDX-License-Identifier: Apache-2.0
"""Ordinary commands in a native box, dangerous-looking ones among them: nobody is asked anything.
HERMES_COMMANDS=FILE adds more, one a line. The control is a writable mount, which is asked."""
import os
import pathlib

from approvallib import ALICE, MOUNT, Listener, Later, decide, pending, read_log

HERE = pathlib.Path(__file__).parent


def commands():
    files = [HERE / "commands.txt"] + [pathlib.Path(p) for p in [os.environ.get("HERMES_COMMANDS")] if p]
    return [line for path in files for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_no_question(make_asking):
    server = make_asking(HERMES_SESSION_PARKED="0")
    lines = commands()
    assert len(lines) >= 300
    with Listener(server, ALICE) as listener:  # a question would wait for this person, not fail at once
        session = server("POST", "/v1/sessions", {"language": "bash"}, key=ALICE).json()["id"]
        for line in lines:
            reply = server("POST", "/v1/sessions/%s/exec" % session, {"code": line, "timeout_ms": 20000}, key=ALICE)
            assert reply.status == 200, (line, reply)
            if reply.json()["state_lost"]:  # the command ended its shell: that is its own business
                server("POST", "/v1/sessions/%s/reset" % session, key=ALICE)
        assert listener.events() == [] and read_log(server) == []
        assert server("GET", "/v1/approvals", key=ALICE).json()["approvals"] == []
        server("DELETE", "/v1/sessions/" + session, key=ALICE)
        asked = Later(lambda: server.run("bash", "true", key=ALICE, mounts=MOUNT))
        decide(server, ALICE, pending(server, ALICE)[0]["id"], "deny")
        assert asked.result().status == 403
