"""A saved evaluation beside scores of today: what both have in common, and what is stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from karat.data.columns import Source
from karat.errors import UsageError
from karat.measure.aggregates import Evidence
from karat.measure.scores import Scores
from karat.store.records import RestoredEvaluation

_VERSIONS = ("index_version", "dataset_version")
_SHORT = 12

Positions = NDArray[np.int64]


def with_common_measures(baseline: Scores, runs: Sequence[Scores]) -> list[Scores]:
    """Return the baseline and the runs with the measures that all have, in the runs' order."""
    scores = [baseline, *runs]
    everywhere = set(baseline.measures).intersection(*(run.measures for run in runs))
    common = [measure for measure in scores[-1].measures if measure in everywhere]
    if not common:
        measures = ", ".join(str(measure) for measure in baseline.measures)
        raise UsageError(f"no measure in common: {baseline.system} was scored by {measures}")
    names = [str(measure) for measure in common]
    return [
        replace(
            system, measures=tuple(common), columns={name: system.columns[name] for name in names}
        )
        for system in scores
    ]


def find_same_run(stored: RestoredEvaluation, runs: Sequence[Scores]) -> Scores | None:
    """Return the run that the saved evaluation was made from, to the byte, or None."""
    old = stored.evaluation.run.sha256
    if old is None:
        return None
    return next((run for run in runs if run.source.digest() == old), None)


def staleness_warnings(
    stored: RestoredEvaluation,
    *,
    gold: Source,
    queries: Source | None = None,
    corpus: Source | None = None,
    runs: Sequence[Scores] = (),
    version: str | None = None,
) -> list[str]:
    """Return reasons why a saved evaluation may not describe today's state.

    ``version`` is today's karat, compared with the one that made the evaluation.
    """
    evaluation = stored.evaluation
    same_judgments = {stored.scores.fingerprint} == {run.fingerprint for run in runs}
    warnings = [
        # A folder has no digest, and a file may be rewritten; only the judgments count.
        None if same_judgments else _changed_input("gold", evaluation.gold, gold),
        _changed_input("queries", evaluation.queries, queries),
        _changed_input("corpus", evaluation.corpus, corpus),
        *(_changed_version(stored, run, key) for run in runs for key in _VERSIONS),
        _changed_run(stored, runs),
    ]
    if evaluation.revision is not None and evaluation.revision.dirty:
        commit = evaluation.revision.commit[:_SHORT]
        warnings.append(f"it was saved with uncommitted changes (after {commit})")
    if version is not None and version != evaluation.version:
        warnings.append(f"it was made by karat {evaluation.version}, this is {version}")
    return list(dict.fromkeys(warning for warning in warnings if warning))


def _changed_input(kind: str, before: Source | None, now: Source | None) -> str | None:
    if before is None or now is None:
        return None
    digest = now.digest()
    if before.sha256 is None or digest is None:
        return f"whether its {kind} is that of today cannot be told: there is no digest of both"
    if before.sha256 == digest:
        return None
    names = now.name if now.name == before.name else f"{before.name} then, {now.name} now"
    digests = f"{before.sha256[:_SHORT]} then, {digest[:_SHORT]} now"
    return f"other {kind} than when it was saved ({names}: {digests})"


def _changed_version(stored: RestoredEvaluation, run: Scores, key: str) -> str | None:
    old, new = stored.scores.meta.get(key), run.meta.get(key)
    if old is None or new is None or str(old) == str(new):
        return None
    return f"its {key} was {old}, that of {run.system} is {new}"


def _changed_run(stored: RestoredEvaluation, runs: Sequence[Scores]) -> str | None:
    """Warn if the evaluation's run has changed; runs compared with it are meant to differ."""
    old = stored.evaluation.run
    same = find_same_run(stored, runs)
    if same is not None:
        return f"{same.source.name} is the run that it was made of: nothing to compare"
    compared = [run.source.path.absolute() for run in runs if run.source.path is not None]
    folders = dict.fromkeys([Path(), *(path.parent for path in compared)])
    for file in (folder / Path(old.name).name for folder in folders):
        if old.sha256 is None or file.absolute() in compared or not file.is_file():
            continue
        if Source.of(file).digest() != old.sha256:
            return f"its run {old.name} has changed since; the stored values are of the old one"
    return None


def reorder_like(scores: Scores, other: Scores) -> Scores:
    """Return scores with their queries in the order of others; unchanged if the queries differ."""
    old, new = scores.query_ids, other.query_ids
    positions = {query_id: position for position, query_id in enumerate(old)}
    if old == new or positions.keys() != set(new):
        return scores
    came_from = np.array([positions[query_id] for query_id in new], dtype=np.int64)
    goes_to = np.argsort(came_from)
    return replace(
        scores,
        query_ids=tuple(new),
        columns={name: values[came_from] for name, values in scores.columns.items()},
        status=scores.status[came_from],
        ceilings={
            name: (values[came_from], _moved(evidence, goes_to))
            for name, (values, evidence) in scores.ceilings.items()
        },
        tied={name: (low[came_from], high[came_from]) for name, (low, high) in scores.tied.items()},
        evidence={name: _moved(values, goes_to) for name, values in scores.evidence.items()},
        groups=None if scores.groups is None else _renumbered(scores.groups[came_from]),
        # Stored scores have no lists.
        lists=None,
    )


def _moved(evidence: Evidence, goes_to: Positions) -> Evidence:
    return Evidence(goes_to[evidence.query], evidence.key, evidence.value, evidence.total)


def _renumbered(groups: Positions) -> Positions:
    """Number conversations in the order of their first query."""
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups.tolist()])
