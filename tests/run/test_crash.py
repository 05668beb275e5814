# SPDX-License-Identifier: Apache-2.0
"""What is left when a part of Hermes is killed (R1, R2): nothing lives on, and the next start
removes the rest, but nothing that belongs to a live instance."""
import json
import os
import signal
import subprocess
import time

import pytest

from runlib import one_line, slack, wait_until

BOMB = "import os\nprint('up', flush=True)\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
BUSY = "print('up', flush=True)\nwhile True: pass\n"
STUBBORN = "import os, signal\nfor s in range(1, 64):\n  try: signal.signal(s, signal.SIG_IGN)\n" \
           "  except (OSError, ValueError): pass\n" \
           "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: pass\n" \
           "print('up', flush=True)\nwhile True: pass\n"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)\n"


def children(pid):
    try:
        return [int(p) for p in open("/proc/%d/task/%d/children" % (pid, pid)).read().split()]
    except OSError:
        return []


def start(hermes, code, *flags, name="main.py"):
    p = hermes.start(["run", "--time", "60s", "--cpu", "60s", "--processes", "40", *flags,
                      hermes.file(code, name)])
    assert p.stdout.readline() == b"up\n"
    return p


def end(p):
    p.kill()
    p.communicate()


@pytest.mark.slow
def test_hermes_killed_with_twenty_busy_boxes(hermes, groups, oracle):
    """R1: every payload dead within a second, the next start cleans within another."""
    codes = [BOMB, BUSY, STUBBORN, SLEEP]
    runs = []
    factor = slack()
    for i in range(20):
        path = hermes.file(codes[i % 4], "%d/main.py" % i)
        runs.append(hermes.start(["run", "--time", "60s", "--cpu", "60s", "--processes", "40",
                                  path]))
    for p in runs:
        assert p.stdout.readline() == b"up\n"
    assert wait_until(lambda: len(groups.pids()) > 150, 20)
    mine = {p.pid for p in runs}
    began = time.monotonic()
    for p in runs:
        p.kill()
    assert wait_until(lambda: not groups.pids() - mine, 20)
    dead = time.monotonic() - began
    for p in runs:
        p.communicate()
    began = time.monotonic()
    assert hermes.py("print(1)").out == b"1\n"
    restart = time.monotonic() - began
    assert wait_until(lambda: not groups.leaves(), 2)
    print("20 boxes dead after %.0f ms, next start %.0f ms, factor %.1f" % (
        dead * 1000, restart * 1000, factor))
    assert dead <= 1.0 * factor, (dead, factor)
    assert restart <= 1.0 * factor, (restart, factor)


@pytest.mark.slow
def test_spawner_killed_again_and_again(hermes, groups, oracle):
    """R2: its boxes die, their run says internal_error, another instance goes on."""
    factor = slack()
    other = start(hermes, SLEEP)
    others = groups.pids()
    for i in range(10):
        p = start(hermes, [BOMB, BUSY, STUBBORN][i % 3])
        time.sleep(0.01 * i)
        began = time.monotonic()
        os.kill(children(p.pid)[0], signal.SIGKILL)
        out, err = p.communicate(timeout=30)
        assert p.returncode == 125, (p.returncode, err)
        one_line(err.decode())
        assert wait_until(lambda: groups.pids() <= others, 10), groups.pids() - others
        assert time.monotonic() - began < 1.0 * factor + 0.5
    assert other.poll() is None and groups.pids() == others
    end(other)
    assert hermes.py("print(1)").status == 0


@pytest.mark.slow
def test_init_killed_again_and_again(hermes, groups, oracle):
    other = start(hermes, SLEEP)
    others = groups.pids()
    for i in range(10):
        p = start(hermes, [BOMB, BUSY, STUBBORN][i % 3])
        spawner = children(p.pid)[0]
        assert wait_until(lambda: len(children(spawner)) == 1, 10)  # hermes-setup may still be ending
        init = children(spawner)
        os.kill(init[0], signal.SIGKILL)
        out, err = p.communicate(timeout=30)
        assert p.returncode == 125, (p.returncode, err)
        assert "init" in one_line(err.decode())
        assert wait_until(lambda: groups.pids() == others, 10)
    assert other.poll() is None
    end(other)


@pytest.mark.slow
def test_collector_killed(hermes, groups, oracle):
    """The helper that brings files back dies in the middle: the verdict stands, the answer says
    that files are missing."""
    code = "import os\nfor i in range(60):\n  open('f%d.bin' % i, 'wb').write(b'x' * 200000)\n" \
           "print('up', flush=True)\n"
    caught = 0
    for _ in range(12):
        answer_path = hermes.work / "answer"
        with open(answer_path, "wb") as to:
            p = hermes.start(["run", "--json", "--collect", "*.bin", "--disk", "64m",
                              hermes.file(code, "main.py")], stdout=to)
        # The collector is the child of init that has not executed anything.
        helper = None
        while p.poll() is None and helper is None:
            for spawner in children(p.pid):
                for init in children(spawner):
                    for child in children(init):
                        try:
                            if open("/proc/%d/comm" % child).read() == "hermes-spawn\n" and \
                                    open("/proc/%d/task/%d/children" % (init, init)).read() \
                                    and payload_done(init, child):
                                helper = child
                        except OSError:
                            pass
        if helper:
            try:
                os.kill(helper, signal.SIGKILL)
            except ProcessLookupError:
                helper = None
        _, err = p.communicate(timeout=60)
        answer = json.loads(answer_path.read_bytes())
        assert answer["status"] == "ok" and p.returncode == 0, (answer["message"], err)
        if len(answer["files"]) < 60:
            caught += 1
            assert "collect" in answer["message"]
    print("killed in the middle %d times of 12" % caught)


def payload_done(init, child):
    """Init forked this one second: its pid in the box is not 2."""
    status = open("/proc/%d/status" % child).read()
    return int(status.split("\nNSpid:")[1].split("\n")[0].split()[-1]) > 2


def test_payload_helper_killed_before_exec(hermes, groups):
    """The process that becomes the program is killed at any moment of its start: a signal, or
    Hermes' own failure; never a success."""
    for i in range(15):
        p = hermes.start(["run", hermes.file(SLEEP, "main.py")])
        victim = None
        while p.poll() is None and victim is None:
            for spawner in children(p.pid):
                for init in children(spawner):
                    for child in children(init):
                        victim = child
        if victim:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        out, err = p.communicate(timeout=60)
        assert p.returncode in (125, 137), (p.returncode, err)
        one_line(err.decode())


def test_leftovers_with_live_processes(hermes, groups, oracle):
    """Groups of an instance that is gone, with processes still in them (their spawner and init
    were killed while stopped): the next start kills and removes them."""
    p = start(hermes, SLEEP)
    leaves = groups.leaves()
    assert len(leaves) == len({d for d, _ in groups.dirs if "cpuacct" not in d}), leaves
    # A process of ours takes the place of one that escaped the death of its spawner.
    stray = subprocess.Popen(["sleep", "60"])
    for leaf in leaves:
        with open(leaf + "/cgroup.procs", "w") as f:
            f.write(str(stray.pid))
    os.kill(children(p.pid)[0], signal.SIGKILL)
    p.communicate()
    assert groups.leaves() == leaves and stray.poll() is None
    began = time.monotonic()
    assert hermes.py("print(1)").out == b"1\n"
    took = time.monotonic() - began
    assert stray.wait(5) == -signal.SIGKILL
    assert wait_until(lambda: not groups.leaves(), 2), groups.leaves()
    assert took < 1.0 + 1.0 * slack(), took


def test_live_instances_are_left_alone(hermes, groups, oracle):
    """Starts and ends of others, in every order, never touch a live instance."""
    live = [start(hermes, SLEEP) for _ in range(4)]
    before = groups.leaves()
    pids = groups.pids()
    for _ in range(5):
        assert hermes.py("print(1)").status == 0
        end(start(hermes, SLEEP))
    wait_until(lambda: groups.pids() == pids, 5)
    assert groups.pids() == pids
    assert set(before) <= set(groups.leaves())
    for p in live:
        assert p.poll() is None
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=30)
        assert p.returncode == 130


@pytest.mark.slow
def test_starts_in_parallel_with_deaths(hermes, groups, oracle):
    """Sixty starts, every third killed at a random moment: the others never notice."""
    path = hermes.file("print('ran')", "main.py")
    rounds = []
    for i in range(60):
        p = hermes.start(["run", path])
        rounds.append((i, p))
        if i % 3 == 0:
            time.sleep(0.003 * (i % 7))
            victim = children(p.pid) if i % 2 else [p.pid]
            for pid in victim:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if len(rounds) >= 10:
            finish_round(rounds)
    finish_round(rounds)
    assert hermes.py("print(1)").status == 0
    assert wait_until(lambda: not groups.leaves(), 3), groups.leaves()


def finish_round(rounds):
    for i, p in rounds:
        out, err = p.communicate(timeout=60)
        if i % 3:
            assert (p.returncode, out, err) == (0, b"ran\n", b""), (i, p.returncode, err)
    rounds.clear()
