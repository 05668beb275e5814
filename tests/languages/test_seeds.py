# SPDX-License-Identifier: Apache-2.0
"""Seeds: what compilers would otherwise make again in each box. A language of the test's own has a cheap one: its compiler
is sh, and the program that it compiles is a script, so that a request can do in the compile box what it likes."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

from apilib import HERMES, ROOT, SLOW, descendants, is_box, wait_until
from serving import serve_many

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="looks at what belongs to the server's user")

NAME = "aseed"  # the first one that is made without a need
# Compiles to a program that prints what is in the file `said`.
MAIN = "printf '#!/bin/sh\\necho \"%s\"\\n' \"$(cat said)\" >main; chmod +x main\n"
LOOK = "cat /usr/lib/hermes/seed/ready/word >said 2>/dev/null || echo none >said\n" + MAIN
# A recipe that ends when the test says so.
HELD = ["echo begun >/mnt/seed/begun", "while [ ! -e /mnt/seed/go ]; do sleep 0.02; done", "echo made >word"]


@pytest.fixture
def make_server():
    yield from serve_many()


@pytest.fixture
def place():
    """A directory that the server's user can reach."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="hermes-seeds-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def describe(place, recipe, **seed):
    """Writes the language, and returns the settings of a server that has it."""
    (place / "languages" / NAME).mkdir(parents=True, exist_ok=True)
    (place / "languages" / NAME / "runtime.json").write_text(json.dumps({
        "name": NAME, "extensions": ["." + NAME], "main_file": "main." + NAME, "package": "none", "toolchain": [],
        "compile": {"argv": ["/usr/bin/sh", "{entry}"], "artefacts": ["main"],
                    "seed": dict({"recipe": recipe, "max_mb": 1, "limits": {"wall_ms": 60000, "cpu_ms": 60000}}, **seed)},
        "run": {"argv": ["/box/main"]}}))
    return {"RUNTIME_DIR": str(place / "languages"), "HERMES_SEED_DIR": str(place / "seeds"), "HERMES_SEEDS": "true",
            "HERMES_SEED_IDLE_S": "0"}


def run(server, code=LOOK, **fields):
    answer = server.run(NAME, code, **fields).json()
    assert answer["status"] == "ok", answer
    return answer


def state(server):
    return {s["language"]: s["state"] for s in server("GET", "/v1/status").json()["seeds"]}[NAME]


def becomes(server, word):
    assert wait_until(lambda: state(server) in (word, "failed"), 60)
    return state(server) == word or pytest.fail(server.logs())


def seeds(place):
    """What is in the directory of seeds: the places of the language, and what is being made."""
    found = sorted((place / "seeds").glob(NAME + "-*"))
    return [sorted(p.name for p in f.iterdir()) for f in found], sorted(p.name for p in (place / "seeds/incoming").iterdir())


def word(place):
    return next((place / "seeds").glob(NAME + "-*")) / "ready" / "word"


def test_the_first_run_does_not_wait_and_later_ones_have_it(make_server, place):
    server = make_server(env=describe(place, ["echo made >word"], env={"WORD": "/usr/lib/hermes/seed/ready/word"}))
    assert state(server) == "missing"
    first = run(server)
    assert first["compile"]["seed"] is False and first["stdout"] == "none\n"
    assert becomes(server, "ready")
    again = run(server)
    assert again["compile"]["cached"] is True and again["stdout"] == "none\n"  # the cache does not ask for seeds
    later = run(server, "cat $WORD >said\n" + MAIN)
    assert later["compile"]["seed"] is True and later["stdout"] == "made\n"
    assert [e["language"] for e in server.events("a seed is ready")] == [NAME]
    assert seeds(place) == ([["ready"]], [])
    server.stop()
    server.start()  # it is still there
    assert state(server) == "ready" and run(server, "# next\n" + LOOK)["stdout"] == "made\n"


def test_without_a_need_they_are_made_when_idle(make_server, place):
    server = make_server(env=dict(describe(place, ["echo made >word"]), HERMES_SEED_IDLE_S="1"))
    assert becomes(server, "ready")


def test_who_owns_them_and_who_reads_them(make_server, place):
    """The server owns the seed, but not the directory of its place: root binds it by its path."""
    server = make_server(env=describe(place, ["echo made >word; echo x >run; chmod 700 run; mkdir -m 700 sub; touch sub/f"]))
    run(server)
    assert becomes(server, "ready")
    top = place / "seeds"
    uid = (server.state / "server").stat().st_uid
    assert uid != 0 and top.stat().st_uid == 0 and top.stat().st_mode & 0o777 == 0o711
    ready = word(place).parent
    modes = {p.name: (p.stat().st_uid, p.stat().st_mode & 0o7777) for p in [ready.parent, *ready.rglob("*")]}
    assert modes == {ready.parent.name: (uid, 0o755), "word": (uid, 0o644), "run": (uid, 0o755), "sub": (uid, 0o755),
                     "f": (uid, 0o644)}


def test_the_box_that_makes_it_has_nothing_else(make_server, place):
    server = make_server(env=describe(place, ["ls -A /box /mnt >list; ls /sys/class/net >nets; cat /proc/net/route >routes 2>&1 || true",
                                             "env >variables; id -u >id; touch /usr/x 2>denied || echo denied >word"]))
    run(server, LOOK + "touch secret\n", files=[{"name": "secret.txt", "content": "x"}])
    assert becomes(server, "ready")
    ready = word(place).parent
    assert (ready / "list").read_text() == "/box:\n\n/mnt:\nseed\n"
    assert (ready / "nets").read_text() == "lo\n"
    assert (ready / "word").read_text() == "denied\n" and (ready / "id").read_text() != "0\n"


HOSTILE = """
try() { "$@" 2>/dev/null && echo "could: $*" >>said; true; }
: >said
try sh -c 'echo evil >/usr/lib/hermes/seed/ready/word'
try rm -rf /usr/lib/hermes/seed/ready
try mv /usr/lib/hermes/seed/ready /usr/lib/hermes/seed/old
try mkdir /usr/lib/hermes/seed/new
try ln -s /box /usr/lib/hermes/seed/link
try touch /usr/lib/hermes/seed/ready/more
try chmod 777 /usr/lib/hermes/seed/ready/word
try chmod 777 /usr/lib/hermes/seed
try sh -c 'exec 3<>/usr/lib/hermes/seed/ready/word'
try truncate -s 0 /usr/lib/hermes/seed/ready/word
try ls /mnt/seed
try sh -c 'for f in /proc/[0-9]*/root/mnt/seed; do echo evil >$f/tree/word && exit; done; exit 1'
try sh -c 'mount -o remount,rw /usr/lib/hermes/seed'
cat /usr/lib/hermes/seed/ready/word >>said
""" + MAIN


def test_a_hostile_request_cannot_change_it(make_server, place):
    server = make_server(env=describe(place, ["echo made >word"]))
    run(server)
    assert becomes(server, "ready")
    assert run(server, HOSTILE)["stdout"] == "made\n"
    for path in ("/usr/lib/hermes/seed", "/mnt/seed"):  # a request cannot name the directory, nor put anything there
        assert server.run(NAME, LOOK, mounts=[{"name": "incoming", "path": "/mnt/seed"}]).status == 400
    assert server.run(NAME, LOOK, files=[{"name": "../usr/lib/hermes/seed/ready/word", "content": "evil"}]).status == 400
    assert word(place).read_text() == "made\n" and seeds(place) == ([["ready"]], [])
    # The control: whoever owns the place can do all that, and boxes see it.
    word(place).write_text("evil\n")
    (word(place).parent.parent / "new").mkdir()
    answer = run(server, "# control\nls /usr/lib/hermes/seed | tr '\\n' ' ' >said; cat /usr/lib/hermes/seed/ready/word >>said\n" + MAIN)
    assert answer["stdout"] == "new ready evil\n"


def test_a_hostile_request_cannot_choose_it(make_server, place):
    """Variables of a request do not reach the compiler, and its own `/usr/lib/hermes/seed` does not exist."""
    server = make_server(env=describe(place, ["echo made >word"], env={"WORD": "/usr/lib/hermes/seed/ready/word"}))
    run(server)
    assert becomes(server, "ready")
    look = "cat $WORD >said\n" + MAIN
    answer = run(server, look, env={"WORD": "/box/mine"}, files=[{"name": "mine", "content": "evil\n"}])
    assert answer["stdout"] == "made\n"


@pytest.mark.parametrize("recipe, why", [
    (["echo broken >&2; exit 3"], "broken"),
    (["head -c 2000000 /dev/zero >word"], "max_mb"),
    (["ln -s /etc/passwd word"], "something else than files"),
    (["mkfifo word"], "something else than files"),
    (["echo x >word; ln word more"], "something else than files"),
    (["true"], "something else than files"),
    (["cd /; rmdir /mnt/seed/tree; ln -s / /mnt/seed/tree"], "something else than files"),
], ids=["fails", "too-large", "link", "fifo", "two-names", "nothing", "replaced"])
def test_a_recipe_that_goes_wrong_leaves_nothing(make_server, place, recipe, why):
    server = make_server(env=describe(place, recipe))
    run(server)
    assert becomes(server, "failed")
    told = server.events("a seed could not be made; compilers are slower")
    assert told and why in told[0]["reason"], told
    assert seeds(place) == ([[]], [])
    assert run(server, "# again\n" + LOOK)["compile"]["seed"] is False


def held(server, place):
    """Starts a build that waits for the test."""
    run(server)
    assert becomes(server, "making") and wait_until(lambda: (place / "seeds/incoming/begun").exists(), 30)


@pytest.mark.parametrize("who", ["server", "spawner", "monitor", "box"])
def test_killed_at_any_time_it_is_made_again(make_server, place, who):
    server = make_server(env=describe(place, HELD))
    held(server, place)
    victims = {"server": [server.child("hermes-server")], "spawner": [server.child("hermes-spawn")],
               "monitor": [server.process.pid], "box": [p for p in descendants(server.process.pid) if is_box(p)]}[who]
    assert victims and all(victims)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):  # it went with the one before
            os.kill(pid, signal.SIGKILL)
    if who == "monitor":
        server.process.wait()
        server.start()
    (place / "seeds/incoming/begun").unlink()
    assert seeds(place)[0] == [[]]  # nothing half has a name
    (place / "seeds/incoming/go").touch()
    if who in ("box", "spawner"):  # counts as a failure and is tried again later: here, after a start
        assert wait_until(lambda: state(server) == "failed", 60)
        server.stop()
        server.start()
    assert wait_until(lambda: server.works(), 30)
    run(server, "# once more\n" + LOOK)
    assert becomes(server, "ready")
    assert seeds(place) == ([["ready"]], ["begun", "go"]) and word(place).read_text() == "made\n"


def test_a_build_gives_way_when_a_request_has_to_wait(make_server, place):
    server = make_server(env=dict(describe(place, HELD), HERMES_CONCURRENCY="1"))
    held(server, place)
    ids = [server("POST", "/v1/runs", {"language": "bash", "code": "sleep 1000", "async": True,
                                       "limits": {"wall_ms": 60000}}).json()["id"] for _ in range(2)]
    assert becomes(server, "missing")
    for run_id in ids:
        assert server("DELETE", "/v1/runs/" + run_id).status < 300
    (place / "seeds/incoming/go").touch()
    assert becomes(server, "ready")


def test_it_ends_with_the_server(make_server, place):
    server = make_server(env=describe(place, HELD))
    held(server, place)
    assert server.stop() == 0
    assert seeds(place)[0] == [[]]
    server.start()


def command(place, *words, check=True):
    env = dict(describe(place, ["echo made >word"]), PATH="/usr/bin:/bin", HERMES_RUNTIMES=str(ROOT / "runtimes"),
               HERMES_STATE_DIR=str(place / "state"))
    return subprocess.run([str(HERMES), *words], env=env, capture_output=True, text=True, timeout=120 * SLOW, check=check)


def test_the_command_makes_them_and_runs_have_them(place):
    code = pathlib.Path(place, "main." + NAME)
    code.write_text(LOOK)
    look = lambda: json.loads(command(place, "run", "--no-cache", "--json", str(code)).stdout)  # noqa: E731
    assert look()["compile"]["seed"] is False
    assert command(place, "seed", NAME).stdout.split() == [NAME, "ready"]
    assert command(place, "seed", NAME).stdout.split() == [NAME, "ready", "already"]
    assert json.loads(command(place, "seed", "--json", NAME).stdout)["seeds"] == [{"language": NAME, "made": False, "ms": 0}]
    answer = look()
    assert answer["compile"]["seed"] is True and answer["stdout"] == "made\n"
    wrong = command(place, "seed", "python", check=False)
    assert wrong.returncode == 2 and "python has no seed" in wrong.stderr
    wrong = command(place, "seed", "klingon", check=False)
    assert wrong.returncode == 2 and "klingon" in wrong.stderr


def test_the_command_beside_a_server_leaves_it_its_own(make_server, place):
    """What root makes belongs to the server's user, too, and the server can go on making seeds."""
    server = make_server(env=describe(place, ["echo made >word"]))
    uid = (server.state / "server").stat().st_uid
    assert command(place, "seed", NAME).stdout.split() == [NAME, "ready"]
    made = [place / "seeds/incoming", word(place).parent.parent, word(place).parent, word(place)]
    assert [p.stat().st_uid for p in made] == [uid] * 4
    assert state(server) == "ready" and run(server)["stdout"] == "made\n"


def test_another_recipe_or_compiler_is_another_seed(place):
    """A seed never changes: what it depends on is part of its name."""
    command(place, "seed", NAME)
    runtime = place / "languages" / NAME / "runtime.json"
    before = sorted(p.name for p in (place / "seeds").iterdir())
    runtime.write_text(runtime.read_text().replace("echo made", "echo other"))
    env = {"PATH": "/usr/bin:/bin", "RUNTIME_DIR": str(place / "languages"), "HERMES_RUNTIMES": str(ROOT / "runtimes"),
           "HERMES_STATE_DIR": str(place / "state"), "HERMES_SEED_DIR": str(place / "seeds")}
    subprocess.run([str(HERMES), "seed", NAME], env=env, check=True, timeout=120 * SLOW, stdout=subprocess.DEVNULL)
    found = {p.parent.parent.name: p.read_text() for p in (place / "seeds").glob("*/ready/word")}
    assert sorted(found.values()) == ["made\n", "other\n"] and set(before) < set(found) | {"incoming"}


def test_only_old_seeds_are_removed(place):
    """The directory may be one that has other things, even HOME: they stay, however old they are."""
    top = place / "seeds"
    key = "0123456789abcdef" * 2
    old, others = ["cpp-" + key, ".old-seed-x"], [".ssh", ".old-work", "data", "my-project", ".git-" + key, "a-" + key[1:], "go-" + key.upper()]
    for name in [*old, *others, "go-" + key]:
        (top / name).mkdir(parents=True)
        (top / name / "file").touch()
        if name[:3] != "go-" or name in others:
            os.utime(top / name, (0, 0))
    top.chmod(0o700)
    command(place, "seed", NAME)
    found = {p.name for p in top.iterdir()} - {word(place).parent.parent.name}
    assert found == {*others, "go-" + key, "incoming"}
    assert all((top / name / "file").exists() for name in others)


def test_a_directory_that_is_not_ours_is_refused(place):
    (place / "seeds").mkdir()
    (place / "seeds").chmod(0o777)
    wrong = command(place, "seed", NAME, check=False)
    assert wrong.returncode != 0 and "must belong to you" in wrong.stderr and "HERMES_SEED_DIR" in wrong.stderr
    code = pathlib.Path(place, "main." + NAME)
    code.write_text(LOOK)
    assert json.loads(command(place, "run", "--json", str(code)).stdout)["compile"]["seed"] is False  # slower, not broken


@pytest.mark.skipif(os.environ.get("HERMES_FULL") != "1", reason="takes a minute: HERMES_FULL=1")
@pytest.mark.parametrize("language, code", [
    ("cpp", '#include <bits/stdc++.h>\nint main() { std::cout << %d; }\n'),
    ("go", 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Print(%d) }\n'),
    ("java", 'public class Main { public static void main(String[] a) { System.out.print(%d); } }\n')])
def test_the_seeds_of_hermes(make_server, place, language, code):
    """The first run has none; a new program has it, and takes much less time of the processor."""
    server = make_server(env=dict(describe(place, ["echo made >word"])))
    first = server.run(language, code % 1).json()
    assert first["status"] == "ok" and first["compile"]["seed"] is False, first
    states = lambda: {s["language"]: s["state"] for s in server("GET", "/v1/status").json()["seeds"]}  # noqa: E731
    assert wait_until(lambda: states()[language] == "ready", 600)
    later = server.run(language, code % 2).json()
    assert later["stdout"] == "2" and later["compile"]["seed"] is True, later
    assert later["compile"]["usage"]["cpu_ms"] < first["compile"]["usage"]["cpu_ms"] * 0.9
