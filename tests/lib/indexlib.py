#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A package index for pip and npm without a registry: packages are written from nothing. As a program:

    indexlib.py ADDRESS PORT NAME     serves them as http://NAME:PORT/simple/ and /npm/; ends with its stdin

Python: hermes-probe 1.0 and 2.0 (a module, a program), hermes-needs-probe 1.0 (needs hermes-probe >= 2);
hermes-hostile 1.0, a source package that attacks while it is built, and leaves sitecustomize and a .pth file;
hermes-slow 1.0, a source package that builds for a minute, and hermes-nap 1.0, for 8 seconds; hermes-far 1.0, whose file lies on a host that is not allowed;
hermes-heavy 1.0, which takes a while to import, and modules that no process should have that is copied (UNFIT).
JavaScript: hermes-probe 1.0.0, hermes-postinstall 1.0.0 (needs it; its install script leaves a file).
Debian: the packages of deblib.py, below /apt.
Go: probe.example/probe v1.0.0, below /go. Rust: hermes-probe 1.0.0, below /crates (CARGO_CONFIG)."""
import base64
import hashlib
import http.server
import io
import json
import sys
import tarfile
import threading
import zipfile

from deblib import repository


def wheel(name, version, module, requires=(), scripts=()):
    stem = name.replace("-", "_")
    info = "%s-%s.dist-info/" % (stem, version)
    files = {stem + ".py": module,
             info + "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
             + "".join("Requires-Dist: %s\n" % r for r in requires),
             info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    if scripts:
        files[info + "entry_points.txt"] = "[console_scripts]\n" + "".join("%s\n" % s for s in scripts)
    files[info + "RECORD"] = "".join("%s,,\n" % path for path in [*files, info + "RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), text)
    return "%s-%s-py3-none-any.whl" % (stem, version), data.getvalue()


def wheels():
    for version in "1.0", "2.0":
        yield "hermes-probe", wheel("hermes-probe", version,
                                    "VERSION = '%s'\ndef main():\n    print('probe', VERSION)\n" % version,
                                    scripts=["hermes-probe = hermes_probe:main"])
    yield "hermes-needs-probe", wheel("hermes-needs-probe", "1.0", "import hermes_probe\n",
                                      requires=["hermes-probe>=2"])
    for name, module in [("hermes-heavy", HEAVY), *UNFIT.items()]:
        yield name, wheel(name, "1.0", module)
    yield "hermes-far", wheel("hermes-far", "1.0", "")
    for name in "hermes-hostile", "hermes-slow", "hermes-nap":
        yield name, sdist(name)
    for n in range(5):
        yield "hermes-five-%d" % n, wheel("hermes-five-%d" % n, "1.0", "".join("x%d = %d\n" % (i, i) for i in range(20000)))


# A module that is worth to be imported ahead: 50 ms of CPU time, and 4 MiB. It notes what libraries of numbers read.
HEAVY = """import os
import time
THREADS = os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("OMP_NUM_THREADS")
DATA = bytearray(b"x" * (4 << 20))
_end = time.process_time() + 0.05
while time.process_time() < _end:
    pass
"""
# What else a module does while it is imported, each by the name of its distribution.
UNFIT = {name: HEAVY + text for name, text in {
    "hermes-thread": "import threading\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    "hermes-child": "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n",
    "hermes-socket": "import socket\nopen_socket = socket.socket()\n",
    "hermes-handler": "import signal\nsignal.signal(signal.SIGUSR1, print)\n",
    "hermes-exit": "import os\nos._exit(0)\n",
    "hermes-raise": "raise RuntimeError('no')\n",
}.items()}


def lock_of(*names):
    """Requirements with hashes, of version 1.0 of these."""
    hashes = {project: hashlib.sha256(data).hexdigest() for project, (name, data) in wheels() if "-1.0-" in name}
    return "".join("%s==1.0 --hash=sha256:%s\n" % (name, hashes[name]) for name in names)


# The builder of the source packages: part of them, so that it needs nothing else. What it tried is in the wheel.
BACKEND = """
import base64, glob, json, os, socket, subprocess, sys, urllib.request, zipfile

def attempt(what, how):
    try:
        how()
        report[what] = "done"
    except Exception as problem:
        report[what] = type(problem).__name__

report = {}

def attack():
    attempt("own", lambda: open("/box/mark", "w"))
    attempt("base", lambda: open("/base/mark", "w"))
    attempt("etc", lambda: open("/etc/passwd", "a"))
    attempt("usr", lambda: open("/usr/lib/hermes/base.py", "a"))
    attempt("kill", lambda: os.kill(1, 9))
    attempt("root", lambda: os.setuid(0))
    attempt("far", lambda: socket.create_connection(("far.example.com", 80), 5).close())
    attempt("local", lambda: socket.create_connection(("127.0.0.1", 8000), 5).close())
    for path in glob.glob("/box/**/hermes_probe.py", recursive=True):  # what was downloaded, also in a cache
        open(path, "w").write("VERSION = 'evil'")

def build_wheel(directory, settings=None, metadata=None):
    seconds = {"hermes_slow": 60, "hermes_nap": 8}.get("NAME")
    if seconds:  # tests look for this program
        subprocess.run([sys.executable, "-c", "import time; time.sleep(%d)  # build_wheel" % seconds])
    attack()
    info = "NAME-1.0.dist-info/"
    files = {"NAME.py": "REPORT = %r" % report, "sitecustomize.py": "import builtins; builtins.customized = True",
             "NAME.pth": "import builtins; builtins.pth = True",
             info + "METADATA": "Metadata-Version: 2.1\\nName: NAME\\nVersion: 1.0\\n",
             info + "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    files[info + "RECORD"] = "".join("%s,,\\n" % path for path in [*files, info + "RECORD"])
    with zipfile.ZipFile(os.path.join(directory, "NAME-1.0-py3-none-any.whl"), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return "NAME-1.0-py3-none-any.whl"
"""


def sdist(name):
    stem = name.replace("-", "_")
    return "%s-1.0.tar.gz" % stem, tarball({
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n" % name,
        "backend.py": BACKEND.replace("NAME", stem)}, stem + "-1.0/")


def tarball(files, top="package/"):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


NPM = {
    "hermes-probe": ({"index.js": "module.exports = 'probe 1.0.0'\n",
                      "cli.js": "#!/usr/bin/env node\nconsole.log(require('./'))\n"},
                     {"bin": {"hermes-probe": "cli.js"}}),
    "hermes-postinstall": ({"index.js": "module.exports = require('fs').existsSync(__dirname + '/made')\n",
                            "post.js": "require('fs').writeFileSync(__dirname + '/made', '')\n"},
                           {"scripts": {"postinstall": "node post.js"}, "dependencies": {"hermes-probe": "^1.0.0"}}),
}


def go_modules():
    """What a proxy of Go answers (go help goproxy)."""
    module, version = "probe.example/probe", "v1.0.0"
    files = {"go.mod": "module %s\n\ngo 1.18\n" % module,
             "probe.go": "package probe\n\nconst Version = \"probe 1.0.0\"\n"}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo("%s@%s/%s" % (module, version, name), (1980, 1, 1, 0, 0, 0)), text)
    answers = {"list": version + "\n", version + ".mod": files["go.mod"], version + ".zip": data.getvalue(),
               version + ".info": json.dumps({"Version": version, "Time": "2024-01-01T00:00:00Z"})}
    return {"/go/%s/@v/%s" % (module, name): ("text/plain", answer) for name, answer in answers.items()}


def crates(base):
    """A sparse index of cargo and its files."""
    data = tarball({"Cargo.toml": '[package]\nname = "hermes-probe"\nversion = "1.0.0"\nedition = "2021"\n',
                    "src/lib.rs": 'pub const VERSION: &str = "probe 1.0.0";\n'}, "hermes-probe-1.0.0/")
    entry = {"name": "hermes-probe", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
             "cksum": hashlib.sha256(data).hexdigest()}
    return {"/crates/config.json": ("application/json", json.dumps({"dl": base + "/crates/files"})),
            "/crates/he/rm/hermes-probe": ("text/plain", json.dumps(entry) + "\n"),
            "/crates/files/hermes-probe/1.0.0/download": ("application/octet-stream", data)}


def contents(base):
    """From path to (type, bytes)."""
    found, pages = {}, {}
    for project, (name, data) in wheels():
        found["/files/" + name] = "application/octet-stream", data
        pages.setdefault(project, []).append(
            '<a href="%s/files/%s#sha256=%s">%s</a>' % ("http://far.example.com" if project == "hermes-far" else "", name,
                                                          hashlib.sha256(data).hexdigest(), name))
    for project, links in pages.items():
        found["/simple/%s/" % project] = "text/html", "<!DOCTYPE html><body>%s</body>" % "".join(links)
    for name, (files, more) in NPM.items():
        package = dict({"name": name, "version": "1.0.0", "main": "index.js"}, **more)
        data = tarball(dict(files, **{"package.json": json.dumps(package)}))
        found["/npm/%s-1.0.0.tgz" % name] = "application/octet-stream", data
        package["dist"] = {"tarball": "%s/npm/%s-1.0.0.tgz" % (base, name),
                           "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
        package["hasInstallScript"] = "scripts" in more
        found["/npm/" + name] = "application/json", json.dumps(
            {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package}})
    found.update(repository())
    found.update(go_modules())
    found.update(crates(base))
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind, body = self.server.contents.get(self.path.split("?")[0], ("text/plain", None))
        body, status = (b"", 404) if body is None else (body.encode() if isinstance(body, str) else body, 200)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def main():
    address, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    server = http.server.ThreadingHTTPServer((address, port), Handler)
    server.contents = contents("http://%s:%d" % (name, port))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("up", flush=True)
    sys.stdin.read()


INDEX = "ok.example.com:8085"  # in the world of tests/images


GOPROXY = "http://%s/go" % INDEX
CARGO_CONFIG = """cat >/opt/cargo/config.toml <<'E'
[source.crates-io]
replace-with = "probe"
[source.probe]
registry = "sparse+http://%s/crates/"
E
""" % INDEX


def image_settings():
    """Of a server whose build boxes reach the index."""
    return {"HERMES_SESSION_PARKED": "0", "HERMES_PIP_INDEX": "http://%s/simple/" % INDEX,
            "HERMES_NPM_REGISTRY": "http://%s/npm/" % INDEX, "HERMES_REGISTRY_HOSTS": INDEX,
            "HERMES_BUILD_MEMORY_MB": "1024", "HERMES_BUILD_DISK_MB": "256", "HERMES_BUILD_WALL_MS": "120000"}


if __name__ == "__main__":
    main()
