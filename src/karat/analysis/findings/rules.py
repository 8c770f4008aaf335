"""Rules of the playbook that look at where gold stands: found or not, high or low, in time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures.case import Case, Cut, kept_lists
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import MissingInputError
from karat.evaluation.segments import NONE, SMALL, By, Segment, segments_by
from karat.evaluation.stages import RAW, REORDERING, SIEVES, Staged, passed_on
from karat.measures import aggregates
from karat.measures.aggregates import Values
from karat.measures.names import parse_measure
from karat.measures.prepare import Prepared, prepare
from karat.measures.ranked import Mask
from karat.measures.score_builder import score
from karat.pages.serialize import Record
from karat.stats.distributions import standard_error, t_p
from karat.stats.paired import holm

# From this share of its ceiling on a value is as good as at it.
AT_CEILING = 0.95

# Two floats that are equal on paper may differ by this much.
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """What a rule found: one sentence, its figures as data, and where to look next."""

    rule: str
    sentence: str
    figures: Mapping[str, Any]
    look_at: str


def mean(values: Values) -> float:
    """Return the mean of the values that are known."""
    found = aggregates.mean(values)
    if found is None:
        raise MissingInputError("needs a query with gold that the run answers")
    return found


def at_least(value: float, line: float) -> bool:
    """Return whether a value reaches a line, give or take the last bits."""
    return value >= line - _SAME


def short(value: float, line: float | None = None) -> str:
    """Return a share as text, with enough decimals to stay on its side of a threshold.

    >>> short(0.931), short(1.0), short(0.0), short(0.7962, 0.8)
    ('0.93', '1', '0', '0.796')
    """
    text = f"{value:.2f}"
    for decimals in (2, 3, 4):
        text = f"{value:.{decimals}f}"
        if line is None or at_least(float(text), line) == at_least(value, line):
            break
    whole = float(text)
    return f"{whole:.0f}" if whole in (0.0, 1.0) else text


def ranked_too_low(case: Case) -> list[Finding]:
    """Find evidence that is retrieved, survives the filters and is ranked too low."""
    near, far, lines = case.near, case.far, case.thresholds
    retrieved = mean(case.values("R", far))
    # What a filter takes out is no fault of the order either.
    deep, top = case.sieved("R", far.k), case.values("R", near)
    high = lines.high * mean(case.ceiling("R", far.k))
    # What is found and has no room in the top is no fault of the order.
    fitting = np.minimum(deep, case.ceiling("R", near.k))
    found, shown, room = mean(deep), mean(top), mean(fitting)
    if not at_least(retrieved, high):
        # Lists that end above the far cut-off do not tell what stands below their end.
        case.within(far.scores, lines.far, "raw")
        return []
    if not at_least(room - shown, lines.gap):
        return []
    full = at_least(room, found)
    of = "" if full else f" of the {short(room)} that would fit"
    order = "the reranker" if case.has_reranker else "the scoring, a reranker"
    look_at = f"{order}, or a larger k"
    sieves = any(name in case.staged.line for name in SIEVES)
    left = " after the filters" if sieves else ""
    sentence = (
        f"R@{far.k} {short(found)}{left} but R@{near.k} {short(shown)}{of}: the evidence is found"
        f" and ranked too low; look at {look_at}"
    )
    figures = {f"R@{far.k}": found, f"R@{near.k}": shown, "fitting": room, "n": case.n}
    return [Finding("ranked_too_low", sentence, figures, look_at)]


def not_retrieved(case: Case) -> list[Finding]:
    """Find evidence that is not retrieved at all, not even another chunk of its document."""
    recall = _far_recall(case)
    if recall.is_high:
        return []
    k = case.far.k
    text = f"R@{k} {short(recall.found, recall.line)}"
    figures: dict[str, Any] = {f"R@{k}": recall.found, "line": recall.line, "n": case.n}
    look_at = "the index, the embeddings or the chunking"
    try:
        docs = _doc_recall(case)
    except MissingInputError:
        return [Finding("not_retrieved", _not_retrieved(case, text, look_at), figures, look_at)]
    if docs.is_high and docs.beats(recall, case.thresholds.gap):
        return []
    look_at = "the index or the embeddings"
    text += f", and {short(docs.found)} of the documents"
    figures["documents"] = docs.found
    return [Finding("not_retrieved", _not_retrieved(case, text, look_at), figures, look_at)]


def _not_retrieved(case: Case, told: str, look_at: str) -> str:
    k, wanted = case.far.k, case.thresholds.far
    if k < wanted:
        return (
            f"{told}: much of the evidence is not in the top {k}, where the lists end, and may"
            f" stand lower or nowhere; log lists of {wanted} to tell, and look at {look_at}"
        )
    return f"{told}: much of the evidence is not retrieved at all; look at {look_at}"


def chunks_split(case: Case) -> list[Finding]:
    """Find documents that are retrieved without the chunks that hold the evidence."""
    recall = _far_recall(case)
    if recall.is_high:
        return []
    docs = _doc_recall(case)
    if not docs.beats(recall, case.thresholds.gap):
        return []
    k, look_at = case.far.k, "the chunker"
    sentence = (
        f"R@{k} {short(recall.found, recall.line)} but {short(docs.found)} of the documents: the"
        f" document is found and the gold chunk is not; {look_at} may split key facts"
    )
    figures = {f"R@{k}": recall.found, "documents": docs.found, "line": recall.line, "n": case.n}
    return [Finding("chunks_split", sentence, figures, look_at)]


@dataclass(frozen=True, slots=True)
class _Recall:
    """R over all queries, the most that so many places can hold, and from where on it is high."""

    found: float
    most: float
    high: float

    @property
    def line(self) -> float:
        return self.high * self.most

    @property
    def is_high(self) -> bool:
        return at_least(self.found, self.line)

    def beats(self, other: _Recall, gap: float) -> bool:
        """Return whether it lies above another by at least a gap, each as a share of its most."""
        return at_least(self.found / self.most - other.found / other.most, gap)


def _far_recall(case: Case) -> _Recall:
    """Return R of the gold far down the raw list."""
    far = case.far
    return _Recall(
        mean(case.values("R", far)), mean(case.ceiling("R", far.k)), case.thresholds.high
    )


def _doc_recall(case: Case) -> _Recall:
    """R of the documents that the gold is in, in the same lists; asked for by two rules."""
    if "documents" not in case.remembered:
        case.remembered["documents"] = _scored_by_doc(case)
    found: _Recall = case.remembered["documents"]
    return found


def by_documents(case: Case) -> Prepared:
    """Return the gold judged by document, where items have documents."""
    gold = case.staged.gold
    if gold.conventions.level != "item":
        raise MissingInputError(f"needs gold of single items; level is {gold.conventions.level}")
    by_doc = _by_doc(gold)
    if set(by_doc.rows["item_id"]) >= set(gold.rows["item_id"]):
        raise MissingInputError("needs ids such as doc#chunk, or a corpus with doc_id")
    return by_doc


def _scored_by_doc(case: Case) -> _Recall:
    gold, cut = case.staged.gold, case.far
    by_doc = by_documents(case)
    ids = pl.Series(gold.query_ids, dtype=pl.String)
    calls = pl.DataFrame({"query_id": ids.filter(pl.Series(case.answered))})
    recall = parse_measure(f"R@{cut.k}")
    lists = replace(_raw_lists(case.staged, cut), calls=calls)
    found = score(lists, by_doc, [recall], derived=True)
    values, most = found.values(str(recall)), found.ceilings[str(recall)][0]
    part = case.answered
    return _Recall(mean(values[part]), mean(most[part]), case.thresholds.high)


def _raw_lists(staged: Staged, cut: Cut) -> Run:
    """The retriever's own lists: as they were logged, or as many of their items as were kept."""
    run = staged.run
    if run is None:
        lists = kept_lists(cut)
        names = [name for name in ("item_id", "doc_id", "rank") if name in lists.columns]
        ids = pl.Series(staged.gold.query_ids, dtype=pl.String)
        return Run(
            lists.select(names).with_columns(query_id=ids.gather(lists["row"])), order="rank"
        )
    raw = passed_on(run, list(staged.line) if RAW in staged.line else [])
    return replace(raw, order=staged.gold.conventions.order or run.order)


def _by_doc(gold: Prepared) -> Prepared:
    """Return the same gold, judged by document."""
    ids = pl.Series(gold.query_ids, dtype=pl.String)
    frame = gold.rows.select("item_id", "grade").with_columns(
        query_id=ids.gather(gold.rows["code"])
    )
    conventions = replace(gold.conventions, level="doc", order=None, unit=None)
    corpus = None if gold.corpus is None else Corpus(gold.corpus)
    return prepare(Gold(frame, gold.query_ids), conventions, corpus=corpus)


def distractors(case: Case) -> list[Finding]:
    """Find evidence at the top among many other items: R is high and P is low."""
    near, lines = case.near, case.thresholds
    recall, precision = mean(case.values("R", near)), case.values("P", near)
    found, most = mean(precision), mean(case.ceiling("P", near.k))
    high = lines.high * mean(case.ceiling("R", near.k))
    if not at_least(recall, high) or at_least(found, lines.low_precision):
        return []
    # A short list with nothing but gold has a low P@k and no distractor.
    clean = mean(precision * near.k / case.shown(near))
    if at_least(clean, lines.low_precision):
        return []
    k = near.k
    why, look_at = _among_distractors(case, recall, found, most)
    text = f"R@{k} {short(recall)} but P@{k} {_of_at_most(found, most, lines.low_precision)}"
    figures = {f"R@{k}": recall, f"P@{k}": found, "ceiling": most, "clean": clean, "n": case.n}
    return [Finding("distractors", f"{text}{why}; look at {look_at}", figures, look_at)]


def _of_at_most(found: float, most: float, line: float) -> str:
    """Return P and its ceiling with enough decimals to differ."""
    own, best = short(found, line), short(most)
    if at_least(found, most):
        return f"{own}, the most there can be"
    for decimals in (3, 4, 5):
        if own != best:
            break
        own, best = f"{found:.{decimals}f}", f"{most:.{decimals}f}"
        best = best[:4] + best[4:].rstrip("0")
    return f"{own} of at most {best}"


def _among_distractors(case: Case, recall: float, found: float, most: float) -> tuple[str, str]:
    """Return why P is low, as far as the gold itself keeps it so, and what to look at."""
    fewer = "a smaller k or a score threshold"
    stands = "the evidence stands among distractors"
    if at_least(most, case.thresholds.low_precision):
        return f": {stands}", "a cross-encoder, a lexical constraint or more diversity"
    half = max(1, case.near.k // 2)
    nearer = mean(case.values("R", replace(case.near, k=half)))
    enough = at_least(nearer, AT_CEILING * recall)
    # So many places hold no more gold, whatever their order.
    if at_least(found, AT_CEILING * most):
        text = f" on this gold: no order raises it, only fewer places would; R@{half} is "
        if enough:
            return f"{text}{short(nearer)}", "a smaller k"
        return f"{text}only {short(nearer)}", "the scoring or the reranking, then a smaller k"
    if enough:
        return f" on this gold: R@{half} is {short(nearer)}, so fewer places would do", fewer
    return f" on this gold: {stands}", f"the scoring or the reranking, then {fewer}"


def buried(case: Case) -> list[Finding]:
    """Find evidence that is returned far from the top: R is high, RR or nDCG is low."""
    cut, lines = case.miss, case.thresholds
    recall = mean(case.values("R", cut))
    if not at_least(recall, lines.high * mean(case.ceiling("R", cut.k))):
        return []
    found = {f"{name}@{cut.k}": mean(case.values(name, cut)) for name in ("RR", "nDCG")}
    low = {name: value for name, value in found.items() if not at_least(value, lines.buried)}
    if not low:
        return []
    text = " and ".join(f"{name} {short(value, lines.buried)}" for name, value in low.items())
    look_at = "the scoring, a reranker over the top N, or query expansion"
    sentence = (
        f"R@{cut.k} {short(recall)} but {text}: the evidence is there and buried; look at {look_at}"
    )
    return [Finding("buried", sentence, {f"R@{cut.k}": recall, **found, "n": case.n}, look_at)]


def newer_than_as_of(case: Case) -> list[Finding]:
    """Find items at the top that are newer than the query's as_of."""
    final = case.staged.final
    k = max(1, min(case.thresholds.near, case.goes_to(final)))
    values = case.listed_values("Fresh", Cut(final, k))
    if np.isnan(values).all():
        raise MissingInputError(
            "needs versions and as_of that can be compared: dates, or --set versions='v1<v2'"
        )
    found, late = mean(values), int((values < 1).sum())
    if at_least(found, case.thresholds.fresh):
        return []
    look_at = "the time filter; else the labels, which may be outdated"
    whose = "1 query" if late == 1 else f"{late} queries"
    sentence = (
        f"Fresh@{k} {short(found, case.thresholds.fresh)}: the top {k} of {whose} have items newer"
        " than as_of, which is ignored, or the labels are outdated"
    )
    known = int((~np.isnan(values)).sum())
    return [
        Finding(
            "newer_than_as_of",
            sentence,
            {f"Fresh@{k}": found, "queries": late, "n": known},
            look_at,
        )
    ]


# Fewer misses, or a smaller share of them, say nothing of the chunker.
FEWEST, SHARE = 5, 0.5
_NAMED = 3


def neighbour_found(case: Case) -> list[Finding]:
    """Find misses with another chunk of the gold document at the top."""
    near, cut = case.near, case.miss
    missed = case.values("Hit", cut) == 0
    by_doc = by_documents(case)
    lists = kept_lists(near)
    names = [name for name in ("item_id", "doc_id", "rank") if name in lists.columns]
    ids = pl.Series(by_doc.query_ids, dtype=pl.String)
    run = Run(lists.select(names).with_columns(query_id=ids.gather(lists["row"])), order="rank")
    hit = parse_measure(f"Hit@{near.k}")
    beside = missed & (score(run, by_doc, [hit], derived=True).values(str(hit)) == 1)
    misses, found = int(missed.sum()), int(beside.sum())
    # Where much of the evidence is nowhere, the rule on whole documents has said so.
    if found < FEWEST or found < SHARE * misses or chunks_split(case):
        return []
    some = [str(name) for name in ids.filter(pl.Series(beside))[:_NAMED]]
    sentence = (
        f"{found} of the {misses} queries without gold in the top {cut.k} have another chunk of its"
        f" document in the top {near.k} ({', '.join(some)} …): the right document is found but the"
        " wrong chunk; the chunker may be splitting answers from their context"
    )
    figures = {"misses": misses, "queries": found, "examples": some, "n": case.n}
    return [Finding("neighbour_found", sentence, figures, "the chunker")]


def filters_take_gold(case: Case) -> list[Finding]:
    """Find filters that take out gold: R is clearly lower after them than before."""
    sieves = [name for name in SIEVES if name in case.staged.line]
    if RAW not in case.staged.line or not sieves:
        raise MissingInputError(
            "needs lists before and after a filter: raw, and stages.filter, stages.as_of or"
            " stages.threshold in the log"
        )
    far = case.far
    before, after = case.values("R", far), case.sieved("R", far.k)
    old, new = mean(before), mean(after)
    if not at_least(old - new, case.thresholds.gap):
        return []
    look_at = f"the {_either(sieves)}"
    sentence = (
        f"filters take out gold: R@{far.k} {short(old)} before and {short(new)} after them;"
        f" look at {look_at}"
    )
    worse = int((after < before).sum())
    figures = {f"R@{far.k}": old, "after": new, "worse": worse, "n": case.n}
    return [Finding("filters_take_gold", sentence, figures, look_at)]


def _either(names: list[str]) -> str:
    """Return names as alternatives: ``filter, as_of or threshold``."""
    return " or ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def reranker_hurts(case: Case) -> list[Finding]:
    """Find out whether the reranker makes the order worse."""
    if not case.before_order:
        raise MissingInputError("needs the raw list: raw in the log")
    # What a filter left of a list is all there is of it: how far one can see is the raw list's.
    first, last = case.before_order[0], case.before_order[-1]
    near = case.near
    case.within(case.staged.line[first], near.k, first)
    before, after = case.sieved("nDCG", near.k), case.values("nDCG", near)
    # A list that lost items and kept its order says nothing of a reranker.
    part = case.answered & (case.moved | (before == after))
    before, after = np.where(part, before, np.nan), np.where(part, after, np.nan)
    if not case.moved.any():
        return []
    old, new, p = mean(before), mean(after), case.p_of(after - before)
    if new >= old or p >= case.alpha:
        return []
    what, look_at = _what_reorders(case)
    k = near.k
    sentence = (
        f"nDCG@{k} {short(new, old)} in the final list but {short(old)} in the one before"
        f" ({last}): {what} makes the order worse; look at {look_at}"
    )
    figures = {f"nDCG@{k}": new, last: old, "worse": int((after < before).sum())}
    n = int(part.sum())
    return [Finding("reranker_hurts", sentence, {**figures, "p": p, "n": n}, look_at)]


def _what_reorders(case: Case) -> tuple[str, str]:
    """Return what gives another order, as far as the log tells, and what to look at."""
    logged = [name for name in REORDERING if name in case.staged.line]
    if logged and not case.named_reranker:
        what = " and ".join(logged)
        return what, f"{what}: how much relevance is given away for variety"
    return "reranking", "the reranker: its model, its input, its language"


# A column with more values than this is no segment column unless it is asked for.
MOST_VALUES = 20


def segment_gap(case: Case) -> list[Finding]:
    """Find segments whose R is clearly below that of all other queries."""
    near = case.near
    recall = case.values("R", near)
    # Of what has room: a segment with much gold a query is no worse for that.
    reached = recall / case.ceiling("R", near.k)
    tested = []
    for by, segment in _segments(case):
        inside, rest = segment.mask & ~np.isnan(reached), ~segment.mask & ~np.isnan(reached)
        if min(inside.sum(), rest.sum()) >= SMALL:
            tested.append((by, segment, inside, rest))
    if not tested:
        raise MissingInputError(f"needs a segment of {SMALL} queries with as many outside of it")
    gaps = [mean(reached[rest]) - mean(reached[inside]) for _, _, inside, rest in tested]
    wide = [at for at, gap in enumerate(gaps) if at_least(gap, case.thresholds.segment_gap)]
    if not wide:
        return []
    # The segments of a column are one family, whichever other columns are looked at.
    ps: dict[int, float | None] = {}
    for column in dict.fromkeys(str(by) for by, *_ in tested):
        own = [at for at, (by, *_) in enumerate(tested) if str(by) == column]
        tests = [_welch(case, reached, *tested[at][2:]) for at in own]
        ps |= dict(zip(own, holm(tests), strict=True))
    return [
        _gap(case, recall, tested[at], p)
        for at in sorted(wide, key=lambda one: (-gaps[one], one))
        if (p := ps[at]) is not None and p < case.alpha
    ]


def _gap(
    case: Case, recall: Values, tested: tuple[By, Segment, Mask, Mask], p: float | None
) -> Finding:
    by, segment, inside, rest = tested
    k = case.near.k
    own, others = mean(recall[inside]), mean(recall[rest])
    where = " and ".join(f"{column} = {value}" for column, value in segment.where.items())
    chance = "< 0.001" if p is not None and p < 0.001 else f"= {p:.2g}"
    look_at = "normalisation, tokenisation, stop words and synonyms there"
    sentence = (
        f"R@{k} {short(own)} where {where} ({int(inside.sum())} queries) but {short(others)} for"
        f" the other {int(rest.sum())}, p {chance}; look at {look_at}"
    )
    figures = {
        "column": str(by),
        "segment": segment.name,
        f"R@{k}": own,
        "rest": others,
        "n": int(inside.sum()),
        "n_rest": int(rest.sum()),
        "p": p,
    }
    return Finding("segment_gap", sentence, figures, look_at)


def _segments(case: Case) -> list[tuple[By, Segment]]:
    queries = case.queries
    if queries is None:
        raise MissingInputError("needs queries with attributes, such as language or topic")
    chosen = list(case.by) or [By((name,)) for name in queries.segments if _few(queries, name)]
    if not chosen:
        raise MissingInputError(
            f"needs an attribute of the queries with 2 to {MOST_VALUES} values; the queries have"
            f" {', '.join(queries.segments) or 'none'}"
        )
    ids = case.staged.final.table["query_id"]
    return [(by, segment) for by in chosen for segment in segments_by(ids, queries, by)]


def _few(queries: Queries, column: str) -> bool:
    """Return whether a column has few enough values to make segments of it unasked."""
    seen: set[str] = set()
    for value in queries.frame[column].to_list():
        several = value if isinstance(value, list) and value else [value]
        seen.update(NONE if one is None else str(one) for one in several)
        if len(seen) > MOST_VALUES:
            return False
    return len(seen) > 1


def _welch(case: Case, values: Values, inside: Mask, rest: Mask) -> float:
    """Return the p of Welch's t test; queries of one conversation may depend on each other."""
    groups = case.staged.final.groups
    (a, df_a), (b, df_b) = (
        standard_error(values[mask], None if groups is None else groups[mask])
        for mask in (inside, rest)
    )
    difference = mean(values[rest]) - mean(values[inside])
    error = math.hypot(a, b)
    if math.isnan(error) or error == 0:
        return t_p(difference, error, 1)
    df = error**4 / (a**4 / df_a + b**4 / df_b)
    return t_p(difference, error, df)
