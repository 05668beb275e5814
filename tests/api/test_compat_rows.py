# SPDX-License-Identifier: Apache-2.0
"""The code runner's routes, row by row: method, path, key, body, status, and what the answer has. What each row means is
in test_compat_runner.py and test_compat_prebuild.py; this is the whole table at a glance, with and without keys."""
import pytest

from serving import serve

BIG = "#" * ((1 << 20) + 1)
RUN = ["stdout", "stderr", "exit_code", "execution_time", "metadata"]
HELLO = {"code": "print('hello world')"}
GONE = {"tag": "gone", "setup_script": "echo why; exit 1"}
TEXT, LIST = "detail as a text", "detail as a list"

# method, path, body, status without keys, members of the answer; the routes that need no key say so
ROWS = [
    ("GET", "/health", None, 200, {"status", "docker_connected", "auth_enabled"}, "open"),
    ("GET", "/images", None, 200, {"images", "default"}, "open"),
    ("GET", "/runtimes", None, 200, {"images", "default"}, "open"),
    ("POST", "/run", HELLO, 200, set(RUN), ""),
    ("POST", "/run", {"code": "", "entrypoint": "true"}, 200, set(RUN), ""),
    ("POST", "/run", dict(HELLO, unknown=[1]), 200, set(RUN), ""),
    ("POST", "/run", dict(HELLO, timeout=0), 200, set(RUN), ""),
    ("POST", "/run", {"code": ""}, 400, TEXT, ""),
    ("POST", "/run", dict(HELLO, files={"../a.py": ""}), 400, TEXT, ""),
    ("POST", "/run", dict(HELLO, files={"/a.py": ""}), 400, TEXT, ""),
    ("POST", "/run", dict(HELLO, image="unsupported"), 404, TEXT, ""),
    ("POST", "/run", dict(HELLO, image="prebuilt-x"), 404, TEXT, ""),
    ("POST", "/run", {"code": BIG}, 413, TEXT, ""),
    ("POST", "/run", {}, 422, LIST, ""),
    ("POST", "/run", "{", 422, LIST, ""),
    ("POST", "/run", None, 422, LIST, ""),
    ("POST", "/run", dict(HELLO, environment={"ENCODED_CODE": "x"}), 422, LIST, ""),
    ("POST", "/run", dict(HELLO, prebuild_spec={}), 422, LIST, ""),
    ("POST", "/run", dict(HELLO, image="x", prebuild_spec={"base_image": "ruby", "setup_script": ""}), 503, TEXT, ""),
    ("GET", "/run", None, 405, TEXT, ""),
    ("POST", "/prebuild", GONE, 400, TEXT, ""),
    ("POST", "/prebuild", {"tag": "x"}, 422, LIST, ""),
    ("POST", "/prebuild", dict(GONE, tag=""), 422, LIST, ""),
    ("POST", "/prebuild", dict(GONE, tag="a b"), 422, LIST, ""),
    ("POST", "/prebuild", dict(GONE, base_image="invalid"), 422, LIST, ""),
    ("GET", "/prebuild", None, 405, TEXT, ""),
    ("GET", "/prebuilds", None, 200, {"prebuilds"}, ""),
    ("GET", "/prebuilds/nope", None, 404, TEXT, ""),
    ("DELETE", "/prebuilds/nope", None, 404, TEXT, ""),
    ("POST", "/prebuilds/cleanup", None, 200, {"removed", "count"}, ""),
    ("POST", "/prebuilds/cleanup?max_age_days=0", None, 200, {"removed", "count"}, ""),
    ("POST", "/prebuilds/cleanup?max_age_days=-1", None, 422, LIST, ""),
    ("POST", "/prebuilds/cleanup?max_age_days=x", None, 422, LIST, ""),
]


def check(reply, status, members):
    assert reply.status == status, reply
    answer = reply.json()
    if members in (TEXT, LIST):
        assert list(answer) == ["detail"] and type(answer["detail"]) is (str if members == TEXT else list), reply
    else:
        assert members <= set(answer), reply


@pytest.mark.parametrize("method,path,body,status,members,key", ROWS)
def test_without_keys(server, method, path, body, status, members, key):
    check(server(method, path, body), status, members)


@pytest.fixture(scope="module")
def keyed():
    yield from serve(env={"CODE_RUNNER_API_KEYS": "key-1,key-2", "AUTH_TOKEN": "token"})


def test_with_keys(keyed):
    """No body is looked at before the key. A wrong X-API-Key is 403, anything else that is wrong 401."""
    for method, path, body, status, members, key in ROWS:
        if key == "open" or status == 405:
            assert keyed(method, path, body).status == status
            continue
        check(keyed(method, path, body), 401, TEXT)
        check(keyed(method, path, body, {"Authorization": "Bearer wrong"}), 401, TEXT)
        check(keyed(method, path, body, {"X-API-Key": "wrong"}), 403, TEXT)
        if status < 400:
            for good in {"X-API-Key": "key-2"}, {"Authorization": "Bearer token"}:
                check(keyed(method, path, body, good), status, members)
    assert keyed("GET", "/health").json()["auth_enabled"] is True
