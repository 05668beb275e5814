# SPDX-License-Identifier: Apache-2.0
"""A session with the official Python client: client.py MODE (URL | -- COMMAND...). Prints what it saw as JSON."""
import json
import os
import sys

import anyio
from mcp import Client, StdioServerParameters


async def main(mode, where):
    server = StdioServerParameters(command=where[1], args=where[2:], env=dict(os.environ)) if where[0] == "--" else where[0]
    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        result = await client.call_tool("execute", {"code": 'console.log("hi"); return 6 * 7'})
        failed = await client.call_tool("execute", {"code": 'throw new Error("no")'})
        print(json.dumps({"tools": [tool.name for tool in tools.tools], "text": result.content[0].text,
                          "structured": result.structured_content, "failed": failed.is_error}))


anyio.run(main, sys.argv[1], sys.argv[2:])
