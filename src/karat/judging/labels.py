"""Labels: what raters, people or models, said of pairs of a query and an item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from karat.columns import IN_MEMORY, Source
from karat.errors import InputError
from karat.formats.files import Input, open_input
from karat.formats.labels import Label, read_lines

GRADES = (0, 1, 2)


@dataclass(frozen=True, eq=False)
class Labels:
    """Judgments by rater, and the pairs that could not be judged.

    ``frame`` has ``query_id``, ``item_id``, ``grade`` (0, 1 or 2) and ``rater``, in the order
    of the file; ``failed`` has ``query_id``, ``item_id`` and ``error``.
    """

    frame: pl.DataFrame
    failed: pl.DataFrame
    source: Source = IN_MEMORY


def read_labels(path: str | Path) -> Labels:
    """Read a label file; a rater may judge a pair once, several raters may disagree.

    A label that names no rater is its file's.
    """
    file = open_input(path)
    every = list(read_lines(file))
    if not every:
        raise InputError("holds no label; at least one line is expected", where=file.name)
    failed = [label for label in every if label.grade is None]
    schema = dict.fromkeys(("query_id", "item_id", "error"), pl.String)
    return Labels(
        _graded(every, file),
        pl.DataFrame(
            [(label.query_id, label.item_id, label.error) for label in failed],
            schema=schema,
            orient="row",
        ),
        file.source,
    )


def _graded(every: Sequence[Label], file: Input) -> pl.DataFrame:
    """Each rater's grade of each pair, once."""
    first: dict[tuple[str, str, str], tuple[int, int]] = {}
    for label in every:
        if label.grade is None:
            continue
        grade = _checked(label, label.grade, file)
        rater = file.stem if label.rater is None else label.rater
        before = first.setdefault((label.query_id, label.item_id, rater), (grade, label.line))
        if before[0] != grade:
            raise InputError(
                f"query {label.query_id!r}, item {label.item_id!r} is judged {grade} here and "
                f"{before[0]} in line {before[1]} by the same rater {rater!r}; keep one of the two",
                where=file.name,
                line=label.line,
            )
    rows = [(query, item, grade, rater) for (query, item, rater), (grade, _) in first.items()]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Int64, "rater": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _checked(label: Label, grade: float, file: Input) -> int:
    if grade in GRADES:
        return int(grade)
    raise InputError(f"grade is {grade:g}; a label is 2, 1 or 0", where=file.name, line=label.line)
