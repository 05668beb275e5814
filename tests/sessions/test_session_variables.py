# SPDX-License-Identifier: Apache-2.0
"""GET /v1/sessions/{id}/variables: names, types and short values, made without calling user code."""
import pytest


def variables(one):
    reply = one.call("GET", "/variables")
    assert reply.status == 200, reply
    answer = reply.json()
    assert set(answer) == {"variables", "more"}
    return {row["name"]: row for row in answer["variables"]}


def test_python(session):
    one = session("python")
    assert variables(one) == {}
    one.exec("x = 41 + 1\nname = 'abc'\nmany = list(range(100))\ntable = {'a': [1, (2, [3])]}\nimport json\n"
             "def f(): pass\nclass C: pass\nc = C()\n_hidden = 1")
    found = variables(one)
    assert found["x"] == {"name": "x", "type": "int", "size": None, "preview": "42"}
    assert found["name"] == {"name": "name", "type": "str", "size": 3, "preview": "'abc'"}
    assert found["many"]["size"] == 100 and found["many"]["preview"].startswith("[0, 1, 2") \
        and found["many"]["preview"].endswith("…]")
    assert found["table"]["preview"] == "{'a': [1, (…)]}"
    assert found["json"]["preview"] == "<module json>" and found["f"]["preview"] == "<function f>"
    assert (found["C"]["type"], found["c"]["type"], found["c"]["preview"]) == ("type", "C", "<C>")
    assert "_hidden" not in found and "In" not in found and "exit" not in found
    one.exec("del x")
    assert "x" not in variables(one)


def test_javascript(session):
    one = session("javascript")
    assert variables(one) == {}
    one.exec("const x = 42; let name = 'abc'; var list = [1, 2, 3]; class C {}; function f() { return 1 }\n"
             "const o = {a: 1, b: 'x'}; const big = 10n; const m = new Map([[1, 2]]); let nothing;")
    found = variables(one)
    assert found["x"] == {"name": "x", "type": "number", "size": None, "preview": "42"}
    assert found["name"] == {"name": "name", "type": "string", "size": 3, "preview": '"abc"'}
    assert found["list"] == {"name": "list", "type": "Array", "size": 3, "preview": "[1, 2, 3]"}
    assert found["o"]["preview"] == '{a: 1, b: "x"}'
    assert found["big"]["preview"] == "10n" and found["m"]["size"] == 1
    assert found["nothing"]["preview"] == "undefined"
    assert found["f"]["preview"].startswith("function f()") and found["C"]["preview"] == "class C {}"
    assert set(found) == {"x", "name", "list", "C", "f", "o", "big", "m", "nothing"}


def test_bash(session):
    one = session("bash", env={"GIVEN": "by the caller"})
    one.exec("x=42; declare -i n=3; a=(1 2); declare -A m=([k]=v); export e='two words'; text=$'a\\nb'\n"
             "f() { echo '\ndeclare -- not_a_variable=1'; }")
    found = variables(one)
    assert found["x"] == {"name": "x", "type": "string", "size": None, "preview": '"42"'}
    assert (found["n"]["type"], found["a"]["type"], found["m"]["type"]) == ("integer", "array", "map")
    assert found["e"]["preview"] == '"two words"' and found["text"]["preview"] == "$'a\\nb'"
    assert found["GIVEN"]["preview"] == '"by the caller"'
    assert set(found) == {"x", "n", "a", "m", "e", "text", "GIVEN"}
    assert one.out("echo $x $?") == "42 0\n"
    one.exec("false")
    assert variables(one)["x"]["preview"] == '"42"'
    assert one.out("echo $?") == "1\n"  # asking has not changed it


HOSTILE = {
    "python": """
import time
class Trap(type):
    @property
    def __name__(cls): time.sleep(100)
class Slow(metaclass=Trap):
    def __repr__(self): time.sleep(100)
    def __len__(self): time.sleep(100)
    def __getattribute__(self, name): time.sleep(100)
    shape = property(lambda self: time.sleep(100))
class Text(str):
    def __repr__(self): time.sleep(100)
slow, text, inside = Slow(), Text('x'), [Slow(), {'k': Text('y')}]
huge = 1 << 1000000
wide = {i: 'x' * 1000 for i in range(1000)}
loop = []; loop.append(loop)
surrogate = 'a\\ud800'
""",
    "javascript": """
const slow = { get x() { for (;;) {} }, [Symbol.toStringTag]: 'x', toString() { for (;;) {} } };
Object.defineProperty(globalThis, 'trap', { get() { for (;;) {} }, enumerable: true });
const proxy = new Proxy({}, { get() { for (;;) {} }, ownKeys() { for (;;) {} }, getPrototypeOf() { for (;;) {} } });
const text = 'x'.repeat(1e6); const wide = Array.from({ length: 1e5 }, () => 'y'.repeat(100));
String.prototype.slice = () => { for (;;) {} }; Array.prototype.map = () => { for (;;) {} };
Object.getOwnPropertyNames = () => { for (;;) {} };
const surrogate = 'a\\ud800';
""",
    "bash": """
slow=$(printf 'x%.0s' {1..5000}); for i in {1..50}; do declare "v$i=$i"; done
declare() { sleep 100; }; printf() { sleep 100; }
bad=$'\\xff\\xfe'
""",
}


@pytest.mark.parametrize("language", HOSTILE)
def test_values_that_trap(session, language):
    """No method, getter, proxy or function of the user is called; the session stays as it was."""
    one = session(language)
    assert one.exec(HOSTILE[language])["status"] == "ok"
    found = variables(one)
    assert "slow" in found
    for row in found.values():
        assert len(row["preview"]) <= 200 and len(row["type"]) <= 200
    assert one.exec({"python": "1", "javascript": "1", "bash": ":"}[language])["status"] == "ok"


def test_many_are_cut(session):
    one = session("python")
    one.exec("for i in range(1500): globals()['v%04d' % i] = i")
    answer = one.call("GET", "/variables").json()
    assert len(answer["variables"]) == 1000 and answer["more"] == 501  # and i


def test_a_busy_session_refuses(session):
    one = session("python")
    running = one.later("import time\nopen('begun', 'w').close()\nwhile True: time.sleep(0.01)")
    while one.call("GET", "/files/begun").status != 200:
        pass
    assert one.call("GET", "/variables").status == 409
    one.call("POST", "/interrupt")
    assert running.result().status == 200


@pytest.mark.parametrize("lie", ["{}", "[]", '{"variables":[{}],"more":0}', '{"variables":[],"more":"x"}',
                                 '{"variables":[{"name":"a","type":"b","size":1.5,"preview":""}],"more":0}'])
def test_a_hostile_interpreter_ends(session, lie):
    """User code can replace the function that answers. An answer of the wrong shape ends the session and nothing else."""
    one = session("python")
    one.exec("import json, sys\nframe = sys._getframe()\n"
             "while 'kernel_variables' not in frame.f_globals: frame = frame.f_back\n"
             "frame.f_globals['kernel_variables'].describe = lambda *args: json.loads(%r)" % lie)
    reply = one.call("GET", "/variables")
    assert reply.status == 409, reply
    assert one.state()["state"] == "dead"
