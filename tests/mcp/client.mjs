// SPDX-License-Identifier: Apache-2.0
// A session with the official TypeScript client: client.mjs MODULES ERA (URL | -- COMMAND...). Prints what it saw as JSON.
import { pathToFileURL } from 'node:url';

const [modules, era, ...where] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${modules}/@modelcontextprotocol/client/dist/${name}.mjs`));
const { Client, StreamableHTTPClientTransport } = await load('index');
const { StdioClientTransport } = await load('stdio');

const mode = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } }[era];
const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
const transport = where[0] === '--'
  ? new StdioClientTransport({ command: where[1], args: where.slice(2), env: process.env })
  : new StreamableHTTPClientTransport(new URL(where[0]));
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: 'execute', arguments: { code: 'console.log("hi"); return 6 * 7' } });
const failed = await client.callTool({ name: 'execute', arguments: { code: 'throw new Error("no")' } });
console.log(JSON.stringify({
  tools: tools.map((tool) => tool.name), text: result.content[0].text, structured: result.structuredContent, failed: failed.isError,
}));
await client.close();
