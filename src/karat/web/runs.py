"""Evaluations started from a page: ``karat run``, one at a time, watched and stopped over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, FastAPI, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field, ValidationError

from karat.errors import KaratError, UsageError, unknown
from karat.jobs.redaction import redactor
from karat.store import checked_tags
from karat.store.database import VARIABLE as STORE_VARIABLE
from karat.web.evaluations import Name
from karat.web.responses import BusyError, Json, NotFoundError, OpenAnswer, UnavailableError
from karat.web.run_process import GRACE_SECONDS, RunProcess
from karat.web.settings import TOKEN_VARIABLE, Settings, secrets_of

router = APIRouter(prefix="/api", tags=["runs"])

_JOBS_KEPT = 50
_LOG_LINES, _LOG_LINE_LENGTH = 500, 2_000
_SHUTDOWN_GRACE_SECONDS = 3.0
_HEARTBEAT_SECONDS = 15.0
# How soon a stream tells what happened, and notices that the server ends.
_POLL_SECONDS = 0.2
# Streams stay open, and must leave connections to pages.
_MOST_STREAMS = 50
_NUMBER = re.compile(r"[0-9]{1,15}")

_REUSED = re.compile(r"(.+): ([\d,]+) calls, log reused")
_SAVED = re.compile(r"saved as (\d+(?:, \d+)*) in ")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_WARNING = "karat: warning:"

# The exit codes of karat run. A gate that fails is a result, not a failure.
_FINISHED = {
    0: "Finished: no gate fails, and nothing got worse.",
    1: "Finished: a gate fails, or a system got worse. The evaluation itself is complete.",
    3: "Finished, but it cannot tell: too little could be measured for a verdict.",
}
_FAILED = {
    2: "Not evaluated: the karat.yaml, a file or a value cannot be used.",
    70: "Not evaluated: a bug in karat ended it.",
}


class RunRequest(BaseModel):
    """What to evaluate; no systems means all of the karat.yaml."""

    systems: list[Name] = Field(default=[], max_length=1_000)
    tags: list[Name] = Field(default=[], max_length=100)
    fresh: bool = Field(default=False, strict=True)


class RunProgress(BaseModel):
    """The progress of a system, as a line of KARAT_PROGRESS=json has it.

    ``what`` is calls, reused, or what is being built.
    """

    system: str | None
    what: str
    done: int = Field(ge=0, strict=True)
    total: int = Field(ge=0, strict=True)


class RunEvent(NamedTuple):
    """Something that happened: ``kind`` is progress, log or state; numbers only go up."""

    number: int
    kind: str
    data: Mapping[str, Any]


class Job:
    """The state of a run; written by the threads that watch its process, read by any.

    Keeps the latest progress of each system and the last lines of the log, so that a stream
    that was interrupted misses steps but never the outcome. ``redact`` removes secrets from the
    log.
    """

    process: RunProcess

    def __init__(
        self,
        id: int,
        run_request: RunRequest,
        systems: Sequence[str],
        *,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.id, self.systems = id, systems
        self._request, self._redact = run_request, redact
        self._lock = threading.Lock()
        self._number = 0
        self._log: deque[RunEvent] = deque(maxlen=_LOG_LINES)
        self._progress: dict[str | None, RunEvent] = {}
        self._why: str | None = None
        self._saved: list[int] = []
        self._state: RunEvent
        self._set_state("running", "Running: the systems are asked, then their answers are scored.")

    @property
    def running(self) -> bool:
        """Return whether the process has not ended yet."""
        return self._state.data["state"] in ("running", "stopping")

    def since(self, number: int) -> list[RunEvent]:
        """Return the events after a number, in order."""
        with self._lock:
            events = (*self._log, *self._progress.values(), self._state)
            # A higher number is of a job of a server that ran before this one.
            after = number if number <= self._number else 0
        return sorted(event for event in events if event.number > after)

    def read(self, line: str) -> None:
        """Read a line of the command's standard error."""
        with suppress(ValidationError):
            self._add("progress", RunProgress.model_validate_json(line).model_dump())
            return
        # Of a progress bar that is drawn over and over, only the last state counts.
        text = _COLOURS.sub("", line.rpartition("\r")[2])
        text = self._redact(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text))
        if saved := _SAVED.match(text):
            self._saved = list(map(int, saved[1].split(", ")))
        if text.startswith("karat: ") and not text.startswith(_WARNING):
            self._why = text.removeprefix("karat: ")
        self._add("log", {"line": text[:_LOG_LINE_LENGTH]})
        # A log that is reused reports no progress of its own.
        if (reused := _REUSED.match(text)) and reused[1] in self.systems:
            calls = int(reused[2].replace(",", ""))
            done = {"system": reused[1], "what": "reused", "done": calls, "total": calls}
            self._add("progress", done)

    def stop(self, grace: float) -> None:
        """Stop the process; one that has ended stays as it is."""
        if self.running:
            self._set_state("stopping", "Stopping: what is logged so far is being kept.")
            self.process.stop(grace)

    def end(self, code: int) -> None:
        """Note the exit code; 1 without anything saved is Python's own, and no verdict."""
        if code in _FINISHED and (code != 1 or self._saved):
            self._set_state("done", _FINISHED[code], code)
        elif self._state.data["state"] == "stopping":
            meaning = "Stopped before the end; calls already logged are used when it is run again."
            self._set_state("stopped", meaning, code)
        else:
            meaning = _FAILED.get(code, f"Not evaluated: it ended with {code}.")
            self._set_state("failed", meaning, code)

    def document(self) -> dict[str, Any]:
        """Return the job as JSON has it."""
        with self._lock:
            return {
                "id": self.id,
                "url": f"/runs/{self.id}",
                "systems": list(self.systems),
                "tags": list(self._request.tags),
                "fresh": self._request.fresh,
                **self._state.data,
                "progress": [dict(event.data) for event in self._progress.values()],
                "log": [event.data["line"] for event in self._log],
                "last": self._number,
            }

    def _set_state(self, state: str, meaning: str, code: int | None = None) -> None:
        why = None if code is None else self._why
        data = {"state": state, "exit_code": code, "meaning": meaning}
        self._add("state", {**data, "why": why, "saved": self._saved})

    def _add(self, kind: str, data: Mapping[str, Any]) -> None:
        with self._lock:
            self._number += 1
            event = RunEvent(self._number, kind, data)
            if kind == "log":
                self._log.append(event)
            elif kind == "progress":
                self._progress[data["system"]] = event
            elif data["state"] != "stopping" or self._state.data["exit_code"] is None:
                # It may end by itself at the moment at which it is stopped.
                self._state = event


class Jobs:
    """The evaluations started since the server was; the last of them are kept.

    ``streams`` is the number of pages that watch them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._closed = False
        self.streams = 0

    def start(self, run_request: RunRequest, systems: Sequence[str]) -> Job:
        """Start an evaluation of these systems; refuse if another one runs."""
        with self._lock:
            running = next((job.id for job in self._jobs.values() if job.running), None)
            if running is not None:
                raise BusyError(
                    f"evaluation {running} is still running; wait for its end, or stop it first"
                )
            if self._closed:
                raise BusyError("the server is ending")
            redact = redactor(secrets_of(self._settings))
            job = Job(max(self._jobs, default=0) + 1, run_request, systems, redact=redact)
            command, environment = self._command(run_request), self._environment()
            try:
                job.process = RunProcess(command, environment, job.read, job.end)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise BusyError(f"the evaluation could not be started: {reason}") from None
            self._jobs[job.id] = job
            self._jobs.pop(job.id - _JOBS_KEPT, None)
            return job

    def all(self) -> list[Job]:
        """Return every job, the latest first."""
        return list(self._jobs.values())[::-1]

    def job(self, id: int) -> Job:
        """Return one job."""
        job = self._jobs.get(id)
        if job is None:
            raise NotFoundError(
                f"no evaluation {id} was started since karat serve was; "
                "what earlier ones saved is on the first page"
            )
        return job

    def close(self) -> None:
        """Stop what runs, and wait for its end; may be called more than once."""
        with self._lock:
            self._closed = True
        for job in self.all():
            if job.running:
                job.stop(_SHUTDOWN_GRACE_SECONDS)
                job.process.wait(_SHUTDOWN_GRACE_SECONDS + 5)

    def _command(self, run_request: RunRequest) -> list[str]:
        """Return the command; each value is joined to its option, so that none reads as one."""
        words = [f"--system={name}" for name in dict.fromkeys(run_request.systems)]
        words += [f"--tag={tag}" for tag in run_request.tags]
        words += ["--fresh"] if run_request.fresh else []
        return ["karat", "run", "--save", *words, "--", str(self._settings.config)]

    def _environment(self) -> dict[str, str]:
        """Return the environment of the command, without the token.

        The store is passed here, since every user of the machine can read the arguments of a
        command, and it may hold a password.
        """
        environment = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE}
        environment |= {"KARAT_PROGRESS": "json", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
        if self._settings.store is not None:
            environment[STORE_VARIABLE] = self._settings.store
        return environment


@router.post("/runs", response_model=OpenAnswer, status_code=201)
def start(request: Request, new: RunRequest) -> Response:
    """Start ``karat run --save`` with the karat.yaml of the server; one at a time."""
    systems = list(request.app.state.live.opened().config.system_configs)
    for name in new.systems:
        if name not in systems:
            raise unknown("system", name, systems)
    if not systems:
        raise UsageError("the karat.yaml has no systems; add some, then start it from here")
    new = new.model_copy(update={"tags": checked_tags(new.tags)})
    chosen = list(dict.fromkeys(new.systems or systems))
    job = request.app.state.jobs.start(new, chosen)
    return Json(run_document(request.app, job.id), status_code=201)


@router.get("/runs", response_model=OpenAnswer)
def runs(request: Request) -> Response:
    """Return every run since the server started."""
    return Json({"runs": run_documents(request.app)})


@router.get("/runs/{id}", response_model=OpenAnswer)
def run(request: Request, id: int) -> Response:
    """Return one run, finished or not."""
    return Json(run_document(request.app, id))


@router.post("/runs/{id}/stop", response_model=OpenAnswer)
def stop(request: Request, id: int) -> Response:
    """Stop a run; what it has logged is kept, and used by the next."""
    request.app.state.jobs.job(id).stop(GRACE_SECONDS)
    return Json(run_document(request.app, id))


@router.get(
    "/runs/{id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "progress, log and state",
        },
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
    jobs: Jobs = request.app.state.jobs
    job = jobs.job(id)
    seen = int(last_event_id) if last_event_id and _NUMBER.fullmatch(last_event_id) else after
    if not job.running and not job.since(seen):
        # Without this status a browser would reconnect.
        return Response(status_code=204)
    if jobs.streams >= _MOST_STREAMS:
        raise UnavailableError(
            f"{_MOST_STREAMS} pages are watching evaluations; load this one again later"
        )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _stream(jobs, job, seen, request.app.state.stopping)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(
    jobs: Jobs, job: Job, seen: int, stopping: threading.Event
) -> AsyncIterator[bytes]:
    jobs.streams += 1
    try:
        yield b"retry: 1000\n\n"
        quiet = 0.0
        while True:
            running = job.running
            for event in job.since(seen):
                seen, quiet = event.number, 0.0
                data = json.dumps(dict(event.data), ensure_ascii=True)
                yield f"id: {event.number}\nevent: {event.kind}\ndata: {data}\n\n".encode()
            if not running or stopping.is_set():
                return
            await asyncio.sleep(_POLL_SECONDS)
            quiet += _POLL_SECONDS
            if quiet >= _HEARTBEAT_SECONDS:
                quiet = 0.0
                yield b": still running\n\n"
    finally:
        jobs.streams -= 1


def run_document(app: FastAPI, id: int) -> dict[str, Any]:
    """Return a run and what it saved as JSON has it."""
    document = app.state.jobs.job(id).document()
    evaluations = []
    for saved_id in document["saved"]:
        evaluation = {"id": saved_id, "system": None, "verdict": None}
        # The ids are shown even if the store cannot be read now.
        with suppress(KaratError):
            saved = app.state.store.evaluation(saved_id)
            evaluation |= {"system": saved.system, "verdict": saved.verdict}
        evaluations.append(evaluation)
    return {**document, "evaluations": evaluations}


def run_documents(app: FastAPI) -> list[dict[str, Any]]:
    """Return every run and what it saved as JSON has them, the latest first."""
    return [run_document(app, job.id) for job in app.state.jobs.all()]
