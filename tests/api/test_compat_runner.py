# SPDX-License-Identifier: Apache-2.0
"""The surface of the quartermaster code runner: docs/compat-runner.md. Facts of the original are
asserted as they are; what departs on purpose says so."""
import json
import random
import re
import shutil
import socketserver
import subprocess
import threading
import time

import pytest

from apilib import MONITOR, ROOT, SLOW, make_dir, wait_until
from serving import serve

IMAGES = ["python", "node", "bun", "go", "deno", "rust"]
RUNTIME_OF = {"node": "javascript"}
FILE = "/metadata/.quartermaster_metadata.json"


def run(server, code, headers=None, **fields):
    return server("POST", "/run", dict(code=code, **fields), headers=headers)


def ok(server, code, **fields):
    """The answer of a run that must be one, in exactly the original's shape."""
    reply = run(server, code, **fields)
    assert reply.status == 200, reply
    answer = reply.json()
    assert list(answer) == ["stdout", "stderr", "exit_code", "execution_time", "metadata"]
    assert isinstance(answer["exit_code"], int) and isinstance(answer["execution_time"], float)
    assert re.search(r'"execution_time":\d+\.\d{4},', reply.body.decode()), reply
    return answer


def said(server, code, **fields):
    answer = ok(server, code, **fields)
    assert (answer["exit_code"], answer["stderr"]) == (0, ""), answer
    return answer["stdout"]


def detail(reply, status):
    """The text of an error that is no validation error."""
    assert reply.status == status, reply
    body = reply.json()
    assert list(body) == ["detail"] and isinstance(body["detail"], str) and body["detail"], reply
    return body["detail"]


def problems(reply):
    """The list of a 422, each item in FastAPI's shape."""
    assert reply.status == 422, reply
    body = reply.json()
    assert list(body) == ["detail"] and isinstance(body["detail"], list) and body["detail"], reply
    for item in body["detail"]:
        assert set(item) - {"ctx"} == {"type", "loc", "msg", "input"}, item
        assert isinstance(item["loc"], list) and item["loc"][0] in ("body", "query")
    return body["detail"]


def the_problem(reply):
    found = problems(reply)
    assert len(found) == 1, found
    return found[0]


def available(server, image):
    name = RUNTIME_OF.get(image, image)
    for rt in server("GET", "/v1/runtimes").json()["runtimes"]:
        if rt["name"] == name:
            return rt["available"]
    return False


def need(server, image):
    if not available(server, image):
        pytest.skip("%s is not installed" % image)


# Images, health


def test_images(server):
    reply = server("GET", "/images")
    assert reply.status == 200
    answer = reply.json()
    assert list(answer) == ["images", "default"] and answer["default"] == "code-runner-python"
    assert [i["id"] for i in answer["images"]] == ["code-runner-" + n for n in IMAGES]
    for image in answer["images"]:
        assert list(image) == ["id", "name", "description", "default_entrypoint",
                               "file_extension", "main_file", "completions"]
        assert image["completions"] == []
    rows = {i["id"][12:]: [i["name"], i["default_entrypoint"], i["file_extension"],
                           i["main_file"]] for i in answer["images"]}
    assert rows == {
        "python": ["Python", "python main.py", ".py", "main.py"],
        "node": ["Node.js", "node main.js", ".js", "main.js"],
        "bun": ["Bun", "bun main.ts", ".ts", "main.ts"],
        "go": ["Go", "go run main.go", ".go", "main.go"],
        "deno": ["Deno", "deno run main.ts", ".ts", "main.ts"],
        "rust": ["Rust", "cargo run", ".rs", "src/main.rs"]}
    assert answer["images"][0]["description"] == "Python runtime"
    assert server("GET", "/runtimes").body == reply.body


def test_health_has_the_fields_of_both(server):
    health = server("GET", "/health")
    assert health.status == 200
    answer = health.json()
    assert answer["status"] == "ok" and answer["auth_enabled"] is False
    assert answer["docker_connected"] in (True, False)  # and neither is a failure
    assert answer["isolation"]["level"] and answer["version"]


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers every request as an engine of containers answers GET /_ping."""
    daemon_threads = True

    class RequestHandlerClass(socketserver.StreamRequestHandler):
        def handle(self):
            self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK")

    def __init__(self, path):
        super().__init__(str(path), self.RequestHandlerClass)


def test_docker_is_told_of_where_it_is(make_server):
    path = make_dir()
    path.chmod(0o755)
    engine = Engine(path / "docker.sock")
    (path / "docker.sock").chmod(0o666)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    try:
        server = make_server(env={"DOCKER_SOCKET": str(path / "docker.sock")})
        assert server("GET", "/health").json()["docker_connected"] is True
        assert "docker" in [row["name"] for row in server("GET", "/v1/backends").json()["backends"]]
        (path / "docker.sock").unlink()
        (path / "docker.sock").write_text("no socket")
        assert wait_until(lambda: server("GET", "/health").json()["docker_connected"] is False, 30)
        assert server("GET", "/health").json()["status"] == "ok"
    finally:
        engine.shutdown()
        engine.server_close()
        shutil.rmtree(path)


# Running


def test_hello(server):
    answer = ok(server, "print('hello world')")
    assert answer["stdout"] == "hello world\n" and answer["stderr"] == ""
    assert answer["exit_code"] == 0 and answer["metadata"] is None
    assert 0 < answer["execution_time"] < 30 * SLOW


def test_the_example_of_the_original(server):
    assert said(server, "print(sum(range(1, 101)))", image="python") == "5050\n"


def test_stderr_and_exit_code(server):
    answer = ok(server, "import sys; sys.stderr.write('error message'); sys.exit(1)")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("", "error message", 1)
    assert ok(server, "import sys; sys.exit(77)")["exit_code"] == 77
    assert "ZeroDivisionError" in ok(server, "1/0")["stderr"]


def test_a_signal_is_128_more(server):
    assert ok(server, "import os; os.kill(os.getpid(), 11)")["exit_code"] == 139
    assert ok(server, "import os; os.abort()")["exit_code"] == 134


def test_files(server):
    assert said(server, "import a\nprint(a.x)", files={"a.py": "x = 42"}) == "42\n"
    assert said(server, "import main_module\nprint(main_module.run())", files={
        "utils/helpers.py": "def say(): return 'nested'",
        "main_module.py": "from utils.helpers import say\ndef run(): return say()"}) == "nested\n"
    assert said(server, "print(open('ü/Ö.txt').read(), end='')",
                files={"ü/Ö.txt": "grüße\n"}) == "grüße\n"
    assert said(server, "print(1)", files={}) == "1\n"


def test_files_win_over_code(server):
    assert said(server, "print('code')", files={"main.py": "print('files')"}) == "files\n"


def test_base64_is_nothing_special(server):
    assert said(server, "print(open('f').read())", files={"f": "aGVsbG8="}) == "aGVsbG8=\n"


def test_stdin_is_empty(server):
    assert said(server, "import sys; print(repr(sys.stdin.read()))") == "''\n"


def test_environment(server):
    assert said(server, "import os; print(os.environ['A'], os.environ['B'])",
                environment={"A": "1", "B": "zwei 2"}) == "1 zwei 2\n"
    assert said(server, "import os; print(os.environ['HOME'])") == "/tmp\n"
    assert said(server, "import os; print(os.environ['HOME'])",
                environment={"HOME": "/box"}) == "/box\n"
    assert said(server, "import os; print('CUSTOM_ENTRYPOINT' in os.environ)",
                environment={"encoded_code": "x"}) == "False\n"


def test_unknown_fields_are_ignored(server):
    assert said(server, "print(1)", stdin="x", language="ruby", dependencies=["numpy"],
                requirements=5, metadata={"a": 1}) == "1\n"


@pytest.mark.parametrize("fields", [
    {"timeout": None}, {"mem_limit": None}, {"cpu_shares": None}, {"disk_limit": None},
    {"files": None}, {"entrypoint": None}, {"environment": None}, {"prebuild_spec": None},
    {"timeout": 10, "mem_limit": "128m", "cpu_shares": 256, "allow_network": False},
    {"mem_limit": "256m", "disk_limit": "512m", "cpu_shares": 512, "timeout": 30},
    {"timeout": "10"}, {"timeout": 10.0}, {"timeout": " 10 "}, {"timeout": "10.0"},
    {"cpu_shares": "1_024"}, {"cpu_shares": 0}, {"cpu_shares": 2},
    {"mem_limit": "268435456"}, {"mem_limit": "256M"}, {"mem_limit": "0.25g"},
    {"mem_limit": "262144k"}, {"disk_limit": "64m"}, {"disk_limit": "1k"},
    {"allow_network": "false"}, {"allow_network": 0}, {"allow_network": "no"},
    {"allow_network": "OFF"}, {"allow_network": 0.0},
    {"image": "code-runner-python"}, {"entrypoint": ""},
    {"prebuild_spec": {"base_image": "python", "setup_script": "true"}}])
def test_accepted(server, fields):
    assert said(server, "print(1)", **fields) == "1\n"


def test_the_request_may_come_in_many_ways(server):
    body = json.dumps({"code": "print(1)"})
    for headers in ({}, {"Content-Type": "application/json"}, {"Content-Type": ""},
                    {"Content-Type": "Application/JSON; charset=utf-8"},
                    {"Content-Type": "application/vnd.api+json"}):
        assert server("POST", "/run", body, headers=headers).status == 200, headers


def test_output_is_whole(server):
    answer = ok(server, "print('x' * 5000000)")
    assert len(answer["stdout"]) == 5000001
    assert ok(server, "print('\\u2028\"\\\\ \\x00 \\x1b[0m ü')")["stdout"] == \
        "\u2028\"\\ \x00 \x1b[0m ü\n"


def test_bytes_that_are_no_text(server):
    """The original answers -1 and nothing; here they become U+FFFD."""
    answer = ok(server, "import sys; sys.stdout.buffer.write(b'a\\xff\\xfeb')")
    assert answer["stdout"] == "a\ufffd\ufffdb" and answer["exit_code"] == 0


def test_too_much_output_ends_the_run(server):
    answer = ok(server, "while True: print('x' * 100000)")
    assert answer["exit_code"] == 137 and len(answer["stdout"]) == 8 << 20
    assert "wrote more than" in answer["stderr"]


# Entrypoints


@pytest.mark.parametrize("image,code,entrypoint,want", [
    ("python", "x = 42", "python -c \"print('custom')\"", "custom\n"),
    ("python", "print(1)", "python3 main.py && python main.py", "1\n1\n"),
    ("python", "", "echo hello", "hello\n"),
    ("python", "", "python -c 'import os; print(os.getcwd())'", "/box\n"),
    ("python", "", "echo \"$GREETING\" | tr a-z A-Z; exit 0", "HI\n"),
    ("node", "", "node -e \"console.log('inline')\"", "inline\n"),
    ("node", "console.log(7)", "node main.js", "7\n"),
])
def test_entrypoint(server, image, code, entrypoint, want):
    need(server, image)
    assert said(server, code, image=image, entrypoint=entrypoint,
                environment={"GREETING": "hi"}) == want


def test_entrypoint_with_files(server):
    assert said(server, "", files={"d/s.py": "import sys; print(sys.argv[1:])"},
                entrypoint="python d/s.py 'a b' c") == "['a b', 'c']\n"
    answer = ok(server, "", entrypoint="echo out; echo err >&2; exit 5")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 5)
    assert ok(server, "", entrypoint="no-such-program")["exit_code"] == 127


def test_entrypoint_has_the_toolchain(server):
    need(server, "go")
    code = 'package main\nimport "fmt"\nfunc main() { fmt.Println("from go") }\n'
    answer = ok(server, code, image="go", entrypoint="go run main.go", mem_limit="1g",
                disk_limit="1g", timeout=120, cpu_shares=2048)
    assert (answer["stdout"], answer["exit_code"]) == ("from go\n", 0), answer


def test_an_entrypoint_is_confined_like_any_code(server):
    answer = ok(server, "", entrypoint="cat /etc/shadow; echo x >/etc/x; echo x >/usr/bin/x; id -u; "
                                       "ls /root /work /home; kill -9 1; ls /proc | grep -c '^1$'")
    assert answer["stdout"] == "1000\n0\n", answer


# The other languages


def test_node(server):
    need(server, "node")
    assert said(server, "console.log('hello from node')", image="node") == "hello from node\n"
    assert said(server, "const h = require('./helper.js'); console.log(h.say())", image="node",
                files={"helper.js": "module.exports = { say: () => 'hi' };"}) == "hi\n"
    assert said(server, "console.log(process.env.V)", image="code-runner-node",
                environment={"V": "x"}) == "x\n"


GO = ('package main\nimport ("fmt"; "os"; "sdk")\nfunc main() {\n'
      ' fmt.Println("hello", os.Getenv("V"))\n'
      ' if err := sdk.SetMetadata(map[string]any{"n": 1}); err != nil { panic(err) }\n'
      ' var got map[string]int\n if sdk.GetMetadata(&got) != nil { panic(1) }\n'
      ' sdk.SetMetadata(map[string]any{"n": got["n"] + 1})\n}\n')
RUST = ('mod helper;\nuse std::collections::BTreeMap;\nfn main() {\n'
        ' println!("hello {}", helper::say());\n'
        ' let m = BTreeMap::from([("n", vec![1, 2]), ("k\\"", vec![])]);\n'
        ' sdk::set_metadata(&m).unwrap();\n'
        ' assert!(sdk::get_metadata_raw().unwrap().is_some());\n}\n')
TS = ('import { getMetadata, setMetadata } from "./sdk.ts";\nconst m: string = "hello";\n'
      'console.log(m, process.env.V);\nsetMetadata({ n: [1] });\n'
      'setMetadata({ n: getMetadata().n, v: 2 });\n')


def test_go(server):
    need(server, "go")
    answer = ok(server, GO, image="go", environment={"V": "x"})
    assert (answer["stdout"], answer["exit_code"]) == ("hello x\n", 0), answer
    assert answer["metadata"] == {"n": 2}
    assert said(server, 'package main\nimport ("fmt"; "main/util")\n'
                'func main() { fmt.Println(util.X) }\n', image="go",
                files={"util/u.go": "package util\nconst X = 5\n"}) == "5\n"


def test_rust(server):
    need(server, "rust")
    answer = ok(server, RUST, image="rust",
                files={"src/helper.rs": "pub fn say() -> u8 { 5 }\n"})
    assert (answer["stdout"], answer["exit_code"]) == ("hello 5\n", 0), answer
    assert answer["metadata"] == {"n": [1, 2], "k\"": []}


@pytest.mark.parametrize("image", ["bun", "deno"])
def test_typescript(server, image):
    need(server, image)
    code = TS if image == "bun" else 'import process from "node:process";\n' + TS
    answer = ok(server, code, image=image, environment={"V": "x"})
    assert (answer["stdout"], answer["exit_code"]) == ("hello x\n", 0), answer
    assert answer["metadata"] == {"n": [1], "v": 2}


@pytest.mark.parametrize("image,code,status", [
    ("go", "package main\nfunc main() { nothing() }\n", 1), ("rust", "fn main() { 5 }\n", 101)])
def test_what_does_not_compile(server, image, code, status):
    need(server, image)
    answer = ok(server, code, image=image)
    assert answer["exit_code"] == status and answer["stdout"] == "", answer
    assert "main." in answer["stderr"] and answer["metadata"] is None


def test_an_image_whose_language_is_missing(make_server):
    path = make_dir()
    shutil.copytree(ROOT / "runtimes", path / "runtimes")
    shutil.rmtree(path / "runtimes/bun")
    try:
        server = make_server(env={"HERMES_RUNTIMES": str(path / "runtimes")})
        assert "'code-runner-bun'" in detail(run(server, "1", image="bun"), 404)
    finally:
        shutil.rmtree(path)


# Limits


def test_timeout_is_minus_one_with_what_was_printed(server):
    began = time.monotonic()
    answer = ok(server, "import time, sys\nfrom sdk import set_metadata\nset_metadata({})\n"
                "print('before', flush=True)\nprint('err', file=sys.stderr, flush=True)\n"
                "time.sleep(60)", timeout=2)
    assert answer["exit_code"] == -1 and answer["metadata"] is None
    assert (answer["stdout"], answer["stderr"]) == ("before\n", "err\n")
    assert 2 <= answer["execution_time"] and time.monotonic() - began < 15 * SLOW


def test_a_busy_loop_is_stopped_too(server):
    assert ok(server, "while True: pass", timeout=1, cpu_shares=1024)["exit_code"] == -1


@pytest.mark.parametrize("timeout", [0, -1, -10 ** 12])
def test_no_time_at_all(server, timeout):
    answer = ok(server, "print(1)", timeout=timeout)
    assert (answer["exit_code"], answer["stdout"], answer["stderr"]) == (-1, "", "")


def test_out_of_memory_is_137(server):
    answer = ok(server, "print(1, flush=True)\na = bytearray(200 * 1024 * 1024)",
                mem_limit="100m")
    assert (answer["exit_code"], answer["stdout"]) == (137, "1\n")
    assert ok(server, "a = bytearray(200 * 1024 * 1024)", mem_limit="400m")["exit_code"] == 0
    assert ok(server, "a = bytearray(300 * 1024 * 1024)")["exit_code"] == 137  # 256m by default


FILL = ("import errno\nn = 0\ntry:\n  with open('f', 'wb') as f:\n"
        "    while n < 400: f.write(bytes(1 << 20)); f.flush(); n += 1\n"
        "except OSError as e: print(errno.errorcode[e.errno])\nprint(n)\n")


def test_disk_limit(server):
    assert said(server, FILL, disk_limit="16m") in ("ENOSPC\n16\n", "ENOSPC\n15\n")
    # Without mem_limit it brings its memory along ...
    assert said(server, FILL, disk_limit="500m") == "400\n"
    # ... and beyond mem_limit it ends there, as Docker's tmpfs does.
    assert ok(server, FILL, disk_limit="500m", mem_limit="100m")["stdout"] != "400\n"


def test_cpu_shares_are_cores(server):
    code = ("import time\nb = time.monotonic()\nwhile time.process_time() < 0.5: pass\n"
            "print(0.5 / (time.monotonic() - b))")
    assert float(said(server, code, cpu_shares=256)) < 0.4


@pytest.fixture(scope="module")
def limited():
    yield from serve(env={
        "DEFAULT_TIMEOUT": "1", "MAX_TIMEOUT": "3", "DEFAULT_MEMORY": "64m",
        "MAX_MEMORY_MB": "300", "DEFAULT_DISK": "8m", "MAX_DISK_MB": "200",
        "DEFAULT_CPU_SHARES": "1024", "MAX_CPU_CORES": "1.5"})


def test_defaults_are_the_settings(limited):
    assert ok(limited, "import time; time.sleep(30)")["exit_code"] == -1
    assert ok(limited, "a = bytearray(80 << 20)")["exit_code"] == 137
    assert said(limited, FILL) in ("ENOSPC\n8\n", "ENOSPC\n7\n")
    assert ok(limited, "import time; time.sleep(1)", timeout=3)["exit_code"] == 0  # python starts in the rest, on any machine
    assert ok(limited, "a = bytearray(80 << 20)", mem_limit="200m")["exit_code"] == 0


def test_maxima_are_applied(limited):
    item = the_problem(run(limited, "1", timeout=4))
    assert item == {"type": "less_than_equal", "loc": ["body", "timeout"], "input": 4,
                    "msg": "Input should be less than or equal to 3", "ctx": {"le": 3}}
    item = the_problem(run(limited, "1", cpu_shares=2000))
    assert item == {"type": "less_than_equal", "loc": ["body", "cpu_shares"], "input": 2000,
                    "msg": "Input should be less than or equal to 1536", "ctx": {"le": 1536}}
    for field, value, setting in (("mem_limit", "301m", "MAX_MEMORY_MB"),
                                  ("mem_limit", "1g", "MAX_MEMORY_MB"),
                                  ("disk_limit", "201m", "MAX_DISK_MB")):
        item = the_problem(run(limited, "1", **{field: value}))
        assert item["type"] == "value_error" and item["loc"] == ["body", field]
        assert item["input"] == value and setting in item["msg"] and item["ctx"] == {"error": {}}
        assert item["msg"].startswith("Value error, ")
    assert said(limited, "print(1)", timeout=3, mem_limit="300m", cpu_shares=1536,
                disk_limit="200m") == "1\n"


def test_maxima_hold_for_the_native_routes_too(limited):
    assert limited.run("python", "1", limits={"memory_mb": 301}).status == 400


def test_a_language_that_compiles_fits_below_the_maxima(limited):
    """Its compile stage asks for more by default, and gives way."""
    need(limited, "go")
    code = 'package main\nfunc main() { println("x") }\n'
    ok(limited, code, image="go")


def test_maxima_by_default(server):
    for fields, loc in (({"timeout": 301}, "timeout"), ({"mem_limit": "2049m"}, "mem_limit"),
                        ({"disk_limit": "5001m"}, "disk_limit"),
                        ({"cpu_shares": 4097}, "cpu_shares")):
        assert the_problem(run(server, "1", **fields))["loc"] == ["body", loc]


def settings(**env):
    return subprocess.run([str(MONITOR)], env=dict({"PATH": "/usr/bin"}, **env), cwd="/var/tmp",
                          capture_output=True, text=True, timeout=60 * SLOW)


def test_bad_settings_stop_the_start_with_every_problem():
    bad = {"DEFAULT_TIMEOUT": "0", "MAX_MEMORY_MB": "0", "MAX_CPU_CORES": "0",
           "MAX_DISK_MB": "-5", "CLEANUP_INTERVAL_HOURS": "0", "CLEANUP_MAX_AGE_DAYS": "-1",
           "DEFAULT_MEMORY": "lots", "DEFAULT_DISK": "0", "DEFAULT_CPU_SHARES": "x",
           "DEFAULT_ALLOW_NETWORK": "perhaps"}
    got = settings(**bad)
    assert got.returncode == 2
    for name in bad:
        assert name in got.stderr, (name, got.stderr)
    got = settings(MAX_TIMEOUT="5", DEFAULT_TIMEOUT="6")
    assert got.returncode == 2 and "MAX_TIMEOUT" in got.stderr


# 422


TEXT = "Input should be a valid string"
WHOLE = "Input should be a valid integer"
BOOL = "Input should be a valid boolean"
DICT = "Input should be a valid dictionary"
MODEL = "Input should be a valid dictionary or object to extract fields from"


@pytest.mark.parametrize("field,value,kind,text", [
    ("code", None, "string_type", TEXT), ("code", 5, "string_type", TEXT),
    ("code", ["x"], "string_type", TEXT), ("code", True, "string_type", TEXT),
    ("image", None, "string_type", TEXT), ("image", 3, "string_type", TEXT),
    ("image", {}, "string_type", TEXT),
    ("entrypoint", 1, "string_type", TEXT), ("entrypoint", ["sh"], "string_type", TEXT),
    ("mem_limit", 256, "string_type", TEXT), ("disk_limit", 1.5, "string_type", TEXT),
    ("timeout", "abc", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("timeout", "", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("timeout", "1 0", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("timeout", "0x10", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("timeout", "10.", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("timeout", "10.5", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("timeout", 10.5, "int_from_float", WHOLE + ", got a number with a fractional part"),
    ("timeout", [1], "int_type", WHOLE), ("timeout", {}, "int_type", WHOLE),
    ("cpu_shares", "many", "int_parsing", WHOLE + ", unable to parse string as an integer"),
    ("cpu_shares", 0.5, "int_from_float", WHOLE + ", got a number with a fractional part"),
    ("allow_network", None, "bool_type", BOOL), ("allow_network", [], "bool_type", BOOL),
    ("allow_network", 0.5, "bool_type", BOOL),
    ("allow_network", 2, "bool_parsing", BOOL + ", unable to interpret input"),
    ("allow_network", "maybe", "bool_parsing", BOOL + ", unable to interpret input"),
    ("files", [], "dict_type", DICT), ("files", "a.py", "dict_type", DICT),
    ("files", [{"name": "a", "content": "b"}], "dict_type", DICT),
    ("environment", [], "dict_type", DICT), ("environment", "A=1", "dict_type", DICT),
    ("prebuild_spec", "x", "model_attributes_type", MODEL),
    ("prebuild_spec", [], "model_attributes_type", MODEL)])
def test_wrong_type(server, field, value, kind, text):
    body = {"code": "print(1)", field: value}
    assert the_problem(server("POST", "/run", body)) == {
        "type": kind, "loc": ["body", field], "msg": text, "input": value}


def test_missing(server):
    assert the_problem(server("POST", "/run", {})) == {
        "type": "missing", "loc": ["body", "code"], "msg": "Field required", "input": {}}
    body = {"image": "python", "x": [1]}
    assert the_problem(server("POST", "/run", body))["input"] == body
    spec = {"code": "1", "prebuild_spec": {"base_image": 5, "y": 1}}
    assert problems(server("POST", "/run", spec)) == [
        {"type": "string_type", "loc": ["body", "prebuild_spec", "base_image"], "msg": TEXT,
         "input": 5},
        {"type": "missing", "loc": ["body", "prebuild_spec", "setup_script"],
         "msg": "Field required", "input": spec["prebuild_spec"]}]


def test_wrong_values_of_a_dictionary(server):
    found = problems(run(server, "1", files={"a": 1, "b": "x", "c": None},
                         environment={"A": 5}))
    assert [(p["type"], p["loc"], p["input"]) for p in found] == [
        ("string_type", ["body", "files", "a"], 1), ("string_type", ["body", "files", "c"], None),
        ("string_type", ["body", "environment", "A"], 5)]


def test_values_are_looked_at_once_the_types_are_right(server):
    item = the_problem(run(server, "1", environment={"ENCODED_CODE": "1", "B": 2}))
    assert item["type"] == "string_type" and item["loc"] == ["body", "environment", "B"]


VALUES = [None, True, False, 0, 1, -1, 2 ** 53, 1e308, 0.5, "", "x", "python", "10", "1g", "a\0b",
          "\U0001f600", "../x", [], [1], {}, {"a": "b"}, {"a": 1}, {"": ""}, {"../a": "x"},
          {"a": {"b": []}}, [[[]]]]


def test_whatever_comes_is_answered(server):
    """No field, whatever it holds, is a reason for a 5xx."""
    chance = random.Random(5)
    names = ["code", "image", "files", "entrypoint", "timeout", "mem_limit", "cpu_shares",
             "disk_limit", "allow_network", "environment", "prebuild_spec", "tag", "base_image",
             "setup_script"]
    seen = set()
    for _ in range(400):
        body = {n: chance.choice(VALUES) for n in chance.sample(names, chance.randint(0, 6))}
        body.setdefault("code", "1")
        path = chance.choice(["/run", "/run", "/prebuild"])
        reply = server("POST", path, body)
        assert reply.status in (200, 400, 404, 413, 422), (path, body, reply)
        seen.add(reply.status)
        if reply.status == 422:
            problems(reply)
        elif reply.status != 200:
            detail(reply, reply.status)
    assert {200, 422} <= seen
    assert server("POST", "/prebuilds/cleanup?max_age_days=0").status == 200


def test_every_problem_at_once(server):
    found = problems(server("POST", "/run", {"image": 1, "timeout": "x", "allow_network": "x",
                                             "mem_limit": "x"}))
    assert sorted(p["loc"][1] for p in found) == [
        "allow_network", "code", "image", "mem_limit", "timeout"]
    many = problems(run(server, "1", files={str(i): i for i in range(5000)}))
    assert len(many) == 100  # and no more


@pytest.mark.parametrize("body,error", [
    ("{", ""), ("{bad", ""), ("not json", ""), ('{"code": }', ""), ('{"code": "x"', ""),
    ('{"code": "x",}', ""), ("{'code': 'x'}", ""), ('{"code": "x"} trailing', ""),
    ('{"code": "x", "code": "y"}', "duplicate"), ("[" * 100 + "]" * 100, "deeper than 64"),
    ('{"code": "\\ud800"}', ""), (b'{"code": "\xff"}', "decode byte"),
    ('{"code": "x", "timeout": 1e999}', ""), ('{"code": "x", "timeout": %s}' % ("9" * 30), "")])
def test_bad_json(server, body, error):
    item = the_problem(server("POST", "/run", body, {"Content-Type": "application/json"}))
    assert item["type"] == "json_invalid" and item["msg"] == "JSON decode error"
    assert item["loc"][0] == "body" and isinstance(item["loc"][1], int) and len(item["loc"]) == 2
    assert item["input"] == {} and error in item["ctx"]["error"]


def test_where_bad_json_is_bad(server):
    for body, at in (("not json", 0), ("{bad", 1), ('{"code": }', 9), ('{"a":1,}', 7)):
        assert the_problem(server("POST", "/run", body))["loc"] == ["body", at], body


@pytest.mark.parametrize("body", ["[]", "[1]", '"code"', "5", "true", "null"])
def test_a_body_that_is_no_object(server, body):
    assert the_problem(server("POST", "/run", body)) == {
        "type": "model_attributes_type", "loc": ["body"], "msg": MODEL,
        "input": json.loads(body)}


def test_no_body(server):
    for body in (None, ""):
        assert the_problem(server("POST", "/run", body)) == {
            "type": "missing", "loc": ["body"], "msg": "Field required", "input": None}


def test_another_content_type(server):
    body = json.dumps({"code": "print(1)"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        assert the_problem(server("POST", "/run", body, {"Content-Type": kind})) == {
            "type": "model_attributes_type", "loc": ["body"], "msg": MODEL, "input": body}


@pytest.mark.parametrize("name", ["ENCODED_CODE", "ENCODED_FILES", "CUSTOM_ENTRYPOINT"])
def test_reserved_variables(server, name):
    env = {"A": "1", name: "x"}
    item = the_problem(run(server, "1", environment=env))
    assert item["type"] == "value_error" and item["loc"] == ["body", "environment"]
    assert item["msg"].startswith("Value error, ") and "reserved" in item["msg"]
    assert name in item["msg"] and item["input"] == env and item["ctx"] == {"error": {}}


@pytest.mark.parametrize("env", [{"": "x"}, {"A B": "x"}, {"A=B": "x"}, {"1A": "x"},
                                 {"A": "x\0y"}, {"HERMES_X": "1"}, {"A" * 200: "x"}])
def test_variables_that_cannot_be(server, env):
    item = the_problem(run(server, "1", environment=env))
    assert item["type"] == "value_error" and item["loc"] == ["body", "environment"]


@pytest.mark.parametrize("field", ["mem_limit", "disk_limit"])
@pytest.mark.parametrize("value", ["", "abc", "-1m", "12x", "m", "1e3", "99999999999999999999",
                                   "0", "256m\0", "NaN", "1 g"])
def test_sizes_that_are_none(server, field, value):
    item = the_problem(run(server, "1", **{field: value}))
    assert item["type"] == "value_error" and item["loc"] == ["body", field]
    assert item["input"] == value and field in item["msg"]


def test_numbers_out_of_range(server):
    item = the_problem(run(server, "1", cpu_shares=-1))
    assert item == {"type": "greater_than_equal", "loc": ["body", "cpu_shares"], "input": -1,
                    "msg": "Input should be greater than or equal to 0", "ctx": {"ge": 0}}
    for value in (1e300, 2 ** 62, "9" * 40):
        assert the_problem(run(server, "1", timeout=value))["type"] == "less_than_equal"
    assert the_problem(run(server, "1", entrypoint="a\0b"))["loc"] == ["body", "entrypoint"]


# 400, 404, 413, 501: and in which order


def test_nothing_to_run(server):
    for fields in ({}, {"entrypoint": None}, {"entrypoint": ""}, {"files": {"main.py": "1"}}):
        detail(run(server, "", **fields), 400)


def test_code_and_files_have_a_mebibyte(server):
    mib = 1 << 20
    assert said(server, "#" + "a" * (mib - 2) + "\n") == ""
    detail(run(server, "a" * (mib + 1)), 413)
    detail(run(server, "", entrypoint="true", files={"a": "x" * mib, "b": "y"}), 413)
    assert said(server, "", entrypoint="true", files={"n" * 200: "x" * mib}) == ""
    detail(run(server, "ü" * (mib // 2) + "a"), 413)  # bytes, not characters
    detail(run(server, "1", files={"f%d" % i: "" for i in range(5000)}), 413)


def test_what_no_program_can_be_given(server):
    detail(run(server, "", entrypoint="true #" + "x" * 200000), 413)
    detail(run(server, "1", environment={"A": "x" * 200000}), 413)
    detail(run(server, "1", environment={"A%d" % i: "x" * 100000 for i in range(100)},
               mem_limit="16m"), 413)
    detail(run(server, "1", environment={"A%d" % i: "x" for i in range(2000)}), 413)
    assert said(server, "import os; print(len(os.environ['A']))",
                environment={"A": "x" * 100000}) == "100000\n"


def test_a_body_beyond_the_cap(server):
    got = server.raw(b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 20000000\r\n\r\n{")
    head, body = got.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 413") and "larger" in json.loads(body)["detail"]


@pytest.mark.parametrize("name", ["../a.py", "a/../b", "..", "a..b", "/etc/x", "/", "", "a/", "./a",
                                  "a//b", "a\\b", "a\nb", "x" * 300, "a/" * 40 + "b"])
def test_bad_names(server, name):
    text = detail(run(server, "print(1)", files={name: "x"}), 400)
    assert text.startswith("Invalid filename: ")
    assert len(name) > 50 or "\n" in name or name in text


def test_names_that_collide(server):
    detail(run(server, "1", files={"a": "x", "a/b": "y"}), 400)
    detail(run(server, "1", files={"main.py/x": "x"}), 400)


@pytest.mark.parametrize("image,full", [
    ("unsupported", "prebuilt-unsupported"), ("prebuilt-x", "prebuilt-x"), ("", "prebuilt-"),
    ("Python", "prebuilt-Python"), ("python3", "prebuilt-python3"),
    ("code-runner-nope", "prebuilt-"), ("python\0", "prebuilt-python")])
def test_images_that_are_not_there(server, image, full):
    assert "'" + full in detail(run(server, "print(1)", image=image), 404)


def test_allow_network_is_full(server):
    """A closed address stays closed; the control has no network at all."""
    code = "import socket\ntry: socket.create_connection(('10.0.0.1', 80), 3)\nexcept OSError as e: print(e.errno)"
    for wanted in (True, 1, "true", "on", "T"):
        assert said(server, code, allow_network=wanted) == "111\n"
    assert said(server, code, allow_network=False) == "101\n"


def test_network_that_the_operator_forbids(make_server):
    server = make_server(env={"DEFAULT_ALLOW_NETWORK": "true", "HERMES_NETWORK_MAX": "allow"})
    assert "network_max" in detail(run(server, "1"), 403)
    assert said(server, "print(1)", allow_network=False) == "1\n"


def test_order_of_checks(server):
    big = "a" * ((1 << 20) + 1)
    assert run(server, "", environment={"ENCODED_CODE": "1"}).status == 422
    assert run(server, "", files={"../a": big}).status == 400
    assert "Invalid" not in detail(run(server, "", files={"../a": big}), 400)
    assert run(server, big, files={"../a": "x"}).status == 413
    assert run(server, "1", files={"../a": "x"}, image="nope").status == 400
    assert run(server, "1", image="nope", allow_network=True).status == 404


def test_there_is_no_network(server):
    code = "import os; print(sorted(os.listdir('/sys/class/net')))"
    assert said(server, code, allow_network=False) == "['lo']\n"
    answer = ok(server, "import socket; socket.create_connection(('10.0.0.1', 80), 3)")
    assert answer["exit_code"] == 1 and "unreachable" in answer["stderr"]


def test_the_file_system_is_read_only(server):
    for path in ("/app/test.txt", "/usr/x", "/etc/x", "/x", "/sys/class/net/x"):
        answer = ok(server, "open('%s', 'w').write('data')" % path)
        assert answer["exit_code"] == 1
        assert "Read-only file system" in answer["stderr"] or \
            "Permission denied" in answer["stderr"], answer
    for path in ("/tmp/x", "/workspace/x", "/metadata/x", "x"):
        assert said(server, "open('%s', 'w').write('data')" % path) == ""


def test_two_at_once(server):
    got = {}

    def one(name, code):
        got[name] = ok(server, code)["stdout"]
    threads = [threading.Thread(target=one, args=a) for a in (
        ("slow", "import time; time.sleep(2); print('slow')"), ("fast", "print('fast')"))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == {"slow": "slow\n", "fast": "fast\n"}


def test_a_client_that_leaves_ends_its_run(server):
    conn = server.connect()
    conn.request("POST", "/run", json.dumps({"code": "import time; time.sleep(250)",
                                             "timeout": 300}))
    time.sleep(1)
    conn.close()  # the fixture finds the box if it lives on


def test_a_server_that_has_no_place(make_server):
    server = make_server(env={"HERMES_CONCURRENCY": "1", "HERMES_QUEUE": "0"},
                         args=["--grace-s", "0"])
    got = []
    first = threading.Thread(target=lambda: got.append(run(server, "import time; time.sleep(99)",
                                                           timeout=100)))
    first.start()
    assert wait_until(lambda: b"hermes_boxes_running 1" in server("GET", "/metrics").body)
    busy = run(server, "print(1)")
    assert detail(busy, 429) and int(busy.headers["Retry-After"]) >= 1
    server.stop()
    first.join()
    assert "cancelled" in detail(got[0], 503)


def test_wrong_methods(server):
    for method, path, allow in (("GET", "/run", "POST"), ("PUT", "/run", "POST"),
                                ("GET", "/prebuild", "POST"), ("PUT", "/prebuilds/x", "DELETE")):
        reply = server(method, path)
        detail(reply, 405)
        assert allow in reply.headers["Allow"]


# Metadata


@pytest.mark.parametrize("data", [
    {"status": "success", "count": 42, "items": ["a", "b"]}, {}, {"ü": "\u2028\"\\", "n": None},
    [1, [2, {"x": False}]], "text", 5, 0.1, 1e-7, 9007199254740993, True, None])
def test_metadata_python(server, data):
    code = ("import json\nfrom sdk import set_metadata, get_metadata\nassert get_metadata() is None"
            "\nset_metadata({'old': 1})\nd = json.loads(%r)\nset_metadata(d)\n"
            "assert get_metadata() == d\nprint('done')" % json.dumps(data))
    answer = ok(server, code)
    assert answer["stdout"] == "done\n", answer
    assert answer["metadata"] == data and type(answer["metadata"]) is type(data)


def test_metadata_node(server):
    need(server, "node")
    answer = ok(server, "const { setMetadata, getMetadata } = require('./sdk');\n"
                "if (getMetadata() !== null) throw 1;\n"
                "setMetadata({ message: 'hello', numbers: [1, 2.5, 3] });\n"
                "console.log(getMetadata().message);", image="node")
    assert answer["stdout"] == "hello\n", answer
    assert answer["metadata"] == {"message": "hello", "numbers": [1, 2.5, 3]}


def test_metadata_by_hand_and_of_a_failing_program(server):
    answer = ok(server, "open('%s', 'w').write('{\"a\": 1}\\n'); exit(3)" % FILE)
    assert answer["metadata"] == {"a": 1} and answer["exit_code"] == 3
    assert ok(server, "", entrypoint="echo '[1]' >%s" % FILE)["metadata"] == [1]
    # By way of another name of the same directory.
    assert ok(server, "open('/workspace/.quartermaster_metadata.json', 'w').write('2')")[
        "metadata"] == 2


def test_metadata_out_of_memory(server):
    answer = ok(server, "from sdk import set_metadata\nset_metadata({'step': 1})\n"
                "a = bytearray(200 << 20)", mem_limit="100m")
    assert answer["exit_code"] == 137 and answer["metadata"] in ({"step": 1}, None)


def test_files_of_the_user_win_over_the_sdk(server):
    assert said(server, "import sdk; print(sdk.X)", files={"sdk.py": "X = 1"}) == "1\n"
    need(server, "go")
    code = 'package main\nimport ("fmt"; "own/sdk")\nfunc main() { fmt.Println(sdk.X) }\n'
    assert said(server, code, image="go", files={
        "go.mod": "module own\n", "sdk/x.go": "package sdk\nconst X = 3\n"}) == "3\n"


def test_files_of_a_flow(server):
    code = ("import http.server, threading, os, sdk\n"
            "class H(http.server.BaseHTTPRequestHandler):\n"
            "  def do_GET(s):\n"
            "    s.send_response(200 if s.path == '/dav/a/b' else 404); s.end_headers()\n"
            "    s.wfile.write('inhält'.encode())\n"
            "  def do_PUT(s):\n"
            "    print(s.path, s.rfile.read(int(s.headers['Content-Length'])))\n"
            "    s.send_response(201); s.end_headers()\n"
            "  def log_message(*a): pass\n"
            "try: sdk.load_file('x')\nexcept RuntimeError as e: print('flow' in str(e))\n"
            "h = http.server.HTTPServer(('127.0.0.1', 0), H)\n"
            "threading.Thread(target=h.serve_forever, daemon=True).start()\n"
            "os.environ['QM_WEBDAV_URL'] = 'http://127.0.0.1:%d/dav/' % h.server_port\n"
            "print(sdk.load_file('/a/b'))\nsdk.save_file('c', 'x')\n"
            "try: sdk.load_file('missing')\nexcept FileNotFoundError as e: print(e)\n")
    assert said(server, code) == "True\ninhält\n/dav/c b'x'\nmissing\n"


HOSTILE = {
    "a link to a file of the host": "os.symlink('/etc/passwd', F)",
    "a link to a file of ours": "open('x', 'w').write('{}'); os.symlink('/box/x', F)",
    "a link to itself": "os.symlink(F, F)",
    "a link to proc": "os.symlink('/proc/self/environ', F)",
    "a fifo": "os.mkfifo(F)",
    "a socket": "socket.socket(socket.AF_UNIX).bind(F)",
    "a directory": "os.mkdir(F); open(F + '/x', 'w').write('{}')",
    "a device": "os.symlink('/dev/zero', F)",
    "unreadable": "open(F, 'w').write('{}'); os.chmod(F, 0)",
    "nothing": "open(F, 'w')",
    "blank": "open(F, 'w').write(' \\n')",
    "no JSON": "open(F, 'w').write('{bad')",
    "two values": "open(F, 'w').write('{} {}')",
    "an injection": "open(F, 'w').write('null}, {\"stdout\": \"x\"')",
    "not UTF-8": "open(F, 'wb').write(b'\"\\xff\\xfe\"')",
    "a NUL byte": "open(F, 'wb').write(b'{}\\0')",
    "a byte order mark": "open(F, 'wb').write(b'\\xef\\xbb\\xbf{}')",
    "NaN": "open(F, 'w').write('NaN')",
    "deep": "open(F, 'w').write('[' * 100000 + ']' * 100000)",
    "deep and open": "open(F, 'w').write('{\"a\":' * 50000)",
    "wide": "open(F, 'w').write('[' + '0,' * 300000 + '0]')",
    "large": "open(F, 'w').write('\"' + 'x' * (2 << 20) + '\"')",
    "huge": "open(F, 'w').write('\"' + 'x' * (60 << 20) + '\"')",
    "sparse": "os.truncate(os.open(F, os.O_CREAT | os.O_RDWR), 200 << 20)",
    "duplicate keys": "open(F, 'w').write('{\"a\": 1, \"a\": 2}')",
}


@pytest.mark.parametrize("what", list(HOSTILE))
def test_hostile_metadata_is_none(server, what):
    answer = ok(server, "import os, socket\nF = %r\n%s\nprint('done')" % (FILE, HOSTILE[what]))
    assert answer["stdout"] == "done\n", answer
    assert answer["metadata"] is None and answer["exit_code"] == 0


def test_metadata_at_the_limits(server):
    deep = "[" * 64 + "]" * 64
    assert ok(server, "open(%r, 'w').write(%r)" % (FILE, deep))["metadata"] == json.loads(deep)
    big = ok(server, "open(%r, 'w').write('\"' + 'x' * 1000000 + '\"')" % FILE)
    assert big["metadata"] == "x" * 1000000


def test_many_files_beside_the_metadata(server):
    """Whatever the collector has to walk through: the run is answered."""
    answer = ok(server, "import os\nn = 0\ntry:\n  while n < 60000: os.mkdir('d%d' % n); n += 1\n"
                "except OSError: pass\nprint(n > 1000)", timeout=60)
    assert answer["stdout"] == "True\n" and answer["exit_code"] == 0
    assert ok(server, "import os\nfor i in range(200):\n  os.mkdir('d'); os.chdir('d')")[
        "exit_code"] == 0


def test_metadata_does_not_outlive_its_run(server):
    ok(server, "import sdk; sdk.set_metadata({'secret': 1})")
    assert ok(server, "import sdk; print(sdk.get_metadata())")["metadata"] is None


# Authentication


@pytest.fixture(scope="module")
def keyed():
    yield from serve(env={"AUTH_TOKEN": "the-token", "CODE_RUNNER_API_KEYS": " key-1 ,,key-2"})


GUARDED = [("POST", "/run"), ("POST", "/prebuild"), ("GET", "/prebuilds"),
           ("GET", "/prebuilds/x"), ("DELETE", "/prebuilds/x"), ("POST", "/prebuilds/cleanup")]


@pytest.mark.parametrize("headers", [
    {"X-API-Key": "key-1"}, {"X-API-Key": "key-2"}, {"Authorization": "Bearer the-token"},
    {"X-API-Key": "wrong", "Authorization": "Bearer the-token"},
    {"X-API-Key": "key-1", "Authorization": "Bearer wrong"},
    {"X-API-Key": "the-token"}, {"Authorization": "Bearer key-1"}])  # the last two: a departure
def test_right_keys(keyed, headers):
    assert run(keyed, "print(1)", headers=headers).json()["stdout"] == "1\n"


@pytest.mark.parametrize("headers,status", [
    ({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "the-token"}, 401),
    ({"Authorization": "Basic dGhlLXRva2Vu"}, 401), ({"Authorization": "Bearer"}, 401),
    ({"X-API-Key": "wrong"}, 403), ({"X-API-Key": "key-1,key-2"}, 403),
    ({"X-API-Key": "Key-1"}, 403), ({"X-API-Key": "wrong", "Authorization": "Bearer wrong"}, 403)])
def test_wrong_keys(keyed, headers, status):
    for method, path in GUARDED:
        reply = keyed(method, path, headers=headers)
        text = detail(reply, status)
        if status == 403:
            assert text == "Invalid API Key"
        else:
            assert text.startswith("Not authenticated") and "Bearer" in \
                reply.headers["WWW-Authenticate"]
        # On the native routes the same is 401.
        assert keyed("GET", "/v1/report", headers=headers).status == 401


def test_the_key_comes_before_the_body(keyed):
    """A departure: the original looks at the syntax of the body first."""
    for body in ("{bad", "[]", "", json.dumps({"code": 5}), "x" * 100000):
        detail(keyed("POST", "/run", body), 401)
        detail(keyed("POST", "/run", body, {"X-API-Key": "wrong"}), 403)
    detail(keyed("POST", "/prebuild", "{}"), 401)
    detail(keyed("POST", "/prebuilds/cleanup?max_age_days=x"), 401)
    assert keyed("POST", "/run", "{bad", {"X-API-Key": "key-1"}).status == 422


def test_what_needs_no_key(keyed):
    for path in ("/images", "/runtimes", "/health"):
        assert keyed("GET", path).status == 200
    assert keyed("GET", "/health").json()["auth_enabled"] is True


def test_without_keys_any_header_is_ignored(server):
    for headers in ({"X-API-Key": "x"}, {"Authorization": "Bearer x"}):
        assert run(server, "print(1)", headers=headers).status == 200


# Prebuilt images: the form of requests; test_compat_prebuild.py builds some


GOOD = {"tag": "my-scipy", "base_image": "python", "setup_script": "pip install scipy"}


@pytest.mark.parametrize("fields,loc,word", [
    ({"tag": ""}, "tag", "empty"), ({"tag": "  "}, "tag", "empty"),
    ({"tag": "prebuilt-"}, "tag", "empty"), ({"tag": "a b"}, "tag", "alphanumeric"),
    ({"tag": "../x"}, "tag", "alphanumeric"), ({"tag": "a/b"}, "tag", "alphanumeric"),
    ({"tag": "a\0"}, "tag", "alphanumeric"), ({"tag": "\u00fc"}, "tag", "alphanumeric"),
    ({"tag": "x" * 56}, "tag", "55"), ({"setup_script": "a\0"}, "setup_script", "NUL"),
    ({"setup_script": "#" * ((1 << 20) + 1)}, "setup_script", "1 MiB"),
    ({"base_image": "ruby"}, "base_image", "Unsupported base image"),
    ({"base_image": ""}, "base_image", "Unsupported base image"),
    ({"base_image": "prebuilt-x"}, "base_image", "Unsupported base image"),
    ({"base_image": "ubuntu:24.04"}, "base_image", "python, node, bun, go, deno, rust"),
    ({"base_image": "evil/python:3"}, "base_image", "Unsupported base image")])
def test_prebuild_values(server, fields, loc, word):
    item = the_problem(server("POST", "/prebuild", dict(GOOD, **fields)))
    assert item["type"] == "value_error" and item["loc"] == ["body", loc]
    assert item["msg"].startswith("Value error, ") and word in item["msg"]
    assert item["input"] == fields[loc] and item["ctx"] == {"error": {}}


def test_prebuild_shapes(server):
    assert [(p["type"], p["loc"]) for p in problems(server("POST", "/prebuild", {}))] == [
        ("missing", ["body", "tag"]), ("missing", ["body", "setup_script"])]
    assert the_problem(server("POST", "/prebuild", dict(GOOD, base_image=None)))["type"] == \
        "string_type"
    assert the_problem(server("POST", "/prebuild", "{"))["type"] == "json_invalid"
    assert the_problem(server("POST", "/prebuild"))["loc"] == ["body"]


def test_cleanup_values(server):
    item = the_problem(server("POST", "/prebuilds/cleanup?max_age_days=abc"))
    assert item == {"type": "int_parsing", "loc": ["query", "max_age_days"], "input": "abc",
                    "msg": WHOLE + ", unable to parse string as an integer"}
    item = the_problem(server("POST", "/prebuilds/cleanup?max_age_days=-1"))
    assert item == {"type": "greater_than_equal", "loc": ["query", "max_age_days"],
                    "msg": "Input should be greater than or equal to 0", "input": "-1",
                    "ctx": {"ge": 0}}


# The page


def test_every_curl_line_of_the_page_works(server):
    text = (ROOT / "docs/compat-runner.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```\n\n```json\n(.*?)```", text, re.S)
    assert len(blocks) >= 4
    for script, want in blocks:
        script = script.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % server.port)
        got = subprocess.run(["bash", "-euc", script], capture_output=True, text=True,
                             timeout=60 * SLOW)
        assert got.returncode == 0, (script, got.stderr)
        got, want = json.loads(got.stdout), json.loads(want)
        for name in {"execution_time", "size_bytes", "layer_size_bytes"} & set(want):
            got[name] = want[name]
        assert got == want or "images" in want, script


def test_the_page_names_every_route_and_setting(server):
    text = (ROOT / "docs/compat-runner.md").read_text()
    for path in ("/run", "/health", "/runtimes", "/images", "/prebuild", "/prebuilds",
                 "/prebuilds/{tag}", "/prebuilds/cleanup"):
        assert "%s`" % path in text, path
        assert path in server("GET", "/openapi.json").json()["paths"]
    for name in ("DEFAULT_TIMEOUT", "MAX_TIMEOUT", "DEFAULT_MEMORY", "MAX_MEMORY_MB", "DEFAULT_DISK",
                 "MAX_DISK_MB", "DEFAULT_CPU_SHARES", "MAX_CPU_CORES", "DEFAULT_ALLOW_NETWORK",
                 "DOCKER_SOCKET", "AUTH_TOKEN", "CODE_RUNNER_API_KEYS", "CLEANUP_INTERVAL_HOURS",
                 "CLEANUP_MAX_AGE_DAYS"):
        assert "`%s`" % name in text, name
