# SPDX-License-Identifier: Apache-2.0
"""A session of a server under test, and its events."""
import json
import re
import threading

import pytest

import contract
from apilib import SLOW
from machine import lacks_for_copies


class Session:
    def __init__(self, server, language="python", key=None, **fields):
        self.server, self.key = server, key
        reply = server("POST", "/v1/sessions", dict(language=language, **fields), key=key)
        assert reply.status == 201, reply
        self.made = reply.json()
        self.id = self.made["id"]

    def call(self, method, path="", body=None, headers=None, key=None, **kwargs):
        return self.server(method, "/v1/sessions/%s%s" % (self.id, path), body, headers,
                           key=key or self.key, **kwargs)

    def post(self, code, **fields):
        """The reply to an exec, whatever it is."""
        return self.call("POST", "/exec", dict(code=code, **fields))

    def exec(self, code, **fields):
        reply = self.post(code, **fields)
        assert reply.status == 200, reply
        return reply.json()

    def out(self, code, **fields):
        """What it prints; it has to succeed."""
        answer = self.exec(code, **fields)
        assert answer["status"] == "ok", answer
        return answer["stdout"]

    def state(self):
        return self.call("GET").json()

    def delete(self):
        return self.call("DELETE")

    def stream(self, code, on_event=None, **fields):
        """Events of a streamed exec as (name, data); on_event sees each as it comes."""
        conn = self.server.connect()
        headers = {"Accept": "text/event-stream", "Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        conn.request("POST", "/v1/sessions/%s/exec" % self.id,
                     json.dumps(dict(code=code, **fields)), headers)
        answer = conn.getresponse()
        if answer.status != 200:
            raise AssertionError((answer.status, answer.read()))
        found = []
        text = b""
        while True:
            line = answer.readline()
            if not line:
                break
            text += line
            if line == b"\n":
                fields = dict(re.findall(r"^(id|event|data): (.*)$", text.decode(), re.M))
                text = b""
                if "event" in fields:
                    event = fields["event"], json.loads(fields["data"])
                    found.append(event)
                    contract.check_event(int(fields["id"]), *event)
                    if on_event:
                        on_event(*event)
        conn.close()
        return found

    def begin(self, code, **fields):
        """Starts code, which must print, on a thread. Returns when the code runs: it has printed. result() waits for its answer."""
        has_printed = threading.Event()
        late = Later(lambda: self.stream(code, lambda name, _: name == "stdout" and has_printed.set(), **fields)[-1][1])
        assert has_printed.wait(20 * SLOW), "the code printed nothing"
        return late

    def later(self, code, **fields):
        """The same as post() on a thread; result() waits for the reply."""
        return Later(lambda: self.post(code, **fields))


class Later:
    def __init__(self, work):
        self.reply = None
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()

    def run(self, work):
        self.reply = work()

    def result(self):
        self.thread.join(60 * SLOW)
        assert self.reply is not None, "no reply"
        return self.reply


def attach(original, made):
    """A session of the answer to a fork."""
    session = Session.__new__(Session)
    session.server, session.key, session.made, session.id = original.server, original.key, made, made["id"]
    return session


def ask_copy(session, path="/fork", body=None):
    """The reply to a request for a copy of a live session. The test is skipped where this host lacks what that takes and
    the server says so; a server that says so elsewhere fails it."""
    reply = session.call("POST", path, body)
    if reply.status == 501 and lacks_for_copies():
        pytest.skip(reply.json()["error"]["message"])
    return reply


def fork(session, count=None):
    """A copy of it, or so many."""
    reply = ask_copy(session, body=None if count is None else {"count": count})
    assert reply.status == 201, reply
    answer = reply.json()
    assert answer["memory"] == "copied" and answer["outlives_parent"] is True
    copies = [attach(session, made) for made in answer["sessions"]]
    assert len(copies) == (count or 1)
    assert all(copy.made["parent"] == session.id and copy.made["state"] == "idle" for copy in copies)
    return copies if count else copies[0]
