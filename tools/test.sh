#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds into one directory and runs every test against it: meson's suites, then pytest. Goes
# on after a runner that fails, adds the runners' reports up and ends with one line,
# "N passed, N failed" and ", N skipped" where some were. Exit status 1 when anything failed.
# A test that failed and passed when it was repeated (HERMES_REPEAT, tools/run-pytest.py) counts
# as passed and is named in a line "UNSTEADY": it, or the product, has a defect to find.
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

# What runs in the virtual machine because it does not watch the clock (tools/vm/guest-tests.sh has it too), and what needs no
# box anywhere.
in_vm=(tests/attacks tests/spawner tests/cli)
boxless=(tests/bench tests/kernels)

run_meson() # ARGUMENT...
{
    local junit=$build/meson-logs/testlog.junit.xml
    rm -f "$junit"
    echo "== meson test $*"
    # shellcheck disable=SC2086 # MESON_TEST_ARGS are words
    meson test -C "$build" --print-errorlogs "$@" ${MESON_TEST_ARGS:-}
    note meson $? "$junit"
}

# Below the least level of isolation that boxes are made at (an unprivileged container, a kernel that is stuck) the tests run
# in the virtual machine, slower, but really. What is left out then is said, and counted as skipped.
run_without_boxes()
{
    local dir skipped=0 left_out=()
    cat "$reports/doctor.txt"
    echo "== this host is below the least level for boxes (hermes doctor, above): unit tests, attack"
    echo "   cases and controls, spawner and cli run in a virtual machine with cgroup v2 (tools/vm)"
    HERMES_VM_SECONDS=4500 tools/vm/run.sh --parts short,plain | tee "$reports/vm.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed_runners+=(vm)
    run_meson --no-suite unit
    echo "== pytest ${boxless[*]}"
    # shellcheck disable=SC2086 # PYTEST_ARGS are words
    "$python" -m pytest "${boxless[@]}" -q -ra -o junit_family=xunit2 -o cache_dir="$build/pytest-cache-boxless" \
        --junitxml="$reports/pytest-boxless.xml" ${PYTEST_ARGS:-}
    case $? in
    0 | 5) ;; # 5: PYTEST_ARGS leave none of them
    *) failed_runners+=(pytest-boxless) ;;
    esac
    for dir in tests/*; do
        if compgen -G "$dir/test_*.py" >/dev/null && [[ " ${in_vm[*]} ${boxless[*]} " != *" $dir "* ]]; then
            left_out+=("$dir")
            skipped=$((skipped + $(compgen -G "$dir/test_*.py" | wc -l)))
        fi
    done
    echo "== NOT run: ${left_out[*]} ($skipped files): they need a host with that level"
    echo "$skipped" >"$reports/left-out"
}

run_all()
{
    local status
    # Without seeds, tests that compile take minutes longer. Quick when they are there.
    "$build/hermes" seed || failed_runners+=(seed)
    run_meson
    echo "== pytest"
    # shellcheck disable=SC2086 # PYTEST_ARGS are words
    "$python" tools/run-pytest.py "$build" "$reports" ${PYTEST_ARGS:-}
    status=$?
    if [ -f "$reports/failed" ]; then
        mapfile -t -O "${#failed_runners[@]}" failed_runners <"$reports/failed"
    elif [ $status -ne 0 ]; then
        failed_runners+=(pytest)
    fi
}

if [ -z "${HERMES_IN_VM:-}" ] &&
    ! timeout -k 5 60 "$build/hermes" doctor >"$reports/doctor.txt" 2>&1; then
    run_without_boxes
else
    run_all
fi

exec "$python" tools/sum-reports.py "$reports" "${failed_runners[@]}"
