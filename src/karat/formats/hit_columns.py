"""Regular lists of hits in a run log, read as columns instead of as JSON objects.

In a regular list all hits are written alike: the same keys in the same order with the same spaces,
values of the usual types, no escapes. The rest of each line is read as JSON, and so is every line
in doubt: ``read_records`` defines all results and messages.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from karat.errors import InputError
from karat.formats.files import Input, decode
from karat.formats.json_records import (
    JsonRecord,
    parse_json,
    parse_record,
    read_line_chunks,
    read_record,
    read_records,
    refuse_constant,
    strict_decoder,
)

# The keys of a call that hold hits.
LISTS = {"final": "topk", "raw": "raw"}
STAGES = "stages"
# The keys of a hit: texts, numbers, and whole numbers with their lowest value.
HIT_TEXTS = {"doc_id": "doc_id", "doc_version": "version", "version": "version", "source": "source"}
NUMBERS = ("score", "similarity")
WHOLE = {"rank": 1, "start": 0, "end": 0}
COLUMN_NAMES: dict[str, str] = {"chunk_id": "item_id", **HIT_TEXTS}
USUAL_KEYS = frozenset(("chunk_id", "doc_id", "doc_version", "source", *NUMBERS, *WHOLE))

# Not every number of JSON: longer whole numbers and -0 are left to the JSON reader.
_WHOLE = {0: "(?:0|[1-9][0-9]{0,17})", 1: "[1-9][0-9]{0,17}"}
_NUMBER = r"(?:-?(?:0|[1-9][0-9]*)\.[0-9]+|-?[1-9][0-9]*|0)(?:[eE][+-]?[0-9]+)?"
# Stands for a list that was cut out of its line. As NaN is not JSON, it stands for nothing else.
_CUT = b"NaN"
# Logs have one layout or two; comparing with more would take longer than JSON does.
_MOST_LAYOUTS = 8


@dataclass(frozen=True)
class HitColumns:
    """The hits of one list, or of several that follow each other: some rows of a table."""

    table: pl.DataFrame = field(repr=False)
    start: int
    length: int

    def __len__(self) -> int:
        return self.length

    def rows(self) -> pl.DataFrame:
        return self.table.slice(self.start, self.length)

    def ends_at(self, other: HitColumns) -> bool:
        """Return True if the rows of ``other`` come next in the same table."""
        return self.table is other.table and self.start + self.length == other.start


def read_calls(file: Input) -> Iterator[JsonRecord]:
    """Yield the same calls as ``read_records``, with ``HitColumns`` for regular lists."""
    if file.mapping is not None:
        yield from read_records(file)
        return
    hits: deque[HitColumns] = deque()
    decoder = strict_decoder(
        lambda name: hits.popleft() if name == "NaN" else refuse_constant(name)
    )
    for lines in read_line_chunks(file):
        layouts: list[_Layout] = []
        calls = [(number, data, *_cut_lists(data, layouts)) for number, data in lines]
        tables = [layout.table() for layout in layouts]
        for number, data, rest, cuts in calls:
            hits.clear()
            for layout, start, length in cuts:
                if (table := tables[layout]) is not None:
                    hits.append(HitColumns(table, start, length))
            record = None
            if hits and len(hits) == len(cuts) == rest.count(_CUT):
                try:
                    text = decode(rest, file, first_line=number)
                    record = parse_record(text, file.name, number, decoder)
                except InputError:
                    record = None
            if record is None or _lists_in(record) != len(cuts):
                record = read_record(data, file, number)
            yield record


def _lists_in(record: JsonRecord) -> int:
    """Return how many lists of hits are columns."""
    stages = record.value.get(STAGES)
    values = [record.value.get(key) for key in LISTS.values()]
    values += stages.values() if isinstance(stages, dict) else []
    return sum(isinstance(value, HitColumns) for value in values)


def _cut_lists(line: bytes, layouts: list[_Layout]) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Return a line without its regular lists; of these the layout, first row and length.

    Brackets may be part of an id. But if the text up to the next one is a list, so is it for a
    reader of the whole line.
    """
    rest: list[bytes] = []
    cuts = []
    end, start = 0, line.find(b"[{")
    while start >= 0 and (close := line.find(b"]", start)) >= 0:
        hits = line[start + 1 : close]
        number = _layout_of(hits, layouts)
        if number is not None:
            layout, length = layouts[number], hits.count(b"}")
            cuts.append((number, layout.height, length))
            layout.add(hits, length)
            rest.append(line[end:start])
            end = close + 1
        start = line.find(b"[{", close)
    return _CUT.join([*rest, line[end:]]), cuts


def _layout_of(hits: bytes, layouts: list[_Layout]) -> int | None:
    """Return the number of the layout of a list's first hit, which may be a new one."""
    for number, layout in enumerate(layouts):
        if layout.pattern.match(hits):
            return number
    if len(layouts) == _MOST_LAYOUTS or not hits.endswith(b"}"):
        return None
    first, _, others = hits.partition(b"}")
    separator = others.partition(b"{")[0] or b", "
    if b"\\" in first or separator.strip(b" ") != b",":
        return None
    try:
        text = first.decode()
        hit = parse_json(text + "}", "", None)
    except (InputError, UnicodeDecodeError):
        return None
    if "chunk_id" not in hit or not USUAL_KEYS.issuperset(hit):
        return None
    pieces = _pieces(text, hit)
    if pieces is None:
        return None
    layouts.append(_Layout(separator.decode(), pieces))
    return len(layouts) - 1


class _Piece(NamedTuple):
    """What stands between two quotation marks of a hit: the value of a key, or always the same."""

    before: str
    key: str = ""
    after: str = ""

    @property
    def value(self) -> str:
        """The expression that values match."""
        if self.key in WHOLE:
            return _WHOLE[WHOLE[self.key]]
        return _NUMBER if self.key in NUMBERS else r'[^"\\}]+'


def _pieces(text: str, hit: dict[str, Any]) -> list[_Piece] | None:
    """Return the pieces of a hit; None if a value does not have the usual type."""
    texts = iter(text.split('"'))
    pieces = [_Piece(next(texts))]
    for key, value in hit.items():
        pieces.append(_Piece(next(texts)))
        if key in NUMBERS or key in WHOLE:
            expression = rf"([ :]+){_Piece('', key).value}([ ,]*)"
            if not (match := re.fullmatch(expression, next(texts))):
                return None
            pieces.append(_Piece(match[1], key, match[2]))
        elif isinstance(value, str) and value:
            before, _, after = next(texts), next(texts), next(texts)
            pieces += [_Piece(before), _Piece("", key), _Piece(after)]
        else:
            return None
    return pieces


class _Layout:
    """How hits are written, with all the lists that are written so."""

    def __init__(self, separator: str, pieces: list[_Piece]) -> None:
        values = (re.escape(p.before) + p.value * bool(p.key) + re.escape(p.after) for p in pieces)
        hit = '"'.join(values) + "}"
        self.pattern = re.compile(rf"{hit}(?:{separator}\{{|\Z)".encode())
        self.separator = separator
        self.pieces = [_Piece(separator + pieces[0].before), *pieces[1:]]
        self.lists: list[bytes] = []
        self.lengths: list[int] = []
        self.height = 0

    def add(self, hits: bytes, length: int) -> None:
        self.lists.append(hits)
        self.lengths.append(length)
        self.height += length

    def table(self) -> pl.DataFrame | None:
        """Return the hits of all lists; None unless each is written in this way."""
        separator = self.separator.encode()
        text = separator + separator.join(self.lists)
        data = np.frombuffer(text, np.uint8)
        # With as many quotation marks as there should be, no hit can have fewer pieces.
        marks = self.height * (len(self.pieces) - 1)
        if b"\\" in text or data.min() < ord(" ") or np.count_nonzero(data == ord('"')) != marks:
            return None
        schema = pl.Schema({str(number): pl.String for number in range(len(self.pieces))})
        lines = pl.scan_csv(
            text,
            separator='"',
            eol_char="}",
            has_header=False,
            quote_char=None,
            glob=False,
            schema=schema,
        )
        try:
            pieces = lines.collect()
        except pl.exceptions.PolarsError:
            return None
        if pieces.height != self.height:
            return None
        starts = np.cumsum(self.lengths) - self.lengths
        places = np.arange(self.height) - np.repeat(starts, self.lengths)
        regular: list[pl.Expr] = []
        values: dict[str, pl.Expr] = {"rank": pl.lit(pl.Series(places + 1))}
        for piece, (before, key, after) in zip(pieces, self.pieces, strict=True):
            column = pl.col(piece.name)
            if not key:
                # An empty text is read as null.
                regular.append(column == before if before else column.is_null())
                continue
            if key not in NUMBERS and key not in WHOLE:
                regular.append(column.is_not_null())
                values[COLUMN_NAMES[key]] = column
                continue
            if key == "rank":
                # Almost all logs number their hits, and comparing texts is faster than parsing.
                numbers = pl.int_range(1, max(self.lengths) + 1, eager=True)
                usual = pl.select(pl.format(f"{before}{{}}{after}", numbers)).to_series()
                if piece.eq_missing(usual.gather(places)).all():
                    continue
            regular.append(column.str.contains(f"^{before}{_Piece('', key).value}{after}$"))
            kind = pl.Float64 if key in NUMBERS else pl.Int64
            values[key] = column.str.strip_chars(" :,").cast(kind, strict=False)
            regular.append(values[key].is_finite())
        if not pieces.select(pl.all_horizontal(regular).fill_null(value=False).all()).item():
            return None
        return pieces.select(**values)
