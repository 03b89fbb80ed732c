# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Talks to the world's line server over plain TCP: halves.py HOST WAY TOKEN,
where WAY is how the connection ends."""
import os
import socket
import struct
import sys
from urllib.parse import urlsplit

host, way, token = sys.argv[1:]


def connect():
    if not os.environ.get("HTTPS_PROXY"):
        return socket.create_connection((host, 5432))
    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    c = socket.create_connection((proxy.hostname, proxy.port))
    c.sendall(b"CONNECT %s:5432 HTTP/1.1\r\nHost: %s:5432\r\n\r\n" % (host.encode(), host.encode()))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = c.recv(1)
        assert more, head
        head += more
    assert head.startswith(b"HTTP/1.1 200"), head
    return c


def rest(c):
    text = b""
    while True:
        more = c.recv(1000)
        if not more:
            return text
        text += more


s = connect()
s.settimeout(20)
s.sendall(b"tell %s\nhello\n" % token.encode())
assert s.recv(100) == b"row: hello\n"
if way == "half":  # this end is done first, and still hears the answer
    s.shutdown(socket.SHUT_WR)
    print(rest(s))
elif way == "other half":  # the other end is done first, and still hears
    s.sendall(b"end\n")
    assert rest(s) == b""
    s.sendall(b"one more\n")
    s.close()
    print("closed")
elif way == "reset":
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    print("reset")
elif way == "other reset":
    s.sendall(b"reset\n")
    try:
        print(rest(s))
    except ConnectionResetError:
        print("was reset")
