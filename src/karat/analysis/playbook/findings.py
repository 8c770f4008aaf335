"""The playbook: what a run's figures say is to be fixed, rule by rule, each in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from karat.analysis.playbook.calls import (
    failed_calls,
    gold_not_in_corpus,
    not_in_run,
    nothing_returned,
    rewrite_hurts,
    wrong_source,
)
from karat.analysis.playbook.case import Case, Finding, short
from karat.analysis.playbook.neighbours import neighbour_found
from karat.analysis.playbook.rules import (
    buried,
    chunks_split,
    distractors,
    newer_than_as_of,
    not_retrieved,
    ranked_too_low,
)
from karat.analysis.playbook.segments import segment_gap
from karat.analysis.playbook.slower import slower
from karat.analysis.playbook.steps import filters_take_gold, reranker_hurts
from karat.analysis.segments import CROSS, By, check_by
from karat.analysis.staged import Staged
from karat.analysis.thresholds import Thresholds
from karat.analysis.verdicts import Caution, Decision
from karat.errors import MissingInputError
from karat.tables import Queries

__all__ = ["RULES", "Finding", "Findings", "findings", "to_fix"]

Rule = Callable[[Case], Sequence[Finding]]

# In the order of a call: what goes wrong early spoils all that comes after it. What is true
# of some queries only, of the length of the list and of time comes last.
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.__name__: rule
        for rule in (
            failed_calls,
            not_in_run,
            nothing_returned,
            gold_not_in_corpus,
            newer_than_as_of,
            wrong_source,
            rewrite_hurts,
            filters_take_gold,
            not_retrieved,
            chunks_split,
            neighbour_found,
            reranker_hurts,
            ranked_too_low,
            buried,
            segment_gap,
            distractors,
            slower,
        )
    }
)


@dataclass(frozen=True, eq=False)
class Findings:
    """What the playbook found, the most important first.

    ``quiet`` names the rules that were checked and found nothing, ``unchecked`` says what each
    of the others would need.
    """

    findings: tuple[Finding, ...]
    quiet: tuple[str, ...] = ()
    unchecked: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The findings as they stand in a report."""
        return {
            "findings": [finding.document() for finding in self.findings],
            "quiet": list(self.quiet),
            "unchecked": dict(self.unchecked),
        }


def findings(
    staged: Staged,
    queries: Queries | None = None,
    *,
    lines: Thresholds | None = None,
    baseline: Staged | None = None,
    by: Sequence[By | str] = (),
) -> Findings:
    """Go through the playbook: what a run's log, its gold and its queries say is to be fixed.

    A rule whose input is missing is not checked, and says what it needs. ``by`` names the
    columns whose segments are held against the rest, every one with few values unless named.
    The lists must have been kept as deep as ``far`` for the rule that looks at documents.
    """
    columns = [By.parse(one) for one in by]
    check_by(queries, columns)
    case = Case(staged, queries, lines or Thresholds(), baseline, columns)
    found: list[Finding] = []
    quiet = []
    unchecked = {}
    for name, rule in RULES.items():
        try:
            own = rule(case)
        except MissingInputError as error:
            unchecked[name] = str(error)
            continue
        found += own
        if not own:
            quiet.append(name)
    return Findings(tuple(found), tuple(quiet), unchecked)


# More segments than these are marked in the tables alone.
_MOST_HURT = 3


def to_fix(found: Sequence[Finding], decision: Decision | None) -> list[str]:
    """What to fix next, a sentence per problem: segments that the change hurts come first.

    A segment that is hurt and also lags behind the others is one problem.
    """
    cautions = () if decision is None else decision.cautions
    hurt = [one for one in cautions if one.segment][:_MOST_HURT]
    gaps = {
        (one.figures["column"], one.figures["segment"]): one
        for one in found
        if one.rule == "segment_gap"
    }
    told, merged = [], []
    for caution in hurt:
        gap = gaps.get(_place(caution))
        told.append(_hurt(decision.system if decision else "", caution, gap))
        merged += [] if gap is None else [gap]
    return [*told, *(one.sentence for one in found if one not in merged)]


def _place(caution: Caution) -> tuple[str, str]:
    segment = caution.segment or {}
    return CROSS.join(segment), CROSS.join(segment.values())


def _hurt(system: str, caution: Caution, gap: Finding | None) -> str:
    """That a system hurts a segment, and how the segment stands to the other queries."""
    segment = caution.segment or {}
    where = " and ".join(f"{column} {value}" for column, value in segment.items())
    told = f"{system} hurts {where}: {caution.because.replace(f' in {where}', '', 1)}"
    if gap is None:
        return told
    name = next(key for key in gap.figures if key.startswith("R@"))
    own, rest = (short(gap.figures[key]) for key in (name, "rest"))
    others = f"{rest} for the other {gap.figures['n_rest']} queries"
    return f"{told}; {name} is {own} there and {others}; look at {gap.look_at}"
