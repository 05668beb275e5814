#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# guest.sh: runs in the guest of vm.sh, as a service of its systemd. Follows docs/deploy.md and looks
# whether what it says is so. Lines that begin with "hermes-vm: " go to vm.sh's reader.
set -u
exec >/dev/ttyS0 2>&1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root
cd /hermes || exit 1
passed=0
failed=0
url=http://127.0.0.1:8000

say() { printf 'hermes-vm: %s\n' "$*"; }
wants() { # PART: whether it was asked for
    [[ ,$(sed -n 's/.*hermes\.parts=\([^ ]*\).*/\1/p' /proc/cmdline), == *,$1,* ]]
}
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >/run/out 2>&1; then
        passed=$((passed + 1))
        say "ok   $what"
    else
        failed=$((failed + 1))
        say "FAIL $what"
        tail -n 25 /run/out | sed 's/^/hermes-vm|/'
    fi
}
trap 'say "done: $passed passed, $((failed + 1)) failed"' EXIT

until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.3
    done
}
run_python() { # CODE [CURL ARGS...]
    local code=$1
    shift
    curl -sS --max-time 300 "$url/v1/runs" "$@" --json "{\"language\": \"python\", \"code\": \"$code\"}"
}
says_42() { run_python 'print(6 * 7)' "$@" | tee /dev/stderr | grep -q '"stdout":"42\\n"'; }
property() { systemctl show -P "$1" "${2:-hermes.service}"; }
main_pid() { property MainPID; }
restarts() { [ "$(property NRestarts)" -ge 1 ] && [ "$(property ActiveState)" = active ]; }

# ----- systemd -----

install_it() {
    cp -a install/. / && useradd --system --no-create-home hermes &&
        install -d -m 700 /etc/hermes && systemctl daemon-reload
}
in_groups() { # a box is below the unit, with limits
    local box
    run_python 'import time; time.sleep(20)' >/dev/null &
    until_true 60 sh -c 'ls -d /sys/fs/cgroup/system.slice/hermes.service/hermes-*' || return 1
    box=$(echo /sys/fs/cgroup/system.slice/hermes.service/hermes-*)
    cat "$box/memory.max" "$box/pids.max" && ! grep -q max "$box/memory.max"
    local status=$?
    kill %% # the client leaves, the run is cancelled
    until_true 60 sh -c '! ls -d /sys/fs/cgroup/system.slice/hermes.service/hermes-*' && return $status
}
kill_monitor() { kill -KILL "$(main_pid)" && until_true 120 restarts && until_true 60 says_42; }
stops_clean() {
    systemctl stop hermes && [ "$(property Result)" = success ] &&
        [ "$(property ExecMainStatus)" = 0 ] && ! pgrep -a hermes- &&
        [ ! -e /sys/fs/cgroup/system.slice/hermes.service ]
}
bad_setting() { # fails once, is not tried again
    echo 'PORT=x' >/etc/hermes/hermes.env
    systemctl start hermes && return 1
    sleep 3
    journalctl -u hermes -o cat -n 20
    [ "$(property ExecMainStatus)" = 2 ] && [ "$(property NRestarts)" = 0 ] &&
        [ "$(property ActiveState)" = failed ] && journalctl -u hermes -o cat | grep -q 'PORT: `x`'
    local status=$?
    rm /etc/hermes/hermes.env
    systemctl reset-failed hermes
    return $status
}
with_key() {
    (umask 077 && echo API_TOKEN=secret >/etc/hermes/hermes.env)
    systemctl start hermes || return 1
    [ "$(curl -sS -o /dev/null -w '%{http_code}' "$url/v1/runtimes")" = 401 ] &&
        says_42 -H 'Authorization: Bearer secret'
    local status=$?
    rm /etc/hermes/hermes.env
    systemctl stop hermes
    return $status
}
memory_max() { # MemoryMax= of the unit bounds the memory that runs are promised
    mkdir -p /run/systemd/system/hermes.service.d
    printf '[Service]\nMemoryMax=1G\n' >/run/systemd/system/hermes.service.d/memory.conf
    systemctl daemon-reload && systemctl start hermes || return 1
    curl -sS "$url/v1/runs" --json \
        '{"language": "python", "code": "1", "limits": {"memory_mb": 900}}' | tee /dev/stderr |
        grep -q 819
    local status=$?
    systemctl stop hermes
    rm -r /run/systemd/system/hermes.service.d
    systemctl daemon-reload
    return $status
}

say "$(systemctl --version | head -n 1), $(uname -r), LSMs $(cat /sys/kernel/security/lsm)"
check "installed" install_it
if wants systemd; then
    check "systemd-analyze verify" systemd-analyze verify --man=no hermes.service hermes.socket
    say "$(systemd-analyze security --no-pager hermes.service 2>/dev/null | tail -n 1)"
    check "systemctl start returns when it serves" systemctl start hermes
    check "a run right after" says_42
    check "hermes doctor" hermes doctor
    say "$(hermes doctor | head -n 1)"
    check "boxes are below the unit, with limits" in_groups
    check "a killed monitor is started again" kill_monitor
    check "systemctl stop leaves nothing" stops_clean
    check "a setting that does not parse is not retried" bad_setting
    check "a key in hermes.env" with_key
    check "memory follows MemoryMax=" memory_max
fi

# ----- socket -----

activated() { [ "$(property ActiveState)" = inactive ] && says_42 && [ "$(property ActiveState)" = active ]; }
restart_refuses_nobody() {
    local i bad=0
    systemctl restart hermes &
    for i in $(seq 20); do
        curl -sS -o /dev/null --max-time 120 "$url/health" || bad=1
    done
    wait
    return $bad
}
public_socket() { # a public address without a key: refused
    mkdir -p /run/systemd/system/hermes.socket.d
    printf '[Socket]\nListenStream=\nListenStream=0.0.0.0:8001\n' \
        >/run/systemd/system/hermes.socket.d/public.conf
    systemctl daemon-reload && systemctl start hermes.socket || return 1
    curl -sS --max-time 20 http://127.0.0.1:8001/health
    until_true 60 sh -c 'journalctl -u hermes -o cat | grep -q "LISTEN_FDS: .*not loopback"'
    local status=$?
    systemctl stop hermes.socket hermes
    rm -r /run/systemd/system/hermes.socket.d
    systemctl daemon-reload
    systemctl reset-failed
    return $status
}

if wants systemd; then
    check "hermes.socket starts" systemctl start hermes.socket
    check "the first request starts the service" activated
    check "a restart refuses nobody" restart_refuses_nobody
    check "stopped with its socket" systemctl stop hermes.socket hermes
    check "a public socket without a key is refused" public_socket
fi

# ----- backup -----

backup() { # as the page says, while it serves; results survive in the copy
    local id
    systemctl start hermes || return 1
    id=$(run_python 'print(1)' | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
    sleep 2
    sqlite3 /var/lib/hermes/server/history.db ".backup /root/copy.db" &&
        [ "$(sqlite3 /root/copy.db "SELECT count(*) FROM runs WHERE id='$id'")" = 1 ] &&
        systemctl restart hermes && curl -sS "$url/v1/runs/$id" | grep -q '"status":"ok"' &&
        says_42 && systemctl stop hermes
}
wants systemd && check "backup while it serves, results over a restart" backup

# ----- a user's session -----

as_tester() { # COMMAND: in a session without delegation, as a login has it
    systemd-run --quiet --pipe --wait --uid=tester --gid=tester --slice=user-1000.slice \
        -E XDG_RUNTIME_DIR=/run/user/1000 -E HOME=/home/tester -E PATH="$PATH" sh -c "$1"
}
session() { systemctl start systemd-logind && loginctl enable-linger tester && until_true 60 test -e /run/user/1000/systemd/private; }
user_run() { [ "$(as_tester 'echo "print(6 * 7)" | hermes run -l python -')" = 42 ]; }
user_serve() {
    as_tester "exec hermes serve --port 8002" &
    until_true 120 curl -s -o /dev/null http://127.0.0.1:8002/health || return 1
    url=http://127.0.0.1:8002 says_42 &&
        find /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service -name 'run-*.scope' | grep .
    local status=$?
    pkill -TERM -u tester -x hermes-monitor
    wait
    return $status
}
user_unit() { # the unit as a user service, as the page says
    local dir=/home/tester/.config/systemd/user
    mkdir -p "$dir" &&
        grep -v -E '^(CapabilityBoundingSet|Protect|StateDirectoryMode|PrivateTmp|LimitNOFILE)' \
            /usr/local/lib/systemd/system/hermes.service |
        sed 's|^ExecStart=.*|& --port 8003|; s/multi-user.target/default.target/' >"$dir/hermes.service" &&
        chown -R tester:tester /home/tester/.config &&
        as_tester 'systemctl --user daemon-reload && systemctl --user start hermes' &&
        url=http://127.0.0.1:8003 says_42 && as_tester 'systemctl --user stop hermes' && return
    journalctl -o cat -n 20 _UID=1000
    return 1
}
user_doctor() { as_tester 'hermes doctor'; }

if wants user; then
    check "a session of tester" session
    check "hermes doctor as tester" user_doctor
    say "$(as_tester 'hermes doctor' | head -n 1)"
    check "hermes run asks systemd for a scope" user_run
    check "hermes serve asks systemd for a scope" user_serve
    check "a user service" user_unit
fi

# ----- Docker, with AppArmor and cgroup v2 -----

if wants docker && [ -f image.tar ]; then
    check "docker starts" systemctl start docker
    HERMES_NO_SELFTEST=${HERMES_NO_SELFTEST:-} tools/deploy/docker.sh image.tar | tee /run/docker.log
    read -r p _ f _ <<<"$(tail -n 1 /run/docker.log)"
    passed=$((passed + p))
    failed=$((failed + f))
fi
trap - EXIT
say "done: $passed passed, $failed failed"
