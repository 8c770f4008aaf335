"""Did the change help: systems compared query by query on the same gold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from karat.abreast import abreast
from karat.analysis.comparison import Comparison, Pair
from karat.analysis.contenders import Contender, check_comparable, contenders_of
from karat.analysis.moved import Moved, moved_most
from karat.analysis.overlap import DEPTH, Overlap, overlap
from karat.analysis.paired import compared_pairs
from karat.analysis.reversals import reversals_in
from karat.analysis.segments import By, Segment, segments_by
from karat.analysis.verdicts import Decision, Primary, Rule, Verdict, decide, judged, settle
from karat.errors import UsageError, unknown
from karat.formats.field_mapping import Fields
from karat.formats.given import File, inputs_of, run_of
from karat.measures.conventions import PROFILES, conventions_of
from karat.measures.names import parse_measure, parse_measures
from karat.measures.scores import Scores, prepare, score
from karat.stats.corrections import benjamini_hochberg, holm
from karat.tables import Blocks, Corpus, Gold, Queries, Run

# A family too large for this many cannot have significant members by chance alone.
MOST_PERMUTATIONS = 100_000
# Deeper than any list.
WHOLE = 1 << 31

__all__ = ["Comparison", "Comparisons", "Decision", "Rule", "compare", "compare_scores"]


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
        """Whether any system is confirmed to be worse than its baseline."""
        return any(decision.regression for decision in self.decisions)

    @property
    def unmeasured(self) -> list[Comparison]:
        """The rows of the primary measure over all queries that have no value to compare."""
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


def compare(
    runs: Sequence[Run | Blocks | Scores | File],
    gold: Gold | File | None = None,
    measures: str | Sequence[str] | None = None,
    *,
    rule: Rule | None = None,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Queries | File | None = None,
    corpus: Corpus | File | None = None,
    fields: Mapping[str, str] | None = None,
    by: Iterable[str] = (),
    replicates: bool = False,
    bounds: bool = False,
    strict_bounds: bool = False,
    **decided_by: Any,
) -> Comparisons:
    """Compare systems with the first of them, measure by measure, on the same queries.

    Takes runs and their gold, or scores made before. What decides is a ``Rule``, or its parts
    by name: ``primary`` (the profile's unless named), ``margin``, ``pairs="all"`` … With
    ``replicates`` runs of the same name are repeated runs of one system. ``bounds`` adds the
    range of every difference over all judgments of what nobody judged, and ``strict_bounds``
    decides only what holds in all of it. Inputs may also be names of files or frames, with
    ``fields`` for columns of other names, as in ``karat.evaluate``.

    >>> from karat.tables import Gold, Run
    >>> gold = Gold.from_dict({f"q{i}": ["a"] for i in range(8)})
    >>> old = Run.from_dict({f"q{i}": ["x", "a"] for i in range(8)}, name="old")
    >>> new = Run.from_dict({f"q{i}": ["a", "x"] for i in range(8)}, name="new")
    >>> found = compare([old, new], gold, ["RR"])
    >>> found.verdict, found.of("new").delta, found.of("new").p
    ('better', 0.5, 0.0078125)
    """
    rule = _rule(rule, decided_by)
    if strict_bounds or bounds:
        check_boundable(rule, replicates=replicates)
    if isinstance(runs, str | Run) or len(runs) < 2:
        raise UsageError("a comparison needs at least two runs: the baseline and another")
    mapped = Fields.of(fields)
    conventions = conventions_of(profile, settings)
    duplicates = conventions.duplicates
    inputs = inputs_of(gold, queries, corpus, fields=mapped, duplicates=duplicates)
    runs = [run_of(run, fields=mapped) for run in runs]
    mapped.check()
    scores = [run for run in runs if isinstance(run, Scores)]
    if len(scores) != len(runs):
        if scores or inputs.gold is None:
            raise UsageError("compare takes runs with their gold, or scores; not a mixture")
        chosen = parse_measures(measures or PROFILES[profile].measures, conventions=conventions)
        if rule.primary is not None:
            named = parse_measure(rule.primary, conventions=conventions)
            chosen = list(dict.fromkeys([*chosen, named]))
        prepared = prepare(inputs.gold, conventions, queries=inputs.queries, corpus=inputs.corpus)
        lenient = () if measures else chosen
        asked = [run for run in runs if not isinstance(run, Scores)]
        if bounds or strict_bounds:
            from karat.analysis.bounded import compare_bounded

            kept = partial(score, gold=prepared, measures=chosen, lenient=lenient, keep=WHOLE)
            scored = list(abreast(kept, asked))
            own = [By.parse(one) for one in by]
            return compare_bounded(
                scored, prepared, rule, queries=inputs.queries, by=own, strict=strict_bounds
            )
        kept = partial(score, gold=prepared, measures=chosen, lenient=lenient, keep=DEPTH)
        scores = list(abreast(kept, asked))
    elif bounds or strict_bounds:
        raise UsageError("bounds need whole lists, which scores do not have; give the runs")
    contenders = contenders_of(scores, replicates=replicates)
    return compare_scores(
        contenders, rule, queries=inputs.queries, by=[By.parse(one) for one in by]
    )


def check_boundable(rule: Rule, *, replicates: bool) -> None:
    """Refuse to bound what has more than two runs to a difference."""
    told = "bounds need two runs and their lists"
    if replicates:
        raise UsageError(f"{told}; leave --replicates (replicates=True) out")
    if rule.pairs == "all":
        raise UsageError(f"{told}; leave --pairs all out, which decides over all pairs at once")


def _rule(rule: Rule | None, parts: Mapping[str, Any]) -> Rule:
    known = Rule.__slots__
    for name in parts:
        if name not in known:
            raise unknown("argument", name, known)
    return replace(rule or Rule(), **parts)


def compare_scores(
    contenders: Sequence[Contender],
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
    if len(contenders) < 2:
        raise UsageError("a comparison needs at least two systems: the baseline and another")
    check_comparable(contenders)
    rule, primary = settle(rule, contenders[0].measures, contenders[0].conventions)
    places = range(len(contenders))
    chosen = combinations(places, 2) if rule.pairs == "all" else ((0, at) for at in places[1:])
    pairs = [Pair(contenders[a], contenders[b]) for a, b in chosen]
    overlaps = [overlap(*pair.scores, names=pair.names) for pair in pairs]
    pairs = [
        replace(pair, identical=found is not None and found.identical and not pair.repeated)
        for pair, found in zip(pairs, overlaps, strict=True)
    ]
    rows = _all_rows(contenders, pairs, rule, queries, by, known)
    same = {pair.names: pair.identical for pair in pairs}
    alpha = contenders[0].conventions.alpha
    rows = [
        judged(
            row,
            rule,
            alpha=alpha,
            identical=same[row.baseline, row.system] and not row.wins and not row.losses,
        )
        for row in rows
    ]
    rows = [_with_reason(row, contenders) for row in rows]
    return Comparisons(
        rule,
        tuple(rows),
        decisions=tuple(decide(rows_of(pair.names, rows)) for pair in pairs),
        primary=primary,
        overlaps=tuple(found for found in overlaps if found is not None),
        moved=tuple(m for pair in pairs for m in moved_most(pair, primary.measure, queries)),
        reversals=tuple(reversals_in(rows, alpha)),
        replicates={one.name: len(one.runs) for one in contenders if len(one.runs) > 1},
    )


def _with_reason(row: Comparison, contenders: Sequence[Contender]) -> Comparison:
    """Say why a measure is not compared: lists that were cut too early, or what a run lacks."""
    names = (row.baseline, row.system)
    for one in contenders:
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
    contenders: Sequence[Contender],
    pairs: Sequence[Pair],
    rule: Rule,
    queries: Queries | None,
    by: Sequence[By],
    known: Sequence[Comparison],
) -> list[Comparison]:
    """Every comparison, overall and by segment, corrected within its family."""
    ids = contenders[0].runs[0].table["query_id"]
    everyone = Segment({}, np.ones(contenders[0].height, dtype=bool))
    rows = []
    for segments in ([everyone], *(segments_by(ids, queries, one) for one in by)):
        # All pairs of a measure share one correction, which the smallest p need not survive.
        tests = 1 if rule.pairs == "all" else len(pairs)
        family = len(segments) * tests * len(contenders[0].measures)
        permutations = _enough(contenders[0].conventions.permutations, family)
        within = [
            row
            for segment in segments
            for row in compared_pairs(
                contenders,
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
    """The rows on a baseline and a system, by their names."""
    return [row for row in rows if (row.baseline, row.system) == names]
