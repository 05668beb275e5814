#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the sources that are linked into a program, one per line. The list comes from the debug
# information of the program itself, so a file that a library brings along is in it, too.
#
#   tools/linked-sources.sh BUILD_DIR PROGRAM
set -u

build=${1:?usage: tools/linked-sources.sh BUILD_DIR PROGRAM}
program=${2:?usage: tools/linked-sources.sh BUILD_DIR PROGRAM}
readelf --debug-dump=info --dwarf-depth=1 "$build/$program" 2>/dev/null |
    grep -oE '(^|[^a-z])src/[a-z_0-9/]+\.c' | grep -oE 'src/.*' | sort -u
exit 0
