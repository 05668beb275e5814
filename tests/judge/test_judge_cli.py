# SPDX-License-Identifier: Apache-2.0
"""hermes judge PROBLEM_DIR SOLUTION."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"


@pytest.fixture
def problem(work):
    for n in (1, 2, 10):
        (work / ("%d.in" % n)).write_text("%d 5\n" % n)
        (work / ("%d.%s" % (n, "out" if n == 1 else "ans"))).write_text("%d\n" % (n + 5))
    (work / "add.py").write_text(ADD)
    return work


def test_accepted(hermes, problem):
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode == 0, done
    lines = done.stdout.decode().splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["1", "accepted"], ["2", "accepted"], ["10", "accepted"]]
    assert lines[-1] == "accepted, 3 of 3 points"


def test_rejected_and_json(hermes, problem):
    (problem / "2.ans").write_text("8\n")
    done = hermes("judge", "--json", "--stop", problem, problem / "add.py")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert [t["verdict"] for t in answer["tests"]] == ["accepted", "wrong_answer", "skipped"]
    assert answer["verdict"] == "wrong_answer"


def test_settings(hermes, problem):
    (problem / "problem.json").write_text(json.dumps({
        "limits": {"cpu_ms": 500}, "compare": "exact", "stop_on_first_failure": "group",
        "groups": [{"name": "one", "tests": ["1"], "points": 40},
                   {"name": "rest", "tests": ["2", "10"], "points": 60, "depends": ["one"]}]}))
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode == 0 and b"accepted, 100 of 100 points" in done.stdout, done
    (problem / "loop.py").write_text("while True: pass")
    done = hermes("judge", problem, problem / "loop.py")
    assert done.returncode == 1 and done.stdout.count(b"time_limit") >= 2 and b"0 of 100" in done.stdout


def test_checker_and_header(hermes, problem):
    (problem / "rules.h").write_text("#define RIGHT(a, b) ((a) % 10 == (b) % 10)\n")
    (problem / "checker.cpp").write_text(
        '#include "rules.h"\n#include <fstream>\nint main(int, char **v) { std::ifstream o(v[2]), a(v[3]);\n'
        'int x, y; if (!(o >> x)) return 2; a >> y; return RIGHT(x, y) ? 0 : 1; }\n')
    (problem / "problem.json").write_text('{"checker": {"limits": {"memory_mb": 64}}}')
    (problem / "add.py").write_text(ADD.replace("a + b", "a + b + 10"))
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode == 0, done
    (problem / "1.out").unlink()  # a checker may do without answers
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode == 1 and b"wrong_answer" in done.stdout


def test_interactor(hermes, problem):
    (problem / "interactor.py").write_text(
        "import sys\na, b = open(sys.argv[1]).read().split()\nprint(a, b, flush=True)\n"
        "sys.exit(0 if int(input()) == int(a) + int(b) else 1)\n")
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode == 0, done


@pytest.mark.parametrize("name,text,says", [
    ("problem.json", "{", b"not valid JSON"),
    ("problem.json", '{"limits": {"walls": 1}}', b"limits.walls"),
    ("problem.json", '{"tests": []}', b"tests are files"),
    ("problem.json", '{"colour": 1}', b"colour"),
    ("checker.xyz", "", b"checker.xyz"),
    ("3.in", "", b"neither 3.out nor 3.ans"),
])
def test_bad_folders(hermes, problem, name, text, says):
    (problem / name).write_text(text)
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode in (2, 125) and says in done.stderr, done
    assert done.stderr.count(b"\n") == 1 and not done.stdout


def test_bad_usage(hermes, problem, work):
    assert hermes("judge", problem).returncode == 2
    assert hermes("judge", problem, problem / "nothing.py").returncode != 0
    assert hermes("judge", problem / "nothing", problem / "add.py").returncode != 0
    assert hermes("judge", "--parallel", "0", problem, problem / "add.py").returncode == 2
    (work / "empty").mkdir()
    done = hermes("judge", work / "empty", problem / "add.py")
    assert done.returncode != 0 and b"has no test" in done.stderr


def test_compile_error_is_shown(hermes, problem):
    (problem / "bad.cpp").write_text("int main( {")
    done = hermes("judge", problem, problem / "bad.cpp")
    assert done.returncode == 1 and b"error" in done.stdout and b"compile_error" in done.stdout


def test_internal_error_has_its_own_status(hermes, problem):
    (problem / "checker.py").write_text("raise SystemExit(3)")
    done = hermes("judge", problem, problem / "add.py")
    assert done.returncode == 125 and b"could not be judged" in done.stdout


def test_a_terminal_is_safe(hermes, problem):
    """What a checker says of a stranger's output cannot move the cursor."""
    (problem / "checker.py").write_text("import sys\nsys.stderr.write(open(sys.argv[2]).read()); sys.exit(1)")
    (problem / "add.py").write_text("print('\\x1b[2J\\x07evil')")
    done = hermes("judge", problem, problem / "add.py")
    assert b"evil" in done.stdout and b"\x1b" not in done.stdout


def high_water_kb(process):
    """VmHWM of hermes itself while it runs."""
    most = 0
    while process.poll() is None:
        try:
            for line in open("/proc/%d/status" % process.pid):
                if line.startswith("VmHWM:"):
                    most = max(most, int(line.split()[1]))
        except OSError:
            pass
        time.sleep(0.02)
    return most


@pytest.mark.parametrize("compare", ["exact", "tokens", "unordered"])
def test_a_huge_output_in_bounded_memory(hermes, work, compare, state_dir):
    """1 GiB with HERMES_FULL=1, else 128 MiB; the memory of the comparing side stays a few MiB."""
    size = (1 << 30) if os.environ.get("HERMES_FULL") else 128 << 20
    line = b"x" * 1023 + b"\n"
    (work / "1.in").write_text("%d\n" % (size // 1024))
    with open(work / "1.ans", "wb") as f:
        for _ in range(size // (1 << 20)):
            f.write(line * 1024)
    (work / "2.in").write_text("%d\n" % (size // 1024))
    with open(work / "2.ans", "wb") as f:
        for _ in range(size // (1 << 20) - 1):
            f.write(line * 1024)
        f.write(line * 1023 + b"x" * 1022 + b"y\n")
    (work / "problem.json").write_text(json.dumps(
        {"compare": compare, "limits": {"wall_ms": 600000, "cpu_ms": 600000}, "parallel": 2}))
    (work / "s.c").write_text(
        "#include <stdio.h>\n#include <string.h>\nint main(void) { long n; if (scanf(\"%ld\", &n) != 1) return 1;\n"
        "static char b[1024]; memset(b, 'x', 1023); b[1023] = '\\n';\n"
        "while (n--) fwrite(b, 1, 1024, stdout); return 0; }\n")
    from apilib import HERMES, ROOT
    process = subprocess.Popen([str(HERMES), "judge", "--json", str(work), str(work / "s.c")],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": "/usr/bin:/bin", "HERMES_STATE_DIR": str(state_dir),
                                    "HERMES_RUNTIMES": str(ROOT / "runtimes"),
                                    **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}})
    seen = {}
    watcher = threading.Thread(target=lambda: seen.update(kb=high_water_kb(process)))
    watcher.start()
    out, err = process.communicate()
    watcher.join()
    answer = json.loads(out)
    assert [t["verdict"] for t in answer["tests"]] == ["accepted", "wrong_answer"], (answer, err)
    asan = b"__asan_init" in HERMES.read_bytes()
    assert seen["kb"] < (400 if asan else 32) << 10, "%d KiB" % seen["kb"]


def test_interrupted(hermes, problem, state_dir):
    from apilib import HERMES, ROOT
    (problem / "sleep.py").write_text("import time; time.sleep(600)")
    (problem / "problem.json").write_text('{"limits": {"wall_ms": 600000}}')
    process = subprocess.Popen([str(HERMES), "judge", str(problem), str(problem / "sleep.py")],
                               stdout=subprocess.PIPE, env={"PATH": "/usr/bin:/bin",
                                                            "HERMES_STATE_DIR": str(state_dir),
                                                            "HERMES_RUNTIMES": str(ROOT / "runtimes")})
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and b"cancelled" in out
