#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command beside two endless loops per core, and ends with its status. Tests must pass on
# a busy machine, too: they wait for a state, never for a time.
#
#   tools/busy.sh COMMAND [ARGUMENT...]
set -u

[ $# -gt 0 ] || { echo "usage: tools/busy.sh COMMAND [ARGUMENT...]" >&2; exit 2; }

loops=()
trap 'kill "${loops[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
for ((i = 0; i < 2 * $(nproc); i++)); do
    (trap - EXIT; while :; do :; done) &
    loops+=($!)
done
"$@"
