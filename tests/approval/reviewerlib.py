# SPDX-License-Identifier: Apache-2.0
"""A reviewer: an HTTP server on loopback that answers as it is told, and keeps what it was sent.
And a webhook, which only keeps."""
import http.server
import json
import socketserver
import threading
import time

GOOD = {"decision": "approve", "scope": "once", "risk": "low", "confidence": 0.9, "reason": "harmless"}


class Endpoint(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self):
        self.requests = []
        self.stopped = threading.Event()
        self.behave(GOOD)
        super().__init__(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def behave(self, content=None, status=200, raw=None, late=False, endless=False, headers=()):
        """`content` is what the model says: text, None, or an object that becomes JSON."""
        self.requests.clear()
        self.content, self.status, self.raw, self.late = content, status, raw, late
        self.endless, self.headers = endless, headers

    def answer(self, path):
        if self.raw is not None:
            return self.raw
        text = self.content if self.content is None or isinstance(self.content, str) else json.dumps(self.content)
        if path.endswith("/responses"):
            return json.dumps({"output": [{"type": "reasoning"}, {"type": "message", "content": [
                {"type": "output_text", "text": text}]}]}).encode()
        return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()

    def close(self):
        self.stopped.set()
        self.shutdown()
        self.server_close()
        self.thread.join()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        if self.server.late:
            self.server.stopped.wait(60)
            return
        answer = self.server.answer(self.path)
        self.send_response(self.server.status)
        for name, value in self.server.headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        if self.server.endless:
            self.end_headers()
            try:
                while not self.server.stopped.is_set():
                    self.wfile.write(b" " * 4096)
                    time.sleep(0.001)
            except OSError:
                self.close_connection = True
            return
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass
