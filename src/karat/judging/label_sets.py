"""Where the items of a label set come from: a pool, what a report's systems return, or pairs.

Whichever it is, nothing is left that tells which system returned an item, or at which rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from karat.errors import InputError, UsageError
from karat.formats.files import open_input
from karat.formats.records import read_records
from karat.judging.judge_pairs import read_pairs
from karat.tables import Corpus, Queries

# What a rater may be told beside the two texts; nothing of it comes from a run.
FACTS = ("as_of", "title", "doc_id", "version")
_CUT = "only its beginning is kept here"


@dataclass(frozen=True, slots=True)
class ToLabel:
    """A pair with its texts; ``facts`` is what else helps to judge it, such as ``as_of``."""

    query_id: str
    item_id: str
    query: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """What nobody judged yet in the tops of a report, in the order in which raters see it.

    ``without_text`` and ``without_query`` count the pairs that are left out because there is
    nothing to read, ``cut`` the pairs of which only the beginning of the text is kept.
    """

    items: list[ToLabel]
    depth: int
    systems: int
    without_text: int
    without_query: int
    cut: int

    def about(self) -> str:
        """One sentence on where the items are from; it names no system."""
        many = "one system" if self.systems == 1 else f"{self.systems} systems"
        told = [f"Unjudged items in the top {self.depth} of {many}"]
        for count, what in (
            (self.without_text, "left out for want of their text"),
            (self.without_query, "left out for want of the query's text"),
            (self.cut, "with only the beginning of their text"),
        ):
            if count:
                told.append(f"{count:,} {what}")
        return ", ".join(told) + "."


def read_pool(path: str | Path) -> list[ToLabel]:
    """A pool file in its own order, which ``karat pool`` has shuffled; an empty one is refused."""
    pairs = read_pairs(path)
    if not pairs:
        raise InputError("holds no pair; nothing is left to label", where=Path(path).name)
    blank = next((at for at, pair in enumerate(pairs, 1) if not pair.text.strip()), None)
    if blank is not None:
        told = f"pair {blank} has an empty text: a rater would have nothing to read; leave it out"
        raise InputError(told, where=Path(path).name)
    records = read_records(open_input(path))
    return [
        ToLabel(*pair, facts=_facts(record.value))
        for pair, record in zip(pairs, records, strict=True)
    ]


def pairs_to_label(
    pairs: Iterable[tuple[str, str]],
    *,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    seed: int = 0,
) -> list[ToLabel]:
    """Pairs as a set to label, each once, in an order that depends on nothing but which they are.

    With a corpus and queries every pair must have both its texts; without, none has any.
    """
    wanted = dict.fromkeys(pairs)
    asked = {} if queries is None else _by_id(queries.frame, "query_id")
    known = {} if corpus is None else _by_id(corpus.frame, "item_id")
    if queries is not None and corpus is not None:
        lacking = [
            (query, item)
            for query, item in wanted
            if not _told(asked.get(query, {}).get("text"))
            or not _told(known.get(item, {}).get("text"))
        ]
        if lacking:
            raise InputError(_without_texts(lacking, asked))
    found: dict[str, dict[str, ToLabel]] = {}
    for query, item in wanted:
        told = asked.get(query, {}), known.get(item, {})
        facts = _facts(told[0], ("as_of",)) | _facts(told[1], ("title", "doc_id", "version"))
        asks, tells = (str(one.get("text") or "") for one in told)
        found.setdefault(query, {})[item] = ToLabel(query, item, asks, tells, facts)
    return _shuffled(found, seed)


def _by_id(frame: pl.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    names = [name for name in (key, "text", *FACTS) if name in frame.columns]
    return {row[key]: row for row in frame.select(list(dict.fromkeys(names))).iter_rows(named=True)}


def _without_texts(lacking: Sequence[tuple[str, str]], asked: Mapping[str, Any]) -> str:
    query, item = lacking[0]
    what = "the item" if query in asked and _told(asked[query].get("text")) else "the query"
    more = f" (and {len(lacking) - 1:,} more pairs)" if len(lacking) > 1 else ""
    return (
        f"query {query!r}, item {item!r}{more} cannot be read: {what} has no text in what"
        " --queries and --corpus hold; add it there, or import without either"
    )


def unjudged_of(
    head: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]], *, depth: int, seed: int = 0
) -> Unjudged:
    """Every unjudged item in the top ``depth`` of any system of a report, each pair once.

    ``head`` and ``blocks`` are those of the report's page. Items of a query follow each other,
    so that a rater reads it once; queries and items stand in an order that depends on the seed
    and on which pairs there are, and on nothing else.
    """
    if not 1 <= depth <= int(head["kept"]):
        raise UsageError(
            f"depth is {depth}; the report keeps the first {head['kept']} items of every list,"
            f" so it is from 1 to {head['kept']}"
        )
    found: dict[str, dict[str, ToLabel]] = {}
    lacking = Counter[str]()
    for block in blocks:
        for query in block["queries"]:
            found[query["query_id"]] = _readable(query, block["texts"], depth, lacking)
    return Unjudged(
        _shuffled(found, seed),
        depth,
        len(head["systems"]),
        without_text=lacking["text"],
        without_query=lacking["query"],
        cut=lacking["cut"],
    )


def _readable(
    query: Mapping[str, Any], texts: Mapping[str, Any], depth: int, lacking: Counter[str]
) -> dict[str, ToLabel]:
    """The unjudged items of a query that can be read; what lacks a text is counted."""
    wanted = _unjudged(query, depth)
    if not _told(query["text"]):
        lacking["query"] += len(wanted)
        return {}
    kept = [one for one in wanted if one in texts and _told(texts[one]["text"])]
    lacking["text"] += len(wanted) - len(kept)
    lacking["cut"] += sum(bool(texts[one]["cut"]) for one in kept)
    return {one: _item(query, one, texts[one]) for one in kept}


def _unjudged(query: Mapping[str, Any], depth: int) -> list[str]:
    """The items of any system's top that have no grade, by their ids: no order is kept."""
    tops = (one["hits"][:depth] for one in query["systems"])
    return sorted({item for hits in tops for item, _, grade in hits if grade is None})


def _item(query: Mapping[str, Any], item_id: str, text: Mapping[str, Any]) -> ToLabel:
    facts = _facts(query.get("attributes") or {}, ("as_of",)) | _facts(text, ("title",))
    if text["cut"]:
        facts["text"] = _CUT
    return ToLabel(query["query_id"], item_id, query["text"], text["text"], facts)


def _facts(known: Mapping[str, Any], names: Sequence[str] = FACTS) -> dict[str, str]:
    """What is known, as text; nothing but white space is nothing."""
    return {
        name: str(known[name])
        for name in names
        if isinstance(known.get(name), str | int | float) and str(known[name]).strip()
    }


def _told(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _shuffled(found: Mapping[str, Mapping[str, ToLabel]], seed: int) -> list[ToLabel]:
    """Queries in random order, the items of each in random order."""
    rng = np.random.default_rng(seed)
    queries = sorted(found)
    places = {name: sorted(found[name]) for name in queries}
    order = []
    for at in rng.permutation(len(queries)):
        items = places[queries[at]]
        order += [found[queries[at]][items[one]] for one in rng.permutation(len(items))]
    return order
