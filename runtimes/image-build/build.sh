# SPDX-License-Identifier: Apache-2.0
#
# Runs in a build box (docs/images.md). Its stdout is the tar of the new layer; its stderr is the
# log. /opt is a link to /box/layer/opt, so files lie where boxes of the image will see them.
#
#   build.sh LANGUAGE              python, javascript, bun, deno, go or rust; the files of the recipe are in /box; the layers below, if any, in /base
#   build.sh unpack BYTES ENTRIES  reads a tar from stdin and unpacks it to /mnt/layer/tree
#   build.sh split BYTES ENTRIES   reads the archive of an image and writes its members there
set -eu

tools=/usr/lib/hermes
layer=$tools/hermes-layer
installer=pip
. $tools/registries.sh

fail() {
    echo "hermes: $*" >&2
    exit 1
}

say() {
    echo "hermes: $*" >&2
}

# A program that a setup script can call: stub NAME COMMAND
stub() {
    printf '#!/bin/sh\n%s\n' "$2" >"/tmp/stubs/$1"
    chmod 755 "/tmp/stubs/$1"
}

# This base has no package manager of a system; a setup script that calls one should learn what to do.
make_stubs() {
    mkdir -p /tmp/stubs
    for name in apt apt-get aptitude apk dpkg yum dnf; do
        stub "$name" "echo 'hermes: $name: the base of this image has no system packages to add to; import a root file system and name it as \`base\` of the recipe (docs/images.md), install packages of pip or npm, or put files below /opt' >&2; exit 100"
    done
    export PATH="/opt/venv/bin:/opt/node_modules/.bin:/opt/bin:/usr/local/bin:/usr/bin:/bin:/tmp/stubs"
}

# Its cache is in this box and on the file system of the layer, so that files are links to it.
set_uv() {
    [ "$(cat installer 2>/dev/null)" = uv ] || return 0
    command -v uv >/dev/null || fail "uv came after the server had started; start it again, or set uv to false"
    installer=uv
    export UV_CACHE_DIR=/box/uv UV_PYTHON=/opt/venv/bin/python3 UV_PYTHON_DOWNLOADS=never UV_NO_CONFIG=1 UV_NO_PROGRESS=1
    export UV_CONCURRENT_DOWNLOADS=16 UV_CONCURRENT_BUILDS=2 UV_HTTP_RETRIES=2 NO_COLOR=1
}

# With a file `squash` the new layer has everything that the layers below have. Otherwise it has
# the differences only, and installers see the layers below in the form that they need.
copy_base() {
    say "copying the layers below"
    cp -a "$@" /opt/
    chmod -R u+w /opt
}

build_python() {
    if [ -d /base/venv ] && [ -e squash ]; then
        copy_base /base/.
        rm -f /opt/.none
    else
        /usr/bin/python3 -m venv --without-pip /opt/venv
    fi
    if [ -d /base/venv ] && [ ! -e squash ]; then
        for site in /opt/venv/lib/python3*/site-packages; do
            echo "/base/${site#/opt/}" >"$site/hermes-base.pth"
        done
    fi
    set_registries
    set_uv
    export PIP_PYTHON=/opt/venv/bin/python
    # With a lock, installs exactly the locked packages; otherwise the named ones, and writes a lock.
    [ -e base_lock ] || : >base_lock
    if [ -s lock.txt ]; then
        say "installing from the lock"
        "locked_$installer" lock.txt
        cp lock.txt lock.out
    elif [ -s requirements.txt ]; then
        say "installing requirements"
        "wanted_$installer"
    else
        cp base_lock lock.out
    fi
}

locked_pip() {
    /usr/bin/python3 -m pip install --no-compile --require-hashes --no-deps -r "$1"
}

wanted_pip() {
    /usr/bin/python3 -m pip install --no-compile -r requirements.txt --report /tmp/report.json
    /usr/bin/python3 -I "$tools/lock.py" pip /tmp/report.json base_lock >lock.out
}

locked_uv() {
    uv pip install --require-hashes --no-deps -r "$1"
}

# The lock comes first. uv keeps the versions of a lock that is there: here, of the layers below.
wanted_uv() {
    cp base_lock /tmp/lock.txt
    uv pip compile --quiet --generate-hashes --no-header --no-annotate -o /tmp/lock.txt requirements.txt
    /usr/bin/python3 -I "$tools/lock.py" uv /tmp/lock.txt base_lock new.txt >lock.out
    [ ! -s new.txt ] || locked_uv new.txt
}

npm_program() {
    for path in /usr/lib/node_modules/npm/bin/"$1"-cli.js /usr/share/nodejs/npm/bin/"$1"-cli.js; do
        [ -e "$path" ] && echo "$path" && return
    done
    fail "this host has no npm; install the package npm, or leave packages.npm out"
}

build_javascript() {
    set_registries
    npm=$(npm_program npm)
    if [ -d /base/node_modules ]; then
        copy_base /base/node_modules /base/package.json
        [ -e /base/package-lock.json ] && cp /base/package-lock.json /opt/
    fi
    mkdir -p /opt/node_modules
    [ -s package.json ] || return 0
    if [ -e /opt/package.json ]; then
        python3 -I "$tools/base.py" merge package.json /opt/package.json
    else
        cp package.json /opt/package.json
    fi
    cd /opt
    if [ -s /box/package-lock.json ]; then
        say "installing from the lock"
        cp /box/package-lock.json .
        node "$npm" ci
    else
        say "installing packages"
        node "$npm" install
    fi
    cd /box
}

# Modules of Go. Boxes resolve imports in this cache, as if it were a proxy (runtimes/go/runtime.json).
build_go() {
    set_registries
    for home in /usr/local/go /usr/lib/go-*; do
        [ -x "$home/bin/go" ] && PATH="$home/bin:$PATH" && break
    done
    export GOPATH=/opt/go GOMODCACHE=/opt/go/pkg/mod GOBIN=/opt/bin GOCACHE=/tmp/go-cache GOENV=off GOTOOLCHAIN=local GOTELEMETRY=off
    export GOFLAGS="-buildvcs=false -modcacherw" CGO_ENABLED=0
    mkdir -p /opt/go/pkg/mod/cache/download
}

# Crates are where cargo keeps them.
build_rust() {
    set_registries
    for home in $tools/rust/*; do
        [ -x "$home/bin/cargo" ] && PATH="$home/bin:$PATH" && break
    done
    export CARGO_HOME=/opt/cargo CARGO_INSTALL_ROOT=/opt CARGO_TARGET_DIR=/tmp/target CARGO_TERM_COLOR=never
    [ -z "${SSL_CERT_FILE:-}" ] || export CARGO_HTTP_CAINFO="$SSL_CERT_FILE"
    mkdir -p /opt/cargo
}

# `pip` finds the environment by PIP_PYTHON; this is for `python -m pip`, until the script installs a pip there.
lend_pip() {
    lent=$(echo /opt/venv/lib/python3*/site-packages)/pip
    [ -e "$lent" ] && return
    mkdir "$lent"
    echo 'import os, sys; os.execv("/usr/bin/python3", ["/usr/bin/python3", "-m", "pip", *sys.argv[1:]])' >"$lent/__main__.py"
}

take_pip_back() {
    [ -e "$lent/__init__.py" ] || rm -rf "$lent"
}

# `npm install -g` writes to /opt/lib/node_modules; programs look in /opt/node_modules.
link_global() {
    for path in /opt/lib/node_modules/* /opt/lib/node_modules/@*/*; do
        name=${path#/opt/lib/node_modules/}
        [ -e "$path" ] && [ ! -e "/opt/node_modules/$name" ] || continue
        case $name in
        @*/*) mkdir -p "/opt/node_modules/${name%/*}" ;;
        @*) continue ;;
        esac
        ln -s "$path" "/opt/node_modules/$name"
    done
}

run_setup() {
    [ -s setup.sh ] || return 0
    say "running the setup script"
    mkdir -p /opt/bin
    lent=
    case $1 in
    python)
        export VIRTUAL_ENV=/opt/venv PIP_BREAK_SYSTEM_PACKAGES=1
        lend_pip
        ;;
    javascript)
        export npm_config_prefix=/opt
        stub npm "exec node $(npm_program npm) \"\$@\""
        stub npx "exec node $(npm_program npx) \"\$@\""
        export BUN_INSTALL_CACHE_DIR=/tmp/bun DENO_DIR=/opt/deno DENO_NO_UPDATE_CHECK=1 NO_COLOR=1
        for name in bun deno; do
            [ "$language" != $name ] || stub $name "exec /usr/local/lib/hermes/npm/bin/$name \"\$@\""
        done
        ;;
    esac
    (cd /opt && sh -eu /box/setup.sh) || fail "the setup script ended with status $?"
    [ -z "$lent" ] || take_pip_back
    link_global
}

finish_python() {
    # pip notes what was asked for by name; a lock asks for everything by name.
    for dir in /opt/venv/lib/python3*/site-packages/*.dist-info; do
        [ -e "$dir/REQUESTED" ] || continue
        rm "$dir/REQUESTED"
        sed -i '/\/REQUESTED,/d' "$dir/RECORD"
    done
    # Times in a layer are all the same, so byte code must not depend on them.
    say "compiling to byte code"
    python3 -m compileall -q -f -j 1 --invalidation-mode unchecked-hash /opt/venv/lib >/dev/null || true
    # Which packages there are now, setup script included.
    /opt/venv/bin/python3 -I "$tools/lock.py" list >packages.json 2>/dev/null || echo '[]' >packages.json
    if [ -e /opt/venv/lib/python3*/site-packages/hermes-base.pth ]; then
        rm /opt/venv/lib/python3*/site-packages/hermes-base.pth
        /usr/bin/python3 -I "$tools/base.py" pip
    fi
}

# Which modules a warm interpreter of this image imports ahead. The file `preload` has the modules that the recipe names.
# Runs after the layer was packed, so that files of an import do not become part of it.
measure_python() {
    [ ! -d /base/venv ] || return 0 # its parts lie in two places here
    say "measuring imports"
    from=-
    [ -s requirements.txt ] && from=requirements.txt
    # shellcheck disable=SC2046
    /opt/venv/bin/python3 "$tools/preload.py" "$from" $(cat preload 2>/dev/null) >preload.json </dev/null ||
        rm -f preload.json
}

# Deno looks for a package below the name of the registry. Boxes do not know the one of the build, and need not.
rename_registry() {
    place=$(echo "${npm_config_registry:-}" | sed 's,^[a-z]*://,,; s,/*$,,' | tr : _)
    [ -n "$place" ] && [ -d "/opt/deno/npm/$place" ] && [ ! -e /opt/deno/npm/registry.npmjs.org ] || return 0
    ln -s "$place" /opt/deno/npm/registry.npmjs.org
}

finish_javascript() {
    rename_registry
    python3 -I "$tools/lock.py" npm /opt/package-lock.json >packages.json 2>/dev/null || echo '[]' >packages.json
    [ -s /opt/package-lock.json ] && cp /opt/package-lock.json lock.out || : >lock.out
    if [ -d /base/node_modules ] && [ ! -e squash ]; then
        python3 -I "$tools/base.py" npm
    fi
}

finish_other() {
    rm -f /opt/cargo/.package-cache* /opt/cargo/.global-cache # locks and times of use
    echo '[]' >packages.json
    : >lock.out
}

# Images of bun and deno are made like images of Node.
language=$1
kind=$language
case $language in
bun | deno) kind=javascript ;;
esac

case $1 in
unpack | split)
    exec "$layer" "$1" /mnt/layer/tree --max-bytes "$2" --max-entries "$3"
    ;;
python | javascript | bun | deno | go | rust)
    exec 3>&1 1>&2 </dev/null
    [ -x "$layer" ] || fail "hermes-layer is missing beside the hermes program; install it"
    mkdir -p /box/layer/opt
    make_stubs
    "build_$kind"
    run_setup "$kind"
    case $kind in
    go | rust) kind=other ;;
    esac
    "finish_$kind"
    say "packing the layer"
    "$layer" pack /box/layer >&3
    exec 3>&-
    [ "$kind" != python ] || measure_python
    ;;
*)
    fail "unknown kind of image: $1"
    ;;
esac
