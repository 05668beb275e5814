# SPDX-License-Identifier: Apache-2.0
"""hermes image and hermes run --image, without a server."""
import json
import os
import shutil
import subprocess
import tempfile

import pytest

from apilib import BUILD, HERMES, ROOT, wait_until
from layerlib import member
from rootlib import whole_root

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: images do")
SCRIPT = "echo 'x = 7' > $(echo /opt/venv/lib/python3*/site-packages)/img_cli.py"


@pytest.fixture(scope="module")
def hermes():
    state = tempfile.mkdtemp(prefix="image-tests-", dir="/var/tmp")
    env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "HERMES_STATE_DIR": state, "HERMES_RUNTIMES": str(ROOT / "runtimes")}

    def call(*args, stdin="", **more):
        done = subprocess.run([str(HERMES), *args], input=stdin, capture_output=True, text=True, timeout=300,
                              env=dict(env, **more))
        return done.returncode, done.stdout, done.stderr
    call.state = state
    yield call
    shutil.rmtree(state)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"language": "python", "setup_script": SCRIPT}))
    return str(path)


def test_build_use_and_remove(hermes, recipe):
    status, out, log = hermes("image", "build", "--name", "mine", recipe)
    assert status == 0 and out == "mine\n" and "packing the layer" in log, log
    status, out, _ = hermes("image", "build", "--name", "again", "--json", recipe)
    assert status == 0 and json.loads(out)["name"] == "again"
    status, out, _ = hermes("image", "ls", "--json")
    images = json.loads(out)["images"]
    assert {i["name"] for i in images} == {"mine", "again"} and len({i["id"] for i in images}) == 1
    assert "mine" in hermes("image", "ls")[1]
    assert json.loads(hermes("image", "inspect", "mine")[1])["language"] == "python"
    status, out, err = hermes("run", "-l", "python", "--image", "mine", "-", stdin="import img_cli; print(img_cli.x)")
    assert (status, out) == (0, "7\n"), err
    # control: without the image there is no such module
    assert "ModuleNotFoundError" in hermes("run", "-l", "python", "-", stdin="import img_cli")[2]
    assert hermes("image", "rm", "mine")[0] == 0 and hermes("image", "rm", "again")[0] == 0
    assert hermes("image", "rm", "again")[0] == 2
    assert os.listdir(hermes.state + "/images/layers") == []


def removed(hermes, name):
    """The spawner of a run that has ended may hold its image for a moment."""
    assert wait_until(lambda: hermes("image", "rm", name)[0] == 0, 60)


def test_export_and_import(hermes, recipe, tmp_path):
    archive = tmp_path / "mine.tar"
    assert hermes("image", "build", "--name", "mine", recipe)[0] == 0
    made = json.loads(hermes("image", "inspect", "mine")[1])
    for options in [], ["--compression", "zstd"], ["--format", "docker"]:
        status, out, err = hermes("image", "export", "mine", "-o", str(archive), *options)
        assert status == 0 and out == "", err
        removed(hermes, "mine")
        status, out, err = hermes("image", "import", "--name", "mine", "--json", str(archive))
        assert status == 0 and json.loads(out)["layers"] == made["layers"], err
        status, out, err = hermes("run", "-l", "python", "--image", "mine", "-", stdin="import img_cli; print(img_cli.x)")
        assert (status, out) == (0, "7\n"), err
    assert os.listdir(tmp_path) and not [n for n in os.listdir(tmp_path) if n.endswith(".part")]
    removed(hermes, "mine")
    assert os.listdir(hermes.state + "/images/layers") == [] and os.listdir(hermes.state + "/images/spool") == []


def test_a_whole_root(hermes, tmp_path):
    root = tmp_path / "root.tar"
    root.write_bytes(whole_root(member("etc/marker", data=b"mine"), has_python=False))
    status, out, err = hermes("image", "import", "--name", "small", "--json", str(root))
    assert status == 0 and json.loads(out)["whole_root"] and json.loads(out)["language"] == "bash", err
    status, out, err = hermes("run", "-l", "bash", "--image", "small", "-", stdin="read line < /etc/marker; echo $line")
    assert (status, out) == (0, "mine\n"), err
    removed(hermes, "small")


def test_gc(hermes, recipe):
    assert hermes("image", "build", "--name", "old", recipe)[0] == 0
    names = hermes.state + "/images/names/@all/old"
    assert json.loads(hermes("image", "gc", "--max-age", "1", "--json")[1])["removed"] == 0
    os.utime(names, (0, 0))
    gone = json.loads(hermes("image", "gc", "--max-age", "1", "--json")[1])
    assert gone["removed"] == 1 and gone["bytes"] > 0 and gone["in_use"] == 0
    assert os.listdir(hermes.state + "/images/layers") == []


def test_what_is_wrong_is_said(hermes, recipe, tmp_path):
    for args, status, text in [(["run", "--image", "nothing", "-l", "python", "-"], 2, "there is no image `nothing`"),
                               (["run", "--image", "x", "-l", "c", "-"], 2, "language `c` does not support images"),
                               (["image", "inspect", "nothing"], 2, "there is no image"),
                               (["image"], 2, "give one of"), (["image", "rm"], 2, "has no argument"),
                               (["image", "build"], 2, "language"),
                               (["image", "build", "--pip", "hermes-probe"], 125, "no package registry is configured"),
                               (["image", "build", "--name", "a/b", recipe], 2, "a name of an image"),
                               (["image", "export", "none"], 2, "there is no image"),
                               (["image", "export", "none", "--format", "zip"], 2, "format is oci or docker"),
                               (["image", "import", str(tmp_path / "none.tar")], 2, "none.tar"),
                               (["image", "import", recipe], 2, "not a tar file"),
                               (["image", "build", str(tmp_path / "none.json")], 2, "none.json")]:
        got = hermes(*args)
        assert got[0] == status and text in got[2], (args, got)


@pytest.mark.parametrize("name, text, program", [("requirements.txt", "hermes-probe==1.0\n", "python3"),
                                                 ("package.json", '{"dependencies": {"a": "1"}}', "node")])
def test_files_name_their_language(hermes, tmp_path, name, text, program):
    """Without a registry they are refused, after they were understood."""
    if not shutil.which(program):
        pytest.skip("%s is not installed" % program)
    (tmp_path / name).write_text(text)
    status, _, err = hermes("image", "build", str(tmp_path / name))
    assert status == 125 and "no package registry" in err, err


def test_without_root_it_is_refused_by_name():
    user = 65534
    done = subprocess.run([str(HERMES), "image", "ls"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"},
                          preexec_fn=lambda: (os.setgroups([]), os.setresgid(user, user, user),
                                              os.setresuid(user, user, user)))
    assert done.returncode == 125 and "images need root" in done.stderr, (BUILD, done)
