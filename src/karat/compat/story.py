"""karat story: how well the scenes of a CNL story are found, by queries about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.inputs import SKIPPED, STORY
from karat.evaluation.sentences import nothing_found
from karat.formats.story import StoryQuery, read_story, read_story_queries
from karat.measure.conventions import PROFILES
from karat.measure.scores import Scores
from karat.pages.formatting import plural
from karat.reports.outputs import Output, parse_outputs
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system_config import maker

THRESHOLD = 0.6
DEFAULT_K = 5

# All scenes in the order of their scores for a query, best first; a run may have no scores.
Ranking = Sequence[tuple[str, float | None]]


@dataclass(frozen=True)
class QueryQuality:
    """What came of one query; one without gold has only its id and text.

    ``rank`` is that of the first relevant scene in the whole ranking, ``recall`` the share
    of the relevant scenes that are among the first ``k``. ``trouble`` says why there is no
    ranking: the call ``failed``, or the query is ``missing`` in the run.
    """

    query_id: str
    text: str
    k: int | None = None
    rank: int | None = None
    recall: float | None = None
    top: Ranking = ()
    trouble: str | None = None

    @property
    def reciprocal_rank(self) -> float | None:
        """1 / rank, and 0 where no relevant scene exists; None without gold."""
        if self.recall is None:
            return None
        return 0.0 if self.rank is None else 1 / self.rank


@dataclass(frozen=True)
class StoryQuality:
    """The queries that ask something, and how many entries there were with the blank ones."""

    queries: tuple[QueryQuality, ...]
    total: int

    @property
    def labelled(self) -> list[QueryQuality]:
        """The queries that have gold."""
        return [query for query in self.queries if query.recall is not None]

    @property
    def value(self) -> float | None:
        """The mean reciprocal rank of the queries that have gold; None if there is none."""
        return _mean(query.reciprocal_rank for query in self.labelled)

    @property
    def recall(self) -> float | None:
        """The mean recall at each query's k."""
        return _mean(query.recall for query in self.labelled)

    @property
    def passed(self) -> bool | None:
        """Whether the value is above the threshold; None if nothing could be measured."""
        return None if self.value is None else self.value > THRESHOLD

    @property
    def reason(self) -> str | None:
        """Why nothing could be measured."""
        if not self.total:
            return "missing_retrieval_queries"
        return None if self.labelled else "no_labeled_queries"

    @property
    def why_skipped(self) -> str | None:
        """The same in words."""
        return None if self.reason is None else SKIPPED[self.reason]


def story_quality(
    queries: Sequence[StoryQuery], rank: Callable[[StoryQuery], Ranking], *, k: int = DEFAULT_K
) -> StoryQuality:
    """Ask every query that has a text and gold; ``k`` is for those without their own."""
    results = tuple(_found(query, rank, query.k or k) for query in queries if query.text)
    return StoryQuality(results, len(queries))


def _found(query: StoryQuery, rank: Callable[[StoryQuery], Ranking], k: int) -> QueryQuality:
    if not query.relevant:
        return QueryQuality(query.query_id, query.text)
    ranking = rank(query)
    places = [place for place, (scene, _) in enumerate(ranking, 1) if scene in query.relevant]
    return QueryQuality(
        query.query_id,
        query.text,
        k,
        rank=places[0] if places else None,
        recall=sum(place <= k for place in places) / len(query.relevant),
        top=tuple(ranking[:k]),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """The exact mean, rounded once, as everywhere in karat."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


# What the metric leaves no choice about; k, ties, order and the like stay the caller's.
_FIXED = ("level", "empty_gold", "depth")


def quality_of(
    scores: Scores, gold: Gold, queries: Queries | None, corpus: Corpus | None
) -> StoryQuality:
    """What ``karat story`` would find, had it ranked the scenes as this run does."""
    _check(scores, queries)
    story_queries = _asked(queries, gold, scores.conventions.rel) if queries is not None else []
    lists = _Lists.of(scores, corpus)
    k = scores.conventions.k
    status = dict(zip(scores.table["query_id"], scores.status, strict=True))

    def rank(query: StoryQuery) -> Ranking:
        if status[query.query_id] == "scored":
            lists.check(query, query.k or k)
        return lists.of_query.get(query.query_id, [])

    quality = story_quality(story_queries, rank, k=k)
    skip = scores.conventions.missing == "skip"
    results = [
        _with_trouble(result, status[result.query_id], skip=skip) for result in quality.queries
    ]
    return replace(quality, queries=tuple(results))


def _check(scores: Scores, queries: Queries | None) -> None:
    usual = PROFILES[STORY].conventions
    for name in _FIXED:
        value = getattr(scores.conventions, name)
        if value != getattr(usual, name):
            raise UsageError(f"output story: has no {name}={value}; leave out that setting")
    if queries is None:
        raise MissingInputError(
            "output story: shows what was asked, and the gold holds no texts; "
            "name the queries: --queries queries.json"
        )


def _asked(queries: Queries, gold: Gold, rel: float) -> list[StoryQuery]:
    """The queries with their gold, as they stand in a file of a story's queries."""
    relevant: dict[str, set[str]] = {}
    judged = gold.frame.filter(pl.col("grade") >= rel)
    for query_id, item_id in judged.select("query_id", "item_id").iter_rows():
        relevant.setdefault(query_id, set()).add(item_id)
    ids, texts = queries.frame["query_id"], queries.frame["text"]
    cutoff_column = queries.frame.get_column("k", default=pl.Series([None] * len(ids)))
    # Scoring has refused what is no whole number.
    cuts = cutoff_column.cast(pl.Float64, strict=False).to_list()
    return [
        StoryQuery(
            name, text.strip(), frozenset(relevant.get(name, ())), None if k is None else int(k)
        )
        for name, text, k in zip(ids, texts, cuts, strict=True)
    ]


def _with_trouble(result: QueryQuality, status: str, *, skip: bool) -> QueryQuality:
    """A query that was never answered says so: it counts as 0, or not at all."""
    if result.recall is None or status not in ("failed", "missing"):
        return result
    if skip:
        return QueryQuality(result.query_id, result.text, trouble=status)
    return replace(result, trouble=status)


@dataclass(frozen=True)
class _Lists:
    """A run's lists by query, and what is known of where they end.

    ``most`` is how many hits it was asked for, None if that cannot be told.
    """

    system: str
    of_query: Mapping[str, Ranking]
    scenes: frozenset[str] | None
    most: int | None

    @classmethod
    def of(cls, scores: Scores, corpus: Corpus | None) -> _Lists:
        ids = scores.table["query_id"].to_list()
        lists: dict[str, list[tuple[str, float | None]]] = {}
        for row, item_id, score in _hits(scores):
            lists.setdefault(ids[row], []).append((item_id, score))
        # Only karat's own logs surely mean by k what is meant here, and say it of every call.
        k = scores.meta.get("k") if "run_digest" in scores.meta else None
        dropped = scores.counts.repeats and scores.conventions.repeats == "drop"
        whole = isinstance(k, int) and not dropped
        scenes = None if corpus is None else frozenset(corpus.frame["item_id"])
        return cls(scores.system, lists, scenes, k if whole else None)

    def check(self, query: StoryQuery, k: int) -> None:
        """Refuse a list that ends too early to tell the query's rank or recall."""
        length = len(self.of_query.get(query.query_id, []))
        if self.most is not None and length < self.most:
            return
        if self.scenes is not None and length >= len(self.scenes):
            return
        ranked = {scene for scene, _ in self.of_query.get(query.query_id, [])}
        left = (query.relevant if self.scenes is None else query.relevant & self.scenes) - ranked
        if left and (length < k or not ranked & query.relevant):
            raise self._too_short(query, length, left)

    def _too_short(self, query: StoryQuery, length: int, left: Collection[str]) -> UsageError:
        enough, hint = "above the number of scenes", "; --corpus tells which there are"
        if self.scenes is not None:
            enough, hint = f"{len(self.scenes):,} or more", ""
        return UsageError(
            f"output story: the list of {self.system} for query {query.query_id!r} ends after "
            f"{length:,} scenes without {' or '.join(sorted(left))}; "
            f"search again with its k {enough}{hint}"
        )


def _hits(scores: Scores) -> list[tuple[int, str, float | None]]:
    if scores.lists is None:
        return []
    frame = scores.lists.sort("row", "rank")
    if "score" not in frame.columns:
        frame = frame.with_columns(score=pl.lit(None, dtype=pl.Float64))
    return list(frame.select("row", "item_id", "score").iter_rows())


# The profiles, and the retriever that each stands for.
RETRIEVERS = {"vsa": "vsa", "bow": "bow", "basic": "bow"}
_PREFIX = "story:"
# How many names a note lists.
_NAMED = 3


@dataclass(frozen=True, eq=False)
class StoryResult:
    """The quality of a story, what it was measured with, and notes that explain it."""

    quality: StoryQuality
    about: str
    notes: list[str]


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
    """
    if profile not in RETRIEVERS:
        raise unknown("profile", profile, RETRIEVERS)
    settings = {name: value for name, value in (("dim", dim), ("seed", seed)) if value is not None}
    if settings and profile != "vsa":
        raise UsageError(f"--{next(iter(settings))} is for --profile vsa; {profile} counts words")
    if story == queries == "-":
        raise UsageError("story and queries cannot both be -; standard input is read once")
    scenes = read_story(story, lenient=lenient)
    story_queries = [] if queries is None else read_story_queries(queries)
    kind = maker(RETRIEVERS[profile])
    options = kind.Options(**settings)
    finder = kind.make(options, BuildContext(corpus=lambda: scenes.corpus), {})

    def rank(query: StoryQuery) -> Ranking:
        (answer,) = finder.find([Query(query.query_id, query.text)], scenes.corpus.frame.height)
        return [(hit.item_id, hit.score or 0.0) for hit in answer.hits]

    quality = story_quality(story_queries, rank, k=k)
    # Scenes have no titles, so that option says nothing.
    chosen = options.model_dump(exclude={"title"})
    number = plural(scenes.corpus.frame.height, "scene")
    about = f"{number} · {', '.join([profile, *(f'{name} {chosen[name]}' for name in chosen)])}"
    notes = [*scenes.notes, *_notes(story_queries, scenes.corpus, profile)]
    if quality.labelled and all(query.rank is None for query in quality.labelled):
        notes.append(nothing_found(len(quality.labelled)))
    return StoryResult(quality, about, notes)


def _notes(queries: Sequence[StoryQuery], corpus: Corpus, profile: str) -> Iterator[str]:
    """Yield what explains a surprising number."""
    blank = sum(not query.text for query in queries)
    if blank:
        yield f"{plural(blank, 'query', 'queries')} without text left out"
    scenes = set(corpus.frame["item_id"])
    missing = {
        name: None for query in queries if query.text for name in sorted(query.relevant - scenes)
    }
    if missing:
        yield f"gold that is no scene, and is never found: {_some(missing)}"
    empty = corpus.frame.filter(corpus.frame["text"].str.strip_chars() == "")["item_id"].to_list()
    if empty and profile == "vsa":
        yield f"scenes without text, which vsa may rank above others: {_some(empty)}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def story_outputs(texts: Sequence[str], inputs: Sequence[str], *, as_json: bool) -> list[Output]:
    """Return every ``-o``; names that cannot be written are refused before any work."""
    files = []
    for text in texts:
        file = text.removeprefix(_PREFIX)
        is_json = file == "-" or file.lower().removesuffix(".gz").endswith(".json")
        if not file or (text == file and not is_json):
            raise UsageError(f"output {text!r}: use out.json, story:FILE or -")
        files.append(f"json:{file}")
    return parse_outputs(files, inputs=inputs, stdout_taken=as_json)
