"""Stored evaluations held against each other: a report document out of what the store kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from karat.analysis.compare import compare_scores
from karat.analysis.contenders import Contender, differences
from karat.analysis.segments import CROSS, NONE, By
from karat.analysis.verdicts import Primary, Rule
from karat.errors import UsageError
from karat.measures.results import Scores
from karat.reports.document import Report, System
from karat.store import Evaluation, Stored, in_order_of, shared, stale
from karat.tables import Queries

Document = Mapping[str, Any]

# What a system's own report says of it besides its means, and a comparison takes over.
_BEHIND = (
    "segments",
    "bounds",
    "sweep",
    "failures",
    "waterfalls",
    "latency",
    "partial",
    "beyond_log",
    "meta",
)
# What all have in common is that of the comparison.
_COMMON = ("as_of_range", "dataset_version", "code_version", "config_digest")


@dataclass(frozen=True, eq=False)
class Entry:
    """One evaluation of a comparison: its name there, and its place in its own report.

    ``place`` is None where the report does not tell which of its systems it is.
    """

    name: str
    stored: Stored
    scores: Scores
    place: int | None

    @property
    def told(self) -> str:
        """Its name, and its id where that is not part of it."""
        id = self.evaluation.id
        return self.name if self.name.endswith(f"@{id}") else f"{self.name} ({id})"

    @property
    def evaluation(self) -> Evaluation:
        """What was saved."""
        return self.stored.evaluation


@dataclass(frozen=True, eq=False)
class Lineup:
    """Evaluations that can be compared, the baseline first, and what is to be minded.

    Their scores have the same measures, and the same queries in the same order.
    """

    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class StoredComparison:
    """The document of a comparison, as a report has it, and the measure that decided."""

    document: dict[str, Any]
    primary: str


def line_up(stored: Sequence[Stored]) -> Lineup:
    """Put stored evaluations beside the first of them; refuses those not scored alike."""
    if len(stored) < 2:
        raise UsageError("a comparison needs two evaluations at least: the baseline and another")
    entries = _entries(stored)
    warnings = [*_left_out(entries), *_stale(entries)]
    common = shared(entries[0].scores, [one.scores for one in entries[1:]])
    entries = [replace(one, scores=own) for one, own in zip(entries, common, strict=True)]
    _check_alike(entries)
    return Lineup(tuple(entries), tuple(warnings))


def rule_of(
    stored: Sequence[Stored], *, primary: str | None = None, margin: float | None = None
) -> Rule:
    """What decides: what is given, else what decided in the reports, where these agree."""
    rules = [one.report["rule"] for one in stored if one.report.get("rule")]
    agreed = bool(rules) and all(rule == rules[0] for rule in rules)
    rule = replace(Rule(**rules[0]), pairs="baseline") if agreed else Rule()
    known = all(rule.primary in [str(m) for m in one.scores.measures] for one in stored)
    deciding = primary or (rule.primary if known else None)
    return replace(rule, primary=deciding, margin=rule.margin if margin is None else margin)


def compare_stored(
    entries: Sequence[Entry], rule: Rule, *, segments: Document | None = None
) -> StoredComparison:
    """Compare what was lined up; ``segments`` says which ones each query is in, by column."""
    queries, by = _grouped(entries[0].scores, segments or {})
    left_out = _only_gated([one.stored.report for one in entries])
    if rule.primary is not None:
        left_out.discard(rule.primary)
    found = compare_scores(_contenders(entries, left_out), rule, queries=queries, by=by)
    found = replace(found, primary=_chosen([one.stored.report for one in entries], found.primary))
    first = entries[0].evaluation
    report = Report(
        tuple(map(_system, entries)),
        gold=first.gold,
        queries=first.queries,
        corpus=first.corpus,
        comparisons=found,
        **_in_common([one.stored.report for one in entries]),
    )
    return StoredComparison(report.document(), str(found.rule.primary))


def _chosen(documents: Sequence[Document], primary: Primary) -> Primary:
    """Who chose the measure that decides: as the reports say, where they agree on the measure."""
    told = [document["primary"] for document in documents if document.get("primary")]
    same = bool(told) and all(one == told[0] for one in told)
    return Primary(**told[0]) if same and told[0]["measure"] == primary.measure else primary


def place_in(document: Document, evaluation: Evaluation) -> int | None:
    """Which of a report's systems an evaluation is: by its name, else by the run's digest."""
    names = [system.get("name") for system in document.get("systems", ())]
    if names.count(evaluation.system) == 1:
        return names.index(evaluation.system)
    runs = (document.get("inputs") or {}).get("runs") or ()
    digests = [run.get("sha256") for run in runs]
    digest = evaluation.run.sha256
    if digest is not None and digests.count(digest) == 1 and len(digests) == len(names):
        return digests.index(digest)
    return None


def _entries(stored: Sequence[Stored]) -> list[Entry]:
    """Every evaluation once, in the order of the first one's queries; namesakes get their id."""
    ids = [one.evaluation.id for one in stored]
    twice = next((id for id in ids if ids.count(id) > 1), None)
    if twice is not None:
        raise UsageError(f"evaluation {twice} is named twice; compare it with another")
    count = Counter(one.evaluation.system for one in stored)
    entries = []
    for one in stored:
        own = one.evaluation
        name = own.system if count[own.system] == 1 else f"{own.system}@{own.id}"
        scores = replace(in_order_of(one.scores, stored[0].scores), system=name)
        entries.append(Entry(name, one, scores, place_in(one.report, own)))
    return entries


def _check_alike(entries: Sequence[Entry]) -> None:
    """Refuse what was not scored alike, and say all that differs."""
    first, told = entries[0], []
    for other in entries[1:]:
        if found := differences(first.scores, other.scores):
            told.append(f"{other.told} with {first.told}: {', '.join(found)}")
    if told:
        raise UsageError(f"cannot compare {'; nor '.join(told)}; score them alike and save them")


def _contenders(entries: Sequence[Entry], left_out: Collection[str]) -> list[Contender]:
    """The systems with the measures that are compared: all, rather than none."""
    measures = entries[0].scores.measures
    kept = tuple(one for one in measures if str(one) not in left_out) or measures
    return [Contender(one.name, (replace(one.scores, measures=kept),)) for one in entries]


def _only_gated(documents: Sequence[Document]) -> set[str]:
    """What only gates name is held against its limit, not against a baseline."""
    found: set[str] = set()
    for document in documents:
        compared = {row["measure"] for row in document.get("comparisons", ())}
        if compared:
            found |= {gate["measure"] for gate in document.get("gates", ())} - compared
    return found


def _left_out(entries: Sequence[Entry]) -> list[str]:
    """The measures that not all have, and so are not compared."""
    known = dict.fromkeys(str(one) for entry in entries for one in entry.scores.measures)
    told = []
    for measure in known:
        lacking = [one.name for one in entries if measure not in map(str, one.scores.measures)]
        if lacking:
            told.append(f"{measure} is left out: {', '.join(lacking)} was not scored by it")
    return told


def _stale(entries: Sequence[Entry]) -> list[str]:
    """What was not the same when the baseline and another were saved."""
    first = entries[0]
    told = []
    for other in entries[1:]:
        now = other.evaluation
        found = stale(
            replace(first.stored, scores=first.scores),
            gold=now.gold,
            queries=now.queries,
            corpus=now.corpus,
            runs=[other.scores],
            version=now.version,
        )
        told += [f"{first.name} against {other.name}: {sentence}" for sentence in found]
    return told


def _system(entry: Entry) -> System:
    names = [str(measure) for measure in entry.scores.measures]
    summaries = {name: entry.evaluation.summaries[name] for name in names}
    own = {} if entry.place is None else entry.stored.report["systems"][entry.place]
    behind = {key: own[key] for key in _BEHIND if key in own}
    return System(entry.name, entry.scores, summaries, behind=behind)


def _in_common(documents: Sequence[Document]) -> dict[str, Any]:
    """What the inputs of all reports agree on."""
    inputs = [document.get("inputs") or {} for document in documents]
    found = {
        key: inputs[0][key]
        for key in _COMMON
        if key in inputs[0] and all(one.get(key) == inputs[0][key] for one in inputs)
    }
    if "as_of_range" in found:
        found["as_of_range"] = tuple(found["as_of_range"])
    return found


def _grouped(scores: Scores, segments: Document) -> tuple[Queries | None, list[By]]:
    """The queries with the columns that they were grouped by; crossed where both are known."""
    single = {name: _values(one) for name, one in segments.items() if CROSS not in name}
    by = [By.parse(name) for name in segments]
    known = [one for one in by if all(column in single for column in one.columns)]
    if not known:
        return None, []
    ids = scores.table["query_id"]
    columns = [pl.Series(name, one, dtype=pl.List(pl.String)) for name, one in single.items()]
    return Queries(pl.DataFrame([ids, pl.Series("text", [""] * len(ids)), *columns])), known


def _values(segment: Document) -> list[list[str]]:
    """The values that each query has in one column."""
    names = segment["names"]
    return [[names[at] for at in of if names[at] != NONE] for of in segment["of"]]
