"""A run that is diagnosed: its lists, calls, gold and corpus, as failures and findings see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures.gold_ranks import Best, Kept, Way, best_in, kept_by, ranked_of, way_of
from karat.analysis.stages.routing import source_names
from karat.data.tables import Queries
from karat.errors import InputError, MissingInputError, UsageError
from karat.evaluation.segments import By
from karat.evaluation.stages import ORIGINAL, RAW, REORDERING, SIEVES, Staged
from karat.evaluation.thresholds import Thresholds
from karat.measures.aggregates import Values
from karat.measures.evaluate_measure import values_of
from karat.measures.kernels.lists import in_time
from karat.measures.lists import without_repeats
from karat.measures.names import parse_measure
from karat.measures.prepare import Prepared
from karat.measures.ranked import Listing, Mask, Ranked, ideal_of
from karat.measures.scores import Scores
from karat.stats.paired import randomisation

ASSESSED = ("scored", "missing", "failed")
NO_LISTS = "needs the lists themselves, which a store does not keep"
_COLUMNS = {"row": pl.Int64, "rank": pl.Int64, "item_id": pl.String, "version": pl.String}


@dataclass(frozen=True, eq=False)
class Cut:
    """Lists cut at a rank to which they were logged."""

    scores: Scores
    k: int


@dataclass(frozen=True, eq=False)
class Case:
    """A run that is diagnosed; what takes long is computed when a rule first needs it.

    A property that lacks an input raises MissingInputError. ``baseline`` is an earlier run, ``by``
    names the segments. ``remembered`` holds what more than one rule computes.
    """

    staged: Staged
    queries: Queries | None
    thresholds: Thresholds
    baseline: Staged | None = None
    by: Sequence[By] = ()
    remembered: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def way(self) -> Way:
        """The lists on the way to the final one."""
        if any(one.trace is None for one in (self.staged.final, *self.staged.line.values())):
            raise MissingInputError(NO_LISTS)
        return way_of(self.staged)

    @cached_property
    def assessed(self) -> Mask:
        """The queries whose gold is not empty."""
        return self.staged.final.status.is_in(ASSESSED).to_numpy()

    @cached_property
    def misses(self) -> Mask:
        """The queries without gold at the top of the final list."""
        return self.assessed & (self.way.final.rank > self.thresholds.miss)

    def status(self, name: str) -> Mask:
        """Return the queries of one status."""
        return (self.staged.final.status == name).to_numpy()

    def call(self, name: str) -> list[Any] | None:
        """Return what the log says of each query's call, None for a query that it says nothing of.

        None instead of a list where the log never says it.
        """
        calls = self.staged.calls
        if calls is None or name not in calls.columns or not calls[name].count():
            return None
        values: list[Any] = [None] * len(self.staged.gold.query_ids)
        codes = self.staged.gold.code_of(calls["query_id"]).tolist()
        for code, value in zip(codes, calls[name].to_list(), strict=True):
            if code >= 0:
                values[code] = value
        return values

    def asked(self, name: str) -> list[Any] | None:
        """Return a column of the queries in the order of the score table, if there is one."""
        frame = None if self.queries is None else self.queries.frame
        if frame is None or name not in frame.columns or not frame[name].count():
            return None
        values = dict(zip(frame["query_id"].to_list(), frame[name].to_list(), strict=True))
        return [values.get(query_id) for query_id in self.staged.gold.query_ids]

    @cached_property
    def chosen(self) -> list[Any] | None:
        """The source of each call."""
        return self.call("source")

    @cached_property
    def indexed(self) -> Mask | None:
        """The queries with gold that can be found; None without a corpus."""
        known = in_index(self.staged)
        if known is None:
            return None
        gold = self.staged.gold
        right = known & (gold.grade >= gold.conventions.rel)
        has = np.zeros(len(gold.query_ids), dtype=bool)
        has[gold.rows["code"].to_numpy()[right]] = True
        return has

    def right_sources(self, asked: Sequence[int]) -> dict[int, list[str]]:
        """Where the gold of some queries is: by their column source, else by the gold items'."""
        named = {query: self._named_sources(query) for query in asked}
        rows = {q: relevant_rows(self.staged.gold, q) for q, names in named.items() if not names}
        own = attributes(self.staged.gold, chain.from_iterable(rows.values()), "source")
        for query, judged in rows.items():
            told = {source for row in judged for source in own.get(row, ())}
            named[query] = sorted(source for source in told if source)
        return named

    def _named_sources(self, query: int) -> list[str]:
        return [] if self._sources is None else list(source_names(self._sources[query]))

    @cached_property
    def _sources(self) -> list[Any] | None:
        return self.asked("source")

    @cached_property
    def original(self) -> Best | None:
        """Where gold stands in the lists for the original queries; None where none is logged."""
        scores = self.staged.beside.get(ORIGINAL)
        return None if scores is None else best_in(scores, self.staged.gold)

    @cached_property
    def beside(self) -> Mapping[str, Best]:
        """Where gold stands in the lists beside the way to the final one."""
        return {name: best_in(s, self.staged.gold) for name, s in self.staged.beside.items()}

    @cached_property
    def kept(self) -> Kept:
        """What the final lists of misses keep of the last list that has their gold."""
        return kept_by(self.staged, self.way, self.misses & np.isfinite(self.way.last.rank))

    @cached_property
    def tops(self) -> pl.DataFrame | None:
        """The top of each final list; None where it was not kept."""
        return tops_of(self.staged.final, self.thresholds.miss)

    @cached_property
    def dominance(self) -> Dominance | None:
        """The items that crowd out gold; None where lists were not kept."""
        if self.tops is None:
            return None
        final = self.staged.final
        corpus = self.staged.gold.corpus
        size = None if corpus is None else corpus.height
        return dominance(
            final, self.tops, self.way.final.rank, self.assessed, self.thresholds, size
        )

    @cached_property
    def similarity(self) -> Values:
        """The similarity of the best-placed gold retrieved; NaN where nobody logged it."""
        first = self.way.first
        known = first.number("similarity")
        if self.staged.final.meta.get("score_kind") != "cosine":
            return known
        return np.where(np.isnan(known), first.number("score"), known)

    @cached_property
    def least_similarity(self) -> Values:
        """What the similarity of gold should be: the query's own line, else the common one."""
        common = np.full(len(self.staged.gold.query_ids), self.thresholds.similarity)
        told = self.asked("min_similarity")
        if told is None or self.queries is None:
            return common
        own = pl.Series(told, strict=False).cast(pl.Float64, strict=False)
        if own.null_count() > sum(value is None for value in told):
            raise InputError(
                "min_similarity holds something that is no number; a number is expected",
                where=self.queries.source.name,
            )
        return own.fill_null(self.thresholds.similarity).to_numpy()

    @cached_property
    def below_score(self) -> Mask:
        """The queries whose best-placed gold retrieved scores below the line for scores."""
        if self.thresholds.score is None:
            return np.zeros(len(self.assessed), dtype=bool)
        return np.less(self.way.first.number("score"), self.thresholds.score)

    @cached_property
    def reranked_queries(self) -> Mask:
        """The queries of which the log says that something reranked their list."""
        meta = self.staged.final.meta
        named = any(str(key).startswith("rerank") and value for key, value in meta.items())
        timed = self.call("latency.rerank") or [None] * len(self.assessed)
        return np.array([named or ms is not None for ms in timed], dtype=bool)

    def in_time(self, version: str | None, query: int) -> float:
        """Return 1 for a version no newer than the query's as_of, 0 for a newer one, else NaN."""
        gold = self.staged.gold
        as_of = gold.as_of[query] if gold.as_of else None
        if not as_of or version is None:
            return float("nan")
        return in_time(version, as_of, gold.conventions.versions)

    @cached_property
    def answered(self) -> Mask:
        """The queries with gold that are in the run and whose call did not fail."""
        return (self.staged.final.status == "scored").to_numpy()

    @property
    def n(self) -> int:
        """The number of answered queries."""
        return int(self.answered.sum())

    @property
    def alpha(self) -> float:
        """The chance of a wrong alarm that a test may have."""
        return self.staged.final.conventions.alpha

    def goes_to(self, scores: Scores) -> int:
        """Return the last rank of some lists that was measured."""
        known = self.staged.depth(scores).known
        return min(known, scores.conventions.depth or known)

    def reaches(self, scores: Scores, k: int) -> bool:
        """Return whether a value at this cut-off was measured."""
        most = scores.conventions.depth
        return self.staged.depth(scores).reaches(k) and (most is None or k <= most)

    @cached_property
    def near(self) -> Cut:
        """The final lists at the near cut-off."""
        return self.within(self.staged.final, self.thresholds.near, "final")

    @cached_property
    def far(self) -> Cut:
        """The raw lists at the far cut-off, or as deep as they go, at least twice the near one."""
        raw, wanted = self.staged.raw, self.thresholds.far
        deepest = self.goes_to(raw)
        if not self.reaches(raw, wanted) and deepest >= 2 * self.thresholds.near:
            return Cut(raw, deepest)
        return self.within(raw, wanted, "raw")

    @cached_property
    def miss(self) -> Cut:
        """The final lists where a query counts as missed, or as deep as they go, if not nearer."""
        final, wanted = self.staged.final, self.thresholds.miss
        deepest = self.goes_to(final)
        if not self.reaches(final, wanted) and deepest >= self.thresholds.near:
            return Cut(final, deepest)
        return self.within(final, wanted, "final")

    def within(self, scores: Scores, k: int, what: str) -> Cut:
        """Return lists at a cut-off; raises MissingInputError if they were not logged that far."""
        if scores.trace is None:
            raise MissingInputError(NO_LISTS)
        if not self.reaches(scores, k):
            raise MissingInputError(
                f"needs a {what} list of {k}; the log goes to {self.goes_to(scores)}"
            )
        return Cut(scores, k)

    def values(self, name: str, cut: Cut) -> Values:
        """Return a measure at a cut-off for each query, NaN for those that take no part."""
        found = values_of(parse_measure(f"{name}@{cut.k}"), self._ranked(cut), self.staged.gold)
        return np.where(self.answered, found, np.nan)

    def sieved(self, name: str, k: int) -> Values:
        """Return the same for each query's last list before anything put it in another order.

        That is the one after the filters that were logged for it, else the raw one.
        """
        found = self.values(name, Cut(self.staged.raw, k))
        for at, scores in enumerate(self.staged.line.values()):
            here = self.way.sieved.at == at
            if here.any():
                found = np.where(here, self.values(name, Cut(scores, k)), found)
        return found

    def ceiling(self, name: str, k: int) -> Values:
        """Return the best value that the gold of each query allows."""
        gold = self.staged.gold
        ideal = ideal_of(gold.target(np.arange(len(gold.query_ids))))
        found = values_of(parse_measure(f"{name}@{k}"), ideal, gold)
        return np.where(self.answered, found, np.nan)

    def listed_values(self, name: str, cut: Cut) -> Values:
        """Return the same for a measure that looks at every item in the lists that were kept."""
        lists = kept_lists(cut)
        listing = Listing(lists["row"].to_numpy(), lists["rank"].to_numpy(), lists)
        ranked = replace(self._ranked(cut), listing=listing)
        found = values_of(parse_measure(f"{name}@{cut.k}"), ranked, self.staged.gold)
        return np.where(self.answered, found, np.nan)

    def shown(self, cut: Cut) -> Values:
        """Return how many of the places down to a cut-off are filled, NaN where none is."""
        filled = np.minimum(self._ranked(cut).returned, cut.k)
        return np.where(filled > 0, filled, np.nan)

    def _ranked(self, cut: Cut) -> Ranked:
        if cut.scores.trace is None:
            raise MissingInputError(NO_LISTS)
        return cut.scores.trace.ranked

    def p_of(self, delta: Values) -> float:
        """Return the chance of a mean difference as large if there were none; NaN takes no part."""
        known = ~np.isnan(delta)
        conventions, groups = self.staged.final.conventions, self.staged.final.groups
        found = randomisation(
            delta[known][:, None],
            resamples=conventions.permutations,
            seed=conventions.seed,
            groups=None if groups is None else groups[known],
        )
        return float(found[0])

    @property
    def has_reranker(self) -> bool:
        """Whether the log shows that something gives the retriever's list another order."""
        if self.named_reranker or any(name in self.staged.line for name in REORDERING):
            return True
        return bool(self.before_order) and bool(self.moved.any())

    @property
    def named_reranker(self) -> bool:
        """Whether the log says that there is a reranker: its list, its time or its name."""
        meta, calls = self.staged.final.meta, self.staged.calls
        named = any(str(key).startswith("rerank") and value for key, value in meta.items())
        timed = calls is not None and "latency.rerank" in calls.columns
        return "rerank" in self.staged.line or named or timed

    @cached_property
    def before_order(self) -> list[str]:
        """The stages in the log that come before anything puts items in another order."""
        return [name for name in (RAW, *SIEVES) if name in self.staged.line]

    @cached_property
    def moved(self) -> Mask:
        """The queries whose nDCG changed and whose list really got another order.

        A list that holds nothing but items of the one before it, in its order, was filtered or
        cut, and not reranked.
        """
        near = self.near
        before, after = self.sieved("nDCG", near.k), self.values("nDCG", near)
        changed = self.answered & (before != after)
        untold = changed & ~self.way.reordered.there
        moved: Mask = changed & ~kept_by(self.staged, self.way, untold).in_order
        return moved


def kept_lists(cut: Cut) -> pl.DataFrame:
    """Return the items of each list down to a cut-off, if so many were kept."""
    lists, trace = cut.scores.lists, cut.scores.trace
    longest = 0 if trace is None else int(trace.ranked.returned.max(initial=0))
    kept = 0 if lists is None else int(lists["rank"].to_numpy().max(initial=0))
    if lists is None or kept < min(cut.k, longest):
        raise MissingInputError(f"needs the top {cut.k} items of each list; {kept} were kept")
    return lists.filter(lists["rank"] <= cut.k)


def known_to_corpus(gold: Prepared) -> Mask | None:
    """Return which judgments are of something that the corpus has; None without a corpus."""
    if gold.corpus is None:
        return None
    known = gold.corpus[_key(gold)].unique()
    return gold.rows["item_id"].is_in(known.implode()).to_numpy()


def in_index(staged: Staged) -> Mask | None:
    """Return which judgments are of something that can be found; None without a corpus.

    What any list holds can be found, whatever the corpus file says.
    """
    known = known_to_corpus(staged.gold)
    if known is None:
        return None
    known = known.copy()
    for scores in (staged.final, *staged.line.values(), *staged.beside.values()):
        found = ranked_of(scores).found
        if found.row is not None:
            known[found.row] = True
    return known


def attributes(gold: Prepared, rows: Iterable[int], name: str) -> dict[int, list[str | None]]:
    """What the corpus has in a column for the items of some judgments, by judgment's row.

    An item without a value brings None; one with a list of values brings them all.
    """
    if gold.corpus is None or name not in gold.corpus.columns:
        return {}
    wanted = pl.Series("at", list(rows), dtype=pl.Int64)
    own = pl.DataFrame({"at": wanted, "key": gold.rows["item_id"].gather(wanted)})
    facts = gold.corpus.select(key=pl.col(_key(gold)), told=pl.col(name))
    facts = facts.join(own, on="key", how="semi", maintain_order="left")
    if facts.schema["told"].base_type() == pl.List:
        facts = facts.explode("told")
    facts = facts.with_columns(pl.col("told").cast(pl.String))
    told: dict[int, list[str | None]] = {}
    both = own.join(facts, on="key", maintain_order="left_right").select("at", "told")
    for at, value in both.rows():
        told.setdefault(at, []).append(value)
    return told


def relevant_rows(gold: Prepared, query: int) -> list[int]:
    """Return the rows of a query's judgments that make up its gold."""
    rows = np.arange(gold.first[query], gold.first[query + 1])
    kept: list[int] = rows[gold.grade[rows] >= gold.conventions.rel].tolist()
    return kept


def names_of(gold: Prepared, rows: Sequence[int]) -> list[str]:
    """Return what some judgments are of, as one would write it."""
    judged = gold.rows[list(rows)]
    if "start" in judged.columns:
        judged = judged.select(item_id=pl.format("{}:{}-{}", "item_id", "start", "end"))
    return judged["item_id"].to_list()


def _key(gold: Prepared) -> str:
    """Return what the corpus calls the things that are judged."""
    return "item_id" if gold.conventions.level == "item" else "doc_id"


@dataclass(frozen=True, eq=False)
class Dominance:
    """The items that dominate, with how many queries, and where they stand.

    ``items`` has item_id and queries, the most frequent first; ``places`` a row for every place
    that one of them takes: row (the query), rank, item_id. ``share`` is how much of the places
    at the top of each query's list they take.
    """

    items: pl.DataFrame
    places: pl.DataFrame
    share: Values

    def above(self, rows: Sequence[int]) -> dict[int, list[str]]:
        """Return the dominant items in the lists of some queries, each from the top."""
        found: dict[int, list[str]] = {row: [] for row in rows}
        for row, item in self.places.select("row", "item_id").rows():
            if row in found:
                found[row].append(item)
        return found


def tops_of(scores: Scores, k: int) -> pl.DataFrame | None:
    """The first k hits of every query: row, rank, item_id, version; None if none were kept."""
    if scores.lists is None:
        return None
    lists = scores.lists.filter(pl.col("rank") <= k).sort("row", "rank")
    returned = ranked_of(scores).returned
    kept = np.bincount(lists["row"].to_numpy(), minlength=len(returned))
    if (kept < np.minimum(returned, k)).any():
        raise UsageError(f"fewer than the top {k} were kept; score the run with keep={k} or more")
    values = [
        pl.col(name).cast(kind) if name in lists.columns else pl.lit(None, kind).alias(name)
        for name, kind in _COLUMNS.items()
    ]
    return without_repeats(lists).select(values)


def dominance(
    scores: Scores,
    tops: pl.DataFrame,
    best: Values,
    assessed: Mask,
    lines: Thresholds,
    corpus_size: int | None = None,
) -> Dominance:
    """Return the items that stand above all gold, without being gold, in the top of many queries.

    ``best`` is the rank of each query's best-placed gold in the final list. In a small corpus
    every item stands in many lists, so it must be more of them than equal chance would give
    (see ``_places``); where the corpus is not known, it is what the tops hold.
    """
    ranked = ranked_of(scores)
    correct = ranked.hits.correct(scores.conventions.rel)
    gold = pl.DataFrame({"row": ranked.hits.query[correct], "rank": ranked.hits.rank[correct]})
    row, rank = tops["row"].to_numpy(), tops["rank"].to_numpy()
    above = tops.filter(assessed[row] & (rank < best[row]))
    wrong = above.join(gold, on=["row", "rank"], how="anti", maintain_order="left")
    scored = int((scores.status == "scored").sum())
    # 0.07 × 100 is a little more than 7 in floating point.
    share = math.ceil(round(lines.dominant_share * scored, 9))
    items_in_all = corpus_size or tops["item_id"].n_unique() or 1
    by_chance = lines.dominant_lift * _places(scores, best, assessed, lines.miss) / items_in_all
    needed = max(lines.dominant_queries, share, by_chance)
    items = wrong.group_by("item_id").agg(queries=pl.len()).filter(pl.col("queries") >= needed)
    items = items.sort(["queries", "item_id"], descending=[True, False])
    places = wrong.join(items, on="item_id", how="semi", maintain_order="left")
    taken = np.bincount(places["row"].to_numpy(), minlength=ranked.n)
    shown = np.minimum(ranked.returned, lines.miss)
    return Dominance(items, places.drop("version"), taken / np.maximum(shown, 1))


def _places(scores: Scores, best: Values, assessed: Mask, miss: int) -> float:
    """Return the places above gold, in the top of every answer, that an item could have taken.

    A list that a threshold shortened has as many as one that is whole: what the system left
    out of some lists makes no item more dominant in the others.
    """
    answered = assessed & (scores.status == "scored").to_numpy()
    returned = ranked_of(scores).returned[answered]
    depth = min(miss, int(returned.max(initial=0)))
    return float(np.minimum(best[answered] - 1, depth).sum())
