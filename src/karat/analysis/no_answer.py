"""Queries without an answer: how often something looks like evidence, and where to cut by score.

A threshold takes out what scores below it: false evidence of queries that have no answer, and
with it answers of queries that have one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.analysis.top_lists import SHOWN_ROWS, Ints, Mask, measured, share_of, top_lists
from karat.errors import MissingInputError
from karat.evaluation.stages import KEEP, Staged
from karat.measures.aggregates import Values
from karat.measures.names import parse_measure
from karat.measures.scores import Scores
from karat.pages.formatting import PART, figure, interval, percent, plural
from karat.pages.formatting import measured as mean_cell
from karat.pages.page import Grid, Section
from karat.pages.serialize import Record
from karat.stats.distributions import tail

# Cells of a table of draws that are held at one time: few enough for the processor's cache.
_CELLS = 100_000


@dataclass(frozen=True, eq=False)
class Kinds:
    """Values that should stay (``wanted``, all finite), and values that should go (``unwanted``).

    The units say what is drawn at random: the query of each value, or its conversation.
    """

    wanted: Values
    unwanted: Values
    wanted_unit: Ints
    unwanted_unit: Ints

    def kept(self, threshold: float) -> tuple[Mask, Mask]:
        """Return which values of both kinds a threshold keeps."""
        return self.wanted >= threshold, self.unwanted >= threshold

    @property
    def area(self) -> float:
        """The chance that a wanted value lies above an unwanted one; equal ones count half."""
        ordered = np.sort(self.unwanted)
        below = np.searchsorted(ordered, self.wanted, "left").sum()
        up_to = np.searchsorted(ordered, self.wanted, "right").sum()
        return float(below + up_to) / (2 * len(self.wanted) * len(self.unwanted))


@dataclass(frozen=True)
class Cut:
    """A threshold, and the gap it lies in: all above ``above`` and up to ``up_to`` do the same.

    ``above`` is None where no value lies below the gap.
    """

    threshold: float
    above: float | None
    up_to: float


@dataclass(frozen=True, eq=False)
class Redrawn:
    """What happens when units are drawn again: one entry a resample.

    ``threshold`` is chosen anew, ``new_wanted`` and ``new_unwanted`` are the shares that it keeps
    of the units that were not drawn, hence had no part in its choice; NaN where every unit of
    the kind was drawn.
    """

    threshold: Values
    new_wanted: Values
    new_unwanted: Values


def best_cut(kinds: Kinds) -> Cut:
    """Return the middle of the gap with the highest J, of several such gaps the lowest.

    Where nothing lies below the gap, the threshold is its upper end, a wanted value.

    >>> none = np.arange(3)
    >>> best_cut(Kinds(np.array([9.0, 8.0, 3.0]), np.array([5.0, 1.0, 4.0]), none, none))
    Cut(threshold=6.5, above=5.0, up_to=8.0)
    """
    line = _Line(kinds)
    once = [np.ones((1, len(unit)), dtype=np.int64) for unit in line.units]
    above, up_to = (float(ends[0]) for ends in line.gaps(*once))
    threshold = float(_middle(np.array([above]), np.array([up_to]))[0])
    return Cut(threshold, above if np.isfinite(above) else None, up_to)


def redraw(kinds: Kinds, *, resamples: int, seed: int) -> Redrawn:
    """Draw the units again and choose the threshold anew, each time.

    Units that bring only wanted values, only unwanted ones and both are drawn apart, so that
    every resample has as many of each as the sample.
    """
    line = _Line(kinds)
    parts = []
    for counts in _drawn(kinds, resamples, seed):
        weights = [counts[:, unit] for unit in line.units]
        threshold = _middle(*line.gaps(*weights))
        kept = [one >= threshold[:, None] for one in (line.wanted, line.unwanted)]
        left = [_share(own == 0, stay) for own, stay in zip(weights, kept, strict=True)]
        parts.append((threshold, *left))
    return Redrawn(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _middle(above: Values, up_to: Values) -> Values:
    """Return the middle of each gap; its upper end where the gap has no lower one or no room."""
    middle = above / 2 + up_to / 2
    return np.where(np.isfinite(above) & (middle > above) & (middle <= up_to), middle, up_to)


class _Line:
    """Both kinds of values from the highest to the lowest, and the thresholds among them."""

    def __init__(self, kinds: Kinds) -> None:
        orders = [np.argsort(-one, kind="stable") for one in (kinds.wanted, kinds.unwanted)]
        self.wanted, self.unwanted = kinds.wanted[orders[0]], kinds.unwanted[orders[1]]
        _, unit = np.unique(
            np.concatenate((kinds.wanted_unit, kinds.unwanted_unit)), return_inverse=True
        )
        split = len(kinds.wanted)
        self.units = unit[:split][orders[0]], unit[split:][orders[1]]
        # J falls when a threshold goes down past unwanted values only: these need not be tried.
        self.values = np.unique(self.wanted)[::-1]
        self.reach = [
            np.searchsorted(-one, -self.values, side="right")
            for one in (self.wanted, self.unwanted)
        ]

    def gaps(self, wanted: Ints, unwanted: Ints) -> tuple[Values, Values]:
        """For each row of weights both ends of the best gap; the lower is -inf if there is none."""
        chosen = self.choose(wanted, unwanted)
        below = [
            _highest_drawn(values, weights, reach[chosen])
            for values, weights, reach in zip(
                (self.wanted, self.unwanted), (wanted, unwanted), self.reach, strict=True
            )
        ]
        return np.maximum(*below), self.values[chosen]

    def choose(self, wanted: Ints, unwanted: Ints) -> Ints:
        """For each row of weights the place of the best threshold, in whole numbers."""
        kept, false = (
            _from_the_top(weights)[:, reach]
            for weights, reach in zip((wanted, unwanted), self.reach, strict=True)
        )
        gain = kept * unwanted.sum(axis=1)[:, None] - false * wanted.sum(axis=1)[:, None]
        # A value that was not drawn is no threshold.
        gain[np.diff(kept, axis=1, prepend=0) == 0] = np.iinfo(np.int64).min
        lowest: Ints = len(self.values) - 1 - np.argmax(gain[:, ::-1], axis=1)
        return lowest


def _highest_drawn(values: Values, weights: Ints, start: Ints) -> Values:
    """For each row the first value from ``start`` on that has a weight; -inf if none has."""
    there = (weights > 0) & (np.arange(len(values)) >= start[:, None])
    highest: Values = np.where(there.any(axis=1), values[there.argmax(axis=1)], -np.inf)
    return highest


def _from_the_top(weights: Ints) -> Ints:
    """For each row the weight of the first 0, 1, 2, … values."""
    sums = np.zeros((len(weights), weights.shape[1] + 1), dtype=np.int64)
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums


def _share(weights: Ints | Mask, kept: Mask) -> Values:
    total = weights.sum(axis=1)
    share = np.full(len(total), np.nan)
    some = total > 0
    share[some] = (weights * kept).sum(axis=1)[some] / total[some]
    return share


def _drawn(kinds: Kinds, resamples: int, seed: int) -> Iterator[Ints]:
    """Yield how often each unit is drawn, in chunks of (resamples, units)."""
    units, member = np.unique(
        np.concatenate((kinds.wanted_unit, kinds.unwanted_unit)), return_inverse=True
    )
    n, split = len(units), len(kinds.wanted)
    has = [np.bincount(part, minlength=n) > 0 for part in (member[:split], member[split:])]
    strata = [np.flatnonzero(one) for one in (has[0] & ~has[1], ~has[0] & has[1], has[0] & has[1])]
    rng = np.random.default_rng([seed, n])
    at_once = max(1, _CELLS // n)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        counts = np.zeros((size, n), dtype=np.int64)
        for stratum in strata:
            m = len(stratum)
            if m:
                drawn = rng.integers(0, m, size=(size, m)) + np.arange(size)[:, None] * m
                tally = np.bincount(drawn.ravel(), minlength=size * m)
                counts[:, stratum] = tally.reshape(size, m)
        yield counts


# So many points of the sweep a document has at most, beside the thresholds that it names.
MOST_POINTS = 50
# Best hits that share one score in so large a part of the queries were made equal.
_ALIKE, _FEWEST = 0.9, 3
# A threshold that takes out nothing; where nothing came back, nothing is above it either.
_LOWEST = -float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class NoAnswer(Record):
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


def no_answer_measures(k: int = KEEP, *, keep: float = 0.95) -> list[str]:
    """Return what the run must be scored by."""
    return [_measure(k, keep)]


def no_answer(staged: Staged, *, k: int = KEEP, keep: float = 0.95) -> NoAnswer:
    """Return false evidence and kept answers in the top k, at every score threshold."""
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
        """Return the threshold of the measure: it keeps this share of all gold in the top k."""
        kept = math.ceil(round(share * len(self.gold), 9))
        return float(np.sort(self.gold)[-kept])

    def at(self, threshold: float) -> dict[str, Any]:
        """Return the shares that a threshold keeps, with the intervals that any share has."""
        kept, false = self.kinds.kept(threshold)
        answered = np.isin(self.answerable, self.found[kept])
        return {
            "kept": share_of(kept.astype(np.float64), self.scores, self.found),
            "answered": share_of(answered.astype(np.float64), self.scores, self.answerable),
            "false_evidence": share_of(false.astype(np.float64), self.scores, self.without),
        }


def _answerable(staged: Staged) -> Mask:
    """Return the queries with gold and not marked; those without a result count unless left out."""
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
    """Return the shares kept from the lowest threshold to the highest, thinned evenly."""
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
    text = "The shares at the best threshold are those of the queries that chose it, hence"
    notes = [f"{text} optimistic; corrected are those of queries that a resample left out."]
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
    """Return the score that nearly all best hits have, and their share; None where they differ."""
    if len(best_hits) < _FEWEST:
        return None
    values, counts = np.unique(best_hits, return_counts=True)
    share = float(counts.max()) / len(best_hits)
    return (float(values[counts.argmax()]), share) if share >= _ALIKE else None


def no_answer_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections: false evidence and kept answers by threshold."""
    best, keep = document["best"], document["keep"]
    grid = [["what", "threshold", "false evidence", "kept", "answered"]]
    grid.append(_threshold_row("no threshold", {"threshold": None, **document["without"]}))
    grid.append(_threshold_row("best", best))
    new = [f"{figure(best[name]['corrected'])}{PART}" for name in ("false_evidence", "kept")]
    grid.append(["  corrected", "", *new, ""])
    grid.append(_threshold_row(f"keeps {percent(keep['share'])} of gold", keep))
    sections = [Section("Queries without an answer", grid, _no_answer_notes(document))]
    if len(document["sweep"]) > 1:
        sections.append(Section("False evidence by threshold", _threshold_grid(document)))
    return sections


def _threshold_row(name: str, cut: Mapping[str, Any]) -> list[str]:
    cells = [mean_cell(cut[key]) for key in ("false_evidence", "kept", "answered")]
    return [name, f"{figure(cut['threshold'])}{PART}{interval(cut.get('ci'))}", *cells]


def _no_answer_notes(document: Mapping[str, Any]) -> list[str]:
    counts, best = document["counts"], document["best"]
    asked = plural(counts["no_answer"], "query", "queries")
    asked += f" without an answer · {counts['answerable']:,} with one, {counts['found']:,} of them"
    area = f"in {percent(document['area'])} of all pairs of the two kinds of queries the best gold"
    lines = [
        f"{asked} with gold in the top {document['k']}",
        f"{area} scores above what the query without an answer got",
    ]
    low = "" if best["above"] is None else f"above {figure(best['above'])} and "
    lines.append(f"any threshold {low}up to {figure(best['up_to'])} does the same as the best")
    return [*lines, *document["notes"]]


def _threshold_grid(document: Mapping[str, Any]) -> Grid:
    named = {document["best"]["threshold"], document["keep"]["threshold"]}
    points = document["sweep"]
    shown = {round(n * (len(points) - 1) / (SHOWN_ROWS - 1)) for n in range(SHOWN_ROWS)}
    grid = [["threshold", "false evidence", "kept", "answered"]]
    for at, point in enumerate(points):
        if at in shown or point["threshold"] in named:
            grid.append(
                [
                    figure(point[name])
                    for name in ("threshold", "false_evidence", "kept", "answered")
                ]
            )
    return grid
