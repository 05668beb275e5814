#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Boots Debian's cloud kernel in QEMU, with cgroup v2 only, and runs guest-tests.sh inside, as
# root and as an ordinary user. The last line is "N passed, N failed"; exit status 0 only if
# nothing failed. docs/internals/test-vm.md has the rest.
set -eu
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=${HERMES_VM_CACHE:-$repo/build/vm}
memory=${HERMES_VM_MEMORY:-4096}         # MiB
boot_limit=${HERMES_VM_BOOT_SECONDS:-120} # until user space is up
limit=${HERMES_VM_SECONDS:-3600}         # in all
parts=root,delegated,plain
shell=0
loglevel=3

say() { printf 'test-vm: %s\n' "$*"; }

# fail_run WHY: the closing line is printed in any case.
fail_run() {
    say "$1" >&2
    echo "0 passed, 1 failed"
    exit 1
}

usage() {
    cat <<'EOF'
usage: tools/vm/run.sh [--parts root,delegated,plain] [--shell] [--verbose] [--rebuild]
  --parts    run only these
  --shell    a root shell in the guest instead of the tests
  --verbose  all of the kernel's messages on the console
  --rebuild  make the kernel and the base image anew
environment: HERMES_VM_CACHE HERMES_VM_MEMORY HERMES_VM_SECONDS HERMES_VM_BOOT_SECONDS
EOF
}

arguments=("$@")
rebuild=0
while [ $# -gt 0 ]; do
    case $1 in
    --parts) parts=${2:?--parts needs a list} && shift ;;
    --shell) shell=1 ;;
    --verbose) loglevel=7 ;;
    --rebuild) rebuild=1 ;;
    -h | --help) usage && exit 0 ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done

case $repo in
*[[:space:]]*) fail_run "the repository's path must not contain a blank: $repo" ;;
esac

if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null; then
        exec sudo --preserve-env=HERMES_VM_CACHE,HERMES_VM_MEMORY,HERMES_VM_SECONDS,HERMES_VM_BOOT_SECONDS \
            "$0" ${arguments[0]+"${arguments[@]}"}
    fi
    fail_run "needs root, to make the guest's file system"
fi

# ----- what the host must have -----

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need qemu-system-x86_64 qemu-system-x86
need mmdebstrap mmdebstrap
need mkfs.ext4 e2fsprogs
need cpio cpio
if [ ${#missing[@]} -gt 0 ]; then
    say "install ${missing[*]}"
    install_missing() {
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
            install -y --no-install-recommends "${missing[@]}" >/dev/null
    }
    # The lists may be absent or old; a third party's broken source must not stop us.
    install_missing 2>/dev/null || { apt-get -qq update || true; install_missing; } ||
        fail_run "apt-get could not install ${missing[*]}"
fi

# ----- one run at a time; nothing stays behind -----

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || { say "another run is using $cache; waiting" && flock 9; }
rm -rf "$cache"/run.* # of a run that was killed

run=
qemu=
follow=
clean_up() {
    if [ -n "$qemu" ] && kill -0 "$qemu" 2>/dev/null; then
        kill -KILL "$qemu"
        wait "$qemu" 2>/dev/null || true
    fi
    if [ -n "$follow" ]; then
        kill "$follow" 2>/dev/null || true
    fi
    if [ -n "$run" ]; then
        rm -rf "$run"
    fi
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ----- kernel and base image, made once -----

base=$cache/base
key=$(cat "$here/base.sh" "$here/packages.txt" | sha256sum | cut -d' ' -f1)
if [ "$rebuild" = 1 ] || [ "$(cat "$base/key" 2>/dev/null)" != "$key" ]; then
    start=$SECONDS
    rm -rf --one-file-system "$base" "$base.new"
    mkdir -p "$base.new"
    "$here/base.sh" "$base.new" 9>&- || fail_run "the base image could not be made"
    echo "$key" >"$base.new/key"
    mv "$base.new" "$base"
    say "kernel and base image made in $((SECONDS - start)) s"
fi

# ----- this run's disks -----

run=$(mktemp -d "$cache/run.XXXXXX")
cp -r "$base/initrd" "$run/initrd"
install -m 755 "$here/initramfs.sh" "$run/initrd/init"
(cd "$run/initrd" && find . | cpio --quiet -o -H newc | gzip -1) >"$run/initrd.gz"

tar -C "$repo" --owner=0 --group=0 --numeric-owner --mode=a+rX \
    --exclude=./.git --exclude=./build/vm --exclude='./build-*' --exclude='*.p' \
    -cf "$run/repo.tar" .
truncate -s %1M "$run/repo.tar"

# ----- boot -----

console=$cache/console.log
qemu_command=(setpriv --pdeathsig KILL qemu-system-x86_64
    -no-user-config -nodefaults -display none -no-reboot -nic none
    -M q35 -accel "tcg,thread=multi" -cpu max -smp 2 -m "$memory"
    -kernel "$base/vmlinuz" -initrd "$run/initrd.gz"
    -append "console=ttyS0 quiet loglevel=$loglevel panic=-1 mitigations=off log_buf_len=4M cgroup_no_v1=all hermes.repo=$repo hermes.parts=$parts hermes.shell=$shell"
    -drive "id=root,file=$base/root.ext4,format=raw,if=none,snapshot=on,cache=unsafe"
    -device "virtio-blk-pci,drive=root"
    -drive "id=repo,file=$run/repo.tar,format=raw,if=none,readonly=on"
    -device "virtio-blk-pci,drive=repo")
export TMPDIR=$run # of the snapshot

say "boot $(cat "$base/version") in QEMU, no KVM, no network"
if [ "$shell" = 1 ]; then
    "${qemu_command[@]}" -serial mon:stdio 9>&-
    exit
fi

: >"$console"
start=$SECONDS
"${qemu_command[@]}" -serial stdio </dev/null >"$console" 2>&1 9>&- &
qemu=$!
# The filter ends with tail, and tail with QEMU.
tail -n +1 -s 0.2 -f --pid="$qemu" "$console" 2>/dev/null 9>&- > >(tr -d '\r') &
follow=$!

up=
why=
while kill -0 "$qemu" 2>/dev/null; do
    elapsed=$((SECONDS - start))
    if [ -z "$up" ] && grep -q '^hermes-vm: user space is up' "$console"; then
        up=$elapsed
    fi
    if [ -z "$up" ] && [ "$elapsed" -ge "$boot_limit" ]; then
        why="boot failed: no user space after $boot_limit s"
        break
    elif [ "$elapsed" -ge "$limit" ]; then
        why="killed after $limit s"
        break
    fi
    sleep 0.2
done
if [ -n "$why" ]; then
    kill -KILL "$qemu" 2>/dev/null || true
fi
status=0
wait "$qemu" 2>/dev/null || status=$?
qemu=
wait "$follow" 2>/dev/null || true
follow=

# ----- what came of it -----

lines=$(tr -d '\r' <"$console" | sed -n 's/^hermes-vm: //p')
closing=$(sed -n 's/^done: //p' <<<"$lines" | tail -n 1)
if [ -z "$why" ] && [ -z "$closing" ]; then
    if grep -q '^user space is up' <<<"$lines"; then
        why="the guest ended before its tests did (QEMU's exit status $status)"
    else
        why="boot failed: the guest ended before user space was up (QEMU's exit status $status)"
    fi
fi

echo
say "user space after ${up:-?} s, power off after $((SECONDS - start)) s; console in $console"
if [ -n "$why" ]; then
    say "the console's last lines:"
    tr -d '\r' <"$console" | tail -n 30 | sed 's/^/    /'
    say "$why"
fi
passed=0
failed=0
while read -r _ name p _ f _; do
    say "part ${name%:}: $p passed, $f failed"
    passed=$((passed + p))
    failed=$((failed + f))
done < <(grep -E '^part [a-z]+: [0-9]+ passed, [0-9]+ failed' <<<"$lines" || true)
if [ -n "$why" ] || [ "$closing" != "$passed passed, $failed failed" ] || [ "$passed" -eq 0 ]; then
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
