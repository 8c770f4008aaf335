"""API: evaluations started, watched and stopped."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from karat.errors import KaratError, UsageError, unknown
from karat.store import SavedEvaluation, Store, checked_tags
from karat.web.errors import Refusal, UnavailableError
from karat.web.rendering import Json
from karat.web.run_jobs import BusyError, Job, RunRequest
from karat.web.stored_reports import Name
from karat.web.workers import jobs_of, live_of

router = APIRouter(prefix="/api", tags=["runs"])

_HEARTBEAT_SECONDS = 15.0
# How soon a stream notices that the server ends, which waits for it.
_POLL_SECONDS = 0.5
_RECENT = 200
# Streams stay open, and must leave threads and connections to pages.
_MOST_STREAMS = 50
_NUMBER = re.compile(r"[0-9]{1,15}")
_REFUSALS: dict[int | str, dict[str, Any]] = {400: {"model": Refusal}, 404: {"model": Refusal}}


class NewRun(BaseModel):
    """What to evaluate; no systems means all of the karat.yaml."""

    systems: list[Name] = Field(default=[], max_length=1_000)
    tags: list[Name] = Field(default=[], max_length=100)
    fresh: bool = Field(default=False, strict=True)


class Progress(BaseModel):
    """The progress of a system; ``what`` is calls, reused, or what is being built."""

    system: str | None
    what: str
    done: int
    total: int


class Saved(BaseModel):
    """A saved evaluation of a run."""

    id: int
    system: str | None
    verdict: str | None


class RunAnswer(BaseModel):
    """A run that is running, stopping, done, failed or stopped; ``why`` is karat's message.

    With exit code 1 it is done: a gate fails, and that is its verdict.
    """

    id: int
    url: str
    systems: list[str]
    tags: list[str]
    fresh: bool
    state: str
    exit_code: int | None
    meaning: str
    why: str | None
    saved: list[int]
    evaluations: list[Saved]
    progress: list[Progress]
    log: list[str]
    last: int


class RunsAnswer(BaseModel):
    """Every run since the server started, the latest first."""

    runs: list[RunAnswer]


@router.post(
    "/runs", response_model=RunAnswer, status_code=201, responses=_REFUSALS | {409: _REFUSALS[400]}
)
def start(request: Request, new: NewRun) -> Response:
    """Start ``karat run --save`` with the karat.yaml of the server; one at a time."""
    known = list(live_of(request.app).opened().config.system_configs)
    for name in new.systems:
        if name not in known:
            raise unknown("system", name, known)
    if not known:
        raise UsageError("the karat.yaml has no systems; add some, then start it from here")
    wanted = RunRequest(tuple(dict.fromkeys(new.systems)), tuple(checked_tags(new.tags)), new.fresh)
    try:
        job = jobs_of(request.app).start(wanted, wanted.systems or known)
    except BusyError as error:
        raise HTTPException(409, str(error)) from None
    return Json(run_document(job, request.app.state.store), status_code=201)


@router.get("/runs", response_model=RunsAnswer)
def runs(request: Request) -> Response:
    """Return every run since the server started."""
    return Json({"runs": run_documents(jobs_of(request.app).all(), request.app.state.store)})


@router.get("/runs/{id}", response_model=RunAnswer, responses=_REFUSALS)
def run(request: Request, id: int) -> Response:
    """Return one run, finished or not."""
    return Json(run_document(jobs_of(request.app).job(id), request.app.state.store))


@router.post("/runs/{id}/stop", response_model=RunAnswer, responses=_REFUSALS)
def stop(request: Request, id: int) -> Response:
    """Stop a run; what it has logged is kept, and used by the next."""
    return Json(run_document(jobs_of(request.app).stop(id), request.app.state.store))


@router.get(
    "/runs/{id}/events",
    response_class=StreamingResponse,
    responses=_REFUSALS
    | {
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "progress, log and state",
        },
        503: _REFUSALS[400],
        204: {"description": "it has ended, and there are no further events"},
    },
)
async def events(
    request: Request,
    id: int,
    after: Annotated[int, Query(ge=0)] = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Stream the events of a run until it ends.

    ``after`` is the number of the last known event; a browser that reconnects sends it as
    Last-Event-ID.
    """
    job = jobs_of(request.app).job(id)
    seen = int(last_event_id) if last_event_id and _NUMBER.fullmatch(last_event_id) else after
    if not job.running and not job.since(seen):
        # Without this status a browser would reconnect.
        return Response(status_code=204)
    if jobs_of(request.app).listeners >= _MOST_STREAMS:
        raise UnavailableError(
            f"{_MOST_STREAMS} pages are watching evaluations; load this one again later"
        )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _stream(job, seen, request.app.state.stopping),
        media_type="text/event-stream",
        headers=headers,
    )


async def _stream(job: Job, seen: int, stopping: threading.Event) -> AsyncIterator[bytes]:
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        # The loop may end before the run.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(news.set)

    with job.listening(wake):
        yield b"retry: 1000\n\n"
        quiet = 0.0
        while True:
            news.clear()
            running = job.running
            for event in job.since(seen):
                seen, quiet = event.number, 0.0
                data = json.dumps(dict(event.data), ensure_ascii=True)
                yield f"id: {event.number}\nevent: {event.kind}\ndata: {data}\n\n".encode()
            if not running or stopping.is_set():
                return
            try:
                await asyncio.wait_for(news.wait(), _POLL_SECONDS)
            except TimeoutError:
                quiet += _POLL_SECONDS
            if quiet >= _HEARTBEAT_SECONDS:
                quiet = 0.0
                yield b": still running\n\n"


def run_document(job: Job, store: Store) -> dict[str, Any]:
    """Return a run and what it saved as JSON has it."""
    return run_documents([job], store)[0]


def run_documents(jobs: Iterable[Job], store: Store) -> list[dict[str, Any]]:
    """Return runs and what they saved as JSON has them, with one query to the store."""
    documents = [job.document() for job in jobs]
    found: dict[int, SavedEvaluation] = {}
    if any(document["saved"] for document in documents):
        # The ids are shown even if the store cannot be read now.
        with suppress(KaratError):
            found = {one.id: one for one in store.evaluations(limit=_RECENT)}
    return [
        document
        | {
            "url": f"/runs/{document['id']}",
            "evaluations": [
                {
                    "id": id,
                    "system": found[id].system if id in found else None,
                    "verdict": found[id].verdict if id in found else None,
                }
                for id in document["saved"]
            ],
        }
        for document in documents
    ]
