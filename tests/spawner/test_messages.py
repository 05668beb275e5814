# SPDX-License-Identifier: Apache-2.0
"""hermes-spawn believes nobody after the seal: whoever holds its socket can start boxes from the
sealed table and nothing more. Speaks the wire protocol (src/proto/spawn.h) by hand."""

import array
import errno
import os
import pathlib
import random
import select
import socket
import struct
import subprocess
import tempfile
import time

import pytest

from apilib import descendants, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build"))
if not BUILD.is_absolute():
    BUILD = ROOT / BUILD

SETUP, ROOT_MSG, MOUNT, SEAL, BOX, PROBE, ZYGOTE, NETWORK = range(1, 9)
ENTRY_TREE, ENTRY_BIND, ENTRY_DEVICE, ENTRY_EXEC, ENTRY_MASK = range(1, 6)
ENTRY_IN_MEMORY = 4
EVENT_FAILED = 5
BOX_STDIN, BOX_COLLECT, BOX_WARM, BOX_CHANNEL = 1, 2, 4, 8
KILL, USAGE, INTERRUPT, STOP, RESTART, FILES = range(1, 7)
TERMINAL = 10
MASTER, REFUSED, OVER = range(1, 4)  # struct terminal_word
STARTED, EVENT_USAGE, EXITED, ENDED, _, INTERRUPTED = range(1, 7)
ALLOW_CONTROLS = 1
LIMITS = "QQQQIIIIII"
MB = 1 << 20
MAXIMA = (1 << 34, 1 << 34, 1 << 34, 1 << 32, 1 << 20, 4096, 16384, 64000, 700, 0)
GOOD = (64 * MB, 16 * MB, 16 * MB, 8 * MB, 1024, 16, 64, 1000, 5, 0)
EVENT = struct.Struct("=IIiiIIQQQQQQ")


def setup_message(flags=0, protocol=1, networks=2, processes_total=0):
    return struct.pack("=4I" + LIMITS + "6I", SETUP, protocol, flags, 1, *MAXIMA, 0, 0, networks, 0, processes_total, 0)


def entry(kind, path, source="", flags=0):
    return struct.pack("=2I256s256s", kind, flags, path.encode(), source.encode())


def root(*entries):
    return struct.pack("=2I", ROOT_MSG, len(entries)) + b"".join(entries)


@pytest.fixture(scope="session", autouse=True)
def tree():
    """The tree of a root as lang/rootfs_skeleton.c makes it; what a box needs of it."""
    global TREE
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        os.chmod(top, 0o755)
        TREE = top + "/tree"
        for name in ("box", "tmp", "mnt", "proc", "dev/shm", "dev/pts", "usr"):
            os.makedirs(os.path.join(TREE, name))
        os.symlink("usr/lib", TREE + "/lib")
        os.symlink("usr/lib64", TREE + "/lib64")
        open(TREE + "/dev/null", "w").close()
        yield


def host_root(program, flags=0):
    return root(entry(ENTRY_TREE, "", TREE, flags), entry(ENTRY_BIND, "/usr", "/usr"),
                entry(ENTRY_DEVICE, "/dev/null", "/dev/null"), entry(ENTRY_EXEC, program))


def box(root=0, exec=0, flags=0, remove=0, limits=GOOD, mounts=(), mount_count=None, owner=0):
    head = struct.pack("=8I", BOX, root, exec, flags, remove,
                       len(mounts) if mount_count is None else mount_count, owner, 0)
    body = b"".join(struct.pack("=2I256s", *m) for m in mounts)
    return head + struct.pack("=" + LIMITS, *limits) + body.ljust(8 * 264, b"\0")


def job(argv=("/box/main",), files=()):
    strings = b"".join(a.encode() + b"\0" for a in argv)
    data = struct.pack("=6IQQ", 0x484A4F42, len(argv), 0, 0, len(files), 0, 0, len(strings))
    data += strings
    data += b"\0" * (-len(data) % 8)
    for name, content in files:
        raw = name.encode() + b"\0"
        data += struct.pack("=IIQ", len(raw), 1, len(content)) + raw + b"\0" * (-len(raw) % 8)
        data += content + b"\0" * (-len(content) % 8)
    fd = os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    import fcntl
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return fd


class Spawner:
    def __init__(self, flags=0, seal=True):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(theirs.fileno(), 3)
                os.execve(BUILD / "hermes-spawn", ["hermes-spawn"], {})
            finally:
                os._exit(127)  # there must not be two of us
        theirs.close()
        self.pid = pid
        self.control.settimeout(20)
        if seal:
            self.send(setup_message(flags))
            self.send(host_root("/usr/bin/id"))
            assert self.seal() == 0

    def send(self, data, fds=()):
        self.control.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                             if fds else [])

    def seal(self):
        self.send(struct.pack("=I", SEAL))
        return struct.unpack_from("=Ii", self.control.recv(4096))[1]

    def ask(self, request, fds):
        """Sends a request with these descriptors behind the box's socket; returns its events."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        self.send(request, [theirs.fileno(), *fds])
        theirs.close()
        events = []
        while True:
            data = ours.recv(4096)
            if not data:
                ours.close()
                return events
            events.append(EVENT.unpack(data))

    def descriptors(self):
        """What it has open when it is idle: asleep, and not only kept from the processor. Right after
        its start and after the seal it still has something to do."""
        deadline = time.time() + 60
        while time.time() < deadline:
            if self.sleeps():
                now = sorted(os.listdir(f"/proc/{self.pid}/fd"), key=int)
                if self.sleeps():
                    return now
            time.sleep(0.01)
        raise AssertionError("it is never idle")

    def sleeps(self):
        """Only waiting for events it sleeps so that signals wake it."""
        return "(hermes-spawn) S " in pathlib.Path(f"/proc/{self.pid}/stat").read_text()

    def settles_at(self, descriptors):
        """Whether its descriptors are soon these: what is told is told before the last close."""
        deadline = time.time() + 20
        while self.descriptors() != descriptors and time.time() < deadline:
            time.sleep(0.01)
        return self.descriptors() == descriptors

    def held(self):
        """How many it has open apart from networks, which it keeps for the next box."""
        def kind(fd):
            try:
                return os.readlink(f"/proc/{self.pid}/fd/{fd}")
            except FileNotFoundError:  # closed since it was listed
                return "net:"
        return sum(not kind(fd).startswith("net:") for fd in self.descriptors())

    def settles_holding(self, count):
        deadline = time.time() + 20
        while self.held() != count and time.time() < deadline:
            time.sleep(0.01)
        return self.held() == count

    def close(self):
        self.control.close()
        return os.waitpid(self.pid, 0)[1]


@pytest.fixture
def spawner():
    s = Spawner()
    yield s
    assert s.close() == 0


@pytest.fixture
def pipes():
    out, err = os.pipe(), os.pipe()
    yield out, err
    for fd in (*out, *err):
        try:
            os.close(fd)
        except OSError:
            pass


def run_id(spawner, pipes, **kwargs):
    out, err = pipes
    fd = job(["/usr/bin/id", "-u"])
    events = spawner.ask(box(**kwargs), [fd, out[1], err[1]])
    os.close(fd)
    return events


def test_a_sound_request_runs(spawner, pipes):
    events = run_id(spawner, pipes)
    assert [e[0] for e in events] == [1, 4], events
    assert os.read(pipes[0][0], 100) == b"1000\n"


BAD = [
    ("root out of range", dict(root=1)),
    ("root wraps", dict(root=0xFFFFFFFF)),
    ("exec out of range", dict(exec=1)),
    ("exec wraps", dict(exec=0x80000000)),
    ("unknown flag", dict(flags=16)),
    ("a channel without a socket", dict(flags=BOX_CHANNEL)),
    ("a channel and collected files", dict(flags=BOX_CHANNEL | BOX_COLLECT)),
    ("flags promise descriptors that are not there", dict(flags=BOX_STDIN)),
    ("collect without a pipe", dict(flags=BOX_COLLECT)),
    ("a build upon a root of the table", dict(flags=64)),
    ("barriers left out", dict(remove=1)),
    ("all barriers left out", dict(remove=0xFFFFFFFF)),
    ("too many mounts", dict(mount_count=9)),
    ("mount count wraps", dict(mount_count=0xFFFFFFFF)),
    ("mount that was never offered", dict(mounts=[(0, 0, b"/mnt/x")])),
    *[(f"limit {i} zero", dict(limits=GOOD[:i] + (0,) + GOOD[i + 1:])) for i in range(9)],
    *[(f"limit {i} above the maximum", dict(limits=GOOD[:i] + (MAXIMA[i] + 1,) + GOOD[i + 1:]))
      for i in range(9)],
]


@pytest.mark.parametrize("what,change", BAD, ids=[b[0] for b in BAD])
def test_bad_requests_start_nothing(spawner, pipes, what, change):
    before = spawner.descriptors()
    events = run_id(spawner, pipes, **change)
    assert [e[0] for e in events] == [EVENT_FAILED], events
    assert spawner.settles_at(before)
    assert [e[0] for e in run_id(spawner, pipes)] == [1, 4]


def test_barriers_are_left_out_only_where_the_table_allows_it(pipes):
    s = Spawner(flags=ALLOW_CONTROLS)
    assert [e[0] for e in run_id(s, pipes, remove=1)] == [1, 4]
    assert s.close() == 0


def test_descriptors_that_are_no_pipes_are_refused_and_untouched(spawner, pipes):
    """A taken-over server sends a descriptor of a file of root's: it must not be handed over."""
    with tempfile.NamedTemporaryFile() as f, tempfile.TemporaryDirectory() as d:
        fifo = os.path.join(d, "fifo")
        os.mkfifo(fifo)
        a, b = socket.socketpair()
        for path_or_fd in (f.name, d, "/dev/null", "/etc/passwd", fifo, a.detach()):
            fd = path_or_fd if isinstance(path_or_fd, int) else \
                os.open(path_or_fd, os.O_RDONLY | os.O_NONBLOCK)
            owner = os.fstat(fd).st_uid
            j = job(["/usr/bin/id"])
            for fds in ([j, fd, pipes[1][1]], [j, pipes[0][1], fd]):
                events = spawner.ask(box(), fds)
                assert [e[0] for e in events] == [EVENT_FAILED], (path_or_fd, events)
            assert os.fstat(fd).st_uid == owner
            os.close(j)
            os.close(fd)
        b.close()


def test_the_job_must_be_sealed(spawner, pipes):
    fd = os.memfd_create("job", os.MFD_ALLOW_SEALING)
    events = spawner.ask(box(), [fd, pipes[0][1], pipes[1][1]])
    assert [e[0] for e in events] == [EVENT_FAILED]
    os.close(fd)


def test_nothing_is_registered_after_the_seal(spawner, pipes):
    spawner.send(root(entry(ENTRY_BIND, "/etc", "/etc"), entry(ENTRY_EXEC, "/usr/bin/cat")))
    spawner.send(setup_message(ALLOW_CONTROLS))
    spawner.send(struct.pack("=2I256s", MOUNT, 1, b"/"))
    assert [e[0] for e in run_id(spawner, pipes, root=1)] == [EVENT_FAILED]
    assert [e[0] for e in run_id(spawner, pipes, remove=1)] == [EVENT_FAILED]
    assert [e[0] for e in run_id(spawner, pipes, mounts=[(0, 0, b"/mnt/x")])] == [EVENT_FAILED]
    assert [e[0] for e in run_id(spawner, pipes)] == [1, 4]


def test_no_box_before_the_seal(pipes):
    s = Spawner(seal=False)
    s.send(setup_message())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = job()
    s.send(box(), [theirs.fileno(), fd, pipes[0][1], pipes[1][1]])
    theirs.close()
    ours.settimeout(20)
    assert ours.recv(100) == b""
    os.close(fd)
    assert s.close() == 0


def test_a_seal_needs_the_same_build():
    s = Spawner(seal=False)
    s.send(setup_message(protocol=99))
    assert s.seal() < 0
    assert s.close() == 0


def test_mount_paths_are_checked_again(pipes):
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(struct.pack("=2I256s", MOUNT, 0, b"/usr/share"))
    s.send(host_root("/usr/bin/id"))
    assert s.seal() == 0
    for path in (b"/etc", b"/mnt", b"/box", b"/mnt/..", b"/mnt/../etc", b"/box//x", b"/mnt/./x",
                 b"/proc/x", b"mnt/x", b"/mnt/a\nb", b"x" * 256, b"/mnt/" + b"y" * 251):
        assert [e[0] for e in run_id(s, pipes, mounts=[(0, 0, path)])] == [EVENT_FAILED], path
    assert [e[0] for e in run_id(s, pipes, mounts=[(0, 1, b"/mnt/x")])] == [EVENT_FAILED]
    assert [e[0] for e in run_id(s, pipes, mounts=[(0, 0, b"/mnt/a/b")])] == [1, 4]
    assert s.close() == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_random_packets_neither_crash_nor_leak(sealed, pipes):
    s = Spawner(seal=sealed)
    rng = random.Random(20261115)
    before = s.descriptors()
    for i in range(1500):
        size = rng.choice([0, 1, 3, 4, 8, 80, 264, 520, 528, 2199, 2200, 2201, 9000])
        data = bytearray(rng.randbytes(size))
        if size >= 4:
            kinds = [0, SEAL, BOX, PROBE, ZYGOTE, NETWORK, 9, 0xFFFFFFFF] if sealed else [0, MOUNT, BOX, 9]
            struct.pack_into("=I", data, 0, rng.choice(kinds))
        if sealed and size == 2200 and rng.random() < 0.5:
            struct.pack_into("=6I", data, 0, BOX, 0, 0, rng.getrandbits(4), 0, rng.getrandbits(4))
        fds = [pipes[0][1]] * rng.choice([0, 0, 1, 4, 6, 20])
        if not size:
            continue
        s.send(bytes(data), fds)
    s.send(struct.pack("=I", 99))
    assert s.settles_at(before)
    if sealed:
        assert [e[0] for e in run_id(s, pipes)] == [1, 4]
    assert s.close() == 0


class Live:
    """A box with a channel; its program is a shell that reads from there."""

    SCRIPT = "trap 'echo int' INT; echo $$ ready >&3; while :; do read -r line <&3 || exit; eval \"$line\"; done"

    def __init__(self, spawner, channel=None, script=SCRIPT, pair=None):
        self.script = script
        self.socket, theirs = pair or socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        ends = self.ends(channel)
        spawner.send(box(flags=BOX_CHANNEL), [theirs.fileno(), *ends])
        if not pair:  # else it is kept, as no good server would
            theirs.close()
        self.close_ends(ends)

    def ends(self, channel=None):
        out, err = os.pipe(), os.pipe()
        self.channel, theirs = channel or socket.socketpair()
        self.channel.settimeout(20)
        self.out = out[0]
        os.close(err[0])
        return [job(["/usr/bin/bash", "-c", self.script]), out[1], err[1], theirs.detach()]

    def close_ends(self, ends):
        for fd in ends:
            os.close(fd)

    def command(self, kind, fds=(), is_idle=0):
        self.socket.sendmsg([struct.pack("=4I%dx" % struct.calcsize("=" + LIMITS), kind, is_idle, 0, 0)],
                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def event(self):
        data = self.socket.recv(4096)
        return EVENT.unpack(data) if data else None

    def kinds(self):
        found = []
        while event := self.event():
            found.append(event[0])
        return found


@pytest.fixture
def shell():
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(host_root("/usr/bin/bash"))
    s.send(host_root("/usr/bin/bash", ENTRY_IN_MEMORY))
    assert s.seal() == 0
    yield s
    assert s.close() == 0


def test_a_box_with_a_channel(shell):
    """It is interrupted and stopped, its program is replaced, and its files stay."""
    before = shell.held()
    live = Live(shell)
    assert live.event()[0] == STARTED
    pid = live.channel.recv(100).split()[0]
    live.command(INTERRUPT)
    assert live.event()[0] == INTERRUPTED
    live.channel.sendall(b"printf -v x %8000000d 1; echo mine >f; sleep 1000 & echo done >&3\n")
    assert live.channel.recv(100) == b"done\n"
    assert os.read(live.out, 4) == b"int\n"
    live.command(USAGE)
    usage = live.event()
    assert usage[0] == EVENT_USAGE and usage[9] > 0 and usage[11] > 5 * MB, usage
    live.command(STOP)
    exited = live.event()
    assert exited[0] == EXITED and os.WTERMSIG(exited[2]) == 9
    live.script = "read x <f; echo $x $(ls -d /proc/[0-9]* | wc -l) >&3; read x <&3; exit 7"
    ends = live.ends()
    live.command(RESTART, ends)
    live.close_ends(ends)
    assert live.event()[0] == STARTED
    got = live.channel.recv(100).split()
    assert got[0] == b"mine" and int(got[1]) <= 5 and pid != b"", got  # nothing of the one before runs
    live.channel.sendall(b"\n")
    exited = live.event()
    assert exited[0] == EXITED and os.WEXITSTATUS(exited[2]) == 7
    live.command(KILL)
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


SO_PASSPIDFD = 76  # Linux 6.5


def test_descriptors_that_nobody_sent(shell):
    """Who keeps the end that he sends can have the kernel add a pidfd to every packet. Nobody wants it, so it is closed."""
    before = shell.held()
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, 1)
    except OSError:
        pytest.skip("this kernel knows no SO_PASSPIDFD")
    live = Live(shell, pair=pair)
    _, ancillary, _, _ = live.socket.recvmsg(4096, 100)  # STARTED; the control: the kernel does add one
    assert [(level, kind) for level, kind, _ in ancillary] == [(socket.SOL_SOCKET, 4)]
    os.close(struct.unpack("i", ancillary[0][2][:4])[0])
    assert live.channel.recv(100)
    open_before = len(os.listdir("/proc/%d/fd" % shell.pid))
    for _ in range(50):
        live.command(USAGE)
        assert live.event()[0] == EVENT_USAGE
    assert len(os.listdir("/proc/%d/fd" % shell.pid)) == open_before
    for end in pair:
        end.close()
    assert shell.settles_holding(before)


def test_a_packet_that_is_taken_back_stops_nobody(shell):
    """Who keeps the end that he sends may read from it, too: the spawner waits for no packet that it was told of. It
    is slowed down before it reads."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    live, other = Live(shell, pair=pair), Live(shell)
    for one in (live, other):
        assert one.event()[0] == STARTED and one.channel.recv(100)
    slow = subprocess.Popen(["strace", "-qq", "-e", "trace=recvmsg", "-e", "inject=recvmsg:delay_enter=400000", "-p", str(shell.pid)],
                            stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: "TracerPid:\t0" not in pathlib.Path("/proc/%d/status" % shell.pid).read_text())
        live.command(USAGE)
        time.sleep(0.2)
        assert pair[1].recv(100, socket.MSG_DONTWAIT)  # the control: it was there, and the spawner had been told
        other.command(USAGE)
        assert other.event()[0] == EVENT_USAGE
    finally:
        slow.terminate()
        slow.wait()
        for end in (*pair, other.socket):
            end.close()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_box_is_commanded_by_packets_only(shell, kind):
    event = Live(shell, pair=socket.socketpair(socket.AF_UNIX, kind)).event()
    assert event[0] == EVENT_FAILED and -event[3] == errno.EINVAL, event


@pytest.mark.parametrize("which", range(3), ids=["connects", "accepts", "peer of a name"])
def test_a_connection_to_a_service_is_no_wire(shell, which):
    """What a box tells must go to nobody else. Control: the pair has no name yet."""
    with tempfile.TemporaryDirectory() as path:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(path + "/socket")
        listening.listen()
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.connect(path + "/socket")
        theirs = listening.accept()[0]
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        live = Live(shell, pair=pair)
        assert live.event()[0] == STARTED
        pair[1].close()
        live.socket.close()
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pair[0].bind(path + "/named")
        event = Live(shell, pair=[(theirs, ours), (ours, theirs), pair][which]).event()
        assert event[0] == EVENT_FAILED and -event[3] == errno.EINVAL, event
        for one in (listening, ours, theirs, *pair):
            one.close()


def test_commands_that_do_not_fit_end_the_box(shell, pipes):
    before = shell.held()
    for kinds in ([99], [RESTART], [0]):
        live = Live(shell)
        assert live.event()[0] == STARTED
        for kind in kinds:
            live.command(kind)
        assert live.kinds()[-1] == ENDED
    live = Live(shell)  # a restart of what runs, and one with other things than pipes and a socket
    assert live.event()[0] == STARTED
    ends = live.ends()
    live.command(RESTART, ends)
    assert live.kinds()[-1] == ENDED
    live.close_ends(ends)
    for swap in ((0, 1), (1, 3), (3, 1)):
        live = Live(shell)
        assert live.event()[0] == STARTED
        live.command(STOP)
        assert live.event()[0] == EXITED
        ends = live.ends()
        bad = list(ends)
        bad[swap[0]] = ends[swap[1]]
        live.command(RESTART, bad)
        live.close_ends(ends)
        assert live.kinds()[-1] == ENDED
    # A run has no business with these.
    for kind in (INTERRUPT, STOP, RESTART, FILES, TERMINAL):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        fd = job(["/usr/bin/bash", "-c", "sleep 1000"])
        shell.send(box(), [theirs.fileno(), fd, pipes[0][1], pipes[1][1]])
        theirs.close()
        os.close(fd)
        assert EVENT.unpack(ours.recv(4096))[0] == STARTED
        ours.send(struct.pack("=2I", kind, 0))
        assert EVENT.unpack(ours.recv(4096))[0] == ENDED
        ours.close()
    assert shell.settles_holding(before)


def test_channels_that_are_none(shell):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("\0hermes-spawn-test-%d" % os.getpid())
    listening.listen()
    tcp = socket.socket()
    datagram, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for bad in (listening, tcp, datagram):
        ours, _ = socket.socketpair()
        live = Live(shell, (ours, bad))
        assert live.kinds() == [EVENT_FAILED]


def test_closing_the_socket_ends_a_box_with_a_channel(shell):
    before = shell.held()
    live = Live(shell)
    assert live.event()[0] == STARTED
    live.socket.close()
    live.channel.recv(100)
    assert live.channel.recv(100) == b""
    assert shell.settles_holding(before)


def test_closing_the_control_socket_ends_every_box(pipes):
    s = Spawner(seal=False)
    s.send(setup_message())
    s.send(host_root("/usr/bin/sleep"))
    assert s.seal() == 0
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = job(["sleep", "98765"])
    s.send(box(), [theirs.fileno(), fd, pipes[0][1], pipes[1][1]])
    theirs.close()
    os.close(fd)
    assert EVENT.unpack(ours.recv(4096))[0] == 1
    assert s.close() == 0
    out = subprocess.run(["pgrep", "-x", "-a", "sleep"], capture_output=True, text=True).stdout
    assert "sleep 98765" not in out


def test_a_table_starts_with_its_tree():
    """Registration is believed, but a table that makes no sense is refused, not guessed at."""
    for entries in ((), (entry(ENTRY_BIND, "/usr", "/usr"),),
                    (entry(ENTRY_TREE, "", TREE), entry(ENTRY_TREE, "/x", TREE)),
                    (entry(ENTRY_TREE, "", TREE), entry(ENTRY_BIND, "usr", "/usr")),
                    (entry(ENTRY_TREE, "", TREE), entry(ENTRY_BIND, "/nowhere", "/usr")),
                    (entry(ENTRY_TREE, "", TREE), entry(ENTRY_BIND, "/lib/x", "/usr")),
                    (entry(ENTRY_TREE, "", TREE), entry(ENTRY_BIND, "/../x", "/usr")),
                    (entry(ENTRY_TREE, "", TREE), entry(ENTRY_DEVICE, "/dev/null", "/etc/passwd")),
                    (entry(ENTRY_TREE, "", "/no-such-directory"),), (entry(ENTRY_TREE, "", "/no-such-directory", ENTRY_IN_MEMORY),),
                    (entry(ENTRY_TREE, "", "/usr"),), (entry(ENTRY_TREE, "", TREE), entry(ENTRY_MASK, "/nowhere"))):
        s = Spawner(seal=False)
        s.send(setup_message())
        s.send(root(*entries))
        assert s.seal() < 0, entries
        assert s.close() == 0


def children(spawner):
    """pid -> network namespace of its children; a box that is ending has none."""
    found = {}
    with open(f"/proc/{spawner.pid}/task/{spawner.pid}/children") as f:
        for pid in f.read().split():
            try:
                comm = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                found[int(pid)] = (comm, os.readlink(f"/proc/{pid}/ns/net"))
            except OSError:
                pass
    return found


def soon(check, seconds=20):
    """What check() says at last: something true, or what it says when the time is over."""
    deadline = time.time() + seconds
    while not (found := check()) and time.time() < deadline:
        time.sleep(0.01)
    return found


def helper_of(spawner):
    """Who makes its networks. It has its name a moment after its birth."""
    found = soon(lambda: [pid for pid, (comm, _) in children(spawner).items() if comm == "hermes-network"])
    assert found, "no helper"
    return found[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="without root networks are not made ahead")
def test_networks_are_made_ahead_and_each_serves_one_box(pipes):
    """Also when the helper that makes them dies: another one takes its place."""
    s = Spawner(seal=False)
    s.send(setup_message(networks=2))
    s.send(host_root("/usr/bin/sleep"))
    assert s.seal() == 0
    boxes, helpers = [], set()
    for _ in range(6):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = job(["sleep", "98766"])
        s.send(box(), [theirs.fileno(), fd, pipes[0][1], pipes[1][1]])
        theirs.close()
        os.close(fd)
        boxes.append(ours)
        assert EVENT.unpack(ours.recv(4096))[0] == 1
        helper = helper_of(s)
        assert helper not in helpers
        helpers.add(helper)
        os.kill(helper, 9)
        assert soon(lambda: helper not in children(s)), "the spawner does not see it"

    def networks():
        return [net for comm, net in children(s).values() if comm != "hermes-network"]
    assert soon(lambda: len(networks()) == 6)  # a helper that was just forked has no name of its own yet
    assert len(set(networks())) == 6
    assert os.readlink("/proc/self/ns/net") not in networks()
    assert os.readlink(f"/proc/{s.pid}/ns/net") == os.readlink("/proc/self/ns/net")
    assert s.close() == 0


REQUEST = struct.Struct("=4I2Qq2I")
RECORD = struct.Struct("=2IiIQq")
GET, PUT, DELETE, LIST = range(1, 5)
ENTRY, DATA, END = range(1, 4)


class Helper:
    """What serves the files of a box; see src/proto/files.h."""

    def __init__(self, live):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(20)
        live.command(FILES, [theirs.fileno()])
        theirs.close()

    def ask(self, op, name, flags=0, size=2**64 - 1, others=0):
        self.socket.sendall(REQUEST.pack(op, flags, len(name), 100, size, others, 0, 0, 0) + name)

    def read(self, n):
        data = b""
        while len(data) < n:
            piece = self.socket.recv(n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def answer(self):
        """Records up to the end as (kind, name or bytes), and the errno."""
        found = []
        while True:
            kind, name_len, error, mode, size, _ = RECORD.unpack(self.read(RECORD.size))
            if kind == END:
                return found, -error
            found.append((kind, self.read(size if kind == DATA else name_len)))

    def put(self, name, data):
        self.ask(PUT, name)
        assert RECORD.unpack(self.read(RECORD.size))[0] == ENTRY
        self.socket.sendall(struct.pack("=I", len(data)) + data + bytes(4))
        return self.answer()


def test_files_of_a_box(shell):
    before = shell.held()
    live = Live(shell)
    assert live.event()[0] == STARTED
    helper = Helper(live)
    assert helper.put(b"d/f", b"content") == ([], 0)
    helper.ask(GET, b"d/f")
    assert helper.answer() == ([(ENTRY, b""), (DATA, b"content")], 0)
    helper.ask(LIST, b"")
    assert helper.answer() == ([(ENTRY, b"d")], 0)
    live.channel.sendall(b"read x <d/f; echo got $x >&3\n")
    heard = b""
    while not heard.endswith(b"got content\n"):
        heard += live.channel.recv(100)
    live.command(STOP)  # ends the helper too; another one serves a box without a program
    assert live.event()[0] == EXITED
    with pytest.raises((EOFError, ConnectionError)):
        helper.ask(GET, b"d/f")
        helper.answer()
    helper = Helper(live)
    helper.ask(DELETE, b"d", flags=1)
    assert helper.answer() == ([], 0)
    live.command(KILL)
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


@pytest.mark.parametrize("name", [b"..", b"../x", b"/etc/passwd", b"a/../../x", b"a//b", b".", b"a\0b", b"\xff", b"a/", b"x" * 256])
def test_a_helper_believes_no_name(shell, name):
    """The server checks names; a server that was taken over does not."""
    live = Live(shell)
    assert live.event()[0] == STARTED
    for op in (GET, PUT, DELETE, LIST):
        helper = Helper(live)
        helper.ask(op, name)
        with pytest.raises((EOFError, ConnectionError)):
            helper.answer()
    live.command(KILL)
    assert live.kinds() == [ENDED]


@pytest.mark.parametrize("rubbish", [b"x" * 100, REQUEST.pack(99, 0, 1, 0, 0, 0, 0, 0, 0) + b"x", REQUEST.pack(GET, 0, 4097, 0, 0, 0, 0, 0, 0) + b"x" * 4097,
                                     REQUEST.pack(GET, 0, 2**32 - 1, 0, 0, 0, 0, 0, 0), REQUEST.pack(PUT, 0, 1, 0, 2**64 - 1, 0, 0, 0, 0) + b"x" + b"\xff" * 8])
def test_a_helper_that_hears_rubbish(shell, rubbish):
    live = Live(shell)
    assert live.event()[0] == STARTED
    helper = Helper(live)
    helper.socket.sendall(rubbish)
    helper.socket.shutdown(socket.SHUT_WR)
    try:
        while helper.socket.recv(65536):
            pass
    except ConnectionError:
        pass
    other = Helper(live)
    other.ask(LIST, b"")
    assert other.answer() == ([], 0)
    live.command(KILL)
    assert live.kinds() == [ENDED]


def test_files_by_what_is_no_socket(shell, pipes):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("\0hermes-spawn-files-%d" % os.getpid())
    listening.listen()
    datagram, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    good, peer = socket.socketpair()
    tcp = socket.socket()
    for bad in ([], [pipes[0][0]], [listening.fileno()], [tcp.fileno()], [datagram.fileno()], [good.fileno()] * 2):
        live = Live(shell)
        assert live.event()[0] == STARTED
        live.command(FILES, bad)
        assert live.kinds()[-1] == ENDED


@pytest.mark.parametrize("name", ["path", "abstract"])
def test_a_connection_to_a_service_is_no_channel(shell, name):
    """A server that was taken over may have one; no helper and no program of a box may speak on it."""
    with tempfile.TemporaryDirectory() as path:
        address = path + "/socket" if name == "path" else "\0hermes-spawn-service-%d" % os.getpid()
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address)
        listening.listen()
        ours = socket.socket(socket.AF_UNIX)
        ours.connect(address)
        theirs = listening.accept()[0]
        for end in (ours, theirs):
            for kind, fds in ((FILES, [end.fileno()]), (TERMINAL, [end.fileno(), job(["/usr/bin/bash"])])):
                live = Live(shell)
                assert live.event()[0] == STARTED
                live.command(kind, fds)
                assert live.kinds()[-1] == ENDED, (kind, end)
                for fd in fds[1:]:
                    os.close(fd)
        bound, peer = socket.socketpair()  # an end of a pair that was given a name
        bound.bind(path + "/named")
        live = Live(shell)
        assert live.event()[0] == STARTED
        live.command(FILES, [peer.fileno()])
        assert live.kinds()[-1] == ENDED
        for one in (listening, ours, theirs, bound, peer):
            one.close()


def test_a_flood_of_helpers_does_not_stop_the_spawner(shell, pipes):
    live = Live(shell)
    assert live.event()[0] == STARTED
    held = []
    for _ in range(300):
        ours, theirs = socket.socketpair()
        live.command(FILES, [theirs.fileno()])
        theirs.close()
        held.append(ours)
    assert EVENT_USAGE in [live.command(USAGE) or live.event()[0]]
    for one in held:
        one.close()
    helper = Helper(live)
    helper.socket.settimeout(60)
    try:
        helper.ask(LIST, b"")
        assert helper.answer()[1] in (0, 87)  # EUSERS: those before are on their way out
    except (EOFError, ConnectionError):
        pass
    live.command(KILL)
    assert live.kinds()[-1] == ENDED


def sleeps_in_box(spawner):
    """Arguments of each `sleep`, seen from outside: a program does not see what sits at a terminal."""
    found = []
    for pid in descendants(spawner.pid):
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        found += words[1:2] if words[0] == "sleep" else []
    return found


class Screen:
    """A terminal in a box, as the server would have it."""

    def __init__(self, live, argv=("/usr/bin/bash", "-c", "tty; read x; echo got $x; exit 3")):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(20)
        fd = job(argv)
        live.command(TERMINAL, [theirs.fileno(), fd])
        theirs.close()
        os.close(fd)
        self.kind, self.value, fds = self.word()
        self.master = fds[0] if fds else None

    def word(self):
        data, fds, _, _ = socket.recv_fds(self.socket, 8, 4)
        return (*struct.unpack("=Ii", data), fds) if data else (None, None, [])

    def read_until(self, text):
        seen = b""
        while text not in seen:
            assert select.select([self.master], [], [], 20)[0], seen
            seen += os.read(self.master, 4096)
        return seen

    def close(self):
        self.socket.close()
        if self.master is not None:
            os.close(self.master)


def test_a_terminal(shell):
    before = shell.held()
    live = Live(shell)
    assert live.event()[0] == STARTED
    one = Screen(live)
    assert one.kind == MASTER and os.isatty(one.master)
    one.socket.send(b"g")
    assert b"/dev/pts/0" in one.read_until(b"/dev/pts/0")
    os.write(one.master, b"hello\n")
    one.read_until(b"got hello")
    assert one.word()[:2] == (OVER, 3 << 8)
    one.close()
    idle = Screen(live)  # whose shell is never told to start
    idle.close()
    gone = Screen(live, ("/nonexistent",))
    gone.socket.send(b"g")
    assert gone.word()[0] == REFUSED and gone.word()[0] == OVER
    gone.close()
    for argv in ((), ("",)):
        odd = Screen(live, argv)
        odd.socket.send(b"g")
        assert odd.word()[0] == REFUSED
        odd.close()
    left = Screen(live, ("/usr/bin/bash", "-c", "trap '' HUP; echo ready; exec sleep 1000"))
    left.socket.send(b"g")
    left.read_until(b"ready")
    assert soon(lambda: sleeps_in_box(shell) == ["1000"])
    left.close()  # hangs up; what ignores that is killed
    assert soon(lambda: not sleeps_in_box(shell))
    live.command(STOP)
    assert live.event()[0] == EXITED
    late = Screen(live)  # there is no program beside which it could be
    assert late.kind in (None, REFUSED) and late.master is None
    late.close()
    live.command(KILL)
    assert live.kinds() == [ENDED]
    assert shell.settles_holding(before)


def test_terminals_by_other_descriptors(shell, pipes):
    good, peer = socket.socketpair()
    datagram, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sealed = job(["/usr/bin/bash"])
    plain = os.memfd_create("plain")
    for bad in ([], [good.fileno()], [sealed], [sealed, good.fileno()], [good.fileno(), plain], [good.fileno(), pipes[0][0]],
                [pipes[0][0], sealed], [datagram.fileno(), sealed], [good.fileno(), sealed, sealed]):
        live = Live(shell)
        assert live.event()[0] == STARTED
        live.command(TERMINAL, bad)
        assert live.kinds()[-1] == ENDED, bad
    os.close(sealed)
    os.close(plain)


def test_a_flood_of_terminals_does_not_stop_the_spawner(shell, pipes):
    live = Live(shell)
    assert live.event()[0] == STARTED
    fd = job(["/usr/bin/bash", "-c", "sleep 1000"])
    held = []
    for _ in range(100):
        ours, theirs = socket.socketpair()
        live.command(TERMINAL, [theirs.fileno(), fd])
        theirs.close()
        held.append(ours)
    live.command(USAGE)
    assert live.event()[0] == EVENT_USAGE
    for one in held:
        one.close()
    os.close(fd)
    live.command(KILL)
    assert live.kinds()[-1] == ENDED
