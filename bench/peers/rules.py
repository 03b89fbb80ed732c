# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Judges and logs each request and each WebSocket message that mitmproxy sees.

The settings come from the environment: BENCH_LOG, BENCH_HOSTS, BENCH_PATH.
"""

import os
import time

from mitmproxy import http

HOSTS = set(os.environ["BENCH_HOSTS"].split(","))
PATH = os.environ["BENCH_PATH"]
LOG = open(os.environ["BENCH_LOG"], "a", buffering=1)


def log(status, what):
    LOG.write("%.6f %s %s\n" % (time.time(), status, what))


def http_connect(flow):
    if flow.request.host not in HOSTS:
        flow.response = http.Response.make(403)
    log(flow.response.status_code if flow.response else 200, "CONNECT " + flow.request.host)


def requestheaders(flow):
    r = flow.request
    if r.method not in ("GET", "POST") or not r.path.startswith(PATH) or r.pretty_host not in HOSTS:
        flow.response = http.Response.make(403, b"refused")
        log(403, r.method + " " + r.pretty_url)


def responseheaders(flow):
    if flow.response.headers.get("content-type", "").startswith("text/event-stream"):
        flow.response.stream = True
    log(flow.response.status_code, flow.request.method + " " + flow.request.pretty_url)


def websocket_message(flow):
    message = flow.websocket.messages[-1]
    log("message", "%d %s" % (len(message.content), flow.request.pretty_url))
    del flow.websocket.messages[:]  # nothing is kept but the line
