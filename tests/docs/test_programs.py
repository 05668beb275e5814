# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md says in which programs a folder of src/ is. The programs themselves say it, too: their debug
information names the sources that are linked."""
import pathlib
import re
import subprocess

import pytest

from apilib import BUILD, ROOT

PAGE = ROOT / "docs/architecture.md"
AS_ROOT = {"prepare", "monitor", "spawn", "network", "fork", "setup"}  # with \* or root in picture 1
STRIPPED = {"init"}  # hermes-init has no debug information


def rows(text):
    """Folder -> programs, of the table in "Layers"; a program is bold as `**NAME**`."""
    table = text.split("| folder | program |")[1].split("\n\n")[0]
    found = re.findall(r"^\| `([a-z_/]+)/` \| ([^|]*) \|", table, re.M)
    return {folder: {name.strip(" `") for name in names.split(",")} for folder, names in found}


def plain(names):
    return {name.strip("*") for name in names}


def program(name):
    return {"hermes": "hermes", "warm": "libhermes-warm.so"}.get(name, "hermes-" + name)


def linked(name):
    """The sources of a program, below src/."""
    out = subprocess.run([ROOT / "tools/linked-sources.sh", BUILD, program(name)], capture_output=True, text=True, check=True)
    return {line.removeprefix("src/") for line in out.stdout.splitlines()}


def row_of(source, folders):
    """The longest folder of the table that the source is in."""
    return max((f for f in folders if source.startswith(f + "/")), key=len, default=None)


def differences(table, sources):
    """What the table says in vain, and what it does not say."""
    is_in = {folder: set() for folder in table}
    for name, files in sources.items():
        for folder in {row_of(file, table) for file in files}:
            assert folder, "%s has sources in a folder without a row: %s" % (name, sorted(files))
            is_in[folder].add(name)
    return {folder: sorted((plain(names) - STRIPPED) ^ is_in[folder]) for folder, names in table.items()
            if names != {"all"} and (plain(names) - STRIPPED) != is_in[folder]}


@pytest.fixture(scope="module")
def sources():
    names = sorted(set().union(*map(plain, rows(PAGE.read_text()).values())) - {"all"} - STRIPPED)
    found = {name: linked(name) for name in names}
    assert all(found.values()), "without debug information: %s" % [name for name in names if not found[name]]
    return found


def test_every_program_is_in_the_table(sources):
    built = {path.name for path in BUILD.glob("hermes-*") if path.is_file() and path.stat().st_mode & 0o100}
    assert {program(name) for name in sources} - {"hermes", "libhermes-warm.so"} == built - {"hermes-init"}


def test_programs_have_the_folders_that_the_table_says(sources):
    table = rows(PAGE.read_text())
    assert differences(table, sources) == {}
    # control: a program that is missing, and one too many
    wrong = dict(table, judge=table["judge"] - {"mcp"} | {"egress"})
    assert differences(wrong, sources) == {"judge": ["egress", "mcp"]}


def test_bold_programs_run_as_root(sources):
    names = set().union(*rows(PAGE.read_text()).values())
    assert {name.strip("*") for name in names if name.startswith("**")} == AS_ROOT
    assert not {name for name in names if name in AS_ROOT}, "not bold"
    picture = PAGE.read_text().split("```")[1]
    marked = set(re.findall(r"hermes-(\w+)(?: table)? +root\b", picture))
    assert marked == AS_ROOT


def test_folders_of_the_table_exist():
    assert [folder for folder in rows(PAGE.read_text()) if not (pathlib.Path(ROOT) / "src" / folder).is_dir()] == []
