# SPDX-License-Identifier: Apache-2.0
"""`hermes run --network` and `hermes judge --network`: their own egress, as root, as root without the capabilities of
networks, and as a user."""
import json
import os
import subprocess

import pytest

from apilib import HERMES, ROOT, make_dir
from netlib import LESS, OK4, OTHER4, PROBE

ATTEMPTS = [["tcp", "v4.example.com", 80], ["udp", OK4, 9999], ["connect", "10.9.0.5", 80],
            ["connect", "private.example.com", 80]]


USER = 20017  # which nobody else has
LEVEL = ["--min-level", "process"]  # a user without control groups has no more
DEPLOYMENTS = pytest.mark.parametrize("before", [
    [], LESS, ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]],
    ids=["root", "root without network capabilities", "user"])


def command(world, before, path, *words, stdin="", **more):
    """`hermes` with these words, as a program of the host."""
    if str(USER) in before:
        os.chown(path, USER, USER)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(path), "HERMES_STATE_DIR": str(path / "state"),
           "HERMES_RUNTIMES": str(ROOT / "runtimes"), "LC_ALL": "C.UTF-8", **more}
    return subprocess.run([*world.host.enter(), *before, str(HERMES), *words], input=stdin, text=True,
                          capture_output=True, env=env)


@DEPLOYMENTS
def test_run_with_a_network(world, before):
    path = make_dir()
    (path / "main.py").write_text(PROBE)

    def run(*words):
        return command(world, before, path, "run", *LEVEL, *words, str(path / "main.py"), stdin=json.dumps(ATTEMPTS))
    full = run("--network", "full")
    assert full.returncode == 0, full
    assert json.loads(full.stdout) == ["hello from " + OK4, "echo:ping", "ECONNREFUSED", "no such name"]
    listed = run("--network", "allow=v4.example.com:80")
    assert json.loads(listed.stdout)[0] == "hello from " + OK4
    assert "echo:ping" not in listed.stdout
    none = run("--network", "none")
    assert "hello" not in none.stdout and none.returncode == 0
    assert run("--network", "allow=10.9.0.5").returncode not in (0, None)


@DEPLOYMENTS
def test_judge_with_a_network(world, before):
    """The solution has what --network says; the checker has what problem.json says, which is another host."""
    path = make_dir()
    (path / "sum").mkdir()
    (path / "main.py").write_text(PROBE)
    (path / "sum/1.in").write_text(json.dumps(ATTEMPTS))
    (path / "sum/1.ans").write_text(json.dumps(["hello from " + OK4, "EHOSTUNREACH", "ECONNREFUSED", "no such name"]))

    def judge(*words, **env):
        done = command(world, before, path, "judge", "--json", *LEVEL, *words, str(path / "sum"), str(path / "main.py"), **env)
        return done.returncode, json.loads(done.stdout)
    status, answer = judge("--network", "allow=v4.example.com:80,private.example.com")
    test = answer["tests"][0]
    assert (status, test["verdict"]) == (0, "accepted"), answer
    assert ("10.9.0.5", "private") in {(row["host"], row["reason"]) for row in test["network"]["denied"]}
    assert [row["host"] for row in test["network"]["allowed"]] == ["v4.example.com"]
    assert judge()[1]["tests"][0]["verdict"] == "wrong_answer"  # the control: no network
    # problem.json may ask, too, and --network has the last word
    (path / "sum/problem.json").write_text(json.dumps({"network": {"allow": ["v4.example.com:80", "private.example.com"]}}))
    assert judge()[1]["tests"][0]["verdict"] == "accepted"
    assert judge("--network", "none")[1]["tests"][0]["verdict"] == "wrong_answer"
    # a checker of its own
    (path / "sum/checker.py").write_text(
        "import socket, sys\ntry: socket.create_connection(('%s', 80), 8); sys.exit(0)\n"
        "except OSError: sys.exit(1)\n" % OTHER4)
    (path / "sum/problem.json").write_text(json.dumps({"checker": {"network": {"allow": [OTHER4]}}}))
    answer = judge("--network", "none")[1]
    assert answer["tests"][0]["verdict"] == "accepted", answer
    assert answer["tests"][0]["checker_network"]["allowed"][0]["host"] == OTHER4
    # the ceiling of the environment
    status, answer = judge("--network", "allow=" + OK4, HERMES_NETWORK_CLOSED=OK4)
    assert status != 0 and OK4 in json.dumps(answer), answer
    status, answer = judge("--network", "allow=10.9.0.5")
    assert status != 0 and "10.9.0.5" in json.dumps(answer), answer
