# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Speaks TLS with every byte of it in a packet of its own: drip.py HOST TEXT
sends TEXT and prints what comes back until the other end is done."""
import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

host, text = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode()
if os.environ.get("HTTPS_PROXY"):
    proxy = urlsplit(os.environ["HTTPS_PROXY"])
    s = socket.create_connection((proxy.hostname, proxy.port))
    s.sendall(b"CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n" % (host.encode(), host.encode()))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = s.recv(1)
        assert more, head
        head += more
    assert head.startswith(b"HTTP/1.1 200"), head
else:
    s = socket.create_connection((host, 443))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=host)


def drip():
    for byte in outgoing.read():
        s.send(bytes([byte]))


def until(step):
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            drip()
            more = s.recv(65536)
            if more:
                incoming.write(more)
            else:
                incoming.write_eof()
        finally:
            drip()


until(tls.do_handshake)
until(lambda: tls.write(text))
try:
    while True:
        part = until(lambda: tls.read(65536))
        if not part:
            break
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
except ssl.SSLEOFError:
    pass
