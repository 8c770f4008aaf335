"""Work beside requests: live systems, running evaluations, and long computations."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from fastapi import FastAPI, Request

from karat.errors import CallError
from karat.web.errors import UnavailableError
from karat.web.live import LiveSystems
from karat.web.run_jobs import Jobs

_POLL_SECONDS = 0.25
# Each takes a whole processor, and pages need some too.
COSTLY_AT_ONCE = 2
_COSTLY_PATIENCE_SECONDS = 20.0
_creating = threading.Lock()
Result = TypeVar("Result")


def live_of(app: FastAPI) -> LiveSystems:
    """Return the systems of the karat.yaml; created at first use."""
    live: LiveSystems = _state(app, "live", lambda: LiveSystems(app.state.settings))
    return live


def jobs_of(app: FastAPI) -> Jobs:
    """Return the evaluations started here; created at first use."""
    jobs: Jobs = _state(app, "jobs", lambda: Jobs(app.state.settings))
    return jobs


def _state(app: FastAPI, name: str, create: Callable[[], Any]) -> Any:
    with _creating:
        if not hasattr(app.state, name):
            setattr(app.state, name, create())
        return getattr(app.state, name)


def end_workers(app: FastAPI) -> None:
    """Stop all work; takes a few seconds at most."""
    jobs_of(app).close()
    live_of(app).close()


@asynccontextmanager
async def workers(app: FastAPI) -> AsyncIterator[None]:
    """End all work when the application ends."""
    try:
        yield
    finally:
        await asyncio.to_thread(end_workers, app)


async def run_costly(request: Request, work: Callable[[], Result]) -> Result:
    """Run a long computation; only few run at once, and no request waits long for its turn."""
    slots: asyncio.Semaphore = request.app.state.costly
    try:
        async with asyncio.timeout(_COSTLY_PATIENCE_SECONDS):
            await slots.acquire()
    except TimeoutError:
        raise UnavailableError(
            "other comparisons are being computed; try again in a moment"
        ) from None
    try:
        if await request.is_disconnected():
            raise UnavailableError("the client has left")
        return await run_in_daemon_thread(work, request.app.state.stopping)
    finally:
        slots.release()


async def run_in_daemon_thread(
    work: Callable[[], Result],
    stopping: threading.Event,
    has_left: Callable[[], Awaitable[bool]] | None = None,
) -> Result:
    """Run work in a daemon thread, which the end of the server does not wait for.

    ``has_left`` says whether the client is gone; then the result is not waited for.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def deliver(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = work(), None
        except BaseException as error:
            # Any error belongs to the request that waits for the result.
            outcome = None, error
        # The server may have ended by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=run, name="karat-work", daemon=True).start()
    while not future.done():
        await asyncio.wait({future}, timeout=_POLL_SECONDS)
        if future.done():
            break
        if stopping.is_set():
            future.cancel()
            raise CallError("the server is ending")
        if has_left is not None and await has_left():
            future.cancel()
            raise CallError("the client has left")
    return future.result()
