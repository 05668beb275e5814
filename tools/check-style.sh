#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The conventions of CONTRIBUTING.md that a script can see. One line per fault,
# FILE:LINE: what is wrong; exit status 1 when there is any.
#
#   tools/check-style.sh [ROOT]
set -u

cd "${1:-$(dirname "$0")/..}" || exit 2
export LC_ALL=C.UTF-8 # columns, not bytes
failed=0

complain()
{
    printf '%s\n' "$*"
    failed=1
}

# Reads lines "FILE:LINE:text" and complains about each.
complain_lines() # WHY
{
    local line
    while IFS= read -r line; do
        complain "$(cut -d: -f1,2 <<<"$line"): $1"
    done
}

mapfile -t sources < <(
    find src tests/unit tests/fuzz -name '*.[ch]' 2>/dev/null | sort)
mapfile -t shipped < <(find src -name '*.[ch]' 2>/dev/null | sort)
mapfile -t scripts < <(find tools tests/unit .ci -type f \( -name '*.sh' -o -path '.ci/run' \) \
    2>/dev/null | sort)
if [ ${#shipped[@]} -eq 0 ]; then
    echo "check-style: there is no source here" >&2
    exit 2
fi

for file in "${sources[@]}"; do
    IFS= read -r first <"$file"
    [ "$first" = '/* SPDX-License-Identifier: Apache-2.0 */' ] ||
        complain "$file:1: the first line is not the SPDX line"
    case $file in
    *.h) # a table that is included several times says "no include guard"
        grep -qE '^#pragma once$|no include guard' "$file" ||
            complain "$file:1: there is no #pragma once"
        ;;
    esac
done
for file in "${scripts[@]}"; do
    head -n 3 "$file" | grep -q '^# SPDX-License-Identifier: Apache-2\.0$' ||
        complain "$file:1: there is no SPDX line"
done
for file in "${sources[@]}" "${scripts[@]}"; do
    name=${file##*/}
    if [[ ${name%.*} =~ (^|_)(util|utils|common|helper|helpers|misc|manager)(_|$) ]]; then
        complain "$file:1: the name says nothing; name the noun that it owns"
    fi
done

# A reader finds the contract of a source: in the header of its name, in that of its folder, or in one
# that names the source. Folders below cli/ and http/ share the tables of commands and routes.
for file in "${shipped[@]}"; do
    dir=${file%/*}
    name=${file##*/}
    [[ $file == *.c && ! -f ${file%.c}.h && ! -f $dir/internal.h && ! -f $dir/${dir##*/}.h ]] || continue
    grep -qE '^int main\(' "$file" && continue
    head -n 15 "$file" | tr '\n' ' ' | grep -qE 'has no +\* +header|has no header' && continue
    grep -qE "(^|[^a-z_])$name" "$dir"/*.h "${dir%/*}"/*.h 2>/dev/null ||
        complain "$file:1: no header has its name, and none names it"
done

complain_lines "a tab" < <(grep -nH $'\t' "${sources[@]}")
complain_lines "space at the end of the line" < <(grep -nH ' $' "${sources[@]}")
complain_lines "more than 96 columns" < <(grep -nHE '^.{97,}' "${sources[@]}")

# Calls that have a safe counterpart (snprintf, str_parse_*, buf_*, posix_spawn or execve).
# Comments and strings are blanked first: they may speak of them.
if ! awk '
    FNR == 1 { in_comment = 0 }
    {
        code = ""
        for (i = 1; i <= length($0); i++) {
            two = substr($0, i, 2)
            one = substr($0, i, 1)
            if (in_comment) {
                if (two == "*/") { in_comment = 0; i++ }
            } else if (two == "/*") {
                in_comment = 1; i++; code = code " "
            } else if (two == "//") {
                break
            } else if (one == "\"" || one == "\047") {
                quote = one
                for (i++; i <= length($0) && substr($0, i, 1) != quote; i++)
                    if (substr($0, i, 1) == "\\")
                        i++
                code = code " "
            } else {
                code = code one
            }
        }
        if (match(code, "(^|[^A-Za-z0-9_.>])(strcpy|strcat|sprintf|vsprintf|atoi|atol|strtok|" \
            "system|popen|gets|alloca)[ ]*[(]")) {
            call = substr(code, RSTART, RLENGTH)
            gsub(/[^a-z]/, "", call)
            printf "%s:%d: %s() is banned\n", FILENAME, FNR, call
            failed = 1
        }
    }
    END { exit failed }
' "${shipped[@]}"; then
    failed=1
fi

if command -v clang-format >/dev/null && [ -f .clang-format ]; then
    clang-format --dry-run -Werror "${sources[@]}" 2>&1 |
        sed -n 's/: error: code should be clang-formatted.*/: clang-format (make format)/p' |
        sort -u -t: -k1,1
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
fi
exit $failed
