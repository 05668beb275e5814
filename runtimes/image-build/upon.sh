# SPDX-License-Identifier: Apache-2.0
#
# Runs in a box that builds upon a whole root (docs/images.md), with the sh of that root. / is a copy of the root, /base the root
# itself, read-only, with our own files. stdout is the tar of the new layer, stderr the log. The box is uid 0 of its own user namespace and has no
# capability: changes of owners are answered with success and do nothing, because layers have no owners.
set -eu
. /base/usr/lib/hermes/registries.sh

say() {
    echo "hermes: $*" >&2
}

# apt must not become another user, which this box does not have, and there is no terminal.
configure_apt() {
    {
        echo 'APT::Sandbox::User "root";'
        echo 'Dpkg::Use-Pty "0";'
        echo 'DPkg::Options { "--force-unsafe-io"; "--force-confdef"; "--force-confold"; };'
        echo 'Acquire::EnableSrvRecords "false";'
        [ ! -s /tmp/ca.pem ] || echo 'Acquire::https::CaInfo "/tmp/ca.pem";'
    } >/tmp/apt.conf
    export APT_CONFIG=/tmp/apt.conf DEBIAN_FRONTEND=noninteractive
}

# No service is to start because its package was installed.
forbid_services() {
    rc=/usr/sbin/policy-rc.d
    [ -e /usr/sbin/invoke-rc.d ] && [ ! -e $rc ] || return 0
    printf '#!/bin/sh\nexit 101\n' >$rc
    chmod 755 $rc
    made_rc=1
}

exec 3>&1 1>&2 </dev/null
made_rc=
set_registries
configure_apt
forbid_services
[ -d /root ] || mkdir /root
export HOME=/root PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
# With it Python's byte code does not depend on times, which are all the same in a layer.
export SOURCE_DATE_EPOCH=315532800
say "running the setup script"
(cd / && exec sh -eu /box/setup.sh) || {
    say "the setup script ended with status $?"
    exit 1
}
[ -z "$made_rc" ] || rm -f $rc
say "packing the layer"
exec /base/usr/lib/hermes/hermes-layer pack / --upon /base --leave-out base --leave-out box --leave-out dev --leave-out proc \
    --leave-out tmp --leave-out 'var/lib/apt/lists/*' --leave-out 'var/cache/apt/*' \
    --leave-out 'var/cache/debconf/*-old' --leave-out 'var/cache/ldconfig/*' --leave-out 'var/log/apt' \
    --leave-out 'var/log/*.log' --leave-out 'root/.cache' --leave-out 'root/.npm' >&3
