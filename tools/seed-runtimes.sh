#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes what compilers would otherwise make again in every box: Go's compiled standard library, a
# precompiled bits/stdc++.h, a class data archive for javac. Boxes see it read-only as /opt/seed.
# Each seed carries the version it was made for and is made again when that changes. A box works
# without seeds, only slower. Called by install-runtimes.sh; quick when nothing has changed.
set -eu

seed_dir=${HERMES_SEED_DIR:-/usr/local/lib/hermes/seed}

say() { printf '%s\n' "seed-runtimes: $*"; }

# first FILE...: the first of them that is executable, or nothing.
first()
{
    for file in "$@"; do
        [ -x "$file" ] && echo "$file" && return 0
    done
    return 0
}

# begin NAME KEY: makes an empty $work unless the seed of that key is there already.
begin()
{
    [ "$(cat "$seed_dir/$1/ready" 2>/dev/null)" = "$2" ] && return 1
    say "making the seed of $1"
    mkdir -p "$seed_dir"
    work=$(mktemp -d "$seed_dir/.new-$1.XXXXXX")
    chmod 0755 "$work"
}

# finish NAME KEY: moves $work into place.
finish()
{
    echo "$2" >"$work/ready"
    chmod -R a+rX "$work"
    rm -rf "${seed_dir:?}/$1"
    mv "$work" "$seed_dir/$1"
}

seed_go()
{
    go=$(first /usr/local/go/bin/go /usr/lib/go-*/bin/go)
    [ -n "$go" ] || return 0
    key=$("$go" version)
    begin go "$key" || return 0
    # The same settings as runtimes/go/runtime.json: they are part of the cache's keys.
    scratch=$(mktemp -d)
    env -i PATH=/usr/bin:/bin HOME="$scratch" GOPATH="$scratch/go" GOCACHE="$work" GOENV=off \
        GOTOOLCHAIN=local GOFLAGS=-buildvcs=false CGO_ENABLED=0 "$go" build -trimpath std
    chmod -R u+w "$scratch"
    rm -rf "$scratch"
    finish go "$key"
}

seed_cpp()
{
    [ -x /usr/bin/g++ ] || return 0
    header=$(echo '#include <bits/stdc++.h>' | g++ -x c++ -M - | tr ' ' '\n' |
        grep '/bits/stdc++\.h$' | head -n 1)
    key="$(g++ --version | head -n 1) $(stat -Lc '%i %Y' /usr/bin/g++)"
    begin cpp "$key" || return 0
    gch=$work/bits/stdc++.h.gch
    mkdir -p "$gch"
    for std in gnu++17 c++17 gnu++20; do
        g++ -O2 -std=$std -pipe -x c++-header "$header" -o "$gch/$std.gch"
    done
    finish cpp "$key"
}

seed_java()
{
    javac=$(first /usr/lib/jvm/java-*-openjdk-*/bin/javac)
    [ -n "$javac" ] || return 0
    home=$(dirname "$(dirname "$javac")")
    key="$("$javac" --version) $(stat -c '%i %Y' "$home/lib/modules")"
    begin java "$key" || return 0
    scratch=$(mktemp -d)
    cat >"$scratch/Main.java" <<'JAVA'
import java.io.*;
import java.util.*;
import java.util.stream.*;

public class Main {
    record Pair(int a, String b) {}
    enum Kind { X, Y }
    public static void main(String[] args) throws Exception {
        var list = new ArrayList<Pair>();
        for (int i = 0; i < 3; i++) list.add(new Pair(i, "s" + i));
        System.out.println(list.stream().map(Pair::b).collect(Collectors.joining(",")));
        Map<String, List<Integer>> map = new TreeMap<>();
        map.computeIfAbsent("a", k -> new ArrayList<>()).add(1);
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            in.readLine();
        }
        switch (Kind.X) { case X -> System.out.printf("%d%n", map.size()); default -> {} }
    }
}
JAVA
    "$home/bin/java" -XX:ArchiveClassesAtExit="$work/javac.jsa" -XX:+UseSerialGC \
        -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xlog:cds=off -Xlog:cds+dynamic=off \
        -m jdk.compiler/com.sun.tools.javac.Main -proc:none -encoding UTF-8 -d "$scratch/classes" \
        "$scratch/Main.java"
    rm -rf "$scratch"
    finish java "$key"
}

# What a parked virtual machine runs before it has a program.
seed_java_run()
{
    javac=$(first /usr/lib/jvm/java-*-openjdk-*/bin/javac)
    source=$(dirname "$0")/../runtimes/java/Rehearsal.java
    [ -n "$javac" ] && [ -f "$source" ] || return 0
    key="$("$javac" --version) $(cksum <"$source")"
    begin java-run "$key" || return 0
    "$javac" -proc:none -encoding UTF-8 -d "$work" "$source"
    finish java-run "$key"
}

seed_cpp
seed_java
seed_java_run
seed_go
