#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests README.md and docs/deploy.md: minimal.sh and docker.sh on this machine, then vm.sh. The last
# line is "N passed, N failed".
set -u

here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" -ne 0 ]; then
    exec sudo --preserve-env=HERMES_VM_CACHE,HERMES_VM_SECONDS,HERMES_VM_PARTS "$0"
fi
work=$(mktemp -d /var/tmp/hermes-deploy.XXXXXX)
trap 'rm -rf "$work"' EXIT

# The guest is slow: it gets an image with one language, and no engine of its own is unpacked there.
"$here/minimal.sh" | tee "$work/0"
"$here/docker.sh" | tee "$work/1"
HERMES_LANGUAGES=python3 HERMES_NO_SELFTEST=1 HERMES_SAVE_IMAGE=$work/image.tar \
    "$here/docker.sh" | tee "$work/2"
"$here/vm.sh" "$work/image.tar" | tee "$work/3"
tail -q -n 1 "$work"/[0123] |
    awk '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; n++; next }
        END { if (n < 4) f++; print p " passed, " f " failed"; exit f > 0 }'
