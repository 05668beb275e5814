#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the vendors' packages under the adapters into a virtual environment: 150 MB, one minute. Does nothing
# when they are there.
#
#   tools/backends/install.sh DIR
set -eu

dir=${1:?usage: tools/backends/install.sh DIR}
list=$(dirname "$0")/requirements.txt
if ! cmp -s "$list" "$dir/requirements.txt"; then
    rm -rf "$dir"
    /usr/bin/python3 -m venv "$dir"
    "$dir/bin/pip" install -q --disable-pip-version-check -r "$list"
    cp "$list" "$dir/requirements.txt"
fi
