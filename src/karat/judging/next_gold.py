"""Judgments of several files as one: gold, and the labels of every round since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from karat.columns import IN_MEMORY, Source
from karat.errors import InputError
from karat.tables import Gold

_PAIR = ["query_id", "item_id"]


@dataclass(frozen=True, eq=False)
class Together:
    """Judgments of which each pair has one, and how many were left out because it had one before.

    ``again`` counts those that a file before had judged, ``differently`` those of them with
    another grade.
    """

    gold: Gold
    sources: tuple[Source, ...]
    again: int
    differently: int


def together(files: Sequence[Gold], asked: Sequence[str] = ()) -> Together:
    """All judgments; of a pair that several files judge, the first counts.

    A grade below 0 is no judgment, so a later file may bring one. Without any file there are the
    queries in ``asked``, and nothing is judged.

    >>> both = together([Gold.from_dict({"q": {"a": 2}}), Gold.from_dict({"q": {"a": 0, "b": 1}})])
    >>> both.gold.frame.rows(), both.again, both.differently
    ([('q', 'a', 2.0), ('q', 'b', 1.0)], 1, 1)
    """
    frame = pl.DataFrame(schema=dict.fromkeys(_PAIR, pl.String) | {"grade": pl.Float64})
    again = differently = 0
    for one in files:
        if "start" in one.frame.columns:
            told = "this gold holds character spans, and what is judged next are items"
            raise InputError(told, where=one.source.name)
        own = one.frame.select(*_PAIR, "grade").filter(pl.col("grade") >= 0)
        known = own.join(frame, on=_PAIR, how="inner", suffix="_before")
        again += known.height
        differently += int((known["grade"] != known["grade_before"]).sum())
        frame = pl.concat([frame, own.join(frame, on=_PAIR, how="anti", maintain_order="left")])
    ids = [query for one in files for query in one.query_ids] if files else asked
    source = files[0].source if files else IN_MEMORY
    gold = Gold(frame, tuple(dict.fromkeys(ids)), source=source)
    return Together(gold, tuple(one.source for one in files), again, differently)
