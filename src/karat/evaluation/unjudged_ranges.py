"""What a system's figures could be, whatever the items are that nobody judged."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.data.tables import Blocks, Run
from karat.errors import UsageError
from karat.measures.aggregates import Values
from karat.measures.names import Measure
from karat.measures.prepare import Prepared
from karat.measures.ranges import Listed, Range, listed, range_of, why_unbounded
from karat.measures.ranked import Mask
from karat.measures.score_builder import score
from karat.measures.scores import Scores

# Runs of more hits than this have ranges only if somebody asks for them.
MOST_HITS = 200_000
# A file of more bytes than this has too many hits.
_MOST_BYTES = 20_000_000
_TOO_MANY = "bounds are told of runs of up to 200,000 hits; --bounds tells them of these too"
# Deeper than any list.
WHOLE_LISTS = 1 << 31

End = Literal["low", "high"]


@dataclass(frozen=True, eq=False)
class ScoreRanges:
    """One system with the range of its measures over all labellings of its unjudged items.

    ``ranges`` are by measure; one that has none is left out. The queries that take part in a
    mean stay the same under every labelling.
    """

    listed: Listed
    ranges: Mapping[str, Range]

    @property
    def scores(self) -> Scores:
        """Return the system as it is now: what nobody judged is not relevant."""
        return self.listed.scores

    @property
    def unjudged(self) -> int:
        """Return how many of its items nobody judged, in the queries that any measure scores."""
        return int(self._scored[self.listed.unjudged.query].sum())

    @property
    def apart(self) -> int:
        """Return how many more there are in queries that no mean holds as they are now."""
        return len(self.listed.unjudged.query) - self.unjudged

    def entering(self, measure: str) -> Mask:
        """Return the queries that a judgment could bring into the mean.

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
        """Return the scores with every query at one end of its range.

        Where several measures are at that end at once, each is under a labelling of its own.
        """
        columns = {name: getattr(one, end) for name, one in self.ranges.items()}
        return with_columns(self.scores, columns)

    def document(self) -> dict[str, dict[str, Any]]:
        """Return the ends of each measure's range, as plain data."""
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


def ranges_of(
    scores: Scores, gold: Prepared, measures: Sequence[Measure] | None = None
) -> ScoreRanges:
    """Return the ranges of a system whose lists were kept whole.

    >>> from karat.measures.names import parse_measures
    >>> from karat.measures.conventions import Conventions
    >>> from karat.measures.score_builder import score
    >>> from karat.measures.prepare import prepare
    >>> from karat.data.tables import Gold, Run
    >>> gold = prepare(Gold.from_dict({"q": {"a": 1}}), Conventions())
    >>> run = Run.from_dict({"q": ["x", "a", "y"]})
    >>> found = ranges_of(score(run, gold, parse_measures("P@2, R@2"), keep=10), gold)
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
    return ScoreRanges(one, ranges)


def cut(scores: Scores, depth: int) -> Scores:
    """Return the scores with so many of the top items of each query; with none, no lists at all."""
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
    """Return the scores with other values for some measures, and nothing that contradicts them.

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


@dataclass(eq=False)
class RangeCollector:
    """Decides whether runs get ranges, and keeps their whole lists while they are scored.

    ``asked`` says that somebody wants ranges whatever they cost, ``wanted`` that there will be
    some unless there turn out to be too many hits. ``left_out`` says why there are none.
    """

    wanted: bool
    asked: bool
    left_out: str | None = None
    _whole: list[Scores] = field(default_factory=list)

    @classmethod
    def of(
        cls, runs: Sequence[Any], gold: Prepared, *, bounds: bool | None, strict: bool
    ) -> RangeCollector:
        """Decide by what was asked for, the size of the files, and what the gold judges."""
        if strict and bounds is False:
            raise UsageError("--strict-bounds decides by bounds; leave --no-bounds out")
        asked = bool(bounds) or strict
        if asked:
            check_level(gold)
        if bounds is False or (not asked and gold.conventions.level != "item"):
            return cls(wanted=False, asked=False)
        files = [Path(run) for run in runs if isinstance(run, str | os.PathLike)]
        large = any(file.is_file() and file.stat().st_size > _MOST_BYTES for file in files)
        if large and not asked:
            return cls(wanted=False, asked=False, left_out=_TOO_MANY)
        return cls(wanted=True, asked=asked)

    def whole(self, run: Run | Blocks, scores: Scores, gold: Prepared) -> Scores:
        """Return the scores with the whole lists of their run."""
        lists = score(run, gold, (), keep=WHOLE_LISTS, derived=True).lists
        return replace(scores, lists=lists)

    def cut(self, whole: Scores, keep: int) -> Scores:
        """Return the scores with as much of their lists as the report needs."""
        return cut(whole, keep)

    def take(self, whole: Scores | None) -> None:
        """Keep whole lists; give up if there are too many hits and nobody asked for ranges."""
        if whole is None or not self.wanted:
            return
        self._whole.append(whole)
        hits = sum(0 if scores.lists is None else scores.lists.height for scores in self._whole)
        if hits > MOST_HITS and not self.asked:
            self.wanted, self.left_out = False, _TOO_MANY
            self._whole.clear()

    def ranges(self, gold: Prepared) -> tuple[ScoreRanges | None, ...]:
        """Return the ranges of every run, if they are wanted."""
        if not self.wanted:
            return ()
        return tuple(
            None if scores.lists is None else ranges_of(scores, gold) for scores in self._whole
        )
