"""How a saved evaluation differs from scores of today: what forbids a comparison, what is stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.columns import Source
from karat.errors import UsageError
from karat.measure.aggregates import Evidence
from karat.measure.conventions import DECISIVE
from karat.measure.scores import Scores
from karat.store.records import RestoredEvaluation, SavedEvaluation, TrendPoint

# Conventions that a comparison depends on.
_COMPARED = (*DECISIVE, "unit")
_VERSIONS = ("index_version", "dataset_version")
_SHORT = 12

What = Literal["gold", "queries", "conventions", "measures"]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs, and the message about it."""

    what: What
    message: str

    def __str__(self) -> str:
        return self.message


def find_differences(stored: RestoredEvaluation, scores: Scores) -> list[Difference]:
    """Return what differs between a saved evaluation and scores of today.

    A difference in gold, queries or conventions makes a comparison wrong. One in measures leaves
    some of them out, see ``with_common_measures``.
    """
    old, new = asdict(stored.scores.conventions), asdict(scores.conventions)
    differences = [*_judgment_difference(stored.scores, scores)]
    differences += [
        Difference("conventions", f"{key} was {_plain(old[key])} and is {_plain(new[key])}")
        for key in _COMPARED
        if old[key] != new[key]
    ]
    lacking = [str(one) for one in scores.measures if one not in stored.scores.measures]
    if lacking:
        differences.append(Difference("measures", f"it was not scored by {', '.join(lacking)}"))
    return differences


def _judgment_difference(stored: Scores, scores: Scores) -> list[Difference]:
    old, new = stored.table["query_id"].to_list(), scores.table["query_id"].to_list()
    if gone := set(old).difference(new):
        message = f"{len(gone):,} of its queries are not among today's, such as {min(gone)!r}"
        return [Difference("queries", message)]
    if added := set(new).difference(old):
        message = f"{len(added):,} of today's queries are not among its own, such as {min(added)!r}"
        return [Difference("queries", message)]
    if old != new:
        return [Difference("queries", "its queries are in another order than today's")]
    if stored.fingerprint != scores.fingerprint:
        return [Difference("gold", "its gold has other judgments than today's")]
    return []


def _plain(value: Any) -> str:
    return " < ".join(value) or "not set" if isinstance(value, tuple) else str(value)


def with_common_measures(baseline: Scores, runs: Sequence[Scores]) -> list[Scores]:
    """Return the baseline and the runs with the measures that all have, in the runs' order."""
    scores = [baseline, *runs]
    everywhere = set(baseline.measures).intersection(*(one.measures for one in scores))
    common = [measure for measure in scores[-1].measures if measure in everywhere]
    if not common:
        measures = ", ".join(str(measure) for measure in baseline.measures)
        raise UsageError(f"no measure in common: {baseline.system} was scored by {measures}")
    names = [str(measure) for measure in common]
    return [
        replace(one, measures=tuple(common), table=one.table.select("query_id", *names))
        for one in scores
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


def trend_points(evaluations: Sequence[SavedEvaluation], measure: str) -> list[TrendPoint]:
    """Return one point per evaluation that has the measure, system by system, oldest first."""
    points: list[TrendPoint] = []
    before: SavedEvaluation | None = None
    # Sorted here, since databases differ in the order of letters.
    measured = [one for one in evaluations if measure in one.summaries]
    for one in sorted(measured, key=lambda one: (one.system, one.saved_at, one.id)):
        summary = one.summaries[measure]
        breaks: tuple[str, ...] = ()
        change = None
        if before is not None and before.system == one.system:
            breaks = _trend_breaks(before, one)
            previous = points[-1].mean
            if not breaks and summary.mean is not None and previous is not None:
                change = summary.mean - previous
        points.append(
            TrendPoint(
                measure=measure,
                id=one.id,
                saved_at=one.saved_at,
                system=one.system,
                mean=summary.mean,
                n=summary.n,
                ci=summary.ci,
                revision=one.revision,
                gold=one.gold,
                tags=one.tags,
                breaks=breaks,
                change=change,
            )
        )
        before = one
    return points


def _trend_breaks(before: SavedEvaluation, after: SavedEvaluation) -> tuple[What, ...]:
    """Return what changed between two evaluations so that they cannot be compared."""
    breaks: list[What] = []
    if before.fingerprint and after.fingerprint:
        other_gold = before.fingerprint != after.fingerprint
    else:
        other_gold = before.gold.sha256 != after.gold.sha256
    if other_gold:
        same_file = before.gold.sha256 is not None and before.gold.sha256 == after.gold.sha256
        breaks.append("queries" if same_file else "gold")
    if any(before.conventions.get(key) != after.conventions.get(key) for key in DECISIVE):
        # The same file read at another level is other gold; the conventions are the reason.
        breaks = [*(what for what in breaks if what == "gold"), "conventions"]
    return tuple(breaks)


def reorder_like(scores: Scores, other: Scores) -> Scores:
    """Return scores with their queries in the order of others; unchanged if the queries differ."""
    old, new = scores.table["query_id"].to_list(), other.table["query_id"].to_list()
    positions = {query_id: position for position, query_id in enumerate(old)}
    if old == new or positions.keys() != set(new):
        return scores
    came_from = np.array([positions[query_id] for query_id in new], dtype=np.int64)
    goes_to = np.argsort(came_from)
    return replace(
        scores,
        table=scores.table[came_from],
        status=scores.status[came_from],
        ceilings={
            name: (values[came_from], _moved(evidence, goes_to))
            for name, (values, evidence) in scores.ceilings.items()
        },
        tied={name: (low[came_from], high[came_from]) for name, (low, high) in scores.tied.items()},
        evidence={name: _moved(one, goes_to) for name, one in scores.evidence.items()},
        groups=None if scores.groups is None else _renumbered(scores.groups[came_from]),
        lists=None if scores.lists is None else _relisted(scores.lists, goes_to),
    )


def _moved(evidence: Evidence, goes_to: Positions) -> Evidence:
    return Evidence(goes_to[evidence.query], evidence.key, evidence.value, evidence.total)


def _renumbered(groups: Positions) -> Positions:
    """Number conversations in the order of their first query."""
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups.tolist()])


def _relisted(lists: pl.DataFrame, goes_to: Positions) -> pl.DataFrame:
    rows = pl.Series("row", goes_to[lists["row"].to_numpy()], dtype=lists["row"].dtype)
    return lists.with_columns(rows).sort("row", "rank")
