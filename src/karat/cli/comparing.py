"""From a request to a report that compares: the systems scored alike, then against each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from karat.analysis.compare import Comparisons, check_boundable, compare_scores
from karat.analysis.contenders import Contender, contenders_of
from karat.analysis.overlap import DEPTH
from karat.analysis.verdicts import Rule
from karat.cli.saving import with_baseline
from karat.cli.scored import Scored
from karat.cli.scoring import Ready, Request, score
from karat.errors import UsageError
from karat.measures.names import Measure, parse_measure
from karat.measures.scores import Scores
from karat.reports.document import Report


def rule_of(
    primary: str | None,
    margin: str,
    margin_kind: str,
    margin_on: str,
    pairs: str,
    correction: str,
    detect: str | None,
    no_regression: str | None = None,
) -> Rule:
    """The rule that the options spell out, refused where they do not."""
    words: dict[str, Any] = {
        "margin_kind": margin_kind,
        "margin_on": margin_on,
        "pairs": pairs,
        "correction": correction,
        "no_regression": no_regression,
    }
    if primary is not None:
        parse_measure(primary)
    wanted = None if detect is None else _number("--detect", detect)
    return Rule(primary=primary, margin=_number("--margin", margin), detect=wanted, **words)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} is {text!r}; it is a number, such as 0.02") from None


def compare_runs(
    request: Request,
    rule: Rule,
    *,
    replicates: bool = False,
    baseline: str | None = None,
    store: str | None = None,
    given: Ready | None = None,
    in_full: bool = False,
) -> Report:
    """Score every run, compare, and hold all but the baseline against the gates."""
    if request.strict_bounds:
        check_boundable(rule, replicates=replicates)
        if baseline is not None:
            raise UsageError("--strict-bounds: a stored baseline has no lists; give its run")
    if len(request.runs) + (baseline is not None) < 2:
        raise UsageError("compare needs two runs at least: the baseline first, then the others")
    whole = next((form.name for form in request.forms if form.lists != "none"), None)
    if baseline is not None and whole is not None:
        raise UsageError(
            f"output {whole}: needs every list, and a stored baseline has none; give its run"
        )
    scored = score(with_primary(request, rule), keep=DEPTH, given=given, in_full=in_full)
    systems = scored.scores
    if baseline is not None:
        systems = _after_baseline(baseline, scored, rule, store)
    scored_all = replace(scored, scores=systems)
    report = scored_all.report()
    names = [system.name for system in report.systems]
    # What only a gate or an output needs is not compared with the baseline.
    asked = [_without(one, scored.given.not_compared) for one in systems]
    contenders = contenders_of(asked, replicates=replicates, names=names)
    found = compare_scores(contenders, rule, queries=scored.given.queries, by=scored.given.by)
    if _can_be_bounded(found, contenders, scored):
        found = _with_bounds(found, contenders, scored)
    if scored.given.correcting is not None and not replicates:
        by_name = dict(zip(names, systems, strict=True))
        found = scored.given.correcting.compared(found, by_name)
    first = {name for name, one in zip(names, asked, strict=True) if one in contenders[0].runs}
    report = replace(scored.gated(report, skip=first), comparisons=found)
    return _with_findings(report, scored_all, (contenders[0].name, contenders[-1].name))


def _with_findings(report: Report, scored: Scored, names: tuple[str, str]) -> Report:
    """The report with what to fix next, in which segments that the last system hurts come first."""
    if scored.found is None or report.comparisons is None:
        return report
    from karat.analysis.playbook.findings import to_fix

    decisions = report.comparisons.decisions
    last = next((one for one in decisions if (one.baseline, one.system) == names), None)
    return replace(report, findings=tuple(to_fix(scored.found, last)))


def _can_be_bounded(found: Comparisons, contenders: list[Contender], scored: Scored) -> bool:
    """Whether every system has one run and its lists."""
    single = all(len(one.runs) == 1 for one in contenders)
    whole = len(scored.open) == len(contenders) and None not in scored.open
    return single and whole and found.rule.pairs == "baseline"


def _with_bounds(found: Comparisons, contenders: list[Contender], scored: Scored) -> Comparisons:
    from karat.analysis.bounded import with_bounds

    opened = [one for one in scored.open if one is not None]
    return with_bounds(
        found,
        contenders,
        opened,
        scored.given.prepared,
        queries=scored.given.queries,
        by=scored.given.by,
        strict=scored.strict_bounds,
    )


def _without(scores: Scores, left_out: frozenset[Measure]) -> Scores:
    kept = tuple(measure for measure in scores.measures if measure not in left_out)
    return replace(scores, measures=kept)


def _after_baseline(ref: str, scored: Scored, rule: Rule, store: str | None) -> list[Scores]:
    """The stored evaluation, then the runs, by the measures that they share."""
    return with_baseline(
        ref,
        scored.scores,
        store=store,
        gold=scored.given.gold.source,
        queries=None if scored.given.queries is None else scored.given.queries.source,
        corpus=None if scored.given.corpus is None else scored.given.corpus.source,
        primary=rule.primary,
    )


def with_primary(request: Request, rule: Rule) -> Request:
    """The primary measure is scored even if it was not asked for by itself."""
    return replace(request, primary=rule.primary)
