# SPDX-License-Identifier: Apache-2.0
"""`[secret NAME]` in the configuration: what is refused before anything starts, and the example of
docs/secrets.md. What secrets do is in tests/network/."""
import re
import subprocess

import pytest

from apilib import MONITOR, ROOT

VALUE = "sk-0123456789abcdef"
GOOD = {"file": "{dir}/value", "host": "api.example.com", "header": "Authorization", "format": "Bearer {{}}",
        "keys": "alice"}


def start(tmp_path, lines, value=VALUE + "\n", mode=0o600, **settings):
    """The complaints of `hermes serve`; it cannot start, since its state directory is a file."""
    (tmp_path / "value").write_text(value)
    (tmp_path / "value").chmod(mode)
    (tmp_path / "keys").write_text("[alice]\nkey = %s\n" % ("k" * 32))
    (tmp_path / "keys").chmod(0o600)
    text = lines if isinstance(lines, str) else \
        "[secret api]\n" + "".join("%s = %s\n" % (k, v.format(dir=tmp_path)) for k, v in lines.items() if v is not None)
    config = tmp_path / "hermes.conf"
    config.write_text(text)
    config.chmod(0o600)
    (tmp_path / "state").write_text("")
    env = {"PATH": "/usr/bin:/bin", "HERMES_CONFIG": str(config), "HERMES_KEYS_FILE": str(tmp_path / "keys"),
           "HERMES_STATE_DIR": str(tmp_path / "state"), "HERMES_UNIX": str(tmp_path / "api.sock"),
           **{"HERMES_" + k.upper(): v for k, v in settings.items()}}
    done = subprocess.run([MONITOR], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert VALUE not in done.stdout + done.stderr
    return done


def is_fine(done):
    """All settings were accepted: only the state directory stopped it."""
    return done.returncode != 2 and "secret" not in done.stderr


def test_a_good_section_is_accepted(tmp_path):
    assert is_fine(start(tmp_path, GOOD))
    for more in ({"keys": "*"}, {"host": "api.example.com:8443"}, {"format": None}):
        assert is_fine(start(tmp_path, {**GOOD, **more})), more


@pytest.mark.parametrize("change, words", [
    ({"file": None}, "needs `file"), ({"file": "value"}, "begins with /"), ({"file": "{dir}/nowhere"}, "nowhere"),
    ({"host": None}, "needs host"), ({"host": "*.example.com"}, "one name"), ({"host": "192.0.2.7"}, "one name"),
    ({"host": "api.example.com:80-90"}, "one name"), ({"host": "api.example.com:443/udp"}, "one name"),
    ({"host": "a b"}, "NAME:PORT"), ({"host": "intranet.closed.example.com"}, "intranet.closed.example.com"),
    ({"header": None}, "needs host, header"), ({"header": "Host"}, "how a request is read"),
    ({"header": "content-length"}, "how a request is read"), ({"header": "X: y"}, "letters, digits"),
    ({"format": "Bearer"}, "one {}"), ({"format": "{{}}{{}}"}, "one {}"),
    ({"keys": None}, "keys"), ({"keys": "alice, bob"}, "no key named `bob`"),
    ({"trust": "{dir}/value"}, "no certificate"), ({"colour": "red"}, "a secret has file, host"),
])
def test_wrong_lines(tmp_path, change, words):
    done = start(tmp_path, {**GOOD, **change}, network_closed_names="closed.example.com")
    assert done.returncode == 2 and words in done.stderr and "secret api" in done.stderr, done.stderr


@pytest.mark.parametrize("value, mode, words", [
    ("short", 0o600, "16 to 4096"), ("x" * 5000, 0o600, ""), (VALUE, 0o604, "every user can read"),
    (VALUE, 0o602, ""), (VALUE + "\nsecond", 0o600, "one line"), (" " + VALUE, 0o600, "space"), ("", 0o600, "16 to 4096"),
    ("caf\u00e9-0123456789", 0o600, "printable"),
])
def test_wrong_values(tmp_path, value, mode, words):
    done = start(tmp_path, GOOD, value, mode)
    assert done.returncode == 2 and words in done.stderr and "secret api" in done.stderr, done.stderr


def test_a_host_outside_the_ceiling(tmp_path):
    for settings in ({"network_max": "none"}, {"network_max": "allow", "network_allowed": "other.example.com"}):
        done = start(tmp_path, GOOD, **settings)
        assert done.returncode == 2 and "secret api" in done.stderr, done.stderr


def test_too_many_secrets_and_bad_names(tmp_path):
    text = "".join("[secret s%d]\nhost = a.example.com\n" % i for i in range(33))
    assert "more than 32" in start(tmp_path, text).stderr
    assert "name of a secret" in start(tmp_path, "[secret a b]\nhost = a.example.com\n").stderr


def test_the_example_of_the_page(tmp_path):
    page = (ROOT / "docs/secrets.md").read_text()
    text = re.search(r"```ini\n(.*?)```", page, re.S).group(1)
    text = re.sub(r" +#.*", "", text).replace("/etc/hermes/secrets/github", "%s/value" % tmp_path)
    assert is_fine(start(tmp_path, text.replace("ci, alice", "alice")))
