#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A recording stand-in for apptainer 1.5: its flags, its errors and its exit statuses. It isolates nothing.

Lies beside a directory `calls`; a file `mode` there names a failure. An instance is a directory `NAME` there.
"""
import json
import os
import pathlib
import shutil
import sys
import time

DIR = pathlib.Path(sys.argv[0]).resolve().parent / "calls"
WITH_VALUE = {"-B", "--bind", "--cpus", "--memory", "--memory-swap", "--pids-limit", "--apply-cgroups", "--env", "--env-file", "-H", "--home",
              "--hostname", "--mount", "--network", "--no-mount", "-o", "--overlay", "-S", "--scratch", "-W", "--workdir"}
PLAIN = {"-e", "--cleanenv", "-c", "--contain", "-C", "--containall", "-f", "--fakeroot", "-n", "--net", "--no-home", "--no-init", "--no-privs",
         "-u", "--userns", "-w", "--writable", "--writable-tmpfs"}
FLAGS = {"start": (WITH_VALUE | {"--pid-file"}, PLAIN), "exec": (WITH_VALUE | {"--pwd", "--cwd"}, PLAIN | {"-p", "--pid", "--sharens"}),
         "stop": ({"-s", "--signal", "-t", "--timeout"}, {"-a", "--all", "-F", "--force"})}
COMMAND = {"start": "start", "exec": "exec", "stop": "stop"}


def fatal(text, code=255):
    print("\x1b[31mFATAL:  \x1b[0m %s" % text, file=sys.stderr)
    sys.exit(code)


def parse(command, words):
    valued, plain = FLAGS[command]
    flags = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word not in valued | plain:
            print('Error for command "%s": unknown flag: %s' % (COMMAND[command], word), file=sys.stderr)
            sys.exit(1)
        flags[word] = words.pop(0) if word in valued else True
    return flags, words


def main(words):
    with open(DIR / "log", "a") as log:
        log.write(json.dumps({"argv": words, "env": sorted(os.environ)}) + "\n")
    mode = (DIR / "mode").read_text()
    command = words.pop(0)
    if command == "instance":
        command = words.pop(0)
    flags, words = parse(command, words)
    if command == "start":
        image, name = words
        if mode == "no cgroups" and any(flag in flags for flag in ("--memory", "--cpus", "--pids-limit")):
            fatal("container creation failed: cannot use cgroups - cannot use systemd cgroups manager, systemd not running as init")
        if mode == "no image":
            fatal("could not open image %s: failed to retrieve path" % image)
        if (DIR / name).exists():
            fatal("instance %s already exists" % name)
        if "--overlay" in flags and not os.path.isdir(flags["--overlay"]):
            fatal("--overlay: %s is no directory" % flags["--overlay"])
        (DIR / name).mkdir()
        if mode == "slow":
            time.sleep(60)
        print("INFO:    instance started successfully", file=sys.stderr)
    elif command == "stop":
        if not (DIR / words[0]).exists():
            fatal("no instance found with name %s" % words[0], 1)
        shutil.rmtree(DIR / words[0])
    else:
        name = words.pop(0).replace("instance://", "")
        if not (DIR / name).exists():
            fatal("no instance found with name %s" % name)
        os.chdir(flags["--pwd"])
        if mode == "no shell":
            fatal('exec %s failed: "/bin/sh": executable file not found in $PATH' % words[0])
        os.execve(words[0], words, {"PATH": "/usr/bin:/bin", "HOME": str(DIR.parent)})


main(sys.argv[1:])
