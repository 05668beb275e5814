# SPDX-License-Identifier: Apache-2.0
"""A layer on top of others (docs/images.md). The layers below are in /base; what is installed is in /opt.

    base.py merge FILE TO    adds the dependencies of one package.json to another
    base.py pip              packages of /opt replace those of /base
    base.py npm              /opt began as a copy of /base: leaves what differs

A replaced or removed file of the layers below gets a deletion, in the form of src/layer/whiteout.h."""
import filecmp
import glob
import json
import os
import re
import sys

BASE, OPT = "/base", "/opt"


def merge(path, to):
    with open(path, encoding="utf-8") as file:
        new = json.load(file)
    with open(to, encoding="utf-8") as file:
        whole = json.load(file)
    for part, value in new.items():
        if isinstance(value, dict) and isinstance(whole.get(part), dict):
            whole[part].update(value)
        else:
            whole[part] = value
    with open(to, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=2, sort_keys=True)


def delete(path):
    """Hides a path of the layers below, relative to their top, unless the new layer has it."""
    mine = os.path.join(OPT, path)
    if os.path.lexists(mine) or not os.path.lexists(os.path.join(BASE, path)):
        return
    parent = os.path.dirname(mine)
    os.makedirs(parent, exist_ok=True)
    with open(mine, "x", encoding="utf-8"):
        pass
    try:
        os.setxattr(mine, "user.overlay.whiteout", b"y")
        os.setxattr(parent, "user.overlay.opaque", b"x")
    except OSError as problem:
        sys.exit("hermes: a package of the image below is replaced, which needs Linux 6.7: %s" % problem)


def name_of(info):
    return re.sub(r"[-_.]+", "-", os.path.basename(info).split("-")[0]).lower()


def dists(top):
    return {name_of(d): d for d in glob.glob(top + "/venv/lib/python3*/site-packages/*.dist-info")}


def recorded(info):
    """The files of a package, as its RECORD lists them, with their byte code."""
    site = os.path.relpath(os.path.dirname(info), BASE)
    try:
        with open(info + "/RECORD", encoding="utf-8") as file:
            names = [line.rsplit(",", 2)[0].strip('"') for line in file]
    except (OSError, UnicodeDecodeError):
        names = []
    for name in names:
        path = os.path.normpath(os.path.join(site, name))
        if path.startswith(("..", "/")):
            continue
        yield path
        if path.endswith(".py"):
            head, tail = os.path.split(path)
            for code in glob.glob("%s/__pycache__/%s.*.pyc" % (glob.escape(os.path.join(BASE, head)),
                                                              glob.escape(tail[:-3]))):
                yield os.path.relpath(code, BASE)


def replace_pip():
    below, new = dists(BASE), dists(OPT)
    for name in sorted(set(below) & set(new)):
        for path in sorted(recorded(below[name])):
            delete(path)
        if os.path.basename(below[name]) != os.path.basename(new[name]):
            delete_whole(os.path.relpath(below[name], BASE))
    drop_same("venv")


def delete_whole(path):
    """A directory that the new layer has only for deletions goes as a whole."""
    mine = os.path.join(OPT, path)
    if os.path.isdir(mine):
        for name in os.listdir(mine):
            os.unlink(os.path.join(mine, name))
        os.rmdir(mine)
    delete(path)


def same(mine, theirs):
    if os.path.islink(mine) or os.path.islink(theirs):
        return os.path.islink(mine) and os.path.islink(theirs) and os.readlink(mine) == os.readlink(theirs)
    return os.path.isfile(mine) and os.path.isfile(theirs) and os.path.getsize(mine) > 0 and \
        os.access(mine, os.X_OK) == os.access(theirs, os.X_OK) and filecmp.cmp(mine, theirs, shallow=False)


def drop_same(top):
    """Removes from the new layer all entries that the layers below have in the same form."""
    for at, dirs, files in os.walk(os.path.join(OPT, top), topdown=False):
        theirs = os.path.join(BASE, os.path.relpath(at, OPT))
        for name in files + [d for d in dirs if os.path.islink(os.path.join(at, d))]:
            if same(os.path.join(at, name), os.path.join(theirs, name)):
                os.unlink(os.path.join(at, name))
        if not os.listdir(at) and os.path.isdir(theirs):
            os.rmdir(at)


def replace_npm():
    for at, dirs, files in os.walk(BASE + "/node_modules"):
        mine = os.path.join(OPT, os.path.relpath(at, BASE))
        gone = [d for d in dirs if not os.path.lexists(os.path.join(mine, d))]
        for name in files + gone:
            delete(os.path.relpath(os.path.join(at, name), BASE))
        dirs[:] = [d for d in dirs if d not in gone and os.path.isdir(os.path.join(mine, d))]
    drop_same("node_modules")
    for name in "package.json", "package-lock.json":
        if same(os.path.join(OPT, name), os.path.join(BASE, name)):
            os.unlink(os.path.join(OPT, name))


if sys.argv[1] == "merge":
    merge(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "pip":
    replace_pip()
else:
    replace_npm()
