# SPDX-License-Identifier: Apache-2.0
"""docs/judging.md: its examples are run, in order, in one folder; a comment says what they print."""
import re
import subprocess

from apilib import BUILD, ROOT, SLOW

TEXT = (ROOT / "docs/judging.md").read_text()


def test_every_example_works(server, work, state_dir):
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.S)
    assert len(blocks) == 5
    for block in blocks:
        script = block.replace("http://127.0.0.1:8000", "http://127.0.0.1:%d" % server.port)
        done = subprocess.run(["bash", "-euc", script], cwd=work, capture_output=True, text=True, timeout=60 * SLOW,
                              env={"PATH": "%s:/usr/bin:/bin" % BUILD, "HERMES_STATE_DIR": str(state_dir),
                                   "HERMES_RUNTIMES": str(ROOT / "runtimes"), "HOME": "/root"})
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        said = [line[2:] for line in block.splitlines() if line.startswith("# ")]
        assert said and all(line in done.stdout for line in said), (said, done.stdout)


def test_words_are_documented(server):
    source = (ROOT / "src/judge/judge.c").read_text()
    verdicts = re.findall(r'\[JUDGE_\w+\] = "(\w+)"', source)
    assert len(verdicts) == 11
    fields = re.findall(r'^    \{"(\w+)", take_\w+\}', (ROOT / "src/judge/decode.c").read_text(), re.M)
    assert len(fields) == 9
    for word in verdicts + fields:
        assert "`%s`" % word in TEXT, word
