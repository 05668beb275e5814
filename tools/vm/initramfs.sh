#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# /init of the initial RAM disk: finds the disks, unpacks the repository's copy, goes on to
# guest-init.sh, or to the program that hermes.init= names. An error ends pid 1; the kernel then panics, reboots, and QEMU ends.
set -eu
b=/bin/busybox

$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
echo "hermes-vm: kernel $($b uname -r) is up"

for module in /modules/*; do
    $b insmod "$module"
done
tries=0
while [ ! -b /dev/vda ] || [ ! -b /dev/vdb ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then
        echo "hermes-vm: the disks do not appear"
        exit 1
    fi
    $b sleep 0.1
done

option() { $b sed -n "s/.*hermes\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
repo=$(option repo)
init=$(option init)
$b mount -t ext4 /dev/vda /new
$b mkdir -p "/new$repo"
$b tar -x -f /dev/vdb -C "/new$repo"

$b mount --move /proc /new/proc
$b mount --move /sys /new/sys
$b mount --move /dev /new/dev
if [ -n "$init" ]; then
    exec $b switch_root /new "$init"
fi
exec $b switch_root /new "$repo/tools/vm/guest-init.sh" "$repo"
