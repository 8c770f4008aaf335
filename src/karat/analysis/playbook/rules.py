"""Rules of the playbook that look at where gold stands: found or not, high or low, in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.playbook.case import Case, Cut, Finding, at_least, kept_lists, mean, short
from karat.analysis.staged import RAW, SIEVES, Staged, passed_on
from karat.errors import MissingInputError
from karat.measures.names import parse_measure
from karat.measures.prepare import Prepared, prepare
from karat.measures.scores import score
from karat.tables import Corpus, Gold, Run

# From this share of its ceiling on a value is as good as at it.
AT_CEILING = 0.95


def ranked_too_low(case: Case) -> list[Finding]:
    """R is high far down the raw list, and what the filters leave is not at the top."""
    near, far, lines = case.near, case.far, case.lines
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
    order = "the reranker" if case.reranked else "the scoring, a reranker"
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
    """R is low far down the raw list, and not only because a neighbour was found instead."""
    recall = _far_recall(case)
    if recall.is_high:
        return []
    k = case.far.k
    told = f"R@{k} {short(recall.found, recall.line)}"
    figures: dict[str, Any] = {f"R@{k}": recall.found, "line": recall.line, "n": case.n}
    look_at = "the index, the embeddings or the chunking"
    try:
        docs = _doc_recall(case)
    except MissingInputError:
        return [Finding("not_retrieved", _not_retrieved(case, told, look_at), figures, look_at)]
    if docs.is_high and docs.beats(recall, case.lines.gap):
        return []
    look_at = "the index or the embeddings"
    told += f", and {short(docs.found)} of the documents"
    figures["documents"] = docs.found
    return [Finding("not_retrieved", _not_retrieved(case, told, look_at), figures, look_at)]


def _not_retrieved(case: Case, told: str, look_at: str) -> str:
    k, wanted = case.far.k, case.lines.far
    if k < wanted:
        return (
            f"{told}: much of the evidence is not in the top {k}, where the lists end, and may"
            f" stand lower or nowhere; log lists of {wanted} to tell, and look at {look_at}"
        )
    return f"{told}: much of the evidence is not retrieved at all; look at {look_at}"


def chunks_split(case: Case) -> list[Finding]:
    """The documents are found far down, and the chunks in them that hold the evidence are not."""
    recall = _far_recall(case)
    if recall.is_high:
        return []
    docs = _doc_recall(case)
    if not docs.beats(recall, case.lines.gap):
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
        """Whether it lies above another by at least a gap, each as a share of its most."""
        return at_least(self.found / self.most - other.found / other.most, gap)


def _far_recall(case: Case) -> _Recall:
    """R of the gold far down the raw list."""
    far = case.far
    return _Recall(mean(case.values("R", far)), mean(case.ceiling("R", far.k)), case.lines.high)


def _doc_recall(case: Case) -> _Recall:
    """R of the documents that the gold is in, in the same lists; asked for by two rules."""
    if "documents" not in case.remembered:
        case.remembered["documents"] = _scored_by_doc(case)
    found: _Recall = case.remembered["documents"]
    return found


def by_documents(case: Case) -> Prepared:
    """The gold judged by document, where items have documents."""
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
    return _Recall(mean(values[part]), mean(most[part]), case.lines.high)


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
    """The same gold, judged by document."""
    ids = pl.Series(gold.query_ids, dtype=pl.String)
    frame = gold.rows.select("item_id", "grade").with_columns(
        query_id=ids.gather(gold.rows["code"])
    )
    conventions = replace(gold.conventions, level="doc", order=None, unit=None)
    corpus = None if gold.corpus is None else Corpus(gold.corpus)
    return prepare(Gold(frame, gold.query_ids), conventions, corpus=corpus)


def distractors(case: Case) -> list[Finding]:
    """R is high at the top and P is low: the evidence is there, among much else."""
    near, lines = case.near, case.lines
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
    told = f"R@{k} {short(recall)} but P@{k} {_of_at_most(found, most, lines.low_precision)}"
    figures = {f"R@{k}": recall, f"P@{k}": found, "ceiling": most, "clean": clean, "n": case.n}
    return [Finding("distractors", f"{told}{why}; look at {look_at}", figures, look_at)]


def _of_at_most(found: float, most: float, line: float) -> str:
    """P and its ceiling with so many decimals that they differ."""
    own, best = short(found, line), short(most)
    if at_least(found, most):
        return f"{own}, the most there can be"
    for decimals in (3, 4, 5):
        if own != best:
            break
        own = f"{found:.{decimals}f}".removeprefix("0")
        best = f"{most:.{decimals}f}".removeprefix("0")
        best = best[:3] + best[3:].rstrip("0")
    return f"{own} of at most {best}"


def _among_distractors(case: Case, recall: float, found: float, most: float) -> tuple[str, str]:
    """Why P is low, as far as the gold itself keeps it so, and what to look at."""
    fewer = "a smaller k or a score threshold"
    stands = "the evidence stands among distractors"
    if at_least(most, case.lines.low_precision):
        return f": {stands}", "a cross-encoder, a lexical constraint or more diversity"
    half = max(1, case.near.k // 2)
    nearer = mean(case.values("R", replace(case.near, k=half)))
    enough = at_least(nearer, AT_CEILING * recall)
    # So many places hold no more gold, whatever their order.
    if at_least(found, AT_CEILING * most):
        told = f" on this gold: no order raises it, only fewer places would; R@{half} is "
        if enough:
            return f"{told}{short(nearer)}", "a smaller k"
        return f"{told}only {short(nearer)}", "the scoring or the reranking, then a smaller k"
    if enough:
        return f" on this gold: R@{half} is {short(nearer)}, so fewer places would do", fewer
    return f" on this gold: {stands}", f"the scoring or the reranking, then {fewer}"


def buried(case: Case) -> list[Finding]:
    """R is high at the cut-off of a miss, and RR or nDCG is low: present, but far from the top."""
    cut, lines = case.miss, case.lines
    recall = mean(case.values("R", cut))
    if not at_least(recall, lines.high * mean(case.ceiling("R", cut.k))):
        return []
    found = {f"{name}@{cut.k}": mean(case.values(name, cut)) for name in ("RR", "nDCG")}
    low = {name: value for name, value in found.items() if not at_least(value, lines.buried)}
    if not low:
        return []
    told = " and ".join(f"{name} {short(value, lines.buried)}" for name, value in low.items())
    look_at = "the scoring, a reranker over the top N, or query expansion"
    sentence = (
        f"R@{cut.k} {short(recall)} but {told}: the evidence is there and buried; look at {look_at}"
    )
    return [Finding("buried", sentence, {f"R@{cut.k}": recall, **found, "n": case.n}, look_at)]


def newer_than_as_of(case: Case) -> list[Finding]:
    """Items at the top are newer than the query's as_of."""
    final = case.staged.final
    k = max(1, min(case.lines.near, case.goes_to(final)))
    values = case.listed_values("Fresh", Cut(final, k))
    if np.isnan(values).all():
        raise MissingInputError(
            "needs versions and as_of that can be told apart: dates, or --set versions='v1<v2'"
        )
    found, late = mean(values), int((values < 1).sum())
    if at_least(found, case.lines.fresh):
        return []
    look_at = "the time filter; else the labels, which may be outdated"
    whose = "1 query" if late == 1 else f"{late} queries"
    sentence = (
        f"Fresh@{k} {short(found, case.lines.fresh)}: the top {k} of {whose} have items newer than"
        " as_of, which is ignored, or the labels are outdated"
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
