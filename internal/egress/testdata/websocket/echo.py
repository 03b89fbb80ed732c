# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Echo ends with Python's websockets: "echo.py server" prints its port,
"echo.py client PORT CASES [PROXY-PORT NAME]" opens the WebSocket of each case."""
import asyncio
import json
import logging
import socket
import sys

import websockets

LIMIT = 64 << 20
logging.getLogger("websockets").setLevel(logging.CRITICAL)


async def echo(s, path=None):
    try:
        async for message in s:
            await s.send(message)
    except websockets.ConnectionClosed:
        pass


async def server():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=LIMIT, ping_interval=None) as s:
        print(json.dumps({"port": s.sockets[0].getsockname()[1]}), flush=True)
        await asyncio.Future()


def connected(port, proxy, name):
    sock = socket.create_connection(("127.0.0.1", proxy or port))
    if proxy:
        sock.sendall(b"CONNECT %s:80 HTTP/1.1\r\nHost: %s:80\r\n\r\n" % (name.encode(), name.encode()))
        got = b""
        while b"\r\n\r\n" not in got:
            got += sock.recv(1)
    sock.setblocking(False)
    return sock


async def client(port, cases, proxy=0, name=""):
    host = name if proxy else "127.0.0.1:%d" % port
    left = json.load(open(cases))

    async def worker():
        while left:
            id = left.pop(0)
            try:
                sock = connected(port, proxy, name)
                async with websockets.connect("ws://%s/ws/%s" % (host, id), sock=sock, max_size=LIMIT, ping_interval=None) as s:
                    await echo(s)
            except (OSError, websockets.WebSocketException):
                pass

    await asyncio.gather(*(worker() for _ in range(4)))


if sys.argv[1] == "server":
    asyncio.run(server())
else:
    asyncio.run(client(int(sys.argv[2]), sys.argv[3], *([int(sys.argv[4]), sys.argv[5]] if len(sys.argv) > 4 else [])))
