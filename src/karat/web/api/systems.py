"""API: the configured systems, queries of the eval set, and live search."""

from __future__ import annotations

import threading
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from karat.errors import CallError
from karat.pages.formatting import label
from karat.web.errors import Refusal
from karat.web.live import LONGEST_TEXT, MOST_HITS
from karat.web.rendering import Json
from karat.web.stored_reports import Name
from karat.web.workers import live_of, run_in_daemon_thread, workers

router = APIRouter(prefix="/api", tags=["systems"], lifespan=workers)

_SUGGESTED = 20


class Question(BaseModel):
    """A search with one system."""

    system: Name
    text: str = Field(max_length=LONGEST_TEXT)
    k: int = Field(default=10, ge=1, le=MOST_HITS, strict=True)


class Found(BaseModel):
    """One hit; ``grade`` is null unless the text is a query of the eval set."""

    item_id: str
    score: float | None
    rank: int
    text: str | None
    cut: bool
    grade: float | None


class Relevant(BaseModel):
    """A relevant item and its rank; null if it is not among the hits."""

    item_id: str
    grade: float
    rank: int | None


class SearchAnswer(BaseModel):
    """The result of a search."""

    system: str
    query_id: str | None
    latency_ms: float | None
    rewritten: str | None
    source: str | None
    hits: list[Found]
    gold: list[Relevant]
    error: str | None


class SystemAbout(BaseModel):
    """A system by its name and kind; ``live`` ones can change without the karat.yaml."""

    name: str
    retriever: str
    live: bool
    k: int | None
    built: bool


class SystemsAnswer(BaseModel):
    """The systems of the karat.yaml, and the inputs beside them."""

    config: str
    systems: list[SystemAbout]
    corpus: bool
    queries: int
    rel: float
    note: str | None


class Suggestion(BaseModel):
    """A query of the eval set."""

    query_id: str
    text: str


class Suggestions(BaseModel):
    """Matching queries of the eval set, and their total number."""

    queries: list[Suggestion]
    total: int


@router.get("/systems", response_model=SystemsAnswer, responses={400: {"model": Refusal}})
def systems(request: Request) -> Response:
    """Return the systems that can be searched, without their addresses."""
    return Json(live_of(request.app).document())


@router.get("/queries", response_model=Suggestions, responses={400: {"model": Refusal}})
def queries(
    request: Request,
    search: Annotated[str, Query(max_length=LONGEST_TEXT)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = _SUGGESTED,
) -> Response:
    """Return queries of the eval set whose text or id has these words."""
    return Json(live_of(request.app).suggestions(search, limit))


@router.post(
    "/search",
    response_model=SearchAnswer,
    responses={400: {"model": Refusal}, 502: {"model": SearchAnswer}, 503: {"model": Refusal}},
)
async def search(request: Request, question: Question) -> Response:
    """Search with one system; its first search waits until it is built."""
    client_left = threading.Event()
    work = partial(
        live_of(request.app).search, question.system, question.text, question.k, client_left
    )
    try:
        found = await run_in_daemon_thread(
            work, request.app.state.stopping, request.is_disconnected
        )
        return Json(found)
    except CallError as error:
        unknown = dict.fromkeys(("query_id", "latency_ms", "rewritten", "source"))
        nothing = {"hits": [], "gold": [], "error": label(str(error))}
        return Json({"system": question.system, **unknown, **nothing}, status_code=502)
    finally:
        client_left.set()
