"""Is an eval set sound: all checks of its gold, texts and targets, and what it can detect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from karat.analysis.findings import KINDS, LEVELS, EvalSet, Finding, Fine, Level
from karat.analysis.gates import Gate, check_segments, measures_of
from karat.analysis.near_duplicates import THRESHOLD
from karat.analysis.segments import By, check_by
from karat.analysis.soundness_gold import gold_checks
from karat.analysis.soundness_targets import (
    Detectable,
    ideal_scores,
    target_checks,
    what_it_detects,
)
from karat.analysis.soundness_texts import text_checks
from karat.analysis.versions import with_versions
from karat.errors import UsageError
from karat.formats.field_mapping import Fields
from karat.formats.given import File, inputs_of
from karat.measures.conventions import PROFILES, Conventions
from karat.measures.names import Measure, parse_measures
from karat.measures.scores import Scores
from karat.tables import Corpus, Gold, Queries

Verdict = Literal["sound", "unsound"]


@dataclass(frozen=True, eq=False)
class Soundness:
    """What a check found, worst first; ``fine`` and ``unchecked`` are lines on everything else."""

    findings: tuple[Finding, ...]
    fine: tuple[str, ...]
    unchecked: tuple[str, ...]
    sizes: Mapping[str, int]
    detectable: Detectable

    def verdict(self, *, strict: bool = False) -> Verdict:
        """Unsound if there is an error, or if ``strict`` a warning."""
        wrong = ("error", "warning") if strict else ("error",)
        return "unsound" if any(one.level in wrong for one in self.findings) else "sound"

    def count(self, level: Level) -> int:
        """How many kinds of findings there are of one level."""
        return sum(one.level == level for one in self.findings)

    def document(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "sizes": dict(self.sizes),
            "findings": [one.document() for one in self.findings],
            "fine": list(self.fine),
            "unchecked": list(self.unchecked),
            "detectable": self.detectable.document(),
        }


def check_set(
    gold: Gold | File,
    *,
    queries: Queries | File | None = None,
    corpus: Corpus | File | None = None,
    gates: Sequence[Gate] = (),
    by: Sequence[str | By] = (),
    measures: str | Sequence[str | Measure] | None = None,
    conventions: Conventions | None = None,
    scores: Sequence[Scores] | None = None,
    spread: float | None = None,
    threshold: float = THRESHOLD,
    fields: Mapping[str, str] | None = None,
) -> Soundness:
    """Check an eval set; the more is given, the more is checked.

    ``scores`` of two runs tell how far systems differ from query to query, and so what
    difference the set can detect; without them a ``spread`` is assumed. Inputs may also be
    names of files or frames, with ``fields`` for columns of other names, as in ``karat.evaluate``.

    >>> gold = Gold.from_dict({"q1": {"d1": 1}, "q2": {"d2": 1}})
    >>> queries = Queries.from_dict({"q1": "opening hours", "q2": "Opening  hours"})
    >>> found = check_set(gold, queries=queries)
    >>> found.verdict(), found.findings[0].kind
    ('unsound', 'same_text_different_gold')
    """
    conventions = conventions or Conventions()
    mapped = Fields.of(fields)
    inputs = inputs_of(gold, queries, corpus, fields=mapped, duplicates=conventions.duplicates)
    mapped.check()
    columns = [By.parse(one) if isinstance(one, str) else one for one in by]
    named = PROFILES[conventions.profile].measures if measures is None else measures
    chosen = [*parse_measures(named, conventions=conventions), *measures_of(gates)]
    two = _two(scores)
    if spread is not None and not (math.isfinite(spread) and spread > 0):
        raise UsageError(f"spread is {spread!r}; it is a number above 0, such as 0.35")
    grouping = [*columns, *(gate.by for gate in gates if gate.by is not None)]
    # Segments by version need an attribute that is not in the file; texts are checked as given.
    attributes = with_versions(inputs.queries, inputs.gold, inputs.corpus, grouping)
    subject = EvalSet(*inputs, conventions, attributes)
    check_by(attributes, columns)
    check_segments(gates, attributes, subject.prepared.query_ids)
    ideal = ideal_scores(subject, list(dict.fromkeys(chosen)))
    results = list(
        chain(
            gold_checks(subject),
            text_checks(subject, threshold),
            target_checks(subject, ideal, gates=gates, by=columns),
        )
    )
    found = [one for one in results if isinstance(one, Finding)]
    others = [one for one in results if not isinstance(one, Finding)]
    return Soundness(
        findings=tuple(sorted(found, key=_worst_first)),
        fine=tuple(one.what for one in others if isinstance(one, Fine)),
        unchecked=tuple(one.what for one in others if not isinstance(one, Fine)),
        sizes=_sizes(subject),
        detectable=what_it_detects(subject, two, spread),
    )


def _two(scores: Sequence[Scores] | None) -> tuple[Scores, Scores] | None:
    if not scores:
        return None
    if len(scores) != 2:
        raise UsageError(f"a spread is taken from two runs, not from {len(scores)}; give two")
    return scores[0], scores[1]


def _worst_first(finding: Finding) -> tuple[int, int]:
    return LEVELS.index(finding.level), list(KINDS).index(finding.kind)


def _sizes(subject: EvalSet) -> dict[str, int]:
    sizes = {
        "queries": subject.n,
        "queries_with_gold": len(subject.answers),
        "no_answer": int(subject.prepared.no_answer.sum()),
        "judgments": subject.judged.height,
        "relevant": subject.relevant.height,
    }
    if subject.corpus is not None:
        frame = subject.corpus.frame
        sizes |= {"items": frame.height, "docs": frame["doc_id"].n_unique()}
    if subject.prepared.group is not None:
        sizes["groups"] = len(set(subject.prepared.group.tolist()))
    return sizes
