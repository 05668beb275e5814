# SPDX-License-Identifier: Apache-2.0
"""Imports and exports images by the functions that the server calls, and makes archives by hand."""
import hashlib
import json
import platform
import subprocess

from layerlib import DONE, MAX_BYTES, MAX_ENTRIES, call, give, member, tar, unpacked
from runlib import BUILD

DRIVER = BUILD / "tests" / "oci-driver"
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"


class Refused(Exception):
    """The message of a refusal."""


def driver(*args, stdin=b""):
    done = subprocess.run([str(DRIVER), *map(str, args)], input=stdin, capture_output=True, timeout=300)
    if done.returncode:
        assert done.returncode == 1, done
        raise Refused(done.stderr.decode())
    return done.stdout


def split(to, archive, max_bytes=1 << 30, max_entries=20000):
    done = call("split", to, "--max-bytes", max_bytes, "--max-entries", max_entries, stdin=archive)
    if done.returncode != DONE:
        raise Refused(done.stderr.decode())
    return done.stdout


def inspect(to, archive, *name):
    """What an archive's image is; `to` gets the members."""
    return json.loads(driver("import", to, *name, stdin=split(give(to), archive)))


def bring(area, archive, *name, max_bytes=1 << 30, max_entries=200000):
    """Imports an archive as the server does: the image, and the directories of its layers."""
    image = inspect(area / "members", archive, *name)
    if image["kind"] == "root":
        unpacked(give(area / "layer-0"), archive, max_bytes=max_bytes, max_entries=max_entries)
        return image, [area / "layer-0"]
    dirs = []
    for i, layer in enumerate(image["layers"]):
        dirs.append(give(area / ("layer-%d" % i)))
        blob = (area / "members" / str(layer["file"])).read_bytes()
        done = call("unpack", dirs[-1], "--max-bytes", max_bytes, "--max-entries", max_entries, stdin=blob)
        if done.returncode != DONE:
            raise Refused(done.stderr.decode())
        driver("check", layer["diff_id"], stdin=done.stdout)
    return image, dirs


def export(spool, layers, kind="oci", packing="gzip", name="box:1", config=None):
    return driver("export", kind, packing, name, spool, *layers, stdin=json.dumps(config or {}).encode())


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def described(data, media, **more):
    return {"mediaType": media, "digest": digest(data), "size": len(data), **more}


def dump(value):
    return json.dumps(value).encode()


class Layout:
    """An OCI layout whose parts a test may change before it is written."""

    def __init__(self, *layers, arch=ARCH, system="linux"):
        self.blobs = {}
        self.layers = [self.add(data, LAYER) for data in layers]
        self.config = {"os": system, "architecture": arch, "config": {},
                       "rootfs": {"type": "layers", "diff_ids": [digest(data) for data in layers]}}
        self.manifest_more, self.entry_more, self.others = {}, {}, []

    def add(self, data, media, **more):
        self.blobs["blobs/sha256/" + digest(data)[7:]] = data
        return described(data, media, **more)

    def entry(self):
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": self.add(dump(self.config), CONFIG),
                    "layers": self.layers, **self.manifest_more}
        return dict(self.add(dump(manifest), MANIFEST), **self.entry_more)

    def tar(self, index=None):
        index = index or {"schemaVersion": 2, "manifests": [self.entry(), *self.others]}
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": dump(index), **self.blobs}
        return tar(*[member(name, data=data) for name, data in files.items()])


__all__ = ["ARCH", "CONFIG", "DRIVER", "INDEX", "LAYER", "Layout", "MANIFEST", "MAX_BYTES", "MAX_ENTRIES", "Refused", "bring",
           "described", "digest", "driver", "dump", "export", "inspect", "split"]
