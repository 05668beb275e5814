# SPDX-License-Identifier: Apache-2.0
"""Checkers: testlib's conventions, in several languages; what goes wrong with one is never the
solution's fault."""
import pytest

# Any number with the right last digit will do; "p N" says N points.
PYTHON = r'''
import sys
n = open(sys.argv[1]).read().strip()
out = open(sys.argv[2]).read().split()
answer = open(sys.argv[3]).read().strip()
if not out:
    sys.stderr.write("nothing there\n"); sys.exit(2)
if out[0] == "p":
    sys.stderr.write("points %s so so\n" % out[1]); sys.exit(7)
if out[0] == "fail":
    sys.stderr.write("the answer file is broken\n"); sys.exit(3)
if out[0] == "crash":
    raise SystemExit(99)
if out[0] == "hang":
    while True: pass
sys.exit(0 if out[0][-1] == answer[-1] else 1)
'''
CPP = r'''
#include <fstream>
#include <string>
int main(int argc, char **argv)
{
    if (argc != 4) return 3;
    std::ifstream in(argv[1]), out(argv[2]), answer(argv[3]);
    std::string a, b;
    answer >> a;
    if (!(out >> b)) return 2;
    return a.back() == b.back() ? 0 : 1;
}
'''
JAVASCRIPT = r'''
const fs = require("fs");
const [, , input, output, answer] = process.argv;
const got = fs.readFileSync(output, "utf8").trim();
process.exit(!got ? 2 : got.slice(-1) === fs.readFileSync(answer, "utf8").trim().slice(-1) ? 0 : 1);
'''
SOLUTION = "print(input())"


def checker(language, code, **fields):
    return {"checker": dict(language=language, code=code, **fields)}


@pytest.mark.parametrize("language,code", [("python", PYTHON), ("cpp", CPP), ("javascript", JAVASCRIPT)])
def test_checkers_in_languages(judge, language, code):
    answer = judge("python", SOLUTION, [
        {"stdin": "17", "expected": "7"}, {"stdin": "18", "expected": "7"}, {"stdin": " ", "expected": "7"}],
        compare=checker(language, code))
    assert [t["verdict"] for t in answer["tests"]] == ["accepted", "wrong_answer", "presentation_error"], answer
    assert answer["points"] == 1


def test_points_and_messages(judge):
    answer = judge("python", SOLUTION, [
        {"stdin": "p 2.5", "expected": "0", "points": 10}, {"stdin": "p 10", "expected": "0", "points": 10},
        {"stdin": "p 99", "expected": "0", "points": 10}], compare=checker("python", PYTHON))
    assert [(t["verdict"], t["points"]) for t in answer["tests"]] == \
        [("wrong_answer", 2.5), ("accepted", 10), ("accepted", 10)]
    assert answer["points"] == 22.5 and answer["max_points"] == 30
    assert answer["tests"][0]["message"].startswith("points 2.5 so so")


@pytest.mark.parametrize("word,why", [("fail", "broken"), ("crash", "runtime_error"), ("hang", "time_limit")])
def test_a_checker_that_fails_is_no_verdict(judge, word, why):
    answer = judge("python", SOLUTION, [{"stdin": word, "expected": "7"}, {"stdin": "7", "expected": "7"}],
                   compare=checker("python", PYTHON, limits={"cpu_ms": 500, "wall_ms": 4000}))
    assert [t["verdict"] for t in answer["tests"]] == ["internal_error", "accepted"]
    assert why in answer["tests"][0]["message"] and "checker" in answer["tests"][0]["message"]
    assert answer["verdict"] == "internal_error" and "1 of 2 tests" in answer["message"]
    assert answer["points"] == 1


def test_a_checker_that_does_not_compile(judge):
    answer = judge("python", SOLUTION, [{"stdin": "7", "expected": "7"}], compare=checker("cpp", "int main( {"))
    assert answer["verdict"] == "internal_error" and "checker could not be compiled" in answer["message"]
    assert [t["verdict"] for t in answer["tests"]] == ["skipped"]


def test_a_failing_solution_needs_no_checker(judge):
    answer = judge("python", "print(7)\nraise SystemExit(1)", [{"stdin": "", "expected": "7"}],
                   compare=checker("python", PYTHON))
    assert answer["tests"][0]["verdict"] == "runtime_error"


def test_a_large_output_reaches_the_checker(judge):
    """More than fits into the default disk of a box."""
    code = "import sys\nsys.exit(0 if len(open(sys.argv[2]).read()) == int(open(sys.argv[1]).read()) else 1)"
    size = 40 << 20
    answer = judge("python", "print('x' * (int(input()) - 1))", [{"stdin": str(size), "expected": ""}],
                   compare=checker("python", code), limits={"output_kb": 48 << 10, "wall_ms": 60000})
    assert answer["verdict"] == "accepted", answer["tests"][0]["message"]
