# SPDX-License-Identifier: Apache-2.0
"""A template: the interpreter of an ordinary, confined box that has imported the modules of a user's image
(docs/internals/warm.md). Runs with that image are copies of the box. This file waits for the server's orders on the
channel and forks; kernel_fork.py has the details of a copy, as for sessions.

No security depends on this file: code of the image has run in this process. The copy worker confines each copy from
outside and checks it. What an honest module can do to make copies unsafe is found here, because only here the reason
can be named."""
import builtins

__builtins__ = dict(vars(builtins))

import signal  # noqa: E402
import sys  # noqa: E402
from os import (  # noqa: E402
    WNOHANG, _exit, getcwd, getpid, listdir, read, rmdir, umask, unlink, waitpid, walk, write)

import kernel_fork  # noqa: E402

CHANNEL = 3
ANSWER = 200  # bytes of an answer: y or n, then a reason, then zeros


def has_child():
    try:
        waitpid(-1, WNOHANG)
        return True
    except ChildProcessError:
        return False


def state():
    """The state that a module must not change. preload.py compares the same state when the image is built."""
    mask = umask(0)
    umask(mask)
    return {"starts a thread": len(listdir("/proc/self/task")),
            "starts a child": has_child(),
            "keeps a file or a socket open": sorted(listdir("/proc/self/fd")),
            "sets a signal handler": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
            "changes the working directory": getcwd(),
            "changes the umask": mask,
            "changes sys.excepthook": sys.excepthook is sys.__excepthook__}


def empty_places():
    """A run begins with empty directories."""
    for place in kernel_fork.PLACES:
        for folder, folders, files in walk(place, topdown=False):
            for name in files:
                unlink(folder + "/" + name)
            for name in folders:
                path = folder + "/" + name
                try:
                    rmdir(path)
                except NotADirectoryError:
                    unlink(path)  # a link to a directory


class Template:
    """Has the members that kernel_fork.Forker expects of the interpreter of a session and of its channel."""
    name = "template"

    def __init__(self, adopt):
        self.adopt = adopt
        self.channel = self.rich = self
        self.fd = CHANNEL
        self.buffer = []
        self.before = state()
        self.forker = kernel_fork.Forker(self)
        sys.modules.pop("kernel_fork", None)

    def flush(self):
        pass

    def where(self):
        return "/box"

    def send(self, kind, value):
        if kind == "fork":
            self.answer(value["refused"])

    def answer(self, problem):
        text = b"y" if problem is None else b"n" + problem.encode("utf-8", "replace")
        write(self.fd, text[:ANSWER - 1].ljust(ANSWER, b"\0"))

    def problem(self):
        """Why copies of this process would not be like a fresh one, or None."""
        after = state()
        for what, value in self.before.items():
            if after[what] != value:
                return "a module of the image " + what
        try:
            empty_places()
            self.forker.look()
        except kernel_fork.Refusal as problem:
            return str(problem)
        except Exception as problem:
            return "the interpreter cannot look at itself: %s" % problem
        return None

    def serve(self):
        """Makes copies until the server goes away. Returns 0 in a copy, which then waits for its package."""
        problem = self.problem()
        self.answer(problem)
        own = getpid()
        while problem is None and read(self.fd, 1) == b"f":
            self.forker.fork()
            if getpid() != own:
                return self.adopt(self.fd)
        _exit(0)
