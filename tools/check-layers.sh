#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A layer includes what stands below it, never what stands above or beside it (design in
# docs/architecture.md). The table is below: to add a directory, add a row.
#
#   tools/check-layers.sh [ROOT]
set -eu

cd "${1:-$(dirname "$0")/..}"
[ -d src ] || { echo "check-layers: there is no src here" >&2; exit 2; }

find src -name '*.[ch]' | LC_ALL=C sort | xargs -r awk '
BEGIN {
    # directory: what it may include beside itself; a name with a dot is one header only
    allow["base"] = ""
    allow["backend"] = allow["queue"] = allow["store"] = "base"
    allow["core"] = "backend queue store base proto/spawn.h proto/package.h proto/files.h proto/terminal.h"
    allow["cli"] = allow["api"] = allow["mcp"] = allow["monitor"] = "core backend queue store base proto/spawn.h"
    allow["spawn"] = allow["shell"] = "base"

    # libraries that a directory must do without: base needs libc only, and the program with
    # privileges parses nothing
    libraries = "jansson|microhttpd|curl/|sqlite3|hiredis/|archive|gnutls/|nettle/|wslay/"
    deny["base"] = libraries "|seccomp"
    deny["spawn"] = deny["shell"] = libraries
}
function complain(text)
{
    printf "%s:%d: %s\n", FILENAME, FNR, text
    failed = 1
}
function is_allowed(layer, target, path,    i, n, list)
{
    n = split(allow[layer], list, " ")
    for (i = 1; i <= n; i++)
        if (list[i] == target || list[i] == path)
            return 1
    return layer == target
}
FNR == 1 {
    split(FILENAME, part, "/")
    layer = part[2]
    if (!(layer in allow))
        complain("src/" layer " is in no layer: add it to tools/check-layers.sh")
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    path = $0
    sub(/^[^<"]*[<"]/, "", path)
    sub(/[>"].*$/, "", path)
    is_system = $0 ~ /^[^"]*</
    if (path ~ /(^|\/)\.\.?\//) {
        complain("\"" path "\": includes are written from src/ on")
        next
    }
    target = path
    sub(/\/.*/, "", target)
    # A name without a directory is generated, or a system header.
    if (path ~ /\// && target in allow && layer in allow && !is_allowed(layer, target, path))
        complain(layer "/ may not include " path)
    if (is_system && deny[layer] != "" && path ~ "^(" deny[layer] ")([.]h|/|$|[a-z_]*[.]h)")
        complain(layer "/ may not use the library of <" path ">")
}
END { exit failed }
'
