# SPDX-License-Identifier: Apache-2.0
"""Every language, one by one: what each must be able to do."""
import functools
import pathlib
import subprocess
import tempfile

import pytest

from langlib import explain, hermes, need, run_box, runtimes
from table import LANGUAGES, TEXT

ARGS = ["one", "two words", "ü;$(id)", "--flag"]
STDIN = "first line\nzweite Zeile ß\n".encode()


def each(*names):
    return pytest.mark.parametrize("language", sorted(names or LANGUAGES))


@functools.lru_cache(maxsize=None)
def io_answer(language):
    row = LANGUAGES[language]
    return run_box(language, {row["main"]: row["io"]}, args=ARGS, env={"GREETING": "grüße, A=B"},
                   stdin=STDIN)


def io_line(language, aspect):
    need(language)
    if aspect in LANGUAGES[language].get("without", ()):
        pytest.skip("%s has none of this" % language)
    answer = io_answer(language)
    assert answer["status"] == "ok", explain(answer)
    lines = [l for l in answer["stdout"].splitlines() if l.startswith(aspect + ":")]
    assert len(lines) == 1, explain(answer)
    return lines[0][len(aspect) + 1:]


def test_table_is_complete():
    """A runtime that ships is in the table; `native` has a test of its own."""
    assert set(LANGUAGES) | {"native"} == set(runtimes())


@each()
def test_hello(language):
    need(language)
    row = LANGUAGES[language]
    answer = run_box(language, {row["main"]: row["hello"]})
    assert (answer["status"], answer["exit_code"]) == ("ok", 0), explain(answer)
    assert answer["stdout"] == "hello\n"
    assert answer["stderr"] == ""
    assert (answer["compile"] is not None) == runtimes()[language]["compiled"]
    assert answer["isolation"]["level"] in ("full", "strong")


@each()
def test_stdin(language):
    assert io_line(language, "stdin") == "first line,zweite Zeile ß,"


@each()
def test_arguments(language):
    assert io_line(language, "args") == "|".join(ARGS)


@each()
def test_environment(language):
    assert io_line(language, "env") == "grüße, A=B"


@each()
def test_non_ascii_text(language):
    assert io_line(language, "text") == TEXT


@each()
def test_files_and_entry_in_a_directory(language):
    need(language)
    files = dict(LANGUAGES[language]["files"], **{"data.txt": "data ß\n"})
    answer = run_box(language, files)
    assert answer["status"] == "ok", explain(answer)
    assert [l.rstrip() for l in answer["stdout"].splitlines()] == ["several 42", "data ß"]


@each()
def test_run_time_error(language):
    need(language)
    row = LANGUAGES[language]
    code, status, end, word = row["error"]
    answer = run_box(language, {row["main"]: code})
    assert answer["status"] == status, explain(answer)
    assert (answer["signal"] if status == "signaled" else answer["exit_code"]) == end
    assert word in answer["stderr"]
    assert answer["limits_hit"] == []


@each(*[name for name, row in LANGUAGES.items() if "broken" in row])
def test_compile_error(language):
    need(language)
    row = LANGUAGES[language]
    code, word = row["broken"]
    answer = run_box(language, {row["main"]: code})
    assert answer["status"] == "compile_error", explain(answer)
    assert answer["exit_code"] is None
    assert answer["compile"]["status"] == "runtime_error"
    assert answer["compile"]["exit_code"] not in (0, None)
    assert word in answer["compile"]["stderr"] + answer["compile"]["stdout"]
    assert not answer["compile"]["cached"]
    # A failure is compiled anew each time.
    assert not run_box(language, {row["main"]: code})["compile"]["cached"]


@each(*[name for name, row in LANGUAGES.items() if "broken" in row])
def test_compiled_once(language):
    """The second time comes from the cache; another byte, another result."""
    need(language)
    row = LANGUAGES[language]
    first = run_box(language, {row["main"]: row["hello"] + "\n\n"}, options=["--no-cache"])
    assert first["compile"]["cached"] is False
    first = run_box(language, {row["main"]: row["hello"] + "\n\n"})
    second = run_box(language, {row["main"]: row["hello"] + "\n\n"})
    assert (first["compile"]["cached"], second["compile"]["cached"]) == (False, True)
    assert second["stdout"] == first["stdout"] == "hello\n"
    again = [run_box(language, {row["main"]: row["hello"] + "\n\n"})["compile"] for _ in range(3)]
    assert all(compiled["cached"] for compiled in again)
    assert min(c["usage"]["wall_ms"] for c in again) <= 0.03 * first["compile"]["usage"]["wall_ms"]
    other = run_box(language, {row["main"]: row["hello"].replace("hello", "other")})
    assert other["stdout"] == "other\n" and not other["compile"]["cached"]


def test_warnings_come_from_the_cache_too():
    need("c")
    code = "#include <stdio.h>\nint main(void) { int unused; puts(\"x\"); return 0; }\n"
    options = ["--compile-arg", "-Wall"]
    first = run_box("c", {"main.c": code}, options=options)
    second = run_box("c", {"main.c": code}, options=options)
    assert "unused" in first["compile"]["stderr"]
    assert second["compile"]["cached"]
    assert second["compile"]["stderr"] == first["compile"]["stderr"]
    # Other options, another result.
    assert not run_box("c", {"main.c": code})["compile"]["cached"]


def test_native():
    need("c")
    with tempfile.TemporaryDirectory(prefix="hermes-lang-", dir="/var/tmp") as folder:
        source, program = pathlib.Path(folder, "p.c"), pathlib.Path(folder, "program")
        source.write_text(LANGUAGES["c"]["io"])
        subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
        answer = hermes("-e", "GREETING=x", program, *ARGS, stdin=STDIN)
    assert answer["status"] == "ok", explain(answer)
    assert answer["stdout"].splitlines()[0] == "args:" + "|".join(ARGS)
    assert answer["stdout"].splitlines()[2] == "stdin:first line,zweite Zeile ß,"
