# SPDX-License-Identifier: Apache-2.0
"""compile.diagnostics: the place of an error, as each real compiler tells it."""
import pytest

from langlib import explain, need, run_box

# language, file, code, line, column, part of the text
ERRORS = [
    ("c", "main.c", "int main(void)\n{\n    return x;\n}\n", 3, 12, "undeclared"),
    ("cpp", "main.cpp", "int main()\n{\n    return x;\n}\n", 3, 12, "not declared"),
    ("go", "main.go", "package main\n\nfunc main() {\n\tx()\n}\n", 4, 2, "undefined: x"),
    ("rust", "main.rs", "fn main() {\n    x();\n}\n", 2, 5, "cannot find function `x`"),
    ("java", "Main.java", "class Main {\n    int x = y;\n}\n", 2, 13, "cannot find symbol"),
    ("typescript", "main.ts", "const x: number = ;\n", 1, 19, 'Unexpected ";"'),
]


@pytest.mark.parametrize("language, name, code, line, column, text", ERRORS, ids=[row[0] for row in ERRORS])
def test_the_place_of_an_error(language, name, code, line, column, text):
    need(language)
    answer = run_box(language, {name: code})
    assert answer["status"] == "compile_error", explain(answer)
    first = answer["compile"]["diagnostics"][0]
    assert (first["file"], first["line"], first["column"], first["severity"]) == (name, line, column, "error")
    assert text in first["text"]


def test_an_undefined_function_names_its_file():
    """The linker knows the file but no line."""
    need("c")
    answer = run_box("c", {"main.c": "int f(void);\nint main(void) { return f(); }\n"})
    assert answer["compile"]["diagnostics"] == [
        {"file": "main.c", "line": None, "column": None, "severity": "error", "text": "undefined reference to `f'"}]


def test_a_program_without_faults_has_none():
    need("c")
    answer = run_box("c", {"main.c": "int main(void) { return 0; }\n"})
    assert answer["status"] == "ok" and answer["compile"]["diagnostics"] == [], explain(answer)
