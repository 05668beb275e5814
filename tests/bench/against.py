#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures this build against another one, for example that of the commit before a large change.

A server of each runs; their steps take turns. Each of the rounds gives the median of both sides and their ratio; the last
column is the median of these ratios. Needs a quiet machine.

  tests/bench/against.py OTHER_TREE [--rounds N] [--steps N] [--only WORD]     OTHER_TREE has runtimes/ and build/
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import contract  # noqa: E402
from apilib import Server  # noqa: E402
from over_http import Kept  # noqa: E402
from sessions import create, execute, wait_until_warm as wait_for_session  # noqa: E402
from warm import wait_until_warm  # noqa: E402

C = "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n"


class Side:
    def __init__(self, tree, folder):
        self.tree = pathlib.Path(tree).resolve()
        self.hermes = str(self.tree / "build/hermes")
        folder.chmod(0o755)
        self.server = Server(folder, env={"HERMES_RUNTIMES": str(self.tree / "runtimes"), "HERMES_PARKED": "4"},
                             command=(self.hermes, "serve"))
        self.env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "HERMES_RUNTIMES": self.server.env["HERMES_RUNTIMES"],
                    "HERMES_STATE_DIR": str(folder / "state")}

    def wait(self):
        self.conn = self.server.connect()
        wait_until_warm(self.server)
        wait_for_session(self.server, self.conn)
        self.session = create(self.server, self.conn)[1]["id"]

    def run(self, language, code):
        taken, answer = self.kept.post(json.dumps({"language": language, "code": code}).encode())
        assert answer["stdout"] == "hello\n", answer
        return taken

    def python(self):
        return self.run("python", "print('hello')\n")

    def native(self):
        return self.run("c", C)

    def bash(self):
        return self.run("bash", "echo hello\n")

    def health(self):
        return self.kept.get("/health")[0]

    def exec(self):
        return execute(self.server, self.conn, self.session, "1+1")

    def create(self):
        taken, made = create(self.server, self.conn)
        self.server("DELETE", "/v1/sessions/" + made["id"], conn=self.conn)
        time.sleep(0.02)
        return taken

    def command(self):
        start = time.perf_counter()
        subprocess.run([self.hermes, "run", "-l", "c", "-"], input=C.encode(), env=self.env, check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - start) * 1000


STEPS = {"Python, warm": Side.python, "C, compiled before": Side.native, "bash, cold": Side.bash, "GET /health": Side.health,
         "session exec": Side.exec, "session created": Side.create, "hermes run of C": Side.command}


def measure(ours, theirs, step, rounds, steps):
    step(ours), step(theirs)
    for _ in range(rounds):
        times = [[], []]
        for i in range(steps):
            for side in (0, 1) if i % 2 else (1, 0):  # neither is always the second
                times[side].append(step((ours, theirs)[side]))
        yield [statistics.median(side) for side in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", default="", metavar="WORD", help="only the rows whose name has this word")
    options = parser.parse_args()
    contract.check = lambda *reply: None  # the other build has another API document
    with tempfile.TemporaryDirectory(prefix="hermes-against-", dir="/var/tmp") as folder:
        pathlib.Path(folder).chmod(0o755)
        places = [pathlib.Path(folder, name) for name in ("ours", "theirs")]
        sides = []
        try:
            for place, tree in zip(places, (ROOT, options.tree)):
                place.mkdir()
                sides.append(Side(tree, place))
                sides[-1].wait()
            for side in sides:  # a connection without a request is closed soon
                side.kept, side.conn = Kept(side.server), side.server.connect()
            for name, step in STEPS.items():
                if options.only not in name:
                    continue
                found = list(measure(*sides, step, options.rounds, options.steps))
                ratios = [a / b for a, b in found]
                print("%-20s %7.3f ms %7.3f ms   %s   %.3f" % (name, *map(statistics.median, zip(*found)),
                      " ".join("%.3f" % r for r in ratios), statistics.median(ratios)), flush=True)
        finally:
            for side in sides:
                side.server.stop()


if __name__ == "__main__":
    main()
