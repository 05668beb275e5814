# SPDX-License-Identifier: Apache-2.0
#
# checks.sh: sourced by docker.sh and minimal.sh. Runs checks and counts them. $title begins each
# line of output; $dir is a directory for the output of the last check.
passed=0
failed=0

say() { printf '%s: %s\n' "$title" "$*"; }
check() { # NAME COMMAND...
    local what=$1
    shift
    if "$@" >"$dir/out" 2>&1; then
        passed=$((passed + 1))
        say "ok   $what"
    else
        failed=$((failed + 1))
        say "FAIL $what"
        tail -n 15 "$dir/out" | sed 's/^/    /'
    fi
}
