# SPDX-License-Identifier: Apache-2.0
"""Effects inside an execution of the product: a rule asks about a tool, the execution pauses, and the client, the model
or anybody else who may decides. What is not approved fails in the code."""
import json
import os
import signal
import subprocess

import pytest

from apilib import HERMES, SLOW, wait_until
from mcplib import Legacy, Modern
from test_mcp_pauses import FORM
from test_mcp_wire import begin, next_message

KEYS = "[alice]\nkey = alice-secret-key\n[bob]\nkey = bob-secret-key\n[boss]\nkey = boss-secret-key\nrole = operator\n"
ALICE, BOB, BOSS = "alice-secret-key", "bob-secret-key", "boss-secret-key"
CODE = """let got = [];
for (const query of ["one", "two"]) {
  try { await tools.search({ query }); got.push("ran"); } catch (e) { got.push("refused"); }
}
return got;"""


def rule(tool="search", decision="ask", **more):
    return dict({"effect": "tool_call", "match": {"tool": tool}, "decision": decision,
                 "examples": {"match": [{"tool": tool, "arguments": {}}]}}, **more)


@pytest.fixture
def asking(make_server, tmp_path):
    """A server whose operator wants to be asked about searches."""
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)

    def make(*rules, **env):
        server = make_server(env=dict({"HERMES_KEYS_FILE": str(keys)}, **env))
        reply = server("PUT", "/v1/approvals/rules", {"rules": list(rules) or [rule()]}, key=BOSS)
        assert reply.status == 200, reply
        return server
    return make


def value(result):
    assert result["structuredContent"]["status"] == "completed", result
    return result["structuredContent"]["result"]


def paused(result):
    said = result["structuredContent"]
    assert said["status"] == "waiting_for_interaction" and not result.get("isError"), result
    assert said["interaction"]["kind"] == "form" and said["interaction"]["address"] == "search"
    assert said["interaction"]["args"]["arguments"]["query"] in ("one", "two")
    assert set(said["interaction"]) == {"kind", "message", "instructions", "address", "args", "requestedSchema"}
    return said["executionId"]


def states(server, key=ALICE):
    approvals = server("GET", "/v1/approvals", key=key).json()["approvals"]
    return [(a["state"], a["via"]) for a in reversed(approvals)]


def test_resume_decides_and_says_that_a_model_relayed(asking):
    server = asking()
    client = Modern(server, key=ALICE)
    first = paused(client.call("execute", code=CODE))
    second = paused(client.call("resume", executionId=first, action="accept"))
    assert second != first
    assert paused(client.call("resume", executionId=first, action="accept")) == second  # a repetition decides nothing
    assert value(client.call("resume", executionId=second, action="decline")) == ["ran", "refused"]
    assert value(client.call("resume", executionId=second, action="accept")) == ["ran", "refused"]
    assert states(server) == [("approved", "model"), ("denied", "model")]
    assert value(client.call("execute", code="return 1")) == 1  # nothing to ask


def test_a_form_on_the_stream(asking):
    server = asking()
    client = Legacy(server, key=ALICE, capabilities={"elicitation": {}})
    conn, answer, _ = begin(client, "tools/call", {"name": "execute", "arguments": {"code": CODE}})
    for action in ("accept", "decline"):
        question = next_message(answer)[1]
        assert question["method"] == "elicitation/create" and "search" in question["params"]["message"]
        client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}})
    assert value(next_message(answer)[1]["result"]) == ["ran", "refused"]
    conn.close()
    assert states(server) == [("approved", "elicitation"), ("denied", "elicitation")]


@pytest.mark.parametrize("query,shown", [("to bob: all of it", "to bob: all of it"), ("x" * 20000 + " and the end", " and the end"),
                                         ("caf\u00e9", "caf\u00e9"), ("abc\u202edef", "abc\\u202Edef"), ("a\nAllow it", "a\\nAllow it")])
def test_who_decides_sees_the_whole_effect(asking, query, shown):
    """In the form, and in the text that a model reads: not only the name of the tool."""
    server = asking()
    code = "try { await tools.search({query: %s}) } catch (e) {} return 1" % json.dumps(query)
    result = Modern(server, key=ALICE).call("execute", code=code)
    assert shown in result["content"][0]["text"], result
    forms = Modern(server, key=ALICE, capabilities=FORM).call("execute", code=code)
    message = forms["inputRequests"]["decision"]["params"]["message"]
    assert shown in message and message.count("\n") == 1 and message.startswith("The code wants to call the tool search"), message


@pytest.mark.parametrize("decision,end", [("approve", "ran"), ("deny", "refused"), (None, "refused")])
def test_a_form_that_somebody_else_decided_is_taken_back(asking, decision, end):
    """Or that nobody decided in time: the call goes on without the client's answer, and a late one decides nothing."""
    server = asking(HERMES_APPROVAL_TIMEOUT_S="300" if decision else "2")
    client = Legacy(server, key=ALICE, capabilities={"elicitation": {}})
    code = "try { await tools.search({query: 'one'}); return 'ran' } catch (e) { return 'refused' }"
    conn, answer, _ = begin(client, "tools/call", {"name": "execute", "arguments": {"code": code}})
    question = next_message(answer)[1]
    if decision:
        approval, = server("GET", "/v1/approvals?state=pending", key=ALICE).json()["approvals"]
        assert server("POST", "/v1/approvals/" + approval["id"], {"decision": decision}, key=ALICE).status == 200
    said = next_message(answer)[1]
    assert said["method"] == "notifications/cancelled" and said["params"]["requestId"] == question["id"], said
    client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
    assert value(next_message(answer)[1]["result"]) == end
    conn.close()
    assert len(states(server)) == 1


def test_input_required_on_the_stateless_wire(asking):
    server = asking()
    client = Modern(server, key=ALICE, capabilities=FORM)
    result = client.call("execute", code=CODE)
    for action in ("accept", "accept"):
        assert result["resultType"] == "input_required", result
        params = {"name": "execute", "arguments": {"code": CODE}, "requestState": result["requestState"],
                  "inputResponses": {"decision": {"action": action}}}
        spent, result = params, client.send("tools/call", params)[1][-1]["result"]
    assert value(result) == ["ran", "ran"]
    assert "error" in client.send("tools/call", spent)[1][-1]  # a state is used once
    assert states(server) == [("approved", "elicitation")] * 2


def test_a_state_belongs_to_its_key(asking):
    server = asking()
    forms = Modern(server, key=ALICE, capabilities=FORM)
    code = "try { await tools.search({query: 'one'}); return 'ran' } catch (e) { return 'refused' }"
    params = {"name": "execute", "arguments": {"code": code}, "inputResponses": {"decision": {"action": "accept"}},
              "requestState": forms.call("execute", code=code)["requestState"]}
    for thief in (Modern(server, key=BOB, capabilities=FORM), Modern(server, key=BOSS, capabilities=FORM)):
        assert thief.send("tools/call", params)[1][-1]["error"]["code"] == -32602
    assert states(server) == [("pending", None)]
    assert value(forms.send("tools/call", params)[1][-1]["result"]) == "ran"  # the control: nobody has spent it


def test_somebody_else_decides_while_the_execution_waits(asking):
    server = asking()
    client = Modern(server, key=ALICE)
    execution = paused(client.call("execute", code=CODE))
    approval = server("GET", "/v1/approvals?state=pending", key=ALICE).json()["approvals"][0]
    assert approval["effect"]["tool"] == "search" and approval["effect"]["read_only"] is True
    assert server("POST", "/v1/approvals/" + approval["id"], {"decision": "approve"}, key=BOB).status == 404
    result = Modern(server, key=BOB).call("resume", executionId=execution, action="accept")
    assert result["structuredContent"]["status"] == "execution_not_found"
    assert server("POST", "/v1/approvals/" + approval["id"], {"decision": "deny"}, key=ALICE).status == 200
    second = paused(client.call("resume", executionId=execution, action="accept"))  # too late for the first
    assert value(client.call("resume", executionId=second, action="accept")) == ["refused", "ran"]


def test_a_model_may_not_relay_where_a_person_is_wanted(asking):
    server = asking(rule(require_human=True), HERMES_APPROVAL_TIMEOUT_S="2")
    code = "try { await tools.search({}); return 'ran' } catch (e) { return String(e) }"
    client = Modern(server, key=ALICE)
    result = client.call("execute", code=code)
    said = result["structuredContent"]
    assert said["status"] == "waiting_for_interaction"
    result = client.call("resume", executionId=said["executionId"], action="accept")
    assert "timeout" in value(result)  # nobody else answered
    assert states(server) == [("expired", "timeout")]


def test_a_deny_rule_fails_without_a_pause_and_rules_name_the_tool(asking):
    server = asking(rule(decision="deny"), rule(tool="call"))
    client = Modern(server, key=ALICE)
    result = value(client.call("execute", code="""
let got = [];
try { await tools.search({}); } catch (e) { got.push(String(e)); }
got.push((await tools.describe.tool({path: "search"})).name);
return got;"""))
    assert "denies" in result[0] and result[1] == "search"


@pytest.mark.parametrize("call,said", [("tools.search({query: 'one'})", None), ("tools.search()", None),
                                       ("tools.search('everything')", "must be an object"), ("tools.search([1])", "must be an object"),
                                       ("tools['search\\0x']({})", "tool must be a string")])
def test_what_is_asked_is_what_the_tool_gets(asking, call, said):
    """An input that the effect cannot show is refused: otherwise a person would approve `{}` and the tool would get another input."""
    server = asking(rule(), dict(rule(), match={}))
    client = Modern(server, key=ALICE)
    result = client.call("execute", code="try { await %s; return 'ran' } catch (e) { return String(e) }" % call)
    if said:
        assert said in value(result) and states(server) == []
    else:
        execution = result["structuredContent"]["executionId"]
        assert value(client.call("resume", executionId=execution, action="accept")) == "ran"


def test_a_pause_is_nobodys_time(asking):
    """The limit of the execution is shorter than the pause lasts."""
    server = asking(HERMES_MAX_WALL_MS="2000")
    client = Modern(server, key=ALICE)
    execution = paused(client.call("execute", code="await tools.search({query: 'one'}); return 'done'"))
    clock = server.metric("hermes_uptime_seconds")
    assert wait_until(lambda: server.metric("hermes_uptime_seconds") > clock + 3, 60)
    assert value(client.call("resume", executionId=execution, action="accept")) == "done"


def test_a_client_that_leaves_loses_the_question(asking):
    server = asking()
    client = Legacy(server, key=ALICE, capabilities={"elicitation": {}})
    conn, answer, number = begin(client, "tools/call", {"name": "execute", "arguments": {"code": CODE}})
    assert next_message(answer)[1]["method"] == "elicitation/create"
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    assert wait_until(lambda: [s for s, _ in states(server)] == ["lost"], 30)
    conn.close()
    log = server("GET", "/v1/approvals/log?limit=50", key=BOSS).json()["log"]
    assert "approved" not in [row["event"] for row in log]


def test_a_command_outside_of_a_box_is_a_form(make_server, tmp_path):
    """`shell` in a session on a backend: the client's person decides before anything runs; without one nothing does."""
    places, keys = tmp_path / "places", tmp_path / "keys"
    places.write_text("[backend here]\nkind = local\nkeys = alice\n")
    keys.write_text(KEYS)
    for path in (places, keys):
        path.chmod(0o600)
    args = ["--backends", str(places)] + (["--backends-user", "nobody"] if os.geteuid() == 0 else [])
    server = make_server(args=args, env={"HERMES_KEYS_FILE": str(keys)})
    session = server("POST", "/v1/sessions", {"language": "bash", "backend": "here"}, key=ALICE).json()["id"]
    call = {"name": "shell", "arguments": {"session_id": session, "command": "printf '%s' out | cat"}}
    alone = Modern(server, key=ALICE, path="/mcp/full").call("shell", **call["arguments"])
    assert alone["isError"] and "approval" in alone["content"][0]["text"], alone
    client = Legacy(server, key=ALICE, path="/mcp/full", capabilities={"elicitation": {}})
    for action in ("accept", "decline"):
        conn, answer, _ = begin(client, "tools/call", call)
        question = next_message(answer)[1]
        assert question["method"] == "elicitation/create" and "run a command on here: cat" in question["params"]["message"], question
        client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}})
        result = next_message(answer)[1]["result"]
        assert ("out" in result["content"][0]["text"]) == (action == "accept") == (not result.get("isError")), result
        conn.close()
    assert states(server) == [("approved", "elicitation"), ("denied", "elicitation")]


def test_pauses_that_are_decided_are_not_kept(asking):
    """A client can let an execution pause 256 times, with 60 kB each, and the last 64 executions are kept."""
    server = asking()
    client = Modern(server, key=ALICE)

    def memory():
        with open("/proc/%d/status" % server.child("hermes-server")) as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) >> 10

    def pause(count):
        code = ("for (let i = 0; i < %d; i++) { try { await tools.search({query: 'x'.repeat(60000) + i}) } catch (e) {} }"
                "return 'done'" % count)
        result = client.call("execute", code=code)
        while result["structuredContent"]["status"] == "waiting_for_interaction":
            result = client.call("resume", executionId=result["structuredContent"]["executionId"], action="decline")
        assert value(result) == "done"
    pause(20)
    before = memory()
    pause(100)
    assert memory() - before < 4, (before, memory())
    assert [state for state, _ in states(server)].count("denied") >= 80


@pytest.mark.parametrize("victim", ["hermes-server", "hermes-monitor"])
def test_killed_during_a_pause(asking, victim):
    """Nothing runs unapproved or twice: what was paused is lost with its box, whoever answers, and the log says so."""
    server = asking()
    model, forms = Modern(server, key=ALICE), Modern(server, key=ALICE, capabilities=FORM)
    execution = paused(model.call("execute", code=CODE))
    state = forms.call("execute", code=CODE)["requestState"]
    ids = [a["id"] for a in server("GET", "/v1/approvals?state=pending", key=ALICE).json()["approvals"]]
    assert len(ids) == 2
    pid = server.process.pid if victim == "hermes-monitor" else server.child(victim)
    os.kill(pid, signal.SIGKILL)
    if victim == "hermes-monitor":
        server.process.wait()
        server.log.close()
        server.start()
    assert wait_until(lambda: server.child("hermes-server") not in (None, pid), 30)
    assert wait_until(lambda: server("GET", "/health").status == 200, 30)
    answer = {"name": "execute", "arguments": {"code": CODE}, "requestState": state,
              "inputResponses": {"decision": {"action": "accept"}}}
    for _ in range(2):
        result = model.call("resume", executionId=execution, action="accept")
        assert result["isError"]
        assert result["structuredContent"] == {"status": "execution_not_found", "executionId": execution, "recovery": "re_execute"}
        assert "error" in forms.send("tools/call", answer)[1][-1]
    for ident in ids:
        assert server("POST", "/v1/approvals/" + ident, {"decision": "approve"}, key=ALICE).status == 409
    assert states(server) == [("lost", None)] * 2
    log = server("GET", "/v1/approvals/log?limit=50", key=BOSS).json()["log"]
    assert [row["event"] for row in log if row["approval"]] == ["asked", "asked", "lost", "lost"]
    assert verify(server).startswith("%d rows, 0 wrong" % len(log))
    # What it says to do works, and is asked again.
    again = paused(model.call("execute", code=CODE))
    again = paused(model.call("resume", executionId=again, action="accept"))
    assert value(model.call("resume", executionId=again, action="decline")) == ["ran", "refused"]
    assert [s for s, _ in states(server)] == ["lost", "lost", "approved", "denied"]
    verify(server)


def verify(server):
    env = {"PATH": "/usr/bin:/bin", "HERMES_UNIX": str(server.unix), "HERMES_API_KEY": BOSS}
    got = subprocess.run([str(HERMES), "approvals", "verify"], env=env, capture_output=True, text=True, timeout=60 * SLOW)
    assert got.returncode == 0, (got.stdout, got.stderr)
    return got.stdout
