#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A plug-in that does what its directory says: DIR/mode names a behaviour, DIR/log gets a line for each request.

Its place is this machine: a directory DIR/NAME that is there while the place is.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import hermes_plugin  # the test puts it beside this file

DIR = pathlib.Path(sys.argv[1])
LIMITS = {"cpu": "enforced", "memory": "enforced", "disk": "none", "pids": "as the vendor likes", "network": "none"}


def mode():
    return (DIR / "mode").read_text()


def note(text):
    with open(DIR / "log", "a") as log:
        log.write(text + "\n")


class Stream:
    def __init__(self, argv, where):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
                                        env={**os.environ, "XDG_CACHE_HOME": str(where)})

    def read(self):
        return os.read(self.process.stdout.fileno(), 1 << 16)

    def write(self, data):
        while mode() == "deaf":
            time.sleep(0.05)
        while data:
            data = data[self.process.stdin.write(data):]

    def eof(self):
        self.process.stdin.close()

    def wait(self):
        return self.process.wait()


class Scripted(hermes_plugin.Plugin):
    name = "scripted"

    def __init__(self):
        self.isolation = "none" if mode() == "bare" else "directory"
        self.limits = LIMITS

    def open(self, request):
        note("open " + json.dumps(request))
        if mode().startswith("error "):
            raise hermes_plugin.Error(mode().split()[1], "the vendor said: " + mode())
        if mode().startswith("limit"):
            raise hermes_plugin.Error("limit", "the vendor has less", *mode().split()[1:])
        if mode() == "crash":
            print("the last words", file=sys.stderr)
            sys.stderr.flush()
            os._exit(3)
        if mode() == "slow":
            while mode() == "slow":
                time.sleep(0.05)
        self.where = DIR / request["name"]
        resumed = self.where.is_dir()
        if request["again"] and not resumed:
            raise hermes_plugin.Error("lost", "the directory is gone")
        self.where.mkdir(exist_ok=True)
        return request["name"], resumed

    def stream(self, argv):
        if mode() == "no stream":
            raise hermes_plugin.Error("refused", "no program runs there")
        return Stream(argv, self.where)

    def close(self, destroy):
        note("close %s %s" % (self.where.name, destroy))
        if destroy:
            shutil.rmtree(self.where)


def lie():
    """Frames that are none, at each point of the conversation."""
    into = sys.stdin.buffer

    def say(text):
        os.write(1, text if isinstance(text, bytes) else text.encode())

    def frame(kind, text="{}"):
        say("%s %d\n%s" % (kind, len(text), text))

    def take():
        kind, _, size = into.readline().decode().partition(" ")
        return kind, into.read(int(size))
    ready = json.dumps({"name": "liar", "protocol": 1, "isolation": "x", "limits": {}})
    what = mode()[4:]

    def stay():
        while mode() == "lie " + what:
            time.sleep(0.05)
        os._exit(0)
    if what == "silence":
        stay()
    if what == "flood of noise":
        while mode() == "lie " + what:
            os.write(2, b"n" * 4096)
            say(b"x" * 4096)
    if what == "late":
        frame("ready", ready.replace("1", "7", 1))
        stay()
    if what == "no ready":
        frame("opened")
        stay()
    if what == "garbage":
        say("ready {}\n")
        stay()
    frame("ready", ready)
    take()
    if what == "opened without id":
        frame("opened")
    elif what == "twice":
        frame("ready", ready)
    elif what == "data before stream":
        frame("data", "abc")
    elif what == "long answer":
        say("opened 99999999\n")
    elif what == "longer than said":
        say('opened 2\n{"id": "x", "resumed": false}')
    elif what == "no json":
        frame("opened", "[" * 1000)
    elif what == "unknown error":
        frame("error", '{"kind": "strange", "message": 7}')
    else:
        frame("opened", '{"id": "x", "resumed": false}')
        take()
        if what == "length of data":
            frame("ok")
            say("data 16777217\n")
        elif what == "ends in a frame":
            frame("ok")
            say("data 100\nabc")
            os._exit(0)
        elif what == "flood":
            frame("ok")
            while mode() == "lie " + what:
                frame("data", "x" * 65536)
        elif what == "deaf":
            frame("ok")
        elif what == "ended":
            frame("ok")
            frame("ended", '{"exit_code": 5}')
    stay()


if __name__ == "__main__":
    note("env " + json.dumps(sorted(os.environ)))
    lie() if mode().startswith("lie ") else hermes_plugin.serve(Scripted())
