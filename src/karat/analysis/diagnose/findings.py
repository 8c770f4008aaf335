"""The playbook: each rule looks for one problem of a run and says what to fix next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from karat.analysis.diagnose.latency import (
    TOTAL,
    growth_of,
    rise_of,
    rise_text,
    times_of,
    total_rises,
)
from karat.analysis.failures.case import Case, in_index
from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.data.tables import Queries
from karat.errors import MissingInputError
from karat.evaluation.segments import CROSS, SMALL, By, check_by, segments_by
from karat.evaluation.stages import (
    ORIGINAL,
    RAW,
    REORDERING,
    SIEVES,
    Staged,
    Thresholds,
    rescore_stages,
)
from karat.evaluation.top_lists import ranked_of
from karat.evaluation.verdict import Decision
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import values_of
from karat.measure.names import Measure, parse_measure
from karat.measure.ranked import Listing, Mask
from karat.pages.formatting import label, p_in_words, plural, where
from karat.pages.page import Section, table
from karat.pages.serialize import Record
from karat.stats.distributions import standard_error, t_p
from karat.stats.paired import holm

# How many examples of a kind are named.
EXAMPLES = 3
# From this share of its ceiling on, a value is as good as at it.
AT_CEILING = 0.95
# A column with more values than this is no segment column unless it is named.
MOST_VALUES = 20
# With fewer misses, or a smaller share of them, the chunker is not mentioned.
FEWEST_NEIGHBOURS, SHARE_OF_NEIGHBOURS = 5, 0.5
# More hurt segments than these are marked in the tables alone.
_MOST_HURT = 3
# Rounding: floats that differ by less are equal.
_SAME = 1e-9


class Observation(NamedTuple):
    """A rule's observation: the facts in words and as figures.

    ``look_at`` is advice that fits better than the rule's own.
    """

    text: str
    figures: Mapping[str, Any]
    look_at: str = ""


Check = Callable[[Case], Iterator[Observation]]
# Each rule, with advice. They are in the order of a call, since early problems
# spoil all later stages. Rules on some queries only, on the length of
# the list and on time come last.
RULES: dict[str, tuple[Check, str]] = {}


def rule(look_at: str) -> Callable[[Check], Check]:
    """Add a check to the playbook under its own name."""

    def add(check: Check) -> Check:
        RULES[check.__name__] = (check, look_at)
        return check

    return add


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """A problem: one sentence, its figures as data, and where to look next."""

    rule: str
    sentence: str
    figures: Mapping[str, Any]
    look_at: str


@dataclass(frozen=True, eq=False)
class Findings(Record):
    """The playbook's findings, the most important first.

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
    """Apply the playbook to a run's log, its gold and its queries.

    A rule whose input is missing is not checked, and says what it needs. ``by`` names the
    columns whose segments are compared with the rest, every one with few values unless named.
    The lists must have been kept as deep as ``far`` for the rule that looks at documents.
    """
    columns = [By.parse(column) for column in by]
    check_by(queries, columns)
    case = Case(staged, queries, thresholds or Thresholds(), baseline, columns)
    problems: list[Finding] = []
    quiet, unchecked = [], {}
    for name, (check, advice) in RULES.items():
        try:
            observations = list(check(case))
        except MissingInputError as error:
            unchecked[name] = str(error)
            continue
        for text, figures, special in observations:
            look_at = special or advice
            problems.append(Finding(name, f"{text}; look at {look_at}", figures, look_at))
        if not observations:
            quiet.append(name)
    return Findings(tuple(problems), tuple(quiet), unchecked)


def to_fix(problems: Sequence[Finding], decision: Decision | None) -> list[str]:
    """Return what to fix next, a sentence per problem: segments that the change hurts come first.

    A segment that is hurt and also scores below the others is one problem.
    """
    if decision is None:
        return [finding.sentence for finding in problems]
    gaps = {
        (finding.figures["column"], finding.figures["segment"]): finding
        for finding in problems
        if finding.rule == "segment_gap"
    }
    sentences, merged = [], []
    hurt = [(row.segment, row.because) for row in decision.cautions if row.segment]
    for values, reason in hurt[:_MOST_HURT]:
        segment = " and ".join(f"{column} {value}" for column, value in values.items())
        text = f"{decision.system} hurts {segment}: {reason.replace(f' in {segment}', '', 1)}"
        gap = gaps.get((CROSS.join(values), CROSS.join(values.values())))
        if gap is not None:
            merged.append(gap)
            name = next(key for key in gap.figures if key.startswith("R@"))
            inside, others = (short(gap.figures[key]) for key in (name, "rest"))
            text += f"; {name} is {inside} there and {others} for the other"
            text += f" {gap.figures['n_rest']} queries; look at {gap.look_at}"
        sentences.append(text)
    return [*sentences, *(finding.sentence for finding in problems if finding not in merged)]


def findings_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections of ``Findings``: what to fix, what was fine, what was not checked."""
    lines = [
        f"{place}. {label(finding['sentence'])} ({finding['rule']})"
        for place, finding in enumerate(document["findings"], 1)
    ]
    nothing = "No rule that could be checked found a problem."
    sections = [Section("What to fix next", lines=lines or [nothing])]
    if document["quiet"]:
        sections.append(Section("Checked, nothing found", lines=[", ".join(document["quiet"])]))
    if document["unchecked"]:
        rows = [{"rule": name, "because": why} for name, why in document["unchecked"].items()]
        grid = table(rows, {"rule": "rule", "because": "because"})
        sections.append(Section("Not checked", grid))
    return sections


def mean(values: Values) -> float:
    """Return the mean of the known values."""
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


@rule("the errors in the log")
def failed_calls(case: Case) -> Iterator[Observation]:
    counts, calls = case.staged.final.counts, case.staged.calls
    if calls is None or not counts.failed_calls:
        return
    codes = case.gold.code_of(calls["query_id"])
    call_count = len(np.unique(codes[codes >= 0]))
    errors = calls["error"].filter(pl.Series(codes >= 0)).drop_nulls().cast(pl.String)
    most = dict(Counter(sorted(errors.to_list())).most_common(EXAMPLES))
    why = f" ({next(iter(most))!r})" if most else ""
    text = f"{counts.failed_calls} of {plural(call_count, 'call')} failed{why}"
    figures = {"failed": counts.failed_calls, "calls": call_count, "errors": most}
    yield Observation(f"{text}: no other finding counts them", figures)


@rule("whether the run is complete")
def not_in_run(case: Case) -> Iterator[Observation]:
    counts = case.staged.final.counts
    ids = case.staged.final.ids(case.status("missing"))
    if ids:
        total = counts.queries - counts.empty_gold - counts.no_answer
        queries = plural(total, "query", "queries")
        treated = {"zero": "count them as 0"}.get(case.staged.final.conventions.missing)
        text = f"{len(ids)} of {queries} with gold are not in the run, such as {ids[0]!r}: measures"
        text += f" {treated or 'leave them out'}, and no other finding counts them"
        figures = {"missing": len(ids), "queries": total, "examples": ids[:EXAMPLES]}
        yield Observation(text, figures)


@rule("filters, thresholds, and the index")
def nothing_returned(case: Case) -> Iterator[Observation]:
    final = case.staged.final
    ids = final.ids(case.answered & (ranked_of(final).returned == 0))
    if ids:
        queries = plural(case.n, "answered query", "answered queries")
        figures = {"empty": len(ids), "n": case.n, "examples": ids[:EXAMPLES]}
        text = f"{len(ids)} of {queries} got no item at all, such as {ids[0]!r}"
        yield Observation(text, figures)


@rule("the ids in the gold, or what was left out of the corpus")
def gold_not_in_corpus(case: Case) -> Iterator[Observation]:
    gold, findable = case.gold, in_index(case.staged)
    if findable is None:
        raise MissingInputError("needs the corpus")
    lost = gold.rows.filter(gold.relevant & ~findable)
    if lost.height:
        queries, of = lost["code"].n_unique(), int(gold.relevant.sum())
        names = lost["item_id"].unique().sort().head(EXAMPLES).to_list()
        text = (
            f"{lost.height} of {of} relevant judgments ({plural(queries, 'query', 'queries')})"
            f" name items missing from the corpus, such as {names[0]!r}: no system can find it"
        )
        figures = {"lost": lost.height, "of": of, "queries": queries, "examples": names}
        yield Observation(text, figures)


@rule("the time filter, or the labels, which may be outdated")
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
    fresh, newer = mean(values), int((values < 1).sum())
    if not at_least(fresh, limit):
        lists_of = plural(newer, "query", "queries")
        text = f"Fresh@{k} {short(fresh, limit)}: the top {k} of {lists_of} have items newer than"
        figures = {f"Fresh@{k}": fresh, "queries": newer, "n": len(values)}
        yield Observation(f"{text} as_of", figures)


@rule("the router's rules, and the recall of each source")
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


@rule("the rewriter: what it drops or adds where the original finds more")
def rewrite_hurts(case: Case) -> Iterator[Observation]:
    original = case.staged.beside.get(ORIGINAL)
    if original is None:
        raise MissingInputError("needs the list for the original query: stages.original in the log")
    k, logged = case.near, case.staged.logged.get(ORIGINAL, frozenset())
    rewritten = np.array([query_id in logged for query_id in case.gold.query_ids], dtype=bool)
    before = np.where(rewritten, case.values("R", k, original), np.nan)
    after = np.where(rewritten, case.values("R", k), np.nan)
    old, new, p = mean(before), mean(after), case.p_value(after - before)
    if new < old and p < case.alpha:
        text = f"R@{k} {short(new)} with rewritten queries but {short(old)} with the original ones"
        figures = {f"R@{k}": new, "original": old, "worse": int((after < before).sum()), "p": p}
        n = int((~np.isnan(after - before)).sum())
        yield Observation(f"{text}: rewriting loses evidence", {**figures, "n": n})


# Rules on the rank of gold: found or not, high or low.


@rule("the filters")
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
        yield Observation(text, figures, f"the {' or '.join(sieves)}")


class _Recall(NamedTuple):
    """R over all queries, and its threshold for high: a share of its ceiling."""

    mean: float
    limit: float

    def is_high(self) -> bool:
        return at_least(self.mean, self.limit)

    def beats(self, other: _Recall, case: Case) -> bool:
        """Return whether it is clearly above another, each as a share of its ceiling."""
        difference = self.mean / self.limit - other.mean / other.limit
        return at_least(case.thresholds.high * difference, case.thresholds.gap)


def _far_recall(case: Case) -> _Recall:
    """Return R of the gold far down the raw lists."""
    k, high = case.far, case.thresholds.high
    return _Recall(mean(case.values("R", k, case.staged.raw)), high * mean(case.ceiling("R", k)))


def _doc_recall(case: Case) -> _Recall:
    """Return R of the documents that the gold is in, in the same lists."""
    (name,) = map(str, case.doc_scores.measures)
    values, ceiling = case.doc_scores.values(name), case.doc_scores.ceilings[name][0]
    values, ceiling = values[case.answered], ceiling[case.answered]
    return _Recall(mean(values), case.thresholds.high * mean(ceiling))


@rule("the index, the embeddings or the chunking")
def not_retrieved(case: Case) -> Iterator[Observation]:
    recall = _far_recall(case)
    if recall.is_high():
        return
    k, far, limit = case.far, case.thresholds.far, recall.limit
    text, look_at = f"R@{k} {short(recall.mean, limit)}", ""
    figures: dict[str, Any] = {f"R@{k}": recall.mean, "line": limit, "n": case.n}
    try:
        docs = _doc_recall(case)
    except MissingInputError:
        docs = None  # Without documents, only the gold itself is looked at.
    if docs is not None:
        if docs.is_high() and docs.beats(recall, case):
            return
        look_at = "the index or the embeddings"
        text += f", and {short(docs.mean)} of the documents"
        figures["documents"] = docs.mean
    missing = "retrieved at all"
    if k < far:
        missing = f"in the top {k}, where the lists end; it may be lower or missing; log"
        missing += f" lists of {far} to find out"
    yield Observation(f"{text}: much of the evidence is not {missing}", figures, look_at)


@rule("the chunker")
def chunks_split(case: Case) -> Iterator[Observation]:
    recall = _far_recall(case)
    if recall.is_high():
        return
    docs, limit = _doc_recall(case), recall.limit
    if docs.beats(recall, case):
        text = (
            f"R@{case.far} {short(recall.mean, limit)} but {short(docs.mean)} of the documents: the"
            " document is found and the gold chunk is not, so key facts may be split"
        )
        figures = {f"R@{case.far}": recall.mean, "documents": docs.mean, "line": limit}
        yield Observation(text, {**figures, "n": case.n})


@rule("the chunker")
def neighbour_found(case: Case) -> Iterator[Observation]:
    k, name = case.near, f"Hit@{case.near}"
    missed = case.values("Hit", case.miss) == 0
    by_doc = case.score_by_doc(case.kept_run(case.staged.final, k), name)
    ids = by_doc.ids(missed & (by_doc.values(name) == 1))
    misses, n = int(missed.sum()), len(ids)
    # The rule on whole documents reports evidence that was not retrieved.
    if n < FEWEST_NEIGHBOURS or n < SHARE_OF_NEIGHBOURS * misses or any(chunks_split(case)):
        return
    text = (
        f"{n} of the {misses} queries without gold in the top {case.miss} have another chunk of its"
        f" document in the top {k} ({', '.join(ids[:EXAMPLES])} …): the right document is found but"
        " the wrong chunk, so answers may be split from their context"
    )
    figures = {"misses": misses, "queries": n, "examples": ids[:EXAMPLES], "n": case.n}
    yield Observation(text, figures)


@rule("the reranker: its model, its input, its language")
def reranker_hurts(case: Case) -> Iterator[Observation]:
    if not case.before_order:
        raise MissingInputError("needs the raw list: raw in the log")
    # A filtered list may end early; how deep one can look is decided by the raw list.
    first, last = case.before_order[0], case.before_order[-1]
    k = case.near
    case.reached(case.staged.line[first], first, k)
    before, after = case.sieved_values("nDCG", k), case.values("nDCG", k)
    if not case.moved.any():
        return
    # A list that lost items but kept its order gives no evidence on a reranker.
    part = case.answered & (case.moved | (before == after))
    before, after = np.where(part, before, np.nan), np.where(part, after, np.nan)
    old, new, p = mean(before), mean(after), case.p_value(after - before)
    if new >= old or p >= case.alpha:
        return
    step, look_at = "reranking", ""
    logged = [name for name in REORDERING if name in case.staged.line]
    if logged and not case.names_reranker:
        step = " and ".join(logged)
        look_at = f"{step}: how much relevance it trades for variety"
    text = (
        f"nDCG@{k} {short(new, old)} in the final list but {short(old)} in the one before ({last}):"
        f" {step} makes the order worse"
    )
    figures = {f"nDCG@{k}": new, last: old, "worse": int((after < before).sum())}
    yield Observation(text, {**figures, "p": p, "n": int(part.sum())}, look_at)


@rule("the scoring, a reranker, or a larger k")
def ranked_too_low(case: Case) -> Iterator[Observation]:
    near, far, lines = case.near, case.far, case.thresholds
    # Items that a filter removes or that do not fit into the top are not a ranking problem.
    deep, top = case.sieved_values("R", far), case.values("R", near)
    deep_mean, top_mean = mean(deep), mean(top)
    room = mean(np.minimum(deep, case.ceiling("R", near)))
    if not _far_recall(case).is_high():
        # Lists that end above the far cut-off do not show what follows their end.
        case.reached(case.staged.raw, "raw", lines.far)
        return
    if at_least(room - top_mean, lines.gap):
        of = "" if at_least(room, deep_mean) else f" of the {short(room)} that would fit"
        after = " after the filters" if any(name in case.staged.line for name in SIEVES) else ""
        text = f"R@{far} {short(deep_mean)}{after} but R@{near} {short(top_mean)}{of}"
        figures = {f"R@{far}": deep_mean, f"R@{near}": top_mean, "fitting": room, "n": case.n}
        look_at = "the reranker, or a larger k" if case.has_reranker else ""
        yield Observation(f"{text}: the evidence is found and ranked too low", figures, look_at)


@rule("the scoring, a reranker over the top N, or query expansion")
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
        text = f"R@{k} {short(recall)} but {' and '.join(low)}: the evidence is there but buried"
        yield Observation(text, {f"R@{k}": recall, **means, "n": case.n})


# Segments whose R is below that of the other queries.


@rule("normalisation, tokenisation, stop words and synonyms there")
def segment_gap(case: Case) -> Iterator[Observation]:
    k, recall = case.near, case.values("R", case.near)
    # As a share of the ceiling: a segment with much gold per query is no worse for that.
    reached = recall / case.ceiling("R", k)
    has_value = ~np.isnan(reached)
    wide: list[tuple[float, Observation]] = []
    tested = False
    for by in _columns(case):
        parts = [
            (segment, segment.mask & has_value, ~segment.mask & has_value)
            for segment in segments_by(case.staged.final.table["query_id"], case.queries, by)
        ]
        parts = [part for part in parts if min(part[1].sum(), part[2].sum()) >= SMALL]
        tested = tested or bool(parts)
        # The segments of one column are one family of tests.
        ps = holm([_welch(case, reached, inside, outside) for _, inside, outside in parts])
        for (segment, inside, outside), p in zip(parts, ps, strict=True):
            gap = mean(reached[outside]) - mean(reached[inside])
            if p is None or p >= case.alpha or not at_least(gap, case.thresholds.segment_gap):
                continue
            value, rest = mean(recall[inside]), mean(recall[outside])
            n, n_rest = int(inside.sum()), int(outside.sum())
            text = (
                f"R@{k} {short(value)} where {where(segment.where)} ({n} queries) but"
                f" {short(rest)} for the other {n_rest}, {p_in_words(p)}"
            )
            figures = {"column": str(by), "segment": segment.name, f"R@{k}": value, "rest": rest}
            figures |= {"n": n, "n_rest": n_rest, "p": p}
            wide.append((gap, Observation(text, figures)))
    if not tested:
        raise MissingInputError(f"needs a segment of {SMALL} queries and as many outside it")
    yield from (observation for _, observation in sorted(wide, key=lambda row: -row[0]))


def _columns(case: Case) -> list[By]:
    """Return the columns that were named, else those of the queries with a few values."""
    queries = case.queries
    if queries is None:
        raise MissingInputError("needs queries with attributes, such as language or topic")
    chosen = list(case.by)
    if not chosen:
        for name in queries.segments:
            values = queries.frame[name]
            values = values.explode() if values.dtype == pl.List else values
            if 1 < values.n_unique() <= MOST_VALUES:
                chosen.append(By((name,)))
    if not chosen:
        raise MissingInputError(
            f"needs an attribute of the queries with 2 to {MOST_VALUES} values; the queries have"
            f" {', '.join(queries.segments) or 'none'}"
        )
    return chosen


def _welch(case: Case, values: Values, inside: Mask, outside: Mask) -> float:
    """Return the p of Welch's t test; queries of one conversation may depend on each other."""
    groups = case.staged.final.groups
    (a, df_a), (b, df_b) = (
        standard_error(values[mask], None if groups is None else groups[mask])
        for mask in (inside, outside)
    )
    error, gap = math.hypot(a, b), mean(values[outside]) - mean(values[inside])
    if math.isnan(error) or error == 0:
        return t_p(gap, error, 1)
    return t_p(gap, error, error**4 / (a**4 / df_a + b**4 / df_b))


# The length of the list.


@rule("a cross-encoder, a lexical constraint or more diversity")
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
    text = f"R@{k} {short(recall)} but P@{k} {short(value, low)} of at most {short(most)}"
    look_at = ""
    if at_least(most, low):
        text += ": distractors surround the evidence"
    else:
        half = max(1, k // 2)
        nearer = mean(case.values("R", half))
        # At its ceiling, no other order raises P.
        at_ceiling = at_least(value, AT_CEILING * most)
        text += " on this gold"
        text += ": no order raises it, only a smaller k" if at_ceiling else ""
        text += f"; R@{half} is {short(nearer)}"
        enough = at_least(nearer, AT_CEILING * recall)
        look_at = "a smaller k" if enough else "the scoring or the reranking, then a smaller k"
    figures = {f"R@{k}": recall, f"P@{k}": value, "ceiling": most, "clean": clean, "n": case.n}
    yield Observation(text, figures, look_at)


# Calls that became slower.


@rule("the profile of each stage")
def slower(case: Case) -> Iterator[Observation]:
    base = case.baseline
    if base is None:
        raise MissingInputError("needs a baseline run")
    if base.gold.query_ids != case.gold.query_ids:
        raise MissingInputError("needs a baseline with the same queries")
    old, new = times_of(base), times_of(case.staged)
    timed_in_both = ~np.isnan(old[TOTAL]) & ~np.isnan(new[TOTAL])
    if not timed_in_both.any():
        raise MissingInputError("needs queries with latency_ms in both logs")
    rises = total_rises(case.staged, old[TOTAL], new[TOTAL], timed_in_both, case.thresholds.slower)
    if not rises:
        return
    figures: dict[str, Any] = {f"latency.{TOTAL}.{rise['name']}": rise for rise in rises}
    text = " and ".join(f"{name} {rise_text(rise)}" for name, rise in figures.items())
    text += ": calls are slower than the baseline's"
    percentile = rises[0]["name"]
    stages = [
        rise_of(percentile, old.get(stage), new[stage], timed_in_both) | {"name": stage}
        for stage in new
        if stage != TOTAL
    ]
    most = max(stages, key=growth_of, default=None)
    stage = "each stage"
    if most is not None and growth_of(most) > 0:
        stage = most["name"]
        text += f", most of all {stage}, {rise_text(most)}"
        figures["stage"] = most
    depths = [staged.final.meta.get("k_raw") for staged in (base, case.staged)]
    if depths[1] is not None:
        text += "" if depths[0] == depths[1] else f"; k_raw went from {depths[0]} to {depths[1]}"
        figures["k_raw"] = {"baseline": depths[0], "system": depths[1]}
    for rise in rises:
        del rise["name"]
    look_at = f"the profile of {stage}, a lower k_raw, a cache of frequent queries"
    yield Observation(text, {**figures, "n": int(timed_in_both.sum())}, look_at)
