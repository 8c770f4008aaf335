"""A table of scores while it fills up: block by block, whatever queries each block holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.errors import MissingInputError
from karat.measures.depth import last_ranks
from karat.measures.listing import Wanted
from karat.measures.misfits import Meeting, gold_side
from karat.measures.names import Measure
from karat.measures.numbers import Evidence, Values, gather
from karat.measures.parts import Part, Statuses
from karat.measures.prepare import Prepared
from karat.measures.rank import Block, rank
from karat.measures.ranked import Entries, Ints, Listing, Ranked
from karat.measures.results import Counts
from karat.measures.ties import tie_orders
from karat.measures.traces import FACTS
from karat.measures.valuing import (
    arguments_of,
    ceilings_of,
    counts_gold,
    feels_ties,
    values_of,
    worst_of,
)
from karat.tables import Run


class Table:
    """The table of some queries while it fills up, block by block."""

    def __init__(self, gold: Prepared, measures: Sequence[Measure], keep: int = 0) -> None:
        n = len(gold.query_ids)
        self.gold, self.measures, self.keep = gold, tuple(measures), keep
        self.lists, self.calls = list[pl.DataFrame](), list[pl.DataFrame]()
        self.blocks: list[Block] = []
        self.wanted = Wanted.by(measures).with_lists(keep)
        self.columns = {measure: np.full(n, np.nan) for measure in measures}
        self.ends: dict[Measure, tuple[Values, Values]] = {}
        self.evidence: dict[Measure, list[Evidence]] = {}
        self.lacks: dict[Measure, str] = {}
        self.served: set[Measure] = set()
        self.returned = np.zeros(n, dtype=np.int64)
        self.last: dict[Measure, Ints] = {}
        self.status = np.full(n, "missing", dtype=object)
        self.counts = Counts()
        self.strangers: list[str] = []
        self.meta: Mapping[str, Any] = {}
        self.order = gold.conventions.order
        self.meeting = Meeting()

    def add(self, run: Run) -> None:
        """Score one block of whole queries."""
        block = rank(run, self.gold, self.wanted)
        self.counts = replace(
            self.counts,
            repeats=self.counts.repeats + block.repeats,
            order_conflicts=self.counts.order_conflicts + block.conflicts,
            not_in_gold=self.counts.not_in_gold + len(block.strangers),
        )
        self.strangers = sorted({*self.strangers, *block.strangers[:2]})[:2]
        self.meeting += block.meeting
        self.meta = self.meta or run.meta
        self.order = self.gold.conventions.order or run.order
        self.status[block.codes] = "scored"
        self.returned[block.codes] = block.ranked.returned
        self.status[block.failed] = "failed"
        orders = tie_orders(block)
        for measure in self.measures:
            self._fill(measure, block, orders)
        if self.keep and block.ranked.listing is not None:
            self.lists.append(_top(block.ranked.listing, block.codes, self.keep))
        if self.keep and run.calls is not None:
            said = [name for name in ("query_id", "query", "error") if name in run.calls.columns]
            self.calls.append(run.calls.select(said))
        # What was listed is used up, and can be large.
        self.blocks.append(replace(block, ranked=replace(block.ranked, listing=None, calls={})))

    def _fill(self, measure: Measure, block: Block, orders: tuple[Ranked, Ranked] | None) -> None:
        try:
            self.columns[measure][block.codes] = values_of(measure, block.ranked, self.gold)
            self._collect(measure, block.ranked, block.codes)
        except MissingInputError as error:
            # Another block may bring it: a log need not say the same of every call.
            self.lacks.setdefault(measure, str(error))
            return
        self.served.add(measure)
        last = last_ranks(measure, block.ranked)
        if last is not None:
            self.last.setdefault(measure, np.zeros_like(self.returned))[block.codes] = last
        if orders is not None and feels_ties(measure, self.gold.conventions):
            n = len(self.status)
            sides = self.ends.setdefault(measure, (np.full(n, np.nan), np.full(n, np.nan)))
            for side, ranked in zip(sides, orders, strict=True):
                side[block.codes] = values_of(measure, ranked, self.gold)

    def _collect(self, measure: Measure, ranked: Ranked, codes: Ints) -> None:
        collect = measure.definition.evidence
        if collect is not None:
            part = collect(ranked, measure.k, **arguments_of(measure, self.gold.conventions))
            whole = Evidence(codes[part.query], part.key, part.value, part.total)
            self.evidence.setdefault(measure, []).append(whole)

    def part(self) -> Part:
        """What became of these queries, once all their blocks are in."""
        gaps = np.flatnonzero((self.status == "missing") | (self.status == "failed"))
        if len(gaps) and self.gold.conventions.missing == "zero":
            self._fill_gaps(gaps)
        ids_needed = not self.meeting.found or self.gold.corpus is not None
        return Part(
            query_ids=self.gold.query_ids,
            columns=self.columns,
            answered=self.status,
            status=self._statuses(),
            ends=self.ends,
            evidence={measure: gather(parts) for measure, parts in self.evidence.items()},
            ceilings=ceilings_of(self.measures, self.gold),
            digests=self.gold.digests,
            counts=self.counts,
            strangers=tuple(self.strangers),
            meeting=gold_side(self.gold, ids=ids_needed) + self.meeting,
            lacks={m: told for m, told in self.lacks.items() if m not in self.served},
            served=frozenset(self.served),
            returned=self.returned,
            last=self.last,
            meta=self.meta,
            order=self.order,
            lists=pl.concat(self.lists, how="diagonal") if self.lists else None,
            calls=pl.concat(self.calls, how="diagonal_relaxed") if self.calls else None,
        )

    def _fill_gaps(self, gaps: Ints) -> None:
        """A query without an answer gets each measure's worst value."""
        target = self.gold.target(gaps)
        nothing = Entries(target.n, _NONE, _NONE, np.empty(0), row=_NONE)
        empty = Ranked(target, nothing, nothing, np.zeros(target.n, dtype=np.int64))
        for measure in self.measures:
            if measure.definition.cutoff == "path":
                continue
            self.columns[measure][gaps] = worst_of(measure, empty, self.gold)
            if not measure.definition.needs and counts_gold(measure, self.gold):
                self._collect(measure, empty, gaps)

    def _statuses(self) -> Statuses:
        everyone = self.gold.target(np.arange(len(self.status)))
        empty = everyone.relevant(self.gold.conventions.rel) == 0
        status = np.where(empty, "empty_gold", self.status)
        return np.where(empty & everyone.no_answer, "no_answer", status)


_NONE = np.empty(0, dtype=np.int64)


def _top(listing: Listing, codes: Ints, depth: int) -> pl.DataFrame:
    """The first items of each query: its row in the table, rank, item and what is known of it."""
    wanted = ("item_id", "doc_id", *FACTS, "grade", "repeat")
    told = [name for name in wanted if name in listing.frame.columns]
    # A run's own column of tokens may be of any kind.
    lengths = pl.col("^tokens$").cast(pl.Float64, strict=False)
    frame = listing.frame.select(
        pl.Series("row", codes[listing.query]), pl.Series("rank", listing.rank), *told, lengths
    )
    return frame.filter(pl.col("rank") <= depth).with_columns(pl.col("grade").fill_nan(None))
