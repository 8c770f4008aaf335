"""Labels: the grades of raters, people or models, one grade per pair from many, and agreement.

Also pool files: the pairs that are to be judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from karat.data.columns import IN_MEMORY, Source
from karat.data.tables import Gold
from karat.errors import InputError, UsageError, unknown
from karat.formats.files import Input, open_input, refuse_binary
from karat.formats.json_records import Record, read_records
from karat.formats.labels import (
    HIGHEST_GRADE,
    Label,
    check_highest_grade,
    item_id_of,
    no_grades_error,
    out_of_range,
    read_label_lines,
)
from karat.formats.readers import read_gold
from karat.formats.registry import detect_input, format_named
from karat.label.inputs import PAIR, File, GoldLike, gold_tables, judged_pairs
from karat.pages.formatting import NOTHING, label, plural
from karat.pages.page import Grid, Section
from karat.stats.agreement import (
    LEVELS,
    DawidSkene,
    Weights,
    cross_table,
    dawid_skene,
    kappa,
    krippendorff_alpha,
    majority,
)
from karat.stats.distributions import Ints, Values

Truth = Literal["majority", "dawid-skene"]
TRUTHS: tuple[Truth, ...] = ("majority", "dawid-skene")
# A rater gives a pair one grade, and may decide on it too.
_KEY = [*PAIR, "rater", "decided"]
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
        check_highest_grade(gold.frame["grade"], gold.source.name)
        judged = judged_pairs(gold)
        below = gold.frame.height - judged.height
        if below and not judged.height:
            raise no_grades_error(gold.source.name, not_judged=below)
        frame = judged.select(
            *PAIR,
            rater=pl.lit(Path(gold.source.name).stem if rater is None else rater, pl.String),
            grade=pl.col("grade").cast(pl.Float64),
            decided=pl.lit(value=False),
        )
        return cls(frame.sort(*PAIR, "rater"), (gold.source,), below)

    @property
    def votes(self) -> pl.DataFrame:
        """The grades of raters, without decisions and without "can't tell"."""
        return self.frame.filter(~pl.col("decided") & pl.col("grade").is_not_null())

    @property
    def raters(self) -> list[str]:
        """Who judged, by name."""
        voting = self.frame.filter(~pl.col("decided"))
        names: list[str] = voting["rater"].unique().sort().to_list()
        return names

    def of_queries(self, query_ids: Iterable[str]) -> People:
        """Return the judgments of some queries."""
        ids = pl.Series("query_id", sorted(query_ids), dtype=pl.String).implode()
        frame = self.frame.filter(pl.col("query_id").is_in(ids))
        return People(frame, self.sources, self.not_judged)


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
        return People.of(gold_tables(human)[0])
    files = [human] if isinstance(human, str | os.PathLike) else human
    return read_people([os.fspath(file) for file in files], format=format)


def read_people(paths: Sequence[str | Path], *, format: str | None = None) -> People:
    """Read people's judgments from one file or several, each of one rater or several.

    A label file may name its raters. A judgment without a name belongs to its file.
    """
    if not paths:
        raise UsageError("no judgments of people; name at least one file")
    files = [_read(path, format) for path in paths]
    stems = [stem for stem, _ in files]
    frame = pl.DataFrame(schema=JUDGMENTS)
    for (stem, people), path in zip(files, paths, strict=True):
        name = stem if stems.count(stem) == 1 else f"{Path(path).resolve().parent.name}/{stem}"
        named = people.frame.with_columns(pl.col("rater").fill_null(name))
        _check_same(frame, named, people.sources[0])
        frame = pl.concat([frame, named])
    # A grade in one file replaces a "can't tell" in another.
    graded = pl.col("grade").is_not_null()
    frame = frame.filter(graded | ~graded.any().over(_KEY))
    frame = frame.unique(_KEY, keep="last", maintain_order=True)
    sources = tuple(source for _, people in files for source in people.sources)
    return People(frame.sort(_KEY), sources, sum(people.not_judged for _, people in files))


def _read(path: str | Path, format: str | None) -> tuple[str, People]:
    """Return the name for judgments that name no rater, and the judgments."""
    _, stem, file = open_judgments(path, format)
    if isinstance(file, Gold):
        people = People.of(file)
        frame = people.frame.with_columns(rater=pl.lit(None, pl.String))
        return stem, People(frame, people.sources, people.not_judged)
    frame, below = judgments_in(list(read_label_lines(file)), file)
    if not frame["grade"].count():
        raise no_grades_error(file.name, failed=frame.height, not_judged=below)
    return stem, People(frame, (file.source,), below)


def _check_same(known: pl.DataFrame, part: pl.DataFrame, source: Source) -> None:
    """Refuse a rater who grades a pair differently in two files."""
    graded = known.drop_nulls("grade")
    both = graded.join(part.drop_nulls("grade"), on=_KEY, how="inner", suffix="_here")
    differing = both.filter((pl.col("grade") != pl.col("grade_here")) & ~pl.col("decided"))
    if differing.height:
        row = differing.sort(_KEY).row(0, named=True)
        raise InputError(
            f"query {row['query_id']!r}, item {row['item_id']!r} is judged"
            f" {row['grade_here']:g} here and {row['grade']:g} in another file by the same rater"
            f" {row['rater']!r}; keep one of the two, or give the raters different names",
            where=source.name,
        )


def one_grade(people: People, method: Truth = "majority") -> OneGrade:
    """Return one grade per pair: the decision, else the majority or Dawid and Skene's model.

    A decision may be that nobody can tell. A single rater is believed. Pairs on which no grade
    wins are left out and counted.
    """
    if method not in TRUTHS:
        raise unknown("truth", method, TRUTHS)
    pairs = people.frame.select(PAIR).unique().sort(PAIR).with_row_index("pair")
    votes = people.votes.join(pairs, on=PAIR, how="left", maintain_order="left")
    items = votes["pair"].cast(pl.Int64).to_numpy()
    known, winners, fitted = winning_grades(votes["rater"], items, votes["grade"], method)
    schema = {"pair": pl.UInt32, "winner": pl.Float64}
    voted = pl.DataFrame({"pair": known, "winner": winners}, schema=schema)
    decisions = people.frame.filter("decided").unique(PAIR, keep="last", maintain_order=True)
    table = (
        pairs.join(voted, on="pair", how="left", maintain_order="left")
        .join(
            decisions.select(*PAIR, "decided", decision="grade"),
            on=PAIR,
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col("decided").fill_null(value=False))
    )
    decided, winner = pl.col("decided"), pl.col("winner")
    counts = table.select(
        ties=(~decided & winner.is_nan().fill_null(value=False)).sum(),
        cannot_tell=pl.when(decided).then("decision").otherwise("winner").is_null().sum(),
        decided=decided.sum(),
    ).row(0, named=True)
    grade = pl.when(decided).then("decision").otherwise(winner.fill_nan(None))
    graded = table.select(*PAIR, grade=grade).drop_nulls("grade")
    names = ", ".join(source.name for source in people.sources)
    if not graded.height:
        raise InputError(
            f"leaves no pair with one grade: {counts['ties']:,} tied, {counts['cannot_tell']:,}"
            " that nobody could judge; one more rater may settle them",
            where=names,
        )
    source = people.sources[0] if len(people.sources) == 1 else Source(names)
    return OneGrade(Gold.from_frame(graded, source=source), method, **counts, fitted=fitted)


def winning_grades(
    raters: Sequence[str] | pl.Series, items: Ints, grades: Any, method: str
) -> tuple[Ints, Values, DawidSkene | None]:
    """Return each judged item once, the grade that wins there, and the model of the raters.

    NaN where no grade wins. A single rater is believed.
    """
    names, rater = np.unique(raters, return_inverse=True)
    values = np.asarray(grades, dtype=np.float64)
    if method == "dawid-skene" and len(names) > 1:
        fitted = dawid_skene(rater, items, values)
        return fitted.items, fitted.most_likely(), fitted
    return *majority(items, values), None


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
    with_judge = agreement["with_judge"]
    grid: Grid = [["raters", "pairs", *_KAPPA_NAMES.values()]]
    rows = [(" and ".join(map(label, pair["raters"])), pair) for pair in agreement["kappas"]]
    rows += [(f"{label(pair['rater'])} and the judge", pair) for pair in with_judge["kappas"]]
    for name, pair in rows:
        grid.append([name, f"{pair['pairs']:,}", *(_figure(pair[key]) for key in _KAPPA_NAMES)])
    pairs = plural(with_judge["pairs"], "pair")
    return Section(
        f"People among themselves on {plural(agreement['pairs'], 'pair')} that several judged",
        grid if with_judge["kappas"] else None,
        [
            f"Krippendorff's alpha of people: {_alpha_values(agreement)}",
            f"with the judge as one more rater, on {pairs}: {_alpha_values(with_judge)}",
            *truth_lines(agreement),
        ],
    )


def truth_lines(agreement: Mapping[str, Any]) -> Iterator[str]:
    """Yield how one grade per pair came about, and which pairs have none."""
    truth = agreement["truth"]
    counts = {
        "decided by hand": truth["decided"],
        "tied, left out": truth["ties"],
        "that nobody could judge, left out": truth["cannot_tell"],
        "below 0, pooled and not judged": agreement["not_judged"],
    }
    parts = [f"{plural(count, 'pair')} {words}" for words, count in counts.items() if count]
    if len(agreement["raters"]) > 1:
        parts.insert(0, f"the grade of a pair is {_TRUTH_WORDS[truth['method']]}")
    if parts:
        yield " · ".join(parts)
    if truth["converged"] is False:
        yield f"the model had not converged after {truth['iterations']:,} iterations"


def _alpha_values(part: Mapping[str, Any]) -> str:
    return " · ".join(f"{level} {_figure(value)}" for level, value in part["alpha"].items())


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"
