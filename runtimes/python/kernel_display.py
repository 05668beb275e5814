# SPDX-License-Identifier: Apache-2.0
"""How values are shown: mime bundles, figures; with IPython's shell if it can be imported, else with a plain one.
Both have the same few methods, which kernel.py calls: begin, transform, result, show_figures…"""
import builtins

__builtins__ = dict(vars(builtins))

import io  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
from binascii import b2a_base64  # noqa: E402
from os import getpid  # noqa: E402

from kernel_channel import FRAME_MAX, encode, to_text  # noqa: E402
from kernel_packages import PackageError, is_install  # noqa: E402

PIP_LINE = re.compile(r"\s*[%!](pip(?!\S).*)")

# Methods by which an object shows itself, and the MIME type of the result.
METHODS = (("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_latex_", "text/latex"),
           ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"),
           ("_repr_json_", "application/json"), ("_repr_javascript_", "application/javascript"),
           ("_repr_pdf_", "application/pdf"))


def sendable(bundle):
    """The bundle in the form of the channel. Data that cannot be sent is left out, with a text that says so."""
    ready, dropped, size = {}, [], 0
    for mime, data in bundle.items():
        try:
            if isinstance(data, (bytes, bytearray, memoryview)):
                data = b2a_base64(data, newline=False).decode("ascii")
            elif mime.startswith("image/") and isinstance(data, str) and "svg" not in mime:
                data = data.replace("\n", "")  # base64 with line breaks
            length = len(encode(data, 1)) + len(mime) + 8
        except (TypeError, ValueError, RecursionError) as problem:
            dropped.append("%s: %s" % (mime, to_text(lambda: str(problem))))
            continue
        if size + length > FRAME_MAX - 65536:
            dropped.append("%s: %d bytes are too many" % (mime, length))
            continue
        size += length
        ready[str(mime)] = data
    if "text/plain" not in ready:
        ready["text/plain"] = "[left out: %s]" % "; ".join(dropped)[:1000] if dropped else ""
    return ready


PARSE_ONLY = 0x400  # ast.PyCF_ONLY_AST


class Plain:
    """Shows values without IPython."""
    remember_results = True

    def __init__(self, kernel):
        self.kernel = kernel
        self.name = "python %d.%d.%d" % sys.version_info[:3]

    def begin(self):
        builtins.display = self.display
        builtins.__hermes_pip__ = self.pip
        watch_matplotlib(self)

    def transform(self, text, count):
        """Lines that begin with %pip or !pip become calls. Such a line is no Python, so it is where a syntax error is:
        one in a string stays as it is."""
        lines = text.split("\n")
        while True:
            try:
                compile("\n".join(lines), "<cell>", "exec", self.kernel.flags | PARSE_ONLY, True)
            except SyntaxError as problem:
                at = (problem.lineno or 0) - 1
                found = PIP_LINE.fullmatch(lines[at]) if 0 <= at < len(lines) else None
                if not found:
                    break  # the compiler tells what is wrong
                indent = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
                lines[at] = indent + "__hermes_pip__(%r)" % found[1]
            except Exception:
                break
            else:
                break
        return "\n".join(lines)

    def pip(self, line):
        """`pip …` as a line of a cell."""
        if is_install(line):
            self.kernel.packages.install(line)
        else:
            self.system("%s -m %s" % (sys.executable, line))

    def system(self, command):
        import subprocess
        subprocess.call(command, shell=True)

    def transform_tree(self, body):
        return body

    def is_usage_error(self, problem):
        return isinstance(problem, PackageError)

    def bundle(self, value):
        bundle = {}
        if is_figure(value):
            bundle.update(draw(value))
        elif not isinstance(value, type):
            give = getattr(value, "_repr_mimebundle_", None)
            if callable(give):
                made = give(include=None, exclude=None)
                bundle.update(made[0] if isinstance(made, tuple) else made or {})
            for method, mime in METHODS:
                give = getattr(value, method, None)
                if mime not in bundle and callable(give):
                    try:
                        data = give()
                    except NotImplementedError:
                        continue
                    if data is not None:
                        bundle[mime] = data[0] if isinstance(data, tuple) else data
        bundle.setdefault("text/plain", repr(value))
        return bundle

    def result(self, value):
        made = sendable(self.bundle(value))
        forget_figure(value)
        if self.remember_results:
            self.remember(value)
        return made

    def remember(self, value):
        builtins._ = value

    def forget_input(self):
        pass

    def display(self, *values, raw=False, **ignored):
        """display(value…): shows values in the richest way they have. With raw=True, values are mime bundles."""
        for value in values:
            self.publish(value if raw else self.bundle(value))
            forget_figure(value)

    def publish(self, bundle):
        made = sendable(bundle)
        if getpid() != self.kernel.pid or not self.kernel.busy:  # in a child, or in a thread that outlived its exec
            print(made["text/plain"])
        else:
            self.kernel.channel.send("display", made)

    def show_figures(self):
        """Shows and closes every figure that pyplot holds."""
        pylab = sys.modules.get("matplotlib._pylab_helpers")
        if pylab is None:
            return
        managers = list(pylab.Gcf.get_all_fig_managers())
        try:
            for manager in managers:
                self.publish(figure_bundle(manager.canvas.figure))
        finally:
            pylab.Gcf.figs.clear()


class Rich(Plain):
    """With IPython's shell: its magics, its formatters, its names in the user's namespace. kernel.py
    runs the code, so that interrupts, tracebacks and a broken IPython are handled in one place."""
    def __init__(self, kernel):
        super().__init__(kernel)
        import IPython
        import kernel_ipython
        self.name = "ipython %s" % IPython.__version__
        self.shell = kernel_ipython.make_shell(kernel.main, self)
        self.usage_error = kernel_ipython.UsageError

    def begin(self):
        super().begin()
        self.shell.begin()
        sys.modules.pop("kernel_ipython", None)

    def transform(self, text, count):
        try:
            self.shell.execution_count = count
            source = self.shell.transform_cell(text)
            self.shell.remember_input(source, text)
            return source
        except SyntaxError:
            raise
        except Exception:
            return super().transform(text, count)

    def system(self, command):
        self.shell.system_raw(command)

    def transform_tree(self, body):
        try:
            return self.shell.transform_body(body)
        except Exception:
            return body

    def is_usage_error(self, problem):
        return isinstance(problem, (self.usage_error, PackageError))

    def bundle(self, value):
        try:
            if type(value) in (int, str, bool) and self.shell.shows_as_repr(type(value)):
                return {"text/plain": repr(value)}
            bundle = dict(self.shell.display_formatter.format(value)[0])
        except Exception:
            return super().bundle(value)
        if "text/plain" not in bundle:
            bundle["text/plain"] = repr(value)
        return bundle

    def forget_input(self):
        self.shell.forget_input()

    def remember(self, value):
        try:
            self.shell.displayhook.update_user_ns(value)
        except Exception:
            pass

    def show_figures(self):
        try:
            self.shell.after_cell()
        except Exception:
            pass
        super().show_figures()


def make(kernel):
    try:
        return Rich(kernel)
    except ImportError:
        return Plain(kernel)


# Figures.

def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def draw(figure):
    """PNG, or SVG when savefig.format says so."""
    import matplotlib
    kind = "svg" if matplotlib.rcParams["savefig.format"] == "svg" else "png"
    if figure.canvas is None or not hasattr(figure.canvas, "print_figure"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        FigureCanvasAgg(figure)
    out = io.BytesIO()
    figure.canvas.print_figure(out, format=kind, dpi=figure.dpi, facecolor=figure.get_facecolor(),
                               edgecolor=figure.get_edgecolor(), bbox_inches="tight")
    data = out.getvalue()
    return {"image/svg+xml": data.decode()} if kind == "svg" else {"image/png": data}


def figure_bundle(figure):
    bundle = draw(figure)
    bundle["text/plain"] = repr(figure)
    return bundle


def forget_figure(value):
    """A figure that was shown as a value is not shown again at the end of the code."""
    if is_figure(value):
        pylab = sys.modules.get("matplotlib._pylab_helpers")
        if pylab is not None:
            for number, manager in list(pylab.Gcf.figs.items()):
                if manager.canvas.figure is value:
                    del pylab.Gcf.figs[number]


def watch_matplotlib(rich):
    """Selects Agg, because there is no screen, and lets show() show the figure here. Set when pyplot is loaded. A
    backend of our own would not do: programs that the user starts would inherit its name and not find it."""
    os.environ.setdefault("MPLBACKEND", "agg")
    # Keeps matplotlib's caches out of the user's files.
    os.environ.setdefault("MPLCONFIGDIR", os.environ.get("TMPDIR", "/tmp") + "/.matplotlib")

    def adapt(pyplot):
        def show(*args, **kwargs):
            """Shows all open figures and closes them."""
            rich.show_figures()

        def show_one(self, *args, **kwargs):
            """Shows this figure."""
            rich.display(self)
        pyplot.show = show
        sys.modules["matplotlib.figure"].Figure.show = show_one

    if "matplotlib.pyplot" in sys.modules:
        adapt(sys.modules["matplotlib.pyplot"])
    else:
        sys.meta_path.insert(0, AfterImport("matplotlib.pyplot", adapt))


class AfterImport:
    """Calls a function with a module when it is loaded, and then removes itself."""
    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                self.then(module)
            spec.loader.exec_module = exec_module
        return spec


# Top-level await.

def make_loop():
    import asyncio
    import selectors

    class CellLoop(asyncio.SelectorEventLoop):
        """Runs while a cell awaits. In between it holds no descriptor (a session with one could not be copied),
        and unfinished tasks stand still."""
        def __init__(self):
            super().__init__(selectors.PollSelector())
            self.park()

        def park(self):
            if self._ssock is not None:
                self._close_self_pipe()

        def _close_self_pipe(self):
            if getattr(self, "_ssock", None) is not None:  # else a loop that is dropped complains at its end
                super()._close_self_pipe()

        def is_sound(self):
            """False after an interrupt that came while the loop began or ended to run."""
            return not self.is_running() and self._ssock is None and self._csock is None

        def run_cell(self, coroutine):
            if self._ssock is None:
                self._make_self_pipe()
            asyncio.set_event_loop(self)
            task = self.create_task(coroutine)
            try:
                return self.run_until_complete(task)
            except KeyboardInterrupt:
                task.cancel()
                try:
                    self.run_until_complete(asyncio.wait([task], timeout=0.5))
                except Exception:
                    pass  # the task was about to stop; the interrupt is raised in any case
                raise
            finally:
                self.park()

    asyncio._set_running_loop(None)  # the last loop may not have come to it
    return CellLoop()
