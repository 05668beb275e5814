# SPDX-License-Identifier: Apache-2.0
"""What a reviewer sees of the code after the effect: a copy of the session runs the rest, without network, and the
effect fails there. In these programs the copy is the one whose call is refused; the original's is approved."""
import json
import os
import re
import signal

import pytest

from apilib import ROOT, borrow_dir, children, name_of, return_dir, wait_until
import approvallib
from approvallib import ALICE, BOSS, MOUNT, Later, Listener, check_log, decide, pending, read_log
from mcplib import Modern
from reviewerlib import GOOD, Endpoint
from serving import boxes
from sessionlib import Session
from test_gate import serve

RULE = {"rules": [{"effect": "tool_call", "match": {"tool": "pay"}, "decision": "ask",
                   "examples": {"match": [{"tool": "pay", "arguments": {"amount": 5}}]}}]}
TOOLS = [{"name": "pay", "description": "", "input_schema": {"type": "object"}}]
CALL = """
from hermes_tools import pay
try: got = pay(amount=5)
except Exception as e: got = 'refused'
"""
IN_COPY = CALL + "if got == 'refused':\n%s\nprint(got)"
LATE = {"made": False, "reason": "it took too long"}
FULL = os.environ.get("HERMES_FULL") == "1"


class Gate:
    """A server whose reviewer sees previews."""

    def __init__(self, mode="gated", **env):
        self.reviewer, self.path = Endpoint(), borrow_dir()
        self.server = serve(self.reviewer, self.path, mode=mode, HERMES_SESSION_PARKED="0", **env)
        assert self.server("PUT", "/v1/approvals/rules", RULE, key=BOSS).status == 200

    def close(self):
        self.reviewer.close()
        status = self.server.stop() if self.server.process.poll() is None else 0
        return_dir(self.path)
        assert status == 0

    def seen(self):
        """The previews that the reviewer was sent."""
        return [json.loads(body["messages"][1]["content"])["context"].get("preview")
                for _, _, body in self.reviewer.requests]


@pytest.fixture(scope="module")
def shared():
    gate = Gate()
    yield gate
    gate.close()


@pytest.fixture
def gate(shared):
    shared.reviewer.behave(GOOD)
    yield shared
    for session in shared.server("GET", "/v1/sessions", key=ALICE).json()["sessions"]:
        shared.server("DELETE", "/v1/sessions/" + session["id"], key=ALICE)
    assert wait_until(lambda: not boxes(shared.server)), "boxes are left"
    assert shared.server.metric("hermes_sessions") == 0
    assert shared.server.metric("hermes_memory_promised_bytes") == 0


@pytest.fixture
def make_gate():
    made = []

    def make(**kwargs):
        made.append(Gate(**kwargs))
        return made[-1]
    yield make
    for gate in made:
        gate.close()


class Payer(Session):
    """A session whose caller pays when it is called."""

    def __init__(self, gate, language="python", **fields):
        super().__init__(gate.server, language, key=ALICE, **fields)
        self.calls = []

    def run(self, code, **fields):
        def on_event(name, data):
            if name == "tool_call":
                self.calls.append(data["input"])
                assert self.call("POST", "/tool_results", {"id": data["id"], "output": "paid"}).status == 204
        return self.stream(code, on_event, tools=TOOLS, **fields)[-1][1]


def until_in_time(gate, work):
    """The preview of work(). On a very busy machine one can be late: then once more."""
    for _ in range(3):
        gate.reviewer.behave(GOOD)
        work()
        preview, = gate.seen()
        if preview != LATE:
            break
    return preview


def preview_of(gate, session, code, **fields):
    """Of one call, which is approved in the end. The original notices nothing, and nothing is left of the copy."""
    preview = until_in_time(gate, lambda: call_once(gate, session, code, **fields))
    assert len(json.dumps(preview)) < 10000
    return preview


def call_once(gate, session, code, **fields):
    before, known, calls = len(read_log(gate.server)), session.state(), len(session.calls)
    answer = session.run(code, **fields)
    assert gate.server.metric("hermes_sessions") == 1  # the copy is gone when the call goes on
    assert answer["status"] == "ok" and answer["stdout"].endswith("paid\n"), answer
    assert session.calls[calls:] == [{"amount": 5}]
    assert answer["execution_count"] == known["execution_count"] + 1 and not answer["state_lost"]
    assert check_log(read_log(gate.server))[before:] == ["asked", "reviewed", "approved"]
    assert session.out("print(6 * 7)") == "42\n"


def test_what_the_reviewer_sees(gate):
    session = Payer(gate)
    session.out("import os\nos.makedirs('/box/d')\nopen('/box/keep', 'w').write('old')\nx = 1")
    preview = preview_of(gate, session, IN_COPY % """
  import socket, sys, urllib.request
  x += 1; os.remove('/box/keep'); open('/box/d/new', 'w').write('n'); os.chdir('/box/d')
  for place in (('192.0.2.7', 443), 'http://example.com:8080/x'):
    try: urllib.request.urlopen(place) if type(place) is str else socket.create_connection(place, 5)
    except OSError: pass
  try: pay(amount=6)
  except Exception: print('second refused')
  sys.exit(7)""")
    assert preview["made"] and preview["status"] == "runtime_error" and preview["exit_code"] == 7
    assert "d/new" in preview["files_changed"] and preview["files_cut"] is False
    assert preview["connections_tried"] == ["192.0.2.7:443", "example.com:8080"]
    assert preview["effects_refused"] == ['pay {"amount":6}'] and preview["more"] == 0
    assert preview["stdout"] == "second refused\n"
    example = next(block for block in re.findall(r"```text\n(.*?)```", (ROOT / "docs/approvals.md").read_text(), re.S) if "made" in block)
    assert list(json.loads(example)) == list(preview)
    # Of all that, nothing happened.
    assert session.out("print(x, os.getcwd(), os.listdir('/box/d'), open('/box/keep').read())") == "1 /box [] old\n"


def test_an_error_and_what_was_not_flushed(gate):
    session = Payer(gate)
    preview = preview_of(gate, session, "print('before', end=' ')" + IN_COPY % "  raise ValueError('no money')")
    assert preview["status"] == "runtime_error" and preview["error"] == "ValueError: no money"
    assert preview["files_changed"] == [] and preview["exit_code"] is None


def test_a_denial_is_still_the_reviewers(gate):
    """A preview decides nothing: however harmless it looks, a denial blocks."""
    session = Payer(gate)
    gate.reviewer.behave(dict(GOOD, decision="deny", reason="no"))
    assert session.run(CALL + "print(got)")["stdout"] == "refused\n" and session.calls == []
    assert gate.seen() == [LATE] or gate.seen()[0]["status"] == "ok"


def test_code_can_notice(gate):
    """Documented: the preview shows what the code did there, not what it will do."""
    session = Payer(gate)
    preview = preview_of(gate, session, "import os\nborn = os.getpid()" + CALL +
                         "if os.getpid() == born: open('/box/evil', 'w').close()\nprint(got)")
    assert preview["files_changed"] == []
    assert session.out("print(os.path.exists('/box/evil'))") == "True\n"


HOSTILE = {
    "loops": ("  while True: pass", "time_limit"),
    "ignores interrupts": ("  import signal, time\n  signal.signal(signal.SIGINT, signal.SIG_IGN)\n  time.sleep(600)", "time_limit"),
    "forks": ("  while True:\n    try: os.fork()\n    except OSError: pass", None),
    "floods": ("  while True: os.write(1, b'x' * 65536)", None),
    "fills the disk": ("  f = open('/box/huge', 'wb')\n  while True: f.write(bytes(1 << 20))", None),
    "fills the memory": ("  x = []\n  while True: x.append(bytearray(1 << 20))", None),
    "displays": ("  for i in range(100000): display({'text/plain': 'x' * 1000}, raw=True)", None),
    "calls tools": ("  for i in range(300):\n    try: pay(amount=5)\n    except Exception: pass", "ok"),
    "ends": ("  os._exit(3)", "runtime_error"),
    "kills": ("  import signal\n  os.kill(-1, signal.SIGKILL)", None),
    "writes to the channel": ("  os.write(3, b'done 2\\n{}' * 100)", "runtime_error"),
    "closes the channel": ("  os.close(3)", "runtime_error"),
    "forges attempts": ("  for i in range(1000): os.write(3, b'attempt 17\\n{\"address\": \"ab\"}')", "ok"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code(gate, name):
    """It ends within its bounds, its original goes on, and the caller's tools hear nothing of it."""
    code, status = HOSTILE[name]
    session = Payer(gate)
    session.out("import os\nopen('/box/keep', 'w').write('old')")
    preview = preview_of(gate, session, IN_COPY % code, timeout_ms=2000)
    assert preview["made"], preview
    assert status is None or preview["status"] == status, preview
    assert len(preview["stdout"]) < 1200 and len(preview["effects_refused"]) <= 40
    if name == "calls tools":
        assert len(preview["effects_refused"]) + preview["more"] == 300
    assert session.out("print(open('/box/keep').read(), os.listdir('/box'))") == "old ['keep']\n"


SERVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', 5555)); s.listen(); open('/box/up', 'w').close()
while True: s.accept()[0].close(); open('/box/hits', 'a').write('x')
"""
REACHES = """
import socket
def reach():
    try: socket.create_connection(('127.0.0.1', 5555), 5).close(); return 'reached'
    except OSError as e: return str(e)
"""


@pytest.mark.parametrize("network", ["none", "full"])
def test_it_reaches_nothing_of_its_family(gate, network):
    """Not even the loopback of the original, behind which a process may change it. The control is the original's own
    connection."""
    session = Payer(gate, network=network)
    session.out("import os, subprocess, sys, time\nnull = subprocess.DEVNULL\n"
                "p = subprocess.Popen([sys.executable, '-c', %r], stdin=null, stdout=null, stderr=null)\n"
                "while not os.path.exists('/box/up'): time.sleep(0.01)" % SERVER)
    preview = preview_of(gate, session, REACHES + CALL + "print(reach())\nprint(got)")
    assert "unreachable" in preview["stdout"] and preview["connections_tried"] == ["127.0.0.1:5555"], preview
    hits = "x" * len(session.calls)
    assert session.out("while not os.path.exists('/box/hits') or os.path.getsize('/box/hits') < %d: time.sleep(0.01)\n"
                       "print(open('/box/hits').read()); p.kill()" % len(hits)) == hits + "\n"


SHARED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def find(flags=0): return libc.shmget(0x4711, 4096, flags)
"""


def test_it_shares_no_memory_by_a_key(gate):
    session = Payer(gate)
    if session.out(SHARED + "print(find(0o1666) >= 0)") != "True\n":
        pytest.skip("boxes have no shared memory of System V")
    preview = preview_of(gate, session, CALL + "print('found', find() >= 0)\nprint(got)")
    assert preview["stdout"] == "found False\nrefused\n"
    assert session.out("print(find() >= 0)") == "True\n"  # the control


NO_PREVIEW = {
    "a thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()" + CALL, "threads"),
    "a thread's call": ("import threading\ndef f():\n global got\n got = pay(amount=5)\nfrom hermes_tools import pay\n"
                        "t = threading.Thread(target=f)\nt.start()\nt.join()\n", "by a thread"),
    "a socket": ("import socket\ns = socket.socketpair()" + CALL + "del s\n", "socket"),
    "a loop of events": ("import asyncio\nfrom hermes_tools import pay\nasync def f(): return pay(amount=5)\n"
                         "got = asyncio.run(f())\n", "descriptor"),
}


@pytest.mark.parametrize("name", NO_PREVIEW)
def test_without_a_preview_the_reviewer_hears_why(gate, name):
    code, word = NO_PREVIEW[name]
    preview = preview_of(gate, Payer(gate), code + "print(got)")
    assert preview["made"] is False and word in preview["reason"], preview


def test_sessions_without_previews(gate):
    """What cannot be copied: other languages, mounts, an exec with stdin."""
    code = "const t = require('hermes_tools'); console.log(await t.pay({amount: 5}))"
    session = Payer(gate, "javascript")
    assert session.run(code)["stdout"] == "paid\n"
    session.delete()
    session = Payer(gate, mounts=[dict(MOUNT[0], mode="ro")])
    assert session.run(CALL + "print(got)")["stdout"] == "paid\n"
    session.delete()
    session = Payer(gate)
    assert session.run(CALL + "print(got, input())", stdin="hello\n")["stdout"] == "paid hello\n"
    reasons = [preview["reason"] for preview in gate.seen()]
    assert "javascript" in reasons[0] and "mounts" in reasons[1] and "descriptor 0" in reasons[2], reasons


def is_previewing(server):
    return server.metric("hermes_sessions") == 2


def begin_loop(gate, session):
    """An exec whose preview loops."""
    run = Later(lambda: session.run(IN_COPY % "  while True: pass"))
    assert wait_until(lambda: is_previewing(gate.server))
    # It is a session that counts, but that nobody sees.
    assert [s["id"] for s in gate.server("GET", "/v1/sessions", key=ALICE).json()["sessions"]] == [session.id]
    return run


def test_a_person_may_decide_meanwhile(gate):
    """Then the copy ends, and the call does not wait for it."""
    session = Payer(gate)
    with Listener(gate.server, ALICE):
        run = begin_loop(gate, session)
        assert decide(gate.server, ALICE, pending(gate.server, ALICE)[0]["id"]).status == 200
        assert run.result()["stdout"] == "paid\n"
    assert gate.server.metric("hermes_sessions") == 1 and session.calls == [{"amount": 5}]
    assert gate.reviewer.requests == []


@pytest.mark.parametrize("end", ["interrupt", "delete"])
def test_its_exec_ends_meanwhile(gate, end):
    session = Payer(gate)
    run = begin_loop(gate, session)
    if end == "delete":
        assert session.delete().status == 204
        run.join(60)
        assert gate.server.metric("hermes_sessions") == 0
    else:
        assert session.call("POST", "/interrupt").status in (200, 202, 204)
        answer = run.result()
        assert answer["error"]["name"] == "KeyboardInterrupt", answer
        assert gate.server.metric("hermes_sessions") == 1 and session.out("print(1)") == "1\n"
    assert session.calls == []
    states = [row["event"] for row in read_log(gate.server)][-2:]
    assert states == ["asked", "lost"], states


def test_one_after_the_other(gate):
    """Copies are bounded in number and depth for each session; previews use up neither."""
    session = Payer(gate)
    count = 40 if FULL else 5
    answer = session.run("from hermes_tools import pay\nfor i in range(%d): print(pay(amount=5))" % count, max_tool_calls=count)
    assert answer["stdout"] == "paid\n" * count
    assert len(gate.seen()) == count and all(p["made"] or p == LATE for p in gate.seen()), gate.seen()


def test_copies_have_previews_too(gate):
    original = Payer(gate)
    original.out("y = 5")
    copy = Payer.__new__(Payer)
    copy.server, copy.key, copy.calls = gate.server, ALICE, []
    copy.id = original.call("POST", "/fork").json()["sessions"][0]["id"]
    preview = until_in_time(gate, lambda: copy.run(CALL + "print(got, y)"))
    assert preview["stdout"] == "refused 5\n" and copy.calls


@pytest.mark.parametrize("victim", ["hermes-server", "hermes-spawn", "hermes-monitor"])
def test_nothing_is_left_when_something_is_killed(make_gate, victim):
    gate = make_gate()
    session = Payer(gate)
    run = begin_loop(gate, session)
    spawner = gate.server.child("hermes-spawn")
    live = boxes(gate.server)
    assert live
    pid = gate.server.process.pid if victim == "hermes-monitor" else gate.server.child(victim)
    os.kill(pid, signal.SIGKILL)
    run.join(60)
    assert session.calls == []
    assert wait_until(lambda: not any(os.path.exists("/proc/%d/ns/pid" % one) for one in live), 30), "boxes are left"
    if victim == "hermes-monitor":
        assert wait_until(lambda: not os.path.exists("/proc/%d" % spawner), 30)
        gate.server.process.wait()
        gate.server.log.close()
        gate.server.start()
    assert wait_until(lambda: gate.server("GET", "/health").status == 200, 30)
    assert "approved" not in check_log(read_log(gate.server))


def kill_worker(server):
    """Kills the process that makes a copy, if there is one now."""
    for pid in children(server.child("hermes-spawn")):
        if name_of(pid) == "hermes-fork":
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def test_the_copy_program_is_killed(gate):
    """Then there is no preview, and the session is unharmed."""
    session = Payer(gate)
    session.out("import os\nfor i in range(3000): open('/box/%d' % i, 'w').write('x')")  # the copy takes a while
    for _ in range(20):
        gate.reviewer.behave(GOOD)
        run = Later(lambda: session.run(CALL + "print(got)"))
        assert wait_until(lambda: kill_worker(gate.server) or not run.is_alive())
        assert run.result()["stdout"] == "paid\n" and session.out("print(len(os.listdir('/box')))") == "3000\n"
        preview, = gate.seen()
        if not preview["made"]:
            break
    assert "could not be copied" in preview["reason"], preview
    assert preview_of(gate, session, CALL + "print(got)")["made"]  # the control


def test_it_counts_against_the_key(make_gate):
    """A key that has all its sessions gets no preview, and the reviewer decides without."""
    gate = make_gate(HERMES_MAX_SESSIONS_PER_KEY="1")
    session = Payer(gate)
    preview = preview_of(gate, session, CALL + "print(got)")
    assert preview["made"] is False and "sessions" in preview["reason"], preview
    assert session.delete().status == 204


def test_its_time_is_the_keys(make_gate, monkeypatch):
    """Code that works in previews only uses up the CPU budget of its key nevertheless."""
    monkeypatch.setattr(approvallib, "KEYS", approvallib.KEYS.replace("alices-secret\n", "alices-secret\ncpu_s_per_hour = 1\n"))
    gate = make_gate()
    session = Payer(gate)
    answer = session.run("from hermes_tools import pay\nfor i in range(20):\n try: pay(amount=5)\n except Exception:\n"
                         "  while True: pass\nprint('paid')", max_tool_calls=20)
    assert answer["stdout"] == "paid\n" and answer["usage"]["cpu_ms"] < 1000, answer
    previews = gate.seen()
    assert any(p["made"] for p in previews) and not previews[-1]["made"] and "CPU" in previews[-1]["reason"], previews
    assert session.post("1").status == 429


def test_smart_too(make_gate):
    gate = make_gate(mode="smart")
    assert preview_of(gate, Payer(gate), CALL + "print(got)")["stdout"] == "refused\n"


def test_execute_in_python(gate):
    """Code of MCP's execute has previews too. Its loop of events has a descriptor only once it waits for something."""
    rule = {"effect": "tool_call", "match": {"tool": "search"}, "decision": "ask",
            "examples": {"match": [{"tool": "search", "arguments": {}}]}}
    assert gate.server("PUT", "/v1/approvals/rules", {"rules": [rule]}, key=BOSS).status == 200
    client = Modern(gate.server, key=ALICE)
    code = """import asyncio
%s
try: got = await tools.search(query="x") and "found"
except Exception: got = "refused"
open("/box/" + got, "w").close()
return got"""
    try:
        for waits, is_made in (("", True), ("await asyncio.sleep(0.01)", False)):
            def execute():
                result = client.call("execute", language="python", code=code % waits)
                assert result["structuredContent"]["result"] == "found", result
            preview = until_in_time(gate, execute)
            assert preview["made"] is is_made, preview
            assert not is_made or preview["files_changed"] == ["refused"], preview
    finally:
        assert gate.server("PUT", "/v1/approvals/rules", RULE, key=BOSS).status == 200


@pytest.mark.skipif(not FULL, reason="takes long: HERMES_FULL=1")
def test_code_that_calls_without_listening(gate):
    """It writes the call to the channel by itself and never answers the server: no preview, and its own time passes."""
    call = json.dumps({"id": "1", "name": "pay", "input": {"amount": 5}})
    session = Payer(gate)
    answer = session.run("import os, time\nos.write(3, b'tool_call %d\\n' + %r)\nwhile True: time.sleep(1)" % (len(call), call.encode()),
                         timeout_ms=2000)
    assert answer["status"] == "time_limit" and session.calls == [], answer
    assert gate.seen() == [LATE]


@pytest.mark.skipif(not FULL, reason="takes long: HERMES_FULL=1")
def test_a_hook_that_never_ends(gate):
    """User code in the copy before the copy has its box: it never becomes one."""
    session = Payer(gate)
    session.out("import os, time\nos.register_at_fork(after_in_child=lambda: time.sleep(1000))")
    preview = preview_of(gate, session, CALL + "print(got)")
    assert preview == LATE


def test_a_hook_that_refuses_ours(gate):
    session = Payer(gate)
    session.out("import sys\ndef hook(event, args):\n if event == 'sys.addaudithook': raise ValueError\nsys.addaudithook(hook)")
    assert preview_of(gate, session, CALL + "print(got)")["stdout"] == "refused\n"
