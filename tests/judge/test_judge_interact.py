# SPDX-License-Identifier: Apache-2.0
"""Interactive problems: the talk, who is to blame, the transcript, many rounds."""
import pytest

# Guess a number: the interactor knows it from the test's input, the solution may ask 10 times.
INTERACTOR = r'''
import sys, time
secret = int(open(sys.argv[1]).read())
log = open(sys.argv[2], "w")
for tries in range(1, 11):
    line = sys.stdin.readline()
    if not line:
        time.sleep(0.2)
        sys.stderr.write("the solution stopped asking\n"); sys.exit(1)
    try:
        guess = int(line)
    except ValueError:
        sys.stderr.write("not a number\n"); sys.exit(2)
    if guess == secret:
        print("yes", flush=True); log.write("%d\n" % tries); sys.exit(0)
    print("more" if guess < secret else "less", flush=True)
sys.stderr.write("too many guesses\n"); sys.exit(1)
'''
SOLUTIONS = {
    "python": r'''
low, high = 1, 1000
while True:
    guess = (low + high) // 2
    print(guess, flush=True)
    said = input()
    if said == "yes": break
    if said == "more": low = guess + 1
    else: high = guess - 1
''',
    "cpp": r'''
#include <iostream>
int main() {
    int low = 1, high = 1000;
    for (std::string said;;) {
        int guess = (low + high) / 2;
        std::cout << guess << std::endl;
        std::cin >> said;
        if (said == "yes") return 0;
        if (said == "more") low = guess + 1; else high = guess - 1;
    }
}
'''}
LIMITS = {"wall_ms": 5000, "cpu_ms": 1000}


def talk(judge, code, language="python", interactor=INTERACTOR, tests=None, limits=LIMITS, **fields):
    return judge(language, code, tests or [{"stdin": "637", "expected": "10"}], limits=limits,
                 interactor={"language": "python", "code": interactor}, **fields)


@pytest.mark.parametrize("transcript", [False, True])
@pytest.mark.parametrize("language", sorted(SOLUTIONS))
def test_guessing(judge, language, transcript):
    tests = [{"stdin": str(n), "expected": ""} for n in (1, 500, 637, 1000)]
    answer = talk(judge, SOLUTIONS[language], language, tests=tests, transcript=transcript)
    assert [t["verdict"] for t in answer["tests"]] == ["accepted"] * 4, answer
    if transcript:
        first = answer["tests"][1]["transcript"]
        assert first == [{"from": "solution", "data": "500\n"}, {"from": "interactor", "data": "yes\n"}]
        assert not answer["tests"][1]["transcript_truncated"]


@pytest.mark.parametrize("transcript", [False, True])
@pytest.mark.parametrize("code,verdict,message", [
    ("for i in range(10): print(1, flush=True)", "wrong_answer", "too many"),
    ("print('x', flush=True); input()", "presentation_error", "not a number"),
    ("pass", "wrong_answer", "stopped asking"),
    ("raise SystemExit(3)", "runtime_error", "status 3"),
    ("import os; os.kill(os.getpid(), 11)", "signaled", "SIGSEGV"),
    ("while True: pass", "time_limit", "time limit"),
    ("input()", "time_limit", "wall"),  # both wait: the solution is to blame
    ("x = []\nwhile True: x.append(bytearray(b'x' * (8 << 20)))", "memory_limit", "memory"),
    ("print(637, flush=True); input(); raise SystemExit(4)", "runtime_error", "status 4"),
    ("print(637, flush=True); input()\nwhile True: pass", "time_limit", "time limit"),
    # The interactor has left; nobody dies of writing to it.
    ("print(637, flush=True); input()\nprint('x' * (1 << 20), flush=True)", "accepted", ""),
    # Ten wrong guesses and then no end: stopped as soon as the interactor has spoken.
    ("for i in range(10): print(1, flush=True)\nwhile True: pass", "wrong_answer", "too many"),
])
def test_who_is_to_blame(judge, code, verdict, message, transcript):
    limits = dict(LIMITS, wall_ms=2500, memory_mb=96)
    test = talk(judge, code, transcript=transcript, limits=limits)["tests"][0]
    assert test["verdict"] == verdict and message in test["message"], test


def test_an_interactor_that_fails_is_no_verdict(judge):
    for code in ("import sys; sys.exit(3)", "import sys; sys.exit(77)", "import os; os.kill(os.getpid(), 9)"):
        answer = talk(judge, "input()", interactor=code)
        assert answer["verdict"] == "internal_error", answer
        assert "interactor" in answer["tests"][0]["message"]


@pytest.mark.parametrize("transcript", [False, True])
def test_an_interactor_may_close_its_output(judge, transcript):
    """A solution that reads to the end gets there."""
    interactor = ("import os, sys\nprint(1)\nprint(2, flush=True)\nos.close(1)\n"
                  "sys.exit(0 if sys.stdin.readline().strip() == '3' else 1)")
    code = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"
    answer = talk(judge, code, interactor=interactor, transcript=transcript)
    assert answer["verdict"] == "accepted", answer["tests"][0]


@pytest.mark.parametrize("transcript", [False, True])
def test_failing_because_of_a_verdict_is_no_failure(judge, transcript):
    """The solution would crash at the end of its input; it is gone before it sees that."""
    interactor = "import sys\nprint(1, flush=True)\nsys.stdin.readline()\nsys.exit(2)"
    code = "input(); print('x', flush=True); input()"
    tests = [{"stdin": ""}] * 12
    answer = talk(judge, code, interactor=interactor, tests=tests, transcript=transcript)
    assert [t["verdict"] for t in answer["tests"]] == ["presentation_error"] * 12, answer


def test_a_checker_may_follow(judge):
    """It sees what the interactor wrote to its second argument."""
    checker = "import sys\nsys.exit(0 if open(sys.argv[2]).read() <= open(sys.argv[3]).read() else 1)"
    tests = [{"stdin": "500", "expected": "1\n"}, {"stdin": "250", "expected": "1\n"}]
    answer = talk(judge, SOLUTIONS["python"], tests=tests,
                  compare={"checker": {"language": "python", "code": checker}})
    assert [t["verdict"] for t in answer["tests"]] == ["accepted", "wrong_answer"], answer


def test_large_messages_in_both_directions(judge):
    """Both write more than a pipe holds, at the same time as they read."""
    code = r'''
import sys, threading
def write():
    for _ in range(400): sys.stdout.write("x" * 9999 + "\n")
    sys.stdout.flush()
t = threading.Thread(target=write); t.start()
count = sum(len(sys.stdin.readline()) for _ in range(400))
t.join()
sys.exit(0 if count == 4000000 else 1)
'''
    for transcript in (False, True):
        answer = talk(judge, code, interactor=code, transcript=transcript,
                      limits={"wall_ms": 60000, "cpu_ms": 30000})
        assert answer["verdict"] == "accepted", answer["tests"][0]["message"]
        if transcript:
            test = answer["tests"][0]
            assert test["transcript_truncated"]
            assert sum(len(t["data"]) for t in test["transcript"]) == 65536


def test_many_rounds(judge):
    ping = "import sys\nr, w = sys.stdin, sys.stdout\nfor n in range(100000):\n    %s\nsys.exit(0)"
    ask = ping % 'w.write("%d\\n" % n); w.flush()\n    if int(r.readline()) != n + 1: sys.exit(1)'
    tell = ping % 'w.write("%d\\n" % (int(r.readline()) + 1)); w.flush()'
    answer = talk(judge, tell, interactor=ask, limits={"wall_ms": 300000, "cpu_ms": 60000})
    assert answer["verdict"] == "accepted", answer["tests"][0]["message"]


def test_the_solution_sees_neither_answer_nor_interactor(judge):
    code = r'''
import os
found = [n for n in os.listdir("/box") if n != "main.py"]
print(637 if not found and not any(b"SECRET" in open("/proc/%s/cmdline" % p, "rb").read()
      for p in os.listdir("/proc") if p.isdigit()) else 1, flush=True)
input()
'''
    answer = talk(judge, code, tests=[{"stdin": "637", "expected": "SECRET"}])
    assert answer["verdict"] == "accepted", answer


def test_cancel_ends_both(server):
    body = {"language": "python", "code": "input()", "async": True, "limits": {"wall_ms": 100000},
            "tests": [{"stdin": "1"}], "interactor": {"language": "python", "code": "input()"}}
    run = server("POST", "/v1/judge", body).json()["id"]
    from apilib import wait_until
    assert wait_until(lambda: server("GET", "/v1/judge/" + run).json()["status"] == "running")
    assert server("DELETE", "/v1/judge/" + run).status == 202
    assert wait_until(lambda: server("GET", "/v1/judge/" + run).json()["status"] == "cancelled")
