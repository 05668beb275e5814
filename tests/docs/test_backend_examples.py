# SPDX-License-Identifier: Apache-2.0
"""The blocks of docs/backends.md: a server starts with each `ini` block and has its backends, and takes each `json` block as rules."""
import json
import os
import pathlib
import re

import pytest

import apilib

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/backends.md").read_text()
AS_ROOT = os.geteuid() == 0


def blocks(language, page=PAGE):
    return re.findall(r"^```%s\n(.*?)^```$" % language, page, re.S | re.M)


def sections(block):
    """{name: its lines as pairs}; lines before the first section are those of None."""
    found = {}
    at = None
    for line in block.splitlines():
        if head := re.fullmatch(r"\[backend (.+)\]", line):
            at = head[1]
            found[at] = {}
        elif line.strip():
            name, _, value = line.partition(" = ")
            found.setdefault(at, {})[name] = value
    return found


def callers(lines):
    """The keys that may use a backend."""
    return [] if lines.get("keys", "*") == "*" else lines["keys"].split(", ")


def secret(key):
    return key * 10


@pytest.fixture
def serve():
    work = apilib.borrow_dir()
    made = []

    def make(block):
        (work / "hermes.conf").write_text(block)
        keys = sorted({key for lines in sections(block).values() for key in callers(lines)})
        user = ["--backends-user", "nobody"] if AS_ROOT else []  # this machine lacks the user that the page names
        file = work / "keys"
        file.touch(0o600)
        file.write_text("".join("[%s]\nkey = %s\n" % (key, secret(key)) for key in keys))
        server = apilib.Server(work, env={"HERMES_KEYS_FILE": str(file)} if keys else None, wait=False,
                               args=["--config", str(work / "hermes.conf"), *user])
        made.append(server)
        return server, keys
    yield make
    for server in made:
        server.stop()
    apilib.return_dir(work)


def started(server):
    assert apilib.wait_until(lambda: server.is_ready() or server.process.poll() is not None, 60)
    return server.process.poll() is None


@pytest.mark.parametrize("block", blocks("ini"), ids=lambda block: "-".join(filter(None, sections(block))))
def test_a_server_starts_with_the_settings_of_the_page(serve, block):
    wanted = sections(block)
    server, keys = serve(block)
    assert started(server), server.logs()
    for key in keys:
        listed = {row["name"]: row["kind"] for row in server("GET", "/v1/backends", key=secret(key)).json()["backends"]}
        mine = {name: lines["kind"] for name, lines in wanted.items() if name and key in callers(lines)}
        assert listed == {"native": "native", **mine}


def test_a_wrong_line_is_found(serve):
    """The control."""
    server, _ = serve(blocks("ini")[0].replace("host =", "hots ="))
    assert not started(server) and "there is no such line" in server.logs()


def test_the_page_has_blocks():
    names = [name for block in blocks("ini") for name in sections(block) if name]
    assert names == ["lab", "here", "modal", "daytona", "hpc"] and len(blocks("json")) == 1


@pytest.mark.parametrize("number", range(len(blocks("json"))))
def test_rules_of_the_page_are_taken(serve, number):
    rules = json.loads(blocks("json")[number])
    server, _ = serve("[backend here]\nkind = local\nkeys = *\n")
    assert started(server), server.logs()
    assert server("PUT", "/v1/approvals/rules", rules).status == 200
    kept = server("GET", "/v1/approvals/rules").json()["rules"]
    assert len(kept) == len(rules["rules"]) and all(kept[i][name] == rule[name] for i, rule in enumerate(rules["rules"]) for name in ("effect", "match", "decision"))
    rules["rules"][0]["examples"]["match"][0]["backend"] = "elsewhere"
    assert server("PUT", "/v1/approvals/rules", rules).status in (400, 422)  # the control: the example is checked
