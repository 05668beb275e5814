# SPDX-License-Identifier: Apache-2.0
"""What others make of the API document: a validator, types for TypeScript and Python, and
schemathesis, which sends what the document allows and what it forbids. tools/install-deps.sh
installs these programs into build-tools/openapi."""
import json
import os
import re
import subprocess

import pytest

import contract
from apilib import ROOT, SLOW

TOOLS = ROOT / "build-tools/openapi"
BIN = TOOLS / "venv/bin"
NODE = TOOLS / "node_modules/.bin"
SEED = 20260731
EXAMPLES = 10  # for each operation and phase: both runs together take a minute on a quiet machine
KEY = "the-key-of-the-fuzzer"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not (TOOLS / "installed").exists(), reason="no programs for OpenAPI: tools/install-deps.sh test")]


def call(*words, cwd, seconds=120, env=None):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True,
                          timeout=seconds * SLOW, env=dict(os.environ, **(env or {})))
    assert done.returncode == 0, "%s: %s\n%s" % (words[0], done.stdout[-8000:], done.stderr[-3000:])
    return done.stdout


def test_the_document_is_valid(tmp_path):
    call(BIN / "openapi-spec-validator", contract.BUILD / "openapi.json", cwd=tmp_path)


def test_types_for_typescript_compile(tmp_path):
    call(NODE / "openapi-typescript", contract.BUILD / "openapi.json", "--default-non-nullable=false", "-o", "api.ts",
         cwd=tmp_path)
    (tmp_path / "use.ts").write_text("""
import type { components, operations } from "./api";
type Schemas = components["schemas"];
export const request: Schemas["RunRequest"] = { language: "python", code: "1", limits: { wall_ms: 1000 } };
export function show(run: Schemas["Run"]): string { return run.status + run.usage.wall_ms + (run.compile?.stderr ?? ""); }
export function follow(event: Schemas["ExecEvent"]): string {
    return event.event === "tool_call" && "name" in event.data ? event.data.name : event.event;
}
export type Answer = operations["createRun"]["responses"][200]["content"]["application/json"];
""")
    call(NODE / "tsc", "--noEmit", "--strict", "--target", "es2022", "--moduleResolution", "bundler", "--module",
         "es2022", "use.ts", cwd=tmp_path)
    (tmp_path / "wrong.ts").write_text("""
import type { components } from "./api";
export const request: components["schemas"]["RunRequest"] = { language: "python", code: 1 };
""")
    with pytest.raises(AssertionError, match="TS2322"):
        call(NODE / "tsc", "--noEmit", "--strict", "wrong.ts", cwd=tmp_path)


def test_types_for_python_compile_and_read_answers(server, tmp_path):
    call(BIN / "datamodel-codegen", "--input", contract.BUILD / "openapi.json", "--input-file-type", "openapi",
         "--output-model-type", "pydantic_v2.BaseModel", "--target-python-version", "3.11", "--use-annotated",
         "--formatters", "builtin", "--output", "api.py", cwd=tmp_path)
    call(BIN / "mypy", "--cache-dir", tmp_path / "cache", "api.py", cwd=tmp_path)
    run = server.run("bash", "echo hello; exit 3")
    (tmp_path / "run.json").write_bytes(run.body)
    call(BIN / "python", "-c", """
import api
run = api.Run.model_validate_json(open("run.json").read())
assert run.exit_code == 3 and run.status is api.RunStatus.runtime_error and run.stdout == "hello\\n"
assert api.RunRequest(language="bash", code="").limits is None
try:
    api.RunRequest.model_validate({"language": "bash", "codes": ""})
except ValueError:
    pass
else:
    raise SystemExit("an unknown field was accepted")
""", cwd=tmp_path, env={"PYTHONDONTWRITEBYTECODE": "1"})


# ---- schemathesis

CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "negative_data_rejection", "unsupported_method", "use_after_free",
          "ensure_resource_availability", "ignored_auth"]
# 501 is how the API says that this host or build cannot do something, and 426 that a path is a WebSocket. Unknown headers and parameters
# of the query are ignored, as everywhere.
CONFIG = """
[generation]
allow-extra-parameters = false
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "426", "429", "5xx"]
"""
# These routes bear what the document forbids, as the systems do that they are compatible with.
LAX = ["rest-engine", "code-runner"]


def drop_large_bounds(node):
    """Values of megabytes take their time. test_openapi.py tries those bounds."""
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, (dict, list)):
            drop_large_bounds(child)
    if isinstance(node, dict):
        for name in ("maxLength", "maxItems", "maxProperties"):
            if isinstance(node.get(name), int) and node[name] > 100:
                del node[name]


def fuzzed_document(server):
    """The document of the server with a language that it has and a session that lives, so that code is
    really run."""
    document = server("GET", "/openapi.json").json()
    schemas = document["components"]["schemas"]
    session = server("POST", "/v1/sessions", {"language": "bash"}, key=KEY).json()["id"]
    drop_large_bounds(document)
    for path in ("/v1/events", "/v1/approvals/events"):  # streams without an end: test_status.py, tests/approval
        del document["paths"][path]
    for path in ("/mcp", "/mcp/full"):  # what a message may be depends on the protocol's version and state: tests/mcp
        del document["paths"][path]
    for name, item in schemas.items():
        if "language" in item.get("properties", ()) and "version" not in item["properties"] and name != "StatusSeed":
            item["properties"]["language"] = {"type": "string", "enum": ["bash"]}
    for _, _, operation in contract.operations(document):
        if operation["tags"][0] in ("sessions", "files", "copies") and operation["operationId"] != "deleteSession":
            for parameter in operation["parameters"]:
                if parameter["name"] == "id":
                    parameter["schema"] = {"type": "string", "enum": [session]}
    # schemathesis applies the schema of a stream to each event, in which everything is text.
    schemas["EventStream"] = {"type": "object", "required": ["id", "event", "data"],
                              "additionalProperties": {"type": "string"}}
    return document


def fuzz(server, tmp_path, *words):
    (tmp_path / "openapi.json").write_text(json.dumps(fuzzed_document(server)))
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    out = call(BIN / "schemathesis", "--no-color", "run", "openapi.json", "--url", "http://127.0.0.1:%d" % server.port,
               "--header", "Authorization: Bearer " + KEY, "--seed", SEED, "--max-examples", EXAMPLES,
               "--generation-database", "none", "--request-timeout", 60 * SLOW,
               "--suppress-health-check", "all", "--continue-on-failure", *words, cwd=tmp_path, seconds=300)
    found = re.search(r"([\d,]+) generated", out)
    assert found and int(found[1].replace(",", "")) > 300, out[-3000:]


@pytest.fixture
def fuzzed(make_server):
    server = make_server(args=["--max-wall-ms", "500", "--max-cpu-ms", "500", "--max-memory-mb", "256",
                               "--queue-wait-s", "120"], env={"API_TOKEN": KEY})
    yield server
    assert server.process.poll() is None and not server.events("new spawner")
    assert server("POST", "/v1/runs", {"language": "bash", "code": "echo fine"}, key=KEY).json()["stdout"] == "fine\n"


def test_schemathesis_finds_nothing_in_native_routes(fuzzed, tmp_path):
    fuzz(fuzzed, tmp_path, "--checks", ",".join(CHECKS),
         *[word for tag in LAX for word in ("--exclude-tag", tag)])


def test_schemathesis_finds_nothing_in_compatible_routes(fuzzed, tmp_path):
    fuzz(fuzzed, tmp_path, "--checks", ",".join(c for c in CHECKS if c != "negative_data_rejection"),
         *[word for tag in LAX for word in ("--include-tag", tag)])
