# SPDX-License-Identifier: Apache-2.0
"""Warm boxes run this before they get a job (zygote.py): a few steps that most programs take."""
import json, os, sys  # noqa: E401,F401


class A:
    def f(self, x=1, *args, **kw):
        return [str(i) for i in range(x)]


def g(n):
    yield from A().f(n)


print("hello", len(list(g(20))), {"a": 1.5})
try:
    int("x")
except ValueError as e:
    str(e)
