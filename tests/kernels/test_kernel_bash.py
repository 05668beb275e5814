# SPDX-License-Identifier: Apache-2.0
"""The bash kernel: a real shell that lives, whatever is done to it. The twelve ways in which a persistent
shell broke before (each a test here) are named in their order as bug_1 to bug_12."""
import os
import pathlib
import signal
import time

import pytest

from kernellib import Answer, Dead, Kernel, wait_until


@pytest.fixture
def shell(start):
    return start("bash")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    kernel = Kernel("bash", cwd=str(tmp_path_factory.mktemp("box")))
    yield kernel
    kernel.close()


def until_printed(shell, word, answer=None):
    answer = answer or Answer()
    deadline = time.monotonic() + 20
    while word.encode() not in answer.stdout_bytes:
        assert time.monotonic() < deadline
        shell.drain(answer)
        time.sleep(0.002)
    return answer


# Code, stdout, stderr (or a part of it), status.
CASES = {
    "echo": ("echo hi", "hi\n", "", 0),
    "false": ("false", "", "", 1),
    "status": ("(exit 42)", "", "", 42),
    "both streams": ("echo o; echo e >&2", "o\n", "e\n", 0),
    "pipeline": ("echo abc | tr a-c A-C", "ABC\n", "", 0),
    "pipefail": ("set -o pipefail; false | true; s=$?; set +o pipefail; exit $s", "", "", 1),
    "heredoc": ("cat <<EOF\na\nb\nEOF", "a\nb\n", "", 0),
    "heredoc then more": ("cat <<EOF\na\nEOF\necho b", "a\nb\n", "", 0),
    "quoted heredoc": ("cat <<'EOF'\n$x `y`\nEOF", "$x `y`\n", "", 0),
    "heredoc without end": ("cat <<EOF\nopen", "open\n", "here-document", 0),
    "two heredocs": ("cat <<A; cat <<B\n1\nA\n2\nB", "1\n2\n", "", 0),
    "herestring": ("cat <<<word", "word\n", "", 0),
    "unbalanced quote": ("echo 'x", "", "unexpected EOF", 2),
    "unbalanced double quote": ('echo "x', "", "unexpected EOF", 2),
    "unbalanced parenthesis": ("(echo x", "", "syntax error", 2),
    "unbalanced brace": ("{ echo x", "", "syntax error", 2),
    "unbalanced backquote": ("echo `x", "", "unexpected EOF", 2),
    "if without fi": ("if true; then echo x", "", "syntax error", 2),
    "stray done": ("done", "", "syntax error", 2),
    "stray then": ("then", "", "syntax error", 2),
    "stray brace": ("}", "", "syntax error", 2),
    "only operator": ("&&", "", "syntax error", 2),
    "semicolon": (";", "", "syntax error", 2),
    "comment": ("# nothing", "", "", 0),
    "comment at the end": ("echo x # no newline", "x\n", "", 0),
    "backslash at the end": ("echo x\\", "x\\\n", "", 0),
    "empty": ("", "", "", 0),
    "newlines": ("\n\n\n", "", "", 0),
    "not found": ("no_such_command_1", "", "no_such_command_1: command not found", 127),
    "not executable": ("/etc/passwd", "", "Permission denied", 126),
    "line numbers": ("echo\necho\nnope_2", "\n\n", "bash: line 3: nope_2", 127),
    "line number after line number": ("nope_3", "", "bash: line 1: nope_3", 127),
    "LINENO": ("echo $LINENO\necho $LINENO", "1\n2\n", "", 0),
    "$0": ("echo $0", "bash\n", "", 0),
    "no arguments": ("echo $#", "0\n", "", 0),
    "stdin is empty": ("cat; read x; echo $?", "1\n", "", 0),
    "function": ("f() { echo in $1; return 3; }; f x", "in x\n", "", 3),
    "subshell exit": ("(exit 5); echo $?", "5\n", "", 0),
    "command substitution": ("echo $(echo a; exit 3) $?", "a 3\n", "", 0),
    "glob": ("cd /; echo /et[c]; cd - >/dev/null", "/etc\n", "", 0),
    "break": ("break", "", "", 0),
    "break many": ("break 99", "", "", 0),
    "continue": ("continue", "", "", 0),
    "continue many": ("for i in 1; do continue 99; done", "", "", 0),
    "return": ("return 4", "", "return: can only", 2),
    "arithmetic error": ("echo $((1/0))", "", "division by 0", 1),
    "exit": ("exit 3", "", "", 3),
    "exit 0": ("exit", "", "", 0),
    "exit in the middle": ("echo a; exit 4; echo b", "a\n", "", 4),
    "exit in a function": ("g() { exit 7; }; g; echo never", "", "", 7),
    "exit nonsense": ("exit abc", "", "numeric argument required", 2),
    "logout": ("logout", "", "not login shell", 1),
    "exec": ("exec echo replaced", "replaced\n", "", 0),
    "exec with status": ("exec bash -c 'exit 9'", "", "", 9),
    "exec of nothing": ("exec no_such_command_4", "", "not found", 127),
    "exec redirection": ("exec 5>/dev/null; echo x >&5", "", "", 0),
    "exec in a subshell": ("(exec echo sub); echo main", "sub\nmain\n", "", 0),
    "set -e": ("set -e; false; echo never", "", "", 1),
    "set +e": ("set +e", "", "", 0),
    "set -u": ("set -u; echo $unset_1; echo never", "", "unset_1: unbound variable", 127),
    "set +u": ("set +u", "", "", 0),
    "must be set": (": ${unset_2:?why}; echo never", "", "unset_2: why", 127),
    "readonly": ("readonly ro_1=1; ro_1=2; echo after", "", "readonly variable", 1),
    "bad substitution": ("echo ${x!}", "", "bad substitution", 1),
    "kill by signal": ("kill -9 $$", "", "", 137),
    "kill by term": ("kill $$", "", "", 143),
    "segmentation fault": ("kill -SEGV $$", "", "", 139),
    "child killed": ("sh -c 'kill -9 $$'", "", "Killed", 137),
    "binary": ("printf '\\377\\000\\001'", None, "", 0),
    "no newline": ("printf x", "x", "", 0),
    "background": ("true & wait $!", "", "", 0),
    "coproc": ("coproc cat; echo hi >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x; kill $COPROC_PID; wait $COPROC_PID 2>/dev/null", "hi\n", None, 143),
    "process substitution": ("cat <(echo ps)", "ps\n", "", 0),
    "select at end": ("select x in a b; do echo $x; done", "\n", None, 1),
    "time": ("TIMEFORMAT=%U; time true", "", None, 0),
    "shopt": ("shopt -s extglob\necho @(x)", "@(x)\n", "", 0),
    "unicode": ("echo äöü😀", "äöü😀\n", "", 0),
    "crlf": ("echo x\r", "x\r\n", "", 0),
    "tab and bell": ("printf '\\t\\a'", "\t\a", "", 0),
    "long line": ("echo " + "x" * 5000, "x" * 5000 + "\n", "", 0),
    "no pid of ours on stdout": ("echo", "\n", "", 0),
    "trap and kill": ("trap 'echo got' USR1; kill -USR1 $$; trap - USR1", "got\n", "", 0),
    "eval": ("eval 'echo nested; false'", "nested\n", "", 1),
    "source": ("echo 'echo sourced; return 6' >s.sh; . ./s.sh", "sourced\n", "", 6),
    "negation": ("! true", "", "", 1),
    "conditional": ("[[ a == b ]]", "", "", 1),
    "PIPESTATUS": ("false | true; echo ${PIPESTATUS[@]}", "1 0\n", "", 0),
    "unset path": ("PATH=; ls", "", "No such file", 127),
}


@pytest.mark.parametrize("name", CASES)
def test_case(shared, name):
    code, out, err, status = CASES[name]
    shared("PATH=/usr/local/bin:/usr/bin:/bin; keep=%s" % (len(name) + 7))
    answer = shared(code)
    assert answer.code == status, answer
    assert answer.ok == (status == 0)
    if name == "binary":
        assert answer.stdout_bytes == b"\xff\x00\x01"
    else:
        assert answer.stdout == out, answer
    if err is not None:
        assert err in answer.stderr and (err or not answer.stderr), answer
    assert answer.error is None and answer.result is None
    assert answer.state in ("kept", "restored")
    after = shared("echo alive $keep")  # and what was set before is still there
    assert after.stdout == "alive %s\n" % (len(name) + 7), (answer, after)


# State that persists, and how to see it: over plain execs, over exit, over exec and over kill -9.
STATE = {
    "variable": ("v1='a b'", 'echo "$v1"', "a b\n"),
    "multi-line variable": ("v2=$'a\\n\\'b\\n$(echo no)\\\\'", 'printf %s "$v2"', "a\n'b\n$(echo no)\\"),
    "exported": ("export v3=e", "env | grep ^v3=", "v3=e\n"),
    "unexported again": ("export v4=1; declare +x v4", "env | grep -c ^v4=; echo $v4", "0\n1\n"),
    "unset": ("v5=1; unset v5", "echo ${v5-none}", "none\n"),
    "unset of the environment": ("unset HOME LANG", "echo ${HOME-none} ${LANG-none}", "none none\n"),
    "array": ("a1=(x 'y z' [5]=q)", 'echo "${a1[1]}" ${#a1[@]} "${!a1[@]}"', "y z 3 0 1 5\n"),
    "map": ("declare -A m1=([k]=v ['a b']=c)", 'echo "${m1[a b]}" ${#m1[@]}', "c 2\n"),
    "integer": ("declare -i n1=5", "n1+=2; echo $n1", "7\n"),
    "readonly": ("readonly r1=x", "r1=y; echo $r1", None),
    "reference": ("t1=deep; declare -n ref1=t1", "echo $ref1", "deep\n"),
    "upper case": ("declare -u u1=abc", "echo $u1", "ABC\n"),
    "empty": ("e1=; declare e2", "echo ${e1+set} ${e2+set}", "set\n"),
    "odd bytes": ("b1=$'\\xff\\xfe'", 'printf %s "$b1" | od -An -tx1', " ff fe\n"),
    "function": ("f1() { echo f1 \"$@\"; }", "f1 a", "f1 a\n"),
    "function with heredoc": ("f2() { cat <<E\nin\nE\n}", "f2", "in\n"),
    "exported function": ("f3() { echo f3; }; export -f f3", "bash -c f3", "f3\n"),
    "function of odd name": ("f-4() { echo f4; }", "f-4", "f4\n"),
    "function with extglob": ("shopt -s extglob\nf5() { case $1 in @(a|b)) echo y;; esac; }", "f5 a", "y\n"),
    "alias": ("alias hi='echo hello'", "hi you", "hello you\n"),
    "alias in a function": ("alias inner='echo alias'\nf6() { inner; }", "f6", "alias\n"),
    "alias of a builtin": ("alias set='echo no' trap='echo no' cd='echo no' builtin='echo no' printf='echo no'", "\\cd /; \\pwd", "/\n"),
    "option": ("set -o noglob", "echo *", "*\n"),
    "pipefail": ("set -o pipefail", "false | true; echo $?", "1\n"),
    "shopt": ("shopt -s nullglob", "echo x/nothing*", "\n"),
    "noclobber": ("set -C", "echo >nc1; echo >nc1; echo $?", None),
    "umask": ("umask 077", "umask", "0077\n"),
    "trap": ("trap 'echo usr' USR2", "kill -USR2 $BASHPID; :", "usr\n"),
    "arguments": ("set -- 'a b' '*' ''", 'echo "$1" "$2" $#', "a b * 3\n"),
    "cwd": ("mkdir -p 'd 1' && cd 'd 1'", 'basename "$PWD"', "d 1\n"),
    "logical cwd": ("mkdir -p real; ln -sfn real link; cd link", "basename $PWD", "link\n"),
    "OLDPWD": ("cd /usr; cd /tmp", "cd - ", "/usr\n"),
    "IFS": ("IFS=:", "x=a:b; echo $x", "a b\n"),
    "PS4": ("PS4='T '", "echo \"$PS4\"", "T \n"),
    "RANDOM": ("RANDOM=5; r_1=$RANDOM", "[[ $r_1 ]] && echo ok", "ok\n"),
    "large": ("big=$(printf 'x%.0s' {1..100000})", "echo ${#big}", "100000\n"),
    "function over builtin": ("cd() { builtin cd \"$@\" && echo moved; }; builtin cd /", "cd /usr", "moved\n"),
    "function over echo": ("printf() { :; }; declare() { :; }; mapfile() { :; }; eval() { :; }; trap() { :; }", "echo fine", "fine\n"),
}


@pytest.mark.parametrize("way", ["next", "exit 3", "exec true", "kill -9 $$"])
@pytest.mark.parametrize("name", STATE)
def test_state(shell, name, way):
    make, look, out = STATE[name]
    assert shell(make).stderr == ""
    if way != "next":
        answer = shell(way)
        assert answer.state == ("kept" if way == "exit 3" else "restored")
    answer = shell(look)
    if name == "readonly":
        assert "readonly" in answer.stderr
    elif name == "noclobber":
        assert "cannot overwrite" in answer.stderr
    else:
        assert answer.stdout == out, answer


def test_changes_of_the_exec_that_exits_are_kept(shell):
    answer = shell("x=1; f() { echo f; }; cd /usr; exit 3")
    assert (answer.code, answer.state, answer.done["cwd"]) == (3, "kept", "/usr")
    assert shell("echo $x; f; pwd").stdout == "1\nf\n/usr\n"


def test_own_exit_trap_runs_and_costs_the_changes(shell):
    shell("x=1; trap 'echo bye' EXIT")
    answer = shell("x=2; exit 5")
    assert (answer.stdout, answer.code, answer.state) == ("bye\n", 5, "restored")
    assert shell("echo $x").stdout == "1\n"


def test_status_of_the_exec_before(shell):
    shell("(exit 7)")
    assert shell("echo $?").stdout == "7\n"
    assert shell("echo $?").stdout == "0\n"


def test_set_e_stays(shell):
    shell("set -e")
    answer = shell("x=2; false; echo never")
    assert (answer.code, answer.stdout, answer.state) == (1, "", "kept")
    assert shell("echo $x $-").stdout.startswith("2 e")
    assert shell("false || echo or").stdout == "or\n"


def test_trace_shows_the_code_only(shell):
    assert shell("set -x; echo a").stderr == "++ echo a\n"
    assert shell("echo b").stderr == "++ echo b\n"
    shell("exit")
    assert shell("echo c").stderr == "++ echo c\n"
    assert shell("{ set +x; } 2>/dev/null; echo d").stderr == ""
    assert shell("echo e").stderr == ""


def test_posix_mode(shell):
    shell("set -o posix; x=1")
    assert shell("if then").code == 2
    assert shell("echo $x").stdout == "1\n"


# stdin

def test_stdin(shell):
    assert shell("read a b; echo $b $a", stdin=b"x y\n").stdout == "y x\n"
    assert shell("cat", stdin=b"whole").stdout == "whole"
    assert shell("cat").stdout == ""
    assert shell("read a; cat", stdin=b"first\nrest\n").stdout == "rest\n"
    assert shell("python3 -c 'print(input())'", stdin=b"py\n").stdout == "py\n"
    assert shell("while read l; do echo [$l]; done", stdin=b"1\n2\n").stdout == "[1]\n[2]\n"
    big = os.urandom(2 << 20)
    same = shell("cat", stdin=big).stdout_bytes == big
    assert same
    assert shell("wc -c", stdin=bytes(1000)).stdout.strip() == "1000"


def test_stdin_is_the_execs_own(shell):
    shell("read x", stdin=b"1\n2\n")
    assert shell("read y; echo $?:$y").stdout == "1:\n"
    assert shell("exec cat", stdin=b"to exec").stdout == "to exec"
    shell("exec <&-")
    assert shell("cat", stdin=b"again").stdout == "again"


# Interrupt

LOOPS = ["while :; do :; done", "sleep 100", "sleep 100; echo never", "cat <(sleep 100)", "sleep 100 | cat",
         "read z < <(sleep 100)", "(sleep 100)", "bash -c 'sleep 100'", "setsid -w sleep 100", "set -m; sleep 100",
         "f() { f2; }; f2() { while :; do sleep 1; done; }; f", "wait", "until false; do true; done", "y=$(sleep 100)"]


@pytest.mark.parametrize("loop", LOOPS)
def test_interrupt_keeps_state(shell, loop):
    shell("x=1; f0() { echo f0; }")
    shell.begin("x=2\necho go\n" + ("sleep 100 &\nwait" if loop == "wait" else loop))
    until_printed(shell, "go")
    time.sleep(0.05)
    shell.interrupt()
    answer = shell.finish(timeout=5)
    assert answer.done["interrupted"] and not answer.ok and "never" not in answer.stdout
    assert answer.code in (130, 137), answer
    assert shell("echo $x; f0").stdout in ("2\nf0\n", "1\nf0\n")
    if answer.state == "kept":
        assert shell("echo $x").stdout == "2\n"


@pytest.mark.parametrize("stubborn", ["trap '' INT; sleep 100", "trap '' INT; while :; do sleep 0.1; done", "trap 'echo no' INT; while :; do :; done",
                                      "trap '' INT TERM HUP; while :; do :; done", "kill -STOP $$", "set -n", "exec sleep 100; :",
                                      "builtin() { :; }; while :; do :; done"])
def test_interrupt_of_what_does_not_listen(shell, stubborn):
    shell("x=1")
    shell.begin("echo go\n" + stubborn)
    until_printed(shell, "go")
    time.sleep(0.05)
    shell.interrupt(group=False)
    answer = shell.finish(timeout=10)
    assert not answer.ok
    assert shell("echo $x").stdout == "1\n"


def test_own_interrupt_trap(shell):
    shell.begin("trap 'echo caught' INT; echo go; sleep 100; echo after; trap - INT")
    answer = until_printed(shell, "go")
    time.sleep(0.05)
    shell.interrupt()
    answer = shell.finish(answer=answer)
    assert answer.stdout == "go\ncaught\nafter\n" and answer.ok and answer.state == "kept"


def test_interrupt_when_idle_is_dropped(shell):
    shell("sleep 100 & x=1")
    for _ in range(3):
        shell.interrupt()
        time.sleep(0.02)
    assert shell("echo $x; jobs | wc -l").stdout == "1\n1\n"  # the same shell, with its job table


def commands(shell):
    """Of all jobs. A job has the command of the shell until it has called execve()."""
    return sorted(j["command"] for j in shell.ask_jobs())


def test_interrupt_spares_background_jobs(shell):
    shell("sleep 100 & echo $!")
    shell.begin("echo go; sleep 100")
    until_printed(shell, "go")
    time.sleep(0.05)
    shell.interrupt()
    shell.finish()
    assert wait_until(lambda: commands(shell) == ["sleep 100"])


def pending(pid, number):
    text = pathlib.Path("/proc/%d/status" % pid).read_text()
    masks = [int(line.split()[1], 16) for line in text.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> number - 1 & 1 for mask in masks)


@pytest.mark.parametrize("times", [1, 2])
def test_interrupts_at_any_moment(shell, times):
    """Before, in and after the code: state is kept, and the exec that follows is not hit."""
    before = "\n"
    for round_ in range(40):
        shell.begin("n=%d; for ((i = 0; i < %d; i++)); do :; done; echo end" % (round_, round_ * 300))
        time.sleep(round_ * 0.0003)
        for _ in range(times):
            shell.interrupt()
        answer = shell.finish(timeout=10)
        assert answer.code in (0, 130) and answer.state == "kept", answer
        assert wait_until(lambda: not pending(shell.pid, signal.SIGINT))  # the server waits for that, too
        after = shell("echo $n")
        assert after.code == 0 and after.state == "kept", (answer, after)
        now = "%d\n" % round_
        assert after.stdout == now or after.stdout == before and not answer.stdout, (answer, after)
        before = after.stdout


# Jobs

def test_jobs(shell):
    assert shell.ask_jobs() == []
    shell("sleep 101 & sleep 102 | cat &")
    assert wait_until(lambda: commands(shell) == ["cat", "sleep 101", "sleep 102"])
    jobs = shell.ask_jobs()
    assert all(j["state"] == "running" and j["processes"] == 1 for j in jobs)
    one = next(j for j in jobs if j["command"] == "sleep 101")
    left = shell.ask_jobs("kill_job", str(one["id"]))
    assert one["id"] not in [j["id"] for j in left] and len(left) == 2
    assert "Terminated" in shell("wait %1; echo $?").stderr or True
    assert shell("kill %2; wait").ok
    assert wait_until(lambda: shell.ask_jobs() == [])


def test_job_with_a_tree(shell):
    shell("(trap '' TERM; sleep 103 & (sleep 104 & sleep 105); wait) &")
    assert wait_until(lambda: shell.ask_jobs()[0]["processes"] == 5 or shell.ask_jobs()[0]["processes"] == 4)
    shell.ask_jobs("kill_job", str(shell.ask_jobs()[0]["id"]))
    assert shell.ask_jobs() == []
    assert wait_until(lambda: len(shell.children()) <= 1)


def test_jobs_while_code_runs(shell):
    shell.begin("sleep 100 & sleep 106; echo end")
    assert wait_until(lambda: commands(shell) == ["sleep 100", "sleep 106"])
    pid = next(j["id"] for j in shell.ask_jobs() if j["command"] == "sleep 106")
    shell.send("kill_job", str(pid))
    answer = shell.finish()
    assert answer.stdout == "end\n" and len(answer.jobs) == 1


def test_jobs_survive_a_new_shell(shell):
    shell("sleep 107 &")
    shell("exit 1")
    assert wait_until(lambda: commands(shell) == ["sleep 107"])
    shell.ask_jobs("kill_job", str(shell.ask_jobs()[0]["id"]))
    assert shell.ask_jobs() == []


def test_stopped_job(shell):
    shell("sleep 108 & kill -STOP $!")
    assert wait_until(lambda: shell.ask_jobs()[0]["state"] == "stopped")
    job = shell.ask_jobs()[0]
    assert shell.ask_jobs("kill_job", str(job["id"])) == []


@pytest.mark.parametrize("id_", ["", "0", "1", "-1", "abc", "99999999999999999999", "4194304"])
def test_kill_job_of_no_job(shell, id_):
    shell("sleep 109 &")
    assert len(shell.ask_jobs("kill_job", id_)) == 1
    assert len(shell.ask_jobs("kill_job", str(os.getpid()))) == 1
    assert shell("echo ok").stdout == "ok\n"


# The twelve

@pytest.mark.parametrize("code,status", [("exit 3", 3), ("exec true", 0), ("if then fi", 2), ("set -e; false", 1), ("((", 2)])
def test_bug_1_the_shell_survives(shell, code, status):
    shell("x=kept; export y=kept; f() { echo f; }; alias a='echo alias'; cd /usr")
    assert shell(code).code == status
    assert shell("echo $x $y; f; a; pwd").stdout == "kept kept\nf\nalias\n/usr\n"


def test_bug_2_grandchildren_do_not_outlive_an_interrupt(shell):
    shell.begin("trap '' INT\necho go\nbash -c 'trap \"\" INT TERM; (sleep 110 & setsid sleep 111 & sleep 112); sleep 113'; :")
    until_printed(shell, "go")
    time.sleep(0.2)
    shell.interrupt()
    shell.finish(timeout=10)
    assert wait_until(lambda: shell.ask_jobs() == [])
    names = [pathlib.Path("/proc/%d/comm" % pid).read_text().strip() for pid in shell.children()]
    assert names == ["bash"]


def test_bug_3_late_output_is_not_taken_for_the_next_execs(shell):
    shell.begin("echo first; sleep 100; echo late")
    answer = until_printed(shell, "first")
    shell.interrupt()
    assert shell.finish(answer=answer).stdout == "first\n"
    for i in range(5):
        assert shell("echo %d" % i).stdout == "%d\n" % i


def test_bug_4_output_streams_and_may_be_any_bytes(shell):
    shell.begin("echo early; sleep 0.3; head -c 3000000 /dev/urandom | tee copy; echo -n end")
    answer = until_printed(shell, "early")
    answer = shell.finish(answer=answer)
    copy = pathlib.Path(answer.done["cwd"], "copy").read_bytes()
    same = answer.stdout_bytes == b"early\n" + copy + b"end"  # no diff of three million bytes
    assert same, (len(answer.stdout_bytes), len(copy), answer.stdout_bytes[:20], answer.stderr)


def test_bug_5_stdin_is_free(shell):
    assert shell("read -p 'name? ' n; echo hi $n", stdin=b"Ada\n").stdout == "hi Ada\n"


def test_bug_6_no_polling(shell):
    """An exec is answered when it is over: a hundred take less than they would with any poll."""
    begin = time.monotonic()
    for _ in range(100):
        shell(":")
    assert time.monotonic() - begin < 10


def test_bug_7_streams_stay_apart_and_in_order(shell):
    answer = shell("for i in 1 2 3; do echo o$i; echo e$i >&2; done")
    assert (answer.stdout, answer.stderr) == ("o1\no2\no3\n", "e1\ne2\ne3\n")
    assert shell("(echo o; echo e >&2) 2>&1").stdout == "o\ne\n"


def test_bug_8_deleted_cwd_and_cd_overridden(shell):
    shell("x=1; mkdir gone; cd gone; rmdir ../gone")
    assert shell("echo ok $x").stdout == "ok 1\n"
    assert shell("exit 2").code == 2
    assert shell("echo ok $x; ls >/dev/null && cd / && pwd").stdout == "ok 1\n/\n"
    shell("cd() { echo no; return 1; }; alias cd='false'; pwd() { echo lies; }")
    answer = shell("echo still")
    assert answer.stdout == "still\n" and answer.done["cwd"] == "/"
    shell("exit")
    assert shell("echo still").stdout == "still\n"


def test_bug_9_heredoc_as_last_line(shell):
    assert shell("cat <<EOF\nlast\nEOF").stdout == "last\n"
    assert shell("cat <<EOF\nlast\nEOF\n").stdout == "last\n"
    assert shell("cat <<-EOF\n\tlast\n\tEOF").stdout == "last\n"
    assert shell("echo next").stdout == "next\n"


def test_bug_10_set_u_does_not_touch_our_part(shell):
    shell("set -u")
    assert shell("(exit 5)").code == 5
    assert shell("unset PWD OLDPWD IFS PATH").code == 0
    assert shell("echo fine").code == 0
    assert shell("exit 6").code == 6
    assert shell("echo $-").stdout.count("u") == 1


def test_bug_11_no_files(start, tmp_path):
    """No name in a shared directory: there are no files at all."""
    box, tmp = tmp_path / "box", tmp_path / "tmp"
    box.mkdir(), tmp.mkdir()
    shell = start("bash", cwd=str(box), env={"TMPDIR": str(tmp)})
    before = set(os.listdir("/tmp"))
    for code in ("x=1", "cat <<E\nx\nE", "exit", "read x"):
        shell(code, stdin=b"in")
    assert list(box.iterdir()) == list(tmp.iterdir()) == []
    assert {n for n in set(os.listdir("/tmp")) - before if "shell" in n or "hermes-shell" in n} == set()


def test_bug_12_a_hang_does_not_block_the_session(shell):
    """Jobs can be asked for and killed while code hangs, and an interrupt always ends it."""
    shell.begin("trap '' INT TERM; while :; do sleep 114; done")
    assert wait_until(lambda: shell.ask_jobs() != [])
    shell.interrupt()
    assert shell.finish(timeout=10).done["interrupted"]
    assert shell("echo free").stdout == "free\n"


# Sizes and rubbish

def test_nul_in_code(shell):
    answer = shell("echo a\0b")
    assert answer.code == 2 and "NUL" in answer.stderr and answer.stdout == ""
    assert shell("echo ok").stdout == "ok\n"


def test_large_code(shell):
    answer = shell("x=0\n" + "echo >/dev/null\n" * 65536 + "echo end")
    assert answer.stdout == "end\n"
    assert shell("echo '%s' | wc -c" % ("y" * (1 << 20))).stdout.strip() == str((1 << 20) + 1)
    assert shell("# " + "z" * (8 << 20)).ok


def test_large_state(shell):
    shell("big=$(head -c 3000000 /dev/zero | tr '\\0' x); y=1")
    assert shell("exit 1").state == "kept"
    assert shell("echo ${#big} $y").stdout == "3000000 1\n"
    shell("bigger=$big$big$big; y=2")
    answer = shell("exec true")  # more than is kept
    assert answer.state == "lost"
    assert shell("echo [$y]").stdout == "[]\n"


def test_code_that_is_no_utf8(shell):
    shell.send("exec", b"printf '\xff\xfe'")
    assert shell.finish().stdout_bytes == b"\xff\xfe"


def test_huge_output(shell):
    assert len(shell("head -c 30000000 /dev/zero", timeout=60).stdout_bytes) == 30000000


HOSTILE = {
    "functions over builtins": "builtin() { :; }; printf() { :; }; declare() { :; }; trap() { :; }",
    "builtins disabled": "enable -n builtin printf declare eval mapfile trap",
    "no descriptors": "ulimit -n 3",
    "no file size": "trap '' XFSZ; ulimit -f 0",
    "file size": "ulimit -f 0",
    "closed": "exec <&- >&- 2>&-",
    "exit in DEBUG": "trap 'exit 9' DEBUG",
    "exit in ERR": "trap 'exit 9' ERR; false",
    "exec in EXIT": "trap 'exec sleep 0' EXIT; exit",
    "exit in EXIT": "trap 'exit 4' EXIT; exit",
    "readonly ours": "readonly BASH_EXECUTION_STRING",
    "readonly all": "readonly IFS PWD OLDPWD PATH _",
    "noexec": "set -n",
    "restricted": "set -r",
    "privileged": "set -p",
    "keyword": "set -k",
    "history": "set -o history; shopt -s histexpand",
    "functrace": "set -T; trap 'echo D' DEBUG RETURN",
    "extdebug": "shopt -s extdebug; trap 'false' DEBUG",
    "rubbish in our pipes": "for f in /proc/$PPID/fd/*; do [[ -p $f ]] && (echo rubbish >$f); done",
    "fork of the shell": "(while :; do sleep 115; done) & disown",
    "recursion": "f() { f; }; f",
    "parent stopped a moment": "(sleep 0.1; kill -CONT $PPID) & kill -STOP $PPID",
    "low stack": "ulimit -s 128",
    "posix": "set -o posix; . /nonexistent",
    "alias eval": "alias eval=: builtin=: mapfile=: .=: printf=:",
    "IFS": "IFS=0123456789/",
    "locale": "export LC_ALL=nonsense",
    "BASH_ENV": "export BASH_ENV=/proc/self/mem ENV=x SHELLOPTS BASHOPTS",
    "xtracefd": "exec 9>/dev/null; BASH_XTRACEFD=9; set -x",
    "nameref loop": "declare -n a=b b=a",
    "compat": "BASH_COMPAT=3.2; shopt -s compat31",
    "function exported strangely": "export 'BASH_FUNC_x%%=() { :; }; echo bad'",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(shell, name):
    shell("x=1")
    for code in (HOSTILE[name], ":", ":", ":"):
        shell.begin(code)
        try:
            shell.finish(timeout=1.5)
        except TimeoutError:
            shell.interrupt()
            shell.finish(timeout=10)
    count = shell("echo").done["execution_count"]
    assert count == 6
    # The shell may be crippled, as it was asked to; a fresh one is an exec away.
    shell.begin("exec /bin/true")
    shell.finish(timeout=10)


def test_endless_rubbish_in_our_pipes(shell):
    """The session is the code's own to break; but the kernel still listens."""
    shell.begin("for f in /proc/$PPID/fd/*; do [[ -p $f ]] && { yes >$f & }; done 2>/dev/null; sleep 0.2; echo go >&2; sleep 100")
    assert wait_until(lambda: len(shell.ask_jobs()) > 2)
    for job in shell.ask_jobs():
        shell.ask_jobs("kill_job", str(job["id"]))
    shell.interrupt()
    shell.finish(timeout=10)
    assert "alive" in shell("echo alive").stdout


def test_forged_report(shell):
    """Code that finds our pipes can lie about its own status, and no more."""
    answer = shell("for f in /proc/$PPID/fd/*; do [[ -p $f ]] && (printf 'R 0 x\\0S\\n\\0' >$f) 2>/dev/null; done; exit 7")
    assert answer.code == 7


@pytest.mark.parametrize("bytes_", [b"nonsense\n", b"exec -1\n", b"exec 01\n", b"exec 99999999999\n", b"x" * 100, b"exec 1 2\n",
                                    b"bogus 0\n", b"\n", b"exec \n", b" 0\n"])
def test_broken_frames_end_the_kernel(shell, bytes_):
    shell.channel.sendall(bytes_)
    assert shell.wait() == 70


def test_exec_while_one_runs_ends_the_kernel(shell):
    shell.begin("sleep 100")
    shell.begin("echo no")
    assert shell.wait() == 70


def test_frames_in_pieces(shell):
    for byte in b"exec 7\necho hi":
        shell.channel.sendall(bytes([byte]))
        time.sleep(0.001)
    assert shell.finish().stdout == "hi\n"


def test_children_have_nothing_of_ours(shell):
    answer = shell("ls -l /proc/self/fd")
    assert "socket" not in answer.stdout and "memfd" not in answer.stdout
    answer = shell("ls -l /proc/$$/fd")
    assert "socket" not in answer.stdout


def test_end_of_channel_ends_all(shell):
    shell("sleep 116 & setsid sleep 117 &")
    assert len(shell.ask_jobs()) == 2
    shell.channel.close()
    assert shell.wait() == 0
    assert wait_until(lambda: shell.children() == [])


def test_kernel_killed_by_the_code(shell):
    with pytest.raises(Dead):
        shell("kill -9 $PPID")
    assert shell.wait() == -signal.SIGKILL
    assert wait_until(lambda: shell.children() == [])


def test_no_bash(start):
    from kernellib import COMMANDS
    COMMANDS["nobash"] = [COMMANDS["bash"][0], "/nonexistent/bash"]
    shell = start("nobash", wait=False)
    assert shell.wait() == 72


def test_many_execs(shell):
    for i in range(300):
        assert shell("echo %d" % i).stdout == "%d\n" % i
    assert shell("ls /proc/$PPID/fd | wc -l").stdout == shell("ls /proc/$PPID/fd | wc -l").stdout


def test_many_restarts(shell):
    for i in range(50):
        assert shell("n=$((n + 1)); exit 1").state == "kept"
    assert shell("echo $n").stdout == "50\n"
    assert shell("ls /proc/$PPID/fd | wc -l").stdout.strip() < "20"
