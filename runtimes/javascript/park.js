// SPDX-License-Identifier: Apache-2.0
// Node, parked (src/spawn/pool.h): loaded with -r, before the program. It loads and compiles what
// most programs use, waits for a job in libhermes-warm.so, and returns into node's own start, which
// then runs the job's program as it would have run it anyway: same stack, same require.main.
'use strict';

const Module = require('module');
const path = require('path');

// Threads of the program load what -r names too, and go on.
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
  const at = words.findIndex((word, i) => i > 0 && word[0] !== '-'); // past node's own options
  const main = path.resolve(words[at]);
  process.argv = [process.argv[0], main, ...words.slice(at + 1)];
  process.execArgv = words.slice(1, at);
  if (process.env.TZ !== undefined) process.env.TZ = process.env.TZ; // node hears of it only so
  startWith(runMain, main);
}

// Node calls Module.runMain() next, with a path that it settled before. A bound function leaves no
// frame in a stack trace, and by the time the program runs the property is what it was.
function startWith(runMain, main) {
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', runMain);
      return runMain.value.bind(Module, main);
    },
  });
}

// When the program has ended well and nobody listens for that, there is nothing to take apart: node
// would give its memory back piece by piece, the kernel does it at once. process.emit stays what it
// is, but for the moment in which node asks for it to tell of the end.
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

// Nothing below /box is looked at here: node would remember that it was not there.
function rehearse(runMain, library) {
  const program = '/usr/lib/hermes/rehearsal.js';
  const [reader, writer] = library.pipe();
  process.env.REHEARSAL_FD = writer;
  runMain.call(Module, program);
  require('fs').closeSync(reader);
  delete require.cache[program];
  delete process.mainModule;
  import('data:text/javascript,export default 1');
  process._tickCallback?.(); // what the above left to do later
}
