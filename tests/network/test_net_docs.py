# SPDX-License-Identifier: Apache-2.0
"""docs/network.md: its examples are run in the world of the tests, whose hosts stand in for those of the page."""
import json
import os
import re
import shlex
import subprocess

from apilib import BUILD, ROOT, make_dir
from netlib import CLOSED, OK4

TEXT = (ROOT / "docs/network.md").read_text()
# Hosts of the page and of the world. The page has documentation ranges, which are closed.
HOSTS = {"api.example.com": "v4.example.com", "203.0.113.0/24": "45.33.32.0/24"}
GET = "import urllib.request\nprint(urllib.request.urlopen('http://v4.example.com/').read().decode().strip())\n"


def test_every_example_works(server, world):
    path = make_dir()
    os.mkdir(path / "problem")
    for name, text in {"get.py": GET, "solution.py": GET, "problem/1.in": "", "problem/1.ans": "hello from " + OK4}.items():
        (path / name).write_text(text)
    env = {"PATH": "%s:/usr/bin:/bin" % BUILD, "HOME": "/root", "HERMES_STATE_DIR": str(path / "state"),
           "HERMES_RUNTIMES": str(ROOT / "runtimes"), "LC_ALL": "C.UTF-8", "HERMES_UNIX": str(server.unix)}
    examples = re.search(r"## Examples\n\n```sh\n(.*?)```", TEXT, re.S)[1].splitlines()
    assert len(examples) == 6
    session = None
    for line in examples:
        for ours, theirs in {**HOSTS, "ses_…": session}.items():
            line = line.replace(ours, theirs or ours)
        words = [*world.host.enter(), "--wd=" + str(path), *shlex.split(line)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (line, done)
        if " run " in line:
            assert done.stdout == "hello from %s\n" % OK4, (line, done)
        if " judge " in line:
            assert done.stdout.endswith("accepted, 1 of 1 points\n"), done
        session = done.stdout.strip() if " new " in line else session
    assert server("GET", "/v1/sessions/" + session).json()["network"] == "none"


def test_every_form_of_an_entry_is_read(box):
    """Each target of the page's table with each form of ports: allowed, or refused because it is closed."""
    row = re.search(r"\| TARGET \|(.*)\|", TEXT)[1]
    targets = re.findall(r"`([^`]+)`", row)
    ports = re.findall(r"`([^`]+)`", re.search(r"\| PORTS \|(.*)\|", TEXT)[1])
    assert len(targets) == 6 and len(ports) == 3
    for target in targets:
        for entry in [target, target + "/udp", *(target + ":" + port for port in ports)]:
            reply = box.ask({"allow": [entry]}, "bash", "echo $((6 * 7))")
            is_closed = re.match(r"192\.0\.2|203\.0\.113|\[2001:db8", target)
            assert reply.status == (403 if is_closed else 200), (entry, reply)
    assert box.ask({"allow": ["not an entry"]}, "bash", "true").status == 400


def test_the_answer_has_the_fields_of_the_page(box):
    shown = json.loads(re.search(r"```json\n(.*?)```", TEXT, re.S)[1].replace(",…}", "}"))["network"]
    _, record = box.probe({"allow": ["v4.example.com"]}, ["tcp", "v4.example.com", 80], ["connect", "10.9.0.5", 80])
    assert record.keys() == shown.keys()
    for rows in ("allowed", "denied"):
        assert record[rows][0].keys() == shown[rows][0].keys()


def test_reasons_and_ranges_are_named(box):
    """The classes that the world's closed hosts have are in the page."""
    for word in ("private", "shared", "link-local", "metadata", "documentation", "benchmarking", "multicast", "reserved", "6to4"):
        assert word in TEXT, word
    for address in ("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"):
        assert address in CLOSED and address in TEXT
