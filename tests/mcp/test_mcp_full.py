# SPDX-License-Identifier: Apache-2.0
"""The full surface: each tool once as it is meant, and what goes wrong."""
import base64
import json

import pytest

from apilib import wait_until
from mcplib import META, Legacy, Modern, both
from machine import lacks_for_copies
from test_mcp_wire import begin, next_message

TOOLS = ["run_code", "session_create", "session_exec", "session_fork", "session_checkpoint", "session_rollback", "session_close",
         "shell", "read_file", "write_file", "list_files", "judge", "wait"]


@pytest.fixture
def client(server):
    return Modern(server, path="/mcp/full")


def text(result):
    return result["content"][0]["text"]


def create(client, language="python"):
    result = client.call("session_create", language=language)
    assert not result.get("isError"), result
    return result["structuredContent"]["session_id"]


def test_tools_prompts_and_resources_are_offered(server):
    for client in both(server, path="/mcp/full"):
        tools = client.ask("tools/list")["tools"]
        assert [t["name"] for t in tools] == TOOLS
        for tool in tools:
            schema = tool["inputSchema"]
            assert set(schema["required"]) <= set(schema["properties"])
            for name, given in schema["properties"].items():
                assert isinstance(given["type"], str) and ("items" in given or given["type"] != "array"), name
        assert [p["name"] for p in client.ask("prompts/list")["prompts"]] == ["analyze_data", "solve_problem"]
        assert len(client.ask("resources/templates/list")["resourceTemplates"]) == 2


def test_run_code(client):
    result = client.call("run_code", language="python", code="print(input(), *__import__('sys').argv[1:])", stdin="in", args=["a", "b"])
    assert text(result) == "stdout:\nin a b\n" and result["structuredContent"]["status"] == "ok"
    assert "stdout" not in result["structuredContent"]
    result = client.call("run_code", language="c", code="int main(void) { return nope; }")
    assert result["isError"] and "compile_error" in text(result) and "nope" in text(result)
    result = client.call("run_code", language="python", code="raise SystemExit(3)")
    assert result["isError"] and "exit code: 3" in text(result)
    result = client.call("run_code", language="python", code="while True: pass", timeout_ms=300)
    assert result["isError"] and "time_limit" in text(result)
    assert "unknown language" in text(client.call("run_code", language="klingon", code=""))
    for arguments in ({"code": "x"}, {"language": "python", "code": "x", "network": "full"}, {"language": "python", "code": "x", "args": [1]}):
        assert client.call("run_code", **arguments)["isError"]


def test_long_output_is_cut_in_the_middle_and_kept(client):
    result = client.call("run_code", language="python", code="print('a' * 50000 + 'MIDDLE' + 'b' * 50000)")
    assert len(text(result)) < 21000 and "bytes are left out here" in text(result) and "MIDDLE" not in text(result)
    link = result["content"][1]
    assert link["type"] == "resource_link" and link["size"] == 100007
    assert "MIDDLE" in client.ask("resources/read", {"uri": link["uri"]})["contents"][0]["text"]
    assert link["uri"] in [r["uri"] for r in client.ask("resources/list")["resources"]]


def test_a_session_keeps_state_and_shows_figures(client):
    session = create(client)
    assert text(client.call("session_exec", session_id=session, code="x = 20")) == "(no output)"
    assert text(client.call("session_exec", session_id=session, code="x + 1")) == "21"
    failed = client.call("session_exec", session_id=session, code="1 / 0")
    assert failed["isError"] and "ZeroDivisionError" in text(failed)
    png = base64.b64encode(b"\x89PNG").decode()
    shown = client.call("session_exec", session_id=session, code="display({'image/png': '%s'}, raw=True)" % png)
    assert shown["content"][1] == {"type": "image", "data": png, "mimeType": "image/png"}
    chart = [r for r in client.ask("resources/list")["resources"] if r["name"] == "chart-1.png"][0]
    assert client.ask("resources/read", {"uri": chart["uri"]})["contents"][0]["blob"] == png
    assert "ended" in text(client.call("session_close", session_id=session))
    gone = client.call("session_exec", session_id=session, code="x")
    assert gone["isError"] and "not found" in text(gone)


def test_copies_and_checkpoints(client):
    if lacks_for_copies():
        pytest.skip(lacks_for_copies())
    session = create(client)
    client.call("session_exec", session_id=session, code="x = 1")
    assert not client.call("session_checkpoint", session_id=session, name="one").get("isError")
    client.call("session_exec", session_id=session, code="x = 2")
    copies = client.call("session_fork", session_id=session, count=2)["structuredContent"]["sessions"]
    assert [text(client.call("session_exec", session_id=c["session_id"], code="x")) for c in copies] == ["2", "2"]
    client.call("session_rollback", session_id=session, checkpoint="one")
    assert text(client.call("session_exec", session_id=session, code="x")) == "1"
    assert client.call("session_rollback", session_id=session, checkpoint="none")["isError"]


def test_a_shell(client):
    result = client.call("shell", command="echo one; echo two >&2; exit 4")
    assert result["isError"] and "exit code: 4" in text(result) and "two" in text(result)
    session = create(client, "bash")
    client.call("shell", command="cd /tmp; x=7", session_id=session)
    assert text(client.call("shell", command="pwd; echo $x", session_id=session)) == "stdout:\n/tmp\n7\n"
    python = create(client)
    assert "no shell" in text(client.call("shell", command="id", session_id=python))


def test_files(client):
    session = create(client, "bash")
    assert "7 bytes" in text(client.call("write_file", session_id=session, path="data/a b.csv", content="x,y\n1,2"))
    assert text(client.call("read_file", session_id=session, path="/box/data/a b.csv")) == "x,y\n1,2"
    assert text(client.call("shell", command="cat 'data/a b.csv'", session_id=session)) == "stdout:\nx,y\n1,2\n"
    listed = client.call("list_files", session_id=session, recursive=True)["structuredContent"]["entries"]
    assert [e["name"] for e in listed if e["type"] == "file"] == ["data/a b.csv"]
    resource = [r for r in client.ask("resources/list")["resources"] if r["name"] == "data/a b.csv"][0]
    assert resource["mimeType"] == "text/csv"
    assert client.ask("resources/read", {"uri": resource["uri"]})["contents"][0]["text"] == "x,y\n1,2"
    client.call("write_file", session_id=session, path="p.png", content="iVBORw0=", encoding="base64")
    assert client.call("read_file", session_id=session, path="p.png")["content"][0]["type"] == "image"
    client.call("write_file", session_id=session, path="bytes", content="AAEC", encoding="base64")
    assert client.call("read_file", session_id=session, path="bytes")["content"][0]["resource"]["blob"] == "AAEC"
    client.call("shell", command="head -c 100000 /dev/zero | tr '\\0' y > long.txt", session_id=session)
    long = client.call("read_file", session_id=session, path="long.txt")
    assert len(text(long)) == 30000 and long["content"][1]["size"] == 100000


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "a//b", "a\\b", "\u0007", "x" * 300])
def test_paths_outside_the_box_are_refused(client, path):
    session = create(client, "bash")
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"}), ("list_files", {})):
        assert client.call(tool, session_id=session, path=path, **more)["isError"], tool
    escaped = "".join("%%%02X" % b for b in path.encode())
    for uri in ("hermes://session/%s/file/%s" % (session, path), "hermes://session/%s/file/%s" % (session, escaped)):
        # A header cannot carry every name as it is.
        message = client.message("resources/read", {"uri": uri})
        headers = dict(client.headers(message), **{"Mcp-Name": "=?base64?%s?=" % base64.b64encode(uri.encode()).decode()})
        assert client.post(message, headers).json()["error"]["code"] == -32602
    assert not client.call("write_file", session_id=session, path="fine", content="x").get("isError")


@pytest.mark.parametrize("uri", ["hermes://session/x", "hermes://session//file/", "hermes://execution/x", "hermes://execution/x/stdout",
                                 "file:///etc/passwd", "http://127.0.0.1/", "hermes://", "x"])
def test_other_resources_do_not_exist(client, uri):
    assert client.send("resources/read", {"uri": uri})[1][-1]["error"]["code"] == -32602


def test_judging(client):
    tests = [{"stdin": "2", "expected": "4"}, {"stdin": "3", "expected": "7"}]
    result = client.call("judge", language="python", code="print(int(input()) * 2)", tests=tests)
    assert result["structuredContent"]["verdict"] == "wrong_answer" and not result.get("isError")
    assert "test 1: accepted" in text(result) and "test 2: wrong_answer" in text(result)
    assert client.call("judge", language="python", code="x", tests=[{"stdin": "1"}, 5])["isError"]


def test_work_can_be_waited_for(client, server):
    """`wait` with a short time answers with the handle, and later with the result."""
    session = create(client, "bash")
    conn, answer, _ = begin(client, "tools/call", {"name": "shell", "arguments": {
        "session_id": session, "command": "until [ -e go ]; do sleep 0.05; done; echo went"}}, {"progressToken": 1})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    client.call("write_file", session_id=session, path="go", content="")
    _, message = next_message(answer)
    while "result" not in message:
        assert message["method"] == "notifications/progress"
        _, message = next_message(answer)
    assert text(message["result"]) == "stdout:\nwent\n"
    conn.close()
    assert "no work with this id" in text(client.call("wait", id="exec_none", timeout_s=0))


def test_changes_of_files_are_told(client):
    session = create(client)
    uri = "hermes://session/%s/file/new.txt" % session
    conn, answer, number = begin(client, "subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri], "toolsListChanged": True}})
    assert next_message(answer)[1]["params"]["notifications"] == {"resourceSubscriptions": [uri]}
    client.call("session_exec", session_id=session, code="open('new.txt', 'w').write('x')")
    _, told = next_message(answer)
    assert told["params"] == {"uri": uri, "_meta": {META + "subscriptionId": number}}
    conn.close()


def test_a_batch_has_so_many_bytes(server):
    """64 files of 4 MiB by one request of 9 KB: the server answers some, and begins no more."""
    old = Legacy(server, path="/mcp/full", version="2025-03-26")
    session = old.call("session_create", language="python")["structuredContent"]["session_id"]
    assert "error" not in old.call("session_exec", session_id=session, code="n = open('/box/big', 'w').write('a' * (4 << 20))")
    read = {"jsonrpc": "2.0", "method": "resources/read", "params": {"uri": "hermes://session/%s/file/big" % session}}
    reply = old.post([dict(read, id=number) for number in range(64)])
    answers = reply.json()
    old.call("session_close", session_id=session)
    assert [a["id"] for a in answers] == list(range(64)) and len(reply.body) < 20 << 20
    assert len(answers[0]["result"]["contents"][0]["text"]) == 4 << 20  # the control
    assert all("not begun" in a["error"]["message"] for a in answers[8:]), answers[8:]


def test_completion_of_session_ids(client):
    session = create(client, "bash")
    found = client.ask("completion/complete", {"ref": {"type": "ref/resource", "uri": "hermes://session/{id}/file{+path}"},
                                               "argument": {"name": "id", "value": session[:8]}})
    assert session in found["completion"]["values"]


def test_prompts(server):
    for client in both(server, path="/mcp/full"):
        got = client.ask("prompts/get", {"name": "solve_problem", "arguments": {"problem": "add two numbers", "language": "go"}})
        assert "in go" in got["messages"][0]["content"]["text"]
        assert client.send("prompts/get", {"name": "analyze_data", "arguments": {}})[1][-1]["error"]["code"] == -32602


def test_surfaces_have_sessions_of_their_own(server):
    client = Legacy(server, path="/mcp/full")
    client.path = "/mcp"
    assert client.send("ping")[0].status == 404


def test_lists_of_many_resources_have_pages(client):
    session = create(client, "bash")
    client.call("shell", session_id=session, command="for i in $(seq 250); do echo > f$i; done")
    names, cursor, pages = [], None, 0
    while True:
        got = client.ask("resources/list", {"cursor": cursor} if cursor else {})
        names += [r["name"] for r in got["resources"] if session in r["uri"]]
        pages += 1
        cursor = got.get("nextCursor")
        if not cursor:
            break
    assert len(set(names)) == 250 and pages >= 3


def test_quotas_are_those_of_the_api(make_server, tmp_path):
    server = make_server(args=["--max-sessions-per-key", "1"])
    client = Modern(server, path="/mcp/full")
    session = create(client, "bash")
    refused = client.call("session_create", language="bash")
    assert refused["isError"] and json.dumps(refused).count("session")
    client.call("session_close", session_id=session)
    assert wait_until(lambda: not client.call("session_create", language="bash").get("isError"), 30)
