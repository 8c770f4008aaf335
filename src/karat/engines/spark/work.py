"""What a worker does with a block of queries: read its rows, score them, pack up the result."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from karat.columns import Source
from karat.engines.spark.sharing import GOLD, RUN, unpacked
from karat.engines.spark.tables import Form, without_spans
from karat.errors import KaratError
from karat.measures.conventions import Conventions
from karat.measures.filling import Table
from karat.measures.misfits import Meeting, ids_of_stages, returned_ids
from karat.measures.names import Measure
from karat.measures.parts import Part
from karat.measures.prepare import Prepared, prepare
from karat.measures.results import Counts
from karat.tables import Corpus, Gold, Queries, Run

RESULT = "result binary"


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that every worker needs beside its rows.

    ``queries`` are all that are asked, where a file says so; else those of the gold are, also
    the ``unjudged`` ones, of which it holds no judgment.
    """

    run: Form
    gold: Form
    measures: Sequence[Measure]
    conventions: Conventions
    queries: Queries | None = None
    unjudged: frozenset[str] = frozenset()
    corpus: Corpus | None = None
    keep: int = 0
    strict: bool = False

    def packed(self, pieces: Any) -> bytes:
        """The result of a block as bytes; what is wrong with its rows is a result too."""
        try:
            hits = unpacked(pieces, RUN, self.run.query)
            judgments = unpacked(pieces, GOLD, self.gold.query)
            found: Result | KaratError = self.done(hits, judgments)
        except KaratError as error:
            found = error
        return pickle.dumps(found, protocol=5)

    def done(self, hits: pl.DataFrame, judgments: pl.DataFrame) -> Result:
        """Score a block."""
        run = self.run.run(hits, strict=self.strict)
        gold = self.gold.gold(judgments, duplicates=self.conventions.duplicates)
        spans = None if gold is None else "start" in gold.frame.columns
        if gold is not None and spans and self.conventions.level != "span":
            gold = without_spans(gold)
        asked = self._asked([] if gold is None else list(gold.query_ids), run)
        if not len(asked):
            return Result.of(_of_strangers(run), run, spans)
        prepared = self._prepared(gold, asked)
        table = Table(prepared, self.measures, self.keep)
        if run is not None:
            table.add(run)
        part = replace(table.part(), units=_units(prepared, self.measures))
        return Result.of(part, run, spans)

    def _asked(self, judged: list[str], run: Run | None) -> list[str]:
        """The queries of this block that are to be scored."""
        if self.queries is None:
            return [*judged, *(one for one in _called(run) if one in self.unjudged)]
        ours = [*judged, *_called(run)]
        known = self.queries.frame["query_id"]
        return known.filter(known.is_in(ours)).to_list()

    def _prepared(self, gold: Gold | None, asked: list[str]) -> Prepared:
        if gold is None:
            nothing = pl.DataFrame(schema=_NO_GOLD)
            gold = Gold(nothing, (), source=Source(self.gold.name))
        gold = replace(gold, query_ids=tuple(asked))
        queries = self._queries_of(asked)
        return prepare(gold, self.conventions, queries=queries, corpus=self.corpus)

    def _queries_of(self, asked: list[str]) -> Queries | None:
        if self.queries is None:
            return None
        rows = self.queries.frame.filter(pl.col("query_id").is_in(asked))
        return replace(self.queries, frame=rows)


@dataclass(frozen=True, eq=False)
class Result:
    """The scores of a block, and what can be said of all blocks together only.

    ``spans`` is whether all of its gold is character spans, ``returned`` whether the run has
    any row in it. ``stages`` has the ids that each stage returned, where nothing was found.
    """

    part: Part
    spans: bool | None = None
    returned: bool = False
    stages: Meeting = field(default_factory=Meeting)

    @classmethod
    def of(cls, part: Part, run: Run | None, spans: bool | None) -> Result:
        """What came of a block's rows."""
        stages = Meeting(found=part.meeting.found)
        if run is not None and not stages.found:
            stages += Meeting(returned=ids_of_stages(run))
        return cls(part, spans, run is not None, stages)


_NO_GOLD = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}


def _called(run: Run | None) -> list[str]:
    """The queries of a run."""
    if run is None:
        return []
    calls = [] if run.calls is None else run.calls["query_id"].to_list()
    return list(dict.fromkeys([*run.hits["query_id"].unique().sort().to_list(), *calls]))


def _of_strangers(run: Run | None) -> Part:
    """A block none of whose queries is to be scored."""
    if run is None:
        return Part()
    final = run.at("final")
    names = final.hits["query_id"].unique().sort().to_list()
    return Part(
        counts=Counts(not_in_gold=len(names)),
        strangers=names[:2],
        meeting=Meeting(returned=returned_ids(final)),
        meta=run.meta,
        order=run.order,
    )


def _units(gold: Prepared, measures: Sequence[Measure]) -> list[str] | None:
    """What each number of a gold unit stands for, where evidence is about these."""
    if not any(measure.name == "Coverage" for measure in measures):
        return None
    names = [name for name in ("item_id", "start", "end") if name in gold.rows.columns]
    spelled = gold.rows.select(pl.concat_str(names, separator="\0"))[:, 0].to_list()
    units = [""] * (int(gold.unit.max(initial=0)) + 1)
    for unit, name in zip(gold.unit.tolist(), spelled, strict=True):
        units[unit] = name
    return units
