# SPDX-License-Identifier: Apache-2.0
"""Tool calls of REST sessions: as a rule the caller answers its own tools, and nobody else is asked.
A rule of the operator can want an approval first, or deny the call."""
import json

import pytest

from apilib import wait_until
from approvallib import ALICE, BOSS, Listener, Later, check_log, decide, pending, read_log
from sessionlib import Session

TOOLS = [{"name": "pay", "description": "", "input_schema": {"type": "object"}}]
CODE = ("from hermes_tools import pay\ntry: print(pay(amount=%s))\n"
        "except Exception as e: print('refused:', e)")


def rule(decision, **match):
    return {"rules": [{"effect": "tool_call", "match": match, "decision": decision,
                       "examples": {"match": [{"tool": "pay", "arguments": {"amount": 5}}]}}]}


@pytest.fixture
def paying(asking):
    session = Session(asking, key=ALICE)
    calls = []

    def pay(amount, **fields):
        def on_event(name, data):
            if name == "tool_call":
                calls.append(data)
                reply = session.call("POST", "/tool_results", {"id": data["id"], "output": "paid"})
                assert reply.status == 204, reply
        return session.stream(CODE % amount, on_event, tools=TOOLS, **fields)[-1][1]
    yield asking, pay, calls
    assert asking("PUT", "/v1/approvals/rules", {"rules": []}, key=BOSS).status == 200
    session.call("DELETE")


def test_without_a_rule_nobody_is_asked(paying):
    server, pay, calls = paying
    before = len(read_log(server))
    assert pay(5)["stdout"] == "paid\n" and len(calls) == 1
    assert len(read_log(server)) == before


def test_a_rule_denies(paying):
    server, pay, calls = paying
    server("PUT", "/v1/approvals/rules", rule("deny", arguments={"amount": "1-9"}), key=BOSS)
    assert pay(5)["stdout"].startswith("refused:") and calls == []
    assert pay("5.0")["stdout"].startswith("refused:") and calls == []  # the same number
    assert pay("9.5")["stdout"] == pay(10)["stdout"] == "paid\n"  # the control: another effect


def test_denied_calls_use_up_the_budget(paying):
    """Every denial is a row of the log, which is never shortened."""
    server, _, calls = paying
    server("PUT", "/v1/approvals/rules", rule("deny", tool="pay"), key=BOSS)
    before = len(read_log(server))
    session = Session(server, key=ALICE)
    code = "from hermes_tools import pay\nfor i in range(20):\n try: pay(amount=i)\n except Exception as e: print(e)"
    lines = session.stream(code, lambda *_: None, tools=TOOLS, max_tool_calls=3)[-1][1]["stdout"].splitlines()
    session.call("DELETE")
    assert len(lines) == 20 and calls == []
    assert sum("budget" in line for line in lines) == 17, lines
    assert len(read_log(server)) == before + 3


def test_pages_of_large_effects_are_short(paying):
    """A program chooses how long an effect is. A page of the log ends early, and no row is left out."""
    server, _, _ = paying
    server("PUT", "/v1/approvals/rules", rule("deny", tool="pay"), key=BOSS)
    before = read_log(server, ALICE)
    code = ("from hermes_tools import pay\nfor i in range(40):\n try: pay(amount=i, note='x' * 60000)\n"
            " except Exception as e: pass\nprint(i)")
    session = Session(server, key=ALICE)
    answer = session.stream(code, lambda *_: None, tools=TOOLS, max_tool_calls=40)[-1][1]
    session.call("DELETE")
    assert answer["stdout"] == "39\n", answer
    last, sizes, rows = before[-1]["seq"] if before else 0, [], []
    while True:
        reply = server("GET", "/v1/approvals/log?limit=1000&after=%d" % last, key=ALICE)
        page = reply.json()["log"]
        if not page:
            break
        sizes.append(len(reply.body))
        rows += page
        last = page[-1]["seq"]
    assert [json.loads(row["data"])["effect"]["arguments"]["amount"] for row in rows] == list(range(40))
    assert len(sizes) > 1 and max(sizes) < 2 << 20, sizes
    check_log(read_log(server))


def test_a_rule_asks(paying):
    server, pay, calls = paying
    server("PUT", "/v1/approvals/rules", rule("ask", tool="pay"), key=BOSS)
    assert "no approver is reachable" in pay(5)["stdout"] and calls == []
    with Listener(server, ALICE):
        for decision, output in (("approve", "paid\n"), ("deny", "refused:")):
            calls.clear()
            run = Later(lambda: pay(5, timeout_ms=2000))
            approval, = pending(server, ALICE)
            assert approval["effect"]["tool"] == "pay" and approval["effect"]["arguments"] == {"amount": 5}
            assert approval["session"] and calls == []
            # Longer than the exec may take: waiting is not its time.
            assert not wait_until(lambda: not run.is_alive(), 1.0)
            decide(server, ALICE, approval["id"], decision)
            end = run.result()
            assert end["status"] == "ok" and end["stdout"].startswith(output), end
            assert len(calls) == (decision == "approve")
        run = Later(lambda: pay(5))
        decide(server, ALICE, pending(server, ALICE)[0]["id"], scope="session")
        assert run.result()["stdout"] == "paid\n"
    assert pay(5)["stdout"] == "paid\n"  # granted for the session, nobody is asked
    assert "refused" in pay(6)["stdout"]  # the grant binds the arguments
    check_log(read_log(server))


def test_code_that_asks_for_ever_runs_out_of_time(make_asking):
    """Waiting is not the code's time, but only up to a maximum: otherwise it holds its box as long as it finds something to ask."""
    server = make_asking(HERMES_APPROVAL_TIMEOUT_S="1")
    assert server("PUT", "/v1/approvals/rules", rule("ask", tool="pay"), key=BOSS).status == 200
    session = Session(server, key=ALICE)
    code = "from hermes_tools import pay\nfor i in range(40):\n try: pay(amount=i)\n except Exception as e: print('refused')"
    with Listener(server, ALICE):
        answer = session.stream(code, lambda *_: None, tools=TOOLS, max_tool_calls=40, timeout_ms=2000)[-1][1]
    assert answer["status"] == "time_limit", answer
    assert answer["stdout"].count("refused") < 20
    session.call("DELETE")


FORGE = """import hermes_tools
tools = next(c.cell_contents for c in hermes_tools.pay.__closure__ if hasattr(c.cell_contents, 'kernel'))
name = %r
tools.offered[name] = tools.generation
print(tools.call(name, tools.generation, {'amount': 5}))"""


@pytest.mark.parametrize("name,end", [("pay", "ok"), ("pay\0 everything", "protocol")])
def test_the_caller_gets_the_name_that_was_approved(paying, name, end):
    """Code speaks to the channel itself. A name with a NUL is one text for the rules and another one for the caller."""
    server, _, calls = paying
    server("PUT", "/v1/approvals/rules", rule("allow", tool="pay"), key=BOSS)
    session = Session(server, key=ALICE)

    def on_event(kind, data):
        if kind == "tool_call":
            calls.append(data["name"])
            session.call("POST", "/tool_results", {"id": data["id"], "output": "paid"})
    answer = session.stream(FORGE % name, on_event, tools=TOOLS)[-1][1]
    session.call("DELETE")
    assert calls == (["pay"] if end == "ok" else []), answer
    assert (answer["status"] == "ok") == (end == "ok"), answer
