# SPDX-License-Identifier: Apache-2.0
"""What MCP costs: `execute` over a kept connection against a run of the same over /v1/runs. Both sides find an interpreter
that started ahead, so each waits a moment before it is asked again, as an agent does."""
import json
import time

from over_http import Kept, Serving

PAUSE_S = 0.3  # an interpreter that starts ahead takes a tenth of a second of a busy processor


def mcp_execute(bench):
    """`return 1` by the MCP tool execute, against console.log(1) over /v1/runs."""
    from run import interleave, row
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "execute", "arguments": {"code": "return 1"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}).encode()
    request = (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
               b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: execute\r\nContent-Length: %d\r\n\r\n%s"
               % (len(message), message))
    body = json.dumps({"language": "javascript", "code": "console.log(1)"}).encode()
    with Serving() as server:
        conn = Kept(server)

        def execute():
            time.sleep(PAUSE_S)
            taken, answer = conn.ask(request)
            if json.loads(answer)["result"]["structuredContent"]["result"] != 1:
                raise RuntimeError(repr(answer))
            return taken

        def run():
            time.sleep(PAUSE_S)
            taken, answer = conn.post(body)
            if answer["stdout"] != "1\n":
                raise RuntimeError(repr(answer))
            return taken
        ours, theirs = interleave(bench.rounds, execute, run)
        yield row("execute over MCP", ours, theirs, 2.0, note="than console.log(1) over /v1/runs")
        conn.close()
