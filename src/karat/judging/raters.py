"""People who judged some of the same pairs: who said what, and one grade a pair of many."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from karat.columns import Source
from karat.errors import InputError, UsageError, unknown
from karat.formats import read_gold
from karat.formats.detect import detect_input
from karat.formats.files import Input, open_input
from karat.formats.labels import HIGHEST_GRADE, no_grade, out_of_range, read_lines, refuse_above
from karat.formats.registry import format_named
from karat.judging.tops import PAIR
from karat.stats.agreement import majority
from karat.stats.dawid_skene import DawidSkene, dawid_skene
from karat.tables import Gold

Truth = Literal["majority", "dawid-skene"]
TRUTHS: tuple[Truth, ...] = ("majority", "dawid-skene")
# A rater says one thing of a pair, and may decide on it too.
_KEY = [*PAIR, "rater", "decided"]
_SCHEMA = {
    "query_id": pl.String,
    "item_id": pl.String,
    "rater": pl.String,
    "grade": pl.Float64,
    "decided": pl.Boolean,
}


@dataclass(frozen=True, eq=False)
class People:
    """What people said, one row a judgment: ``query_id``, ``item_id``, ``rater`` and ``grade``.

    The grade is null where a rater could not tell. A row that is ``decided`` is no vote of a
    rater but a decision between them, and counts above them. ``not_judged`` counts grades below
    0, which have no row: such a pair was pooled, and nobody judged it.
    """

    frame: pl.DataFrame
    sources: tuple[Source, ...] = ()
    not_judged: int = 0

    @classmethod
    def of(cls, gold: Gold, rater: str | None = None) -> People:
        """The judgments of one rater, who is called as the file unless named."""
        if "start" in gold.frame.columns:
            raise InputError(
                "holds character spans, which judge no item; give judgments of items",
                where=gold.source.name,
            )
        name = Path(gold.source.name).stem if rater is None else rater
        refuse_above(gold.frame["grade"], gold.source.name)
        judged = gold.frame.filter(pl.col("grade") >= 0)
        if not judged.height and gold.frame.height:
            raise no_grade(gold.source.name, not_judged=gold.frame.height)
        frame = judged.select(
            *PAIR,
            rater=pl.lit(name, pl.String),
            grade=pl.col("grade").cast(pl.Float64),
            decided=pl.lit(value=False),
        )
        below = gold.frame.height - judged.height
        return cls(frame.sort(*PAIR, "rater"), (gold.source,), below)

    @property
    def name(self) -> str:
        """The files, for messages."""
        return ", ".join(source.name for source in self.sources)

    @property
    def votes(self) -> pl.DataFrame:
        """The grades of raters, without decisions and without what could not be told."""
        return self.frame.filter(~pl.col("decided") & pl.col("grade").is_not_null())

    @property
    def raters(self) -> list[str]:
        """Who judged, by name."""
        own = self.frame.filter(~pl.col("decided"))
        names: list[str] = own["rater"].unique().sort().to_list()
        return names

    def of_queries(self, only: Collection[str] | None) -> People:
        """What was said of some queries."""
        if only is None:
            return self
        wanted = pl.Series("query_id", sorted(only), dtype=pl.String).implode()
        own = self.frame.filter(pl.col("query_id").is_in(wanted))
        return People(own, self.sources, self.not_judged)


@dataclass(frozen=True, eq=False)
class OneGrade:
    """One grade a pair, and what is left out: ``ties``, and pairs that nobody could tell."""

    gold: Gold
    method: Truth
    ties: int
    cannot_tell: int
    decided: int
    fitted: DawidSkene | None = None

    def document(self) -> dict[str, Any]:
        """How the grades came about."""
        return {
            "method": self.method,
            "graded": self.gold.frame.height,
            "ties": self.ties,
            "cannot_tell": self.cannot_tell,
            "decided": self.decided,
            "iterations": None if self.fitted is None else self.fitted.iterations,
            "converged": None if self.fitted is None else self.fitted.converged,
        }


def read_people(paths: Sequence[str | Path], *, format: str | None = None) -> People:
    """Read people's judgments, of one file or several, of one rater or several a file.

    A label file may name its raters; a judgment that names none is its file's.
    """
    if not paths:
        raise UsageError("people's judgments are expected; name at least one file")
    files = [_read(path, format) for path in paths]
    stems = [name for name, _ in files]
    parts: list[pl.DataFrame] = []
    sources: list[Source] = []
    for (stem, people), path in zip(files, paths, strict=True):
        own = stem if stems.count(stem) == 1 else f"{Path(path).resolve().parent.name}/{stem}"
        parts.append(people.frame.with_columns(pl.col("rater").fill_null(own)))
        sources.extend(people.sources)
    frame = parts[0]
    for part, source in zip(parts[1:], sources[1:], strict=True):
        _check_same(frame, part, source)
        frame = pl.concat([frame, part])
    # Who could not tell in one file and could in another, could.
    graded = pl.col("grade").is_not_null()
    frame = frame.filter(graded | ~graded.any().over(_KEY))
    frame = frame.unique(_KEY, keep="last", maintain_order=True)
    below = sum(people.not_judged for _, people in files)
    return People(frame.sort(_KEY), tuple(sources), below)


def one_grade(people: People, method: Truth = "majority") -> OneGrade:
    """One grade a pair: what was decided, else what most raters say or Dawid and Skene's model.

    A single rater is believed. Pairs on which no grade wins are left out, and counted.
    """
    if method not in TRUTHS:
        raise unknown("truth", method, TRUTHS)
    pairs = people.frame.select(PAIR).unique().sort(PAIR).with_row_index("pair")
    votes = people.votes.join(pairs, on=PAIR, how="left", maintain_order="left")
    fitted = None
    items, grades = votes["pair"].cast(pl.Int64).to_numpy(), votes["grade"].to_numpy()
    if method == "majority" or votes["rater"].n_unique() < 2:
        known, found = majority(items, grades)
    else:
        raters = votes["rater"].rank("dense").cast(pl.Int64).to_numpy()
        fitted = dawid_skene(raters, items, grades)
        known, found = fitted.items, fitted.most_likely()
    told = pl.DataFrame(
        {"pair": known, "grade": found}, schema={"pair": pl.UInt32, "grade": pl.Float64}
    )
    decided = people.frame.filter("decided").unique(PAIR, keep="last", maintain_order=True)
    every = pairs.join(told, on="pair", how="left", maintain_order="left").join(
        decided.select(*PAIR, decision="grade", decided="decided"),
        on=PAIR,
        how="left",
        maintain_order="left",
    )
    return _settled(every, people, method, fitted)


def _settled(
    every: pl.DataFrame, people: People, method: Truth, fitted: DawidSkene | None
) -> OneGrade:
    """What became of each pair: a decision counts before votes, and may be that none can tell."""
    decided = pl.col("decided").fill_null(value=False)
    chosen = pl.when(decided).then("decision").otherwise(pl.col("grade").fill_nan(None))
    counts = every.select(
        ties=(~decided & pl.col("grade").is_nan().fill_null(value=False)).sum(),
        cannot_tell=pl.when(decided)
        .then(pl.col("decision").is_null())
        .otherwise(pl.col("grade").is_null())
        .sum(),
        decided=decided.sum(),
    ).row(0, named=True)
    graded = every.select(*PAIR, grade=chosen).drop_nulls("grade")
    if not graded.height:
        ties, unsure = counts["ties"], counts["cannot_tell"]
        raise InputError(
            f"leaves no pair with one grade: {ties:,} tied, {unsure:,} that nobody could tell;"
            " one more person may settle them",
            where=people.name,
        )
    source = people.sources[0] if len(people.sources) == 1 else Source(people.name)
    return OneGrade(Gold.from_frame(graded, source=source), method, **counts, fitted=fitted)


def _read(path: str | Path, format: str | None) -> tuple[str, People]:
    """What its nameless judgments are called, and the judgments; these have no rater yet."""
    if str(path) != "-" and Path(path).is_dir():
        gold = read_gold(path, format=format)
        return Path(path).name, _nameless(gold)
    file = open_input(path)
    form = detect_input(file, "gold") if format is None else format_named(format)
    if form.name == "labels":
        return file.stem, _by_rater(file)
    return file.stem, _nameless(form.reader("gold")(file, duplicates="agree"))


def _nameless(gold: Gold) -> People:
    named = People.of(gold)
    frame = named.frame.with_columns(rater=pl.lit(None, pl.String))
    return People(frame, named.sources, named.not_judged)


def _by_rater(file: Input) -> People:
    """The judgments of a label file; a rater judges a pair once."""
    rows: dict[tuple[str, str, str | None, bool], tuple[float | None, int]] = {}
    below = 0
    for label in read_lines(file):
        decided, grade = label.decided, label.grade
        if grade is not None and grade > HIGHEST_GRADE:
            raise InputError(out_of_range(grade), where=file.name, line=label.line)
        if grade is not None and grade < 0:
            below += 1
            continue
        key = (label.query_id, label.item_id, label.rater, decided)
        before, line = rows.get(key, (grade, label.line))
        if before is not None and grade is not None and before != grade and not decided:
            whose = "" if label.rater is None else f" by the same rater {label.rater!r}"
            raise InputError(
                f"query {label.query_id!r}, item {label.item_id!r} is judged {grade:g} here and"
                f" {before:g} in line {line}{whose}; keep one of the two",
                where=file.name,
                line=label.line,
            )
        # Who could not tell and then could, could.
        rows[key] = (before if grade is None and not decided else grade, label.line)
    if not any(grade is not None for grade, _ in rows.values()):
        raise no_grade(file.name, failed=len(rows), not_judged=below)
    table = [
        (query, item, rater, grade, decided)
        for (query, item, rater, decided), (grade, _) in rows.items()
    ]
    return People(pl.DataFrame(table, schema=_SCHEMA, orient="row"), (file.source,), below)


def _check_same(known: pl.DataFrame, part: pl.DataFrame, source: Source) -> None:
    """Refuse a rater who says two things of a pair in two files."""
    both = known.drop_nulls("grade").join(
        part.drop_nulls("grade"), on=_KEY, how="inner", suffix="_here"
    )
    torn = both.filter((pl.col("grade") != pl.col("grade_here")) & ~pl.col("decided")).sort(_KEY)
    if torn.height:
        row = torn.row(0, named=True)
        raise InputError(
            f"query {row['query_id']!r}, item {row['item_id']!r} is judged"
            f" {row['grade_here']:g} here and {row['grade']:g} in another file by the same rater"
            f" {row['rater']!r}; keep one of the two, or name the raters apart",
            where=source.name,
        )
