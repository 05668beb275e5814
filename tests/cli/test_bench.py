# SPDX-License-Identifier: Apache-2.0
"""hermes bench: the shape of what it says, not the figures."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERMES = ROOT / os.environ.get("HERMES_BUILD_DIR", "build") / "hermes"


@pytest.fixture
def env(tmp_path):
    return {"PATH": "/usr/bin:/bin", "HERMES_STATE_DIR": str(tmp_path / "state")}


def bench(env, *args):
    return subprocess.run([HERMES, "bench", *args], env=env, capture_output=True, text=True, timeout=300)


def test_sides_and_ratios(env):
    done = bench(env, "-l", "bash", "-l", "python", "-n", "2", "--no-load", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["load"] == []
    sides = {each["language"]: {row["side"]: row for row in each["sides"]} for each in answer["start"]}
    assert set(sides) == {"python", "bash"}
    for rows in sides.values():
        assert {"bare", "cold"} <= set(rows) and rows["bare"]["ratio"] == 1
        assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows.values())
        assert rows["cold"]["ratio"] == pytest.approx(rows["cold"]["p50_ms"] / rows["bare"]["p50_ms"], rel=1e-3)
    assert "warm" not in sides["bash"]
    assert ("warm" in sides["python"]) == (os.geteuid() == 0)


def test_a_table_for_people(env):
    done = bench(env, "--language", "bash", "--rounds", "1", "--no-load")
    assert done.returncode == 0, done.stderr
    assert "to bare" in done.stdout and "cold" in done.stdout


@pytest.mark.parametrize("args, said", [
    (["-l", "cobol"], "use python"),
    (["-n", "0"], "number from 1"),
    (["-n", "many"], "number from 1"),
    (["--no-such"], "unknown option --no-such"),
    (["more"], "too many arguments"),
])
def test_bad_arguments(env, args, said):
    done = bench(env, *args)
    assert done.returncode == 2 and said in done.stderr, done


def test_a_signal_ends_it_and_leaves_nothing(env):
    process = subprocess.Popen([HERMES, "bench", "-l", "bash", "-n", "10000"], env=env, stdout=subprocess.DEVNULL)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
