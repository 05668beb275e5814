# SPDX-License-Identifier: Apache-2.0
"""Measurements of judging: a hundred tests of a fast program, and rounds of an interactive one."""
import json
import subprocess
import time

TESTS = 100
ROUNDS = 100000

ADD = "#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }\n"
# Talks to itself: `ask` begins a round, the other side answers.
PING = r'''
#include <cstdio>
#include <unistd.h>
int main()
{
    char c = 'x';
    for (int i = 0; i < %d; i++) {
        %s
    }
    return 0;
}
'''
ASK = "if (write(1, &c, 1) != 1 || read(0, &c, 1) != 1) return 1;"
TELL = "if (read(0, &c, 1) != 1 || write(1, &c, 1) != 1) return 1;"


def bare_tests(folder):
    """The compiled program, once per test, its output compared."""
    start = time.perf_counter()
    for n in range(TESTS):
        done = subprocess.run([folder / "add"], stdin=open(folder / ("%d.in" % n)), stdout=subprocess.PIPE)
        if done.stdout != (folder / ("%d.ans" % n)).read_bytes():
            raise RuntimeError("test %d" % n)
    return (time.perf_counter() - start) * 1000


def judged(bench, hermes, folder, solution):
    start = time.perf_counter()
    done = subprocess.run([hermes, "judge", "--json", folder, folder / solution], env=bench.env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    taken = (time.perf_counter() - start) * 1000
    answer = json.loads(done.stdout) if done.stdout else {}
    if answer.get("verdict") != "accepted":
        raise RuntimeError("%s%s" % (done.stdout[-500:], done.stderr[-500:]))
    return taken, answer


def hundred_tests(bench, hermes, interleave, row):
    folder = bench.place("judge-add", {"add.cpp": ADD})
    for n in range(TESTS):
        (folder / ("%d.in" % n)).write_text("%d 5\n" % n)
        (folder / ("%d.ans" % n)).write_text("%d\n" % (n + 5))
    subprocess.run(["g++", "-O2", "-o", "add", "add.cpp"], cwd=folder, check=True)
    ours, bare = interleave(max(5, bench.rounds // 2), lambda: judged(bench, hermes, folder, "add.cpp")[0],
                            lambda: bare_tests(folder))
    yield row("judge %d tests" % TESTS, ours, bare, 1.4, note="hermes judge to its end, compiled before")


def bare_talk(folder):
    """Two processes on two pipes."""
    start = time.perf_counter()
    ask = subprocess.Popen([folder / "ask"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    tell = subprocess.Popen([folder / "tell"], stdin=ask.stdout, stdout=ask.stdin)
    ask.stdin.close()
    ask.stdout.close()
    if ask.wait() or tell.wait():
        raise RuntimeError("ping-pong")
    return (time.perf_counter() - start) * 1000


def rounds(bench, hermes, interleave, row):
    folder = bench.place("judge-talk", {"solution.cpp": PING % (ROUNDS, TELL), "interactor.cpp": PING % (ROUNDS, ASK),
                                        "1.in": "", "problem.json": '{"limits": {"wall_ms": 120000}}'})
    for name, source in (("ask", "interactor"), ("tell", "solution")):
        subprocess.run(["g++", "-O2", "-o", name, source + ".cpp"], cwd=folder, check=True)
    ours, bare = interleave(max(3, bench.rounds // 6), lambda: judged(bench, hermes, folder, "solution.cpp")[0],
                            lambda: bare_talk(folder))
    yield row("judge %d rounds" % ROUNDS, ours, bare, 3.0)
