"""How much memory a Parquet file takes when it is read, by its footer and page headers.

Polars trusts these numbers and allocates memory for them, so a few bytes could claim all memory
there is; they are checked before Polars gets the file. Understands just enough of Thrift's
compact protocol, and nothing of what the columns hold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

from karat.errors import InputError
from karat.formats.limits import check_columns, max_unpacked, unpacks_too_large

_MAGIC = b"PAR1"
_DAMAGED = "the Parquet file is damaged; copy or write it again"
# The header of a page is short unless it has the lowest and highest value of the page.
_HEAD, _LARGEST_HEAD = 1 << 9, 1 << 20
# A footer of a thousand columns in a thousand row groups has this many bytes.
_LARGEST_FOOTER = 256 << 20
# The least memory of a value: a number, or the position of a text.
_VALUE = 8
_DEEPEST = 32

Fields = dict[int, Any]


class _BrokenError(Exception):
    """The bytes are not valid; ``short`` if reading more of them may help."""

    def __init__(self, *, short: bool = False) -> None:
        super().__init__()
        self.short = short


def check_sizes(file: IO[bytes], where: str) -> None:
    """Raise InputError for a file that claims more than a file of its size can hold."""
    size = file.seek(0, os.SEEK_END)
    try:
        footer = _footer(file, size)
        check_columns(len(_list(footer, 2)) - 1, 1, where)
        most, claimed = max_unpacked(size), _VALUE * _count(footer, 3)
        if claimed > most:
            raise unpacks_too_large(where, size, most)
        for column in _columns(footer):
            for unpacked in _pages(file, column, size):
                claimed += unpacked
                if claimed > most:
                    raise unpacks_too_large(where, size, most)
    except _BrokenError:
        raise InputError(_DAMAGED, where=where) from None


def row_group_sizes(file: IO[bytes], where: str) -> list[int]:
    """Return the number of rows of each row group, which are unpacked together."""
    try:
        footer = _footer(file, file.seek(0, os.SEEK_END))
        return [_count(group, 3) for group in _list(footer, 4)]
    except _BrokenError:
        raise InputError(_DAMAGED, where=where) from None


def _footer(file: IO[bytes], size: int) -> Fields:
    if size < 12:
        raise _BrokenError
    file.seek(size - 8)
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or not 0 < length <= min(size - 12, _LARGEST_FOOTER):
        raise _BrokenError
    file.seek(size - 8 - length)
    return _Reader(file.read(length)).fields()


def _columns(footer: Fields) -> Iterator[Fields]:
    """Yield the metadata of each column in each row group."""
    for group in _list(footer, 4):
        for chunk in _list(group, 1):
            metadata = chunk.get(3) if isinstance(chunk, dict) else None
            if not isinstance(metadata, dict):
                raise _BrokenError
            yield metadata


def _pages(file: IO[bytes], column: Fields, size: int) -> Iterator[int]:
    """Yield the bytes that each page of a column unpacks to, with memory for its values."""
    starts = [column[key] for key in (9, 11) if isinstance(column.get(key), int)]
    left, values = _count(column, 7), _count(column, 5)
    offset = min((start for start in starts if start > 0), default=0)
    if offset < 4 or offset + left > size:
        raise _BrokenError
    while left > 0 and values > 0:
        header, length = _head(file, offset)
        unpacked, packed = _count(header, 2), _count(header, 3)
        data_header: Fields = next(
            (header[key] for key in (5, 8) if isinstance(header.get(key), dict)), {}
        )
        page_values = _count(data_header, 1) if data_header else 0
        if length + packed > left:
            raise _BrokenError
        values -= page_values
        offset, left = offset + length + packed, left - length - packed
        yield unpacked + _VALUE * page_values


def _head(file: IO[bytes], offset: int) -> tuple[Fields, int]:
    length = _HEAD
    while True:
        file.seek(offset)
        reader = _Reader(file.read(length))
        try:
            return reader.fields(), reader.at
        except _BrokenError as broken:
            if not broken.short or length >= _LARGEST_HEAD:
                raise
            length *= 8


def _count(fields: Fields, key: int) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _BrokenError
    return value


def _list(fields: Any, key: int) -> list[Any]:
    value = fields.get(key) if isinstance(fields, dict) else None
    if not isinstance(value, list):
        raise _BrokenError
    return value


class _Reader:
    """Thrift's compact protocol: fields by their number, lists, numbers and bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fields(self, depth: int = 0) -> Fields:
        fields: Fields = {}
        key = 0
        while header := self._byte():
            delta = header >> 4
            key = key + delta if delta else self._signed()
            fields[key] = self._value(header & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _BrokenError
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._number())
        if kind in (9, 10):
            return self._items(depth + 1)
        if kind == 12:
            return self.fields(depth + 1)
        raise _BrokenError

    def _items(self, depth: int) -> list[Any]:
        header = self._byte()
        count, kind = header >> 4, header & 15
        count = self._number() if count == 15 else count
        # Every item takes at least one byte, so a list cannot have more items than there are bytes.
        if count > len(self.data) - self.at:
            raise _BrokenError(short=True)
        if kind in (1, 2):
            return [self._byte() == 1 for _ in range(count)]
        return [self._value(kind, depth) for _ in range(count)]

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise _BrokenError(short=True)
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise _BrokenError(short=True)
        self.at += count
        return self.data[self.at - count : self.at]

    def _number(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise _BrokenError

    def _signed(self) -> int:
        value = self._number()
        return (value >> 1) ^ -(value & 1)
