# SPDX-License-Identifier: Apache-2.0
"""What docs/deploy.md and packaging/ promise, with the real server: the service manager's two
protocols, the unit's rights, a start that cannot work, a user who is not root, `make run`.
There is no systemd on the build machines: its part is played here."""
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from apilib import BUILD, HERMES, ROOT, SLOW, Server, descendants, make_dir, wait_until

from groups import Groups

USER = 64124  # nobody has it, nor a range in /etc/subuid
IN_VM = bool(os.environ.get("HERMES_IN_VM"))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives rights away")


@pytest.fixture
def work():
    path = make_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def serve(*args, env=None, cwd="/var/tmp", **popen):
    """`hermes serve` that is expected to end by itself."""
    work = make_dir()
    try:
        return subprocess.run(
            [str(HERMES), "serve", *map(str, args)], capture_output=True, text=True, cwd=cwd,
            env={"PATH": "/usr/bin:/bin", "HERMES_STATE_DIR": str(work / "state"),
                 "HERMES_RUNTIMES": str(ROOT / "runtimes"), **(env or {})},
            stdin=subprocess.DEVNULL, timeout=60 * SLOW, **popen)
    finally:
        shutil.rmtree(work)


def listener(address="127.0.0.1", path=None):
    s = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    s.bind(str(path) if path else (address, 0))
    s.listen(16)
    return s


# ----- sd_notify -----

class Notify:
    """The service manager's end: datagrams by arrival."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)

    def next(self, seconds=30):
        self.socket.settimeout(seconds * SLOW)
        return self.socket.recv(4096).decode()

    def is_silent(self):
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(4096)
        except BlockingIOError:
            return True


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_service_manager_is_told(make_server, work, kind):
    name = str(work / "notify") if kind == "path" else "\0hermes-test-%d" % os.getpid()
    notify = Notify(name)
    server = make_server(env={"NOTIFY_SOCKET": name.replace("\0", "@")}, wait=False)
    assert notify.next() == "READY=1"
    # Told when it serves, not before: the first request after it is answered.
    assert server("GET", "/health").status == 200
    assert notify.is_silent()
    assert server.stop() == 0
    assert notify.next() == "STOPPING=1"


def test_ready_is_not_said_when_it_cannot_serve(work):
    notify = Notify(str(work / "notify"))
    with listener() as busy:
        port = busy.getsockname()[1]
        got = serve("--port", port, env={"NOTIFY_SOCKET": str(work / "notify")})
    assert got.returncode == 125 and "cannot serve 127.0.0.1:%d" % port in got.stderr
    assert notify.is_silent()


def test_stopping_is_said_before_the_last_request_has_ended(make_server, work):
    notify = Notify(str(work / "notify"))
    server = make_server(env={"NOTIFY_SOCKET": str(work / "notify"), "HERMES_GRACE_S": "300"})
    assert notify.next() == "READY=1"
    answers = []
    late = threading.Thread(target=lambda: answers.append(server.run(
        "python", "import time; time.sleep(3); print('late')")))
    late.start()
    assert wait_until(server.running)
    server.process.send_signal(signal.SIGTERM)
    assert notify.next() == "STOPPING=1"
    assert not answers
    late.join()
    assert answers[0].json()["stdout"] == "late\n"
    assert server.stop() == 0


# ----- sockets of the service manager -----

# LISTEN_PID is the process itself, which only it knows.
ACTIVATE = ["/bin/sh", "-c", 'LISTEN_PID=${WRONG_PID:-$$} exec "$@"', "sh", HERMES, "serve"]


def passed(*sockets):
    """Arguments of Server that make the sockets descriptors 3 and following."""
    high = [os.dup(s.fileno()) for s in sockets]
    for i, fd in enumerate(high):  # out of the way of the numbers they will get
        high[i] = os.dup2(fd, 200 + i)
        os.close(fd)

    def place():
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
    return {"before": place, "pass_fds": tuple(range(3, 3 + len(high)))}, high


@pytest.fixture
def activated(make_server):
    """Starts a server with sockets in the manager's way."""
    kept = []

    def start(*sockets, env=None, **more):
        popen, high = passed(*sockets)
        kept.extend(high)
        return make_server(command=ACTIVATE, env={"LISTEN_FDS": str(len(sockets)), **(env or {})},
                           tcp=False, **popen, **more)
    yield start
    for fd in kept:
        os.close(fd)


def get(s, path="/health", key=None, seconds=30):
    """One request to a listening socket's address; None when nobody answers."""
    with socket.socket(s.family) as client:
        client.settimeout(seconds * SLOW)
        client.connect(s.getsockname())
        auth = "Authorization: Bearer %s\r\n" % key if key else ""
        client.sendall(("GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n"
                        % (path, auth)).encode())
        try:
            return int(client.recv(65536).split()[1])
        except socket.timeout:
            return None


def test_passed_sockets_are_served_and_outlive_the_server(activated, work):
    tcp, unix = listener(), listener(path=work / "passed")
    server = activated(tcp, unix)
    assert get(tcp) == 200 and get(unix) == 200
    # What is passed takes the place of what is configured.
    assert not server.unix.exists()
    told = {(e["address"], e.get("port")) for e in server.events("listening")}
    assert told == {("127.0.0.1", str(tcp.getsockname()[1])), (str(work / "passed"), None)}
    assert server.stop() == 0
    # The sockets are the manager's: who connects meanwhile waits for the next server.
    with socket.create_connection(tcp.getsockname()) as early:
        early.settimeout(60 * SLOW)
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        server.start()
        assert early.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert (work / "passed").exists() and get(unix) == 200
    # No child has them by accident: the spawner, which boxes are born from, least of all.
    links = []
    for fd in os.listdir("/proc/%d/fd" % server.child("hermes-spawn")):
        try:
            links.append(os.readlink("/proc/%d/fd/%s" % (server.child("hermes-spawn"), fd)))
        except FileNotFoundError:  # it makes boxes ahead, and closes what it is done with
            pass
    assert links
    assert "socket:[%d]" % os.fstat(tcp.fileno()).st_ino not in links


def test_sockets_for_another_process_are_left_alone(activated):
    with listener() as other:
        server = activated(other, env={"WRONG_PID": str(os.getpid())})
        assert server("GET", "/health").status == 200  # its own unix socket
        assert get(other, seconds=0.5) is None


@pytest.mark.parametrize("address, key, status", [
    ("0.0.0.0", None, 2), ("0.0.0.0", "secret", None), ("127.0.0.1", None, None)])
def test_a_passed_address_that_strangers_reach_needs_a_key(activated, address, key, status):
    with listener(address) as s:
        server = activated(s, env={"API_TOKEN": key} if key else {}, wait=status is None)
        if status is None:
            wanted = [401, 200] if key else [200, 200]
            assert [get(s, "/v1/runtimes"), get(s, "/v1/runtimes", key)] == wanted
        else:
            assert server.process.wait(60 * SLOW) == status
            assert "not loopback" in server.logs() and "API_TOKEN" in server.logs()


@pytest.mark.parametrize("make", [
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM), lambda: socket.socket(),
    lambda: open("/dev/null")], ids=["datagrams", "does not listen", "no socket"])
def test_a_passed_descriptor_that_cannot_be_served(activated, make):
    with make() as s:
        server = activated(s, wait=False)
        assert server.process.wait(60 * SLOW) == 2
        assert "descriptor 3 is not a listening stream socket" in server.logs()


def test_more_passed_sockets_than_can_be_served(activated):
    with listener() as s:
        server = activated(s, wait=False, env={"LISTEN_FDS": "4000000000"})
        assert server.process.wait(60 * SLOW) == 2 and "LISTEN_FDS" in server.logs()


# ----- the units -----

def unit_text(tmp_path):
    text = (BUILD / "hermes.service").read_text()
    command = re.search(r"^ExecStart=(\S+/bin/hermes) serve$", text, re.M)
    assert command, text
    return text.replace(command[1], str(HERMES))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    (tmp_path / "hermes.service").write_text(unit_text(tmp_path))
    shutil.copy(ROOT / "packaging/hermes.socket", tmp_path)
    units = [str(tmp_path / name) for name in ("hermes.service", "hermes.socket")]
    check = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True,
                           text=True, timeout=60 * SLOW)
    mine = [line for line in (check.stdout + check.stderr).splitlines() if "hermes" in line]
    assert not mine and check.returncode == 0, check.stderr
    # And it would have said something.
    (tmp_path / "hermes.service").write_text(unit_text(tmp_path) + "Hat=red\n")
    check = subprocess.run(["systemd-analyze", "verify", "--man=no", units[0]],
                           capture_output=True, text=True, timeout=60 * SLOW)
    assert "Hat" in check.stderr


@needs_root
@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv")
def test_the_rights_of_the_unit_are_enough(make_server, tmp_path):
    line = re.search(r"^CapabilityBoundingSet=(.*)$", unit_text(tmp_path), re.M)[1]
    keep = "-all," + ",".join("+" + name[4:].lower() for name in line.split())
    server = make_server(command=["setpriv", "--bounding-set", keep, HERMES, "serve"])
    bounding = int(re.search(r"^CapBnd:\s*(\w+)", open(
        "/proc/%d/status" % server.process.pid).read(), re.M)[1], 16)
    assert bin(bounding).count("1") == len(line.split())
    run = server.run("c", "#include <stdio.h>\nint main(void) { puts(\"c\"); }").json()
    assert run["stdout"] == "c\n" and run["isolation"]["level"] in ("full", "strong"), run
    run = server.run("python", "open('a', 'w').write('b')", collect=["a"]).json()
    assert run["files"][0]["content"] == "Yg==", run


# ----- restarts -----

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_terminal_signals_everybody(make_server, number):
    """Ctrl-C and a terminal that is closed reach the server too: requests still get their grace."""
    server = make_server(before=os.setsid, env={"HERMES_GRACE_S": "300"})
    answers = []
    late = threading.Thread(target=lambda: answers.append(server.run(
        "python", "import time; time.sleep(2); print('late')")))
    late.start()
    assert wait_until(server.running)
    os.killpg(server.process.pid, number)
    late.join()
    assert answers and answers[0].json()["stdout"] == "late\n"
    assert server.process.wait(60 * SLOW) == 0 and not server.unix.exists()


def test_what_a_restart_does_to_asynchronous_runs(make_server):
    server = make_server(env={"HERMES_GRACE_S": "10"})
    code = "import time; time.sleep(%d); print('done')"
    short, long = (server.run("python", code % seconds, limits={"wall_ms": 600000},
                              **{"async": True}).json()["id"] for seconds in (2, 600))
    assert wait_until(lambda: server.running() == 2)
    server.stop()
    server.start()
    assert server("GET", "/v1/runs/" + short).json()["stdout"] == "done\n"
    assert server("GET", "/v1/runs/" + long).json()["status"] == "cancelled"
    assert sorted(p.name for p in (server.state / "server").iterdir() if "-" not in p.name) == [
        "approvals.db", "cache", "cache.key", "history.db", "images"]  # as docs/deploy.md lists it


# ----- the page, the container's filter -----

def test_the_quick_start_of_the_page_works(server):
    page = (ROOT / "docs/deploy.md").read_text()
    lines = re.findall(r"^curl .*http://127.0.0.1:8000.*$", page, re.M)
    assert lines
    for line in lines:
        out = subprocess.run(["bash", "-euc", line.replace(":8000", ":%d" % server.port)],
                             capture_output=True, text=True, timeout=60 * SLOW, check=True).stdout
        assert json.loads(out)["stdout"] == "42\n"
    for path in re.findall(r"\]\(([^)]+)\)", page):
        assert (ROOT / "docs" / path.split("#")[0]).resolve().exists(), path


def test_the_filter_of_the_container_allows_what_boxes_may_call():
    """The profile allows every call that a box may make. Of the calls that boxes are refused it allows only those that
    make boxes. (tools/deploy/docker.sh shows that Hermes works with it.)"""
    page = (ROOT / "docs/seccomp.md").read_text()
    answers = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| (.*?) \|$", page, re.M))
    assert len(answers) > 300
    boxes = {name for name, answer in answers.items() if answer == "allowed" or "rule" in answer}
    profile = json.loads((ROOT / "packaging/seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    rows = profile["syscalls"]
    assert all(row["action"] == "SCMP_ACT_ALLOW" for row in rows)
    assert set(rows[0]["names"]) == boxes
    more = set(sum((row["names"] for row in rows[1:]), []))
    assert not more & boxes
    for name in ("bpf", "ptrace", "perf_event_open", "init_module", "kexec_load", "io_uring_setup",
                 "open_by_handle_at", "add_key", "request_key", "userfaultfd", "reboot", "chroot"):
        assert name not in more | boxes, name
    assert [row.get("args") for row in rows if row["names"] == ["keyctl"]] == [
        [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]]  # KEYCTL_JOIN_SESSION_KEYRING


# ----- a start that cannot work -----

def only_line(got):
    lines = [line for line in got.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1 and lines[0].startswith("hermes serve: "), got.stderr
    return lines[0]


def test_a_busy_port():
    with listener() as busy:
        port = busy.getsockname()[1]
        got = serve("--port", port)
    assert got.returncode == 125
    assert only_line(got) == "hermes serve: cannot serve 127.0.0.1:%d: Address already in use" % port


def test_a_unix_socket_that_somebody_serves(make_server):
    server = make_server()
    got = serve("--unix", server.unix)
    assert got.returncode == 125 and "Address already in use" in only_line(got)
    assert server("GET", "/health").status == 200  # and it is still there
    other = server.work / "file"
    other.write_text("mine")
    assert serve("--unix", other).returncode == 125 and other.read_text() == "mine"


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_the_address_of_a_server_that_ends_only_now(make_server, tmp_path, family):
    """After kill -9 of a monitor, its server may end later than the next one starts."""
    path = tmp_path / "held.sock"
    with socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET) as held:
        held.bind(str(path) if family == "unix" else ("127.0.0.1", 0))
        held.listen()
        address = ["--unix", path] if family == "unix" else ["--listen", "127.0.0.1:%d" % held.getsockname()[1]]
        server = make_server(tcp=False, args=map(str, address), wait=False)
        if family == "unix":
            for _ in range(3):  # it looks again and again
                held.accept()[0].close()
        else:
            assert wait_until(lambda: naps(server.process.pid))
        assert server.process.poll() is None and not server.is_ready()
    assert wait_until(lambda: server.is_ready() or server.process.poll() is not None, 30)
    assert server.is_ready(), server.logs()


def naps(pid):
    with open("/proc/%d/syscall" % pid) as file:
        return file.read().split()[0] in ("35", "230")  # nanosleep, clock_nanosleep


def test_a_setting_of_dotenv_is_read_and_checked(make_server, work):
    (work / ".env").write_text("PORT=x\n")
    got = serve(cwd=work)
    assert got.returncode == 2 and only_line(got) == "hermes serve: .env: PORT: `x` is not a number"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (work / ".env").write_text("# comment\nexport PORT='%d'\nAPI_TOKEN=from-dotenv\n" % port)
    server = Server(work, tcp=False, env={})
    server.stop()
    server.args = []  # no flag stands above .env
    server.start()
    try:
        assert server.port == port
        assert server("GET", "/v1/runtimes", tcp=True).status == 401
        assert server("GET", "/v1/runtimes", tcp=True, key="from-dotenv").status == 200
    finally:
        assert server.stop() == 0


def test_strangers_without_a_key():
    got = serve("--listen", "0.0.0.0:0")
    assert got.returncode == 2 and "not loopback" in only_line(got)


def test_a_state_directory_of_somebody_else(work):
    (work / "open").mkdir()
    (work / "open").chmod(0o777)
    got = serve("--port", "0", "--state-dir", work / "open")
    assert got.returncode == 125 and "chmod 700" in only_line(got)
    assert not list((work / "open").iterdir())


# ----- not root -----

@needs_root
@pytest.mark.skipif(IN_VM, reason="the guest's control groups are laid out by its own script")
@pytest.mark.parametrize("delegated", [True, False])
def test_rootless(work, delegated):
    """In a delegated control group it serves; without one it says what to do."""
    groups = Groups(USER) if delegated else None
    os.chown(work, USER, USER)

    def become():
        if groups:
            groups.enter()
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    try:
        server = Server(work, before=become, command=[HERMES, "serve"], wait=delegated)
        if not delegated:
            assert server.process.wait(60 * SLOW) == 125
            for word in ("memory_limit", "cpu_limit", "Delegate=yes"):
                assert word in server.logs(), server.logs()
            assert not server.unix.exists()
            return
        try:
            assert os.stat(server.unix).st_uid == USER
            run = server.run("python", "print(1)").json()
            assert run["stdout"] == "1\n" and run["isolation"]["level"] == "strong", run
            run = server.run("python", "x = bytearray(200 << 20)",
                             limits={"memory_mb": 64}).json()
            assert run["status"] == "memory_limit", run
            assert server("GET", "/v1/runs/" + run["id"]).json() == run
        finally:
            assert server.stop() == 0
    finally:
        left = groups.remove() if groups else []
    assert not left


# ----- a limit of the service's own control group -----

@needs_root
@pytest.mark.skipif(IN_VM, reason="the guest's control groups are laid out by its own script")
def test_memory_is_promised_within_the_limit_of_the_service(make_server):
    groups = Groups()
    inner = []
    try:
        for directory in groups.dirs:  # as MemoryMax= of a unit, with the server one level below
            for name in ("memory.limit_in_bytes", "memory.max"):
                if (directory / name).exists():
                    (directory / name).write_text(str(1 << 30))
            inner.append(directory / "inner")
            inner[-1].mkdir()

        def enter():
            for directory in inner:
                (directory / "cgroup.procs").write_text(str(os.getpid()))
        server = make_server(before=enter)
        reply = server.run("python", "print(1)", limits={"memory_mb": 900})
        assert reply.status == 400 and "819" in reply.json()["error"]["message"], reply
        assert server.run("python", "print(1)", limits={"memory_mb": 700}).status == 200
        assert server.stop() == 0
    finally:
        groups.remove()


# ----- make run -----

class Terminal:
    """A command with a terminal of its own; what it shows is collected."""

    def __init__(self, command, cwd, env):
        self.shown = bytearray()
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], command, env)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        try:
            while True:
                self.shown.extend(os.read(self.fd, 65536))
        except OSError:
            pass

    def has_ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def press(self, key):
        os.write(self.fd, key)

    def close(self):
        """Ends whatever is still there."""
        for pid in [] if self.has_ended() else descendants(self.pid) + [self.pid]:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(self.has_ended)
        self.reader.join(10)
        os.close(self.fd)


@needs_root
@pytest.mark.slow
@pytest.mark.skipif(IN_VM or not (ROOT / ".git").exists(), reason="needs the repository")
def test_make_run_from_a_fresh_tree(work):
    """What is under version control, in an empty directory: builds, serves what .env says, ends
    with Ctrl-C."""
    tree = work / "hermes"
    tree.mkdir()
    subprocess.run("git ls-files -z | xargs -0 cp -P --parents -t '%s'" % tree, shell=True,
                   check=True, cwd=ROOT, timeout=60 * SLOW)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (tree / ".env").write_text("PORT=%d\n" % port)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "HERMES_"))}
    terminal = Terminal(["make", "run"], tree, dict(env, HERMES_STATE_DIR=str(work / "state")))
    try:
        assert wait_until(lambda: b" is ready" in terminal.shown or terminal.has_ended(), 300)
        assert not terminal.has_ended(), terminal.shown
        request = ["curl", "-s", "http://127.0.0.1:%d/v1/runs" % port, "--json",
                   json.dumps({"language": "python", "code": "print(6*7)"})]
        out = subprocess.run(request, capture_output=True, text=True, timeout=60 * SLOW).stdout
        assert json.loads(out)["stdout"] == "42\n"
        processes = descendants(terminal.pid)
        terminal.press(b"\x03")
        assert wait_until(terminal.has_ended)
        assert terminal.status in (0, -signal.SIGINT), terminal.shown
        assert b"stopping" in terminal.shown and b"***" not in terminal.shown
        assert wait_until(lambda: not any(os.path.exists("/proc/%d" % p) for p in processes))
    finally:
        terminal.close()
