# SPDX-License-Identifier: Apache-2.0
"""The wire of both eras, on the fixture: what a message may be, the order of the checks, sessions, streams that are
resumed, batches, cancellation, subscriptions."""
import json
import threading

import pytest

from apilib import wait_until
from mcplib import ACCEPT, LEGACY, META, NEWEST, Legacy, Modern, both, events


def error_of(reply):
    body = reply.json()
    assert body["jsonrpc"] == "2.0" and "result" not in body
    return reply.status, body["error"]["code"]


HOSTILE = {
    "not JSON": b"{",
    "nothing": b"",
    "duplicate names": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100 + b"1" + b"}" * 100 + b"}",
    "many values": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b"1," * 150000 + b"1]}}",
    "half a surrogate pair": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "a number beyond all": b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_json_is_refused(fixture, name):
    reply = fixture("POST", "/mcp", HOSTILE[name], {"Accept": ACCEPT})
    assert error_of(reply) == (400, -32700), reply
    assert "id" not in reply.json()


WRONG = [
    5, "x", None, {}, {"jsonrpc": "1.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 1},
    {"jsonrpc": "2.0", "id": None, "method": "ping"}, {"jsonrpc": "2.0", "id": [1], "method": "ping"},
    {"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, {"jsonrpc": "2.0", "id": "x" * 300, "method": "ping"},
    {"jsonrpc": "2.0", "id": 1, "method": 5}, {"jsonrpc": "2.0", "id": 1, "method": "x" * 200},
    {"jsonrpc": "2.0", "id": 1, "method": "a\0b"}, {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
]


@pytest.mark.parametrize("message", WRONG, ids=lambda m: json.dumps(m)[:40])
def test_what_is_no_message_is_refused(fixture, message):
    reply = fixture("POST", "/mcp", json.dumps(message).encode(), {"Accept": ACCEPT})
    assert error_of(reply) == (400, -32600), reply


def test_params_are_an_object(fixture):
    reply = fixture("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, {"Accept": ACCEPT})
    assert error_of(reply) == (400, -32602)


@pytest.mark.parametrize("version", LEGACY)
def test_a_handshake_gets_the_version_it_asks_for(fixture, version):
    client = Legacy(fixture, version=version)
    assert client.hello["protocolVersion"] == version
    assert client.ask("ping") == {}
    assert client.delete().status == 204
    reply, _ = client.send("ping")
    assert error_of(reply) == (404, -32001)


@pytest.mark.parametrize("version", ["2024-11-05", "2026-07-28", "1999-01-01", "x"])
def test_a_handshake_with_another_version_gets_the_newest(fixture, version):
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": version, "capabilities": {}}}
    reply = fixture("POST", "/mcp", message, {"Accept": ACCEPT})
    assert reply.json()["result"]["protocolVersion"] == "2025-11-25"


def test_a_session_is_needed(fixture):
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert error_of(fixture("POST", "/mcp", ping, {"Accept": ACCEPT})) == (400, -32000)
    assert error_of(fixture("POST", "/mcp", ping, {"Mcp-Session-Id": "mcp_" + "0" * 26})) == (404, -32001)
    assert error_of(fixture("GET", "/mcp", headers={"Accept": "text/event-stream"})) == (400, -32000)
    assert fixture("DELETE", "/mcp").status == 204
    client = Legacy(fixture)
    headers = dict(client.headers(), **{"MCP-Protocol-Version": "2020-01-01"})
    assert client.post(ping, headers).status == 400
    headers.pop("MCP-Protocol-Version")
    assert client.post(ping, headers).json()["result"] == {}


def test_batches_belong_to_one_version(fixture):
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/x"},
             {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "test_simple_text"}}, 5,
             {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}]
    old = Legacy(fixture, version="2025-03-26")
    answers = old.post(batch).json()
    assert [a.get("id") for a in answers] == [1, "b", None, 3]
    assert [a.get("error", {}).get("code") for a in answers] == [None, None, -32600, -32600]
    assert old.post([{"jsonrpc": "2.0", "method": "notifications/x"}]).status == 202
    assert error_of(old.post([])) == (400, -32600)
    assert error_of(old.post(batch[:1] * 65)) == (400, -32600)
    for version in LEGACY[1:]:
        assert error_of(Legacy(fixture, version=version).post(batch)) == (400, -32600)


# The order of section 3.2 of the reference: each case has every fault that comes later too.

def broken(fixture, meta=True, version=NEWEST, headers=None, method="no/such"):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    if meta:
        message["params"]["_meta"] = {META + "protocolVersion": version, META + "clientCapabilities": {},
                                      META + "logLevel": "shout"}
    given = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": "x", "Accept": ACCEPT}
    given.update(headers or {})
    return error_of(fixture("POST", "/mcp", message, given))


def test_checks_of_the_stateless_wire_have_an_order(fixture):
    assert broken(fixture, meta=False) == (400, -32602)
    assert broken(fixture, headers={"MCP-Protocol-Version": "2026-08-01"}) == (400, -32020)
    assert broken(fixture) == (400, -32020)
    right = {"Mcp-Method": "no/such"}
    assert broken(fixture, version="2027-01-01", headers=dict(right, **{"MCP-Protocol-Version": "2027-01-01"})) == (400, -32022)
    assert broken(fixture, headers=right) == (404, -32601)
    assert broken(fixture, headers={"Mcp-Method": "tools/list"}, method="tools/list") == (400, -32602)


def test_a_version_we_lack_names_ours(fixture):
    client = Modern(fixture)
    message = client.message("tools/list", meta={META + "protocolVersion": "2027-01-01"})
    reply = client.post(message, dict(client.headers(message), **{"MCP-Protocol-Version": "2027-01-01"}))
    assert reply.json()["error"]["data"] == {"supported": [NEWEST, *reversed(LEGACY)], "requested": "2027-01-01"}


def test_names_in_headers(fixture):
    client = Modern(fixture)
    message = client.message("tools/call", {"name": "test_simple_text"})
    headers = client.headers(message)
    assert client.post(message, dict(headers, **{"Mcp-Name": "=?base64?dGVzdF9zaW1wbGVfdGV4dA==?="})).status == 200
    for name in ("Test_simple_text", "=?base64?!?=", "=?base64?AA==?=", ""):
        assert error_of(client.post(message, dict(headers, **{"Mcp-Name": name}))) == (400, -32020)
    headers.pop("Mcp-Name")
    assert error_of(client.post(message, headers)) == (400, -32020)


def test_methods_of_the_other_era_do_not_exist(fixture):
    client = Modern(fixture)
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
        reply, _ = client.send(method, {"uri": "test://static-text"})
        assert error_of(reply) == (404, -32601), method
    old = Legacy(fixture)
    for method in ("server/discover", "subscriptions/listen"):
        reply, messages = old.send(method)
        assert messages[-1]["error"]["code"] == -32601, method
    for method in ("GET", "DELETE"):
        reply = fixture(method, "/mcp", headers={"MCP-Protocol-Version": NEWEST, "Accept": ACCEPT})
        assert reply.status == 405 and reply.headers["Allow"] == "POST"


def test_pages_of_other_origins_are_refused(fixture):
    message = Modern(fixture).message("server/discover")
    good = dict(Modern(fixture).headers(message))
    assert fixture("POST", "/mcp", message, good).status == 200
    assert fixture("POST", "/mcp", message, dict(good, Origin="http://evil.example")).status == 403
    assert fixture("POST", "/mcp", message, dict(good, Host="evil.example")).status == 421
    assert fixture("POST", "/mcp", message, dict(good, Origin="http://127.0.0.1:%d" % fixture.port)).status == 200


def test_unknown_things_and_bad_cursors(fixture):
    for client in both(fixture):
        for method, params in [("tools/call", {"name": "nope"}), ("prompts/get", {"name": "nope"}),
                               ("tools/list", {"cursor": "x"}), ("tools/list", {"cursor": "p100"}),
                               ("resources/list", {"cursor": 5})]:
            _, messages = client.send(method, params)
            assert messages[-1]["error"]["code"] == -32602, (method, params)
        _, messages = client.send("resources/read", {"uri": "test://nope"})
        assert messages[-1]["error"]["code"] == (-32602 if isinstance(client, Modern) else -32002)


def test_bad_arguments_are_an_error_of_the_tool(fixture):
    for client in both(fixture):
        for arguments in ({"x": 1}, {"message": 5}, {}):
            result = client.call("test_elicitation", **arguments)
            assert result["isError"] and "test_elicitation" in result["content"][0]["text"]


def begin(client, method, params, meta=None):
    """Sends a request and returns the open answer, of which nothing was read."""
    conn = client.server.connect()
    if isinstance(client, Modern):
        message = client.message(method, params, meta)
        headers = client.headers(message)
    else:
        client.count += 1
        message = {"jsonrpc": "2.0", "id": client.count, "method": method, "params": dict(params, **({"_meta": meta} if meta else {}))}
        headers = client.headers()
    if client.key:
        headers = dict(headers, Authorization="Bearer " + client.key)
    conn.request("POST", client.path, json.dumps(message), dict(headers, **{"Content-Type": "application/json"}))
    return conn, conn.getresponse(), message["id"]


def next_message(answer):
    """The next message of a stream, and its event id."""
    block = ""
    while True:
        line = answer.readline().decode()
        if not line:
            return None, None
        block += line
        if line == "\n":
            found = [e for e in events(block) if e[1]]
            if found:
                return found[0]
            block = ""


def test_progress_comes_before_the_answer_and_rises(fixture):
    for client in both(fixture):
        _, messages = client.send("tools/call", {"name": "test_tool_with_progress"}, {"progressToken": "t"})
        assert [m["params"]["progress"] for m in messages[:-1]] == [0, 50, 100]
        assert all(m["params"]["progressToken"] == "t" for m in messages[:-1])
        _, messages = client.send("tools/call", {"name": "test_tool_with_progress"})
        assert len(messages) == 1


def test_a_stream_is_resumed_where_it_broke(fixture):
    """The connection breaks after the first message; the call goes on, and nothing comes twice or is lost."""
    client = Legacy(fixture)
    conn, answer, _ = begin(client, "tools/call", {"name": "test_tool_with_progress"}, {"progressToken": 1})
    last, first = next_message(answer)
    assert first["params"]["progress"] == 0
    conn.close()
    headers = dict(client.headers(), **{"Last-Event-ID": last, "Accept": "text/event-stream"})
    reply = fixture("GET", "/mcp", headers=headers)
    rest = [m for _, m in events(reply.body.decode())]
    assert [m["params"]["progress"] for m in rest[:-1]] == [50, 100] and "result" in rest[-1]
    for wrong in ("x", "1", "99-1", "-1-1", "1-99999999999999999999999"):
        assert fixture("GET", "/mcp", headers=dict(headers, **{"Last-Event-ID": wrong})).status == 404
    # Another session does not get at it.
    other = Legacy(fixture)
    headers["Mcp-Session-Id"] = other.session
    assert fixture("GET", "/mcp", headers=headers).status == 404


def test_one_standing_stream_with_what_was_subscribed(fixture):
    client = Legacy(fixture)
    conn = fixture.connect()
    conn.request("GET", "/mcp", headers=dict(client.headers(), Accept="text/event-stream"))
    answer = conn.getresponse()
    assert answer.status == 200
    assert fixture("GET", "/mcp", headers=dict(client.headers(), Accept="text/event-stream")).status == 409
    client.call("test_trigger_tool_change")
    assert next_message(answer)[1]["method"] == "notifications/tools/list_changed"
    client.call("test_trigger_resource_change")
    assert next_message(answer)[1]["method"] == "notifications/resources/list_changed"
    client.ask("resources/subscribe", {"uri": "test://watched-resource"})
    client.call("test_trigger_resource_change")
    assert next_message(answer)[1]["method"] == "notifications/resources/list_changed"
    assert next_message(answer)[1]["params"] == {"uri": "test://watched-resource"}
    client.ask("resources/unsubscribe", {"uri": "test://watched-resource"})
    client.delete()
    assert next_message(answer) == (None, None)
    conn.close()


def test_subscriptions_hear_only_what_they_asked_for(fixture):
    client = Modern(fixture)
    conn, answer, number = begin(client, "subscriptions/listen", {
        "notifications": {"promptsListChanged": True, "resourceSubscriptions": ["test://watched-resource"]}})
    mark = {META + "subscriptionId": number}
    _, first = next_message(answer)
    assert first["method"] == "notifications/subscriptions/acknowledged" and first["params"]["_meta"] == mark
    assert first["params"]["notifications"] == {"promptsListChanged": True, "resourceSubscriptions": ["test://watched-resource"]}
    for tool in ("test_trigger_tool_change", "test_trigger_resource_change", "test_trigger_prompt_change"):
        client.call(tool)
    _, second = next_message(answer)
    assert second["method"] == "notifications/resources/updated" and second["params"]["_meta"] == mark
    _, third = next_message(answer)
    assert third["method"] == "notifications/prompts/list_changed" and third["params"]["_meta"] == mark
    conn.close()


def test_a_key_has_so_many_listeners(fixture):
    client = Modern(fixture)
    held = []
    for _ in range(40):
        conn, answer, _ = begin(client, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        held.append((conn, answer))
    codes = []
    for conn, answer in held[-3:]:
        next_message(answer)
        codes.append(next_message(answer)[1]["error"]["code"])
    assert codes == [-32603] * 3
    for conn, _ in held:
        conn.close()
    # They are counted no longer once their clients are gone.
    def is_free():
        conn, answer, _ = begin(client, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        next_message(answer)
        client.call("test_trigger_tool_change")
        works = next_message(answer)[1].get("method") == "notifications/tools/list_changed"
        conn.close()
        return works
    assert wait_until(is_free, 30)


def test_elicitation_on_the_handshake_wire(fixture):
    client = Legacy(fixture, capabilities={"elicitation": {}})
    conn, answer, _ = begin(client, "tools/call", {"name": "test_elicitation", "arguments": {"message": "who?"}})
    _, question = next_message(answer)
    assert question["method"] == "elicitation/create" and question["params"]["message"] == "who?"
    for wrong in ("hermes-999999", 5, "x"):
        assert client.post({"jsonrpc": "2.0", "id": wrong, "result": {"action": "accept"}}).status == 202
    # A response of another session does not count.
    Legacy(fixture).post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"username": "a", "email": "b"}}})
    _, result = next_message(answer)
    assert "action=accept" in result["result"]["content"][0]["text"]
    conn.close()
    plain = Legacy(fixture)
    _, messages = plain.send("tools/call", {"name": "test_elicitation", "arguments": {"message": "who?"}})
    assert messages[-1]["error"]["code"] == -32021


def test_cancelled_calls_have_no_answer(fixture):
    client = Legacy(fixture, capabilities={"elicitation": {}})
    conn, answer, number = begin(client, "tools/call", {"name": "test_elicitation", "arguments": {"message": "who?"}})
    assert next_message(answer)[1]["method"] == "elicitation/create"
    assert client.note("notifications/cancelled", {"requestId": "other"}).status == 202
    assert client.note("notifications/cancelled", {"requestId": number, "reason": "enough"}).status == 202
    assert next_message(answer) == (None, None)
    conn.close()


def test_a_flood_of_sessions_pushes_out_the_oldest(fixture):
    first = Legacy(fixture)
    assert first.ask("ping") == {}
    clients = [Legacy(fixture) for _ in range(70)]
    assert first.send("ping")[0].status == 404
    assert clients[-1].ask("ping") == {}
    assert clients[10].ask("ping") == {}


def test_floods_of_sessions_at_once_end_each_session_once(fixture):
    """Many threads find the same oldest session: none may use it after another one has freed it."""
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}}})
    statuses = []

    def flood():
        connection = fixture.connect()
        for _ in range(400):
            connection.request("POST", "/mcp", message, {"Content-Type": "application/json", "Accept": ACCEPT})
            reply = connection.getresponse()
            reply.read()
            statuses.append(reply.status)
        connection.close()

    threads = [threading.Thread(target=flood) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 4800 and fixture.process.poll() is None
    assert Legacy(fixture).ask("ping") == {}


def test_a_session_keeps_little_of_the_handshake(fixture):
    def resident():
        with open("/proc/%d/statm" % fixture.process.pid) as f:
            return int(f.read().split()[1]) * 4096

    before = resident()
    for _ in range(20):
        Legacy(fixture, capabilities={"elicitation": {}, "experimental": {"x": "a" * (8 << 20)}})
    assert resident() - before < 64 << 20


def test_a_flood_of_calls_in_one_session_is_refused(fixture):
    client = Legacy(fixture, capabilities={"elicitation": {}})
    held = [begin(client, "tools/call", {"name": "test_elicitation", "arguments": {"message": "who?"}}) for _ in range(64)]
    for _, answer, _ in held:
        assert next_message(answer)[1]["method"] == "elicitation/create"
    conn, answer, _ = begin(client, "tools/call", {"name": "test_elicitation", "arguments": {"message": "who?"}})
    assert answer.status == 429
    conn.close()
    threads = [threading.Thread(target=c.close) for c, _, _ in held]
    for thread in threads:
        thread.start()
    client.delete()
    for thread in threads:
        thread.join()


def test_a_flood_of_calls_in_many_sessions_is_refused(fixture):
    params = {"name": "test_elicitation", "arguments": {"message": "who?"}}
    clients = [Legacy(fixture, capabilities={"elicitation": {}}) for _ in range(6)]
    held = [begin(client, "tools/call", params) for client in clients for _ in range(50)]
    statuses = [answer.status for _, answer, _ in held]
    assert statuses == [200] * 256 + [429] * 44
    for client in clients:
        client.delete()
    for conn, _, _ in held:
        conn.close()
    assert Legacy(fixture).ask("ping") == {}


def test_completion_and_templates(fixture):
    for client in both(fixture):
        found = client.ask("completion/complete", {"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                                                   "argument": {"name": "arg1", "value": "par"}})
        assert found["completion"] == {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}
        for params in ({}, {"ref": {"type": "x", "name": "y"}, "argument": {"name": "a", "value": ""}}):
            assert client.send("completion/complete", params)[1][-1]["error"]["code"] == -32602
        assert client.ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "test://template/{id}/data"


def test_a_client_that_takes_no_stream_is_not_kept_waiting(fixture):
    """Without a stream there is no way to tell of changes or to ask."""
    client = Modern(fixture)
    message = client.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert client.post(message, dict(client.headers(message), Accept="application/json")).status == 406
    old = Legacy(fixture, capabilities={"elicitation": {}})
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "test_elicitation", "arguments": {"message": "who?"}}}
    assert old.post(call, dict(old.headers(), Accept="application/json")).json()["error"]["code"] == -32603
    call["params"] = {"name": "execute", "arguments": {"pauses": 1}}
    paused = old.post(call, dict(old.headers(), Accept="application/json")).json()["result"]["structuredContent"]
    assert paused["status"] == "waiting_for_interaction"
