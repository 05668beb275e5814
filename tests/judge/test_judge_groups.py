# SPDX-License-Identifier: Apache-2.0
"""Groups: points, dependencies, stopping."""
import pytest

CODE = "print(input())"


def some(*names, wrong=()):
    return [{"name": n, "stdin": n, "expected": "no" if n in wrong else n} for n in names]


GROUPS = [{"name": "small", "tests": ["a*"], "points": 30},
          {"name": "large", "tests": ["b*"], "points": 70, "depends": ["small"]}]


def test_all_or_nothing(judge):
    answer = judge("python", CODE, some("a1", "a2", "b1", "b2", wrong=("b2",)), groups=GROUPS)
    assert [(g["name"], g["verdict"], g["points"], g["max_points"]) for g in answer["groups"]] == \
        [("small", "accepted", 30, 30), ("large", "wrong_answer", 0, 70)]
    assert (answer["points"], answer["max_points"], answer["verdict"]) == (30, 100, "wrong_answer")
    assert [t["group"] for t in answer["tests"]] == ["small", "small", "large", "large"]


def test_dependencies_skip(judge):
    for parallel in (1, 4):
        answer = judge("python", CODE, some("a1", "a2", "b1", "b2", wrong=("a2",)), groups=GROUPS,
                       parallel=parallel)
        assert [t["verdict"] for t in answer["tests"]] == ["accepted", "wrong_answer", "skipped", "skipped"]
        assert answer["points"] == 0


def test_stop_in_group(judge):
    groups = [{"name": "a", "tests": ["a*"]}, {"name": "b", "tests": ["b*"]}]
    answer = judge("python", CODE, some("a1", "a2", "a3", "b1", "b2", wrong=("a1",)), groups=groups,
                   stop_on_first_failure="group", parallel=3)
    assert [t["verdict"] for t in answer["tests"]] == \
        ["wrong_answer", "skipped", "skipped", "accepted", "accepted"]
    # Without points of their own the groups have those of their tests.
    assert [(g["points"], g["max_points"]) for g in answer["groups"]] == [(0, 3), (2, 2)]


def test_partial_points_of_a_group(judge):
    """A group has the share of its worst test."""
    checker = {"checker": {"language": "python", "code":
               "import sys\nsys.stderr.write('points ' + open(sys.argv[2]).read()); sys.exit(7)"}}
    tests = [{"name": "a1", "stdin": "0.5", "points": 1}, {"name": "a2", "stdin": "1", "points": 1},
             {"name": "b1", "stdin": "3", "points": 4}]
    answer = judge("python", CODE, tests, compare=checker,
                   groups=[{"name": "a", "tests": ["a*"], "points": 40}])
    assert answer["groups"][0]["points"] == 20
    assert (answer["points"], answer["max_points"]) == (23, 44)


@pytest.mark.parametrize("groups,field", [
    ([{"name": "a", "tests": ["x*"]}], "groups[0].tests"),
    ([{"name": "a", "tests": ["a*"]}, {"name": "a", "tests": ["b*"]}], "groups[1].name"),
    ([{"name": "a", "tests": ["a*"]}, {"name": "b", "tests": ["*1"]}], "groups[1].tests"),
    ([{"name": "a", "tests": ["a*"], "depends": ["b"]}, {"name": "b", "tests": ["b*"]}], "groups[0].depends"),
    ([{"name": "b", "tests": ["b*"]}, {"name": "a", "tests": ["a*"], "depends": ["b"]}], "groups[1].depends"),
    ([{"name": "a", "tests": ["a*"], "points": -1}], "groups[0].points"),
    ([{"tests": ["a*"]}], "groups[0].name"),
    ([{"name": "a"}], "groups[0].tests"),
    ([{"name": "a", "tests": ["a*"], "colour": 1}], "groups[0].colour"),
    ({}, "groups"),
])
def test_bad_groups(server, groups, field):
    reply = server("POST", "/v1/judge", {"language": "python", "code": CODE, "groups": groups,
                                         "tests": some("a1", "b1")})
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply


def test_patterns_buy_no_time(server):
    """Patterns that take long to match, against names made for them."""
    body = {"language": "python", "code": CODE,
            "tests": [{"name": "a" * 190, "stdin": "", "expected": ""}] * 4096,
            "groups": [{"name": "g%d" % n, "tests": ["*a" * 90 + "b"] * 200} for n in range(100)]}
    reply = server("POST", "/v1/judge", body)
    assert reply.status == 400 and reply.json()["error"]["field"] == "groups", reply


def test_stop_and_internal_error(judge):
    """A test behind the first failure is skipped, also when its checker fails."""
    checker = {"checker": {"language": "python", "code": "import sys\nsys.exit(int(open(sys.argv[2]).read()))"}}
    tests = [{"name": str(n), "stdin": s} for n, s in enumerate(["0", "1", "3", "3", "0"])]
    answer = judge("python", CODE, tests, compare=checker, stop_on_first_failure=True, parallel=5)
    assert [t["verdict"] for t in answer["tests"]] == ["accepted", "wrong_answer"] + ["skipped"] * 3
    assert answer["verdict"] == "wrong_answer"
