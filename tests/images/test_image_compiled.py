# SPDX-License-Identifier: Apache-2.0
"""Images of go and rust (docs/images.md, "Go and Rust"): the box that compiles sees them, too. The modules and crates come from the
index of indexlib.py; with HERMES_REGISTRY_HOSTS, and the settings beside it, also from the real registries."""
import os

import pytest

from indexlib import CARGO_CONFIG, GOPROXY
from serving import serve

GO = 'package main\n\nimport "probe.example/probe"\n\nfunc main() { println(probe.Version) }\n'  # small: without a seed go compiles all of fmt
RUST = 'fn main() { println!("{}", hermes_probe::VERSION); }\n'
FULL = os.environ.get("HERMES_FULL") == "1"  # more programs of Go: without a seed each takes seconds to compile
MANIFEST = '[package]\nname = "mine"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n%s\n'
DOWNLOAD = "GOSUMDB=off GOPROXY=%s go mod download probe.example/probe@v1.0.0\n" % GOPROXY
FETCH = "mkdir -p /tmp/p/src && cd /tmp/p && echo >src/lib.rs && cat >Cargo.toml <<'E'\n" + MANIFEST + "E\ncargo fetch\n"
TOOL = "printf '#!/bin/sh\\necho tool\\n' >/opt/bin/probe-tool; chmod 755 /opt/bin/probe-tool\n"


def available(server, language):
    found = [r for r in server("GET", "/v1/runtimes").json()["runtimes"] if r["name"] == language]
    if not found or not found[0]["available"]:
        pytest.skip("this host has no " + language)
    assert found[0]["images"]


def build(server, language, script, name="made", **fields):
    available(server, language)
    reply = server("POST", "/v1/images", dict(language=language, name=name, setup_script=script, **fields))
    assert reply.status == 201, reply
    return reply.json()


def start(server, language, image, **fields):
    reply = server("POST", "/v1/runs", dict(language=language, **({"image": image} if image else {}), **fields))
    assert reply.status == 200, reply
    return reply.json()


def run(server, language, code, image="made", **fields):
    return start(server, language, image, code=code, **fields)


def crate(server, image="made", dependency='hermes-probe = "1"', code=RUST):
    return start(server, "rust", image, entry="src/main.rs", files=[
        {"name": "Cargo.toml", "content": MANIFEST % dependency}, {"name": "src/main.rs", "content": code}])


def ok(answer):
    assert answer["status"] == "ok", answer
    return answer["stdout"]


def test_go_modules(server):
    """A program imports them without a go.mod, and with one of its own."""
    image = build(server, "go", DOWNLOAD)
    assert image["language"] == "go" and image["packages"] == []
    assert run(server, "go", GO)["stderr"] == "probe 1.0.0\n"
    own = {"name": "go.mod", "content": "module mine\n\ngo 1.18\n\nrequire probe.example/probe v1.0.0\n"}
    if FULL:
        assert run(server, "go", GO, files=[own])["stderr"] == "probe 1.0.0\n"
    # control: no image, no module; and a version that the image does not have
    answer = run(server, "go", GO, image=None)
    assert answer["status"] == "compile_error" and "probe.example/probe" in answer["compile"]["stderr"]
    own["content"] = own["content"].replace("v1.0.0", "v1.1.0")
    assert run(server, "go", GO, files=[own])["status"] == "compile_error"


def test_go_programs(server):
    """The run box sees /opt, and its bin is in PATH; so it is for a command line, which has the toolchain, too."""
    build(server, "go", "echo 42 >answer\n" + TOOL, env={"WORD": "image"})
    code = ('package main\n\nimport "syscall"\n\nfunc main() {\n\tpath, _ := syscall.Getenv("PATH")\n\tword, _ := syscall.Getenv("WORD")\n'
            '\tprintln(path[:8], word, syscall.Access("/opt/answer", 4) == nil)\n}\n')
    if FULL:
        assert run(server, "go", code)["stderr"] == "/opt/bin image true\n"
    reply = server("POST", "/run", {"image": "made", "code": "", "entrypoint": "probe-tool; go version; echo $WORD"})
    assert reply.status == 200 and reply.json()["stdout"].startswith("tool\ngo version go"), reply
    assert reply.json()["stdout"].endswith("\nimage\n")


def test_rust_crates(server):
    build(server, "rust", CARGO_CONFIG + FETCH % 'hermes-probe = "1"' + TOOL)
    assert ok(crate(server)) == "probe 1.0.0\n"
    answer = crate(server, image=None)  # control
    assert answer["status"] == "compile_error" and "hermes-probe" in answer["compile"]["stderr"]
    assert crate(server, dependency='hermes-probe = "2"')["status"] == "compile_error"
    code = 'fn main() { print!("{:?}", std::process::Command::new("probe-tool").output().map(|o| o.stdout.len()).ok()); }'
    assert ok(run(server, "rust", code)) == "Some(5)"
    assert ok(run(server, "rust", code, image=None)) == "None"  # control
    reply = server("POST", "/run", {"image": "made", "code": "", "entrypoint": "probe-tool; cargo --version"})
    assert reply.status == 200 and reply.json()["stdout"].startswith("tool\ncargo "), reply


def test_results_are_kept_by_layers(server):
    """The compile cache: the same program on another image is compiled again; on the same one, and on an equal one, it is not."""
    module = ("mkdir -p lib/word/src\nprintf '[package]\\nname = \"word\"\\nversion = \"0.1.0\"\\n' >lib/word/Cargo.toml\n"
              "echo 'pub const WORD: &str = \"%s\";' >lib/word/src/lib.rs\n")
    build(server, "rust", module % "one", "one")
    build(server, "rust", module % "two", "two")
    build(server, "rust", module % "one" + "# the same again\n", "again")
    seen = [crate(server, image, 'word = { path = "/opt/lib/word" }', 'fn main() { print!("{}", word::WORD); }')
            for image in ("one", "two", "one", "two", "again")]
    assert [ok(a) for a in seen] == ["one", "two", "one", "two", "one"]
    assert [a["compile"]["cached"] for a in seen] == [False, False, True, True, True]


def test_variables_of_an_image_do_not_reach_the_compiler(server):
    """They would be options that no list allows. Control: the program has them."""
    build(server, "rust", ":", env={"RUSTFLAGS": "--nonsense", "CARGO_HOME": "/nowhere"})
    code = 'fn main() { print!("{}", std::env::var("RUSTFLAGS").unwrap()); }'
    assert ok(crate(server, dependency="", code=code)) == "--nonsense"


HOSTILE = """try() { sh -c "$1" >/dev/null 2>&1 && echo "$1" >>/opt/said; :; }
try 'echo x >$(command -v cargo)'
try 'rm $(command -v cargo)'
try 'touch $(dirname $(command -v cargo))/x'
try 'echo x >/usr/local/go/VERSION'
try 'echo x >/usr/lib/hermes/build.sh'
try 'mkdir -p /usr/lib/hermes/seed/ready'
try 'touch /opt/control'
mkdir -p /opt/seed/ready /opt/rust/bin
ln -s /etc/shadow /opt/cargo/credentials.toml
printf '[build]\\nrustc-wrapper = "/opt/wrapper"\\n' >/opt/cargo/config.toml
printf '#!/bin/sh\\ntouch /opt/x /usr/x /etc/x /usr/lib/hermes/x 2>/dev/null\\ntouch /box/wrapped\\nexec "$@"\\n' >/opt/wrapper
chmod 755 /opt/wrapper
"""
LOOK = """use std::path::Path;
fn main() {
    print!("{}", std::fs::read_to_string("/opt/said").unwrap_or_default());
    for path in ["/opt/x", "/usr/x", "/etc/x", "/usr/lib/hermes/x", "/box/wrapped"] {
        if Path::new(path).exists() { println!("{}", path); }
    }
    println!("{} {}", std::fs::read("/opt/cargo/credentials.toml").is_ok(), std::fs::write("/opt/y", "").is_ok());
}
"""


def test_a_hostile_image_changes_nothing_outside(server):
    """Neither the toolchain that it was built with, nor anything through the compiler that it wraps, nor what boxes without it see. Control:
    the build can write below /opt."""
    build(server, "rust", HOSTILE)
    assert ok(crate(server, dependency="", code=LOOK)) == "touch /opt/control\nfalse false\n"
    assert ok(crate(server, None, dependency="", code=LOOK)) == "false false\n"
    build(server, "rust", HOSTILE + "printf '#!/bin/sh\\nexit 1\\n' >/opt/wrapper\n", "broken")  # control: the wrapper is called
    assert crate(server, "broken", dependency="", code=LOOK + "// another\n")["status"] == "compile_error"


@pytest.mark.parametrize("language", ["go", "rust"])
def test_what_is_refused(server, language):
    available(server, language)
    for field, value in (("packages", {"npm": ["x"]}), ("requirements", "x"), ("lock", "x"), ("preload", ["x"])):
        reply = server("POST", "/v1/images", {"language": language, "setup_script": ":", field: value})
        assert reply.status == 400 and reply.json()["error"]["field"] == field, reply
        assert "setup_script" in reply.json()["error"]["message"]
    reply = server("POST", "/v1/images", {"language": language, "name": "x"})
    assert reply.status == 400 and reply.json()["error"]["field"] == "setup_script", reply
    reply = server("POST", "/v1/images", {"language": language, "setup_script": ":", "base": "x"})
    assert reply.status == 400 and "whole root" in reply.json()["error"]["message"], reply
    reply = server("POST", "/v1/runs", {"language": language, "code": "x", "install": True})
    assert reply.status == 400 and "not for " + language in reply.json()["error"]["message"], reply
    reply = server("POST", "/v1/images", {"language": language, "setup_script": "echo why >&2; exit 3"})
    assert reply.status == 422 and "why" in reply.json()["error"]["message"], reply


def test_a_host_that_is_not_allowed_is_named(server):
    available(server, "go")
    script = "GOSUMDB=off GOPROXY=http://far.example.com go mod download a.example/a@v1.0.0"
    reply = server("POST", "/v1/images", {"language": "go", "setup_script": script})
    assert reply.status == 422 and "far.example.com is not among registry_hosts" in reply.json()["error"]["message"], reply


def test_the_real_registries():
    """If they are named: HERMES_REGISTRY_HOSTS and the settings beside it."""
    if "proxy.golang.org" not in os.environ.get("HERMES_REGISTRY_HOSTS", ""):
        pytest.skip("HERMES_REGISTRY_HOSTS has no proxy.golang.org")
    for server in serve(tcp=False, env={k: v for k, v in os.environ.items() if k.startswith("HERMES_")}):
        build(server, "go", "go mod download github.com/google/uuid@v1.6.0\n", "g")
        code = 'package main\n\nimport "github.com/google/uuid"\n\nfunc main() { println(len(uuid.NewString())) }\n'
        assert run(server, "go", code, "g")["stderr"] == "36\n"
        build(server, "rust", FETCH % 'itoa = "1"', "r")
        code = 'fn main() { print!("{}", itoa::Buffer::new().format(42u8)); }'
        assert ok(crate(server, "r", dependency='itoa = "1"', code=code)) == "42"
