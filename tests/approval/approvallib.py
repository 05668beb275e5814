# SPDX-License-Identifier: Apache-2.0
"""What the tests of approvals share: a server with keys and a directory of the operator, somebody
who listens, and the check of the log."""
import hashlib
import http.client
import json
import socket
import threading

from apilib import Server, sse, wait_until

KEYS = ("[alice]\nkey = alices-secret\n[bob]\nkey = bobs-secret\n[carol]\nkey = carols-secret\n"
        "[boss]\nkey = boss-secret\nrole = operator\n")
ALICE, BOB, CAROL, BOSS = "alices-secret", "bobs-secret", "carols-secret", "boss-secret"
WRITES = "open('/mnt/out/x', 'w').write('hi')\nprint('done')"
MOUNT = [{"name": "out", "path": "/mnt/out", "mode": "rw"}]


def make_approving(path, **env):
    """A server whose directory `out` everybody may write."""
    out = path / "out"
    out.mkdir(exist_ok=True)
    out.chmod(0o777)
    for name, text in (("keys", KEYS), ("conf", "[mount out]\npath = %s\nmode = rw\n" % out)):
        (path / name).write_text(text)
        (path / name).chmod(0o600)
    settings = {"HERMES_KEYS_FILE": str(path / "keys"), "HERMES_APPROVAL_MODE": "manual"}
    settings.update(env)
    return Server(path, args=["--config", str(path / "conf")], env=settings)


class Listener:
    """Somebody who listens on /v1/approvals/events, in a thread of its own."""

    def __init__(self, server, key, after=None):
        self.text = ""
        self.server = server
        self.connection = server.connect()
        headers = {"Authorization": "Bearer " + key}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        self.connection.request("GET", "/v1/approvals/events", headers=headers)
        self.socket = self.connection.sock
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        assert wait_until(lambda: ": listening" in self.text)

    def read(self):
        try:
            while True:
                piece = self.reply.read1(65536)
                if not piece:
                    return
                self.text += piece.decode()
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def events(self):
        return sse(self.text[:self.text.rfind("\n\n") + 2])

    def close(self):
        """Until the server has noticed it, too: it is reachable as long as it listens."""
        before = self.server.metric("hermes_approval_listeners")
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # the thread reads its end
        except OSError:
            pass
        self.thread.join(10)
        self.connection.close()
        assert wait_until(lambda: self.server.metric("hermes_approval_listeners") < before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Later(threading.Thread):
    """A request on a thread of its own."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.reply, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.reply = self.call()
        except Exception as error:  # a server that was killed
            self.error = error

    def result(self, seconds=120):
        self.join(seconds)
        assert not self.is_alive()
        if self.error:
            raise self.error
        return self.reply


def pending(server, key, count=1):
    """Waits until so many approvals are pending, and returns them."""
    def look():
        return server("GET", "/v1/approvals?state=pending", key=key).json()["approvals"]
    assert wait_until(lambda: len(look()) == count), look()
    return look()


def decide(server, key, approval, decision="approve", **more):
    return server("POST", "/v1/approvals/" + approval, dict(decision=decision, **more), key=key)


def read_log(server, key=BOSS):
    rows = []
    while True:
        page = server("GET", "/v1/approvals/log?limit=50&after=%d" % (rows[-1]["seq"] if rows else 0),
                      key=key).json()["log"]
        if not page:
            return rows
        rows += page


def check_log(rows):
    """Every row has its hash, and the hash of the row before."""
    last = "0" * 64
    for number, row in enumerate(rows, 1):
        text = "\n".join([last, str(row["seq"]), str(row["time_ms"]), row["owner"], row["place"],
                          row["approval"], row["event"], row["data"]])
        assert row["seq"] == number and row["prev_hash"] == last
        last = hashlib.sha256(text.encode()).hexdigest()
        assert row["hash"] == last
        json.loads(row["data"])
    return [row["event"] for row in rows]
