# SPDX-License-Identifier: Apache-2.0
"""The version that is shown for TypeScript: what the language had by then really compiles and runs."""
from langlib import explain, need, run_box, runtimes

# What each version of the language added to its syntax, up to the one that is shown.
ADDED = [
    ("3.8", 'import type { Stats } from "node:fs"; let stats: Stats | null = null;'),
    ("4.0", "type Pair = [first: string, rest?: number]; let pair: Pair = ['a']; let unset = null; unset ??= 1;"),
    ("4.1", "type Getter<T extends string> = `get${Capitalize<T>}`; let getter: Getter<'x'> = 'getX';"),
    ("4.2", "type Last = [...strings: string[], last: number]; abstract class A {} let make: abstract new () => A = A;"),
    ("4.3", "class B extends (class { f() { return 1; } }) { override f() { return 2; } }"),
    ("4.4", "class C { static n: number; static { C.n = 4; } }"),
    ("4.5", 'import { type Dirent, existsSync } from "node:fs"; existsSync("/"); let entry: Dirent | null = null;'),
    ("4.7", "interface Box<in out T> { value: T } const make7 = Array<string>; type First<T> = T extends [infer H extends string] ? H : never;"),
    ("4.9", "const palette = { red: [1] } satisfies Record<string, number[]>; class D { accessor x = 1; }"),
    ("5.0", "function twice(f: any, context: any) { return function (this: any, n: number) { return 2 * f.call(this, n); }; }\n"
            "class E { @twice same<const T>(t: T) { return t; } }\nif (new E().same(4) as number !== 8) throw new Error('decorator');\n"
            'enum F { A = 1, B = A * 2, C = "x".length } export type * from "node:fs";'),
    ("5.1", "class G { get v(): string { return ''; } set v(n: string | number) {} }"),
    ("5.2", "let disposed = 0; class H { [Symbol.dispose]() { disposed++; } }\n{ using h = new H(); }\n"
            "if (disposed !== 1) throw new Error('using');"),
    ("5.3", 'import data from "./data.json" with { type: "json" }; if (data.a !== 7) throw new Error("attributes");'),
    ("5.7", 'import { seven } from "./seven.ts"; if (seven !== 7) throw new Error("name with .ts");'),
]
BESIDE = {"data.json": '{"a": 7}', "seven.ts": "export const seven: number = 7;"}


def version(text):
    return tuple(map(int, text.split(".")))


def test_the_version_is_the_language_s():
    need("typescript")
    shown = runtimes()["typescript"]
    assert shown["compiler"].startswith("esbuild ") and version(ADDED[-1][0]) <= version(shown["version"]) < (5, 9)
    assert runtimes()["c"]["compiler"] is None
    for added, code in ADDED:
        answer = run_box("typescript", {"main.ts": code + "\nconsole.log('done');\n", **BESIDE})
        assert (answer["status"], answer["stdout"]) == ("ok", "done\n"), (added, explain(answer))


def test_the_next_version_is_not_there_yet():
    """The control: what TypeScript 5.9 added is refused."""
    need("typescript")
    answer = run_box("typescript", {"main.ts": 'import defer * as path from "node:path"; path.join("a");'})
    assert answer["status"] == "compile_error" and "Deferred imports" in answer["compile"]["stderr"], explain(answer)
