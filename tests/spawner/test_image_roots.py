# SPDX-License-Identifier: Apache-2.0
"""SPAWN_IMAGE, the one thing beside boxes that the holder of the control socket can ask for: digests of finished
layers and nothing else. Speaks the wire protocol (src/proto/spawn.h) by hand."""
import errno
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile

import pytest

import test_messages as messages
from apilib import wait_until
from test_messages import MOUNT, Spawner, box, job, pipes, setup_message, tree  # noqa: F401

IMAGE = 11
SOURCE_LAYERS = 3
FIRST = 64  # numbers of images' roots begin here
A, B = "aa" * 32, "bb" * 32

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: images do")


def image(*digests, root=0, count=None, kind=IMAGE):
    body = b"".join(bytes.fromhex(d) for d in digests)
    return struct.pack("=4I", kind, root, len(digests) if count is None else count, 0) + body.ljust(16 * 32, b"\0")


class Images(Spawner):
    """A spawner whose first root has /opt, with a directory of layers."""

    def __init__(self, register=True):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="spawner-tests-", dir="/var/tmp"))
        self.layers = self.dir / "layers"
        self.layers.mkdir()
        for digest, text in (A, "a"), (B, "b"):
            place = self.layers / digest / "tree/opt"
            place.mkdir(parents=True)
            (place / "both").write_text(text)
            (place / text).write_text(text)
        super().__init__(seal=False)
        self.send(setup_message())
        if register:
            self.send(struct.pack("=2I256s", MOUNT, SOURCE_LAYERS, str(self.layers).encode()))
        os.makedirs(messages.TREE + "/opt", exist_ok=True)
        self.send(messages.host_root("/usr/bin/cat"))
        assert self.seal() == 0

    def make(self, message, fds=None):
        """Returns the error, the number of the root and the socket that holds it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        self.send(message, [theirs.fileno()] if fds is None else fds)
        theirs.close()
        error, number = struct.unpack("=iI", ours.recv(64))
        return error, number, ours

    def cat(self, pipes, number, *names, **more):  # noqa: F811
        """What a box of this root says that shows files; None: there was no box."""
        out, err = pipes
        fd = job(["/usr/bin/cat", *names])
        events = self.ask(box(root=number, **more), [fd, out[1], err[1]])
        os.close(fd)
        return os.read(out[0], 1000) if [e[0] for e in events] == [1, 4] else None

    def kinds(self):
        """How many mount namespaces and layers it has open."""
        found = [os.readlink("/proc/%d/fd/%s" % (self.pid, fd)) for fd in self.descriptors()]
        return tuple(sum(part in link for link in found) for part in ("mnt:", "/tree"))

    def close(self):
        status = super().close()
        shutil.rmtree(self.dir)
        return status


@pytest.fixture
def spawner(tree):  # noqa: F811
    s = Images()
    yield s
    assert s.close() == 0


def test_a_box_sees_the_layers_in_their_order(spawner, pipes):  # noqa: F811
    error, number, held = spawner.make(image(A, B))
    assert error == 0 and number >= FIRST
    assert spawner.cat(pipes, number, "/opt/both", "/opt/a", "/opt/b") == b"aab"
    error, other, held_too = spawner.make(image(B, A))
    assert error == 0 and other != number
    assert spawner.cat(pipes, other, "/opt/both") == b"b"
    assert spawner.cat(pipes, number, "/opt/both") == b"a"


BOX_ROOT, BOX_WARM = 64, 4


def test_a_build_upon_layers_that_are_no_whole_root(spawner, pipes):  # noqa: F811
    """Such a box may make set-id files: it has no directory of the host, and a root of its own or none."""
    error, number, held = spawner.make(image(A))
    assert error == 0 and spawner.cat(pipes, number, "/opt/a") == b"a"  # control
    for more in {}, {"flags": BOX_WARM}, {"mounts": [(0, 0, b"/mnt/x")]}:
        assert spawner.cat(pipes, number, "/opt/a", **dict(more, flags=BOX_ROOT | more.get("flags", 0))) is None
    assert spawner.cat(pipes, number, "/opt/a") == b"a"


def test_a_root_ends_with_its_socket(spawner, pipes):  # noqa: F811
    error, number, held = spawner.make(image(A))
    assert error == 0 and spawner.cat(pipes, number, "/opt/a") == b"a"
    before = spawner.kinds()
    held.close()
    assert wait_until(lambda: spawner.cat(pipes, number, "/opt/a") is None)
    assert wait_until(lambda: spawner.kinds() == (before[0] - 1, before[1] - 1)), (before, spawner.kinds())


def test_a_layer_in_use_is_locked(spawner):
    fd = os.open(spawner.layers / A / "tree", os.O_RDONLY)
    error, _, held = spawner.make(image(A))
    assert error == 0
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held.close()

    def is_free():
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
    assert wait_until(is_free)
    # whoever removes it has it alone
    assert spawner.make(image(A))[0] == -errno.EAGAIN
    os.close(fd)


def replace(spawner, how):
    place = spawner.layers / A
    shutil.rmtree(place if how == "layer" else place / "tree" if how == "tree" else place / "tree/opt")
    if how == "layer":
        os.symlink(B, place)
    elif how == "tree":
        os.symlink("../%s/tree" % B, place / "tree")
    elif how == "opt":
        os.symlink("/etc", place / "tree/opt")
    else:
        (place / "tree/opt").write_text("a file")


@pytest.mark.parametrize("how,error", [("layer", errno.ELOOP), ("tree", errno.ELOOP), ("opt", errno.ELOOP),
                                       ("file", errno.ENOTDIR)])
def test_no_link_is_followed(spawner, pipes, how, error):  # noqa: F811
    assert spawner.make(image(A))[0] == 0  # control: as it was
    replace(spawner, how)
    before = spawner.descriptors()
    assert spawner.make(image(A))[0] == -error
    assert spawner.settles_at(before)
    assert spawner.make(image(B))[0] == 0


def test_bad_requests_make_nothing(spawner, pipes):  # noqa: F811
    before = spawner.descriptors()
    for message, error in [(image(), errno.EINVAL), (image(A, count=17), errno.EINVAL),
                           (image(A, count=0xFFFFFFFF), errno.EINVAL), (image(A, root=1), errno.EINVAL),
                           (image(A, root=FIRST), errno.EINVAL), (image(A, root=0xFFFFFFFF), errno.EINVAL),
                           (image("00" * 32), errno.ENOENT), (image(A, "00" * 32), errno.ENOENT),
                           (image(A, A), None)]:
        got = spawner.make(message)[0]
        assert got == -error if error else got <= 0, message[:16]
    for fd in pipes[0]:
        spawner.send(image(A), [fd])
    spawner.send(image(A))
    spawner.send(image(A)[:-1], [pipes[0][0]])
    assert spawner.settles_at(before)
    assert spawner.cat(pipes, FIRST, "/opt/a") is None


def test_no_box_mounts_the_layers_of_all(spawner, pipes):  # noqa: F811
    number, held = spawner.make(image(A))[1:]
    for writable in 0, 1:
        assert spawner.cat(pipes, number, "/etc/hosts", mounts=[(0, writable, b"/mnt/x")]) is None
    assert spawner.cat(pipes, number, "/opt/a") == b"a"


def test_there_are_so_many_at_most(spawner):
    held = []
    for _ in range(32):
        error, number, one = spawner.make(image(A))
        assert error == 0
        held.append(one)
    assert spawner.make(image(A))[0] == -errno.ENOSPC
    held.pop().close()
    assert wait_until(lambda: spawner.make(image(A))[0] == 0)


def test_without_a_directory_of_layers_there_are_none(tree):  # noqa: F811
    s = Images(register=False)
    assert s.make(image(A))[0] == -errno.EOPNOTSUPP
    assert s.close() == 0


def test_overlay_attributes_of_files_have_no_effect(spawner, pipes):  # noqa: F811
    """Without userxattr the kernel would follow trusted.overlay.redirect of a lower directory."""
    place = spawner.layers / A / "tree/opt"
    (place / "moved").mkdir()
    (spawner.layers / B / "tree/opt/secret").mkdir()
    (spawner.layers / B / "tree/opt/secret/file").write_text("secret")
    try:
        os.setxattr(place / "moved", "trusted.overlay.redirect", b"/secret")
    except OSError as e:
        pytest.skip("this file system has no such attributes: %s" % e)
    number, held = spawner.make(image(A, B))[1:]
    assert spawner.cat(pipes, number, "/opt/secret/file") == b"secret"  # control: it is there
    out = spawner.cat(pipes, number, "/opt/moved/file", "/opt/a")
    assert out is None or b"secret" not in out
    # control: an overlay that heeds such attributes shows the file there
    on = spawner.dir / "on"
    on.mkdir()
    lowers = "%s:%s" % (place, spawner.layers / B / "tree/opt")
    done = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t overlay overlay -o ro,redirect_dir=follow,lowerdir=%s %s "
                           "&& cat %s/moved/file" % (lowers, on, on)], capture_output=True)
    assert done.stdout == b"secret", done.stderr
