"""karat story: how well queries find the scenes of a CNL story, and its result object."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.inputs import SKIPPED, STORY
from karat.evaluation.report_text import nothing_found
from karat.formats.story import StoryQuery, read_story, read_story_queries
from karat.measure.conventions import PROFILES
from karat.measure.scores import Scores
from karat.pages.formatting import NOTHING, figure, label, plural
from karat.pages.page import Page, Section, Sentence, Tone
from karat.pages.result import Result
from karat.pages.serialize import dumps
from karat.reports.document import Report
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system_config import maker

THRESHOLD = 0.6
DEFAULT_K = 5
# The profiles and their retrievers.
RETRIEVERS = {"vsa": "vsa", "bow": "bow", "basic": "bow"}
# Fixed by the metric; k, ties and order stay the caller's.
_FIXED = ("level", "empty_gold", "depth")
_TONES: dict[bool | None, Tone] = {True: "good", False: "bad", None: "unsure"}
# The most rows to show: the worst queries.
_MOST_ROWS = 30
_LONGEST = 48
# How many names a note lists.
_NAMED = 3

# All scenes in the order of their scores for a query, best first; a run may have no scores.
Ranking = Sequence[tuple[str, float | None]]


@dataclass(frozen=True)
class StoryQuality:
    """The queries with text; ``total`` counts all entries, blank ones too."""

    queries: Sequence[Mapping[str, Any]]
    total: int

    @property
    def labelled(self) -> list[Mapping[str, Any]]:
        """The queries that have gold."""
        return [query for query in self.queries if "recall_at_k" in query]

    def mean(self, name: str) -> float | None:
        """Return the exact mean of a figure over the queries that have gold, rounded once."""
        values = [query[name] for query in self.labelled]
        return math.fsum(values) / len(values) if values else None

    @property
    def value(self) -> float | None:
        """The mean reciprocal rank of the queries that have gold; None if there is none."""
        return self.mean("reciprocal_rank")

    @property
    def passed(self) -> bool | None:
        """Whether the value is above the threshold; None if nothing could be measured."""
        return None if self.value is None else self.value > THRESHOLD

    @property
    def reason(self) -> str | None:
        """The code why nothing was measured; ``why_skipped`` is its text."""
        if not self.total:
            return "missing_retrieval_queries"
        return None if self.labelled else "no_labeled_queries"

    @property
    def why_skipped(self) -> str | None:
        return None if self.reason is None else SKIPPED[self.reason]

    def to_dict(self) -> dict[str, Any]:
        """Return ``value``, ``threshold``, ``pass`` and ``details``, with a story tool's keys."""
        details: dict[str, Any] = {"status": "skipped", "reason": self.reason}
        if self.reason is None:
            details = {
                "mrr": self.value,
                "recall_at_k_avg": self.mean("recall_at_k"),
                "labeled_queries": len(self.labelled),
                "total_queries": self.total,
                "per_query": list(self.queries),
            }
        result = {"value": self.value, "threshold": THRESHOLD, "pass": self.passed}
        return {**result, "details": details}


def story_quality(
    queries: Sequence[StoryQuery],
    rank: Callable[[StoryQuery], Ranking],
    *,
    k: int = DEFAULT_K,
    unanswered: Mapping[str, str] = MappingProxyType({}),
    skip: bool = False,
) -> StoryQuality:
    """Score every query that has a text and gold; ``k`` is for those without their own.

    ``unanswered`` gives the reason for a missing ranking: the call ``failed``, or the query is
    ``missing`` in the run. It counts as 0, or with ``skip`` not at all.
    """
    rows = []
    for query in queries:
        if not query.text:
            continue
        row: dict[str, Any] = {"id": query.query_id, "query": query.text}
        status = unanswered.get(query.query_id)
        if not query.relevant or (status is not None and skip):
            reason = status if query.relevant else None
            rows.append({**row, "status": "skipped", "reason": reason or "no_ground_truth"})
            continue
        ranking, cutoff = rank(query), query.k or k
        ranks = [at for at, (scene, _) in enumerate(ranking, 1) if scene in query.relevant]
        row |= {} if status is None else {"status": status}
        row |= {
            "topK": cutoff,
            "reciprocal_rank": 1 / ranks[0] if ranks else 0.0,
            "first_relevant_rank": ranks[0] if ranks else None,
            "recall_at_k": sum(at <= cutoff for at in ranks) / len(query.relevant),
            "top_results": [{"id": scene, "score": score} for scene, score in ranking[:cutoff]],
        }
        rows.append(row)
    return StoryQuality(rows, len(queries))


def quality_of(
    scores: Scores, gold: Gold, queries: Queries | None, corpus: Corpus | None
) -> StoryQuality:
    """Return the result of ``karat story`` for the rankings of this run."""
    for name in _FIXED:
        value = getattr(scores.conventions, name)
        if value != getattr(PROFILES[STORY].conventions, name):
            raise UsageError(f"output story: has no {name}={value}; leave out that setting")
    if queries is None:
        raise MissingInputError(
            "output story: the gold lacks the queries' texts; give --queries queries.json"
        )
    lists = _lists_of(scores)
    scenes = None if corpus is None else frozenset(corpus.frame["item_id"])
    k = scores.conventions.k
    status = dict(zip(scores.query_ids, scores.status, strict=True))

    def rank(query: StoryQuery) -> Ranking:
        ranking = lists.get(query.query_id, [])
        if status[query.query_id] == "scored":
            _refuse_short(scores, query, query.k or k, ranking, scenes)
        return ranking

    return story_quality(
        _story_queries(queries, gold, scores.conventions.rel),
        rank,
        k=k,
        unanswered={name: why for name, why in status.items() if why in ("failed", "missing")},
        skip=scores.conventions.missing == "skip",
    )


def _story_queries(queries: Queries, gold: Gold, rel: float) -> list[StoryQuery]:
    """Return the queries with their gold, as they are in a file of a story's queries."""
    relevant: dict[str, set[str]] = {}
    judged = gold.frame.filter(pl.col("grade") >= rel)
    for query_id, item_id in judged.select("query_id", "item_id").iter_rows():
        relevant.setdefault(query_id, set()).add(item_id)
    frame = queries.frame
    if "k" not in frame.columns:
        frame = frame.with_columns(k=pl.lit(None))
    # Scoring has refused other numbers.
    rows = frame.select("query_id", "text", pl.col("k").cast(pl.Float64, strict=False)).iter_rows()
    return [
        StoryQuery(
            name, text.strip(), frozenset(relevant.get(name, ())), None if k is None else int(k)
        )
        for name, text, k in rows
    ]


def _lists_of(scores: Scores) -> dict[str, list[tuple[str, float | None]]]:
    """Return the list of each query."""
    lists: dict[str, list[tuple[str, float | None]]] = {}
    if scores.lists is None:
        return lists
    frame = scores.lists.sort("row", "rank")
    if "score" not in frame.columns:
        frame = frame.with_columns(score=pl.lit(None, dtype=pl.Float64))
    ids = scores.query_ids
    for row, item_id, score in frame.select("row", "item_id", "score").iter_rows():
        lists.setdefault(ids[row], []).append((item_id, score))
    return lists


def _refuse_short(
    scores: Scores, query: StoryQuery, k: int, ranking: Ranking, scenes: frozenset[str] | None
) -> None:
    """Refuse a list that ends too early to tell the query's rank or recall."""
    # Only karat's own logs surely mean by k what is meant here, and say it of every call.
    requested = scores.meta.get("k") if "run_digest" in scores.meta else None
    dropped = scores.counts.repeats and scores.conventions.repeats == "drop"
    if isinstance(requested, int) and not dropped and len(ranking) < requested:
        return
    if scenes is not None and len(ranking) >= len(scenes):
        return
    ranked = {scene for scene, _ in ranking}
    absent = (query.relevant if scenes is None else query.relevant & scenes) - ranked
    if not absent or (len(ranking) >= k and ranked & query.relevant):
        return
    enough, hint = "above the number of scenes", "; --corpus names the scenes"
    if scenes is not None:
        enough, hint = f"{len(scenes):,} or more", ""
    raise UsageError(
        f"output story: the list of {scores.system} for query {query.query_id!r} ends after "
        f"{len(ranking):,} scenes without {' or '.join(sorted(absent))}; "
        f"search again with its k {enough}{hint}"
    )


@dataclass(frozen=True, eq=False, repr=False)
class StoryResult(Result):
    """The quality of a story, what it was measured with, and notes that explain it."""

    quality: StoryQuality
    about: str
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the result object of the story tool."""
        return self.quality.to_dict()

    def to_frame(self) -> pl.DataFrame:
        """Return one row per query."""
        return pl.DataFrame(self.to_dict()["details"].get("per_query", []))

    def page(self) -> Page:
        """Return the verdict, one row per query, and notes."""
        quality, notes = self.quality, self.notes
        verdict = f"SKIPPED  {quality.why_skipped}"
        if quality.value is not None:
            # As many decimals as it takes to differ from the threshold.
            value = figure(quality.value)
            value = repr(quality.value) if float(value) == THRESHOLD != quality.value else value
            verb = "PASS  MRR {} is above {}" if quality.passed else "FAIL  MRR {} is not above {}"
            verdict = verb.format(value, THRESHOLD)
        gold = f"{len(quality.labelled)} of {plural(quality.total, 'query', 'queries')} with gold"
        about = f"R@k {figure(quality.mean('recall_at_k'))} · {gold} · {self.about}"
        rows = sorted(quality.labelled, key=lambda query: query["reciprocal_rank"])[:_MOST_ROWS]
        if quality.labelled and len(quality.queries) <= _MOST_ROWS:
            rows = list(quality.queries)
        if len(rows) < len(quality.labelled):
            notes = [f"the {len(rows)} queries with the worst results; -o out.json has all", *notes]
        return Page(
            title="Retrieval quality of a story",
            headline=[Sentence(verdict, _TONES[quality.passed], [about])],
            blocks=[Section(grid=_grid(rows))] if rows else [],
            notes=notes,
        )


def story(
    story: str,
    queries: str | None = None,
    *,
    profile: str = "vsa",
    dim: int | None = None,
    seed: int | None = None,
    k: int = DEFAULT_K,
    lenient: bool = False,
) -> StoryResult:
    """Rank the scenes of a story file for each of its queries; MRR above 0.6 passes.

    ``profile`` is vsa (hypervectors of ``dim`` components from ``seed``), bow or basic (word
    counts). ``k`` is for queries that set none.

    >>> folder = karat.init("story").folder
    >>> result = karat.story(f"{folder}/story.cnl", f"{folder}/queries.json")
    >>> result.quality.passed, result.to_frame().height
    (True, 25)
    """
    if profile not in RETRIEVERS:
        raise unknown("profile", profile, RETRIEVERS)
    settings = {name: value for name, value in (("dim", dim), ("seed", seed)) if value is not None}
    if settings and profile != "vsa":
        raise UsageError(f"--{next(iter(settings))} is for --profile vsa; {profile} counts words")
    if story == queries == "-":
        raise UsageError("story and queries cannot both be -; standard input is read once")
    scenes, notes = read_story(story, lenient=lenient)
    story_queries = [] if queries is None else read_story_queries(queries)
    kind = maker(RETRIEVERS[profile])
    options = kind.Options(**settings)
    finder = kind.make(options, BuildContext(corpus=lambda: scenes), {})

    def rank(query: StoryQuery) -> Ranking:
        (answer,) = finder.find([Query(query.query_id, query.text)], scenes.frame.height)
        return [(hit.item_id, hit.score or 0.0) for hit in answer.hits]

    quality = story_quality(story_queries, rank, k=k)
    # Scenes have no titles, so that option says nothing.
    chosen = options.model_dump(exclude={"title"})
    number = plural(scenes.frame.height, "scene")
    about = f"{number} · {', '.join([profile, *(f'{name} {chosen[name]}' for name in chosen)])}"
    notes += _notes(story_queries, scenes, profile)
    if quality.labelled and not quality.value:
        notes.append(nothing_found(len(quality.labelled)))
    return StoryResult(quality, about, notes)


def _notes(queries: Sequence[StoryQuery], corpus: Corpus, profile: str) -> Iterator[str]:
    """Yield notes that explain a surprising number."""
    blank = sum(not query.text for query in queries)
    if blank:
        yield f"{plural(blank, 'query', 'queries')} without text left out"
    scenes = set(corpus.frame["item_id"])
    missing = {
        name: None for query in queries if query.text for name in sorted(query.relevant - scenes)
    }
    if missing:
        yield f"gold that is not a scene, so is never found: {_some(missing)}"
    empty = corpus.frame.filter(corpus.frame["text"].str.strip_chars() == "")["item_id"].to_list()
    if empty and profile == "vsa":
        yield f"scenes without text, which vsa may rank above others: {_some(empty)}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def report_to_json(report: Report) -> bytes:
    """Return the result object of a report's one system, as ``karat story`` writes it."""
    if len(report.systems) != 1 or report.tables is None:
        raise UsageError("output story: holds one system, with the queries it was scored with")
    (system,) = report.systems
    gold, queries, corpus = report.tables
    return dumps(quality_of(system.scores, gold, queries, corpus).to_dict())


def _grid(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    grid = [["query", "rank", "RR", "R@k", "k", "ranked first", "text"]]
    for query in rows:
        cells = ["no gold", NOTHING, NOTHING, NOTHING, NOTHING]
        if "recall_at_k" in query:
            rank = query["first_relevant_rank"]
            values = [figure(query["reciprocal_rank"]), figure(query["recall_at_k"])]
            first = _short(label(query["top_results"][0]["id"]))
            cells = ["none" if rank is None else str(rank), *values, str(query["topK"]), first]
        grid.append([label(query["id"]), *cells, _short(label(query["query"]))])
    return grid


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
