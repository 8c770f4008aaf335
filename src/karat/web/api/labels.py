"""API: label sets, the next item of a rater, judgments, agreement and export.

A rater sees no system, rank or score, and nothing of what other raters said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from karat.errors import UsageError
from karat.label.label_sets import PairToLabel, UnjudgedPairs, read_pool, unjudged_pairs
from karat.label.labelling import (
    FEW,
    Progress,
    agreement,
    label_lines,
    majority,
    next_item,
    progress,
    qrels_lines,
    rater_name,
    rationale_text,
    votes,
)
from karat.report.html.view import unpacked
from karat.store import Judgment, LabelItem, LabelSet, NoHistoryError, Store
from karat.store.records import timestamp
from karat.web.errors import NotFoundError
from karat.web.rendering import Json
from karat.web.response_cache import cached_json

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
    """A label set of the unjudged items at the top of a stored report's lists."""

    report_id: int = Field(ge=1, lt=2**31, strict=True)
    depth: int = Field(5, ge=1, le=MOST_DEPTH, strict=True)
    seed: int = Field(0, ge=0, lt=2**63, strict=True)
    name: str = Field("", max_length=200)


class NewJudgment(BaseModel):
    """A judgment of the item at a position; the grade null is "can't tell"."""

    rater: str = Field(max_length=200)
    position: int = Field(ge=0, lt=2**31, strict=True)
    # Required: a forgotten grade is not "can't tell".
    grade: Annotated[int, Field(ge=0, le=3, strict=True)] | None
    rationale: str = Field("", max_length=10_000)


class Undo(BaseModel):
    """The rater whose last judgment is withdrawn."""

    rater: str = Field(max_length=200)


class RaterProgress(BaseModel):
    """The progress of a rater; ``judged`` includes "can't tell"."""

    rater: str
    judged: int
    cannot_tell: int
    of: int
    finished: bool


class SetAnswer(BaseModel):
    """A set and the progress of its raters; ``own`` is that of the rater who asks."""

    id: int
    name: str
    made_at: str
    size: int
    about: str
    raters: list[RaterProgress]
    own: RaterProgress | None = None


class SetsAnswer(BaseModel):
    """Every set, newest first."""

    sets: list[SetAnswer]


class ItemAnswer(BaseModel):
    """What a rater sees of an item."""

    position: int
    query_id: str
    item_id: str
    query: str
    text: str
    facts: dict[str, str]


class NextAnswer(BaseModel):
    """The next item of a rater, null if all are judged."""

    item: ItemAnswer | None
    judged: int


class OwnJudgment(BaseModel):
    """A judgment of the rater who asks."""

    position: int
    grade: float | None
    rationale: str


class JudgedAnswer(BaseModel):
    """The judgment that was added or withdrawn, and the rater's next item."""

    judgment: OwnJudgment | None
    judged: int
    next: int | None


class PairAgreement(BaseModel):
    """The agreement of two raters; ``because`` says why a number is null."""

    raters: list[str]
    n: int
    same: int
    share: float | None
    kappa: float | None
    kappa_linear: float | None
    because: str | None


class MajorityCounts(BaseModel):
    """The number of items with a majority grade, and of those without, by reason."""

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
    """The agreement of raters; ``few`` is the number of common items that a kappa needs."""

    set: int
    size: int
    few: int
    raters: list[RaterProgress]
    pairs: list[PairAgreement]
    majority: MajorityCounts
    ties: list[TieAnswer]


@router.get("/label-sets", response_model=SetsAnswer)
def label_sets(request: Request) -> Response:
    """Return every set, newest first, with the progress of its raters."""
    store: Store = request.app.state.store
    return Json({"sets": [set_document(store, one) for one in sets_of(store)]})


@router.post("/label-sets", response_model=SetAnswer, status_code=201)
def make_label_set(request: Request, new: NewSet) -> Response:
    """Make a set of every unjudged item in the top of any system of a stored report."""
    store: Store = request.app.state.store
    made = from_report(store, new.report_id, depth=new.depth, seed=new.seed, name=new.name)
    return Json(set_document(store, made), status_code=201)


@router.get("/label-sets/{set_id}", response_model=SetAnswer)
def label_set(request: Request, set_id: int, rater: Rater | None = None) -> Response:
    """Return one set and the progress of its raters."""
    store: Store = request.app.state.store
    name = None if rater is None else rater_name(rater)
    return Json(set_document(store, store.label_set(set_id), rater=name))


@router.get("/label-sets/{set_id}/next", response_model=NextAnswer)
def next_to_label(
    request: Request, set_id: int, rater: Rater, besides: int | None = None
) -> Response:
    """Return the next item of a rater.

    ``besides`` skips the item on the rater's screen, to fetch the one after it.
    """
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    name = rater_name(rater)
    said = votes(store.judgments(set_id, rater=name))
    item = next_item(items, said, name, besides=besides)
    if item is not None:
        check_readable(item, set_id)
    return Json({"item": None if item is None else item.document(), "judged": len(said)})


@router.post("/label-sets/{set_id}/judgments", response_model=JudgedAnswer)
def judge(request: Request, set_id: int, new: NewJudgment) -> Response:
    """Add a judgment; one that is sent again, after a lost answer, is added once."""
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    if new.position >= len(items):
        raise UsageError(f"set {set_id} has no item {new.position}; it has {len(items):,}")
    name, rationale = rater_name(new.rater), rationale_text(new.rationale)
    # The first request may still be under way when it is repeated.
    with request.app.state.raters.hold((set_id, name)):
        own = votes(store.judgments(set_id, rater=name))
        judgment = next((one for one in own if one.position == new.position), None)
        if judgment is None or (judgment.grade, judgment.rationale) != (new.grade, rationale):
            judgment = store.judge(set_id, new.position, name, new.grade, rationale=rationale)
            own = [one for one in own if one.position != new.position] + [judgment]
    return Json({"judgment": judgment_document(judgment), **standing(items, own, name)})


@router.post("/label-sets/{set_id}/undo", response_model=JudgedAnswer)
def undo(request: Request, set_id: int, whose: Undo) -> Response:
    """Withdraw the rater's last judgment; ``judgment`` is null if there is none."""
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    name = rater_name(whose.rater)
    with request.app.state.raters.hold((set_id, name)):
        withdrawn = store.take_back(set_id, name)
        own = votes(store.judgments(set_id, rater=name))
    return Json({"judgment": judgment_document(withdrawn), **standing(items, own, name)})


@router.get("/label-sets/{set_id}/agreement", response_model=AgreementAnswer)
def agreement_of(request: Request, set_id: int) -> Response:
    """Return the agreement of every two raters, and items without a majority grade."""
    store: Store = request.app.state.store
    one = store.label_set(set_id)
    return cached_json(
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
    """Return a file of every judgment as JSONL, or of the majority's grades as qrels.

    Ties and "can't tell" have no line in qrels; headers count them.
    """
    store: Store = request.app.state.store
    items = items_of(request, store.label_set(set_id))
    said = store.judgments(set_id, rater=None if rater is None else rater_name(rater))
    if not said:
        raise UsageError(f"nothing was labelled in set {set_id} yet; there is nothing to export")
    if form == "jsonl":
        # One rater's file is gold: it leaves out decisions between raters.
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


def import_pool(store: Store, path: Path) -> LabelSet:
    """Add a pool file as a label set; the same pool again returns the existing set."""
    items = placed(read_pool(path))
    return store.add_label_set(_free_name(store, path), items, about=f"From the pool {path.name}.")


def _free_name(store: Store, path: Path) -> str:
    """Return a free name after the file; pools are often called the same."""
    stem = path.name.split(".")[0].strip()
    stem = stem if stem.strip("+-0123456789") else f"pool {stem}".strip()
    taken = {label_set.name for label_set in sets_of(store)}
    names = chain([stem], (f"{stem} {number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def from_report(store: Store, report_id: int, *, depth: int, seed: int, name: str) -> LabelSet:
    """Add a set of every unjudged item in the top of any system of a stored report."""
    head, blocks = _parts(store, report_id)
    found = unjudged_pairs(head, blocks, depth=depth, seed=seed)
    if not found.items:
        raise UsageError(
            f"report {report_id} has nothing to label in the top {depth}: {_why_empty(found)}"
        )
    plain = " ".join(name.split()) or f"Report {report_id}, top {depth}"
    return store.add_label_set(plain, placed(found.items), about=found.about())


def placed(items: Sequence[PairToLabel]) -> list[LabelItem]:
    """Return items with their positions in the order that raters share."""
    return [
        LabelItem(one.query_id, one.item_id, one.query, one.text, at, facts=one.facts)
        for at, one in enumerate(items)
    ]


def sets_of(store: Store) -> list[LabelSet]:
    """Return every set, newest first; none if there is no store yet."""
    try:
        return store.label_sets()
    except NoHistoryError:
        return []


def items_of(request: Request, one: LabelSet) -> list[LabelItem]:
    """Return the items of a set; they never change, so they are cached."""
    state = request.app.state
    kept: list[LabelItem] = state.parts.get(
        ("label-set", one.id), lambda: state.store.label_items(one.id), stamp=one.digest
    )
    return kept


def set_document(store: Store, one: LabelSet, *, rater: str | None = None) -> dict[str, Any]:
    """Return a set with every rater's progress; ``own`` is that of ``rater``."""
    raters = [
        Progress(each.rater, each.judged, each.cannot_tell, one.size)
        for each in store.tallies(one.id)
    ]
    document = {
        "id": one.id,
        "name": one.name,
        "made_at": timestamp(one.made_at),
        "size": one.size,
        "about": one.about,
        "raters": [each.to_dict() for each in raters],
    }
    if rater is None:
        return document
    own = next((each for each in raters if each.rater == rater), Progress(rater, 0, 0, one.size))
    return document | {"own": own.to_dict()}


def agreement_document(
    one: LabelSet, items: Sequence[LabelItem], said: Sequence[Judgment]
) -> dict[str, Any]:
    """Return the agreement of every two raters, and the majority's grades."""
    found = majority(items, said)
    return {
        "set": one.id,
        "size": one.size,
        "few": FEW,
        "raters": [each.to_dict() for each in progress(one.size, said)],
        "pairs": [each.to_dict() for each in agreement(said)],
        "majority": found.counts(),
        "ties": [tie.to_dict() for tie in found.ties],
    }


def check_readable(item: LabelItem, set_id: int) -> None:
    """Refuse an item without its text, which a rater could only guess."""
    if not item.text.strip():
        raise UsageError(
            f"the items of set {set_id} came without texts, so there is nothing to read; import"
            " them with --queries and --corpus to label them by hand"
        )


def judgment_document(one: Judgment | None) -> dict[str, Any] | None:
    """Return a judgment as its rater sees it."""
    if one is None:
        return None
    return {"position": one.position, "grade": one.grade, "rationale": one.rationale}


def standing(
    items: Sequence[LabelItem], said: Sequence[Judgment], rater: str
) -> dict[str, int | None]:
    """Return the number of items a rater has judged, and the position of the next."""
    item = next_item(items, said, rater)
    return {"judged": len(said), "next": None if item is None else item.position}


def _parts(store: Store, report_id: int) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return the head and the blocks of a stored report's page."""
    data = store.part(report_id, "head")
    if data is None:
        raise NotFoundError(
            f"report {report_id} is not in the store, or was saved without its lists;"
            " evaluate it again with --save"
        )
    head: Mapping[str, Any] = unpacked(data)
    blocks: list[Mapping[str, Any]] = []
    while (block := store.part(report_id, f"block-{len(blocks)}")) is not None:
        blocks.append(unpacked(block))
    return head, blocks


def _why_empty(found: UnjudgedPairs) -> str:
    lacking = found.without_text + found.without_query
    if lacking:
        return f"{lacking:,} unjudged items have no text; evaluate with --queries and --corpus"
    return "every item there is judged"
