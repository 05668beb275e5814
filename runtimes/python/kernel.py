# SPDX-License-Identifier: Apache-2.0
"""The interpreter of a Python session (docs/internals/kernels.md): reads code from the channel, runs it in
the user's __main__ and reports the result.

User code shares this process and may break it, on purpose or not. So this file keeps what it calls in
names of its own, taken before user code ran: builtins below, functions of modules by from-imports. What
it needs from other modules (IPython, traceback) may fail at any time; then it falls back to something simpler.
"""
import builtins

__builtins__ = dict(vars(builtins))  # functions below use this copy: user code can patch the real ones

import ast  # noqa: E402
import io  # noqa: E402
import linecache  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402
from _signal import SIGINT, default_int_handler, signal  # noqa: E402
from _thread import get_ident  # noqa: E402
from os import _exit, close, dup2, fstat, getcwd, getpid, memfd_create, set_inheritable  # noqa: E402
from os import lseek, register_at_fork  # noqa: E402
from os import open as open_file, write  # noqa: E402
from traceback import TracebackException  # noqa: E402

import kernel_display  # noqa: E402
import kernel_fork  # noqa: E402
import kernel_packages  # noqa: E402
import kernel_tools  # noqa: E402
import kernel_variables  # noqa: E402
from kernel_channel import Channel, ChannelGone, encode, to_text  # noqa: E402

BROKEN_PROTOCOL, LOST_CHANNEL = 70, 71  # exit statuses
TRACEBACK_MAX = 65536
FUTURE_FLAGS = 0x1FE0000  # CO_FUTURE_*: `from __future__ import` also applies to later cells
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80


def open_stdio(fd):
    """Text on one of the descriptors 0, 1, 2. Output is written line by line: it is read while code runs."""
    if fd == 0:
        raw = io.BufferedReader(io.FileIO(0, "r", closefd=False))
        return io.TextIOWrapper(raw, "utf-8", "surrogateescape", "\n")
    raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    errors = "surrogateescape" if fd == 1 else "backslashreplace"
    return io.TextIOWrapper(raw, "utf-8", errors, "\n", line_buffering=True)


class Quitter:
    """exit and quit: they end the running code, not the session."""
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "%s() ends this piece of code; the session and its state stay" % self.name

    def __call__(self, code=None):
        raise SystemExit(code)


class Outcome:
    """The result of one exec."""
    def __init__(self):
        self.value = None
        self.error = None
        self.exit_code = None
        self.interrupted = False


class Kernel:
    def __init__(self):
        self.main = types.ModuleType("__main__")
        self.main.__builtins__ = builtins
        self.rich = kernel_display.make(self)
        self.tools = kernel_tools.Tools(self)
        self.packages = kernel_packages.Packages(self)
        self.count = 0
        self.flags = AWAIT
        self.busy = False
        self.early = False
        self.stdin = None
        self.offered = []
        self.loop = None
        self.user_handler = default_int_handler
        self.cwd = "/"

    # The session: reads frames and answers them.

    def serve(self, fd):
        set_inheritable(fd, False)
        self.channel = Channel(fd)
        self.identity = fstat(fd)[1:3]
        self.forker = kernel_fork.Forker(self)
        self.pid, self.getpid, self.thread = getpid(), getpid, get_ident()
        register_at_fork(after_in_child=self.be_child)
        self.become_user()
        signal(SIGINT, self.on_idle_interrupt)
        self.channel.send("ready", {"cwd": self.where(), "kernel": self.rich.name})
        try:
            while True:
                kind, payload = self.channel.receive()
                if kind == "exec":
                    self.exec(payload)
                elif kind == "stdin":
                    self.stdin = payload
                elif kind == "tools":
                    self.offered = self.channel.decode(payload)
                elif kind == "fork" and payload:  # for a preview, of a call that was given up meanwhile
                    self.channel.send("fork", {"refused": "the call was given up"})
                elif kind == "fork":
                    self.forker.fork()
                elif kind == "settle":  # a signal from before must not hit the next exec
                    self.early = False
                    self.channel.send("settled", None)
                elif kind in ("jobs", "kill_job"):
                    self.channel.send("jobs", [])
                elif kind == "packages":
                    self.packages.is_stale = True
                elif kind == "variables":
                    self.channel.send("variables", kernel_variables.describe(self.main.__dict__, self.given))
                elif kind not in ("tool_result", "installed"):  # a late answer belongs to a call that was given up
                    _exit(BROKEN_PROTOCOL)
        except ChannelGone:
            _exit(0)
        except ValueError:
            _exit(BROKEN_PROTOCOL)

    def become_user(self):
        """From here on the interpreter looks as if the user's session were its program."""
        sys.modules["__main__"] = self.main
        for name in ("kernel", "kernel_channel", "kernel_display", "kernel_fork", "kernel_packages", "kernel_tools",
                     "kernel_variables"):
            sys.modules.pop(name, None)
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path[:] = [""] + [p for p in sys.path if p and os.path.abspath(p) != here]
        sys.argv[:] = [""]
        sys.stdin = sys.__stdin__ = open_stdio(0)
        sys.stdout = sys.__stdout__ = open_stdio(1)
        sys.stderr = sys.__stderr__ = open_stdio(2)
        self.streams = [sys.stdin, sys.stdout, sys.stderr]
        builtins.exit, builtins.quit = Quitter("exit"), Quitter("quit")
        self.rich.begin()
        self.given = dict(self.main.__dict__)  # names that are not the user's own

    def be_child(self):
        """After a fork by user code: the channel is the parent's."""
        if self.pid != getpid():
            try:
                close(self.channel.fd)
            except OSError:
                pass

    def where(self):
        try:
            self.cwd = getcwd()
        except OSError:
            pass  # the directory was deleted: keep its old name
        return self.cwd

    # One exec.

    def exec(self, code):
        self.count += 1
        outcome = Outcome()
        try:
            code = code.decode()
        except UnicodeDecodeError as problem:
            outcome.error = self.describe(problem)
            return self.finish(outcome)
        self.give_stdin()
        self.tools.offer(self.offered)
        self.offered = []
        self.run_interruptible(code, outcome)
        if getpid() != self.pid:
            self.end_child(outcome)
        self.tools.withdraw()
        self.take_stdin()
        self.finish(outcome)

    def run_interruptible(self, code, outcome):
        """Only in here SIGINT means KeyboardInterrupt (or calls the handler that user code has set)."""
        late = None
        try:
            try:
                self.busy = True
                signal(SIGINT, self.user_handler)
                if self.early:
                    raise KeyboardInterrupt
                if self.packages.is_stale:
                    self.packages.refresh()
                self.run(code, outcome)
            except BaseException as problem:
                self.note(problem, outcome)
            try:
                self.rich.show_figures()
            except BaseException as problem:
                self.note(problem, outcome)
            self.flush()
        except BaseException as problem:  # raised in the handlers above
            late = problem  # calls nothing: one more signal would raise here too, and that would end the interpreter
        while True:
            try:
                if self.busy:
                    handler = signal(SIGINT, self.on_idle_interrupt)
                    self.busy = False
                    self.user_handler = default_int_handler if handler is None else handler
                self.early = False
                break
            except BaseException:
                outcome.interrupted = True
        if late is not None:
            outcome.interrupted = outcome.interrupted or isinstance(late, KeyboardInterrupt)
            outcome.error = outcome.error or self.describe(late)

    def on_idle_interrupt(self, number, frame):
        """The signal is late if its code has already ended, and early if its code is still in the channel."""
        self.early = self.channel.has_input()

    def note(self, problem, outcome):
        if isinstance(problem, SystemExit):
            code = problem.code
            if code is None or isinstance(code, int):
                outcome.exit_code = (code or 0) & 0xff
            else:
                outcome.exit_code = 1
                print(code, file=sys.stderr)
        elif outcome.error is None:
            outcome.interrupted = isinstance(problem, KeyboardInterrupt)
            self.main.__dict__.setdefault("__builtins__", builtins)
            sys.last_type, sys.last_value, sys.last_traceback = type(problem), problem, trim(problem.__traceback__)
            outcome.error = self.describe(problem)

    def finish(self, outcome):
        try:
            if fstat(self.channel.fd)[1:3] != self.identity:
                raise OSError
        except OSError:
            try:
                write(2, b"hermes: the code closed or replaced descriptor 3, the session's channel; the session ends\n")
            finally:
                _exit(LOST_CHANNEL)
        if outcome.error is not None:
            self.channel.send("error", outcome.error)
        elif outcome.value is not None:
            self.channel.send("result", outcome.value)
        self.channel.send("done", {
            "ok": outcome.error is None and not outcome.exit_code,
            "exit_code": outcome.exit_code, "cwd": self.where(), "execution_count": self.count,
            "interrupted": outcome.interrupted, "state": "kept"})

    def end_child(self, outcome):
        """The code forked and the child came back here: it ends as a script would."""
        if outcome.error is not None:
            write(2, "\n".join(outcome.error["traceback"]).encode("utf-8", "backslashreplace") + b"\n")
        _exit(1 if outcome.error else outcome.exit_code or 0)

    # Running code.

    def run(self, text, outcome):
        name = "<cell %d>" % self.count
        source = self.rich.transform(text, self.count)
        lines = source.splitlines()
        try:
            linecache.cache[name] = len(source), None, [line + "\n" for line in lines], name
        except Exception:
            pass  # tracebacks then have no source lines
        tree = compile(source, name, "exec", self.flags | ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silenced(tree.body[-1], lines):
            last = ast.Expression(tree.body.pop().value)
        tree.body = self.rich.transform_tree(tree.body)
        value = None
        if tree.body:
            self.evaluate(compile(tree, name, "exec", self.flags, True))
        if last is not None:
            value = self.evaluate(compile(last, name, "eval", self.flags, True))
        if value is not None:
            outcome.value = self.rich.result(value)

    def evaluate(self, code):
        self.flags |= code.co_flags & FUTURE_FLAGS
        names = self.main.__dict__
        value = eval(code, names)
        if code.co_flags & CO_COROUTINE:
            if self.loop is None or not self.loop.is_sound():
                self.loop = kernel_display.make_loop()
            value = self.loop.run_cell(value)
        return value

    def rehearse(self):
        """Takes the steps of an exec and leaves no trace. This fills caches. In a fork it also copies, ahead of time,
        the pages that an exec writes to."""
        main = self.main
        self.main = types.ModuleType("__main__")
        self.main.__builtins__ = builtins
        outcome = Outcome()
        self.rich.remember_results = False
        try:
            for code in ("x = {'a': [1, 'b']}\ndef f(): return x['c']\nx", "f()"):
                try:
                    self.run(code, outcome)
                except KeyError as problem:
                    outcome.error = self.describe(problem)
            encode([outcome.value, outcome.error])
            open_stdio(0), open_stdio(1)
        finally:
            self.main = main
            self.rich.forget_input()
            self.rich.remember_results = True
            linecache.cache.pop("<cell 0>", None)

    def describe(self, problem):
        """Returns name, value and traceback of any exception, also of one whose methods fail."""
        name = to_text(lambda: type(problem).__name__)
        value = to_text(lambda: str(problem))
        trace = trim(problem.__traceback__)
        if self.rich.is_usage_error(problem):
            return {"name": name, "value": value, "traceback": [name + ": " + value]}
        try:
            text = "".join(TracebackException(type(problem), problem, trace, compact=True).format())
        except BaseException:
            text = "".join(plain_traceback(trace)) + name + ": " + value
        text = text.rstrip("\n")
        if len(text) > TRACEBACK_MAX:
            text = text[:TRACEBACK_MAX // 2] + "\n  [... cut ...]\n" + text[-TRACEBACK_MAX // 2:]
        if len(value) > TRACEBACK_MAX:
            value = value[:TRACEBACK_MAX] + " [... cut]"
        return {"name": name, "value": value, "traceback": text.split("\n")}

    # The three standard streams.

    def give_stdin(self):
        data, self.stdin = self.stdin, None
        self.has_stdin = bool(data)
        if data:
            fd = memfd_create("stdin")
            view = memoryview(data)
            while view:
                view = view[write(fd, view):]
            lseek(fd, 0, 0)
            dup2(fd, 0)
            close(fd)
        else:
            try:
                fstat(0)
            except OSError:
                open_file("/dev/null", os.O_RDONLY)  # the code closed 0, so open() returns 0
        if sys.stdin is self.streams[0]:
            sys.stdin = sys.__stdin__ = open_stdio(0)
        self.streams[0] = sys.__stdin__

    def take_stdin(self):
        if self.has_stdin:
            fd = open_file("/dev/null", os.O_RDONLY)
            dup2(fd, 0)
            close(fd)

    def flush(self):
        for fd, name in ((1, "stdout"), (2, "stderr")):
            stream = self.streams[fd]
            current = getattr(sys, name, None)
            for one in {id(stream): stream, id(current): current}.values():
                try:
                    if one is not None and not one.closed:
                        one.flush()
                except Exception:
                    pass
            if stream.closed:
                self.streams[fd] = open_stdio(fd)
                setattr(sys, "__%s__" % name, self.streams[fd])
                if current is stream:
                    setattr(sys, name, self.streams[fd])


def trim(trace):
    """Leaves out our own frames: starts with the first frame of a cell."""
    first = trace
    while first is not None:
        if first.tb_frame.f_code.co_filename.startswith("<cell "):
            return first
        first = first.tb_next
    return None


def is_silenced(node, lines):
    """`value;` shows nothing."""
    rest = lines[node.end_lineno - 1].encode("utf-8", "surrogatepass")[node.end_col_offset:]
    return rest.lstrip().startswith(b";")


def plain_traceback(trace):
    while trace is not None:
        code = trace.tb_frame.f_code
        yield '  File "%s", line %s, in %s\n' % (code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next


prepared = None


def prepare(libraries=()):
    """Does everything that can be done before a session exists: imports, the shell. Starts no thread, opens nothing,
    changes neither __main__ nor builtins. Libraries that are not installed are left out."""
    global prepared
    for library in libraries:
        try:
            __import__(library)
        except ImportError:
            pass
    prepared = Kernel()
    prepared.rehearse()


def rehearse():
    """May be called in a fork that waits for its session."""
    prepared.rehearse()


def serve(fd=3):
    """Never returns."""
    if prepared is None:
        prepare()
    prepared.serve(fd)


if __name__ == "__main__":
    serve()
