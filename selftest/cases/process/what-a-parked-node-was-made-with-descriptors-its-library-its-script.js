// id: X-64
// name: What a parked node was made with: descriptors, its library, its script
// group: process
// priority: 1
// expect: ok
// needs-cgroup: yes
// control: none
// control-why: a cold box has none of this to find; the descriptors are closed by the same code that connects stdio
'use strict';
const fs = require('fs');

// The way of the job and the link to box init were sockets at fixed places, past node's own.
for (const name of fs.readdirSync('/proc/self/fd')) {
  let target = '';
  try {
    target = fs.readlinkSync('/proc/self/fd/' + name);
  } catch {
    continue; // the directory itself
  }
  if (/^socket:|memfd/.test(target) && Number(name) > 2) console.log('BREACH: descriptor', name, target);
}
for (const fd of [60, 61, 62, 63]) {
  try {
    fs.fstatSync(fd);
    console.log('BREACH: descriptor', fd, 'is open');
  } catch (e) {
    console.log('blocked:', 'descriptor', fd, e.code);
  }
}

// A second job for the same process.
const library = {exports: {}};
try {
  process.dlopen(library, '/usr/lib/hermes/libhermes-warm.so');
  const job = library.exports.park();
  console.log(job === undefined ? 'blocked: a second job' : 'BREACH: another job ' + job);
} catch (e) {
  console.log('blocked:', 'library', e.code || e.message);
}

// A script that the next box would load.
for (const path of ['/usr/lib/hermes/park.js', '/usr/lib/hermes/libhermes-warm.so', '/usr/lib/hermes/x']) {
  try {
    fs.writeFileSync(path, 'x');
    console.log('BREACH: wrote', path);
  } catch (e) {
    console.log('blocked:', path, e.code);
  }
}
console.log('done');
