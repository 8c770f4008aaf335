"""Pool: unjudged items of several runs, in an order that hides systems and ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import polars as pl

from karat.data.tables import Blocks, Corpus, Gold, InterleavedError, Queries, Run
from karat.errors import InputError, MissingInputError, UsageError
from karat.label.inputs import (
    PAIR,
    CorpusLike,
    GoldLike,
    QueriesLike,
    RunLike,
    Settings,
    as_list,
    conventions_for,
    corpus_table,
    gold_tables,
    judged_pairs,
    queries_table,
    refuse_two_pipes,
    runs_by_name,
)
from karat.label.pool_bias import bias_measures, bias_sections, pool_bias
from karat.measure.conventions import ANY_GRADE, Conventions
from karat.measure.lists import ListNeeds, without_repeats
from karat.measure.names import Measure
from karat.measure.prepare import prepare
from karat.measure.rank import rank
from karat.pages.formatting import label, percent, plural
from karat.pages.page import Page, Section, TableColumns, table
from karat.pages.result import AnalysisResult

T = TypeVar("T")

# What a rater sees of an item and of a query. None of it comes from a run.
_OF_ITEM = ("doc_id", "title", "version")
_OF_QUERY = ("as_of",)
# Settings that decide what is at the top and how it is shuffled, and those that decide a score.
_POOLING = ("order", "ties", "repeats", "seed")
_SCORING = ("missing", "empty_gold", "rel", "gain", "k")


def pool(
    runs: Mapping[str, RunLike] | Sequence[RunLike] | RunLike,
    *,
    depth: int = 10,
    gold: GoldLike | Sequence[GoldLike] = (),
    queries: QueriesLike | None = None,
    corpus: CorpusLike | None = None,
    sample: int | None = None,
    include_judged: bool = False,
    bias: bool = False,
    measures: Sequence[str | Measure] | None = None,
    profile: str | Conventions = "karat",
    settings: Settings | None = None,
    run_format: str | None = None,
    gold_format: str | None = None,
    strict: bool = False,
) -> Pool:
    """Return the union of the top ``depth`` of every run, without what the gold judges.

    Each run keeps its own order. ``sample`` draws that many pairs, all equally likely, and
    ``include_judged`` keeps judged pairs. The pairs of a query stay together. The order of queries
    and items depends only on the seed and on which pairs there are. ``bias`` also asks whether
    the gold is fair to every run, by ``measures``.

    >>> runs = {"a": {"q": ["x", "y"]}, "b": {"q": ["y", "z"]}}
    >>> sorted(pool(runs, depth=2, gold={"q": {"y": 0}}).pairs["item_id"])
    ['x', 'z']
    """
    if not runs:
        raise UsageError("a pool is made of runs; give at least one")
    named = runs.values() if isinstance(runs, Mapping) else as_list(runs)
    refuse_two_pipes(*named, *as_list(gold), queries, corpus)
    if measures and not bias:
        raise UsageError("-m names the measures of --bias; a pool alone has no scores")
    if bias and not as_list(gold):
        raise UsageError("--bias asks whether gold is fair to the runs; give it with --gold")
    allowed = [*_POOLING, *_SCORING] if bias else _POOLING
    purpose = "the bias of a pool" if bias else "a pool"
    conventions = conventions_for(profile, settings, allowed, purpose)
    chosen = bias_measures(measures, conventions=conventions)
    for name, number in (("depth", depth), ("sample", sample)):
        if number is not None and number < 1:
            raise UsageError(f"{name} is {number}; it must be at least 1")
    refuse_level(conventions)
    judged = gold_tables(gold, format=gold_format, duplicates=conventions.duplicates)
    asked = queries_table(queries, gold, gold_format=gold_format)
    texts = corpus_table(corpus)
    tables = runs_by_name(runs, format=run_format, strict=strict)
    query_ids = all_query_ids(tables.values(), gold=judged, queries=asked)
    if not query_ids:
        raise InputError("the runs have no query, so there is nothing to pool")
    tops = {
        name: top_hits(run, query_ids, depth=depth, conventions=conventions)
        for name, run in tables.items()
    }
    union = _union([hits for hits, _ in tops.values()], judged)
    to_judge = union if include_judged else union.filter(~pl.col("judged"))
    pairs = with_texts(shuffled(to_judge, conventions.seed, sample=sample), asked, texts)
    body: dict[str, Any] = {
        "depth": depth,
        "seed": conventions.seed,
        "sample": sample,
        "include_judged": include_judged,
        "queries": len(query_ids),
        "union": union.height,
        "judged": int(union["judged"].sum()),
        "to_judge": to_judge.height,
        "pairs": pairs.height,
        "pooled_queries": pairs["query_id"].n_unique(),
        "items_without_text": pairs.filter(pl.col("text").is_null())["item_id"].n_unique(),
        "queries_without_text": pairs.filter(pl.col("query").is_null())["query_id"].n_unique(),
        "systems": [
            _coverage(name, hits, union, to_judge) | gaps for name, (hits, gaps) in tops.items()
        ],
    }
    if bias:
        body["bias"] = pool_bias(
            tables, judged, depth=depth, measures=chosen, queries=asked, conventions=conventions
        )
    shown = ("profile", *_POOLING[:-1], *(_SCORING if bias else ()))
    inputs = {
        "runs": [run.source for run in tables.values()],
        "gold": [table.source for table in judged],
        "queries": None if asked is None else asked.source,
        "corpus": None if texts is None else texts.source,
    }
    settings_shown = {name: getattr(conventions, name) for name in shown}
    return Pool(body, settings_shown, _pool_page, inputs, pairs=pairs)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairsToJudge(AnalysisResult):
    """A result with pairs to judge, in the order in which a rater sees them.

    ``pairs`` has ``query_id`` and ``item_id``, ``query`` and ``text``, and what else is known of
    the item and the query. Nothing in it tells which system returned an item.
    """

    pairs: pl.DataFrame

    def records(self) -> list[dict[str, Any]]:
        """Return the pairs as a pool file holds them; unknown values are left out."""
        return [
            {name: value for name, value in row.items() if value is not None}
            for row in self.pairs.iter_rows(named=True)
        ]

    def check_texts(self) -> None:
        """Raise MissingInputError if a pair lacks a text; say which file would help."""
        for column, key, name in (("query", "query_id", "queries"), ("text", "item_id", "corpus")):
            lacking = self.pairs.filter(pl.col(column).is_null())[key].unique().sort()
            if len(lacking):
                source, noun = self.inputs.get(name), "queries" if column == "query" else "items"
                place = "" if source is None else f"{source.name}: "
                count = f"{len(lacking):,} of {self.pairs[key].n_unique():,} {noun}"
                raise MissingInputError(
                    f"{place}{count} (such as {lacking[0]!r}) of the pool have no text; add it"
                    f" with --{name}, or keep ids alone: --without-texts"
                )


class Pool(PairsToJudge):
    """The pairs of a pool, and how much of each run's top is judged."""

    def to_frame(self) -> pl.DataFrame:
        """Return the pairs."""
        return self.pairs


def to_jsonl(result: Any) -> bytes:
    """Return one pair per line, as a rater may see it: nothing tells the system or the rank."""
    lines = (json.dumps(record, ensure_ascii=False) for record in result.records())
    return "".join(f"{line}\n" for line in lines).encode()


def refuse_level(conventions: Conventions) -> None:
    """Raise UsageError where documents or spans are judged instead of items."""
    if conventions.level != "item":
        raise UsageError(f"level={conventions.level}: a pool holds items only")


def all_query_ids(
    runs: Iterable[Run | Blocks], *, gold: Sequence[Gold] = (), queries: Queries | None = None
) -> list[str]:
    """Return the ids of the queries file, else all ids that a run or gold has."""
    if queries is not None:
        return queries.frame["query_id"].to_list()

    def ids_in(block: Run) -> list[str]:
        ids: list[str] = block.hits["query_id"].unique(maintain_order=True).to_list()
        return ids if block.calls is None else ids + block.calls["query_id"].to_list()

    of_runs = chain.from_iterable(ids for run in runs for ids in _of_each_block(run, ids_in))
    of_gold = chain.from_iterable(table.query_ids for table in gold)
    return list(dict.fromkeys(chain(of_runs, of_gold)))


def _of_each_block(run: Run | Blocks, work: Callable[[Run], T]) -> list[T]:
    """Return the results of some work on each block; a run whose queries are torn is one block."""
    try:
        return list(map(work, run.blocks()))
    except InterleavedError:
        return [work(run.read())]


def top_hits(
    run: Run | Blocks, query_ids: Sequence[str], *, depth: int, conventions: Conventions
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return the first ``depth`` items of each query, each once, and what the run lacks or repeats.

    The hits have ``query_id``, ``item_id`` and ``rank``; a repeat uses up a rank. A query is
    answered if its call did not fail, even with an empty list.
    """
    nothing = pl.DataFrame(schema=dict.fromkeys(PAIR, pl.String) | {"grade": pl.Float64})
    prepared = prepare(Gold.from_frame(nothing, query_ids=query_ids), conventions)
    needs = ListNeeds.of((), depth)
    blocks = _of_each_block(run, lambda block: rank(block, prepared, needs))
    empty = np.empty(0, dtype=np.int64)
    answered = np.unique(np.concatenate([empty, *(block.codes for block in blocks)]))
    failed = np.unique(np.concatenate([empty, *(block.failed for block in blocks)]))
    unknown = sorted({name for block in blocks for name in block.unknown_queries})
    if not len(answered) and not len(failed) and unknown:
        returned, expected = (" and ".join(map(repr, ids[:2])) for ids in (unknown, query_ids))
        message = f"shares no query with the queries: it has {returned}, they have {expected}"
        raise InputError(message, where=run.source.name)
    ids = pl.Series("query_id", list(prepared.query_ids), dtype=pl.String)
    parts = [pl.DataFrame(schema=dict.fromkeys(PAIR, pl.String) | {"rank": pl.Int64})]
    for block in blocks:
        listing = block.ranked.listing
        if listing is None:
            continue
        listed = listing.frame.select(
            ids.gather(block.codes[listing.query]),
            "item_id",
            "repeat",
            pl.Series("rank", listing.rank),
        )
        parts.append(without_repeats(listed.filter(pl.col("rank") <= depth)).select(*PAIR, "rank"))
    return pl.concat(parts), {
        "answered": len(answered),
        "missing": len(query_ids) - len(answered) - len(failed),
        "failed_calls": len(failed),
        "not_asked": len(unknown),
        "repeats": sum(block.repeats for block in blocks),
        "order_conflicts": sum(block.conflicts for block in blocks),
    }


def _union(tops: Sequence[pl.DataFrame], gold: Sequence[Gold]) -> pl.DataFrame:
    """Return every pair once, with the number of runs that have it and whether it is judged.

    Sorting by id discards the order of the runs and of their lists.
    """
    hits = pl.concat([top.select(PAIR) for top in tops])
    union = hits.group_by(PAIR).agg(runs=pl.len()).sort(PAIR)
    gold_pairs = pl.concat(
        [union.select(PAIR).clear(), *(judged_pairs(table).select(PAIR) for table in gold)]
    )
    gold_pairs = gold_pairs.unique().with_columns(judged=pl.lit(value=True))
    union = union.join(gold_pairs, on=PAIR, how="left", maintain_order="left")
    return union.with_columns(pl.col("judged").fill_null(value=False))


def shuffled(pairs: pl.DataFrame, seed: int, *, sample: int | None = None) -> pl.DataFrame:
    """Return the pairs with queries and items in random order, each query's pairs together.

    The order depends only on the seed and on which pairs there are.
    """
    rng = np.random.default_rng(seed)
    drawn = pairs.select(PAIR).sort(PAIR)
    if sample is not None and sample < drawn.height:
        drawn = drawn[np.sort(rng.choice(drawn.height, sample, replace=False))]
    queries = drawn["query_id"].unique().sort()
    places = pl.DataFrame({"query_id": queries, "place": rng.permutation(len(queries))})
    drawn = drawn.join(places, on="query_id", how="left", maintain_order="left")
    drawn = drawn.with_columns(key=pl.Series(rng.permutation(drawn.height), dtype=pl.Int64))
    return drawn.sort("place", "key").select(PAIR)


def _coverage(
    name: str, top: pl.DataFrame, union: pl.DataFrame, to_judge: pl.DataFrame
) -> dict[str, Any]:
    """Return how much of a run's top is judged, and what it adds to the pool.

    ``alone`` counts the pairs of the pool that no other run has in its top.
    """
    hits = top.select(PAIR)
    pooled = to_judge.join(hits, on=PAIR, how="semi")
    judged = union.filter("judged").join(hits, on=PAIR, how="semi").height
    return {
        "name": name,
        "items": hits.height,
        "judged": judged,
        "judged_share": judged / hits.height if hits.height else None,
        "in_pool": pooled.height,
        "alone": int((pooled["runs"] == 1).sum()),
    }


def with_texts(pairs: pl.DataFrame, queries: Queries | None, corpus: Corpus | None) -> pl.DataFrame:
    """Return pairs with what a rater may see of the query and the item."""
    if queries is not None:
        texts = _texts(queries.frame, "query_id", "query", _OF_QUERY)
        pairs = pairs.join(texts, on="query_id", how="left", maintain_order="left")
    if corpus is not None:
        texts = _texts(corpus.frame, "item_id", "text", _OF_ITEM)
        pairs = pairs.join(texts, on="item_id", how="left", maintain_order="left")
    columns = [*PAIR, "query", "text", *_OF_ITEM, *_OF_QUERY]
    lacking = [pl.lit(None, pl.String).alias(name) for name in columns if name not in pairs.columns]
    return pairs.with_columns(lacking).select(columns)


def _texts(frame: pl.DataFrame, key: str, text: str, others: Sequence[str]) -> pl.DataFrame:
    """Return texts and facts as strings; white space alone counts as nothing."""
    plain = [
        name for name in others if name in frame.columns and not frame.schema[name].is_nested()
    ]
    texts = frame.select(
        key, pl.col("text").alias(text), *(pl.col(name).cast(pl.String) for name in plain)
    )
    blank = pl.exclude(key).str.strip_chars() == ""
    return texts.with_columns(pl.when(~blank).then(pl.exclude(key)))


# The words for each count, one and several.
_GAPS = {
    "missing": ("query missing from the run", "queries missing from the run"),
    "failed_calls": ("failed call", "failed calls"),
    "not_asked": ("query only in the run", "queries only in the run"),
    "repeats": ("repeated hit", "repeated hits"),
    "order_conflicts": ("rank that contradicts its score", "ranks that contradict their scores"),
}


def gap_counts(gaps: Mapping[str, int]) -> list[str]:
    """Return what a run lacks or repeats, one phrase per kind."""
    return [plural(gaps[name], *words) for name, words in _GAPS.items() if gaps.get(name)]


def _pool_page(results: Mapping[str, Any]) -> Page:
    systems = results["systems"]
    columns: TableColumns = {
        "system": "name",
        "items": "items",
        "judged": "judged",
        "share": lambda system: percent(system["judged_share"]) if system["items"] else None,
        "in the pool": "in_pool",
        "alone": "alone",
    }
    grid = table(systems, columns)
    lines = [
        f"{label(system['name'])}: {' · '.join(gaps)}"
        for system in systems
        if (gaps := gap_counts(system))
    ]
    sections = [Section(f"Judged in the top {results['depth']:,}", grid, lines)]
    if "bias" in results:
        sections += bias_sections(results["bias"])
    return Page("A pool to judge", list(_headline(results)), sections, list(_notes(results)))


def _headline(results: Mapping[str, Any]) -> Iterator[str]:
    runs = plural(len(results["systems"]), "run holds", "runs hold")
    judged = f", {results['judged']:,} of them judged" if results["judged"] else ""
    yield f"the top {results['depth']:,} of {runs} {plural(results['union'], 'pair')}{judged}"
    queries = plural(results["pooled_queries"], "query", "queries")
    drawn = f"{plural(results['pairs'], 'pair')} of {queries}"
    including = ", including judged pairs" if results["include_judged"] else ""
    if not results["pairs"]:
        yield "nothing is left to judge"
    elif results["sample"] is None:
        yield f"the pool: {drawn}{including}"
    elif results["pairs"] < results["sample"]:
        yield f"the sample of {results['sample']:,} is the whole pool, {drawn}: there are no more"
    else:
        yield f"the sample: {drawn}, drawn from {results['to_judge']:,}{including}"


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    lacking = {kind: results[f"{kind}_without_text"] for kind in ("queries", "items")}
    if any(lacking.values()):
        counts = " · ".join(f"{count:,} {kind}" for kind, count in lacking.items() if count)
        yield f"without a text: {counts}"
    conventions = results["conventions"]
    order = f" · order {conventions['order']}" if conventions["order"] else ""
    yield (
        f"profile {conventions['profile']}{order} · ties {conventions['ties']} · pairs of a query"
        f" together, queries and items in random order, seed {results['seed']}"
    )
    if "bias" in results:
        settings = {name: conventions[name] for name in _SCORING}
        rel = settings["rel"]
        settings["rel"] = "above 0" if rel == ANY_GRADE else f"{rel:g}"
        yield " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
