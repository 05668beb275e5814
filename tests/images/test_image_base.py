# SPDX-License-Identifier: Apache-2.0
"""`base` of a recipe: a setup script builds upon a whole root, with apt of that root."""
import json
import os
import shutil
import subprocess
import tarfile

import pytest

from apilib import Server, borrow_dir, return_dir
from deblib import apt_root
from indexlib import INDEX, image_settings
from layerlib import member, tar
from ocilib import Layout
from rootlib import whole_root
from runlib import BUILD

APT = "http://%s/apt" % INDEX
SYM, DIR = tarfile.SYMTYPE, tarfile.DIRTYPE


@pytest.fixture(scope="module")
def root():
    return apt_root(APT)


def imported(server, data, name="root", key=None, **fields):
    query = "&".join("%s=%s" % pair for pair in dict(fields, name=name).items())
    reply = server("POST", "/v1/images/import?" + query, data, headers={"Content-Type": "application/x-tar"}, key=key)
    assert reply.status == 201, reply.body
    return reply.json()


def ask(server, script, key=None, **fields):
    return server("POST", "/v1/images", dict({"language": "python", "base": "root", "setup_script": script}, **fields), key=key)


def build(server, script, **fields):
    reply = ask(server, script, **fields)
    assert reply.status == 201, reply.body
    return reply.json()


def refused(server, script="true", **fields):
    reply = ask(server, script, **fields)
    return reply.status, reply.json()["error"]


SHELL = "import subprocess, sys\nprint(subprocess.run(['sh', '-c', sys.stdin.read()], stdout=-1, stderr=-2, text=True).stdout, end='')"


def said(server, command, image, key=None):
    """What a shell in a box of the image says."""
    reply = server.run("python", SHELL, image=image, stdin=command, key=key)
    assert reply.status == 200 and reply.json()["status"] == "ok", reply.body
    return reply.json()["stdout"]


def tree(server, image, number=0):
    """The directory of a layer."""
    return server.state / "server/images/layers" / image["layers"][number] / "tree"


def files(top):
    return sorted(os.path.relpath(os.path.join(at, name), top) for at, _, names in os.walk(top) for name in names)


def test_apt_installs_packages(server, root):
    base = imported(server, root)
    image = build(server, "apt-get update && apt-get install -y hermes-needs-deb", name="debs")
    assert image["whole_root"] and image["language"] == "python" and image["version"].startswith("3.")
    assert len(image["layers"]) == 2 and image["layers"][1:] == base["layers"] and image["size_bytes"] > base["size_bytes"]
    assert said(server, "hermes-needs-deb; cat /etc/base-log /usr/share/hermes-deb/linked", "debs") == \
        "deb 2.0\nbase\ninstalled 2.0\nof the base\n"
    # what the packages wanted and a layer does not have: owners, set-id bits, files that nobody reads
    modes = said(server, "stat -c %a,%u /usr/bin/hermes-deb-root /usr/share/hermes-deb/secret /usr/share/hermes-deb/none "
                         "/var/hermes-deb; cat /usr/share/hermes-deb/none", "debs")
    assert modes == "755,65534\n644,65534\n644,65534\n755,65534\nnobody reads it\n"
    # of the base only what was changed, and no caches
    got = files(tree(server, image))
    assert "etc/base-log" in got and "var/lib/dpkg/status" in got and "usr/share/base-file" not in got
    assert not [name for name in got if name.startswith(("box", "tmp", "dev", "proc", "base", "var/lib/apt/lists/", "var/cache/apt/",
                                                         "usr/lib/hermes", "usr/bin/python3"))]
    # upon what was built: another version, and a removal
    again = build(server, "apt-get update && apt-get install -y --allow-downgrades hermes-deb=1.0 && dpkg -r hermes-needs-deb", name="older",
                  base="debs")
    assert len(again["layers"]) == 3
    assert said(server, "hermes-deb; hermes-needs-deb; cat /etc/base-log", "older") == \
        "deb 1.0\nsh: 1: hermes-needs-deb: not found\nbase\ninstalled 2.0\nremoved upgrade\ninstalled 1.0\n"


def test_what_a_script_changes(server, root):
    imported(server, root)
    image = build(server, "rm /usr/share/base-gone; rm -r /usr/share/base-dir; mkdir /usr/share/base-dir; echo c >/usr/share/base-dir/c\n"
                          "mv /usr/share/base-file /usr/share/moved; ln -s moved /usr/share/link; echo x >/root/x; touch /etc/base-log",
                  name="changed")
    look = "cd /usr/share; cat base-dir/*; ls base-gone base-file; cat moved link /root/x; ls base-dir"
    assert said(server, look, "changed") == "c\nls: cannot access 'base-gone': No such file or directory\n" \
        "ls: cannot access 'base-file': No such file or directory\nof the base\nof the base\nx\nc\n"
    assert "etc/base-log" not in files(tree(server, image))  # the same bytes: no part of the layer
    assert said(server, look, "root").startswith("a\nb\nbase-file\nbase-gone\nof the base\n") is False  # control: the base has none of it
    assert said(server, "cat /usr/share/base-gone /usr/share/base-dir/a /usr/share/base-file", "root") == "to be removed\na\nof the base\n"


def test_a_script_that_changes_nothing(server, root):
    base = imported(server, root)
    image = build(server, "cat /etc/base-log", name="same", env={"WORD": "mine"})
    assert image["layers"] == base["layers"] and image["id"] != base["id"]
    assert said(server, "echo $WORD", "same") == "mine\n"


def test_it_is_built_once_and_outlives_its_base(server, root):
    imported(server, root)
    first = build(server, "echo 1 >/etc/one", name="a")
    again = ask(server, "echo 1 >/etc/one", name="b")
    assert again.status == 200 and again.json()["id"] == first["id"]
    assert server("DELETE", "/v1/images/root").status == 204
    assert refused(server)[0] == 404
    assert said(server, "cat /etc/one /etc/base-log", "a") == "1\nbase\n"
    assert build(server, "echo 2 >/etc/two", base="a", name="c")["layers"][1:] == first["layers"]
    out = server("GET", "/v1/images/c/export?compression=zstd")
    assert out.status == 200
    assert imported(server, out.body, "back")["layers"] == server("GET", "/v1/images/c").json()["layers"]


def test_the_language_may_come_with_the_script(server):
    imported(server, apt_root(APT, has_python=False), language="bash")
    status, error = refused(server, "true")
    assert status == 422 and "no python that runs" in error["message"] and "setup_script" in error["message"]
    image = build(server, "printf '#!/bin/sh\\nsed -n s/x/y/p; echo 3.99.1\\n' >/usr/local/bin/python3 || exit 1; chmod 755 /usr/local/bin/python3"
                  .replace("/usr/local/bin", "/usr/bin").replace("sed -n s/x/y/p; ", ""), name="fake")
    assert image["language"] == "python" and image["version"] == "3.99.1"
    assert build(server, "echo 1 >/etc/one", name="shell", language="bash")["language"] == "bash"
    assert server("GET", "/v1/images").json()["images"].__len__() == 3  # the failed ones left nothing


def test_requests_that_are_wrong(server, root):
    imported(server, root)
    for fields, field, words in [
            ({"packages": {"pip": ["x"]}}, "packages", "setup_script"), ({"requirements": "x"}, "requirements", "pip install"),
            ({"lock": "x"}, "lock", "setup_script"), ({"preload": ["x"]}, "preload", "setup_script"), ({"base": 7}, "base", "string"),
            ({"language": "go"}, "language", "go")]:
        status, error = refused(server, **fields)
        assert status == 400 and error["field"] == field and words in error["message"], (fields, error)
    reply = server("POST", "/v1/images", {"language": "python", "base": "root"})
    assert reply.status == 400 and reply.json()["error"]["field"] == "setup_script"
    assert refused(server, base="nothing")[0] == 404
    assert server("POST", "/v1/images", {"language": "python", "setup_script": "true", "name": "plain"}).status == 201
    status, error = refused(server, base="plain")
    assert status == 400 and error["field"] == "base" and "whole root" in error["message"]
    # the curated base says how to get one
    reply = server("POST", "/v1/images", {"language": "python", "setup_script": "apt-get install -y jq"})
    assert reply.status == 422 and "`base`" in reply.json()["error"]["message"]
    # packages of sessions say so, too
    session = server("POST", "/v1/sessions", {"language": "python", "image": "root"}).json()["id"]
    reply = server("POST", "/v1/sessions/%s/packages" % session, {"manager": "pip", "packages": ["hermes-probe"]})
    assert reply.status == 501 and "`base`" in reply.json()["error"]["message"]
    assert server("DELETE", "/v1/sessions/" + session).status == 204


def test_a_failed_script_says_why_and_leaves_nothing(server, root):
    imported(server, root)
    before = {path.name for path in (server.state / "server/images/layers").iterdir()}
    status, error = refused(server, "apt-get update && apt-get install -y hermes-nothing")
    assert status == 422 and "hermes-nothing" in error["message"]
    status, error = refused(server, "echo 'deb [trusted=yes] http://far.example.com/apt ./' >/etc/apt/sources.list; apt-get update; "
                                    "apt-get install -y x")
    assert status == 422 and "the host far.example.com is not among registry_hosts" in error["message"]
    status, error = refused(server, "cat /dev/zero >/big")
    assert status == 422 and ("disk" in error["message"] or "No space" in error["message"]), error
    assert {path.name for path in (server.state / "server/images/layers").iterdir()} == before


def test_a_base_belongs_to_its_key(world, root):
    path = borrow_dir()
    keys = path / "keys"
    keys.write_text("[ann]\nkey = key-of-ann-1234567890\n\n[bob]\nkey = key-of-bob-1234567890\n")
    keys.chmod(0o600)
    server = Server(path, env=dict(image_settings(), HERMES_KEYS_FILE=str(keys)))
    ann, bob = "key-of-ann-1234567890", "key-of-bob-1234567890"
    try:
        base = imported(server, root, key=ann)
        for name in "root", base["id"]:
            assert refused(server, base=name, key=bob)[0] == 404
        assert build(server, "echo 1 >/etc/one", key=ann, name="a")["owner"] == "ann"
        # the same root and the same script of another key are another image
        imported(server, root, key=bob)
        assert build(server, "echo 1 >/etc/one", key=bob, name="a")["owner"] == "bob"
    finally:
        assert server.stop() == 0
        return_dir(path)


# --- the box is uid 0 of its user namespace, and that gives it nothing

PROBE = r"""
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
report, out = {}, open(sys.argv[1], "w")
def attempt(what, how):
    try:
        value = how()
        report[what] = value if isinstance(value, (int, str, list)) else "done"
    except OSError as problem:
        report[what] = errno.errorcode.get(problem.errno, str(problem))
def call(number, *args):
    ctypes.set_errno(0)
    if libc.syscall(number, *args) == -1:
        raise OSError(ctypes.get_errno(), "")
def lines(path, word):
    return [line.split()[1] for line in open(path) if line.startswith(word)]
X = os.uname().machine == "x86_64"
os.makedirs("/mnt/here", exist_ok=True)
attempt("mount", lambda: call(165 if X else 40, b"none", b"/mnt/here", b"tmpfs", 0, None))
attempt("fsopen", lambda: call(430, b"tmpfs", 0))
attempt("bind", lambda: call(165 if X else 40, b"/base", b"/mnt/here", None, 4096, None))
attempt("remount", lambda: call(165 if X else 40, None, b"/base", None, 32, None))
attempt("umount", lambda: call(166 if X else 39, b"/mnt/here", 2))
attempt("mknod", lambda: os.mknod("/mnt/null", 0o20666, os.makedev(1, 3)))
attempt("whiteout", lambda: os.mknod("/mnt/whiteout", 0o20666, 0))
attempt("unshare", lambda: call(272 if X else 97, 0x10000000))
attempt("setns", lambda: call(308 if X else 268, os.open("/proc/self/ns/user", 0), 0))
attempt("ptrace", lambda: call(101 if X else 117, 16, 1, None, None))
attempt("kill init", lambda: os.kill(1, 9))
attempt("hostname", lambda: socket.sethostname("mine"))
attempt("bpf", lambda: call(321 if X else 280, 0, None, 0))
attempt("see init", lambda: os.listdir("/proc/1"))
attempt("setresuid", lambda: os.setresuid(1000, 1000, 1000))
attempt("capabilities", lambda: sorted(set(lines("/proc/self/status", "Cap"))))
attempt("no new privileges", lambda: lines("/proc/self/status", "NoNewPrivs"))
attempt("filter", lambda: lines("/proc/self/status", "Seccomp:"))
attempt("chroot", lambda: os.chroot("/mnt"))
"""
REFUSED = {"mount": "EPERM", "fsopen": "EPERM", "bind": "EPERM", "remount": "EPERM", "umount": "EPERM", "mknod": "EPERM",
           "whiteout": "EPERM", "chroot": "EPERM", "unshare": "EPERM", "setns": "EPERM", "ptrace": "EPERM", "kill init": "EPERM",
           "hostname": "EPERM", "bpf": "EPERM", "see init": "ENOENT", "setresuid": "EPERM",
           "capabilities": ["0000000000000000"], "no new privileges": ["1"], "filter": ["2"]}
FILES = r"""
import stat
attempt("base", lambda: open("/base/etc/base-log", "a"))
attempt("new in base", lambda: os.mkdir("/base/new"))
attempt("link to base", lambda: os.link("/base/etc/base-log", "/etc/linked"))
attempt("device of base", lambda: open("/base/dev/null", "w").write("x"))
attempt("ours", lambda: open("/base/usr/lib/hermes/hermes-layer", "ab"))
attempt("remove ours", lambda: os.unlink("/base/usr/lib/hermes/hermes-layer"))
attempt("move ours", lambda: os.rename("/base", "/other"))
attempt("new device", lambda: os.mkdir("/dev/new"))
attempt("proc", lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
attempt("chown", lambda: os.chown("/etc/base-log", 12345, 12345))
attempt("owner", lambda: os.stat("/etc/base-log").st_uid)
attempt("id", os.getuid)
os.close(os.open("/usr/bin/suid", os.O_CREAT, 0o755))
attempt("set-id", lambda: os.chmod("/usr/bin/suid", 0o6755))
attempt("bits", lambda: oct(stat.S_IMODE(os.stat("/usr/bin/suid").st_mode)))
attempt("mounts", lambda: sorted(line.split()[4] for line in open("/proc/self/mountinfo") if "nosuid" not in line.split()[5]))
attempt("devices", lambda: sorted(line.split()[4] for line in open("/proc/self/mountinfo") if "nodev" not in line.split()[5]))
attempt("attribute", lambda: os.setxattr("/etc", "trusted.overlay.opaque", b"y"))
"""
KEPT = {"base": "EROFS", "new in base": "EROFS", "link to base": "EXDEV", "device of base": 1, "ours": "EACCES", "remove ours": "EROFS",
        "move ours": "EBUSY", "new device": "EROFS", "proc": "EROFS", "chown": "done", "owner": 0, "id": 0, "set-id": "done",
        "bits": "0o6755", "mounts": [], "devices": ["/base/dev", "/dev"], "attribute": "EPERM"}
REPORT = "\njson.dump(report, out)\n"


# The same where nothing stops it. What the kernel then says of a call without sense is no EPERM.
WORKS = dict.fromkeys(("mount", "fsopen", "bind", "umount", "mknod", "whiteout", "ptrace", "kill init", "hostname", "setresuid",
                       "base", "new in base", "link to base", "ours", "remove ours", "move ours", "new device", "attribute"), "done")
WORKS.update({"setns": "EINVAL", "remount": "EINVAL", "bpf": "EINVAL", "owner": 12345})


def test_uid_0_of_the_box_gives_nothing(server, root):
    imported(server, root)
    script = "cat >/tmp/probe.py <<'END'\n%sEND\npython3 /tmp/probe.py /etc/report" % (PROBE + FILES + REPORT)
    image = build(server, script, name="probed")
    report = json.loads((tree(server, image) / "etc/report").read_text())
    assert {name: report[name] for name in REFUSED} == REFUSED
    assert {name: report[name] for name in KEPT} == KEPT
    assert oct(os.stat(tree(server, image) / "usr/bin/suid").st_mode & 0o7777) == "0o755"
    owner = os.stat(tree(server, image, 1)).st_uid
    assert os.stat(tree(server, image) / "etc/report").st_uid == owner


def test_the_probe_works_where_the_barriers_are_missing(area, as_root):
    """The control: root of a user namespace of its own, as a box would be with capabilities and without a filter."""
    where = area / "report"
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    probe = PROBE.replace("/mnt", str(area)).replace("/base", str(area)) + REPORT
    done = subprocess.run(["unshare", "-Urm", "/usr/bin/python3", "-c", probe, str(where)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(where.read_text())
    assert {name: report[name] for name in ("mount", "bind", "umount", "whiteout", "chroot", "unshare")} == dict.fromkeys(
        ("mount", "bind", "umount", "whiteout", "chroot", "unshare"), "done")
    assert report["capabilities"] != REFUSED["capabilities"] and report["filter"] == ["0"]


def test_the_probe_works_for_root(area, as_root):
    """The control of what needs more: root with its capabilities, in namespaces of its own, and directories that can be written."""
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    for name in "base/etc/base-log", "base/usr/lib/hermes/hermes-layer", "base/dev/null", "etc/base-log", "usr/bin/x", "dev/x", "mnt/x":
        (area / name).parent.mkdir(parents=True, exist_ok=True)
        (area / name).write_text("")
    start, calls = PROBE.split("X = ")
    # Not what would give away the rights of the others; and to be traced, but not to stop.
    calls = "X = " + "".join(line for line in calls.splitlines(True) if "unshare" not in line).replace("16, 1,", "0x4206, 1,")
    here = FILES
    for place in "base", "etc", "usr/bin", "dev", "other":
        here = here.replace('"/%s' % place, '"%s/%s' % (area, place))
    report = {}
    for part in calls.replace("/mnt", "%s/mnt" % area).replace("/base", "%s/base" % area), here:
        (area / "probe.py").write_text(start + part + REPORT)
        done = subprocess.run(["unshare", "-mpfu", "--mount-proc", "sh", "-c", "/usr/bin/python3 %s/probe.py %s/report; exit $?" % (area, area)],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        report.update(json.loads((area / "report").read_text()))
    assert {name: report[name] for name in WORKS} == WORKS


# --- hostile bases, and layers upon them

TRICKS = [
    member("box", SYM, link="/etc"), member("tmp", SYM, link="/etc"), member("proc", SYM, link="/etc"), member("mnt", data=b"x"),
    member("dev", SYM, link="/etc"), member("base", SYM, link="/etc"), member("run/", DIR), member("usr/lib/hermes", SYM, link="/etc"),
    member("etc/passwd", SYM, link="/proc/1/mem"), member("etc/resolv.conf", SYM, link="/usr/lib/hermes/hermes-layer"),
    member("etc/hostname", data=b"builder\n"), member("etc/marker", data=b"mine"),
]
LOOK = """
import os
print([os.path.islink(p) for p in ('/box', '/tmp', '/proc', '/dev', '/mnt', '/usr/lib/hermes', '/etc', '/etc/passwd')],
      os.getcwd(), open('/etc/passwd').readline().startswith('root:'), 'builder' in open('/etc/hostname').read(),
      'nameserver' in open('/etc/resolv.conf').read(), os.path.isfile('/etc/nsswitch.conf'),
      os.path.isfile('/usr/lib/hermes/kernel.py'), os.stat('/dev/null').st_rdev == os.makedev(1, 3))
"""
SEEN = "[False, False, False, False, False, False, False, False] /box True False True True True True\n"


def looked(server, image):
    reply = server.run("python", LOOK, image=image).json()
    assert reply["status"] == "ok", reply
    return reply["stdout"]


def test_a_hostile_base(server):
    """Names that the box needs are links in the base, and the script does the same again."""
    imported(server, apt_root(APT, *TRICKS))
    assert looked(server, "root") == SEEN
    image = build(server, "apt-get update && apt-get install -y hermes-deb; cat /etc/marker", name="upon")
    assert looked(server, "upon") == SEEN
    assert said(server, "hermes-deb", "upon") == "deb 2.0\n"
    assert "base" not in files(tree(server, image))
    # the script removes and replaces what it can
    build(server, "for name in box tmp proc dev usr/lib/hermes base; do rm -rf /$name 2>/dev/null || rmdir /$name 2>/dev/null || true; done\n"
                  "rm -rf /mnt /run; ln -s /proc /mnt; ln -s /proc/1 /run; rm -rf /etc/passwd /etc/hostname /etc/nsswitch.conf\n"
                  "mkdir /etc/passwd; ln -s /dev/null /etc/hostname", name="worse")
    assert looked(server, "worse") == SEEN
    build(server, "mv /etc /usr/etc; ln -s usr/etc /etc; mv /var /usr/var; ln -s usr/var /var", name="moved")
    assert looked(server, "moved") == SEEN


def test_deletions_of_what_only_hermes_decides(server):
    """An archive whose upper layer deletes the places of Hermes, and hides whole directories."""
    gone = [member(name) for name in (".wh.box", ".wh.tmp", ".wh.proc", ".wh.dev", ".wh.mnt", "etc/.wh.passwd", "etc/.wh.hostname",
                                      "usr/lib/.wh.hermes", "etc/.wh..wh..opq")]
    base = whole_root(member("etc/marker", data=b"mine"), member("etc/passwd", data=b"nobody:x:1:1::/:/bin/sh\n"))
    imported(server, Layout(base, tar(*gone)).tar())
    assert looked(server, "root") == SEEN
    assert server.run("python", "import os; print(os.path.exists('/etc/marker'))", image="root").json()["stdout"] == "False\n"
    imported(server, Layout(base).tar(), "control")
    assert server.run("python", "import os; print(os.path.exists('/etc/marker'))", image="control").json()["stdout"] == "True\n"
    hidden = Layout(base, tar(member(".wh..wh..opq")))
    reply = server("POST", "/v1/images/import?name=hidden", hidden.tar(), headers={"Content-Type": "application/x-tar"})
    assert reply.status == 400


def test_a_script_that_writes_its_own_archive(server, root):
    """What it writes to the stream of the layer is a stranger's archive, or none."""
    imported(server, root)
    status, error = refused(server, "echo rubbish >&3")
    assert status == 422 and "layer" in error["message"]
    # attributes of overlayfs that it sets are its own deletions and nothing more
    script = "cat >/tmp/x.py <<'END'\nimport os\nopen('/etc/gone', 'w')\nos.setxattr('/etc/gone', 'user.overlay.whiteout', b'y')\n" \
             "os.setxattr('/etc', 'user.overlay.opaque', b'x')\nos.setxattr('/root', 'user.overlay.redirect', b'/usr')\n" \
             "os.setxattr('/root', 'user.overlay.metacopy', b'')\nopen('/root/x', 'w')\nEND\npython3 /tmp/x.py"
    image = build(server, script, name="attributes")
    assert said(server, "ls /root; ls /etc/gone 2>&1; cat /etc/base-log", "attributes") == \
        "x\nls: cannot access '/etc/gone': No such file or directory\nbase\n"
    assert os.listxattr(tree(server, image) / "root") == []


def test_without_a_server(area, as_root, root, world):
    """`hermes image build` with a recipe that names a base."""
    archive, recipe = area / "root.tar", area / "recipe.json"
    archive.write_bytes(root)
    recipe.write_text(json.dumps({"name": "debs", "language": "python", "base": "root",
                                  "setup_script": "apt-get update && apt-get install -y hermes-deb"}))
    env = dict(os.environ, HERMES_STATE_DIR=str(area / "state"), HERMES_REGISTRY_HOSTS=INDEX)

    def hermes(*words):
        return subprocess.run([*world.host.enter(), str(BUILD / "hermes"), *map(str, words)], env=env, capture_output=True, text=True)
    assert hermes("image", "import", "--name", "root", archive).stdout == "root\n"
    done = hermes("image", "build", recipe)
    assert done.stdout == "debs\n", done.stderr
    (area / "main.py").write_text("import subprocess; subprocess.run(['hermes-deb'])")
    assert hermes("run", "--image", "debs", area / "main.py").stdout == "deb 2.0\n"
