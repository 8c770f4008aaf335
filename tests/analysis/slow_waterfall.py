"""The losses of one query worked out list by list, from formulas written down again here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slow_failures import REORDERING, SmallWorld

Places = Sequence[tuple[int, float]]


def value_of(measure: str, places: Places, grades: Sequence[float]) -> float:
    """A measure of gold at some ranks: of each the rank and the grade, the best rank first."""
    name, _, cut = measure.partition("@")
    k = int(cut) if cut else 10**9
    top = [(rank, grade) for rank, grade in places if rank <= k]
    if name == "Hit":
        return float(bool(top))
    if name == "R":
        return len(top) / len(grades)
    if name == "RR":
        return max((1 / rank for rank, _ in top), default=0.0)
    if name == "AP":
        return sum(at / rank for at, (rank, _) in enumerate(top, 1)) / len(grades)
    ideal = sorted(grades, reverse=True)[:k]
    gains = sum(grade / math.log2(rank + 1) for rank, grade in top)
    return gains / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, 1))


class Losses:
    """What the parts cost for one measure of a small world."""

    def __init__(self, world: SmallWorld, measure: str) -> None:
        self.world, self.measure = world, measure

    def parts(self, name: str) -> Mapping[str, float]:
        """The ceiling of a query, what each part costs, and what is left."""
        world = self.world
        own = {unit: float(grade) for unit, grade in world.gold[name].items() if grade > 0}
        final, chain = world.logged(name, "final"), world.chain(name)
        ceiling = self.best(own, own)
        if name not in world.answered():
            return {"ceiling": ceiling, "calls": ceiling, "value": 0.0}
        lists = [items for _, items in chain] or [final]
        known = {world.unit(item) for item in world.in_corpus}
        for items in (*lists, final, world.logged(name, "original")):
            known |= {world.unit(item) for item in items}
        reachable = self.best(own, known) if world.with_corpus else ceiling
        before = [items for stage, items in chain if stage not in REORDERING]
        sieved = before[-1] if before else lists[0]
        after = [items for stage, items in chain if stage in REORDERING]
        raw, could = self.best_of(own, lists[0]), self.best_of(own, sieved)
        value = self.as_it_is(own, final)
        found = {"ceiling": ceiling, "index": ceiling - reachable, "value": value}
        found["retriever"] = reachable - raw
        if after:
            found["filters"] = raw - could
            found["reranker"] = self.as_it_is(own, sieved) - self.as_it_is(own, after[-1])
        elif self.in_order(sieved, final):
            # What was taken out is missing above the last item kept, what was cut off below it.
            tail = sieved[sieved.index(final[-1]) + 1 :] if final else []
            found["filters"] = raw - self.best_of(own, [*final, *tail])
        else:
            found["filters"] = raw - could
            found["reranker"] = self.as_it_is(own, sieved) - value
        losses = [found.get(part, 0.0) for part in ("index", "retriever", "filters", "reranker")]
        return found | {"cut_off": ceiling - sum(losses) - value}

    def in_order(self, before: Sequence[str], after: Sequence[str]) -> bool:
        rest = iter(before)
        return all(item in rest for item in after)

    def as_it_is(self, own: Mapping[str, float], items: Sequence[str]) -> float:
        seen: dict[str, int] = {}
        for rank, item in enumerate(items, 1):
            seen.setdefault(self.world.unit(item), rank)
        places = [(rank, own[unit]) for unit, rank in seen.items() if unit in own]
        return value_of(self.measure, places, list(own.values()))

    def best_of(self, own: Mapping[str, float], items: Sequence[str]) -> float:
        return self.best(own, {self.world.unit(item) for item in items})

    def best(self, own: Mapping[str, float], units: object) -> float:
        grades = sorted((grade for unit, grade in own.items() if unit in units), reverse=True)
        return value_of(self.measure, [*enumerate(grades, 1)], list(own.values()))
