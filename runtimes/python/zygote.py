# SPDX-License-Identifier: Apache-2.0
"""The Python zygote (src/spawn/zygote.h): starts once, loads what most programs import, and is
forked into boxes by libhermes-warm.so. In the zygote nothing of a request is ever read. In a box
this file puts the interpreter into the state that `python3 FILE ARGS` has and runs the program. With the
argument `session` it is the zygote of sessions: it also loads their interpreter (kernel.py) and runs it. Further
arguments are modules of an image, which it imports ahead (docs/images.md). With the argument `--template` it is no
zygote: it runs in an ordinary box, with the modules of a user's image, and copies of that box are made (template.py).
"""
import _imp
import _io
import _random
import _signal
import _thread
import atexit
import gc
import io
import os
import signal
import stat
import sys
import threading
import time
import types
from importlib.machinery import ModuleSpec, SourceFileLoader

# The modules that programs import most, if they are pure Python or built in. Modules that load a shared
# library (hashlib, decimal, shutil) are left out: they would cost every box more than their import costs
# the programs that need them. No module here may start a thread, open a descriptor or keep a random number.
import abc, argparse, array, ast, base64, bisect, collections, contextlib, copy, csv  # noqa: E401,F401
import dataclasses, datetime, enum, errno, functools, heapq, importlib.util, inspect  # noqa: E401,F401
import itertools, json, locale, logging, math, numbers, operator, pathlib, pickle  # noqa: E401,F401
import pprint, random, re, select, socket, string, struct, subprocess, textwrap  # noqa: E401,F401
import traceback, typing, unicodedata, urllib.parse, warnings, weakref  # noqa: E401,F401

LIBRARY = "/usr/lib/hermes/libhermes-warm.so"

# A box pays for every page that it writes to. A running Python function writes to several: it counts
# references and adapts its code. So the zygote makes the things that boxes need ahead of time, and uses built-in
# functions where possible.
ENCODING, ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
MAIN_THREAD = threading.main_thread()
seed = _random.Random.seed.__get__(random._inst)


def words(get, how=bytes):
    found = []
    while (word := get(len(found))) is not None:
        found.append(how(word))
    return found


def text(word):
    return str(word, ENCODING, ERRORS)


def open_stream(fd, mode, errors, line_buffering):
    """Does the same as the interpreter at its start."""
    raw = io.FileIO(fd, mode, closefd=False)
    buffer = (io.BufferedReader if "r" in mode else io.BufferedWriter)(raw, raw._blksize)
    text = io.TextIOWrapper(buffer, "utf-8", errors, "\n", line_buffering=line_buffering)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[fd]
    text.mode = mode
    return text


STDIN = {}  # streams by kind of descriptor


def open_stdio():
    """A stream depends only on the kind of its descriptor. Output is always a pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    file = os.memfd_create("input")
    ends = os.pipe()
    for fd in null, file, ends[0]:
        os.dup2(fd, 0)
        STDIN[stat.S_IFMT(os.fstat(fd).st_mode)] = open_stream(0, "r", "surrogateescape", False)
    os.dup2(ends[1], 1)
    os.dup2(ends[1], 2)
    sys.stdout = sys.__stdout__ = open_stream(1, "w", "surrogateescape", False)
    sys.stderr = sys.__stderr__ = open_stream(2, "w", "backslashreplace", True)
    for fd in 0, 1, 2:
        os.dup2(null, fd)
    for fd in null, file, *ends:
        os.close(fd)


def set_environment(env):
    os.environ.clear()
    for word in env:
        key, _, value = word.partition(b"=")
        os.environb[key] = value
    time.tzset()


def be_program(argv, stdin):
    """Sets up sys for the program; returns its path."""
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    sys.orig_argv[:] = argv
    sys.argv[:] = argv[1:]
    path = argv[1]
    if "/." in "/" + path or "//" in path:
        path = os.path.abspath(path)
    elif not path.startswith("/"):
        path = os.getcwd() + "/" + path
    sys.path[0] = path.rpartition("/")[0] or "/"
    sys.stdin = sys.__stdin__ = STDIN[stdin]
    return path


LOADED = 0  # number of modules that the zygote has loaded


def make_main():
    """The module that the program will be."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__loader__=SourceFileLoader("__main__", ""), __annotations__={},
                         __builtins__=sys.modules["builtins"], __file__="", __cached__=None)
    sys.modules["__main__"] = main
    return main


FIRST_READ = 8192  # bytes; most programs are smaller, and it is little to allocate


def read_all(path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    source = chunk = os.read(fd, FIRST_READ)
    while len(chunk) >= FIRST_READ:  # a short read means end of file
        chunk = os.read(fd, 1 << 20)
        source += chunk
    os.close(fd)
    return source


def run(path, main):
    """Runs the program as __main__; returns its exit status."""
    main = main.__dict__
    main["__file__"] = main["__loader__"].path = path
    try:
        try:
            source = read_all(path)
        except OSError as problem:
            sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (
                sys.executable, path, problem.errno, problem.strerror))
            return 2
        exec(compile(source, path, "exec", dont_inherit=True), main)
    except SystemExit as end:
        return exit_status(end)
    except BaseException as problem:
        # Leave our own frame out of the traceback.
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
        return end.code & 0xff if -1 << 63 <= end.code < 1 << 63 else 255
    flush(getattr(sys, "stdout", None))
    stream = getattr(sys, "stderr", None)
    try:
        text = str(end.code)
    except BaseException:
        text = ""
    try:
        if stream is None:
            os.write(2, os.fsencode(text + "\n"))
        else:
            stream.write(text + "\n")
    except BaseException:
        pass
    return 1


def flush(stream):
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
        return None
    except BaseException as problem:
        return problem


def clear(module):
    names = module.__dict__
    for hidden in (True, False):
        for name in list(names):
            if isinstance(name, str) and name.startswith("_") == hidden and name != "__builtins__":
                names[name] = None


def is_own(module, folder):
    """Whether a module is a part of the program."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return isinstance(origin, str) and origin.startswith(folder)


is_stream = _io._IOBase.__instancecheck__


def flush_all():
    """Flushes streams, also those that only libraries hold. Text goes to a buffer, so it comes first."""
    found = list(filter(is_stream, gc.get_objects()))
    for kind in (io.TextIOWrapper, (io.BufferedWriter, io.BufferedRandom)) if found else ():
        for stream in found:
            if isinstance(stream, kind):
                flush(stream)


def wind_up(main):
    """Takes the steps of the interpreter at its end, but only for objects of the program: taking apart
    what the zygote loaded would write to every page of it. Returns the reason why stdout could not be
    written, or None."""
    atexit._run_exitfuncs()
    problem = flush(getattr(sys, "stdout", None))
    if len(sys.modules) > LOADED:
        folder = os.path.dirname(main.__dict__.get("__file__") or "/") + "/"
        for module in [m for m in sys.modules.values() if is_own(m, folder)]:
            clear(module)
    clear(main)
    gc.collect(2 if gc.get_objects(2) else 1)  # a full collection also clears all free lists
    flush_all()
    stdout = getattr(sys, "stdout", None)
    problem = flush(stdout) or problem
    own = getattr(sys, "__stdout__", None)
    if own is not stdout:
        problem = flush(own) or problem
    flush(getattr(sys, "stderr", None))
    return problem


def finish(status, main, leave):
    if _thread._count() or getattr(threading, "_threading_atexits", True):
        try:
            threading._shutdown()
        except BaseException:
            traceback.print_exc()
    stdout = getattr(sys, "stdout", None)
    problem = wind_up(main)
    if problem is not None:
        try:
            sys.stderr.write("Exception ignored in: %r\n%s" % (
                stdout, "".join(traceback.format_exception_only(type(problem), problem))))
            sys.stderr.flush()
        except BaseException:
            pass
        leave(120)
    if status == -signal.SIGINT:  # as python3 does, so that a shell sees the signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    leave(status)


ARGS = ["/usr/bin/python3", "/usr/lib/hermes/rehearsal.py"]
REHEARSALS = 10  # after eight calls the interpreter specializes a function's code, which writes to it


def rehearse():
    """Runs a small program as a real one is run, with its output discarded. So the pages that this writes
    to (reference counters, caches) are copied before a package comes."""
    main = sys.modules["__main__"]
    run(be_program(ARGS, stat.S_IFCHR), main)
    wind_up(main)
    make_main()


def rehearse_session(kernel):
    """The same for a session: takes the steps of a cell, without a trace in the user's names. Does not rehearse
    the end of a program: that would end IPython too."""
    rich = kernel.prepared.rich
    if hasattr(rich, "shell"):
        rich.shell.transform_cell("x = 1\nprint(x)\nx + 1\n")
    compile("x + 1", "<cell 0>", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, True)
    rich.bundle({"a": [1, "b"]})


BLAS = "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads"


def find_blas():
    """Functions that set the number of threads of the libraries that numpy and scipy have loaded."""
    import ctypes
    found = []
    for folder in [path + name for path in sys.path for name in ("/numpy.libs", "/scipy.libs")]:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if "openblas" in name:
                library = ctypes.CDLL(folder + "/" + name)
                found += [getattr(library, call) for call in BLAS if hasattr(library, call)][:1]
    return found


def import_ahead(names, library):
    """Imports modules of an image that the build has found fit for that. Returns the calls of a box before it
    runs a program: new random numbers, and as many threads as it has processors. A template (no library) has
    directories of its own."""
    if library and library.scratch() != 0:
        sys.exit("hermes: a zygote cannot have a scratch directory")
    for name in names:
        try:
            __import__(name)
        except BaseException:  # the program will see why
            pass
    numpy = sys.modules.get("numpy.random.mtrand")
    reseed = numpy._rand.seed if numpy else None
    threads = find_blas() if numpy else []
    gc.collect()
    if library and library.no_scratch() != 0:
        sys.exit("hermes: a module of the image keeps a file open")
    return reseed, threads


def set_threads(threads):
    count = os.environ.get("OPENBLAS_NUM_THREADS", "1")
    if count != "1" and count.isdecimal():
        for call in threads:
            call(int(count))


def serve(kind, names):
    global LOADED
    reseed, threads = None, []
    session = kind == "session"
    if "t" in sys.abiflags:  # free-threaded objects have another layout than libhermes-warm.so expects
        sys.exit("hermes: a Python without a global lock cannot be a zygote")
    library = _imp.create_dynamic(ModuleSpec("hermes_warm", None, origin=LIBRARY))
    _imp.exec_dynamic(library)
    arg, env, begin, leave, is_parked, has_env = [getattr(library, name) for name in (
        "arg", "env", "begin", "exit", "is_parked", "has_env")]
    wait = library.serve
    os.getcwd()
    open_stdio()
    make_main()
    if kind == "--template":
        import template
        wait = template.Template(library.adopt).serve
        del sys.modules["template"]
    if names:
        reseed, threads = import_ahead(names, None if kind == "--template" else library)
    for _ in range(REHEARSALS):
        rehearse()
    practise = rehearse
    if session:
        import kernel
        kernel.prepare()
        practise = functools.partial(rehearse_session, kernel)
        practise()
    LOADED = len(sys.modules)
    gc.collect()
    gc.freeze()
    library.gather()
    if wait() != 0:
        os._exit(0)
    # From here on this is the box. The clone has only the zygote's one thread and no lock is held. So of
    # what CPython does after a fork, only two steps are needed.
    MAIN_THREAD._native_id = _thread.get_native_id()
    seed()
    if reseed:
        reseed(struct.unpack("4I", os.urandom(16)))
    if is_parked():
        practise()
    stdin = begin()
    if has_env():
        set_environment(words(env))
    if threads:
        set_threads(threads)
    path = be_program(words(arg, text), stdin)
    del library, arg, env, begin, is_parked, has_env, wait
    if session:
        kernel.serve()
    main = sys.modules["__main__"]
    finish(run(path, main), main, leave)


KIND = sys.argv[1] if sys.argv[1:] and sys.argv[1] in ("session", "--template") else ""
serve(KIND, sys.argv[2 if KIND else 1:])
