"""The first page: evaluations, filters, trends; from here any of them are compared or tagged."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Query, Request
from pydantic import Field
from starlette.responses import Response

from karat.reports.html.listing import lines_of
from karat.reports.html.trend_lines import HEIGHT, WIDTH, TrendLine, trend_lines
from karat.store import NoHistoryError, Store
from karat.web.kept import kept_page
from karat.web.rendering import render, rendered
from karat.web.wanted import Name, Wanted

router = APIRouter(include_in_schema=False)

# As many lines as can be looked at together; the systems saved last have them.
_DRAWN = 6


class Shown(Wanted):
    """What the page shows: some of the evaluations, and a measure over time."""

    measure: Name | None = Field(None, description="The measure whose trends are drawn.")


@router.get("/")
def home(request: Request, shown: Annotated[Shown, Query()]) -> Response:
    """The evaluations of the store; where there is none yet, how to begin."""
    try:
        return kept_page(request, lambda: _page(request.app, shown))
    except NoHistoryError:
        return render(request, "empty.html", title="Evaluations", here="/")


def _page(app: FastAPI, shown: Shown) -> bytes:
    store: Store = app.state.store
    found = shown.listed(store)
    if not found.total and not shown.filters:
        return rendered(app, "empty.html", title="Evaluations", here="/")
    listed = lines_of(found.evaluations)
    measure = shown.measure or next(iter(listed.measures), None)
    trends = _trends(app, shown, measure)
    return rendered(
        app,
        "home.html",
        title="Evaluations",
        here="/",
        shown=shown,
        names=store.names(),
        list=listed,
        total=found.total,
        turns=_turns(shown, shown.pages(found.total)),
        measure=measure,
        trends=trends[:_DRAWN],
        more=len(trends) - _DRAWN,
        box=(WIDTH, HEIGHT),
    )


def _trends(app: FastAPI, shown: Shown, measure: str | None) -> list[TrendLine]:
    """The lines of every system; all pages of a list have the same."""
    if measure is None:
        return []
    store: Store = app.state.store
    wanted = {"system": shown.system, "tag": shown.tag}
    found: list[TrendLine] = app.state.trends.get(
        (measure, *wanted.values()),
        lambda: trend_lines(store.trend(measure, **wanted)),
        stamp=store.stamp(),
    )
    return found


def _turns(shown: Shown, pages: int) -> dict[str, Any]:
    """Where the pages before and after this one are."""
    asked = shown.model_dump(exclude_none=True, exclude_defaults=True, exclude={"page"})

    def address(page: int) -> str:
        return f"/?{urlencode({**asked, 'page': page})}"

    return {
        "page": shown.page,
        "pages": pages,
        "newer": address(min(shown.page - 1, pages)) if shown.page > 1 else None,
        "older": address(shown.page + 1) if shown.page < pages else None,
    }
