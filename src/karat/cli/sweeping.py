"""From the options of ``karat sweep`` to its document: options checked, runs scored once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from karat.analysis.segments import segments_by
from karat.analysis.staged import Staged
from karat.analysis.sweeps.curves import DEFAULT_MEASURES, Curve, K, parse_curves, parse_ks
from karat.analysis.sweeps.knees import FLAT
from karat.analysis.sweeps.sweep import DEEPER, NODES, TOKENS, Budget, sweep
from karat.cli.analysing import publish_paper, subject_of
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.cli.scoring import Ready, Request, ready
from karat.errors import MissingInputError, UsageError
from karat.measures.names import Measure, parse_measure
from karat.reports.outputs import Output
from karat.reports.pages import Paper
from karat.reports.sweeps import sweep_page

_ENDINGS = ("p50", "p90", "p95", "p99", "mean")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to follow over which cut-offs; None for what is decided once the runs are known."""

    measures: Sequence[str] | None
    ks: tuple[K, ...] | None
    flat: float
    budget: Budget

    @property
    def all_ks(self) -> tuple[K, ...]:
        """The cut-offs that may come into question."""
        return (*NODES, *DEEPER) if self.ks is None else self.ks

    @property
    def in_tokens(self) -> bool:
        """Whether the cut-offs are budgets."""
        return isinstance(self.all_ks[0], str)


def plan_of(
    measures: Sequence[str] | None, *, ks: str | None, flat: str | None, budget: str | None
) -> Plan:
    """Read the options; what is misspelled is refused before any file is read."""
    plan = Plan(
        measures or None,
        None if ks is None else parse_ks(ks),
        FLAT if flat is None else _share(flat),
        None if budget is None else _budget(budget),
    )
    if plan.measures is not None:
        parse_curves(plan.measures, plan.all_ks)
    if plan.in_tokens and plan.budget == TOKENS:
        raise UsageError(
            "--budget tokens: the cut-offs are budgets of tokens already; leave it out"
        )
    return plan


def _share(text: str) -> float:
    try:
        share = math.nan if "_" in text else float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise UsageError(f"--flat is {text!r}; it is a share from 0 to below 1, such as 0.02")
    return share


def _budget(text: str) -> Budget:
    if text == TOKENS:
        return TOKENS
    family, _, stage = text.partition(".")
    if family != "latency" or not stage:
        raise UsageError(
            f"--budget is {text!r}; it is tokens, or the latency of a stage, such as latency.total"
        )
    ends = stage.rpartition(".")
    return parse_measure(text if ends[0] and ends[2] in _ENDINGS else f"{text}.p50")


def swept(request: Request, plan: Plan) -> Paper:
    """Score every run once at all cut-offs, and read the curves."""
    given = ready(request)
    named = plan.measures or DEFAULT_MEASURES
    curves = parse_curves(named, plan.all_ks, conventions=given.prepared.conventions)
    budget = plan.budget
    if budget is None and given.corpus is not None and not plan.in_tokens:
        budget = TOKENS
    timed = [budget] if isinstance(budget, Measure) else []
    measures = [measure for curve in curves for measure in curve.at.values()]
    # Of earlier stages it matters only which gold they had.
    subject = subject_of(
        request, [*measures, *timed], keep=_keep(plan, budget), given=given, of_stages=()
    )
    runs = list(subject.runs.values())
    depths = [staged.depth(staged.final) for staged in runs]
    longest = max((max(one.longest, one.asked or 0) for one in depths), default=0)
    deeper = (k for k in DEEPER if k <= longest)
    ks = plan.ks or (*NODES, *deeper)
    curves = [curve.only(ks) for curve in curves]
    systems = [
        {"name": name, **_system(staged, curves, given, plan.flat, budget)}
        for name, staged in subject.runs.items()
    ]
    _check_budget(systems, plan.budget)
    body = {"ks": list(ks), "flat": plan.flat, "systems": systems}
    return subject.paper(body, sweep_page)


def _keep(plan: Plan, budget: Budget) -> int:
    """How many items of each list are looked at for their lengths."""
    return max(k for k in plan.all_ks if isinstance(k, int)) if budget == TOKENS else 0


def _system(
    staged: Staged, curves: Sequence[Curve], given: Ready, flat: float, budget: Budget
) -> dict[str, Any]:
    ids = staged.final.table["query_id"]
    segments = {str(one): segments_by(ids, given.queries, one) for one in given.by}
    found = sweep(staged, curves, flat=flat, segments=segments, budget=budget)
    return found.document()


def _check_budget(systems: Sequence[Mapping[str, Any]], asked: Budget) -> None:
    """Refuse a budget line that no run can have, and say what it lacks."""
    if asked == TOKENS and all(system["budget"] is None for system in systems):
        raise MissingInputError("--budget tokens needs item token counts or texts: give --corpus")
    if isinstance(asked, Measure) and all(system["budget"]["because"] for system in systems):
        raise MissingInputError(systems[0]["budget"]["because"])


def publish(paper: Paper, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Show the sweep, and say with an exit code where it cannot tell anything."""
    publish_paper(paper, outputs, as_json=as_json, quiet=quiet)
    if not any(map(_measured, paper.body["systems"])):
        typer.echo("karat: cannot tell: no list is deep enough for any of the cut-offs", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def _measured(system: Mapping[str, Any]) -> bool:
    lines = system["measures"].values()
    return any(point["mean"] is not None for line in lines for point in line["points"])
