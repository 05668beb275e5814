# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Daytona, made from its published interface. A workspace is a directory of this machine.

    python standin_daytona.py DIR    writes DIR/port; workspaces in DIR/boxes; DIR/calls has each call
"""
import asyncio
import json
import os
import pathlib
import pty
import shutil
import sys

from aiohttp import WSMsgType, web

from standin_place import end_all

DIR = pathlib.Path(sys.argv[1])
BOXES, PROGRAMS = {}, {}


def note(*words):
    with open(DIR / "calls", "a") as calls:
        calls.write(" ".join(str(word) for word in words) + "\n")


def answer(box):
    return web.json_response({**box, "toolboxProxyUrl": "http://127.0.0.1:%s/toolbox" % (DIR / "port").read_text()})


def find(request):
    wanted = request.match_info["id"]
    for box in BOXES.values():
        if wanted in (box["id"], box["name"]):
            return box
    raise web.HTTPNotFound(text=json.dumps({"message": "Sandbox %s not found" % wanted, "statusCode": 404}), content_type="application/json")


@web.middleware
async def keys(request, handler):
    if request.headers.get("Authorization") != "Bearer right":
        return web.json_response({"message": "Invalid API key", "statusCode": 401}, status=401)
    return await handler(request)


async def create(request):
    ask = await request.json()
    note("create", ask.get("name"), ask.get("cpu"), ask.get("memory"), ask.get("disk"), ask.get("networkBlockAll"), ask.get("autoStopInterval"))
    found = "box%d" % len(BOXES)
    (DIR / "boxes" / found).mkdir()
    box = {"id": found, "organizationId": "o", "name": ask.get("name") or found, "user": "daytona", "env": ask.get("env") or {},
           "labels": ask.get("labels") or {}, "public": False, "networkBlockAll": bool(ask.get("networkBlockAll")), "target": "here",
           "cpu": ask.get("cpu") or 1, "gpu": 0, "memory": ask.get("memory") or 1, "disk": ask.get("disk") or 3, "kvm": False,
           "state": "started", "volumes": [], "buildInfo": None}
    BOXES[found] = box
    return answer(box)


async def get(request):
    return answer(find(request))


async def start(request):
    box = find(request)
    note("start", box["name"])
    box["state"] = "started"
    return answer(box)


async def stop(request):
    box = find(request)
    note("stop", box["name"])
    end_all(DIR / "boxes" / box["id"])
    box["state"] = "stopped"
    return answer(box)


async def delete(request):
    box = find(request)
    note("delete", box["name"])
    end_all(DIR / "boxes" / box["id"])
    shutil.rmtree(DIR / "boxes" / box["id"], ignore_errors=True)
    return answer({**BOXES.pop(box["id"]), "state": "destroyed"})


async def terminal(request):
    """A shell on a pseudo-terminal, as a person would have it: with echo, and in the terminal's line mode."""
    box = find(request)
    home = DIR / "boxes" / box["id"]
    socket = web.WebSocketResponse(max_msg_size=0, protocols=[p.strip() for p in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if p])
    await socket.prepare(request)
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(home)
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile"], {"PATH": "/usr/bin:/bin", "HOME": str(home), "TERM": "xterm", "PS1": "$ "})
    PROGRAMS.setdefault(box["id"], []).append(pid)
    await socket.send_str(json.dumps({"type": "control", "status": "connected"}))
    loop = asyncio.get_running_loop()

    async def listen():
        while True:
            try:
                data = await loop.run_in_executor(None, os.read, fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            await socket.send_bytes(data)
        status = os.waitpid(pid, 0)[1]
        await socket.close(message=json.dumps({"exitCode": os.waitstatus_to_exitcode(status)}).encode())
    listener = asyncio.create_task(listen())
    async for message in socket:
        data = message.data if message.type == WSMsgType.BINARY else message.data.encode()
        while data:
            written = await loop.run_in_executor(None, os.write, fd, data)
            data = data[written:]
    try:
        os.killpg(pid, 1)
    except OSError:
        pass
    await listener
    return socket


async def kill(request):
    for pid in PROGRAMS.pop(find(request)["id"], []):
        try:
            os.killpg(pid, 9)
        except OSError:
            pass
    return web.json_response({"message": "killed"})


async def anything(request):
    note("UNKNOWN", request.method, request.path)
    return web.json_response({"message": "there is no %s %s here" % (request.method, request.path), "statusCode": 404}, status=404)


async def main():
    (DIR / "boxes").mkdir()
    app = web.Application(middlewares=[keys], client_max_size=1 << 30)
    app.add_routes([
        web.post("/api/sandbox", create), web.get("/api/sandbox/{id}", get), web.post("/api/sandbox/{id}/start", start),
        web.post("/api/sandbox/{id}/stop", stop), web.delete("/api/sandbox/{id}", delete),
        web.get("/toolbox/{id}/process/pty/create-connect", terminal), web.delete("/toolbox/{id}/process/pty/{session}", kill),
        web.route("*", "/{rest:.*}", anything)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (DIR / "port.new").write_text(str(site._server.sockets[0].getsockname()[1]))
    (DIR / "port.new").rename(DIR / "port")
    await asyncio.Event().wait()

asyncio.run(main())
