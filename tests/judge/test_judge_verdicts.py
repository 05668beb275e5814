# SPDX-License-Identifier: Apache-2.0
"""Every verdict in every language of the table, comparers, skipping, what is told of a test."""
import pytest

from judge_table import BROKEN, LANGUAGES, WORDS

LIMITS = {"cpu_ms": 1500, "wall_ms": 4000, "memory_mb": 160, "output_kb": 256}


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_verdict(judge, language):
    limits = dict(LIMITS)
    if language == "java":
        limits.update(cpu_ms=4000, wall_ms=9000, memory_mb=256)
    answer = judge(language, LANGUAGES[language],
                   [{"name": word, "stdin": word + "\n", "expected": "1 2\n"} for word, _ in WORDS],
                   limits=limits)
    got = [(t["name"], t["verdict"]) for t in answer["tests"]]
    assert got == WORDS, [(t["name"], t["verdict"], t["message"], t["stderr"][-300:])
                          for t in answer["tests"]]
    assert answer["verdict"] == "wrong_answer"  # of the first test that was not accepted
    assert answer["points"] == 1 and answer["max_points"] == len(WORDS)
    tests = {t["name"]: t for t in answer["tests"]}
    # On a machine under load the wall limit may be reached first.
    assert {"cpu", "wall"} & set(tests["loop"]["limits_hit"]) and tests["sleep"]["limits_hit"] == ["wall"]
    assert tests["exit"]["exit_code"] == 3 and tests["signal"]["signal"] in ("SIGSEGV", "SIGABRT")
    assert tests["right"]["usage"]["wall_ms"] > 0 and tests["right"]["stdout"] == "1 2\n"
    assert tests["output"]["stdout_truncated"]


@pytest.mark.parametrize("language", sorted(BROKEN))
def test_broken_source(judge, language):
    code, verdict = BROKEN[language]
    answer = judge(language, code, [{"stdin": "", "expected": ""}, {"stdin": "", "expected": ""}])
    assert answer["verdict"] == verdict
    if verdict == "compile_error":
        assert [t["verdict"] for t in answer["tests"]] == ["skipped"] * 2
        assert answer["compile"]["status"] == "runtime_error" and answer["compile"]["stderr"]
        assert all(t["usage"] is None for t in answer["tests"])


ECHO = "import sys\nsys.stdout.write(sys.stdin.read())\n"


@pytest.mark.parametrize("compare,output,expected,verdict", [
    ("exact", "a b\n", "a b\n", "accepted"),
    ("exact", "a b", "a b\n", "presentation_error"),
    ("trim", "a b  \n\n", "a b", "accepted"),
    ("trim", "a  b", "a b", "presentation_error"),
    ("tokens", "a\n\nb", "a b", "accepted"),
    ("tokens", "a c", "a b", "wrong_answer"),
    ("unordered", "2\n1\n1\n", "1\n2\n1\n", "accepted"),
    ("unordered", "2\n1\n2\n", "1\n2\n1\n", "wrong_answer"),
    ({"float": 1e-6}, "0.3333333", "0.33333333333", "accepted"),
    ({"float": 1e-6}, "0.3333", "0.33333333333", "wrong_answer"),
    ({"float": {"absolute": 0.5}}, "100.4", "100", "accepted"),
    ({"float": {"relative": 0.001}}, "100.4", "100", "wrong_answer"),
])
def test_comparers(judge, compare, output, expected, verdict):
    answer = judge("python", ECHO, [{"stdin": output, "expected": expected}], compare=compare)
    assert answer["tests"][0]["verdict"] == verdict == answer["verdict"], answer


def test_one_compile(judge):
    """The compiler runs once, whatever the number of tests; a second judgement needs it no more."""
    code = "#include <cstdio>\nint main() { int a; scanf(\"%d\", &a); printf(\"%d\\n\", a); } // one_compile\n"
    tests = [{"stdin": str(n), "expected": str(n)} for n in range(20)]
    patience = {"limits": {"wall_ms": 120000}, "compile_limits": {"wall_ms": 120000}}
    first = judge("cpp", code, tests, **patience)
    assert first["verdict"] == "accepted" and not first["compile"]["cached"], first
    again = judge("cpp", code, tests, **patience)
    assert again["verdict"] == "accepted" and again["compile"]["cached"], (first["compile"], again)


def test_stop_at_first_failure(judge):
    code = "print(input())"
    tests = [{"stdin": "1", "expected": "1" if n != 3 else "2"} for n in range(12)]
    for parallel in (1, 4):
        answer = judge("python", code, tests, stop_on_first_failure=True, parallel=parallel)
        assert [t["verdict"] for t in answer["tests"]] == \
            ["accepted"] * 3 + ["wrong_answer"] + ["skipped"] * 8
        assert answer["verdict"] == "wrong_answer" and answer["points"] == 3


def test_arguments_and_bytes(judge):
    code = "import sys\nsys.stdout.buffer.write(sys.argv[1].encode() + sys.stdin.buffer.read())"
    answer = judge("python", code, [
        {"args": ["x y"], "stdin": "//8A", "stdin_encoding": "base64",
         "expected": "eCB5//8A", "expected_encoding": "base64"}], compare="exact",
        output_encoding="base64")
    assert answer["verdict"] == "accepted", answer
    assert answer["tests"][0]["stdout"] == "eCB5//8A"


def test_output_limit_follows_the_answer(judge):
    """Without a limit of its own a test may write what the right answer needs."""
    code = "import sys\nfor _ in range(int(input()) >> 20): sys.stdout.write('x' * (1 << 20))"
    size = 3 << 20
    answer = judge("python", code, [{"stdin": str(size), "expected": "x" * size},
                                    {"stdin": str(1 << 30), "expected": "x"}],
                   limits={"wall_ms": 60000})
    assert [t["verdict"] for t in answer["tests"]] == ["accepted", "output_limit"], answer["tests"][1]["message"]
    assert len(answer["tests"][0]["stdout"]) == 4096 and answer["tests"][0]["stdout_truncated"]
