# SPDX-License-Identifier: Apache-2.0
"""Files of a session over HTTP: what goes in comes out, what is changed is told, and how much of it
fits. test_session_files_hostile.py has the code that fights back."""
import io
import os
import re
import sys
import tarfile
import threading
import time
import zipfile

import pytest

from apilib import wait_until
from serving import serve_as
from sessionlib import Later, Session

MIB = 1 << 20


def names(session, path=""):
    return [e["name"] for e in session.call("GET", "/files" + path).json()["entries"]]


def upload(session, path, body, headers=None):
    """A PUT that may be refused while the body is still on its way; chunked without a length."""
    conn = session.server.connect()
    try:
        conn.request("PUT", "/v1/sessions/%s/files/%s" % (session.id, path), body, headers or {})
    except (BrokenPipeError, ConnectionResetError):
        pass
    answer = conn.getresponse()
    text = answer.read()
    conn.close()
    return answer.status, text


def memory(pid, field):
    return int(re.search(r"^%s:\s+(\d+) kB" % field, open("/proc/%d/status" % pid).read(), re.M)[1]) << 10


def test_put_get_delete(session):
    s = session()
    data = bytes(range(256)) * 700
    assert s.call("PUT", "/files/data.bin", data).status == 201
    reply = s.call("GET", "/files/data.bin")
    assert reply.status == 200 and reply.body == data
    assert reply.headers["Content-Length"] == str(len(data)) and reply.headers["X-Hermes-Mode"] == "0644"
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["Content-Disposition"] == "attachment"
    assert s.out("print(open('/box/data.bin','rb').read() == bytes(range(256)) * 700)") == "True\n"
    assert s.call("PUT", "/files/data.bin", b"other").status == 204
    assert s.out("print(open('data.bin').read())") == "other\n"
    head = s.call("HEAD", "/files/data.bin")
    assert head.status == 200 and head.headers["Content-Length"] == "5" and head.body == b""
    assert s.call("DELETE", "/files/data.bin").status == 204
    assert s.call("GET", "/files/data.bin").status == 404 == s.call("DELETE", "/files/data.bin").status
    assert names(s) == []


@pytest.mark.parametrize("spelled, name", [
    ("plain", "plain"), ("a/b/c/d", "a/b/c/d"), ("with%20space", "with space"), ("pl+us", "pl+us"),
    ("%C3%A4%E2%82%AC", "\u00e4\u20ac"), ("q%3Fm%23%25", "q?m#%"), ("quo'te\"", "quo'te\""), (".hidden", ".hidden"),
    ("%61", "a"), ("x" * 255, "x" * 255), ("/".join("d" * 32), "/".join("d" * 32))])
def test_names(session, spelled, name):
    s = session()
    spelled = spelled.replace('"', "%22")
    assert s.call("PUT", "/files/" + spelled, b"1").status == 201
    assert s.call("GET", "/files/" + spelled).body == b"1"
    assert s.exec("import os; assert open(%r).read() == '1'; os.listdir('/box')" % name)["status"] == "ok"


@pytest.mark.parametrize("spelled", [
    "..", "../x", "a/../b", "a/./b", ".", "a//b", "/a", "a/", "%2e%2e", "%2e%2e%2fx", "%2Fetc/passwd", "a%00b", "a%0Ab", "a%7fb", "a%5Cb",
    "%ff%fe", "%zz", "%4", "%", "x" * 256, "y/" * 33 + "y", "z" * 200 + ("/" + "z" * 200) * 20])
def test_bad_names(session, spelled):
    s = session()
    for method, body in (("GET", None), ("PUT", b"1"), ("DELETE", None)):
        reply = s.call(method, "/files/" + spelled, body)
        assert reply.status == 400, (method, reply)
        assert reply.json()["error"]["field"] == "path"
    assert names(s) == []


@pytest.mark.parametrize("query", ["path=..", "path=/", "path=/etc", "path=a//b", "path=a%00b", "path=%2e%2e/x", "recursive=1", "recursive="])
def test_bad_queries(session, query):
    s = session()
    assert s.call("GET", "/files?" + query).status == 400
    if query.startswith("path"):
        assert s.call("GET", "/archive?" + query).status == 400
    assert s.call("GET", "/archive?format=rar").status == 400
    assert s.call("PUT", "/files/x?executable=maybe", b"").status == 400
    assert names(s) == []


def test_other_methods_and_empty_paths(session):
    s = session()
    assert s.call("POST", "/files/x", b"1").status == 405
    assert s.call("PUT", "/files", b"1").status == 405
    assert s.call("GET", "/files/").status == 404


def test_belongs_to_its_key(make_server):
    server = make_server(env={"CODE_RUNNER_API_KEYS": "one,two"})
    s = Session(server, key="one")
    s.call("PUT", "/files/secret", b"1")
    for method, path, body in (("GET", "/files/secret", None), ("PUT", "/files/x", b"1"), ("DELETE", "/files/secret", None),
                               ("GET", "/files", None), ("GET", "/archive", None)):
        assert s.call(method, path, body, key="two").status == 404
        assert server(method, "/v1/sessions/%s%s" % (s.id, path), body).status == 401
    big = b"x" * (1 * MIB)
    assert upload(s, "x", big)[0] == 401
    assert upload(s, "x", big, {"X-API-Key": "two"})[0] == 404
    assert names(s) == ["secret"]
    s.delete()


def test_empty_and_executable(session):
    s = session()
    assert s.call("PUT", "/files/empty", b"").status == 201
    assert s.call("GET", "/files/empty").body == b""
    script = b"#!/usr/bin/python3\nprint('ran')\n"
    assert s.call("PUT", "/files/run.py?executable=true", script).status == 201
    assert s.out("import subprocess; print(subprocess.run(['./run.py'], capture_output=True, text=True).stdout)") == "ran\n\n"
    assert s.call("GET", "/files/run.py").headers["X-Hermes-Mode"] == "0755"
    assert s.call("PUT", "/files/run.py", script).status == 204
    assert s.call("GET", "/files/run.py").headers["X-Hermes-Mode"] == "0644"


def test_conflicts(session):
    s = session()
    s.call("PUT", "/files/d/f", b"1")
    for method, path, body in (("GET", "d", None), ("PUT", "d", b"1"), ("PUT", "d/f/g", b"1"), ("GET", "d/f/g", None), ("DELETE", "d", None)):
        reply = s.call(method, "/files/" + path, body)
        assert reply.status == 409 and reply.json()["error"]["code"] == "conflict", (method, path, reply)
    assert s.call("GET", "/files?path=d/f").status == 409
    assert names(s, "?recursive=true") == ["d", "d/f"]
    assert s.call("DELETE", "/files/d?recursive=true").status == 204
    assert names(s) == []


def test_a_dead_session_still_has_its_files(session):
    s = session()
    s.exec("open('kept', 'w').write('data'); import os; os._exit(3)")
    assert s.state()["state"] == "dead"
    assert s.call("GET", "/files/kept").body == b"data"
    assert s.call("PUT", "/files/later", b"too").status == 201
    assert s.call("POST", "/reset").json()["files_kept"]
    assert s.out("print(open('kept').read() + open('later').read())") == "datatoo\n"
    assert s.exec("open('new', 'w')")["files_changed"] == ["new"]


def test_a_session_without_a_box(session):
    s = session(limits={"memory_mb": 128})
    s.call("PUT", "/files/x", b"1")
    s.exec("x = bytearray(1 << 30)")
    assert s.state()["reason"] == "memory_limit"
    for method, path, body in (("GET", "/files/x", None), ("PUT", "/files/x", b"1"), ("GET", "/files", None), ("GET", "/archive", None)):
        reply = s.call(method, path, body)
        assert reply.status == 409 and "no files" in reply.json()["error"]["message"]
    assert upload(s, "x", b"x" * (9 * MIB))[0] == 409


def test_listing(session):
    s = session()
    s.exec("""import os, socket
os.mkdir('dir'); open('dir/inner', 'w').write('12345'); open('file', 'w'); os.chmod('file', 0o755)
os.symlink('/etc/passwd', 'link'); os.symlink('dir', 'dirlink'); os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('sock'); open(b'bad\\xff', 'w')""")
    listing = s.call("GET", "/files").json()
    kinds = {e["name"]: e["type"] for e in listing["entries"]}
    assert kinds == {"dir": "directory", "file": "file", "link": "link", "dirlink": "link", "fifo": "fifo", "sock": "socket",
                     "bad\ufffd": "file"}
    assert [e["name"] for e in listing["entries"]] == sorted(kinds) and not listing["truncated"]
    by_name = {e["name"]: e for e in listing["entries"]}
    assert by_name["file"]["executable"] and by_name["file"]["mode"] == "0755" and not by_name["dir"]["executable"]
    stamp = by_name["file"]["mtime"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    inner = s.call("GET", "/files?path=dir").json()
    assert inner["path"] == "dir" and [(e["name"], e["size"]) for e in inner["entries"]] == [("inner", 5)]
    assert names(s, "?path=dir&recursive=true") == ["inner"]
    assert "dirlink/inner" not in names(s, "?recursive=true") and "dir/inner" in names(s, "?recursive=true")
    assert s.call("GET", "/files?path=nix").status == 404


def test_a_listing_has_bounds(session):
    s = session(limits={"disk_mb": 256, "memory_mb": 512})  # entries are bounded by disk_mb too
    assert s.exec("import os\nfor i in range(12000): os.mknod('f%05d' % i)", timeout_ms=60000)["status"] == "ok"
    listing = s.call("GET", "/files").json()
    assert listing["truncated"] and len(listing["entries"]) == 10000
    s.exec("import os\nfor i in range(12000): os.unlink('f%05d' % i)\nfor i in range(1500): os.makedirs('d/' + '%04d' % i + 'x' * 200)",
           timeout_ms=60000)
    assert len(s.call("GET", "/files?recursive=true").json()["entries"]) == 1501


def test_files_changed(session):
    s = session()
    assert s.exec("1")["files_changed"] == []
    assert s.exec("open('a', 'w').write('1'); import os; os.makedirs('d/e'); open('d/e/f', 'w')")["files_changed"] == ["a", "d/e/f"]
    assert s.exec("open('a').read()")["files_changed"] == []
    assert s.exec("open('a', 'a').write('2')")["files_changed"] == ["a"]
    assert s.exec("os.rename('a', 'b')")["files_changed"] == ["b"]
    assert s.exec("os.unlink('b')")["files_changed"] == []
    assert s.exec("os.symlink('nix', 'l'); os.mkfifo('p')")["files_changed"] == ["l", "p"]
    s.call("PUT", "/files/up", b"1")
    assert s.exec("1")["files_changed"] == []  # by the caller, before it
    answer = s.exec("import os\nfor i in range(3000): open('many%d' % i, 'w')")
    assert len(answer["files_changed"]) == 1000 and answer["files_changed_truncated"]
    answer = s.exec("1")
    assert answer["files_changed"] == [] and not answer["files_changed_truncated"]
    for _ in range(20):
        assert s.exec("open('again', 'w')")["files_changed"] == ["again"]
        assert s.exec("1")["files_changed"] == []


@pytest.mark.parametrize("language, code", [("bash", "echo 1 > out.txt"), ("javascript", "require('fs').writeFileSync('out.txt', '1')")])
def test_files_changed_in_other_languages(session, server, language, code):
    if server("POST", "/v1/sessions", {"language": language}).status != 201:
        pytest.skip("no sessions of %s in this build" % language)
    assert session(language).exec(code)["files_changed"] == ["out.txt"]


def test_files_changed_in_a_stream_and_after_an_interrupt(session):
    s = session()
    assert s.stream("open('x', 'w')")[-1][1]["files_changed"] == ["x"]
    answer = s.exec("import time\nopen('y', 'w')\ntime.sleep(60)", timeout_ms=300)
    assert answer["status"] == "time_limit" and answer["files_changed"] == ["y"]
    assert s.exec("open('z', 'w'); import os; os._exit(1)")["files_changed"] == ["z"]


def test_files_changed_of_a_big_tree_does_not_take_long(session):
    s = session(limits={"disk_mb": 200, "memory_mb": 512})
    s.exec("import os\nfor i in range(300):\n  os.makedirs('t/%d' % i)\n  for j in range(50): os.mknod('t/%d/%d' % (i, j))", timeout_ms=60000)
    s.exec("1")
    began = time.monotonic()
    for _ in range(10):
        s.exec("1")
    assert time.monotonic() - began < 10 * 3  # 0.2 s each, were it not for a slow machine


def test_transfer_while_code_runs(session):
    s = session()
    late = s.later("import time\nfor i in range(600):\n  try: print(open('go').read()); break\n  except OSError: time.sleep(.05)", timeout_ms=60000)
    assert wait_until(lambda: s.state()["state"] == "busy", 5)
    assert names(s) == []
    assert s.call("PUT", "/files/go", b"now").status == 201
    assert late.result().json()["stdout"] == "now\n"
    busy = s.later("while True: pass", timeout_ms=3000)
    assert s.call("GET", "/files/go").body == b"now"
    assert s.call("DELETE", "/files/go").status == 204
    busy.result()


def test_concurrent_uploads(session):
    s = session(limits={"disk_mb": 128})
    bodies = [bytes([65 + i]) * (5 * MIB + i) for i in range(6)]
    same = [Later(lambda b=b: s.call("PUT", "/files/same", b)) for b in bodies]
    apart = [Later(lambda i=i, b=b: s.call("PUT", "/files/d/%d" % i, b)) for i, b in enumerate(bodies)]
    statuses = sorted(one.result().status for one in same)
    assert set(statuses) <= {201, 204} and statuses.count(201) == 1
    assert [one.result().status for one in apart] == [201] * 6
    assert s.call("GET", "/files/same").body in bodies
    for i, body in enumerate(bodies):
        assert s.call("GET", "/files/d/%d" % i).body == body
    assert names(s) == ["d", "same"]


def test_too_many_transfers_are_told_to_come_again(session):
    s = session(limits={"disk_mb": 128, "memory_mb": 512, "file_size_mb": 128})
    s.exec("open('big', 'wb').truncate(100 << 20)")
    open_ones = []
    for _ in range(16):
        conn = s.server.connect()
        conn.request("GET", "/v1/sessions/%s/files/big" % s.id)
        assert conn.getresponse().status == 200
        open_ones.append(conn)
    reply = s.call("GET", "/files/big")
    assert reply.status == 429 and reply.headers["Retry-After"]
    for conn in open_ones:
        conn.close()
    assert wait_until(lambda: s.call("HEAD", "/files/big").status == 200, 20)


def test_100_mib_up_and_down(server, session):
    s = session(limits={"disk_mb": 256, "memory_mb": 512})
    pid = server.child("hermes-server")
    block = os.urandom(MIB)
    server("GET", "/health")
    open("/proc/%d/clear_refs" % pid, "w").write("5")  # the high water mark begins here
    before = memory(pid, "VmRSS")

    def pieces():
        for _ in range(100):
            yield block
    status, text = upload(s, "big", pieces(), {"Content-Length": str(100 * MIB)})
    assert status == 201, text
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/files/big" % s.id)
    answer = conn.getresponse()
    assert answer.headers["Content-Length"] == str(100 * MIB)
    for _ in range(100):
        assert answer.read(MIB) == block
    assert answer.read() == b""
    conn.close()
    assert upload(s, "chunked", pieces(), {})[0] == 201
    assert s.out("import os; print(os.path.getsize('chunked'), os.path.getsize('big'))") == "104857600 104857600\n"
    assert memory(pid, "VmHWM") - before < 16 * MIB


def test_no_space(session):
    s = session(limits={"disk_mb": 16})
    s.call("PUT", "/files/old", b"old")
    for headers in ({"Content-Length": str(40 * MIB)}, {}):
        body = (b"x" * MIB for _ in range(40))
        status, text = upload(s, "deep/big", body, headers)
        assert status == 507 and b"no_space" in text
        assert upload(s, "old", (b"y" * MIB for _ in range(40)), headers)[0] == 507
    assert names(s, "?recursive=true") == ["old"]
    assert s.call("GET", "/files/old").body == b"old"
    assert s.call("PUT", "/files/fits", b"x" * (15 * MIB)).status == 201
    assert s.call("PUT", "/files/small", b"x" * (2 * MIB)).status == 507
    s.call("DELETE", "/files/fits")
    assert s.call("PUT", "/files/small", b"x" * (2 * MIB)).status == 201
    s.exec("import os\nwhile True:\n  try: open('fill', 'ab').write(b'x' * (1 << 20))\n  except OSError: break")
    assert s.call("PUT", "/files/more", b"x" * MIB).status == 507
    assert "more" not in names(s)


def test_an_upload_does_not_use_up_the_memory_of_the_session(session):
    limits = {"memory_mb": 128, "disk_mb": 128, "file_size_mb": 128}
    s = session(limits=limits)
    assert upload(s, "big", (b"x" * MIB for _ in range(120)), {"Content-Length": str(120 * MIB)})[0] == 507
    assert upload(s, "big", (b"x" * MIB for _ in range(120)), {})[0] == 507
    late = [Later(lambda i=i: upload(s, "part%d" % i, (b"x" * MIB for _ in range(50)), {"Content-Length": str(50 * MIB)})) for i in range(4)]
    assert {one.result()[0] for one in late} <= {201, 507}
    assert s.out("print('alive')") == "alive\n" and "big" not in names(s)
    # The control: the same bytes, written by the code itself, end the session.
    s = session(limits=limits)
    assert s.exec("open('big', 'wb').write(b'x' * (120 << 20))")["status"] == "memory_limit"


def test_an_upload_that_breaks_off_leaves_nothing(server, session):
    s = session()
    s.call("PUT", "/files/f", b"old")
    for path in ("f", "new/g"):
        conn = server.connect()
        conn.putrequest("PUT", "/v1/sessions/%s/files/%s" % (s.id, path))
        conn.putheader("Content-Length", str(10 * MIB))
        conn.endheaders()
        conn.send(b"x" * MIB)
        assert names(s, "?recursive=true") == ["f"]  # and nothing is to be seen meanwhile
        conn.close()
    time.sleep(.3)
    assert names(s, "?recursive=true") == ["f"] and s.call("GET", "/files/f").body == b"old"


def test_archives(session):
    s = session()
    s.exec("""import os
os.makedirs('p/empty'); open('p/a.txt', 'w').write('alpha'); open('p/\\u00e4\\u20ac.txt', 'w').write('umlaut')
open('p/run', 'w').write('x'); os.chmod('p/run', 0o755); os.symlink('/etc/passwd', 'p/link'); os.mkfifo('p/fifo')
open('p/big', 'wb').write(os.urandom(1 << 20)); open('p/zero', 'w')""")
    big = s.call("GET", "/files/p/big").body
    reply = s.call("GET", "/archive?path=p&format=tar")
    assert reply.status == 200 and reply.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as tar:
        members = {m.name: m for m in tar.getmembers()}
        assert sorted(members) == sorted(["empty", "a.txt", "\u00e4\u20ac.txt", "run", "big", "zero"])
        assert members["empty"].isdir() and members["run"].mode == 0o755 and members["a.txt"].mode == 0o644
        assert tar.extractfile("big").read() == big and tar.extractfile("\u00e4\u20ac.txt").read() == b"umlaut"
    reply = s.call("GET", "/archive?format=zip")
    assert reply.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(reply.body)) as z:
        assert z.testzip() is None
        assert sorted(z.namelist()) == sorted(["p/", "p/empty/", "p/a.txt", "p/\u00e4\u20ac.txt", "p/run", "p/big", "p/zero"])
        assert z.read("p/big") == big and z.read("p/zero") == b""
    assert tarfile.open(fileobj=io.BytesIO(s.call("GET", "/archive?path=p/empty").body)).getnames() == []
    assert s.call("GET", "/archive?path=nix").status == 404
    assert s.call("GET", "/archive?path=p/a.txt").status == 409 == s.call("GET", "/archive?path=p/link").status


def test_what_is_not_in_an_archive_is_told_in_it(session):
    s = session()
    s.exec("import os\nopen(b'bad\\xffname', 'w'); open('back\\\\slash', 'w'); open('good', 'w')\nopen('shut', 'w'); os.chmod('shut', 0)")
    for kind in ("tar", "zip"):
        body = io.BytesIO(s.call("GET", "/archive?format=" + kind).body)
        found = tarfile.open(fileobj=body).getnames() if kind == "tar" else zipfile.ZipFile(body).namelist()
        assert sorted(found) == [".hermes-incomplete", "good"]


def test_deleting_the_session_ends_its_transfers(server, session):
    s = session(limits={"disk_mb": 64, "file_size_mb": 1024})
    s.exec("open('big', 'wb').truncate(1000 << 20)")
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/files/big" % s.id)
    answer = conn.getresponse()
    assert answer.read(MIB) == bytes(MIB)
    sender = server.connect()
    sender.putrequest("PUT", "/v1/sessions/%s/files/up" % s.id)
    sender.putheader("Content-Length", str(10 * MIB))
    sender.endheaders()
    sender.send(b"x" * MIB)
    assert s.delete().status == 204
    with pytest.raises(Exception):  # IncompleteRead or a reset, never a whole file
        while answer.read(MIB):
            pass
        raise EOFError if answer.length else AssertionError("took the end for a whole file")
    try:
        sender.send(b"x" * (9 * MIB))
    except OSError:
        pass
    assert sender.getresponse().status == 409
    conn.close()
    sender.close()


def test_a_killed_server_leaves_nothing(make_server):
    import signal
    from serving import boxes
    server = make_server()
    s = Session(server, limits={"disk_mb": 64, "file_size_mb": 1024})
    s.exec("open('big', 'wb').truncate(1000 << 20)")
    conn = server.connect()
    conn.request("GET", "/v1/sessions/%s/files/big" % s.id)
    assert conn.getresponse().read(MIB)
    assert len(boxes(server)) >= 3  # init, interpreter, helper
    old = server.child("hermes-server")
    os.kill(old, signal.SIGKILL)
    assert wait_until(lambda: not boxes(server), 10)
    assert wait_until(lambda: server.child("hermes-server") not in (None, old), 20)
    assert wait_until(lambda: server("GET", "/health").status == 200, 20)
    reply = s.call("GET", "/files/big")
    assert reply.status == 409 and "its files are gone" in reply.json()["error"]["message"]
    conn.close()


def test_threads_of_transfers_do_not_meet(session):
    """Many at once, up and down, over several sessions: each gets its own bytes."""
    made = [session(limits={"disk_mb": 32}) for _ in range(3)]
    problems = []

    def work(s, n):
        body = os.urandom(200000 + n)
        for i in range(5):
            if s.call("PUT", "/files/%d" % n, body).status not in (201, 204) or s.call("GET", "/files/%d" % n).body != body:
                problems.append((s.id, n, i))
    threads = [threading.Thread(target=work, args=(s, n)) for s in made for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems


def test_the_whole_of_an_output_that_was_cut(session, server):
    s = session(limits={"output_kb": 16, "disk_mb": 16})
    answer = s.exec("import sys\nfor i in range(50000): print('line', i)\nfor i in range(9000): print(i, file=sys.stderr)")
    assert answer["stdout_truncated"] and answer["stdout_file"] == ".hermes/stdout.txt"
    assert answer["stderr_truncated"] and answer["stderr_file"] == ".hermes/stderr.txt"
    want = "".join("line %d\n" % i for i in range(50000)).encode()
    assert s.call("GET", "/files/" + answer["stdout_file"]).body == want
    assert s.out("print(sum(1 for _ in open('/box/.hermes/stderr.txt')))") == "9000\n"
    answer = s.exec("print('short')")
    assert answer["stdout_file"] is None and answer["files_changed"] == []
    answer = s.exec("sys.stdout.write('x' * 16384); sys.stdout.flush(); sys.stdout.write('y'); None")
    assert s.call("GET", "/files/" + answer["stdout_file"]).body == b"x" * 16384 + b"y"
    assert s.exec("sys.stdout.write('x' * 16384); None")["stdout_file"] is None  # all of it fits
    answer = s.exec("for i in range(30000): print('x' * 1000)", timeout_ms=60000)  # more than disk_mb
    assert answer["stdout_truncated"] and answer["stdout_file"] is None
    assert s.out("print('alive')") == "alive\n"
    assert not [p for p in os.listdir(server.state) if p.startswith("spill")]


@pytest.mark.skipif(os.geteuid() != 0 or os.environ.get("HERMES_IN_VM"), reason="needs root to become somebody else")
def test_rootless():
    """Init and code have one uid there, and capabilities only in their own namespace."""
    with serve_as(64125, env={"HERMES_SESSION_PARKED": "0"}) as server:
        s = Session(server)
        assert s.call("PUT", "/files/d/x", b"1").status == 201
        assert s.exec("open('y', 'w').write(open('d/x').read())")["files_changed"] == ["y"]
        assert s.call("GET", "/files/y").body == b"1"
        assert tarfile.open(fileobj=io.BytesIO(s.call("GET", "/archive").body)).getnames() == ["y", "d", "d/x"]
        assert s.call("DELETE", "/files/d?recursive=true").status == 204
        s.exec("import os; os.symlink('/etc/passwd', 'l')")
        assert s.call("GET", "/files/l").status == 409
        assert s.delete().status == 204


def test_a_slow_upload_has_time_but_a_stalled_one_ends(make_server):
    server = make_server(env={"HERMES_REQUEST_TIMEOUT_S": "2"})
    s = Session(server)
    conn = server.connect()
    conn.putrequest("PUT", "/v1/sessions/%s/files/slow" % s.id)
    conn.putheader("Content-Length", str(10 * 100000))
    conn.endheaders()
    for _ in range(10):
        conn.send(b"x" * 100000)
        time.sleep(.5)
    assert conn.getresponse().status == 201  # after more than twice that time
    conn.close()
    conn = server.connect()
    conn.putrequest("PUT", "/v1/sessions/%s/files/stalled" % s.id)
    conn.putheader("Content-Length", str(10 * 100000))
    conn.endheaders()
    conn.send(b"x" * 100000)
    began = time.monotonic()
    assert conn.sock.recv(100) == b""  # the connection is closed
    assert time.monotonic() - began < 20
    conn.close()
    assert wait_until(lambda: names(s) == ["slow"], 5)
    s.delete()
