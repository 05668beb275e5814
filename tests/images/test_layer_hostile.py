# SPDX-License-Identifier: Apache-2.0
"""Archives that try something. Each has a control: the archive with its sting taken out is unpacked, so it was the sting that
was refused; and for those that aim at a place outside, a program that believes archives does hit it."""
import io
import os
import random
import subprocess
import tarfile
import zlib

import pytest

from layerlib import (DONE, END, MAX_BYTES, REFUSED, call, drop, give, listing, member, packed, pax_raw, raw, tar, unpack,
                      unpacked, zipped)

SYM, DIR, LNK, CHR, BLK, FIFO = (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE,
                                 tarfile.FIFOTYPE)
DEEP = "d/" * 127 + "f"  # 128 levels


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c", "-1"], input=data, stdout=subprocess.PIPE).stdout


def bomb(size):
    """A gzip stream of one file full of zeros, without ever having it in memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = packer.compress(raw(b"big", size=b"%011o\0" % size))
    for _ in range(size >> 20):
        out += packer.compress(b"\0" * (1 << 20))
    return out + packer.compress(END) + packer.flush()


# name: (archive, a word of the message, the same without the sting)
REFUSALS = {
    "dot dot": (tar(member("../evil", data=b"x")), b"out of the layer", tar(member("evil", data=b"x"))),
    "dot dot inside": (tar(member("a/", DIR, mode=0o755), member("a/../../evil", data=b"x")), b"out of the layer", tar(member("a/evil", data=b"x"))),
    "dot dot at the end": (tar(member("a/..", SYM, link="x")), b"out of the layer", tar(member("a/..x", SYM, link="x"))),
    "dot dot in a pax path": (pax_raw((b"path", b"../evil")) + raw(b"ok") + END, b"out of the layer",
                              pax_raw((b"path", b"evil")) + raw(b"ok") + END),
    "dot dot in a prefix": (raw(b"evil", prefix=b"a/../..") + END, b"out of the layer", raw(b"evil", prefix=b"a") + END),
    "through a link": (tar(member("a", SYM, link="/tmp"), member("a/evil", data=b"x")), b"behind a link",
                       tar(member("b", SYM, link="/tmp"), member("a/evil", data=b"x"))),
    "through a relative link": (tar(member("a", SYM, link="../.."), member("a/evil", data=b"x")), b"behind a link",
                                tar(member("a", SYM, link="../.."), member("b/evil", data=b"x"))),
    "through a link inside": (tar(member("d/f"), member("a", SYM, link="d"), member("a/evil")), b"behind a link",
                              tar(member("d/f"), member("a", SYM, link="d"), member("d/evil"))),
    "a directory over a link": (tar(member("a", SYM, link="/tmp"), member("a/", DIR), member("a/evil")), b"behind a link",
                                tar(member("a/", DIR), member("a/evil"))),
    "behind a file": (tar(member("a", data=b"x"), member("a/evil")), b"behind a file", tar(member("a/evil"))),
    "a link over a directory": (tar(member("a/f"), member("a", SYM, link="/tmp"), member("a/evil")), b"directory of that name",
                                tar(member("a/f"), member("b", SYM, link="/tmp"), member("a/evil"))),
    "a file over a directory": (tar(member("a/f"), member("a", data=b"x")), b"directory of that name", tar(member("a", data=b"x"))),
    "hard link to /etc/passwd": (tar(member("a", LNK, link="/etc/passwd")), b"not a file of this archive",
                                 tar(member("etc/passwd"), member("a", LNK, link="/etc/passwd"))),
    "hard link out": (tar(member("a", LNK, link="../../../etc/passwd")), b"out of the layer",
                      tar(member("p"), member("a", LNK, link="p"))),
    "hard link to a link": (tar(member("a", SYM, link="/etc/passwd"), member("b", LNK, link="a")), b"not a file of this archive",
                            tar(member("a"), member("b", LNK, link="a"))),
    "hard link through a link": (tar(member("a", SYM, link="/etc"), member("b", LNK, link="a/passwd")), b"behind a link",
                                 tar(member("a/passwd"), member("b", LNK, link="a/passwd"))),
    "hard link to a directory": (tar(member("a/", DIR), member("b", LNK, link="a")), b"not a file of this archive",
                                 tar(member("a"), member("b", LNK, link="a"))),
    "hard link to a deletion": (tar(member(".wh.a"), member("b", LNK, link="a")), b"not a file of this archive",
                                tar(member(".wh.a"), member("a"), member("b", LNK, link="a"))),
    "hard link to itself": (tar(member("a"), member("a", LNK, link="./a")), b"itself", tar(member("a"), member("b", LNK, link="./a"))),
    "hard link to what comes later": (tar(member("b", LNK, link="a"), member("a")), b"so far", tar(member("a"), member("b", LNK, link="a"))),
    "hard link with content": (raw(b"a") + raw(b"b", b"1", b"x", link=b"a") + END, b"content", raw(b"a") + raw(b"b", b"1", link=b"a") + END),
    "deletion of nothing": (tar(member(".wh.")), b"of nothing", tar(member(".wh.a"))),
    "deletion of a dot": (tar(member("a/.wh..")), b"of nothing", tar(member("a/.wh..a"))),
    "deletion of ..": (tar(member("a/.wh...")), b"of nothing", tar(member("a/.wh....a"))),
    "deletion that is a directory": (tar(member(".wh.a/", DIR)), b"not a file", tar(member(".wh.a"))),
    "deletion that is a link": (tar(member(".wh.a", SYM, link="/etc")), b"not a file", tar(member("a", SYM, link="/etc"))),
    "something below a deletion": (tar(member(".wh.a/b")), b"behind a deletion", tar(member("wh.a/b"))),
    "opaque at the top": (tar(member(".wh..wh..opq")), b"whole image", tar(member("a/.wh..wh..opq"))),
    "opaque that is a link": (tar(member("a/.wh..wh..opq", SYM, link="x")), b"not a file", tar(member("a/.wh..wh..opq"))),
    "link without a target": (raw(b"a", b"2") + END, b"without a target", raw(b"a", b"2", link=b"x") + END),
    "file without a name": (raw(b".", b"0", b"x") + END, b"without a name", raw(b".", b"5") + END),
    "name of 256 bytes": (tar(member("n" * 256)), b"255 bytes", tar(member("n" * 255))),
    "path of 4096 bytes": (tar(member("/".join(["n" * 255] * 16 + ["n"]))), b"longer than 4095",
                           tar(member("/".join(["n" * 255] * 15 + ["n" * 200])))),
    "link of 4096 bytes": (tar(member("a", SYM, link="n/" * 2048)), b"longer than 4095", tar(member("a", SYM, link="n/" * 2047))),
    "129 levels": (tar(member("d/" + DEEP)), b"too many levels", tar(member(DEEP))),
    "too many entries": (tar(*[member("f%d" % i) for i in range(2001)]), b"more entries", tar(*[member("f%d" % i) for i in range(2000)])),
    "too many implied directories": (tar(*[member("%d/a/b/c/f" % i) for i in range(500)]), b"more entries",
                                     tar(*[member("%d/a/b/c/f" % i) for i in range(400)])),
    "too large": (tar(member("a", data=b"x" * (MAX_BYTES + 1))), b"more bytes", tar(member("a", data=b"x" * MAX_BYTES))),
    "too large by hard links": (tar(member("a", data=b"x" * (1 << 20)), *[member("l%d" % i, LNK, link="a") for i in range(4)]), b"more bytes",
                                tar(member("a", data=b"x" * (1 << 20)), *[member("l%d" % i, LNK, link="a") for i in range(3)])),
    "size of 2^50": (raw(b"a", size=b"\x80" + (1 << 50).to_bytes(11, "big")) + END, b"more bytes", raw(b"a", size=b"\x80" + (0).to_bytes(11, "big")) + END),
    "size of 2^64": (raw(b"a", size=b"\x80" + (1 << 64).to_bytes(11, "big")) + END, b"size is not a number", raw(b"a", size=b"\x80" + bytes(11)) + END),
    "size below zero": (raw(b"a", size=b"\xff" * 12) + END, b"size is not a number", raw(b"a", size=b"0" * 11 + b"\0") + END),
    "size that is a word": (raw(b"a", size=b"12x") + END, b"size is not a number", raw(b"a", b"0", b"0123456789", size=b"12 ") + END),
    "pax size against the header": (pax_raw((b"size", b"4611686018427387904")) + raw(b"a", b"0", b"x") + END, b"more bytes",
                                    pax_raw((b"size", b"1")) + raw(b"a", b"0", b"x") + END),
    "pax size that is a word": (pax_raw((b"size", b"-1")) + raw(b"a", b"0", b"x") + END, b"size is not a number",
                                pax_raw((b"size", b"1")) + raw(b"a", b"0", b"x") + END),
    "pax path twice": (pax_raw((b"path", b"a"), (b"path", b"b")) + raw(b"c") + END, b"twice", pax_raw((b"path", b"a")) + raw(b"c") + END),
    "pax path and a long name": (pax_raw((b"path", b"a")) + raw(b"l", b"L", b"b\0") + raw(b"c") + END, b"twice", raw(b"l", b"L", b"b\0") + raw(b"c") + END),
    "two pax headers": (pax_raw((b"path", b"a")) + pax_raw((b"mtime", b"1")) + raw(b"c") + END, b"twice",
                        pax_raw((b"path", b"a"), (b"mtime", b"1")) + raw(b"c") + END),
    "pax path with a NUL": (pax_raw((b"path", b"a\0b")) + raw(b"c") + END, b"NUL", pax_raw((b"path", b"a b")) + raw(b"c") + END),
    "pax length that lies": (raw(b"x", b"x", b"99 path=a\n") + raw(b"c") + END, b"wrong length", raw(b"x", b"x", b"10 path=a\n") + raw(b"c") + END),
    "pax length of zero": (raw(b"x", b"x", b"0 path=a\n") + raw(b"c") + END, b"wrong length", raw(b"x", b"x", b"10 path=a\n") + raw(b"c") + END),
    "pax without a key": (raw(b"x", b"x", b"6 abc\n") + raw(b"c") + END, b"no key", raw(b"x", b"x", b"6 a=c\n") + raw(b"c") + END),
    "pax of 2 MiB": (pax_raw((b"comment", b"x" * (2 << 20))) + raw(b"c") + END, b"too large", pax_raw((b"comment", b"x" * 1000)) + raw(b"c") + END),
    "pax without an entry": (raw(b"a") + pax_raw((b"path", b"b")) + END, b"no entry", raw(b"a") + END),
    "sparse by pax": (tar(member("s", data=b"x", pax={"GNU.sparse.major": "1", "GNU.sparse.realsize": str(1 << 50)})), b"sparse", tar(member("s", data=b"x"))),
    "sparse by type": (raw(b"s", b"S") + END, b"sparse", raw(b"s") + END),
    "unknown type": (raw(b"s", b"V") + END, b"unknown type", raw(b"s") + END),
    "wrong sum": (raw(b"s", sum_=1) + END, b"sum of a header", raw(b"s") + END),
    "directory with content": (raw(b"d/", b"5", b"x") + END, b"content", raw(b"d/", b"5") + END),
    "cut in a header": (raw(b"a")[:300], b"too early", raw(b"a") + END),
    "cut in content": (raw(b"a", b"0", b"x" * 2000)[:1024], b"too early", raw(b"a", b"0", b"x" * 2000) + END),
    "cut between entries": (raw(b"a") + raw(b"b"), b"end mark", raw(b"a") + raw(b"b") + END),
    "nothing": (b"", b"end mark", END),
    "no tar": (b"\x7fELF" * 400, b"sum of a header", END),
    "gzip cut": (zipped(tar(member("a", data=os.urandom(5000))))[:-30], b"too early", zipped(tar(member("a", data=b"x" * 5000)))),
    "gzip with something behind": (zipped(END) + b"rest", b"damaged", zipped(END) + zipped(END)),
    "gzip with a wrong sum": (zipped(tar(member("a")))[:-8] + b"\0" * 8, b"damaged", zipped(tar(member("a")))),
    "zstd cut": (zstd(tar(member("a", data=os.urandom(5000))))[:-30], b"too early", zstd(tar(member("a", data=b"x" * 5000)))),
    "zstd with something behind": (zstd(END) + b"rest", b"zstd", zstd(END) + zstd(END)),
    "xz": (b"\xfd7zXZ\0" + bytes(600), b"only gzip, zstd", END),
    "bzip2": (b"BZh9" + bytes(600), b"only gzip, zstd", END),
    "gzip in gzip": (zipped(zipped(tar(member("a")))), b"not a tar", zipped(tar(member("a")))),
    "gzip bomb in a file": (bomb(1 << 30), b"more bytes", bomb(4 << 20)),
    "gzip bomb behind the end": (zipped(END + bytes(64 << 20)), b"more bytes", zipped(END + bytes(1 << 20))),
    "zstd bomb behind the end": (zstd(END + bytes(64 << 20)), b"more bytes", zstd(END + bytes(1 << 20))),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused(area, layer, case):
    hostile, word, harmless = REFUSALS[case]
    assert unpack(give(area / "control"), harmless).returncode == DONE, "the control"
    before = set(os.listdir("/tmp"))
    done = unpack(layer, hostile)
    assert done.returncode == REFUSED and word in done.stderr, done.stderr
    assert done.stderr.startswith(b"hermes-layer: ") and done.stderr.count(b"\n") == 1 and not done.stdout
    assert sorted(os.listdir(area)) == ["control", "in"] and os.listdir(layer.parent) == ["layer"]
    assert os.listdir(area / "in") == ["deep"] and "evil" not in set(os.listdir("/tmp")) - before


def believe(top, data):
    """Unpacks as a program does that believes archives, with the rights of nobody."""
    def extract():
        drop()
        os.chdir(top)
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            for m in t:
                t.extract(m, set_attrs=False)
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        try:
            extract()
        finally:
            os._exit(1)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("case", ["dot dot", "dot dot inside", "dot dot in a pax path", "through a relative link"])
def test_these_do_reach_out(area, layer, case):
    """The control of the places that the test above looks at."""
    os.chmod(area / "in" / "deep", 0o777)
    os.chmod(area / "in", 0o777)
    believe(layer, REFUSALS[case][0])
    assert "evil" in os.listdir(layer.parent) + os.listdir(area / "in"), case


# What is taken, but not as the archive would like it. name: (archive, the tree that it makes)
TAKEN = {
    "absolute": (tar(member("/evil-abs", data=b"x")), {"evil-abs": b"x"}),
    "over a link": (tar(member("a", SYM, link="/tmp/evil-target"), member("a", data=b"x")), {"a": b"x"}),
    "a link over a file": (tar(member("a", data=b"x"), member("a", SYM, link="/tmp")), {"a": "/tmp"}),
    "the same file twice": (tar(member("a", data=b"long first"), member("a", data=b"2")), {"a": b"2"}),
    "over a hard link": (tar(member("a", data=b"1"), member("b", LNK, link="a"), member("b", data=b"2")), {"a": b"1", "b": b"2"}),
    "a directory twice": (tar(member("d/", DIR), member("d/f"), member("./d//", DIR)), {"d": None, "d/f": b""}),
    "devices": (tar(member("null", CHR, dev=(1, 3)), member("disk", BLK, dev=(254, 0)), member("f", FIFO)), {}),
    "a deletion behind a link": (tar(member("a", SYM, link="/tmp"), member("a/.wh.x"), member("a/b/.wh..wh..opq")), {"a": "/tmp"}),
    "a deletion behind a file": (tar(member("a", data=b"x"), member("a/.wh.x"), member("a/b/.wh.x")), {"a": b"x"}),
    "a deletion as a device": (tar(member("usr", CHR, dev=(0, 0))), {}),
    "signs of aufs": (tar(member(".wh..wh.plnk/", DIR), member(".wh..wh.aufs")), {}),
    "set-id": (tar(member("su", data=b"x", mode=0o7777)), {"su": b"x"}),
    "attributes of overlayfs": (tar(member("a", data=b"", pax={"SCHILY.xattr.user.overlay.whiteout": "y", "SCHILY.xattr.trusted.overlay.redirect": "/etc"}),
                                    member("d/", DIR, pax={"SCHILY.xattr.user.overlay.opaque": "y", "LIBARCHIVE.xattr.user.overlay.redirect": "L2V0Yw"})),
                                {"a": b"", "d": None}),
    "newline and escape": (tar(member("a\n\x1b[31mb", data=b"x")), {"a\n\x1b[31mb": b"x"}),
    "bytes that are no UTF-8": (raw(b"\xff\xfe", b"0", b"x") + END, {os.fsdecode(b"\xff\xfe"): b"x"}),
    "a name like gzip": (raw(b"\x1f\x8b\x08") + END, {os.fsdecode(b"\x1f\x8b\x08"): b""}),
    "a name like zstd": (raw(b"\x28\xb5\x2f\xfd") + END, {os.fsdecode(b"\x28\xb5"): None, os.fsdecode(b"\x28\xb5/\xfd"): b""}),
    "a name like xz": (raw(b"\xfd7zXZ") + END, {os.fsdecode(b"\xfd7zXZ"): b""}),
    "global header": (raw(b"g", b"g", b"16 path=../evil\n") + raw(b"a") + END, {"a": b""}),
    "behind the end": (raw(b"a") + END + raw(b"../evil", b"0", b"x"), {"a": b""}),
    "mode of all ones": (raw(b"a", mode=b"7777777\0") + END, {"a": b""}),
}


@pytest.mark.parametrize("case", TAKEN)
def test_taken(layer, case):
    data, tree = TAKEN[case]
    unpacked(layer, data)
    found = listing(layer)
    assert {name: what for name, (_, what, _) in found.items()} == tree
    assert all(not attributes for _, _, attributes in found.values())
    assert {mode for mode, _, _ in found.values()} <= {"0o100644", "0o100755", "0o40755", "0o120777"}
    first = packed(layer)
    second = give(layer.parent / "second")
    unpacked(second, first)
    assert packed(second) == first


def test_messages_show_no_control_characters(layer):
    done = unpack(layer, tar(member("a\n\x1b[31m/../b")))
    assert done.returncode == REFUSED and b"\\x0a\\x1b[31m" in done.stderr and b"\x1b" not in done.stderr


def test_flipped_bits(area):
    """A changed archive is taken or refused; the program never fails, and nothing appears outside."""
    top = area / "in"
    source = tar(member("d/", DIR), member("d/f", data=b"x" * 600), member("l", SYM, link="d/f"), member("h", LNK, link="d/f"),
                 member("n" * 120, data=b"1"), member(".wh.x"), member("o/.wh..wh..opq"))
    seed = random.Random(17)
    forms = [source, zipped(source), zstd(source)]
    seen = set()
    for i in range(150):
        data = bytearray(forms[i % 3])
        for _ in range(seed.randrange(1, 4)):
            data[seed.randrange(len(data))] ^= 1 << seed.randrange(8)
        done = unpack(give(top / str(i) / "layer"), bytes(data))
        assert done.returncode in (DONE, REFUSED), (i, done)
        assert os.listdir(top / str(i)) == ["layer"]
        seen.add(done.returncode)
    assert seen == {DONE, REFUSED}


def test_cut_anywhere(area):
    """No piece of an archive is taken for the whole. Control: the whole is taken."""
    source = raw(b"d/", b"5") + raw(b"d/f", b"0", b"x" * 600) + END
    for form in (source, zipped(source), zstd(source)):
        assert unpack(give(area / str(len(form))), form).returncode == DONE
        end = len(form) - (1024 if form is source else 0)
        for size in range(0, end, max(1, end // 25)):
            done = unpack(give(area / ("%d-%d" % (len(form), size))), form[:size])
            assert done.returncode == REFUSED, (size, done)


def test_deep_trees_are_refused_by_pack(area):
    top = area / "tree"
    (top / ("d/" * 128)).mkdir(parents=True)
    packed(top)
    (top / ("d/" * 129)).mkdir()
    done = call("pack", top)
    assert done.returncode == REFUSED and b"too deep" in done.stderr
