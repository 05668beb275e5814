# SPDX-License-Identifier: Apache-2.0
"""The list of a session's variables. It is made while no exec runs, so nothing may call user code: no repr(), no
property, no __len__ of a class that is not Python's or numpy's own. Such a value shows its class and nothing else."""
import builtins

__builtins__ = dict(vars(builtins))  # user code can patch the real ones

import sys  # noqa: E402
import types  # noqa: E402
from itertools import islice  # noqa: E402

VARIABLES_MAX = 1000
TEXT_MAX = 200  # characters of a name, a type or a preview
ITEMS_MAX = 10  # of a container
DEPTH_MAX = 2
INT_BITS_MAX = 512  # int to text takes quadratic time

NAME_OF_CLASS = type.__dict__["__name__"].__get__  # a metaclass may have a __name__ of its own
BRACKETS = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}
PLAIN = (type(None), bool, float, complex)
NAMED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


def cut(text):
    text = text if len(text) <= TEXT_MAX else text[:TEXT_MAX - 1] + "\u2026"
    return text.encode("utf-8", "replace").decode()  # a lone surrogate is not UTF-8


def describe(names, given):
    """`given` are the names that the session began with."""
    mine = [(name, value) for name, value in list(names.items())
            if type(name) is str and not name.startswith("_") and not (name in given and given[name] is value)]
    mine.sort(key=lambda pair: pair[0])
    rows = [{"name": cut(name), "type": cut(NAME_OF_CLASS(type(value))), "size": size(value), "preview": cut(preview(value, 0))}
            for name, value in mine[:VARIABLES_MAX]]
    return {"variables": rows, "more": len(mine) - len(rows)}


def shape(value):
    """The shape of an array or a table of numpy and pandas; None for other values."""
    for module, name in (("numpy", "ndarray"), ("pandas", "DataFrame"), ("pandas", "Series")):
        module = sys.modules.get(module)
        if type(module) is types.ModuleType and type(value) is module.__dict__.get(name):
            return tuple(value.shape)
    return None


def size(value):
    """The number of elements; None for a value without elements."""
    if type(value) in BRACKETS or type(value) in (str, bytes, bytearray, range):
        return len(value)
    try:
        form = shape(value)
        return int(form[0]) if form else None
    except Exception:
        return None


def preview(value, depth):
    kind = type(value)
    if kind in PLAIN:
        return repr(value)
    if kind is int:
        bits = value.bit_length()
        return repr(value) if bits <= INT_BITS_MAX else "<int of %d bits>" % bits
    if kind in (str, bytes, bytearray):
        return repr(value[:TEXT_MAX])
    if kind in BRACKETS:
        return preview_items(value, kind, depth)
    if kind in NAMED:
        name = NAME_OF_CLASS(value) if kind is type else getattr(value, "__name__", None)
        return "<%s %s>" % (NAME_OF_CLASS(kind), name if type(name) is str else "?")
    try:
        form = shape(value)
    except Exception:
        form = None
    return "<%s%s>" % (NAME_OF_CLASS(kind), " " + " x ".join(map(str, form)) if form is not None else "")


def preview_items(value, kind, depth):
    first, last = BRACKETS[kind]
    if depth == DEPTH_MAX:
        return first + ("\u2026" if value else "") + last
    try:
        if kind is dict:
            parts = [preview(k, depth + 1) + ": " + preview(v, depth + 1) for k, v in islice(value.items(), ITEMS_MAX)]
        else:
            parts = [preview(item, depth + 1) for item in islice(value, ITEMS_MAX)]
    except RuntimeError:  # a thread changed it meanwhile
        parts = ["\u2026"]
    if len(value) > ITEMS_MAX:
        parts.append("\u2026")
    return first + ", ".join(parts) + last
