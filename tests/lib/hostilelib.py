# SPDX-License-Identifier: Apache-2.0
"""hermes-places without a server: the test is the monitor that seals its table, and a server that was taken over."""
import array
import ctypes
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile

from apilib import BUILD, ROOT, borrow_dir, return_dir
from farlib import HEADER, below, children, processes_with, wait_until

LOCAL, SSH, DOCKER, PLUGIN, APPTAINER = 1, 2, 3, 4, 5
STARTED, USAGE, EXITED, FAILED, EVENT_PLACE = 1, 2, 3, 5, 8
REFUSED, UNREACHABLE = 3, 5
KILL, ASK_USAGE, INTERRUPT, STOP, RESTART, FILES, FORK, PAUSE, RESUME, TERMINAL, NETWORK, IMAGE = range(1, 13)
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
COMMAND = struct.Struct("IIII 4Q 6I")  # struct spawn_command
HEAD = struct.Struct("5I64s64s")       # struct place_head
PLACES_MAX = 16


def texts(**sizes):
    return [(name, ctypes.c_char * size) for name, size in sizes.items()]


def numbers(*names):
    return [(name, ctypes.c_uint32) for name in names]


class Row(ctypes.Structure):
    """struct place_row of src/proto/place.h."""
    _fields_ = [*texts(name=33), ("given", ctypes.c_uint64), *numbers("kind", "port", "reconnect_s", "is_open", "keeps", "is_fresh", "may_gain", "idle_s", "open_s", "lifetime_s"),
                ("limits", ctypes.c_uint32 * 5),
                *texts(keys=256, cwd=256, user=256, host=256, key_file=256, known_hosts=256, ssh_config=256, socket=256, image=256,
                       runtime=256, network=256, volumes=1024, forward_env=1024, forwarded=4096), *numbers("forwarded_len"),
                *texts(command=1024, env_file=256, scratch_dir=256)]


class Table(ctypes.Structure):
    """struct place_table."""
    _fields_ = [("rows", Row * PLACES_MAX), *numbers("count", "shell_len"),
                *texts(shell_hash=65, instance=33)]


def row(name, kind, **fields):
    fields = {"keys": "*", "open_s": 20, "lifetime_s": 60, "idle_s": 60, **fields}
    made = Row(name=name.encode(), kind=kind)
    made.limits[:] = fields.pop("limits", (0, 0, 0, 0, 0))
    for field, value in fields.items():
        setattr(made, field, value.encode() if isinstance(value, str) else value)
    return made


def memfd(data, seals=SEALS):
    fd = os.memfd_create("words", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def send(sock, data, fds=()):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def words(owner=b"alice", session=b"ses_1", limits=(0, 0, 0, 0), asked=0, text=b"/tmp\0"):
    return HEAD.pack(*limits, asked, owner, session) + text


class Ends:
    """The descriptors of a request; the ends that hermes-places gets are closed by sent()."""

    def __init__(self, text=None, **others):
        self.sock, sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel, channel = socket.socketpair()
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.theirs = {"words": memfd(words() if text is None else text), "socket": sock.detach(), "out": out, "err": err,
                       "channel": channel.detach()}
        self.given = {**self.theirs, **others}
        self.into = b""
        for sock in (self.sock, self.channel):
            sock.settimeout(60)

    def fds(self):
        return list(self.given.values())

    def sent(self):
        for fd in {*self.theirs.values(), *self.given.values()}:
            os.close(fd)

    def event(self, kind=None):
        """The next event of a kind as (kind, flags), or None at the end of the socket."""
        while True:
            try:
                data = self.sock.recv(4096)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            found = struct.unpack("II", data[:8])
            self.said = data[72:].rstrip(b"\0")  # of a struct place_event: why
            if kind in (None, found[0]):
                return found

    def command(self, kind, *fds, data=None):
        send(self.sock, COMMAND.pack(kind, *[0] * 13) if data is None else data, fds)

    def frame(self, kind, data=b""):
        self.channel.sendall(b"%s %d\n" % (kind.encode(), len(data)) + data)

    def frames(self, until):
        while True:
            found = HEADER.match(self.into)
            if found and len(self.into) >= found.end() + int(found[2]):
                size = found.end() + int(found[2])
                data, self.into = self.into[found.end():size], self.into[size:]
                if found[1].decode() == until:
                    return data
                continue
            piece = self.channel.recv(65536)
            assert piece, "the channel ended"
            self.into += piece

    def close(self):
        for sock in (self.sock, self.channel):
            sock.close()
        for fd in (self.out, self.err):
            os.close(fd)


# Stands for the monitor: starts hermes-places, and has made a socket of its own.
ABOVE = """import socket, subprocess, sys
pair, out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET), socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(out, [b"x"], [one.fileno() for one in pair])
out.close()
sys.exit(subprocess.call([sys.argv[2]], pass_fds=[3]))"""


class Places:
    """hermes-places with a table, below a process that stands for the monitor."""

    def __init__(self, make_rows, seals=SEALS):
        self.path, self.dir = borrow_dir(), pathlib.Path(tempfile.mkdtemp(prefix="hermes-hostile-"))
        self.dir.chmod(0o777)
        self.program = shutil.copy(BUILD / "hermes-places", self.dir)
        for source in (ROOT / "tests/backends/scripted.py", ROOT / "clients/adapters/hermes_plugin.py"):
            shutil.copy(source, self.dir)
        (self.dir / "mode").write_text("")
        shell = (BUILD / "hermes-shell").read_bytes()
        table = Table(shell_len=len(shell), shell_hash=b"e" * 64, instance=b"f" * 32)
        rows = make_rows(self.dir)
        table.rows[:len(rows)] = rows
        table.count = len(rows)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.calls, self.end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.table = memfd(bytes(table) + shell, seals)
        who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        ours, above = socket.socketpair()
        self.process = subprocess.Popen(["/usr/bin/python3", "-c", ABOVE, str(above.fileno()), self.program], pass_fds=[3, above.fileno()],
                                        env={}, preexec_fn=lambda: os.dup2(theirs.fileno(), 3), **who)
        theirs.close()
        above.close()
        self.monitors = socket.recv_fds(ours, 1, 2)[1]
        ours.close()
        kinds = [one.kind for one in rows]
        self.has_docker, self.has_starter = DOCKER in kinds, any(one.may_gain for one in rows)

    def give_table(self):
        """Afterwards its own processes are there: the starter, and the one that tidies up containers."""
        send(self.control, b"p", [self.table, self.end.fileno()])
        self.main = wait_until(lambda: children(self.process.pid), "it runs")[0]
        wait_until(lambda: len(self.pids()) == 1 + self.has_docker + self.has_starter, "its processes")
        self.helpers = children(self.main)
        self.starter = self.helpers[0] if self.has_starter else None
        return self

    def pids(self):
        return [pid for pid in processes_with(self.program) if pid != self.process.pid]

    def sessions(self):
        """The processes that serve one session each, and those that they have started."""
        return [pid for pid in below(self.main) if pid not in self.helpers]

    def ask(self, number, text=None, **others):
        ends = Ends(text, **others)
        send(self.calls, struct.pack("II", number, 0), ends.fds())
        ends.sent()
        return ends

    def open(self, number=0, **options):
        ends = self.ask(number, words(**options))
        assert ends.event()[0] == STARTED
        ends.frames("ready")
        return ends

    def works(self, ends=None):
        """The control: a right request, in the same process."""
        own = ends or self.open()
        own.frame("exec", b"echo right")
        own.frames("done")
        assert os.read(own.out, 100) == b"right\n"
        if not ends:
            self.leave(own)

    def leave(self, ends):
        ends.close()
        wait_until(lambda: not self.sessions(), "no session is left")

    def close(self):
        self.control.close()
        self.process.wait(60)
        for sock in (self.calls, self.end):
            sock.close()
        for fd in (self.table, *self.monitors):
            os.close(fd)
        try:
            wait_until(lambda: not self.pids() and not processes_with(str(self.dir)), "nothing is left")
        finally:
            for pid in processes_with(str(self.dir)):
                os.kill(pid, 9)
            shutil.rmtree(self.dir, ignore_errors=True)
            return_dir(self.path)
