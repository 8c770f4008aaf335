"""Check an eval set: contradictions, duplicates, leaks, unknown ids and unreachable targets.

``check`` is the front. ``gold`` and ``texts`` check what the set holds; this module checks
ceilings, unreachable gates, segments and detectable differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.text import Text

from karat.analysis import inputs_of
from karat.analysis.check.gold import (
    KINDS,
    CheckedSet,
    Fine,
    Issue,
    Results,
    Unchecked,
    gold_checks,
)
from karat.analysis.check.texts import text_checks
from karat.analysis.diagnose.near_duplicates import THRESHOLD
from karat.data.tables import Run
from karat.errors import UsageError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.gates import Gate, GateResult, check_segments, judge, measures_of
from karat.evaluation.segments import SMALL, By, check_by, segments_by, with_versions
from karat.measure.names import Measure
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import figure, label, percent, plural, utf8
from karat.pages.page import Page, Section, Sentence
from karat.pages.result import ENVELOPE, AnalysisResult
from karat.pages.serialize import plain
from karat.stats.distributions import NORMAL, standard_error
from karat.stats.power import Power

__all__ = ["KINDS", "Check", "Issue", "check"]

# The spread of differences between two systems that is assumed until two runs show it; a guess,
# and printed as one.
SPREAD = 0.35
POWER = 0.8
DIFFERENCES = (0.02, 0.05)
_WON_BY_RETURNING_ALL = {"R", "Hit", "All", "WR", "Coverage"}


@dataclass(frozen=True, eq=False, repr=False)
class Check(AnalysisResult):
    """A checked eval set: its issues, worst first, and what difference it can detect."""

    findings: tuple[Issue, ...] = ()

    def verdict(self, *, strict: bool = False) -> Literal["sound", "unsound"]:
        """Return ``unsound`` if there is an error; with ``strict`` also for a warning."""
        return _verdict(self.findings, strict)

    def results(self) -> dict[str, Any]:
        """Return the result without its inputs, whose digests read every file once more."""
        return {**ENVELOPE, **self.body}

    def to_frame(self) -> pl.DataFrame:
        """Return one row per issue."""
        columns = ("level", "kind", "count", "what", "do")
        rows = [{name: issue[name] for name in columns} for issue in self.body["findings"]]
        return pl.DataFrame(rows)


def check(
    evaluation: Evaluation,
    *runs: Any,
    gates: Sequence[Gate] | None = None,
    by: Sequence[str | By] | None = None,
    spread: float | None = None,
    threshold: float = THRESHOLD,
    strict: bool = False,
) -> Check:
    """Check an eval set; more inputs in the evaluation allow more checks.

    Two ``runs``, or their scores, show how far systems differ from query to query, and so what
    difference the set can detect; without them a ``spread`` is assumed. ``gates`` and ``by`` are
    those of the evaluation unless given. Texts with this share of words in common (``threshold``)
    are near-duplicates. ``strict`` makes the set unsound for warnings too.

    >>> queries = {"q1": "opening hours", "q2": "Opening  hours"}
    >>> result = check(Evaluation({"q1": ["d1"], "q2": ["d2"]}, queries=queries))
    >>> result.verdict(), result.findings[0].kind
    ('unsound', 'same_text_different_gold')
    """
    if len(runs) not in (0, 2):
        raise UsageError(f"a spread needs two runs, not {len(runs)}; give two")
    if spread is not None and not (math.isfinite(spread) and spread > 0):
        raise UsageError(f"spread is {spread!r}; it must be a number above 0, such as 0.35")
    gates = evaluation.gates if gates is None else gates
    columns = [By.parse(column) for column in (evaluation.by if by is None else by)]
    gold, queries, corpus = evaluation.gold, evaluation.queries, evaluation.corpus
    if queries is not None and queries.source is gold.source and queries.segments == ["version"]:
        # Queries without texts were made of the gold, to have segments by its versions.
        queries = queries if any(queries.frame["text"]) else None
    grouping = [*columns, *(gate.by for gate in gates if gate.by is not None)]
    # Segments by version need an attribute that is not in the file; texts are checked as given.
    attributes = with_versions(queries, gold, corpus, grouping)
    subject = CheckedSet(gold, queries, corpus, evaluation.prepared, attributes)
    check_by(attributes, columns)
    check_segments(gates, attributes, subject.prepared.query_ids)
    scores = [run if isinstance(run, Scores) else evaluation.score(run, keep=0) for run in runs]
    ideal = _ideal_scores(subject, list(dict.fromkeys([*evaluation.measures, *measures_of(gates)])))
    results = list(
        chain(
            gold_checks(subject),
            text_checks(subject, threshold),
            _target_checks(subject, ideal, gates=gates, by=columns),
        )
    )
    kinds = list(KINDS)
    issues = [result for result in results if isinstance(result, Issue)]
    issues.sort(key=lambda issue: kinds.index(issue.kind))
    body = {
        "findings": [issue.to_dict() for issue in issues],
        "fine": [result.what for result in results if isinstance(result, Fine)],
        "unchecked": [result.what for result in results if isinstance(result, Unchecked)],
        "sizes": _sizes(subject),
        "detectable": _detectable(subject, scores, spread),
        "strict": strict,
        "verdict": _verdict(issues, strict),
    }
    sources = inputs_of(evaluation, [run.source for run in scores])
    sources |= {"queries": queries and queries.source, "gates": evaluation.gates_file}
    return Check(body, {}, _check_page, sources, tuple(issues))


def _verdict(issues: Sequence[Issue], strict: bool) -> Literal["sound", "unsound"]:
    wrong = ("error", "warning") if strict else ("error",)
    return "unsound" if any(issue.level in wrong for issue in issues) else "sound"


def _sizes(subject: CheckedSet) -> dict[str, int]:
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


# Ceilings, gates and segments.


def _ideal_scores(subject: CheckedSet, measures: Sequence[Measure]) -> Scores:
    """Return the scores of the best ranking that the gold allows, where a measure has a best."""
    # A run without hits has the ceilings of all queries, as long as none of them is left out.
    conventions = replace(subject.conventions, missing="zero", order=None)
    gold = replace(subject.prepared, conventions=conventions)
    scores = score(Run.from_dict({}), gold, measures, lenient=measures, derived=True)
    ceilings = scores.ceilings.items()
    columns = {name: values for name, (values, _) in ceilings}
    evidence = {name: counts for name, (_, counts) in ceilings}
    return replace(
        scores,
        system="the ideal ranking",
        columns={**scores.columns, **columns},
        evidence=dict(scores.evidence) | evidence,
        tied={},
    )


def _target_checks(
    subject: CheckedSet, ideal: Scores, *, gates: Sequence[Gate], by: Sequence[By]
) -> Results:
    """Check ceilings, cut-offs, gates and segments."""
    yield from _ceilings(ideal)
    yield from _cutoffs(subject, ideal.measures)
    results = judge(gates, ideal, subject.attributes, system=ideal.system).results if gates else ()
    yield from _gates(ideal, results)
    sizes: dict[tuple[tuple[str, str], ...], int] = {}
    for column in dict.fromkeys(gate.by for gate in gates if gate.by is not None):
        sizes |= _segment_sizes(subject, column)
    segments = [tuple(result.segment.items()) for result in results if result.segment is not None]
    if gated := {segment: sizes.get(segment, 0) for segment in segments}:
        name = plural(len(gated), "gated segment")
        yield _small_segments("small_gated_segment", gated, name)
    for column in by:
        sizes = _segment_sizes(subject, column)
        name = plural(len(sizes), "segment")
        facts = {"segments": name, "column": str(column)}
        yield _small_segments("small_segment", sizes, f"{name} by {column}", **facts)


def _ceilings(ideal: Scores) -> Results:
    quick = replace(ideal, conventions=replace(ideal.conventions, interval="none"))
    reach: list[dict[str, Any]] = [
        {"measure": str(measure), "ceiling": summary.ceiling}
        for measure, summary in zip(quick.measures, quick.summaries.values(), strict=True)
        if measure.definition.better == "higher" and measure.definition.bounded
        if str(measure) in ideal.ceilings and summary.ceiling is not None
    ]
    low = [example for example in reach if example["ceiling"] < 1 - 1e-12]
    if low:
        yield Issue("low_ceiling", len(low), low)
    elif reach:
        yield Fine(f"{plural(len(reach), 'measure')}, all with a ceiling of 1")


def _cutoffs(subject: CheckedSet, measures: Sequence[Measure]) -> Results:
    """Yield cut-offs at which a system that returns everything is perfect."""
    if subject.corpus is None or subject.conventions.level == "span":
        return
    by_doc = subject.conventions.level == "doc"
    size = subject.corpus.frame["doc_id" if by_doc else "item_id"].n_unique()
    deep = [
        {"measure": str(measure), "corpus": size}
        for measure in measures
        if measure.name in _WON_BY_RETURNING_ALL
        and isinstance(measure.k, int)
        and measure.k >= size
    ]
    if deep:
        items = plural(size, "document" if by_doc else "item")
        yield Issue("cutoff_beyond_corpus", len(deep), deep, size=items)


def _gates(ideal: Scores, results: Sequence[GateResult]) -> Results:
    """Yield gates that not even the ideal ranking passes."""
    issues: dict[str, list[dict[str, Any]]] = {"unreachable_target": [], "gate_needs_more": []}
    checked_gates = 0
    for result in results:
        if result.unreachable or (result.measure in ideal.ceilings and result.min is not None):
            checked_gates += 1
            example: dict[str, Any] = {"measure": result.measure}
            example |= {} if result.segment is None else {"segment": dict(result.segment)}
            example |= {"min": result.min} if result.max is None else {"max": result.max}
            example |= {"ceiling": result.ceiling, "n": result.n, "because": result.because}
            if result.unreachable:
                issues["unreachable_target"].append(example)
            elif result.verdict != "pass":
                issues["gate_needs_more"].append(example)
    for kind, examples in issues.items():
        if examples:
            yield Issue(kind, len(examples), examples)
    if checked_gates and not any(issues.values()):
        yield Fine(f"{plural(checked_gates, 'gate')}, all passed by the ideal ranking")


def _segment_sizes(subject: CheckedSet, by: By) -> dict[tuple[tuple[str, str], ...], int]:
    """Return how many queries with relevant gold each segment holds."""
    segments = segments_by(_with_gold(subject), subject.attributes, by)
    return {tuple(segment.where.items()): int(segment.mask.sum()) for segment in segments}


def _small_segments(
    kind: str, sizes: Mapping[tuple[tuple[str, str], ...], int], name: str, **facts: str
) -> Issue | Fine:
    small = [{"segment": dict(segment), "queries": n} for segment, n in sizes.items() if n < SMALL]
    if small:
        return Issue(kind, len(small), small, small=SMALL, **facts)
    return Fine(f"{name}, each with {SMALL} queries or more")


def _with_gold(subject: CheckedSet) -> pl.Series:
    return subject.relevant["query_id"].unique(maintain_order=True)


# The difference between two systems that the set can detect.


def _detectable(
    subject: CheckedSet, scores: Sequence[Scores], spread: float | None
) -> dict[str, Any]:
    """Return the smallest true difference between two systems that the set shows in 80 % of cases.

    ``sd`` is the spread of the difference from query to query: taken from two ``runs`` by
    ``measure``, or ``assumed``, also where runs were given that differ alike on every query.
    ``needed`` says how many queries other differences need, ``because`` why there is no difference.
    """
    confidence = subject.conventions.ci
    groups = scores[0].groups if scores else subject.prepared.group
    measure, basis = None, "assumed"
    if scores:
        measure, delta, known = _differences(*scores)
        # Two runs with the same difference on every query show no spread.
        if np.ptp(delta) > 1e-12 or (len(delta) == 1 and delta.any()):
            basis = "runs"
    if basis == "assumed":
        n = len(_with_gold(subject))
        sd = SPREAD if spread is None else spread
        # Without two runs, differences are assumed to be normal.
        places = (np.arange(n) + 0.5) / max(n, 1)
        normal = np.array([NORMAL.inv_cdf(place) for place in places.tolist()])
        assumed = normal / normal.std() * sd if n > 1 else normal
        power = Power(assumed, confidence=confidence, power=POWER)
    else:
        n = len(delta)
        known_groups = None if groups is None else groups[known]
        # The part of the error that one query adds, with or without groups.
        sd = standard_error(delta, known_groups)[0] * math.sqrt(n)
        power = Power(delta, known_groups, confidence=confidence, power=POWER)
    detectable = {
        "basis": basis,
        "n": n,
        "sd": sd,
        "difference": power.detectable(),
        "needed": {f"{size:g}": power.queries_needed(size) for size in DIFFERENCES},
        "confidence": confidence,
        "power": POWER,
        "measure": measure,
        "runs": [utf8(run.system) for run in scores],
        "groups": None if groups is None else len(np.unique(groups)),
        "because": power.why_unknown,
    }
    return {name: plain(value) for name, value in detectable.items()}


def _differences(
    first: Scores, second: Scores
) -> tuple[str, NDArray[np.float64], NDArray[np.bool_]]:
    """Return the first measure that both have, the differences, and which queries have one."""
    if first.query_ids != second.query_ids:
        raise UsageError("the two runs were scored on different queries; score both on the same")
    for measure in first.measures:
        if measure in second.measures:
            delta = second.values(str(measure)) - first.values(str(measure))
            has_value = ~np.isnan(delta)
            if has_value.any():
                return str(measure), delta[has_value], has_value
    raise UsageError("the two runs share no measure with a value for any query")


# The page: the verdict, the issues, what was fine, and what the set can detect.

_LONGEST_TEXT = 60
_SIZES = {
    "queries": ("query", "queries"),
    "queries_with_gold": ("with gold", "with gold"),
    "no_answer": ("without an answer", "without an answer"),
    "judgments": ("judgment", "judgments"),
    "relevant": ("relevant", "relevant"),
    "items": ("item", "items"),
    "docs": ("document", "documents"),
    "groups": ("group", "groups"),
}


def _check_page(results: Mapping[str, Any]) -> Page:
    blocks = [_issue_section(issue) for issue in results["findings"]]
    for title, lines in (("fine", results["fine"]), ("not checked", results["unchecked"])):
        if lines:
            blocks.append(Section(title, lines=[f"  {line}" for line in lines]))
    levels = [issue["level"] for issue in results["findings"]]
    counts = [plural(levels.count(level), level) for level in dict.fromkeys(levels)]
    strict = ", warnings count as errors" if results["strict"] else ""
    verdict = results["verdict"]
    headline = f"{verdict.upper()}  {', '.join(counts) or 'nothing found'}{strict}"
    sizes = [plural(n, *_SIZES[name]) for name, n in results["sizes"].items() if n]
    return Page(
        "Is the eval set sound?",
        [Sentence(headline, "bad" if verdict == "unsound" else "good")],
        blocks,
        [" · ".join(sizes), *_detectable_lines(results["detectable"])],
    )


def _issue_section(issue: Mapping[str, Any]) -> Section:
    lines = [f"  {issue['what']}", f"  {issue['do']}"]
    lines += [f"    {' · '.join(_example_parts(example))}" for example in issue["examples"]]
    more = issue["count"] - len(issue["examples"])
    if more > 0 and issue["examples"]:
        lines.append(f"    and {more:,} more")
    return Section(f"{issue['level']}  {issue['kind']}", lines=lines)


def _example_parts(example: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of an example after their names, without empty ones."""
    for name, value in example.items():
        if name == "because":
            yield label(value)
        elif value not in ([], {}, None, ""):
            yield f"{name.replace('_', ' ')} {_shown(name, value)}"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if value == round(value, 2) else figure(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{label(str(key))}: {_shown(name, part)}" for key, part in value.items())
    if isinstance(value, list):
        return " | ".join(_shown(name, part) for part in value) or "nothing"
    if name in ("text", "texts"):
        text = Text(" ".join(label(value).split()))
        text.truncate(_LONGEST_TEXT, overflow="ellipsis")
        return f"“{text.plain}”"
    return label(str(value))


def _detectable_lines(detectable: Mapping[str, Any]) -> Iterator[str]:
    names = " and ".join(label(name) for name in detectable["runs"])
    measure, queries = detectable["measure"], plural(detectable["n"], "query", "queries")
    spread = f"spread {detectable['sd']:g} ASSUMED; "
    if detectable["basis"] == "runs":
        spread = f"spread {figure(detectable['sd'])} in {measure} between {names}"
    elif names:
        spread += f"{names} do not differ from query to query in {measure}, so they give no spread"
    else:
        spread += "--run A --run B would measure it"
    if detectable["difference"] is None:
        yield f"detects: unknown: {detectable['because'] or queries} ({spread})"
    else:
        difference, chance = figure(detectable["difference"]), percent(detectable["power"])
        line = f"detects a difference of {difference} or more in {chance} of cases"
        yield f"{line} ({queries}; {spread})"
    needed = [
        f"{difference} needs {plural(n, 'query', 'queries')}"
        for difference, n in detectable["needed"].items()
        if n is not None
    ]
    if needed:
        yield f"a difference of {', of '.join(needed)}"
    if detectable["groups"] is not None and detectable["basis"] == "assumed":
        yield "queries come in groups, which the assumed spread ignores: expect to need more"
