#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds into one directory and runs every test against it: meson's suites, then pytest. Goes
# on after a runner that fails, adds the runners' reports up and ends with one line,
# "N passed, N failed" and ", N skipped" where some were. Exit status 1 when anything failed.
#
#   tools/test.sh BUILD_DIR
#
# MESON_SETUP_ARGS, MESON_TEST_ARGS and PYTEST_ARGS are passed on.
set -u

cd "$(dirname "$0")/.." || exit 1
build=${1:?usage: tools/test.sh BUILD_DIR}
python=/usr/bin/python3
if [ ! -f "$build/build.ninja" ] && ! meson setup "$build" ${MESON_SETUP_ARGS:-}; then
    echo "0 passed, 1 failed"
    exit 1
fi
build=$(cd "$build" && pwd)
reports=$build/test-reports
rm -rf "$reports"
mkdir -p "$reports"

export HERMES_BUILD_DIR=$build
export PYTHONDONTWRITEBYTECODE=1
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}

failed_runners=()

# A runner that fails without a report, or whose report shows no failure, counts as one.
note() # NAME STATUS REPORT
{
    if [ "$2" -ne 0 ]; then
        failed_runners+=("$1")
    fi
    if [ -f "$3" ]; then
        cp "$3" "$reports/$1.xml"
    fi
}

if ! ninja -C "$build"; then
    echo "FAILED build"
    echo "0 passed, 1 failed"
    exit 1
fi

# Where the host cannot make a box at all (an unprivileged container, a kernel that is stuck), what
# does not watch the clock runs in the virtual machine: slower, but really. What is left out then
# is said, and counted as skipped.
if [ -z "${HERMES_IN_VM:-}" ] &&
    ! timeout -k 5 60 "$build/hermes" doctor >"$reports/doctor.txt" 2>&1; then
    cat "$reports/doctor.txt"
    echo "== this host cannot make boxes (hermes doctor, above): unit tests, attack cases and"
    echo "   controls, spawner and cli run in a virtual machine with cgroup v2 (tools/vm)"
    HERMES_VM_SECONDS=4500 tools/vm/run.sh --parts short,plain | tee "$reports/vm.txt"
    status=${PIPESTATUS[0]}
    skipped=$(ls tests/run tests/api tests/files tests/judge tests/languages | grep -c '^test_')
    echo "== NOT run: tests/run, tests/api, tests/files, tests/judge, tests/languages ($skipped files): they need a"
    echo "   host that can make boxes"
    echo "$(tail -n 1 "$reports/vm.txt"), $skipped skipped"
    exit "$status"
fi

junit=$build/meson-logs/testlog.junit.xml
rm -f "$junit"
echo "== meson test"
meson test -C "$build" --print-errorlogs ${MESON_TEST_ARGS:-}
note meson $? "$junit"

echo "== pytest"
# shellcheck disable=SC2086 # PYTEST_ARGS are words
"$python" tools/run-pytest.py "$build" "$reports" ${PYTEST_ARGS:-}
status=$?
if [ -f "$reports/failed" ]; then
    mapfile -t -O "${#failed_runners[@]}" failed_runners <"$reports/failed"
elif [ $status -ne 0 ]; then
    failed_runners+=(pytest)
fi

exec "$python" - "$reports" "${failed_runners[@]}" <<'PYTHON'
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
blamed = set()
for report in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except ElementTree.ParseError:
        continue
    for case in cases:
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
            blamed.add(report.stem)
            print(f"FAILED {report.stem}: {case.get('classname', '')} {case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
for runner in sys.argv[2:]:
    if runner not in blamed:
        failed += 1
        print(f"FAILED {runner}: the runner itself failed, see above")
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(1 if failed else 0)
PYTHON
