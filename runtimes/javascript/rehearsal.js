// SPDX-License-Identifier: Apache-2.0
// Uses each feature that most programs use once. Node runs this as a program before it is parked (park.js).
'use strict';
const fs = require('fs');
const net = require('net');
const path = require('path');
const util = require('util');
const {Console} = require('console');
const {EventEmitter} = require('events');

class A extends EventEmitter {
  #x = 1;

  get x() {
    return this.#x;
  }

  * [Symbol.iterator]() {
    yield* [this.x, 2, 3];
  }
}

async function work() {
  return [...new A()].map((v) => v * 2).filter(Boolean).reduce((a, b) => a + b, 0);
}

// A stream like stdout, on a pipe that park.js has made.
const stream = new net.Socket({fd: Number(process.env.REHEARSAL_FD), readable: false, writable: true});
const trial = new Console({stdout: stream, stderr: stream});
trial.log('hello');
trial.log('hello', 1, {a: [1, 'b'], c: new Map([[1, {d: null}]])}, [undefined, 1.5]);
trial.error('%s %d %j', 'x', 2, {});
stream.unref();
stream.destroy();

work();
new A().on('x', () => {}).emit('x');
fs.readFileSync('/dev/null', 'utf8').trim().split('\n').map(Number);
JSON.stringify({a: JSON.parse('{"b": [1, 2]}')}, null, 1);
`${util.inspect(new Set([1]))}${path.join('a', 'b')}`.replace(/a/g, 'b').padEnd(20).match(/(\w+)/);
try {
  null.x;
} catch (e) {
  String(e.stack);
}
