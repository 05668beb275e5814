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
    # Each row: a folder below src/, and the folders that it may include beside itself. The rows of
    # a group stand on the rows of the groups above it.
    row("base", "")
    row("proto", "base")                       # what two processes agree on
    row("json", "base")

    # around and inside a box, by privilege
    row("seccomp", "")
    row("cgroup", "proto base")
    row("box", "proto base")
    row("spawn", "cgroup box proto base")
    row("kit", "proto base")
    row("fork", "cgroup box proto base")
    row("setup", "cgroup box proto base")
    row("warm", "box proto base")
    row("bash", "box proto base")
    row("egress", "seccomp proto base")
    row("layer", "base")
    row("inject", "seccomp proto base")
    row("backend", "layer json proto base")
    row("reach", "seccomp proto base")
    row("places", "backend seccomp proto base")

    # by responsibility, without privilege
    row("lang", "json proto base")
    row("network", "lang json proto base")
    row("run", "network lang json proto base")
    row("image", "run network lang layer json proto base")
    row("template", "run network lang json proto base")
    row("judge", "run network lang json proto base")
    row("attack", "run network lang json proto base")
    row("store", "proto base")
    row("approval", "store run network lang json proto base")
    row("state", "approval store run network lang json proto base")
    row("session", "approval state store run network lang json proto base")
    row("service", "template approval session judge image attack state store run network lang json proto base")

    # front doors
    below = "service approval session judge image attack state store run network lang json proto base"
    row("mcp", below)
    row("http", "mcp seccomp " below)
    row("http/v1", "http " below)
    row("http/compat", "http " below)
    row("monitor", "proto base")
    row("prepare", "approval image state store run network lang json proto base")
    below = "judge image run network lang json proto base"
    row("cli", below)
    row("cli/session", "cli state " below)
    row("cli/image", "cli " below)
    row("cli/selftest", "cli attack " below)
    row("cli/bench", "cli " below)

    # A folder inside a folder that counts as a part of it: it has the same row.
    part["base/os"] = "base"                   # what asks the kernel
    part["cli/run"] = "cli"                    # hermes run
    part["mcp/execution"] = "mcp"              # work that can outlast a call
    part["run/cache"] = "run"                  # what compilers made before
    part["run/stage"] = "run"                  # one box of a run
    part["session/exec"] = "session"           # one exec
    part["session/files"] = "session"
    part["state/history"] = "state"            # runs that are under way or have ended
    part["spawn/network"] = "spawn"

    # Libraries that a folder must do without: base needs libc only, and the programs with
    # privileges parse nothing.
    libraries = "jansson|curl/|sqlite3|hiredis/|archive|gnutls/|nettle/|wslay/"
    deny["base"] = libraries "|seccomp"
    deny["monitor"] = deny["cgroup"] = deny["box"] = deny["spawn"] = deny["fork"] = deny["kit"] = deny["setup"] = deny["warm"] = deny["bash"] = libraries
}
function row(layer, others)
{
    allow[layer] = others
}
function complain(text)
{
    printf "%s:%d: %s\n", FILENAME, FNR, text
    failed = 1
}
function is_allowed(layer, target,    i, n, list)
{
    n = split(allow[layer], list, " ")
    for (i = 1; i <= n; i++)
        if (list[i] == target)
            return 1
    return layer == target
}
FNR == 1 {
    layer = FILENAME
    sub(/^src\//, "", layer)
    sub(/\/[^\/]*$/, "", layer)
    if (layer in part)
        layer = part[layer]
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
    sub(/\/[^\/]*$/, "", target)
    if (target in part)
        target = part[target]
    # A name without a directory is generated, or a system header.
    if (path ~ /\// && target in allow && layer in allow && !is_allowed(layer, target))
        complain(layer "/ may not include " path)
    if (is_system && deny[layer] != "" && path ~ "^(" deny[layer] ")([.]h|/|$|[a-z_]*[.]h)")
        complain(layer "/ may not use the library of <" path ">")
}
END { exit failed }
'
