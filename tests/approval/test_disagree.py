# SPDX-License-Identifier: Apache-2.0
"""bash and the reader of shell texts, compared: random texts in which harmless programs m1 to m5 may run. A program that
bash runs must be seen by its name, or the text must be asked as a whole or each time. HERMES_FUZZ_TEXTS sets how many."""
import os
import random
import shutil
import subprocess

import pytest

from test_spellings import forms

TEXTS = int(os.environ.get("HERMES_FUZZ_TEXTS", "2000"))
SEED = int(os.environ.get("HERMES_FUZZ_SEED", "1"))
pytestmark = pytest.mark.skipif(not shutil.which("shfmt"), reason="shfmt is missing")

PIECES = [
    "m1", "m2", "m3", "m4", "m5", "echo", "echo a", "true", ":", "\n", "\n", ";", "; ", "&&", "||", "|", "(", ")", "{ ", "; }", "$(", "`", "`", "\"", "'", "$'", "\\", "\\\n",
    "\\\\", "#", " #", " ", " ", "\t", "<<E\n", "<<'E'\n", "<<-E\n", "<<\"E\"\n", "<<\\E\n", "<<$'E'\n", "E\n", "\nE\n", "E\\\n", "E", "\tE\n", "<<<", "<<F <<E\n", "F\n",
    "$((", "))", "((", "${x:-", "}", "${x#", "${#x}", "${x/", "${x//", "/", "[[ ", " ]]", "case x in ", "x) ", ";; ", "esac", "if true; then ", "fi", "for i in 1; do ", "done",
    "while false; do ", "else ", "! ", "time ", "{", "x=", "x+=(", "[", "]", "$[", "a[", "@(", "!(", "?(", "*(", "$", "<(", ">(", "|&", "f() ", "function f ", "coproc ",
    "=", "~", "-", "%", ",", "{a,b}", "$x", "$@", "${!x}", "${x@Q}", "\\'", "\\\"", "\\`", "\\$", "\\#", "a", "1", "$\"", "let ", "declare ", "export ", "[ ", "test ", "$(<",
    " </dev/null ", "trap ", "eval ", "exec ", " # \\\n", "# a\n", "\"${x:-", "${x:+", "${x:=", "${x%%", "${x:1:", "\"}\"", "<<E)\n", "E)", "E`", "<<E|m1\n", "$(cat <<E\n",
    "\nE\n)", "EF\n", "$(#", "$((m1) )", "((m1) )", "@($(m1))", "[[ a == ", "$(m1)", "`m1`", "<(m1)", "${x:-$(m1)}", "\"$(m1)\""]
SEEDS = [
    "cat <<E\nx\nE\nm1\n", "echo $(m1 <<E\nE\n)", "echo \"`m1 a`\"", "case x in x) m1;; esac", "$( case x in x) m1;; esac )", "echo a # m1\nm2", "[[ a ]] && m1",
    "echo ${x:-$(m1)}", "echo \"${x:-'$(m1)'}\"", "m1 <<E <<F\na\nE\nb\nF\nm2\n", "cat <<E | m1\nE\n", "m1 |& m2", "echo 'a' \\\n m1", "f() { m1; }; f",
    "<<-E cat\n\ta\n\tE\nm1", "if m1; then m2; fi", "for i in $(m1); do m2; done", "x=(m1 $(m2))", "echo $'a\\'b' ; m1", "echo a\\ ; m1", "echo ${x#'}'} ; m1",
    "echo \"${x%\"}\"}\" ; m1", "[[ x =~ (a|b) ]] ; m1", "cat <<E\n$(m1)\nE\n", "cat <<E\n${x:-$(m1)}\nE\n", "cat <<E\n\\$(m1)\nE\nm2"]


def make_text(rnd):
    if rnd.random() < 0.25:
        return "".join(rnd.choice(PIECES) for _ in range(rnd.randint(3, 14)))
    text = rnd.choice(SEEDS)
    if rnd.random() < 0.4:
        text += rnd.choice(["\n", ";", " "]) + rnd.choice(SEEDS)
    for _ in range(rnd.randint(1, 4)):
        at = rnd.randint(0, len(text))
        what = rnd.random()
        if what < 0.6:
            text = text[:at] + rnd.choice(PIECES) + text[at:]
        elif what < 0.8:
            text = text[:at] + text[at + 1:]
        else:
            end = rnd.randint(at, min(len(text), at + 5))
            text = text[:end] + text[at:end] + text[end:]
    return text or ":"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    base = tmp_path_factory.mktemp("disagree")
    (base / "bin").mkdir()
    for number in range(1, 6):
        program = base / "bin" / ("m%d" % number)
        program.write_text("#!/bin/sh\n: >\"$MARK/${0##*/}\"\n")
        program.chmod(0o755)

    def programs(text, number):
        mark = base / ("mark%d" % number)
        mark.mkdir()
        try:
            subprocess.run(["bash", "-c", text], cwd=base, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
                           env={"PATH": "%s:/usr/bin:/bin" % (base / "bin"), "MARK": str(mark), "HOME": str(base)})
        except subprocess.TimeoutExpired:
            return set()
        return set(os.listdir(mark))
    return programs


def test_what_bash_runs_is_seen(run):
    rnd = random.Random(SEED)
    texts = [make_text(rnd) for _ in range(TEXTS)]
    unseen, ran = [], 0
    for number, (text, one) in enumerate(zip(texts, forms(texts))):
        if not one["parsed"] or any(c["once"] for c in one["commands"]):
            continue
        names = {word for c in one["commands"] for word in c["argv"] if isinstance(word, str)}
        found = run(text, number)
        ran += bool(found)
        if found - names:
            unseen.append((text, found - names))
    assert unseen == []
    assert ran >= TEXTS // 25  # the control: many of the texts run something
