# SPDX-License-Identifier: Apache-2.0
"""Warm starts over HTTP with keep-alive, against the bare interpreter in the same rounds."""
import functools
import json
import statistics
import subprocess
import threading
import time

from over_http import Kept, Serving, timed

BARE = ["/usr/bin/python3", "-c", "print('hello')"]
HELLO = {"language": "python", "code": "print('hello')\n"}
IMPORTS = "import json, re, collections, datetime\nprint('hello')\n"
CLIENTS, MANY, SECONDS, SLICES = 8, 64, 4, 2


def bare_ms(code=BARE[2]):
    start = time.perf_counter()
    subprocess.run([BARE[0], "-c", code], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                   env={"PATH": "/usr/bin:/bin"}, check=True)
    return (time.perf_counter() - start) * 1000


def wait_until_warm(server):
    deadline = time.monotonic() + 30
    while server.run("python", "pass").json()["isolation"]["start"] != "warm":
        if time.monotonic() > deadline:
            raise RuntimeError("no zygote came up")
        time.sleep(0.1)
    time.sleep(2)  # the pool is full, memory is calibrated


def crowd(work, clients, seconds):
    """The times that this many threads take for a step of work() each, again and again for so long,
    sorted. One that fails fails the measurement: nothing may be lost."""
    times, failed = [], []
    end = time.monotonic() + seconds

    def loop():
        try:
            step = work()
            while time.monotonic() < end:
                times.append(step())
        except Exception as problem:
            failed.append(problem)
    threads = [threading.Thread(target=loop) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]
    return sorted(times)


JAVA = """import java.util.*;
public class Main {
    public static void main(String[] args) {
        List<String> words = new ArrayList<>(List.of("hello"));
        System.out.println(String.join(" ", words));
    }
}
"""


def timed_warm(conn, make_body):
    """Milliseconds of one run in parked boxes. Each serves one run, so there is a pause until the
    next are there; a run that found none does not count."""
    while True:
        time.sleep(0.3)
        taken, run = conn.post(make_body())
        if run["stdout"].strip() != "hello":
            raise RuntimeError(repr(run))
        if run["isolation"]["start"] == "warm":
            return taken
        time.sleep(2)


def bare_command(command, folder):
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                   env={"PATH": "/usr/bin:/bin"}, check=True)
    return (time.perf_counter() - start) * 1000


def warm_parked(bench):
    """JavaScript and Java in boxes whose interpreter waits, while there are any; memory of it all."""
    from run import interleave, row, runtimes
    serial = [0]

    def java():
        serial[0] += 1  # another program each time: nothing is cached
        return json.dumps({"language": "java", "code": JAVA + "// %d\n" % serial[0]}).encode()
    folder = bench.place("warm-java", {"Main.java": JAVA})
    script = json.dumps({"language": "javascript", "code": "console.log('hello')\n"}).encode()
    cases = (("javascript", lambda: script, ["/usr/bin/node", "-e", "console.log('hello')"], 0.2, 1),
             ("java", java, ["/usr/bin/java", "Main.java"], 0.25, 2))
    with Serving(HERMES_PARKED="8") as server:
        conn = Kept(server)
        time.sleep(8)
        yield idle_memory(server)
        for language, body, bare, target, less in cases:
            if not runtimes()[language]["available"]:
                continue
            ours, theirs = interleave(max(5, bench.rounds // less),
                                      lambda: timed_warm(conn, body),
                                      lambda: bare_command(bare, folder))
            yield row("%s parked" % language, ours, theirs, target)
        conn.close()


def idle_memory(server):
    """Proportional memory of all processes of a server that does nothing, in MiB."""
    from apilib import descendants
    total = 0
    for pid in [server.process.pid] + descendants(server.process.pid):
        with open("/proc/%d/smaps_rollup" % pid) as rollup:
            total += int(next(line for line in rollup if line.startswith("Pss:")).split()[1])
    mib = total / 1024
    return {"name": "idle memory, MiB", "ms": round(mib, 1), "than_ms": 320, "ratio": round(mib / 320, 3),
            "target": 1.0, "extra_ms": 0.0, "met": mib <= 320, "rounds": 1, "note": "PSS of all, default pools"}


def warm_python(bench):
    """Python hello: interleaved with bare, imports, own limits, back to back, on demand, 8 and 64 clients,
    without a pool."""
    from run import interleave, row
    hello = json.dumps(HELLO).encode()
    imports = json.dumps(dict(HELLO, code=IMPORTS)).encode()
    with Serving(HERMES_PARKED="16") as server:
        wait_until_warm(server)
        conn = Kept(server)
        warm, bare = interleave(bench.rounds * 5, lambda: timed(conn, hello), bare_ms)
        yield row("python warm, interleaved", warm, bare, 0.08)
        yield dict(row("python warm, p99", [sorted(warm)[int(len(warm) * 0.99)]], bare, 0.6))
        loaded, plain = interleave(bench.rounds * 5, lambda: timed(conn, imports),
                                   lambda: bare_ms(IMPORTS))
        yield row("python with imports", loaded, plain, 0.07)
        own = json.dumps(dict(HELLO, limits={"memory_mb": 300, "cpu_ms": 2000})).encode()
        limited, plain = interleave(bench.rounds * 2, lambda: timed(conn, own), bare_ms)
        yield row("python with own limits", limited, plain, 0.1)
        around = [bare_ms() for _ in range(bench.rounds // 2)]
        after_each_other = [timed(conn, hello) for _ in range(bench.rounds * 10)]
        around += [bare_ms() for _ in range(bench.rounds // 2)]
        yield row("python back to back", after_each_other, around, 0.12)
        def after_pause():
            """A limit that no parked box has: a box on demand, when nothing has happened for a while."""
            time.sleep(0.3)
            return timed(conn, special)
        special = json.dumps(dict(HELLO, limits={"processes": 9})).encode()
        demanded, plain = interleave(bench.rounds, after_pause, bare_ms)
        yield row("python on demand, after a pause", demanded, plain, 0.4)
        conn.close()

        kept = [Kept(server) for _ in range(MANY)]
        few, many, bares = [], [], []
        for _ in range(SLICES):  # in turns: others use this host, too
            for times, clients in (few, CLIENTS), (many, MANY):
                steps = iter([functools.partial(timed, own, hello) for own in kept])
                times += crowd(steps.__next__, clients, SECONDS / SLICES)
            bares += crowd(lambda: bare_ms, CLIENTS, SECONDS / SLICES)
        few.sort()
        many.sort()
        for own in kept:
            own.close()
        ours, theirs = len(few) / SECONDS, len(bares) / SECONDS
        yield dict(row("python, 64 clients, p99", [many[int(len(many) * 0.99)]], few, 12),
                   note="to the p50 of 8 clients; %.0f/s, none lost" % (len(many) / SECONDS))
        yield {"name": "python, 8 clients", "ms": round(1000 / ours, 3), "than_ms": round(1000 / theirs, 3),
               "ratio": round(theirs / ours, 3), "target": 0.25, "extra_ms": 0.0,
               "met": ours >= 4 * theirs, "rounds": 1,
               "note": "%.0f/s to %.0f/s bare, %.1fx, aim 6x" % (ours, theirs, ours / theirs)}
    with Serving(HERMES_PARKED="0") as server:
        wait_until_warm(server)
        conn = Kept(server)
        times = [timed(conn, hello) for _ in range(bench.rounds * 10)]
        yield row("python without a pool", times, bare, 0.22)
        conn.close()
    assert statistics.median(bare) > 0
