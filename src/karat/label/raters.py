"""Raters: what people say of pairs, one grade per pair from many, and how far they agree."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.data.columns import Source
from karat.data.tables import Gold
from karat.errors import InputError, UsageError, unknown
from karat.formats import read_gold
from karat.formats.files import Input, open_input
from karat.formats.labels import (
    HIGHEST_GRADE,
    check_highest_grade,
    no_grades_error,
    out_of_range,
    read_label_lines,
)
from karat.formats.registry import detect_input, format_named
from karat.label.inputs import PAIR, File, GoldLike, gold_table
from karat.pages.formatting import NOTHING, label, plural
from karat.pages.page import Grid, Section
from karat.stats.agreement import LEVELS, Weights, cross_table, kappa, krippendorff_alpha, majority
from karat.stats.dawid_skene import DawidSkene, dawid_skene

Truth = Literal["majority", "dawid-skene"]
TRUTHS: tuple[Truth, ...] = ("majority", "dawid-skene")
# A rater gives a pair one grade, and may decide on it too.
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
    """What people say, one row per judgment: ``query_id``, ``item_id``, ``rater`` and ``grade``.

    The grade is null where a rater cannot tell. A row that is ``decided`` is no vote but a
    decision between raters, and overrides their votes. ``not_judged`` counts grades below 0,
    which have no row: such a pair was pooled and not judged.
    """

    frame: pl.DataFrame
    sources: tuple[Source, ...] = ()
    not_judged: int = 0

    @classmethod
    def of(cls, gold: Gold, rater: str | None = None) -> People:
        """Return the judgments of one rater, named after the file unless ``rater`` is given."""
        if "start" in gold.frame.columns:
            raise InputError(
                "holds character spans, which judge no item; give judgments of items",
                where=gold.source.name,
            )
        name = Path(gold.source.name).stem if rater is None else rater
        check_highest_grade(gold.frame["grade"], gold.source.name)
        judged = gold.frame.filter(pl.col("grade") >= 0)
        if not judged.height and gold.frame.height:
            raise no_grades_error(gold.source.name, not_judged=gold.frame.height)
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
        """The grades of raters, without decisions and without "can't tell"."""
        return self.frame.filter(~pl.col("decided") & pl.col("grade").is_not_null())

    @property
    def raters(self) -> list[str]:
        """Who judged, by name."""
        own = self.frame.filter(~pl.col("decided"))
        names: list[str] = own["rater"].unique().sort().to_list()
        return names

    def of_queries(self, only: Collection[str] | None) -> People:
        """Return the judgments of some queries."""
        if only is None:
            return self
        wanted = pl.Series("query_id", sorted(only), dtype=pl.String).implode()
        own = self.frame.filter(pl.col("query_id").is_in(wanted))
        return People(own, self.sources, self.not_judged)


@dataclass(frozen=True, eq=False)
class OneGrade:
    """One grade per pair, and what is left out: ``ties``, and pairs that nobody could judge."""

    gold: Gold
    method: Truth
    ties: int
    cannot_tell: int
    decided: int
    fitted: DawidSkene | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return how the grades came about."""
        return {
            "method": self.method,
            "graded": self.gold.frame.height,
            "ties": self.ties,
            "cannot_tell": self.cannot_tell,
            "decided": self.decided,
            "iterations": None if self.fitted is None else self.fitted.iterations,
            "converged": None if self.fitted is None else self.fitted.converged,
        }


def people_of(human: People | GoldLike | Sequence[File], *, format: str | None = None) -> People:
    """Return people's judgments, given as a table, a mapping, a file or several files."""
    if isinstance(human, People):
        return human
    if isinstance(human, Gold | Mapping):
        return People.of(gold_table(human))
    files = [human] if isinstance(human, str | os.PathLike) else human
    return read_people([os.fspath(file) for file in files], format=format)


def read_people(paths: Sequence[str | Path], *, format: str | None = None) -> People:
    """Read people's judgments from one file or several, each of one rater or several.

    A label file may name its raters. A judgment without a name belongs to its file.
    """
    if not paths:
        raise UsageError("no judgments of people; name at least one file")
    files = [_read(path, format) for path in paths]
    stems = [name for name, _ in files]
    parts: list[pl.DataFrame] = []
    sources: list[Source] = []
    for (stem, people), path in zip(files, paths, strict=True):
        name = stem if stems.count(stem) == 1 else f"{Path(path).resolve().parent.name}/{stem}"
        parts.append(people.frame.with_columns(pl.col("rater").fill_null(name)))
        sources.extend(people.sources)
    frame = parts[0]
    for part, source in zip(parts[1:], sources[1:], strict=True):
        _check_same(frame, part, source)
        frame = pl.concat([frame, part])
    # A grade in one file replaces a "can't tell" in another.
    graded = pl.col("grade").is_not_null()
    frame = frame.filter(graded | ~graded.any().over(_KEY))
    frame = frame.unique(_KEY, keep="last", maintain_order=True)
    below = sum(people.not_judged for _, people in files)
    return People(frame.sort(_KEY), tuple(sources), below)


def one_grade(people: People, method: Truth = "majority") -> OneGrade:
    """Return one grade per pair: the decision, else the majority or Dawid and Skene's model.

    A single rater is believed. Pairs on which no grade wins are left out and counted.
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
    voted = pl.DataFrame(
        {"pair": known, "grade": found}, schema={"pair": pl.UInt32, "grade": pl.Float64}
    )
    decided = people.frame.filter("decided").unique(PAIR, keep="last", maintain_order=True)
    every = pairs.join(voted, on="pair", how="left", maintain_order="left").join(
        decided.select(*PAIR, decision="grade", decided="decided"),
        on=PAIR,
        how="left",
        maintain_order="left",
    )
    return _settled(every, people, method, fitted)


def _settled(
    every: pl.DataFrame, people: People, method: Truth, fitted: DawidSkene | None
) -> OneGrade:
    """Return the grade of each pair; a decision overrides votes, and may be "can't tell"."""
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
            f"leaves no pair with one grade: {ties:,} tied, {unsure:,} that nobody could judge;"
            " one more rater may settle them",
            where=people.name,
        )
    source = people.sources[0] if len(people.sources) == 1 else Source(people.name)
    return OneGrade(Gold.from_frame(graded, source=source), method, **counts, fitted=fitted)


def _read(path: str | Path, format: str | None) -> tuple[str, People]:
    """Return the name for judgments that name no rater, and the judgments."""
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
    """Return the judgments of a label file; a rater judges a pair once."""
    rows: dict[tuple[str, str, str | None, bool], tuple[float | None, int]] = {}
    below = 0
    for line in read_label_lines(file):
        decided, grade = line.decided, line.grade
        if grade is not None and grade > HIGHEST_GRADE:
            raise InputError(out_of_range(grade), where=file.name, line=line.line)
        if grade is not None and grade < 0:
            below += 1
            continue
        key = (line.query_id, line.item_id, line.rater, decided)
        before, first_line = rows.get(key, (grade, line.line))
        if before is not None and grade is not None and before != grade and not decided:
            whose = "" if line.rater is None else f" by the same rater {line.rater!r}"
            raise InputError(
                f"query {line.query_id!r}, item {line.item_id!r} is judged {grade:g} here and"
                f" {before:g} in line {first_line}{whose}; keep one of the two",
                where=file.name,
                line=line.line,
            )
        # A grade replaces an earlier "can't tell".
        rows[key] = (before if grade is None and not decided else grade, line.line)
    if not any(grade is not None for grade, _ in rows.values()):
        raise no_grades_error(file.name, failed=len(rows), not_judged=below)
    table = [
        (query, item, rater, grade, decided)
        for (query, item, rater, decided), (grade, _) in rows.items()
    ]
    return People(pl.DataFrame(table, schema=_SCHEMA, orient="row"), (file.source,), below)


def _check_same(known: pl.DataFrame, part: pl.DataFrame, source: Source) -> None:
    """Refuse a rater who grades a pair differently in two files."""
    both = known.drop_nulls("grade").join(
        part.drop_nulls("grade"), on=_KEY, how="inner", suffix="_here"
    )
    torn = both.filter((pl.col("grade") != pl.col("grade_here")) & ~pl.col("decided")).sort(_KEY)
    if torn.height:
        row = torn.row(0, named=True)
        raise InputError(
            f"query {row['query_id']!r}, item {row['item_id']!r} is judged"
            f" {row['grade_here']:g} here and {row['grade']:g} in another file by the same rater"
            f" {row['rater']!r}; keep one of the two, or give the raters different names",
            where=source.name,
        )


_WEIGHTS: tuple[Weights, ...] = ("none", "linear", "quadratic")
# The table of every two raters is unreadable with more raters than this.
MOST_RATERS = 12


def raters_agreement(people: People, judge: pl.DataFrame) -> dict[str, Any]:
    """Return how far people agree with each other, and each with the judge, as plain data.

    ``judge`` has one row per pair: ``query_id``, ``item_id`` and ``judge``, its grade.
    """
    votes = people.votes
    grades = votes.select(*PAIR, "rater", "grade")
    judged = judge.drop_nulls("judge").select(
        *PAIR, rater=pl.lit(None, pl.String), grade=pl.col("judge").cast(pl.Float64)
    )
    shared = judged.join(grades, on=PAIR, how="semi", maintain_order="left")
    by_rater = {name: grades.filter(pl.col("rater") == name) for name in people.raters}
    few = len(by_rater) <= MOST_RATERS
    unsure = people.frame.filter(~pl.col("decided") & pl.col("grade").is_null())
    return {
        "raters": [
            {
                "name": name,
                "judgments": part.height,
                "cannot_tell": unsure.filter(pl.col("rater") == name).height,
            }
            for name, part in by_rater.items()
        ],
        "not_judged": people.not_judged,
        **_alphas(grades),
        "kappas": [
            {"raters": [first, second], **_kappas(by_rater[first], by_rater[second])}
            for first, second in combinations(by_rater, 2)
            if few
        ],
        "with_judge": {
            **_alphas(pl.concat([grades, shared])),
            "kappas": [
                {"rater": name, **_kappas(part, judged)} for name, part in by_rater.items() if few
            ],
        },
    }


def _alphas(votes: pl.DataFrame) -> dict[str, Any]:
    """Return Krippendorff's alpha at each level, over the pairs that several raters judged."""
    shared = votes.filter(pl.len().over(PAIR) > 1)
    pairs = shared.select(pl.struct(PAIR).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    grades = shared["grade"].to_numpy()
    return {
        "pairs": len(np.unique(pairs)),
        "alpha": {level: krippendorff_alpha(pairs, grades, level=level) for level in LEVELS},
    }


def _kappas(first_rater: pl.DataFrame, second_rater: pl.DataFrame) -> dict[str, Any]:
    """Return Cohen's kappa of two raters on the pairs that both judged."""
    both = first_rater.join(second_rater, on=PAIR, how="inner", suffix="_of_other").sort(PAIR)
    first, second = both["grade"].to_numpy(), both["grade_of_other"].to_numpy()
    grades = np.unique(np.concatenate([first, second])).tolist()
    table = cross_table(first, second, grades)
    agreement: dict[str, Any] = {"pairs": both.height}
    for weights in _WEIGHTS:
        agreement[weights] = kappa(table, weights=weights, grades=grades)
    return agreement


_KAPPA_NAMES = {"none": "kappa", "linear": "linear", "quadratic": "quadratic"}
_TRUTH_WORDS = {
    "majority": "the one that most of its raters gave",
    "dawid-skene": "the most likely one by Dawid and Skene's model of the raters' errors",
}


def people_section(agreement: Mapping[str, Any]) -> Section:
    """Return the section on how far people who judged the same pairs agree."""
    pairs = plural(agreement["pairs"], "pair")
    return Section(
        f"People among themselves on {pairs} that several judged",
        _grid(agreement) if agreement["with_judge"]["kappas"] else None,
        [*_alpha_lines(agreement), *truth_lines(agreement)],
    )


def truth_lines(agreement: Mapping[str, Any]) -> Iterator[str]:
    """Yield how one grade per pair came about, and which pairs have none."""
    truth = agreement["truth"]
    parts = [f"{plural(truth['decided'], 'pair')} decided"] if truth["decided"] else []
    if truth["ties"]:
        parts.append(f"{plural(truth['ties'], 'tie')} left out")
    if truth["cannot_tell"]:
        pairs = plural(truth["cannot_tell"], "pair")
        parts.append(f"{pairs} that nobody could judge, left out")
    if agreement["not_judged"]:
        parts.append(f"{plural(agreement['not_judged'], 'label')} below 0: pooled, not judged")
    if len(agreement["raters"]) > 1:
        parts.insert(0, f"the grade of a pair is {_TRUTH_WORDS[truth['method']]}")
    if parts:
        yield " · ".join(parts)
    if truth["converged"] is False:
        yield f"the model had not converged after {truth['iterations']:,} iterations"


def _grid(agreement: Mapping[str, Any]) -> Grid:
    grid = [["raters", "pairs", *_KAPPA_NAMES.values()]]
    for pair in agreement["kappas"]:
        grid.append([" and ".join(map(label, pair["raters"])), *_kappa_cells(pair)])
    for pair in agreement["with_judge"]["kappas"]:
        grid.append([f"{label(pair['rater'])} and the judge", *_kappa_cells(pair)])
    return grid


def _kappa_cells(pair: Mapping[str, Any]) -> list[str]:
    return [f"{pair['pairs']:,}", *(_figure(pair[name]) for name in _KAPPA_NAMES)]


def _alpha_lines(agreement: Mapping[str, Any]) -> Iterator[str]:
    yield f"Krippendorff's alpha of people: {_alpha_values(agreement)}"
    both = agreement["with_judge"]
    pairs = plural(both["pairs"], "pair")
    yield f"with the judge as one more rater, on {pairs}: {_alpha_values(both)}"


def _alpha_values(part: Mapping[str, Any]) -> str:
    return " · ".join(f"{level} {_figure(value)}" for level, value in part["alpha"].items())


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"
