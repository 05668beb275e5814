# SPDX-License-Identifier: Apache-2.0
"""The pages for people: links lead somewhere, pictures are whole, the demo is a recording, the words are plain."""
import importlib.util
import json
import pathlib
import re
import xml.etree.ElementTree as tree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "selftest/README.md"])
# Words that readers stumbled over, and what to write instead.
UNCLEAR = {"whoever": "name the person or program", "somebody": "name the person or program",
           "thereof": "name the thing", "mend": "fix", "mends": "fixes", "anew": "again", "nonsense": "say what is wrong",
           "(?<!there )(is|are) no(?! longer)": "is not a, is invalid, is missing"}


def prose(text):
    """A page without its code: blocks and `code`."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))


def unclear(text):
    words = " ".join(prose(text).split())
    return [word for word in UNCLEAR if re.search(r"\b%s\b" % word, words, re.I)]


def anchors(page):
    """As GitHub makes them: small letters, no punctuation, dashes for spaces."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_words_are_plain(page):
    if page.name == "seccomp.md":  # made from src/seccomp/policy.h
        return
    assert not {word: UNCLEAR[word] for word in unclear(page.read_text())}


def test_the_words_are_found():
    assert unclear("The answer is no `HTTP`.\nMend it.") == ["mend", "(?<!there )(is|are) no(?! longer)"]
    assert unclear("```\nmend\n```\n`mend` recommend: there is no answer, it is no longer kept") == []


# A file of ours is named by its folder: from the top of the tree, or from src/. Words in capitals stand for a name.
OURS = r"(?<![\w/.{}~*-])((?:[a-z][\w-]*/)+[a-z0-9_-]+\.(?:c|h|py|sh))\b"
FOLDERS = r"(?<![\w/.-])((?:src|tests|tools|packaging|selftest|runtimes)/(?:[a-z][\w.-]*/)*)(?![\w*])"
FUNCTIONS = r"`(\w+)\(\)` (?:in|of) `((?:[\w-]+/)*[\w-]+\.[ch])`"
MAPS = [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", ROOT / "docs/glossary.md", *ROOT.glob("docs/internals/*.md")]


def find(path):
    return next((place / path for place in (ROOT, ROOT / "src") if (place / path).exists()), None)


@pytest.mark.parametrize("page", MAPS, ids=name)
def test_named_files_exist(page):
    text = page.read_text()
    missing = [path for path in re.findall(OURS, text) + re.findall(FOLDERS, text) if not find(path)]
    missing += ["%s() in %s" % (function, path) for function, path in re.findall(FUNCTIONS, text)
                if not find(path) or not re.search(r"\b%s\(" % function, find(path).read_text())]
    assert not missing


def test_missing_files_are_found():
    text = "`run/gone.c`, src/nowhere/, `tests/unit/test_X.c`, `main()` in `src/run/plan.c`"
    assert re.findall(OURS, text) == ["run/gone.c", "src/run/plan.c"]
    assert re.findall(FOLDERS, text) == ["src/nowhere/"]
    assert re.findall(FUNCTIONS, text) == [("main", "src/run/plan.c")] and not find("run/gone.c") and find("run/plan.c")


@pytest.mark.parametrize("picture", ["picture.svg", "demo.svg"])
def test_the_readme_shows_its_pictures(picture):
    assert "(docs/%s)" % picture in (ROOT / "README.md").read_text()
    tree.parse(ROOT / "docs" / picture)


def test_the_demo_is_drawn_from_its_recording():
    spec = importlib.util.spec_from_file_location("record_demo", ROOT / "tools/record-demo.py")
    record_demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record_demo)
    header, *lines = (ROOT / "docs/demo.cast").read_text().splitlines()
    assert json.loads(header)["version"] == 2
    events = [(second, text) for second, kind, text in map(json.loads, lines) if kind == "o"]
    assert record_demo.draw(events) == (ROOT / "docs/demo.svg").read_text()
    shown = "".join(text for _, text in events)
    assert all(command in shown for command in record_demo.COMMANDS)
