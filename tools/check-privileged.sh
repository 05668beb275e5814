#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Counts the lines of the .c files that are linked into the programs that stay resident as root,
# without base/, and compares them with a budget. tools/linked-sources.sh lists the files.
#
#   tools/check-privileged.sh BUILD_DIR
set -u

cd "$(dirname "$0")/.." || exit 2
build=${1:?usage: tools/check-privileged.sh BUILD_DIR}
failed=0

# PROGRAM BUDGET, then the folders that have a budget of their own: FOLDER=BUDGET
budgets=(
    "hermes-spawn 5800 box=2500"
    "hermes-monitor 3000"
    "hermes-network 1300"
)

lines() # FILE...
{
    [ $# -eq 0 ] && echo 0 || cat "$@" | wc -l
}

compare() # NAME LINES BUDGET
{
    printf '%-24s %6d of %6d lines\n' "$1" "$2" "$3"
    if [ "$2" -gt "$3" ]; then
        echo "check-privileged: $1 has $(($2 - $3)) lines too many: move what needs no root, or is needed for a moment only, to another program"
        failed=1
    fi
}

for row in "${budgets[@]}"; do
    read -r program budget folders <<<"$row"
    if [ ! -x "$build/$program" ]; then
        echo "check-privileged: $build/$program does not exist: run make build"
        exit 2
    fi
    mapfile -t files < <(tools/linked-sources.sh "$build" "$program" | grep -v '^src/base/')
    if [ ${#files[@]} -eq 0 ]; then
        echo "check-privileged: $build/$program has no debug information, so its files are not known: build it with -g and do not strip it"
        exit 2
    fi
    for folder in $folders; do
        mapfile -t own < <(printf '%s\n' "${files[@]}" | grep "^src/${folder%=*}/")
        mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v "^src/${folder%=*}/")
        compare "$program, ${folder%=*}/" "$(lines "${own[@]}")" "${folder#*=}"
    done
    compare "$program" "$(lines "${files[@]}")" "$budget"
done
exit $failed
