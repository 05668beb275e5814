# SPDX-License-Identifier: Apache-2.0
"""Programs as users write and use them: their own resolvers, TLS and connections."""
import functools
import os
import shutil
import subprocess

import pytest

from netlib import OK4, OK6, OTHER4, denied

ALLOW = {"allow": ["ok.example.com", "v6.example.com"]}
HELLOS = {"hello from " + OK4, "hello from " + OK6}


def needs(program):
    """tools/install-deps.sh installs them all: without one the test fails."""
    def wrap(test):
        @functools.wraps(test)
        def checked(*args, **kwargs):
            path = "/usr/bin:/usr/local/go/bin:%s/.cargo/bin" % os.path.expanduser("~")
            assert shutil.which(program, path=path), "install %s: make install-deps" % program
            test(*args, **kwargs)
        return checked
    return wrap


def shell(box, line, network=ALLOW, **fields):
    return box.run(network, "bash", line, **fields)


@needs("curl")
def test_curl(box):
    answer = shell(box, """
curl -sS --cacert ca.pem https://ok.example.com/
curl -sS -6 http://ok.example.com/
curl -sS -L http://ok.example.com/redirect-private; echo "redirect $?"
curl -sS http://other.example.org/; echo "name $?"
curl -sS --cacert ca.pem --connect-to shared.example.org:443:ok.example.com:443 https://shared.example.org/
echo "neighbour $?"
curl -sS -o /dev/null -w '%{size_download}\\n' http://ok.example.com/big-3000000
""")
    lines = answer["stdout"].split("\n")
    assert lines[0] in HELLOS and lines[1] == "hello from " + OK6
    assert lines[2:4] == ["redirect 7", "name 6"]
    assert lines[4] in ("neighbour 35", "neighbour 56") and lines[5] == "3000000"
    assert "server_name" in {reason for *_, reason in denied(answer["network"])}


@needs("wget")
def test_wget(box):
    answer = shell(box, """
wget -q -O - --ca-certificate=ca.pem https://ok.example.com/
wget -q -t 1 -T 5 -O - http://%s/; echo "closed $?"
""" % OTHER4)
    lines = answer["stdout"].split("\n")
    assert lines[0] in HELLOS and lines[1] == "closed 4"


@needs("dig")
def test_dig(box):
    answer = shell(box, """
dig +short ok.example.com A
dig +short +tcp @9.9.9.9 ok.example.com AAAA
dig +short ok.example.com TXT
dig other.example.org | grep -o 'status: [A-Z]*'
""")
    assert answer["stdout"] == '%s\n%s\n"some text"\nstatus: NXDOMAIN\n' % (OK4, OK6)


@needs("git")
def test_git_clones_over_https(make_boxes, world):
    """git is no tool of the boxes: the test mounts the host's."""
    work = world.dir / "work"
    bare = world.dir / "files" / "repo.git"
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for line in (["init", "-q", work], ["-C", work, *identity, "commit", "-q", "--allow-empty", "-m", "first"],
                 ["clone", "-q", "--bare", work, bare], ["-C", bare, "update-server-info"]):
        subprocess.run(["git", *map(str, line)], check=True, stdin=subprocess.DEVNULL)
    config = world.dir / "git.conf"
    config.write_text("[mount bin]\npath = /usr/bin\n[mount core]\npath = /usr/lib/git-core\n")
    boxes = make_boxes(config=config)
    answer = boxes.run(ALLOW, "bash", """
export GIT_EXEC_PATH=/mnt/core GIT_SSL_CAINFO=/box/ca.pem
/mnt/bin/git clone -q https://ok.example.com/files/repo.git here && /mnt/bin/git -C here log --format=%s
/mnt/bin/git clone -q https://other.example.org/files/repo.git there; echo "closed $?"
""", mounts=[{"name": "bin", "path": "/mnt/bin"}, {"name": "core", "path": "/mnt/core"}])
    assert answer["stdout"] == "first\nclosed 128\n", answer


def test_python_asyncio_many_at_once(box):
    code = """
import asyncio
async def one():
    reader, writer = await asyncio.open_connection("ok.example.com", 80)
    writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
    data = await reader.read()
    writer.close()
    return b"hello from" in data
async def closed():
    try:
        await asyncio.open_connection("10.9.0.5", 80)
    except ConnectionRefusedError:
        return True
async def main():
    found = await asyncio.gather(*(one() for _ in range(60)), *(closed() for _ in range(20)))
    print(sum(found))
asyncio.run(main())
"""
    assert box.run(ALLOW, "python", code)["stdout"] == "80\n"


def test_python_urllib(box):
    outcomes, _ = box.probe(ALLOW, ["url", "https://ok.example.com/"], ["url", "http://v6.example.com/"])
    assert outcomes[0] in HELLOS and outcomes[1] == "hello from " + OK6


@needs("node")
def test_node_fetch(box):
    code = """
(async () => {
  for (const u of ["https://ok.example.com/", "http://v6.example.com/", "http://other.example.org/", "http://10.9.0.5/"])
    try { console.log((await (await fetch(u)).text()).trim()); }
    catch (e) { const c = e.cause ?? e; console.log(c.code ?? c.errors?.[0]?.code); }
})();
"""
    lines = box.run(ALLOW, "javascript", code, env={"NODE_EXTRA_CA_CERTS": "/box/ca.pem"})["stdout"].split()
    text = " ".join(lines)
    assert text.count("hello from") == 2 and "ENOTFOUND" in text and "ECONNREFUSED" in text, text


@needs("go")
@pytest.mark.slow
def test_go(box):
    code = r"""
package main
import ("fmt"; "io"; "net"; "net/http"; "strings")
func main() {
    for _, u := range []string{"https://ok.example.com/", "http://v6.example.com/"} {
        r, err := http.Get(u)
        if err != nil { fmt.Println(err); continue }
        b, _ := io.ReadAll(r.Body)
        fmt.Print(string(b))
    }
    _, err := net.Dial("tcp", "other.example.org:80")
    fmt.Println(strings.Contains(err.Error(), "no such host"))
    _, err = net.Dial("tcp", "10.9.0.5:80")
    fmt.Println(strings.Contains(err.Error(), "refused"))
}
"""
    lines = box.run(ALLOW, "go", code, env={"SSL_CERT_FILE": "/box/ca.pem"})["stdout"].split("\n")
    assert lines[0] in HELLOS and lines[1:4] == ["hello from " + OK6, "true", "true"], lines


@needs("java")
@pytest.mark.slow
def test_java_http_client(box):
    code = r"""
import java.io.*; import java.net.*; import java.net.http.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Main {
    public static void main(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream("/box/ca.pem")));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        HttpClient client = HttpClient.newBuilder().sslContext(context).build();
        for (String u : new String[]{"https://ok.example.com/", "http://ok.example.com/", "http://other.example.org/", "http://10.9.0.5/"})
            try { System.out.println(client.send(HttpRequest.newBuilder(URI.create(u)).build(), HttpResponse.BodyHandlers.ofString()).body().trim()); }
            catch (IOException e) { System.out.println(e.getClass().getSimpleName()); }
    }
}
"""
    lines = box.run(ALLOW, "java", code)["stdout"].split("\n")
    assert lines[0] in HELLOS and lines[1] in HELLOS, lines
    assert lines[2:4] == ["ConnectException", "ConnectException"], lines


@needs("rustc")
@pytest.mark.slow
def test_rust(box):
    code = r"""
use std::io::{Read, Write};
use std::net::TcpStream;
fn main() {
    let mut s = TcpStream::connect("ok.example.com:80").unwrap();
    s.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    s.read_to_string(&mut text).unwrap();
    println!("{}", text.trim().lines().last().unwrap());
    println!("{:?}", TcpStream::connect("10.9.0.5:80").unwrap_err().kind());
    println!("{}", TcpStream::connect("other.example.org:80").is_err());
}
"""
    lines = box.run(ALLOW, "rust", code)["stdout"].split("\n")
    assert lines[0] in HELLOS and lines[1:3] == ["ConnectionRefused", "true"], lines
