#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The checks of CI that need no run: gcc with -Werror, fuzz targets that link, clang-tidy, cppcheck, conventions.
# Everything is run before the first failure counts, so that one round shows all there is.
#
#   tools/lint.sh BUILD_DIR
set -u

cd "$(dirname "$0")/.." || exit 1
build=${1:?usage: tools/lint.sh BUILD_DIR}
failed=()

# compile_commands.json names what is really built, and ninja makes the generated headers.
[ -f "$build/build.ninja" ] || meson setup "$build" --werror || exit 1
echo "== gcc -Werror"
ninja -C "$build" || failed+=(gcc)
echo "== fuzz targets"
{ [ -f "$build-fuzz/build.ninja" ] || CC=clang meson setup "$build-fuzz" -Dfuzz=true -Db_lundef=false; } &&
    ninja -C "$build-fuzz" fuzzers || failed+=("fuzz targets")
echo "== clang-tidy"
/usr/bin/python3 - "$build" <<'PYTHON' |
import json
import pathlib
import re
import sys

source = pathlib.Path("src").resolve()
build = pathlib.Path(sys.argv[1])
commands = json.loads((build / "compile_commands.json").read_text())
# One command for each file: clang-tidy takes a va_list for uninitialised when it reads one twice.
files = {(pathlib.Path(c["directory"]) / c["file"]).resolve(): c for c in reversed(commands)}
for command in files.values():  # clang knows no specs: it reads what is for musl with glibc's headers
    command["command"] = re.sub(r" -specs=\S+", "", command["command"])
(build / "tidy").mkdir(exist_ok=True)
(build / "tidy/compile_commands.json").write_text(json.dumps(list(files.values())))
print("\n".join(sorted(str(f) for f in files if source in f.parents)))
PYTHON
    xargs -r -P "$(nproc)" -n 1 clang-tidy -p "$build/tidy" --quiet --warnings-as-errors='*' \
        2> >(grep -v 'warnings\? generated\.$' >&2) || failed+=(clang-tidy)
echo "== cppcheck"
cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
    --library=tools/cppcheck.cfg --suppress=missingIncludeSystem --error-exitcode=1 -D__linux__ -D__x86_64__ -D_GNU_SOURCE \
    -I src src ||
    failed+=(cppcheck)
for check in layers style; do
    echo "== check-$check"
    "tools/check-$check.sh" . || failed+=("check-$check")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: ${failed[*]} failed" >&2
    exit 1
fi
echo "lint: nothing found"
