"""Measures of all returned items and of the calls: diversity, freshness, coverage, latency."""

from __future__ import annotations

import math
import re
from datetime import datetime
from functools import lru_cache
from typing import Literal

import numpy as np
import polars as pl

from karat.errors import MissingInputError, UsageError
from karat.measure.aggregates import Evidence, Values, share_of_keys
from karat.measure.ranked import Cut, Ints, Ranked, add_up, ratio
from karat.measure.registry import IGNORES_RELEVANCE, measure

Of = Literal["relevant", "all"]


@measure(
    "DistinctDocs",
    cutoff="must",
    needs=("list", "docs"),
    gold="any",
    ceiling="k",
    bounded=False,
    unjudged=IGNORES_RELEVANCE,
)
def distinct_docs(r: Ranked, k: Cut) -> Values:
    """How many different documents are in the top k."""
    listing, mask = r.listed(k)
    docs = listing.column("doc_id", "DistinctDocs", "a doc_id for each item")
    pairs = pl.DataFrame({"query": listing.query, "doc": docs}).filter(mask).unique()
    return np.bincount(pairs["query"].to_numpy(), minlength=r.n).astype(np.float64)


@measure(
    "Redundancy",
    better="lower",
    cutoff="must",
    needs=("list", "docs"),
    gold="any",
    ceiling=0.0,
    unjudged=IGNORES_RELEVANCE,
)
def redundancy(r: Ranked, k: Cut) -> Values:
    """1 - distinct documents / k: how much of the top k repeats a document."""
    shown = np.minimum(r.returned, r.limit(k))
    return np.where(shown > 0, 1.0 - ratio(distinct_docs(r, k), r.limit(k)), np.nan)


@measure(
    "Novelty",
    cutoff="must",
    needs=("list", "texts"),
    gold="any",
    ceiling=1.0,
    unjudged=IGNORES_RELEVANCE,
)
def novelty(r: Ranked, k: Cut, *, overlap: float = 0.5) -> Values:
    """The share of the top k whose words overlap with every higher-ranked text below a limit.

    Overlap is the Jaccard index of word sets (casefolded); the first item is always new.
    """
    if not 0 < overlap <= 1:
        raise UsageError(f"overlap is {overlap:g}; it must be a share above 0 and at most 1")
    listing, mask = r.listed(k)
    texts = listing.column("text", "Novelty", "the items' texts: give --corpus").to_list()
    new, shown = np.zeros(r.n), np.zeros(r.n)
    above: list[frozenset[str]] = []
    query = -1
    for place in np.flatnonzero(mask).tolist():
        if listing.query[place] != query:
            query, above = int(listing.query[place]), []
        words = _words(texts[place] or "")
        new[query] += all(_jaccard(words, other) < overlap for other in above)
        shown[query] += 1
        above.append(words)
    return np.where(shown > 0, ratio(new, shown), np.nan)


@lru_cache(maxsize=10_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _ages(r: Ranked, k: Cut, versions: tuple[str, ...]) -> tuple[Ints, Values]:
    """For each listed item with an as_of: its query, and 1 in time, 0 newer, NaN unknown."""
    listing, mask = r.listed(k)
    remedy = "each item's version: in the run, or through --corpus"
    column = listing.column("version", "Fresh", remedy).cast(pl.String).to_list()
    if r.n and not r.target.as_of:
        raise MissingInputError(
            "Fresh needs an as_of for each query: give --queries with that column"
        )
    places = [p for p in np.flatnonzero(mask).tolist() if r.target.as_of[listing.query[p]]]
    ages = [in_time(column[p], r.target.as_of[listing.query[p]], versions) for p in places]
    return listing.query[places], np.array(ages, dtype=np.float64)


def _unknown_versions(r: Ranked, k: Cut, *, versions: tuple[str, ...] = ()) -> Evidence:
    query, ages = _ages(r, k, versions)
    unknown = np.isnan(ages)
    return Evidence(query[unknown], np.full(unknown.sum(), -1), np.ones(unknown.sum()))


@measure(
    "Fresh",
    cutoff="must",
    needs=("list", "versions"),
    gold="any",
    ceiling=1.0,
    evidence=_unknown_versions,
    unjudged=IGNORES_RELEVANCE,
    aliases=("freshness",),
)
def freshness(r: Ranked, k: Cut, *, versions: tuple[str, ...] = ()) -> Values:
    """The share of the top k whose version is not newer than the query's as_of.

    ISO dates and times; an as_of date covers its whole day. Other versions need a declared
    order (``--set versions='v1<v2<v3'``); unknown ones are left out and counted.
    """
    query, ages = _ages(r, k, versions)
    has_age = ~np.isnan(ages)
    shown = np.bincount(query[has_age], minlength=r.n).astype(np.float64)
    fresh = add_up(query[has_age], ages[has_age], r.n)
    return np.where(shown > 0, ratio(fresh, shown), np.nan)


@lru_cache(maxsize=100_000)
def in_time(version: str | None, as_of: str, versions: tuple[str, ...]) -> float:
    if version is None:
        return float("nan")
    if version in versions and as_of in versions:
        return float(versions.index(version) <= versions.index(as_of))
    version_time, asked = _moment(version), _moment(as_of)
    if version_time is None or asked is None:
        return float("nan")
    if len(as_of.strip()) <= 10:
        return float(version_time.date() <= asked.date())
    if (version_time.tzinfo is None) != (asked.tzinfo is None):
        version_time, asked = version_time.replace(tzinfo=None), asked.replace(tzinfo=None)
    return float(version_time <= asked)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


@measure(
    "Sim",
    cutoff="must",
    better="none",
    needs=("list",),
    gold="any",
    ceiling=None,
    bounded=False,
    unjudged="{} describes lists; neither higher nor lower is better",
)
def similarity(r: Ranked, k: Cut, *, of: Of = "relevant", rel: float = 1) -> Values:
    """The mean similarity of the relevant items in the top k, or of ``all`` of them."""
    if of not in ("relevant", "all"):
        raise UsageError(f"Sim(of={of!r}) is not known; of can be 'relevant' or 'all'")
    listing, mask = r.listed(k)
    remedy = (
        "each hit's similarity: log it with the run, or declare the score a cosine"
        ' ("score_kind": "cosine")'
    )
    values = listing.column("similarity", "Sim", remedy).to_numpy()
    mask = mask & ~np.isnan(values)
    if of == "relevant":
        mask &= listing.frame["grade"].to_numpy() >= rel
    shown = np.bincount(listing.query[mask], minlength=r.n).astype(np.float64)
    total = add_up(listing.query[mask], values[mask], r.n)
    return np.where(shown > 0, ratio(total, shown), np.nan)


def _covered(r: Ranked, k: Cut, *, of: str = "gold", rel: float = 1) -> Evidence:
    if of == "corpus":
        listing, mask = r.listed(k)
        remedy = "the list of all items: give --corpus"
        rows = listing.column("corpus_row", "Coverage(of='corpus')", remedy).to_numpy()
        keep = mask & (rows >= 0)
        return Evidence(listing.query[keep], rows[keep], np.ones(keep.sum()), listing.corpus_size)
    found = np.zeros(len(r.target.query))
    mask = r.top(k, r.found) & r.found.relevant(rel)
    if r.found.row is not None:
        found[r.found.row[mask]] = 1.0
    gold = r.target.grade >= rel
    total = r.target.corpus_size if of == "items" else None
    if of == "items" and total is None:
        raise MissingInputError("Coverage(of='items') needs the list of all items: give --corpus")
    return Evidence(r.target.query[gold], r.target.unit[gold], found[gold], total)


@measure(
    "Coverage",
    cutoff="must",
    number=share_of_keys,
    evidence=_covered,
    unjudged="{} is one number of the whole set, in which queries share their items",
)
def coverage(r: Ranked, k: Cut, *, of: str = "gold", rel: float = 1) -> Values:
    """The share of gold items that are returned for a query whose gold they are.

    ``of='items'``: the same items as a share of all items of the corpus, so that one which no
    query asks for is not covered. ``of='corpus'``: the share of all items that are returned for
    any query. One number for the set; a query's own value is the number of items it covers.
    """
    if of not in ("gold", "items", "corpus"):
        raise UsageError(f"Coverage(of={of!r}) is not known; of can be 'gold', 'items' or 'corpus'")
    if of == "corpus":
        return np.minimum(r.returned, r.limit(k)).astype(np.float64)
    return r.found.count(r.top(k, r.found) & r.found.relevant(rel))


def _gold_scores(
    r: Ranked, k: Cut, *, threshold: float | None = None, keep: float = 0.95, rel: float = 1
) -> Evidence:
    """Return the scores of the gold that answerable queries got within the cut-off."""
    listing, mask = r.listed(k)
    scores = listing.column("score", "FalseEvidence", "scores; this run has ranks only").to_numpy()
    right = mask & (listing.frame["grade"].to_numpy() >= rel) & ~r.target.no_answer[listing.query]
    return Evidence(listing.query[right], np.full(right.sum(), -1), scores[right])


def _against_threshold(
    values: Values,
    evidence: Evidence,
    *,
    threshold: float | None = None,
    keep: float = 0.95,
    rel: float = 1,
) -> Values:
    if threshold is None:
        if not len(evidence.value):
            return np.full(len(values), np.nan)
        kept_count = math.ceil(round(keep * len(evidence.value), 9))
        threshold = float(np.sort(evidence.value)[-kept_count])
    return np.where(np.isnan(values), np.nan, (values >= threshold).astype(np.float64))


@measure(
    "FalseEvidence",
    better="lower",
    needs=("list",),
    gold="none",
    ceiling=0.0,
    evidence=_gold_scores,
    settle=_against_threshold,
    unjudged="{} is about queries without an answer, which no label gives them",
)
def false_evidence(
    r: Ranked, k: Cut, *, threshold: float | None = None, keep: float = 0.95, rel: float = 1
) -> Values:
    """For a no-answer query: 1 if anything in the top k scores at least the threshold.

    ``keep`` chooses the threshold that keeps this share of the gold which answerable queries
    got, the only form that compares across systems. Answerable queries have no value.
    """
    if not 0 < keep <= 1:
        raise UsageError(f"keep is {keep:g}; it must be a share above 0 and at most 1")
    listing, mask = r.listed(k)
    scores = listing.column("score", "FalseEvidence", "scores; this run has ranks only").to_numpy()
    best = np.full(r.n, -np.inf)
    np.maximum.at(best, listing.query[mask], scores[mask])
    return np.where(r.target.no_answer, best, np.nan)


@measure(
    "latency",
    better="lower",
    cutoff="path",
    gold="none",
    ceiling=None,
    bounded=False,
    unjudged=IGNORES_RELEVANCE,
)
def latency(r: Ranked, k: Cut, *, path: str = "total.p50") -> Values:
    """Milliseconds by stage: ``latency.retrieve.p50``, ``.p90``, ``.p95``, ``.p99``, ``.mean``.

    Percentiles by linear interpolation. ``total`` is the sum of all stages unless logged.
    """
    return _logged(r, "latency", path.rpartition(".")[0])


@measure(
    "cost",
    better="lower",
    cutoff="path",
    gold="none",
    ceiling=None,
    bounded=False,
    unjudged=IGNORES_RELEVANCE,
)
def cost(r: Ranked, k: Cut, *, path: str = "tokens") -> Values:
    """What the run logs as spent: ``cost.tokens`` (mean of a query), ``cost.tokens.sum``."""
    return _logged(r, "cost", path.removesuffix(".sum").removesuffix(".mean"))


def _logged(r: Ranked, family: str, what: str) -> Values:
    name = f"{family}.{what}"
    if name not in r.calls:
        logged_keys = [key for key in r.calls if key.startswith(f"{family}.")]
        has = f"it logs {', '.join(logged_keys)}" if logged_keys else f"it logs no {family}"
        raise MissingInputError(f"{name} is not in the run; {has}")
    return r.calls[name]


def _links(r: Ranked, k: Cut) -> Evidence:
    """For each query that got an answer: whether the system said what it linked."""
    said = np.zeros(r.n)
    said[[at for at, linked in enumerate(r.predicted) if linked is not None]] = 1.0
    answered = np.flatnonzero((r.returned > 0) | (said > 0))
    return Evidence(answered, np.zeros(len(answered), np.int64), said[answered])


def _if_any_links(values: Values, evidence: Evidence) -> Values:
    """Return a system that linked nothing anywhere was not asked to, or does not log it."""
    if len(evidence.value) and not evidence.value.any():
        raise MissingInputError("EL_F1 needs the entities that the system linked, in the run log")
    return values


@measure(
    "EL_F1",
    cutoff="none",
    gold="none",
    ceiling=None,
    evidence=_links,
    settle=_if_any_links,
    unjudged=IGNORES_RELEVANCE,
)
def entity_f1(r: Ranked, k: Cut) -> Values:
    """F1 of the entities a system linked against the query's own."""
    if r.n and not r.target.entities:
        raise MissingInputError("EL_F1 needs each query's entities: give --queries with them")
    values = np.full(r.n, np.nan)
    for place, gold in enumerate(r.target.entities):
        if gold is not None:
            linked = set(r.predicted[place] or ()) if r.predicted else set()
            both, size = len(linked.intersection(gold)), len(set(gold)) + len(linked)
            values[place] = 2 * both / size if size else 1.0
    return values


def check_path(family: str, path: str) -> None:
    """Refuse a latency or cost that is not spelled out."""
    endings = ("p50", "p90", "p95", "p99", "mean")
    stage, _, ending = path.rpartition(".")
    if family == "latency" and (not stage or ending not in endings):
        raise UsageError(
            f"latency.{path} is not known; write latency.<stage>.<{'|'.join(endings)}>,"
            " such as latency.retrieve.p50"
        )
