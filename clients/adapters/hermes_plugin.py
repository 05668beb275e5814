# SPDX-License-Identifier: Apache-2.0
"""The plug-in side of the protocol of docs/internals/plugins.md: frames on stdin and stdout.

A plug-in is a subclass of Plugin and a call of serve(). It needs nothing but Python 3.9.
"""
import json
import os
import queue
import sys
import threading

FRAME_MAX = 16 << 20
PIECE = 1 << 18


class Error(Exception):
    """What goes wrong in a place. `kind` is auth, not_found, refused, limit, unreachable or lost; with limit, `limit` is cpus,
    memory_mb, processes or disk_mb."""

    def __init__(self, kind, message, limit=None):
        super().__init__(message)
        self.kind, self.limit = kind, limit


class Plugin:
    """One place. Methods raise Error."""
    name = "nameless"
    isolation = "none"   # one word for what keeps the place apart from other machines
    limits = {}          # cpu, memory, disk, pids, network: "enforced", "none" or a text

    def open(self, request):
        """Finds, resumes or makes the place. Returns (id, resumed)."""
        raise NotImplementedError

    def stream(self, argv):
        """Starts a program. Returns an object with read() -> bytes (b"" at the end), write(bytes), eof(), wait() -> exit code."""
        raise NotImplementedError

    def close(self, destroy):
        """The session is over: destroys the place, or puts it where open() finds it again."""
        raise NotImplementedError


class _Frames:
    def __init__(self):
        # Nothing else may write there: a library that prints would break the frames.
        self.into = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
        self.out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self.lock = threading.Lock()

    def send(self, kind, data=b""):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            data = json.dumps(data).encode()
        frame = memoryview(b"%s %d\n" % (kind.encode(), len(data)) + bytes(data))
        with self.lock:
            while frame:
                frame = frame[self.out.write(frame):]

    def next(self):
        head = self.into.readline(64)
        if not head:
            return None, b""
        kind, _, size = head.decode().strip().partition(" ")
        if int(size) > FRAME_MAX:
            raise ValueError("a frame of %s bytes" % size)
        return kind, self.into.read(int(size))


class _Reader(threading.Thread):
    """Passes the output of a program on."""

    def __init__(self, frames, stream):
        super().__init__(daemon=True)
        self.frames, self.program = frames, stream

    def run(self):
        code = -1
        try:
            while data := self.program.read():
                for at in range(0, len(data), PIECE):
                    self.frames.send("data", data[at:at + PIECE])
            code = self.program.wait()
        except Exception as error:  # the place is gone: the host sees the end
            print("stream: %r" % error, file=sys.stderr)
        try:
            self.frames.send("ended", {"exit_code": code})
        except OSError:
            pass


class _Writer(threading.Thread):
    """Passes input on to a program. One that reads nothing must not keep the plug-in from its next request, which may be `close`.
    The host sends a few MiB at most that the program has not confirmed."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.program, self.waiting = stream, queue.SimpleQueue()

    def run(self):
        while True:
            kind, data = self.waiting.get()
            try:
                self.program.write(data) if kind == "data" else self.program.eof()
            except Exception as error:  # its end shows at its output
                print("%s: %r" % (kind, error), file=sys.stderr)


def _open(plugin, request):
    found, resumed = plugin.open(request)
    if request.get("again") and not resumed:
        raise Error("lost", "the place is gone, and the session's state with it")
    return "opened", {"id": str(found), "resumed": bool(resumed)}


def serve(plugin):
    """Talks until the host closes stdin. The exit status of the program is 0."""
    frames, writer = _Frames(), None
    frames.send("ready", {"name": plugin.name, "protocol": 1, "isolation": plugin.isolation, "limits": plugin.limits})
    while True:
        kind, data = frames.next()
        if kind is None:
            return
        if kind in ("data", "eof"):
            if writer:
                writer.waiting.put((kind, data))
            continue
        try:
            request = json.loads(data or b"{}")
            if kind == "open":
                answer = _open(plugin, request)
            elif kind == "stream":
                stream = plugin.stream(request["argv"])
                frames.send("ok", {})
                _Reader(frames, stream).start()
                writer = _Writer(stream)
                writer.start()
                continue
            elif kind == "close":
                plugin.close(bool(request.get("destroy")))
                answer = "ok", {}
            else:
                raise Error("refused", "there is no request `%s`" % kind)
        except Error as error:
            answer = "error", {"kind": error.kind, "message": str(error), "limit": error.limit}
        except Exception as error:
            answer = "error", {"kind": "unreachable", "message": "%s: %s" % (type(error).__name__, error)}
        frames.send(*answer)
