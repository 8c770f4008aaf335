"""Live search with the systems of a karat.yaml: built at first use, closed at the end."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from karat.data.columns import doc_of_text
from karat.errors import CallError, InputError, KaratError, UsageError, unknown
from karat.formats import read_gold, read_queries
from karat.project.config import Config, read_config
from karat.project.systems import Systems, build_context_of
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Hit, Query, queries_from
from karat.retrieve.system import System
from karat.web.errors import UnavailableError
from karat.web.settings import Settings, secrets_of

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LONGEST_TEXT = 2_000
MOST_HITS = 50
_GOLD_SHOWN = 50
_TEXT_SHOWN = 2_000
_ERROR_SHOWN = 500
_MOST_AT_ONCE = 16
# How soon a waiting search notices that its client has left.
_POLL_SECONDS = 0.25
# How long a shutdown waits for a system that is being built.
_LAST_BUILD_SECONDS = 2.0
_NO_CONFIG = (
    "karat serve was started without a karat.yaml; start it with one: karat serve karat.yaml"
)


class LiveSystems:
    """Searches with configured systems from any thread; a changed karat.yaml is read again."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._path = settings, settings.config
        self._lock = threading.Lock()
        self._opened: tuple[tuple[int, int], OpenConfig] | None = None
        self.closed = False
        # Searches under way per system: one that hangs does not block the others.
        self._searches: Counter[str] = Counter()
        self._counting = threading.Lock()

    @property
    def configured(self) -> bool:
        """Return whether there is a karat.yaml."""
        return self._path is not None

    def opened(self) -> OpenConfig:
        """Return the karat.yaml as it is now."""
        if self._path is None:
            raise UsageError(_NO_CONFIG)
        if self.closed:
            raise CallError("the server is ending")
        with self._lock:
            try:
                status = self._path.stat()
            except OSError as error:
                raise InputError(error.strerror or str(error), where=self._path.name) from None
            state = status.st_mtime_ns, status.st_size
            if self._opened is None or self._opened[0] != state:
                fresh = OpenConfig.of(self._path, self._settings)
                before, self._opened = self._opened, (state, fresh)
                if before is not None:
                    before[1].close()
            return self._opened[1]

    def close(self) -> None:
        """Stop all services; no search starts afterwards."""
        self.closed = True
        with self._lock:
            before, self._opened = self._opened, None
        if before is not None:
            before[1].close()

    def document(self) -> dict[str, Any]:
        """Return the systems as JSON has them, without their addresses."""
        opened = self.opened()
        built = opened.ready.keys()
        return {
            "config": Path(opened.config.place.file).name,
            "systems": [
                {
                    "name": system.name,
                    "retriever": system.kind,
                    "live": system.live,
                    "k": system.stages.k,
                    "built": name in built,
                }
                for name, system in opened.config.system_configs.items()
            ],
            "corpus": opened.context.has_corpus,
            "queries": len(opened.eval_set.queries),
            "rel": opened.config.conventions.rel,
            "note": opened.eval_set.note,
        }

    def suggestions(self, text: str, limit: int) -> dict[str, Any]:
        """Return queries of the eval set that match a text."""
        found, total = self.opened().eval_set.like(text, limit)
        shown = [
            {"query_id": query.query_id, "text": query.text[:LONGEST_TEXT]}
            for query in found
            if query.text.strip()
        ]
        return {"queries": shown, "total": total}

    def search(
        self, name: str, text: str, k: int, client_left: threading.Event | None = None
    ) -> dict[str, Any]:
        """Search with one system; return hits with texts and grades.

        A text of the eval set is searched with all attributes of its query, such as as_of. Once
        ``client_left`` is set, a search that has not begun never does.
        """
        if not text.strip():
            raise UsageError("there is no question; type one")
        opened = self.opened()
        known = opened.eval_set.find(text)
        query = Query("", text) if known is None else known
        if name not in opened.config.system_configs:
            raise unknown("system", name, opened.config.system_configs)
        try:
            with self._counted(name):
                system = opened.system(name)
                answer, took = _search(system, query, k, opened.slots[name], client_left)
        except UnavailableError:
            raise
        except Exception as error:
            # A system may raise anything: report one sentence, without secrets.
            raise CallError(_sentence(error, opened.context)) from None
        return {
            "system": name,
            "query_id": None if known is None else known.query_id,
            "latency_ms": took,
            "rewritten": answer.rewritten,
            "source": answer.source,
            **_hits_and_gold(system, answer, k, opened, known),
            "error": None,
        }

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        """Count a search; refuse too many at once with one system."""
        with self._counting:
            if self._searches[name] >= _MOST_AT_ONCE:
                raise UnavailableError(
                    f"{name} has {_MOST_AT_ONCE} questions to answer yet; try again in a moment"
                )
            self._searches[name] += 1
        try:
            yield
        finally:
            with self._counting:
                self._searches[name] -= 1


def _search(
    system: System,
    query: Query,
    k: int,
    slots: threading.Semaphore,
    client_left: threading.Event | None,
) -> tuple[Answer, float]:
    """Wait for a slot, then return the answer of a system and its milliseconds."""
    while not slots.acquire(timeout=_POLL_SECONDS):
        if client_left is not None and client_left.is_set():
            raise CallError("the client has left")
    try:
        start = time.perf_counter()
        answer = system.find([query], k)[0]
        return answer, (time.perf_counter() - start) * 1000
    finally:
        slots.release()


def _hits_and_gold(
    system: System, answer: Answer, k: int, opened: OpenConfig, known: Query | None
) -> dict[str, Any]:
    gold = opened.eval_set.gold_of(known)
    hits, ranks = [], dict[str, int]()
    seen: set[str] = set()
    for rank, hit in enumerate(answer.hits[:k], 1):
        key = opened.eval_set.key(hit)
        ranks.setdefault(key, rank)
        text = hit.text if system.items is None else system.items.text(hit)
        hits.append(
            {
                "item_id": hit.item_id,
                "score": _finite(hit.score),
                "rank": rank,
                "text": None if text is None else shown(text[:_TEXT_SHOWN]),
                "cut": text is not None and len(text) > _TEXT_SHOWN,
                # A repeated item has no grade.
                "grade": None if hit.item_id in seen else gold.get(key),
            }
        )
        seen.add(hit.item_id)
    return {"hits": hits, "gold": ranked_gold(gold, ranks, opened.config.conventions.rel)}


def shown(text: str) -> str:
    r"""Return a text without control characters, which could break a page.

    >>> shown("a\x00b\tc")
    'a�b\tc'
    """
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _finite(score: float | None) -> float | None:
    number = None if score is None else float(score)
    return number if number is not None and abs(number) < float("inf") else None


def _sentence(error: Exception, context: BuildContext) -> str:
    message = str(error) if isinstance(error, KaratError) else f"{type(error).__name__}: {error}"
    return context.redact(" ".join(message.split()))[:_ERROR_SHOWN]


@dataclass(eq=False)
class OpenConfig:
    """A karat.yaml as it was read, with the systems built from it so far."""

    config: Config
    context: BuildContext
    systems: Systems
    ready: dict[str, System] = field(default_factory=dict)
    slots: dict[str, threading.Semaphore] = field(default_factory=dict)
    building: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, path: Path, settings: Settings) -> OpenConfig:
        """Read a karat.yaml; nothing is built yet."""
        config = read_config(path)
        context = build_context_of(config, path.parent.absolute())
        # All secrets, not only those of one system: systems share this process.
        context.secrets.update(secrets_of(settings))
        return cls(config, context, Systems(config, context))

    @cached_property
    def eval_set(self) -> EvalSet:
        """Return the queries and gold."""
        return read_eval_set(self.config)

    def system(self, name: str) -> System:
        """Return a system; the first search builds it while others wait."""
        if name not in self.config.system_configs:
            raise unknown("system", name, self.config.system_configs)
        if name not in self.ready:
            with self.building:
                if name not in self.ready:
                    system = self.systems[name]
                    self.slots[name] = threading.Semaphore(max(1, system.concurrency))
                    self.ready[name] = system
        return self.ready[name]

    def close(self) -> None:
        """Stop services that were started."""
        waited = self.building.acquire(timeout=_LAST_BUILD_SECONDS)
        try:
            self.systems.__exit__()
        finally:
            if waited:
                self.building.release()


@dataclass(frozen=True, eq=False)
class EvalSet:
    """Queries and their gold; ``note`` says what is missing."""

    queries: list[Query] = field(default_factory=list)
    grades: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_doc: bool = False
    note: str | None = None

    def find(self, text: str) -> Query | None:
        """Return the first query with this text, or None."""
        stripped = text.strip()
        return next((query for query in self.queries if query.text.strip() == stripped), None)

    def like(self, text: str, limit: int) -> tuple[list[Query], int]:
        """Return queries whose text or id has all these words, and their total number."""
        words = text.casefold().split()
        found = [
            query
            for query in self.queries
            if all(word in f"{query.query_id} {query.text}".casefold() for word in words)
        ]
        return found[:limit], len(found)

    def gold_of(self, query: Query | None) -> Mapping[str, float]:
        """Return grades by item, or by document if the gold is of documents."""
        return {} if query is None else self.grades.get(query.query_id, {})

    def key(self, hit: Hit) -> str:
        """Return the id that a hit is judged by."""
        return (hit.doc_id or doc_of_text(hit.item_id)) if self.by_doc else hit.item_id


def read_eval_set(config: Config) -> EvalSet:
    """Read the eval set of a config; if it cannot be read, search works without it."""
    name = config.queries or config.gold
    if name is None:
        return EvalSet(note="the karat.yaml names no queries, so none are offered")
    try:
        queries = queries_from(read_queries(config.path(name), fields=config.for_queries))
    except KaratError as error:
        return EvalSet(note=str(error))
    level = config.conventions.level
    if level == "span":
        return EvalSet(queries, note="the gold is in character spans, which are not marked here")
    try:
        gold = read_gold(
            config.path(config.gold or name),
            duplicates=config.conventions.duplicates,
            fields=config.for_queries if config.gold is None else config.mapping,
        )
    except KaratError as error:
        return EvalSet(queries, note=str(error))
    rows = gold.frame.select("query_id", "item_id", "grade").iter_rows()
    return EvalSet(queries, _grades(rows, by_doc=level == "doc"), by_doc=level == "doc")


def _grades(rows: Iterable[tuple[str, str, float]], *, by_doc: bool) -> dict[str, dict[str, float]]:
    grades: dict[str, dict[str, float]] = {}
    for query_id, item_id, grade in rows:
        of_query = grades.setdefault(query_id, {})
        key = doc_of_text(item_id) if by_doc else item_id
        of_query[key] = max(grade, of_query.get(key, grade))
    return grades


def ranked_gold(
    gold: Mapping[str, float], ranks: Mapping[str, int], rel: float
) -> list[dict[str, Any]]:
    """Return relevant items with their ranks, best grade first."""
    relevant = sorted((-grade, item) for item, grade in gold.items() if grade >= rel)
    return [
        {"item_id": item, "grade": -grade, "rank": ranks.get(item)}
        for grade, item in relevant[:_GOLD_SHOWN]
    ]
