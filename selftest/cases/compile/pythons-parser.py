# id: X-59
# name: Python's parser
# group: compile
# priority: 2
# expect: runtime_error, signaled, memory_limit, time_limit, ok
# limits: wall_ms=2000 cpu_ms=1000
# control: none
# control-why: about the truth of the verdict, not about a barrier
import ast

for source in ("(" * 100000, "-" * 1000000 + "1", "f(" * 5000, "[" * 99 + "]" * 99,
               "x = " + "a." * 500000 + "b", "lambda: " * 50000 + "1", "\0", "if 1:\n" * 0 + "é" * 10):
    try:
        ast.parse(source)
    except (SyntaxError, MemoryError, RecursionError, ValueError) as e:
        print("blocked:", type(e).__name__)
eval("-" * 10000000 + "1")
print("done")
