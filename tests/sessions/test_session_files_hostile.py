# SPDX-License-Identifier: Apache-2.0
"""Code that fights those who read and write its files: links, fifos, races, floods, dead helpers.
Where a barrier is tested the test also shows that the probe works without it: by the same path,
opened by the code itself, which may."""
import contextlib
import http.client
import os
import pathlib
import signal
import threading
import time

import pytest

from apilib import SLOW, boxes_below, wait_until
from serving import boxes
from sessionlib import Later, Session

MIB = 1 << 20


def refused(reply):
    return reply.status == 409 and reply.json()["error"]["code"] == "conflict"


@pytest.mark.parametrize("target", ["/etc/passwd", "/tmp/secret", "../tmp/secret", "/proc/self/environ", "loop", "plain"])
def test_links_are_not_followed(session, target):
    s = session()
    s.exec("import os; open('/tmp/secret', 'w').write('secret'); open('plain', 'w').write('plain'); os.symlink(%r, 'loop')" % target)
    if target != "loop":  # the control: the link leads somewhere
        assert s.out("print(len(open('loop').read()) > 0)") == "True\n"
    assert refused(s.call("GET", "/files/loop")) and refused(s.call("PUT", "/files/loop", b"1"))
    assert refused(s.call("GET", "/files?path=loop")) and refused(s.call("GET", "/archive?path=loop"))
    assert s.call("DELETE", "/files/loop").status == 204  # the link, not what it leads to
    assert s.out("print(open('/tmp/secret').read(), open('plain').read())") == "secret plain\n"


def test_directories_behind_links_are_not_entered(session):
    s = session()
    s.exec("import os; os.mkdir('/tmp/d'); open('/tmp/d/f', 'w').write('outside'); os.symlink('/tmp/d', 'd'); os.symlink('/proc/self/root', 'r')")
    assert s.out("print(open('d/f').read(), open('r/tmp/d/f').read())") == "outside outside\n"  # the control
    for path in ("d/f", "d/new", "r/tmp/d/f", "r/etc/passwd"):
        assert refused(s.call("GET", "/files/" + path)) and refused(s.call("DELETE", "/files/" + path))
        assert refused(s.call("PUT", "/files/" + path, b"inside"))
    s.exec("os.mkdir('top'); os.symlink('/tmp/d', 'top/d')")
    assert s.call("DELETE", "/files/top?recursive=true").status == 204
    assert s.out("print(os.listdir('/tmp/d'), open('/tmp/d/f').read())") == "['f'] outside\n"


def test_special_files_do_not_block(session):
    s = session()
    s.exec("import os, socket; os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('sock')")
    # The control: a plain open of that fifo waits.
    assert s.exec("open('fifo')", timeout_ms=700)["status"] == "time_limit"
    began = time.monotonic()
    for name in ("fifo", "sock"):
        assert refused(s.call("GET", "/files/" + name)) and refused(s.call("PUT", "/files/" + name, b"1"))
        assert refused(s.call("GET", "/files?path=" + name))
    assert s.call("GET", "/archive").status == 200
    assert s.call("DELETE", "/files/fifo").status == 204 == s.call("DELETE", "/files/sock").status
    assert time.monotonic() - began < 10 * SLOW


def test_a_lease_does_not_block(session):
    s = session()
    code = """import fcntl, os, signal, threading
f = open('leased', 'w'); f.write('x'); f.flush()
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)"""
    if s.exec(code)["status"] != "ok":
        pytest.skip("no leases in a box")
    began = time.monotonic()
    assert refused(s.call("GET", "/files/leased"))
    assert time.monotonic() - began < 5 * SLOW  # the kernel would wait 45 s


# A directory that becomes a link to another and back, as fast as it can.
SWAP = """import os, threading, time
os.makedirs('/tmp/out/in', exist_ok=True); open('/tmp/out/in/f', 'w').write('outside')
os.makedirs('real/in', exist_ok=True); open('real/in/f', 'w').write('inside')
os.symlink('/tmp/out', 'fake')
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def swap():
    while True:
        libc.renameat2(-100, b'real', -100, b'fake', 2)
threading.Thread(target=swap, daemon=True).start()"""


def test_a_directory_swapped_for_a_link(session):
    s = session()
    assert s.exec(SWAP)["status"] == "ok"
    # The control: whoever follows links is led outside.
    assert "outside" in s.out("print({open('real/in/f').read() for _ in range(3000)})")
    seen = {}
    for i in range(150):
        reply = s.call("GET", "/files/real/in/f")
        seen[reply.status] = seen.get(reply.status, 0) + 1
        assert reply.status != 200 or reply.body == b"inside"
        assert reply.status in (200, 404, 409), reply
        reply = s.call("PUT", "/files/real/in/new%d" % (i % 3), b"mine")
        assert reply.status in (201, 204, 409), reply
        reply = s.call("DELETE", "/files/real/in/gone?recursive=true")
        assert reply.status in (404, 409), reply
    assert seen.get(200) and seen.get(409), seen  # both states were met
    assert s.out("print(os.listdir('/tmp/out/in'), open('/tmp/out/in/f').read())") == "['f'] outside\n"


def test_files_swapped_while_they_are_listed_and_packed(session):
    s = session()
    s.exec(SWAP)
    s.exec("""def churn():
    i = 0
    while True:
        i += 1
        try:
            open('churn%d' % (i % 50), 'w').write('x' * (i % 5000))
            os.unlink('churn%d' % ((i * 7) % 50))
            os.symlink('/etc/passwd', 'churn%d' % ((i * 3) % 50))
        except OSError: pass
threading.Thread(target=churn, daemon=True).start()""")
    for _ in range(20):
        for path in ("/files?recursive=true", "/archive?format=zip", "/archive"):
            reply = s.call("GET", path)
            assert reply.status == 200 and b"outside" not in reply.body and b"root:" not in reply.body, reply


def test_a_sparse_file_of_3_gib(server, session):
    s = session(limits={"file_size_mb": 4096})
    assert s.exec("open('huge', 'wb').truncate(3 << 30)")["status"] == "ok"
    head = s.call("HEAD", "/files/huge")
    assert head.headers["Content-Length"] == str(3 << 30)
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/files/huge" % s.id)
    answer = conn.getresponse()
    for _ in range(50):
        assert answer.read(MIB) == bytes(MIB)
    conn.sock.close()
    conn.close()
    spawner = server.child("hermes-spawn")
    assert wait_until(lambda: len(boxes_below(spawner)) <= 3, 20)  # init, interpreter, what tells changes
    assert s.out("print('alive')") == "alive\n"


def test_a_file_that_grows_or_shrinks(server, session):
    s = session(limits={"disk_mb": 64, "memory_mb": 256, "file_size_mb": 512})
    s.exec("""import threading, time
f = open('f', 'wb'); f.truncate(200 << 20)
def grow():
    for i in range(100): f.truncate((200 << 20) + i); time.sleep(.01)
threading.Thread(target=grow, daemon=True).start()""")
    reply = s.call("GET", "/files/f")
    assert reply.status == 200 and len(reply.body) == int(reply.headers["Content-Length"])
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/files/f" % s.id)
    answer = conn.getresponse()
    answer.read(MIB)
    s.exec("time.sleep(1.2); f.truncate(2 << 20)")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    conn.close()
    # In an archive what is missing is zeros, and the archive says so.
    s.exec("f.truncate(300 << 20)")
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/archive" % s.id)
    answer = conn.getresponse()
    answer.read(MIB)
    s.exec("f.truncate(2 << 20)")
    assert b".hermes-incomplete" in answer.read()
    conn.close()


def test_a_deep_tree(session):
    s = session(limits={"disk_mb": 64})
    s.exec("""import os
for i in range(500):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w'); os.chdir('/box')""")
    listing = s.call("GET", "/files?recursive=true").json()
    assert listing["truncated"] and len(listing["entries"]) == 32
    assert s.call("GET", "/archive").status == 200
    assert refused(s.call("DELETE", "/files/d?recursive=true"))
    assert s.exec("1")["files_changed"] == []


def test_deleting_what_grows_ends(session):
    s = session(limits={"disk_mb": 128, "memory_mb": 512})
    s.exec("""import os, threading
os.mkdir('d')
def fill(k):
    i = 0
    while True:
        i += 1
        try: os.mkdir('d/%d' % (i % 3)) if i % 2 else open('d/%d/%d-%d' % (i % 3, k, i), 'w').close()
        except OSError:
            try: os.mkdir('d')
            except OSError: pass
for k in range(3): threading.Thread(target=fill, args=(k,), daemon=True).start()""")
    began = time.monotonic()
    assert s.call("DELETE", "/files/d?recursive=true").status in (204, 409)
    assert time.monotonic() - began < 14 * SLOW
    assert s.call("GET", "/files").status == 200


def test_code_cannot_touch_the_helper(server, session):
    """It has the code's uid, but another Landlock domain, and nothing of it can be opened."""
    abi = server("GET", "/v1/report").json().get("landlock_abi", 0) or 0
    s = session(limits={"disk_mb": 64, "file_size_mb": 1024, "memory_mb": 256})
    s.exec("open('big', 'wb').truncate(600 << 20)")
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/files/big" % s.id)
    answer = conn.getresponse()
    got = len(answer.read(MIB))
    text = s.out("""import os, signal
seen, hits = set(), []
for pid in range(2, 400):
    if pid == os.getpid(): continue
    try: os.kill(pid, 0); hits.append(pid)
    except ProcessLookupError: continue
    except PermissionError: seen.add(pid)
    for name in ('mem', 'fd', 'environ', 'maps', 'root', 'cwd'):
        try: os.listdir('/proc/%d/%s' % (pid, name)); hits.append((pid, name))
        except OSError: pass
        try: open('/proc/%d/%s' % (pid, name), 'rb').read(1); hits.append((pid, name))
        except OSError: pass
print(len(seen) > 0, hits)""")
    if abi >= 6 or " []" in text:
        assert text == "True []\n"
    while True:
        piece = answer.read(MIB)
        got += len(piece)
        if not piece:
            break
    assert got == 600 * MIB
    conn.close()


def helpers(server, session_pids):
    """Processes of boxes that are neither init nor the interpreter nor older than the call."""
    return [p for p in boxes(server) if p not in session_pids]


@pytest.mark.parametrize("sig, status", [(signal.SIGSTOP, 503), (signal.SIGKILL, 409)])
def test_a_helper_that_is_stopped_or_killed(server, session, sig, status):
    """As code could on a kernel whose Landlock does not keep signals apart."""
    s = session(limits={"disk_mb": 64, "file_size_mb": 1024, "memory_mb": 256})
    s.exec("x = 1")
    before = set(boxes(server))
    conn = server.connect()
    conn.putrequest("PUT", "/v1/sessions/%s/files/up" % s.id)
    conn.putheader("Content-Length", str(20 * MIB))
    conn.endheaders()
    conn.send(b"x" * 100000)
    assert wait_until(lambda: helpers(server, before), 5)
    for pid in helpers(server, before):
        os.kill(pid, sig)
    began = time.monotonic()
    try:
        conn.send(b"x" * (20 * MIB - 100000))
    except OSError:
        pass
    answer = conn.getresponse()
    assert answer.status == status, answer.read()
    assert time.monotonic() - began < 25 * SLOW
    conn.close()
    assert s.out("print(x)") == "1\n"
    assert [e["name"] for e in s.call("GET", "/files").json()["entries"]] == []
    for pid in helpers(server, before):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_the_helper_that_tells_changes_may_die(server, session):
    s = session()
    s.exec("1")
    watchers = [p for p in boxes(server) if pathlib.Path("/proc/%d/status" % p).read_text().split("NSpid:")[1].split()[1] != "1"
                and not os.readlink("/proc/%d/fd/0" % p).startswith(("/dev/null", "pipe"))]
    assert watchers
    for pid in watchers:
        os.kill(pid, signal.SIGKILL)
    assert s.exec("open('x', 'w')")["files_changed"] == ["x"]


def test_no_process_to_spare(session):
    s = session(limits={"processes": 8})
    s.exec("import os\nkids = []\nwhile True:\n  try: kids.append(os.fork())\n"
           "  except OSError: break\n  if kids[-1] == 0:\n    import time; time.sleep(1000)", timeout_ms=20000)
    reply = s.call("GET", "/files")
    assert refused(reply) and "processes" in reply.json()["error"]["message"]
    assert s.call("PUT", "/files/x", b"1").status == 409
    assert s.exec("import signal\nfor k in kids: os.kill(k, 9); os.waitpid(k, 0)")["status"] == "ok"
    assert wait_until(lambda: s.call("GET", "/files").status == 200, 10)


def test_millions_of_requests_do_not_pile_up(server, session):
    """Callers that leave at once: no helper stays, and the spawner goes on serving others."""
    s = session(limits={"disk_mb": 64, "file_size_mb": 1024, "memory_mb": 256})
    s.exec("open('big', 'wb').truncate(500 << 20)")
    before = len(boxes(server))

    def leave():
        for _ in range(25):
            conn = server.connect()
            conn.request("GET", "/v1/sessions/%s/files/big" % s.id)
            conn.sock.close()
            conn.close()
    threads = [threading.Thread(target=leave) for _ in range(4)]
    for t in threads:
        t.start()
    assert server.works()
    for t in threads:
        t.join()
    assert wait_until(lambda: len(boxes(server)) <= before, 30)
    assert s.out("print('alive')") == "alive\n"


def test_a_box_that_burns_its_cpu_still_answers(session):
    s = session(limits={"cpus": 1, "disk_mb": 64})
    late = s.later("import threading\ndef burn():\n  while True: pass\nfor _ in range(8): threading.Thread(target=burn, daemon=True).start()\n"
                   "burn()", timeout_ms=4000)
    time.sleep(.5)
    assert s.call("PUT", "/files/x", b"x" * MIB).status == 201
    assert s.call("GET", "/files/x").body == b"x" * MIB
    late.result()


def test_other_sessions_are_out_of_reach(session):
    """One session's files do not show in another's, nor through names that lead up."""
    a, b = session(), session()
    a.call("PUT", "/files/mine", b"a")
    assert b.call("GET", "/files/mine").status == 404
    assert b.call("GET", "/files/" + "%2e%2e/" * 3 + "proc/1/root/box/mine").status == 400
    assert Later(lambda: b.call("GET", "/files")).result().json()["entries"] == []


def test_sockets_of_the_helper_are_not_the_codes(server, make_server):
    """Code that opens every descriptor number it has finds no socket but its channel."""
    server = make_server()
    s = Session(server)
    text = s.out("import os; print([os.readlink('/proc/self/fd/%s' % n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)])")
    assert text.count("socket:") <= 1
    s.delete()
