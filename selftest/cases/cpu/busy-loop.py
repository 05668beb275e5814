# id: O-29
# name: Busy loop
# group: cpu
# priority: 1
# expect: time_limit
# expect-hit: cpu
# limits: cpu_ms=1000
# control: none
# control-why: the limit is supervision, not a barrier; without it the run would not end
while True:
    pass
