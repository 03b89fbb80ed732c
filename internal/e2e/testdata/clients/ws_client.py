# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Talks to an echo server with websockets: ws_client.py ADDRESS TOKEN. It
prints what was negotiated, and how it ended."""
import asyncio
import os
import socket
import sys
from urllib.parse import urlsplit

import websockets


def tunnel(host, port):
    """What programs do whose library knows no proxy."""
    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    s = socket.create_connection((proxy.hostname, proxy.port))
    s.sendall(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host.encode(), port, host.encode(), port))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = s.recv(1)
        assert more, head
        head += more
    assert head.startswith(b"HTTP/1.1 200"), head
    s.setblocking(False)
    return s


async def main(address, token):
    to = urlsplit(address)
    more = {}
    if os.environ.get("HTTPS_PROXY"):
        more = {"sock": tunnel(to.hostname, to.port or 443), "server_hostname": to.hostname}
    async with websockets.connect(address, max_size=None, **more) as ws:
        for m in token, "é" * 70000, "", os.urandom(200000), bytes(1 << 20):
            await ws.send(m)
            got = await ws.recv()
            assert got == m, (len(m), len(got))
        await ws.send(iter(["one ", "two"]))  # in fragments
        assert await ws.recv() == "one two"
        await (await ws.ping(b"p"))
        print("here:", ",".join(e.name for e in ws.extensions) or "none")
        await ws.send("close 4001 bye")
        await ws.wait_closed()
        print("closed", ws.close_code, ws.close_reason, token)


asyncio.run(main(*sys.argv[1:]))
