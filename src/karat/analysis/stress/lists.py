"""The lists that a stress test damages: those of a run, or of a system that runs on from them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.stress.edits import EditedList, ScoredItem, seed_of
from karat.data.tables import Corpus, Gold, Run
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.stages import whole_in
from karat.evaluation.top_lists import logged_texts
from karat.formats.readers import read_run
from karat.measure.conventions import Conventions
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranked import UNLIMITED
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Query
from karat.retrieve.rerun import RerunStart, StageRerun
from karat.retrieve.run_log import is_complete, run_of
from karat.retrieve.search import FailedCall, ProgressBar
from karat.retrieve.system import build_system
from karat.retrieve.system_config import SystemConfig, run_digest

CONFIG = "karat.yaml"
# Facts that both a run and a corpus may have about an item.
_OF_ITEMS = ("doc_id", "version", "source", "start", "end")
_FROM_A_LOG = "a log cannot run its reranker again; the figure is computed from the list alone"
_NO_ORDER = (
    "no later stage reorders the retrieved list; the figure is computed from it alone"
    " (name a part with --system to run its own reranker again)"
)

# The lists of some queries, and the items of each query that are gold, with their grades.
ListsByQuery = Mapping[str, Sequence[ScoredItem]]
Grades = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class SearchedSystem:
    """A configured system: its builder, its queries, and the path of its log."""

    config: SystemConfig
    context: BuildContext
    queries: Sequence[Query]
    log: Path
    k: int


@dataclass(frozen=True, eq=False)
class FinalLists:
    """The outcome of some lists: a run in their order, the final items of each, and failures."""

    run: Run
    final: Mapping[str, Sequence[str]]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ListSource:
    """Lists that can be damaged: ``entries`` are the originals, ``before`` their outcome.

    ``about`` says how lists are made after damage, ``after`` makes them. ``failed`` names the
    queries that could not be asked, with the reason, ``missing`` counts those never asked.
    ``run_of`` makes a run of any items, to look up their grades; ``knows`` says whether later
    stages can read an item. ``log`` is the run that the lists are from, if it is an input.
    """

    name: str
    about: Mapping[str, Any]
    conventions: Conventions
    entries: ListsByQuery
    before: FinalLists
    failed: Mapping[str, str]
    after: Callable[[Mapping[str, EditedList]], FinalLists]
    run_of: Callable[[ListsByQuery], Run]
    knows: Callable[[str, str], bool] = lambda query_id, item_id: True
    missing: int = 0
    log: Run | None = None


def lists_of_run(run: Run, evaluation: Evaluation, query_ids: Sequence[str]) -> ListSource:
    """Return the final lists of a run, which are edited as they are.

    They are in the order that the conventions give them, and cut to the k of the log.
    """
    scores = score(run, prepared_for(evaluation, query_ids), [], keep=UNLIMITED)
    entries = ranked_lists(scores)
    k = whole_in(run.meta, "k") or UNLIMITED

    def made(lists: ListsByQuery) -> FinalLists:
        final = {name: [item for item, _ in hits] for name, hits in lists.items()}
        return FinalLists(edited_run(run, lists, evaluation.corpus), final)

    def after(edited: Mapping[str, EditedList]) -> FinalLists:
        longest = {name: max(k, len(hits)) for name, hits in entries.items()}
        return made({name: result.entries[: longest[name]] for name, result in edited.items()})

    reasons = logged_texts(run.calls, "error")
    failed, missing = (scores.ids(scores.status == status) for status in ("failed", "missing"))
    return ListSource(
        run.name,
        _about_run(run),
        scores.conventions,
        entries,
        made(entries),
        {name: reasons.get(name, "failed") for name in failed},
        after,
        lambda lists: made(lists).run,
        missing=len(missing),
        log=run,
    )


def _about_run(run: Run) -> dict[str, Any]:
    """Return that only the list is measured, and the command that measures more."""
    # The karat.yaml may be here, beside the log, or in the folder above it.
    folders = [Path(), *([] if run.source.path is None else [*run.source.path.parents][:2])]
    system = run.meta.get("system") if "run_digest" in run.meta else None
    runnable = system and any((folder / CONFIG).is_file() for folder in folders)
    return {
        "how": "list edited",
        "because": _FROM_A_LOG,
        "stages": [],
        "reranker": None,
        "lists_from": "run",
        **({"for_real": f"karat stress {CONFIG} --system {system}"} if runnable else {}),
    }


def lists_of_system(
    system: SearchedSystem, evaluation: Evaluation, query_ids: Sequence[str], bar: ProgressBar
) -> ListSource:
    """Return what a system retrieves, from which its later stages run again.

    The lists are from its log if nothing changed since then.
    """
    config = system.config
    chosen = set(query_ids)
    queries = [query for query in system.queries if query.query_id in chosen]
    building = replace(system.context, progress=bar.build)
    starts: dict[str, RerunStart] = {}
    failed: dict[str, str] = {}
    with isolate_user_code(), building.open() as context:
        rerunner = StageRerun(
            config, build_system(config, context), config.stages.k or system.k, context
        )
        log = _usable_log(system, rerunner)
        for query, start in rerunner.ask(queries) if log is None else rerunner.read(log, queries):
            bar.advance(1)
            if isinstance(start, FailedCall):
                failed[query.query_id] = start.reason
            else:
                starts[query.query_id] = start

    def rerun(lists: Mapping[str, Any]) -> FinalLists:
        answers: dict[str, Answer] = {}
        failures: dict[str, str] = {}
        with isolate_user_code():
            for name, entries in lists.items():
                outcome = rerunner.again(starts[name], entries)
                bar.advance(1)
                if isinstance(outcome, FailedCall):
                    failures[name] = outcome.reason
                else:
                    answers[name] = Answer(outcome.hits)
        final = {name: [hit.item_id for hit in answer.hits] for name, answer in answers.items()}
        return FinalLists(as_run(answers), final, failures)

    def as_run(answers: Mapping[str, Answer]) -> Run:
        queries = [starts[name].query for name in answers]
        return run_of(config.name, {}, queries, list(answers.values()))

    def hits_of(lists: ListsByQuery) -> dict[str, Any]:
        return {name: rerunner.hits(starts[name], entries) for name, entries in lists.items()}

    before = rerun({name: start.raw for name, start in starts.items()})
    return ListSource(
        config.name,
        _about_system(rerunner, from_log=log is not None),
        # Lists that a system made are in its own order.
        replace(evaluation.prepared.conventions, order="rank"),
        {
            name: [(hit.item_id, hit.score) for hit in start.raw]
            for name, start in starts.items()
            if name not in before.failed
        },
        before,
        {**failed, **before.failed},
        lambda edited: rerun(hits_of({name: result.entries for name, result in edited.items()})),
        lambda lists: as_run({name: Answer(hits) for name, hits in hits_of(lists).items()}),
        lambda query_id, item_id: rerunner.knows(starts[query_id], item_id),
    )


def _about_system(rerunner: StageRerun, *, from_log: bool) -> dict[str, Any]:
    """Return what runs again after an edit."""
    stages, model = rerunner.stages, rerunner.reranker
    because = f"{', '.join(stages)} ran again on every edited list" if stages else _NO_ORDER
    return {
        "how": "reranked" if model is not None else "reordered" if stages else "list edited",
        "because": because,
        "stages": stages,
        "reranker": None if model is None else dict(model),
        "lists_from": "log" if from_log else "retriever",
    }


@contextmanager
def isolate_user_code() -> Iterator[None]:
    """Send what user code prints to standard error, and restore the working folder."""
    with chdir(Path.cwd()), redirect_stdout(sys.stderr):
        yield


def _usable_log(system: SearchedSystem, rerunner: StageRerun) -> Run | None:
    """Return the system's log if it answers these queries and nothing it depends on changed."""
    if not rerunner.takes_logs or not system.log.is_file():
        return None
    digest = run_digest(system.config, system.context, system.queries, k=system.k)
    ids = [query.query_id for query in system.queries]
    return read_run(system.log) if is_complete(system.log, digest, ids) else None


def prepared_for(evaluation: Evaluation, query_ids: Sequence[str], **settings: Any) -> Prepared:
    """Return the gold of some queries, with some conventions changed."""
    chosen = pl.col("query_id").is_in(list(query_ids))
    gold, queries = evaluation.gold, evaluation.queries
    gold = replace(gold, frame=gold.frame.filter(chosen), query_ids=tuple(query_ids))
    if queries is not None:
        queries = replace(queries, frame=queries.frame.filter(chosen))
    # A scenario may cut the lists: the removed items are its point.
    conventions = evaluation.prepared.conventions
    conventions = replace(conventions, short_lists="complete", **settings)
    return prepare(gold, conventions, queries=queries, corpus=evaluation.corpus)


def grades_in(run: Run, evaluation: Evaluation, query_ids: Sequence[str]) -> Grades:
    """Return the items of a ranked run that are gold at any depth: with a grade above 0."""
    if not run.hits.height or not query_ids:
        return {}
    gold = prepared_for(evaluation, query_ids, order="rank", depth=None)
    scores = score(run, gold, [], derived=True)
    if scores.trace is None:
        return {}
    hits = scores.trace.ranked.hits
    grade = hits.grade if hits.best is None else hits.best
    names = scores.query_ids
    grades: dict[str, dict[str, float]] = {}
    items = scores.trace.facts["item_id"].to_list()
    for query, item, value in zip(hits.query.tolist(), items, grade.tolist(), strict=True):
        if value > 0:
            grades.setdefault(names[query], {})[item] = value
    return grades


def with_gold(prepared: Prepared) -> list[str]:
    """Return the queries that have anything to find."""
    everyone = prepared.target(np.arange(len(prepared.query_ids)))
    has_gold = everyone.relevant(prepared.conventions.rel) > 0
    return [name for name, has in zip(prepared.query_ids, has_gold.tolist(), strict=True) if has]


def sample(query_ids: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return some of the queries, in their order; the seed and their ids decide which."""
    if count is None or count >= len(query_ids):
        return list(query_ids)
    drawn = sorted(query_ids, key=lambda name: (seed_of(seed, f"sample\0{name}"), name))
    chosen = set(drawn[:count])
    return [name for name in query_ids if name in chosen]


def own_negatives(gold: Gold) -> dict[str, list[str]]:
    """Return the items that the eval set itself says are not relevant: its hard negatives first.

    Spans are not items, so a span of grade 0 cannot be put into a list.
    """
    frame = gold.frame.filter(pl.col("grade") <= 0)
    if "start" in frame.columns:
        frame = frame.filter(pl.col("start").is_null())
    if "negative" in frame.columns:
        hard = pl.col("negative").fill_null(value=False)
        frame = frame.sort(hard, descending=True, maintain_order=True)
    by_query = frame.group_by("query_id", maintain_order=True).agg("item_id")
    return dict(by_query.iter_rows())


def ranked_lists(scores: Scores) -> dict[str, list[ScoredItem]]:
    """Return the kept lists of the queries that were answered."""
    names = scores.query_ids
    answered = scores.ids(scores.status == "scored")
    lists: dict[str, list[ScoredItem]] = {name: [] for name in answered}
    hits = scores.lists
    if hits is None:
        return lists
    values = hits["score"] if "score" in hits.columns else [None] * hits.height
    for row, item, value in zip(hits["row"], hits["item_id"], values, strict=True):
        if names[row] in lists:
            lists[names[row]].append((item, value))
    return lists


def edited_run(run: Run, lists: ListsByQuery, corpus: Corpus | None) -> Run:
    """Return a run of other lists, in their order.

    Facts come from the run where it has them, else from the corpus.
    """
    rows = [
        (name, item, rank, score)
        for name, entries in lists.items()
        for rank, (item, score) in enumerate(entries, 1)
    ]
    kinds = {"query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64}
    hits = pl.DataFrame(rows, schema=kinds, orient="row")
    if hits["score"].null_count():
        hits = hits.drop("score")
    final = run.at("final").hits
    values = [name for name in (*_OF_ITEMS, "similarity") if name in final.columns]
    pair = ["query_id", "item_id"]
    known_hits = final.select(*pair, *values).unique(pair, keep="first", maintain_order=True)
    hits = hits.join(known_hits, on=pair, how="left", maintain_order="left")
    if corpus is not None:
        shared = [name for name in values if name in _OF_ITEMS and name in corpus.frame.columns]
        casts = {f"{name}_corpus": pl.col(name).cast(final.schema[name]) for name in shared}
        items = corpus.frame.select("item_id", **casts)
        hits = hits.join(items, on="item_id", how="left", maintain_order="left")
        hits = hits.with_columns(pl.coalesce(name, f"{name}_corpus") for name in shared)
        hits = hits.drop(casts)
    calls = pl.DataFrame({"query_id": list(lists)}, schema={"query_id": pl.String})
    if run.calls is not None:
        logged = run.calls.unique("query_id", keep="first", maintain_order=True)
        calls = calls.join(logged, on="query_id", how="left", maintain_order="left")
    return replace(run, hits=hits, calls=calls, order="rank")
