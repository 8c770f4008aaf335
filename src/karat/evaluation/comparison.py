"""Did the change help: systems compared query by query on the same gold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Queries
from karat.errors import UsageError, unknown
from karat.evaluation.paired_tests import compared_pairs
from karat.evaluation.segments import By, Segment, segments_by
from karat.evaluation.systems import ComparedSystem, Pair, check_comparable
from karat.evaluation.verdict import (
    NO_DIFFERENCE,
    Comparison,
    Decision,
    Primary,
    Rule,
    Verdict,
    complete_rule,
    decide,
    judge_row,
    reversals_in,
)
from karat.measures import aggregates
from karat.measures.lists import without_repeats
from karat.measures.scores import Scores
from karat.stats.paired import benjamini_hochberg, holm

# A family too large for this many cannot have significant members by chance alone.
MOST_PERMUTATIONS = 100_000


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Everything a comparison found; ``rows`` holds one entry a pair, measure and segment.

    ``primary`` says which measure decides, and who chose it.
    """

    rule: Rule
    rows: tuple[Comparison, ...]
    decisions: tuple[Decision, ...]
    primary: Primary
    overlaps: tuple[Overlap, ...] = ()
    moved: tuple[Moved, ...] = ()
    reversals: tuple[str, ...] = ()
    replicates: Mapping[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """One word for all systems: the worst, unless all agree."""
        verdicts = [decision.verdict for decision in self.decisions]
        if "worse" in verdicts:
            return "worse"
        return verdicts[0] if len(set(verdicts)) == 1 else "unclear"

    @property
    def regression(self) -> bool:
        """Return whether any system is confirmed to be worse than its baseline."""
        return any(decision.regression for decision in self.decisions)

    @property
    def unmeasured(self) -> list[Comparison]:
        """Return the rows of the primary measure over all queries that have no value to compare."""
        return [
            row for row in self.rows if row.primary and row.segment is None and row.delta is None
        ]

    def of(self, system: str, measure: str | None = None) -> Comparison:
        """The comparison of one system over all queries, by the primary measure unless named."""
        wanted = measure or self.rule.primary
        for row in self.rows:
            if row.system == system and row.measure == wanted and row.segment is None:
                return row
        known = [f"{row.system}, {row.measure}" for row in self.rows if row.segment is None]
        raise unknown("comparison", f"{system}, {wanted}", known)


def check_boundable(rule: Rule, *, replicates: bool) -> None:
    """Refuse to bound what has more than two runs to a difference."""
    told = "bounds need two runs and their lists"
    if replicates:
        raise UsageError(f"{told}; leave --replicates (replicates=True) out")
    if rule.pairs == "all":
        raise UsageError(f"{told}; leave --pairs all out, which decides over all pairs at once")


def rule_from(rule: Rule | None, parts: Mapping[str, Any]) -> Rule:
    """Return a rule with some parts replaced; an unknown name is refused."""
    known = Rule.__slots__
    for name in parts:
        if name not in known:
            raise unknown("argument", name, known)
    return replace(rule or Rule(), **parts)


def compare_scores(
    systems: Sequence[ComparedSystem],
    rule: Rule,
    *,
    queries: Queries | None = None,
    by: Sequence[By] = (),
    known: Sequence[Comparison] = (),
) -> Comparisons:
    """Compare scored systems; the first is the baseline.

    ``known`` are rows of the same comparison in which other columns stood: percentiles among
    them, which take longest, are not tested again.
    """
    if len(systems) < 2:
        raise UsageError("a comparison needs at least two systems: the baseline and another")
    check_comparable(systems)
    rule, primary = complete_rule(rule, systems[0].measures, systems[0].conventions)
    places = range(len(systems))
    chosen = combinations(places, 2) if rule.pairs == "all" else ((0, at) for at in places[1:])
    pairs = [Pair(systems[a], systems[b]) for a, b in chosen]
    overlaps = [overlap(*pair.scores, names=pair.names) for pair in pairs]
    pairs = [
        replace(pair, identical=found is not None and found.identical and not pair.repeated)
        for pair, found in zip(pairs, overlaps, strict=True)
    ]
    rows = _all_rows(systems, pairs, rule, queries, by, known)
    same = {pair.names: pair.identical for pair in pairs}
    alpha = systems[0].conventions.alpha
    rows = [
        judge_row(
            row,
            rule,
            alpha=alpha,
            identical=same[row.baseline, row.system] and not row.wins and not row.losses,
        )
        for row in rows
    ]
    rows = [_with_reason(row, systems) for row in rows]
    return Comparisons(
        rule,
        tuple(rows),
        decisions=tuple(decide(rows_of(pair.names, rows)) for pair in pairs),
        primary=primary,
        overlaps=tuple(found for found in overlaps if found is not None),
        moved=tuple(m for pair in pairs for m in moved_most(pair, primary.measure, queries)),
        reversals=tuple(reversals_in(rows, alpha)),
        replicates={one.name: len(one.runs) for one in systems if len(one.runs) > 1},
    )


def _with_reason(row: Comparison, systems: Sequence[ComparedSystem]) -> Comparison:
    """Say why a measure is not compared: lists that were cut too early, or what a run lacks."""
    names = (row.baseline, row.system)
    for one in systems:
        cuts = [run.cut for run in one.runs if one.name in names]
        for cut in cuts:
            if cut is not None and row.measure in cut.beyond:
                told = f"{row.measure} is not compared: {cut.because} ({one.name})"
                remedy = _remedy(row.measure, cut.depth) if row.primary else ""
                return replace(row, because=told + remedy)
        lacks = [run.lacks.get(row.measure) for run in one.runs if one.name in names]
        if row.delta is None and any(lacks):
            told = next(why for why in lacks if why)
            return replace(row, because=f"{row.measure} is not compared: {told} ({one.name})")
    return row


def _remedy(measure: str, depth: int) -> str:
    """What to do where the lists were cut too early for the measure that decides."""
    name, at, cutoff = measure.rpartition("@")
    if not cutoff.isdigit() or depth < 1:
        return "; log longer lists, or name another measure with --primary"
    return f"; log lists of {cutoff} or more, or decide with --primary {name}{at}{depth}"


def _all_rows(
    systems: Sequence[ComparedSystem],
    pairs: Sequence[Pair],
    rule: Rule,
    queries: Queries | None,
    by: Sequence[By],
    known: Sequence[Comparison],
) -> list[Comparison]:
    """Return every comparison, overall and by segment, corrected within its family."""
    ids = systems[0].runs[0].table["query_id"]
    everyone = Segment({}, np.ones(systems[0].height, dtype=bool))
    rows = []
    for segments in ([everyone], *(segments_by(ids, queries, one) for one in by)):
        # All pairs of a measure share one correction, which the smallest p need not survive.
        tests = 1 if rule.pairs == "all" else len(pairs)
        family = len(segments) * tests * len(systems[0].measures)
        permutations = _enough(systems[0].conventions.permutations, family)
        within = [
            row
            for segment in segments
            for row in compared_pairs(
                systems,
                pairs,
                segment.mask,
                segment.where or None,
                rule,
                permutations=permutations,
                known=known,
            )
        ]
        rows += _adjusted(within, rule)
    return rows


def _enough(permutations: int, family: int) -> int:
    """So many that the smallest p there can be is still small when corrected for its family."""
    return max(permutations, min(100 * family, MOST_PERMUTATIONS))


def _adjusted(rows: list[Comparison], rule: Rule) -> list[Comparison]:
    """Corrected for how many were tested: the primary measure is one family, the rest another."""
    correct = benjamini_hochberg if rule.correction == "bh" else holm
    adjusted = dict(enumerate(rows))
    for primary in (True, False):
        family = [at for at, row in enumerate(rows) if row.primary == primary]
        measures = len({rows[at].measure for at in family})
        tests = max(1, sum(rows[at].p is not None for at in family))
        for at, p in zip(family, correct([rows[at].p for at in family]), strict=True):
            corrected = _corrected(rows[at], p, measures)
            adjusted[at] = replace(rows[at], p_adjusted=corrected, tests=tests)
    return list(adjusted.values())


def _corrected(row: Comparison, p: float | None, measures: int) -> float | None:
    """Where all pairs were tested at once, their largest difference has corrected for the pairs.

    That knows nothing of repeated runs, for which the plain correction counts as well.
    """
    if row.p_adjusted is None or p is None:
        return p
    of_pairs = min(1.0, row.p_adjusted * measures)
    return of_pairs if row.between_runs is None else max(of_pairs, p)


def rows_of(names: tuple[str, str], rows: Sequence[Comparison]) -> list[Comparison]:
    """Return the rows on a baseline and a system, by their names."""
    return [row for row in rows if (row.baseline, row.system) == names]


# How deep lists are compared, and where Jaccard looks.
DEPTH = 100
TOP = 10
# Ten items hold 86 % of the weight of a rank-biased overlap with this persistence.
PERSISTENCE = 0.9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Means over the queries that both systems answered, of the first 100 items.

    ``jaccard`` is of the first 10, ``rbo`` the extrapolated rank-biased overlap (p = 0.9),
    ``tau`` Kendall's of the items in both lists, None where no query has two of them.
    """

    baseline: str
    system: str
    queries: int
    jaccard: float | None
    rbo: float | None
    tau: float | None
    identical: bool

    def document(self) -> dict[str, Any]:
        """Return the overlap as it stands in a report."""
        document = asdict(self)
        return document | {f"Jaccard@{TOP}": document.pop("jaccard"), "RBO": document.pop("rbo")}


def overlap(baseline: Scores, system: Scores, names: tuple[str, str]) -> Overlap | None:
    """Compare the top items of two systems; None where they were not kept."""
    a, b = baseline.lists, system.lists
    if a is None or b is None:
        return None
    rows = np.intersect1d(a["row"].unique().to_numpy(), b["row"].unique().to_numpy())
    a, b = (_numbered(one, rows) for one in (a, b))
    common = a.join(b, on=["row", "item_id"], suffix="_b", maintain_order="left")
    at, ra, rb = (common[name].to_numpy() for name in ("row", "rank", "rank_b"))
    lengths = [np.bincount(one["row"].to_numpy(), minlength=len(rows)) for one in (a, b)]
    return Overlap(
        *names,
        queries=len(rows),
        jaccard=aggregates.mean(_jaccard(at, ra, rb, lengths)),
        rbo=aggregates.mean(_rbo(at, np.maximum(ra, rb), lengths)),
        tau=aggregates.mean(_tau(at, ra, rb, len(rows))),
        identical=_same(baseline.lists, system.lists),
    )


def _numbered(lists: pl.DataFrame | None, rows: NDArray[np.int64]) -> pl.DataFrame:
    """Return the lists of these rows, numbered from 0."""
    if lists is None:
        return pl.DataFrame()
    kept = lists.filter(pl.col("row").is_in(rows.tolist()))
    # Which items, and in which order: each once.
    kept = without_repeats(kept).sort("row", "rank")
    kept = kept.with_columns(rank=pl.int_range(1, pl.len() + 1).over("row"))
    return kept.with_columns(row=np.searchsorted(rows, kept["row"].to_numpy()))


def _same(a: pl.DataFrame | None, b: pl.DataFrame | None) -> bool:
    if a is None or b is None or a.height != b.height:
        return False
    one, other = (lists.select("row", "rank", "item_id").sort("row", "rank") for lists in (a, b))
    return one.equals(other)


def _jaccard(
    at: NDArray[np.int64],
    ra: NDArray[np.int64],
    rb: NDArray[np.int64],
    lengths: list[NDArray[np.int64]],
) -> Floats:
    short = [np.minimum(one, TOP) for one in lengths]
    both = np.bincount(at[(ra <= TOP) & (rb <= TOP)], minlength=len(short[0]))
    return both / (short[0] + short[1] - both)


def _rbo(
    at: NDArray[np.int64], depth: NDArray[np.int64], lengths: list[NDArray[np.int64]]
) -> Floats:
    """Extrapolated RBO (Webber et al. 2010, equation 32) of lists that may differ in length.

    An item in both lists belongs to their overlap from the deeper of its two ranks on, so
    each brings a tail of the weights p^d/d, which is a difference of two cumulated sums.
    """
    p, n = PERSISTENCE, len(lengths[0])
    short, long = np.minimum(*lengths), np.maximum(*lengths)
    d = np.arange(1, DEPTH + 1)
    power = np.concatenate(([0.0], np.cumsum(p**d)))
    share = np.concatenate(([0.0], np.cumsum(p**d / d)))
    agreed = np.bincount(at, weights=share[long[at]] - share[depth - 1], minlength=n)
    found = np.bincount(at, minlength=n)
    found_short = np.bincount(at[depth <= short[at]], minlength=n)
    missing = (power[long] - power[short]) / short - (share[long] - share[short])
    rest = ((found - found_short) / long + found_short / short) * p**long
    return np.asarray((1 - p) / p * (agreed + found_short * missing) + rest)


def _tau(at: NDArray[np.int64], ra: NDArray[np.int64], rb: NDArray[np.int64], n: int) -> Floats:
    """Kendall's tau for each query with at least two items in both lists, else NaN."""
    taus = np.full(n, np.nan)
    order = np.argsort(at, kind="stable")
    ends = np.cumsum(np.bincount(at, minlength=n))
    for row, (start, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
        if end - start > 1:
            first, second = ra[order[start:end]], rb[order[start:end]]
            agree = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
            taus[row] = agree.sum() / (len(first) * (len(first) - 1))
    return taus


MOST = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """One query that a system answers better or worse than its baseline."""

    baseline: str
    system: str
    measure: str
    query_id: str
    text: str | None
    baseline_value: float
    system_value: float
    change: str

    def document(self) -> dict[str, Any]:
        """Return the query as it stands in a report."""
        return asdict(self)


def moved_most(pair: Pair, measure: str, queries: Queries | None) -> list[Moved]:
    """Return the queries with the largest gains, then those with the largest losses."""
    a, b = pair.values(measure)
    scores = pair.scores[0]
    lower = next(m for m in scores.measures if str(m) == measure).definition.better == "lower"
    gain = np.nan_to_num(a - b if lower else b - a)
    up, down = (np.argsort(side, kind="stable")[:MOST] for side in (-gain, gain))
    best = [at for at in up if gain[at] > NO_DIFFERENCE]
    worst = [at for at in down if gain[at] < -NO_DIFFERENCE]
    ids = scores.table["query_id"]
    texts = {} if queries is None else dict(queries.frame.select("query_id", "text").iter_rows())
    return [
        Moved(
            *pair.names,
            measure=measure,
            query_id=ids[int(at)],
            text=texts.get(ids[int(at)]),
            baseline_value=float(a[at]),
            system_value=float(b[at]),
            change="better" if gain[at] > 0 else "worse",
        )
        for at in (*best, *worst)
    ]
