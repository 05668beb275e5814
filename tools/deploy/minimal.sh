#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# minimal.sh [ROOT]: shows that the commands of README.md, section "Install", work on a minimal
# Debian 12, and that every language that is missing there says so. The Debian is made with
# mmdebstrap (ROOT is one that exists; a copy of it is used) and entered in namespaces of its own,
# so nothing is left on this machine. Needs root and a Debian mirror. The last line is
# "N passed, N failed".
set -u
export LC_ALL=C

repo=$(cd "$(dirname "$0")/../.." && pwd)
cd "$repo" || exit 1
dir=$(mktemp -d /var/tmp/hermes-minimal.XXXXXX)
root=$dir/root
title=minimal
. tools/deploy/checks.sh
finish() {
    rm -rf --one-file-system "$dir"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}
trap 'failed=$((failed + 1)); finish' HUP INT TERM

# ----- a minimal Debian, with what git has of this tree in /hermes -----

make_root() {
    if [ -n "$1" ]; then
        cp -a "$1" "$root"
    else
        command -v mmdebstrap >/dev/null ||
            apt-get -q -y install --no-install-recommends mmdebstrap || return
        mmdebstrap --quiet --mode=root --variant=minbase \
            --aptopt='Acquire::Check-Valid-Until "false"' bookworm "$root" \
            /etc/apt/sources.list.d/debian.sources
    fi
}
copy_tree() {
    mkdir "$root/hermes" && git ls-files -z | xargs -0 cp -P --parents -t "$root/hermes" &&
        cp -L /etc/resolv.conf "$root/etc/resolv.conf"
}

# Runs a command line in the Debian, in /hermes, as a shell with an empty environment would.
# The root is pivoted, not only changed: boxes pivot in turn, which takes a root that is a mount.
in_debian() {
    unshare --mount --pid --fork --kill-child bash -euc '
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --rbind /sys sys
        mount --rbind /dev dev
        mount -t tmpfs tmpfs run
        mkdir -p old
        pivot_root . old
        umount -l /old
        cd /hermes
        exec env -i HOME=/root LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -euo pipefail -c "$2"
        ' - "$root" "$1"
}

check "mmdebstrap makes a minimal Debian 12" make_root "${1:-}"
check "the tree is copied into it" copy_tree
[ "$failed" -eq 0 ] || finish

# ----- the commands of the page -----

mapfile -t commands < <(sed -n '/^## Install/,/^## /p' README.md |
    sed -n '/^```sh$/,/^```$/{/^```/!p;}' | sed 's/ *# .*//')
[ "${#commands[@]}" -eq 2 ] || { say "README.md has ${#commands[@]} commands, not 2"; failed=1; finish; }
check "${commands[0]}" in_debian "${commands[0]}"
check "${commands[1]}" in_debian "[ \"\$(${commands[1]})\" = 5050 ]"

# ----- languages that are missing -----

languages_are_listed() {
    in_debian 'build/hermes runtimes' >"$dir/runtimes" || return
    cat "$dir/runtimes"
    for folder in runtimes/*/; do
        grep -q "^$(basename "$folder") " "$dir/runtimes" || return
    done
}
# A run in a language that is missing fails with the sentence that `hermes runtimes` has on it.
is_refused() { # LANGUAGE
    in_debian "if echo x | build/hermes run -l $1 - 2>said; then exit 1; fi
        cat said; grep -q 'install' said"
}
server_starts() {
    in_debian 'build/hermes serve --port 18765 >log 2>&1 & server=$!
        until (exec 3<>/dev/tcp/127.0.0.1/18765) 2>/dev/null; do
            kill -0 $server || { cat log; exit 1; }
            sleep 0.1
        done
        exec 3<>/dev/tcp/127.0.0.1/18765
        printf "GET /v1/runtimes HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3
        cat <&3 | tee said
        kill $server
        wait $server
        grep -q "\"available\": *false" said'
}
check "hermes runtimes lists every language" languages_are_listed
missing=$(awk '$2 == "missing" { print $1 }' "$dir/runtimes")
[ -n "$missing" ] || check "some language is missing" false
for language in $missing; do
    check "hermes run -l $language names what is missing" is_refused "$language"
done
check "hermes serve starts and lists what is missing" server_starts
finish
