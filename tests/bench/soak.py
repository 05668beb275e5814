#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Many mixed runs over HTTP against a real `hermes serve`, every verdict checked.

Passes when no verdict was wrong, nothing was left behind, the server's memory stayed where it was
and the p99 of the last tenth is within 1.2 times that of the first. Runs that wait by design (time
limits, cancelled ones) do not count for the p99; what other programs took of the machine meanwhile
is told and allowed for. Ends with one line and exit status 0 or 1.

  tests/bench/soak.py [--runs N] [--clients N] [--connections N] [--seed N]
"""
import argparse
import asyncio
import base64
import collections
import functools
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from apilib import MONITOR, Server, make_dir, sse  # noqa: E402
from crowd import Connection  # noqa: E402
from leaks import Groups, Holdings, gone, kernel_complaints, kernel_groups, settle  # noqa: E402

DRIFT_MAX = 1.2     # p99 of the last tenth against the first
GROWTH_KB = 4096    # of the server's memory, from the second tenth to the end
DYING_WAIT_S = 30   # the kernel lets go of control groups in its own time
WARM_UP = 200       # runs before the first that counts
POLL_S = 0.02
WRONG_KEPT = 20

C_ECHO = "#include <stdio.h>\nint main(void) { long n; scanf(\"%ld\", &n); printf(\"%ld\\n\", n * 3); }\n"
C_ABORT = "#include <stdlib.h>\nint main(void) { abort(); }\n"
FORKS = ("import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n"
         "except OSError: print('full', n > 3)\n")


class Wrong(Exception):
    pass


def check(found, **wanted):
    """The named members of a result; raises Wrong with the whole of it."""
    for name, value in wanted.items():
        if name == "hit":
            ok = value in found.get("limits_hit", [])
        elif name == "stderr_has":
            ok = value in found.get("stderr", "")
        else:
            ok = found.get(name) == value
        if not ok:
            raise Wrong("%s is not %r: %s" % (name, value, json.dumps(found)[:1500]))


async def run(conn, language, code, **fields):
    answer = await conn("POST", "/v1/runs", dict(language=language, code=code, **fields))
    if answer.status != 200:
        raise Wrong(repr(answer))
    return answer.json()


async def start_async(conn, language, code, **fields):
    answer = await conn("POST", "/v1/runs", dict(fields, language=language, code=code, **{"async": True}))
    if answer.status != 202:
        raise Wrong(repr(answer))
    return "/v1/runs/" + answer.json()["id"]


async def poll(conn, path, unwanted):
    """Asks until the status is none of these."""
    while True:
        answer = await conn("GET", path)
        if answer.status != 200:
            raise Wrong(repr(answer))
        found = answer.json()
        if found["status"] not in unwanted:
            return found
        await asyncio.sleep(POLL_S)


async def python_ok(conn, n):
    check(await run(conn, "python", "print(%d * 7)" % n), status="ok", exit_code=0, stdout="%d\n" % (n * 7),
          stderr="", limits_hit=[])


async def bash_ok(conn, n):
    check(await run(conn, "bash", "read x; echo \"$x $((x + 1))\"", stdin="%d\n" % n), status="ok",
          stdout="%d %d\n" % (n, n + 1), limits_hit=[])


async def c_cached(conn, n):
    check(await run(conn, "c", C_ECHO, stdin=str(n)), status="ok", stdout="%d\n" % (n * 3))


async def c_fresh(conn, n):
    found = await run(conn, "c", C_ECHO + "/* %d %f */\n" % (n, time.time()), stdin=str(n))
    check(found, status="ok", stdout="%d\n" % (n * 3))
    check(found["compile"], cached=False, status="ok")


async def python_exit(conn, n):
    code = n % 200 + 1
    check(await run(conn, "python", "import sys; print(%d); sys.exit(%d)" % (n, code)), status="runtime_error",
          exit_code=code, stdout="%d\n" % n, signal=None)


async def python_raise(conn, n):
    check(await run(conn, "python", "raise ValueError(%d)" % n), status="runtime_error", exit_code=1, stdout="",
          stderr_has="ValueError: %d\n" % n)


async def bash_signal(conn, n):
    check(await run(conn, "bash", "echo %d; kill -SEGV $$" % n), status="signaled", signal="SIGSEGV",
          exit_code=None, stdout="%d\n" % n)


async def c_signal(conn, n):
    check(await run(conn, "c", C_ABORT), status="signaled", signal="SIGABRT", exit_code=None)


async def wall_limit(conn, n):
    # A machine with more to do may not come as far as the output in this time.
    check(await run(conn, "bash", "echo %d; sleep 60" % n, limits={"wall_ms": 120}), status="time_limit",
          hit="wall", exit_code=None)


async def cpu_limit(conn, n):
    check(await run(conn, "bash", "echo %d; while :; do :; done" % n, limits={"cpu_ms": 60}),
          status="time_limit", hit="cpu", stdout="%d\n" % n)


async def memory_limit(conn, n):
    check(await run(conn, "python", "print(%d, flush=True); x = b'x' * (200 << 20)" % n,
                    limits={"memory_mb": 32}), status="memory_limit", hit="memory", stdout="%d\n" % n)


async def output_limit(conn, n):
    check(await run(conn, "bash", "while :; do echo 0123456; done", limits={"output_kb": 16}),
          status="output_limit", hit="output", stdout="0123456\n" * 2048, stdout_truncated=True)


async def compile_error(conn, n):
    found = await run(conn, "c", "int main(void) { return %d }" % n)
    check(found, status="compile_error", exit_code=None, stdout="")
    check(found["compile"], cached=False, status="runtime_error", stderr_has="error: expected")


async def collect(conn, n):
    found = await run(conn, "bash", "echo %d > out.txt; mkdir d; echo x > d/y; ln -s out.txt l.txt" % n,
                      collect=["*.txt", "d/*"])
    check(found, status="ok")
    files = {f["name"]: f.get("error") or base64.b64decode(f["content"]) for f in found["files"]}
    if files != {"out.txt": b"%d\n" % n, "d/y": b"x\n", "l.txt": "not_regular"}:
        raise Wrong("files: %s" % found["files"])


async def forks(conn, n):
    check(await run(conn, "python", FORKS, limits={"processes": 12, "memory_mb": 256}), status="ok",
          stdout="full True\n", hit="processes")


async def async_ok(conn, n):
    path = await start_async(conn, "bash", "echo %d" % n)
    check(await poll(conn, path, ("queued", "running")), status="ok", stdout="%d\n" % n)


async def cancelled(conn, n):
    path = await start_async(conn, "bash", "echo %d; sleep 60" % n, limits={"wall_ms": 60000})
    await poll(conn, path, ("queued",))
    answer = await conn("DELETE", path)
    if answer.status != 202:
        raise Wrong(repr(answer))
    check(await poll(conn, path, ("queued", "running")), status="cancelled", exit_code=None)


async def streamed(conn, n):
    answer = await conn("POST", "/v1/runs", {"language": "bash", "code": "echo %d; echo e >&2" % n},
                        headers=[("Accept", "text/event-stream")])
    events = sse(answer.body.decode())
    names = [name for _, name, _ in events]
    out = "".join(data["data"] for _, name, data in events if name == "stdout")
    if answer.status != 200 or names[:1] != ["start"] or names[-1:] != ["end"] or out != "%d\n" % n:
        raise Wrong(repr(answer))
    check(events[-1][2], status="ok", stdout="%d\n" % n, stderr="e\n")


# Kind, how many in a hundred, and whether its time says something about the server.
KINDS = [(python_ok, 18, True), (bash_ok, 18, True), (c_cached, 14, True), (c_fresh, 2, True),
         (python_exit, 5, True), (python_raise, 4, True), (bash_signal, 5, True), (c_signal, 3, True),
         (wall_limit, 3, False), (cpu_limit, 2, False), (memory_limit, 4, True), (output_limit, 5, True),
         (compile_error, 3, True), (collect, 5, True), (forks, 1, True), (async_ok, 3, False),
         (cancelled, 2, False), (streamed, 3, True)]


@functools.lru_cache(maxsize=4)
def hundred(block, seed):
    """Every hundred runs hold the whole table, in an order of their own."""
    order = [i for i, (_, weight, _) in enumerate(KINDS) for _ in range(weight)]
    random.Random(seed * 1000003 + block).shuffle(order)
    return order


def kind_of(n, seed):
    return hundred(n // 100, seed)[n % 100]


class Client:
    """One process with several connections; takes every clients-th run."""

    def __init__(self, at, options, port, counts):
        self.at, self.options, self.port, self.counts = at, options, port, counts
        self.todo = iter(range(at, options.runs, options.clients))
        self.done = []
        self.wrong = []

    async def serve(self):
        conn = Connection(self.port)
        for n in self.todo:
            kind = kind_of(n, self.options.seed)
            began = time.monotonic()
            try:
                await KINDS[kind][0](conn, n)
            except Exception as e:
                self.counts[self.at * 2 + 1] += 1
                if len(self.wrong) < WRONG_KEPT:
                    self.wrong.append("run %d, %s: %s: %s" % (n, KINDS[kind][0].__name__,
                                                             type(e).__name__, e))
            self.done.append((n, kind, (time.monotonic() - began) * 1000))
            self.counts[self.at * 2] += 1
        conn.close()

    async def all(self):
        await asyncio.gather(*[self.serve() for _ in range(self.options.connections)])

    def main(self, to):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # the parent ends us
        try:
            asyncio.run(self.all())
        except BaseException:
            self.wrong.append(traceback.format_exc())
        to.send((self.done, self.wrong))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class Cores:
    """What of the machine was left for us: all cores but what others used, which is everything that
    neither the server's control group nor the clients did."""

    def __init__(self, groups, clients):
        self.stat = [pathlib.Path(path, "cpu.stat") for path, v2 in groups.dirs if v2][:1]
        self.pids = [os.getpid()] + clients

    def ours(self):
        seconds = 0.0
        for path in self.stat:
            seconds += int(path.read_text().split("usage_usec")[1].split()[0]) / 1e6
        for pid in self.pids:
            try:
                fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return seconds

    def sample(self):
        """Time, CPU seconds of everybody, CPU seconds of ours."""
        fields = [int(n) for n in open("/proc/stat").readline().split()[1:9]]
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, self.ours()

    def left(self, before, after):
        """Cores that were ours between two samples, on average."""
        if not self.stat:
            return 1.0
        took, busy, ours = (b - a for a, b in zip(before, after))
        others = max(0.0, busy - ours) / took
        return max(0.1, os.cpu_count() - others)


def warm_up(port, seed):
    """What happens once: compilers read from disk, the cache filled, pages of the server touched."""
    async def all_kinds():
        conn = Connection(port)
        for n in range(WARM_UP):
            await KINDS[kind_of(n, seed)][0](conn, n)
        conn.close()
    asyncio.run(all_kinds())


class Soak:
    def __init__(self, options):
        self.options = options
        self.work = make_dir()
        self.groups = Groups("-soak")
        self.server = None
        self.samples = []
        self.results, self.wrong = [], []

    def start(self):
        self.server = Server(self.work, env={"HERMES_QUEUE_WAIT_S": "600", "HERMES_RESULT_TTL_S": "20"},
                             before=self.groups.join)
        self.port = self.server.port
        warm_up(self.port, self.options.seed)
        time.sleep(2)
        self.before = Holdings(self.server, self.groups)
        self.kernel = kernel_groups()
        self.complaints = kernel_complaints()
        self.pids = {n: self.server.child(n) for n in ("hermes-server", "hermes-spawn")}

    def show(self, done, wrong, seconds):
        rate = done / seconds if seconds else 0
        left = (self.options.runs - done) / rate / 60 if rate else 0
        line = "%d of %d runs, %.0f/s, %d wrong, %.0f min left" % (done, self.options.runs, rate, wrong, left)
        if sys.stdout.isatty():
            print("\r\033[K" + line, end="", flush=True)
        return line

    def watch(self, clients, counts):
        """Until the clients have ended; takes a sample of the server at every tenth."""
        began, tenth = time.monotonic(), 1
        alive = list(clients)
        self.cores = Cores(self.groups, [process.pid for process, _ in clients])
        self.cpu = [self.cores.sample()]
        while alive:
            ready = multiprocessing.connection.wait([pipe for _, pipe in alive], 0.5)
            for process, pipe in list(alive):
                if pipe in ready:
                    try:
                        done, wrong = pipe.recv()
                        self.results += done
                        self.wrong += wrong
                    except EOFError:
                        self.wrong.append("a client died")
                    alive.remove((process, pipe))
            done, wrong = sum(counts[0::2]), sum(counts[1::2])
            line = self.show(done, wrong, time.monotonic() - began)
            if done >= self.options.runs * tenth // 10 and self.server.process.poll() is None:
                tenth = done * 10 // self.options.runs + 1
                now = Holdings(self.server, self.groups)
                self.samples.append((done, now.pss_kb, now.fds, kernel_groups() - self.kernel))
                self.cpu.append(self.cores.sample())
                if not sys.stdout.isatty():
                    print(line, flush=True)
            if self.server.process.poll() is not None:
                self.wrong.append("the server ended: " + self.server.logs()[-2000:])
                for process, _ in alive:
                    process.terminate()
                break
        if len(self.cpu) < 2:
            self.cpu.append(self.cores.sample())
        return time.monotonic() - began

    def drive(self):
        counts = multiprocessing.Array("L", 2 * self.options.clients, lock=False)
        clients = []
        for at in range(self.options.clients):
            ours, theirs = multiprocessing.Pipe(False)
            process = multiprocessing.Process(
                target=Client(at, self.options, self.port, counts).main, args=(theirs,))
            process.start()
            theirs.close()
            clients.append((process, ours))
        try:
            self.seconds = self.watch(clients, counts)
        finally:
            for process, _ in clients:
                if sys.exc_info()[0]:
                    process.terminate()
                process.join()
        self.wrong_count = sum(counts[1::2])
        if sys.stdout.isatty():
            print()

    def latencies(self):
        """Prints a line per kind; returns p99 of the first and of the last tenth."""
        tenth = self.options.runs / 10
        first = collections.defaultdict(list)
        last = collections.defaultdict(list)
        for n, kind, ms in self.results:
            if n < tenth:
                first[kind].append(ms)
            elif n >= self.options.runs - tenth:
                last[kind].append(ms)
        print("%-16s %8s %10s %10s %10s %10s" % ("ms", "in tenth", "p50 first", "p50 last", "p99 first",
                                                 "p99 last"))
        for kind, (function, _, _) in enumerate(KINDS):
            print("%-16s %8d %10.1f %10.1f %10.1f %10.1f" % (
                function.__name__, len(first[kind]), percentile(first[kind], .5), percentile(last[kind], .5),
                percentile(first[kind], .99), percentile(last[kind], .99)))
        counted = [i for i, (_, _, counts) in enumerate(KINDS) if counts]
        return [percentile([ms for i in counted for ms in times[i]], .99) for times in (first, last)]

    def leaks(self):
        left, now = settle(self.server, self.groups, self.before)
        deadline = time.monotonic() + DYING_WAIT_S
        # The kernel counts for the whole machine; a leak of one kind of run would be one in a hundred.
        dying_max = 50 + self.options.runs // 500
        while kernel_groups() - self.kernel > dying_max and time.monotonic() < deadline:
            time.sleep(0.5)
        self.samples.append((self.options.runs, now.pss_kb, now.fds, kernel_groups() - self.kernel))
        for done, pss, fds, held in self.samples:
            print("after %7d runs: server %5d kB %3d fds, spawner %4d kB %3d fds, monitor %4d kB, "
                  "%d groups held by the kernel" % (
                      done, pss["hermes-server"], fds["hermes-server"], pss["hermes-spawn"],
                      fds["hermes-spawn"], pss["hermes-monitor"], held))
        early = self.samples[min(1, len(self.samples) - 1)]
        for name, size in now.pss_kb.items():
            if size > early[1][name] + GROWTH_KB:
                left.append("%s grew from %d to %d kB" % (name, early[1][name], size))
        if self.samples[-1][3] > dying_max:
            left.append("%d control groups are still held by the kernel" % self.samples[-1][3])
        left += ["the kernel says: " + line for line in kernel_complaints() - self.complaints]
        left += ["%s was replaced" % name for name, pid in self.pids.items() if self.server.child(name) != pid]
        return left

    def finish(self):
        left = []
        if self.server and self.server.process.poll() is None:
            if self.server.stop() != 0:
                left.append("the server's exit status was not 0")
        left += gone(self.groups)
        self.groups.remove()
        shutil.rmtree(self.work, ignore_errors=True)
        return left

    def main(self):
        try:
            self.start()
            self.drive()
            first, last = self.latencies()
            left = self.leaks()
        except BaseException:
            self.finish()
            raise
        left += self.finish()
        for line in self.wrong[:WRONG_KEPT] + left:
            print(line)
        lost = self.options.runs - len(self.results)
        drift = last / first if first else 0
        cores = [self.cores.left(*self.cpu[:2]), self.cores.left(*self.cpu[-2:])]
        print("of %d cores others left %.2f in the first tenth and %.2f in the last" % (
            os.cpu_count(), *cores))
        allowed = DRIFT_MAX * max(1.0, cores[0] / cores[1])
        passed = not (self.wrong or self.wrong_count or lost or left) and drift <= allowed
        print("soak: %d runs in %.0f s (%.0f/s), %d wrong, %d not done, %d leaks, p99 %.1f ms at first and "
              "%.1f ms at last (%.2fx, at most %.2fx): %s" % (
                  len(self.results), self.seconds, len(self.results) / self.seconds, self.wrong_count, lost,
                  len(left), first, last, drift, allowed, "passed" if passed else "FAILED"))
        return 0 if passed else 1


def interrupt(number, frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description="many mixed runs over HTTP, every verdict checked")
    parser.add_argument("--runs", type=int, default=100000)
    parser.add_argument("--clients", type=int, default=2, help="processes that send")
    parser.add_argument("--connections", type=int, default=6, help="connections of each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if os.geteuid() != 0 or not MONITOR.exists():
        print("soak: needs root and a build (make build)")
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell had SIGINT ignored
        signal.signal(number, interrupt)
    try:
        return Soak(options).main()
    except KeyboardInterrupt:
        print("\nsoak: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
