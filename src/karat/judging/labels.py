"""Labels: what raters, people or models, said of pairs of a query and an item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from karat.columns import IN_MEMORY, Source
from karat.errors import InputError
from karat.formats.files import Input, open_input
from karat.formats.labels import HIGHEST_GRADE, Label, out_of_range, read_lines

# What a model is asked for; people in the workbench have one more, and others their own scale.
GRADES = (0, 1, 2)


@dataclass(frozen=True, eq=False)
class Labels:
    """Judgments by rater, and the pairs that could not be judged.

    ``frame`` has ``query_id``, ``item_id``, ``grade`` (0 to 100) and ``rater``, in the order
    of the file; ``failed`` has ``query_id``, ``item_id`` and ``error``. ``not_judged`` counts
    grades below 0: such a pair was pooled, and nobody judged it. ``nameless`` is what the rater
    is called where a label names none.
    """

    frame: pl.DataFrame
    failed: pl.DataFrame
    source: Source = IN_MEMORY
    not_judged: int = 0
    nameless: str | None = None

    @property
    def raters(self) -> list[str]:
        """Who judged, by name; labels that name nobody may be of any of them."""
        names: list[str] = self.frame["rater"].unique().sort().to_list()
        return [name for name in names if name != self.nameless] or names


def read_labels(path: str | Path, *, rater: str | None = None) -> Labels:
    """Read a label file, all of it or one rater's part.

    A rater may judge a pair once, several raters may disagree. A label that names no rater is
    its file's.
    """
    file = open_input(path)
    every = list(read_lines(file))
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
    """Each rater's grade of each pair, once."""
    first: dict[tuple[str, str, str], tuple[float, int]] = {}
    # What a rater decided about a pair takes the place of what the same rater had said of it.
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
    """The pair and the rater; a label that names no rater is its file's."""
    return label.query_id, label.item_id, file.stem if label.rater is None else label.rater


def _judged(every: Sequence[Label], file: Input) -> list[tuple[Label, float]]:
    """What has a grade; one below 0 is of a pair that was pooled and not judged."""
    found = []
    for label in every:
        if label.grade is None or label.grade < 0:
            continue
        if label.grade > HIGHEST_GRADE:
            raise InputError(out_of_range(label.grade), where=file.name, line=label.line)
        found.append((label, label.grade))
    return found
