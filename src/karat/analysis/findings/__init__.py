"""The playbook: rules that say in a sentence what to fix next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from karat.analysis.failures.case import Case
from karat.analysis.findings.calls import (
    failed_calls,
    gold_not_in_corpus,
    not_in_run,
    nothing_returned,
    rewrite_hurts,
    slower,
    wrong_source,
)
from karat.analysis.findings.rules import (
    Finding,
    buried,
    chunks_split,
    distractors,
    filters_take_gold,
    neighbour_found,
    newer_than_as_of,
    not_retrieved,
    ranked_too_low,
    reranker_hurts,
    segment_gap,
    short,
)
from karat.data.tables import Queries
from karat.errors import MissingInputError
from karat.evaluation.segments import CROSS, By, check_by
from karat.evaluation.stages import Staged
from karat.evaluation.thresholds import Thresholds
from karat.evaluation.verdict import Caution, Decision
from karat.pages.formatting import label
from karat.pages.page import Section
from karat.pages.serialize import Record

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
class Findings(Record):
    """What the playbook found, the most important first.

    ``quiet`` names the rules that were checked and found nothing, ``unchecked`` says what each
    of the others would need.
    """

    findings: tuple[Finding, ...]
    quiet: tuple[str, ...] = ()
    unchecked: Mapping[str, str] = field(default_factory=dict)


def findings(
    staged: Staged,
    queries: Queries | None = None,
    *,
    thresholds: Thresholds | None = None,
    baseline: Staged | None = None,
    by: Sequence[By | str] = (),
) -> Findings:
    """Go through the playbook: what a run's log, its gold and its queries say is to be fixed.

    A rule whose input is missing is not checked, and says what it needs. ``by`` names the
    columns whose segments are compared with the rest, every one with few values unless named.
    The lists must have been kept as deep as ``far`` for the rule that looks at documents.
    """
    columns = [By.parse(column) for column in by]
    check_by(queries, columns)
    case = Case(staged, queries, thresholds or Thresholds(), baseline, columns)
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
    """Return what to fix next, a sentence per problem: segments that the change hurts come first.

    A segment that is hurt and also scores below the others is one problem.
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
    """Return the sentence that a system hurts a segment, with the gap to the other queries."""
    segment = caution.segment or {}
    where = " and ".join(f"{column} {value}" for column, value in segment.items())
    text = f"{system} hurts {where}: {caution.because.replace(f' in {where}', '', 1)}"
    if gap is None:
        return text
    name = next(key for key in gap.figures if key.startswith("R@"))
    own, rest = (short(gap.figures[key]) for key in (name, "rest"))
    others = f"{rest} for the other {gap.figures['n_rest']} queries"
    return f"{text}; {name} is {own} there and {others}; look at {gap.look_at}"


def findings_sections(found: Mapping[str, Any]) -> list[Section]:
    """Return the sections of ``Findings``: what to fix, what was fine, what was not checked."""
    lines = [
        f"{place}. {label(finding['sentence'])} ({finding['rule']})"
        for place, finding in enumerate(found["findings"], 1)
    ]
    nothing = "None of the rules that could be checked found anything."
    sections = [Section("What to fix next", lines=lines or [nothing])]
    if found["quiet"]:
        sections.append(Section("Checked, nothing found", lines=[", ".join(found["quiet"])]))
    if found["unchecked"]:
        rows = [[rule, label(reason)] for rule, reason in found["unchecked"].items()]
        sections.append(Section("Not checked", [["rule", "because"], *rows]))
    return sections
