"""Effect of each stage of a run: the raw retriever, the later stages, and every step.

All results are plain data, as a report has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.evaluation.comparison import Comparisons, compare_scores
from karat.evaluation.segments import By
from karat.evaluation.stages import RAW, Staged
from karat.evaluation.systems import DEPTH, ComparedSystem
from karat.evaluation.top_lists import unanswered
from karat.evaluation.verdict import Comparison, Rule, judge_row
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import values_of
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import Mask, ideal_of
from karat.measure.scores import Scores
from karat.pages.serialize import Record
from karat.stats.paired import holm

LINKING = Measure("EL_F1")
RULE = Rule()
FINAL = "final"
_ENDS = {"better": "it helps", "worse": "it hurts", "same": "it changes nothing that matters"}

# Each measure's mean, interval and n.
Cells = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Cuts:
    """The measures that stages are compared by, at the top k; the first one decides.

    ``depth`` is how far down the raw lists are searched for gold.
    """

    chosen: tuple[Measure, ...]
    k: int
    depth: int

    @property
    def recall(self) -> Measure:
        """Recall of the top k, which shows whether a source serves its queries."""
        return Measure("R", self.k)

    @property
    def deep(self) -> tuple[Measure, Measure]:
        """Whether gold is anywhere in the raw lists, and how far down."""
        return Measure("R", self.depth), Measure("RR", self.depth)

    @property
    def every(self) -> list[Measure]:
        """All measures that a run must be scored by."""
        return list(dict.fromkeys([*self.chosen, self.recall, *self.deep, LINKING]))


@dataclass(frozen=True, slots=True)
class UsedDepth(Record):
    """The requested depth, and the depth that the lists allow."""

    asked: int
    used: int
    beyond_log: bool

    def marked(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return a figure with a mark if it should have looked deeper."""
        marks = {"asked": self.asked, "beyond_log": True} if self.beyond_log else {}
        return {**cell, **marks}


def used_depth(staged: Staged, lists: Iterable[Scores], k: int) -> UsedDepth:
    """Return the deepest cut-off up to k that all of these lists can be judged at."""
    depths = [staged.depth(hits) for hits in lists]
    used = min((max(1, depth.known) for depth in depths if not depth.reaches(k)), default=k)
    return UsedDepth(k, used, beyond_log=used < k)


def fair_cut(staged: Staged, k: int) -> UsedDepth:
    """Return where raw and final lists can be compared: not below where either was cut."""
    return used_depth(staged, [staged.raw, staged.final], k)


def fair_cuts(staged: Staged, cuts: Cuts) -> dict[Measure, Measure]:
    """Return the chosen measures, each where raw and final lists can be compared."""
    fair: dict[Measure, Measure] = {}
    for measure in cuts.chosen:
        k = fair_cut(staged, measure.k).used if isinstance(measure.k, int) else cuts.k
        fair |= cuts_to([measure], k)
    return fair


def cuts_to(measures: Iterable[Measure], k: int) -> dict[Measure, Measure]:
    """Return each measure at a cut-off of at most k; one that needs whole lists stays as it is."""
    cuts = {}
    for measure in measures:
        definition = measure.definition
        by_ranks = definition.ceiling == "ideal" and not definition.needs
        by_ranks &= definition.evidence is None and measure.arguments.get("of") != "corpus"
        below = isinstance(measure.k, int) and measure.k > k
        cuts[measure] = replace(measure, k=k) if by_ranks and below else measure
    return cuts


def cut_at(scores: Scores, gold: Prepared, cuts: Mapping[Measure, Measure]) -> Scores:
    """Return the scores by some of their measures, each at the cut-off of its replacement."""
    columns: dict[str, Values] = {}
    ceilings = dict(scores.ceilings)
    beyond = () if scores.cut is None else scores.cut.beyond
    left_out = unanswered(scores) & (gold.conventions.missing == "skip")
    for old, new in cuts.items():
        columns[str(new)] = scores.columns[str(old)]
        if old != new and scores.trace is not None:
            values = values_of(new, scores.trace.ranked, gold)
            # A query without a value at one cut-off has none at another.
            unscored = left_out if str(old) in beyond else np.isnan(scores.values(str(old)))
            columns[str(new)] = np.where(unscored, np.nan, values)
            best = ideal_of(scores.trace.ranked.target, gold.conventions.depth)
            ceilings[str(new)] = values_of(new, best, gold), scores.ceilings[str(old)][1]
    measures = tuple(dict.fromkeys(cuts.values()))
    return replace(scores, measures=measures, columns=columns, ceilings=ceilings)


def only_where(scores: Scores, mask: Mask) -> Scores:
    """Return the scores of the marked queries; those of the others take no part."""
    columns = {name: np.where(mask, values, np.nan) for name, values in scores.columns.items()}
    return replace(scores, columns=columns)


def cells(scores: Scores, mask: Mask | None = None) -> Cells:
    """Return each measure's mean, interval and n over all queries, or the marked ones."""
    everyone = scores.everyone
    summaries = scores.summarise(everyone if mask is None else mask)
    return {
        name: {"mean": summary.mean, "ci": summary.ci and list(summary.ci), "n": summary.n}
        for name, summary in summaries.items()
    }


def compare_stages(
    names: tuple[str, str],
    scores: tuple[Scores, Scores],
    *,
    k: int,
    queries: Queries | None = None,
    by: Sequence[By] = (),
) -> Comparisons:
    """Compare two stages query by query."""
    systems = []
    for name, stage in zip(names, scores, strict=True):
        top = None if stage.lists is None else stage.lists.filter(pl.col("rank") <= min(k, DEPTH))
        systems.append(ComparedSystem(name, (replace(stage, lists=top),)))
    return compare_scores(systems, RULE, queries=queries, by=by)


def comparison_document(comparisons: Comparisons) -> dict[str, Any]:
    """Return a comparison of two stages as in a report."""
    return {
        "comparisons": [row.to_dict() for row in comparisons.rows],
        "verdict": comparisons.decisions[0].verdict,
        "regression": comparisons.regression,
        "because": comparisons.decisions[0].because,
        "reversals": list(comparisons.reversals),
        "moved": list(comparisons.moved),
    }


def effect_sentence(stage: str, row: Comparison) -> str:
    """Return a sentence on the effect of a stage on a measure."""
    if row.delta is None or row.baseline_mean is None or row.system_mean is None:
        return f"{stage}: {row.measure} has no value both before and after it"
    interval = "" if row.ci is None else f" [{row.ci[0]:+.3f}, {row.ci[1]:+.3f}]"
    text = f"{stage} takes {row.measure} from {row.baseline_mean:.3f} to {row.system_mean:.3f}"
    end = _ENDS.get(row.verdict or "", "whether it helps is unclear")
    return f"{text} ({row.delta:+.3f}{interval}); {end}"


def effect_of(
    staged: Staged,
    cuts: Cuts,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
) -> dict[str, Any] | None:
    """Return the change from raw to final; None if the log has no raw list.

    ``hurts`` has a sentence for each segment that got worse.
    """
    if RAW not in staged.line:
        return None
    k, fair = fair_cut(staged, cuts.k), fair_cuts(staged, cuts)
    raw, final = (cut_at(scores, staged.gold, fair) for scores in (staged.raw, staged.final))
    comparisons = compare_stages((RAW, FINAL), (raw, final), k=k.used, queries=queries, by=by)
    later = _later_stages(staged)
    hurts = []
    for row in comparisons.rows:
        if row.segment and row.primary and row.verdict == "worse":
            where = " and ".join(f"{column} is {value}" for column, value in row.segment.items())
            hurts.append(effect_sentence(f"where {where}, {later}", row))
    return {
        **comparison_document(comparisons),
        "k": k.to_dict(),
        "says": effect_sentence(later, comparisons.of(FINAL)),
        "hurts": hurts,
    }


def _later_stages(staged: Staged) -> str:
    """Return a name for the stages after the retriever."""
    later = [name for name in staged.line if name != RAW]
    timed = staged.calls is not None and "latency.rerank" in staged.calls.columns
    only = later == ["rerank"] or (not later and timed)
    return "the reranker" if only else "what follows the retriever"


def raw_of(staged: Staged, cuts: Cuts) -> Cells | None:
    """Return whether the raw lists hold the gold at all; None where there are none.

    Lists that end above the depth asked for are measured where they end, and marked.
    """
    if RAW not in staged.line:
        return None
    depth = used_depth(staged, [staged.raw], cuts.depth)
    measured = cells(cut_at(staged.raw, staged.gold, cuts_to(cuts.deep, depth.used)))
    return {name: depth.marked(cell) for name, cell in measured.items()}


def steps_of(staged: Staged, cuts: Cuts) -> list[dict[str, Any]]:
    """Return every logged stage on the way to the final list, each against the one before.

    ``logged`` counts the queries that a stage has a list of its own for.
    """
    line = {**staged.line, FINAL: staged.final}
    depth = used_depth(staged, [staged.raw], cuts.depth)
    deep, fair = cuts_to(cuts.deep[:1], depth.used), fair_cuts(staged, cuts)
    (deepest,) = deep.values()
    k = fair_cut(staged, cuts.k).used
    steps: list[dict[str, Any]] = []
    changes: dict[str, Comparisons] = {}
    before: str | None = None
    for name, scores in line.items():
        # An item that a stage before the cut does not pass on was dropped.
        reached = name != FINAL or not used_depth(staged, [scores], depth.used).beyond_log
        cutoffs = {**fair, **(deep if reached else {})}
        measures = cells(cut_at(scores, staged.gold, cutoffs))
        if deepest not in fair.values():
            unmeasured = {"mean": None, "ci": None, "n": 0, "beyond_log": True}
            cell = depth.marked(measures[str(deepest)]) if reached else unmeasured
            measures[str(deepest)] = cell
        steps.append(
            {
                "stage": name,
                "before": before,
                "longest": staged.depth(scores).longest,
                "logged": len(staged.logged.get(name, ())),
                "measures": measures,
            }
        )
        if before is not None:
            old, new = (cut_at(stage, staged.gold, cutoffs) for stage in (line[before], scores))
            changes[name] = compare_stages((before, name), (old, new), k=k)
        before = name
    corrected = _corrected(changes, staged.final.conventions.alpha)
    for step in steps:
        rows = corrected.get(step["stage"], [])
        primary = next((row for row in rows if row.primary), None)
        step["change"] = {row.measure: row.to_dict() for row in rows}
        name = {"rerank": "the reranker", FINAL: "the cut at k"}.get(step["stage"], step["stage"])
        if (step["stage"], step["before"]) == (FINAL, RAW):
            name = _later_stages(staged)
        step["says"] = primary and effect_sentence(name, primary)
    return steps


def _corrected(changes: Mapping[str, Comparisons], alpha: float) -> dict[str, list[Comparison]]:
    """Correct the verdicts for the number of stages; the deciding measure is one family."""
    rows = [row for comparisons in changes.values() for row in comparisons.rows]
    adjusted: dict[tuple[str, str], tuple[float | None, int]] = {}
    for primary in (True, False):
        family = [row for row in rows if row.primary == primary]
        tests = max(1, sum(row.p is not None for row in family))
        for row, p in zip(family, holm([row.p for row in family]), strict=True):
            adjusted[row.system, row.measure] = p, tests
    corrected: dict[str, list[Comparison]] = {}
    for stage, comparisons in changes.items():
        # The stage may have left every top k as it was.
        same = any(overlap["identical"] for overlap in comparisons.overlaps)
        corrected[stage] = []
        for row in comparisons.rows:
            p, tests = adjusted[row.system, row.measure]
            identical = same and not row.wins and not row.losses
            row = replace(row, p_adjusted=p, tests=tests)
            corrected[stage].append(judge_row(row, RULE, alpha=alpha, identical=identical))
    return corrected
