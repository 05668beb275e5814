# SPDX-License-Identifier: Apache-2.0
"""`hermes approvals` and the examples of docs/approvals.md."""
import json
import os
import re
import sqlite3
import subprocess

import pytest

from apilib import HERMES, ROOT, SLOW, wait_until
from approvallib import ALICE, BOB, BOSS, MOUNT, WRITES, Later, Listener, pending, read_log


def call(server, key, *words, stdin="", status=0):
    env = {"PATH": "/usr/bin:/bin", "HERMES_UNIX": str(server.unix), "HERMES_API_KEY": key}
    got = subprocess.run([str(HERMES), "approvals", *words], env=env, capture_output=True, text=True, input=stdin,
                         timeout=60 * SLOW)
    assert got.returncode == status, (got.stdout, got.stderr)
    return got.stdout if status == 0 else got.stdout + got.stderr


def test_decide_from_the_command_line(asking):
    with Listener(asking, ALICE):
        run = Later(lambda: asking.run("python", WRITES, key=ALICE, mounts=MOUNT))
        approval, = pending(asking, ALICE)
        ident = approval["id"]
        assert call(asking, ALICE, "ls").split()[:2] == [ident, "pending"]
        assert "mount_rw" in call(asking, ALICE, "show", ident)
        assert "approved" in call(asking, ALICE, "approve", ident, "--scope", "always", "--comment", "mine")
        assert run.result().json()["status"] == "ok"
        call(asking, ALICE, "approve", ident, "--scope", "always")
        assert "already" in call(asking, ALICE, "deny", ident, status=2)
        assert json.loads(call(asking, ALICE, "--json", "show", ident))["comment"] == "mine"
        assert ident not in call(asking, ALICE, "ls") and ident in call(asking, ALICE, "ls", "--state", "approved")
        number = call(asking, ALICE, "grants").split()[0]
        call(asking, ALICE, "revoke", number)
        assert call(asking, ALICE, "grants") == ""
        run = Later(lambda: asking.run("python", WRITES, key=ALICE, mounts=MOUNT))
        approval, = pending(asking, ALICE)
        assert "denied" in call(asking, ALICE, "deny", approval["id"])
        assert run.result().status == 403
    assert "no approval" in call(asking, ALICE, "show", "apr_x", status=2)
    assert "lists them" in call(asking, ALICE, "frobnicate", status=2)
    assert "ID" in call(asking, ALICE, "--help") and "missing" in call(asking, ALICE, "show", status=2)


def test_watch_makes_a_person_reachable(asking):
    env = {"HERMES_UNIX": str(asking.unix), "HERMES_API_KEY": ALICE}
    watch = subprocess.Popen([str(HERMES), "approvals", "watch"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        reply = None

        def is_asked():
            nonlocal reply
            reply = reply or Later(lambda: asking.run("python", WRITES, key=ALICE, mounts=MOUNT))
            if not reply.is_alive() and reply.reply.status == 403:
                reply = None  # not reachable yet
            return asking("GET", "/v1/approvals?state=pending", key=ALICE).json()["approvals"]
        assert wait_until(is_asked, 20)
        approval, = pending(asking, ALICE)
        assert approval["id"] in watch.stdout.readline()
        call(asking, ALICE, "deny", approval["id"])
        assert reply.result().status == 403
    finally:
        watch.kill()
        watch.wait()
        watch.stdout.close()


def test_verify_sees_every_change(make_asking):
    server = make_asking()
    for _ in range(3):
        assert server.run("python", WRITES, key=ALICE, mounts=MOUNT).status == 403
    text = call(server, BOSS, "verify")
    head = re.search(r"head (\w{64})", text)[1]
    assert text.startswith("3 rows, 0 wrong, 0 ") and head == read_log(server)[-1]["hash"]
    assert "head " + head in call(server, BOSS, "verify", "--head", head)
    assert "not in the log" in call(server, BOSS, "verify", "--head", "0" * 64, status=1)
    database = next(server.state.rglob("approvals.db"))
    server.stop()
    db = sqlite3.connect(database)
    for wrong in ("UPDATE log SET event = 'approved' WHERE seq = 2", "DELETE FROM log WHERE seq = 2"):
        with pytest.raises(sqlite3.DatabaseError):
            db.execute(wrong)
    db.executescript("DROP TRIGGER log_stays; UPDATE log SET event = 'approved' WHERE seq = 2;")
    db.close()
    server.start()
    assert "row 2 was changed after it was written" in call(server, BOSS, "verify", status=1)


@pytest.mark.parametrize("gone,said", [("seq = 2", "rows 2 to 2 are missing"), ("seq <= 2", "rows 1 to 2 are missing")])
def test_verify_sees_rows_that_are_gone(make_asking, gone, said):
    """An operator sees all rows: a gap is no row of another key. The key itself cannot tell."""
    server = make_asking()
    for key in (ALICE, BOB, ALICE):
        assert server.run("python", WRITES, key=key, mounts=MOUNT).status == 403
    assert "3 rows, 0 wrong, 0 " in call(server, BOSS, "verify")  # the control
    assert "2 rows, 0 wrong, 1 of other keys or missing" in call(server, ALICE, "verify")
    server.stop()
    db = sqlite3.connect(next(server.state.rglob("approvals.db")))
    db.executescript("DROP TRIGGER log_is_kept; DELETE FROM log WHERE %s;" % gone)
    db.close()
    server.start()
    assert said in call(server, BOSS, "verify", status=1)


def test_docs(make_asking, tmp_path):
    """The blocks of docs/approvals.md: the rules are loaded, every command runs."""
    server = make_asking()
    text = (ROOT / "docs/approvals.md").read_text()
    rules, commands, _, verdict = [json.loads(block) for block in re.findall(r"```(?:json|text)\n(.*?)```", text, re.S)]
    assert sorted(verdict) == ["confidence", "decision", "reason", "risk", "scope"]
    assert server("PUT", "/v1/approvals/rules", commands, key=BOSS).status == 200
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    env = {"PATH": "%s:/usr/bin:/bin" % HERMES.parent, "HERMES_UNIX": str(server.unix), "HERMES_API_KEY": BOSS}
    ran = 0
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        subprocess.run(["bash", "-euc", block], env=env, cwd=tmp_path, check=True, capture_output=True,
                       timeout=60 * SLOW)
        ran += len(block.splitlines())
    assert ran == 7
    assert server("GET", "/v1/approvals/rules", key=BOSS).json() == rules
    for kind in ("tool_call", "net_connect", "mount_rw", "secret_use", "host_exec", "publish"):
        assert "| `%s` |" % kind in text
    for row in re.findall(r'\{"(\w+)", MATCH_', (ROOT / "src/approval/effect.c").read_text()):
        assert "`%s`" % row in text, row
