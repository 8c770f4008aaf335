"""Stored evaluations as JSON: listed, one by one, tagged, and a measure over time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from karat.store import Store
from karat.web.answers import EvaluationAnswer, EvaluationsAnswer, NamesAnswer, TrendAnswer
from karat.web.kept import kept_json
from karat.web.rendering import Json
from karat.web.wanted import Id, Name, Wanted

router = APIRouter(prefix="/api", tags=["evaluations"])


class Tags(BaseModel):
    """The tags that an evaluation is to have besides those it has."""

    model_config = ConfigDict(extra="forbid")

    tags: list[Name] = Field(min_length=1, max_length=20)


@router.get("/evaluations", response_model=EvaluationsAnswer)
def evaluations(request: Request, wanted: Annotated[Wanted, Query()]) -> Response:
    """A page of the evaluations, the newest first."""
    return kept_json(request, lambda: _page(request.app.state.store, wanted))


@router.get("/evaluations/{id}", response_model=EvaluationAnswer)
def evaluation(request: Request, id: Id) -> Response:
    """One evaluation."""
    return Json(request.app.state.store.evaluation(id).document())


@router.post("/evaluations/{id}/tags", response_model=EvaluationAnswer)
def tag(request: Request, id: Id, given: Tags) -> Response:
    """Give an evaluation tags; from now on it is what they stand for."""
    request.app.state.store.tag(id, given.tags)
    return Json(request.app.state.store.evaluation(id).document())


@router.get("/names", response_model=NamesAnswer)
def names(request: Request) -> Response:
    """Every name that evaluations can be chosen by: systems, tags, measures, verdicts."""
    return kept_json(request, lambda: request.app.state.store.names().document())


@router.get("/trend", response_model=TrendAnswer)
def trend(
    request: Request, measure: Name, system: Name | None = None, tag: Name | None = None
) -> Response:
    """One measure over time, system by system, with breaks where numbers are not comparable."""
    return kept_json(request, lambda: _trend(request.app.state.store, measure, system, tag))


def _page(store: Store, wanted: Wanted) -> dict[str, Any]:
    found = wanted.listed(store)
    return {
        "evaluations": [one.document() for one in found.evaluations],
        "total": found.total,
        "page": wanted.page,
        "pages": wanted.pages(found.total),
    }


def _trend(store: Store, measure: str, system: str | None, tag: str | None) -> dict[str, Any]:
    points = store.trend(measure, system=system or None, tag=tag or None)
    named = points[0].measure if points else measure
    return {"measure": named, "points": [point.document() for point in points]}
