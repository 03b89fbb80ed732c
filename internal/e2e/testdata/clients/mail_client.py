# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sends one message with smtplib, in TLS: mail_client.py HOST TOKEN."""
import os
import smtplib
import socket
import ssl
import sys
from urllib.parse import urlsplit


class SMTP(smtplib.SMTP):
    def _get_socket(self, host, port, timeout):
        if not os.environ.get("HTTPS_PROXY"):
            return super()._get_socket(host, port, timeout)
        proxy = urlsplit(os.environ["HTTPS_PROXY"])
        s = socket.create_connection((proxy.hostname, proxy.port), timeout)
        s.sendall(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host.encode(), port, host.encode(), port))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = s.recv(1)
            assert more, head
            head += more
        assert head.startswith(b"HTTP/1.1 200"), head
        return s


host, token = sys.argv[1:]
with SMTP(host, 587, timeout=30) as s:
    s.starttls(context=ssl.create_default_context())
    s.sendmail("a@example.com", ["b@example.com"], "Subject: %s\r\n\r\nhello\r\n" % token)
print("sent", token)
