#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# base.sh DIR [PACKAGES [SIZE]]: makes the files that do not change from run to run. PACKAGES is a file of
# package names beside packages.txt, SIZE is the size of the file system.
#
#   DIR/vmlinuz      Debian's cloud kernel, unpacked from its package, not installed
#   DIR/root.ext4    a small Debian with that kernel's modules and the user `tester`
#   DIR/initrd       what the initial RAM disk needs, without its /init
#   DIR/version      the kernel's release
#
# Needs root, for the owners of the files in the image. Mounts nothing on the host.
set -eu
export LC_ALL=C
umask 022

here=$(cd "$(dirname "$0")" && pwd)
out=$1
more=${2:-/dev/null}
size=${3:-3g}

say() { printf 'test-vm: %s\n' "$*"; }

# ----- kernel -----

kernel_package() {
    apt-cache depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1
}

mkdir -p "$out/deb" "$out/kernel"
package=$(kernel_package)
if [ -z "$package" ]; then
    apt-get -q update
    package=$(kernel_package)
fi
if [ -z "$package" ]; then
    say "apt knows no linux-image-cloud-amd64; add the main section of Debian to its sources" >&2
    exit 1
fi
say "fetch $package"
fetch() { (cd "$out/deb" && apt-get -q -o APT::Sandbox::User=root download "$package"); }
# The list may be older than the archive.
fetch || { apt-get -q update && package=$(kernel_package) && fetch; }
dpkg-deb -x "$out/deb/$package"_*.deb "$out/kernel"
version=${package#linux-image-}
cp "$out/kernel/boot/vmlinuz-$version" "$out/vmlinuz"

# ----- root file system -----

# The host's own Debian mirror if there is one, so that a machine that reaches only that works.
sources=()
if [ -f /etc/apt/sources.list.d/debian.sources ]; then
    sources=(/etc/apt/sources.list.d/debian.sources)
elif grep -q '^deb .*http' /etc/apt/sources.list 2>/dev/null; then
    grep '^deb .*http' /etc/apt/sources.list >"$out/sources.list"
    sources=("$out/sources.list")
fi
options=()
for key in Acquire::http::Proxy Acquire::https::Proxy Acquire::Check-Valid-Until; do
    value=
    eval "$(apt-config shell value "$key")"
    if [ -n "$value" ]; then
        options+=("--aptopt=$key \"$value\"")
    fi
done

say "build the guest's root file system"
mmdebstrap --quiet --mode=root --format=directory --variant=minbase \
    --include="$(cat "$here/packages.txt" "$more" | grep -v '^#' | paste -sd,)" \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    ${options[0]+"${options[@]}"} \
    bookworm "$out/root" ${sources[0]+"${sources[@]}"}

root=$out/root
cp -a "$out/kernel/lib/modules" "$root/usr/lib/"
chroot "$root" depmod "$version"
# useradd gives tester its range in /etc/subuid and /etc/subgid.
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash tester
: >"$root/etc/resolv.conf" # there is no network; tests mount their own
echo hermes-vm >"$root/etc/hostname"
printf '127.0.0.1 localhost hermes-vm\n::1 localhost\n' >"$root/etc/hosts"

# ----- initial RAM disk: busybox and the modules of the disk, in the order of loading -----

initrd=$out/initrd
mkdir -p "$initrd/bin" "$initrd/modules" "$initrd/proc" "$initrd/sys" "$initrd/dev" "$initrd/new"
cp "$root/bin/busybox" "$initrd/bin/busybox"
number=10
for module in virtio_pci virtio_blk; do
    while read -r verb path _; do
        name=$(basename "$path")
        if [ "$verb" != insmod ] || ls "$initrd/modules"/[0-9]*-"$name" >/dev/null 2>&1; then
            continue
        fi
        cp "$root$path" "$initrd/modules/$number-$name"
        number=$((number + 1))
    done < <(chroot "$root" modprobe -S "$version" --show-depends "$module")
done

say "write the image"
mkfs.ext4 -q -F -L hermes-vm -m 0 -O ^has_journal -d "$root" "$out/root.ext4" "$size"
rm -rf --one-file-system "$root" "$out/kernel" "$out/deb" "$out/sources.list"
echo "$version" >"$out/version"
