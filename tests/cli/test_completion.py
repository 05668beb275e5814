# SPDX-License-Identifier: Apache-2.0
"""Completions in real shells, and the man pages that were built."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from apilib import HERMES

BUILD = pathlib.Path(HERMES).parent


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason="%s is not installed" % program)


def candidates(hermes, *words, **env):
    done = hermes("__complete", *words, **env)
    assert done.returncode == 0, done
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("words, found", [
    (["ru"], ["run", "runtimes"]),
    (["run", "--col"], ["--collect", "--color"]),
    (["run", "--color", "a"], ["auto", "always"]),
    (["run", "--color=n"], ["--color=never"]),
    (["run", "--color", "=", "n"], ["never"]),
    (["run", "--min-level", ""], ["full", "strong", "process"]),
    (["run", "-l", "pyt"], ["python"]),
    (["run", "some"], []),  # the shell offers files
    (["serve", "--log"], ["--log-level"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
    (["help", "doc"], ["doctor"]),
    (["session", "fi"], ["files"]),
    (["session", "files", ""], ["ls", "get", "put", "rm"]),
    (["session", "new", "--li"], ["--lifetime", "--limits-mode"]),
    (["session", "new", "--limits-mode", ""], ["strict", "best_effort"]),
    (["session", "new", "-l", "b"], ["bash"]),
    (["nothing", ""], []),
])
def test_candidates(hermes, words, found):
    assert candidates(hermes, *words, HERMES_UNIX="/nonexistent") == found


def test_every_option_and_command(hermes):
    """What --help lists is what completion offers."""
    for command in candidates(hermes, ""):
        if command in ("version", "help"):
            continue
        text = hermes(command, "--help").stdout
        offered = [option for option in candidates(hermes, command, "--") if option != "--help"]
        assert offered and all(option in text for option in offered), command


def test_session_ids(hermes, server):
    env = {"HERMES_UNIX": str(server.unix)}
    one = hermes("session", "new", **env).stdout.strip()
    assert candidates(hermes, "session", "exec", "ses", **env) == [one]
    assert candidates(hermes, "session", "files", "ls", "", **env) == [one]


@pytest.mark.parametrize("shell", [
    pytest.param(["bash", "--norc", "-i"], marks=needs("bash")), pytest.param(["zsh", "-f", "-i"], marks=needs("zsh"))], ids=lambda a: a[0])
def test_in_a_shell(hermes, work, shell):
    """Typed on a terminal: two words are completed, and the command then runs."""
    start = {"bash": "source <(hermes completion bash)",
             "zsh": "autoload -Uz compinit; compinit -u -D; source <(hermes completion zsh)"}[shell[0]]
    t = hermes.terminal(*shell[1:], program=shutil.which(shell[0]), PATH="%s:/usr/bin:/bin" % BUILD, PS1="ready> ")
    t.until("ready> ")
    t.type(start + "; echo lo''aded\r")
    t.until("loaded\r\n")
    t.until("ready> ")
    t.seen = ""
    t.type("hermes comple\t")
    t.until("completion")
    t.type("fi\t\r")
    t.until("# fish completion for hermes")
    t.type("exit\r")
    t.end()


@needs("fish")
def test_in_fish(hermes, work):
    done = subprocess.run(["fish", "--no-config", "-c", "hermes completion fish | source; complete -C 'hermes run --colo'; complete -C 'hermes session files '"],
                          env=dict(hermes.env, PATH="%s:/usr/bin:/bin" % BUILD), cwd=work, capture_output=True, text=True, timeout=60)
    words = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert "--color" in words and {"ls", "get", "put", "rm"} <= set(words), done


def test_scripts_were_built():
    for shell in ("bash", "zsh", "fish"):
        printed = subprocess.run([str(HERMES), "completion", shell], capture_output=True, timeout=60).stdout
        assert (BUILD / ("completion." + shell)).read_bytes() == printed and len(printed) > 100


# Every command that `hermes help` lists has a page.
PAGES = ["hermes"] + ["hermes-" + command for command in re.findall(
    r"^  ([a-z]+) ", subprocess.run([str(HERMES), "help"], capture_output=True, text=True, timeout=60).stdout, re.M)
    if command not in ("version", "help")]


@needs("mandoc")
@pytest.mark.parametrize("page", PAGES)
def test_man_page(hermes, page):
    path = BUILD / (page + ".1")
    lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(path)], capture_output=True, text=True, timeout=60)
    assert (lint.returncode, lint.stdout) == (0, "")
    text = subprocess.run(["mandoc", "-Tutf8", "-Owidth=200", str(path)], capture_output=True, text=True, timeout=60).stdout
    plain = subprocess.run(["col", "-b"], input=text, capture_output=True, text=True, timeout=60).stdout if shutil.which("col") else text
    assert "NAME" in plain and "SYNOPSIS" in plain
    if page not in ("hermes", "hermes-session"):
        for option in candidates(hermes, page[len("hermes-"):], "--"):
            assert option in plain, option
    if page == "hermes-session":
        assert "files ls" in plain and "--idle" in plain
