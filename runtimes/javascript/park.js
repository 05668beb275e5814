// SPDX-License-Identifier: Apache-2.0
// Makes node a parked interpreter (src/spawn/pool.h). Node loads this file with -r, before the
// program. It loads and compiles what most programs use, waits in libhermes-warm.so for a package,
// and returns to node's normal start. Node then runs the package's program as it would have run it
// anyway: same stack, same require.main.
'use strict';

const Module = require('module');
const path = require('path');

// Worker threads of the program load this file too; they must not wait.
if (require('worker_threads').isMainThread) park();
delete require.cache[__filename];
Object.defineProperty(process, '_preload_modules', {value: []});

function park() {
  const library = {exports: {}};
  const runMain = Object.getOwnPropertyDescriptor(Module, 'runMain');
  process.dlopen(library, '/usr/lib/hermes/libhermes-warm.so');
  rehearse(runMain.value, library.exports);
  endQuickly(library.exports.exit);
  const words = library.exports.park();
  if (!words) process.exit(1);
  const at = words.findIndex((word, i) => i > 0 && word[0] !== '-'); // skips node's own options
  const main = path.resolve(words[at]);
  process.argv = [process.argv[0], main, ...words.slice(at + 1)];
  process.execArgv = words.slice(1, at);
  if (process.env.TZ !== undefined) process.env.TZ = process.env.TZ; // node reads TZ only at an assignment
  startWith(runMain, main);
}

// Node calls Module.runMain() next, with a path that it has already chosen. This replaces the path
// once. A bound function leaves no frame in a stack trace, and the property is restored before the
// program runs.
function startWith(runMain, main) {
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', runMain);
      return runMain.value.bind(Module, main);
    },
  });
}

// When the program has succeeded and has no `exit` listener, the process can end at once: node would
// free its memory piece by piece, Linux does it in one step. process.emit is replaced only for the
// moment in which node reads it to emit `exit`.
function endQuickly(exit) {
  const emit = process.emit;
  let isOver = false;
  function emitExit(event, status) {
    if (event === 'exit' && status === 0) exit();
    return emit.apply(this, arguments);
  }
  Object.defineProperty(Object.getPrototypeOf(process), 'emit', {
    configurable: true,
    get() {
      if (isOver || !process._exiting) return emit;
      isOver = true;
      return process.listenerCount('exit') === 0 ? emitExit : emit;
    },
    set(value) {
      Object.defineProperty(this, 'emit', {value, writable: true, enumerable: true, configurable: true});
    },
  });
}

// Must not look at any path below /box: node would remember that the file did not exist.
function rehearse(runMain, library) {
  const program = '/usr/lib/hermes/rehearsal.js';
  const [reader, writer] = library.pipe();
  process.env.REHEARSAL_FD = writer;
  runMain.call(Module, program);
  require('fs').closeSync(reader);
  delete require.cache[program];
  delete process.mainModule;
  import('data:text/javascript,export default 1');
  process._tickCallback?.(); // runs the callbacks that the lines above have queued
}
