#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# guest-tests.sh PART: what runs inside the guest, in the repository's directory, already with
# the identity and in the control group of the part. The last line is "N passed, N failed".
#
#   root       everything, as root
#   short      the same without the suites that watch the clock (tests/run, tests/api)
#   delegated  everything, as tester in a delegated subtree
#   plain      as tester without delegation: Hermes must refuse and say why
#
# A program that is not built is a failure, never a skip: this must not be green without testing.
set -u
part=$1
passed=0
failed=0
hermes=build/hermes
export HERMES_RUNTIMES=$PWD/runtimes # the unit tests lie deeper than the programs
scope=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/run.scope
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
printf 'print("hello from the box")\n' >"$work/hello.py"

pass() {
    passed=$((passed + ${2:-1}))
    printf 'ok    %s\n' "$1"
}
fail() {
    failed=$((failed + ${3:-1}))
    printf 'FAIL  %s: %s\n' "$1" "$2"
}
not_built() { fail "$1" "skipped: not built ($2 is missing)"; }

check() { # NAME COMMAND...: one test, its output shown when it fails
    local name=$1 status
    shift
    "$@" >"$work/out" 2>&1
    status=$?
    if [ "$status" -eq 0 ]; then
        pass "$name"
    else
        fail "$name" "exit status $status of: $*"
        tail -n 40 "$work/out" | sed 's/^/      /'
    fi
}

# suite NAME SECONDS COMMAND...: a command that counts for itself. Its last line with "N passed"
# and the like is taken over; without one, the exit status is the one test.
suite() {
    local name=$1 seconds=$2 status line p f e
    shift 2
    printf '===== %s\n' "$name"
    # pytest says what has failed so far when it is interrupted.
    timeout -s INT -k 60 "$seconds" "$@" 2>&1 | tee "$work/suite"
    status=${PIPESTATUS[0]}
    line=
    if [ "$name" != 'hermes doctor' ]; then # its text is free, its exit status is the test
        line=$(grep -E '(^|[^0-9])[0-9]+ (passed|failed|errors?|skipped)\b' "$work/suite" |
            tail -n 1)
    fi
    p=$(number "$line" passed)
    f=$(number "$line" failed)
    e=$(number "$line" 'errors?')
    f=$((f + e))
    if [ -z "$line" ] && [ "$status" -eq 0 ]; then
        p=1
    elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1
    fi
    if [ "$p" -gt 0 ]; then
        pass "$name ($p)" "$p"
    fi
    if [ "$status" -eq 124 ]; then
        fail "$name" "not done after $seconds s" "$f"
    elif [ "$f" -gt 0 ]; then
        fail "$name ($f)" "exit status $status" "$f"
    elif [ "$p" -eq 0 ]; then
        fail "$name" "tested nothing"
    fi
}
number() {
    local n
    n=$(grep -oE "[0-9]+ $2\b" <<<"$1" | grep -oE '^[0-9]+' | tail -n 1)
    echo "${n:-0}"
}

# ----- the machine is what it is meant to be -----

own_cgroup() { echo "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"; }

only_v2() {
    ! awk '$3 == "cgroup"' /proc/mounts | grep . &&
        [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] &&
        [ "$(wc -l </proc/self/cgroup)" -eq 1 ]
}
controllers() {
    local c
    cat "$(own_cgroup)/cgroup.controllers"
    for c in cpu memory pids; do
        grep -qw "$c" "$(own_cgroup)/cgroup.controllers" || return 1
    done
}
landlock() {
    python3 -c '
import ctypes
abi = ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)
print("Landlock ABI", abi)
raise SystemExit(abi < 1)'
}
overlay() {
    mkdir -p "$work/l" "$work/m"
    # shellcheck disable=SC2016 # $1 is the inner shell's
    unshare --user --map-root-user --mount sh -euc '
        mount -t tmpfs tmpfs "$1/m" && mkdir "$1/m/u" "$1/m/w" "$1/m/o"
        mount -t overlay -o "userxattr,lowerdir=$1/l,upperdir=$1/m/u,workdir=$1/m/w" \
            overlay "$1/m/o" && : >"$1/m/o/x"' sh "$work"
}
namespaces() {
    unshare --user --map-root-user --mount --pid --net --ipc --uts --cgroup --fork \
        --mount-proc sh -c '[ $$ = 1 ]'
}
seccomp_filter() { # a filter that allows everything must load
    python3 -c '
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
class Prog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
prog = Prog(1, ctypes.addressof(allow))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(317, 1, 0, ctypes.byref(prog)) == 0, ctypes.get_errno()'
}
limits_work() { # in DIR: a limited child control group that stops a process and can be killed
    local dir=$1/env-check pid status=0
    mkdir "$dir" || return 1
    if echo 64M >"$dir/memory.max" && echo 16 >"$dir/pids.max" &&
        echo '50000 100000' >"$dir/cpu.max" && [ -w "$dir/cgroup.kill" ]; then
        sh -c 'echo $$ >"$1/cgroup.procs" && exec python3 -c "b\"x\" * (128 << 20)"' sh "$dir"
        grep -qx 'oom_kill 1' "$dir/memory.events" || { cat "$dir/memory.events"; status=1; }
        sh -c 'echo $$ >"$1/cgroup.procs" && exec sleep 100' sh "$dir" &
        pid=$!
        until grep -q . "$dir/cgroup.procs"; do sleep 0.1; done
        echo 1 >"$dir/cgroup.kill"
        wait "$pid"
        [ $? -eq 137 ] || status=1
    else
        status=1
    fi
    rmdir "$dir" || status=1
    return "$status"
}
no_delegation() { ! mkdir "$(own_cgroup)/env-check" && ! mkdir "$(own_cgroup)/../env-check"; }

environment() {
    echo "===== environment"
    echo "kernel $(uname -r), $(nproc) CPUs, $(id -un), $(cat /proc/self/cgroup)"
    echo "controllers here: $(cat "$(own_cgroup)/cgroup.controllers"); $(landlock)"
    check 'cgroup v2 only' only_v2
    check 'controllers cpu, memory, pids' controllers
    check 'landlock' landlock
    check 'seccomp filter' seccomp_filter
    check 'namespaces' namespaces
    check 'overlay in a user namespace' overlay
    case $part in
    root) check 'limits and cgroup.kill' limits_work /sys/fs/cgroup ;;
    delegated) check 'limits and cgroup.kill' limits_work "$(dirname "$(own_cgroup)")" ;;
    plain) check 'nothing is delegated' no_delegation ;;
    esac
}

# ----- the programs -----

unit_tests() {
    local found=0 program
    echo "===== unit tests"
    for program in build/tests/unit/*; do
        if [ -f "$program" ] && [ -x "$program" ] && [[ $program != *.so ]]; then
            found=1
            check "$program" timeout -k 10 300 "$program"
        fi
    done
    if [ "$found" -eq 0 ]; then
        not_built 'unit tests' build/tests/unit
    fi
}

python_tests() { # PATH...
    local dirs=() dir
    for dir in "$@"; do
        if [ -e "$dir" ]; then
            dirs+=("$dir")
        else
            not_built "$dir" "$dir"
        fi
    done
    if [ "${#dirs[@]}" -gt 0 ]; then
        suite "pytest ${dirs[*]}" 3000 \
            /usr/bin/python3 -m pytest -q -ra -p no:cacheprovider --basetemp="$work/pytest" \
            -m 'not timing' "${dirs[@]}"
    fi
}

everything() {
    unit_tests
    if [ -x "$hermes" ]; then
        suite 'hermes doctor' 120 "$hermes" doctor
        check 'hermes run says hello' says_hello
        check 'hermes run has limits of cgroup v2' uses_v2
        if [ "$part" = delegated ]; then
            check 'hermes run alone in a delegated scope' alone_in_scope
        fi
        # The first runs hermes selftest.
        python_tests tests/attacks tests/spawner tests/cli tests/warm/test_groups.py
        if [ "$part" != short ]; then
            python_tests tests/run tests/api
        fi
    else
        not_built 'hermes doctor' "$hermes"
        not_built 'hermes selftest' "$hermes"
        not_built 'pytest tests/attacks tests/run' "$hermes"
    fi
}

hello() { # ARGS...: output of a program that says hello, and nothing else
    local status
    timeout -k 10 120 "$hermes" run -l python "$@" - \
        <"$work/hello.py" >"$work/stdout" 2>"$work/stderr"
    status=$?
    cat "$work/stdout" "$work/stderr"
    return "$status"
}
says_hello() { hello "$@" && [ "$(cat "$work/stdout")" = 'hello from the box' ]; }
alone_in_scope() { # as `systemd-run --user --scope -p Delegate=yes hermes run` starts it
    # shellcheck disable=SC2016 # the variables are the inner shell's
    timeout -k 10 120 sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" run -l python "$3"' \
        sh "$scope" "$hermes" "$work/hello.py" >"$work/stdout" 2>"$work/stderr"
    cat "$work/stdout" "$work/stderr"
    [ "$(cat "$work/stdout")" = 'hello from the box' ]
}
uses_v2() { # the answer says that cgroup v2 limits are behind it
    hello --json && python3 -c '
import json, sys
answer = json.load(open(sys.argv[1]))
print(answer["isolation"])
assert answer["isolation"]["cgroup"] == "v2"
assert answer["isolation"]["level"] in ("full", "strong")' "$work/stdout"
}
refuses() {
    hello
    [ $? -eq 125 ] && [ ! -s "$work/stdout" ]
}
names() { grep -iqE "$1" "$work/stderr" || { cat "$work/stderr"; return 1; }; }

plain() {
    if [ -x "$hermes" ]; then
        check 'hermes run refuses with 125' refuses
        check 'names the memory limit' names 'memory'
        check 'names the process limit' names 'pids|process'
        check 'names the CPU limit' names 'cpu'
        check 'names the fix' names 'delegat'
        check 'runs with --min-level process' says_hello --min-level process
    else
        not_built 'hermes run refuses with 125' "$hermes"
    fi
}

environment
case $part in
root | short | delegated) everything ;;
plain) plain ;;
*) fail "$part" 'no such part' ;;
esac
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
