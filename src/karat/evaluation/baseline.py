"""A stored evaluation as the baseline of a comparison: checked, and aligned with the runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karat.errors import UsageError
from karat.evaluation.verdict import Rule, primary_of
from karat.measures.scores import Scores
from karat.version import __version__

if TYPE_CHECKING:
    from karat.evaluation.evaluation import ScoredRuns


def with_baseline(
    ref: str, scored: ScoredRuns, *, store: str | None, primary: str | None = None
) -> list[Scores]:
    """Return the stored baseline and the runs, all by the measures that they share.

    Refuses a baseline that was scored on other gold, queries or conventions, or not by the
    measure that decides. Warns of one whose inputs are stale. The baseline is named after its
    tag, as in bm25@main.
    """
    from karat.store import (
        Store,
        find_differences,
        find_same_run,
        reorder_like,
        staleness_warnings,
        with_common_measures,
    )

    evaluation, runs = scored.evaluation, scored.scores
    with Store.open(store) as opened:
        stored = opened.baseline(ref)
    stored = replace(stored, scores=reorder_like(stored.scores, runs[0]))
    differences = dict.fromkeys(one for run in runs for one in find_differences(stored, run))
    wrong = [str(one) for one in differences if one.what != "measures"]
    if wrong:
        raise UsageError(
            f"the baseline {ref} cannot be compared with these runs: {'; '.join(wrong)};"
            " score it again and save it"
        )
    _check_deciding(ref, stored.scores, runs[0], primary)
    queries, corpus = evaluation.queries, evaluation.corpus
    warnings = staleness_warnings(
        stored,
        gold=evaluation.gold.source,
        queries=None if queries is None else queries.source,
        corpus=None if corpus is None else corpus.source,
        runs=runs,
        version=__version__,
    )
    for sentence in (*map(str, differences), *warnings):
        evaluation.notify(f"karat: warning: baseline {ref}: {sentence}")
    baseline = replace(stored.scores, system=f"{stored.scores.system}@{ref}")
    same = find_same_run(stored, runs)
    if same is not None and same.conventions.order == baseline.conventions.order:
        # Lists are not stored, but these are the very ones.
        baseline = replace(baseline, lists=same.lists)
    return with_common_measures(baseline, runs)


def _check_deciding(ref: str, baseline: Scores, run: Scores, primary: str | None) -> None:
    """Refuse a baseline without the measure that decides: another would, and nobody chose it."""
    deciding = primary_of(Rule(primary=primary), run.measures, run.conventions).measure
    if deciding not in map(str, baseline.measures):
        raise UsageError(
            f"the baseline {ref} was not scored by {deciding}, the measure that decides;"
            " name another with --primary, or score it again and save it"
        )
