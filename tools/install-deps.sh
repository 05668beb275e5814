#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that are missing from the named sets: build, test, runtimes.
# Quick and silent when nothing is missing; otherwise says what it installs. Uses sudo when it
# is not run by root.
set -eu

build='make meson ninja-build gcc pkg-config libc6-dev libjansson-dev musl-tools libseccomp-dev
nettle-dev libsqlite3-dev libcurl4-gnutls-dev libedit-dev libarchive-dev libwslay-dev'
test='libcmocka-dev python3 python3-pytest python3-requests python3-websockets python3-numpy
python3-pandas python3-matplotlib python3-ipython python3-pil bubblewrap strace wrk
uidmap openssl zsh fish mandoc python3-venv python3-fastjsonschema clang clang-format clang-tidy libclang-rt-14-dev cppcheck'

say() { printf '%s\n' "install-deps: $*"; }
die() { printf '%s\n' "install-deps: $*" >&2; exit 1; }

packages=
with_tests=false
with_runtimes=false
[ $# -gt 0 ] || die "usage: $0 build|test|runtimes..."
for set_name in "$@"; do
    case $set_name in
    build) packages="$packages $build" ;;
    test)
        packages="$packages $test"
        with_tests=true
        ;;
    runtimes) with_runtimes=true ;;
    *) die "unknown set '$set_name': build, test and runtimes are known" ;;
    esac
done

if [ "$packages" ] && ! command -v dpkg-query >/dev/null; then
    say "this is not a Debian system; install the equivalent of:$(printf ' %s' $packages)"
    packages=
fi

# One query for all: the packages that are installed, taken away from those wanted.
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

# nginx as a program only: its package would start a web server, now and at every boot.
tools=$(dirname "$0")/../build-tools
if $with_tests && ! [ -x /usr/sbin/nginx ] && ! [ -x "$tools/usr/sbin/nginx" ]; then
    say "unpacking nginx into build-tools"
    mkdir -p "$tools"
    (cd "$tools" && apt-get -q download nginx && dpkg-deb -x nginx_*.deb . && rm nginx_*.deb) ||
        say "nginx could not be downloaded: its tests are skipped"
fi

# Programs that read the API document, from PyPI and npm, as pinned in tools/openapi.
pins=$(cd "$(dirname "$0")/openapi" && cat requirements.txt package-lock.json | cksum)
if $with_tests && [ "$(cat "$tools/openapi/installed" 2>/dev/null)" != "$pins" ]; then
    say "installing programs for the API document into build-tools/openapi"
    rm -rf "$tools/openapi"
    mkdir -p "$tools/openapi"
    cp "$(dirname "$0")"/openapi/* "$tools/openapi"
    (cd "$tools/openapi" && /usr/bin/python3 -m venv venv &&
        venv/bin/pip install -q --no-deps -r requirements.txt && npm ci --silent --no-fund --no-audit &&
        printf '%s\n' "$pins" >installed) ||
        say "no programs for the API document: their tests are skipped"
fi

if $with_runtimes; then
    exec "$(dirname "$0")/install-runtimes.sh"
fi
