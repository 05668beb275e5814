# SPDX-License-Identifier: Apache-2.0
"""Sessions on backends against what others do for each command: an exec of the engine, an ssh command over one connection."""
import pathlib
import subprocess
import tempfile
import time

import enginelib
import farlib
from over_http import Kept, Serving
from placelib import allow_commands, engine_row


def clock(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def request(server, method, path, body=None, status=200):
    reply = server(method, path, body)
    if reply.status != status:
        raise RuntimeError(repr(reply))
    return reply.json() if status != 204 else None


class Live:
    """A session that stays, and its commands over a connection that is kept."""

    def __init__(self, server, backend):
        self.server, self.kept = server, Kept(server)
        self.id = request(server, "POST", "/v1/sessions", {"language": "bash", "backend": backend}, 201)["id"]

    def true(self):
        taken, answer = self.kept.post(b'{"code": "/bin/true"}', "/v1/sessions/%s/exec" % self.id)
        if answer["exit_code"] != 0:
            raise RuntimeError(repr(answer))
        return taken

    def close(self):
        self.kept.close()
        self.server("DELETE", "/v1/sessions/" + self.id)


def engine_exec(engine, container):
    """The command that users would run."""
    subprocess.run(["docker", "-H", "unix://%s" % engine.socket, "exec", container, "/bin/true"], env=engine.env, check=True)


def engine_run(engine):
    """What `docker run --rm IMAGE true` does, over the API."""
    made = engine("POST", "/v1.41/containers/create", {"Image": enginelib.IMAGE, "Cmd": ["/bin/true"],
                                                       "HostConfig": {"NetworkMode": "none", "Init": True}})[1]["Id"]
    engine("POST", "/v1.41/containers/%s/start" % made)
    engine("POST", "/v1.41/containers/%s/wait" % made)
    engine("DELETE", "/v1.41/containers/%s?force=1" % made)


def session(server, backend):
    made = Live(server, backend)
    made.close()


def serving(settings):
    folder = tempfile.NamedTemporaryFile("w", suffix=".conf", dir="/var/tmp", delete=False)
    folder.write(settings)
    folder.close()
    pathlib.Path(folder.name).chmod(0o644)
    return Serving(HERMES_BACKENDS=folder.name, HERMES_BACKENDS_USER="nobody"), folder.name


def docker_places(bench):
    """`true` in a container through a live session against `docker exec`; a new session against `docker run`."""
    from run import NotMeasured, interleave, row
    if problem := enginelib.problem("docker"):
        raise NotMeasured(problem)
    engine = enginelib.Docker()
    try:
        engine.start()
        engine.load()
        world, path = serving(engine_row("box", engine) + engine_row("once", engine, container_persistent="no"))
        with world as server:
            live = Live(server, "box")
            container = engine.containers()[0]["Id"]
            yield row("docker: true", *interleave(bench.rounds, live.true, lambda: clock(lambda: engine_exec(engine, container))), 0.1)
            yield row("docker: session, kept", *interleave(bench.rounds, lambda: clock(lambda: session(server, "box")),
                                                           lambda: clock(lambda: engine_run(engine))), 1.0)
            yield row("docker: session, its own", *interleave(max(3, bench.rounds // 4), lambda: clock(lambda: session(server, "once")),
                                                              lambda: clock(lambda: engine_run(engine))), 2.0)
            live.close()
        pathlib.Path(path).unlink()
    finally:
        engine.close()


def ssh_places(bench):
    """`true` over ssh through a live session against a command over ControlMaster; a new session against a new connection."""
    from run import NotMeasured, interleave, row
    if problem := farlib.sshd_problem():
        raise NotMeasured(problem)
    sshd = farlib.Sshd(bare_home=True)
    try:
        sshd.dir.chmod(0o755)
        (sshd.dir / "user").chmod(0o600)
        key = sshd.dir / "user-of-reach"
        key.write_bytes((sshd.dir / "user").read_bytes())
        key.chmod(0o644)
        master = ["-o", "ControlMaster=auto", "-o", "ControlPath=%s/master" % sshd.dir, "-o", "ControlPersist=60"]

        def command(options):
            words = sshd.ssh("/bin/true")
            words[1:1] = options
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        world, path = serving("[backend far]\nkind = ssh\nkeys = *\nhost = 127.0.0.1\nport = %d\nuser = %s\nkey_file = %s\nknown_hosts = %s\n"
                              % (sshd.port, sshd.user, key, sshd.known))
        with world as server:
            allow_commands(server, "far")
            live = Live(server, "far")
            yield row("ssh: true", *interleave(bench.rounds, live.true, lambda: clock(lambda: command(master))), 0.3)
            yield row("ssh: session", *interleave(bench.rounds, lambda: clock(lambda: session(server, "far")), lambda: clock(lambda: command([]))), 2.0)
            live.close()
        pathlib.Path(path).unlink()
    finally:
        sshd.close()
