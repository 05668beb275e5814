# SPDX-License-Identifier: Apache-2.0
"""Copies of live sessions: memory and files are there and apart, siblings cannot reach each other, what cannot be
copied is refused and the original is unharmed, nothing is left."""
import os
import re
import signal
import time

import pytest

from apilib import boxes_below, children, name_of, wait_until, wait_until_still
from sessionlib import Session, ask_copy, attach, fork


def refused(session, *words):
    reply = session.call("POST", "/fork")
    assert reply.status == 409, reply
    message = reply.json()["error"]["message"]
    for word in words:
        assert word in message, message
    assert session.out("print(6 * 7)") == "42\n"


def value(session, code):
    answer = session.exec(code)
    assert answer["status"] == "ok", answer
    return answer["result"]["text/plain"]


# Memory and files.

def test_memory_is_copied_and_apart(session):
    one = session()
    one.out("import collections; data = {'n': [1, 2, 3]}\ndef f(x): return x * 2\nblob = bytearray(20 << 20)")
    two = fork(one)
    assert value(two, "f(21), data['n'], len(blob)") == "(42, [1, 2, 3], 20971520)"
    one.out("data['n'].append('one'); blob[0] = 1")
    two.out("data['n'].append('two'); blob[0] = 2")
    assert value(one, "data['n'], blob[0]") == "([1, 2, 3, 'one'], 1)"
    assert value(two, "data['n'], blob[0]") == "([1, 2, 3, 'two'], 2)"
    assert two.exec("1")["execution_count"] == 5


def test_files_are_copied_and_apart(session):
    one = session()
    one.out("""
import os
os.makedirs('d/deep'); open('d/deep/a', 'w').write('A'); os.symlink('deep/a', 'd/link'); os.chmod('d/deep/a', 0o640)
open('/tmp/t', 'w').write('T'); open('/dev/shm/s', 'w').write('S'); os.mkfifo('pipe')
with open('sparse', 'wb') as f: f.truncate(50 << 20); f.seek(1 << 20); f.write(b'x')
open('secret', 'w').write('0'); os.chmod('secret', 0); os.mkdir('closed'); open('closed/in', 'w').write('i'); os.chmod('closed', 0)
""")
    two = fork(one)
    assert two.out("print(open('/box/d/link').read(), oct(os.stat('d/deep/a').st_mode), open('/tmp/t').read(), "
                   "open('/dev/shm/s').read(), os.stat('sparse').st_size, os.stat('sparse').st_blocks < 100, "
                   "oct(os.stat('closed').st_mode))") == "A 0o100640 T S 52428800 True 0o40000\n"
    assert two.out("os.chmod('closed', 0o700); os.chmod('secret', 0o600); print(open('closed/in').read(), open('secret').read())") == "i 0\n"
    two.out("open('d/deep/a', 'w').write('two'); open('new', 'w').write('n'); os.remove('/tmp/t')")
    assert one.out("print(open('d/deep/a').read(), os.path.exists('new'), os.path.exists('/tmp/t'))") == "A False True\n"
    one.out("open('d/deep/a', 'w').write('one')")
    assert two.out("print(open('d/deep/a').read(), os.getuid(), os.stat('new').st_uid)") == "two 1000 1000\n"


def test_directory_and_open_files_move_over(session):
    one = session()
    one.out("""
import os, tempfile
os.mkdir('work'); os.chdir('work')
open('log', 'w').write('0123456789')
reader = open('log'); reader.seek(4)
writer = open('log2', 'w'); writer.write('unflushed ')
gone = tempfile.TemporaryFile(); gone.write(b'unlinked'); gone.flush()
directory = os.open('.', os.O_RDONLY)
""")
    two = fork(one)
    assert two.made["cwd"] == "/box/work"
    assert two.out("print(os.getcwd(), reader.read()); writer.write('two'); writer.flush(); print(open('log2').read())") \
        == "/box/work 456789\nunflushed two\n"
    assert two.out("gone.seek(0); print(gone.read()); gone.seek(0); gone.write(b'two'); gone.flush()") == "b'unlinked'\n"
    two.out("open('log', 'w').write('two'); open('only', 'w', opener=lambda p, f: os.open(p, f, dir_fd=directory)).close()")
    assert one.out("print(reader.read(), os.path.exists('only')); writer.write('one'); writer.flush(); "
                   "print(open('log2').read()); gone.seek(0); print(gone.read())") \
        == "456789 False\nunflushed one\nb'unlinked'\n"


def test_files_outside_have_their_own_positions(session):
    """They are the same files, but where the one reads is no affair of the other."""
    one = session()
    one.out("file = open('/etc/passwd', 'rb', 0); first = file.read(4)")
    two = fork(one)
    assert value(two, "file.tell(), file.seek(9)") == "(4, 9)"
    assert value(one, "file.tell(), file.seek(2)") == "(4, 2)"
    assert value(two, "file.tell(), file.read(3) == open('/etc/passwd', 'rb').read()[9:12]") == "(9, True)"


def test_handlers_of_a_fork_may_close_files(session):
    """matplotlib does so with its fonts: in the copy the descriptor is gone before the copy opens it again."""
    one = session()
    one.out("import os\nfile = open('/etc/passwd', 'rb', 0)\nown = open('own', 'w+')\n"
            "os.register_at_fork(after_in_child=lambda: (file.close(), own.close()))")
    two = fork(one)
    assert value(two, "file.closed, own.closed") == "(True, True)"
    assert value(one, "file.closed, own.closed") == "(False, False)"


def test_output_and_input_are_its_own(session):
    one = session()
    one.out("import os, sys; saved = os.dup(1)")
    two = fork(one)
    later = one.later("import time; time.sleep(1); print('one')")
    assert two.out("os.write(saved, b'by dup '); os.system('echo child'); print(input())", stdin="line\n") \
        == "by dup child\nline\n"
    assert two.exec("print('e', file=sys.stderr)")["stderr"] == "e\n"
    assert later.result().json()["stdout"] == "one\n"


def test_many_and_forks_of_forks(session):
    one = session()
    one.out("path = 'r'")
    copies = fork(one, 5)
    for i, copy in enumerate(copies):
        copy.out("path += '%d'; open('mark', 'w').write(path)" % i)
    last = copies[2]
    for depth in range(4):
        last = fork(last)
        last.out("path += 'x'; open('mark', 'w').write(path)")
    assert last.out("print(path, open('/box/mark').read())") == "r2xxxx r2xxxx\n"
    assert [copy.out("print(path, open('mark').read())") for copy in copies] == [
        "r%d r%d\n" % (i, i) for i in range(5)]


def test_depth_is_limited_clearly(session):
    last = session()
    last.out("n = 0")
    for depth in range(40):
        reply = ask_copy(last)
        if reply.status != 201:
            break
        parent, last = last, attach(last, reply.json()["sessions"][0])
        parent.delete()
    assert depth == 14 and reply.status == 409 and "too many copies" in reply.json()["error"]["message"]
    assert last.out("print(n)") == "0\n"


def test_number_is_limited_clearly(make_server):
    server = make_server(env={"HERMES_MAX_SESSIONS_PER_KEY": "60"})
    one = Session(server)
    reply = one.call("POST", "/fork", {"count": 31})
    assert reply.status == 400 and reply.json()["error"]["field"] == "count"
    made = 0
    while True:
        reply = ask_copy(one, body={"count": 5})
        if reply.status != 201:
            break
        made += 5
    assert made in (10, 15, 20, 25, 30) and reply.status == 429, (made, reply)  # the memory of the machine, or 30
    assert len(server("GET", "/v1/sessions").json()["sessions"]) == made + 1  # all or none
    assert one.out("print(1)") == "1\n"


def test_files_by_the_api_are_those_of_the_fork(session):
    one = session()
    one.out("import os; os.mkdir('d'); open('d/a', 'w').write('both')")
    two = fork(one)
    assert two.call("PUT", "/files/d/b", b"two", headers={"Content-Type": "application/octet-stream"}).status == 201
    assert two.out("print(open('d/b').read(), os.stat('d/b').st_uid)") == "two 1000\n"
    assert two.call("GET", "/files/d/a").body == b"both"
    assert one.call("GET", "/files/d/b").status == 404
    names = [e["name"] for e in two.call("GET", "/files?path=d").json()["entries"]]
    assert sorted(os.path.basename(n) for n in names) == ["a", "b"], names
    one.out("open('d/a', 'w').write('one')")
    assert two.call("GET", "/files/d/a").body == b"both" and one.call("GET", "/files/d/a").body == b"one"
    two.out("os.symlink('/etc/passwd', 'l'); os.symlink('/proc/1/root', 'r')")
    assert two.call("GET", "/files/l").status in (400, 404, 409)
    assert two.call("GET", "/files/r/etc/hostname").status in (400, 404, 409)
    assert two.call("DELETE", "/files/d/b").status == 204
    assert two.exec("open('new', 'w').write('x')")["files_changed"] == ["new"]
    for _ in range(20):
        assert two.call("GET", "/files/d/a").status == 200


def within(space):
    """All processes in a pid namespace, whoever's children they are."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found |= {int(pid)} if os.readlink("/proc/%s/ns/pid" % pid) == space else set()
        except OSError:
            pass
    return found


def test_who_serves_its_files_is_the_spawners_child(server, session):
    """Were it somebody else's, the host's init would have to reap it, and the end of the original, with whom it shares
    the pid namespace, would wait for that."""
    one = session()
    one.out("import os")
    two = fork(one)
    spawner = server.child("hermes-spawn")
    space = one.out("print(os.readlink('/proc/self/ns/pid'), end='')")
    assert two.out("print(os.readlink('/proc/self/ns/pid'), end='')") == space
    assert two.call("GET", "/files").status == 200
    helpers = [pid for pid in children(spawner) if pid in within(space) and name_of(pid) == "hermes-fork"]
    assert helpers
    assert wait_until(lambda: within(space) <= set(boxes_below(spawner))), within(space)
    assert [s.delete().status for s in (two, one)] == [204, 204]
    assert not within(space)


# Life and death.

def test_fork_outlives_its_parent(session):
    one = session()
    one.out("x = 'kept'; open('f', 'w').write('file')")
    two = fork(one)
    three = fork(two)
    assert one.delete().status == 204
    assert two.out("print(x, open('f').read())") == "kept file\n"
    assert two.delete().status == 204
    assert three.out("print(x, open('f').read())") == "kept file\n"
    four = fork(three)
    assert four.out("print(x)") == "kept\n"


def test_parent_outlives_its_fork(session):
    one = session()
    two = fork(one)
    two.post("import os; os._exit(3)")
    assert two.state()["state"] == "dead"
    reply = two.post("1")
    assert reply.status == 409 and reply.json()["state_lost"]
    assert one.out("print(1)") == "1\n"
    three = fork(one)
    assert three.out("print(2)") == "2\n"


def test_parent_that_ends_leaves_its_forks(session):
    one = session()
    one.out("x = 1; open('f', 'w').write('1')")
    two = fork(one)
    one.post("import os; os._exit(3)")
    assert one.state()["state"] == "dead"
    assert two.out("print(x)") == "1\n"
    reset = one.call("POST", "/reset")
    assert reset.status == 200 and reset.json()["files_kept"] is True, reset
    assert one.out("print(open('f').read())") == "1\n"
    assert two.out("print(x)") == "1\n"
    three = fork(one)
    assert three.out("print(open('f').read(), 'x' in globals())") == "1 False\n"
    assert one.delete().status == 204
    assert two.out("print(x)") == "1\n" and three.out("print(3)") == "3\n"


def test_reset_of_parent_and_of_fork(session):
    one = session()
    one.out("x = 1; open('f', 'w').write('1'); import subprocess; subprocess.Popen(['sleep', '1000'])")
    two = fork(one)
    assert one.call("POST", "/reset").json()["files_kept"] is True
    assert one.out("print('x' in globals())") == "False\n"
    assert two.out("print(x)") == "1\n"
    reset = two.call("POST", "/reset")
    assert reset.status == 200 and reset.json()["files_kept"] is False
    assert two.out("print('x' in globals())") == "False\n"
    assert fork(two).out("print(1)") == "1\n"


def test_interrupt_and_timeout_are_its_own(session):
    one = session()
    one.out("x = 1; import time")
    two = fork(one)
    later = one.later("time.sleep(1.5); print('slept')")
    answer = two.exec("x = 2\nwhile True: pass", timeout_ms=300)
    assert answer["status"] == "time_limit" and not answer["state_lost"], answer
    assert two.out("print(x)") == "2\n"
    assert later.result().json()["stdout"] == "slept\n"
    busy = two.later("time.sleep(60)")
    assert wait_until(lambda: two.state()["state"] == "busy", 5)
    one_later = one.later("time.sleep(1); print('again')")
    assert two.call("POST", "/interrupt").status == 202
    assert busy.result().json()["error"]["name"] == "KeyboardInterrupt"
    assert one_later.result().json()["stdout"] == "again\n"


def test_limits_are_its_own(session):
    one = session(limits={"memory_mb": 128, "processes": 8})
    one.out("x = 1")
    two, three = fork(one, 2)
    answer = two.exec("data = bytearray(200 << 20)")
    assert answer["status"] in ("memory_limit", "runtime_error"), answer
    three.out("data = bytearray(80 << 20)")
    one.out("data = bytearray(60 << 20)")
    code = """
import os, time
made = 0
try:
    for i in range(40):
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
        made += 1
except OSError:
    pass
print(made)
"""
    assert 4 <= int(three.out(code)) <= 8
    assert 4 <= int(one.out(code)) <= 8


def test_disk_limit_is_its_own(session):
    one = session(limits={"disk_mb": 16, "memory_mb": 256})
    one.out("open('a', 'wb').write(bytes(10 << 20))")
    two = fork(one)
    assert two.exec("open('b', 'wb').write(bytes(10 << 20))")["error"]["name"] == "OSError"
    two.out("import os; os.remove('a'); os.remove('b') if os.path.exists('b') else None; open('c', 'wb').write(bytes(12 << 20))")
    assert one.out("import os; print(os.path.getsize('a'))") == "10485760\n"


# Siblings. Each attack has a control: the same on a process of its own works.

PROBE = """
import ctypes, os, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def probe(pid):
    found = []
    def attempt(name, work):
        try:
            work(); found.append(name)
        except (OSError, ValueError):
            pass
    def call(*args):
        if libc.syscall(*args) < 0:
            raise OSError(ctypes.get_errno(), '')
    attempt('signal', lambda: os.kill(pid, 0))
    attempt('read', lambda: open('/proc/%d/mem' % pid, 'rb').close())
    attempt('environ', lambda: open('/proc/%d/environ' % pid, 'rb').read())
    attempt('root', lambda: os.listdir('/proc/%d/root/box' % pid))
    attempt('fd', lambda: os.listdir('/proc/%d/fd' % pid))
    attempt('see', lambda: os.stat('/proc/%d' % pid))
    attempt('ptrace', lambda: call(101, 16, pid, 0, 0))
    attempt('vm', lambda: call(310, pid, 0, 0, 0, 0, 0))
    attempt('prlimit', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE))
    attempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt('affinity', lambda: os.sched_setaffinity(pid, {0}))
    return found
"""


def test_siblings_cannot_reach_each_other(session):
    one = session()
    one.out(PROBE)
    two, three = fork(one, 2)
    pids = [int(s.out("print(os.getpid())")) for s in (one, two, three)]
    assert len(set(pids)) == 3
    own = two.out("import subprocess; p = subprocess.Popen(['sleep', '60']); print(probe(p.pid)); p.kill(); p.wait()")
    for name in ("signal", "read", "root", "fd", "see", "nice", "affinity"):
        assert name in own, own
    for attacker, victims in ((two, (pids[0], pids[2])), (three, (pids[0], pids[1]))):
        for victim in victims:
            assert attacker.out("print(probe(%d))" % victim) == "[]\n"
    # The original is where its copies come from, and owns their user namespaces: it can signal them and see their
    # files (docs/sessions.md says so), but not their memory.
    for victim in pids[1:]:
        found = one.out("print(probe(%d))" % victim)
        for name in ("read", "environ", "fd", "ptrace", "vm"):
            assert "'%s'" % name not in found, found


def test_kill_everybody_ends_nobody_else(session):
    one = session()
    one.out("x = 1; import os, signal")
    two, three = fork(one, 2)
    # It has nobody whom it may signal but a child of its own.
    two.out("child = os.fork()\nif child == 0:\n    import time; time.sleep(100); os._exit(0)\n"
            "os.kill(-1, signal.SIGKILL); print(os.waitpid(child, 0)[1])")
    assert one.out("print(x)") == "1\n" and three.out("print(x)") == "1\n"


def test_abstract_sockets_do_not_reach(session):
    one = session()
    one.out("import socket")
    two, three = fork(one, 2)
    two.out("s = socket.socket(socket.AF_UNIX); s.bind('\\0name'); s.listen()")
    assert two.out("c = socket.socket(socket.AF_UNIX); c.connect('\\0name'); print('own')") == "own\n"
    one.out("s = socket.socket(socket.AF_UNIX); s.bind('\\0original'); s.listen()")
    for attacker, name in ((three, "name"), (three, "original"), (two, "original")):
        answer = attacker.exec("import socket; c = socket.socket(socket.AF_UNIX); c.connect('\\0%s')" % name)
        assert answer["error"]["name"] == "PermissionError", answer


def test_a_fork_is_as_confined_as_a_session(session):
    one = session()
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    return libc.syscall(*args)
status = open('/proc/self/status').read()
fields = {l.split(':')[0]: l.split(':')[1].strip() for l in status.splitlines()}
print([fields[k] for k in ('CapPrm', 'CapEff', 'CapInh', 'CapAmb', 'NoNewPrivs', 'Seccomp')])
for name, args in (('unshare user', (272, 0x10000000)), ('unshare mnt', (272, 0x20000)), ('both', (272, 0x10020000)),
                   ('setns', (308, 0, 0)), ('mount', (165, b'x', b'/box', b'tmpfs', 0, 0)), ('umount', (166, b'/box', 2)),
                   ('chroot', (161, b'/box')), ('setuid', (105, 0)), ('setuid sibling', (105, 1001)),
                   ('clone user', (56, 0x10000011, 0, 0, 0, 0))):
    print(name, call(*args))
for path in ('/x', '/usr/x', '/etc/x', '/proc/self/oom_score_adj', '/proc/self/uid_map', '/dev/x', '/mnt/x'):
    try:
        open(path, 'w'); print('wrote', path)
    except OSError as problem:
        print(path, problem.errno in (1, 13, 30, 2))
print(sorted(os.listdir('/proc/self/fd'))[:4], len([p for p in os.listdir('/proc') if p.isdigit()]))
"""
    before = one.out(code)
    assert "wrote" not in before and "False" not in before
    two = fork(one)
    assert two.out(code) == before
    assert "0000000000000000" in before and "'1', '2'" in before


# What cannot be copied.

def test_refused_threads(session):
    one = session()
    one.out("import threading; stop = threading.Event(); t = threading.Thread(target=stop.wait); t.start()")
    refused(one, "thread")
    one.out("stop.set(); t.join()")
    fork(one)


def test_refused_sockets_and_pipes(session):
    one = session()
    one.out("import socket, os; a, b = socket.socketpair()")
    refused(one, "socket")
    one.out("a.close(); b.close(); p = os.pipe()")
    refused(one, "pipe")
    one.out("os.close(p[0]); os.close(p[1]); import select; e = select.epoll()")
    refused(one, "eventpoll")
    one.out("e.close(); m = os.memfd_create('x')")
    refused(one, "memfd")
    one.out("os.close(m); d = os.open('/usr', os.O_RDONLY)")
    refused(one, "directory")
    one.out("os.close(d); r = os.open('/proc/self/maps', os.O_RDONLY)")
    refused(one, "/proc")
    one.out("os.close(r)")
    fork(one)


def test_refused_shared_memory(session):
    one = session()
    one.out("import mmap; m = mmap.mmap(-1, 4096)")
    refused(one, "shared")
    one.out("m.close(); f = open('mapped', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)")
    refused(one, "shared")
    one.out("m.close(); f.close()")
    fork(one)


def test_await_does_not_prevent_a_fork(session):
    one = session()
    assert value(one, "import asyncio; await asyncio.sleep(0, 5)") == "5"
    two = fork(one)
    assert value(two, "await asyncio.sleep(0, 6)") == "6"


def test_refused_while_busy(session):
    one = session()
    later = one.later("import time; time.sleep(2); print(1)")
    assert wait_until(lambda: one.state()["state"] == "busy", 5)
    reply = one.call("POST", "/fork")
    assert reply.status == 409 and "busy" in reply.json()["error"]["message"]
    assert later.result().json()["stdout"] == "1\n"


@pytest.mark.parametrize("body,field", [
    ({"count": 0}, "count"), ({"count": "2"}, "count"), ({"count": -1}, "count"), ({"other": 1}, "other")])
def test_bad_bodies(session, body, field):
    one = session()
    reply = one.call("POST", "/fork", body)
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply


def test_not_of_others(server):
    assert server("POST", "/v1/sessions/ses_00000000000000000000000000/fork").status == 404


# Kernels that lie. User code has the kernel's own objects in its hands and replaces what it does in a fork.

HOSTILE = """
import gc, os, sys, time
forker = [o for o in gc.get_objects() if type(o).__name__ == 'Forker'][0]
functions = type(forker).fork.__globals__
"""

LIES = {
    # keeps the original's working directory
    "cwd": "functions['chdir'] = lambda p: None\nos.makedirs('/box/w'); os.chdir('/box/w')",
    # keeps a descriptor of the original's file
    "descriptor": "open('/box/f', 'w').write('x'); keep = open('/box/f', 'r+')\nfunctions['OpenFile'].move = lambda self: None",
    # keeps memory that is shared with the original
    "memory": "import mmap; m = mmap.mmap(-1, 4096)\n"
              "type(forker).look = lambda self: ([], [(1, 0), (2, 1)])",
    # keeps a socket to the original
    "socket": "import socket; pair = socket.socketpair()\ntype(forker).look = lambda self: ([], [(1, 0), (2, 1)])",
    # keeps the original's output
    "output": "type(forker).look = lambda self: ([], [])",
    # keeps a directory of the original's mounts
    "directory": "d = os.open('/', os.O_RDONLY)\ntype(forker).look = lambda self: ([], [(1, 0), (2, 1)])",
    # keeps the original's memory file
    "proc": "d = os.open('/proc/self/mem', os.O_RDONLY)\ntype(forker).look = lambda self: ([], [(1, 0), (2, 1)])",
    # keeps a terminal of the original's
    "terminal": "master, slave = os.openpty()\ntype(forker).look = lambda self: ([], [(1, 0), (2, 1)])",
    # is controlled by one: /dev/tty leads there
    "controlling terminal": """
master, slave = os.openpty()
name = os.ttyname(slave)
type(forker).look = lambda self: ([], [(1, 0), (2, 1)])
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'h':
        os.setsid(); os.close(os.open(name, os.O_RDWR)); os.close(master); os.close(slave)
    ask(fd, word, answer)
functions['ask'] = ask""",
    # has a child when it is looked at
    "child": """
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'r' and os.fork() == 0:
        time.sleep(30); os._exit(0)
    ask(fd, word, answer)
functions['ask'] = ask""",
    # has a thread when it is looked at
    "thread": """
import _thread
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'r':
        _thread.start_new_thread(time.sleep, (30,))
    ask(fd, word, answer)
functions['ask'] = ask""",
    # shares its descriptors with a process that stays in the original's group
    "shared table": """
import ctypes
libc = ctypes.PyDLL(None)
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'h' and libc.syscall(56, 0x400 | 17, 0, 0, 0, 0) == 0:
        time.sleep(30); os._exit(0)
    ask(fd, word, answer)
functions['ask'] = ask""",
    # the original says hello itself, or somebody else does
    "a child says hello": """
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'h':
        pid = os.fork()
        if pid: os.waitpid(pid, 0); os._exit(0)
    ask(fd, word, answer)
functions['ask'] = ask""",
    "nobody says hello": "functions['ask'] = lambda *a: os._exit(0)",
    "dies when told": """
def ask(fd, word, answer, ask=functions['ask']):
    ask(fd, word, answer)
    os._exit(0)
functions['ask'] = ask""",
    # never waits, and makes calls that its filter refuses (test_session_fork_hostile.py has more of this kind)
    "calls after hello": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
refused = ((425, 38), (294, 38), (250, 38), (437, 38), (272, 1))  # io_uring, inotify, keyctl, openat2, unshare
def ask(fd, word, answer, ask=functions['ask']):
    os.write(fd, b'h')
    while True:
        for call, error in refused:  # 272: a user and a network namespace
            if libc.syscall(call, 0x50000000) != -1 or ctypes.get_errno() != error:
                os.close(os.open('/box/odd', os.O_CREAT, 0o600))
        os.close(os.open('/box/tried', os.O_CREAT, 0o600))
functions['ask'] = ask""",
    "rubbish": "functions['ask'] = lambda fd, word, answer: (os.write(fd, b'zzzz'), os.read(fd, 1))",
    "wrong word": """
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'r':
        os.write(fd, b'k'); os.read(fd, 1)
    ask(fd, word, answer)
functions['ask'] = ask""",
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found_out(session, lie):
    other = session()
    one = session()
    one.out(HOSTILE + LIES[lie])
    start = time.monotonic()
    reply = ask_copy(one)
    if lie == "a child says hello" and reply.status == 201:
        # One process of the session is as good as another.
        assert attach(one, reply.json()["sessions"][0]).out("print(1)") == "1\n"
    else:
        assert reply.status == 409, reply
        assert time.monotonic() - start < 30
    assert one.out("print('alive')") == "alive\n"
    assert one.out("print(os.path.exists('/box/tried'), os.path.exists('/box/odd'))") \
        == "%s False\n" % (lie == "calls after hello")
    assert other.out("print('alive')") == "alive\n"
    assert fork(other).out("print(2)") == "2\n"


def test_the_original_hears_nothing_that_is_for_the_copy(session):
    """It has the socket on which its copy is spoken to, and reads from it too: it can take a word away, and has no copy
    then, but there are no descriptors to be had. The control: the same call takes one that is there."""
    one, other = session(), session()
    one.out(HOSTILE + """
import socket
stolen, words, control = [], [], []
def listen(sock, seconds, words, stolen):
    end = time.monotonic() + seconds
    while not words and time.monotonic() < end:
        try:
            data, found, _, _ = sock.recvmsg(10, socket.CMSG_SPACE(64), socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        words.append(data); stolen.extend(found)
def slow(fd, word, answer, ask=functions['ask']):
    if word == b'r':  # leaves the answer to whoever else listens
        os.write(fd, word); time.sleep(5); os._exit(0)
    ask(fd, word, answer)
functions['ask'] = slow
def steal(self):
    channel = self.kernel.channel
    files, pipes = self.look()
    channel.send('fork', {'refused': None})
    fds = functions['take_descriptors'](channel.fd)
    if functions['clone']() == 0:
        try:
            self.be_copy(fds, files, pipes, '/box')
        finally:
            os._exit(0)
    with socket.socket(fileno=fds.pop()) as hello:
        listen(hello, 20, words, stolen)
        listen(hello, 0.5, [], stolen)
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b'c'], [1])
    listen(theirs, 1, [], control)
    ours.close(); theirs.close()
    for fd in fds:
        os.close(fd)
    channel.send('fork', {'refused': None})
type(forker).fork = steal
""")
    reply = ask_copy(one)
    assert reply.status == 409, reply
    assert one.out("print(words in ([b'm'], [b'k']), len(control), len(stolen))") == "True 1 0\n", one.out("print(words)")
    assert fork(other).out("print(2)") == "2\n"


STUCK = {
    "before hello": "functions['ask'] = lambda *a: time.sleep(1000)",
    "busy after hello": """
def ask(fd, word, answer, ask=functions['ask']):
    os.write(fd, word)
    while True: pass
functions['ask'] = ask""",
    "after the move": """
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'r': time.sleep(1000)
    ask(fd, word, answer)
functions['ask'] = ask""",
}


@pytest.mark.parametrize("where", STUCK)
def test_a_copy_that_hangs_costs_nobody_else(session, where):
    one, other = session(), session()
    one.out(HOSTILE + STUCK[where])
    import threading
    replies = []
    thread = threading.Thread(target=lambda: replies.append(one.call("POST", "/fork")))
    thread.start()
    for _ in range(5):  # meanwhile the spawner serves others
        assert fork(other).delete().status == 204
    thread.join(90)
    assert replies and replies[0].status in (409, 503), replies
    assert one.out("print(1)") == "1\n"


@pytest.mark.parametrize("lie", [
    "type(forker).fork = lambda self: self.kernel.channel.send('fork', {'refused': 5})",
    "type(forker).fork = lambda self: self.kernel.channel.send('fork', [])",
    "type(forker).fork = lambda self: self.kernel.channel.send('done', {})",
    "type(forker).fork = lambda self: os._exit(1)",
    "type(forker).fork = lambda self: os.write(3, b'x' * 100)",
])
def test_rubbish_on_the_channel_ends_only_that_session(session, lie):
    one, other = session(), session()
    one.out(HOSTILE + lie)
    reply = one.call("POST", "/fork")
    assert reply.status == 409 and reply.json()["state_lost"], reply
    assert one.state()["state"] == "dead"
    assert fork(other).out("print(2)") == "2\n"


# Nothing is left.

def leaves(server):
    """Names of the control groups that the boxes of a server are in. (Other servers may run beside it.)"""
    found = set()
    for pid in boxes_below(server.child("hermes-spawn")):
        try:
            with open("/proc/%d/cgroup" % pid) as file:
                found |= set(re.findall(r"/(hermes-[0-9a-f]{32})$", file.read(), re.M))
        except OSError:
            pass
    return found


def is_left(names):
    return [top for top, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(top) in names]


@pytest.mark.parametrize("victim", ["hermes-spawn", "hermes-server"])
def test_killed_programs_leave_nothing(make_server, victim):
    server = make_server()
    one = Session(server)
    two, three = fork(one, 2)
    fork(three)
    names = leaves(server)
    assert len(names) >= 5  # one each, and one for init
    spawner = server.child("hermes-spawn")
    inits = boxes_below(spawner)
    assert inits
    os.kill(server.child(victim), signal.SIGKILL)
    assert wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in inits), 10)
    assert wait_until(lambda: server("GET", "/health").status == 200, 20)
    assert server.stop() == 0
    assert wait_until(lambda: not is_left(names), 10), is_left(names)


def test_deleting_all_leaves_nothing(make_server):
    server = make_server()
    one = Session(server)
    family = [one] + fork(one, 4)
    family += fork(family[1], 3)
    assert wait_until_still(server.child("hermes-spawn"))  # runs that ask for versions have ended
    names = leaves(server)
    assert len(names) >= 9
    assert is_left(names)
    for session in family[::2] + family[1::2]:
        assert session.delete().status == 204
    assert wait_until(lambda: not is_left(names), 10), is_left(names)
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 5)
    assert server.metric("hermes_memory_promised_bytes") == 0
    assert server.stop() == 0


# Languages whose memory cannot be copied.

@pytest.mark.parametrize("language,write,read", [
    ("bash", "x=1; mkdir d; echo both > d/a; echo 'echo run' > s; chmod +x s; ln -s d/a l",
     "cat d/a; ./s; echo \"x=$x\""),
    ("javascript", "x = 1; fs = require('fs'); fs.mkdirSync('d'); fs.writeFileSync('d/a', 'both\\n'); "
     "fs.writeFileSync('s', 'echo run', {mode: 0o755}); fs.symlinkSync('d/a', 'l')",
     "console.log(require('fs').readFileSync('d/a', 'utf8') + require('child_process').execSync('sh ./s') "
     "+ 'x=' + (typeof x == 'undefined' ? '' : x))")])
def test_files_only(session, language, write, read):
    one = session(language)
    one.out(write)
    reply = one.call("POST", "/fork", {"count": 2})
    assert reply.status == 201, reply
    answer = reply.json()
    assert answer["memory"] == "fresh" and answer["files"] == "incomplete"  # the link
    two, three = [attach(one, made) for made in answer["sessions"]]
    assert two.made["parent"] == one.id
    assert two.out(read) == "both\nrun\nx=\n"
    assert two.call("PUT", "/files/d/a", b"two\n", headers={"Content-Type": "application/octet-stream"}).status == 204
    assert one.delete().status == 204
    assert three.out(read) == "both\nrun\nx=\n"
