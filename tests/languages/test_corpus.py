# SPDX-License-Identifier: Apache-2.0
"""Ordinary programs: the same output and the same end in a box as with the bare toolchain.

A row is a folder or a file of corpus/, its language, the bare commands ({entry} is its path) and
perhaps options of the compiler. Programs print nothing that differs from run to run.
"""
import glob
import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from langlib import NPM, ROOT, explain, missing, need, run_bare, run_box, write_files

CORPUS = ROOT / "tests/languages/corpus"
SANITIZER_ENV = {"ASAN_OPTIONS": "disable_coredump=0:detect_leaks=0",
                 "UBSAN_OPTIONS": "print_stacktrace=1"}


def first(*patterns):
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return found[0] if found else "/nonexistent"


JDK = "/usr/lib/jvm/java-*-openjdk-*/bin/"
RUSTC = ("/root/.rustup/toolchains/stable-*/bin/rustc", "/usr/local/rustup/toolchains/*/bin/rustc",
         "/usr/bin/rustc")

BARE = {
    "bash": [["/bin/bash", "{entry}"]],
    "cpp": [["/usr/bin/g++", "-O2", "-std=gnu++17", "{options}", "-o", "main", "{entry}"], ["./main"]],
    "c": [["/usr/bin/gcc", "-O2", "{options}", "-o", "main", "{entry}", "-lm"], ["./main"]],
    "go": [[first("/usr/local/go/bin/go", "/usr/lib/go-*/bin/go"), "build", "-o", "main", "{entry}"],
           ["./main"]],
    "java": [[first(JDK + "javac"), "-encoding", "UTF-8", "-d", "classes", "{entry}"],
             [first(JDK + "java"), "-Dfile.encoding=UTF-8", "-cp", "classes", "Main"]],
    "javascript": [["/usr/bin/node", "{entry}"]],
    "lua": [["/usr/bin/lua5.4", "{entry}"]],
    "perl": [["/usr/bin/perl", "{entry}"]],
    "php": [["/usr/bin/php", "{entry}"]],
    "python": [["/usr/bin/python3", "{entry}"]],
    "r": [["/usr/bin/Rscript", "--vanilla", "{entry}"]],
    "ruby": [["/usr/bin/ruby", "{entry}"]],
    "rust": [[first(*RUSTC), "--edition=2021", "-Copt-level=2", "-o", "main", "{entry}"], ["./main"]],
    "sql": [["/usr/bin/sqlite3", "-batch", "-bail", "-init", "{entry}", ":memory:", ".exit"]],
    "typescript": [[NPM + "/esbuild", "{entry}", "--bundle", "--platform=node", "--format=esm",
                    "--outfile=main.mjs", "--log-level=warning"], ["/usr/bin/node", "main.mjs"]],
}

# What Python programs import that is not of its standard library: module and Debian package.
MODULES = {"numpy_arrays": ("numpy", "python3-numpy"), "pandas_frames": ("pandas", "python3-pandas"),
           "matplotlib_agg": ("matplotlib", "python3-matplotlib"),
           "requests_import": ("requests", "python3-requests")}


def programs():
    for folder in sorted(CORPUS.iterdir()):
        if folder.name == "typescript":
            yield pytest.param("typescript", folder, "src/main.ts", id="typescript-project")
            continue
        for path in sorted(folder.iterdir()):
            yield pytest.param(folder.name, path, path.name, id="%s-%s" % (folder.name, path.stem))


def go_seed():
    """The newest one; the cache does not mind if it is of another Go."""
    top = pathlib.Path(os.environ.get("HERMES_SEED_DIR", "/var/cache/hermes"))
    found = sorted(top.glob("go-*/ready"), key=lambda p: p.parent.stat().st_mtime)
    return found[-1] if found else None


def go_environment(folder):
    """The compiled standard library that boxes have: without it bare Go takes half a minute."""
    env = {"GOENV": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -trimpath",
           "CGO_ENABLED": "0"}
    seed, cache = go_seed(), pathlib.Path(folder, "go-cache")
    if seed:
        subprocess.run("cp -rl %s %s 2>/dev/null || cp -rf %s %s" % ((seed, cache) * 2), shell=True,
                       check=True)
        (cache / "trim.txt").unlink(missing_ok=True)  # the one file that go changes in place
        env["GOCACHE"] = str(cache)
    return env


def compare(language, files, entry, options=(), env=None):
    """Runs both and returns both; output and end must be the same."""
    need(language)
    with tempfile.TemporaryDirectory(prefix="hermes-corpus-", dir="/var/tmp") as folder:
        write_files(folder, files)
        if language == "go":
            env = go_environment(folder)
        steps = []
        for step in BARE[language]:
            at = step.index("{options}") if "{options}" in step else None
            step = step if at is None else step[:at] + list(options) + step[at + 1:]
            steps.append([word.replace("{entry}", entry) for word in step])
        bare = run_bare(steps, folder, env=env)
    box_options = [word for option in options for word in ("--compile-arg", option)]
    answer = run_box(language, files, entry=entry, options=box_options)
    assert answer["stdout"] == bare.stdout.decode(), explain(answer) + bare.stderr.decode()
    if bare.returncode < 0:
        assert answer["status"] == "signaled", explain(answer)
    else:
        assert answer["exit_code"] == bare.returncode, explain(answer) + bare.stderr.decode()
    assert answer["limits_hit"] == []
    return answer, bare


@pytest.mark.parametrize("language, path, entry", programs())
def test_same_as_bare(language, path, entry):
    if path.stem in MODULES and importlib.util.find_spec(MODULES[path.stem][0]) is None:
        missing("needs the package " + MODULES[path.stem][1])
    found = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    base = path.parent if path.is_file() else path
    files = {str(p.relative_to(base)): p.read_bytes() for p in found}
    answer, _ = compare(language, files, entry)
    assert answer["stdout"]


SANITIZED = {
    "address": ("#include <vector>\n#include <cstdio>\nint main(int argc, char **) {\n"
                "  puts(\"start\"); fflush(stdout);\n  int *a = new int[4];\n"
                "  return a[3 + argc]; }\n", "heap-buffer-overflow"),
    "undefined": ("#include <climits>\n#include <cstdio>\nint main(int argc, char **) {\n"
                  "  int n = INT_MAX; n += argc; printf(\"%d\\n\", n < 0); return 0; }\n",
                  "signed integer overflow"),
}


@pytest.mark.parametrize("name", sorted(SANITIZED))
def test_sanitizers(name):
    code, word = SANITIZED[name]
    answer, bare = compare("cpp", {"main.cpp": code}, "main.cpp", ["-fsanitize=" + name, "-g"],
                           env=SANITIZER_ENV)
    assert word in answer["stderr"] and word in bare.stderr.decode()


CRASHES = {
    "segv": ("int main(void) { return *(volatile int *)0; }\n", "SIGSEGV"),
    "fpe": ("int main(int c, char **v) { return c / (c - 1); }\n", "SIGFPE"),
    "abort": ("#include <stdlib.h>\nint main(void) { abort(); }\n", "SIGABRT"),
    "kill": ("#include <signal.h>\nint main(void) { raise(SIGKILL); }\n", "SIGKILL"),
    "stack": ("int f(int n) { volatile char b[4096]; b[0] = n; return f(n + 1) + b[0]; }\n"
              "int main(void) { return f(0); }\n", "SIGSEGV"),
}


@pytest.mark.parametrize("name", sorted(CRASHES))
def test_crashes(name):
    code, signal = CRASHES[name]
    answer, _ = compare("c", {"main.c": code}, "main.c", ["-w"])
    assert answer["signal"] == signal


def test_cargo_project():
    """No crates: what cargo makes of a package with a module and a test."""
    need("rust")
    if not shutil.which("cargo") and first(*RUSTC) == "/usr/bin/rustc":
        missing("needs cargo")
    files = {"Cargo.toml": '[package]\nname = "demo-app"\nversion = "0.1.0"\nedition = "2021"\n',
             "src/main.rs": "mod lib2;\nfn main() { println!(\"{}\", lib2::f()); }\n",
             "src/lib2.rs": "pub fn f() -> u32 { 42 }\n"}
    answer = run_box("rust", files, entry="src/main.rs")
    assert answer["stdout"] == "42\n", explain(answer)


def test_go_module():
    need("go")
    files = {"go.mod": "module example.org/demo\n\ngo 1.18\n",
             "main.go": "package main\n\nimport (\n\t\"example.org/demo/inner\"\n\t\"fmt\"\n)\n\n"
                        "func main() { fmt.Println(inner.F()) }\n",
             "inner/inner.go": "package inner\n\nfunc F() int { return 42 }\n"}
    answer = run_box("go", files, entry="main.go")
    assert answer["stdout"] == "42\n", explain(answer)


def test_java_class_of_any_name():
    need("java")
    answer = run_box("java", {"code.java": "public class Solution { public static void main(String[] a)"
                                           " { System.out.println(42); } }\n"})
    assert answer["stdout"] == "42\n", explain(answer)


def test_corpus_is_found():
    assert len(list(programs())) >= 20
    assert all(pathlib.Path(p.values[1]).exists() for p in programs())
