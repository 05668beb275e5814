# SPDX-License-Identifier: Apache-2.0
"""Places where bash evaluates a value, put together by a grammar: in real bash a payload makes a file. No text that makes it
is unasked. HERMES_FUZZ_TEXTS sets how many texts."""
import os
import random
import shutil

import pytest

from test_spellings import forms, runs_mark, world  # noqa: F401 (a fixture)

TEXTS = int(os.environ.get("HERMES_FUZZ_TEXTS", "600"))
SEED = int(os.environ.get("HERMES_FUZZ_SEED", "1"))
pytestmark = pytest.mark.skipif(not shutil.which("shfmt"), reason="shfmt is missing")

CODE = ["$(mark)", "`mark`", "$(mark)0", "${y:-$(mark)}"]
NAMES = ["n", "x", "NAME", "RANDOM", "SECONDS", "SRANDOM", "OPTIND", "HISTCMD", "LINENO", "BASHPID", "EPOCHSECONDS", "COMP_CWORD", "TMOUT", "HISTSIZE", "FUNCNEST", "PS4", "_"]
VALUES = ["a[{c}]", "({c})", "([0]={c})", "([{c}]=1)", "{c}", "1+a[{c}]", "x", "b", " a[{c}]", "(a[{c}])"]
BEFORE = ["", "", "", "x=(1); ", "declare -i n; ", "declare -n n; ", "declare -ia n; ", "declare -A x; ", "typeset -i x; ", "x='a[{c}]'; ", "b=$(echo 'a[{c}]'); ", "b='({c})'; ",
          "set -x; ", "builtin declare -i n; ", "f() {{ declare -gi n; }}; f; "]
PLACES = ["{n}={v}", "{n}+={v}", "{n}=({v})", "{n}[0]={v}", "for {n} in {v}; do :; done", "select {n} in {v}; do break; done <<<1", ": ${{{n}:={r}}}", ": ${{{n}={r}}}",
          "declare {n}={v}", "declare {o} {n}={v}", "typeset {o} {n}={v}", "readonly {n}={v}", "readonly {o} {n}={v}", "export {n}={v}", "export {o} {n}={v}", "local {n}={v}",
          "f() {{ local {o} {n}={v}; }}; f", "builtin declare {n}={v}", "command declare {o} {n}={v}", "\\declare {n}={v}", "read {n} <<<{v}", "printf -v {n} %s {v}", "printf -v {v} x",
          "mapfile {n} <<<{v}", "mapfile -t {n} <<<{v}", "read -a {n} <<<{v}", "let {n}={v}", "\\let {v}", "(( {n}=1 ))", "echo ${{{n}[{r}]}}", "echo $(( {n} ))", "[[ {v} -eq 1 ]]",
          "[[ -v {v} ]]", "test -v {v}", "[ -v {v} ]", "unset {v}", "read {v} <<<x", "getopts a {v} -a", "sleep 0 & wait -n -p {v}", "echo ${{{n}@P}}", "echo ${{!{n}}}",
          "echo ${{{n}:{r}}}", "{n}={v}; echo ${n}", "{n}={v}; {n}=x", "{n}={v} :", "{n}={v} true", "mapfile -C {v} -c 1 z <<<y", "trap {v} EXIT", "command eval {v} -v",
          "command -p {v} -v", "bash -vc {v}", "command bash -c {v} --version", "env -S {v}", "exec {{{n}}}>/dev/null", "cd {v}", "shift {v}", "exit {v}", "test {v} -eq 1", "printf %d {v}"]
OPTIONS = ["-a", "-A", "-ar", "-al", "-at", "-i", "-n", "-r", "-x", "-g", "-u", "-ia"]


def make_text(rnd):
    code = rnd.choice(CODE)
    value = rnd.choice(VALUES).format(c=code)
    spelled = rnd.choice(["'%s'" % value, "'%s'" % value, "\"%s\"" % value.replace("$", "\\$").replace("`", "\\`"), "\"$b\"", "$b", "\"a[$b]\""])
    raw = value.replace("$", "\\$").replace("`", "\\`")
    place = rnd.choice(PLACES).format(n=rnd.choice(NAMES), v=spelled, r=raw, o=rnd.choice(OPTIONS))
    return rnd.choice(BEFORE).format(c=code) + place + rnd.choice(["", "; :", "; echo \"${x[@]}\" $n"])


def test_no_text_that_evaluates_a_payload_is_unasked(world):  # noqa: F811
    rnd = random.Random(SEED)
    texts = [make_text(rnd) for _ in range(TEXTS)]
    unasked, ran = [], 0
    for number, (text, one) in enumerate(zip(texts, forms(texts))):
        found = runs_mark(world, text, 50000 + number)
        ran += found
        seen = not one["parsed"] or any(c["once"] or any("mark" in str(word) for word in c["argv"]) for c in one["commands"])
        if found and not seen:
            unasked.append(text)
    assert unasked == []
    assert ran >= TEXTS // 20  # the control: many of the texts run the payload
