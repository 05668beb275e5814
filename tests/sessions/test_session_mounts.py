# SPDX-License-Identifier: Apache-2.0
"""`mounts` of POST /v1/sessions: directories of the operator, as for a run."""
import os
import shutil

import pytest

from apilib import Server, make_dir
from sessionlib import Session

LOOK = {"python": "import os; print(open('/mnt/data/a').read()); print(os.access('/mnt/data', os.W_OK))",
        "javascript": "const fs = require('fs'); console.log(fs.readFileSync('/mnt/data/a', 'utf8'));"
                      "try { fs.writeFileSync('/mnt/data/w', ''); console.log('True') } catch { console.log('False') }",
        "bash": "cat /mnt/data/a; echo; touch /mnt/data/w 2>/dev/null && echo True || echo False"}


@pytest.fixture(scope="module")
def operated():
    work = make_dir()
    for name in ("data", "scratch"):
        (work / name).mkdir()
        os.chmod(work / name, 0o777)
    (work / "data" / "a").write_text("of the operator")
    conf = work / "conf"
    conf.write_text("".join("[mount %s]\npath = %s\nmode = %s\n" % (name, work / name, mode)
                            for name, mode in (("data", "ro"), ("scratch", "rw"))))
    conf.chmod(0o600)
    server = Server(work, args=["--config", str(conf)], env={"HERMES_SESSION_PARKED": "0"})
    yield server, work
    status = server.stop()
    shutil.rmtree(work)
    assert status == 0


def data(mode="ro", **fields):
    return dict({"name": "data", "path": "/mnt/data", "mode": mode}, **fields)


@pytest.mark.parametrize("language", LOOK)
def test_a_session_has_what_it_asked_for_and_no_more(operated, language):
    server, work = operated
    session = Session(server, language, mounts=[data()])
    assert session.out(LOOK[language]).split("\n")[:2] == ["of the operator", "False"]
    assert session.call("POST", "/reset").status == 200
    assert session.out(LOOK[language]).split("\n")[:2] == ["of the operator", "False"]  # a new interpreter has it, too
    assert session.delete().status == 204
    assert sorted(os.listdir(work / "data")) == ["a"]
    other = Session(server, "bash")  # the control: it did not ask
    assert other.out("ls /mnt") == ""
    assert other.delete().status == 204


def test_a_directory_for_writing(operated):
    server, work = operated
    session = Session(server, "bash", mounts=[{"name": "scratch", "path": "/mnt/s", "mode": "rw"}])
    session.out("echo made > /mnt/s/new")
    assert (work / "scratch" / "new").read_text() == "made\n"
    assert session.delete().status == 204


def test_a_session_with_mounts_is_not_copied(operated):
    session = Session(operated[0], "python", mounts=[data()])
    reply = session.call("POST", "/fork")
    assert reply.status == 501 and "mounts" in reply.json()["error"]["message"], reply
    assert session.out("print(open('/mnt/data/a').read())") == "of the operator\n"  # it is as it was
    assert session.delete().status == 204


@pytest.mark.parametrize("mount", [data("rw"), data(name="other"), data(path="/etc"), data(path="/mnt/../etc"), data("x")])
def test_what_the_operator_did_not_offer_is_refused(operated, mount):
    server, _ = operated
    reply = server("POST", "/v1/sessions", {"language": "python", "mounts": [mount]})
    assert reply.status in (400, 403) and reply.json()["error"]["field"].startswith("mounts"), reply
    assert reply.status == server.run("python", "1", mounts=[mount]).status  # as for a run
