# id: O-30
# name: Sleep forever
# group: cpu
# priority: 1
# expect: time_limit
# expect-hit: wall
# expect-not-hit: cpu
# limits: wall_ms=2000
# control: none
# control-why: the limit is supervision, not a barrier; without it the run would not end
sleep 100000
