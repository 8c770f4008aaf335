"""Scores of some queries on their way to those of all: parts may be made anywhere, in any order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.columns import Source
from karat.errors import InputError, MissingInputError
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.numbers import Evidence, Values, gather
from karat.measures.prepare import Prepared, fingerprint_of
from karat.measures.ranked import Ints
from karat.measures.results import Counts, Scores
from karat.measures.valuing import arguments_of
from karat.tables import Blocks, Order

Statuses = NDArray[Any]
Ends = tuple[Values, Values]


@dataclass(frozen=True, eq=False)
class Part:
    """What scoring some queries gave, before those of all queries are together.

    Every array has a place for each of ``query_ids``. ``answered`` says what the run did
    (scored, missing, failed), ``status`` also what the gold lacks. ``digests`` tell the
    judgments of each query from others. ``units`` names what evidence about gold is about,
    where its numbers are the part's own. ``served`` are the measures that some block had the
    input for, ``lacks`` says what the others would have needed.
    """

    query_ids: Sequence[str] = ()
    columns: Mapping[Measure, Values] = field(default_factory=dict)
    answered: Statuses = field(default_factory=lambda: np.empty(0, dtype=object))
    status: Statuses = field(default_factory=lambda: np.empty(0, dtype=object))
    ends: Mapping[Measure, Ends] = field(default_factory=dict)
    evidence: Mapping[Measure, Evidence] = field(default_factory=dict)
    ceilings: Mapping[Measure, tuple[Values, Evidence]] = field(default_factory=dict)
    digests: Sequence[bytes] = ()
    units: Sequence[str] | None = None
    counts: Counts = field(default_factory=Counts)
    strangers: Sequence[str] = ()
    lacks: Mapping[Measure, str] = field(default_factory=dict)
    served: frozenset[Measure] = frozenset()
    meta: Mapping[str, Any] = field(default_factory=dict)
    order: Order | None = None
    lists: pl.DataFrame | None = None
    calls: pl.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Asked:
    """All queries that are to be scored, in the order of the table, and how."""

    query_ids: tuple[str, ...]
    conventions: Conventions
    numbers: Mapping[str, int]
    group: Ints | None = None
    not_asked: int = 0
    source_of_queries: str | None = None

    @classmethod
    def of(cls, gold: Prepared) -> Asked:
        """The queries of prepared gold."""
        return cls(
            gold.query_ids,
            gold.conventions,
            gold.numbers,
            gold.group,
            gold.not_asked,
            gold.source_of_queries,
        )


def joined(
    parts: Iterable[Part],
    asked: Asked,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure],
    run: Blocks,
) -> Scores:
    """The scores of all queries; parts come one at a time and are not kept.

    A measure in ``lenient`` whose input is missing has no value, where another is an error.
    """
    whole = _Whole(asked, measures)
    for part in parts:
        whole.add(part)
    return whole.scores(frozenset(lenient), name=run.name, source=run.source)


class _Whole:
    """The parts put together: only values of queries, never hits or judgments."""

    def __init__(self, asked: Asked, measures: Sequence[Measure]) -> None:
        n = len(asked.query_ids)
        self.asked, self.measures = asked, tuple(measures)
        self.columns = {measure: np.full(n, np.nan) for measure in measures}
        self.ends: dict[Measure, Ends] = {}
        self.evidence: dict[Measure, list[Evidence]] = {}
        self.ceilings: dict[Measure, tuple[Values, list[Evidence]]] = {}
        self.answered = np.full(n, "missing", dtype=object)
        self.status = np.full(n, "missing", dtype=object)
        self.digests: list[bytes] = [b""] * n
        self.counts = Counts(queries=n, not_in_queries=asked.not_asked)
        self.strangers: list[str] = []
        self.lacks: dict[Measure, str] = {}
        self.served: frozenset[Measure] = frozenset()
        self.meta: Mapping[str, Any] = {}
        self.order: Order | None = None
        self.units: dict[str, int] = {}
        self.lists, self.calls = list[pl.DataFrame](), list[pl.DataFrame]()

    def add(self, part: Part) -> None:
        """Put the queries of a part in their places."""
        numbers = self.asked.numbers
        codes = np.array([numbers[one] for one in part.query_ids], dtype=np.int64)
        for measure, values in part.columns.items():
            self.columns[measure][codes] = values
        for measure, ends in part.ends.items():
            for side, own in zip(self._sides(measure), ends, strict=True):
                side[codes] = own
        for measure, evidence in part.evidence.items():
            moved = self._moved(evidence, codes, part, measure)
            self.evidence.setdefault(measure, []).append(moved)
        for measure, (values, evidence) in part.ceilings.items():
            nothing = np.full(len(self.status), np.nan)
            whole, facts = self.ceilings.setdefault(measure, (nothing, []))
            whole[codes] = values
            facts.append(self._moved(evidence, codes, part, measure))
        self.answered[codes], self.status[codes] = part.answered, part.status
        for code, digest in zip(codes.tolist(), part.digests, strict=True):
            self.digests[code] = digest
        self._tell(part)
        if part.lists is not None:
            rows = pl.Series("row", codes[part.lists["row"].to_numpy()], dtype=pl.Int64)
            self.lists.append(part.lists.with_columns(rows))
        if part.calls is not None:
            self.calls.append(part.calls)

    def _tell(self, part: Part) -> None:
        """What a part says beside the values of its queries."""
        self.counts = replace(
            self.counts,
            duplicates_dropped=self.counts.duplicates_dropped + part.counts.duplicates_dropped,
            order_conflicts=self.counts.order_conflicts + part.counts.order_conflicts,
            not_in_gold=self.counts.not_in_gold + part.counts.not_in_gold,
        )
        self.strangers = sorted({*self.strangers, *part.strangers})[:2]
        self.lacks = {**part.lacks, **self.lacks}
        self.served |= part.served
        self.meta = self.meta or part.meta
        self.order = self.order or part.order

    def _sides(self, measure: Measure) -> Ends:
        n = len(self.status)
        return self.ends.setdefault(measure, (np.full(n, np.nan), np.full(n, np.nan)))

    def _moved(self, evidence: Evidence, codes: Ints, part: Part, measure: Measure) -> Evidence:
        """Facts about the queries by their places, and about gold by numbers that all share."""
        key = evidence.key
        about_gold = measure.name == "Coverage" and measure.arguments.get("of") != "corpus"
        if about_gold and part.units is not None and len(key):
            used, place = np.unique(key, return_inverse=True)
            names = [part.units[unit] for unit in used.tolist()]
            numbers = [self.units.setdefault(name, len(self.units)) for name in names]
            key = np.array(numbers, dtype=np.int64)[place]
        return Evidence(codes[evidence.query], key, evidence.value, evidence.total)

    def scores(self, lenient: frozenset[Measure], *, name: str, source: Source) -> Scores:
        """The scores, once every part is in."""
        if (self.answered == "missing").all() and self.strangers:
            raise self._never_meet(source)
        self.lacks = {m: told for m, told in self.lacks.items() if m not in self.served}
        for measure in self.lacks:
            self.columns[measure] = np.full(len(self.status), np.nan)
            self.evidence.pop(measure, None)
        evidence = {measure: gather(parts) for measure, parts in self.evidence.items()}
        for measure, part in evidence.items():
            self._settle(measure, part)
        for measure, told in self.lacks.items():
            if measure not in lenient:
                raise MissingInputError(told)
        conventions = self.asked.conventions
        return Scores(
            system=name,
            source=source,
            measures=self.measures,
            table=self._frame(),
            status=pl.Series("status", self.status.tolist(), dtype=pl.String),
            counts=self._counted(evidence),
            conventions=replace(
                conventions,
                order=conventions.order or self.order,
                unit="query" if self.asked.group is None else "group",
            ),
            meta=self.meta,
            ceilings={
                str(measure): (values, gather(facts))
                for measure, (values, facts) in self.ceilings.items()
            },
            tied={str(measure): self._tie_ends(measure) for measure in self.ends},
            evidence={str(measure): part for measure, part in evidence.items()},
            lacks={str(measure): told for measure, told in self.lacks.items()},
            fingerprint=fingerprint_of(self.asked.query_ids, self.digests),
            groups=self.asked.group,
            lists=pl.concat(self.lists, how="diagonal") if self.lists else None,
            calls=pl.concat(self.calls, how="diagonal_relaxed") if self.calls else None,
        )

    def _settle(self, measure: Measure, evidence: Evidence) -> None:
        """Make a measure's values final, now that all evidence is there."""
        settle = measure.definition.settle
        if settle is None:
            return
        try:
            arguments = arguments_of(measure, self.asked.conventions)
            self.columns[measure] = settle(self.columns[measure], evidence, **arguments)
        except MissingInputError as error:
            self.lacks[measure] = str(error)
            self.columns[measure] = np.full(len(self.status), np.nan)

    def _counted(self, evidence: Mapping[Measure, Evidence]) -> Counts:
        unknown = [len(part.query) for m, part in evidence.items() if m.name == "Fresh"]
        return replace(
            self.counts,
            scored=int((self.status == "scored").sum()),
            missing=int((self.status == "missing").sum()),
            empty_gold=int((self.status == "empty_gold").sum()),
            no_answer=int((self.status == "no_answer").sum()),
            failed_calls=int((self.answered == "failed").sum()),
            versions_unknown=max(unknown, default=0),
        )

    def _tie_ends(self, measure: Measure) -> Ends:
        column = self.columns[measure]
        low, high = (np.where(np.isnan(side), column, side) for side in self.ends[measure])
        return low, high

    def _frame(self) -> pl.DataFrame:
        columns = {
            str(measure): pl.Series(values, dtype=pl.Float64, nan_to_null=True)
            for measure, values in self.columns.items()
        }
        return pl.DataFrame({"query_id": list(self.asked.query_ids), **columns})

    def _never_meet(self, source: Source) -> InputError:
        ours = " and ".join(repr(name) for name in self.strangers)
        theirs = " and ".join(repr(name) for name in self.asked.query_ids[:2])
        whose = self.asked.source_of_queries or "gold"
        return InputError(
            f"the run and the {whose} share no query id: the run has {ours}, the {whose} has"
            f" {theirs}; check that both belong together",
            where=source.name,
        )
