# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Modal, made from the services that its own package declares. A sandbox is a directory of this machine.

    python standin_modal.py DIR      writes DIR/port; sandboxes in DIR/b, snapshots in DIR/images; DIR/calls has each call
"""
import asyncio
import base64
import inspect
import json
import pathlib
import shutil
import sys
import time

import grpclib
from grpclib.server import Server
from modal_proto import api_grpc, api_pb2, task_command_router_grpc, task_command_router_pb2 as router

from standin_place import end_all

DIR = pathlib.Path(sys.argv[1])
RUNNING, PROGRAMS, OPENED = {}, {}, [0]  # sandbox id -> definition; exec id -> program
URL = [""]


def box_of(found):
    """Short: a socket of the far shell lies in it."""
    return DIR / "b" / str(int(found[3:]))


def token():
    body = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time()) + 86400}).encode()).rstrip(b"=").decode()
    return "e30.%s.x" % body


def note(*words):
    with open(DIR / "calls", "a") as calls:
        calls.write(" ".join(str(word) for word in words) + "\n")


def refuse(name):
    async def method(self, stream):
        note("UNIMPLEMENTED", name)
        raise grpclib.GRPCError(grpclib.const.Status.UNIMPLEMENTED, name)
    return method


def answering(answer):
    """A call with one request and one answer."""
    async def method(self, stream):
        request = await stream.recv_message()
        if (DIR / "refuse").exists():
            raise grpclib.GRPCError(grpclib.const.Status.UNAUTHENTICATED, "Token ID is malformed")
        await stream.send_message(answer(request))
    return method


def missing(what):
    raise grpclib.GRPCError(grpclib.const.Status.NOT_FOUND, what)


def create(request):
    definition = request.definition
    OPENED[0] += 1
    found = "sb-%024d" % OPENED[0]
    box = box_of(found)
    image = DIR / "images" / definition.image_id
    if definition.image_id.startswith("im-snap"):
        if not image.is_dir():
            missing("image %s has expired" % definition.image_id)
        shutil.copytree(image, box, symlinks=True, ignore=lambda path, names: [n for n in names if n.startswith("s-")])
    else:
        box.mkdir(parents=True)
    RUNNING[found] = request
    note("create", definition.name, definition.image_id, definition.timeout_secs, definition.resources.milli_cpu_max,
         definition.resources.memory_mb_max, "blocked" if definition.block_network or definition.network_access.network_access_type == 2 else "open")
    return api_pb2.SandboxCreateV2Response(sandbox_id=found, task_id=found.replace("sb", "ta"),
                                           command_router_access=api_pb2.CommandRouterAccess(jwt=token(), url=URL[0]))


def by_name(request):
    for found, made in RUNNING.items():
        if made.definition.name == request.sandbox_name:
            return api_pb2.SandboxGetFromNameResponse(sandbox_id=found)
    missing("there is no sandbox of this name")


def wait(request):
    status = 0 if request.sandbox_id in RUNNING else 3
    return api_pb2.SandboxWaitResponse(result=api_pb2.GenericResult(status=status))


def terminate(request):
    note("terminate", RUNNING.pop(request.sandbox_id).definition.name)
    end_all(box_of(request.sandbox_id))
    shutil.rmtree(box_of(request.sandbox_id), ignore_errors=True)
    return api_pb2.SandboxTerminateResponse()


def tags(request):
    return api_pb2.SandboxTagsGetResponse(tags=RUNNING[request.sandbox_id].tags)


ANSWERS = {
    "ClientHello": lambda r: api_pb2.ClientHelloResponse(image_builder_version="2025.06"),
    "AuthTokenGet": lambda r: api_pb2.AuthTokenGetResponse(token=token()),
    "EnvironmentGetOrCreate": lambda r: api_pb2.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=api_pb2.EnvironmentMetadata(
        name="main", settings=api_pb2.EnvironmentSettings(image_builder_version="2025.06"))),
    "AppGetOrCreate": lambda r: api_pb2.AppGetOrCreateResponse(app_id="ap-1"),
    "ImageGetOrCreate": lambda r: api_pb2.ImageGetOrCreateResponse(
        image_id="im-base", result=api_pb2.GenericResult(status=1), metadata=api_pb2.ImageMetadata(image_builder_version="2025.06")),
    "ImageFromId": lambda r: api_pb2.ImageFromIdResponse(image_id=r.image_id, metadata=api_pb2.ImageMetadata(image_builder_version="2025.06")),
    "SandboxCreateV2": create, "SandboxGetFromName": by_name, "SandboxGetFromNameV2": by_name,
    "SandboxWait": wait, "SandboxWaitV2": wait, "SandboxTerminate": terminate, "SandboxTerminateV2": terminate,
    "SandboxTagsGet": tags, "SandboxTagsGetV2": tags,
    "SandboxGetTaskIdV2": lambda r: api_pb2.SandboxGetTaskIdResponse(task_id=r.sandbox_id.replace("sb", "ta")),
    "SandboxGetCommandRouterAccess": lambda r: api_pb2.SandboxGetCommandRouterAccessResponse(jwt=token(), url=URL[0]),
}


def service(base, methods):
    names = [name for name, _ in inspect.getmembers(base, inspect.isfunction) if getattr(getattr(base, name), "__isabstractmethod__", False)]
    return type(base.__name__.replace("Base", ""), (base,), {name: methods.get(name, refuse(name)) for name in names})()


class Program:
    def __init__(self, request):
        self.box = box_of(request.task_id)
        self.out, self.changed, self.written, self.ended = bytearray(), asyncio.Condition(), 0, False
        self.argv = list(request.command_args)

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            *self.argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd=self.box, env={"PATH": "/usr/bin:/bin", "HOME": str(self.box)}, start_new_session=True)
        asyncio.create_task(self.listen())

    async def listen(self):
        while data := await self.process.stdout.read(1 << 18):
            async with self.changed:
                self.out += data
                self.changed.notify_all()
        await self.process.wait()
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    async def write(self, offset, data, eof):
        data = data[max(0, self.written - offset):]
        self.written += len(data)
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
            if eof:
                self.process.stdin.close()
        except OSError:
            pass


async def exec_start(self, stream):
    request = await stream.recv_message()
    if request.exec_id not in PROGRAMS:
        PROGRAMS[request.exec_id] = Program(request)
        await PROGRAMS[request.exec_id].start()
    await stream.send_message(router.TaskExecStartResponse())


async def stdin_write(self, stream):
    request = await stream.recv_message()
    await PROGRAMS[request.exec_id].write(request.offset, request.data, request.eof)
    await stream.send_message(router.TaskExecStdinWriteResponse())


async def stdin_stream(self, stream):
    program, offset = None, 0
    async for request in stream:
        if request.HasField("start"):
            program, offset = PROGRAMS[request.start.exec_id], request.start.offset
        else:
            await program.write(offset, request.data, request.HasField("end"))
            offset += len(request.data)
    await stream.send_message(router.TaskExecStdinWriteStreamResponse())


async def stdin_status(self, stream):
    request = await stream.recv_message()
    await stream.send_message(router.TaskExecStdinStatusResponse(num_bytes_written=PROGRAMS[request.exec_id].written))


async def stdio_read(self, stream):
    request = await stream.recv_message()
    program, at = PROGRAMS[request.exec_id], request.offset
    while True:
        async with program.changed:
            await program.changed.wait_for(lambda: program.ended or len(program.out) > at)
            data = bytes(program.out[at:at + (1 << 20)])
        if not data:
            return
        at += len(data)
        await stream.send_message(router.TaskExecStdioReadResponse(data=data))


async def exec_wait(self, stream):
    program = PROGRAMS[(await stream.recv_message()).exec_id]
    await program.process.wait()
    await stream.send_message(router.TaskExecWaitResponse(code=program.process.returncode))


async def snapshot(self, stream):
    request = await stream.recv_message()
    box = box_of(request.task_id)
    found = "im-snap%020d" % len(list((DIR / "images").iterdir()))
    shutil.copytree(box, DIR / "images" / found, symlinks=True, ignore=lambda path, names: [n for n in names if n.startswith("s-")])
    note("snapshot", found)
    await stream.send_message(router.TaskSnapshotFilesystemResponse(image_id=found))


async def main():
    for name in ("b", "images"):
        (DIR / name).mkdir()
    server = Server([
        service(api_grpc.ModalClientBase, {name: answering(answer) for name, answer in ANSWERS.items()}),
        service(task_command_router_grpc.TaskCommandRouterBase, {
            "TaskExecStart": exec_start, "TaskExecStdinWrite": stdin_write, "TaskExecStdinWriteStream": stdin_stream,
            "TaskExecStdinStatus": stdin_status, "TaskExecStdioRead": stdio_read, "TaskExecWait": exec_wait,
            "TaskSnapshotFilesystem": snapshot})])
    await server.start("127.0.0.1", 0)
    port = server._server.sockets[0].getsockname()[1]
    URL[0] = "http://127.0.0.1:%d" % port
    (DIR / "port.new").write_text(str(port))
    (DIR / "port.new").rename(DIR / "port")
    await server.wait_closed()

asyncio.run(main())
