# SPDX-License-Identifier: Apache-2.0
"""The layer format: what hermes-layer writes and reads back."""
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile

import fileslib
import pytest

from layerlib import (DONE, END, FAILED, PROGRAM, REFUSED, USAGE, call, drop, give, listing, member, packed, raw, tar, unpack,
                      unpacked, zipped)

SYM, DIR, LNK = tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE


def make_tree(top):
    """Things of every kind, with owners, modes and times that a layer does not keep."""
    (top / "bin").mkdir()
    (top / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
    (top / "bin" / "tool").chmod(0o4711)
    (top / "a").mkdir(mode=0o700)
    (top / "a" / "x").write_bytes(b"x" * 1000)
    (top / "a" / "x").chmod(0o600)
    os.link(top / "a" / "x", top / "a" / "y")
    (top / "a-b").write_bytes(b"")
    (top / "link").symlink_to("/etc/passwd")
    (top / "far").symlink_to("t/" * 150)
    long = top / ("d" * 200) / ("e" * 200)
    long.mkdir(parents=True)
    (long / "f").write_bytes(b"deep")
    (top / "ümlaut \n\\").write_bytes(b"name")
    os.mkfifo(top / "fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(top / "sock"))


def names(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        return [m.name + ("/" if m.isdir() else "") for m in t]


def test_canonical(area):
    """Sorted by the bytes of the path, owner 0, two modes, one time, no fifo, no socket."""
    top = area / "tree"
    top.mkdir()
    make_tree(top)
    done = subprocess.run([PROGRAM, "pack", top], capture_output=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as t:
        members = t.getmembers()
    found = names(done.stdout)
    assert found == sorted(found, key=os.fsencode)
    assert found.index("a-b") < found.index("a/")
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 315532800)}
    modes = {m.name: m.mode for m in members}
    assert modes["bin/tool"] == 0o755 and modes["a"] == 0o755 and modes["a/x"] == 0o644
    assert {m.type for m in members} == {tarfile.REGTYPE, DIR, SYM}, "hard links are files, fifo and socket are gone"
    assert modes.keys() >= {"a/x", "a/y", "ümlaut \n\\", "far"} and not modes.keys() & {"fifo", "sock"}


def test_same_bytes_whatever_the_order(area):
    """The order of creation, times and umask leave no trace. Control: other content does."""
    digests = []
    for order in ("abc", "cba", "abx"):
        top = area / order
        top.mkdir()
        for name in order:
            (top / name).write_bytes(b"1")
            os.utime(top / name, (len(digests), len(digests)))
        digests.append(hashlib.sha256(packed(top)).hexdigest())
    assert digests[0] == digests[1] != digests[2]


def test_pack_unpack_pack(area, layer):
    """What was packed once stays the same for ever, in every packing."""
    top = area / "tree"
    top.mkdir()
    make_tree(top)
    first = subprocess.run([PROGRAM, "pack", top], capture_output=True).stdout
    zstd = subprocess.run(["zstd", "-q", "-c"], input=first, stdout=subprocess.PIPE).stdout
    for i, data in enumerate((first, zipped(first), zstd, zipped(first[:512]) + zipped(first[512:]))):
        to = give(layer / str(i))
        report = unpacked(to, data)
        assert packed(to) == first
        assert report["diff_id"] == "sha256:" + hashlib.sha256(first).hexdigest()
        assert {os.lstat(p).st_mtime for p in to.rglob("*") if p.is_symlink() or not p.is_dir()} == {315532800.0}


def test_deletions_come_back(layer):
    first = tar(member(".wh.gone"), member("d/", DIR, mode=0o755), member("d/.wh.x"), member("o/", DIR, mode=0o755),
                member("o/.wh..wh..opq"), member("o/new", data=b"1"))
    report = unpacked(layer, first)
    assert report["deletions"] == 3
    again = packed(layer)
    assert names(again) == [".wh.gone", "d/", "d/.wh.x", "o/", "o/.wh..wh..opq", "o/new"]
    second = give(layer.parent / "second")
    unpacked(second, again)
    assert packed(second) == again


def overlay_shows(area, layers):
    """What an overlay shows that is mounted as the spawner does it. The first layer is the top."""
    (area / "seen").mkdir(exist_ok=True)
    script = 'mount -t overlay -o "ro,userxattr,lowerdir=$1" o "$2" && cd "$2" && find . -mindepth 1 | LC_ALL=C sort'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", ":".join(map(str, layers)), str(area / "seen")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line[2:] for line in done.stdout.splitlines()]


CASES = {
    "a file": ([member(".wh.f")], ["d", "d/a", "d/b"]),
    "a directory": ([member(".wh.d")], ["f"]),
    "one of two": ([member("d/.wh.a")], ["d", "d/b", "f"]),
    "opaque": ([member("d/.wh..wh..opq"), member("d/n")], ["d", "d/n", "f"]),
    "opaque last": ([member("d/n"), member("d/.wh.a"), member("d/.wh..wh..opq")], ["d", "d/n", "f"]),
    "opaque first": ([member("d/.wh..wh..opq"), member("d/.wh.a"), member("d/n")], ["d", "d/n", "f"]),
    "deleted and made again": ([member(".wh.d"), member("d/n")], ["d", "d/n", "f"]),
    "made and deleted": ([member("d/n"), member(".wh.d")], ["d", "d/n", "f"]),
    "file made again": ([member("f", data=b"1"), member(".wh.f")], ["d", "d/a", "d/b", "f"]),
    "deleted with its content": ([member(".wh.d"), member("d/.wh.a")], ["f"]),
    "directory becomes a file, content deleted": ([member("d", data=b"1"), member("d/.wh.a")], ["d", "f"]),
    "directory becomes a file": ([member("d", data=b"1")], ["d", "f"]),
}


@pytest.mark.parametrize("case", CASES)
def test_overlay_understands(area, as_root, case):
    """What a layer deletes is gone in the overlay. Control: without the layer it is there."""
    members, shown = CASES[case]
    below, above = give(area / "below"), give(area / "above")
    unpacked(below, tar(member("d/a"), member("d/b"), member("f")))
    unpacked(above, tar(*members))
    empty = give(area / "empty")
    assert overlay_shows(area, [empty, below]) == ["d", "d/a", "d/b", "f"]
    assert overlay_shows(area, [above, below]) == shown
    assert overlay_shows(area, [empty, above, below]) == shown


def test_deletions_of_an_upper_directory(area, as_root):
    """A build leaves the other form, devices 0/0, in its upper directory."""
    top = area / "upper"
    top.mkdir()
    os.mknod(top / "gone", 0o020000, os.makedev(0, 0))
    os.mknod(top / "null", 0o020666, os.makedev(1, 3))
    (top / "o").mkdir()
    os.setxattr(top / "o", "user.overlay.opaque", b"y")
    os.mknod(top / "o" / "pointless", 0o020000, os.makedev(0, 0))
    assert names(packed(top)) == [".wh.gone", "o/", "o/.wh..wh..opq"]


def test_old_kernel_refuses_deletions(layer):
    """Before Linux 6.7 overlayfs would show a deletion as an empty file. Control: a file is no deletion."""
    old = ("setarch", "--uname-2.6")
    done = unpack(layer, tar(member(".wh.gone")), before=old)
    assert done.returncode == REFUSED and b"6.7" in done.stderr
    assert unpack(layer, tar(member("gone")), before=old).returncode == DONE


def test_leave_out(area):
    top = area / "tree"
    for name in ("var/cache/apt/x", "var/lib/y", "home/.cache/z", "deep/a/.cache/z", "kept"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(b"")
    assert "var/cache/apt/x" in names(packed(top)), "the control"
    left = names(packed(top, "--leave-out", "var/cache", "--leave-out", "**/.cache"))
    assert left == ["deep/", "deep/a/", "home/", "kept", "var/", "var/lib/", "var/lib/y"]


def test_pack_refuses_names_of_deletions(area):
    top = area / "tree"
    top.mkdir()
    (top / "wh.x").write_bytes(b"")
    packed(top)
    (top / ".wh.x").write_bytes(b"")
    done = call("pack", top)
    assert done.returncode == REFUSED and b".wh." in done.stderr


def test_what_a_layer_does_not_keep(layer):
    """Set-id bits, owners, modes, times and attributes are dropped, devices left out, and counted."""
    report = unpacked(layer, tar(
        member("su", data=b"x", mode=0o6755, uid=1, mtime=99), member("secret", data=b"x", mode=0o600),
        member("c", tarfile.CHRTYPE, dev=(1, 3)), member("b", tarfile.BLKTYPE, dev=(254, 0)), member("p", tarfile.FIFOTYPE),
        member("cap", data=b"x", pax={"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.user.a": "b"})))
    assert report["left_out"] == {"devices": 3, "attributes": 2, "set_ids": 1}
    assert listing(layer) == {"su": ("0o100755", b"x", ()), "secret": ("0o100644", b"x", ()), "cap": ("0o100644", b"x", ())}


def test_old_formats(layer):
    """GNU's long names, the prefix of ustar, and v7, which has neither."""
    long = "n" * 90 + "/" + "m" * 90
    for i, data in enumerate((tar(member(long, data=b"1"), form=tarfile.GNU_FORMAT),
                              tar(member(long, data=b"1"), form=tarfile.USTAR_FORMAT),
                              tar(member(long, data=b"1")),
                              raw(b"pre", b"g", b"10 path=x\n") + raw(long[91:].encode(), b"0", b"1", prefix=b"n" * 90) + END)):
        to = give(layer / str(i))
        unpacked(to, data)
        assert (to / long).read_bytes() == b"1"
    to = give(layer / "v7")
    unpacked(to, raw(b"d/", b"\0", magic=b"\0" * 8) + raw(b"d/f", b"\0", b"1", magic=b"\0" * 8) + END)
    assert (to / "d" / "f").read_bytes() == b"1"


def test_usage(layer):
    assert call("--help").returncode == DONE and b"unpack DIR" in call("--help").stdout
    for args in ((), ("pack",), ("unpack", layer), ("unpack", layer, "--max-bytes", "1"), ("pack", layer, "--max-bytes", "1"),
                 ("unpack", layer, "--max-bytes", "-1", "--max-entries", "1"), ("eat", layer), ("pack", layer, "--leave-out")):
        done = call(*args)
        assert done.returncode == USAGE and done.stderr.startswith(b"usage:"), args
    assert call("pack", layer / "missing").returncode == FAILED


def test_disk_full(area, as_root):
    """A full disk is the machine's fault, and said so."""
    script = 'mount -t tmpfs -o size=64k,mode=777 t "$1" && exec setpriv --reuid 65534 "$2" unpack "$1" --max-bytes 9999999 --max-entries 9'
    data = tar(member("big", data=b"x" * 500000))
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", str(give(area / "small")), str(PROGRAM)], input=data,
                          capture_output=True)
    assert done.returncode == FAILED and b"No space left" in done.stderr
    assert unpack(give(area / "large"), data).returncode == DONE


def test_in_a_box(area):
    """The program needs no right that a box lacks, and no file of its root tree."""
    shared = area / "shared"
    shared.mkdir()
    (shared / "hermes-layer").write_bytes(PROGRAM.read_bytes())
    (shared / "hermes-layer").chmod(0o755)
    (shared / "in.tar").write_bytes(zipped(tar(member("d/.wh.x"), member("o/.wh..wh..opq"), member("o/f", data=b"1"),
                                               member("l", SYM, link="f"), member("h", data=b"2"), member("i", LNK, link="h"))))
    script = ("cd /mnt/s && mkdir tree && ./hermes-layer unpack tree --max-bytes 1000 --max-entries 100 < in.tar &&"
              " ./hermes-layer pack tree > out.tar && ldd ./hermes-layer 2>&1 | head -1")
    answer = fileslib.run("--rw", "%s:/mnt/s" % shared, "-l", "bash", "-", stdin=script)
    assert answer["status"] == "ok", answer
    assert json.loads(answer["stdout"].splitlines()[0])["deletions"] == 2
    assert names((shared / "out.tar").read_bytes()) == ["d/", "d/.wh.x", "h", "i", "l", "o/", "o/.wh..wh..opq", "o/f"]


def test_runs_as_nobody():
    """The control of the rights that these tests give the program."""
    if os.geteuid() != 0:
        pytest.skip("needs root, which it drops")
    done = subprocess.run(["id", "-u"], capture_output=True, preexec_fn=drop)
    assert done.stdout == b"65534\n"


@pytest.mark.skipif(not os.environ.get("HERMES_FULL"), reason="makes 200,000 files; HERMES_FULL=1")
def test_names_take_so_much_memory_at_most(area):
    """A server packs layers of strangers. Control: half of the names are packed."""
    top = area / "many"
    top.mkdir()
    for i in range(100000):
        (top / ("%0250d" % i)).touch()
    assert call("pack", area).returncode == DONE
    for i in range(100000, 200000):
        (top / ("%0250d" % i)).touch()
    done = call("pack", area)
    assert done.returncode == REFUSED and b"too many names" in done.stderr, done.stderr
