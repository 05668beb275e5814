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

# What programs import most, as far as it is Python or built in: a library of its own, which hashlib,
# decimal and shutil load, costs every box more than its import costs those who want it. Nothing here
# may start a thread, open a descriptor or read a random number that stays.
import abc, argparse, array, ast, base64, bisect, collections, contextlib, copy, csv  # noqa: E401,F401
import dataclasses, datetime, enum, errno, functools, heapq, importlib.util, inspect  # noqa: E401,F401
import itertools, json, locale, logging, math, numbers, operator, pathlib, pickle  # noqa: E401,F401
import pprint, random, re, select, socket, string, struct, subprocess, textwrap  # noqa: E401,F401
import traceback, typing, unicodedata, urllib.parse, warnings, weakref  # noqa: E401,F401

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


# What most programs get: the zygote's own.
ENV = [b"%s=%s" % item for item in os.environb.items()]


def set_environment(env):
    os.environ.clear()
    for word in env:
        key, _, value = word.partition(b"=")
        os.environb[key] = value
    time.tzset()


def be_program(args, env):
    """Sets up sys and os for the program; returns its path."""
    argv = [os.fsdecode(word) for word in args]
    if env != ENV:
        set_environment(env)
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


def wind_up():
    """What the interpreter does at its end, for what belongs to the program, and no more: to take
    apart what the zygote loaded would touch every page of it."""
    atexit._run_exitfuncs()
    ok = flush(sys.stdout)
    clear(sys.modules["__main__"].__dict__)
    gc.collect()
    ok = flush(sys.stdout) and ok
    flush(sys.stderr)
    return ok


def finish(status):
    if threading.active_count() > 1 or getattr(threading, "_threading_atexits", True):
        try:
            threading._shutdown()
        except BaseException:
            traceback.print_exc()
    ok = wind_up()
    if status == -signal.SIGINT:  # as python3 does, so that a shell sees it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status if ok or status else 120)


ARGS = [b"/usr/bin/python3", b"/usr/lib/hermes/rehearsal.py"]


def rehearse():
    """Runs a small program the way programs are run, to nowhere, so that the pages that this writes
    to (counters of references, caches) are the box's own before there is a job."""
    run(be_program(ARGS, ENV))
    wind_up()


def be_child():
    """The clone has the one thread that the zygote had, and nobody holds a lock: of what CPython does
    after a fork two things are left."""
    threading.main_thread()._set_native_id()
    random.seed()


def rehearse_session(kernel):
    """The same for a session: what a cell goes through, without a trace in the user's names. No program
    ends here, and with it IPython."""
    rich = kernel.prepared.rich
    if hasattr(rich, "shell"):
        rich.shell.transform_cell("x = 1\nprint(x)\nx + 1\n")
    compile("x + 1", "<cell 0>", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    rich.bundle({"a": [1, "b"]})


def serve(session):
    library = ctypes.PyDLL(LIBRARY)
    for name in ("hermes_warm_arg", "hermes_warm_env"):
        getattr(library, name).restype = ctypes.c_char_p
    rehearse()
    practise = rehearse
    if session:
        import kernel
        kernel.prepare()
        practise = functools.partial(rehearse_session, kernel)
        practise()
    gc.collect()
    gc.freeze()
    if library.hermes_warm_serve() != 0:
        os._exit(0)
    # From here on we are in a box.
    be_child()
    if library.hermes_warm_is_parked():
        practise()
    library.hermes_warm_begin()
    path = be_program(words(library.hermes_warm_arg), words(library.hermes_warm_env))
    del library
    if session:
        kernel.serve()
    finish(run(path))


serve(sys.argv[1:] == ["session"])
