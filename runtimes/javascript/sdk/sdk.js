// SPDX-License-Identifier: Apache-2.0
// Lies beside the program of a POST /run: what it hands over as `metadata`, and files of a flow.
'use strict';
const fs = require('fs');

const PATH = '/metadata/.quartermaster_metadata.json';

// Makes `data`, anything that JSON can say, the `metadata` of the answer.
exports.setMetadata = (data) => fs.writeFileSync(PATH, JSON.stringify(data));

// What was set before, or null.
exports.getMetadata = () => (fs.existsSync(PATH) ? JSON.parse(fs.readFileSync(PATH, 'utf8')) : null);

async function ask(method, path, body) {
  const base = process.env.QM_WEBDAV_URL;
  if (!base) throw new Error('there are files only in a flow: QM_WEBDAV_URL is not set');
  const headers = body === undefined ? {} : { 'Content-Type': 'application/octet-stream' };
  const url = `${base.replace(/\/+$/, '')}/${path.replace(/^\/+/, '')}`;
  const answer = await fetch(url, { method, body, headers });
  if (!answer.ok) throw new Error(`${method} of ${path} failed: HTTP ${answer.status}`);
  return answer.text();
}

// The text of a file of the flow.
exports.loadFile = (path) => ask('GET', path);

// Writes a text file of the flow.
exports.saveFile = async (path, content) => { await ask('PUT', path, content); };
