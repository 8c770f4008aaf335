"""What each stage of a run is worth: the raw retriever, what follows it, every step between.

Parts of a fusion, routers and rewriting have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.evaluation.comparison import DEPTH, Comparisons, compare_scores
from karat.evaluation.segments import By
from karat.evaluation.stages import RAW, Staged
from karat.evaluation.systems import ComparedSystem
from karat.evaluation.verdict import Comparison, Rule, judge_row
from karat.measures.evaluate_measure import values_of
from karat.measures.names import Measure
from karat.measures.prepare import Prepared
from karat.measures.ranked import Mask, ideal_of
from karat.measures.scores import Scores
from karat.pages.serialize import Record, plain
from karat.stats.paired import holm

LINKING = Measure("EL_F1")
FINAL = "final"
_ENDS = {"better": "it helps", "worse": "it hurts", "same": "it changes nothing that matters"}


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
        """Recall of the top k, which tells a source that serves its queries from one that fails."""
        return Measure("R", self.k)

    @property
    def deep(self) -> tuple[Measure, Measure]:
        """Whether gold is anywhere in the raw lists, and how far down."""
        return Measure("R", self.depth), Measure("RR", self.depth)

    @property
    def every(self) -> list[Measure]:
        """All that a run has to be scored by."""
        return list(dict.fromkeys([*self.chosen, self.recall, *self.deep, LINKING]))


@dataclass(frozen=True, slots=True)
class Reach(Record):
    """How deep one wanted to look, and how deep the lists let one."""

    asked: int
    used: int
    beyond_log: bool


def reach_of(staged: Staged, lists: Iterable[Scores], k: int) -> Reach:
    """Return the deepest cut-off up to k that all of these lists can be judged at."""
    depths = [staged.depth(hits) for hits in lists]
    used = min((max(1, depth.known) for depth in depths if not depth.reaches(k)), default=k)
    return Reach(k, used, beyond_log=used < k)


def fair_cut(staged: Staged, k: int) -> Reach:
    """Return where raw and final lists can be compared: not below where either was cut."""
    return reach_of(staged, [staged.raw, staged.final], k)


def fair_cuts(staged: Staged, cuts: Cuts) -> dict[Measure, Measure]:
    """Return the chosen measures, each where raw and final lists can be compared."""
    found: dict[Measure, Measure] = {}
    for measure in cuts.chosen:
        k = fair_cut(staged, measure.k).used if isinstance(measure.k, int) else cuts.k
        found |= cuts_to([measure], k)
    return found


def cuts_to(measures: Iterable[Measure], k: int) -> dict[Measure, Measure]:
    """Each measure at no deeper a cut-off than k; one that needs whole lists stays as it is."""
    return {
        measure: replace(measure, k=k)
        if isinstance(measure.k, int) and measure.k > k and _by_ranks(measure)
        else measure
        for measure in measures
    }


def _by_ranks(measure: Measure) -> bool:
    """Return whether the ranks of judged hits are all that it takes."""
    definition = measure.definition
    return (
        definition.ceiling == "ideal"
        and not definition.needs
        and definition.evidence is None
        and measure.arguments.get("of") != "corpus"
    )


def cut_at(scores: Scores, gold: Prepared, cuts: Mapping[Measure, Measure]) -> Scores:
    """The scores by some of their measures, each at the cut-off of the one that it becomes."""
    columns: dict[str, pl.Series] = {"query_id": scores.table["query_id"]}
    ceilings = dict(scores.ceilings)
    beyond = () if scores.cut is None else scores.cut.beyond
    for old, new in cuts.items():
        columns[str(new)] = scores.table[str(old)].alias(str(new))
        if old != new and scores.trace is not None:
            values = values_of(new, scores.trace.ranked, gold)
            if str(old) not in beyond:
                # What was not scored at one cut-off is not scored at another.
                values = np.where(np.isnan(scores.values(str(old))), np.nan, values)
            elif gold.conventions.missing == "skip":
                answered = scores.status.is_in(["missing", "failed"]).not_().to_numpy()
                values = np.where(answered, values, np.nan)
            columns[str(new)] = pl.Series(values, dtype=pl.Float64, nan_to_null=True)
            best = values_of(
                new, ideal_of(scores.trace.ranked.target, gold.conventions.depth), gold
            )
            ceilings[str(new)] = best, scores.ceilings[str(old)][1]
    measures = tuple(dict.fromkeys(cuts.values()))
    return replace(scores, measures=measures, table=pl.DataFrame(columns), ceilings=ceilings)


def only_where(scores: Scores, mask: Mask) -> Scores:
    """Return the scores of the marked queries; those of the others take no part."""
    names = [str(measure) for measure in scores.measures]
    own = pl.Series("own", mask)
    kept = scores.table.with_columns(pl.when(own).then(pl.col(name)) for name in names)
    return replace(scores, table=kept)


def cells(scores: Scores, mask: Mask | None = None) -> dict[str, dict[str, Any]]:
    """Return each measure's mean, interval and n over all queries, or the marked ones."""
    everyone = np.ones(scores.table.height, dtype=bool)
    found = scores.summarise(everyone if mask is None else mask)
    return {
        name: {"mean": one.mean, "ci": None if one.ci is None else list(one.ci), "n": one.n}
        for name, one in found.items()
    }


def paired(
    names: tuple[str, str],
    scores: tuple[Scores, Scores],
    rule: Rule,
    *,
    k: int,
    queries: Queries | None = None,
    by: Sequence[By] = (),
) -> Comparisons:
    """Compare two stages query by query."""
    contenders = [
        ComparedSystem(name, (_topped(one, min(k, DEPTH)),))
        for name, one in zip(names, scores, strict=True)
    ]
    return compare_scores(contenders, rule, queries=queries, by=by)


def _topped(scores: Scores, k: int) -> Scores:
    lists = scores.lists
    return scores if lists is None else replace(scores, lists=lists.filter(pl.col("rank") <= k))


def compared(found: Comparisons) -> dict[str, Any]:
    """Return a comparison of two stages as it stands in a report."""
    return {
        "comparisons": [plain(row.document()) for row in found.rows],
        "verdict": found.verdict,
        "regression": found.regression,
        "because": found.decisions[0].because,
        "reversals": list(found.reversals),
        "moved": [plain(query.document()) for query in found.moved],
    }


def says(what: str, row: Comparison) -> str:
    """Return what a stage does to a measure, as a sentence."""
    if row.delta is None or row.baseline_mean is None or row.system_mean is None:
        return f"{what}: {row.measure} has no value both before and after it"
    interval = "" if row.ci is None else f" [{row.ci[0]:+.3f}, {row.ci[1]:+.3f}]"
    text = f"{what} takes {row.measure} from {row.baseline_mean:.3f} to {row.system_mean:.3f}"
    return f"{text} ({row.delta:+.3f}{interval}); {_end(row)}"


def _end(row: Comparison) -> str:
    return _ENDS.get(row.verdict or "", "whether it helps is unclear")


@dataclass(frozen=True, eq=False)
class Effect:
    """What becomes of the raw lists' top on the way to the final ones."""

    found: Comparisons
    what: str
    cut: Reach

    def to_dict(self) -> dict[str, Any]:
        """Return the effect as plain data; ``hurts`` has a sentence for each such segment."""
        hurt = [
            row for row in self.found.rows if row.segment and row.primary and row.verdict == "worse"
        ]
        return {
            **compared(self.found),
            "k": self.cut.to_dict(),
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
    """Return the change from raw to final; None if the log has no raw list."""
    if RAW not in staged.line:
        return None
    cut = fair_cut(staged, cuts.k)
    wanted = fair_cuts(staged, cuts)
    raw, final = (cut_at(one, staged.gold, wanted) for one in (staged.raw, staged.final))
    found = paired((RAW, FINAL), (raw, final), rule, k=cut.used, queries=queries, by=by)
    return Effect(found, _what_follows(staged), cut)


def _what_follows(staged: Staged) -> str:
    """Return what a reader may call all that comes after the retriever."""
    later = [name for name in staged.line if name != RAW]
    timed = staged.calls is not None and "latency.rerank" in staged.calls.columns
    only = later == ["rerank"] or (not later and timed)
    return "the reranker" if only else "what follows the retriever"


def raw_of(staged: Staged, cuts: Cuts) -> dict[str, dict[str, Any]] | None:
    """Return whether the raw lists hold the gold at all; None where there are none.

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

    def to_dict(self) -> dict[str, Any]:
        """Return the stage as plain data."""
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
    """Return every logged stage on the way to the final list, each against the one before."""
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
    """Return the figures with a mark on those that should have looked deeper."""
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
    """Return the step with what it changed."""
    old, new = (cut_at(hits, staged.gold, cuts) for hits in lists)
    found = paired((str(step.before), step.stage), (old, new), rule, k=k)
    same = any(overlap.identical for overlap in found.overlaps)
    return replace(step, change=found.rows, same=same)


def _corrected(steps: Sequence[Step], rule: Rule, alpha: float) -> list[Step]:
    """Correct the verdicts for the number of stages; the deciding measure is one family."""
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
        return judge_row(row, rule, alpha=alpha, identical=identical)

    return [
        replace(step, change=tuple(again(row, same=step.same) for row in step.change))
        for step in steps
    ]
