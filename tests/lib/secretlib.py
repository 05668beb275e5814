# SPDX-License-Identifier: Apache-2.0
"""A server with secrets in the world of netlib.py."""
import contextlib
import os
import shutil

from apilib import MONITOR, Server, make_dir
from netlib import Boxes
from serving import assert_idle, serve
from vault import OTHER_VALUE, VALUE

URL = "https://ok.example.com/vault/open"
OPEN = "open\n"
KEY, FOREIGN = "a" * 16, "b" * 16

CONFIG = """
[secret api]
file = {dir}/secret.api
host = ok.example.com
header = Authorization
format = Bearer {{}}
keys = api-key-1
trust = {dir}/ca.pem

[secret twin]
file = {dir}/secret.other
host = ok.example.com:443
header = authorization
keys = *
trust = {dir}/ca.pem

[secret port]
file = {dir}/secret.api
host = ok.example.com:8443
header = X-Api-Key
keys = api-key-1
trust = {dir}/ca.pem

[secret raw]
file = {dir}/secret.api
host = ok.example.com:8444
header = X-Api-Key
keys = api-key-1
trust = {dir}/ca.pem

[secret strange]
file = {dir}/secret.api
host = v4.example.com:443
header = X-Api-Key
keys = api-key-1
"""


class KeyBoxes(Boxes):
    """Boxes of the key that may use the secrets."""

    def ask(self, network, language, code, **fields):
        limits = {"wall_ms": 60000, "cpu_ms": 30000, **fields.pop("limits", {})}
        files = [{"name": "ca.pem", "content": self.world.authority()}, *fields.pop("files", [])]
        body = {"language": language, "code": code, "network": network, "limits": limits, "files": files, **fields}
        return self.server("POST", "/v1/runs", body, key=KEY)


def write_config(world, uid, text=CONFIG):
    for name, value in (("api", VALUE), ("other", OTHER_VALUE)):
        path = world.dir / ("secret." + name)
        path.write_text(value + "\n")
        path.chmod(0o600)
        os.chown(path, uid, uid)
    config = world.dir / "secrets.conf"
    config.write_text(text.format(dir=world.dir))
    os.chown(config, uid, uid)
    return config


@contextlib.contextmanager
def secret_server(world, prefix=(), uid=0, before=None, **settings):
    """A server that `prefix` starts in the world, of this user."""
    env = dict(HERMES_CONFIG=str(write_config(world, uid)), HERMES_API_KEYS="%s,%s" % (KEY, FOREIGN),
               HERMES_SESSION_PARKED="0", HERMES_QUEUE_WAIT_S="120",
               **{"HERMES_" + name.upper(): str(value) for name, value in settings.items()})
    how = dict(command=[*world.host.enter(), *prefix, MONITOR], tcp=False, env=env, before=before)
    if uid == 0:
        yield from ready(serve(**how), world)
        return
    work = make_dir()
    os.chown(work, uid, uid)
    try:
        server = Server(work, **how)
        try:
            yield KeyBoxes(server, world)
            assert_idle(server)
        finally:
            assert server.stop() == 0
    finally:
        shutil.rmtree(work)


def ready(servers, world):
    server = next(servers)
    try:
        yield KeyBoxes(server, world)
        assert_idle(server)
    finally:
        for _ in servers:
            pass


def arrived(world):
    """What came to the vault since the test began, or since world.forget()."""
    return world.arrived(world.seen["world"], kind="vault")
