#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workspaces of Daytona as a backend (docs/backends.md). Needs the package `daytona`.

A place that is kept is a workspace that is stopped between sessions.
"""
import contextlib
import math
import os
import pathlib
import queue
import shlex
import sys
import threading
import uuid

HERE = pathlib.Path(__file__).resolve().parent
# Beside this file lies a program of the same name as the package; a script's directory comes first.
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
import daytona as sdk  # noqa: E402
sys.path.append(str(HERE))
from hermes_plugin import Error, Plugin, serve  # noqa: E402

DISK_MAX_GIB = 10
CREATE_S = float(os.environ.get("HERMES_DAYTONA_CREATE_S", "300"))
STOPPED = ("stopped", "archived", "paused")
CREDENTIALS = "DAYTONA_API_KEY of the plug-in's env_file"


@contextlib.contextmanager
def vendor():
    """Errors of the SDK become those of the protocol."""
    try:
        yield
    except (sdk.DaytonaAuthenticationError, sdk.DaytonaAuthorizationError, sdk.DaytonaForbiddenError) as error:
        raise Error("auth", "%s (%s)" % (error, CREDENTIALS)) from error
    except sdk.DaytonaNotFoundError as error:
        raise Error("not_found", str(error)) from error
    except (sdk.DaytonaConnectionError, sdk.DaytonaTimeoutError, sdk.DaytonaServiceUnavailableError, sdk.DaytonaBadGatewayError,
            sdk.DaytonaRateLimitError, OSError) as error:
        raise Error("unreachable", "Daytona does not answer: %s" % error) from error
    except sdk.DaytonaGoneError as error:
        raise Error("lost", str(error)) from error
    except sdk.DaytonaError as error:
        raise Error("refused", str(error)) from error


def resources(request):
    """Whole CPUs and GiB. Without a named size the disk is as large as Daytona allows."""
    disk = math.ceil(request["disk_mb"] / 1024)
    if disk > DISK_MAX_GIB and "disk_mb" in request["asked"]:
        raise Error("limit", "Daytona has disks of at most %d GiB; container_disk asks for %d MiB" % (DISK_MAX_GIB, request["disk_mb"]), "disk_mb")
    for name, one, unit in ("cpus", request["cpu"], "CPUs"), ("memory_mb", request["memory_mb"] / 1024, "GiB of memory"):
        if one != math.ceil(one) and name in request["asked"]:
            raise Error("limit", "Daytona has whole %s; %s asks for %s" % (unit, name, one), name)
    return sdk.Resources(cpu=max(1, math.ceil(request["cpu"])) if request["cpu"] else None,
                         memory=math.ceil(request["memory_mb"] / 1024) or None, disk=min(disk, DISK_MAX_GIB) or None)


class Stream:
    """A terminal in raw mode carries the bytes; before the program begins it shows a prompt and an echo, which the host drops."""

    def __init__(self, process, argv):
        self.pty = process.create_pty_session("hermes-" + uuid.uuid4().hex, cwd="/")
        self.pieces = queue.Queue(64)
        self.result = None
        threading.Thread(target=self.listen, daemon=True).start()
        self.write(b"stty raw -echo; exec %s 2>/dev/null\n" % shlex.join(argv).encode())

    def listen(self):
        try:
            self.result = self.pty.wait(on_data=self.pieces.put)
        except Exception as error:
            print("terminal: %r" % error, file=sys.stderr)
        self.pieces.put(b"")

    def read(self):
        data = self.pieces.get()
        while data and not self.pieces.empty() and len(data) < 1 << 18:
            more = self.pieces.get()
            if not more:
                self.pieces.put(more)
                break
            data += more
        return data

    def write(self, data):
        for at in range(0, len(data), 1 << 15):
            self.pty.send_input(data[at:at + (1 << 15)])

    def eof(self):  # a raw terminal has no end of input: the program is ended
        with contextlib.suppress(sdk.DaytonaError):
            self.pty.kill()

    def wait(self):
        return self.result.exit_code if self.result and self.result.exit_code is not None else -1


class Daytona(Plugin):
    name = "daytona"
    isolation = "container"
    limits = {"cpu": "enforced", "memory": "enforced", "disk": "enforced", "network": "enforced", "pids": "none"}

    def __init__(self):
        self.client = self.sandbox = None

    def find(self, name):
        try:
            return self.client.get(name)
        except sdk.DaytonaNotFoundError:
            return None

    def make(self, request):
        return self.client.create(sdk.CreateSandboxFromImageParams(
            name=request["name"], image=request["image"], resources=resources(request), network_block_all=not request["network"],
            labels={"hermes_task_id": request["name"], "hermes-config": request["config_hash"]},
            auto_stop_interval=0 if request["keep"] else max(1, math.ceil(request["lifetime_s"] / 60)),
            ephemeral=not request["keep"]), timeout=CREATE_S)

    def open(self, request):
        with vendor():
            self.client = sdk.Daytona()
            self.sandbox = self.find(request["name"])
            if not self.sandbox:
                if request["again"]:
                    raise Error("lost", "the workspace %s is gone, and the session's state with it" % request["name"])
                self.sandbox = self.make(request)
                return self.sandbox.id, False
            found = (self.sandbox.labels or {}).get("hermes-config")
            if found != request["config_hash"]:
                raise Error("refused", "the workspace %s was made with other settings (%.12s, now %.12s); delete it to begin anew"
                            % (request["name"], found, request["config_hash"]))
            if str(getattr(self.sandbox.state, "value", self.sandbox.state)) in STOPPED:
                self.sandbox.start(timeout=CREATE_S)
            return self.sandbox.id, True

    def stream(self, argv):
        with vendor():
            return Stream(self.sandbox.process, argv)

    def close(self, destroy):
        with vendor():
            self.sandbox.delete() if destroy else self.sandbox.stop()


if __name__ == "__main__":
    serve(Daytona())
