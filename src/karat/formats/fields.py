"""Lines of fields parted by white space: fast where they are regular, careful where not.

Polars' CSV reader is fast but takes short lines and double spaces for something else,
so it only gets bytes that were looked at; all else goes line by line, and only that
way makes messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import polars as pl

from karat.errors import InputError
from karat.formats.files import Input, decode
from karat.formats.regular import blanks_if_regular

# Parsing is ahead of the consumer by this many chunks; more would only cost memory.
_AHEAD = 2
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class Layout:
    """What the fields of a line are called, which of them are kept, and which is the number."""

    names: tuple[str, ...]
    keep: tuple[str, ...]
    number: str
    need: str
    expected: str
    extra_allowed: bool = False

    @property
    def pattern(self) -> bytes:
        """A first line, which sets how many fields Polars looks for.

        There is one more than a line may have, which shows where one is too long.
        """
        return b" ".join([b"0"] * (len(self.names) + 1)) + b"\n"

    def schema(self) -> dict[str, type[pl.DataType]]:
        kinds: dict[str, type[pl.DataType]] = dict.fromkeys(self.names, pl.String)
        kinds[self.number] = pl.Float64
        if "rank" in kinds:
            kinds["rank"] = pl.Int64
        return kinds


def read_fields(
    file: Input, layout: Layout, *, numbered: bool = True, careful: bool = False
) -> Iterator[pl.DataFrame]:
    """Checked columns chunk by chunk, with each row's ``line`` if ``numbered``."""

    def parse(chunk: bytes) -> tuple[pl.DataFrame, int]:
        frame = None if careful else fast(chunk, layout)
        if frame is None:
            frame, lines = slow(chunk.removeprefix(layout.pattern), layout, file)
            return (frame if numbered else frame.drop("line")), lines
        return (_number(frame) if numbered else frame), frame.height

    line = 0
    for parsed in _ahead(file.chunks(lead=layout.pattern), parse):
        try:
            frame, lines = parsed.result()
        except InputError as error:
            place = None if error.line is None else error.line + line
            raise InputError(error.what, where=error.where, line=place) from None
        yield frame.with_columns(pl.col("line") + line) if numbered else frame
        line += lines


def _number(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.insert_column(0, pl.int_range(1, frame.height + 1, eager=True).alias("line"))


def _ahead(
    chunks: Iterator[bytes], parse: Callable[[bytes], tuple[pl.DataFrame, int]]
) -> Iterator[Future[tuple[pl.DataFrame, int]]]:
    """Parsed chunks, some ahead of the consumer; reading has a thread of its own too."""
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(_AHEAD) as pool:
        waiting: deque[Future[tuple[pl.DataFrame, int]]] = deque()
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            waiting.append(pool.submit(parse, chunk))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


def fast(chunk: bytes, layout: Layout) -> pl.DataFrame | None:
    """The kept columns of regular lines after the layout's pattern, or None at any doubt."""
    blanks = blanks_if_regular(chunk)
    if blanks is None:
        return None
    try:
        frame = (
            pl.scan_csv(
                chunk,
                separator=" ",
                has_header=False,
                quote_char=None,
                glob=False,
                schema={**layout.schema(), "more": pl.String},
            )
            .select(*layout.keep, "more")
            .collect()
            .slice(1)
        )
    except pl.exceptions.PolarsError:
        return None
    # No line is too long, and there are as many blanks as full lines take: none is short.
    exact = blanks == len(layout.names) * (frame.height + 1) + 1
    if not exact or frame["more"].null_count() < frame.height:
        return None
    frame = frame.drop("more")
    if any(column.null_count() for column in frame):
        return None
    return frame if frame[layout.number].is_finite().all() else None


def slow(chunk: bytes, layout: Layout, file: Input) -> tuple[pl.DataFrame, int]:
    """The kept columns of any lines with their line numbers, and how many lines there were."""
    ends = chunk.count(b"\n") if chunk.isspace() else 0
    # Millions of blank lines would be millions of rows before they are nothing.
    chunk = b"" if ends else chunk
    decode(chunk, file)
    lines = pl.scan_lines(chunk, name="text", row_index_name="line", row_index_offset=1).collect()
    return _split(lines, layout, file), ends or lines.height


def _split(lines: pl.DataFrame, layout: Layout, file: Input) -> pl.DataFrame:
    text = pl.col("text").str.strip_chars(" \t\r")
    lines = lines.with_columns(text).filter(
        (pl.col("text") != "") & ~pl.col("text").str.starts_with("#")
    )
    _refuse(
        lines,
        lines["text"].str.contains("\r", literal=True),
        "a carriage return stands inside the line; end lines with a line feed",
        file,
    )
    count = len(layout.names)
    parts = lines["text"].str.replace_all("[ \t]+", " ").str.splitn(" ", count + 1).struct.unnest()
    parts.columns = [*layout.names, "more"]
    short = parts[layout.names[-1]].is_null()
    long = parts["more"].is_not_null()
    wrong = short if layout.extra_allowed else short | long
    if wrong.any():
        found = lines["text"][int(wrong.arg_true()[0])].split()
        _refuse(lines, wrong, f"{len(found)} columns; expected {layout.expected}", file)
    table = parts.select(*layout.keep).insert_column(0, lines["line"].cast(pl.Int64))
    return _numbers(table, layout, file)


def _numbers(table: pl.DataFrame, layout: Layout, file: Input) -> pl.DataFrame:
    raw = table[layout.number]
    values = raw.cast(pl.Float64, strict=False)
    wrong = ~raw.str.contains(_NUMBER) | values.is_null() | ~values.is_finite()
    if wrong.any():
        shown = raw[int(wrong.arg_true()[0])]
        _refuse(table, wrong, f"{layout.number} is {shown!r}; {layout.need}", file)
    table = table.with_columns(values)
    if "rank" in layout.keep:
        ranks = table["rank"].cast(pl.Int64, strict=False)
        table = table.drop("rank") if ranks.null_count() else table.with_columns(ranks)
    return table


def _refuse(table: pl.DataFrame, wrong: pl.Series, what: str, file: Input) -> None:
    if wrong.any():
        line = int(table["line"][int(wrong.arg_true()[0])])
        raise InputError(what, where=file.name, line=line)
