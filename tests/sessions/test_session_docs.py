# SPDX-License-Identifier: Apache-2.0
"""docs/sessions.md states facts: its curl lines are run and its picture is made."""
import json
import re
import subprocess

import pytest

from apilib import ROOT, SLOW
from machine import lacks_for_copies

PAGE = ROOT / "docs/sessions.md"


def test_every_example_works(server, tmp_path):
    pytest.importorskip("matplotlib")
    session = ""
    shown = []
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S):
        if lacks_for_copies() and "/fork" in block:
            continue
        script = block.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % server.port)
        got = subprocess.run(["bash", "-euo", "pipefail", "-c",
                              "session=%s\n%s\necho; echo \"SESSION=$session\"" % (session, script)],
                             capture_output=True, text=True, timeout=60 * SLOW, cwd=tmp_path)
        assert got.returncode == 0, (block, got.stdout, got.stderr)
        assert '"error":{"code"' not in got.stdout, (block, got.stdout)
        session = got.stdout.rsplit("SESSION=", 1)[1].strip()
        shown.append(got.stdout)
    assert '"text/plain":"12.566370614359172"' in shown[0]
    assert any("event: end" in text for text in shown)
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert json.loads((tmp_path / "answer.json").read_text())["result"]["text/plain"] == "970"


def test_every_answer_has_the_documented_fields(session):
    documented = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.S)[1])
    assert list(session().exec("1")) == list(documented)


def test_states_and_reasons_are_documented():
    text = PAGE.read_text()
    for source in ("session.c", "exec/exec.c", "exec/stop.c", "exec/report.c", "start.c", "jobs.c", "evict.c"):
        code = (ROOT / "src/session" / source).read_text()
        words = re.findall(r's->reason = (?:is_late \? "(\w+)" : )?"(\w+)"', code)
        words += re.findall(r'session_lose\(s, "(\w+)"()', code)
        for word in {w for pair in words for w in pair if w}:
            assert "`%s`" % word in text, (source, word)
