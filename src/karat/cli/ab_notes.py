"""What ``karat ab`` has to say about its inputs beside the numbers, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from karat.cli.ab_inputs import Inputs
from karat.errors import InputError
from karat.measures.scores import Scores
from karat.retrievers.quality.forms import Settings
from karat.retrievers.quality.pipeline import Quality, Ranked
from karat.tables import Corpus, Gold, Queries


def about_gold(queries: Queries, gold: Gold) -> list[str]:
    """How queries and judgments fit together; that they do not at all is an error."""
    asked = set(queries.frame["query_id"].to_list())
    judged = set(gold.query_ids)
    if not asked & judged:
        what = f"judges no query of {queries.source.name}; check that both belong together"
        raise InputError(what, where=gold.source.name)
    told = {
        "without judgments, which count 0": len(asked - judged),
        "judged but not asked, which are left out": len(judged - asked),
    }
    return [f"queries {what}: {number}" for what, number in told.items() if number]


def about_run(scores: Scores, system: str) -> list[str]:
    """What a run that was given lacks or has too much of."""
    counts = scores.counts
    told = {
        "queries that it lacks, which count 0": counts.missing,
        "calls that failed, which count 0": counts.failed_calls,
        "hits that repeat an item, which earn nothing": counts.repeats,
        "queries that are not asked, which are left out": counts.not_in_gold,
    }
    return [f"run {system}: {what}: {number}" for what, number in told.items() if number]


def about_lists(
    quality: Quality, lists: Mapping[str, Ranked], inputs: Inputs, system: str
) -> Iterator[str]:
    """Settings and queries that a config can do nothing with."""
    settings, rules = quality.settings, quality.rules
    for note in rules.notes():
        yield f"config {system}: {note}"
    if empty := sum(not one.candidates for one in lists.values()):
        limit = settings.retrieval.sim_threshold
        yield f"config {system}: queries without a candidate above sim_threshold {limit}: {empty}"
    if settings.fuses and (mute := sum(not rules.words(text) for _, text in inputs.asked)):
        yield f"config {system}: queries without a word, whose lexical ranking is by id: {mute}"


def about_items(corpus: Corpus, inputs: Inputs) -> list[str]:
    """Relevant items that no config could return."""
    there = set(corpus.frame["item_id"].to_list())
    asked = {query_id for query_id, _ in inputs.asked}
    rows = inputs.gold.frame.select("query_id", "item_id", "grade").rows()
    relevant = {item for query_id, item, grade in rows if query_id in asked and grade > 0}
    missing = len(relevant - there)
    return [f"relevant items that the corpus lacks: {missing}"] if missing else []


def why_no_traces(settings: Settings) -> str:
    """What keeps a config from being traced."""
    if settings.traced and settings.fuses:
        return "no query has a candidate"
    if settings.traced:
        return f"fused lists are traced, and fusion.mode {settings.fusion.mode!r} fuses nothing"
    needed = {
        "perf.enabled": settings.perf.enabled,
        "perf.metrics.report_memory": settings.metrics.report_memory,
        "t2.quality.enabled (or .shadow)": settings.quality.shadow or settings.quality.enabled,
    }
    lacking = " and ".join(name for name, on in needed.items() if not on)
    return f"the gate is shut; set {lacking} to true"
