# SPDX-License-Identifier: Apache-2.0
"""pip and npm in a box: from a small index in the world of the tests, with packages that the test makes. With
HERMES_TEST_REGISTRIES=1 also from the registries that this host's pip and npm are configured for, over the host's
own network."""
import base64
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import urllib.parse
import zipfile

import pytest

from apilib import HERMES, ROOT, make_dir
from netlib import denied

WHEELS = pathlib.Path("/usr/share/python-wheels")  # python3-venv brings pip there
ALLOW = {"allow": ["ok.example.com"]}
INDEX = "https://ok.example.com/files"

# Both are no tools of the boxes: the test mounts the host's.
PIP = """
import glob, json, subprocess, sys
pip = glob.glob("/mnt/wheels/pip-*.whl")[0] + "/pip"
done = subprocess.run([sys.executable, pip, "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check",
                       "--no-compile", "--target", "/box/site", *sys.argv[1:]], stdout=2)
sys.path.insert(0, "/box/site")
try:
    import hermes_demo
    print(done.returncode, hermes_demo.WORDS)
except ImportError:
    print(done.returncode, sorted(glob.glob("/box/site/*.dist-info")))
"""
NPM = """
const { spawnSync } = require("child_process");
require("fs").writeFileSync("/box/package.json", "{}");
const done = spawnSync(process.execPath, ["/mnt/npm/bin/npm-cli.js", "install", "--no-audit", "--no-fund", "--cache", "/tmp/npm",
    ...process.argv.slice(2)], { stdio: ["ignore", 2, 2], env: { ...process.env, HOME: "/tmp" } });
try { console.log(done.status, require("/box/node_modules/hermes-demo").words); }
catch (e) { console.log(done.status, e.code); }
"""


def wheel(name, needs, text):
    """A wheel of one module."""
    module, out = name.replace("-", "_"), io.BytesIO()
    info = "%s-1.0.dist-info/" % module
    requires = "".join("Requires-Dist: %s\n" % other for other in needs)
    files = {module + ".py": text,
             info + "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n%s" % (name, requires),
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(out, "w") as z:
        for path, content in {**files, info + "RECORD": "".join("%s,,\n" % path for path in files)}.items():
            z.writestr(path, content)
    return out.getvalue()


def tarball(name, needs, text):
    """A package of npm."""
    out = io.BytesIO()
    manifest = {"name": name, "version": "1.0.0", "main": "index.js", "dependencies": needs}
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for path, content in (("package/package.json", json.dumps(manifest)), ("package/index.js", text)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            t.addfile(entry, io.BytesIO(content.encode()))
    return manifest, out.getvalue()


@pytest.fixture(scope="module")
def index(one_world):
    """Two packages in each index; one needs the other."""
    files = one_world.dir / "files"
    for name, needs, text in (("hermes-demo", ["hermes-demo-base"], "from hermes_demo_base import WORDS\n"),
                              ("hermes-demo-base", [], "WORDS = 'from the index'\n")):
        data = wheel(name, needs, text)
        file = "%s-1.0-py3-none-any.whl" % name.replace("-", "_")
        (files / "simple" / name).mkdir(parents=True)
        (files / "simple" / file).write_bytes(data)
        (files / "simple" / name / "index.html").write_text(
            '<!DOCTYPE html><html><body><a href="../%s#sha256=%s">%s</a></body></html>'
            % (file, hashlib.sha256(data).hexdigest(), file))
    (files / "npm").mkdir()
    for name, needs, text in (("hermes-demo", {"hermes-demo-base": "^1.0.0"}, "module.exports = require('hermes-demo-base');"),
                              ("hermes-demo-base", {}, "exports.words = 'from the index';")):
        manifest, data = tarball(name, needs, text)
        (files / "npm" / (name + "-1.0.0.tgz")).write_bytes(data)
        digest = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        manifest["dist"] = {"tarball": "%s/npm/%s-1.0.0.tgz" % (INDEX, name), "integrity": digest}
        (files / "npm" / name).write_text(json.dumps(
            {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": manifest}}))
    return files


def npm_home():
    program = shutil.which("npm", path="/usr/bin:/usr/local/bin")
    assert program, "install npm: make install-deps"
    return pathlib.Path(program).resolve().parents[1]


@pytest.fixture
def boxes(make_boxes, world, index):
    assert list(WHEELS.glob("pip-*.whl")), "install python3-venv: make install-deps"
    config = world.dir / "packages.conf"
    config.write_text("[mount wheels]\npath = %s\n[mount npm]\npath = %s\n" % (WHEELS, npm_home()))
    return make_boxes(config=config)


def mount(name):
    return [{"name": name, "path": "/mnt/" + name}]


def test_pip_installs_from_an_index(boxes):
    words = ["--cert", "/box/ca.pem", "--index-url", INDEX + "/simple", "hermes-demo"]
    answer = boxes.run(ALLOW, "python", PIP, args=words, mounts=mount("wheels"))
    assert answer["stdout"] == "0 from the index\n", answer
    assert {row["host"] for row in answer["network"]["allowed"]} == {"ok.example.com"}
    words[3] = "https://shared.example.org/files/simple"  # the same server, by a name that is not listed
    answer = boxes.run(ALLOW, "python", PIP, args=["--retries", "0", *words], mounts=mount("wheels"))
    assert answer["stdout"] == "1 []\n", answer
    assert ("shared.example.org", 53, "dns", "not_listed") in denied(answer["network"])


def test_npm_installs_from_a_registry(boxes):
    words = ["--cafile", "/box/ca.pem", "--registry", INDEX + "/npm/", "hermes-demo"]
    answer = boxes.run(ALLOW, "javascript", NPM, args=words, mounts=mount("npm"))
    assert answer["stdout"] == "0 from the index\n", answer
    assert {row["host"] for row in answer["network"]["allowed"]} == {"ok.example.com"}
    words[3] = "https://shared.example.org/files/npm/"
    answer = boxes.run(ALLOW, "javascript", NPM, args=["--fetch-retries", "0", *words], mounts=mount("npm"))
    assert answer["stdout"] == "1 MODULE_NOT_FOUND\n", answer
    assert ("shared.example.org", 53, "dns", "not_listed") in denied(answer["network"])


# --- the registries of this host

registries = pytest.mark.skipif(os.environ.get("HERMES_TEST_REGISTRIES") != "1",
                                reason="leaves the machine: HERMES_TEST_REGISTRIES=1 runs it")


def setting(*command):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()


def install(mounted, source, name, urls, *words):
    """Runs an installer in a box that may reach these URLs' hosts and no other. A registry in a closed range is
    opened, as its operator would do."""
    hosts = {urllib.parse.urlsplit(url) for url in urls}
    entries = {"%s:%d" % (url.hostname, url.port or 443) for url in hosts}
    found = {info[4][0] for url in hosts for info in socket.getaddrinfo(url.hostname, url.port or 443)}
    path = make_dir()
    (path / name).write_text(source)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(path), "HERMES_STATE_DIR": str(path / "state"), "LC_ALL": "C.UTF-8",
           "HERMES_RUNTIMES": str(ROOT / "runtimes"), "HERMES_NETWORK_OPEN": ",".join(sorted(found)[:32])}
    done = subprocess.run([str(HERMES), "run", "--time", "120s", "--ro", "%s:/mnt/%s" % mounted, "--network",
                           "allow=" + ",".join(sorted(entries)), str(path / name), *words], env=env, text=True,
                          capture_output=True)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


@registries
def test_pip_from_the_configured_registry():
    """pip's own default has its files on a second host, which pip knows."""
    default = setting("python3", "-c", "from pip._internal.models.index import PyPI as p\n"
                      "print(p.simple_url, 'https://' + p.file_storage_domain)").split()
    index = setting("python3", "-m", "pip", "config", "get", "global.index-url")
    urls = [index] if index else default
    out = install((WHEELS, "wheels"), PIP, "main.py", urls, "--index-url", urls[0], "six")
    assert out.startswith("0 ['/box/site/six-"), out


@registries
def test_npm_from_the_configured_registry():
    registry = setting("npm", "config", "get", "registry")
    out = install((npm_home(), "npm"), NPM.replace("hermes-demo", "is-number"), "main.js", [registry], "--registry", registry,
                  "--cafile", "/etc/ssl/certs/ca-certificates.crt", "is-number")
    assert out.startswith("0 "), out
