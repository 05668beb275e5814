// SPDX-License-Identifier: Apache-2.0
// Node, parked (src/spawn/pool.h): loaded with -r, before the program. It loads and compiles what
// most programs use, waits for a job in libhermes-warm.so, and returns into node's own start, which
// then runs the job's program as it would have run it anyway: same stack, same require.main.
'use strict';

// Threads of the program load what -r names too, and go on.
if (require('worker_threads').isMainThread) park();
delete require.cache[__filename];
Object.defineProperty(process, '_preload_modules', {value: []});

function park() {
  const Module = require('module');
  const library = {exports: {}};
  process.dlopen(library, '/usr/lib/hermes/libhermes-warm.so');
  rehearse(Module, library.exports.pipe());
  const argv = library.exports.park();
  if (!argv) process.exit(1);
  const main = require('path').resolve(argv[1]);
  process.argv = [process.argv[0], main, ...argv.slice(2)];
  process.execArgv = [];
  if (process.env.TZ !== undefined) process.env.TZ = process.env.TZ; // node hears of it only so
  startWith(Module, main);
}

// Node calls Module.runMain() next, with a path that it settled before. A bound function leaves no
// frame in a stack trace, and by the time the program runs the property is what it was.
function startWith(Module, main) {
  const own = Object.getOwnPropertyDescriptor(Module, 'runMain');
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', own);
      return own.value.bind(Module, main);
    },
  });
}

// Nothing below /box is looked at here: node would remember that it was not there.
function rehearse(Module, [reader, writer]) {
  const net = require('net');
  const fs = require('fs');
  const {Console} = require('console');
  const stream = new net.Socket({fd: writer, readable: false, writable: true});
  const trial = new Console({stdout: stream, stderr: stream});
  trial.log('hello', 1, {a: [1, 'b'], c: new Map([[1, 2]])});
  trial.error('%s %d', 'x', 2);
  const program = new Module('/usr/lib/hermes/rehearsal.js');
  program.filename = program.id;
  program.paths = [];
  program._compile(`
    const fs = require('fs'), path = require('path'), util = require('util');
    class A { #x = 1; get x() { return this.#x; } }
    const f = async () => [new A().x, ...[1, 2].map((v) => v * 2)];
    f();
    JSON.stringify({a: JSON.parse('{"b": [1, 2]}')});
    try { null.x; } catch (e) { String(e.stack); }
    module.exports = util.inspect(new Set([1])) + path.join('a', 'b');
  `, program.id);
  fs.readFileSync('/dev/null', 'utf8').split('\n');
  stream.destroy();
  fs.closeSync(reader);
  if (process._tickCallback) process._tickCallback(); // what the above left to do later
}
