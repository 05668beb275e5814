# SPDX-License-Identifier: Apache-2.0
"""Tools that the caller offers to the code of an exec."""
import pytest

TOOLS = [{"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": "integer"}}}}, {"name": "fail"}]


def answering(s, calls, **answers):
    """Answers tool calls as they come."""
    def on_event(name, data):
        if name == "tool_call":
            calls.append(data)
            answer = answers[data["name"]](data["input"])
            reply = s.call("POST", "/tool_results", dict(id=data["id"], **answer))
            assert reply.status == 204, reply
    return on_event


def test_calls(session):
    s = session()
    calls = []
    code = ("from hermes_tools import add, fail\nprint(add(a=2, b=3))\n"
            "try: fail()\nexcept Exception as e: print('failed:', e)\nprint(add(a=1, b=1)['sum'])")
    events = s.stream(code, answering(s, calls, add=lambda i: {"output": {"sum": i["a"] + i["b"]}},
                                      fail=lambda i: {"error": "no way"}), tools=TOOLS)
    end = events[-1][1]
    assert end["status"] == "ok" and end["tool_calls"] == 3, end
    assert end["stdout"].startswith("{'sum': 5}\nfailed:") and "no way" in end["stdout"]
    assert end["stdout"].endswith("2\n")
    assert [c["name"] for c in calls] == ["add", "fail", "add"] and calls[0]["input"] == {"a": 2, "b": 3}
    assert len({c["id"] for c in calls}) == 3


# How code that knows the channel asks for a tool: the kernel is not asked.
RAW = r'''
import os, json, socket
def raw(call, answers=1):
    data = json.dumps(call).encode()
    os.write(3, b"tool_call %d\n" % len(data) + data)
    got = b""
    while b"\n" not in got or len(got) < got.index(b"\n") + 1 + int(got.split(b"\n")[0].split()[1]):
        got += os.read(3, 65536)
    return json.loads(got.split(b"\n", 1)[1])
'''


def test_only_what_was_offered(session):
    s = session()
    calls = []
    code = RAW + "print(raw({'id': 'mine', 'name': 'rm', 'input': {}}))"
    end = s.stream(code, answering(s, calls), tools=TOOLS)[-1][1]
    assert "not offered" in end["stdout"] and not calls and end["tool_calls"] == 0, end
    # In an exec without tools there are none, also those of the one before.
    end = s.stream(RAW + "print(raw({'id': 'mine', 'name': 'add', 'input': {}}))")[-1][1]
    assert "not offered" in end["stdout"], end
    assert s.exec("from hermes_tools import add\nadd(a=1, b=2)")["status"] == "runtime_error"


def test_budget(session):
    s = session()
    calls = []
    code = ("from hermes_tools import add\nfor i in range(4):\n    try: print(add(a=i, b=0))\n"
            "    except Exception as e: print('refused:', e)")
    end = s.stream(code, answering(s, calls, add=lambda i: {"output": i["a"]}), tools=TOOLS,
                   max_tool_calls=2)[-1][1]
    assert len(calls) == 2 == end["tool_calls"]
    assert end["stdout"].count("refused:") == 2 and "budget" in end["stdout"]


def test_nobody_answers(session):
    s = session()
    code = "from hermes_tools import add\ntry: add(a=1, b=1)\nexcept Exception as e: print(e)"
    end = s.stream(code, tools=TOOLS, tool_timeout_ms=300)[-1][1]
    assert end["status"] == "ok" and "in time" in end["stdout"], end
    # A timeout of the exec ends the wait as well.
    end = s.stream("from hermes_tools import add\nadd(a=1, b=1)", tools=TOOLS, timeout_ms=300)[-1][1]
    assert end["status"] == "time_limit" and not end["state_lost"], end


def test_size_caps(session):
    s = session()
    calls = []
    code = "from hermes_tools import add\ntry: add(a='x' * (2 << 20), b=1)\nexcept Exception as e: print(e)"
    end = s.stream(code, answering(s, calls), tools=TOOLS)[-1][1]
    assert "is the most" in end["stdout"] and not calls, end
    end = s.stream(RAW + "print(raw({'id': 'mine', 'name': 'add', 'input': {'a': 'x' * (2 << 20)}}))",
                   answering(s, calls), tools=TOOLS)[-1][1]
    assert "too large" in end["stdout"] and not calls, end
    replies = []

    def on_event(name, data):
        if name == "tool_call":
            replies.append(s.call("POST", "/tool_results", {"id": data["id"], "output": "x" * (2 << 20)}).status)
            replies.append(s.call("POST", "/tool_results", {"id": data["id"], "output": 1}).status)
            replies.append(s.call("POST", "/tool_results", {"id": data["id"], "output": 2}).status)
    end = s.stream("from hermes_tools import add\nprint(add(a=1, b=1))", on_event, tools=TOOLS)[-1][1]
    assert end["stdout"] == "1\n" and replies[:2] == [413, 204] and replies[2] in (404, 409)


BAD_TOOLS = [3, {}, [3], [{}], [{"name": "1x"}], [{"name": "a b"}], [{"name": "x", "y": 1}], [{"name": "x"}, {"name": "x"}],
             [{"name": "x", "description": 1}], [{"name": "x", "input_schema": []}], [{"name": "x" * 65}],
             [{"name": "x%d" % i} for i in range(129)]]


@pytest.mark.parametrize("tools", BAD_TOOLS, ids=range(len(BAD_TOOLS)))
def test_bad_tools(session, tools):
    s = session()
    reply = s.call("POST", "/exec", {"code": "1", "tools": tools}, {"Accept": "text/event-stream"})
    assert reply.status == 400 and reply.json()["error"]["field"], reply
    assert s.out("print(1)") == "1\n"


def test_tools_need_a_stream(session):
    reply = session().post("1", tools=TOOLS)
    assert reply.status == 400 and reply.json()["error"]["field"] == "tools"


def test_answers_nobody_asked_for(session):
    s = session()
    for body, status in (({"id": "x", "output": 1}, 404), ({"id": "", "output": 1}, 404), ({"output": 1}, 400),
                         ({"id": "x"}, 400), ({"id": "x", "output": 1, "error": "y"}, 400),
                         ({"id": "x", "error": 3}, 400), ({"id": "x", "output": 1, "z": 1}, 400)):
        assert s.call("POST", "/tool_results", body).status == status, body
