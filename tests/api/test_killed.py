# SPDX-License-Identifier: Apache-2.0
"""kill -9 of each program with fifty busy boxes, fork bombs among them (R1, R2): their payloads
die, the runs say so, and the next start finds nothing. HERMES_FULL=1 makes the boxes busier."""
import asyncio
import os
import signal
import time

import pytest

from apilib import SLOW, boxes_below, children, descendants, is_box, name_of, wait_until
from crowd import Connection, Lost
from leaks import Holdings, is_ownerless, settle
from runlib import slack

FULL = bool(os.environ.get("HERMES_FULL"))
IN_VM = bool(os.environ.get("HERMES_IN_VM"))
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups, mounts")


BUSY = ("bash", "while :; do :; done")
STILL = ("bash", "sleep 300")
BOMB = ("python", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n")
STUBBORN = ("python", "import os, signal\nfor s in range(1, 64):\n"
            "  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
            "os.fork()\nos.setsid() if os.fork() == 0 else 0\nwhile True: os.sched_yield()\n")
BOXES = 20 if IN_VM else 50
LIMITS = {"wall_ms": 300000, "cpu_ms": 300000, "processes": 16, "memory_mb": 64,
          "cpus": 1.0 if FULL else 0.1}


class Busy:
    """Fifty runs that do not end by themselves, beside `others` that are there already."""

    def __init__(self, server, others=0):
        self.server, self.port, self.others = server, server.port, others
        self.answers = {}

    async def one(self, i):
        conn = Connection(self.port, timeout=120 * SLOW)
        try:
            language, code = [STILL, STILL, BUSY, STUBBORN, BOMB][i * 5 // BOXES]
            self.answers[i] = await conn("POST", "/v1/runs", {
                "language": language, "code": code, "limits": LIMITS})
        except Lost as e:
            self.answers[i] = e
        conn.close()

    async def started(self, count):
        conn = Connection(self.port)
        for _ in range(1200 * SLOW):
            text = (await conn("GET", "/metrics")).body.decode()
            self.first_inits = set(box_inits(self.server))
            # No other box is there, such as one that measures a language.
            if "hermes_boxes_running %d\n" % count in text and len(self.first_inits) == count:
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("%d of %d boxes run: %s" % (len(self.first_inits), count, self.answers))
        conn.close()
        await asyncio.sleep(0.5)  # for the bombs to go off

    def inits(self):
        """Box inits that are left of the first ones."""
        return [pid for pid in box_inits(self.server) if pid in self.first_inits]

    async def during(self, act):
        """Starts all, calls act, waits for all answers but those act leaves running."""
        self.tasks = [asyncio.ensure_future(self.one(i)) for i in range(BOXES)]
        await self.started(BOXES + self.others)
        self.pids = set(boxes_below(self.server.child("hermes-spawn")))
        assert len(self.pids) > 2 * BOXES
        self.factor = slack()
        await act(self)
        await asyncio.gather(*self.tasks)

    def run(self, act):
        asyncio.run(self.during(act))
        return self


def box_inits(server):
    return [pid for pid in children(server.child("hermes-spawn")) if is_box(pid)]


async def dead(busy, pids):
    """How long these processes live on; one that waits to be reaped is dead."""
    def alive():
        return [p for p in pids if name_of(p) and
                open("/proc/%d/stat" % p).read().rsplit(")", 1)[1].split()[0] not in "ZX"]
    began = time.monotonic()
    while time.monotonic() - began < 30 * SLOW:
        try:
            if not alive():
                break
        except OSError:
            continue
        await asyncio.sleep(0.01)
    took = time.monotonic() - began
    print("%d processes dead after %.0f ms, factor %.1f" % (len(pids), took * 1000, busy.factor))
    assert took <= 1.0 * busy.factor, (took, busy.factor)


@pytest.fixture
def crowded(contained):
    return contained(env={"HERMES_CONCURRENCY": str(BOXES + 10), "HERMES_MEMORY_MB": "16384",
                          "HERMES_HISTORY": "sqlite"})


@pytest.mark.slow
def test_r1_the_server_is_killed_with_fifty_busy_boxes(contained, crowded):
    before = Holdings(crowded, contained.groups)
    lost = crowded("POST", "/v1/runs", {"language": "bash", "code": "sleep 300",
                                        "limits": LIMITS, "async": True}).json()["id"]
    pids = crowded.programs()

    async def act(busy):
        os.kill(pids["hermes-server"], signal.SIGKILL)
        await dead(busy, busy.pids)
    busy = Busy(crowded, others=1).run(act)
    assert all(isinstance(a, Lost) for a in busy.answers.values())
    assert wait_until(lambda: crowded.child("hermes-server") not in (None, pids["hermes-server"]))
    assert wait_until(lambda: crowded.works(), 20)
    found = crowded("GET", "/v1/runs/" + lost).json()
    assert found["status"] == "internal_error" and "server ended" in found["message"]
    assert crowded.child("hermes-spawn") not in (None, pids["hermes-spawn"])  # it ends with its boxes
    left, _ = settle(crowded, contained.groups, before, 5)
    assert not left, left


@pytest.mark.slow
def test_r2_the_spawner_is_killed_with_fifty_busy_boxes(contained, crowded):
    before = Holdings(crowded, contained.groups)
    pids = crowded.programs()

    async def act(busy):
        os.kill(pids["hermes-spawn"], signal.SIGKILL)
        await dead(busy, busy.pids)
    busy = Busy(crowded).run(act)
    for answer in busy.answers.values():
        assert answer.status == 500 and answer.json()["status"] == "internal_error", answer
    assert wait_until(lambda: crowded.works(), 20)
    assert crowded.child("hermes-server") == pids["hermes-server"]
    assert crowded.child("hermes-spawn") not in (None, pids["hermes-spawn"])
    left, _ = settle(crowded, contained.groups, before, 5)
    assert not left, left


@pytest.mark.slow
def test_r1_the_monitor_is_killed_with_fifty_busy_boxes(contained, crowded):
    async def act(busy):
        everything = busy.pids | set(descendants(crowded.process.pid))
        crowded.process.send_signal(signal.SIGKILL)
        crowded.process.wait()
        await dead(busy, everything)
    busy = Busy(crowded).run(act)
    for answer in busy.answers.values():  # the server ends its runs, unless the spawner was quicker
        assert isinstance(answer, Lost) or answer.json()["status"] in ("cancelled", "internal_error"), answer
    crowded.log.close()
    began = time.monotonic()
    crowded.start()
    assert crowded.works()
    print("back after %.0f ms" % ((time.monotonic() - began) * 1000))
    def left():
        return [p for p in contained.groups.leaves() if is_ownerless(p)]
    assert wait_until(lambda: not left()), left()


@pytest.mark.slow
def test_r2_one_box_init_is_killed_among_fifty(contained, crowded):
    """Only that run fails; the others go on."""
    before = Holdings(crowded, contained.groups)

    async def act(busy):
        for round_ in range(100 if FULL else 10):
            if round_ % BOXES == 0 and round_:
                break
            inits = busy.inits()
            os.kill(inits[round_ * 7 % len(inits)], signal.SIGKILL)
            end = time.monotonic() + 30 * SLOW
            while time.monotonic() < end and (len(busy.answers) <= round_ or len(busy.inits()) != BOXES - round_ - 1):
                await asyncio.sleep(0.01)  # Linux may leave out a child while another one ends
            assert len(busy.answers) == round_ + 1
            assert len(busy.inits()) == BOXES - round_ - 1
        for task in busy.tasks:
            task.cancel()
        await asyncio.gather(*busy.tasks, return_exceptions=True)
        busy.tasks = []
    busy = Busy(crowded).run(act)
    for answer in busy.answers.values():
        assert answer.status == 500 and answer.json()["status"] == "internal_error", answer
        assert "init" in answer.json()["error"]["message"]
    left, _ = settle(crowded, contained.groups, before, 10)
    assert not left, left
    assert crowded.works()
