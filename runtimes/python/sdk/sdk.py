# SPDX-License-Identifier: Apache-2.0
"""Lies beside the program of a POST /run: what it hands over as `metadata`, and files of a flow."""
import json
import os
import urllib.error
import urllib.request

PATH = "/metadata/.quartermaster_metadata.json"


def set_metadata(data):
    """Makes `data`, anything that JSON can say, the `metadata` of the answer."""
    text = json.dumps(data)
    with open(PATH, "w", encoding="utf-8") as f:
        f.write(text)


def get_metadata():
    """The metadata that was set before, or None."""
    try:
        with open(PATH, encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def _ask(method, path, data=None):
    base = os.environ.get("QM_WEBDAV_URL")
    if not base:
        raise RuntimeError("there are files only in a flow: QM_WEBDAV_URL is not set")
    request = urllib.request.Request(base.rstrip("/") + "/" + path.lstrip("/"), data, method=method)
    if data is not None:
        request.add_header("Content-Type", "application/octet-stream")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.read()
    except urllib.error.HTTPError as e:
        if e.code == 404:
            raise FileNotFoundError(path) from e
        raise RuntimeError("%s of %s failed: %s" % (method, path, e)) from e


def load_file(path):
    """The text of a file of the flow."""
    return _ask("GET", path).decode("utf-8")


def save_file(path, content):
    """Writes a text file of the flow."""
    _ask("PUT", path, content.encode("utf-8"))
