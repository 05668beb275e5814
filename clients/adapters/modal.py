#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of Modal as a backend (docs/backends.md). Needs the package `modal`.

A place that is kept is a snapshot of its files between sessions; modal_snapshots.json has its id.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Beside this file lies a program of the same name as the package; a script's directory comes first.
sys.path[:] = [entry for entry in sys.path if pathlib.Path(entry or ".").resolve() != HERE]
import modal  # noqa: E402
import modal.exception as wrong  # noqa: E402
from modal.stream_type import StreamType  # noqa: E402
sys.path.append(str(HERE))
from hermes_plugin import Error, Plugin, serve  # noqa: E402

APP = os.environ.get("HERMES_MODAL_APP", "hermes-agent")
SNAPSHOTS = pathlib.Path(os.environ.get("HERMES_MODAL_SNAPSHOTS", "~/.hermes/modal_snapshots.json")).expanduser()
SNAPSHOT_S = 60
CREDENTIALS = "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET of the plug-in's env_file, or ~/.modal.toml"


@contextlib.contextmanager
def vendor():
    """Errors of the SDK become those of the protocol."""
    try:
        yield
    except (wrong.AuthError, wrong.PermissionDeniedError) as error:
        raise Error("auth", "%s (%s)" % (error, CREDENTIALS)) from error
    except wrong.NotFoundError as error:
        raise Error("not_found", str(error)) from error
    except (wrong.ConnectionError, wrong.ServiceError, wrong.InternalError, wrong.TimeoutError, OSError) as error:
        raise Error("unreachable", "Modal does not answer: %s" % error) from error
    except (wrong.SandboxTerminatedError, wrong.SandboxTimeoutError) as error:
        raise Error("lost", str(error)) from error
    except wrong.Error as error:
        raise Error("refused", str(error)) from error


class Snapshots:
    """{"direct:NAME": image id, "config:NAME": hash}: written whole or not at all."""

    @staticmethod
    @contextlib.contextmanager
    def changed():
        SNAPSHOTS.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(str(SNAPSHOTS) + ".lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = Snapshots.read()
            yield records
            new = SNAPSHOTS.with_suffix(".new")
            new.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
            new.chmod(0o600)
            new.replace(SNAPSHOTS)

    @staticmethod
    def read():
        try:
            records = json.loads(SNAPSHOTS.read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise Error("refused", "%s is no JSON: %s" % (SNAPSHOTS, error)) from error
        if not isinstance(records, dict):
            raise Error("refused", "%s is no object of JSON" % SNAPSHOTS)
        return records

    @staticmethod
    def find(name, config):
        records = Snapshots.read()
        found, made_from = records.get("direct:" + name), records.get("config:" + name)
        if found and made_from and made_from != config:
            raise Error("refused", "the snapshot %s of %s was made with other settings (%.12s, now %.12s); to begin anew, "
                        "remove its lines from %s" % (found, name, made_from, config, SNAPSHOTS))
        return found

    @staticmethod
    def set(name, image, config):
        with Snapshots.changed() as records:
            if image:
                records.update({"direct:" + name: image, "config:" + name: config})
            else:
                records.pop("direct:" + name, None)
                records.pop("config:" + name, None)


class Stream:
    def __init__(self, process):
        self.process = process
        self.pieces = iter(process.stdout)

    def read(self):
        return next((piece for piece in self.pieces if piece), b"")

    def write(self, data):
        for at in range(0, len(data), 1 << 18):
            self.process.stdin.write(data[at:at + (1 << 18)])
            self.process.stdin.drain()

    def eof(self):
        self.process.stdin.write_eof()
        self.process.stdin.drain()

    def wait(self):
        return self.process.wait()


class Modal(Plugin):
    name = "modal"
    isolation = "gvisor"
    limits = {"cpu": "enforced", "memory": "enforced", "network": "enforced", "disk": "none", "pids": "none"}

    def __init__(self):
        self.request = self.sandbox = None

    def find(self):
        """The sandbox that runs under this name, or None."""
        try:
            sandbox = modal.Sandbox.from_name(APP, self.request["name"])
            return sandbox if sandbox.poll() is None else None
        except wrong.NotFoundError:
            return None

    def make(self):
        request = self.request
        snapshot = Snapshots.find(request["name"], request["config_hash"]) if request["keep"] else None
        image = modal.Image.from_id(snapshot) if snapshot else \
            modal.Image.from_id(request["image"]) if request["image"].startswith("im-") else modal.Image.from_registry(request["image"])
        limits = {}
        if request["cpu"]:
            limits["cpu"] = (min(request["cpu"], 0.125), request["cpu"])
        if request["memory_mb"]:
            limits["memory"] = (min(request["memory_mb"], 128), request["memory_mb"])
        app = modal.App.lookup(APP, create_if_missing=True)
        try:
            return modal.Sandbox.create("sleep", "infinity", app=app, image=image, name=request["name"], timeout=request["lifetime_s"],
                                        block_network=not request["network"], tags={"hermes-config": request["config_hash"]}, **limits)
        except wrong.NotFoundError as error:
            if not snapshot:
                raise
            raise Error("lost", "the snapshot %s of %s is gone (%s); to begin anew, remove its lines from %s"
                        % (snapshot, request["name"], error, SNAPSHOTS)) from error

    def open(self, request):
        self.request = request
        with vendor():
            self.sandbox = self.find()
            if self.sandbox:
                found = self.sandbox.get_tags().get("hermes-config")
                if found != request["config_hash"]:
                    raise Error("refused", "the sandbox %s runs with other settings (%.12s, now %.12s); end it, or wait for its end"
                                % (request["name"], found, request["config_hash"]))
                return self.sandbox.object_id, True
            if request["again"]:
                raise Error("lost", "the sandbox %s has ended, and the session's state with it" % request["name"])
            self.sandbox = self.make()
            return self.sandbox.object_id, False

    def stream(self, argv):
        with vendor():
            return Stream(self.sandbox.exec(*argv, text=False, stderr=StreamType.DEVNULL))

    def close(self, destroy):
        with vendor():
            if destroy:
                Snapshots.set(self.request["name"], None, None)
            else:  # before anything ends: what was not written down is kept running
                image = self.sandbox.snapshot_filesystem(timeout=SNAPSHOT_S)
                Snapshots.set(self.request["name"], image.object_id, self.request["config_hash"])
            self.sandbox.terminate()


if __name__ == "__main__":
    serve(Modal())
