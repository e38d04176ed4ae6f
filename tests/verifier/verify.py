#!/usr/bin/env python3
"""Verifies an export of Placet's evidence, with nothing of Placet in it: Python's standard library and `blake3`.

    verify.py FILE [--head FILE]... [--key HEX]...
    verify.py --corruptions FILE < changes    one "POSITION BYTE" each; answers one "CODE ENTRY" each, ENTRY `-` for none

Exit codes: 0 verified, 20 unreadable, 21 chain, 22 hash, 23 tree, 24 signature, 25 truncated, 26 a head contradicts.
"""

import argparse
import functools
import hashlib
import io
import json
import re
import sys
from datetime import datetime

from blake3 import blake3

UNREADABLE, CHAIN, HASH, TREE, SIGNATURE, TRUNCATED, CONTRADICTION = range(20, 27)
KINDS = set("""approval_refused approval_transition decision exec_intent exec_result head_signed kill_switch
    local_decision malformed_request mandate_set notified policy_change replay_mismatch report_noted report_refused
    reservation_expired reservation_released restored""".split())
LINE_BYTES_MAX = 64 << 20
HEADER = b'{"placet_export":1}\n'
ENTRY = re.compile(rb'\{"entry":(.*),"hash":"([0-9a-f]{64})"\}\n', re.DOTALL)
ENTRY_SHAPE = {"at": str, "body": dict, "index": int, "prev": str, "principal": str, "protocol": str, "v": int}
RESTORED_SHAPE = {"chain_head": str, "cluster": str, "entries": int, "previous": str}
HEAD_SHAPE = {"at": str, "chain_head": str, "root": str, "size": int}
TRAILER_SHAPE = {"chain_head": str, "count": int, "root": str, "signed": (dict, type(None))}


class Failure(Exception):
    def __init__(self, code, entry, detail):
        super().__init__(detail)
        self.code, self.entry = code, entry


# --- Ed25519 (RFC 8032 section 5.1), strict: canonical S, and neither the key nor R of small order.
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def add(a, b):
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    e, f = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    g, h = 2 * D * t1 * t2 % P, 2 * z1 * z2 % P
    e, f, g, h = f - e, h - g, h + g, f + e
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, point):
    out = (0, 1, 1, 0)
    while n:
        if n & 1:
            out = add(out, point)
        point, n = add(point, point), n >> 1
    return out


def point(data):
    sign, y = data[31] >> 7, int.from_bytes(data, "little") % 2**255 % P
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if v * x * x % P == -u % P:
        x = x * ROOT % P
    if v * x * x % P != u:
        return None
    x = P - x if x & 1 != sign and x else x
    return x, y, 1, x * y % P


def packed(a):
    inverse = pow(a[2], -1, P)
    x, y = a[0] * inverse % P, a[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def is_small(a):
    x, y, z, _ = times(8, a)
    return x == 0 and y == z


BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


@functools.lru_cache(maxsize=4096)
def is_signed(key, message, signature):
    if not re.fullmatch("[0-9a-f]{64}", key) or not re.fullmatch("[0-9a-f]{128}", signature):
        return False
    key, signature = bytes.fromhex(key), bytes.fromhex(signature)
    a, r, s = point(key), point(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= Q or is_small(a) or is_small(r):
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % Q
    return packed(add(times(s, BASE), times(k, (-a[0] % P, a[1], a[2], -a[3] % P)))) == signature[:32]


# --- Canonical JSON: sorted members, no spaces, integers only, one spelling.
def canonical(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def refuse(token):
    raise ValueError(token)


def read(data):
    """The value that `data` spells canonically, or `None`."""
    try:
        value = json.loads(data.decode(), parse_float=refuse, parse_constant=refuse)
        return value if canonical(value) == data else None
    except (ValueError, RecursionError):
        return None


def has_shape(value, shape):
    return isinstance(value, dict) and set(value) == set(shape) and all(
        isinstance(value[name], kind) and not isinstance(value[name], bool) for name, kind in shape.items())


def is_hash(text):
    return re.fullmatch("[0-9a-f]{64}", text, re.ASCII)


def is_size(number):
    return 0 <= number < 2**64


def is_instant(text):
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{0,2}[1-9])?Z", text, re.ASCII)
    try:
        return bool(found and datetime.fromisoformat(found[1]))
    except ValueError:
        return False


class Head:
    def __init__(self, value):
        head = value["head"]
        self.key, self.text, self.size = value["key"], canonical(value), head["size"]
        self.says = head["size"], head["chain_head"], head["root"]
        self.is_signed = is_signed(self.key, b"placet/head/1\0" + canonical(head), value["signature"])

    @staticmethod
    def read(value):
        """A signed head, or `None` when the value is not one."""
        if not has_shape(value, {"head": dict, "key": str, "signature": str}) or not has_shape(value["head"], HEAD_SHAPE):
            return None
        head = value["head"]
        fits = is_instant(head["at"]) and is_hash(head["chain_head"]) and is_hash(head["root"])
        return Head(value) if fits and is_size(head["size"]) else None


@functools.lru_cache(maxsize=4096)
def read_entry(data):
    """Index, predecessor, recorded head and backup of an entry; `None` when it is not one in its canonical spelling."""
    entry = read(data)
    bare = {name: value for name, value in entry.items() if name != "policy"} if isinstance(entry, dict) else None
    if not has_shape(bare, ENTRY_SHAPE) or bare["v"] != 1 or not is_instant(bare["at"]):
        return None
    if len(bare["body"]) != 1 or not set(bare["body"]) <= KINDS or not is_hash(bare["prev"]) or not is_size(bare["index"]):
        return None
    head = Head.read(bare["body"].get("head_signed"))
    if "head_signed" in bare["body"] and head is None:
        return None
    backup = bare["body"].get("restored")
    if "restored" in bare["body"] and not (has_shape(backup, RESTORED_SHAPE) and is_size(backup["entries"]) and all(
            is_hash(backup[name]) for name in ("chain_head", "cluster", "previous"))):
        return None
    return bare["index"], bare["prev"], head, backup and (backup["entries"], backup["chain_head"])


# --- The tree, and the walk through the lines.
def node(tag, *parts):
    return blake3(tag + b"".join(parts)).digest()


class Export:
    """Checks each line from the outside in: shape, hash, spelling, place in the chain, what a signed head says."""

    def __init__(self, heads=(), keys=()):
        self.keys, self.given, self.vouched, self.newest = set(keys), {}, None, None
        self.count, self.chain_head, self.tree, self.stage = 0, "00" * 32, [], "header"
        for head in heads:
            if not head.is_signed or self.keys and head.key not in self.keys:
                raise Failure(SIGNATURE, None, f"the given head over {head.size} entries is not signed by a trusted key")
            self.given.setdefault(head.size, []).append(head)

    def line(self, line):
        here = None if self.stage != "entries" or line.startswith(b'{"chain_head":') else self.count + 1
        if len(line) > LINE_BYTES_MAX:
            raise Failure(UNREADABLE, here, "the line is longer than any line of an export")
        if not line.endswith(b"\n"):
            raise Failure(TRUNCATED, here, "the export ends within a line")
        if self.stage == "header" and line == HEADER:
            self.stage = "entries"
            self.given_heads()
        elif self.stage == "entries" and line.startswith(b'{"entry":'):
            self.entry(line, here)
        elif self.stage == "entries" and here is None:
            self.trailer(line)
        else:
            raise Failure(UNREADABLE, here, "not a line that belongs here")

    def entry(self, line, here):
        found = ENTRY.fullmatch(line)
        if not found:
            raise Failure(UNREADABLE, here, "not an entry and its hash")
        digest = blake3(b"placet/evidence/1\n" + found[1])
        if digest.hexdigest() != found[2].decode():
            raise Failure(HASH, here, "the entry has another hash")
        entry = read_entry(found[1])
        if entry is None:
            raise Failure(UNREADABLE, here, "the entry is not in its canonical spelling")
        index, prev, head, backup = entry
        if (index, prev) != (here, self.chain_head):
            raise Failure(CHAIN, here, "another entry stands in its place, or it names another predecessor")
        if head:
            if not head.is_signed:
                raise Failure(SIGNATURE, here, "the signature of the head does not fit")
            self.fits(head, here)
            self.newest = head
        if backup and backup != (self.count, self.chain_head):
            raise Failure(CONTRADICTION, here, "restored from other entries than those before it")
        self.count, self.chain_head = here, digest.hexdigest()
        # Complete subtrees, largest first: each trailing one of the leaf's number is one that it completes.
        leaf, number = node(b"\0", digest.digest()), here - 1
        while number & 1:
            leaf, number = node(b"\1", self.tree.pop(), leaf), number >> 1
        self.tree.append(leaf)
        self.given_heads()

    def root(self):
        if not self.tree:
            return blake3(b"").hexdigest()
        return functools.reduce(lambda right, left: node(b"\1", left, right), reversed(self.tree)).hex()

    def given_heads(self):
        for head in self.given.pop(self.count, []):
            self.fits(head, self.count or None)

    def fits(self, head, entry):
        if head.says != (self.count, self.chain_head, self.root()):
            raise Failure(CONTRADICTION, entry, "the head is over other entries than these")
        if head.key in self.keys:
            self.vouched = max(self.vouched or 0, head.size)

    def trailer(self, line):
        last = read(line[:-1])
        good = has_shape(last, TRAILER_SHAPE) and is_hash(last["chain_head"]) and is_hash(last["root"])
        signed = Head.read(last["signed"]) if good else None
        if not good or not is_size(last["count"]) or (last["signed"] is not None and signed is None):
            raise Failure(UNREADABLE, None, "the last line is not in its canonical spelling")
        if last["count"] != self.count:
            raise Failure(TRUNCATED, min(last["count"], self.count) + 1, "the last line counts other entries")
        if last["chain_head"] != self.chain_head:
            raise Failure(CHAIN, None, "the last line names another last hash")
        if last["root"] != self.root():
            raise Failure(TREE, None, "the root over the entries is another")
        if (signed.text if signed else None) != (self.newest.text if self.newest else None):
            if not signed:
                raise Failure(CONTRADICTION, None, "the last line leaves out the newest signed head")
            if not signed.is_signed:
                raise Failure(SIGNATURE, None, "the signature of the head in the last line does not fit")
            if signed.size > self.count:
                raise Failure(TRUNCATED, self.count + 1, "the signed head is over more entries")
            self.fits(signed, None)
        self.stage = "end"

    def finish(self):
        if self.stage != "end":
            raise Failure(TRUNCATED, self.count + 1, "the export ends before its last line")
        if self.given:
            raise Failure(TRUNCATED, self.count + 1, "a given head is over more entries")
        if self.keys and self.vouched is None:
            raise Failure(SIGNATURE, None, "no head is signed by a trusted key")
        return self


def verify(lines, heads=(), keys=()):
    export = Export(heads, keys)
    for line in lines:
        export.line(line)
    return export.finish()


def corruptions(path):
    data = open(path, "rb").read()
    for change in sys.stdin:
        position, byte = map(int, change.split())
        try:
            verify(io.BytesIO(data[:position] + bytes([byte]) + data[position + 1:]))
            print(0, "-")
        except Failure as failure:
            print(failure.code, failure.entry or "-")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file")
    options.add_argument("--corruptions", action="store_true")
    options.add_argument("--head", action="append", default=[])
    options.add_argument("--key", action="append", default=[])
    options = options.parse_args()
    if options.corruptions:
        return corruptions(options.file)
    try:
        heads = [Head.read(read(line)) for name in options.head for line in open(name, "rb").read().splitlines()]
        if None in heads:
            raise Failure(UNREADABLE, None, "a given head is not in its canonical spelling")
        with open(options.file, "rb") as lines:
            export = verify(lines, heads, options.key)
    except Failure as failure:
        where = f"entry `aud-{failure.entry}`: " if failure.entry else ""
        print(f"{where}{failure}", file=sys.stderr)
        sys.exit(failure.code)
    vouched = f"vouched up to entry {export.vouched}" if export.keys else "self-consistent, no key vouched for"
    print(f"verified: {export.count} entries, {vouched}")


if __name__ == "__main__":
    main()
