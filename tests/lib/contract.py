# SPDX-License-Identifier: Apache-2.0
"""Checks answers against the API document that the build wrote (BUILD/openapi.json).

apilib.Server checks every answer that a test receives. Without fastjsonschema (in the guest, which
has the standard library only) nothing is checked; test_openapi.py fails where it should be there."""
import copy
import functools
import json
import os
import pathlib
import re

try:
    import fastjsonschema
except ImportError:
    fastjsonschema = None

BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR",
                                    pathlib.Path(__file__).resolve().parents[2] / "build"))
METHODS = ("get", "put", "post", "patch", "delete")
EVENTS = {"anyOf": [{"$ref": "#/components/schemas/%sEvent" % name} for name in ("Run", "Judge", "Exec", "Status", "Selftest", "Approval")]}


def load():
    return json.loads((BUILD / "openapi.json").read_text())


def operations(document):
    """(method, path, operation) of each operation."""
    return [(method.upper(), path, item[method]) for path, item in document["paths"].items()
            for method in METHODS if method in item]


def deref(document, node):
    while "$ref" in node:
        name = node["$ref"]
        node = document
        for step in name.removeprefix("#/").split("/"):
            node = node[step]
    return node


def close(node):
    """Allows an object only the properties of its schema. The document itself allows more, so that clients accept new
    ones; but each new one must be documented."""
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, (dict, list)):
            close(child)
    if isinstance(node, dict) and isinstance(node.get("properties"), dict):
        node.setdefault("additionalProperties", False)


def validator(document, schema):
    """A function that raises fastjsonschema.JsonSchemaException. It knows draft 7, and the
    schemas keep to draft 7."""
    return fastjsonschema.compile(dict(schema, components={"schemas": document["components"]["schemas"]}))


def parse_events(text):
    """Events of a text/event-stream as objects of the event schemas."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^(id|event|data): (.*)$", block, re.M))
        if "event" in fields:
            found.append({"id": int(fields["id"]), "event": fields["event"], "data": json.loads(fields["data"])})
    return found


class Contract:
    def __init__(self, document):
        self.document = copy.deepcopy(document)
        close(self.document["components"]["schemas"])
        self.operations = []
        for method, path, operation in operations(self.document):
            pattern = re.escape(path).replace(r"\{path\}", ".+")
            self.operations.append((method, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", pattern)), operation))
        self.operations.sort(key=lambda o: "+" in o[1].pattern)  # plain paths first

    @functools.lru_cache(maxsize=None)
    def compiled(self, text):
        return validator(self.document, json.loads(text))

    def fits(self, value, schema, what):
        try:
            self.compiled(json.dumps(schema))(value)
        except fastjsonschema.JsonSchemaException as problem:
            raise AssertionError("%s does not fit the API document: %s; it is %.2000s"
                                 % (what, problem, json.dumps(value))) from None

    def find(self, method, path):
        for known, pattern, operation in self.operations:
            if known == method and pattern.fullmatch(path.partition("?")[0]):
                return operation
        return None

    def check(self, method, path, status, content_type, body):
        what = "%s %s: the answer %d" % (method, path, status)
        operation = self.find(method, path)
        if not operation:
            if status in (404, 405) and body:
                self.fits(json.loads(body), {"$ref": "#/components/schemas/RunnerError"}, what)
            return
        assert str(status) in operation["responses"], what + " is not in the API document"
        content = deref(self.document, operation["responses"][str(status)]).get("content", {})
        kind = (content_type or "").partition(";")[0]
        if not body and (not content or kind != "application/json"):
            return
        assert kind in content, "%s is %s, which is not in the API document" % (what, kind)
        if kind == "application/json":
            self.fits(json.loads(body), content[kind]["schema"], what)
        elif kind == "text/event-stream":
            for event in parse_events(body.decode()):
                self.fits(event, content[kind]["x-event"], what)


@functools.lru_cache(maxsize=None)
def contract():
    return Contract(load()) if fastjsonschema else None


def check(method, path, status, content_type, body):
    """Checks an answer of a server."""
    if contract():
        contract().check(method, path, status, content_type, body)


def check_event(number, name, data):
    if contract():
        contract().fits({"id": number, "event": name, "data": data}, EVENTS, "event " + name)
