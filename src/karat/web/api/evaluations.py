"""API: stored evaluations, trends, reports and comparisons."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from karat.report.stored_comparison import with_texts
from karat.store import Store
from karat.web.api_models import (
    ComparisonAnswer,
    EvaluationAnswer,
    EvaluationsAnswer,
    NamesAnswer,
    QueryAnswer,
    ReportAnswer,
    RowsAnswer,
    TrendAnswer,
)
from karat.web.errors import NotFoundError
from karat.web.rendering import Json, escape_html_in_json
from karat.web.response_cache import cached_json
from karat.web.stored_reports import (
    ComparisonRequest,
    EvaluationFilters,
    Id,
    Name,
    comparison_of,
    damaged,
    part_of,
    saved_without_details,
    text_of,
)
from karat.web.workers import run_costly

router = APIRouter(prefix="/api")

Index = Annotated[int, Path(ge=0, le=2**31 - 1)]
Comparison = Annotated[ComparisonRequest, Query()]


class Tags(BaseModel):
    """Tags to add to an evaluation."""

    model_config = ConfigDict(extra="forbid")

    tags: list[Name] = Field(min_length=1, max_length=20)


@router.get("/evaluations", tags=["evaluations"], response_model=EvaluationsAnswer)
def evaluations(request: Request, wanted: Annotated[EvaluationFilters, Query()]) -> Response:
    """Return a page of evaluations, newest first."""

    def make() -> dict[str, Any]:
        found = wanted.listed(request.app.state.store)
        return {
            "evaluations": [one.document() for one in found.evaluations],
            "total": found.total,
            "page": wanted.page,
            "pages": wanted.pages(found.total),
        }

    return cached_json(request, make)


@router.get("/evaluations/{id}", tags=["evaluations"], response_model=EvaluationAnswer)
def evaluation(request: Request, id: Id) -> Response:
    """Return one evaluation."""
    return Json(request.app.state.store.evaluation(id).document())


@router.post("/evaluations/{id}/tags", tags=["evaluations"], response_model=EvaluationAnswer)
def tag(request: Request, id: Id, new: Tags) -> Response:
    """Tag an evaluation; from now on the tags name this one."""
    request.app.state.store.tag(id, new.tags)
    return Json(request.app.state.store.evaluation(id).document())


@router.get("/names", tags=["evaluations"], response_model=NamesAnswer)
def names(request: Request) -> Response:
    """Return every system, tag, measure and verdict in the store."""
    return cached_json(request, lambda: request.app.state.store.names().document())


@router.get("/trend", tags=["evaluations"], response_model=TrendAnswer)
def trend(
    request: Request, measure: Name, system: Name | None = None, tag: Name | None = None
) -> Response:
    """Return one measure over time, by system, with breaks where numbers are not comparable."""

    def make() -> dict[str, Any]:
        store: Store = request.app.state.store
        points = store.trend(measure, system=system or None, tag=tag or None)
        name = points[0].measure if points else measure
        return {"measure": name, "points": [point.document() for point in points]}

    return cached_json(request, make)


@router.get("/reports/{report_id}", tags=["reports"], response_model=ReportAnswer)
def report(request: Request, report_id: Id) -> Response:
    """Return the document of a report, as karat eval -o report.json writes it."""
    return Json(request.app.state.store.report(report_id))


@router.get("/reports/{report_id}/rows", tags=["reports"], response_model=RowsAnswer)
def report_rows(request: Request, report_id: Id) -> Response:
    """Return every query of a report, column by column."""
    text = text_of(request.app, report_id, "rows")
    return Response(escape_html_in_json(text), media_type=Json.media_type)


@router.get("/reports/{report_id}/queries/{index}", tags=["reports"], response_model=QueryAnswer)
def report_query(request: Request, report_id: Id, index: Index) -> Response:
    """Return one query in full: its gold, the lists of every system, and their texts."""
    head = part_of(request.app, report_id, "head")
    if head is None:
        raise saved_without_details(report_id)
    if index >= head["queries"]:
        raise NotFoundError(f"report {report_id} has {head['queries']:,} queries, from 0 on")
    block = part_of(request.app, report_id, f"block-{index // head['block']}")
    if block is None:
        raise damaged(request.app, report_id)
    return Json(with_texts(block["queries"][index % head["block"]], block["texts"]))


@router.get("/comparisons", tags=["comparisons"], response_model=ComparisonAnswer)
async def comparison(request: Request, wanted: Comparison) -> Response:
    """Return the document of a comparison, as karat compare writes it, and warnings."""
    found = await comparison_of(request, wanted)
    return await run_in_threadpool(
        lambda: Json({**found.document, "warnings": list(found.warnings)})
    )


@router.get("/comparisons/rows", tags=["comparisons"], response_model=RowsAnswer)
async def comparison_rows(request: Request, wanted: Comparison) -> Response:
    """Return every query of a comparison, column by column."""
    found = await comparison_of(request, wanted)
    if found.head is None:
        raise NotFoundError("none of these was saved with details of its queries")
    return await run_costly(request, lambda: Json(found.view.rows))


@router.get("/comparisons/queries/{index}", tags=["comparisons"], response_model=QueryAnswer)
async def comparison_query(request: Request, index: Index, wanted: Comparison) -> Response:
    """Return one query in full: its gold, the lists of every system, and their texts."""
    found = await comparison_of(request, wanted)
    if found.head is None:
        raise NotFoundError("none of these was saved with details of its queries")
    if index >= found.head["queries"]:
        raise NotFoundError(f"they have {found.head['queries']:,} queries, counted from 0")
    return await run_in_threadpool(lambda: Json(found.view.query(index)))
