# SPDX-License-Identifier: Apache-2.0
"""The far shell over pipes, over its socket and over a real sshd."""
import json
import os
import resource
import signal
import subprocess
import tempfile
import time
import uuid

import pytest

import farlib
from farlib import SHELL, Far, Files, Gone, processes_with, wait_until

# Prints eight lines, waits for a file in the middle, then fails with 9.
LOOP = "for i in 1 2 3 4 5 6 7 8; do echo line $i; [ $i = 4 ] && touch half && until [ -e go ]; do sleep 0.02; done; done; kept=yes; (exit 9)"
LINES = b"".join(b"line %d\n" % i for i in range(1, 9))


def test_it_says_its_version():
    found = subprocess.run([SHELL, "--version"], capture_output=True, text=True)
    assert found.returncode == 0 and found.stdout.startswith("hermes-shell ")


@pytest.mark.parametrize("words", [["--stdio"], ["--stay", "/x"], ["--stay", "/x", "many", "n"], ["--attach"], ["--nonsense"]])
def test_wrong_words_are_answered_with_the_usage(words):
    found = subprocess.run([SHELL, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert found.returncode == 64 and "usage: hermes-shell" in found.stderr


def test_output_is_exact_and_state_is_kept(far):
    f = far()
    found = f.exec("echo out; echo err >&2; x=7; cd /; (exit 3)")
    assert (found.out, found.err, found.code) == (b"out\n", b"err\n", 3)
    assert f.exec("echo $x $PWD").out == b"7 /\n"


@pytest.mark.parametrize("code,status", [("true", 0), ("(exit 7)", 7), ("/etc/passwd", 126), ("no-such-program-x", 127),
                                         ("bash -c 'kill -INT $$'", 130), ("timeout 0.1 sleep 9", 124)])
def test_exit_codes(far, code, status):
    assert far().exec(code).code == status


def test_stdin_and_binary_bytes_pass_unchanged(far):
    data = bytes(range(256)) * 4000
    assert far().exec("cat", stdin=data).out == data


def test_much_output_comes_whole_and_before_done(far):
    found = far().exec("head -c 8000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert len(found.out) == 8000000 and set(found.out) == {ord("x")} and found.err == b"end\n"


def test_variables_go_over_the_stream(far, tmp_path):
    f = far(start=False)
    f.start(str(tmp_path), TOKEN="s3cret-%s" % tmp_path.name)
    assert f.exec("echo $TOKEN").out.decode().strip() == "s3cret-" + tmp_path.name
    assert not processes_with("s3cret-" + tmp_path.name)


def test_a_missing_directory_is_named(far):
    f = far(start=False)
    f.send("start", b"/no/such/dir\0")
    seen = [f.next() for _ in range(2)]
    assert seen[0][0] == "err" and b"cannot enter the directory /no/such/dir: No such file" in seen[0][1]
    assert seen[1][0] == "exit"


def test_an_interrupt_stops_the_command_and_keeps_the_state(far, tmp_path):
    f = far()
    f.exec("x=5")
    f.send("exec", b"touch begun; sleep 1000")
    wait_until((tmp_path / "begun").exists, "the command runs")
    f.send("signal", b"2")
    assert f.result().code == 130
    assert f.exec("echo $x").out == b"5\n"


def test_jobs_are_listed_and_ended(far):
    f = far()
    f.exec("sleep 1000 & while [ $(cat /proc/$!/comm) != sleep ]; do sleep 0.01; done")
    f.send("jobs")
    kind, data = f.next()
    assert kind == "jobs" and [job["command"] for job in json.loads(data)] == ["sleep 1000"]
    f.send("kill_job", b"%d" % json.loads(data)[0]["id"])
    assert f.next() == ("jobs", b"[]")


def test_ping_is_answered_while_a_command_runs(far):
    f = far()
    f.send("exec", b"sleep 1000")
    f.send("ping", b"hello")
    assert f.next() == ("ping", b"hello")


def test_stop_ends_every_process_and_start_begins_again(far, tmp_path):
    word = "7%d" % (uuid.uuid4().int % 10**8)
    f = far()
    f.exec("setsid sleep %s & disown; (sleep %s &)" % (word, word))
    wait_until(lambda: len(processes_with(word)) >= 2, "both run")
    f.send("stop")
    assert f.next()[0] == "exit"
    wait_until(lambda: not processes_with(word), "nothing is left")
    f.start(str(tmp_path))
    assert f.exec("echo again").out == b"again\n"


# Each process lives for less time than /proc takes to be read. It ends by itself if nothing else ends it.
HOP = """
#include <time.h>
#include <unistd.h>
int main(void)
{
    time_t end = time(NULL) + 20;
    for (int i = 0; i < 7 && fork(); i++)
        ;
    while (time(NULL) < end)
        if (fork() > 0)
            _exit(0);
}
"""
# A user of its own, whose zombies are bounded: other tests need pids, too.
BOUNDED = ["setpriv", "--reuid=64987", "--regid=64987", "--clear-groups", "prlimit", "--nproc=1500"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user of its own")
@pytest.mark.parametrize("how", ["end", "stop", "killed"])
def test_processes_that_fork_and_exit_all_the_time_are_ended(far, how):
    word = "hop-" + uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="hop-") as folder:
        os.chmod(folder, 0o755)
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", "%s/%s" % (folder, word)], input=HOP.encode(), check=True)
        f = far(lambda nonce: [*BOUNDED, SHELL, "--stdio", nonce], start=False)
        f.start(folder)
        f.exec("setsid ./%s </dev/null >/dev/null 2>&1 &" % word)
        wait_until(lambda: processes_with(word), "it runs")
        time.sleep(0.3)
        if how == "killed":
            f.process.kill()
            wait_until(lambda: not processes_with(SHELL + "\0--stdio\0" + f.nonce), "its interpreter has ended, too", 10)
        else:
            f.send(how)
        if how == "stop":
            assert f.next()[0] == "exit"
        else:
            f.process.wait(30)
        assert not [pid for _ in range(100) for pid in processes_with(word)]


def test_a_stop_without_an_interpreter_does_not_end_the_next_one(far, tmp_path):
    f = far()
    f.send("stop")
    assert f.next()[0] == "exit"
    f.send("stop")
    f.start(str(tmp_path))
    f.exec("kept=yes")
    time.sleep(4)
    assert f.exec("echo $kept").out == b"yes\n"


def test_the_end_of_the_stream_ends_everything_and_the_control_leaves_it(far, sshd):
    word = "8%d" % (uuid.uuid4().int % 10**8)
    f = far(lambda nonce: sshd.ssh("%s --stdio %s" % (SHELL, nonce)))
    f.exec("(setsid sleep %s &)" % word)
    wait_until(lambda: processes_with(word), "it runs")
    f.cut()
    wait_until(lambda: not processes_with(word), "nothing is left")
    # Control: a plain command over ssh goes on when its client is killed.
    plain = subprocess.Popen(sshd.ssh("sleep " + word), stdin=subprocess.DEVNULL)
    remote = wait_until(lambda: [pid for pid in processes_with("sleep\0" + word) if pid != plain.pid], "it runs")
    plain.kill()
    plain.wait()
    sshd.cut()
    time.sleep(0.3)
    left = [pid for pid in processes_with("sleep\0" + word)]
    assert left == remote
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_a_banner_before_the_hello_is_dropped(far, sshd):
    f = far(lambda nonce: sshd.ssh("echo motd; printf '\\001x\\002 5\\n'; exec %s --stdio %s" % (SHELL, nonce)))
    assert f.exec("echo $((6*7))").out == b"42\n"


class TestStay:
    def stay(self, far, tmp_path, grace="60", through=None):
        socket = str(tmp_path / "s")
        words = [SHELL, "--stay", socket, grace]
        f = far(lambda nonce: through(" ".join(words + [nonce])) if through else words + [nonce], start=False)
        f.start(str(tmp_path))
        return f, [SHELL, "--attach", socket]

    def through_a_cut(self, f, join, tmp_path, cut):
        f.send("exec", LOOP.encode())
        wait_until((tmp_path / "half").exists, "half of the output")
        cut(f)
        (tmp_path / "go").touch()
        f.connect(join(f.nonce))
        found = f.result()
        assert (found.out, found.code) == (LINES, 9)
        assert f.exec("echo $kept").out == b"yes\n"

    def test_a_cut_loses_and_repeats_nothing(self, far, tmp_path):
        f, join = self.stay(far, tmp_path)
        self.through_a_cut(f, lambda nonce: join + [nonce], tmp_path, Far.cut)

    def test_a_killed_ssh_server_loses_and_repeats_nothing(self, far, tmp_path, sshd):
        f, join = self.stay(far, tmp_path, through=sshd.ssh)

        def cut(client):
            sshd.cut()
            client.process.wait()
            with pytest.raises(Gone):  # what it had sent before the cut still counts
                while True:
                    self.early.append(client.next())
        self.early = []
        f.send("exec", LOOP.encode())
        wait_until((tmp_path / "half").exists, "half of the output")
        cut(f)
        (tmp_path / "go").touch()
        f.connect(sshd.ssh(" ".join(join + [f.nonce])))
        found = f.result(b"".join(data for kind, data in self.early if kind == "out"))
        assert (found.out, found.code) == (LINES, 9)
        assert f.exec("echo $kept").out == b"yes\n"

    def test_a_command_that_was_sent_again_runs_once(self, far, tmp_path):
        f, join = self.stay(far, tmp_path)
        f.send("exec", b"echo run >> runs; touch begun; until [ -e go ]; do sleep 0.02; done")
        wait_until((tmp_path / "begun").exists, "it runs")
        f.cut()
        f.connect(join + [f.nonce])  # sends everything that was not confirmed again
        (tmp_path / "go").touch()
        assert f.result().code == 0
        assert (tmp_path / "runs").read_text() == "run\n"

    def test_a_new_client_replaces_the_old_one(self, far, tmp_path):
        f, join = self.stay(far, tmp_path)
        second = Far("second")
        second.received, second.base = f.received, f.sent
        second.base = len(f.unconfirmed) + f.base
        second.connect(join + ["second"])
        try:
            with pytest.raises(Gone):
                f.next()
            assert second.exec("echo mine").out == b"mine\n"
        finally:
            second.close()

    def test_unread_output_makes_the_program_wait(self, far, tmp_path):
        f, join = self.stay(far, tmp_path)
        f.cut()
        f.connect(join + [f.nonce])
        f.send("exec", b"head -c 6000000 /dev/zero | tr '\\0' x; touch printed")
        f.cut()
        time.sleep(0.5)
        assert not (tmp_path / "printed").exists()
        f.connect(join + [f.nonce])
        assert f.result().out == b"x" * 6000000

    def test_nothing_is_left_after_the_grace_time(self, far, tmp_path):
        word = "9%d" % (uuid.uuid4().int % 10**8)
        f, join = self.stay(far, tmp_path, grace="1")
        f.exec("(setsid sleep %s &)" % word)
        wait_until(lambda: processes_with(word), "it runs")
        f.cut()
        wait_until(lambda: not processes_with(word) and not processes_with(str(tmp_path / "s")), "nothing is left")
        assert not (tmp_path / "s").exists()
        with pytest.raises(Gone, match="gone"):
            f.connect(join + [f.nonce])

    def test_a_client_without_a_descriptor_does_not_say_that_it_is_gone(self, far, tmp_path):
        f, join = self.stay(far, tmp_path)
        f.exec("kept=yes")
        f.cut()
        with pytest.raises(Gone, match="^$"):
            f.connect(join + [f.nonce], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)))
        f.connect(join + [f.nonce])
        assert f.exec("echo $kept").out == b"yes\n"

    def test_the_socket_is_private_and_taken_once(self, far, tmp_path):
        self.stay(far, tmp_path)
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
        found = subprocess.run([SHELL, "--stay", str(tmp_path / "s"), "5", "n"], capture_output=True, text=True)
        assert found.returncode == 64 and "Address already in use" in found.stderr

    def test_a_client_that_claims_bytes_it_cannot_have_is_dropped(self, far, tmp_path):
        f, join = self.stay(far, tmp_path)
        liar = Far("liar")
        liar.received = 10**9
        with pytest.raises((Gone, BrokenPipeError)):
            liar.connect(join + ["liar"])
            liar.next()
        liar.cut()
        f.cut()
        f.connect(join + [f.nonce])
        assert f.exec("echo fine").out == b"fine\n"


class TestFiles:
    def test_files_go_both_ways(self, far, tmp_path):
        files = Files(far(), 1)
        data = os.urandom(300000)
        assert files.put("a/b.bin", data) == 0
        assert (tmp_path / "a/b.bin").read_bytes() == data
        assert files.get("a/b.bin") == data
        assert files.list("", flags=1) == ["a", "a/b.bin"]

    def test_links_and_paths_that_lead_out_are_refused(self, far, tmp_path):
        os.symlink("/etc/passwd", tmp_path / "link")
        os.symlink("/etc", tmp_path / "dir")
        f = far()
        assert Files(f, 1).get("link") == -40
        assert Files(f, 2).get("dir/passwd") == -40
        assert Files(f, 3).put("link", b"x") == -40
        for number, name in ((4, "../x"), (5, "/etc/passwd")):
            with pytest.raises(Gone):  # the helper ends
                Files(f, number).get(name)

    def test_files_work_while_a_command_runs(self, far, tmp_path):
        f = far()
        f.send("exec", b"until [ -e go ]; do sleep 0.02; done; cat go")
        f.send("ping", b"before the file")
        assert Files(f, 1).put("go", b"went") == 0
        assert f.next() == ("ping", b"before the file")  # frames of others come in between, and are kept
        assert f.result().out == b"went"


@pytest.mark.parametrize("bytes_", [b"exec 99999999999\n", b"exec\n", b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                                    b"signal 1\n9signal 3\n999", b"start 3\nabc", b"ack 9\n999999999"])
def test_a_broken_stream_ends_the_far_shell(far, bytes_):
    f = far()
    f.write(bytes_)
    with pytest.raises(Gone):
        while True:
            f.next()
    assert f.process.wait(farlib.PATIENCE) == 70
