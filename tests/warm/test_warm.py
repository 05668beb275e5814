# SPDX-License-Identifier: Apache-2.0
"""Warm and cold boxes: the same answer, the same confinement, and nothing of one run in another.

A variable that begins with LC_ makes a run cold (an interpreter reads those at its start), so that both
ways can be asked of one server."""
import concurrent.futures
import ctypes
import errno
import mmap
import os
import pathlib
import platform
import re
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

from apilib import HERMES, SLOW, Server, borrow_dir, children, is_zygote, return_dir, wait_until, wait_until_still

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="zygotes need root")
COLD = {"LC_COLD": "1"}


def start(**settings):
    path = borrow_dir()
    server = Server(path, env={"HERMES_" + k.upper(): str(v) for k, v in settings.items()})
    return path, server


@pytest.fixture(scope="module")
def server():
    path, made = start(parked=4)
    assert wait_until(lambda: made.run("python", "pass").json()["isolation"]["start"] == "warm", 20)
    yield made
    assert made.stop() == 0
    return_dir(path)


CASES = {
    'hello': "print('hello')",
    'argv': 'import sys; print(sys.argv, __name__, __file__, sys.flags, sys.orig_argv, sys.path)',
    'main attrs': 'print(sorted(k for k in globals()), __doc__, __spec__, __package__, __cached__, type(__loader__).__name__)',
    'exc': "def f():\n    raise KeyError('x')\nf()",
    'syntax': 'print(1\nfoo bar',
    'exit3': 'import sys; sys.exit(3)',
    'exit str': "import sys; sys.exit('bye')",
    'exit none': 'raise SystemExit',
    'os._exit': "import os; print('x', flush=True); os._exit(7)",
    'atexit': "import atexit; atexit.register(print,'bye'); print('hi')",
    'del': "class A:\n    def __del__(self): print('del', flush=True)\na=A()\nprint('x')",
    'thread': "import threading,time\ndef f():\n    time.sleep(.05); print('t')\nthreading.Thread(target=f).start(); print('m')",
    'threadexc': "import threading\ndef f(): 1/0\nt=threading.Thread(target=f,name='T'); t.start(); t.join()",
    'mp': "import multiprocessing as m\ndef f(x): return x*x\nif __name__=='__main__':\n    with m.Pool(2) as p: print(p.map(f,range(5)))",
    'mpspawn': "import multiprocessing as m\ndef f(q): q.put(42)\nif __name__=='__main__':\n    c=m.get_context('spawn'); q=c.Queue(); p=c.Process(target=f,args=(q,)); p.start(); print(q.get()); p.join()",
    'subprocess': "import subprocess; print(subprocess.run(['echo','hi'],capture_output=True,text=True).stdout)",
    'stdin': 'import sys; print(sys.stdin.read().upper())',
    'input': "print(input('? ')+'!')",
    'stderr': "import sys; print('e',file=sys.stderr); print('o')",
    'unicode': "print('äöü €😀')",
    'tee': "import sys\nclass Tee:\n    def __init__(self, to): self.to = to\n    def write(self, s): self.to.write(s)\n    def flush(self): self.to.flush()\nsys.stdout = Tee(sys.stdout)\nprint('hi')",
    'stdout replaced': "import io, sys\nprint('a')\nsys.stdout = io.StringIO()",
    'file of a library': "import json\njson.out = open('/dev/stdout', 'w')\njson.out.write('late')",
    'file of a module': "open('helper.py', 'w').write(\"log = open('/dev/stdout', 'w')\")\nimport helper\nhelper.log.write('late')",
    'del in a module': "open('helper.py', 'w').write('class A:\\n    def __del__(self): print(\"del\", flush=True)\\na = A()')\nimport helper",
    'name that is none': "globals()[1] = 2\nprint(1)",
    'no main': "import sys\ndel sys.modules['__main__']\nprint(1)",
    'no stdout': "import sys\nprint('x')\nsys.stdout.flush()\ndel sys.stdout",
    'exit object': "import sys\nclass A:\n    def __str__(self): raise ValueError\nsys.exit(A())",
    'exit without print': "import builtins, sys\nbuiltins.print = None\nsys.exit('msg')",
    'exit huge': "import sys\nsys.exit(2 ** 64)",
    'exit without stderr': "import sys\nsys.stderr = None\nsys.exit('boom')",
    'flush fails': "import os, sys\nprint('x')\nos.close(1)\nsys.exit(3)",
    'killed with output': "import os\nfor i in range(3000): print(i)\nos.kill(os.getpid(), 9)",
    'bytes': "import sys; sys.stdout.buffer.write(b'\\xff\\x00')",
    'sig': 'import os,signal; os.kill(os.getpid(), signal.SIGTERM)',
    'segv': 'import os,signal; os.kill(os.getpid(), signal.SIGSEGV)',
    'sigint': 'import os,signal,time\nos.kill(os.getpid(), signal.SIGINT); time.sleep(1)',
    'sighandlers': 'import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGTERM))',
    'fds': "import os; print(sorted(os.listdir('/proc/self/fd')))",
    'env': 'import os; print(sorted(os.environ.items()))',
    'cwd': "import os; print(os.getcwd(), os.listdir('.'))",
    'recursion': 'import sys\nprint(sys.getrecursionlimit())\ndef f(n): return f(n+1)\ntry: f(0)\nexcept RecursionError as e: print(e)',
    'ids': 'import os; print(os.getuid(),os.getgid(),os.getgroups(),os.getpid(),os.getppid(),os.getsid(0),os.getpgid(0))',
    'umask': 'import os; print(oct(os.umask(0)))',
    'limits': "import resource as r; print([r.getrlimit(getattr(r,n)) for n in sorted(dir(r)) if n.startswith('RLIMIT')])",
    'io': 'import sys; print(sys.stdin, sys.stdout, sys.stderr)',
    'isatty': 'import sys; print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stdout.line_buffering, sys.stderr.line_buffering, sys.stdout.encoding, sys.stdin.errors)',
    'asyncio': "import asyncio\nasync def m():\n    await asyncio.sleep(.01); print('a')\nasyncio.run(m())",
    'excepthook': "import sys\nsys.excepthook=lambda *a: print('hook',a[0].__name__)\n1/0",
    'chain': "try: 1/0\nexcept Exception as e: raise ValueError('v') from e",
    'warn': "import warnings; warnings.warn('w')",
    'faulthandler': 'import faulthandler; print(faulthandler.is_enabled())',
    'closed stdout': 'import sys; sys.stdout.close()',
    'big': "print('x'*300000)",
    'pickle': 'import pickle\nclass A: pass\nprint(pickle.dumps(A())[:20])',
    'inspect': 'import inspect\ndef f(): pass\nprint(inspect.getsource(f))',
    'numpy': 'import numpy as n; print(n.arange(5).sum())',
    'hash': 'print(hash(1), hash(2.5))',
    'tz': 'import time; print(time.tzname, time.timezone)',
    'locale': 'import locale; print(locale.getlocale(), locale.getpreferredencoding())',
    'caps': "print([l for l in open('/proc/self/status') if l.startswith(('Cap','NoNew','Seccomp:','Uid','Gid','Groups','SigIgn','SigBlk','Threads'))])",
    'mounts': "print(open('/proc/self/mountinfo').read().count('\\n'))",
    'cgroup': "print(open('/proc/self/cgroup').read())",
    'maps': "print(any('zygote' in l for l in open('/proc/self/maps')))",
    'keyboard': 'raise KeyboardInterrupt',
    'oserr': "open('/nope')",
}


@pytest.mark.parametrize("name", CASES)
def test_warm_is_like_cold(server, name):
    given = dict(stdin="in put\n", args=["a b"])
    warm = server.run("python", CASES[name], **given).json()
    cold = server.run("python", CASES[name], env=COLD, **given).json()
    assert (warm["isolation"]["start"], cold["isolation"]["start"]) == ("warm", "cold")
    cold["stdout"] = cold["stdout"].replace("('LC_COLD', '1'), ", "")
    for field in ("status", "exit_code", "signal", "stdout", "stderr"):
        assert warm[field] == cold[field], field


def test_limits_and_files_of_warm_boxes(server):
    slow = server.run("python", "while True: pass", limits={"cpu_ms": 300 * SLOW}).json()
    assert (slow["status"], slow["isolation"]["start"]) == ("time_limit", "warm")
    big = server.run("python", "x = bytearray(1 << 30)", limits={"memory_mb": 64}).json()
    assert big["status"] in ("memory_limit", "runtime_error") and big["isolation"]["start"] == "warm"
    flood = server.run("python", "while True: print('x' * 1000)").json()
    assert (flood["status"], flood["isolation"]["start"]) == ("output_limit", "warm")
    run = server("POST", "/v1/runs", {
        "language": "python", "entry": "d/main.py", "collect": ["out/*"],
        "files": [{"name": "d/main.py", "content": "import helper, os; os.mkdir('out'); helper.go()"},
                  {"name": "d/helper.py", "content": "def go(): open('out/f', 'w').write('made')"}]}).json()
    assert (run["status"], run["isolation"]["start"]) == ("ok", "warm"), run
    assert [(f["name"], f["content"]) for f in run["files"]] == [("out/f", "bWFkZQ==")] or \
        run["files"][0]["content"] == "made"


LEAVES_TRACES = """
import builtins, os, sys, json, random, signal, threading, ctypes
open('/tmp/left', 'w').write('x'); open('/dev/shm/left', 'w').write('x'); open('left', 'w').write('x')
os.environ['LEFT'] = '1'; builtins.left = 1; sys.modules['left'] = sys; json.left = 1
random.seed(1); signal.setitimer(signal.ITIMER_REAL, 100); sys.path.append('/left')
os.dup2(1, 77); os.nice(5); os.umask(0o7); sys.setrecursionlimit(77777)
print('done')
"""
LOOKS_FOR_TRACES = """
import builtins, os, sys, json, random, signal
found = [p for p in ('/tmp/left', '/dev/shm/left', 'left') if os.path.exists(p)]
found += [k for k in os.environ if 'LEFT' in k]
found += [n for n, o in (('builtins', builtins), ('json', json)) if hasattr(o, 'left')]
found += ['module'] * ('left' in sys.modules) + ['path'] * ('/left' in sys.path)
found += ['timer'] * (signal.getitimer(signal.ITIMER_REAL)[0] != 0)
found += ['fd'] * os.path.exists('/proc/self/fd/77') + ['nice'] * (os.nice(0) != 0)
found += ['recursion'] * (sys.getrecursionlimit() == 77777)
print(found, random.random(), os.getpid())
"""


def test_nothing_of_one_run_is_in_another(server):
    seen = set()
    for _ in range(40 if not os.environ.get("HERMES_FULL") else 10000):
        left = server.run("python", LEAVES_TRACES).json()
        assert (left["stdout"], left["isolation"]["start"]) == ("done\n", "warm"), left
        run = server.run("python", LOOKS_FOR_TRACES).json()
        found, rest = run["stdout"].split("]", 1)
        assert found == "[", run
        number, pid = rest.split()
        assert pid == "2"
        seen.add(number)
    assert len(seen) >= 40, "random numbers repeat"


def test_warm_and_cold_agree_on_memory(server):
    def peak(code, **kwargs):
        return sorted(server.run("python", code, **kwargs).json()["usage"]["memory_peak_kb"]
                      for _ in range(5))[2]
    assert wait_until(lambda: peak("pass") > 0.5 * peak("pass", env=COLD), 30)  # calibrated
    for code in ("x = bytearray(50 << 20)", "x = [i for i in range(1000000)]"):
        warm, cold = peak(code), peak(code, env=COLD)
        assert abs(warm - cold) <= 0.1 * cold, (code, warm, cold)


def test_many_at_once(server):
    def one(n):
        return server.run("python", "print(%d)" % n).json()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for n, run in enumerate(pool.map(one, range(200))):
            assert run["stdout"] == "%d\n" % n, run


def test_a_box_that_could_stall_the_zygote_is_cold(server):
    """Its init would share the zygote's memory with next to no processor time."""
    for cpus, start in ((1, "warm"), (0.1, "cold")):
        run = server.run("python", "print(1)", limits={"cpus": cpus}).json()
        assert (run["stdout"], run["isolation"]["start"]) == ("1\n", start), run


def test_a_cold_start_has_a_reason(server):
    assert wait_until(lambda: is_up(server), 20)
    for fields, reason in (({}, None), ({"env": {"PYTHONUTF8": "0"}}, "environment"),
                           ({"args": ["x" * 110_000]}, "long_words"), ({"limits": {"cpus": 0.1}}, "not_ready")):
        isolation = server.run("python", "print(1)", **fields).json()["isolation"]
        assert (isolation["start"], isolation["start_reason"]) == ("cold" if reason else "warm", reason)
    assert server.run("perl", "print 1").json()["isolation"]["start_reason"] == "language"


def is_up(server):
    """No parked box has this limit: the zygote must make one."""
    reply = server.run("python", "1", limits={"processes": 9}).json()
    assert "isolation" in reply, reply
    return reply["isolation"]["start"] == "warm"


def test_the_zygote_dies_and_comes_back(server):
    spawner = server.child("hermes-spawn")
    for _ in range(3):
        zygotes = [p for p in children(spawner) if is_zygote(p)]
        assert zygotes
        os.kill(min(zygotes), signal.SIGKILL)
        assert server.run("python", "print(1)").json()["stdout"] == "1\n"
        assert wait_until(lambda: is_up(server), 20)
    assert server.child("hermes-spawn") == spawner


@pytest.mark.parametrize("sign", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "dies"])
def test_a_zygote_that_owes_answers(server, sign):
    """Nobody waits for it longer than a second, everybody gets a box, and another one takes over."""
    def zygotes():
        return {p for p in children(server.child("hermes-spawn")) if is_zygote(p)}

    def ask_many():
        """So that the twin, which is asked only when the other one is at work, is asked too. On a busy machine some of the
        answers are cold."""
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            return any(pool.map(lambda _: is_up(server), range(12)))
    assert wait_until(ask_many, 20)
    assert wait_until_still(server.child("hermes-spawn"))  # the twin, if it has just been started, is up
    before = zygotes()
    stop = threading.Event()

    def hit():
        while not stop.wait(0.01):  # in the middle of whatever it does
            for pid in zygotes() & before:
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
    thread = threading.Thread(target=hit)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        runs = [pool.submit(server.run, "python", "print(%d)" % i, stdin="x") for i in range(60)]
        thread.start()
        try:
            answers = [run.result().json() for run in runs]
        finally:
            stop.set()
            thread.join()
    assert [a["stdout"] for a in answers] == ["%d\n" % i for i in range(60)], answers
    assert "cold" in {a["isolation"]["start"] for a in answers}
    assert wait_until(lambda: ask_many() and not zygotes() & before, 20)


def test_a_crowd_before_a_zygote_that_hangs():
    """More requests than its socket takes: the spawner must not wait for it, nor anybody for the spawner."""
    path = borrow_dir()
    crowd = Server(path, env={"HERMES_CONCURRENCY": "150", "HERMES_QUEUE": "300"})
    zygotes = []

    def one(i):
        return crowd.run("python", "print(%d)" % i, limits={"memory_mb": 32})
    try:
        assert wait_until(lambda: is_up(crowd), 20)
        zygotes = [p for p in children(crowd.child("hermes-spawn")) if is_zygote(p)]
        for pid in zygotes:
            os.kill(pid, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(150) as pool:
            answers = [run.json() for run in pool.map(one, range(150))]
        assert [a["stdout"] for a in answers] == ["%d\n" % i for i in range(150)]
        assert crowd.child("hermes-spawn")
    finally:
        for pid in zygotes:
            if is_zygote(pid):
                os.kill(pid, signal.SIGCONT)
        assert crowd.stop() == 0
        return_dir(path)


def test_a_zygote_has_no_power_on_the_host(server):
    """Root in its own user namespace only, with ids of boxes only, in the read-only tree."""
    zygote = [p for p in children(server.child("hermes-spawn")) if is_zygote(p)][0]
    status = pathlib.Path("/proc/%d/status" % zygote).read_text()
    uid = int(status.split("Uid:")[1].split()[0])
    assert uid > 65535
    assert os.readlink("/proc/%d/ns/user" % zygote) != os.readlink("/proc/self/ns/user")
    assert os.readlink("/proc/%d/ns/net" % zygote) != os.readlink("/proc/self/ns/net")
    descriptors = {int(fd): os.readlink("/proc/%d/fd/%s" % (zygote, fd)) for fd in os.listdir("/proc/%d/fd" % zygote)}
    assert sorted(descriptors) == [0, 1, 2, 3, 4, 5], descriptors
    assert descriptors[5] == "/memfd:hermes-life (deleted)"  # tells whether the spawner lives; no box keeps it


# With arguments that do nothing should a call be let through; some never come back even so.
SWEEP = """
import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
for number in %s:
    ctypes.set_errno(0)
    print(number, call(number, *[ctypes.c_long(-1)] * 6) and ctypes.get_errno())
"""
ENDLESS = {"rt_sigreturn": 15, "pause": 34, "fork": 57, "vfork": 58, "exit": 60, "rt_sigsuspend": 130, "exit_group": 231, "uretprobe": 335, "uprobe": 336,
           "close_range": 436}
MAKERS = {"pivot_root": 155, "mount": 165, "umount2": 166, "sethostname": 170, "unshare": 272, "setns": 308, "open_tree": 428,
          "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64")
def test_its_filter_refuses_what_that_of_a_cold_box_does(server):
    """A zygote may make boxes, what runs in them may not: every box loads the one filter."""
    def answers(text):
        return {int(number): int(error) for number, error in map(str.split, text.splitlines())}
    every = SWEEP % sorted(set(range(480)) - set(ENDLESS.values()))
    runs = [server.run("python", every, env=env).json() for env in ({}, {"LC_COLD": "1"})]
    assert [run["isolation"]["start"] for run in runs] == ["warm", "cold"]
    warm, cold = [answers(run["stdout"]) for run in runs]
    assert len(warm) == 480 - len(ENDLESS) and warm == cold
    assert {warm[number] for number in MAKERS.values()} == {errno.EPERM}
    assert {warm[number] for number in (435, 250)} == {errno.ENOSYS}  # clone3, keyctl
    bare = answers(subprocess.run([sys.executable, "-c", SWEEP % list(MAKERS.values())], user=65534, capture_output=True,
                                  text=True, check=True).stdout)
    assert sum(bare[number] != errno.EPERM for number in MAKERS.values()) >= 3, bare


PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
THP = 1 << 22  # of /proc/kpageflags


def anonymous_pages(pid):
    """Flags of the pages in the private, writable mappings of a process."""
    found = []
    with open("/proc/%d/pagemap" % pid, "rb") as pagemap, open("/proc/kpageflags", "rb") as flags:
        for line in pathlib.Path("/proc/%d/maps" % pid).read_text().splitlines():
            area, rights = line.split()[:2]
            first, end = (int(n, 16) // PAGE_SIZE for n in area.split("-"))
            if rights != "rw-p":
                continue
            pagemap.seek(first * 8)
            for entry, in struct.iter_unpack("Q", pagemap.read((end - first) * 8)):
                if entry >> 63 and entry & (1 << 55) - 1:
                    flags.seek((entry & (1 << 55) - 1) * 8)
                    found.append(*struct.unpack("Q", flags.read(8)))
    return found


def huge_pages_to_be_had():
    """Asked for as the zygote does."""
    libc = ctypes.CDLL(None, use_errno=True)
    area = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(area))
    ctypes.memset(at, 1, 4 << 20)
    aligned = at + (2 << 20) - 1 & ~((2 << 20) - 1)
    return libc.madvise(ctypes.c_void_p(aligned), ctypes.c_size_t(2 << 20), 25) == 0


def huge_mappings_kb(pid):
    return sum(map(int, re.findall(r"^AnonHugePages: +(\d+) kB", pathlib.Path("/proc/%d/smaps" % pid).read_text(), re.M)))


def test_the_memory_of_a_zygote_is_cheap_to_copy(server):
    """Most of its data is in huge folios (src/warm/gather.c), which are mapped page by page: the first write to a
    mapping of 2 MiB would have to take that apart."""
    if not huge_pages_to_be_had() or not os.path.exists("/proc/kpageflags"):
        pytest.skip("this kernel gives no huge pages, or does not tell of them")
    assert wait_until(lambda: is_up(server), 20)
    zygote = [p for p in children(server.child("hermes-spawn")) if is_zygote(p)][0]
    pages = anonymous_pages(zygote)
    assert sum(bool(p & THP) for p in pages) > 0.8 * len(pages), len(pages)
    assert huge_mappings_kb(zygote) == 0
    plain = subprocess.Popen(["/usr/bin/python3", "-c", "import json, re, typing; input()"], stdin=subprocess.PIPE)
    try:
        assert wait_until(lambda: len(anonymous_pages(plain.pid)) > 1000)
        time.sleep(0.3)
        pages = anonymous_pages(plain.pid)
        assert sum(bool(p & THP) for p in pages) < 0.2 * len(pages)  # control
    finally:
        plain.communicate(b"\n")


# Changes a constant and a function of the interpreter, in memory that the box shares with its zygote.
OVERWRITE = """
import ctypes
get = ctypes.pythonapi.Py_GetCopyright
get.restype = ctypes.c_void_p
at = get()
code = ctypes.cast(ctypes.pythonapi.Py_GetCopyright, ctypes.c_void_p).value
before = ctypes.string_at(at, 9), ctypes.string_at(code, 16)
page = 4096
if %d:
    for where, what in (at, b"Nobody's."), (code, b"\\xcc" * 16):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(where // page * page), ctypes.c_size_t(2 * page), 7) == 0
        ctypes.memmove(where, what, len(what))
print(before, ctypes.string_at(at, 9), ctypes.string_at(code, 16))
"""


def test_code_that_a_program_overwrites_is_its_own(server):
    plain = server.run("python", OVERWRITE % 0).json()
    hit = server.run("python", OVERWRITE % 1).json()
    assert (plain["isolation"]["start"], hit["isolation"]["start"], hit["stderr"]) == ("warm", "warm", "")
    assert b"Nobody's.".decode() in hit["stdout"] and "xcc" in hit["stdout"]  # control: it did happen
    for _ in range(20):
        again = server.run("python", OVERWRITE % 0).json()
        assert again["stdout"] == plain["stdout"] and again["isolation"]["start"] == "warm"


def test_boxes_die_before_the_host(server):
    """When it runs out of memory; also those that have it from their zygote."""
    own = {start: server.run("python", "print(open('/proc/self/oom_score_adj').read())", env=env).json()["stdout"].strip()
           for start, env in (("warm", {}), ("cold", COLD))}
    assert own == {"warm": "500", "cold": "500"}
    assert pathlib.Path("/proc/%d/oom_score_adj" % server.child("hermes-server")).read_text() == "0\n"  # control


def is_init(pid):
    try:
        return pathlib.Path("/proc/%d/comm" % pid).read_text() == "hermes-init\n"
    except OSError:  # it has ended meanwhile
        return False


def inits(server):
    return [p for p in children(server.child("hermes-spawn")) if is_init(p)]


def test_init_of_a_warm_box_is_a_program_of_its_own(server):
    """Born in the zygote's memory, it has left that before anything of a stranger's runs, and keeps of
    its rights what it needs to collect files."""
    def waiting():
        found = inits(server)
        time.sleep(0.3)  # none of them is on its way out
        return len(found) == 4 and found == inits(server)
    assert wait_until(waiting, 20)
    zygote = [p for p in children(server.child("hermes-spawn")) if is_zygote(p)][0]
    layout = pathlib.Path("/proc/%d/maps" % zygote).read_text()
    for pid in inits(server):
        assert os.readlink("/proc/%d/exe" % pid).endswith("/hermes-init")
        maps = pathlib.Path("/proc/%d/maps" % pid).read_text()
        assert "python" in layout and "python" not in maps
        status = dict(line.split(":\t", 1) for line in
                      pathlib.Path("/proc/%d/status" % pid).read_text().splitlines() if ":\t" in line)
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8
        assert {status[k].strip("0") for k in ("CapInh", "CapBnd", "CapAmb")} == {""}, status
        assert (status["NoNewPrivs"], status["Seccomp"], status["NSpid"].split()[-1]) == ("1", "2", "1")
        assert sorted(os.listdir("/proc/%d/fd" % pid), key=int)[:3] == ["0", "1", "2"]
        assert len(os.listdir("/proc/%d/fd" % pid)) == 4, "stdio and the link"


LEAVES_ONE = """
import os, sys, time
if os.fork() == 0:
    time.sleep(5)
    print("late", flush=True)
    os._exit(0)
print("done", flush=True)
%s
sys.exit(3)
"""


@pytest.mark.parametrize("limits", [{}, {"processes": 1}])
def test_the_end_is_told_once_and_is_the_end(server, limits):
    """Nobody waits for the memory of a program that has ended, nor for what it left, and none of it
    lives on. With no room for the one who gives the memory back it ends all the same."""
    before = len(inits(server))
    for status in (0, 7, 0):
        run = server.run("python", "import sys; print('x'); sys.exit(%d)" % status, limits=limits).json()
        assert (run["exit_code"], run["stdout"], run["limits_hit"]) == (status, "x\n", []), run
    if limits:
        run = server.run("python", "import os\nos.fork()", limits=limits).json()
        assert run["limits_hit"] == ["processes"], run  # the control
    else:
        run = server.run("python", LEAVES_ONE % "").json()
        assert (run["exit_code"], run["stdout"]) == (3, "done\n"), run
        assert run["usage"]["wall_ms"] < 5000, run
        run = server.run("python", LEAVES_ONE % "os.wait()").json()
        assert (run["exit_code"], run["stdout"]) == (3, "done\nlate\n"), run  # the control
        assert run["usage"]["wall_ms"] >= 5000, run
    assert wait_until(lambda: len(inits(server)) <= max(before, 4), 20)


def test_switched_off_it_is_cold_and_on_demand_without_a_pool():
    for settings, starts in ((dict(warm="false"), "cold"), (dict(parked=0), "warm")):
        path, made = start(**settings)
        try:
            if starts == "warm":
                assert wait_until(
                    lambda: made.run("python", "1").json()["isolation"]["start"] == "warm", 20)
            time.sleep(1)
            assert made.run("python", "print(1)").json()["isolation"]["start"] == starts
        finally:
            assert made.stop() == 0
            return_dir(path)


def test_every_attack_in_python_on_the_warm_path():
    done = subprocess.run([str(HERMES), "selftest", "--warm", "--controls"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert len([x for x in done.stdout.splitlines() if x.startswith("ok")]) >= 30


def test_zygotes_rotate(server):
    """Another one after a thousand boxes of each of the two, and half a minute: runs do not share a hash seed for ever."""
    def zygotes():
        return [p for p in children(server.child("hermes-spawn")) if is_zygote(p)]

    def seed(_):
        run = server.run("python", "print(hash('x'))").json()
        assert "isolation" in run, run
        return run["stdout"] if run["isolation"]["start"] == "warm" else None
    first, seeds, runs = set(zygotes()), set(), 0
    end = time.monotonic() + 90 * SLOW
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        while first <= set(zygotes()) and time.monotonic() < end:
            seeds |= set(pool.map(seed, range(80))) - {None}
            runs += 80
            time.sleep(0 if runs < 4000 else 0.5)
    assert zygotes() and not first <= set(zygotes()), runs
    seeds |= set(map(seed, range(40))) - {None}  # the parked boxes of the old one are used up
    assert 2 <= len(seeds) <= 3 + runs // 500, (seeds, runs)
