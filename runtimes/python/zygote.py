# SPDX-License-Identifier: Apache-2.0
"""The Python zygote (src/spawn/zygote.h): starts once, loads what most programs import, and is
forked into boxes by libhermes-warm.so. In the zygote nothing of a request is ever read. In a box
this file puts the interpreter into the state that `python3 FILE ARGS` has and runs the program. With the
argument `session` it is the zygote of sessions: their kernel is loaded too, and is what runs.
"""
import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import time
import types

# What programs import most. Anything here is free for them; nothing here may start a thread, open
# a descriptor or read a random number that stays.
import abc, argparse, array, ast, base64, bisect, collections, contextlib, copy, csv  # noqa: E401,F401
import dataclasses, datetime, decimal, enum, errno, fractions, functools, glob, hashlib  # noqa: E401,F401
import heapq, importlib.util, inspect, itertools, json, locale, logging, math, numbers  # noqa: E401,F401
import operator, pathlib, pickle, platform, pprint, queue, random, re, select, shutil  # noqa: E401,F401
import socket, statistics, string, struct, subprocess, tempfile, textwrap, traceback  # noqa: E401,F401
import typing, unicodedata, urllib.parse, uuid, warnings, weakref, zlib  # noqa: E401,F401

LIBRARY = "/usr/lib/hermes/libhermes-warm.so"


def words(get):
    found = []
    while (word := get(len(found))) is not None:
        found.append(word)
    return found


def open_stdio():
    """As the interpreter does at its start, on descriptors that are new."""
    def stream(fd, mode, errors, line_buffering):
        raw = io.FileIO(fd, mode, closefd=False)
        if "r" in mode:
            text = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", errors, "\n")
        else:
            text = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, "\n",
                                    line_buffering=line_buffering)
        raw.name = ("<stdin>", "<stdout>", "<stderr>")[fd]
        text.mode = mode
        return text
    sys.stdin = sys.__stdin__ = stream(0, "r", "surrogateescape", False)
    sys.stdout = sys.__stdout__ = stream(1, "w", "surrogateescape", False)
    sys.stderr = sys.__stderr__ = stream(2, "w", "backslashreplace", True)


def be_program(library):
    """Sets up sys and os for the program; returns its path."""
    argv = [os.fsdecode(w) for w in words(library.hermes_warm_arg)]
    os.environ.clear()
    for word in words(library.hermes_warm_env):
        key, _, value = word.partition(b"=")
        os.environb[key] = value
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.orig_argv[:] = argv
    sys.argv[:] = argv[1:]
    path = os.path.abspath(argv[1])
    sys.path[0] = os.path.dirname(path)
    open_stdio()
    return path


def run(path):
    """Runs the program as __main__; returns its exit status."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    from importlib.machinery import SourceFileLoader
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=sys.modules["builtins"],
                         __loader__=SourceFileLoader("__main__", path), __annotations__={})
    try:
        try:
            with io.open_code(path) as file:
                source = file.read()
        except OSError as problem:
            sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (
                sys.executable, path, problem.errno, problem.strerror))
            return 2
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end:
        return exit_status(end)
    except BaseException as problem:
        # Our own frames are no part of the program's.
        trace = problem.__traceback__.tb_next
        interrupted = isinstance(problem, KeyboardInterrupt)
        try:
            sys.last_type, sys.last_value, sys.last_traceback = type(problem), problem, trace
            sys.excepthook(type(problem), problem.with_traceback(trace), trace)
        except SystemExit as end:
            return exit_status(end)
        except BaseException:
            sys.__excepthook__(type(problem), problem, trace)
        return -signal.SIGINT if interrupted else 1
    return 0


def exit_status(end):
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xff
    flush(sys.stdout)
    print(end.code, file=sys.stderr)
    return 1


def flush(stream):
    try:
        if stream is not None and not stream.closed:
            stream.flush()
        return True
    except Exception:
        return False


def clear(names):
    for hidden in (True, False):
        for name in list(names):
            if name.startswith("_") == hidden and name != "__builtins__":
                names[name] = None


def finish(status):
    """What the interpreter does at its end, for what belongs to the program, and no more: to take
    apart what the zygote loaded would touch every page of it."""
    try:
        threading._shutdown()
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    ok = flush(sys.stdout)
    clear(sys.modules["__main__"].__dict__)
    gc.collect()
    ok = flush(sys.stdout) and ok
    flush(sys.stderr)
    if status == -signal.SIGINT:  # as python3 does, so that a shell sees it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status if ok or status else 120)


REHEARSAL = """
import sys, os, json
class A:
    def f(self, x=1, *args, **kw): return [str(i) for i in range(x)]
def g(n):
    yield from A().f(n)
print("hello", len(list(g(20))), {"a": 1.5}, file=sys.stdout)
try: int("x")
except ValueError as e: str(e)
"""


def rehearse():
    """Runs a small program the way programs are run, to nowhere, so that the pages it writes to
    (counters of references, caches) are the box's own before there is a job."""
    keep = sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__
    open_stdio()
    main = types.ModuleType("__main__")
    exec(compile(REHEARSAL, "/box/main.py", "exec", dont_inherit=True), main.__dict__)
    with io.open_code("/dev/null") as file:
        file.read()
    clear(main.__dict__)
    flush(sys.stdout)
    gc.collect()
    sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__ = keep


def rehearse_session(kernel):
    """The same for a session: what a cell goes through, without a trace in the user's names."""
    rehearse()
    rich = kernel.prepared.rich
    if hasattr(rich, "shell"):
        rich.shell.transform_cell("x = 1\nprint(x)\nx + 1\n")
    compile("x + 1", "<cell 0>", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    rich.bundle({"a": [1, "b"]})


def serve(session):
    library = ctypes.PyDLL(LIBRARY)
    for name in ("hermes_warm_arg", "hermes_warm_env"):
        getattr(library, name).restype = ctypes.c_char_p
    if session:
        import kernel
        kernel.prepare()
    practise = functools.partial(rehearse_session, kernel) if session else rehearse
    practise()
    gc.collect()
    gc.freeze()
    if library.hermes_warm_serve() != 0:
        os._exit(0)
    # From here on we are in a box.
    ctypes.pythonapi.PyOS_AfterFork_Child()
    practise()
    library.hermes_warm_begin()
    path = be_program(library)
    del library
    if session:
        kernel.serve()
    finish(run(path))


serve(sys.argv[1:] == ["session"])
