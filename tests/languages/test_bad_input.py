# SPDX-License-Identifier: Apache-2.0
"""Bad and extreme input: a clear refusal that names the fault, or success; never internal_error."""
import os
import pathlib
import tempfile

import pytest

from langlib import Refused, explain, hermes, need, run_box
from table import LANGUAGES

HERMES_FAILED = 125


def refused(*args, **kwargs):
    """What Hermes says; it must be the caller's fault, said as such."""
    with pytest.raises(Refused) as caught:
        run_box(*args, **kwargs)
    assert caught.value.status != HERMES_FAILED, caught.value.text
    assert "internal" not in caught.value.text
    return caught.value.text


UNKNOWN = ["brainfuck", "../c", "/usr/bin/python3", "", "py thon", "x" * 10000, "python\n", "{}", "ü"]


@pytest.mark.parametrize("language", UNKNOWN, ids=range(len(UNKNOWN)))
def test_unknown_language(language):
    assert "unknown language" in refused(language, {"main.x": "1"})


def test_missing_entry():
    text = refused("python", {"main.py": "print(1)"}, entry="other.py")
    assert "other.py" in text and "no file" in text


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_empty_code(language):
    """Nothing to do for an interpreter; a compiler says that there is no program."""
    need(language)
    answer = run_box(language, {LANGUAGES[language]["main"]: ""})
    assert answer["status"] in ("ok", "runtime_error", "compile_error"), explain(answer)
    if answer["compile"] is None:
        assert answer["status"] == "ok", explain(answer)


@pytest.mark.parametrize("language, comment", [
    ("python", "#"), ("javascript", "//"), ("c", "//"), ("bash", "#"), ("ruby", "#"), ("php", "//"),
    ("perl", "#"), ("lua", "--"), ("typescript", "//"), ("sql", "--")])
def test_a_mebibyte_of_code(language, comment):
    need(language)
    row = LANGUAGES[language]
    line = comment + " " + "x" * 77 + "\n"
    code = row["hello"] + "\n" + line * ((1 << 20) // len(line) + 1)
    answer = run_box(language, {row["main"]: code})
    assert (answer["status"], answer["stdout"]) == ("ok", "hello\n"), explain(answer)


def test_a_thousand_files():
    need("python")
    files = {"main.py": "import os\nprint(sum(len(f) for _, _, f in os.walk('.')))\n"}
    files.update({"d%d/f%d.txt" % (i % 10, i): "x" for i in range(999)})
    answer = run_box("python", files)
    assert answer["status"] == "ok", explain(answer)
    assert int(answer["stdout"]) >= 1000


# attacks.md O-59, and the other rules of api.md section 6.
BAD_NAMES = ["../../x", "/etc/cron.d/x", "a/../../x", "..\\x", "./../x", "", ".", "..", "a//b", "a/b/",
             "a/./b", "/", "n" * 5000, "n" * 256, "/".join("d" * 33), "a\nb", "a\tb", "\x7f", "a\x01"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_bad_names(name):
    before = set(os.listdir("/tmp")) | set(os.listdir("/etc"))
    refused("python", {"main.py": "print(1)", name: "x"})
    after = set(os.listdir("/tmp")) | set(os.listdir("/etc"))
    assert not {n for n in after - before if n == "x"}


GOOD_NAMES = ["a b", "ü/日本.txt", "-rf", "a;id", "$(id)", "'", '"', "n" * 255, "/".join("d" * 32), "...",
              ".hidden", "a..b", "*", "%s"]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=range(len(GOOD_NAMES)))
def test_odd_but_good_names(name):
    need("python")
    answer = run_box("python", {"main.py": "import sys; print(open(sys.argv[1]).read())", name: "inside"},
                     args=[name])
    assert answer["stdout"] == "inside\n", explain(answer)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("d/e/f/g", "d/e"), ("same", "same2/../same"),
                                   ("main.py/x", "y")])
def test_file_and_directory(names):
    files = {"main.py": "print(1)"}
    files.update({name: "x" for name in names})
    refused("python", files)


def test_the_same_name_twice():
    with tempfile.TemporaryDirectory(prefix="hermes-lang-", dir="/var/tmp") as folder:
        path = pathlib.Path(folder, "main.py")
        path.write_text("print(1)")
        with pytest.raises(Refused) as caught:
            hermes("-f", "%s:twice" % path, "-f", "%s:twice" % path, path)
    assert caught.value.status == 2 and "twice" in caught.value.text


@pytest.mark.parametrize("arg", ["-fplugin=/box/x.so", "-wrapper", "sh,-c,id", "-B/work/", "-specs=/box/s",
                                 "@/etc/passwd", "-o", "-x", ";id", "$(id)", "-O2\n-o", "-I/etc", "",
                                 "-Wl,-z,x", "-Xlinker", "--sysroot=/", "-idirafter/etc"])
def test_compile_arguments(arg):
    """attacks.md O-53."""
    need("c")
    text = refused("c", {"main.c": LANGUAGES["c"]["hello"]}, options=["--compile-arg=" + arg])
    assert "compile_args" in text or "allowed" in text or "empty" in text or "control" in text


@pytest.mark.parametrize("assignment", ["=x", "A B=1", "1A=1", "A-B=1", "HERMES_X=1", "Ü=1", "novalue"])
def test_bad_variables(assignment):
    refused("python", {"main.py": "print(1)"}, options=["-e", assignment])


def test_collected_files():
    """Links, fifos, sockets and directories are named and never followed."""
    need("python")
    answer = run_box("python", {"main.py": """\
import os, socket
os.makedirs("d/e")
open("d/e/deep.txt", "w").write("deep")
open("plain.txt", "wb").write(b"\\x00\\xff")
os.symlink("/etc/passwd", "link.txt")
os.symlink("plain.txt", "inner.txt")
os.mkfifo("fifo.txt")
socket.socket(socket.AF_UNIX).bind("socket.txt")
open("secret.txt", "w").close()
os.chmod("secret.txt", 0)
"""}, options=["--collect", "**/*.txt"])
    assert answer["status"] == "ok", explain(answer)
    found = {f["name"]: f for f in answer["files"]}
    for name in ("link.txt", "inner.txt", "fifo.txt", "socket.txt"):
        assert found[name].get("error") == "not_regular", found[name]
        assert "content" not in found[name]
    assert found["secret.txt"].get("error") == "unreadable"
    assert found["plain.txt"]["content"] == "AP8="
    assert found["d/e/deep.txt"]["size"] == 4


def test_collect_is_capped():
    need("python")
    answer = run_box("python", {"main.py": """\
import os
for i in range(400):
    open("f%03d.out" % i, "w").write("x")
path = "."
for i in range(40):
    path += "/d"
    os.mkdir(path)
open(path + "/too-deep.out", "w").close()
"""}, options=["--collect", "**/*.out"])
    assert answer["status"] == "ok", explain(answer)
    assert len(answer["files"]) == 256
    assert "collected" in answer["message"]


def test_collect_too_large():
    need("python")
    answer = run_box("python", {"main.py": """\
with open("big.bin", "wb") as f:
    for i in range(20):
        f.write(bytes(1 << 20))
open("small.bin", "w").write("x")
"""}, options=["--collect", "*.bin", "--disk", "64m"])
    found = {f["name"]: f for f in answer["files"]}
    assert found["big.bin"]["error"] == "too_large"
    assert found["small.bin"]["size"] == 1
