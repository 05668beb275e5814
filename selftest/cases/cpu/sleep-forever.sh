# id: O-30
# name: Sleep forever
# group: cpu
# priority: 1
# expect: time_limit
# expect-hit: wall
# expect-not-hit: cpu
# control: none
# control-why: the limit is supervision, not a barrier; without it the run would not end
sleep 100000
