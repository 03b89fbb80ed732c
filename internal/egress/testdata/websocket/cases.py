# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""What an end of a WebSocket has to do with what it is sent, case by case.

The numbers are those of the published list of cases of the Autobahn test
suite, which is what implementers compare by; the cases are written anew, from
RFC 6455 and RFC 7692, so that they run here. An end echoes messages. A case
says what it is sent and what has to come back:

    send    octets of frames, and how they are cut into writes
    events  what must come back before the end, in this order
    early   whether it may fail before all of that has come back
    close   statuses with which it may close; 0 is an end without a close frame
    deflate parameters of permessage-deflate to agree on, or None
"""
import os
import random
import struct
import zlib

TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
rnd = random.Random(1)


def frame(op, payload=b"", fin=True, rsv=0, mask=True, length=None):
    """One frame; mask is replaced by the side that sends it."""
    return {"op": op, "payload": payload, "fin": fin, "rsv": rsv, "length": length}


def encode(f, masked):
    n = len(f["payload"])
    head = bytes([(0x80 if f["fin"] else 0) | f["rsv"] << 4 | f["op"]])
    bit = 0x80 if masked else 0
    if n <= 125:
        head += bytes([bit | n])
    elif n <= 0xFFFF:
        head += bytes([bit | 126]) + struct.pack(">H", n)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", n)
    if not masked:
        return head + f["payload"]
    key = os.urandom(4)
    long = int.from_bytes((key * (n // 4 + 1))[:n], "big")
    return head + key + (int.from_bytes(f["payload"], "big") ^ long).to_bytes(n, "big")


def parts(op, payload, size):
    """A message in fragments of a size."""
    out = [payload[i : i + size] for i in range(0, len(payload), size)] or [b""]
    return [frame(op if i == 0 else CONT, p, i == len(out) - 1) for i, p in enumerate(out)]


FAIL = {1002, 0}
GOOD = {1000}


class Case:
    def __init__(self, id, frames, events=(), close=GOOD, early=False, chop=0, deflate=None, bye=True):
        self.id, self.frames, self.events = id, list(frames), list(events)
        self.close, self.early, self.chop, self.deflate = set(close), early, chop, deflate
        self.bye = bye and close is GOOD  # the sender closes once all is back


def framing():
    for group, op in ((1, TEXT), (2, BINARY)):
        for i, n in enumerate((0, 125, 126, 127, 128, 65535, 65536, 65536), 1):
            data = b"*" * n if op == TEXT else b"\xfe" * n
            yield Case(f"1.{group}.{i}", [frame(op, data)], [(op, data)], chop=997 if i == 8 else 0)


def pings():
    yield Case("2.1", [frame(PING)], [(PONG, b"")])
    yield Case("2.2", [frame(PING, b"Hello, world!")], [(PONG, b"Hello, world!")])
    odd = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
    yield Case("2.3", [frame(PING, odd)], [(PONG, odd)])
    yield Case("2.4", [frame(PING, b"\xfe" * 125)], [(PONG, b"\xfe" * 125)])
    yield Case("2.5", [frame(PING, b"\xfe" * 126)], close=FAIL)
    yield Case("2.6", [frame(PING, b"\xfe" * 125)], [(PONG, b"\xfe" * 125)], chop=1)
    yield Case("2.7", [frame(PONG)])
    yield Case("2.8", [frame(PONG, b"unsolicited")])
    yield Case("2.9", [frame(PONG, b"unsolicited"), frame(PING, b"asked")], [(PONG, b"asked")])
    for id, chop in (("2.10", 0), ("2.11", 1)):
        many = [b"payload-%d" % i for i in range(10)]
        # Only the last of several that wait need be answered (5.5.3).
        yield Case(id, [frame(PING, p) for p in many], [("last pong", many)], chop=chop)


def reserved():
    hello = b"Hello, world!"
    yield Case("3.1", [frame(TEXT, hello, rsv=1)], close=FAIL)
    good = [(TEXT, hello)]
    for i, (rsv, chop) in enumerate(((2, 0), (3, 0), (4, 1)), 2):
        yield Case(f"3.{i}", [frame(TEXT, hello), frame(TEXT, hello, rsv=rsv), frame(PING)], good, FAIL, True, chop)
    yield Case("3.5", [frame(BINARY, b"\x00\xff\xfe", rsv=5)], close=FAIL)
    yield Case("3.6", [frame(PING, hello, rsv=6)], close=FAIL)
    yield Case("3.7", [frame(CLOSE, rsv=7)], close=FAIL)
    for group, ops in ((1, range(3, 8)), (2, range(11, 16))):
        for i, op in enumerate(ops, 1):
            if i < 3:
                yield Case(f"4.{group}.{i}", [frame(op, hello if i == 2 else b"")], close=FAIL)
            else:
                yield Case(f"4.{group}.{i}", [frame(TEXT, hello), frame(op, hello if i > 3 else b""), frame(PING)], good, FAIL, True, 1 if i == 5 else 0)


def fragments():
    yield Case("5.1", [frame(PING, b"a", False), frame(CONT, b"b")], close=FAIL)
    yield Case("5.2", [frame(PONG, b"a", False), frame(CONT, b"b")], close=FAIL)
    two = [frame(TEXT, b"fragment1", False), frame(CONT, b"fragment2")]
    both = [(TEXT, b"fragment1fragment2")]
    for i, chop in ((3, 0), (4, 9), (5, 1)):
        yield Case(f"5.{i}", two, both, chop=chop)
    between = [two[0], frame(PING, b"ping"), two[1]]
    for i, chop in ((6, 0), (7, 9), (8, 1)):
        yield Case(f"5.{i}", between, [(PONG, b"ping")] + both, chop=chop)
    # Something behind a continuation of nothing.
    for i, (fin, chop) in enumerate(((True, 0), (True, 9), (True, 1), (False, 0), (False, 9), (False, 1)), 9):
        yield Case(f"5.{i}", [frame(CONT, b"non-continuation payload", fin), frame(TEXT, b"Hello, world!")], close=FAIL, chop=chop)
    yield Case("5.15", two + [frame(CONT, b"fragment3", False), frame(TEXT, b"fragment4")], both, FAIL, True)
    for i, fin in ((16, False), (17, True)):
        yield Case(f"5.{i}", [frame(CONT, b"fragment1", fin), frame(TEXT, b"fragment2", False), frame(CONT, b"fragment3")] * 2, close=FAIL)
    yield Case("5.18", [frame(TEXT, b"fragment1", False), frame(TEXT, b"fragment2")], close=FAIL)
    five = [frame(TEXT, b"1", False), frame(CONT, b"2", False), frame(PING, b"p1"), frame(CONT, b"3", False), frame(CONT, b"4", False), frame(PING, b"p2"), frame(CONT, b"5")]
    for i, chop in ((19, 0), (20, 3)):
        yield Case(f"5.{i}", five, [("last pong", [b"p1", b"p2"]), (TEXT, b"12345")], chop=chop)


INVALID = {1007, 0}


def utf8():
    yield Case("6.1.1", [frame(TEXT)], [(TEXT, b"")])
    yield Case("6.1.2", parts(TEXT, b"", 1)[:0] + [frame(TEXT, b"", False), frame(CONT, b"", False), frame(CONT)], [(TEXT, b"")])
    yield Case("6.1.3", [frame(TEXT, b"", False), frame(CONT, b"middle", False), frame(CONT)], [(TEXT, b"middle")])
    valid = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    yield Case("6.2.1", [frame(TEXT, valid)], [(TEXT, valid)])
    for i, n in ((2, 11), (3, 1)):
        yield Case(f"6.2.{i}", parts(TEXT, valid, n), [(TEXT, valid)])
    kosme = "κόσμε".encode()
    yield Case("6.2.4", parts(TEXT, kosme, 1), [(TEXT, kosme)])
    broken = kosme + b"\xed\xa0\x80edited"
    yield Case("6.3.1", [frame(TEXT, broken)], close=INVALID)
    yield Case("6.3.2", parts(TEXT, broken, 1), close=INVALID)
    # Found before the message is whole.
    yield Case("6.4.1", [frame(TEXT, kosme + b"\xf4", False), frame(CONT, b"\x90", False)], close=INVALID)
    yield Case("6.4.2", [frame(TEXT, kosme + b"\xf4\x90", False)], close=INVALID)
    yield Case("6.4.3", [frame(TEXT, broken[:12], False)], close=INVALID)
    yield Case("6.4.4", [frame(TEXT, broken[:13], False)], close=INVALID)
    # After Markus Kuhn's list; whether each is valid says Python's decoder.
    bits = [kosme, kosme[:-1], b"\x00", "\x80".encode(), "\u0800".encode(), "\U00010000".encode(), b"\x7f", "\u07ff".encode(), "\uffff".encode(), "\U0010ffff".encode()]
    bits += [b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf", b"\xf4\x90\x80\x80", "\ud7ff".encode(), "\ue000".encode(), "\ufffd".encode()]
    bits += [b"\x80", b"\xbf", b"\x80\xbf", b"\x80\xbf" * 3, bytes(range(0x80, 0xC0))]
    bits += [bytes([b]) + b" " for b in (0xC0, 0xDF, 0xE0, 0xEF, 0xF0, 0xF7, 0xF8, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)] + [b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf"]
    bits += [b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"]
    bits += [b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80", b"\xed\xbe\x80", b"\xed\xbf\xbf", b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xaf\xbf\xed\xbf\xbf"]
    bits += ["\ufffe".encode(), "\uffff".encode()] + [chr(p << 16 | 0xFFFE).encode() for p in range(1, 17)] + [chr(p << 16 | 0xFFFF).encode() for p in range(1, 17)]
    for i, b in enumerate(bits, 1):
        try:
            b.decode()
            yield Case(f"6.5-23.{i}", [frame(TEXT, b)], [(TEXT, b)])
        except UnicodeDecodeError:
            yield Case(f"6.5-23.{i}", [frame(TEXT, b)], close=INVALID)


def closing():
    hello = b"Hello World!"
    bye = frame(CLOSE, struct.pack(">H", 1000))
    yield Case("7.1.1", [frame(TEXT, hello)], [(TEXT, hello)])
    yield Case("7.1.2", [bye, bye], close={1000}, bye=False)
    yield Case("7.1.3", [bye, frame(PING)], close={1000}, bye=False)
    yield Case("7.1.4", [bye, frame(TEXT, hello)], close={1000}, bye=False)
    yield Case("7.1.5", [frame(TEXT, b"fragment1", False), bye, frame(CONT, b"fragment2")], close={1000}, bye=False)
    yield Case("7.1.6", [frame(TEXT, b"*" * 262144), bye, frame(PING)], [(TEXT, b"*" * 262144)], {1000}, True, bye=False)
    yield Case("7.3.1", [frame(CLOSE)], close={1000, 1005}, bye=False)
    yield Case("7.3.2", [frame(CLOSE, b"a")], close=FAIL)
    yield Case("7.3.3", [bye], close={1000}, bye=False)
    for i, reason in ((4, b"Hello World!"), (5, b"*" * 123)):
        yield Case(f"7.3.{i}", [frame(CLOSE, struct.pack(">H", 1000) + reason)], close={1000}, bye=False)
    yield Case("7.3.6", [frame(CLOSE, struct.pack(">H", 1000) + b"*" * 124)], close=FAIL)
    yield Case("7.5.1", [frame(CLOSE, struct.pack(">H", 1000) + b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited")], close={1007, 1002, 0})
    for i, code in enumerate((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999), 1):
        yield Case(f"7.7.{i}", [frame(CLOSE, struct.pack(">H", code))], close={code, 1000}, bye=False)
    for i, code in enumerate((0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1):
        yield Case(f"7.9.{i}", [frame(CLOSE, struct.pack(">H", code))], close=FAIL)
    # What these mean is left open: any end will do.
    for i, code in enumerate((5000, 65535), 1):
        yield Case(f"7.13.{i}", [frame(CLOSE, struct.pack(">H", code))], close={code, 1000, 1002, 0}, bye=False)


def limits():
    for group, op in ((1, TEXT), (2, BINARY)):
        for i, n in enumerate((64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20), 1):
            data = b"*" * n
            yield Case(f"9.{group}.{i}", [frame(op, data)], [(op, data)])
    data = b"*" * (4 << 20)
    for group, op in ((3, TEXT), (4, BINARY)):
        for i, size in enumerate((64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20), 1):
            yield Case(f"9.{group}.{i}", parts(op, data, size), [(op, data)])
    data = b"*" * (1 << 20)
    for group, op in ((5, TEXT), (6, BINARY)):
        for i, chop in enumerate((64, 128, 256, 512, 1024, 2048), 1):
            yield Case(f"9.{group}.{i}", [frame(op, data)], [(op, data)], chop=chop)
    for group, op in ((7, TEXT), (8, BINARY)):
        for i, n in enumerate((0, 16, 64, 256, 1 << 10, 4 << 10), 1):
            yield Case(f"9.{group}.{i}", [frame(op, b"*" * n)] * 200, [(op, b"*" * n)] * 200)
    yield Case("10.1.1", parts(TEXT, b"*" * 65536, 1300), [(TEXT, b"*" * 65536)])


def squeeze(data, bits=15):
    z = zlib.compressobj(9, zlib.DEFLATED, -bits)
    return (z.compress(data) + z.flush(zlib.Z_SYNC_FLUSH))[:-4]


WORDS = b"the quick brown fox jumps over a lazy dog and then it sleeps for a while ".split()


def compression():
    agreed = {1: "", 2: "; client_no_context_takeover", 3: "; client_no_context_takeover; client_max_window_bits=9",
              4: "; client_no_context_takeover; client_max_window_bits=15", 5: "; server_no_context_takeover; client_no_context_takeover"}
    sizes = (16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
    for group, params in agreed.items():
        bits = 9 if "max_window_bits" in params else 15  # the answer may ask for less than was offered
        for i, n in enumerate(sizes, 1):
            frames, events = [], []
            for op in (TEXT, BINARY):
                for _ in range(10):
                    data = b" ".join(rnd.choice(WORDS) for _ in range(n // 4 + 1))[:n]
                    if op == BINARY:
                        data = rnd.randbytes(n // 2) + data[: n - n // 2]
                    z = squeeze(data, bits)
                    cut = [z] if i % 2 else [z[j : j + 1000] for j in range(0, len(z), 1000)]
                    frames += [frame(op if j == 0 else CONT, p, j == len(cut) - 1, 4 if j == 0 else 0) for j, p in enumerate(cut)]
                    events.append((op, data))
            yield Case(f"12.{group}.{i}", frames, events, deflate=params, chop=0 if i < 9 else 8192)
    z = squeeze(b"Hello")
    one = [(TEXT, b"Hello")]
    yield Case("13.1", [frame(TEXT, z, rsv=4)], one, deflate="")
    yield Case("13.2", [frame(TEXT, b"Hello")], one, deflate="")  # not compressed, which is allowed
    yield Case("13.3", [frame(TEXT, z[:3], False, 4), frame(PING, b"p"), frame(CONT, z[3:])], [(PONG, b"p")] + one, deflate="")
    yield Case("13.4", [frame(TEXT, z[:3], False, 4), frame(CONT, z[3:], rsv=4)], close=FAIL, deflate="")
    yield Case("13.5", [frame(PING, b"", rsv=4)], close=FAIL, deflate="")
    yield Case("13.6", [frame(TEXT, z, rsv=6)], close=FAIL, deflate="")
    yield Case("13.7", [frame(TEXT, b"\xff\xff\xff\xff", rsv=4)], close={1002, 1003, 1007, 0}, deflate="")
    yield Case("13.8", [frame(TEXT, squeeze(b"\xff\xfe"), rsv=4)], close=INVALID, deflate="")
    yield Case("13.9", [frame(TEXT, b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", rsv=4)], one, deflate="")  # RFC 7692 7.2.3.5
    yield Case("13.10", [frame(TEXT, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", rsv=4)], one, deflate="")  # 7.2.3.4
    yield Case("13.11", [frame(TEXT, b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", rsv=4)], one, deflate="")  # 7.2.3.3
    yield Case("13.12", [frame(TEXT, b"\x00", rsv=4)], [(TEXT, b"")], deflate="")


def all_cases():
    for group in (framing, pings, reserved, fragments, utf8, closing, limits, compression):
        yield from group()


def chosen():
    """All cases, or without SUITE_ALL those that do not take long, and of the
    long ones the longest message and the one in most fragments."""
    for c in all_cases():
        size = sum(len(f["payload"]) for f in c.frames)
        if os.environ.get("SUITE_ALL") or size <= 1 << 20 or c.id in ("9.1.6", "9.3.1", "9.3.2"):
            yield c
