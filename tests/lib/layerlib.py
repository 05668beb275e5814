# SPDX-License-Identifier: Apache-2.0
"""Calls hermes-layer with the rights of an ordinary user, and makes archives for it."""
import gzip
import io
import json
import os
import pathlib
import subprocess
import tarfile

from runlib import BUILD

PROGRAM = BUILD / "hermes-layer"
NOBODY = 65534
MAX_BYTES, MAX_ENTRIES = 4 << 20, 2000
DONE, REFUSED, USAGE, FAILED = 0, 1, 2, 3


def drop():
    """Root would be allowed what a box is not."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def call(*args, stdin=b"", before=()):
    return subprocess.run([*before, str(PROGRAM), *map(str, args)], input=stdin, capture_output=True,
                          timeout=300, preexec_fn=drop)


def give(path):
    """Makes a directory that the program may write into."""
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    return path


def unpack(path, data, max_bytes=MAX_BYTES, max_entries=MAX_ENTRIES, before=()):
    return call("unpack", path, "--max-bytes", max_bytes, "--max-entries", max_entries, stdin=data, before=before)


def unpacked(path, data, **limits):
    """The report of an archive that must be taken."""
    done = unpack(path, data, **limits)
    assert done.returncode == DONE, done.stderr
    return json.loads(done.stdout)


def packed(path, *args):
    done = call("pack", path, *args)
    assert done.returncode == DONE, done.stderr
    return done.stdout


def member(name, kind=tarfile.REGTYPE, data=b"", link="", mode=0o644, dev=(0, 0), pax=None, mtime=0, uid=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(data)
    info.devmajor, info.devminor = dev
    info.pax_headers = pax or {}
    info.mtime, info.uid = mtime, uid
    return info, data


def tar(*members, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as t:
        for info, data in members:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def raw(name, kind=b"0", data=b"", size=None, link=b"", prefix=b"", magic=b"ustar\x0000", sum_=None, mode=b"0000644\0"):
    """One entry whose header is written field by field, for what tarfile would not write."""
    size = b"%011o\0" % len(data) if size is None else size
    head = (name.ljust(100, b"\0") + mode + b"0000000\0" * 2 + size.ljust(12, b"\0") + b"%011o\0" % 0 + b" " * 8 + kind +
            link.ljust(100, b"\0") + magic + b"\0" * 64 + b"0000000\0" * 2 + prefix.ljust(155, b"\0")).ljust(512, b"\0")
    head = head[:148] + (b"%06o\0 " % (sum(head) if sum_ is None else sum_)) + head[156:]
    return head + data + b"\0" * (-len(data) % 512)


def pax_raw(*records):
    """An extended header with these records, whose lengths are right."""
    text = b""
    for key, value in records:
        rest = len(key) + len(value) + 3
        size = rest + 1
        while size != rest + len(str(size)):
            size += 1
        text += b"%d %s=%s\n" % (size, key, value)
    return raw(b"pax", b"x", text)


END = b"\0" * 1024


def listing(top):
    """Every path below top, links not followed, with its kind, mode, content and attributes."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            what = os.readlink(path) if os.path.islink(path) else open(path, "rb").read() if os.path.isfile(path) else None
            found[os.path.relpath(path, top)] = (oct(st.st_mode), what, tuple(os.listxattr(path, follow_symlinks=False)))
    return found


def zipped(data):
    return gzip.compress(data, 1, mtime=0)
