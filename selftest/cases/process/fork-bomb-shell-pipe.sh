# id: O-17
# name: Fork bomb, shell pipe
# group: process
# priority: 2
# expect: time_limit
# expect-hit: processes
# limits: cpu_ms=2000
# control: none
# control-why: a bomb without the limit is what O-16's control shows in a harmless way
# needs-cgroup: yes
# victim: yes
exec 2>/dev/null
:(){ :|:& };:
# The first shell stays, or its exit would end the run.
while true; do true; done
