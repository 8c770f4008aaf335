"""The workbench's application: its pages and API over one store, behind one guard."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

import karat.web.evaluations
import karat.web.labels
import karat.web.live
import karat.web.pages
import karat.web.runs
from karat.store import Store
from karat.version import __version__
from karat.web.assets import asset_table
from karat.web.evaluations import COMPARISONS_AT_ONCE
from karat.web.labels import import_pool
from karat.web.live import LiveSystems
from karat.web.responses import Json, Refusal, ResponseCache, handle_errors
from karat.web.runs import Jobs
from karat.web.security import RequestGuard
from karat.web.settings import Settings

_API = (karat.web.evaluations, karat.web.labels, karat.web.live, karat.web.runs)
# The sizes of the caches: rendered answers, parts of reports, comparisons, trends.
_ANSWERS, _PARTS, _COMPARISONS, _TRENDS = 64, 64, 8, 16
# Readers of a page wait less for another process than writers do.
_PATIENCE, _SAVING_PATIENCE = 3.0, 20.0
# Most threads wait for a lock or a disk; requests that only read must not wait for these.
_THREADS = 100


def create_app(settings: Settings) -> FastAPI:
    """Return the application; it opens the store, and closes it when the server stops.

    ``app.state`` holds ``settings``, ``store``, the ``live`` systems, the ``jobs``, the caches,
    and ``stopping``, an event that is set when the server ends.
    """
    app = FastAPI(
        title="karat",
        version=__version__,
        summary="Evaluations of retrieval systems: listed, compared, labelled and started.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=Json,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    # Read now, so that a missing file fails at the start.
    asset_table()
    app.state.settings = settings
    app.state.store = Store.open(settings.store, patience=_PATIENCE, saving=_SAVING_PATIENCE)
    app.state.live = LiveSystems(settings)
    app.state.jobs = Jobs(settings)
    app.state.answers = ResponseCache[bytes](_ANSWERS)
    app.state.parts = ResponseCache[Any](_PARTS)
    app.state.comparisons = ResponseCache[Any](_COMPARISONS)
    app.state.trends = ResponseCache[Any](_TRENDS)
    app.state.comparing = asyncio.Semaphore(COMPARISONS_AT_ONCE)
    app.state.stopping = threading.Event()
    if settings.pool is not None:
        import_pool(app.state.store, settings.pool)
    for module in _API:
        app.include_router(
            module.router,
            responses={"default": {"model": Refusal, "description": "why not, in one sentence"}},
            # The guard checks the token; this documents it for programs.
            dependencies=[Depends(HTTPBearer(auto_error=False))],
        )
    app.include_router(karat.web.pages.router)
    handle_errors(app)
    app.add_middleware(RequestGuard, settings=settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = _THREADS
    try:
        yield
    finally:
        await stop_work(app)
    app.state.store.close()


async def stop_work(app: FastAPI) -> None:
    """Stop streams, evaluations and services; takes a few seconds at most."""
    app.state.stopping.set()
    await asyncio.to_thread(app.state.jobs.close)
    await asyncio.to_thread(app.state.live.close)
