"""Labelling over HTTP: sets of items, what a rater sees next, what raters said, and the export.

What a rater is given names no system, rank or score, and nothing of what other raters said.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from karat.errors import UsageError
from karat.judging.labelling import (
    label_lines,
    majority,
    next_item,
    qrels_lines,
    rater_name,
    rationale_text,
    votes,
)
from karat.store import Store
from karat.web.kept import kept_json
from karat.web.labelled import (
    agreement_document,
    check_readable,
    from_report,
    item_document,
    items_of,
    judgment_document,
    set_document,
    sets_of,
    standing,
)
from karat.web.rendering import Json

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


class NewSet(BaseModel):
    """A set made of what nobody judged yet in the tops of a stored report."""

    report_id: int = Field(ge=1, lt=2**31, strict=True)
    depth: int = Field(5, ge=1, le=MOST_DEPTH, strict=True)
    seed: int = Field(0, ge=0, lt=2**63, strict=True)
    name: str = Field("", max_length=200)


class NewJudgment(BaseModel):
    """What a rater says of the item at a position; the grade null is "can't tell"."""

    rater: str = Field(max_length=200)
    position: int = Field(ge=0, lt=2**31, strict=True)
    # Required: a grade that was forgotten is not "can't tell".
    grade: Annotated[int, Field(ge=0, le=3, strict=True)] | None
    rationale: str = Field("", max_length=10_000)


class Undo(BaseModel):
    """Whose last judgment is taken back."""

    rater: str = Field(max_length=200)


class RaterProgress(BaseModel):
    """How far a rater is; ``judged`` counts "can't tell" too."""

    rater: str
    judged: int
    cannot_tell: int
    of: int
    finished: bool


class SetAnswer(BaseModel):
    """A set, and how far its raters are; ``own`` is the rater's who asks."""

    id: int
    name: str
    made_at: str
    size: int
    about: str
    raters: list[RaterProgress]
    own: RaterProgress | None = None


class SetsAnswer(BaseModel):
    """Every set, the newest first."""

    sets: list[SetAnswer]


class ItemAnswer(BaseModel):
    """All that a rater gets of an item."""

    position: int
    query_id: str
    item_id: str
    query: str
    text: str
    facts: dict[str, str]


class NextAnswer(BaseModel):
    """What a rater is to judge next, null when all is judged."""

    item: ItemAnswer | None
    judged: int


class OwnJudgment(BaseModel):
    """What the rater said."""

    position: int
    grade: float | None
    rationale: str


class JudgedAnswer(BaseModel):
    """The judgment that was kept or taken back, and where the rater is now."""

    judgment: OwnJudgment | None
    judged: int
    next: int | None


class PairAgreement(BaseModel):
    """How far two raters agree; what cannot be said is null, and ``because`` says why."""

    raters: list[str]
    n: int
    same: int
    share: float | None
    kappa: float | None
    kappa_linear: float | None
    because: str | None


class MajorityCounts(BaseModel):
    """How many items have a grade that most raters gave, and why others have none."""

    graded: int
    ties: int
    cannot_tell: int
    unjudged: int


class TieAnswer(BaseModel):
    """An item on which no grade has a majority, with every rater's grade."""

    query_id: str
    item_id: str
    grades: dict[str, float]


class AgreementAnswer(BaseModel):
    """How far raters agree; ``few`` is how many common items a kappa needs."""

    set: int
    size: int
    few: int
    raters: list[RaterProgress]
    pairs: list[PairAgreement]
    majority: MajorityCounts
    ties: list[TieAnswer]


@router.get("/label-sets", response_model=SetsAnswer)
def label_sets(request: Request) -> Response:
    """Every set, the newest first, with how far its raters are."""
    store: Store = request.app.state.store
    return Json({"sets": [set_document(store, one) for one in sets_of(store)]})


@router.post("/label-sets", response_model=SetAnswer, status_code=201)
def make_label_set(request: Request, asked: NewSet) -> Response:
    """Make a set of every unjudged item in the top of any system of a stored report."""
    store: Store = request.app.state.store
    made = from_report(store, asked.report_id, depth=asked.depth, seed=asked.seed, name=asked.name)
    return Json(set_document(store, made), status_code=201)


@router.get("/label-sets/{set_id}", response_model=SetAnswer)
def label_set(request: Request, set_id: int, rater: Rater | None = None) -> Response:
    """One set, and how far its raters are."""
    store: Store = request.app.state.store
    name = None if rater is None else rater_name(rater)
    return Json(set_document(store, store.label_set(set_id), rater=name))


@router.get("/label-sets/{set_id}/next", response_model=NextAnswer)
def next_to_label(
    request: Request, set_id: int, rater: Rater, besides: int | None = None
) -> Response:
    """The next item for a rater.

    ``besides`` leaves out the item that the rater is looking at, to fetch the one after it.
    """
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    name = rater_name(rater)
    said = votes(store.judgments(set_id, rater=name))
    item = next_item(items, said, name, besides=besides)
    if item is not None:
        check_readable(item, set_id)
    return Json({"item": None if item is None else item_document(item), "judged": len(said)})


@router.post("/label-sets/{set_id}/judgments", response_model=JudgedAnswer)
def judge(request: Request, set_id: int, told: NewJudgment) -> Response:
    """Keep a judgment. The same one again, after an answer that was lost, is kept once."""
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    if told.position >= len(items):
        raise UsageError(f"set {set_id} has no item {told.position}; it has {len(items):,}")
    name, rationale = rater_name(told.rater), rationale_text(told.rationale)
    # The first may still be under way when the same comes again.
    with request.app.state.raters.turn((set_id, name)):
        said = votes(store.judgments(set_id, rater=name))
        kept = next((one for one in said if one.position == told.position), None)
        if kept is None or (kept.grade, kept.rationale) != (told.grade, rationale):
            kept = store.judge(set_id, told.position, name, told.grade, rationale=rationale)
            said = [one for one in said if one.position != told.position] + [kept]
    return Json({"judgment": judgment_document(kept), **standing(items, said, name)})


@router.post("/label-sets/{set_id}/undo", response_model=JudgedAnswer)
def undo(request: Request, set_id: int, whose: Undo) -> Response:
    """Take back the rater's last judgment; ``judgment`` is null where there is none."""
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    name = rater_name(whose.rater)
    with request.app.state.raters.turn((set_id, name)):
        taken = store.take_back(set_id, name)
        said = votes(store.judgments(set_id, rater=name))
    return Json({"judgment": judgment_document(taken), **standing(items, said, name)})


@router.get("/label-sets/{set_id}/agreement", response_model=AgreementAnswer)
def agreement_of(request: Request, set_id: int) -> Response:
    """How far every two raters agree, and on which items no grade has a majority."""
    store: Store = request.app.state.store
    one = store.label_set(set_id)
    return kept_json(
        request,
        lambda: agreement_document(one, items_of(request, one), store.judgments(set_id)),
        stamp=store.judgments_stamp(set_id),
    )


@router.get("/label-sets/{set_id}/export", response_class=Response, responses=_FILES)
def export(
    request: Request,
    set_id: int,
    form: Literal["jsonl", "qrels"] = "jsonl",
    rater: Rater | None = None,
) -> Response:
    """What raters said, as a file: every judgment as JSONL, or the majority's grades as qrels.

    Ties and what nobody could tell have no line in qrels; headers count them.
    """
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    said = store.judgments(set_id, rater=None if rater is None else rater_name(rater))
    if not said:
        raise UsageError(f"nothing was labelled in set {set_id} yet; there is nothing to export")
    if form == "jsonl":
        # One rater's file is gold: what the same person decided between raters is not in it.
        said = said if rater is None else votes(said)
        return _file("".join(label_lines(items, said)), f"labels-{set_id}.jsonl", {})
    found = majority(items, said)
    if not found.grades:
        raise UsageError(
            f"no item of set {set_id} has a grade that most of its raters gave; export JSONL"
        )
    counts = {f"X-Karat-{name}".replace("_", "-"): n for name, n in found.counts().items()}
    return _file("".join(qrels_lines(found)), f"qrels-{set_id}.txt", counts)


def _file(text: str, name: str, counts: dict[str, int]) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    headers |= {name: str(count) for name, count in counts.items()}
    kind = "application/x-ndjson" if name.endswith(".jsonl") else "text/plain"
    return Response(text.encode("utf-8", "replace"), media_type=kind, headers=headers)
