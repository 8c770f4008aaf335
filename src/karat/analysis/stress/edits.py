"""Damage done to a ranked list on purpose: items put in, taken out, mixed up, cut off.

Pure functions of one list. An edited list holds no item twice, keeps the order of what was not
touched, and its scores fall wherever those of the list did.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

import numpy as np
import polars as pl

from karat.data.tables import Corpus, Gold, Queries, Run
from karat.evaluation.segments import By
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.prepare import Prepared, prepare
from karat.measures.score_builder import score
from karat.measures.scores import Scores

Score = float | None
# An item and its score, best first; a list without scores has None for each.
Entry = tuple[str, Score]

_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class ListToEdit:
    """One query's list before an edit, and the negatives that may be put in, hardest first.

    ``gold`` holds the grade above 0 of every item in either that has one.
    """

    query_id: str
    entries: Sequence[Entry]
    gold: Mapping[str, float] = field(default_factory=dict)
    negatives: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Edited:
    """A list after an edit; ``changed`` says that it is another one than before.

    ``placed`` are the negatives that were put in, of which ``moved`` stood in the list already.
    ``short`` says that the edit could not be done in full, ``refused`` how many negatives were
    gold, and ``beyond`` how many stand at the end since the list does not reach their rank.
    """

    entries: tuple[Entry, ...]
    changed: bool = True
    placed: tuple[str, ...] = ()
    moved: int = 0
    short: bool = False
    refused: int = 0
    beyond: int = 0

    @classmethod
    def of(cls, case: ListToEdit, entries: Sequence[Entry], **told: Any) -> Edited:
        """Return the list that became of a case."""
        ids, before = ([item_id for item_id, _ in one] for one in (entries, case.entries))
        return cls(tuple(entries), changed=ids != before, **told)

    @property
    def ids(self) -> list[str]:
        """The items, best first."""
        return [item_id for item_id, _ in self.entries]


class Edit(Protocol):
    """One way to damage a list; ``name`` is what reports call it."""

    @property
    def name(self) -> str: ...
    def apply(self, case: ListToEdit) -> Edited: ...
    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Insert:
    """Hard negatives at certain ranks, the hardest first; what stood there moves down.

    A negative that is in the list already is moved, not doubled, and one that is gold is never
    put in. Where the list is too short for a rank, the negative stands at its end.

    >>> case = ListToEdit("q1", [("a", 0.9), ("b", 0.5)], negatives=["x", "b"])
    >>> Insert((1, 2)).apply(case).ids
    ['x', 'b', 'a']
    """

    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        """Such as ``insert 3 at 1,2,3``."""
        return f"insert {len(self.ranks)} at {','.join(map(str, self.ranks))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain data."""
        return {"kind": "insert", "at": list(self.ranks)}

    def apply(self, case: ListToEdit) -> Edited:
        """Return the list with the negatives in it."""
        candidates = dict.fromkeys(case.negatives)
        unlike = [candidate for candidate in candidates if candidate not in case.gold]
        chosen = unlike[: len(self.ranks)]
        moving = set(chosen)
        stays = [entry for entry in case.entries if entry[0] not in moving]
        ids: list[str] = []
        rest, wanted = [item_id for item_id, _ in stays], list(chosen)
        beyond = 0
        while rest or wanted:
            at = self.ranks[len(chosen) - len(wanted)] if wanted else None
            if wanted and (at == len(ids) + 1 or not rest):
                beyond += at != len(ids) + 1
                ids.append(wanted.pop(0))
            else:
                ids.append(rest.pop(0))
        return Edited.of(
            case,
            with_scores(ids, stays),
            placed=tuple(chosen),
            moved=len(case.entries) - len(stays),
            short=len(chosen) < len(self.ranks),
            refused=len(candidates) - len(unlike),
            beyond=beyond,
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """The best items taken out."""

    count: int

    @property
    def name(self) -> str:
        """Such as ``drop 3``."""
        return f"drop {self.count}"

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain data."""
        return {"kind": "drop", "count": self.count}

    def apply(self, case: ListToEdit) -> Edited:
        """Return the list without its first items."""
        return Edited.of(case, case.entries[self.count :], short=len(case.entries) < self.count)


@dataclass(frozen=True, slots=True)
class DropGold:
    """The best gold item taken out, the highest where grades are equal: what is the rest worth?"""

    name: str = "drop gold"

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain data."""
        return {"kind": "drop", "count": "gold"}

    def apply(self, case: ListToEdit) -> Edited:
        """Return the list without its best gold item."""
        graded = [item_id for item_id, _ in case.entries if item_id in case.gold]
        best = max(graded, key=lambda item_id: case.gold[item_id], default=None)
        kept = [entry for entry in case.entries if entry[0] != best]
        return Edited.of(case, kept, short=best is None)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The list in random order, by the seed and the query's id.

    The scores stay where they are: what comes first has the best of them.
    """

    seed: int = 0
    name: str = "shuffle"

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain data."""
        return {"kind": "shuffle"}

    def apply(self, case: ListToEdit) -> Edited:
        """Return the items mixed up."""
        ids = [item_id for item_id, _ in case.entries]
        Random(seed_of(self.seed, case.query_id)).shuffle(ids)  # noqa: S311 - no secret
        scores = [score for _, score in case.entries]
        return Edited.of(case, list(zip(ids, scores, strict=True)))


@dataclass(frozen=True, slots=True)
class Truncate:
    """Only the first items left."""

    count: int

    @property
    def name(self) -> str:
        """Such as ``truncate 20``."""
        return f"truncate {self.count}"

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain data."""
        return {"kind": "truncate", "count": self.count}

    def apply(self, case: ListToEdit) -> Edited:
        """Return the first items of the list."""
        return Edited.of(case, case.entries[: self.count], short=len(case.entries) < self.count)


def seed_of(seed: int, text: str) -> int:
    """Return a seed for one thing of many, so that their order plays no role."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{text}".encode()).digest()[:8])


def with_scores(ids: Sequence[str], known: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the items with their scores; new ones get what keeps the order.

    Evenly between the scores around them; above the first just more than it, below the last
    just less. A list without scores stays without.

    >>> with_scores(["a", "x", "b"], [("a", 0.5), ("b", 0.25)])
    (('a', 0.5), ('x', 0.375), ('b', 0.25))
    """
    scores = dict(known)
    if any(score is None for score in scores.values()):
        return tuple((item_id, None) for item_id in ids)
    entries: list[Entry] = []
    waiting: list[str] = []
    for item_id in ids:
        if item_id not in scores:
            waiting.append(item_id)
            continue
        if waiting:
            above = entries[-1][1] if entries else None
            entries += zip(waiting, _between(above, scores[item_id], len(waiting)), strict=True)
            waiting = []
        entries.append((item_id, scores[item_id]))
    last = entries[-1][1] if entries else 0.0
    return (*entries, *zip(waiting, _between(last, None, len(waiting)), strict=True))


def _between(above: Score, below: Score, count: int) -> list[float]:
    """So many scores from one to the other; where one is missing, next to the other."""
    if above is not None and below is not None:
        # Weights and not a step: the difference of two large scores may be too large to hold.
        shares = [place / (count + 1) for place in range(1, count + 1)]
        low, high = sorted((above, below))
        scores = [min(max((1 - share) * above + share * below, low), high) for share in shares]
        return sorted(scores, reverse=above >= below)
    if below is None:
        return _steps(above or 0.0, -_LARGEST, count)
    return _steps(below, _LARGEST, count)[::-1]


def _steps(start: float, towards: float, count: int) -> list[float]:
    """Return the next numbers that a float can hold."""
    scores: list[float] = []
    for _ in range(count):
        start = math.nextafter(start, towards)
        scores.append(start)
    return scores


# How long the top of a list is where no measure names a cut-off.
_TOP = 5
# What a run may say of a hit that a corpus says of an item.
_TOLD = ("doc_id", "version", "source", "start", "end")

# The items of each query that are gold, with their grades.
Grades = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class StressSettings:
    """The gold, the conventions and the measures, of which the first decides.

    ``by`` are columns of the queries to report drops for as well.
    """

    gold: Gold
    conventions: Conventions
    measures: Sequence[Measure]
    queries: Queries | None = None
    corpus: Corpus | None = None
    by: Sequence[By] = ()

    @property
    def top(self) -> int:
        """How long the top of a list is, for saying how many negatives are in it."""
        cuts = [measure.k for measure in self.measures if isinstance(measure.k, int)]
        return cuts[0] if cuts else _TOP

    def on(self, query_ids: Sequence[str], **settings: Any) -> Prepared:
        """Return the gold of some queries, with some conventions changed."""
        wanted = pl.col("query_id").is_in(list(query_ids))
        gold = replace(self.gold, frame=self.gold.frame.filter(wanted), query_ids=tuple(query_ids))
        queries = self.queries
        if queries is not None:
            queries = replace(queries, frame=queries.frame.filter(wanted))
        # A scenario may cut the lists: what it took out is what it is about.
        conventions = replace(self.conventions, short_lists="complete", **settings)
        return prepare(gold, conventions, queries=queries, corpus=self.corpus)

    def grades(self, run: Run, query_ids: Sequence[str]) -> Grades:
        """Return the items of a ranked run that are gold, however deep they stand."""
        if not run.hits.height or not query_ids:
            return {}
        gold = self.on(query_ids, order="rank", depth=None)
        return grades_in(score(run, gold, [], derived=True))


def grades_in(scores: Scores) -> Grades:
    """Return the items of scored lists that are gold: those with a grade above 0."""
    if scores.trace is None:
        return {}
    hits = scores.trace.ranked.hits
    grade = hits.grade if hits.best is None else hits.best
    names = scores.table["query_id"].to_list()
    found: dict[str, dict[str, float]] = {}
    items = scores.trace.facts["item_id"].to_list()
    for query, item, value in zip(hits.query.tolist(), items, grade.tolist(), strict=True):
        if value > 0:
            found.setdefault(names[query], {})[item] = value
    return found


def with_gold(prepared: Prepared) -> list[str]:
    """Return the queries that have anything to find."""
    everyone = prepared.target(np.arange(len(prepared.query_ids)))
    has = everyone.relevant(prepared.conventions.rel) > 0
    return [name for name, own in zip(prepared.query_ids, has.tolist(), strict=True) if own]


def sample(query_ids: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Some of the queries, in their order; which ones depends on the seed and their ids alone."""
    if count is None or count >= len(query_ids):
        return list(query_ids)
    drawn = sorted(query_ids, key=lambda name: (seed_of(seed, f"sample\0{name}"), name))
    chosen = set(drawn[:count])
    return [name for name in query_ids if name in chosen]


def own_negatives(gold: Gold) -> dict[str, list[str]]:
    """Return the items that the eval set itself says are not relevant: its hard negatives first.

    Spans are no items, so a span of grade 0 cannot be put into a list.
    """
    frame = gold.frame.filter(pl.col("grade") <= 0)
    if "start" in frame.columns:
        frame = frame.filter(pl.col("start").is_null())
    if "negative" in frame.columns:
        hard = pl.col("negative").fill_null(value=False)
        frame = frame.sort(hard, descending=True, maintain_order=True)
    negatives: dict[str, list[str]] = {}
    for query_id, item_id in frame.select("query_id", "item_id").iter_rows():
        negatives.setdefault(query_id, []).append(item_id)
    return negatives


def ranked_lists(scores: Scores) -> dict[str, list[Entry]]:
    """Return the kept lists of scored queries; those that were not answered are not among them."""
    names = scores.table["query_id"].to_list()
    answered = scores.status.is_in(["scored"]).to_list()
    lists: dict[str, list[Entry]] = {
        name: [] for name, there in zip(names, answered, strict=True) if there
    }
    kept = scores.lists
    if kept is None:
        return lists
    scored = kept["score"] if "score" in kept.columns else pl.repeat(None, kept.height, eager=True)
    for row, item, value in zip(kept["row"], kept["item_id"], scored, strict=True):
        if names[row] in lists:
            lists[names[row]].append((item, value))
    return lists


def edited_run(run: Run, lists: Mapping[str, Sequence[Entry]], corpus: Corpus | None) -> Run:
    """Return a run of other lists, in their order.

    What the run said of a hit or a call it still says; of new hits the corpus does.
    """
    rows = [
        (name, item, rank, score)
        for name, entries in lists.items()
        for rank, (item, score) in enumerate(entries, 1)
    ]
    kinds = {"query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64}
    hits = pl.DataFrame(rows, schema=kinds, orient="row")
    if hits["score"].null_count():
        hits = hits.drop("score")
    final = run.at("final").hits
    values = [name for name in (*_TOLD, "similarity") if name in final.columns]
    pair = ["query_id", "item_id"]
    known = final.select(*pair, *values, _old=True).unique(pair, keep="first", maintain_order=True)
    hits = hits.join(known, on=pair, how="left", maintain_order="left")
    hits = _of_corpus(hits, [name for name in values if name in _TOLD], corpus).drop("_old")
    calls = pl.DataFrame({"query_id": list(lists)}, schema={"query_id": pl.String})
    if run.calls is not None:
        told_of = run.calls.unique("query_id", keep="first", maintain_order=True)
        calls = calls.join(told_of, on="query_id", how="left", maintain_order="left")
    return replace(run, hits=hits, calls=calls, order="rank")


def _of_corpus(hits: pl.DataFrame, told: Sequence[str], corpus: Corpus | None) -> pl.DataFrame:
    """Return the hits that the run did not have, with what the corpus says of them."""
    names = [] if corpus is None else [name for name in told if name in corpus.frame.columns]
    if corpus is None or not names:
        return hits
    items = corpus.frame.select(
        "item_id", *(pl.col(name).cast(hits.schema[name]).alias(f"_{name}") for name in names)
    )
    hits = hits.join(items, on="item_id", how="left", maintain_order="left")
    new = pl.col("_old").is_null()
    filled = [
        pl.when(new).then(pl.col(f"_{name}")).otherwise(pl.col(name)).alias(name) for name in names
    ]
    return hits.with_columns(filled).drop([f"_{name}" for name in names])
