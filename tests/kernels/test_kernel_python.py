# SPDX-License-Identifier: Apache-2.0
"""The Python kernel, with IPython and without: the same answers, unless a test says otherwise."""
import base64
import json
import os
import pathlib
import signal
import threading
import time

import pytest

from kernellib import HAS_IPYTHON, Answer, Dead, Kernel, wait_until

FLAVORS = ["plain", pytest.param("python", marks=pytest.mark.skipif(not HAS_IPYTHON, reason="no IPython"))]


@pytest.fixture(scope="module", params=FLAVORS)
def shared(request, tmp_path_factory):
    """One kernel for cases that leave nothing behind."""
    kernel = Kernel(request.param, cwd=str(tmp_path_factory.mktemp("box")))
    yield kernel
    kernel.close()


@pytest.fixture(params=FLAVORS)
def kernel(request, start):
    return start(request.param)


# Code, and the text of its value.
VALUES = {
    "sum": ("1+1", "2"),
    "last of many": ("a = 20\nb = 22\na + b", "42"),
    "string": ("'x'", "'x'"),
    "none": ("None", None),
    "statement": ("x = 1", None),
    "silenced": ("1+1;", None),
    "comment after": ("5 # five", "5"),
    "semicolon in comment": ("6 # six;", "6"),
    "empty": ("", None),
    "blank": ("  \n\n ", None),
    "only comment": ("# nothing", None),
    "await": ("import asyncio\nawait asyncio.sleep(0, 7)", "7"),
    "await in the middle": ("import asyncio\nq = await asyncio.sleep(0, 3)\nq * 2", "6"),
    "async for": ("async def g():\n    yield 1\n    yield 2\n[x async for x in g()]", "[1, 2]"),
    "async with": ("import contextlib\n@contextlib.asynccontextmanager\nasync def c():\n    yield 9\n"
                   "async with c() as v: pass\nv", "9"),
    "asyncio.run still works": ("import asyncio\nasync def f(): return 8\nasyncio.run(f())", "8"),
    "lambda": ("(lambda x: x * 2)(4)", "8"),
    "unicode": ("'äöü €😀'", "'äöü €😀'"),
    "name": ("__name__", "'__main__'"),
    "main is ours": ("import sys; sys.modules['__main__'].__dict__ is globals()", "True"),
    "pickle": ("import pickle\nclass P:\n    def __init__(s): s.x = 5\npickle.loads(pickle.dumps(P())).x", "5"),
    "getsource": ("import inspect\ndef source_of_me():\n    return 1\ninspect.getsource(source_of_me)",
                  r"'def source_of_me():\n    return 1\n'"),
    "dataclass": ("from dataclasses import dataclass\n@dataclass\nclass D:\n    x: int = 3\nD()", "D(x=3)"),
    "enum": ("import enum\nclass E(enum.Enum):\n    A = 1\nE.A", "<E.A: 1>"),
    "multiprocessing": ("import multiprocessing as m\ndef sq(x): return x * x\n"
                        "with m.get_context('fork').Pool(2) as p: r = p.map(sq, range(4))\nr", "[0, 1, 4, 9]"),
    "comprehension scope": ("k = 3\n[k * i for i in range(3)]", "[0, 3, 6]"),
    "class scope": ("z = 2\nclass C:\n    y = z\n    l = [z for _ in range(2)]\nC.l", "[2, 2]"),
    "del": ("t = 1\ndel t\n't' in globals()", "False"),
    "walrus": ("(n := 10)", "10"),
    "match": ("match (1, 2):\n    case (a, b): w = a + b\nw", "3"),
    "generator": ("sum(i for i in range(5))", "10"),
    "argv": ("import sys; sys.argv", "['']"),
    "cwd first on the path": ("import sys; sys.path[0]", "''"),
    "no kernel on the path": ("[p for p in sys.path if 'runtimes' in p]", "[]"),
    "no kernel in modules": ("[m for m in sys.modules if m.startswith('kernel')]", "[]"),
    "stdin is empty": ("import sys; sys.stdin.read()", "''"),
    "threads": ("import threading; threading.active_count()", "1"),
    "descriptors": ("import os; sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4]", "[0, 1, 2, 3]"),
    "exec and eval": ("exec('ev = 4'); eval('ev')", "4"),
    "import of a file": ("open('mod1.py', 'w').write('v = 11')\nimport mod1\nmod1.v", "11"),
    "repr that raises": ("class R:\n    def __repr__(self): return 'fine'\nR()", "fine"),
    "int subclass": ("True", "True"),
    "nan": ("float('nan')", "nan"),
    "lone surrogate": (r"'\ud800'", r"'\ud800'"),
    "tabs": ("if 1:\n\tu = 1\nu", "1"),
    "crlf": ("v1 = 1\r\nv1 + 1\r\n", "2"),
    "globals in function": ("def setg():\n    global gg\n    gg = 6\nsetg()\ngg", "6"),
    "type": ("int", None),  # IPython says int, Python <class 'int'>: only that there is something
}


@pytest.mark.parametrize("name", VALUES)
def test_value(shared, name):
    code, text = VALUES[name]
    answer = shared(code)
    assert answer.error is None and answer.ok and answer.code is None and not answer.done["interrupted"]
    if name == "type":
        assert "int" in answer.text
    else:
        assert answer.text == text
    assert answer.stderr == ""


# Code, and what it prints.
PRINTS = {
    "print": ("print('hi')", "hi\n", ""),
    "stderr": ("import sys; print('e', file=sys.stderr); print('o')", "o\n", "e\n"),
    "no newline": ("print('x', end='')", "x", ""),
    "bytes": ("import sys; sys.stdout.buffer.write(b'\\xff\\x00\\n'); sys.stdout.buffer.flush()", None, ""),
    "subprocess": ("import subprocess; print('a'); subprocess.run(['echo', 'b']); print('c')", "a\nb\nc\n", ""),
    "os.system": ("import os; print('a'); os.system('echo b; echo e >&2') and None", "a\nb\n", "e\n"),
    "thread": ("import threading\nt = threading.Thread(target=print, args=('t',)); t.start(); t.join()", "t\n", ""),
    "logging": ("import logging; logging.warning('w')", "", "WARNING:root:w\n"),
    "two lines": ("print(1)\nprint(2)", "1\n2\n", ""),
    "fd": ("import os; os.write(1, b'raw\\n') and None", "raw\n", ""),
    "unflushed": ("import sys; sys.stdout.write('tail') and None", "tail", ""),
    "sys.exit text": ("import sys; sys.exit('bye')", "", "bye\n"),
}


@pytest.mark.parametrize("name", PRINTS)
def test_print(shared, name):
    code, out, err = PRINTS[name]
    answer = shared(code)
    if name == "bytes":
        assert answer.stdout_bytes == b"\xff\x00\n"
    else:
        assert answer.stdout == out
    assert answer.stderr == err


# Code, name of the exception, part of its text, a line of the traceback.
ERRORS = {
    "zero": ("1/0", "ZeroDivisionError", "division by zero", "ZeroDivisionError: division by zero"),
    "name": ("nope", "NameError", "nope", "NameError: name 'nope' is not defined"),
    "syntax": ("x = = 1", "SyntaxError", "invalid syntax", "    x = = 1"),
    "indent": ("if 1:\nx = 1", "IndentationError", "expected an indented block", None),
    "unclosed": ("print((1", "SyntaxError", "was never closed", None),
    "custom": ("class My(Exception): pass\nraise My('m')", "My", "m", "My: m"),
    "in a function": ("def deep():\n    raise KeyError('k')\ndeep()", "KeyError", "'k'", "    raise KeyError('k')"),
    "chained": ("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('v') from e", "ValueError", "v",
                "The above exception was the direct cause of the following exception:"),
    "assert": ("assert 1 == 2, 'why'", "AssertionError", "why", None),
    "no value": ("raise ValueError", "ValueError", "", "ValueError"),
    "recursion": ("def r(): r()\nr()", "RecursionError", "maximum recursion depth", None),
    "str that raises": ("class S(Exception):\n    def __str__(self): 1/0\nraise S", "S", "<unprintable>", None),
    "group": ("raise ExceptionGroup('g', [ValueError('a'), TypeError('b')])", "ExceptionGroup", "g", None),
    "async": ("import asyncio\nasync def f(): raise OSError('o')\nawait f()", "OSError", "o",
              "    async def f(): raise OSError('o')"),
    "repr": ("class Q:\n    def __repr__(self): raise RuntimeError('no repr')\nQ()", "RuntimeError", "no repr", None),
    "base": ("class B(BaseException): pass\nraise B('b')", "B", "b", None),
    "generator exit": ("raise GeneratorExit", "GeneratorExit", "", None),
    "keyboard": ("raise KeyboardInterrupt", "KeyboardInterrupt", "", None),
    "input at the end": ("input('? ')", "EOFError", "", None),
    "await outside": ("def f():\n    await x", "SyntaxError", "'await' outside async function", None),
    "return": ("return 1", "SyntaxError", "'return' outside function", None),
    "null byte": ("x = 1\0", None, "", None),
    "huge": ("raise ValueError('x' * 10**6)", "ValueError", "xxx", None),
    "deep json": ("raise ValueError('\\ud800')", "ValueError", "\ud800", None),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(shared, name):
    code, kind, value, line = ERRORS[name]
    if name == "repr" and shared.kind == "python":
        pytest.skip("IPython shows a repr that raises on stderr")
    answer = shared(code)
    assert not answer.ok and answer.result is None and answer.code is None
    if kind:
        assert answer.error["name"] == kind
    assert value in answer.error["value"]
    assert line is None or line in answer.error["traceback"], answer.error
    for word in ("kernel.py", "kernel_", "IPython"):
        assert word not in answer.trace
    assert sum(map(len, answer.error["traceback"])) < 140000
    assert shared("1+1").text == "2"


def test_traceback_has_cell_numbers(kernel):
    assert kernel("def f():\n    g()\n").ok
    assert kernel("def g():\n    1/0\n").ok
    answer = kernel("f()")
    files = [line for line in answer.error["traceback"] if "File" in line]
    assert files == ['  File "<cell 3>", line 1, in <module>', '  File "<cell 1>", line 2, in f',
                     '  File "<cell 2>", line 2, in g']
    assert "    1/0" in answer.error["traceback"]
    assert answer.done["execution_count"] == 3


def test_state_persists(kernel):
    kernel("import math\nx = [1]\ndef f(): return x\nclass K: pass")
    kernel("x.append(math.pi)")
    assert kernel("len(f()), K.__name__").text == "(2, 'K')"
    assert kernel("_").text == "(2, 'K')"
    assert not kernel("x.append(3); 1/0").ok
    assert kernel("len(x)").text == "3"


def test_cwd(kernel, tmp_path):
    (tmp_path / "sub").mkdir()
    assert kernel.ready["cwd"] == str(tmp_path)
    assert kernel("import os; os.chdir('sub')").done["cwd"] == str(tmp_path / "sub")
    assert kernel("os.rmdir(os.getcwd())").done["cwd"] == str(tmp_path / "sub")  # deleted: what it was
    assert kernel("1+1").text == "2"
    assert kernel("os.chdir('/')").done["cwd"] == "/"


def test_future_import_persists(kernel):
    kernel("from __future__ import annotations")
    kernel("def f(x: nowhere): pass")
    assert kernel("f.__annotations__['x']").text == "'nowhere'"


def test_as_a_program(start):
    """Not forked from a prepared one: started as python3 kernel.py."""
    kernel = start("program")
    assert kernel.ready["kernel"].startswith("ipython" if HAS_IPYTHON else "python")
    kernel("import pickle\nclass P: x = 5")
    assert kernel("pickle.loads(pickle.dumps(P())).x, __name__").text == "(5, '__main__')"
    assert kernel("import sys; [m for m in sys.modules if m.startswith('kernel')], sys.modules['__main__'].__dict__ is globals()").text == "([], True)"
    assert kernel("'Kernel' in globals()").text == "False"
    kernel.begin("print('go', flush=True)\nwhile True: pass")
    assert kernel.finish(answer=interrupt_when(kernel, "go")).error["name"] == "KeyboardInterrupt"


# stdin

def test_stdin(kernel):
    assert kernel("input('name? ')", stdin=b"Ada\n").text == "'Ada'"
    assert kernel("import sys; sys.stdin.read()", stdin="ä\nb".encode()).text == "'ä\\nb'"
    assert kernel("sys.stdin.read()").text == "''"
    assert kernel("[input(), input()]", stdin=b"1\n2\n").text == "['1', '2']"
    assert kernel("import os; os.read(0, 10)", stdin=b"fd 0").text == "b'fd 0'"
    assert kernel("import subprocess; subprocess.run(['cat']) and None", stdin=b"child").stdout == "child"
    assert kernel("subprocess.run(['cat']) and None").stdout == ""
    assert kernel("open(0, closefd=False).read()", stdin=b"open").text == "'open'"
    assert kernel("sys.stdin.buffer.read()", stdin=bytes(range(256))).text.count("\\x") > 100
    big = os.urandom(3 << 20)
    assert kernel("import hashlib; len(d := sys.stdin.buffer.read()), hashlib.md5(d).hexdigest()",
                  stdin=big).text.startswith("(%d," % len(big))


def test_stdin_of_one_exec_is_not_the_next_ones(kernel):
    kernel("x = input()", stdin=b"one\ntwo\n")
    answer = kernel("input()")
    assert answer.error["name"] == "EOFError"
    kernel("import sys; sys.stdin.close()", stdin=b"rest")
    assert kernel("input()", stdin=b"new\n").text == "'new'"


def test_stdin_prompt_is_printed(kernel):
    assert kernel("x = input('name? ')", stdin=b"Ada\n").stdout == "name? "


def test_own_stdin_stays(kernel):
    kernel("import sys, io; sys.stdin = io.StringIO('mine\\n')")
    assert kernel("input()", stdin=b"theirs\n").text == "'mine'"


# The end of code

@pytest.mark.parametrize("code,status,ok", [
    ("import sys; sys.exit()", 0, True), ("import sys; sys.exit(3)", 3, False), ("exit()", 0, True),
    ("quit(4)", 4, False), ("raise SystemExit", 0, True), ("import sys; sys.exit(-1)", 255, False),
    ("import sys; sys.exit('text')", 1, False), ("exit(None)", 0, True), ("import sys\ntry: sys.exit(5)\nfinally: x=1", 5, False)])
def test_exit_ends_the_code_not_the_session(shared, code, status, ok):
    shared("kept = 1")
    answer = shared(code + "\nprint('never')")
    assert (answer.code, answer.ok, answer.error) == (status, ok, None)
    assert "never" not in answer.stdout
    assert shared("kept").text == "1"


def test_exit_says_what_it_does(shared):
    assert "the session" in shared("exit").text


@pytest.mark.parametrize("code,status", [("import os; os._exit(7)", 7), ("import os, signal; os.kill(os.getpid(), 9)", -9),
                                         ("import os; os.abort()", -6)])
def test_death(kernel, code, status):
    with pytest.raises(Dead):
        kernel(code)
    assert kernel.wait() == status


def test_end_of_channel_ends_the_kernel(kernel):
    kernel.channel.close()
    assert kernel.wait() == 0


@pytest.mark.parametrize("bytes_", [b"nonsense\n", b"exec -1\n", b"exec 99999999999\n", b"x" * 100, b"exec 1 2\n",
                                    b"bogus 0\n", b"tools 1\n{", b"\n"])
def test_broken_frames_end_the_kernel(kernel, bytes_):
    kernel.channel.sendall(bytes_)
    assert kernel.wait() == 70


def test_frames_in_pieces(kernel):
    for byte in b"exec 3\n1+2":
        kernel.channel.sendall(bytes([byte]))
        time.sleep(0.001)
    assert kernel.finish().text == "3"
    kernel.channel.sendall(b"stdin 2\nhiexec 7\ninput()")
    assert kernel.finish().text == "'hi'"


def test_code_that_is_no_utf8(kernel):
    kernel.send("exec", b"x = '\xff'")
    answer = kernel.finish()
    assert answer.error["name"] == "UnicodeDecodeError"
    assert kernel("1+1").text == "2"


def test_jobs_are_the_shells(kernel):
    assert kernel.ask_jobs() == []


# Interrupts

def interrupt_when(kernel, word, group=True):
    """Waits until the code has printed word."""
    answer = kernel.await_output(word)
    kernel.interrupt(group)
    return answer


# An import stands before the signal may come: it runs weakref callbacks and class bodies, in which CPython swallows a
# KeyboardInterrupt or turns it into another exception. The server repeats a signal that was swallowed.
@pytest.mark.parametrize("module, loop", [
    ("os", "while True: pass"), ("time", "time.sleep(100)"), ("os", "input()"), ("asyncio", "await asyncio.sleep(100)"),
    ("threading", "threading.Event().wait()"), ("subprocess", "subprocess.run(['sleep', '100'])"),
    ("os", "for i in iter(int, 1): pass"), ("asyncio", "while True: await asyncio.sleep(0)")])
def test_interrupt_keeps_state(kernel, module, loop):
    if loop == "input()":
        loop = "import os; r, w = os.pipe(); os.read(r, 1)"
    kernel("x = 41\nimport " + module)
    kernel.begin("x += 1\nprint('go', flush=True)\n" + loop)
    answer = kernel.finish(answer=interrupt_when(kernel, "go"))
    assert answer.error["name"] == "KeyboardInterrupt" and answer.done["interrupted"] and not answer.ok, answer
    assert "kernel" not in answer.trace
    assert kernel("x").text == "42"


def test_interrupt_to_the_process_alone(kernel):
    kernel.begin("print('go', flush=True)\nwhile True: pass")
    assert kernel.finish(answer=interrupt_when(kernel, "go", group=False)).error["name"] == "KeyboardInterrupt"


def test_interrupt_when_idle_is_dropped(kernel):
    for _ in range(5):
        kernel.interrupt()
        assert wait_until(kernel.has_taken_signals)
        assert kernel("1+1").text == "2"


def test_interrupt_before_the_code_runs(kernel):
    """Stopped, so that both the code and the signal are there when it goes on."""
    os.kill(kernel.pid, signal.SIGSTOP)
    kernel.begin("import time; time.sleep(100)")
    kernel.interrupt()
    os.kill(kernel.pid, signal.SIGCONT)
    assert kernel.finish().error["name"] == "KeyboardInterrupt"
    assert kernel("1+1").text == "2"


def test_interrupts_at_any_moment(kernel):
    """Whatever they hit, each exec is answered once and the session goes on."""
    kernel("n = 0")
    for round_ in range(60):
        kernel.begin("n += 1\ndisplay(n)\nfor i in range(%d): pass\nn" % (round_ * 2000))
        time.sleep(round_ * 0.0001)
        kernel.interrupt()
        answer = kernel.finish()
        assert answer.error is None or answer.error["name"] == "KeyboardInterrupt"
    assert wait_until(kernel.has_taken_signals)
    assert kernel("1+1").text == "2"


def test_interrupts_at_any_moment_of_an_await(kernel):
    """Also while the event loop begins or ends to run: the next await works."""
    kernel("import asyncio")
    for round_ in range(60):
        kernel.begin("for i in range(%d): pass\nawait asyncio.sleep(0)" % (round_ * 60))
        time.sleep(round_ * 0.00003)
        kernel.interrupt()
        answer = kernel.finish()
        assert answer.error is None or answer.error["name"] == "KeyboardInterrupt", answer
        kernel.settle()
        assert kernel("await asyncio.sleep(0, 7)").text == "7"


def test_interrupts_at_any_moment_with_threads(kernel):
    """Another thread takes the signal when the kernel's own holds it back."""
    kernel("import threading, time\ndef spin():\n    while True: time.sleep(0.0001)\n"
           "for _ in range(3): threading.Thread(target=spin, daemon=True).start()")
    for round_ in range(30):
        kernel.begin("for i in range(5): display('x' * 2000000)")
        time.sleep(0.002 + round_ * 0.0005)
        kernel.interrupt()
        answer = kernel.finish()
        assert answer.error is None or answer.error["name"] == "KeyboardInterrupt"
    assert wait_until(kernel.has_taken_signals)
    assert kernel("1+1").text == "2"


def test_caught_interrupt(kernel):
    kernel.begin("import time\ntry:\n    print('go', flush=True)\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    print('caught')")
    answer = kernel.finish(answer=interrupt_when(kernel, "go"))
    assert answer.ok and "caught" in answer.stdout


def test_own_handler_is_kept_for_code_only(kernel):
    kernel("import signal, time\nhits = []\n_h = signal.signal(signal.SIGINT, lambda *a: hits.append(1))")
    kernel.interrupt()  # idle: not the user's business
    assert wait_until(kernel.has_taken_signals)
    assert kernel("len(hits)").text == "0"
    kernel.begin("print('go', flush=True)\nwhile not hits: time.sleep(0.01)\nlen(hits)")
    assert kernel.finish(answer=interrupt_when(kernel, "go")).text == "1"


# Displays

def test_display(kernel):
    answer = kernel("display(1, 'two')\nprint('p')\n3")
    assert [d["text/plain"] for d in answer.displays] == ["1", "'two'"] and answer.text == "3"


def test_repr_methods(kernel):
    kernel("class H:\n    def _repr_html_(self): return '<b>h</b>'\n    def __repr__(self): return 'H'\n")
    assert kernel("H()").result == {"text/html": "<b>h</b>", "text/plain": "H"}
    assert kernel("display(H())").displays == [{"text/html": "<b>h</b>", "text/plain": "H"}]
    kernel("class P:\n    def _repr_png_(self): return b'\\x89PNG'\n    def __repr__(self): return 'P'\n")
    assert base64.b64decode(kernel("P()").result["image/png"]) == b"\x89PNG"
    kernel("class M:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
           "        return {'application/json': {'a': [1, None, True]}, 'text/plain': 'M'}\n")
    assert kernel("M()").result["application/json"] == {"a": [1, None, True]}
    assert kernel("H").error is None  # the class itself has no rich form


def test_raw_display(kernel):
    answer = kernel("display({'text/plain': 't', 'text/markdown': '*m*'}, raw=True)")
    assert answer.displays == [{"text/plain": "t", "text/markdown": "*m*"}]


def test_display_that_is_too_large(kernel):
    answer = kernel("class B:\n    def _repr_html_(self): return 'x' * (17 << 20)\n    def __repr__(self): return 'B'\nB()")
    assert answer.ok and set(answer.result) == {"text/plain"}
    answer = kernel("'x' * (17 << 20)")
    assert answer.ok and "left out" in answer.text
    answer = kernel("class J:\n    def _repr_mimebundle_(self, **k):\n        v = []\n        for _ in range(500): v = [v]\n"
                    "        return {'application/json': v, 'text/plain': 'deep'}\nJ()")
    assert answer.ok and answer.result == {"text/plain": "deep"}


def test_repr_method_that_raises(kernel):
    answer = kernel("class X:\n    def _repr_html_(self): raise ValueError('inner')\n    def __repr__(self): return 'X'\nX()")
    assert "ValueError: inner" in (answer.stderr or answer.trace)
    assert kernel("1+1").text == "2"


PNG = b"\x89PNG\r\n\x1a\n"


def png(bundle):
    data = base64.b64decode(bundle["image/png"])
    assert data.startswith(PNG)
    return data


@pytest.fixture
def plots(kernel):
    pytest.importorskip("matplotlib")
    assert kernel("import matplotlib.pyplot as plt", timeout=60).ok
    return kernel


def test_figures_are_shown_at_the_end(plots):
    answer = plots("plt.plot([1, 2, 3]);")
    assert answer.error is None and len(answer.displays) == 1
    assert len(png(answer.displays[0])) > 1000
    assert answer.displays[0]["text/plain"].startswith("<Figure size")
    assert plots("plt.get_fignums()").text == "[]"
    assert plots("1").displays == []


def test_two_figures(plots):
    answer = plots("for i in range(2):\n    plt.figure(); plt.plot([i, 2])")
    assert len(answer.displays) == 2


def test_show(plots):
    answer = plots("plt.plot([1, 2]); plt.show(); print('after')\nplt.plot([2, 1]); plt.show(block=False)")
    assert len(answer.displays) == 2 and answer.stdout == "after\n" and answer.stderr == ""


def test_figure_as_value_is_shown_once(plots):
    answer = plots("fig, ax = plt.subplots(); ax.plot([1, 2])\nfig")
    assert png(answer.result) and answer.displays == []
    assert plots("fig, ax = plt.subplots(); display(fig)").displays[0]["image/png"]
    answer = plots("fig, ax = plt.subplots(); fig.show()")
    assert len(answer.displays) == 1 and answer.stderr == ""


def test_svg(plots):
    answer = plots("plt.rcParams['savefig.format'] = 'svg'\nplt.plot([1, 2]);")
    assert "<svg" in answer.displays[0]["image/svg+xml"] and "image/png" not in answer.displays[0]


def test_figure_after_an_error(plots):
    answer = plots("plt.plot([1, 2]); 1/0")
    assert answer.error["name"] == "ZeroDivisionError" and len(answer.displays) == 1
    assert plots("1").displays == []


def test_use_agg(plots):
    answer = plots("import matplotlib; matplotlib.use('Agg')\nplt.plot([1]); plt.savefig('a.png');")
    assert answer.ok and len(answer.displays) == 1
    assert plots("open('a.png', 'rb').read(4)").text == r"b'\x89PNG'"


def test_plots_write_nothing_to_home(start, tmp_path):
    pytest.importorskip("matplotlib")
    home, tmp = tmp_path / "home", tmp_path / "tmp"
    home.mkdir(), tmp.mkdir()
    kernel = start("program", env={"HOME": str(home), "TMPDIR": str(tmp), "MPLCONFIGDIR": None}, cwd="/")
    answer = kernel("import matplotlib.pyplot as plt; plt.plot([1]);", timeout=120)
    assert len(answer.displays) == 1 and answer.stderr == ""
    assert list(home.iterdir()) == [] and [p.name for p in tmp.iterdir()] == [".matplotlib"]


def test_pandas(kernel):
    pytest.importorskip("pandas")
    answer = kernel("import pandas as pd\npd.DataFrame({'a': [1, 2]})", timeout=60)
    assert "<table" in answer.result["text/html"] and answer.text.split() == ["a", "0", "1", "1", "2"]


def test_pil(kernel):
    pytest.importorskip("PIL")
    answer = kernel("from PIL import Image\nImage.new('RGB', (4, 4), 'red')", timeout=60)
    assert png(answer.result)


def test_program_started_by_the_code_can_plot(plots):
    code = "import matplotlib.pyplot as p; p.plot([1]); p.savefig('c.png'); print('ok')"
    assert plots("import subprocess, sys; subprocess.run([sys.executable, '-c', %r]) and None" % code,
                 timeout=60).stdout == "ok\n"


def test_pip(shared):
    """Such a line asks the server (tests/images/test_pip_lines.py); what the server would refuse is refused here."""
    for code in ("%pip install -r x", "x = 1\n!pip install -r x", "if x:\n    %pip install -r x"):
        answer = shared(code)
        assert answer.error["name"] == "PackageError" and "-r is not supported" in answer.error["value"], answer
        assert answer.error["traceback"] == ["PackageError: " + answer.error["value"]]
    assert shared('text = """\n%pip install -r x\n!pip install -r x\n"""\nlen(text.split())').text == "8"
    assert shared("%pip install 'x").error["name"] == "PackageError"
    assert shared("y = 5\n%pip\n  x").error["name"] in ("IndentationError", "SyntaxError")
    code = "def f():\n    %pip install -r x\nimport threading\nseen = []\n" \
           "def g():\n    try:\n        %pip install x\n    except Exception as e:\n        seen.append(type(e).__name__)\n" \
           "t = threading.Thread(target=g); t.start(); t.join(); seen"
    assert shared(code).text == "['PackageError']"  # a thread must not read from the channel


def test_an_answer_to_pip(kernel):
    """The frames, as docs/internals/kernels.md has them; a late answer is dropped."""
    kernel.send("exec", b"%pip install -q one 'two>=2'\n'went on'")
    answer = Answer()
    kind, payload = kernel.frame(answer, 30)
    assert kind == "install" and json.loads(payload) == {"id": 1, "quiet": True, "packages": ["one", "two>=2"]}
    kernel.send("installed", b'{"id": 0, "error": "of an earlier one"}')
    kernel.send("installed", b'{"id": 1, "installed": [{"name": "one", "version": "1"}]}')
    kind, payload = kernel.frame(answer, 30)
    assert kind == "result" and json.loads(payload)["text/plain"] == "'went on'"
    assert kernel.frame(answer, 30)[0] == "done"
    kernel.send("installed", b'{"id": 1, "error": "late"}')
    assert kernel("1 + 1").text == "2"
    kernel.send("exec", b"%pip install one")
    assert kernel.frame(answer, 30)[0] == "install"
    kernel.send("installed", b'{"id": 2, "error": "the build failed: no such package"}')
    kind, payload = kernel.frame(answer, 30)
    assert kind == "error" and "no such package" in json.loads(payload)["value"]
    assert kernel.frame(answer, 30)[0] == "done"


# Children

def test_fork_in_the_code(kernel):
    answer = kernel("import os\npid = os.fork()\nif pid:\n    print(os.waitpid(pid, 0)[1])\nelse:\n    print('child', flush=True)\n'end'")
    assert answer.text == "'end'" and sorted(answer.stdout.split()) == ["0", "child"]
    answer = kernel("pid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\nelse: 1/0")
    assert answer.ok and answer.stdout == "256\n" and "ZeroDivisionError" in answer.stderr
    answer = kernel("pid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\nelse: display(5); raise SystemExit(3)")
    assert answer.stdout == "5\n768\n" and answer.displays == []


def test_children_have_no_channel(kernel):
    list_fds = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"
    answer = kernel("import subprocess, sys, os\nsubprocess.run([sys.executable, '-c', %r], close_fds=False) and None" % list_fds)
    assert "'3'" in answer.stdout and "'4'" not in answer.stdout  # 3 is the listing itself
    assert kernel("os.system('ls -l /proc/self/fd') and None").stdout.count("socket") == 0
    answer = kernel("pid = os.fork()\nif not pid:\n    try: os.fstat(3); print('has')\n    except OSError: print('none')\n"
                    "    os._exit(0)\nos.waitpid(pid, 0) and None")
    assert answer.stdout == "none\n"


def test_child_that_outlives_the_code(kernel):
    answer = kernel("import subprocess\np = subprocess.Popen(['sh', '-c', 'sleep 0.3; echo late'])")
    assert answer.ok and answer.stdout == ""
    time.sleep(0.5)
    assert kernel("p.wait()").stdout == "late\n"


def test_interrupt_does_not_kill_setsid_children(kernel):
    kernel("import subprocess\np = subprocess.Popen(['sleep', '100'], start_new_session=True)")
    kernel.begin("print('go', flush=True)\nwhile True: pass")
    kernel.finish(answer=interrupt_when(kernel, "go"))
    assert kernel("p.poll()").text is None
    kernel("p.kill(); p.wait()")


# Hostile and clumsy code: the kernel answers, or dies; it never hangs or lies

HOSTILE = {
    "stdout replaced": "import sys\nsys.stdout = sys.stderr = None",
    "stdout rubbish": "import sys\nclass W:\n    closed = False\n    def flush(self): 1/0\nsys.stdout = W()",
    "stdout closed": "import sys\nsys.stdout.close(); sys.stderr.close()",
    "builtins broken": "import builtins\nfor n in ('len', 'isinstance', 'str', 'print', 'dict', 'list', 'getattr', 'compile', 'repr', 'open', 'type'):\n"
                       "    setattr(builtins, n, None)",
    "json broken": "import json\njson.dumps = json.loads = json.JSONEncoder = json.JSONDecoder = None\njson.encoder.encode_basestring_ascii = None",
    "os broken": "import os\nfor n in ('write', 'read', 'getpid', 'getcwd', 'dup2', 'close', 'fstat', 'fork'): setattr(os, n, None)",
    "modules cleared": "import sys\nsys.modules.clear()",
    "traceback broken": "import traceback, linecache\ntraceback.TracebackException.format = None\nlinecache.getline = None\nlinecache.cache = None",
    "namespace cleared": "globals().clear()",
    "builtins deleted": "del __builtins__",
    "trace function": "import sys\nsys.settrace(lambda *a: 1/0)",
    "profile function": "import sys\nsys.setprofile(lambda *a: None)",
    "low recursion limit": "import sys\nsys.setrecursionlimit(60)",
    "displayhook": "import sys\nsys.displayhook = None; sys.excepthook = None",
    "signal ignored": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)",
    "audit hook": "import sys\nsys.addaudithook(lambda e, a: None)",
    "gc off": "import gc\ngc.disable(); gc.set_threshold(1, 1, 1)",
    "meta path": "import sys\nsys.meta_path.clear(); sys.path.clear()",
    "daemon thread": "import threading, time\nthreading.Thread(target=lambda: time.sleep(1000), daemon=True).start()",
    "del hook": "class D:\n    def __del__(self): raise SystemExit\nd = D(); del d",
    "stop iteration": "raise StopIteration",
    "closed loop": "import asyncio\nawait asyncio.sleep(0)\nasyncio.get_event_loop().stop()",
    "fd 0 closed": "import os\nos.close(0)",
    "warnings": "import warnings\nwarnings.simplefilter('error')",
    "codec": "import sys\nsys.stdout.reconfigure(encoding='ascii')",
    "ipython broken": "try:\n    ip = get_ipython(); ip.transform_cell = None; ip.display_formatter = None; ip.events = None\nexcept NameError: pass",
    "main replaced": "import sys, types\nsys.modules['__main__'] = types.ModuleType('__main__')",
    "class hooks": "import sys\nsys.unraisablehook = None; sys.__stdout__ = None",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(kernel, name):
    kernel(HOSTILE[name], timeout=30)
    for count in (2, 3):
        answer = kernel("40 + 2")
        assert answer.done["execution_count"] == count
        if name not in ("trace function", "builtins deleted", "low recursion limit"):
            assert answer.text == "42", answer
    answer = kernel("1/0")
    if name not in ("trace function", "low recursion limit"):
        assert answer.error["name"] == "ZeroDivisionError"
        assert "<cell 4>" in answer.trace


def test_rubbish_on_the_channel(kernel):
    with pytest.raises(Dead, match="rubbish"):
        kernel("import os; os.write(3, b'\\xff\\xferubbish' * 10)")


def test_forged_frames_are_the_servers_business(kernel):
    """Nothing in the kernel can stop this; the order is checked by whoever reads."""
    answer = kernel("import os; os.write(3, b'display 18\\n{\"text/plain\":\"f\"}') and None")
    assert answer.displays == [{"text/plain": "f"}]


@pytest.mark.parametrize("code", ["import os; os.close(3)", "import os; os.closerange(3, 100)",
                                  "import os; os.dup2(1, 3)", "import os; os.close(3); open('file', 'w')"])
def test_channel_closed_by_the_code(kernel, code):
    with pytest.raises(Dead) as dead:
        kernel(code)
    assert kernel.wait() == 71
    answer = Answer()
    kernel.drain(answer)
    assert "descriptor 3" in str(dead.value) + answer.stderr


def test_huge_output(kernel):
    answer = kernel("for i in range(200): print('x' * 99999)", timeout=60)
    assert len(answer.stdout_bytes) == 200 * 100000


def test_output_arrives_while_code_runs(kernel):
    kernel.begin("import time\nprint('first')\ntime.sleep(100)")
    assert kernel.finish(answer=interrupt_when(kernel, "first")).stdout == "first\n"


def test_many_displays(kernel):
    answer = kernel("for i in range(500): display(i)")
    assert [d["text/plain"] for d in answer.displays] == [str(i) for i in range(500)]


def test_displays_from_threads(kernel):
    answer = kernel("import threading\nts = [threading.Thread(target=lambda: [display('x' * 1000) for _ in range(50)]) for _ in range(8)]\n"
                    "for t in ts: t.start()\nfor t in ts: t.join()")
    assert len(answer.displays) == 400


def test_thread_that_outlives_the_code(kernel):
    answer = kernel("import os, threading, time\ndef late():\n    while not os.path.exists('go'): time.sleep(0.005)\n    display('late')\n"
                    "t = threading.Thread(target=late); t.start()")
    pathlib.Path(answer.done["cwd"], "go").touch()
    kernel.await_output("late")
    answer = kernel("t.join(); 1")
    assert answer.text == "1" and answer.displays == []


def test_long_code(kernel):
    assert kernel("x = 0\n" + "x += 1\n" * 100000 + "x", timeout=60).text == "100000"


def test_deep_nesting(kernel):
    answer = kernel("(" * 5000 + ")" * 5000)
    assert answer.error["name"] in ("MemoryError", "SyntaxError", "RecursionError")
    assert kernel("1+1").text == "2"


def test_tasks_stand_still_between_execs(kernel):
    kernel("import asyncio\nhits = []\nasync def bg():\n    while True:\n        hits.append(1); await asyncio.sleep(0.001)\n"
           "task = asyncio.ensure_future(bg()) if False else None\nasync def start():\n    return asyncio.ensure_future(bg())\ntask = await start()")
    before = int(kernel("len(hits)").text)
    time.sleep(0.1)
    assert int(kernel("len(hits)").text) == before
    kernel("await asyncio.sleep(0.05)")
    assert int(kernel("len(hits)").text) > before


def test_no_descriptor_is_left_after_await(kernel):
    fds = "import os; len(os.listdir('/proc/self/fd'))"
    before = kernel(fds).text
    kernel("import asyncio; await asyncio.sleep(0.01)")
    kernel("import sys; sys.stdin.read()", stdin=b"x")
    assert kernel(fds).text == before


@pytest.mark.parametrize("kind", ["program", "python"])
def test_nothing_is_written_to_home(start, tmp_path, kind):
    home = tmp_path / "home"
    home.mkdir()
    kernel = start(kind, env={"HOME": str(home)}, cwd="/")
    kernel("1+1")
    kernel("%pwd")
    assert list(home.iterdir()) == []


def test_two_execs_at_once_are_taken_in_order(kernel):
    kernel.begin("1")
    kernel.begin("2")
    assert [kernel.finish().text, kernel.finish().text] == ["1", "2"]


# IPython's own

@pytest.fixture
def ipython(start):
    if not HAS_IPYTHON:
        pytest.skip("no IPython")
    return start("python")


def test_ipython_names(ipython):
    assert ipython.ready["kernel"].startswith("ipython ")
    assert ipython("get_ipython().__class__.__name__").ok
    ipython("40 + 2")
    assert ipython("_, Out[2], _2, In[2]").text == "(42, 42, 42, '40 + 2')"


@pytest.mark.parametrize("code,text", [("%timeit -n1 -r1 pass", "loop"), ("!echo shell", "shell"),
                                       ("%%time\nx = 1", "Wall time"), ("%who", ""), ("%env HOME", None),
                                       ("%cd /", "/"), ("%matplotlib inline", ""), ("%%bash\necho in bash", "in bash"),
                                       ("%%capture c\nprint('caught')", ""), ("%history", "")])
def test_magics(ipython, code, text):
    answer = ipython(code)
    assert answer.error is None, answer
    assert text is None or text in answer.stdout + str(answer.text)


def test_help(ipython):
    answer = ipython("len?")
    assert answer.error is None and "number of items" in answer.stdout + str(answer.displays)


def test_unknown_magic(ipython):
    answer = ipython("%nosuchmagic")
    assert "nosuchmagic" in str(answer.error) + answer.stderr


def test_capture_and_rich_objects(ipython):
    ipython("%%capture c\nprint('caught')\ndisplay(5)")
    assert ipython("c.stdout").text == "'caught\\n'"
    assert ipython("len(c.outputs)").text == "1"
    assert ipython("from IPython.display import HTML, JSON, Image\nHTML('<i>x</i>')").result["text/html"] == "<i>x</i>"
    assert ipython("JSON({'a': 1})").result["application/json"] == {"a": 1}


def test_events(ipython):
    ipython("seen = []\nget_ipython().events.register('post_execute', lambda: seen.append(1))")
    ipython("1")
    assert ipython("len(seen) > 0").text == "True"
    ipython("get_ipython().events.register('pre_run_cell', lambda info: seen.append(info.raw_cell))")
    ipython("'raw'")
    assert ipython("\"'raw'\" in seen").text == "True"
    pathlib.Path(ipython("1").done["cwd"], "auto1.py").write_text("v = 1")
    ipython("%load_ext autoreload\n%autoreload 2\nimport auto1")
    pathlib.Path(ipython("1").done["cwd"], "auto1.py").write_text("v = 22222")
    assert ipython("auto1.v").text == "22222"


def test_own_formatter_of_a_plain_type(ipython):
    ipython("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: '<i>%d</i>' % n)")
    assert ipython("5").result == {"text/html": "<i>5</i>", "text/plain": "5"}
    assert ipython("'s'").result == {"text/plain": "'s'"}


def test_rehearsal_leaves_nothing(kernel):
    names = kernel("sorted(n for n in globals() if not n.startswith('_'))").text
    assert names in ("[]", "['In', 'Out', 'get_ipython']")
    assert kernel("import linecache; '<cell 0>' in linecache.cache").text == "False"


def test_shell_escape(ipython):
    answer = ipython("print('a')\n!echo b; echo e >&2\nprint('c', _exit_code)")
    assert (answer.stdout, answer.stderr) == ("a\nb\nc 0\n", "e\n")
    assert ipython("x = !echo captured\nx[0]").text == "'captured'"
    assert ipython("!cat", stdin=b"input").stdout == "input"
    ipython.begin("print('go', flush=True)\n!sleep 100")
    answer = ipython.finish(answer=interrupt_when(ipython, "go"))
    assert ipython("1+1").text == "2"


def test_own_underscore(start):
    kernel = start("plain")
    kernel("import builtins; builtins._ = 'gettext'")
    assert kernel("_").text == "'gettext'"


# Tools

TOOLS = [{"name": "add", "description": "Adds two numbers.",
          "input_schema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}},
         {"name": "web-search", "input_schema": {"properties": {"query": {}}}}, {"name": "noargs"}]


def add(call):
    return {"output": call["input"]["a"] + call["input"]["b"]}


def test_tools(kernel):
    answer = kernel("import hermes_tools\nhermes_tools.add(1, 2), hermes_tools.add(a=3, b=4), hermes_tools.add(5, b=6)", tools=TOOLS, on_tool=add)
    assert answer.text == "(3, 7, 11)"
    assert [c["input"] for c in answer.calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}]
    assert len({c["id"] for c in answer.calls}) == 3
    answer = kernel("from hermes_tools import add, web_search, noargs\n[web_search('q'), noargs(), add({'a': 1, 'b': 1})]",
                    tools=TOOLS, on_tool=lambda call: {"output": {"got": call}})
    assert [c["name"] for c in answer.calls] == ["web-search", "noargs", "add"]
    assert answer.calls[1]["input"] == {}
    assert "Adds two numbers" in kernel("hermes_tools.add.__doc__", tools=TOOLS).text


def test_tool_errors(kernel):
    answer = kernel("import hermes_tools\ntry: hermes_tools.add(1, 2)\nexcept hermes_tools.ToolError as e: print('E', e)",
                    tools=TOOLS, on_tool=lambda call: {"error": "no luck"})
    assert answer.stdout == "E no luck\n"
    answer = kernel("hermes_tools.add(1, 2)", tools=TOOLS, on_tool=lambda call: {"error": "no luck"})
    assert answer.error["name"] == "ToolError" and answer.error["value"] == "no luck"
    assert kernel("hermes_tools.add(1, 2, 3)", tools=TOOLS).error["name"] == "TypeError"
    assert kernel("hermes_tools.add(object())", tools=TOOLS).error["name"] == "TypeError"
    assert kernel("hermes_tools.add('x' * 2000000)", tools=TOOLS).error["name"] == "ValueError"


def test_tools_that_are_not_offered_do_not_exist(kernel):
    assert kernel("import hermes_tools\nhermes_tools.add").error["name"] == "AttributeError"
    kernel("import hermes_tools\nkeep = hermes_tools.add", tools=TOOLS)
    assert kernel("hermes_tools.add(1, 2)").error["name"] == "AttributeError"
    answer = kernel("keep(1, 2)")
    assert answer.error["name"] == "ToolError" and answer.calls == []
    assert kernel("keep(1, 2)", tools=TOOLS, on_tool=add).error["name"] == "ToolError"


def test_tool_call_from_a_thread(kernel):
    answer = kernel("import hermes_tools, threading\nout = []\nts = [threading.Thread(target=lambda i=i: out.append(hermes_tools.add(i, 1))) for i in range(5)]\n"
                    "for t in ts: t.start()\nfor t in ts: t.join()\nsorted(out)", tools=TOOLS, on_tool=add)
    assert answer.text == "[1, 2, 3, 4, 5]"


def test_tool_call_that_outlives_the_code(kernel):
    kernel("import hermes_tools, threading, time\nproblem = []\ndef call():\n    try: hermes_tools.add(1, 2)\n    except Exception as e: problem.append(repr(e))\n"
           "t = threading.Thread(target=call); t.start(); time.sleep(0.1)", tools=TOOLS)
    kernel.send("tool_result", {"id": "1", "output": 3})  # too late
    assert "over" in kernel("t.join(); problem").text


def test_interrupt_of_a_tool_call(kernel):
    kernel.begin("import hermes_tools\nprint('go', flush=True)\nhermes_tools.add(1, 2)", tools=TOOLS)
    answer = kernel.finish(answer=interrupt_when(kernel, "go"))
    assert answer.error["name"] == "KeyboardInterrupt"
    kernel.send("tool_result", {"id": "1", "output": 3})
    assert kernel("hermes_tools.add(2, 2)", tools=TOOLS, on_tool=add).text == "4"


def test_odd_tools(kernel):
    for tools in ([], [1, None, {}, {"name": 5}], {"a": 1}, [{"name": "ToolError"}], [{"name": "class"}], [{"name": "1x"}],
                  [{"name": "t", "input_schema": 5}], [{"name": "__class__"}]):
        assert kernel("import hermes_tools; dir(hermes_tools) and 1", tools=tools).text == "1"


def test_answers_with_the_wrong_id_are_not_taken(kernel):
    def answer(call):
        kernel.send("tool_result", {"id": "999", "output": "wrong"})
        return {"output": "right"}
    assert kernel("import hermes_tools; hermes_tools.add(1, 2)", tools=TOOLS, on_tool=answer).text == "'right'"


def test_memory_of_many_execs(kernel):
    """A kernel that keeps something of each exec grows; names that stay are few."""
    for i in range(300):
        kernel("x%d = None" % (i % 3))
    before = int(kernel("import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss").text)
    for i in range(1000):
        kernel("y = 'z' * 1000")
    after = int(kernel("resource.getrusage(resource.RUSAGE_SELF).ru_maxrss").text)
    assert after - before < 8192


def test_processes_end_with_the_session(start):
    kernel = start("plain")
    kernel("1")
    pid = kernel.pid
    kernel.close()
    assert wait_until(lambda: not os.path.exists("/proc/%d" % pid))
    kernel.close = lambda: None


def ask_fork(kernel, payload):
    kernel.send("fork", payload)
    kind, answer = kernel.frame(Answer(), 20)
    assert kind == "fork"
    return json.loads(answer)["refused"]


@pytest.mark.parametrize("by", ["itself", "thread"])
def test_asked_for_a_preview(kernel, by):
    """While a call waits. Here is no box that could be copied, so the answer is no, and the call goes on."""
    code = "import hermes_tools, threading\ndef f():\n    global got\n    got = hermes_tools.add(1, 2)\n"
    code += "f()\ngot" if by == "itself" else "t = threading.Thread(target=f)\nt.start()\nt.join()\ngot"
    kernel.begin(code, tools=TOOLS)
    kind, call = kernel.frame(Answer(), 20)
    assert kind == "tool_call"
    for _ in range(2):
        assert ("thread" if by == "thread" else "look at itself") in ask_fork(kernel, b"preview")
    kernel.send("tool_result", {"id": json.loads(call)["id"], "output": 3})
    assert kernel.finish().text == "3"


def test_asked_for_a_preview_of_a_call_that_was_given_up(kernel):
    kernel.begin("import hermes_tools\nhermes_tools.add(1, 2)", tools=TOOLS)
    assert kernel.frame(Answer(), 20)[0] == "tool_call"
    kernel.interrupt()
    assert kernel.finish().error["name"] == "KeyboardInterrupt"
    assert "given up" in ask_fork(kernel, b"preview")
    kernel.settle()
    assert kernel("6 * 7").text == "42"
