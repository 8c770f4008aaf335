"""Damage to what was right: the inputs that find most, since they get past the first check."""

from __future__ import annotations

import gzip
from functools import reduce

from hypothesis import strategies as st

from fuzz.targets import Target

_KINDS = ("replace", "insert", "cut", "repeat", "swap", "end", "line", "flip")
_LENGTHS = (0, 1, 2, 5, 17, 60)


def mutated(target: Target) -> st.SearchStrategy[bytes]:
    """One of the target's seeds, put together with another, damaged in up to six places."""
    seeds = list(target.seeds())
    words = st.one_of(st.sampled_from((*target.words, *_COMMON)), st.binary(max_size=4))
    steps = st.tuples(
        st.sampled_from(_KINDS),
        st.integers(0, 1 << 16),
        st.sampled_from(_LENGTHS),
        words,
        st.sampled_from(seeds),
    )
    damaged = st.builds(
        lambda seed, damage: reduce(_damaged, damage, seed),
        st.sampled_from(seeds),
        st.lists(steps, min_size=0, max_size=6),
    )
    return st.one_of(damaged, damaged, damaged, damaged.map(_packed), st.binary(max_size=40))


_COMMON = (b"\0", b"\n", b"\r", b" ", b'"', b"\xff", b"\xc3\xa9", b"")


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _damaged(data: bytes, step: tuple[str, int, int, bytes, bytes]) -> bytes:
    kind, place, length, word, other = step
    at = place % (len(data) + 1)
    start, middle, end = data[:at], data[at : at + length], data[at + length :]
    if kind == "replace":
        return start + word + end
    if kind == "insert":
        return start + word + middle + end
    if kind == "cut":
        return start + end
    if kind == "repeat":
        return start + middle * (2 + place % 7) + end
    if kind == "swap":
        return start + end[: length or 1] + middle + end[length or 1 :]
    if kind == "end":
        return start + other[place % (len(other) + 1) :]
    if kind == "flip":
        return start + bytes(byte ^ (1 << place % 8) for byte in middle) + end
    lines = data.split(b"\n")
    line = place % len(lines)
    return b"\n".join([*lines[:line], word, *lines[line : line + 1], *lines[line:]])
