"""Bytes of files, packed by gzip or zstd or not, in pieces and never beyond the limits."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any, Literal

from karat.errors import InputError
from karat.formats.limits import most_unpacked, too_large_a_document, unpacks_too_far

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Packing = Literal["gzip", "zstd"]
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_STEP = 1 << 16
# What unpacking raises on bytes that are not what was packed.
DAMAGE = (zlib.error, gzip.BadGzipFile, zstd.ZstdError)
CUT_OFF = "the file ends early: the compressed data is cut off; copy or write it again"
DAMAGED = "the compressed data is damaged; copy or write it again"


def packing_of(start: bytes) -> Packing | None:
    """How a file is packed, told by its first four bytes."""
    if start.startswith(_GZIP):
        return "gzip"
    return "zstd" if start.startswith(_ZSTD) else None


def unpacked(file: IO[bytes], packing: Packing, size: int, where: str) -> Iterator[bytes]:
    """The unpacked bytes, ``size`` at a time."""
    stream: Any = gzip.GzipFile(fileobj=file) if packing == "gzip" else zstd.ZstdFile(file)
    sofar = 0
    try:
        while piece := stream.read(size):
            sofar += len(piece)
            # Held against what was read until now: what packs too well is noticed early.
            packed = file.tell()
            if sofar > (most := most_unpacked(packed)):
                raise unpacks_too_far(where, packed, most)
            yield piece
    except EOFError:
        raise InputError(CUT_OFF, where=where) from None
    except DAMAGE:
        raise InputError(DAMAGED, where=where) from None


def whole(pieces: Iterable[bytes], where: str, most: int) -> bytes:
    """All the pieces as one, unless that is more than ``most`` bytes."""
    kept, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise too_large_a_document(where, most)
        kept.append(piece)
    return b"".join(kept)


def long_line(piece: bytes, before: int, most: int) -> int | None:
    """Where the first line begins that ends in a piece and has more than ``most`` bytes.

    So many bytes of its first line came ``before`` the piece.
    """
    start = 0
    while (end := piece.find(b"\n", start)) >= 0:
        if before + end - start > most:
            return start
        start, before = end + 1, 0
    return None


def last_line_end(file: IO[bytes], start: int, end: int) -> int | None:
    """Where the last line feed between two places stands; reads no more than it has to."""
    while end > start:
        begin = max(start, end - _STEP)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found
        end = begin
    return None
