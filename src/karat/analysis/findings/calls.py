"""Rules of the playbook that look at calls: failed, missing, empty, sent elsewhere, rewritten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures.case import NO_LISTS, Case, Cut, in_index, known_to_corpus
from karat.analysis.findings.rules import Finding, at_least, mean, short
from karat.analysis.latency import TOTAL, latency_of, score_calls, stages_of
from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.errors import MissingInputError
from karat.evaluation.paired_tests import compare_numbers
from karat.evaluation.stages import ORIGINAL, Staged, rescore_stages
from karat.measures import aggregates
from karat.measures.aggregates import Values
from karat.measures.names import Measure
from karat.measures.ranked import Mask
from karat.stats.paired import holm

# So many examples of a kind are named.
EXAMPLES = 3


def failed_calls(case: Case) -> list[Finding]:
    """Find calls that failed."""
    failed = case.staged.final.counts.failed_calls
    if not failed:
        return []
    made = _calls_made(case.staged)
    errors = _errors(case.staged)
    often = "most often with " if len(errors) > 1 else ""
    why = f" ({often}{next(iter(errors))!r})" if errors else ""
    look_at = "the errors in the log"
    sentence = (
        f"{failed} of {made} {'call' if made == 1 else 'calls'} failed{why}: no other finding"
        f" counts them; look at {look_at}"
    )
    some = dict(list(errors.items())[:EXAMPLES])
    figures = {"failed": failed, "calls": made, "errors": some}
    return [Finding("failed_calls", sentence, figures, look_at)]


def _calls_made(staged: Staged) -> int:
    """Return how many of the queries were asked at all."""
    counts = staged.final.counts
    if staged.calls is None:
        return counts.queries - counts.missing
    called = np.unique(staged.gold.code_of(staged.calls["query_id"]))
    return int((called >= 0).sum())


def _errors(staged: Staged) -> dict[str, int]:
    """Return what failed calls say, the most frequent first."""
    if staged.calls is None or "error" not in staged.calls.columns:
        return {}
    asked = pl.Series(staged.gold.code_of(staged.calls["query_id"]) >= 0)
    texts = staged.calls["error"].filter(asked).drop_nulls().cast(pl.String).to_list()
    counts = {text: texts.count(text) for text in sorted(set(texts))}
    return dict(sorted(counts.items(), key=lambda one: -one[1]))


def not_in_run(case: Case) -> list[Finding]:
    """Find queries with gold that the run has no answer to, not even an empty one."""
    final = case.staged.final
    absent = (final.status == "missing").to_numpy()
    missing = int(absent.sum())
    if not missing:
        return []
    counts = final.counts
    asked = counts.queries - counts.empty_gold - counts.no_answer
    whose = "queries" if asked == counts.queries else "queries with gold"
    names = [case.staged.gold.query_ids[at] for at in np.flatnonzero(absent)[:EXAMPLES]]
    how = "count them as 0" if final.conventions.missing == "zero" else "leave them out"
    look_at = "whether the run is complete"
    sentence = (
        f"{missing} of {asked} {whose} {'is' if missing == 1 else 'are'} not in the run, such as"
        f" {names[0]!r}: the measures {how}, and no other finding counts them; look at {look_at}"
    )
    figures = {"missing": missing, "queries": asked, "examples": names}
    return [Finding("not_in_run", sentence, figures, look_at)]


def nothing_returned(case: Case) -> list[Finding]:
    """Find calls for queries with gold that did not fail and returned no item."""
    trace = case.staged.final.trace
    if trace is None:
        raise MissingInputError(NO_LISTS)
    empty = case.answered & (trace.ranked.returned == 0)
    if not empty.any():
        return []
    names = [case.staged.gold.query_ids[at] for at in np.flatnonzero(empty)[:EXAMPLES]]
    count, look_at = int(empty.sum()), "filters, thresholds, and the index"
    sentence = (
        f"{count} of {case.n} answered {'query' if case.n == 1 else 'queries'} got no item at all,"
        f" such as {names[0]!r}; look at {look_at}"
    )
    return [
        Finding(
            "nothing_returned",
            sentence,
            {"empty": count, "n": case.n, "examples": names},
            look_at,
        )
    ]


def gold_not_in_corpus(case: Case) -> list[Finding]:
    """Find relevant gold that the corpus lacks and no list holds."""
    gold = case.staged.gold
    known = _can_be_found(case.staged)
    if known is None:
        raise MissingInputError("needs the corpus")
    counts = pl.col("grade") >= gold.conventions.rel
    relevant = gold.rows.filter(counts)
    lost = gold.rows.filter(counts & ~pl.Series(known))
    if not lost.height:
        return []
    hurt = lost["code"].n_unique()
    names = lost["item_id"].unique().sort().head(EXAMPLES).to_list()
    look_at = "the ids in the gold, or what was left out of the corpus"
    sentence = (
        f"{lost.height} of {relevant.height} relevant judgments ({hurt}"
        f" {'query' if hurt == 1 else 'queries'}) name what the corpus lacks, such as"
        f" {names[0]!r}: no system can find it; look at {look_at}"
    )
    figures = {"lost": lost.height, "of": relevant.height, "queries": hurt, "examples": names}
    return [Finding("gold_not_in_corpus", sentence, figures, look_at)]


def _can_be_found(staged: Staged) -> Mask | None:
    """Return which judgments the corpus has or any list holds; None without a corpus."""
    every = (staged.final, *staged.line.values(), *staged.beside.values())
    if any(scores.trace is None for scores in every):
        return known_to_corpus(staged.gold)
    return in_index(staged)


def wrong_source(case: Case) -> list[Finding]:
    """Find queries that were sent to a wrong source."""
    if case.staged.final.trace is None:
        raise MissingInputError(NO_LISTS)
    recall = Measure("R", case.thresholds.near)
    final = rescore_stages(case.staged, [recall])
    found = routing_of(replace(case.staged, final=final), case.queries, recall)
    lacks = missing_for_routing(found)
    if found is None or lacks is not None:
        raise MissingInputError(lacks or "needs the source of each call")
    both, wrong = found.judged, [routed.query_id for routed in found.judged if not routed.covered]
    if not wrong:
        return []
    look_at = "the router's rules, and the recall of each source"
    share = len(wrong) / len(both)
    sentence = (
        f"{len(wrong)} of {len(both)} queries went to a wrong source, such as {wrong[0]!r};"
        f" look at {look_at}"
    )
    figures = {"wrong": len(wrong), "n": len(both), "share": share, "examples": wrong[:EXAMPLES]}
    return [Finding("wrong_source", sentence, figures, look_at)]


def rewrite_hurts(case: Case) -> list[Finding]:
    """Find out whether rewritten queries find less gold than the original ones."""
    original = case.staged.beside.get(ORIGINAL)
    if original is None:
        raise MissingInputError("needs the list for the original query: stages.original in the log")
    near = case.near
    logged = case.staged.logged.get(ORIGINAL, frozenset())
    here = np.array([query_id in logged for query_id in case.staged.gold.query_ids], dtype=bool)
    before = np.where(here, case.values("R", Cut(original, near.k)), np.nan)
    after = np.where(here, case.values("R", near), np.nan)
    delta = after - before
    old, new, p = mean(before), mean(after), case.p_of(delta)
    if new >= old or p >= case.alpha:
        return []
    look_at = "the rewriter: what it drops or adds where the original finds more"
    k = near.k
    sentence = (
        f"R@{k} {short(new)} with rewritten queries but {short(old)} with the original ones:"
        f" rewriting loses evidence; look at {look_at}"
    )
    figures = {f"R@{k}": new, "original": old, "worse": int((delta < 0).sum()), "p": p}
    n = int((~np.isnan(delta)).sum())
    return [Finding("rewrite_hurts", sentence, {**figures, "n": n}, look_at)]


_SHARES = {"p50": 0.5, "p90": 0.9}


@dataclass(frozen=True, slots=True)
class _Rise:
    """A time in milliseconds that was and is; None where the stage was not there."""

    name: str
    old: float | None
    new: float

    @property
    def by(self) -> float:
        return self.new - (self.old or 0.0)

    def to_dict(self) -> dict[str, float | None]:
        return {"baseline": self.old, "system": self.new}


def slower(case: Case) -> list[Finding]:
    """Find out whether calls take longer than the baseline's, by more than chance."""
    base = case.baseline
    if base is None:
        raise MissingInputError("needs a baseline run")
    if base.gold.query_ids != case.staged.gold.query_ids:
        raise MissingInputError("needs a baseline that was asked the same queries")
    old, new = _times(base), _times(case.staged)
    known = ~np.isnan(old[TOTAL]) & ~np.isnan(new[TOTAL])
    if not known.any():
        raise MissingInputError("needs queries that both logs have a latency_ms for")
    rose = _rises(case, old[TOTAL], new[TOTAL], known)
    if not rose:
        return []
    share = _SHARES[rose[0][0].name]
    stages = {name: own for name, own in new.items() if name != TOTAL}
    grown = [_rise(name, old.get(name), stages[name], known, share) for name in stages]
    most = max((rise for rise in grown if rise is not None), key=lambda one: one.by, default=None)
    return [_slower(case, rose, most, int(known.sum()))]


def _times(staged: Staged) -> dict[str, Values]:
    """Return the time of each stage, query by query."""
    try:
        measures = {stage: latency_of(stage, "mean") for stage in stages_of(staged)}
    except MissingInputError:
        raise MissingInputError("needs latency_ms in both logs") from None
    scores = score_calls(staged, list(measures.values()))
    return {stage: scores.values(str(measure)) for stage, measure in measures.items()}


def _rises(case: Case, old: Values, new: Values, known: Mask) -> list[tuple[_Rise, float]]:
    """The percentiles of the total that rose by enough, each with the p of a test of both."""
    conventions, groups = case.staged.final.conventions, case.staged.final.groups
    own = None if groups is None else groups[known]
    tests = [
        compare_numbers(latency_of(TOTAL, name), old[known], new[known], conventions, own)
        for name in _SHARES
    ]
    ps = holm([None if test is None else test.p for test in tests])
    rose = []
    for (name, share), test, p in zip(_SHARES.items(), tests, ps, strict=True):
        rise = _rise(name, old, new, known, share)
        if rise is None or test is None or p is None or p >= case.alpha:
            continue
        sure = test.ci is None or test.ci[0] > 0
        if sure and rise.by > 0 and at_least(rise.by, case.thresholds.slower * (rise.old or 0.0)):
            rose.append((rise, p))
    return rose


def _rise(name: str, old: Values | None, new: Values, known: Mask, share: float) -> _Rise | None:
    """Return a percentile of both over the queries that both answered."""
    after = aggregates.percentile(new[known], share)
    before = None if old is None else aggregates.percentile(old[known], share)
    return None if after is None else _Rise(name, before, after)


def _slower(case: Case, rose: list[tuple[_Rise, float]], most: _Rise | None, n: int) -> Finding:
    figures: dict[str, Any] = {
        f"latency.{TOTAL}.{rise.name}": {**rise.to_dict(), "p": p} for rise, p in rose
    }
    text = " and ".join(f"latency.{TOTAL}.{rise.name} {_grew(rise)}" for rise, _ in rose)
    text = f"{text}: calls are slower than the baseline's"
    if most is not None and most.by > 0:
        text += f", most of all {most.name}, {_grew(most)}"
        figures["stage"] = {"name": most.name, **most.to_dict()}
    depth = _depths(case)
    if depth:
        text += f"; {depth.pop('told')}"
        figures["k_raw"] = depth
    where = most.name if most is not None and most.by > 0 else "each stage"
    look_at = f"the profile of {where}, a lower k_raw, a cache of frequent queries"
    return Finding("slower", f"{text}; look at {look_at}", {**figures, "n": n}, look_at)


def _grew(rise: _Rise) -> str:
    if rise.old is None:
        return f"{rise.new:.3g} ms, which the baseline does not log"
    more = f" (+{100 * (rise.new / rise.old - 1):.0f} %)" if rise.old else ""
    return f"from {_ms(rise.old)} to {_ms(rise.new)} ms{more}"


def _ms(value: float) -> str:
    """Return milliseconds with three digits, or all digits of a larger number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _depths(case: Case) -> dict[str, Any]:
    """Return how many items each of the two retrieves, as far as the logs tell."""
    old, new = (
        one.final.meta.get("k_raw") if one is not None else None
        for one in (case.baseline, case.staged)
    )
    if new is None:
        return {}
    moved = old is not None and old != new
    text = f"k_raw went from {old} to {new}" if moved else f"k_raw is {new}"
    return {"told": text, "baseline": old, "system": new}
