"""How deep the lists of a stage are looked at, and their scores at other cut-offs.

A list says nothing of what lies below its end: a value there would count what nobody looked
for as not found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.staged import Staged
from karat.measures.names import Measure
from karat.measures.prepare import Prepared
from karat.measures.ranked import Mask, ideal_of
from karat.measures.scores import Scores
from karat.measures.valuing import values_of

LINKING = Measure("EL_F1")


@dataclass(frozen=True, slots=True)
class Cuts:
    """What stages are held against: measures of the top k, the first of which decides.

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
class Reach:
    """How deep one wanted to look, and how deep the lists let one."""

    asked: int
    used: int
    beyond_log: bool

    def document(self) -> dict[str, Any]:
        """The cut-off as it stands in a report."""
        return {"asked": self.asked, "used": self.used, "beyond_log": self.beyond_log}


def reach_of(staged: Staged, lists: Iterable[Scores], k: int) -> Reach:
    """The deepest cut-off up to k that all of these lists can be judged at."""
    depths = [staged.depth(one) for one in lists]
    used = min((max(1, one.known) for one in depths if not one.reaches(k)), default=k)
    return Reach(k, used, beyond_log=used < k)


def fair_cut(staged: Staged, k: int) -> Reach:
    """Where raw and final lists can be compared: not below where either was cut."""
    return reach_of(staged, [staged.raw, staged.final], k)


def fair_cuts(staged: Staged, cuts: Cuts) -> dict[Measure, Measure]:
    """The chosen measures, each where raw and final lists can be compared."""
    found: dict[Measure, Measure] = {}
    for one in cuts.chosen:
        k = fair_cut(staged, one.k).used if isinstance(one.k, int) else cuts.k
        found |= cuts_to([one], k)
    return found


def cuts_to(measures: Iterable[Measure], k: int) -> dict[Measure, Measure]:
    """Each measure at no deeper a cut-off than k; one that needs whole lists stays as it is."""
    return {
        one: replace(one, k=k) if isinstance(one.k, int) and one.k > k and _by_ranks(one) else one
        for one in measures
    }


def _by_ranks(measure: Measure) -> bool:
    """Whether the ranks of judged hits are all that it takes."""
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
    """The scores of the marked queries; those of the others take no part."""
    names = [str(measure) for measure in scores.measures]
    own = pl.Series("own", mask)
    kept = scores.table.with_columns(pl.when(own).then(pl.col(name)) for name in names)
    return replace(scores, table=kept)


def cells(scores: Scores, mask: Mask | None = None) -> dict[str, dict[str, Any]]:
    """Each measure's mean and interval, and over how many queries: all, or the marked ones."""
    everyone = np.ones(scores.table.height, dtype=bool)
    found = scores.summarise(everyone if mask is None else mask)
    return {
        name: {"mean": one.mean, "ci": None if one.ci is None else list(one.ci), "n": one.n}
        for name, one in found.items()
    }


def plain(value: Any) -> Any:
    """Data as JSON can hold it: lists for tuples, null for what is no number."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
