# SPDX-License-Identifier: Apache-2.0
"""`hermes serve --backends config.yaml`: the section `terminal:` that users of the agent have."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

import apilib
import placelib
from apilib import ROOT
from farlib import BUILD

KEYS = 'hermes_keys: ["*"]'


def started(tmp_path, text, mode=0o644):
    """Starts a server that is expected to refuse the file; returns what it says."""
    file = tmp_path / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(mode)
    found = subprocess.run([str(BUILD / "hermes"), "serve", "--backends", str(file), "--backends-user", "nobody", "--max-timeout", "x",
                            "--unix", str(tmp_path / "s"), "--state-dir", str(tmp_path / "state")],
                           capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert found.returncode == 2, found
    return found.stderr


def test_a_file_of_the_agents_makes_backends(tmp_path):
    work = apilib.borrow_dir()
    cwd = pathlib.Path(tempfile.mkdtemp(prefix="hermes-yaml-"))
    cwd.chmod(0o777)
    (work / "config.yaml").write_text("""
model: {default: some/model, nested: [1, {a: [b]}]}
terminal:
  backend: local
  cwd: %s
  timeout: 180
  persistent_shell: true
  hermes_keys:
    - "*"
  ssh_host: 127.0.0.1
  ssh_user: somebody
  ssh_port: 1
  singularity_image: /images/x.sif
  container_memory: 64
  not_a_key: {x: y}
agent: {}
""" % cwd)
    server = apilib.Server(work, args=["--backends", str(work / "config.yaml")] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    try:
        rows = {row["name"]: row["kind"] for row in server("GET", "/v1/backends").json()["backends"]}
        assert rows == {"native": "native", "local": "local", "ssh": "ssh", "singularity": "apptainer"}
        made = server("POST", "/v1/sessions", {"language": "bash", "backend": "local"}).json()
        assert made["cwd"] == str(cwd)
        reply = server("POST", "/v1/sessions", {"language": "bash", "backend": "ssh"})
        assert reply.status == 502 and reply.json()["error"]["detail"] == {"kind": "unreachable"}
        log = server.log_path.read_text()
        assert "terminal.not_a_key is not known" in log and "terminal.timeout has no meaning" in log and "agent" not in re.findall(r"terminal\.\w+", log)
    finally:
        server.stop()
        apilib.return_dir(work)
        cwd.rmdir()


def test_words_of_yaml_are_what_the_agent_takes_them_for(tmp_path):
    """True and No are truth values in any case; `key:`, null and ~ are no value. The control: a text in quotes is one."""
    work = apilib.borrow_dir()
    (work / "config.yaml").write_text("""
terminal:
  backend: local
  persistent_shell: False
  docker_network: No
  docker_mount_cwd_to_workspace: OFF
  container_persistent: True
  ssh_host: ~
  singularity_image: Null
  docker_image:
  docker_volumes:
  modal_image: "null"
  modal_command: /bin/true
  cwd: null
  hermes_keys: ["*"]
""")
    server = apilib.Server(work, args=["--backends", str(work / "config.yaml")] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    try:
        assert {row["name"] for row in server("GET", "/v1/backends").json()["backends"]} == {"native", "local", "modal"}
        placelib.allow_commands(server, "local")
        with placelib.Session(server, "local") as s:
            s.exec("x=5")
            assert s.out("echo [$x]") == "[]\n"
    finally:
        server.stop()
        apilib.return_dir(work)


@pytest.mark.parametrize("vendor", ["modal", "daytona"])
def test_a_sandbox_of_a_vendor_counts_as_a_box(vendor):
    """Nobody is asked about its commands. The adapter must declare that the place is isolated."""
    work = apilib.borrow_dir()
    plug = pathlib.Path(tempfile.mkdtemp(prefix="hermes-plug-"))
    plug.chmod(0o777)
    for source in ("tests/backends/scripted.py", "clients/adapters/hermes_plugin.py"):
        shutil.copy(ROOT / source, plug)
    (plug / "mode").write_text("")
    (work / "config.yaml").write_text("""
terminal:
  backend: %s
  %s_command: /usr/bin/python3 %s/scripted.py %s
  hermes_keys: ["*"]
""" % (vendor, vendor, plug, plug))
    server = apilib.Server(work, args=["--backends", str(work / "config.yaml")] + (["--backends-user", "nobody"] if os.geteuid() == 0 else []))
    try:
        with placelib.Session(server, vendor) as s:
            assert s.out("echo $((6*7))") == "42\n"
        (plug / "mode").write_text("bare")
        refused = server("POST", "/v1/sessions", {"language": "bash", "backend": vendor})
        assert refused.status == 502 and "declares no isolation" in refused.json()["error"]["message"], refused
    finally:
        server.stop()
        apilib.return_dir(work)
        shutil.rmtree(plug)


@pytest.mark.parametrize("text,problem", [
    ("", "one of them `terminal`"),
    ("- a\n", "one of them `terminal`"),
    ("terminal: local\n", "`terminal` has keys and values"),
    ("terminal: {backend: local}\n", "hermes_keys is missing"),
    ("terminal: {backend: telnet, %s}\n" % KEYS, "backend is local, ssh, docker"),
    ("terminal: {backend: [local]}\n", "backend is one value"),
    ("terminal: {backend: local, backend: ssh}\n", "backend is there twice"),
    ("terminal: {}\nterminal: {}\n", "terminal is there twice"),
    ("terminal: {backend: local, hermes_keys: me}\n", "hermes_keys is a list"),
    ("terminal: {backend: local, hermes_keys: [[me]]}\n", "hermes_keys is a list of texts"),
    ("terminal: {backend: ssh, ssh_host: -oProxyCommand=id, %s}\n" % KEYS, "ssh_host: this is not a valid name"),
    ("terminal: {backend: ssh, ssh_port: 70000, %s}\n" % KEYS, "ssh_port: port is a number"),
    ("terminal: {backend: docker, docker_mount_cwd_to_workspace: true, %s}\n" % KEYS, "docker_mount_cwd_to_workspace: a server cannot use the directory"),
    ("terminal: {backend: local, persistent_shell: perhaps, %s}\n" % KEYS, "persistent_shell: this is yes or no"),
    ("terminal: {backend: modal, %s}\n" % KEYS, "modal_command is missing"),
    ("terminal: {backend: ssh, %s}\n" % KEYS, "ssh_host is missing"),
    ("terminal: {backend: ssh, ssh_host: ~, %s}\n" % KEYS, "ssh_host is missing"),
    ("terminal: {backend: local, hermes_keys: }\n", "hermes_keys is missing"),
    ("a: &a [x]\nterminal: *a\n", "aliases are not used here"),
    ("a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\n", "aliases are not used here"),
    ("a: " + "[" * 500 + "\n", "nested deeper than 16 levels"),
    ("a: [" + "x," * 30000 + "]\n", "more than 20000 values"),
    ("terminal: {cwd: \"" + "x" * 5000 + "\"}\n", "one line of at most 4096 bytes"),
    ("terminal: {cwd: \"a\\0b\"}\n", "one line of at most 4096 bytes"),
    ("terminal: {}\n---\nterminal: {}\n", "more than one document"),
    ("terminal: {", "this is not YAML"),
    (b"terminal: {cwd: \xff\xfe}\n", "this is not YAML"),
    ("a: \"" + "x" * 300000 + "\"\n", "more than 256 KiB"),
], ids=lambda value: repr(value[:24]))
def test_hostile_and_wrong_files_get_a_clear_error(tmp_path, text, problem):
    said = started(tmp_path, text)
    assert problem in said and "\x1b" not in said, said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file of another user")
def test_a_file_that_others_can_write_is_refused(tmp_path):
    text = "terminal: {backend: local, %s}\n" % KEYS
    assert "config.yaml" not in started(tmp_path, text)  # the control: only the other wrong setting is named
    assert "config.yaml" in started(tmp_path, text, 0o666)
    file = tmp_path / "config.yaml"
    file.chmod(0o644)
    os.chown(file, 65534, 65534)
    found = subprocess.run([str(BUILD / "hermes"), "serve", "--backends", str(file), "--unix", str(tmp_path / "s"), "--state-dir", str(tmp_path / "x")],
                           capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert found.returncode == 2 and "config.yaml" in found.stderr


def test_every_key_is_in_the_table_of_the_page():
    source = (ROOT / "src/state/terminal_config.c").read_text()
    page = (ROOT / "docs/backends.md").read_text()
    keys = re.findall(r'^    \{"(\w+)", [A-Z_]+, ', source, re.M)
    assert len(keys) > 35
    for key in keys:
        assert "`%s`" % key in page, key
