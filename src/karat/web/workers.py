"""What works beside the requests: systems asked live, and evaluations under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from fastapi import FastAPI, Request

from karat.errors import CallError
from karat.web.errors import NotNowError
from karat.web.jobs import Jobs
from karat.web.live import Live

_making = threading.Lock()
_LOOK_SECONDS = 0.25
# Each takes all of a processor, and pages need some too.
COSTLY_AT_ONCE = 2
_COSTLY_PATIENCE_SECONDS = 20.0
Result = TypeVar("Result")


def live_of(app: FastAPI) -> Live:
    """The systems of the karat.yaml; made when first asked for."""
    live: Live = _kept(app, "live", lambda: Live(app.state.settings))
    return live


def jobs_of(app: FastAPI) -> Jobs:
    """The evaluations started here; made when first asked for."""
    jobs: Jobs = _kept(app, "jobs", lambda: Jobs(app.state.settings))
    return jobs


def end_workers(app: FastAPI) -> None:
    """Stop what works; takes a few seconds at most."""
    jobs_of(app).close()
    live_of(app).close()


@asynccontextmanager
async def workers(app: FastAPI) -> AsyncIterator[None]:
    """For as long as the application lives."""
    try:
        yield
    finally:
        await asyncio.to_thread(end_workers, app)


async def costly(request: Request, work: Callable[[], Result]) -> Result:
    """What a long computation gives; only few go on at once, and nobody waits long for a turn."""
    turns: asyncio.Semaphore = request.app.state.costly
    try:
        async with asyncio.timeout(_COSTLY_PATIENCE_SECONDS):
            await turns.acquire()
    except TimeoutError:
        raise NotNowError("other comparisons are being computed; try again in a moment") from None
    try:
        if await request.is_disconnected():
            raise NotNowError("whoever asked has left")
        return await in_a_thread(work, request.app.state.stopping)
    finally:
        turns.release()


async def in_a_thread(
    work: Callable[[], Result],
    stopping: threading.Event,
    left: Callable[[], Awaitable[bool]] | None = None,
) -> Result:
    """What a piece of work gives, done in a thread that the end of the server need not wait for.

    ``left`` says whether whoever asked is gone; then nobody waits for the end of the work.
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
            # Whatever it is, it belongs to whoever waits for the result.
            outcome = None, error
        # The server may be gone by now, and with it whoever asked.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=run, name="karat-work", daemon=True).start()
    while not future.done():
        await asyncio.wait({future}, timeout=_LOOK_SECONDS)
        if future.done():
            break
        if stopping.is_set():
            future.cancel()
            raise CallError("the server is ending")
        if left is not None and await left():
            future.cancel()
            raise CallError("whoever asked has left")
    return future.result()


def _kept(app: FastAPI, name: str, make: Callable[[], Any]) -> Any:
    with _making:
        if not hasattr(app.state, name):
            setattr(app.state, name, make())
        return getattr(app.state, name)
