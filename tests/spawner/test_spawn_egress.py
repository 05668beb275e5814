# SPDX-License-Identifier: Apache-2.0
"""Boxes with a network, seen from the spawner: who gets a kit, how long it lives, and what happens when a
part of it fails. HERMES_FULL=1 (`make test-network`) makes a thousand boxes where a few will do. The
test stands in for hermes-egress (kit_driver.Kit), so nothing leaves the machine."""
import errno
import json
import os
import pathlib
import shutil
import select
import signal
import socket
import stat
import struct

import pytest

import test_messages  # puts its directory on the path
from kit_driver import PARTS, Kit
from test_messages import (BUILD, ENDED, ENTRY_BIND, ENTRY_DEVICE, ENTRY_EXEC, ENTRY_TREE, EVENT, EVENT_FAILED, GOOD, KILL,
                           STARTED, Live, Spawner, box, children, entry, job, root, setup_message, soon, tree)  # noqa: F401

SPAWN_EGRESS = 10
BOX_NETWORK = 32
BARRIER_NETNS = 4
COMMAND_NETWORK, EVENT_NETWORK = 11, 9
STEP_REQUEST = 0
ADOPT, DROP = 2, 3
MESSAGE = struct.Struct("=IIQII")
CAPS = "-net_admin,-net_raw,-net_bind_service"
DEPLOYMENTS = {
    "root": [],
    "root without network capabilities": ["setpriv", "--inh-caps=" + CAPS, "--bounding-set=" + CAPS],
    "user": ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"],
}
FULL = os.environ.get("HERMES_FULL") == "1"
DIAL = """
import socket, sys
s = socket.create_connection(("203.0.113.10", 80), 20)
s.sendall(b"hello")
print(s.recv(10).decode(), s.getsockname()[0])
"""
LOOK = """
import json, socket
trie = open("/proc/self/net/fib_trie").read()
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("203.0.113.10", 9)); sent = "sent"
except OSError as e:
    import errno; sent = errno.errorcode[e.errno]
print(json.dumps({"route": "0.0.0.0/0" in trie, "address": "192.0.0.2" in trie, "sent": sent}))
"""
# For the shell of a session.
ASK = b"(exec 9<>/dev/tcp/203.0.113.10/80 && printf hello >&9 && read -rn 6 x <&9; echo got $x >&3) 2>/dev/null\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")


def step(name):
    """The number of a step in the wire protocol."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "src/proto/spawn.h").read_text()
    names = [line.split("(")[1].split(",")[0] for line in text.splitlines() if line.lstrip().startswith("X(STEP_")]
    return names.index(name)


STEP_KIT = step("STEP_KIT")


class Egress:
    """hermes-egress of one spawner: adopts boxes."""

    def __init__(self):
        self.socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)

    def next(self):
        """(kind, number, owner, kit, channel)"""
        data, fds, _, _ = socket.recv_fds(self.socket, 64, 16)
        kind, flags, number, owner, _ = MESSAGE.unpack(data)
        if kind != ADOPT:
            assert not fds
            return kind, number, owner, None, None
        kit = Kit({"has_v6": not flags & 1}, fds[:-1])
        return kind, number, owner, kit, socket.socket(fileno=fds[-1])

    def adopt(self):
        kind, number, owner, kit, channel = self.next()
        assert kind == ADOPT
        return number, owner, kit, channel

    def dropped(self):
        kind, number, *_ = self.next()
        assert kind == DROP
        return number

    def close(self):
        self.socket.close()


def serve(kit):
    """Lets the next connection pass and answers; returns where it wanted to go."""
    kit.let_pass(kit.report())
    kit.wait("tcp4")
    conn, _ = kit["tcp4"].accept()
    with conn:
        conn.setblocking(True)
        assert conn.recv(10) == b"hello"
        conn.sendall(b"answer")
        return conn.getsockname()


class NetSpawner(Spawner):
    def __init__(self, place, deployment="root", networks=2, egress=True, flags=0):
        self.uid = 1000 if deployment == "user" else 0
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.source, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                high = os.dup(theirs.fileno())
                os.dup2(high, 3)
                words = [*DEPLOYMENTS[deployment], str(place / "hermes-spawn")]
                os.closerange(4, 256)
                os.execvpe(words[0], words, {"PATH": os.environ["PATH"]})
            finally:
                os._exit(127)
        theirs.close()
        self.control.settimeout(60)
        self.send(setup_message(flags=flags, networks=networks))
        if egress:
            self.send(struct.pack("=I", SPAWN_EGRESS), [source.fileno()])
        source.close()
        self.send(root(entry(ENTRY_TREE, "", test_messages.TREE), entry(ENTRY_BIND, "/usr", "/usr"),
                       entry(ENTRY_DEVICE, "/dev/null", "/dev/null"), entry(ENTRY_EXEC, "/usr/bin/bash"),
                       entry(ENTRY_EXEC, "/usr/bin/python3")))
        self.send(struct.pack("=I", 4))
        self.reply = self.control.recv(8192)
        assert struct.unpack_from("=Ii", self.reply)[1] == 0, self.reply
        self.network_error, = struct.unpack_from("=i", self.reply, len(self.reply) - 132)
        self.missing = self.reply[-128:].rstrip(b"\0").decode()
        self.egress = None
        if egress:
            self.start_egress()

    def send(self, data, fds=()):
        for fd in fds:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):  # a user's pipes are the user's
                os.fchown(fd, self.uid, self.uid)
        super().send(data, fds)

    def start_egress(self):
        self.egress = Egress()
        socket.send_fds(self.source, [b"e"], [self.egress.theirs.fileno()])
        self.egress.theirs.close()
        return self.egress

    def sockets(self):
        """How many it holds when no box is left: kits and channels are sockets."""
        assert soon(lambda: set(children(self)) <= set(self.helpers())), children(self)
        names = []
        for fd in self.descriptors():
            try:
                names.append(os.readlink(f"/proc/{self.pid}/fd/{fd}"))
            except FileNotFoundError:  # closed since it was listed
                pass
        return sum(name.startswith("socket:") for name in names)

    def helpers(self):
        return [pid for pid, (comm, _) in children(self).items() if comm == "hermes-network"]


class Run:
    """A run under way; `network`: with a network channel, whose end is `channel`."""

    def __init__(self, spawner, script, network=True, remove=0, owner=7, other=None):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        self.channel, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(60)
        self.channel.send(b"policy")
        out, err = os.pipe(), os.pipe()
        self.out, self.err = out[0], err[0]
        package = job(["/usr/bin/python3", "-c", script])
        fds = [theirs.fileno(), package, out[1], err[1]] + ([other or far.fileno()] if network else [])
        spawner.send(box(exec=1, flags=BOX_NETWORK if network else 0, remove=remove, owner=owner, limits=(1 << 28, *GOOD[1:])), fds)
        theirs.close()
        far.close()
        for fd in (package, out[1], err[1]):
            os.close(fd)

    def event(self):
        data = self.socket.recv(4096)
        return EVENT.unpack(data) if data else None

    def end(self):
        """(events, stdout); the error output belongs to a failing test."""
        events = []
        while event := self.event():
            events.append(event)
        with os.fdopen(self.out, "rb") as out, os.fdopen(self.err, "rb") as err:
            text = out.read().decode()
            errors = err.read().decode()
        self.channel.close()
        self.socket.close()
        assert not errors, errors
        return events, text


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The programs where another user can execute them."""
    place = pathlib.Path("/var/tmp/hermes-egress-%d" % os.getpid())
    place.mkdir(mode=0o755)
    for name in ("hermes-spawn", "hermes-setup", "hermes-fork", "hermes-network"):
        shutil.copy(BUILD / name, place)
    faulty = place / "faulty"
    faulty.mkdir()
    for name in ("hermes-spawn", "hermes-setup", "hermes-fork"):
        shutil.copy(BUILD / name, faulty)
    shutil.copy(BUILD / "tests/hermes-network-faulty", faulty / "hermes-network")
    yield place
    shutil.rmtree(place)


@pytest.fixture
def spawner(place):
    s = NetSpawner(place)
    yield s
    assert s.close() == 0


def look(spawner, owner=7, network=False):
    events, text = Run(spawner, LOOK, network=network, owner=owner).end()
    assert events[-1][0] == ENDED, events
    return json.loads(text)


NOTHING = {"route": False, "address": False, "sent": "ENETUNREACH"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("networks", [0, 2])  # a single run, a server
def test_a_run_with_a_network(place, deployment, networks):
    s = NetSpawner(place, deployment, networks=networks)
    assert (s.network_error, s.missing) == (0, "")
    assert look(s, owner=5) == NOTHING
    before = s.sockets()
    for i in range(3):  # the later ones in namespaces with a kit made ahead
        run = Run(s, DIAL, owner=5)
        number, owner, kit, channel = s.egress.adopt()
        assert (number, owner) == (i + 1, 5)
        assert channel.recv(100) == b"policy"  # the spawner has not read it
        channel.send(b"record")
        assert run.channel.recv(100) == b"record"
        assert serve(kit) == ("203.0.113.10", 80)
        events, text = run.end()
        assert [e[0] for e in events] == [STARTED, ENDED] and text == "answer 192.0.0.2\n"
        assert s.egress.dropped() == number
        kit.close()
        channel.close()
        assert look(s, owner=5) == NOTHING  # whatever pool its namespace comes from
    if networks == 0:
        assert soon(lambda: s.sockets() <= before), (before, s.sockets())
    assert s.close() == 0


def test_without_egress_nothing_passes_and_a_new_one_takes_over(spawner):
    run = Run(spawner, DIAL)
    number, _, kit, channel = spawner.egress.adopt()
    kit.wait("reports")
    spawner.egress.close()
    assert kit.is_quiet("tcp4")  # reported, but nobody has let it pass
    kit.close()
    channel.close()
    assert look(spawner) == NOTHING  # other runs go on
    spawner.start_egress()
    again, _, kit, channel = spawner.egress.adopt()
    assert again == number
    assert serve(kit) == ("203.0.113.10", 80)  # the kernel in the box tries again
    assert run.end()[1] == "answer 192.0.0.2\n"
    assert spawner.egress.dropped() == number


def test_a_run_that_starts_before_egress_does(spawner):
    spawner.egress.close()
    run = Run(spawner, DIAL)
    assert run.event()[0] == STARTED
    spawner.start_egress()
    _, _, kit, _ = spawner.egress.adopt()
    assert serve(kit) == ("203.0.113.10", 80)
    assert run.end()[1] == "answer 192.0.0.2\n"


def test_an_egress_that_does_not_read_loses_its_socket(spawner):
    """The spawner serves on, and what it does not take any more ends with its socket."""
    spawner.egress.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    count = 0
    while True:
        run = Run(spawner, "print(1)")
        assert run.end()[1] == "1\n"
        count += 1
        spawner.egress.socket.setblocking(False)
        if not socket_is_open(spawner.egress.socket):
            break
        assert count < 2000
    spawner.start_egress()
    run = Run(spawner, DIAL)
    _, _, kit, _ = spawner.egress.adopt()
    assert serve(kit) == ("203.0.113.10", 80)
    assert run.end()[1] == "answer 192.0.0.2\n"


def socket_is_open(s):
    """Whether the other end is open; nothing is read."""
    poll = select.poll()
    poll.register(s, select.POLLRDHUP)
    return not poll.poll(0)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_live_session_gets_a_network(place, deployment):
    s = NetSpawner(place, deployment)
    live = Live(s)
    assert live.event()[0] == STARTED
    live.channel.recv(100)
    live.channel.sendall(ASK)
    assert live.channel.recv(100) == b"got\n"  # the control
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    live.command(COMMAND_NETWORK, [theirs.fileno()])
    event = live.event()
    assert (event[0], event[3]) == (EVENT_NETWORK, 0)
    number, _, kit, _ = s.egress.adopt()
    live.channel.sendall(ASK)
    assert serve(kit) == ("203.0.113.10", 80)
    assert live.channel.recv(100) == b"got answer\n"
    live.command(COMMAND_NETWORK, [theirs.fileno()])
    event = live.event()
    assert (event[0], event[3]) == (EVENT_NETWORK, -errno.EEXIST)
    live.command(KILL)
    assert live.kinds()[-1] == ENDED
    assert s.egress.dropped() == number
    assert s.close() == 0


@pytest.mark.parametrize("what", ["a stream", "a pipe", "no egress", "host network"])
def test_requests_that_do_not_fit(place, pipes_of, what):
    s = NetSpawner(place, egress=what != "no egress", flags=1)
    a, b = socket.socketpair()
    other = {"a stream": a.fileno(), "a pipe": pipes_of[0]}.get(what)
    run = Run(s, "print(1)", other=other, remove=BARRIER_NETNS if what == "host network" else 0)
    events, text = run.end()
    assert [(e[0], e[4], e[3]) for e in events] == [(EVENT_FAILED, STEP_REQUEST, -errno.EINVAL)] and text == ""
    assert Run(s, "print(1)", network=False).end()[1] == "1\n"  # the control
    assert s.close() == 0


@pytest.fixture
def pipes_of():
    pair = os.pipe()
    yield pair
    for fd in pair:
        os.close(fd)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_starts_nothing(place, part):
    """The program never runs, the event names the part, and nothing is left."""
    fault = place / "faulty" / "kit-fault"
    fault.write_text(str(PARTS.index(part)))
    try:
        s = NetSpawner(place / "faulty", networks=0)
        assert Run(s, "print(1)", network=False).end()[1] == "1\n"
        before = s.sockets()
        events, text = Run(s, "print(1)").end()
        assert [(e[0], e[4], e[3], PARTS[e[2]]) for e in events] == [(EVENT_FAILED, STEP_KIT, -errno.EIO, part)]
        assert text == ""
        live = Live(s)
        assert live.event()[0] == STARTED
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        live.command(COMMAND_NETWORK, [theirs.fileno()])
        event = live.event()
        assert (event[0], event[3], PARTS[event[2]]) == (EVENT_NETWORK, -errno.EIO, part)
        live.channel.recv(100)
        live.channel.sendall(b"timeout 1 bash -c 'exec 9<>/dev/tcp/203.0.113.10/80' 2>/dev/null; echo status $? >&3\n")
        assert live.channel.recv(100) in (b"status 1\n", b"status 124\n")  # half a kit leads nowhere
        assert not select.select([s.egress.socket], [], [], 0)[0]  # nobody was told of it
        live.command(KILL)
        assert live.kinds()[-1] == ENDED
    finally:
        fault.unlink()
    run = Run(s, DIAL)
    number, _, kit, _ = s.egress.adopt()
    assert number == 1  # the others were never given away
    assert serve(kit) == ("203.0.113.10", 80)  # the control: without the fault
    assert run.end()[1] == "answer 192.0.0.2\n"
    assert soon(lambda: s.sockets() <= before), (before, s.sockets())
    assert s.close() == 0


def test_hermes_network_dies(spawner):
    """Whoever makes and installs kits is replaced."""
    for _ in range(3):
        for pid in spawner.helpers():
            os.kill(pid, 9)
        events, text = Run(spawner, LOOK).end()
        if events[0][0] == EVENT_FAILED:  # it died before the order
            assert events[0][4] == STEP_KIT and text == ""
            events, text = Run(spawner, LOOK).end()
        assert events[-1][0] == ENDED
        assert json.loads(text) == {"route": True, "address": True, "sent": "sent"}
        assert look(spawner) == NOTHING


def test_a_hermes_network_that_hangs_stops_nobody(spawner):
    """A session waits for its kit, others do not. The one that hangs is replaced."""
    live = Live(spawner)
    assert live.event()[0] == STARTED
    for _ in range(3):  # a machine that is busier than we wait answers later; once is proof
        os.kill(max(spawner.helpers()), signal.SIGSTOP)  # the younger one installs kits
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        live.command(COMMAND_NETWORK, [theirs.fileno()])
        assert look(spawner) == NOTHING
        was_first = not select.select([live.socket], [], [], 0)[0]
        event = live.event()
        assert (event[0], event[3]) == (EVENT_NETWORK, -errno.ETIMEDOUT)
        if was_first:
            break
    assert was_first
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    live.command(COMMAND_NETWORK, [theirs.fileno()])
    event = live.event()
    assert (event[0], event[3]) == (EVENT_NETWORK, 0)
    number, _, kit, _ = spawner.egress.adopt()
    live.channel.recv(100)
    live.channel.sendall(ASK)
    assert serve(kit) == ("203.0.113.10", 80)
    assert live.channel.recv(100) == b"got answer\n"
    live.command(KILL)
    assert live.kinds()[-1] == ENDED
    assert spawner.egress.dropped() == number


def test_a_box_that_ends_while_its_kit_is_made(spawner):
    """The kit that comes late is closed: no descriptor of it is left."""
    look(spawner)
    before = spawner.sockets()
    helper = max(spawner.helpers())
    live = Live(spawner)
    assert live.event()[0] == STARTED
    os.kill(helper, signal.SIGSTOP)
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        live.command(COMMAND_NETWORK, [theirs.fileno()])
        live.command(KILL)
        assert live.kinds()[-1] == ENDED
    finally:
        os.kill(helper, signal.SIGCONT)
    for end in (ours, theirs):
        end.close()
    assert soon(lambda: spawner.sockets() <= before), (before, spawner.sockets())
    assert Run(spawner, "print(1)").end()[1] == "1\n"
    assert spawner.egress.adopt()[0] == 1  # the session was never given away


def many(place, deployment, count):
    s = NetSpawner(place, deployment)
    assert look(s, network=True)["route"]
    s.egress.next()
    s.egress.dropped()
    rest = s.sockets()
    for i in range(count):
        run = Run(s, "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('203.0.113.10', 9)); print(1)")
        number, _, kit, channel = s.egress.adopt()
        kit.wait("udp4")
        kit.close()
        channel.close()
        assert run.end()[1] == "1\n"
        assert s.egress.dropped() == number
        if i % 10 == 0:
            assert look(s) == NOTHING
    return s, rest


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_many_boxes_leave_nothing(place, deployment):
    """No process, descriptor, interface, rule or namespace is left. Rules, addresses and routes go with
    their namespace, and that with the last descriptor and process."""
    s, rest = many(place, deployment, 1000 if FULL else 40)
    assert soon(lambda: s.sockets() <= rest + 7 * 4), (rest, s.sockets())  # kits made ahead are the spawner's own
    helpers = s.helpers()
    for pid in helpers:
        held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert len([name for name in held if name.startswith("net:")]) <= 1, held
        assert len(held) <= 5 + 32 * 4, held
    pids = [s.pid, *helpers]
    assert s.close() == 0
    assert soon(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
