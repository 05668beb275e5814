// SPDX-License-Identifier: Apache-2.0
'use strict';
// Runs the code of the MCP tool `execute` in a session: as the body of an async function, with `tools`, whose
// members are the tools of the catalog, and with `emit`. `return` gives the value; so does `export default`.
// The value goes back as a display of a type of its own.
const { execFileSync } = require('node:child_process');
const { existsSync } = require('node:fs');
const { call } = require('hermes_tools');

const ESBUILD = '/usr/local/lib/hermes/npm/bin/esbuild';
const VALUE = 'application/vnd.hermes.value+json';
const AsyncFunction = (async () => {}).constructor;

// tools.a.b(input) calls the tool with the address "a.b".
function toolsAt(path) {
  return new Proxy(function () {}, {
    get(target, name) {
      if (typeof name !== 'string' || name === 'then') return undefined;
      return toolsAt(path ? `${path}.${name}` : name);
    },
    apply(target, self, args) {
      return call({ path, input: args[0] === undefined ? {} : args[0] });
    },
  });
}

function fetch() {
  throw new Error('fetch is not there: the box has no network. Use tools, for example tools.search({ query })');
}

const NAMES = ['tools', 'emit', 'fetch'];

function compile(code) {
  return new AsyncFunction(...NAMES, code.replace(/^\s*export\s+default\s+/m, 'return '));
}

// Types are removed by esbuild. `return` and `await` need a function around them.
function strip(code) {
  if (!existsSync(ESBUILD)) throw new Error('TypeScript needs esbuild on the server: `make runtimes`; send JavaScript');
  const open = 'async function hermes_body() {\n';
  const args = ['--loader=ts', '--log-level=error', '--color=false', '--target=node18'];
  let out;
  try {
    out = execFileSync(ESBUILD, args, { input: `${open}${code.replace(/^\s*export\s+default\s+/m, 'return ')}\n}\n`, stdio: 'pipe' });
  } catch (problem) {
    throw new SyntaxError(String(problem.stderr || problem.message).trim());
  }
  return new AsyncFunction(...NAMES, `${out}\nreturn hermes_body();`);
}

function prepare(code, isTypeScript) {
  if (isTypeScript) return strip(code);
  try {
    return compile(code);
  } catch (problem) {
    // It may be TypeScript. When it is not that either, the first error is the better one.
    try { return strip(code); } catch { throw problem; }
  }
}

module.exports = async (code, isTypeScript) => {
  const value = await prepare(code, isTypeScript)(toolsAt(''), (shown) => display(shown), fetch);
  display({ [VALUE]: { value: value === undefined ? null : JSON.parse(JSON.stringify(value) ?? 'null') }, 'text/plain': '' }, { raw: true });
};
