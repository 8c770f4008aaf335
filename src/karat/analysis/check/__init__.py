"""Check an eval set: contradictions, duplicates, leaks, unknown ids and unreachable targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import polars as pl

from karat.analysis.check.findings import KINDS, LEVELS, EvalSet, Finding, Fine, Level
from karat.analysis.check.gold import gold_checks
from karat.analysis.check.page import check_page
from karat.analysis.check.targets import (
    Detectable,
    ideal_scores,
    target_checks,
    what_it_detects,
)
from karat.analysis.check.texts import text_checks
from karat.analysis.near_duplicates import THRESHOLD
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import UsageError
from karat.evaluation.gates import Gate, check_segments, measures_of
from karat.evaluation.segments import By, check_by, with_versions
from karat.formats.field_mapping import Fields
from karat.formats.readers import File, load_inputs
from karat.measures.conventions import PROFILES, Conventions
from karat.measures.names import Measure, parse_measures
from karat.measures.scores import Scores
from karat.pages.result import AnalysisResult, envelope, utf8
from karat.pages.serialize import Record

Verdict = Literal["sound", "unsound"]


class CheckResult(AnalysisResult):
    """A check of an eval set, to be shown or written."""

    def results(self) -> dict[str, Any]:
        """Return the result without its inputs, whose digests read every file once more."""
        return {**envelope(), **self.body}

    def to_frame(self) -> pl.DataFrame:
        """Return one row per finding."""
        rows = [
            {name: finding[name] for name in ("level", "kind", "count", "what", "do")}
            for finding in self.body["findings"]
        ]
        return pl.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class Soundness(Record):
    """What a check found, worst first; ``fine`` and ``unchecked`` are lines on everything else."""

    findings: tuple[Finding, ...]
    fine: tuple[str, ...]
    unchecked: tuple[str, ...]
    sizes: Mapping[str, int]
    detectable: Detectable

    def verdict(self, *, strict: bool = False) -> Verdict:
        """Return ``unsound`` if there is an error; with ``strict`` also for a warning."""
        wrong = ("error", "warning") if strict else ("error",)
        return "unsound" if any(finding.level in wrong for finding in self.findings) else "sound"

    def count(self, level: Level) -> int:
        """Return how many kinds of findings there are of one level."""
        return sum(finding.level == level for finding in self.findings)

    def result(self, inputs: Mapping[str, Any], *, strict: bool = False) -> CheckResult:
        """Return the check with what it was made from; ``strict`` counts warnings as errors."""
        body = self.to_dict() | {"strict": strict, "verdict": self.verdict(strict=strict)}
        runs = [utf8(name) for name in body["detectable"]["runs"]]
        body["detectable"] = {**body["detectable"], "runs": runs}
        return CheckResult(body, {}, check_page, inputs)


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
    inputs = load_inputs(gold, queries, corpus, fields=mapped, duplicates=conventions.duplicates)
    mapped.check()
    columns = [By.parse(column) if isinstance(column, str) else column for column in by]
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
    found = [result for result in results if isinstance(result, Finding)]
    others = [result for result in results if not isinstance(result, Finding)]
    return Soundness(
        findings=tuple(sorted(found, key=_worst_first)),
        fine=tuple(other.what for other in others if isinstance(other, Fine)),
        unchecked=tuple(other.what for other in others if not isinstance(other, Fine)),
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
