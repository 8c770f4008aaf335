"""Calibrate: how far a judge can be trusted, and what its precision would be without its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Queries
from karat.errors import InputError, UsageError, unknown
from karat.evaluation.segments import By, check_by, segments_by
from karat.label.corrected import ONLY_SHARES, Estimate, cells_of, estimate, kinds_of, units_of
from karat.label.inputs import (
    File,
    GoldLike,
    QueriesLike,
    RunLike,
    Settings,
    conventions_for,
    gold_tables,
    open_run,
    queries_table,
    refuse_two_pipes,
)
from karat.label.labels import Labels, read_labels
from karat.label.pool import all_query_ids, gap_counts, top_hits
from karat.label.raters import (
    TRUTHS,
    OneGrade,
    People,
    one_grade,
    people_of,
    people_section,
    raters_agreement,
    truth_lines,
)
from karat.label.side_by_side import RunTop, SideBySide, side_by_side
from karat.measure.conventions import Conventions
from karat.pages.formatting import NOTHING, PART, figure, interval, label, percent, plural, utf8
from karat.pages.page import Grid, Page, Section
from karat.pages.result import AnalysisResult, Result
from karat.stats.agreement import cross_table, kappa
from karat.stats.calibration import METHODS, Confusion, Counted, Interval, Method
from karat.stats.distributions import wilson

# With fewer labels of a class than this, its rate is hardly known.
FEW = 30
# A table of more different grades than this is unreadable.
_MOST_GRADES = 50
# Above this share of draws without a usable judge, the others say too little.
_MANY_SKIPPED = 0.05
# The settings that each interval depends on.
_DEPENDS_ON = {"cluster": ["seed", "boot", "unit"], "beta": ["seed"], "ppi": ["unit"]}
_SHOWN = ("profile", "order", "ties", "repeats", "ci", "boot", "seed")


def calibrate(
    judged: Labels | File,
    human: People | GoldLike | Sequence[File],
    *,
    rater: str | None = None,
    truth: str = "majority",
    run: RunLike | None = None,
    k: int | None = None,
    gold: GoldLike | None = None,
    queries: QueriesLike | None = None,
    by: Sequence[str] = (),
    interval: str = "cluster",
    profile: str | Conventions = "karat",
    settings: Settings | None = None,
    human_format: str | None = None,
    run_format: str | None = None,
    gold_format: str | None = None,
    strict: bool = False,
) -> Calibration:
    """Compare a judge's labels with people's, and correct its precision for its errors.

    Several people make one grade per pair by ``truth``; one person alone is believed. ``rater``
    picks one judge of a file with several. The corrected share is that of everything judged, or of
    the top ``k`` of a ``run`` (5); there, ``gold`` counts before the judge does. An item is
    relevant from the grade ``rel`` of the settings on. ``queries`` decides which queries count and
    which belong to one conversation; ``by`` names columns of theirs to report separately.
    """
    _check_files(judged, human, run, gold, queries)
    of_run = {
        "-k": k,
        "--gold": gold,
        "--run-format": run_format,
        "--gold-format": gold_format,
        "--strict": strict,
    }
    for name, value in of_run.items():
        if run is None and value:
            raise UsageError(f"{name} is for the top of a run; name one with --run")
    if interval not in METHODS:
        raise unknown("interval", interval, METHODS)
    if truth not in TRUTHS:
        raise unknown("truth", truth, TRUTHS)
    method, way = interval, truth
    allowed = ["rel", "ci", *_DEPENDS_ON[interval]]
    allowed += [] if run is None else ["order", "ties", "repeats"]
    conventions = conventions_for(profile, settings, allowed, "this calibration")
    columns = [By.parse(text) for text in by]
    labels = judged if isinstance(judged, Labels) else read_labels(os.fspath(judged), rater=rater)
    people = people_of(human, format=human_format)
    (known,) = gold_tables(gold, format=gold_format) or (None,)
    asked = queries_table(queries, gold, gold_format=gold_format)
    check_by(asked, columns)
    top = None
    if run is not None:
        table = open_run(run, format=run_format, strict=strict)
        ids = all_query_ids([table], gold=[] if known is None else [known], queries=asked)
        hits = top_hits(table, ids, depth=k or 5, conventions=conventions)
        top = RunTop(utf8(table.name), hits, k or 5, known)
    only = None if asked is None else asked.frame["query_id"].to_list()
    settled = one_grade(people, way)
    pairs = side_by_side(labels, settled.gold, top=top, only=only)
    groups = _groups(asked, conventions)

    def agreement_on(part: SideBySide) -> JudgeAgreement:
        return _agreement(part, conventions, method, groups, top)

    overall = agreement_on(pairs)
    _check_common(overall, labels, top, asked)
    segments: dict[str, dict[str, JudgeAgreement]] = {}
    for column in columns:
        query_ids = pl.Series("query_id", only)
        parts = {
            segment.name: pairs.of(query_ids.filter(segment.mask).to_list())
            for segment in segments_by(query_ids, asked, column)
        }
        segments[str(column)] = {
            name: agreement_on(part) for name, part in parts.items() if part.frame.height
        }
    shown = {name: getattr(conventions, name) for name in _SHOWN}
    return Calibration(
        overall,
        method,
        conventions.rel,
        settled,
        raters_agreement(people.of_queries(only), pairs.frame),
        top,
        tuple(labels.raters),
        labels.not_judged,
        segments,
        conventions={**shown, "unit": "group" if groups else "query"},
        inputs={
            "judged": labels.source,
            "human": people.sources,
            "run": None if top is None else top.hits.source,
            "gold": None if known is None else known.source,
            "queries": None if asked is None else asked.source,
        },
    )


def _check_files(judged: Any, human: Any, *others: Any) -> None:
    """Refuse a judge that is compared with itself, and people who are named twice."""
    people = list(human) if isinstance(human, list | tuple) else [human]
    refuse_two_pipes(judged, *people, *others)
    files = [os.path.realpath(name) for name in people if isinstance(name, str) and name != "-"]
    if isinstance(judged, str) and judged != "-" and os.path.realpath(judged) in files:
        raise UsageError(
            "JUDGED and --human are the same file; a judge is not calibrated on itself"
        )
    twice = next((name for name in files if files.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--human {Path(twice).name} is named twice; name each file once")


def _check_common(
    agreement: JudgeAgreement, judged: Labels, top: RunTop | None, queries: Queries | None
) -> None:
    if queries is not None and not agreement.pairs["both"]:
        raise InputError(
            f"no pair that judge and people share is of a query in {queries.source.name}",
            where=judged.source.name,
        )
    if top is not None and not agreement.counted.judged:
        more = ", beyond what the gold judges" if agreement.counted.known else ""
        raise InputError(
            f"holds no label of the top {top.k} of {top.hits.source.name}{more}; pool that run"
            " and judge it",
            where=judged.source.name,
        )


@dataclass(frozen=True, eq=False)
class JudgeAgreement:
    """A judge on some pairs: its agreement with people, and the share that is corrected.

    ``table`` has a row for each grade that people gave and a column for each of the judge's.
    ``estimate`` is the corrected share. ``unjudged`` counts the pairs of the share that nobody
    judged.
    """

    pairs: Mapping[str, int]
    grades: tuple[float, ...]
    table: NDArray[np.int64]
    judge: Confusion
    counted: Counted
    unjudged: int
    queries: int
    estimate: Estimate
    confidence: float

    @property
    def value(self) -> float | None:
        """The corrected share; None where there is none."""
        return self.estimate.value

    @property
    def interval(self) -> Interval | None:
        """Its interval by draws or resamples; None where there is none of that kind."""
        return self.estimate.interval

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        judge, counted = self.judge, self.counted
        binary = np.array([[judge.tn, judge.fp], [judge.fn, judge.tp]])
        return {
            "pairs": dict(self.pairs),
            "grades": [int(grade) if grade.is_integer() else grade for grade in self.grades],
            "table": self.table.tolist(),
            "relevant": {"tp": judge.tp, "fn": judge.fn, "tn": judge.tn, "fp": judge.fp},
            "sensitivity": self._rate(judge.tp, judge.relevant),
            "specificity": self._rate(judge.tn, judge.others),
            "kappa": {
                **{
                    weights: kappa(self.table, weights=weights, grades=self.grades)
                    for weights in ("none", "linear", "quadratic")
                },
                "relevant": kappa(binary),
            },
            "share": {
                "value": counted.raw,
                "judged": counted.judged,
                "judged_relevant": counted.judged_relevant,
                "known": counted.known,
                "known_relevant": counted.known_relevant,
                "unjudged": self.unjudged,
                "queries": self.queries,
            },
            "corrected": {**self.estimate.to_dict(), "only": ONLY_SHARES},
            "prediction_powered": self.estimate.powered_dict(),
        }

    def _rate(self, correct: int, n: int) -> dict[str, Any]:
        ends = list(wilson(correct / n, n, confidence=self.confidence)) if n else None
        return {"value": correct / n if n else None, "ci": ends, "n": n, "few": n < FEW}


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Result):
    """A judge compared with people, over all pairs and segment by segment.

    ``agreement`` is how far people agree with each other, and ``people`` how their one grade per
    pair came about. ``not_judged`` counts the judge's labels below 0.
    """

    overall: JudgeAgreement
    method: Method
    rel: float
    people: OneGrade
    agreement: Mapping[str, Any]
    top: RunTop | None = None
    raters: tuple[str, ...] = ()
    not_judged: int = 0
    segments: Mapping[str, Mapping[str, JudgeAgreement]] = field(default_factory=dict)
    conventions: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unmeasured(self) -> str | None:
        """Why there is no corrected number; None if there is one."""
        return self.overall.estimate.because

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as plain data."""
        return self._result().to_dict()

    def to_frame(self) -> pl.DataFrame:
        """Return one row for all pairs and one per segment, with the rates and shares."""
        parts = {("", ""): self.overall}
        for by, segments in self.segments.items():
            parts |= {(by, value): part for value, part in segments.items()}
        return pl.DataFrame(
            [
                {
                    "by": by,
                    "segment": value,
                    "pairs": part.pairs["both"],
                    "sensitivity": part.judge.sensitivity,
                    "specificity": part.judge.specificity,
                    "uncorrected": part.counted.raw,
                    "corrected": part.value,
                    "low": part.estimate.ci and part.estimate.ci[0],
                    "high": part.estimate.ci and part.estimate.ci[1],
                }
                for (by, value), part in parts.items()
            ],
            infer_schema_length=None,
        )

    def page(self) -> Page:
        """Return the page: the corrected share first, then the judge beside people."""
        return self._result().page()

    def _result(self) -> AnalysisResult:
        body = {
            "rel": self.rel,
            "system": None if self.top is None else self.top.name,
            "k": None if self.top is None else self.top.k,
            "interval": self.method,
            "raters": list(self.raters),
            **self.overall.to_dict(),
            "not_judged": self.not_judged,
            "raters_agreement": {**self.agreement, "truth": self.people.to_dict()},
            "run": None if self.top is None else self.top.to_dict(),
            "segments": {
                by: {value: part.to_dict() for value, part in parts.items()}
                for by, parts in self.segments.items()
            },
        }
        return AnalysisResult(body, self.conventions, _calibration_page, self.inputs)


def _agreement(
    pairs: SideBySide,
    conventions: Conventions,
    method: Method,
    groups: Mapping[str, str],
    top: RunTop | None,
) -> JudgeAgreement:
    rows = pairs.frame.select("query_id", "judge", "human", **kinds_of(conventions.rel))
    cells = cells_of(rows, units_of(rows["query_id"].to_list(), groups))
    both = rows.drop_nulls(("judge", "human"))
    grades = tuple(sorted({*both["human"].to_list(), *both["judge"].to_list()}))
    if len(grades) > _MOST_GRADES:
        raise UsageError(
            f"people and the judge gave {len(grades):,} different grades; a judge is calibrated"
            f" on at most {_MOST_GRADES}"
        )
    where = "here" if top is None else f"in the top {top.k}"
    return JudgeAgreement(
        pairs=pairs.counts(),
        grades=grades,
        table=cross_table(both["human"].to_numpy(), both["judge"].to_numpy(), grades),
        judge=cells.judge,
        counted=cells.counted,
        unjudged=int(rows["unjudged"].sum()),
        queries=rows.filter(pl.col("judged") | pl.col("known"))["query_id"].n_unique(),
        estimate=estimate(cells, method, conventions, where),
        confidence=conventions.ci,
    )


def _groups(queries: Queries | None, conventions: Conventions) -> dict[str, str]:
    """Return the conversation of each query that belongs to one."""
    groups = {}
    if queries is not None and "group" in queries.frame.columns:
        rows = queries.frame.select("query_id", "group").iter_rows()
        groups = {query_id: f"group {group}" for query_id, group in rows if group is not None}
    if conventions.unit == "group" and not groups:
        raise UsageError("unit=group needs queries with a column group: the conversation of each")
    return {} if conventions.unit == "query" else groups


def _calibration_page(results: Mapping[str, Any]) -> Page:
    grades: Grid = [["people", *(f"judge {grade:g}" for grade in results["grades"])]]
    for grade, row in zip(results["grades"], results["table"], strict=True):
        grades.append([f"{grade:g}", *(f"{count:,}" for count in row)])
    rates: Grid = [["what", "rate", "n"]]
    for name in ("sensitivity", "specificity"):
        rate = results[name]
        rates.append([name, _measured(rate), f"{rate['n']:,}{' few' if rate['few'] else ''}"])
    sections = [
        Section(
            f"The judge and people on {plural(results['pairs']['both'], 'pair')}",
            grades,
            list(_pair_lines(results)),
        ),
        Section(
            f"Relevant from grade {results['rel']:g} on",
            rates,
            [_kappa_line(results), *_few_lines(results)],
        ),
    ]
    if len(results["raters_agreement"]["raters"]) > 1:
        sections.append(people_section(results["raters_agreement"]))
    for by, segments in results["segments"].items():
        sections.append(Section(f"By {label(by)}", _segments_grid(by, segments)))
    only = f"the correction is for {results['corrected']['only']}"
    notes = [*_share_lines(results), only, *_interval_lines(results)]
    return Page("How far the judge can be trusted", [_headline(results)], sections, notes)


def _headline(results: Mapping[str, Any]) -> str:
    """Return the corrected share, or why there is none."""
    name = _share_name(results)
    corrected, share = results["corrected"], results["share"]
    if corrected["value"] is None:
        alone = ""
        sample = results["prediction_powered"]
        if sample is not None and not sample["weight"]:
            ends = f" {interval(sample['ci'])}" if sample["ci"] else ""
            alone = f"; people's sample alone gives {figure(sample['value'])}{ends}"
        return f"no corrected {name}: {corrected['because']}{alone}"
    ends = f" {interval(corrected['ci'])}" if corrected["ci"] else ""
    value = figure(corrected["value"])
    return f"corrected {name}: {value}{ends}; uncorrected {figure(share['value'])}"


def _share_name(results: Mapping[str, Any]) -> str:
    if results["k"] is None:
        return "precision of everything judged"
    system, gaps = label(results["system"]), results["run"] or {}
    if any(gaps.get(name) for name in ("empty", "missing", "failed_calls")):
        # P@k counts an empty rank as a miss, which is not the judge's error.
        return f"precision of what {system} returned in its top {results['k']}"
    return f"P@{results['k']} of {system}"


def _pair_lines(results: Mapping[str, Any]) -> Iterator[str]:
    words = {
        "human_only": "judged by people only",
        "judge_only": "by the judge only",
        "judge_failed": "failed, which is no grade",
        "left_out": "left out, of queries that are not asked",
    }
    parts = [
        f"{results['pairs'][name]:,} {text}"
        for name, text in words.items()
        if results["pairs"][name]
    ]
    if results["not_judged"]:
        labels = plural(results["not_judged"], "label")
        parts.append(f"{labels} of the judge below 0: pooled, not judged")
    if parts:
        yield " · ".join(parts)
    if len(results["raters_agreement"]["raters"]) < 2:
        yield from truth_lines(results["raters_agreement"])


def _measured(cell: Mapping[str, Any]) -> str:
    return f"{figure(cell['value'])}{PART}{interval(cell['ci'])}"


def _kappa_line(results: Mapping[str, Any]) -> str:
    names = {"none": "kappa", "relevant": "relevant or not"}
    values = {
        names.get(name, name): results["kappa"][name]
        for name in ("none", "linear", "quadratic", "relevant")
    }
    return " · ".join(
        f"{name} {NOTHING if value is None else f'{value:.4f}'}" for name, value in values.items()
    )


def _few_lines(results: Mapping[str, Any]) -> Iterator[str]:
    for name, class_ in (("sensitivity", "relevant"), ("specificity", "not relevant")):
        n = results[name]["n"]
        if 0 < n < FEW:
            yield (
                f"people call only {plural(n, 'pair')} {class_}: {name} is hardly known and the"
                f" interval is wide; {FEW} or more would help"
            )


def _segments_grid(by: str, segments: Mapping[str, Any]) -> Grid:
    grid = [[label(by), "pairs", "sensitivity", "specificity", "uncorrected", "corrected"]]
    if any(part["corrected"]["value"] is None for part in segments.values()):
        grid[0].append("")
    for value, part in segments.items():
        few = part["sensitivity"]["few"] or part["specificity"]["few"]
        grid.append(
            [
                label(value),
                f"{part['pairs']['both']:,}{' few' if few else ''}",
                _measured(part["sensitivity"]),
                _measured(part["specificity"]),
                figure(part["share"]["value"]),
                _measured(part["corrected"]),
                *([part["corrected"]["because"] or ""] if len(grid[0]) > 6 else []),
            ]
        )
    return grid


def _share_lines(results: Mapping[str, Any]) -> Iterator[str]:
    share = results["share"]
    line = f"{share['judged_relevant']:,} of {plural(share['judged'], 'item')} judged relevant"
    if share["known"]:
        line += f", {share['known_relevant']:,} of {share['known']:,} known from the gold"
    queries = plural(share["queries"], "query", "queries")
    yield f"{line}, over {queries}"
    if share["unjudged"]:
        left = plural(share["unjudged"], "item")
        yield f"{left} in the top {results['k']} that nobody judged, left out"
    gaps = results["run"] or {}
    if gaps.get("empty"):
        ranks = plural(gaps["empty"], "rank is", "ranks are")
        yield (
            f"{ranks} empty in the top {results['k']}; the share is of what was returned, while"
            " karat eval --judged --human counts them as P@k does"
        )
    if parts := gap_counts(gaps):
        yield " · ".join(parts)


def _interval_lines(results: Mapping[str, Any]) -> Iterator[str]:
    corrected, conventions = results["corrected"], results["conventions"]
    if corrected["value"] is None:
        return
    if corrected["ci"] is None:
        what = "people's labels" if results["interval"] == "ppi" else "judged items"
        yield f"no interval: at least two queries with {what} are needed"
        return
    share = f"{100 * conventions['ci']:.4g} % interval"
    units = "groups of queries" if conventions["unit"] == "group" else "queries"
    if results["interval"] == "ppi":
        yield from _powered_lines(results["prediction_powered"], f"{share} ppi", units)
        return
    seed = f"seed {conventions['seed']}"
    if results["interval"] == "beta":
        yield (f"{share} beta: {corrected['draws']:,} draws, items counted as independent, {seed}")
    else:
        yield (
            f"{share} cluster: {corrected['draws']:,} resamples of whole {units}, sensitivity and"
            f" specificity with them, {seed}"
        )
        if corrected["drawn"]:
            drawn = " and ".join(corrected["drawn"])
            yield f"drawn from a Beta distribution, since there is too little data: {drawn}"
    if corrected["skipped"] > _MANY_SKIPPED * corrected["draws"]:
        lost = percent(corrected["skipped"] / corrected["draws"])
        yield (
            f"in {lost} of the draws the judge is no better than chance; the interval leaves them"
            " out and is too short"
        )


def _powered_lines(sample: Mapping[str, Any], name: str, units: str) -> Iterator[str]:
    labels = plural(sample["labels"], "label")
    yield (
        f"{name}: {labels} of people in {sample['units']:,} {units}; the judge's labels of the rest"
        f" have a weight of {sample['weight']:.2f}"
    )
    yield "it holds only if people judged a uniform sample of these items, as karat pool draws one"
