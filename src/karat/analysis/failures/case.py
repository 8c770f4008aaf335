"""Case: the facts about the queries of one run that failures, losses and findings need.

``Way`` has the rank of each query's best gold in every list on the way to its answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from karat.analysis.stages.routing import Names, chosen_sources, right_sources
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, MissingInputError, UsageError
from karat.evaluation.segments import By
from karat.evaluation.stages import RAW, REORDERING, SIEVES, Staged, Thresholds, passed_on
from karat.evaluation.top_lists import assessed, judged_by, kept_lists, ranked_of
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import values_of
from karat.measure.kernels.lists import in_time
from karat.measure.lists import ListNeeds, without_repeats
from karat.measure.names import parse_measure
from karat.measure.prepare import Prepared, prepare
from karat.measure.rank import rank
from karat.measure.ranked import UNLIMITED, Ints, Mask, ideal_of
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.stats.paired import randomisation


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
        """Return a logged number of these hits, one per query; NaN if not logged."""
        values = np.full(len(self.rank), np.nan)
        placed = self.hit >= 0
        values[placed] = self.facts[name].to_numpy()[self.hit[placed]]
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
    """The lists from the retriever's own to the final one, and the rank of gold in each.

    ``logged`` marks the queries for which a stage logged a list, or passed on an empty one; the
    others take the next stage's list, so the stage cannot fail them.
    """

    names: tuple[str, ...]
    lists: tuple[BestGold, ...]
    logged: tuple[Mask, ...]
    final: BestGold

    @classmethod
    def of(cls, staged: Staged) -> Way:
        """Return the rank of a run's best gold, list by list."""
        lists = tuple(best_gold(scores, staged.gold) for scores in staged.line.values())
        logged = []
        for name, best in zip(staged.line, lists, strict=True):
            # Where the log does not say, every query has a list.
            queries = staged.logged.get(name, frozenset(staged.gold.query_ids))
            has_list = [query_id in queries for query_id in staged.gold.query_ids]
            logged.append(np.array(has_list, dtype=bool) | (best.returned == 0))
        return cls(tuple(staged.line), lists, tuple(logged), best_gold(staged.final, staged.gold))

    @property
    def first(self) -> BestGold:
        """The retriever's own lists, or the earliest in the log."""
        return self.lists[0] if self.lists else self.final

    def after(self, at: int) -> Values:
        """Return the best rank of any gold from this stage on."""
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
            name: self.logged[at] & np.isfinite(self.before[at].rank) & ~np.isfinite(self.after(at))
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
                ranks = np.where(self.logged[at], self.lists[at].rank, ranks)
                last = np.where(self.logged[at], at, last)
        return LastGold(ranks, last)


def kept_order(staged: Staged, way: Way, queries: Mask) -> tuple[Mask, Ints]:
    """Compare the final lists of some queries with the last lists logged before them.

    The first marks those queries whose final list has nothing but items of the list before it, in
    its order; the second is the lowest rank there of an item of the final list, 0 if it has none.
    """
    lowest = np.zeros(len(queries), dtype=np.int64)
    if staged.run is None or not queries.any():
        return np.zeros_like(queries), lowest
    codes = np.flatnonzero(queries)
    stages = [way.names[at] if at >= 0 else None for at in way.last.at[codes].tolist()]
    last = pl.DataFrame(
        {"query_id": [staged.gold.query_ids[code] for code in codes.tolist()], "last": stages},
        schema={"query_id": pl.String, "last": pl.String},
    )
    hits = staged.run.hits.join(last, on="query_id", maintain_order="left")
    before = _in_order(staged, staged.run, hits.filter(pl.col("stage") == pl.col("last")))
    final = _in_order(staged, staged.run, hits.filter(pl.col("stage") == "final"))
    both = final.join(
        before, on=["code", "item_id"], how="left", maintain_order="left", suffix="_before"
    )
    # An item that was not in the list before it breaks the order, as rank 0 does.
    code, place = both["code"].to_numpy(), both["rank_before"].fill_null(0).to_numpy()
    same_list = np.concatenate(([False], code[1:] == code[:-1]))
    above = np.where(same_list, np.concatenate(([0], place[:-1])), 0)
    in_order = queries.copy()
    in_order[code[place <= above]] = False
    np.maximum.at(lowest, code, place)
    return in_order, lowest


def _in_order(staged: Staged, run: Run, hits: pl.DataFrame) -> pl.DataFrame:
    """Return the hits of one stage in the order in which they were scored: code, rank, item_id."""
    conventions = replace(staged.gold.conventions, level="item", depth=None)
    lists = replace(run, hits=hits.drop("stage", "last"), calls=None)
    gold = replace(staged.gold, conventions=conventions)
    block = rank(lists, gold, ListNeeds(frozenset({"list"}), UNLIMITED))
    listing, _ = block.ranked.listed(None)
    ranks = {"code": block.codes[listing.query], "rank": listing.rank}
    return pl.DataFrame({**ranks, "item_id": listing.frame["item_id"]}).sort("code", "rank")


@dataclass(frozen=True, eq=False)
class Case:
    """A run under analysis; a property is computed when a rule first needs it.

    A property that lacks an input raises MissingInputError. ``baseline`` is an earlier run, ``by``
    names the segments.
    """

    staged: Staged
    queries: Queries | None
    thresholds: Thresholds
    baseline: Staged | None = None
    by: Sequence[By] = ()

    @property
    def gold(self) -> Prepared:
        """The gold of all queries."""
        return self.staged.gold

    @cached_property
    def way(self) -> Way:
        """The lists on the way to the final one."""
        return Way.of(self.staged)

    @cached_property
    def assessed(self) -> Mask:
        """The queries whose gold is not empty."""
        return assessed(self.staged.final)

    @cached_property
    def answered(self) -> Mask:
        """The queries with gold that are in the run and whose call did not fail."""
        return self.status("scored")

    @property
    def n(self) -> int:
        """The number of answered queries."""
        return int(self.answered.sum())

    @cached_property
    def misses(self) -> Mask:
        """The queries without gold at the top of the final list."""
        return self.assessed & (self.way.final.rank > self.thresholds.miss)

    def status(self, name: str) -> Mask:
        """Return the queries of one status."""
        return np.asarray(self.staged.final.status == name)

    # Facts from the log, the queries and the corpus.

    @cached_property
    def chosen_sources(self) -> list[Names]:
        """Where each query was sent."""
        return chosen_sources(self.staged)

    @cached_property
    def right_sources(self) -> list[Names]:
        """Where each query's gold is: by the query's source, else by its gold items'."""
        return right_sources(self.staged, self.queries)[1]

    def relevant_rows(self, query: int) -> list[int]:
        """Return the rows of the judgments that make up a query's gold."""
        rows = range(self.gold.first[query], self.gold.first[query + 1])
        return [row for row in rows if self.gold.relevant[row]]

    @cached_property
    def gold_versions(self) -> pl.DataFrame:
        """The gold of each miss with its versions in the corpus: judgment, row, version."""
        corpus, judged = self.gold.corpus, self.gold.rows
        relevant = self.gold.relevant & self.misses[judged["code"].to_numpy()]
        rows = judged.with_row_index("judgment").filter(relevant)
        rows = rows.select("judgment", "item_id", row="code")
        if corpus is None or "version" not in corpus.columns:
            return rows.clear().with_columns(version=pl.lit(None, pl.String))
        versions = corpus.select(pl.col("version").cast(pl.String), item_id=judged_by(self.gold))
        return rows.join(versions, on="item_id", maintain_order="left_right")

    @cached_property
    def indexed(self) -> Mask | None:
        """The queries with gold that can be found; None without a corpus."""
        findable = in_index(self.staged)
        if findable is None:
            return None
        right = findable & self.gold.relevant
        has_gold = np.zeros(len(self.gold.query_ids), dtype=bool)
        has_gold[self.gold.rows["code"].to_numpy()[right]] = True
        return has_gold

    # The rank of gold, and the items above it.

    @cached_property
    def beside(self) -> Mapping[str, BestGold]:
        """The rank of gold in the lists beside the way to the final one."""
        return {name: best_gold(scores, self.gold) for name, scores in self.staged.beside.items()}

    @cached_property
    def kept(self) -> tuple[Mask, Ints]:
        """The final lists of misses compared with the last list that has their gold."""
        return kept_order(self.staged, self.way, self.misses & np.isfinite(self.way.last.rank))

    @cached_property
    def passed_over(self) -> Mask:
        """The misses whose gold ranked above a returned item, in the same order."""
        lost = self.misses & self.way.lost_at_the_end
        if not lost.any():
            return lost
        in_order, lowest = self.kept
        return lost & in_order & (self.way.last.rank < lowest)

    @cached_property
    def judgment(self) -> Ints:
        """The judgment of the gold that got furthest; without any in a list, the best grade's."""
        row: Ints = self.gold.first[:-1].copy()
        for best in (*self.way.lists, self.way.final):
            row = np.where(best.row >= 0, best.row, row)
        return row

    @cached_property
    def tops(self) -> pl.DataFrame | None:
        """The top of each final list: row, rank, item_id, version; None where it was not kept."""
        if self.staged.final.lists is None:
            return None
        lists = kept_lists(self.staged.final, self.thresholds.miss)
        version = pl.col("version").cast(pl.String) if "version" in lists.columns else None
        return without_repeats(lists).select(
            pl.col("row").cast(pl.Int64), pl.col("rank").cast(pl.Int64), "item_id", version=version
        )

    @cached_property
    def dominance(self) -> Dominance | None:
        """The items that crowd out gold; None where lists were not kept."""
        return None if self.tops is None else Dominance.of(self, self.tops)

    @cached_property
    def similarity(self) -> Values:
        """The similarity of the best-placed gold retrieved; NaN where it was not logged."""
        logged = self.way.first.number("similarity")
        if self.staged.final.meta.get("score_kind") != "cosine":
            return logged
        return np.where(np.isnan(logged), self.way.first.number("score"), logged)

    @cached_property
    def least_similarity(self) -> Values:
        """The least similarity of gold: the query's own limit, else the common one."""
        least = np.full(len(self.gold.query_ids), float(self.thresholds.similarity))
        if self.queries is None or "min_similarity" not in self.queries.frame.columns:
            return least
        limits = self.queries.frame.select("query_id", "min_similarity").drop_nulls()
        numbers = limits["min_similarity"].cast(pl.Float64, strict=False)
        if numbers.null_count():
            raise InputError(
                "min_similarity holds a value that is not a number; a number is expected",
                where=self.queries.source.name,
            )
        codes = self.gold.code_of(limits["query_id"])
        least[codes[codes >= 0]] = numbers.to_numpy()[codes >= 0]
        return least

    @cached_property
    def below_score(self) -> Mask:
        """The queries whose best-placed gold retrieved scores below the score threshold."""
        if self.thresholds.score is None:
            return np.zeros(len(self.assessed), dtype=bool)
        return np.less(self.way.first.number("score"), self.thresholds.score)

    # Measures at a cut-off that the lists reach.

    @cached_property
    def near(self) -> int:
        """The near cut-off, which the final lists must reach."""
        return self.reached(self.staged.final, "final", self.thresholds.near)

    @cached_property
    def far(self) -> int:
        """The far cut-off, or as deep as the raw lists go, at least twice the near one."""
        lines = self.thresholds
        return self.reached(self.staged.raw, "raw", lines.far, least=2 * lines.near)

    @cached_property
    def miss(self) -> int:
        """The cut-off of a miss, or the end of the final lists if they end earlier."""
        lines = self.thresholds
        return self.reached(self.staged.final, "final", lines.miss, least=lines.near)

    def reached(self, scores: Scores, stage: str, k: int, least: int | None = None) -> int:
        """Return a cut-off, or the end of the lists if it is above that, but not above ``least``.

        Raises MissingInputError if the lists were not logged that far.
        """
        depth, most = self.staged.depth(scores), scores.conventions.depth
        if depth.reaches(k) and (most is None or k <= most):
            return k
        deepest = min(depth.known, most or depth.known)
        if least is None or deepest < least:
            raise MissingInputError(f"needs a {stage} list of {k}; the log goes to {deepest}")
        return deepest

    def values(self, name: str, k: int, scores: Scores | None = None) -> Values:
        """Return a measure of the final lists, or of others; NaN for queries not answered."""
        ranked = ranked_of(scores or self.staged.final)
        values = values_of(parse_measure(f"{name}@{k}"), ranked, self.gold)
        return np.where(self.answered, values, np.nan)

    def sieved_values(self, name: str, k: int) -> Values:
        """Return a measure of each query's last list before anything reorders it.

        That is the one after the filters that were logged for it, else the raw one.
        """
        values = self.values(name, k, self.staged.raw)
        for at, scores in enumerate(self.staged.line.values()):
            at_stage = self.way.sieved.at == at
            if at_stage.any():
                values = np.where(at_stage, self.values(name, k, scores), values)
        return values

    def ceiling(self, name: str, k: int) -> Values:
        """Return the best value that the gold of each query allows."""
        ideal = ideal_of(self.gold.target(np.arange(len(self.gold.query_ids))))
        values = values_of(parse_measure(f"{name}@{k}"), ideal, self.gold)
        return np.where(self.answered, values, np.nan)

    def top(self, scores: Scores, k: int) -> pl.DataFrame:
        """Return the first k hits of every query; raises MissingInputError if fewer were kept."""
        try:
            return kept_lists(scores, k)
        except UsageError:
            raise MissingInputError(
                f"needs the top {k} items of each list; fewer were kept"
            ) from None

    @property
    def gold_by_doc(self) -> Prepared:
        """The gold judged by document, where items have documents."""
        level = self.gold.conventions.level
        if level != "item":
            raise MissingInputError(f"needs gold of single items; level is {level}")
        if self._by_doc is None:
            raise MissingInputError("needs ids such as doc#chunk, or a corpus with doc_id")
        return self._by_doc

    @cached_property
    def _by_doc(self) -> Prepared | None:
        """The gold judged by document; None where each item is its own document."""
        gold = self.gold
        ids = pl.Series(gold.query_ids, dtype=pl.String).gather(gold.rows["code"])
        frame = gold.rows.select("item_id", "grade").with_columns(query_id=ids)
        conventions = replace(gold.conventions, level="doc", order=None, unit=None)
        corpus = None if gold.corpus is None else Corpus(gold.corpus)
        by_doc = prepare(Gold(frame, gold.query_ids), conventions, corpus=corpus)
        docs, items = (set(rows["item_id"].to_list()) for rows in (by_doc.rows, gold.rows))
        return None if docs >= items else by_doc

    def score_by_doc(self, run: Run, measure: str) -> Scores:
        """Return the scores of answered queries by document instead of by item."""
        ids = pl.Series(self.gold.query_ids, dtype=pl.String).filter(pl.Series(self.answered))
        lists = replace(run, calls=pl.DataFrame({"query_id": ids}))
        return score(lists, self.gold_by_doc, [parse_measure(measure)], derived=True)

    def kept_run(self, scores: Scores, k: int) -> Run:
        """Return the first k hits of every query as a run."""
        lists = self.top(scores, k)
        ids = pl.Series(self.gold.query_ids, dtype=pl.String).gather(lists["row"])
        names = [name for name in ("item_id", "doc_id", "rank") if name in lists.columns]
        return Run(lists.select(names).with_columns(query_id=ids), order="rank")

    @cached_property
    def doc_scores(self) -> Scores:
        """R of the documents that the gold is in, far down the raw lists."""
        return self.score_by_doc(self._raw_run, f"R@{self.far}")

    @cached_property
    def _raw_run(self) -> Run:
        """The raw lists as a run."""
        staged = self.staged
        if staged.run is None:
            return self.kept_run(staged.raw, self.far)
        raw = passed_on(staged.run, list(staged.line) if RAW in staged.line else [])
        return replace(raw, order=self.gold.conventions.order or staged.run.order)

    def p_value(self, delta: Values) -> float:
        """Return the p-value of the mean of paired differences; NaN takes no part."""
        has_value = ~np.isnan(delta)
        conventions, groups = self.staged.final.conventions, self.staged.final.groups
        p = randomisation(
            delta[has_value][:, None],
            resamples=conventions.permutations,
            seed=conventions.seed,
            groups=None if groups is None else groups[has_value],
        )
        return float(p[0])

    @property
    def alpha(self) -> float:
        """The significance level of tests."""
        return self.staged.final.conventions.alpha

    # Whether something reorders the lists.

    @cached_property
    def reranked_queries(self) -> Mask:
        """The queries whose list was reranked, by the log."""
        meta = self.staged.final.meta
        if any(str(key).startswith("rerank") and value for key, value in meta.items()):
            return np.ones(len(self.assessed), dtype=bool)
        timed, calls = np.zeros(len(self.assessed), dtype=bool), self.staged.calls
        if calls is not None and "latency.rerank" in calls.columns:
            codes = self.gold.code_of(calls.drop_nulls("latency.rerank")["query_id"])
            timed[codes[codes >= 0]] = True
        return timed

    @property
    def names_reranker(self) -> bool:
        """Whether the log names a reranker: by its list, time or name."""
        return "rerank" in self.staged.line or bool(self.reranked_queries.any())

    @property
    def has_reranker(self) -> bool:
        """Whether the log shows that something reorders the retriever's list."""
        if self.names_reranker or any(name in self.staged.line for name in REORDERING):
            return True
        return bool(self.before_order) and bool(self.moved.any())

    @cached_property
    def before_order(self) -> list[str]:
        """The stages in the log that come before anything reorders items."""
        return [name for name in (RAW, *SIEVES) if name in self.staged.line]

    @cached_property
    def moved(self) -> Mask:
        """The queries whose nDCG changed and whose list was reordered.

        A list that holds nothing but items of the one before it, in its order, was filtered or
        cut, and not reranked.
        """
        before, after = self.sieved_values("nDCG", self.near), self.values("nDCG", self.near)
        changed = self.answered & (before != after)
        unlogged = changed & ~self.way.reordered.logged
        in_order, _ = kept_order(self.staged, self.way, unlogged)
        moved: Mask = changed & ~in_order
        return moved


def with_ages(hits: pl.DataFrame, gold: Prepared) -> pl.DataFrame:
    """Return rows (by query and version) with as_of and in_time: 1, 0 newer, null unknown."""
    as_ofs = pl.Series([as_of or None for as_of in gold.as_of], dtype=pl.String)
    version = pl.col("version").cast(pl.String)
    hits = hits.with_columns(version, as_of=as_ofs.gather(hits["row"]))
    pairs = hits.select("version", "as_of").drop_nulls().unique()
    order = gold.conventions.versions
    ages = [in_time(version, as_of, order) for version, as_of in pairs.iter_rows()]
    pair_ages = pairs.with_columns(in_time=pl.Series(ages, dtype=pl.Float64).fill_nan(None))
    return hits.join(pair_ages, on=["version", "as_of"], how="left", maintain_order="left")


def in_index(staged: Staged) -> Mask | None:
    """Return which judged items can be found; None without a corpus. An item in any list can be

    found, even if the corpus file lacks it.
    """
    gold = staged.gold
    if gold.corpus is None:
        return None
    corpus_ids = gold.corpus[judged_by(gold)].unique()
    findable = gold.rows["item_id"].is_in(corpus_ids.implode()).to_numpy().copy()
    for scores in (staged.final, *staged.line.values(), *staged.beside.values()):
        rows = ranked_of(scores).found.row
        if rows is not None:
            findable[rows] = True
    return findable


@dataclass(frozen=True, eq=False)
class Dominance:
    """The dominant items and their places.

    ``items`` has item_id and the number of queries, the most frequent first; ``above`` the
    dominant items in each query's list, from the top; ``share`` is how much of the top of each
    query's list they take.
    """

    items: pl.DataFrame
    above: Mapping[int, list[str]]
    share: Values

    @classmethod
    def of(cls, case: Case, tops: pl.DataFrame) -> Dominance:
        """Return the non-gold items that rank above all gold in many tops.

        In a small corpus every item is in many lists, so it must be in more than equal
        chance would give; where the corpus is not known, it is what the tops hold.
        """
        scores, lines, best = case.staged.final, case.thresholds, case.way.final.rank
        ranked = ranked_of(scores)
        correct = ranked.hits.correct(scores.conventions.rel)
        gold = pl.DataFrame({"row": ranked.hits.query[correct], "rank": ranked.hits.rank[correct]})
        row, rank = tops["row"].to_numpy(), tops["rank"].to_numpy()
        above = tops.filter(case.assessed[row] & (rank < best[row]))
        wrong = above.join(gold, on=["row", "rank"], how="anti", maintain_order="left")
        # 0.07 × 100 is a little more than 7 in floating point.
        share = math.ceil(round(lines.dominant_share * case.n, 9))
        corpus = case.gold.corpus
        corpus_size = (None if corpus is None else corpus.height) or tops["item_id"].n_unique() or 1
        # A list that a threshold shortened has as many places above gold as one that is whole: what
        # the system left out of some lists makes no item more dominant in the others.
        depth = min(lines.miss, int(ranked.returned[case.answered].max(initial=0)))
        places = float(np.minimum(best[case.answered] - 1, depth).sum())
        needed = max(lines.dominant_queries, share, lines.dominant_lift * places / corpus_size)
        items = wrong.group_by("item_id").agg(queries=pl.len()).filter(pl.col("queries") >= needed)
        items = items.sort(["queries", "item_id"], descending=[True, False])
        dominant = wrong.join(items, on="item_id", how="semi", maintain_order="left")
        dominant_counts = np.bincount(dominant["row"].to_numpy(), minlength=ranked.n)
        by_query = dict(dominant.group_by("row").agg("item_id").iter_rows())
        shown = np.maximum(np.minimum(ranked.returned, lines.miss), 1)
        return cls(items, by_query, dominant_counts / shown)
