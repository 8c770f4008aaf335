"""Whether a stored evaluation can be held against scores made now, and whether it is stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from karat.columns import Source
from karat.errors import UsageError
from karat.measures.conventions import DECISIVE
from karat.measures.results import Scores
from karat.store.records import Evaluation, Stored

# What the whole of a comparison depends on besides.
_COMPARED = (*DECISIVE, "unit")
_VERSIONS = ("index_version", "dataset_version")
_SHORT = 12

What = Literal["gold", "queries", "conventions", "measures"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same, and how that reads."""

    what: What
    told: str

    def __str__(self) -> str:
        return self.told


def differs(stored: Stored, scores: Scores) -> list[Difference]:
    """What stands between a stored evaluation and a comparison with scores made now.

    A difference in gold, queries or conventions makes a comparison wrong; one in measures
    leaves some of them out, see ``shared``.
    """
    return [
        *_gold(stored.scores, scores),
        *_conventions(asdict(stored.scores.conventions), asdict(scores.conventions)),
        *_measures(stored.scores, scores),
    ]


def shared(baseline: Scores, runs: Sequence[Scores]) -> list[Scores]:
    """The baseline and the runs with only the measures that all have, in the order of the runs."""
    scores = [baseline, *runs]
    everywhere = set(baseline.measures).intersection(*(one.measures for one in scores))
    common = [measure for measure in scores[-1].measures if measure in everywhere]
    if not common:
        theirs = ", ".join(str(measure) for measure in baseline.measures)
        raise UsageError(f"no measure in common: {baseline.system} was scored by {theirs}")
    names = [str(measure) for measure in common]
    return [
        replace(one, measures=tuple(common), table=one.table.select("query_id", *names))
        for one in scores
    ]


def same_run(stored: Stored, runs: Sequence[Scores]) -> Scores | None:
    """The one of these runs that the stored evaluation was made of, to the byte."""
    old = stored.evaluation.run.sha256
    if old is None:
        return None
    return next((run for run in runs if run.source.digest() == old), None)


def stale(
    stored: Stored,
    *,
    gold: Source,
    queries: Source | None = None,
    corpus: Source | None = None,
    runs: Sequence[Scores] = (),
    version: str | None = None,
) -> list[str]:
    """Why a stored evaluation may say less about today than it seems to, in sentences.

    ``version`` is that of today's karat, to be held against the one it was made by.
    """
    evaluation = stored.evaluation
    same_judgments = {stored.scores.fingerprint} == {run.fingerprint for run in runs}
    found = [
        # A folder has no digest and a file may be written anew; the judgments are what counts.
        None if same_judgments else _file("gold", evaluation.gold, gold),
        _file("queries", evaluation.queries, queries),
        _file("corpus", evaluation.corpus, corpus),
        *(_version(stored, run, key) for run in runs for key in _VERSIONS),
        _run(stored, runs),
        _revision(evaluation),
    ]
    if version is not None and version != evaluation.version:
        found.append(f"it was made by karat {evaluation.version}, this is {version}")
    return list(dict.fromkeys(sentence for sentence in found if sentence))


def breaks(before: Evaluation, after: Evaluation) -> tuple[What, ...]:
    """What changed between two evaluations so that their numbers are not of the same thing."""
    found: list[What] = []
    if _other(before.gold, after.gold, before.fingerprint, after.fingerprint):
        same_file = before.gold.sha256 is not None and before.gold.sha256 == after.gold.sha256
        found.append("queries" if same_file else "gold")
    if any(before.conventions.get(key) != after.conventions.get(key) for key in DECISIVE):
        # Read at another level, the same file is other gold; the conventions are the reason.
        found = [*(what for what in found if what == "gold"), "conventions"]
    return tuple(found)


def _other(before: Source, after: Source, old: str, new: str) -> bool:
    return old != new if old and new else before.sha256 != after.sha256


def _gold(stored: Scores, scores: Scores) -> list[Difference]:
    old, new = stored.table["query_id"].to_list(), scores.table["query_id"].to_list()
    if gone := set(old).difference(new):
        told = f"{len(gone):,} of its queries are not among today's, such as {min(gone)!r}"
        return [Difference("queries", told)]
    if added := set(new).difference(old):
        told = f"{len(added):,} of today's queries are not among its own, such as {min(added)!r}"
        return [Difference("queries", told)]
    if old != new:
        return [Difference("queries", "its queries stand in another order than today's")]
    if stored.fingerprint != scores.fingerprint:
        return [Difference("gold", "its gold has other judgments than today's")]
    return []


def _conventions(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference("conventions", f"{key} was {_plain(old[key])} and is {_plain(new[key])}")
        for key in _COMPARED
        if old[key] != new[key]
    ]


def _measures(stored: Scores, scores: Scores) -> list[Difference]:
    lacking = [str(one) for one in scores.measures if one not in stored.measures]
    told = f"it was not scored by {', '.join(lacking)}"
    return [Difference("measures", told)] if lacking else []


def _plain(value: Any) -> str:
    return " < ".join(value) or "not set" if isinstance(value, tuple) else str(value)


def _file(kind: str, before: Source | None, now: Source | None) -> str | None:
    """What is to be said of an input that was given then and is given now."""
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


def _version(stored: Stored, run: Scores, key: str) -> str | None:
    old, new = stored.scores.meta.get(key), run.meta.get(key)
    if old is None or new is None or str(old) == str(new):
        return None
    return f"its {key} was {old}, that of {run.system} is {new}"


def _run(stored: Stored, runs: Sequence[Scores]) -> str | None:
    """Whether the run that it was made of has changed; a run compared with it is meant to."""
    old = stored.evaluation.run
    same = same_run(stored, runs)
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


def _revision(evaluation: Evaluation) -> str | None:
    revision = evaluation.revision
    if revision is None or not revision.dirty:
        return None
    return f"it was saved with uncommitted changes (after {revision.commit[:_SHORT]})"
