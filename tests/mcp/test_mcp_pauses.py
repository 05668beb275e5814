# SPDX-License-Identifier: Apache-2.0
"""Executions that wait for a person, on the fixture, whose `execute {pauses}` pauses so often and returns the decisions:
resume, elicitation, input_required with its requestState. Nothing is decided twice, forged or for another."""
import json
import threading

import pytest

from mcplib import Legacy, Modern, both
from test_mcp_wire import begin, next_message

FORM = {"elicitation": {"form": {}}}


def decisions(result):
    assert result["structuredContent"]["status"] == "completed", result
    return [d["action"] for d in result["structuredContent"]["result"]]


def paused(result):
    said = result["structuredContent"]
    assert said["status"] == "waiting_for_interaction" and not result.get("isError"), result
    assert said["interaction"]["message"] == "Delete everything?"
    text = result["content"][0]["text"]
    assert text.startswith("Execution paused: Delete everything?") and "executionId: " + said["executionId"] in text
    return said["executionId"]


def test_resume_decides_one_pause_after_the_other(fixture):
    for client in both(fixture):
        first = paused(client.call("execute", pauses=2))
        second = paused(client.call("resume", executionId=first, action="accept", content='{"note": "ok"}'))
        assert second != first
        result = client.call("resume", executionId=second, action="decline")
        assert result["structuredContent"]["result"] == [{"action": "accept", "content": {"note": "ok"}}, {"action": "decline"}]
        # The same again: the outcome is replayed, and nothing changes.
        for execution in (first, second):
            again = client.call("resume", executionId=execution, action="accept")
            assert decisions(again) == ["accept", "decline"]


def test_a_late_repetition_does_not_decide_the_next_pause(fixture):
    client = Modern(fixture)
    first = paused(client.call("execute", pauses=2))
    second = paused(client.call("resume", executionId=first, action="accept"))
    assert paused(client.call("resume", executionId=first, action="accept")) == second
    assert decisions(client.call("resume", executionId=second, action="cancel")) == ["accept", "cancel"]


def test_two_answers_at_once_are_one_decision(fixture):
    client = Modern(fixture)
    execution = paused(client.call("execute", pauses=1))
    results = []
    threads = [threading.Thread(target=lambda action=action: results.append(
        Modern(fixture).call("resume", executionId=execution, action=action))) for action in ["accept", "decline"] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({json.dumps(r["structuredContent"]) for r in results}) == 1 and len(results) == 8


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", "5", '{"a":1,"a":2}'])
def test_content_that_is_no_object_is_absent(fixture, content):
    client = Modern(fixture)
    execution = paused(client.call("execute", pauses=1))
    result = client.call("resume", executionId=execution, action="accept", content=content)
    assert result["structuredContent"]["result"] == [{"action": "accept"}]


def test_an_unknown_execution_says_what_to_do(fixture):
    result = Modern(fixture).call("resume", executionId="exec_nope", action="accept")
    assert result["isError"]
    assert result["structuredContent"] == {"status": "execution_not_found", "executionId": "exec_nope", "recovery": "re_execute"}


def test_pauses_survive_the_session(fixture):
    old = Legacy(fixture)
    execution = paused(old.call("execute", pauses=1))
    assert old.delete().status == 204
    assert decisions(Legacy(fixture).call("resume", executionId=execution, action="accept")) == ["accept"]


def test_a_client_with_forms_is_asked_on_the_stream(fixture):
    client = Legacy(fixture, capabilities={"elicitation": {}})
    conn, answer, _ = begin(client, "tools/call", {"name": "execute", "arguments": {"pauses": 2}})
    for action in ("accept", "decline"):
        _, question = next_message(answer)
        assert question["method"] == "elicitation/create"
        client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}})
    _, result = next_message(answer)
    assert decisions(result["result"]) == ["accept", "decline"]
    conn.close()


@pytest.mark.parametrize("reply", [{"error": {"code": -1, "message": "no"}}, {"result": {"action": "maybe"}}, {"result": {}}])
def test_a_client_that_fails_at_the_form_can_resume(fixture, reply):
    client = Legacy(fixture, capabilities={"elicitation": {}})
    conn, answer, _ = begin(client, "tools/call", {"name": "execute", "arguments": {"pauses": 1}})
    _, question = next_message(answer)
    client.post(dict({"jsonrpc": "2.0", "id": question["id"]}, **reply))
    execution = paused(next_message(answer)[1]["result"])
    conn.close()
    conn, answer, _ = begin(client, "tools/call", {"name": "resume", "arguments": {"executionId": execution, "action": "accept"}})
    assert decisions(next_message(answer)[1]["result"]) == ["accept"]
    conn.close()


def ask(client, pauses=1):
    result = client.call("execute", pauses=pauses)
    assert result["resultType"] == "input_required" and list(result["inputRequests"]) == ["decision"]
    assert result["inputRequests"]["decision"]["method"] == "elicitation/create"
    return result["requestState"]


def retry(client, state, answer=None, tool="execute", **arguments):
    params = {"name": tool, "arguments": arguments or {"pauses": 1}, "requestState": state,
              "inputResponses": {"decision": answer or {"action": "accept"}}}
    return client.send("tools/call", params)[1][-1]


def test_input_required_goes_round_by_round(fixture):
    client = Modern(fixture, capabilities=FORM)
    state = ask(client, pauses=2)
    second = retry(client, state, {"action": "accept", "content": {"note": "x"}}, pauses=2)["result"]
    assert second["resultType"] == "input_required" and second["requestState"] != state
    result = retry(client, second["requestState"], {"action": "decline"}, pauses=2)["result"]
    assert decisions(result) == ["accept", "decline"]


def test_a_state_is_used_once(fixture):
    client = Modern(fixture, capabilities=FORM)
    state = ask(client)
    assert decisions(retry(client, state)["result"]) == ["accept"]
    for _ in range(3):
        assert retry(client, state, {"action": "decline"})["error"]["code"] == -32602


def test_a_state_used_at_once_by_many_counts_once(fixture):
    state = ask(Modern(fixture, capabilities=FORM))
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(retry(Modern(fixture, capabilities=FORM), state))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted("result" in a for a in answers) == [False] * 7 + [True]


def test_a_state_belongs_to_its_call(fixture):
    client = Modern(fixture, capabilities=FORM)
    state = ask(client)
    head, mac = state.rsplit(".", 1)
    number, rest = head.split(".", 2)[1:]
    forged = [
        state[:-1] + ("0" if state[-1] != "0" else "1"),
        "1.%d.%s.%s" % (int(number) + 1, rest, mac), head + "." + "0" * len(mac), head + ".", "", "x", "." * 64,
        state + "0", "\0" + state, state * 40, " " + state,
    ]
    for wrong in forged:
        assert retry(client, wrong)["error"]["code"] == -32602, wrong[:80]
    assert retry(client, state, pauses=2)["error"]["code"] == -32602  # other arguments
    assert retry(client, state, tool="resume", executionId="x", action="accept")["error"]["code"] == -32602  # another tool
    # None of this has spent it: the control.
    assert decisions(retry(client, state)["result"]) == ["accept"]


def test_an_answer_that_is_none_is_asked_for_again(fixture):
    client = Modern(fixture, capabilities=FORM)
    state = ask(client)
    for answer in ({"action": "perhaps"}, {"content": {}}, {"action": 5}):
        again = retry(client, state, answer)["result"]
        assert again["resultType"] == "input_required"
        state = again["requestState"]
    assert decisions(retry(client, state)["result"]) == ["accept"]


def test_states_that_wait_are_bounded(fixture):
    client = Modern(fixture, capabilities=FORM)
    first = client.call("test_input_required_result_request_state")["requestState"]
    for _ in range(64):
        last = client.call("test_input_required_result_request_state")["requestState"]
    params = {"name": "test_input_required_result_request_state", "inputResponses": {"confirm": {"action": "accept"}}}
    assert client.send("tools/call", dict(params, requestState=first))[1][-1]["error"]["code"] == -32602
    assert client.send("tools/call", dict(params, requestState=last))[1][-1]["result"]["resultType"] == "complete"


def test_a_client_without_forms_is_never_asked_by_form(fixture):
    for capabilities in ({}, {"elicitation": {"url": {}}}, {"sampling": {}}):
        client = Modern(fixture, capabilities=capabilities)
        execution = paused(client.call("execute", pauses=1))
        assert decisions(client.call("resume", executionId=execution, action="accept")) == ["accept"]
