"""Damage to bytes and texts; everything is drawn from the `random.Random` given."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Span = tuple[int, int]
_ODD_BYTES = (0, 1, 0x7F, 0x80, 0xFF, 0xFE, 0x0A, 0x22, 0x2C)
_WORDS = (
    b"\xff" * 4,
    b"\x00" * 8,
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"PAR1",
    b"PARE",
)


def damage(data: bytes, rng: random.Random, spans: Sequence[Span] = (), times: int | None = None) -> bytes:
    """One to a few random edits, inside one of `spans` most of the time when there are any."""
    out = data
    for _ in range(times if times is not None else min(8, 1 + int(rng.expovariate(0.8)))):
        start, stop = rng.choice(spans) if spans and rng.random() < 0.85 else (0, len(out))
        start, stop = min(start, len(out)), min(stop, len(out))
        if stop > start:
            out = rng.choice(_EDITS)(out, rng, start, stop)
    return out


def _flip(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _set(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    new = rng.choice(_ODD_BYTES) if rng.random() < 0.5 else rng.randrange(256)
    return data[:at] + bytes([new]) + data[at + 1 :]


def _add(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    new = (data[at] + rng.choice((-2, -1, 1, 2, 16, -16))) % 256
    return data[:at] + bytes([new]) + data[at + 1 :]


def _overwrite(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    word = rng.choice(_WORDS) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 16))
    return data[:at] + word + data[at + len(word) :]


def _insert(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    word = rng.choice(_WORDS) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 9))
    return data[:at] + word + data[at:]


def _cut(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    return data[:at] + data[min(stop, at + 1 + int(rng.expovariate(0.1))) :]


def _repeat(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    at = rng.randrange(start, stop)
    end = min(stop, at + 1 + rng.randrange(40))
    return data[:end] + data[at:end] * rng.choice((1, 1, 2, 20)) + data[end:]


def _swap(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    a, b = sorted((rng.randrange(start, stop), rng.randrange(start, stop)))
    n = min(rng.randrange(1, 16), b - a, len(data) - b)
    return data[:a] + data[b : b + n] + data[a + n : b] + data[a : a + n] + data[b + n :]


def _grow(data: bytes, rng: random.Random, start: int, stop: int) -> bytes:
    """A one-byte number becomes a large one, in the encoding of Parquet's headers."""
    at = rng.randrange(start, stop)
    number = 1 << rng.randrange(7, 64)
    number = (number - 1 if rng.random() < 0.3 else number) & (2**64 - 1)
    word = bytearray()
    while number >= 0x80:
        word.append(number & 0x7F | 0x80)
        number >>= 7
    return data[:at] + bytes([*word, number]) + data[at + 1 :]


_Edit = Callable[[bytes, random.Random, int, int], bytes]
_EDITS: tuple[_Edit, ...] = (_flip, _flip, _flip, _set, _set, _add, _overwrite, _insert, _cut, _repeat, _swap, _grow)


def flip_in(data: bytes, rng: random.Random, spans: Sequence[Span], times: int) -> bytes:
    """Flip single bits inside `spans` only."""
    out = bytearray(data)
    for _ in range(times):
        start, stop = rng.choice(spans)
        out[rng.randrange(start, stop)] ^= 1 << rng.randrange(8)
    return bytes(out)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Cut off an end."""
    if rng.random() < 0.3:
        return data[rng.randrange(1, len(data)) :]
    return (
        data[: -1 - min(len(data) - 1, int(rng.expovariate(0.02)))]
        if rng.random() < 0.5
        else data[: rng.randrange(len(data))]
    )


def splice(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The beginning of one file and the end of another, or a piece of one inside the other."""
    a, b = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    if rng.random() < 0.5:
        return data[:a] + other[b:]
    n = rng.randrange(1, 200)
    return data[:a] + other[b : b + n] + data[a + n * rng.randrange(2) :]


# ---------------------------------------------------------------------------------------------- texts

ODD_TEXTS = (
    *(
        "",
        " ",
        "\t",
        "\x00",
        "\n",
        "\r\n",
        "\u2028",
        "\x85",
        "\x1b[31m",
        "\u202e",
        "\u200f",
        "\ufeff",
        "\ud800",
        "\udcff",
    ),
    *("<script>alert(1)</script>", "</script><b>", "<!--", "\"'><img src=x onerror=alert(1)>", "&lt;", "{{ 7*7 }}"),
    *("{% raw %}", "%s%n", "${HOME}", "../../etc/passwd", "=1+1", "null", "~", "true", "1", "1e999", "nan", "inf"),
    *("é", "e\u0301", "ß", "\U0001f600", "a.b", "a,b", "a;b", "a'b", 'a"b', "a\\b", "a:b", "#", "*", "-", "?", "<<"),
)


def odd_text(rng: random.Random, surrogates: bool = True) -> str:
    """A name or text that something may take for syntax; sometimes very long."""
    roll = rng.random()
    if roll < 0.6:
        text = rng.choice(ODD_TEXTS)
    elif roll < 0.9:
        text = "".join(chr(_code_point(rng)) for _ in range(1 + int(rng.expovariate(0.3))))
    else:
        text = rng.choice(("x", "<b>", "é", "ab ")) * rng.choice((50, 300, 5000))
    text = text + rng.choice(("", "", "c", rng.choice(ODD_TEXTS)))
    return text if surrogates else text.encode("utf-8", "replace").decode("utf-8")


def _code_point(rng: random.Random) -> int:
    top = rng.choice((0x80, 0x100, 0x3000, 0x10000, 0x110000))
    return rng.randrange(top)
