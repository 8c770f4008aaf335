"""A new evaluation, and one under way."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from karat.errors import KaratError
from karat.web.api.runs import run_document, run_documents
from karat.web.rendering import render
from karat.web.workers import jobs_of, live_of

router = APIRouter(include_in_schema=False)


@router.get("/new")
def new(request: Request) -> HTMLResponse:
    """What to choose before an evaluation starts, and what was started before."""
    live, about, problem = live_of(request.app), None, None
    if live.configured:
        try:
            about = live.document()
        except KaratError as error:
            problem = str(error)
    store = request.app.state.store
    runs = run_documents(jobs_of(request.app).all(), store)
    going = next((one for one in runs if one["state"] in ("running", "stopping")), None)
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
    """How far an evaluation is, and what came of it."""
    job = run_document(jobs_of(request.app).job(id), request.app.state.store)
    by_system = {one["system"]: one for one in job["progress"]}
    title = f"{job['state']}: evaluation run {id}"
    return render(request, "run.html", title=title, here="/new", run=job, by_system=by_system)
