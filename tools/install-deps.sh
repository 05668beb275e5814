#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that are missing from the named sets: build, test, images, engines,
# runtimes.
# Quick and silent when nothing is missing; otherwise says what it installs. Uses sudo when it
# is not run by root.
set -eu

build='make meson ninja-build gcc pkg-config libc6-dev libjansson-dev musl-tools libseccomp-dev
nettle-dev libgnutls28-dev libsqlite3-dev libcurl4-gnutls-dev libedit-dev libarchive-dev libwslay-dev libc-ares-dev zlib1g-dev libzstd-dev libyaml-dev'
test='libcmocka-dev python3 python3-pytest nftables python3-requests python3-websockets python3-numpy
python3-pandas python3-matplotlib python3-ipython python3-pil bubblewrap strace wrk
uidmap iproute2 bind9-dnsutils curl wget git openssl zsh fish mandoc zstd openssh-client sudo shfmt python3-venv python3-fastjsonschema clang clang-format clang-tidy libclang-rt-14-dev cppcheck'
images='skopeo umoci buildah mmdebstrap'

say() { printf '%s\n' "install-deps: $*"; }
die() { printf '%s\n' "install-deps: $*" >&2; exit 1; }

packages=
with_tests=false
with_engines=false
with_runtimes=false
[ $# -gt 0 ] || die "usage: $0 build|test|images|engines|runtimes..."
for set_name in "$@"; do
    case $set_name in
    build) packages="$packages $build" ;;
    test)
        packages="$packages $test"
        with_tests=true
        ;;
    images) packages="$packages $images" ;;
    engines) with_engines=true ;;
    runtimes) with_runtimes=true ;;
    *) die "unknown set '$set_name': build, test, images, engines and runtimes are known" ;;
    esac
done

if [ "$packages" ] && ! command -v dpkg-query >/dev/null; then
    say "this is not a Debian system; install the equivalent of:$(printf ' %s' $packages)"
    packages=
fi

# One query for all: the wanted packages without the installed ones.
missing=
if [ "$packages" ]; then
    installed=" $(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $packages 2>/dev/null |
        sed -n 's/^installed //p' | tr '\n' ' ') "
    for package in $packages; do
        case $installed in
        *" $package "*) ;;
        *) missing="$missing $package" ;;
        esac
    done
fi

if [ "$missing" ]; then
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            die "missing:$missing; sudo is not installed: run apt-get install$missing as root"
        sudo=sudo
    fi
    say "installing$missing"
    apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300"
    # The package lists may be missing (a fresh container) or old (a name that is gone).
    $apt install --no-install-recommends $missing ||
        { $apt update && $apt install --no-install-recommends $missing; } ||
        die "apt-get could not install:$missing"
fi

# As programs only: their packages would start a server, now and at every boot.
tools=$(dirname "$0")/../build-tools
unpack() { # PROGRAM PACKAGE...
    program=$1
    shift
    if $with_tests && ! [ -x "/usr/sbin/$program" ] && ! [ -e "$tools/$program.installed" ]; then
        say "unpacking $* into build-tools"
        mkdir -p "$tools/deb"
        (cd "$tools/deb" && apt-get -q -o APT::Sandbox::User=root download "$@" &&
            for package in *.deb; do dpkg-deb -x "$package" .. || exit; done) &&
            touch "$tools/$program.installed" ||
            say "$program could not be downloaded: its tests are skipped"
        rm -rf "$tools/deb"
    fi
}
unpack nginx nginx
unpack sshd openssh-server libwrap0

# Engines of containers, which tests start with directories of their own. Their packages would start them, too.
engines='docker.io containerd runc tini podman conmon catatonit golang-github-containers-common
golang-github-containers-image libgpgme11 libassuan0 libdevmapper1.02.1 libsubid4 busybox-static bash-static'
if $with_engines && apt-cache policy runsc 2>/dev/null | grep -q 'Candidate: [0-9]'; then
    engines="$engines runsc"
fi
if $with_engines && [ "$(cat "$tools/engines/installed" 2>/dev/null)" != "$engines" ]; then
    say "unpacking Docker, Podman and gVisor into build-tools/engines"
    rm -rf "$tools/engines"
    mkdir -p "$tools/engines/deb"
    (cd "$tools/engines/deb" && apt-get -q -o APT::Sandbox::User=root download $engines &&
        for package in *.deb; do dpkg-deb -x "$package" .. || exit; done) >"$tools/engines/log" 2>&1 &&
        rm -r "$tools/engines/deb" && printf '%s\n' "$engines" >"$tools/engines/installed" ||
        say "no engines of containers: $(tail -n 1 "$tools/engines/log"); their tests are skipped"
fi

# Programs of others that the tests use, from PyPI and npm: readers of the API document, as pinned in tools/openapi,
# and clients of MCP, as pinned in tools/mcp.
for group in openapi mcp; do
    pins=$(cd "$(dirname "$0")/$group" && cat requirements.txt package-lock.json | cksum)
    if $with_tests && [ "$(cat "$tools/$group/installed" 2>/dev/null)" != "$pins" ]; then
        say "installing the programs of tools/$group into build-tools/$group"
        rm -rf "$tools/$group"
        mkdir -p "$tools/$group"
        cp "$(dirname "$0")/$group"/* "$tools/$group"
        (cd "$tools/$group" && /usr/bin/python3 -m venv venv &&
            venv/bin/pip install -q --no-deps -r requirements.txt && npm ci --silent --no-fund --no-audit --ignore-scripts &&
            printf '%s\n' "$pins" >installed) ||
            say "no programs of tools/$group: their tests are skipped"
    fi
done

if $with_runtimes; then
    exec "$(dirname "$0")/install-runtimes.sh"
fi
