// id: X-66
// name: Reach the host's listeners and abstract sockets from node
// group: network
// priority: 1
// expect: ok
// needs-cgroup: yes
// control: netns
'use strict';
const net = require('net');

const targets = [
  {host: '127.0.0.1', port: Number(process.env.CANARY_PORT || 9)},
  {host: '::1', port: Number(process.env.CANARY_PORT || 9)},
  {path: '\0' + (process.env.CANARY_ABSTRACT || 'none')},
];
if (!process.env.CONTROL) targets.push({host: '169.254.169.254', port: 80}, {host: '10.0.0.1', port: 80});

let left = targets.length;
function over() {
  if (--left === 0) console.log('done');
}
for (const target of targets) {
  const name = JSON.stringify(target);
  const socket = net.connect(target);
  socket.on('connect', () => {
    console.log('BREACH: connected to', name);
    socket.destroy();
    over();
  });
  socket.on('error', (e) => {
    console.log('blocked:', name, e.code);
    over();
  });
}
