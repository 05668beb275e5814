# SPDX-License-Identifier: Apache-2.0
"""What the tests of the languages share: which are there, running a program in a box or bare."""
import functools
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERMES = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build")).resolve() / "hermes"
REQUIRE_ALL = os.environ.get("CI") == "true" or os.environ.get("HERMES_REQUIRE_ALL") == "1"
SLOW = 20 if os.environ.get("HERMES_IN_VM") else 1  # emulated processor
NPM = "/usr/local/lib/hermes/npm/bin"

# What a box has; a bare program is given the same, so that only the box differs.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "box",
               "LOGNAME": "box", "SHELL": "/bin/bash"}


class Refused(Exception):
    """Hermes did not run it; `text` is what it said on stderr."""

    def __init__(self, status, text):
        super().__init__("%d: %s" % (status, text))
        self.status = status
        self.text = text


@functools.lru_cache(maxsize=None)
def runtimes():
    out = subprocess.run([str(HERMES), "runtimes", "--json"], stdout=subprocess.PIPE, check=True,
                         timeout=60 * SLOW).stdout
    return {r["name"]: r for r in json.loads(out)["runtimes"]}


def need(language):
    """Skips when the toolchain is missing; CI has them all."""
    runtime = runtimes()[language]
    if not runtime["available"]:
        missing(runtime["missing"])


def missing(why):
    if REQUIRE_ALL:
        pytest.fail("required here: " + why)
    pytest.skip(why)


def write_files(folder, files):
    for name, text in files.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def limits():
    """An emulated processor is slow, but not wrong."""
    return ["--time", "300s", "--cpu", "300s"] if SLOW > 1 else []


def hermes(*args, stdin=b"", timeout=120):
    done = subprocess.run([str(HERMES), "run", "--json", *limits(), *map(str, args)], input=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * SLOW)
    answer = json.loads(done.stdout) if done.stdout.strip() else {}
    if "status" not in answer:
        assert not answer or set(answer) == {"error"}, answer
        raise Refused(done.returncode, done.stderr.decode(errors="replace"))
    return answer


def run_box(language, files, entry=None, args=(), env=None, stdin=b"", options=()):
    """Runs `files` ({name: text}); the entry defaults to the first of them."""
    names = list(files)
    command = ["-l", language, *options]
    for key, value in (env or {}).items():
        command += ["-e", "%s=%s" % (key, value)]
    with tempfile.TemporaryDirectory(prefix="hermes-lang-", dir="/var/tmp") as folder:
        # Under numbers: the names in the box are given apart, so that any may be tried.
        for i, name in enumerate(names):
            text = files[name]
            path = pathlib.Path(folder, "f%d" % i)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            command += ["-f", "%s:%s" % (path, name)]
        command += ["--entry", entry or names[0]]
        anchor = pathlib.Path(folder, "hermes-anchor")
        anchor.write_text("")
        return hermes(*command, anchor, *args, stdin=stdin)


def run_bare(steps, folder, stdin=b"", args=(), env=None):
    """Runs argument lists one after the other, the last with stdin and args; its end counts."""
    environment = dict(ENVIRONMENT, HOME=str(folder), TMPDIR=str(folder), PWD=str(folder),
                       **(env or {}))
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        done = subprocess.run([*step, *(args if last else ())], cwd=folder, env=environment,
                              input=stdin if last else b"", stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120 * SLOW)
        if not last and done.returncode:
            raise AssertionError("%s: %s" % (step, done.stderr.decode(errors="replace")))
    return done


def explain(answer):
    """The part of an answer that a failing test should show."""
    compile_stage = answer.get("compile") or {}
    return "%s %s exit=%s signal=%s\n%s\n%s\n%s" % (
        answer["status"], answer["message"], answer["exit_code"], answer["signal"],
        answer["stdout"][-2000:], answer["stderr"][-2000:], compile_stage.get("stderr", "")[-2000:])
