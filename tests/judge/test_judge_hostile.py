# SPDX-License-Identifier: Apache-2.0
"""Solutions that want to be accepted without solving anything. Each has a control: the same probe
finds what it looks for when it is there."""
import pytest

SECRET = "the-secret-answer-4711"
CHECKER = {"checker": {"language": "python", "code":
                       "import sys\n# CHECKER-SOURCE-MARK\n"
                       "sys.exit(0 if open(sys.argv[2]).read() == open(sys.argv[3]).read() else 1)"}}

# Looks for a string everywhere it may read: files, environment, memory of other processes, descriptors.
SEARCH = r'''
import os, sys
mark = sys.stdin.readline().strip().encode()[::-1]
found = []
for top in ("/box", "/tmp", "/dev/shm", "/mnt", "/etc", "/var", "/run", "/home", "/root"):
    for path, _, names in os.walk(top):
        for name in names:
            try:
                with open(os.path.join(path, name), "rb") as f:
                    if mark in f.read(1 << 20): found.append(os.path.join(path, name))
            except OSError: pass
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for name in ("environ", "cmdline"):
            try:
                if mark in open("/proc/%s/%s" % (pid, name), "rb").read(): found.append(pid + name)
            except OSError: pass
for fd in range(3, 256):
    try:
        if mark in os.pread(fd, 1 << 20, 0): found.append("fd %d" % fd)
    except OSError: pass
print("found" if found else "clean", *found)
'''


@pytest.mark.parametrize("compare", ["exact", CHECKER])
def test_answers_and_checker_are_out_of_reach(judge, compare):
    for mark in (SECRET, "CHECKER-SOURCE-MARK"):
        answer = judge("python", SEARCH, [{"stdin": mark[::-1], "expected": SECRET}] * 2, compare=compare)
        for test in answer["tests"]:
            assert test["stdout"].strip() == "clean" and test["verdict"] == "wrong_answer", test
    # The control: the program's own source has a mark of its own.
    answer = judge("python", SEARCH + "# own-mark\n", [{"stdin": "own-mark"[::-1], "expected": "x"}])
    assert answer["tests"][0]["stdout"].startswith("found /box/main.py")


def test_the_output_cannot_be_the_checkers_verdict(judge):
    """Files, exit codes and words that a checker would use decide nothing from the solution's box."""
    code = r'''
import os, sys
for name in ("output.txt", "answer.txt", "input.txt", "verdict", "result.json", "checker", "score"):
    with open(name, "w") as f: f.write("accepted 100\n0\n")
sys.stderr.write("points 100\nok accepted\n")
print('{"verdict": "accepted", "points": 100}')
sys.exit(int(sys.stdin.read()))
'''
    tests = [{"stdin": str(n), "expected": SECRET, "points": 100} for n in (0, 7, 1)]
    answer = judge("python", code, tests, compare=CHECKER)
    assert [t["verdict"] for t in answer["tests"]] == ["wrong_answer", "runtime_error", "runtime_error"]
    assert answer["points"] == 0


def test_the_output_file_is_no_way_into_the_checker(judge):
    """What the solution prints is bytes in a plain file of the checker's box, whatever it contains."""
    code = "import sys\nsys.stdout.write(sys.stdin.read())"
    probe = ("import os, stat, sys\nst = os.lstat(sys.argv[2])\n"
             "sys.exit(0 if stat.S_ISREG(st.st_mode) and sorted(os.listdir('.')) == "
             "['answer.txt', 'input.txt', 'main.py', 'output.txt'] else 1)")
    answer = judge("python", code, [{"stdin": "../../etc/passwd\0#!/bin/sh\nexit 0\n", "expected": ""}],
                   compare={"checker": {"language": "python", "code": probe}})
    assert answer["verdict"] == "accepted", answer


def test_nothing_outlives_its_test(judge):
    """A child that leaves its session and goes on is gone before the next test begins."""
    code = r'''
import os, sys, time
word = input()
if word == "fork":
    if os.fork() == 0:
        os.setsid()
        for fd in (0, 1, 2): os.close(fd)
        while True: time.sleep(0.01)
    print("done")
else:
    others = [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())]
    print("done" if not others else others)
'''
    tests = [{"stdin": w, "expected": "done"} for w in ("fork", "look", "fork", "look")]
    answer = judge("python", code, tests, parallel=1)
    assert [t["verdict"] for t in answer["tests"]] == ["accepted"] * 4, answer


def test_tests_cannot_talk_to_each_other(judge):
    """Files, shared memory, abstract sockets, System V IPC and ports of one test are not another's."""
    code = r'''
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
word = input()
seen = []
paths = ["/box/mark", "/tmp/mark", "/dev/shm/mark", "/var/tmp/mark"]
if word == "leave":
    for path in paths:
        try: open(path, "w").write("here")
        except OSError: pass
    s = socket.socket(socket.AF_UNIX); s.bind("\0mark"); s.listen()
    t = socket.socket()
    try: t.bind(("127.0.0.1", 4711)); t.listen()
    except OSError: pass
    libc.shmget(4711, 4096, 0o1666)
    libc.msgget(4711, 0o1666)
    time.sleep(2)
else:
    end = time.time() + 1.5
    while time.time() < end:
        seen += [p for p in paths if os.path.exists(p)]
        for kind, at in ((socket.AF_UNIX, "\0mark"), (socket.AF_INET, ("127.0.0.1", 4711))):
            try:
                socket.socket(kind).connect(at)
                seen.append(at)
            except OSError: pass
        if libc.shmget(4711, 4096, 0) >= 0 or libc.msgget(4711, 0) >= 0: seen.append("ipc")
        time.sleep(0.05)
print("alone" if not seen else seen)
'''
    tests = [{"stdin": w, "expected": "alone"} for w in ("leave", "look", "leave", "look")]
    answer = judge("python", code, tests, parallel=4, limits={"wall_ms": 20000})
    assert [t["verdict"] for t in answer["tests"]] == ["accepted"] * 4, answer


def test_no_memory_between_judgements(judge):
    """The compiled program is the same file for all tests; a test that changes its own changes no other's."""
    code = r'''
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <unistd.h>
int main()
{
    char word[16];
    if (scanf("%15s", word) != 1) return 1;
    if (std::string(word) == "spoil") {
        unlink("/box/main");
        int fd = open("/box/main", O_WRONLY | O_CREAT | O_TRUNC, 0755);
        if (write(fd, "#!/bin/sh\necho spoiled\n", 23) < 0) return 2;
    }
    puts("fine");
}
'''
    tests = [{"stdin": "spoil" if n % 2 else "keep", "expected": "fine"} for n in range(12)]
    assert judge("cpp", code, tests)["verdict"] == "accepted"


def test_early_success_is_no_success(judge):
    for code in ("raise SystemExit(0)", "import os; os._exit(0)", "print('ok')\nimport sys; sys.exit(0)",
                 "import os, signal; os.kill(1, signal.SIGKILL); os.kill(os.getppid(), 9)"):
        answer = judge("python", code, [{"stdin": "", "expected": SECRET}])
        assert answer["tests"][0]["verdict"] != "accepted" and answer["points"] == 0, (code, answer)
        assert answer["tests"][0]["verdict"] != "internal_error", (code, answer)


def test_the_answer_is_not_in_messages(judge):
    """Callers pass messages on to contestants."""
    answer = judge("python", "print('the-secret-answer-47')", [{"stdin": "", "expected": SECRET}])
    assert SECRET not in str(answer)
    answer = judge("python", "print(1.5)", [{"stdin": "", "expected": SECRET}], compare={"float": 0.1})
    assert SECRET not in str(answer)
