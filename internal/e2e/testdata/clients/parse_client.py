# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the bytes of one connection from standard input and prints one JSON
line for each request: with h11 if the first argument says so, else with the
parser of Python's own http.server."""
import hashlib
import http.server
import io
import json
import sys

data = sys.stdin.buffer.read()


def show(method, target, host, body):
    print(json.dumps({"method": method, "target": target, "host": host, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}))


def with_h11():
    import h11

    c = h11.Connection(h11.SERVER)
    c.receive_data(data)
    c.receive_data(b"")
    head, body = None, b""
    while True:
        e = c.next_event()
        if isinstance(e, h11.Request):
            head, body = e, b""
        elif isinstance(e, h11.Data):
            body += e.data
        elif isinstance(e, h11.EndOfMessage):
            host = [v.decode() for k, v in head.headers if k == b"host"]
            show(head.method.decode(), head.target.decode(), ",".join(host), body)
            if c.our_state is h11.SEND_RESPONSE:
                c.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                c.send(h11.EndOfMessage())
            if c.our_state is h11.MUST_CLOSE:
                return
            c.start_next_cycle()
        elif e is h11.PAUSED or isinstance(e, h11.ConnectionClosed) or e is h11.NEED_DATA:
            return


def with_http_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def __init__(self, rfile):
            self.rfile, self.wfile, self.client_address = rfile, io.BytesIO(), ("", 0)

        def log_message(self, *args):
            pass

    f = io.BytesIO(data)
    while True:
        h = Handler(f)
        h.raw_requestline = f.readline(65537)
        if not h.raw_requestline:
            return
        if not h.parse_request():
            print(json.dumps({"error": h.wfile.getvalue().decode("latin-1")}))
            return
        body = b""
        if h.headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                n = int(f.readline().strip(), 16)
                body += f.read(n)
                f.readline()
                if n == 0:
                    break
        else:
            body = f.read(int(h.headers.get("content-length", "0")))
        show(h.command, h.path, ",".join(h.headers.get_all("host", [])), body)


with_h11() if sys.argv[1:] == ["h11"] else with_http_server()
