"""Two or more evaluations against each other, on the page that a report has."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from karat.reports.html.names import system_names
from karat.web.comparing import Asked, compared
from karat.web.rendering import render_report

router = APIRouter(include_in_schema=False)


@router.get("/compare")
async def comparison(request: Request, asked: Annotated[Asked, Query()]) -> Response:
    """The comparison; what cannot be compared is refused with the reasons."""
    found = await compared(request, asked)
    return await run_in_threadpool(
        render_report,
        request,
        "comparison.html",
        document=found.document,
        head=found.head,
        rows_url=f"/api/comparisons/rows?{asked.spelled}",
        query_url=f"/api/comparisons/queries/{{index}}?{asked.spelled}",
        entries=found.view.entries,
        names=system_names(found.document),
        warnings=found.warnings,
        turned={id: asked.with_baseline(id) for id in asked.chosen},
    )
