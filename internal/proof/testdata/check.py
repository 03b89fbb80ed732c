#!/usr/bin/python3
# Copyright The Bawn Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks an export of Bawn's record, from docs/proof.md and nothing else.

check.py KEY DIR|FILE [ANCHORS]: exit status 0 where everything is as it was
written, 3 where something is not. Needs python3-cryptography."""
import base64, glob, hashlib, json, os, re, sys
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Fault(Exception):
    pass


def need(ok, *what):
    if not ok:
        raise Fault(" ".join(str(w) for w in what))


def sha(b):
    return hashlib.sha256(b).digest()


def leaf(line):
    return sha(b"\0" + line)


def node(a, b):
    return sha(b"\1" + a + b)


class Key:
    def __init__(self, path):
        self.name, self.hash, key = open(path).read().strip().split("+", 2)
        raw = base64.b64decode(key)
        need(raw[0] == 1 and len(raw) == 33, "not an Ed25519 key")
        self.id = bytes.fromhex(self.hash)
        need(sha(self.name.encode() + b"\n" + raw)[:4] == self.id, "the key's hash")
        self.public = Ed25519PublicKey.from_public_bytes(raw[1:])

    def open(self, note):
        text, empty, signatures = note.rpartition("\n\n")
        need(empty, "no signed note")
        text += "\n"
        for s in signatures.splitlines():
            dash, name, sig = s.split(" ")
            raw = base64.b64decode(sig)
            if dash == "\u2014" and name == self.name and raw[:4] == self.id:
                try:
                    self.public.verify(raw[4:], text.encode())
                except InvalidSignature:
                    raise Fault("a signature is not right")
                return Checkpoint(self, text, note)
        raise Fault("a checkpoint is not signed by this key")


class Checkpoint:
    def __init__(self, key, text, note):
        lines = text.splitlines()
        name, self.series, tree = lines[0].rsplit("/", 2)
        need(name == key.name, "the origin names another key")
        self.tree, self.size, self.root = int(tree), int(lines[1]), base64.b64decode(lines[2])
        f = {l.split(" ", 1)[0]: l.split(" ", 1)[1] for l in lines[3:]}
        first, self.prev, self.file, self.begin = f["first"].split(" ")
        self.first = int(first)
        self.chain, self.endfile, end = f["chain"].split(" ")
        self.end, self.previous = int(end), f["previous"]
        self.frontier = [base64.b64decode(h) for h in f["frontier"].split(" ")] if "frontier" in f else []
        self.broken = f.get("break")
        self.last = self.first + self.size - 1
        self.sum = sha(note.encode()).hex()


def book(key, dir, series):
    """The checkpoints of a series, in order."""
    last, number = None, None
    for path in sorted(glob.glob(os.path.join(dir, "admin/checkpoints", series + "-*.checkpoints"))):
        n = int(path.split("-")[-1].split(".")[0])
        need(number is None or n == number + 1, "a file of checkpoints is missing before", path)
        number = n
        for line in open(path, "rb").read().split(b"\n")[:-1]:
            try:
                c = key.open(json.loads(line)["note"])
            except (ValueError, KeyError, TypeError) as e:
                raise Fault("no checkpoint in " + path + ": " + str(e))
            if last is not None:
                need(c.previous == last.sum, "a checkpoint does not follow on the one before it:", c.last)
                if c.tree == last.tree:
                    need(c.first == last.first and c.size >= last.size, "checkpoints go back")
                else:
                    need(c.tree > last.tree and c.broken, "a tree begins without a reason")
            elif n == 1:
                need(c.previous == "0" * 64, "the first checkpoint follows on another")
            need(not c.broken, "admin found the journal changed:", c.broken)
            last = c
            yield c


def lines(files):
    """The records of a series, with file and byte behind them."""
    torn, number, before = [], None, None
    for path in files:
        name = os.path.basename(path)
        n = int(name.split("-")[1])
        need(number is None or n == number + 1, "a file is missing before", name)
        number = n
        data, at, bad = open(path, "rb").read(), 0, None
        for raw in data.splitlines(True) if b"\r" not in data else re.findall(rb"[^\n]*\n|[^\n]+$", data):
            rec = None
            try:
                rec = json.loads(raw) if raw.endswith(b"\n") else None
                if rec is not None and (rec["v"] != 1 or not isinstance(rec["seq"], int) or len(bytes.fromhex(rec["prev"])) != 32):
                    rec = None
            except (ValueError, KeyError, TypeError):
                rec = None
            if rec is None:
                bad = at if bad is None else bad
                at += len(raw)
                continue
            need(bad is None, "bytes that are no record in", name, "at", bad)
            if at == 0:
                need(rec["kind"] == "file" and rec["file"] == name, "the head of", name)
                need(before is None or rec.get("after") == before, "what is before", name)
                for t in torn:
                    need(t in rec.get("torn", []), "a torn end that", name, "does not name")
                torn = []
            else:
                need(rec["kind"] != "file", "a head inside of", name)
            before = name
            at += len(raw)
            yield raw[:-1], rec, name, at
        if bad is not None or not data:
            bad = bad or 0
            torn.append({"file": name, "from": bad, "bytes": len(data) - bad})


def add(tree, size, h):
    tree.append(h)
    while size & 1:
        b, a = tree.pop(), tree.pop()
        tree.append(node(a, b))
        size >>= 1


def root(tree):
    r = tree[-1]
    for a in reversed(tree[:-1]):
        r = node(a, r)
    return r


def whole(key, dir, series, files, anchors):
    checkpoints = book(key, dir, series)
    c = next(checkpoints, None)
    need(c, "no checkpoint covers", series)
    tree, size, last, newest = None, 0, None, None
    for line, rec, name, end in lines(files):
        if last is None:
            while c is not None and c.last < rec["seq"]:
                newest, c = c, next(checkpoints, None)
            if newest is not None and newest.last == rec["seq"] - 1:
                need(newest.chain == rec["prev"] and newest.frontier, "what is gone is not proven")
                tree, size = list(newest.frontier), newest.size
                need(root(tree) == newest.root, "a frontier")
            else:
                need(c is not None and c.first == rec["seq"] and c.prev == rec["prev"], "the series begins with", rec["seq"])
                tree, size = [], 0
        else:
            need(rec["seq"] == last[0] + 1, "record", rec["seq"], "follows", last[0])
            need(rec["prev"] == last[1], "record", rec["seq"], "does not hold the hash of the one before it")
        last = rec["seq"], sha(line).hex()
        add(tree, size, leaf(line))
        size += 1
        for a in anchors:
            if a.series == series and a.last == last[0]:
                need(a.chain == last[1] and a.size == size and a.root == root(tree), "an anchor of record", a.last)
        while c is not None and c.last == last[0]:
            need(c.chain == last[1] and (c.endfile, c.end) == (name, end), "the checkpoint of record", c.last)
            need(c.size == size and c.root == root(tree), "the root at record", c.last)
            newest, c = c, next(checkpoints, None)
    need(c is None, "records up to", c and c.last, "are proven, and the journal ends before")
    for a in anchors:
        need(a.series != series or a.last <= last[0], "an anchor proves more than there is")
    print(series, "records up to", last[0], "covered up to", newest.last)


def choice(key, path):
    trees, count, ended = {}, 0, False
    for n, text in enumerate(open(path, "rb").read().split(b"\n")[:-1]):
        l = json.loads(text)
        need(not ended, "a line behind the end")
        if n == 0:
            need(l["bawn_choice"] == 1, "the head")
        elif "checkpoint" in l:
            c = key.open(l["checkpoint"])
            trees[c.series, c.tree] = c
        elif "end" in l:
            ended = True
            need(l["records"] == count, "records are missing")
        else:
            line = l["record"].encode() if "record" in l else base64.b64decode(l["record_base64"])
            need((l["series"], l["tree"]) in trees, "no checkpoint")
            c, i = trees[l["series"], l["tree"]], l["index"]
            need(json.loads(line)["seq"] == c.first + i, "the number of a record")
            r, n, k = leaf(line), c.size - 1, i
            for p in l["proof"]:
                need(n > 0, "a proof is too long")
                p = base64.b64decode(p)
                if k & 1 or k == n:
                    r = node(p, r)
                    while not k & 1 and k:
                        k, n = k >> 1, n >> 1
                else:
                    r = node(r, p)
                k, n = k >> 1, n >> 1
            need(n == 0 and r == c.root, "record", c.first + i, "is not proven")
            count += 1
    need(ended, "the file has no end")
    print(count, "records are proven")


def main(key, path, anchors=None):
    key = Key(key)
    kept = []
    if anchors:
        text = open(anchors).read()
        for note in re.findall(r"(?:^|\n\n)((?:[^\n]+\n)+\n(?:\u2014 [^\n]+\n)+)", text):
            kept.append(key.open(note))
    if os.path.isfile(path):
        return choice(key, path)
    series = {}
    for f in sorted(glob.glob(os.path.join(path, "*/journal/*.jsonl"))):
        series.setdefault(os.path.basename(f).split("-")[0], []).append(f)
    need(series, "no journal")
    for name, files in series.items():
        whole(key, path, name, files, kept)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (Fault, ValueError, KeyError) as e:
        print("NOT as it was written:", e)
        sys.exit(3)
