"""How much a measure drops when lists are damaged: the same queries before and after, paired.

Which lists are damaged, and by whom they are made again, is not decided here: a scenario comes
with the lists before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from karat.analysis.compare import compare_scores
from karat.analysis.comparison import Comparison
from karat.analysis.contenders import Contender
from karat.analysis.segments import CROSS
from karat.analysis.stress.edits import Edit, Edited
from karat.analysis.stress.terms import Terms
from karat.analysis.verdicts import Rule
from karat.measures.intervals import Interval, plan_of
from karat.measures.numbers import Values
from karat.measures.scores import score
from karat.stats.corrections import holm
from karat.stats.means import mean_intervals
from karat.tables import Run


@dataclass(frozen=True, eq=False)
class Lists:
    """What came of some lists: a run in their order, the final items of each, and failures."""

    run: Run
    final: Mapping[str, Sequence[str]]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fall:
    """What a measure was before and after; ``drop`` is how much worse it got, whichever way.

    ``worse``, ``same`` and ``better`` count queries.
    """

    before: float | None
    after: float | None
    drop: float | None
    ci: Interval
    p: float | None
    p_adjusted: float | None
    n: int
    worse: int
    same: int
    better: int

    @classmethod
    def of(cls, row: Comparison) -> Fall:
        """The comparison of after with before, read as a drop."""
        sign = 1.0 if row.better == "lower" else -1.0
        ends = None if row.ci is None else sorted(sign * end + 0.0 for end in row.ci)
        return cls(
            before=row.baseline_mean,
            after=row.system_mean,
            drop=None if row.delta is None else sign * row.delta + 0.0,
            ci=None if ends is None else (ends[0], ends[1]),
            p=row.p,
            p_adjusted=row.p_adjusted,
            n=row.n,
            worse=row.losses,
            same=row.ties,
            better=row.wins,
        )

    def document(self) -> dict[str, Any]:
        """The drop as it stands in a report."""
        told = {name: _plain(getattr(self, name)) for name in self.__slots__}
        return {**told, "ci": None if self.ci is None else [_plain(end) for end in self.ci]}


@dataclass(frozen=True, slots=True)
class Fate:
    """Where the negatives ended that were put in: the shares of a query's, over the queries.

    ``before`` is the share that stood in the top without being put there, ``returned`` the share
    anywhere in the final list; ``mean_rank`` is that of the negatives returned.
    """

    top: int
    in_top: float | None
    ci: Interval
    before: float | None
    returned: float | None
    mean_rank: float | None

    def document(self) -> dict[str, Any]:
        """The fate as it stands in a report."""
        told = {name: _plain(getattr(self, name)) for name in self.__slots__}
        return {**told, "ci": None if self.ci is None else [_plain(end) for end in self.ci]}


@dataclass(frozen=True, eq=False)
class Stressed:
    """What one edit did: the drop of each measure, and what happened to the lists.

    ``lists`` holds every list that was edited and could be made again; a query into which no
    negative could be put is left out and counted as ``without``, one whose call failed as
    ``failed``.
    """

    edit: Edit
    lists: Mapping[str, Edited]
    without: int
    failed: int
    falls: Mapping[str, Fall]
    segments: Mapping[str, Mapping[str, Mapping[str, Fall]]] = field(default_factory=dict)
    fate: Fate | None = None

    def document(self) -> dict[str, Any]:
        """The scenario as it stands in a report."""
        told: dict[str, Any] = {
            "scenario": self.edit.name,
            "edit": self.edit.document(),
            "edited": sum(one.changed for one in self.lists.values()),
            "short": sum(one.short for one in self.lists.values()),
            "failed": self.failed,
            "measures": {name: fall.document() for name, fall in self.falls.items()},
        }
        if self.segments:
            told["segments"] = {
                column: {
                    value: {name: fall.document() for name, fall in falls.items()}
                    for value, falls in values.items()
                }
                for column, values in self.segments.items()
            }
        if self.fate is not None:
            told |= {
                "without_negatives": self.without,
                "inserted": sum(len(one.placed) for one in self.lists.values()),
                "moved": sum(one.moved for one in self.lists.values()),
                "gold_refused": sum(one.refused for one in self.lists.values()),
                "at_the_end": sum(one.beyond for one in self.lists.values()),
                "negatives": self.fate.document(),
            }
        return told


def stress(
    edit: Edit, edited: Mapping[str, Edited], before: Lists, after: Lists, terms: Terms
) -> Stressed:
    """How much an edit costs, over the queries that could be edited and made again."""
    inserting = edit.document()["kind"] == "insert"
    touched = {name: one for name, one in edited.items() if one.placed or not inserting}
    kept = {name: one for name, one in touched.items() if name not in after.failed}
    rows = _compared(before.run, after.run, list(kept), terms) if kept else []
    falls = {row.measure: Fall.of(row) for row in rows if row.segment is None}
    return Stressed(
        edit,
        kept,
        without=len(edited) - len(touched),
        failed=len(touched) - len(kept),
        falls=falls or {str(measure): _NOTHING for measure in terms.measures},
        segments=_by_segment(rows),
        fate=_fate(kept, before.final, after.final, terms) if inserting else None,
    )


_NOTHING = Fall(None, None, None, None, None, None, 0, 0, 0, 0)


def corrected(scenarios: Sequence[Stressed]) -> list[Stressed]:
    """The scenarios with p corrected for how many are shown: the first measure is one family."""
    cells = [(at, name) for at, one in enumerate(scenarios) for name in one.falls]
    adjusted: dict[tuple[int, str], float | None] = {}
    for primary in (True, False):
        family = [
            (at, name) for at, name in cells if (name == next(iter(scenarios[at].falls))) == primary
        ]
        found = holm([scenarios[at].falls[name].p for at, name in family])
        adjusted |= dict(zip(family, found, strict=True))
    return [
        replace(
            one,
            falls={
                name: replace(fall, p_adjusted=adjusted[at, name])
                for name, fall in one.falls.items()
            },
        )
        for at, one in enumerate(scenarios)
    ]


def _compared(before: Run, after: Run, query_ids: Sequence[str], terms: Terms) -> list[Comparison]:
    """After against before on these queries alone, overall and by segment."""
    # What ranks a run has been decided: an edited list has the order that it was given.
    gold = terms.on(query_ids, order="rank")
    contenders = [
        Contender(name, (score(run, gold, terms.measures, derived=True),))
        for name, run in (("before", before), ("after", after))
    ]
    found = compare_scores(contenders, Rule(), queries=terms.queries, by=terms.by)
    return list(found.rows)


def _by_segment(rows: Sequence[Comparison]) -> dict[str, dict[str, dict[str, Fall]]]:
    segments: dict[str, dict[str, dict[str, Fall]]] = {}
    for row in rows:
        if row.segment:
            column, value = CROSS.join(row.segment), CROSS.join(row.segment.values())
            own = segments.setdefault(column, {}).setdefault(value, {})
            own[row.measure] = Fall.of(row)
    return segments


def _fate(
    edited: Mapping[str, Edited],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
    terms: Terms,
) -> Fate:
    """Where the negatives stand in the final lists."""
    top = terms.top
    ranks: list[int] = []
    shares: list[list[float]] = []
    for name, one in edited.items():
        found = {item: rank for rank, item in enumerate(after[name], 1) if item in one.placed}
        ranks += found.values()
        counts = (
            sum(rank <= top for rank in found.values()),
            sum(item in one.placed for item in before[name][:top]),
            len(found),
        )
        shares.append([count / len(one.placed) for count in counts])
    if not shares:
        return Fate(top, None, None, None, None, None)
    table = np.array(shares)
    in_top, earlier, returned = (math.fsum(column) / len(column) for column in table.T.tolist())
    return Fate(
        top,
        in_top=in_top,
        ci=_interval(table[:, :1], list(edited), terms),
        before=earlier,
        returned=returned,
        mean_rank=math.fsum(ranks) / len(ranks) if ranks else None,
    )


def _interval(column: Values, query_ids: Sequence[str], terms: Terms) -> Interval:
    """The interval of a mean share; conversations are drawn whole where queries belong to some."""
    if terms.conventions.interval == "none":
        return None
    gold = terms.on(query_ids)
    groups = None
    if gold.group is not None:
        groups = gold.group[[gold.numbers[name] for name in query_ids]]
    plan = plan_of(terms.conventions)
    ((low, high),) = mean_intervals(column, plan, ranges=[(0.0, 1.0)], groups=groups).tolist()
    return None if math.isnan(low) else (low, high)


def _plain(value: Any) -> Any:
    """JSON knows no NaN: what could not be measured is null."""
    return None if isinstance(value, float) and math.isnan(value) else value
