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
from karat.analysis.verdicts import Rule, Verdict, judged
from karat.errors import UsageError, unknown
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


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be said of one system against its baseline, all measures taken together.

    ``bounds`` says what unjudged items could change about it, where they can.
    """

    baseline: str
    system: str
    measure: str
    verdict: Verdict
    regression: bool
    because: str
    bounds: str | None = None

    def document(self) -> dict[str, Any]:
        """The decision as it stands in a report."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Everything a comparison found; ``rows`` holds one entry a pair, measure and segment."""

    rule: Rule
    rows: tuple[Comparison, ...]
    decisions: tuple[Decision, ...]
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

    def of(self, system: str, measure: str | None = None) -> Comparison:
        """The comparison of one system over all queries, by the primary measure unless named."""
        wanted = measure or self.rule.primary
        for row in self.rows:
            if row.system == system and row.measure == wanted and row.segment is None:
                return row
        known = [f"{row.system}, {row.measure}" for row in self.rows if row.segment is None]
        raise unknown("comparison", f"{system}, {wanted}", known)


def compare(
    runs: Sequence[Run | Blocks | Scores],
    gold: Gold | None = None,
    measures: str | Sequence[str] | None = None,
    *,
    rule: Rule | None = None,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    by: Iterable[str] = (),
    replicates: bool = False,
    bounds: bool = False,
    strict_bounds: bool = False,
    **decided_by: Any,
) -> Comparisons:
    """Compare systems with the first of them, measure by measure, on the same queries.

    Takes runs and their gold, or scores made before. What decides is a ``Rule``, or its parts
    by name: ``primary`` (the first measure unless named), ``margin``, ``pairs="all"`` … With
    ``replicates`` runs of the same name are repeated runs of one system. ``bounds`` adds the
    range of every difference over all judgments of what nobody judged, and ``strict_bounds``
    decides only what holds in all of it.

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
    scores = [run for run in runs if isinstance(run, Scores)]
    if len(scores) != len(runs):
        if scores or gold is None:
            raise UsageError("compare takes runs with their gold, or scores; not a mixture")
        conventions = conventions_of(profile, settings)
        chosen = parse_measures(measures or PROFILES[profile].measures, rel=conventions.rel)
        prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
        lenient = () if measures else chosen
        asked = [run for run in runs if not isinstance(run, Scores)]
        if bounds or strict_bounds:
            from karat.analysis.bounded import compare_bounded

            kept = partial(score, gold=prepared, measures=chosen, lenient=lenient, keep=WHOLE)
            scored = list(abreast(kept, asked))
            own = [By.parse(one) for one in by]
            return compare_bounded(
                scored, prepared, rule, queries=queries, by=own, strict=strict_bounds
            )
        kept = partial(score, gold=prepared, measures=chosen, lenient=lenient, keep=DEPTH)
        scores = list(abreast(kept, asked))
    elif bounds or strict_bounds:
        raise UsageError("bounds need whole lists, which scores do not have; give the runs")
    contenders = contenders_of(scores, replicates=replicates)
    return compare_scores(contenders, rule, queries=queries, by=[By.parse(one) for one in by])


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
    rule = replace(rule, primary=_primary(rule, contenders[0]))
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
    alpha = 1 - contenders[0].conventions.ci
    rows = [
        judged(
            row,
            rule,
            alpha=alpha,
            identical=same[row.baseline, row.system] and not row.wins and not row.losses,
        )
        for row in rows
    ]
    return Comparisons(
        rule,
        tuple(rows),
        decisions=tuple(decision(pair.names, rows) for pair in pairs),
        overlaps=tuple(found for found in overlaps if found is not None),
        moved=tuple(m for pair in pairs for m in moved_most(pair, str(rule.primary), queries)),
        reversals=tuple(reversals_in(rows)),
        replicates={one.name: len(one.runs) for one in contenders if len(one.runs) > 1},
    )


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


def _primary(rule: Rule, baseline: Contender) -> str:
    """The measure that decides: the one declared, else the first that has a better direction."""
    names = [str(measure) for measure in baseline.measures]
    if rule.primary is None:
        directed = [str(m) for m in baseline.measures if m.definition.better != "none"]
        if not directed:
            raise UsageError("no measure here is better high or low; name another one to decide")
        return directed[0]
    wanted = str(parse_measure(rule.primary, rel=baseline.conventions.rel))
    if wanted not in names:
        raise unknown("primary measure", wanted, names)
    return wanted


def _adjusted(rows: list[Comparison], rule: Rule) -> list[Comparison]:
    """Corrected for how many were tested: the primary measure is one family, the rest another."""
    correct = benjamini_hochberg if rule.correction == "bh" else holm
    adjusted = dict(enumerate(rows))
    for primary in (True, False):
        family = [at for at, row in enumerate(rows) if row.primary == primary]
        measures = len({rows[at].measure for at in family})
        for at, p in zip(family, correct([rows[at].p for at in family]), strict=True):
            adjusted[at] = replace(rows[at], p_adjusted=_corrected(rows[at], p, measures))
    return list(adjusted.values())


def _corrected(row: Comparison, p: float | None, measures: int) -> float | None:
    """Where all pairs were tested at once, their largest difference has corrected for the pairs.

    That knows nothing of repeated runs, for which the plain correction counts as well.
    """
    if row.p_adjusted is None or p is None:
        return p
    of_pairs = min(1.0, row.p_adjusted * measures)
    return of_pairs if row.between_runs is None else max(of_pairs, p)


def decision(names: tuple[str, str], rows: Sequence[Comparison]) -> Decision:
    """What the rows say of a baseline and a system, by their names."""
    own = [row for row in rows if (row.baseline, row.system) == names and row.segment is None]
    primary = next(row for row in own if row.primary)
    verdict = primary.verdict or "unclear"
    lost = [row for row in own if row.regression and not row.primary]
    because = primary.because
    if lost and verdict != "worse":
        because += f"; but {lost[0].because}"
    regression = primary.regression or bool(lost)
    return Decision(
        *names, primary.measure, "worse" if regression else verdict, regression, because
    )
