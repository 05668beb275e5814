# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of sessions and rollback to them."""
import os

import pytest

from apilib import boxes_below, wait_until
from sessionlib import Session, ask_copy, fork

from test_session_fork import HOSTILE, value


def checkpoint(session, name=None):
    reply = ask_copy(session, "/checkpoints", {"name": name} if name else None)
    assert reply.status == 201, reply
    return reply.json()["name"]


def names(session):
    return [c["name"] for c in session.call("GET", "/checkpoints").json()["checkpoints"]]


def rollback(session, name):
    reply = session.call("POST", "/rollback", {"checkpoint": name})
    assert reply.status == 200, reply
    assert reply.json()["id"] == session.id and reply.json()["state"] == "idle"
    return reply.json()


def test_rollback_brings_back_memory_and_files(session):
    one = session()
    one.out("x = 1; open('f', 'w').write('1'); import os; os.mkdir('d'); os.chdir('d')")
    checkpoint(one, "first")
    for i in range(3):  # it can be used again and again
        one.out("x = 2; open('/box/f', 'w').write('2'); os.chdir('/'); open('/box/new', 'w').close()")
        assert rollback(one, "first")["cwd"] == "/box/d"
        assert one.out("print(x, open('/box/f').read(), os.path.exists('/box/new'), os.getcwd())") == "1 1 False /box/d\n"
        assert one.exec("1")["execution_count"] == 3
    assert one.exec("open('/box/z', 'w').close()")["files_changed"] == ["z"]
    rollback(one, "first")
    assert one.call("GET", "/files/z").status == 404 and one.call("GET", "/files/f").body == b"1"
    assert one.exec("open('/box/y', 'w').close()")["files_changed"] == ["y"]
    assert names(one) == ["first"]
    assert len(one.server("GET", "/v1/sessions").json()["sessions"]) == 1


def test_lineage(session):
    one = session()
    got = one.call("GET").json()
    assert got["parent"] is None and got["from_checkpoint"] is None and got["rolled_back_at"] is None
    for name in ("a", "b"):
        checkpoint(one, name)
    assert one.call("GET").json()["from_checkpoint"] is None  # a checkpoint is no rollback
    back = rollback(one, "a")
    assert back["from_checkpoint"] == "a" and back["created_at"] <= back["rolled_back_at"]
    checkpoint(one, "c")
    two = fork(one)
    assert two.made["parent"] == one.id and two.made["from_checkpoint"] is None and two.made["rolled_back_at"] is None
    checkpoint(two, "d")
    tree = [(c["session"], c["name"], c["parent"]) for s in (one, two)
            for c in s.call("GET", "/checkpoints").json()["checkpoints"]]
    assert tree == [(one.id, "a", None), (one.id, "b", "a"), (one.id, "c", "a"), (two.id, "d", None)]
    assert two.delete().status == 204
    assert one.call("DELETE", "/checkpoints/a").status == 204
    assert one.call("GET").json()["from_checkpoint"] == "a"  # what happened stays true
    assert one.call("POST", "/rollback", {"checkpoint": "a"}).status == 404
    assert one.call("GET").json()["rolled_back_at"] == back["rolled_back_at"]


def test_several_and_their_names(session):
    one = session()
    for n in range(3):
        one.out("n = %d" % n)
        assert checkpoint(one) == str(n + 1)
    assert names(one) == ["1", "2", "3"]
    rollback(one, "2")
    assert one.out("print(n)") == "1\n"
    rollback(one, "3")
    assert one.out("print(n)") == "2\n"
    reply = one.call("POST", "/checkpoints", {"name": "2"})
    assert reply.status == 409 and "already" in reply.json()["error"]["message"]
    assert one.call("DELETE", "/checkpoints/2").status == 204
    assert one.call("DELETE", "/checkpoints/2").status == 404
    assert names(one) == ["1", "3"]
    reply = one.call("POST", "/rollback", {"checkpoint": "2"})
    assert reply.status == 404 and one.out("print(n)") == "2\n"


def test_a_dead_session_comes_back(session):
    one = session(limits={"memory_mb": 128})
    one.out("x = 'alive'")
    checkpoint(one, "a")
    one.post("import os; os._exit(1)")
    assert one.state()["state"] == "dead"
    rollback(one, "a")
    assert one.out("print(x)") == "alive\n"
    one.post("data = bytearray(300 << 20)")
    rollback(one, "a")
    assert one.out("print(x)") == "alive\n"
    one.exec("import time, signal; signal.signal(2, signal.SIG_IGN)\nwhile True: time.sleep(1)", timeout_ms=300)
    assert one.state()["state"] == "dead"
    rollback(one, "a")
    assert one.out("print(x)") == "alive\n"


def frozen(server):
    """How many control groups of its boxes stand still."""
    found = set()
    for pid in boxes_below(server.child("hermes-spawn")):
        with open("/proc/%d/cgroup" % pid) as file:
            path = file.read().strip().split("\n")[-1].split("::")[-1]
        for top in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            if os.path.exists("%s%s/cgroup.events" % (top, path)):
                with open("%s%s/cgroup.events" % (top, path)) as file:
                    found |= {path} if "frozen 1" in file.read() else set()
                break
    return len(found)


def test_a_checkpoint_stands_still(session):
    one = session()
    assert frozen(one.server) == 0
    checkpoint(one, "a")
    assert wait_until(lambda: frozen(one.server) == 1, 5)
    rollback(one, "a")
    assert wait_until(lambda: frozen(one.server) == 1, 5)


def test_it_counts_and_is_nobodys_session(make_server):
    server = make_server(env={"HERMES_MAX_SESSIONS_PER_KEY": "3"})
    one = Session(server)
    before = server.metric("hermes_memory_promised_bytes")
    checkpoint(one, "a")
    assert server.metric("hermes_memory_promised_bytes") == 2 * before
    assert server.metric("hermes_sessions") == 2
    checkpoint(one, "b")
    assert one.call("POST", "/checkpoints").status == 429
    assert one.call("DELETE", "/checkpoints/b").status == 204
    rollback(one, "a")
    assert one.delete().status == 204
    assert server.metric("hermes_memory_promised_bytes") == 0 and server.metric("hermes_sessions") == 0
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 5)
    assert server.stop() == 0


def test_expiry_takes_checkpoints_along(server):
    one = Session(server, idle_timeout_s=2)
    checkpoint(one, "a")
    assert wait_until(lambda: one.state()["state"] == "expired", 15)
    assert wait_until(lambda: server.metric("hermes_sessions") == 0, 10)


def test_lineage_after_a_restart(make_server):
    """Sessions end with their server. What is remembered of them says where their state came from."""
    server = make_server()
    one = Session(server)
    checkpoint(one, "a")
    two, gone = fork(one), fork(one)
    rollback(one, "a")
    checkpoint(gone, "b")
    rollback(gone, "b")
    assert gone.delete().status == 204
    before = [s.state() for s in (one, two)]
    assert before[0]["from_checkpoint"] == "a" and before[1]["parent"] == one.id
    assert server.stop() == 0
    server.start()
    for s, was in zip((one, two), before):
        now = s.state()
        assert now["state"] == "dead" and now["reason"] == "server_restarted"
        for field in ("parent", "from_checkpoint", "rolled_back_at", "created_at"):
            assert now[field] == was[field], field
    assert gone.call("GET").status == 404


def test_forks_have_checkpoints_of_their_own(session):
    one = session()
    one.out("x = 1")
    checkpoint(one, "a")
    two = fork(one)
    assert names(two) == []
    two.out("x = 2")
    checkpoint(two, "a")
    two.out("x = 3")
    rollback(two, "a")
    rollback(one, "a")
    assert one.out("print(x)") == "1\n" and two.out("print(x)") == "2\n"
    assert one.delete().status == 204
    rollback(two, "a")
    assert value(two, "x") == "2"


def test_a_slow_session_is_unharmed(session):
    """An interpreter with a twentieth of a core needs longer for its answer than one with a whole core."""
    one = session(limits={"cpus": 0.05, "wall_ms": 60000})
    one.out("x = 'mine'")
    reply = one.call("POST", "/checkpoints", {"name": "a"})
    assert reply.status in (201, 409, 501), reply
    assert one.state()["state"] == "idle", (reply, one.state())
    assert one.out("print(x)") == "mine\n"


# Who refuses: the interpreter, the program that makes the copy, and its alarm. Code, and code that removes the reason.
REFUSALS = {
    "interpreter": ("import socket; a, b = socket.socketpair()", "a.close(); b.close()"),
    "copy program": (HOSTILE + "d = os.open('/', os.O_RDONLY); honest = type(forker).look\n"
                     "type(forker).look = lambda self: ([], [(1, 0), (2, 1)])", "os.close(d); type(forker).look = honest"),
    "alarm": (HOSTILE + "honest = functions['ask']; functions['ask'] = lambda *a: time.sleep(1000)",
              "functions['ask'] = honest"),
}


@pytest.mark.parametrize("cpus", [1, 0.05])
@pytest.mark.parametrize("who", REFUSALS)
def test_refused_and_unharmed(session, who, cpus):
    """Also where the interpreter has a twentieth of a core, and whoever waits for its answer waits long."""
    reason, remedy = REFUSALS[who]
    one = session(limits={"cpus": cpus, "wall_ms": 60000})
    one.out("x = ['mine']; open('f', 'w').write('kept')\n" + reason)
    before = one.state()
    reply = one.call("POST", "/checkpoints", {"name": "a"})
    assert reply.status == 409 and "not be copied: " in reply.json()["error"]["message"], reply
    after = one.state()
    assert names(one) == [] and after["state"] == "idle"
    assert [after[k] for k in ("id", "parent", "from_checkpoint", "cwd")] == [before[k] for k in ("id", "parent", "from_checkpoint", "cwd")]
    answer = one.exec("print(x.pop(), open('/box/f').read()); open('/box/g', 'w').close()")
    assert answer["stdout"] == "mine kept\n" and answer["execution_count"] == 2 and not answer["state_lost"], answer
    assert answer["files_changed"] == ["g"], answer
    one.out(remedy)
    checkpoint(one, "a")
    one.out("x.append('later')")
    rollback(one, "a")
    assert one.out("print(x)") == "[]\n"


@pytest.mark.parametrize("path,body,field", [
    ("/checkpoints", {"name": ""}, "name"), ("/checkpoints", {"name": "a/b"}, "name"),
    ("/checkpoints", {"name": 5}, "name"), ("/checkpoints", {"name": "x" * 65}, "name"),
    ("/checkpoints", {"names": "x"}, "names"), ("/rollback", {}, "checkpoint"),
    ("/rollback", None, "checkpoint"), ("/rollback", {"checkpoint": ["a"]}, "checkpoint")])
def test_bad_bodies(session, path, body, field):
    reply = session().call("POST", path, body)
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply


@pytest.mark.parametrize("language,code", [("bash", "x=1"), ("javascript", "x = 1")])
def test_other_languages(session, language, code):
    one = session(language)
    one.out(code)
    for path, body in (("/checkpoints", None), ("/rollback", {"checkpoint": "a"})):
        reply = one.call("POST", path, body)
        assert reply.status == 501 and language in reply.json()["error"]["message"], reply
    assert one.call("GET", "/checkpoints").json() == {"checkpoints": []}


def test_code_larger_than_before_runs_after_a_rollback(session):
    """The channel's buffers grow and go with their session, not with the copy that is deleted."""
    for _ in range(4):
        one = session()
        checkpoint(one, "first")
        rollback(one, "first")
        for size in (20_000, 300_000):
            assert one.out("print(len(%r))" % ("x" * size)) == "%d\n" % size
        assert one.call("DELETE", "").status == 204
