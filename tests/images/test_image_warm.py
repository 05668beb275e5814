# SPDX-License-Identifier: Apache-2.0
"""Images whose packages are imported ahead: what may be, whose images have such interpreters, and what their boxes
share."""
import json
import os
import signal
import subprocess

import pytest

from apilib import HERMES, MONITOR, ROOT, Server, borrow_dir, children, is_zygote, return_dir, wait_until
from indexlib import UNFIT, image_settings, lock_of
from pressure import choose_percent, short_of_memory
from serving import boxes

FIT = "hermes_heavy"


def test_what_is_imported_ahead_is_measured(server):
    reply = server("POST", "/v1/images", {"language": "python", "name": "picked",
                                          "packages": {"pip": ["hermes-heavy", "hermes-probe==1.0", "hermes-thread"]}})
    assert reply.status == 201, reply.body
    assert reply.json()["preload"] == [FIT]  # hermes_probe takes no time


def test_a_recipe_names_modules_and_the_checks_stay(server):
    named = [name.replace("-", "_") for name in UNFIT] + ["hermes_probe", "not_there", "json"]
    reply = server("POST", "/v1/images", {"language": "python", "name": "named", "preload": named,
                                          "packages": {"pip": ["hermes-probe==1.0", *UNFIT]}})
    assert reply.status == 201, reply.body
    assert reply.json()["preload"] == ["hermes_probe", "json"]


@pytest.mark.parametrize("preload, field", [("x", "preload"), ([1], "preload[0]"), (["ok", "a b"], "preload[1]"),
                                            (["a;b"], "preload[0]"), (["a..b"], "preload[0]"), (["1a"], "preload[0]"),
                                            (["-c"], "preload[0]"), (["a."], "preload[0]"), (["a"] * 65, "preload")])
def test_names_of_modules_are_checked(server, preload, field):
    reply = server("POST", "/v1/images", {"language": "python", "packages": {"pip": ["hermes-probe"]},
                                          "preload": preload})
    assert reply.status == 400 and reply.json()["error"]["field"] == field, reply.body


def test_images_of_callers_have_no_zygote(server):
    """Their code would run in a process that maps the ids of all boxes. (They have template boxes: test_template.py.) Also not by an operator's call, which makes an
    image for all; and not when it is called like the image that sessions have by default."""
    script = "cat > $(echo /opt/venv/lib/python3*/site-packages)/sitecustomize.py <<'END'\n" \
             "import os\nopen('/tmp/ran', 'w').write(str(os.getuid()))\nEND\n"
    before = zygotes(server)
    reply = server("POST", "/v1/images", {"language": "python", "name": "data", "setup_script": script,
                                          "packages": {"pip": ["hermes-heavy"]}})
    assert reply.status == 201 and reply.json()["preload"] == [FIT], reply.body
    for _ in range(5):
        run = server.run("python", "print(open('/tmp/ran').read())", image="data").json()
        # control: its code runs, as the user of the box. A run may be the copy of a template, which empties /tmp
        if run["isolation"]["start"] == "cold":
            assert (run["stdout"], run["isolation"]["start_reason"]) == ("1000\n", "not_ready")
    session = server("POST", "/v1/sessions", {"language": "python"}).json()
    assert session["image"] is None
    assert not zygotes_of_images(server) and len(zygotes(server)) >= len(before)


# --- images of the operator


def zygotes(server):
    """Command lines of interpreters that the spawner has started and that are no boxes, by their pids."""
    spawner = server.child("hermes-spawn")
    found = {}
    for pid in children(spawner) if spawner else []:
        try:
            if is_zygote(pid):
                found[pid] = open("/proc/%d/cmdline" % pid).read().replace("\0", " ")
        except OSError:
            continue
    return found


def zygotes_of_images(server):
    return {pid for pid, line in zygotes(server).items() if "/opt/venv" in line}


def write_recipe(folder, name, *packages, **more):
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps(dict({"name": name, "language": "python"}, **more)))
    (folder / "lock.txt").write_text(lock_of(*packages))
    return folder


class Operator:
    """A server with images of its operator, and the command line that builds them."""

    def __init__(self, world, names, env=None):
        self.path = borrow_dir()
        self.world = world
        self.recipes = [self.path / ("recipe-" + name) for name in names]
        self.env = dict(image_settings(), HERMES_OPERATOR_IMAGES=",".join(map(str, self.recipes)),
                        HERMES_SESSION_IMAGE="tools", HERMES_SESSION_WARM="true", **env or {})
        self.server = None

    def serve(self):
        self.server = Server(self.path, command=[*self.world.host.enter(), MONITOR], tcp=False, env=self.env)
        return self.server

    def hermes(self, *words):
        env = dict(self.env, PATH="/usr/bin:/bin", HERMES_STATE_DIR=str(self.path / "state"),
                   HERMES_RUNTIMES=str(ROOT / "runtimes"), LC_ALL="C.UTF-8")
        return subprocess.run([*map(str, self.world.host.enter()), str(HERMES), *map(str, words)], env=env,
                              capture_output=True, text=True)

    def end(self):
        status = self.server.stop() if self.server else 0
        return_dir(self.path)
        assert status == 0


@pytest.fixture(scope="module")
def operator(world):
    """One whose image `tools` was built before the server has started; `later` is not built yet."""
    operator = Operator(world, ["tools", "later"])
    write_recipe(operator.recipes[0], "tools", "hermes-heavy", "hermes-probe")
    write_recipe(operator.recipes[1], "later", "hermes-probe", preload=["hermes_probe"])
    built = operator.hermes("image", "build", "--operator", operator.recipes[0])
    assert built.returncode == 0 and "the next one has the image" in built.stderr, built.stderr
    operator.serve()
    yield operator
    operator.end()


def run_warm(server, code, **fields):
    """Runs it until the box is a copy of the zygote, which starts with the first request."""
    answers = []

    def is_warm():
        answers.append(server.run("python", code, **fields).json())
        return answers[-1]["isolation"]["start"] == "warm"
    assert wait_until(is_warm, 60), answers[-1]
    return answers[-1]


LOADED = "import sys\nprint('hermes_heavy' in sys.modules, sys.prefix)\nimport hermes_heavy, hermes_probe\n" \
         "print(len(hermes_heavy.DATA), hermes_probe.VERSION)"


def test_boxes_have_imported_the_packages(operator):
    server = operator.server
    assert run_warm(server, LOADED, image="tools")["stdout"] == "True /opt/venv\n4194304 1.0\n"
    # control: without the image neither
    assert "ModuleNotFoundError" in server.run("python", LOADED).json()["stderr"]
    image = server("GET", "/v1/images/tools").json()
    assert image["warm"] is True and image["preload"] == [FIT] and image["owner"] is None
    assert [i["name"] for i in server("GET", "/v1/images").json()["images"]] == ["tools"]
    assert server("DELETE", "/v1/images/tools").status == 409


def test_random_numbers_differ_between_boxes(operator):
    seen = {run_warm(operator.server, "import random; print(random.random())", image="tools")["stdout"]
            for _ in range(10)}
    assert len(seen) == 10


def test_a_box_leaves_nothing_to_the_next(operator):
    code = "import hermes_heavy, os\nprint(hermes_heavy.DATA[0], os.listdir('/tmp'), sorted(os.listdir('/box')))\n" \
           "hermes_heavy.DATA[0] = 0\nopen('/tmp/left', 'w')"
    for _ in range(2):
        assert run_warm(operator.server, code, image="tools")["stdout"] == "120 [] ['main.py']\n"


def test_sessions_have_the_image_by_default(operator):
    server = operator.server

    def start():
        session = server("POST", "/v1/sessions", {"language": "python"}).json()
        answer = server("POST", "/v1/sessions/%s/exec" % session["id"], {"code": LOADED}).json()
        copies = server("POST", "/v1/sessions/%s/fork" % session["id"], {}).json()["sessions"]
        copied = server("POST", "/v1/sessions/%s/exec" % copies[0]["id"],
                        {"code": "hermes_heavy.DATA[1]"}).json()["result"]["text/plain"]
        for one in session, *copies:
            server("DELETE", "/v1/sessions/" + one["id"])
        assert session["image"].startswith("img_") and answer["stdout"].endswith("4194304 1.0\n"), (session, answer)
        assert copied == "120"
        return session["isolation"]["start"] == "warm" and answer["stdout"].startswith("True")
    assert wait_until(start, 60)
    bash = server("POST", "/v1/sessions", {"language": "bash"}).json()
    assert bash["image"] is None
    server("DELETE", "/v1/sessions/" + bash["id"])


def test_one_that_is_built_later_comes_with_a_restart(operator):
    server = operator.server
    assert server("GET", "/v1/images/later").status == 404
    spawner = server.child("hermes-spawn")
    built = operator.hermes("image", "build", "--operator", operator.recipes[1])
    assert built.returncode == 0 and "starts again" in built.stderr, built.stderr

    def is_back():
        try:
            return server.child("hermes-spawn") not in (None, spawner) and \
                server("GET", "/v1/images/later").status == 200
        except OSError:
            return False
    assert wait_until(is_back, 60), server.logs()
    assert run_warm(server, "import hermes_probe; print(hermes_probe.VERSION)", image="later")["stdout"] == "1.0\n"
    assert run_warm(server, LOADED, image="tools")["stdout"] == "True /opt/venv\n4194304 1.0\n"


def test_the_next_spawner_has_them_too(operator):
    server = operator.server
    os.kill(server.child("hermes-spawn"), signal.SIGKILL)
    assert run_warm(server, LOADED, image="tools")["stdout"] == "True /opt/venv\n4194304 1.0\n"


def test_an_image_in_use_is_not_removed(operator):
    gone = operator.hermes("image", "rm", "tools")
    assert gone.returncode != 0 and "use" in gone.stderr, gone.stderr


def test_only_what_the_configuration_names_is_an_operators_image(world):
    """Another recipe under the same name, an image without a lock, and one that nobody names."""
    operator = Operator(world, ["named"])
    try:
        write_recipe(operator.recipes[0], "named", "hermes-probe", preload=["hermes_probe"])
        other = write_recipe(operator.path / "other", "named", "hermes-heavy")
        assert operator.hermes("image", "build", other).returncode == 0
        (operator.path / "list.txt").write_text("hermes-heavy\n")
        refused = operator.hermes("image", "build", "--operator", "--name", "open", operator.path / "list.txt")
        assert refused.returncode == 2 and "lock" in refused.stderr, refused.stderr
        server = operator.serve()
        assert server("GET", "/v1/images").json()["images"] == []
        assert server.run("python", "1", image="named").status == 404
    finally:
        operator.end()


def test_an_idle_interpreter_ends(world):
    operator = Operator(world, ["tools"], {"HERMES_IMAGE_WARM_IDLE_S": "1", "HERMES_PARKED": "1"})
    try:
        write_recipe(operator.recipes[0], "tools", "hermes-heavy")
        assert operator.hermes("image", "build", operator.recipes[0]).returncode == 0
        server = operator.serve()
        run_warm(server, "import hermes_heavy", image="tools")
        assert wait_until(lambda: not zygotes_of_images(server), 60), zygotes(server)
        run_warm(server, "import hermes_heavy", image="tools")  # and comes back
    finally:
        operator.end()


def test_an_interpreter_ends_while_memory_is_short(world, operator):
    """Of a server that wants more memory to be free than there is, with its ready boxes. Control: the other server, which
    does not, keeps its own."""
    percent = choose_percent()
    pressed = Operator(world, ["tools"], {"HERMES_PARKED_FREE_PERCENT": str(percent), "HERMES_PARKED": "1"})
    try:
        write_recipe(pressed.recipes[0], "tools", "hermes-heavy")
        assert pressed.hermes("image", "build", pressed.recipes[0]).returncode == 0
        server = pressed.serve()
        for one in server, operator.server:
            run_warm(one, "import hermes_heavy", image="tools")
        old, kept = zygotes_of_images(server), zygotes_of_images(operator.server)
        assert old and kept
        assert wait_until(lambda: run_warm(server, "1", image="tools") and boxes(server), 60)  # control: a ready box
        assert zygotes_of_images(server) >= old  # control: without pressure they stay
        with short_of_memory(percent):
            assert wait_until(lambda: not zygotes_of_images(server) and not boxes(server), 60), zygotes(server)
            for _ in range(5):  # and none is started
                answer = server.run("python", "import hermes_heavy; print(1)", image="tools").json()
                assert (answer["stdout"], answer["isolation"]["start"]) == ("1\n", "cold"), answer
                run_warm(operator.server, "import hermes_heavy", image="tools")
            assert not zygotes_of_images(server) and zygotes_of_images(operator.server) >= kept
        run_warm(server, "import hermes_heavy", image="tools")  # comes back
    finally:
        pressed.end()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a box has one processor")
def test_libraries_have_one_thread_while_they_are_imported(operator):
    """BLAS reads these when it is loaded. A box has what a cold one has."""
    code = "import os; print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'])\n" \
           "import hermes_heavy; print(*hermes_heavy.THREADS)"
    fields = {"image": "tools", "limits": {"cpus": 2}}
    cold = operator.server.run("python", code, env={"PYTHONX": "1"}, **fields).json()
    assert cold["isolation"]["start"] == "cold" and cold["stdout"] == "2 2\n2 2\n", cold  # control
    assert run_warm(operator.server, code, **fields)["stdout"] == "2 2\n1 1\n"
    for pid in zygotes_of_images(operator.server):
        assert len(os.listdir("/proc/%d/task" % pid)) == 1


def test_a_budget_without_room_means_cold_boxes(world):
    operator = Operator(world, ["tools"], {"HERMES_IMAGE_WARM_MB": "1"})
    try:
        write_recipe(operator.recipes[0], "tools", "hermes-heavy")
        assert operator.hermes("image", "build", operator.recipes[0]).returncode == 0
        server = operator.serve()
        assert server("GET", "/v1/images/tools").json()["warm"] is False
        run = server.run("python", "import hermes_heavy; print(1)", image="tools").json()
        assert (run["stdout"], run["isolation"]["start_reason"]) == ("1\n", "image")
        assert server.events("an image of the operator has no warm interpreter")
    finally:
        operator.end()


def test_packages_join_a_session_with_an_image_of_the_operator(operator):
    """The layers below them lie in the operator's store."""
    server = operator.server
    session = server("POST", "/v1/sessions", {"language": "python"}).json()
    assert session["image"], session
    path = "/v1/sessions/%s/" % session["id"]
    reply = server("POST", path + "packages", {"manager": "pip", "packages": ["hermes-probe==2.0"]})
    assert reply.status == 200, reply.body
    done = server("POST", path + "exec", {"code": "import hermes_heavy, hermes_probe; print(hermes_probe.__file__[:9])"}).json()
    assert done["stdout"] == "/opt/venv\n", done
    server("DELETE", path[:-1])
