"""The checks of the playbook: each looks for one problem of a run and puts it into words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from karat.analysis.failures.case import Case, in_index
from karat.analysis.latency import TOTAL, latency_of, score_calls, stages_of
from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.analysis.top_lists import ranked_of
from karat.data.tables import Queries
from karat.errors import MissingInputError
from karat.evaluation.comparison import compare_numbers
from karat.evaluation.segments import NONE, SMALL, By, Segment, segments_by
from karat.evaluation.stages import ORIGINAL, RAW, REORDERING, SIEVES, Staged, rescore_stages
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import values_of
from karat.measure.names import Measure, parse_measure
from karat.measure.ranked import Listing, Mask
from karat.pages.formatting import plural, where
from karat.stats.distributions import standard_error, t_p
from karat.stats.paired import holm

# How many examples of a kind are named.
EXAMPLES = 3
# From this share of its ceiling on, a value is as good as at it.
AT_CEILING = 0.95
# A column with more values than this is no segment column unless it is named.
MOST_VALUES = 20
# With fewer misses, or a smaller share of them, nothing is said of the chunker.
FEWEST_NEIGHBOURS, SHARE_OF_NEIGHBOURS = 5, 0.5
# Two floats that are equal on paper may differ by this much.
_SAME = 1e-9
_SHARES = {"p50": 0.5, "p90": 0.9}


class Observation(NamedTuple):
    """What the check of a rule observes: the facts in words and as figures.

    ``look_at`` is advice that fits better than the rule's own.
    """

    text: str
    figures: Mapping[str, Any]
    look_at: str = ""


def mean(values: Values) -> float:
    """Return the mean of the values that are known."""
    value = aggregates.mean(values)
    if value is None:
        raise MissingInputError("needs a query with gold that the run answers")
    return value


def at_least(value: float, limit: float) -> bool:
    """Return whether a value reaches a limit, give or take the last bits."""
    return value >= limit - _SAME


def short(value: float, limit: float | None = None) -> str:
    """Return a share as text, with enough decimals to stay on its side of a limit.

    >>> short(0.931), short(1.0), short(0.0), short(0.7962, 0.8)
    ('0.93', '1', '0', '0.796')
    """
    text = ""
    for decimals in (2, 3, 4):
        text = f"{value:.{decimals}f}"
        if limit is None or at_least(float(text), limit) == at_least(value, limit):
            break
    return f"{float(text):.0f}" if float(text) in (0.0, 1.0) else text


# Rules that look at calls: failed, missing, empty, sent elsewhere, rewritten.


def failed_calls(case: Case) -> Iterator[Observation]:
    counts, calls = case.staged.final.counts, case.staged.calls
    if not counts.failed_calls:
        return
    made, errors = counts.queries - counts.missing, Counter[str]()
    if calls is not None:
        codes = case.gold.code_of(calls["query_id"])
        made = len(np.unique(codes[codes >= 0]))
        if "error" in calls.columns:
            asked = calls["error"].filter(pl.Series(codes >= 0)).drop_nulls()
            errors = Counter(sorted(asked.cast(pl.String).to_list()))
    most = dict(errors.most_common(EXAMPLES))
    often = "most often with " if len(errors) > 1 else ""
    why = f" ({often}{next(iter(most))!r})" if most else ""
    text = f"{counts.failed_calls} of {made} {'call' if made == 1 else 'calls'} failed{why}"
    figures = {"failed": counts.failed_calls, "calls": made, "errors": most}
    yield Observation(f"{text}: no other finding counts them", figures)


def not_in_run(case: Case) -> Iterator[Observation]:
    final = case.staged.final
    ids = _query_ids(case, case.status("missing"))
    if not ids:
        return
    counts = final.counts
    with_gold = counts.queries - counts.empty_gold - counts.no_answer
    whose = "queries" if with_gold == counts.queries else "queries with gold"
    how = "count them as 0" if final.conventions.missing == "zero" else "leave them out"
    text = (
        f"{len(ids)} of {with_gold} {whose} {'is' if len(ids) == 1 else 'are'} not in the run, such"
        f" as {ids[0]!r}: the measures {how}, and no other finding counts them"
    )
    figures = {"missing": len(ids), "queries": with_gold, "examples": ids[:EXAMPLES]}
    yield Observation(text, figures)


def _query_ids(case: Case, mask: Mask) -> list[str]:
    return [case.gold.query_ids[row] for row in np.flatnonzero(mask).tolist()]


def nothing_returned(case: Case) -> Iterator[Observation]:
    ids = _query_ids(case, case.answered & (ranked_of(case.staged.final).returned == 0))
    if ids:
        text = (
            f"{len(ids)} of {case.n} answered {'query' if case.n == 1 else 'queries'} got no item"
        )
        figures = {"empty": len(ids), "n": case.n, "examples": ids[:EXAMPLES]}
        yield Observation(f"{text} at all, such as {ids[0]!r}", figures)


def gold_not_in_corpus(case: Case) -> Iterator[Observation]:
    gold, findable = case.gold, in_index(case.staged)
    if findable is None:
        raise MissingInputError("needs the corpus")
    relevant = pl.Series(gold.grade >= gold.conventions.rel)
    lost = gold.rows.filter(relevant & ~pl.Series(findable))
    if not lost.height:
        return
    queries, of = lost["code"].n_unique(), int(relevant.sum())
    names = lost["item_id"].unique().sort().head(EXAMPLES).to_list()
    text = (
        f"{lost.height} of {of} relevant judgments ({plural(queries, 'query', 'queries')}) name"
        f" what the corpus lacks, such as {names[0]!r}: no system can find it"
    )
    figures = {"lost": lost.height, "of": of, "queries": queries, "examples": names}
    yield Observation(text, figures)


def newer_than_as_of(case: Case) -> Iterator[Observation]:
    final, limit = case.staged.final, case.thresholds.fresh
    depth = case.staged.depth(final).known
    k = max(1, min(case.thresholds.near, depth, final.conventions.depth or depth))
    lists = case.top(final, k)
    listing = Listing(lists["row"].to_numpy(), lists["rank"].to_numpy(), lists)
    ranked = replace(ranked_of(final), listing=listing)
    values = values_of(parse_measure(f"Fresh@{k}"), ranked, case.gold)
    values = values[case.answered & ~np.isnan(values)]
    if not len(values):
        raise MissingInputError(
            "needs versions and as_of that can be compared: dates, or --set versions='v1<v2'"
        )
    fresh, late = mean(values), int((values < 1).sum())
    if not at_least(fresh, limit):
        whose = plural(late, "query", "queries")
        text = (
            f"Fresh@{k} {short(fresh, limit)}: the top {k} of {whose} have items newer than as_of"
        )
        yield Observation(text, {f"Fresh@{k}": fresh, "queries": late, "n": len(values)})


def wrong_source(case: Case) -> Iterator[Observation]:
    recall = Measure("R", case.thresholds.near)
    final = rescore_stages(case.staged, [recall])
    routing = routing_of(replace(case.staged, final=final), case.queries, recall)
    lacks = missing_for_routing(routing)
    if routing is None or lacks is not None:
        raise MissingInputError(lacks or "needs the source of each call")
    n, wrong = routing["n"], [query["query_id"] for query in routing["misroutes"]]
    if wrong:
        text = f"{len(wrong)} of {n} queries went to a wrong source, such as {wrong[0]!r}"
        figures = {"wrong": len(wrong), "n": n, "share": len(wrong) / n}
        yield Observation(text, {**figures, "examples": wrong[:EXAMPLES]})


def rewrite_hurts(case: Case) -> Iterator[Observation]:
    original = case.staged.beside.get(ORIGINAL)
    if original is None:
        raise MissingInputError("needs the list for the original query: stages.original in the log")
    k, logged = case.near, case.staged.logged.get(ORIGINAL, frozenset())
    here = np.array([query_id in logged for query_id in case.gold.query_ids], dtype=bool)
    before = np.where(here, case.values("R", k, original), np.nan)
    after = np.where(here, case.values("R", k), np.nan)
    delta = after - before
    old, new, p = mean(before), mean(after), case.p_value(delta)
    if new < old and p < case.alpha:
        text = f"R@{k} {short(new)} with rewritten queries but {short(old)} with the original ones"
        figures = {f"R@{k}": new, "original": old, "worse": int((delta < 0).sum()), "p": p}
        n = int((~np.isnan(delta)).sum())
        yield Observation(f"{text}: rewriting loses evidence", {**figures, "n": n})


# Rules that look at where gold stands: found or not, high or low.


def filters_take_gold(case: Case) -> Iterator[Observation]:
    sieves = [name for name in SIEVES if name in case.staged.line]
    if RAW not in case.staged.line or not sieves:
        raise MissingInputError(
            "needs lists before and after a filter: raw, and stages.filter, stages.as_of or"
            " stages.threshold in the log"
        )
    k = case.far
    before, after = case.values("R", k, case.staged.raw), case.sieved_values("R", k)
    old, new = mean(before), mean(after)
    if at_least(old - new, case.thresholds.gap):
        text = f"filters take out gold: R@{k} {short(old)} before and {short(new)} after them"
        figures = {f"R@{k}": old, "after": new, "worse": int((after < before).sum()), "n": case.n}
        either = " or ".join([*filter(None, [", ".join(sieves[:-1])]), sieves[-1]])
        yield Observation(text, figures, f"the {either}")


class _Recall(NamedTuple):
    """R over all queries, and the most that so many places can hold."""

    mean: float
    most: float

    def is_high(self, case: Case) -> bool:
        return at_least(self.mean, self.limit(case))

    def limit(self, case: Case) -> float:
        """Return from where on R is high."""
        return case.thresholds.high * self.most

    def beats(self, other: _Recall, gap: float) -> bool:
        """Return whether it lies above another by at least a gap, each as a share of its most."""
        return at_least(self.mean / self.most - other.mean / other.most, gap)


def _far_recall(case: Case) -> _Recall:
    """Return R of the gold far down the raw lists."""
    k = case.far
    return _Recall(mean(case.values("R", k, case.staged.raw)), mean(case.ceiling("R", k)))


def _doc_recall(case: Case) -> _Recall:
    """Return R of the documents that the gold is in, in the same lists."""
    (name,) = map(str, case.doc_scores.measures)
    values, ceiling = case.doc_scores.values(name), case.doc_scores.ceilings[name][0]
    return _Recall(mean(values[case.answered]), mean(ceiling[case.answered]))


def not_retrieved(case: Case) -> Iterator[Observation]:
    recall = _far_recall(case)
    if recall.is_high(case):
        return
    k, far, limit = case.far, case.thresholds.far, recall.limit(case)
    text = f"R@{k} {short(recall.mean, limit)}"
    figures: dict[str, Any] = {f"R@{k}": recall.mean, "line": limit, "n": case.n}
    look_at = "the index, the embeddings or the chunking"
    try:
        docs = _doc_recall(case)
    except MissingInputError:
        pass
    else:
        if docs.is_high(case) and docs.beats(recall, case.thresholds.gap):
            return
        look_at = "the index or the embeddings"
        text += f", and {short(docs.mean)} of the documents"
        figures["documents"] = docs.mean
    if k < far:
        text += f": much of the evidence is not in the top {k}, where the lists end, and may stand"
        yield Observation(f"{text} lower or nowhere; log lists of {far} to tell", figures, look_at)
    else:
        text += ": much of the evidence is not retrieved at all"
        yield Observation(text, figures, look_at)


def chunks_split(case: Case) -> Iterator[Observation]:
    recall = _far_recall(case)
    if recall.is_high(case):
        return
    docs, limit = _doc_recall(case), recall.limit(case)
    if docs.beats(recall, case.thresholds.gap):
        text = (
            f"R@{case.far} {short(recall.mean, limit)} but {short(docs.mean)} of the documents: the"
            " document is found and the gold chunk is not, so key facts may be split"
        )
        figures = {f"R@{case.far}": recall.mean, "documents": docs.mean, "line": limit}
        yield Observation(text, {**figures, "n": case.n})


def neighbour_found(case: Case) -> Iterator[Observation]:
    k, name = case.near, f"Hit@{case.near}"
    missed = case.values("Hit", case.miss) == 0
    by_doc = case.score_by_doc(case.kept_run(case.staged.final, k), name)
    ids = _query_ids(case, missed & (by_doc.values(name) == 1))
    misses, n = int(missed.sum()), len(ids)
    # Where much of the evidence is nowhere, the rule on whole documents says so.
    if n < FEWEST_NEIGHBOURS or n < SHARE_OF_NEIGHBOURS * misses or any(chunks_split(case)):
        return
    text = (
        f"{n} of the {misses} queries without gold in the top {case.miss} have another chunk of its"
        f" document in the top {k} ({', '.join(ids[:EXAMPLES])} …): the right document is found but"
        " the wrong chunk, so answers may be split from their context"
    )
    figures = {"misses": misses, "queries": n, "examples": ids[:EXAMPLES], "n": case.n}
    yield Observation(text, figures)


def reranker_hurts(case: Case) -> Iterator[Observation]:
    if not case.before_order:
        raise MissingInputError("needs the raw list: raw in the log")
    # A filtered list may end early; how deep one can look is decided by the raw list.
    first, last = case.before_order[0], case.before_order[-1]
    k = case.near
    case.reached(case.staged.line[first], first, k)
    before, after = case.sieved_values("nDCG", k), case.values("nDCG", k)
    # A list that lost items and kept its order says nothing of a reranker.
    part = case.answered & (case.moved | (before == after))
    before, after = np.where(part, before, np.nan), np.where(part, after, np.nan)
    if not case.moved.any():
        return
    old, new, p = mean(before), mean(after), case.p_value(after - before)
    if new >= old or p >= case.alpha:
        return
    what, look_at = "reranking", ""
    logged = [name for name in REORDERING if name in case.staged.line]
    if logged and not case.names_reranker:
        what = " and ".join(logged)
        look_at = f"{what}: how much relevance is given away for variety"
    text = (
        f"nDCG@{k} {short(new, old)} in the final list but {short(old)} in the one before ({last}):"
        f" {what} makes the order worse"
    )
    figures = {f"nDCG@{k}": new, last: old, "worse": int((after < before).sum())}
    yield Observation(text, {**figures, "p": p, "n": int(part.sum())}, look_at)


def ranked_too_low(case: Case) -> Iterator[Observation]:
    near, far, lines = case.near, case.far, case.thresholds
    recall = _far_recall(case)
    # What a filter takes out, and what has no room in the top, is no fault of the order.
    deep, top = case.sieved_values("R", far), case.values("R", near)
    fitting = np.minimum(deep, case.ceiling("R", near))
    found, shown, room = mean(deep), mean(top), mean(fitting)
    if not recall.is_high(case):
        # Lists that end above the far cut-off do not show what stands below their end.
        case.reached(case.staged.raw, "raw", lines.far)
        return
    if not at_least(room - shown, lines.gap):
        return
    of = "" if at_least(room, found) else f" of the {short(room)} that would fit"
    left = " after the filters" if any(name in case.staged.line for name in SIEVES) else ""
    text = f"R@{far} {short(found)}{left} but R@{near} {short(shown)}{of}"
    figures = {f"R@{far}": found, f"R@{near}": shown, "fitting": room, "n": case.n}
    order = "the reranker" if case.has_reranker else "the scoring, a reranker"
    text = f"{text}: the evidence is found and ranked too low"
    yield Observation(text, figures, f"{order}, or a larger k")


def buried(case: Case) -> Iterator[Observation]:
    k, lines = case.miss, case.thresholds
    recall = mean(case.values("R", k))
    if not at_least(recall, lines.high * mean(case.ceiling("R", k))):
        return
    means = {f"{name}@{k}": mean(case.values(name, k)) for name in ("RR", "nDCG")}
    low = [
        f"{name} {short(value, lines.buried)}"
        for name, value in means.items()
        if not at_least(value, lines.buried)
    ]
    if low:
        text = f"R@{k} {short(recall)} but {' and '.join(low)}: the evidence is there and buried"
        yield Observation(text, {f"R@{k}": recall, **means, "n": case.n})


def distractors(case: Case) -> Iterator[Observation]:
    k, low = case.near, case.thresholds.low_precision
    recall, precision = mean(case.values("R", k)), case.values("P", k)
    value, most = mean(precision), mean(case.ceiling("P", k))
    high = case.thresholds.high * mean(case.ceiling("R", k))
    if not at_least(recall, high) or at_least(value, low):
        return
    # A short list with nothing but gold has a low P@k and no distractor.
    filled = np.minimum(ranked_of(case.staged.final).returned, k)
    clean = mean(precision * k / np.where(filled > 0, filled, np.nan))
    if at_least(clean, low):
        return
    why, look_at = _why_distractors(case, recall, value, most)
    text = f"R@{k} {short(recall)} but P@{k} {_of_at_most(value, most, low)}{why}"
    figures = {f"R@{k}": recall, f"P@{k}": value, "ceiling": most, "clean": clean, "n": case.n}
    yield Observation(text, figures, look_at)


def _of_at_most(value: float, most: float, limit: float) -> str:
    """Return P and its ceiling with enough decimals to differ."""
    text, best = short(value, limit), short(most)
    if at_least(value, most):
        return f"{text}, the most there can be"
    for decimals in (3, 4, 5):
        if text != best:
            break
        text, best = f"{value:.{decimals}f}", f"{most:.{decimals}f}"
        best = best[:4] + best[4:].rstrip("0")
    return f"{text} of at most {best}"


def _why_distractors(case: Case, recall: float, value: float, most: float) -> tuple[str, str]:
    """Return why P is low, as far as the gold itself keeps it so, and special advice."""
    fewer = "a smaller k or a score threshold"
    stands = "the evidence stands among distractors"
    if at_least(most, case.thresholds.low_precision):
        return f": {stands}", ""
    half = max(1, case.near // 2)
    nearer = mean(case.values("R", half))
    enough = at_least(nearer, AT_CEILING * recall)
    # At its ceiling, P cannot be raised by any other order.
    if at_least(value, AT_CEILING * most):
        text = f" on this gold: no order raises it, only fewer places would; R@{half} is "
        if enough:
            return f"{text}{short(nearer)}", "a smaller k"
        return f"{text}only {short(nearer)}", "the scoring or the reranking, then a smaller k"
    if enough:
        return f" on this gold: R@{half} is {short(nearer)}, so fewer places would do", fewer
    return f" on this gold: {stands}", f"the scoring or the reranking, then {fewer}"


# Segments whose R is below that of the other queries.


class _SegmentGap(NamedTuple):
    """A segment with enough queries inside and outside, and how far it lies below the rest."""

    by: By
    segment: Segment
    inside: Mask
    rest: Mask
    gap: float


def segment_gap(case: Case) -> Iterator[Observation]:
    recall = case.values("R", case.near)
    # As a share of the ceiling: a segment with much gold per query is no worse for that.
    reached = recall / case.ceiling("R", case.near)
    tested = []
    for by, segment in _segments(case):
        inside, rest = segment.mask & ~np.isnan(reached), ~segment.mask & ~np.isnan(reached)
        if min(inside.sum(), rest.sum()) >= SMALL:
            gap = mean(reached[rest]) - mean(reached[inside])
            tested.append(_SegmentGap(by, segment, inside, rest, gap))
    if not tested:
        raise MissingInputError(f"needs a segment of {SMALL} queries with as many outside of it")
    wide = [at for at, one in enumerate(tested) if at_least(one.gap, case.thresholds.segment_gap)]
    if not wide:
        return
    # The segments of one column are one family of tests.
    ps: dict[int, float | None] = {}
    for column in dict.fromkeys(str(one.by) for one in tested):
        family = [at for at, one in enumerate(tested) if str(one.by) == column]
        ps |= dict(
            zip(family, holm([_welch(case, reached, tested[at]) for at in family]), strict=True)
        )
    for at in sorted(wide, key=lambda at: (-tested[at].gap, at)):
        p = ps[at]
        if p is not None and p < case.alpha:
            yield _gap_observation(case.near, recall, tested[at], p)


def _gap_observation(k: int, recall: Values, tested: _SegmentGap, p: float) -> Observation:
    inside, rest = mean(recall[tested.inside]), mean(recall[tested.rest])
    n, n_rest = int(tested.inside.sum()), int(tested.rest.sum())
    chance = "< 0.001" if p < 0.001 else f"= {p:.2g}"
    text = (
        f"R@{k} {short(inside)} where {where(tested.segment.where)} ({n} queries) but"
        f" {short(rest)} for the other {n_rest}, p {chance}"
    )
    names = {"column": str(tested.by), "segment": tested.segment.name}
    figures = {f"R@{k}": inside, "rest": rest, "n": n, "n_rest": n_rest, "p": p}
    return Observation(text, {**names, **figures})


def _segments(case: Case) -> list[tuple[By, Segment]]:
    queries = case.queries
    if queries is None:
        raise MissingInputError("needs queries with attributes, such as language or topic")
    chosen = list(case.by) or [
        By((name,)) for name in queries.segments if _has_few_values(queries, name)
    ]
    if not chosen:
        raise MissingInputError(
            f"needs an attribute of the queries with 2 to {MOST_VALUES} values; the queries have"
            f" {', '.join(queries.segments) or 'none'}"
        )
    ids = case.staged.final.table["query_id"]
    return [(by, segment) for by in chosen for segment in segments_by(ids, queries, by)]


def _has_few_values(queries: Queries, column: str) -> bool:
    """Return whether a column has few enough values to make segments of it unasked."""
    seen: set[str] = set()
    for value in queries.frame[column].to_list():
        several = value if isinstance(value, list) and value else [value]
        seen.update(NONE if part is None else str(part) for part in several)
        if len(seen) > MOST_VALUES:
            return False
    return len(seen) > 1


def _welch(case: Case, values: Values, tested: _SegmentGap) -> float:
    """Return the p of Welch's t test; queries of one conversation may depend on each other."""
    groups = case.staged.final.groups
    (a, df_a), (b, df_b) = (
        standard_error(values[mask], None if groups is None else groups[mask])
        for mask in (tested.inside, tested.rest)
    )
    error = math.hypot(a, b)
    if math.isnan(error) or error == 0:
        return t_p(tested.gap, error, 1)
    return t_p(tested.gap, error, error**4 / (a**4 / df_a + b**4 / df_b))


# Calls that became slower.


class _Rise(NamedTuple):
    """A time in milliseconds that was and is; None where the stage was not there."""

    name: str
    old: float | None
    new: float

    @property
    def by(self) -> float:
        return self.new - (self.old or 0.0)

    def figures(self) -> dict[str, float | None]:
        return {"baseline": self.old, "system": self.new}

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.new:.3g} ms, which the baseline does not log"
        # Three digits, or all digits of a larger number.
        old, new = (f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}" for ms in (self.old, self.new))
        more = f" (+{100 * (self.new / self.old - 1):.0f} %)" if self.old else ""
        return f"from {old} to {new} ms{more}"


def slower(case: Case) -> Iterator[Observation]:
    base = case.baseline
    if base is None:
        raise MissingInputError("needs a baseline run")
    if base.gold.query_ids != case.gold.query_ids:
        raise MissingInputError("needs a baseline that was asked the same queries")
    old, new = _times(base), _times(case.staged)
    known = ~np.isnan(old[TOTAL]) & ~np.isnan(new[TOTAL])
    if not known.any():
        raise MissingInputError("needs queries that both logs have a latency_ms for")
    rises = _total_rises(case, old[TOTAL], new[TOTAL], known)
    if not rises:
        return
    figures: dict[str, Any] = {
        f"latency.{TOTAL}.{rise.name}": {**rise.figures(), "p": p} for rise, p in rises
    }
    text = " and ".join(f"latency.{TOTAL}.{rise.name} {rise}" for rise, _ in rises)
    text = f"{text}: calls are slower than the baseline's"
    share = _SHARES[rises[0][0].name]
    stages = [stage for stage in new if stage != TOTAL]
    grown = [_rise(stage, old.get(stage), new[stage], known, share) for stage in stages]
    most = max((rise for rise in grown if rise), key=lambda rise: rise.by, default=None)
    slowest = "each stage"
    if most is not None and most.by > 0:
        slowest = most.name
        text += f", most of all {most.name}, {most}"
        figures["stage"] = {"name": most.name, **most.figures()}
    depths = [staged.final.meta.get("k_raw") for staged in (base, case.staged)]
    if depths[1] is not None:
        moved = depths[0] is not None and depths[0] != depths[1]
        text += (
            f"; k_raw went from {depths[0]} to {depths[1]}" if moved else f"; k_raw is {depths[1]}"
        )
        figures["k_raw"] = {"baseline": depths[0], "system": depths[1]}
    look_at = f"the profile of {slowest}, a lower k_raw, a cache of frequent queries"
    yield Observation(text, {**figures, "n": int(known.sum())}, look_at)


def _times(staged: Staged) -> dict[str, Values]:
    """Return the time of each stage, query by query."""
    try:
        measures = {stage: latency_of(stage, "mean") for stage in stages_of(staged)}
    except MissingInputError:
        raise MissingInputError("needs latency_ms in both logs") from None
    scores = score_calls(staged, list(measures.values()))
    return {stage: scores.values(str(measure)) for stage, measure in measures.items()}


def _total_rises(case: Case, old: Values, new: Values, known: Mask) -> list[tuple[_Rise, float]]:
    """Return the percentiles of the total that rose by enough, each with its corrected p."""
    conventions, groups = case.staged.final.conventions, case.staged.final.groups
    groups = None if groups is None else groups[known]
    tests = [
        compare_numbers(latency_of(TOTAL, name), old[known], new[known], conventions, groups)
        for name in _SHARES
    ]
    ps = holm([None if test is None else test.p for test in tests])
    rises = []
    for (name, share), test, p in zip(_SHARES.items(), tests, ps, strict=True):
        rise = _rise(name, old, new, known, share)
        if rise is None or test is None or p is None or p >= case.alpha:
            continue
        sure = test.ci is None or test.ci[0] > 0
        if sure and rise.by > 0 and at_least(rise.by, case.thresholds.slower * (rise.old or 0.0)):
            rises.append((rise, p))
    return rises


def _rise(name: str, old: Values | None, new: Values, known: Mask, share: float) -> _Rise | None:
    """Return a percentile of both over the queries that both answered."""
    after = aggregates.percentile(new[known], share)
    before = None if old is None else aggregates.percentile(old[known], share)
    return None if after is None else _Rise(name, before, after)
