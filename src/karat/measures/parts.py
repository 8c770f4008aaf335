"""Scores of some queries on their way to those of all: parts may be made anywhere, in any order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.columns import IN_MEMORY, Source
from karat.errors import InputError, MissingInputError
from karat.measures.conventions import Conventions
from karat.measures.depth import CutDepth, beyond_cut, cut_depth, why_beyond
from karat.measures.misfits import (
    Meeting,
    empty_run,
    ids_of_stages,
    refuse_misfit,
    side_name,
    with_kin,
)
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
    input for, ``lacks`` says what the others would have needed. ``returned`` counts each list,
    and ``last`` is the last rank of each that a measure looks at, where lists differ in that.
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
    meeting: Meeting = field(default_factory=Meeting)
    lacks: Mapping[Measure, str] = field(default_factory=dict)
    served: frozenset[Measure] = frozenset()
    returned: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    last: Mapping[Measure, Ints] = field(default_factory=dict)
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
    gold: Source = IN_MEMORY
    corpus: pl.DataFrame | None = None
    corpus_source: Source = IN_MEMORY

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
            gold.source,
            gold.corpus,
            gold.corpus_source,
        )


def joined(
    parts: Iterable[Part],
    asked: Asked,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure],
    run: Blocks,
    derived: bool = False,
    depth_in_log: str = "k",
    stage: str = "final",
    all_ids: Callable[[], pl.DataFrame] | None = None,
) -> Scores:
    """The scores of all queries; parts come one at a time and are not kept.

    A measure in ``lenient`` whose input is missing has no value, where another is an error.
    Inputs that do not fit each other are refused, unless the run is ``derived`` from another.
    ``depth_in_log`` is the name under which a log tells the depth of these lists.
    ``stage`` is that of these lists, and ``all_ids`` gives what each stage returned, where the
    run itself does not tell.
    """
    whole = _Whole(asked, measures, depth_in_log)
    for part in parts:
        whole.add(part)
    if not derived:
        whole.refuse_misfit(run, stage, all_ids)
    return whole.scores(frozenset(lenient), name=run.name, source=run.source)


class _Whole:
    """The parts put together: only values of queries, never hits or judgments."""

    def __init__(self, asked: Asked, measures: Sequence[Measure], depth_in_log: str) -> None:
        n = len(asked.query_ids)
        self.asked, self.measures = asked, tuple(measures)
        self.depth_in_log = depth_in_log
        self.returned = np.zeros(n, dtype=np.int64)
        self.last: dict[Measure, Ints] = {}
        self.columns = {measure: np.full(n, np.nan) for measure in measures}
        self.ends: dict[Measure, Ends] = {}
        self.evidence: dict[Measure, list[Evidence]] = {}
        self.ceilings: dict[Measure, tuple[Values, list[Evidence]]] = {}
        self.answered = np.full(n, "missing", dtype=object)
        self.status = np.full(n, "missing", dtype=object)
        self.digests: list[bytes] = [b""] * n
        self.counts = Counts(queries=n, not_in_queries=asked.not_asked)
        self.strangers: list[str] = []
        self.meeting = Meeting()
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
        self.returned[codes] = part.returned
        for measure, ranks in part.last.items():
            self.last.setdefault(measure, np.zeros_like(self.returned))[codes] = ranks
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
            repeats=self.counts.repeats + part.counts.repeats,
            order_conflicts=self.counts.order_conflicts + part.counts.order_conflicts,
            not_in_gold=self.counts.not_in_gold + part.counts.not_in_gold,
        )
        self.strangers = sorted({*self.strangers, *part.strangers})[:2]
        self.meeting += part.meeting
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

    def refuse_misfit(
        self, run: Blocks, stage: str, all_ids: Callable[[], pl.DataFrame] | None
    ) -> None:
        """Refuse a run that does not fit its gold, once every part is in."""
        called = side_name(run.source, f"run {run.name!r}")
        if (self.answered == "missing").all():
            if self.strangers:
                raise self._never_meet(run.source)
            if len(self.answered) and self.asked.conventions.missing_ids == "refuse":
                raise empty_run(called)
        meeting = self.meeting
        if stage != "final":
            # An earlier stage need not have a list for every query.
            own = meeting.answers - meeting.empty
            meeting = replace(meeting, queries=min(meeting.queries, own))
        if (all_ids is not None or run.staged) and not meeting.found:
            ids = all_ids() if all_ids is not None else ids_of_stages(run.read())
            beside = ids.filter(pl.col("stage") != stage)
            meeting = with_kin(meeting, beside)
            called = f"stage {stage} of {called}" if beside.height else called
        refuse_misfit(
            meeting,
            self.asked.conventions,
            run=called,
            gold=side_name(self.asked.gold, "the gold"),
            corpus=self.asked.corpus,
            corpus_name=side_name(self.asked.corpus_source, "the corpus"),
        )

    def scores(self, lenient: frozenset[Measure], *, name: str, source: Source) -> Scores:
        """The scores, once every part is in."""
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
        cut = self._leave_out_what_is_beyond_the_cut()
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
            cut=cut,
            fingerprint=fingerprint_of(self.asked.query_ids, self.digests),
            groups=self.asked.group,
            nothing_found=0 if self.meeting.found else self.meeting.queries,
            lists=pl.concat(self.lists, how="diagonal") if self.lists else None,
            calls=pl.concat(self.calls, how="diagonal_relaxed") if self.calls else None,
        )

    def _leave_out_what_is_beyond_the_cut(self) -> CutDepth | None:
        """Take the values out that would need longer lists, where the lists were cut."""
        cut = cut_depth(
            self.returned,
            self.asked.conventions,
            logged=self.meta.get(self.depth_in_log),
            corpus_items=None if self.asked.corpus is None else self.asked.corpus.height,
        )
        if cut is None:
            return None
        measured = [measure for measure in self.measures if measure not in self.lacks]
        beyond = beyond_cut(measured, cut.depth, self.last)
        for measure in beyond:
            self.lacks[measure] = why_beyond(measure, cut)
            self.columns[measure] = np.full(len(self.status), np.nan)
            self.ends.pop(measure, None)
        return replace(cut, beyond=tuple(str(measure) for measure in beyond))

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
