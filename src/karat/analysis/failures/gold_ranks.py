"""Where each query's best-placed gold stands in every list on a run's way to its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from karat.analysis.top_lists import ranked_of
from karat.data.tables import Run
from karat.evaluation.stages import RAW, REORDERING, SIEVES, Staged
from karat.measure.aggregates import Values
from karat.measure.lists import ListNeeds
from karat.measure.prepare import Prepared
from karat.measure.rank import rank
from karat.measure.ranked import UNLIMITED, Ints, Mask
from karat.measure.scores import Scores


@dataclass(frozen=True, eq=False)
class BestGold:
    """The best-placed gold of every query in the lists of one stage.

    ``rank`` is infinite where a list holds none; ``row`` is the judgment's row in the gold and
    ``hit`` the place of the hit among the trace's facts, both -1 where there is none.
    """

    rank: Values
    row: Ints
    hit: Ints
    facts: pl.DataFrame
    returned: Ints

    def number(self, name: str) -> Values:
        """Return what the run logs of these hits, one number per query; NaN where it does not."""
        values = np.full(len(self.rank), np.nan)
        here = self.hit >= 0
        values[here] = self.facts[name].to_numpy()[self.hit[here]]
        return values


def best_gold(scores: Scores, gold: Prepared) -> BestGold:
    """Return the best-placed gold of every query in some lists."""
    ranked = ranked_of(scores)
    found, hits = ranked.found, ranked.hits
    (places,) = np.nonzero(found.relevant(gold.conventions.rel))
    query, first = np.unique(found.query[places], return_index=True)
    places = places[first]
    ranks = np.full(ranked.n, np.inf)
    row, hit = np.full(ranked.n, -1), np.full(ranked.n, -1)
    ranks[query] = found.rank[places]
    row[query] = places if found.row is None else found.row[places]
    # A span is found by a hit of its own.
    wide = int(max(hits.rank.max(initial=0), found.rank[places].max(initial=0))) + 1
    hit[query] = np.searchsorted(hits.query * wide + hits.rank, query * wide + found.rank[places])
    facts = pl.DataFrame() if scores.trace is None else scores.trace.facts
    return BestGold(ranks, row, hit, facts, ranked.returned)


@dataclass(frozen=True, eq=False)
class LastGold:
    """The best rank of gold in the last of some stages that logged a list for each query.

    ``at`` is the stage's place on the way, -1 where none of them logged a list.
    """

    rank: Values
    at: Ints

    @property
    def logged(self) -> Mask:
        """The queries for which one of the stages logged a list."""
        return self.at >= 0


@dataclass(frozen=True, eq=False)
class Way:
    """The lists from the retriever's own to the final one, and where gold stands in each.

    ``own`` marks the queries for which a stage logged a list, or passed on an empty one; for
    the others it shows what the next stage does, and nothing counts as a failure of it.
    """

    names: tuple[str, ...]
    lists: tuple[BestGold, ...]
    own: tuple[Mask, ...]
    final: BestGold

    @classmethod
    def of(cls, staged: Staged) -> Way:
        """Return where the best-placed gold of a run stands, from list to list."""
        lists = tuple(best_gold(scores, staged.gold) for scores in staged.line.values())
        own = tuple(
            _logged_by(staged, name) | (best.returned == 0)
            for name, best in zip(staged.line, lists, strict=True)
        )
        return cls(tuple(staged.line), lists, own, best_gold(staged.final, staged.gold))

    @property
    def first(self) -> BestGold:
        """The retriever's own lists, or the earliest that the log has."""
        return self.lists[0] if self.lists else self.final

    @cached_property
    def anywhere(self) -> Values:
        """The best rank of any gold in any of the lists."""
        return self.after(0)

    def after(self, at: int) -> Values:
        """Return the best rank from this stage on."""
        best: Values = np.min([best.rank for best in (*self.lists[at:], self.final)], axis=0)
        return best

    @cached_property
    def before(self) -> tuple[LastGold, ...]:
        """The last list logged before the stage at each place."""
        return tuple(self._last(self.names[:at]) for at in range(len(self.names)))

    @cached_property
    def taken_out(self) -> Mapping[str, Mask]:
        """By stage, the queries whose gold is in the list before it and in none after it."""
        nothing = np.zeros(len(self.final.rank), dtype=bool)
        return dict.fromkeys(SIEVES, nothing) | {
            name: self.own[at] & np.isfinite(self.before[at].rank) & ~np.isfinite(self.after(at))
            for at, name in enumerate(self.names)
        }

    @cached_property
    def lost_at_the_end(self) -> Mask:
        """The queries whose gold is in the last list logged and not in the final one."""
        return np.isfinite(self.last.rank) & ~np.isfinite(self.final.rank)

    @cached_property
    def last(self) -> LastGold:
        """The last list before the cut at k."""
        return self._last(self.names)

    @cached_property
    def sieved(self) -> LastGold:
        """The last list before anything reorders it."""
        return self._last((RAW, *SIEVES))

    @cached_property
    def reordered(self) -> LastGold:
        """The last list of a stage that reorders."""
        return self._last(REORDERING)

    def _last(self, names: Sequence[str]) -> LastGold:
        ranks = np.full(len(self.final.rank), np.inf)
        last = np.full(len(ranks), -1)
        for at, name in enumerate(self.names):
            if name in names:
                ranks = np.where(self.own[at], self.lists[at].rank, ranks)
                last = np.where(self.own[at], at, last)
        return LastGold(ranks, last)


def _logged_by(staged: Staged, stage: str) -> Mask:
    """Return the queries for which a stage has a list; all of them where the log does not say."""
    own = np.zeros(len(staged.gold.query_ids), dtype=bool)
    if stage not in staged.logged:
        return ~own
    codes = staged.gold.code_of(pl.Series(sorted(staged.logged[stage]), dtype=pl.String))
    own[codes[codes >= 0]] = True
    return own


@dataclass(frozen=True, eq=False)
class KeptOrder:
    """What the final lists keep of the last lists logged before them.

    ``in_order`` marks the queries whose final list has nothing but items of the list before
    it, in its order; ``above`` is the lowest rank there of a judged hit that stands above an
    item of the final list, 0 where none does. Queries that were not looked at are not marked.
    """

    in_order: Mask
    above: Ints


def kept_order(staged: Staged, way: Way, queries: Mask) -> KeptOrder:
    """Return what the final lists of some queries keep of the lists before them."""
    kept = KeptOrder(np.zeros(len(queries), dtype=bool), np.zeros(len(queries), dtype=np.int64))
    if staged.run is None or not queries.any():
        return kept
    judged = _judged_before(staged, way, queries)
    before, final = _last_two_lists(staged, staged.run, way, queries, judged)
    places = before.select("code", "item_id", place="rank")
    both = final.join(places, on=["code", "item_id"], how="left", maintain_order="left")
    # An item that was not in the list before it breaks the order, as place 0 does.
    code, place = both["code"].to_numpy(), both["place"].fill_null(0).to_numpy()
    same_list = np.concatenate(([False], code[1:] == code[:-1]))
    above = np.where(same_list, np.concatenate(([0], place[:-1])), 0)
    kept.in_order[queries] = True
    kept.in_order[code[place <= above]] = False
    lowest = np.zeros(len(queries), dtype=np.int64)
    np.maximum.at(lowest, code, place)
    stood = judged.join(places, on=["code", "item_id"])
    rows = stood["code"].to_numpy()
    over = stood["place"].to_numpy() < lowest[rows]
    np.maximum.at(kept.above, rows[over], stood["rank"].to_numpy()[over])
    return kept


def _judged_before(staged: Staged, way: Way, queries: Mask) -> pl.DataFrame:
    """Return the judged hits of each query's last list before the cut: code, item_id, rank."""
    frames = [pl.DataFrame(schema={"code": pl.Int64, "item_id": pl.String, "rank": pl.Int64})]
    for at, scores in enumerate(staged.line.values()):
        if scores.trace is not None:
            hits = scores.trace.ranked.hits
            here = queries[hits.query] & (way.last.at[hits.query] == at)
            items = scores.trace.facts["item_id"].filter(here)
            columns = {"code": hits.query[here], "item_id": items, "rank": hits.rank[here]}
            frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def _last_two_lists(
    staged: Staged, run: Run, way: Way, queries: Mask, judged: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the last lists before the cut and the final ones: code, rank, item_id.

    Of the former only judged items and those of the final list: only their order matters.
    """
    codes = np.flatnonzero(queries)
    ids = pl.Series(staged.gold.query_ids, dtype=pl.String)
    last = pl.DataFrame(
        {
            "query_id": ids.gather(codes),
            "code": codes,
            "last": [way.names[at] if at >= 0 else None for at in way.last.at[codes].tolist()],
        },
        schema_overrides={"last": pl.String},
    )
    hits = run.hits.join(last, on="query_id", maintain_order="left")
    final = hits.filter(pl.col("stage") == "final")
    before = hits.filter(pl.col("stage") == pl.col("last"))
    compared = pl.concat([frame.select("code", "item_id") for frame in (final, judged)])
    before = before.join(compared, on=["code", "item_id"], how="semi", maintain_order="left")
    conventions = replace(staged.gold.conventions, level="item", depth=None)
    gold = replace(staged.gold, conventions=conventions)

    def in_order(hits: pl.DataFrame) -> pl.DataFrame:
        lists = replace(run, hits=hits.drop("stage", "code", "last"), calls=None)
        block = rank(lists, gold, ListNeeds(frozenset({"list"}), UNLIMITED))
        listing = block.ranked.listing
        if listing is None:
            return judged.clear()
        ranks = {"code": block.codes[listing.query], "rank": listing.rank}
        return pl.DataFrame({**ranks, "item_id": listing.frame["item_id"]}).sort("code", "rank")

    return in_order(before), in_order(final)
