"""What a system's figures could be, whatever the items are that nobody judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.errors import UsageError
from karat.measures.bounds.ranges import Range, range_of, why_unbounded
from karat.measures.bounds.unjudged import Listed, listed
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Mask
from karat.measures.scores import Scores

# Runs of more hits than this are bounded only where somebody asks for it.
MOST_HITS = 200_000

End = Literal["low", "high"]


@dataclass(frozen=True, eq=False)
class Open:
    """One system with the range of its measures over all labellings of its unjudged items.

    ``ranges`` are by measure; one that has none is left out. The queries that take part in a
    mean stay the same under every labelling.
    """

    listed: Listed
    ranges: Mapping[str, Range]

    @property
    def scores(self) -> Scores:
        """The system as it is now: what nobody judged is not relevant."""
        return self.listed.scores

    @property
    def unjudged(self) -> int:
        """How many of its items nobody judged, in the queries that any measure scores."""
        return int(self._scored[self.listed.unjudged.query].sum())

    @property
    def apart(self) -> int:
        """How many more there are in queries that no mean holds as they are now."""
        return len(self.listed.unjudged.query) - self.unjudged

    def entering(self, measure: str) -> Mask:
        """The queries that a judgment could bring into the mean.

        They have no relevant gold yet, so no range of this measure knows them.
        """
        queries = self.scores.status
        empty = np.isnan(self.ranges[measure].low) & (queries == "empty_gold").to_numpy()
        unjudged = np.bincount(self.listed.unjudged.query, minlength=len(queries))
        return np.asarray(empty & (unjudged > 0))

    @property
    def _scored(self) -> Mask:
        """The queries in the mean of any measure that has a range; of any, where none has one."""
        own = [one.low for one in self.ranges.values()]
        values = own or [self.scores.values(str(one)) for one in self._in_table]
        scored = np.zeros(self.scores.table.height, dtype=bool)
        for one in values:
            scored |= ~np.isnan(one)
        return scored

    @property
    def _in_table(self) -> list[Measure]:
        return [one for one in self.scores.measures if str(one) in self.scores.table.columns]

    def at(self, end: End) -> Scores:
        """The scores with every query at one end of its range.

        Where several measures are at that end at once, each is under a labelling of its own.
        """
        columns = {name: getattr(one, end) for name, one in self.ranges.items()}
        return with_columns(self.scores, columns)

    def document(self) -> dict[str, dict[str, Any]]:
        """The ends of each measure's range, as plain data."""
        everyone = np.ones(self.scores.table.height, dtype=bool)
        ends = {end: self.at(end) for end in ("low", "high")}
        return {
            str(one): {
                **{end: ends[end].number(one, everyone) for end in ends},
                "exact": self.ranges[str(one)].exact,
            }
            for one in self.scores.measures
            if str(one) in self.ranges
        }


def open_of(scores: Scores, gold: Prepared, measures: Sequence[Measure] | None = None) -> Open:
    """The ranges of a system whose lists were kept whole.

    >>> from karat.measures.names import parse_measures
    >>> from karat.measures.conventions import Conventions
    >>> from karat.measures.scores import prepare, score
    >>> from karat.tables import Gold, Run
    >>> gold = prepare(Gold.from_dict({"q": {"a": 1}}), Conventions())
    >>> run = Run.from_dict({"q": ["x", "a", "y"]})
    >>> found = open_of(score(run, gold, parse_measures("P@2, R@2"), keep=10), gold)
    >>> found.unjudged, found.document()["R@2"]
    (2, {'low': 0.5, 'high': 1.0, 'exact': True})
    """
    check_level(gold)
    one = listed(scores)
    wanted = scores.measures if measures is None else measures
    ranges = {
        str(measure): range_of(measure, one, gold)
        for measure in wanted
        if str(measure) not in scores.lacks and why_unbounded(measure, gold) is None
    }
    return Open(one, ranges)


def cut(scores: Scores, depth: int) -> Scores:
    """The scores with so many of the top items of each query; with none, no lists at all."""
    lists = scores.lists
    kept = None if not depth or lists is None else lists.filter(pl.col("rank") <= depth)
    return replace(scores, lists=kept)


def check_level(gold: Prepared) -> None:
    """Refuse gold that judges no items: nobody could say which items it leaves open."""
    level = gold.conventions.level
    if level != "item":
        raise UsageError(
            f"bounds are over judgments of items, and level={level} counts others;"
            " leave --bounds and --strict-bounds out, or take gold of items"
        )


def with_columns(scores: Scores, columns: Mapping[str, Values]) -> Scores:
    """The scores with other values for some measures, and nothing that contradicts them.

    What more judgments would make reachable is within reach, so ceilings rise with the values.
    """
    series = [
        pl.Series(name, values, dtype=pl.Float64, nan_to_null=True)
        for name, values in columns.items()
    ]
    ceilings = {
        name: (np.fmax(best[0], columns[name]), best[1]) if name in columns else best
        for name, best in scores.ceilings.items()
    }
    return replace(
        scores,
        table=scores.table.with_columns(series),
        ceilings=ceilings,
        tied={name: ends for name, ends in scores.tied.items() if name not in columns},
    )


def would_enter(many: int) -> str:
    """That judgments could bring so many queries into a mean."""
    queries = "1 query" if many == 1 else f"{many:,} queries"
    return f"{queries} without relevant gold would take part once a judgment brings some"
