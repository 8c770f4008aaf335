"""Rewritten queries and linked entities: whether what was made of a query serves it.

Rewriting is judged by the lists for both texts, linking by the entities that queries name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.compare import Comparisons
from karat.analysis.staged import ORIGINAL, Staged
from karat.analysis.stages.cuts import LINKING, Cuts, cells, cut_at, fair_cut, fair_cuts, only_where
from karat.analysis.stages.effects import compared, paired, says
from karat.analysis.verdicts import Rule
from karat.measures.prepare import entity_sets
from karat.measures.ranked import Mask
from karat.measures.scores import Scores
from karat.tables import Queries

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

    def document(self) -> dict[str, Any]:
        """The rewriting as it stands in a report."""
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
        """The queries that lost most by being rewritten, with both texts."""
        return [
            {
                "query_id": one.query_id,
                "measure": one.measure,
                "original": one.baseline_value,
                "rewritten": one.system_value,
                **dict(zip(("query", "rewritten_text"), self._texts(one.query_id), strict=True)),
            }
            for one in found.moved
            if one.change == "worse"
        ][:MOST]

    def _texts(self, query_id: str) -> tuple[str | None, str | None]:
        return (self.texts or {}).get(query_id, (None, None))


def rewriting_of(
    staged: Staged, cuts: Cuts, rule: Rule, queries: Queries | None = None
) -> Rewriting | None:
    """Original against rewritten; None where the log has neither texts nor lists of both."""
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
    """What would have to be logged for rewriting to be judged."""
    if found is None:
        return NO_TEXTS
    return NO_LISTS if found.found is None else None


def _alike(pair: tuple[str | None, str | None] | None) -> bool:
    return pair is not None and pair[0] == pair[1]


def _filled(old: Scores, new: Scores, mask: Mask) -> Scores:
    """The old scores, with the new ones for the marked queries."""
    marked = pl.Series("marked", mask)
    columns = [
        pl.when(marked).then(new.table[str(one)]).otherwise(pl.col(str(one))).alias(str(one))
        for one in old.measures
    ]
    return replace(old, table=old.table.with_columns(columns))


def _texts_of(staged: Staged, queries: Queries | None) -> dict[str, tuple[str | None, str | None]]:
    """The text asked and the text searched for, of every call that went well."""
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

    def document(self) -> dict[str, Any]:
        """The linking as it stands in a report."""
        return {
            str(LINKING): dict(self.f1),
            "right": self.right,
            "wrong": self.wrong,
            "missed": self.missed,
            "precision": _ratio(self.right, self.right + self.wrong),
            "recall": _ratio(self.right, self.right + self.missed),
        }


def linking_of(staged: Staged) -> tuple[Linking | None, str | None]:
    """How well entities were linked, or what is missing to say so."""
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
    """What was linked in each query; nothing where the call failed."""
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
