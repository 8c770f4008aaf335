"""Comparisons of stored evaluations as JSON: the document, the rows, and each query in full."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from karat.web.answers import ComparisonAnswer, QueryAnswer, RowsAnswer
from karat.web.comparing import Asked, compared
from karat.web.errors import NoSuchThingError
from karat.web.rendering import Json
from karat.web.workers import costly

router = APIRouter(prefix="/api", tags=["comparisons"])

Wish = Annotated[Asked, Query()]
Index = Annotated[int, Path(ge=0, le=2**31 - 1)]


@router.get("/comparisons", response_model=ComparisonAnswer)
async def comparison(request: Request, asked: Wish) -> Response:
    """The document of a comparison, as karat compare writes it, and what is to be minded."""
    found = await compared(request, asked)
    return await run_in_threadpool(
        lambda: Json({**found.document, "warnings": list(found.warnings)})
    )


@router.get("/comparisons/rows", response_model=RowsAnswer)
async def rows(request: Request, asked: Wish) -> Response:
    """Every query of a comparison, column by column."""
    found = await compared(request, asked)
    if found.head is None:
        raise NoSuchThingError("none of these was saved with what lies behind single queries")
    return await costly(request, lambda: Json(found.view.rows))


@router.get("/comparisons/queries/{index}", response_model=QueryAnswer)
async def query(request: Request, index: Index, asked: Wish) -> Response:
    """One query in full: its gold, the lists of every system, and their texts."""
    found = await compared(request, asked)
    if found.head is None:
        raise NoSuchThingError("none of these was saved with what lies behind single queries")
    if index >= found.head["queries"]:
        raise NoSuchThingError(f"they have {found.head['queries']:,} queries, counted from 0")
    return await run_in_threadpool(lambda: Json(found.view.query(index)))
