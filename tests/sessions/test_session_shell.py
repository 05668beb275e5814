# SPDX-License-Identifier: Apache-2.0
"""The twelve ways in which a persistent shell of an agent tool broke, each of which ours must survive
(numbers of the list: shared reference agent-execution 2.2)."""
import threading
import time

import pytest

from apilib import SLOW, boxes_below, wait_until


@pytest.fixture
def shell(session):
    s = session("bash")
    s.exec("x=5; export y=6; f() { echo called; }; cd /tmp")
    return s


def is_whole(s):
    """Variables, functions and the working directory are there."""
    return s.out("echo $x $y $(f) $PWD") == "5 6 called /tmp\n"


ENDS = {"exit": "exit 3", "exit in a subshell": "(exit 3)", "exec": "exec true", "exec of nothing": "exec /nonexistent",
        "syntax": "if then fi )", "unfinished": "cat <<EOF\nno end", "unfinished quote": "echo 'abc",
        "set -e": "set -e; false; echo not here", "trap": "trap 'exit 9' ERR; false", "kill": "kill -9 $$"}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_1_what_ends_a_shell(shell, how):
    answer = shell.exec(ENDS[how])
    assert not answer["state_lost"], answer
    assert "not here" not in answer["stdout"]
    assert shell.state()["state"] == "idle"
    answer = shell.exec("trap - ERR; set +e; echo $x $y $(f) $PWD")
    assert answer["stdout"] == "5 6 called /tmp\n" and answer["status"] == "ok", answer


def test_2_grandchildren_do_not_outlive_a_timeout(server, shell):
    """Nor those that ignore the signal or changed their group. (What was started with & is a job and stays.)"""
    answer = shell.exec("bash -c \"trap '' INT; setsid sleep 54321 | bash -c 'sleep 54322; sleep 54323'\"", timeout_ms=500)
    assert answer["status"] == "time_limit" and not answer["state_lost"]

    def sleepers():
        found = []
        for pid in boxes_below(server.child("hermes-spawn")):
            try:
                line = open("/proc/%d/cmdline" % pid, "rb").read()
            except OSError:
                continue
            if b"5432" in line and line.startswith(b"sleep"):
                found.append(line)
        return found
    assert wait_until(lambda: not sleepers(), 10), sleepers()
    assert is_whole(shell)


def test_3_late_output_is_not_the_next_commands(shell):
    shell.exec("trap '' INT; for i in $(seq 100); do echo late; sleep 0.1; done", timeout_ms=300)
    assert shell.out("echo mine; sleep 0.3") == "mine\n"
    assert is_whole(shell)


def test_4_large_and_binary_output(shell):
    answer = shell.exec("head -c 5000000 /dev/zero | tr '\\0' x; printf '\\377\\376' >&2")
    assert answer["stdout_truncated"] and answer["stdout_bytes"] == 5000000 and len(answer["stdout"]) < 1100000
    assert answer["stderr"] == "\ufffd\ufffd"


def test_5_stdin(shell):
    assert shell.out("read a; read b; echo $b $a; cat", stdin="1\n2\nrest") == "2 1\nrest"
    assert shell.exec("read a")["exit_code"] == 1
    assert shell.out("cat | wc -c", stdin="x" * 300000) == "300000\n"


def test_6_no_polling(shell):
    """A command that does nothing costs a few milliseconds, whatever the machine does otherwise."""
    took = []
    for _ in range(30):
        begin = time.monotonic()
        shell.out("true")
        took.append(time.monotonic() - begin)
    assert sorted(took)[15] < 0.1 * SLOW  # the broken one: 0.15 s at least, by design


def test_7_streams_are_apart_and_each_in_order(shell):
    answer = shell.exec("for i in $(seq 200); do echo o$i; echo e$i >&2; done")
    assert answer["stdout"] == "".join("o%d\n" % i for i in range(1, 201))
    assert answer["stderr"] == "".join("e%d\n" % i for i in range(1, 201))


def test_8_a_deleted_directory_and_a_cd_of_ones_own(shell):
    shell.exec("mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone")
    assert shell.out("echo fine") == "fine\n"
    shell.exec("cd /tmp; cd() { echo not today; return 1; }; alias pwd='echo wrong'; alias echo2=echo")
    assert shell.out("echo fine") == "fine\n"
    assert shell.exec("true")["cwd"] == "/tmp"


def test_9_a_heredoc_as_the_last_line(shell):
    assert shell.out("cat <<EOF\none\ntwo\nEOF") == "one\ntwo\n"
    assert shell.out("cat <<'EOF'\n$x\nEOF\necho after") == "$x\nafter\n"
    assert shell.out("echo a # a comment") == "a\n"


def test_10_options_do_not_break_the_exit_code(shell):
    shell.exec("set -u; set -o pipefail; set -f")
    assert shell.exec("echo $undefined")["exit_code"] != 0
    assert shell.exec("false | true")["exit_code"] == 1
    assert shell.exec("(exit 42)")["exit_code"] == 42
    assert shell.out("set -o | grep -c 'on$' >/dev/null; echo $-").count("u") == 1


def test_11_nothing_to_guess_in_tmp(shell):
    """No file of ours lies where code could plant one."""
    assert shell.out("ls -A /tmp /box /dev/shm") == "/box:\n\n/dev/shm:\n\n/tmp:\n"


def test_12_a_command_that_hangs_blocks_nobody_else(session, shell):
    other = session("bash")
    late = shell.later("sleep 60", timeout_ms=60000)
    assert wait_until(lambda: shell.state()["state"] == "busy", 5)
    assert other.out("echo fine") == "fine\n"
    assert shell.post("echo x").status == 409
    shell.call("POST", "/interrupt")
    assert late.result().json()["exit_code"] == 130
    assert is_whole(shell)


def test_everything_persists(shell):
    shell.exec("arr=(a 'b c'); declare -A map=([k]=v); shopt -s nullglob; umask 077; readonly r=1; set -o noclobber; "
               "trap 'echo bye' EXIT; PS1='> '; exec 7>/tmp/seven")
    assert shell.out("echo ${arr[1]} ${map[k]} $(umask) $r; shopt -p nullglob; echo seven >&7; cat /tmp/seven") == \
        "b c v 0077 1\nshopt -s nullglob\nseven\n"


def test_many_commands_in_a_row_with_a_crowd(session):
    sessions = [session("bash", limits={"memory_mb": 64}) for _ in range(6)]
    wrong = []

    def work(n, s):
        for i in range(40):
            if s.exec("n=$((n+1)); echo %d:$n" % n)["stdout"] != "%d:%d\n" % (n, i + 1):
                wrong.append((n, i))
    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(sessions)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
