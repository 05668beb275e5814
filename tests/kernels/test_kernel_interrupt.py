# SPDX-License-Identifier: Apache-2.0
"""Whose signal it is: what every kernel makes of a SIGINT that comes between two execs (docs/internals/kernels.md)."""
import contextlib
import os
import signal
import time

import pytest

from kernellib import COMMANDS

needs_node = pytest.mark.skipif(not os.path.exists(COMMANDS["javascript"][0]), reason="no node")
KINDS = ["python", "program", "plain", pytest.param("javascript", marks=needs_node), "bash"]
LOOP = {"javascript": "for (const end = Date.now() + 20000; Date.now() < end;);", "bash": "sleep 20"}


@contextlib.contextmanager
def stopped(kernel):
    """What is sent in here is all there when the kernel looks next."""
    os.kill(kernel.pid, signal.SIGSTOP)
    yield
    os.kill(kernel.pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if isinstance(kind, str)])  # JavaScript may drop it
def test_a_signal_behind_an_exec_is_for_it(start, kind):
    kernel = start(kind)
    with stopped(kernel):
        kernel.begin(LOOP.get(kind, "import time; time.sleep(20)"))
        kernel.interrupt()
    answer = kernel.finish(timeout=10)
    assert not answer.ok and answer.done["interrupted"] and answer.state == "kept", answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_is_gone_once_the_kernel_has_settled(start, kind):
    kernel = start(kind)
    for _ in range(20):
        with stopped(kernel):
            kernel.interrupt()
            kernel.send("settle")
        assert kernel.frame(None, 10) == ("settled", b"null")
        answer = kernel("n=5")
        assert answer.ok and not answer.done["interrupted"] and answer.state == "kept", answer


@pytest.mark.parametrize("kind", KINDS)
def test_settling_after_an_exec_that_was_interrupted(start, kind):
    kernel = start(kind)
    kernel.begin(LOOP.get(kind, "import time; time.sleep(20)"))
    time.sleep(0.3)
    kernel.interrupt()
    assert kernel.finish(timeout=10).done["interrupted"]
    kernel.settle()
    assert kernel("n=5").ok
