"""The texts of a view: those of the queries that are worth most, as far as a file has room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from karat.measures.ranked import Ints
from karat.reports.html.cases import Cases, items_in
from karat.reports.html.shown import shown

# What a file of a few megabytes has room for, in characters, and how much of a text is read.
ROOM, LONGEST, SHORTEST = 5_000_000, 2_000, 240

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Shelved:
    """The blocks of a view with their texts; ``told`` says what is not there, and why."""

    blocks: Sequence[Mapping[str, Any]]
    told: str | None


def shelved(blocks: Sequence[Sequence[Row]], cases: Cases, worth: Ints) -> Shelved:
    """Put texts beside the queries of each block, those of the queries worth most first."""
    if cases.index is None:
        bare = [{"queries": list(block), "texts": {}} for block in blocks]
        return Shelved(bare, "no texts: the items' texts need a corpus; give --corpus")
    wanted = _wanted(blocks, worth)
    known = _known(cases, {item for own, _ in wanted for item in own})
    longest = LONGEST if _size(wanted, known, LONGEST) <= ROOM else SHORTEST
    texts: list[dict[str, Row]] = [{} for _ in blocks]
    room, served = ROOM, 0
    for items, block in wanted:
        new = [item for item in items if item in known and item not in texts[block]]
        cost = sum(min(len(known[item]["text"]), longest) for item in new)
        if cost > room:
            break
        room, served = room - cost, served + 1
        texts[block] |= {item: _text(known[item], longest) for item in new}
    filled = [
        {"queries": list(own), "texts": some} for own, some in zip(blocks, texts, strict=True)
    ]
    return Shelved(filled, _told(served, len(wanted), longest))


def _wanted(blocks: Sequence[Sequence[Row]], worth: Ints) -> list[tuple[list[str], int]]:
    """The items of each query and the block that it is in, from the query worth most on."""
    size = max(len(blocks[0]), 1) if blocks else 1
    return [
        (list(dict.fromkeys(items_in([blocks[row // size][row % size]]))), row // size)
        for row in worth.tolist()
    ]


def _known(cases: Cases, items: set[str]) -> dict[str, Row]:
    """What the corpus says of some items; the gold's own text where it is a span or a document."""
    found: dict[str, Row] = {}
    if cases.index is not None:
        frame = cases.index.rows(sorted(items))
        title = pl.col("title") if "title" in frame.columns else pl.lit(None, pl.String)
        told = frame.select("item_id", "text", title.cast(pl.String).alias("title"))
        found = {row["item_id"]: row for row in told.iter_rows(named=True)}
    for item in (item for own in cases.gold.values() for item in own):
        if item.text is not None and item.item_id not in found:
            found[item.item_id] = {"text": item.text, "title": None}
    return found


def _size(wanted: Sequence[tuple[list[str], int]], known: Mapping[str, Row], longest: int) -> int:
    """How many characters all texts would take, each once a block."""
    pairs = {(block, item) for items, block in wanted for item in items if item in known}
    return sum(min(len(known[item]["text"]), longest) for _, item in pairs)


def _text(row: Row, longest: int) -> dict[str, Any]:
    text = row["text"]
    cut = len(text) > longest
    return {"text": shown(text[:longest]), "cut": cut, "title": row["title"]}


def _told(served: int, queries: int, longest: int) -> str | None:
    if served < queries:
        return (
            f"texts are here for {served:,} of {queries:,} queries, those that miss or differ "
            f"most, each up to {longest:,} characters: more would make this file too large"
        )
    if longest < LONGEST:
        return f"texts are cut after {longest:,} characters to keep this file small"
    return None
