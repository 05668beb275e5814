# SPDX-License-Identifier: Apache-2.0
"""Writes a lock, or a list of packages, from what an installer reported.

    lock.py pip REPORT BASE     pip's --report as requirements with hashes; BASE has those of the layers below
    lock.py uv LOCK BASE NEW    the same from uv's lock; what the layers below lack is written to NEW
    lock.py list                the packages that this interpreter sees: a list of {name, version}
    lock.py npm LOCKFILE        package-lock.json: the same
"""
import json
import re
import sys


def pip_lock(report):
    lines = []
    for item in report.get("install", []):
        meta = item["metadata"]
        hashes = item.get("download_info", {}).get("archive_info", {}).get("hashes", {})
        known = sorted(f"--hash={name}:{value}" for name, value in hashes.items())
        lines.append(" ".join([f"{meta['name']}=={meta['version']}"] + known))
    return "".join(line + "\n" for line in sorted(lines, key=str.lower))


def name_of(line):
    return re.sub(r"[-_.]+", "-", re.split(r"[=@\[\s]", line.strip())[0]).lower()


def add_base(lock, base):
    """Adds the packages of the layers below, unless they were replaced."""
    new = {name_of(line) for line in lock.splitlines()}
    kept = [line for line in base.splitlines() if name_of(line) not in new]
    return "".join(line + "\n" for line in sorted(kept + lock.splitlines(), key=str.lower))


def npm_list(lock):
    found = {}
    for path, item in lock.get("packages", {}).items():
        if path and "version" in item:
            found[path.split("node_modules/")[-1]] = item["version"]
    return [{"name": name, "version": found[name]} for name in sorted(found)]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def plain_lock(text):
    """One line for each package; a lock from elsewhere can have more."""
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return "".join(line + "\n" for line in sorted(lines, key=str.lower) if line.strip() and line[0] not in "#-")


def pin_of(line):
    pin = line.split(" --hash=")[0]
    return name_of(pin), pin.partition("==")[2] or pin


def missing(lock, base):
    """The lines of a lock whose package or version is not in `base`."""
    known = {pin_of(line) for line in base.splitlines()}
    return "".join(line + "\n" for line in lock.splitlines() if pin_of(line) not in known)


def installed():
    from importlib.metadata import distributions
    found = {}
    for one in distributions():
        name, version = one.metadata["Name"], one.version
        if name and version:
            found.setdefault(name_of(name), {"name": name, "version": version})
    return [found[name] for name in sorted(found)]


def main(kind, path=None, base=None, new=None):
    below = plain_lock(read(base)) if base else ""
    if kind == "pip":
        sys.stdout.write(add_base(pip_lock(json.loads(read(path))), below))
    elif kind == "uv":
        lock = plain_lock(read(path))
        with open(new, "w", encoding="utf-8") as file:
            file.write(missing(lock, below))
        sys.stdout.write(add_base(lock, below))
    elif kind == "list":
        print(json.dumps(installed()))
    elif kind == "npm":
        print(json.dumps(npm_list(json.loads(read(path)))))


main(*sys.argv[1:])
