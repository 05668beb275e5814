#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A check that never fails proves nothing: hands tools/check-NAME.sh a small good tree, which it
# must accept, and the same tree with one fault at a time, each of which it must name.
#
#   check_finds_faults.sh ROOT layers|style
set -eu

root=$(cd "$1" && pwd)
name=$2
check=$root/tools/check-$name.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
faults=0

good_tree()
{
    rm -rf "$tree/src" "$tree/tests" "$tree/tools"
    mkdir -p "$tree/src/base" "$tree/src/run" "$tree/src/spawn" "$tree/src/cli" \
        "$tree/src/store" "$tree/tools"
    cp "$root/.clang-format" "$tree/"
    printf '%s\n#pragma once\n\nint a_b(void); /* strcpy( */\n' "$spdx" >"$tree/src/base/a.h"
    printf '%s\n\n#include "base/a.h"\n\n#include <stdio.h>\n' "$spdx" >"$tree/src/base/a.c"
    printf '%s\n\n#include "base/a.h"\n#include "proto/package.h"\n#include "proto/spawn.h"\n' \
        "$spdx" >"$tree/src/run/b.c"
    printf '%s\n\n#include "box/x.h"\n#include "generated.h"\n' "$spdx" >"$tree/src/spawn/c.c"
    printf '%s\n\n#include <jansson.h>\n\n#include "run/b.h"\n' "$spdx" >"$tree/src/cli/d.c"
    printf '%s\n\n#include "base/a.h"\n' "$spdx" >"$tree/src/store/e.c"
    for file in run/b spawn/c cli/d store/e; do
        printf '%s\n#pragma once\n' "$spdx" >"$tree/src/$file.h"
    done
}

# fault FILE WORDS TEXT: appends TEXT to FILE of a good tree; the check must fail and name both.
fault()
{
    local output
    good_tree
    mkdir -p "$(dirname "$tree/$1")"
    [ -e "$tree/$1" ] || printf '%s\n#pragma once\n' "$spdx" >"$tree/$1"
    printf '%b' "$3" >>"$tree/$1"
    if output=$("$check" "$tree" 2>&1); then
        echo "not found: $1: $2" >&2
        exit 1
    fi
    if ! grep -qF "$1:" <<<"$output" || ! grep -qF -- "$2" <<<"$output"; then
        printf 'not named: %s: %s, but\n%s\n' "$1" "$2" "$output" >&2
        exit 1
    fi
    faults=$((faults + 1))
}

good_tree
if ! output=$("$check" "$tree" 2>&1); then
    printf 'a good tree is refused:\n%s\n' "$output" >&2
    exit 1
fi

case $name in
layers)
    fault src/base/a.c 'may not include run/b.h' '#include "run/b.h"\n'
    fault src/base/a.c 'may not include run/b.h' '#  include <run/b.h>\n'
    fault src/base/a.c 'may not include proto/package.h' '#include "proto/package.h"\n'
    fault src/base/a.c 'may not use the library' '#include <jansson.h>\n'
    fault src/base/a.c 'may not use the library' '#include <curl/curl.h>\n'
    fault src/run/b.c 'may not include cli/d.h' '#include "cli/d.h"\n'
    fault src/run/b.c 'may not include http/v1/x.h' '#include "http/v1/x.h"\n'
    fault src/http/x.h 'may not include http/v1/x.h' '#include "http/v1/x.h"\n'
    fault src/session/x.h 'may not include service/x.h' '#include "service/x.h"\n'
    fault src/box/x.h 'may not include spawn/x.h' '#include "spawn/x.h"\n'
    fault src/run/b.c 'may not include spawn/box.h' '#include "spawn/box.h"\n'
    fault src/store/e.c 'may not include json/x.h' '#include "json/x.h"\n'
    fault src/cli/d.c 'may not include spawn/x.h' '#include "spawn/x.h"\n'
    fault src/spawn/c.c 'may not include run/b.h' '#include "run/b.h"\n'
    fault src/spawn/c.c 'may not use the library' '#include <jansson.h>\n'
    fault src/base/a.c 'written from src/ on' '#include "../run/b.h"\n'
    fault src/odd/x.h 'is in no layer' ''
    ;;
style)
    for call in strcpy strcat sprintf atoi strtok system popen gets alloca; do
        fault src/base/a.c "$call() is banned" "int x = $call(0);\n"
    done
    fault src/base/a.c 'strcat() is banned' 'int x = 1; /* a */ int y = strcat ("/*", 0);\n'
    fault src/base/a.c 'a tab' 'int x;\t/* x */\n'
    fault src/base/a.c 'more than 96' "/* $(printf '%096d' 0) */\n"
    fault src/base/a.c 'space at the end' 'int x; \n'
    fault src/base/str_util.h 'the name says nothing' ''
    fault src/run/manager.h 'the name says nothing' ''
    fault src/run/common.h 'the name says nothing' ''
    fault tools/x.sh 'there is no SPDX line' ''
    rm "$tree/tools/x.sh"
    fault src/base/f.c 'no header has its name' ''
    good_tree
    printf '/* f.c: x. */\n' >>"$tree/src/base/a.h"
    printf '%s\n' "$spdx" >"$tree/src/base/f.c"
    output=$("$check" "$tree" 2>&1) || { echo "a source that a header names is refused: $output" >&2; exit 1; }
    good_tree
    printf '#pragma once\n' >"$tree/src/base/z.h"
    printf '%s\n' "$spdx" >"$tree/src/base/y.h"
    output=$("$check" "$tree" 2>&1) && { echo "headers are not checked" >&2; exit 1; }
    grep -q '^src/base/z.h:1: the first line is not the SPDX line' <<<"$output"
    grep -q '^src/base/y.h:1: there is no #pragma once' <<<"$output"
    if command -v clang-format >/dev/null; then
        fault src/base/a.c 'clang-format' 'int  x( void ){return 1;}\n'
    fi
    ;;
*)
    echo "unknown check $name" >&2
    exit 2
    ;;
esac
echo "$faults faults found"
