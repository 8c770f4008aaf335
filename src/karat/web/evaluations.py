"""Stored evaluations over HTTP: lists, trends, reports and comparisons, and their API."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from karat.errors import InputError, UsageError
from karat.reports.stored_comparison import StoredComparison, compare_stored, with_texts
from karat.store import EvaluationPage, Store
from karat.web.responses import (
    Json,
    OpenAnswer,
    RequestRefusedError,
    cached_json,
)

router = APIRouter(prefix="/api")

_MOST_PER_PAGE = 200
_MOST_COMPARED = 12
_HIGHEST_ID = 2**31 - 1
# Each comparison occupies one processor core, and pages need some too.
COMPARISONS_AT_ONCE = 2
_COMPARISON_PATIENCE_SECONDS = 20.0

Result = TypeVar("Result")
Id = Annotated[int, Path(ge=1, le=_HIGHEST_ID)]
Index = Annotated[int, Path(ge=0, le=_HIGHEST_ID)]
# Errors repeat a refused name, so its length is limited; real names are shorter.
Name = Annotated[str, Field(max_length=200)]


class FormQuery(BaseModel):
    """Query parameters; empty ones, which forms send, count as not given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value != ""}


class EvaluationFilters(FormQuery):
    """Filters of the list of evaluations, and the page."""

    system: Name | None = Field(None, description="Only of this system.")
    tag: Name | None = Field(None, description="Only with this tag.")
    gold: Name | None = Field(None, description="Only on gold whose SHA-256 starts with this.")
    verdict: Name | None = Field(None, description="Only with this verdict.")
    search: Name | None = Field(None, description="Words in the system, note, run, commit or tags.")
    page: int = Field(1, ge=1, le=1_000_000)
    size: int = Field(50, ge=1, le=_MOST_PER_PAGE)

    @property
    def filters(self) -> dict[str, str]:
        """Return the filters that are set."""
        return self.model_dump(exclude={"page", "size", "measure"}, exclude_none=True)

    def listed(self, store: Store) -> EvaluationPage:
        """Return the evaluations of the page."""
        first = (self.page - 1) * self.size
        return store.listed(**self.filters, limit=self.size, offset=first)

    def pages(self, total: int) -> int:
        """Return the number of pages; an empty list has one."""
        return max(1, -(-total // self.size))


class ComparisonRequest(FormQuery):
    """The evaluations to compare, their baseline, and the rule of the comparison."""

    ids: Annotated[list[str], Field(description="Comma-separated ids; the first is the baseline.")]
    baseline: int | None = Field(None, description="The id of the baseline, if not the first.")
    primary: Name | None = Field(None, description="The measure that decides.")
    margin: float | None = Field(
        None,
        description="The share of the baseline's mean below which a difference does not matter;"
        " default: the reports'.",
    )

    @property
    def chosen(self) -> list[int]:
        """Return the ids, baseline first; of separate ``ids`` from a form, the oldest is."""
        words = [word.strip() for text in self.ids for word in text.split(",") if word.strip()]
        ids = list(dict.fromkeys(_id(word) for word in words))
        if len(self.ids) > 1:
            ids.sort()
        if len(ids) > _MOST_COMPARED:
            raise UsageError(
                f"{len(ids)} evaluations are too many at once; give at most {_MOST_COMPARED}"
            )
        if self.baseline is None:
            return ids
        if self.baseline not in ids:
            raise UsageError(f"the baseline {self.baseline} is not one of the evaluations compared")
        return [self.baseline, *(id for id in ids if id != self.baseline)]

    @property
    def query_string(self) -> str:
        """Return the comparison as a query string."""
        rule = {"primary": self.primary, "margin": self.margin}
        changed = [(name, value) for name, value in rule.items() if value is not None]
        return urlencode([("ids", ",".join(map(str, self.chosen))), *changed], safe=",")

    def with_baseline(self, id: int) -> str:
        """Return the comparison with another baseline, as a query string."""
        return self.model_copy(update={"baseline": id}).query_string


def _id(word: str) -> int:
    if not word.isdecimal() or len(word) > 10 or not 0 < int(word) <= _HIGHEST_ID:
        raise UsageError(f"ids are comma-separated numbers, not {word[:40]!r}")
    return int(word)


Comparison = Annotated[ComparisonRequest, Query()]


class NewTags(BaseModel):
    """Tags to add to an evaluation."""

    model_config = ConfigDict(extra="forbid")

    tags: list[Name] = Field(min_length=1, max_length=20)


def part_of(app: FastAPI, report_id: int, name: str) -> Any:
    """Return a part of a report's page as data, or None if it was saved without."""

    def read() -> Any:
        packed = app.state.store.part(report_id, name)
        try:
            return None if packed is None else json.loads(gzip.decompress(packed))
        except (OSError, EOFError, zlib.error, ValueError):
            where = f"{app.state.store.name}: report {report_id}"
            message = "is damaged: the details of its queries cannot be read"
            raise InputError(message, where=where) from None

    return app.state.parts.get((report_id, name), read)


def required_part(app: FastAPI, report_id: int, name: str) -> Any:
    """Return a part of a report's page as data; refuse a report that was saved without."""
    part = part_of(app, report_id, name)
    if part is None:
        raise RequestRefusedError(
            404,
            f"report {report_id} is not in the store, or was saved without details of its queries;"
            " evaluate it again with --save",
        )
    return part


async def compared(request: Request, options: ComparisonRequest) -> StoredComparison:
    """Return a comparison; one that is not cached waits for a slot."""
    app, key = request.app, (tuple(options.chosen), options.primary, options.margin)

    def compare() -> StoredComparison:
        stored = [app.state.store.baseline(str(id)) for id in options.chosen]
        parts = partial(part_of, app)
        comparison = compare_stored(stored, parts, primary=options.primary, margin=options.margin)
        # Computed here, in the slot of this comparison.
        _ = comparison.document, comparison.head
        return comparison

    get = partial(app.state.comparisons.get, key, compare)
    if app.state.comparisons.holds(key):
        return await run_in_threadpool(get)
    return await _in_turn(request, get)


async def _in_turn(request: Request, work: Callable[[], Result]) -> Result:
    """Run a long computation in one of a few slots; refuse if none becomes free soon."""
    slots: asyncio.Semaphore = request.app.state.comparing
    try:
        async with asyncio.timeout(_COMPARISON_PATIENCE_SECONDS):
            await slots.acquire()
    except TimeoutError:
        message = "other comparisons are being computed; try again in a moment"
        raise RequestRefusedError(503, message) from None
    try:
        if await request.is_disconnected():
            raise RequestRefusedError(503, "the client has disconnected")
        # A shutdown cancels this without waiting for the thread.
        return await run_sync(work, abandon_on_cancel=True)
    finally:
        slots.release()


@router.get("/evaluations", tags=["evaluations"], response_model=OpenAnswer)
def evaluations(request: Request, options: Annotated[EvaluationFilters, Query()]) -> Response:
    """Return a page of evaluations, newest first."""

    def make() -> dict[str, Any]:
        listed = options.listed(request.app.state.store)
        return {
            "evaluations": [evaluation.document() for evaluation in listed.evaluations],
            "total": listed.total,
            "page": options.page,
            "pages": options.pages(listed.total),
        }

    return cached_json(request, make)


@router.get("/evaluations/{id}", tags=["evaluations"], response_model=OpenAnswer)
def evaluation(request: Request, id: Id) -> Response:
    """Return one evaluation."""
    return Json(request.app.state.store.evaluation(id).document())


@router.post("/evaluations/{id}/tags", tags=["evaluations"], response_model=OpenAnswer)
def tag(request: Request, id: Id, new: NewTags) -> Response:
    """Tag an evaluation; the tags then refer to this one."""
    request.app.state.store.tag(id, new.tags)
    return evaluation(request, id)


@router.get("/names", tags=["evaluations"], response_model=OpenAnswer)
def names(request: Request) -> Response:
    """Return every system, tag, measure and verdict in the store."""
    return cached_json(request, lambda: asdict(request.app.state.store.names()))


@router.get("/trend", tags=["evaluations"], response_model=OpenAnswer)
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


@router.get("/reports/{report_id}", tags=["reports"], response_model=OpenAnswer)
def report(request: Request, report_id: Id) -> Response:
    """Return the document of a report, as karat eval -o report.json writes it."""
    return Json(request.app.state.store.report(report_id))


@router.get("/reports/{report_id}/rows", tags=["reports"], response_model=OpenAnswer)
def report_rows(request: Request, report_id: Id) -> Response:
    """Return every query of a report, column by column."""
    return cached_json(request, lambda: required_part(request.app, report_id, "rows"))


@router.get("/reports/{report_id}/queries/{index}", tags=["reports"], response_model=OpenAnswer)
def report_query(request: Request, report_id: Id, index: Index) -> Response:
    """Return one query in full: its gold, the lists of every system, and their texts."""
    head = required_part(request.app, report_id, "head")
    _check_index(index, head["queries"])
    block = required_part(request.app, report_id, f"block-{index // head['block']}")
    return Json(with_texts(block["queries"][index % head["block"]], block["texts"]))


def _check_index(index: int, queries: int) -> None:
    if index >= queries:
        raise RequestRefusedError(404, f"there are {queries:,} queries, counted from 0")


@router.get("/comparisons", tags=["comparisons"], response_model=OpenAnswer)
async def comparison(request: Request, options: Comparison) -> Response:
    """Return the document of a comparison, as karat compare writes it, and warnings."""
    view = await compared(request, options)
    document = {**view.document, "warnings": list(view.warnings)}
    return await run_in_threadpool(Json, document)


@router.get("/comparisons/rows", tags=["comparisons"], response_model=OpenAnswer)
async def comparison_rows(request: Request, options: Comparison) -> Response:
    """Return every query of a comparison, column by column."""
    view = await compared(request, options)
    _head_of(view)
    return await _in_turn(request, lambda: Json(view.rows))


@router.get("/comparisons/queries/{index}", tags=["comparisons"], response_model=OpenAnswer)
async def comparison_query(request: Request, index: Index, options: Comparison) -> Response:
    """Return one query in full: its gold, the lists of every system, and their texts."""
    view = await compared(request, options)
    _check_index(index, _head_of(view)["queries"])
    return await run_in_threadpool(lambda: Json(view.query(index)))


def _head_of(view: StoredComparison) -> Any:
    if view.head is None:
        raise RequestRefusedError(404, "not all of these were saved with details of their queries")
    return view.head
