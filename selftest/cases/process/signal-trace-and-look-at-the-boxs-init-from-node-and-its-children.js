// id: X-67
// name: Signal, trace and look at the box's init from node and its children
// group: process
// priority: 1
// expect: ok
// needs-cgroup: yes
// control: none
// control-why: the uid barrier's own case is O-13; here the same probe runs in a box that waited for its job
'use strict';
const fs = require('fs');
const {spawnSync} = require('child_process');

function attempt(what, call) {
  try {
    const got = call();
    console.log('BREACH:', what, got === undefined ? '' : String(got).slice(0, 80));
  } catch (e) {
    console.log('blocked:', what, e.code || e.message);
  }
}
attempt('kill 1', () => process.kill(1, 'SIGKILL'));
attempt('kill all', () => process.kill(-1, 0) && fs.readlinkSync('/proc/1/exe'));
for (const file of ['environ', 'maps', 'mem', 'fd', 'cmdline']) {
  attempt('/proc/1/' + file, () => (file === 'fd' ? fs.readdirSync('/proc/1/fd') : fs.readFileSync('/proc/1/' + file)));
}
const shown = fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name));
for (const pid of shown) {
  const status = fs.readFileSync('/proc/' + pid + '/status', 'utf8');
  if (!/^Uid:\t1000\t/m.test(status)) console.log('BREACH: sees process', pid);
}
const child = spawnSync('sh', ['-c', 'id -u; ls /proc/self/fd | wc -l; cat /proc/self/environ | tr "\\0" "\\n" | grep -c hermes'],
  {encoding: 'utf8'});
const [uid, descriptors] = child.stdout.split('\n');
console.log(uid === '1000' ? 'blocked: uid' : 'BREACH: child has uid ' + uid);
console.log(Number(descriptors) <= 5 ? 'blocked: descriptors' : 'BREACH: child has ' + descriptors + ' descriptors');
attempt('setuid', () => process.setuid(0));
attempt('setgroups', () => process.setgroups([0]));
console.log('done');
