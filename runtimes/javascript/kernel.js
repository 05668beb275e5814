// SPDX-License-Identifier: Apache-2.0
'use strict';
// The interpreter of a JavaScript session (docs/internals/kernels.md). V8's REPL mode evaluates code in this isolate,
// through an inspector session to ourselves. It provides top-level await, redeclaration and the value of the code.
//
// User code may change anything it can reach, such as String.prototype or fs.writeSync. So this file loads itself a
// second time into a context with its own String, Array and Object, and copies the node functions that it calls into
// local names before user code runs. `realm` is the user's context: values for user code are made from it.
/* global realm */
if (typeof realm === 'undefined') {
  const vm = require('vm');
  const context = vm.createContext({});
  const load = (file, names) => {
    const filename = require('path').join(__dirname, file);
    const source = require('fs').readFileSync(filename, 'utf8');
    const run = vm.compileFunction(source, Object.keys(names), { filename, parsingContext: context });
    run(...Object.values(names));
  };
  const module = { exports: {} };
  const library = { exports: {} };
  process.dlopen(library, require('path').join(__dirname, 'libhermes-warm.so'));
  load('kernel_source.js', { module });
  load('kernel.js', {
    realm: {
      globalThis, Promise, Object, Error, TypeError, RangeError, parse: JSON.parse, import: (name) => import(name),
    },
    rewrite: module.exports.rewrite,
    replace: library.exports.replace,
    require,
    process,
    console,
    Buffer,
    setImmediate,
    setInterval,
    setTimeout,
    clearInterval,
  });
  return;
}

/* global rewrite, replace */
const fs = require('fs');
const inspector = require('inspector');
const Module = require('module');
const net = require('net');
const { tmpdir } = require('os');
const { Writable } = require('stream');
const { join } = require('path');
const { inspect, types } = require('util');
const vm = require('vm');
const { Worker } = require('worker_threads');

const CHANNEL = 3;
const FRAME_MAX = 16 << 20;
const INPUT_MAX = 1 << 20;
const DEPTH_MAX = 32;
const TRACEBACK_MAX = 65536;
const PROTOCOL_BROKEN = 70;
const CHANNEL_LOST = 71;
// Globals that our own evaluated code calls. They do nothing when user code calls them.
const RUN = '$hermes_run';
const TAKE = '$hermes_take';
const IMPORT = '$hermes_import';
const SPINNING = '$hermes_spinning';

const { fstatSync, writeSync, openSync, closeSync, unlinkSync } = fs;
const { createRequire, _nodeModulePaths: nodeModulePaths } = Module;
const { ReadStream } = fs;
const { stringify } = JSON;
const { from: bufferFrom, concat } = Buffer;
const uncurry = (method) => (self, ...args) => Reflect.apply(method, self, args);
const indexOf = uncurry(Buffer.prototype.indexOf);
const slice = uncurry(Buffer.prototype.subarray);
const decode = uncurry(Buffer.prototype.toString);
const exitNow = process.reallyExit.bind(process);
const cwdNow = process.cwd.bind(process);
const later = setImmediate;
const every = setInterval;
const once = setTimeout;
const stopTimer = clearInterval;
const pause = new Int32Array(new SharedArrayBuffer(4));
const wait = Atomics.wait;
const print = console.log.bind(console);
const process_ = process;

class Exit { constructor(code) { this.code = code; } }
class ToolError extends realm.Error { constructor(text) { super(text); this.name = 'ToolError'; } }

const session = new inspector.Session();
session.connect();
const post = session.post.bind(session);

const state = {
  count: 0, running: null, early: false, signalled: false, cwd: '/', requireDir: null, input: Buffer.alloc(0), identity: null,
  stdin: null, hasStdin: false, stdinStream: null, outputs: [], go: null, take: null,
  offered: [], tools: {}, calls: new Map(), generation: 0, callCount: 0,
};

// Loads the modules that console.log() needs at its first call: an interrupt during that call would break it for good.
new console.Console(new Writable({ write(data, encoding, done) { done(); } })).log({});

// Frames.

function writeAll(fd, data) {
  for (let at = 0; at < data.length;) {
    try {
      at += writeSync(fd, data, at);
    } catch (problem) {
      if (problem.code !== 'EAGAIN') throw problem;
      wait(pause, 0, 0, 1); // libuv has made the socket non-blocking
    }
  }
}

const escape = (text) => text.replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));

function send(kind, value) {
  const payload = bufferFrom(escape(stringify(value)), 'latin1');
  try {
    writeAll(CHANNEL, concat([bufferFrom(`${kind} ${payload.length}\n`), payload]));
  } catch {
    checkChannel();
    exitNow(0);
  }
}

function checkChannel() {
  try {
    const now = fstatSync(CHANNEL);
    if (now.ino === state.identity.ino && now.dev === state.identity.dev) return;
  } catch { /* closed */ }
  try {
    writeSync(2, "hermes: the code closed or replaced descriptor 3, the session's channel; the session ends\n");
  } finally {
    exitNow(CHANNEL_LOST);
  }
}

function onData(data) {
  state.input = state.input.length ? concat([state.input, data]) : data;
  for (;;) {
    const end = indexOf(state.input, 10);
    if (end < 0) {
      if (state.input.length >= 32) exitNow(PROTOCOL_BROKEN);
      return;
    }
    const header = /^([a-z_]{1,16}) (0|[1-9][0-9]{0,7})$/.exec(decode(state.input, 'latin1', 0, Math.min(end, 40)));
    const length = header ? Number(header[2]) : FRAME_MAX + 1;
    if (length > FRAME_MAX) exitNow(PROTOCOL_BROKEN);
    if (state.input.length < end + 1 + length) return;
    const payload = slice(state.input, end + 1, end + 1 + length);
    state.input = slice(state.input, end + 1 + length);
    onFrame(header[1], payload);
  }
}

function onFrame(kind, payload) {
  switch (kind) {
    case 'exec':
      if (state.running) exitNow(PROTOCOL_BROKEN);
      signalCame(); // drops a signal from idle time: the server has settled its own signals
      state.running = { early: state.early, finish() { this.early = true; } };
      later(execute, decode(payload)); // handles earlier signals first
      break;
    case 'stdin': state.stdin = bufferFrom(payload); break;
    case 'tools': state.offered = fromJson(payload); break;
    case 'tool_result': onToolResult(fromJson(payload)); break;
    case 'settle': settleSignals(0); break;
    case 'jobs': case 'kill_job': send('jobs', []); break;
    case 'variables': send('variables', describeVariables()); break;
    case 'packages': usePackages(); break;
    default: exitNow(PROTOCOL_BROKEN);
  }
}

// Programs of packages that were installed after the session began; require and import look into
// /node_modules by themselves.
function usePackages() {
  const bin = '/opt/node_modules/.bin:/opt/bin:';
  const path = process.env.PATH || '/usr/bin:/bin';
  if (!path.startsWith(bin)) process.env.PATH = bin + path;
}

function fromJson(payload) {
  try {
    return realm.parse(decode(payload));
  } catch {
    return exitNow(PROTOCOL_BROKEN);
  }
}

// One exec.

function execute(code) {
  const early = state.running.early || signalCame();
  const run = { ended: false };
  state.running = run;
  state.count++;
  giveStdin();
  offerTools(state.offered);
  state.offered = [];
  try {
    setUpRequire();
  } catch { /* the code broke something that this needs; it keeps the old require */ }
  run.finish = (outcome) => {
    if (run.ended && !outcome.interrupted) return; // a late termination may have hit the callback below
    run.ended = true;
    // Node reports unhandled rejections after the microtasks. They belong to this exec.
    later(() => finish(run, outcome));
  };
  if (early) run.finish({ interrupted: true });
  else evaluate(code, run, 'let');
}

function evaluate(code, run, kind) {
  const name = `<cell-${state.count}>`;
  const expression = `${asObject(code) || rewrite(code, IMPORT, kind)}\n//# sourceURL=${name}`;
  const onAnswer = (problem, answer) => {
    if (run.ended) return;
    if (problem) return run.finish({ error: { name: 'Error', value: problem.message, stack: problem.message } });
    const retry = nextKind(kind, answer, code);
    if (retry) evaluate(code, run, retry);
    else settle(answer, run, code, name);
  };
  state.go = () => {
    state.go = null;
    post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'cell' }, onAnswer);
  };
  try {
    runner.runInThisContext({ breakOnSigint: true });
  } catch (problem) {
    if (problem && problem.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') run.finish({ interrupted: true });
    else run.finish({ error: describe(problem) });
  }
  if (watch && !run.ended && !run.timer) beginToLook(run);
}

// Treats {a: 1} as an object literal if it parses as one.
function asObject(code) {
  if (!/^\s*\{/.test(code) || /;\s*$/.test(code)) return null;
  try {
    new vm.Script(`(${code}\n)`);
    return `(${code}\n)`;
  } catch {
    return null;
  }
}

const runner = new vm.Script(`${RUN}()`, { filename: 'node:hermes' });

// The name was declared before as another kind. Nothing has run yet, so try again with that kind.
function nextKind(kind, answer, code) {
  const details = answer.exceptionDetails;
  const text = details && details.exception && details.exception.description || '';
  if (!/^SyntaxError: Identifier '.*' has already been declared/.test(text)) return null;
  for (const line of text.split('\n')) if (/<cell-\d+>/.test(line) && !/<cell-\d+>:1:1\)?$/.test(line)) return null;
  try {
    new vm.Script(`async () => {${rewrite(code, IMPORT, 'let')}\n}`);
  } catch (problem) {
    if (/already been declared/.test(problem.message)) return null; // declared twice in this code
  }
  return { let: 'var', var: 'all let' }[kind] || null;
}

function settle(answer, run, code, name) {
  const value = toValue(answer.result);
  const details = answer.exceptionDetails;
  if (!details) return run.finish({ value });
  if (value instanceof Exit) return run.finish({ exit: value.code });
  const error = describe(value);
  if (types.isNativeError(value) && value.name === 'SyntaxError' && !/<cell-/.test(error.stack)) {
    const line = details.lineNumber || 0;
    const source = code.split('\n')[line] || '';
    const caret = `${' '.repeat(Math.max(0, details.columnNumber || 0))}^`;
    error.stack = `${name}:${line + 1}\n${source}\n${caret}\n${error.stack}`;
  }
  run.finish({ error });
}

// Gets the value itself from the inspector's description of it.
function toValue(remote) {
  if (remote.objectId) {
    let taken;
    state.take = (value) => { taken = value; };
    post('Runtime.callFunctionOn', {
      objectId: remote.objectId, arguments: [{ objectId: remote.objectId }], silent: true,
      functionDeclaration: `function (value) { ${TAKE}(value); }`,
    });
    state.take = null;
    return taken;
  }
  if (remote.type === 'bigint') return BigInt(remote.unserializableValue.slice(0, -1));
  if (remote.unserializableValue) return Number(remote.unserializableValue);
  if (remote.type === 'undefined') return undefined;
  return remote.value === undefined ? null : remote.value;
}

function finish(run, outcome) {
  if (state.running !== run) return;
  let { value, error, exit, interrupted } = outcome;
  if (interrupted) error = { name: 'Interrupt', value: 'interrupted', stack: 'Interrupt: the code was interrupted' };
  let bundle = null;
  if (!error && exit === undefined && value !== undefined) {
    try {
      bundle = toBundle(value);
    } catch (problem) {
      error = describe(problem);
    }
    try {
      realm.globalThis._ = value;
    } catch { /* the code made `_` read-only */ }
  }
  if (interrupted) endWrites();
  withdrawTools();
  takeStdin();
  post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  post('Runtime.discardConsoleEntries');
  state.running = null;
  state.signalled = Boolean(interrupted);
  stopTimer(run.timer);
  store(seen, 0, 0);
  checkChannel();
  if (error) send('error', { name: error.name, value: error.value, traceback: cut(error.stack).split('\n') });
  else if (bundle) send('result', bundle);
  send('done', {
    ok: !error && !exit, exit_code: exit === undefined ? null : exit, cwd: where(), execution_count: state.count,
    interrupted: Boolean(interrupted), state: 'kept',
  });
}

// An interrupt in the middle of console.log() leaves a write that never ends. All later output would wait for it.
function endWrites() {
  for (const { _writableState: writes } of state.outputs) {
    try {
      if (writes.writing) writes.onwrite();
    } catch { /* the code changed the stream */ }
  }
}

function where() {
  try { state.cwd = cwdNow(); } catch { /* deleted: keep the old name */ }
  return state.cwd;
}

// Variables. The inspector describes values without running user code: getters are not called. Its lists are of the
// user's context, so their methods may be the user's: toOwn() copies them.

const VARIABLES_MAX = 1000;
const TEXT_MAX = 200;
let givenGlobals = null; // names that a session begins with

function toOwn(list) {
  const own = [];
  for (let i = 0; i < list.length; i++) own.push(list[i]);
  return own;
}

function variableNames() {
  let lexical = [];
  post('Runtime.globalLexicalScopeNames', {}, (problem, answer) => { if (answer) lexical = toOwn(answer.names); });
  const own = Object.getOwnPropertyNames(realm.globalThis).filter((name) => {
    const property = Object.getOwnPropertyDescriptor(realm.globalThis, name);
    return !givenGlobals.has(name) && property && 'value' in property && /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(name);
  });
  const names = new Set([...lexical, ...own].filter((name) => name !== '_'));
  return [...names].sort();
}

function describeVariables() {
  const names = variableNames();
  const variables = [];
  for (const name of names.slice(0, VARIABLES_MAX)) {
    post('Runtime.evaluate', {
      expression: name, silent: true, throwOnSideEffect: true, generatePreview: true, objectGroup: 'variables',
    }, (problem, answer) => {
      if (!problem && !answer.exceptionDetails) variables.push(describeVariable(name, answer.result));
    });
  }
  post('Runtime.releaseObjectGroup', { objectGroup: 'variables' });
  return { variables, more: Math.max(0, names.length - VARIABLES_MAX) };
}

function describeVariable(name, remote) {
  const count = /\((\d+)\)$/.exec(remote.type === 'object' && remote.description || '');
  const size = remote.type === 'string' ? remote.value.length : count ? Number(count[1]) : null;
  return { name: short(name), type: short(remote.className || remote.subtype || remote.type), size, preview: short(previewOf(remote)) };
}

function previewOf(remote) {
  if (remote.type === 'string') return stringify(remote.value.slice(0, TEXT_MAX));
  if (remote.type === 'function') return remote.description.slice(0, TEXT_MAX).split('\n')[0];
  if (!remote.preview || !['array', 'typedarray', undefined].includes(remote.subtype)) {
    return String(remote.description === undefined ? remote.value === undefined ? remote.type : remote.value : remote.description);
  }
  const isList = remote.subtype !== undefined;
  const shown = toOwn(remote.preview.properties).map((p) => (isList ? '' : `${p.name}: `) + (p.type === 'string' ? stringify(p.value) : p.value || p.type));
  if (remote.preview.overflow) shown.push('…');
  return isList ? `[${shown.join(', ')}]` : `{${shown.join(', ')}}`;
}

const short = (text) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX - 1)}…` : text);

// Values and errors.

function cut(text) {
  if (text.length <= TRACEBACK_MAX) return text;
  return `${text.slice(0, TRACEBACK_MAX / 2)}\n[... cut ...]\n${text.slice(-TRACEBACK_MAX / 2)}`;
}

function text(make) {
  try {
    const made = make();
    return typeof made === 'string' ? made : '<unprintable>';
  } catch {
    return '<unprintable>';
  }
}

// Describes a thrown value of any kind, without our own stack frames.
function describe(problem) {
  if (!types.isNativeError(problem) && !(problem instanceof realm.Error)) {
    const shown = text(() => inspect(problem));
    return { name: 'Uncaught', value: shown, stack: `Uncaught ${shown}` };
  }
  const name = text(() => problem.name && String(problem.name) || 'Error');
  const value = cut(text(() => String(problem.message)));
  const stack = text(() => problem.stack && inspect(problem)) || `${name}: ${value}`;
  return { name, value, stack: trim(stack) };
}

// Removes the stack frames of the kernel and of its callers.
function trim(stack) {
  const kept = [];
  for (const line of stack.split('\n')) {
    if (/^\s+at .*(node:inspector|node:hermes)/.test(line)) break;
    if (!/^\s+at .*[/(]kernel(_source)?\.js:/.test(line)) kept.push(line);
  }
  return kept.join('\n');
}

const RICH = Symbol.for('Jupyter.display');

function toBundle(value) {
  let bundle = {};
  if (value !== null && typeof value === 'object' && typeof value[RICH] === 'function') bundle = { ...value[RICH]() };
  if (!('text/plain' in bundle)) bundle['text/plain'] = inspect(value);
  return sendable(bundle);
}

function depthOf(value, depth = 0) {
  if (depth > DEPTH_MAX || value === null || typeof value !== 'object') return depth;
  let most = depth;
  for (const one of Object.values(value)) most = Math.max(most, depthOf(one, depth + 1));
  return most;
}

function sendable(bundle) {
  const ready = {};
  const dropped = [];
  let size = 0;
  for (const [mime, given] of Object.entries(bundle)) {
    let data = given;
    if (types.isUint8Array(data)) data = decode(bufferFrom(data), 'base64');
    if (depthOf(data) > DEPTH_MAX - 2) { dropped.push(`${mime}: nested too deep`); continue; }
    const length = escape(stringify(data === undefined ? null : data)).length + mime.length + 8;
    if (size + length > FRAME_MAX - 65536) { dropped.push(`${mime}: ${length} bytes are too many`); continue; }
    size += length;
    ready[mime] = data;
  }
  if (!('text/plain' in ready)) {
    ready['text/plain'] = dropped.length ? `[left out: ${dropped.join('; ').slice(0, 1000)}]` : '';
  }
  return ready;
}

function display(value, options) {
  const bundle = options && options.raw ? sendable({ ...value }) : toBundle(value);
  if (state.running) send('display', bundle);
  else print(bundle['text/plain']);
}

// Interrupts. Node's SIGINT watchdog for the vm module terminates a running script, but not one that awaits. Node
// keeps the watchdog only while a script runs, and for a moment after it SIGINT would end the process. So we keep it
// for good. It is started twice: stopping one level reports and clears a pending signal. We poll it while code awaits,
// and prevent the code's own SIGINT listeners from replacing it.
const watch = (() => {
  try {
    const binding = process.binding('contextify');
    return typeof binding.startSigintWatchdog === 'function' ? binding : null;
  } catch {
    return null;
  }
})();
const emit = process.emit.bind(process);
const LOOK_MS = 20;
const SETTLE_ROUNDS = 250;

function keepWatch() {
  if (!watch) return process_.on('SIGINT', onInterrupt);
  for (const listener of process_.listeners('newListener')) {
    if (listener.name !== 'startListeningIfSignal') continue;
    process_.removeListener('newListener', listener);
    process_.on('newListener', (type) => { if (type !== 'SIGINT') listener.call(process_, type); });
  }
  watch.startSigintWatchdog();
  watch.startSigintWatchdog();
  tolerateTermination();
  awaitSignals();
}

// A terminated callback leaves its entry on node's stack of async contexts. Node would abort because of that.
function tolerateTermination() {
  const keep = process_.noDeprecation;
  process_.noDeprecation = true;
  try {
    const { async_hook_fields: fields, constants } = process_.binding('async_wrap');
    fields[constants.kCheck] = 0;
  } catch { /* such a callback then ends the session */ }
  process_.noDeprecation = keep;
}

// A child process that the code waits for gets the signal too. Its death raises an error in the code. V8 aborts when
// node terminates the code at that very moment. So when the child has died of SIGINT, wait for our own signal here:
// the termination ends this wait.
const AWAIT_SIGNAL = `(call, name, wait) => ({
  [name](...args) {
    let died = false;
    try {
      const answer = call.apply(this, args);
      died = answer !== null && answer !== undefined && answer.signal === 'SIGINT';
      return answer;
    } catch (problem) {
      died = problem && (problem.signal === 'SIGINT' || problem.status === 130);
      throw problem;
    } finally {
      if (died) wait();
    }
  },
})[name]`;
const DIED_MS = 100;

function awaitSignals() {
  const processes = require('child_process');
  const { wait } = Atomics;
  const cell = new Int32Array(new SharedArrayBuffer(4));
  const wrap = new vm.Script(AWAIT_SIGNAL, { filename: 'node:hermes' }).runInThisContext();
  for (const name of ['spawnSync', 'execSync', 'execFileSync']) {
    processes[name] = wrap(processes[name], name, () => { wait(cell, 0, 0, DIED_MS); });
  }
  Module.syncBuiltinESMExports();
}

function signalCame() {
  if (!watch) return false;
  const came = watch.stopSigintWatchdog();
  watch.startSigintWatchdog();
  return came;
}

// While code spins after an await or in a callback, we cannot poll for signals. A thread notices that a signal is
// pending, that an exec awaits and that we have not polled for a while. It then calls interruptSpinning() here through
// the inspector, in the middle of the code. The thread is made when code first awaits.
const GUARD_MS = 50;
const SPUN_MS = 150;
const GUARD = `
const { workerData } = require('worker_threads');
const { Session } = require('inspector');
const { watchdogHasPendingSigint } = process.binding('contextify');
let session = null;
let asked = false;
let last = -1;
let since = 0;
setInterval(() => {
  const looked = Atomics.load(workerData, 1);
  if (looked !== last || !Atomics.load(workerData, 0) || !watchdogHasPendingSigint()) {
    last = looked;
    since = Date.now();
  } else if (Date.now() - since >= ${SPUN_MS} && !asked) {
    if (!session) {
      session = new Session();
      session.connectToMainThread();
    }
    asked = true;
    session.post('Runtime.evaluate', { expression: '${SPINNING}()' }, (problem, answer) => {
      asked = false;
      if (answer && answer.exceptionDetails) session.post('Runtime.terminateExecution'); // the code left no room on the stack
    });
  }
}, ${GUARD_MS});`;
const seen = new Int32Array(new SharedArrayBuffer(8)); // [0]: an exec awaits; [1]: how often we polled
const { add, store } = Atomics;
let guard = null;

// Nothing can catch a termination, so it must not hit this file: it would lose an answer. The thread also calls when
// we were only slow to get the processor. So look at what it interrupted. The code's frames must be the innermost, or
// this file is at work, and the outermost, or this file waits for the code.
function interruptSpinning() {
  if (!state.running || !watch.watchdogHasPendingSigint()) return;
  const [own, , , ...below] = filesOfStack();
  if (!below.length) return void later(look);
  const files = below.filter((file) => !/^node:(?!hermes)/.test(file));
  if (files.length && files[0] !== own && files[files.length - 1] !== own) post('Runtime.terminateExecution');
}

// The file of each frame, innermost first: this one, our caller's, the inspector's, and those of what it interrupted.
// The Error is of our own context.
function filesOfStack() {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Object.assign(Error, { prepareStackTrace: (_, sites) => sites.map((site) => site.getFileName()), stackTraceLimit: Infinity });
  const files = new Error().stack;
  Object.assign(Error, { prepareStackTrace, stackTraceLimit });
  return files;
}

function beginToLook(run) {
  run.timer = every(look, LOOK_MS);
  store(seen, 0, 1);
  if (guard) return;
  const resourceLimits = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2, stackSizeMb: 1 };
  try {
    guard = new Worker(GUARD, { eval: true, workerData: seen, resourceLimits, env: {}, execArgv: [] });
    guard.on('error', () => {});
    guard.unref();
  } catch {
    guard = {}; // no thread is left: such code cannot be interrupted
  }
}

// The server has sent a signal and wants it handled before the next exec. If it did not end the code, it is still on
// its way to us, through a thread of node or the event loop.
function settleSignals(round) {
  state.signalled = state.signalled || signalCame() || state.early;
  if (!state.signalled && round < SETTLE_ROUNDS) return void once(settleSignals, 2, round + 1);
  state.early = state.signalled = false;
  send('settled', null);
}

function look() {
  add(seen, 1, 1);
  if (!signalCame()) return;
  try {
    emit('SIGINT', 'SIGINT', 2);
  } finally {
    onInterrupt();
  }
}

function onInterrupt() {
  if (state.running) {
    state.running.finish({ interrupted: true });
  } else { // meant for an exec that is still in the channel, if it comes in this turn of the loop
    state.early = true;
    later(() => later(() => { state.early = false; }));
  }
}

function onUncaught(problem) {
  if (problem instanceof Exit) {
    if (state.running) state.running.finish({ exit: problem.code });
    return;
  }
  writeText(2, `Uncaught ${describe(problem).stack.replace(/^Uncaught /, '')}\n`);
}

function writeText(fd, words) {
  try {
    writeAll(fd, bufferFrom(words));
  } catch { /* the pipe is closed */ }
}

// stdin: an unlinked file on descriptor 0.

function giveStdin() {
  const data = state.stdin;
  state.stdin = null;
  state.hasStdin = Boolean(data && data.length);
  state.stdinStream = null;
  try {
    try { fstatSync(0); } catch { putOnZero('/dev/null'); } // the code closed 0
    if (!state.hasStdin) return;
    const name = join(tmpdir(), `.stdin-${process_.pid}-${state.count}`);
    const fd = openSync(name, 'wx+', 0o600);
    unlinkSync(name);
    writeAll(fd, data);
    putOnZero(`/proc/self/fd/${fd}`);
    closeSync(fd);
  } catch (problem) {
    writeText(2, `hermes: stdin could not be given to the code: ${problem.message}\n`);
  }
}

// In one step: other threads of node, and of the code, open files meanwhile and would get a 0 that is free.
function putOnZero(name) {
  const fd = openSync(name, 'r');
  if (fd === 0) return; // the code had closed it
  const status = replace(0, fd);
  closeSync(fd);
  if (status !== 0) throw new Error(`descriptor 0 cannot be replaced (error ${status})`);
}

function takeStdin() {
  if (state.hasStdin) putOnZero('/dev/null');
}

function stdinStream() {
  if (!state.stdinStream) {
    state.stdinStream = new ReadStream(null, { fd: 0, autoClose: false });
    state.stdinStream.fd = 0;
  }
  return state.stdinStream;
}

// require, import and tools.

function setUpRequire() {
  const dir = where();
  if (dir === state.requireDir) return;
  state.requireDir = dir;
  const module = new Module(join(dir, '[cell]'));
  module.filename = join(dir, '[cell]');
  module.paths = nodeModulePaths.call(Module, dir);
  const require_ = createRequire(module.filename);
  const names = { require: require_, module, exports: module.exports, __dirname: dir, __filename: module.filename };
  for (const [name, value] of Object.entries(names)) define(name, value);
  define(IMPORT, makeImport(module.filename));
}

// An import() that resolves as in `filename`. It needs a script of its own: code from the inspector cannot import.
function makeImport(filename) {
  const loader = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  let load = realm.import;
  if (loader) {
    const options = { filename, importModuleDynamically: loader };
    load = new vm.Script('(name, options) => import(name, options)', options).runInThisContext();
  }
  return (name, options) => {
    if (name === 'hermes_tools') return new realm.Promise((give) => give({ ...state.tools, default: state.tools }));
    return load(name, options);
  };
}

function define(name, value, writable = true) {
  Object.defineProperty(realm.globalThis, name, { value, writable, configurable: writable, enumerable: false });
}

const loadModule = Module._load;
Module._load = function (request, ...rest) {
  return request === 'hermes_tools' ? state.tools : loadModule.call(this, request, ...rest);
};

function offerTools(specs) {
  state.tools = new realm.Object();
  state.tools.ToolError = ToolError;
  if (!Array.isArray(specs)) return;
  for (const spec of specs) {
    if (!spec || typeof spec.name !== 'string') continue;
    const properties = spec.input_schema && spec.input_schema.properties;
    const order = properties && typeof properties === 'object' ? Object.keys(properties) : [];
    const tool = makeTool(spec.name, order, state.generation);
    Object.defineProperty(tool, 'name', { value: spec.name });
    tool.description = spec.description;
    const property = { value: tool, enumerable: true, configurable: true, writable: true };
    Object.defineProperty(state.tools, spec.name, property);
    const identifier = spec.name.replace(/[^\w$]/g, '_');
    if (!(identifier in state.tools)) state.tools[identifier] = tool;
  }
}

function makeTool(name, order, generation) {
  return (...args) => new realm.Promise((resolve, reject) => {
    const input = toInput(name, order, args);
    let json;
    try {
      json = stringify(input);
    } catch (problem) {
      throw new realm.TypeError(`${name}(): the arguments cannot be sent as JSON: ${problem.message}`);
    }
    if (json.length > INPUT_MAX) {
      throw new realm.RangeError(`${name}(): arguments of ${json.length} bytes; ${INPUT_MAX} is the most`);
    }
    if (depthOf(input) > DEPTH_MAX - 2) throw new realm.RangeError(`${name}(): arguments nested too deep`);
    if (generation !== state.generation || !state.running) {
      throw new ToolError(`${name}: the exec that offered this tool is over; offer it again`);
    }
    const id = String(++state.callCount);
    state.calls.set(id, { resolve, reject, name });
    send('tool_call', { id, name, input });
  });
}

// A single object is the whole input. Otherwise arguments follow the order of the schema.
function toInput(name, order, args) {
  const [first] = args;
  if (args.length === 1 && first !== null && typeof first === 'object' && !Array.isArray(first)) return first;
  if (args.length > order.length) {
    throw new realm.TypeError(`${name}() takes at most ${order.length} arguments: ${order.join(', ')}`);
  }
  const input = {};
  for (let i = 0; i < args.length; i++) input[order[i]] = args[i];
  return input;
}

function onToolResult(answer) {
  const call = answer && state.calls.get(String(answer.id));
  if (!call) return; // late, or unknown
  state.calls.delete(String(answer.id));
  if ('error' in answer) call.reject(new ToolError(String(answer.error)));
  else call.resolve(answer.output);
}

function withdrawTools() {
  state.generation++;
  for (const { reject, name } of state.calls.values()) {
    const given = new ToolError(`${name}: the exec that made this call is over`);
    reject(given);
  }
  state.calls.clear();
}

// The session.

// Hides the warning that our way of importing is experimental: the user can do nothing about it.
function hideWarning() {
  const emit = process_.emitWarning;
  process_.emitWarning = function (warning, ...rest) {
    if (!/USE_MAIN_CONTEXT_DEFAULT_LOADER/.test(String(warning))) return emit.call(this, warning, ...rest);
  };
}

function begin() {
  state.identity = fstatSync(CHANNEL);
  keepWatch();
  process_.on('uncaughtException', onUncaught);
  process_.on('unhandledRejection', (problem) => { if (!(problem instanceof ToolError)) onUncaught(problem); });
  process_.exit = (code) => { throw new Exit(Number(code ?? process_.exitCode ?? 0) & 0xff); };
  Object.defineProperty(process_, 'stdin', { get: stdinStream, configurable: true, enumerable: true });
  process_.argv.length = 1;
  define('display', display);
  define(RUN, () => state.go && state.go(), false);
  define(SPINNING, interruptSpinning, false);
  define(TAKE, (value) => state.take && state.take(value), false);
  // Write output at once instead of from the event loop, and give children blocking pipes.
  state.outputs = [process_.stdout, process_.stderr];
  for (const { _handle: handle } of state.outputs) {
    if (handle && handle.setBlocking) handle.setBlocking(true);
  }
  setUpRequire();
  hideWarning();
  givenGlobals = new Set(Object.getOwnPropertyNames(realm.globalThis));
  const channel = new net.Socket({ fd: CHANNEL, readable: true, writable: false });
  channel.on('data', onData);
  for (const event of ['end', 'error', 'close']) channel.on(event, () => exitNow(0));
  send('ready', { cwd: where(), kernel: `node ${process_.versions.node}` });
}

begin();
