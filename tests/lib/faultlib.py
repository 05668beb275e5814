# SPDX-License-Identifier: Apache-2.0
"""Commands that run while a test breaks something, and what their answers may say."""
import json


def begin(server, session, code, **fields):
    """Sends a command whose answer comes later."""
    stream = server.connect(timeout=300)
    stream.request("POST", session.path + "/exec", json.dumps({"code": code, "timeout_ms": 250000, **fields}), {"Content-Type": "application/json"})
    return stream


def end(stream):
    found = json.loads(stream.getresponse().read())
    stream.close()
    return found


def is_lost(found):
    """The answer says that the command's place is gone, and claims no exit code."""
    return found["exit_code"] is None and found["state_lost"] and found["error"]["code"] == "backend_failed" and \
        found["error"]["detail"] == {"kind": "lost"}


def run_in(engine, container, code):
    """What a command prints that another program runs in a container."""
    status, made = engine("POST", "/v1.41/containers/%s/exec" % container, {"AttachStdout": True, "Tty": True, "Cmd": ["sh", "-c", code]})
    assert status == 201, made
    shown = engine("POST", "/v1.41/exec/%s/start" % made["Id"], {"Detach": False, "Tty": True})[1]
    return shown.decode().replace("\r", "") if isinstance(shown, bytes) else str(shown)
