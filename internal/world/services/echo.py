# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""An echo server with websockets: echo.py ADDRESS PORT, certificate and key in
the working directory."""
import asyncio
import ssl
import sys

import websockets


async def echo(socket, path=None):
    async for message in socket:
        if message == "extensions":
            await socket.send(",".join(e.name for e in socket.extensions))
        elif isinstance(message, str) and message.startswith("close "):
            _, code, reason = message.split(" ", 2)
            await socket.close(int(code), reason)
        else:
            await socket.send(message)


async def main():
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain("cert.pem", "key.pem")
    async with websockets.serve(echo, sys.argv[1], int(sys.argv[2]), ssl=secure, max_size=64 << 20):
        await asyncio.Future()


asyncio.run(main())
