"""The HTML pages of the workbench: home, evaluation, comparison, explorer, runs, labels, login."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from karat.errors import KaratError
from karat.label.raters import SCALE
from karat.reports.history import HEIGHT, WIDTH, evaluation_table, trend_lines
from karat.reports.html.elements import system_names
from karat.store import NoHistoryError, Store
from karat.store.records import timestamp
from karat.web.evaluations import (
    Comparison,
    EvaluationFilters,
    Id,
    Name,
    compared,
    part_of,
)
from karat.web.labels import agreement_document, set_document, set_documents
from karat.web.live import LONGEST_TEXT, MOST_HITS
from karat.web.responses import asset_table, cached_page, render, render_report, render_template
from karat.web.runs import run_document, run_documents

router = APIRouter(include_in_schema=False)

# The number of trends on the home page, for the most recently saved systems.
_TRENDS_SHOWN = 6
# The number of newest evaluations that a label set can be made from.
_OFFERED = 100
_CACHE_FOREVER = "public, max-age=31536000, immutable"


class HomeFilters(EvaluationFilters):
    """The filters of the home page, and the measure whose trends it shows."""

    measure: Name | None = Field(None, description="The measure whose trends are drawn.")


@router.get("/")
def home(request: Request, shown: Annotated[HomeFilters, Query()]) -> Response:
    """List the evaluations of the store, or show how to save the first."""
    try:
        return cached_page(request, lambda: _page(request.app, shown))
    except NoHistoryError:
        return render(request, "empty.html", title="Evaluations", here="/")


def _page(app: FastAPI, shown: HomeFilters) -> bytes:
    store: Store = app.state.store
    page = shown.listed(store)
    if not page.total and not shown.filters:
        return render_template(app, "empty.html", title="Evaluations", here="/")
    listed = evaluation_table(page.evaluations)
    measure = shown.measure or next(iter(listed["measures"]), None)
    trends = []
    if measure is not None:
        trends = trend_lines(store.trend(measure, system=shown.system, tag=shown.tag))
    return render_template(
        app,
        "home.html",
        title="Evaluations",
        here="/",
        shown=shown,
        names=store.names(),
        list=listed,
        total=page.total,
        turns=_neighbours(shown, shown.pages(page.total)),
        measure=measure,
        trends=trends[:_TRENDS_SHOWN],
        more=len(trends) - _TRENDS_SHOWN,
        box=(WIDTH, HEIGHT),
    )


def _neighbours(shown: HomeFilters, pages: int) -> dict[str, Any]:
    """Return the addresses of the pages before and after this one."""
    filters = shown.model_dump(exclude_none=True, exclude_defaults=True, exclude={"page"})

    def address(page: int) -> str:
        return f"/?{urlencode({**filters, 'page': page})}"

    return {
        "page": shown.page,
        "pages": pages,
        "newer": address(min(shown.page - 1, pages)) if shown.page > 1 else None,
        "older": address(shown.page + 1) if shown.page < pages else None,
    }


@router.get("/login")
def login() -> RedirectResponse:
    """Redirect: a request that gets here has the token, or needs none."""
    return RedirectResponse("/", status_code=303)


@router.get("/assets/{name}")
def asset(request: Request, name: str) -> Response:
    """Return a file of the asset table; its digest in the URL lets browsers keep it forever."""
    file = asset_table().get(name)
    if file is None:
        raise HTTPException(404)
    same = request.query_params.get("v") == file.digest
    headers = {"Cache-Control": _CACHE_FOREVER if same else "no-cache", "ETag": f'"{file.digest}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(file.content(), media_type=file.kind, headers=headers)


@router.get("/explore")
def explore(request: Request) -> HTMLResponse:
    """Return the page; its results come from the API."""
    about, problem = _systems(request)
    return render(
        request,
        "explore.html",
        title="Explore",
        here="/explore",
        about=about,
        problem=problem,
        longest=LONGEST_TEXT,
        most=MOST_HITS,
    )


def _systems(request: Request) -> tuple[dict[str, Any] | None, str | None]:
    """Return the systems of the karat.yaml, if any, and the problem if it cannot be read."""
    if request.app.state.settings.config is None:
        return None, None
    try:
        return request.app.state.live.document(), None
    except KaratError as error:
        return None, str(error)


@router.get("/evaluations/{id}")
def evaluation(request: Request, id: Id) -> Response:
    """Return the page of a report; its queries come from the API."""
    store: Store = request.app.state.store
    saved = store.evaluation(id)
    url = f"/api/reports/{saved.report_id}"
    table = evaluation_table(store.together(saved.report_id))
    lines = {line["id"]: line for line in table["lines"]}
    return render_report(
        request,
        "evaluation.html",
        document=store.report(saved.report_id),
        head=part_of(request.app, saved.report_id, "head"),
        rows_url=f"{url}/rows",
        query_url=f"{url}/queries/{{index}}",
        line=lines[saved.id],
        together=[line for line in lines.values() if line["id"] != saved.id],
    )


@router.get("/compare")
async def comparison(request: Request, options: Comparison) -> Response:
    """Return the page of a comparison; refuse what cannot be compared, with reasons."""
    view = await compared(request, options)
    return await run_in_threadpool(
        render_report,
        request,
        "comparison.html",
        document=view.document,
        head=view.head,
        rows_url=f"/api/comparisons/rows?{options.query_string}",
        query_url=f"/api/comparisons/queries/{{index}}?{options.query_string}",
        compared=view.systems,
        names=system_names(view.document),
        warnings=view.warnings,
        turned={id: options.with_baseline(id) for id in options.chosen},
    )


@router.get("/new")
def new(request: Request) -> HTMLResponse:
    """Return the form that starts an evaluation, and the list of those started."""
    about, problem = _systems(request)
    runs = run_documents(request.app)
    going = next((run for run in runs if run["state"] in ("running", "stopping")), None)
    return render(
        request,
        "new.html",
        title="New evaluation",
        here="/new",
        about=about,
        problem=problem,
        runs=runs,
        going=going,
    )


@router.get("/runs/{id}")
def run(request: Request, id: int) -> HTMLResponse:
    """Return the page of a running or finished evaluation."""
    job = run_document(request.app, id)
    by_system = {progress["system"]: progress for progress in job["progress"]}
    title = f"{job['state']}: evaluation run {id}"
    return render(request, "run.html", title=title, here="/new", run=job, by_system=by_system)


@router.get("/label")
def label_sets(request: Request) -> HTMLResponse:
    """Return the list of label sets, and the form that makes one of an evaluation."""
    store: Store = request.app.state.store
    return render(
        request,
        "label_sets.html",
        title="Label",
        here="/label",
        sets=set_documents(store),
        reports=_reports(store),
    )


@router.get("/label/{set_id}")
def label(request: Request, set_id: int) -> HTMLResponse:
    """Return the labelling page; its items come from the API, once the rater has a name."""
    store: Store = request.app.state.store
    document = set_document(store, store.label_set(set_id))
    return render(
        request,
        "label.html",
        title=document["name"],
        here="/label",
        label_set=document,
        scale=list(SCALE.items()),
    )


@router.get("/label/{set_id}/results")
def results(request: Request, set_id: int) -> Response:
    """Return progress and agreement of raters, and the exports; no single grade is shown."""
    label_set = request.app.state.store.label_set(set_id)
    return render(
        request,
        "label_results.html",
        title=f"{label_set.name}: results",
        here="/label",
        label_set=set_document(request.app.state.store, label_set),
        agreement=agreement_document(request, label_set),
    )


def _reports(store: Store) -> list[dict[str, Any]]:
    """Return the newest reports, each with the systems that were saved together."""
    try:
        newest = store.listed(limit=_OFFERED).evaluations
    except NoHistoryError:
        return []
    reports: dict[int, dict[str, Any]] = {}
    for saved in newest:
        id, saved_at = saved.report_id, timestamp(saved.saved_at)
        new = {"id": id, "saved_at": saved_at, "systems": [], "tags": {}}
        report = reports.setdefault(id, new)
        report["systems"].append(saved.system)
        report["tags"] |= dict.fromkeys(saved.tags)
    return list(reports.values())
