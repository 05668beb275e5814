# SPDX-License-Identifier: Apache-2.0
"""`hermes run` from outside: streams, statuses, limits, files, bad input, signals in the middle."""
import base64
import ctypes
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time

import pytest

from runlib import ASAN, HERMES, ROOT, SPAWN, Hermes, one_line, slack, state_listing, wait_until

MIB = 1 << 20


# ---------------------------------------------------------------- streams

def test_stdin_is_passed_through(hermes):
    r = hermes.py("import sys; print(sys.stdin.read().upper())", stdin=b"hello")
    assert (r.status, r.out, r.err) == (0, b"HELLO\n", "")


def test_stdin_empty_and_closed(hermes):
    code = "import sys; print(repr(sys.stdin.read()))"
    assert hermes.py(code).out == b"''\n"
    r = hermes.py(code, stdin=None, pre=lambda: os.close(0))
    assert (r.status, r.out) == (0, b"''\n"), r


def test_all_standard_descriptors_closed(hermes):
    """Descriptors 0, 1 and 2 closed by the caller: nothing of Hermes may land on them."""
    def close_all():
        for fd in (0, 1, 2):
            os.close(fd)
    out = hermes.work / "shared"
    out.mkdir()
    out.chmod(0o777)
    r = hermes.sh("ls -l /proc/self/fd > /mnt/shared/fds; echo text; exit 4",
                  flags=["--rw", out], pre=close_all)
    assert r.status == 4, r
    fds = re.findall(r" (\d+) -> (\S+)", (out / "fds").read_text())
    assert {n for n, _ in fds} <= {"0", "1", "2", "3"}
    assert not any("socket" in to for _, to in fds), fds


def test_large_stdin_and_output(hermes):
    data = os.urandom(10 * MIB)
    r = hermes.py("import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)",
                  flags=["--output", "11m", "--time", "60s"], stdin=data)
    assert r.status == 0 and r.out == data


def test_large_stdin_that_nobody_reads(hermes):
    r = hermes.py("print('done')", stdin=b"x" * (10 * MIB))
    assert (r.status, r.out) == (0, b"done\n"), r


def test_slow_stdin(hermes):
    p = hermes.start(["run", hermes.file(
        "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)", "main.py")])
    for word in (b"one", b"two"):
        time.sleep(0.15)
        p.stdin.write(word + b"\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"got " + word + b"\n"
    out, err = p.communicate()
    assert (p.returncode, out, err) == (0, b"", b"")


def test_stdin_open_does_not_hold_the_end(hermes):
    """The program ends while the caller keeps stdin open."""
    p = hermes.start(["run", hermes.file("print('end')", "main.py")])
    assert p.wait(30) == 0
    assert p.stdout.read() == b"end\n"
    p.communicate()


def test_output_is_streamed(hermes):
    p = hermes.start(["run", hermes.file(
        "import time; print('first', flush=True); time.sleep(30)", "main.py")])
    assert p.stdout.readline() == b"first\n"
    p.send_signal(signal.SIGTERM)
    p.communicate()
    assert p.returncode == 128 + signal.SIGTERM


def test_stderr_is_separate(hermes):
    r = hermes.sh("echo out; echo err >&2; exit 7")
    assert (r.status, r.out, r.err) == (7, b"out\n", "err\n")


def test_dev_stdout_and_stderr_by_name(hermes):
    r = hermes.sh("echo a > /dev/stdout; echo b > /dev/stderr; cat /dev/stdin", stdin=b"c")
    assert (r.status, r.out, r.err) == (0, b"a\nc", "b\n")


def test_binary_output(hermes):
    code = "import sys; sys.stdout.buffer.write(bytes([0, 255, 0x41, 0xc3, 0x28, 0xe2, 0x82]))"
    raw = bytes([0, 255, 0x41, 0xc3, 0x28, 0xe2, 0x82])
    assert hermes.py(code).out == raw
    answer = hermes.py(code, flags=["--json"]).json()
    assert answer["stdout"] == "\0\N{REPLACEMENT CHARACTER}A\N{REPLACEMENT CHARACTER}(" \
        "\N{REPLACEMENT CHARACTER}"
    answer = hermes.py(code, flags=["--json", "--base64"]).json()
    assert base64.b64decode(answer["stdout"]) == raw


def test_code_from_stdin(hermes):
    r = hermes("run", "-l", "python", "-", "a", "b",
               stdin=b"import sys; print(sys.argv[1:], repr(sys.stdin.read()))")
    assert (r.status, r.out) == (0, b"['a', 'b'] ''\n"), r


def test_shebang_tells_the_language(hermes):
    r = hermes("run", hermes.file("#!/usr/bin/env python3\nprint('py')\n", "script"))
    assert (r.status, r.out) == (0, b"py\n"), r


def test_arguments_and_environment(hermes):
    args = ["a b", "", "--flag", "*", "$(id)", "ü", "-l"]
    r = hermes.py("import sys, os, json; print(json.dumps([sys.argv[1:], os.environ['X y'[0]],"
                  " sorted(os.environ)]))", *args, flags=["-e", "X=1=2 3", "-e", "LANG=C.UTF-8"],
                  env={"SECRET_OF_CALLER": "s"})
    assert r.status == 0, r
    argv, value, names = json.loads(r.out)
    assert argv == args and value == "1=2 3"
    assert "SECRET_OF_CALLER" not in names and not [n for n in names if n.startswith("HERMES")]


# ---------------------------------------------------------------- statuses

@pytest.mark.parametrize("code", [0, 3, 124, 125, 137, 255])
def test_exit_status_is_the_programs(hermes, code):
    r = hermes.sh("exit %d" % code)
    assert (r.status, r.err) == (code, ""), r
    answer = hermes.sh("exit %d" % code, flags=["--json"]).json()
    assert answer["status"] == ("ok" if code == 0 else "runtime_error")
    assert answer["exit_code"] == code and answer["signal"] is None
    assert answer["limits_hit"] == []


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGTERM", "SIGABRT", "SIGPIPE",
                                  "SIGXCPU", "SIGSYS", "SIGRTMIN"])
def test_signal_of_its_own(hermes, name):
    number = getattr(signal, name)
    code = "import os, signal; signal.signal(%d, signal.SIG_DFL) if %d != 9 else 0;" \
           "os.kill(os.getpid(), %d)" % (number, number, number)
    r = hermes.py(code)
    assert r.status == 128 + number, r
    assert name in one_line(r.err)
    answer = hermes.py(code, flags=["--json"]).json()
    assert (answer["status"], answer["signal"]) == ("signaled", name)
    assert answer["exit_code"] is None and answer["limits_hit"] == []


def test_answer_has_every_field(hermes):
    answer = hermes.py("print(2)", flags=["--json"]).json()
    assert sorted(answer) == sorted([
        "id", "status", "exit_code", "signal", "limits_hit", "message", "stdout", "stderr",
        "stdout_truncated", "stderr_truncated", "compile", "usage", "files", "isolation", "network"])
    assert re.fullmatch(r"run_[0-9a-z]+", answer["id"])
    assert sorted(answer["usage"]) == sorted(
        ["wall_ms", "cpu_ms", "memory_peak_kb", "queue_ms", "setup_ms"])
    assert answer["isolation"]["level"] in ("full", "strong")
    assert answer["usage"]["wall_ms"] > 0 and answer["usage"]["memory_peak_kb"] > 1000


# ---------------------------------------------------------------- limits

def test_wall_limit(hermes):
    r = hermes.sh("echo before; sleep 30", flags=["--time", "300ms"])
    assert (r.status, r.out) == (124, b"before\n"), r
    assert "wall time limit of 300 ms" in one_line(r.err)
    answer = hermes.sh("echo before; sleep 30", flags=["--json", "--time", "300ms"]).json()
    assert (answer["status"], answer["limits_hit"]) == ("time_limit", ["wall"])
    assert answer["exit_code"] is None and answer["signal"] is None
    assert answer["stdout"] == "before\n" and answer["usage"]["wall_ms"] >= 300


def test_cpu_limit(hermes):
    code = "while True: pass"
    r = hermes.py(code, flags=["--cpu", "200ms", "--time", "60s"])
    assert r.status == 124 and "CPU time limit of 200 ms" in one_line(r.err)
    answer = hermes.py(code, flags=["--json", "--cpu", "200ms", "--time", "60s"]).json()
    assert (answer["status"], answer["limits_hit"]) == ("time_limit", ["cpu"])
    assert answer["usage"]["cpu_ms"] >= 200


def test_cpu_limit_counts_all_processes(hermes):
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    answer = hermes.py(code, flags=["--json", "--cpu", "400ms", "--time", "60s"]).json()
    assert (answer["status"], answer["limits_hit"]) == ("time_limit", ["cpu"])


def test_sleeping_costs_no_cpu(hermes):
    answer = hermes.sh("sleep 0.5", flags=["--json", "--cpu", "400ms", "--time", "60s"]).json()
    assert answer["status"] == "ok", answer


def test_memory_limit(hermes):
    code = "x = b'1' * (200 << 20)\nprint('no')"
    r = hermes.py(code, flags=["--memory", "64m"])
    assert (r.status, r.out) == (137, b""), r
    assert "memory limit of 64 MiB" in one_line(r.err)
    answer = hermes.py(code, flags=["--json", "--memory", "64m"]).json()
    assert (answer["status"], answer["limits_hit"]) == ("memory_limit", ["memory"])
    assert answer["signal"] is None and answer["exit_code"] is None


def test_memory_limit_in_a_child_is_the_boxs(hermes):
    """The first process would survive the death of its child; the box does not."""
    code = "import os, time\npid = os.fork()\nif pid == 0: x = b'1' * (200 << 20)\n" \
           "os.waitpid(pid, 0); time.sleep(20); print('survived')"
    answer = hermes.py(code, flags=["--json", "--memory", "64m"]).json()
    assert answer["status"] == "memory_limit" and answer["stdout"] == "", answer


def test_files_count_as_memory(hermes):
    answer = hermes.sh("head -c 60m /dev/zero > /tmp/a; head -c 60m /dev/zero > /box/b; echo no",
                       flags=["--json", "--memory", "80m", "--disk", "80m"]).json()
    assert answer["status"] == "memory_limit", answer


@pytest.mark.parametrize("stream", [1, 2])
def test_output_at_the_cap_and_past_it(hermes, stream):
    name = {1: "stdout", 2: "stderr"}[stream]
    code = "import os, sys\nn = int(sys.argv[1])\nwhile n: n -= os.write(%d, b'x' * min(n, 65536))" \
        % stream
    flags = ["--json", "--output", "64k"]
    exact = hermes.py(code, 65536, flags=flags).json()
    assert exact["status"] == "ok" and exact["limits_hit"] == [], exact["message"]
    assert len(exact[name]) == 65536 and exact[name + "_truncated"] is False
    past = hermes.py(code, 65537, flags=flags).json()
    assert past["status"] == "output_limit" and past["limits_hit"] == ["output"]
    assert len(past[name]) == 65536 and past[name + "_truncated"] is True
    r = hermes.py(code, 10 * MIB, flags=["--output", "64k"])
    assert r.status == 153
    got = r.out if stream == 1 else r.err.encode().split(b"hermes run: ")[0]
    assert got == b"x" * 65536
    assert "wrote more than 64 KiB" in r.err


def test_output_flood_with_a_survivor(hermes):
    """A child that goes on writing does not hold the end."""
    r = hermes.sh("(yes & yes & yes &) ; exit 3", flags=["--time", "20s"])
    assert r.status in (3, 153) and r.seconds < 15


def test_process_limit(hermes):
    code = "import os, time, sys\nn = 0\ntry:\n  while n < 50:\n    if os.fork() == 0: " \
           "time.sleep(20); os._exit(0)\n    n += 1\nexcept OSError: pass\nprint(n)"
    answer = hermes.py(code, flags=["--json", "--processes", "10"]).json()
    assert answer["status"] == "ok" and int(answer["stdout"]) == 9, answer
    assert answer["limits_hit"] == ["processes"]


def test_disk_limit(hermes):
    answer = hermes.sh("head -c 20m /dev/zero > /box/a; echo $?; ls -l /box/a | cut -d' ' -f5",
                       flags=["--json", "--disk", "4m"]).json()
    assert answer["status"] == "ok" and answer["limits_hit"] == ["disk"], answer
    assert answer["stdout"].split()[0] == "1"


def test_inode_limit(hermes):
    answer = hermes.py("n = 0\ntry:\n  while True: open('f%d' % n, 'w').close(); n += 1\n"
                       "except OSError as e: print(e.errno)", flags=["--json", "--disk", "1m"]).json()
    assert answer["status"] == "ok" and answer["limits_hit"] == ["disk"]
    assert answer["stdout"] == "28\n"


def test_file_size_limit(hermes):
    r = hermes.py("open('/box/a', 'wb').write(b'x' * (3 << 20))",
                  flags=["--file-size", "2m"])
    assert r.status != 0 and "File too large" in r.err, r


def test_open_files_limit(hermes):
    r = hermes.py("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))",
                  flags=["--open-files", "33"])
    assert r.out == b"(33, 33)\n"


def test_stack_limit(hermes, cc):
    program = cc("#include <string.h>\nint f(int n){char b[4096];memset(b,n,4096);"
                 "return n?f(n-1)+b[n&1023]:0;}int main(void){return f(2000)&1;}", "-O0")
    assert hermes.native(program, flags=["--stack", "1m"]).status == 139
    assert hermes.native(program, flags=["--stack", "16m"]).status in (0, 1)


def test_half_a_core(hermes):
    code = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    answer = hermes.py(code, flags=["--json", "--cpus", "0.5"]).json()
    assert answer["status"] == "ok"
    assert answer["usage"]["cpu_ms"] < 0.5 * answer["usage"]["wall_ms"] + 120, answer["usage"]


# ---------------------------------------------------------------- files

def test_extra_files(hermes):
    hermes.file("value = 41\n", "other.py")
    hermes.file("text", "plain.txt")
    r = hermes.py("import other; print(other.value, open('data/in.txt').read())",
                  flags=["-f", hermes.work / "other.py",
                         "-f", str(hermes.work / "plain.txt") + ":data/in.txt"])
    assert (r.status, r.out) == (0, b"41 text\n"), r


def test_entry(hermes):
    hermes.file("print('other')\n", "sub.py")
    r = hermes.py("print('main')", flags=["-f", str(hermes.work / "sub.py") + ":pkg/sub.py",
                                          "--entry", "pkg/sub.py"])
    assert (r.status, r.out) == (0, b"other\n"), r
    r = hermes.py("print('main')", flags=["--entry", "nothere.py"])
    assert r.status == 2 and "nothere.py" in one_line(r.err)


@pytest.mark.parametrize("name", ["../x", "/abs", "a/../b", "a//b", "./a", "", "a\nb", "a" * 256,
                                  "/".join("d" * 33)])
def test_bad_file_names(hermes, name):
    r = hermes.py("print('ran')", flags=["-f", hermes.file("", "plain") + ":" + name])
    assert r.status == 2 and r.out == b"", r
    one_line(r.err)


def test_a_file_in_the_way_of_a_directory(hermes):
    plain = hermes.file("", "plain")
    r = hermes.py("print('ran')", flags=["-f", plain + ":a", "-f", plain + ":a/b"])
    assert r.status == 2 and r.out == b"", r
    one_line(r.err)


def test_collect(hermes):
    out = hermes.work / "out"
    code = """
mkdir -p sub/deep dir.txt; echo one > a.txt; echo two > sub/b.txt; echo three > sub/deep/c.txt
ln -s /etc/passwd link.txt; ln -s a.txt link2.txt; mkfifo fifo.txt; echo no > other.dat
ln a.txt hard.txt; chmod 755 sub/b.txt; : > empty.txt; chmod 000 hard.txt
"""
    r = hermes.sh(code, flags=["--collect", "*.txt", "--collect", "sub/**", "--out", out])
    assert r.status == 0, r
    got = {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()}
    assert "three\n" == got.get("sub/deep/c.txt")
    assert "link.txt" not in got and "fifo.txt" not in got and "other.dat" not in got
    assert not any(p.is_symlink() for p in out.rglob("*"))
    assert not os.access(out / "sub" / "b.txt", os.X_OK)  # nothing that a caller could trip over
    answer = hermes.sh(code, flags=["--json", "--collect", "**.txt", "--collect", "sub/**"]).json()
    files = {f["name"]: f for f in answer["files"]}
    for name in ("link.txt", "link2.txt", "fifo.txt"):
        assert files[name]["error"] == "not_regular" and "content" not in files[name]
    assert base64.b64decode(files["sub/b.txt"]["content"]) == b"two\n"
    assert files["empty.txt"]["size"] == 0 and files["empty.txt"]["content"] == ""
    assert "dir.txt" not in files and "other.dat" not in files


def test_collect_swap_and_survivors(hermes):
    """A process left behind that swaps a file for a link is dead before anything is read."""
    code = "(while :; do ln -sf /etc/shadow f.txt; rm -f f.txt; echo ok > f.txt; done) &\n" \
           "sleep 0.2; exit 0"
    answer = hermes.sh(code, flags=["--json", "--collect", "*.txt"]).json()
    assert answer["status"] == "ok"
    for f in answer["files"]:
        assert f.get("error") == "not_regular" or \
            base64.b64decode(f["content"]) in (b"ok\n", b""), f


def test_collect_too_much(hermes):
    answer = hermes.sh("head -c 20m /dev/zero > a.bin; echo b > b.txt; for i in $(seq 300); do "
                       "echo > m$i.many; done",
                       flags=["--json", "--collect", "a.bin", "--collect", "b.txt", "--disk", "32m",
                              "--collect", "*.many"]).json()
    files = {f["name"]: f for f in answer["files"]}
    assert len(files) <= 256 and "collect" in answer["message"]
    if "a.bin" in files:
        assert files["a.bin"]["error"] == "too_large"


def test_collect_after_a_limit(hermes):
    """What was written before the time limit: not promised, but the verdict is."""
    answer = hermes.sh("echo x > a.txt; sleep 20",
                       flags=["--json", "--collect", "*.txt", "--time", "300ms"]).json()
    assert (answer["status"], answer["limits_hit"]) == ("time_limit", ["wall"])


def test_collect_refuses_to_follow_links_outside(hermes):
    """The directory of --out holds a symbolic link with the name of a collected file. The link is not followed."""
    out = hermes.work / "out"
    victim = hermes.work / "victim"
    victim.mkdir()
    out.mkdir()
    (out / "sub").symlink_to(victim)
    r = hermes.sh("mkdir sub; echo x > sub/f.txt", flags=["--collect", "sub/*", "--out", out])
    assert r.status != 0 and list(victim.iterdir()) == []
    one_line(r.err)


def test_read_only_directory(hermes):
    shared = hermes.work / "shared"
    shared.mkdir()
    (shared / "in.txt").write_text("data")
    r = hermes.sh("cat /mnt/shared/in.txt; echo x > /mnt/shared/new; echo $?; "
                  "rm /mnt/shared/in.txt; echo $?", flags=["--ro", shared])
    assert r.out == b"data1\n1\n" and os.listdir(shared) == ["in.txt"], r
    r = hermes.sh("cat /box/here/in.txt", flags=["--ro", str(shared) + ":/box/here"])
    assert r.out == b"data", r


def test_writable_directory(hermes):
    shared = hermes.work / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    r = hermes.sh("echo made > /mnt/shared/new", flags=["--rw", shared])
    assert r.status == 0 and (shared / "new").read_text() == "made\n", r


@pytest.mark.parametrize("flags", [
    ["--ro", "/no/such/dir"], ["--ro", "/etc/passwd"], ["--ro", "/usr:/etc"],
    ["--ro", "/usr:/mnt/../etc"], ["--ro", "/usr:/mnt/"], ["--ro", "/usr:rel"],
    ["--rw", "/usr:/box"], ["--ro", ""]])
def test_bad_directories(hermes, flags):
    r = hermes.py("print('ran')", flags=flags)
    assert r.status == 2 and r.out == b"", r
    one_line(r.err)


# ---------------------------------------------------------------- compiled languages

HELLO_C = "#include <stdio.h>\nint main(int c, char **v) { printf(\"%d %s\\n\", c, v[c - 1]);" \
          " return FLAG; }\n"


def test_compile_and_run(hermes):
    r = hermes.program(HELLO_C, "x", name="main.c", flags=["--compile-arg", "-DFLAG=5"])
    assert (r.status, r.out) == (5, b"2 x\n"), r
    answer = hermes.program(HELLO_C, name="main.c",
                            flags=["--json", "--compile-arg", "-DFLAG=0"]).json()
    assert answer["status"] == "ok" and answer["compile"]["status"] == "ok"


@pytest.mark.parametrize("arg", ["-fplugin=/box/x.so", "-B/box", "-wrapper", "@file",
                                 "-Wl,-rpath,/", "-o/etc/x", "", "-I/etc"])
def test_compile_arg_refused(hermes, arg):
    r = hermes.program(HELLO_C, name="main.c", flags=["--compile-arg=" + arg])
    assert r.status == 2 and r.out == b"", r
    assert "compile_args" in one_line(r.err)


def test_compile_error(hermes):
    r = hermes.program("int main(void) { return x; }", name="main.c")
    assert r.status == 1 and "error" in r.err and r.out == b""
    assert r.err.splitlines()[-1].startswith("hermes run: compilation failed (gcc exited with status 1)"), r.err
    answer = hermes.program("int main(void) { return x; }", name="main.c", flags=["--json"]).json()
    assert answer["status"] == "compile_error" and answer["compile"]["exit_code"] == 1
    assert answer["message"] == "compilation failed (gcc exited with status 1)"
    assert "error" in answer["compile"]["stderr"] and answer["exit_code"] is None


def test_compile_that_includes_a_host_file(hermes):
    r = hermes.program('#include "/etc/shadow"\n', name="main.c")
    assert r.status == 1 and "root:" not in r.err


# ---------------------------------------------------------------- what a box inherits of its caller

def test_processors_of_the_caller(hermes):
    """The spawner is kept off our processor while both work; boxes are not."""
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    mine = sorted(os.sched_getaffinity(0))
    for given in [mine] * 8 + [[cpu] for cpu in mine[:4]]:
        r = hermes.py(code, pre=lambda cpus=given: os.sched_setaffinity(0, cpus))
        assert r.status == 0 and r.out.decode().strip() == str(given), (given, r)


def test_real_time_caller(hermes):
    """Not in the tests' own groups, which take no real-time process either."""
    def hurry():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    path = hermes.file("import os; print(os.sched_getscheduler(0))", "policy.py")
    try:
        subprocess.run(["true"], preexec_fn=hurry, check=True)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("this machine has no real-time processes for us")
    r = subprocess.run([HERMES, "run", path], env=hermes.env(), preexec_fn=hurry, capture_output=True)
    assert r.returncode == 0 and r.stdout == b"0\n", r


def test_signals_of_the_caller(hermes):
    """Ignored and blocked by the caller, as before by nohup, and neither in the box."""
    def refuse():
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGRTMAX):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM, signal.SIGRTMIN])
        # One that the C library keeps for itself: no function of it would do this.
        rt_sigaction = {"x86_64": 13, "aarch64": 134}[os.uname().machine]
        ignore = ctypes.c_char_p(b"\1".ljust(32, b"\0"))
        ctypes.CDLL(None).syscall(rt_sigaction, 32, ignore, None, 8)
    code = "grep -E '^Sig(Ign|Blk)' /proc/self/status"
    r = hermes.program(code, name="main.sh", pre=refuse)
    assert r.status == 0 and r.out.decode().split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16], r


# ---------------------------------------------------------------- bad input

@pytest.mark.parametrize("args", [
    ["--nonsense", "x.py"], ["-Z", "x.py"], [], ["-l"], ["--time"], ["--json=3", "x.py"],
    ["--time", "2s"]])
def test_unknown_flags(hermes, args):
    r = hermes("run", *args)
    assert r.status == 2 and r.out == b"" and r.err, r
    assert "hermes run" in r.err and len(r.err.splitlines()) <= 3


def test_flags_as_others_write_them(hermes):
    """Shortened, with and without `=`, and none behind the program's name."""
    code = "import sys; print(sys.argv[1:])"
    path = hermes.file(code, "flags.py")
    for args in (["--mem", "64m", "-lpython"], ["--memory=64m", "--language", "python"], ["-l", "python", "--"]):
        r = hermes("run", *args, path, "--json", "-h", "--", "-x")
        assert r.status == 0 and r.out.decode().strip() == "['--json', '-h', '--', '-x']", (args, r)
    for args in (["--co", "x", path], ["--", "--json"]):
        assert hermes("run", *args).status == 2


def test_help_names_every_flag(hermes):
    text = hermes("run", "--help").out.decode()
    assert text == hermes("run", "-h", "x.py").out.decode() and max(map(len, text.splitlines())) < 80
    for flag in ("-l, --language=LANG", "--no-cache", "--rw=DIR[:PATH]", "--memory=SIZE", "-h, --help"):
        assert "  " + flag + " " in text, flag


def test_unknown_command(hermes):
    r = hermes("frobnicate")
    assert r.status == 2 and "hermes help" in one_line(r.err, "hermes: ")
    assert hermes().status == 2
    for args in (["--help"], ["help"], ["run", "--help"], ["doctor", "--help"], ["--version"]):
        r = hermes(*args)
        assert r.status == 0 and r.out and r.err == "", (args, r)


@pytest.mark.parametrize("flag,values", [
    ("--time", ["-1", "0", "1e18", "abc", "", "99999999h", "5x", " 1s", "0ms", "nan"]),
    ("--cpu", ["-1", "0", "1e18", "abc"]),
    ("--memory", ["-1", "0", "1e18", "abc", "99999999g", "", "1", "18446744073709551616"]),
    ("--disk", ["-1", "0", "99999999g", "1e3"]),
    ("--stack", ["-1", "0", "99999999g"]),
    ("--file-size", ["-1", "0", "99999999g"]),
    ("--output", ["-1", "0", "99999999g", "abc"]),
    ("--processes", ["-1", "0", "1e18", "abc", "99999999999", "4294967297"]),
    ("--open-files", ["-1", "0", "1", "99999999"]),
    ("--cpus", ["-1", "0", "1e18", "abc", "1000", "2s", "0.0001"]),
    ("--min-level", ["none", "", "FULL", "extreme"]),
    ("--env", ["novalue", "=x", "1A=x", "HERMES_X=1", "A B=1"]),
])
def test_absurd_values(hermes, flag, values):
    path = hermes.file("print('ran')", "main.py")
    for value in values:
        r = hermes("run", "%s=%s" % (flag, value), path)
        assert r.status == 2 and r.out == b"", (flag, value, r)
        said = one_line(r.err)
        assert flag.strip("-").split("-")[0].replace("time", "") in said, said


def test_disk_beyond_memory_is_refused(hermes):
    r = hermes.py("print(1)", flags=["--disk", "512m", "--memory", "64m"])
    assert r.status == 2 and "raise --memory" in one_line(r.err)


def test_unreadable_file(hermes):
    for path, word in ((hermes.work / "none.py", "No such file"), (hermes.work, "directory"),
                       ("/proc/self/mem", ""), (hermes.file("", "x") + "/y.py", "Not a directory")):
        r = hermes("run", "-l", "python", path)
        assert r.status == 2 and r.out == b"", r
        assert word in one_line(r.err)
    r = hermes("run", "-l", "python", "-f", hermes.work / "none", hermes.file("", "m.py"))
    assert r.status == 2 and "none" in one_line(r.err)


def test_unknown_language(hermes):
    r = hermes("run", "-l", "cobol", "-", stdin=b"x")
    assert r.status == 2 and "cobol" in one_line(r.err), r
    r = hermes("run", hermes.file("x", "prog.cbl"))
    assert r.status == 2 and ".cbl" in one_line(r.err), r
    r = hermes("run", "-", stdin=b"print(1)")
    assert r.status == 2 and "-l" in one_line(r.err), r
    r = hermes("run", "-l", "../../etc", "-", stdin=b"x")
    assert r.status == 2 and r.out == b"", r


def test_missing_interpreter(hermes):
    """A runtime whose program is not on this machine: the package is named."""
    runtimes = hermes.work / "runtimes"
    shutil.copytree(ROOT / "runtimes", runtimes)
    path = runtimes / "python" / "runtime.json"
    spec = json.loads(path.read_text())
    spec["toolchain"] = [{"home": "/opt/nowhere", "program": "bin/python3"}]
    path.write_text(json.dumps(spec))
    r = hermes.py("print(1)", env={"HERMES_RUNTIMES": str(runtimes)})
    assert r.status == 125 and r.out == b"", r
    said = one_line(r.err)
    assert "python" in said and "install" in said, said


def test_program_that_is_not_in_the_root(hermes):
    """The table names a program that the curated tree does not hold: Hermes' failure, not the
    user's."""
    runtimes = hermes.work / "runtimes"
    shutil.copytree(ROOT / "runtimes", runtimes)
    path = runtimes / "python" / "runtime.json"
    spec = json.loads(path.read_text())
    spec["run"]["argv"][0] = "/opt/nowhere/python3"
    path.write_text(json.dumps(spec))
    r = hermes.py("print(1)", env={"HERMES_RUNTIMES": str(runtimes)})
    assert r.status == 125 and r.out == b"", r
    one_line(r.err)


@pytest.mark.parametrize("text", [
    '{"name": "python", "extensions": [".py"],', '["python", ".py"]', '"python" ".py" \0',
    '{"name": "python", "extensions": [".py"], "surprise": 1}'])
def test_broken_runtime_file(hermes, text):
    runtimes = hermes.work / "runtimes"
    shutil.copytree(ROOT / "runtimes", runtimes)
    (runtimes / "python" / "runtime.json").write_text(text)
    r = hermes.py("print(1)", env={"HERMES_RUNTIMES": str(runtimes)})
    assert r.status in (2, 125) and r.out == b"", r
    assert "runtime.json" in one_line(r.err)


def test_runtimes_directory_missing(hermes):
    r = hermes.py("print(1)", env={"HERMES_RUNTIMES": "/no/such/dir"})
    assert r.status in (2, 125) and r.out == b"", r
    one_line(r.err)


NOBODY = 65534


def as_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


@pytest.fixture
def everybodys(hermes):
    """The programs and the runtimes where any user may read them."""
    place = hermes.work / "bin"
    place.mkdir()
    for program in (HERMES, SPAWN, SPAWN.with_name("hermes-setup"), SPAWN.with_name("hermes-network")):
        shutil.copy(program, place)
    shutil.copytree(ROOT / "runtimes", hermes.work / "runtimes")
    home = hermes.work / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    env = {"HOME": str(home), "HERMES_STATE_DIR": None,
           "HERMES_RUNTIMES": str(hermes.work / "runtimes")}
    yield {"env": env, "pre": as_nobody, "program": place / "hermes"}
    spawners = ["pgrep", "-u", str(NOBODY), "-x", "hermes.*"]
    while subprocess.run(spawners, stdout=subprocess.DEVNULL).returncode == 0:
        time.sleep(0.01)  # one that is ending may still make the next
    shutil.rmtree("/tmp/hermes-%d" % NOBODY, ignore_errors=True)  # the lock file of that user's ids: it stays for the next run


def test_no_permission(hermes, everybodys):
    """An ordinary user without a delegated control group: refused, with every missing limit."""
    r = hermes.py("print('ran')", **everybodys)
    assert r.status == 125 and r.out == b"", r
    said = one_line(r.err)
    for word in ("memory_limit", "process_limit", "cpu_limit", "hermes doctor"):
        assert word in said, said
    r = hermes("doctor", **everybodys)
    assert r.status == 1 and b"memory_limit" in r.out and b"Delegate=yes" in r.out
    if ASAN:
        return  # RLIMIT_AS leaves no room for AddressSanitizer
    r = hermes.py("print('ran')", flags=["--min-level", "process", "--json"], **everybodys)
    if r.status == 125 and "landlock (" in r.err:
        return  # level `process` is not to be had here
    assert r.status == 0, r
    answer = r.json()
    assert answer["stdout"] == "ran\n" and answer["isolation"]["level"] == "process"


def test_file_the_caller_may_not_read(hermes, everybodys):
    path = hermes.file("print('ran')", "secret.py")
    os.chmod(path, 0o600)
    r = hermes("run", path, **everybodys)
    assert r.status == 2 and "Permission denied" in one_line(r.err), r


def test_spawner_missing(hermes):
    for path in ("/no/such/hermes-spawn", "/etc/passwd", "/tmp"):
        r = hermes.py("print('ran')", env={"HERMES_SPAWN": path})
        assert r.status == 125 and r.out == b"", r
        assert path in one_line(r.err), r
        r = hermes("doctor", env={"HERMES_SPAWN": path})
        assert r.status == 125 and path in one_line(r.err, "hermes doctor: ")


def test_spawner_that_is_something_else(hermes):
    r = hermes.py("print('ran')", env={"HERMES_SPAWN": "/bin/true"})
    assert r.status == 125 and r.out == b""
    assert "hermes-spawn" in one_line(r.err)


# ---------------------------------------------------------------- state directory

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE, MS_RDONLY, MS_REMOUNT = 0x20000, 0x4000, 0x40000, 1, 32


def mount(source, target, kind, flags=0, data=None):
    encode = lambda s: s.encode() if s is not None else None  # noqa: E731
    if libc.mount(encode(source), str(target).encode(), encode(kind), flags, encode(data)) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def private_mounts():
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)


@pytest.mark.parametrize("data", ["size=16k", "nr_inodes=3", "size=200k,nr_inodes=40"])
def test_state_disk_full(hermes, data):
    state = hermes.work / "state"
    state.mkdir()

    def pre():
        private_mounts()
        mount("none", state, "tmpfs", 0, data + ",mode=700")
    r = hermes.py("print('ran')", env={"HERMES_STATE_DIR": str(state)}, pre=pre)
    assert r.status == 125 and r.out == b"", r
    said = one_line(r.err)
    assert "No space left" in said and str(state) in said, said


def test_state_disk_full_then_room_again(hermes):
    """A run that failed for lack of room leaves nothing that stops the next."""
    state = hermes.work / "state"
    state.mkdir()
    script = hermes.file("print('ran')", "main.py")
    shell = "mount -t tmpfs -o size=16k,mode=700 none {s} && {h} run {f}; echo $?; ls -A {s}/roots; " \
        "mount -o remount,size=64m {s} && {h} run {f}; echo $?; ls -A {s}/roots | grep -c '^[.]'" \
        .format(s=state, h=HERMES, f=script)
    r = hermes("-m", "sh", "-c", shell, program="/usr/bin/unshare",
               env={"HERMES_STATE_DIR": str(state)})
    assert r.out.decode().split("\n")[:4] == ["125", "ran", "0", "0"], r


def test_state_dir_read_only(hermes):
    state = hermes.work / "state"
    state.mkdir()

    def pre():
        private_mounts()
        mount("none", state, "tmpfs", 0, "mode=700")
        mount(None, state, None, MS_REMOUNT | MS_RDONLY)
    r = hermes.py("print('ran')", env={"HERMES_STATE_DIR": str(state)}, pre=pre)
    assert r.status == 125 and r.out == b"", r
    said = one_line(r.err)
    assert "Read-only" in said and str(state) in said


def test_state_dir_read_only_but_prepared(hermes):
    """Everything is there already: a read-only state directory does not matter."""
    assert hermes.py("print('ran')").status == 0

    def pre():
        private_mounts()
        mount(str(hermes.state), hermes.state, None, 4096)
        mount(None, hermes.state, None, MS_REMOUNT | MS_RDONLY | 4096)
    r = hermes.py("print('ran')", pre=pre)
    assert (r.status, r.out) == (0, b"ran\n"), r


def test_state_dir_is_a_file(hermes):
    r = hermes.py("print('ran')", env={"HERMES_STATE_DIR": hermes.file("", "plain")})
    assert r.status == 125 and "HERMES_STATE_DIR" in one_line(r.err), r


def test_state_dir_damaged(hermes):
    """Rubbish in a finished root is noticed and rebuilt."""
    state = hermes.work / "state"
    env = {"HERMES_STATE_DIR": str(state)}
    assert hermes.py("print('ran')", env=env).status == 0
    for entries in state.glob("roots/*/entries"):
        entries.chmod(0o644)
        entries.write_bytes(b"rubbish" * 100)
    r = hermes.py("print('ran')", env=env)
    assert (r.status, r.out) == (0, b"ran\n"), r
    for entries in state.glob("roots/*/entries"):
        entries.unlink()
    assert hermes.py("print('ran')", env=env).status == 0
    assert not [p for p in (state / "roots").iterdir() if p.name.startswith(".")]


def test_first_run_in_parallel(hermes):
    """Ten instances build the same root at once in a fresh state directory."""
    state = hermes.work / "state"
    path = hermes.file("print('ran')", "main.py")
    started = [hermes.start(["run", path], env={"HERMES_STATE_DIR": str(state)})
               for _ in range(10)]
    for p in started:
        out, err = p.communicate(timeout=120)
        assert (p.returncode, out, err) == (0, b"ran\n", b"")
    assert not [p for p in (state / "roots").iterdir() if p.name.startswith(".")]


# ---------------------------------------------------------------- signals in the middle

SLEEPER = "import os, time\nfor _ in range(3): os.fork()\n" \
          "print('up', flush=True)\ntime.sleep(60)\n"


def start_sleeper(hermes, *flags, code=SLEEPER):
    p = hermes.start(["run", *flags, hermes.file(code, "main.py")], start_new_session=True)
    assert p.stdout.readline() == b"up\n", p.stderr.read()
    return p


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signal_cancels(hermes, name):
    p = start_sleeper(hermes)
    p.send_signal(getattr(signal, name))
    out, err = p.communicate(timeout=30)
    assert p.returncode == 128 + getattr(signal, name)
    assert "cancelled" in one_line(err.decode())


def test_ctrl_c_to_the_whole_group(hermes):
    p = start_sleeper(hermes)
    os.killpg(p.pid, signal.SIGINT)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 130 and "cancelled" in one_line(err.decode())


def test_signal_with_json(hermes):
    p = hermes.start(["run", "--json", hermes.file(
        "import time; print('x', flush=True); time.sleep(60)", "main.py")])
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=30)
    assert p.returncode == 130
    assert json.loads(out)["status"] == "cancelled"


def test_signal_while_compiling(hermes):
    code = "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(A(x)))))\nint a[] = { B(1,) };\n" \
           "int b[] = { B(B(1,)) };\nint main(void) { return 0; }\n"
    p = hermes.start(["run", hermes.file(code, "main.c")])
    time.sleep(0.6)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode in (130, 0, 1), (p.returncode, err)


def test_signal_at_any_moment(hermes, oracle):
    """Ctrl-C from the first millisecond on: the status is right and nothing is left."""
    path = hermes.file("print('x'); import time; time.sleep(20)", "main.py")
    for i in range(25):
        p = hermes.start(["run", path])
        time.sleep(i * 0.0012)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=30)
        # Before main() has set its mind, the kernel's default ends it: -2.
        assert p.returncode in (130, -2), (i, p.returncode, out, err)


def test_ignored_stop_signals_do_not_reach_the_box(hermes):
    """The caller had SIGPIPE, SIGINT and SIGCHLD ignored or blocked: the box has defaults."""
    def pre():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    r = hermes.sh("grep -E 'Sig(Blk|Ign)' /proc/self/status; yes | head -1; echo ${PIPESTATUS[0]}",
                  pre=pre)
    assert r.status == 0, r
    blocked, ignored, *rest = re.sub(r"Sig...:\s+", "", r.out.decode()).split()
    # 32 and 33 are the C library's own; its posix_spawn leaves them ignored.
    assert int(blocked, 16) == 0 and int(ignored, 16) & ~(3 << 31) == 0, r
    assert rest == ["y", "141"], r


def test_hermes_killed(hermes, groups):
    p = start_sleeper(hermes)
    assert wait_until(lambda: len(groups.pids()) == 11, 20), groups.pids()
    p.kill()
    began = time.monotonic()
    assert wait_until(lambda: not groups.pids() - {p.pid}, 1.0 * slack()), groups.pids()
    print("all dead after %.0f ms" % ((time.monotonic() - began) * 1000))
    p.communicate()


def spawner_of(pid):
    """The hermes-spawn a hermes has started."""
    def children():
        return open("/proc/%d/task/%d/children" % (pid, pid)).read().split()
    assert wait_until(lambda: len(children()) == 1, 10), children()  # hermes-setup may still be ending
    return int(children()[0])


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_spawner_killed(hermes, groups, flags):
    path = hermes.file(SLEEPER, "main.py")
    p = hermes.start(["run", *flags, path])
    assert wait_until(lambda: len(groups.pids()) >= 10, 20)
    os.kill(spawner_of(p.pid), signal.SIGKILL)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 125, (p.returncode, out, err)
    said = one_line(err.decode())
    assert "spawn" in said, said
    if flags:
        assert json.loads(out)["status"] == "internal_error"
    # What it left is dead; its groups go with the next start.
    assert wait_until(lambda: not groups.pids(), 5)
    assert hermes.py("print(1)").status == 0


def test_init_killed(hermes, groups):
    p = start_sleeper(hermes)
    spawner = spawner_of(p.pid)
    os.kill(spawner_of(spawner), signal.SIGKILL)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 125, (p.returncode, out, err)
    assert "init" in one_line(err.decode())


def test_payload_killed_from_outside(hermes, groups):
    """Somebody on the host kills the program: a signal that was not of its own making cannot be
    told from one that was."""
    p = start_sleeper(hermes, code="import time; print('up', flush=True); time.sleep(60)")
    os.kill(spawner_of(spawner_of(spawner_of(p.pid))), signal.SIGKILL)
    p.communicate(timeout=30)
    assert p.returncode == 137


def test_stopped_box_still_dies(hermes):
    """SIGSTOP of everything in the box does not hold up the limit."""
    r = hermes.py("import os, signal\nos.kill(0, signal.SIGSTOP)", flags=["--time", "500ms"])
    assert r.status == 124, r


def test_hermes_stopped_and_continued(hermes):
    seconds = 5 if ASAN or os.environ.get("HERMES_IN_VM") else 1
    p = start_sleeper(hermes, "--time", "%ds" % seconds,
                      code="import time; print('up', flush=True); time.sleep(60)")
    p.send_signal(signal.SIGSTOP)
    time.sleep(seconds + 0.3)
    p.send_signal(signal.SIGCONT)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 124 and "wall" in one_line(err.decode())


# ---------------------------------------------------------------- the caller's side

def test_stdout_closed_by_the_reader(hermes):
    """`hermes run | head -1`: the program is stopped when nobody reads any more."""
    began = time.monotonic()
    p = hermes.start(["run", hermes.file("echo first; sleep 0.3; echo second; sleep 8; echo third",
                                         "main.sh")])
    assert p.stdout.readline()
    p.stdout.close()
    err = p.stderr.read().decode()
    assert p.wait(30) == 128 + signal.SIGPIPE, (p.returncode, err)
    p.stdin.close()
    p.stderr.close()
    assert err == "" and time.monotonic() - began < 6


def test_json_to_a_full_device(hermes):
    with open("/dev/full", "wb") as full:
        p = hermes.start(["run", "--json", hermes.file("print(1)", "main.py")], stdout=full)
        _, err = p.communicate(timeout=30)
    assert p.returncode == 125, (p.returncode, err)
    assert "No space left" in one_line(err.decode())


def test_output_to_a_full_device(hermes):
    with open("/dev/full", "wb") as full:
        p = hermes.start(["run", hermes.file("print(1)", "main.py")], stdout=full)
        _, err = p.communicate(timeout=30)
    assert p.returncode == 125, (p.returncode, err)
    assert "No space left" in one_line(err.decode())


def test_slow_reader(hermes):
    """A reader that takes its time loses nothing."""
    p = hermes.start(["run", "--time", "60s", hermes.file(
        "import sys; sys.stdout.write('z' * 900000)", "main.py")])
    got = b""
    while True:
        chunk = os.read(p.stdout.fileno(), 65536)
        if not chunk:
            break
        got += chunk
        time.sleep(0.02)
    p.communicate()
    assert p.returncode == 0 and got == b"z" * 900000


TIOCSTI = """
import fcntl, os, sys
for fd in (0, 1, 2):
    print('tty', fd, os.isatty(fd))
try:
    tty = os.open('/dev/tty', os.O_RDWR)
    print('opened /dev/tty')
except OSError as e:
    tty = 0
    print('no tty', e.errno)
for c in 'id\\n':
    try:
        fcntl.ioctl(tty, 0x5412, c.encode())
        print('pushed')
    except OSError as e:
        print('refused')
"""


def test_terminal(hermes):
    """Started from a terminal: the box has none, and cannot push input into ours."""
    master, slave = pty.openpty()

    def controlling():
        os.setsid()
        import fcntl
        fcntl.ioctl(0, 0x540e, 0)
    p = hermes.start(["run", hermes.file(TIOCSTI, "main.py")], stdin=slave, stdout=slave,
                     stderr=slave, pre=controlling)
    os.close(slave)
    text = b""
    try:
        while True:
            chunk = os.read(master, 4096)
            if not chunk:
                break
            text += chunk
    except OSError:
        pass
    p.wait(30)
    os.close(master)
    assert p.returncode == 0 and b"tty 0 False" in text and b"tty 1 False" in text, text
    assert b"pushed" not in text and b"opened" not in text
    assert text.count(b"refused") == 3 and b"\r\nid" not in text


# ---------------------------------------------------------------- many at once

def test_twenty_at_once(hermes):
    path = hermes.file("import sys, os; print(os.getuid(), sys.argv[1]); "
                       "sys.exit(int(sys.argv[1]))", "main.py")
    began = [(i, hermes.start(["run", path, i])) for i in range(20)]
    for i, p in began:
        out, err = p.communicate(timeout=120)
        assert (p.returncode, out, err) == (i, b"1000 %d\n" % i, b"")


def test_different_state_directories(hermes, groups, oracle):
    """Two instances with two state directories, while a third is killed: they do not meet."""
    others = []
    for i in range(2):
        state = hermes.work / ("state%d" % i)
        others.append(Hermes(groups, state, hermes.work))
    sleeping = start_sleeper(others[0])
    assert others[1].py("print('b')").out == b"b\n"
    victim = start_sleeper(hermes)
    victim.kill()
    victim.communicate()
    assert others[1].py("print('b')").out == b"b\n"
    assert sleeping.poll() is None
    sleeping.send_signal(signal.SIGINT)
    sleeping.communicate(timeout=30)
    assert sleeping.returncode == 130
    for other in others:
        assert not state_listing(other.state)


def test_uids_of_live_boxes_differ(hermes, groups):
    started = [start_sleeper(hermes) for _ in range(6)]
    uids = {}
    for pid in groups.pids():
        status = open("/proc/%d/status" % pid).read()
        uid = int(status.split("\nUid:")[1].split()[0])
        space = os.readlink("/proc/%d/ns/pid" % pid)
        if uid >= 2000000:
            uids.setdefault(uid, set()).add(space)
    for p in started:
        p.kill()
        p.communicate()
    assert len(uids) == 12 and all(len(s) == 1 for s in uids.values()), uids
    assert wait_until(lambda: not groups.pids())


def test_limits_of_the_caller_hold(hermes):
    """A caller with few descriptors or a small file size limit gets a clear answer or a run."""
    import resource
    for limit, value in ((resource.RLIMIT_NOFILE, 16), (resource.RLIMIT_NOFILE, 5),
                         (resource.RLIMIT_FSIZE, 1000), (resource.RLIMIT_NPROC, 0)):
        r = hermes.py("print('ran')", pre=lambda: resource.setrlimit(limit, (value, value)))
        assert (r.status, r.out) == (0, b"ran\n") or \
            (r.status in (2, 125) and r.out == b"" and one_line(r.err)), (limit, value, r)


def test_working_directory_gone(hermes):
    gone = hermes.work / "gone"
    gone.mkdir()
    path = hermes.file("print('ran')", "main.py")
    r = hermes("run", path, pre=lambda: (os.chdir(gone), os.rmdir(gone)))
    assert (r.status, r.out) == (0, b"ran\n"), r
