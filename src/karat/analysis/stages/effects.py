"""What each stage of a run is worth: the raw retriever, what follows it, every step between.

Parts of a fusion, routers and rewriting have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from karat.analysis.compare import Comparisons, compare_scores
from karat.analysis.comparison import Comparison
from karat.analysis.contenders import Contender
from karat.analysis.overlap import DEPTH
from karat.analysis.segments import By
from karat.analysis.staged import RAW, Staged
from karat.analysis.stages.cuts import (
    Cuts,
    Reach,
    cells,
    cut_at,
    cuts_to,
    fair_cut,
    fair_cuts,
    plain,
    reach_of,
)
from karat.analysis.verdicts import Rule, judged
from karat.measures.names import Measure
from karat.measures.scores import Scores
from karat.stats.corrections import holm
from karat.tables import Queries

FINAL = "final"

_ENDS = {"better": "it helps", "worse": "it hurts", "same": "it changes nothing that matters"}


def paired(
    names: tuple[str, str],
    scores: tuple[Scores, Scores],
    rule: Rule,
    *,
    k: int,
    queries: Queries | None = None,
    by: Sequence[By] = (),
) -> Comparisons:
    """Two stages compared query by query; they are the same where their top k are."""
    contenders = [
        Contender(name, (_topped(one, min(k, DEPTH)),))
        for name, one in zip(names, scores, strict=True)
    ]
    return compare_scores(contenders, rule, queries=queries, by=by)


def _topped(scores: Scores, k: int) -> Scores:
    lists = scores.lists
    return scores if lists is None else replace(scores, lists=lists.filter(pl.col("rank") <= k))


def compared(found: Comparisons) -> dict[str, Any]:
    """A comparison of two stages as it stands in a report."""
    return {
        "comparisons": [plain(row.document()) for row in found.rows],
        "verdict": found.verdict,
        "regression": found.regression,
        "because": found.decisions[0].because,
        "reversals": list(found.reversals),
        "moved": [plain(one.document()) for one in found.moved],
    }


def says(what: str, row: Comparison) -> str:
    """What a stage does to a measure, as a sentence."""
    if row.delta is None or row.baseline_mean is None or row.system_mean is None:
        return f"{what}: {row.measure} has no value both before and after it"
    interval = "" if row.ci is None else f" [{row.ci[0]:+.3f}, {row.ci[1]:+.3f}]"
    told = f"{what} takes {row.measure} from {row.baseline_mean:.3f} to {row.system_mean:.3f}"
    return f"{told} ({row.delta:+.3f}{interval}); {_end(row)}"


def _end(row: Comparison) -> str:
    return _ENDS.get(row.verdict or "", "whether it helps is unclear")


@dataclass(frozen=True, eq=False)
class Effect:
    """What becomes of the raw lists' top on the way to the final ones."""

    found: Comparisons
    what: str
    cut: Reach

    def document(self) -> dict[str, Any]:
        """The effect as it stands in a report; ``hurts`` has a sentence for each such segment."""
        hurt = [
            row for row in self.found.rows if row.segment and row.primary and row.verdict == "worse"
        ]
        return {
            **compared(self.found),
            "k": self.cut.document(),
            "says": says(self.what, self.found.of(FINAL)),
            "hurts": [says(f"where {_where(row)}, {self.what}", row) for row in hurt],
        }


def _where(row: Comparison) -> str:
    return " and ".join(f"{column} is {value}" for column, value in (row.segment or {}).items())


def effect_of(
    staged: Staged,
    cuts: Cuts,
    rule: Rule,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
) -> Effect | None:
    """From raw to final; None where the log has no raw list."""
    if RAW not in staged.line:
        return None
    cut = fair_cut(staged, cuts.k)
    wanted = fair_cuts(staged, cuts)
    raw, final = (cut_at(one, staged.gold, wanted) for one in (staged.raw, staged.final))
    found = paired((RAW, FINAL), (raw, final), rule, k=cut.used, queries=queries, by=by)
    return Effect(found, _what_follows(staged), cut)


def _what_follows(staged: Staged) -> str:
    """What a reader may call all that comes after the retriever."""
    later = [name for name in staged.line if name != RAW]
    timed = staged.calls is not None and "latency.rerank" in staged.calls.columns
    only = later == ["rerank"] or (not later and timed)
    return "the reranker" if only else "what follows the retriever"


def raw_of(staged: Staged, cuts: Cuts) -> dict[str, dict[str, Any]] | None:
    """Whether the raw lists hold the gold at all; None where there are none.

    Lists that end above the depth asked for are measured where they end, and marked.
    """
    if RAW not in staged.line:
        return None
    reach = reach_of(staged, [staged.raw], cuts.depth)
    found = cells(cut_at(staged.raw, staged.gold, cuts_to(cuts.deep, reach.used)))
    marks = {"asked": reach.asked, "beyond_log": True} if reach.beyond_log else {}
    return {name: {**one, **marks} for name, one in found.items()}


@dataclass(frozen=True, eq=False)
class Step:
    """A stage: what its lists are worth, and what it changed in those of the stage before.

    ``logged`` counts the queries that it has a list of its own for, ``beyond`` names measures
    that look deeper than its lists go. ``same`` says that it left every top k as it was.
    """

    stage: str
    what: str
    measures: Mapping[str, Mapping[str, Any]]
    longest: int
    logged: int
    before: str | None = None
    change: tuple[Comparison, ...] = ()
    same: bool = False
    beyond: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The stage as it stands in a report."""
        unmeasured = {"mean": None, "ci": None, "n": 0, "beyond_log": True}
        primary = next((row for row in self.change if row.primary), None)
        return {
            "stage": self.stage,
            "before": self.before,
            "longest": self.longest,
            "logged": self.logged,
            "measures": {**self.measures, **dict.fromkeys(self.beyond, unmeasured)},
            "change": {row.measure: plain(row.document()) for row in self.change},
            "says": None if primary is None else says(self.what, primary),
        }


def steps_of(staged: Staged, cuts: Cuts, rule: Rule) -> list[Step]:
    """Every logged stage on the way to the final list, each against the one before."""
    line = {**staged.line, FINAL: staged.final}
    reach = reach_of(staged, [staged.raw], cuts.depth)
    deep = cuts_to(cuts.deep[:1], reach.used)
    k = fair_cut(staged, cuts.k).used
    steps: list[Step] = []
    before: str | None = None
    for name, scores in line.items():
        # What a stage before the cut does not pass on, it has dropped.
        reached = name != FINAL or not reach_of(staged, [scores], reach.used).beyond_log
        wanted = {**fair_cuts(staged, cuts), **(deep if reached else {})}
        step = Step(
            name,
            _what(staged, before, name),
            _marked(cells(cut_at(scores, staged.gold, wanted)), staged, cuts, reach),
            longest=staged.depth(scores).longest,
            logged=len(staged.logged.get(name, ())),
            before=before,
            beyond=() if reached else tuple(map(str, deep.values())),
        )
        if before is not None:
            step = _against(step, staged, (line[before], scores), wanted, rule, k)
        steps.append(step)
        before = name
    return _corrected(steps, rule, staged.final.conventions.alpha)


def _marked(
    found: dict[str, dict[str, Any]], staged: Staged, cuts: Cuts, reach: Reach
) -> dict[str, dict[str, Any]]:
    """The figures with a mark on those that should have looked deeper."""
    own = set(map(str, fair_cuts(staged, cuts).values()))
    marks = {"asked": reach.asked, "beyond_log": True} if reach.beyond_log else {}
    return {name: one if name in own else {**one, **marks} for name, one in found.items()}


def _what(staged: Staged, before: str | None, name: str) -> str:
    if name == FINAL:
        return _what_follows(staged) if before == RAW else "the cut at k"
    return "the reranker" if name == "rerank" else name


def _against(
    step: Step,
    staged: Staged,
    lists: tuple[Scores, Scores],
    cuts: Mapping[Measure, Measure],
    rule: Rule,
    k: int,
) -> Step:
    """The step with what it changed."""
    old, new = (cut_at(one, staged.gold, cuts) for one in lists)
    found = paired((str(step.before), step.stage), (old, new), rule, k=k)
    same = any(one.identical for one in found.overlaps)
    return replace(step, change=found.rows, same=same)


def _corrected(steps: Sequence[Step], rule: Rule, alpha: float) -> list[Step]:
    """Verdicts that allow for how many stages were looked at: what decides is one family."""
    rows = [row for step in steps for row in step.change]
    adjusted: dict[tuple[str, str], tuple[float | None, int]] = {}
    for primary in (True, False):
        family = [row for row in rows if row.primary == primary]
        for row, p in zip(family, holm([row.p for row in family]), strict=True):
            adjusted[row.system, row.measure] = p, max(1, sum(one.p is not None for one in family))

    def again(row: Comparison, *, same: bool) -> Comparison:
        p, tests = adjusted[row.system, row.measure]
        row = replace(row, p_adjusted=p, tests=tests)
        identical = same and not row.wins and not row.losses
        return judged(row, rule, alpha=alpha, identical=identical)

    return [
        replace(step, change=tuple(again(row, same=step.same) for row in step.change))
        for step in steps
    ]
