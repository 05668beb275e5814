#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# guest-init.sh REPO: pid 1 of the guest. Sets up a machine as systemd leaves it, with cgroup v2
# alone, runs guest-tests.sh once per identity, reports on the console, powers off.
#
# Lines that begin with "hermes-vm: " are this script's; run.sh reads them. What the tests print
# is indented, so that no test can speak in its name.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
umask 022

repo=$1
passed=0
failed=0

say() { printf 'hermes-vm: %s\n' "$*"; }

power_off() {
    sync
    busybox poweroff -f
    sleep 5 # pid 1 must not return before the power is off
}
trap 'say "pid 1 ended early"; power_off' EXIT

option() { # NAME: its value on the kernel's command line
    sed -n "s/.*hermes\.$1=\([^ ]*\).*/\1/p" /proc/cmdline
}

# ----- file systems, names -----

mount_all() {
    mkdir -p /dev/pts /dev/shm /dev/mqueue &&
        mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /dev/pts &&
        mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /dev/shm &&
        mount -t mqueue mqueue /dev/mqueue &&
        mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run &&
        mount -t securityfs securityfs /sys/kernel/security &&
        mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot \
            cgroup2 /sys/fs/cgroup &&
        ln -sfn /proc/self/fd /dev/fd &&
        ln -sfn fd/0 /dev/stdin && ln -sfn fd/1 /dev/stdout && ln -sfn fd/2 /dev/stderr &&
        mkdir -p /run/lock /run/user/0 /run/user/1000 &&
        chmod 1777 /run/lock && chmod 700 /run/user/0 /run/user/1000 &&
        chown tester:tester /run/user/1000 &&
        hostname hermes-vm &&
        ip link set lo up || return 1
        # What controls of the attack cases need to show: an interface and a route beside lo,
        # socket families beside the usual ones, more descriptors than a shell is given.
        modprobe -a dummy vsock af_alg 2>/dev/null
        if ip link add dummy0 type dummy 2>/dev/null; then
            ip addr add 192.0.2.77/24 dev dummy0
            ip link set dummy0 up
        fi
        ulimit -Hn 65536
}

# tester must reach the copy.
open_repo() {
    local dir=$repo
    while [ "$dir" != / ]; do
        chmod a+rx "$dir"
        dir=$(dirname "$dir")
    done
}

# ----- control groups, named as systemd names them -----

tree=/sys/fs/cgroup
user_slice=$tree/user.slice
tester_slice=$user_slice/user-1000.slice
tester_service=$tester_slice/user@1000.service

enable() { # DIR: hand the controllers on to its children
    echo '+cpu +memory +pids' >"$1/cgroup.subtree_control"
}

delegate() { # DIR: give it to tester, as Delegate=yes does
    local file
    chown tester:tester "$1"
    while read -r file; do
        if [ -e "$1/$file" ]; then
            chown tester:tester "$1/$file"
        fi
    done </sys/kernel/cgroup/delegate
}

make_cgroups() {
    mkdir -p "$tree/init.scope" && echo 1 >"$tree/init.scope/cgroup.procs" && enable "$tree" &&
        mkdir -p "$user_slice/user-0.slice/session-1.scope" "$tester_slice/session-2.scope" &&
        enable "$user_slice" && enable "$user_slice/user-0.slice" && enable "$tester_slice" &&
        mkdir "$tester_service" && delegate "$tester_service" && enable "$tester_service" &&
        # The tests run in a leaf of a delegated directory whose controllers are handed on ...
        mkdir "$tester_service/hermes.scope" && delegate "$tester_service/hermes.scope" &&
        enable "$tester_service/hermes.scope" &&
        mkdir "$tester_service/hermes.scope/tests" &&
        delegate "$tester_service/hermes.scope/tests" &&
        # ... and one program alone in its scope: `systemd-run --user --scope -p Delegate=yes`.
        mkdir "$tester_service/run.scope" && delegate "$tester_service/run.scope"
}

# ----- the parts -----

left_over() { # what a part must leave as it was
    find "$tree" -mindepth 1 -type d ! -path "$tester_service/run.scope/*" | sort
    awk '{ print $5, $9 }' /proc/self/mountinfo
    # Everything but kernel threads, pid 1 and this pipe.
    ps --no-headers -o pid=,comm= --ppid 2 -p 2 -N | awk -v self=$$ '
        $1 != self && $2 != "ps" && $2 != "awk" { print $2 }'
}

run_part() { # NAME USER CGROUP
    local name=$1 user=$2 group=$3 home=/root uid=0 line p f start=$SECONDS
    if [ "$user" = tester ]; then
        home=/home/tester
        uid=1000
    fi
    say "part $name: begins, as $user in ${group#"$tree"}"
    dmesg --clear
    left_over >/run/before
    (
        echo $BASHPID >"$group/cgroup.procs" || exit 1
        cd "$repo" || exit 1
        exec setpriv --reuid "$user" --regid "$user" --init-groups \
            env -i PATH="$PATH" HOME="$home" USER="$user" LOGNAME="$user" SHELL=/bin/bash \
            LANG=C.UTF-8 XDG_RUNTIME_DIR="/run/user/$uid" PYTHONDONTWRITEBYTECODE=1 \
            HERMES_IN_VM=1 HERMES_VM_PART="$name" \
            "$repo/tools/vm/guest-tests.sh" "$name"
    ) </dev/null 2>&1 | tee /run/part.log | sed -u 's/^/  /'

    line=$(tail -n 1 /run/part.log | grep -xE '[0-9]+ passed, [0-9]+ failed')
    if [ -n "$line" ]; then
        read -r p _ f _ <<<"$line"
    else
        say "part $name: ended without its closing line"
        p=0
        f=1
    fi

    # A dying box may need a moment.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left_over >/run/after
        cmp -s /run/before /run/after && break
        sleep 0.3
    done
    if cmp -s /run/before /run/after; then
        p=$((p + 1))
    else
        say "part $name: left something behind (or took something away):"
        diff /run/before /run/after | sed 's/^/  /'
        f=$((f + 1))
    fi
    # Boxes that run out of memory are expected; the machine running out of it is not.
    if dmesg | grep -E 'BUG:|WARNING:|Oops|constraint=CONSTRAINT_NONE' | grep -v 'soft lockup' \
        >/run/kernel; then
        say "part $name: the kernel complains:"
        sed 's/^/  /' /run/kernel
        f=$((f + 1))
    else
        p=$((p + 1))
    fi
    if [ "$f" -gt 0 ]; then
        say "part $name: from the kernel's log:"
        dmesg | grep -E 'oom-kill:|Killed process|segfault|apparmor|BUG|WARNING' |
            tail -n 15 | cut -c 1-300 | sed 's/^/  /'
    fi
    say "part $name: $p passed, $f failed, $((SECONDS - start)) s"
    passed=$((passed + p))
    failed=$((failed + f))
}

if ! mount_all || ! open_repo || ! make_cgroups; then
    say "the guest could not be set up"
    exit 1
fi
say "user space is up after $(cut -d' ' -f1 /proc/uptime) s"

if [ "$(option shell)" = 1 ]; then
    cd "$repo" || exit 1
    echo "A shell in the guest; leave it with exit. Escape to QEMU: Ctrl-a x."
    setsid --ctty --wait bash -l </dev/ttyS0 >/dev/ttyS0 2>&1
else
    parts=$(option parts)
    for part in ${parts//,/ }; do
        case $part in
        root | short) run_part "$part" root "$user_slice/user-0.slice/session-1.scope" ;;
        delegated) run_part delegated tester "$tester_service/hermes.scope/tests" ;;
        plain) run_part plain tester "$tester_slice/session-2.scope" ;;
        *)
            say "no such part: $part"
            failed=$((failed + 1))
            ;;
        esac
    done
fi
say "done: $passed passed, $failed failed"
trap - EXIT
power_off
