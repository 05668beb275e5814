# SPDX-License-Identifier: Apache-2.0
"""hermes run --url: the same output, files and exit status as on this host."""
import json
import signal
import subprocess

import pytest

from apilib import HERMES, wait_until

PROGRAMS = {
    "hello.py": "print('hello')",
    "both.sh": "echo out; echo err >&2; exit 3",
    "args.py": "import sys, os; print(sys.argv[1:], os.environ['A'], sys.stdin.read())",
    "bytes.py": "import sys; sys.stdout.buffer.write(bytes(range(256)))",
    "killed.py": "import os; os.kill(os.getpid(), 11)",
    "slow.sh": "sleep 60",
    "bad.c": "int main( {",
    "good.c": "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 5; }",
    "files.py": "import os; os.mkdir('d'); open('d/x.out', 'w').write('collected'); print(open('more.txt').read())",
    "shebang": "#!/usr/bin/env python3\nprint('by its first line')",
    "flood.sh": "yes",
}
COMMANDS = [
    ["hello.py"], ["both.sh"], ["-e", "A=b c", "args.py", "x", "--time"], ["bytes.py"], ["killed.py"], ["--time", "300ms", "slow.sh"],
    ["bad.c"], ["good.c"], ["-f", "more.txt", "--collect", "**/*.out", "--out", "OUT", "files.py"], ["shebang"],
    ["--output", "64k", "--time", "5s", "flood.sh"], ["-l", "python", "-"], ["a.xyz"], ["nowhere.py"],
]


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[-1] if len(args) == 1 else " ".join(args[-2:]))
def test_as_on_this_host(hermes, server, work, args):
    for name, text in PROGRAMS.items():
        (work / name).write_text(text)
    (work / "more.txt").write_text("beside")
    (work / "a.xyz").write_text("x")
    ended = []
    for where in ([], ["--unix", server.unix]):
        out = work / ("there" if where else "here")
        done = subprocess.run([str(HERMES), "run", *map(str, where), *[str(out) if a == "OUT" else a for a in args]], cwd=work, env=hermes.env,
                              input=b"print('from stdin')", capture_output=True, timeout=120)
        files = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}
        ended.append((done.returncode, done.stdout, done.stderr, files))
    here, there = ended
    assert there == here
    assert here[0] or here[1]


def test_json(hermes, server, work):
    (work / "hello.py").write_text("print('hello')")
    done = hermes("run", "--unix", server.unix, "--json", "hello.py")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"], answer["stdout"]) == (0, "ok", "hello\n")
    assert server("GET", "/v1/runs/" + answer["id"]).status == 200  # it did run there
    done = hermes("run", "--unix", server.unix, "--json", "--cpus", "0.01", "hello.py")
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["field"] == "--cpus"


def test_address_and_key(make_server, hermes, work):
    server = make_server(env={"HERMES_API_KEYS": "alice"})
    (work / "hello.py").write_text("print('hello')")
    url = "http://127.0.0.1:%d" % server.port
    done = hermes("run", "--url", url, "hello.py")
    assert done.returncode == 2 and "HERMES_API_KEY" in done.stderr
    assert hermes("run", "--url", url, "hello.py", HERMES_API_KEY="alice").stdout == "hello\n"
    answer = json.loads(hermes("run", "--json", "hello.py", HERMES_URL=url, HERMES_API_KEY="alice").stdout)
    assert server("GET", "/v1/runs/" + answer["id"], key="alice").status == 200  # it did run there
    answer = json.loads(hermes("run", "--json", "hello.py", HERMES_API_KEY="alice").stdout)
    assert server("GET", "/v1/runs/" + answer["id"], key="alice").status == 404  # and this one here
    done = hermes("run", "--url", "http://127.0.0.1:1", "hello.py")
    assert done.returncode == 125 and "is `hermes serve` running there?" in done.stderr
    for option in (["--ro", "."], ["--rw", "."], ["--min-level", "process"], ["--no-cache"]):
        done = hermes("run", "--url", url, *option, "hello.py")
        assert done.returncode == 2 and "works on this host only" in done.stderr


def test_ctrl_c(hermes, server, work):
    (work / "slow.sh").write_text("echo begun; sleep 600")
    process = subprocess.Popen([str(HERMES), "run", "--unix", str(server.unix), "--time", "500s", "slow.sh"], cwd=work, env=hermes.env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert wait_until(lambda: server.running() == 0)
