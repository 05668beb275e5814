# SPDX-License-Identifier: Apache-2.0
"""What the tests of the HTTP service share: a server of their own, clients, and an oracle that
finds what a test left. Only the standard library is needed: the tests also run in the guest."""
import atexit
import contextlib
import glob
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import contract

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build")).resolve()
MONITOR = BUILD / "hermes-prepare"  # which becomes hermes-monitor
HERMES = BUILD / "hermes"
# A slow machine (the guest is emulated) gets more time; upper bounds are multiplied by this.
SLOW = 8 if os.environ.get("HERMES_IN_VM") else 3

made_dirs = []


def make_dir():
    """The caller removes it. The leftovers of a failed or interrupted test are removed at the end."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="api-tests-", dir="/var/tmp"))
    path.chmod(0o755)
    made_dirs.append(path)
    return path


@atexit.register
def remove_dirs(owner=os.getpid()):
    for path in made_dirs if os.getpid() == owner else ():
        shutil.rmtree(path, ignore_errors=True)


# What a server spends most of its first start on: root trees, and the versions of languages. The
# path of the state directory is part of a tree's key, so the directory itself serves again.
KEPT = ("roots", "versions.json")
idle_dirs = []


def borrow_dir():
    """A directory for a server: a new one, or one whose state has nothing but what is above."""
    return idle_dirs.pop() if idle_dirs else make_dir()


def return_dir(path):
    """Its server has ended."""
    state = path / "state"
    if os.path.ismount(state) or not state.exists() or state.stat().st_uid != os.geteuid():
        shutil.rmtree(path, ignore_errors=True)
        return
    for entry in [*path.iterdir(), *state.iterdir()]:
        if entry == state or entry.parent == state and entry.name in KEPT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    idle_dirs.append(path)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return "HTTP %d %r" % (self.status, self.body[:2000])


def children(pid):
    found = []
    for path in glob.glob("/proc/%d/task/*/children" % pid):  # any thread can have started them
        with contextlib.suppress(OSError), open(path) as file:
            found += [int(child) for child in file.read().split()]
    return sorted(found)


def name_of(pid):
    try:
        return open("/proc/%d/comm" % pid).read().strip()
    except OSError:
        return ""


def status_of(pid):
    """The kernel's words on a process, or none if it has just ended."""
    try:
        return pathlib.Path("/proc/%d/status" % pid).read_text()
    except OSError:
        return ""


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child] + descendants(child)
    return found


def is_box(pid):
    """Boxes have a pid namespace of their own, the spawner's helpers have not."""
    spaces = re.search(r"^NSpid:(.*)$", status_of(pid), re.M)
    return bool(spaces) and len(spaces[1].split()) > 1


def is_zygote(pid):
    """Not its boxes, which have a pid namespace of their own."""
    try:
        return b"zygote.py" in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes() and not is_box(pid)
    except OSError:
        return False


def boxes_below(pid):
    return [child for child in descendants(pid) if is_box(child)]


def wait_until(check, seconds=10.0):
    deadline = time.monotonic() + seconds * SLOW
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return bool(check())


def wait_until_still(pid, seconds=30.0):
    """Until nothing below `pid` has run for a while: what was to be made ahead is made."""
    def ran():
        found = {}
        for child in descendants(pid):
            try:
                ns = pathlib.Path("/proc/%d/schedstat" % child).read_text().split()[0]
                found[child] = ns, pathlib.Path("/proc/%d/stat" % child).read_text().rsplit(")")[1].split()[0]
            except OSError:
                found[child] = None
        return found

    def is_still():
        before = ran()
        time.sleep(0.5)
        return before == ran() and all(state and state[1] == "S" for state in before.values())
    return wait_until(is_still, seconds)


class Server:
    """A running `hermes serve` with a state directory of its own."""

    def __init__(self, work, env=None, args=(), tcp=True, wait=True, before=None,
                 command=(MONITOR,), pass_fds=()):
        self.before = before  # called between fork and exec
        self.command = [str(word) for word in command]
        self.pass_fds = pass_fds
        self.work = pathlib.Path(work)
        self.unix = self.work / "api.sock"
        self.state = self.work / "state"
        self.log_path = self.work / "log"
        self.env = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/root"),
                    "HERMES_STATE_DIR": str(self.state),
                    "HERMES_RUNTIMES": str(ROOT / "runtimes"),
                    "HERMES_PARKED": "0",  # boxes that wait look like boxes that are left
                    "HERMES_SEEDS": "false",  # boxes that no test asked for would disturb
                    "LC_ALL": "C.UTF-8"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.env.update(env or {})
        self.args = ["--unix", str(self.unix)] + (["--listen", "127.0.0.1:0"] if tcp else [])
        self.args += list(args)
        self.process = None
        self.start(wait)

    def start(self, wait=True):
        self.known_port = None
        self.log = open(self.log_path, "ab")
        self.log_from = self.log_path.stat().st_size
        self.process = subprocess.Popen(self.command + self.args, env=self.env, cwd=self.work,
                                        stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, preexec_fn=self.before,
                                        pass_fds=self.pass_fds)
        try:
            if wait:
                assert wait_until(lambda: self.is_ready() or self.process.poll() is not None, 30)
                assert self.process.poll() is None, self.logs()
        except BaseException:  # the caller gets no object that it could stop
            self.stop()
            raise

    def logs(self):
        with open(self.log_path, "rb") as f:
            f.seek(self.log_from)
            return f.read().decode(errors="replace")

    def events(self, msg):
        found = []
        for line in self.logs().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("msg") == msg:
                found.append(event)
        return found

    def is_ready(self):
        return bool(self.events("ready"))

    @property
    def port(self):
        if not self.known_port:  # the log grows with every request
            self.known_port = int([e["port"] for e in self.events("listening") if "port" in e][0])
        return self.known_port

    def child(self, name):
        for pid in children(self.process.pid):
            if name_of(pid).startswith(name[:15]):
                return pid
        return None

    def connect(self, tcp=False, timeout=60):
        if tcp:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        return UnixConnection(self.unix, timeout * SLOW)

    def __call__(self, method, path, body=None, headers=None, key=None, tcp=False, conn=None):
        connection = conn or self.connect(tcp)
        headers = dict(headers or {})
        if key:
            headers["Authorization"] = "Bearer " + key
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.headers, answer.read())
        if not conn:
            connection.close()
        if method != "HEAD":
            contract.check(method, path, reply.status, reply.headers["Content-Type"], reply.body)
        return reply

    def running(self):
        """Boxes at this moment, by the server's own count."""
        return int(re.search(rb"^hermes_boxes_running (\d+)$", self("GET", "/metrics").body, re.M)[1])

    def run(self, language, code, key=None, **fields):
        return self("POST", "/v1/runs", dict(language=language, code=code, **fields), key=key)

    def metric(self, name):
        for line in self("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def programs(self):
        return {name: self.child(name) for name in ("hermes-server", "hermes-spawn")}

    def works(self):
        reply = self.run("bash", "echo fine")
        return reply.status == 200 and reply.json()["stdout"] == "fine\n"

    def raw(self, data, seconds=5.0, tcp=True, shut=False, until=None):
        """Sends bytes, returns all that comes back until the end, these bytes, or the time is over."""
        if tcp:
            s = socket.create_connection(("127.0.0.1", self.port), timeout=seconds * SLOW)
        else:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(seconds * SLOW)
            s.connect(str(self.unix))
        got = b""
        try:
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
            while until is None or until not in got:
                piece = s.recv(65536)
                if not piece:
                    break
                got += piece
        except (socket.timeout, ConnectionError):
            pass
        finally:
            s.close()
        return got

    def stop(self, sig=signal.SIGTERM, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            for pid in descendants(self.process.pid) + [self.process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            self.process.wait()
            raise AssertionError("the server did not stop: " + self.logs()[-2000:])
        finally:
            self.log.close()


def sse(text):
    """Events of a text/event-stream as (id, name, data)."""
    found = []
    for block in re.split(r"\n\n", text):
        fields = dict(re.findall(r"^(id|event|data): (.*)$", block, re.M))
        if "event" in fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
            contract.check_event(*found[-1])
    return found


def open_descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def descriptors_beside_groups(pid):
    """Open descriptors without those of control groups, files and eventfds: a spawner keeps as many groups for later
    boxes as it once needed at the same time."""
    links = []
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            links.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            pass  # closed meanwhile
    return sum(not re.search(r"/hermes-[0-9a-f]{32}|\[eventfd\]", link) for link in links)
