"""From runs and judgments to what should be judged next: scored, bounded, ranked, told about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import typer

from karat.analysis.comparison import NO_DIFFERENCE
from karat.analysis.contenders import distinct_names
from karat.analysis.settled import settled
from karat.analysis.verdicts import Rule
from karat.cli.comparing import rule_of
from karat.cli.interrupts import heed_interrupts
from karat.cli.numbers import whole
from karat.cli.pooling import heeded, queries_of
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.errors import UsageError
from karat.formats import read_corpus, read_gold, scan_run
from karat.judging.next_chances import judged_in
from karat.judging.next_gold import Together, together
from karat.judging.next_pairs import candidates
from karat.judging.pool import Pool, pool_runs
from karat.measures import numbers
from karat.measures.bounds.differences import difference_range
from karat.measures.bounds.effects import effects_on_difference, effects_on_value
from karat.measures.bounds.ranges import range_of, why_unbounded
from karat.measures.bounds.unjudged import Listed, listed
from karat.measures.conventions import PROFILES, SETTABLE, Conventions
from karat.measures.names import Measure, parse_measures
from karat.measures.overall import number_of
from karat.measures.prepare import Prepared, prepare
from karat.measures.scores import Scores, score
from karat.reports.document import utf8
from karat.reports.figures import label, several
from karat.reports.next_page import next_page
from karat.reports.outputs import PAGE_FORMS, Form, Output, forms_of, parse_outputs
from karat.reports.pooling import Pooled
from karat.reports.sheets import Sheet
from karat.tables import Blocks, Corpus, Gold, Queries, Run

_PAIRS = Form("pool", ".jsonl", "the pairs to judge, one a line", "pooling.to_jsonl")
FORMS = {**forms_of(_PAIRS), **PAGE_FORMS}
_WHOLE_LISTS = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat next`` was asked for."""

    runs: Sequence[str]
    gold: Sequence[str] = ()
    measure: str | None = None
    margin: str | None = None
    margin_kind: str | None = None
    within: str | None = None
    count: str = "20"
    depth: str | None = None
    queries: str | None = None
    corpus: str | None = None
    without_texts: bool = False
    profile: str = "karat"
    settings: Sequence[str] = ()
    seed: str | None = None
    strict: bool = False
    run_format: str | None = None
    gold_format: str | None = None
    outputs: Sequence[str] = ()
    as_json: bool = False

    def files(self) -> list[str]:
        """Every input by name."""
        named = [*self.runs, *self.gold, self.queries, self.corpus]
        return [name for name in named if name is not None]


@dataclass(frozen=True, eq=False)
class _Given:
    """Everything read and checked."""

    runs: dict[str, Run | Blocks]
    gold: Together
    queries: Queries | None
    corpus: Corpus | None
    conventions: Conventions
    measure: Measure
    count: int
    depth: int | None
    within: float


@dataclass(frozen=True, eq=False)
class _Work:
    """The runs scored by the measure, under conventions that let every judgment count.

    ``counted`` are their scores as any other command has them.
    """

    counted: list[Scores]
    scores: list[Scores]
    lists: list[Listed]
    prepared: Prepared
    without_gold: int


def next_of_files(request: Request) -> tuple[Pooled, list[Output]]:
    """Read everything and choose; what cannot be done is refused before any run is read."""
    heed_interrupts()
    outputs = parse_outputs(
        request.outputs, inputs=request.files(), stdout_taken=request.as_json, forms=FORMS
    )
    rule = _rule(request)
    given = _read(request)
    work = _scored(given)
    told = _tightness(given, work) if len(work.scores) == 1 else _settledness(given, work, rule)
    told |= _chosen(given, work, stop=told["settled"])
    pool = _pool(given, work, told["next"])
    if not request.without_texts and any(output.form is _PAIRS for output in outputs):
        pool.check_texts()
    return Pooled(pool, _sheet(given, work, told)), outputs


def _rule(request: Request) -> Rule:
    """What decides between two runs; an option that the number of runs leaves idle is refused."""
    if not 1 <= len(request.runs) <= 2:
        raise UsageError("next takes one run, or two: the baseline and the other system")
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    _check_gold(request.gold)
    if len(request.runs) == 2 and request.within is not None:
        raise UsageError("--within is for one run; of two the verdict decides when to stop")
    margins = {"--margin": request.margin, "--margin-kind": request.margin_kind}
    for option, given in margins.items():
        if len(request.runs) == 1 and given is not None:
            raise UsageError(f"{option} is for two runs; of one --within decides when to stop")
    margin, kind = request.margin or "0.02", request.margin_kind or "relative"
    return rule_of(None, margin, kind, "interval", "baseline", "holm", None)


def _check_gold(names: Sequence[str]) -> None:
    """Refuse a file that would count as a second opinion on itself."""
    seen: set[str] = set()
    for name in names:
        place = os.path.realpath(name)
        if place in seen:
            raise UsageError(f"--gold {name} is named twice; name each file once")
        seen.add(place)


def leave(sheet: Sheet) -> None:
    """Leave with 3 where a run did not answer, as comparing them would."""
    because = sheet.body["cannot_tell"]
    if because is not None:
        typer.echo(f"karat: cannot tell: {because}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def _read(request: Request) -> _Given:
    conventions = heeded(request.profile, request.settings, request.seed, SETTABLE, "next")
    named = request.measure or PROFILES[request.profile].measures[0]
    measures = parse_measures([named], conventions=conventions)
    if len(measures) != 1:
        raise UsageError(f"-m {named}: next looks at one measure at a time")
    if number_of(measures[0]) is not numbers.mean:
        raise UsageError(f"{measures[0]} is no mean over queries, which next looks at; name one")
    count = whole("--count", request.count)
    depth = None if request.depth is None else whole("--depth", request.depth)
    within = 0.0 if request.within is None else _share(request.within)
    runs: list[Run | Blocks] = []
    for name in request.runs:
        run = scan_run(name, format=request.run_format, strict=request.strict)
        runs.append(run.read() if name == "-" else run)
    names = distinct_names([utf8(run.name) for run in runs])
    queries = queries_of(request.queries, request.gold, request.gold_format)
    return _Given(
        dict(zip(names, runs, strict=True)),
        _gold(request, conventions, queries),
        queries,
        None if request.corpus is None else read_corpus(request.corpus),
        conventions,
        measures[0],
        count,
        depth,
        within,
    )


def _gold(request: Request, conventions: Conventions, queries: Queries | None) -> Together:
    """The judgments of all files; where there is none, the queries say what is asked."""
    if not request.gold and queries is None:
        raise UsageError("give what is judged already (--gold), or the --queries if nothing is")
    files = [
        read_gold(name, format=request.gold_format, duplicates=conventions.duplicates)
        for name in request.gold
    ]
    return together(files, () if queries is None else queries.frame["query_id"].to_list())


def _share(text: str) -> float:
    try:
        within = float(text)
    except ValueError:
        within = -1.0
    if not 0 <= within < 1e9:
        raise UsageError(f"--within is {text!r}; it is a number of 0 or more, such as 0.02")
    return within


def _scored(given: _Given) -> _Work:
    """Score every run; a query without relevant gold takes part if a judgment may bring some."""
    gold, queries = given.gold.gold, given.queries
    # What could be judged is what the lists hold, however long they are.
    conventions = replace(given.conventions, short_lists="complete")
    prepared = prepare(gold, conventions, queries=queries, corpus=given.corpus)
    why = why_unbounded(given.measure, prepared)
    if why is not None:
        raise UsageError(f"next cannot tell what a judgment changes: {why}")
    scores, lists = _score(given, prepared)
    n = len(prepared.query_ids)
    unscored = np.isnan([one.values(str(given.measure)) for one in scores]).any(axis=0)
    unjudged = np.sum([one.unjudged.counts(n) for one in lists], axis=0)
    empty = unscored & (scores[0].status == "empty_gold").to_numpy()
    opened = empty & (unjudged > 0)
    if not opened.any():
        return _Work(scores, scores, lists, prepared, 0)
    # What has no answer, or nothing left to judge, stays apart: a judge would be asked in vain.
    apart = (scores[0].status == "no_answer").to_numpy() | (empty & ~opened)
    kept = [one for one, out in zip(prepared.query_ids, apart.tolist(), strict=True) if not out]
    if queries is not None:
        queries = replace(queries, frame=queries.frame.filter(pl.Series(~apart)))
    gold = Gold(gold.frame.filter(pl.col("query_id").is_in(kept)), tuple(kept), gold.source)
    zero = replace(given.conventions, empty_gold="zero", short_lists="complete")
    prepared = prepare(gold, zero, queries=queries, corpus=given.corpus)
    opened_scores, lists = _score(given, prepared)
    return _Work(scores, opened_scores, lists, prepared, int(opened.sum()))


def _score(given: _Given, prepared: Prepared) -> tuple[list[Scores], list[Listed]]:
    scores = [
        replace(score(run, prepared, [given.measure], keep=_WHOLE_LISTS), system=name)
        for name, run in given.runs.items()
    ]
    return scores, [listed(one) for one in scores]


def _settledness(given: _Given, work: _Work, rule: Rule) -> dict[str, Any]:
    """Two runs: the verdict, and whether labels could change it."""
    (one, other), (first, second) = work.lists, work.scores
    found = difference_range(given.measure, one, other, work.prepared)
    own = range_of(given.measure, one, work.prepared)
    state = settled(first, second, found, rule, str(given.measure), baseline=own)
    if work.without_gold and state.settled and state.now not in ("better", "worse"):
        # Judged to have nothing relevant, they leave the mean, and what is left may say otherwise.
        many = several(
            work.without_gold,
            "query without relevant gold counts",
            "queries without relevant gold count",
        )
        told = f"the verdict is {state.now} while {many} as having none"
        state = replace(state, settled=False, because=f"{told}; judge what was returned there")
    kept = ("baseline", "system", "n", "baseline_mean", "system_mean", "delta", "ci", "p", "margin")
    row = state.comparison.document()
    comparison = {name: row[name] for name in (*kept, "because")}
    return {"comparison": comparison, **state.document()}


def _tightness(given: _Given, work: _Work) -> dict[str, Any]:
    """One run: what its mean is, and between what labels could move it."""
    name = str(given.measure)
    own = range_of(given.measure, work.lists[0], work.prepared)
    values = work.scores[0].values(name)
    low, now, high = (numbers.mean(one[~np.isnan(one)]) for one in (own.low, values, own.high))
    width = None if low is None or high is None else high - low
    stop = width is None or width <= given.within + NO_DIFFERENCE
    told = {"mean": now, "low": low, "high": high, "within": given.within}
    told |= {"n": int((~np.isnan(values)).sum())}
    # A query that is judged to have nothing relevant leaves the mean, which may rise by that.
    return {"range": told, "settled": stop, "exact": own.exact and not work.without_gold}


def _chosen(given: _Given, work: _Work, *, stop: bool) -> dict[str, Any]:
    """How many unjudged pairs there are, how many could matter, and which to judge next."""
    name, two = str(given.measure), len(work.lists) == 2
    if two:
        first, second = work.lists
        pairs = effects_on_difference(given.measure, first, second, work.prepared)
    else:
        pairs = effects_on_value(given.measure, work.lists[0], work.prepared)
    known = ~np.isnan([one.values(name) for one in work.scores]).any(axis=0)
    rel = float(given.measure.arguments.get("rel", given.conventions.rel))
    found = candidates(pairs, judged_in(work.scores, rel), int(known.sum()))
    near = found if given.depth is None else found.within(given.depth)
    places = near.chosen(0 if stop else given.count, sides=two)
    rows = near.frame(places, work.prepared.query_ids).to_dicts()
    if not two:
        rows = [{key: row[key] for key in row if key != "second_rank"} for row in rows]
    return {
        "unjudged": len(found.pairs.query),
        "can_matter": found.can_matter,
        "within_depth": near.can_matter,
        "next": rows,
    }


def _pool(given: _Given, work: _Work, rows: Sequence[dict[str, Any]]) -> Pool:
    """The chosen pairs as a pool: shuffled, so that nothing tells which system brought them."""
    lists: dict[str, dict[str, float]] = {}
    for row in rows:
        lists.setdefault(row["query_id"], {})[row["item_id"]] = 0.0
    nothing: dict[str, dict[str, float]] = {work.prepared.query_ids[0]: {}}
    return pool_runs(
        {"next": Run.from_dict(lists or nothing)},
        depth=max(len(rows), 1),
        queries=given.queries,
        corpus=given.corpus,
        conventions=replace(given.conventions, order=None),
    )


def _cannot_tell(scores: Sequence[Scores]) -> str | None:
    """Why the numbers say nothing of a run: it hardly answered, which counts as 0."""
    silent = [label(one.system) for one in scores if not _answered(one)]
    if silent:
        return f"not one query of {' and '.join(silent)} could be scored"
    partial = [label(one.system) for one in scores if one.partial]
    return f"too many calls of {' and '.join(partial)} failed" if partial else None


def _answered(one: Scores) -> bool:
    counts = one.counts
    return counts.scored > 0 or counts.missing + counts.failed_calls < counts.queries


def _sheet(given: _Given, work: _Work, told: dict[str, Any]) -> Sheet:
    inputs = {
        "runs": [run.source for run in given.runs.values()],
        "gold": list(given.gold.sources),
        "queries": None if given.queries is None else given.queries.source,
        "corpus": None if given.corpus is None else given.corpus.source,
    }
    body = {
        "systems": [
            {"name": one.system, "counts": one.counts.document(), "partial": one.partial}
            for one in work.counted
        ],
        "cannot_tell": _cannot_tell(work.counted),
        "measure": str(given.measure),
        "better": given.measure.definition.better,
        "depth": given.depth,
        "count": given.count,
        "without_gold": work.without_gold,
        "judged_again": given.gold.again,
        "judged_differently": given.gold.differently,
        **told,
    }
    return Sheet(body, given.conventions.document(), inputs, next_page)
