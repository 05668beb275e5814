# SPDX-License-Identifier: Apache-2.0
"""docs/mcp.md states facts: its examples are run, and its tables are compared with the server."""
import os
import re
import subprocess

from apilib import BUILD, ROOT, SLOW
from mcplib import Modern

PAGE = (ROOT / "docs/mcp.md").read_text()


def test_every_example_works(server, tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 4
    for block in blocks:
        script = block.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % server.port)
        got = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60 * SLOW, cwd=tmp_path,
                             env=dict(os.environ, PATH="%s:%s" % (BUILD, os.environ["PATH"])))
        assert got.returncode == 0, (block, got.stdout, got.stderr)
        assert '"isError"' not in got.stdout and '"error":{' not in got.stdout, got.stdout


def test_the_tables_name_every_tool_and_argument(server):
    for path in ("/mcp", "/mcp/full"):
        for tool in Modern(server, path=path).ask("tools/list")["tools"]:
            assert "`%s`" % tool["name"] in PAGE or "`%s {" % tool["name"] in PAGE, tool["name"]
            for name in tool["inputSchema"]["properties"]:
                assert re.search(r"\b%s\b" % name, PAGE), (tool["name"], name)
