"""From label files to a calibration: read, laid side by side, corrected, and told about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

from karat.analysis.segments import By, check_by, segments_by
from karat.cli.interrupts import heed_interrupts
from karat.cli.numbers import whole
from karat.cli.pooling import heeded, queries_of
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.columns import Source
from karat.errors import UsageError, unknown
from karat.formats import read_gold, scan_run
from karat.judging.calibrate import Parts, calibrate
from karat.judging.labels import read_labels
from karat.judging.raters import TRUTHS, Truth, read_people
from karat.judging.side_by_side import Top
from karat.judging.tops import asked_of, tops_of
from karat.measures.conventions import Conventions
from karat.reports.calibrating import calibration_page
from karat.reports.document import utf8
from karat.reports.outputs import PAGE_FORMS, Output, parse_outputs
from karat.reports.sheets import Sheet
from karat.stats.calibration import METHODS, Method
from karat.tables import Gold, Queries

_K = "5"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat calibrate`` was asked for."""

    judged: str
    human: Sequence[str]
    rater: str | None = None
    truth: str = "majority"
    rel: str | None = None
    run: str | None = None
    k: str | None = None
    gold: str | None = None
    queries: str | None = None
    by: Sequence[str] = ()
    interval: str = "cluster"
    profile: str = "karat"
    settings: Sequence[str] = ()
    seed: str | None = None
    strict: bool = False
    human_format: str | None = None
    run_format: str | None = None
    gold_format: str | None = None
    outputs: Sequence[str] = ()
    as_json: bool = False

    def files(self) -> list[str]:
        """Every input by name."""
        named = (self.judged, *self.human, self.run, self.gold, self.queries)
        return [name for name in named if name is not None]


def calibrate_files(request: Request) -> tuple[Sheet, list[Output]]:
    """Read everything and calibrate; what cannot be done is refused before anything is read."""
    heed_interrupts()
    outputs = parse_outputs(
        request.outputs, inputs=request.files(), stdout_taken=request.as_json, forms=PAGE_FORMS
    )
    conventions, by = _checked(request)
    judged = read_labels(request.judged, rater=request.rater)
    human = read_people(request.human, format=request.human_format)
    gold = None if request.gold is None else read_gold(request.gold, format=request.gold_format)
    beside = [] if request.gold is None else [request.gold]
    queries = queries_of(request.queries, beside, request.gold_format)
    check_by(queries, by)
    found = calibrate(
        judged,
        human,
        top=_top(request, gold, queries, conventions),
        queries=queries,
        segments=_segments(queries, by),
        conventions=conventions,
        method=cast("Method", request.interval),
        truth=cast("Truth", request.truth),
    )
    inputs: dict[str, Source | Sequence[Source] | None] = {
        "judged": judged.source,
        "human": human.sources,
        "run": None if found.top is None else found.top.tops.source,
        "gold": None if gold is None else gold.source,
        "queries": None if queries is None else queries.source,
    }
    shown = ("profile", "order", "ties", "repeats", "ci", "boot", "seed")
    told = {name: getattr(conventions, name) for name in shown}
    told["unit"] = "group" if found.grouped else "query"
    return Sheet(found.document(), told, inputs, calibration_page), outputs


def leave(sheet: Sheet) -> None:
    """Leave with 3 where there is no corrected number."""
    because = sheet.body["corrected"]["because"]
    if because is not None:
        typer.echo(f"karat: cannot tell: {because}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def _checked(request: Request) -> tuple[Conventions, list[By]]:
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    _check_files(request)
    if request.interval not in METHODS:
        raise unknown("interval", request.interval, METHODS)
    if request.truth not in TRUTHS:
        raise unknown("truth", request.truth, TRUTHS)
    if request.interval == "ppi" and request.seed is not None:
        raise UsageError("--seed: --interval ppi draws nothing; leave it out")
    if request.run is None:
        for option, value in (
            ("-k", request.k),
            ("--gold", request.gold),
            ("--run-format", request.run_format),
            ("--gold-format", request.gold_format),
            ("--strict", request.strict),
        ):
            if value:
                raise UsageError(f"{option} is for the top of a run; name one with --run")
    whole("-k", request.k or _K)
    rel = [] if request.rel is None else [f"rel={request.rel}"]
    known = ["rel", "ci", *_depends_on(request)]
    settings = [*request.settings, *rel]
    conventions = heeded(request.profile, settings, request.seed, known, "this calibration")
    return conventions, [By.parse(one) for one in request.by]


def _depends_on(request: Request) -> list[str]:
    """The settings that matter for this interval, and for the top of a run if there is one."""
    own = {"cluster": ["seed", "boot", "unit"], "beta": ["seed"], "ppi": ["unit"]}
    return [*own[request.interval], *([] if request.run is None else ["order", "ties", "repeats"])]


def _check_files(request: Request) -> None:
    """Refuse a judge that is held against itself, and people who are named twice."""
    people = [os.path.realpath(name) for name in request.human if name != "-"]
    if request.judged != "-" and os.path.realpath(request.judged) in people:
        raise UsageError(
            "JUDGED and --human are the same file; a judge is not calibrated on itself"
        )
    twice = next((name for name in people if people.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--human {Path(twice).name} is named twice; name each file once")


def _top(
    request: Request, gold: Gold | None, queries: Queries | None, conventions: Conventions
) -> Top | None:
    if request.run is None:
        return None
    run = scan_run(request.run, format=request.run_format, strict=request.strict)
    taken = run.read() if request.run == "-" else run
    k = whole("-k", request.k or _K)
    asked = asked_of([taken], gold=[] if gold is None else [gold], queries=queries)
    tops = tops_of(taken, asked, depth=k, conventions=conventions)
    return Top(utf8(taken.name), tops, k, gold)


def _segments(queries: Queries | None, by: Sequence[By]) -> Parts:
    if queries is None:
        return {}
    ids = queries.frame["query_id"]
    return {
        str(one): {
            segment.name: ids.filter(segment.mask).to_list()
            for segment in segments_by(ids, queries, one)
        }
        for one in by
    }
