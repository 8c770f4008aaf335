"""Evaluations started from a page: ``karat run`` in a process of its own, one at a time.

A process, since it can be stopped at any point, cannot slow the pages down, and a system that
crashes it leaves the server alive.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from karat.errors import UsageError
from karat.jobs.redaction import redactor
from karat.store.place import VARIABLE as STORE_VARIABLE
from karat.web.errors import NotFoundError
from karat.web.settings import TOKEN_VARIABLE, Settings, secrets_of

_JOBS_KEPT = 50
_LOG_LINES, _LOG_LINE_LENGTH = 500, 2_000
_LONGEST_LINE = 65_536
# Long enough for a log to be closed and a service to be stopped.
_GRACE_SECONDS, _SHUTDOWN_GRACE_SECONDS = 8.0, 3.0
# How long the end of the output may come after the end of the process.
_LAST_LINES_SECONDS = 2.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

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
_STOPPED = "Stopped before the end; calls already logged are used when it is run again."


class BusyError(UsageError):
    """Another evaluation is running."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to evaluate; no systems means all of them."""

    systems: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened: ``kind`` is progress, log or state; numbers only go up."""

    number: int
    kind: str
    data: Mapping[str, Any]


class Job:
    """The state of a run; written by the thread that watches it, read by any.

    Keeps the latest progress of each system and the last lines of the log, so that a listener
    that was away misses steps but never the outcome. ``redact`` removes secrets from the log.
    """

    def __init__(
        self,
        id: int,
        wanted: RunRequest,
        systems: tuple[str, ...],
        *,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.id, self.systems = id, systems
        self._wanted, self._redact = wanted, redact
        self._lock = threading.Lock()
        self._number = 0
        self._log: deque[RunEvent] = deque(maxlen=_LOG_LINES)
        self._progress: dict[str | None, RunEvent] = {}
        self._state: RunEvent
        self._listeners: set[Callable[[], None]] = set()
        self._stopping = False
        self._why: str | None = None
        self._saved: tuple[int, ...] = ()
        self._set_state(
            "running", None, "Running: the systems are asked, then their answers are scored."
        )

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
        new = (event for event in events if event.number > after)
        return sorted(new, key=lambda event: event.number)

    @contextmanager
    def listening(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` whenever something happens."""
        with self._lock:
            self._listeners.add(wake)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.discard(wake)

    @property
    def listeners(self) -> int:
        """Return the number of listeners."""
        return len(self._listeners)

    def wake_all(self) -> None:
        """Wake every listener."""
        with self._lock:
            listeners = list(self._listeners)
        for wake in listeners:
            wake()

    def read(self, line: str) -> None:
        """Read a line of the command's standard error."""
        progress = _parse_progress(line)
        if progress is not None:
            self._add("progress", progress)
            return
        # Of a progress bar that is drawn over and over, only the last state counts.
        text = _COLOURS.sub("", line.rpartition("\r")[2])
        text = self._redact(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text))
        if saved := _SAVED.match(text):
            self._saved = tuple(map(int, saved[1].split(", ")))
        if text.startswith("karat: ") and not text.startswith(_WARNING):
            self._why = text.removeprefix("karat: ")
        self._add("log", {"line": text[:_LOG_LINE_LENGTH]})
        for system in self.systems:
            # A log that is reused reports no progress of its own.
            if reused := re.match(rf"{re.escape(system)}: ([\d,]+) calls, log reused", text):
                calls = int(reused[1].replace(",", ""))
                done = {"system": system, "what": "reused", "done": calls, "total": calls}
                self._add("progress", done)
                return

    def stopping(self) -> None:
        """Note that a user asked for the end."""
        self._stopping = True
        if self.running:
            self._set_state("stopping", None, "Stopping: what is logged so far is being kept.")

    def end(self, code: int) -> None:
        """Note the exit code; 1 without anything saved is Python's own, and no verdict."""
        if code in _FINISHED and (code != 1 or self._saved):
            self._set_state("done", code, _FINISHED[code])
        elif self._stopping:
            self._set_state("stopped", code, _STOPPED)
        else:
            meaning = _FAILED.get(code, f"Not evaluated: it ended with {code}.")
            self._set_state("failed", code, meaning)

    def document(self) -> dict[str, Any]:
        """Return the job as JSON has it."""
        with self._lock:
            return {
                "id": self.id,
                "systems": list(self.systems),
                "tags": list(self._wanted.tags),
                "fresh": self._wanted.fresh,
                **self._state.data,
                "progress": [dict(event.data) for event in self._progress.values()],
                "log": [event.data["line"] for event in self._log],
                "last": self._number,
            }

    def _set_state(self, state: str, code: int | None, meaning: str) -> None:
        ended = state in ("done", "failed", "stopped")
        data = {
            "state": state,
            "exit_code": code,
            "meaning": meaning,
            "why": self._why if ended else None,
            "saved": list(self._saved),
        }
        self._add("state", data)

    def _add(self, kind: str, data: Mapping[str, Any]) -> None:
        with self._lock:
            self._number += 1
            event = RunEvent(self._number, kind, data)
            if kind == "log":
                self._log.append(event)
            elif kind == "progress":
                self._progress[data["system"]] = event
            else:
                self._state = event
        self.wake_all()


def _parse_progress(line: str) -> dict[str, Any] | None:
    """Parse a line of KARAT_PROGRESS=json; return None for any other line."""
    if not line.startswith('{"karat": "progress"'):
        return None
    try:
        data = json.loads(line)
    except ValueError:
        return None
    numbers = [data.get("done"), data.get("total")]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    system = data.get("system")
    return {
        "system": None if system is None else str(system),
        "what": str(data.get("what")),
        "done": numbers[0],
        "total": numbers[1],
    }


class Process:
    """A command whose standard error is read line by line, in threads of its own.

    Calls ``on_line`` with each line, and ``on_end`` with the exit code after the last line.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._on_line, self._on_end = on_line, on_end
        self._ended = threading.Event()
        # In a session of its own, so that Ctrl-C in the server's terminal does not reach it.
        self._process = subprocess.Popen(  # noqa: S603 - no shell
            list(command),
            env=dict(environment),
            # Closed when this process ends in whichever way: see parent_watchdog.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, name="karat-run", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Interrupt it as Ctrl-C does, and kill it if it has not ended after ``grace`` seconds."""
        self._signal(signal.SIGINT)
        threading.Thread(
            target=self._kill_after, args=(grace,), name="karat-run-stop", daemon=True
        ).start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended."""
        return self._ended.wait(seconds)

    def _kill_after(self, grace: float) -> None:
        if not self._ended.wait(grace):
            self._signal(_KILL)

    def _signal(self, number: int) -> None:
        """Signal the process and its children, as a terminal would."""
        if self._process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.terminate()

    def _watch(self) -> None:
        reader = threading.Thread(target=self._read, name="karat-run-lines", daemon=True)
        reader.start()
        code = self._process.wait()
        reader.join(_LAST_LINES_SECONDS)
        if reader.is_alive() and hasattr(os, "killpg"):
            # A child that outlived it still holds its output open.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, _KILL)
            reader.join(_LAST_LINES_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._on_end(code)
        self._ended.set()

    def _read(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        with stream:
            while line := stream.readline(_LONGEST_LINE):
                self._on_line(line.decode("utf-8", "replace").rstrip("\r\n"))


class Jobs:
    """The evaluations started since the server was; the last of them are kept."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[int, tuple[Job, Process]] = {}
        self._last_id = 0
        self._closed = False

    def start(self, wanted: RunRequest, systems: Sequence[str]) -> Job:
        """Start an evaluation of these systems; refuse if another one runs."""
        with self._lock:
            running = self.running
            if running is not None:
                raise BusyError(
                    f"evaluation {running.id} is still running; wait for its end, or stop it first"
                )
            if self._closed:
                raise BusyError("the server is ending")
            self._last_id += 1
            redact = redactor(secrets_of(self._settings))
            job = Job(self._last_id, wanted, tuple(systems), redact=redact)
            try:
                process = Process(self._command(wanted), self._environment(), job.read, job.end)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise BusyError(f"the evaluation could not be started: {reason}") from None
            self._jobs[job.id] = (job, process)
            for old in list(self._jobs)[:-_JOBS_KEPT]:
                del self._jobs[old]
            return job

    @property
    def running(self) -> Job | None:
        """Return the job that runs, if any."""
        return next((job for job, _ in self._jobs.values() if job.running), None)

    @property
    def listeners(self) -> int:
        """Return the number of listeners to all jobs."""
        return sum(job.listeners for job in self.all())

    def all(self) -> list[Job]:
        """Return every job, the latest first."""
        with self._lock:
            return [job for job, _ in reversed(self._jobs.values())]

    def job(self, id: int) -> Job:
        """Return one job."""
        return self._find(id)[0]

    def stop(self, id: int) -> Job:
        """Stop a job; one that has ended stays as it is."""
        job, process = self._find(id)
        if job.running:
            job.stopping()
            process.stop(_GRACE_SECONDS)
        return job

    def close(self) -> None:
        """Stop what runs and wake all listeners; may be called more than once."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        running = [(job, process) for job, process in jobs if job.running]
        for job, process in running:
            job.stopping()
            process.stop(_SHUTDOWN_GRACE_SECONDS)
        for job, _ in jobs:
            job.wake_all()
        for _, process in running:
            process.wait(_SHUTDOWN_GRACE_SECONDS + 5)

    def _find(self, id: int) -> tuple[Job, Process]:
        with self._lock:
            if id not in self._jobs:
                raise NotFoundError(
                    f"no evaluation {id} was started since karat serve was; "
                    "what earlier ones saved is on the first page"
                )
            return self._jobs[id]

    def _command(self, wanted: RunRequest) -> list[str]:
        """Return the command; each value is joined to its option, so that none reads as one."""
        command = [sys.executable, "-m", "karat.web.parent_watchdog", "karat", "run", "--save"]
        command += [f"--system={name}" for name in wanted.systems]
        command += [f"--tag={tag}" for tag in wanted.tags]
        command += ["--fresh"] if wanted.fresh else []
        return [*command, "--", str(self._settings.config)]

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
