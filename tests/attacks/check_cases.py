#!/usr/bin/env python3
"""Checks the headers of all attack cases: keys, values, and what hangs together.

Run it alone (exit status 1 and one line per problem) or by pytest. The harness reads the same
headers; what is not allowed here, it need not understand."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ROOT / "selftest/cases"
PROTOCOL = ROOT / "src/proto/spawn.h"

LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp", ".sh": "bash", ".js": "javascript"}
GROUPS = "filesystem process memory cpu network kernel compile tenant".split()
STATUSES = ("ok runtime_error signaled time_limit memory_limit output_limit compile_error").split()
HITS = "wall cpu memory output processes disk".split()
FILE_ERRORS = "not_regular too_large unreadable".split()
LIMITS = ("wall_ms cpu_ms memory_mb processes open_files disk_mb file_size_mb stack_mb output_kb"
          " cpus network_connections network_mb").split()
REQUIRED = "id name group priority expect control".split()
OPTIONAL = ("language expect-signal expect-exit expect-hit expect-not-hit limits compile-limits"
            " control-expect control-why runs victim collect expect-file differ files root-only"
            " rootless needs-cgroup").split()


def barriers():
    """Names of enum spawn_barrier, and `mount`: the host's tree instead of the curated one."""
    names = re.findall(r"\bBARRIER_([A-Z_]+) = ", PROTOCOL.read_text())
    return {name.lower() for name in names} | {"mount"}


def items(value):
    return [item.strip() for item in value.split(",")]


def header(path):
    """The leading comment lines `key: value` as a dict; the first other line ends it."""
    mark = "// " if path.suffix in (".c", ".cpp", ".js") else "# "
    fields = {}
    for line in path.read_text().splitlines():
        match = re.fullmatch(re.escape(mark) + r"([a-z-]+): (.*\S)", line)
        if not match:
            break
        if match[1] not in REQUIRED + OPTIONAL:
            raise ValueError(f"unknown key {match[1]!r}")
        if match[1] in fields:
            raise ValueError(f"{match[1]} twice")
        fields[match[1]] = match[2]
    return fields


def problems_of(path, known_barriers):
    try:
        case = header(path)
    except ValueError as e:
        yield str(e)
        return
    for key in REQUIRED:
        if key not in case:
            yield f"no {key}"
            return

    def check(key, allowed, several=True):
        for item in items(case[key]) if several else [case[key]]:
            if item not in allowed:
                yield f"{key}: {item!r} is not one of {' '.join(sorted(allowed))}"

    def flag(key):
        if key in case:
            yield from check(key, ["yes"], several=False)

    if case["group"] != path.parent.name:
        yield f"group {case['group']} in the folder {path.parent.name}"
    if not re.fullmatch(r"[OX]-\d\d[a-z]?", case["id"]):
        yield f"id {case['id']!r}"
    yield from check("group", GROUPS, several=False)
    yield from check("priority", ["1", "2"], several=False)
    yield from check("expect", STATUSES)
    statuses = items(case["expect"])
    if "language" in case:
        yield from check("language", LANGUAGES.values(), several=False)
    if "expect-signal" in case and not re.fullmatch(r"SIG[A-Z0-9]+", case["expect-signal"]):
        yield "expect-signal is no name of a signal"
    if "expect-signal" in case and "signaled" not in statuses:
        yield "expect-signal without signaled"
    if "expect-exit" in case and not ("runtime_error" in statuses and
                                      case["expect-exit"].isdigit() and
                                      0 < int(case["expect-exit"]) < 256):
        yield "expect-exit needs runtime_error and a number from 1 to 255"
    for key in ("expect-hit", "expect-not-hit"):
        if key in case:
            yield from check(key, HITS)
    for key in ("limits", "compile-limits"):
        for item in case.get(key, "").split():
            name, _, number = item.partition("=")
            if name not in LIMITS or not re.fullmatch(r"[1-9]\d*", number):
                yield f"{key}: {item!r}"

    if case["control"] == "none":
        if "control-why" not in case:
            yield "control: none without control-why"
        if "control-expect" in case:
            yield "control: none with control-expect"
    else:
        yield from check("control", known_barriers)
        expect = case.get("control-expect", "breach")
        if expect not in ["breach", *STATUSES] + ["hit:" + hit for hit in HITS]:
            yield f"control-expect: {expect!r}"
        if "control-why" in case:
            yield "control-why beside a control"
        if expect == "breach" and "BREACH" not in path.read_text() and \
                "probe.h" not in case.get("files", ""):
            yield "expects BREACH in the control, but never prints it"

    if case.get("runs", "2") != "2":
        yield "runs: only 2 is possible"
    for key in ("victim", "root-only", "needs-cgroup"):
        yield from flag(key)
    if "rootless" in case and not case["rootless"].startswith("skip "):
        yield "rootless: `skip` and a reason"
    if "expect-file" in case:
        collected = items(case.get("collect", ""))
        for item in items(case["expect-file"]):
            name, _, error = item.partition(" ")
            if error not in FILE_ERRORS:
                yield f"expect-file: {item!r}"
            if name not in collected and "*" not in collected:
                yield f"expect-file: {name} is not collected"
    if "differ" in case and "victim" not in case and "runs" not in case:
        yield "differ needs a victim or two runs"
    for name in items(case["files"]) if "files" in case else []:
        if not (CASES / name).is_file():
            yield f"files: no {name}"
    if "probe.h" in path.read_text() and "probe.h" not in case.get("files", ""):
        yield "includes probe.h without files: probe.h"
    if statuses == ["ok"] and "done" not in path.read_text():
        yield "expects ok, but never prints done"


def cases():
    return sorted(p for p in CASES.glob("*/*") if p.suffix in LANGUAGES)


def all_problems():
    known = barriers()
    found = [f"{p.name}: {problem}" for p in cases() for problem in problems_of(p, known)]
    strays = [p.name for p in [*CASES.iterdir(), *CASES.glob("*/*")]
              if p.is_file() and p.suffix not in LANGUAGES and p.name != "probe.h"]
    ids = [header(p)["id"] for p in cases()]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    return (found + [f"{name}: neither a case nor probe.h" for name in strays]
            + [f"the id {i} is there twice" for i in twice])


def test_headers():
    assert not all_problems()


def test_there_are_enough():
    groups = {header(p)["group"] for p in cases()}
    assert groups == set(GROUPS)
    assert sum(header(p)["priority"] == "1" for p in cases()) >= 60


if __name__ == "__main__":
    problems = all_problems()
    for line in problems:
        print(line)
    print(f"{len(cases())} cases, {len(problems)} problems")
    sys.exit(bool(problems))
