#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# vm.sh [IMAGE.tar]: boots a Debian with systemd, AppArmor and cgroup v2 in QEMU, installs this build
# there as docs/deploy.md says, and runs guest.sh inside: the units, a user's session, and with
# an image (docker.sh saves one) Docker. The last line is "N passed, N failed". HERMES_VM_PARTS
# (systemd,user,docker) chooses.
set -eu
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=${HERMES_VM_CACHE:-$repo/build/vm-deploy}
limit=${HERMES_VM_SECONDS:-3600}
image=${1:-}

say() { printf 'vm: %s\n' "$*"; }
fail_run() {
    say "$1" >&2
    echo "0 passed, 1 failed"
    exit 1
}
for program in qemu-system-x86_64 mmdebstrap mkfs.ext4 cpio meson; do
    command -v "$program" >/dev/null || fail_run "$program is missing; make test-vm installs it"
done

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
rm -rf "$cache"/run.*
run=$(mktemp -d "$cache/run.XXXXXX")
qemu=
clean_up() {
    if [ -n "$qemu" ]; then
        kill -KILL "$qemu" 2>/dev/null || true
        wait "$qemu" 2>/dev/null || true
    fi
    rm -rf "$run"
}
trap clean_up EXIT
trap 'exit 130' HUP INT TERM

base=$cache/base
key=$(cat "$here/packages.txt" "$here/../vm/base.sh" "$here/../vm/packages.txt" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$base/key" 2>/dev/null)" != "$key" ]; then
    rm -rf --one-file-system "$base" "$base.new"
    mkdir "$base.new"
    "$here/../vm/base.sh" "$base.new" "$here/packages.txt" 8g 9>&- || fail_run "no base image"
    echo "$key" >"$base.new/key"
    mv "$base.new" "$base"
fi

# What the guest gets: an installation, the page whose flags it tries, the scripts, the image.
mkdir -p "$run/disk/docs" "$run/disk/tools" "$run/initrd"
DESTDIR=$run/disk/install meson install -C "$repo/build" --no-rebuild >/dev/null
cp "$repo/docs/deploy.md" "$run/disk/docs/"
cp -r "$repo/packaging" "$run/disk/"
cp -r "$here" "$run/disk/tools/deploy"
if [ -n "$image" ]; then
    ln "$image" "$run/disk/image.tar" 2>/dev/null || cp "$image" "$run/disk/image.tar"
fi
tar -C "$run/disk" --owner=0 --group=0 --numeric-owner -cf "$run/disk.tar" .
truncate -s %1M "$run/disk.tar"
rm -r "$run/disk"
cp -r "$base/initrd/." "$run/initrd"
install -m 755 "$here/../vm/initramfs.sh" "$run/initrd/init"
(cd "$run/initrd" && find . | cpio --quiet -o -H newc | gzip -1) >"$run/initrd.gz"

console=$cache/console.log
: >"$console"
say "boot $(cat "$base/version") with systemd in QEMU, no KVM, no network"
TMPDIR=$run setpriv --pdeathsig KILL qemu-system-x86_64 \
    -no-user-config -nodefaults -display none -no-reboot -nic none \
    -M q35 -accel tcg,thread=multi -cpu max -smp 2 -m "${HERMES_VM_MEMORY:-4096}" \
    -kernel "$base/vmlinuz" -initrd "$run/initrd.gz" \
    -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off rw security=apparmor \
systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all systemd.run=/hermes/tools/deploy/guest.sh \
systemd.run_success_action=poweroff-force systemd.run_failure_action=poweroff-force \
hermes.parts=${HERMES_VM_PARTS:-systemd,user,docker} hermes.repo=/hermes hermes.init=/sbin/init" \
    -drive "id=root,file=$base/root.ext4,format=raw,if=none,snapshot=on,cache=unsafe" \
    -device virtio-blk-pci,drive=root \
    -drive "id=disk,file=$run/disk.tar,format=raw,if=none,readonly=on" \
    -device virtio-blk-pci,drive=disk -serial stdio </dev/null >"$console" 2>&1 9>&- &
qemu=$!
tail -n +1 -s 0.5 -f --pid="$qemu" "$console" 2>/dev/null 9>&- |
    sed -u -n 's/\r$//; s/^.*hermes-vm: /vm: /p; s/^.*docker: /docker: /p; s/^.*hermes-vm|/   /p' &
for ((i = 0; i < limit; i++)); do
    kill -0 "$qemu" 2>/dev/null || break
    sleep 1
done
closing=$(tr -d '\r' <"$console" | sed -n 's/^.*hermes-vm: done: //p' | tail -n 1)
if [ -z "$closing" ]; then
    tr -d '\r' <"$console" | tail -n 30
    fail_run "the guest did not finish; console in $console"
fi
wait "$qemu" 2>/dev/null || true
qemu=
sleep 1 # what it said last
echo "$closing"
[[ $closing == *" 0 failed" ]]
