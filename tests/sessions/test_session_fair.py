# SPDX-License-Identifier: Apache-2.0
"""Keys share the processors, whatever each of them has: the processor time that one gets beside another is looked at
in the same seconds, so it does not matter what else the machine does. And all boxes together have so many processes."""
import os
import pathlib
import re
import subprocess
import time

import pytest

from apilib import (Server, borrow_dir, children, descendants, is_box, return_dir, wait_until, wait_until_still)
from grouplib import cpu_seconds, group_of, read, weight
from ptylib import Terminal
from sessionlib import Later, Session, fork

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="groups of boxes are looked at as root")

KEYS = "[greedy]\nkey = greedy-secret\n[modest]\nkey = modest-secret\n"
GREEDY, MODEST = "greedy-secret", "modest-secret"
SMALL = {"memory_mb": 48, "processes": 16}
SPIN = "for i in 1 2; do (while :; do :; done) & done\n"


def serve(**env):
    path = borrow_dir()
    (path / "keys").write_text(KEYS)
    (path / "keys").chmod(0o600)
    server = Server(path, env={"HERMES_KEYS_FILE": str(path / "keys"), "HERMES_SESSION_PARKED": "0",
                               "HERMES_CONCURRENCY": "32", **env})
    try:
        assert wait_until_still(server.child("hermes-spawn"))  # it asks for versions in boxes, too
        yield server
    finally:
        assert server.stop() == 0
        return_dir(path)


@pytest.fixture(scope="module")
def keyed():
    yield from serve()


@pytest.fixture
def server(keyed):
    yield keyed
    for key in (GREEDY, MODEST):
        for session in keyed("GET", "/v1/sessions", key=key).json()["sessions"]:
            keyed("DELETE", "/v1/sessions/" + session["id"], key=key)
    assert wait_until(lambda: not inits(keyed))


def inits(server):
    """Of all boxes that live: pid 1 of its namespace. Helpers of copies are in such a namespace, too."""
    return {pid for pid in children(server.child("hermes-spawn")) if is_box(pid) and numbers_of(pid)[-1] == "1"}


def numbers_of(pid):
    """Of a process in its pid namespaces; the innermost is last."""
    try:
        return re.search(r"^NSpid:(.*)$", pathlib.Path("/proc/%d/status" % pid).read_text(), re.M)[1].split()
    except OSError:
        return [""]


def sessions(server, count, code=None):
    """Sessions of the greedy key and the inits of their boxes; this runs in each and goes on when it has ended."""
    before = inits(server)
    made = [Session(server, "bash", GREEDY, limits=SMALL) for _ in range(count)]
    for session in made if code else ():
        assert session.exec(code)["status"] == "ok"
    return made, inits(server) - before


def modest_share(server, others):
    """Which part of the processor time that these boxes and a run of the other key have used was the run's."""
    code = SPIN + "sleep 2\nkill -9 $(jobs -p)\n"
    before = sum(map(cpu_seconds, others))
    reply = server.run("bash", code, key=MODEST, limits={"cpus": 2})
    used = sum(map(cpu_seconds, others)) - before
    assert reply.status == 200, reply
    own = reply.json()["usage"]["cpu_ms"] / 1000
    return own / (own + used)


def test_idle_sessions_take_little_from_runs_of_others(server):
    """Sixteen, with two busy processes in the background of each."""
    _, others = sessions(server, 16, SPIN)
    wait_until(lambda: sum(map(weight, others)) < 1 / 50, 2)  # not at once; what counts is what follows
    share = modest_share(server, others)
    assert share > 0.6, share


def test_busy_sessions_share_with_a_run_of_another_key(server):
    made, others = sessions(server, 8)
    work = [Later(lambda session=session: session.post(SPIN + "sleep 60")) for session in made]
    assert wait_until(lambda: len(descendants(server.child("hermes-spawn"))) > 8 * 4)
    share = modest_share(server, others)
    for session in made:
        session.delete()
    for one in work:
        one.result()
    assert share > 0.35, share


def test_tests_of_a_judgement_are_one_key_s(server):
    """As many as are judged at once weigh together like one run of another key."""
    run = Later(lambda: server.run("bash", "sleep 60", key=MODEST))
    assert wait_until(lambda: len(inits(server)) == 1)
    own = inits(server)
    judged = Later(lambda: server("POST", "/v1/judge", {
        "language": "bash", "code": "sleep 4", "parallel": 8,
        "tests": [{"stdin": "", "expected": ""} for _ in range(8)]}, key=GREEDY))
    assert wait_until(lambda: len(inits(server)) >= 5)
    seen = []

    def is_shared():
        seen[:] = [weight(pid) for pid in inits(server) - own]
        return len(seen) >= 4 and sum(seen) < 1.4 * sum(map(weight, own))
    assert wait_until(is_shared, 3), seen
    assert judged.result().status == 200
    for pid in own:  # the run ends with its box
        os.kill(pid, 9)
    run.result()


def test_copies_belong_to_their_key(server):
    original = Session(server, "python", GREEDY)
    copies = fork(original, 3)
    greedy = {group_of(pid, "cpu"): pid for pid in descendants(server.child("hermes-spawn")) if is_box(pid)}
    work = [Later(lambda one=one: one.post("import time\ntime.sleep(60)")) for one in [original, *copies]]
    run = Later(lambda: server.run("bash", "sleep 60", key=MODEST, limits={"wall_ms": 60000}))
    modest = lambda: [pid for pid in inits(server) if group_of(pid, "cpu") not in greedy]  # noqa: E731
    assert wait_until(lambda: len(modest()) == 1)
    run_init, = modest()
    weights = lambda: [weight(pid) for pid in greedy.values()]  # noqa: E731
    # Four of a quarter, and one with the init of all.
    assert wait_until(lambda: sum(weights()) < 1.5 * weight(run_init)), weights()
    for one in [*copies, original]:
        one.delete()
    os.kill(run_init, 9)
    for one in [*work, run]:
        one.result()


def test_an_exec_is_done_at_full_weight(server):
    """And the second before the session is idle again costs nothing."""
    (session,), (box,) = sessions(server, 1)
    assert wait_until(lambda: weight(box) < 1 / 50)
    session.out("echo 1")
    assert weight(box) == 1
    assert wait_until(lambda: weight(box) < 1 / 50)


def test_a_session_with_an_open_terminal_is_busy(server):
    (session,), (box,) = sessions(server, 1)
    assert wait_until(lambda: weight(box) < 1 / 50)
    with Terminal(session) as terminal:
        terminal.run("true")
        assert weight(box) == 1
        session.out("echo 1")  # its end is not that of the terminal
        assert not wait_until(lambda: weight(box) < 1, 0.7)
    assert wait_until(lambda: weight(box) < 1 / 50)


def sleepers(count):
    return "import os, time\nfor i in range(%d):\n    if not os.fork():\n        time.sleep(60)\n" % count


def test_all_boxes_of_a_server_have_so_many_processes():
    """Runs and sessions of any key; what is refused then is nobody's own limit."""
    for server in serve(HERMES_PROCESSES_TOTAL="60", HERMES_WARM="0"):
        made = []
        for key in (GREEDY, MODEST):  # each is promised about as many as one key may have
            session = Session(server, "bash", key, limits={"processes": 33})
            made.append(session)
            Later(lambda one=session: one.post("for i in {1..31}; do sleep 60 & done 2>/dev/null"))
        top = group_of(next(iter(inits(server))), "pids").parent
        leaves = lambda: sum(read(leaf, "pids.current") for leaf in top.glob("hermes-*"))  # noqa: E731
        wait_until(lambda: leaves() >= 60, 3)
        for _ in range(20):
            assert leaves() <= 60 and top.name.startswith("hermes-"), leaves()
            time.sleep(0.01)
        assert subprocess.run(["/bin/true"]).returncode == 0
        for session in made:
            session.delete()


@pytest.mark.parametrize("total,status", [("40", 503), ("400", 200)])
def test_a_program_that_fails_for_want_of_processes_is_not_blamed(total, status):
    """One key's session has them all, and another key's run is refused one; with room for both it is not."""
    for server in serve(HERMES_PROCESSES_TOTAL=total, HERMES_WARM="0"):
        holder = Session(server, "python", GREEDY, limits={"processes": 21})
        holder.post("import os, time\ntry:\n" + "".join("    " + line + "\n" for line in sleepers(19).splitlines()[1:])
                    + "except OSError:\n    pass")
        reply = server.run("python", sleepers(20), key=MODEST, limits={"wall_ms": 3000})
        answer = reply.json()
        if status == 503:
            assert reply.status == 503 and answer["error"]["code"] == "unavailable", reply
        else:
            assert reply.status == 200 and "processes" not in answer["limits_hit"], reply
        caught = server.run("python", "import os\ntry:\n    for i in range(20): os.fork() or os._exit(0)\n"
                            "except OSError:\n    print('refused')", key=MODEST).json()
        assert "processes" not in caught.get("limits_hit", []), caught
        holder.delete()


def test_control_its_own_limit_is_told(server):
    answer = server.run("python", sleepers(20), key=MODEST, limits={"processes": 8, "wall_ms": 3000}).json()
    assert "processes" in answer["limits_hit"] and answer["status"] == "runtime_error", answer
