import asyncio

async def serve(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async def ask(text):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text.encode() + b"\n")
        answer = await reader.read()
        writer.close()
        return answer
    print(await asyncio.gather(*[ask("n%d" % i) for i in range(5)]))
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0])
    print(await asyncio.to_thread(lambda: sum(range(100))))
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.01)
    except asyncio.TimeoutError:
        print("timeout")
    server.close()

asyncio.run(main())
