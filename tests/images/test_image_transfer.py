# SPDX-License-Identifier: Apache-2.0
"""Import and export of images over HTTP, and whole root file systems as roots of boxes."""
import json
import os
import signal
import socket
import tarfile
import threading
import zlib

import pytest

from apilib import wait_until
from layerlib import END, member, raw, tar, zipped
from ocilib import Layout
from rootlib import whole_root

SYM, DIR, CHR = tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE


def bring(server, data, query="", key=None):
    return server("POST", "/v1/images/import?" + query, data, headers={"Content-Type": "application/x-tar"}, key=key)


def imported(server, data, query="", key=None):
    reply = bring(server, data, query, key)
    assert reply.status == 201, reply.body
    return reply.json()


def said(server, code, language="python", key=None, **fields):
    reply = server.run(language, code, key=key, **fields)
    assert reply.status == 200 and reply.json()["status"] == "ok", reply.body
    return reply.json()["stdout"]


def execute(server, session, code):
    return server("POST", "/v1/sessions/%s/exec" % session, {"code": code}).json()["stdout"]


def store(server):
    """What lies in the store, beside its locks."""
    images = server.state / "server/images"
    return sorted("%s/%s" % (d, p.name) for d in ("layers", "images", "incoming", "spool") for p in (images / d).iterdir())


def spooled(server):
    """Unnamed files of the store that the server has open."""
    top = "/proc/%d/fd" % server.child("hermes-server")
    found = []
    for name in os.listdir(top):
        try:
            found.append(os.readlink(os.path.join(top, name)))
        except OSError:
            pass
    return [path for path in found if "/spool/" in path]


PACKAGES = "echo 'x = 5' > $(echo /opt/venv/lib/python3*/site-packages)/img_five.py; echo y > /opt/venv/lib/data"


def test_an_export_comes_back_as_the_same_image(server):
    reply = server("POST", "/v1/images", {"language": "python", "name": "five", "setup_script": PACKAGES, "env": {"A": "1"}})
    assert reply.status == 201, reply.body
    made = reply.json()
    for query in "", "format=oci&compression=zstd", "format=docker":
        archive = server("GET", "/v1/images/five/export?" + query)
        assert archive.status == 200 and archive.headers["Content-Type"] == "application/x-tar", archive.body
        assert int(archive.headers["Content-Length"]) == len(archive.body)
        assert server("GET", "/v1/images/five/export?" + query).body == archive.body, "the same again"
        back = imported(server, archive.body, "name=back")
        assert {k: back[k] for k in ("layers", "language", "version", "packages", "lock", "env", "whole_root")} == \
            {k: made[k] for k in ("layers", "language", "version", "packages", "lock", "env", "whole_root")}
        code = "import img_five, os; print(img_five.x, os.environ['A'])"
        assert said(server, code, image="back") == "5 1\n"
        assert server("DELETE", "/v1/images/back").status == 204
    assert wait_until(lambda: not spooled(server), 60)


@pytest.mark.parametrize("query", ["format=tar", "compression=xz", "format=docker&compression=zstd"])
def test_exports_that_do_not_exist(server, query):
    reply = server("GET", "/v1/images/any/export?" + query)
    assert reply.status == 400 and reply.json()["error"]["field"] in query, reply.body
    assert server("GET", "/v1/images/any/export").status == 404


# A root that tries to decide what only Hermes decides, and what a box then sees.
TRICKS = [
    member("box", SYM, link="/etc"), member("tmp", SYM, link="/etc"), member("proc", SYM, link="/etc"), member("mnt", data=b"x"),
    member("dev", SYM, link="/etc"), member("run/", DIR), member("usr/lib/hermes", SYM, link="/etc"),
    member("etc/passwd", SYM, link="/proc/1/mem"), member("etc/resolv.conf", data=b"nameserver 203.0.113.9\n"),
    member("etc/hostname", data=b"builder\n"), member("etc/nsswitch.conf/", DIR), member("etc/marker", data=b"mine"),
    member("usr/bin/root-id", data=b"\x7fELF", mode=0o6755), member("usr/null", CHR, dev=(1, 3)),
]
LOOK = """
import os
print([os.path.islink(p) for p in ('/box', '/tmp', '/proc', '/dev', '/mnt', '/usr/lib/hermes', '/etc/passwd')],
      os.getcwd(), open('/etc/passwd').readline().startswith('root:'), 'builder' in open('/etc/hostname').read(),
      '203.0.113.9' in open('/etc/resolv.conf').read(), os.path.isfile('/etc/nsswitch.conf'),
      os.path.isfile('/usr/lib/hermes/kernel.py'), oct(os.stat('/usr/bin/root-id').st_mode & 0o7000),
      os.path.exists('/usr/null'), os.stat('/dev/null').st_rdev == os.makedev(1, 3), open('/etc/marker').read())
"""
SEEN = "[False, False, False, False, False, False, False] /box True False False True True 0o0 False True mine\n"


@pytest.fixture(scope="module")
def tricky():
    return whole_root(*TRICKS)


def test_a_whole_root_is_the_root_of_boxes(server, tricky):
    image = imported(server, tricky, "name=root")
    assert image["language"] == "python" and image["version"].startswith("3.") and image["whole_root"]
    assert said(server, LOOK, image="root") == SEEN
    # control: the layer does have these
    hex_ = image["layers"][0]
    tree = server.state / "server/images/layers" / hex_ / "tree"
    assert os.path.islink(tree / "box") and os.path.islink(tree / "etc/passwd") and os.path.islink(tree / "usr/lib/hermes")
    mounts = said(server, "print(open('/proc/self/mountinfo').read())", image="root").splitlines()
    assert " / / ro,nosuid,nodev" in mounts[0] and " overlay " in mounts[0]
    assert not [line for line in mounts if line and "nosuid" not in line.split()[5]]
    assert [line.split()[4] for line in mounts if line and "nodev" not in line.split()[5]] == ["/dev"]
    assert str(server.state) not in "".join(mounts) and hex_ not in "".join(mounts)
    answer = server.run("python", "open('/etc/x', 'w')", image="root").json()
    assert "Read-only file system" in answer["stderr"] and answer["isolation"]["start_reason"] == "image"


def test_sessions_and_judgements_have_a_whole_root(server, tricky):
    imported(server, tricky, "name=root")
    made = server("POST", "/v1/sessions", {"language": "python", "image": "root"})
    assert made.status == 201, made.body
    session = made.json()["id"]
    assert execute(server, session, LOOK) == SEEN
    assert execute(server, session, "x = 7") == ""
    copies = server("POST", "/v1/sessions/%s/fork" % session, {}).json()
    copy = (copies.get("sessions") or [copies])[0]["id"]
    assert execute(server, copy, "print(x, open('/etc/marker').read())") == "7 mine\n"
    assert server("DELETE", "/v1/images/root").status == 409
    answer = server("POST", "/v1/judge", {"language": "python", "image": "root", "code": "print(open('/etc/marker').read(), end='')",
                                          "tests": [{"stdin": "", "expected": "mine"}]})
    assert answer.status == 200 and answer.json()["verdict"] == "accepted", answer.body


def test_a_root_with_nothing_but_sh(server):
    """Another language is another image; what it has not is told by name."""
    data = zipped(whole_root(has_python=False))
    image = imported(server, data, "name=small")
    assert image["language"] == "bash" and image["whole_root"]
    assert said(server, "echo $0; test -e /usr/lib/hermes/hermes-shell && echo ours", "bash", image="small").endswith("ours\n")
    reply = server.run("python", "1", image="small")
    assert reply.status == 400 and "is for bash" in reply.json()["error"]["message"]
    reply = bring(server, data, "language=python")
    assert reply.status == 400 and "no python" in reply.json()["error"]["message"], reply.body
    reply = server("POST", "/v1/images", {"language": "bash", "setup_script": "true"})
    assert reply.status == 400 and "import" in reply.json()["error"]["message"]


def test_layers_of_other_programs(server):
    """Two layers: the second deletes a file of the first and sets a variable."""
    layout = Layout(whole_root(member("etc/gone", data=b"1"), member("etc/stays", data=b"2")),
                    tar(member("etc/.wh.gone"), member("etc/new", data=b"3")))
    layout.config["config"]["Env"] = ["GREETING=hello", "HERMES_X=no", "=bad"]
    image = imported(server, layout.tar(), "name=two")
    assert len(image["layers"]) == 2 and image["env"] == {"GREETING": "hello"}
    code = "import os\nprint([os.path.exists('/etc/' + n) for n in ('gone', 'stays', 'new')], os.environ['GREETING'])"
    assert said(server, code, image="two") == "[False, True, True] hello\n"


def bomb(size):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = packer.compress(raw(b"usr/big", size=b"%011o\0" % size))
    for _ in range(size >> 20):
        out += packer.compress(b"\0" * (1 << 20))
    return out + packer.compress(END) + packer.flush()


HOSTILE = {
    "dot dot": (tar(member("usr/x"), member("../evil", data=b"x")), 400, "out of the layer"),
    "through a link": (tar(member("usr", SYM, link="/etc"), member("usr/evil", data=b"x")), 400, "behind a link"),
    "hard link out": (tar(member("usr/x", tarfile.LNKTYPE, link="/etc/passwd")), 400, "not a file of this archive"),
    "member twice": (tar(member("index.json", data=b"{}"), member("index.json", data=b"[]")), 400, "twice"),
    "no tar": (b"\x7fELF" * 400, 400, "damaged"),
    "cut": (zipped(tar(member("usr/x", data=os.urandom(5000))))[:-30], 400, "too early"),
    "xz": (b"\xfd7zXZ\0" + bytes(600), 400, "xz"),
    "a layout without an image": (tar(member("oci-layout", data=b'{"imageLayoutVersion":"1.0.0"}'), member("index.json", data=b"{}")),
                                  400, ""),
    "neither root nor image": (tar(member("home/x", data=b"x")), 400, "neither a root file system"),
    "no interpreter": (tar(member("usr/bin/python3", data=b"#!/bin/false\n", mode=0o755)), 400, "no interpreter"),
    "empty": (b"", 400, "empty"),
    "no file": (END, 400, "no file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives(server, case):
    data, status, words = HOSTILE[case]
    reply = bring(server, data, "name=hostile")
    assert reply.status == status and words in reply.json()["error"]["message"], reply.body
    assert store(server) == []
    assert wait_until(lambda: not spooled(server), 60)
    assert server("GET", "/v1/images/hostile").status == 404


def told(env=(), **label):
    """An image with packages, and with what its configuration says."""
    layout = Layout(tar(member("opt/venv/x", data=b"x")))
    layout.config["config"] = {"Env": list(env), "Labels": {"hermes.image": json.dumps(label)}}
    return layout.tar()


def test_what_an_archive_tells_is_bounded(server):
    """A list of a key's images is made in memory, with variables and packages of each."""
    packages = [{"name": "p" * 250, "version": str(i)} for i in range(1500)]
    for data in told(env=["BIG=" + "x" * (1 << 20)]), told(packages=packages):
        reply = bring(server, data, "name=big")
        assert reply.status == 413 and "256 KiB" in reply.json()["error"]["message"], reply.body[:400]
    reply = server("POST", "/v1/images", {"language": "python", "setup_script": ":", "env": {"BIG": "x" * (1 << 20)}})
    assert reply.status == 413 and "256 KiB" in reply.json()["error"]["message"], reply.body[:400]
    assert store(server) == []
    image = imported(server, told(env=["FINE=" + "x" * (100 << 10)], packages=packages[:100]))  # control
    assert len(image["env"]["FINE"]) == 100 << 10 and len(image["packages"]) == 100


def test_a_label_that_is_wrong_is_none(server):
    """Its JSON is read within the bounds of that of requests; a version is short and plain."""
    nested = imported(server, told(packages=[{"name": "p", "version": "1"}], more=[[]] * 200000))
    assert nested["packages"] == []
    whole = imported(server, told(packages=[{"name": "p", "version": "1"}], version="1" + "\u00e9" * 40))
    assert whole["packages"] == [{"name": "p", "version": "1"}] and whole["version"] == nested["version"]


def test_names_of_packages_are_plain(server):
    """They are shown on terminals. Whatever else an archive or a build tells is left out."""
    packages = [{"name": name, "version": version} for name, version in
                (("fine", "1.0"), ("a\x1b[31m", "1"), ("b", "1\n2"), ("", "1"), ("c\u202e", "1"), ("d", ""), ("@e/f-g.h", "1!2+c"))]
    kept = [packages[0], packages[-1]]
    assert imported(server, told(packages=packages))["packages"] == kept
    script = "d=$(echo /opt/venv/lib/python3*/site-packages); for n in fine 'a\033[31m'; do mkdir $d/$n.dist-info; " \
        "printf \"Metadata-Version: 2.1\\nName: $n\\nVersion: 1.0\\n\" > $d/$n.dist-info/METADATA; done"
    reply = server("POST", "/v1/images", {"language": "python", "setup_script": script})
    assert reply.status == 201 and reply.json()["packages"] == [packages[0]], reply.body


def test_bounds(make_server):
    server = make_server(env={"HERMES_BUILD_DISK_MB": "16", "HERMES_IMAGE_STORE_MB": "64"})
    connection = server.connect()
    connection.putrequest("POST", "/v1/images/import")
    connection.putheader("Content-Length", str(17 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 413  # before a byte of the body has come
    connection.close()
    reply = bring(server, bomb(32 << 20))
    assert reply.status == 413 and "the limit is" in reply.json()["error"]["message"], reply.body
    for query, field in (("name=a%20b", "name"), ("name=import", "name"), ("language=cobol", "language"), ("language=c", "language")):
        reply = bring(server, b"x", query)
        assert reply.status == 400 and reply.json()["error"]["field"] == field, reply.body
    assert store(server) == []


def test_an_import_belongs_to_its_key(make_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("[ann]\nkey = ann-key-0123456789\n\n[bob]\nkey = bob-key-0123456789\n")
    keys.chmod(0o600)
    server = make_server(env={"HERMES_KEYS_FILE": str(keys)})
    ann, bob = "ann-key-0123456789", "bob-key-0123456789"
    data = whole_root(has_python=False)
    image = imported(server, data, "name=mine", key=ann)
    assert image["owner"] == "ann"
    for name in "mine", image["id"]:
        assert server("GET", "/v1/images/%s/export" % name, key=bob).status == 404
        assert server.run("bash", "true", key=bob, image=name).status == 404
    assert server("GET", "/v1/images/mine/export", key=ann).status == 200
    assert said(server, "echo fine", "bash", key=ann, image="mine") == "fine\n"


def test_a_client_that_leaves(server):
    data = whole_root(has_python=False)
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(server.unix))
    client.sendall(b"POST /v1/images/import?name=gone HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data))
    client.sendall(data[:1 << 20])
    assert wait_until(lambda: spooled(server), 60)  # control: it had begun
    client.close()
    assert wait_until(lambda: not spooled(server), 60)
    assert store(server) == []


@pytest.mark.parametrize("victim", ["hermes-spawn", "hermes-server"])
def test_a_kill_during_an_import_leaves_nothing(make_server, victim):
    server = make_server()
    data = whole_root(has_python=False)
    for moment in 0.02, 0.2, 0.5:
        def ask():
            try:
                bring(server, data, "name=k")
            except OSError:
                pass
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(moment)  # any moment will do
        os.kill(server.child(victim), signal.SIGKILL)
        thread.join()
        assert wait_until(lambda: server.child(victim) and works(server), 60)
        if server("GET", "/v1/images").json()["images"]:  # the import was faster
            assert server("DELETE", "/v1/images/k").status == 204
    image = imported(server, data, "name=k")
    assert said(server, "echo fine", "bash", image="k") == "fine\n"
    found = [name for name in store(server) if not name.startswith("layers/.")]
    assert found == sorted(["layers/" + image["layers"][0], "images/%s.json" % image["id"]])


def works(server):
    try:
        return server.works()
    except OSError:
        return False
