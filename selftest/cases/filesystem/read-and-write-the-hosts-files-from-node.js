// id: X-65
// name: Read and write the host's files from node
// group: filesystem
// priority: 1
// expect: ok
// needs-cgroup: yes
// control: mount
'use strict';
const fs = require('fs');

const refused = new Set(['ENOENT', 'EACCES', 'EPERM', 'EROFS', 'ENOTDIR']);
const read = [process.env.CANARY_FILE || '/var/tmp/none', '/etc/shadow', '/etc/machine-id', '/root/.bashrc',
  '/var/lib/dpkg/status', '/proc/1/environ', '/proc/1/mem', '/proc/kcore'];
const write = ['/etc/passwd', '/usr/bin/x', '/x', '/proc/self/oom_score_adj', (process.env.CANARY_DIR || '/var/tmp/none') + '/x'];

function attempt(what, path, call) {
  try {
    call();
    console.log('BREACH:', what, path);
  } catch (e) {
    console.log(refused.has(e.code) ? 'blocked:' : 'BREACH: unexpected', what, path, e.code);
  }
}

for (const path of read) attempt('read', path, () => fs.readFileSync(path).length);
if (!process.env.CONTROL) for (const path of write) attempt('wrote', path, () => fs.writeFileSync(path, 'x'));
console.log('done');
