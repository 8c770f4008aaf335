"""Stored reports as JSON: the document, the rows of all queries, and each query in full."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from karat.reports.html.merging import with_texts
from karat.web.answers import QueryAnswer, ReportAnswer, RowsAnswer
from karat.web.errors import NoSuchThingError
from karat.web.parts import damaged, part_of, text_of, without
from karat.web.rendering import Json, harmless
from karat.web.wanted import Id

router = APIRouter(prefix="/api", tags=["reports"])

Index = Annotated[int, Path(ge=0, le=2**31 - 1)]


@router.get("/reports/{report_id}", response_model=ReportAnswer)
def report(request: Request, report_id: Id) -> Response:
    """The document of a report, as karat eval -o report.json writes it."""
    return Json(request.app.state.store.report(report_id))


@router.get("/reports/{report_id}/rows", response_model=RowsAnswer)
def rows(request: Request, report_id: Id) -> Response:
    """Every query of a report, column by column."""
    text = text_of(request.app, report_id, "rows")
    return Response(harmless(text), media_type=Json.media_type)


@router.get("/reports/{report_id}/queries/{index}", response_model=QueryAnswer)
def query(request: Request, report_id: Id, index: Index) -> Response:
    """One query in full: its gold, the lists of every system, and their texts."""
    head = part_of(request.app, report_id, "head")
    if head is None:
        raise without(report_id)
    if index >= head["queries"]:
        raise NoSuchThingError(f"report {report_id} has {head['queries']:,} queries, from 0 on")
    block = part_of(request.app, report_id, f"block-{index // head['block']}")
    if block is None:
        raise damaged(request.app, report_id)
    return Json(with_texts(block["queries"][index % head["block"]], block["texts"]))
