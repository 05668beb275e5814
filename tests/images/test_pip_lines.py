# SPDX-License-Identifier: Apache-2.0
"""`%pip install` and `!pip install` in code of a session: the packages route of the same session, while the code waits."""
import json
import re
import threading

import pytest

from apilib import wait_until
from test_packages import VERSION, execute, is_building, make, said, start  # noqa: F401


def failed(server, session, code, **fields):
    answer = execute(server, session, code, **{"timeout_ms": 120000, **fields})
    assert answer["status"] == "runtime_error", answer
    return answer["error"]


@pytest.mark.parametrize("sign", "%!")
def test_the_next_line_sees_the_packages(server, sign):
    session = start(server)
    assert failed(server, session, VERSION)["name"] == "ModuleNotFoundError"  # the control
    answer = execute(server, session, "x = 41\n%spip install hermes-probe==1.0\n%s\nprint(x + 1)" % (sign, VERSION))
    assert answer["status"] == "ok" and answer["error"] is None, answer
    assert answer["stdout"] == "Successfully installed hermes-probe-1.0\n1.0\n42\n"
    assert "hermes: installing requirements" in answer["stderr"]  # progress is output of the exec
    assert said(server, session, VERSION + "\nprint(x)") == "1.0\n41\n"  # and stays
    # what is there is not installed again; -q leaves the log out
    answer = execute(server, session, "%pip install -q hermes-probe==1.0\n%pip install hermes-probe")
    assert (answer["stdout"], answer["status"]) == ("Requirement already satisfied\n", "ok")
    answer = execute(server, session, "%pip install -q hermes-needs-probe  # quiet\nimport hermes_needs_probe")
    assert (answer["stdout"], answer["stderr"], answer["status"]) == ("", "", "ok")


def test_it_is_the_packages_route(server):
    """The same image as the route makes: one mechanism, and a copy of the session has it."""
    one, other = start(server), start(server)
    said(server, one, "%pip install -q hermes-probe==1.0")
    reply = server("POST", "/v1/sessions/%s/packages" % other, {"manager": "pip", "packages": ["hermes-probe==1.0"]})
    assert reply.status == 200 and reply.json()["log"] == ""  # it was built already
    image = [server("GET", "/v1/sessions/" + s).json()["image"] for s in (one, other)]
    assert image[0] == image[1]
    copy = server("POST", "/v1/sessions/%s/fork" % one, {}).json()["sessions"][0]["id"]
    assert said(server, copy, VERSION) == "1.0\n"
    assert server("POST", "/v1/sessions/%s/commit" % one, {"name": "mine"}).status == 201
    assert server.run("python", VERSION, image="mine").json()["stdout"] == "1.0\n"


def test_inside_of_code(server):
    """In a loop, in a function, with a name of the code; a string that looks like it stays a string."""
    session = start(server)
    answer = execute(server, session, 'text = """\n%pip install hermes-missing\n"""\nversion = "1.0"\n'
                     "def get(name):\n    !pip install -q {name}=={version}\nfor name in ['hermes-probe']:\n    get(name)\n" + VERSION)
    assert answer["status"] == "ok" and answer["stdout"] == "1.0\n", answer
    # errors are exceptions, which code can catch
    answer = execute(server, session, "try:\n    %pip install -q hermes-missing\nexcept Exception as e:\n    print(type(e).__name__)")
    assert answer["stdout"] == "PackageError\n" and answer["status"] == "ok", answer


def test_other_uses_of_pip_are_ordinary_programs(server):
    session = start(server)
    for line in "!pip --version", "%pip list", "x = !pip install hermes-probe", "!echo pip install hermes-probe":
        execute(server, session, line)
    assert server("GET", "/v1/sessions/" + session).json()["image"] is None
    assert server("GET", "/v1/images").json()["images"] == []
    assert said(server, session, "!echo pip install x; echo two") == "pip install x\ntwo\n"


def test_errors_say_what_is_wrong(server):
    session = start(server)
    for package, word in (("hermes-missing", "hermes-missing"), ("hermes-probe==9", "hermes-probe==9"),
                          ("hermes-far", "the host far.example.com is not among registry_hosts"),
                          ("http://far.example.com/x-1.0-py3-none-any.whl", "the host far.example.com is not among registry_hosts")):
        error = failed(server, session, "%pip install " + package + "\nprint('not reached')")
        assert error["name"] == "PackageError" and word in error["value"] and len(error["traceback"]) == 1, error
    assert said(server, session, "print(1)") == "1\n"
    assert "%pip install" in failed(server, session, "%conda install x")["value"]


HOSTILE = {
    "-r /etc/passwd": "-r", "-r/etc/passwd x": "-r", "--index-url http://far.example.com x": "--index-url",
    "--index-url=http://far.example.com/simple x": "operator chooses", "-e .": "-e", "--target /box x": "--target",
    "--upgrade x": "NAME==VERSION", "--python /usr/bin/python3 x": "--python", "./x": "files of the session",
    "/box/x.whl": "files of the session", "x-1.0.tar.gz": "files of the session", "file:///box/x.whl": "files of the session",
    "x; touch /box/mark": "no shell", "x && touch /box/mark": "no shell", "x | tee /box/mark": "no shell",
    "$(touch /box/mark)": "no shell", "`touch /box/mark`": "no shell", "x > /box/mark": "not the name",
    "x\\\n; touch /box/mark": "no shell", "a\x01b": "control", "a\x1b[31mb": "control", "'a": "closing quotation",
    "": "nothing to install", "hermes-probe >= 1": "without spaces", "\u0301": "not the name", "a" * 20000: "characters",
    "a" * 600: "512 bytes", " ".join("p%d" % i for i in range(1001)): "1 to 1000",
}


def test_a_hostile_line_is_an_error_and_nothing_runs(server):
    session = start(server)
    for text, word in HOSTILE.items():
        for sign in "%!":
            answer = execute(server, session, sign + "pip install " + text)
            assert answer["error"] and word in answer["error"]["value"], (sign, text[:80], answer)
    assert said(server, session, "import os; print(os.listdir('/box'))") == "[]\n"
    assert server("GET", "/v1/images").json()["images"] == []


# What the interpreter sends is the code's own choice: the server must not rely on its checks.
FORGE = "import os\ndef send(payload, kind=b'install'):\n    os.write(3, b'%s %d\\n' % (kind, len(payload)) + payload)\n"


@pytest.mark.parametrize("payload, word", [
    ('{"id":7,"quiet":true,"packages":["-r /etc/passwd"]}', "options of the installer"),
    ('{"id":7,"quiet":true,"packages":["a\\nb"]}', "control characters"),
    ('{"id":7,"quiet":true,"packages":[]}', "1 to 1000"), ('{"id":7,"quiet":true,"packages":{}}', "1 to 1000"),
    ('{"id":7,"quiet":true,"packages":[1]}', "must be a string")])
def test_a_forged_request_is_checked_by_the_server(server, payload, word):
    session = start(server)
    code = FORGE + "send(%r)\nimport time\ndata = b''\nwhile b'}' not in data:\n    data += os.read(3, 4096)\nprint(data.decode())" % payload.encode()
    assert word in said(server, session, code)
    assert said(server, session, "print(2)") == "2\n"


@pytest.mark.parametrize("payload", ["{}", "[]", '{"id":"x","quiet":true,"packages":["a"]}', '{"id":1,"quiet":true,"packages":["a"],"more":1}'])
def test_a_malformed_request_ends_the_session(server, payload):
    session = start(server)
    answer = execute(server, session, FORGE + "send(%r)\nimport time\ntime.sleep(60)" % payload.encode())
    assert answer["state_lost"] and "channel" in answer["message"], answer


def test_requests_in_a_row_are_one_build_at_a_time(server):
    """A forged flood: each one replaces the one before."""
    session = start(server)
    answer = execute(server, session, FORGE + "for i in range(1, 30):\n    send(b'{\"id\":%d,\"quiet\":true,\"packages\":[\"hermes-slow\"]}' % i)")
    assert answer["status"] == "ok", answer
    assert not is_building(server)  # the end of the exec ended the build
    assert said(server, session, "%pip install -q hermes-probe==1.0\n" + VERSION) == "1.0\n"


# --- time, and the end of an exec


def begin(server, session, code, **fields):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(execute(server, session, code, **fields)))
    thread.start()
    return thread, answers


def test_the_build_has_its_own_time(server):
    """hermes-nap builds for 8 seconds: more than the exec may take, and less than a build may."""
    session = start(server)
    answer = execute(server, session, "%pip install -q hermes-nap\nimport hermes_nap\nprint('seen')", timeout_ms=5000)
    assert answer["status"] == "ok" and answer["stdout"] == "seen\n", answer
    assert answer["usage"]["wall_ms"] < 5000
    answer = execute(server, session, "import time; time.sleep(60)", timeout_ms=500)  # the control
    assert answer["status"] == "time_limit"


def test_an_interrupt_ends_the_build(server):
    session = start(server)
    thread, answers = begin(server, session, "x = 1\n%pip install hermes-slow")
    assert wait_until(lambda: is_building(server), 60)
    assert server("POST", "/v1/sessions/%s/interrupt" % session).status in (200, 202, 204)
    thread.join(60)
    assert not thread.is_alive() and answers[0]["error"]["name"] == "KeyboardInterrupt", answers
    assert wait_until(lambda: not is_building(server), 60)
    assert said(server, session, "print(x)") == "1\n"


def test_the_end_of_the_session_ends_the_build(server):
    session = start(server)
    thread, answers = begin(server, session, "%pip install hermes-slow")
    assert wait_until(lambda: is_building(server), 60)
    assert server("DELETE", "/v1/sessions/" + session).status == 204
    thread.join(60)
    assert not thread.is_alive()
    assert wait_until(lambda: not is_building(server), 60)


def test_a_caller_that_leaves_ends_the_build(server):
    session = start(server)
    connection = server.connect()
    connection.request("POST", "/v1/sessions/%s/exec" % session, json.dumps({"code": "%pip install hermes-slow"}),
                       {"Content-Type": "application/json"})
    assert wait_until(lambda: is_building(server), 60)
    connection.close()
    assert wait_until(lambda: not is_building(server), 60)
    assert wait_until(lambda: execute(server, session, "print(1)").get("stdout") == "1\n", 60)


def test_the_log_is_live(server):
    session = start(server)
    reply = server("POST", "/v1/sessions/%s/exec" % session, {"code": "%pip install hermes-probe==1.0"},
                   headers={"Accept": "text/event-stream"})
    events = re.findall(r"^event: (\w+)\ndata: (.*)$", reply.body.decode(), re.M)
    texts = [json.loads(data).get("text", json.loads(data).get("data", "")) for name, data in events if name == "stderr"]
    assert len(texts) > 1 and "hermes: installing requirements" in "".join(texts), events


def test_with_one_place_for_all(make):
    """The exec gives its place back, so that the build can have one."""
    server = make(HERMES_CONCURRENCY="1")
    session = start(server)
    assert said(server, session, "%pip install -q hermes-probe==1.0\n" + VERSION) == "1.0\n"


def test_each_forged_request_is_answered(server):
    """The check fails at once, in a thread of its own, while the session still begins the installation."""
    session = start(server)
    code = FORGE + ("for i in range(2000):\n    send(b'{\"id\":%d,\"quiet\":true,\"packages\":[]}' % i)\n    data = b''\n"
                    "    while b'}' not in data:\n        data += os.read(3, 4096)\n    assert b'\"id\":%d,' % i in data, data\nprint('all')")
    assert said(server, session, code) == "all\n"
