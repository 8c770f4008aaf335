"""A judge's labels beside the gold: precision and nDCG on gold alone, and on both.

Hit and recall stay on gold: a judge's labels would inflate them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from karat.data.columns import Source
from karat.data.tables import Blocks, Gold, Run
from karat.errors import InputError, UsageError
from karat.evaluation.bounds import with_columns
from karat.formats.files import open_input
from karat.formats.labels import check_highest_grade, count_failed, no_grades_error
from karat.formats.readers import read_gold
from karat.formats.registry import detect_format
from karat.measure.aggregates import mean
from karat.measure.conventions import Conventions
from karat.measure.kernels.ranks import unjudged_share
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import is_budget
from karat.measure.score_builder import score
from karat.measure.scores import Scores, Summary

# Measures that labels can change.
JUDGEABLE = ("P", "nDCG")
SIDES = ("gold", "gold_and_judge")
_PAIR = ["query_id", "item_id"]
# Sums in another order differ by less than this.
_SAME = 1e-12


@dataclass(frozen=True, eq=False)
class Labelled:
    """Gold with labels where it has no judgment, and their counts.

    Of the ``counts``, ``added`` were put in, ``known`` have a judgment already, which stays, and
    ``elsewhere`` are of queries that have no relevant gold or are not asked: these take no part.
    ``failed`` are pairs that could not be judged, ``not_judged`` have a grade below 0: pooled, and
    nobody judged them.
    """

    gold: Gold
    labels: Source
    counts: Mapping[str, int]

    def to_dict(self) -> dict[str, int]:
        """Return the numbers of labels."""
        return dict(self.counts)


def with_labels(
    gold: Gold, labels: Gold, conventions: Conventions, *, query_ids: Sequence[str]
) -> Labelled:
    """Return the gold with a judge's labels, for those of the queries that a mean is over.

    These are the queries with anything relevant, by whatever grade a measure asks for, or all
    where a query without counts as 0.

    >>> gold = Gold.from_dict({"q1": {"a": 2, "b": 0}, "q2": {}})
    >>> labels = Gold.from_dict({"q1": {"b": 2, "c": 1}, "q2": {"d": 2}})
    >>> both = with_labels(gold, labels, Conventions(), query_ids=["q1", "q2"])
    >>> both.gold.frame.rows(), both.to_dict()
    ([('q1', 'a', 2.0), ('q1', 'b', 0.0), ('q1', 'c', 1.0)], \
{'added': 1, 'known': 1, 'elsewhere': 1, 'failed': 0, 'not_judged': 0})
    """
    if conventions.level != "item":
        raise InputError(
            f"labels are of items, and level={conventions.level} counts others; "
            "leave --judged out, or take gold of items",
            where=labels.source.name,
        )
    check_highest_grade(labels.frame["grade"], labels.source.name)
    graded = labels.frame.filter(pl.col("grade") >= 0)
    below = labels.frame.height - graded.height
    if below and not graded.height:
        raise no_grades_error(labels.source.name, not_judged=below)
    used = graded.select(*_PAIR, "grade").filter(pl.col("query_id").is_in(list(query_ids)))
    if conventions.empty_gold == "apart":
        relevant = gold.frame.filter(pl.col("grade") > 0)["query_id"].unique()
        used = used.filter(pl.col("query_id").is_in(relevant.implode()))
    judged = gold.frame.filter(pl.col("grade") >= 0)
    added = used.join(judged, on=_PAIR, how="anti", maintain_order="left")
    # A grade below 0 is not a judgment, so a label replaces it.
    unchanged = gold.frame.join(added, on=_PAIR, how="anti", maintain_order="left")
    frame = pl.concat([unchanged, added], how="diagonal")
    if "negative" in frame.columns:
        frame = frame.with_columns(pl.col("negative").fill_null(False))
    counts = {
        "added": added.height,
        "known": used.height - added.height,
        "elsewhere": graded.height - used.height,
        "failed": 0,
        "not_judged": below,
    }
    return Labelled(Gold(frame, gold.query_ids, source=gold.source), labels.source, counts)


def labels_of(path: str, gold: Gold, prepared: Prepared) -> Labelled:
    """Read a judge's labels and put them into the gold where it has no judgment."""
    if path == "-":
        raise UsageError("--judged is read twice, so it cannot be standard input; name a file")
    labels = read_gold(path)
    graded = detect_format(path, "gold").name != "labels"
    failed = 0 if graded else count_failed(open_input(path))
    labelled = with_labels(gold, labels, prepared.conventions, query_ids=prepared.query_ids)
    if not labelled.counts["added"] and not labelled.counts["known"]:
        raise InputError(
            "holds no label of a query that has gold; were these queries judged?", where=path
        )
    return replace(labelled, counts={**labelled.counts, "failed": failed})


def score_with_labels(run: Run | Blocks, gold: Prepared, measures: Sequence[Measure]) -> Scores:
    """Score a run by the measures that labels may move, on gold with labels."""
    movable = [measure for measure in measures if measure.name in JUDGEABLE]
    if not movable:
        raise UsageError("--judged is for P and nDCG; name one of them with -m, such as P@5")
    return score(run, gold, movable, derived=True)


def of_the_same_queries(on_both: Scores, on_gold: Scores) -> Scores:
    """Return scores with labels, of the queries that each measure scores on gold alone.

    A label brings no query into a mean: the two would be means of different queries.
    """
    columns = {
        name: np.where(np.isnan(on_gold.values(name)), np.nan, on_both.values(name))
        for name in map(str, on_both.measures)
    }
    return with_columns(on_both, columns)


def label_bounds(on_gold: Mapping[str, Summary], on_both: Scores) -> dict[str, dict[str, Any]]:
    """Return each measure on gold alone and with the labels, as plain data.

    Precision can only rise. nDCG may fall: more relevant items make a better ideal list.
    ``unjudged`` is the share of the top k that neither gold nor labels judge, the mean over
    queries; above 0, even gold and labels are incomplete. None without a cut-off.
    """
    bounds: dict[str, dict[str, Any]] = {}
    summaries = on_both.summaries
    for measure in on_both.measures:
        name = str(measure)
        sides = (on_gold[name], summaries[name])
        bounds[name] = {
            side: {"mean": summary.mean, "ci": summary.ci and list(summary.ci), "n": summary.n}
            for side, summary in zip(SIDES, sides, strict=True)
        }
        bounds[name]["unjudged"] = None
        if measure.k is not None and not is_budget(measure.k) and on_both.trace is not None:
            scored = ~np.isnan(on_both.values(name))
            bounds[name]["unjudged"] = mean(unjudged_share(on_both.trace.ranked, measure.k)[scored])
    return bounds


def reversed_by_labels(bounds: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return where labels reverse the order of two systems: by measure, what lies between them.

    ``bounds`` are those of each system by its name, in the order of a report.

    >>> sides = {"a": (0.5, 0.6), "b": (0.6, 0.5)}
    >>> bounds = {s: {"P@5": {"gold": {"mean": g}, "gold_and_judge": {"mean": j}}}
    ...     for s, (g, j) in sides.items()}
    >>> [(row["baseline"], row["system"], row["measure"]) for row in reversed_by_labels(bounds)]
    [('a', 'b', 'P@5')]
    """
    reversals = []
    for (baseline, old), (system, new) in combinations(bounds.items(), 2):
        for name in (name for name in old if name in new):
            deltas = {}
            for side in SIDES:
                before, after = old[name][side]["mean"], new[name][side]["mean"]
                deltas[side] = 0.0 if before is None or after is None else float(after - before)
            if min(deltas.values()) < -_SAME and max(deltas.values()) > _SAME:
                row = {"measure": name, "baseline": baseline, "system": system, **deltas}
                reversals.append(row)
    return reversals
