# SPDX-License-Identifier: Apache-2.0
"""What the tests of template boxes share."""
import os

from apilib import descendants, wait_until


def build(server, name="mine", script=None, packages=("hermes-heavy",), key=None, **more):
    body = dict({"language": "python", "name": name, "packages": {"pip": list(packages)}}, **more)
    if script:
        body["setup_script"] = script
    reply = server("POST", "/v1/images", body, key=key)
    assert reply.status in (200, 201), reply.body
    return reply.json()


def is_warm(answer):
    return answer["isolation"]["start"] == "warm"


def run_warm(server, code, seconds=90, **fields):
    """Runs it until the box is a copy of a template, which is started after the first request."""
    answers = []

    def runs():
        answers.append(server.run("python", code, **dict({"image": "mine"}, **fields)).json())
        return is_warm(answers[-1])
    assert wait_until(runs, seconds), answers[-1]
    return answers[-1]


def run_cold(server, code, **fields):
    """A variable that the interpreter reads when it starts keeps it cold."""
    answer = server.run("python", code, image="mine", env={"A": "b", "PYTHONX": "1"}, **fields).json()
    assert answer["isolation"]["start_reason"] == "environment", answer
    return answer


def is_template(pid):
    """Not a copy of one: that has a user namespace of its own."""
    try:
        parent = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[1]
        return b"--template" in command_line(pid) and \
            os.readlink("/proc/%d/ns/user" % pid) == os.readlink("/proc/%s/ns/user" % parent)
    except OSError:
        return False


def templates(server):
    """Processes of interpreters that wait in template boxes."""
    spawner = server.child("hermes-spawn")
    return [pid for pid in descendants(spawner) if is_template(pid)] if spawner else []


def has_template(server):
    return bool(templates(server))


def command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""
