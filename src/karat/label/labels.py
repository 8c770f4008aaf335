"""Label files and pool files: the grades of raters, people or models, and the pairs to judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.data.columns import IN_MEMORY, Source
from karat.errors import InputError
from karat.formats.files import Input, open_input
from karat.formats.json_records import Record, read_records
from karat.formats.labels import HIGHEST_GRADE, Label, item_id_of, out_of_range, read_label_lines

# The grades of a model; people in the workbench have one more, other files their own scale.
GRADES = (0, 1, 2)


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

    A rater judges a pair once; several raters may disagree. A label without a rater is named
    after its file.
    """
    file = open_input(path)
    every = list(read_label_lines(file))
    if not every:
        raise InputError("holds no label; at least one line is expected", where=file.name)
    if rater is not None:
        every = _of_rater(every, rater, file)
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
        sum(label.grade is not None and label.grade < 0 for label in every),
        file.stem if any(label.rater is None for label in every) else None,
    )


def _of_rater(every: Sequence[Label], rater: str, file: Input) -> list[Label]:
    own = [label for label in every if _who(label, file)[2] == rater]
    if not own:
        names = ", ".join(sorted({repr(_who(label, file)[2]) for label in every}))
        raise InputError(f"holds no label of {rater!r}; its raters are {names}", where=file.name)
    return own


def _graded(every: Sequence[Label], file: Input) -> pl.DataFrame:
    """Return each rater's grade of each pair, once."""
    first: dict[tuple[str, str, str], tuple[float, int]] = {}
    # A rater's decision on a pair replaces the same rater's vote.
    told = _judged(every, file)
    deciding = {_who(label, file) for label, _ in told if label.decided}
    for label, grade in told:
        who = _who(label, file)
        if not label.decided and who in deciding:
            continue
        before = first.setdefault(who, (grade, label.line))
        if before[0] != grade:
            raise InputError(
                f"query {label.query_id!r}, item {label.item_id!r} is judged {grade:g} here and "
                f"{before[0]:g} in line {before[1]} by the same rater {who[2]!r};"
                " keep one of the two",
                where=file.name,
                line=label.line,
            )
    rows = [(query, item, grade, rater) for (query, item, rater), (grade, _) in first.items()]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64, "rater": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _who(label: Label, file: Input) -> tuple[str, str, str]:
    """Return the pair and the rater; a label without a rater is named after its file."""
    return label.query_id, label.item_id, file.stem if label.rater is None else label.rater


def _judged(every: Sequence[Label], file: Input) -> list[tuple[Label, float]]:
    """Return the labels with a grade; one below 0 marks a pair that was pooled and not judged."""
    found = []
    for label in every:
        if label.grade is None or label.grade < 0:
            continue
        if label.grade > HIGHEST_GRADE:
            raise InputError(out_of_range(label.grade), where=file.name, line=label.line)
        found.append((label, label.grade))
    return found


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
    if _is_blank(path):
        return []
    file = open_input(path)
    lines: dict[tuple[str, str], int | None] = {}
    pairs = []
    for record in read_records(file):
        pair = _pair(record)
        before = lines.setdefault((pair.query_id, pair.item_id), record.line)
        if before != record.line:
            raise record.error(
                f"query {pair.query_id!r}, item {pair.item_id!r} occurs again as in line {before}; "
                "a pair is judged once"
            )
        pairs.append(pair)
    return pairs


def _is_blank(path: str | Path) -> bool:
    """Return whether this is an empty file, which the record reader would refuse."""
    if str(path) in ("", "-"):
        return False
    with suppress(OSError, ValueError):
        return Path(path).is_file() and not Path(path).stat().st_size
    # A path that cannot be examined is refused when it is opened.
    return False


def _pair(record: Record) -> Pair:
    query_id = record.as_id(record.value.get("query_id"), "query_id")
    return Pair(query_id, item_id_of(record), _text(record, "query"), _text(record, "text"))


def _text(record: Record, name: str) -> str:
    value: Any = record.value.get(name)
    if isinstance(value, str):
        return value
    raise record.error(
        f'no {name}; a judge reads "query" and "text": karat pool --queries --corpus has them'
    )
