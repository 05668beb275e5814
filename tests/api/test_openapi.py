# SPDX-License-Identifier: Apache-2.0
"""The API document says what the server does: its routes, the fields that the decoders know, their
bounds, its own examples and those of docs/."""
import copy
import json
import re

import pytest

import contract
from apilib import ROOT
from serving import serve

DOCUMENT = contract.load()
SCHEMAS = DOCUMENT["components"]["schemas"]


def schema(name):
    return {"$ref": "#/components/schemas/" + name}


def test_answers_are_checked():
    assert contract.fastjsonschema, "python3-fastjsonschema is missing: make install-deps"


def test_a_server_with_the_same_bounds_serves_the_built_document(server):
    served = server("GET", "/openapi.json").json()
    for bounds in (served, DOCUMENT):
        for name in ("memory_mb", "processes", "disk_mb"):  # they depend on the machine
            del bounds["components"]["schemas"]["Limits"]["properties"][name]["maximum"]
    try:
        assert served == DOCUMENT
    finally:
        DOCUMENT.update(contract.load())


def test_bounds_are_those_of_the_server(make_server):
    server = make_server(args=["--max-wall-ms", "1234", "--max-cpus", "1.5"])
    schemas = server("GET", "/openapi.json").json()["components"]["schemas"]
    assert schemas["Limits"]["properties"]["wall_ms"]["maximum"] == 1234
    assert schemas["Limits"]["properties"]["cpus"]["maximum"] == 1.5
    assert schemas["ExecRequest"]["properties"]["timeout_ms"]["maximum"] == 1234


def test_routes_and_operations_are_the_same():
    source = (ROOT / "src/http/routes.c").read_text()
    rows = re.findall(r'\{"([A-Z]+)", "([^"]+)",', source)
    assert len(rows) > 40
    found = [(method, path) for method, path, _ in contract.operations(DOCUMENT)]
    assert sorted(found) == sorted((method, path.replace("...", "")) for method, path in rows)


def test_every_operation_is_whole():
    ids = set()
    for method, path, operation in contract.operations(DOCUMENT):
        what = method + " " + path
        assert operation["summary"] and len(operation["tags"]) == 1, what
        assert operation["operationId"] not in ids, what
        ids.add(operation["operationId"])
        named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path)), what
        for status, response in operation["responses"].items():
            response = contract.deref(DOCUMENT, response)
            assert response["description"], (what, status)
            if status not in ("101", "201", "204") and (status, path[:4]) != ("202", "/mcp"):
                assert response.get("content"), (what, status)


def test_every_schema_is_used():
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)))
    assert used == set(SCHEMAS)


# ---- fields. A location is a request, the place of an object in it, and the object's schema. The
# value `wrong` fits no field of the object, or is at least not ignored.

CODE = {"language": "bash", "code": ":"}
TESTS = dict(CODE, tests=[{"name": "a"}])
PROGRAM = {"language": "bash", "code": ":"}
LOCATIONS = [
    ("POST /v1/runs", CODE, [], "RunRequest"),
    ("POST /v1/runs", dict(CODE, files=[{"name": "a", "content": ""}]), ["files", 0], "InputFile"),
    ("POST /v1/runs", dict(CODE, limits={}), ["limits"], "Limits"),
    ("POST /v1/runs", dict(CODE, language="c", compile_limits={}), ["compile_limits"], "Limits"),
    ("POST /v1/runs", dict(CODE, mounts=[{"name": "a", "path": "/mnt/a"}]), ["mounts", 0], "Mount", "ro"),
    ("POST /v1/judge", TESTS, [], "JudgeRequest"),
    ("POST /v1/judge", TESTS, ["tests", 0], "JudgeTestRequest"),
    ("POST /v1/judge", dict(TESTS, groups=[{"name": "g", "tests": ["a"]}]), ["groups", 0], "JudgeGroupRequest"),
    ("POST /v1/judge", dict(TESTS, compare={"float": {}}), ["compare", "float"], "Tolerance"),
    ("POST /v1/judge", dict(TESTS, compare={"checker": PROGRAM}), ["compare", "checker"], "Program"),
    ("POST /v1/judge", dict(TESTS, interactor=PROGRAM), ["interactor"], "Program"),
    ("POST /v1/sessions", {"language": "bash"}, [], "SessionRequest"),
    ("PATCH /v1/sessions/{id}", {"network": "none"}, [], "SessionChange"),
    ("POST /v1/sessions/{id}/exec", {"code": ":"}, [], "ExecRequest"),
    ("POST /v1/sessions/{id}/exec", {"code": ":", "tools": [{"name": "t"}]}, ["tools", 0], "Tool"),
    ("POST /v1/sessions/{id}/tool_results", {"id": "1", "output": 1}, [], "ToolResult"),
    ("POST /v1/sessions/{id}/fork", {}, [], "ForkRequest"),
    ("POST /v1/sessions/{id}/checkpoints", {}, [], "CheckpointRequest"),
    ("POST /v1/sessions/{id}/rollback", {"checkpoint": "a"}, [], "RollbackRequest"),
    ("POST /v1/sessions/{id}/packages", {"manager": "pip", "packages": ["a"]}, [], "PackagesRequest"),
    ("POST /v1/sessions/{id}/commit", {"name": "a"}, [], "CommitRequest"),
    ("POST /v1/approvals/{id}", {"decision": "deny"}, [], "ApprovalDecision"),
    ("PUT /v1/approvals/rules", {"rules": []}, [], "ApprovalRules"),
    ("PUT /v1/approvals/rules", {"rules": [{"effect": "mount_rw", "match": {}, "decision": "deny", "examples": {
        "match": [{"mount": "a", "path": "/mnt/a"}]}}]}, ["rules", 0], "ApprovalRule"),
    ("POST /v1/selftest", {"ids": ["O-07"]}, [], "SelftestRequest"),
    ("POST /v1/images", {"language": "python", "packages": {"pip": ["a"]}}, [], "ImageRequest"),
    ("POST /v1/images", {"language": "python", "packages": {"pip": ["a"]}}, ["packages"], "ImagePackages"),
    ("POST /execute", {"language": "none", "code": ""}, [], "ExecuteRequest"),
    ("POST /execute", {"language": "none", "code": "", "limits": {}}, ["limits"], "ExecuteLimits"),
    ("POST /v2/execute", {"language": "none", "entry_file": "a", "files": [{"name": "a", "content": ""}]}, [],
     "ExecuteFilesRequest"),
    ("POST /v2/execute", {"language": "none", "entry_file": "a", "files": [{"name": "a", "content": ""}]},
     ["files", 0], "ExecuteFile"),
    ("POST /run", {"code": "", "image": "none"}, [], "RunnerRequest"),
    ("POST /run", {"code": "", "image": "none", "prebuild_spec": {"base_image": "a", "setup_script": ""}},
     ["prebuild_spec"], "RunnerPrebuildSpec"),
    ("POST /prebuild", {"tag": "a", "setup_script": ""}, [], "RunnerPrebuild"),
]


@pytest.fixture(scope="module")
def own():
    yield from serve()


@pytest.fixture(scope="module")
def asking(own):
    """Asks on one connection of a server of its own; {id} is a live session."""
    session = own("POST", "/v1/sessions", {"language": "bash"}).json()["id"]
    connection = own.connect()

    def ask(operation, body):
        method, path = operation.replace("{id}", session).split(" ")
        headers = {"Content-Type": "application/json"}
        if "tools" in body:
            headers["Accept"] = "text/event-stream"
        return own(method, path, json.dumps(body), headers, conn=connection)
    yield ask
    connection.close()
    assert own("DELETE", "/v1/sessions/" + session).status == 204


def placed(body, place, name, value):
    body = copy.deepcopy(body)
    at = body
    for step in place:
        at = at[step]
    at[name] = value
    return body


def words():
    """Every word that could be the name of a field: the literals of the code that decodes, and the
    fields of other objects."""
    found = set()
    sources = [*(ROOT / "src").rglob("*decode*.c"), *(ROOT / "src").rglob("*limits*.c"),
               *(ROOT / "src/http/compat").glob("*.c")]
    assert len(sources) >= 8
    for source in sources:
        found |= set(re.findall(r'"([a-z][a-z0-9_]*)"', source.read_text()))
    for item in SCHEMAS.values():
        found |= set(item.get("properties", ()))
    return sorted(found)


UNKNOWN = "zz_unknown_zz"


@pytest.mark.parametrize("location", LOCATIONS, ids=lambda l: "-".join([l[3], *map(str, l[2])]))
def test_a_decoder_knows_exactly_the_properties(asking, location):
    operation, body, place, name, *rest = location
    wrong = rest[0] if rest else [1]

    def outcome(*fields):
        changed = body
        for field in fields:
            changed = placed(changed, place, field, wrong)
        reply = asking(operation, changed)
        return reply.status, reply.body.decode()
    status, text = outcome(UNKNOWN)
    documented = set(SCHEMAS[name]["properties"])
    for word in sorted(documented):
        assert outcome(word) != (status, text.replace(UNKNOWN, word)), word
    others = [word for word in words() if word not in documented]
    if UNKNOWN not in text and name != "Mount":  # unknown fields are ignored, all at once
        assert outcome(*others) == (status, text)
        return
    for word in others:
        assert outcome(word) == (status, text.replace(UNKNOWN, word)), word


def test_every_request_schema_has_a_location():
    """Of objects: what a request consists of, without the two forms of `compare`, which have no field but one."""
    seen = set()

    def walk(node):
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, dict):
            name = node.get("$ref", "").rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                walk(SCHEMAS[name])
            for item in node.values():
                walk(item)
    for _, _, operation in contract.operations(DOCUMENT):
        walk(operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema"))
    objects = {name for name in seen if "properties" in SCHEMAS[name]}
    # Messages of MCP are JSON-RPC, which ignores unknown members; tests/mcp has their tests.
    assert objects - {"CompareFloat", "CompareChecker", "McpMessage", "McpErrorInfo"} == {location[3] for location in LOCATIONS}


# ---- bounds

def beyond(item):
    """Values just beyond each bound of a schema."""
    item = contract.deref(DOCUMENT, item)
    if "minimum" in item:
        yield item["minimum"] - (1 if item["type"] == "integer" else 0.01)
    if "maximum" in item:
        yield item["maximum"] + 1
    if item.get("minLength"):
        yield ""
    if "maxLength" in item and item["maxLength"] <= 1 << 17:
        yield "a" * (item["maxLength"] + 1)
    if "minItems" in item:
        yield []
    if "maxItems" in item:
        is_text = contract.deref(DOCUMENT, item["items"]).get("type") == "string"
        yield ["a" if is_text else {"name": "a", "content": ""}] * (item["maxItems"] + 1)
    if "maxProperties" in item:
        yield {"V%d" % i: "" for i in range(item["maxProperties"] + 1)}
    if "enum" in item:
        yield "none of these"


STRICT = [location for location in LOCATIONS if SCHEMAS[location[3]].get("additionalProperties") is False]


@pytest.mark.parametrize("location", STRICT, ids=lambda l: "-".join([l[3], *map(str, l[2])]))
def test_beyond_a_bound_is_refused(asking, location):
    operation, body, place, name, *_ = location
    tried = 0
    for field, item in SCHEMAS[name]["properties"].items():
        for value in beyond(item):
            reply = asking(operation, placed(body, place, field, value))
            assert reply.status in (400, 413), (field, str(value)[:100], reply)
            tried += 1
    assert tried or name in ("SessionChange", "Tool", "ToolResult")


@pytest.mark.parametrize("field,item", SCHEMAS["ExecuteLimits"]["properties"].items())
def test_bounds_of_the_rest_engine(server, field, item):
    def log(value):
        body = {"language": "bash", "code": ":", "limits": {field: value}}
        return server("POST", "/execute", body).json()["std_log"]
    for value in (item["minimum"] - 1, item["maximum"] + 1):
        assert log(value).endswith("limit invalid or exceeds max"), value
    assert "invalid" not in log(item["maximum"])


# ---- examples

def request_examples():
    for method, path, operation in contract.operations(DOCUMENT):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            for name, example in media.get("examples", {}).items():
                yield method, path, media["schema"], name, example["value"]


def test_request_examples_fit():
    found = list(request_examples())
    assert len(found) >= 12
    for method, path, item, name, value in found:
        contract.validator(DOCUMENT, item)(value)


def test_request_examples_work(own):
    """Those that need no session, and then those of a session."""
    for method, path, _, name, value in request_examples():
        if "{id}" not in path:
            reply = own(method, path, value)
            # tests/images has a registry, and an image to build upon
            lacks = {"/v1/images": 404 if "base" in value else 501}
            assert reply.status in (200, 201, lacks.get(path)), (path, name, reply)
            if reply.status == 201:
                assert own("DELETE", "/v1/sessions/" + reply.json()["id"]).status == 204
            if path == "/v1/judge":
                assert reply.json()["verdict"] == "accepted", reply
            elif path == "/v1/runs":
                assert reply.json()["status"] == "ok", reply


def test_an_exec_example_works(own):
    made = own("POST", "/v1/sessions", {"language": "python"}).json()["id"]
    for method, path, _, name, value in request_examples():
        if path.endswith("/exec"):
            reply = own(method, path.replace("{id}", made), value)
            assert reply.status == 200 and reply.json()["status"] == "ok", reply
    assert own("DELETE", "/v1/sessions/" + made).status == 204


# ---- docs/

PAGES = sorted((ROOT / "docs").rglob("*.md"))
CURL = re.compile(r"curl [^\n]*?(?:\\\n[^\n]*?)*?http://127\.0\.0\.1:8000(/[^\s\"']*)(.*?)-d '(.*?)'(?=[\s|)])", re.S)


def test_requests_of_the_docs_fit():
    checked = 0
    closed = contract.contract()
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S):
            for line in re.split(r"\n(?=\S)", block):
                found = CURL.search(line + "\n")
                if not found:
                    continue
                path = re.sub(r"\$\w+", "x", found[1])
                operation = closed.find("POST", path)
                assert operation, (page.name, path)
                media = operation["requestBody"]["content"]["application/json"]
                if path != "/run" or "soon" not in found[3]:  # a mistake on purpose
                    contract.validator(DOCUMENT, media["schema"])(json.loads(found[3]))
                checked += 1
    assert checked >= 20


def answer_schemas():
    """Every schema of an answer, and of an answer that a page shortens by `…`."""
    names = set()
    for _, _, operation in contract.operations(DOCUMENT):
        for response in operation["responses"].values():
            content = contract.deref(DOCUMENT, response).get("content", {})
            names.add(content.get("application/json", {}).get("schema", {}).get("$ref"))
    return [{"$ref": name} for name in sorted(names - {None})]


def test_answers_of_the_docs_fit():
    whole = contract.Contract(DOCUMENT)
    short = contract.Contract(DOCUMENT)
    for item in short.document["components"]["schemas"].values():
        item.pop("required", None)
    checked = 0
    for page in PAGES:
        for block in re.findall(r"```json\n(.*?)```", page.read_text(), re.S):
            is_short = re.search(r"[,\[{]…", block)
            value = json.loads(re.sub(r",?…(?=[\]}])", "", block))
            fitting = []
            for item in answer_schemas():
                try:
                    (short if is_short else whole).fits(value, item, page.name)
                    fitting.append(item)
                except AssertionError:
                    pass
            if page.parent.name != "internals" and "runtime" not in page.name:
                assert fitting, (page.name, block)
                checked += 1
    assert checked >= 6


# ---- the check itself can fail

RUN = {"id": "run_x", "status": "ok", "exit_code": 0, "signal": None, "limits_hit": [], "message": "", "stdout": "",
       "stderr": "", "stdout_truncated": False, "stderr_truncated": False, "compile": None,
       "usage": {"wall_ms": 1.0, "cpu_ms": 1.0, "memory_peak_kb": 1, "queue_ms": 0.0, "setup_ms": 0.0}, "files": [],
       "isolation": {"level": "full", "cgroup": "v2", "start": "cold", "start_reason": "language"}, "network": None}


@pytest.mark.parametrize("change", [
    {}, {"status": "fine"}, {"new": 1}, {"exit_code": "0"}, {"limits_hit": ["time"]}, {"usage": {}}, {"compile": {}},
    {"isolation": {"level": "none", "cgroup": "v2", "start": "cold", "start_reason": None}}], ids=str)
def test_an_answer_that_does_not_fit_is_found(change):
    def check(status=200, kind="application/json", body=dict(RUN, **change)):
        contract.check("POST", "/v1/runs", status, kind, json.dumps(body).encode())
    if not change:
        check()
        with pytest.raises(AssertionError):
            check(status=418)
        with pytest.raises(AssertionError):
            check(kind="text/html")
        return
    with pytest.raises(AssertionError):
        check()


def test_an_event_that_does_not_fit_is_found():
    contract.check_event(1, "stdout", {"data": "x", "t": 1})
    for event in ((1, "stdout", {}), (1, "stdout", {"data": "x"}), (1, "stdouts", {"data": "x", "t": 1}),
                  (0, "start", {"id": "r", "status": "running", "t": 0})):
        with pytest.raises(AssertionError):
            contract.check_event(*event)
