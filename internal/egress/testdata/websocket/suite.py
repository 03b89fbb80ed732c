# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases against an end of a WebSocket:

    suite.py client ADDRESS PORT [PROXY-PORT NAME]   as a client of an echo server
    suite.py server                                  as a server, for echo clients

Through a proxy the server is asked for by NAME, port 80. A server prints its
port; a client opens /CASE for each case that /cases lists, at once or later.
A line of JSON for each case: id, whether what came back is right, and what.
"""
import base64
import hashlib
import json
import os
import re
import socket
import struct
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

from cases import BINARY, CLOSE, CONT, PING, PONG, TEXT, chosen, encode, frame

WAIT = int(os.environ.get("SUITE_WAIT", "60"))  # seconds for anything to come
LOCK = threading.Lock()


def say(**line):
    with LOCK:
        print(json.dumps(line), flush=True)


class Peer:
    """A connection from which frames are read, strictly."""

    def __init__(self, sock, rest, masked, deflate):
        self.sock, self.buf, self.masked, self.deflate = sock, rest, masked, deflate
        self.message, self.kind, self.squeezed = b"", None, False
        self.z = zlib.decompressobj(-15)
        sock.settimeout(WAIT)

    def take(self, n):
        while len(self.buf) < n:
            more = self.sock.recv(1 << 16)
            if not more:
                raise EOFError
            self.buf += more
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def read(self):
        """The next event: a message, a pong, a close or a violation."""
        while True:
            first, second = self.take(2)
            op, fin, rsv, n = first & 15, first >> 7, first >> 4 & 7, second & 0x7F
            if (second >> 7) == self.masked:
                return ("violation", b"mask")
            if n == 126:
                (n,) = struct.unpack(">H", self.take(2))
            elif n == 127:
                (n,) = struct.unpack(">Q", self.take(8))
            key = self.take(4) if second >> 7 else None
            data = self.take(n)
            if key:
                data = (int.from_bytes(data, "big") ^ int.from_bytes((key * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")
            if op == CLOSE:
                return (CLOSE, data)
            if op in (PING, PONG):
                if rsv or not fin or n > 125:
                    return ("violation", b"control")
                if op == PING:
                    self.sock.sendall(encode(frame(PONG, data), self.masked))
                    continue
                return (PONG, data)
            if (op == CONT) == (self.kind is None) or op not in (CONT, TEXT, BINARY) or rsv & ~4 or rsv and (not self.deflate or op == CONT):
                return ("violation", b"frame %d" % first)
            if op != CONT:
                self.kind, self.squeezed, self.message = op, rsv == 4, []
            self.message.append(data)
            if fin:
                kind, data, self.kind = self.kind, b"".join(self.message), None
                if self.squeezed:
                    try:
                        data = self.z.decompress(data + b"\0\0\xff\xff")
                    except zlib.error:
                        return ("violation", b"deflate")
                return (kind, data)


def judge(case, peer, masked):
    """Sends what the case says, and compares what comes back."""
    raw = b"".join(encode(f, masked) for f in case.frames)
    sender = threading.Thread(target=send, args=(peer.sock, raw, case.chop), daemon=True)
    sender.start()
    want, got = list(case.events), []
    ended, closing = None, False
    try:
        while True:
            if not want and case.bye and not closing:
                sender.join(WAIT)
                peer.sock.sendall(encode(frame(CLOSE, struct.pack(">H", 1000)), masked))
                closing = True
            kind, data = peer.read()
            if kind == CLOSE:
                ended = struct.unpack(">H", data[:2])[0] if data else 1005
                if not closing and not any(f["op"] == CLOSE for f in case.frames):
                    try:
                        peer.sock.sendall(encode(frame(CLOSE, data[:2]), masked))
                    except OSError:
                        pass
                break
            got.append((kind, data))
            if kind == "violation":
                break
            if want and want[0][0] == "last pong" and kind == PONG:
                if data == want[0][1][-1]:
                    want.pop(0)
                elif data not in want[0][1]:
                    break
            elif want and want[0] == (kind, data):
                want.pop(0)
            elif kind == PONG and not any(w[0] in (PONG, "last pong") for w in want):
                continue  # behind the end of the case
            else:
                break
    except TimeoutError:
        ended = "nothing for %d s" % WAIT
    except (EOFError, OSError):
        ended = 0
    finally:
        peer.sock.close()
    ok = ended in case.close and (not want or case.early)
    seen = ["%s %s" % (k, d[:20].decode("latin-1") + ("..%d" % len(d) if len(d) > 20 else "")) for k, d in got[-3:]]
    return ok, "%s end %s, %d events missing" % (seen if not ok else "", ended, len(want))


def send(sock, raw, chop):
    try:
        if not chop:
            sock.sendall(raw)
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(raw), chop):
            sock.sendall(raw[i : i + chop])
    except OSError:
        pass  # the other end has closed, as it may


def head(sock):
    buf = b""
    while b"\r\n\r\n" not in buf:
        more = sock.recv(4096)
        if not more:
            raise EOFError
        buf += more
    text, _, rest = buf.partition(b"\r\n\r\n")
    return text.decode("latin-1"), rest


def field(text, name):
    m = re.search(r"(?im)^%s:[ \t]*(.*?)[ \t]*\r?$" % name, text)
    return m.group(1) if m else ""


def accept(key):
    return base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


def as_client(case, address, port, proxy, name):
    sock = socket.create_connection((address, proxy or port), WAIT)
    rest = b""
    host = "%s:%d" % (address, port)
    if proxy:
        host = name
        sock.sendall(b"CONNECT %s:80 HTTP/1.1\r\nHost: %s:80\r\n\r\n" % (name.encode(), name.encode()))
        text, rest = head(sock)
        assert " 200 " in text.split("\r\n")[0], text
    key = base64.b64encode(os.urandom(16)).decode()
    ask = "GET /ws/%s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n" % (case.id, host, key)
    if case.deflate is not None:
        ask += "Sec-WebSocket-Extensions: permessage-deflate%s\r\n" % case.deflate
    sock.sendall(ask.encode() + b"\r\n")
    text, rest = head(sock)
    if " 101 " not in text.split("\r\n")[0] or field(text, "Sec-WebSocket-Accept") != accept(key):
        return None, "no WebSocket: " + text.split("\r\n")[0]
    agreed = field(text, "Sec-WebSocket-Extensions")
    if case.deflate is not None and "permessage-deflate" not in agreed:
        return None, "no compression was agreed on"
    return judge(case, Peer(sock, rest, True, bool(agreed)), True)


def run_client(address, port, proxy=0, name=""):
    def one(case):
        try:
            ok, what = as_client(case, address, port, proxy, name)
        except (OSError, EOFError, AssertionError) as e:
            ok, what = False, repr(e)
        say(id=case.id, ok=ok, what=what)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, chosen()))


def run_server():
    cases = {c.id: c for c in chosen()}
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    say(port=listener.getsockname()[1], cases=list(cases))

    def one(sock):
        sock.settimeout(WAIT)
        try:
            text, rest = head(sock)
            case = cases[re.match(r"GET /ws/(\S+) ", text).group(1)]
            offer = field(text, "Sec-WebSocket-Extensions")
            reply = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n" % accept(field(text, "Sec-WebSocket-Key"))
            if case.deflate is not None:
                if "permessage-deflate" not in offer:
                    say(id=case.id, ok=None, what="compression was not offered")
                    sock.close()
                    return
                reply += "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
            sock.sendall(reply.encode() + b"\r\n")
            ok, what = judge(case, Peer(sock, rest, False, case.deflate is not None), False)
        except (OSError, EOFError) as e:
            ok, what = False, repr(e)
        say(id=case.id, ok=ok, what=what)

    while True:
        sock, _ = listener.accept()
        threading.Thread(target=one, args=(sock,), daemon=True).start()


if sys.argv[1] == "client":
    run_client(sys.argv[2], int(sys.argv[3]), *([int(sys.argv[4]), sys.argv[5]] if len(sys.argv) > 4 else []))
else:
    run_server()
