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
from karat.web.asset_table import table
from karat.web.errors import Refusal, handle_errors
from karat.web.kept import Kept
from karat.web.labelled import import_pool
from karat.web.one_by_one import OneByOne
from karat.web.rendering import Json
from karat.web.security import Guard
from karat.web.settings import Settings
from karat.web.workers import COSTLY_AT_ONCE, workers

_API = (
    api.evaluations,
    api.reports,
    api.comparisons,
    api.labels,
    api.systems,
    api.runs,
)
_PAGES = (
    pages.files,
    pages.login,
    pages.home,
    pages.evaluation,
    pages.comparison,
    pages.explore,
    pages.labels,
    pages.runs,
)
# How many of each are kept: rendered answers, parts of reports, comparisons, trends.
_ANSWERS, _PARTS, _COMPARED, _TRENDS = 64, 64, 8, 16
# Who looks at a page does not wait for another process as long as one who saves.
_PATIENCE, _SAVING_PATIENCE = 3.0, 20.0
# Most of them wait, for a lock or a disk; those who only read are not to wait for these.
_THREADS = 100


def create_app(settings: Settings) -> FastAPI:
    """The application; it opens the store, and closes it when the server stops.

    State for routes: ``settings``, ``store``, what is kept of answers, and ``stopping``, an
    event that is set when the server is to end.
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
    table()
    app.state.settings = settings
    app.state.store = Store.open(settings.store, patience=_PATIENCE, saving=_SAVING_PATIENCE)
    app.state.answers, app.state.parts = Kept[bytes](_ANSWERS), Kept[Any](_PARTS)
    app.state.compared, app.state.trends = Kept[Any](_COMPARED), Kept[Any](_TRENDS)
    app.state.stopping = threading.Event()
    app.state.raters = OneByOne()
    app.state.costly = asyncio.Semaphore(COSTLY_AT_ONCE)
    if settings.pool is not None:
        import_pool(app.state.store, settings.pool)
    for module in _API:
        app.include_router(
            module.router,
            responses={"default": {"model": Refusal, "description": "why not, in one sentence"}},
            # The guard checks it; here it is told to programs.
            dependencies=[Depends(HTTPBearer(auto_error=False))],
        )
    for module in _PAGES:
        app.include_router(module.router)
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
