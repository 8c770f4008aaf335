"""The smallest and largest value of a measure, found by trying out every labelling there is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import karat

Lists = Mapping[str, Sequence[str]]
Grades = Mapping[str, Mapping[str, float]]


def extremes(
    measure: str, run: Lists, gold: Grades, *, second: Lists | None = None, **options: Any
) -> dict[str, tuple[float, float]]:
    """For each query of the gold (low, high) of a measure; of second - run where there is one.

    ``options`` are those of ``evaluate``: profile, settings; ``own_k`` gives queries their k.
    NaN where a query has no value as things stand.
    """
    return all_extremes([measure], run, gold, second=second, **options)[measure]


def all_extremes(
    measures: Sequence[str],
    run: Lists,
    gold: Grades,
    *,
    second: Lists | None = None,
    **options: Any,
) -> dict[str, dict[str, tuple[float, float]]]:
    """The extremes of several measures, which share the work."""
    runs = [run] if second is None else [run, second]
    # Every labelling is a query of its own, so that one evaluation tries them all.
    owner, golds = [], {}
    for query in gold:
        items = _unjudged(runs, gold, query)
        for labels in itertools.product(_scale(gold), repeat=len(items)):
            name = f"{query}#{len(owner)}"
            owner.append(query)
            golds[name] = {**gold[query], **dict(zip(items, labels, strict=True))}
    of = dict(zip(golds, owner, strict=True))
    lists = [{name: one[of[name]] for name in golds if of[name] in one} for one in runs]
    every = [_values(measures, one, golds, of, **options) for one in lists]
    now = [_values(measures, one, gold, {q: q for q in gold}, **options) for one in runs]
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for measure in measures:
        values: dict[str, list[float]] = {query: [] for query in gold}
        for name, query in of.items():
            values[query].append(_difference(every, measure, name))
        found[measure] = {
            query: (math.nan, math.nan)
            if math.isnan(_difference(now, measure, query))
            else (min(values[query]), max(values[query]))
            for query in gold
        }
    return found


def _unjudged(runs: Sequence[Lists], gold: Grades, query: str) -> list[str]:
    retrieved = itertools.chain.from_iterable(one.get(query, ()) for one in runs)
    return [item for item in dict.fromkeys(retrieved) if gold[query].get(item, -1) < 0]


def _scale(gold: Grades) -> list[float]:
    """0, 1 and so on up to the gold's best grade, and what the gold uses in between."""
    used = {grade for grades in gold.values() for grade in grades.values() if grade > 0}
    return sorted(used | {float(grade) for grade in range(int(max(used | {1})) + 1)})


def _values(
    measures: Sequence[str],
    run: Lists,
    gold: Grades,
    of: Mapping[str, str],
    *,
    own_k: Mapping[str, int] | None = None,
    **options: Any,
) -> dict[str, dict[str, float]]:
    if own_k is not None:
        asked = {name: {"text": name, "k": own_k[of[name]]} for name in gold}
        options["queries"] = karat.Queries.from_dict(asked)
    if not run:
        run = {next(iter(gold)): []}
    # The same list stands there once for each labelling, and is whole.
    options["settings"] = {**(options.get("settings") or {}), "short_lists": "complete"}
    scores = karat.evaluate(
        karat.Run.from_dict(run), karat.Gold.from_dict(gold), list(measures), **options
    )
    names = scores.query_ids
    spelled = dict(zip(measures, scores.measures, strict=True))
    return {m: dict(zip(names, scores.values(str(spelled[m])), strict=True)) for m in measures}


def _difference(
    sides: Sequence[Mapping[str, Mapping[str, float]]], measure: str, name: str
) -> float:
    values = [float(side[measure][name]) for side in sides]
    return values[0] if len(values) == 1 else values[1] - values[0]
