#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records docs/demo.cast and docs/demo.svg: types the commands below into a real bash on a real
terminal and keeps what appears, with its times.

    tools/record-demo.py [BUILD_DIR]        run as root: boxes then have level `full`

The picture is drawn from the recording alone. It shows each piece of text when it appeared, and all
of it in a viewer that plays no animation.
"""
import html
import json
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import time
import fcntl

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 80, 22
KEY_S = 0.012  # between two keys
READ_S = 0.6  # after a command, to read what it printed
PROMPT = "$ "

FILES = {
    "fork_bomb.py": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "steal.sh": "cat /etc/shadow; ls /home; kill -9 -1; touch /usr/bin/x\n",
    "sum.cpp": "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }\n",
    "sum/1.in": "1 2\n", "sum/1.ans": "3\n", "sum/2.in": "40 2\n", "sum/2.ans": "42\n",
}
COMMANDS = [
    "echo 'print(sum(range(101)))' | hermes run -l python -",
    "hermes run --time 1s fork_bomb.py; echo \"exit status $?\"",
    "cat steal.sh",
    "hermes run steal.sh",
    "hermes judge sum sum.cpp",
]


class Recording:
    """A bash on a terminal of its own, and what it showed: (seconds, text)."""

    def __init__(self, folder, env):
        self.events = []
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile"], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        self.start = time.monotonic()

    def read_for(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                text = os.read(self.fd, 65536).decode()
                self.events.append((round(time.monotonic() - self.start, 3), text))

    def read_until_prompt(self, seconds=60):
        end = time.monotonic() + seconds
        while not "".join(text for _, text in self.events).endswith("\n" + PROMPT):
            if time.monotonic() > end:
                sys.exit("record-demo: no prompt came back within %d s" % seconds)
            self.read_for(0.02)

    def type(self, command):
        for key in command + "\r":
            os.write(self.fd, key.encode())
            self.read_for(KEY_S)

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def record(build):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hermes-demo."))
    env = {"PATH": "%s:/usr/bin:/bin" % build, "HOME": str(folder), "TERM": "dumb", "PS1": PROMPT,
           "HERMES_STATE_DIR": str(folder / "state"), "HERMES_RUNTIMES": str(ROOT / "runtimes"),
           "LANG": "C.UTF-8"}
    try:
        for name, text in FILES.items():
            path = folder / "work" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        # The first run of a language makes its root tree: done before, as on any machine in use.
        warm = Recording(folder / "work", env)
        warm.read_for(0.5)
        for command in COMMANDS:
            os.write(warm.fd, (command + "\r").encode())
            warm.read_until_prompt()
        warm.close()
        shutil.rmtree(folder / "state/cache", ignore_errors=True)  # but the compiler is to work
        shown = Recording(folder / "work", env)
        shown.read_for(0.5)
        for command in COMMANDS:
            shown.type(command)
            shown.read_until_prompt()
            shown.read_for(READ_S)
        shown.close()
        return shown.events
    finally:
        shutil.rmtree(folder)


def lines_of(events):
    """The screen as lines of (second, text): what appeared when. Colours are left out."""
    lines = [[]]
    for second, text in events:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")
        if "\x1b" in text or "\r" in text or "\b" in text:
            sys.exit("record-demo: a program moved the cursor, which the picture cannot show: %r" % text)
        for i, part in enumerate(text.split("\n")):
            if i:
                lines.append([])
            if part:
                lines[-1].append((second, part))
    return lines


def draw(events):
    lines = lines_of(events)
    wide, high, left, top, step = COLUMNS * 8.4 + 32, len(lines) * 19 + 30, 16, 30, 19
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">'
           % (wide, high, wide, high),
           "<title>hermes in a terminal, recorded by tools/record-demo.py</title>",
           "<style>text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d6dde6;white-space:pre}"
           ".p{fill:#7ee0a0}tspan{animation:wait step-end backwards}"
           "@keyframes wait{from{visibility:hidden}to{visibility:visible}}"
           "@media(prefers-reduced-motion:reduce){tspan{animation:none}}</style>",
           '<rect width="100%" height="100%" rx="8" fill="#161b22" stroke="#5b6675"/>']
    for row, line in enumerate(lines):
        spans = []
        for i, (second, text) in enumerate(line):
            is_prompt = i == 0 and text.startswith(PROMPT)
            spans.append('<tspan%s style="animation-duration:%.2fs">%s</tspan>'
                         % (' class="p"' if is_prompt else "", second, html.escape(text)))
        if spans:
            out.append('<text x="%d" y="%d" xml:space="preserve">%s</text>' % (left, top + row * step, "".join(spans)))
    return "\n".join(out + ["</svg>", ""])


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    events = record(build)
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "hermes"}
    cast = [json.dumps(header)] + [json.dumps([second, "o", text]) for second, text in events]
    (ROOT / "docs/demo.cast").write_text("\n".join(cast) + "\n")
    (ROOT / "docs/demo.svg").write_text(draw(events))
    print("recorded %.1f s" % events[-1][0])


if __name__ == "__main__":
    main()
