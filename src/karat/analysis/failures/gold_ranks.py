"""Where each query's best-placed gold stands in every list on a run's way to its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from karat.data.tables import Run
from karat.errors import UsageError
from karat.evaluation.stages import RAW, REORDERING, SIEVES, Staged
from karat.measures.aggregates import Values
from karat.measures.lists import ListNeeds
from karat.measures.prepare import Prepared, short_hash
from karat.measures.rank import rank
from karat.measures.ranked import UNLIMITED, Ints, Mask, Ranked
from karat.measures.scores import Scores

# The rank of what is in no list.
ABSENT = np.inf


@dataclass(frozen=True, eq=False)
class Best:
    """The best-placed gold of every query in the lists of one stage.

    ``rank`` is ABSENT where a list holds none; ``row`` is the judgment's row in the gold and
    ``hit`` the place of the hit among the trace's facts, both -1 where there is none.
    """

    rank: Values
    row: Ints
    hit: Ints
    facts: pl.DataFrame
    returned: Ints

    def number(self, name: str) -> Values:
        """Return what the run says of these hits, a number each; NaN where it says nothing."""
        told = np.full(len(self.rank), np.nan)
        here = self.hit >= 0
        told[here] = self.facts[name].to_numpy()[self.hit[here]]
        return told


@dataclass(frozen=True, eq=False)
class Last:
    """For each query the last of some stages that logged a list for it.

    ``at`` is the stage's place on the way, -1 where none of them did.
    """

    rank: Values
    at: Ints

    @property
    def there(self) -> Mask:
        """The queries for which one of the stages logged a list."""
        return self.at >= 0


@dataclass(frozen=True, eq=False)
class Way:
    """The lists from the retriever's own to the final one, and where gold stands in each.

    ``own`` marks the queries for which a stage logged a list, or passed on an empty one; for
    the others it shows what the next stage does, and nothing counts as a failure of it.
    """

    names: tuple[str, ...]
    lists: tuple[Best, ...]
    own: tuple[Mask, ...]
    final: Best

    @property
    def first(self) -> Best:
        """The retriever's own lists, or as early ones as the log has."""
        return self.lists[0] if self.lists else self.final

    @cached_property
    def anywhere(self) -> Values:
        """The best rank of any gold in any of the lists."""
        return self.after(0)

    def before(self, at: int) -> Last:
        """Return the last list logged before the stage at this place."""
        return self._last(range(at))

    def after(self, at: int) -> Values:
        """Return the best rank from this stage on."""
        ranks = [best.rank for best in (*self.lists[at:], self.final)]
        best: Values = np.stack(ranks).min(axis=0)
        return best

    @cached_property
    def last(self) -> Last:
        """The last list before the cut at k."""
        return self._last(range(len(self.names)))

    @cached_property
    def sieved(self) -> Last:
        """The last list before anything put it in another order."""
        return self._last(self._places((RAW, *SIEVES)))

    @cached_property
    def reordered(self) -> Last:
        """The last list of a stage that puts items in another order."""
        return self._last(self._places(REORDERING))

    def _places(self, names: tuple[str, ...]) -> list[int]:
        return [at for at, name in enumerate(self.names) if name in names]

    def _last(self, places: range | list[int]) -> Last:
        rank = np.full(len(self.final.rank), ABSENT)
        found = np.full(len(rank), -1)
        for at in places:
            rank = np.where(self.own[at], self.lists[at].rank, rank)
            found = np.where(self.own[at], at, found)
        return Last(rank, found)


def way_of(staged: Staged) -> Way:
    """Return where the best-placed gold stands, from list to list."""
    gold = staged.gold
    lists = tuple(best_in(scores, gold) for scores in staged.line.values())
    own = tuple(
        _own(staged, name) | (best.returned == 0)
        for name, best in zip(staged.line, lists, strict=True)
    )
    return Way(tuple(staged.line), lists, own, best_in(staged.final, gold))


def _own(staged: Staged, stage: str) -> Mask:
    """Return the queries for which a stage has a list; all of them where nobody noted which."""
    own = np.zeros(len(staged.gold.query_ids), dtype=bool)
    if stage not in staged.logged:
        return ~own
    codes = staged.gold.code_of(pl.Series(sorted(staged.logged[stage]), dtype=pl.String))
    own[codes[codes >= 0]] = True
    return own


def ranked_of(scores: Scores) -> Ranked:
    """Return where the judged hits of a run stood."""
    if scores.trace is None:
        raise UsageError(
            f"where the hits of {scores.system!r} stood was not kept; score the run itself"
        )
    return scores.trace.ranked


def best_in(scores: Scores, gold: Prepared) -> Best:
    """Return the best-placed gold of every query in some lists."""
    ranked = ranked_of(scores)
    found = ranked.found
    (places,) = np.nonzero(found.relevant(gold.conventions.rel))
    query, first = np.unique(found.query[places], return_index=True)
    places = places[first]
    rank = np.full(ranked.n, ABSENT)
    row, hit = np.full(ranked.n, -1), np.full(ranked.n, -1)
    rank[query] = found.rank[places]
    row[query] = places if found.row is None else found.row[places]
    hit[query] = _hits_at(ranked, query, found.rank[places])
    facts = pl.DataFrame() if scores.trace is None else scores.trace.facts
    return Best(rank, row, hit, facts, ranked.returned)


def _hits_at(ranked: Ranked, query: Ints, rank: Ints) -> Ints:
    """Return the place among the judged hits of those at some ranks: a span is found by a hit."""
    wide = int(max(ranked.hits.rank.max(initial=0), rank.max(initial=0))) + 1
    places = np.searchsorted(ranked.hits.query * wide + ranked.hits.rank, query * wide + rank)
    return np.asarray(places, dtype=np.int64)


# Odd numbers that spread keys over 32 bits.
_MIX, _OTHER_MIX = 0x9E3779B1, 0x85EBCA6B


@dataclass(frozen=True, eq=False)
class Kept:
    """What the final lists keep of the last lists logged before them.

    ``in_order`` marks the queries whose final list has nothing but items of the list before
    it, in its order; ``above`` is the lowest rank there of a judged hit that stands above an
    item of the final list, 0 where none does. Of queries that nobody asked about nothing is
    in order and nothing above.
    """

    in_order: Mask
    above: Ints


def kept_by(staged: Staged, way: Way, asked: Mask) -> Kept:
    """Return what the final lists of the queries asked about keep."""
    found = Kept(np.zeros(len(asked), dtype=bool), np.zeros(len(asked), dtype=np.int64))
    if staged.run is None or not asked.any():
        return found
    judged = _judged(staged, way, asked)
    before, final = _lists(staged, way, asked, judged)
    places = before.select("code", "item_id", place="rank")
    both = final.join(places, on=["code", "item_id"], how="left", maintain_order="left")
    code = both["code"].to_numpy()
    # An item that was not in the list before it breaks the order, as place 0 does.
    place = both["place"].fill_null(0).to_numpy()
    found.in_order[asked] = True
    found.in_order[code[_falls(code, place)]] = False
    lowest = np.zeros(len(asked), dtype=np.int64)
    np.maximum.at(lowest, code, place)
    stood = judged.join(places, on=["code", "item_id"])
    rows = stood["code"].to_numpy()
    over = stood["place"].to_numpy() < lowest[rows]
    np.maximum.at(found.above, rows[over], stood["rank"].to_numpy()[over])
    return found


def _falls(code: Ints, place: Ints) -> Mask:
    """Return where a list's places do not rise, the first of each from 0."""
    same = np.concatenate(([False], code[1:] == code[:-1]))
    above = np.concatenate(([0], place[:-1]))
    return np.less_equal(place, np.where(same, above, 0))


def _judged(staged: Staged, way: Way, asked: Mask) -> pl.DataFrame:
    """Return the judged hits of each query's last list before the cut: code, item_id, rank."""
    parts = [pl.DataFrame(schema={"code": pl.Int64, "item_id": pl.String, "rank": pl.Int64})]
    for at, scores in enumerate(staged.line.values()):
        if scores.trace is not None:
            hits = scores.trace.ranked.hits
            here = asked[hits.query] & (way.last.at[hits.query] == at)
            items = scores.trace.facts["item_id"].filter(here)
            own = {"code": hits.query[here], "item_id": items, "rank": hits.rank[here]}
            parts.append(pl.DataFrame(own))
    return pl.concat(parts)


def _lists(
    staged: Staged, way: Way, asked: Mask, judged: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the last lists before the cut, and the final ones, as far as they tell anything.

    Of the former only judged items and those of the final list are looked at, with some others
    that look alike: their order among themselves is all that is asked for.
    """
    run, gold = staged.run, _without_judgments(staged.gold)
    if run is None:
        return _NOTHING, _NOTHING
    code, stage, starts, lengths = _stretches(run, gold, way.names)
    here = (code >= 0) & asked[code] & (stage >= 0)
    final, before = (here & (stage == own) for own in (len(way.names), way.last.at[code]))
    rows = [_rows(starts[mask], lengths[mask]) for mask in (before, final)]
    hashes = short_hash(run.hits["item_id"])
    keys = [
        _mixed(hashes[own], np.repeat(code[mask], lengths[mask]))
        for own, mask in zip(rows, (before, final), strict=True)
    ]
    wanted = _mixed(short_hash(judged["item_id"]), judged["code"].to_numpy())
    rows[0] = rows[0][_among(keys[0], np.concatenate((keys[1], wanted)))]
    hits = run.hits.drop("stage")
    first, second = (replace(run, hits=hits[rows[at]], calls=None) for at in (0, 1))
    return _items(first, gold), _items(second, gold)


_NOTHING = pl.DataFrame(schema={"code": pl.Int64, "rank": pl.Int64, "item_id": pl.String})


def _stretches(run: Run, gold: Prepared, names: tuple[str, ...]) -> tuple[Ints, Ints, Ints, Ints]:
    """Hits of one query and stage that follow each other: both as numbers, start and length.

    A query that is not to be scored is -1. A stage is its place on the way, the final list's
    one past the last, and -1 what stands beside it.
    """
    by_query = run.hits["query_id"].rle().struct.unnest()
    by_stage = run.hits["stage"].rle().struct.unnest()
    ends = [np.cumsum(one["len"].to_numpy().astype(np.int64)) for one in (by_query, by_stage)]
    starts = np.unique(np.concatenate(([0], *ends)))[:-1]
    query, stage = (np.searchsorted(end, starts, side="right") for end in ends)
    places = {name: at for at, name in enumerate((*names, "final"))}
    known = np.array([places.get(name, -1) for name in by_stage["value"].to_list()])
    lengths = np.diff(np.concatenate((starts, [run.hits.height])))
    return gold.code_of(by_query["value"])[query], known[stage], starts, lengths


def _rows(starts: Ints, lengths: Ints) -> Ints:
    """Return the rows of some stretches."""
    ends = np.cumsum(lengths)
    rows: Ints = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
    return rows


def _mixed(hashes: Ints, owner: Ints) -> Ints:
    """32 bits of each item and its query."""
    keys: Ints = hashes * _MIX + owner * _OTHER_MIX & 0xFFFFFFFF
    return keys


def _among(keys: Ints, wanted: Ints) -> Mask:
    """Return which keys are likely among those wanted: all that are, and about one in 16 others."""
    shift = 32 - min(26, max(12, (16 * len(wanted)).bit_length()))
    likely = np.zeros(1 << (32 - shift), dtype=bool)
    likely[wanted >> shift] = True
    among: Mask = likely[keys >> shift]
    return among


def _items(run: Run, gold: Prepared) -> pl.DataFrame:
    """The items of every list in the order in which scoring ranks them: code, rank, item_id."""
    block = rank(run, gold, ListNeeds(frozenset({"list"}), UNLIMITED))
    listing = block.ranked.listing
    if listing is None:
        return _NOTHING
    codes = block.codes[listing.query]
    columns = {"code": codes, "rank": listing.rank, "item_id": listing.frame["item_id"]}
    return pl.DataFrame(columns).sort("code", "rank")


def _without_judgments(gold: Prepared) -> Prepared:
    """The same queries and order, for looking at whole lists and not at what is right in them."""
    return replace(
        gold,
        rows=gold.rows.clear(),
        grade=np.empty(0),
        unit=np.empty(0, dtype=np.int64),
        first=np.zeros_like(gold.first),
        likely=np.zeros_like(gold.likely),
        corpus=None,
        conventions=replace(gold.conventions, level="item", depth=None),
    )
