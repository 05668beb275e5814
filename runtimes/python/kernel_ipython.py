# SPDX-License-Identifier: Apache-2.0
"""IPython's InteractiveShell for sessions: no history file, no profile directory, no thread, nothing
written below HOME. Making one changes neither __main__ nor builtins; begin() does, in the session's process."""
import builtins
import os
import sys
import traceback
from types import SimpleNamespace

import IPython.core.interactiveshell
import IPython.core.inputtransformer2 as transformer
from IPython.core.builtin_trap import BuiltinTrap
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.lib.pretty import _repr_pprint
from traitlets.config import Config

from kernel_display import draw
from kernel_packages import LINE_MAX, is_install

NOWHERE = "/nonexistent/ipython"


class Profile:
    """Replaces ProfileDir: magics ask for its place and find nothing."""
    location = security_dir = log_dir = startup_dir = pid_dir = static_dir = NOWHERE


class Publisher(DisplayPublisher):
    rich = None

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **ignored):
        self._validate_data(data, metadata)
        self.rich.publish(data)

    def clear_output(self, wait=False):
        pass


class Hook(DisplayHook):
    """For code that magics run: shows a value in the middle of it."""
    rich = None

    def __call__(self, result=None):
        if result is not None:
            self.rich.publish(self.rich.bundle(result))
            self.update_user_ns(result)
            self.fill_exec_result(result)


class Shell(InteractiveShell):
    rich = None

    ipython_dir = NOWHERE
    profile_dir = Profile

    def init_profile_dir(self, profile_dir):
        pass

    init_ipython_dir = init_profile_dir

    def init_sys_modules(self):
        pass

    def init_builtins(self):
        self.builtin_trap = BuiltinTrap(shell=self)

    def init_virtualenv(self):
        pass

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return "inline", "agg"

    def _showtraceback(self, kind, value, lines):
        print("\n".join(lines) if isinstance(lines, list) else lines, file=sys.stderr)

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        """Only for code that magics run by themselves; kernel.py reports the exception that ends a cell."""
        problem = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if problem is None:
            print("No traceback available to show.", file=sys.stderr)
        else:
            sys.stderr.write("".join(traceback.format_exception(
                type(problem), problem, first_cell(problem.__traceback__))))

    showsyntaxerror = showindentationerror = showtraceback

    # Commands write to the real stdout, without a terminal: a box has none.
    system = InteractiveShell.system_raw

    def begin(self):
        builtins.display = display
        builtins.get_ipython = self.get_ipython
        builtins.__IPYTHON__ = True
        self.history_manager.dir_hist[:] = [os.getcwd()]
        InteractiveShell._instance = Shell._instance = self

    def remember_input(self, source, text):
        self.history_manager.input_hist_parsed.append(source.rstrip("\n"))
        self.history_manager.input_hist_raw.append(text)
        self.info = SimpleNamespace(raw_cell=text, store_history=True, silent=False, shell_futures=True, cell_id=None)
        self.events.trigger("pre_execute")
        self.events.trigger("pre_run_cell", self.info)

    def shows_as_repr(self, kind):
        """Whether no formatter handles a type. A short cut: calling all of them takes as long as the rest of an exec."""
        for mime, formatter in self.display_formatter.formatters.items():
            if formatter.type_printers.get(kind) is not (_repr_pprint if mime == "text/plain" else None):
                return False
        return True

    def forget_input(self):
        self.execution_count = 1
        del self.history_manager.input_hist_parsed[1:], self.history_manager.input_hist_raw[1:]

    def after_cell(self):
        """Sends the event to extensions. It does not carry the result of the cell."""
        self.events.trigger("post_execute")
        self.events.trigger("post_run_cell", SimpleNamespace(
            info=self.info, execution_count=self.execution_count, result=None, error_before_exec=None,
            error_in_exec=None, success=True))

    def transform_body(self, body):
        if not self.ast_transformers:
            return body
        import ast
        return self.transform_ast(ast.Module(body, [])).body


def first_cell(trace):
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(("<cell ", "<ipython")):
        trace = trace.tb_next
    return trace


def refuse_conda(line="", cell=None):
    raise UsageError("%conda: there is no conda here; %pip install NAME installs packages")


def take_pip_lines():
    """`!pip install` means `%pip install`: a program in this box has no place to install to."""
    command = transformer.tr[transformer.ESC_SHELL]
    if command.__name__ != "translate":
        def translate(line):
            return transformer.tr[transformer.ESC_MAGIC](line.lstrip()) if is_install(line) else command(line)
        transformer.tr[transformer.ESC_SHELL] = translate


def make_shell(main, rich):
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.banner1 = ""
    config.InteractiveShell.xmode = "Plain"
    Shell.rich = Publisher.rich = Hook.rich = rich
    Shell.display_pub_class = Publisher
    Shell.displayhook_class = Hook
    if hasattr(IPython.core.interactiveshell, "PickleShareDB"):
        IPython.core.interactiveshell.PickleShareDB = lambda path: {}
    shell = Shell(config=config, user_module=main)
    shell.register_magic_function(refuse_conda, "line_cell", "conda")

    @no_var_expand
    def pip(line=""):
        if len(line) <= LINE_MAX and ("$" in line or "{" in line):  # slow for a long line
            line = shell.var_expand(line, 2)
        rich.pip("pip " + line)
    shell.register_magic_function(pip, "line", "pip")
    take_pip_lines()
    shell.register_magic_function(lambda line="": None, "line", "matplotlib")  # figures are always shown
    formatters = shell.display_formatter.formatters
    for mime in ("image/png", "image/svg+xml"):
        formatters[mime].for_type_by_name("matplotlib.figure", "Figure", lambda f, m=mime: draw(f).get(m))
    for name in ("exit", "quit", "open"):  # kernel.py has put its own into builtins
        shell.user_ns.pop(name, None)
    return shell
