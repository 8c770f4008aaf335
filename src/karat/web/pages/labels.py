"""The pages of labelling: all sets, one set for a rater, and what came of it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from karat.judging.labelling import SCALE
from karat.store import LabelSet, NoHistoryError, Store
from karat.store.records import spelled
from karat.web.kept import kept_page
from karat.web.labelled import agreement_document, items_of, set_document, sets_of
from karat.web.rendering import render, rendered

router = APIRouter(include_in_schema=False)

# So many evaluations, the newest, are offered to make a set of.
_OFFERED = 100


@router.get("/label")
def label_sets(request: Request) -> HTMLResponse:
    """Every set, and the form that makes one of an evaluation."""
    store: Store = request.app.state.store
    return render(
        request,
        "label_sets.html",
        title="Label",
        here="/label",
        sets=[set_document(store, one) for one in sets_of(store)],
        reports=_reports(store),
    )


@router.get("/label/{set_id}")
def label(request: Request, set_id: int) -> HTMLResponse:
    """One item at a time; which one comes over the API, once the rater has a name."""
    store: Store = request.app.state.store
    one = set_document(store, store.label_set(set_id))
    return render(
        request, "label.html", title=one["name"], here="/label", one=one, scale=list(SCALE.items())
    )


@router.get("/label/{set_id}/results")
def results(request: Request, set_id: int) -> Response:
    """How far raters are and agree, and the files; no grade of a single item is shown."""
    store: Store = request.app.state.store
    one = store.label_set(set_id)
    stamp = store.judgments_stamp(set_id)
    return kept_page(request, lambda: _results(request, one), stamp=stamp)


def _results(request: Request, one: LabelSet) -> bytes:
    store: Store = request.app.state.store
    return rendered(
        request.app,
        "label_results.html",
        title=f"{one.name}: results",
        here="/label",
        one=set_document(store, one),
        found=agreement_document(one, items_of(request, one), store.judgments(one.id)),
    )


def _reports(store: Store) -> list[dict[str, Any]]:
    """The newest reports, each with the systems that were saved together."""
    try:
        newest = store.listed(limit=_OFFERED).evaluations
    except NoHistoryError:
        return []
    found: dict[int, dict[str, Any]] = {}
    for one in newest:
        report = found.setdefault(
            one.report_id,
            {"id": one.report_id, "saved_at": spelled(one.saved_at), "systems": [], "tags": {}},
        )
        report["systems"].append(one.system)
        report["tags"] |= dict.fromkeys(one.tags)
    return list(found.values())
