"""Label sets over HTTP: the next item of a rater, judgments, agreement and export.

A rater sees no system, rank or score, and no labels of other raters.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from karat.errors import UsageError
from karat.label.label_sets import read_pool, unjudged_pairs
from karat.label.raters import (
    FEW,
    agreement,
    label_lines,
    next_item,
    progress,
    qrels_lines,
    rater_name,
    rater_progress,
    rationale_text,
    resolve,
    votes,
)
from karat.store import Judgment, LabelItem, LabelSet, NewJudgment, NoHistoryError, Store
from karat.web.evaluations import required_part
from karat.web.responses import Json, OpenAnswer

router = APIRouter(prefix="/api", tags=["labels"])

Rater = Annotated[str, Query(max_length=200, description="Who labels.")]
MOST_DEPTH = 1000
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "every judgment as JSONL, or grades as qrels",
        "content": {"application/x-ndjson": _TEXT, "text/plain": _TEXT},
    }
}


class LabelSetRequest(BaseModel):
    """A label set of the unjudged items at the top of a stored report's lists."""

    report_id: int = Field(ge=1, lt=2**31, strict=True)
    depth: int = Field(5, ge=1, le=MOST_DEPTH, strict=True)
    seed: int = Field(0, ge=0, lt=2**63, strict=True)
    name: str = Field("", max_length=200)


class JudgmentRequest(BaseModel):
    """A judgment of the item at a position; the grade null is "can't tell"."""

    rater: str = Field(max_length=200)
    position: int = Field(ge=0, lt=2**31, strict=True)
    # Required: a forgotten grade is not "can't tell".
    grade: Annotated[int, Field(ge=0, le=3, strict=True)] | None
    rationale: str = Field("", max_length=10_000)


class UndoRequest(BaseModel):
    """The rater whose last judgment is withdrawn."""

    rater: str = Field(max_length=200)


@router.get("/label-sets", response_model=OpenAnswer)
def label_sets(request: Request) -> Response:
    """Return every set, newest first, with the progress of its raters."""
    return Json({"sets": set_documents(request.app.state.store)})


@router.post("/label-sets", response_model=OpenAnswer, status_code=201)
def make_label_set(request: Request, new: LabelSetRequest) -> Response:
    """Create a set of every unjudged item in the top of any system's list in a stored report."""
    report_id, depth = new.report_id, new.depth
    head = required_part(request.app, report_id, "head")
    numbers = range(-(-head["queries"] // head["block"]))
    blocks = [required_part(request.app, report_id, f"block-{number}") for number in numbers]
    pairs = unjudged_pairs(head, blocks, depth=depth, seed=new.seed)
    if not pairs.items:
        reason = "every item is judged"
        if pairs.without_text:
            lacking = f"{pairs.without_text:,} items have no text"
            reason = f"{lacking}; evaluate with --queries and --corpus"
        raise UsageError(f"report {report_id} has nothing to label in the top {depth}: {reason}")
    name = " ".join(new.name.split()) or f"Report {report_id}, top {depth}"
    store: Store = request.app.state.store
    label_set = store.add_label_set(name, pairs.items, about=pairs.about)
    return Json(set_document(store, label_set), status_code=201)


@router.get("/label-sets/{set_id}", response_model=OpenAnswer)
def label_set(request: Request, set_id: int, rater: Rater | None = None) -> Response:
    """Return one set and the progress of its raters."""
    store: Store = request.app.state.store
    name = None if rater is None else rater_name(rater)
    return Json(set_document(store, store.label_set(set_id), rater=name))


@router.get("/label-sets/{set_id}/next", response_model=OpenAnswer)
def next_to_label(
    request: Request, set_id: int, rater: Rater, besides: int | None = None
) -> Response:
    """Return the next item of a rater.

    ``besides`` skips the item on the rater's screen, to fetch the one after it.
    """
    name = rater_name(rater)
    items, votes_of_rater = _items_and_votes(request, set_id, name)
    item = next_item(items, votes_of_rater, name, besides=besides)
    if item is not None and not item.text.strip():
        # Without its text, a rater could only guess.
        raise UsageError(
            f"the items of set {set_id} have no texts to read; import"
            " them with --queries and --corpus to label them by hand"
        )
    return Json({"item": None if item is None else asdict(item), "judged": len(votes_of_rater)})


@router.post("/label-sets/{set_id}/judgments", response_model=OpenAnswer)
def judge(request: Request, set_id: int, new: JudgmentRequest) -> Response:
    """Add a judgment; a retry after a lost response does not add it twice."""
    name, rationale = rater_name(new.rater), rationale_text(new.rationale)
    judgment = NewJudgment(new.position, name, new.grade, rationale)
    request.app.state.store.judge_many(set_id, [judgment])
    return _judged(request, set_id, name, judgment)


@router.post("/label-sets/{set_id}/undo", response_model=OpenAnswer)
def undo(request: Request, set_id: int, whose: UndoRequest) -> Response:
    """Withdraw the rater's last judgment; ``judgment`` is null if there is none."""
    name = rater_name(whose.rater)
    return _judged(request, set_id, name, request.app.state.store.take_back(set_id, name))


def _judged(
    request: Request, set_id: int, rater: str, judgment: NewJudgment | Judgment | None
) -> Response:
    """Return the judgment that was added or withdrawn, and the rater's next item."""
    items, votes_of_rater = _items_and_votes(request, set_id, rater)
    item = next_item(items, votes_of_rater, rater)
    shown = ("position", "grade", "rationale")
    return Json(
        {
            "judgment": judgment and {name: getattr(judgment, name) for name in shown},
            "judged": len(votes_of_rater),
            "next": None if item is None else item.position,
        }
    )


@router.get("/label-sets/{set_id}/agreement", response_model=OpenAnswer)
def agreement_of(request: Request, set_id: int) -> Response:
    """Return the agreement of every two raters, and items without a majority grade."""
    return Json(agreement_document(request, request.app.state.store.label_set(set_id)))


@router.get("/label-sets/{set_id}/export", response_class=Response, responses=_FILES)
def export(
    request: Request,
    set_id: int,
    form: Literal["jsonl", "qrels"] = "jsonl",
    rater: Rater | None = None,
) -> Response:
    """Return a file of every judgment as JSONL, or of the majority's grades as qrels.

    Ties and "can't tell" have no line in qrels; headers count them.
    """
    store: Store = request.app.state.store
    items = _items_of(request, store.label_set(set_id))
    judgments = store.judgments(set_id, rater=None if rater is None else rater_name(rater))
    if not judgments:
        raise UsageError(f"set {set_id} has no labels yet, so there is nothing to export")
    if form == "jsonl":
        # One rater's file is used as gold, so it has no adjudicated grades.
        judgments = judgments if rater is None else votes(judgments)
        return _file("".join(label_lines(items, judgments)), f"labels-{set_id}.jsonl", {})
    by_majority = resolve(items, judgments)
    if not by_majority.grades:
        raise UsageError(f"no item of set {set_id} has a majority grade; export JSONL instead")
    headers = {
        f"X-Karat-{name}".replace("_", "-"): str(number)
        for name, number in by_majority.counts().items()
    }
    return _file("".join(qrels_lines(by_majority)), f"qrels-{set_id}.txt", headers)


def _file(text: str, name: str, headers: dict[str, str]) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', **headers}
    kind = "application/x-ndjson" if name.endswith(".jsonl") else "text/plain"
    return Response(text.encode("utf-8", "replace"), media_type=kind, headers=headers)


def import_pool(store: Store, path: Path) -> LabelSet:
    """Add a pool file as a label set; the same pool again returns the existing set.

    The set is named after the file, with a number if that name is taken.
    """
    stem = path.name.split(".")[0].strip()
    stem = stem if stem.strip("+-0123456789") else f"pool {stem}".strip()
    used_names = {document["name"] for document in set_documents(store)}
    names = chain([stem], (f"{stem} {number}" for number in count(2)))
    name = next(name for name in names if name not in used_names)
    return store.add_label_set(name, read_pool(path), about=f"From the pool {path.name}.")


def _items_of(request: Request, label_set: LabelSet) -> list[LabelItem]:
    """Return the items of a set; they never change, so they are cached."""
    state = request.app.state
    items: list[LabelItem] = state.parts.get(
        ("label-set", label_set.id, label_set.digest),
        lambda: state.store.label_items(label_set.id),
    )
    return items


def _items_and_votes(
    request: Request, set_id: int, rater: str
) -> tuple[list[LabelItem], list[Judgment]]:
    """Return the items of a set, and the votes of one rater that count."""
    store: Store = request.app.state.store
    items = _items_of(request, store.label_set(set_id))
    return items, votes(store.judgments(set_id, rater=rater))


def set_documents(store: Store) -> list[dict[str, Any]]:
    """Return all sets as JSON, newest first; none if there is no store yet."""
    try:
        return [set_document(store, label_set) for label_set in store.label_sets()]
    except NoHistoryError:
        return []


def set_document(store: Store, label_set: LabelSet, *, rater: str | None = None) -> dict[str, Any]:
    """Return a set with every rater's progress; ``own`` is that of ``rater``."""
    judgments = store.judgments(label_set.id)
    raters = {each["rater"]: each for each in progress(label_set.size, judgments)}
    document = label_set.document()
    del document["digest"]
    document["raters"] = list(raters.values())
    if rater is not None:
        document["own"] = raters.get(rater, rater_progress(rater, 0, 0, label_set.size))
    return document


def agreement_document(request: Request, label_set: LabelSet) -> dict[str, Any]:
    """Return the agreement of every two raters, and the majority's grades."""
    judgments = request.app.state.store.judgments(label_set.id)
    by_majority = resolve(_items_of(request, label_set), judgments)
    return {
        "set": label_set.id,
        "size": label_set.size,
        "few": FEW,
        "raters": progress(label_set.size, judgments),
        "pairs": agreement(judgments),
        "majority": by_majority.counts(),
        "ties": by_majority.ties,
    }
