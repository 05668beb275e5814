# SPDX-License-Identifier: Apache-2.0
"""Directories of the host in a box: --ro and --rw, with controls."""
import os
import stat
import subprocess

import pytest

from fileslib import HERMES, SLOW, Refused, run

OWNER, GROUP = 12345, 23456

WRITE = """\
import os
os.chdir("/mnt/shared")
def attempt(name, action):
    try:
        action()
        print(name, "done")
    except OSError as e:
        print(name, e.strerror)
def create(name, text):
    with open(name, "w") as f:
        f.write(text)
attempt("create", lambda: create("new", "from the box"))
attempt("append", lambda: open("old", "a").write("!"))
attempt("mkdir", lambda: os.makedirs("sub/deep"))
attempt("nested", lambda: create("sub/deep/file", "x"))
attempt("rename", lambda: os.rename("victim", "renamed"))
attempt("remove", lambda: os.remove("other"))
attempt("chmod", lambda: os.chmod("old", 0o600))
"""


@pytest.fixture
def shared(area, as_root):
    path = area / "shared"
    path.mkdir()
    for name in ("old", "victim", "other"):
        (path / name).write_text(name)
        os.chown(path / name, OWNER, GROUP)
    os.chown(path, OWNER, GROUP)
    (area / "outside").write_text("outside the directory")
    (area / "outside").chmod(0o644)
    return path


def script(area, text, name="main.py"):
    (area / name).write_text(text)
    return area / name


def listing(path):
    return {str(p.relative_to(path)): (p.lstat().st_uid, p.lstat().st_gid)
            for p in path.rglob("*")}


def test_read_only_refuses(area, shared):
    before = listing(shared)
    answer = run("--ro", "%s:/mnt/shared" % shared, script(area, WRITE))
    assert answer["status"] == "ok"
    assert "done" not in answer["stdout"], answer["stdout"]
    assert answer["stdout"].count("Read-only file system") >= 5
    assert listing(shared) == before
    assert (shared / "old").read_text() == "old"


def test_writable_writes_back(area, shared):
    """The control of the test before, and the owners outside."""
    answer = run("--rw", "%s:/mnt/shared" % shared, script(area, WRITE))
    assert answer["status"] == "ok"
    assert [line.split()[1] for line in answer["stdout"].splitlines()] == ["done"] * 7, answer
    after = listing(shared)
    assert set(after) == {"new", "old", "renamed", "sub", "sub/deep", "sub/deep/file"}
    assert set(after.values()) == {(OWNER, GROUP)}, after
    assert (shared / "new").read_text() == "from the box"
    assert (shared / "old").read_text() == "old!"
    assert stat.S_IMODE((shared / "old").stat().st_mode) == 0o600


def test_writable_of_root(area, as_root):
    path = area / "shared"
    path.mkdir(mode=0o700)
    for name in ("old", "victim", "other"):
        (path / name).write_text(name)
        (path / name).chmod(0o600)
    answer = run("--rw", path, script(area, WRITE))
    assert answer["stdout"].count("done") == 7, answer
    assert set(listing(path).values()) == {(0, 0)}


def test_files_of_others_stay_theirs(area, shared):
    """The map has one owner; what somebody else keeps in the directory is out of reach."""
    foreign = shared / "foreign"
    foreign.write_text("secret of another user")
    foreign.chmod(0o600)
    os.chown(foreign, 4242, 4242)
    answer = run("--rw", "%s:/mnt/shared" % shared, script(area, """\
import os
try:
    print(open("/mnt/shared/foreign").read())
except PermissionError:
    print("refused")
try:
    os.chmod("/mnt/shared/foreign", 0o644)
except OSError:
    print("refused")
"""))
    assert answer["stdout"] == "refused\nrefused\n", answer
    assert foreign.stat().st_uid == 4242 and stat.S_IMODE(foreign.stat().st_mode) == 0o600


@pytest.mark.parametrize("option", ["--ro", "--rw"])
def test_nothing_outside(area, shared, option):
    os.symlink(area / "outside", shared / "absolute")
    os.symlink("../outside", shared / "relative")
    os.symlink("/etc/machine-id", shared / "etc")
    os.symlink("old", shared / "inward")
    answer = run(option, "%s:/mnt/shared" % shared, script(area, """\
import os
for name in ("absolute", "relative", "etc", "../outside", "../../outside", "inward"):
    try:
        print(name, open("/mnt/shared/" + name).read())
    except OSError as e:
        print(name, "-")
fd = os.open("/mnt/shared", os.O_RDONLY)
for _ in range(8):
    fd = os.open("..", os.O_RDONLY, dir_fd=fd)
print(sorted(os.listdir(fd)) == sorted(os.listdir("/")))
"""))
    lines = answer["stdout"].splitlines()
    # The last is the control: the same probe gets at what is inside.
    assert lines == ["absolute -", "relative -", "etc -", "../outside -", "../../outside -",
                     "inward old", "True"], answer


def test_links_made_in_the_box_stay_links(area, shared):
    answer = run("--rw", "%s:/mnt/shared" % shared, "--collect", "**", script(area, """\
import os
os.symlink("/etc/shadow", "/mnt/shared/link")
os.symlink("/mnt/shared/old", "/box/collected")
"""))
    assert answer["status"] == "ok"
    assert os.readlink(shared / "link") == "/etc/shadow"
    found = {f["name"]: f.get("error") for f in answer["files"]}
    assert found["collected"] == "not_regular"


WHERE = """\
import os
for path in "/box/a/inner", "/usr/local", "/etc", "/tmp":
    print(path, os.path.exists(path + "/mark"))
"""


@pytest.fixture
def nested(area, shared):
    """A directory to be mounted below the shared one, where an honest place is."""
    other = area / "other"
    other.mkdir()
    (other / "mark").write_text("x")
    (shared / "inner").mkdir()
    os.chown(shared / "inner", OWNER, GROUP)
    return other


def test_a_mount_below_a_shared_directory(area, shared, nested):
    answer = run("--rw", "%s:/box/a" % shared, "--ro", "%s:/box/a/inner" % nested, script(area, WHERE))
    assert answer["stdout"] == "/box/a/inner True\n/usr/local False\n/etc False\n/tmp False\n", answer


@pytest.mark.parametrize("target, below", [("/new/usr", "local"), ("/new/etc", "x"), ("../../usr", "local"), ("/new/tmp", ""),
                                           ("inner", ""), ("/proc/1/root", "tmp"), ("/proc/self/fd", "3")])
def test_a_link_that_another_run_planted_leads_no_mount_astray(area, shared, nested, target, below):
    planted = run("--rw", "%s:/mnt/shared" % shared, script(area, "import os; os.symlink(%r, '/mnt/shared/link')" % target))
    assert planted["status"] == "ok" and os.readlink(shared / "link") == target
    path = "/box/a/link" + ("/" + below if below else "")
    with pytest.raises(Refused) as refused:
        run("--rw", "%s:/box/a" % shared, "--ro", "%s:%s" % (nested, path), script(area, WHERE))
    assert path in refused.value.text and "a link or a file is in the way" in refused.value.text
    assert sorted(p.name for p in shared.iterdir()) == ["inner", "link", "old", "other", "victim"]  # nothing was made


SWAP = """\
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
os.symlink("/new/usr", "link")
print(1, flush=True)
while True:
    libc.renameat2(-100, b"inner", -100, b"link", 2)
"""


def test_a_link_that_comes_and_goes_leads_no_mount_astray(area, shared, nested):
    """It is a directory at one moment and a link at the next."""
    (shared / "inner/local").mkdir()
    swap = subprocess.Popen(["/usr/bin/python3", "-c", SWAP, shared], stdout=subprocess.PIPE)
    seen = []
    try:
        assert swap.stdout.readline()
        for _ in range(30):
            try:
                answer = run("--ro", "%s:/box/a" % shared, "--ro", "%s:/box/a/inner/local" % nested, script(area, WHERE))
                seen.append(answer["stdout"].splitlines()[1])
            except Refused as refused:
                assert "/box/a/inner/local" in refused.text
                seen.append("refused")
    finally:
        swap.kill()
        swap.communicate()
    assert "/usr/local True" not in seen and "/usr/local False" in seen and "refused" in seen, seen


SET_ID = """\
import ctypes, os
os.chdir("/mnt/shared")
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try:
        result = action()
        print(name, "refused" if result == -1 else "done")
    except OSError:
        print(name, "refused")
for mode in (0o4755, 0o2755):
    attempt("chmod", lambda: os.chmod("old", mode))
    attempt("fchmod", lambda: os.fchmod(os.open("old", os.O_RDONLY), mode))
    attempt("open", lambda: os.open("made%o" % mode, os.O_CREAT | os.O_WRONLY, mode))
    attempt("tmpfile", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, mode))
    attempt("mknod", lambda: os.mknod("node%o" % mode, 0o100000 | mode))
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, mode, 0)
    attempt("openat2", lambda: libc.syscall(437, -100, b"how%o" % mode, how, 24))
attempt("plain", lambda: os.chmod("old", 0o755))
"""


def test_no_set_id_files(area, shared):
    """Outside they would run with the rights of the directory's owner."""
    answer = run("--rw", "%s:/mnt/shared" % shared, script(area, SET_ID))
    lines = answer["stdout"].splitlines()
    assert lines[-1] == "plain done"
    assert {line.split()[1] for line in lines[:-1]} == {"refused"}, lines
    for path in shared.iterdir():
        assert not path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID), path


def test_file_system_without_id_maps(area, as_root):
    with pytest.raises(Refused) as refused:
        run("--rw", "/sys/kernel:/mnt/kernel", script(area, "print(1)"))
    assert "cannot be writable in a box" in refused.value.text
    assert "id-mapped" in refused.value.text
    # The control: the same directory, for reading.
    assert run("--ro", "/sys/kernel:/mnt/kernel", script(area, "print(1)"))["stdout"] == "1\n"


@pytest.mark.parametrize("text, why", [
    ("/no-such-directory", "not a directory"),
    ("/etc:/etc", "below /mnt or /box"),
    ("/etc:/mnt/../etc", "below /mnt or /box"),
    ("/etc:relative", "below /mnt or /box"),
    ("/etc/passwd", "not a directory"),
])
def test_bad_option(area, text, why):
    for option in ("--ro", "--rw"):
        with pytest.raises(Refused) as refused:
            run(option, text, script(area, "print(1)"))
        assert why in refused.value.text
        assert refused.value.status == 2


def test_rootless_of_one_id(area, as_root):
    """A user without subordinate ids: the box's files are that user's, no map is needed."""
    if b"__asan_init" in HERMES.read_bytes():
        pytest.skip("RLIMIT_AS, which stands in for a memory group, leaves no room for AddressSanitizer")
    uid = 54321
    home = area / "home"
    (home / "shared").mkdir(parents=True)
    (home / "state").mkdir()
    script(home, "open('/mnt/shared/new', 'w').write('x'); print('done')")
    for path in [home, *home.rglob("*")]:
        os.chown(path, uid, uid)
    done = subprocess.run(
        ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", str(HERMES), "run",
         "--min-level", "process", "--rw", str(home / "shared"), str(home / "main.py")],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_STATE_DIR": str(home / "state")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW)
    if done.returncode == 125 and b"enforces only" in done.stderr:
        pytest.skip("rootless boxes are not possible here: " + done.stderr.decode().strip())
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr
    assert (home / "shared/new").stat().st_uid == uid
