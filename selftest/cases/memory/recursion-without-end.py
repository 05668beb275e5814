# id: X-39
# name: Recursion without end
# group: memory
# priority: 2
# expect: signaled, memory_limit, runtime_error
# control: none
# control-why: about the truth of the verdict, not about a barrier
import sys

sys.setrecursionlimit(10**9)


class Deep:
    def __repr__(self):  # through C, so that the machine's stack grows
        return "%r" % (self,)


repr(Deep())
print("finished?")
