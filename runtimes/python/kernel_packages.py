# SPDX-License-Identifier: Apache-2.0
"""Packages that a session gets while it lives (docs/sessions.md): they appear below /opt/venv. `%pip install` asks the
server for them: nothing is installed in this box."""
import builtins

__builtins__ = dict(vars(builtins))

import os  # noqa: E402
import re  # noqa: E402
import shlex  # noqa: E402
import sys  # noqa: E402
from _thread import get_ident  # noqa: E402

VENV = "/opt/venv"
LINE_MAX, PACKAGE_MAX = 16384, 512
INSTALL = re.compile(r"\s*pip\s+install(?!\S)(.*)", re.S)
SHELL = ";&|`$()"  # outside of quotes
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._, -]*\]\s*)?([<>=!~;@(].*)?", re.S)
URL = re.compile(r"([a-z0-9.+-]+)://", re.I)
ARCHIVE = (".whl", ".tar.gz", ".tgz", ".tar.bz2", ".zip")
# Options that change nothing here. -q leaves out the log.
QUIET = ("-q", "-qq", "-qqq", "--quiet")
NO_EFFECT = QUIET + ("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--no-warn-script-location",
                     "--user", "--break-system-packages", "--progress-bar=off", "--root-user-action=ignore")
NOT_HERE = {
    "-r": "name the packages on the line", "--requirement": "name the packages on the line",
    "-U": "to replace a package that is there, name its version: NAME==VERSION",
    "--upgrade": "to replace a package that is there, name its version: NAME==VERSION",
    "-i": "the operator chooses the package index", "--index-url": "the operator chooses the package index",
    "--extra-index-url": "the operator chooses the package index",
    "-f": "the operator chooses the package index", "--find-links": "the operator chooses the package index",
    "-e": "files of the session are not seen by the box that installs packages",
    "--editable": "files of the session are not seen by the box that installs packages",
}


class PackageError(Exception):
    """Packages could not be installed; the text says why."""


PackageError.__module__ = "builtins"


def is_install(line):
    """Whether `pip …` asks for packages. Any other use of pip is an ordinary program."""
    return INSTALL.fullmatch(line) is not None


def words_of(text):
    lexer = shlex.shlex(text, posix=True, punctuation_chars=SHELL)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as problem:
        raise PackageError("pip install: %s" % problem) from None
    comment = next((i for i, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def check_option(word):
    name = word.partition("=")[0]
    if word not in NO_EFFECT:
        hint = NOT_HERE.get(name) or NOT_HERE.get(name[:2] if not name.startswith("--") else name)
        raise PackageError("pip install: the option %s is not supported here%s" % (
            name[:64], ": " + hint if hint else "; name packages, such as 'numpy==2.*'"))


def check_package(word):
    if len(word) > PACKAGE_MAX:
        raise PackageError("pip install: the name of a package has more than %d bytes" % PACKAGE_MAX)
    url = URL.search(word)
    if (url and url[1].lower() == "file") or (not url and ("/" in word or word[0] in ".~" or word.endswith(ARCHIVE))):
        raise PackageError("pip install: %s is a file, and files of the session are not seen by the box that installs "
                           "packages; name a package of the index" % word[:200])
    if not url and not PACKAGE.fullmatch(word):
        raise PackageError("pip install: %s is not the name of a package; write a version without spaces or in quotes: "
                           "'numpy>=2'" % word[:200])


def parse(line):
    """From `pip install …` to a list of packages, and whether the log is left out. The server checks all of it again:
    the checks here are for good error texts."""
    text = INSTALL.fullmatch(line)[1]
    if len(text) > LINE_MAX:
        raise PackageError("pip install: the line has more than %d characters" % LINE_MAX)
    if any((c < " " and c not in "\t\n") or c == "\x7f" for c in text):
        raise PackageError("pip install: the line has control characters")
    words = words_of(text)
    for word in words:
        if not word.strip(SHELL):
            raise PackageError("pip install: %s: no shell runs this line; it installs packages and does nothing else"
                               % (word[:8] or "''"))
    for word in words:
        (check_option if word.startswith("-") else check_package)(word)
    packages = [word for word in words if not word.startswith("-")]
    if not packages:
        raise PackageError("pip install: there is nothing to install: name packages")
    return packages, any(word in QUIET for word in words)


class Packages:
    def __init__(self, kernel):
        self.kernel = kernel
        self.is_stale = False
        self.count = 0

    def install(self, line):
        """Runs `pip install …`. The server builds the packages in a box of their own; its log is output of this exec."""
        kernel = self.kernel
        packages, is_quiet = parse(line)
        if kernel.pid != kernel.getpid() or get_ident() != kernel.thread or not kernel.busy:
            raise PackageError("pip install: only the main thread of the session can install packages, while it runs code")
        kernel.flush()
        with kernel.tools.lock:  # one of them reads from the channel
            self.count += 1
            kernel.channel.send("install", {"id": self.count, "quiet": is_quiet, "packages": packages})
            answer = self.wait()
        if "error" in answer:
            raise PackageError("pip install: %s" % answer["error"])
        self.refresh()
        names = ["%s-%s" % (p["name"], p["version"]) for p in answer["installed"]]
        if not is_quiet:
            print("Successfully installed " + " ".join(names) if names else "Requirement already satisfied")

    def wait(self):
        channel = self.kernel.channel
        while True:
            frame = channel.take()
            if frame is None:
                channel.fill()
                continue
            answer = channel.decode(frame[1]) if frame[0] == "installed" else None
            if answer is not None and answer["id"] == self.count:
                return answer

    def refresh(self):
        """Looks into the new packages before the host's own, and runs their .pth files, as a start would."""
        import importlib
        import site
        self.is_stale = False
        path = "%s/lib/python%d.%d/site-packages" % (VENV, *sys.version_info[:2])
        before = list(sys.path)
        site.addsitedir(path)
        added = [p for p in sys.path if p not in before]
        at = next((i for i, p in enumerate(before) if p.endswith("/dist-packages")), len(before))
        sys.path[:] = before[:at] + added + before[at:]
        importlib.invalidate_caches()
        words = os.environ.get("PATH", "/usr/bin:/bin").split(":")
        if VENV + "/bin" not in words:
            os.environ["PATH"] = ":".join([VENV + "/bin", "/opt/bin"] + words)
            os.environ["VIRTUAL_ENV"] = VENV
        if os.path.exists(VENV + "/bin/python3"):
            sys.executable = VENV + "/bin/python3"
