"""Live search with the systems of a karat.yaml: built at first use, and their API."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

from anyio.from_thread import run as run_in_loop
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from karat.data.columns import doc_of_text
from karat.errors import CallError, InputError, KaratError, UsageError, unknown
from karat.formats.readers import read_gold, read_queries
from karat.pages.formatting import label
from karat.project.config import read_config
from karat.project.systems import Systems, build_context_of
from karat.reports.html.view import readable
from karat.retrieve.protocol import Hit, queries_from
from karat.retrieve.protocol import Query as SystemQuery
from karat.retrieve.system import SearchSystem
from karat.web.evaluations import Name
from karat.web.responses import Json, OpenAnswer, RequestRefusedError
from karat.web.settings import Settings, secrets_of

router = APIRouter(prefix="/api", tags=["systems"])

LONGEST_TEXT = 2_000
MOST_HITS = 50
_SUGGESTED = 20
_GOLD_SHOWN = 50
_TEXT_SHOWN = 2_000
_ERROR_SHOWN = 500
_MOST_AT_ONCE = 16
# How often a waiting search checks whether its client has disconnected.
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
        self._opened: OpenConfig | None = None
        # The time and size of the karat.yaml that was opened.
        self._state = 0, 0
        self.closed = False
        # Slots to search and to wait per system, so that one that hangs does not block the others.
        self._places: dict[str, threading.Semaphore] = {}

    def opened(self) -> OpenConfig:
        """Return the karat.yaml, read again if the file changed."""
        if self._path is None:
            raise UsageError(_NO_CONFIG)
        if self.closed:
            raise CallError("the server is shutting down")
        with self._lock:
            try:
                status = self._path.stat()
            except OSError as error:
                raise InputError(error.strerror or str(error), where=self._path.name) from None
            state = status.st_mtime_ns, status.st_size
            if self._opened is None or self._state != state:
                opened = OpenConfig(self._settings)
                self._close_opened()
                self._opened, self._state = opened, state
            return self._opened

    def close(self) -> None:
        """Stop all services; no search starts afterwards."""
        self.closed = True
        with self._lock:
            self._close_opened()

    def _close_opened(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def document(self) -> dict[str, Any]:
        """Return the systems as JSON, without their addresses."""
        opened = self.opened()
        return {
            "config": Path(opened.config.place.file).name,
            "systems": [
                {
                    "name": system.name,
                    "retriever": system.kind,
                    "live": system.live,
                    "k": system.stages.k,
                    "built": name in opened.ready,
                }
                for name, system in opened.config.system_configs.items()
            ],
            "corpus": opened.context.corpus is not None,
            "queries": len(opened.judged.queries),
            "rel": opened.config.conventions.rel,
            "note": opened.judged.note,
        }

    def search(
        self, name: str, text: str, k: int, has_left: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Search with one system; return hits with texts and grades.

        A text of the eval set is searched with all attributes of its query, such as as_of. Once
        the client ``has_left``, a search that is still waiting is dropped.
        """
        if not text.strip():
            raise UsageError("the query is empty; type one")
        opened = self.opened()
        judged_query = opened.judged.find(text)
        query = SystemQuery("", text) if judged_query is None else judged_query
        if name not in opened.config.system_configs:
            raise unknown("system", name, opened.config.system_configs)
        places = self._places.setdefault(name, threading.Semaphore(_MOST_AT_ONCE))
        if not places.acquire(blocking=False):
            message = f"{name} has {_MOST_AT_ONCE} searches in progress; try again in a moment"
            raise RequestRefusedError(503, message)
        try:
            system, slots = opened.system(name)
            while not slots.acquire(timeout=_POLL_SECONDS):
                if has_left():
                    raise CallError("the client has disconnected")
            try:
                start = time.perf_counter()
                answer = system.find([query], k)[0]
                took = (time.perf_counter() - start) * 1000
            finally:
                slots.release()
        except Exception as error:
            # A system may raise anything: report one sentence, without secrets.
            kind = "" if isinstance(error, KaratError) else f"{type(error).__name__}: "
            message = f"{kind}{error}"
            message = opened.context.redact(" ".join(message.split()))
            raise CallError(message[:_ERROR_SHOWN]) from None
        finally:
            places.release()
        return {
            "system": name,
            "query_id": None if judged_query is None else judged_query.query_id,
            "latency_ms": took,
            "rewritten": answer.rewritten,
            "source": answer.source,
            **_hits_and_gold(system, answer.hits[:k], opened, judged_query),
            "error": None,
        }


def _hits_and_gold(
    system: SearchSystem, hits: Sequence[Hit], opened: OpenConfig, known: SystemQuery | None
) -> dict[str, Any]:
    gold = {} if known is None else opened.judged.grades.get(known.query_id, {})
    ranks: dict[str, int] = {}
    documents: list[dict[str, Any]] = []
    for rank, hit in enumerate(hits, 1):
        key = opened.judged.key(hit)
        repeated = any(hit.item_id == document["item_id"] for document in documents)
        ranks.setdefault(key, rank)
        text = hit.text if system.items is None else system.items.text(hit)
        score = math.nan if hit.score is None else float(hit.score)
        documents.append(
            {
                "item_id": hit.item_id,
                "score": score if math.isfinite(score) else None,
                "rank": rank,
                "text": None if text is None else readable(text[:_TEXT_SHOWN]),
                "cut": text is not None and len(text) > _TEXT_SHOWN,
                "grade": None if repeated else gold.get(key),
            }
        )
    rel = opened.config.conventions.rel
    relevant = sorted((-grade, item) for item, grade in gold.items() if grade >= rel)
    ranked = [
        {"item_id": item, "grade": -grade, "rank": ranks.get(item)}
        for grade, item in relevant[:_GOLD_SHOWN]
    ]
    return {"hits": documents, "gold": ranked}


class OpenConfig:
    """A karat.yaml as read, with the systems built from it so far."""

    def __init__(self, settings: Settings) -> None:
        path = Path(settings.config or "")
        self.config = read_config(path)
        self.context = build_context_of(self.config, path.parent.absolute())
        # All secrets, not only those of one system: systems share this process.
        self.context.secrets.update(secrets_of(settings))
        self.systems = Systems(self.config, self.context)
        # Each system with a semaphore for its concurrent searches.
        self.ready: dict[str, tuple[SearchSystem, threading.Semaphore]] = {}
        self.building = threading.Lock()

    @cached_property
    def judged(self) -> JudgedQueries:
        """Return the queries and gold; if these cannot be read, search works without them."""
        config = self.config
        name = config.queries or config.gold
        if name is None:
            return JudgedQueries(note="no suggestions: the karat.yaml names no queries")
        queries: list[SystemQuery] = []
        try:
            queries = queries_from(read_queries(config.path(name), fields=config.for_queries))
            if config.conventions.level == "span":
                note = "the gold consists of character spans, which are not marked here"
                return JudgedQueries(queries, note=note)
            gold = read_gold(
                config.path(config.gold or name),
                duplicates=config.conventions.duplicates,
                fields=config.for_queries if config.gold is None else config.mapping,
            )
        except KaratError as error:
            return JudgedQueries(queries, note=str(error))
        by_doc = config.conventions.level == "doc"
        grades: dict[str, dict[str, float]] = {}
        rows = gold.frame.select("query_id", "item_id", "grade").iter_rows()
        for query_id, item_id, grade in rows:
            of_query = grades.setdefault(query_id, {})
            key = doc_of_text(item_id) if by_doc else item_id
            of_query[key] = max(grade, of_query.get(key, grade))
        return JudgedQueries(queries, grades, by_doc)

    def system(self, name: str) -> tuple[SearchSystem, threading.Semaphore]:
        """Return a system and its places; the first search builds it while others wait."""
        if name not in self.ready:
            with self.building:
                if name not in self.ready:
                    system = self.systems[name]
                    slots = threading.Semaphore(max(1, system.concurrency))
                    self.ready[name] = system, slots
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
class JudgedQueries:
    """Queries of the eval set and their grades; ``note`` says what is missing."""

    queries: list[SystemQuery] = field(default_factory=list)
    grades: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_doc: bool = False
    note: str | None = None

    def find(self, text: str) -> SystemQuery | None:
        """Return the first query with this text, or None."""
        stripped = text.strip()
        return next((query for query in self.queries if query.text.strip() == stripped), None)

    def like(self, text: str) -> list[SystemQuery]:
        """Return queries whose text or id has all these words."""
        words = text.casefold().split()
        return [
            query
            for query in self.queries
            if all(word in f"{query.query_id} {query.text}".casefold() for word in words)
        ]

    def key(self, hit: Hit) -> str:
        """Return the id that a hit is judged by."""
        return (hit.doc_id or doc_of_text(hit.item_id)) if self.by_doc else hit.item_id


class SearchRequest(BaseModel):
    """A search with one system."""

    system: Name
    text: str = Field(max_length=LONGEST_TEXT)
    k: int = Field(default=10, ge=1, le=MOST_HITS, strict=True)


@router.get("/systems", response_model=OpenAnswer)
def systems(request: Request) -> Response:
    """Return the systems that can be searched, without their addresses."""
    return Json(request.app.state.live.document())


@router.get("/queries", response_model=OpenAnswer)
def queries(
    request: Request,
    search: Annotated[str, Query(max_length=LONGEST_TEXT)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = _SUGGESTED,
) -> Response:
    """Return queries of the eval set whose text or id has these words."""
    matches = request.app.state.live.opened().judged.like(search)
    suggestions = [
        {"query_id": query.query_id, "text": query.text[:LONGEST_TEXT]}
        for query in matches[:limit]
        if query.text.strip()
    ]
    return Json({"queries": suggestions, "total": len(matches)})


@router.post("/search", response_model=OpenAnswer)
async def search(request: Request, question: SearchRequest) -> Response:
    """Search with one system; its first search waits until it is built."""
    live: LiveSystems = request.app.state.live
    has_left = partial(run_in_loop, request.is_disconnected)
    work = partial(live.search, question.system, question.text, question.k, has_left)
    try:
        # A shutdown cancels this without waiting for the thread.
        return Json(await run_sync(work, abandon_on_cancel=True))
    except CallError as error:
        answer: dict[str, Any] = {"system": question.system, "hits": [], "gold": []}
        answer |= dict.fromkeys(("query_id", "latency_ms", "rewritten", "source"))
        return Json({**answer, "error": label(str(error))}, status_code=502)
