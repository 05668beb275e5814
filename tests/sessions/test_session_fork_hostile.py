# SPDX-License-Identifier: Apache-2.0
"""Copies whose code fights for a moment of its own while they are confined: without their filter, with a capability, or
in the place of an injected call. fork_attacks.c is what they do. The original and its copy share a page, in which the
probe leaves what it found; because of that page the fork is refused in the end, when the copy is looked at, unless it
was refused before. The same attacks find what they look for on a spawner that suspends the filter when it attaches."""
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

import pytest

from apilib import boxes_below, children, name_of, wait_until
from sessionlib import Later, Session, ask_copy, fork
from test_session_fork import HOSTILE, PROBE, within

PAUSE, RESUME = 8, 9  # enum spawn_command_kind

# What a failed fork says of the step at which it failed.
STOPPED, CONFINED, CHECKED = "stop the copy", "confine the copy", "check the copy"

LOAD = HOSTILE + """
import ctypes, mmap, re, signal
kind = mmap.%s
attacks = ctypes.CDLL('/box/attacks.so')
def find(name):
    return int(re.search('(?m)^([0-9a-f]+)-.*' + re.escape(name), open('/proc/self/maps').read())[1], 16)
page = mmap.mmap(-1, 4096, flags=kind | mmap.MAP_ANONYMOUS, prot=7)
fields = (ctypes.c_long * 6).from_buffer(page)
attacks.begin(ctypes.byref(fields))
attacks.probe()
control = list(fields)
fields[0] = fields[1] = 0
if kind == mmap.MAP_SHARED:
    type(forker).look = lambda self: ([], [(1, 0), (2, 1)])
at = 0
def sibling(work):
    pid = os.fork()
    if pid == 0:
        try:
            while True: work()
        finally:
            os._exit(0)
    return pid
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'h':
        fields[4] = os.getpid()
        getattr(attacks, attack)(fd, ctypes.c_ulong(at), ctypes.c_ulong(find('[vdso]')))
    else:
        ask(fd, word, answer)
functions['ask'] = ask
"""

RSEQ = """
area = ctypes.c_ulong()
libc = ctypes.CDLL(None)
libc.syscall(158, 0x1003, ctypes.byref(area))  # arch_prctl(ARCH_GET_FS)
at = area.value + ctypes.c_long.in_dll(libc, '__rseq_offset').value
"""

# A mapping whose line of /proc/PID/maps is so long that a reader with a buffer of 16384 bytes takes the end of its name
# for a line of its own. `code` maps a page of instructions that others can change: `function` makes the call in rax by
# the `syscall` at `site`. While that is replaced by a jump, each visit is counted, and goes on when it is there again.
FORGE = r"""
import struct
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_ulong
def map_file(fd, prot, flags, at=0):
    got = libc.mmap(ctypes.c_ulong(at), ctypes.c_ulong(4096), prot, flags, fd, ctypes.c_long(0))
    assert got == at if at else got < 1 << 47, (hex(got), ctypes.get_errno())
    os.close(fd)
    return got
def forge(start, mode, name=''):
    text = '%x-%x %s 00000000 00:00 0 %s' % (start, start + 4096, mode, name)
    room = 16383 - re.search('(?m)^.*? (?=/)', open('/proc/self/maps').read()).end() - len('/tmp/')
    os.chdir('/tmp')
    while room > 150:
        os.mkdir('c' * 100); os.chdir('c' * 100)
        room -= 101
    fd = os.open('c' * room + text, os.O_CREAT | os.O_RDWR)
    os.chdir('/box')
    os.truncate(fd, 4096)
    return map_file(fd, 1, 2, 0x7ffffff00000)
def code():
    fd = os.open('/tmp/code', os.O_CREAT | os.O_RDWR)
    os.truncate(fd, 4096)
    os.chmod(fd, 0o666)
    os.pwrite(fd, CALL + b'\xc3', 0)
    os.pwrite(fd, b'\xf0\x48\xff\x05' + struct.pack('<i', COUNT - 72) + b'\xe9' + struct.pack('<i', -77), 64)
    return map_file(fd, 7, 1)
CALL, JUMP, COUNT = b'\x0f\x05', b'\xeb\x3e', 128  # jump to 64: lock incq COUNT(%rip); jmp 0
"""

# Name: what is prepared in the original, at which step the fork fails, whether the probe runs in the copy.
ATTACKS = {
    "ask": ("", CHECKED, False),  # none: the control of all the others
    "loop": ("", STOPPED, True),
    "signals": ("", None, True),  # it may never be seen waiting
    "stopped": ("""
def work():
    if fields[4]:
        os.kill(fields[4], signal.SIGSTOP); os.kill(fields[4], signal.SIGCONT)
sibling(work)""", None, True),
    "dispatch": ("", CONFINED, False),
    "shared_stack": ("""
def work():
    page[2048:4096] = b'\\xff' * 2048
    fields[5] = 1
sibling(work)""", CONFINED, False),
    "ask_on": ("""
f = open('/box/stack', 'w+b'); f.truncate(4096)
stack = mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE); f.close()
at = ctypes.addressof(ctypes.c_char.from_buffer(stack))""", CONFINED, False),
    "abort_there": (RSEQ, CHECKED, False),
    "shared_area": (RSEQ, CONFINED, False),
    "vdso_away": ("at = find('[vdso]')", CONFINED, False),
    "vdso_writable": ("at = find('[vdso]')", CONFINED, False),
    "vdso_other": ("at = find('[vdso]')", CONFINED, False),
    "vdso_changed": ("at = find('[vdso]')", CONFINED, False),
    "forged site": (FORGE + """
attack, at = 'vdso_writable', find('[vdso]')
forge(code(), 'r-xp', '[vdso]')""", CONFINED, False),
    "forged stack": (FORGE + """
attack = 'ask_on'
fd = os.open('/box/stack', os.O_CREAT | os.O_RDWR); os.truncate(fd, 4096)
at = map_file(fd, 3, 2) + 2048
forge(at & ~4095, 'rw-p')""", CONFINED, False),
    "headless": ("", STOPPED, False),
    "polls": ("", STOPPED, False),
    "spin_32": ("low = mmap.mmap(-1, 4096, flags=0x42, prot=7)\n"
                "at = ctypes.addressof(ctypes.c_char.from_buffer(low))", STOPPED, False),
    "read_32": ("low = mmap.mmap(-1, 4096, flags=0x42, prot=7)\n"
                "at = ctypes.addressof(ctypes.c_char.from_buffer(low))", None, False),
    "vsyscall": ("", STOPPED, False),
    "shared_code": ("""
def work():
    fields[5] = 1
    page[1026:1030] = b'\\xc3\\xcc\\xcc\\xcc'; page[1026:1030] = b'\\x90\\xc3\\xcc\\xcc'
sibling(work)""", CHECKED, False),
}


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    if os.uname().machine != "x86_64":
        pytest.skip("live sessions are copied on x86-64 only")
    path = tmp_path_factory.mktemp("attacks") / "attacks.so"
    source = os.path.join(os.path.dirname(__file__), "fork_attacks.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-fno-stack-protector",
                    "-fcf-protection=none", "-Wl,-z,now", "-o", path, source], check=True)
    return path.read_bytes()


def load(session, attacks, name, prepare, kind="MAP_SHARED"):
    one = session()
    put = one.call("PUT", "/files/attacks.so", attacks, headers={"Content-Type": "application/octet-stream"})
    assert put.status == 201, put
    one.out(LOAD % kind + "attack = %r\n" % name + prepare)
    return one


def refused(one, step):
    reply = ask_copy(one)
    assert reply.status == 409, reply
    assert step is None or "cannot " + step in reply.json()["error"]["message"], reply


def found(one, is_probing):
    rounds, odd, call, answer = map(int, one.out("print(*fields[:4])").split())
    assert odd == 0, "call %d was answered %d (%d calls in %d rounds)" % (call, answer, odd, rounds)
    assert (rounds > 0) == is_probing, rounds


@pytest.mark.parametrize("name", ATTACKS)
def test_it_never_runs_unconfined(session, attacks, name):
    prepare, step, is_probing = ATTACKS[name]
    one, other = load(session, attacks, name, prepare), session()
    assert one.out("print(control[:4])") == "[1, 0, 0, 0]\n"
    refused(one, step)
    found(one, is_probing)
    assert fork(other).out("print(2)") == "2\n"


def test_the_probe_finds_what_is_not_the_filters(session, attacks):
    """The control: where calls get other answers, it says so."""
    one = load(session, attacks, "ask", "")
    assert one.out("attacks.wrong(); print(fields[1], fields[2])") == "1 39\n"


def test_a_sequence_that_is_aborted_leads_nowhere(session, attacks):
    """Its handler would make setresuid() another call. The copy has an id of its own, and no hold on its original."""
    one = load(session, attacks, "abort_to", RSEQ + PROBE, "MAP_PRIVATE")
    pid = one.out("print(os.getpid())")
    two = fork(one)
    assert two.out("print(os.getuid(), os.getgid(), probe(%s))" % pid) == "1000 1000 []\n"


def test_a_process_of_the_family_has_no_hand_in_the_call(session, attacks):
    """The copy of a copy, which the first original reaches. That changes the instruction that calls would be made from, if
    a line of the copy's memory map could be forged. The control: the same change leads the copy itself astray."""
    one = load(session, attacks, "ask", FORGE, "MAP_PRIVATE")
    two = fork(one)
    two.out("""
type(forker).look = lambda self: ([], [(1, 0), (2, 1)])
page = code()
call = ctypes.CFUNCTYPE(None)(page)
count = ctypes.c_ulong.from_address(page + COUNT)
forge(page, 'r-xp', '[vdso]')""")
    pid = two.out("print(os.getpid())").strip()
    one.out("""
fd = os.open('/proc/%s/root/tmp/code', os.O_RDWR)
def work():
    os.pwrite(fd, JUMP, 0); os.pwrite(fd, CALL, 0)
sibling(work)""" % pid)
    two.out("""
while not count.value:
    call()""")
    two.out("count.value = 0")
    for _ in range(8):  # it is not there, as often as not, when it is looked for
        refused(two, None)
    assert two.out("print(count.value)") == "0\n"


def test_memory_shared_with_a_process_whose_first_thread_has_ended(session, attacks):
    """Its number compares with nobody's memory any more, but a thread of it has the copy's."""
    one = load(session, attacks, "headless", "", "MAP_PRIVATE")
    refused(one, STOPPED)
    assert one.out("print(1)") == "1\n"


def test_nobody_else_has_a_hand_in_it(session, attacks):
    """A process of the original's cannot trace the copy or write to its memory before it is frozen."""
    one = load(session, attacks, "ask", """
libc = ctypes.CDLL(None)
def work():
    pid = fields[4]
    if pid:
        fields[1] += libc.syscall(101, 0x4206, pid, 0, 0) == 0  # PTRACE_SEIZE
        fields[1] += libc.syscall(311, pid, 0, 0, 0, 0, 0) == 0  # process_vm_writev
        try:
            os.close(os.open('/proc/%d/mem' % pid, os.O_RDWR))
            fields[1] += 1
        except OSError:
            pass
        fields[0] += 1
sibling(work)
def ask(fd, word, answer, ask=functions['ask']):
    if word == b'h':
        fields[4] = os.getpid()
        while not fields[0]: pass
    ask(fd, word, answer)
functions['ask'] = ask
""")
    refused(one, CHECKED)
    found(one, True)


# User namespaces are what the filter alone should not have to refuse.

def user_limit(pid, value=None):
    """How many user namespaces those in the namespace of a process may make, or may from now on."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open("/proc/%d/ns/user" % pid) as space:
                assert ctypes.CDLL(None).setns(space.fileno(), 0x10000000) == 0
            with open("/proc/sys/user/max_user_namespaces", "r+b", buffering=0) as limit:
                if value is not None:
                    limit.write(b"%d" % value)
                os.write(write, os.pread(limit.fileno(), 100, 0))
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return int(answer.read())


def inits(server):
    return [pid for pid in boxes_below(server.child("hermes-spawn")) if children(pid)]


def test_no_user_namespace_but_for_the_moment_of_a_fork(server, session):
    one = session()
    one.out("x = 1")
    assert wait_until(lambda: len(inits(server)) == 1)
    init, = inits(server)
    assert user_limit(init) == 0
    two, three = fork(one, 2)
    assert user_limit(init) == 0
    fork(two)
    assert user_limit(init) == 0
    one.out(HOSTILE + "functions['ask'] = lambda *a: os._exit(0)")
    refused(one, STOPPED)
    assert user_limit(init) == 0


def workers(server, before):
    spawner = server.child("hermes-spawn")
    return [pid for pid in children(spawner) if pid not in before and name_of(pid) in ("hermes-fork", "hermes-spawn")]


def waits_with_the_limit(worker):
    """It can raise the limit, and sleeps: it waits for the copy."""
    there = pathlib.Path("/proc/%d" % worker)
    return (any(os.readlink(fd).endswith("/max_user_namespaces") for fd in (there / "fd").iterdir())
            and (there / "stat").read_text().rsplit(")", 1)[1].split()[0] == "S")


def test_a_limit_that_a_killed_worker_left_is_put_back(server, session):
    one = session()
    one.out(HOSTILE + "functions['ask'] = lambda *a: time.sleep(1000)")
    assert wait_until(lambda: len(inits(server)) == 1)
    init, = inits(server)
    before, family = children(server.child("hermes-spawn")), children(init)
    later = Later(lambda: ask_copy(one))
    assert wait_until(lambda: set(children(init)) - set(family))  # the copy is there: only the worker is left
    worker, = workers(server, before)
    assert wait_until(lambda: waits_with_the_limit(worker))
    assert user_limit(init, 128) == 128
    os.kill(worker, signal.SIGKILL)
    assert later.result().status == 409, later.reply
    assert user_limit(init) == 0
    assert one.out("print(1)") == "1\n"


def test_the_program_that_copies_has_only_what_its_job_needs(server, session):
    """hermes-fork is executed anew, with no environment and none of the spawner's other descriptors (proto/copy.h)."""
    one = session()
    one.out(HOSTILE + "functions['ask'] = lambda *a: time.sleep(1000)")
    spawner = server.child("hermes-spawn")
    before = children(spawner)
    later = Later(lambda: ask_copy(one))
    assert wait_until(lambda: [pid for pid in workers(server, before) if name_of(pid) == "hermes-fork"])
    worker, = workers(server, before)
    there, spawners = pathlib.Path("/proc/%d" % worker), pathlib.Path("/proc/%d" % spawner)

    def anonymous(proc):
        """What a copy needs none of: epoll, and pidfds of other boxes."""
        links = [os.readlink(proc / "fd" / fd) for fd in os.listdir(proc / "fd")]
        return [link for link in links if link in ("anon_inode:[eventpoll]", "anon_inode:[pidfd]")]
    assert anonymous(spawners)  # the control
    assert len(anonymous(there)) <= 1  # that of the copy
    assert (there / "environ").read_bytes() == b"" and (there / "cmdline").read_bytes() == b"hermes-fork\0"
    assert os.readlink(there / "exe").endswith("/hermes-fork")
    assert len(os.listdir(there / "fd")) < 30 < len(os.listdir(spawners / "fd"))
    os.kill(worker, signal.SIGKILL)
    assert later.result().status == 409, later.reply
    assert one.out("print(1)") == "1\n"


def test_forks_of_one_family_side_by_side(session):
    """Each raises the limit for itself, and lowers it for all."""
    one = session()
    one.out("x = 1")
    family = [one] + fork(one, 3)
    copies = []

    def copy(parent):
        for _ in range(4):
            copies.append(ask_copy(parent))
    threads = [threading.Thread(target=copy, args=(member,)) for member in family]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [reply.status for reply in copies] == [201] * 16, copies


# Init's own group, once its program has copies.

def limit_of(pid, kind):
    """The directory of a process's control group for memory or pids, and its limit there."""
    text = pathlib.Path("/proc/%d/cgroup" % pid).read_text()
    v1 = re.search(r"(?m)^\d+:%s:(.*)$" % kind, text)
    top = pathlib.Path("/sys/fs/cgroup/" + kind + v1[1] if v1 else
                       "/sys/fs/cgroup" + re.search(r"(?m)^0::(.*)$", text)[1])
    name = "memory.limit_in_bytes" if v1 and kind == "memory" else kind + ".max"
    return top, int((top / name).read_text())


def set_aside(server, one):
    """Init of a session that has a copy, and the group that init has left."""
    one.out("x = 1")
    assert wait_until(lambda: len(inits(server)) == 1)
    init, = inits(server)
    leaf, limit = limit_of(init, "memory")
    fork(one)
    assert wait_until(lambda: limit_of(init, "memory")[0] != leaf)
    return init, leaf, limit


def test_a_copy_doubles_no_limit(server, session):
    one = session()
    init, leaf, limit = set_aside(server, one)
    group, aside = limit_of(init, "memory")
    assert aside <= 16 << 20 < limit
    assert limit_of(init, "pids")[1] <= 64
    put = one.call("PUT", "/files/large", bytes(40 << 20), headers={"Content-Type": "application/octet-stream"})
    assert put.status == 201, put
    used = next(leaf / name for name in ("memory.usage_in_bytes", "memory.current") if (leaf / name).exists())
    assert int(used.read_text()) > 40 << 20
    assert int((group / used.name).read_text()) < 8 << 20


def test_a_full_group_of_init_harms_its_own_family_only(server, session):
    one = session()
    init, _, _ = set_aside(server, one)
    other = session()
    group, limit = limit_of(init, "memory")
    fill = "import sys; open(sys.argv[1], 'w').write('0'); x = b'x' * int(sys.argv[2])"
    code = [sys.executable, "-c", fill, str(group / "cgroup.procs")]
    assert subprocess.run(code + ["1"]).returncode == 0  # the control
    assert subprocess.run(code + [str(2 * limit)]).returncode in (1, -signal.SIGKILL)
    assert other.out("print(1)") == "1\n"
    assert fork(other).out("print(2)") == "2\n"
    assert one.post("print(1)").status in (200, 404, 409, 410)


# Those that make a copy end with their parents, however early these end.

@contextlib.contextmanager
def slowed(server, call, seconds, log):
    """The spawner and its new children, each of which is held before it makes this call."""
    spawner = server.child("hermes-spawn")
    status = pathlib.Path("/proc/%d/status" % spawner)
    slow = subprocess.Popen(["strace", "-f", "-qq", "-o", log, "-e", "trace=prctl,setns", "-e",
                             "inject=%s:delay_enter=%d" % (call, seconds * 1000000), "-p", str(spawner)])
    try:
        assert wait_until(lambda: "TracerPid:\t%d\n" % slow.pid in status.read_text())
        yield spawner
    finally:
        slow.terminate()
        slow.wait()


def is_gone(pid):
    try:
        return "State:\tZ" in pathlib.Path("/proc/%d/status" % pid).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def has_entered(pid, log):
    """Whether a process has gone to a namespace."""
    return re.search(r"(?m)^%d +setns" % pid, log.read_text()) is not None


def test_a_child_of_a_dead_spawner_does_nothing(make_server, tmp_path):
    """Not even the worker, which it has just started."""
    server, log = make_server(), tmp_path / "log"
    one = Session(server)
    one.out("x = 1")
    before = children(server.child("hermes-spawn"))
    with slowed(server, "prctl", 2, log) as spawner:
        Later(lambda: one.call("POST", "/fork"))
        assert wait_until(lambda: workers(server, before))
        found = workers(server, before)  # a box that is made ahead may be among them
        os.kill(spawner, signal.SIGKILL)
        assert wait_until(lambda: all(map(is_gone, found)))
        assert not any(has_entered(child, log) for child in found)


def test_a_child_of_a_dead_worker_does_nothing(server, session, tmp_path):
    """The worker's children after the first, which only enters a control group, enter namespaces of the family: one for
    the limit of user namespaces, one for the id maps, one for the files."""
    one, log = session(), tmp_path / "log"
    one.out("x = 1")
    before, born = children(server.child("hermes-spawn")), []

    def copy(killed_at=0):
        later = Later(lambda: ask_copy(one))
        born.clear()
        while later.reply is None:
            for worker in workers(server, before):
                born.extend(pid for pid in children(worker) if pid not in born)
                if killed_at and len(born) >= killed_at:
                    os.kill(worker, signal.SIGKILL)
                    return later.result()
        return later.result()
    with slowed(server, "prctl", 0.7, log):
        assert copy().status == 201
        assert sum(has_entered(pid, log) for pid in born[1:]) == 3  # the control
        for number in (2, 3, 4):
            assert copy(killed_at=number).status == 409
            assert wait_until(lambda: all(map(is_gone, born)))
            assert not any(has_entered(pid, log) for pid in born[number - 1:])


# A server that was taken over.

@contextlib.contextmanager
def taken(server):
    """Copies of the server's sockets on which boxes are commanded, by inode."""
    pid, libc, found = server.child("hermes-server"), ctypes.CDLL(None), {}
    pidfd = os.pidfd_open(pid)
    for number in map(int, os.listdir("/proc/%d/fd" % pid)):
        fd = libc.syscall(438, pidfd, number, 0)  # pidfd_getfd
        if fd < 0:
            continue
        status = os.fstat(fd)
        if not stat.S_ISSOCK(status.st_mode):
            os.close(fd)
            continue
        one = socket.socket(fileno=fd)
        if one.type & 0xf == socket.SOCK_SEQPACKET:
            found[status.st_ino] = one
        else:
            one.close()
    os.close(pidfd)
    try:
        yield found
    finally:
        for one in found.values():
            one.close()


def freezer(session):
    """The file that says whether the control group of a session is to be frozen."""
    space, number = session.out("import os; print(os.readlink('/proc/self/ns/pid'), os.getpid())").split()
    for pid in within(space):
        if re.search(r"(?m)^NSpid:.*\t%s$" % number, pathlib.Path("/proc/%d/status" % pid).read_text()):
            break
    name = re.search(r"(hermes-[0-9a-f]{32})\n", pathlib.Path("/proc/%d/cgroup" % pid).read_text())[1]
    return next(path for top, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(top) == name
                for path in [pathlib.Path(top, "cgroup.freeze")] if path.exists())


def stop_worker(server, session, before, is_frozen):
    """Asks for copies until the process that makes one is stopped while it has the original frozen."""
    for _ in range(10):
        later = Later(lambda: ask_copy(session))
        while later.reply is None:
            found = workers(server, before) if is_frozen() else []
            for worker in found:
                os.kill(worker, signal.SIGSTOP)
            if found and is_frozen():
                return later, found[0]
            for worker in found:
                os.kill(worker, signal.SIGCONT)
    pytest.fail("no copy was seen in the making")


def test_an_original_is_not_resumed_while_it_is_copied(server, session):
    """The original is a copy itself: those may be paused and resumed."""
    one = session()
    with taken(server) as sockets:
        known = set(sockets)
    two = fork(one)
    group = freezer(two)
    two.out("x = 1; open('large', 'wb').write(os.urandom(1 << 20) * 48)")

    def is_frozen():
        return group.read_text() == "1\n"

    def send(kind):
        with taken(server) as sockets:
            for inode in set(sockets) & its:
                sockets[inode].send(struct.pack("=IIII56x", kind, 0, 0, 0))
    with taken(server) as sockets:
        its = set(sockets) - known
    before = children(server.child("hermes-spawn"))
    later, worker = stop_worker(server, two, before, is_frozen)
    try:
        assert is_frozen() and later.reply is None
        send(RESUME)
        assert not wait_until(lambda: not is_frozen(), 0.5)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert later.result().status == 201, later.reply
    assert not is_frozen()
    # The control: the same commands to one that is not being copied.
    send(PAUSE)
    assert wait_until(is_frozen)
    send(RESUME)
    assert wait_until(lambda: not is_frozen())
    assert two.out("print(x)") == "1\n"
