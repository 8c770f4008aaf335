"""The query explorer: a question put to the configured systems, side by side."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from karat.errors import KaratError
from karat.web.live import LONGEST_TEXT, MOST_HITS
from karat.web.rendering import render
from karat.web.workers import live_of

router = APIRouter(include_in_schema=False)


@router.get("/explore")
def explore(request: Request) -> HTMLResponse:
    """The page; what it finds comes over the API."""
    live, about, problem = live_of(request.app), None, None
    if live.configured:
        try:
            about = live.document()
        except KaratError as error:
            problem = str(error)
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
