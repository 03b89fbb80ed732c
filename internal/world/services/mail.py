# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""An SMTP server with STARTTLS: mail.py ADDRESS, certificate and key in the
working directory, to which each message is written."""
import asyncio
import itertools
import os
import ssl
import sys

from aiosmtpd.smtp import SMTP

count = itertools.count()


class Keep:
    async def handle_DATA(self, server, session, envelope):
        name = "%04d.eml" % next(count)
        over = "TLS" if session.ssl else "plain"
        with open(name + ".half", "wb") as f:
            f.write(over.encode() + b"\n" + envelope.content)
        os.rename(name + ".half", name)
        return "250 kept"


async def main():
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain("cert.pem", "key.pem")
    loop = asyncio.get_running_loop()
    for port in 25, 587:
        await loop.create_server(lambda: SMTP(Keep(), hostname="smtp.example.com", tls_context=secure), sys.argv[1], port)
    await asyncio.Future()


asyncio.run(main())
