"""How `fuzz_readers` makes bad files of good ones."""

from __future__ import annotations

import json
import random
from typing import Any

# Bytes at which readers of text have stumbled before.
PIECES = [
    b"\n",
    b"\r\n",
    b"\r",
    b"\0",
    b"\xff",
    b"\xc3\xbc",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\x1f\x8b",
    b"\t1\n",
    b" ",
    b"<pad>",
    b"<sos>\n",
    b'"',
    b"'''",
    b"[",
    b"]",
    b"{",
    b"=",
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"9" * 400,
    b"9" * 5000,
    b"1979-05-27",
    b"true",
    b"\\u0000",
    b"[" * 3000,
    b"../",
    b"/",
]


def random_bytes(rng: random.Random, most: int = 200) -> bytes:
    return rng.randbytes(rng.randrange(most))


def other_bytes(rng: random.Random, data: bytes) -> bytes:
    """A good file with one to three changes, or a few random bytes."""
    if rng.random() < 0.05:
        return random_bytes(rng)
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice([1, 1, 4, 30]))
        kind = rng.choice(["flip", "cut", "insert", "remove", "double", "piece"])
        if kind == "flip" and at < len(changed):
            changed[at] ^= rng.randrange(1, 256)
        elif kind == "cut":
            del changed[at:]
        elif kind == "insert":
            changed[at:at] = random_bytes(rng, 9)
        elif kind == "remove":
            del changed[at:end]
        elif kind == "double":
            changed[at:at] = changed[at:end]
        elif kind == "piece":
            changed[at:end] = rng.choice(PIECES)
    return bytes(changed)


def other_text(rng: random.Random, text: str) -> bytes:
    """Lines of a text in another order, with pieces in places where they do harm."""
    if rng.random() < 0.3:
        return b"".join(rng.choice(PIECES) for _ in range(rng.randrange(9)))
    lines = text.encode("utf-8").split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(lines))
        kind = rng.choice(["bytes", "swap", "drop", "double", "value"])
        if kind == "bytes":
            lines[at] = other_bytes(rng, lines[at])
        elif kind == "swap":
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "value":  # of `key = value`
            key, _, _ = lines[at].partition(b"=")
            lines[at] = key + b"= " + rng.choice(PIECES + [b"[]", b"{}", b"[1, 2]", b'"x"', b"0"])
    return b"\n".join(lines)


def odd_value(rng: random.Random) -> Any:
    """A JSON value that is not what a reader expects."""
    values = [None, True, False, 0, -1, 3, 2**70, 1.5, float("nan"), float("inf"), "", "x", "../x"]
    return rng.choice([*values, "/etc/passwd", "\0", "a\nb", "ü", [], [1], {}, {"a": 1}, [[]]])


def other_json(rng: random.Random, data: bytes) -> bytes:
    """The same JSON with a value, a key or a whole branch changed."""
    value = json.loads(data)
    for _ in range(rng.choice([1, 1, 2])):
        value = _changed(rng, value)
    text = json.dumps(value)
    if rng.random() < 0.05:
        text = text.replace("1", "9" * 5000, 1)
    return text.encode("utf-8")


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        kind = rng.random()
        if kind < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        if kind < 0.2:
            return {**value, str(odd_value(rng)): value[key]}
        return {**value, key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return odd_value(rng)
