"""Routers: whether each query was sent to the source that holds its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.sources import JOINED, Names, source_names
from karat.analysis.staged import Staged
from karat.analysis.stages.cuts import cells, cut_at, cuts_to, reach_of
from karat.measures.intervals import plan_of
from karat.measures.names import Measure
from karat.measures.ranked import Mask
from karat.stats.means import mean_intervals
from karat.stats.proportions import clopper_pearson
from karat.tables import Queries

NO_CHOICE = (
    "the log does not say where each query was sent; log each call's source, one name or several"
    " joined by +"
)
NO_RIGHT = (
    "nothing says where each query should go; give --queries with a column source, or --corpus"
    " with the source of each item"
)


@dataclass(frozen=True, slots=True)
class Routed:
    """One query: the sources that hold its answer, and those that it was sent to."""

    row: int
    query_id: str
    right: Names
    chosen: Names

    @property
    def covered(self) -> bool:
        """Whether it reached a right source."""
        return bool({*self.right} & {*self.chosen})

    @property
    def over_asked(self) -> bool:
        """Whether several sources were asked where one is right."""
        return len(self.chosen) > 1 and len(self.right) == 1


@dataclass(frozen=True, eq=False)
class Routing:
    """Where queries were sent, and where they should have been.

    ``judged`` are the queries of which both is known; ``left_out`` counts the others by why.
    ``chosen`` counts how often each source was asked, by the ``told`` calls that say so,
    ``hits`` of which source the top k are, and
    ``by_source`` what the queries that belong to each source got.
    """

    told: int
    judged: tuple[Routed, ...]
    left_out: Mapping[str, int]
    chosen: Mapping[str, int]
    coverage: Mapping[str, Any]
    by_source: Mapping[str, Mapping[str, Any]]
    hits: Mapping[str, Any] | None
    right_from: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        """The routing as it stands in a report."""
        known = {name for one in self.judged for name in one.right}
        return {
            "n": len(self.judged),
            "coverage": dict(self.coverage) if self.judged else None,
            "misroutes": [
                {"query_id": one.query_id, "right": list(one.right), "chosen": list(one.chosen)}
                for one in self.judged
                if not one.covered
            ],
            "confusion": self._confusion(),
            "over_asked": sum(one.over_asked for one in self.judged),
            "chosen": {
                name: {"n": n, "share": n / self.told} for name, n in sorted(self.chosen.items())
            },
            "never_right": sorted({*self.chosen} - known) if self.judged else [],
            "left_out": dict(self.left_out),
            "right_from": dict(self.right_from),
            "by_source": {name: dict(one) for name, one in self.by_source.items()},
            "hits": self.hits,
        }

    def _confusion(self) -> dict[str, dict[str, int]]:
        """How often queries of each source were sent where."""
        pairs = Counter((_label(one.right), _label(one.chosen)) for one in self.judged)
        table: dict[str, dict[str, int]] = {}
        for (right, chosen), n in sorted(pairs.items()):
            table.setdefault(right, {})[chosen] = n
        return table


def _label(names: Names) -> str:
    return JOINED.join(sorted(names))


def routing_of(staged: Staged, queries: Queries | None, recall: Measure) -> Routing | None:
    """What the log tells of a router; None where neither calls nor hits have a source.

    ``recall`` is one of the measures that the run was scored by, with a cut-off.
    """
    k = recall.k if isinstance(recall.k, int) else staged.final.conventions.k
    chosen = chosen_sources(staged)
    hits = _hit_sources(staged, k)
    if not any(chosen) and hits is None:
        return None
    right, told_by = _right_sources(staged, queries)
    failed, called = _fates(staged)
    rows = range(len(chosen))
    judged = tuple(
        Routed(row, staged.gold.query_ids[row], right[row], chosen[row])
        for row in rows
        if right[row] and chosen[row] and not failed[row]
    )
    well = [row for row in rows if called[row] and not failed[row]]
    return Routing(
        told=sum(bool(chosen[row]) for row in well),
        judged=judged,
        left_out={
            "failed": int(failed.sum()),
            "not_called": int((~called).sum()),
            "without_choice": sum(not chosen[row] for row in well),
            "without_right": sum(bool(chosen[row]) and not right[row] for row in well),
        },
        chosen=Counter(name for row in well for name in chosen[row]),
        coverage=_share(staged, judged),
        by_source=_by_source(staged, right, judged, recall, k),
        hits=hits,
        right_from=Counter(told for told in told_by if told is not None),
    )


def missing_for_routing(found: Routing | None) -> str | None:
    """What would have to be there for a router to be judged."""
    if found is None or not found.chosen:
        return NO_CHOICE
    return None if found.judged else NO_RIGHT


def chosen_sources(staged: Staged) -> list[Names]:
    """The sources that each query was sent to, in the order of the score table."""
    return _by_query(staged, staged.calls, "source")


def _by_query(staged: Staged, frame: pl.DataFrame | None, column: str) -> list[Names]:
    names: list[Names] = [()] * len(staged.gold.query_ids)
    if frame is None or column not in frame.columns:
        return names
    codes = staged.gold.code_of(frame["query_id"]).tolist()
    for code, value in zip(codes, frame[column].to_list(), strict=True):
        if code >= 0:
            names[code] = source_names(value)
    return names


def _right_sources(staged: Staged, queries: Queries | None) -> tuple[list[Names], list[str | None]]:
    """Where each query should go: as the queries say, else where its gold is."""
    told = _by_query(staged, None if queries is None else queries.frame, "source")
    of_gold = _gold_sources(staged) if not all(told) else told
    right = [own or other for own, other in zip(told, of_gold, strict=True)]
    by = [
        "queries" if own else "corpus" if other else None
        for own, other in zip(told, of_gold, strict=True)
    ]
    return right, by


def _gold_sources(staged: Staged) -> list[Names]:
    """The sources of each query's gold items, as the corpus has them."""
    gold = staged.gold
    names: list[Names] = [()] * len(gold.query_ids)
    if gold.corpus is None or "source" not in gold.corpus.columns:
        return names
    relevant = gold.rows.filter(pl.col("grade") >= gold.conventions.rel)
    sources = _sources_of(gold.corpus, relevant["item_id"].unique())
    for code, item in relevant.select("code", "item_id").iter_rows():
        names[code] = tuple(dict.fromkeys((*names[code], *sources.get(item, ()))))
    return names


def _sources_of(corpus: pl.DataFrame, wanted: pl.Series) -> dict[str, Names]:
    """The sources of some items, and of those documents that are no items themselves."""
    named = pl.col("item_id").is_in(wanted.implode()) | pl.col("doc_id").is_in(wanted.implode())
    some = corpus.filter(named)
    rows = some.select("item_id", "doc_id", pl.col("source").cast(pl.String)).iter_rows()
    items: dict[str, Names] = {}
    docs: dict[str, Names] = {}
    for item, doc, source in rows:
        if source:
            items[item] = (source,)
            docs[doc] = tuple(dict.fromkeys((*docs.get(doc, ()), source)))
    return docs | items


def _fates(staged: Staged) -> tuple[Mask, Mask]:
    """Which queries' calls failed, and which were called at all."""
    n = len(staged.gold.query_ids)
    failed, called = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    if staged.calls is None:
        return failed, ~called
    codes = staged.gold.code_of(staged.calls["query_id"])
    called[codes[codes >= 0]] = True
    if "error" in staged.calls.columns:
        wrong = staged.calls["error"].is_not_null().to_numpy() & (codes >= 0)
        failed[codes[wrong]] = True
    return failed, called


def _share(staged: Staged, judged: Sequence[Routed]) -> dict[str, Any]:
    """The share of queries that reached a right source, with Clopper and Pearson's interval.

    Queries of one conversation are drawn together instead.
    """
    n = len(judged)
    if not n:
        return {"mean": None, "ci": None, "n": 0}
    covered = np.array([one.covered for one in judged], dtype=np.float64)
    conventions, groups = staged.final.conventions, staged.final.groups
    ci: list[float] | None = None
    if groups is not None and conventions.interval != "none":
        own = groups[[one.row for one in judged]]
        ends = mean_intervals(
            covered[:, None], plan_of(conventions), ranges=[(0.0, 1.0)], groups=own
        )
        ci = None if np.isnan(ends).any() else ends[0].tolist()
    elif n > 1 and conventions.interval != "none":
        ci = list(clopper_pearson(int(covered.sum()), n, confidence=conventions.ci))
    return {"mean": float(covered.sum() / n), "ci": ci, "n": n}


def _by_source(
    staged: Staged, right: Sequence[Names], judged: Sequence[Routed], recall: Measure, k: int
) -> dict[str, dict[str, Any]]:
    """For the queries that belong to each source: how many got there, and what was found."""
    reach = reach_of(staged, [staged.final], k)
    final = cut_at(staged.final, staged.gold, cuts_to([recall], reach.used))
    found = {}
    for name in sorted({one for some in right for one in some}):
        mask = np.array([name in some for some in right], dtype=bool)
        own = [one for one in judged if name in one.right]
        found[name] = {
            "queries": int(mask.sum()),
            "coverage": _share(staged, own),
            **cells(final, mask),
        }
    return found


def _hit_sources(staged: Staged, k: int) -> dict[str, Any] | None:
    """Of which source the top k are, by the log's word, else by the corpus's."""
    lists = staged.final.lists
    if lists is None:
        return None
    top = lists.filter(pl.col("rank") <= k)
    sources = _hit_column(top, staged.gold.corpus)
    if sources.null_count() == len(sources):
        return None
    counts = Counter(sources.drop_nulls().to_list())
    total = len(sources)
    return {
        "k": k,
        "n": total,
        "unknown": sources.null_count(),
        "shares": {name: n / total for name, n in sorted(counts.items())},
    }


def _hit_column(top: pl.DataFrame, corpus: pl.DataFrame | None) -> pl.Series:
    told: Iterable[pl.Expr] = [pl.col("source")] if "source" in top.columns else []
    if corpus is not None and "source" in corpus.columns:
        known = corpus.select("item_id", _source=pl.col("source").cast(pl.String))
        top = top.join(known, on="item_id", how="left", maintain_order="left")
        told = [*told, pl.col("_source")]
    return top.select(pl.coalesce(*told, pl.lit(None, pl.String)).alias("source"))["source"]
