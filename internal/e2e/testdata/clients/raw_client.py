# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sends exact bytes and prints what comes back, one JSON line for each job.

Standard input holds a JSON object a line:
  {"connect": bytes of the CONNECT head, or absent for none,
   "to": [host, port] instead of the proxy, "sni": name or absent for no TLS,
   "send": bytes, "half": true to end our half after sending}
Bytes are Latin-1 text. The answer: {"connect": head, "got": bytes, "error": text}.
"""
import json
import os
import socket
import ssl
import sys
import urllib.parse


def until_blank_line(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(1)
        if not more:
            break
        data += more
    return data


def do(job):
    out = {"connect": "", "got": "", "error": ""}
    try:
        to = job.get("to")
        if not to:
            url = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
            to = [url.hostname, url.port]
        s = socket.create_connection(tuple(to), 15)
        if "connect" in job:
            s.sendall(job["connect"].encode("latin-1"))
            out["connect"] = until_blank_line(s).decode("latin-1")
            if out["connect"][9:12] != "200":
                s.settimeout(1)
                out["connect"] += s.recv(65536).decode("latin-1")
                return out
        if "sni" in job:
            context = ssl.create_default_context()
            context.check_hostname = False
            s = context.wrap_socket(s, server_hostname=job["sni"] or None)
        s.sendall(job["send"].encode("latin-1"))
        if job.get("half") and not isinstance(s, ssl.SSLSocket):
            s.shutdown(socket.SHUT_WR)
        while True:
            more = s.recv(65536)
            if not more:
                break
            out["got"] += more.decode("latin-1")
    except (OSError, KeyError, ValueError) as e:
        out["error"] = "%s: %s" % (type(e).__name__, e)
    return out


for line in sys.stdin:
    print(json.dumps(do(json.loads(line))), flush=True)
