# SPDX-License-Identifier: Apache-2.0
"""The interpreter's end of the channel: frames, and a JSON writer that user code cannot break."""
import builtins

__builtins__ = dict(vars(builtins))

from _json import encode_basestring_ascii  # noqa: E402
from _signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask, raise_signal, signal  # noqa: E402
from _thread import _count as count_threads, allocate_lock, get_ident  # noqa: E402
from json.decoder import JSONDecoder  # noqa: E402
from os import read, write  # noqa: E402
from select import POLLIN, poll  # noqa: E402

FRAME_MAX = 16 << 20
DEPTH_MAX = 32
HEADER_MAX = 32

scan_json = JSONDecoder().scan_once


class ChannelGone(Exception):
    pass


class TooDeep(ValueError):
    pass


def to_text(make):
    """Returns the result of make() as text; make() is user code and may fail."""
    try:
        text = make()
        return text if type(text) is str else "<unprintable>"
    except BaseException:
        return "<unprintable>"


def encode(value, depth=0):
    """JSON in ASCII. Keys that are not text become text; a type that JSON does not have is an error."""
    if depth > DEPTH_MAX:
        raise TooDeep("nested deeper than %d" % DEPTH_MAX)
    if isinstance(value, str):
        return encode_basestring_ascii(str.__str__(value))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return "null"
        return float.__repr__(value)
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (encode_basestring_ascii(k if isinstance(k, str) else str(k)),
                                              encode(v, depth + 1)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join([encode(v, depth + 1) for v in value])
    raise TypeError("%s is not JSON" % type(value).__name__)


class Whole:
    """Delays SIGINT, which could otherwise raise an exception in the middle of a frame. The signal is blocked. If there
    are other threads, one of them would take it and Python would still raise here, so the handler is replaced too."""
    def __init__(self):
        self.thread = get_ident()

    def __enter__(self):
        self.came = self.exchanged = False
        if get_ident() != self.thread:
            return
        self.mask = pthread_sigmask(SIG_BLOCK, (SIGINT,))
        if count_threads():
            self.handler = signal(SIGINT, self.note)
            self.exchanged = True

    def __exit__(self, *ignored):
        if get_ident() != self.thread:
            return
        if self.exchanged:
            signal(SIGINT, self.handler)
        pthread_sigmask(SIG_SETMASK, self.mask)
        if self.came:
            raise_signal(SIGINT)

    def note(self, number, frame):
        self.came = True


class Channel:
    def __init__(self, fd):
        self.fd = fd
        self.whole = Whole()
        self.buffer = bytearray()
        self.lock = allocate_lock()

    def has_input(self):
        if self.buffer:
            return True
        waiting = poll()
        waiting.register(self.fd, POLLIN)
        return bool(waiting.poll(0))

    def send(self, kind, value):
        payload = encode(value).encode("ascii")
        if len(payload) > FRAME_MAX:
            raise ValueError("%d bytes do not fit into a frame" % len(payload))
        with self.whole, self.lock:
            self.write(b"%s %d\n" % (kind.encode("ascii"), len(payload)) + payload)

    def write(self, data):
        view = memoryview(data)
        try:
            while view:
                view = view[write(self.fd, view):]
        except OSError:
            raise ChannelGone from None

    def receive(self):
        while True:
            frame = self.take()
            if frame is not None:
                return frame
            self.fill()

    def fill(self, timeout_ms=None):
        """Waits for bytes and reads the bytes that have arrived."""
        waiting = poll()
        waiting.register(self.fd, POLLIN)
        if not waiting.poll(timeout_ms):
            return
        with self.whole:
            try:
                data = read(self.fd, 1 << 18)
            except OSError:
                raise ChannelGone from None
            if not data:
                raise ChannelGone
            self.buffer += data

    def take(self):
        """Takes one whole frame from the buffer, or returns nothing."""
        end = self.buffer.find(b"\n", 0, HEADER_MAX)
        if end < 0:
            if len(self.buffer) >= HEADER_MAX:
                raise ValueError("no frame")
            return None
        kind, _, length = bytes(self.buffer[:end]).partition(b" ")
        if not length.isdigit() or int(length) > FRAME_MAX:
            raise ValueError("no frame")
        stop = end + 1 + int(length)
        if len(self.buffer) < stop:
            return None
        with self.whole:
            payload = bytes(self.buffer[end + 1:stop])
            del self.buffer[:stop]
        return kind.decode("ascii", "replace"), payload

    @staticmethod
    def decode(payload):
        text = payload.decode().strip(" \t\r\n")
        try:
            value, end = scan_json(text, 0)
        except StopIteration:
            raise ValueError("no JSON") from None
        if end != len(text):
            raise ValueError("more than one JSON value")
        return value
