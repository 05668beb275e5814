#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows that docs/deploy.md is true: docker.sh on this machine, then vm.sh. The last line is
# "N passed, N failed".
set -u

here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" -ne 0 ]; then
    exec sudo --preserve-env=HERMES_VM_CACHE,HERMES_VM_SECONDS,HERMES_VM_PARTS "$0"
fi
work=$(mktemp -d /var/tmp/hermes-deploy.XXXXXX)
trap 'rm -rf "$work"' EXIT

# The guest is slow: it gets an image with one language, and no engine of its own is unpacked there.
"$here/docker.sh" | tee "$work/1"
HERMES_LANGUAGES=python3 HERMES_NO_SELFTEST=1 HERMES_SAVE_IMAGE=$work/image.tar \
    "$here/docker.sh" | tee "$work/2"
"$here/vm.sh" "$work/image.tar" | tee "$work/3"
tail -q -n 1 "$work"/[123] |
    awk '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; n++; next }
        END { if (n < 3) f++; print p " passed, " f " failed"; exit f > 0 }'
