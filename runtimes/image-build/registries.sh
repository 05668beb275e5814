# SPDX-License-Identifier: Apache-2.0
#
# For the scripts of build boxes, in any sh: tells installers where packages come from. The files are in /box.
set_registries() {
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1 PIP_PROGRESS_BAR=off
    export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
    if [ -s /box/ca.pem ]; then
        cat /etc/ssl/certs/ca-certificates.crt /box/ca.pem >/tmp/ca.pem 2>/dev/null || cp /box/ca.pem /tmp/ca.pem
        export SSL_CERT_FILE=/tmp/ca.pem NODE_EXTRA_CA_CERTS=/box/ca.pem
    fi
    if [ -s "$SSL_CERT_FILE" ]; then
        export PIP_CERT="$SSL_CERT_FILE"
    else
        unset SSL_CERT_FILE
    fi
    if [ -s /box/pip_index ]; then
        read -r PIP_INDEX_URL </box/pip_index || :
        export PIP_INDEX_URL UV_DEFAULT_INDEX="$PIP_INDEX_URL"
        case $PIP_INDEX_URL in
        http://*)
            PIP_TRUSTED_HOST=${PIP_INDEX_URL#http://}
            PIP_TRUSTED_HOST=${PIP_TRUSTED_HOST%%/*}
            PIP_TRUSTED_HOST=${PIP_TRUSTED_HOST##*@}
            export PIP_TRUSTED_HOST
            ;;
        esac
    fi
    export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_cache=/tmp/npm
    if [ -s /box/npm_registry ]; then
        read -r npm_config_registry </box/npm_registry || :
        export npm_config_registry NPM_CONFIG_REGISTRY="$npm_config_registry"
    fi
}
