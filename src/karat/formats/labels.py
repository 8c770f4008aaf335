"""Labels in JSONL, one judgment a line: query_id, item_id, grade, rationale, rater, source.

``relevance`` is understood for ``grade`` and ``chunk_id`` for ``item_id``. A pair that could
not be judged has an ``error`` in place of a grade: it is left out of the gold, never a 0.
Grades are from 0 to 100; one below 0 says that a pair was pooled and not judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.records import Record, as_id, as_number, read_records
from karat.formats.spans import join_spans, split_spans
from karat.tables import Gold

# Where a label comes from: a person, or one who decided what raters could not agree on.
HUMAN, ADJUDICATION = "human", "adjudication"

# Of what a judge or people say of a pair; gold has whatever scale it has.
HIGHEST_GRADE = 100

_ITEM = ("item_id", "chunk_id")
_GRADE = ("grade", "relevance")


class Label(NamedTuple):
    """One line: what a rater says of a pair, or why nothing could be said.

    ``decided`` marks a decision on what raters could not agree on.
    """

    line: int
    query_id: str
    item_id: str
    grade: float | None
    error: str | None
    rater: str | None
    decided: bool = False


def read_lines(file: Input) -> Iterator[Label]:
    """Every line of a label file, graded or failed."""
    for record in read_records(file):
        yield _label(record, file.name)


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """The grades; raters who disagree on a pair are refused, failed pairs are left out."""
    every = list(read_lines(file))
    graded = [label for label in every if label.grade is not None]
    if not graded:
        raise no_grade(file.name, failed=len(every))
    table = pl.DataFrame(
        {
            "query_id": [label.query_id for label in graded],
            "item_id": [label.item_id for label in graded],
            "grade": [label.grade for label in graded],
        },
        schema={"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64},
    )
    lines = pl.Series("line", [label.line for label in graded], dtype=pl.Int64)
    return Gold.from_frame(
        split_spans(table), duplicates=duplicates, lines=lines, source=file.source
    )


def no_grade(where: str, *, failed: int = 0, not_judged: int = 0) -> InputError:
    """What to say of a file without a grade: which labels failed, and which are below 0."""
    kinds = ((failed, " failed"), (not_judged, " below 0 (pooled, not judged)"))
    told = [f"{n:,} label{'' if n == 1 else 's'}{what}" for n, what in kinds if n]
    why = f": {', '.join(told)}" if told else ""
    return InputError(f"holds no grade{why}; judge its pairs again", where=where)


def refuse_above(grades: pl.Series, where: str) -> None:
    """Refuse labels of a scale that goes beyond what a label can be."""
    most = grades.max()
    if isinstance(most, (int, float)) and most > HIGHEST_GRADE:
        raise InputError(out_of_range(float(most)), where=where)


def out_of_range(grade: float) -> str:
    """What is wrong with a grade."""
    return f"grade is {grade:g}; a grade is from 0 to {HIGHEST_GRADE}"


def count_failed(file: Input) -> int:
    """How many lines of a label file have an error in place of a grade."""
    return sum(label.grade is None for label in read_lines(file))


def write_gold(gold: Gold, path: str | Path) -> None:
    """One line a judgment."""
    rows = join_spans(gold.frame).select("query_id", "item_id", "grade").iter_rows(named=True)
    write_lines((_line(row) for row in rows), path)


def _line(row: dict[str, Any]) -> str:
    grade = row["grade"]
    whole = int(grade) if float(grade).is_integer() else grade
    return json.dumps(row | {"grade": whole}, ensure_ascii=False, allow_nan=False)


def item_of(record: Record, where: str) -> str:
    """The item of a pair: its item_id or chunk_id, which agree where both are given."""
    line, value = record.line, record.value
    told = [name for name in _ITEM if value.get(name) is not None] or _ITEM[:1]
    names = [as_id(value.get(name), name, where, line) for name in told]
    if len(set(names)) > 1:
        raise InputError(
            f"item_id is {names[0]!r} and chunk_id is {names[1]!r}; a pair is of one item: "
            "keep one of the two",
            where=where,
            line=line,
        )
    return names[0]


def _label(record: Record, where: str) -> Label:
    line, value = record.line, record.value
    query_id = as_id(value.get("query_id"), "query_id", where, line)
    item_id = item_of(record, where)
    rater = value.get("rater")
    if rater is not None:
        rater = as_id(rater, "rater", where, line)
    grade, error = _grade(record, where), _error(record, where)
    decided = value.get("source") == ADJUDICATION
    return Label(line, query_id, item_id, grade, error, rater, decided)


def _grade(record: Record, where: str) -> float | None:
    line, value = record.line, record.value
    told = [name for name in _GRADE if value.get(name) is not None]
    if len(told) > 1:
        raise InputError("has a grade and a relevance; keep one", where=where, line=line)
    if told and value.get("error") is not None:
        raise InputError("has a grade and an error; keep one", where=where, line=line)
    if told:
        return as_number(value[told[0]], told[0], where, line)
    if value.get("error") is None:
        raise InputError(
            'no grade; a label has "grade", or "error" where the pair could not be judged',
            where=where,
            line=line,
        )
    return None


def _error(record: Record, where: str) -> str | None:
    error = record.value.get("error")
    if error is None or (isinstance(error, str) and error.strip()):
        return error
    raise InputError("error is no text; the reason is expected", where=where, line=record.line)
