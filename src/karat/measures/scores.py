"""Evaluate: a run, its gold and some measures become one row a query, one column a measure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.errors import InputError, MissingInputError, UsageError
from karat.measures.conventions import PROFILES, conventions_of
from karat.measures.listing import Wanted
from karat.measures.names import Measure, parse_measures
from karat.measures.numbers import NOTHING, Evidence, Values, gather
from karat.measures.prepare import Prepared, prepare
from karat.measures.rank import Block, rank
from karat.measures.ranked import Entries, Ints, Listing, Mask, Ranked, ideal_of, is_budget
from karat.measures.registry import MEASURES
from karat.measures.results import Counts, Scores, Summary
from karat.measures.ties import tie_orders
from karat.measures.traces import FACTS, traced
from karat.tables import Blocks, Corpus, Gold, InterleavedError, Queries, Run

__all__ = ["Counts", "Scores", "Summary", "evaluate", "prepare", "score", "values_of"]


def evaluate(
    run: Run | Blocks,
    gold: Gold,
    measures: str | Sequence[str | Measure] | None = None,
    *,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
) -> Scores:
    """Score a run against gold; without ``measures`` by those of the profile.

    ``settings`` changes conventions of the profile, as ``--set`` does. ``queries`` decides
    which queries there are and brings their k, as_of and entities; ``corpus`` brings texts,
    versions and documents to the measures that need them.

    >>> from karat.tables import Gold, Run
    >>> gold = Gold.from_dict({"q1": {"A": 1, "B": 1}})
    >>> run = Run.from_dict({"q1": ["X", "A", "Y", "Z", "W"]})
    >>> evaluate(run, gold, ["R@5", "P@5", "Hit@5", "RR"]).means()
    {'R@5': 0.5, 'P@5': 0.2, 'Hit@5': 1.0, 'RR': 0.5}
    """
    right = isinstance(gold, Gold) and hasattr(run, "blocks")
    if (
        not right
        or not isinstance(queries, Queries | None)
        or not isinstance(corpus, Corpus | None)
    ):
        raise UsageError(
            "evaluate takes a Run and a Gold, in this order, and Queries and a Corpus by name;"
            " make them with Run.from_dict, read_run, Gold.from_dict, read_gold and the like"
        )
    conventions = conventions_of(profile, settings)
    named = PROFILES[profile].measures if measures is None else measures
    chosen = parse_measures(named, rel=conventions.rel)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    return score(run, prepared, chosen, lenient=chosen if measures is None else ())


def score(
    run: Run | Blocks,
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure] = (),
    keep: int = 0,
) -> Scores:
    """Score a run against prepared gold.

    A measure in ``lenient`` whose input is missing has no value, where another is an error.
    ``keep`` keeps so many of the top items of each query, for comparing lists.
    """
    try:
        table = _Table(gold, measures, lenient, keep)
        for block in run.blocks():
            table.add(block)
    except InterleavedError:
        table = _Table(gold, measures, lenient, keep)
        table.add(run.read())
    return table.finished(run)


class _Table:
    """The table while it fills up, block by block."""

    def __init__(
        self, gold: Prepared, measures: Sequence[Measure], lenient: Collection[Measure], keep: int
    ) -> None:
        n = len(gold.query_ids)
        self.gold, self.measures, self.lenient = gold, tuple(measures), frozenset(lenient)
        self.keep, self.lists, self.calls = keep, list[pl.DataFrame](), list[pl.DataFrame]()
        self.blocks: list[Block] = []
        self.wanted = Wanted.by(measures).with_lists(keep)
        self.columns = {measure: np.full(n, np.nan) for measure in measures}
        self.ends: dict[Measure, tuple[Values, Values]] = {}
        self.evidence: dict[Measure, list[Evidence]] = {}
        self.lacks: dict[Measure, MissingInputError] = {}
        self.served: set[Measure] = set()
        self.status = np.full(n, "missing", dtype=object)
        self.counts = Counts(queries=n, not_in_queries=gold.not_asked)
        self.strangers: list[str] = []
        self.meta: Mapping[str, Any] = {}
        self.order = gold.conventions.order

    def add(self, run: Run) -> None:
        """Score one block of whole queries."""
        block = rank(run, self.gold, self.wanted)
        self.counts = replace(
            self.counts,
            duplicates_dropped=self.counts.duplicates_dropped + block.duplicates,
            order_conflicts=self.counts.order_conflicts + block.conflicts,
            not_in_gold=self.counts.not_in_gold + len(block.strangers),
        )
        self.strangers = sorted({*self.strangers, *block.strangers[:2]})[:2]
        self.meta = self.meta or run.meta
        self.order = self.gold.conventions.order or run.order
        self.status[block.codes] = "scored"
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
            self.lacks.setdefault(measure, error)
            return
        self.served.add(measure)
        if orders is not None and _feels_ties(measure):
            n = self.counts.queries
            sides = self.ends.setdefault(measure, (np.full(n, np.nan), np.full(n, np.nan)))
            for side, ranked in zip(sides, orders, strict=True):
                side[block.codes] = values_of(measure, ranked, self.gold)

    def _collect(self, measure: Measure, ranked: Ranked, codes: Ints) -> None:
        collect = measure.definition.evidence
        if collect is not None:
            part = collect(ranked, measure.k, **_arguments(measure, self.gold))
            whole = Evidence(codes[part.query], part.key, part.value, part.total)
            self.evidence.setdefault(measure, []).append(whole)

    def finished(self, run: Run | Blocks) -> Scores:
        """The scores, once every block is in."""
        gaps = np.flatnonzero((self.status == "missing") | (self.status == "failed"))
        if (self.status == "missing").all() and self.strangers:
            raise _never_meet(run, self.strangers, self.gold)
        self.lacks = {m: error for m, error in self.lacks.items() if m not in self.served}
        if len(gaps) and self.gold.conventions.missing == "zero":
            self._fill_gaps(gaps)
        evidence = {measure: gather(parts) for measure, parts in self.evidence.items()}
        for measure, part in evidence.items():
            self._settle(measure, part)
        for measure, error in self.lacks.items():
            if measure not in self.lenient:
                raise error
        status = self._statuses()
        return Scores(
            system=run.name,
            source=run.source,
            measures=self.measures,
            table=self._frame(),
            status=status,
            counts=self._counted(status, evidence),
            conventions=replace(
                self.gold.conventions,
                order=self.order,
                unit="query" if self.gold.group is None else "group",
            ),
            meta=self.meta,
            ceilings=_ceilings(self.measures, self.gold),
            tied={str(measure): self._tie_ends(measure) for measure in self.ends},
            evidence={str(measure): part for measure, part in evidence.items()},
            lacks={str(measure): str(error) for measure, error in self.lacks.items()},
            fingerprint=self.gold.fingerprint,
            groups=self.gold.group,
            lists=pl.concat(self.lists, how="diagonal") if self.lists else None,
            calls=pl.concat(self.calls, how="diagonal_relaxed") if self.calls else None,
            trace=traced(self.blocks, self.gold),
        )

    def _settle(self, measure: Measure, evidence: Evidence) -> None:
        """Make a measure's values final, now that all evidence is there."""
        settle = measure.definition.settle
        if settle is None:
            return
        try:
            arguments = _arguments(measure, self.gold)
            self.columns[measure] = settle(self.columns[measure], evidence, **arguments)
        except MissingInputError as error:
            self.lacks[measure] = error
            self.columns[measure] = np.full(self.counts.queries, np.nan)

    def _fill_gaps(self, gaps: Ints) -> None:
        """A query without an answer gets each measure's worst value."""
        target = self.gold.target(gaps)
        nothing = Entries(target.n, _NONE, _NONE, np.empty(0), row=_NONE)
        empty = Ranked(target, nothing, nothing, np.zeros(target.n, dtype=np.int64))
        for measure in self.measures:
            if measure in self.lacks or measure.definition.cutoff == "path":
                continue
            self.columns[measure][gaps] = _worst(measure, empty, self.gold)
            if not measure.definition.needs and measure.arguments.get("of") != "corpus":
                self._collect(measure, empty, gaps)

    def _statuses(self) -> pl.Series:
        everyone = self.gold.target(np.arange(self.counts.queries))
        empty = everyone.relevant(self.gold.conventions.rel) == 0
        status = np.where(empty, "empty_gold", self.status)
        status = np.where(empty & everyone.no_answer, "no_answer", status)
        return pl.Series("status", status.tolist(), dtype=pl.String)

    def _counted(self, status: pl.Series, evidence: Mapping[Measure, Evidence]) -> Counts:
        unknown = [len(part.query) for m, part in evidence.items() if m.name == "Fresh"]
        return replace(
            self.counts,
            scored=int((status == "scored").sum()),
            missing=int((status == "missing").sum()),
            empty_gold=int((status == "empty_gold").sum()),
            no_answer=int((status == "no_answer").sum()),
            failed_calls=int((self.status == "failed").sum()),
            versions_unknown=max(unknown, default=0),
        )

    def _tie_ends(self, measure: Measure) -> tuple[Values, Values]:
        column = self.columns[measure]
        low, high = (np.where(np.isnan(side), column, side) for side in self.ends[measure])
        return low, high

    def _frame(self) -> pl.DataFrame:
        columns = {
            str(measure): pl.Series(values, dtype=pl.Float64, nan_to_null=True)
            for measure, values in self.columns.items()
        }
        return pl.DataFrame({"query_id": list(self.gold.query_ids), **columns})


_NONE = np.empty(0, dtype=np.int64)


def _top(listing: Listing, codes: Ints, depth: int) -> pl.DataFrame:
    """The first items of each query: its row in the table, rank, item and what is known of it."""
    wanted = ("item_id", "doc_id", *FACTS, "grade")
    told = [name for name in wanted if name in listing.frame.columns]
    # A run's own column of tokens may be of any kind.
    lengths = pl.col("^tokens$").cast(pl.Float64, strict=False)
    frame = listing.frame.select(
        pl.Series("row", codes[listing.query]), pl.Series("rank", listing.rank), *told, lengths
    )
    return frame.filter(pl.col("rank") <= depth).with_columns(pl.col("grade").fill_nan(None))


def _arguments(measure: Measure, gold: Prepared) -> dict[str, Any]:
    """What the function is called with: its own parameters, and the conventions behind them."""
    takes = measure.definition.parameters
    conventions = gold.conventions
    settled = {
        "rel": conventions.rel,
        "recall_point": conventions.recall_point,
        "versions": conventions.versions,
    }
    return {key: value for key, value in settled.items() if key in takes} | measure.arguments


def values_of(measure: Measure, ranked: Ranked, gold: Prepared) -> Values:
    """A measure's value for each of some ranked lists; NaN where gold is empty, hence apart."""
    arguments = _arguments(measure, gold)
    values = np.asarray(measure.definition.function(ranked, measure.k, **arguments))
    if gold.conventions.empty_gold == "zero":
        return values
    return np.where(_without_gold(measure, ranked, gold), np.nan, values)


def _without_gold(measure: Measure, ranked: Ranked, gold: Prepared) -> Mask:
    """Which queries have no gold that this measure could count."""
    need = gold_for(measure)
    if need == "none":
        return np.zeros(ranked.n, dtype=bool)
    if need == "graded":
        return np.equal(np.bincount(ranked.target.ideal.query, minlength=ranked.n), 0)
    rel = gold.conventions.rel
    if need == "relevant":
        rel = measure.arguments.get("rel", rel)
    return np.equal(ranked.target.relevant(rel), 0)


def gold_for(measure: Measure) -> str:
    """Which gold a query must have: some parameters ask for other gold than the measure does."""
    of, gain = measure.arguments.get("of"), measure.arguments.get("gain")
    if of == "corpus":
        return "none"
    if measure.name == "AUC" and of is not None:
        return MEASURES[of].gold
    return "graded" if measure.name == "RBP" and gain == "linear" else measure.definition.gold


def _worst(measure: Measure, empty: Ranked, gold: Prepared) -> Values:
    """What a query gets that the run does not answer: 0, or 1 for a rate that should be low."""
    definition = measure.definition
    worst = np.full(empty.n, definition.worst if definition.better != "none" else np.nan)
    if definition.name == "FalseEvidence":
        return np.where(empty.target.no_answer, np.inf, np.nan)
    apart = gold.conventions.empty_gold == "apart"
    nothing = _without_gold(measure, empty, gold) & apart
    if definition.needs or measure.arguments.get("of") == "corpus" or definition.name == "EL_F1":
        return np.where(nothing | _unasked(measure, empty), np.nan, worst)
    values = values_of(measure, empty, gold)
    return np.where(np.isnan(values) & ~nothing, worst, values)


def _unasked(measure: Measure, ranked: Ranked) -> Mask:
    """Which queries bring nothing that this measure could hold an answer against."""
    brought: dict[str, Sequence[object]] = {
        "Fresh": ranked.target.as_of,
        "EL_F1": ranked.target.entities,
    }
    own = brought.get(measure.name)
    if not own:
        return np.zeros(ranked.n, dtype=bool)
    return np.array([one is None or one == "" for one in own], dtype=bool)


def _feels_ties(measure: Measure) -> bool:
    """Whether the order of tied hits can move it, and relevant first is best."""
    definition = measure.definition
    plain = not definition.needs and definition.evidence is None and not is_budget(measure.k)
    # A map may value a lower grade more, and infAP rewards what was pooled and never judged.
    if isinstance(measure.arguments.get("gain"), Mapping) or measure.name == "infAP":
        return False
    return plain and gold_for(measure) in {"relevant", "graded"} and definition.better != "none"


def _ceilings(measures: Sequence[Measure], gold: Prepared) -> dict[str, tuple[Values, Evidence]]:
    """The value of the ideal list for each query, where that is the best possible."""
    everyone = np.arange(len(gold.query_ids))
    ideal = ideal_of(gold.target(everyone), gold.conventions.depth)
    ceilings = {}
    for measure in measures:
        definition = measure.definition
        if definition.ceiling != "ideal" or measure.arguments.get("of") == "corpus":
            continue
        values = values_of(measure, ideal, gold)
        collect = definition.evidence
        arguments = _arguments(measure, gold)
        evidence = NOTHING if collect is None else collect(ideal, measure.k, **arguments)
        ceilings[str(measure)] = values, evidence
    return ceilings


def _never_meet(run: Run | Blocks, strangers: Sequence[str], gold: Prepared) -> InputError:
    ours = " and ".join(repr(name) for name in strangers)
    theirs = " and ".join(repr(name) for name in gold.query_ids[:2])
    whose = "gold" if gold.source_of_queries is None else gold.source_of_queries
    return InputError(
        f"the run and the {whose} share no query id: the run has {ours}, the {whose} has {theirs};"
        " check that both belong together",
        where=run.source.name,
    )
