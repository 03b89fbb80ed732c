# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gets one address with a library and prints what comes as it comes:
http_client.py LIBRARY ADDRESS, where LIBRARY is http.client, urllib, requests
or httpx, and httpx must speak HTTP/2."""
import os
import sys
from urllib.parse import urlsplit


def http_client(url):
    import http.client
    import ssl

    to = urlsplit(url)
    context = ssl.create_default_context()
    if os.environ.get("HTTPS_PROXY"):
        proxy = urlsplit(os.environ["HTTPS_PROXY"])
        conn = http.client.HTTPSConnection(proxy.hostname, proxy.port, context=context)
        conn.set_tunnel(to.hostname, 443)
    else:
        conn = http.client.HTTPSConnection(to.hostname, context=context)
    conn.request("GET", to.path + ("?" + to.query if to.query else ""))
    yield from conn.getresponse()


def urllib(url):
    import urllib.request

    yield from urllib.request.urlopen(url)


def requests(url):
    import requests

    # Debian's requests knows Debian's bundle alone, unless told by the environment.
    yield from requests.get(url, stream=True).iter_content(None)


def httpx(url):
    import ssl

    import httpx

    # Debian's httpx takes roots from SSL_CERT_FILE; without one, the system's.
    with httpx.Client(http2=True, verify=ssl.create_default_context()) as client:
        with client.stream("GET", url) as answer:
            assert answer.http_version == "HTTP/2", answer.http_version
            yield from answer.iter_bytes()


LIBRARIES = {"http.client": http_client, "urllib": urllib, "requests": requests, "httpx": httpx}
for part in LIBRARIES[sys.argv[1]](sys.argv[2]):
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
