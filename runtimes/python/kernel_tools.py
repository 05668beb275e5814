# SPDX-License-Identifier: Apache-2.0
"""The module hermes_tools: tools of the caller as functions. An exec names its tools; they end with it."""
import builtins

__builtins__ = dict(vars(builtins))

import keyword  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import types  # noqa: E402
from _thread import allocate_lock, get_ident  # noqa: E402

from kernel_channel import Whole, encode  # noqa: E402

INPUT_MAX = 1 << 20
DOC = "Tools that the caller of this session offers, as functions. dir(hermes_tools) lists them."


class ToolError(Exception):
    """A tool call failed; the text is the tool's."""


ToolError.__module__ = "hermes_tools"


class Tools:
    def __init__(self, kernel):
        self.kernel = kernel
        self.lock = allocate_lock()
        self.module = types.ModuleType("hermes_tools", DOC)
        self.generation = 0
        self.calls = 0
        self.offered = {}

    def offer(self, specs):
        """One function per tool. The server checks names again: the checks here are only for good error texts."""
        names = self.module.__dict__
        for name in [n for n in names if not n.startswith("__")]:
            del names[name]
        names["ToolError"] = ToolError
        self.offered = {}
        if type(specs) is list:
            for spec in specs:
                if type(spec) is dict and type(spec.get("name")) is str:
                    self.add(spec, names)
        sys.modules["hermes_tools"] = self.module

    def add(self, spec, names):
        name = spec["name"]
        schema = spec.get("input_schema")
        properties = schema.get("properties") if type(schema) is dict else None
        order = list(properties) if type(properties) is dict else []
        self.offered[name] = self.generation
        function = self.make(name, order)
        function.__name__ = function.__qualname__ = name
        function.__module__ = "hermes_tools"
        function.__doc__ = "%s\n\nArguments: %s" % (spec.get("description") or name, ", ".join(order) or "none")
        identifier = re.sub(r"\W", "_", name)
        if keyword.iskeyword(identifier) or identifier[:1].isdigit() or identifier == "ToolError":
            identifier = "_" + identifier
        names[identifier] = function

    def make(self, name, order):
        generation = self.generation

        def tool(*args, **arguments):
            if len(args) == 1 and not arguments and isinstance(args[0], dict) and len(order) != 1:
                arguments = dict(args[0])  # one dict is the whole input
            else:
                if len(args) > len(order):
                    raise TypeError("%s() takes at most %d arguments: %s" % (name, len(order), ", ".join(order)))
                for key, value in zip(order, args):
                    if key in arguments:
                        raise TypeError("%s() got two values for %r" % (name, key))
                    arguments[key] = value
            return self.call(name, generation, arguments)
        return tool

    def call(self, name, generation, arguments):
        kernel = self.kernel
        try:
            size = len(encode(arguments))
        except (TypeError, ValueError, RecursionError) as problem:
            raise TypeError("%s(): the arguments cannot be sent as JSON: %s" % (name, problem)) from None
        if size > INPUT_MAX:
            raise ValueError("%s(): arguments of %d bytes; %d is the most" % (name, size, INPUT_MAX))
        with self.lock:
            self.check(name, generation)
            self.calls += 1
            number = str(self.calls)
            kernel.channel.send("tool_call", {"id": number, "name": name, "input": arguments})
            answer = self.wait(name, generation, number)
        if "error" in answer:
            raise ToolError(str(answer["error"]))
        return answer.get("output")

    def check(self, name, generation):
        if generation != self.generation or self.kernel.pid != self.kernel.getpid():
            raise ToolError("%s: the exec that offered this tool is over; offer it again" % name)

    def wait(self, name, generation, number):
        """A thread other than the main one must release the channel when the exec ends without it."""
        channel = self.kernel.channel
        timeout_ms = None if get_ident() == self.kernel.thread else 50
        while True:
            self.check(name, generation)
            frame = channel.take()
            if frame is None:
                channel.fill(timeout_ms)
                continue
            if frame[0] == "fork":
                self.fork()
            answer = channel.decode(frame[1]) if frame[0] == "tool_result" else None
            if type(answer) is dict and str(answer.get("id")) == number:
                return answer

    def fork(self):
        """The server wants a copy of this session for a preview. In the copy, the call that waits here fails."""
        kernel = self.kernel
        if get_ident() != kernel.thread:
            kernel.channel.send("fork", {"refused": "the call was made by a thread"})
            return
        with Whole():  # an interrupt in between would leave the server's next byte in the channel
            kernel.forker.fork(is_preview=True)

    def withdraw(self):
        """After this no call reads from the channel."""
        self.generation += 1
        with self.lock:
            pass
