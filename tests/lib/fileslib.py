# SPDX-License-Identifier: Apache-2.0
"""Runs `hermes run --json` and takes the answer apart."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERMES = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build")).resolve() / "hermes"
SLOW = 10 if os.environ.get("HERMES_IN_VM") else 1


class Refused(Exception):
    """Hermes did not run it; the message is what it said on stderr."""

    def __init__(self, status, text):
        super().__init__("%d: %s" % (status, text))
        self.status = status
        self.text = text


def run(*args, stdin="", timeout=60):
    """The answer as a dict, or Refused when there was none."""
    done = subprocess.run([str(HERMES), "run", "--json", *map(str, args)], input=stdin.encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * SLOW)
    answer = json.loads(done.stdout) if done.stdout.strip() else {}
    if "status" not in answer:
        assert not answer or set(answer) == {"error"}, answer
        raise Refused(done.returncode, done.stderr.decode(errors="replace"))
    return answer
