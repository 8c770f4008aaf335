"""The playbook: rules that say in a sentence what to fix next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from karat.analysis.failures.case import Case
from karat.analysis.findings import rules
from karat.analysis.findings.rules import Observation, short
from karat.data.tables import Queries
from karat.errors import MissingInputError
from karat.evaluation.segments import CROSS, By, check_by
from karat.evaluation.stages import Staged, Thresholds
from karat.evaluation.verdict import Caution, Decision
from karat.pages.formatting import label
from karat.pages.page import Section
from karat.pages.serialize import Record

# In the order of a call: what goes wrong early spoils all that comes after it. What is true
# of some queries only, of the length of the list and of time comes last. With each check stands
# where to look if it finds something.
_PLAYBOOK: Mapping[Callable[[Case], Iterator[Observation]], str] = {
    rules.failed_calls: "the errors in the log",
    rules.not_in_run: "whether the run is complete",
    rules.nothing_returned: "filters, thresholds, and the index",
    rules.gold_not_in_corpus: "the ids in the gold, or what was left out of the corpus",
    rules.newer_than_as_of: "the time filter, or the labels, which may be outdated",
    rules.wrong_source: "the router's rules, and the recall of each source",
    rules.rewrite_hurts: "the rewriter: what it drops or adds where the original finds more",
    rules.filters_take_gold: "the filters",
    rules.not_retrieved: "the index, the embeddings or the chunking",
    rules.chunks_split: "the chunker",
    rules.neighbour_found: "the chunker",
    rules.reranker_hurts: "the reranker: its model, its input, its language",
    rules.ranked_too_low: "the scoring, a reranker, or a larger k",
    rules.buried: "the scoring, a reranker over the top N, or query expansion",
    rules.segment_gap: "normalisation, tokenisation, stop words and synonyms there",
    rules.distractors: "a cross-encoder, a lexical constraint or more diversity",
    rules.slower: "the profile of each stage",
}
RULES = {check.__name__: (check, look_at) for check, look_at in _PLAYBOOK.items()}

# More segments than these are marked in the tables alone.
_MOST_HURT = 3


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """What a rule found: one sentence, its figures as data, and where to look next."""

    rule: str
    sentence: str
    figures: Mapping[str, Any]
    look_at: str


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
    """Go through the playbook: what a run's log, its gold and its queries show is to be fixed.

    A rule whose input is missing is not checked, and says what it needs. ``by`` names the
    columns whose segments are compared with the rest, every one with few values unless named.
    The lists must have been kept as deep as ``far`` for the rule that looks at documents.
    """
    columns = [By.parse(column) for column in by]
    check_by(queries, columns)
    case = Case(staged, queries, thresholds or Thresholds(), baseline, columns)
    found: list[Finding] = []
    quiet, unchecked = [], {}
    for name, (check, advice) in RULES.items():
        try:
            observations = list(check(case))
        except MissingInputError as error:
            unchecked[name] = str(error)
            continue
        for text, figures, special in observations:
            look_at = special or advice
            found.append(Finding(name, f"{text}; look at {look_at}", figures, look_at))
        if not observations:
            quiet.append(name)
    return Findings(tuple(found), tuple(quiet), unchecked)


def to_fix(found: Sequence[Finding], decision: Decision | None) -> list[str]:
    """Return what to fix next, a sentence per problem: segments that the change hurts come first.

    A segment that is hurt and also scores below the others is one problem.
    """
    cautions = () if decision is None else decision.cautions
    hurt = [caution for caution in cautions if caution.segment][:_MOST_HURT]
    gaps = {
        (finding.figures["column"], finding.figures["segment"]): finding
        for finding in found
        if finding.rule == "segment_gap"
    }
    sentences, merged = [], []
    for caution in hurt:
        segment = caution.segment or {}
        gap = gaps.get((CROSS.join(segment), CROSS.join(segment.values())))
        sentences.append(_hurt(decision.system if decision else "", caution, gap))
        merged += [] if gap is None else [gap]
    return [*sentences, *(finding.sentence for finding in found if finding not in merged)]


def _hurt(system: str, caution: Caution, gap: Finding | None) -> str:
    """Return the sentence that a system hurts a segment, with the gap to the other queries."""
    segment = " and ".join(f"{column} {value}" for column, value in (caution.segment or {}).items())
    text = f"{system} hurts {segment}: {caution.because.replace(f' in {segment}', '', 1)}"
    if gap is None:
        return text
    name = next(key for key in gap.figures if key.startswith("R@"))
    inside, rest = (short(gap.figures[key]) for key in (name, "rest"))
    others = f"{rest} for the other {gap.figures['n_rest']} queries"
    return f"{text}; {name} is {inside} there and {others}; look at {gap.look_at}"


def findings_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections of ``Findings``: what to fix, what was fine, what was not checked."""
    lines = [
        f"{place}. {label(finding['sentence'])} ({finding['rule']})"
        for place, finding in enumerate(document["findings"], 1)
    ]
    nothing = "None of the rules that could be checked found anything."
    sections = [Section("What to fix next", lines=lines or [nothing])]
    if document["quiet"]:
        sections.append(Section("Checked, nothing found", lines=[", ".join(document["quiet"])]))
    if document["unchecked"]:
        rows = [[rule, label(reason)] for rule, reason in document["unchecked"].items()]
        sections.append(Section("Not checked", [["rule", "because"], *rows]))
    return sections
