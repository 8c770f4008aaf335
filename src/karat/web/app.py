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

from karat.store import Store
from karat.version import __version__
from karat.web import api, pages
from karat.web.api.labels import import_pool
from karat.web.assets import asset_table
from karat.web.errors import Refusal, handle_errors
from karat.web.rendering import Json
from karat.web.response_cache import KeyedLock, ResponseCache
from karat.web.security import Guard
from karat.web.settings import Settings
from karat.web.workers import COSTLY_AT_ONCE, workers

_API = (api.evaluations, api.labels, api.systems, api.runs)
# The sizes of the caches: rendered answers, parts of reports, comparisons, trends.
_ANSWERS, _PARTS, _COMPARISONS, _TRENDS = 64, 64, 8, 16
# Readers of a page wait less for another process than writers do.
_PATIENCE, _SAVING_PATIENCE = 3.0, 20.0
# Most threads wait for a lock or a disk; requests that only read must not wait for these.
_THREADS = 100


def create_app(settings: Settings) -> FastAPI:
    """Return the application; it opens the store, and closes it when the server stops.

    ``app.state`` holds ``settings``, ``store``, the caches, and ``stopping``, an event that is
    set when the server ends.
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
    app.state.answers = ResponseCache[bytes](_ANSWERS)
    app.state.parts = ResponseCache[Any](_PARTS)
    app.state.comparisons = ResponseCache[Any](_COMPARISONS)
    app.state.trends = ResponseCache[Any](_TRENDS)
    app.state.stopping = threading.Event()
    app.state.raters = KeyedLock()
    app.state.costly = asyncio.Semaphore(COSTLY_AT_ONCE)
    if settings.pool is not None:
        import_pool(app.state.store, settings.pool)
    for module in _API:
        app.include_router(
            module.router,
            responses={"default": {"model": Refusal, "description": "why not, in one sentence"}},
            # The guard checks the token; this documents it for programs.
            dependencies=[Depends(HTTPBearer(auto_error=False))],
        )
    app.include_router(pages.router)
    handle_errors(app)
    app.add_middleware(Guard, settings=settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = _THREADS
    async with workers(app):
        yield
    app.state.stopping.set()
    app.state.store.close()
