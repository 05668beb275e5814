# SPDX-License-Identifier: Apache-2.0
"""A real dockerd or Podman service, with directories of its own and without networks, and an image that needs no
registry. The programs are those of the machine, or those that tools/install-deps.sh has unpacked into build-tools."""
import glob
import http.client
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import urllib.parse

import apilib
from farlib import ROOT, wait_until

UNPACKED = pathlib.Path(os.environ.get("HERMES_ENGINE_TOOLS", ROOT / "build-tools/engines"))
PATH = ":".join([str(UNPACKED / part) for part in ("usr/sbin", "usr/bin", "sbin", "bin")] + ["/usr/sbin:/usr/bin:/sbin:/bin"])
IMAGE = "hermes-test:latest"
REAPER = pathlib.Path(__file__).with_name("reaper.py")


def program(name):
    return shutil.which(name, path=PATH)


def problem(kind):
    """Why this engine cannot be started here, or None."""
    if os.geteuid() != 0:
        return "a dockerd of one's own needs root"
    docker = ("dockerd", "containerd", "runc", "tini-static")
    wanted = {"docker": docker, "runsc": docker + ("runsc",), "podman": ("podman", "conmon", "runc", "catatonit")}
    for name in wanted[kind] + ("busybox", "bash-static"):
        if not program(name):
            return "%s is not there: tools/install-deps.sh engines" % name
    return None


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def add_file(tar, name, data, mode=0o755):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def image_tar(files=(), bash=True):
    """A root file system: busybox, bash, and what the caller adds or replaces: {name: bytes}."""
    files = dict(files)
    busybox = pathlib.Path(program("busybox")).read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("bin", "etc", "root", "tmp", "var", "var/tmp", "run", "usr", "usr/bin", "home"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(entry)
        add_file(tar, "bin/busybox", busybox)
        add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home:/bin/bash\n", 0o644)
        if bash:
            add_file(tar, "bin/bash", pathlib.Path(program("bash-static")).read_bytes())
        listed = subprocess.run([program("busybox"), "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in listed:
            if name not in ("busybox", "bash") and "bin/" + name not in files:
                entry = tarfile.TarInfo("bin/" + name)
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
        for name, data in files.items():
            add_file(tar, name, data)
    return out.getvalue()


class Engine:
    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hermes-engine-", dir="/var/tmp"))
        self.dir.chmod(0o755)
        self.socket = self.dir / "engine.sock"
        self.pid, self.reapers = None, []
        self.env = {"PATH": PATH, "HOME": str(self.dir), "TMPDIR": str(self.dir),
                    "LD_LIBRARY_PATH": ":".join(glob.glob(str(UNPACKED / "usr/lib/*-linux-gnu")))}

    def start(self):
        with open(self.dir / "log", "ab") as log:
            reaper = subprocess.Popen(["/usr/bin/python3", REAPER], cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=log)
        self.reapers.append(reaper)
        reaper.stdin.write(json.dumps({"argv": self.argv(), "env": self.env}).encode() + b"\n")
        reaper.stdin.flush()
        self.pid = int(reaper.stdout.readline())
        wait_until(lambda: self.is_up() or not self.runs(), "the engine answers", 120)
        assert self.runs(), (self.dir / "log").read_text()[-2000:]
        self.socket.chmod(0o666)
        return self

    def runs(self):
        return self.pid and os.path.exists("/proc/%d" % self.pid)

    def is_up(self):
        try:
            return self("GET", "/_ping", timeout=5)[0] == 200
        except OSError:
            return False

    def __call__(self, method, path, body=None, timeout=60, raw=None):
        connection = Connection(self.socket, timeout)
        try:
            data = raw if raw is not None else json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/x-tar" if raw else "application/json"})
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        try:
            return reply.status, json.loads(text)
        except ValueError:
            return reply.status, text

    def load(self, name=IMAGE, tar=None):
        repo, tag = name.split(":")
        status, answer = self("POST", "/images/create?fromSrc=-&repo=%s&tag=%s" % (repo, tag), raw=tar or image_tar())
        assert status == 200, answer

    def containers(self, label="hermes=1"):
        filters = urllib.parse.quote(json.dumps({"label": [label]}))
        return self("GET", "/v1.41/containers/json?all=1&filters=" + filters)[1] or []

    def inspect(self, container):
        return self("GET", "/v1.41/containers/%s/json" % container)[1]

    def processes(self):
        """Processes that this engine has started outside of containers, found by its directory."""
        found = []
        for pid in os.listdir("/proc"):
            try:
                if pid.isdigit() and int(pid) != os.getpid() and \
                        str(self.dir).encode() in pathlib.Path("/proc", pid, "cmdline").read_bytes():
                    found.append(int(pid))
            except OSError:
                pass
        return found

    def mounts(self):
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        return sorted((line.split()[4] for line in lines if line.split()[4].startswith(str(self.dir) + "/")), reverse=True)

    def close(self):
        if self.runs():
            for one in self("GET", "/v1.41/containers/json?all=1")[1] or []:
                self("DELETE", "/v1.41/containers/%s?force=1&v=1" % one["Id"])
            os.kill(self.pid, signal.SIGTERM)
            apilib.wait_until(lambda: not self.runs())
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_until(lambda: not self.processes() and not self.runs(), "the engine's processes end")
        for reaper in self.reapers:
            reaper.stdin.close()
            reaper.stdout.close()
            reaper.wait()
        for path in self.mounts():
            subprocess.run(["umount", "-l", path], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
        for path in glob.glob("/sys/fs/cgroup/*/" + self.group) + glob.glob("/sys/fs/cgroup/" + self.group):
            for folder, _, _ in os.walk(path, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # another engine of this machine uses it


class Docker(Engine):
    kind, group = "docker", "docker"

    def __init__(self, live_restore=False, storage_mb=0):
        """`storage_mb`: images and containers are in a file system of their own, of this size."""
        super().__init__()
        self.live_restore = live_restore
        self.data = self.dir / "data"
        self.data.mkdir()
        if storage_mb:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dm" % storage_mb, "hermes-engine", self.data], check=True)

    def argv(self):
        return [program("dockerd"), "--host", "unix://%s" % self.socket, "--data-root", str(self.data),
                "--exec-root", str(self.dir / "exec"), "--pidfile", str(self.dir / "dockerd.pid"), "--bridge", "none",
                "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver",
                "overlay2", "--init-path", program("tini-static")] + (["--live-restore"] if self.live_restore else [])

    def kill(self):
        """As a crash of the daemon."""
        pids = [self.pid]
        containerd = self.dir / "exec/containerd/containerd.pid"
        if containerd.exists():
            pids.append(int(containerd.read_text()))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in pids), "the daemon is dead")
        for path in (self.dir / "dockerd.pid", containerd):
            path.unlink(missing_ok=True)


class Gvisor(Docker):
    """A dockerd that has gVisor as a runtime. Without --network=none Docker's own `none` fails with it."""

    def argv(self):
        runtime = {"path": program("runsc"), "runtimeArgs": ["--network=none", "--platform=ptrace"]}
        (self.dir / "daemon.json").write_text(json.dumps({"runtimes": {"runsc": runtime}}))
        return super().argv() + ["--config-file", str(self.dir / "daemon.json")]


class Podman(Engine):
    kind, group = "podman", "libpod_parent"

    def __init__(self):
        super().__init__()
        conf = self.dir / "containers.conf"
        conf.write_text("""[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
init_path = "%s"
conmon_path = ["%s"]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
runc = ["%s"]
""" % (program("catatonit"), program("conmon"), program("runc")))
        policy = self.dir / ".config/containers"
        policy.mkdir(parents=True)
        (policy / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        (policy / "registries.conf").write_text('unqualified-search-registries = []\n')
        self.env["CONTAINERS_CONF"] = str(conf)
        self.env["XDG_CONFIG_HOME"] = str(self.dir / ".config")

    def argv(self):
        return [program("podman"), "--root", str(self.dir / "data"), "--runroot", str(self.dir / "run"), "--tmpdir",
                str(self.dir / "tmp"), "--storage-driver", "overlay", "system", "service", "-t", "0", "unix://%s" % self.socket]


KINDS = {"docker": Docker, "runsc": Gvisor, "podman": Podman}
