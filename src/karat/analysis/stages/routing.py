"""Routers: whether each query was sent to the source that holds its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.stages.effects import (
    LINKING,
    Cuts,
    cells,
    compared,
    cut_at,
    cuts_to,
    fair_cut,
    fair_cuts,
    only_where,
    paired,
    reach_of,
    says,
)
from karat.data.tables import Queries
from karat.evaluation.comparison import Comparisons
from karat.evaluation.stages import ORIGINAL, Staged
from karat.evaluation.verdict import Rule
from karat.formats.json_records import from_text
from karat.measures.names import Measure
from karat.measures.prepare import entity_sets
from karat.measures.ranked import Mask
from karat.measures.scores import Scores, plan_of
from karat.stats.means import mean_intervals
from karat.stats.proportions import clopper_pearson

Names = tuple[str, ...]

JOINED = "+"


def source_names(value: Any) -> Names:
    """Return sources given as a list, as one text, or as several joined by +.

    >>> source_names("docs + tickets"), source_names(["docs"]), source_names("c++")
    (('docs', 'tickets'), ('docs',), ('c++',))
    """
    value = from_text(value)
    if isinstance(value, list):
        return tuple(dict.fromkeys(str(one) for one in value if one not in (None, "")))
    if value is None or value == "":
        return ()
    parts = [part.strip() for part in str(value).split(JOINED)]
    # A name may have a + of its own, as c++ does.
    return tuple(dict.fromkeys(parts)) if all(parts) else (str(value),)


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

    def to_dict(self) -> dict[str, Any]:
        """Return the routing as plain data."""
        known = {name for routed in self.judged for name in routed.right}
        return {
            "n": len(self.judged),
            "coverage": dict(self.coverage) if self.judged else None,
            "misroutes": [
                {
                    "query_id": routed.query_id,
                    "right": list(routed.right),
                    "chosen": list(routed.chosen),
                }
                for routed in self.judged
                if not routed.covered
            ],
            "confusion": self._confusion(),
            "over_asked": sum(routed.over_asked for routed in self.judged),
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
        """Return how often queries of each source were sent where."""
        pairs = Counter((_label(routed.right), _label(routed.chosen)) for routed in self.judged)
        table: dict[str, dict[str, int]] = {}
        for (right, chosen), n in sorted(pairs.items()):
            table.setdefault(right, {})[chosen] = n
        return table


def _label(names: Names) -> str:
    return JOINED.join(sorted(names))


def routing_of(staged: Staged, queries: Queries | None, recall: Measure) -> Routing | None:
    """Return what the log tells of a router; None where neither calls nor hits have a source.

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
    """Return what would have to be there for a router to be judged."""
    if found is None or not found.chosen:
        return NO_CHOICE
    return None if found.judged else NO_RIGHT


def chosen_sources(staged: Staged) -> list[Names]:
    """Return the sources that each query was sent to, in the order of the score table."""
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
    """Return where each query should go: as the queries say, else where its gold is."""
    told = _by_query(staged, None if queries is None else queries.frame, "source")
    of_gold = _gold_sources(staged) if not all(told) else told
    right = [own or other for own, other in zip(told, of_gold, strict=True)]
    by = [
        "queries" if own else "corpus" if other else None
        for own, other in zip(told, of_gold, strict=True)
    ]
    return right, by


def _gold_sources(staged: Staged) -> list[Names]:
    """Return the sources of each query's gold items, as the corpus has them."""
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
    """Return the sources of some items, and of those documents that are no items themselves."""
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
    """Return which queries' calls failed, and which were called at all."""
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
    """Return the share of queries that reached a right source, with Clopper and Pearson's interval.

    Queries of one conversation are drawn together instead.
    """
    n = len(judged)
    if not n:
        return {"mean": None, "ci": None, "n": 0}
    covered = np.array([routed.covered for routed in judged], dtype=np.float64)
    conventions, groups = staged.final.conventions, staged.final.groups
    ci: list[float] | None = None
    if groups is not None and conventions.interval != "none":
        own = groups[[routed.row for routed in judged]]
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
    """Return for each source its queries, how many were sent there, and what was found."""
    reach = reach_of(staged, [staged.final], k)
    final = cut_at(staged.final, staged.gold, cuts_to([recall], reach.used))
    found = {}
    for name in sorted({one for some in right for one in some}):
        mask = np.array([name in some for some in right], dtype=bool)
        own = [routed for routed in judged if name in routed.right]
        found[name] = {
            "queries": int(mask.sum()),
            "coverage": _share(staged, own),
            **cells(final, mask),
        }
    return found


def _hit_sources(staged: Staged, k: int) -> dict[str, Any] | None:
    """Return the sources of the top k, by the log, else by the corpus."""
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
    values: Iterable[pl.Expr] = [pl.col("source")] if "source" in top.columns else []
    if corpus is not None and "source" in corpus.columns:
        known = corpus.select("item_id", _source=pl.col("source").cast(pl.String))
        top = top.join(known, on="item_id", how="left", maintain_order="left")
        values = [*values, pl.col("_source")]
    return top.select(pl.coalesce(*values, pl.lit(None, pl.String)).alias("source"))["source"]


REWRITTEN = "rewritten"
MOST = 5

NO_TEXTS = "the log has no rewritten queries; log each call's query and rewritten"
NO_LISTS = (
    "the log has no list for the original query; set rewrite: {call: ..., both: true} in"
    " karat.yaml, or log it as original under stages"
)
NO_LINKS = "EL_F1 needs the entities that the system linked; log each call's entities"

Texts = Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, eq=False)
class Rewriting:
    """What was made of the queries' texts, and what both texts find.

    ``told`` counts the queries whose rewritten text is logged, ``changed`` those it differs
    for. ``left_out`` counts queries whose text changed and that have no list for the original.
    """

    told: int
    changed: int
    unknown: int
    found: Comparisons | None = None
    n: int = 0
    left_out: int = 0
    texts: Texts | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the rewriting as plain data."""
        counts = {"told": self.told, "changed": self.changed, "original_unknown": self.unknown}
        if self.found is None:
            return {**counts, "comparisons": None}
        return {
            **counts,
            **compared(self.found),
            "n": self.n,
            "left_out": self.left_out,
            "says": says("rewriting", self.found.of(REWRITTEN)),
            "hurt": self._hurt(self.found),
        }

    def _hurt(self, found: Comparisons) -> list[dict[str, Any]]:
        """Return the queries that lost most by being rewritten, with both texts."""
        return [
            {
                "query_id": query.query_id,
                "measure": query.measure,
                "original": query.baseline_value,
                "rewritten": query.system_value,
                **dict(zip(("query", "rewritten_text"), self._texts(query.query_id), strict=True)),
            }
            for query in found.moved
            if query.change == "worse"
        ][:MOST]

    def _texts(self, query_id: str) -> tuple[str | None, str | None]:
        return (self.texts or {}).get(query_id, (None, None))


def rewriting_of(
    staged: Staged, cuts: Cuts, rule: Rule, queries: Queries | None = None
) -> Rewriting | None:
    """Compare original with rewritten queries; None if the log has neither texts nor lists."""
    texts = _texts_of(staged, queries)
    rewritten = {name: pair for name, pair in texts.items() if pair[1] is not None}
    listed = ORIGINAL in staged.beside
    if not rewritten and not listed:
        return None
    changed = {name for name, (old, new) in rewritten.items() if old is not None and old != new}
    plain = Rewriting(
        told=len(rewritten),
        changed=len(changed),
        unknown=sum(old is None for old, _ in rewritten.values()),
    )
    if not listed:
        return plain
    ids = staged.gold.query_ids
    has = np.array([name in staged.logged.get(ORIGINAL, ()) for name in ids], dtype=bool)
    # The same text gives the same list, whether that was logged twice or not.
    alike = np.array([_alike(rewritten.get(name)) for name in ids], dtype=bool) & ~has
    wanted = fair_cuts(staged, cuts)
    new = cut_at(staged.final, staged.gold, wanted)
    old = _filled(cut_at(staged.beside[ORIGINAL], staged.gold, wanted), new, alike)
    own = has | alike
    found = paired(
        (ORIGINAL, REWRITTEN),
        (only_where(old, own), only_where(new, own)),
        rule,
        k=fair_cut(staged, cuts.k).used,
        queries=queries,
    )
    left_out = sum(name in changed and not own[at] for at, name in enumerate(ids))
    return replace(plain, found=found, n=found.of(REWRITTEN).n, left_out=left_out, texts=rewritten)


def missing_for_rewriting(found: Rewriting | None) -> str | None:
    """Return what would have to be logged for rewriting to be judged."""
    if found is None:
        return NO_TEXTS
    return NO_LISTS if found.found is None else None


def _alike(pair: tuple[str | None, str | None] | None) -> bool:
    return pair is not None and pair[0] == pair[1]


def _filled(old: Scores, new: Scores, mask: Mask) -> Scores:
    """Return the old scores, with the new ones for the marked queries."""
    marked = pl.Series("marked", mask)
    columns = [
        pl.when(marked)
        .then(new.table[str(measure)])
        .otherwise(pl.col(str(measure)))
        .alias(str(measure))
        for measure in old.measures
    ]
    return replace(old, table=old.table.with_columns(columns))


def _texts_of(staged: Staged, queries: Queries | None) -> dict[str, tuple[str | None, str | None]]:
    """Return the text asked and the text searched for, of every call that went well."""
    calls = staged.calls
    if calls is None:
        return {}
    asked = {} if queries is None else dict(queries.frame.select("query_id", "text").iter_rows())
    known = {*staged.gold.query_ids}
    nothing = [None] * calls.height
    columns = (
        calls[name].to_list() if name in calls.columns else nothing
        for name in ("query_id", "query", "rewritten", "error")
    )
    return {
        name: (asked.get(name) if old is None else old, new)
        for name, old, new, error in zip(*columns, strict=True)
        if error is None and name in known
    }


@dataclass(frozen=True, eq=False)
class Linking:
    """Entities linked against those that the queries name.

    ``right`` links are in both, ``wrong`` ones only the system made, ``missed`` ones it did not.
    """

    f1: Mapping[str, Any]
    right: int
    wrong: int
    missed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the linking as plain data."""
        return {
            str(LINKING): dict(self.f1),
            "right": self.right,
            "wrong": self.wrong,
            "missed": self.missed,
            "precision": _ratio(self.right, self.right + self.wrong),
            "recall": _ratio(self.right, self.right + self.missed),
        }


def linking_of(staged: Staged) -> tuple[Linking | None, str | None]:
    """Return how well entities were linked, or what is missing to say so."""
    name = str(LINKING)
    final = staged.final
    lacks = final.lacks.get(name)
    values = final.values(name)
    if lacks is None and (staged.calls is None or "entities" not in staged.calls.columns):
        lacks = NO_LINKS
    if lacks is not None or np.isnan(values).all():
        return None, lacks or "EL_F1 needs each query's entities: give --queries with them"
    right = wrong = missed = 0
    linked = _linked(staged)
    for at, gold in enumerate(staged.gold.entities):
        if gold is not None and not np.isnan(values[at]):
            ours, theirs = {*gold}, {*linked[at]}
            right += len(ours & theirs)
            wrong += len(theirs - ours)
            missed += len(ours - theirs)
    f1 = cells(cut_at(final, staged.gold, {LINKING: LINKING}))[name]
    return Linking(f1, right, wrong, missed), None


def _linked(staged: Staged) -> Sequence[tuple[str, ...]]:
    """Return what was linked in each query; nothing where the call failed."""
    found: list[tuple[str, ...]] = [()] * len(staged.gold.query_ids)
    calls = staged.calls
    if calls is None or "entities" not in calls.columns:
        return found
    fine = calls if "error" not in calls.columns else calls.filter(pl.col("error").is_null())
    codes = staged.gold.code_of(fine["query_id"]).tolist()
    for code, linked in zip(codes, entity_sets(fine["entities"]), strict=True):
        if code >= 0 and linked is not None:
            found[code] = linked
    return found


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
