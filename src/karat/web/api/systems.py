"""The configured systems, and a question put to one of them."""

from __future__ import annotations

import threading
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from karat.errors import CallError
from karat.reports.figures import label
from karat.web.errors import Refusal
from karat.web.live import LONGEST_TEXT, MOST_HITS
from karat.web.rendering import Json
from karat.web.wanted import Name
from karat.web.workers import in_a_thread, live_of, workers

router = APIRouter(prefix="/api", tags=["systems"], lifespan=workers)

_SUGGESTED = 20


class Question(BaseModel):
    """What to ask a system."""

    system: Name
    text: str = Field(max_length=LONGEST_TEXT)
    k: int = Field(default=10, ge=1, le=MOST_HITS, strict=True)


class Found(BaseModel):
    """One item of the answer; ``grade`` is None unless the text is a query of the eval set."""

    item_id: str
    score: float | None
    rank: int
    text: str | None
    cut: bool
    grade: float | None


class Relevant(BaseModel):
    """An item that is right, and where it came; no rank: not among those asked for."""

    item_id: str
    grade: float
    rank: int | None


class SearchAnswer(BaseModel):
    """What a system found."""

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
    """The systems of the karat.yaml, and what is known beside them."""

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
    """Some queries of the eval set, and how many are like this."""

    queries: list[Suggestion]
    total: int


@router.get("/systems", response_model=SystemsAnswer, responses={400: {"model": Refusal}})
def systems(request: Request) -> Response:
    """Which systems can be asked; never how they are reached."""
    return Json(live_of(request.app).document())


@router.get("/queries", response_model=Suggestions, responses={400: {"model": Refusal}})
def queries(
    request: Request,
    search: Annotated[str, Query(max_length=LONGEST_TEXT)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = _SUGGESTED,
) -> Response:
    """Queries of the eval set whose text or id holds these words."""
    return Json(live_of(request.app).suggestions(search, limit))


@router.post(
    "/search",
    response_model=SearchAnswer,
    responses={400: {"model": Refusal}, 502: {"model": SearchAnswer}, 503: {"model": Refusal}},
)
async def search(request: Request, question: Question) -> Response:
    """Ask one system; the first question to it waits until it is built."""
    gone = threading.Event()
    work = partial(live_of(request.app).search, question.system, question.text, question.k, gone)
    try:
        found = await in_a_thread(work, request.app.state.stopping, request.is_disconnected)
        return Json(found)
    except CallError as error:
        unknown = dict.fromkeys(("query_id", "latency_ms", "rewritten", "source"))
        nothing = {"hits": [], "gold": [], "error": label(str(error))}
        return Json({"system": question.system, **unknown, **nothing}, status_code=502)
    finally:
        gone.set()
