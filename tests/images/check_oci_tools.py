# SPDX-License-Identifier: Apache-2.0
"""Images of skopeo, umoci, buildah and mmdebstrap come in, and they take ours (`make test-images`)."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest

from layerlib import PROGRAM, give, member, packed, tar, unpacked
from ocilib import ARCH, bring, digest, export

PROGRAMS = ("skopeo", "umoci", "buildah", "mmdebstrap")
CONFIG = {"env": ["PATH=/usr/bin:/bin", "GREETING=hello"], "cmd": ["/bin/hello"], "working_dir": "/box", "labels": {"a": "b"}}
BASE = tar(member("d/a", data=b"1"), member("d/b", data=b"2"), member("e/x", data=b"3"), member("gone", data=b"4"),
           member("bin/hello", data=b"#!/bin/sh\necho hello\n", mode=0o755), member("l", tarfile.SYMTYPE, link="d/a"))
NEXT = tar(member(".wh.gone"), member("d/.wh.a"), member("e/.wh..wh..opq"), member("e/new", data=b"5"), member("n" * 120, data=b"6"),
           member("bin/hello", data=b"#!/bin/sh\necho again\n", mode=0o755))
SHOWN = {"bin": None, "bin/hello": b"#!/bin/sh\necho again\n", "d": None, "d/b": b"2", "e": None, "e/new": b"5", "l": "d/a", "n" * 120: b"6"}


def run(*words, **more):
    done = subprocess.run(list(map(str, words)), capture_output=True, timeout=600, **more)
    assert done.returncode == 0, (words, done.stderr.decode(errors="replace"))
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def needs_programs():
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    assert not missing, "missing: %s; run tools/install-deps.sh images" % missing
    if os.geteuid() != 0:
        pytest.skip("needs root: the programs make files of other owners")


@pytest.fixture
def layers(area):
    made = [give(area / "made-0"), give(area / "made-1")]
    unpacked(made[0], BASE)
    unpacked(made[1], NEXT)
    return made


def write_layout(area, layers, packing):
    """Our export, as a directory that other programs take."""
    to = area / ("layout-" + packing)
    to.mkdir()
    run("tar", "-x", "-C", to, input=export(area, layers, "oci", packing, config=CONFIG))
    return to


def tree_of(top):
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = pathlib.Path(where, name)
            found[str(path.relative_to(top))] = (os.readlink(path) if path.is_symlink() else
                                                 None if path.is_dir() else path.read_bytes())
    return found


def archive_of(directory):
    """A directory as the client sends it, with the rights of its owner."""
    return run(PROGRAM, "pack", directory)


def overlay_tree(area, dirs):
    """The whole image as a box sees it, copied out of an overlay."""
    (area / "mnt").mkdir()
    (area / "whole").mkdir()
    run("unshare", "-m", "sh", "-c", 'mount -t overlay -o "ro,userxattr,lowerdir=$1" o "$2" && cp -a "$2/." "$3"', "sh",
        ":".join(map(str, reversed(dirs))), area / "mnt", area / "whole")
    return area / "whole"


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_skopeo_reads_ours(area, layers, packing):
    layout = write_layout(area, layers, packing)
    seen = json.loads(run("skopeo", "inspect", "oci:%s:box:1" % layout))
    assert seen["Architecture"] == ARCH and len(seen["Layers"]) == 2 and seen["Env"] == CONFIG["env"]
    config = json.loads(run("skopeo", "inspect", "--config", "oci:%s:box:1" % layout))
    assert config["rootfs"]["diff_ids"] == [digest(packed(d)) for d in layers]


def test_skopeo_copies_ours(area, layers):
    """Through skopeo to a docker archive and back to a layout: the layers are the same."""
    layout = write_layout(area, layers, "gzip")
    run("skopeo", "--insecure-policy", "copy", "oci:%s:box:1" % layout, "docker-archive:%s:box:1" % (area / "d.tar"))
    image, dirs = bring(area / "docker", (area / "d.tar").read_bytes())
    assert image["kind"] == "docker" and image["config"] == CONFIG
    assert [packed(d) for d in dirs] == [packed(d) for d in layers]
    run("skopeo", "--insecure-policy", "copy", "docker-archive:%s" % (area / "d.tar"), "oci:%s:again" % (area / "again"))
    image, dirs = bring(area / "oci", archive_of(area / "again"))
    assert image["kind"] == "oci" and image["name"] == "again"
    assert [packed(d) for d in dirs] == [packed(d) for d in layers]


def test_skopeo_reads_our_docker_archive(area, layers):
    (area / "ours.tar").write_bytes(export(area, layers, "docker", config=CONFIG))
    config = json.loads(run("skopeo", "inspect", "--config", "docker-archive:%s" % (area / "ours.tar")))
    assert config["rootfs"]["diff_ids"] == [digest(packed(d)) for d in layers]
    run("skopeo", "--insecure-policy", "copy", "docker-archive:%s" % (area / "ours.tar"), "oci:%s:x" % (area / "copied"))
    _, dirs = bring(area / "back", archive_of(area / "copied"))
    assert [packed(d) for d in dirs] == [packed(d) for d in layers]


def test_umoci_unpacks_ours(area, layers):
    """umoci's result and our overlay have the same digest, deletions included."""
    layout = write_layout(area, layers, "gzip")
    run("umoci", "unpack", "--image", "%s:box:1" % layout, area / "bundle")
    rootfs = area / "bundle" / "rootfs"
    assert tree_of(rootfs) == SHOWN
    assert archive_of(rootfs) == archive_of(overlay_tree(area, layers))


def test_umoci_adds_to_ours(area, layers):
    """A layer of umoci with deletions and replaced types comes in, and shows what umoci shows."""
    layout = write_layout(area, layers, "gzip")
    run("umoci", "unpack", "--image", "%s:box:1" % layout, area / "bundle")
    rootfs = area / "bundle" / "rootfs"
    (rootfs / "d" / "b").unlink()
    shutil.rmtree(rootfs / "e")
    (rootfs / "e").write_bytes(b"a file now")
    (rootfs / "l").unlink()
    (rootfs / "l").mkdir()
    (rootfs / "l" / "in").write_bytes(b"a directory now")
    os.chmod(rootfs / "bin" / "hello", 0o4755)
    run("umoci", "repack", "--image", "%s:more" % layout, area / "bundle")
    image, dirs = bring(area / "in", archive_of(layout), "more")
    assert len(dirs) == 3 and image["config"]["env"] == CONFIG["env"]
    assert tree_of(overlay_tree(area, dirs)) == tree_of(rootfs)
    assert os.stat(rootfs / "bin" / "hello").st_mode & 0o4000, "the control of the next line"
    assert not os.stat(area / "whole" / "bin" / "hello").st_mode & 0o4000


def test_buildah(area, layers):
    """buildah makes a container of our image, adds a layer, and we import the result."""
    layout = write_layout(area, layers, "gzip")
    buildah = ["buildah", "--root", area / "storage", "--runroot", area / "run", "--storage-driver", "vfs"]
    try:
        # It makes a name of the path, so the path must look like a name.
        box = run(*buildah, "from", "--signature-policy", policy(area), "oci:%s:box:1" % layout.name, cwd=area).decode().strip()
        mounted = pathlib.Path(run(*buildah, "mount", box).decode().strip())
        assert tree_of(mounted) == SHOWN
        (mounted / "added").write_bytes(b"7")
        (mounted / "d" / "b").unlink()
        (mounted / "d" / "c").write_bytes(b"8")
        shown = tree_of(mounted)
        run(*buildah, "config", "--env", "MORE=1", box)
        for kind in ("oci", "docker"):
            run(*buildah, "commit", "--signature-policy", policy(area), "--format", kind, box,
                "oci:%s:out" % (area / kind) if kind == "oci" else "docker-archive:%s:out:1" % (area / "docker.tar"))
    finally:
        subprocess.run([*map(str, buildah), "umount", "--all"], capture_output=True)
        subprocess.run([*map(str, buildah), "rm", "--all"], capture_output=True)
    for name, data in (("in-oci", archive_of(area / "oci")), ("in-docker", (area / "docker.tar").read_bytes())):
        (area / name).mkdir()
        image, dirs = bring(area / name, data)
        assert "MORE=1" in image["config"]["env"]
        assert tree_of(overlay_tree(area / name, dirs)) == shown


def policy(area):
    path = area / "policy.json"
    path.write_text('{"default":[{"type":"insecureAcceptAnything"}]}')
    return path


def test_a_whole_debian(area):
    """A bare root tar of mmdebstrap: set-id bits and devices are neutralised; it stays what it is when it is exported and
    imported again."""
    suite = dict(line.split("=", 1) for line in open("/etc/os-release").read().splitlines() if "=" in line)["VERSION_CODENAME"]
    run("mmdebstrap", "--variant=essential", "--mode=root", suite, area / "root.tar")
    data = (area / "root.tar").read_bytes()
    with tarfile.open(area / "root.tar") as t:
        members = t.getmembers()
    assert [m for m in members if m.mode & 0o6000 and m.isreg()] and [m for m in members if m.isdev()], "the control"
    image, dirs = bring(area / "in", data)
    assert image["kind"] == "root"
    for path in dirs[0].rglob("*"):
        mode = os.lstat(path).st_mode
        assert oct(mode) in ("0o100644", "0o100755", "0o40755", "0o120777"), path
    layer = packed(dirs[0])
    archive = export(area, dirs, config={"env": ["PATH=/usr/bin:/bin"]})
    _, again = bring(area / "again", archive)
    assert packed(again[0]) == layer
    done = run("chroot", dirs[0], "/usr/bin/dpkg", "--version")
    assert b"package management" in done
