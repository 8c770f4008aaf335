"""Labels in JSONL, one judgment per line: query_id, item_id, grade, rationale, rater, source.

``relevance`` is accepted for ``grade`` and ``chunk_id`` for ``item_id``. A pair that could not be
judged has an ``error`` instead of a grade: it is left out of the gold, never a 0. Grades are from
0 to 100; one below 0 means that a pair was pooled and not judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from karat.data.columns import GOLD_NAMES, Duplicates, join_spans
from karat.data.tables import Gold
from karat.errors import InputError
from karat.formats.files import Input, write_lines
from karat.formats.json_records import JsonRecord, gold_of_rows, read_records, whole_if_possible
from karat.formats.registry import Head, Kind

# The source of a label: a person, or a decision on a disagreement between raters.
HUMAN, ADJUDICATION = "human", "adjudication"
# The highest grade that a judge or a person may give; gold may have any scale.
HIGHEST_GRADE = 100
_ITEM = ("item_id", "chunk_id")
_GRADE = ("grade", "relevance")


class Label(NamedTuple):
    """A rater's grade of a pair, or why there is none; ``decided`` settles a disagreement."""

    line: int
    query_id: str
    item_id: str
    grade: float | None
    error: str | None
    rater: str | None
    decided: bool = False


def sniff(head: Head, kind: Kind) -> bool:
    """Return True for one pair per record; a pooled pair may have no grade yet."""
    keys = head.keys
    is_pair = "item_id" in keys or ("chunk_id" in keys and keys & {*_GRADE, "error"})
    return bool("query_id" in keys and is_pair and not keys & {*GOLD_NAMES, "gold_evidence"})


def read_label_lines(file: Input) -> Iterator[Label]:
    """Yield every line of a label file, graded or failed."""
    for record in read_records(file):
        value = record.value
        query_id = record.as_id(value.get("query_id"), "query_id")
        item_id, rater = item_id_of(record), value.get("rater")
        if rater is not None:
            rater = record.as_id(rater, "rater")
        grade, error = _grade(record), value.get("error")
        if error is not None and not (isinstance(error, str) and error.strip()):
            raise record.error("error is not text; the reason is expected")
        decided = value.get("source") == ADJUDICATION
        yield Label(record.line or 0, query_id, item_id, grade, error, rater, decided)


def item_id_of(record: JsonRecord) -> str:
    """Return the item of a pair: its item_id or chunk_id, which must agree if both are given."""
    keys = [name for name in _ITEM if record.value.get(name) is not None] or _ITEM[:1]
    names = [record.as_id(record.value.get(name), name) for name in keys]
    if len(set(names)) > 1:
        raise record.error(
            f"item_id is {names[0]!r} and chunk_id is {names[1]!r}; a pair is of one item: "
            "keep one of the two"
        )
    return names[0]


def _grade(record: JsonRecord) -> float | None:
    keys = [name for name in (*_GRADE, "error") if record.value.get(name) is not None]
    if not keys:
        raise record.error(
            'no grade; a label has "grade", or "error" where the pair could not be judged'
        )
    if len(keys) > 1:
        raise record.error(f"has {' and '.join(keys)}; keep one")
    return None if keys == ["error"] else record.as_number(record.value[keys[0]], keys[0])


def count_failed(file: Input) -> int:
    """Return the number of lines with an error instead of a grade."""
    return sum(label.grade is None for label in read_label_lines(file))


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read the grades; raters who disagree on a pair are refused, failed pairs are left out."""
    labels = list(read_label_lines(file))
    rows = [
        (label.query_id, label.item_id, label.grade, False, label.line)
        for label in labels
        if label.grade is not None
    ]
    if not rows:
        raise no_grades_error(file.name, failed=len(labels))
    return gold_of_rows(rows, file, duplicates=duplicates)


def no_grades_error(where: str, *, failed: int = 0, not_judged: int = 0) -> InputError:
    """Return the error for a file without a grade, with the numbers of failed and pooled pairs."""
    kinds = ((failed, " failed"), (not_judged, " below 0 (pooled, not judged)"))
    counts = [f"{n:,} label{'' if n == 1 else 's'}{what}" for n, what in kinds if n]
    reasons = f": {', '.join(counts)}" if counts else ""
    return InputError(f"holds no grade{reasons}; judge its pairs again", where=where)


def check_highest_grade(grades: pl.Series, where: str) -> None:
    """Raise InputError for labels above the highest grade."""
    highest = grades.max()
    if isinstance(highest, (int, float)) and highest > HIGHEST_GRADE:
        raise InputError(out_of_range(float(highest)), where=where)


def out_of_range(grade: float) -> str:
    """Return the message for a grade out of range."""
    return f"grade is {grade:g}; a grade is from 0 to {HIGHEST_GRADE}"


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write one line per judgment."""
    table = join_spans(gold.frame).select("query_id", "item_id", "grade")
    rows = (
        {**row, "grade": whole_if_possible(row["grade"])} for row in table.iter_rows(named=True)
    )
    write_lines((json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows), path)
