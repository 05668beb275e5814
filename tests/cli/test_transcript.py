# SPDX-License-Identifier: Apache-2.0
"""What a new user sees: one test per finding of the review of the command line."""
import json
import os
import re
import signal

import pytest

from apilib import ROOT, descendants, name_of, wait_until


@pytest.mark.parametrize("args, said", [
    # the error names the option, the cause and the next step
    (["run", "a.xyz"], "hermes run: cannot tell the language of a.xyz from its name; use -l LANGUAGE (see `hermes runtimes`)"),
    (["run", "plain"], "hermes run: cannot tell the language of plain from its name; use -l LANGUAGE (see `hermes runtimes`)"),
    (["judge", ".", "a.xyz"], "hermes judge: cannot tell the language of a.xyz from its name; use -l LANGUAGE (see `hermes runtimes`)"),
    (["run", "--memory", "64", "h.py"], "hermes run: --memory 64 means 64 bytes; the least is 4m. Did you mean 64m?"),
    (["run", "--memory", "99g", "h.py"], "hermes run: --memory 99g: it must be from 4m to 16g"),
    (["run", "--time", "0", "h.py"], "hermes run: --time 0: not a duration above zero such as 2s or 500ms"),
    (["run", "--cpus", "many", "h.py"], "hermes run: --cpus many: not a number above zero such as 4"),
    (["run", "--disk", "512m", "--memory", "64m", "h.py"],
     "hermes run: --disk 512m is larger than --memory 64m, but the files of a box live in its memory; raise --memory"),
    (["run"], "hermes run: missing argument FILE (use - to read the program from standard input)"),
    (["run", "--time"], "hermes run: --time needs a value"),
    (["run", "-l"], "hermes run: -l needs a value"),
    (["run", "-Z", "h.py"], "hermes run: unknown option -Z"),
    (["run", "--json=1", "h.py"], "hermes run: --json takes no value"),
    (["verify"], "hermes verify: missing argument ANSWER (use - to read it from standard input)"),
    (["judge", "."], "hermes judge: missing argument SOLUTION"),
    (["session", "exec"], "hermes session exec: missing argument; usage: hermes session exec [OPTION...] ID [FILE|-]"),
    (["session", "new", "--idle", "soon"], "hermes session: --idle soon: not a duration such as 500ms, 30s, 5m or 2h"),
    (["session", "new", "--memory", "64"], "hermes session: --memory 64 means 64 bytes; the least is 4m. Did you mean 64m?"),
    (["session", "rm", "../x"], "hermes session: ID: `../x` is not a session id; `hermes session ls` lists your sessions"),
    # did you mean
    (["run", "-l", "pyton", "h.py"], "hermes run: unknown language \"pyton\"; did you mean \"python\"?"),
    (["run", "-l", "zzzzzz", "h.py"], "hermes run: unknown language \"zzzzzz\"; `hermes runtimes` lists all languages"),
    (["rnu"], "hermes: unknown command `rnu`; did you mean `run`?"),
    (["help", "doctr"], "hermes: unknown command `doctr`; did you mean `doctor`?"),
    (["run", "--jsn", "h.py"], "hermes run: unknown option --jsn; did you mean --json?"),
    (["bench", "--zzzzzzzz"], "hermes bench: unknown option --zzzzzzzz"),
    (["serve", "--prot", "1"], "hermes serve: flag: --prot: unknown setting; did you mean port?"),
    (["session", "nwe"], "hermes session: unknown command `nwe`; did you mean `new`?"),
    (["session", "fles"], "hermes session: unknown command `fles`; did you mean `files`?"),
    (["session", "files", "lss"], "hermes session: unknown command `files lss`; did you mean `files ls`?"),
    (["session", "files", "zzzz"], "hermes session: unknown command `files zzzz`; `hermes session files --help` lists them"),
    (["session", "files"], "hermes session: missing command after `files`; `hermes session files --help` lists them"),
    (["approvals", "aprove"], "hermes approvals: unknown command `aprove`; did you mean `approve`?"),
    (["approvals", "zzzz"], "hermes approvals: unknown command `zzzz`; `hermes approvals --help` lists them"),
    (["approvals"], "hermes approvals: missing command; `hermes approvals --help` lists them"),
    (["session", "new", "--nmae", "x"], "hermes session new: unknown option --nmae; did you mean --name?"),
    (["run", "--color", "red", "h.py"], "hermes run: --color red: one of auto, always, never"),
])
def test_errors(hermes, work, args, said):
    (work / "a.xyz").write_text("x")
    (work / "plain").write_text("x")
    (work / "h.py").write_text("print(1)")
    (work / "1.in").write_text("")
    (work / "1.out").write_text("")
    done = hermes(*args)
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (2, "", said)


def test_a_failed_compilation(hermes, work):
    (work / "bad.c").write_text("int main( {")
    done = hermes("run", "bad.c")
    assert done.returncode == 1 and "error: expected" in done.stderr
    assert done.stderr.splitlines()[-1] == "hermes run: compilation failed (gcc exited with status 1)"


def test_an_option_after_the_file(hermes, work):
    """It goes to the program, as documented. A person is told; a pipe is not."""
    (work / "h.py").write_text("import sys; print(sys.argv[1:])")
    t = hermes.terminal("run", "h.py", "--time", "2s")
    assert t.end() == 0
    assert "warning: --time stands after FILE and goes to the program; put options before FILE" in t.seen
    assert "['--time', '2s']" in t.seen
    done = hermes("run", "h.py", "--time", "2s")
    assert (done.stdout, done.stderr) == ("['--time', '2s']\n", "")
    assert "everything after FILE goes to the program" in " ".join(hermes("run", "--help").stdout.split())


def test_json_errors(hermes, work):
    """--json: the error is on stdout too, with the same exit status."""
    for args, code, field in (
            (["run", "--json", "--memory", "64", "h.py"], "invalid_request", "--memory"),
            (["run", "--jsn", "--json", "h.py"], "invalid_request", None),
            (["run", "--json", "h.py"], "not_found", None),
            (["judge", "--json", "nowhere", "h.py"], "not_found", None),
            (["bench", "--json", "-l", "cobol"], "invalid_request", None),
            (["session", "ls", "--json", "--unix", "/nonexistent"], "unavailable", None)):
        done = hermes(*args)
        error = json.loads(done.stdout)["error"]
        assert error["code"] == code and error["message"] in done.stderr and error.get("field") == field, done
        assert done.returncode == (125 if code == "unavailable" else 2)
    (work / "args.py").write_text("import sys; print(sys.argv[1:])")
    assert hermes("run", "args.py", "--json").stdout == "['--json']\n"  # the program's own
    assert json.loads(hermes("run", "--json", "args.py").stdout)["status"] == "ok"


def test_colours(hermes, work):
    (work / "1.in").write_text("")
    (work / "1.out").write_text("hi\n")
    (work / "s.sh").write_text("echo hi\n")
    escape = "\x1b["
    for args in (["doctor"], ["judge", ".", "s.sh"], ["run", "nothing.py"]):
        assert escape not in hermes(*args).stdout + hermes(*args).stderr
        for extra, wanted in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            t = hermes.terminal(*args, **extra)
            t.end()
            assert ("\x1b[3" in t.seen) == wanted, (args, extra, t.seen)
    t = hermes.terminal("doctor", "--color", "never")
    t.end()
    assert escape not in t.seen
    assert escape in hermes("doctor", "--color", "always").stdout
    assert "\x1b[32maccepted" in hermes("judge", "--color=always", ".", "s.sh").stdout


# The compiler works long enough to be found and stopped.
SLOW_TO_COMPILE = """#include <cstdio>
constexpr long f() { long x = 0; for (int i = 0; i < 10; i++) for (int k = 0; k < 25000; k++) x += i ^ k; return x; }
constexpr long a = f();
int main() { std::printf("%ld\\n", a); }
"""


def test_progress(hermes, work):
    """A line appears on a terminal while nothing else happens, and is gone before the output."""
    def compilers():
        return [pid for pid in descendants(t.pid) if name_of(pid) == "cc1plus"]
    (work / "s.cpp").write_text(SLOW_TO_COMPILE)
    t = hermes.terminal("run", "--no-cache", "s.cpp")
    assert wait_until(compilers)
    compiler, = compilers()
    os.kill(compiler, signal.SIGSTOP)
    t.until("compiling s.cpp … ")
    os.kill(compiler, signal.SIGCONT)
    assert t.end() == 0
    assert re.search(r"compiling s\.cpp … \d+\.\d s", t.seen), t.seen
    last = t.seen.rindex("\r\x1b[K")
    assert "compiling" not in t.seen[last:] and re.search(r"\d+\r\n$", t.seen[last:]), t.seen
    done = hermes("run", "--no-cache", "s.cpp")
    assert done.returncode == 0 and done.stderr == ""


def test_the_table_of_a_judgement(hermes, work):
    """No trailing blanks; a long message stays on its line of a terminal."""
    (work / "1.in").write_text("")
    (work / "2.in").write_text("")
    (work / "checker.py").write_text("import sys\nsys.stderr.write('word ' * 60); sys.exit(1)")
    (work / "s.sh").write_text("echo hi\n")
    t = hermes.terminal("judge", ".", "s.sh")
    assert t.end() == 1
    plain = re.sub("\x1b\\[[0-9;]*[mK]", "", t.seen).replace("\r\n", "\n")
    rows = [line for line in plain.splitlines() if "wrong_answer" in line and "KiB" in line]
    assert len(rows) == 2 and all(len(row.split("\r")[-1]) <= 80 and "word" in row for row in rows), plain
    (work / "checker.py").unlink()
    (work / "1.out").write_text("hi\n")
    (work / "2.out").write_text("hi\n")
    done = hermes("judge", ".", "s.sh")
    assert done.returncode == 0 and not re.search(r" +$", done.stdout, re.M), done.stdout


def test_collected_files(hermes, work):
    """A file that cannot be written decides the exit status, also when the last one can; the others are brought."""
    (work / "make.sh").write_text("echo a > a.out; echo b > b.out")
    (work / "hermes-out" / "a.out").mkdir(parents=True)
    done = hermes("run", "--collect", "*.out", "make.sh")
    assert done.returncode == 2 and "a.out not collected" in done.stderr, done
    assert (work / "hermes-out" / "b.out").read_text() == "b\n"
    (work / "make.sh").write_text("echo a > a.out; exit 7")
    assert hermes("run", "--collect", "*.out", "make.sh").returncode == 7  # the program's own failure comes first


def test_help(hermes):
    """Every command has help of its own with an exit status; groups list their commands."""
    listed = re.findall(r"^  ([a-z]+) ", hermes("help").stdout, re.M)
    assert set(listed) >= {"run", "judge", "serve", "session", "doctor", "completion"}
    for command in listed:
        if command in ("version", "help"):
            continue
        for args in ([command, "--help"], ["help", command]):
            done = hermes(*args)
            assert done.returncode == 0 and done.stdout.startswith("usage: hermes %s" % command), done
        assert "Exit status" in done.stdout, command
    for command in ("new", "exec", "repl", "files ls", "files put", "checkpoint rm"):
        done = hermes("session", *command.split(), "--help")
        assert done.stdout.startswith("usage: hermes session %s [OPTION...]" % command)
        assert hermes("help", "session", *command.split()).stdout == done.stdout
    assert "--idle" in hermes("session", "new", "--help").stdout and "--idle" not in hermes("session", "ls", "--help").stdout
    group = hermes("session", "files", "--help").stdout
    assert "files get ID" in group and "repl" not in group
    everything = hermes("session", "--help").stdout
    assert "files ls" in everything and "ls-files" not in everything  # earlier names work, but are not shown


def test_help_is_laid_out(hermes):
    """Lines end within 80 columns and without spaces. What continues a row stands below the text of the row."""
    rows = 0
    for words in ([], ["session"], ["session", "new"], ["session", "files"], ["approvals"], ["run"], ["mcp"], ["backends"], ["serve"],
                  ["image"]):
        lines = hermes(*words, "--help").stdout.split("\n")
        assert not [line for line in lines if len(line) > 79 or line != line.rstrip()], words
        for row, after in zip(lines, lines[1:]):
            text = re.match(r" +\S.*?  +(?=\S)", row)
            if text and after and not re.match(r"  \S|      --", after):
                rows += 1
                column = min(text.end(), 29)
                assert after.startswith(" " * column) and after[column] != " ", (row, after)
    assert rows > 20


def test_groups_and_earlier_names(hermes, server, work):
    env = {"HERMES_UNIX": str(server.unix)}
    one = hermes("session", "new", **env).stdout.strip()
    (work / "f").write_text("hello")
    for put, ls, get, rm in ((["files", "put"], ["files", "ls"], ["files", "get"], ["files", "rm"]),
                             (["put"], ["ls-files"], ["get"], ["rm-file"])):
        assert hermes("session", *put, one, "f", **env).returncode == 0
        assert "f" in hermes("session", *ls, one, **env).stdout.split()
        assert hermes("session", *get, one, "f", "-", **env).stdout == "hello"
        assert hermes("session", *rm, one, "f", **env).returncode == 0
        assert hermes("session", *ls, one, **env).stdout == ""
    for ls in (["checkpoint", "ls"], ["checkpoints"]):
        assert hermes("session", *ls, one, **env).returncode == 0
    missing = hermes("session", "checkpoint", "rm", one, "none", **env)
    assert missing.returncode in (2, 125) and missing.stderr
    assert hermes("session", "--unix", server.unix, "ls").returncode == 0  # options before the command


def sessions_of(server):
    return server("GET", "/v1/sessions").json()["sessions"]


def test_the_prompt_greets_and_leaves(hermes, server):
    for word in ("exit", "quit", "\x04"):
        t = hermes.terminal("session", "repl", HERMES_UNIX=str(server.unix))
        t.until(">>> ")
        greeting = re.search(r"python(\x1b\[0m)? ?[\d.]*(\x1b\[0m)? in session (ses_\w+)\. Ctrl-C interrupts, Ctrl-D or `exit` leaves and ends the session",
                             t.seen)
        assert greeting and greeting[3] == sessions_of(server)[0]["id"], t.seen
        t.type(word + ("" if word == "\x04" else "\r"))
        assert t.end() == 0
        assert sessions_of(server) == []
    one = hermes("session", "new", HERMES_UNIX=str(server.unix)).stdout.strip()
    t = hermes.terminal("session", "repl", one, HERMES_UNIX=str(server.unix))
    t.until(">>> ")
    t.type("exit\r")
    assert t.end() == 0
    assert [s["id"] for s in sessions_of(server)] == [one]  # it was there before


def test_a_closed_terminal_ends_the_session(hermes, server):
    """Eight times at the prompt: libedit's handler of SIGCONT once crashed the program, one time in ten."""
    for code in (None,) * 8 + ("import time; time.sleep(600)\r",):
        t = hermes.terminal("session", "repl", HERMES_UNIX=str(server.unix))
        t.until(">>> ")
        assert len(sessions_of(server)) == 1
        if code:
            t.type(code)
            assert wait_until(lambda: sessions_of(server)[0]["state"] == "busy")
        os.close(t.fd)  # the kernel sends SIGHUP
        t.fd = -1
        assert wait_until(lambda: sessions_of(server) == []), sessions_of(server)
        t.status = os.waitstatus_to_exitcode(os.waitpid(t.pid, 0)[1])


def test_serve_on_a_terminal(hermes, shared_state):
    t = hermes.terminal("serve", "--port", "0", HERMES_STATE_DIR=str(shared_state / "serve"))
    t.until("try  ", seconds=120)
    assert re.search(r"Hermes [\d.]+ is ready \(isolation: \w+\)\. Ctrl-C stops it\.", t.seen), t.seen
    port = re.search(r"listens on  http://127\.0\.0\.1:(\d+)", t.seen)[1]
    assert "API keys    none" in t.seen and "hermes run --url http://127.0.0.1:%s" % port in t.seen
    assert re.search(r"\d\d:\d\d:\d\d info  listening address=127\.0\.0\.1", t.seen) and '{"time"' not in t.seen
    done = hermes("run", "--url", "http://127.0.0.1:" + port, "-l", "bash", "-", stdin="echo there")
    assert (done.returncode, done.stdout) == (0, "there\n"), done
    t.type("\x03")
    assert t.end() == 0


def test_serve_on_a_pipe(server):
    assert all(json.loads(line)["level"] for line in server.logs().splitlines())


def test_a_busy_server(hermes, make_server, work):
    """The numbers are true, and the next step is said; the exit status is that of a failure of Hermes."""
    server = make_server(args=["--concurrency", "1", "--queue", "1"])
    (work / "h.py").write_text("print(1)")
    first = server.run("bash", "sleep 600", **{"async": True}).json()["id"]
    assert wait_until(lambda: server("GET", "/v1/runs/" + first).json()["status"] == "running")
    second = server.run("bash", "sleep 600", **{"async": True}).json()["id"]
    assert wait_until(lambda: server("GET", "/v1/status").json()["queue"]["waiting"] == 1)
    for args in (["run", "--unix", server.unix, "h.py"], ["run", "--unix", server.unix, "--json", "h.py"]):
        done = hermes(*args)
        said = re.fullmatch(r"hermes run: the server is busy: 1 running, 1 waiting; try again in (\d+) s", done.stderr.strip())
        assert done.returncode == 125 and said and int(said[1]) >= 1, done
    assert json.loads(done.stdout)["error"]["code"] == "busy"
    for run in (second, first):
        assert server("DELETE", "/v1/runs/" + run).status == 202
    assert wait_until(lambda: hermes("run", "--unix", server.unix, "h.py").stdout == "1\n")


def test_the_first_screen_of_the_readme(hermes, work):
    """One sentence, one picture, how to install, the demo, three rows of what is different, links: in this order."""
    text = (ROOT / "README.md").read_text()
    title, sentence, picture = text.split("\n\n")[:3]
    assert title == "# Hermes" and sentence.count(".") == 1 and "\n" not in sentence
    assert picture.startswith("![") and picture.endswith("(docs/picture.svg)")
    order = [text.index(part) for part in ("(docs/picture.svg)", "\n## Install", "(docs/demo.svg)", "\n## What makes it different",
                                           "\n## Documentation")]
    assert order == sorted(order)
    install = text[order[1]:order[2]]
    for way in ("tools/install-deps.sh build && make", "docker build", "systemd"):
        assert way in install, way
    code, printed = re.search(r"^echo '(.*)' \| build/hermes run -l python - +# prints (.*)$", install, re.M).groups()
    assert hermes("run", "-l", "python", "-", stdin=code).stdout == printed + "\n"
    different = text[order[3]:order[4]].split("\n## ")[1]
    assert len(re.findall(r"^\| \*\*", different, re.M)) == 3
    assert len(re.findall(r"\]\(docs/[\w-]+\.md\)", text[order[4]:])) >= 10


def test_a_run_on_a_server(hermes, server, work):
    """The same output with --url, --unix or $HERMES_URL; tests/cli/test_remote_run.py has the details."""
    (work / "h.py").write_text("print('here')")
    wanted = (0, "here\n", "")
    url = "http://127.0.0.1:%d" % server.port
    for args, env in (([], {}), (["--url", url], {}), (["--unix", server.unix], {})):
        done = hermes("run", *args, "h.py", **env)
        assert (done.returncode, done.stdout, done.stderr) == wanted, done


# Each row of the review's table of the command line, and the test that has it.
ROWS = {
    "the language of a.xyz is not known": test_errors,
    "-l pyton": test_errors,
    "--memory 64": test_errors,
    "a compile error": test_a_failed_compilation,
    "an option after FILE": test_an_option_after_the_file,
    "--jsn": test_errors,
    "serve on a terminal": test_serve_on_a_terminal,
    "the prompt greets, exit leaves": test_the_prompt_greets_and_leaves,
    "a closed terminal": test_a_closed_terminal_ends_the_session,
    "silence of more than half a second": test_progress,
    "colours": test_colours,
    "help per command": test_help,
    "groups of commands": test_groups_and_earlier_names,
    "runs on a server": test_a_run_on_a_server,
    "errors with --json": test_json_errors,
    "a busy server": test_a_busy_server,
    "the table of a judgement": test_the_table_of_a_judgement,
    "the first screen of the README": test_the_first_screen_of_the_readme,
}


def test_every_row_has_a_test():
    assert len(ROWS) == 18 and set(map(callable, ROWS.values())) == {True}
