# SPDX-License-Identifier: Apache-2.0
"""Parked programs (src/spawn/pool.h), node and the JVM: the same answer as in a cold box, no trace of
the parking, one run per box, and none while memory is short.

As in test_warm.py a variable that begins with LC_ makes a run cold."""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from apilib import HERMES, SLOW, Server, borrow_dir, boxes_below, return_dir, wait_until, wait_until_still
from pressure import choose_percent, short_of_memory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tests of warm starts run as root")
COLD = {"LC_COLD": "1"}
SAME = ("status", "exit_code", "signal", "stdout", "stderr", "limits_hit")


def start(**settings):
    path = borrow_dir()
    env = {"HERMES_PARKED": "2", "HERMES_CACHE_MB": "0"}
    env.update({"HERMES_" + k.upper(): str(v) for k, v in settings.items()})
    return path, Server(path, env=env)


@pytest.fixture(scope="module")
def server():
    path, made = start()
    yield made
    assert made.stop() == 0
    return_dir(path)


def has(server, language):
    return any(r["name"] == language and r["available"]
               for r in server("GET", "/v1/runtimes").json()["runtimes"])


def starts(run):
    """How the stages of a run started."""
    return run["isolation"]["start"]


def run_warm(server, spec):
    """The answer of a parked box: each serves one run, so there may be none at the moment."""
    answer, pause = {}, [0.2]

    def try_it():
        answer.update(server("POST", "/v1/runs", spec).json())
        if starts(answer) == "warm":
            return True
        time.sleep(pause[0])  # what runs cold keeps the next box from being made
        pause[0] = min(pause[0] * 2, 5)
        return False
    assert wait_until(try_it, 60), answer
    return answer


def same(server, spec, drop=""):
    warm = run_warm(server, spec)
    cold = server("POST", "/v1/runs", dict(spec, env=dict(spec.get("env", {}), **COLD))).json()
    assert starts(cold) == "cold"
    cold["stdout"] = cold["stdout"].replace(drop, "") if drop else cold["stdout"]
    for field in SAME:
        assert warm[field] == cold[field], field
    return warm, cold


JAVASCRIPT = {
    "hello": "console.log('hello')",
    "argv": "console.log(process.argv, process.argv0, process.execArgv, process.execPath, process.title)",
    "names": "console.log(__filename, __dirname, require.main === module, module.id, module.parent, module.paths)",
    "modules": "console.log(Object.keys(require.cache), process._preload_modules, require('module').runMain.name,"
               " Object.getOwnPropertyDescriptor(require('module'), 'runMain'))",
    "globals": "console.log(Object.getOwnPropertyNames(globalThis).sort())",
    "env": "console.log(Object.keys(process.env).join(), process.env.MINE)",
    "throw": "function f() {\n  throw new TypeError('x');\n}\nf();",
    "stack": "console.log(new Error('here').stack)",
    "syntax": "console.log(1;\n",
    "reject": "Promise.reject(new Error('no'))",
    "exit 3": "process.exit(3)",
    "exit code": "process.exitCode = 5; console.log('x')",
    "exit event": "process.on('exit', (c) => console.log('bye', c)); setTimeout(() => console.log('t'), 10)",
    "before exit": "let n = 0; process.on('beforeExit', () => { if (n++ < 2) setTimeout(() => console.log(n), 1) })",
    "exit in exit": "process.on('exit', () => process.exit(4))",
    "exit throws": "process.on('exit', () => { throw new Error('late') })",
    "exit code in exit": "process.on('exit', () => { process.exitCode = 6 })",
    "exit once": "process.once('exit', () => console.log(process.listenerCount('exit')))",
    "own emit": "const e = process.emit; process.emit = function (...a) { if (a[0] === 'exit') console.log('emit', a[1]); return e.apply(this, a) }",
    "emit": "console.log(process.emit === require('events').prototype.emit, process.hasOwnProperty('emit'));"
            " process.on('x', () => console.log('x')); process.emit('x')",
    "uncaught": "process.on('uncaughtException', (e) => { console.log(e.message); process.exitCode = 8 }); throw new Error('u')",
    "kill": "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 1000)",
    "abort": "process.abort()",
    "stdin": "process.stdin.on('data', (d) => process.stdout.write(String(d).toUpperCase()))",
    "stdin sync": "console.log(require('fs').readFileSync(0, 'utf8'))",
    "readline": "require('readline').createInterface({input: process.stdin}).on('line', (l) => console.log('<' + l + '>'))",
    "stderr": "console.error('e'); console.log('o')",
    "unicode": "console.log('äöü €😀')",
    "bytes": "process.stdout.write(Buffer.from([255, 0, 10]))",
    "big": "console.log('x'.repeat(300000))",
    "big and exit": "process.stdout.write('x'.repeat(30000)); process.exit(0)",
    "streams": "console.log(process.stdout.constructor.name, process.stdout.isTTY, process.stdin.constructor.name,"
               " process.stdout.writableHighWaterMark, process.stdout.fd, process.stdin.fd)",
    "descriptors": "process.stdout; const fs = require('fs'); console.log(fs.readdirSync('/proc/self/fd').filter((n) => {"
                   " try { return !/eventpoll|eventfd|pipe|io_uring|\\/fd$/.test(fs.readlinkSync('/proc/self/fd/' + n)) || n < 3 }"
                   " catch { return false } }).map((n) => n < 3 ? n : fs.readlinkSync('/proc/self/fd/' + n)).sort())",
    "descriptor count": "process.stdout; const fs = require('fs'); console.log(fs.readdirSync('/proc/self/fd').length)",
    "sockets": "const fs = require('fs'); for (const n of fs.readdirSync('/proc/self/fd')) {"
               " try { const l = fs.readlinkSync('/proc/self/fd/' + n); if (/socket/.test(l)) console.log(l) } catch {} }",
    "status": "console.log(require('fs').readFileSync('/proc/self/status', 'utf8').split('\\n').filter((l) =>"
              " /^(Uid|Gid|Groups|Cap|NoNew|Seccomp:|Sig[IB]|Umask|NSpid)/.test(l)))",
    "ids": "console.log(process.pid, process.ppid, process.getuid(), process.getgroups(), process.umask())",
    "session": "console.log(require('fs').readFileSync('/proc/self/stat', 'utf8').split(') ')[1].split(' ').slice(1, 5))",
    "cwd": "console.log(process.cwd(), require('fs').readdirSync('.'), require('fs').readdirSync('/tmp'))",
    "children": "console.log(require('child_process').execFileSync('node', ['-p', 'process.execArgv.length + 1']).toString())",
    "fork": "const c = require('child_process'); if (process.send) { process.send(process.argv.slice(2).concat(process.execArgv)) }"
            " else { c.fork(__filename, ['z']).on('message', (m) => { console.log(m) }) }",
    "worker": "const w = require('worker_threads'); if (w.isMainThread) { new w.Worker(__filename).on('message', (m) => console.log(m)) }"
              " else { w.parentPort.postMessage([Object.keys(require.cache), require.main === module, process.argv.length]) }",
    "timers": "setTimeout(() => console.log('b'), 1000); setImmediate(() => console.log('a')); process.nextTick(() => console.log('n'));"
              " Promise.resolve().then(() => console.log('p')); console.log('s')",
    "fetch": "console.log(typeof fetch, typeof WebSocket, typeof structuredClone)",
    "dns": "require('dns').lookup('localhost', (e, a) => console.log(a))",
    "http": "const h = require('http'); h.createServer((q, r) => r.end('ok')).listen(0, function () {"
            " h.get({port: this.address().port}, (r) => { r.on('data', (d) => console.log(String(d))); r.on('end', () => process.exit()) }) })",
    "date": "console.log(new Date(0).toString(), Intl.DateTimeFormat().resolvedOptions().timeZone)",
    "locale": "console.log((1234.5).toLocaleString(), new Intl.Collator().resolvedOptions().locale)",
    "import": "import('fs').then((m) => console.log(typeof m.readFileSync))",
    "vm": "console.log(require('vm').runInNewContext('1 + 1'))",
    "memory": "const a = []; try { while (true) a.push(new Array(1e6).fill(1)) } catch (e) { console.log(e) }",
    "strict": "console.log(this === module.exports, (function () { return this === globalThis })())",
    "wasm": "console.log(WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])))",
    "listeners": "console.log(process.eventNames(), process.listenerCount('exit'), process.getActiveResourcesInfo())",
}


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_is_like_cold(server, name):
    spec = {"language": "javascript", "code": JAVASCRIPT[name], "stdin": "in put\nzwei\n", "args": ["a b", "ü€"],
            "env": {"MINE": "x y"}, "limits": {}}
    same(server, spec, drop=",LC_COLD")


JAVASCRIPT_FILES = {
    "module": ([("main.mjs", "import fs from 'fs'; import {two} from './lib/two.mjs';\n"
                 "console.log(import.meta.url, two, process.argv[1], typeof require);\nawait 0; throw new Error('top');")], "main.mjs"),
    "type": ([("package.json", '{"type": "module"}'), ("main.js", "console.log(import.meta.url, typeof require)")], "main.js"),
    "sub": ([("d/app.js", "console.log(__filename, require('./other'), require.main.filename)"),
             ("d/other.js", "module.exports = __dirname")], "d/app.js"),
    "json": ([("main.js", "console.log(require('./x.json').a)"), ("x.json", '{"a": 1}')], "main.js"),
    "common": ([("x.cjs", "console.log(__filename, require.main === module)")], "x.cjs"),
    "odd name": ([("-x.js", "console.log(process.argv)")], "-x.js"),
    "collect": ([("main.js", "require('fs').mkdirSync('out'); require('fs').writeFileSync('out/f', 'made')")], "main.js"),
}


@pytest.mark.parametrize("name", JAVASCRIPT_FILES)
def test_javascript_files(server, name):
    files, entry = JAVASCRIPT_FILES[name]
    files = files + [("lib/two.mjs", "export const two = 2")]
    spec = {"language": "javascript", "entry": entry, "files": [{"name": n, "content": c} for n, c in files]}
    if name == "collect":
        spec["collect"] = ["out/*"]
    warm, _ = same(server, spec)
    if name == "collect":
        assert [f["name"] for f in warm["files"]] == ["out/f"]


MAIN = "public class Main { public static void main(String[] a) throws Exception { %s } }"
# What a program can see of its surroundings, in one: each costs the start of two machines.
STATE = (
    'for (String s : a) System.out.println(s + " " + s.length());',
    'System.out.println(new java.util.TreeMap<>(System.getenv()));',
    'var p = new java.util.TreeMap<>(System.getProperties()); System.out.println(p);',
    'var s = new java.util.Scanner(System.in); while (s.hasNext()) System.out.println(s.next());',
    'new Exception("here").printStackTrace(); System.out.println(Thread.currentThread());',
    'System.out.println(Thread.activeCount() + " " + Thread.currentThread().getId() + " "'
    ' + new java.util.TreeSet<>(Thread.getAllStackTraces().keySet().stream().map(Thread::getName).toList()));',
    'System.out.println("äöü €😀".length() + " äöü €😀");',
    'ClassLoader c = Main.class.getClassLoader(); System.out.println(c.getClass() + " " + c.getParent().getClass()'
    ' + Main.class.getProtectionDomain().getCodeSource().getLocation());',
    'try { System.out.println(Class.forName("Rehearsal")); } catch (Throwable t) { System.out.println(t); }',
    'System.out.println(java.util.Arrays.toString(new java.io.File("/tmp").list()) + new java.io.File(".").getCanonicalPath()'
    ' + new java.util.TreeSet<>(java.util.List.of(new java.io.File("/box").list())));',
    'for (var f : new java.io.File("/proc/self/fd").listFiles()) { try { String l = java.nio.file.Files'
    '.readSymbolicLink(f.toPath()).toString(); if (l.startsWith("socket") || l.startsWith("pipe"))'
    ' System.out.println(f.getName() + l.replaceAll("\\\\[.*", "")); } catch (Exception e) {} }',
    'System.out.println(new java.util.Date(0) + " " + java.util.TimeZone.getDefault().getID() + java.util.Locale.getDefault());',
    'System.out.print(new String(new ProcessBuilder("env").start().getInputStream().readAllBytes()).contains("MINE=x y"));',
)
JAVA = {
    "state": MAIN % " ".join("{ %s }" % body for body in STATE),
    "throw": "package a.b;\npublic class Main {\n  static void f() { throw new IllegalStateException(\"x\"); }\n"
             "  public static void main(String[] a) {\n    f();\n  }\n}",
    "thread": MAIN % 'new Thread(() -> { try { Thread.sleep(50); } catch (Exception e) {} System.out.println("t"); }).start();'
                     ' System.out.println("m");',
    "thread dies": MAIN % 'new Thread(() -> { throw new RuntimeException("t"); }, "T").start();',
    "exit": MAIN % 'Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook"))); System.exit(7);',
    "halt": MAIN % 'Runtime.getRuntime().halt(9);',
    "static": "public class Main { static int x = 1 / 0; public static void main(String[] a) {} }",
    "no main": "public class Main { static void other() {} }",
    "compile error": "public class Main { int x = \"s\"; }",
    "warning": MAIN % 'java.util.List l = new java.util.ArrayList(); l.add(1); System.out.println(l);',
    "overflow": "public class Main { static int d; static void f() { d++; f(); } public static void main(String[] a) {"
                " try { f(); } catch (StackOverflowError e) { System.out.println(d > 5000); } } }",
    "memory": MAIN % 'var l = new java.util.ArrayList<byte[]>(); while (true) l.add(new byte[1 << 20]);',
    "other class": "class First { } class Second { public static void main(String[] a) { System.out.println(\"second\"); } }",
}


@pytest.mark.parametrize("name", JAVA)
def test_java_is_like_cold(server, name):
    if not has(server, "java"):
        pytest.skip("java is not installed")
    spec = {"language": "java", "code": JAVA[name], "stdin": "in put\nzwei\n", "args": ["a b", "ü€", "😀"],
            "env": {"MINE": "x y"}}
    warm, cold = same(server, spec, drop="LC_COLD=1, ")
    for field in ("status", "exit_code", "stdout", "stderr"):
        assert warm["compile"][field] == cold["compile"][field], field


def test_java_with_several_files(server):
    if not has(server, "java"):
        pytest.skip("java is not installed")
    files = [("app/Main.java", "package app;\nimport lib.Greeter;\npublic class Main { public static void main(String[] a) throws Exception {"
              " System.out.println(new Greeter().greet()); new java.io.File(\"out\").mkdir();"
              " java.nio.file.Files.writeString(java.nio.file.Path.of(\"out/f\"), \"made\"); } }"),
             ("lib/Greeter.java", "package lib;\npublic class Greeter { public String greet() { return \"hi\"; } }"),
             ("data.txt", "x")]
    spec = {"language": "java", "files": [{"name": n, "content": c} for n, c in files], "entry": "app/Main.java", "collect": ["out/*"]}
    assert [f["name"] for f in same(server, spec)[0]["files"]] == ["out/f"]


def test_what_a_parked_box_cannot_be_runs_cold(server):
    for more in ({"limits": {"memory_mb": 300}}, {"env": {"NODE_OPTIONS": "--stack-trace-limit=1"}}, {"env": {"LANG": "C"}}):
        run = server("POST", "/v1/runs", dict({"language": "javascript", "code": "console.log(1)"}, **more)).json()
        assert (run["status"], run["stdout"], starts(run)) == ("ok", "1\n", "cold")


def test_limits_of_parked_boxes(server):
    spin = {"language": "javascript", "code": "while (true);", "limits": {"wall_ms": 700 * SLOW}}
    run = run_warm(server, spin)
    assert run["status"] == "time_limit" and run["limits_hit"] == ["wall"]
    flood = run_warm(server, {"language": "javascript", "code": "for (;;) require('fs').writeSync(1, 'x'.repeat(1000))"})
    assert flood["status"] == "output_limit"
    disk = {"language": "javascript", "code": "require('fs').writeFileSync('f', Buffer.alloc(100 << 20))"}
    same(server, disk)


def test_each_box_serves_one_run(server):
    leave = "require('fs').writeFileSync('/tmp/left', 'x'); globalThis.left = 1; process.env.LEFT = '1'; console.log(Math.random())"
    look = "console.log(require('fs').existsSync('/tmp/left'), typeof left, process.env.LEFT, Math.random())"
    seen = set()
    for _ in range(6):
        seen.add(run_warm(server, {"language": "javascript", "code": leave})["stdout"])
        out = run_warm(server, {"language": "javascript", "code": look})["stdout"]
        assert out.startswith("false undefined undefined "), out
        seen.add(out)
    assert len(seen) == 12, "random numbers repeat"


def test_usage_of_warm_and_cold_agrees(server):
    def usage(spec, cold):
        found = []
        for _ in range(3):
            run = server("POST", "/v1/runs", dict(spec, env=COLD)).json() if cold else run_warm(server, spec)
            assert run["status"] == "ok", run
            found.append((run["usage"]["memory_peak_kb"], run["usage"]["cpu_ms"]))
        return sorted(found)[1]
    fill = "const b = []; for (let i = 0; i < 60; i++) b.push(Buffer.alloc(1 << 20, i)); console.log(b.length)"
    js = {"language": "javascript", "code": fill}
    warm, cold = usage(js, False), usage(js, True)
    assert abs(warm[0] - cold[0]) <= 0.1 * cold[0], (warm, cold)
    if has(server, "java"):
        java = {"language": "java", "code": MAIN % "var l = new java.util.ArrayList<byte[]>(); for (int i = 0; i < 60; i++)"
                " { l.add(new byte[1 << 20]); java.util.Arrays.fill(l.get(i), (byte) 1); }"}
        warm, cold = usage(java, False), usage(java, True)
        assert abs(warm[0] - cold[0]) <= 0.1 * cold[0], (warm, cold)


def test_parked_programs_die_and_come_back(server):
    spawner = server.child("hermes-spawn")
    run_warm(server, {"language": "javascript", "code": "1"})
    for pid in boxes_below(spawner):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    time.sleep(0.3)
    run = server("POST", "/v1/runs", {"language": "javascript", "code": "console.log(1)"}).json()
    assert run["stdout"] == "1\n"
    run_warm(server, {"language": "javascript", "code": "1"})
    assert server.child("hermes-spawn") == spawner


def test_a_request_passes_over_boxes_that_have_just_died(server):
    """The spawner hears of the request first and of the deaths only then."""
    spawner = server.child("hermes-spawn")
    spec = {"language": "javascript", "code": "console.log(1)"}
    run_warm(server, spec)
    assert wait_until(lambda: node_boxes(server) >= 2, 20)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        os.kill(spawner, signal.SIGSTOP)
        try:
            asked = pool.submit(lambda: server("POST", "/v1/runs", spec).json())
            time.sleep(0.3)
            for pid in boxes_below(spawner):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.3)
        finally:
            os.kill(spawner, signal.SIGCONT)
        run = asked.result()
    assert (run["status"], run["stdout"], starts(run)) == ("ok", "1\n", "cold"), run


def test_many_at_once_and_nothing_is_left(server):
    spawner = server.child("hermes-spawn")

    def one(n):
        return server("POST", "/v1/runs", {"language": "javascript", "code": "console.log(%d)" % n}).json()

    def descriptors():
        return len(os.listdir("/proc/%d/fd" % spawner))

    def settle():
        """Every pool is full and nothing else is there."""
        seen = []

        def steady():
            seen.append((descriptors(), len(boxes_below(spawner))))
            time.sleep(0.2)
            return len(seen) > 10 and len(set(seen[-10:])) == 1
        assert wait_until(steady, 30), seen[-10:]
        return seen[-1]

    def burst():
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for n, run in enumerate(pool.map(one, range(80))):
                assert run["stdout"] == "%d\n" % n, run
        return settle()
    # The spawner keeps up to 32 network namespaces for the next boxes, and as many control groups as
    # there were boxes at once, each with its 12 descriptors: less than one for each of 240 runs. A ready
    # box that came later has 20.
    before = settle()
    for _ in range(3):
        after = burst()
        more = after[1] - before[1]
        assert more <= 4 and after[0] <= before[0] + 4 + 32 + 8 * 12 + 20 * max(more, 0), (before, after)


def node_boxes(server):
    found = 0
    for pid in boxes_below(server.child("hermes-spawn")):
        try:
            found += b"park.js" in pathlib.Path("/proc/%d/cmdline" % pid).read_bytes()
        except OSError:
            pass
    return found


def test_parked_boxes_go_while_memory_is_short():
    percent = choose_percent()
    path, made = start(parked_free_percent=percent)
    try:
        assert wait_until(lambda: node_boxes(made) > 0, 20)
        with short_of_memory(percent):
            assert wait_until(lambda: not boxes_below(made.child("hermes-spawn")), 10)
            time.sleep(2.5)
            assert not boxes_below(made.child("hermes-spawn"))
            run = made("POST", "/v1/runs", {"language": "javascript", "code": "console.log(1)"}).json()
            assert (run["stdout"], starts(run)) == ("1\n", "cold")
        assert wait_until(lambda: node_boxes(made) > 0, 20)
    finally:
        assert made.stop() == 0
        return_dir(path)


def test_pools_grow_with_demand_to_their_bound():
    path, made = start(parked=4)
    try:
        assert wait_until(lambda: node_boxes(made) == 2, 20)
        spec = {"language": "javascript", "code": "setTimeout(() => {}, 500)"}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(r.json()["status"] == "ok" for r in pool.map(lambda _: made("POST", "/v1/runs", spec), range(16)))
        assert wait_until(lambda: node_boxes(made) == 4, 20)
    finally:
        assert made.stop() == 0
        return_dir(path)


def test_switched_off_nothing_is_parked():
    for settings in (dict(warm="false"), dict(parked=0)):
        path, made = start(**settings)
        try:
            for _ in range(2):
                assert starts(made("POST", "/v1/runs", {"language": "javascript", "code": "1"}).json()) == "cold"
                assert wait_until_still(made.process.pid)
                assert not boxes_below(made.child("hermes-spawn"))
        finally:
            assert made.stop() == 0
            return_dir(path)


def test_every_attack_in_javascript_on_the_warm_path():
    files = (pathlib.Path(__file__).resolve().parents[2] / "selftest/cases").glob("*/*.js")
    cases = [re.search(r"^// id: (\S+)$", p.read_text(), re.M)[1] for p in files]
    only = [word for case in cases for word in ("--only", case)]
    done = subprocess.run([str(HERMES), "selftest", "--warm", "--controls"] + only, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert len([x for x in done.stdout.splitlines() if x.startswith("ok")]) >= len(cases) >= 4
