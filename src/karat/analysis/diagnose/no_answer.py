"""Queries without an answer: how often results look like evidence, and a score threshold.

A threshold removes hits with lower scores: false evidence for queries without an answer, and also
answers of other queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from karat.analysis import SystemAnalysis
from karat.errors import MissingInputError
from karat.evaluation.stages import KEEP, Staged
from karat.evaluation.top_lists import (
    SHOWN_ROWS,
    Ints,
    Mask,
    measured,
    share_of,
    top_lists,
    unanswered,
)
from karat.measure.aggregates import Values
from karat.measure.names import parse_measure
from karat.measure.scores import Scores
from karat.pages.formatting import NOTHING, PART, figure, interval, percent, plural
from karat.pages.page import Section, TableColumns, table
from karat.stats.distributions import tail

# The most points of the sweep in a document, besides the named thresholds.
MOST_POINTS = 50
# Cells of a table of draws that are held at one time: few enough for the processor's cache.
_CELLS = 100_000
# If this share of the queries has the same best score, scores were normalised per query.
_ALIKE, _FEWEST = 0.9, 3
# A threshold that removes nothing; an empty list has nothing above it.
_LOWEST = -float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class EvidenceScores:
    """Scores to keep (``wanted``, all finite), and scores to remove.

    The units say what is drawn at random: the query of each score, or its conversation.
    """

    wanted: Values
    unwanted: Values
    wanted_unit: Ints
    unwanted_unit: Ints

    def kept(self, threshold: float) -> tuple[Mask, Mask]:
        """Return which scores of both kinds a threshold keeps."""
        return self.wanted >= threshold, self.unwanted >= threshold

    @property
    def area(self) -> float:
        """The chance that a wanted score lies above an unwanted one; equal ones count half."""
        ordered = np.sort(self.unwanted)
        below = np.searchsorted(ordered, self.wanted, "left").sum()
        up_to = np.searchsorted(ordered, self.wanted, "right").sum()
        return float(below + up_to) / (2 * len(self.wanted) * len(self.unwanted))

    @cached_property
    def units(self) -> Ints:
        """The number of each score's unit, wanted scores first."""
        both = np.concatenate((self.wanted_unit, self.unwanted_unit))
        return np.unique(both, return_inverse=True)[1].astype(np.int64)


class ScoreThreshold(NamedTuple):
    """A threshold and its gap: all thresholds above ``above`` and up to ``up_to`` do the same.

    ``above`` is None where no score lies below the gap.
    """

    threshold: float
    above: float | None
    up_to: float


def best_threshold(scores: EvidenceScores) -> ScoreThreshold:
    """Return the middle of the gap with the highest Youden's J, of several the lowest.

    Where nothing lies below the gap, the threshold is its upper end, a wanted score.

    >>> none = np.arange(3)
    >>> best_threshold(
    ...     EvidenceScores(np.array([9.0, 8.0, 3.0]), np.array([5.0, 1.0, 4.0]), none, none)
    ... )
    ScoreThreshold(threshold=6.5, above=5.0, up_to=8.0)
    """
    ordered = _OrderedScores(scores)
    once = np.ones((1, int(scores.units.max()) + 1), dtype=np.int64)
    above, up_to = ordered.gaps(once)
    threshold = float(_middle(above, up_to)[0])
    low = float(above[0])
    return ScoreThreshold(threshold, low if np.isfinite(low) else None, float(up_to[0]))


def redraw(scores: EvidenceScores, *, resamples: int, seed: int) -> tuple[Values, Values, Values]:
    """Draw the units again and choose the threshold anew, each time.

    Returns the threshold of each resample, and the shares of wanted and unwanted scores that it
    keeps of the units that were not drawn, so did not influence the choice; NaN where every unit
    of the kind was drawn. Units that bring only wanted scores, only unwanted ones and both are
    drawn separately, so that every resample has as many of each as the sample.
    """
    ordered = _OrderedScores(scores)
    parts = []
    for counts in _drawn(scores, resamples, seed):
        threshold = _middle(*ordered.gaps(counts))
        left_out = counts[:, ordered.unit] == 0
        kept = ordered.scores >= threshold[:, None]
        shares = [_share(left_out & kind, kept) for kind in (ordered.wanted, ~ordered.wanted)]
        parts.append((threshold, *shares))
    threshold, wanted, unwanted = (np.concatenate(column) for column in zip(*parts, strict=True))
    return threshold, wanted, unwanted


def _middle(above: Values, up_to: Values) -> Values:
    """Return the middle of each gap; its upper end where the gap has no lower one or no room."""
    middle = above / 2 + up_to / 2
    return np.where(np.isfinite(above) & (middle > above) & (middle <= up_to), middle, up_to)


def _share(whole: Mask, kept: Mask) -> Values:
    total = whole.sum(axis=1)
    share = np.full(len(total), np.nan)
    np.divide((whole & kept).sum(axis=1), total, out=share, where=total > 0)
    return share


class _OrderedScores:
    """Scores of both kinds from the highest to the lowest, and the thresholds among them."""

    def __init__(self, scores: EvidenceScores) -> None:
        both = np.concatenate((scores.wanted, scores.unwanted))
        order = np.argsort(-both, kind="stable")
        self.scores = both[order]
        self.wanted: Mask = order < len(scores.wanted)
        self.unit = scores.units[order]
        self.first = np.flatnonzero(np.append(True, self.scores[1:] != self.scores[:-1]))

    def gaps(self, counts: Ints) -> tuple[Values, Values]:
        """Return both ends of the best gap for each row of counts of units.

        The lower end is -inf if there is none.
        """
        drawn = counts[:, self.unit]
        wanted, unwanted = (
            np.add.reduceat(drawn * kind, self.first, axis=1)
            for kind in (self.wanted, ~self.wanted)
        )
        kept, false = np.cumsum(wanted, axis=1), np.cumsum(unwanted, axis=1)
        # Youden's J in whole numbers.
        gain = kept * false[:, -1:] - false * kept[:, -1:]
        # J falls past unwanted scores, and a score that was not drawn is no threshold.
        gain[wanted == 0] = np.iinfo(np.int64).min
        lowest = gain.shape[1] - 1 - np.argmax(gain[:, ::-1], axis=1)
        below = (wanted + unwanted > 0) & (np.arange(gain.shape[1]) > lowest[:, None])
        values = self.scores[self.first]
        above = np.where(below.any(axis=1), values[below.argmax(axis=1)], -np.inf)
        return above, values[lowest]


def _drawn(scores: EvidenceScores, resamples: int, seed: int) -> Iterator[Ints]:
    """Yield how often each unit is drawn, in chunks of (resamples, units)."""
    unit, split = scores.units, len(scores.wanted)
    n = int(unit.max()) + 1
    wanted, unwanted = (np.bincount(part, minlength=n) > 0 for part in (unit[:split], unit[split:]))
    strata = [wanted & ~unwanted, ~wanted & unwanted, wanted & unwanted]
    rng = np.random.default_rng([seed, n])
    at_once = max(1, _CELLS // n)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        counts = np.zeros((size, n), dtype=np.int64)
        for stratum in filter(np.any, strata):
            m = int(stratum.sum())
            drawn = rng.integers(0, m, size=(size, m)) + np.arange(size)[:, None] * m
            tally = np.bincount(drawn.ravel(), minlength=size * m)
            counts[:, stratum] = tally.reshape(size, m)
        yield counts


def no_answer_measures(k: int = KEEP, *, keep: float = 0.95) -> list[str]:
    """Return what the run must be scored by."""
    return [f"FalseEvidence(keep={keep!r})@{k}"]


def no_answer(staged: Staged, *, k: int = KEEP, keep: float = 0.95) -> SystemAnalysis:
    """Return false evidence and kept answers in the top k, at every score threshold.

    ``kept`` is of the answerable queries with gold in their top k those that keep some of it,
    ``answered`` the same of all answerable queries, ``false_evidence`` of the queries without
    an answer those with anything left. ``best`` is the threshold with the largest kept less
    false evidence: the middle between ``above`` and ``up_to``, since all in this gap do the
    same. ``keep`` is the one of the measure, ``without`` no threshold at all.
    """
    scores = staged.final
    if not staged.gold.no_answer.any():
        raise MissingInputError("no query is marked no_answer: give --queries with that column")
    (name,) = no_answer_measures(k, keep=keep)
    measure = measured(scores, name)["measure"]
    queries = _ScoredQueries.of(staged, k, measure)
    best = best_threshold(queries.evidence)
    # The threshold of the measure keeps this share of all gold in the top k.
    kept_count = math.ceil(round(keep * len(queries.gold), 9))
    keeping = float(np.sort(queries.gold)[-kept_count])
    document = {
        "k": k,
        "counts": queries.counts,
        "area": queries.evidence.area,
        "without": queries.at(_LOWEST),
        "best": _best(queries, best),
        "keep": {
            "measure": str(parse_measure(name)),
            "share": keep,
            "threshold": keeping,
            "gold": float((queries.gold >= keeping).mean()),
            **queries.at(keeping),
        },
        "sweep": _sweep(queries, (best.threshold, keeping)),
        "resamples": scores.conventions.boot,
        "notes": list(_notes(queries)),
    }
    return SystemAnalysis(document, no_answer_sections)


@dataclass(frozen=True, eq=False)
class _ScoredQueries:
    """The usable queries, with the best score of their gold or of any hit.

    ``gold`` are the scores of all gold in the top k, ``found`` the rows of the queries with gold
    there, ``answerable`` all that have an answer. A query without an answer which the run does
    not answer either has an infinite score: its results are unknown.
    """

    scores: Scores
    gold: Values
    evidence: EvidenceScores
    found: Ints
    answerable: Ints
    without: Ints
    best_hits: Values

    @classmethod
    def of(cls, staged: Staged, k: int, measure: str) -> _ScoredQueries:
        scores, gold = staged.final, staged.gold
        evidence, values = scores.evidence[measure], scores.values(measure)
        if not len(evidence.query):
            raise MissingInputError(
                f"no answerable query has gold in its top {k}, so there is no threshold to try"
            )
        top = top_lists(scores, gold, k)
        if top["score"].null_count():
            raise MissingInputError("some hits have no score; a threshold needs one for each")
        best, best_gold = np.full(len(values), -np.inf), np.full(len(values), -np.inf)
        np.maximum.at(best, top["row"].to_numpy(), top["score"].to_numpy())
        np.maximum.at(best_gold, evidence.query, evidence.value)
        # The measure counts what was not answered as false evidence at every threshold.
        best[gold.no_answer & np.isneginf(best) & (values == 1)] = np.inf
        without = np.flatnonzero(gold.no_answer & ~np.isnan(values))
        if not len(without):
            raise MissingInputError("no query marked no_answer is in the run, and missing=skip")
        gold_rows = np.flatnonzero(np.isfinite(best_gold))
        units = np.arange(len(values)) if scores.groups is None else scores.groups
        relevant = gold.target(np.arange(len(values))).relevant(scores.conventions.rel) > 0
        answerable = ~gold.no_answer & relevant
        if scores.conventions.missing == "skip":
            answerable &= ~unanswered(scores)
        return cls(
            scores,
            evidence.value,
            EvidenceScores(best_gold[gold_rows], best[without], units[gold_rows], units[without]),
            gold_rows,
            np.flatnonzero(answerable),
            without,
            best[np.isfinite(best)],
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many queries of each kind there are."""
        return {
            "no_answer": len(self.without),
            "unanswered": int(np.isposinf(self.evidence.unwanted).sum()),
            "answerable": len(self.answerable),
            "found": len(self.found),
        }

    def at(self, threshold: float) -> dict[str, Any]:
        """Return the shares that a threshold keeps, with the intervals that any share has."""
        kept, false = self.evidence.kept(threshold)
        answered = np.isin(self.answerable, self.found[kept])
        shares = {
            "kept": (kept, self.found),
            "answered": (answered, self.answerable),
            "false_evidence": (false, self.without),
        }
        return {
            name: share_of(mask.astype(np.float64), self.scores, rows)
            for name, (mask, rows) in shares.items()
        }


def _best(queries: _ScoredQueries, best: ScoreThreshold) -> dict[str, Any]:
    """Return the best threshold, and its shares with those of queries that did not choose it.

    Its interval is where resamples put it, and at least the whole gap, which does the same here.
    """
    conventions = queries.scores.conventions
    drawn, *new = redraw(queries.evidence, resamples=conventions.boot, seed=conventions.seed)
    shares = queries.at(best.threshold)
    for name, values in zip(("kept", "false_evidence"), new, strict=True):
        known = values[~np.isnan(values)]
        shares[name]["corrected"] = float(known.mean()) if len(known) else None
    ci = None
    if min(len(queries.found), len(queries.without)) > 1 and conventions.interval != "none":
        outside = tail(conventions.ci)
        low, high = np.quantile(drawn, [outside, 1 - outside]).tolist()
        above = best.up_to if best.above is None else best.above
        ci = [min(low, above), max(high, best.up_to)]
    return {
        **best._asdict(),
        "ci": ci,
        "youden": shares["kept"]["mean"] - shares["false_evidence"]["mean"],
        **shares,
    }


def _sweep(queries: _ScoredQueries, named: Sequence[float]) -> list[dict[str, float]]:
    """Return the shares kept from the lowest threshold to the highest, thinned evenly."""
    evidence = queries.evidence
    values = np.concatenate((evidence.wanted, evidence.unwanted))
    values = np.unique(values[np.isfinite(values)])
    if len(values) > MOST_POINTS:
        values = values[np.linspace(0, len(values) - 1, MOST_POINTS).round().astype(np.int64)]
    points = []
    for threshold in np.union1d(values, named).tolist():
        kept, false = (int(mask.sum()) for mask in evidence.kept(threshold))
        points.append(
            {
                "threshold": threshold,
                "kept": kept / len(evidence.wanted),
                "answered": kept / len(queries.answerable),
                "false_evidence": false / len(evidence.unwanted),
            }
        )
    return points


def _notes(queries: _ScoredQueries) -> Iterator[str]:
    yield (
        "The shares at the best threshold are optimistic, since the same queries chose it;"
        " corrected are those of queries that a resample left out."
    )
    if count := queries.counts["unanswered"]:
        yield (
            f"{count:,} without an answer are missing from the run or failed, and count as false"
            " evidence at every threshold."
        )
    best_hits = queries.best_hits
    values, counts = np.unique(best_hits, return_counts=True)
    share = counts.max(initial=0) / max(len(best_hits), 1)
    if len(best_hits) >= _FEWEST and share >= _ALIKE:
        yield (
            f"The best hit of {100 * share:.0f} % of the queries scores"
            f" {values[counts.argmax()]:g}: the scores look normalised query by query, so no"
            " threshold can tell whether there is an answer. Log the model's own scores."
        )
    if queries.scores.counts.order_conflicts > len(best_hits) / 2:
        yield "The scores rise down most lists, as distances do. Log them as similarities."


def no_answer_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections: false evidence and kept answers by threshold."""
    best, keep, counts, points = (document[n] for n in ("best", "keep", "counts", "sweep"))
    names = ("false_evidence", "kept", "answered")
    headers = {name.replace("_", " "): name for name in names}
    corrected = {name: {"mean": best[name]["corrected"], "ci": None} for name in names[:2]}
    rows = [
        {"what": "no threshold", **document["without"]},
        {"what": "best", **best},
        {"what": "  corrected", "answered": "", **corrected},
        {"what": f"keeps {percent(keep['share'])} of gold", **keep},
    ]
    columns: TableColumns = {"what": "what", "threshold": _threshold_cell, **headers}
    queries = plural(counts["no_answer"], "query", "queries")
    low = "" if best["above"] is None else f"above {figure(best['above'])} and "
    with_answer = f"{counts['answerable']:,} with one, {counts['found']:,} of them with gold"
    lines = [
        f"{queries} without an answer · {with_answer} in the top {document['k']}",
        f"gold scores above hits of a query without an answer in {percent(document['area'])}",
        f"any threshold {low}up to {figure(best['up_to'])} gives the same result as the best",
        *document["notes"],
    ]
    sections = [Section("Queries without an answer", table(rows, columns), lines)]
    if len(points) > 1:
        named = {best["threshold"], keep["threshold"]}
        shown = {round(n * (len(points) - 1) / (SHOWN_ROWS - 1)) for n in range(SHOWN_ROWS)}
        rows = [
            point
            for place, point in enumerate(points)
            if place in shown or point["threshold"] in named
        ]
        grid = table(rows, {"threshold": "threshold", **headers})
        sections.append(Section("False evidence by threshold", grid))
    return sections


def _threshold_cell(row: Mapping[str, Any]) -> str:
    if "threshold" not in row:
        return "" if row["answered"] == "" else NOTHING
    return f"{figure(row['threshold'])}{PART}{interval(row.get('ci'))}"
