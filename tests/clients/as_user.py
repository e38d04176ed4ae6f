"""Relays local TCP ports to Unix sockets as other users, so that any HTTP client can be any peer.

Started as root with {"users": [{"uid", "gid"}..], "sockets": [path..]}: one process per user, one port per socket.
Prints the ports, by user and then by socket, and ends when its standard input does.
"""

import asyncio
import json
import os
import socket
import sys


async def pipe(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def relay(path, client_reader, client_writer):
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        client_writer.close()
        return
    await asyncio.gather(pipe(client_reader, writer), pipe(reader, client_writer))
    writer.close()
    client_writer.close()


async def serve(listeners, paths):
    for listener, path in zip(listeners, paths):
        await asyncio.start_server(lambda r, w, path=path: relay(path, r, w), sock=listener)
    # At the end there is nobody left to relay for.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: os.read(sys.stdin.fileno(), 1) or os._exit(0))
    await asyncio.get_running_loop().create_future()


wanted = json.loads(sys.argv[1])
users, paths = wanted["users"], wanted["sockets"]
listeners = [[socket.create_server(("127.0.0.1", 0), backlog=256) for _ in paths] for _ in users]
children = []
for user, of_user in zip(users, listeners):
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(user["gid"])
        os.setuid(user["uid"])
        for other in listeners:
            if other is not of_user:
                for listener in other:
                    listener.close()
        asyncio.run(serve(of_user, paths))
    children.append(child)
print(json.dumps([[listener.getsockname()[1] for listener in of_user] for of_user in listeners]), flush=True)
for of_user in listeners:
    for listener in of_user:
        listener.close()
for child in children:
    os.waitpid(child, 0)
