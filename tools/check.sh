#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The quick look before a commit: unit tests, layers, style, and one test of each area against
# real boxes and a real server. Under a minute on an idle machine; `make test` is the whole.
#
#   tools/check.sh BUILD_DIR
set -u

cd "$(dirname "$0")/.." || exit 1
build=$(cd "${1:?usage: tools/check.sh BUILD_DIR}" && pwd) || exit 1
export HERMES_BUILD_DIR=$build PYTHONDONTWRITEBYTECODE=1

# One test of each area. Areas that need root skip themselves without it.
smoke=(
    tests/cli/test_options.py
    tests/run/test_run.py::test_stdin_is_passed_through
    tests/files/test_mounts.py::test_read_only_refuses
    'tests/languages/test_table.py::test_hello[python]'
    'tests/languages/test_table.py::test_hello[c]'
    tests/spawner/test_messages.py::test_a_sound_request_runs
    tests/api/test_native.py::test_a_run_answers_with_everything
    tests/api/test_browser.py::test_the_body_of_an_untyped_blob
    tests/warm/test_warm.py::test_many_at_once
    'tests/judge/test_judge_verdicts.py::test_every_verdict[python]'
    'tests/sessions/test_session_life.py::test_state_stays[python]'
    tests/approval/test_approvals.py::test_approve_once
    tests/mcp/test_mcp_wire.py::test_checks_of_the_stateless_wire_have_an_order
    tests/kernels/test_kernel_bash.py::test_set_e_stays
    tests/images/test_layer.py::test_in_a_box
    'tests/images/test_oci.py::test_there_and_back[gzip-oci]'
    tests/attacks/check_cases.py
)

status=0
meson test -C "$build" --print-errorlogs || status=1
/usr/bin/python3 -m pytest -q -ra -o cache_dir="$build/pytest-cache-check" "${smoke[@]}" || status=1
exit $status
