"""What is found out about gold and the runs it judges, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from karat.judging.pool_lists import Band, Residual
from karat.judging.pool_orders import SAME, Turned
from karat.judging.pool_pairs import Difference
from karat.judging.pool_sentences import LINES, is_fair, sentences


@dataclass(frozen=True, slots=True)
class Change:
    """A number now and otherwise, with the run's rank among all of them each time."""

    value: float | None
    other: float | None
    rank: int | None
    other_rank: int | None
    better: str

    @property
    def change(self) -> float | None:
        """The other less the one now; what lies within the error of adding up is none."""
        if self.value is None or self.other is None:
            return None
        change = self.other - self.value
        return change if abs(change) > SAME else 0.0

    @property
    def share(self) -> float | None:
        """The change as a share of the number now; None where that is 0."""
        return self.change / abs(self.value) if self.value and self.change is not None else None

    def document(self, other: str) -> dict[str, Any]:
        """The plain data of it, under the name of what is otherwise."""
        return {
            "value": self.value,
            other: self.other,
            "change": self.change,
            "share": self.share,
            "rank": self.rank,
            f"rank_{other}": self.other_rank,
            "better": self.better,
        }


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Gold without the judgments that of all given runs one alone has in its top.

    ``unique`` counts these and ``relevant`` those of them that are, ``emptied`` the queries that
    lose their last relevant item: they stay in every mean. ``taus`` and ``turned`` hold the order
    of all runs on the whole gold against the one on this gold.
    """

    unique: int
    relevant: int
    emptied: int
    measures: Mapping[str, Change]
    taus: Mapping[str, float | None]
    turned: Mapping[str, Sequence[Turned]]

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "unique": self.unique,
            "unique_relevant": self.relevant,
            "queries_emptied": self.emptied,
            "measures": {
                name: {
                    **one.document("without"),
                    "tau": self.taus[name],
                    "turned": [pair.document() for pair in self.turned[name]],
                }
                for name, one in self.measures.items()
            },
        }


@dataclass(frozen=True, slots=True)
class SystemBias:
    """One run: what is judged of it by rank, and its numbers on other gold and other lists."""

    system: str
    bands: Sequence[Band]
    left_out: LeftOut | None
    residual: Mapping[str, Residual | None]
    condensed: Mapping[str, Change]
    bpref: tuple[float | None, int | None]

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "name": self.system,
            "coverage": [
                {
                    "from": band.first,
                    "to": band.last,
                    "items": band.items,
                    "judged": band.judged,
                    "share": band.share,
                }
                for band in self.bands
            ],
            "left_out": self.left_out and self.left_out.document(),
            "residual": {name: one and _told(one) for name, one in self.residual.items()},
            "condensed": {
                "measures": {
                    name: one.document("condensed") for name, one in self.condensed.items()
                },
                "Bpref": dict(zip(("value", "rank"), self.bpref, strict=True)),
            },
        }


@dataclass(frozen=True, slots=True)
class Taus:
    """Kendall's tau of the order of the runs by one measure, now and otherwise.

    ``left_out`` is the lowest of those without what one run alone has, all runs on the same gold;
    ``each_without_own`` takes every run by its number without what it alone has, so each on other
    gold; ``condensed`` is of condensed lists. None where there is no order.
    """

    left_out: float | None
    each_without_own: float | None
    condensed: float | None


@dataclass(frozen=True, eq=False)
class Bias:
    """Every run, the orders they are in, and what that means.

    ``turned`` are the pairs of runs that condensed lists turn, ``differences`` all pairs, with how
    far apart judgments could put them by RBP.
    """

    depth: int
    measures: tuple[str, ...]
    gold: Mapping[str, int]
    systems: tuple[SystemBias, ...]
    taus: Mapping[str, Taus]
    turned: Mapping[str, Sequence[Turned]]
    differences: Mapping[str, Sequence[Difference]]

    def document(self) -> dict[str, Any]:
        """Everything as plain data, and the sentences that say what it means."""
        body = {
            "depth": self.depth,
            "measures": list(self.measures),
            "gold": dict(self.gold),
            "thresholds": dict(LINES),
            "systems": [one.document() for one in self.systems],
            "taus": {name: asdict(one) for name, one in self.taus.items()},
            "turned": {name: [one.document() for one in own] for name, own in self.turned.items()},
            "differences": {
                name: [one.document() for one in own] for name, own in self.differences.items()
            },
        }
        return {**body, "fair": is_fair(body), "sentences": sentences(body)}


def _told(one: Residual) -> dict[str, float]:
    return {"low": one.low, "high": one.high, "unjudged": one.unjudged, "beyond": one.beyond}
