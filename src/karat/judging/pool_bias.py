"""Whether gold is fair to the runs it judges: what each loses, hides or gains by what is judged.

Leave-one-run-out (Zobel 1998), RBP residuals (Moffat and Zobel 2008), condensed lists (Sakai
2007) and Bpref (Buckley and Voorhees 2004). Nothing here is random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.errors import InputError, UsageError
from karat.judging.pool_findings import Bias, Change, LeftOut, SystemBias, Taus
from karat.judging.pool_lists import JudgedRun, fewer, judged_queries
from karat.judging.pool_orders import Turned, ranks, tau, turned
from karat.judging.pool_pairs import differences, ranks_that_weigh
from karat.judging.tops import PAIR
from karat.measures.conventions import Conventions
from karat.measures.names import Measure, parse_measure, parse_measures
from karat.measures.prepare import Prepared, prepare
from karat.measures.ranked import UNLIMITED, is_budget
from karat.measures.scores import score
from karat.tables import Blocks, Gold, Queries, Run

MEASURES = ("nDCG@10", "AP", "RBP")
# These say how much is judged, and would say it of itself.
_OF_JUDGMENTS = ("Judged", "Hole", "RBPres")
_BPREF = parse_measure("Bpref")


def bias_measures(
    texts: Sequence[str | Measure] | None, *, conventions: Conventions | None = None
) -> list[Measure]:
    """Read measures of ranks, one value a query; others are refused.

    >>> [str(one) for one in bias_measures(None)]
    ['nDCG@10', 'AP', 'RBP']
    """
    chosen = parse_measures(list(texts or MEASURES), conventions=conventions)
    for one in chosen:
        kind = one.definition
        whole = kind.needs or kind.evidence is not None or kind.cutoff == "path" or is_budget(one.k)
        if whole or kind.better == "none" or one.name in _OF_JUDGMENTS:
            raise UsageError(
                f"{one} is no measure of the ranks of relevant items, so gold is neither fair nor"
                f" unfair by it; take such as {', '.join(MEASURES)}, R@10 or RR"
            )
    return chosen


def pool_bias(
    runs: Mapping[str, Run | Blocks],
    gold: Sequence[Gold],
    *,
    depth: int,
    measures: Sequence[str | Measure] | None = None,
    queries: Queries | None = None,
    conventions: Conventions | None = None,
) -> Bias:
    """Ask whether gold is fair to every run, each pooled to ``depth``.

    Each run is looked at without the judgments of items in its top that no other run given has in
    its own: what a pool of the other runs would not have. That is so if the gold was pooled from
    these runs, so where many judgments are in no top of them nothing is concluded from it; such
    judgments always stay. Of a pair that several golds judge, the first one's judgment counts.

    >>> runs = {"a": Run.from_dict({"q": ["x", "y"]}), "b": Run.from_dict({"q": ["y", "z"]})}
    >>> bias = pool_bias(runs, [Gold.from_dict({"q": {"x": 1, "y": 1}})], depth=2, measures=["AP"])
    >>> bias.systems[0].left_out.measures["AP"].other
    0.5
    """
    conventions = conventions or Conventions()
    _check(runs, gold, depth, conventions)
    chosen = bias_measures(measures, conventions=conventions)
    residuals = [one for one in chosen if one.name == "RBP"] or [parse_measure("RBP")]
    whole, disagreeing = _together(gold)
    # The runs are asked about the judgments that they share, as far as they go.
    prepared = prepare(whole, replace(conventions, short_lists="complete"), queries=queries)
    wanted = list(dict.fromkeys([*chosen, *residuals, _BPREF]))
    keep = ranks_that_weigh(residuals)
    judged = [
        JudgedRun.of(name, score(run, prepared, wanted, keep=keep), prepared)
        for name, run in runs.items()
    ]
    left, condensed = _left_out(judged, chosen, depth), _condensed(judged, chosen)
    values = [one.now(_BPREF) for one in judged]
    places = ranks(values)
    systems = tuple(
        SystemBias(
            one.name,
            one.bands(depth),
            left[at] if left else None,
            {str(rbp): one.residual(rbp) for rbp in residuals},
            {name: own[at] for name, own in condensed.items()},
            (values[at], places[at]),
        )
        for at, one in enumerate(judged)
    )
    return Bias(
        depth,
        tuple(map(str, chosen)),
        _counted(prepared, judged, depth) | {"disagreeing": disagreeing},
        systems,
        {name: _all_taus(name, left, condensed) for name in map(str, chosen)},
        {str(one): _turned(systems, str(one), lower=_lower(one)) for one in chosen},
        {str(rbp): differences(rbp, judged, prepared) for rbp in residuals},
    )


def _check(
    runs: Mapping[str, Run | Blocks],
    gold: Sequence[Gold],
    depth: int,
    conventions: Conventions,
) -> None:
    if not runs:
        raise UsageError("a pool is made of runs; give at least one")
    if not gold:
        raise UsageError("there is no gold that could be fair or not; give at least one")
    if depth < 1:
        raise UsageError(f"depth is {depth}; it is at least 1")
    if conventions.level != "item":
        raise UsageError(f"level={conventions.level}: a pool is made of items, not of others")
    spans = next((one for one in gold if "start" in one.frame.columns), None)
    if spans is not None:
        raise InputError(
            "this gold holds character spans, which judge no item; give the judgments of items",
            where=spans.source.name,
        )


def _together(gold: Sequence[Gold]) -> tuple[Gold, int]:
    """All judgments, the first of each pair, and how many pairs are judged differently."""
    rows = pl.concat([one.frame.select(*PAIR, "grade") for one in gold])
    differ = rows.group_by(PAIR).agg(pl.col("grade").n_unique()).filter(pl.col("grade") > 1)
    first = rows.unique(subset=PAIR, keep="first", maintain_order=True)
    ids = tuple(dict.fromkeys(query for one in gold for query in one.query_ids))
    return Gold(first, ids, source=gold[0].source), differ.height


def _counted(gold: Prepared, judged: Sequence[JudgedRun], depth: int) -> dict[str, int]:
    """What the gold holds: judgments, and those that no run returned in its top, or at all."""
    unseen = {}
    for name, last in (("in_no_top", depth), ("in_no_list", UNLIMITED)):
        lacking = gold.grade >= 0
        for one in judged:
            lacking[one.contributed(last)] = False
        unseen[name] = int(lacking.sum())
    target = gold.target(np.arange(len(gold.query_ids)))
    relevant = target.relevant(gold.conventions.rel)
    return {
        "queries": len(gold.query_ids),
        "queries_judged": int(judged_queries(target).sum()),
        "queries_with_relevant": int((relevant > 0).sum()),
        "judgments": int((gold.grade >= 0).sum()),
        "relevant": int(relevant.sum()),
        "below_zero": int((gold.grade < 0).sum()),
        **unseen,
    }


def _left_out(
    judged: Sequence[JudgedRun], measures: Sequence[Measure], depth: int
) -> list[LeftOut]:
    """Each run without what it alone has, all runs scored on what is left; none for one run."""
    if len(judged) < 2:
        return []
    tops = [one.contributed(depth) for one in judged]
    # An item stands once in a list, so a judgment is met once a run at most.
    times = np.bincount(np.concatenate(tops), minlength=len(judged[0].gold.grade))
    now = {measure: [one.now(measure) for one in judged] for measure in measures}
    return [_without_own(at, judged, top[times[top] == 1], now) for at, top in enumerate(tops)]


def _without_own(
    at: int,
    judged: Sequence[JudgedRun],
    own: np.ndarray[Any, np.dtype[np.int64]],
    now: Mapping[Measure, list[float | None]],
) -> LeftOut:
    whole = judged[at].ranked.target
    rel = judged[at].gold.conventions.rel
    gone = np.zeros(len(whole.query), dtype=bool)
    gone[own] = True
    target = fewer(whole, gone)
    lists = [one.without(target, gone) for one in judged]
    then = {
        measure: [one.then(measure, own) for one, own in zip(judged, lists, strict=True)]
        for measure in now
    }
    names = [one.name for one in judged]
    return LeftOut(
        # What was pooled and not judged goes too, and is no judgment.
        unique=int((whole.grade[own] >= 0).sum()),
        relevant=int((whole.grade[own] >= rel).sum()),
        emptied=int(((whole.relevant(rel) > 0) & (target.relevant(rel) == 0)).sum()),
        measures={str(one): _changes(one, now[one], then[one])[at] for one in now},
        taus={str(one): tau(now[one], then[one]) for one in now},
        turned={str(one): turned(names, now[one], then[one], lower=_lower(one)) for one in now},
    )


def _condensed(judged: Sequence[JudgedRun], measures: Sequence[Measure]) -> dict[str, list[Change]]:
    """Each measure on condensed lists, run by run."""
    lists = [one.condensed() for one in judged]
    return {
        str(measure): _changes(
            measure,
            [one.now(measure) for one in judged],
            [one.then(measure, own) for one, own in zip(judged, lists, strict=True)],
        )
        for measure in measures
    }


def _changes(
    measure: Measure, now: Sequence[float | None], then: Sequence[float | None]
) -> list[Change]:
    places = [ranks(values, lower=_lower(measure)) for values in (now, then)]
    better = measure.definition.better
    return [
        Change(value, other, rank, other_rank, better)
        for value, other, rank, other_rank in zip(now, then, *places, strict=True)
    ]


def _lower(measure: Measure) -> bool:
    return measure.definition.better == "lower"


def _all_taus(
    name: str, left: Sequence[LeftOut], condensed: Mapping[str, Sequence[Change]]
) -> Taus:
    known = [own for one in left if (own := one.taus[name]) is not None]
    return Taus(
        # Where one of them leaves no order at all, the lowest of the others says too much.
        left_out=min(known, default=None) if len(known) == len(left) else None,
        each_without_own=_tau([one.measures[name] for one in left]),
        condensed=_tau(condensed[name]),
    )


def _tau(changes: Sequence[Change]) -> float | None:
    return tau([one.value for one in changes], [one.other for one in changes])


def _turned(systems: Sequence[SystemBias], name: str, *, lower: bool) -> list[Turned]:
    """The pairs that condensed lists turn."""
    own = [one.condensed[name] for one in systems]
    now, then = [one.value for one in own], [one.other for one in own]
    return turned([one.system for one in systems], now, then, lower=lower)
