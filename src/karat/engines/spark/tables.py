"""Rows that Spark moved to a worker, made into a run or gold by the readers of the formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from karat.columns import Duplicates, Source
from karat.errors import InputError
from karat.formats.blocks import Streamed
from karat.formats.files import Input
from karat.formats.labels import read_lines
from karat.formats.registry import format_named
from karat.formats.spans import join_spans
from karat.formats.tabular import gold_from, run_from
from karat.tables import Gold, Order, Run

# Columns that karat adds: a line, its query's id, and the number of the file that a row is in.
QUERY, LINE, FILE = "_karat_query", "_karat_line", "_karat_file"
_SHOWN = 120
# As what is judged twice says where it was judged before.
_OTHER_LINE = re.compile(r"\bin line (\d+)\b")


@dataclass(frozen=True)
class Form:
    """How a worker reads rows: as columns, or as lines of a format.

    ``query`` is the column of the query's id. ``header`` is the first line of every file,
    where the format has one.
    """

    name: str
    query: str
    format: str | None = None
    header: str | None = None

    def run(self, frame: pl.DataFrame, *, strict: bool) -> Run | None:
        """The run of some rows, in the order of their files; None where there is no row."""
        if not frame.height:
            return None
        try:
            if self.format is None:
                return self._columns(frame, strict).read()
            file = self._file(frame)
            run: Run = format_named(self.format).reader("run")(file, name="run", strict=strict)
        except InputError as error:
            raise self._with_text(error, frame) from None
        return run

    def _columns(self, frame: pl.DataFrame, strict: bool) -> Streamed:
        source = Source(self.name)
        rows = pl.int_range(1, frame.height + 1, eager=True)

        def batches() -> Iterator[pl.DataFrame]:
            return run_from(iter([(frame, rows)]), Input(source, data=b""), strict)

        order: Order = "score" if "score" in frame.columns else "rank"
        return Streamed("run", source, batches, order=order, strict=strict)

    def gold(self, frame: pl.DataFrame, *, duplicates: Duplicates) -> Gold | None:
        """The judgments of some rows; None where there is none."""
        if not frame.height:
            return None
        try:
            if self.format is None:
                lines = pl.int_range(1, frame.height + 1, eager=True)
                return gold_from(frame, lines, Input(Source(self.name), data=b""), duplicates)
            file = self._file(frame)
            if self.format == "labels" and all(one.grade is None for one in read_lines(file)):
                return None
            gold: Gold = format_named(self.format).reader("gold")(file, duplicates=duplicates)
        except InputError as error:
            raise self._with_text(error, frame) from None
        return gold

    def _file(self, frame: pl.DataFrame) -> Input:
        """The lines as a file of their own."""
        lines = frame[LINE].to_list()
        if self.header is not None:
            lines.insert(0, self.header)
        return Input(Source(self.name), data="\n".join([*lines, ""]).encode())

    def _with_text(self, error: InputError, frame: pl.DataFrame) -> InputError:
        """A line's number among those of a block says nothing; its text does."""
        what = _OTHER_LINE.sub(lambda found: self._where(int(found[1]), frame), error.what)
        shown = self._shown(error.line or 0, frame)
        told = f"{what} (in the line {shown})" if shown else what
        return InputError(told, where=error.where)

    def _where(self, line: int, frame: pl.DataFrame) -> str:
        shown = self._shown(line, frame)
        return f"in the line {shown}" if shown else "in another row"

    def _shown(self, line: int, frame: pl.DataFrame) -> str:
        """The text of a line, quoted; nothing where there is none of that number."""
        at = line - 1 - (self.header is not None)
        if LINE not in frame.columns or not 0 <= at < frame.height:
            return ""
        text = frame[LINE][at]
        return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def without_spans(gold: Gold) -> Gold:
    """Judgments of ids as they are spelled: whether all are spans is not for a block to say."""
    return replace(gold, frame=join_spans(gold.frame))
