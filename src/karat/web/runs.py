"""Evaluations started from a page: ``karat run``, one at a time, watched and stopped over HTTP."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError

from karat.errors import KaratError, UsageError, unknown
from karat.jobs.redaction import redactor
from karat.store import checked_tags
from karat.store.database import VARIABLE as STORE_VARIABLE
from karat.web.evaluations import Name
from karat.web.responses import Json, OpenAnswer, RequestRefusedError
from karat.web.run_process import GRACE_SECONDS, RunProcess
from karat.web.settings import TOKEN_VARIABLE, Settings, secrets_of

router = APIRouter(prefix="/api", tags=["runs"])

_JOBS_KEPT = 50
_LOG_LINES, _LOG_LINE_LENGTH = 500, 2_000
_SHUTDOWN_GRACE_SECONDS = 3.0

_REUSED = re.compile(r"(.+): ([\d,]+) calls, log reused")
_SAVED = re.compile(r"saved as (\d+(?:, \d+)*) in ")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_WARNING = "karat: warning:"

# The exit codes of karat run. A failed gate is a result, not an error.
_FINISHED = {
    0: "Finished: no gate failed, and no system got worse.",
    1: "Finished: a gate failed, or a system got worse. The evaluation itself is complete.",
    3: "Finished without a verdict: too little could be measured.",
}
_FAILED = {
    2: "Not evaluated: the karat.yaml, a file or a value cannot be used.",
    70: "Not evaluated: karat stopped because of a bug.",
}
_STOPPED = "Stopped before the end; the next run reuses the calls logged so far."


class RunRequest(BaseModel):
    """The systems to evaluate (none: all in the karat.yaml), tags, and whether to reuse logs."""

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


class Job:
    """The state of a run; written by the threads that watch its process, read by any.

    Keeps the latest progress of each system and the last lines of the log. ``redact`` removes
    secrets from the log.
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
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        # The number of lines so far, with those that the log no longer holds.
        self._lines = 0
        self._progress: dict[str | None, Mapping[str, Any]] = {}
        self._why: str | None = None
        self._saved: list[int] = []
        self._state = "running"
        self._exit_code: int | None = None
        self._meaning = "Running: searching with the systems, then scoring their results."

    @property
    def running(self) -> bool:
        """Return whether the process has not ended yet."""
        return self._state in ("running", "stopping")

    def read(self, line: str) -> None:
        """Read a line of the command's standard error."""
        with suppress(ValidationError):
            self._note_progress(RunProgress.model_validate_json(line))
            return
        # A progress bar redraws its line; only the last state counts.
        text = _COLOURS.sub("", line.rpartition("\r")[2])
        text = self._redact(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text))
        if saved := _SAVED.match(text):
            self._saved = list(map(int, saved[1].split(", ")))
        if text.startswith("karat: ") and not text.startswith(_WARNING):
            self._why = text.removeprefix("karat: ")
        with self._lock:
            self._lines += 1
            self._log.append(text[:_LOG_LINE_LENGTH])
        # A log that is reused reports no progress of its own.
        if (reused := _REUSED.match(text)) and reused[1] in self.systems:
            calls = int(reused[2].replace(",", ""))
            self._note_progress(
                RunProgress(system=reused[1], what="reused", done=calls, total=calls)
            )

    def _note_progress(self, progress: RunProgress) -> None:
        with self._lock:
            self._progress[progress.system] = progress.model_dump()

    def stop(self, grace: float) -> None:
        """Stop the process; one that has ended stays as it is."""
        with self._lock:
            if not self.running:
                return
            self._state = "stopping"
            self._meaning = "Stopping: the calls logged so far are kept."
        self.process.stop(grace)

    def end(self, code: int) -> None:
        """Note the exit code; 1 without anything saved is Python's own, and no verdict."""
        with self._lock:
            self._exit_code = code
            if code in _FINISHED and (code != 1 or self._saved):
                self._state, self._meaning = "done", _FINISHED[code]
            elif self._state == "stopping":
                self._state, self._meaning = "stopped", _STOPPED
            else:
                self._state = "failed"
                self._meaning = _FAILED.get(code, f"Not evaluated: exit code {code}.")

    def document(self, *, after: int = 0) -> dict[str, Any]:
        """Return the job as JSON has it, with the lines of its log ``after`` this many.

        ``last`` is the number of lines so far.
        """
        with self._lock:
            # A higher number comes from a page of a previous server.
            new = self._lines - after if after <= self._lines else self._lines
            return {
                "id": self.id,
                "url": f"/runs/{self.id}",
                "systems": list(self.systems),
                "tags": list(self._request.tags),
                "fresh": self._request.fresh,
                "state": self._state,
                "exit_code": self._exit_code,
                "meaning": self._meaning,
                "why": None if self.running else self._why,
                "saved": list(self._saved),
                "progress": list(self._progress.values()),
                "log": list(self._log)[max(0, len(self._log) - new) :],
                "last": self._lines,
            }


class Jobs:
    """The most recent evaluations started since the server started."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._closed = False

    def start(self, run_request: RunRequest, systems: Sequence[str]) -> Job:
        """Start an evaluation of these systems; refuse if another one runs."""
        with self._lock:
            running = next((job.id for job in self._jobs.values() if job.running), None)
            if running is not None:
                raise RequestRefusedError(
                    409,
                    f"evaluation {running} is still running; wait until it finishes, or stop it",
                )
            if self._closed:
                raise RequestRefusedError(409, "the server is shutting down")
            redact = redactor(secrets_of(self._settings))
            job = Job(max(self._jobs, default=0) + 1, run_request, systems, redact=redact)
            command, environment = self._command(run_request), self._environment()
            try:
                job.process = RunProcess(command, environment, job.read, job.end)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                message = f"the evaluation could not be started: {reason}"
                raise RequestRefusedError(409, message) from None
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
            raise RequestRefusedError(
                404,
                f"no evaluation {id} was started since karat serve started; "
                "results of earlier ones are on the home page",
            )
        return job

    def close(self) -> None:
        """Stop the running evaluation and wait for its end; may be called more than once."""
        with self._lock:
            self._closed = True
        for job in self.all():
            if job.running:
                job.stop(_SHUTDOWN_GRACE_SECONDS)
                job.process.wait(_SHUTDOWN_GRACE_SECONDS + 5)

    def _command(self, run_request: RunRequest) -> list[str]:
        """Return the command; options and values are joined: no value reads as an option."""
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
        raise UsageError("the karat.yaml has no systems; add some, then start an evaluation here")
    new = new.model_copy(update={"tags": checked_tags(new.tags)})
    chosen = list(dict.fromkeys(new.systems or systems))
    job = request.app.state.jobs.start(new, chosen)
    return Json(run_document(request.app, job.id), status_code=201)


@router.get("/runs", response_model=OpenAnswer)
def runs(request: Request) -> Response:
    """Return every run since the server started."""
    return Json({"runs": run_documents(request.app)})


@router.get("/runs/{id}", response_model=OpenAnswer)
def run(request: Request, id: int, after: Annotated[int, Query(ge=0)] = 0) -> Response:
    """Return one run, finished or not; ``after`` leaves out that many lines of its log."""
    return Json(run_document(request.app, id, after=after))


@router.post("/runs/{id}/stop", response_model=OpenAnswer)
def stop(request: Request, id: int) -> Response:
    """Stop a run; the next run reuses the calls that it logged."""
    request.app.state.jobs.job(id).stop(GRACE_SECONDS)
    return Json(run_document(request.app, id))


def run_document(app: FastAPI, id: int, *, after: int = 0) -> dict[str, Any]:
    """Return a run and the evaluations that it saved, as JSON."""
    document = app.state.jobs.job(id).document(after=after)
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
    """Return all runs and the evaluations that they saved, as JSON, newest first."""
    return [run_document(app, job.id) for job in app.state.jobs.all()]
