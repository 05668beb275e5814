#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Many sessions doing mixed work over HTTP for a while, every answer checked.

Passes when nothing of one session showed in another, no event of a stream was lost, every session that had to
die told so, nothing was left behind and the server's memory stayed where it was. Ends with one line and exit
status 0 or 1.

  tests/bench/soak_sessions.py [--sessions N] [--minutes N] [--seed N]
"""
import argparse
import collections
import pathlib
import random
import shutil
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
from apilib import Server, boxes_below, make_dir, open_descriptors, wait_until  # noqa: E402
from leaks import pss_kb  # noqa: E402
from sessionlib import Session  # noqa: E402

GROWTH_KB = 8192
LANGUAGES = ["python", "bash", "javascript", "python"]
SET = {"python": "v = {0!r}; open('f', 'w').write(v)", "bash": "v={0}; printf %s $v >f",
       "javascript": "var v = {0!r}; require('fs').writeFileSync('f', v)"}
GET = {"python": "print(v, open('f').read())", "bash": "echo $v $(cat f)",
       "javascript": "console.log(v, require('fs').readFileSync('f', 'utf8'))"}
COUNT = {"python": "import sys\nfor i in range(300): print({0!r}, i, flush=i % 50 == 0)", "bash": "for i in $(seq 0 299); do echo {0} $i; done",
         "javascript": "for (let i = 0; i < 300; i++) console.log({0!r}, i)"}
SPIN = {"python": "while True: pass", "bash": "while :; do :; done", "javascript": "while (true) ;"}
DIE = {"python": "import os; os._exit(3)", "javascript": "process.kill(process.pid, 'SIGKILL')"}


class Worker(threading.Thread):
    """One place for a session; when its session has died on purpose it makes the next."""

    def __init__(self, server, number, seed, until):
        super().__init__(daemon=True)
        self.server, self.number, self.until = server, number, until
        self.random = random.Random(seed * 1000 + number)
        self.language = LANGUAGES[number % len(LANGUAGES)]
        self.done = collections.Counter()
        self.wrong = []
        self.session = None

    def run(self):
        while time.monotonic() < self.until and not self.wrong:
            try:
                self.step()
            except Exception as problem:
                self.wrong.append("%d %s: %r" % (self.number, self.language, problem))
        if self.session:
            self.session.delete()

    def expect(self, ok, what):
        if not ok:
            self.wrong.append("%d %s: %r" % (self.number, self.language, what))

    def step(self):
        if not self.session:
            self.session = Session(self.server, self.language, limits={"memory_mb": 96})
            self.mark = "m%d-%d" % (self.number, self.random.getrandbits(40))
            self.session.exec(SET[self.language].format(self.mark))
        kind = self.random.choices(["get", "set", "stream", "files", "spin", "reset", "die", "end", "pause"],
                                   [40, 15, 15, 20, 4, 3, 2, 3, 18])[0]
        self.done[kind] += 1
        getattr(self, "do_" + kind)()

    def do_get(self):
        answer = self.session.exec(GET[self.language])
        self.expect(answer["stdout"] == "%s %s\n" % (self.mark, self.mark), answer)

    def do_set(self):
        self.mark = "m%d-%d" % (self.number, self.random.getrandbits(40))
        answer = self.session.exec(SET[self.language].format(self.mark))
        self.expect(answer["status"] == "ok" and answer["files_changed"] == ["f"], answer)

    def do_files(self):
        """Up, down, both at once with an exec, as an archive, and gone again; one upload breaks off."""
        body = (self.mark * 20000).encode()[:self.random.randrange(300000)]
        self.expect(self.session.call("PUT", "/files/d/up", body).status in (201, 204), "put")
        late = self.session.later(GET[self.language], wait=True)
        self.expect(self.session.call("GET", "/files/d/up").body == body, "down")
        self.expect(self.session.call("GET", "/files/f").body == self.mark.encode(), "f")
        self.expect(body in self.session.call("GET", "/archive?path=d").body, "archive")
        self.expect(late.result().json()["stdout"] == "%s %s\n" % (self.mark, self.mark), "exec meanwhile")
        conn = self.server.connect()
        conn.putrequest("PUT", "/v1/sessions/%s/files/half" % self.session.id)
        conn.putheader("Content-Length", "1000000")
        conn.endheaders()
        conn.send(b"x" * self.random.randrange(100000))
        conn.close()
        self.expect(self.session.call("DELETE", "/files/d?recursive=true").status == 204, "delete")
        names = [e["name"] for e in self.session.call("GET", "/files").json()["entries"]]
        self.expect(names == ["f"], names)

    def do_stream(self):
        events = self.session.stream(COUNT[self.language].format(self.mark))
        told = "".join(data["data"] for name, data in events if name == "stdout")
        wanted = "".join("%s %d\n" % (self.mark, i) for i in range(300))
        self.expect(told == wanted == events[-1][1]["stdout"], ("stream", len(told), events[-1]))

    def do_spin(self):
        answer = self.session.exec(SPIN[self.language], timeout_ms=200)
        self.expect(answer["status"] == "time_limit", answer)
        if answer["state_lost"]:
            self.done["lost"] += 1
            self.expect(self.session.state()["state"] in ("dead", "idle"), "state")
            self.do_end()
        else:
            self.do_get()

    def do_reset(self):
        reply = self.session.call("POST", "/reset")
        self.expect(reply.status == 200 and reply.json()["files_kept"], reply)
        self.do_set()

    def do_die(self):
        if self.language in DIE:
            answer = self.session.exec(DIE[self.language])
            self.expect(answer["state_lost"], answer)
            self.expect(self.session.state()["state"] == "dead", "dead")
            self.expect(self.session.post("1").status == 409, "409")
        self.do_end()

    def do_end(self):
        self.expect(self.session.delete().status == 204, "delete")
        self.session = None

    def do_pause(self):
        time.sleep(self.random.random())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    path = make_dir()
    server = Server(path, env={"HERMES_SESSION_PARKED": "0", "HERMES_MAX_SESSIONS_PER_KEY": "256",
                               "HERMES_HISTORY_MAX": "2m"})  # what is kept on purpose is no leak
    wrong, done = [], collections.Counter()
    try:
        own, spawner = server.child("hermes-server"), server.child("hermes-spawn")
        end = time.monotonic() + options.minutes * 60
        workers = [Worker(server, n, options.seed, end) for n in range(options.sessions)]
        for worker in workers:
            worker.start()
        time.sleep(options.minutes * 60 / 5)
        early = pss_kb(own)
        for worker in workers:
            worker.join()
            wrong += worker.wrong
            done += worker.done
        if not wait_until(lambda: not boxes_below(spawner), 10):
            wrong.append("boxes are left")
        if server.metric("hermes_memory_promised_bytes") or server.metric("hermes_sessions"):
            wrong.append("memory is still promised")
        growth = pss_kb(own) - early
        if growth > GROWTH_KB:
            wrong.append("the server grew by %d KiB" % growth)
        fds = open_descriptors(own)
        if (server.child("hermes-server"), server.child("hermes-spawn")) != (own, spawner):
            wrong.append("a program was restarted")
    finally:
        server.stop()
        shutil.rmtree(path, ignore_errors=True)
    for line in wrong[:20]:
        print("WRONG", line[:1000])
    print("%s: %d sessions, %g minutes, %s; server %+d KiB, %d descriptors" % (
        "FAILED" if wrong else "passed", options.sessions, options.minutes,
        ", ".join("%s %d" % pair for pair in sorted(done.items())), growth, fds))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
