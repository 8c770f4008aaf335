"""Evaluations started from the page: ``karat run`` as a process of its own, one at a time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

from karat.errors import UsageError
from karat.retrievers.secrets import redactor
from karat.web.errors import NoSuchThingError
from karat.web.hidden import secrets_of
from karat.web.job import Job, Wish
from karat.web.processes import Process
from karat.web.settings import Settings

_KEPT = 50
# Long enough for a log to be closed and a service to be stopped.
_GRACE_SECONDS = 8.0
_LAST_GRACE_SECONDS = 3.0
# What a run must not see, and what it has from elsewhere.
_NOT_FOR_RUNS = ("KARAT_TOKEN",)


class BusyError(UsageError):
    """Another evaluation is running."""


class Jobs:
    """What was started since the server was; the last of them are kept."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[int, tuple[Job, Process]] = {}
        self._begun = 0
        self.closed = False

    def start(self, wish: Wish, systems: Sequence[str]) -> Job:
        """Begin an evaluation of these systems; refuses a second beside it."""
        with self._lock:
            going = self.running
            if going is not None:
                raise BusyError(
                    f"evaluation {going.id} is still running; wait for its end, or stop it first"
                )
            if self.closed:
                raise BusyError("the server is ending")
            self._begun += 1
            redact = redactor(secrets_of(self._settings))
            job = Job(self._begun, wish, tuple(systems), redact=redact)
            try:
                process = Process(self._words(wish), self._environment(), job.read, job.end)
            except OSError as error:
                told = error.strerror or type(error).__name__
                raise BusyError(f"the evaluation could not be started: {told}") from None
            self._jobs[job.id] = (job, process)
            for old in list(self._jobs)[:-_KEPT]:
                del self._jobs[old]
            return job

    @property
    def running(self) -> Job | None:
        """The one that is going on, if any."""
        return next((job for job, _ in self._jobs.values() if job.running), None)

    @property
    def listeners(self) -> int:
        """How many listen to any of them."""
        return sum(job.listeners for job in self.all())

    def all(self) -> list[Job]:
        """Every one that is known, the latest first."""
        with self._lock:
            return [job for job, _ in reversed(self._jobs.values())]

    def job(self, id: int) -> Job:
        """One by its number."""
        return self._found(id)[0]

    def stop(self, id: int) -> Job:
        """Ask for its end; one that has ended stays as it is."""
        job, process = self._found(id)
        if job.running:
            job.stopping()
            process.stop(_GRACE_SECONDS)
        return job

    def close(self) -> None:
        """End what is going on, and let everyone who listens go; may be called more than once."""
        with self._lock:
            self.closed = True
            known = list(self._jobs.values())
        going = [(job, process) for job, process in known if job.running]
        for job, process in going:
            job.stopping()
            process.stop(_LAST_GRACE_SECONDS)
        for job, _ in known:
            job.wake_all()
        for _, process in going:
            process.wait(_LAST_GRACE_SECONDS + 5)

    def _found(self, id: int) -> tuple[Job, Process]:
        with self._lock:
            if id not in self._jobs:
                raise NoSuchThingError(
                    f"no evaluation {id} was started since karat serve was; "
                    "what earlier ones saved is on the first page"
                )
            return self._jobs[id]

    def _words(self, wish: Wish) -> list[str]:
        """The command; each value is part of its own word, so none reads as an option."""
        words = [sys.executable, "-m", "karat.web.leashed", "karat", "run", "--save"]
        words += [f"--system={name}" for name in wish.systems]
        words += [f"--tag={tag}" for tag in wish.tags]
        words += ["--fresh"] if wish.fresh else []
        return [*words, "--", str(self._settings.config)]

    def _environment(self) -> dict[str, str]:
        """What the process is told on the way.

        The store goes here and not among the words, where every user of the machine could
        read its password.
        """
        own = {"KARAT_PROGRESS": "json", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
        if self._settings.store is not None:
            own["KARAT_STORE"] = self._settings.store
        kept = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_RUNS}
        return kept | own
