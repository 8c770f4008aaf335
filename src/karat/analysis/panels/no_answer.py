"""Queries without an answer: how often something looks like evidence, and where to cut by score.

A threshold takes out what scores below it: false evidence of queries that have no answer, and
with it answers of queries that have one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.analysis.panels.cut_points import Cut, Kinds, Redrawn, best_cut, redraw
from karat.analysis.panels.top_lists import Ints, Mask, measured, share_of, top_lists
from karat.analysis.staged import KEEP, Staged
from karat.errors import MissingInputError
from karat.measures.names import parse_measure
from karat.measures.numbers import Values
from karat.measures.results import Scores
from karat.stats.quantiles import tail

# So many points of the sweep a document has at most, beside the thresholds that it names.
MOST_POINTS = 50
# Best hits that share one score in so large a part of the queries were made equal.
_ALIKE, _FEWEST = 0.9, 3
# A threshold that takes out nothing; where nothing came back, nothing is above it either.
_LOWEST = -float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class NoAnswer:
    """What scores can tell of whether there is an answer.

    ``kept`` is of the answerable queries with gold in their top k those that keep some of it,
    ``answered`` the same of all answerable queries, ``false_evidence`` of the queries without
    an answer those with anything left. ``best`` is the threshold with the largest kept less
    false evidence: the middle between ``above`` and ``up_to``, since all in this gap do the
    same. ``keep`` is the one of the measure, ``without`` no threshold at all.
    """

    k: int
    counts: Mapping[str, int]
    area: float
    without: Mapping[str, Any]
    best: Mapping[str, Any]
    keep: Mapping[str, Any]
    sweep: Sequence[Mapping[str, float]]
    resamples: int
    notes: Sequence[str]

    def document(self) -> dict[str, Any]:
        """The analysis as it stands in a report."""
        return {
            "k": self.k,
            "counts": dict(self.counts),
            "area": self.area,
            "without": dict(self.without),
            "best": dict(self.best),
            "keep": dict(self.keep),
            "sweep": [dict(point) for point in self.sweep],
            "resamples": self.resamples,
            "notes": list(self.notes),
        }


def no_answer_measures(k: int = KEEP, *, keep: float = 0.95) -> list[str]:
    """What the run must be scored by."""
    return [_measure(k, keep)]


def no_answer(staged: Staged, *, k: int = KEEP, keep: float = 0.95) -> NoAnswer:
    """False evidence and kept answers over all thresholds on the score, in the top k."""
    scores = staged.final
    if not staged.gold.no_answer.any():
        raise MissingInputError("no query is marked no_answer: give --queries with that column")
    measured(scores, _measure(k, keep))
    asked = _Asked.of(staged, k, _measure(k, keep))
    redrawn = redraw(asked.kinds, resamples=scores.conventions.boot, seed=scores.conventions.seed)
    best, wanted = best_cut(asked.kinds), asked.threshold_keeping(keep)
    return NoAnswer(
        k=k,
        counts=asked.counts,
        area=asked.kinds.area,
        without=asked.at(_LOWEST),
        best=_best(asked, best, redrawn, scores),
        keep={
            "measure": str(parse_measure(_measure(k, keep))),
            "share": keep,
            "threshold": wanted,
            "gold": float((asked.gold >= wanted).mean()),
            **asked.at(wanted),
        },
        sweep=_sweep(asked, (best.threshold, wanted)),
        resamples=scores.conventions.boot,
        notes=_notes(asked, scores),
    )


def _measure(k: int, keep: float) -> str:
    return f"FalseEvidence(keep={keep!r})@{k}"


@dataclass(frozen=True, eq=False)
class _Asked:
    """The queries that tell something, by the best score of gold or of anything.

    ``gold`` are the scores of all gold in the top k, ``found`` the rows of the queries that have
    some, ``answerable`` all that have an answer. A query without an answer which the run does
    not answer either has an infinite score: nobody knows what it would have returned.
    """

    scores: Scores
    gold: Values
    kinds: Kinds
    found: Ints
    answerable: Ints
    without: Ints
    best_hits: Values

    @classmethod
    def of(cls, staged: Staged, k: int, measure: str) -> _Asked:
        scores, gold = staged.final, staged.gold
        name = str(parse_measure(measure, conventions=scores.conventions))
        evidence, settled = scores.evidence[name], scores.values(name)
        if not len(evidence.query):
            raise MissingInputError(
                f"no answerable query has gold in its top {k}, so no threshold can be tried on it"
            )
        best, best_gold = np.full(len(settled), -np.inf), np.full(len(settled), -np.inf)
        top = top_lists(scores, gold, k)
        if top["score"].null_count():
            raise MissingInputError("some hits have no score; a threshold needs one for each")
        np.maximum.at(best, top["row"].to_numpy(), top["score"].to_numpy())
        np.maximum.at(best_gold, evidence.query, evidence.value)
        # The measure counts what was not answered as false evidence, whatever the threshold.
        best[gold.no_answer & np.isneginf(best) & (settled == 1)] = np.inf
        without = np.flatnonzero(gold.no_answer & ~np.isnan(settled))
        if not len(without):
            raise MissingInputError("no query marked no_answer is in the run, and missing=skip")
        found = np.flatnonzero(np.isfinite(best_gold))
        units = np.arange(len(settled)) if scores.groups is None else scores.groups
        kinds = Kinds(best_gold[found], best[without], units[found], units[without])
        return cls(
            scores,
            evidence.value,
            kinds,
            found,
            np.flatnonzero(_answerable(staged)),
            without,
            best[np.isfinite(best)],
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many queries of each kind there are."""
        return {
            "no_answer": len(self.without),
            "unanswered": int(np.isposinf(self.kinds.unwanted).sum()),
            "answerable": len(self.answerable),
            "found": len(self.found),
        }

    def threshold_keeping(self, share: float) -> float:
        """The threshold of the measure: it keeps this share of all gold in the top k."""
        kept = math.ceil(round(share * len(self.gold), 9))
        return float(np.sort(self.gold)[-kept])

    def at(self, threshold: float) -> dict[str, Any]:
        """The shares that a threshold keeps, with the intervals that any share has."""
        kept, false = self.kinds.kept(threshold)
        answered = np.isin(self.answerable, self.found[kept])
        return {
            "kept": share_of(kept.astype(np.float64), self.scores, self.found),
            "answered": share_of(answered.astype(np.float64), self.scores, self.answerable),
            "false_evidence": share_of(false.astype(np.float64), self.scores, self.without),
        }


def _answerable(staged: Staged) -> Mask:
    """The queries with gold and not marked; those without a result count unless left out."""
    scores = staged.final
    everyone = staged.gold.target(np.arange(scores.table.height))
    some = ~staged.gold.no_answer & (everyone.relevant(scores.conventions.rel) > 0)
    if scores.conventions.missing == "skip":
        some &= ~scores.status.is_in(["missing", "failed"]).to_numpy()
    return np.asarray(some)


def _best(asked: _Asked, cut: Cut, redrawn: Redrawn, scores: Scores) -> dict[str, Any]:
    """The best threshold, and its shares with those of queries that had no part in the choice."""
    told = asked.at(cut.threshold)
    told["kept"]["corrected"] = _corrected(redrawn.new_wanted)
    told["false_evidence"]["corrected"] = _corrected(redrawn.new_unwanted)
    few = min(len(asked.found), len(asked.without)) < 2 or scores.conventions.interval == "none"
    return {
        "threshold": cut.threshold,
        "above": cut.above,
        "up_to": cut.up_to,
        "ci": None if few else _ends(cut, redrawn.threshold, scores),
        "youden": told["kept"]["mean"] - told["false_evidence"]["mean"],
        **told,
    }


def _corrected(new: Values) -> float | None:
    known = new[~np.isnan(new)]
    return float(known.mean()) if len(known) else None


def _ends(cut: Cut, drawn: Values, scores: Scores) -> list[float]:
    """Where resamples put the threshold, and at least the whole gap, which does the same here."""
    outside = tail(scores.conventions.ci)
    low, high = np.quantile(drawn, [outside, 1 - outside]).tolist()
    return [min(low, cut.up_to if cut.above is None else cut.above), max(high, cut.up_to)]


def _sweep(asked: _Asked, named: Sequence[float]) -> list[dict[str, float]]:
    """The shares kept from the lowest threshold to the highest, thinned evenly."""
    kinds = asked.kinds
    values = np.concatenate((kinds.wanted, kinds.unwanted))
    values = np.unique(values[np.isfinite(values)])
    if len(values) > MOST_POINTS:
        values = values[np.linspace(0, len(values) - 1, MOST_POINTS).round().astype(np.int64)]
    points = []
    for threshold in np.union1d(values, named).tolist():
        kept, false = (int(one.sum()) for one in kinds.kept(threshold))
        points.append(
            {
                "threshold": threshold,
                "kept": kept / len(kinds.wanted),
                "answered": kept / len(asked.answerable),
                "false_evidence": false / len(kinds.unwanted),
            }
        )
    return points


def _notes(asked: _Asked, scores: Scores) -> list[str]:
    told = "The shares at the best threshold are those of the queries that chose it, hence"
    notes = [f"{told} optimistic; corrected are those of queries that a resample left out."]
    if asked.counts["unanswered"]:
        notes.append(
            f"{asked.counts['unanswered']:,} without an answer are missing from the run or failed,"
            " and count as false evidence at every threshold."
        )
    if (alike := _alike(asked.best_hits)) is not None:
        score, share = alike
        notes.append(
            f"The best hit of {100 * share:.0f} % of the queries scores {score:g}: the scores look"
            " normalised query by query, and no threshold on them tells whether there is an"
            " answer. Log the scores as the model gave them."
        )
    if scores.counts.order_conflicts > len(asked.best_hits) / 2:
        notes.append(
            "The scores rise down most lists, as distances do; a threshold here keeps what scores"
            " at least so much. Log them as similarities."
        )
    return notes


def _alike(best_hits: Values) -> tuple[float, float] | None:
    """The score that nearly all best hits have, and their share; None where they differ."""
    if len(best_hits) < _FEWEST:
        return None
    values, counts = np.unique(best_hits, return_counts=True)
    share = float(counts.max()) / len(best_hits)
    return (float(values[counts.argmax()]), share) if share >= _ALIKE else None
