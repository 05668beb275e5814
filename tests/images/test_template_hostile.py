# SPDX-License-Identifier: Apache-2.0
"""Code of a user's image that attacks from its template box. It is quiet while the image is built, so that it is
imported ahead, and attacks where it sees that it is a template."""
import os

import pytest

from apilib import boxes_below, wait_until
from templatelib import build, has_template, is_warm, run_cold, run_warm

FULL = pytest.mark.skipif(not os.environ.get("HERMES_FULL"), reason="a variant; set HERMES_FULL=1")

SCRIPT = """cat > $(echo /opt/venv/lib/python3*/site-packages)/evil.py <<'END'
import gc, os, signal, socket, subprocess, sys, threading, time
_end = time.process_time() + 0.03
while time.process_time() < _end:
    pass
if "--template" in sys.argv:
%s
END
"""
# What finds the object that serves the channel, though its module is gone from sys.modules.
FIND = "import builtins\nfound = [o for o in gc.get_objects() if type(o).__name__ == 'Template'][0]\n" \
       "fork = sys.modules.get('kernel_fork') or type(found.forker).fork.__globals__\n"


def evil(server, attack, **more):
    script = SCRIPT % "".join("    %s\n" % line for line in attack.strip().splitlines())
    image = build(server, script=script, packages=(), preload=["evil"], **more)
    assert image["preload"] == ["evil"]


def starts(server, code="print(7)"):
    """The run works in any case; how it started."""
    answer = server.run("python", code, image="mine").json()
    assert (answer["status"], answer["stdout"]) == ("ok", "7\n"), answer
    return answer["isolation"]["start_reason"] or "warm"


def test_a_module_that_does_nothing_is_copied(server):
    """The control of all tests below."""
    evil(server, "mark = 1")
    assert run_warm(server, "import evil; print(evil.mark)")["stdout"] == "1\n"


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a box has one processor")
def test_libraries_have_one_thread_while_they_are_imported(server):
    """BLAS reads these when it is loaded. A run has what a cold run has."""
    evil(server, "mark = os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS']")
    code = "import os; print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'])"
    cold = run_cold(server, code, limits={"cpus": 2})["stdout"]
    assert cold != "1 1\n"  # control
    warm = run_warm(server, "import evil; print(*evil.mark)\n" + code, limits={"cpus": 2})["stdout"]
    assert warm == "1 1\n" + cold


@pytest.mark.parametrize("attack", [
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "kept = socket.socket()",
    "kept = open('/opt/venv/pyvenv.cfg')",
    "os._exit(0)",
    "kept = []\nwhile True: kept.append(bytearray(1 << 22))",
    pytest.param("child = subprocess.Popen(['sleep', '600'])", marks=FULL),
    pytest.param("if os.fork() == 0:\n    time.sleep(600)", marks=FULL),
    pytest.param("signal.signal(signal.SIGUSR1, print)", marks=FULL),
    pytest.param("os.chdir('/')", marks=FULL),
    pytest.param("kept = open('/tmp/x', 'w'); os.unlink('/tmp/x')", marks=FULL),
    pytest.param("import mmap\nkept = mmap.mmap(-1, 4096)", marks=FULL),
    pytest.param("os.kill(os.getpid(), 9)", marks=FULL),
    pytest.param("while os.fork() >= 0: pass", marks=FULL),
    pytest.param("sys.excepthook = print", marks=FULL),
], ids=lambda text: text.split("\n")[0][:40])
def test_an_unfit_template_is_given_up(server, attack):
    """Runs go on, cold, and nothing of it stays."""
    evil(server, attack)
    assert starts(server) == "not_ready"
    assert wait_until(lambda: starts(server) == "template", 90)
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 30)
    [event] = server.events("a template of an image was given up; its runs start cold")[-1:]
    assert event["reason"]


def test_a_template_that_hangs_delays_nobody(server):
    """Nor does it keep its image from being removed."""
    evil(server, "while True: time.sleep(1)")
    assert starts(server) == "not_ready"
    assert wait_until(lambda: has_template(server), 30)
    assert starts(server) == "not_ready"
    assert server("DELETE", "/v1/images/mine").status == 204
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 30)


REACH = """
report = {}
def attempt(name, how):
    try:
        report[name] = "done %r" % (how(),)
    except BaseException as problem:
        report[name] = type(problem).__name__
attempt("others", lambda: [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())])
attempt("init", lambda: os.kill(1, 9))
attempt("all", lambda: os.kill(-1, 9))
attempt("uid", lambda: os.setuid(0))
attempt("group", lambda: os.setgroups([0]))
attempt("far", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("host", lambda: socket.create_connection(("127.0.0.1", 8000), 2))
attempt("etc", lambda: open("/etc/passwd", "a"))
attempt("image", lambda: open(__file__, "a"))
attempt("hermes", lambda: open("/usr/lib/hermes/zygote.py", "a"))
attempt("groups", lambda: os.listdir("/sys/fs/cgroup"))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("own", lambda: open("/tmp/mark", "w").close())
import builtins
builtins.poison = print
print = None
"""


def test_a_template_reaches_nothing_outside(server):
    """It has what a box has. What it changes in its interpreter is there in runs with this image, and only there."""
    evil(server, REACH)
    report = run_warm(server, "import evil, builtins; builtins.poison(sorted(evil.report.items()))")["stdout"]
    done = [name for name, result in eval(report) if result.startswith("done")]
    assert dict(eval(report))["others"] == "done []"
    assert done == ["others", "own"]  # the control: what it may, works
    plain = server.run("python", "import builtins; print(hasattr(builtins, 'poison'))").json()
    assert plain["stdout"] == "False\n"
    assert run_warm(server, "import os; builtins = __import__('builtins'); builtins.poison(os.listdir('/tmp'))"
                    )["stdout"] == "[]\n"  # a run begins with empty directories


# Takes the place of kernel_fork.Forker.fork(): answers that it has forked, and has not.
LIES = FIND + """
def lie(self):
    found.answer(None)
    kept = fork["take_descriptors"](3)
    builtins.kept = getattr(builtins, "kept", []) + kept
    found.answer(None)
type(found.forker).fork = lie
"""
# Says hello itself: it would become the copy.
SELF = FIND + """
def lie(self):
    found.answer(None)
    kept = fork["take_descriptors"](3)
    found.answer(None)
    os.write(kept[3], b"h")
    os.read(kept[3], 1)
    os.write(kept[3], b"r")
    os.read(kept[3], 1)
type(found.forker).fork = lie
"""
# Forks as it should, but keeps all descriptors of its copies, whose next ones then have them, too.
KEEPS = FIND + """
builtins.kept = []
real = fork["take_descriptors"]
def take(fd):
    fds = real(fd)
    builtins.kept += [os.dup(one) for one in fds]
    return fds
fork["take_descriptors"] = take
"""
# Opens a file of the image before each fork. Copies would share its position: one run could write there what the next one reads.
SHARES = FIND + """
builtins.kept = []
look = type(found.forker).look
def open_first(self):
    if not builtins.kept:
        builtins.kept.append(os.open("/opt/venv/pyvenv.cfg", 0))
    return look(self)
type(found.forker).look = open_first
type(found).problem = lambda self: None
"""
# Answers with nonsense, or not at all.
NONSENSE = FIND + """
type(found.forker).fork = lambda self: os.write(3, b"\\\\377" * 1000)
"""
SILENT = FIND + """
type(found.forker).fork = lambda self: time.sleep(600)
"""


@pytest.mark.parametrize("attack", [LIES, KEEPS, SHARES, pytest.param(SELF, marks=FULL), pytest.param(NONSENSE, marks=FULL),
                                    pytest.param(SILENT, marks=FULL)],
                         ids=["lies", "keeps", "shares", "self", "nonsense", "silent"])
def test_a_template_that_does_not_do_its_part(server, attack):
    """Runs come to their right end, cold, and the template is given up."""
    evil(server, attack)
    assert starts(server) == "not_ready"
    assert wait_until(lambda: starts(server) == "template", 90)
    assert "template" in {starts(server) for _ in range(2)}
    assert wait_until(lambda: not boxes_below(server.child("hermes-spawn")), 60)


def test_a_run_cannot_reach_its_template(server):
    """Nor what other runs will be copied from: one run attacks, the next finds everything as it was."""
    evil(server, "mark = [1]")
    attack = "import evil, os, signal\nevil.mark[0] = 2\nopen('/tmp/left', 'w')\nopen('/dev/shm/left', 'w')\n" \
             "for pid in range(1, 400):\n  for number in 9, 15, 10:\n    try:\n" \
             "      if pid != os.getpid(): os.kill(pid, number); print('killed', pid)\n    except OSError: pass\n" \
             "  for name in 'mem', 'root/tmp', 'fd/3', 'environ', 'maps':\n    try:\n" \
             "      if pid != os.getpid(): open('/proc/%d/%s' % (pid, name)); print('read', pid, name)\n    except OSError: pass\n" \
             "try: os.kill(-1, 9)\nexcept OSError: pass\nprint(7)"
    assert run_warm(server, attack)["stdout"] == "7\n"
    code = "import evil, os; print(evil.mark, os.listdir('/tmp'), os.listdir('/dev/shm'))"
    answer = server.run("python", code, image="mine").json()
    assert is_warm(answer) and answer["stdout"] == "[1] [] []\n", answer  # the same template still serves
