# SPDX-License-Identifier: Apache-2.0
"""Terminals in sessions: what they are, what ends them, who may have one."""
import hashlib
import json
import threading

import pytest

from apilib import wait_until
from machine import has_mknod
from ptylib import BINARY, PING, PONG, PROMPT, TEXT, Raw, Terminal, frame, refusal, shells, sleepers
from sessionlib import Session, fork


@pytest.mark.parametrize("language", ["bash", "python", "javascript"])
def test_a_shell_beside_every_interpreter(session, language):
    one = session(language, env={"COLOUR": "blue"})
    with Terminal(one) as t:
        assert t.run("stty size; tty; pwd; echo $TERM $HOME $COLOUR $-") == \
            "30 120\n/dev/pts/0\n/box\nxterm-256color /box blue himBHs\n"
        assert t.run("id -u; cat /proc/self/status | grep -E 'Cap(Prm|Eff|Bnd)|NoNew|Seccomp:' | sort").split() == [
            "1000", "CapBnd:", "0" * 16, "CapEff:", "0" * 16, "CapPrm:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
        assert t.run("echo from a terminal > seen; (exit 3)") == "" and t.status == 3
        assert one.call("GET", "/files/seen").body == b"from a terminal\n"
        t.send("exit 7\n")
        assert t.end() == (7, 1000)
    assert t.texts == [{"type": "exit", "exit_code": 7}]
    assert one.state()["state"] == "idle"


def test_its_size(session):
    one = session("bash")
    with Terminal(one, "?rows=11&cols=222") as t:
        assert t.run("stty size") == "11 222\n"
        t.send("sh -c 'trap \"stty size; exit\" WINCH; echo rea\"\"dy; while :; do sleep 0.02; done'\n")
        t.until("ready")
        t.resize(44, 55)
        t.until("44 55")
        t.until(PROMPT)
        assert t.run("stty size") == "44 55\n"


def test_keys_and_jobs(session):
    """The terminal controls the shell: Ctrl-C, Ctrl-Z, Ctrl-D, /dev/tty."""
    one = session("python")
    with Terminal(one) as t:
        t.start("sleep 600")
        t.send("\x03")
        t.until(r"\^C")
        t.until(PROMPT)
        assert t.run("echo $?") == "130\n"
        t.start("sleep 600")
        t.send("\x1a")
        t.until("Stopped")
        t.until(PROMPT)
        assert "sleep 600" in t.run("jobs")
        t.run("kill %1; wait %1")
        if has_mknod():
            assert t.run("echo x >/dev/tty; stty -echo </dev/tty && stty echo").startswith("x\n")
        else:
            assert "No such file" in t.run("stty -a </dev/tty")
        assert t.run("python3 -c 'import os; print(os.get_terminal_size(), os.ttyname(0))'") == \
            "os.terminal_size(columns=120, lines=30) /dev/pts/0\n"
        t.send("\x04")
        assert t.end() == (0, 1000)


def test_the_shell_dies_of_a_signal(session):
    with Terminal(session("bash")) as t:
        t.send("kill -9 $$\n")
        assert t.end() == (137, 1000)


def test_execs_go_on_beside_it(session):
    one = session("python")
    with Terminal(one) as t:
        later = one.later("import os, time\nfor _ in range(1000):\n    time.sleep(0.05)\n    if os.path.exists('/box/go'): break\n"
                          "print('seen' if os.path.exists('/box/go') else 'alone')", timeout_ms=60000)
        assert wait_until(lambda: one.state()["state"] == "busy")
        assert t.run("touch /box/go; echo there") == "there\n"
        assert later.result().json()["stdout"] == "seen\n"
        assert one.out("print(6 * 7)") == "42\n"


def test_several_up_to_the_bound(session, server):
    one, other = session("bash"), session("bash")
    several = [Terminal(one) for _ in range(4)]
    assert [t.run("tty") for t in several] == ["/dev/pts/%d\n" % i for i in range(4)]
    assert server.metric("hermes_terminals") == 4
    refused = refusal(one)
    assert refused.status == 429 and b"4 terminals" in refused.body and "Retry-After" in refused.headers
    with Terminal(other) as t:
        assert t.run("tty") == "/dev/pts/0\n"
    # One trust domain: who has the session has all of its terminals.
    several[0].run("echo hello from another > /dev/pts/1")
    several[1].until("hello from another")
    several.pop().close()
    assert wait_until(lambda: server.metric("hermes_terminals") == 3)
    several.append(Terminal(one))
    for t in several:
        t.close()
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)


def test_no_terminal_where_there_shall_be_none(make_server):
    one = Session(make_server(env={"HERMES_SESSION_TERMINALS": "0"}), "bash")
    assert refusal(one).status == 501


def test_bytes_are_passed_as_they_are(session):
    one = session("python")
    with Terminal(one) as t:
        t.send("stty raw -echo; echo rea''dy; head -c 1024 | sha256sum; stty sane\n")
        t.until("ready")
        data = bytes(range(256)) * 4
        t.send(data[:500])
        t.send(data[500:])
        t.until(hashlib.sha256(data).hexdigest())
        t.until(PROMPT)
        assert t.run("echo fine") == "fine\n"
        # Much of it, in one message, to somebody who reads slowly.
        t.send("stty -icanon -echo; echo rea''dy; python3 -c 'import sys; print(len(sys.stdin.buffer.read(300000)))'; stty sane\n")
        t.until("ready")
        t.send(b"y" * 300000)
        t.until("300000\r\n", 30)


# What ends it

def test_the_end_of_the_session_is_its_end(session, server):
    one = session("python")
    t = Terminal(one)
    t.run("true")
    assert one.delete().status == 204
    assert t.end() == (137, 1000)
    t.close()
    assert refusal(one).status == 404


def test_reset_and_death_of_the_interpreter_end_it(session):
    one = session("python")
    t = Terminal(one)
    t.run("echo kept > file")
    assert one.call("POST", "/reset").status == 200
    assert t.end() == (137, 1000)
    t.close()
    with Terminal(one) as t:
        assert t.run("cat file") == "kept\n"
        one.exec("import os; os._exit(1)")
        assert t.end() == (137, 1000)
    refused = refusal(one)
    assert refused.status == 409 and json.loads(refused.body)["state_lost"] is True


def test_forks_and_rollback(session):
    """A terminal prevents neither; it stays with the original; a copy has its own; a rollback ends it."""
    one = session("python")
    with Terminal(one) as t:
        t.run("echo first > file")
        t.run("(setsid sleep 600 &)")
        assert wait_until(lambda: sleepers(one.server) == ["600"])
        copy = fork(one)
        assert t.run("echo second > file; tty") == "/dev/pts/0\n"
        with Terminal(copy) as theirs:
            assert theirs.run("tty; cat file; ls /dev/pts; id -u; stty size") == "/dev/pts/0\nfirst\n0  ptmx\n1000\n30 120\n"
            # Its own terminals, network and rights; nothing of the original's is in sight.
            assert t.run("pgrep -x sleep").strip().isdigit() and t.status == 0
            assert theirs.run("pgrep -x sleep") == "" and theirs.status == 1
            assert theirs.run("echo third > file; ls /proc | grep -c '^[0-9]'").strip() in ("3", "4", "5")
            assert one.out("print(open('file').read())") == "second\n\n"
            assert copy.out("print(open('file').read())") == "third\n\n"
            fork(copy)
            theirs.send("exit 5\n")
            assert theirs.end() == (5, 1000)
        with Terminal(copy) as theirs:
            theirs.run("true")
            assert copy.delete().status == 204
            assert theirs.end() == (137, 1000)
        assert one.call("POST", "/checkpoints", {"name": "x"}).status == 201
        assert t.run("echo alive") == "alive\n"
        # After a fork, init and program live in control groups of their own: it is the program's that counts.
        with Terminal(one) as second:
            groups = second.run("cat /proc/self/cgroup")
            assert ".." not in groups
        assert one.call("POST", "/rollback", {"checkpoint": "x"}).status == 200
        assert t.end() == (137, 1000)
    with Terminal(one) as t:
        assert t.run("cat file") == "second\n"


def test_who_leaves_hangs_up(session, server):
    """Jobs of the shell get the signal; what is detached stays, as any background process of a session does."""
    one = session("bash")
    t = Terminal(one)
    t.run("sleep 611 & setsid sleep 612 </dev/null >/dev/null 2>&1 & true")
    t.start("sleep 613")
    assert wait_until(lambda: sorted(sleepers(server)) == ["611", "612", "613"] and len(shells(server)) == 3)
    t.vanish()
    assert wait_until(lambda: not shells(server))
    assert wait_until(lambda: server.metric("hermes_terminals") == 0)
    assert wait_until(lambda: sleepers(server) == ["612"]), sleepers(server)


def test_a_shell_that_ignores_the_hangup(session, server):
    one = session("bash")
    t = Terminal(one)
    t.send("trap '' HUP; exec sleep 600\n")
    assert wait_until(lambda: sleepers(server) == ["600"])
    t.close()
    assert wait_until(lambda: not sleepers(server), 5)
    assert one.out("echo fine") == "fine\n"


def test_use_of_it_is_use_of_the_session(make_server):
    server = make_server()
    one = Session(server, "bash", idle_timeout_s=2)
    with Terminal(one) as t:
        t.send("for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo tick; done; echo qui''et\n")
        t.until("quiet", 20)
        assert one.state()["state"] == "idle"
        assert t.end() == (137, 1000)  # nobody types, nothing is printed
    assert one.state()["state"] == "expired" and one.state()["reason"] == "idle"


def test_the_server_stops(make_server):
    server = make_server()
    t = Terminal(Session(server, "bash"))
    t.run("true")
    stopped = threading.Thread(target=server.stop)
    stopped.start()
    assert t.end() == (None, 1001)
    stopped.join()
    t.close()


# Who may have one

def test_refusals(session, server):
    one = session("bash")
    plain = one.call("GET", "/pty")
    assert plain.status == 426 and plain.headers["Upgrade"] == "websocket" and "WebSocket" in plain.json()["error"]["message"]
    assert refusal(one, method="HEAD").status == 426
    for bad in ({"drop": ["Upgrade"]}, {"drop": ["Connection"]}, {"drop": ["Sec-WebSocket-Version"]}, {"Sec_WebSocket_Version": "8"},
                {"Upgrade": "h2c"}, {"Connection": "close"}):
        assert refusal(one, **bad).status == 426, bad
    for bad in ({"drop": ["Sec-WebSocket-Key"]}, {"Sec_WebSocket_Key": "short"}, {"Sec_WebSocket_Key": "!" * 24},
                {"Sec_WebSocket_Key": "A" * 24}, {"Sec_WebSocket_Key": "A" * 200}):
        assert refusal(one, **bad).status == 400, bad
    for query in ("?rows=0", "?rows=1001", "?cols=-1", "?cols=x", "?rows=", "?cols=99999999999999999999", "?rows=1.5"):
        refused = refusal(one, query)
        assert refused.status == 400 and json.loads(refused.body)["error"]["field"] == query[1:5], query
    assert one.call("POST", "/pty").status == 405
    assert server.metric("hermes_terminals") == 0 and not shells(server)


def test_pages_of_other_sites(session):
    """A browser keeps no page from opening a WebSocket; it only says whose page it is."""
    one = session("bash")
    for origin in ("https://evil.example", "null", "http://localhost:3000.evil.example", "http://localhost:81"):
        assert refusal(one, Origin=origin).status == 403, origin
    Raw(one, Origin="http://localhost:3000").close()  # allowed_origin has it


def test_keys(make_server):
    server = make_server(env={"HERMES_API_KEYS": "alice, bob"})
    one = Session(server, "bash", key="alice")
    assert refusal(one).status == 401
    assert refusal(one, X_API_Key="wrong").status == 401
    assert refusal(one, X_API_Key="bob").status == 404
    assert refusal(one, Authorization="Bearer bob").status == 404
    with Terminal(one) as t:
        assert t.run("echo mine") == "mine\n"
    Raw(one, Authorization="Bearer alice").close()


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_pings_and_parts(session, tcp):
    one = session("bash")
    raw = Raw(one, tcp=tcp)
    assert "Sec-WebSocket-Accept: " in raw.head and "Sec-WebSocket-Extensions" not in raw.head
    raw.send(frame(PING, b"are you there"))
    found = raw.receive()
    while found[0] == BINARY:
        found = raw.receive()
    assert found == (PONG, b"are you there")
    # A message in parts, and a ping between them.
    raw.send(frame(BINARY, b"echo pa", fin=False), frame(PING, b"!"), frame(0, b"r", fin=False), frame(0, b"ts-$((6*7))\n"))
    seen = b""
    while b"parts-42" not in seen:
        opcode, payload = raw.receive()
        seen += payload if opcode == BINARY else b""
    raw.send(frame(TEXT, b'{"type":"resize","rows":20,', fin=False), frame(0, b'"cols":60}'), frame(BINARY, b"stty size\n"))
    while b"20 60" not in seen:
        seen += raw.receive()[1]
    raw.close()
