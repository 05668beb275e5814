# SPDX-License-Identifier: Apache-2.0
"""Template boxes: runs with a user's image are copies of a confined box that has imported the image's modules. What a
warm run must have in common with a cold one, and how templates live and end."""
import os
import signal
import threading

import pytest

from apilib import boxes_below, wait_until
from serving import assert_idle
from templatelib import build, has_template, is_warm, run_cold, run_warm, templates

@pytest.fixture(scope="module")
def mine(shared):
    """A server with the image `mine`, for tests that leave it there."""
    build(shared)
    yield shared
    assert shared("DELETE", "/v1/images/mine").status == 204
    assert_idle(shared)


LOADED = "import sys\nprint('hermes_heavy' in sys.modules, sys.prefix, sys.executable)\nimport hermes_heavy\n" \
         "print(len(hermes_heavy.DATA), __name__, sys.argv)"


def test_runs_are_copies_of_a_template(server):
    build(server)
    first = server.run("python", LOADED, image="mine", args=["a", "b c"]).json()
    # no request waits for a template
    assert (first["isolation"]["start"], first["isolation"]["start_reason"]) == ("cold", "not_ready")
    warm = run_warm(server, LOADED, args=["a", "b c"])
    assert warm["isolation"]["start_reason"] is None and warm["status"] == "ok"
    assert first["stdout"].replace("False", "True", 1) == warm["stdout"]
    assert server("GET", "/v1/images/mine").json()["warm"] is True


def test_an_image_can_be_removed_with_its_template(server):
    build(server)
    run_warm(server, "pass")
    assert has_template(server)
    assert server("DELETE", "/v1/images/mine").status == 204
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 20)
    assert server.run("python", "1", image="mine").status == 404


def test_a_template_that_was_killed_is_given_up_for_a_while(server):
    build(server)
    run_warm(server, "pass")
    [template] = templates(server)
    os.kill(template, signal.SIGKILL)
    answer = server.run("python", "print(5)", image="mine").json()
    assert answer["stdout"] == "5\n" and answer["isolation"]["start_reason"] in ("template", "not_ready")
    assert is_warm(run_warm(server, "print(5)"))  # after the pause


# --- tests that leave the image there, and come last


def test_a_template_is_an_ordinary_box(mine):
    """Its interpreter has the ids, the filter and the namespaces of a box, and no capability."""
    run_warm(mine, "pass")
    spawner = mine.child("hermes-spawn")
    pids = templates(mine)
    assert len(pids) == 1
    status = dict(line.split(":\t", 1) for line in open("/proc/%d/status" % pids[0]).read().splitlines() if ":\t" in line)
    assert status["CapEff"] == status["CapPrm"] == "0" * 16 and status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    assert 0 not in map(int, status["Uid"].split() + status["Gid"].split())
    for space in "user", "mnt", "pid", "net", "ipc", "uts":
        own, spawners = (os.readlink("/proc/%d/ns/%s" % (pid, space)) for pid in (pids[0], spawner))
        assert own != spawners
    # control: the spawner itself has capabilities
    assert "CapEff:\t" + "0" * 16 not in open("/proc/%d/status" % spawner).read()


PROGRAMS = {
    "exit": "import sys; print('x'); sys.exit(3)",
    "_exit": "import os; os._exit(7)",
    "raise": "def f():\n    raise ValueError('no')\nf()",
    "syntax": "def (",
    "sigsegv": "import os; os.kill(os.getpid(), 11)",
    "sigkill": "import os; os.kill(os.getpid(), 9)",
    "sigint": "import os; os.kill(os.getpid(), 2)",
    "stdin": "import sys; print(sys.stdin.read().upper())",
    "dev": "print(open('/dev/stdin').read()); open('/dev/stdout', 'w').write('hello')",
    "env": "import os; print(sorted(v for v in os.environ.items() if v[0] != 'PYTHONX'))",
    "cwd": "import os; print(os.getcwd(), sorted(os.listdir('.')), os.listdir('/tmp'), os.listdir('/dev/shm'),"
           " oct(os.umask(0)), open('d/e.txt').read())",
    "ids": "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.getpgrp() == os.getpid() == os.getsid(0))",
    "rlimits": "import resource as r\nfor n in sorted(x for x in dir(r) if x.startswith('RLIMIT')):"
               " print(n, r.getrlimit(getattr(r, n)))",
    "fds": "import os; print(sorted(os.listdir('/proc/self/fd')))",
    "main": "import __main__, sys; print(__main__.__file__, __spec__, sys.path, sys.argv, sys.orig_argv, sys.flags)",
    "threads": "import threading\nl = []\nt = [threading.Thread(target=l.append, args=(i,)) for i in range(5)]\n"
               "[x.start() for x in t]; [x.join() for x in t]; print(sorted(l))",
    "fork": "import os\np = os.fork()\nif p == 0: os._exit(5)\nprint(os.waitpid(p, 0)[1] >> 8)",
    "subprocess": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'],"
                  " capture_output=True, text=True).stdout)",
    "background": "import subprocess; subprocess.Popen(['sleep', '1000']); print('left')",
    "loopback": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 80 << 7)); s.listen()\n"
                "c = socket.create_connection(('127.0.0.1', 80 << 7)); print('ok')",
    "network": "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print(e)",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi')",
    "write": "for p in '/opt/x', '/usr/x', '/box/x', '/tmp/x', '/dev/shm/x', '/x', '/proc/self/oom_score_adj':\n"
             "  try: open(p, 'w').write('1'); print(p, 'ok')\n  except OSError as e: print(p, e.strerror)",
    "rights": "print([l for l in open('/proc/self/status') if l.startswith(('CapP', 'CapE', 'NoNew', 'Seccomp'))])",
    "sleep": "import time; time.sleep(100)",
    "memory": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "output": "while True: print('x' * 1000)",
    "disk": "f = open('big', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
    "processes": "import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(50)\nexcept OSError as e: print(e)",
}
REQUEST = {"stdin": "abc\n", "args": ["q", ""], "files": [{"name": "d/e.txt", "content": "x"}],
           "limits": {"wall_ms": 3000, "memory_mb": 300, "processes": 20, "disk_mb": 20, "output_kb": 64}}
SAME = "status", "exit_code", "signal", "limits_hit", "message", "stdout", "stderr"


def test_a_warm_run_equals_a_cold_one(mine):
    cold = {name: run_cold(mine, code, **REQUEST) for name, code in PROGRAMS.items()}
    run_warm(mine, "pass", **REQUEST)
    for name, code in PROGRAMS.items():
        warm = run_warm(mine, code, env={"A": "b"}, **REQUEST)
        same = SAME[:-1] if name == "output" else SAME  # it may see that its pipe is closed
        assert {k: warm[k] for k in same} == {k: cold[name][k] for k in same}, name
    assert {answer["status"] for answer in cold.values()} == {"ok", "runtime_error", "signaled", "time_limit",
                                                              "memory_limit", "output_limit"}


def test_cpu_time_is_limited(mine):
    answer = run_warm(mine, "while True: pass", limits={"cpu_ms": 300, "wall_ms": 60000})
    assert (answer["status"], answer["limits_hit"]) == ("time_limit", ["cpu"])
    answer = run_warm(mine, "print(1)")
    assert 0 < answer["usage"]["cpu_ms"] < 1000 and answer["usage"]["memory_peak_kb"] > 500


def test_a_run_can_be_cancelled(mine):
    run_warm(mine, "pass")
    run = mine.run("python", "print(1, flush=True)\nimport time; time.sleep(500)", image="mine",
                   limits={"wall_ms": 600000}, **{"async": True}).json()
    path = "/v1/runs/" + run["id"]
    assert wait_until(lambda: mine("GET", path).json()["status"] == "running", 30)
    assert mine("DELETE", path).status < 300
    assert wait_until(lambda: mine("GET", path).json()["status"] == "cancelled", 30)


@pytest.mark.parametrize("fields, reason", [
    ({"collect": ["*.txt"]}, "collect"),
    ({"limits": {"memory_mb": 8}}, "limits"),
    ({"limits": {"stack_mb": 200, "memory_mb": 512}}, "limits"),
    ({"env": {"PYTHONHASHSEED": "0"}}, "environment"),
], ids=str)
def test_what_a_copy_cannot_have_starts_cold(mine, fields, reason):
    run_warm(mine, "pass")  # control
    answer = mine.run("python", "open('a.txt', 'w').write('1')", image="mine", **fields).json()
    assert (answer["isolation"]["start"], answer["isolation"]["start_reason"]) == ("cold", reason), answer
    assert [file["name"] for file in answer["files"]] == (["a.txt"] if "collect" in fields else [])


def test_random_numbers_differ(mine):
    code = "import random, os, secrets; print(random.random(), os.urandom(4), secrets.token_hex(4))"
    assert len({run_warm(mine, code)["stdout"] for _ in range(5)}) == 5


def test_copies_live_side_by_side(mine):
    """Each has its own loopback, its own shared memory, and cannot name the others' processes: each of them takes
    the same port and the same key. Control: one box cannot have the port twice."""
    run_warm(mine, "pass")
    code = "import ctypes, os, socket, time\n" \
           "s = socket.socket(); s.bind(('127.0.0.1', 9999)); s.listen()\n" \
           "l = ctypes.CDLL(None, use_errno=True)\nassert l.shmget(77, 4096, 0o3600) >= 0, ctypes.get_errno()\n" \
           "killed = []\nfor pid in range(1, 300):\n  try:\n    if pid != os.getpid(): os.kill(pid, 9); killed.append(pid)\n" \
           "  except OSError: pass\ntime.sleep(1)\n" \
           "print(killed, [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()])\n" \
           "try: socket.socket().bind(('127.0.0.1', 9999))\nexcept OSError as e: print(e.strerror)\n"
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(mine.run("python", code, image="mine").json()))
               for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sum(map(is_warm, answers)) >= 2, answers  # some may find a template that is just failing or busy
    assert {answer["stdout"] for answer in answers} == {"[] []\nAddress already in use\n"}, answers


def test_judgements_use_it(mine):
    run_warm(mine, "pass")
    answer = mine("POST", "/v1/judge", {
        "language": "python", "image": "mine", "code": "import hermes_heavy; print(int(input()) * 2)",
        "tests": [{"stdin": "%d\n" % n, "expected": "%d\n" % (2 * n)} for n in range(4)]})
    assert answer.status == 200 and answer.json()["verdict"] == "accepted", answer.body
    # control: a wrong answer is one
    answer = mine("POST", "/v1/judge", {"language": "python", "image": "mine", "code": "print(input())",
                                        "tests": [{"stdin": "1\n", "expected": "2\n"}]})
    assert answer.json()["verdict"] == "wrong_answer", answer.body
