# SPDX-License-Identifier: Apache-2.0
"""Import and export of images, without other programs; check_oci_tools.py has those."""
import gzip
import io
import json
import os
import subprocess
import tarfile

import pytest

from layerlib import give, listing, member, packed, tar, unpacked, zipped
from ocilib import ARCH, DRIVER, INDEX, LAYER, MANIFEST, Layout, Refused, bring, digest, driver, dump, export, inspect, split

SYM, LNK = tarfile.SYMTYPE, tarfile.LNKTYPE
CONFIG = {"env": ["PATH=/bin", "A=1"], "entrypoint": ["/bin/sh"], "cmd": ["-c", "x"], "working_dir": "/box", "labels": {"a": "b"}}
BASE = tar(member("d/a", data=b"1"), member("d/b", data=b"2"), member("bin/x", data=b"#!", mode=0o755))
NEXT = tar(member("d/.wh.a"), member("o/.wh..wh..opq"), member("n" * 120, data=b"3"), member("l", SYM, link="d/b"))


@pytest.fixture
def layers(area):
    made = []
    for i, data in enumerate((BASE, NEXT)):
        made.append(give(area / ("made-%d" % i)))
        unpacked(made[-1], data)
    return made


def files_of(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as t:
        return {m.name: t.extractfile(m).read() for m in t if m.isreg()}


@pytest.mark.parametrize("kind", ["oci", "docker"])
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_there_and_back(area, layers, kind, packing):
    """What is exported and imported again is the same, layer by layer, bit for bit."""
    archive = export(area, layers, kind, packing, config=CONFIG)
    assert export(area, layers, kind, packing, config=CONFIG) == archive, "the same again"
    for data in (archive, zipped(archive)):
        to = area / str(len(data))
        image, dirs = bring(to, data)
        assert image["kind"] == kind and image["name"] == "box:1" and image["config"] == CONFIG
        assert [packed(d) for d in dirs] == [packed(d) for d in layers]
        assert [x["diff_id"] for x in image["layers"]] == [digest(packed(d)) for d in layers]
    assert not [n for n in os.listdir(area) if n.startswith(".")]


def test_parts_of_a_layout(area, layers):
    """Every digest is that of its blob, and the packing is the one that was asked for."""
    found = files_of(export(area, layers, config=CONFIG))
    index = json.loads(found["index.json"])
    for name, data in found.items():
        if name.startswith("blobs/"):
            assert digest(data)[7:] == os.path.basename(name)
    entry = index["manifests"][0]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "box:1"}
    assert entry["platform"] == {"os": "linux", "architecture": ARCH}
    manifest = json.loads(found["blobs/sha256/" + entry["digest"][7:]])
    config = json.loads(found["blobs/sha256/" + manifest["config"]["digest"][7:]])
    assert len(config["history"]) == len(config["rootfs"]["diff_ids"]) == 2
    assert config["config"]["Env"] == CONFIG["env"] and config["config"]["WorkingDir"] == "/box"
    for layer, directory in zip(manifest["layers"], layers):
        assert layer["mediaType"].endswith("+gzip")
        assert gzip.decompress(found["blobs/sha256/" + layer["digest"][7:]]) == packed(directory)


def test_export_without_space(area, as_root):
    """A full disk is said, and nothing stays on it. Control: the same with more space."""
    layer = give(area / "layer")
    unpacked(layer, tar(member("noise", data=os.urandom(300000))))
    script = 'mount -t tmpfs -o size=$1 t "$2" && "$3" export oci gzip x "$2" "$4" < /dev/null > "$5"; echo $? $(ls -A "$2")'
    for size, status in (("64k", "1"), ("2m", "0")):
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", size, str(give(area / size)), str(DRIVER), str(layer),
                               str(area / "out")], capture_output=True, text=True)
        assert done.stdout.strip() == status, done
        assert status == "0" or "No space left" in done.stderr


def test_the_same_layer_twice(area, layers):
    for kind in ("oci", "docker"):
        archive = export(area, [layers[0], layers[1], layers[0]], kind)
        names = [m.name for m in tarfile.open(fileobj=io.BytesIO(archive))]
        assert len(names) == len(set(names))
        _, dirs = bring(area / kind, archive)
        assert packed(dirs[0]) == packed(dirs[2]) == packed(layers[0])


def test_a_root_tar(area):
    """An archive that is no image is one layer."""
    image, dirs = bring(area, BASE)
    assert image["kind"] == "root" and image["layers"] == []
    assert sorted(listing(dirs[0])) == ["bin", "bin/x", "d", "d/a", "d/b"]


def test_whole_root(area):
    """Of a whole root, set-id bits, devices and owners are gone, and nothing is hidden from its boxes."""
    _, dirs = bring(area, tar(member("usr/bin/su", data=b"x", mode=0o4755), member("usr/bin/wall", data=b"x", mode=0o2755),
                              member("dev/null", tarfile.CHRTYPE, dev=(1, 3)), member("dev/sda", tarfile.BLKTYPE, dev=(8, 0)),
                              member("run/initctl", tarfile.FIFOTYPE), member("etc/shadow", data=b"s", mode=0o640, uid=0),
                              member("tmp/", tarfile.DIRTYPE, mode=0o1777),
                              member("usr/bin/ping", data=b"x", mode=0o755, pax={"SCHILY.xattr.security.capability": "cap"})))
    found = {name: (mode, attributes) for name, (mode, _, attributes) in listing(dirs[0]).items() if mode != "0o40755"}
    assert found == {"usr/bin/su": ("0o100755", ()), "usr/bin/wall": ("0o100755", ()), "etc/shadow": ("0o100644", ()),
                     "usr/bin/ping": ("0o100755", ())}
    owners = {(os.lstat(p).st_uid, os.lstat(p).st_gid) for p in dirs[0].rglob("*")}
    assert owners == {(os.stat(dirs[0]).st_uid, os.stat(dirs[0]).st_gid)}
    # The control: the bits are in the archive, and a program that believes archives sets them.
    believed = area / "believed"
    believed.mkdir()
    subprocess.run(["tar", "-xp", "-C", believed], input=tar(member("su", data=b"x", mode=0o4755)), check=True)
    assert os.stat(believed / "su").st_mode & 0o4000


def platform_of(arch, system="linux"):
    return {"platform": {"os": system, "architecture": arch}}


def test_platforms(area):
    """Of several platforms the host's is taken; else the refusal names those that there are."""
    here, there = Layout(BASE), Layout(NEXT, arch="s390x")
    here.entry_more, there.entry_more = platform_of(ARCH), platform_of("s390x")
    here.others = [there.entry(), here.add(dump({"x": 1}), MANIFEST, platform={"os": "unknown", "architecture": "unknown"})]
    here.blobs.update(there.blobs)
    image = inspect(area / "a", here.tar())
    assert image["layers"][0]["diff_id"] == digest(BASE)
    with pytest.raises(Refused, match="no image for linux/%s, only for linux/s390x" % ARCH):
        inspect(area / "b", there.tar())
    inner = here.add(dump({"schemaVersion": 2, "manifests": [here.entry(), *here.others]}), INDEX)
    assert inspect(area / "c", here.tar({"manifests": [inner]}))["layers"][0]["diff_id"] == digest(BASE)
    liar = Layout(BASE, arch="s390x")
    liar.entry_more = platform_of(ARCH)
    with pytest.raises(Refused, match="another platform: linux/s390x"):
        inspect(area / "d", liar.tar())


def test_names(area):
    def named(name):
        return {"annotations": {"org.opencontainers.image.ref.name": name}}
    one, two = Layout(BASE), Layout(NEXT)
    one.entry_more, two.entry_more = named("a"), named("b")
    one.others = [two.entry()]
    one.blobs.update(two.blobs)
    with pytest.raises(Refused, match="several images, name one of them: a, b"):
        inspect(area / "x", one.tar())
    assert inspect(area / "y", one.tar(), "b")["layers"][0]["diff_id"] == digest(NEXT)
    with pytest.raises(Refused, match="no image of this name: c"):
        inspect(area / "z", one.tar(), "c")


def test_docker_links(area):
    """Old docker archives have a layer once, and links to it."""
    config = dump({"os": "linux", "architecture": ARCH, "rootfs": {"diff_ids": [digest(BASE)] * 3}})
    name = digest(config)[7:] + ".json"
    entry = [{"Config": name, "RepoTags": ["r:1"], "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"]}]
    parts = [member(name, data=config), member("manifest.json", data=dump(entry)), member("a/layer.tar", data=BASE),
             member("b/layer.tar", SYM, link="../a/layer.tar"), member("c/layer.tar", LNK, link="a/layer.tar")]
    image = inspect(area / "a", tar(*parts))
    assert len({x["file"] for x in image["layers"]}) == 1 and image["name"] == "r:1"
    with pytest.raises(Refused, match="not a member of an image"):
        split(give(area / "b"), tar(member("b/layer.tar", SYM, link="../../../etc/passwd")))
    for loop in ("b/layer.tar", "c/layer.tar"):
        parts[3] = member("b/layer.tar", SYM, link="../" + loop)
        with pytest.raises(Refused, match="a layer is missing"):
            inspect(area / loop[0] / "x", tar(*parts))


def change(**parts):
    """A layout with some of its parts replaced. Of a layer: by name of the field."""
    layout = Layout(BASE)
    for key, value in parts.items():
        if key in ("digest", "size", "mediaType", "urls"):
            layout.layers[0][key] = value
        elif key == "config":
            layout.config.update(value)
        elif key == "manifest":
            layout.entry_more = {"mediaType": value}
        elif key == "layers":
            layout.layers = value
        elif key == "blobs":
            layout.blobs.update(value)
    return layout.tar()


BLOB = "blobs/sha256/" + digest(BASE)[7:]
HOSTILE = {
    "layer elsewhere": (change(urls=["https://registry.invalid/x"]), "lies elsewhere"),
    "foreign layer": (change(mediaType="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"), "type that cannot"),
    "layer not to be distributed": (change(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar"), "type that cannot"),
    "encrypted layer": (change(mediaType=LAYER + "+encrypted"), "type that cannot"),
    "sha512": (change(digest="sha512:" + "0" * 128), "not sha256"),
    "digest that is a path": (change(digest="sha256:../../etc/passwd"), "not sha256"),
    "digest in capitals": (change(digest=digest(BASE).upper().replace("SHA", "sha")), "not sha256"),
    "no such blob": (change(digest=digest(b"x")), "blob is missing"),
    "blob that is shorter": (change(size=len(BASE) + 1), "another size"),
    "size below zero": (change(size=-1), "size is missing"),
    "size that is a word": (change(size="1"), "size is missing"),
    "blob with other content": (change(blobs={BLOB: BASE[:-1] + b"x"}), "another digest"),
    "other diff id": (change(config={"rootfs": {"diff_ids": [digest(NEXT)]}}), "says another digest"),
    "too few diff ids": (change(config={"rootfs": {"diff_ids": []}}), "counts of layers"),
    "diff id that is none": (change(config={"rootfs": {"diff_ids": [7]}}), "diff_id is not"),
    "another system": (change(config={"os": "windows"}), "another platform: windows"),
    "no layers": (change(layers=[]), "no layers"),
    "layers that are no list": (change(layers={"0": 1}), "no layers"),
    "201 layers": (change(layers=[Layout(BASE).layers[0]] * 201), "too many layers"),
    "index that is no JSON": (tar(member("oci-layout"), member("index.json", data=b"{")), "not valid JSON"),
    "index that is a list": (tar(member("oci-layout"), member("index.json", data=b"[]")), "has no image"),
    "index that is empty": (tar(member("oci-layout"), member("index.json")), "not valid JSON"),
    "index of 5 MiB": (tar(member("oci-layout"), member("index.json", data=b" " * (5 << 20))), "too large"),
    "index nested 1000 times": (tar(member("oci-layout"), member("index.json", data=b"[" * 1000 + b"]" * 1000)), "not valid JSON"),
    "index of a million values": (tar(member("oci-layout"), member("index.json", data=b"[" + b"1," * 1000000 + b"1]")), "too many values"),
    "index with a name twice": (tar(member("oci-layout"), member("index.json", data=b'{"manifests":[],"manifests":[]}')), "not valid JSON"),
    "101 manifests": (Layout(BASE).tar({"manifests": [{}] * 101}), "too many manifests"),
    "manifest of version 1": (change(manifest="application/vnd.docker.distribution.manifest.v1+json"), "unknown type"),
    "docker without an image": (tar(member("manifest.json", data=b"[]")), "exactly one image"),
    "docker without a configuration": (tar(member("manifest.json", data=b'[{"Config":"../../etc/passwd","Layers":[]}]')), "configuration is missing"),
    "the same name twice": (tar(member("index.json"), member("index.json")), "twice"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_images(area, case):
    """Control: the same image without the change is imported."""
    archive, words = HOSTILE[case]
    assert bring(area / "control", change())[0]["kind"] == "oci"
    with pytest.raises(Refused, match=words):
        bring(area / "hostile", archive)


def test_an_index_in_an_index_in_an_index(area):
    layout = Layout(BASE)
    entry = layout.entry()
    for depth, is_taken in ((1, True), (2, False)):
        entry = layout.add(dump({"manifests": [entry]}), INDEX)
        archive = layout.tar({"manifests": [entry]})
        if is_taken:
            assert inspect(area / str(depth), archive)["kind"] == "oci"
        else:
            with pytest.raises(Refused, match="unknown type"):
                inspect(area / str(depth), archive)


def test_200_layers(area):
    layers = [tar(member("f%d" % i, data=b"x")) for i in range(200)]
    image = inspect(area / "members", Layout(*layers).tar())
    assert [x["diff_id"] for x in image["layers"]] == [digest(x) for x in layers]


def test_split_keeps_its_limits(area):
    archive = Layout(BASE).tar()
    split(give(area / "control"), archive, max_bytes=100000, max_entries=10)
    with pytest.raises(Refused, match="more bytes"):
        split(give(area / "a"), archive, max_bytes=1000)
    with pytest.raises(Refused, match="more entries"):
        split(give(area / "b"), archive, max_entries=3)
    with pytest.raises(Refused, match="more members"):
        split(give(area / "c"), tar(*[member("%d.json" % i) for i in range(1001)]))
    # Names that images do not have are not written.
    split(give(area / "d"), tar(member("../evil"), member("etc/passwd"), member("x\ny.json"), member("a/b/layer.tar")))
    assert os.listdir(area / "d") == []


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"members":{}}', '{"members":[1]}', '{"members":[{"name":"a"}]}',
                                  '{"members":[{"name":"index.json","file":-1}]}', '{"members":[{"name":"a","file":99999999999}]}',
                                  '{"members":[{"name":"a","file":0}]}', '{"members":[{"name":"a","file":"../x"}]}'])
def test_a_list_that_lies(area, text):
    """A box that was taken over may print any list."""
    with pytest.raises(Refused, match="list of the archive's members is wrong"):
        driver("import", give(area / "members"), stdin=text.encode())


def test_files_that_are_not_files(area):
    """A box that was taken over may leave links and fifos where members should be. Control: a file."""
    members = give(area / "members")
    text = b'{"members":[{"name":"index.json","file":0},{"name":"oci-layout","file":0}]}'
    (members / "0").write_bytes(dump({"manifests": []}))
    with pytest.raises(Refused, match="has no image"):
        driver("import", members, stdin=text)
    for make in (lambda p: p.symlink_to("/etc/passwd"), lambda p: os.mkfifo(p), lambda p: p.mkdir()):
        os.path.isdir(members / "0") and os.rmdir(members / "0")
        (members / "0").unlink(missing_ok=True)
        make(members / "0")
        with pytest.raises(Refused, match="list of the archive's members is wrong"):
            driver("import", members, stdin=text)


@pytest.mark.parametrize("report", [b"", b"{}", b'{"diff_id":"x"}', b'{"diff_id":7}'])
def test_a_report_that_lies(report):
    with pytest.raises(Refused, match="report of an unpacked layer is wrong"):
        driver("check", digest(BASE), stdin=report)
