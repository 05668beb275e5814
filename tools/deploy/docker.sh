#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# docker.sh [IMAGE.tar]: builds packaging/Dockerfile (or loads an image), starts it with the command
# line of docs/deploy.md, and shows that Hermes works in it. The last line is "N passed, N failed".
#
# Uses the Docker engine of this machine. Where there is none, Debian's docker.io is unpacked under
# /var/tmp, not installed, and started with a data directory of its own and without networks; where
# no registry answers, debian:12-slim is made with mmdebstrap. Nothing stays behind.
set -u
export LC_ALL=C

repo=$(cd "$(dirname "$0")/../.." && pwd)
cd "$repo" || exit 1
dir=$(mktemp -d /var/tmp/hermes-docker.XXXXXX)
image=hermes-deploy-test
name=$image-$$
daemon=
title=docker
. tools/deploy/checks.sh

clean_up() {
    docker rm --force "$name" >/dev/null 2>&1
    docker volume rm "$name" >/dev/null 2>&1
    if [ -n "$daemon" ]; then
        kill "$daemon"
        wait "$daemon" 2>/dev/null
    else
        docker image rm "$image" >/dev/null 2>&1
    fi
    # The daemon's own mounts, if it was killed.
    awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        xargs -r -n 1 umount
    rm -rf --one-file-system "$dir"
    rmdir /sys/fs/cgroup/*/docker 2>/dev/null
}
finish() {
    clean_up
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}
trap 'failed=$((failed + 1)); finish' HUP INT TERM
give_up() {
    say "$*"
    failed=$((failed + 1))
    finish
}

# ----- an engine, an image -----

start_daemon() {
    local package
    say "no engine here: unpacking Debian's"
    mkdir "$dir/deb" "$dir/root"
    (cd "$dir/deb" && apt-get -q -o APT::Sandbox::User=root download docker.io containerd runc tini) \
        >"$dir/apt" 2>&1 || give_up "apt-get could not download docker.io: $(tail -n 1 "$dir/apt")"
    for package in "$dir"/deb/*.deb; do
        dpkg-deb -x "$package" "$dir/root"
    done
    export PATH=$dir/root/usr/sbin:$dir/root/usr/bin:$PATH DOCKER_HOST=unix://$dir/docker.sock
    dockerd --host "$DOCKER_HOST" --data-root "$dir/data" --exec-root "$dir/exec" \
        --pidfile "$dir/dockerd.pid" --bridge none --iptables=false --ip6tables=false \
        --init-path "$dir/root/usr/bin/tini-static" >"$dir/dockerd.log" 2>&1 </dev/null &
    daemon=$!
    for _ in $(seq 120); do
        docker info >/dev/null 2>&1 && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.5
    done
    tail -n 5 "$dir/dockerd.log"
    give_up "dockerd does not start"
}

docker info >/dev/null 2>&1 || start_daemon
say "$(docker version --format '{{.Server.Version}}') on $(uname -r), control groups" \
    "$(docker info --format 'v{{.CgroupVersion}}, security: {{.SecurityOptions}}')"

make_base() {
    docker image inspect debian:12-slim >/dev/null 2>&1 || docker pull -q debian:12-slim ||
        mmdebstrap --quiet --mode=root --variant=minbase bookworm - \
            /etc/apt/sources.list.d/debian.sources | docker import - debian:12-slim
}
build_image() {
    make_base && DOCKER_BUILDKIT=0 docker build --network host -f packaging/Dockerfile \
        -t "$image" ${HERMES_LANGUAGES+--build-arg "LANGUAGES=$HERMES_LANGUAGES"} .
}
load_image() { docker load -i "$1" && docker image inspect "$image"; }
if [ $# -gt 0 ]; then
    check "the image loads" load_image "$1"
else
    check "packaging/Dockerfile builds" build_image
    if [ -n "${HERMES_SAVE_IMAGE:-}" ]; then
        check "the image is saved" docker save -o "$HERMES_SAVE_IMAGE" "$image"
    fi
fi
[ "$failed" -eq 0 ] || finish

# ----- the command line of docs/deploy.md -----

# Without what belongs to the operator's machine: names, ports, secrets, the volume's name.
mapfile -t flags < <(/usr/bin/python3 - docs/deploy.md <<'PYTHON'
import re, shlex, sys
command = re.search(r"^docker run (.*?) hermes$", open(sys.argv[1]).read(), re.M | re.S)[1]
words = shlex.split(command.replace("\\\n", " "))
drop = {"--detach": 0, "--name": 1, "--restart": 1, "--volume": 1, "--env": 1, "--publish": 1}
while words:
    word = words.pop(0)
    if word in drop:
        del words[:drop[word]]
    else:
        print(word)
PYTHON
)
say "flags: ${flags[*]}"
flags+=(--network none)

run() { docker run --rm --interactive "${flags[@]}" "$image" "$@"; }
without() { # FLAG VALUE: the flags less one pair
    local i
    less=()
    for ((i = 0; i < ${#flags[@]}; i++)); do
        if [ "${flags[i]} ${flags[i + 1]:-}" = "$1 $2" ]; then
            i=$((i + 1))
        else
            less+=("${flags[i]}")
        fi
    done
    [ ${#less[@]} -eq $((${#flags[@]} - 2)) ]
}

# ----- what must work -----

level() { run doctor | tee "$dir/doctor" && grep -E '^isolation level: (strong|full) ' "$dir/doctor"; }
prints() { # TEXT ARGS... : hermes run of standard input
    local want=$1
    shift
    [ "$(run run "$@" -)" = "$want" ]
}
has() { docker run --rm --entrypoint "$1" "$image" --version >/dev/null 2>&1; }
selftest() { run selftest | tee "$dir/selftest" | tail -n 15 && tail -n 1 "$dir/selftest" | grep ', 0 failed'; }

check "hermes doctor: strong or full" level
say "$(head -n 1 "$dir/doctor")"
check "hermes run: Python" prints 42 -l python <<<'print(6 * 7)'
if has gcc; then
    check "hermes run: C, two boxes" prints c -l c <<<'#include <stdio.h>
int main(void) { puts("c"); }'
fi
if [ -z "${HERMES_NO_SELFTEST:-}" ]; then
    check "hermes selftest" selftest
    say "selftest: $(tail -n 1 "$dir/selftest")"
fi

# ----- the server -----

serve() { # FLAGS... : a container that serves, until it says so
    docker run --detach --name "$name" "${flags[@]}" --volume "$name:/var/lib/hermes" "$@" "$image" || return
    for _ in $(seq 240); do
        docker logs "$name" 2>&1 | grep -q '"ready"' && return
        [ "$(docker inspect --format '{{.State.Running}}' "$name")" = true ] || break
        sleep 0.5
    done
    docker logs "$name"
    return 1
}
ask() { # STATUS LIMITS CODE: a run over HTTP, from inside the container, ends with this status
    docker exec -i "$name" python3 - "$@" <<'PYTHON'
import json, sys, urllib.request
status, limits, code = sys.argv[1:]
body = json.dumps({"language": "python", "code": code, "limits": json.loads(limits)}).encode()
request = urllib.request.Request("http://127.0.0.1:8000/v1/runs", body, {
    "Content-Type": "application/json", "Authorization": "Bearer secret"})
run = json.load(urllib.request.urlopen(request))
print(run)
assert run["status"] == status and run["isolation"]["level"] in ("strong", "full")
PYTHON
}
stops() {
    docker stop "$name" && [ "$(docker inspect --format '{{.State.ExitCode}}' "$name")" = 0 ] &&
        docker logs "$name" 2>&1 | grep -q '"stopping"' && docker rm "$name"
}
refuses() {
    run serve --listen 0.0.0.0:8000
    [ $? -eq 2 ]
}
confined() { # the server has no rights, the monitor has the rights of the command line and no more
    docker exec "$name" grep -h -E '^(Name|CapBnd|Uid)' /proc/1/status
    docker exec "$name" sh -c 'for p in /proc/[0-9]*; do
        grep -q hermes-server $p/comm && grep -q "CapBnd:.0000000000000000" $p/status && exit 0
    done; exit 1'
}
limited() { # --memory of the container bounds the memory that runs are promised
    docker exec -i "$name" python3 - <<'PYTHON'
import json, urllib.error, urllib.request
body = json.dumps({"language": "python", "code": "1", "limits": {"memory_mb": 900}}).encode()
try:
    urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8000/v1/runs", body, {
        "Content-Type": "application/json", "Authorization": "Bearer secret"}))
    raise SystemExit("900 MiB were promised")
except urllib.error.HTTPError as e:
    assert e.code == 400 and "819" in e.read().decode()
PYTHON
}

check "hermes serve refuses strangers without a key" refuses
check "hermes serve becomes ready" serve --env API_TOKEN=secret --memory 1g
check "a run over HTTP" ask ok '{}' 'print(6 * 7)'
check "a run over its memory" ask memory_limit '{"memory_mb": 64}' 'x = bytearray(300 << 20)'
check "a run over its time" ask time_limit '{"wall_ms": 1000}' 'while True: pass'
check "memory is that of the container" limited
check "the server is confined" confined
check "hermes doctor beside the server" docker exec "$name" hermes doctor
check "hermes run beside the server" sh -c "echo 'print(1)' | docker exec -i $name hermes run -l python -"
check "docker stop is clean" stops
check "it serves again on its volume, as pid 1" serve --env API_TOKEN=secret --init=false
check "a run over HTTP, as pid 1" ask ok '{}' 'print(6 * 7)'
check "docker stop is clean, as pid 1" stops

# ----- what the page says of each flag -----

needs() { # FLAG VALUE WORD: without the flag doctor says no and names the word
    without "$1" "$2" || return
    docker run --rm "${less[@]}" "$image" doctor
    [ $? -ne 0 ]
}
works_without() {
    without "$1" "$2" || return
    [ "$(echo 'print(1)' | docker run --rm -i "${less[@]}" "$image" run -l python -)" = 1 ]
}
nothing_granted() {
    docker run --rm --network none "$image" doctor
    [ $? -eq 1 ] && { echo 'print(1)' | docker run --rm -i --network none "$image" run -l python -; [ $? -eq 125 ]; }
}
for capability in SYS_ADMIN SYS_CHROOT SETUID SETGID; do
    check "doctor misses $capability" needs --cap-add "$capability"
done
check "doctor misses the profile" needs --security-opt seccomp=packaging/seccomp.json
if docker info --format '{{.SecurityOptions}}' | grep -q apparmor; then
    check "doctor misses apparmor=unconfined" needs --security-opt apparmor=unconfined
fi
check "works without --tmpfs /tmp" works_without --tmpfs /tmp
check "a container with nothing granted is refused" nothing_granted
finish
