"""Label sets between the store and the pages: made, looked up, and told as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from fastapi import Request

from karat.errors import UsageError
from karat.judging.label_sets import ToLabel, Unjudged, read_pool, unjudged_of
from karat.judging.labelling import FEW, Progress, agreement, majority, next_item, progress
from karat.reports.html.view import unpacked
from karat.store import Judgment, LabelItem, LabelSet, NoHistoryError, Store
from karat.store.records import spelled
from karat.web.errors import NoSuchThingError


def import_pool(store: Store, path: Path) -> LabelSet:
    """The pool file as a label set; the same pool again is the set that is there."""
    items = placed(read_pool(path))
    return store.add_label_set(_free_name(store, path), items, about=f"From the pool {path.name}.")


def _free_name(store: Store, path: Path) -> str:
    """After the file; nobody is asked here, and the next pool's file is often called the same."""
    own = path.name.split(".")[0].strip()
    own = own if own.strip("+-0123456789") else f"pool {own}".strip()
    taken = {one.name for one in sets_of(store)}
    names = chain([own], (f"{own} {at}" for at in count(2)))
    return next(name for name in names if name not in taken)


def from_report(store: Store, report_id: int, *, depth: int, seed: int, name: str) -> LabelSet:
    """A set of every unjudged item in the top of any system of a stored report."""
    head, blocks = _parts(store, report_id)
    found = unjudged_of(head, blocks, depth=depth, seed=seed)
    if not found.items:
        raise UsageError(
            f"report {report_id} has nothing to label in the top {depth}: {_why_empty(found)}"
        )
    plain = " ".join(name.split()) or f"Report {report_id}, top {depth}"
    return store.add_label_set(plain, placed(found.items), about=found.about())


def placed(items: Sequence[ToLabel]) -> list[LabelItem]:
    """Items at their places in the order that raters share."""
    return [
        LabelItem(one.query_id, one.item_id, one.query, one.text, at, facts=one.facts)
        for at, one in enumerate(items)
    ]


def sets_of(store: Store) -> list[LabelSet]:
    """Every set, the newest first; none where nothing was ever stored."""
    try:
        return store.label_sets()
    except NoHistoryError:
        return []


def items_of(request: Request, one: LabelSet) -> list[LabelItem]:
    """The items of a set in their order; they never change, so their texts are read once."""
    state = request.app.state
    kept: list[LabelItem] = state.parts.get(
        ("label-set", one.id), lambda: state.store.label_items(one.id), stamp=one.digest
    )
    return kept


def set_document(store: Store, one: LabelSet, *, rater: str | None = None) -> dict[str, Any]:
    """A set with every rater's progress; ``own`` is that of the rater who asks."""
    raters = [
        Progress(each.rater, each.judged, each.cannot_tell, one.size)
        for each in store.tallies(one.id)
    ]
    told = {
        "id": one.id,
        "name": one.name,
        "made_at": spelled(one.made_at),
        "size": one.size,
        "about": one.about,
        "raters": [each.document() for each in raters],
    }
    if rater is None:
        return told
    own = next((each for each in raters if each.rater == rater), Progress(rater, 0, 0, one.size))
    return told | {"own": own.document()}


def agreement_document(
    one: LabelSet, items: Sequence[LabelItem], said: Sequence[Judgment]
) -> dict[str, Any]:
    """How far every two raters agree, and what a majority would say."""
    found = majority(items, said)
    return {
        "set": one.id,
        "size": one.size,
        "few": FEW,
        "raters": [each.document() for each in progress(one.size, said)],
        "pairs": [each.document() for each in agreement(said)],
        "majority": found.counts(),
        "ties": [tie.document() for tie in found.ties],
    }


def check_readable(item: LabelItem, set_id: int) -> None:
    """Refuse to show a rater an item without its text: it can only be guessed at."""
    if not item.text.strip():
        raise UsageError(
            f"the items of set {set_id} came without texts, so there is nothing to read; import"
            " them with --queries and --corpus to label them by hand"
        )


def item_document(item: LabelItem) -> dict[str, Any]:
    """All that a rater gets of an item."""
    return {
        "position": item.position,
        "query_id": item.query_id,
        "item_id": item.item_id,
        "query": item.query,
        "text": item.text,
        "facts": dict(item.facts),
    }


def judgment_document(one: Judgment | None) -> dict[str, Any] | None:
    """What a rater said, to that rater."""
    if one is None:
        return None
    return {"position": one.position, "grade": one.grade, "rationale": one.rationale}


def standing(
    items: Sequence[LabelItem], said: Sequence[Judgment], rater: str
) -> dict[str, int | None]:
    """How much a rater has judged, and the position of what comes next."""
    item = next_item(items, said, rater)
    return {"judged": len(said), "next": None if item is None else item.position}


def _parts(store: Store, report_id: int) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The head and the blocks of a stored report's page."""
    data = store.part(report_id, "head")
    if data is None:
        raise NoSuchThingError(
            f"report {report_id} is not in the store, or was saved without its lists;"
            " evaluate it again with --save"
        )
    head: Mapping[str, Any] = unpacked(data)
    blocks: list[Mapping[str, Any]] = []
    while (block := store.part(report_id, f"block-{len(blocks)}")) is not None:
        blocks.append(unpacked(block))
    return head, blocks


def _why_empty(found: Unjudged) -> str:
    lacking = found.without_text + found.without_query
    if lacking:
        return f"{lacking:,} unjudged items have no text; evaluate with --queries and --corpus"
    return "every item there is judged"
