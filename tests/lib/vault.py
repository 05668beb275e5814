# SPDX-License-Identifier: Apache-2.0
"""The part of the fake outside that wants a secret: paths below /vault/ of the HTTPS servers, and a
server that answers whatever a test wants. What arrives is noted with all its headers."""
import gzip
import hashlib
import json
import socket
import ssl
import threading

VALUE = "sk-test-Zm9vYmFy-0123456789"
BEARER = "Bearer " + VALUE
OTHER_VALUE = "another-secret-value"


def read_body(handler):
    if handler.headers.get("Transfer-Encoding") == "chunked":
        body = b""
        while size := int(handler.rfile.readline().split(b";")[0], 16):
            body += handler.rfile.read(size)
            handler.rfile.readline()
        handler.rfile.readline()
        return body
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


def answer(handler, note):
    body = read_body(handler)
    headers = handler.headers
    path = handler.path[7:].split("?")[0]
    authorization = headers.get_all("Authorization") or []
    note(kind="vault", path=handler.path, method=handler.command, authorization=authorization,
         host=headers.get("Host"), headers=headers.items(), length=len(body))
    echo = json.dumps(headers.items()).encode()
    if path == "redirect":
        handler.answer(b"", 302, Location="https://shared.example.org/vault/echo")
    elif path == "echo":
        handler.answer(echo, X_Echo=" ".join(authorization), X_Length=len(echo))
    elif path == "echo-chunked":
        send_chunked(handler, echo)
    elif path == "echo-close":
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(echo)
        handler.close_connection = True
        handler.connection.unwrap()
    elif path == "gzip":
        handler.answer(gzip.compress(echo), Content_Encoding="gzip")
    elif path.startswith("big-"):
        handler.answer(b"x" * int(path[4:]))
    elif path == "upload":
        handler.answer(json.dumps([len(body), hashlib.sha256(body).hexdigest(), authorization == [BEARER]]).encode())
    elif authorization == [BEARER]:
        handler.answer(b"open\n", Alt_Svc='h3=":443"')
    else:
        handler.answer(b"closed\n", 401)


def send_chunked(handler, body):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for i in range(0, len(body), 3):
        piece = body[i:i + 3]
        handler.wfile.write(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
    handler.wfile.write(b"0\r\nX-Trailer: %s\r\n\r\n" % VALUE.encode())


def serve_raw(port, top):
    """Answers the first request with the file raw.TARGET, byte for byte, and closes. After 3 s without progress it hangs up."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(top / "server.pem", top / "server.key")
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)

    def one(connection):
        try:
            with tls.wrap_socket(connection, server_side=True) as s:
                head = b""
                while b"\r\n\r\n" not in head:
                    piece = s.recv(65536)
                    if not piece:
                        return
                    head += piece
                s.settimeout(3)
                name = head.split(b" ")[1].decode().strip("/")
                s.sendall((top / ("raw." + name)).read_bytes())
                s.unwrap()
        except OSError:
            pass

    def loop():
        while True:
            threading.Thread(target=one, args=[listener.accept()[0]], daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
