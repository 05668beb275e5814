# SPDX-License-Identifier: Apache-2.0
"""Runs the code of the MCP tool `execute` in a session: as the body of an async function, with `tools`, whose members
are the tools of the catalog, and with `emit`. `return` gives the value, which goes back as a display of a type of its
own."""
import ast
import asyncio
import builtins
import json
import selectors

VALUE = "application/vnd.hermes.value+json"


class Tools:
    """tools.a.b(x=1) or tools.a.b({"x": 1}) calls the tool with the address "a.b"."""

    def __init__(self, path=""):
        self._path = path

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Tools(self._path + "." + name if self._path else name)

    def __call__(self, *args, **arguments):
        import hermes_tools
        given = dict(args[0]) if args else {}
        given.update(arguments)
        return Answer(hermes_tools.call({"path": self._path, "input": given}))

    def __repr__(self):
        return "tools.%s" % self._path if self._path else "tools"


def Answer(value):
    """The value of a call. It can be awaited too: code written for JavaScript's tools works with `await`."""
    if isinstance(value, dict):
        return AnswerDict(value)
    if isinstance(value, list):
        return AnswerList(value)
    return value


class AnswerDict(dict):
    def __await__(self):
        return self
        yield


class AnswerList(list):
    def __await__(self):
        return self
        yield


def compile_body(code):
    """The statements become the body of an async function."""
    body = ast.parse("async def hermes_body():\n  pass\n")
    statements = ast.parse(code, "<execute>").body
    if statements:
        body.body[0].body = statements
    ast.fix_missing_locations(body)
    return compile(body, "<execute>", "exec")


class Selector(selectors.PollSelector):
    def select(self, timeout=None):
        loop = self.loop
        if loop._ssock is None and (timeout is None or timeout > 0):
            loop._make_self_pipe()
            if loop._ready:  # a thread came before there was something to wake us with
                timeout = 0
        return super().select(timeout)


class Loop(asyncio.SelectorEventLoop):
    """Has no descriptor until it waits for something: a session that has one cannot be copied for a preview."""

    def __init__(self):
        super().__init__(Selector())
        self._selector.loop = self
        self._close_self_pipe()

    def _close_self_pipe(self):
        if self._ssock is not None:
            super()._close_self_pipe()


def run(code):
    names = {"__name__": "__main__", "tools": Tools(), "emit": builtins.display}
    exec(compile_body(code), names)
    with asyncio.Runner(loop_factory=Loop) as runner:
        value = runner.run(names["hermes_body"]())
    builtins.display({VALUE: {"value": json.loads(json.dumps(value, default=str))}, "text/plain": ""}, raw=True)
