"""Parts of a fusion: what each list that was fused is worth, and what it alone finds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.analysis.staged import ORIGINAL, Staged
from karat.analysis.stages.cuts import Cuts, Reach, cells, cut_at, cuts_to, only_where, reach_of
from karat.analysis.stages.routing import chosen_sources
from karat.measures.ranked import Ints, Mask
from karat.measures.scores import Scores

Cells = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Part:
    """One list of those that were fused; ``within`` names the part that it is a list of.

    ``found`` counts the gold that it holds, ``alone`` what no other part holds, of the queries
    that several parts were asked; None for a list within a part.
    """

    measures: Cells
    queries: int
    found: int
    within: str | None = None
    alone: int | None = None

    def document(self) -> dict[str, Any]:
        """The part as it stands in a report."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts beside the list that was made of them, all looked at equally deep.

    ``gold`` counts all there is to find, ``together`` what any part holds, ``lost`` what a part
    holds and the fused list does not.
    """

    reach: Reach
    fused: Part
    parts: Mapping[str, Part]
    gold: int
    together: int
    lost: int

    def document(self) -> dict[str, Any]:
        """The parts as they stand in a report."""
        return {
            "depth": self.reach.document(),
            "fused": self.fused.document(),
            "parts": {name: one.document() for name, one in self.parts.items()},
            "gold": self.gold,
            "together": self.together,
            "lost": self.lost,
        }


def parts_of(staged: Staged, cuts: Cuts) -> Parts | None:
    """Each part beside the fused list; None where the log has none."""
    lists = _in_order({name: one for name, one in staged.beside.items() if name != ORIGINAL})
    if not lists:
        return None
    outer = [name for name in lists if _within(name, lists) is None]
    reach = reach_of(staged, [staged.raw, *(lists[name] for name in outer)], cuts.depth)
    asked = {name: _asked(staged, name, lists) for name in lists}
    held = {name: _held(one, reach.used, asked[name]) for name, one in lists.items()}
    alone = _alone(staged, [held[name] for name in outer], [asked[name] for name in outer])
    everyone = np.ones(len(staged.gold.query_ids), dtype=bool)
    in_fused = _held(staged.raw, reach.used, everyone)
    in_parts = np.unique(np.concatenate([held[name] for name in outer]))
    parts = {
        name: Part(
            _measured(staged, one, cuts, reach, asked[name]),
            queries=int(asked[name].sum()),
            found=len(held[name]),
            within=_within(name, lists),
            alone=dict(zip(outer, alone, strict=True)).get(name),
        )
        for name, one in lists.items()
    }
    return Parts(
        reach,
        Part(
            _measured(staged, staged.raw, cuts, reach, everyone),
            queries=len(everyone),
            found=len(in_fused),
        ),
        parts,
        gold=int((staged.gold.grade >= staged.gold.conventions.rel).sum()),
        together=len(in_parts),
        lost=len(np.setdiff1d(in_parts, in_fused)),
    )


def _in_order(lists: Mapping[str, Scores]) -> dict[str, Scores]:
    """Each part before the lists within it."""
    order: list[str] = []
    for name in lists:
        inside = _within(name, lists)
        around = [] if inside is None else [inside]
        order += [one for one in (*around, name) if one not in order]
    return {name: lists[name] for name in order}


def _within(name: str, lists: Collection[str]) -> str | None:
    """The part whose own list it is: ``hybrid.bm25`` is one of ``hybrid``."""
    around = [other for other in lists if name.startswith(f"{other}.")]
    return max(around, key=len, default=None)


def _asked(staged: Staged, name: str, lists: Collection[str]) -> Mask:
    """The queries that a part was asked: all, unless a router chose among the parts."""
    inside = _within(name, lists)
    own = _short(name, inside)
    siblings = {_short(one, inside) for one in lists if _within(one, lists) == inside}
    chosen = chosen_sources(staged)
    here = np.array([own in some or not siblings & {*some} for some in chosen], dtype=bool)
    return here if inside is None else here & _asked(staged, inside, lists)


def _short(name: str, inside: str | None) -> str:
    return name if inside is None else name.removeprefix(f"{inside}.")


def _measured(
    staged: Staged, scores: Scores, cuts: Cuts, reach: Reach, asked: Mask
) -> dict[str, dict[str, Any]]:
    wanted = {one: one for one in cuts.chosen} | cuts_to(cuts.deep[:1], reach.used)
    return cells(only_where(cut_at(scores, staged.gold, wanted), asked))


def _held(scores: Scores, k: int, asked: Mask) -> Ints:
    """The gold in the top k of some lists, by its place among all judgments."""
    if scores.trace is None:
        return np.empty(0, dtype=np.int64)
    ranked = scores.trace.ranked
    found = ranked.found
    mask = ranked.top_found(k) & found.relevant(scores.conventions.rel) & asked[found.query]
    rows = np.zeros(len(mask), dtype=np.int64) if found.row is None else found.row
    return np.unique(rows[mask])


def _alone(staged: Staged, held: list[Ints], asked: list[Mask]) -> list[int]:
    """How much gold each part holds that no other does, where several were asked."""
    several = np.sum(asked, axis=0) > 1
    owner = staged.gold.rows["code"].to_numpy()
    times = np.zeros(len(owner), dtype=np.int64)
    for rows in held:
        times[rows] += 1
    return [int(((times[rows] == 1) & several[owner[rows]]).sum()) for rows in held]
