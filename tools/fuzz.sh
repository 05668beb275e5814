#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the libFuzzer targets with clang and runs each for FUZZ_SECONDS (60). Corpora grow in
# BUILD_DIR/corpus/NAME; what breaks a target is kept in BUILD_DIR/found.
#
#   tools/fuzz.sh BUILD_DIR [NAME...]
set -eu

cd "$(dirname "$0")/.."
build=${1:?usage: tools/fuzz.sh BUILD_DIR [NAME...]}
shift
[ -f "$build/build.ninja" ] || CC=clang meson setup "$build" -Dfuzz=true -Db_lundef=false
ninja -C "$build" fuzzers

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=${source##*/fuzz_}
        names+=("${name%.c}")
    done
fi

passed=0 failed=0
for name in "${names[@]}"; do
    corpus=$build/corpus/$name
    mkdir -p "$corpus" "$build/found"
    seeds=()
    [ ! -d "tests/fuzz/corpus/$name" ] || seeds=("tests/fuzz/corpus/$name")
    echo "== fuzz $name"
    if "$build/tests/fuzz/fuzz_$name" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=20 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/found/$name-" \
        "$corpus" "${seeds[@]}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
