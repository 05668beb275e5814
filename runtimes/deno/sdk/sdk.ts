// SPDX-License-Identifier: Apache-2.0
// Lies beside the program of a POST /run: what it hands over as `metadata`, and files of a flow.
import * as fs from "node:fs";
import process from "node:process";

const PATH = "/metadata/.quartermaster_metadata.json";

// Makes `data`, anything that JSON can say, the `metadata` of the answer.
export function setMetadata(data: unknown): void {
  fs.writeFileSync(PATH, JSON.stringify(data));
}

// What was set before, or null.
// deno-lint-ignore no-explicit-any
export function getMetadata(): any {
  return fs.existsSync(PATH) ? JSON.parse(fs.readFileSync(PATH, "utf8")) : null;
}

async function ask(method: string, path: string, body?: string): Promise<string> {
  const base = process.env.QM_WEBDAV_URL;
  if (!base) throw new Error("there are files only in a flow: QM_WEBDAV_URL is not set");
  const headers: Record<string, string> =
    body === undefined ? {} : { "Content-Type": "application/octet-stream" };
  const url = `${base.replace(/\/+$/, "")}/${path.replace(/^\/+/, "")}`;
  const answer = await fetch(url, { method, body, headers });
  if (!answer.ok) throw new Error(`${method} of ${path} failed: HTTP ${answer.status}`);
  return await answer.text();
}

// The text of a file of the flow.
export function loadFile(path: string): Promise<string> {
  return ask("GET", path);
}

// Writes a text file of the flow.
export async function saveFile(path: string, content: string): Promise<void> {
  await ask("PUT", path, content);
}
