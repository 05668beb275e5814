# SPDX-License-Identifier: Apache-2.0
"""A session that was copied once: its box init is in a group of its own from then on (src/spawn/copy.h), and whatever
init starts for the session still counts against the limits of the session."""
import os

import pytest

from apilib import Server, borrow_dir, return_dir
from sessionlib import Session, fork

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="copies of sessions need root")


@pytest.fixture(scope="module")
def server():
    path = borrow_dir()
    made = Server(path, env={"HERMES_SESSION_PARKED": "0"})
    yield made
    assert made.stop() == 0
    return_dir(path)


@pytest.mark.parametrize("is_copied", [False, True], ids=["never copied", "copied once"])
def test_an_upload_counts_against_the_memory_of_the_session(server, is_copied):
    """Files are memory: 100 MiB of them leave no room for 110 MiB more in 160. A session that was never copied is the
    control."""
    one = Session(server, limits={"memory_mb": 160, "disk_mb": 120})
    if is_copied:
        assert fork(one).delete().status in (200, 204)
    reply = one.call("PUT", "/files/large", bytes(100 << 20))
    assert reply.status in (200, 201), reply
    answer = one.exec("x = bytearray(110 << 20); print('ok')")
    assert answer["status"] == "memory_limit" and "ok" not in answer["stdout"], answer
    one.delete()


@pytest.mark.parametrize("is_copied", [False, True], ids=["never copied", "copied once"])
def test_an_upload_that_fits_is_taken(server, is_copied):
    one = Session(server, limits={"memory_mb": 160, "disk_mb": 120})
    if is_copied:
        assert fork(one).delete().status in (200, 204)
    assert one.call("PUT", "/files/small", bytes(20 << 20)).status in (200, 201)
    assert one.out("import os; x = bytearray(60 << 20); print(os.stat('small').st_size)") == "20971520\n"
    assert one.call("GET", "/files/small").body == bytes(20 << 20)
    one.delete()
