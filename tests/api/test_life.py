# SPDX-License-Identifier: Apache-2.0
"""Starting, stopping, dying: SIGTERM under load, kill -9 of each program, history over restarts.
Crowds are in test_load.py, fifty boxes in test_killed.py."""
import collections
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import threading
import time

import pytest

from apilib import ROOT, SLOW, boxes_below, descendants, make_dir, name_of, wait_until
from leaks import ASAN

SLEEP = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'asleep'); time.sleep(%d)"
SLEEPER = {"language": "python", "limits": {"wall_ms": 60000}, "code": SLEEP % 60}


def in_threads(count, fn):
    threads = [threading.Thread(target=fn, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    return threads


def asleep_below(pid):
    """Programs, not processes: a box has an init and may wait for a program."""
    return [box for box in boxes_below(pid) if name_of(box) == "asleep"]


def status_of(pid, field):
    for line in open("/proc/%d/status" % pid):
        if line.startswith(field + ":"):
            return line.split()[1:]
    return []


def test_the_server_has_no_privileges(server):
    pid = server.child("hermes-server")
    assert status_of(pid, "CapEff") == ["0000000000000000"]
    assert status_of(pid, "CapBnd") == ["0000000000000000"] or os.geteuid() != 0
    assert status_of(pid, "NoNewPrivs") == ["1"]
    assert status_of(pid, "Seccomp") == ["2"] or ASAN
    if os.geteuid() == 0:
        assert "0" not in status_of(pid, "Uid")
        assert status_of(pid, "Groups") == []


def test_it_starts_quickly(make_server):
    server = make_server()
    server.stop()
    began = time.monotonic()
    server.start()
    took = time.monotonic() - began
    assert server.stop() == 0
    assert took < 2 * SLOW


def test_two_servers_need_two_state_directories(make_server):
    first = make_server()
    second = make_server(env={"HERMES_STATE_DIR": str(first.state)}, wait=False)
    assert second.process.wait(30 * SLOW) == 125
    assert "another hermes serve" in second.logs()
    third = make_server()
    assert third.run("python", "print(3)").json()["stdout"] == "3\n"


def test_sigterm_lets_short_runs_end_and_cancels_long_ones(make_server):
    server = make_server(env={"HERMES_GRACE_S": str(3 * SLOW)})
    answers = {}

    def one(i):
        code = SLEEP % (2 * SLOW if i < 2 else 300) + "; print('done')"
        try:
            answers[i] = server.run("python", code, limits={"wall_ms": 400000})
        except OSError as e:
            answers[i] = e
    threads = in_threads(4, one)
    assert wait_until(lambda: len(asleep_below(server.child("hermes-spawn"))) == 4)
    stream = server.connect()
    stream.request("POST", "/v1/runs", json.dumps(dict(SLEEPER, limits={"wall_ms": 400000})),
                   {"Content-Type": "application/json", "Accept": "text/event-stream"})
    events = stream.getresponse()
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 20 * SLOW
    for t in threads:
        t.join()
    for i in range(2):
        assert answers[i].json()["stdout"] == "done\n"
    for i in range(2, 4):
        assert answers[i].status == 200 and answers[i].json()["status"] == "cancelled"
    assert b"event: end" in events.read()
    assert not server.unix.exists()


@pytest.fixture
def runtimes():
    """A directory of languages: Python, and what a test makes of it."""
    path = make_dir()
    shutil.copytree(ROOT / "runtimes" / "python", path / "python")
    shutil.copy(ROOT / "runtimes" / "base.json", path)
    yield path
    shutil.rmtree(path)


def copy_python(runtimes, name):
    shutil.copytree(runtimes / "python", runtimes / name)
    known = json.loads((runtimes / name / "runtime.json").read_text())
    known.update(name=name, aliases=[], extensions=["." + name])
    (runtimes / name / "runtime.json").write_text(json.dumps(known))


@pytest.mark.skipif(os.geteuid() != 0, reason="zygotes need root")
def test_stopping_does_not_wait_for_a_calibration(make_server, runtimes):
    """Languages whose zygotes never come up are asked for half a minute each (src/service/calibrate.c)."""
    for name in ("slow1", "slow2"):
        copy_python(runtimes, name)
        (runtimes / name / "zygote.py").write_text("import time\ntime.sleep(1e6)\n")
    server = make_server(env={"HERMES_RUNTIMES": str(runtimes), "HERMES_GRACE_S": "300"})
    # That it goes on: boxes that nobody asked for.
    assert server.run("slow1", "print(1)").json()["isolation"]["start"] == "cold"
    for _ in range(2):
        assert wait_until(lambda: boxes_below(server.child("hermes-spawn")))
        assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")))
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 5 * SLOW


@pytest.mark.skipif(os.geteuid() != 0, reason="zygotes need root")
def test_too_many_warm_languages_are_told(make_server, runtimes):
    names = ["two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for name in names:  # each has three
        copy_python(runtimes, name)
    server = make_server(env={"HERMES_RUNTIMES": str(runtimes)}, wait=False)
    assert server.process.wait(30 * SLOW) == 125
    assert "too many `warm`" in server.logs()
    for name in names[2:]:
        shutil.rmtree(runtimes / name)
    assert make_server(env={"HERMES_RUNTIMES": str(runtimes)}).run("three", "print(3)").json()["stdout"] == "3\n"


def test_a_killed_spawner_is_replaced(make_server):
    server = make_server()
    answers = []
    threads = in_threads(2, lambda i: answers.append(server("POST", "/v1/runs", SLEEPER)))
    spawner = server.child("hermes-spawn")
    assert wait_until(lambda: len(asleep_below(spawner)) == 2)
    boxes = boxes_below(spawner)
    os.kill(spawner, signal.SIGKILL)
    for t in threads:
        t.join(30 * SLOW)
    assert [a.status for a in answers] == [500, 500]
    assert {a.json()["status"] for a in answers} == {"internal_error"}
    assert answers[0].json()["error"]["code"] == "internal_error"
    assert wait_until(lambda: not any(os.path.exists("/proc/%d" % p) for p in boxes), 2)
    assert server.run("python", "print(4)").json()["stdout"] == "4\n"
    assert server.child("hermes-spawn") != spawner


def is_written(server, ident):
    """Results are written together, a moment after their answers."""
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % (server.state / "server/history.db"), uri=True)) as db:
        return db.execute("SELECT count(*) FROM runs WHERE id = ?", (ident,)).fetchone() == (1,)


def test_a_killed_server_is_replaced_and_its_boxes_die(make_server):
    server = make_server(env={"HERMES_HISTORY": "sqlite"})
    done = server.run("python", "print(5)").json()
    lost = server("POST", "/v1/runs", dict(SLEEPER, **{"async": True})).json()
    spawner = server.child("hermes-spawn")
    assert wait_until(lambda: asleep_below(spawner) and is_written(server, done["id"]))
    pid = server.child("hermes-server")
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not boxes_below(spawner), 2)
    assert wait_until(lambda: server.child("hermes-server") not in (None, pid))
    assert server("GET", "/v1/runs/" + lost["id"]).json()["status"] == "internal_error"
    assert server("GET", "/v1/runs/" + done["id"]).json() == done
    assert server.run("python", "print(6)").json()["stdout"] == "6\n"
    assert server.child("hermes-spawn") != spawner  # no box of the old server can go on


def test_a_killed_monitor_takes_the_others_along(make_server):
    server = make_server()
    server("POST", "/v1/runs", dict(SLEEPER, **{"async": True}))
    assert wait_until(lambda: asleep_below(server.child("hermes-spawn")))
    others = descendants(server.process.pid)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    assert wait_until(lambda: not any(os.path.exists("/proc/%d" % p) for p in others), 5)
    server.log.close()
    server.start()
    assert server.run("python", "print(7)").json()["stdout"] == "7\n"


def test_results_survive_a_restart_with_sqlite(make_server):
    server = make_server(env={"HERMES_HISTORY": "sqlite"})
    run = server.run("python", "print(8)").json()
    assert server.stop() == 0
    server.start()
    assert server("GET", "/v1/runs/" + run["id"]).json() == run
    assert server.stop() == 0
    server.env["HERMES_HISTORY"] = "memory"
    server.start()
    assert server("GET", "/v1/runs/" + run["id"]).status == 404


def test_results_are_forgotten_after_their_time(make_server):
    for history in ("memory", "sqlite"):
        server = make_server(env={"HERMES_HISTORY": history, "HERMES_RESULT_TTL_S": "1"})
        run = server.run("python", "print(9)").json()
        assert wait_until(lambda: server("GET", "/v1/runs/" + run["id"]).status == 404)
        server.stop()


def test_past_the_queue_it_is_429_with_retry_after(make_server):
    server = make_server(env={"HERMES_CONCURRENCY": "1", "HERMES_QUEUE": "2"})
    replies = []
    threads = in_threads(8, lambda i: replies.append(
        server.run("python", "import time; time.sleep(1)")))
    for t in threads:
        t.join()
    found = collections.Counter(r.status for r in replies)
    assert found[200] >= 3 and found[429] >= 1 and found[200] + found[429] == 8, found
    refused = [r for r in replies if r.status == 429][0]
    assert int(refused.headers["Retry-After"]) >= 1
    assert server("POST", "/v1/runs", {"language": "python", "code": "1", "async": True}
                  ).status == 202


def test_a_waiting_client_that_leaves_frees_its_place(make_server):
    server = make_server(env={"HERMES_CONCURRENCY": "1", "HERMES_QUEUE": "1"})
    first = server("POST", "/v1/runs", dict(SLEEPER, **{"async": True})).json()
    conn = server.connect()
    conn.request("POST", "/v1/runs", json.dumps(SLEEPER), {"Content-Type": "application/json"})
    assert wait_until(lambda: b"hermes_queue_waiting 1" in server("GET", "/metrics").body)
    assert server.run("python", "1").status == 429
    conn.sock.close()
    assert wait_until(lambda: b"hermes_queue_waiting 0" in server("GET", "/metrics").body)
    server("DELETE", "/v1/runs/" + first["id"])
    assert server.run("python", "1").status == 200
