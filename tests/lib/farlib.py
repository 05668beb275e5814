# SPDX-License-Identifier: Apache-2.0
"""A client of the far shell (docs/internals/far-shell.md), and a real sshd on loopback for it."""
import json
import os
import pathlib
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build"))
SHELL = str(BUILD / "hermes-shell")
TOOLS = ROOT / "build-tools/usr"
SSHD = next((path for path in ("/usr/sbin/sshd", str(TOOLS / "sbin/sshd")) if os.access(path, os.X_OK)), None)
HEADER = re.compile(rb"([a-z_]{1,16}) (0|[1-9][0-9]{0,7})\n")
PATIENCE = 60


def wait_until(check, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "never: " + what
        time.sleep(0.02)
    return found


def processes_with(word):
    """Pids of processes whose command line has the word."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                if word.encode() in pathlib.Path("/proc", pid, "cmdline").read_bytes():
                    found.append(int(pid))
            except OSError:
                pass
    return found


def children(pid):
    """None of a process that has ended."""
    try:
        return [int(one) for task in pathlib.Path("/proc/%d/task" % pid).iterdir() for one in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def below(pid):
    """Pids of all processes that a process has started, and theirs."""
    return [one for child in children(pid) for one in [child, *below(child)]]


class Gone(Exception):
    """The stream has ended."""


class Answer:
    def __init__(self, out, err, done):
        self.out, self.err, self.done = out, err, done
        self.code = done["exit_code"]


class Far:
    """Both ends count their bytes; connect() joins a far shell again where it was left."""

    def __init__(self, nonce="nonce-1"):
        self.nonce, self.received, self.sent = nonce, 0, 0
        self.unconfirmed, self.base = b"", 0
        self.into, self.kept, self.process, self.told = b"", [], None, 0
        self.acks = True

    def connect(self, argv, **options):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **options)
        head = b""
        mark = b"\x01" + self.nonce.encode() + b"\x02"
        while not (mark in head and head.split(mark, 1)[1].endswith(b"\n")):
            piece = os.read(self.process.stdout.fileno(), 1)
            if not piece:
                raise Gone(head.decode("utf-8", "replace"))
            head += piece
        line = head.split(mark, 1)[1].strip()
        if line == b"gone":
            raise Gone("gone")
        os.write(self.process.stdin.fileno(), b"%d\n" % self.received)
        self.confirmed(int(line))
        self.write(self.unconfirmed)
        return self

    def confirmed(self, count):
        self.unconfirmed = self.unconfirmed[count - self.base:]
        self.base = count

    def write(self, data):
        fd, at = self.process.stdin.fileno(), 0
        while at < len(data):
            at += os.write(fd, data[at:at + 65536])

    def send(self, kind, data=b""):
        frame = b"%s %d\n" % (kind.encode(), len(data)) + data
        self.unconfirmed += frame
        self.write(frame)

    def start(self, cwd="", **env):
        words = [cwd] + ["%s=%s" % pair for pair in env.items()]
        self.send("start", b"".join(word.encode() + b"\0" for word in words))
        kind, data = self.next()
        assert kind == "ready", (kind, data)
        return json.loads(data)

    def next(self, seconds=PATIENCE):
        """The next frame: one that was kept, or one of the stream."""
        return self.kept.pop(0) if self.kept else self.read(seconds)

    def read(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while True:
            found = HEADER.match(self.into)
            if found and len(self.into) >= found.end() + int(found[2]):
                size = found.end() + int(found[2])
                data, self.into = self.into[found.end():size], self.into[size:]
                if found[1] == b"ack":
                    self.confirmed(int(data))
                    continue
                return found[1].decode(), data
            assert not found and len(self.into) > 64 or time.monotonic() < end, "no frame in time: %r" % self.into[:80]
            ready, _, _ = select.select([self.process.stdout], [], [], 0.5)
            if not ready:
                continue
            piece = os.read(self.process.stdout.fileno(), 1 << 18)
            if not piece:
                raise Gone()
            self.into += piece
            self.received += len(piece)
            if self.acks and self.received - self.told > 65536:
                self.told = self.received
                self.send("ack", b"%d" % self.received)

    def exec(self, code, stdin=None):
        if stdin is not None:
            self.send("stdin", stdin)
        self.send("exec", code.encode())
        return self.result()

    def result(self, out=b"", err=b""):
        out, err = [out], [err]
        while True:
            kind, data = self.next()
            if kind == "out":
                out.append(data)
            elif kind == "err":
                err.append(data)
            elif kind == "done":
                return Answer(b"".join(out), b"".join(err), json.loads(data))
            else:
                raise Gone("%s %r" % (kind, data))

    def cut(self):
        """Ends the connection without a word."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()

    def close(self):
        if self.process and self.process.poll() is None:
            try:
                self.send("end")
            except OSError:
                pass
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                pass
        self.cut()


# Files: struct files_request and files_record of src/proto/files.h.
REQUEST, RECORD = struct.Struct("<IIIIQQqII"), struct.Struct("<IIiIQq")
GET, PUT, DELETE, LIST = 1, 2, 3, 4


class Files:
    def __init__(self, far, number):
        self.far, self.number, self.data = far, number, b""
        far.send("file_open", b"%d" % number)

    def ask(self, op, name, flags=0, size=0, max_entries=1000):
        self.say(REQUEST.pack(op, flags, len(name), max_entries, size, 0, 0, 0, 0) + name.encode())

    def say(self, data):
        self.far.send("file", b"%d " % self.number + data)

    def take(self, size):
        while len(self.data) < size:
            kind, data = self.far.read()
            if kind == "file_close":
                raise Gone("file_close")
            if kind == "file":
                number, _, rest = data.partition(b" ")
                assert int(number) == self.number
                self.data += rest
            else:
                self.far.kept.append((kind, data))  # of a command that runs meanwhile
        found, self.data = self.data[:size], self.data[size:]
        return found

    def record(self):
        kind, name_len, error, mode, size, _ = RECORD.unpack(self.take(RECORD.size))
        name = self.take(name_len).decode()
        return kind, name, error, mode, size, self.take(size) if kind == 2 else b""

    def put(self, name, data, flags=0):
        self.ask(PUT, name, flags, len(data))
        first = self.record()
        if first[0] == 3:
            return first[2]
        for at in range(0, len(data), 60000):
            piece = data[at:at + 60000]
            self.say(struct.pack("<I", len(piece)) + piece)
        self.say(struct.pack("<I", 0))
        return self.record()[2]

    def get(self, name):
        self.ask(GET, name)
        first = self.record()
        if first[0] == 3:
            return first[2]
        found = b""
        while (record := self.record())[0] == 2:
            found += record[5]
        return found

    def list(self, name, flags=0):
        self.ask(LIST, name, flags)
        found = []
        while (record := self.record())[0] == 1:
            found.append(record[1])
        return sorted(found) if record[2] == 0 else record[2]


def sshd_problem():
    """Why no sshd can be started here, or None."""
    return None if SSHD else "sshd is not installed: make install-deps"


class Sshd:
    """A real sshd that lets its own user in by one key. `enter`: the words that start programs in its network namespace.
    `bare_home`: the home directory of its logins is empty, so no start-up file of the account is read."""

    def __init__(self, address="127.0.0.1", enter=(), bare_home=False):
        self.address, self.enter, self.options = address, list(enter), []
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hermes-sshd-"))
        for name in ("host", "user", "wrong", "hostile"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.dir / name)], check=True)
        forced = 'command="%s/far-end" %s' % (self.dir, (self.dir / "hostile.pub").read_text())
        (self.dir / "authorized").write_text((self.dir / "user.pub").read_text() + forced)
        self.enter += self.with_sshd_user()
        if bare_home:
            (self.dir / "home").mkdir()
            self.options += ["-o", "SetEnv=HOME=%s" % (self.dir / "home")]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = None
        self.start()
        host = (self.dir / "host.pub").read_text().split()
        self.known = self.dir / "known_hosts"
        self.known.write_text("[%s]:%d %s %s\n" % (self.address, self.port, host[0], host[1]))
        self.user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()

    def with_sshd_user(self):
        """Started by root, sshd needs a user that only its package makes: words that show it to sshd in /etc/passwd."""
        if os.geteuid() != 0:
            return []
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        passwd = self.dir / "passwd"
        users = subprocess.run([*self.enter, "cat", "/etc/passwd"], capture_output=True, text=True, check=True).stdout
        passwd.write_text(users + "sshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n")
        return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(passwd)]

    def start(self):
        self.process = subprocess.Popen(
            [*self.enter, SSHD, "-D", "-f", "/dev/null", "-p", str(self.port), "-o", "ListenAddress=" + self.address,
             "-h", str(self.dir / "host"), "-o", "AuthorizedKeysFile=" + str(self.dir / "authorized"),
             "-o", "PidFile=" + str(self.dir / "pid"), "-o", "StrictModes=no", "-o", "UsePAM=no",
             "-o", "PermitRootLogin=prohibit-password", *self.options, "-E", str(self.dir / "log")],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, TOOLS.glob("lib/*-linux-gnu")))})

        def is_up():
            probe = "exec 3<>/dev/tcp/%s/%d" % (self.address, self.port)
            return subprocess.run([*self.enter, "bash", "-c", probe], stderr=subprocess.DEVNULL).returncode == 0
        wait_until(is_up, "sshd listens")

    def children(self):
        """Pids of the processes that serve connections, and theirs."""
        found, parents = [], {self.process.pid}
        while True:
            new = []
            for pid in os.listdir("/proc"):
                if pid.isdigit() and int(pid) not in found:
                    try:
                        stat = pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
                        name = pathlib.Path("/proc", pid, "comm").read_text().strip()
                    except OSError:
                        continue
                    if int(stat[1]) in parents and name.startswith("sshd"):
                        new.append(int(pid))
            if not new:
                return found
            found += new
            parents |= set(new)

    def cut(self):
        """Kills what serves the connections; the listener stays."""
        for pid in self.children():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass

    def stop(self):
        """Nothing serves and nothing listens, until start()."""
        serving = self.children()
        self.process.kill()
        self.process.wait()
        for pid in serving:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass

    def ssh(self, *command, key="user"):
        return ["ssh", "-F", "none", "-p", str(self.port), "-i", str(self.dir / key), "-o", "IdentitiesOnly=yes",
                "-o", "IdentityAgent=none", "-o", "UserKnownHostsFile=" + str(self.known), "-o", "BatchMode=yes",
                "-o", "StrictHostKeyChecking=yes", "-T", self.user + "@" + self.address, *command]

    def close(self):
        self.cut()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
