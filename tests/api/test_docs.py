# SPDX-License-Identifier: Apache-2.0
"""docs/ states facts: every curl line of docs/api.md is run, every route and setting is there."""
import json
import re
import subprocess

from apilib import MONITOR, ROOT, SLOW


def test_every_setting_is_documented():
    table = subprocess.run([str(MONITOR), "--settings"], capture_output=True, text=True,
                           check=True).stdout
    text = (ROOT / "docs/configuration.md").read_text()
    for line in table.splitlines():
        assert line in text, "docs/configuration.md lacks: " + line


def test_every_route_is_documented(server):
    text = (ROOT / "docs/api.md").read_text()
    for path, methods in server("GET", "/openapi.json").json()["paths"].items():
        for method in methods:
            assert "`%s %s`" % (method.upper(), path) in text, (method, path)


def test_every_curl_line_works(server):
    text = (ROOT / "docs/api.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    assert blocks
    ran = 0
    run = ""
    for block in blocks:
        script = block.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % server.port)
        got = subprocess.run(["bash", "-euc", "run=%s\n%s\necho; echo \"RUN=$run\"" % (run, script)],
                             capture_output=True, text=True, timeout=60 * SLOW)
        assert got.returncode == 0, (block, got.stdout, got.stderr)
        assert not re.search(r'"error": ?\{"code"', got.stdout) or "# an error" in block, (block, got.stdout)
        run = got.stdout.rsplit("RUN=", 1)[1].strip()
        ran += block.count("curl")
    assert ran >= 11


def test_errors_are_documented():
    text = (ROOT / "docs/api.md").read_text()
    source = (ROOT / "src/base/err.c").read_text()
    for name, status in re.findall(r'\[ERR_\w+\] = \{"(\w+)", (\d+)', source):
        if name != "ok":
            assert "`%s`" % name in text and status in text, name
