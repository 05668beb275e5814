#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the toolchains of runtimes/ on Debian 12: Debian's packages by apt, and the three
# programs that Debian lacks (deno, bun, esbuild) from the npm registry. They come as pinned
# tarballs with pinned SHA-512 sums: no install script runs and npm itself is not needed. uv, which
# installs Python packages in build boxes, comes from PyPI in the same way.
# Quick when nothing is missing. `--check` installs nothing and only prints what is missing.
set -eu

npm_dir=${HERMES_NPM_DIR:-/usr/local/lib/hermes/npm}
uv_dir=${HERMES_UV_DIR:-/usr/local/lib/hermes/uv}
registry=${NPM_CONFIG_REGISTRY:-https://registry.npmjs.org}
check_only=false
[ "${1:-}" = --check ] && check_only=true

packages=
say() { printf '%s\n' "install-runtimes: $*"; }

# want PACKAGE FILE...: the package is needed unless one of the files is there.
want()
{
    package=$1
    shift
    for file in "$@"; do
        [ -e "$file" ] && return 0
    done
    packages="$packages $package"
}

# Debian's rustc is 1.63; bookworm-security has a current one under another name.
rust_package()
{
    if apt-cache policy rustc-web 2>/dev/null | grep -q 'Candidate: [0-9]'; then
        echo rustc-web
    else
        echo rustc
    fi
}

want python3 /usr/bin/python3
want python3-pip /usr/lib/python3/dist-packages/pip/__main__.py
want nodejs /usr/bin/node
want gcc /usr/bin/gcc
want libc6-dev /usr/include/stdio.h
want g++ /usr/bin/g++
want default-jdk-headless /usr/lib/jvm/*/bin/javac
want golang-go /usr/local/go/bin/go /usr/lib/go-*/bin/go
want "$(rust_package)" /usr/bin/rustc /usr/local/rustup/toolchains/*/bin/rustc \
    /root/.rustup/toolchains/*/bin/rustc
want ruby /usr/bin/ruby
want php-cli /usr/bin/php
want php-mbstring /usr/lib/php/*/mbstring.so
want perl /usr/bin/perl
want lua5.4 /usr/bin/lua5.4
want sqlite3 /usr/bin/sqlite3
want r-base-core /usr/lib/R/bin/R
want locales-all /usr/lib/locale/C.utf8 /usr/lib/locale/locale-archive
want curl /usr/bin/curl
want shfmt /usr/bin/shfmt

if [ -n "$packages" ]; then
    if $check_only; then
        say "missing packages:$packages"
    else
        say "installing:$packages"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # shellcheck disable=SC2086
        apt-get install -y -qq --no-install-recommends $packages >/dev/null
    fi
fi

# fetch NAME VERSION PACKAGE FILE SHA512: one program out of a tarball of the npm registry.
fetch()
{
    name=$1 version=$2 package=$3 file=$4 sum=$5
    target=$npm_dir/bin/$name
    [ -x "$target" ] && [ "$(cat "$npm_dir/$name.version" 2>/dev/null)" = "$version" ] && return 0
    if $check_only; then
        say "missing: $name $version"
        return 0
    fi
    say "fetching $name $version from $registry"
    mkdir -p "$npm_dir/bin"
    work=$(mktemp -d "$npm_dir/tmp.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    curl -fsSL --retry 3 -o "$work/pack.tgz" \
        "$registry/$package/-/${package##*/}-$version.tgz"
    got=$(sha512sum "$work/pack.tgz" | cut -d' ' -f1)
    if [ "$got" != "$sum" ]; then
        say "$name: the download has SHA-512 $got, expected $sum" >&2
        exit 1
    fi
    tar -xzf "$work/pack.tgz" -C "$work" "package/$file"
    chmod 0755 "$work/package/$file"
    mv -f "$work/package/$file" "$target"
    echo "$version" >"$npm_dir/$name.version"
    rm -rf "$work"
    trap - EXIT
}

# fetch_uv VERSION SHA256: the program out of its wheel, which pip finds in the configured index.
fetch_uv()
{
    version=$1 sum=$2
    [ -x "$uv_dir/uv" ] && [ "$(cat "$uv_dir/version" 2>/dev/null)" = "$version" ] && return 0
    if $check_only; then
        say "missing: uv $version"
        return 0
    fi
    say "fetching uv $version"
    mkdir -p "$uv_dir"
    work=$(mktemp -d "$uv_dir/tmp.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    echo "uv==$version --hash=sha256:$sum" >"$work/lock"
    /usr/bin/python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -d "$work" -r "$work/lock"
    /usr/bin/python3 -m zipfile -e "$work"/uv-*.whl "$work/wheel"
    chmod 0755 "$work/wheel/uv-$version.data/scripts/uv"
    mv -f "$work/wheel/uv-$version.data/scripts/uv" "$uv_dir/uv"
    echo "$version" >"$uv_dir/version"
    rm -rf "$work"
    trap - EXIT
}

case $(uname -m) in
x86_64)
    fetch_uv 0.13.8 e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984
    fetch deno 2.9.6 @deno/linux-x64-glibc deno \
        de67784ca2c2bb3b0b0e67cea02e4a37b34065ac525643209bae2f83a7e80f4d090400c2a584b6ff942a5dfce09cfe59433de22cff6f05026d120735d7a380a1
    fetch bun 1.4.4 @oven/bun-linux-x64 bin/bun \
        0876db9261d5336f13d4616afba18be00a38ba3c306308f50b1145c041732da9cf7cdb0877d0216c83f4438ade5ae5819068a6524a10ca0acaed1823b63defa2
    fetch esbuild 0.28.2 @esbuild/linux-x64 bin/esbuild \
        e314d9af5154992a105b85c85a68addedcd0ad44d933e3773f45d5f3144e298179d177c8ef178ef74fb56d9bcdc3122e7d0f610d0551247e588603d517c03f1d
    ;;
aarch64)
    fetch_uv 0.13.8 0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d
    say "deno: no pinned build for this machine, left out"
    fetch bun 1.4.4 @oven/bun-linux-aarch64 bin/bun \
        65356da5ff7398748154f5f5b01c1ee5a8066ffacddf8c8f1a0fc76f2f1ed80c76b82500d944592a5647eea2e7b4aeea68524231787dbf4196358376cc8373d7
    fetch esbuild 0.28.2 @esbuild/linux-arm64 bin/esbuild \
        a56e000b43f78adf1cedda3d315338a79d45cc7cdd33f4d9adeaeeae045c1c9d964dad55435088ab5f319dc7e9049c38a23922659aca5b6c8805604ff768fa52
    ;;
*)
    say "uv, deno, bun, esbuild: no pinned build for $(uname -m), left out"
    ;;
esac

# Each toolchain must start. show NAME COMMAND...: prints the first line of its version.
failed=
show()
{
    name=$1
    shift
    if line=$("$@" 2>&1 </dev/null | head -n 1) && [ -n "$line" ]; then
        printf '  %-11s %s\n' "$name" "$line"
    else
        printf '  %-11s MISSING\n' "$name"
        failed="$failed $name"
    fi
}

# first FILE...: the first of them that exists, or a name that fails.
first()
{
    for file in "$@"; do
        [ -x "$file" ] && echo "$file" && return 0
    done
    echo /nonexistent
}

show python /usr/bin/python3 --version
show node /usr/bin/node --version
show c /usr/bin/gcc --version
show cpp /usr/bin/g++ --version
show java "$(first /usr/lib/jvm/*/bin/javac)" --version
show go "$(first /usr/local/go/bin/go /usr/lib/go-*/bin/go)" version
show rust "$(first /root/.rustup/toolchains/*/bin/rustc /usr/local/rustup/toolchains/*/bin/rustc \
    /usr/bin/rustc)" --version
show bash /bin/bash --version
show ruby /usr/bin/ruby --version
show php /usr/bin/php --version
show perl /usr/bin/perl -e 'print "perl $^V\n"'
show lua /usr/bin/lua5.4 -v
show sql /usr/bin/sqlite3 --version
show r /usr/lib/R/bin/R --version
show deno env DENO_NO_UPDATE_CHECK=1 "$npm_dir/bin/deno" --version
show bun "$npm_dir/bin/bun" --version
show esbuild "$npm_dir/bin/esbuild" --version
show uv "$uv_dir/uv" --version

if [ -n "$failed" ]; then
    say "not there:$failed" >&2
    exit 1
fi
say "all runtimes are there"
