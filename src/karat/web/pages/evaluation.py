"""One evaluation: the page of the report that it was saved with."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from karat.reports.html.listing import lines_of
from karat.store import Store
from karat.web.parts import part_of
from karat.web.rendering import render_report
from karat.web.wanted import Id

router = APIRouter(include_in_schema=False)


@router.get("/evaluations/{id}")
def evaluation(request: Request, id: Id) -> Response:
    """The report, with its queries asked for one by one."""
    store: Store = request.app.state.store
    own = store.evaluation(id)
    place = f"/api/reports/{own.report_id}"
    return render_report(
        request,
        "evaluation.html",
        document=store.report(own.report_id),
        head=part_of(request.app, own.report_id, "head"),
        rows_url=f"{place}/rows",
        query_url=f"{place}/queries/{{index}}",
        own=own,
        **_around(own.id, store.together(own.report_id)),
    )


def _around(id: int, together: Any) -> dict[str, Any]:
    """The evaluation as a line of the list, and those that were saved with it."""
    lines = {line.id: line for line in lines_of(together).lines}
    return {"line": lines[id], "together": [line for line in lines.values() if line.id != id]}
