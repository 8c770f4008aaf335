"""Score a run against prepared gold: block by block, in one process or in parts that are merged.

``score`` is the way in. A ``ScoreBuilder`` fills the values of some queries; ``merge_scores``
joins the parts that several builders made (Spark's workers), in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Blocks, InterleavedError, Order, Run
from karat.errors import InputError, MissingInputError
from karat.measure.aggregates import NOTHING, Evidence, Values, gather
from karat.measure.evaluate_measure import (
    CutDepth,
    arguments_of,
    beyond_cut,
    cut_depth,
    last_ranks,
    tie_sensitive,
    values_of,
    worst_of,
)
from karat.measure.lists import ListNeeds
from karat.measure.misfits import (
    Meeting,
    add_other_stages,
    empty_run,
    gold_side,
    ids_of_stages,
    refuse_misfit,
    side_name,
)
from karat.measure.names import Measure
from karat.measure.prepare import Prepared, fingerprint_of
from karat.measure.rank import HIT_FACTS, Block, rank, tie_orders
from karat.measure.ranked import Entries, Ints, Ranked, ideal_of, is_budget
from karat.measure.scores import Counts, Scores

Statuses = NDArray[Any]
TieEnds = tuple[Values, Values]
# The states of queries that are counted under their own names.
_COUNTED = ("scored", "missing", "empty_gold", "no_answer")


def score(
    run: Run | Blocks,
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure] = (),
    keep: int = 0,
    derived: bool = False,
    depth_in_log: str = "k",
    stage: str = "final",
    all_ids: Callable[[], pl.DataFrame] | None = None,
) -> Scores:
    """Score a run against prepared gold.

    A measure in ``lenient`` whose input is missing has no value; for any other that is an error.
    ``keep`` keeps that many top items of each query. A run that does not fit its gold is
    refused, unless it is ``derived`` from a run that was checked. ``depth_in_log`` is the key
    under which a log states the depth of these lists: ``k_raw`` for the raw ones. For the lists
    of an earlier ``stage``, ``all_ids`` returns what each stage returned.

    >>> from karat.data.tables import Gold, Run
    >>> from karat.measure.conventions import Conventions
    >>> from karat.measure.names import parse_measures
    >>> from karat.measure.prepare import prepare
    >>> gold = prepare(Gold.from_dict({"q1": {"A": 1, "B": 1}}), Conventions())
    >>> run = Run.from_dict({"q1": ["X", "A", "Y", "Z", "W"]})
    >>> score(run, gold, parse_measures("R@5, P@5, RR")).means()
    {'R@5': 0.5, 'P@5': 0.2, 'RR': 0.5}
    """
    builder = ScoreBuilder(gold, measures, keep)
    try:
        for block in run.blocks():
            builder.add(block)
        interleaved = False
    except InterleavedError:
        interleaved = True
    if interleaved:
        # Outside of the except clause, so that the error releases what it refers to.
        builder = ScoreBuilder(gold, measures, keep)
        for block in run.partitions():
            builder.add(block)
    partial = builder.partial()
    if not derived and (gold.corpus is not None or not partial.meeting.found):
        _refuse_misfit(partial, gold, run, stage, all_ids)
    return final_scores(
        partial, gold, lenient, run=run, depth_in_log=depth_in_log, blocks=builder.blocks
    )


@dataclass(eq=False)
class PartialScores:
    """The scores of some queries, before those of all queries are together.

    Every array has a place for each of ``query_ids``. ``answered`` says what the run did
    (scored, missing, failed), ``status`` also what the gold lacks. ``digests`` identify the
    judgments of each query. ``units`` names what evidence about gold refers to, where its
    numbers are the part's own. ``served`` are the measures that some block had the input for,
    ``lacks`` says what the others would have needed. ``returned`` counts each list, and ``last``
    is the last rank of each list that a measure looks at, where lists differ in that.
    """

    query_ids: Sequence[str] = ()
    columns: dict[Measure, Values] = field(default_factory=dict)
    answered: Statuses = field(default_factory=lambda: np.empty(0, dtype=object))
    status: Statuses = field(default_factory=lambda: np.empty(0, dtype=object))
    returned: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    ends: dict[Measure, TieEnds] = field(default_factory=dict)
    evidence: dict[Measure, list[Evidence]] = field(default_factory=dict)
    ceilings: dict[Measure, Values] = field(default_factory=dict)
    ideal_evidence: dict[Measure, list[Evidence]] = field(default_factory=dict)
    last: dict[Measure, Ints] = field(default_factory=dict)
    digests: list[bytes] = field(default_factory=list)
    units: Sequence[str] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    unknown_queries: list[str] = field(default_factory=list)
    meeting: Meeting = field(default_factory=Meeting)
    lacks: dict[Measure, str] = field(default_factory=dict)
    served: frozenset[Measure] = frozenset()
    meta: Mapping[str, Any] = field(default_factory=dict)
    order: Order | None = None
    lists: list[pl.DataFrame] = field(default_factory=list)
    calls: list[pl.DataFrame] = field(default_factory=list)

    @classmethod
    def empty(cls, query_ids: Sequence[str], measures: Sequence[Measure]) -> PartialScores:
        """Return the scores of queries of which nothing is known yet."""
        n = len(query_ids)
        return cls(
            query_ids=query_ids,
            columns={measure: np.full(n, np.nan) for measure in measures},
            answered=np.full(n, "missing", dtype=object),
            status=np.full(n, "missing", dtype=object),
            returned=np.zeros(n, dtype=np.int64),
            digests=[b""] * n,
        )

    def set_tie_ends(self, measure: Measure, codes: Ints, ends: Iterable[Values]) -> None:
        """Set a measure's values with tied hits at their worst and at their best."""
        n = len(self.query_ids)
        sides = self.ends.setdefault(measure, (np.full(n, np.nan), np.full(n, np.nan)))
        for side, values in zip(sides, ends, strict=True):
            side[codes] = values

    def lose(self, measure: Measure, reason: str) -> None:
        """Take a measure's values away and say why."""
        self.lacks[measure] = reason
        self.columns[measure] = np.full(len(self.query_ids), np.nan)


class ScoreBuilder:
    """Scores the queries of some gold, block by block, whatever queries each block holds."""

    def __init__(self, gold: Prepared, measures: Sequence[Measure], keep: int = 0) -> None:
        self.gold, self.measures, self.keep = gold, tuple(measures), keep
        self.needs = ListNeeds.of(measures, keep)
        self.blocks: list[Block] = []
        self._scores = PartialScores.empty(gold.query_ids, measures)
        self._scores.order = gold.conventions.order

    def add(self, run: Run) -> None:
        """Score one block of whole queries."""
        block = rank(run, self.gold, self.needs)
        self.add_block(block, meta=run.meta, order=run.order, calls=run.calls)

    def add_block(
        self,
        block: Block,
        *,
        meta: Mapping[str, Any],
        order: Order,
        calls: pl.DataFrame | None = None,
    ) -> None:
        """Score queries that are ranked; the rest is what their run says besides hits."""
        scores = self._scores
        scores.counts.update(
            repeats=block.repeats,
            order_conflicts=block.conflicts,
            not_in_gold=len(block.unknown_queries),
        )
        unknown_queries = {*scores.unknown_queries, *block.unknown_queries[:2]}
        scores.unknown_queries = sorted(unknown_queries)[:2]
        if not scores.meeting.found:
            found = block.meeting.found
            scores.meeting = block.meeting if found else scores.meeting + block.meeting
        scores.meta = scores.meta or meta
        scores.order = self.gold.conventions.order or order
        scores.answered[block.codes] = "scored"
        scores.answered[block.failed] = "failed"
        scores.returned[block.codes] = block.ranked.returned
        orders = None if block.ties is None else tie_orders(block)
        for measure in self.measures:
            self._fill(measure, block, orders)
        if self.keep and (listing := block.ranked.listing) is not None:
            list_columns = ("item_id", "doc_id", *HIT_FACTS, "grade", "repeat")
            available = [name for name in list_columns if name in listing.frame.columns]
            # A run's own column of tokens may be of any kind.
            lengths = pl.col("^tokens$").cast(pl.Float64, strict=False)
            row = pl.Series("row", block.codes[listing.query])
            top = listing.frame.select(row, pl.Series("rank", listing.rank), *available, lengths)
            top = top.filter(pl.col("rank") <= self.keep)
            scores.lists.append(top.with_columns(pl.col("grade").fill_nan(None)))
        if self.keep and calls is not None:
            names = [name for name in ("query_id", "query", "error") if name in calls.columns]
            scores.calls.append(calls.select(names))
        # The listing has been used, and can be large.
        self.blocks.append(replace(block, ranked=replace(block.ranked, listing=None, calls={})))

    def _fill(self, measure: Measure, block: Block, orders: tuple[Ranked, Ranked] | None) -> None:
        scores = self._scores
        try:
            scores.columns[measure][block.codes] = values_of(measure, block.ranked, self.gold)
            if measure.definition.evidence is not None:
                self._collect(scores.evidence, measure, block.ranked, block.codes)
        except MissingInputError as error:
            # Another block may bring it: a log need not say the same of every call.
            scores.lacks.setdefault(measure, str(error))
            return
        scores.served |= {measure}
        if isinstance(measure.k, str):
            last = scores.last.setdefault(measure, np.zeros_like(scores.returned))
            last[block.codes] = last_ranks(measure.k, block.ranked)
        if orders is not None and tie_sensitive(measure, self.gold.conventions):
            ends = (values_of(measure, ranked, self.gold) for ranked in orders)
            scores.set_tie_ends(measure, block.codes, ends)

    def _collect(
        self, into: dict[Measure, list[Evidence]], measure: Measure, ranked: Ranked, codes: Ints
    ) -> None:
        """Add what a measure needs of these lists besides its values, if it needs any."""
        if (collect := measure.definition.evidence) is not None:
            facts = collect(ranked, measure.k, **arguments_of(measure, self.gold.conventions))
            moved = Evidence(codes[facts.query], facts.key, facts.value, facts.total)
            into.setdefault(measure, []).append(moved)

    def partial(self) -> PartialScores:
        """Return the scores of these queries, once all their blocks are in."""
        scores, gold = self._scores, self.gold
        gaps = np.flatnonzero(scores.answered != "scored")
        if len(gaps) and gold.conventions.missing == "zero":
            self._fill_gaps(gaps)
        everyone = np.arange(len(gold.query_ids))
        target = gold.target(everyone)
        empty = target.relevant(gold.conventions.rel) == 0
        status = np.where(empty, "empty_gold", scores.answered)
        scores.status = np.where(empty & target.no_answer, "no_answer", status)
        ideal = ideal_of(target, gold.conventions.depth)
        for measure in self.measures:
            definition = measure.definition
            # The ideal list's value is the best possible, where gold alone says what counts.
            if definition.ceiling != "ideal":
                continue
            if definition.evidence is not None:
                if not _counts_gold(measure, gold):
                    continue
                self._collect(scores.ideal_evidence, measure, ideal, everyone)
            scores.ceilings[measure] = values_of(measure, ideal, gold)
        scores.digests = gold.digests
        if gold.corpus is not None or not scores.meeting.found:
            scores.meeting = gold_side(gold) + scores.meeting
        return scores

    def _fill_gaps(self, gaps: Ints) -> None:
        """Give queries without an answer each measure's worst value."""
        target = self.gold.target(gaps)
        none = np.empty(0, dtype=np.int64)
        nothing = Entries(target.n, none, none, np.empty(0), row=none)
        empty = Ranked(target, nothing, nothing, np.zeros(target.n, dtype=np.int64))
        for measure in self.measures:
            if measure.definition.cutoff == "path":
                continue
            self._scores.columns[measure][gaps] = worst_of(measure, empty, self.gold)
            if not measure.definition.needs and _counts_gold(measure, self.gold):
                self._collect(self._scores.evidence, measure, empty, gaps)


def _counts_gold(measure: Measure, gold: Prepared) -> bool:
    """Return whether gold alone tells what a measure of the set counts."""
    of = measure.arguments.get("of")
    return of != "corpus" and (of != "items" or gold.corpus_size is not None)


def merge_scores(
    parts: Iterable[PartialScores],
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure],
    run: Blocks,
    all_ids: Callable[[], pl.DataFrame] | None = None,
) -> Scores:
    """Return the scores of all queries; parts come one at a time and are not kept.

    ``gold`` says which queries there are; its judgments are with the parts. See ``score`` for
    the other arguments.
    """
    scores = PartialScores.empty(gold.query_ids, measures)
    units: dict[str, int] = {}
    for part in parts:
        _merge(scores, part, gold, units)
    _refuse_misfit(scores, gold, run, "final", all_ids)
    return final_scores(scores, gold, lenient, run=run)


def _merge(
    scores: PartialScores, part: PartialScores, gold: Prepared, units: dict[str, int]
) -> None:
    """Put the queries of a part in their places; ``units`` numbers gold units for all parts."""
    codes = np.array([gold.numbers[name] for name in part.query_ids], dtype=np.int64)
    for measure, values in part.columns.items():
        scores.columns[measure][codes] = values
    for measure, values in part.ceilings.items():
        nothing = np.full(len(scores.query_ids), np.nan)
        scores.ceilings.setdefault(measure, nothing)[codes] = values
    for measure, ends in part.ends.items():
        scores.set_tie_ends(measure, codes, ends)
    for measure, ranks in part.last.items():
        scores.last.setdefault(measure, np.zeros_like(scores.returned))[codes] = ranks
    for measure, facts in part.evidence.items():
        scores.evidence.setdefault(measure, []).extend(_moved(measure, facts, part, codes, units))
    for measure, facts in part.ideal_evidence.items():
        moved = _moved(measure, facts, part, codes, units)
        scores.ideal_evidence.setdefault(measure, []).extend(moved)
    scores.answered[codes], scores.status[codes] = part.answered, part.status
    scores.returned[codes] = part.returned
    for code, digest in zip(codes.tolist(), part.digests, strict=True):
        scores.digests[code] = digest
    scores.counts.update(part.counts)
    scores.unknown_queries = sorted({*scores.unknown_queries, *part.unknown_queries})[:2]
    scores.meeting += part.meeting
    scores.lacks = {**part.lacks, **scores.lacks}
    scores.served |= part.served
    scores.meta = scores.meta or part.meta
    scores.order = scores.order or part.order
    for frame in part.lists:
        rows = pl.Series("row", codes[frame["row"].to_numpy()], dtype=pl.Int64)
        scores.lists.append(frame.with_columns(rows))
    scores.calls += part.calls


def _moved(
    measure: Measure,
    facts: Iterable[Evidence],
    part: PartialScores,
    codes: Ints,
    units: dict[str, int],
) -> Iterator[Evidence]:
    """Yield facts with the places of their queries, and the shared numbers of gold units."""
    about_gold = measure.name == "Coverage" and measure.arguments.get("of") != "corpus"
    for evidence in facts:
        key = evidence.key
        if about_gold and part.units is not None and len(key):
            used, place = np.unique(key, return_inverse=True)
            names = [part.units[unit] for unit in used.tolist()]
            numbers = [units.setdefault(name, len(units)) for name in names]
            key = np.array(numbers, dtype=np.int64)[place]
        yield Evidence(codes[evidence.query], key, evidence.value, evidence.total)


def _refuse_misfit(
    scores: PartialScores,
    gold: Prepared,
    run: Blocks,
    stage: str,
    all_ids: Callable[[], pl.DataFrame] | None,
) -> None:
    """Refuse a run that does not fit its gold, once every query is in."""
    run_name = side_name(run.source, f"run {run.name!r}")
    if (scores.answered == "missing").all():
        if scores.unknown_queries:
            of_run = " and ".join(map(repr, scores.unknown_queries))
            of_gold = " and ".join(map(repr, gold.query_ids[:2]))
            side = gold.source_of_queries or "gold"
            raise InputError(
                f"the run and the {side} share no query id: the run has {of_run}, the {side} has"
                f" {of_gold}; check that both belong together",
                where=run.source.name,
            )
        if len(scores.answered) and gold.conventions.missing_ids == "refuse":
            raise empty_run(run_name)
    meeting = scores.meeting
    if stage != "final":
        # An earlier stage need not have a list for every query.
        queries = min(meeting.queries, meeting.answers - meeting.empty)
        meeting = replace(meeting, queries=queries)
    if (all_ids is not None or run.staged) and not meeting.found:
        ids = all_ids() if all_ids is not None else ids_of_stages(run.read())
        other_stages = ids.filter(pl.col("stage") != stage)
        meeting = add_other_stages(meeting, other_stages)
        run_name = f"stage {stage} of {run_name}" if other_stages.height else run_name
    refuse_misfit(
        meeting,
        gold.conventions,
        run=run_name,
        gold=side_name(gold.source, "the gold"),
        corpus=gold.corpus,
        corpus_name=side_name(gold.corpus_source, "the corpus"),
    )


def final_scores(
    scores: PartialScores,
    gold: Prepared,
    lenient: Collection[Measure],
    *,
    run: Blocks,
    depth_in_log: str = "k",
    blocks: Sequence[Block] | None = None,
) -> Scores:
    """Return the scores once every query is in: values settled, measures beyond a cut left out."""
    conventions = gold.conventions
    scores.lacks = {m: reason for m, reason in scores.lacks.items() if m not in scores.served}
    for measure, reason in scores.lacks.items():
        scores.lose(measure, reason)
        scores.evidence.pop(measure, None)
    evidence = {measure: gather(facts) for measure, facts in scores.evidence.items()}
    ideal = {measure: gather(facts) for measure, facts in scores.ideal_evidence.items()}
    for measure, facts in evidence.items():
        if (settle := measure.definition.settle) is not None:
            try:
                arguments = arguments_of(measure, conventions)
                scores.columns[measure] = settle(scores.columns[measure], facts, **arguments)
            except MissingInputError as error:
                scores.lose(measure, str(error))
    for measure, reason in scores.lacks.items():
        if measure not in lenient:
            raise MissingInputError(reason)
    cut = _leave_out_beyond_cut(scores, gold, scores.meta.get(depth_in_log))
    tied = {}
    for measure, ends in scores.ends.items():
        values = scores.columns[measure]
        low, high = (np.where(np.isnan(side), values, side) for side in ends)
        tied[str(measure)] = low, high
    number_of_status = Counter(scores.status.tolist())
    unknown = [len(facts.query) for measure, facts in evidence.items() if measure.name == "Fresh"]
    counts = Counts(
        **scores.counts,
        queries=len(scores.query_ids),
        not_in_queries=gold.not_asked,
        failed_calls=int((scores.answered == "failed").sum()),
        versions_unknown=max(unknown, default=0),
        **{name: number_of_status[name] for name in _COUNTED},
    )
    return Scores(
        system=run.name,
        source=run.source,
        measures=tuple(scores.columns),
        query_ids=scores.query_ids,
        columns={str(measure): values for measure, values in scores.columns.items()},
        status=scores.status,
        counts=counts,
        conventions=replace(
            conventions,
            order=conventions.order or scores.order,
            unit="query" if gold.group is None else "group",
        ),
        meta=scores.meta,
        ceilings={str(m): (v, ideal.get(m, NOTHING)) for m, v in scores.ceilings.items()},
        tied=tied,
        evidence={str(measure): facts for measure, facts in evidence.items()},
        lacks={str(measure): reason for measure, reason in scores.lacks.items()},
        cut=cut,
        fingerprint=fingerprint_of(scores.query_ids, scores.digests),
        groups=gold.group,
        nothing_found=0 if scores.meeting.found else scores.meeting.queries,
        lists=pl.concat(scores.lists, how="diagonal") if scores.lists else None,
        calls=pl.concat(scores.calls, how="diagonal_relaxed") if scores.calls else None,
        blocks=None if blocks is None else (blocks, gold),
    )


def _leave_out_beyond_cut(scores: PartialScores, gold: Prepared, logged: object) -> CutDepth | None:
    """Remove the values that would need longer lists, where the lists were cut."""
    items = None if gold.corpus is None else gold.corpus.height
    cut = cut_depth(scores.returned, gold.conventions, logged=logged, corpus_items=items)
    if cut is None:
        return None
    measured = [measure for measure in scores.columns if measure not in scores.lacks]
    beyond = beyond_cut(measured, cut.depth, scores.last)
    for measure in beyond:
        unfilled = "some lists do not fill it, and " if is_budget(measure.k) else ""
        scores.lose(measure, unfilled + cut.because)
        scores.ends.pop(measure, None)
    return replace(cut, beyond=tuple(str(measure) for measure in beyond))
