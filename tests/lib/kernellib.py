# SPDX-License-Identifier: Apache-2.0
"""Drives a kernel over a socket pair, as the server does, without a box: only harmless code here."""
import atexit
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HERMES_BUILD_DIR", ROOT / "build"))
PYTHON_DIR = ROOT / "runtimes/python"
SLOW = 20.0 if os.environ.get("HERMES_SLOW") else 1.0
CACHE = tempfile.mkdtemp(prefix="hermes-test-")  # matplotlib's list of fonts is made once
atexit.register(shutil.rmtree, CACHE, True)
JAVASCRIPT_DIR = pathlib.Path(CACHE) / "javascript"  # as /usr/lib/hermes in a box
JAVASCRIPT_DIR.mkdir()
for file in (ROOT / "runtimes/javascript/kernel.js", ROOT / "runtimes/javascript/kernel_source.js", BUILD / "libhermes-warm.so"):
    shutil.copy(file, JAVASCRIPT_DIR)
HAS_IPYTHON = subprocess.run(["/usr/bin/python3", "-c", "import IPython"], capture_output=True).returncode == 0
WITHOUT_IPYTHON = ("import sys; sys.modules['IPython'] = None; sys.path.insert(0, %r); "
                   "import kernel; kernel.prepare(); kernel.serve(3)" % str(PYTHON_DIR))

# As the zygote does: everything is loaded once, each kernel is a fork. The one in the middle waits and tells the status.
FORKER = """
import os, signal, socket, sys
sys.path.insert(0, %r)
import kernel, gc
kernel.prepare()
gc.freeze()
signal.signal(signal.SIGINT, signal.SIG_IGN)
door = socket.socket(fileno=0)
while True:
    data, fds, _, _ = socket.recv_fds(door, 65536, 5)
    if not data:
        os._exit(0)
    if os.fork() == 0:
        if (pid := os.fork()) == 0:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            cwd, _, env = data.decode().partition("\\0")
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(pair.split("=", 1) for pair in env.split("\\0") if pair)
            fds = [os.dup(fd) for fd in fds]
            for wanted, fd in enumerate(fds[:4]):
                os.dup2(fd, wanted)
            os.closerange(4, 64)
            kernel.serve(3)
        os.write(fds[4], b"%%d " %% pid)
        os.write(fds[4], b"%%d " %% os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    for fd in fds:
        os.close(fd)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
""" % str(PYTHON_DIR)
forker = None

COMMANDS = {
    "program": ["/usr/bin/python3", str(PYTHON_DIR / "kernel.py")],
    "plain": ["/usr/bin/python3", "-c", WITHOUT_IPYTHON],
    "javascript": ["/usr/bin/node", str(JAVASCRIPT_DIR / "kernel.js")],
    "bash": [str(BUILD / "hermes-shell"), "/usr/bin/bash"],
}
HEADER = re.compile(rb"([a-z_]{1,16}) (0|[1-9][0-9]{0,7})\n")
FRAME_MAX = 16 << 20


class Dead(Exception):
    """The kernel's process or its channel is gone."""


class Answer:
    def __init__(self):
        self.parts = {1: bytearray(), 2: bytearray()}
        self.result = self.error = self.done = None
        self.displays, self.calls, self.jobs = [], [], []

    stdout_bytes = property(lambda self: bytes(self.parts[1]))
    stderr_bytes = property(lambda self: bytes(self.parts[2]))
    stdout = property(lambda self: self.stdout_bytes.decode("utf-8", "replace"))
    stderr = property(lambda self: self.stderr_bytes.decode("utf-8", "replace"))
    ok = property(lambda self: self.done["ok"])
    code = property(lambda self: self.done["exit_code"])
    state = property(lambda self: self.done["state"])
    text = property(lambda self: self.result and self.result["text/plain"])
    trace = property(lambda self: "\n".join(self.error["traceback"]))

    def __repr__(self):
        seen = {"stdout": self.stdout[:2000], "stderr": self.stderr[:2000], **vars(self), "parts": None}
        return "Answer(%r)" % {k: v for k, v in seen.items() if v}


class Kernel:
    def __init__(self, kind, cwd="/", env=None, wait=True):
        self.kind = kind
        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in range(2)]
        null = os.open("/dev/null", os.O_RDONLY)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8",
                       "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": CACHE, **(env or {})}
        environment = {k: v for k, v in environment.items() if v is not None}
        command = COMMANDS.get(kind)
        actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, pipes[0][1], 1),
                   (os.POSIX_SPAWN_DUP2, pipes[1][1], 2), (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)]
        self.status_pipe = None
        if kind == "python":
            self.fork_python([null, pipes[0][1], pipes[1][1], theirs.fileno()], cwd, environment)
        else:
            before = os.getcwd()
            os.chdir(cwd)
            try:
                self.pid = os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True,
                                          setsigdef=[signal.SIGINT, signal.SIGPIPE])
            finally:
                os.chdir(before)
        self.channel = ours
        self.out, self.err = pipes[0][0], pipes[1][0]
        for fd in (null, pipes[0][1], pipes[1][1]):
            os.close(fd)
        theirs.close()
        os.set_blocking(self.out, False)
        os.set_blocking(self.err, False)
        self.buffer = b""
        self.status = None
        self.ready = None
        if wait:
            kind, payload = self.frame(Answer(), 30)
            assert kind == "ready", (kind, payload)
            self.ready = json.loads(payload)

    def fork_python(self, fds, cwd, environment):
        global forker
        if forker is None:
            forker, door = socket.socketpair()
            subprocess.Popen(["/usr/bin/python3", "-c", FORKER], stdin=door, env=environment)
            door.close()
        self.status_pipe, told = os.pipe()
        text = "\0".join([cwd] + ["%s=%s" % pair for pair in environment.items()])
        socket.send_fds(forker, [text.encode()], fds + [told])
        os.close(told)
        self.pid = int(self.read_number())
        os.set_blocking(self.status_pipe, False)

    def read_number(self):
        text = b""
        while not text.endswith(b" "):
            text += os.read(self.status_pipe, 1)
        return int(text)

    def send(self, kind, payload=b""):
        if isinstance(payload, str):
            payload = payload.encode()
        elif not isinstance(payload, bytes):
            payload = json.dumps(payload).encode()
        self.channel.sendall(b"%s %d\n" % (kind.encode(), len(payload)) + payload)

    def drain(self, answer):
        """The bytes that are in the two pipes now."""
        for fd, part in ((self.out, answer.parts[1]), (self.err, answer.parts[2])):
            try:
                while data := os.read(fd, 1 << 20):
                    part += data
            except BlockingIOError:
                pass

    def await_output(self, word):
        """Waits until the word is printed. Returns the answer so far."""
        answer = Answer()

        def is_printed():
            self.drain(answer)
            return word in answer.stdout
        assert wait_until(is_printed, 20), "no %r in %r" % (word, answer.stdout)
        return answer

    def frame(self, answer, timeout):
        """The next frame; output goes to the answer meanwhile."""
        deadline = time.monotonic() + timeout * SLOW
        while True:
            if found := HEADER.match(self.buffer):
                length = int(found[2])
                assert length <= FRAME_MAX
                if len(self.buffer) >= found.end() + length:
                    payload = self.buffer[found.end():found.end() + length]
                    self.buffer = self.buffer[found.end() + length:]
                    return found[1].decode(), payload
            elif len(self.buffer) > 32 or b"\n" in self.buffer:
                raise Dead("rubbish on the channel: %r" % self.buffer[:80])
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame within %s s: %r" % (timeout, answer))
            ready = select.select([self.channel, self.out, self.err], [], [], left)[0]
            if self.channel in ready:
                try:
                    data = self.channel.recv(1 << 20)
                except ConnectionResetError:
                    data = b""
                if not data:
                    self.drain(answer)
                    raise Dead("the channel is closed: %s" % answer.stderr)
                self.buffer += data
            elif ready:
                self.drain(answer)
                if not any(fd in ready for fd in (self.channel,)) and self.gone():
                    raise Dead("the kernel ended: %s" % answer.stderr)

    def gone(self):
        if self.status is None and self.status_pipe is not None:
            try:
                self.status = self.read_number()
            except BlockingIOError:
                return False
        elif self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, timeout=10):
        """The exit status."""
        deadline = time.monotonic() + timeout * SLOW
        while not self.gone():
            assert time.monotonic() < deadline, "the kernel did not end"
            time.sleep(0.005)
        return self.status

    def begin(self, code, stdin=None, tools=None):
        if stdin is not None:
            self.send("stdin", stdin)
        if tools is not None:
            self.send("tools", tools)
        self.send("exec", code)

    def finish(self, timeout=20, on_tool=None, answer=None):
        """Collects until done, and checks the order that the contract promises."""
        answer = answer or Answer()
        while answer.done is None:
            kind, payload = self.frame(answer, timeout)
            value = json.loads(payload)
            assert payload.isascii()
            if kind in ("result", "error", "done"):
                assert getattr(answer, kind) is None, "a second %s" % kind
                assert kind == "done" or (answer.result is None and answer.error is None)
                setattr(answer, kind, value)
            elif kind == "display":
                answer.displays.append(value)
            elif kind == "jobs":
                answer.jobs.append(value)
            elif kind == "tool_call":
                answer.calls.append(value)
                if on_tool:
                    self.send("tool_result", {"id": value["id"], **on_tool(value)})
            else:
                raise AssertionError("unknown frame %s" % kind)
        self.drain(answer)
        assert set(answer.done) == {"ok", "exit_code", "cwd", "execution_count", "interrupted", "state"}
        return answer

    def exec(self, code, stdin=None, tools=None, timeout=20, on_tool=None):
        self.begin(code, stdin, tools)
        return self.finish(timeout, on_tool)

    def __call__(self, code, **options):
        return self.exec(code, **options)

    def interrupt(self, group=True):
        if group:
            os.killpg(self.pid, signal.SIGINT)
        else:
            os.kill(self.pid, signal.SIGINT)

    def has_taken_signals(self):
        """No signal is on its way to the interpreter, and all of its threads wait again: Node hands a signal to a thread."""
        for task in pathlib.Path("/proc/%d/task" % self.pid).iterdir():
            try:
                status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            except OSError:  # this thread has just ended
                continue
            if status["State"].split()[0] != "S" or any(int(status[name], 16) for name in ("SigPnd", "ShdPnd")):
                return False
        return True

    def settle(self):
        """Does the same as the server after an exec that it has signalled."""
        self.send("settle")
        assert self.frame(Answer(), 10) == ("settled", b"null")

    def ask_jobs(self, kind="jobs", payload=b""):
        self.send(kind, payload)
        got, value = self.frame(Answer(), 10)
        assert got == "jobs"
        return json.loads(value)

    def children(self):
        """Live processes of the kernel's session, without itself."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = pathlib.Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[3]) == self.pid and int(name) != self.pid and fields[0] != "Z":
                    found.append(int(name))
        return found

    def close(self):
        self.channel.close()
        if not self.gone():
            try:
                self.wait(5)
            except AssertionError:
                os.kill(self.pid, signal.SIGKILL)
                self.wait()
        for pid in self.children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for fd in (self.out, self.err, self.status_pipe):
            if fd is not None:
                os.close(fd)


def wait_until(true, timeout=10):
    deadline = time.monotonic() + timeout * SLOW
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
