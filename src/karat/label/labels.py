"""Label files and pool files: the grades of raters, people or models, and the pairs to judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.data.columns import IN_MEMORY, Source
from karat.data.tables import Gold
from karat.errors import InputError
from karat.formats import read_gold
from karat.formats.files import Input, open_input, refuse_binary
from karat.formats.json_records import Record, read_records
from karat.formats.labels import HIGHEST_GRADE, Label, item_id_of, out_of_range, read_label_lines
from karat.formats.registry import detect_input, format_named

# The grades of a model; people in the workbench have one more, other files their own scale.
GRADES = (0, 1, 2)
JUDGMENTS = {
    "query_id": pl.String,
    "item_id": pl.String,
    "rater": pl.String,
    "grade": pl.Float64,
    "decided": pl.Boolean,
}


@dataclass(frozen=True, eq=False)
class Labels:
    """Judgments by rater, and the pairs that could not be judged.

    ``frame`` has ``query_id``, ``item_id``, ``grade`` (0 to 100) and ``rater``, in the order
    of the file; ``failed`` has ``query_id``, ``item_id`` and ``error``. ``not_judged`` counts
    grades below 0: such a pair was pooled and not judged. ``nameless`` is the rater's name for
    labels that name none.
    """

    frame: pl.DataFrame
    failed: pl.DataFrame
    source: Source = IN_MEMORY
    not_judged: int = 0
    nameless: str | None = None

    @property
    def raters(self) -> list[str]:
        """The raters' names; labels without a name may be of any of them."""
        names: list[str] = self.frame["rater"].unique().sort().to_list()
        return [name for name in names if name != self.nameless] or names


def read_labels(path: str | Path, *, rater: str | None = None) -> Labels:
    """Read a label file, all of it or one rater's part.

    A rater judges a pair once, and a decision on it replaces the same rater's vote; several
    raters may disagree. A label without a rater is named after its file.
    """
    file = open_input(path)
    lines = list(read_label_lines(file))
    if not lines:
        raise InputError("holds no label; at least one line is expected", where=file.name)
    nameless = file.stem if any(line.rater is None for line in lines) else None
    lines = [line if line.rater is not None else line._replace(rater=nameless) for line in lines]
    if rater is not None:
        names = ", ".join(sorted({repr(line.rater) for line in lines}))
        lines = [line for line in lines if line.rater == rater]
        if not lines:
            raise InputError(
                f"holds no label of {rater!r}; its raters are {names}", where=file.name
            )
    judgments, not_judged = judgments_in(lines, file)
    decided = pl.col("decided")
    frame = judgments.drop_nulls("grade").filter(
        decided | ~decided.any().over("query_id", "item_id", "rater")
    )
    failed = pl.DataFrame(
        [(line.query_id, line.item_id, line.error) for line in lines if line.grade is None],
        schema=dict.fromkeys(("query_id", "item_id", "error"), pl.String),
        orient="row",
    )
    frame = frame.select("query_id", "item_id", "grade", "rater")
    return Labels(frame, failed, file.source, not_judged, nameless)


def judgments_in(lines: Sequence[Label], file: Input) -> tuple[pl.DataFrame, int]:
    """Return each rater's judgments of each pair, once, and how many grades are below 0.

    ``decided`` marks decisions between raters, of which the last counts. A null grade is "can't
    tell" or a failure; a grade replaces it. Two different grades of one rater are refused.
    """
    rows: dict[tuple[str, str, str | None, bool], tuple[float | None, int]] = {}
    below = 0
    for line in lines:
        grade = line.grade
        if grade is not None and grade > HIGHEST_GRADE:
            raise InputError(out_of_range(grade), where=file.name, line=line.line)
        if grade is not None and grade < 0:
            below += 1
            continue
        key = (line.query_id, line.item_id, line.rater, line.decided)
        before, first_line = rows.get(key, (None, line.line))
        if None not in (before, grade) and before != grade and not line.decided:
            whose = "" if line.rater is None else f" by the same rater {line.rater!r}"
            raise InputError(
                f"query {line.query_id!r}, item {line.item_id!r} is judged {grade:g} here and"
                f" {before:g} in line {first_line}{whose}; keep one of the two",
                where=file.name,
                line=line.line,
            )
        rows[key] = (before if grade is None and not line.decided else grade, line.line)
    table = [(*pair, rater, grade, decided) for (*pair, rater, decided), (grade, _) in rows.items()]
    return pl.DataFrame(table, schema=JUDGMENTS, orient="row"), below


def open_judgments(path: str | Path, format: str | None = None) -> tuple[str, str, Input | Gold]:
    """Return the format of a file, its stem, and its gold, or the file if it has label lines."""
    if str(path) != "-" and Path(path).is_dir():
        return "beir", Path(path).name, read_gold(path, format=format)
    file = open_input(path)
    if format not in (None, "parquet"):
        refuse_binary(file)
    form = detect_input(file, "gold") if format is None else format_named(format)
    if form.name == "labels":
        return form.name, file.stem, file
    return form.name, file.stem, form.reader("gold")(file, duplicates="agree")


class Pair(NamedTuple):
    """One query and one item with their texts."""

    query_id: str
    item_id: str
    query: str
    text: str


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a pool; a pair without its texts, or one that occurs twice, is refused.

    A pool may be an empty file: nothing was left to judge. An empty pipe is refused, since the
    command that fills it may have failed.
    """
    return [pair for pair, _ in read_pool_records(path)]


def read_pool_records(path: str | Path) -> list[tuple[Pair, Record]]:
    """Read a pool as ``read_pairs`` does; each pair comes with its whole record."""
    # A path that cannot be examined is refused when it is opened.
    with suppress(OSError, ValueError):
        if str(path) not in ("", "-") and Path(path).is_file() and not Path(path).stat().st_size:
            return []
    file = open_input(path)
    lines: dict[tuple[str, str], int | None] = {}
    pairs = []
    for record in read_records(file):
        query_id = record.as_id(record.value.get("query_id"), "query_id")
        pair = Pair(query_id, item_id_of(record), _text(record, "query"), _text(record, "text"))
        before = lines.setdefault((pair.query_id, pair.item_id), record.line)
        if before != record.line:
            raise record.error(
                f"query {pair.query_id!r}, item {pair.item_id!r} occurs again as in line {before}; "
                "a pair is judged once"
            )
        pairs.append((pair, record))
    return pairs


def _text(record: Record, name: str) -> str:
    value: Any = record.value.get(name)
    if isinstance(value, str):
        return value
    raise record.error(
        f'no {name}; a judge reads "query" and "text": karat pool --queries --corpus has them'
    )
