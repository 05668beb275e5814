# SPDX-License-Identifier: Apache-2.0
"""The routes of the Hermes REST engine: its facts one by one, what we do otherwise on purpose, and
the same kinds of input that a stranger would try (docs/compat-rest.md)."""
import json
import random
import re
import socket
import subprocess
import threading

import pytest

from apilib import MONITOR, ROOT, SLOW, Server, borrow_dir, open_descriptors, return_dir, wait_until
from serving import serve

ONE = ["/execute", "/execute/"]
MANY = ["/v2/execute", "/v2/execute/"]
ONE_KEYS = ["code", "output", "std_log", "time_ms"]
MANY_KEYS = ["stdout", "stderr", "exit_code"] + ONE_KEYS
TEXT = "text/plain; charset=utf-8"
ORIGIN = "https://front.example"


def answered(reply, keys=ONE_KEYS):
    """The engine's answer, its members in its order and of its types."""
    assert reply.status == 200, reply
    assert reply.headers["Content-Type"] == "application/json"
    body = reply.json()
    assert list(body) == keys, body
    assert type(body["code"]) is int and type(body["time_ms"]) is int and body["time_ms"] >= 0
    assert type(body["output"]) is str and type(body["std_log"]) is str
    if keys is MANY_KEYS:
        assert (body["stdout"], body["stderr"], body["exit_code"]) == (
            body["output"], body["std_log"], body["code"])
    return body


def execute(server, language, code, path="/execute/", key=None, **fields):
    return answered(server("POST", path, dict(language=language, code=code, **fields), key=key))


def execute_files(server, language, files, entry, path="/v2/execute/", key=None, **fields):
    files = [{"name": n, "content": c} for n, c in files]
    return answered(server("POST", path, dict(language=language, files=files, entry_file=entry,
                                              **fields), key=key), MANY_KEYS)


def refused(reply, status):
    """A refusal of the engine: plain text that says something."""
    assert reply.status == status, reply
    assert reply.headers["Content-Type"] == TEXT and reply.body.strip(), reply
    return reply.body.decode()


@pytest.fixture(scope="module")
def keyed():
    """With a key, origins and DEBUG, all by the names that the engine's users have."""
    yield from serve(env={"API_TOKEN": "tok", "DEBUG": "true",
                          "ALLOWED_ORIGIN": "https://other.example, " + ORIGIN})


# ---- what is the same


def test_the_root_says_up(server):
    reply = server("GET", "/")
    assert (reply.status, reply.body) == (200, b"UP!")
    assert reply.headers["Content-Type"] == TEXT
    reply = server("HEAD", "/")
    assert (reply.status, reply.body) == (200, b"")


@pytest.mark.parametrize("path", ONE)
def test_one_file(server, path):
    body = execute(server, "python", "print(1+1)", path)
    body.pop("time_ms")
    assert body == {"code": 0, "output": "2\n", "std_log": ""}


@pytest.mark.parametrize("path", MANY)
def test_several_files(server, path):
    body = execute_files(server, "python", [
        ("main.py", "import test\nprint('Running main.py')"),
        ("test.py", "print('Imported test.py')")], "main.py", path)
    assert body["stdout"] == "Imported test.py\nRunning main.py\n"  # nothing is trimmed
    assert (body["stderr"], body["exit_code"]) == ("", 0)


HELLO = {
    "python": "print('hello')",
    "javascript": "console.log('hello')",
    "java": "public class Greeter { public static void main(String[] a) { "
            "System.out.println(\"hello\"); } }",
    "cpp": "#include <bits/stdc++.h>\nint main() { std::cout << \"hello\" << std::endl; }",
    "c": "#include <stdio.h>\nint main(void) { puts(\"hello\"); }",
    "bash": "echo hello",
    "py": "print('hello')",
}


@pytest.mark.parametrize("language", HELLO)
def test_languages(server, language):
    body = execute(server, language, HELLO[language])
    assert (body["code"], body["output"], body["std_log"]) == (0, "hello\n", ""), body


def test_stderr_is_the_log_and_unknown_fields_are_ignored(server):
    code = "import sys\nprint('o')\nprint('e', file=sys.stderr)"
    body = execute(server, "python", code, hat="red", stdin="x", files=5)
    assert (body["code"], body["output"], body["std_log"]) == (0, "o\n", "e\n")
    body = answered(server("POST", "/v2/execute", {
        "language": "python", "entry_file": "a.py", "hat": 1,
        "files": [{"name": "a.py", "content": code, "mode": 7, "executable": "x"}]}), MANY_KEYS)
    assert (body["stdout"], body["stderr"]) == ("o\n", "e\n")


def test_stdin_is_empty(server):
    assert execute(server, "python", "import sys; print(repr(sys.stdin.read()))")["output"] == "''\n"
    body = execute(server, "python", "input()")
    assert body["code"] == 1 and "EOFError" in body["std_log"]


def test_output_is_utf8_with_replacements(server):
    body = execute(server, "python", "import sys\nsys.stdout.buffer.write(b'a\\xff\\x00\"\\\\ \\xc3')\n"
                   "sys.stderr.buffer.write(b'\\xe2\\x82 e')")
    assert body["output"] == 'a\ufffd\x00"\\ \ufffd' and body["std_log"] == "\ufffd e"
    text = "žluťoučký 日本 😀 \u2028"
    assert execute(server, "python", "print(%r, end='')" % text)["output"] == text


@pytest.mark.parametrize("path", ONE + MANY)
def test_unknown_languages(server, path):
    for name in ("brainfuck", "Python", "", " python", "../c", "python\0", "日本", "a\nb"):
        body = server("POST", path, {"language": name, "code": "1", "entry_file": "a",
                                     "files": [{"name": "a", "content": ""}]})
        shown = name.split("\0")[0]
        if path in ONE:
            assert answered(body) == {
                "code": 1, "output": "", "std_log": "Error: Unsupported language: " + shown,
                "time_ms": 0}
        else:
            log = "Unsupported language: " + shown
            assert answered(body, MANY_KEYS) == {
                "stdout": "Unsupported runtime", "stderr": log, "exit_code": 1, "code": 1,
                "output": "Unsupported runtime", "std_log": log, "time_ms": 0}
    body = answered(server("POST", path, {
        "language": "é" * 100000, "code": "", "entry_file": "a",
        "files": [{"name": "a", "content": ""}]}), ONE_KEYS if path in ONE else MANY_KEYS)
    assert len(body["std_log"]) < 200


def test_languages_that_the_operator_adds(make_server, tmp_path):
    tmp_path.chmod(0o755)
    snake = json.loads((ROOT / "runtimes/python/runtime.json").read_text())
    snake.pop("sdk", None)  # lies beside the original
    snake.update(name="snake", aliases=[], extensions=[".snake"], main_file="main.snake")
    ghost = dict(snake, name="ghost", extensions=[".ghost"], package="ghost-tools",
                 toolchain=[{"home": "/nonexistent", "program": "bin/ghost"}])
    for runtime in (snake, ghost):
        (tmp_path / runtime["name"]).mkdir()
        (tmp_path / runtime["name"] / "runtime.json").write_text(json.dumps(runtime))
    server = make_server(env={"RUNTIME_DIR": str(tmp_path)})
    assert execute(server, "snake", "print(5)")["output"] == "5\n"
    body = execute(server, "ghost", "print(5)")
    assert body["std_log"].startswith("Error: Unsupported language: ghost (") and body["code"] == 1
    assert "ghost-tools" in body["std_log"]
    body = execute_files(server, "ghost", [("a", "")], "a")
    assert body["stderr"].startswith("Unsupported language: ghost (")


@pytest.mark.parametrize("language,code", [
    ("cpp", "int main() { return }"), ("cpp", "#include \"/etc/passwd\"\nint main() {}"),
    ("cpp", ""), ("c", "#error stop"), ("java", "public class A { void"), ("java", ""),
    ("java", "// nothing but package x;")])
def test_compile_failures(server, language, code):
    body = execute(server, language, code)
    assert (body["code"], body["output"], body["time_ms"]) == (1, "", 0), body
    assert body["std_log"].startswith("Compilation Error:\n")
    assert len(body["std_log"]) > len("Compilation Error:\n") + 5
    main = {"cpp": "main.cpp", "c": "main.c", "java": "Main.java"}[language]
    again = execute_files(server, language, [(main, code)], main)
    assert again["code"] == 1 and again["stderr"].startswith("Compilation Error:\n")


def test_warnings_of_a_compiler_are_not_the_program_s_log(server):
    body = execute(server, "cpp", "#warning hm\nint main() { return 4; }")
    assert (body["code"], body["std_log"]) == (4, "")


# ---- how programs end


@pytest.mark.parametrize("code,status", [
    ("import sys; sys.exit(3)", 3), ("import sys; sys.exit(255)", 255), ("1/0", 1),
    ("raise SystemExit('e')", 1), ("import os; os.abort()", 134),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
    ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ("import os; os._exit(124)", 124), ("", 0)])
def test_exit_codes(server, code, status):
    body = execute(server, "python", "print('o', flush=True)\n" + code)
    assert (body["code"], body["output"]) == (status, "o\n")
    assert execute_files(server, "python", [("a.py", code)], "a.py")["exit_code"] == status


def test_signals_of_compiled_programs(server):
    assert execute(server, "cpp", "int main() { *(volatile int *)0 = 1; }")["code"] == 139
    assert execute(server, "cpp", "#include <cstdlib>\nint main() { abort(); }")["code"] == 134


@pytest.mark.parametrize("code", ["import time; time.sleep(60)", "while True: pass",
                                  "import os\nos.fork()\nwhile True: pass",
                                  "import signal\nfor s in range(1, 32):\n try: signal.signal(s, 1)\n"
                                  " except OSError: pass\nwhile True: pass"])
def test_timeouts(server, code):
    body = execute(server, "python", "print('before', flush=True)\n" + code)
    assert (body["code"], body["output"], body["std_log"]) == (124, "before\n", "")
    assert body["time_ms"] >= 900  # two CPU-bound processes use up 2 s of CPU in one


@pytest.mark.parametrize("language, code", [
    ("javascript", "for (;;);"), ("cpp", "int main() { for (volatile int i = 0;; i++); }")])
def test_timeouts_of_other_languages(server, language, code):
    assert execute(server, language, code)["code"] == 124


def test_out_of_memory(server):
    longest = {"time_limit": 20, "cpu_time_limit": 20}  # on a busy machine memory does not fill up within the default 5 s
    body = execute(server, "python", "print('o', flush=True)\nx = b'x' * (2 << 30)\nprint(len(x))", limits=longest)
    assert (body["code"], body["output"]) == (137, "o\n")
    many = ("import os, time\nfor i in range(8):\n if os.fork() == 0:\n  x = b'x' * (200 << 20)\n"
            "  time.sleep(30)\nos.wait()")
    assert execute(server, "python", many, limits=longest)["code"] == 137  # of all processes together


def test_a_flood_of_output_is_cut_off(server):
    body = execute(server, "python", "import os\nwhile True: os.write(1, b'y\\n' * 30000)")
    assert body["code"] == 153 and len(body["output"]) == 1 << 20
    body = execute(server, "python", "import os\nwhile True: os.write(2, b'y\\n' * 30000)")
    assert body["code"] == 153 and len(body["std_log"]) == 1 << 20


def test_a_fork_bomb_ends_and_leaves_nothing(server):
    body = execute(server, "bash", ":(){ :|:& };:\nwait", limits={"time_limit": 2})
    assert body["code"] != 125
    assert execute(server, "python", "print(1)")["output"] == "1\n"


# ---- bad requests


WRONG = [  # body, status of /execute, what its text names
    (b"", 400, ""), (b"{", 400, ""), (b"nonsense", 400, ""), (b'{"language":"python","code":}', 400, ""),
    (b'{"language":"python","code":"\xff"}', 400, ""), (b"\xef\xbb\xbf{}", 400, ""),
    (b'{"language":"python","language":"c","code":""}', 400, ""), (b"{} {}", 400, ""),
    (b'{"language":"python","code":"\\ud800"}', 400, ""), (b"\x00", 400, ""),
    (b"[" * 100000, 400, "deep"), (b'{"a":' * 70 + b"1" + b"}" * 70, 400, "deep"),
    (b'{"language":"python","code":"","x":1e999}', 400, ""),
    (b"null", 422, ""), (b"[]", 422, ""), (b'"x"', 422, ""), (b"5", 422, ""), (b"{}", 422, "language"),
    (b'{"language":"python"}', 422, "code"), (b'{"code":"1"}', 422, "language"),
    (b'{"language":5,"code":"1"}', 422, "language"), (b'{"language":null,"code":"1"}', 422, "language"),
    (b'{"language":"python","code":null}', 422, "code"), (b'{"language":"python","code":["1"]}', 422, "code"),
    (b'{"language":["python"],"code":"1"}', 422, "language"),
    (b'{"language":"nope"}', 422, "code"),
    (b'{"language":"python","code":"1","limits":5}', 422, "limits"),
    (b'{"language":"python","code":"1","limits":[]}', 422, "limits"),
    (b'{"language":"python","code":"1","limits":{"time_limit":"2"}}', 422, "time_limit"),
    (b'{"language":"python","code":"1","limits":{"time_limit":1.5}}', 422, "time_limit"),
    (b'{"language":"python","code":"1","limits":{"memory_limit":true}}', 422, "memory_limit"),
]


@pytest.mark.parametrize("body,status,word", WRONG)
def test_bodies_that_are_wrong(server, body, status, word):
    json_type = {"Content-Type": "application/json"}
    for path in ONE:
        assert word in refused(server("POST", path, body, json_type), status)
    for path in MANY:  # there everything is 400
        refused(server("POST", path, body, json_type), 400)


FILE = {"name": "a.py", "content": "print(1)"}


def test_damaged_bodies_never_hurt(server):
    """Bytes changed, left out and doubled at random, the same ones every time."""
    chance = random.Random(7)
    good = {"/execute": {"language": "python", "code": "1", "limits": {"time_limit": 1}},
            "/v2/execute": {"language": "python", "files": [FILE], "entry_file": "a.py",
                            "limits": {"memory_limit": 100}}}
    conn = server.connect()
    for _ in range(200):
        for path, body in good.items():
            data = bytearray(json.dumps(body).encode())
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                data[at:at + chance.randint(0, 3)] = bytes(
                    chance.choice(b'{}[]",:\\\0\xff1-.ne/') for _ in range(chance.randint(0, 3)))
            reply = server("POST", path, bytes(data), {"Content-Type": "application/json"}, conn=conn)
            assert reply.status in (200, 400, 422), (data, reply)
    conn.close()


@pytest.mark.parametrize("fields,word", [
    ({"files": None}, "files"), ({"files": {}}, "files"), ({"files": "a"}, "files"),
    ({"files": [5]}, "files[0]"), ({"files": [FILE, None]}, "files[1]"),
    ({"files": [{"name": "a.py"}]}, "files[0].content"), ({"files": [{"content": ""}]}, "files[0].name"),
    ({"files": [{"name": 5, "content": ""}]}, "files[0].name"),
    ({"files": [{"name": "a.py", "content": 5}]}, "files[0].content"),
    ({"files": [{"name": "a.py", "content": None}]}, "files[0].content"),
    ({"entry_file": None}, "entry_file"), ({"entry_file": 5}, "entry_file"),
    ({"language": None}, "language"), ({"limits": {"stack_limit": "9"}}, "stack_limit"),
    ({"limits": "x"}, "limits")])
def test_files_of_wrong_types(server, fields, word):
    body = dict({"language": "python", "files": [FILE], "entry_file": "a.py"}, **fields)
    assert word in refused(server("POST", "/v2/execute/", body), 400)
    missing = {k: v for k, v in body.items() if k not in fields or k == "limits"}
    if len(missing) < len(body):
        assert word.split("[")[0] in refused(server("POST", "/v2/execute/", missing), 400)


def test_no_files(server):
    for entry in ("main.py", "", "/etc/passwd"):
        text = refused(server("POST", "/v2/execute/", {
            "language": "python", "files": [], "entry_file": entry}), 400)
        assert text.startswith("Preparation Error:")


@pytest.mark.parametrize("name", [
    "../evil.py", "..", "a/../b.py", "a/..", "/etc/cron.d/x", "/", "//a", "..\\x", "x..y.py",
    "a/b/../../../c", "./../x"])
def test_names_that_lead_out_are_a_security_violation(server, name):
    # The entry is missing too: the name is looked at first.
    for files in ([{"name": name, "content": ""}], [FILE, {"name": name, "content": ""}]):
        text = refused(server("POST", "/v2/execute/", {
            "language": "python", "files": files, "entry_file": "missing.py"}), 400)
        assert text.startswith("Security Violation:") and name in text


@pytest.mark.parametrize("name", [
    "", ".", "a//b", "./a", "a/", "a/./b", "a\0b", "a\nb", "a\x7fb", "a\\b", "x" * 256, "d/" * 40 + "x",
    "y/" * 2500 + "x"])
def test_other_bad_names(server, name):
    text = refused(server("POST", "/v2/execute/", {
        "language": "python", "files": [FILE, {"name": name, "content": ""}],
        "entry_file": "a.py"}), 400)
    assert text.startswith("Preparation Error:")


@pytest.mark.parametrize("entry", ["main.py", "", "/box/a.py", "./a.py", "A.py", "a.py\0", "../a.py",
                                   "sub/a.py", "a.py/", "日本"])
def test_an_entry_that_is_not_there(server, entry):
    text = refused(server("POST", "/v2/execute/", {
        "language": "python", "files": [FILE], "entry_file": entry}), 400)
    assert text.startswith("Preparation Error:") and entry.split("\0")[0] in text


@pytest.mark.parametrize("names", [["a.py", "a.py"], ["a.py", "d/x", "d/x"], ["a.py", "a.py/b"],
                                   ["d/a", "a.py", "d"]])
def test_names_that_collide(server, names):
    text = refused(server("POST", "/v2/execute/", {
        "language": "python", "entry_file": "a.py",
        "files": [{"name": n, "content": ""} for n in names]}), 400)
    assert text.startswith("Preparation Error:")


def test_many_files(server):
    files = [("f%d.txt" % i, str(i)) for i in range(1000)]
    body = execute_files(server, "python", files + [("a.py", "print(open('f999.txt').read())")], "a.py")
    assert body["output"] == "999\n"
    text = refused(server("POST", "/v2/execute/", {
        "language": "python", "entry_file": "f1", "files": [
            {"name": "f%d" % i, "content": ""} for i in range(20000)]}), 400)
    assert "files" in text


@pytest.mark.parametrize("kind,status", [
    (None, 415), ("", 415), ("text/plain", 415), ("application/x-www-form-urlencoded", 415),
    ("application/jsonp", 415), ("multipart/form-data; boundary=x", 415),
    ("application/json; charset=utf-8", 200), ("APPLICATION/JSON", 200)])
def test_content_types(server, kind, status):
    one = json.dumps({"language": "python", "code": "1"}).encode()
    many = json.dumps({"language": "python", "files": [FILE], "entry_file": "a.py"}).encode()
    for path, body in [(p, one) for p in ONE] + [(p, many) for p in MANY]:
        got = server("POST", path, body, {} if kind is None else {"Content-Type": kind})
        if status == 200:
            assert got.status == 200, got
        else:
            assert "application/json" in refused(got, 415 if path in ONE else 400)


@pytest.mark.parametrize("path", ONE + MANY)
def test_a_body_over_the_cap(server, path):
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path.encode()
    got = server.raw(head + b"Content-Length: 999999999\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 413") and b"Content-Type: text/plain" in got, got
    body = b'{"language":"python","code":"' + b"#" * (17 << 20) + b'"}'
    try:
        got = server("POST", path, body, {"Content-Type": "application/json"})
        refused(got, 413)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server did not wait for the rest of it


def test_a_large_program(server):
    body = execute(server, "python", "x = '%s'\nprint(len(x))" % ("a" * (8 << 20)))
    assert body["output"] == "%d\n" % (8 << 20)


@pytest.mark.parametrize("path", ONE + MANY)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
def test_other_methods(server, path, method):
    reply = server(method, path)
    assert reply.status == 405 and reply.headers["Allow"] == "POST"


@pytest.mark.parametrize("path", ["/execute//", "/execute/x", "/EXECUTE", "/v2", "/v2/", "/v2/execute/x",
                                  "/v1/execute", "/v3/execute/", "/execute/../execute", "/exec", "/x"])
def test_unknown_paths(server, path):
    assert server("POST", path, {"language": "python", "code": "1"}).status == 404


def test_a_query_is_ignored(server):
    assert execute(server, "python", "print(1)", "/execute/?language=c")["output"] == "1\n"


def test_openapi_names_the_routes(server):
    paths = server("GET", "/openapi.json").json()["paths"]
    for path in ONE + MANY:
        assert set(paths[path]) == {"post"} and paths[path]["post"]["requestBody"]["required"]
    assert paths["/execute"]["post"]["responses"]["422"] == {"$ref": "#/components/responses/Text422"}


# ---- several files in several languages


@pytest.mark.parametrize("language,files,entry,output", [
    ("python", [("app/main.py", "import util\nprint(util.x)"), ("app/util.py", "x = 5")],
     "app/main.py", "5\n"),
    ("python", [("pkg/__init__.py", ""), ("pkg/m.py", "x = 6"), ("run.py", "from pkg.m import x\nprint(x)")],
     "run.py", "6\n"),
    ("python", [("data/in.txt", "seven\n"), ("run.py", "print(open('data/in.txt').read(), end='')")],
     "run.py", "seven\n"),
    ("javascript", [("lib/m.js", "exports.x = 8;"), ("src/i.js", "console.log(require('../lib/m').x)")],
     "src/i.js", "8\n"),
    ("javascript", [("m.mjs", "export const x = 9;"), ("i.mjs", "import {x} from './m.mjs';\nconsole.log(x)")],
     "i.mjs", "9\n"),
    ("cpp", [("main.cpp", "#include \"u.hpp\"\n#include <cstdio>\nint main() { printf(\"%d\\n\", f()); }"),
             ("u.hpp", "#pragma once\nint f();"), ("u.cc", "#include \"u.hpp\"\nint f() { return 10; }")],
     "main.cpp", "10\n"),
    ("cpp", [("inc/u.h", "#define X 11\n"), ("src/a.cpp", "#include \"../inc/u.h\"\n#include <iostream>\n"
                                             "int\nmain(int c, char **v)\n{ std::cout << X << '\\n'; }")],
     "src/a.cpp", "11\n"),
    ("c", [("a.c", "int f(void);\n#include <stdio.h>\nint main(void) { printf(\"%d\\n\", f()); }"),
           ("b.c", "int f(void) { return 12; }")], "a.c", "12\n"),
    ("java", [("com/x/App.java", "package com.x;\nimport com.x.u.*;\npublic class App { "
               "public static void main(String[] a) { System.out.println(Util.x()); } }"),
              ("com/x/u/Util.java", "package com.x.u;\n/* a package */\npublic class Util { "
               "public static int x() { return 13; } }")], "com/x/App.java", "13\n"),
    ("java", [("entry.java", "import java.util.*;\npublic class Other { "
               "public static void main(String[] a) { System.out.println(Help.x(List.of(14))); } }"),
              ("Help.java", "class Help { static Object x(java.util.List<Integer> l) { return l.get(0); } }")],
     "entry.java", "14\n"),
    ("bash", [("lib.sh", "f() { echo 15; }"), ("run.sh", ". ./lib.sh; f")], "run.sh", "15\n"),
])
def test_projects(server, language, files, entry, output):
    body = execute_files(server, language, files, entry)
    assert (body["code"], body["stdout"], body["stderr"]) == (0, output, ""), body


def available(server, language):
    runtimes = {r["name"]: r for r in server("GET", "/v1/runtimes").json()["runtimes"]}
    return runtimes[language]["available"]


@pytest.mark.slow
def test_projects_with_a_build_file(server):
    if available(server, "rust"):
        body = execute_files(server, "rust", [
            ("Cargo.toml", "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            ("src/main.rs", "mod u;\nfn main() { println!(\"{}\", u::x()); }"),
            ("src/u.rs", "pub fn x() -> i32 { 16 }")], "src/main.rs")
        assert (body["code"], body["stdout"]) == (0, "16\n"), body
    if available(server, "go"):
        body = execute_files(server, "go", [
            ("go.mod", "module demo\n\ngo 1.18\n"), ("u/u.go", "package u\n\nfunc X() int { return 17 }\n"),
            ("main.go", "package main\n\nimport \"demo/u\"\n\nfunc main() { println(u.X()) }\n")], "main.go")
        assert (body["code"], body["stderr"]) == (0, "17\n"), body


def test_files_that_cannot_become_a_program(server):
    for files, entry in (([("a.hpp", "int x;")], "a.hpp"), ([("readme.txt", "hi")], "readme.txt")):
        body = execute_files(server, "cpp", files, entry)
        assert (body["code"], body["output"], body["time_ms"]) == (1, "Program preparation failed", 0)
        assert ".cpp" in body["std_log"]


# ---- limits

SHOW = ("import resource as r\nfor n in ('NOFILE', 'FSIZE', 'STACK'):\n"
        "  print(n, r.getrlimit(getattr(r, 'RLIMIT_' + n))[0])")
MAXIMA = {"time_limit": 20, "cpu_time_limit": 20, "memory_limit": 1000, "stack_limit": 250,
          "processes_limit": 128, "process_limit": 128, "open_files_limit": 128, "file_size_limit": 10}


def test_limits_that_may_be_left_out(server):
    for limits in (None, {}, {"time_limit": None}, {"hat": "red", "memory": -1}):
        assert execute(server, "python", "print(1)", limits=limits)["output"] == "1\n"


def test_every_limit_may_be_at_its_maximum(server):
    body = execute(server, "python", SHOW, limits=MAXIMA)
    assert body["output"] == "NOFILE 128\nFSIZE %d\nSTACK %d\n" % (10 << 20, 250 << 20)
    files = [("a.py", SHOW)]
    assert execute_files(server, "python", files, "a.py", limits=MAXIMA)["stdout"] == body["output"]


@pytest.mark.parametrize("field,word", [
    ("time_limit", "time"), ("cpu_time_limit", "cpu time"), ("memory_limit", "memory"),
    ("stack_limit", "stack"), ("processes_limit", "processes"), ("process_limit", "processes"),
    ("open_files_limit", "open files"), ("file_size_limit", "file size")])
def test_limits_out_of_range(server, field, word):
    text = word + " limit invalid or exceeds max"
    for value in (0, -1, MAXIMA[field] + 1, 2 ** 31, 2 ** 63 - 1, -2 ** 63):
        assert execute(server, "python", "1", limits={field: value}) == {
            "code": 1, "output": "", "std_log": "Error: " + text, "time_ms": 0}
    body = execute_files(server, "python", [("a.py", "1")], "a.py", limits={field: 0})
    assert body == {"stdout": "Unsupported runtime", "stderr": text, "exit_code": 1, "code": 1,
                    "output": "Unsupported runtime", "std_log": text, "time_ms": 0}


def test_an_unknown_language_is_told_before_a_bad_limit(server):
    body = execute(server, "nope", "1", limits={"time_limit": 0})
    assert "Unsupported language" in body["std_log"]


def test_limits_work(server):
    # more than the default
    assert execute(server, "python", "import time; time.sleep(3); print(1)",
                   limits={"time_limit": 20})["output"] == "1\n"
    # less than the default
    body = execute(server, "python", "x = b'x' * (100 << 20)", limits={"memory_limit": 50})
    assert body["code"] == 137
    assert execute(server, "python", "x = b'x' * (100 << 20)")["code"] == 0
    for name in ("processes_limit", "process_limit"):
        body = execute(server, "python", "import os\nfor i in range(4):\n  os.fork()",
                       limits={name: 3})
        assert body["code"] == 1 and "BlockingIOError" in body["std_log"]
    body = execute(server, "python", "open('x', 'wb').write(b'x' * (3 << 20))",
                   limits={"file_size_limit": 2})
    assert body["code"] in (1, 153), body
    deep = "int main() { volatile char x[4 << 20]; for (int i = 0; i < 4 << 20; i++) x[i] = 1; }"
    assert execute(server, "cpp", deep)["code"] == 0
    assert execute(server, "cpp", deep, limits={"stack_limit": 1})["code"] == 139


def test_limits_below_what_a_box_can_have_are_raised_to_it(server):
    assert execute(server, "bash", "ulimit -n", limits={"open_files_limit": 1})["output"] == "8\n"
    body = execute(server, "python", "x = b'x' * (100 << 20)", limits={"memory_limit": 1})
    assert body["code"] == 137


@pytest.mark.parametrize("language,wall,cpu", [
    ("python", 2000, 2000), ("javascript", 3000, 2000), ("cpp", 5000, 4000), ("java", 5000, 5000)])
def test_default_times(keyed, language, wall, cpu):
    body = execute(keyed, language, HELLO[language], key="tok")
    assert debug_line(body["std_log"])["wall"][1] == wall
    assert debug_line(body["std_log"])["cpu"][1] == cpu


def test_a_named_time_leaves_the_other_as_it_is(keyed):
    line = debug_line(execute(keyed, "python", "1", key="tok", limits={"time_limit": 9})["std_log"])
    assert (line["wall"][1], line["cpu"][1]) == (9000, 2000)
    line = debug_line(execute(keyed, "python", "1", key="tok", limits={"cpu_time_limit": 9})["std_log"])
    assert (line["wall"][1], line["cpu"][1]) == (2000, 9000)
    body = execute(keyed, "python", "while True: pass", key="tok",
                   limits={"time_limit": 20, "cpu_time_limit": 1})
    line = debug_line(body["std_log"])
    assert body["code"] == 124 and "cpu" in line["hit"] and "wall" not in line["hit"]


# ---- DEBUG


def debug_line(log):
    lines = [l for l in log.split("\n") if l.startswith("hermes: ")]
    assert len(lines) == 1 and log.endswith(lines[0] + "\n"), log
    fields = dict(f.split("=") for f in lines[0].split(" ")[1:])
    found = {n: tuple(int(x) for x in fields[k].split("/"))
             for n, k in (("wall", "wall_ms"), ("cpu", "cpu_ms"), ("memory", "memory_kb"))}
    return dict(found, hit=fields["limits_hit"].split(","), status=fields["status"], stage=fields["stage"])


def test_debug_adds_a_line(keyed, server):
    code = "import sys\nsys.stderr.write('no newline')\nsys.exit(4)"
    body = execute(keyed, "python", code, key="tok")
    assert body["std_log"].startswith("no newline\nhermes: ")
    line = debug_line(body["std_log"])
    assert (line["status"], line["stage"], line["hit"]) == ("runtime_error", "run", ["none"])
    assert 0 < line["memory"][0] < line["memory"][1]
    body = execute_files(keyed, "python", [("a.py", "while True: pass")], "a.py", key="tok")
    line = debug_line(body["stderr"])
    assert line["status"] == "time_limit" and set(line["hit"]) <= {"wall", "cpu"}
    body = execute(keyed, "cpp", "int main() { return }", key="tok")
    assert body["std_log"].startswith("Compilation Error:\n")
    assert debug_line(body["std_log"])["stage"] == "compile"
    assert "hermes:" not in execute(keyed, "nope", "", key="tok")["std_log"]
    assert execute(server, "python", code)["std_log"] == "no newline"  # and not without it


# ---- keys


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": "Bearer wrong"}, {"Authorization": "tok"}, {"Authorization": "Basic dG9rOg=="},
    {"X-API-Key": "wrong"}, {"Authorization": "Bearer tok2"}, {"Authorization": "Bearer to"}])
@pytest.mark.parametrize("language", ["python", "cpp", "nope"])
def test_a_key_is_needed_for_every_language(keyed, headers, language):
    for path, keys in [(p, ONE_KEYS) for p in ONE] + [(p, MANY_KEYS) for p in MANY]:
        reply = keyed("POST", path, {"language": language, "code": "1"}, headers)
        assert reply.status == 401 and "Bearer" in reply.headers["WWW-Authenticate"], reply
        body = reply.json()
        assert list(body) == keys + ["error"]
        assert (body["code"], body["output"], body["time_ms"]) == (401, "", 0)
        assert body["std_log"].startswith("Auth Error:")
        assert body["error"]["code"] == "unauthorized"


def test_the_key_is_asked_before_anything_else(keyed):
    for path in ONE + MANY:
        assert keyed("POST", path, b"{", {"Content-Type": "text/plain"}).status == 401
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n" % path.encode()
        got = keyed.raw(head)
        assert got.startswith(b"HTTP/1.1 401") and b"Auth Error:" in got
        assert b"Content-Type: application/json" in got


def test_the_right_key(keyed):
    body = {"language": "cpp", "code": "int main() { return 6; }", "limits": {"time_limit": 3}}
    for headers in ({"Authorization": "Bearer tok"}, {"X-API-Key": "tok"}):
        assert answered(keyed("POST", "/execute/", body, headers))["code"] == 6
    assert keyed("GET", "/").body == b"UP!"
    headers = {"Content-Type": "application/json", "X-API-Key": "tok"}
    assert keyed("POST", "/execute", b"{", headers).status == 400


# ---- CORS


@pytest.mark.parametrize("path", ["/", "/execute", "/execute/", "/v2/execute/", "/nowhere"])
def test_preflights_need_no_key(keyed, path):
    ask = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "authorization, content-type"}
    reply = keyed("OPTIONS", path, headers=ask)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
    allowed = [h.strip().lower() for h in reply.headers["Access-Control-Allow-Headers"].split(",")]
    assert {"content-type", "authorization", "x-api-key"} <= set(allowed)
    vary = {h.strip().lower() for v in reply.headers.get_all("Vary") for h in v.split(",")}
    assert vary == {"origin", "access-control-request-method", "access-control-request-headers"}
    assert "Access-Control-Allow-Credentials" not in reply.headers


def test_origins(keyed, server):
    def allowed(target, origin, **kwargs):
        reply = target("POST", "/execute/", {"language": "python", "code": "1"},
                       headers={"Origin": origin}, **kwargs)
        return reply.headers.get("Access-Control-Allow-Origin")
    assert allowed(keyed, ORIGIN, key="tok") == ORIGIN
    assert allowed(keyed, "https://other.example", key="tok") == "https://other.example"
    assert allowed(keyed, ORIGIN) == ORIGIN  # the page may read why it was refused
    for origin in ("https://evil.example", "http://front.example", ORIGIN + ":8443", ORIGIN + ".evil", "null",
                   "http://localhost:3000"):
        assert allowed(keyed, origin, key="tok") is None, origin
    assert allowed(server, "http://localhost:3000") == "http://localhost:3000"
    assert "Access-Control-Allow-Origin" not in server("GET", "/").headers


# ---- settings


class Plain(Server):
    """Started by environment and .env alone, as the engine is."""

    def start(self, wait=True):
        self.args = []
        super().start(wait)

    def connect(self, tcp=False, timeout=60):
        return super().connect(True, timeout)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def plain():
    path = borrow_dir()
    made = []

    def make(dotenv, env):
        (path / ".env").write_text(dotenv)
        made.append(Plain(path, env=env))
        return made[0]
    yield make
    for server in made:
        server.stop()
    return_dir(path)


def test_the_engine_s_settings_work(plain):
    port = free_port()
    server = plain("HOST=127.0.0.1\nPORT=1\nAPI_TOKEN=\"from-file\"\nDEBUG=true\nALLOWED_ORIGIN=%s\n"
                   "WORKER_COUNT=3\nRUST_LOG=info\n" % ORIGIN,
                   {"PORT": str(port), "LOG_LEVEL": "DEBUG"})  # the environment beats the file
    assert server.port == port
    assert [e["address"] for e in server.events("listening")] == ["127.0.0.1"]
    assert server("POST", "/execute", {"language": "python", "code": "1"}).status == 401
    body = execute(server, "python", "print(5)", key="from-file")
    assert body["output"] == "5\n" and debug_line(body["std_log"])
    reply = server("OPTIONS", "/execute", headers={"Origin": ORIGIN})
    assert reply.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "hermes_concurrency 3\n" in server("GET", "/metrics").body.decode()
    assert any(e["path"] == "/metrics" for e in server.events("request"))  # LOG_LEVEL


@pytest.mark.parametrize("env,words", [
    ({"HOST": "0.0.0.0", "PORT": "0"}, ["API_TOKEN"]),
    ({"HOST": "0.0.0.0", "PORT": "0", "API_TOKEN": ""}, ["API_TOKEN"]),
    ({"PORT": "http", "DEBUG": "perhaps", "WORKER_COUNT": "-1"}, ["PORT", "DEBUG", "WORKER_COUNT"]),
    ({"HOST": "no such host", "PORT": "0"}, ["no such host"])])
def test_settings_that_are_wrong_stop_the_start(env, words, tmp_path):
    got = subprocess.run([str(MONITOR)], env=dict({"PATH": "/usr/bin"}, **env), capture_output=True,
                         text=True, timeout=60 * SLOW, cwd=tmp_path)
    assert got.returncode == 2
    for word in words:
        assert word in got.stderr, got.stderr


def test_the_operator_s_maxima_hold(make_server):
    server = make_server(env={"HERMES_MAX_WALL_MS": "4000", "MAX_MEMORY_MB": "128", "DEBUG": "1"})
    line = debug_line(execute(server, "cpp", HELLO["cpp"])["std_log"])
    assert (line["wall"][1], line["memory"][1]) == (4000, 128 << 10)
    assert execute(server, "python", "1", limits={"time_limit": 4, "memory_limit": 128})["code"] == 0
    for field, value, word in (("time_limit", 5, "time"), ("memory_limit", 129, "memory")):
        body = execute(server, "python", "1", limits={field: value})
        assert body["std_log"] == "Error: %s limit invalid or exceeds max" % word


# ---- the service around it


def test_a_full_house_is_429(make_server):
    server = make_server(env={"WORKER_COUNT": "1", "HERMES_QUEUE": "0"})
    replies = []

    def one():
        replies.append(server("POST", "/execute/", {
            "language": "python", "code": "import time; time.sleep(1.5)"}))
    threads = [threading.Thread(target=one) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(r.status for r in replies) == [200, 429, 429]
    for reply in replies:
        if reply.status == 429:
            error = reply.json()["error"]
            assert error["code"] == "busy" and int(reply.headers["Retry-After"]) >= 1
            assert error["message"] == "the server is busy: 1 running, 0 waiting; try again in %s s" % \
                reply.headers["Retry-After"]


def test_a_client_that_leaves_ends_its_run(server):
    conn = server.connect()
    conn.request("POST", "/execute/", json.dumps({
        "language": "python", "code": "import time; time.sleep(60)", "limits": {"time_limit": 20}}),
        {"Content-Type": "application/json"})
    assert wait_until(lambda: b"hermes_boxes_running 1" in server("GET", "/metrics").body)
    conn.sock.close()
    assert wait_until(lambda: b"hermes_boxes_running 0" in server("GET", "/metrics").body, 3)


def test_a_server_that_stops_says_so(make_server):
    server = make_server(env={"HERMES_GRACE_S": "0"})
    replies = []

    def one():
        replies.append(server("POST", "/execute/", {
            "language": "python", "code": "import time; time.sleep(60)", "limits": {"time_limit": 20}}))
    thread = threading.Thread(target=one)
    thread.start()
    assert wait_until(lambda: b"hermes_boxes_running 1" in server("GET", "/metrics").body)
    server.stop()
    thread.join()
    assert replies[0].status == 503 and replies[0].json()["error"]["code"] == "unavailable"


def test_runs_of_one_moment_do_not_meet(server):
    bodies = {}

    def one(i):
        bodies[i] = execute_files(server, "python", [
            ("a.py", "import os\nprint(%d, sorted(os.listdir('.')))\nopen('left', 'w')" % i)], "a.py")
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(8):
        assert bodies[i]["output"] == "%d ['a.py']\n" % i


def test_nothing_that_is_refused_leaves_anything(server):
    def count():
        return [l for l in server("GET", "/metrics").body.decode().splitlines()
                if l.startswith(("hermes_boxes_running", "hermes_history_runs", "hermes_queue_waiting"))]
    pid = server.child("hermes-server")
    before, files = count(), open_descriptors(pid)
    for _ in range(20):
        server("POST", "/execute/", {"language": "python", "code": 1})
        execute(server, "nope", "")
        execute(server, "cpp", "int main( {")
        server("POST", "/v2/execute/", {"language": "python", "files": [FILE], "entry_file": "b"})
        execute_files(server, "cpp", [("a.hpp", "")], "a.hpp")
        execute(server, "python", "raise SystemExit(1)")
    assert count() == before
    assert wait_until(lambda: open_descriptors(pid) <= files, 5)


def test_keep_alive_goes_on_after_refusals(server):
    conn = server.connect()
    json_type = {"Content-Type": "application/json"}
    for _ in range(5):
        assert server("POST", "/execute/", b"{", json_type, conn=conn).status == 400
        assert server("POST", "/v2/execute", {"language": "python"}, conn=conn).status == 400
        assert server("POST", "/execute", {"language": "nope", "code": ""}, conn=conn).status == 200
    conn.close()


# ---- the page


def test_every_curl_line_of_the_page_works(keyed):
    text = (ROOT / "docs/compat-rest.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    assert len(blocks) >= 4
    for block in blocks:
        script = block.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % keyed.port)
        got = subprocess.run(["bash", "-euc", "API_TOKEN=tok\n" + script], capture_output=True, text=True,
                             timeout=60 * SLOW)
        assert got.returncode == 0 and got.stdout, (block, got.stderr)
        if "/execute" in block:
            assert json.loads(got.stdout)["code"] == 0, (block, got.stdout)


def test_the_page_names_limits_and_routes():
    text = (ROOT / "docs/compat-rest.md").read_text()
    routes = ["POST " + p for p in ONE + MANY]
    for word in list(MAXIMA) + routes + ["Security Violation:", "Preparation Error:"]:
        assert "`%s" % word in text, word
