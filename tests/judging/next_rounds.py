"""Judgments that are hidden and revealed one by one, in the order of ``karat next`` or any other.

What nobody has revealed yet counts as not relevant, as it does in an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Gold, Run
from karat.label.next_judgments import candidates, judged_items, most_informative
from karat.measure.conventions import conventions_of
from karat.measure.evaluate_measure import values_of
from karat.measure.judgment_effects import effects
from karat.measure.names import parse_measure
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranges import Listed, difference_range, in_common, judged_more, listed
from karat.measure.score_builder import score
from karat.stats.paired import randomisation

Order = Sequence[int]
Floats = NDArray[np.float64]
ALPHA = 0.05
# Steps whose tests run together.
_TOGETHER = 100


@dataclass(frozen=True, eq=False)
class Hidden:
    """Two runs and grades that nobody knows yet; a pair that has none is not relevant.

    A pair is known by its place among all that the two runs return, by query and item.
    """

    first: Run
    second: Run
    query_ids: tuple[str, ...]
    grades: Mapping[tuple[str, str], float]
    measure: str = "nDCG@10"
    resamples: int = 10_000

    def at(self, revealed: Iterable[int]) -> tuple[Listed, Listed, Prepared]:
        """Both runs against what is revealed so far."""
        return self._against([(*self.pairs[at], self.truth[at]) for at in revealed])

    def _against(self, rows: Sequence[tuple[str, str, float]]) -> tuple[Listed, Listed, Prepared]:
        schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        gold = Gold.from_frame(frame, query_ids=self.query_ids)
        prepared = prepare(gold, conventions_of("karat", {"empty_gold": "zero"}))
        measure = [parse_measure(self.measure)]
        first, second = (
            listed(score(run, prepared, measure, keep=1 << 31)) for run in (self.first, self.second)
        )
        return first, second, prepared

    @cached_property
    def _nothing(self) -> tuple[Listed, Listed, Prepared]:
        return self._against([])

    @cached_property
    def _common(self):
        return in_common(*self._nothing[:2])

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Everything that either of the two returned."""
        queries = (self.query_ids[at] for at in self._common.query)
        return list(zip(queries, self._common.item_id, strict=True))

    @cached_property
    def truth(self) -> Floats:
        """The grade of each pair."""
        return np.array([self.grades.get(pair, 0.0) for pair in self.pairs])

    def differences(self, order: Order) -> Floats:
        """The difference of each query (columns) before and after each judgment (rows)."""
        first, second, prepared = self._nothing
        steps = np.array(order)
        query = self._common.query[steps]
        # Step t repeats the list of its query, with all that is revealed of it up to then.
        lists, rows = np.nonzero((query[:, None] == query) & np.tri(len(steps), dtype=bool))
        moved = np.zeros(len(steps))
        for one, ranks, sign in (
            (first, self._common.first, -1.0),
            (second, self._common.second, 1.0),
        ):
            more = judged_more(
                one.ranked, query, lists, ranks[steps][rows], self.truth[steps][rows]
            )
            moved += sign * values_of(parse_measure(self.measure), more, prepared)
        found = np.zeros((len(steps) + 1, len(self.query_ids)))
        for step, (at, value) in enumerate(zip(query, moved, strict=True), 1):
            found[step] = found[step - 1]
            found[step, at] = value
        return found

    def verdicts(self, differences: Floats) -> NDArray[np.int64]:
        """1 for better, -1 for worse, 0 for neither, for each row."""
        p = randomisation(np.ascontiguousarray(differences.T), resamples=self.resamples)
        sums = differences.sum(axis=1)
        return np.where(p < ALPHA, np.sign(sums), 0.0).astype(np.int64)

    @cached_property
    def final(self) -> int:
        """The verdict once everything is revealed."""
        everything = range(len(self.pairs))
        return int(self.verdicts(self.differences(everything)[-1:])[0])

    def reached(self, order: Order) -> int:
        """After how many judgments the verdict is the final one and stays so."""
        differences = self.differences(order)
        sums = differences.sum(axis=1)
        scale = np.sqrt((differences**2).sum(axis=1))
        # Random signs take a sum beyond 2.72 times this with a chance below 0.05 (Hoeffding), and
        # beyond once this with one well above it: no such row needs a test.
        surely = np.abs(sums) > 2.72 * scale
        right = np.sign(sums) == self.final
        wrong = (np.abs(sums) <= scale) | ~right
        last = int(np.flatnonzero(wrong)[-1]) + 1 if wrong.any() else 0
        unsure = np.flatnonzero(right & ~wrong & ~surely)
        unsure = unsure[unsure >= last]
        for end in range(len(unsure), 0, -_TOGETHER):
            some = unsure[max(0, end - _TOGETHER) : end]
            failed = some[self.verdicts(differences[some]) != self.final]
            if len(failed):
                return int(failed[-1]) + 1
        return last

    def settled(self, order: Order) -> int:
        """After how many judgments no labels of the rest could change the final verdict.

        Fewer labels are possible with every judgment, so that this is found by halving.
        """
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            if self._is_settled(order[:middle]):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_settled(self, revealed: Order) -> bool:
        first, second, prepared = self.at(revealed)
        found = difference_range(parse_measure(self.measure), first, second, prepared)
        worst = found.low if self.final > 0 else found.high
        return bool(self.verdicts(worst[None])[0] == self.final)

    def by_next(self, count: int = 20) -> list[int]:
        """All pairs in the order in which ``karat next`` asks for them, so many at a time."""
        place = {pair: at for at, pair in enumerate(self.pairs)}
        order: list[int] = []
        while len(order) < len(self.pairs):
            first, second, prepared = self.at(order)
            pairs = effects(parse_measure(self.measure), [first, second], prepared)
            judged = judged_items([first.scores, second.scores], prepared.conventions.rel)
            unjudged = candidates(pairs, judged, len(self.query_ids))
            chosen = most_informative(unjudged, count, sides=True)
            if chosen.is_empty():
                # Nothing that is left changes anything by itself.
                rest = sorted(set(range(len(self.pairs))).difference(order))
                return order + rest
            rows = chosen.select("query", "item_id").iter_rows()
            order += [place[self.query_ids[query], item] for query, item in rows]
        return order
