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
from karat.formats.files import Input, open_input
from karat.formats.json_records import JsonRecord, read_records
from karat.formats.labels import (
    HIGHEST_GRADE,
    Label,
    item_id_of,
    no_grades_error,
    out_of_range,
    read_label_lines,
)
from karat.formats.readers import read_gold
from karat.formats.registry import open_file
from karat.label.inputs import PAIR, File, GoldLike, gold_tables, refuse_spans
from karat.pages.formatting import figure, plural
from karat.pages.page import Section, table
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
from karat.stats.distributions import Values

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
    grades below 0: such a pair was pooled and not judged.
    """

    frame: pl.DataFrame
    failed: pl.DataFrame
    source: Source = IN_MEMORY
    not_judged: int = 0

    @property
    def raters(self) -> list[str]:
        """The raters' names."""
        return self.frame["rater"].unique().sort().to_list()


def read_labels(path: str | Path, *, rater: str | None = None) -> Labels:
    """Read a label file, all of it or one rater's part.

    A rater judges a pair once, and a decision on it replaces the same rater's vote; several
    raters may disagree. A label without a rater belongs to the only rater of the file, else to
    one who is named after it.
    """
    file = open_input(path)
    lines = list(read_label_lines(file))
    if not lines:
        raise InputError("holds no label; at least one line is expected", where=file.name)
    rater_names = {line.rater for line in lines if line.rater is not None}
    nameless = rater_names.pop() if len(rater_names) == 1 else file.stem
    lines = [line._replace(rater=line.rater or nameless) for line in lines]
    if rater is not None:
        names = ", ".join(sorted({repr(line.rater) for line in lines}))
        lines = [line for line in lines if line.rater == rater]
        if not lines:
            message = f"holds no label of {rater!r}; its raters are {names}"
            raise InputError(message, where=file.name)
    judgments: _Judgments = {}
    not_judged = _add_lines(judgments, lines, file.name)
    decided = pl.col("decided")
    frame = _table(judgments).drop_nulls("grade")
    frame = frame.filter(decided | ~decided.any().over(*PAIR, "rater"))
    failed = pl.DataFrame(
        [(line.query_id, line.item_id, line.error) for line in lines if line.grade is None],
        schema=dict.fromkeys((*PAIR, "error"), pl.String),
        orient="row",
    )
    return Labels(frame.select(*PAIR, "grade", "rater"), failed, file.source, not_judged)


# The grade of each pair, rater and kind of judgment (a vote or a decision), and where it stands.
_Judgments = dict[tuple[str, str, str, bool], tuple[float | None, str]]


def _add_lines(judgments: _Judgments, lines: Iterable[Label], where: str) -> int:
    """Add lines that name their raters; return how many grades are below 0, which are left out.

    Of decisions between raters the last counts. A null grade is "can't tell" or a failure; a
    grade replaces it. Two different grades of one rater are refused.
    """
    below = 0
    for line in lines:
        grade, number = line.grade, line.line or None
        if grade is not None and grade > HIGHEST_GRADE:
            raise InputError(out_of_range(grade), where=where, line=number)
        if grade is not None and grade < 0:
            below += 1
            continue
        place = where if number is None else f"{where}:{number}"
        key = (line.query_id, line.item_id, str(line.rater), line.decided)
        before, first_place = judgments.get(key, (None, place))
        if None not in (before, grade) and before != grade and not line.decided:
            pair = f"query {line.query_id!r}, item {line.item_id!r}"
            grades = f"is judged {grade:g} here and {before:g} in {first_place}"
            message = f"{pair} {grades} by the same rater {line.rater!r}; keep one of the two"
            raise InputError(message, where=where, line=number)
        judgments[key] = (before if grade is None and not line.decided else grade, place)
    return below


def _table(judgments: _Judgments) -> pl.DataFrame:
    rows = [(*key[:3], grade, key[3]) for key, (grade, _) in judgments.items()]
    return pl.DataFrame(rows, schema=JUDGMENTS, orient="row")


def open_judgments(path: str | Path, format: str | None = None) -> tuple[str, str, Input | Gold]:
    """Return the format of a file, its stem, and its gold, or the file if it has label lines."""
    if str(path) != "-" and Path(path).is_dir():
        return "beir", Path(path).name, read_gold(path, format=format)
    file, form = open_file(path, "gold", format)
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


def read_pool_records(path: str | Path) -> list[tuple[Pair, JsonRecord]]:
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


def _text(record: JsonRecord, name: str) -> str:
    value: Any = record.value.get(name)
    if isinstance(value, str):
        return value
    raise record.error(f'no {name}; a judge reads "query" and "text", as karat pool writes them')


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
        return _people([(Path(gold.source.name).stem if rater is None else rater, gold)])

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
    files = [open_judgments(path, format)[1:] for path in paths]
    stems = [stem for stem, _ in files]
    return _people(
        (stem if stems.count(stem) == 1 else f"{Path(path).resolve().parent.name}/{stem}", file)
        for path, (stem, file) in zip(paths, files, strict=True)
    )


def _people(files: Iterable[tuple[str, Input | Gold]]) -> People:
    """Return the judgments of files, each with the rater of judgments that name none."""
    judgments: _Judgments = {}
    sources, not_judged = [], 0
    for name, file in files:
        if isinstance(file, Gold):
            refuse_spans(file)
            rows = file.frame.select(*PAIR, "grade").iter_rows()
            lines = [Label(0, query, item, grade, None, name) for query, item, grade in rows]
        else:
            lines = [line._replace(rater=line.rater or name) for line in read_label_lines(file)]
        below = _add_lines(judgments, lines, file.source.name)
        graded = sum(line.grade is not None for line in lines) - below
        if not graded:
            failed = len(lines) - below
            raise no_grades_error(file.source.name, failed=failed, not_judged=below)
        sources.append(file.source)
        not_judged += below
    return People(_table(judgments).sort(_KEY), tuple(sources), not_judged)


def one_grade(people: People, method: str = "majority") -> tuple[Gold, dict[str, Any]]:
    """Return one grade per pair: the decision, else the majority or Dawid and Skene's model.

    A decision may be that nobody can tell. A single rater is believed. Pairs on which no grade
    wins are left out; how the grades came about, with the number of such pairs, is plain data.
    """
    if method not in TRUTHS:
        raise unknown("truth", method, TRUTHS)
    table, fitted = winning_grades(people.frame, method)
    grade = pl.col("grade")
    counts = table.select(
        ties=grade.is_nan().sum(),
        cannot_tell=grade.is_null().sum(),
        decided=pl.col("decided").sum(),
    ).row(0, named=True)
    graded = table.select(*PAIR, grade.fill_nan(None)).drop_nulls()
    names = ", ".join(source.name for source in people.sources)
    if not graded.height:
        open_pairs = f"{counts['ties']:,} tied, {counts['cannot_tell']:,} that nobody could judge"
        raise InputError(f"leaves no pair with one grade: {open_pairs}; add a rater", where=names)
    source = people.sources[0] if len(people.sources) == 1 else Source(names)
    origin: dict[str, Any] = {"method": method, "graded": graded.height, **counts}
    origin["iterations"] = fitted and fitted.iterations
    origin["converged"] = fitted and fitted.converged
    return Gold.from_frame(graded, source=source), origin


def winning_grades(judgments: pl.DataFrame, method: str) -> tuple[pl.DataFrame, DawidSkene | None]:
    """Return each pair of a table of judgments with its grade, and the model of the raters.

    The grade is NaN where none wins, and null where nobody could tell. The last decision on a
    pair holds whatever the method.
    """
    pairs = judgments.select(PAIR).unique().sort(PAIR).with_row_index("pair")
    votes = judgments.filter(~pl.col("decided")).drop_nulls("grade").join(pairs, on=PAIR)
    names, rater = np.unique(votes["rater"], return_inverse=True)
    items, grades = votes["pair"].cast(pl.Int64).to_numpy(), votes["grade"].to_numpy()
    fitted = None
    if method == "dawid-skene" and len(names) > 1:
        fitted = dawid_skene(rater, items, grades)
        item_numbers, winners = fitted.items, fitted.most_likely()
    else:
        item_numbers, winners = majority(items, grades)
    voted = pl.DataFrame(
        {"pair": item_numbers, "grade": winners}, schema={"pair": pl.UInt32, "grade": pl.Float64}
    )
    columns = [*PAIR, "grade", "decided"]
    by_vote = pairs.join(voted, on="pair", how="left").with_columns(decided=pl.lit(value=False))
    table = pl.concat([by_vote.select(columns), judgments.filter("decided").select(columns)])
    return table.unique(PAIR, keep="last", maintain_order=True).sort(PAIR), fitted


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
    """Return Cohen's kappas of two raters on the pairs that both judged."""
    both = first_rater.join(second_rater, on=PAIR, how="inner", suffix="_of_other")
    grades = (both[name].to_numpy() for name in ("grade", "grade_of_other"))
    return {"pairs": both.height, **kappas(*grades)}


def kappas(first: Values, second: Values) -> dict[str, float | None]:
    """Return Cohen's kappa of two raters' grades of the same pairs, by how differences weigh.

    >>> kappas(np.array([0.0, 1, 1, 0]), np.array([0.0, 1, 0, 0]))["none"]
    0.5
    """
    grades = np.unique(np.concatenate([first, second])).tolist()
    table = cross_table(first, second, grades)
    return {weights: kappa(table, weights=weights, grades=grades) for weights in _WEIGHTS}


_KAPPA_COLUMNS = {
    "raters": "raters",
    "pairs": "pairs",
    "kappa": "none",
    "linear": "linear",
    "quadratic": "quadratic",
}
_TRUTH_WORDS = {
    "majority": "the one that most of its raters gave",
    "dawid-skene": "the most likely one by Dawid and Skene's model of the raters' errors",
}


def people_section(agreement: Mapping[str, Any]) -> Section:
    """Return the section on how far people who judged the same pairs agree."""
    with_judge = agreement["with_judge"]
    rows = [{**pair, "raters": " and ".join(pair["raters"])} for pair in agreement["kappas"]]
    rows += [{**pair, "raters": f"{pair['rater']} and the judge"} for pair in with_judge["kappas"]]
    pairs = plural(with_judge["pairs"], "pair")
    return Section(
        f"People among themselves on {plural(agreement['pairs'], 'pair')} that several judged",
        table(rows, _KAPPA_COLUMNS) if rows else None,
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
    return " · ".join(f"{level} {figure(value)}" for level, value in part["alpha"].items())
