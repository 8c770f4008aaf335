"""Case: all that is known about the queries of one run, as failures, losses and findings see it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures.gold_ranks import BestGold, KeptOrder, Way, best_gold, kept_order
from karat.analysis.stages.routing import source_names
from karat.analysis.top_lists import kept_lists, ranked_of
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, MissingInputError, UsageError
from karat.evaluation.segments import By
from karat.evaluation.stages import ORIGINAL, RAW, REORDERING, SIEVES, Staged, Thresholds, passed_on
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import values_of
from karat.measure.kernels.lists import in_time
from karat.measure.lists import without_repeats
from karat.measure.names import parse_measure
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranked import Ints, Mask, ideal_of
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.stats.paired import randomisation

ASSESSED = ("scored", "missing", "failed")


@dataclass(frozen=True, eq=False)
class Case:
    """A run that is looked into; a property is computed when a rule first needs it.

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
        return self.staged.final.status.is_in(ASSESSED).to_numpy()

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
        return (self.staged.final.status == name).to_numpy()

    # What the log, the queries and the corpus say of a query.

    @cached_property
    def calls(self) -> Mapping[int, Mapping[str, Any]]:
        """What the log says of each query's call, by the query's row."""
        calls = self.staged.calls
        if calls is None:
            return {}
        codes = self.gold.code_of(calls["query_id"]).tolist()
        return dict(zip(codes, calls.iter_rows(named=True), strict=True))

    def call(self, query: int, name: str) -> Any:
        """Return what the log says of a query's call; None where it says nothing."""
        return self.calls.get(query, {}).get(name)

    def logs(self, name: str) -> bool:
        """Return whether the log says something of any call."""
        calls = self.staged.calls
        return calls is not None and name in calls.columns and calls[name].count() > 0

    def query_column(self, name: str) -> list[Any] | None:
        """Return a column of the queries in the order of the score table, if there is one."""
        frame = None if self.queries is None else self.queries.frame
        if frame is None or name not in frame.columns or not frame[name].count():
            return None
        values = dict(zip(frame["query_id"].to_list(), frame[name].to_list(), strict=True))
        return [values.get(query_id) for query_id in self.gold.query_ids]

    def relevant_rows(self, query: int) -> list[int]:
        """Return the rows of the judgments that make up a query's gold."""
        rows = np.arange(self.gold.first[query], self.gold.first[query + 1])
        relevant: list[int] = rows[self.gold.grade[rows] >= self.gold.conventions.rel].tolist()
        return relevant

    @cached_property
    def gold_versions(self) -> Mapping[int, list[str | None]]:
        """The versions in the corpus of the gold of each miss, by judgment."""
        return self._corpus_values("version")

    @cached_property
    def _gold_sources(self) -> Mapping[int, list[str | None]]:
        return self._corpus_values("source")

    def _corpus_values(self, name: str) -> dict[int, list[str | None]]:
        """Return the values of a corpus column for the gold of misses, by judgment.

        An item without a value brings None; one with a list of values brings them all.
        """
        corpus, judged = self.gold.corpus, self.gold.rows
        if corpus is None or name not in corpus.columns:
            return {}
        relevant = (self.gold.grade >= self.gold.conventions.rel) & self.misses[
            judged["code"].to_numpy()
        ]
        key = _corpus_key(self.gold)
        rows = (
            judged.with_row_index("at").filter(relevant).select("at", pl.col("item_id").alias(key))
        )
        values = corpus.select(key, value=pl.col(name))
        values = values.join(rows, on=key, how="semi", maintain_order="left")
        if values.schema["value"].base_type() == pl.List:
            values = values.explode("value")
        values = values.with_columns(pl.col("value").cast(pl.String))
        by_judgment: dict[int, list[str | None]] = {}
        pairs = rows.join(values, on=key, maintain_order="left_right").select("at", "value")
        for at, value in pairs.iter_rows():
            by_judgment.setdefault(at, []).append(value)
        return by_judgment

    def right_sources(self, query: int) -> list[str]:
        """Return where a miss's gold is: by the query's source, else by its gold items'."""
        if self._query_sources is not None and self._query_sources[query]:
            return list(source_names(self._query_sources[query]))
        rows = self.relevant_rows(query)
        return sorted(
            {source for row in rows for source in self._gold_sources.get(row, ()) if source}
        )

    @cached_property
    def _query_sources(self) -> list[Any] | None:
        return self.query_column("source")

    @cached_property
    def indexed(self) -> Mask | None:
        """The queries with gold that can be found; None without a corpus."""
        findable = in_index(self.staged)
        if findable is None:
            return None
        right = findable & (self.gold.grade >= self.gold.conventions.rel)
        has_gold = np.zeros(len(self.gold.query_ids), dtype=bool)
        has_gold[self.gold.rows["code"].to_numpy()[right]] = True
        return has_gold

    def in_time(self, version: str | None, query: int) -> float:
        """Return 1 for a version no newer than the query's as_of, 0 for a newer one, else NaN."""
        as_of = self.gold.as_of[query] if self.gold.as_of else None
        if not as_of or version is None:
            return math.nan
        return in_time(version, as_of, self.gold.conventions.versions)

    # Where gold stands, and what stands above it.

    @cached_property
    def beside(self) -> Mapping[str, BestGold]:
        """Where gold stands in the lists beside the way to the final one."""
        return {name: best_gold(own, self.gold) for name, own in self.staged.beside.items()}

    @cached_property
    def original(self) -> BestGold | None:
        """Where gold stands in the lists for the original queries; None where none is logged."""
        return self.beside.get(ORIGINAL)

    @cached_property
    def kept(self) -> KeptOrder:
        """What the final lists of misses keep of the last list that has their gold."""
        return kept_order(self.staged, self.way, self.misses & np.isfinite(self.way.last.rank))

    @cached_property
    def passed_over(self) -> Mask:
        """The misses whose gold stood above an item that was returned, in the same order."""
        lost = self.misses & self.way.lost_at_the_end
        if not lost.any():
            return lost
        return lost & self.kept.in_order & (self.way.last.rank <= self.kept.above)

    @cached_property
    def judgment(self) -> Ints:
        """The judgment of the gold that came furthest; of gold in no list, the best grade's."""
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
        return None if self.tops is None else _dominance(self, self.tops)

    @cached_property
    def similarity(self) -> Values:
        """The similarity of the best-placed gold retrieved; NaN where it was not logged."""
        logged = self.way.first.number("similarity")
        if self.staged.final.meta.get("score_kind") != "cosine":
            return logged
        return np.where(np.isnan(logged), self.score, logged)

    @cached_property
    def least_similarity(self) -> Values:
        """What the similarity of gold should be: the query's own limit, else the common one."""
        limits = self.query_column("min_similarity")
        if limits is None or self.queries is None:
            return np.full(len(self.gold.query_ids), self.thresholds.similarity)
        numbers = pl.Series(limits, strict=False).cast(pl.Float64, strict=False)
        if numbers.null_count() > limits.count(None):
            raise InputError(
                "min_similarity holds something that is no number; a number is expected",
                where=self.queries.source.name,
            )
        return numbers.fill_null(self.thresholds.similarity).to_numpy()

    @cached_property
    def score(self) -> Values:
        """The score of the best-placed gold retrieved; NaN where it was not logged."""
        return self.way.first.number("score")

    @cached_property
    def below_score(self) -> Mask:
        """The queries whose best-placed gold retrieved scores below the score threshold."""
        if self.thresholds.score is None:
            return np.zeros(len(self.assessed), dtype=bool)
        return np.less(self.score, self.thresholds.score)

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
        """Where a query counts as missed, or as deep as the final lists go, if not nearer."""
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
            here = self.way.sieved.at == at
            if here.any():
                values = np.where(here, self.values(name, k, scores), values)
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

    @cached_property
    def gold_by_doc(self) -> Prepared:
        """The gold judged by document, where items have documents."""
        gold = self.gold
        if gold.conventions.level != "item":
            raise MissingInputError(
                f"needs gold of single items; level is {gold.conventions.level}"
            )
        ids = pl.Series(gold.query_ids, dtype=pl.String).gather(gold.rows["code"])
        frame = gold.rows.select("item_id", "grade").with_columns(query_id=ids)
        conventions = replace(gold.conventions, level="doc", order=None, unit=None)
        corpus = None if gold.corpus is None else Corpus(gold.corpus)
        by_doc = prepare(Gold(frame, gold.query_ids), conventions, corpus=corpus)
        if set(by_doc.rows["item_id"]) >= set(gold.rows["item_id"]):
            raise MissingInputError("needs ids such as doc#chunk, or a corpus with doc_id")
        return by_doc

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
        staged = self.staged
        if staged.run is None:
            raw = self.kept_run(staged.raw, self.far)
        else:
            raw = passed_on(staged.run, list(staged.line) if RAW in staged.line else [])
            raw = replace(raw, order=self.gold.conventions.order or staged.run.order)
        return self.score_by_doc(raw, f"R@{self.far}")

    def p_value(self, delta: Values) -> float:
        """Return the p-value of the mean of paired differences; NaN takes no part."""
        known = ~np.isnan(delta)
        conventions, groups = self.staged.final.conventions, self.staged.final.groups
        p = randomisation(
            delta[known][:, None],
            resamples=conventions.permutations,
            seed=conventions.seed,
            groups=None if groups is None else groups[known],
        )
        return float(p[0])

    @property
    def alpha(self) -> float:
        """The significance level of tests."""
        return self.staged.final.conventions.alpha

    # Whether something reorders the lists.

    @cached_property
    def _reranker_in_meta(self) -> bool:
        meta = self.staged.final.meta
        return any(str(key).startswith("rerank") and value for key, value in meta.items())

    @cached_property
    def reranked_queries(self) -> Mask:
        """The queries of which the log says that something reranked their list."""
        if self._reranker_in_meta:
            return np.ones(len(self.assessed), dtype=bool)
        timed = [self.call(row, "latency.rerank") is not None for row in range(len(self.assessed))]
        return np.array(timed, dtype=bool)

    @property
    def names_reranker(self) -> bool:
        """Whether the log says that there is a reranker: its list, its time or its name."""
        calls = self.staged.calls
        timed = calls is not None and "latency.rerank" in calls.columns
        return "rerank" in self.staged.line or self._reranker_in_meta or timed

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
        moved: Mask = changed & ~kept_order(self.staged, self.way, unlogged).in_order
        return moved


def in_index(staged: Staged) -> Mask | None:
    """Return which judgments name something that can be found; None without a corpus.

    What any list holds can be found, even if the corpus file lacks it.
    """
    gold = staged.gold
    if gold.corpus is None:
        return None
    known = gold.corpus[_corpus_key(gold)].unique()
    findable = gold.rows["item_id"].is_in(known.implode()).to_numpy().copy()
    for scores in (staged.final, *staged.line.values(), *staged.beside.values()):
        rows = ranked_of(scores).found.row
        if rows is not None:
            findable[rows] = True
    return findable


def _corpus_key(gold: Prepared) -> str:
    """Return the corpus column that names what is judged."""
    return "item_id" if gold.conventions.level == "item" else "doc_id"


@dataclass(frozen=True, eq=False)
class Dominance:
    """The items that dominate, and where they stand.

    ``items`` has item_id and the number of queries, the most frequent first; ``above`` the
    dominant items in each query's list, from the top; ``share`` is how much of the top of each
    query's list they take.
    """

    items: pl.DataFrame
    above: Mapping[int, list[str]]
    share: Values


def _dominance(case: Case, tops: pl.DataFrame) -> Dominance:
    """Return the items that stand above all gold, without being gold, in the top of many queries.

    In a small corpus every item stands in many lists, so it must be more of them than equal
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
    taken = np.bincount(dominant["row"].to_numpy(), minlength=ranked.n)
    by_query: dict[int, list[str]] = {}
    for query, item in dominant.select("row", "item_id").iter_rows():
        by_query.setdefault(query, []).append(item)
    shown = np.maximum(np.minimum(ranked.returned, lines.miss), 1)
    return Dominance(items, by_query, taken / shown)
