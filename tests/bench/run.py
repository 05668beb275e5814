#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Hermes against the bare toolchain and bwrap, interleaved in one process.

A measurement is a function in MEASUREMENTS that yields rows; a row has the p50 of both sides, their
ratio and the target. Ratios of one run are what counts: a machine's absolute times are not.
Results are printed as a table, written to BUILD/bench.json and drawn in BUILD/bench.svg.

  tests/bench/run.py [--rounds N] [--only WORD]... [--list]
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build")).resolve()
HERMES = str(BUILD / "hermes")
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "languages")]
import judge as judging  # noqa: E402
from fair import one_key_at_its_worst  # noqa: E402
from image_cold import image_cold  # noqa: E402
from images import images  # noqa: E402
from install import install  # noqa: E402
from mcp import mcp_execute  # noqa: E402
from over_http import Kept, Serving, health_per_second, over_http, reads  # noqa: E402
from networks import network_beside, network_through, network_unused  # noqa: E402
from places import docker_places, ssh_places  # noqa: E402
from sessions import sessions  # noqa: E402
from picture import draw  # noqa: E402
from warm import warm_parked, warm_python  # noqa: E402
from langlib import ENVIRONMENT, runtimes, write_files  # noqa: E402
from table import LANGUAGES  # noqa: E402
from test_corpus import BARE  # noqa: E402

EXTRA_MS = 3.0  # what a box may cost beside the factor
BITS = "#include <bits/stdc++.h>\nint main() { std::cout << \"hello\" << std::endl; }\n"


def clock(command, folder, env):
    """Milliseconds of one run to its end; it must succeed and say hello."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    taken = (time.perf_counter() - start) * 1000
    if done.returncode or done.stdout.strip() != b"hello":
        raise RuntimeError("%s: %s%s" % (command, done.stdout[-200:], done.stderr[-500:]))
    return taken


def interleave(rounds, *sides):
    """Runs the sides in turn, after one round that does not count; a list of times for each."""
    times = [[] for _ in sides]
    for n in range(rounds + 1):
        for at, side in enumerate(sides):
            taken = side()
            if n:
                times[at].append(taken)
    return times


class NotMeasured(Exception):
    """Something that a measurement needs is not there. It counts as missed."""


def row(name, ours, theirs, factor, extra_ms=0.0, note=""):
    ours_ms, theirs_ms = statistics.median(ours), statistics.median(theirs)
    return {"name": name, "ms": round(ours_ms, 3), "than_ms": round(theirs_ms, 3),
            "ratio": round(ours_ms / theirs_ms, 3), "target": factor, "extra_ms": extra_ms,
            "met": ours_ms <= factor * theirs_ms + extra_ms, "rounds": len(ours), "note": note}


class Bench:
    def __init__(self, rounds, folder):
        self.rounds = rounds
        self.folder = pathlib.Path(folder)
        # The real home: toolchains may lie there.
        self.env = dict(ENVIRONMENT, HOME=os.path.expanduser("~"), HERMES_STATE_DIR=str(self.folder / "state"))

    def place(self, name, files):
        folder = self.folder / name
        write_files(folder, files)
        return folder

    def hermes(self, folder, *args):
        return clock([HERMES, "run", *map(str, args)], folder, self.env)


def bare_steps(bench, language, entry, folder):
    """One callable that runs all bare steps of a language. Go gets a cache that has the standard
    library but not the program, as a box does: the program is another one each time."""
    env = dict(bench.env, PWD=str(folder), TMPDIR=str(folder))
    steps = [[w.replace("{entry}", entry) for w in step if w != "{options}"] for step in BARE[language]]
    serial = [0]

    def run():
        serial[0] += 1
        if language == "go":
            source = folder / entry
            source.write_text(LANGUAGES["go"]["hello"] + "// %d\n" % serial[0])
        start = time.perf_counter()
        for step in steps[:-1]:
            subprocess.run(step, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL,
                           stdin=subprocess.DEVNULL)
        before = (time.perf_counter() - start) * 1000
        return before + clock(steps[-1], folder, env)
    return run


# Interpreters that test_corpus.py has no row for.
BARE.setdefault("bun", [["/usr/local/lib/hermes/npm/bin/bun", "--no-install", "{entry}"]])
BARE.setdefault("deno", [["/usr/local/lib/hermes/npm/bin/deno", "run", "--allow-all", "--no-lock", "--quiet",
                          "{entry}"]])


def hello_from_source(bench):
    """Each language: hello from source, compile and run, without the compile cache."""
    for language, entry in sorted(LANGUAGES.items()):
        if not runtimes()[language]["available"]:
            continue
        folder = bench.place("hello-" + language, {entry["main"]: entry["hello"]})
        slow = language in ("java", "go", "rust", "r", "cpp")
        box, bare = interleave(max(3, bench.rounds // (4 if slow else 1)),
                               lambda: bench.hermes(folder, "--no-cache", "-l", language, entry["main"]),
                               bare_steps(bench, language, entry["main"], folder))
        note = "bare: standard library cached, program not" if language == "go" else ""
        yield row("hello " + language, box, bare, 1.15, EXTRA_MS, note)


def compile_wall_ms(bench, folder, *args):
    done = subprocess.run([HERMES, "run", "--json", *map(str, args)], cwd=folder, env=bench.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    stage = json.loads(done.stdout)["compile"]
    return stage["cached"], stage["usage"]["wall_ms"] + stage["usage"]["setup_ms"]


def compile_again(bench):
    """The compile stage of the same source a second time, against the first."""
    for language, entry in sorted(LANGUAGES.items()):
        if not runtimes()[language]["available"] or not runtimes()[language]["compiled"]:
            continue
        first, second = [], []
        for n in range(max(3, bench.rounds // 6)):
            text = entry["hello"] + "\n" * (n + 2)
            folder = bench.place("again-%s-%d" % (language, n), {entry["main"]: text})
            for cached, to in ((False, first), (True, second)):
                was_cached, taken = compile_wall_ms(bench, folder, "-l", language, entry["main"])
                if was_cached is not cached:
                    raise RuntimeError("%s: cached is %s" % (language, was_cached))
                to.append(taken)
        yield row("compile again " + language, second, first, 0.03)


def seed_of(server, language):
    """The state of the seed that the server makes by itself."""
    return {s["language"]: s["state"] for s in server("GET", "/v1/status").json()["seeds"]}[language]


def own_seed(bench):
    """C++ with bits/stdc++.h on a fresh server that has made its own seed, new source each time, against bare g++ -O2."""
    if not runtimes()["cpp"]["available"]:
        return
    folder = bench.place("own-seed", {"main.cpp": BITS})
    serial = [0]
    with Serving(HERMES_SEEDS="true", HERMES_SEED_IDLE_S="0", HERMES_SEED_DIR=str(bench.folder / "seeds")) as server:
        def compile_new():
            serial[0] += 1
            body = json.dumps({"language": "cpp", "code": BITS + "// %d\n" % serial[0]}).encode()
            taken, answer = connection.post(body)
            if answer["stdout"] != "hello\n":
                raise RuntimeError(answer)
            seeded.append(answer["compile"]["seed"])
            return taken
        seeded, connection = [], Kept(server)
        first = compile_new()
        began = time.perf_counter()
        while seed_of(server, "cpp") != "ready":
            if time.perf_counter() - began > 600:
                raise RuntimeError("there is no seed after ten minutes")
            time.sleep(0.2)
        waited = time.perf_counter() - began
        ours, bare = interleave(max(3, bench.rounds // 6), compile_new, bare_steps(bench, "cpp", "main.cpp", folder))
    if seeded != [False] + [True] * (len(seeded) - 1):
        raise RuntimeError("the seed was used by %s" % seeded)
    yield row("bits/stdc++.h, own seed", ours, bare, 0.4, note="first %.0f ms, seed after %.0f s" % (first, waited))


def bits_header(bench):
    """C++ with bits/stdc++.h, which Hermes has precompiled, against bare g++ -O2."""
    if not runtimes()["cpp"]["available"]:
        return
    folder = bench.place("bits", {"main.cpp": BITS})
    box, bare = interleave(max(3, bench.rounds // 6),
                           lambda: bench.hermes(folder, "--no-cache", "main.cpp"),
                           bare_steps(bench, "cpp", "main.cpp", folder))
    yield row("bits/stdc++.h", box, bare, 0.45)


def bwrap(folder, program):
    """The command that runs it in a box with the same namespaces and mounts."""
    return ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin",
            "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
            "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(folder), "/prog", "/prog/" + program]


def static_binary(bench):
    """A program that does nothing much: the cost of the box itself, against bwrap."""
    if not shutil.which("bwrap") or not shutil.which("gcc"):
        return
    folder = bench.place("static", {"hello.c": LANGUAGES["c"]["hello"]})
    subprocess.run(["gcc", "-O2", "-static", "-o", "hello", "hello.c"], cwd=folder, check=True)
    (folder / "hello").chmod(0o755)
    ours, theirs = interleave(bench.rounds * 3, lambda: bench.hermes(folder, folder / "hello"),
                              lambda: clock(bwrap(folder, "hello"), folder, bench.env))
    yield row("static program vs bwrap", ours, theirs, 0.8, note="aim 0.6")


def judge(bench):
    """Judging: a hundred tests of a fast C++ program, rounds of an interactive one."""
    yield from judging.hundred_tests(bench, HERMES, interleave, row)
    yield from judging.rounds(bench, HERMES, interleave, row)


MEASUREMENTS = [static_binary, hello_from_source, compile_again, bits_header, own_seed, judge, over_http,
                health_per_second, reads, warm_python, warm_parked, sessions, images, network_unused,
                network_beside, network_through, one_key_at_its_worst, mcp_execute, image_cold,
                install, docker_places, ssh_places]


def show(r):
    mark = "ok  " if r["met"] else "MISS"
    extra = " + %g ms" % r["extra_ms"] if r["extra_ms"] else ""
    print("%s %-26s %9.2f ms %9.2f ms  %7.3fx  target %gx%s  %s" % (
        mark, r["name"], r["ms"], r["than_ms"], r["ratio"], r["target"], extra, r["note"]), flush=True)


def main():
    parser = argparse.ArgumentParser(description="measure Hermes against the bare toolchain and bwrap")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", action="append", help="measurements whose name contains this")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [m for m in MEASUREMENTS if any(word in m.__name__ for word in options.only or [""])]
    if options.list:
        for measurement in chosen:
            print("%-20s %s" % (measurement.__name__, measurement.__doc__.splitlines()[0]))
        return 0
    rows, not_measured = [], []
    print("     %-26s %12s %12s %9s   (load %s)" % ("", "hermes", "other", "ratio", os.getloadavg()[0]))
    with tempfile.TemporaryDirectory(prefix="hermes-bench-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        bench = Bench(options.rounds, folder)
        subprocess.run([HERMES, "seed"], env=bench.env, check=False)  # without them compilers are slower
        for measurement in chosen:
            try:
                for r in measurement(bench):
                    rows.append(r)
                    show(r)
            except NotMeasured as problem:
                not_measured.append(measurement.__name__)
                print("MISS %s: %s" % (measurement.__name__, problem), flush=True)
    report = {"time": time.strftime("%FT%TZ", time.gmtime()), "load": os.getloadavg(), "rows": rows}
    (BUILD / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    (BUILD / "bench.svg").write_text(draw(report))
    missed = [r["name"] for r in rows if not r["met"]] + not_measured
    total = len(rows) + len(not_measured)
    print("%d of %d targets met%s; %s" % (total - len(missed), total,
                                         ", missed: " + ", ".join(missed) if missed else "",
                                         BUILD / "bench.json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
