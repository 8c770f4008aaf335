"""Calibrate: how far a judge can be trusted, and what its precision would be without its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.errors import InputError, UsageError, unknown
from karat.evaluation.segments import By, check_by, segments_by
from karat.label.corrected import (
    ONLY_SHARES,
    SideBySide,
    cells_of,
    estimate,
    kinds_of,
    side_by_side,
    units_of,
)
from karat.label.inputs import (
    File,
    GoldLike,
    QueriesLike,
    RunLike,
    Settings,
    as_list,
    conventions_for,
    gold_tables,
    open_run,
    queries_table,
    refuse_repeats,
    refuse_two_pipes,
)
from karat.label.labels import (
    Labels,
    People,
    kappas,
    one_grade,
    people_of,
    people_section,
    raters_agreement,
    read_labels,
    truth_lines,
)
from karat.label.pool import all_query_ids, gap_counts, top_hits
from karat.measure.conventions import Conventions
from karat.pages.formatting import PART, figure, interval, label, percent, plural, utf8
from karat.pages.page import Grid, Page, Section, table
from karat.pages.result import AnalysisResult
from karat.stats.agreement import cross_table, kappa
from karat.stats.calibration import METHODS, Method
from karat.stats.distributions import wilson

# With fewer labels of a class than this, its rate is hardly known.
FEW = 30
# A table of more different grades than this is unreadable.
_MOST_GRADES = 50
# Above this share of draws without a usable judge, the others say too little.
_MANY_SKIPPED = 0.05
# The settings that each interval depends on.
_DEPENDS_ON = {"cluster": ["seed", "boot", "unit"], "beta": ["seed"], "ppi": ["unit"]}
_KAPPAS = ("kappa", "linear", "quadratic", "relevant or not")
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

    >>> pairs = karat.pool(["bm25.trec"], queries="queries.jsonl", corpus="corpus.jsonl", depth=2)
    >>> pairs.save("pool.jsonl")
    >>> labels = karat.judge("pool.jsonl", "labels.jsonl", judge="overlap")
    >>> karat.calibrate("labels.jsonl", "qrels.txt").to_dict()["sensitivity"]["value"]
    0.5
    """
    refuse_two_pipes(judged, *as_list(human), run, gold, queries)
    # A judge is not calibrated on itself.
    refuse_repeats("", [judged, *as_list(human)])
    for_run = {"-k": k, "--gold": gold, "--run-format": run_format, "--gold-format": gold_format}
    for option, value in {**for_run, "--strict": strict}.items():
        if run is None and value:
            raise UsageError(f"{option} is for the top of a run; name one with --run")
    if interval not in METHODS:
        raise unknown("interval", interval, METHODS)
    allowed = ["rel", "ci", *_DEPENDS_ON[interval]]
    allowed += [] if run is None else ["order", "ties", "repeats"]
    conventions = conventions_for(profile, settings, allowed, "this calibration")
    columns = [By.parse(text) for text in by]
    labels = judged if isinstance(judged, Labels) else read_labels(os.fspath(judged), rater=rater)
    people = people_of(human, format=human_format)
    (known,) = gold_tables(gold, format=gold_format) or (None,)
    asked = queries_table(queries, gold, gold_format=gold_format)
    check_by(asked, columns)
    table = top = gaps = None
    depth, place = k or 5, "here"
    if run is not None:
        table = open_run(run, format=run_format, strict=strict)
        ids = all_query_ids([table], gold=[] if known is None else [known], queries=asked)
        top, gaps = top_hits(table, ids, depth=depth, conventions=conventions)
        gaps["empty"] = depth * gaps["answered"] - top.height
        place = f"in the top {depth}"
    agreed, origin = one_grade(people, truth)
    pairs = side_by_side(labels, agreed, top=top, known=known)
    query_ids = None if asked is None else asked.frame["query_id"]
    if query_ids is not None:
        pairs = pairs.of(query_ids)
    groups = _groups(asked, conventions)
    judge_on = partial(
        _judge_document, conventions=conventions, method=interval, groups=groups, place=place
    )
    overall = judge_on(pairs)
    where = labels.source.name
    if asked is not None and not overall["pairs"]["both"]:
        message = f"no pair judged by both the judge and people has a query in {asked.source.name}"
        raise InputError(message, where=where)
    if table is not None and not overall["share"]["judged"]:
        message = f"no label is of an item {place} of {table.source.name} that the gold leaves open"
        raise InputError(f"{message}; pool that run and judge it", where=where)
    segments: dict[str, dict[str, Any]] = {}
    if query_ids is not None:
        is_asked = pl.col("query_id").is_in(query_ids.implode())
        people = replace(people, frame=people.frame.filter(is_asked))
        for column in columns:
            by_value = segments_by(query_ids, asked, column)
            parts = {each.name: pairs.of(query_ids.filter(each.mask)) for each in by_value}
            segments[str(column)] = {
                name: judge_on(part) for name, part in parts.items() if part.frame.height
            }
    agreement = raters_agreement(people, pairs.frame)
    body = {
        "rel": conventions.rel,
        "system": None if table is None else utf8(table.name),
        "k": None if table is None else depth,
        "interval": interval,
        "raters": labels.raters,
        **overall,
        "not_judged": labels.not_judged,
        "raters_agreement": {**agreement, "truth": origin},
        "run": gaps,
        "segments": segments,
    }
    shown = {name: getattr(conventions, name) for name in _SHOWN}
    inputs = {
        "judged": labels.source,
        "human": people.sources,
        "run": None if table is None else table.source,
        "gold": None if known is None else known.source,
        "queries": None if asked is None else asked.source,
    }
    conventions_shown = {**shown, "unit": "group" if groups else "query"}
    return Calibration(body, conventions_shown, _calibration_page, inputs)


class Calibration(AnalysisResult):
    """A judge compared with people, over all pairs and segment by segment."""

    @property
    def unmeasured(self) -> str | None:
        """Why there is no corrected number; None if there is one."""
        because: str | None = self.body["corrected"]["because"]
        return because

    def to_frame(self) -> pl.DataFrame:
        """Return one row for all pairs and one per segment, with the rates and shares."""
        parts = [("", "", self.body)]
        for by, segments in self.body["segments"].items():
            parts += [(by, value, part) for value, part in segments.items()]
        rows = []
        for by, value, part in parts:
            low, high = part["corrected"]["ci"] or (None, None)
            rates = {name: part[name]["value"] for name in ("sensitivity", "specificity")}
            shares = {"uncorrected": part["share"], "corrected": part["corrected"]}
            rates |= {name: share["value"] for name, share in shares.items()}
            names = {"by": by, "segment": value, "pairs": part["pairs"]["both"]}
            rows.append({**names, **rates, "low": low, "high": high})
        return pl.DataFrame(rows, infer_schema_length=None)


def _judge_document(
    pairs: SideBySide,
    conventions: Conventions,
    method: Method,
    groups: Mapping[str, str],
    place: str,
) -> dict[str, Any]:
    """Return a judge on some pairs: its agreement with people, and the corrected share.

    ``table`` has a row for each grade that people gave and a column for each of the judge's.
    """
    rows = pairs.frame.select("query_id", "judge", "human", **kinds_of(conventions.rel))
    ids = rows["query_id"].to_list()
    units = units_of(ids, map(groups.get, ids))
    cells = cells_of(rows.with_columns(unit=pl.Series(units, dtype=pl.String)))
    judge, counted = cells.judge, cells.counted
    both = rows.drop_nulls(("judge", "human"))
    grades = sorted({*both["human"].to_list(), *both["judge"].to_list()})
    if len(grades) > _MOST_GRADES:
        many = f"people and the judge gave {len(grades):,} different grades"
        raise UsageError(f"{many}; a judge is calibrated on at most {_MOST_GRADES}")
    of_people, of_judge = (both[name].to_numpy() for name in ("human", "judge"))
    binary = np.array([[judge.tn, judge.fp], [judge.fn, judge.tp]])
    share = estimate(cells, method, conventions, place)

    def rate(correct: int, n: int) -> dict[str, Any]:
        ends = list(wilson(correct / n, n, confidence=conventions.ci)) if n else None
        return {"value": correct / n if n else None, "ci": ends, "n": n, "few": n < FEW}

    return {
        "pairs": pairs.counts(),
        "grades": [int(grade) if grade.is_integer() else grade for grade in grades],
        "table": cross_table(of_people, of_judge, grades).tolist(),
        "relevant": {"tp": judge.tp, "fn": judge.fn, "tn": judge.tn, "fp": judge.fp},
        "sensitivity": rate(judge.tp, judge.relevant),
        "specificity": rate(judge.tn, judge.others),
        "kappa": {**kappas(of_people, of_judge), "relevant": kappa(binary)},
        "share": {
            "value": counted.raw,
            "judged": counted.judged,
            "judged_relevant": counted.judged_relevant,
            "known": counted.known,
            "known_relevant": counted.known_relevant,
            "unjudged": int(rows["unjudged"].sum()),
            "queries": rows.filter(pl.col("judged") | pl.col("known"))["query_id"].n_unique(),
        },
        "corrected": {**share.to_dict(), "only": ONLY_SHARES},
        "prediction_powered": share.powered,
    }


def _groups(queries: Queries | None, conventions: Conventions) -> dict[str, str]:
    """Return the conversation of each query that belongs to one."""
    groups = {}
    if queries is not None and "group" in queries.frame.columns:
        groups = dict(queries.frame.select("query_id", "group").drop_nulls().iter_rows())
    if conventions.unit == "group" and not groups:
        raise UsageError("unit=group needs queries with a column group: the conversation of each")
    return {} if conventions.unit == "query" else groups


def _calibration_page(results: Mapping[str, Any]) -> Page:
    grades: Grid = [["people", *(f"judge {grade:g}" for grade in results["grades"])]]
    for grade, row in zip(results["grades"], results["table"], strict=True):
        grades.append([f"{grade:g}", *(f"{count:,}" for count in row)])
    rates: Grid = [["what", "rate", "n"]]
    few = []
    for name, kind in (("sensitivity", "relevant"), ("specificity", "not relevant")):
        rate = results[name]
        rates.append([name, _measured(rate), f"{rate['n']:,}{' few' if rate['few'] else ''}"])
        if 0 < rate["n"] < FEW:
            only = f"people call only {plural(rate['n'], 'pair')} {kind}"
            few.append(f"{only}: {name} is uncertain; {FEW} or more would help")
    values = zip(_KAPPAS, map(figure, results["kappa"].values()), strict=True)
    kappas = " · ".join(f"{words} {value}" for words, value in values)
    pairs = plural(results["pairs"]["both"], "pair")
    sections = [
        Section(f"The judge and people on {pairs}", grades, list(_pair_lines(results))),
        Section(f"Relevant from grade {results['rel']:g} on", rates, [kappas, *few]),
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
    corrected = results["corrected"]
    name = "precision of everything judged"
    if results["k"] is not None:
        name = f"P@{results['k']} of {label(results['system'])}"
        if any((results["run"] or {}).get(gap) for gap in ("empty", "missing", "failed_calls")):
            # P@k counts an empty rank as a miss, which is not the judge's error.
            name = f"precision of what {label(results['system'])} returned: its top {results['k']}"
    if corrected["value"] is not None:
        uncorrected = figure(results["share"]["value"])
        return f"corrected {name}: {_measured(corrected, ' ')}; uncorrected {uncorrected}"
    sample = results["prediction_powered"]
    alone = ""
    if sample is not None and not sample["weight"]:
        alone = f"; people's sample alone gives {_measured(sample, ' ')}"
    return f"no corrected {name}: {corrected['because']}{alone}"


def _measured(cell: Mapping[str, Any], between: str = PART) -> str:
    return f"{figure(cell['value'])}{between}{interval(cell['ci'])}".rstrip(" ")


def _pair_lines(results: Mapping[str, Any]) -> Iterator[str]:
    counts = {
        "judged by people only": results["pairs"]["human_only"],
        "by the judge only": results["pairs"]["judge_only"],
        "failed, so without a grade": results["pairs"]["judge_failed"],
        "left out: their queries are not among the queries": results["pairs"]["left_out"],
        "labels of the judge below 0: pooled, not judged": results["not_judged"],
    }
    if any(counts.values()):
        yield " · ".join(f"{count:,} {words}" for words, count in counts.items() if count)
    if len(results["raters_agreement"]["raters"]) < 2:
        yield from truth_lines(results["raters_agreement"])


def _segments_grid(by: str, segments: Mapping[str, Any]) -> Grid:
    def pairs(part: Mapping[str, Any]) -> str:
        few = part["sensitivity"]["few"] or part["specificity"]["few"]
        return f"{part['pairs']['both']:,}{' few' if few else ''}"

    columns: dict[str, Any] = {
        label(by): "name",
        "pairs": pairs,
        "sensitivity": lambda part: _measured(part["sensitivity"]),
        "specificity": lambda part: _measured(part["specificity"]),
        "uncorrected": lambda part: figure(part["share"]["value"]),
        "corrected": lambda part: _measured(part["corrected"]),
        "text": lambda part: part["corrected"]["because"],
    }
    return table([{"name": value, **part} for value, part in segments.items()], columns)


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
    method = results["interval"]
    if corrected["value"] is None:
        return
    if corrected["ci"] is None:
        labels = "people's labels" if method == "ppi" else "judged items"
        yield f"no interval: at least two queries with {labels} are needed"
        return
    name = f"{100 * conventions['ci']:.4g} % interval {method}"
    units = "groups of queries" if conventions["unit"] == "group" else "queries"
    if method == "ppi":
        sample = results["prediction_powered"]
        yield (
            f"{name}: {plural(sample['labels'], 'label')} of people in {sample['units']:,} {units};"
            f" the judge's labels of the others have a weight of {sample['weight']:.2f}; it holds"
            " only if people judged a uniform sample of these items, as karat pool draws one"
        )
        return
    draws = "draws of independent items" if method == "beta" else f"resamples of whole {units}"
    yield f"{name}: {corrected['draws']:,} {draws}, seed {conventions['seed']}"
    if method == "cluster" and corrected["drawn"]:
        drawn = " and ".join(corrected["drawn"])
        yield f"drawn from a Beta distribution, since there is too little data: {drawn}"
    if corrected["skipped"] > _MANY_SKIPPED * corrected["draws"]:
        lost = percent(corrected["skipped"] / corrected["draws"])
        yield f"the interval is too short: in {lost} of its draws the judge is not above chance"
