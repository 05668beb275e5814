# SPDX-License-Identifier: Apache-2.0
"""Makes a small root file system from programs of this host: Python with its library and libraries, and sh."""
import functools
import glob
import os
import re
import subprocess
import sys
import tarfile

from layerlib import member, tar

# Packages of the standard library that sessions do not need.
LEFT_OUT = {"test", "idlelib", "tkinter", "lib2to3", "ensurepip", "__pycache__", "distutils", "pydoc_data", "curses", "dbm",
            "sqlite3", "unittest", "venv", "wsgiref", "xmlrpc", "turtledemo", "multiprocessing"}
PYTHON = os.path.realpath("/usr/bin/python3")
LIBRARY = "/usr/lib/python%d.%d" % sys.version_info[:2]


def libraries(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def copy(path, name):
    with open(path, "rb") as file:
        return member(name, data=file.read(), mode=0o755)


def below(top):
    for directory, dirs, files in os.walk(top):
        dirs[:] = sorted(set(dirs) - LEFT_OUT)
        for name in sorted(files):
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                yield path


@functools.lru_cache
def base(has_python=True):
    programs = {"usr/bin/sh": "/usr/bin/dash", "usr/bin/id": "/usr/bin/id"}
    if has_python:
        programs["usr/bin/python3"] = PYTHON
    found = {name: copy(path, name) for name, path in programs.items()}
    modules = glob.glob(LIBRARY + "/lib-dynload/_ctypes.*") if has_python else []
    for program in [*programs.values(), *modules]:
        for path in libraries(program):
            name = ("" if path.startswith("/usr/") else "/usr") + path
            found[name] = copy(os.path.realpath(path), name.lstrip("/"))
    for path in below(LIBRARY) if has_python else ():
        found[path] = copy(path, path.lstrip("/"))
    links = [member(name, tarfile.SYMTYPE, link="usr/" + name) for name in ("bin", "lib", "lib64")]
    return links + list(found.values())


def whole_root(*more, has_python=True):
    """A tar of it, with more members behind."""
    return tar(*base(has_python), *more)
