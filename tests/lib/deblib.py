# SPDX-License-Identifier: Apache-2.0
"""Debian packages written from nothing, a repository of them for apt, and a root file system with this host's apt and dpkg."""
import functools
import glob
import gzip
import hashlib
import io
import os
import tarfile

from layerlib import member, tar
from rootlib import base, copy, libraries

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def entry(name, data=b"", mode=0o644, uid=0, gid=0, kind=tarfile.REGTYPE, link=""):
    """A member of a package: unlike member() it may belong to anybody."""
    info = tarfile.TarInfo("./" + name)
    info.type, info.mode, info.uid, info.gid, info.size, info.linkname = kind, mode, uid, gid, len(data), link
    return info, data


def packed(entries):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(data.getvalue(), 1, mtime=0)


def ar(*members):
    data = b"!<arch>\n"
    for name, content in members:
        head = "%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, "100644", len(content))
        data += head.encode() + content + b"\n" * (len(content) % 2)
    return data


def deb(name, version, *files, depends="", **scripts):
    """(its paragraph of Packages without the place, the package)"""
    control = "Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: Nobody <nobody@example.com>\nDescription: a probe\n" \
        % (name, version, ARCH)
    if depends:
        control += "Depends: %s\n" % depends
    parts = [entry("control", control.encode())]
    parts += [entry(kind, b"#!/bin/sh\nset -e\n" + text.encode(), 0o755) for kind, text in scripts.items()]
    return control, ar(("debian-binary", b"2.0\n"), ("control.tar.gz", packed(parts)), ("data.tar.gz", packed(files)))


DIR = tarfile.DIRTYPE


def directories(*names):
    return [entry(name + "/", kind=DIR, mode=0o755) for name in names]


# hermes-deb has what ordinary packages have: files of other users, set-id files, a script that gives files away and adds to a
# file of the base. Version 2 replaces it. hermes-needs-deb depends on it.
def packages():
    for version in "1.0", "2.0":
        yield "hermes-deb", version, deb(
            "hermes-deb", version, *directories("usr", "usr/bin", "usr/share", "usr/share/hermes-deb", "etc"),
            entry("usr/bin/hermes-deb", b"#!/bin/sh\necho deb %s\n" % version.encode(), 0o755),
            entry("usr/bin/hermes-deb-root", b"#!/bin/sh\nid -u\n", 0o6755, gid=8),
            entry("usr/share/hermes-deb/secret", b"of mail\n", 0o640, uid=42, gid=8),
            entry("usr/share/hermes-deb/none", b"nobody reads it\n", 0o000),
            entry("var/", kind=DIR, mode=0o755), entry("var/hermes-deb/", kind=DIR, mode=0o2775, gid=50),
            entry("etc/hermes-deb.conf", b"conf\n"),
            postinst="chown 42:8 /usr/share/hermes-deb/secret\nchmod 4755 /usr/bin/hermes-deb-root\n"
                     "echo installed %s >>/etc/base-log\nln -f /usr/share/base-file /usr/share/hermes-deb/linked\n" % version,
            postrm="echo removed $1 >>/etc/base-log\n")
    yield "hermes-needs-deb", "1.0", deb("hermes-needs-deb", "1.0", *directories("usr", "usr/bin"),
                                         entry("usr/bin/hermes-needs-deb", b"#!/bin/sh\nhermes-deb\n", 0o755), depends="hermes-deb")


def repository(top="/apt/"):
    """From path to (type, bytes): what `deb [trusted=yes] http://HOST/apt ./` asks for."""
    listed, found = "", {}
    for name, version, (control, data) in packages():
        file = "%s_%s_%s.deb" % (name, version, ARCH)
        found[top + "./" + file] = found[top + file] = "application/octet-stream", data
        listed += control + "Filename: ./%s\nSize: %d\nSHA256: %s\n\n" % (file, len(data), hashlib.sha256(data).hexdigest())
    found[top + "./Packages"] = found[top + "Packages"] = "text/plain", listed
    return found


PROGRAMS = ["/usr/bin/apt-get", "/usr/bin/apt-config", "/usr/bin/dpkg", "/usr/bin/dpkg-deb", "/usr/bin/dpkg-split", "/usr/bin/tar",
            "/usr/bin/gzip", "/usr/bin/rm", "/usr/bin/cat", "/usr/bin/chown", "/usr/bin/chmod", "/usr/bin/ln", "/usr/bin/mkdir",
            "/usr/bin/ls", "/usr/bin/mv", "/usr/bin/stat", "/usr/bin/touch", "/usr/bin/cp", "/usr/bin/mknod", "/usr/bin/find",
            "/usr/bin/diff", "/usr/bin/dpkg-query", "/usr/bin/sleep",
            "/usr/sbin/start-stop-daemon", "/usr/sbin/ldconfig", *glob.glob("/usr/lib/apt/methods/*")]
# A program that dpkg looks for, and that need not do anything here.
STANDS_IN = {"/usr/sbin/ldconfig", "/usr/sbin/start-stop-daemon"}


@functools.lru_cache
def apt_base():
    found = {}
    for program in PROGRAMS:
        if program in STANDS_IN:
            found[program] = member(program.lstrip("/"), data=b"#!/bin/sh\nexit 0\n", mode=0o755)
            continue
        if not os.path.exists(program):
            continue
        found[program] = copy(os.path.realpath(program), program.lstrip("/"))
        for path in libraries(program):
            name = ("" if path.startswith("/usr/") else "/usr") + path
            found[name] = copy(os.path.realpath(path), name.lstrip("/"))
    for path in glob.glob("/usr/share/dpkg/*"):
        if os.path.isfile(path):
            found[path] = copy(path, path.lstrip("/"))
    return list(found.values())


def apt_root(url, *more, has_python=True):
    """A tar of a root with apt, whose packages are at url."""
    empty = [member(name + "/", DIR) for name in (
        "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg/info", "var/lib/dpkg/updates",
        "var/lib/dpkg/triggers", "var/log/apt", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "root")]
    files = {"etc/apt/sources.list": "deb [trusted=yes] %s ./\n" % url, "var/lib/dpkg/status": "", "var/lib/dpkg/available": "",
             "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nmail:x:8:8:mail:/:/bin/sh\n", "etc/group": "root:x:0:\nmail:x:8:\n",
             "etc/base-log": "base\n", "usr/share/base-file": "of the base\n", "usr/share/base-gone": "to be removed\n",
             "usr/share/base-dir/a": "a\n", "usr/share/base-dir/b": "b\n"}
    links = [member("sbin", tarfile.SYMTYPE, link="usr/sbin")]
    return tar(*base(has_python), *links, *apt_base(), *empty,
               *[member(name, data=text.encode()) for name, text in files.items()], *more)
