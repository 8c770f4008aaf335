"""Evaluate: a run, its gold and some measures become one row a query, one column a measure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from karat.errors import UsageError
from karat.measures.conventions import PROFILES, conventions_of
from karat.measures.filling import Table
from karat.measures.names import Measure, parse_measures
from karat.measures.parts import Asked, joined
from karat.measures.prepare import Prepared, prepare
from karat.measures.results import Counts, Scores, Summary
from karat.measures.traces import traced
from karat.tables import Blocks, Corpus, Gold, InterleavedError, Queries, Run

__all__ = ["Counts", "Scores", "Summary", "evaluate", "prepare", "score"]


def evaluate(
    run: Run | Blocks,
    gold: Gold,
    measures: str | Sequence[str | Measure] | None = None,
    *,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
) -> Scores:
    """Score a run against gold; without ``measures`` by those of the profile.

    ``settings`` changes conventions of the profile, as ``--set`` does. ``queries`` decides
    which queries there are and brings their k, as_of and entities; ``corpus`` brings texts,
    versions and documents to the measures that need them.

    >>> from karat.tables import Gold, Run
    >>> gold = Gold.from_dict({"q1": {"A": 1, "B": 1}})
    >>> run = Run.from_dict({"q1": ["X", "A", "Y", "Z", "W"]})
    >>> evaluate(run, gold, ["R@5", "P@5", "Hit@5", "RR"]).means()
    {'R@5': 0.5, 'P@5': 0.2, 'Hit@5': 1.0, 'RR': 0.5}
    """
    right = isinstance(gold, Gold) and hasattr(run, "blocks")
    if (
        not right
        or not isinstance(queries, Queries | None)
        or not isinstance(corpus, Corpus | None)
    ):
        raise UsageError(
            "evaluate takes a Run and a Gold, in this order, and Queries and a Corpus by name;"
            " make them with Run.from_dict, read_run, Gold.from_dict, read_gold and the like"
        )
    conventions = conventions_of(profile, settings)
    named = PROFILES[profile].measures if measures is None else measures
    chosen = parse_measures(named, conventions=conventions)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    return score(run, prepared, chosen, lenient=chosen if measures is None else ())


def score(
    run: Run | Blocks,
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure] = (),
    keep: int = 0,
    derived: bool = False,
    depth_in_log: str = "k",
    stage: str = "final",
    all_ids: Callable[[], pl.DataFrame] | None = None,
) -> Scores:
    """Score a run against prepared gold.

    A measure in ``lenient`` whose input is missing has no value, where another is an error.
    ``keep`` keeps so many of the top items of each query, for comparing lists. A run that does
    not fit its gold is refused, unless it is ``derived``: made from one that was checked.
    ``depth_in_log`` is the name under which a log tells the depth of these lists: ``k_raw`` for
    the raw ones. Of the lists of an earlier ``stage``, ``all_ids`` gives what each stage returned.
    """
    try:
        table = _filled(run.blocks(), Table(gold, measures, keep))
    except InterleavedError:
        table = None
    if table is None:
        # After the error and what it held on to are gone.
        table = _filled(run.parted(), Table(gold, measures, keep))
    asked = Asked.of(gold)
    scores = joined(
        [table.part()],
        asked,
        measures,
        lenient=lenient,
        run=run,
        derived=derived,
        depth_in_log=depth_in_log,
        stage=stage,
        all_ids=all_ids,
    )
    return replace(scores, trace=traced(table.blocks, gold))


def _filled(blocks: Iterator[Run], table: Table) -> Table:
    for block in blocks:
        table.add(block)
    return table
